"""Classification models of torchvision by name, without their classifier."""

import os
from urllib.error import URLError

from torch import nn

from sksetvalued.networks._backbones import check_image_shape
from sksetvalued.networks._weights import load_weights

N_COLOURS = 3


def torchvision_names():
    """Return the names of the classification models of torchvision."""
    import torchvision

    return torchvision.models.list_models(module=torchvision.models)


def named_weights(backbone, weights):
    """Return the member of torchvision's enumeration that `weights` names, None for a file."""
    from torchvision.models import get_model_weights

    if weights is None or isinstance(weights, os.PathLike) or os.path.isfile(weights):
        return None
    known = get_model_weights(backbone)
    name = weights.removeprefix(known.__name__ + ".")
    if name not in known.__members__:
        raise ValueError(
            f"weights={weights!r} is neither a file nor the name of weights of "
            f"backbone={backbone!r}; names: {', '.join(known.__members__)}."
        )
    return known[name]


def torchvision_backbone(name, params, weights, input_shape):
    """Build a torchvision model that returns features.

    Parameters
    ----------
    name : str
        As in ``torchvision.models.list_models()``.
    params : dict
        Arguments of the model.
    weights : torchvision weights, path-like or None
    input_shape : tuple (n_channels, height, width)

    Returns
    -------
    model : nn.Module
        Its classifier is an identity; inputs have 3 channels.
    """
    from torchvision.models import WeightsEnum, get_model

    check_image_shape(input_shape, name)
    if input_shape[0] not in (1, N_COLOURS):
        raise ValueError(
            f"backbone={name!r} takes images of 3 channels (or 1, repeated), got "
            f"{input_shape[0]}: select channels with `transform` or give your own module."
        )
    from_torchvision = isinstance(weights, WeightsEnum)
    params = {**_size_params(name, input_shape, from_torchvision), **params}
    if name in ("googlenet", "inception_v3") and not from_torchvision:
        params.setdefault("init_weights", True)
    try:
        model = get_model(name, weights=weights if from_torchvision else None, **params)
    except URLError as error:
        raise OSError(
            f"weights={weights} of backbone={name!r} could not be downloaded ({error.reason}): "
            f"fetch {weights.url} on a connected machine and pass the path of the file."
        ) from error
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"backbone={name!r} cannot be built for images of {input_shape[1]} x "
            f"{input_shape[2]} with backbone_params={params!r}: {error}"
        ) from error
    removed = _remove_classifier(model)
    if weights is not None and not from_torchvision:
        load_weights(model, weights, ignored=removed)
    return model


def _size_params(name, input_shape, pretrained):
    """Return the argument that makes a transformer for the size of the images."""
    if name.startswith("vit_") and not pretrained:
        return {"image_size": _vit_size(name, input_shape)}
    if name.startswith("maxvit") and not pretrained:
        return {"input_size": tuple(input_shape[1:])}
    return {}


def _vit_size(name, input_shape):
    height, width = input_shape[1:]
    patch = int(name.rsplit("_", 1)[1])
    if height != width or height % patch:
        raise ValueError(
            f"backbone={name!r} needs square images of a multiple of {patch} pixels a side, got "
            f"{height} x {width}; resize them with `transform`."
        )
    return height


def _remove_classifier(model):
    """Replace the last layer by an identity and drop auxiliary classifiers.

    Returns the prefixes of the parameters that went away. The width of the features becomes an
    attribute of the model.
    """
    layers = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    name, last = layers[-1]
    model.n_features = last.in_features if isinstance(last, nn.Linear) else last.in_channels
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, nn.Identity())
    removed = [name + "."]
    if getattr(model, "aux_logits", False):
        model.aux_logits = False
        for auxiliary in ("aux1", "aux2", "AuxLogits"):
            if hasattr(model, auxiliary):
                setattr(model, auxiliary, None)
    return (*removed, "aux1.", "aux2.", "AuxLogits.")

"""Classification models of torchvision by name, without their classifier."""

import os
from urllib.error import URLError

from torch import nn

from ..._randomness import in_single_precision
from .._backbones import check_image_shape
from .._weights import load_weights
from ._base import N_COLOURS, Source

PARAMS = {
    *("attention_dropout", "aux_logits", "dilated", "drop_rate", "dropout", "dropout_aux"),
    *("groups", "image_size", "init_weights", "input_size", "layer_scale", "memory_efficient"),
    *("mlp_dropout", "reduced_tail", "replace_stride_with_dilation", "round_nearest"),
    *("stochastic_depth_prob", "transform_input", "width_mult", "width_per_group"),
    "zero_init_residual",
}
#: Models that can be told not to draw weights.
DRAW_WEIGHTS = ("googlenet", "inception_v3")


class Torchvision(Source):
    """The classification models of torchvision."""

    n_channels = N_COLOURS
    params = frozenset(PARAMS)

    def owns(self, backbone):
        return isinstance(backbone, str) and backbone in self.names()

    def names(self):
        import torchvision

        return torchvision.models.list_models(module=torchvision.models)

    def build(self, backbone, params, weights, form, generator):
        _check_form(backbone, form)
        named = _named_weights(backbone, weights)
        params = {**_size_params(backbone, form, named is not None), **params}
        if backbone in DRAW_WEIGHTS and named is None:
            params.setdefault("init_weights", True)
        model = _model(backbone, params, named, form)
        removed = _remove_classifier(model)
        if weights is not None and named is None:
            load_weights(model, weights, ignored=removed)
        return model

    def statistics(self, backbone, weights, body):
        named = _named_weights(backbone, weights)
        preset = None if named is None else named.transforms()
        return None if preset is None else (preset.mean, preset.std)

    def describe(self, backbone, params, weights, body):
        if backbone in DRAW_WEIGHTS and _named_weights(backbone, weights):
            params = {"transform_input": True, **params}  # what torchvision sets for its weights
        return backbone, params

    def may_be_named(self, backbone):
        return True

    def rebuild(self, backbone, params, form, generator):
        _check_form(backbone, form)
        params = {**_size_params(backbone, form, False), **params}
        if backbone in DRAW_WEIGHTS:
            params["init_weights"] = False  # scipy would draw them
        model = _model(backbone, params, None, form)
        _remove_classifier(model)
        return model


def _named_weights(backbone, weights):
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


def _check_form(name, form):
    check_image_shape(form, name)
    if form[0] not in (1, N_COLOURS):
        raise ValueError(
            f"backbone={name!r} takes images of 3 channels (or 1, repeated), got {form[0]}: "
            "select channels with `transform` or give your own module."
        )


@in_single_precision()
def _model(name, params, weights, form):
    """Return a model of torchvision for images of a form, or say why there is none."""
    from torchvision.models import get_model

    try:
        return get_model(name, weights=weights, **params)
    except URLError as error:
        raise OSError(
            f"weights={weights} of backbone={name!r} could not be downloaded ({error.reason}): "
            f"fetch {weights.url} on a connected machine and pass the path of the file."
        ) from error
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"backbone={name!r} cannot be built for images of {form[1]} x {form[2]} with "
            f"backbone_params={params!r}: {error}"
        ) from error


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

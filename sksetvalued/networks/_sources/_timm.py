"""Models of timm by name, without their classifier."""

import difflib
import os

from ..._randomness import in_single_precision
from .._backbones import check_image_shape
from .._weights import load_weights
from ._base import (
    N_COLOURS,
    PRETRAINED,
    Source,
    library,
)


class Timm(Source):
    """The models of timm, as ``"timm/NAME"`` or, with weights, ``"timm/NAME.TAG"``."""

    prefix = "timm/"
    n_channels = N_COLOURS
    holds_constants = True
    params = frozenset(
        {"attn_drop_rate", "drop_path_rate", "drop_rate", "img_size", "in_chans", "proj_drop_rate"}
    )

    def owns(self, backbone):
        return isinstance(backbone, str) and backbone.startswith(self.prefix)

    def build(self, backbone, params, weights, form, generator):
        name = self._known(backbone)
        pretrained = isinstance(weights, str) and weights == PRETRAINED
        if "." in name and weights is None:
            raise ValueError(
                f"backbone={backbone!r} names weights: set weights={PRETRAINED!r} to start from "
                f"them, or backbone={backbone.split('.')[0]!r} for the architecture alone."
            )
        if not (pretrained or weights is None or os.path.isfile(weights)):
            raise ValueError(
                f"weights={weights!r} is neither a file nor {PRETRAINED!r}, the weights of "
                f"backbone={backbone!r}. Other weights are named as backbone='timm/NAME.TAG'; "
                "timm.list_pretrained() lists them."
            )
        model = _model(backbone, name, params, form, pretrained)
        if weights is not None and not pretrained:
            load_weights(model, weights, ignored=_classifier(model))
        return model

    def statistics(self, backbone, weights, body):
        mean, std = body.pretrained_cfg["mean"], body.pretrained_cfg["std"]
        return (mean, std) if weights is not None and len(mean) == N_COLOURS else None

    def may_be_named(self, backbone):
        try:
            return bool(self._known(backbone))
        except ValueError:
            return False

    def rebuild(self, backbone, params, form, generator):
        return _model(backbone, self._known(backbone), params, form, False)

    def _known(self, backbone):
        """Return the name of a model, with its tag; raise for one that timm does not know."""
        name = backbone.removeprefix(self.prefix)
        timm = library("timm", backbone)
        architecture, _, tag = name.partition(".")
        if not timm.is_model(architecture):
            close = difflib.get_close_matches(architecture, timm.list_models(), n=3)
            hint = " or ".join(repr(self.prefix + other) for other in close)
            raise ValueError(
                f"backbone={backbone!r} is unknown to timm {timm.__version__}."
                f"{f' Did you mean {hint}?' if hint else ''} timm.list_models() lists the names."
            )
        if tag and name not in timm.list_pretrained(f"{architecture}.*"):
            raise ValueError(
                f"backbone={backbone!r} names weights that timm does not know; its weights of "
                f"this model are {timm.list_pretrained(f'{architecture}.*')}."
            )
        return name


@in_single_precision()
def _model(backbone, name, params, form, pretrained):
    timm = library("timm", backbone)
    check_image_shape(form, backbone)
    n_channels = N_COLOURS if form[0] == 1 else form[0]
    if params.get("in_chans", n_channels) != n_channels:
        repeated = ", to which grey images are repeated" if form[0] == 1 else ""
        raise ValueError(
            f"backbone_params has in_chans={params['in_chans']}, but backbone={backbone!r} gets "
            f"images of {n_channels} channels{repeated}: leave in_chans out."
        )
    own = {"in_chans": form[0]} if form[0] not in (1, N_COLOURS) else {}
    config = timm.get_pretrained_cfg(name)
    if config is not None and config.fixed_input_size and form[1:] != config.input_size[1:]:
        own["img_size"] = form[1:]
    try:
        return timm.create_model(name, pretrained=pretrained, num_classes=0, **{**own, **params})
    except OSError as error:
        raise OSError(
            f"weights={PRETRAINED!r} of backbone={backbone!r} could not be downloaded "
            f"({type(error).__name__}): fetch model.safetensors of "
            f"https://huggingface.co/{config and config.hf_hub_id} on a connected machine and "
            "pass the path of the file."
        ) from error
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"backbone={backbone!r} cannot be built for images of {form[1]} x {form[2]} with "
            f"backbone_params={params!r}: {error}"
        ) from error


def _classifier(model):
    """Return the prefixes of the parameters that a published file has in excess."""
    names = model.pretrained_cfg.get("classifier") or ()
    return tuple(f"{name}." for name in ((names,) if isinstance(names, str) else names))

"""The backbones of this package, by name or by widths."""

from functools import partial
from numbers import Integral

from .._backbones import MLP, ConvNet, DenseNet
from ._base import Source
from ._own import called, load_file

BUILDERS = {
    "mlp": MLP,
    "convnet": ConvNet,
    "densenet40_40": partial(DenseNet, depth=40, growth=40),
}


class BuiltIn(Source):
    """Perceptrons and convolutional networks of this package."""

    params = frozenset({"hidden", "widths", "depth", "growth", "stem_width", "dropout", "skip"})

    def owns(self, backbone):
        if isinstance(backbone, str):
            return backbone in BUILDERS
        return backbone is None or isinstance(backbone, tuple | list)

    def names(self):
        return list(BUILDERS)

    def build(self, backbone, params, weights, form, generator):
        body = self.rebuild(backbone, params, form, generator)
        if weights is not None:
            load_file(body, weights)
        return body

    def may_be_named(self, backbone):
        return True

    def n_layers(self, backbone, params):
        several = [backbone if isinstance(backbone, tuple | list) else ()]
        several += [params.get(name) for name in ("hidden", "widths")]
        return max(params.get("depth") or 0, *(0 if v is None else len(v) for v in several))

    def rebuild(self, backbone, params, form, generator):
        name = "convnet" if len(form) == 3 else "mlp"
        if isinstance(backbone, tuple | list):
            if not all(isinstance(width, Integral) for width in backbone):
                raise TypeError(
                    f"backbone={backbone!r} is a perceptron, whose widths must be integers, as in "
                    "backbone=(512, 256)."
                )
            if "hidden" in params:
                hidden = {"hidden": params["hidden"]}
                raise ValueError(
                    f"backbone={backbone!r} and backbone_params={hidden!r} both give the widths: "
                    "leave one of them out."
                )
            params = params | {"hidden": tuple(backbone)}
            name = "mlp"
        elif backbone is not None:
            name = backbone
        own = {"generator": generator}
        return called(BUILDERS[name], form, params, backbone if backbone else name, own)

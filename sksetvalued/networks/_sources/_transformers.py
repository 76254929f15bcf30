"""Models of Hugging Face by name, reduced to one vector of features a sample."""

import difflib
import inspect
import os

import torch
from torch import nn

from ..._checks import check_option
from ..._randomness import in_single_precision
from .._weights import load_weights
from ._base import (
    NAME,
    PRETRAINED,
    Source,
    is_number_or_numbers,
    library,
)

POOLINGS = ("mean", "cls", "last", "max", "pooler")
#: Types of models whose configurations are numbers and names, and which files may ask for.
RECORDED = {
    *("albert", "bert", "camembert", "deberta-v2", "distilbert", "electra", "mpnet", "roberta"),
    *("xlm-roberta", "beit", "convnext", "convnextv2", "deit", "dinov2", "resnet", "swin", "vit"),
}
#: Of their configurations, what says how many layers there are.
LAYERS = (
    *("depths", "inner_group_num", "n_layers", "num_hidden_groups", "num_hidden_layers"),
    *("num_layers", "num_stages"),
)


class Transformers(Source):
    """The models of transformers: ``"hf/TYPE"``, or ``"hf/REPOSITORY"`` with its weights."""

    prefix = "hf/"
    takes_parts = True
    holds_constants = True

    def owns(self, backbone):
        return isinstance(backbone, str) and backbone.startswith(self.prefix)

    def build(self, backbone, params, weights, form, generator):
        _check_form(backbone, form)
        values, pooling = _separate(params)
        if weights is None or os.path.isfile(weights):
            body = _empty(backbone, self._type(backbone), values, pooling)
            if weights is not None:
                load_weights(body, weights, ignored=("pooler.", "cls.", "classifier."))
        else:
            source = backbone.removeprefix(self.prefix) if weights == PRETRAINED else weights
            body = _pretrained(backbone, os.fspath(source), values, pooling)
        return Pooled(body, pooling)

    def statistics(self, backbone, weights, body):
        """Return those of the image processor beside the weights."""
        if weights is None or os.path.isfile(weights):
            return None
        source = backbone.removeprefix(self.prefix) if weights == PRETRAINED else weights
        processors = library("transformers", backbone).AutoImageProcessor
        try:
            processor = processors.from_pretrained(os.fspath(source), trust_remote_code=False)
        except (ImportError, OSError, ValueError) as error:
            raise OSError(
                f"backbone={backbone!r}: its weights come without a readable "
                f"preprocessor_config.json ({type(error).__name__}), which tells how images were "
                "scaled in the pretraining: set normalization=(mean, std)."
            ) from error
        return processor.image_mean, processor.image_std

    def describe(self, backbone, params, weights, body):
        config = body.body.config
        name = f"{self.prefix}{config.model_type}"
        recorded = {**_own_values(config), "pooling": body.pooling}
        if not (self.may_be_named(name) and self.may_be_given(recorded)):
            raise ValueError(
                f"backbone={backbone!r} cannot be written without code, as the configuration of "
                f"{config.model_type!r} is not one of numbers and names of the types "
                f"{sorted(RECORDED)}"
            )
        return name, recorded

    def may_be_named(self, backbone):
        return backbone.removeprefix(self.prefix) in RECORDED

    def may_be_given(self, params):
        return all(_is_name(k) and _is_simple(v) for k, v in params.items())

    def n_layers(self, backbone, params):
        counts = [params.get(name) or 0 for name in LAYERS]
        flat = [n for c in counts for n in (c if isinstance(c, list | tuple) else [c])]
        return sum(n for n in flat if isinstance(n, int))

    def rebuild(self, backbone, params, form, generator):
        _check_form(backbone, form)
        values, pooling = _separate(params)
        return Pooled(_empty(backbone, self._type(backbone), values, pooling), pooling)

    def _type(self, backbone):
        """Return the type of a model; raise unless that is what the name tells."""
        name = backbone.removeprefix(self.prefix)
        types = _types(backbone)
        if name in types:
            return name
        close = difflib.get_close_matches(name, types, n=3)
        hint = f" ({', '.join(repr(self.prefix + other) for other in close)})" if close else ""
        raise ValueError(
            f"backbone={backbone!r} is no type of model of transformers{hint}. If it names "
            f"weights, set weights={PRETRAINED!r}, or weights to the path of their folder."
        )


class Pooled(nn.Module):
    """A model of transformers whose last hidden state is reduced to one vector a sample.

    Parameters
    ----------
    body : transformers.PreTrainedModel
    pooling : {"mean", "cls", "last", "max", "pooler"}
        The mean or maximum over the positions, or the first or last of them, where
        `attention_mask` is not zero; or the model's own.
    """

    def __init__(self, body, pooling):
        super().__init__()
        self.body = body
        self.pooling = pooling

    def forward(self, pixel_values=None, **parts):
        """Return features of shape (n_samples, n_features)."""
        if pixel_values is not None:
            parts["pixel_values"] = pixel_values
        output = self.body(**parts)
        if self.pooling == "pooler":
            return _of(output, "pooler_output").flatten(1)
        hidden = _of(output, "last_hidden_state")
        if hidden.ndim == 4:  # maps of shape (n_samples, channels, height, width)
            hidden = hidden.flatten(2).mT
        return _pool(hidden, parts.get("attention_mask"), self.pooling)


def _separate(params):
    """Return the values of a configuration, and the pooling."""
    pooling = params.get("pooling", "mean")
    check_option(f"backbone_params={params!r}: pooling", pooling, POOLINGS)
    return {k: v for k, v in params.items() if k != "pooling"}, pooling


def _of(output, name):
    value = getattr(output, name, None)
    if value is None:
        raise ValueError(
            f"the model returns {type(output).__name__} without {name}, so that pooling has "
            "nothing to work on: wrap it in a module of your own that returns features"
        )
    return value


def _pool(hidden, mask, pooling):
    """Return one vector of (n_samples, length, width) where the mask is not zero."""
    if mask is None:
        mask = hidden.new_ones(hidden.shape[:2])
    if mask.shape != hidden.shape[:2]:
        raise ValueError(
            f"attention_mask of shape {tuple(mask.shape)} does not fit hidden states of shape "
            f"{tuple(hidden.shape)}: wrap the model in a module of your own that returns features"
        )
    weight = mask.to(hidden.dtype).unsqueeze(-1)
    if pooling == "mean":
        return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)
    if pooling == "max":
        return hidden.masked_fill(weight == 0, torch.finfo(hidden.dtype).min).amax(1)
    # The first one of the largest is that of the first, or last, position that counts.
    order = mask.ne(0).int()
    if pooling == "last":
        position = hidden.shape[1] - 1 - order.flip(1).argmax(1)
    else:
        position = order.argmax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), position]


def _check_form(backbone, form):
    if len(form) != 3 and not isinstance(form, dict):
        raise ValueError(
            f"backbone={backbone!r} takes images or samples of named parts, got samples of shape "
            f"{form}: name the parts, as in X={{'input_ids': ids, 'attention_mask': mask}}."
        )


def _own_values(config):
    """Return the values of a configuration that belong to its type and are not its defaults."""
    values, default = config.to_dict(), type(config)().to_dict()
    return {k: values[k] for k in _own_names(config) if values[k] != default[k]}


def _own_names(config):
    common = library("transformers", Transformers.prefix).PretrainedConfig().to_dict()
    names = type(config)().to_dict().keys() - common.keys()
    return sorted(name for name in names if not name.startswith("_"))


@in_single_precision()
def _empty(backbone, model_type, values, pooling):
    """Return a model of a type with initial weights."""
    config = library("transformers", backbone).AutoConfig.for_model(model_type)
    _check_values(backbone, config, values)
    try:
        config = type(config)(**values)
        cls = _model_class(backbone, config)
        return cls(config, **_pooler(cls, pooling))
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"backbone={backbone!r} cannot be built with backbone_params={values!r}: {error}"
        ) from error


def _pretrained(backbone, source, values, pooling):
    """Return a model with the weights of a repository or a folder, in single precision."""
    transformers = library("transformers", backbone)
    try:
        config = transformers.AutoConfig.from_pretrained(source, trust_remote_code=False)
        _check_type(backbone, source, config)
        _check_values(backbone, config, values)
        for name, value in values.items():
            setattr(config, name, value)
        cls = _model_class(backbone, config)
        body, found = cls.from_pretrained(
            source,
            config=config,
            dtype=torch.float32,
            output_loading_info=True,
            **_pooler(cls, pooling),
        )
    except OSError as error:
        raise OSError(
            f"the weights of backbone={backbone!r} ({source!r}) could not be loaded: {error} "
            "Without a connection, fetch the repository on a connected machine (hf download "
            "NAME --local-dir FOLDER) and pass the path of its folder as weights."
        ) from error
    except RuntimeError as error:
        raise ValueError(
            f"the weights of backbone={backbone!r} ({source!r}) are of other shapes than those of "
            f"backbone_params={values!r}: leave out what sets sizes."
        ) from error
    if found["missing_keys"]:
        raise ValueError(
            f"the weights {source!r} of backbone={backbone!r} lack "
            f"{sorted(found['missing_keys'])[:5]}."
        )
    return body


def _types(backbone):
    """Return the types of models that transformers knows."""
    return {config.model_type for config in library("transformers", backbone).MODEL_MAPPING}


def _check_type(backbone, source, config):
    """Raise where a folder of weights has another type of model than the one that is named."""
    name = backbone.removeprefix(Transformers.prefix)
    if name in _types(backbone) and name not in (source, config.model_type):
        raise ValueError(
            f"weights={source!r} are those of a model of the type {config.model_type!r}, not of "
            f"backbone={backbone!r}: set backbone={Transformers.prefix + config.model_type!r}."
        )


def _model_class(backbone, config):
    cls = library("transformers", backbone).MODEL_MAPPING[type(config)]
    return cls[0] if isinstance(cls, list | tuple) else cls


def _pooler(cls, pooling):
    """Return the argument that leaves out a last layer that pooling has no use for."""
    known = "add_pooling_layer" in inspect.signature(cls.__init__).parameters
    return {"add_pooling_layer": pooling == "pooler"} if known else {}


def _check_values(backbone, config, values):
    known = _own_names(config)
    unknown = sorted(values.keys() - set(known))
    if unknown:
        raise ValueError(
            f"backbone_params has unknown keys {unknown} for backbone={backbone!r}; it accepts "
            f"'pooling' and the values of {type(config).__name__}: {known}."
        )


def _is_simple(value):
    if isinstance(value, list | tuple):
        return all(map(_is_simple, value))
    return is_number_or_numbers(value) or _is_name(value)


def _is_name(value):
    return isinstance(value, str) and NAME.fullmatch(value) is not None

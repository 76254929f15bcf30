"""What a file may set: closed lists, by parameter and by fitted attribute.

Only what a model is and how it was trained: names, numbers, built-in architectures. Nothing that
reaches a compiler, a hook of a loader, a path or an attribute by name.
"""

import inspect
import re
import reprlib

import numpy as np
import torch

from ..inputs._transforms import STAGES
from ..losses import LOSSES
from ..networks._sources import may_be_recorded
from ..training import OPTIMIZERS, resolve_optimizer
from ._json import OPTIMIZERS as TORCH_OPTIMIZERS
from ._transforms import is_transform

#: How the machine of the reader runs: given to `load`, or left at the default.
MACHINE_PARAMETERS = ("callbacks", "compile", "device")
#: Arguments that no file gives to an optimizer.
REFUSED_OPTIMIZER_ARGUMENTS = {"capturable", "differentiable", "foreach", "fused", "params"}
#: Arguments of losses that the estimator must supply: they say how much memory is taken.
SUPPLIED = {"n_samples", "n_classes", "generator"}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
#: In an array among parameters, whose numbers may become larger ones.
MOST_NUMBERS = 2**20
#: Names of weights, as "pretrained" or "ResNet18_Weights.IMAGENET1K_V1": none is that of a file.
WEIGHTS = re.compile(r"pretrained|([A-Za-z0-9_]+_Weights\.)?(IMAGENET1K_[A-Z0-9_]+|DEFAULT)")
SCHEDULE_KEYS = {"milestones", "gamma", "last_epoch"}


class NotAllowed(ValueError):
    """Raised on a value that no file may set."""


class _Short(reprlib.Repr):
    """Short representations, without the entries of tensors and arrays."""

    def repr_Tensor(self, value, level):
        return f"{type(value).__name__} of {value.dtype} and shape {tuple(value.shape)}"

    repr_ndarray = repr_Tensor


SHORT = _Short()

# -- kinds of values ------------------------------------------------------------------------


def is_int(value):
    """Return whether `value` is an integer that fits in 64 bits."""
    return type(value) is int and abs(value) < 2**63


def is_size(value):
    """Return whether `value` is a whole number that can be a size."""
    return is_int(value) and 0 <= value < 2**40


def is_number(value):
    """Return whether `value` is a real number."""
    return type(value) is float or is_int(value)


def is_share(value):
    """Return whether `value` is a number in [0, 1)."""
    return is_number(value) and 0 <= value < 1


def is_bool(value):
    """Return whether `value` is True or False."""
    return type(value) is bool


def is_name(value):
    """Return whether `value` is the name of something, rather than a path or code."""
    return type(value) is str and NAME.fullmatch(value) is not None


def names_weights(value):
    """Return whether `value` is None or a name of weights, rather than of a file."""
    return value is None or (type(value) is str and WEIGHTS.fullmatch(value) is not None)


def is_numbers(value):
    """Return whether `value` is a vector of numbers, as an array, a list or a tuple."""
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype.kind in "biuf"
    return isinstance(value, list | tuple) and all(is_number(v) or is_bool(v) for v in value)


def is_plain(value):
    """Return whether `value` is a name, a number or None, or a list of such."""
    if isinstance(value, list | tuple):
        return all(is_plain(item) for item in value)
    if isinstance(value, np.ndarray) and value.size > MOST_NUMBERS:
        return False
    simple = is_number(value) or is_bool(value) or is_name(value)
    return value is None or simple or is_numbers(value)


def are_ranks(value):
    """Return whether `value` is None, or a dict or list of pairs of a rank and its weight."""
    value = list(value.items()) if isinstance(value, dict) else value
    pairs = value if isinstance(value, list | tuple) else [value]
    return value is None or all(
        isinstance(pair, list | tuple | np.ndarray) and len(pair) == 2 and is_plain(pair)
        for pair in pairs
    )


def optional(check):
    """Return the check of what may be None as well."""
    return lambda value: value is None or check(value)


def one_of(*values):
    """Return the check of a closed list of values."""
    return lambda value: any(type(value) is type(v) and value == v for v in values)


def by_name(check=is_plain, but=frozenset(), known=None):
    """Return the check of a dict or None, whose keys are names."""

    def is_dict(value):
        if value is None:
            return True
        if not isinstance(value, dict):
            return False
        keys_fit = value.keys() <= known if known else all(map(is_name, value))
        return keys_fit and not value.keys() & but and all(map(check, value.values()))

    return is_dict


def is_labels(value):
    """Return whether `value` is a vector of labels."""
    return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "biufUO"


def is_vector(value):
    """Return whether `value` is an array of numbers of one dimension."""
    return isinstance(value, np.ndarray) and is_numbers(value)


def is_shape(value):
    """Return whether `value` is the shape of a sample."""
    return isinstance(value, tuple) and all(map(is_size, value))


def is_form(value):
    """Return whether `value` tells the shapes and types of the parts of a sample."""
    return by_name(_is_part)(value) and bool(value)


def _is_part(value):
    if not (isinstance(value, tuple) and len(value) == 2 and is_shape(value[0])):
        return False
    return one_of("bool", "uint8", "int64", "float32")(value[1])


def is_pair(value):
    """Return whether `value` is a pair of numbers."""
    return isinstance(value, tuple) and len(value) == 2 and all(map(is_number, value))


def is_state_of_generators(value):
    """Return whether `value` holds states of torch's generators by kind of device."""
    states = value.values() if isinstance(value, dict) else [None]
    known = by_name(lambda state: True, known={"cpu", "cuda", "own"})(value)
    return known and all(torch.is_tensor(t) and t.dtype == torch.uint8 for t in states)


def is_training_state(value):
    """Return whether `value` holds what optimizers keep of parameters, and states of generators.

    Optimizers that keep histories (LBFGS) or other shapes are none of those.
    """
    return (
        isinstance(value, dict)
        and value.keys() == {"generators", "optimizer"}
        and all(by_name(_is_number_or_tensor)(v) for v in value["optimizer"].values())
        and all(map(_is_state_of_generator, value["generators"].values()))
    )


def _is_number_or_tensor(value):
    return is_number(value) or is_bool(value) or torch.is_tensor(value)


def _is_state_of_generator(value):
    return (
        isinstance(value, dict)
        and value.keys() == {"seed", "states"}
        and is_int(value["seed"])
        and isinstance(value["states"], dict)
        and all(torch.is_tensor(t) and t.dtype == torch.uint8 for t in value["states"].values())
    )


def is_history(value):
    """Return whether `value` holds what was recorded of the epochs, and of their batches."""
    return isinstance(value, list) and all(map(_is_record, value))


def _is_record(value):
    return isinstance(value, dict) and all(
        isinstance(v, str) or (is_history(v) if k == "batches" else is_plain(v))
        for k, v in value.items()
    )


# -- parameters -----------------------------------------------------------------------------


def _is_backbone(value):
    if isinstance(value, tuple | list):
        return all(map(is_size, value))
    return _is_text(value)  # check_backbone asks which


def _is_number_or_numbers(value):
    return value is None or is_bool(value) or is_number(value) or is_numbers(value)


def _is_schedule(value):
    if isinstance(value, dict):
        return by_name(_is_number_or_numbers, known=SCHEDULE_KEYS)(value)
    if _is_text(value):
        return value in (None, "auto", "averaged", "cosine", "one_cycle")
    return is_numbers(value)


def _is_normalization(value):
    pair = isinstance(value, tuple | list) and len(value) == 2
    return pair and all(is_number(part) or is_numbers(part) for part in value)


def _is_text(value):
    return value is None or isinstance(value, str)


def _weighs(value):
    return isinstance(value, dict) and all(map(is_number, value.values()))


def _is_optimizer(value):
    return one_of(*OPTIMIZERS)(value) or value in TORCH_OPTIMIZERS.values()


def _auto_or(check):
    """Return the check of what may be "auto" as well."""
    return lambda value: value == "auto" if isinstance(value, str) else check(value)


def _are_arguments_of_losses(value):
    if isinstance(value, dict):
        rest = {name: argument for name, argument in value.items() if name != "ranks"}
        return by_name(but=SUPPLIED)(rest) and are_ranks(value.get("ranks"))
    return value is None


def _is_known_transform(value):
    stages = value.items() if isinstance(value, dict) else [("eval", value)]
    return all(k in STAGES and (v is None or is_transform(v)) for k, v in stages)


PARAMS = {
    "alpha": optional(is_number),
    "backbone": _is_backbone,
    "backbone_params": by_name(),
    "batch_size": _auto_or(is_size),
    "calibration_fraction": _auto_or(optional(is_number)),
    "calibration_folds": _auto_or(optional(is_size)),
    "class_weight": lambda value: one_of(None, "balanced")(value) or _weighs(value),
    "cross_entropy": optional(is_number),
    "epsilon": optional(is_number),
    "k": is_number,
    "label_smoothing": optional(is_number),
    "loss": lambda value: isinstance(value, str) and value in LOSSES,
    "loss_params": _are_arguments_of_losses,
    "lr": _auto_or(is_number),
    "lr_schedule": _is_schedule,
    "margin": optional(is_number),
    "max_epochs": _auto_or(is_size),
    "max_margin": optional(is_number),
    "monitor": is_name,
    "n_noise_samples": optional(is_size),
    "net_params": optional(lambda value: isinstance(value, dict)),
    "normalization": lambda value: one_of(None, "imagenet")(value) or _is_normalization(value),
    "objective": one_of("micro", "macro"),
    "optimizer": _is_optimizer,
    "patience": optional(is_size),
    "precision": one_of("float32", "bf16"),
    "random_state": optional(is_size),
    "ranks": are_ranks,
    "rule_params": by_name(),
    "scale": optional(is_number),
    "size": lambda value: is_name(value) or is_size(value),
    "transform": _is_known_transform,
    "validation_fraction": optional(is_number),
    "verbose": lambda value: is_bool(value) or is_int(value),
    "warm_start": is_bool,
    "weight_decay": optional(is_number),
    "weights": names_weights,
}

#: What describes a network.
NETWORK = {name: PARAMS[name] for name in ("backbone", "backbone_params")}

FITTED = {
    "average_size_": is_number,
    "batch_size_": lambda value: is_size(value) and 0 < value < 2**31,
    "class_counts_": is_vector,
    "classes_": is_labels,
    "feature_names_in_": is_labels,
    "instruction_set_": optional(is_name),
    "input_kind_": one_of("table", "image", "path", "dataset", "named"),
    "input_shape_": lambda value: is_shape(value) or is_form(value),
    "largest_size_": is_size,
    "n_features_in_": is_size,
    "n_iter_": is_size,
    "_fitted_on_bytes": is_bool,
    "_of_words": is_bool,
    "_found_epochs": optional(is_size),
    "_form": one_of("single", "indicator", "sets", "sparse"),
    "_image_range": is_pair,
    "_label_smoothing": is_share,
    "_log_class_weight": optional(is_vector),
    "_log_label_weight": optional(is_vector),
    "_prior_exponent": is_number,
    "_ranked_by": one_of("scores", "probabilities", "shares"),
    "_rng_state": is_state_of_generators,
    "_seed": is_int,
    "_seen": is_number,
    "_smoothed_towards": is_name,
}

#: Attributes of the rules, beside their parameters.
RULE = {
    "n_classes_": is_size,
    "n_samples_seen_": is_size,
    "prior_": optional(is_vector),
    "_bounds": lambda value: isinstance(value, tuple) and all(map(optional(is_size), value)),
    "_closed": is_bool,
    "_drift_said": is_bool,
    "_error": is_number,
    "_every_class": is_bool,
    "_k": is_size,
    "_log_scores": is_bool,
    "_moments": lambda value: isinstance(value, tuple) and all(map(is_number, value)),
    "_reserve": optional(is_size),
    "_selector": one_of(None),
    "_reach": is_number,
    "_promise": lambda value: isinstance(value, tuple) and is_plain(value),
    "_seen": lambda value: isinstance(value, list) and not value,
    "_threshold": lambda value: value is None or is_number(value) or is_vector(value),
}


def check(group, values, known):
    """Raise unless every value is one that a file may set.

    Parameters
    ----------
    group : str
        What the values are, for the message.
    values : dict
    known : dict
        Check of each name.
    """
    for name, value in values.items():
        if name not in known:
            raise NotAllowed(f"no file may set {group} {SHORT.repr(name)}")
        if not known[name](value):
            raise NotAllowed(f"no file may set {group} {name} to {SHORT.repr(value)}")


def check_backbone(values, together=True):
    """Raise unless a file may ask for the backbone among `values`, with its arguments.

    `together` is whether they describe a network, rather than parameters of an estimator.
    """
    backbone, params = values["backbone"], values["backbone_params"] or {}
    if not may_be_recorded(backbone, params, together):
        given = f"{SHORT.repr(backbone)} with backbone_params {SHORT.repr(params)}"
        raise NotAllowed(f"no file may set backbone to {given}")


def of_the_optimizer(optimizer, net_params):
    """Return the part of `net_params` that is numbers given to the optimizer by name."""
    cls, _ = resolve_optimizer(optimizer)
    names = inspect.signature(cls).parameters.keys() - REFUSED_OPTIMIZER_ARGUMENTS
    return {
        key: value
        for key, value in (net_params or {}).items()
        if key.startswith("optimizer__")
        and key.removeprefix("optimizer__") in names
        and _is_number_or_numbers(value)
        and value is not None
    }

"""The width of the features of a backbone, and what is said where it gives none."""

import copy
import inspect
import re

import torch
from torch import nn

from .._warnings import warn_caller
from ..inputs import plain_sample
from ._sources import is_built_in

LARGEST_SIZE_TRIED = 512

#: Raised by modules on samples that they cannot take.
FORWARD_ERRORS = (RuntimeError, AssertionError, IndexError, TypeError, ValueError)

#: Of what torch says where the types of samples and weights do not go together.
TYPE_MISMATCH = re.compile("dtype|scalar type|type .* should be the same|not implemented for")

#: Samples on which a backbone is tried, beside one: a mean over samples has the shape for one.
N_PROBED = 2

#: Classes of ImageNet.
N_IMAGENET = 1000

WRAPPER = """
    class Features(torch.nn.Module):
        def __init__(self, body):
            super().__init__()
            self.body = body
        def forward(self, {arguments}):
            return self.body({given}){chosen}"""


def n_features_of(backbone, normalize, body, form, n_classes):
    """Return the width of the features, from samples of zeros or, of parts, else of ones.

    Warns of a module of the user that seems to end in a classifier of its own.

    Parameters
    ----------
    backbone : None, tuple of int, str, nn.Module or callable
        As in :func:`build_network`, for what is said.
    normalize, body : nn.Module
        The first layer, and the backbone that was built.
    form : tuple of int or dict
        Shape of a sample, or shapes and types of its parts.
    n_classes : int

    Raises
    ------
    ValueError
        If the backbone cannot take samples of this form, or returns no features.
    """
    network = body if isinstance(form, dict) else nn.Sequential(_beside(normalize, body), body)
    if any(parameter.is_meta for parameter in body.parameters()):
        raise ValueError(
            f"backbone={_named(backbone)} is on the meta device, where weights have no values: "
            "make it on the CPU, or give them values after backbone.to_empty(device='cpu')."
        )
    training = {module: module.training for module in network.modules()}
    network.eval()
    try:
        features = _forward_plain(network, form)
        several = _forward_plain(network, form, N_PROBED)
    except FORWARD_ERRORS as error:
        raise ValueError(_refusal(network, form, backbone, error)) from error
    finally:
        for module, mode in training.items():
            module.training = mode
    if not torch.is_tensor(features):
        raise ValueError(_wrapper(features, form, backbone))
    for n_samples, found in {1: features, N_PROBED: several}.items():
        if found.ndim != 2 or len(found) != n_samples:
            raise ValueError(
                f"backbone={_named(backbone)} must return features of shape (n_samples, "
                f"n_features), got {tuple(found.shape)} for n_samples={n_samples}: end it with "
                f"pooling and nn.Flatten().{_hint_of_signals(form)}"
            )
    if not features.shape[1] or not features.is_floating_point():
        raise ValueError(
            f"backbone={_named(backbone)} must return at least one feature, of floats, got "
            f"{features.shape[1]} of {features.dtype}."
        )
    if features.dtype == torch.float64:
        raise ValueError(
            f"backbone={_named(backbone)} computes in double precision, but networks are trained "
            "in single precision: convert it, as by backbone.float()."
        )
    if not isinstance(backbone, str) and not is_built_in(backbone):
        _warn_of_scores(body, features.shape[1], n_classes)
    return features.shape[1]


def _wrapper(output, form, backbone):
    """Return what to say of a module that returns several things."""
    if isinstance(output, dict):  # a ModelOutput too
        names = [str(name) for name in output]
        chosen = next((n for n in ("pooler_output", "last_hidden_state") if n in names), names[0])
        held, chosen = f" with {names}", f'["{chosen}"]'
        chosen += ".mean(1)" if "hidden" in chosen else ""
    elif isinstance(output, tuple | list):
        held, chosen = f" of {len(output)} parts", "[0]"
    else:
        held, chosen = "", ".features"
    parts = isinstance(form, dict)
    code = WRAPPER.format(
        arguments="**parts" if parts else "x", given="**parts" if parts else "x", chosen=chosen
    )
    return (
        f"backbone={_named(backbone)} must return features of shape (n_samples, n_features), got "
        f"a {type(output).__name__}{held}: wrap it, as Features(backbone) with{code}"
    )


def _hint_of_signals(form):
    if isinstance(form, dict) or len(form) != 3 or form[0] != 1:
        return ""
    return (
        f" Arrays of shape (n, {form[1]}, {form[2]}) are read as grey images; signals and "
        'sequences get a name, as in X={"signal": X} for a module with forward(self, signal).'
    )


def _hint_of_tokens(backbone):
    embeds = isinstance(backbone, nn.Module) and any(
        isinstance(part, nn.Embedding) for part in backbone.modules()
    )
    if not embeds:
        return ""
    name = next(iter(inspect.signature(backbone.forward).parameters), "input")
    return (
        " Tables are read as measurements; tokens get a name and stay integers, as in "
        f'X={{"{name}": X}}.'
    )


def _beside(layer, body):
    """Return a layer, or a copy of it on the device of a module that is on an accelerator."""
    device = next((p.device for p in body.parameters()), torch.device("cpu"))
    return layer if device.type == "cpu" else copy.deepcopy(layer).to(device)


def _forward_plain(body, input_shape, n_samples=1):
    parameter = next((p for p in body.parameters() if p.is_floating_point()), None)
    like = torch.zeros(()) if parameter is None else parameter
    halved = like.dtype in (torch.float16, torch.bfloat16)
    with torch.no_grad(), torch.autocast(like.device.type, torch.bfloat16, enabled=halved):
        if isinstance(input_shape, dict):
            try:
                return body(**plain_sample(input_shape, 0, like.device, n_samples))
            except FORWARD_ERRORS:
                # Lengths may have to be positive, and masks to leave something.
                return body(**plain_sample(input_shape, 1, like.device, n_samples))
        return body(torch.zeros(n_samples, *input_shape, dtype=like.dtype, device=like.device))


def of_another_type(module, error):
    """Return what to say of weights that are not of single precision, None of another error."""
    types = {p.dtype for p in module.parameters() if p.is_floating_point()} - {torch.float32}
    if not types or not TYPE_MISMATCH.search(str(error)):
        return None
    return (
        f"The backbone has weights of {types.pop()}, and is trained in single precision: convert "
        "it, as by backbone.float()"
    )


def _refusal(body, input_shape, backbone, error):
    parts = isinstance(input_shape, dict)
    what = f"the parts {list(input_shape)}" if parts else f"shape {input_shape}"
    message = f"backbone={_named(backbone)} cannot take samples of {what}: {error}."
    reason = of_another_type(body, error)
    if reason is not None and (parts or not _hint_of_tokens(backbone)):
        return f"{message} {reason}."
    if parts:
        return (
            f"{message} They are given as keyword arguments: leave out of X what it does not "
            "take. It is tried on a sample of zeros and, if that fails, on one of ones."
        )
    smallest = _smallest_size(body, input_shape) if isinstance(backbone, str) else None
    if smallest is None:
        remedy = " Resize the images with `transform`." if len(input_shape) == 3 else ""
        hint = _hint_of_signals(input_shape) or _hint_of_tokens(backbone) or remedy
        return f"{message}{hint}"
    return (
        f"backbone={backbone!r} needs images of at least {smallest} x {smallest} pixels, got "
        f"{input_shape[1]} x {input_shape[2]}: its maps vanish. Resize the images with "
        "`transform`, or use backbone='convnet'."
    )


def _smallest_size(body, input_shape):
    """Return the smallest square size that goes through, None if no larger one does."""
    if len(input_shape) != 3:
        return None

    def passes(size):
        try:
            _forward_plain(body, (input_shape[0], size, size))
        except (RuntimeError, AssertionError, ValueError):
            return False
        return True

    low, high = min(input_shape[1:]), LARGEST_SIZE_TRIED
    if not passes(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def _named(backbone):
    plain = backbone is None or isinstance(backbone, str | tuple)
    return repr(backbone) if plain else type(backbone).__name__


def _warn_of_scores(body, n_features, n_classes):
    """Warn of a module that seems to end in a classifier of its own."""
    name, last = list(body.named_modules())[-1]
    of_torchvision = type(body).__module__.startswith("torchvision.models")
    if isinstance(last, nn.Linear) and n_features == n_classes:
        what = f"a linear layer of {n_features} outputs, as many as there are classes"
    elif isinstance(last, nn.Linear) and n_features == N_IMAGENET and of_torchvision:
        what = f"the classifier of ImageNet, a linear layer of {n_features} outputs"
    elif isinstance(last, nn.Softmax | nn.LogSoftmax):
        what = f"{type(last).__name__}, which makes probabilities"
    else:
        return
    attribute = all(part.isidentifier() for part in name.split("."))
    where = f"backbone.{name}" if attribute else "its last layer"
    warn_caller(
        f"backbone ends in {what}: if these are scores of classes, a second classifier now stands "
        f"behind the first. Take {where} away, for example by putting torch.nn.Identity() in its "
        "place; the estimator adds the last layer.",
    )

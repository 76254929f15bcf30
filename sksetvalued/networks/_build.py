"""From the parameters of an estimator to a network."""

import copy
import difflib
import inspect
import os
from functools import partial
from numbers import Integral

import torch
from torch import nn

from sksetvalued.inputs import ChannelStatistics, zeros_of
from sksetvalued.networks._backbones import MLP, ConvNet, DenseNet
from sksetvalued.networks._heads import HEADS
from sksetvalued.networks._network import ColumnScale, Network, Normalize
from sksetvalued.networks._torchvision import (
    N_COLOURS,
    named_weights,
    torchvision_backbone,
    torchvision_names,
)
from sksetvalued.networks._weights import load_weights

BUILT_IN = {
    "mlp": MLP,
    "convnet": ConvNet,
    "densenet40_40": partial(DenseNet, depth=40, growth=40),
}
LARGEST_SIZE_TRIED = 512

#: Spread, in units of the mean, that may be the rounding of a constant.
ROUNDING = 1e-12


def backbone_names():
    """Return every name that `backbone` accepts.

    Returns
    -------
    names : list of str

    Examples
    --------
    >>> from sksetvalued.networks import backbone_names
    >>> {"convnet", "densenet40_40", "resnet50"} <= set(backbone_names())
    True
    """
    return [*BUILT_IN, *torchvision_names()]


def build_network(
    backbone,
    backbone_params,
    weights,
    input_shape,
    n_classes,
    head="linear",
    normalization=None,
    generator=None,
):
    """Build the network that the parameters of an estimator describe.

    Parameters
    ----------
    backbone : None, tuple of int, str, nn.Module or callable
        None is an MLP for vectors and a small convolutional network for images; a tuple holds
        the widths of an MLP; a module is copied; a callable takes the shape of a sample.
    backbone_params : dict or None
        Arguments of the named or callable backbone.
    weights : str, path-like or None
        Name of torchvision weights, or path of a state dict of the backbone.
    input_shape : tuple of int or dict
        Shape of a sample: (n_features,) or (n_channels, height, width); of several parts, shape
        and type of each by name.
    n_classes : int
        Number of scores, 2 for a binary problem.
    head : {"linear", "cosine", "two_head"}
        What turns features into scores.
    normalization : ChannelStatistics, ColumnStatistics, pair (mean, std) or None
        Statistics of the training images; those of named weights come before them. Images in
        bytes are divided by 255 in any case. For tables the statistics of the columns, which a
        perceptron of this package centres and scales.
    generator : torch.Generator, optional
        Source of the initial weights, and of the seeds of dropout, of what is built in; torch's
        default when absent, as for all other backbones.

    Returns
    -------
    network : Network

    Raises
    ------
    ValueError
        Unknown backbone, head or weights, or images that the backbone cannot take.
    TypeError
        A backbone of the wrong type, or arguments that it does not have.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.networks import build_network
    >>> network = build_network((64, 32), None, None, (20,), n_classes=5)
    >>> network(torch.zeros(3, 20)).shape
    torch.Size([3, 5])
    >>> network = build_network(None, None, None, (3, 32, 32), 5, head="two_head")
    >>> scores, proposal_scores = network(torch.zeros(3, 3, 32, 32, dtype=torch.uint8))
    """
    if head not in HEADS:
        raise ValueError(f"head must be one of {sorted(HEADS)}, got {head!r}.")
    if weights is not None and not isinstance(weights, str | os.PathLike):
        raise TypeError(f"weights must be None, a name or a path, got {weights!r}.")
    params = dict(backbone_params or {})
    if isinstance(input_shape, dict):
        return _network_of_parts(
            backbone, params, weights, input_shape, n_classes, head, generator
        )
    input_shape = tuple(int(size) for size in input_shape)
    from_torchvision = is_torchvision(backbone)
    if from_torchvision:
        weights = named_weights(backbone, weights) or weights
        body = torchvision_backbone(backbone, params, weights, input_shape)
    else:
        body = other_backbone(backbone, params, input_shape, generator)
        if weights is not None:
            _load_file(body, weights)
    if len(input_shape) == 1:
        normalize = _column_scale(normalization, body)
    else:
        normalize = _normalization(normalization, weights, input_shape, from_torchvision)
    n_features = _n_features(nn.Sequential(normalize, body), input_shape, backbone)
    return Network(normalize, body, HEADS[head](n_features, n_classes, generator))


def _network_of_parts(backbone, params, weights, form, n_classes, head, generator):
    """Return the network of samples of several parts, which its backbone takes by name."""
    if isinstance(backbone, str) or is_built_in(backbone):
        raise ValueError(
            f"backbone={backbone!r} takes one array, but X holds {list(form)}: give a module "
            "whose forward has arguments of these names and returns features of shape "
            "(n_samples, n_features), or a callable that returns one."
        )
    body = other_backbone(backbone, params, form, generator)
    if weights is not None:
        _load_file(body, weights)
    n_features = _n_features(body, form, backbone)
    return Network(nn.Identity(), body, HEADS[head](n_features, n_classes, generator))


def is_built_in(backbone):
    """Return whether `backbone` is one of this package, by its name, its widths or None."""
    if isinstance(backbone, str):
        return backbone in BUILT_IN
    return backbone is None or isinstance(backbone, tuple | list)


def is_torchvision(backbone):
    """Return whether `backbone` names a model of torchvision; raise if it names nothing."""
    if not isinstance(backbone, str) or backbone in BUILT_IN:
        return False
    names = torchvision_names()
    if backbone in names:
        return True
    close = difflib.get_close_matches(backbone, [*BUILT_IN, *names], n=3)
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise ValueError(
        f"backbone={backbone!r} is unknown.{hint} Known names: {', '.join([*BUILT_IN, *names])}."
    )


def other_backbone(backbone, params, input_shape, generator):
    """Return a built-in backbone, or that of the user."""
    if isinstance(backbone, nn.Module):
        if params:
            raise ValueError(
                f"backbone_params={params!r} cannot be applied to a module that is built "
                "already; give a callable instead."
            )
        return copy.deepcopy(backbone)
    if backbone is None:
        backbone = "convnet" if len(input_shape) == 3 else "mlp"
    if isinstance(backbone, tuple | list):
        if not all(isinstance(width, Integral) for width in backbone):
            raise TypeError(
                f"backbone={backbone!r} is a perceptron, whose widths must be integers, as in "
                "backbone=(512, 256)."
            )
        params = {"hidden": tuple(backbone), **params}
        backbone = "mlp"
    builder = BUILT_IN[backbone] if isinstance(backbone, str) else backbone
    if not callable(builder):
        raise TypeError(
            "backbone must be None, a tuple of widths, a name, an nn.Module or a callable "
            f"(input_shape) -> nn.Module, got {backbone!r}."
        )
    _check_params(builder, params, backbone)
    if is_built_in(backbone):
        params["generator"] = generator
    try:
        module = builder(input_shape, **params)
    except Exception as error:
        if isinstance(backbone, type):
            raise TypeError(
                f"backbone={builder.__name__} is a class, called with input_shape={input_shape} "
                f"as its first argument, and raised {type(error).__name__}: {error}. Pass an "
                f"object, {builder.__name__}(...), or a callable (input_shape) -> nn.Module."
            ) from error
        error.add_note(f"raised by backbone={backbone!r}, called with input_shape={input_shape}")
        raise
    if not isinstance(module, nn.Module):
        raise TypeError(f"backbone={backbone!r} must return an nn.Module, got {module!r}.")
    return module


def _check_params(builder, params, backbone):
    signature = inspect.signature(builder)
    known = dict(signature.parameters)
    if is_built_in(backbone):
        del known["generator"]
    unknown = sorted(set(params) - set(list(known)[1:]))
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in known.values()):
        raise ValueError(
            f"backbone_params has unknown keys {unknown} for backbone={backbone!r}; it accepts "
            f"{list(known)[1:]}."
        )
    try:
        signature.bind(None, **params)
    except TypeError as error:
        raise TypeError(
            f"backbone={backbone!r} cannot be called with the shape of a sample and "
            f"backbone_params={params!r}: {error}. Give a module that is built, such as "
            "nn.Linear(64, 32), or a callable (input_shape, **backbone_params) -> nn.Module."
        ) from error


def _load_file(body, weights):
    if not isinstance(weights, os.PathLike) and not os.path.isfile(weights):
        raise ValueError(
            f"weights={weights!r} must be the path of a state dict: only the models of "
            "torchvision have weights with names."
        )
    load_weights(body, weights)


def _column_scale(statistics, body):
    """Return the first layer for tables.

    Only a perceptron of ours surely takes its columns for quantities. A column that does not vary
    is left as wide as it is.
    """
    if statistics is None or not isinstance(body, MLP):
        return nn.Identity()
    mean, std = statistics
    return ColumnScale(mean, torch.where(std > ROUNDING * mean.abs(), std, 1.0))


def _normalization(statistics, weights, input_shape, is_torchvision):
    """Return the first layer: what to do with the values of a batch."""
    if len(input_shape) != 3:
        return nn.Identity()
    n_channels = N_COLOURS if is_torchvision else None
    statistics = ChannelStatistics((0.0,), (1.0,)) if statistics is None else statistics
    mean, std = statistics[:2]
    if is_torchvision and hasattr(weights, "transforms"):
        low, high = statistics[2:] or (0.0, 1.0)
        if high > 1.0 and low >= 0.0:
            raise ValueError(
                f"weights={weights} expects images of bytes or of floats in [0, 1], got floats "
                f"up to {high:g}: divide them by 255 or give uint8."
            )
        preset = weights.transforms()
        # Negative values were standardised before, by the transform of the user.
        mean, std = (preset.mean, preset.std) if low >= 0.0 else ((0.0,), (1.0,))
    return Normalize(mean, std, n_channels)


def _n_features(body, input_shape, backbone):
    """Return the width of the features, from a batch of zeros."""
    training = {module: module.training for module in body.modules()}
    body.eval()
    try:
        features = _forward_zeros(body, input_shape)
    except (RuntimeError, AssertionError, IndexError, TypeError, ValueError) as error:
        raise ValueError(_refusal(body, input_shape, backbone, error)) from error
    finally:
        for module, mode in training.items():
            module.training = mode
    if not torch.is_tensor(features) or features.ndim != 2 or len(features) != 1:
        got = tuple(features.shape) if torch.is_tensor(features) else type(features).__name__
        raise ValueError(
            f"backbone={_named(backbone)} must return features of shape (n_samples, n_features),"
            f" got {got} for one sample: end it with pooling and nn.Flatten()."
        )
    return features.shape[1]


def _forward_zeros(body, input_shape):
    parameter = next((p for p in body.parameters() if p.is_floating_point()), None)
    like = torch.zeros(()) if parameter is None else parameter
    with torch.no_grad():
        if isinstance(input_shape, dict):
            return body(**zeros_of(input_shape, like.device))
        return body(torch.zeros(1, *input_shape, dtype=like.dtype, device=like.device))


def _refusal(body, input_shape, backbone, error):
    if isinstance(input_shape, dict):
        return (
            f"backbone={_named(backbone)} cannot take samples of the parts {list(input_shape)}: "
            f"{error}. They are given as keyword arguments: leave out of X what it does not take."
        )
    message = f"backbone={_named(backbone)} cannot take samples of shape {input_shape}: {error}."
    smallest = _smallest_size(body, input_shape) if isinstance(backbone, str) else None
    if smallest is None:
        return (
            f"{message} Resize the images with `transform`." if len(input_shape) == 3 else message
        )
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
            _forward_zeros(body, (input_shape[0], size, size))
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
    return repr(backbone) if isinstance(backbone, str | tuple) else type(backbone).__name__

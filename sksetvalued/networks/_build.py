"""From the parameters of an estimator to a network."""

import inspect
import os
import warnings

import numpy as np
import torch
from torch import nn

from sksetvalued.inputs import WIDE, ChannelStatistics, ColumnStatistics, plain_sample
from sksetvalued.networks._backbones import MLP
from sksetvalued.networks._heads import HEADS
from sksetvalued.networks._network import Arcsinh, ColumnScale, Network, Normalize, WithCosines
from sksetvalued.networks._sources import N_COLOURS, is_built_in, source_of

LARGEST_SIZE_TRIED = 512

#: Raised by modules on samples that they cannot take.
FORWARD_ERRORS = (RuntimeError, AssertionError, IndexError, TypeError, ValueError)

#: Samples on which a backbone is tried, beside one: a mean over samples has the shape for one.
N_PROBED = 2

#: Classes of ImageNet.
N_IMAGENET = 1000
#: Mean and spread of the colours of ImageNet, as torchvision and timm have them.
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

WRAPPER = """
    class Features(torch.nn.Module):
        def __init__(self, body):
            super().__init__()
            self.body = body
        def forward(self, {arguments}):
            return self.body({given}){chosen}"""


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
        Statistics of the training images, before which come those that the weights were trained
        with; a pair comes before both. Images in bytes are divided by 255 in any case. For tables
        the statistics of the columns, which a perceptron of this package centres, scales and
        bends; beside up to 500 of them it takes a part of their cosines.
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
    form = input_shape
    if not isinstance(form, dict):
        form = tuple(int(size) for size in input_shape)
    source = source_of(backbone)
    if isinstance(form, dict) and not source.takes_parts:
        raise ValueError(
            f"backbone={backbone!r} takes one array, but X holds {list(form)}: give a module "
            "whose forward has arguments of these names and returns features of shape "
            "(n_samples, n_features), or a callable that returns one."
        )
    bent = isinstance(normalization, ColumnStatistics) and normalization.mean is not None
    with_cosines = bent and has_cosines(backbone, form)
    body_form = (2 * form[0],) if with_cosines else form
    body = source.build(backbone, params, weights, body_form, generator)
    if isinstance(form, dict):
        normalize = nn.Identity()
    elif len(form) == 1:
        normalize = _column_scale(normalization, body)
        if with_cosines:
            normalize.append(WithCosines())
    elif len(form) == 3:
        own = source.statistics(backbone, weights, body)
        normalize = _image_normalization(normalization, own, weights, source.n_channels)
        _check_channels(len(normalize.mean), form[0], is_built_in(backbone))
    else:
        normalize = nn.Identity()
    n_features = _n_features(normalize, body, form, backbone)
    if not isinstance(backbone, str) and not is_built_in(backbone):
        _warn_of_scores(body, n_features, n_classes)
    return Network(normalize, body, HEADS[head](n_features, n_classes, generator))


def asked_normalization(normalization, form, measured):
    """Return the statistics of the first layer: those asked for, or else those measured.

    Parameters
    ----------
    normalization : None, "imagenet" or pair (mean, std)
        Parameter of an estimator.
    form : tuple of int or dict
        Shape of a sample.
    measured : ChannelStatistics, ColumnStatistics or None
        Of the training data.
    """
    if normalization is None:
        return measured
    if not isinstance(measured, ChannelStatistics):
        raise ValueError(
            f"normalization={normalization!r} is for images of shape (n_channels, height, width), "
            f"but the samples have the form {form}: leave it None."
        )
    if isinstance(normalization, str) and normalization == "imagenet":
        _check_unit_range(measured, "normalization='imagenet'")
        return IMAGENET
    try:
        pair = tuple(np.atleast_1d(np.asarray(part, dtype=float)) for part in normalization)
    except (TypeError, ValueError):
        pair = ()
    sizes = {1, form[0], N_COLOURS} if form[0] == 1 else {1, form[0]}
    fits = all(part.ndim == 1 and len(part) in sizes for part in pair)
    if len(pair) != 2 or not fits or not np.isfinite(pair[0]).all() or not (pair[1] > 0).all():
        raise ValueError(
            "normalization must be None, 'imagenet' or a pair (mean, std) of numbers, or of one "
            f"number for each of the {form[0]} channels, std > 0, got {normalization!r}."
        )
    return tuple(tuple(part.tolist()) for part in pair)


def _check_unit_range(measured, what):
    if measured.low < 0.0 or measured.high > 1.0:
        raise ValueError(
            f"{what} expects images of bytes or of floats in [0, 1], got floats from "
            f"{measured.low:g} to {measured.high:g}: divide them by 255, give uint8, or set "
            "normalization=(0, 1) for images that are standardised already."
        )


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
    warnings.warn(
        f"backbone ends in {what}: if these are scores of classes, a second classifier now stands "
        f"behind the first. Take {where} away, for example by putting torch.nn.Identity() in its "
        "place; the estimator adds the last layer.",
        UserWarning,
        stacklevel=2,
    )


def has_cosines(backbone, form):
    """Return whether cosines stand beside the columns of a dense table."""
    return is_built_in(backbone) and form[0] <= WIDE


def _column_scale(statistics, body):
    """Return the first layer for tables.

    Only a perceptron of ours surely takes its columns for quantities.
    """
    if statistics is None or not isinstance(body, MLP):
        return nn.Identity()
    # A column whose spread single precision does not hold is constant to the network.
    spread = torch.where(statistics.scale.float() == 0, 1.0, statistics.scale)
    scale = ColumnScale(statistics.centre, spread)
    if statistics.mean is None:
        return scale
    return nn.Sequential(scale, Arcsinh(), ColumnScale(*statistics[2:]))


def _image_normalization(statistics, own, weights, n_channels):
    """Return the first layer for images.

    Parameters
    ----------
    statistics : ChannelStatistics, pair (mean, std) or None
        Those of the images, or a pair that the user asks for.
    own : pair (mean, std) or None
        Those of the pretraining.
    weights : str, path-like or None
    n_channels : int or None
    """
    measured = isinstance(statistics, ChannelStatistics)
    if own is None or (statistics is not None and not measured):
        mean, std = statistics[:2] if statistics is not None else ((0.0,), (1.0,))
        return Normalize(mean, std, n_channels)
    low, high = statistics[2:] if measured else (0.0, 1.0)
    if high > 1.0 and low >= 0.0:
        raise ValueError(
            f"weights={weights} expects images of bytes or of floats in [0, 1], got floats "
            f"up to {high:g}: divide them by 255 or give uint8. Where a transform standardises "
            "them, set normalization=(0.0, 1.0)."
        )
    # Negative values were standardised before, by the transform of the user.
    mean, std = own if low >= 0.0 else ((0.0,), (1.0,))
    return Normalize(mean, std, n_channels)


def _check_channels(n_means, n_channels, one_stays_one):
    """Raise if a first layer has means for other channels than the images have."""
    if n_means not in (1, n_channels) and (n_channels > 1 or one_stays_one):
        raise ValueError(
            f"normalization is given for {n_means} channels, but the images have {n_channels}: "
            f"leave it None, or give a pair (mean, std) of one number, or of {n_channels}."
        )


def _n_features(normalize, body, form, backbone):
    """Return the width of the features, from samples of zeros or, of parts, else of ones."""
    network = nn.Sequential(normalize, body) if not isinstance(form, dict) else body
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


def _refusal(body, input_shape, backbone, error):
    if isinstance(input_shape, dict):
        return (
            f"backbone={_named(backbone)} cannot take samples of the parts {list(input_shape)}: "
            f"{error}. They are given as keyword arguments: leave out of X what it does not take. "
            "It is tried on a sample of zeros and, if that fails, on one of ones."
        )
    message = f"backbone={_named(backbone)} cannot take samples of shape {input_shape}: {error}."
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

"""From the parameters of an estimator to a network."""

import os

import numpy as np
import torch
from torch import nn

from .._checks import LARGEST, SMALLEST, check_option
from ..inputs import WIDE, ChannelStatistics, ColumnStatistics
from ._backbones import MLP
from ._heads import HEADS
from ._network import Arcsinh, ColumnScale, Network, Normalize, Shrink, WithCosines
from ._probe import n_features_of
from ._sources import N_COLOURS, is_built_in, source_of

#: Mean and spread of the colours of ImageNet, as torchvision and timm have them.
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

#: Largest sum of the absolute values of a row, in the mean of the rows of a table. An update of
#: AdamW changes all weights by about as much, and what a unit gets by that times this sum.
LONGEST = 40.0


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
        the widths of an MLP; a module is copied; a callable takes the shape of a sample, and
        returns a new module.
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
        bends; beside up to 500 of them it takes a part of their cosines, and it makes all smaller
        where they are many. It reads no others than these statistics are of.
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
    check_option("head", head, tuple(HEADS))
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
    if isinstance(normalization, ColumnStatistics) and normalization.columns is not None:
        body_form = normalization.columns.shape
    body = source.build(backbone, params, weights, body_form, generator)
    if isinstance(form, dict):
        normalize = nn.Identity()
    elif len(form) == 1:
        normalize = _column_scale(normalization, body, with_cosines)
    elif len(form) == 3:
        own = source.statistics(backbone, weights, body)
        normalize = _image_normalization(normalization, own, weights, source.n_channels)
        _check_channels(len(normalize.mean), form[0], is_built_in(backbone))
    else:
        normalize = nn.Identity()
    n_features = n_features_of(backbone, normalize, body, form, n_classes)
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
        _check_unit_range(measured)
        return IMAGENET
    try:
        pair = tuple(np.atleast_1d(np.asarray(part, dtype=float)) for part in normalization)
    except (TypeError, ValueError):
        pair = ()
    sizes = {1, form[0], N_COLOURS} if form[0] == 1 else {1, form[0]}
    fits = all(
        part.ndim == 1 and len(part) in sizes and (np.abs(part) <= LARGEST).all() for part in pair
    )
    if len(pair) != 2 or not fits or not (pair[1] >= SMALLEST).all():
        raise ValueError(
            "normalization must be None, 'imagenet' or a pair (mean, std) of numbers of single "
            f"precision, or of one number for each of the {form[0]} channels, std > 0, got "
            f"{normalization!r}."
        )
    return tuple(tuple(part.tolist()) for part in pair)


def _check_unit_range(measured):
    if measured.low < 0.0 or measured.high > 1.0:
        raise ValueError(
            "normalization='imagenet' expects images of bytes or of floats in [0, 1], got floats "
            f"from {measured.low:g} to {measured.high:g}: divide them by 255, give uint8, or set "
            "normalization=(0, 1) for images that are standardised already."
        )


def has_cosines(backbone, form):
    """Return whether cosines stand beside the columns of a dense table."""
    return is_built_in(backbone) and form[0] <= WIDE


def _column_scale(statistics, body, with_cosines):
    """Return the first layer for tables.

    Only a perceptron of ours surely takes its columns for quantities.
    """
    if statistics is None or not isinstance(body, MLP):
        return nn.Identity()
    # A column whose spread single precision does not hold is constant to the network.
    spread = torch.where(statistics.scale.float() == 0, 1.0, statistics.scale)
    scale = ColumnScale(statistics.centre, spread, statistics.columns)
    if statistics.mean is None:
        return scale
    std = torch.where(statistics.std == 0, 1.0, statistics.std)
    layers = [scale, Arcsinh(), ColumnScale(statistics.mean, std)]
    if with_cosines:
        layers.append(WithCosines())
    if statistics.length > LONGEST:
        layers.append(Shrink(LONGEST / statistics.length))
    return nn.Sequential(*layers)


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

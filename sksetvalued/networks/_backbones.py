"""The built-in backbones: from a sample to a vector of features."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

import torch
from torch import nn
from torch.nn import functional as F

from .._checks import check_positive_integer
from ._random import EMPTY, Dropout, RectifiedDropout, drawn
from ._rows import RowLinear


def _checked_widths(name, widths):
    """Return numbers of units or channels as integers of Python, whose sums do not overflow."""
    if not isinstance(widths, Iterable) or isinstance(widths, Iterator):  # which ends once
        raise TypeError(f"{name} must be a sequence of widths, such as (256,), got {widths!r}.")
    for width in widths:
        check_positive_integer(f"a width in {name}", width)
    return tuple(map(int, widths))


class MLP(nn.Sequential):
    """Multi-layer perceptron; inputs of several dimensions are flattened.

    Parameters
    ----------
    input_shape : tuple of int
        Shape of a sample.
    hidden : tuple of int, default=(256,)
        Widths of the hidden layers; empty for a linear model.
    dropout : float in [0, 1), default=0.0
        Share of activations dropped after each layer in training.
    generator : torch.Generator, optional
        Source of the initial weights and of the seeds of dropout; torch's default when absent.
    skip : bool, default=False
        Whether the inputs stand beside the last hidden layer, so that what is linear in them need
        not go through the layers.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.networks import MLP
    >>> MLP((20,), hidden=(64, 32))(torch.zeros(5, 20)).shape
    torch.Size([5, 32])
    >>> MLP((20,), hidden=(64, 32), skip=True)(torch.zeros(5, 20)).shape
    torch.Size([5, 52])
    """

    def __init__(self, input_shape, hidden=(256,), dropout=0.0, generator=None, skip=False):
        hidden = _checked_widths("hidden", hidden)
        layers = [nn.Flatten()] if len(input_shape) > 1 else []
        width = torch.Size(input_shape).numel()
        for n_units in hidden:
            layer = (nn.Linear if layers else RowLinear)(width, n_units, **EMPTY)
            layers.append(drawn(layer, generator))
            # One module for both, by the name of the second.
            layers += [None, RectifiedDropout(dropout, generator)] if dropout else [nn.ReLU()]
            width = n_units
        named = ((str(i), layer) for i, layer in enumerate(layers) if layer is not None)
        super().__init__(OrderedDict(named))
        self.skip = bool(skip)
        self.n_features = width + (torch.Size(input_shape).numel() if self.skip else 0)

    def forward(self, x):
        """Return the features of a batch."""
        features = super().forward(x)
        return torch.cat([features, x.flatten(1)], dim=1) if self.skip else features


def _conv(n_in, n_out, size, generator):
    layer = nn.Conv2d(n_in, n_out, size, padding=size // 2, bias=False, **EMPTY)
    return drawn(layer, generator)


def _conv_norm_relu(n_in, n_out, generator):
    return nn.Sequential(
        _conv(n_in, n_out, 3, generator),
        nn.BatchNorm2d(n_out, dtype=torch.float32),
        nn.ReLU(inplace=True),
    )


class ConvNet(nn.Module):
    """Small convolutional network for images of about 20 to 100 pixels a side.

    Each stage convolves, halves the image and convolves again, with batch normalisation; the
    last maps are reduced to their mean and their maximum over the positions. Maps of 2 pixels a
    side are not halved again, so that a batch of a single image can be normalised.

    Parameters
    ----------
    input_shape : tuple (n_channels, height, width)
        Shape of a sample.
    widths : tuple of int, default=(32, 64, 128)
        Channels of the stages.
    dropout : float in [0, 1), default=0.0
        Share of features dropped in training.
    generator : torch.Generator, optional
        Source of the initial weights and of the seed of dropout; torch's default when absent.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.networks import ConvNet
    >>> ConvNet((1, 28, 28))(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 256])
    """

    def __init__(self, input_shape, widths=(32, 64, 128), dropout=0.0, generator=None):
        super().__init__()
        check_image_shape(input_shape, "convnet")
        widths = _checked_widths("widths", widths)
        if not widths:
            raise ValueError("widths must hold numbers of channels, got none.")
        stages = []
        n_channels, size = input_shape[0], min(input_shape[1:])
        for width in widths:
            stages.append(_conv_norm_relu(n_channels, width, generator))
            if size > 2:
                stages.append(nn.MaxPool2d(2, ceil_mode=True))
                size = -(-size // 2)
            stages.append(_conv_norm_relu(width, width, generator))
            n_channels = width
        self.stages = nn.Sequential(*stages)
        self.n_features = 2 * n_channels
        self.dropout = Dropout(dropout, generator)

    def forward(self, x):
        """Return features of shape (n_samples, 2 * widths[-1])."""
        maps = self.stages(x)
        return self.dropout(torch.cat([maps.mean((2, 3)), maps.amax((2, 3))], dim=1))


class _DenseLayer(nn.Module):
    """Add `growth` channels computed from all the channels before."""

    def __init__(self, n_channels, growth, dropout, generator):
        super().__init__()
        self.norm = nn.BatchNorm2d(n_channels, dtype=torch.float32)
        self.conv = _conv(n_channels, growth, 3, generator)
        self.dropout = Dropout(dropout, generator)

    def forward(self, x):
        return torch.cat([x, self.dropout(self.conv(F.relu(self.norm(x))))], dim=1)


def _transition(n_channels, generator):
    return nn.Sequential(
        nn.BatchNorm2d(n_channels, dtype=torch.float32),
        nn.ReLU(inplace=True),
        _conv(n_channels, n_channels, 1, generator),
        nn.AvgPool2d(2),
    )


class DenseNet(nn.Module):
    """DenseNet for small images: no bottleneck, no compression.

    Three dense blocks of ``(depth - 4) / 3`` layers, each layer adding `growth` channels to
    its input; a 1x1 convolution and a 2x2 mean between the blocks; the mean over positions at
    the end ([1]_, section 3). With ``depth=40, growth=40`` it is the network of the CIFAR-100
    experiments of [2]_.

    Parameters
    ----------
    input_shape : tuple (n_channels, height, width)
        Shape of a sample, at least 4 pixels a side (32 in the paper).
    depth : int, default=40
        Number of layers with weights, the classifier included; 4 more than a multiple of 3.
    growth : int, default=40
        Channels added by a layer.
    stem_width : int, default=16
        Channels of the first convolution.
    dropout : float in [0, 1), default=0.0
        Share of activations dropped after each convolution of the blocks.
    generator : torch.Generator, optional
        Source of the initial weights and of the seeds of dropout; torch's default when absent.

    References
    ----------
    .. [1] Huang, Liu, van der Maaten, Weinberger (2017). Densely connected convolutional
       networks. CVPR.
    .. [2] Garcin, Servajean, Joly, Salmon (2022). Stochastic smoothing of the top-K calibrated
       hinge loss for deep imbalanced classification. ICML.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.networks import DenseNet
    >>> DenseNet((3, 32, 32), depth=10, growth=4)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 40])
    """

    def __init__(
        self, input_shape, depth=40, growth=40, stem_width=16, dropout=0.0, generator=None
    ):
        super().__init__()
        check_image_shape(input_shape, "densenet40_40", min_size=4)
        sizes = {"depth": depth, "growth": growth, "stem_width": stem_width}
        for name, value in sizes.items():
            check_positive_integer(name, value)
        depth, growth, stem_width = map(int, sizes.values())
        if depth < 7 or (depth - 4) % 3:
            raise ValueError(f"depth must be 4 more than a multiple of 3, got {depth!r}.")
        layers = OrderedDict()
        layers["stem"] = _conv(input_shape[0], stem_width, 3, generator)
        n_channels = stem_width
        for block in range(3):
            for layer in range((depth - 4) // 3):
                name = f"block{block}_layer{layer}"
                layers[name] = _DenseLayer(n_channels, growth, dropout, generator)
                n_channels += growth
            if block < 2:
                layers[f"transition{block}"] = _transition(n_channels, generator)
        layers["norm"] = nn.BatchNorm2d(n_channels, dtype=torch.float32)
        self.layers = nn.Sequential(layers)
        self.n_features = n_channels
        self._initialize(generator)

    def _initialize(self, generator):
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, generator=generator)

    def forward(self, x):
        """Return features of shape (n_samples, n_channels of the last block)."""
        return F.relu(self.layers(x)).mean((2, 3))


def check_image_shape(input_shape, backbone, min_size=1):
    """Raise ValueError unless `input_shape` is that of an image that `backbone` can take."""
    if len(input_shape) != 3:
        raise ValueError(
            f"backbone={backbone!r} needs images of shape (n_channels, height, width), got "
            f"samples of shape {tuple(input_shape)}; use backbone='mlp' or None for a table."
        )
    if min(input_shape[1:]) < min_size:
        raise ValueError(
            f"backbone={backbone!r} needs images of at least {min_size} x {min_size} pixels, "
            f"got {input_shape[1]} x {input_shape[2]}; resize them with `transform`."
        )

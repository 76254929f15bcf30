"""The network: normalisation, backbone and head."""

import torch
from torch import nn

from ..inputs import NamedTensors, NormalizedRows, SparseRows, arcsinh
from ..inputs._base import LEFT_OUT
from ..operators._precision import without_autocast
from ._backbones import MLP
from ._rows import RowLinear

#: Where layers come from that keep nothing of a batch that they are given to predict.
PLAIN = ("sksetvalued.", "torch.nn.")
#: ... and that take images in any order in memory.
LIBRARIES = (*PLAIN, "timm.", "torchvision.", "transformers.")


def made_of(module, packages):
    """Return whether the classes of all parts of a module are of these packages.

    Parameters
    ----------
    module : nn.Module
    packages : tuple of str
        Their names, each with a dot at the end.
    """
    return all(type(part).__module__.startswith(packages) for part in module.modules())


class Normalize(nn.Module):
    """Standardise the channels of images; bytes become numbers in [0, 1] first.

    Parameters
    ----------
    mean, std : sequence of float
        One per channel, or one for all.
    n_channels : int, optional
        Repeat a single channel so many times, for networks made for colours.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.networks import Normalize
    >>> Normalize([0.5], [0.5])(torch.full((1, 1, 1, 1), 255, dtype=torch.uint8)).item()
    1.0
    """

    def __init__(self, mean=(0.0,), std=(1.0,), n_channels=None):
        super().__init__()
        self.n_channels = n_channels
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float32).view(-1, 1, 1))
        self.register_buffer("std", torch.as_tensor(std, dtype=torch.float32).view(-1, 1, 1))

    def forward(self, x):
        """Return floats of the shape of `x`, a single channel being repeated if asked."""
        x = x.to(self.mean.dtype) / 255 if x.dtype == torch.uint8 else x.to(self.mean.dtype)
        if self.n_channels is not None and x.shape[1] == 1:
            x = x.expand(-1, self.n_channels, -1, -1)
        return (x - self.mean) / self.std


class ColumnScale(nn.Module):
    """Centre and scale the columns of a table, or some of them.

    The mean is subtracted in the precision of the batch, so that a large one costs no digits of
    doubles; what comes out has the precision of the network. Of sparse rows, what their zeros
    become is kept apart.

    Parameters
    ----------
    mean, scale : Tensor of shape (n_features,)
    columns : LongTensor of shape (n_features,), optional
        Which columns of the table these are, in order: the others are left out. All by default.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.networks import ColumnScale
    >>> scale = ColumnScale(torch.tensor([0.0, 1e4]), torch.tensor([1.0, 1e-4]))
    >>> scale(torch.tensor([[1.0, 1e4 + 1e-4]], dtype=torch.float64)).round(decimals=3)
    tensor([[1., 1.]])
    """

    def __init__(self, mean, scale, columns=None):
        super().__init__()
        self.register_buffer("columns", columns)
        # Copies, which keep no larger tensor alive, of which these may be a part.
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float64).clone())
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float32).clone())

    def forward(self, x):
        """Return the scaled batch, in the precision of `scale`."""
        mean, scale = self.mean, self.scale
        if self.columns is not None:
            sparse = isinstance(x, SparseRows)
            x = x.of_columns(self.columns) if sparse else x.index_select(1, self.columns)
        if not isinstance(x, SparseRows):
            if x.dtype == scale.dtype:
                return (x - mean.to(x.dtype)).div_(scale)
            if x.dtype in (torch.float16, torch.bfloat16):
                return self(x.to(scale.dtype))
            return (x - mean).to(scale.dtype).div_(scale)
        columns, values, absent = x.columns.long(), x.values, None
        centred = mean.nonzero()[:, 0]
        if len(centred):
            values = values - mean[columns]
            zero = -(mean[centred] / scale[centred]).to(scale.dtype)
            absent = centred, x.lacks(centred).to(scale.dtype) * zero
        values = values.to(scale.dtype) / scale[columns]
        return SparseRows(x.columns, x.starts, values, x.n_columns, absent)


def columns_left_out(normalize):
    """Return columns that a normalisation leaves out, as they had one value, and these values."""
    scales = [layer for layer in normalize.modules() if isinstance(layer, ColumnScale)]
    if not scales:
        return torch.empty(0, dtype=torch.long), torch.empty(0)
    left_out = (scales[-1].scale == LEFT_OUT).nonzero()[:, 0]
    values, columns = scales[0].mean[left_out], scales[0].columns
    return (left_out if columns is None else columns[left_out]), values


class Arcsinh(nn.Module):
    """Bend the tails: arcsinh(x) is about x near zero, and grows like a logarithm."""

    def forward(self, x):
        """Return the inverse hyperbolic sine of each entry."""
        return arcsinh(x)


class WithCosines(nn.Module):
    """Put a part of the cosine of each column beside the columns.

    Effects of a column that rise and fall are learnt from these by fewer hidden units.
    """

    part = 0.3

    def forward(self, x):
        """Return twice as many columns."""
        # A tensor, as the exporter to ONNX rounds numbers to single precision.
        part = torch.tensor(self.part, dtype=torch.float64, device="cpu")
        return torch.cat([x, part * x.cos()], dim=1)


class Shrink(nn.Module):
    """Multiply all columns by one factor.

    Parameters
    ----------
    factor : float, default=1.0
    """

    def __init__(self, factor=1.0):
        super().__init__()
        self.register_buffer("factor", torch.as_tensor(factor, dtype=torch.float32))

    def forward(self, x):
        """Return the columns times the factor."""
        return x * self.factor


class Network(nn.Module):
    """A backbone between the normalisation of its input and a head.

    Parameters
    ----------
    normalize : nn.Module
        Applied to the batch as it comes from the data.
    backbone : nn.Module
        Returns features of shape (n_samples, n_features).
    head : nn.Module
        Returns scores of shape (n_samples, n_classes), or a pair of them.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from sksetvalued.networks import LinearHead, Network
    >>> network = Network(nn.Identity(), nn.ReLU(), LinearHead(4, 3))
    >>> network(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    #: Whether the backbone gets images whose channels come first in memory, as their shape says.
    channels_first = False

    def __init__(self, normalize, backbone, head):
        super().__init__()
        self.normalize = normalize
        self.backbone = backbone
        self.head = head

    def expect_sparse_rows(self):
        """Prepare for batches of :class:`SparseRows`, where the first layer can take them."""
        if self._takes_sparse_rows():
            self.backbone[0].store_by_columns()

    def _takes_sparse_rows(self):
        # Columns that are centred or bent would fill the zeros, and a skip connection takes all.
        first = next(iter(self.backbone.children()), None)
        is_linear = isinstance(self.backbone, MLP) and isinstance(first, RowLinear)
        return is_linear and not self.backbone.skip and not self._bends()

    def _bends(self):
        return isinstance(self.normalize, nn.Sequential)

    def expect_images(self, compiled=False):
        """Prepare for batches of images.

        In memory their channels come last, which is faster, where all layers are those of
        libraries; code of others may view a tensor as if they came first. The compiler of torch
        lays tensors out itself: where it does not, on a GPU, it fails for gradients of weights.

        Parameters
        ----------
        compiled : bool, default=False
            Whether this network will be compiled.
        """
        tensors = (*self.parameters(), *self.buffers())
        plain = made_of(self.backbone, LIBRARIES) and all(tensor.ndim < 5 for tensor in tensors)
        self.channels_first = compiled or not plain
        if plain:
            last, first = torch.channels_last, torch.contiguous_format
            self.to(memory_format=first if compiled else last)

    def normalized(self, inputs):
        """Return inputs that need not go through the first layer, where that takes long.

        Parameters
        ----------
        inputs : Inputs

        Returns
        -------
        inputs : Inputs
            Of which the network takes the batches, too.
        """
        return inputs.normalized(self.normalize) if self._bends() else inputs

    def forward(self, x):
        """Return the scores of a batch."""
        if isinstance(x, NamedTensors):
            return self._scores(self.backbone(**x))
        if isinstance(x, NormalizedRows):
            return self._scores(self.backbone(x.values))
        if isinstance(x, SparseRows) and not self._takes_sparse_rows():
            x = x.to_dense()
        x = self.normalize(x)
        return self._scores(self.backbone(x.contiguous() if self.channels_first else x))

    def _scores(self, features):
        if not isinstance(features, torch.Tensor):
            raise ValueError(
                f"backbone={type(self.backbone).__name__} returns features in evaluation, but a "
                f"{type(features).__name__} in training: switch its auxiliary outputs off, as by "
                "aux_logits=False, or wrap it in a module that returns the features alone."
            )
        own = next(self.head.parameters(), features).dtype
        if self.training:
            self._check_width(features)
            if features.dtype != own and not torch.is_autocast_enabled(features.device.type):
                features = features.to(torch.promote_types(features.dtype, own))
            return self.head(features)
        # Scores that rank classes have the precision of the head: in half of it many were equal.
        with without_autocast(features.device):
            return self.head(features.to(torch.promote_types(features.dtype, own)))

    def _check_width(self, features):
        """Raise unless features in training have the shape of those in evaluation."""
        width = getattr(self.head, "n_features", None)
        if width is not None and (features.ndim != 2 or features.shape[1] != width):
            raise ValueError(
                f"backbone={type(self.backbone).__name__} returns features of shape (n_samples, "
                f"{width}) in evaluation, but of shape {tuple(features.shape)} in training: let "
                "it return as many in both modes."
            )

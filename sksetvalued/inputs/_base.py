"""The one form in which samples reach the training loop."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch

from .._checks import LARGEST

#: The deviation of a column that is left out: what is divided by it is next to nothing.
LEFT_OUT = LARGEST

#: The cosines of more columns than these are not taken, nor are all zeros of a matrix filled.
WIDE = 500

#: From so many columns on, one hidden layer is enough, as for words.
MANY_COLUMNS = 250

NO_SAMPLES = "X holds no samples (n_samples=0), at least one is needed."
TEXTS_REMEDY = "Texts go through a vectorizer first, as in make_pipeline(TfidfVectorizer(), ...)."


def check_single_precision(largest, name="X"):
    """Raise if single precision has no number as large as the largest of the samples."""
    if largest > LARGEST:
        raise ValueError(
            f"{name} holds values up to {largest:g}, too large for the single precision of the "
            "training; scale the features, for example by a StandardScaler."
        )


class ChannelStatistics(NamedTuple):
    """Mean and spread of the channels of images, in the units the network sees.

    Images of bytes are divided by 255 first, others are taken as they are.

    Parameters
    ----------
    mean, std : tuple of float
        One per channel.
    low, high : float
        Smallest and largest value seen.

    Examples
    --------
    >>> from sksetvalued.networks import ChannelStatistics
    >>> ChannelStatistics(mean=(0.5,), std=(0.25,)).high
    1.0
    """

    mean: tuple
    std: tuple
    low: float = 0.0
    high: float = 1.0


class ColumnStatistics(NamedTuple):
    """What centres and scales the columns of a table, before and after their tails are bent.

    Parameters
    ----------
    centre, scale : DoubleTensor of shape (n_features,)
    mean, std : DoubleTensor of shape (n_features,), optional
        Of ``arcsinh((x - centre) / scale)``. Sparse tables, most zeros of which have to stay, have
        none: of columns with zeros the centre is zero, and they are scaled only. The deviation of
        a column without any is zero; that of one to be left out is `LEFT_OUT`.
    length : float, default=0.0
        What comes out has so large a sum of absolute values, in the mean of the rows; zero where
        it is not known.
    columns : LongTensor of shape (n_features,), optional
        Which columns of the table these are, in order; all by default.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.networks import ColumnStatistics
    >>> ColumnStatistics(torch.tensor([1980.0]), torch.tensor([25.0])).centre
    tensor([1980.])
    """

    centre: torch.Tensor
    scale: torch.Tensor
    mean: torch.Tensor | None = None
    std: torch.Tensor | None = None
    length: float = 0.0
    columns: torch.Tensor | None = None

    def without_constants(self):
        """Return these where columns that do not vary are left out, as nothing is learnt of them.

        Of weights as they were drawn, another value in a new row would make noise.

        Returns
        -------
        statistics : ColumnStatistics
        """
        if self.std is None:
            return self
        return self._replace(std=torch.where(self.std == 0, LEFT_OUT, self.std))


class Inputs(ABC):
    """Samples that can be counted, gathered by index and restricted to a subset.

    Attributes
    ----------
    kind : {"table", "image", "path", "dataset", "named"}
    sample_shape : tuple of int or dict
        Shape of one sample in a batch, ``(n_features,)`` or ``(channels, height, width)``; of
        samples of several parts, shape and type of each by name.
    of_bytes : bool
        Whether batches are images of bytes.
    in_memory : bool
        Whether `take` is a cheap gather. If not, batches are made by the worker processes
        of a torch DataLoader.
    runs_user_code : bool
        Whether a transform or a Dataset of the user, which may draw random numbers, is called at
        this stage, or at either one in training. Steady transforms of torchvision do not count.
    entries_per_sample : float or None
        Mean number of stored entries, where what `take` returns can be split into batches.
    """

    kind = "table"
    of_bytes = False
    in_memory = True
    runs_user_code = False
    entries_per_sample = None

    @property
    @abstractmethod
    def sample_shape(self):
        """Shape of one sample."""

    def of_words(self, sample_weight=None):
        """Return whether the columns of a table are learnt as words are.

        They are many, or indicators and counts of a sparse matrix.

        Parameters
        ----------
        sample_weight : array or Tensor of shape (n_samples,), optional
        """
        shape = self.sample_shape
        return isinstance(shape, tuple) and len(shape) == 1 and shape[0] >= MANY_COLUMNS

    @abstractmethod
    def __len__(self):
        """Return the number of samples."""

    @abstractmethod
    def take(self, indices):
        """Return the samples at `indices` (LongTensor) as one tensor, the batch first.

        Where prediction uses several views of a sample, the views are the second dimension.
        """

    @abstractmethod
    def subset(self, indices, training=False):
        """Return the samples at `indices`, an array of sorted integers that occur once.

        ``training`` selects the transform: that of training or that of evaluation.
        """

    def as_new(self, indices, others):
        """Return the samples at `indices` as they would come after a training on `others`."""
        return self.subset(indices)

    @abstractmethod
    def parts(self):
        """Return arrays, tensors and strings that tell these samples from others."""

    def statistics(self, sample_weight=None):
        """Return what a network is told about the values it will see, or None.

        Parameters
        ----------
        sample_weight : Tensor of shape (n_samples,), optional

        Returns
        -------
        statistics : ChannelStatistics, ColumnStatistics or None
            Of the channels of images, or of the columns of vectors, which the weights enter.
        """
        return None

    def used_columns(self):
        """Return the columns of a table that hold other values than zero, in order.

        None where that is not known.
        """
        return None

    def other_values(self, columns, values):
        """Return which of some columns of a table hold anything else than a value of each.

        None of samples that would have to be read for it, which takes as long as an epoch.

        Parameters
        ----------
        columns : LongTensor of shape (n_columns,)
        values : Tensor of shape (n_columns,)

        Returns
        -------
        differ : BoolTensor of shape (n_columns,)
        """
        return torch.zeros(len(columns), dtype=torch.bool)

    def few_used_columns(self):
        """Return these columns where they are few of many, else None."""
        return None

    def to(self, device):
        """Return the inputs with their data on `device` where that helps, else unchanged."""
        return self

    def normalized(self, layer):
        """Return what `layer` makes of the samples, computed once, where they are a small table.

        Else the samples, which the layer then sees batch by batch.

        Parameters
        ----------
        layer : nn.Module
        """
        return self

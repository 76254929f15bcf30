"""Feature tables that stay in the file they are mapped from."""

import numpy as np
import torch

from .._arrays import to_tensor
from ._base import Inputs
from ._tables import ArrayInputs


def is_mapped(array):
    """Return whether an array is a view of a memory map."""
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


class MappedInputs(ArrayInputs):
    """Rows of a memory-mapped table, of which batches alone are copied and converted.

    Parameters
    ----------
    data : ndarray of shape (n_rows, n_features)
        Of any numbers that double precision holds.
    dtype : torch.dtype, optional
        Type of the batches; single precision where that is the type of `data`, else double, by
        default.
    indices : ndarray of int, optional
        The rows that are samples, all by default.
    """

    def __init__(self, data, dtype=None, indices=None):
        self.data = data
        own = torch.float32 if data.dtype == np.float32 else torch.float64
        self._dtype = own if dtype is None else dtype
        self.indices = np.arange(len(data)) if indices is None else indices

    @property
    def dtype(self):
        return self._dtype

    def __len__(self):
        return len(self.indices)

    def take(self, indices):
        return self._rows(self.indices[np.asarray(indices)])

    def _rows(self, positions):
        return to_tensor(self.data[positions]).to(self._dtype)

    def _blocks(self, n_rows):
        starts = range(0, len(self), n_rows)
        return (self._rows(self.indices[start : start + n_rows]) for start in starts)

    def subset(self, indices, training=False):
        return type(self)(self.data, self._dtype, self.indices[np.asarray(indices)])

    def parts(self):
        return [self.data, self.indices]

    def to(self, device):
        return Inputs.to(self, device)

    def normalized(self, layer):
        return Inputs.normalized(self, layer)

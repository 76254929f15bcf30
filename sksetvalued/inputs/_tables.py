"""Feature tables: dense arrays and CSR matrices."""

import numpy as np
import torch

from ._base import Inputs


class ArrayInputs(Inputs):
    """Rows of a dense array.

    Parameters
    ----------
    data : ndarray or Tensor of shape (n_samples, n_features)
    dtype : torch.dtype, optional
        Type of the batches; that of `data` by default.
    """

    #: Share of the free memory of an accelerator that the data may take.
    device_share = 0.3

    def __init__(self, data, dtype=None):
        if isinstance(data, np.ndarray):
            data = torch.from_numpy(np.require(data, requirements=["C", "W"]))
        self.data = data if dtype is None else data.to(dtype)

    @property
    def sample_shape(self):
        return tuple(self.data.shape[1:])

    @property
    def dtype(self):
        return self.data.dtype

    def __len__(self):
        return len(self.data)

    def take(self, indices):
        return self.data.index_select(0, indices.to(self.data.device))

    def subset(self, indices, training=False):
        if len(indices) == len(self):
            return self
        return type(self)(self.data[torch.as_tensor(indices)])

    def to(self, device):
        if torch.device(device).type == "cuda":
            free, _ = torch.cuda.mem_get_info(device)
            if self.data.nbytes > self.device_share * free:
                return self
        return type(self)(self.data.to(device))


class SparseInputs(Inputs):
    """Rows of a CSR matrix, made dense batch by batch."""

    def __init__(self, data, dtype=None):
        if dtype is not None:
            data = data.astype(torch.empty(0, dtype=dtype).numpy().dtype, copy=False)
        self.data = data

    @property
    def dtype(self):
        return torch.from_numpy(self.data.data[:0]).dtype

    @property
    def sample_shape(self):
        return (self.data.shape[1],)

    def __len__(self):
        return self.data.shape[0]

    def take(self, indices):
        return torch.from_numpy(self.data[indices.cpu().numpy()].toarray())

    def subset(self, indices, training=False):
        if len(indices) == len(self):
            return self
        return type(self)(self.data[np.asarray(indices)])

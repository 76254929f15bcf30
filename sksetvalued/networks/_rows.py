"""Affine maps of rows of which only the stored values are read."""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from ..inputs import SparseRows


class BesideRows(NamedTuple):
    """Features of a batch, and sparse rows that stand beside them.

    Parameters
    ----------
    features : Tensor of shape (n_samples, n_features)
    rows : SparseRows
    """

    features: torch.Tensor
    rows: SparseRows

    @property
    def device(self):
        return self.features.device

    def to_dense(self):
        """Return both as one tensor."""
        return torch.cat([self.features, self.rows.to_dense()], dim=1)


def promoted(features, dtype):
    """Return features in the precision of a type, or in their own if that has more digits."""
    if isinstance(features, BesideRows):
        return BesideRows(promoted(features.features, dtype), features.rows)
    return features.to(torch.promote_types(features.dtype, dtype))


class RowLinear(nn.Linear):
    """Affine map of the rows of a batch, dense, :class:`SparseRows` or :class:`BesideRows`.

    Of sparse rows only the stored values are read, forward and backward. A batch in another
    precision than the weights is mapped in its own: of the weights what it needs is converted.
    """

    def store_by_columns(self):
        """Lay the weights out in memory as sparse rows read them, one column after another."""
        self.weight = nn.Parameter(self.weight.detach().t().contiguous().t())

    def forward(self, x):
        """Return the map of each row."""
        if isinstance(x, BesideRows):
            n = x.features.shape[1]
            sums = F.linear(x.features, self.weight[:, :n].to(x.features.dtype), self.bias)
            return sums + _map_sparse(x.rows, self.weight[:, n:])
        if isinstance(x, SparseRows):
            return _map_sparse(x, self.weight) + self.bias
        return F.linear(x, self.weight.to(x.dtype), self.bias)


def _map_sparse(rows, weight):
    columns, table = rows.columns, weight.t()
    if table.dtype != rows.values.dtype:
        used, columns = columns.unique(return_inverse=True)
        table = table[used].to(rows.values.dtype)
    sums = F.embedding_bag(
        columns,
        table.contiguous(),
        rows.starts,
        mode="sum",
        per_sample_weights=rows.values,
    )
    if rows.absent is None:
        return sums
    columns, values = rows.absent
    return sums + values @ weight.t()[columns].to(values.dtype)

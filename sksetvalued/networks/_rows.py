"""Affine maps of rows of which only the stored values are read."""

from torch import nn
from torch.nn import functional as F

from ..inputs import SparseRows


class RowLinear(nn.Linear):
    """Affine map of the rows of a batch, dense or :class:`SparseRows`.

    Of sparse rows only the stored values are read, forward and backward. A batch in another
    precision than the weights is mapped in its own: of the weights what it needs is converted.
    """

    def store_by_columns(self):
        """Lay the weights out in memory as sparse rows read them, one column after another."""
        self.weight = nn.Parameter(self.weight.detach().t().contiguous().t())

    def forward(self, x):
        """Return the map of each row."""
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

"""Feature tables: dense arrays and CSR matrices."""

import math
from abc import abstractmethod
from itertools import accumulate, pairwise

import numpy as np
import torch
from scipy.sparse.linalg import norm
from sklearn.preprocessing import normalize

from .._arrays import to_tensor
from .._checks import SMALLEST
from .._sets import without_zeros
from ._base import WIDE, ColumnStatistics, Inputs
from ._devices import fits_on, moved

#: Share of the samples in which a column of a sparse matrix is not zero, from which on it may be
#: a quantity, as those that stand beside the indicators of a ColumnTransformer, and samples that
#: say so: of few texts, all may hold a word.
HARDLY_ZERO, FEWEST_ROWS = 0.9, 30

#: Entries that are summed together, in double: few enough to stay in the processor's cache.
AT_ONCE = 1 << 14

#: Columns of a sparse matrix that are many, and the share of them that is few.
MANY_SPARSE_COLUMNS, FEW_USED = 1 << 12, 1 / 2

#: Share of the entries that are not zero from which on a sparse matrix is rather a dense table, as
#: for scikit-learn's ColumnTransformer.
DENSE_FROM = 0.3

#: Deviations from the median, of a normal column, up to which columns are hardly bent.
BENT_FROM = 3.0

#: Distance of the quartiles of a standard normal.
NORMAL_QUARTILES = 1.349

#: Quartiles of a positive column that are further apart than so many times are those of amounts.
MANY_TIMES = 8.0
#: Their lower half takes at most so many times as many orders as the upper one: as many of a
#: log-normal column, but 1.4 and more of gamma variables, which are learnt better as they are.
MOST_SKEWED = 1.3
#: Values are told apart from the upper quartile divided by this on, up to 1e23 times it.
MOST_TIMES = 1e15

#: Entries that are sorted for the quartiles, at most, but of so many rows at least.
MOST_SORTED, FEWEST_SORTED = 1 << 16, 1 << 11

#: Columns that are laid out for it together.
COLUMNS_SORTED = 32

#: Entries of a table that may be kept in the form that the first layer gives them.
MOST_KEPT = 1 << 25

#: Spread, in units of the centre, that may be the rounding of a constant.
ROUNDING = 1e-12
#: ... and by which values in single precision are the same as in double.
SAME = 1e-6


def _has_values(data):
    """Return which columns of a CSR matrix hold values."""
    columns = np.zeros(data.shape[1], dtype=bool)
    columns[data.indices[data.data != 0]] = True
    return columns


def _shares(sample_weight, n_samples):
    """Return the share of each sample in the total weight."""
    if sample_weight is None:
        return torch.full((n_samples,), 1 / n_samples, dtype=torch.float64)
    weight = sample_weight.double()
    return weight / weight.sum()


def arcsinh(x):
    """Return the inverse hyperbolic sine of each entry, up to 1e38 or half the largest number.

    By its definition: torch's takes several times as long, and ONNX Runtime has none. The square
    of entries above 1e19 would not be a number in single precision; there it is the logarithm of
    twice the entry.
    """
    largest = torch.finfo(x.dtype).max
    size = x.abs().clamp(max=min(1e38, largest / 2))
    root = (size.clamp(max=min(1e18, largest**0.5 / 2)).square() + 1).sqrt()
    return x.sign() * (size + root.maximum(size)).log()


def _or_one(spread, rounding=0):
    """Return the spread of columns; those that do not vary are left as wide as they are."""
    return torch.where(spread > rounding, spread, 1.0)


def _quantiles(values, share, levels):
    """Return the smallest values that hold these shares; infinity of none.

    NumPy sorts five times as fast as torch, and values faster than their places.
    """
    if not len(values):
        return np.full(len(levels), np.inf)
    if share[0] == share[-1] and (share == share[0]).all():
        values = np.sort(values)
    else:
        order = values.argsort()
        values, share = values[order], share[order]
    return values[share.cumsum().searchsorted(np.asarray(levels) - ROUNDING)]


class TableInputs(Inputs):
    """Rows of a table whose columns can be centred and bent."""

    def statistics(self, sample_weight=None):
        # The quartiles do not feel how far outliers are, which would crush the rest of a column.
        least, low, centre, high = self._quartiles(sample_weight)
        rounding = ROUNDING * centre.abs()
        spread = (high - low) / NORMAL_QUARTILES
        # Columns of which half of the samples, or more, have one and the same value.
        alike = spread <= rounding
        if alike.any():
            _, std = self._mean_and_std(sample_weight, lambda x: x - centre)
            std[alike] = std[alike].minimum(self._usual_distances(alike, centre, sample_weight))
            spread = torch.where(alike, _or_one(std, rounding), spread)
        scale = BENT_FROM * spread
        # Positive amounts of many orders are bent from zero on, about to their logarithms, unless
        # the lower half takes more orders than the upper one, or is a placeholder far below it.
        amounts = (least > 0) & (high > MANY_TIMES * low)
        amounts &= (centre / low).log() < MOST_SKEWED * (high / centre).log()
        unit = torch.maximum(low * (low / centre), high / MOST_TIMES)
        amounts &= unit >= SMALLEST
        scale = torch.where(amounts, unit, scale)
        centre = torch.where(amounts, 0.0, centre)
        mean, std = self._mean_and_std(sample_weight, lambda x: arcsinh((x - centre) / scale))
        if alike.any():
            # However rare other values are, they are two apart from the usual one, as the values
            # of a standardised column that has two of them are in equal shares. None are amounts.
            share_of_others, _ = self._mean_and_std(
                sample_weight, lambda x: ((x - centre).abs() > rounding).double()
            )
            distance = ((mean.square() + std.square()) / share_of_others).sqrt()
            std = torch.where(alike, distance / 2, std)
        std = std.nan_to_num(nan=0.0)  # where no value differs from the usual one
        width = _or_one(std)
        sizes, _ = self._mean_and_std(
            sample_weight, lambda x: ((arcsinh((x - centre) / scale) - mean) / width).abs()
        )
        return ColumnStatistics(centre, scale, mean, std, sizes.sum().item())

    def used_columns(self):
        n_features = self.sample_shape[0]
        used = torch.zeros(n_features, dtype=torch.bool)
        for rows in self._blocks(max(1, AT_ONCE // max(n_features, 1))):
            used |= (rows != 0).any(0).cpu()
        return used.nonzero()[:, 0].numpy()

    def other_values(self, columns, values):
        """Return which of some columns hold anything else than a value of each."""
        differ = torch.zeros(len(columns), dtype=torch.bool)
        for rows in self._blocks(max(1, AT_ONCE // self.sample_shape[0])):
            away = (rows[:, columns.to(rows.device)].cpu().double() - values).abs()
            differ |= (away > SAME * values.abs()).any(0)
        return differ

    def _quartiles(self, sample_weight):
        """Return the least values, and those that a quarter, a half, three quarters hold."""
        rows, share = self._sorted_rows(sample_weight)
        # All columns at once would take memory, and one by one lie far apart.
        chosen = [
            _quantiles(column, share, np.arange(4) / 4)
            for columns in self._dense(rows).split(COLUMNS_SORTED, dim=1)
            for column in columns.double().t().contiguous().numpy()
        ]
        return torch.from_numpy(np.stack(chosen, axis=1))

    def _usual_distances(self, columns, centre, sample_weight):
        """Return the median distance from the centre of the values that differ from it.

        Outliers do not change it, as they do the deviation of a column that is mostly one value.
        """
        rows, share = self._sorted_rows(sample_weight)
        table, usual = self._dense(rows)[:, columns].double(), []
        for column in (table - centre[columns]).abs_().numpy().T:
            away = column > 0
            usual.append(*_quantiles(column[away], share[away] / share[away].sum(), [0.5]))
        return torch.tensor(usual)

    def _sorted_rows(self, sample_weight):
        """Return the rows whose values are sorted, and their shares.

        Of many rows, those evenly spread: there, weights count like repeats only nearly.
        """
        rows = torch.arange(len(self)) if sample_weight is None else sample_weight.nonzero()[:, 0]
        n_sorted = max(FEWEST_SORTED, MOST_SORTED // max(self.sample_shape[0], 1))
        rows = rows[:: -(-len(rows) // n_sorted)]
        weight = None if sample_weight is None else sample_weight[rows]
        return rows, _shares(weight, len(rows)).numpy()

    def _mean_and_std(self, sample_weight, function):
        weight = _shares(sample_weight, len(self))
        n_features = self.sample_shape[0]
        mean, square = torch.zeros(2, n_features, dtype=torch.float64)
        n_rows = max(1, AT_ONCE // max(n_features, 1))
        for rows, share in zip(self._blocks(n_rows), weight.split(n_rows)):
            x = function(rows.double())
            mean += share @ x
            square += share @ x.square_()
        # The mean is at most one deviation from the median, so that no digits are lost.
        return mean, (square - mean.square()).clamp_min_(0).sqrt_()

    @torch.no_grad()
    def normalized(self, layer):
        n_samples, n_features = len(self), self.sample_shape[0]
        if not 0 < n_samples * n_features <= MOST_KEPT:
            return self
        first = self._dense(torch.tensor([0]))
        # A table too large for an accelerator has stayed where it was.
        if any(buffer.device != first.device for buffer in layer.buffers()):
            return self
        first = layer(first)
        kept = first.new_empty(n_samples, first.shape[1])
        n_rows = max(1, AT_ONCE // n_features)
        for rows, block in zip(kept.split(n_rows), self._blocks(n_rows), strict=True):
            rows.copy_(layer(block))
        return NormalizedInputs(kept)

    def _dense(self, indices):
        """Return a dense batch."""
        return self.take(indices)

    @abstractmethod
    def _blocks(self, n_rows):
        """Yield dense batches of so many rows, one after the other."""


class ArrayInputs(TableInputs):
    """Rows of a dense array.

    Parameters
    ----------
    data : ndarray or Tensor of shape (n_samples, n_features)
    dtype : torch.dtype, optional
        Type of the batches; that of `data` by default.
    """

    def __init__(self, data, dtype=None):
        if isinstance(data, np.ndarray):
            data = to_tensor(data)
        self.data = data if dtype is None else data.to(dtype)

    @property
    def sample_shape(self):
        return tuple(self.data.shape[1:])

    @property
    def entries_per_sample(self):
        return math.prod(self.sample_shape)

    @property
    def dtype(self):
        return self.data.dtype

    def __len__(self):
        return len(self.data)

    def take(self, indices):
        return self.data.index_select(0, moved(indices, self.data.device))

    def subset(self, indices, training=False):
        if len(indices) == len(self):
            return self
        return type(self)(self.data[torch.as_tensor(indices)])

    def parts(self):
        return [self.data]

    def _blocks(self, n_rows):
        return self.data.split(n_rows)

    def to(self, device):
        if not fits_on(device, self.data.nbytes):
            return self
        return type(self)(self.data.to(device))


class NormalizedRows:
    """A batch of a table that the first layer of a network has seen already.

    Parameters
    ----------
    values : Tensor of shape (n_samples, n_columns)
    """

    ndim = 2

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def to(self, device, non_blocking=False):
        """Return the batch on a device."""
        return NormalizedRows(self.values.to(device, non_blocking=non_blocking))

    def split(self, sizes):
        """Return batches of so many rows each, one after the other."""
        return [NormalizedRows(values) for values in self.values.split(sizes)]


class NormalizedInputs(ArrayInputs):
    """Rows of a table that the first layer of a network has seen already."""

    def take(self, indices):
        return NormalizedRows(super().take(indices))


class SparseRows:
    """A batch of CSR rows, for layers that need not see the zeros.

    Parameters
    ----------
    columns : Tensor of shape (n_stored,)
        Column of each value, row after row.
    starts : Tensor of shape (n_samples,)
        Position of the first value of each row.
    values : Tensor of shape (n_stored,)
    n_columns : int
    absent : pair of Tensors of shape (n_filled,) and (n_samples, n_filled), optional
        Of columns whose zeros have become other values: which they are, and what stands there,
        or zero beside a stored value.
    """

    ndim = 2

    def __init__(self, columns, starts, values, n_columns, absent=None):
        self.columns = columns
        self.starts = starts
        self.values = values
        self.n_columns = n_columns
        self.absent = absent

    def __len__(self):
        return len(self.starts)

    def to(self, device, non_blocking=False):
        """Return the batch on a device."""
        parts = (self.columns, self.starts, self.values, *(self.absent or ()))
        columns, starts, values, *absent = (
            part.to(device, non_blocking=non_blocking) for part in parts
        )
        return SparseRows(columns, starts, values, self.n_columns, absent or None)

    def split(self, sizes):
        """Return batches of so many rows each, one after the other."""
        rows = list(accumulate(sizes, initial=0))
        ends = [*self.starts[rows[:-1]].tolist(), len(self.values)]
        columns, values = self.absent or (None, None)
        return [
            SparseRows(
                self.columns[first:end],
                self.starts[row:next_row] - first,
                self.values[first:end],
                self.n_columns,
                None if columns is None else (columns, values[row:next_row]),
            )
            for (row, next_row), (first, end) in zip(pairwise(rows), pairwise(ends), strict=True)
        ]

    def to_dense(self):
        """Return the batch as a tensor of shape (n_samples, n_columns)."""
        dense = self.values.new_zeros(len(self), self.n_columns)
        places = self._rows(), self.columns.long()
        dense.index_put_(places, self.values, accumulate=True)
        if self.absent is not None:
            columns, values = self.absent
            dense[:, columns] += values
        return dense

    def of_columns(self, chosen):
        """Return the rows of a table of some of the columns, given in order."""
        place = torch.searchsorted(chosen, self.columns.to(chosen.dtype))
        kept = chosen[place.clamp_(max=len(chosen) - 1)] == self.columns
        n_before = torch.cat([kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)])
        starts = n_before[self.starts.long()]
        return SparseRows(place[kept], starts, self.values[kept], len(chosen))

    def lacks(self, columns):
        """Return which rows store no value in some columns, of shape (n_samples, n_chosen)."""
        n_chosen = len(columns)
        place = columns.new_full((self.n_columns,), n_chosen)
        place[columns] = torch.arange(n_chosen, device=columns.device)
        # Values of other columns are marked in one column more.
        lacks = torch.ones(len(self), n_chosen + 1, dtype=torch.bool, device=columns.device)
        lacks[self._rows(), place[self.columns.long()]] = False
        return lacks[:, :n_chosen]

    def _rows(self):
        """Return the row of each value."""
        end = self.starts.new_tensor([len(self.values)])
        counts = torch.cat([self.starts[1:], end]) - self.starts
        rows = torch.arange(len(self), device=counts.device)
        # A device need not be asked for the length.
        return rows.repeat_interleave(counts, output_size=len(self.values))


class SparseInputs(TableInputs):
    """Rows of a CSR matrix, made dense batch by batch, or kept sparse.

    Parameters
    ----------
    data : CSR matrix of shape (n_samples, n_features)
    dtype : torch.dtype, optional
        Type of the batches; that of `data` by default.
    keep_sparse : bool, default=False
        Whether batches are :class:`SparseRows` where few enough values are stored.
    """

    #: Share of stored values up to which products that skip the zeros are faster.
    largest_density = 0.05

    def __init__(self, data, dtype=None, keep_sparse=False):
        if dtype is not None:
            data = data.astype(torch.empty(0, dtype=dtype).numpy().dtype, copy=False)
        # The spread of a column, and the density, are those of what is stored.
        self.data = data = without_zeros(data)
        self.keep_sparse = keep_sparse and data.nnz <= self.largest_density * np.prod(
            data.shape, dtype=float
        )

    @property
    def dtype(self):
        # Not of the values, which may be read-only.
        return torch.from_numpy(np.empty(0, self.data.dtype)).dtype

    @property
    def sample_shape(self):
        return (self.data.shape[1],)

    def used_columns(self):
        return _has_values(self.data).nonzero()[0]

    def few_used_columns(self):
        n_columns = self.sample_shape[0]
        if n_columns < MANY_SPARSE_COLUMNS:
            return None
        columns = self.used_columns()
        return columns if 0 < len(columns) <= FEW_USED * n_columns else None

    def of_words(self, sample_weight=None):
        if super().of_words():
            return True
        weight = None if sample_weight is None else torch.as_tensor(sample_weight)
        share = _shares(weight, len(self)).numpy()
        return not any(self._quantities(self._hardly_zero(share), share))

    @property
    def entries_per_sample(self):
        # Rows that are made dense are made so one batch after the other.
        return self.data.nnz / max(1, len(self)) if self.keep_sparse else None

    def __len__(self):
        return self.data.shape[0]

    def take(self, indices):
        if not self.keep_sparse:
            return self._dense(indices)
        rows = self.data[indices.cpu().numpy()]
        starts = rows.indptr[:-1].astype(rows.indices.dtype, copy=False)
        parts = (torch.from_numpy(part) for part in (rows.indices, starts, rows.data))
        return SparseRows(*parts, rows.shape[1])

    def subset(self, indices, training=False):
        if len(indices) == len(self):
            return self
        return type(self)(self.data[np.asarray(indices)], keep_sparse=self.keep_sparse)

    def as_new(self, indices, others):
        """Return rows as a vectorizer would give them that was fitted on other rows.

        Words of held-out texts alone have columns only because these texts took part in making
        them; those of new texts are dropped, before rows are given the norm one. Where columns
        are empty, they were made from other texts too, and rows stay as they are.
        """
        part = self.subset(indices)
        known = _has_values(self.data[np.asarray(others)])
        if known.all() or not _has_values(self.data).all():
            return part
        data = part.data.copy()
        data.data[~known[data.indices]] = 0
        data.eliminate_zeros()
        for name, order in (("l2", 2), ("l1", 1)):
            lengths = norm(self.data, order, axis=1)
            if np.allclose(lengths[lengths > 0], 1, rtol=0, atol=1e-5):
                data = normalize(data, norm=name)
        return type(self)(data, keep_sparse=self.keep_sparse)

    def parts(self):
        return [str(self.data.shape), self.data.data, self.data.indices, self.data.indptr]

    def _dense(self, indices):
        return torch.from_numpy(self.data[indices.cpu().numpy()].toarray())

    def _blocks(self, n_rows):
        starts = range(0, len(self), n_rows)
        return (torch.from_numpy(self.data[i : i + n_rows].toarray()) for i in starts)

    def statistics(self, sample_weight=None):
        # Centring would fill the zeros. The spread of a column is that of its stored values, so
        # that a rare word counts where it occurs like a common one; rows get a norm of about 1.
        share = _shares(sample_weight, len(self)).numpy()
        weights = np.repeat(share, np.diff(self.data.indptr))
        squares = self._sums(weights * np.square(self.data.data, dtype=np.float64))
        stored = self._sums(weights)
        spread = np.sqrt(squares / np.where(stored > 0, stored, 1) * stored.sum())
        centre = np.zeros(len(spread))
        # Of few columns all zeros may be filled: of those that hardly have any.
        for column, values in self._quantities(self._hardly_zero(share), share):
            if self.sample_shape[0] <= WIDE:
                return super().statistics(sample_weight)
            centre[column] = share @ values
            spread[column] = np.sqrt(share @ np.square(values - centre[column]))
        return ColumnStatistics(torch.from_numpy(centre), _or_one(torch.from_numpy(spread)))

    def _hardly_zero(self, share):
        """Return the columns that are not zero in nearly all samples, by their shares."""
        stored = self._sums(np.repeat(share, np.diff(self.data.indptr)))
        return np.flatnonzero(stored >= HARDLY_ZERO * share.sum() * (1 - 1e-9))

    def _quantities(self, columns, share):
        """Yield those of some columns that are no indicators, each with its values in double."""
        if len(self) < FEWEST_ROWS:
            return
        table = self.data[:, columns].tocsc()
        for place, column in enumerate(columns):
            values = table[:, [place]].toarray()[:, 0].astype(np.float64)
            low, high = _quantiles(values, share, [0.25, 0.75])
            if high - low > ROUNDING * abs(high):
                yield column, values

    def _sums(self, values):
        """Return the sum of one value for each stored one, by column."""
        return np.bincount(self.data.indices, weights=values, minlength=self.data.shape[1])

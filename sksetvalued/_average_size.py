"""The threshold of a given average set size, in one pass over a stream of scores."""

import math

import numpy as np

from ._masks import ceil_to_dtype, row_blocks, row_counts
from ._validation import NO_WEIGHT

#: A stream of unknown length is kept whole up to this many entries.
FREE_ENTRIES = 1 << 22
#: ... and afterwards this many times what its length so far would need. Weights to come may be
#: this many times as large, on average, as those so far.
SLACK = 2
#: A threshold without a score above it exceeds the one below by this share of that: shares of
#: votes are equal but for their rounding, which exported classifiers do in single precision.
JUST_ABOVE = 2.0**-20


def largest_count(share, total):
    """Return the largest integer m with ``m / total <= share`` in floating point."""
    m = int(np.floor(share * total))
    while (m + 1) / total <= share:
        m += 1
    while m > 0 and m / total > share:
        m -= 1
    return m


def between(upper, lower):
    """Return a number in (lower, upper], the midpoint where there is one.

    In their precision, in which scores are compared with it, it is above the lower one too.
    Without an upper one it is above what rounding in single precision makes of the lower one.
    """
    dtype = np.result_type(lower) if upper is None else np.result_type(upper, lower)
    if upper is None:
        with np.errstate(under="ignore", over="ignore", invalid="ignore"):
            following = np.nextafter(lower, dtype.type(np.inf))
            above = dtype.type(lower + abs(lower) * JUST_ABOVE)
            return float(above if following < above < np.inf else following)
    if lower == -np.inf:
        return float(upper)
    middle = np.float64(upper) / 2 + np.float64(lower) / 2
    return float(middle) if lower < dtype.type(middle) <= upper else float(upper)


class AverageSizeSelector:
    """Find, in one pass over blocks of scores, the threshold of a given average set size.

    The threshold is the smallest for which the average size of the sets ``{score >= threshold}``,
    each held within `min_size` and `max_size`, is not above `k`. Among the entries that may go
    in or out, those of rank `min_size` + 1 to `max_size` in their row, the largest
    ``(k - min_size) n_samples`` are let in: only about so many have to be remembered.

    Parameters
    ----------
    k : float
        Average size.
    min_size : int, default=0
    max_size : int, optional
    n_samples : int, optional
        Number of samples that will have been seen at the end. Without weights the result is then
        exact whatever the order of the samples. Otherwise `SLACK` times what the samples so far
        let expect is remembered, and :meth:`threshold` raises if an entry it needs was dropped.
    total_weight : float, optional
        Sum of the weights at the end. With it weighted samples too may come in any order.
    reserve : int, optional
        Size that is counted for one more sample, to come: the threshold is then the smallest for
        which ``(sum of sizes + reserve) / (n + 1)`` is not above `k`. Without weights only.
    keep_rows : bool, default=False
        Whether to remember which sample each entry is of, for :meth:`size_moments`.
    reach : float, default=1.0
        How many times as large `k` may be set before :meth:`threshold` is called again.
    """

    def __init__(
        self,
        k,
        min_size=0,
        max_size=None,
        n_samples=None,
        total_weight=None,
        reserve=None,
        keep_rows=False,
        reach=1.0,
    ):
        # In the type of a small number of NumPy, products with the number of samples overflow.
        self.k, self.min_size, self.most = float(k), int(min_size), float(k) * reach
        self.max_size = None if max_size is None else int(max_size)
        self.n_samples, self.total_weight = n_samples, total_weight
        self.reserve, self.keep_rows = reserve, keep_rows
        # The rounding of the sum of the weights is carried along.
        self.weight_seen, self.weight_rounded_off, self.rows_seen = 0.0, 0.0, 0
        self.values, self.weights, self.rows, self.row_weights = [], [], [], []
        self.n_kept = self.n_left_by_pruning = 0
        # The largest value dropped so far, and the weight of the entries dropped at that value.
        self.level, self.level_weight = None, 0.0

    def update(self, y_score, sample_weight=None):
        """Take in scores of shape (n_samples, n_classes) and weights of shape (n_samples,)."""
        for rows in row_blocks(y_score.shape):
            weight = None if sample_weight is None else sample_weight[rows]
            self._update_block(y_score[rows], weight)
        return self

    def _update_block(self, block, weight):
        if weight is not None:
            block, weight = block[weight > 0], weight[weight > 0]
            if not len(block):
                return
        self._count(len(block), len(block) if weight is None else weight.sum())
        pool = self._pool(block)
        keep = np.ones(pool.shape, dtype=bool)
        if self.level is not None:
            keep = pool > self.level
            self.level_weight += _weight_of(pool == self.level, weight)
        # A third of the time of pool[keep].
        self.values.append(pool.ravel()[np.flatnonzero(keep)])
        if weight is not None and not self.weights:
            self.weights = [np.ones(len(v)) for v in self.values[:-1]]
        column = np.ones(len(pool)) if weight is None else weight
        if weight is not None or self.weights:
            self.weights.append(np.repeat(column, row_counts(keep)))
        if self.keep_rows:
            row = np.arange(self.rows_seen - len(pool), self.rows_seen, dtype=np.int32)
            self.rows.append(np.repeat(row, row_counts(keep)))
            self.row_weights.append(column)
        self.n_kept += len(self.values[-1])
        if self.n_kept > 1.5 * max(self._capacity(), self.n_left_by_pruning):
            self._prune()

    def _count(self, n_rows, *weights):
        self.rows_seen += n_rows
        parts = (self.weight_seen, self.weight_rounded_off, *weights)
        self.weight_seen = math.fsum(parts)
        self.weight_rounded_off = math.fsum((*parts, -self.weight_seen))

    def _pool(self, block):
        """Return the entries of each row that may go in or out."""
        n_classes = block.shape[1]
        high = max(0, n_classes - self.min_size)
        low = 0 if self.max_size is None else max(0, n_classes - self.max_size)
        cuts = sorted({c for c in (low, high) if 0 < c < n_classes})
        return np.partition(block, cuts, axis=1)[:, low:high] if cuts else block[:, low:high]

    def _budget(self, k, total):
        """Return how much weight may be let in from the pool, for a weight `total` of samples.

        It exceeds ``(k - min_size) total`` by what the sums that are compared with it may have
        been rounded up.
        """
        rounding = (2 * math.sqrt(self.n_kept) + 32) * np.finfo(np.float64).eps
        return (k * (1 + rounding) - self.min_size) * total

    def _expected_weight(self):
        """Return the weight of all samples at the end, or a bound that it should keep."""
        if self.weights and self.total_weight is not None:
            return self.total_weight
        if self.n_samples is not None and not self.weights:
            return self.n_samples
        return SLACK * self.weight_seen * (self.n_samples or self.rows_seen) / self.rows_seen

    def _capacity(self):
        """Return how many entries to keep; pruning waits until there are half as many again."""
        budget = self._budget(self.most, self._expected_weight())
        entries = budget * self.rows_seen / self.weight_seen
        exact = self.n_samples is not None and not self.weights
        return int(np.ceil(entries)) + 2 if exact else max(FREE_ENTRIES, int(entries) + SLACK)

    def _prune(self):
        """Drop the entries that cannot matter, remembering the largest of them."""
        values, weights = self.remembered()
        if weights is None:
            cut = len(values) - self._capacity()
            ordered = np.partition(values, max(cut - 1, 0))
        else:
            order = np.argsort(values)
            ordered = values[order]
            budget = self._budget(self.most, self._expected_weight())
            spent = running_sums(weights[order][::-1])
            cut = len(values) - 2 - np.searchsorted(spent, budget, side="right")
        if cut > 0:
            self._drop_up_to(ordered[cut - 1])
        self.n_kept = self.n_left_by_pruning = len(self.values[0])

    def _drop_up_to(self, level):
        """Drop the entries that are at most `level`."""
        values, weights = self.remembered()
        lost = _weight_of((values == level)[:, None], weights)
        self.level_weight = lost + (self.level_weight if level == self.level else 0.0)
        self.level, kept = level, np.flatnonzero(values > level)
        self.values = [values[kept]]
        self.weights = [] if weights is None else [weights[kept]]
        if self.keep_rows:
            self.rows = [np.concatenate(self.rows)[kept]]

    def merge(self, other):
        """Take in what another selector has seen, as if its samples came next; it is used up.

        Both must have been told the same `k`, bounds, `n_samples` and `total_weight`, the last
        two those of all parts together.
        """
        if not other.rows_seen:
            return self
        if not self.rows_seen:
            vars(self).update(vars(other))
            return self
        self._count(other.rows_seen, other.weight_seen, other.weight_rounded_off)
        for selector, partner in ((self, other), (other, self)):
            if partner.weights and not selector.weights:
                selector.weights = [np.ones(len(v)) for v in selector.values]
        self._merge_levels(other)
        moved = [row + (self.rows_seen - other.rows_seen) for row in other.rows]
        for name, parts in ("values", other.values), ("weights", other.weights), ("rows", moved):
            setattr(self, name, getattr(self, name) + parts)
        self.row_weights = self.row_weights + other.row_weights
        self.n_kept = sum(map(len, self.values))
        if self.n_kept > 1.5 * self._capacity():
            self._prune()
        return self

    def _merge_levels(self, other):
        """Keep of both what is above the higher of the two levels."""
        levels = [part.level for part in (self, other) if part.level is not None]
        if not levels:
            return
        for part in (self, other):
            if part.level != max(levels):
                part._drop_up_to(max(levels))
        self.level_weight += other.level_weight

    def remembered(self):
        """Return the values and weights kept, each in one array that may be reordered.

        They are all that are above some value, and no set of average size `k` needs another.
        """
        self.values = [np.concatenate(self.values)]
        if self.weights:
            self.weights = [np.concatenate(self.weights)]
        return self.values[0], self.weights[0] if self.weights else None

    def threshold(self):
        """Return the threshold for the samples seen so far.

        Raises
        ------
        ValueError
            If no sample had a positive weight.
        RuntimeError
            If an entry that is needed now was dropped, the end not having been known.
        """
        if not self.rows_seen:
            raise ValueError(NO_WEIGHT)
        values, weights = self.remembered()
        if not len(values) and self.level is None:
            return -np.inf
        if weights is None:
            return self._unweighted(values)
        return self._weighted(values, weights)

    def size_moments(self, threshold):
        """Return mean, standard deviation, that of the mean, and share of zeros of the sizes seen.

        Parameters
        ----------
        threshold : float
            What :meth:`threshold` returned.
        """
        values, _ = self.remembered()
        rows = np.concatenate(self.rows)[values >= ceil_to_dtype(threshold, values.dtype)]
        sizes = self.min_size + np.bincount(rows, minlength=self.rows_seen)
        weight = np.concatenate(self.row_weights)
        mean, share = float(np.average(sizes, weights=weight)), weight / weight.sum()
        spread, empty = (sizes - mean) ** 2, float(share[sizes == 0].sum())
        # One sample does not tell how much sizes vary.
        rest = 1 - float(share @ share)
        error = math.sqrt(share**2 @ spread / rest) if rest > 0 else math.inf
        return mean, math.sqrt(share @ spread), error, empty

    def _n_let_in(self):
        """Return how many entries may be let in from the pool; negative where none may."""
        n = int(self.weight_seen)
        if self.reserve is None:
            return largest_count(self.k, n) - self.min_size * n
        return largest_count(self.k, n + 1) - self.reserve - self.min_size * n

    def _unweighted(self, values):
        m = self._n_let_in()
        if m < 0:
            return np.inf
        if m < len(values):
            # Only the m + 1 largest are looked at; the rest of the array is left unsorted.
            values = values.copy() if self.keep_rows else values
            values.partition(len(values) - m - 1)
            values = values[len(values) - m - 1 :]
            lower = values[0]
            above = values[values > lower]
            return between(above.min() if above.size else None, lower)
        if self.level is None:
            return -np.inf
        self._check_level(m - len(values))
        above = values[values > self.level]
        return between(above.min() if above.size else None, self.level)

    def _weighted(self, values, weights):
        order = np.argsort(-values, kind="stable")
        values, spent = values[order], running_sums(weights[order])
        ends = np.flatnonzero(np.append(values[1:] != values[:-1], len(values) > 0))
        distinct, spent = values[ends], spent[ends]
        n_fit = np.count_nonzero(spent <= self._budget(self.k, self.weight_seen))
        if n_fit < len(distinct):
            return between(distinct[n_fit - 1] if n_fit else None, distinct[n_fit])
        if self.level is None:
            return -np.inf
        self._check_level(self._budget(self.k, self.weight_seen) - spent[-1:].sum())
        above = distinct[distinct > self.level]
        return between(above[-1] if above.size else None, self.level)

    def _check_level(self, missing):
        """Raise unless the next entry is one of those dropped at the level."""
        if missing < self.level_weight:
            return
        if self.n_samples is not None:
            raise RuntimeError(
                "the threshold needs scores that were dropped, as the weights rose from chunk to "
                "chunk: shuffle the samples, or give all of them at once to the fit of the rule."
            )
        raise RuntimeError(
            "the threshold needs scores that were dropped: the scores of the stream fell from "
            f"chunk to chunk{' or its weights rose,' if self.weights else ','} and its length was "
            "not known. Pass n_samples, the number of samples of all chunks together, to "
            "partial_fit, or shuffle the samples."
        )


def _weight_of(mask, weight):
    if weight is None:
        return float(np.count_nonzero(mask))
    return float(row_counts(mask) @ weight)


def running_sums(weights):
    """Return the cumulative sums of weights, by rows of a square and the sums of its rows.

    Their rounding grows like the square root of the number of weights, not like the number.
    """
    side = math.isqrt(len(weights)) + 1
    square = np.zeros((side, side))
    square.ravel()[: len(weights)] = weights
    np.cumsum(square, axis=1, out=square)
    square[1:] += np.cumsum(square[:-1, -1])[:, None]
    return square.ravel()[: len(weights)]


def average_size_threshold(y_score, k, sample_weight=None):
    """Return the threshold whose sets hold `k` classes on average, never more.

    Parameters
    ----------
    y_score : ndarray of shape (n_samples, n_classes)
    k : float
    sample_weight : ndarray of shape (n_samples,), optional
    """
    total_weight = None if sample_weight is None else sample_weight.sum()
    selector = AverageSizeSelector(k, n_samples=len(y_score), total_weight=total_weight)
    return selector.update(y_score, sample_weight).threshold()

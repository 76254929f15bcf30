"""Selection arithmetic shared by the rules and the metrics, in NumPy only.

A threshold on pooled scores, a top-k mask with scikit-learn's tie rule, and the streaming
selection behind the average-K threshold. Everything runs over blocks of rows, so that no
temporary has the size of the scores.
"""

import math
import warnings
from numbers import Integral, Real

import numpy as np

BLOCK_ENTRIES = 1 << 18
#: A stream of unknown length is kept whole up to this many entries.
FREE_ENTRIES = 1 << 22
#: ... and afterwards this many times what its length so far would need. Weights to come may be
#: this many times as large, on average, as those so far.
SLACK = 2
NO_WEIGHT = "sample_weight is zero for every sample; give one a positive weight."


def check_score_array(y_score, name="y_score"):
    """Return scores as a float array of shape (n_samples, n_classes), float32 kept.

    Raises
    ------
    ValueError
        If the shape is not two-dimensional, empty, or an entry is NaN or +inf. ``-inf``, the
        logarithm of a zero probability, is accepted.
    """
    y_score = np.asarray(y_score)
    if y_score.dtype == np.float16:
        y_score = y_score.astype(np.float32)
    elif y_score.dtype not in (np.float32, np.float64):
        y_score = y_score.astype(np.float64)
    if y_score.ndim != 2 or 0 in y_score.shape:
        raise ValueError(
            f"{name} must hold one row per sample and one column per class, of shape "
            f"(n_samples, n_classes) with at least one of each, got shape {y_score.shape}."
        )
    if not y_score.max() < np.inf:
        raise ValueError(
            f"{name} contains NaN or +inf; scores must be finite (or -inf for a zero "
            "probability). Check the model that made them."
        )
    return y_score


def check_weights(sample_weight, n_samples, complete=True):
    """Return weights as a float64 array of shape (n_samples,), or None.

    Raises
    ------
    ValueError
        If the shape is wrong, a weight is negative or not finite, or all are zero, which those
        of a part of the samples may be (``complete=False``).
    """
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n_samples,):
        raise ValueError(
            f"sample_weight must have shape ({n_samples},), one weight per sample, "
            f"got {weight.shape}."
        )
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise ValueError("sample_weight must be finite and >= 0; remove or clip the others.")
    if complete and not weight.any():
        raise ValueError(NO_WEIGHT)
    return weight


def check_top_k(k, n_classes=None):
    """Raise unless `k` is an integer >= 1; warn if it takes in every class."""
    if isinstance(k, bool) or not isinstance(k, Integral):
        raise TypeError(f"k must be an integer >= 1, got {k!r} of type {type(k).__name__}.")
    if k < 1:
        raise ValueError(f"k must be >= 1, got {k}; k is the number of classes in a set.")
    if n_classes is not None:
        warn_every_class(k, n_classes, stacklevel=7)


def check_average_k(k, n_classes=None):
    """Raise unless `k` is a positive real number; warn if it takes in every class."""
    if isinstance(k, bool) or not isinstance(k, Real):
        raise TypeError(f"k must be a real number > 0, got {k!r} of type {type(k).__name__}.")
    if not 0 < k < np.inf:
        raise ValueError(
            f"k must lie in (0, n_classes], got {k}; k is the average number of classes in a set."
        )
    if n_classes is not None:
        warn_every_class(k, n_classes, stacklevel=7)


def warn_every_class(k, n_classes, category=UserWarning, stacklevel=3):
    """Warn that sets of `k` classes are sets of every class."""
    if k >= n_classes:
        warnings.warn(
            f"k={k} is at least the number of classes ({n_classes}): every class is returned. "
            "Choose a smaller k.",
            category,
            stacklevel=stacklevel,
        )


def row_blocks(shape):
    """Yield slices of rows that hold about `BLOCK_ENTRIES` entries each."""
    step = max(1, BLOCK_ENTRIES // shape[1])
    for start in range(0, shape[0], step):
        yield slice(start, start + step)


def largest_count(share, total):
    """Return the largest integer m with ``m / total <= share`` in floating point."""
    m = int(np.floor(share * total))
    while (m + 1) / total <= share:
        m += 1
    while m > 0 and m / total > share:
        m -= 1
    return m


def between(upper, lower):
    """Return a float64 in (lower, upper], the midpoint where there is one."""
    if upper is None:
        return float(np.nextafter(np.float64(lower), np.inf))
    if lower == -np.inf:
        return float(upper)
    middle = np.float64(upper) / 2 + np.float64(lower) / 2
    return float(middle) if lower < middle <= upper else float(upper)


def ceil_to_dtype(threshold, dtype):
    """Return the smallest number of `dtype` that is not below `threshold`.

    Comparing with it is then exact without a copy of the scores in float64.
    """
    with np.errstate(over="ignore"):
        rounded = np.dtype(dtype).type(threshold)
    if np.float64(rounded) < threshold:
        rounded = np.nextafter(rounded, np.dtype(dtype).type(np.inf))
    return rounded


def top_k_mask(y_score, k):
    """Return the mask of the k largest entries of each row, ties to the highest column.

    This is the order of :func:`sklearn.metrics.top_k_accuracy_score`: a stable sort, of which
    the last k columns are taken.

    Parameters
    ----------
    y_score : ndarray of shape (n_samples, n_classes)
    k : int

    Returns
    -------
    mask : bool ndarray of shape (n_samples, n_classes)
    """
    n_classes = y_score.shape[1]
    if k <= 0 or k >= n_classes:
        return np.full(y_score.shape, k > 0)
    mask = np.empty(y_score.shape, dtype=bool)
    for rows in row_blocks(y_score.shape):
        block = y_score[rows]
        kth = np.partition(block, n_classes - k, axis=1)[:, n_classes - k, None]
        np.greater_equal(block, kth, out=mask[rows])
        (tied,) = np.nonzero(np.count_nonzero(mask[rows], axis=1) > k)
        if tied.size:
            mask[rows][tied] = _last_of_ties(block[tied], kth[tied], k)
    return mask


def _last_of_ties(scores, kth, k):
    """Return the top-k mask of rows in which the k-th largest value is tied."""
    above, equal = scores > kth, scores == kth
    missing = k - np.count_nonzero(above, axis=1)[:, None]
    n_from_right = np.cumsum(equal[:, ::-1], axis=1)[:, ::-1]
    return above | (equal & (n_from_right <= missing))


def threshold_mask(y_score, threshold, min_size=0, max_size=None):
    """Return the mask of the entries >= threshold, each row held within two sizes.

    Parameters
    ----------
    y_score : ndarray of shape (n_samples, n_classes)
    threshold : float
    min_size, max_size : int
        Rows with fewer (more) entries get their `min_size` (`max_size`) largest instead.

    Returns
    -------
    mask : bool ndarray of shape (n_samples, n_classes)
    """
    mask = y_score >= ceil_to_dtype(threshold, y_score.dtype)
    if min_size > 0 or (max_size is not None and max_size < y_score.shape[1]):
        sizes = np.count_nonzero(mask, axis=1)
        for bound, rows in ((min_size, sizes < min_size), (max_size, _above(sizes, max_size))):
            if rows.any():
                mask[rows] = top_k_mask(y_score[rows], bound)
    return mask


def _above(sizes, max_size):
    return np.zeros(sizes.shape, dtype=bool) if max_size is None else sizes > max_size


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
    """

    def __init__(self, k, min_size=0, max_size=None, n_samples=None, total_weight=None):
        self.k, self.min_size, self.max_size = k, min_size, max_size
        self.n_samples, self.total_weight = n_samples, total_weight
        # The rounding of the sum of the weights is carried along.
        self.weight_seen, self.weight_rounded_off, self.rows_seen = 0.0, 0.0, 0
        self.values, self.weights = [], []
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
        self.values.append(pool[keep])
        if weight is not None and not self.weights:
            self.weights = [np.ones(len(v)) for v in self.values[:-1]]
        if weight is not None or self.weights:
            column = np.ones(len(pool)) if weight is None else weight
            self.weights.append(np.broadcast_to(column[:, None], pool.shape)[keep])
        self.n_kept += len(self.values[-1])
        if self.n_kept > 1.5 * max(self._capacity(), self.n_left_by_pruning):
            self._prune()

    def _count(self, n_rows, weight):
        self.rows_seen += n_rows
        parts = (self.weight_seen, self.weight_rounded_off, weight)
        self.weight_seen = math.fsum(parts)
        self.weight_rounded_off = math.fsum((*parts, -self.weight_seen))

    def _pool(self, block):
        """Return the entries of each row that may go in or out."""
        n_classes = block.shape[1]
        high = max(0, n_classes - self.min_size)
        low = 0 if self.max_size is None else max(0, n_classes - self.max_size)
        cuts = sorted({c for c in (low, high) if 0 < c < n_classes})
        return np.partition(block, cuts, axis=1)[:, low:high] if cuts else block[:, low:high]

    def _budget(self, total):
        """Return how much weight may be let in from the pool, for a weight `total` of samples.

        It exceeds ``(k - min_size) total`` by what the sums that are compared with it may have
        been rounded up.
        """
        rounding = (2 * math.sqrt(self.n_kept) + 32) * np.finfo(np.float64).eps
        return (self.k * (1 + rounding) - self.min_size) * total

    def _expected_weight(self):
        """Return the weight of all samples at the end, or a bound that it should keep."""
        if self.weights and self.total_weight is not None:
            return self.total_weight
        if self.n_samples is not None and not self.weights:
            return self.n_samples
        return SLACK * self.weight_seen * (self.n_samples or self.rows_seen) / self.rows_seen

    def _capacity(self):
        """Return how many entries to keep; pruning waits until there are half as many again."""
        entries = self._budget(self._expected_weight()) * self.rows_seen / self.weight_seen
        exact = self.n_samples is not None and not self.weights
        return int(np.ceil(entries)) + 2 if exact else max(FREE_ENTRIES, int(entries) + SLACK)

    def _prune(self):
        """Drop the entries that cannot matter, remembering the largest of them."""
        values, weights = self._gathered()
        if weights is None:
            cut = len(values) - self._capacity()
            values.partition(cut)
            dropped, lost = values[:cut], np.ones(1)
        else:
            order = np.argsort(values)
            values, weights = values[order], weights[order]
            budget = self._budget(self._expected_weight())
            spent = running_sums(weights[::-1])
            cut = max(0, len(values) - 2 - np.searchsorted(spent, budget, side="right"))
            dropped, lost = values[:cut], weights[:cut]
        if cut > 0:
            level = dropped.max()
            before = self.level_weight if level == self.level else 0.0
            self.level = level
            self.level_weight = before + float(np.sum((dropped == level) * lost))
        self.values = [values[cut:].copy()]
        self.weights = [] if weights is None else [weights[cut:].copy()]
        self.n_kept = self.n_left_by_pruning = len(self.values[0])

    def _gathered(self):
        """Return the values and weights kept, each in one array that may be reordered."""
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
        values, weights = self._gathered()
        if not len(values):
            return -np.inf
        if weights is None:
            return self._unweighted(values)
        return self._weighted(values, weights)

    def _unweighted(self, values):
        n = int(self.weight_seen)
        m = largest_count(self.k, n) - self.min_size * n
        if m < len(values):
            # Only the m + 1 largest are looked at; the rest of the array is left unsorted.
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
        ends = np.flatnonzero(np.append(values[1:] != values[:-1], True))
        distinct, spent = values[ends], spent[ends]
        n_fit = np.count_nonzero(spent <= self._budget(self.weight_seen))
        if n_fit < len(distinct):
            return between(distinct[n_fit - 1] if n_fit else None, distinct[n_fit])
        if self.level is None:
            return -np.inf
        self._check_level(self._budget(self.weight_seen) - spent[-1])
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
    return float(np.count_nonzero(mask, axis=1) @ weight)


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


def average_size_threshold(y_score, k, min_size=0, max_size=None, sample_weight=None):
    """Return the threshold whose sets hold `k` classes on average, never more.

    Parameters
    ----------
    y_score : ndarray of shape (n_samples, n_classes)
    k : float
    min_size, max_size : int
        Bounds on the size of each set.
    sample_weight : ndarray of shape (n_samples,), optional
    """
    total_weight = None if sample_weight is None else sample_weight.sum()
    selector = AverageSizeSelector(k, min_size, max_size, len(y_score), total_weight)
    return selector.update(y_score, sample_weight).threshold()

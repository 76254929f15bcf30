"""Top-k and threshold masks with scikit-learn's tie rule, in NumPy and by blocks of rows."""

import numpy as np
import torch

from ._arrays import to_tensor
from ._validation import check_score_values
from .operators._top_k import top_k

#: Entries of a block of rows, which fit the cache.
BLOCK_ENTRIES = 1 << 19
#: Up to so many classes NumPy selects as fast as the operators.
FEW_CLASSES = 128


def row_blocks(shape, once=False):
    """Yield slices of rows that fit the cache, or larger ones if entries are read only `once`."""
    step = max(1, (8 * BLOCK_ENTRIES if once else BLOCK_ENTRIES) // shape[1])
    for start in range(0, shape[0], step):
        yield slice(start, start + step)


def row_counts(mask):
    """Return how many entries of each row of a bool mask are true.

    In a fifth of the time of :func:`numpy.count_nonzero`, which is fast without an axis only.
    """
    dtype = np.uint16 if mask.shape[1] < 1 << 16 else np.uint32
    return mask.view(np.uint8).sum(axis=1, dtype=dtype).astype(np.intp)


def ceil_to_dtype(threshold, dtype):
    """Return the smallest number of `dtype` that is not below `threshold`, or each of several.

    Comparing with it is then exact without a copy of the scores in float64.
    """
    threshold = np.asarray(threshold, dtype=np.float64)
    with np.errstate(over="ignore"):
        rounded = threshold.astype(dtype)
        above = np.nextafter(rounded, np.dtype(dtype).type(np.inf))
    return np.where(rounded.astype(np.float64) < threshold, above, rounded)


def top_k_mask(y_score, k, mask=None):
    """Return the mask of the k largest entries of each row, ties to the highest column.

    This is the order of :func:`sklearn.metrics.top_k_accuracy_score`: a stable sort, of which
    the last k columns are taken.

    Parameters
    ----------
    y_score : ndarray of shape (n_samples, n_classes)
    k : int
    mask : bool ndarray of shape (n_samples, n_classes), optional
        Where to write it, all False.

    Returns
    -------
    mask : bool ndarray of shape (n_samples, n_classes)

    Raises
    ------
    ValueError
        If an entry is NaN or +inf.
    """
    n_classes, k = y_score.shape[1], int(k)  # those of NumPy may be of few bits
    mask = np.zeros(y_score.shape, dtype=bool) if mask is None else mask
    if n_classes <= FEW_CLASSES or not 0 < k < n_classes:
        check_score_values(y_score)
    if not 0 < k < n_classes:
        mask[...] = k > 0
        return mask
    mark = _mark_by_partition if n_classes <= FEW_CLASSES else _mark_by_selection
    kth, is_tied = mark(y_score, k, mask)
    (tied,) = np.nonzero(is_tied)
    if tied.size:
        mask[tied] = _last_of_ties(y_score[tied], kth[tied], k)
    return mask


def _mark_by_partition(y_score, k, mask):
    """Mark what is not below the k-th largest of each row; return that, and whether it is tied."""
    rank = y_score.shape[1] - k
    kth = np.partition(y_score, rank, axis=1)[:, rank, None]
    np.greater_equal(y_score, kth, out=mask)
    return kth, row_counts(mask) > k


def _mark_by_selection(y_score, k, mask):
    """Do the same in one pass over the classes, which puts NaN first."""
    values, places = top_k(to_tensor(y_score), k + 1)
    values = values.numpy()
    check_score_values(values[:, :1])
    # torch has no negative strides, and its scatter is faster than NumPy's.
    marked = mask if min(mask.strides) >= 0 else np.zeros(mask.shape, dtype=bool)
    torch.from_numpy(marked).scatter_(1, places[:, :k], True)
    if marked is not mask:
        mask[...] = marked
    return values[:, k - 1 : k], values[:, k - 1] == values[:, k]


def _last_of_ties(scores, kth, k):
    """Return the top-k mask of rows in which the k-th largest value is tied."""
    above, equal = scores > kth, scores == kth
    missing = k - row_counts(above)[:, None]
    n_from_right = np.cumsum(equal[:, ::-1], axis=1)[:, ::-1]
    return above | (equal & (n_from_right <= missing))


def threshold_mask(y_score, threshold, min_size=0, max_size=None, mask=None):
    """Return the mask of the entries >= threshold, each row held within two sizes.

    Parameters
    ----------
    y_score : ndarray of shape (n_samples, n_classes)
    threshold : float or ndarray of shape (n_classes,)
    min_size, max_size : int
        Rows with fewer (more) entries get their `min_size` (`max_size`) largest instead.
    mask : bool ndarray of shape (n_samples, n_classes), optional
        Where to write it.

    Returns
    -------
    mask : bool ndarray of shape (n_samples, n_classes)
    """
    mask = np.greater_equal(y_score, ceil_to_dtype(threshold, y_score.dtype), out=mask)
    max_size = y_score.shape[1] if max_size is None else max_size
    if min_size > 0 or max_size < y_score.shape[1]:
        sizes = row_counts(mask)
        for bound, rows in ((min_size, sizes < min_size), (max_size, sizes > max_size)):
            if rows.any():
                mask[rows] = top_k_mask(y_score[rows], bound)
    return mask

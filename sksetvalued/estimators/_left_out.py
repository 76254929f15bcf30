"""Log-probabilities of samples that folds hold out class by class, as those of new samples."""

import numpy as np


def iter_as_new(chunks, y, surplus):
    """Yield log-probabilities without what samples gain from being of a class that they add to.

    Parameters
    ----------
    chunks : iterable of ndarray of shape (n_chunk, n_classes)
        Log-probabilities; they are changed in place.
    y : ndarray of shape (n_samples,)
        Class indices, of all chunks.
    surplus : ndarray of shape (n_samples,)
        See `surplus_of_own_class`.
    """
    start = 0
    for log_proba in chunks:
        stop = start + len(log_proba)
        own = np.arange(len(log_proba)), y[start:stop]
        taken = surplus[start:stop].astype(log_proba.dtype)
        total = np.log1p(np.exp(log_proba[own]) * np.expm1(-taken))
        log_proba[own] -= taken
        log_proba -= total[:, None]
        yield log_proba
        start = stop


def surplus_of_own_class(y, weight, kept, out):
    r"""Return by how much the log-odds of their own classes are too high for held-out samples.

    Of n samples drawn at random :math:`n_y` are of a class. A new one is not among them, and
    neither is one that is left out alone: to its network its class has the odds
    :math:`(n_y - 1) / (n - n_y)`. A fold, however, takes its share of every class, and leaves it
    the odds :math:`n_y / (n - n_y)`. By Bayes' rule the odds of predictions are in proportion.
    Where so many samples of each class were taken on purpose, a new one changes no count. Then
    the variance of the counts over classes is far below their mean, which chance makes it; less
    than one is taken off by their ratio.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
        Class indices.
    weight : ndarray of shape (n_samples,) or None
        Weights of the samples.
    kept, out : ndarray of int
        Samples that the network was trained on, and those that were held out.

    Returns
    -------
    surplus : ndarray of shape (n_out,)
        Zero for samples whose class has no others.
    """
    own, n_classes = np.ones(len(out)) if weight is None else weight[out], y.max() + 1
    known = np.bincount(y[kept], None if weight is None else weight[kept], n_classes)
    whole = known + np.bincount(y[out], own, n_classes)
    chance = _share_of_chance(np.unique(np.concatenate([y[kept], y[out]]), return_counts=True)[1])
    y = y[out]
    in_fold = known[y], known.sum() - known[y]
    alone = whole[y] - own, whole.sum() - whole[y]
    surplus = np.zeros(len(out))
    told = np.min([*in_fold, *alone], axis=0) > 0
    (same, others), (same_alone, others_alone) = np.array([in_fold, alone])[:, :, told]
    same_alone += (1 - chance) * own[told]
    surplus[told] = np.log(same / others) - np.log(same_alone / others_alone)
    return surplus


def _share_of_chance(counts):
    """Return how much of what chance makes class counts differ by they do differ by, at most 1."""
    return min(1, counts.var(ddof=1) / counts.mean()) if len(counts) > 1 else 0

"""Log-probabilities of samples that folds hold out class by class, as those of new samples."""

import numpy as np


def iter_as_new(chunks, y, surplus, in_prior=None):
    """Yield log-probabilities without what samples gain by being counted in their own class.

    Parameters
    ----------
    chunks : iterable of ndarray of shape (n_chunk, n_classes)
        Log-probabilities; they are changed in place.
    y : ndarray of shape (n_samples,)
        Class indices, of all chunks.
    surplus, in_prior : ndarray of shape (n_samples,)
        What `surplus_of_own_class` returns; the second where a class prior, which counts each
        sample too, is subtracted later. It raises log-probabilities to 0 at most.
    """
    start = 0
    for log_proba in chunks:
        stop = start + len(log_proba)
        own = np.arange(len(log_proba)), y[start:stop]
        with np.errstate(divide="ignore"):
            others = np.log(-np.expm1(log_proba[own]))
        log_proba[own] -= surplus[start:stop]
        log_proba -= np.logaddexp(others, log_proba[own])[:, None]
        if in_prior is not None:
            log_proba[own] = np.minimum(log_proba[own] + in_prior[start:stop], 0)
        yield log_proba
        start = stop


def surplus_of_own_class(y, weight, kept, out):
    r"""Return by how much the log-odds of their own classes are too high for held-out samples.

    Of n samples drawn at random :math:`n_y` are of a class. A new one is not among them, and
    neither is one that is left out alone: to its network its class has the odds
    :math:`(n_y - 1) / (n - n_y)`. A fold, however, takes its share of every class, and leaves it
    the odds :math:`n_y / (n - n_y)`, but for rounding. By Bayes' rule the odds of predictions are
    in proportion. Where so many samples of each class were taken on purpose, a new one changes no
    count. By chance the variance of the counts over classes is their mean; where it is below that,
    only the ratio of the two is taken off, in place of one.

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
        Negative where the fold has less of the class than is left. Zero where the fold has none
        of it or of all others, or where the class has no other sample.
    in_prior : ndarray of shape (n_out,)
        By how much the log-prior of the class is too high in the same way.
    """
    own, n_classes = np.ones(len(out)) if weight is None else weight[out], y.max() + 1
    known = np.bincount(y[kept], None if weight is None else weight[kept], n_classes)
    whole = known + np.bincount(y[out], own, n_classes)
    chance = _share_of_chance(np.unique(np.concatenate([y[kept], y[out]]), return_counts=True)[1])
    y = y[out]
    told = np.min([known[y], known.sum() - known[y], whole[y] - own], axis=0) > 0
    own, y, surplus, in_prior = own[told], y[told], np.zeros(len(out)), np.zeros(len(out))
    alone = whole[y] - chance * own
    surplus[told] = np.log(known[y] / (known.sum() - known[y]))
    surplus[told] -= np.log(alone / (whole.sum() - whole[y]))
    in_prior[told] = np.log(whole[y] / alone)
    return surplus, in_prior


def _share_of_chance(counts):
    """Return the variance of class counts over that which chance gives them, at most 1."""
    return min(1, counts.var(ddof=1) / counts.mean()) if len(counts) > 1 else 0

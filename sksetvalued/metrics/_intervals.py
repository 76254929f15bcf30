"""Intervals of the coverage of sets."""

import numpy as np
from scipy import stats
from sklearn.exceptions import UndefinedMetricWarning

from .._arrays import plain_labels
from .._checks import check_option, check_real
from .._sets import in_set
from .._warnings import warn_caller
from ._inputs import labels_and_sets
from ._metrics import AVERAGES

METHODS = ("wilson", "clopper-pearson", "dkw")


def coverage_interval(y_true, y_set, *, average="micro", level=0.95, method="wilson", labels=None):
    r"""Return an interval of the coverage that sets have on all samples of the kind.

    The sets must not have been made with the labels of these samples: the model is trained, and
    a labelled rule calibrated, on others. A threshold calibrated on these samples *without*
    labels is allowed.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.
    y_set : array-like or sparse matrix of shape (n_samples, n_classes)
        Boolean (or 0/1) sets.
    average : {"micro", "macro"} or None, default="micro"
        Coverage over samples, averaged over the classes that occur in `y_true`, or one interval
        per class.
    level : float, default=0.95
        Probability that the interval holds the coverage, in (0, 1).
    method : {"wilson", "clopper-pearson", "dkw"}, default="wilson"
        "wilson" [1]_ holds about its level on average; "clopper-pearson" at least, whatever the
        coverage is, over samples and of each class; "dkw" [2]_ for all thresholds or all k at
        once, so that one may be chosen with these samples (not with ``average="macro"``). Macro
        intervals are too short where rare classes are covered less than others.
    labels : array-like of shape (n_classes,), optional
        Labels of the columns. None: the sorted labels in `y_true`. A true label that is not
        among `labels` is a miss; the macro average warns of labels that do not occur.

    Returns
    -------
    low, high : float, or ndarrays of shape (n_classes,)
        Of a class without samples, nan.

    Notes
    -----
    With x hits among m samples and z the normal quantile, Wilson's interval has the centre
    :math:`(x + z^2/2) / (m + z^2)`, that of Clopper and Pearson is of quantiles of Beta laws, and
    that of Dvoretzky, Kiefer, Wolfowitz and Massart is
    :math:`\hat c \pm \sqrt{\ln(2/(1 - level)) / 2m}`.

    The variance of a macro average is that of a stratified one,
    :math:`L^{-2} \sum_y \tilde c_y (1 - \tilde c_y) / m_y`, where :math:`\tilde c_y` counts two
    samples more of the mean coverage, and the interval that of as many samples drawn at large as
    would have this variance [3]_. Classes of a single sample, which have no variance of their
    own, are taken together, as samples drawn at large; the squared distances from the mean to
    the limits of both kinds add up [4]_.

    References
    ----------
    .. [1] Brown, Cai & DasGupta, "Interval estimation for a binomial proportion", 2001.
    .. [2] Massart, "The tight constant in the Dvoretzky-Kiefer-Wolfowitz inequality", 1990.
    .. [3] Korn & Graubard, "Confidence intervals for proportions with small expected number of
       positive counts estimated from survey data", 1998.
    .. [4] Zou & Donner, "Construction of confidence limits about effect measures", 2008.

    Examples
    --------
    >>> import numpy as np
    >>> from sksetvalued.metrics import coverage_interval
    >>> y_true = np.repeat([0, 1], 50)
    >>> y_set = np.zeros((100, 2), bool)
    >>> y_set[:45, 0] = y_set[50:80, 1] = True
    >>> [round(bound, 3) for bound in coverage_interval(y_true, y_set)]
    [0.657, 0.825]
    >>> low, high = coverage_interval(y_true, y_set, average=None)
    >>> low.round(3), high.round(3)
    (array([0.786, 0.462]), array([0.957, 0.724]))
    """
    _check(average, level, method)
    y_true, columns, labels, y_set = labels_and_sets(y_true, y_set, labels)
    hits = in_set(y_set, columns)
    if average == "micro":
        low, high = binomial_interval(hits.sum(), len(hits), level, method)
        return float(low), float(high)
    if average == "macro":
        _warn_of_absent(labels, columns)
        _, at = np.unique(y_true, return_inverse=True)
        return macro_interval(np.bincount(at, weights=hits), np.bincount(at), level, method)
    known = columns >= 0
    n_samples = np.bincount(columns[known], minlength=len(labels))
    n_hits = np.bincount(columns[known], weights=hits[known], minlength=len(labels))
    return binomial_interval(n_hits, n_samples, level, method)


def binomial_interval(n_hits, n_samples, level, method):
    """Return the interval of a proportion, elementwise; nan where there are no samples.

    Parameters
    ----------
    n_hits, n_samples : array-like
        Real numbers are taken.
    level : float
    method : str
    """
    x, m = np.asarray(n_hits, dtype=float), np.asarray(n_samples, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        if method == "clopper-pearson":
            low = np.where(x > 0, stats.beta.ppf((1 - level) / 2, x, m - x + 1), 0.0)
            high = np.where(x < m, stats.beta.ppf((1 + level) / 2, x + 1, m - x), 1.0)
        elif method == "dkw":
            half = band_half_width(m, level)
            low, high = x / m - half, x / m + half
        else:
            z = stats.norm.isf((1 - level) / 2)
            centre = (x + z**2 / 2) / (m + z**2)
            half = z / (m + z**2) * np.sqrt(x * (m - x) / m + z**2 / 4)
            low, high = centre - half, centre + half
    # Rounding must not exclude what was observed.
    low, high = (np.where(m > 0, np.clip(bound, 0, 1), np.nan) for bound in (low, high))
    return np.where(x == 0, low * 0, low), np.where(x == m, high * 0 + 1, high)


def macro_interval(n_hits, n_samples, level, method):
    """Return the interval of the mean of proportions, each of a class with samples."""
    x, m = np.asarray(n_hits, dtype=float), np.asarray(n_samples, dtype=float)
    below = above = 0.0
    for chosen in (m == 1, m > 1):
        if not chosen.any():
            continue
        part, size = x[chosen] / m[chosen], effective_size(x[chosen], m[chosen])
        low, high = binomial_interval(part.mean() * size, size, level, method)
        below += (chosen.mean() * (part.mean() - low)) ** 2
        above += (chosen.mean() * (high - part.mean())) ** 2
    mean = np.mean(x / m)
    return float(max(mean - np.sqrt(below), 0)), float(min(mean + np.sqrt(above), 1))


def effective_size(n_hits, n_samples):
    """Return how many samples drawn at large tell as much as those of the classes.

    The classes have several samples each, or one each.
    """
    mean = np.mean(n_hits / n_samples)
    if n_samples.max() == 1 or not 0 < mean < 1:
        return len(n_samples) ** 2 / np.sum(1 / n_samples)
    # As if two samples more had the mean: a few hits are no proof that there is no variance.
    coverage = (n_hits + 2 * mean) / (n_samples + 2)
    variance = np.sum(coverage * (1 - coverage) / n_samples)
    return len(n_samples) ** 2 * mean * (1 - mean) / variance


def band_half_width(n_samples, level):
    """Return by how much coverages at all thresholds at once may be off."""
    return np.sqrt(np.log(2 / (1 - level)) / (2 * n_samples))


def check_level(level):
    """Raise unless `level` is a number in (0, 1)."""
    check_real("level", level, "(0, 1)", "0.95 is usual")


def _check(average, level, method):
    check_level(level)
    check_option("average", average, AVERAGES)
    check_option("method", method, METHODS)
    if method == "dkw" and average == "macro":
        raise ValueError(
            "method='dkw' is for coverage over samples, not for average='macro': use 'wilson', or "
            "average='micro'."
        )


def _warn_of_absent(labels, columns):
    absent = labels[np.bincount(columns[columns >= 0], minlength=len(labels)) == 0]
    if len(absent):
        warn_caller(
            f"{len(absent)} of {len(labels)} classes have no samples, and are left out of the "
            f"average over classes and its interval: {plain_labels(absent[:5])}"
            f"{'...' if len(absent) > 5 else ''}.",
            UndefinedMetricWarning,
        )

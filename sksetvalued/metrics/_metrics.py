"""Metrics of set-valued predictions."""

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning

from .._arrays import as_numbers
from .._average_size import average_size_threshold
from .._checks import check_option
from .._masks import ceil_to_dtype, row_blocks, row_counts, top_k_mask
from .._sets import in_set, set_sizes
from .._validation import check_average_k, check_score_array, check_top_k, check_weights
from .._warnings import TIES, hold_too_few, warn_caller, warn_every_class
from ._inputs import check_sets, labels_and_scores, labels_and_sets
from ._shots import GROUPS, check_training_counts, shot_groups

AVERAGES = ("micro", "macro", None)


def top_k_accuracy_score(
    y_true, y_score, *, k=5, average="micro", labels=None, sample_weight=None
):
    """Return the share of samples whose true class is among the k highest scores.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.
    y_score : array-like of shape (n_samples, n_classes) or (n_samples,)
        Scores; one column, of the greater label, is accepted when there are two classes. As in
        scikit-learn these are its probabilities if all lie in [0, 1], else decision values: give
        two columns, ``np.c_[-scores, scores]``, where few of the latter might.
    k : int, default=5
    average : {"micro", "macro"} or None, default="micro"
        Over samples, over the classes that occur in `y_true` [1]_, section 3.3.1, or None for
        one value per class (nan for a class that does not occur).
    labels : array-like of shape (n_classes,), optional
        Labels of the columns. None: the sorted labels in `y_true`, one per column. A true label
        that is not among `labels` is a miss.
    sample_weight : array-like of shape (n_samples,), optional

    Returns
    -------
    score : float or ndarray of shape (n_classes,)

    Raises
    ------
    ValueError
        If shapes, labels or weights do not fit together.

    Notes
    -----
    Ties are broken as in :func:`sklearn.metrics.top_k_accuracy_score`: the highest column
    comes first. The micro average equals that function wherever it is defined.

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023.

    Examples
    --------
    >>> from sksetvalued.metrics import top_k_accuracy_score
    >>> y_score = [[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.7, 0.1]]
    >>> top_k_accuracy_score([0, 0, 2], y_score, k=1, labels=[0, 1, 2])
    0.333...
    >>> top_k_accuracy_score([0, 0, 2], y_score, k=1, labels=[0, 1, 2], average="macro")
    0.25
    """
    check_top_k(k)
    y_true, columns, labels, y_score = labels_and_scores(y_true, y_score, labels, strict=True)
    warn_every_class(k, y_score.shape[1], UndefinedMetricWarning)
    hits = np.zeros(len(y_true), dtype=bool)
    for rows in row_blocks(y_score.shape, once=True):
        hits[rows] = in_set(top_k_mask(y_score[rows], k), columns[rows])
    return _average(hits, y_true, columns, labels, average, sample_weight)


def average_k_accuracy_score(
    y_true, y_score, *, k=5, threshold=None, average="micro", labels=None, sample_weight=None
):
    """Return the share of samples whose true class has a score above one threshold.

    The threshold is common to all samples and such that k classes on average are above it
    [1]_, eq. (2.32); fewer where scores tie, with a warning if they are far fewer.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.
    y_score : array-like of shape (n_samples, n_classes) or (n_samples,)
        Scores; one column, of the greater label, is accepted when there are two classes. As in
        scikit-learn these are its probabilities if all lie in [0, 1], else decision values: give
        two columns, ``np.c_[-scores, scores]``, where few of the latter might.
    k : float, default=5
        Average size of the sets, on the samples given here. Ignored when `threshold` is given.
    threshold : float, optional
        Threshold found elsewhere, e.g. by `average_k_threshold` on validation scores. The
        average size of the sets may then differ from k: report it beside the score.
    average, labels, sample_weight
        As in `top_k_accuracy_score`. The weights count in the average size too.

    Returns
    -------
    score : float or ndarray of shape (n_classes,)

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023.

    Examples
    --------
    >>> from sksetvalued.metrics import average_k_accuracy_score
    >>> y_score = [[0.9, 0.06, 0.04], [0.4, 0.35, 0.25], [0.35, 0.45, 0.2]]
    >>> average_k_accuracy_score([0, 1, 0], y_score, k=5 / 3, labels=[0, 1, 2])
    1.0
    """
    y_true, columns, labels, y_score = labels_and_scores(y_true, y_score, labels)
    if threshold is None:
        threshold = average_k_threshold(y_score, k, sample_weight=sample_weight)
        _check_size(y_score, threshold, k, sample_weight)
    elif (threshold := as_numbers(threshold, "threshold")).ndim or np.isnan(threshold):
        raise ValueError(f"threshold must be a number, got {threshold.tolist()!r}.")
    hits = np.zeros(len(y_true), dtype=bool)
    known = columns >= 0
    hits[known] = y_score[known, columns[known]] >= ceil_to_dtype(threshold, y_score.dtype)
    return _average(hits, y_true, columns, labels, average, sample_weight)


def _check_size(y_score, threshold, k, sample_weight):
    """Warn where the sets above a threshold hold far less than k classes on average."""
    lowest = ceil_to_dtype(threshold, y_score.dtype)
    sizes = np.empty(len(y_score))
    for rows in row_blocks(y_score.shape, once=True):
        sizes[rows] = row_counts(y_score[rows] >= lowest)
    size = np.average(sizes, weights=sample_weight)
    if hold_too_few(size, min(k, y_score.shape[1]), len(sizes)):
        warn_caller(
            f"the sets hold {size:.3g} classes on average, less than k={k}: {TIES}",
            UndefinedMetricWarning,
        )


def average_k_threshold(y_score, k, *, sample_weight=None):
    """Return the threshold above which there are k scores per sample on average.

    The smallest threshold t for which ``mean(sum(y_score >= t, axis=1)) <= k``, halfway to the
    next lower score: Algorithm 1 of [1]_, made safe against ties.

    Parameters
    ----------
    y_score : array-like of shape (n_samples, n_classes)
    k : float
    sample_weight : array-like of shape (n_samples,), optional

    Returns
    -------
    threshold : float
        -inf when k >= n_classes (with a warning).

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023.

    Examples
    --------
    >>> from sksetvalued.metrics import average_k_threshold
    >>> average_k_threshold([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1]], 1)
    0.4
    """
    y_score = check_score_array(y_score)
    check_average_k(k)
    weight = check_weights(sample_weight, len(y_score))
    warn_every_class(k, y_score.shape[1], UndefinedMetricWarning)
    if k >= y_score.shape[1]:
        return -np.inf
    return average_size_threshold(y_score, k, sample_weight=weight)


def set_coverage_score(y_true, y_set, *, average="micro", labels=None, sample_weight=None):
    """Return the share of samples whose set holds the true class.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.
    y_set : array-like or sparse matrix of shape (n_samples, n_classes)
        Boolean (or 0/1) sets.
    average, labels, sample_weight
        As in `top_k_accuracy_score`.

    Returns
    -------
    score : float or ndarray of shape (n_classes,)

    Examples
    --------
    >>> from sksetvalued.metrics import set_coverage_score
    >>> y_set = [[True, True, False], [False, True, False]]
    >>> set_coverage_score(["a", "c"], y_set, labels=["a", "b", "c"])
    0.5
    >>> set_coverage_score(["a", "c"], y_set, labels=["a", "b", "c"], average=None)
    array([ 1., nan,  0.])
    """
    y_true, columns, labels, y_set = labels_and_sets(y_true, y_set, labels)
    return _average(in_set(y_set, columns), y_true, columns, labels, average, sample_weight)


def average_set_size(y_set, *, sample_weight=None):
    """Return the average number of classes in a set.

    Parameters
    ----------
    y_set : array-like or sparse matrix of shape (n_samples, n_classes)
        Boolean (or 0/1) sets.
    sample_weight : array-like of shape (n_samples,), optional

    Returns
    -------
    size : float

    Examples
    --------
    >>> from sksetvalued.metrics import average_set_size
    >>> average_set_size([[True, True, False], [False, True, False]])
    1.5
    """
    sizes = set_sizes(check_sets(y_set))
    return float(np.average(sizes, weights=check_weights(sample_weight, len(sizes))))


def set_size_distribution(y_set, *, sample_weight=None):
    """Return the share of samples whose set has 0, 1, ..., n_classes classes.

    Parameters
    ----------
    y_set : array-like or sparse matrix of shape (n_samples, n_classes)
        Boolean (or 0/1) sets.
    sample_weight : array-like of shape (n_samples,), optional

    Returns
    -------
    shares : ndarray of shape (n_classes + 1,)
        Non-negative, of sum 1.

    Examples
    --------
    >>> from sksetvalued.metrics import set_size_distribution
    >>> set_size_distribution([[True, True, False], [False, True, False]])
    array([0. , 0.5, 0.5, 0. ])
    """
    y_set = check_sets(y_set)
    weight = check_weights(sample_weight, y_set.shape[0])
    counts = np.bincount(set_sizes(y_set), weights=weight, minlength=y_set.shape[1] + 1)
    return counts / counts.sum()


def shot_coverage_score(y_true, y_set, *, class_counts, labels=None, sample_weight=None):
    """Return the coverage of the classes with few, medium and many training samples.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.
    y_set : array-like or sparse matrix of shape (n_samples, n_classes)
        Boolean (or 0/1) sets.
    class_counts : array-like of shape (n_classes,)
        Training samples per class, in the order of `labels`.
    labels, sample_weight
        As in `top_k_accuracy_score`. A true label that is not among `labels` has no training
        sample: it counts as a class of the group "few" that is always missed.

    Returns
    -------
    coverage : dict
        Keys "few" (fewer than 20 training samples), "medium" (20 to 100) and "many" (more than
        100) [1]_; values the average coverage of those classes of the group that occur in
        `y_true`, nan where there are none.

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023, Table 4.5.

    Examples
    --------
    >>> from sksetvalued.metrics import shot_coverage_score
    >>> y_set = [[True, True, False], [False, True, False], [False, True, True]]
    >>> shot_coverage_score([0, 2, 2], y_set, class_counts=[300, 60, 5], labels=[0, 1, 2])
    {'few': 0.5, 'medium': nan, 'many': 1.0}
    """
    y_true, columns, labels, y_set = labels_and_sets(y_true, y_set, labels)
    class_counts = check_training_counts(class_counts, labels)
    classes, coverage = _class_coverage(in_set(y_set, columns), y_true, sample_weight)
    first = dict(zip(y_true.tolist(), columns.tolist()))
    at = np.array([first[c] for c in classes.tolist()])
    group = shot_groups(at, class_counts)
    return {
        name: float(np.mean(coverage[group == i])) if (group == i).any() else float("nan")
        for i, name in enumerate(GROUPS)
    }


def _class_coverage(hits, y_true, sample_weight):
    """Return the labels that occur with a positive weight, and the coverage of each."""
    weight = check_weights(sample_weight, len(hits))
    weight = np.ones(len(hits)) if weight is None else weight
    classes, inverse = np.unique(y_true, return_inverse=True)
    total = np.bincount(inverse, weights=weight, minlength=len(classes))
    hit = np.bincount(inverse, weights=weight * hits, minlength=len(classes))
    seen = total > 0
    return classes[seen], hit[seen] / total[seen]


def _average(hits, y_true, columns, labels, average, sample_weight):
    """Reduce hits to a micro or macro average, or to one value per label."""
    check_option("average", average, AVERAGES)
    weight = check_weights(sample_weight, len(hits))
    if average == "micro":
        return float(np.average(hits, weights=weight))
    if average == "macro":
        return float(np.mean(_class_coverage(hits, y_true, weight)[1]))
    known = columns >= 0
    weight = None if weight is None else weight[known]
    per_class = np.full(len(labels), np.nan)
    if known.any() and (weight is None or weight.any()):
        at, coverage = _class_coverage(hits[known], columns[known], weight)
        per_class[at] = coverage
    return per_class

"""Metrics of set-valued predictions."""

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import UndefinedMetricWarning

from .._arrays import (
    as_array,
    as_labels,
    as_numbers,
    check_comparable,
    names_of_columns,
    of_one_type,
)
from .._average_size import average_size_threshold
from .._checks import check_in_order
from .._masks import ceil_to_dtype, row_blocks, top_k_mask
from .._sets import in_set, set_sizes, without_zeros
from .._validation import (
    check_average_k,
    check_score_array,
    check_top_k,
    check_weights,
    warn_every_class,
)

AVERAGES = ("micro", "macro", None)
#: Shot groups: fewer than 20 training samples, 20 to 100, more than 100.
SHOT_BOUNDS = (20, 100)


def top_k_accuracy_score(
    y_true, y_score, *, k=5, average="micro", labels=None, sample_weight=None
):
    """Return the share of samples whose true class is among the k highest scores.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.
    y_score : array-like of shape (n_samples, n_classes) or (n_samples,)
        Scores; one column, of the greater label, is accepted when there are two classes.
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
    names = column_names(y_score)
    y_score, binary = _two_columns(y_score, strict=True)
    y_true, columns, labels = _encode(y_true, labels, y_score.shape, names, binary)
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
    [1]_, eq. (2.32).

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.
    y_score : array-like of shape (n_samples, n_classes) or (n_samples,)
        Scores; one column, of the greater label, is accepted when there are two classes.
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
    names = column_names(y_score)
    y_score, binary = _two_columns(y_score, strict=False)
    y_true, columns, labels = _encode(y_true, labels, y_score.shape, names, binary)
    if threshold is None:
        threshold = average_k_threshold(y_score, k, sample_weight=sample_weight)
    elif (threshold := as_numbers(threshold, "threshold")).ndim or np.isnan(threshold):
        raise ValueError(f"threshold must be a number, got {threshold.tolist()!r}.")
    hits = np.zeros(len(y_true), dtype=bool)
    known = columns >= 0
    hits[known] = y_score[known, columns[known]] >= ceil_to_dtype(threshold, y_score.dtype)
    return _average(hits, y_true, columns, labels, average, sample_weight)


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
    names, y_set = column_names(y_set), _check_sets(y_set)
    y_true, columns, labels = _encode(y_true, labels, y_set.shape, names)
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
    sizes = set_sizes(_check_sets(y_set))
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
    y_set = _check_sets(y_set)
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
    names, y_set = column_names(y_set), _check_sets(y_set)
    y_true, columns, _ = _encode(y_true, labels, y_set.shape, names)
    class_counts = check_class_counts(class_counts, y_set.shape[1])
    classes, coverage = _class_coverage(in_set(y_set, columns), y_true, sample_weight)
    first = dict(zip(y_true.tolist(), columns.tolist()))
    at = np.array([first[c] for c in classes.tolist()])
    group = shot_groups(np.where(at >= 0, class_counts[at], 0))
    names = ("few", "medium", "many")
    return {
        name: float(np.mean(coverage[group == i])) if (group == i).any() else float("nan")
        for i, name in enumerate(names)
    }


def check_class_counts(class_counts, n_classes):
    """Return the training samples per class as an array of shape (n_classes,)."""
    check_in_order(class_counts, "class_counts")
    class_counts = as_numbers(class_counts, "class_counts")
    if class_counts.shape != (n_classes,):
        raise ValueError(
            f"class_counts must have shape ({n_classes},), one count per column of y_set, "
            f"got {class_counts.shape}."
        )
    wrong = ~(np.isfinite(class_counts) & (class_counts >= 0))
    if wrong.any():
        raise ValueError(
            "class_counts must be finite and >= 0, but at columns "
            f"{np.flatnonzero(wrong)[:5].tolist()} it holds {class_counts[wrong][:5].tolist()}. "
            "Give the number of training samples of each class."
        )
    return class_counts


def shot_groups(class_counts):
    """Return 0, 1 or 2 for classes with few, medium or many training samples."""
    few, many = SHOT_BOUNDS
    counts = np.asarray(class_counts)
    return (counts >= few).astype(int) + (counts > many)


def _check_sets(y_set):
    """Return sets as a bool array, dense or CSR, of shape (n_samples, n_classes)."""
    sparse = sp.issparse(y_set)
    try:
        y_set = without_zeros(sp.csr_array(y_set)) if sparse else as_array(y_set, "y_set")
    except ValueError as error:
        raise ValueError(
            f"{error}. Of lists of labels, MultiLabelBinarizer(classes=labels) of scikit-learn "
            "makes the mask that predict_set returns."
        ) from error
    if y_set.ndim != 2 or 0 in y_set.shape:
        raise ValueError(
            "y_set must be a mask of shape (n_samples, n_classes), one row per sample, got "
            f"shape {y_set.shape}."
        )
    if y_set.dtype != bool:
        if y_set.dtype == object:
            y_set = as_numbers(y_set, "y_set")
        values = y_set.data if sparse else y_set
        if values.dtype.kind not in "iuf" or not np.isin(values, (0, 1)).all():
            raise ValueError(
                "y_set must hold booleans (or 0 and 1); for scores use top_k_accuracy_score or "
                "average_k_accuracy_score."
            )
        y_set = y_set.astype(bool)
    return y_set


def _two_columns(y_score, strict):
    """Return scores with one column per class, and whether they came as one column."""
    y_score = as_array(y_score, "y_score")
    if y_score.ndim != 1:
        return check_score_array(y_score, "y_score"), False
    y_score = check_score_array(y_score[:, None], "y_score")[:, 0]
    probability = y_score.min() >= 0 and y_score.max() <= 1
    if not strict:
        other = 1 - y_score if probability else -y_score
    else:
        # scikit-learn takes the greater label when the score is above 0.5 (or 0), not at it.
        limit = y_score.dtype.type(0.5 if probability else 0)
        other = np.full_like(y_score, np.nextafter(limit, y_score.dtype.type(1)))
    return np.column_stack([other, y_score]), True


def column_names(table):
    """Return the names of the columns of a data frame as strings, none if they are numbered."""
    names = names_of_columns(table)
    names = [] if names is None else list(map(str, names))
    return [] if names == list(map(str, range(len(names)))) else names


def _check_order(names, labels):
    """Raise if the names of columns are their labels in another order."""
    labels = list(map(str, labels.tolist()))
    if names != labels and sorted(names) == sorted(labels):
        raise ValueError(
            f"the columns of the predictions are named {', '.join(names[:5])}..., the labels in "
            f"another order than {', '.join(labels[:5])}...: give labels in the order of the "
            "columns, or the columns in that of the labels, as predictions[list(labels)]."
        )


def _encode(y_true, labels, shape, names=(), binary=False):
    """Return true labels, their columns (-1: none) and the labels of the columns.

    `names` are those of the columns of a data frame, which have to be in the order of the labels
    if they are the labels.
    """
    y_true = as_labels(y_true, "y_true")
    if len(y_true) != shape[0]:
        raise ValueError(f"y_true has {len(y_true)} samples, the predictions {shape[0]}.")
    if labels is None:
        labels, columns = np.unique(y_true, return_inverse=True)
        if len(labels) != shape[1]:
            raise ValueError(
                f"y_true has {len(labels)} distinct labels, the predictions {shape[1]} columns: "
                "pass labels=, the label of each column (classes_ of the classifier)."
            )
        _check_order(names, labels)
        return y_true, columns, labels
    labels = as_labels(labels, "labels")
    check_comparable(y_true, "y_true", labels, "labels")
    if len(labels) != shape[1]:
        raise ValueError(
            f"labels has {len(labels)} entries, the predictions {shape[1]} columns; give the "
            "label of each column."
        )
    _check_order(names, labels)
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    if (ordered[1:] == ordered[:-1]).any():
        raise ValueError("labels must be distinct, but one occurs twice.")
    if binary and (order != [0, 1]).any():
        raise ValueError(
            "labels must be in order where the scores are one column, that of the greater label, "
            f"got {labels.tolist()}: pass {ordered.tolist()}, or a column for each label."
        )
    seen, ordered = of_one_type(y_true, ordered)
    at = np.minimum(np.searchsorted(ordered, seen), len(labels) - 1)
    return y_true, np.where(ordered[at] == seen, order[at], -1), labels


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
    weight = check_weights(sample_weight, len(hits))
    if average == "micro":
        return float(np.average(hits, weights=weight))
    if average not in AVERAGES:
        raise ValueError(f"average must be one of {AVERAGES}, got {average!r}.")
    if average == "macro":
        return float(np.mean(_class_coverage(hits, y_true, weight)[1]))
    known = columns >= 0
    weight = None if weight is None else weight[known]
    per_class = np.full(len(labels), np.nan)
    if known.any() and (weight is None or weight.any()):
        at, coverage = _class_coverage(hits[known], columns[known], weight)
        per_class[at] = coverage
    return per_class

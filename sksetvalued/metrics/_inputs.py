"""What metrics are given: true labels, sets or scores, and the labels of their columns."""

import numpy as np
import scipy.sparse as sp

from .._arrays import (
    KINDS,
    as_array,
    as_labels,
    as_numbers,
    check_comparable,
    label_kinds,
    names_of_columns,
    plain_labels,
    positions,
)
from .._sets import without_zeros
from .._validation import check_score_array

#: What to do where labels were given in place of a mask.
OF_LABELS = (
    "Of lists of labels, MultiLabelBinarizer(classes=labels) of scikit-learn makes the mask that "
    "predict_set returns."
)
OF_SCORES = "For scores use top_k_accuracy_score or average_k_accuracy_score."


def labels_and_sets(y_true, y_set, labels):
    """Return true labels, their columns (-1: none), the labels of the columns, and the sets."""
    names, y_set = _column_names(y_set), check_sets(y_set)
    return *_encode(y_true, labels, y_set.shape, names), y_set


def labels_and_scores(y_true, y_score, labels, strict=False):
    """Return true labels, their columns (-1: none), the labels of the columns, and the scores.

    One column of scores, of the greater label, becomes two. `strict` is whether a score then has
    to be above its limit for that label.
    """
    names = _column_names(y_score)
    y_score, binary = _two_columns(y_score, strict)
    return *_encode(y_true, labels, y_score.shape, names, binary), y_score


def scores_of_predict(model, y_score):
    """Return the scores by which a classifier takes the likeliest class.

    As `predict` of scikit-learn does, take the greater of two labels only if it scores more.
    """
    if y_score.shape[1] != 2 or hasattr(model, "_set_scores"):
        return y_score
    takes_greater = y_score[:, 1] > y_score[:, 0]
    return np.column_stack([~takes_greater, takes_greater]).astype(float)


def check_sets(y_set):
    """Return sets as a bool array, dense or CSR, of shape (n_samples, n_classes)."""
    sparse = sp.issparse(y_set)
    try:
        y_set = without_zeros(sp.csr_array(y_set)) if sparse else as_array(y_set, "y_set")
    except ValueError as error:
        if isinstance(y_set, np.ma.MaskedArray):
            raise
        raise ValueError(f"{error}. {OF_LABELS}") from error
    if y_set.ndim != 2 or 0 in y_set.shape:
        raise ValueError(
            "y_set must be a mask of shape (n_samples, n_classes), one row per sample, got "
            f"shape {y_set.shape}."
        )
    if y_set.dtype != bool:
        if y_set.dtype.kind in "OSTU" and isinstance(y_set.flat[0], str | bytes):
            raise ValueError(f"y_set must hold booleans, got strings. {OF_LABELS}")
        if y_set.dtype == object:
            y_set = as_numbers(y_set, "y_set")
        values = y_set.data if sparse else y_set
        if values.dtype.kind not in "iuf" or not np.isin(values, (0, 1)).all():
            remedy = OF_LABELS if values.dtype.kind in "iu" else OF_SCORES
            raise ValueError(f"y_set must hold booleans (or 0 and 1). {remedy}")
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


def _column_names(table):
    """Return the names of the columns of a data frame, none if they are numbered."""
    names = names_of_columns(table)
    names = [] if names is None else list(names)
    numbered = list(map(str, names)) == list(map(str, range(len(names))))
    return np.fromiter([] if numbered else names, object)


def _check_order(names, labels):
    """Raise if the names of columns are their labels, or these as strings, in another order."""
    if not len(names):
        return
    named, wanted = (list(map(str, plain_labels(of))) for of in (names, labels))
    if not label_kinds(names) == label_kinds(labels) <= set(KINDS.values()):
        names, labels = np.array(named), np.array(wanted)
    at, in_order = positions(names, labels), np.arange(len(labels))
    if np.array_equal(np.sort(at), in_order) and not np.array_equal(at, in_order):
        raise ValueError(
            f"the columns of the predictions are named {_first(named)}, the labels in another "
            f"order than {_first(wanted)}: give labels in the order of the columns, or "
            "the columns in that of the labels, as predictions[list(labels)]."
        )


def _first(names):
    """Return the first names, and dots if there are more."""
    return f"{', '.join(names[:5])}{'...' if len(names) > 5 else ''}"


def _encode(y_true, labels, shape, names, binary=False):
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
            if shape[1] == 1:
                raise ValueError(
                    f"y_true has {len(labels)} distinct labels, the predictions one column: give "
                    "a column for each label, or the scores of the greater of two as a 1-D array."
                )
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
    ordered = np.unique(labels)
    if len(ordered) < len(labels):
        raise ValueError("labels must be distinct, but one occurs twice.")
    if binary and (labels != ordered).any():
        raise ValueError(
            "labels must be in order where the scores are one column, that of the greater label, "
            f"got {labels.tolist()}: pass {ordered.tolist()}, or a column for each label."
        )
    return y_true, positions(y_true, labels), labels

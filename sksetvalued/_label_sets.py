"""Targets of multi-label learning: indicators, sparse or dense, and lists of label sets."""

import warnings

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets


def encode_label_sets(y, classes=None):
    """Return targets as a sparse indicator, with their labels and their form.

    Parameters
    ----------
    y : array-like or sparse matrix
        An indicator of shape (n_samples, n_classes), a sequence of n_samples label sets, or one
        label per sample.
    classes : ndarray of shape (n_classes,), optional
        The labels known already.

    Returns
    -------
    indicator : csr_array of float32, of shape (n_samples, n_classes)
    classes : ndarray of shape (n_classes,)
    form : {"sparse", "indicator", "sets", "single"}
    """
    if sp.issparse(y):
        return *_from_indicator(sp.csr_array(y), None, classes), "sparse"
    if holds_label_sets(y):
        return *_from_sets(list(y), classes), "sets"
    names = getattr(y, "columns", None)
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] > 1:
        return *_from_indicator(y, names, classes), "indicator"
    return *_from_labels(y, classes), "single"


def holds_label_sets(y):
    """Return whether y is a sequence of label sets rather than an array.

    It is when an element is a set, when lists differ in length, or when they hold anything but
    numbers: lists of equal length of numbers are the rows of an indicator, as in scikit-learn.
    """
    if hasattr(y, "columns") or (isinstance(y, np.ndarray) and y.dtype != object):
        return False
    if isinstance(y, np.ndarray) and y.ndim != 1:
        return False
    elements = list(y) if hasattr(y, "__iter__") and not isinstance(y, str) else []
    if any(isinstance(e, (set, frozenset)) for e in elements):
        return True
    if not elements or not all(isinstance(e, (list, tuple, np.ndarray)) for e in elements):
        return False
    if len({len(e) for e in elements}) > 1:
        return True
    return any(np.asarray(e).dtype.kind not in "biuf" for e in elements)


def _from_indicator(y, names, classes):
    values = y.data if sp.issparse(y) else y
    if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        bad = values[~np.isin(values, (0, 1))].ravel()[:5].tolist()
        raise ValueError(
            f"y must be an indicator of zeros and ones, got other values such as {bad}. Pass "
            "label sets as a list of sets, or one label per sample as a 1-D array."
        )
    indicator = sp.csr_array(y, dtype=np.float32)
    indicator.sum_duplicates()
    indicator.eliminate_zeros()
    if (indicator.data != 1).any():
        raise ValueError("y holds an entry twice; an indicator has at most one of each.")
    if classes is None:
        named = names is not None and all(isinstance(name, str) for name in names)
        return indicator, np.asarray(names) if named else np.arange(y.shape[1])
    if y.shape[1] != len(classes):
        raise ValueError(
            f"y has {y.shape[1]} columns, but there are {len(classes)} classes; an indicator "
            "has one column for each."
        )
    return indicator, classes


def _from_sets(y, classes):
    lengths = [len(set(labels)) for labels in y]
    flat = [label for labels in y for label in dict.fromkeys(labels)]
    if not flat:
        raise ValueError("y has no label anywhere: every label set is empty.")
    values = np.asarray(flat)
    if values.dtype.kind in "US" and not all(isinstance(label, (str, bytes)) for label in flat):
        raise TypeError("the labels in y must be of one type, got strings and others.")
    known = np.unique(values) if classes is None else classes
    columns = find_labels(values, known)
    rows = np.repeat(np.arange(len(y)), lengths)
    data = np.ones(len(flat), np.float32)
    return sp.csr_array((data, (rows, columns)), shape=(len(y), len(known))), known


def _from_labels(y, classes):
    if y.ndim == 2:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected: one label per sample is "
            "read from it. Please change the shape of y to (n_samples,).",
            DataConversionWarning,
            stacklevel=5,
        )
    y = column_or_1d(y)
    check_classification_targets(y)
    known = np.unique(y) if classes is None else classes
    data = np.ones(len(y), np.float32)
    columns = find_labels(y, known)
    return sp.csr_array((data, (np.arange(len(y)), columns)), (len(y), len(known))), known


def find_labels(labels, classes):
    """Return the positions of labels among the classes.

    Raises
    ------
    ValueError
        If a label is not among the classes.
    """
    unseen = np.setdiff1d(labels, classes)
    if len(unseen):
        raise ValueError(
            f"y holds labels that are not among the classes: {unseen[:10].tolist()}; known are "
            f"{classes[:10].tolist()}{'...' if len(classes) > 10 else ''}. Name all of them in "
            "`classes` at the first call of partial_fit, or fit anew."
        )
    order = np.argsort(classes)
    return order[np.searchsorted(classes, labels, sorter=order)]

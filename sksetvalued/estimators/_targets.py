"""Targets of multi-label learning: indicators, sparse or dense, and lists of label sets."""

from collections.abc import Iterable, Mapping

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.exceptions import DataConversionWarning

from .._arrays import (
    as_array,
    as_labels,
    as_numbers,
    check_discrete,
    check_kind,
    check_strings,
    exactly,
    in_numpy,
    in_unit,
    names_of_columns,
    plain_labels,
)
from .._warnings import warn_caller

#: What would be taken apart in silence for the labels of a sample.
NO_LABEL_SETS = str | bytes | Mapping

#: What holds the labels of a sample, or its row of an indicator.
ROWS = set | frozenset | list | tuple | np.ndarray


def encode_label_sets(y, classes=None, given=None, extend=False, sets=False):
    """Return targets as a sparse indicator, with their labels and their form.

    Parameters
    ----------
    y : array-like or sparse matrix
        An indicator of shape (n_samples, n_classes), a sequence of n_samples label sets, or one
        label per sample.
    classes : ndarray of shape (n_classes,), optional
        The labels known already.
    given : ndarray of shape (n_classes,), optional
        The labels that come with `y`, in the order of its columns if they have no names.
    extend : bool, default=False
        Whether label sets may hold other labels than the known ones, each of which gets a column
        after theirs.
    sets : bool, default=False
        Whether lists of numbers of one length are label sets too, unless they can be the rows of
        an indicator of the known labels; of the labels 0 and 1 both are possible, and sets
        likelier, where no row holds one twice.

    Returns
    -------
    indicator : csr_array of float32, of shape (n_samples, n_classes)
    classes : ndarray of shape (n_classes,)
        The known ones, or else those given, in their order, or else those in `y`, sorted; of one
        label per sample they are always sorted.
    form : {"sparse", "indicator", "sets", "single"}
    """
    if sp.issparse(y):
        return *_arrange(_from_indicator(sp.csr_array(y)), None, classes, given), "sparse"
    y = _with_plain_rows(y)
    are_sets = _are_label_sets(y) or (sets and not _may_be_rows(y, classes))
    if not are_sets:
        check_strings(y, "y")
        names = names_of_columns(y)
        y = as_array(y, "y")
    if not are_sets and y.ndim == 2 and y.shape[1] > 1:
        if names is not None:
            names = as_label_names(names, "the columns of y", "; y.to_numpy() has no names")
        return *_arrange(_from_indicator(y), names, classes, given), "indicator"
    if classes is None and given is not None:
        first = np.unique(given, return_index=True)[1]
        classes = given[np.sort(first) if are_sets else first]
    if are_sets:
        return *_from_sets(y, classes, extend), "sets"
    return *_from_labels(y, classes, extend), "single"


def as_label_names(labels, what, remedy=""):
    """Return labels as a 1-D array; `what` they are is told by the errors."""
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise TypeError(f"{what} must be a sequence of labels, got {labels!r}{remedy}.")
    if not isinstance(labels, np.ndarray) or labels.dtype == object:
        labels = list(labels)
    values = exactly(labels, np.asarray(labels))
    if values.ndim != 1:
        raise TypeError(
            f"{what} must be single labels, got an array of shape {values.shape}{remedy}."
        )
    if values.dtype.kind in "US" and not all(isinstance(label, str | bytes) for label in labels):
        raise TypeError(f"{what} must be of one type, got strings and others{remedy}.")
    check_kind(values, what)
    return in_numpy(values, what)


def has_several_labels(y):
    """Return whether targets are an indicator or label sets, not one label per sample."""
    if sp.issparse(y):
        return True
    y = _with_plain_rows(y)
    if _are_label_sets(y):
        return True
    shape = np.shape(y[:1] if isinstance(y, list | tuple) else y)
    return len(shape) == 2 and shape[1] > 1


def _with_plain_rows(y):
    """Return y as a list of collections where it is a sequence of such, else as it is.

    Columns of polars and pyarrow yield elements of their own, but have lists.
    """
    if isinstance(y, str | torch.Tensor) or hasattr(y, "columns") or not hasattr(y, "__iter__"):
        return y
    if isinstance(y, np.ndarray) and (y.dtype != object or y.ndim != 1):
        return y
    if hasattr(y, "to_list"):
        elements = y.to_list()
    else:
        elements = y.to_pylist() if hasattr(y, "to_pylist") else list(y)
    rows = list(map(_plain_row, elements))
    return rows if any(isinstance(row, ROWS) for row in rows) else y


def _plain_row(element):
    """Return a tensor as an array, and a column of a frame, as of `unique`, as a list."""
    if torch.is_tensor(element) and element.ndim:
        return element.numpy(force=True)
    if isinstance(element, np.ndarray) or getattr(element, "ndim", 0) != 1:
        return element
    return element.tolist()


def _are_label_sets(y):
    """Return whether y is a list of label sets.

    It is when an element is a set, when lists differ in length, or when they hold anything but
    numbers: lists of equal length of numbers are the rows of an indicator, as in scikit-learn.
    """
    if not isinstance(y, list):
        return False
    if any(isinstance(e, (set, frozenset)) for e in y):
        return True
    of_rows = [isinstance(e, (list, tuple, np.ndarray)) for e in y]
    if not all(of_rows) or not y:
        return any(of_rows)  # those that miss a row are named
    lengths = {len(e) for e in y}
    return (
        lengths != {max(lengths)}
        or lengths == {0}
        or any(np.asarray(e).dtype.kind not in "biuf" for e in y)
    )


def _may_be_rows(y, classes):
    """Return whether y is no list, or one of rows of zeros and ones, a column for each class.

    Rows of two classes that are named 0 and 1 may be sets of them, too, unless one holds a label
    twice.
    """
    if not (isinstance(y, list) and all(isinstance(e, list | tuple | np.ndarray) for e in y)):
        return True
    may_be = all(len(e) == len(classes) and np.isin(e, (0, 1)).all() for e in y)
    named_alike = len(classes) == 2 and np.isin(classes, (0, 1)).all()
    return may_be and not (named_alike and all(e[0] != e[1] for e in y))


def _from_indicator(y):
    if y.dtype == object:  # as that of nullable columns
        y = as_numbers(y, "an indicator y")
    values = y.data if sp.issparse(y) else y
    others = (values != 0) & (values != 1)
    if values.dtype.kind not in "biuf" or others.any():
        bad = np.unique(values[others])[:5].tolist()
        raise ValueError(
            f"y must be an indicator of zeros and ones, got other values such as {bad}. Pass "
            "label sets as a list of sets, or one label per sample as a 1-D array."
        )
    indicator = sp.csr_array(y, dtype=np.float32, copy=True)  # what follows changes it
    indicator.sum_duplicates()
    indicator.eliminate_zeros()
    if (indicator.data != 1).any():
        raise ValueError("y holds an entry twice; an indicator has at most one of each.")
    return indicator


def _arrange(indicator, names, classes, given):
    """Return an indicator with its columns in the order of the classes, and these."""
    for labels, what in ((names, "the columns of y"), (given, "classes")):
        if labels is not None and len(set(labels.tolist())) < len(labels):
            values, counts = np.unique(labels, return_counts=True)
            raise ValueError(
                f"{what} must be distinct to name the columns of an indicator, but hold twice "
                f"or more: {values[counts > 1][:10].tolist()}."
            )
    own = given if names is None else names
    if classes is None:
        classes = own if given is None else given
    if classes is None:
        return indicator, np.arange(indicator.shape[1])
    if names is not None:
        _check_names(names, classes)
    elif indicator.shape[1] != len(classes):
        raise ValueError(
            f"y has {indicator.shape[1]} columns, but there are {len(classes)} classes; an "
            "indicator has one column for each."
        )
    if own is None or own.tolist() == classes.tolist():
        return indicator, classes
    return indicator[:, find_labels(classes, own)], classes


def _check_names(names, classes):
    known, named = set(classes.tolist()), set(names.tolist())
    if named != known:
        unknown = [name for name in names.tolist() if name not in known]
        missing = [label for label in classes.tolist() if label not in named]
        differing = [f"no classes are {unknown[:10]}"] if unknown else []
        differing += [f"no column is {missing[:10]}"] if missing else []
        raise ValueError(
            "the columns of y have other names than the classes: "
            f"{' and '.join(differing)}. Rename the columns, or pass y.to_numpy() if they are "
            "in the order of the classes."
        )


def _from_sets(y, classes, extend):
    for i, labels in enumerate(y):
        if isinstance(labels, NO_LABEL_SETS) or not isinstance(labels, Iterable):
            raise TypeError(
                f"y holds label sets, but y[{i}] is {labels!r}: give each sample a set or a list "
                "of labels, such as {'a'} or, where it has none, set()."
            )
    try:
        lengths = [len(set(labels)) for labels in y]
    except TypeError as error:
        raise TypeError(
            f"y holds label sets, some of which hold what is no label: {error}."
        ) from error
    flat = [label for labels in y for label in dict.fromkeys(labels)]
    if not flat and classes is None:
        raise ValueError("y has no label anywhere: every label set is empty.")
    values = as_label_names(flat, "the labels in y")
    known = np.unique(values) if classes is None else classes
    rows = np.repeat(np.arange(len(y)), lengths)
    return _as_indicator(rows, find_labels(values, known, extend), len(y), len(known)), known


def _from_labels(y, classes, extend):
    if y.ndim == 2:
        warn_caller(
            "A column-vector y was passed when a 1d array was expected: one label per sample is "
            "read from it. Please change the shape of y to (n_samples,).",
            DataConversionWarning,
        )
    y = as_labels(y, "y")
    check_discrete(y)
    known = np.unique(y) if classes is None else classes
    rows = np.arange(len(y))
    return _as_indicator(rows, find_labels(y, known, extend), len(y), len(known)), known


def _as_indicator(rows, columns, n_samples, n_classes):
    """Return the indicator of ones at the places, with as many columns as they need."""
    shape = n_samples, max(n_classes, columns.max(initial=-1) + 1)
    return sp.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=shape)


def find_labels(labels, classes, extend=False):
    """Return the positions of labels among the classes.

    With `extend`, other labels get the positions after the last class.

    Raises
    ------
    ValueError
        If a label is not among the classes, unless `extend`.
    """
    given, known = labels, classes
    if {labels.dtype.kind, classes.dtype.kind} in ({"M"}, {"m"}):  # which may differ in the unit
        dtype = np.result_type(labels, classes)
        given, known = in_unit(labels, dtype), in_unit(classes, dtype)
    index = {label: position for position, label in enumerate(known.tolist())}
    positions = np.array([index.setdefault(x, len(index)) for x in given.tolist()], dtype=int)
    unseen = np.unique(labels[positions >= len(classes)])
    if len(unseen) and not extend:
        raise ValueError(
            f"y holds labels that are not among the classes: {plain_labels(unseen[:10])}; known "
            f"are {plain_labels(classes[:10])}{'...' if len(classes) > 10 else ''}. Name all of "
            "them in `classes` at the first call of partial_fit, or fit anew."
        )
    return positions

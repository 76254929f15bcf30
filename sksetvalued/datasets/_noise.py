"""Label noise inside groups of classes."""

import numpy as np
from sklearn.utils import check_random_state

from .._arrays import as_array, as_labels, check_kind, in_unit, label_kinds, positions
from .._checks import check_in_order, check_real


def corrupt_labels(y, groups, p, *, random_state=None):
    """Draw some labels anew, uniformly within the group of their class.

    With probability `p`, independently, a label is replaced by a uniform draw from the classes
    of its group, the old one included: in groups of 5 a share 0.8 p of the labels changes. A
    perfect top-5 classifier still reaches a coverage of 1 ([1]_, section 5.1; [2]_, section
    4.4).

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    groups : array-like of shape (n_classes,) or dict
        Group of each class: by position when the labels are 0 .. n_classes - 1, or by label.
    p : float in [0, 1]
        Probability that a label is drawn anew.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    y_noisy : ndarray of shape (n_samples,)
        A new array of the dtype of `y`, or of a wider one that the labels of `groups` need.

    Raises
    ------
    ValueError
        A probability outside [0, 1], labels of several kinds or without a group, no groups, or
        labels of `y` and of `groups` that no type holds together.
    TypeError
        A probability that is no number.

    References
    ----------
    .. [1] Berrada, Zisserman, Kumar (2018). Smooth loss functions for deep top-k
       classification. ICLR.
    .. [2] Garcin, Servajean, Joly, Salmon (2022). Stochastic smoothing of the top-K calibrated
       hinge loss for deep imbalanced classification. ICML.

    Examples
    --------
    >>> from sksetvalued.datasets import corrupt_labels
    >>> y = ["oak", "elm", "rose", "oak"]
    >>> groups = {"oak": "tree", "elm": "tree", "rose": "flower"}
    >>> corrupt_labels(y, groups, 1.0, random_state=0).tolist()
    ['oak', 'elm', 'rose', 'elm']
    """
    check_real("p", p, "[0, 1]", "it is a probability")
    # Nullable types of pandas would become floats.
    y = as_labels(y.to_numpy() if hasattr(y, "iloc") else y, "y")
    classes, group_of_class = _classes_and_groups(groups)
    if not label_kinds(y) <= label_kinds(classes):
        raise ValueError(
            f"y holds labels without a group, such as {y[0]!r}: groups are those of {classes[:5]}."
        )
    code = positions(y, classes)
    if (code < 0).any():
        raise ValueError(f"y holds labels without a group: {np.unique(y[code < 0])[:5]}.")
    rng = check_random_state(random_state)
    drawn = np.flatnonzero(rng.random_sample(len(y)) < p)
    new = _draw_within(group_of_class, group_of_class[code[drawn]], rng)
    dtype = _type_of_both(y, classes)
    noisy = y.astype(dtype)
    noisy[drawn] = classes.astype(dtype)[new]
    return noisy


def _type_of_both(y, classes):
    """Return the dtype of `y`, or a wider one, that holds the labels and all classes."""
    for dtype in (y.dtype, np.result_type(y, classes)):
        if all(np.array_equal(in_unit(in_unit(x, dtype), x.dtype), x) for x in (y, classes)):
            return dtype
    raise ValueError(
        f"groups holds labels, from {classes.min()} to {classes.max()}, that no type holds beside "
        f"those of y, of dtype {y.dtype}: give both in the same type or unit."
    )


def _classes_and_groups(groups):
    """Return the labels that have a group, and the code of the group of each."""
    by_label = isinstance(groups, dict)
    check_in_order(groups, "groups")
    names = as_array(list(groups.values()) if by_label else groups, "groups")
    if names.ndim != 1 or not len(names):
        raise ValueError(
            "groups must be a dict, or hold one group, a number or string, for each class, got "
            f"{groups!r}."
        )
    check_kind(names, "groups")
    classes = as_labels(list(groups), "groups") if by_label else np.arange(len(names))
    return classes, np.unique(names, return_inverse=True)[1]


def _draw_within(group_of_class, wanted, rng):
    """Return a uniform class of each wanted group."""
    by_group = np.argsort(group_of_class, kind="stable")
    size = np.bincount(group_of_class)
    start = np.cumsum(size) - size
    rank = np.floor(rng.random_sample(len(wanted)) * size[wanted]).astype(int)
    return by_group[start[wanted] + rank]

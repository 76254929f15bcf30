"""Synthetic problems whose conditional probabilities are known."""

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import softmax
from sklearn.utils import check_random_state

from .._arrays import as_numbers
from .._checks import check_in_order, check_integer, check_real


def make_ambiguous_classification(
    n_samples=1000,
    n_features=20,
    n_classes=20,
    *,
    group_size=5,
    ambiguity=1.0,
    group_separation=4.0,
    class_weights=None,
    random_state=None,
):
    r"""Draw samples of classes that come in groups hard to tell apart inside.

    Class :math:`l` is a standard normal around a centre :math:`\mu_l`, with a share
    :math:`w_l` of the samples. The centres of a group lie around the centre of the group, so
    that groups are easy to tell and the classes of a group are not. By Bayes' rule the
    probability of class :math:`l` at :math:`x` is proportional to
    :math:`w_l \exp(-\|x - \mu_l\|^2 / 2)`: the best set of any size is known for each sample.

    Parameters
    ----------
    n_samples : int, default=1000
    n_features : int, default=20
    n_classes : int, default=20
    group_size : int, default=5
        Classes in a group; the last group is smaller when it does not divide `n_classes`.
    ambiguity : float >= 1e-300, default=1.0
        Inverse of the distance between the centres of a group, in standard deviations of a
        class: the larger, the more the classes of a group overlap.
    group_separation : float >= 0, default=4.0
        Distance from the centres of the groups to the origin.
    class_weights : array-like of shape (n_classes,), optional
        Shares of the classes, normalised to sum to 1; equal by default. Counts of a long tail
        will do.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
        Drawn from `p`, row by row.
    p : ndarray of shape (n_samples, n_classes)
        True probabilities of the classes given the sample.
    groups : ndarray of shape (n_classes,)
        Group of each class.

    Raises
    ------
    ValueError
        A size below 1, an ambiguity below 1e-300, a separation below 0, or weights that
        are not shares.
    TypeError
        Sizes that are no integers, or others that are no numbers.

    Examples
    --------
    The coverage of the best sets of 3 classes, which no classifier can pass:

    >>> import numpy as np
    >>> from sksetvalued.datasets import make_ambiguous_classification
    >>> X, y, p, groups = make_ambiguous_classification(n_classes=10, random_state=0)
    >>> best = np.sort(p, axis=1)[:, -3:].sum(axis=1).mean()
    >>> bool(0.5 < best < 1)
    True
    """
    for name, value in [
        ("n_samples", n_samples),
        ("n_features", n_features),
        ("n_classes", n_classes),
        ("group_size", group_size),
    ]:
        check_integer(name, value, 1)
    check_real("ambiguity", ambiguity, "[1e-300, inf]")
    check_real("group_separation", group_separation, "[0, inf)")
    weights = _class_shares(class_weights, n_classes)
    rng = check_random_state(random_state)
    groups = np.arange(n_classes) // group_size
    centers = _directions(rng, groups[-1] + 1, n_features)[groups] * group_separation
    # Two independent unit directions are sqrt(2) apart.
    centers += _directions(rng, n_classes, n_features) / (np.sqrt(2) * ambiguity)
    origin = rng.choice(n_classes, size=n_samples, p=weights)
    X = centers[origin] + rng.standard_normal((n_samples, n_features))
    with np.errstate(divide="ignore"):
        p = softmax(np.log(weights) - cdist(X, centers, "sqeuclidean") / 2, axis=1)
    # `origin` given X follows p: it is a draw from it, so that (X, y) is the mixture itself.
    return X, origin, p, groups


def _class_shares(class_weights, n_classes):
    if class_weights is None:
        return np.full(n_classes, 1 / n_classes)
    check_in_order(class_weights, "class_weights")
    weights = as_numbers(class_weights, "class_weights")
    if weights.shape != (n_classes,) or not np.all(weights >= 0) or not 0 < weights.sum() < np.inf:
        raise ValueError(
            f"class_weights must hold {n_classes} non-negative numbers, not all zero, got "
            f"{class_weights!r}."
        )
    return weights / weights.sum()


def _directions(rng, n, n_features):
    """Return `n` uniform points of the unit sphere, of shape (n, n_features)."""
    points = rng.standard_normal((n, n_features))
    return points / np.linalg.norm(points, axis=1, keepdims=True)

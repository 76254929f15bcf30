"""Choices of samples class by class: long tails and splits."""

import numpy as np
from sklearn.utils import check_random_state

from .._arrays import as_array, as_labels, check_comparable, plain_labels, positions
from .._checks import check_in_order, check_real


def long_tail_indices(y, *, counts=None, imbalance=None, random_state=None):
    r"""Choose samples so that the classes follow a long tail.

    Give the number of samples of each class, or let it decay geometrically from the largest
    class to the smallest: the class of rank :math:`r` among :math:`L` gets
    :math:`n_{\max} \, \rho^{-r / (L - 1)}` samples for an imbalance :math:`\rho`, as in
    CIFAR-100-LT ([1]_, section 4).

    Parameters
    ----------
    y : array-like of shape (n_samples,)
    counts : array-like of shape (n_classes,) or dict, optional
        Number of samples wanted from each class, in the order of the sorted labels or by
        label. A class with fewer samples than wanted is taken whole; so real counts may be
        given as they are.
    imbalance : float >= 1, optional
        Ratio of the largest class to the smallest. Classes are ranked in sorted order; every
        class keeps one sample at least.
    random_state : int, RandomState instance or None, default=None
        Which samples of a class are kept.

    Returns
    -------
    indices : ndarray of int
        Positions in `y`, increasing.

    Raises
    ------
    ValueError
        Both or neither of `counts` and `imbalance`, or values out of range.
    TypeError
        An imbalance that is no number.

    References
    ----------
    .. [1] Cao, Wei, Gaidon, Arechiga, Ma (2019). Learning imbalanced datasets with
       label-distribution-aware margin loss. NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from sksetvalued.datasets import long_tail_indices
    >>> y = np.repeat([0, 1, 2], 100)
    >>> np.bincount(y[long_tail_indices(y, imbalance=100, random_state=0)]).tolist()
    [100, 10, 1]
    >>> np.bincount(y[long_tail_indices(y, counts=[5, 500, 0])]).tolist()
    [5, 100]
    """
    y = as_labels(y, "y")
    classes, code, available = np.unique(y, return_inverse=True, return_counts=True)
    if (counts is None) == (imbalance is None):
        raise ValueError(
            f"exactly one of counts and imbalance must be given, got counts={counts!r} and "
            f"imbalance={imbalance!r}."
        )
    if counts is None:
        wanted = _geometric_counts(imbalance, available)
    else:
        wanted = _checked_counts(counts, classes)
    rank = _random_ranks(code, available, check_random_state(random_state))
    return np.flatnonzero(rank < wanted[code])


def _geometric_counts(imbalance, available):
    check_real("imbalance", imbalance, "[1, inf]")
    exponent = np.arange(len(available)) / max(len(available) - 1, 1)
    # The tolerance keeps exact powers, as 100 * 100 ** -0.5, from falling below themselves.
    wanted = np.floor(available.max(initial=0) * float(imbalance) ** -exponent + 1e-9)
    return np.maximum(wanted.astype(int), 1)


def _checked_counts(counts, classes):
    if isinstance(counts, dict):
        places = np.full(len(classes), -1)
        if counts:
            labels = as_labels(list(counts), "counts")
            check_comparable(labels, "counts", classes, "y")
            places = positions(classes, labels)
        missing = plain_labels(classes[places < 0])
        if len(missing):
            raise ValueError(
                f"counts lacks the classes {missing[:5]}{'...' if len(missing) > 5 else ''}."
            )
        values = list(counts.values())
        counts = [values[place] for place in places]
    check_in_order(counts, "counts")
    wanted = as_array(counts, "counts")
    if wanted.shape != classes.shape or wanted.dtype.kind not in "iu" or (wanted < 0).any():
        raise ValueError(
            f"counts must hold a non-negative integer for each of the {len(classes)} classes of "
            f"y, got {counts!r}."
        )
    return wanted


def _random_ranks(code, available, rng):
    """Return the position of each sample in a random order of its own class."""
    order = rng.permutation(len(code))
    order = order[np.argsort(code[order], kind="stable")]
    start = np.cumsum(available) - available
    rank = np.empty(len(code), dtype=int)
    rank[order] = np.arange(len(code)) - start[code[order]]
    return rank


def train_val_test_indices(y, *, percent=(80, 10, 10), random_state=None):
    r"""Split samples class by class into training, validation and test sets.

    A class of :math:`n \ge 4` samples gives :math:`\lceil n \, q / 100 \rceil` of them to
    validation and to test, for the percentages :math:`q` of each, in integer arithmetic, and
    the rest to training. Where that is more than there are, or leaves none to a training whose
    percentage is not zero, the larger of the two has fewer. It is the rule of Pl@ntNet-300K
    ([1]_, section 3.2.2). Smaller classes train only: nothing can be said about them by testing,
    and without training samples they could not be predicted.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
    percent : tuple of three int, default=(80, 10, 10)
        Shares of training, validation and test, with sum 100.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    train, val, test : ndarrays of int
        Positions in `y`, increasing, without overlap, covering all samples.

    Raises
    ------
    ValueError
        Percentages that are not three non-negative integers with sum 100.

    References
    ----------
    .. [1] Garcin (2023). Loss functions for set-valued classification. PhD thesis, Université
       de Montpellier.

    Examples
    --------
    >>> import numpy as np
    >>> from sksetvalued.datasets import train_val_test_indices
    >>> y = np.repeat(["rare", "small", "large"], [3, 5, 100])
    >>> for part in train_val_test_indices(y, random_state=0):
    ...     names, n = np.unique(y[part], return_counts=True)
    ...     print(dict(zip(names.tolist(), n.tolist())))
    {'large': 80, 'rare': 3, 'small': 3}
    {'large': 10, 'small': 1}
    {'large': 10, 'small': 1}
    """
    shares = as_array(percent, "percent")
    wrong = shares.shape != (3,) or shares.dtype.kind not in "iu"
    if wrong or (shares < 0).any() or shares.sum() != 100:
        raise ValueError(
            f"percent must hold three non-negative integers with sum 100, got {percent!r}."
        )
    y = as_labels(y, "y")
    _, code, available = np.unique(y, return_inverse=True, return_counts=True)
    n_val, n_test = _held_out_counts(available, shares)
    rank = _random_ranks(code, available, check_random_state(random_state))
    val = rank < n_val[code]
    test = ~val & (rank < (n_val + n_test)[code])
    return tuple(np.flatnonzero(part) for part in (~val & ~test, val, test))


def _held_out_counts(available, percent):
    """Return how many samples of each class validate and test, by rounding up."""
    n_val, n_test = (
        np.where(available >= 4, -(-available * share // 100), 0) for share in percent[1:]
    )
    # Rounding up takes at most two samples too many from training, which keeps one.
    for _ in range(2):
        excess = n_val + n_test > available - (percent[0] > 0)
        from_val = excess & (n_val >= n_test)
        n_val, n_test = n_val - from_val, n_test - (excess & ~from_val)
    return n_val, n_test

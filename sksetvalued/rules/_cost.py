"""Scores that weigh probabilities against a cost of the size of a set."""

import numpy as np

from .._arrays import as_numbers
from .._validation import check_score_array


def cost_scores(y_score, cost):
    r"""Return scores whose thresholded sets pay for their size by any increasing cost.

    For every threshold t, the classes that score at least t are the set of greatest

    .. math:: P(Y \in \Gamma) - t \, g(|\Gamma|),

    g being the cost. :class:`AverageError` on these scores so promises its coverage by sets of
    small cost, and :class:`AverageK` makes the sets of small cost that hold k classes on average.
    With the cost :math:`g(n) = n` they are the probabilities themselves; a cost that jumps from
    one class to two, ``1{n > 1} + a * n``, makes more sets of a single class [1]_.

    Parameters
    ----------
    y_score : array-like of shape (n_samples, n_classes)
        Probabilities.
    cost : array-like of shape (n_classes,)
        Cost g of a set of 1, 2, ..., n_classes classes, positive and increasing; that of the
        empty set is 0.

    Returns
    -------
    scores : ndarray of shape (n_samples, n_classes)
        In the order of the probabilities in each row; classes that only pay together tie.

    Notes
    -----
    With classes in falling order, the scores are the slopes of the least concave function above
    the points (g(n), sum of the n largest probabilities): an isotonic regression of each row, in
    time proportional to the number of classes once they are sorted. Choose a cost on other data
    than the threshold.

    References
    ----------
    .. [1] The idea of "SOCOP", arXiv:2509.24095, for sets of one class; derived here for any
       increasing cost.

    Examples
    --------
    >>> import numpy as np
    >>> from sksetvalued.rules import cost_scores
    >>> size = np.arange(1, 4)
    >>> cost_scores([[0.5, 0.3, 0.2]], size)
    array([[0.5, 0.3, 0.2]])
    >>> cost_scores([[0.5, 0.3, 0.2]], (size > 1) + size)
    array([[0.5       , 0.16666667, 0.16666667]])
    """
    p = check_score_array(y_score)
    steps = cost_steps(cost, p.shape[1])
    if p.min() < 0:
        raise ValueError(
            "y_score must hold probabilities, but has negative entries. Pass predict_proba's "
            "output, or the exponential of log-probabilities."
        )
    order = np.argsort(p, axis=1, kind="stable")[:, ::-1]
    slopes = falling_slopes(np.take_along_axis(p, order, axis=1), steps)
    scores = np.empty(p.shape)
    np.put_along_axis(scores, order, slopes, axis=1)
    return scores


def cost_steps(cost, n_classes):
    """Return what each further class costs.

    Raises
    ------
    ValueError
        If the cost has not one finite entry for each number of classes, or does not increase.
    """
    cost = as_numbers(cost, "cost")
    if cost.shape != (n_classes,):
        raise ValueError(
            f"cost must have shape ({n_classes},), the cost of 1 to {n_classes} classes, got "
            f"{cost.shape}."
        )
    with np.errstate(invalid="ignore"):
        steps = np.diff(cost, prepend=0.0)
    wrong = ~(np.isfinite(cost) & (steps > 0))
    if wrong.any():
        at = np.flatnonzero(wrong)[:5] + 1
        raise ValueError(
            "cost must be finite, positive and increasing, but is not at sizes "
            f"{at.tolist()}. Add a small multiple of np.arange(1, {n_classes + 1})."
        )
    return steps


def falling_slopes(gains, steps):
    """Return the slopes of the least concave functions above piecewise linear ones.

    Neighbours are pooled until slopes fall, in all rows at once.

    Parameters
    ----------
    gains : ndarray of shape (n_samples, n_classes)
    steps : ndarray of shape (n_classes,)
        Lengths of the pieces.
    """
    n, n_classes = gains.shape
    gain, length, count = np.zeros((3, n, n_classes))
    top, every = np.full(n, -1), np.arange(n)
    for j in range(n_classes):
        top += 1
        gain[every, top], length[every, top], count[every, top] = gains[:, j], steps[j], 1
        rows = every[top > 0]
        while rows.size:
            last = top[rows]
            before = last - 1
            steeper = gain[rows, last] * length[rows, before]
            steeper = steeper > gain[rows, before] * length[rows, last]
            rows, last, before = rows[steeper], last[steeper], before[steeper]
            for part in (gain, length, count):
                part[rows, before] += part[rows, last]
            top[rows] = before
            rows = rows[before > 0]
    pieces = np.arange(n_classes) <= top[:, None]
    slopes = gain[pieces] / length[pieces]
    slopes = np.repeat(slopes, count[pieces].astype(int)).reshape(n, n_classes)
    # Quotients are rounded, the products that compared them were in another way.
    return np.minimum.accumulate(slopes, axis=1)

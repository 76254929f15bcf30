"""Margins that grow as classes get rare."""

import torch

from .._checks import check_class_counts, check_number

__all__ = ["class_margins"]


def class_margins(class_counts, max_margin):
    r"""Compute the margins of classes from their numbers of training samples.

    The rarest class gets `max_margin` and the others

    .. math:: m_y = m_{\max} \left( \frac{\min_j n_j}{n_y} \right)^{1/4} .

    Parameters
    ----------
    class_counts : array-like of shape (n_classes,)
        Numbers of training samples, all positive.
    max_margin : float
        Margin of the rarest class.

    Returns
    -------
    Tensor of shape (n_classes,)
        In the floating-point type of `class_counts`; the default one when they are integers.

    Raises
    ------
    ValueError
        If a count is not positive; the message says which class.

    References
    ----------
    Cao et al., "Learning imbalanced datasets with label-distribution-aware margin loss",
    NeurIPS 2019, eq. (13). Garcin et al., "Stochastic smoothing of the top-K calibrated hinge
    loss for deep imbalanced classification", ICML 2022, Section 3.4.

    Examples
    --------
    >>> from sksetvalued.operators import class_margins
    >>> class_margins([16, 1, 81], max_margin=0.6)
    tensor([0.3000, 0.6000, 0.2000])
    """
    check_number("max_margin", max_margin, 0, inclusive=True)
    counts = check_class_counts(class_counts)
    if not counts.is_floating_point():
        counts = counts.to(torch.get_default_dtype())
    return margins_of(counts, counts.min(), max_margin)


def margins_of(counts, fewest, max_margin):
    """Return the margins of classes with so many training samples, `fewest` in the rarest."""
    return max_margin * (fewest / counts) ** 0.25

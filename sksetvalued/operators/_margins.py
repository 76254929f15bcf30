"""Margins that grow as classes get rare."""

import numpy as np
import torch

from ._checks import check_in_order, check_number

__all__ = ["class_margins"]


def check_class_counts(class_counts):
    """Return the counts of the classes as a tensor; raise unless all are finite and positive."""
    check_in_order(class_counts, "class_counts")
    try:
        if hasattr(class_counts, "__array__") and not isinstance(class_counts, torch.Tensor):
            class_counts = _plain_array(class_counts)
        counts = torch.as_tensor(class_counts)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"class_counts must be a vector of numbers, got {class_counts!r:.50}: {error}."
        ) from error
    if counts.is_complex():
        raise TypeError("class_counts must be real numbers, got complex ones.")
    if counts.ndim != 1 or counts.numel() == 0:
        raise ValueError(
            "class_counts must be a vector with one count per class, "
            f"got shape {tuple(counts.shape)}."
        )
    if counts.device.type != "meta":
        wrong = torch.nonzero(~((counts > 0) & torch.isfinite(counts))).flatten().tolist()
        if wrong:
            raise ValueError(
                f"class_counts must be positive and finite, but classes {wrong} have counts "
                f"{counts[wrong].tolist()}; drop these classes or give them samples."
            )
    return counts


def counts_of_loss(class_counts):
    """Return a copy of the counts, checked: whole ones as integers, which `half` leaves alone."""
    counts = check_class_counts(class_counts).detach().clone()
    whole = counts.is_floating_point() and not counts.is_meta and bool((counts % 1 == 0).all())
    return counts.long() if whole else counts


def _plain_array(counts):
    """Return a copy of an array of a type, and in an order, that torch takes."""
    counts = np.array(counts, order="C")
    others = {"u": np.int64, "O": np.float64}
    return counts.astype(others.get(counts.dtype.kind, counts.dtype.newbyteorder("=")))


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

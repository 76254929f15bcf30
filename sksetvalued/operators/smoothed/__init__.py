"""The smoothed hinge, the symmetric polynomials in it, and the inclusion probabilities."""

import torch

from .._checks import check_k, check_scores
from .._dispatch import choose
from .._precision import widest, without_autocast
from . import cpu, reference

__all__ = ["log_elementary_symmetric_polynomials", "top_k_marginals"]


def log_elementary_symmetric_polynomials(scores, k):
    r"""Compute the logarithms of the elementary symmetric polynomials of exp(scores).

    .. math:: \log \sigma_i(e^s) = \log \sum_{A \subset [L], |A| = i} e^{\sum_{j \in A} s_j},
        \qquad i = 0, \dots, k,

    by products of polynomials in pairs, in O(k L) operations and without overflow.

    Parameters
    ----------
    scores : Tensor of shape (..., n_classes)
        Those below -1e30 count as -inf, a weight of zero, and finite ones above 1e30 as that; a
        row with inf or NaN is NaN.
    k : int, in [1, n_classes]
        Highest degree.

    Returns
    -------
    Tensor of shape (..., k + 1)

    References
    ----------
    Berrada et al., "Smooth loss functions for deep top-k classification", ICLR 2018, Section 4
    and Algorithm 1.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.operators import log_elementary_symmetric_polynomials
    >>> log_elementary_symmetric_polynomials(torch.tensor([1.0, 2.0, 3.0]).log(), k=3).exp()
    tensor([ 1.0000,  6.0000, 11.0000,  6.0000])
    """
    check_scores(scores)
    k = check_k(k, scores.shape[-1])
    with without_autocast(scores.device):
        return reference.log_sums(scores, k).to(scores.dtype)


def top_k_marginals(scores, k):
    r"""Compute the probabilities that classes belong to a random set of k classes.

    Sets A of k classes are drawn with probability proportional to
    :math:`\exp \sum_{j \in A} s_j`; the probability that class i is drawn is

    .. math:: \pi_i = \frac{\partial \log \sigma_k(e^s)}{\partial s_i}, \qquad
        \sum_i \pi_i = k .

    Divided by k they are what [1]_, eq. (64)-(66), averages over crops at test time (with
    :math:`\sigma_k` where it prints :math:`\sigma_i`).

    Parameters
    ----------
    scores : Tensor of shape (..., n_classes)
        For a network trained with the smoothed hinge loss, its scores divided by ``k * tau``.
    k : int, in [1, n_classes]

    Returns
    -------
    Tensor of shape (..., n_classes)
        Entries in [0, 1] that sum to k; the softmax when k is 1. A score of -inf counts as one
        far below all others.

    Raises
    ------
    NotImplementedError
        In a program of ``torch.export``.

    References
    ----------
    .. [1] Berrada et al., "Smooth loss functions for deep top-k classification", ICLR 2018,
       Appendix C.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.operators import top_k_marginals
    >>> top_k_marginals(torch.tensor([1.0, 2.0, 3.0]).log(), k=2)
    tensor([0.4545, 0.7273, 0.8182])
    """
    check_scores(scores)
    k = check_k(k, scores.shape[-1])
    if torch.compiler.is_exporting():  # torch would fail, and could not export anything after it
        raise NotImplementedError(
            "top_k_marginals is a derivative, which torch.export cannot take inside a program: "
            "export the scores, and compute it from them."
        )
    # The logarithms may be large, and rounding them would cost the probabilities digits.
    if scores.requires_grad and not torch.is_grad_enabled():
        scores = scores.detach()
    with torch.inference_mode(False), without_autocast(scores.device):
        # What was computed in inference mode can be differentiated as a copy only.
        wide = scores.to(widest(scores), copy=True).reshape(-1, scores.shape[-1])
        values = reference.marginals(wide, k).clamp(0, 1)
    return values.reshape(scores.shape).to(scores.dtype)


def smoothed_hinge(scores, target, k, tau, margin):
    """Do what :func:`.reference.smoothed_hinge` does, by whoever is fastest here."""
    backend = choose("smoothed", scores, target, rank=min(k, scores.shape[1] - k))
    if backend == "cpu":
        return cpu.SmoothedHinge.apply(scores, target, k, tau, margin)
    if backend == "triton":
        from . import triton

        return triton.SmoothedHinge.apply(scores, target, k, tau, margin)
    return reference.SmoothedHinge.by_parts(scores, target, k, tau, margin)

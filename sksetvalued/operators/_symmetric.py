"""Elementary symmetric polynomials and the inclusion probabilities they give."""

import torch
from torch.nn.functional import pad

from ._checks import check_k, check_scores
from ._precision import at_least_float32, without_autocast

__all__ = ["log_elementary_symmetric_polynomials", "top_k_marginals"]

#: Stands for the score -inf, whose gradient would be NaN.
LOWEST = -1e30


def _log_convolve(a, b, degree):
    """Multiply polynomials given by the logarithms of their coefficients, up to `degree`."""
    if a.shape[-1] > b.shape[-1]:
        a, b = b, a
    n_a, n_b = a.shape[-1], b.shape[-1]
    length = min(n_a + n_b - 1, degree + 1)
    shifted = pad(b, (n_a - 1, n_a - 1), value=-torch.inf).unfold(-1, n_b + n_a - 1, 1).flip(-2)
    terms = (a.unsqueeze(-1) + shifted)[..., :length]
    # The weights in the gradient of torch.logsumexp would not sum to one for large logarithms.
    largest = terms.detach().amax(-2, keepdim=True)
    return (terms - largest).exp().sum(-2).log() + largest.squeeze(-2)


def _log_coefficients(scores, degree):
    """Return the log coefficients of prod_j (1 + exp(s_j) X) up to `degree`.

    The factors are multiplied in pairs; a factor left alone waits in `rest`.
    """
    nodes = torch.stack([torch.zeros_like(scores), scores], dim=-1)
    rest = None
    while nodes.shape[-2] > 1:
        if nodes.shape[-2] % 2:
            last = nodes[..., -1, :]
            rest = last if rest is None else _log_convolve(rest, last, degree)
            nodes = nodes[..., :-1, :]
        half = nodes.shape[-2] // 2
        nodes = _log_convolve(nodes[..., :half, :], nodes[..., half:, :], degree)
    product = nodes[..., 0, :]
    return product if rest is None else _log_convolve(rest, product, degree)


def log_sums(scores, k):
    """Return the logarithms of the polynomials up to degree k, of finite scores."""
    # The polynomial of degree i is homogeneous: sigma_i(e^c e^s) = e^(ic) sigma_i(e^s).
    centre = scores.detach().amax(-1, keepdim=True)
    degrees = torch.arange(k + 1, device=scores.device, dtype=scores.dtype)
    return _log_coefficients(scores - centre, k) + centre * degrees


def log_elementary_symmetric_polynomials(scores, k):
    r"""Compute the logarithms of the elementary symmetric polynomials of exp(scores).

    .. math:: \log \sigma_i(e^s) = \log \sum_{A \subset [L], |A| = i} e^{\sum_{j \in A} s_j},
        \qquad i = 0, \dots, k,

    by products of polynomials in pairs, in O(k L) operations and without overflow.

    Parameters
    ----------
    scores : Tensor of shape (..., n_classes)
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
    check_k(k, scores.shape[-1])
    with without_autocast(scores.device):
        values = log_sums(at_least_float32(scores).clamp(min=LOWEST), k)
        # Where a class of weight zero is in all sets.
        values = values.masked_fill(values < LOWEST / 2, -torch.inf)
    return values.to(scores.dtype)


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
    check_k(k, scores.shape[-1])
    create_graph = scores.requires_grad and torch.is_grad_enabled()
    # The gradient is needed even where the caller has switched gradients off.
    with torch.inference_mode(False), torch.enable_grad():
        leaf = scores if create_graph else scores.detach().clone().requires_grad_()
        # The logarithms may be large, and rounding them costs the marginals digits.
        exact = torch.float32 if scores.device.type == "mps" else torch.float64
        with without_autocast(scores.device):
            wide = leaf.to(exact).clamp(min=LOWEST)
            log_sum = log_sums(wide, k)[..., k].sum()
            (marginals,) = torch.autograd.grad(log_sum, wide, create_graph=create_graph)
    return marginals.clamp(0, 1).to(scores.dtype)

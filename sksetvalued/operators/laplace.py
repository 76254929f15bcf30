r"""Soft top-k membership by Laplace distributions, in closed form.

With F the distribution function of the Laplace law, the threshold b solves
:math:`\sum_j F((s_j - b) / \tau) = k`. Between neighbouring scores the sum is a quadratic
polynomial of :math:`e^{b / \tau}`; two cumulative sums tell between which.
"""

import math

import torch

from ._backends import split_rows
from ._checks import check_number, check_scores, own_scores
from ._precision import at_least_float32, widest, without_autocast

__all__ = ["laplace_top_k"]

#: Stands for the score -inf; differences of numbers beyond it might not be finite.
_LOWEST = -1e30


def laplace_top_k(scores, k, tau=1.0):
    r"""Compute soft memberships in the top k that sum to k, by Laplace distributions.

    .. math:: p_i = F\Big( \frac{s_i - b}{\tau} \Big), \qquad \sum_i p_i = k, \qquad
        F(u) = \begin{cases} e^u / 2 & u \leq 0 \\ 1 - e^{-u} / 2 & u > 0. \end{cases}

    The threshold b is found exactly, in O(n_classes log n_classes). As tau goes to 0 the
    memberships tend to 1 for the k largest scores and to 0 for the others.

    Parameters
    ----------
    scores : Tensor of shape (..., n_classes)
    k : int or float, in (0, n_classes)
    tau : float, default=1.0
        Temperature, positive.

    Returns
    -------
    Tensor of shape (..., n_classes)
        Entries in [0, 1] that sum to k. Scores below -1e30, and -inf, count as -1e30, and those
        above 1e30 as that.

    References
    ----------
    Struski et al., "LapSum: one method to differentiate them all", ICML 2025.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.operators import laplace_top_k
    >>> laplace_top_k(torch.tensor([3.0, 1.0, 0.0]), k=1)
    tensor([0.7849, 0.1573, 0.0579])
    """
    check_scores(scores)
    _check(scores, k, tau)
    with without_autocast(scores.device):
        flat = at_least_float32(scores).reshape(-1, scores.shape[-1])
        centred, _ = _centre(flat, k)
        u = (centred - _threshold(centred, k, tau)) / tau
        half = (-u.abs()).exp() / 2
        return torch.where(u > 0, 1 - half, half).reshape(scores.shape).to(scores.dtype)


def laplace_log_probability(scores, target, k, tau):
    """Return the logarithm of the membership of the target, a class of each row of scores."""
    _check(scores, k, tau)
    own = own_scores(scores, target)
    centred, centre = _centre(scores, k)
    u = ((own - centre - _threshold(centred, k, tau)) / tau)[:, 0]
    # Each branch is given what keeps it finite, or the other's gradient would be NaN.
    above = (-(-u.clamp(min=0)).exp() / 2).log1p()
    return torch.where(u > 0, above, u - math.log(2)).to(scores.dtype)


def _check(scores, k, tau):
    check_number("k", k, 0, inclusive=False)
    check_number("tau", tau, 0, inclusive=False)
    if k >= scores.shape[-1]:
        raise ValueError(
            f"k must lie in (0, {scores.shape[-1]}), below the number of classes, got {k!r}; "
            "lower k or give scores of more classes."
        )


def _centre(scores, k):
    """Return the scores measured from the k-th largest, near which they keep their digits."""
    scores = scores.nan_to_num(torch.nan, torch.nan, _LOWEST).clamp(_LOWEST, -_LOWEST)
    centre = scores.detach().topk(math.ceil(k), dim=1).values[:, -1:]
    return scores - centre, centre


def _threshold(scores, k, tau):
    """Return b of each sample, of shape (n_samples, 1), in double where the device has it."""
    if not torch.compiler.is_compiling():
        return _Threshold.apply(scores, k, tau)
    # A function that knows derivatives in forward mode would break the graph.
    constant = scores.detach()
    threshold = _solve(constant, k, tau)
    shares, change = _shares(constant, threshold, tau), scores - constant
    # The change is zero: the first derivatives, and with the shares at both ends the second ones.
    end = threshold + (shares * change).sum(1, keepdim=True)
    shares = (shares + _shares(scores, end, tau)) / 2
    return threshold + (shares * change).sum(1, keepdim=True)


class _Threshold(torch.autograd.Function):
    """The threshold; its derivative by a score is the share of that score's density."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores, k, tau):
        threshold = scores.new_empty(scores.shape[0], 1, dtype=widest(scores))
        for rows in split_rows(scores):
            threshold[rows] = _solve(scores[rows], k, tau)
        return threshold

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)
        ctx.save_for_forward(inputs[0], output)
        ctx.tau = inputs[2]

    @staticmethod
    def backward(ctx, grad):
        scores, threshold = ctx.saved_tensors
        return (grad * _shares(scores, threshold, ctx.tau)).to(scores.dtype), None, None

    @staticmethod
    def jvp(ctx, tangent, *_):
        scores, threshold = ctx.saved_tensors
        return (_shares(scores, threshold, ctx.tau) * tangent).sum(1, keepdim=True)


def _shares(scores, threshold, tau):
    return (-(scores - threshold).abs() / tau).softmax(1)


def _solve(scores, k, tau):
    """Find the threshold among the scores in decreasing order, v, over tau.

    With A_i the sum of e^(v_i - v_j) for j up to i, B_i that of e^(v_j - v_i) from i on, the
    memberships sum to i - A_i / 2 + (B_i - 1) / 2 where b is the i-th. Let b lie between the m-th
    and the next: then :math:`m - k = A_m e^{b - v_m} / 2 - B_{m + 1} e^{v_{m + 1} - b} / 2`.
    """
    n_classes = scores.shape[1]
    v = scores.to(widest(scores)).sort(dim=1, descending=True).values / tau
    log_a = v + (-v).logcumsumexp(1)
    log_b = v.flip(1).logcumsumexp(1).flip(1) - v
    count = torch.arange(1, n_classes + 1, device=v.device)
    m = (count - log_a.exp() / 2 + log_b.expm1() / 2 <= k).sum(1, keepdim=True)
    before, after = (m - 1).clamp(min=0), m.clamp(max=n_classes - 1)
    none = torch.full_like(v[:, :1], -torch.inf)
    a = log_a.gather(1, before).where(m > 0, none) - v.gather(1, before)
    b = log_b.gather(1, after).where(m < n_classes, none) + v.gather(1, after)
    excess = m.to(v.dtype) - k
    # Of the quadratic equation, without cancellation; e^(a + b) may underflow.
    root = (excess.abs() + (excess**2 + (a + b).exp()).sqrt()).log()
    root = ((a + b) / 2).where(excess == 0, root)
    return tau * (root - a).where(excess > 0, b - root)

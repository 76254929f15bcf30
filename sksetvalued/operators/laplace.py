r"""Soft top-k membership by Laplace distributions, in closed form.

With F the distribution function of the Laplace law, the threshold b solves
:math:`\sum_j F((s_j - b) / \tau) = k`. Given which scores lie above b, that is a quadratic
equation in :math:`e^{b / \tau}`. Its root tells better which do: of a score on the wrong side, F
is off by the square of the distance, and never so that the next root is beyond b. From the k-th
score it takes about four steps; the last is differentiated.
"""

import math

import torch

from .._checks import check_number
from ._backends import OwnLoss
from ._checks import check_scores, own_scores
from ._dispatch import is_eager
from ._precision import at_least_float32, log_sum_exp, widest, without_autocast

__all__ = ["laplace_top_k"]

#: Stands for the score -inf; differences of numbers beyond it might not be finite.
_LOWEST = -1e30
#: At most five were seen in 200,000 rows.
_MOST_STEPS = 6


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
        Entries in [0, 1] that sum to k. Scores below -1e30, and -inf, count as -1e30, and finite
        ones above 1e30 as that; a row with inf or NaN is NaN.

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


class LogProbability(OwnLoss):
    """The logarithm of the membership of the target, a class of each row of scores."""

    @staticmethod
    def reference(scores, target, k, tau):
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
    v = scores.to(widest(scores)) / tau
    fixed = v.detach()
    above = fixed >= 0
    for _ in range(_MOST_STEPS):
        before, above = above, fixed >= _solve(fixed, above, k)
        if above.is_cpu and is_eager(above) and above.equal(before):
            break
    return tau * _solve(v, above, k)


def _solve(v, above, k):
    r"""Return b where the scores v, over tau, are above it or not as given.

    With m of them above, A the sum of their :math:`e^{-v}`, and B that of :math:`e^v` of the
    others, :math:`m - k = A e^b / 2 - B e^{-b} / 2`.
    """
    none = torch.finfo(v.dtype).min / 4
    a = log_sum_exp((-v).where(above, none), 1)
    b = log_sum_exp(v.where(~above, none), 1)
    excess = above.sum(1).to(v.dtype) - k
    # Of the quadratic equation, without cancellation; e^(a + b) may underflow.
    square = (excess**2).where(excess != 0, 1)
    root = (excess.abs() + (square + (a + b).exp()).sqrt()).log()
    root = ((a + b) / 2).where(excess == 0, root)
    return (root - a).where(excess > 0, b - root).unsqueeze(1)

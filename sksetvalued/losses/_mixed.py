"""Losses by the soft probability that the true class is among the k best."""

import torch

from .._checks import check_number, check_positive_integer
from ..operators._precision import log_sum_exp
from ..operators.laplace import LogProbability
from ..operators.smoothed import smoothed_hinge
from ._base import SetLoss, check_several
from ._ranks import check_ranks, resolve_ranks

__all__ = ["LapSumLoss", "MixedTopKLoss"]


class MixedTopKLoss(SetLoss, name="mixed_top_k"):
    r"""Minus the logarithm of the soft probability to be among the best, over several ranks.

    .. math:: \ell(s, y) = -\log \sum_k w_k \pi^{(k)}_y, \qquad
        \pi^{(k)}_y = \frac{\sum_{|A| = k, y \in A} \exp \sum_{j \in A} s_j / \tau}
        {\sum_{|A| = k} \exp \sum_{j \in A} s_j / \tau},

    the idea of [1]_, whose probabilities come from differentiable sorting networks; here they are
    those of :func:`sksetvalued.operators.top_k_marginals`, exact and found in one pass. At rank 1
    they are the softmax, so rank 1 alone is the cross-entropy. Unlike the `ranks` of
    :class:`SmoothedTopKHingeLoss`, the mixture is inside the logarithm: a sample that is sure at
    some rank costs at most minus the logarithm of its weight.

    Parameters
    ----------
    ranks : mapping or iterable of (rank, weight), default={1: 0.5, "k": 0.5}
        Ranks above n_classes - 1 become it, equal ones are merged, the weights divided by their
        sum; "k" stands for `k`.
    k : int, optional
        Needed where `ranks` name "k"; an estimator supplies it.
    tau : float, default=1.0
        Temperature, positive.
    reduction : {"mean", "sum", "none"}, default="mean"

    References
    ----------
    .. [1] Petersen et al., "Differentiable top-k classification learning", ICML 2022, eq. (4).

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import MixedTopKLoss
    >>> loss = MixedTopKLoss({1: 0.5, 2: 0.5})
    >>> loss(torch.zeros(1, 4), torch.tensor([0])).exp()
    tensor(2.6667)
    """

    def __init__(self, ranks=((1, 0.5), ("k", 0.5)), k=None, tau=1.0, reduction="mean"):
        super().__init__(reduction)
        check_number("tau", tau, 0, inclusive=False)
        if ranks is None:
            raise ValueError("ranks must be pairs of a rank and a weight, got None.")
        self.ranks = check_ranks(ranks)
        if k is not None:
            check_positive_integer("k", k)
        elif any(rank == "k" for rank, _ in self.ranks):
            raise ValueError('k must be given where ranks name "k", got None.')
        self.k = k
        self.tau = tau

    def sample_losses(self, input, target):
        check_several(input)
        logs = []
        for rank, weight in resolve_ranks(self.k, self.ranks, input.shape[1]):
            # Without margin, the smoothed hinge over its temperature is -log pi.
            tau = self.tau / rank
            hinge = smoothed_hinge(input, target, rank, tau, 0.0)
            logs.append(torch.log(hinge.new_full((), weight)) - hinge / tau)
        # Of one rank, the gradient at a score of -inf stays finite.
        return -log_sum_exp(torch.stack(logs), 0) if len(logs) > 1 else -logs[0]


class LapSumLoss(SetLoss, name="lapsum"):
    r"""Minus the logarithm of the soft top-k membership by Laplace distributions.

    .. math:: \ell(s, y) = -\log F\Big( \frac{s_y - b}{\tau} \Big), \qquad
        \sum_j F\Big( \frac{s_j - b}{\tau} \Big) = k,

    with F the distribution function of the Laplace law ([1]_;
    :func:`sksetvalued.operators.laplace_top_k`). Its gradient is at most :math:`2 / \tau` in sum
    of absolute values. In the mean it is least where the memberships are
    :math:`\min(1, p_y / \nu)`, so that the best k classes are ranked right; as the constant
    :math:`\nu` depends on the sample, the scores are not for one threshold over all samples.

    Parameters
    ----------
    k : int or float, in (0, n_classes)
    tau : float, default=1.0
        Temperature, positive.
    reduction : {"mean", "sum", "none"}, default="mean"

    References
    ----------
    .. [1] Struski et al., "LapSum: one method to differentiate them all", ICML 2025.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import LapSumLoss
    >>> loss = LapSumLoss(k=2)(torch.zeros(1, 4), torch.tensor([0]))
    >>> round(loss.exp().item(), 3)
    2.0
    """

    real_k = True

    def __init__(self, k, tau=1.0, reduction="mean"):
        super().__init__(reduction)
        check_number("k", k, 0, inclusive=False)
        check_number("tau", tau, 0, inclusive=False)
        self.k = k
        self.tau = tau

    def sample_losses(self, input, target):
        check_several(input)
        return -LogProbability.by_parts(input, target, self.k, self.tau)


def mixed_top_k_loss(
    input,
    target,
    ranks=((1, 0.5), ("k", 0.5)),
    k=None,
    tau=1.0,
    reduction="mean",
    sample_weight=None,
):
    """Compute the mixed loss; see :class:`sksetvalued.losses.MixedTopKLoss`.

    Parameters
    ----------
    input : Tensor of shape (n_samples, n_classes)
    target : LongTensor of shape (n_samples,)
    ranks : mapping or iterable of (rank, weight), default={1: 0.5, "k": 0.5}
    k : int, optional
    tau : float, default=1.0
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional

    Returns
    -------
    Tensor, a scalar, or of shape (n_samples,) when `reduction` is "none"

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import mixed_top_k_loss
    >>> loss = mixed_top_k_loss(torch.zeros(1, 4), torch.tensor([0]), k=3)
    >>> round(loss.exp().item(), 3)
    2.0
    """
    return MixedTopKLoss(ranks, k, tau, reduction)(input, target, sample_weight)


def lapsum_loss(input, target, k, tau=1.0, reduction="mean", sample_weight=None):
    """Compute the loss by Laplace memberships; see :class:`sksetvalued.losses.LapSumLoss`.

    Parameters
    ----------
    input : Tensor of shape (n_samples, n_classes)
    target : LongTensor of shape (n_samples,)
    k : int or float, in (0, n_classes)
    tau : float, default=1.0
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional

    Returns
    -------
    Tensor, a scalar, or of shape (n_samples,) when `reduction` is "none"

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import lapsum_loss
    >>> lapsum_loss(torch.zeros(1, 4), torch.tensor([0]), k=1).exp()
    tensor(4.)
    """
    return LapSumLoss(k, tau, reduction)(input, target, sample_weight)

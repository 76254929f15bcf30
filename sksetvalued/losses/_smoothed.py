"""The smoothed top-k hinge loss of Berrada et al."""

from .._checks import check_number
from ..operators.smoothed import smoothed_hinge
from ._ranks import check_ranks, resolve_ranks
from ._top_k import _TopKLoss

__all__ = ["SmoothedTopKHingeLoss"]


class SmoothedTopKHingeLoss(_TopKLoss, name="smoothed_hinge"):
    r"""Smoothed top-k hinge loss, exact for every k.

    .. math:: \ell(s, y) = \tau \log \sum_{|A| = k} \exp\Big( \frac{m 1[y \notin A]}{\tau} +
        \sum_{j \in A} \frac{s_j}{k \tau} \Big) - \tau \log \sum_{|A| = k, y \in A}
        \exp \sum_{j \in A} \frac{s_j}{k \tau}

    ([1]_, eq. (9)-(10)). As tau goes to 0 it tends to :math:`\frac{1}{k} (k m +
    \mathrm{top}_k(s_{\setminus y}) - s_y)_+`: in score units its margin is k times `margin` and
    its slope 1/k. With k = 1 and tau = 1 it is the cross-entropy when the margin is 0, and LDAM's
    loss otherwise.

    Parameters
    ----------
    k : int, in [1, n_classes - 1]
    tau : float, default=1.0
        Temperature, positive.
    margin : float, default=1.0
    reduction : {"mean", "sum", "none"}, default="mean"
    ranks : mapping or iterable of (rank, weight), optional
        Ranks that take the place of k, and their weights: the loss is the weighted sum of the
        losses at those ranks. Ranks above n_classes - 1 become it, equal ones are merged, the
        weights divided by their sum; "k" stands for `k`. With a mixture of ranks, as
        ``{1: 0.5, "k": 0.5}``, the best class is learned beside the set of k.

    References
    ----------
    .. [1] Berrada et al., "Smooth loss functions for deep top-k classification", ICLR 2018.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import SmoothedTopKHingeLoss
    >>> loss = SmoothedTopKHingeLoss(k=1, tau=1.0, margin=0.0)
    >>> loss(torch.zeros(1, 4), torch.tensor([0]))
    tensor(1.3863)
    >>> loss = SmoothedTopKHingeLoss(k=2, margin=0.0, ranks={1: 0.5, "k": 0.5})
    >>> loss(torch.zeros(1, 4), torch.tensor([0]))
    tensor(1.0397)
    """

    def __init__(self, k, tau=1.0, margin=1.0, reduction="mean", ranks=None):
        super().__init__(k, margin, reduction)
        check_number("tau", tau, 0, inclusive=False)
        self.tau = tau
        self.ranks = check_ranks(ranks)

    def sample_losses(self, input, target):
        self.check_rank(input)
        ranks = resolve_ranks(self.k, self.ranks, input.shape[1])
        each = [smoothed_hinge(input, target, k, self.tau, self.margin) for k, _ in ranks]
        return each[0] if len(each) == 1 else sum(w * loss for loss, (_, w) in zip(each, ranks))


def smoothed_top_k_hinge_loss(
    input, target, k, tau=1.0, margin=1.0, reduction="mean", sample_weight=None, ranks=None
):
    """Compute the smoothed loss; see :class:`sksetvalued.losses.SmoothedTopKHingeLoss`.

    Parameters
    ----------
    input : Tensor of shape (n_samples, n_classes)
    target : LongTensor of shape (n_samples,)
    k : int, in [1, n_classes - 1]
    tau : float, default=1.0
    margin : float, default=1.0
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional
    ranks : mapping or iterable of (rank, weight), optional

    Returns
    -------
    Tensor, a scalar, or of shape (n_samples,) when `reduction` is "none"

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import smoothed_top_k_hinge_loss
    >>> smoothed_top_k_hinge_loss(torch.zeros(1, 4), torch.tensor([0]), k=1, margin=0.0)
    tensor(1.3863)
    """
    return SmoothedTopKHingeLoss(k, tau, margin, reduction, ranks)(input, target, sample_weight)

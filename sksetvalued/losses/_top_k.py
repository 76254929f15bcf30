"""Hinge losses on the k-th largest score."""

import torch

from .._checks import check_number, check_positive_integer
from ..operators._checks import check_k
from ..operators._top_k import top_k
from ..operators.noised import noised_hinge
from ._base import SetLoss, check_range, check_several, check_shapes

__all__ = ["CalibratedTopKHingeLoss", "ConvexTopKHingeLoss", "TopKHingeLoss"]


def _rivals_and_own(input, target, k):
    """Return the classes of the k best rivals and the true one, and their scores.

    Returns
    -------
    indices : LongTensor of shape (n_samples, k + 1)
        The rivals in decreasing order of their scores, then the true class.
    rivals : Tensor of shape (n_samples, k)
    own : Tensor of shape (n_samples, 1)
    """
    input = input.detach()
    order = top_k(input, k + 1)[1]
    target = target.unsqueeze(1)
    # Ranks from that of the true class on move up by one.
    after = (order == target).cumsum(1)[:, :k].bool()
    indices = torch.cat([torch.where(after, order[:, 1:], order[:, :k]), target], dim=1)
    scores = input.gather(1, indices)
    return indices, scores[:, :k], scores[:, k:]


def hinge(input, indices, slopes, offset, origin=None):
    """Return max(0, offset + sum of slopes times scores) of each sample.

    Parameters
    ----------
    input : Tensor of shape (n_samples, n_classes)
    indices : LongTensor of shape (n_samples, n_selected)
        Classes in the sum; repeated ones add up.
    slopes : Tensor of shape (n_selected,)
    offset : float or Tensor of shape (n_samples,)
    origin : Tensor of shape (n_samples, 1), optional
        What to measure the scores of each sample from, where it is finite and the slopes sum to 0.

    Returns
    -------
    Tensor of shape (n_samples,)
    """
    if not isinstance(offset, torch.Tensor):
        offset = input.new_full(input.shape[:1], offset)
    scores = input.gather(1, indices)
    if origin is not None:
        scores = scores - origin.where(origin.isfinite(), 0)
    return torch.relu(torch.addmv(offset, scores, slopes))


def _hinge_of_rival(input, indices, margin):
    """Return max(0, margin + score of the rival - score of the target).

    The largest score takes part with slope 0, so that NaN, which is sorted first, stays NaN.

    Parameters
    ----------
    input : Tensor of shape (n_samples, n_classes)
    indices : LongTensor of shape (n_samples, 3)
        The target, the class of the largest score, and the rival.
    margin : float
    """
    slopes = torch.arange(-1, 2, dtype=input.dtype, device=input.device)
    return hinge(input, indices, slopes, margin)


class _TopKLoss(SetLoss):
    """Base of the losses with a rank and a margin."""

    #: Pairs of a rank and a weight that take the place of k, in losses that know them.
    ranks = None

    def __init__(self, k, margin=1.0, reduction="mean"):
        super().__init__(reduction)
        check_positive_integer("k", k)
        check_number("margin", margin, 0, inclusive=True)
        self.k = int(k)
        self.margin = margin

    def check(self, input, target):
        """Check all but the range of the targets, which looking them up does on the processor.

        Parameters
        ----------
        input : Tensor of shape (n_samples, n_classes)
        target : LongTensor of shape (n_samples,)
        """
        check_shapes(input, target)

    def forward(self, input, target, sample_weight=None):
        try:
            return super().forward(input, target, sample_weight)
        except (IndexError, RuntimeError):
            check_range(input, target)
            raise

    def check_rank(self, input):
        """Raise unless the scores have more than k classes, or two where `ranks` are clipped.

        Parameters
        ----------
        input : Tensor of shape (n_samples, n_classes)
        """
        if self.k >= input.shape[1]:
            check_several(input)
            if self.ranks is None:
                check_k(self.k, input.shape[1], largest=input.shape[1] - 1)


class TopKHingeLoss(_TopKLoss, name="hinge"):
    r"""Hinge between the true score and the k-th largest of the others.

    .. math:: \ell(s, y) = (m + \mathrm{top}_k(s_{\setminus y}) - s_y)_+

    It is zero if and only if the true class beats its k-th best rival by the margin
    ([1]_; [2]_, eq. (4)). It is not top-k calibrated. With k = 1 it is the multiclass hinge.

    Parameters
    ----------
    k : int, in [1, n_classes - 1]
    margin : float, default=1.0
    reduction : {"mean", "sum", "none"}, default="mean"

    References
    ----------
    .. [1] Lapin et al., "Top-k multiclass SVM", NeurIPS 2015.
    .. [2] Garcin et al., "Stochastic smoothing of the top-K calibrated hinge loss for deep
       imbalanced classification", ICML 2022.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import TopKHingeLoss
    >>> scores = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    >>> TopKHingeLoss(k=2)(scores, torch.tensor([3]))
    tensor(3.)
    """

    def sample_losses(self, input, target):
        self.check_rank(input)
        order, target = top_k(input.detach(), self.k + 1)[1], target.unsqueeze(1)
        is_among_k = (order[:, :-1] == target).any(1, keepdim=True)
        rival = torch.where(is_among_k, order[:, -1:], order[:, -2:-1])
        indices = torch.cat([target, order[:, :1], rival], dim=1)
        return _hinge_of_rival(input, indices, self.margin)


class ConvexTopKHingeLoss(_TopKLoss, name="convex_hinge"):
    r"""Convex upper bound of the top-k hinge loss.

    .. math:: \ell(s, y) = \Big( \frac{1}{k} \sum_{i \le k}
        \mathrm{top}_i(s + m (1 - \delta_y)) - s_y \Big)_+

    ([1]_; [2]_, Table 1). It is not top-k calibrated.

    Parameters
    ----------
    k : int, in [1, n_classes - 1]
    margin : float, default=1.0
    reduction : {"mean", "sum", "none"}, default="mean"

    References
    ----------
    .. [1] Lapin et al., "Top-k multiclass SVM", NeurIPS 2015.
    .. [2] Garcin et al., "Stochastic smoothing of the top-K calibrated hinge loss for deep
       imbalanced classification", ICML 2022.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import ConvexTopKHingeLoss
    >>> scores = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    >>> ConvexTopKHingeLoss(k=2)(scores, torch.tensor([3]))
    tensor(3.5000)
    """

    def sample_losses(self, input, target):
        self.check_rank(input)
        indices, rivals, own = _rivals_and_own(input, target, self.k)
        # Of the k best rivals and the true class, the k largest are all but the smallest.
        rival_is_last = ~(rivals[:, -1:] + self.margin < own)
        last = torch.where(rival_is_last, indices[:, -2:-1], indices[:, -1:])
        indices = torch.cat([indices[:, :-2], last, indices[:, -1:]], dim=1)
        slopes = input.new_full((self.k + 1,), 1 / self.k)
        slopes[-1] = -1
        n_shifted = self.k - 1 + rival_is_last.squeeze(1).to(input.dtype)
        # The slopes sum to 0: scores less the true one lose fewer digits in a long sum.
        return hinge(input, indices, slopes, n_shifted * (self.margin / self.k), own)


class CalibratedTopKHingeLoss(_TopKLoss, name="calibrated_hinge"):
    r"""Hinge between the true score and the (k + 1)-th largest of all.

    .. math:: \ell(s, y) = (m + \mathrm{top}_{k+1}(s) - s_y)_+

    It is top-k calibrated ([1]_; [2]_, eq. (5)). A true class at rank k + 1 costs the margin and
    gives no gradient.

    Parameters
    ----------
    k : int, in [1, n_classes - 1]
    margin : float, default=1.0
    reduction : {"mean", "sum", "none"}, default="mean"

    References
    ----------
    .. [1] Yang & Koyejo, "On the consistency of top-k surrogate losses", ICML 2020.
    .. [2] Garcin et al., "Stochastic smoothing of the top-K calibrated hinge loss for deep
       imbalanced classification", ICML 2022.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import CalibratedTopKHingeLoss
    >>> scores = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    >>> CalibratedTopKHingeLoss(k=2)(scores, torch.tensor([3]))
    tensor(2.)
    """

    def sample_losses(self, input, target):
        self.check_rank(input)
        return noised_hinge(input, target, ((self.k, 1.0),), self.margin)


def top_k_hinge_loss(input, target, k, margin=1.0, reduction="mean", sample_weight=None):
    """Compute the top-k hinge loss; see :class:`sksetvalued.losses.TopKHingeLoss`.

    Parameters
    ----------
    input : Tensor of shape (n_samples, n_classes)
    target : LongTensor of shape (n_samples,)
    k : int, in [1, n_classes - 1]
    margin : float, default=1.0
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional

    Returns
    -------
    Tensor, a scalar, or of shape (n_samples,) when `reduction` is "none"

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import top_k_hinge_loss
    >>> top_k_hinge_loss(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([2]), k=1)
    tensor(3.)
    """
    return TopKHingeLoss(k, margin, reduction)(input, target, sample_weight)


def convex_top_k_hinge_loss(input, target, k, margin=1.0, reduction="mean", sample_weight=None):
    """Compute the convex top-k hinge loss; see :class:`sksetvalued.losses.ConvexTopKHingeLoss`.

    Parameters
    ----------
    input : Tensor of shape (n_samples, n_classes)
    target : LongTensor of shape (n_samples,)
    k : int, in [1, n_classes - 1]
    margin : float, default=1.0
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional

    Returns
    -------
    Tensor, a scalar, or of shape (n_samples,) when `reduction` is "none"

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import convex_top_k_hinge_loss
    >>> convex_top_k_hinge_loss(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([2]), k=2)
    tensor(2.5000)
    """
    return ConvexTopKHingeLoss(k, margin, reduction)(input, target, sample_weight)


def calibrated_top_k_hinge_loss(
    input, target, k, margin=1.0, reduction="mean", sample_weight=None
):
    """Compute the calibrated loss; see :class:`sksetvalued.losses.CalibratedTopKHingeLoss`.

    Parameters
    ----------
    input : Tensor of shape (n_samples, n_classes)
    target : LongTensor of shape (n_samples,)
    k : int, in [1, n_classes - 1]
    margin : float, default=1.0
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional

    Returns
    -------
    Tensor, a scalar, or of shape (n_samples,) when `reduction` is "none"

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import calibrated_top_k_hinge_loss
    >>> calibrated_top_k_hinge_loss(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([2]), k=1)
    tensor(2.)
    """
    return CalibratedTopKHingeLoss(k, margin, reduction)(input, target, sample_weight)

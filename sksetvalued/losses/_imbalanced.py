"""Losses for hard or rare classes: focal, LDAM and the logit-adjusted cross-entropy."""

import torch

from .._checks import check_number
from ..operators._margins import margins_of
from ._base import SetLoss, check_one_each, counts_of_loss, softmax_losses

__all__ = ["FocalLoss", "LDAMLoss", "LogitAdjustedLoss"]


def focal_loss(input, target, gamma=2.0, reduction="mean", sample_weight=None):
    """Compute the focal loss; see :class:`FocalLoss`.

    Parameters
    ----------
    input : Tensor of shape (n_samples, n_classes)
    target : LongTensor of shape (n_samples,)
    gamma : float, default=2.0
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional

    Returns
    -------
    loss : Tensor
        Of shape (n_samples,) with ``reduction="none"``, else a scalar.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import focal_loss
    >>> focal_loss(torch.zeros(1, 2), torch.tensor([0]), gamma=1.0)
    tensor(0.3466)
    """
    return FocalLoss(gamma, reduction=reduction)(input, target, sample_weight)


def ldam_loss(
    input, target, class_counts, max_margin=0.5, scale=30.0, reduction="mean", sample_weight=None
):
    """Compute the label-distribution-aware margin loss; see :class:`LDAMLoss`.

    Parameters
    ----------
    input : Tensor of shape (n_samples, n_classes)
        Cosine scores, before scaling.
    target : LongTensor of shape (n_samples,)
    class_counts : array-like of shape (n_classes,)
    max_margin : float, default=0.5
    scale : float, default=30.0
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional

    Returns
    -------
    loss : Tensor
        Of shape (n_samples,) with ``reduction="none"``, else a scalar.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import ldam_loss
    >>> ldam_loss(torch.zeros(1, 2), torch.tensor([0]), [1, 16], max_margin=0.5, scale=2.0)
    tensor(1.3133)
    """
    return LDAMLoss(class_counts, max_margin, scale, reduction=reduction)(
        input, target, sample_weight
    )


def logit_adjusted_loss(
    input, target, class_counts, tau=1.0, reduction="mean", sample_weight=None
):
    """Compute the logit-adjusted cross-entropy; see :class:`LogitAdjustedLoss`.

    Parameters
    ----------
    input : Tensor of shape (n_samples, n_classes)
    target : LongTensor of shape (n_samples,)
    class_counts : array-like of shape (n_classes,)
    tau : float, default=1.0
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional

    Returns
    -------
    loss : Tensor
        Of shape (n_samples,) with ``reduction="none"``, else a scalar.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import logit_adjusted_loss
    >>> logit_adjusted_loss(torch.zeros(1, 2), torch.tensor([0]), [1, 3]).exp()
    tensor(4.)
    """
    return LogitAdjustedLoss(class_counts, tau, reduction=reduction)(input, target, sample_weight)


def _centered(input):
    """Shift the scores so that adding small numbers loses none of their digits."""
    return input - input.detach().amax(1, keepdim=True)


class FocalLoss(SetLoss, name="focal"):
    r"""Cross-entropy that turns away from the samples already well classified.

    .. math:: \ell(s, y) = -(1 - p_y)^\gamma \log p_y, \qquad p = \mathrm{softmax}(s).

    Parameters
    ----------
    gamma : float, default=2.0
        Strength of the focus; 0 is the cross-entropy.
    reduction : {"mean", "sum", "none"}, default="mean"

    Raises
    ------
    ValueError
        If `gamma` is negative.

    References
    ----------
    .. [1] Lin et al., "Focal loss for dense object detection", ICCV 2017, eq. (4).

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import FocalLoss
    >>> scores = torch.tensor([[4.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> FocalLoss(gamma=2.0, reduction="none")(scores, torch.tensor([0, 0]))
    tensor([4.4924e-05, 9.6350e-01])
    """

    def __init__(self, gamma=2.0, reduction="mean"):
        super().__init__(reduction)
        check_number("gamma", gamma, 0, inclusive=True)
        self.gamma = gamma

    def sample_losses(self, input, target):
        loss = softmax_losses(input, target)
        if self.gamma == 0:
            return loss
        # A sample at probability one would give 0^(gamma - 1) in the gradient.
        # Nor would one at zero give 0 times infinity: from 80 on exp(-loss) is lost beside 1.
        missing = (-torch.expm1(-loss.clamp(max=80))).clamp(min=torch.finfo(loss.dtype).eps)
        return missing**self.gamma * loss


class LDAMLoss(SetLoss, name="ldam"):
    r"""Cross-entropy of scaled cosine scores, with larger margins for rarer classes.

    .. math:: \ell(s, y) = \mathrm{CE}\bigl(c\,(s - m_y \delta_y),\, y\bigr), \qquad
              m_y = m_{\max} \left(\frac{\min_j n_j}{n_y}\right)^{1/4}.

    The margin is taken in the units of the cosine, before the scale :math:`c`.

    Parameters
    ----------
    class_counts : array-like of shape (n_classes,)
        Number of training samples of each class.
    max_margin : float, default=0.5
        Margin of the rarest class.
    scale : float, default=30.0
        Factor between the cosines and the logits.
    reduction : {"mean", "sum", "none"}, default="mean"

    Raises
    ------
    ValueError
        If a class has no training sample, `max_margin` is negative or `scale` not positive.

    References
    ----------
    .. [1] Cao et al., "Learning imbalanced datasets with label-distribution-aware margin
       loss", NeurIPS 2019, eq. (13); the scale is that of the authors' code.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import LDAMLoss
    >>> loss = LDAMLoss([1, 16], max_margin=0.5, scale=2.0, reduction="none")
    >>> loss(torch.zeros(2, 2), torch.tensor([0, 1]))
    tensor([1.3133, 0.9741])
    """

    head = "cosine"

    def __init__(self, class_counts, max_margin=0.5, scale=30.0, reduction="mean"):
        super().__init__(reduction)
        self.register_buffer("class_counts", counts_of_loss(class_counts))
        check_number("max_margin", max_margin, 0, inclusive=True)
        self.max_margin = max_margin
        check_number("scale", scale, 0, inclusive=False)
        self.scale = scale

    def scores(self, output):
        """Return the logits: the cosines times `scale`."""
        return self.scale * output

    def sample_losses(self, input, target):
        check_one_each("class_counts", self.class_counts, input)
        counts = self.class_counts.to(input)
        margins = margins_of(counts, counts.min(), self.max_margin)
        classes = torch.arange(input.shape[1], device=input.device)
        at_target = (target[:, None] == classes).to(input.dtype)
        logits = self.scale * (_centered(input) - margins * at_target)
        return softmax_losses(logits, target)


class LogitAdjustedLoss(SetLoss, name="logit_adjusted"):
    r"""Cross-entropy of the scores plus `tau` times the log prior of the classes.

    .. math:: \ell(s, y) = \mathrm{CE}(s + \tau \log \pi,\, y), \qquad
              \pi_j = n_j / \textstyle\sum_l n_l.

    The scores learn :math:`\log p_y(x) - \tau \log \pi_y`: with ``tau=1`` they are balanced
    over the classes, and no prior is left in them.

    Parameters
    ----------
    class_counts : array-like of shape (n_classes,)
        Number of training samples of each class.
    tau : float, default=1.0
        Share of the prior to take out; 0 is the cross-entropy.
    reduction : {"mean", "sum", "none"}, default="mean"

    Raises
    ------
    ValueError
        If a class has no training sample or `tau` is negative.

    References
    ----------
    .. [1] Menon et al., "Long-tail learning via logit adjustment", ICLR 2021, eq. (10).

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import LogitAdjustedLoss
    >>> loss = LogitAdjustedLoss([1, 3], reduction="none")
    >>> loss(torch.zeros(2, 2), torch.tensor([0, 1])).exp()
    tensor([4.0000, 1.3333])
    """

    def __init__(self, class_counts, tau=1.0, reduction="mean"):
        super().__init__(reduction)
        self.register_buffer("class_counts", counts_of_loss(class_counts))
        check_number("tau", tau, 0, inclusive=True)
        self.tau = tau

    @property
    def prior_exponent(self):
        """Return what of the prior the scores keep."""
        return 1.0 - self.tau

    def sample_losses(self, input, target):
        check_one_each("class_counts", self.class_counts, input)
        counts = self.class_counts.to(input)
        adjustment = self.tau * (counts / counts.sum()).log()
        return softmax_losses(_centered(input) + adjustment, target)

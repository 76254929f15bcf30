"""Losses whose gradient is a sparse projection, and the multi-label cross-entropy."""

import numpy as np
import torch
from torch.nn import functional as F

from .._checks import check_number
from ..operators._dispatch import is_eager
from ..operators.projection import fenchel_young_loss
from ._base import SetLoss, check_scores, check_scores_and_target, check_tensor

__all__ = ["BinaryCrossEntropyLoss", "SparseTopLoss", "SparsemaxLoss"]


def sparsemax_loss(input, target, reduction="mean", sample_weight=None, margin=1.0):
    """Compute the sparsemax loss; see :class:`SparsemaxLoss`.

    Parameters
    ----------
    input : Tensor of shape (n_samples, n_classes)
    target : LongTensor of shape (n_samples,), or Tensor of shape (n_samples, n_classes)
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional
    margin : float, default=1.0

    Returns
    -------
    loss : Tensor
        Of shape (n_samples,) with ``reduction="none"``, else a scalar.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import sparsemax_loss
    >>> sparsemax_loss(torch.zeros(1, 2), torch.tensor([0]))
    tensor(0.2500)
    """
    return SparsemaxLoss(reduction, margin)(input, target, sample_weight)


def sparse_top_loss(input, target, reduction="mean", sample_weight=None, margin=1.0):
    """Compute the sparse-top loss; see :class:`SparseTopLoss`.

    Parameters
    ----------
    input, target : Tensors of shape (n_samples, n_classes)
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional
    margin : float, default=1.0

    Returns
    -------
    loss : Tensor
        Of shape (n_samples,) with ``reduction="none"``, else a scalar.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import sparse_top_loss
    >>> sparse_top_loss(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]]))
    tensor(0.)
    """
    return SparseTopLoss(reduction, margin)(input, target, sample_weight)


def binary_cross_entropy_loss(input, target, reduction="mean", sample_weight=None):
    """Compute the cross-entropy summed over labels; see :class:`BinaryCrossEntropyLoss`.

    Parameters
    ----------
    input, target : Tensors of shape (n_samples, n_classes)
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional

    Returns
    -------
    loss : Tensor
        Of shape (n_samples,) with ``reduction="none"``, else a scalar.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import binary_cross_entropy_loss
    >>> binary_cross_entropy_loss(torch.zeros(1, 3), torch.tensor([[1, 0, 0]]))
    tensor(2.0794)
    """
    return BinaryCrossEntropyLoss(reduction=reduction)(input, target, sample_weight)


def check_indicator(input, target):
    """Raise unless `target` is an indicator, of zeros and ones, of the shape of `input`."""
    check_scores(input)
    check_tensor(target, "target")
    if target.shape != input.shape:
        raise ValueError(
            "target must be an indicator of the labels, of the shape of input, "
            f"{tuple(input.shape)}, got {tuple(target.shape)}."
        )
    # On an accelerator looking at the values would wait for the device.
    if target.device.type != "cpu" or target.dtype == torch.bool or not target.numel():
        return
    if not is_eager(target):
        return
    # NumPy knows no bfloat16.
    values = (target.float() if target.dtype == torch.bfloat16 else target).detach().numpy()
    if np.count_nonzero(values == 1) != np.count_nonzero(values != 0):
        raise ValueError("target must be an indicator of the labels: only zeros and ones.")


class _ProjectionLoss(SetLoss):
    """Base of the losses by projections, with a margin."""

    def __init__(self, reduction="mean", margin=1.0):
        super().__init__(reduction)
        check_number("margin", margin, 0, inclusive=False)
        self.margin = margin

    def scores(self, output):
        """Return the scores in units of the margin, as they are projected."""
        return output if self.margin == 1 else output / self.margin

    def sample_losses(self, input, target):
        losses = fenchel_young_loss(self.scores(input), target, self._shared)
        return losses if self.margin == 1 else losses * self.margin


class SparseTopLoss(_ProjectionLoss, name="sparse_top"):
    r"""Fenchel-Young loss of the projection on the top-K simplex, for label sets.

    Its gradient is the projection with :math:`K = |Y|` minus the indicator of the set Y
    [1]_, eq. (6.24)-(6.25):

    .. math:: \nabla_s \ell(s, Y) = \operatorname{sparse\text{-}top}(|Y|, s / m) - \mathbb{1}_Y.

    It is convex and non-negative, and zero if and only if every label of Y scores at least
    the margin m above every other. A sample without labels, or with all of them, has loss zero.

    Parameters
    ----------
    reduction : {"mean", "sum", "none"}, default="mean"
    margin : float, default=1.0
        How far labels are to score above the others: the weight of the squared norm that makes
        the projection [2]_. 1 is the loss of [1]_; estimators project scores in units of it.

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023, Section 6.2.
    .. [2] Blondel, Martins and Niculae, "Learning with Fenchel-Young losses", JMLR 2020.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import SparseTopLoss
    >>> scores = torch.tensor([[2.0, 0.5, 0.0, -1.0]], requires_grad=True)
    >>> loss = SparseTopLoss()(scores, torch.tensor([[1, 1, 0, 0]]))
    >>> loss
    tensor(0.0625, grad_fn=<MeanBackward0>)
    >>> loss.backward()
    >>> scores.grad
    tensor([[ 0.0000, -0.2500,  0.2500,  0.0000]])
    """

    ranked_by = "probabilities"
    _shared = False

    targets = ("indicator",)

    def check(self, input, target):
        check_indicator(input, target)


class SparsemaxLoss(_ProjectionLoss, name="sparsemax"):
    r"""Fenchel-Young loss of the projection on the probability simplex.

    Its gradient is ``sparsemax(s / m) - p`` with the margin m, where p is the indicator of the
    class [1]_, eq. (6.11)-(6.12), or, for label sets, the indicator divided by the number of
    labels [2]_. A sample without labels has loss zero.

    Parameters
    ----------
    reduction : {"mean", "sum", "none"}, default="mean"
    margin : float, default=1.0
        As in :class:`SparseTopLoss`.

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023.
    .. [2] Martins and Astudillo, "From softmax to sparsemax", ICML 2016, Section 3.4.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import SparsemaxLoss
    >>> scores = torch.tensor([[0.5, 0.0, -2.0]])
    >>> SparsemaxLoss()(scores, torch.tensor([0]))
    tensor(0.0625)
    >>> SparsemaxLoss()(scores, torch.tensor([[1, 1, 0]]))
    tensor(0.0625)
    """

    ranked_by = "shares"
    _shared = True

    targets = ("label", "indicator")

    def check(self, input, target):
        check_tensor(target, "target")
        check = check_scores_and_target if target.ndim == 1 else check_indicator
        check(input, target)


class BinaryCrossEntropyLoss(SetLoss, name="bce"):
    r"""Cross-entropy of each label against the rest, summed over the labels.

    .. math:: \ell(s, Y) = -\sum_{j \in Y} \log \sigma(s_j)
              - \sum_{j \notin Y} \log (1 - \sigma(s_j)).

    Parameters
    ----------
    reduction : {"mean", "sum", "none"}, default="mean"

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023, eq. (6.3).

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import BinaryCrossEntropyLoss
    >>> BinaryCrossEntropyLoss()(torch.tensor([[9.0, -9.0]]), torch.tensor([[1, 0]]))
    tensor(0.0002)
    """

    targets = ("indicator",)

    def check(self, input, target):
        check_indicator(input, target)

    def sample_losses(self, input, target):
        return -F.logsigmoid(torch.where(target.bool(), input, -input)).sum(1)

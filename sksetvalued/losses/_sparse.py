"""Losses whose gradient is a sparse projection, and the multi-label cross-entropy."""

import numpy as np
import torch
from torch.nn import functional as F

from ..operators._dispatch import is_eager
from ..operators.projection import fenchel_young_loss
from ._base import SetLoss, check_scores, check_scores_and_target, check_tensor

__all__ = ["BinaryCrossEntropyLoss", "SparseTopLoss", "SparsemaxLoss"]


def sparsemax_loss(input, target, reduction="mean", sample_weight=None):
    """Compute the sparsemax loss; see :class:`SparsemaxLoss`.

    Parameters
    ----------
    input : Tensor of shape (n_samples, n_classes)
    target : LongTensor of shape (n_samples,), or Tensor of shape (n_samples, n_classes)
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional

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
    return SparsemaxLoss(reduction=reduction)(input, target, sample_weight)


def sparse_top_loss(input, target, reduction="mean", sample_weight=None):
    """Compute the sparse-top loss; see :class:`SparseTopLoss`.

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
    >>> from sksetvalued.losses.functional import sparse_top_loss
    >>> sparse_top_loss(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1, 1, 0]]))
    tensor(0.)
    """
    return SparseTopLoss(reduction=reduction)(input, target, sample_weight)


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


class SparseTopLoss(SetLoss, name="sparse_top"):
    r"""Fenchel-Young loss of the projection on the top-K simplex, for label sets.

    Its gradient is the projection with :math:`K = |Y|` minus the indicator of the set Y
    [1]_, eq. (6.24)-(6.25):

    .. math:: \nabla_s \ell(s, Y) = \operatorname{sparse\text{-}top}(|Y|, s) - \mathbb{1}_Y.

    It is convex and non-negative, and zero if and only if every label of Y scores at least
    one above every other. A sample without labels, or with all of them, has loss zero.

    Parameters
    ----------
    reduction : {"mean", "sum", "none"}, default="mean"

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023, Section 6.2.

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

    targets = ("indicator",)

    def check(self, input, target):
        check_indicator(input, target)

    def sample_losses(self, input, target):
        return fenchel_young_loss(input, target, shared=False)


class SparsemaxLoss(SetLoss, name="sparsemax"):
    r"""Fenchel-Young loss of the projection on the probability simplex.

    Its gradient is ``sparsemax(s) - p``, where p is the indicator of the class [1]_,
    eq. (6.11)-(6.12), or, for label sets, the indicator divided by the number of labels
    [2]_. A sample without labels has loss zero.

    Parameters
    ----------
    reduction : {"mean", "sum", "none"}, default="mean"

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

    targets = ("label", "indicator")

    def check(self, input, target):
        check_tensor(target, "target")
        check = check_scores_and_target if target.ndim == 1 else check_indicator
        check(input, target)

    def sample_losses(self, input, target):
        return fenchel_young_loss(input, target, shared=True)


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

"""Losses whose gradient is a sparse projection, and the multi-label cross-entropy."""

import numpy as np
import torch
from torch.nn import functional as F

from ..operators._compiled import fits_compiled
from ..operators._compiled_sparse import FenchelYoung as CompiledFenchelYoung
from ..operators._compiled_sparse import as_point
from ..operators._sparse import project_on_top_k_simplex, sparse_top
from ..operators._triton import fits_kernels
from ._base import SetLoss, check_scores, check_scores_and_target

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
    if target.shape != input.shape:
        raise ValueError(
            "target must be an indicator of the labels, of the shape of input, "
            f"{tuple(input.shape)}, got {tuple(target.shape)}."
        )
    # On an accelerator looking at the values would wait for the device.
    if target.device.type != "cpu" or target.dtype == torch.bool or not target.numel():
        return
    if torch.compiler.is_compiling():
        return
    # NumPy knows no bfloat16.
    values = (target.float() if target.dtype == torch.bfloat16 else target).detach().numpy()
    if np.count_nonzero(values == 1) != np.count_nonzero(values != 0):
        raise ValueError("target must be an indicator of the labels: only zeros and ones.")


class _FenchelYoung(torch.autograd.Function):
    r"""Loss of the scores s against a point p of the top-K simplex.

    With d = s - threshold and q = clip(d, 0, 1) the projection, the Fenchel-Young loss of
    :math:`|q|^2/2` is :math:`\sum_j (q_j - p_j)^2 / 2 + (q_j - p_j)(d_j - q_j)`, in which no
    term is negative and no large numbers cancel.
    """

    @staticmethod
    def forward(ctx, scores, point, k):
        rows = scores.contiguous()
        q, columns, reference, threshold = project_on_top_k_simplex(rows, k)
        threshold = threshold.to(scores.dtype)
        if columns is not None and scores.device.type == "cpu":
            point = point.contiguous()
            places = torch.from_numpy(np.flatnonzero(point.detach().numpy() != 0))
            ctx.save_for_backward(scores, point, q, columns, k, places)
            return _sparse_loss(rows, point, columns, reference, threshold, places)
        ctx.save_for_backward(scores, point, q, columns, k)
        beyond = (scores - reference).sub_(threshold)
        clipped = beyond.clamp(0, 1)
        # Where k is 0 the threshold is any above the scores, and all gaps are 0. A score of -inf
        # is raised, as its product with a gap of 0 would be NaN.
        beyond.sub_(clipped).clamp_(min=torch.finfo(scores.dtype).min)
        gap = clipped.sub_(point)
        losses = beyond.add_(gap, alpha=0.5).mul_(gap).sum(1)
        # The loss of a label of score -inf overflows, also where p is one over many.
        return losses.mul_(2.0**24).div_(2.0**24)

    @staticmethod
    def backward(ctx, grad):
        scores, point, q, columns, k, *places = ctx.saved_tensors
        grad = grad[:, None]
        if torch.is_grad_enabled():
            return grad * (sparse_top(scores, k) - point), None, None
        if columns is None:
            return grad * (q - point), None, None
        if not places:
            return (point * -grad).scatter_add_(1, columns, grad * q), None, None
        result = torch.zeros_like(point).scatter_(1, columns, grad * q)
        rows = torch.div(places[0], point.shape[1], rounding_mode="floor")
        own = point.view(-1)[places[0]] * grad[rows, 0]
        result.view(-1).index_add_(0, places[0], own, alpha=-1)
        return result, None, None


def _sparse_loss(scores, point, columns, reference, threshold, places):
    """Return the loss of each sample from the entries where q or p is not zero.

    `places` are those of the flattened p; `columns` hold all entries with q > 0.
    """
    d = scores.gather(1, columns).sub_(reference).sub_(threshold)
    q = d.clamp(0, 1)
    gap = q - point.gather(1, columns)
    terms = d.sub(q).add_(gap, alpha=0.5).mul_(gap)
    losses = terms.masked_fill_(d <= 0, 0).sum(1)
    rows = torch.div(places, scores.shape[1], rounding_mode="floor")
    d = scores.view(-1)[places].sub_(reference[rows, 0]).sub_(threshold[rows, 0])
    p = point.view(-1)[places]
    return losses.index_add_(0, rows, (p / 2 - d).mul_(p).mul_(d <= 0))


def _fenchel_young(scores, target, shared):
    """Return the loss against classes or indicators, whose labels may share one unit."""
    on_accelerator = fits_kernels(scores)
    if not on_accelerator and fits_compiled(scores):
        return CompiledFenchelYoung.apply(scores, target, shared)
    point, k = as_point(target, scores, shared)
    if on_accelerator:
        from ..operators._triton_sparse import FenchelYoung

        return FenchelYoung.apply(scores, point, k)
    return _FenchelYoung.apply(scores, point, k)


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

    shift_invariant = True

    targets = ("indicator",)

    def check(self, input, target):
        check_indicator(input, target)

    def sample_losses(self, input, target):
        return _fenchel_young(input, target, shared=False)


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

    shift_invariant = True

    targets = ("label", "indicator")

    def check(self, input, target):
        check = check_scores_and_target if target.ndim == 1 else check_indicator
        check(input, target)

    def sample_losses(self, input, target):
        return _fenchel_young(input, target, shared=True)


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
        return F.binary_cross_entropy_with_logits(
            input, target.to(input.dtype), reduction="none"
        ).sum(1)

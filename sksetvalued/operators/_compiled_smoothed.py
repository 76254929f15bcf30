"""The smoothed hinge loss by kernels compiled for the processor."""

import torch

from . import _compiled
from ._tilting import smoothed_hinge_by_products

#: Largest rank, from either end, that the kernels have room for.
MAX_RANK = 0 if _compiled.kernels is None else _compiled.kernels.most_rank


class SmoothedHinge(torch.autograd.Function):
    """Do what :class:`sksetvalued.operators._tilting.SmoothedHinge` does, in one pass each way.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
        In single precision.
    target : LongTensor of shape (n_samples, 1)
    k : int, in [1, n_classes - 1]
    tau, margin : float
    """

    @staticmethod
    def forward(ctx, scores, target, k, tau, margin):
        rows, target = scores.contiguous(), target.contiguous()
        n_rows, n_classes = rows.shape
        losses = rows.new_empty(n_rows)
        saved = rows.new_empty(n_rows, _compiled.kernels.smoothed_width(n_classes, k))
        n_bad = _compiled.kernels.smoothed_rows(
            rows.data_ptr(),
            target.data_ptr(),
            n_rows,
            n_classes,
            k,
            tau,
            margin,
            losses.data_ptr(),
            saved.data_ptr(),
        )
        if n_bad:
            raise ValueError(f"target must lie in [0, {n_classes - 1}].")
        ctx.save_for_backward(scores, target, saved)
        ctx.parameters = k, tau, margin
        return losses

    @staticmethod
    def backward(ctx, grad):
        scores, target, saved = ctx.saved_tensors
        k, tau, margin = ctx.parameters
        if torch.is_grad_enabled() or not _compiled.fits_compiled(grad):
            create_graph = torch.is_grad_enabled()
            with torch.enable_grad():
                values = smoothed_hinge_by_products(scores, target, k, tau, margin)
                result = torch.autograd.grad(values, scores, grad, create_graph=create_graph)[0]
            return result, None, None, None, None
        rows = scores.contiguous()
        result = torch.empty_like(rows)
        _compiled.kernels.smoothed_gradient_rows(
            grad.data_ptr(),
            grad.stride(0),
            rows.data_ptr(),
            target.data_ptr(),
            saved.data_ptr(),
            *rows.shape,
            k,
            tau,
            result.data_ptr(),
        )
        return result, None, None, None, None

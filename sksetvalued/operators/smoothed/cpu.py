"""The smoothed hinge loss by kernels compiled for the processor."""

import torch

from .. import _dispatch
from . import reference


class SmoothedHinge(torch.autograd.Function):
    """Do what :func:`.reference.smoothed_hinge` does, in one pass each way.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
        In single precision.
    target : LongTensor of shape (n_samples,)
    k : int, in [1, n_classes - 1]
    tau, margin : float
    """

    @staticmethod
    def forward(ctx, scores, target, k, tau, margin):
        rows, target = scores.contiguous(), target.contiguous()
        n_rows, n_classes = rows.shape
        losses = rows.new_empty(n_rows)
        saved = rows.new_empty(n_rows, _dispatch.kernels.smoothed_width(n_classes, k))
        n_bad = _dispatch.kernels.smoothed_rows(
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
        if _dispatch.needs_reference(grad):
            result = reference.gradient(grad, scores, target, k, tau, margin)
            return result, None, None, None, None
        rows = scores.contiguous()
        result = torch.empty_like(rows)
        _dispatch.kernels.smoothed_gradient_rows(
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

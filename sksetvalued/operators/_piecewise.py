"""Gradients of piecewise linear functions of few scores."""

import torch


class PiecewiseLinear(torch.autograd.Function):
    """Values computed beforehand, with the derivatives that belong to them.

    The gradient has few non-zero entries and is written once, whatever the number of operations
    that led to the values; it is linear in the incoming one, so it can be differentiated again.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
    values : Tensor of shape (n_samples,)
    indices : LongTensor of shape (n_samples, n_selected)
        Classes on which the values depend; repeated ones add up.
    slopes : Tensor of shape (n_samples, n_selected)
        Derivatives of the values in their scores.
    """

    @staticmethod
    def forward(ctx, scores, values, indices, slopes):
        ctx.save_for_backward(indices, slopes)
        ctx.shape = scores.shape
        return values

    @staticmethod
    def backward(ctx, grad):
        indices, slopes = ctx.saved_tensors
        slopes = grad.unsqueeze(1) * slopes
        return slopes.new_zeros(ctx.shape).scatter_add_(1, indices, slopes), None, None, None

"""The noised and the calibrated hinge by the compiled kernels."""

import torch

from ..operators._compiled import fits_compiled, kernels
from ._base import check_range


class CompiledHinge(torch.autograd.Function):
    """scale * max(0, margin + mean of the k-th largest noised scores - score of the target).

    What its backward pass needs has the size of the draws, not of the scores.
    """

    @staticmethod
    def forward(ctx, scores, target, margin, k, epsilon, n_draws, scale, seed):
        """Return the loss of each sample.

        Parameters
        ----------
        scores : Tensor of shape (n_samples, n_classes)
        target : LongTensor of shape (n_samples,)
        margin : float or Tensor of shape (n_samples,)
        k : int
        epsilon : float
            Standard deviation of the noise; 0 for none.
        n_draws : int
        scale : float
        seed : int
            Of the noise.
        """
        scores, target = scores.contiguous(), target.contiguous()
        n_samples, n_classes = scores.shape
        losses, slopes = scores.new_empty(n_samples), scores.new_empty(n_samples)
        indices = target.new_empty(n_samples, n_draws + 1)
        margins = margin.to(torch.float32).contiguous() if torch.is_tensor(margin) else None
        n_bad = kernels.hinge_rows(
            scores.data_ptr(),
            target.data_ptr(),
            0 if margins is None else margins.data_ptr(),
            n_samples,
            n_classes,
            k,
            n_draws,
            epsilon,
            scale,
            margin if margins is None else 0.0,
            seed,
            losses.data_ptr(),
            slopes.data_ptr(),
            indices.data_ptr(),
        )
        if n_bad:
            check_range(scores, target)
        ctx.n_classes = n_classes
        ctx.save_for_backward(indices, slopes)
        return losses

    @staticmethod
    def backward(ctx, grad):
        indices, slopes = ctx.saved_tensors
        n_samples, n_chosen = indices.shape
        if torch.is_grad_enabled() or not fits_compiled(grad):
            shares = slopes.new_full((n_chosen,), 1 / (n_chosen - 1))
            shares[-1] = -1
            each = (grad * slopes).unsqueeze(1) * shares
            result = each.new_zeros(n_samples, ctx.n_classes).scatter_add(1, indices, each)
        else:
            result = slopes.new_empty(n_samples, ctx.n_classes)
            kernels.hinge_gradient_rows(
                grad.data_ptr(),
                grad.stride(0),
                slopes.data_ptr(),
                indices.data_ptr(),
                n_samples,
                ctx.n_classes,
                n_chosen - 1,
                result.data_ptr(),
            )
        return result, *[None] * 7

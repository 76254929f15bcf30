"""The noised top-k and its hinge by the kernels compiled for the processor.

Rows that hold a NaN have the class of the NaN, or a loss of NaN without gradient.
"""

import functools

import torch

from .._dispatch import kernels, needs_reference

#: Noise whose square, or that of its inverse, a number in single precision may not hold.
_LEAST_NOISE, _MOST_NOISE = 1e-15, 1e15


def takes(epsilon):
    """Return whether the kernels can add noise of this standard deviation."""
    return epsilon == 0 or _LEAST_NOISE < epsilon < _MOST_NOISE


def draw_seed(generator):
    """Draw the seed that a kernel makes its noise from."""
    return int(torch.randint(2**63 - 1, (), generator=generator, device="cpu"))


def select(scores, k, epsilon, n_draws, generator=None, all_k=False):
    """Find the classes that noise, of a positive deviation, puts at rank k, or at 1 to k.

    Returns
    -------
    indices, normals : Tensors of shape (n_samples, n_draws, k or 1)
        In no particular order of the ranks.
    """
    scores = scores.contiguous()
    n_samples, n_classes = scores.shape
    shape = (n_samples, n_draws, k if all_k else 1)
    indices = scores.new_empty(shape, dtype=torch.int64)
    normals = scores.new_empty(shape)
    kernels.select_rows(
        scores.data_ptr(),
        n_samples,
        n_classes,
        k,
        n_draws,
        epsilon,
        draw_seed(generator),
        all_k,
        indices.data_ptr(),
        normals.data_ptr(),
    )
    return indices, normals


class NoisedHinge(torch.autograd.Function):
    """The weighted sum of the noised hinges of some ranks, of which one selection gives all.

    What its backward pass needs has the size of the draws, not of the scores.
    """

    @staticmethod
    def forward(ctx, scores, target, ranks, margin, epsilon, n_draws, scale, seed):
        """Return the loss of each sample.

        Parameters
        ----------
        scores : Tensor of shape (n_samples, n_classes)
        target : LongTensor of shape (n_samples,)
        ranks : tuple of (int, float)
            Ranks r, increasing, whose hinges are on the r + 1 largest, and their weights.
        margin : float or Tensor of shape (n_samples,)
        epsilon : float
            Standard deviation of the noise; 0 for none.
        n_draws : int
        scale : float
        seed : int
            Of the noise.
        """
        scores, target = scores.contiguous(), target.contiguous()
        n_samples, n_classes = scores.shape
        n_ranks = len(ranks)
        losses, slopes = scores.new_empty(n_samples), scores.new_empty(n_samples, n_ranks)
        indices = target.new_empty(n_samples, n_draws * n_ranks + 1)
        margins = margin.to(torch.float32).contiguous() if torch.is_tensor(margin) else None
        places, weights = _as_tensors(ranks)
        n_bad = kernels.hinge_rows(
            scores.data_ptr(),
            target.data_ptr(),
            0 if margins is None else margins.data_ptr(),
            places.data_ptr(),
            weights.data_ptr(),
            n_ranks,
            n_samples,
            n_classes,
            n_draws,
            epsilon,
            scale,
            margin if margins is None else 0.0,
            seed,
            losses.data_ptr(),
            slopes.data_ptr(),
            indices.data_ptr(),
        )
        _check(n_bad, target, n_classes)
        ctx.n_classes = n_classes
        ctx.save_for_backward(indices, slopes)
        return losses

    @staticmethod
    def backward(ctx, grad):
        indices, slopes = ctx.saved_tensors
        n_samples, n_ranks = slopes.shape
        if needs_reference(grad):
            result = _spread(grad, slopes, indices, ctx.n_classes)
        else:
            result = slopes.new_empty(n_samples, ctx.n_classes)
            kernels.hinge_gradient_rows(
                grad.data_ptr(),
                grad.stride(0),
                slopes.data_ptr(),
                indices.data_ptr(),
                n_samples,
                ctx.n_classes,
                (indices.shape[1] - 1) // n_ranks,
                n_ranks,
                result.data_ptr(),
            )
        return result, *[None] * 7


@functools.lru_cache(maxsize=64)
def _as_tensors(ranks):
    """Return, for the kernel, the ranks of the scores that the hinges are on, and the weights."""
    places = torch.tensor([rank + 1 for rank, _ in ranks], device="cpu")
    return places, torch.tensor([w for _, w in ranks], dtype=torch.float64, device="cpu")


def _check(n_bad, target, n_classes):
    if n_bad:
        raise ValueError(
            f"target must lie in [0, {n_classes - 1}] for scores of {n_classes} classes, got "
            f"values in [{target.min()}, {target.max()}]."
        )


def _spread(grad, slopes, indices, n_classes):
    """Return the gradient in the scores by operations that can be differentiated.

    Parameters
    ----------
    grad : Tensor of shape (n_samples,)
    slopes : Tensor of shape (n_samples, n_ranks)
    indices : LongTensor of shape (n_samples, n_draws * n_ranks + 1)
    n_classes : int
    """
    n_draws = (indices.shape[1] - 1) // slopes.shape[1]
    slopes = grad.unsqueeze(1) * slopes
    shares = (slopes / n_draws).repeat(1, n_draws)
    each = torch.cat([shares, -slopes.sum(1, keepdim=True)], dim=1)
    return each.new_zeros(len(indices), n_classes).scatter_add(1, indices, each)

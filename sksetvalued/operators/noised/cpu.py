"""The noised top-k and its hinge by the kernels compiled for the processor.

Rows that hold a NaN have the class of the NaN, or a loss of NaN without gradient.
"""

import torch

from .._backends import check_classes, draw_key
from .._dispatch import kernels
from . import reference

#: Noise whose square, or that of its inverse, a number in single precision may not hold.
_LEAST_NOISE, _MOST_NOISE = 1e-15, 1e15


def takes(epsilon):
    """Return whether the kernels can add noise of this standard deviation."""
    return epsilon == 0 or _LEAST_NOISE < epsilon < _MOST_NOISE


def select(scores, k, epsilon, n_draws, generator=None, all_k=False):
    """Do what :func:`..select_noised` does, where noise of a positive deviation is drawn.

    The ranks are in no particular order.
    """
    shape = (len(scores), n_draws, k if all_k else 1)
    indices = scores.new_empty(shape, dtype=torch.int64)
    normals = scores.new_empty(shape)
    noise = n_draws, epsilon, draw_key(generator)
    given = scores.contiguous(), *scores.shape, k, *noise, all_k
    kernels.select_rows(*given, indices, normals)
    return indices, normals


class NoisedHinge(reference.SelectedHinge):
    """By the kernels; the arguments are those of :func:`..noised_hinge`, with a `seed`."""

    @staticmethod
    def compute(scores, target, ranks, margin, epsilon, n_draws, scale, seed):
        scores, target = scores.contiguous(), target.contiguous()
        n_samples, n_classes = scores.shape
        losses, slopes = scores.new_empty(n_samples), scores.new_empty(n_samples, len(ranks))
        indices = target.new_empty(n_samples, n_draws * len(ranks) + 1)
        margins = margin.to(torch.float32).contiguous() if torch.is_tensor(margin) else None
        given = scores, target, margins, ranks, n_samples, n_classes, n_draws
        numbers = epsilon, scale, margin if margins is None else 0.0, seed
        n_wrong = kernels.hinge_rows(*given, *numbers, losses, slopes, indices)
        check_classes(n_wrong, target, n_classes)
        return losses, (slopes, indices), n_classes

    @staticmethod
    def gradient(grad, slopes, indices, n_classes):
        n_samples, n_ranks = slopes.shape
        result = slopes.new_empty(n_samples, n_classes)
        sizes = n_samples, n_classes, (indices.shape[1] - 1) // n_ranks, n_ranks
        kernels.hinge_gradient_rows(grad, grad.stride(0), slopes, indices, *sizes, result)
        return result

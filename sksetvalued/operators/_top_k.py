"""Exact top-k in two stages."""

import math

import numpy as np
import torch

from ._dispatch import choose, kernels

#: Up to so many classes torch selects as fast as the kernel.
_FEW_CLASSES = 128
#: Below so many classes a plain selection is as good as two stages.
_MANY_CLASSES = 4096


def top_k(scores, k):
    """Return the k largest scores of each row, in decreasing order, and their classes.

    Both are of shape (n_samples, k). Scores are detached, or given where no graph is recorded.
    """
    n_samples, n_classes = scores.shape
    k = int(k)
    if n_classes <= _FEW_CLASSES or 4 * k >= n_classes or choose("top_k", scores) != "cpu":
        return top_k_by_blocks(scores, k)
    scores = scores.contiguous()
    values = scores.new_empty(n_samples, k)
    indices = scores.new_empty(n_samples, k, dtype=torch.int64)
    kernels.largest_rows(scores, n_samples, n_classes, k, values, indices)
    return values, indices


def top_k_by_blocks(scores, k):
    """Do what :func:`top_k` does, for scores of shape (..., n_classes), by operations of torch.

    Of many classes only the k blocks with the largest maxima are searched: they hold the k
    largest scores. Block b of n holds classes b, b + n, b + 2 n, ... so that maxima run over
    contiguous rows; the last classes are in no block.
    """
    n_classes = scores.shape[-1]
    k = int(k) if isinstance(k, np.integer) else k  # whose products may overflow
    n_blocks = int(math.sqrt(4 * k * n_classes)) // 16 * 16  # isqrt cannot be traced
    if not scores.is_cpu or n_classes < _MANY_CLASSES or 4 * n_blocks > n_classes:
        return torch.topk(scores, k, dim=-1)
    size = n_classes // n_blocks
    blocks = scores[..., : n_blocks * size].unflatten(-1, (size, n_blocks))
    best = torch.topk(blocks.amax(dim=-2), k, dim=-1).indices
    members = (best.unsqueeze(-1) + n_blocks * torch.arange(size, device="cpu")).flatten(-2)
    rest = torch.arange(n_blocks * size, n_classes, device="cpu").expand(*scores.shape[:-1], -1)
    members = torch.cat([members, rest], dim=-1)
    values, places = torch.topk(scores.gather(-1, members), k, dim=-1)
    return values, members.gather(-1, places)

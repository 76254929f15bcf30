"""Exact top-k in two stages."""

import math

import numpy as np
import torch

from ._dispatch import choose, kernels

#: Up to so many classes torch selects as fast as the kernel.
_FEW_CLASSES = 128
#: Below so many classes a plain selection is as good as two stages.
_MANY_CLASSES = 4096
#: Entries that are copied together.
_AT_ONCE = 1 << 16


def _on_numpy(values):
    """Return `values` for NumPy, which partitions rows faster than torch; None where it cannot."""
    if not values.is_cpu or torch.compiler.is_compiling():
        return None
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    return None if transformed else values.detach().numpy()


def k_largest(values, k):
    """Return the places of the k largest entries of each row, in no particular order.

    Parameters
    ----------
    values : Tensor of shape (..., n)
        Not differentiated.
    k : int, in [1, n]

    Returns
    -------
    LongTensor of shape (..., k)
    """
    rows = _on_numpy(values)
    if rows is None:
        return torch.topk(values.detach(), k, dim=-1, sorted=False).indices
    rows = rows.reshape(-1, rows.shape[-1])
    step = max(1, _AT_ONCE // rows.shape[1])
    parts = [_places_of_k_largest(rows[i : i + step], k) for i in range(0, len(rows), step)]
    places = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
    return torch.from_numpy(places).view(*values.shape[:-1], k)


def _places_of_k_largest(rows, k):
    n = rows.shape[1]
    kth = np.partition(rows, n - k, axis=1)[:, n - k : n - k + 1]
    places = np.flatnonzero(~(rows < kth))
    # More where others tie with the k-th, or where that is NaN.
    if len(places) != k * len(rows):
        return rows.argpartition(n - k, axis=1)[:, n - k :]
    places %= n
    return places.reshape(-1, k)


def block_maxima(scores, size):
    """Return the maxima over blocks of classes and the number of blocks.

    Block b holds classes b, b + n_blocks, b + 2 n_blocks, ... (`size` of them): the maximum then
    runs over whole contiguous rows. The last ``n_classes % size`` classes are in no block.
    """
    n_samples, n_classes = scores.shape
    n_blocks = n_classes // size
    blocks = scores[:, : n_blocks * size].reshape(n_samples, size, n_blocks)
    return blocks.amax(dim=1), n_blocks


def block_members(blocks, n_blocks, size):
    """Return the classes of the chosen `blocks`, row by row."""
    offsets = torch.arange(size, device=blocks.device) * n_blocks
    return (blocks.unsqueeze(-1) + offsets).flatten(1)


def classes_in_no_block(n_blocks, size, scores):
    """Return the classes that blocks of `size` leave over, for each row of `scores`."""
    n_samples, n_classes = scores.shape
    return torch.arange(n_blocks * size, n_classes, device=scores.device).expand(n_samples, -1)


def top_k(scores, k):
    """Return the k largest scores of each row, in decreasing order, and their classes.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
        Detached, or given where no graph is recorded.
    k : int, in [1, n_classes]

    Returns
    -------
    values, indices : Tensors of shape (n_samples, k)
    """
    n_samples, n_classes = scores.shape
    if n_classes <= _FEW_CLASSES or 4 * k >= n_classes or choose("top_k", scores) != "cpu":
        return top_k_by_blocks(scores, k)
    scores = scores.contiguous()
    values = scores.new_empty(n_samples, k)
    indices = scores.new_empty(n_samples, k, dtype=torch.int64)
    kernels.largest_rows(
        scores.data_ptr(), n_samples, n_classes, k, values.data_ptr(), indices.data_ptr()
    )
    return values, indices


def top_k_by_blocks(scores, k):
    """Do what :func:`top_k` does, for scores of shape (..., n_classes), by operations of torch.

    Of many classes only the k blocks with the largest maxima are searched: they hold the k
    largest scores. Block b of n holds classes b, b + n, b + 2 n, ... so that maxima run over
    contiguous rows; the last classes are in no block.
    """
    n_classes = scores.shape[-1]
    n_blocks = math.isqrt(4 * k * n_classes) // 16 * 16
    if not scores.is_cpu or n_classes < _MANY_CLASSES or 4 * n_blocks > n_classes:
        return torch.topk(scores, k, dim=-1)
    size = n_classes // n_blocks
    blocks = scores[..., : n_blocks * size].unflatten(-1, (size, n_blocks))
    best = torch.topk(blocks.amax(dim=-2), k, dim=-1).indices
    members = (best.unsqueeze(-1) + n_blocks * torch.arange(size)).flatten(-2)
    rest = torch.arange(n_blocks * size, n_classes).expand(*scores.shape[:-1], -1)
    members = torch.cat([members, rest], dim=-1)
    values, places = torch.topk(scores.gather(-1, members), k, dim=-1)
    return values, members.gather(-1, places)

"""Exact top-k in two stages."""

import torch

#: From this many classes on, block maxima first cost less than a plain selection.
_MIN_CLASSES = 4096
_BLOCK = 32


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

    Of many classes only the k blocks with the largest maxima are searched: they hold the k
    largest scores.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
        Not differentiated.
    k : int, in [1, n_classes]

    Returns
    -------
    values, indices : Tensors of shape (n_samples, k)
    """
    scores = scores.detach()
    n_classes = scores.shape[1]
    if scores.device.type != "cpu" or n_classes < _MIN_CLASSES or k * _BLOCK * 2 > n_classes:
        return torch.topk(scores, k, dim=1)
    maxima, n_blocks = block_maxima(scores, _BLOCK)
    blocks = torch.topk(maxima, k, dim=1, sorted=False).indices
    members = block_members(blocks, n_blocks, _BLOCK)
    members = torch.cat([members, classes_in_no_block(n_blocks, _BLOCK, scores)], dim=1)
    values, order = torch.topk(scores.gather(1, members), k, dim=1)
    return values, members.gather(1, order)

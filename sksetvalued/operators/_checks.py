"""Checks of scores, shared by the operators and the losses that use them."""

import torch

from .._checks import check_positive_integer


def check_k(k, n_classes, largest=None):
    """Return `k` as an int; raise unless it lies in [1, `largest`], by default `n_classes`."""
    check_positive_integer("k", k)
    largest = n_classes if largest is None else largest
    if k > largest:
        raise ValueError(
            f"k must lie in [1, {largest}] for {n_classes} classes, got {k!r}; "
            "lower k or give scores of more classes."
        )
    return int(k)


def check_scores(scores):
    """Raise unless `scores` is a floating-point tensor with a dimension of classes."""
    if not isinstance(scores, torch.Tensor):
        raise TypeError(f"scores must be a tensor, got {type(scores).__name__}.")
    if scores.ndim == 0 or not scores.is_floating_point():
        raise ValueError(
            "scores must be a floating-point tensor of shape (..., n_classes), "
            f"got {scores.dtype} of shape {tuple(scores.shape)}."
        )


def own_scores(scores, target):
    """Return the score of the target of each row, of shape (n_samples, 1), or raise."""
    if target.device != scores.device:  # of one on the meta device, `gather` would make a number
        raise ValueError(
            f"target must be on the device of the scores, {scores.device}, got {target.device}."
        )
    return scores.gather(1, target.unsqueeze(1))

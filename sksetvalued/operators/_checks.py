"""Checks shared by the operators and the losses that use them."""

import numbers

import numpy as np
import torch

#: Numbers outside of these are 0 or infinite in single precision.
LARGEST_INTEGER = 2**31 - 1
SMALLEST, LARGEST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max


def check_positive_integer(name, value):
    """Raise unless `value` is an integer of at least 1."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value!r}.")
    if value > LARGEST_INTEGER:
        raise ValueError(f"{name} must be at most {LARGEST_INTEGER}, got {value!r:.50}.")


def check_number(name, value, low, inclusive):
    """Raise unless `value` is a number of single precision, at least (or above) `low`."""
    if not isinstance(value, int | float | np.number) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    if isinstance(value, complex | np.complexfloating):
        raise TypeError(f"{name} must be a real number, got {value!r}.")
    inside = value >= low if inclusive else value > low and value >= SMALLEST
    if not (inside and value <= LARGEST):
        bound = "at least" if inclusive else "above"
        raise ValueError(
            f"{name} must be finite and {bound} {low}, got {value!r:.50} in single precision."
        )


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


def check_in_order(values, name):
    """Raise if values come with names in another order than that of sorted classes."""
    index = getattr(values, "index", None)
    if hasattr(index, "is_monotonic_increasing") and not index.is_monotonic_increasing:
        raise ValueError(
            f"{name} must be in the order of the classes, but its index {index[:5].tolist()} is "
            f"not in order: use {name}.sort_index(), or an array."
        )

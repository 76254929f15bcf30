"""Checks shared by the operators and the losses that use them."""

import numbers


def check_positive_integer(name, value):
    """Raise unless `value` is an integer of at least 1."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value!r}.")


def check_number(name, value, low, inclusive):
    """Raise unless `value` is a finite number, at least (or above) `low`."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    if not (value >= low if inclusive else value > low) or value == float("inf"):
        bound = "at least" if inclusive else "above"
        raise ValueError(f"{name} must be finite and {bound} {low}, got {value!r}.")


def check_k(k, n_classes, largest=None):
    """Raise unless `k` is an integer in [1, `largest`], by default `n_classes`."""
    check_positive_integer("k", k)
    largest = n_classes if largest is None else largest
    if k > largest:
        raise ValueError(
            f"k must lie in [1, {largest}] for {n_classes} classes, got {k!r}; "
            "lower k or give scores of more classes."
        )


def check_scores(scores):
    """Raise unless `scores` is a floating-point tensor with a dimension of classes."""
    if scores.ndim == 0 or not scores.is_floating_point():
        raise ValueError(
            "scores must be a floating-point tensor of shape (..., n_classes), "
            f"got {scores.dtype} of shape {tuple(scores.shape)}."
        )

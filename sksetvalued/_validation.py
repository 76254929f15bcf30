"""Checks of scores, weights and sizes, and what undoes a fit that fails one.

The rules, the metrics and the estimators share them.
"""

import contextlib
from numbers import Real

import numpy as np

from ._arrays import as_array, as_numbers
from ._checks import check_integer
from ._warnings import warn_every_class

#: Sum of weights, at most: it is multiplied by numbers of classes.
LARGEST_SUM = 1e300
NO_WEIGHT = "sample_weight is zero for every sample; give one a positive weight."


@contextlib.contextmanager
def undone_if_raised(model):
    """Give an estimator or a rule back the attributes that it had, if something is raised.

    Yields them, a dict.
    """
    before = dict(vars(model))
    try:
        yield before
    except BaseException:
        vars(model).clear()
        vars(model).update(before)
        raise


def check_score_array(y_score, name="y_score"):
    """Return scores as a float array of shape (n_samples, n_classes), float32 kept.

    Raises
    ------
    ValueError
        If the shape is not two-dimensional, empty, or an entry is NaN or +inf. ``-inf``, the
        logarithm of a zero probability, is accepted.
    """
    y_score = as_score_array(y_score, name)
    check_score_values(y_score, name)
    return y_score


def as_score_array(y_score, name="y_score"):
    """Return scores as an array whose values have yet to be checked."""
    y_score = as_array(y_score, name)
    if y_score.dtype == bool:
        raise TypeError(
            f"{name} must hold scores, such as predict_proba gives, got booleans: sets are for "
            "set_coverage_score, average_set_size and SetReport."
        )
    single = y_score.dtype in (np.float16, np.float32)
    y_score = as_numbers(y_score, name, np.float32 if single else np.float64)
    if y_score.ndim != 2 or 0 in y_score.shape:
        raise ValueError(
            f"{name} must hold one row per sample and one column per class, of shape "
            f"(n_samples, n_classes) with at least one of each, got shape {y_score.shape}."
        )
    return y_score


def check_score_values(y_score, name="y_score"):
    """Raise if an entry is NaN or +inf."""
    if not y_score.max() < np.inf:
        raise ValueError(
            f"{name} contains NaN or +inf; scores must be finite (or -inf for a zero "
            "probability). Check the model that made them."
        )


def check_weights(sample_weight, n_samples, complete=True):
    """Return weights as a float64 array of shape (n_samples,), or None.

    Raises
    ------
    ValueError
        If the shape is wrong, a weight is negative or not finite, or all are zero, which those
        of a part of the samples may be (``complete=False``).
    """
    if sample_weight is None:
        return None
    weight = as_numbers(sample_weight, "sample_weight")
    if weight.shape != (n_samples,):
        raise ValueError(
            f"sample_weight must have shape ({n_samples},), one weight per sample, "
            f"got {weight.shape}."
        )
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise ValueError("sample_weight must be finite and >= 0; remove or clip the others.")
    if complete and not weight.any():
        raise ValueError(NO_WEIGHT)
    with np.errstate(over="ignore"):
        if not weight.sum() <= LARGEST_SUM:
            raise ValueError(
                f"sample_weight has a sum above {LARGEST_SUM:g}, so that its multiples are too "
                f"large for a float, got values up to {weight.max():g}: divide it by its mean."
            )
    return weight


def check_top_k(k, n_classes=None):
    """Raise unless `k` is an integer >= 1; warn if it takes in every class."""
    check_integer("k", k, 1, hint="k is the number of classes in a set")
    if n_classes is not None:
        warn_every_class(k, n_classes)


def check_average_k(k, n_classes=None):
    """Raise unless `k` is a positive real number; warn if it takes in every class."""
    if isinstance(k, bool) or not isinstance(k, Real):
        raise TypeError(f"k must be a real number > 0, got {k!r} of type {type(k).__name__}.")
    if not 0 < k < np.inf:
        raise ValueError(
            f"k must lie in (0, n_classes], got {k}; k is the average number of classes in a set."
        )
    if n_classes is not None:
        warn_every_class(k, n_classes)


def changed_parameters(wanted, fitted):
    """Return the parameters in which two estimators of one class differ, in words.

    Parameters
    ----------
    wanted, fitted : estimator

    Returns
    -------
    changes : list of (wanted, fitted)
        As ``("k=3", "k=2")``.
    """
    new, old = wanted.get_params(deep=False), fitted.get_params(deep=False)
    return [
        (_in_words(name, new[name]), _in_words(name, old[name]))
        for name in sorted(new)
        if new[name] is not old[name] and not np.array_equal(new[name], old[name])
    ]


def _in_words(name, value):
    return f"{name}={'<array>' if np.ndim(value) else repr(value)}"

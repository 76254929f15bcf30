"""Conformal thresholds: quantiles of the scores of true classes, corrected for finite samples."""

from bisect import bisect_left
from fractions import Fraction
from math import ceil, fsum, sqrt

import numpy as np

from .._average_size import running_sums

#: How near, as a part of it, a mean may be to an error to be compared by fractions.
NEAR = 1e-12
#: Sizes of classes, at most, whose fractions are added.
MOST_SIZES = 1000


def conformal_threshold(true_scores, weights, error):
    """Return the largest threshold that keeps the coverage of a fresh sample at 1 - error.

    That is the largest score t with (weight of the scores below t) + 1 <= error (n + 1), n being
    the sum of the weights; without weights, the floor((n + 1) error)-th smallest score. It is
    -inf where there is none.

    Parameters
    ----------
    true_scores, weights : ndarray of shape (n_samples,)
        Weights are positive.
    error : float
    """
    if not len(true_scores):
        return -np.inf
    scores, at = np.unique(true_scores, return_inverse=True)
    upto = running_sums(np.bincount(at, weights=weights))
    below = np.append(0.0, upto[:-1])
    # A ratio of integers is rounded to the very float that 0.35, or 1 / 3, is.
    n_valid = np.count_nonzero((below + 1) / (upto[-1] + 1) <= error * (1 + rounding(len(at))))
    return float(scores[n_valid - 1]) if n_valid else -np.inf


def rounding(n_weights):
    """Return what rounding may change of a sum of weights, as a part of it."""
    return (2 * sqrt(n_weights) + 32) * np.finfo(np.float64).eps


def counted(y, weights, n_classes):
    """Return the weight of each class; a whole number is one again that rounding changed."""
    counts = np.bincount(y, weights=weights, minlength=n_classes)
    whole = np.rint(counts)
    return np.where(np.abs(counts - whole) <= rounding(len(y)) * whole, whole, counts)


def class_thresholds(true_scores, y, weights, error, n_classes):
    """Return the conformal threshold of each class, -inf where it has too few samples.

    Parameters
    ----------
    true_scores, y, weights : ndarray of shape (n_samples,)
    error : float
    n_classes : int

    Returns
    -------
    thresholds : ndarray of shape (n_classes,)
    """
    order = np.argsort(y, kind="stable")
    ends = np.cumsum(np.bincount(y, minlength=n_classes))[:-1]
    parts = zip(np.split(true_scores[order], ends), np.split(weights[order], ends))
    return np.array([conformal_threshold(scores, w, error) for scores, w in parts])


def macro_threshold(true_scores, y, weights, error, n_classes):
    """Return the largest threshold that keeps the coverage averaged over classes at 1 - error.

    That is the largest score t for which the mean over classes of (N_y(t) + 1) / (n_y + 1) is at
    most `error`, N_y(t) being the weight of the scores of class y below t, and n_y that of all.
    It is -inf where there is none.

    Parameters
    ----------
    true_scores, y, weights : ndarray of shape (n_samples,)
        Weights are positive.
    error : float
    n_classes : int
    """
    counts = counted(y, weights, n_classes)

    def misses_too_often(score):
        below = np.bincount(y, weights=weights * (true_scores < score), minlength=n_classes)
        return misses_more(below, counts, error)

    scores = np.unique(true_scores)
    n_valid = bisect_left(scores, True, key=misses_too_often)
    return float(scores[n_valid - 1]) if n_valid else -np.inf


def misses_more(below, counts, error):
    """Return whether the mean of (below + 1) / (counts + 1) is more than `error`.

    Where the two are near each other, the mean is rounded once, as a ratio of integers is, but of
    classes of very many sizes, as those of weights are, whose exact sum would take hours.
    """
    mean = fsum((below + 1) / (counts + 1)) / len(counts)
    if abs(mean - error) > NEAR * error:
        return mean > error
    # Classes of one size share a denominator, which leaves few fractions to add.
    sizes, at = np.unique(counts, return_inverse=True)
    if len(sizes) > MOST_SIZES:
        return mean > error
    parts = np.bincount(at, weights=below + 1)
    terms = (exactly(part) / (exactly(size) + 1) for part, size in zip(parts, sizes))
    return float(sum(terms) / len(counts)) > error


def exactly(number):
    """Return the decimal number that a float is written as, as a fraction: 0.35 is 7/20."""
    return Fraction(repr(float(number)))


def samples_needed(error):
    """Return the fewest calibration samples for which a threshold exists."""
    n_samples = ceil(1 / exactly(error)) - 1
    # Where error is 1 / 3, which as a decimal is a little less.
    return n_samples - (n_samples > 0 and 1 / n_samples <= error)


def samples_missing(counts, error):
    """Return how many more samples the macro promise needs, given to the rarest classes.

    Parameters
    ----------
    counts : ndarray of shape (n_classes,)
        Calibration samples per class.
    error : float
    """
    counts, nothing = np.sort(counts), np.zeros(len(counts))

    def enough(n_samples):
        return not misses_more(nothing, n_samples, error)

    # Every class is filled up to a level, and as many as needed of the rarest by one more.
    levels = range(samples_needed(error) + 1)
    level = bisect_left(levels, True, key=lambda m: enough(np.maximum(counts, m)))
    before = np.maximum(counts, max(level - 1, 0))
    extra = np.minimum(np.maximum(counts, level) - before, 1.0)
    rarest = range(len(counts) + 1)
    at = np.arange(len(counts))
    n_raised = bisect_left(rarest, True, key=lambda m: enough(before + extra * (at < m)))
    return ceil((before + extra * (at < n_raised) - counts).sum())

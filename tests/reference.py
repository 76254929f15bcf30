"""Slow forms of the losses and operators, straight from their definitions.

Everything is written sample by sample, in NumPy and float64, with subsets enumerated.
"""

from itertools import combinations

import numpy as np
from scipy.integrate import trapezoid
from scipy.special import ndtr
from scipy.stats import norm


def kth_largest(s, k):
    return np.sort(s)[::-1][k - 1]


def top_k_hinge(s, y, k, margin):
    return max(0.0, margin + kth_largest(np.delete(s, y), k) - s[y])


def convex_top_k_hinge(s, y, k, margin):
    shifted = s + margin
    shifted[y] = s[y]
    return max(0.0, np.sort(shifted)[::-1][:k].mean() - s[y])


def calibrated_top_k_hinge(s, y, k, margin):
    return max(0.0, margin + kth_largest(s, k + 1) - s[y])


def noised_top_k_hinge(s, y, k, epsilon, noise, margin, scale=1.0):
    """Formula with `noise` of shape (n_noise_samples, n_classes)."""
    smoothed = np.mean([kth_largest(s + epsilon * z, k + 1) for z in noise])
    return scale * max(0.0, margin + smoothed - s[y])


def smoothed_top_k_hinge(s, y, k, tau, margin):
    """Both sums of Berrada et al. 2018, (9), term by term."""
    all_sets, with_y = [], []
    for subset in combinations(range(len(s)), k):
        score = s[list(subset)].sum() / (k * tau)
        all_sets.append(score + (margin / tau if y not in subset else 0.0))
        if y in subset:
            with_y.append(score)
    return tau * (log_sum_exp(all_sets) - log_sum_exp(with_y))


def log_sum_exp(values):
    values = np.asarray(values)
    return values.max() + np.log(np.exp(values - values.max()).sum())


def log_symmetric_polynomials(s, k):
    return np.array(
        [
            log_sum_exp([s[list(a)].sum() for a in combinations(range(len(s)), i)])
            for i in range(k + 1)
        ]
    )


def top_k_marginals(s, k):
    subsets = list(combinations(range(len(s)), k))
    logs = np.array([s[list(a)].sum() for a in subsets])
    weights = np.exp(logs - log_sum_exp(logs))
    marginals = np.zeros(len(s))
    for subset, weight in zip(subsets, weights):
        marginals[list(subset)] += weight
    return marginals


def cross_entropy(s, y):
    return log_sum_exp(s) - s[y]


# The k-th largest of independent normals, by quadrature.


def exceedances(tails, most=None):
    """Return the law of the number of successes of independent trials, up to `most`.

    `tails` are their probabilities, of shape (n_points, n_classes).
    """
    most = tails.shape[1] if most is None else most
    law = np.zeros((most + 1, len(tails)))
    law[0] = 1.0
    for p in np.ascontiguousarray(tails.T):
        law[1:] = law[1:] * (1 - p) + law[:-1] * p
        law[0] *= 1 - p
    return law.T


def noised_rank_cdf(s, k, epsilon, t):
    """P(top_k(s + epsilon Z) <= t): fewer than k classes exceed t."""
    tails = ndtr((s - np.asarray(t)[:, None]) / epsilon)
    return exceedances(tails, k - 1).sum(axis=1)


def noised_rank_probabilities(s, k, epsilon, n_points=4001):
    """P(class j is k-th of s + epsilon Z): its density at t, times k - 1 others above t."""
    t = np.linspace(s.min() - 10 * epsilon, s.max() + 10 * epsilon, n_points)
    tails = ndtr((s - t[:, None]) / epsilon)
    probabilities = np.empty(len(s))
    for j in range(len(s)):
        others = exceedances(np.delete(tails, j, axis=1), k - 1)[:, k - 1]
        probabilities[j] = trapezoid(others * norm.pdf(t, s[j], epsilon), t)
    return probabilities


def noised_top_k_mean(s, k, epsilon, n_points=4001):
    """E[top_k(s + epsilon Z)], from its distribution function."""
    t = np.linspace(s.min() - 10 * epsilon, s.max() + 10 * epsilon, n_points)
    return t[-1] - trapezoid(noised_rank_cdf(s, k, epsilon, t), t)

"""Rules of others, that the benchmark of coverage compares with those of the package.

Written from the papers' formulas. Each takes calibration scores, their labels and the scores of
new samples, all of them probabilities, and returns sets.
"""

import numpy as np
import torch
from sklearn.cluster import KMeans

from sksetvalued.rules._conformal import conformal_threshold


def clustered(p, y, new, error, seed):
    """Return sets by one threshold for each cluster of classes whose scores are alike.

    Ding et al., "Class-conditional conformal prediction with many classes", NeurIPS 2023.
    """
    n_classes, rng = p.shape[1], np.random.default_rng(seed)
    true, counts = p[np.arange(len(y)), y], np.bincount(y, minlength=p.shape[1])
    rare_below = np.ceil(1 / error) - 1
    fewest = max(counts.min(), rare_below)
    n_common = np.count_nonzero(counts >= fewest)
    for_clusters = int(fewest * n_common / (75 + n_common))
    chosen = rng.random(len(y)) < for_clusters / fewest
    share = np.bincount(y[chosen], minlength=n_classes)
    common = np.flatnonzero((share >= rare_below) & (share > 0))
    cluster_of = np.full(n_classes, -1)
    n_clusters = for_clusters // 2
    if 1 < n_clusters < len(common):
        quantiles = [
            np.quantile(1 - true[chosen & (y == c)], (0.5, 0.6, 0.7, 0.8, 0.9)) for c in common
        ]
        means = KMeans(n_clusters, n_init=10, random_state=seed)
        cluster_of[common] = means.fit_predict(quantiles, sample_weight=np.sqrt(share[common]))
    rest, ones = ~chosen, np.ones(len(y))
    thresholds = np.full(n_classes, conformal_threshold(true[rest], ones[rest], error))
    for cluster in range(cluster_of.max() + 1):
        own = rest & (cluster_of[y] == cluster)
        thresholds[cluster_of == cluster] = conformal_threshold(true[own], ones[own], error)
    return new >= thresholds


def ranks(p):
    """Return the rank of each class in its row, 1 for the largest."""
    return (-p).argsort(1, kind="stable").argsort(1, kind="stable") + 1


def rank_calibrated(p, y, new, error):
    """Return sets by a threshold and a greatest rank for each class ("RC3P").

    Shi et al., "Conformal prediction for class-wise coverage via augmented label rank
    calibration", NeurIPS 2024.
    """
    n_classes = p.shape[1]
    true, rank = p[np.arange(len(y)), y], ranks(p)[np.arange(len(y)), y]
    thresholds, deepest = np.full(n_classes, -np.inf), np.full(n_classes, n_classes)
    for c in np.unique(y):
        own = y == c
        missed = (rank[own][:, None] > np.arange(1, n_classes + 1)).mean(0)
        at = np.argmax(missed < error)
        deepest[c] = at + 1
        ones = np.ones(np.count_nonzero(own))
        thresholds[c] = conformal_threshold(true[own], ones, error - missed[at])
    return (new >= thresholds) & (ranks(new) <= deepest)


def backward(p, y, new, size):
    """Return sets of at most about `size` classes, and the coverage that e-values promise.

    Gauthier, Bach & Jordan, "Backward conformal prediction", 2025.
    """
    tiny = np.finfo(float).tiny
    n, true = len(y), -np.log(np.maximum(p[np.arange(len(y)), y], tiny))
    score = -np.log(np.maximum(new, tiny))
    e = (n + 1) * score / (true.sum() + score)
    level = np.minimum(1, 1 / np.partition(e, size, axis=1)[:, size])
    return e < 1 / level[:, None], 1 - level


SIZES = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24])


def cardinality_aware(p, y, new, size):
    """Return sets of a number of classes that a selector chooses, about `size` on average.

    Cortes, Mao, Mohri & Zhong, "Cardinality-aware set prediction and top-k classification",
    NeurIPS 2024, with a linear selector on the logarithms of the largest scores. The weight of
    the size is the one that gives the average on the calibration samples.
    """
    deepest = min(24, p.shape[1])
    features, new_features = (
        torch.from_numpy(np.log(np.maximum(-np.sort(-x, axis=1)[:, :deepest], 1e-12)))
        for x in (p, new)
    )
    mean, spread = features.mean(0), features.std(0) + 1e-6
    features, new_features = (features - mean) / spread, (new_features - mean) / spread
    rank = ranks(p)[np.arange(len(y)), y]
    low, high = -4.0, 2.0
    weight = torch.zeros(deepest + 1, len(SIZES), dtype=torch.double)
    for _ in range(7):
        middle = (low + high) / 2
        cost = (rank[:, None] > SIZES) + 10.0**middle * np.log(SIZES)
        weight = fit_selector(features, torch.from_numpy(1 - cost / cost.max()), weight)
        mean_size = SIZES[selected(features, weight)].mean()
        low, high = (middle, high) if mean_size > size else (low, middle)
    sizes = SIZES[selected(new_features, weight)]
    return ranks(new) <= sizes[:, None], mean_size


def fit_selector(features, gains, start):
    """Return the weights that minimise the cost-weighted cross-entropy."""
    weight = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([weight], max_iter=25, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        scores = features @ weight[:-1] + weight[-1]
        value = -(gains * scores.log_softmax(1)).sum(1).mean() + 1e-4 * weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return weight.detach()


def selected(features, weight):
    """Return the column of the size that each sample gets."""
    return (features @ weight[:-1] + weight[-1]).argmax(1).numpy()

"""Slow references, in float64 NumPy and plain loops, of the losses written on several labels."""

import math

import numpy as np


def log_sigmoid(z):
    return -math.log1p(math.exp(-z)) if z >= 0 else z - math.log1p(math.exp(z))


def softmax(z):
    z = np.asarray(z, float)
    e = np.exp(z - z.max())
    return e / e.sum()


def cross_entropy(z, y):
    return -math.log(softmax(z)[y])


def focal(z, y, gamma):
    p = softmax(z)[y]
    return -((1 - p) ** gamma) * math.log(p)


def ldam(z, y, counts, max_margin, scale):
    z = np.array(z, float)
    z[y] -= max_margin * (min(counts) / counts[y]) ** 0.25
    return cross_entropy(scale * z, y)


def logit_adjusted(z, y, counts, tau):
    return cross_entropy([s + tau * math.log(n / sum(counts)) for s, n in zip(z, counts)], y)


def assume_negative(z, y):
    rest = [-log_sigmoid(-s) for j, s in enumerate(z) if j != y]
    return -log_sigmoid(z[y]) + sum(rest) / len(rest)


def candidates(proposals, target, count):
    """Return the `count` likeliest entries (i, j), j != target[i]; the last of ties first."""
    p = [softmax(row) for row in proposals]
    entries = [(p[i][j], i, j) for i in range(len(p)) for j in range(len(p[i])) if j != target[i]]
    return {(i, j) for _, i, j in sorted(entries, reverse=True)[:count]}


def average_k(scores, proposals, target, count, alpha):
    """Return the loss of a batch with `count` pseudo-positives, (5.9)-(5.15)."""
    chosen = candidates(proposals, target, count)
    n, n_classes = np.shape(scores)
    observed, positive, negative = 0.0, [], []
    for i in range(n):
        observed += cross_entropy(proposals[i], target[i]) - log_sigmoid(scores[i][target[i]])
        for j in range(n_classes):
            if (i, j) in chosen:
                positive.append(-log_sigmoid(scores[i][j]))
            elif j != target[i]:
                negative.append(-log_sigmoid(-scores[i][j]))
    means = sum(sum(part) / len(part) for part in (positive, negative) if part)
    return observed / n + alpha * means


def expected_positive(scores, target, k, beta):
    n = len(scores)
    observed = -sum(log_sigmoid(z[y]) for z, y in zip(scores, target)) / n
    expected = sum(math.exp(log_sigmoid(s)) for z in scores for s in z) / n
    return observed + beta * (expected - k) ** 2


def role(scores, target, estimates, k, beta):
    """Return the value of the loss of Cole et al. (2021), with sums over the classes."""
    total = 0.0
    for learner, teacher in ((scores, estimates), (estimates, scores)):
        for z, t in zip(learner, teacher):
            for s, u in zip(z, t):
                q = math.exp(log_sigmoid(u))
                total -= (q * log_sigmoid(s) + (1 - q) * log_sigmoid(-s)) / len(scores)
        total += expected_positive(learner, target, k, beta)
    return total / 2


def project_by_bisection(scores, k):
    """Return the projection of rows on {0 <= q <= 1, sum q = k}, by bisection."""
    scores = np.asarray(scores, float)
    low, high = scores.min(-1) - 1, scores.max(-1)
    for _ in range(200):
        middle = (low + high) / 2
        if ((middle == low) | (middle == high)).all():
            break
        too_low = np.clip(scores - middle[:, None], 0, 1).sum(-1) >= k
        low, high = np.where(too_low, middle, low), np.where(too_low, high, middle)
    return np.clip(scores - high[:, None], 0, 1)


def sparse_top_loss(scores, labels, k):
    """Return (6.25), as printed, of one sample with a set of labels and any threshold."""
    scores = np.asarray(scores, float)
    q = project_by_bisection(scores[None], k)[0]
    inside = (q > 1e-13) & (q < 1 - 1e-13)
    threshold = (scores - q)[inside].mean() if inside.any() else 0.0
    loss = -sum(scores[j] for j in labels) + len(labels) / 2
    loss += sum(scores[j] - 0.5 for j in np.flatnonzero(q >= 1 - 1e-13))
    return loss + sum((scores[j] ** 2 - threshold**2) / 2 for j in np.flatnonzero(inside))

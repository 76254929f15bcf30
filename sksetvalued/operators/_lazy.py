r"""The class of rank k after small noise, without noise for most classes.

The normals of the classes with the largest scores, the *candidates*, are drawn first. Let T be
the k-th largest noised candidate. Another class of score s_j matters only if its own normal
exceeds :math:`u_j = (T - s_j) / \epsilon`, which has probability :math:`p_j = Q(u_j)`, the normal
tail. The classes that do so are the marks of a Poisson process with intensity
:math:`\lambda_j = -\log(1 - p_j)` over the classes, taken once each: class j has none with
probability :math:`1 - p_j`, independently of the others. The process is drawn by thinning one
that is uniform within blocks of classes, at the intensity of the largest score of the block. The
few normals are then drawn given that they exceed u_j, by inversion. All this is exact in law,
given the noise of the candidates.
"""

import math

import numpy as np
import torch
from scipy.special import log_ndtr, ndtr, ndtri

from ._top_k import block_maxima, block_members, classes_in_no_block, k_largest, kth_largest

#: Expected points in a row from which the blocks are told apart.
_MANY_POINTS = 1.0
#: From this many classes on it can pay.
_MIN_CLASSES = 512
#: Below each number of classes: the largest ratio of the noise to the spread of the scores, the
#: size of the blocks, and chosen blocks and candidates per rank. Found by timing; beyond the ratio
#: :mod:`._sieve` is faster.
_PLANS = [(4096, 0.2, 8, 4, 6), (32768, 0.2, 16, 8, 12), (math.inf, 0.3, 32, 8, 16)]


def _dominating_intensity(u):
    """Return a bound of the intensity that needs no logarithm; `u` is overwritten.

    -log(1 - p) <= p / (1 - p), with p = Q(u), for u > 0; below, Mills' ratio gives
    -log Q(-u) <= 1 + |u| + u^2 / 2. Beyond 12, where it is below 1e-32, the tail would be a
    subnormal number, slow to compute with.
    """
    tail = torch.erfc(u.clamp(0, 12).mul_(math.sqrt(0.5))).mul_(0.5)
    bound = tail.div_(1 - tail)
    below = u.clamp_(max=0)
    return bound.addcmul_(below, below, value=0.5).sub_(below)


class _Candidates:
    """Classes that are drawn in any case, and what bounds the others.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
    size : int
        Number of classes of a block.
    n_chosen : int
        Number of blocks, those with the largest maxima, where candidates are sought.
    n_candidates : int or None
        Number of candidates, the largest there; None for all. The classes that the blocks leave
        over are candidates too.
    """

    def __init__(self, scores, size, n_chosen, n_candidates):
        self.size = size
        #: Bounds of the scores that are no candidates, by block; -inf where all are candidates.
        self.bounds, n_blocks = block_maxima(scores, size)
        chosen = k_largest(self.bounds, n_chosen)
        self.classes = block_members(chosen, n_blocks, size)
        if n_candidates is None or n_candidates >= self.classes.shape[1]:
            self.bounds.scatter_(1, chosen, -torch.inf)
            cut = torch.full_like(self.bounds[:, :1], torch.inf)
        else:
            members = scores.gather(1, self.classes)
            order = k_largest(members, n_candidates)
            self.classes = self.classes.gather(1, order)
            cut = members.scatter_(1, order, -torch.inf).amax(1, keepdim=True)
            self.bounds.scatter_(1, chosen, cut.expand_as(chosen))
        #: Largest bound of a row.
        self.bound = self.bounds.amax(1)
        #: Candidates within blocks have at least this score.
        self.cut = cut[:, 0]
        left_over = classes_in_no_block(n_blocks, size, scores)
        self.classes = torch.cat([self.classes, left_over], dim=1)
        self.scores = scores.gather(1, self.classes)


def draw_uniform(shape, generator):
    """Draw numbers in [0, 1), in double precision."""
    return torch.rand(shape, generator=generator, dtype=torch.float64).numpy()


def _propose(candidates, threshold, epsilon, n_draws, generator):
    """Draw the points of a process that dominates that of the other classes.

    Its intensity is that of the largest score: of the row, or, in rows where that would make many
    points, of the block.

    Parameters
    ----------
    candidates : _Candidates
    threshold : Tensor of shape (n_samples,)
        Lowest of the thresholds of the draws.
    epsilon : float
    n_draws : int
    generator : torch.Generator

    Returns
    -------
    row, block : int ndarrays of shape (n_points,)
    intensity : ndarray of shape (n_points,)
        Its intensity where they fell.
    """
    n_samples, n_blocks = candidates.bounds.shape
    intensity = _dominating_intensity((threshold - candidates.bound) / epsilon)
    rate = intensity.double() * (n_draws * candidates.size * n_blocks)
    crowded = torch.nonzero(rate > _MANY_POINTS)[:, 0]
    if len(crowded):
        u = (threshold[crowded].unsqueeze(1) - candidates.bounds[crowded]).div_(epsilon)
        by_block = _dominating_intensity(u).flatten()
        rate[crowded] = 0
        of_blocks = by_block.to(torch.float64, copy=True).mul_(n_draws * candidates.size)
        rate = torch.cat([rate, of_blocks])
        intensity = torch.cat([intensity, by_block])
    cumulated = rate.cumsum_(0)
    n_points = int(torch.poisson(cumulated[-1], generator=generator))
    place, share = draw_uniform((2, n_points), generator)
    cumulated = cumulated.numpy()
    # In increasing order they are found faster.
    index = np.searchsorted(cumulated, np.sort(place) * cumulated[-1], side="right")
    index = np.minimum(index, len(cumulated) - 1)
    row, block = index.copy(), (share * n_blocks).astype(np.int64)
    (told,) = np.nonzero(index >= n_samples)
    inner, block[told] = np.divmod(index[told] - n_samples, n_blocks)
    row[told] = crowded.numpy()[inner]
    return row, block, intensity.numpy()[index]


def _draw_others(scores, candidates, thresholds, epsilon, generator):
    """Draw the classes outside that exceed the thresholds, and their normals.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
    candidates : _Candidates
    thresholds : Tensor of shape (n_samples, n_draws)
    epsilon : float
    generator : torch.Generator

    Returns
    -------
    pair : int ndarray of shape (n_found,)
        Position in the flattened thresholds, in increasing order.
    classes : int ndarray of shape (n_found,)
    normals : ndarray of shape (n_found,)
    """
    n_draws, n_classes = thresholds.shape[1], scores.shape[1]
    row, block, dominating = _propose(candidates, thresholds.amin(1), epsilon, n_draws, generator)
    scores, thresholds = scores.numpy(), thresholds.numpy().ravel()
    member, draw, keep = draw_uniform((3, len(row)), generator)
    classes = block + (member * candidates.size).astype(np.int64) * candidates.bounds.shape[1]
    pair = row * n_draws + (draw * n_draws).astype(np.int64)
    drawn = scores[row, classes]
    u, level = (thresholds[pair] - drawn) / float(epsilon), keep * dominating
    # What the bound rejects needs no logarithm.
    kept = np.flatnonzero(level <= _dominating_intensity(torch.from_numpy(u.copy())).numpy())
    kept = kept[level[kept] < -log_ndtr(u[kept])]
    kept = kept[candidates.bounds.numpy()[row[kept], block[kept]] > -np.inf]
    doubtful = drawn[kept] >= candidates.cut.numpy()[row[kept]]
    known = candidates.classes.numpy()[row[kept[doubtful]]]
    doubtful[doubtful] = (known == classes[kept[doubtful], None]).any(1)
    kept = kept[~doubtful]
    # Several points of a class count once.
    key = np.unique(pair[kept] * n_classes + classes[kept])
    pair, classes = np.divmod(key, n_classes)
    u = (thresholds[pair].astype(np.float64) - scores[pair // n_draws, classes]) / epsilon
    level = 1 - draw_uniform(len(key), generator)
    return pair, classes, -ndtri(level * ndtr(-u))


def _merge(scores, candidates, k, epsilon, normals, pair, others, other_normals):
    """Return the class and normal of rank k when others join the candidates of some pairs.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_classes)
    candidates : _Candidates
    k : int
    epsilon : float
    normals : ndarray of shape (n_samples, n_draws, n_candidates)
    pair, others, other_normals : ndarrays of shape (n_found,)
        As :func:`_draw_others` returns them.

    Returns
    -------
    pairs, classes, normals : ndarrays of shape (n_pairs,)
    """
    n_draws, n_candidates = normals.shape[1:]
    pairs, first, group, counts = np.unique(
        pair, return_index=True, return_inverse=True, return_counts=True
    )
    rows, normals = pairs // n_draws, normals.reshape(-1, n_candidates)[pairs]
    joined = np.full((len(pairs), n_candidates + counts.max()), -np.inf, dtype=normals.dtype)
    joined[:, :n_candidates] = candidates.scores.numpy()[rows] + epsilon * normals
    column = n_candidates + np.arange(len(pair)) - first[group]
    joined[group, column] = scores[pair // n_draws, others] + epsilon * other_normals
    last = joined.argpartition(-k, axis=1)[:, -k]
    inside = last < n_candidates
    last, outside = np.where(inside, last, 0), first + np.where(inside, 0, last - n_candidates)
    return (
        pairs,
        np.where(inside, candidates.classes.numpy()[rows, last], others[outside]),
        np.where(inside, normals[np.arange(len(pairs)), last], other_normals[outside]),
    )


def _select(scores, candidates, k, epsilon, n_draws, generator):
    """Return the classes of rank k and their normals for some draws."""
    n_samples, n_candidates = candidates.scores.shape
    shape = (n_samples, n_draws, n_candidates)
    normals = torch.randn(shape, generator=generator, dtype=scores.dtype)
    noised = torch.add(candidates.scores.unsqueeze(1), normals, alpha=epsilon)
    last = kth_largest(noised, k)
    indices = candidates.classes.gather(1, last[..., 0])
    selected = normals.gather(2, last)[..., 0]
    thresholds = noised.gather(2, last)[..., 0]
    del noised, last
    found = _draw_others(scores, candidates, thresholds, epsilon, generator)
    if len(found[0]):
        pairs, *joined = _merge(scores.numpy(), candidates, k, epsilon, normals.numpy(), *found)
        indices.numpy().reshape(-1)[pairs], selected.numpy().reshape(-1)[pairs] = joined
    return indices, selected


def select_lazily(scores, k, epsilon, n_draws, generator, size, n_chosen, n_candidates=None):
    """Find the classes that noise puts at rank k, in each of `n_draws` draws.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
    k : int
    epsilon : float
    n_draws : int
    generator : torch.Generator
    size, n_chosen : int
        Candidates are sought in the `n_chosen` (at least k) blocks of `size` classes with the
        largest maxima.
    n_candidates : int, optional
        Number of candidates, at least k; all classes of these blocks when absent.

    Returns
    -------
    indices, normals : Tensors of shape (n_samples, n_draws)
        Classes, and the standard normals added to their scores.
    """
    # The classes of the blocks take memory: of many, fewer rows together.
    n_parts = max(1, min(len(scores), math.ceil(4 * size * n_chosen / scores.shape[1])))
    parts = []
    for rows in scores.tensor_split(n_parts):
        candidates = _Candidates(rows, size, n_chosen, n_candidates)
        at_once = max(1, 3 * rows.shape[1] // (8 * candidates.classes.shape[1]))
        selected = [
            _select(rows, candidates, k, epsilon, min(at_once, n_draws - done), generator)
            for done in range(0, n_draws, at_once)
        ]
        parts.append([torch.cat(some, dim=1) for some in zip(*selected)])
    indices, normals = zip(*parts)
    return torch.cat(indices), torch.cat(normals)


def plan_lazily(scores, k, epsilon):
    """Return the last arguments of :func:`select_lazily`, or None where it does not pay.

    Only the scores are looked at, never the noise, which would bias it. The wider the noise is
    beside the spread of the larger scores of a few rows, the more classes may come in from
    outside.
    """
    n_classes = scores.shape[1]
    if scores.device.type != "cpu" or n_classes < _MIN_CLASSES or not len(scores):
        return None
    _, limit, size, chosen, candidates = next(plan for plan in _PLANS if n_classes < plan[0])
    sample = scores[:: max(1, len(scores) // 8), :: max(1, n_classes // 64)].numpy()
    middle, high = sample.shape[1] // 2, int(0.9 * sample.shape[1])
    sample = np.partition(sample, (middle, high), axis=1)
    with np.errstate(invalid="ignore"):
        spread = float((sample[:, high] - sample[:, middle]).mean()) / 1.28
    if not epsilon <= limit * spread or 2 * chosen * k * size > n_classes:
        return None
    return size, chosen * k, candidates * k

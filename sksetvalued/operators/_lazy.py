r"""The class of rank k after noise, without noise for most classes.

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

from ._top_k import block_maxima, block_members, classes_in_no_block, k_largest

#: From this many classes on it can pay.
_MIN_CLASSES = 512
#: Below each number of classes: size of the blocks, then, up to each ratio of the noise to the
#: spread of the scores, chosen blocks and candidates per rank (None: all classes of the blocks).
#: Found by timing; beyond the last ratio all noise is drawn.
_PLANS = [
    (4096, 8, [(0.25, 2.5, 4), (0.6, 4, 6)]),
    (32768, 16, [(0.7, 8, 16), (math.inf, 16, None)]),
    (math.inf, 32, [(0.3, 8, 16), (0.7, 16, 32), (math.inf, 32, None)]),
]


def _tail(u):
    """Return the probability that a standard normal exceeds `u`."""
    return torch.erfc(u * math.sqrt(0.5)).mul_(0.5)


def _intensity(u):
    """Return -log(1 - Q(u)), without cancellation on either side.

    Beyond 12, where it is below 1e-32, the tail would be a subnormal number, slow to compute with.
    """
    tail = _tail(u.abs().clamp_(max=12))
    return torch.where(u > 0, -torch.log1p(-tail), -torch.log(tail))


def _dominating_intensity(u):
    """Return a bound of the intensity that needs no logarithm; `u` is overwritten.

    -log(1 - p) <= p / (1 - p), with p = Q(u), for u > 0; below, Mills' ratio gives
    -log Q(-u) <= 1 + |u| + u^2 / 2.
    """
    tail = _tail(u.clamp(0, 12))
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
        #: Bounds of the scores that are no candidates, by block.
        self.bounds, self.n_blocks = block_maxima(scores, size)
        largest = k_largest(self.bounds, n_chosen + 1)
        chosen, bound = largest[:, 1:], self.bounds.gather(1, largest[:, :1])
        self.classes = block_members(chosen, self.n_blocks, size)
        if n_candidates is None or n_candidates >= self.classes.shape[1]:
            self.bounds.scatter_(1, chosen, -torch.inf)
            cut = torch.full_like(bound, torch.inf)
        else:
            order = k_largest(scores.gather(1, self.classes), n_candidates + 1)
            self.classes = self.classes.gather(1, order)
            cut = scores.gather(1, self.classes[:, :1])
            self.classes = self.classes[:, 1:]
            self.bounds.scatter_(1, chosen, cut.expand_as(chosen))
            bound = torch.maximum(bound, cut)
        self.bound = bound[:, 0]
        #: Candidates within blocks have at least this score.
        self.cut = cut[:, 0]
        left_over = classes_in_no_block(self.n_blocks, size, scores)
        self.classes = torch.cat([self.classes, left_over], dim=1)
        self.scores = scores.gather(1, self.classes)


def _draw_candidates(candidates, k, epsilon, n_draws, generator):
    """Return the k largest noised candidates of each draw: values, classes and normals.

    Each of shape (n_samples, n_draws, k), the k-th largest first.
    """
    scores = candidates.scores.unsqueeze(1)
    shape = (len(scores), n_draws, scores.shape[2])
    normals = torch.randn(shape, generator=generator, dtype=scores.dtype, device=scores.device)
    noised = torch.add(scores, normals, alpha=epsilon)
    order = k_largest(noised, k)
    classes = candidates.classes.unsqueeze(1).expand(shape).gather(2, order)
    return noised.gather(2, order), classes, normals.gather(2, order)


def _uniform(n, generator, device):
    """Draw n numbers in [0, 1), in double precision."""
    return torch.rand(n, generator=generator, dtype=torch.float64, device=device)


def _locate(rates, n_points, generator):
    """Draw indices with probabilities proportional to `rates`."""
    cumulated = rates.to(torch.float64).cumsum(0)
    positions = _uniform(n_points, generator, rates.device) * cumulated[-1]
    return torch.searchsorted(cumulated, positions, right=True).clamp(max=len(rates) - 1)


def _propose(candidates, threshold, epsilon, n_draws, generator):
    """Draw the points of a process that dominates that of the other classes.

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
    row, block : LongTensors of shape (n_points,)
    intensity : Tensor of shape (n_points,)
        Its intensity where they fell.
    """
    n_blocks, size = candidates.n_blocks, candidates.size
    by_row = _dominating_intensity((threshold - candidates.bound) / epsilon)
    total = n_draws * size * n_blocks * by_row.sum(dtype=torch.float64)
    if total < len(by_row):
        n_points = int(torch.poisson(total, generator=generator))
        row = _locate(by_row, n_points, generator)
        return row, (_uniform(n_points, generator, row.device) * n_blocks).long(), by_row[row]
    by_block = (threshold.unsqueeze(1) - candidates.bounds).div_(epsilon)
    by_block = _dominating_intensity(by_block).flatten()
    total = n_draws * size * by_block.sum(dtype=torch.float64)
    n_points = int(torch.poisson(total, generator=generator))
    index = _locate(by_block, n_points, generator)
    row = torch.div(index, n_blocks, rounding_mode="floor")
    return row, index - row * n_blocks, by_block[index]


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
    pair : LongTensor of shape (n_found,)
        Position in the flattened thresholds, in increasing order.
    classes : LongTensor of shape (n_found,)
    normals : Tensor of shape (n_found,)
    """
    n_draws, n_classes = thresholds.shape[1], scores.shape[1]
    row, block, dominating = _propose(candidates, thresholds.amin(1), epsilon, n_draws, generator)
    if len(row) == 0:
        return row, block, dominating
    member, draw, keep = _uniform((3, len(row)), generator, scores.device)
    classes = block + (member * candidates.size).long() * candidates.n_blocks
    pair = row * n_draws + (draw * n_draws).long()
    drawn = scores.flatten().index_select(0, row * n_classes + classes)
    u = (thresholds.flatten()[pair] - drawn) / epsilon
    accepted = keep * dominating < _intensity(u)
    doubtful = torch.nonzero(accepted & (drawn >= candidates.cut[row]))[:, 0]
    accepted[doubtful] = (candidates.classes[row[doubtful]] != classes[doubtful].unsqueeze(1)).all(
        1
    )
    pair, classes = pair[accepted], classes[accepted]
    # Several points of a class count once.
    key = torch.from_numpy(np.unique((pair * n_classes + classes).numpy()))
    pair = torch.div(key, n_classes, rounding_mode="floor")
    classes = key - pair * n_classes
    row = torch.div(pair, n_draws, rounding_mode="floor")
    u = (thresholds.flatten()[pair].double() - scores[row, classes].double()) / epsilon
    level = 1 - _uniform(len(key), generator, scores.device)
    return pair, classes, -torch.special.ndtri(level * _tail(u))


def _merge(scores, k, epsilon, values, classes, normals, pair, others, other_normals):
    """Return the class and normal of rank k when others join the candidates of some pairs."""
    pairs, group, counts = torch.unique_consecutive(pair, return_inverse=True, return_counts=True)
    first = counts.cumsum(0) - counts
    column = torch.arange(len(pair), device=pair.device) - first[group]
    shape = (len(pairs), int(counts.max()))
    row = torch.div(pair, values.shape[1], rounding_mode="floor")
    joined = []
    noised = scores[row, others] + epsilon * other_normals.to(scores.dtype)
    for kept, joining in ((values, noised), (classes, others), (normals, other_normals)):
        kept = kept.flatten(0, 1)[pairs]
        fill = -torch.inf if kept.is_floating_point() else 0
        extra = torch.full(shape, fill, dtype=kept.dtype, device=kept.device)
        extra[group, column] = joining.to(kept.dtype)
        joined.append(torch.cat([kept, extra], dim=1))
    last = k_largest(joined[0], k)[:, :1]
    return pairs, joined[1].gather(1, last)[:, 0], joined[2].gather(1, last)[:, 0]


def _select(scores, candidates, k, epsilon, n_draws, generator):
    """Return the classes of rank k and their normals for some draws."""
    values, classes, normals = _draw_candidates(candidates, k, epsilon, n_draws, generator)
    found = _draw_others(scores, candidates, values[..., 0], epsilon, generator)
    # Copies, not views that would keep all k.
    indices, selected = classes[..., 0].clone().flatten(), normals[..., 0].clone().flatten()
    if len(found[0]):
        pairs, joined, joined_normals = _merge(
            scores, k, epsilon, values, classes, normals, *found
        )
        indices[pairs], selected[pairs] = joined, joined_normals
    return indices.reshape(-1, n_draws), selected.reshape(-1, n_draws)


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
    candidates = _Candidates(scores, size, n_chosen, n_candidates)
    at_once = max(1, 2 * scores.shape[1] // (5 * candidates.classes.shape[1]))
    parts = [
        _select(scores, candidates, k, epsilon, min(at_once, n_draws - done), generator)
        for done in range(0, n_draws, at_once)
    ]
    indices, normals = zip(*parts)
    return torch.cat(indices, dim=1), torch.cat(normals, dim=1)


def plan_lazily(scores, k, epsilon, n_draws):
    """Return the last arguments of :func:`select_lazily`, or None where it does not pay.

    Only the scores are looked at, never the noise, which would bias it. The wider the noise is
    beside the spread of the larger scores of a few rows, the more classes may come in from
    outside, and the more candidates are worth their normals; with many draws, more so.
    """
    n_classes = scores.shape[1]
    if scores.device.type != "cpu" or n_classes < _MIN_CLASSES:
        return None
    size, plans = next((size, plans) for limit, size, plans in _PLANS if n_classes < limit)
    sample = scores[:: max(1, len(scores) // 8), :: max(1, n_classes // 64)].sort(dim=1).values
    n_sampled = sample.shape[1]
    spread = (sample[:, int(0.9 * n_sampled)] - sample[:, n_sampled // 2]).mean().item() / 1.28
    many_draws = 2 if n_draws > 5 else 1
    for limit, chosen, candidates in plans:
        n_chosen = int(chosen * k)
        if many_draws * epsilon <= limit * spread and n_chosen * size <= n_classes / 2:
            return size, n_chosen, None if candidates is None else candidates * k
    return None

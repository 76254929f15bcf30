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

import torch

from ._top_k import block_maxima, block_members

#: From this many classes on it can pay.
_MIN_CLASSES = 512
#: Below each number of classes: size of the blocks, and chosen blocks per rank for noise that is
#: small, middling and large beside the spread of the scores; None where all noise is drawn.
_PLANS = [(4096, 8, (2, None, None)), (32768, 16, (4, 8, 16)), (math.inf, 32, (4, 16, 32))]


def _tail(u):
    """Return the probability that a standard normal exceeds `u`."""
    return 0.5 * torch.erfc(u * math.sqrt(0.5))


def _intensity(u):
    """Return -log(1 - Q(u)), without cancellation on either side."""
    tail = _tail(u.abs())
    return torch.where(u > 0, -torch.log1p(-tail), -torch.log(tail))


class _Candidates:
    """Classes that are drawn in any case, and what bounds the others.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
    n_chosen : int
        Number of blocks whose classes are candidates.
    size : int
        Number of classes of a block.
    """

    def __init__(self, scores, n_chosen, size):
        self.size = size
        self.maxima, self.n_blocks = block_maxima(scores, size)
        largest, self.blocks = torch.topk(self.maxima, n_chosen + 1, dim=1)
        #: Bound of the scores outside.
        self.bound = largest[:, -1]
        self.blocks = self.blocks[:, :-1]
        self.classes = block_members(self.blocks, self.n_blocks, size, scores.shape[1])
        self.scores = scores.gather(1, self.classes)


def _draw_candidates(candidates, k, epsilon, n_draws, generator):
    """Return the k largest noised candidates of each draw: values, classes and normals.

    Each of shape (n_samples, n_draws, k), the values in decreasing order.
    """
    scores = candidates.scores.unsqueeze(1)
    shape = (len(scores), n_draws, scores.shape[2])
    normals = torch.randn(shape, generator=generator, dtype=scores.dtype, device=scores.device)
    values, order = torch.topk(torch.add(scores, normals, alpha=epsilon), k, dim=2)
    classes = candidates.classes.unsqueeze(1).expand(shape).gather(2, order)
    return values, classes, normals.gather(2, order)


def _uniform(n, generator, device):
    """Draw n numbers in [0, 1), in double precision."""
    return torch.rand(n, generator=generator, dtype=torch.float64, device=device)


def _locate(rates, n_points, generator):
    """Draw indices with probabilities proportional to `rates`."""
    cumulated = rates.to(torch.float64).cumsum(0)
    positions = _uniform(n_points, generator, rates.device) * cumulated[-1]
    return torch.searchsorted(cumulated, positions, right=True).clamp(max=len(rates) - 1)


def _propose(candidates, threshold, epsilon, n_draws, generator):
    """Draw the points of a process that dominates that of the classes outside.

    Returns
    -------
    row, block : LongTensors of shape (n_points,)
    intensity : Tensor of shape (n_points,)
        Its intensity where they fell.
    """
    n_blocks, size = candidates.n_blocks, candidates.size
    by_row = _intensity((threshold - candidates.bound) / epsilon)
    total = n_draws * size * n_blocks * by_row.double().sum()
    if total < 2 * n_draws * len(by_row):
        n_points = int(torch.poisson(total, generator=generator))
        row = _locate(by_row, n_points, generator)
        block = (_uniform(n_points, generator, row.device) * n_blocks).long()
        outside = (candidates.blocks[row] != block.unsqueeze(1)).all(1)
        row, block = row[outside], block[outside]
        return row, block, by_row[row]
    by_block = _intensity((threshold.unsqueeze(1) - candidates.maxima) / epsilon)
    by_block = by_block.scatter_(1, candidates.blocks, 0.0).flatten()
    total = n_draws * size * by_block.double().sum()
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
    u = (thresholds.flatten()[pair] - scores[row, classes]) / epsilon
    accepted = keep * dominating < _intensity(u)
    pair, classes = pair[accepted], classes[accepted]
    # Several points of a class count once.
    key = torch.unique(pair * n_classes + classes)
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
    last = torch.topk(joined[0], k, dim=1).indices[:, -1:]
    return pairs, joined[1].gather(1, last)[:, 0], joined[2].gather(1, last)[:, 0]


def _select(scores, candidates, k, epsilon, n_draws, generator):
    """Return the classes of rank k and their normals for some draws."""
    values, classes, normals = _draw_candidates(candidates, k, epsilon, n_draws, generator)
    found = _draw_others(scores, candidates, values[..., -1], epsilon, generator)
    indices, selected = classes[..., -1].flatten(), normals[..., -1].flatten()
    if len(found[0]):
        pairs, joined, joined_normals = _merge(
            scores, k, epsilon, values, classes, normals, *found
        )
        indices[pairs], selected[pairs] = joined, joined_normals
    return indices.reshape(-1, n_draws), selected.reshape(-1, n_draws)


def select_lazily(scores, k, epsilon, n_draws, generator, n_chosen, size):
    """Find the classes that noise puts at rank k, in each of `n_draws` draws.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
    k : int
    epsilon : float
    n_draws : int
    generator : torch.Generator
    n_chosen, size : int
        Candidates are the classes of the `n_chosen` (at least k) blocks of `size` classes with
        the largest maxima.

    Returns
    -------
    indices, normals : Tensors of shape (n_samples, n_draws)
        Classes, and the standard normals added to their scores.
    """
    candidates = _Candidates(scores, n_chosen, size)
    at_once = max(1, scores.shape[1] // (4 * candidates.classes.shape[1]))
    parts = [
        _select(scores, candidates, k, epsilon, min(at_once, n_draws - done), generator)
        for done in range(0, n_draws, at_once)
    ]
    indices, normals = zip(*parts)
    return torch.cat(indices, dim=1), torch.cat(normals, dim=1)


def plan_lazily(scores, k, epsilon):
    """Return `n_chosen` and `size` for :func:`select_lazily`, or None where it does not pay.

    Only the scores are looked at, never the noise, which would bias it. The wider the noise is
    beside the spread of the larger scores of a few rows, the more classes may come in from
    outside, and the more candidates are worth their normals.
    """
    n_classes = scores.shape[1]
    if scores.device.type != "cpu" or n_classes < _MIN_CLASSES:
        return None
    size, multiples = next(
        (size, multiples) for limit, size, multiples in _PLANS if n_classes < limit
    )
    sample = scores[:: max(1, len(scores) // 8), :: max(1, n_classes // 64)].sort(dim=1).values
    n_sampled = sample.shape[1]
    spread = (sample[:, int(0.9 * n_sampled)] - sample[:, n_sampled // 2]).mean().item() / 1.28
    ratio = epsilon / max(spread, 1e-30)
    multiple = multiples[(ratio > 0.15) + (ratio > 0.7)]
    if multiple is None or multiple * k * size > n_classes / 4:
        return None
    return multiple * k, size

r"""The class of rank k after noise, without noise for most classes.

A threshold t is fixed for each row by looking at its scores alone, so that in a draw some more
than k classes exceed it. Class j exceeds it if its normal exceeds :math:`u_j = (t - s_j) /
\epsilon`, with probability :math:`p_j = Q(u_j) = 1 - \exp(-\lambda_j)`, the normal tail,
independently in each draw. The draws in which it does are the unit intervals of length
:math:`\lambda_j` where a Poisson process of rate 1 has its first points: they are found by
exponential gaps, for all draws at once, and a point at distance x from the start of its interval
stands for the normal whose tail probability is :math:`1 - e^{-x}`. A byte per class, the first of
the uniform number that gives the first gap, tells nearly all classes that exceed t in no draw.
Classes likely to exceed it have all their normals drawn, so have those of the few draws where
fewer than k classes exceed t, given that they do not. All this is exact in law.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import ndtr, ndtri

from ._top_k import kth_largest

#: log of the intensity is at most -a u^2 - b u - c between the two values of u; found by linear
#: programming, up to 1.14 times the intensity below u = 3.5.
_A, _B, _C = 0.3547642, 1.0369203, 0.2675
_LEAST_U, _MOST_U = -0.5, 6.0
_SHIFT = _B / (2 * _A)
_LOG_SCALE = _A * _SHIFT**2 - _C
#: Classes of this intensity have all their normals drawn, if it makes a point in the draws likely.
_SURE_INTENSITY = 0.1
#: Classes expected above the threshold are k and so many square roots of k.
_SPARE = 3.5
#: Scores whose intensities are computed together: few enough for a processor's cache.
_AT_ONCE = 1 << 15
#: Bytes that a block or a class told apart takes, and the most memory in units of the scores.
_CELL_BYTES, _MOST_MEMORY = 13, 1.1
#: Noise whose square, or that of its inverse, a number in single precision may not hold.
_LEAST_NOISE, _MOST_NOISE = 1e-15, 1e15


def _draw_uniform(size, generator):
    """Draw numbers in [0, 1), in double precision."""
    return torch.rand(size, generator=generator, dtype=torch.float64).numpy()


class SievePlan(NamedTuple):
    """What the scores fix before any noise is drawn.

    Attributes
    ----------
    thresholds : ndarray of shape (n_samples,)
    maxima : ndarray of shape (n_samples, n_blocks)
        Largest scores of the blocks of classes.
    size : int
        Number of classes of a block.
    n_bytes : float
        About how much memory a draw for a sample takes.
    """

    thresholds: np.ndarray
    maxima: np.ndarray
    size: int
    n_bytes: float


def _block_maxima(scores, size):
    """Return the maxima over blocks b, b + n_blocks, b + 2 n_blocks, ... of `size` classes.

    The last blocks have a class less where `size` does not divide the number of classes.
    """
    n_samples, n_classes = scores.shape
    n_blocks = -(-n_classes // size)
    n_whole = n_classes // n_blocks
    if n_blocks < 256:
        # torch takes long to reduce short rows.
        maxima = scores[:, :n_blocks].copy()
        for start in range(n_blocks, n_whole * n_blocks, n_blocks):
            np.maximum(maxima, scores[:, start : start + n_blocks], out=maxima)
    else:
        blocks = scores[:, : n_whole * n_blocks].reshape(n_samples, n_whole, n_blocks)
        maxima = torch.from_numpy(blocks).amax(dim=1).numpy()
    rest = scores[:, n_whole * n_blocks :]
    some = maxima[:, : rest.shape[1]]
    np.maximum(some, rest, out=some)
    return maxima


def _thresholds(maxima, size, n_classes, k, epsilon):
    """Return thresholds that somewhat more than k classes of a row exceed in nearly all draws.

    Two order statistics of the block maxima give the normal law with the same upper tail as the
    scores; to its variance the noise adds its own. The number of classes that exceed a threshold
    varies the less, the smaller the noise is beside the spread of the scores.

    Returns
    -------
    thresholds : ndarray of shape (n_samples,)
        NaN where the scores do not allow any.
    ratios : ndarray of shape (n_samples,)
        Variance of the noise, as a part of that of the noised scores.
    """
    while maxima.shape[1] > 512:
        maxima, size = _block_maxima(maxima, 8), 8 * size
    ordered = np.sort(maxima, axis=1)
    rows, n_blocks = np.arange(len(ordered)), ordered.shape[1]

    def largest(expected):
        """Return the scores that `expected` classes exceed, and those in standard deviations."""
        shares = expected / n_classes
        ranks = np.rint(-n_blocks * np.expm1(size * np.log1p(-shares)) + 0.5).astype(np.int64)
        return ordered[rows, n_blocks - np.minimum(ranks, n_blocks)], -ndtri(shares)

    with np.errstate(invalid="ignore"):
        top, z = largest(k + _SPARE * math.sqrt(k))
        spreads = (top - ordered[:, (n_blocks - 1) // 2]) / (z + ndtri(1 - 0.5 ** (1 / size)))
        spreads[~np.isfinite(spreads)] = 0
        noised = np.hypot(spreads, epsilon)
        vary = np.sqrt(np.clip(1.3 * z * epsilon / noised, 0.2, 1))
        top, z = largest(k + _SPARE * math.sqrt(k) * vary)
        thresholds = top + z * (noised - spreads)
    thresholds[~np.isfinite(ordered[:, -1])] = np.nan
    return thresholds.astype(ordered.dtype), (epsilon / noised) ** 2


def make_plan(scores, k, epsilon, size):
    """Return the plan with blocks of a given size, and nanoseconds a draw for a sample takes."""
    maxima = _block_maxima(scores.contiguous().numpy(), size)
    thresholds, ratios = _thresholds(maxima, size, scores.shape[1], k, epsilon)
    expected, ratio = k + _SPARE * math.sqrt(k), float(ratios.mean())
    plan = SievePlan(thresholds, maxima, size, expected * (15 + 140 * math.sqrt(ratio)))
    return plan, expected * (20 + 180 * ratio)


def plan_sieve(scores, k, epsilon, n_draws):
    """Return the plan for :func:`select_sieving`, or None where that does not pay.

    Only the scores are looked at, never the noise, which would bias it. Nanoseconds found by
    timing are compared.
    """
    n_samples, n_classes = scores.shape
    expected = k + _SPARE * math.sqrt(k)
    fixed = 4e5 + n_samples * n_classes * 4.0
    dense = n_samples * n_draws * n_classes * 5.0
    size = 8 if n_classes < 1 << 12 else 16 if n_classes < 1 << 15 else 32
    while size > 1 and 3 * expected * size > n_classes:
        size //= 2
    representable = _LEAST_NOISE < epsilon < _MOST_NOISE
    if scores.device.type != "cpu" or size == 1 or fixed > dense or not representable:
        return None
    plan, a_draw = make_plan(scores, k, epsilon, size)
    if fixed + n_samples * n_draws * a_draw > dense or not np.isfinite(plan.thresholds).all():
        return None
    return plan


def _bound_intensities(bounds, thresholds, epsilon, factor=1.0, most=math.inf):
    """Return bounds of the intensities, times a factor, of classes of at most the given scores.

    They hold where u is at least `_LEAST_U`.

    Parameters
    ----------
    bounds, thresholds : ndarrays of shapes that broadcast
    epsilon : float
    factor : float
    most : float
        Where the product would be larger, it is about `most`.
    """
    log_factor = _LOG_SCALE + math.log(factor)
    least = _LEAST_U + _SHIFT
    if log_factor > math.log(most):
        least = max(least, math.sqrt((log_factor - math.log(most)) / _A))
    intensities = thresholds - bounds
    u = torch.from_numpy(intensities)
    u.add_(_SHIFT * epsilon).clamp_(least * epsilon, (_MOST_U + _SHIFT) * epsilon)
    torch.addcmul(u.new_tensor(log_factor), u, u, value=-_A / epsilon**2, out=u)
    return np.exp(intensities, out=intensities)


def _sieve(bounds, thresholds, epsilon, n_intervals, generator):
    """Find the cells that have a point, with few others, and the distances of first points.

    Parameters
    ----------
    bounds, thresholds : ndarrays of shapes (n, n_cells), (n, 1)
    epsilon : float
    n_intervals : int
        Number of intervals of each cell.
    generator : torch.Generator

    Returns
    -------
    cells : int ndarray of shape (n_found,)
        Positions in the flattened bounds, in increasing order.
    distances : ndarray of shape (n_found,)
        Standard exponentials, from 0.
    """
    n_cells = bounds.shape[1]
    step = max(1, max(_AT_ONCE, bounds.size // 8) // max(1, n_cells))
    found, first = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.uint8)]
    for start in range(0, len(bounds), step):
        some = slice(start, start + step)
        # -log(1 - U) < x needs U < x.
        levels = _bound_intensities(
            bounds[some], thresholds[some], epsilon, 256.2 * n_intervals, 255.5
        ).ravel()
        words = torch.empty(-(-levels.size // 8), dtype=torch.int64)
        words.random_(-(2**63), None, generator=generator)
        digits = words.view(torch.uint8).numpy()[: levels.size]
        cells = np.flatnonzero(digits <= levels.astype(np.uint8))
        first.append(digits[cells])
        found.append(cells + start * n_cells)
    uniform = np.concatenate(first) + _draw_uniform(sum(map(len, first)), generator)
    return np.concatenate(found), -np.log1p(uniform / -256)


def _find_points(distances, lengths, n_intervals, generator):
    """Find the intervals of each cell that hold points, and where the first one lies in them.

    Parameters
    ----------
    distances, lengths : ndarrays of shape (n_cells,)
        Distances of the first points, and lengths of the intervals.
    n_intervals : int
    generator : torch.Generator

    Returns
    -------
    cells, intervals : int ndarrays of shape (n_points,)
    places : ndarray of shape (n_points,)
    """
    (cells,) = np.nonzero(distances < n_intervals * lengths)
    distances, lengths = distances[cells], lengths[cells]
    found = [(cells[:0], cells[:0], distances[:0])]
    while len(cells):
        intervals = np.floor(distances / lengths)
        found.append((cells, intervals.astype(np.int64), distances - intervals * lengths))
        # The process has no memory: it goes on from the next interval.
        distances = (intervals + 1) * lengths - np.log1p(-_draw_uniform(len(cells), generator))
        more = np.flatnonzero(distances < n_intervals * lengths)
        cells, distances, lengths = cells[more], distances[more], lengths[more]
    return tuple(map(np.concatenate, zip(*found)))


def _normals_beyond(places):
    """Return the normals whose tail probabilities are 1 - exp(-places)."""
    # Below 2^-50 that of single or double precision would be infinite.
    tails = np.expm1(-np.maximum(places, 2.0**-50))
    return math.sqrt(2) * torch.erfinv(torch.from_numpy(2 * tails + 1)).numpy()


def _ranks_in_groups(groups, n_groups):
    """Return the position of each entry in its group, and the size of the largest group."""
    counts = np.bincount(groups, minlength=n_groups)
    starts = counts.cumsum() - counts
    return np.arange(len(groups)) - starts[groups], int(counts.max(initial=0))


class _Found(NamedTuple):
    """Classes whose normals matter: in all draws (sure) or in those where they exceed.

    Attributes
    ----------
    sure_rows, sure_classes : int ndarrays of shape (n_sure,)
        In increasing order of the rows.
    pairs, classes : int ndarrays of shape (n_points,)
        Row times number of draws plus draw, in increasing order, and class.
    normals, values : ndarrays of shape (n_points,)
    """

    sure_rows: np.ndarray
    sure_classes: np.ndarray
    pairs: np.ndarray
    classes: np.ndarray
    normals: np.ndarray
    values: np.ndarray


def _opened(plan, epsilon, n_draws):
    """Return which blocks may have a class of some intensity: theirs are told apart."""
    u = math.sqrt((_LOG_SCALE - math.log(0.05 / n_draws)) / _A) - _SHIFT
    cut = (plan.thresholds.astype(np.float64) - u * epsilon).astype(plan.thresholds.dtype)
    return plan.maxima >= cut[:, None]


def _open(scores, opened, size):
    """Return the rows and the blocks that are opened, and the scores of their classes.

    The last score has no meaning where a block has a class less.
    """
    n_blocks = opened.shape[1]
    rows, blocks = np.divmod(np.flatnonzero(opened), n_blocks)
    places = (rows * scores.shape[1] + blocks)[:, None] + np.arange(size) * n_blocks
    return rows, blocks, scores.take(places, mode="clip")


def _find(scores, plan, epsilon, n_draws, generator):
    """Draw the classes that exceed the thresholds.

    Blocks where a point is likely are opened: their classes are told apart.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_classes)
    plan : SievePlan
    epsilon : float
    n_draws : int
    generator : torch.Generator

    Returns
    -------
    _Found
    """
    thresholds, maxima, size = plan[:3]
    opened = _opened(plan, epsilon, n_draws)
    if 3 * size * np.count_nonzero(opened) > scores.size:
        rows, blocks, bounds = np.arange(len(scores)), np.zeros(len(scores), np.int64), scores
    else:
        rows, blocks, bounds = _open(scores, opened, size)
    cells, distances = _sieve(bounds, thresholds[rows, None], epsilon, n_draws, generator)
    which, member = np.divmod(cells, bounds.shape[1])
    rows, found = rows[which], bounds.ravel()[cells]
    n_apart = 1 if bounds is scores else maxima.shape[1]
    classes = blocks[which] + member * n_apart
    lengths = _bound_intensities(found, thresholds[rows], epsilon).astype(np.float64)
    lengths[classes >= scores.shape[1]] = 0
    sure = lengths > max(_SURE_INTENSITY, 1.01 / n_draws)
    lengths[sure] = 0
    cells, draws, places = _find_points(distances, lengths, n_draws, generator)
    points = rows[cells], draws, classes[cells], found[cells], places
    sure = rows[sure], classes[sure]
    if bounds is not scores:
        closed = np.where(opened, -np.inf, maxima)
        others = _find_in_blocks(scores, closed, thresholds, size, epsilon, n_draws, generator)
        points = tuple(map(np.concatenate, zip(points, others)))
    rows, draws, classes, found, places = points
    normals = _normals_beyond(places)
    values = (found + epsilon * normals).astype(scores.dtype)
    kept = np.flatnonzero(values > thresholds[rows])
    # Sorting the numbers themselves is faster than sorting their indices.
    order = np.sort((rows[kept] * n_draws + draws[kept] << 32) + np.arange(len(kept)))
    kept, pairs = kept[order & (1 << 32) - 1], order >> 32
    return _Found(*sure, pairs, classes[kept], normals[kept], values[kept])


def _find_in_blocks(scores, maxima, thresholds, size, epsilon, n_draws, generator):
    """Find the points of blocks, with the intensity of a score that none of the block exceeds.

    Returns
    -------
    rows, draws, classes : int ndarrays of shape (n_points,)
    found, places : ndarrays of shape (n_points,)
        Scores of the classes, and places of the points.
    """
    n_classes, n_blocks = scores.shape[1], maxima.shape[1]
    n_intervals = n_draws * size
    cells, distances = _sieve(maxima, thresholds[:, None], epsilon, n_intervals, generator)
    rows, blocks = np.divmod(cells, n_blocks)
    bounds = maxima.ravel()[cells]
    lengths = _bound_intensities(bounds, thresholds[rows], epsilon).astype(np.float64)
    lengths[bounds == -np.inf] = 0
    cells, intervals, places = _find_points(distances, lengths, n_intervals, generator)
    draws, members = np.divmod(intervals, size)
    rows, classes = rows[cells], blocks[cells] + members * n_blocks
    inside = classes < n_classes
    rows, draws, classes, places = rows[inside], draws[inside], classes[inside], places[inside]
    return rows, draws, classes, scores.take(rows * n_classes + classes), places


def _draw_below(scores, thresholds, epsilon, generator):
    """Draw the normals of all classes, given that none exceeds the threshold."""
    dtype = torch.from_numpy(scores[:0]).dtype
    normals = torch.randn(scores.shape, generator=generator, dtype=dtype).numpy()
    rows, classes = np.nonzero(scores + epsilon * normals > thresholds[:, None])
    most = (thresholds[rows].astype(np.float64) - scores[rows, classes]) / epsilon
    uniform = np.maximum(_draw_uniform(len(rows), generator), 2.0**-54)
    normals[rows, classes] = ndtri(uniform * ndtr(most))
    return normals


def _select(scores, plan, k, epsilon, n_draws, generator):
    """Return the classes of rank k and their normals for some rows and draws."""
    found = _find(scores, plan, epsilon, n_draws, generator)
    n_samples = len(scores)
    n_pairs = n_samples * n_draws
    columns, n_sure = _ranks_in_groups(found.sure_rows, n_samples)
    classes = np.zeros((n_samples, n_sure), dtype=np.int64)
    classes[found.sure_rows, columns] = found.sure_classes
    sure = np.full((n_samples, 1, n_sure), -np.inf, dtype=scores.dtype)
    sure[found.sure_rows, 0, columns] = scores[found.sure_rows, found.sure_classes]
    shape = (n_samples, n_draws, n_sure)
    dtype = torch.from_numpy(sure).dtype
    normals = torch.randn(shape, generator=generator, dtype=dtype).numpy()
    # Each draw has a column for each sure class and for each of its points.
    columns, n_points = _ranks_in_groups(found.pairs, n_pairs)
    n_columns = n_sure + max(n_points, k - n_sure, 1)
    values = np.full((n_pairs, n_columns), -np.inf, dtype=scores.dtype)
    np.add(sure, epsilon * normals, out=values.reshape(n_samples, n_draws, -1)[..., :n_sure])
    values[found.pairs, n_sure + columns] = found.values
    kth = np.partition(values, n_columns - k, axis=1)[:, n_columns - k]
    column = (values == kth[:, None]).argmax(axis=1)
    indices, selected = np.zeros(n_pairs, dtype=np.int64), np.zeros(n_pairs, dtype=scores.dtype)
    (pairs,) = np.nonzero(column < n_sure)
    indices[pairs] = classes[pairs // n_draws, column[pairs]]
    selected[pairs] = normals.reshape(n_pairs, n_sure)[pairs, column[pairs]]
    (points,) = np.nonzero(column[found.pairs] == n_sure + columns)
    indices[found.pairs[points]] = found.classes[points]
    selected[found.pairs[points]] = found.normals[points]
    (short,) = np.nonzero(kth <= np.repeat(plan.thresholds, n_draws))
    at_once = max(1, n_samples // 16)
    drawn_below = np.zeros(n_pairs, dtype=bool)
    drawn_below[short] = True
    (of_short,) = np.nonzero(drawn_below[found.pairs])
    for start in range(0, len(short), at_once):
        pairs = short[start : start + at_once]
        rows = pairs // n_draws
        drawn = _draw_below(scores[rows], plan.thresholds[rows], epsilon, generator)
        known, columns = np.nonzero(sure[rows, 0] > -np.inf)
        drawn[known, classes[rows[known], columns]] = normals.reshape(n_pairs, n_sure)[
            pairs[known], columns
        ]
        first, last = np.searchsorted(found.pairs[of_short], (pairs[0], pairs[-1] + 1))
        known = of_short[first:last]
        place = np.searchsorted(pairs, found.pairs[known])
        drawn[place, found.classes[known]] = found.normals[known]
        last = kth_largest(torch.from_numpy(scores[rows] + epsilon * drawn), k).numpy()
        indices[pairs] = last[:, 0]
        selected[pairs] = np.take_along_axis(drawn, last, axis=1)[:, 0]
    return indices.reshape(n_samples, n_draws), selected.reshape(n_samples, n_draws)


def select_sieving(scores, k, epsilon, n_draws, generator, plan):
    """Find the classes that noise puts at rank k, in each of `n_draws` draws.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
    k : int
    epsilon : float
    n_draws : int
    generator : torch.Generator
    plan : SievePlan

    Returns
    -------
    indices, normals : Tensors of shape (n_samples, n_draws)
        Classes, and the standard normals added to their scores.
    """
    # Memory is to stay near that of the scores: the fewer rows, then draws, together.
    scores = scores.contiguous().numpy()
    n_samples = len(scores)
    n_opened = plan.size * np.count_nonzero(_opened(plan, epsilon, n_draws))
    n_told_apart = n_opened if 3 * n_opened <= scores.size else _AT_ONCE
    n_bytes = max(
        _CELL_BYTES * (plan.maxima.size + n_told_apart), plan.n_bytes * n_samples * n_draws
    )
    most = _MOST_MEMORY * scores.nbytes
    n_parts = min(n_samples, math.ceil(n_bytes / most))
    step = max(1, int(most / plan.n_bytes) // math.ceil(n_samples / n_parts))
    parts = []
    for rows in np.array_split(np.arange(n_samples), n_parts):
        some = slice(rows[0], rows[-1] + 1)
        part = plan._replace(thresholds=plan.thresholds[some], maxima=plan.maxima[some])
        selected = [
            _select(scores[some], part, k, epsilon, min(step, n_draws - done), generator)
            for done in range(0, n_draws, step)
        ]
        parts.append([np.concatenate(draws, axis=1) for draws in zip(*selected)])
    return tuple(torch.from_numpy(np.concatenate(both)) for both in zip(*parts))

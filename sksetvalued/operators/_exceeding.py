"""The classes that noise lifts above thresholds, found without noise for the others.

See :mod:`._sieve` for what they are for and why they are exact in law.
"""

import math
from typing import NamedTuple

import numpy as np
import torch

#: log of the intensity is at most -a u^2 - b u - c between the two values of u; found by linear
#: programming, up to 1.14 times the intensity below u = 3.5.
_A, _B, _C = 0.3547642, 1.0369203, 0.2675
_LEAST_U, _MOST_U = -0.5, 6.0
_SHIFT = _B / (2 * _A)
_LOG_SCALE = _A * _SHIFT**2 - _C
#: Classes of this intensity have all their normals drawn, if it makes a point in the draws likely.
_SURE_INTENSITY = 0.1
#: Scores whose intensities are computed together: few enough for a processor's cache.
AT_ONCE = 1 << 15


def draw_uniform(size, generator):
    """Draw numbers in [0, 1), in double precision."""
    return torch.rand(size, generator=generator, dtype=torch.float64).numpy()


def bound_intensities(bounds, thresholds, epsilon, factor=1.0, most=math.inf):
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
    step = max(1, max(AT_ONCE, bounds.size // 8) // max(1, n_cells))
    found, first = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.uint8)]
    for start in range(0, len(bounds), step):
        some = slice(start, start + step)
        # -log(1 - U) < x needs U < x.
        levels = bound_intensities(
            bounds[some], thresholds[some], epsilon, 256.2 * n_intervals, 255.5
        ).ravel()
        words = torch.empty(-(-levels.size // 8), dtype=torch.int64)
        words.random_(-(2**63), None, generator=generator)
        digits = words.view(torch.uint8).numpy()[: levels.size]
        cells = np.flatnonzero(digits <= levels.astype(np.uint8))
        first.append(digits[cells])
        found.append(cells + start * n_cells)
    uniform = np.concatenate(first) + draw_uniform(sum(map(len, first)), generator)
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
        distances = (intervals + 1) * lengths - np.log1p(-draw_uniform(len(cells), generator))
        more = np.flatnonzero(distances < n_intervals * lengths)
        cells, distances, lengths = cells[more], distances[more], lengths[more]
    return tuple(map(np.concatenate, zip(*found)))


def _normals_beyond(places):
    """Return the normals whose tail probabilities are 1 - exp(-places)."""
    # Below 2^-50 that of single or double precision would be infinite.
    tails = np.expm1(-np.maximum(places, 2.0**-50))
    return math.sqrt(2) * torch.erfinv(torch.from_numpy(2 * tails + 1)).numpy()


class Exceeding(NamedTuple):
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


def opened_blocks(plan, epsilon, n_draws):
    """Return which blocks may have a class of some intensity: theirs are told apart."""
    u = math.sqrt((_LOG_SCALE - math.log(0.05 / n_draws)) / _A) - _SHIFT
    cut = (plan.thresholds.astype(np.float64) - u * epsilon).astype(plan.thresholds.dtype)
    return plan.maxima >= cut[:, None]


def _open(scores, opened, size):
    """Return the rows and the blocks that are opened, and the scores of their classes.

    The last score is -inf where a block has a class less.
    """
    n_classes, n_blocks = scores.shape[1], opened.shape[1]
    rows, blocks = np.divmod(np.flatnonzero(opened), n_blocks)
    places = (rows * n_classes + blocks)[:, None] + np.arange(size) * n_blocks
    members = scores.take(places, mode="clip")
    if n_blocks * size > n_classes:
        members[blocks[:, None] + np.arange(size) * n_blocks >= n_classes] = -np.inf
    return rows, blocks, members


def find_exceeding(scores, plan, epsilon, n_draws, generator):
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
    Exceeding
    """
    thresholds, maxima, size, _ = plan
    opened = opened_blocks(plan, epsilon, n_draws)
    drawing = thresholds, epsilon, n_draws, generator
    if 3 * size * np.count_nonzero(opened) > scores.size:
        rows = np.arange(len(scores))
        sure, points = _find_told_apart(rows, np.zeros_like(rows), 1, scores, *drawing)
    else:
        rows, blocks, members = _open(scores, opened, size)
        n_blocks = maxima.shape[1]
        sure, points = _find_told_apart(rows, blocks, n_blocks, members, *drawing)
        closed = np.where(opened, -np.inf, maxima)
        points = map(np.concatenate, zip(points, _find_in_blocks(scores, closed, size, *drawing)))
    rows, draws, classes, found, places = points
    normals = _normals_beyond(places)
    values = (found + epsilon * normals).astype(scores.dtype)
    kept = np.flatnonzero(values > thresholds[rows])
    # Sorting the numbers themselves is faster than sorting their indices.
    order = np.sort((rows[kept] * n_draws + draws[kept] << 32) + np.arange(len(kept)))
    kept, pairs = kept[order & (1 << 32) - 1], order >> 32
    return Exceeding(*sure, pairs, classes[kept], normals[kept], values[kept])


def _find_told_apart(rows, first, step, members, thresholds, epsilon, n_draws, generator):
    """Find the points of classes that are told apart, and those that are sure to matter.

    Parameters
    ----------
    rows, first : int ndarrays of shape (n_blocks,)
        Row and first class of each block.
    step : int
        Distance between the classes of a block.
    members : ndarray of shape (n_blocks, size)
        Scores of the classes of the blocks.
    thresholds, epsilon, n_draws, generator
        As in :func:`find_exceeding`.

    Returns
    -------
    sure : tuple of int ndarrays of shape (n_sure,)
        Rows and classes.
    points : tuple
        As :func:`_find_in_blocks` returns it.
    """
    cells, distances = _sieve(members, thresholds[rows, None], epsilon, n_draws, generator)
    size, found = members.shape[1], members.ravel()[cells]
    lengths = bound_intensities(found, thresholds[rows[cells // size]], epsilon).astype(np.float64)
    (sure,) = np.nonzero(lengths > max(_SURE_INTENSITY, 1.01 / n_draws))
    lengths[sure] = 0
    points, draws, places = _find_points(distances, lengths, n_draws, generator)
    found = found[points]

    def locate(cells):
        """Return rows and classes."""
        block, member = np.divmod(cells, size)
        return rows[block], first[block] + member * step

    row, classes = locate(cells[points])
    return locate(cells[sure]), (row, draws, classes, found, places)


def _find_in_blocks(scores, maxima, size, thresholds, epsilon, n_draws, generator):
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
    lengths = bound_intensities(bounds, thresholds[rows], epsilon).astype(np.float64)
    lengths[bounds == -np.inf] = 0
    cells, intervals, places = _find_points(distances, lengths, n_intervals, generator)
    draws, members = np.divmod(intervals, size)
    rows, classes = rows[cells], blocks[cells] + members * n_blocks
    inside = classes < n_classes
    rows, draws, classes, places = rows[inside], draws[inside], classes[inside], places[inside]
    return rows, draws, classes, scores.take(rows * n_classes + classes), places

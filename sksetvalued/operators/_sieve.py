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
fewer than k classes exceed t, given that they do not.

All this is exact in law, for noise that the precision of the scores can hold. In single precision
noise below about 1e-5 of the scores takes few values once it is added: noised scores tie, ties go
to the first class, here and where all noise is drawn, and as the two round tied values differently
their laws then differ.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import ndtr, ndtri

from ._exceeding import AT_ONCE, draw_uniform, find_exceeding, opened_blocks
from ._top_k import kth_largest

#: Classes expected above the threshold are k and so many square roots of k.
_SPARE = 3.5
#: Bytes for a block or a class told apart, and for a class expected above the threshold; the most
#: memory, in units of the scores.
_CELL_BYTES, _EXPECTED_BYTES, _MOST_MEMORY = 11, 50, 1.06
#: Noise whose square, or that of its inverse, a number in single precision may not hold.
LEAST_NOISE, MOST_NOISE = 1e-15, 1e15


def _expected(k):
    """Return how many classes are to exceed the threshold in a draw, in the mean."""
    return k + _SPARE * math.sqrt(k)


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
        About how much memory a draw for a sample takes, found by measuring.
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
        top, z = largest(_expected(k))
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
    expected, ratio = _expected(k), float(ratios.mean())
    n_bytes = expected * (15 + (133 * math.sqrt(ratio) - 38 * ratio) * (1 + k / 150))
    plan = SievePlan(thresholds, maxima, size, n_bytes)
    return plan, expected * (20 + 180 * ratio)


def plan_sieve(scores, k, epsilon, n_draws):
    """Return the plan for :func:`select_sieving`, or None where that does not pay.

    Only the scores are looked at, never the noise, which would bias it. Nanoseconds found by
    timing are compared.
    """
    n_samples, n_classes = scores.shape
    fixed = 4e5 + n_samples * n_classes * 4.0
    dense = n_samples * n_draws * n_classes * 5.0
    size = 8 if n_classes < 1 << 12 else 16 if n_classes < 1 << 15 else 32
    while size > 1 and 3 * _expected(k) * size > n_classes:
        size //= 2
    representable = LEAST_NOISE < epsilon < MOST_NOISE
    if scores.device.type != "cpu" or size == 1 or fixed > dense or not representable:
        return None
    plan, a_draw = make_plan(scores, k, epsilon, size)
    if fixed + n_samples * n_draws * a_draw > dense or not np.isfinite(plan.thresholds).all():
        return None
    return plan


def _ranks_in_groups(groups, n_groups):
    """Return the position of each entry in its group, and the size of the largest group."""
    counts = np.bincount(groups, minlength=n_groups)
    starts = counts.cumsum() - counts
    return np.arange(len(groups)) - starts[groups], int(counts.max(initial=0))


def _draw_below(scores, thresholds, epsilon, generator):
    """Draw the normals of all classes, given that none exceeds the threshold."""
    dtype = torch.from_numpy(scores[:0]).dtype
    normals = torch.randn(scores.shape, generator=generator, dtype=dtype).numpy()
    rows, classes = np.nonzero(scores + epsilon * normals > thresholds[:, None])
    most = (thresholds[rows].astype(np.float64) - scores[rows, classes]) / epsilon
    uniform = np.maximum(draw_uniform(len(rows), generator), 2.0**-54)
    normals[rows, classes] = ndtri(uniform * ndtr(most))
    return normals


class _Sure(NamedTuple):
    """Classes whose normals are drawn in all draws, as many columns as the row with the most.

    Attributes
    ----------
    classes : int ndarray of shape (n_samples, n_sure)
    scores : ndarray of shape (n_samples, n_sure)
        -inf where a row has fewer.
    normals : ndarray of shape (n_samples * n_draws, n_sure)
    """

    classes: np.ndarray
    scores: np.ndarray
    normals: np.ndarray


def _draw_sure(scores, rows, classes, n_draws, generator):
    """Draw the normals of the classes that are sure to matter."""
    columns, n_sure = _ranks_in_groups(rows, len(scores))
    table = np.zeros((len(scores), n_sure), dtype=np.int64)
    table[rows, columns] = classes
    known = np.full((len(scores), n_sure), -np.inf, dtype=scores.dtype)
    known[rows, columns] = scores[rows, classes]
    dtype = torch.from_numpy(known).dtype
    normals = torch.randn((len(scores) * n_draws, n_sure), generator=generator, dtype=dtype)
    return _Sure(table, known, normals.numpy())


def _select(scores, plan, k, epsilon, n_draws, generator):
    """Return the classes of rank k and their normals for some rows and draws."""
    found = find_exceeding(scores, plan, epsilon, n_draws, generator)
    sure = _draw_sure(scores, found.sure_rows, found.sure_classes, n_draws, generator)
    n_pairs, n_sure = sure.normals.shape
    # Each draw has a column for each sure class and for each of its points.
    columns, n_points = _ranks_in_groups(found.pairs, n_pairs)
    n_columns = n_sure + max(n_points, k - n_sure, 1)
    values = np.full((n_pairs, n_columns), -np.inf, dtype=scores.dtype)
    by_row = values.reshape(len(scores), n_draws, n_columns)[..., :n_sure]
    np.multiply(sure.normals.reshape(by_row.shape), epsilon, out=by_row)
    by_row += sure.scores[:, None]
    values[found.pairs, n_sure + columns] = found.values
    kth = np.partition(values, n_columns - k, axis=1)[:, n_columns - k]
    column = (values == kth[:, None]).argmax(axis=1)
    indices, normals = _look_up(column, columns, sure, found)
    (short,) = np.nonzero(kth <= np.repeat(plan.thresholds, n_draws))
    at_once = max(1, len(scores) // 16)
    for start in range(0, len(short), at_once):
        pairs = short[start : start + at_once]
        drawn = _draw_short(scores, plan.thresholds, pairs, sure, found, epsilon, generator)
        last = kth_largest(torch.from_numpy(scores[pairs // n_draws] + epsilon * drawn), k).numpy()
        indices[pairs] = last[:, 0]
        normals[pairs] = np.take_along_axis(drawn, last, axis=1)[:, 0]
    return indices.reshape(-1, n_draws), normals.reshape(-1, n_draws)


def _look_up(column, columns, sure, found):
    """Return the classes and normals that the k-th values of the draws belong to.

    Parameters
    ----------
    column : int ndarray of shape (n_pairs,)
        Where the k-th value is: among the sure classes, or after them among the points.
    columns : int ndarray of shape (n_points,)
        Places of the points.
    sure : _Sure
    found : Exceeding
    """
    n_pairs, n_sure = sure.normals.shape
    indices, normals = np.zeros(n_pairs, np.int64), np.zeros(n_pairs, sure.normals.dtype)
    (pairs,) = np.nonzero(column < n_sure)
    indices[pairs] = sure.classes[pairs * len(sure.classes) // n_pairs, column[pairs]]
    normals[pairs] = sure.normals[pairs, column[pairs]]
    (points,) = np.nonzero(column[found.pairs] == n_sure + columns)
    indices[found.pairs[points]] = found.classes[points]
    normals[found.pairs[points]] = found.normals[points]
    return indices, normals


def _draw_short(scores, thresholds, pairs, sure, found, epsilon, generator):
    """Return the normals of all classes in draws where too few exceed the threshold.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_classes)
    thresholds : ndarray of shape (n_samples,)
    pairs : int ndarray of shape (n_pairs,)
        In increasing order.
    sure : _Sure
    found : Exceeding
    epsilon : float
    generator : torch.Generator

    Returns
    -------
    ndarray of shape (n_pairs, n_classes)
    """
    rows = pairs // (len(sure.normals) // len(scores))
    drawn = _draw_below(scores[rows], thresholds[rows], epsilon, generator)
    known, columns = np.nonzero(sure.scores[rows] > -np.inf)
    drawn[known, sure.classes[rows[known], columns]] = sure.normals[pairs[known], columns]
    first, last = np.searchsorted(found.pairs, (pairs, pairs + 1))
    counts = last - first
    place = np.repeat(np.arange(len(pairs)), counts)
    known = np.arange(len(place)) + np.repeat(last - counts.cumsum(), counts)
    drawn[place, found.classes[known]] = found.normals[known]
    return drawn


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
    n_opened = plan.size * np.count_nonzero(opened_blocks(plan, epsilon, n_draws))
    n_told_apart = n_opened if 3 * n_opened <= scores.size else AT_ONCE
    n_expected = n_samples * _expected(k)
    to_find = _CELL_BYTES * (plan.maxima.size + n_told_apart) + _EXPECTED_BYTES * n_expected
    n_bytes = max(to_find, plan.n_bytes * n_samples * n_draws)
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

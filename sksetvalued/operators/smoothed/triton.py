r"""The smoothed hinge loss by exponential tilting, in one Triton kernel each way.

As in :mod:`.reference`, independent trials are tilted so that about k - 1/2 successes are
expected. The probabilities of k - 1 and k are Fourier coefficients of the product of

.. math:: F(w) = \prod_j \frac{1 + o_j w}{1 + o_j}

on a few nodes of the unit circle, since the number of successes is concentrated, and the gradient
of the log-ratio is, for each class, a function of its odds alone:

.. math:: \frac{1}{N} \sum_w w^{1-k} \frac{o_i F(w)}{1 + o_i w}
    \left( \frac{1}{f_k} - \frac{w}{f_{k-1}} \right).

A program takes one row. It finds a cut below which the odds are small, from the largest entries
that its lanes keep; it reads the row again to add up the powers of the odds below the cut, and
multiplies the few factors above it one by one, for all nodes of the circle at once. The gradient
is a function of the odds: a polynomial below the cut, a sum over the nodes above it. Nothing but
the gradient is written.
"""

import math
from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language import constexpr

from .. import _triton_rows as rows
from . import reference

#: Powers of the odds below the cut that matter.
_MAX_POWERS = 16
#: Classes of a program that writes a part of a row.
_PART = 1024
#: The logarithm of a probability that does not matter.
_LOG_NEGLIGIBLE = math.log(1e-9)
#: Steps of Newton's method for the tilt, which need not be exact.
_STEPS = constexpr(3)
_NONE = constexpr(-float("inf"))
#: The key of -inf.
_LOWEST_KEY = constexpr(-2139095041)


@triton.jit
def _at_rank(values, rank):
    """Return the entry of that rank; there are at least so many."""
    high = rows.ordered_keys(tl.max(values)).to(tl.int64)
    low = high * 0 + _LOWEST_KEY
    while high - low > 1:
        middle = low + (high - low) // 2
        enough = tl.sum((values > rows.value_of_key(middle)).to(tl.int32)) >= rank
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    return rows.value_of_key(high)


@triton.jit
def _append(out, values, cut, count):
    """Write the entries above the cut behind the first `count`; return how many there are."""
    above = (values > cut).to(tl.int32)
    tl.store(out + count + tl.cumsum(above) - 1, values, mask=above != 0)
    return count + tl.sum(above)


@triton.jit
def _find_head(
    row, n_classes, target, least, head, SIGN: constexpr, HEAD: constexpr, TILE: constexpr
):
    """Write the entries above a cut to `head`; return the cut and their number.

    They are at least `least`, and at most HEAD, or all; fewer only where they tie at the cut.
    """
    none = tl.full((TILE,), _NONE, dtype=tl.float32)
    largest = (none, none, none, none)
    for start in tl.range(0, n_classes, TILE, num_stages=rows.STAGES):
        y = rows.load_scores(row, start, n_classes, TILE, target, SIGN)
        largest = rows.keep_largest(y, largest)
    kept = rows.join_largest(largest)
    lowest = tl.min(tl.where(kept > _NONE, kept, float("inf")))
    # All are above `low`; none is above `high`.
    low = rows.ordered_keys(lowest - 1e-6 * tl.abs(lowest) - 1e-30).to(tl.int64)
    top = rows.ordered_keys(tl.max(largest[0])).to(tl.int64)
    high = top
    count = tl.sum((kept > _NONE).to(tl.int32))
    most_left_out = tl.where(n_classes <= 4 * TILE, _NONE, tl.max(largest[3]))
    over_row = n_classes < 0
    searching = n_classes > 0
    while searching:
        if (count <= HEAD) | (high - low <= 1):
            cut = rows.value_of_key(tl.where(count <= HEAD, low, high))
            searching = (not over_row) & (most_left_out > cut)
            over_row = over_row | searching
            high = tl.where(searching, top, high)
            count = tl.where(searching, HEAD + 1, count)
        else:
            middle = low + (high - low) // 2
            value = rows.value_of_key(middle)
            if over_row:
                counts = tl.zeros((TILE,), dtype=tl.int32)
                for start in tl.range(0, n_classes, TILE, num_stages=rows.STAGES):
                    y = rows.load_scores(row, start, n_classes, TILE, target, SIGN)
                    counts += (y > value).to(tl.int32)
                above = tl.sum(counts)
            else:
                above = tl.sum((kept > value).to(tl.int32))
            low = tl.where(above >= least, middle, low)
            high = tl.where(above >= least, high, middle)
            count = tl.where(above >= least, above, count)
    cut = rows.value_of_key(tl.where(count <= HEAD, low, high))
    count = 0
    if over_row:
        for start in range(0, n_classes, TILE):
            y = rows.load_scores(row, start, n_classes, TILE, target, SIGN)
            count = _append(head, y, cut, count)
    else:
        for m in tl.static_range(4):
            count = _append(head, largest[m], cut, count)
    return cut, count


@triton.jit
def _sum_powers(
    row, n_classes, target, cut, cooling, SIGN: constexpr, N_POWERS: constexpr, TILE: constexpr
):
    """Return the sums of the powers of the odds below the cut, where they would be one."""
    sums = (tl.zeros((TILE,), dtype=tl.float32),) * N_POWERS
    for start in tl.range(0, n_classes, TILE, num_stages=rows.STAGES):
        y = rows.load_scores(row, start, n_classes, TILE, target, SIGN)
        odds = tl.where(y > cut, 0.0, tl.exp((y - cut) * cooling))
        power = odds
        raised = ()
        for m in tl.static_range(N_POWERS):
            raised = raised + (sums[m] + power,)  # noqa: RUF005
            power *= odds
        sums = raised
    return [tl.sum(total) for total in sums]


@triton.jit
def _tilt(x, k, first_sum, second_sum):
    """Return the shift of the log-odds at which about k - 1/2 successes are expected.

    `x` are the log-odds of the head, from the k-th largest; the sums are those of the odds, and
    of their squares, below the cut.
    """
    below = tl.sum(tl.where(x <= 0, tl.exp(x), 0.0))
    shift = tl.log(2 * (below + first_sum))
    for _ in tl.static_range(_STEPS):
        p = 1 / (1 + tl.exp(shift - x))
        odds = tl.exp(-shift)
        squares = second_sum * odds * odds
        mean = tl.sum(p) + first_sum * odds - squares
        squares += tl.sum(p * p)
        step = tl.log((k - 0.5) / mean) * mean / tl.maximum(mean - squares, 1e-2)
        shift -= tl.minimum(tl.maximum(step, -3.0), 3.0)
    return shift


@triton.jit
def _value_kernel(
    scores,
    row_stride,
    n_classes,
    targets,
    rank,
    least,
    size,
    cooling,
    margin,
    tau,
    circle,
    work,
    losses,
    saved,
    SIGN: constexpr,
    N_POWERS: constexpr,
    N_NODES: constexpr,
    HEAD: constexpr,
    TILE: constexpr,
):
    """Write the loss of a row, and what its gradient needs.

    `size` is the k of the loss; `rank` is it, or, with SIGN -1, the number of classes minus it.
    `circle` holds the constants of the nodes, a row each; each row of `work` has 3 HEAD entries.
    """
    row = tl.program_id(0).to(tl.int64)
    scores += row * row_stride
    target = tl.load(targets + row)
    head = work + row * 3 * HEAD
    factors = head + HEAD
    cut, count = _find_head(scores, n_classes, target, least, head, SIGN, HEAD, TILE)
    tl.debug_barrier()
    places = tl.arange(0, HEAD)
    y = tl.load(head + places, mask=places < count, other=_NONE)
    origin = cut
    if count >= rank:
        origin = _at_rank(y, rank)
    totals = _sum_powers(scores, n_classes, target, cut, cooling, SIGN, N_POWERS, TILE)

    x = (y - origin) * cooling
    scale = tl.exp((cut - origin) * cooling)
    first_sum = totals[0] * scale
    second_sum = first_sum * 0
    if N_POWERS > 1:
        second_sum = totals[1] * scale * scale
    shift = _tilt(x, rank, first_sum, second_sum)
    tl.store(factors + places, 1 / (1 + tl.exp(shift - x)))
    tl.store(factors + HEAD + places, 1 / (1 + tl.exp(x - shift)))
    tl.debug_barrier()

    nodes = tl.arange(0, N_NODES)
    w_real, w_imag = tl.load(circle + nodes), tl.load(circle + N_NODES + nodes)
    real, imag = tl.load(circle + 2 * N_NODES + nodes), tl.load(circle + 3 * N_NODES + nodes)
    for j in range(count):
        p, q = tl.load(factors + j), tl.load(factors + HEAD + j)
        a, b = q + p * w_real, p * w_imag
        real, imag = real * a - imag * b, real * b + imag * a
    scale *= tl.exp(-shift)
    power = scale
    log_real, log_imag = 0 * w_real, 0 * w_real
    logs = circle + 6 * N_NODES + nodes
    for m in tl.static_range(N_POWERS):
        total = totals[m] * power
        log_real += tl.load(logs + 2 * m * N_NODES) * total
        log_imag += tl.load(logs + (2 * m + 1) * N_NODES) * total
        power *= scale
    a, b = tl.exp(log_real) * tl.cos(log_imag), tl.exp(log_real) * tl.sin(log_imag)
    real, imag = real * a - imag * b, real * b + imag * a
    f_k = tl.sum(real * w_real + imag * w_imag)
    f_before = tl.sum(real)
    a, b = 1 / f_k - w_real / f_before, -w_imag / f_before
    real, imag = real * a - imag * b, real * b + imag * a
    saved += row * (4 + 2 * N_NODES + N_POWERS)
    tl.store(saved + 4 + nodes, real)
    tl.store(saved + 4 + N_NODES + nodes, real * w_real + imag * w_imag)
    powers = circle + (6 + 2 * N_POWERS) * N_NODES + nodes
    for m in tl.static_range(N_POWERS):
        coefficient = tl.load(powers + 2 * m * N_NODES) * real
        coefficient += tl.load(powers + (2 * m + 1) * N_NODES) * imag
        tl.store(saved + 4 + 2 * N_NODES + m, tl.sum(coefficient))

    known = (target >= 0) & (target < n_classes)
    own = SIGN * tl.load(scores + target, mask=known, other=float("nan"))
    # In double precision: a small loss keeps its digits.
    ratio = SIGN * ((origin - own) * cooling + tl.log(f_k / f_before) + shift)
    ratio = (ratio + margin / tau).to(tl.float64)
    rest = tl.exp(-tl.abs(ratio))
    rest = tl.where(rest < 1e-5, rest - rest * rest / 2, tl.log(1 + rest))
    tl.store(losses + row, (tau * (tl.maximum(ratio, 0.0) + rest)).to(tl.float32))
    tl.store(saved, (1 / (1 + tl.exp(-ratio)) / size).to(tl.float32))
    tl.store(saved + 1, origin)
    tl.store(saved + 2, cut)
    tl.store(saved + 3, shift)


@triton.jit
def _gradient_kernel(
    scores,
    row_stride,
    n_classes,
    targets,
    cooling,
    circle,
    n_points,
    grad,
    saved,
    out,
    SIGN: constexpr,
    N_POWERS: constexpr,
    N_NODES: constexpr,
    TILE: constexpr,
):
    """Write the gradient of a part of a row."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row)
    saved += row * (4 + 2 * N_NODES + N_POWERS)
    weight = tl.load(grad + row) * tl.load(saved)
    origin, cut, shift = tl.load(saved + 1), tl.load(saved + 2), tl.load(saved + 3)
    sums = saved + 4
    coefficients = sums + 2 * N_NODES
    classes = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = classes < n_classes
    y = SIGN * tl.load(scores + row * row_stride + classes, mask=inside, other=0.0)
    x = (y - origin) * cooling - shift
    odds = tl.exp(x)
    value = tl.load(coefficients + N_POWERS - 1) + 0 * odds
    for m in tl.static_range(1, N_POWERS):
        value = value * odds + tl.load(coefficients + N_POWERS - 1 - m)
    value *= odds
    in_head = inside & (classes != target) & (y > cut)
    if tl.max(in_head.to(tl.int32)) > 0:
        p, q = 1 / (1 + tl.exp(-x)), 1 / (1 + tl.exp(x))
        square = (p - q) * (p - q)
        plain, turned = 0 * p, 0 * p
        for node in range(n_points):
            # |q + p w|^2, without cancellation near w = -1.
            far, near = tl.load(circle + 4 * N_NODES + node), tl.load(circle + 5 * N_NODES + node)
            inverse = 1 / (far + near * square)
            plain += inverse * tl.load(sums + node)
            turned += inverse * tl.load(sums + N_NODES + node)
        value = tl.where(in_head, p * (q * plain + p * turned), value)
    value = tl.where(classes == target, -1.0, value)
    tl.store(out + row * n_classes + classes, weight * value, mask=inside)


def n_nodes(k, n_classes):
    """Return an odd number N of nodes that tells k successes from k + N and k - N.

    A transform over N nodes adds up probabilities that are N apart: N is where Chernoff's bound of
    these is negligible. The expected number of successes may be up to half a success off k - 1/2.
    """

    def log_bound(mean, count):
        return count - mean + (count * math.log(mean / count) if count else 0)

    n = 3
    while n <= n_classes:
        above, below = log_bound(k, k - 1 + n), log_bound(k - 1, k - n) if k >= n else -math.inf
        if max(above, below) < _LOG_NEGLIGIBLE:
            break
        n += 2
    return n


@lru_cache(maxsize=64)
def make_constants(rank, n_others, n_powers, device):
    """Return the constants of the nodes, a part of each in a row, and the number of nodes.

    They are complex numbers, or pairs. Rows are filled up to a power of two.
    """
    n = n_nodes(rank, n_others)
    index = np.arange(n // 2 + 1)
    w = np.exp(2j * np.pi * index / n)
    selection = w ** (1 - rank) * np.where(index == 0, 1.0, 2.0) / n
    far_and_near = (np.abs(1 + w) ** 2 + 1j * np.abs(1 - w) ** 2) / 4
    m = np.arange(1.0, n_powers + 1)[:, None]
    logs, powers = -((-1) ** m) * (w**m - 1) / m, np.conj((-w) ** (m - 1))
    numbers = np.concatenate([[w, selection, far_and_near], logs, powers])
    table = np.zeros((len(numbers), 2, triton.next_power_of_2(len(w))))
    table[..., : len(w)] = np.stack([numbers.real, numbers.imag], axis=1)
    return torch.from_numpy(table).flatten(0, 1).to(device, torch.float32), len(w)


def plan_powers(rank):
    """Return how many powers matter, and how few and how many entries are above the cut."""
    # As many keep the odds below the cut under 1/2, and lower where powers are left out.
    least = 2 * rank + 4 if rank < 10 else 4 * rank
    return min(rank, _MAX_POWERS), least, triton.next_power_of_2(2 * least)


def _plan(scores, k):
    """Return the rank that counts, the constants of the nodes, how many there are, and options."""
    n_classes = scores.shape[1]
    rank, sign = (n_classes - k, -1) if 2 * k > n_classes else (k, 1)
    n_powers, _, _ = plan_powers(rank)
    circle, n_points = make_constants(rank, n_classes - 1, n_powers, scores.device)
    return rank, circle, n_points, {"SIGN": sign, "N_POWERS": n_powers, "N_NODES": circle.shape[1]}


class SmoothedHinge(reference.SmoothedHinge):
    """The smoothed hinge of float32, by a kernel each way."""

    @staticmethod
    def compute(scores, target, k, tau, margin):
        target = target.contiguous()
        n_rows, n_classes = scores.shape
        rank, circle, _, options = _plan(scores, k)
        n_powers, least, n_head = plan_powers(rank)
        options |= {"HEAD": n_head, **rows.plan_lanes(n_classes)}
        work = scores.new_empty(n_rows, 3 * n_head)
        losses = scores.new_empty(n_rows)
        saved = scores.new_empty(n_rows, 4 + 2 * circle.shape[1] + n_powers)
        numbers = rank, least, k, 1 / (k * tau), float(margin), float(tau)
        out = circle, work, losses, saved
        rows.launch(_value_kernel, (n_rows,), scores, target, *numbers, *out, **options)
        return losses, (scores, target, saved), (k, tau, margin)

    @staticmethod
    def gradient(grad, scores, target, saved, parameters):
        k, tau, _ = parameters
        _, circle, n_points, options = _plan(scores, k)
        out = scores.new_empty(scores.shape)
        grid = len(scores), triton.cdiv(scores.shape[1], _PART)
        given = target, 1 / (k * tau), circle, n_points, grad.contiguous(), saved, out
        rows.launch(_gradient_kernel, grid, scores, *given, TILE=_PART, num_warps=4, **options)
        return out

r"""The class of rank k after noise, in one pass of a Triton kernel, and the hinge on it.

Each program reads the scores of one row, tile after tile, adds normals that a counter-based
generator (Philox) makes on the spot, and keeps the k largest: neither the noise nor the noised
scores are ever stored. The normals of the selected classes are made again at the end, from their
counters. Long rows are split into segments when there are too few programs to fill the device;
the k largest of the segments are then merged.

A second kernel takes from them the loss of each row, and the third writes its gradient.
"""

from functools import lru_cache

import torch
import triton
import triton.language as tl

from .._triton_rows import launch, ordered_keys, value_of_key, with_contiguous_rows
from . import reference

#: Classes of a tile; a power of two.
_TILE = 1024
#: A segment has at least so many classes.
_MIN_SEGMENT = 4096
#: Programs that keep a multiprocessor busy.
_PROGRAMS_PER_MULTIPROCESSOR = 8

#: Below the key of any number.
_EMPTY = tl.constexpr(-(2**31))
#: Not below the key of any number.
_UNUSED = tl.constexpr(2**31 - 1)
#: The key of NaN.
_NAN = tl.constexpr(0x7FC00000)
#: Entries that a program of the hinge goes through at once.
_AT_ONCE = 4096
#: Classes of a program that writes a part of a gradient.
_PART = 1024


@triton.jit
def _box_muller(a, b):
    """Return two normals from two uniform integers of 32 bits."""
    level = (a.to(tl.float32) + 0.5) * 2.3283064365386963e-10
    # The approximate logarithm of a number just below 1 may round to above 0.
    radius = tl.sqrt(tl.maximum(-2.0 * tl.log(level), 0.0))
    # The sine and cosine of the library have branches for large angles. Here an angle of at most
    # an eighth of a turn, then two bits of the four quarters.
    angle = (b << 2).to(tl.int32, bitcast=True).to(tl.float32) * 3.657295198e-10
    x = angle * angle
    sine = angle * (1.0 + x * (-1 / 6 + x * (1 / 120 - x * (1 / 5040 - x * (1 / 362880)))))
    cosine = -0.5 + x * (1 / 24 - x * (1 / 720 - x * (1 / 40320 - x * (1 / 3628800))))
    cosine = 1.0 + x * cosine
    radius = tl.where(b.to(tl.int32, bitcast=True) < 0, -radius, radius)
    swapped = (b & 0x40000000) != 0
    return radius * tl.where(swapped, sine, cosine), radius * tl.where(swapped, cosine, sine)


@triton.jit
def four_normals(seed, quad, stream):
    """Return the normals of classes 4 `quad` to 4 `quad` + 3 in stream number `stream`."""
    zero = quad * 0
    a, b, c, d = tl.philox(seed, quad, zero + stream, zero, zero)
    first, second = _box_muller(a, b)
    third, fourth = _box_muller(c, d)
    return first, second, third, fourth


@triton.jit
def _select_kernel(
    scores,
    row_stride,
    n_classes,
    n_draws,
    segment,
    epsilon,
    seed,
    keys_out,
    classes_out,
    normals_out,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    TILE: tl.constexpr,
    SHARED: tl.constexpr,
    LAST_ONLY: tl.constexpr,
):
    """Select within one segment of a row, for one draw: program (row x n_draws + draw, segment).

    K <= SLOTS and TILE are powers of two, but for K; `segment` is a multiple of TILE. Without a
    seed there is no noise.
    """
    pair = tl.program_id(0)
    row = pair // n_draws
    stream = pair
    if SHARED:
        stream = pair - row * n_draws
    if seed is not None:
        key = tl.load(seed)
    scores += row.to(tl.int64) * row_stride
    first = tl.program_id(1) * segment
    last = tl.minimum(first + segment, n_classes)

    slots = tl.arange(0, SLOTS)
    kept = tl.where(slots < K, _EMPTY, _UNUSED).to(tl.int32)
    kept_classes = tl.zeros((SLOTS,), dtype=tl.int32)
    threshold, weakest = tl.min(kept, axis=0, return_indices=True)
    for start in range(first, last, TILE):
        classes = start + tl.arange(0, TILE)
        inside = classes < last
        values = tl.load(scores + classes, mask=inside, other=0.0).to(tl.float32)
        if seed is not None:
            quads = start // 4 + tl.arange(0, TILE // 4)
            one, two, three, four = four_normals(key, quads, stream)
            # Interleaved: the four of the first quad come first.
            normals = tl.join(tl.join(one, three), tl.join(two, four)).reshape((TILE,))
            values += epsilon * normals
        keys = tl.where(inside, ordered_keys(values), _EMPTY)
        top, place = tl.max(keys, axis=0, return_indices=True)
        while top > threshold:
            replaced = slots == weakest
            kept = tl.where(replaced, top, kept)
            kept_classes = tl.where(replaced, start + place, kept_classes)
            threshold, weakest = tl.min(kept, axis=0, return_indices=True)
            keys = tl.where(classes == start + place, _EMPTY, keys)
            top, place = tl.max(keys, axis=0, return_indices=True)

    program = pair.to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    if LAST_ONLY:
        place = program + tl.zeros((SLOTS,), dtype=tl.int64)
        chosen = slots == weakest
    else:
        place = program * K + slots
        chosen = slots < K
        tl.store(keys_out + place, kept, mask=chosen)
    tl.store(classes_out + place, kept_classes.to(tl.int64), mask=chosen)
    if normals_out is not None:
        one, two, three, four = four_normals(key, kept_classes // 4, stream)
        lane = kept_classes % 4
        low, high = tl.where(lane == 0, one, two), tl.where(lane == 2, three, four)
        tl.store(normals_out + place, tl.where(lane < 2, low, high), mask=chosen)


@triton.jit
def _hinge_kernel(
    scores,
    row_stride,
    n_classes,
    targets,
    keys,
    classes,
    n_draws,
    n_kept,
    ranks,
    n_ranks,
    margins,
    margin,
    scale,
    losses,
    slopes,
    indices,
    K: tl.constexpr,
    DRAWS: tl.constexpr,
    KEPT: tl.constexpr,
    RANKS: tl.constexpr,
    EACH: tl.constexpr,
):
    """Write the loss of a row, the slope of each rank, and the classes that share it.

    `keys` and `classes` are those of :func:`_select_kernel`, `n_kept` of each draw, which hold
    the K largest; `ranks` are places among them, then weights. With EACH, `margins` has one for
    each row. DRAWS, and KEPT and RANKS, which are not below their numbers, are powers of two.
    """
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row)
    known = (target >= 0) & (target < n_classes)
    own = tl.load(scores + row * row_stride + target, mask=known, other=float("nan"))
    if EACH:
        margin = tl.load(margins + row)
    at = tl.arange(0, RANKS)
    there = at < n_ranks
    places = tl.load(ranks + at, mask=there, other=-1.0).to(tl.int32)
    weights = tl.load(ranks + n_ranks + at, mask=there, other=0.0)
    sums = tl.zeros((RANKS,), dtype=tl.float32)
    indices += row * (n_draws * n_ranks + 1)
    slots = tl.arange(0, KEPT)[None, :]
    for first in range(0, n_draws, DRAWS):
        draws = first + tl.arange(0, DRAWS)
        drawn = draws < n_draws
        inside = drawn[:, None] & (slots < n_kept)
        kept = (row * n_draws + draws)[:, None] * n_kept + slots
        left = tl.load(keys + kept, mask=inside, other=_EMPTY)
        found = tl.load(classes + kept, mask=inside, other=0)
        for place in range(K):
            top, slot = tl.max(left, axis=1, return_indices=True)
            taken = slots == slot[:, None]
            here = there & (places == place)
            if tl.max(here.to(tl.int32)) > 0:
                values = tl.where(drawn, value_of_key(top), 0.0)
                sums += tl.where(here, tl.sum(values), 0.0)
                which = tl.sum(tl.where(here, at, 0))
                chosen = tl.sum(tl.where(taken, found, 0), axis=1)
                tl.store(indices + draws * n_ranks + which, chosen, mask=drawn)
            # A NaN is at every rank.
            left = tl.where(taken & (top != _NAN)[:, None], _EMPTY, left)
    ahead = margin + (sums / n_draws - own)
    hinges = tl.where(there, weights * tl.where(ahead <= 0, 0.0, ahead), 0.0)
    tl.store(losses + row, scale * tl.sum(hinges))
    tl.store(slopes + row * n_ranks + at, scale * tl.where(ahead > 0, weights, 0.0), mask=there)
    # Of no class, the loss is NaN, and the slopes are zero.
    tl.store(indices + n_draws * n_ranks, tl.where(known, target, 0))


@triton.jit
def _hinge_gradient_kernel(
    out,
    row_stride,
    n_classes,
    grad,
    grad_stride,
    slopes,
    indices,
    n_draws,
    n_ranks,
    TILE: tl.constexpr,
):
    """Write the gradient of a part of a row."""
    row = tl.program_id(0).to(tl.int64)
    classes = tl.program_id(1) * TILE + tl.arange(0, TILE)
    weight = tl.load(grad + row * grad_stride)
    slopes += row * n_ranks
    indices += row * (n_draws * n_ranks + 1)
    total, value = 0.0, tl.zeros((TILE,), dtype=tl.float32)
    for rank in range(n_ranks):
        slope = weight * tl.load(slopes + rank)
        total += slope
        for draw in range(n_draws):
            chosen = tl.load(indices + draw * n_ranks + rank)
            value += tl.where(classes == chosen, slope / n_draws, 0.0)
    value -= tl.where(classes == tl.load(indices + n_draws * n_ranks), total, 0.0)
    tl.store(out + row * row_stride + classes, value, mask=classes < n_classes)


@lru_cache(maxsize=64)
def _n_processors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


def _plan_segments(n_pairs, n_classes, device):
    """Return the length of the segments: short enough to fill the device, if rows are long."""
    if device.type == "cpu":  # in the interpreter
        return triton.cdiv(n_classes, _TILE) * _TILE
    wanted = triton.cdiv(_PROGRAMS_PER_MULTIPROCESSOR * _n_processors(device), max(1, n_pairs))
    n_segments = max(1, min(wanted, n_classes // _MIN_SEGMENT))
    return triton.cdiv(triton.cdiv(n_classes, n_segments), _TILE) * _TILE


def _keep(scores, k, epsilon, n_draws, generator, shared, segment, tile, selects=None):
    """Return the keys, classes and normals of the k largest of each segment and draw.

    They are of shape (n_samples, n_draws, n_segments k). There are normals for who `selects`
    "all" or the "last", of rank k alone, which with one segment is all that is returned.
    """
    n_rows, n_classes = scores.shape
    segment = segment or _plan_segments(n_rows * n_draws, n_classes, scores.device)
    n_segments = triton.cdiv(n_classes, segment)
    last_only = selects == "last" and n_segments == 1
    shape = n_rows, n_draws, 1 if last_only else n_segments * k
    keys = scores.new_empty(shape, dtype=torch.int32)
    classes = scores.new_empty(shape, dtype=torch.int64)
    normals = scores.new_empty(shape, dtype=torch.float32) if selects else None
    seed = None
    if epsilon > 0:
        seed = torch.randint(2**63 - 1, (1,), generator=generator, device=scores.device)
    options = {"K": k, "SLOTS": triton.next_power_of_2(k), "TILE": tile or _TILE, "num_warps": 4}
    options |= {"SHARED": shared, "LAST_ONLY": last_only}
    given = n_draws, segment, float(epsilon), seed, keys, classes, normals
    launch(_select_kernel, (n_rows * n_draws, n_segments), scores, *given, **options)
    return keys, classes, normals


def select(
    scores, k, epsilon, n_draws, generator=None, shared=False, all_k=False, segment=None, tile=None
):
    """Do what :func:`..select_noised` does, on a CUDA device, where there is noise.

    Memory does not grow with the number of classes, and nothing waits for the device: the seed,
    drawn from `generator`, stays there. For equal seeds the result is the same, but it is not
    that of :func:`torch.randn`. The work grows with `k`. Tests say how many classes a program,
    and each of its steps, goes through: `tile` is a power of two from 4 on and divides `segment`.
    """
    given = scores, k, epsilon, n_draws, generator, shared, segment, tile
    keys, *kept = _keep(*given, selects="all" if all_k else "last")
    if keys.shape[2] > k:
        best = torch.topk(keys, k, dim=2).indices[..., 0 if all_k else -1 :]
        kept = [each.gather(2, best) for each in kept]
    indices, normals = kept
    return indices, normals.to(scores.dtype)


@lru_cache(maxsize=64)
def _table(ranks, device):
    """Return the ranks, then their weights."""
    return torch.tensor([*zip(*ranks)], dtype=torch.float32, device="cpu").to(device)


class NoisedHinge(reference.SelectedHinge):
    """By a kernel that selects, one for the losses, and one for the gradient.

    The arguments are those of :func:`..noised_hinge`, and of :func:`select`.
    """

    @staticmethod
    def compute(
        scores,
        target,
        ranks,
        margin,
        epsilon,
        n_draws,
        scale,
        generator,
        shared,
        segment=None,
        tile=None,
    ):
        scores, target = with_contiguous_rows(scores), target.contiguous()
        k = ranks[-1][0] + 1
        keys, classes, _ = _keep(scores, k, epsilon, n_draws, generator, shared, segment, tile)
        if keys.shape[2] > _AT_ONCE:
            best = torch.topk(keys, k, dim=2).indices
            keys, classes = keys.gather(2, best), classes.gather(2, best)
        n_rows, n_ranks, n_kept = len(scores), len(ranks), keys.shape[2]
        losses, slopes = scores.new_empty(n_rows), scores.new_empty(n_rows, n_ranks)
        indices = target.new_empty(n_rows, n_draws * n_ranks + 1)
        each = torch.is_tensor(margin)
        margins = margin.to(torch.float32).contiguous() if each else None
        slots = triton.next_power_of_2(n_kept)
        draws = min(triton.next_power_of_2(n_draws), max(1, _AT_ONCE // slots))
        options = {"K": k, "KEPT": slots, "DRAWS": draws, "RANKS": triton.next_power_of_2(n_ranks)}
        options |= {"EACH": each, "num_warps": 4 if draws * slots > 256 else 1}
        given = target, keys, classes, n_draws, n_kept, _table(ranks, scores.device), n_ranks
        given += margins, 0.0 if each else float(margin), float(scale), losses, slopes, indices
        launch(_hinge_kernel, (n_rows,), scores, *given, **options)
        return losses, (slopes, indices), scores.shape[1]

    @staticmethod
    def gradient(grad, slopes, indices, n_classes):
        n_rows, n_ranks = slopes.shape
        out = slopes.new_empty(n_rows, n_classes)
        given = grad, grad.stride(0), slopes, indices, (indices.shape[1] - 1) // n_ranks, n_ranks
        grid = n_rows, triton.cdiv(n_classes, _PART)
        launch(_hinge_gradient_kernel, grid, out, *given, TILE=_PART, num_warps=4)
        return out

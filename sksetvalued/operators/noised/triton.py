r"""The class of rank k after noise, in one pass of a Triton kernel.

Each program reads the scores of one row, tile after tile, adds normals that a counter-based
generator (Philox) makes on the spot, and keeps the k largest: neither the noise nor the noised
scores are ever stored. The normals of the selected classes are made again at the end, from their
counters. Long rows are split into segments when there are too few programs to fill the device;
the k largest of the segments are then merged.
"""

import torch
import triton
import triton.language as tl

from .._triton_rows import launch, ordered_keys

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

    K <= SLOTS and TILE are powers of two, but for K; `segment` is a multiple of TILE.
    """
    pair = tl.program_id(0)
    row = pair // n_draws
    stream = pair
    if SHARED:
        stream = pair - row * n_draws
    seed = tl.load(seed)
    scores += row.to(tl.int64) * row_stride
    first = tl.program_id(1) * segment
    last = tl.minimum(first + segment, n_classes)

    slots = tl.arange(0, SLOTS)
    kept = tl.where(slots < K, _EMPTY, _UNUSED).to(tl.int32)
    kept_classes = tl.zeros((SLOTS,), dtype=tl.int32)
    threshold, weakest = tl.min(kept, axis=0, return_indices=True)
    for start in range(first, last, TILE):
        quads = start // 4 + tl.arange(0, TILE // 4)
        one, two, three, four = four_normals(seed, quads, stream)
        # Interleaved: the four of the first quad come first.
        normals = tl.join(tl.join(one, three), tl.join(two, four)).reshape((TILE,))
        classes = start + tl.arange(0, TILE)
        inside = classes < last
        values = tl.load(scores + classes, mask=inside, other=0.0).to(tl.float32)
        keys = tl.where(inside, ordered_keys(values + epsilon * normals), _EMPTY)
        top, place = tl.max(keys, axis=0, return_indices=True)
        while top > threshold:
            replaced = slots == weakest
            kept = tl.where(replaced, top, kept)
            kept_classes = tl.where(replaced, start + place, kept_classes)
            threshold, weakest = tl.min(kept, axis=0, return_indices=True)
            keys = tl.where(classes == start + place, _EMPTY, keys)
            top, place = tl.max(keys, axis=0, return_indices=True)

    one, two, three, four = four_normals(seed, kept_classes // 4, stream)
    lane = kept_classes % 4
    normals = tl.where(lane < 2, tl.where(lane == 0, one, two), tl.where(lane == 2, three, four))
    program = pair.to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    if LAST_ONLY:
        place = program + tl.zeros((SLOTS,), dtype=tl.int64)
        chosen = slots == weakest
    else:
        place = program * K + slots
        chosen = slots < K
        tl.store(keys_out + place, kept, mask=chosen)
    tl.store(classes_out + place, kept_classes.to(tl.int64), mask=chosen)
    tl.store(normals_out + place, normals, mask=chosen)


def _plan_segments(n_pairs, n_classes, device):
    """Return the length of the segments: short enough to fill the device, if rows are long."""
    if device.type == "cpu":  # in the interpreter
        return triton.cdiv(n_classes, _TILE) * _TILE
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    wanted = triton.cdiv(_PROGRAMS_PER_MULTIPROCESSOR * processors, max(1, n_pairs))
    n_segments = max(1, min(wanted, n_classes // _MIN_SEGMENT))
    return triton.cdiv(triton.cdiv(n_classes, n_segments), _TILE) * _TILE


def select(
    scores, k, epsilon, n_draws, generator=None, shared=False, all_k=False, segment=None, tile=None
):
    """Do what :func:`..select_noised` does, on a CUDA device.

    Memory does not grow with the number of classes, and nothing waits for the device: the seed,
    drawn from `generator`, stays there. For equal seeds the result is the same, but it is not
    that of :func:`torch.randn`. The work grows with `k`. Tests say how many classes a program,
    and each of its steps, goes through: `tile` is a power of two from 4 on and divides `segment`.
    """
    seed = torch.randint(2**63 - 1, (1,), generator=generator, device=scores.device)
    n_rows, n_classes = scores.shape
    segment = segment or _plan_segments(n_rows * n_draws, n_classes, scores.device)
    n_segments = triton.cdiv(n_classes, segment)
    last_only = n_segments == 1 and not all_k
    shape = n_rows, n_draws, 1 if last_only else n_segments * k
    types = torch.int32, torch.int64, torch.float32
    keys, *kept = [torch.empty(shape, dtype=dtype, device=scores.device) for dtype in types]
    options = {"K": k, "SLOTS": triton.next_power_of_2(k), "TILE": tile or _TILE, "num_warps": 4}
    options |= {"SHARED": shared, "LAST_ONLY": last_only}
    given = n_draws, segment, float(epsilon), seed, keys, *kept
    launch(_select_kernel, (n_rows * n_draws, n_segments), scores, *given, **options)
    if n_segments > 1:
        best = torch.topk(keys, k, dim=2).indices[..., 0 if all_k else -1 :]
        kept = [each.gather(2, best) for each in kept]
    indices, normals = kept
    return indices, normals.to(scores.dtype)

"""What the Triton kernels with one program per row share.

A row is read tile after tile, each lane of the program keeping the four largest entries that it
meets. Hence the largest entries of the row are at hand in registers, unless more than four of
them meet in a lane; whatever follows checks that, and reads the row again where it is so.

This module, and the others of Triton's kernels, are imported only where it is installed.
"""

from contextlib import nullcontext

import torch
import triton
import triton.language as tl

#: Largest number of lanes; a power of two.
_MAX_LANES = 2048
#: Tiles that are on their way from memory at once.
STAGES = tl.constexpr(4)
#: Products are fused with the sums they go into. Triton 3.9 warns that this default will change.
FUSED = {"enable_fp_fusion": True}
_NOTHING = nullcontext()


@triton.jit
def load_scores(row, start, n_classes, TILE: tl.constexpr, left_out=None, SIGN: tl.constexpr = 1):
    """Return the signed scores of the classes from `start` on; -inf for none and one left out."""
    classes = start + tl.arange(0, TILE)
    x = tl.load(row + classes, mask=classes < n_classes, other=-float("inf"))
    if left_out is not None:
        x = tl.where((classes < n_classes) & (classes != left_out), SIGN * x, -float("inf"))
    return x


@triton.jit
def keep_largest(x, largest):
    """Return the four largest of each lane, in decreasing order, once `x` has joined them."""
    first, second, third, fourth = largest
    first, x = tl.maximum(first, x), tl.minimum(first, x)
    second, x = tl.maximum(second, x), tl.minimum(second, x)
    third, x = tl.maximum(third, x), tl.minimum(third, x)
    return first, second, third, tl.maximum(fourth, x)


@triton.jit
def join_largest(largest):
    """Return the four of each lane in one vector."""
    first, second, third, fourth = largest
    joined = tl.join(tl.join(first, second), tl.join(third, fourth))
    return joined.reshape((4 * first.shape[0],))


@triton.jit
def ordered_keys(values):
    """Return integers that are ordered like float32 `values`, NaN above all."""
    bits = values.to(tl.int32, bitcast=True)
    keys = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return tl.where(values != values, 0x7FC00000, keys)


@triton.jit
def value_of_key(key):
    """Return the number of which :func:`ordered_keys` makes `key`."""
    bits = key.to(tl.int32)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.float32, bitcast=True)


def plan_lanes(n_classes):
    """Return how many lanes and warps read a row; four entries a lane hold a short one."""
    lanes = min(_MAX_LANES, max(32, triton.next_power_of_2(triton.cdiv(n_classes, 4))))
    return {"TILE": lanes, "num_warps": max(1, min(16, lanes // 64))}


def launch(kernel, grid, scores, *arguments, **options):
    """Launch a kernel where the scores are; it takes them, the stride of rows and the classes."""
    if scores.numel():
        scores = with_contiguous_rows(scores)
        rows = scores, scores.stride(0), scores.shape[1]
        with _on_device_of(scores):
            kernel[grid](*rows, *arguments, **FUSED, **options)


def _on_device_of(x):
    """Return a context in which the device of `x` is the current one; most often it is."""
    here = x.is_cpu or x.get_device() == torch.cuda.current_device()
    return _NOTHING if here else torch.cuda.device_of(x)


def with_contiguous_rows(x):
    """Return `x`, or a copy, whose rows the kernels can read."""
    return x if x.stride(1) == 1 else x.contiguous()

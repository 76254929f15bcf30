r"""The projection on the top-K simplex and its loss, in one pass of a Triton kernel.

The threshold :math:`\lambda` solves :math:`\sum_j \mathrm{clip}(s_j - \lambda, 0, 1) = k`. The
sum falls with it, linearly between the points where an entry reaches 0 or 1: steps of Newton's
method, kept within an interval that shrinks, end on the exact solution. Leaving out entries can
only lower the solution: it is first sought on the largest entries, which are in registers, and
it is that of the row if no other entry exceeds it. If not, the steps go on from there over the
row.
"""

import torch
import triton
import triton.language as tl

from .. import _triton_rows as rows
from . import eager
from .reference import as_point

#: Steps end here at the latest.
_MAX_STEPS = tl.constexpr(200)
#: The sum may be off by that, relatively.
_TOLERANCE = tl.constexpr(4 * torch.finfo(torch.float32).eps)
#: The largest number in single precision.
_LARGEST = tl.constexpr(torch.finfo(torch.float32).max)


@triton.jit
def _split(threshold):
    """Return a number in double precision as the sum of two in single precision."""
    coarse = threshold.to(tl.float32)
    return coarse, (threshold - coarse).to(tl.float32)


@triton.jit
def _find_inside(x, coarse, fine):
    """Return entries minus the threshold, 0 where not in (0, 1]; whether they are, or above."""
    shifted = (x - coarse) - fine
    inside = (shifted > 0) & (shifted <= 1)
    return tl.where(inside, shifted, 0.0), inside.to(tl.int32), (shifted > 1).to(tl.int32)


@triton.jit
def _sum_row(row, n_classes, coarse, fine, TILE: tl.constexpr):
    """Return the sum of the entries in (0, 1], their number, and the number of those above.

    The rounding of the sums of the lanes is carried on: it would add up over a long row.
    """
    total = tl.zeros((TILE,), dtype=tl.float32)
    lost = tl.zeros((TILE,), dtype=tl.float32)
    n_inside = tl.zeros((TILE,), dtype=tl.int32)
    n_above = tl.zeros((TILE,), dtype=tl.int32)
    for start in tl.range(0, n_classes, TILE, num_stages=rows.STAGES):
        x = rows.load_scores(row, start, n_classes, TILE)
        value, inside, above = _find_inside(x, coarse, fine)
        term = value - lost
        raised = total + term
        lost = (raised - total) - term
        total = raised
        n_inside += inside
        n_above += above
    return tl.sum(total), tl.sum(n_inside), tl.sum(n_above)


@triton.jit
def _solve(row, n_classes, k, TILE: tl.constexpr):
    """Return the threshold, in double precision."""
    none = tl.full((TILE,), -float("inf"), dtype=tl.float32)
    largest = (none, none, none, none)
    lowest = -none
    for start in tl.range(0, n_classes, TILE, num_stages=rows.STAGES):
        x = rows.load_scores(row, start, n_classes, TILE)
        lowest = tl.minimum(lowest, tl.where(x > -float("inf"), x, float("inf")))
        largest = rows.keep_largest(x, largest)
    kept = rows.join_largest(largest)
    all_kept = n_classes <= 4 * TILE
    over_row = (not all_kept) & (k > 4 * TILE)
    lowest_kept = tl.min(tl.where(kept > -float("inf"), kept, float("inf")))
    bound = tl.where(over_row, tl.min(lowest), lowest_kept)
    low = bound.to(tl.float64) - 1
    high = tl.minimum(tl.max(largest[0]), _LARGEST).to(tl.float64)
    most_left_out = tl.minimum(tl.max(largest[3]), _LARGEST).to(tl.float64)
    threshold = tl.where(k > 0, low, high)
    previous = float("inf") + 0 * k
    searching = k > 0
    step = 0
    while searching:
        coarse, fine = _split(threshold)
        if over_row:
            total, n_inside, n_above = _sum_row(row, n_classes, coarse, fine, TILE)
        else:
            value, inside, above = _find_inside(kept, coarse, fine)
            total, n_inside, n_above = tl.sum(value), tl.sum(inside), tl.sum(above)
        rest = k - n_above
        excess = total - rest
        step += 1
        if (tl.abs(excess) <= (1 + tl.abs(rest)) * _TOLERANCE) | (step >= _MAX_STEPS):
            # What is left out and above the threshold can raise it, up to the largest.
            searching = (not all_kept) & (not over_row) & (most_left_out > threshold)
            over_row = over_row | searching
            low = threshold
            high = most_left_out
            previous = float("inf") + 0 * k
            step = 0
        else:
            low = tl.where(excess > 0, threshold, low)
            high = tl.where(excess < 0, threshold, high)
            slow = tl.abs(excess) > previous / 2
            newton = threshold + excess / tl.maximum(n_inside, 1)
            trusted = (newton >= low) & (newton <= high) & (not slow)
            threshold = tl.where(trusted, newton, (low + high) / 2)
            previous = tl.where(slow, float("inf"), tl.abs(excess))
    return threshold


@triton.jit
def _project_kernel(
    scores, row_stride, n_classes, sizes, size_stride, point, losses, out, TILE: tl.constexpr
):
    """Write the projection of a row; or, where `point` is given, less it, and the loss.

    That is the gradient of the loss, which is not written where `out` is None.
    """
    row = tl.program_id(0).to(tl.int64)
    scores += row * row_stride
    k = tl.load(sizes + row * size_stride)
    coarse, fine = _split(_solve(scores, n_classes, k, TILE))
    total = tl.zeros((TILE,), dtype=tl.float32)
    for start in tl.range(0, n_classes, TILE, num_stages=rows.STAGES):
        shifted = (rows.load_scores(scores, start, n_classes, TILE) - coarse) - fine
        value = tl.clamp(shifted, 0.0, 1.0, propagate_nan=tl.PropagateNan.ALL)
        classes = start + tl.arange(0, TILE)
        inside = classes < n_classes
        place = row * n_classes + classes
        if point is not None:
            beyond = shifted - value
            value -= tl.load(point + place, mask=inside, other=0.0)
            total += tl.where(inside & (value != 0), (beyond + 0.5 * value) * value, 0.0)
        if out is not None:
            tl.store(out + place, value, mask=inside)
    if point is not None:
        tl.store(losses + row, tl.where(k > 0, tl.sum(total), 0.0))


@triton.jit
def _centre_kernel(projected, row_stride, n_classes, grad, grad_stride, out, TILE: tl.constexpr):
    """Write `grad` minus its mean over the entries strictly between 0 and 1, and 0 elsewhere."""
    row = tl.program_id(0).to(tl.int64)
    projected += row * row_stride
    grad += row * grad_stride
    total = tl.zeros((TILE,), dtype=tl.float32)
    count = tl.zeros((TILE,), dtype=tl.int32)
    for start in tl.range(0, n_classes, TILE, num_stages=rows.STAGES):
        q = rows.load_scores(projected, start, n_classes, TILE)
        inside = (q > 0) & (q < 1)
        total += tl.load(grad + start + tl.arange(0, TILE), mask=inside, other=0.0)
        count += inside.to(tl.int32)
    mean = tl.sum(total) / tl.maximum(tl.sum(count), 1)
    for start in tl.range(0, n_classes, TILE, num_stages=rows.STAGES):
        q = rows.load_scores(projected, start, n_classes, TILE)
        inside = (q > 0) & (q < 1)
        classes = start + tl.arange(0, TILE)
        value = tl.load(grad + classes, mask=inside, other=0.0) - mean
        value = tl.where(inside, value, 0.0)
        tl.store(out + row * n_classes + classes, value, mask=classes < n_classes)


def _launch(scores, k, point, losses, out):
    """Launch the kernel with a size for each row, or one."""
    n_rows, n_classes = scores.shape
    if isinstance(k, torch.Tensor):
        sizes = k.to(scores.device, torch.float64)
    else:
        sizes = scores.new_full((n_rows,), k, dtype=torch.float64)
    given = sizes, sizes.stride(0), point, losses, out
    rows.launch(_project_kernel, (n_rows,), scores, *given, **rows.plan_lanes(n_classes))


class Projection(eager.Projection):
    """The projection of float32 that writes nothing but its result, forward and backward."""

    @staticmethod
    def compute(scores, k):
        q = scores.new_empty(scores.shape)
        _launch(scores, k, None, None, q)
        return q, (q,), None

    @staticmethod
    def gradient(grad, q, _):
        grad, out = rows.with_contiguous_rows(grad), torch.empty_like(q)
        given = grad, grad.stride(0), out
        rows.launch(_centre_kernel, (len(grad),), q, *given, **rows.plan_lanes(grad.shape[1]))
        return out


class FenchelYoung(eager.FenchelYoung):
    """The loss of float32, and its gradient if it is wanted, in one pass."""

    @staticmethod
    def compute(scores, target, shared):
        point, k = as_point(target, scores, shared)
        losses = scores.new_empty(len(scores))
        slopes = scores.new_empty(scores.shape) if scores.requires_grad else None
        _launch(scores, k, point.contiguous(), losses, slopes)
        return losses, (scores, target, slopes), (shared,)


project, fenchel_young = Projection.apply, FenchelYoung.apply

"""The projection and its loss where no kernel fits: the definition, sparing time and memory.

What the transforms of ``torch.func`` and traces cannot have: the largest entries are sorted
alone where they are enough, and autograd keeps one tensor of the size of the scores.
"""

import torch

from .._backends import OwnGradient
from .reference import (
    as_point,
    as_sizes,
    fenchel_young_gradient,
    find_threshold,
    loss_of,
    subtract,
)

#: Entries of the scores treated together.
_AT_ONCE = 1 << 16
#: Steps of Newton's method after which rows are sorted.
_MOST_STEPS = 12


def _slices(scores):
    """Yield slices of a few rows."""
    n_rows, n_classes = scores.shape
    step = max(1, _AT_ONCE // max(1, n_classes))
    for start in range(0, n_rows if n_classes else 0, step):
        yield slice(start, start + step)


def threshold_of(scores, k):
    """Return the threshold of rows in two terms, as :func:`.reference.find_threshold` does.

    Leaving out entries can only lower it. It is that of the largest, if the last of them is below;
    or else steps go on from there.
    """
    count = 4 * int(k.max().ceil()) + 12
    if 2 * count > scores.shape[-1]:
        return find_threshold(scores, k)
    top = scores.topk(count).values
    threshold = find_threshold(top, k)
    if not (top[:, -1:] - threshold[0] > threshold[1]).any():
        return threshold
    # If all entries were inside.
    threshold = torch.maximum(sum(threshold), (scores.sum(-1) - k)[:, None] / scores.shape[-1])
    for dtype, tolerance in ((scores.dtype, 1e-5), (k.dtype, 1e-12)):
        threshold = _climb(scores.to(dtype), k[..., None], threshold.to(dtype), tolerance)
        if threshold is None:
            return find_threshold(scores, k)
    reference = threshold.to(scores.dtype).to(k.dtype)
    return reference, threshold - reference


def _climb(scores, k, threshold, tolerance):
    """Return a threshold by Newton's method from below, or None where it does not get there.

    The sum of the projection is piecewise linear in the threshold, and convex but for entries
    that are cut at 1. The last step starts where it is `tolerance` from k, relatively, which is
    on the piece of the solution, and ends on that.
    """
    for _ in range(_MOST_STEPS):
        q = (scores - threshold).clamp_(0, 1)
        excess = q.sum(-1, keepdim=True) - k
        n_inside = q.frac_().sign_().sum(-1, keepdim=True)
        threshold = threshold + (excess / n_inside.clamp_(min=1)).to(scores.dtype)
        if (excess.abs() <= tolerance * (1 + k)).all():
            return threshold
    return None


def _shift(scores, k):
    return subtract(scores, *threshold_of(scores, k))


class Projection(OwnGradient):
    """Do what :func:`.reference.project` does, keeping nothing but its result."""

    @staticmethod
    def compute(scores, k):
        q, k = torch.empty_like(scores), as_sizes(k, scores).expand(len(scores))
        for rows in _slices(scores):
            torch.clamp(_shift(scores[rows], k[rows]), 0, 1, out=q[rows])
        return q, (q,), ()

    @staticmethod
    def gradient(grad, q):
        result = torch.empty_like(q)
        for rows in _slices(q):
            result[rows] = centre(grad[rows], q[rows].frac().sign_())
        return result

    @staticmethod
    def definition(grad, q):
        return centre(grad, q.detach().frac().sign_())


def centre(grad, inside):
    """Return the gradient minus its mean over the entries inside, and zero at the others."""
    kept = grad * inside
    mean = kept.sum(1, keepdim=True) / inside.sum(1, keepdim=True).clamp_(min=1)
    return kept.addcmul(mean, inside, value=-1)


class FenchelYoung(OwnGradient):
    """Do what :func:`.reference.fenchel_young` does, keeping the gradient of the losses."""

    @staticmethod
    def compute(scores, target, shared):
        point, k = as_point(target, scores, shared)
        gap, losses = torch.empty_like(scores), scores.new_zeros(len(scores))
        for rows in _slices(scores):
            d = _shift(scores[rows], k[rows])
            q = torch.clamp(d, 0, 1, out=gap[rows])
            beyond = d.sub_(q)
            losses[rows] = loss_of(beyond, q.sub_(point[rows]))
        return losses, (scores, target, gap), (shared,)

    @staticmethod
    def gradient(grad, scores, target, gap, shared):
        return grad[:, None] * gap

    @staticmethod
    def definition(grad, scores, target, gap, shared):
        return fenchel_young_gradient(grad, scores, target, shared)


project, fenchel_young = Projection.apply, FenchelYoung.apply

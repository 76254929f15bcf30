"""The projection and its loss where no kernel fits: the definition, sparing time and memory.

What the transforms of ``torch.func`` and traces cannot have: rows are sorted once and searched,
and autograd keeps one tensor of the size of the scores.
"""

import numpy as np
import torch

from .._backends import OwnGradient, OwnLoss, split_rows
from .._dispatch import holds_its_values
from . import reference
from .reference import as_point, as_sizes, loss_of, subtract

#: Steps towards the threshold end at so many roundings, or after so many steps.
_ROUNDING, _MOST_STEPS = 2, 100
#: What is computed at once is at least about a quarter of all.
_MOST_PARTS = 4


def find_threshold(scores, k):
    """Do what :func:`.reference.find_threshold` does, of rows whose values can be read."""
    k = k.expand(len(scores))[:, None]
    below = _ascending(-scores.detach()).to(k.dtype).contiguous()
    entry = below.gather(1, k.ceil().clamp(1, scores.shape[1]).long() - 1)
    below.sub_(entry).clamp_(-1, 1)  # beyond, an entry is 0 or 1 whatever the threshold
    return -entry, -_find_offset(below, k)


def _ascending(rows):
    """Return the rows sorted; NumPy does so many times as fast as torch."""
    if rows.is_cpu and holds_its_values(rows):
        return torch.from_numpy(np.sort(rows.numpy(), axis=1))
    return rows.sort(1).values


def _find_offset(below, k):
    """Return how far the threshold is below the entry of rank ceil(k).

    Newton's method, kept within an interval that shrinks. It is given how far the entries are
    below, in increasing order: two places in a row, and the running sums there, tell the sum of
    the projection.
    """
    sums = below.new_empty(len(below), below.shape[1] + 1)
    sums[:, 0] = 0
    torch.cumsum(below, 1, out=sums[:, 1:])
    ends = below.new_tensor([-1, 0])
    rounding = _ROUNDING * torch.finfo(k.dtype).eps * (1 + k)
    low, high = torch.zeros_like(k), torch.ones_like(k)
    offset, least = high, torch.inf
    for _ in range(_MOST_STEPS):
        places = torch.searchsorted(below, offset + ends)
        (ones, last), (before, total) = places.split(1, 1), sums.gather(1, places).split(1, 1)
        n_inside = last - ones
        lack = k - ones - (offset * n_inside - (total - before))
        newton, miss = offset + lack / n_inside.clamp_(min=1), lack.abs()
        missed = miss > rounding * last
        if not missed.any():
            break
        low, high = torch.where(lack > 0, offset, low), torch.where(lack < 0, offset, high)
        # Where entries are cut at 1 steps may go to and fro.
        trusted = (newton >= low) & (newton <= high) & (2 * miss <= least)
        offset = torch.where(trusted | ~missed, newton, (low + high) / 2)
        least = torch.where(trusted, miss, torch.inf)
    return newton + 0 * (below[:, :1] + below[:, -1:])  # NaN stands at the ends


class Projection(OwnGradient):
    """Do what :func:`.reference.project` does, keeping nothing but its result."""

    @staticmethod
    def compute(scores, k):
        q, k = torch.empty_like(scores), as_sizes(k, scores).expand(len(scores))
        for rows in split_rows(scores, _MOST_PARTS):
            d = subtract(scores[rows], *find_threshold(scores[rows], k[rows]))
            torch.clamp(d, 0, 1, out=q[rows])
        return q, (q,), None

    @staticmethod
    def gradient(grad, q, _):
        result = torch.empty_like(q)
        for rows in split_rows(q, _MOST_PARTS):
            result[rows] = Projection.definition(grad[rows], q[rows], None)
        return result

    @staticmethod
    def definition(grad, q, _):
        return centre(grad, q.detach().frac().sign_())


def centre(grad, inside):
    """Return the gradient minus its mean over the entries inside, and zero at the others."""
    kept = grad * inside
    mean = kept.sum(1, keepdim=True) / inside.sum(1, keepdim=True).clamp_(min=1)
    return kept.addcmul(mean, inside, value=-1)


class FenchelYoung(OwnLoss):
    """The loss, of which the gradient is the projection minus the point of the target."""

    reference = staticmethod(reference.fenchel_young)
    most_parts = _MOST_PARTS

    @staticmethod
    def differentiate(scores, target, shared):
        point, k = as_point(target, scores, shared)
        d = subtract(scores.detach(), *find_threshold(scores, k))
        q = d.clamp(0, 1)
        gap = q - point
        return loss_of(d.sub_(q), gap), gap


project, fenchel_young = Projection.apply, FenchelYoung.apply

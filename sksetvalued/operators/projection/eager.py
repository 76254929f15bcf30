"""The projection and its loss where no kernel fits: the definition, sparing time and memory.

What the transforms of ``torch.func`` and traces cannot have: rows are sorted once and searched,
and autograd keeps one tensor of the size of the scores.
"""

import numpy as np
import torch

from .._backends import OwnGradient, OwnLoss, split_rows
from .._dispatch import holds_its_values
from . import reference
from .reference import as_point, as_sizes, subtract

#: Of so many classes the largest, one in so many, are selected and sorted first.
_MANY_CLASSES, _FEW = 2048, 8
#: What is computed at once is at least about a quarter of all, and all of so few entries.
_PARTS = 4, 1 << 18


def find_threshold(scores, k):
    """Do what :func:`.reference.find_threshold` does, of rows whose values can be read."""
    k = k.expand(len(scores))[:, None]
    rank = k.ceil().clamp(1, scores.shape[1]).long()
    below = _ascending(scores.detach().contiguous(), rank)
    entry = below.gather(1, rank - 1)
    entry += below[:, [0, -1]].clamp(0, 0).sum(1, keepdim=True)  # NaN stands at the ends
    # Beyond, an entry is 0 or 1 whatever the threshold.
    n_kept = int(torch.searchsorted(below, entry + 1, right=True).max())
    entry = entry.to(k.dtype)
    below = below[:, :n_kept].to(k.dtype, copy=True).sub_(entry).clamp_(-1, 1)
    return -entry, -reference.find_offset(below, k)


def _ascending(scores, rank):
    """Return minus the largest scores, in increasing order: all that may count, and all NaN."""
    n_classes = scores.shape[1]
    few = n_classes // _FEW
    if n_classes >= _MANY_CLASSES and int(rank.max()) <= few:
        below = _sort_largest(scores, few)
        # The others are at least as far below: they cannot count.
        if (below[:, -1:] >= below.gather(1, rank - 1) + 1).all():
            return below
    return _sort_largest(scores, n_classes)


def _sort_largest(scores, n):
    if not (scores.is_cpu and holds_its_values(scores)):
        return -scores.topk(n).values
    values = scores.numpy()  # which NumPy sorts many times as fast as torch
    if n < values.shape[1]:
        values = np.partition(values, -n, axis=1)[:, -n:]
    return torch.from_numpy(np.sort(-values, axis=1))


class Projection(OwnGradient):
    """Do what :func:`.reference.project` does, keeping nothing but its result."""

    @staticmethod
    def compute(scores, k):
        q, k = torch.empty_like(scores), as_sizes(k, scores).expand(len(scores))
        for rows in split_rows(scores, *_PARTS):
            d = subtract(scores[rows], *find_threshold(scores[rows], k[rows]))
            torch.clamp(d, 0, 1, out=q[rows])
        return q, (q,), None

    @staticmethod
    def gradient(grad, q, _):
        result = torch.empty_like(q)
        for rows in split_rows(q, *_PARTS):
            result[rows] = Projection.definition(grad[rows], q[rows], None)
        return result

    @staticmethod
    def definition(grad, q, _):
        """Return the gradient minus its mean over the entries inside, and zero at the others."""
        inside = q.detach().frac().sign_()
        kept = grad * inside
        mean = kept.sum(1, keepdim=True) / inside.sum(1, keepdim=True).clamp_(min=1)
        return kept.addcmul_(mean, inside, value=-1)


class FenchelYoung(OwnLoss):
    """The loss, of which the gradient is the projection minus the point of the target."""

    reference = staticmethod(reference.fenchel_young)
    parts = _PARTS

    @staticmethod
    def differentiate(scores, target, shared):
        point, k = as_point(target, scores, shared)
        d = subtract(scores.detach(), *find_threshold(scores, k))
        q = d.clamp(0, 1)
        beyond, gap = d.sub_(q), q.sub_(point)
        # The terms of the definition; choosing entries by a mask takes ten times as long as this.
        terms = beyond.mul_(gap).nan_to_num_(0, torch.inf, -torch.inf)
        return terms.addcmul_(gap, gap, value=0.5).sum(1), gap


project, fenchel_young = Projection.apply, FenchelYoung.apply

r"""The projection on the top-K simplex and its loss: their definition, in operations of torch.

With :math:`q_j = \mathrm{clip}(s_j - \lambda, 0, 1)`, the sum of q falls with the threshold
:math:`\lambda`, linearly between the points where an entry reaches 0 or 1. :func:`find_offset`
looks up between which of them it is k. Which operations are done does not depend on the values of
a tensor, so that derivatives of any order, the transforms of ``torch.func``, any device and traces
can be had.
"""

import torch
from torch.nn import functional as F

from .._precision import widest


def find_offset(below, k):
    """Return how far the threshold is below the entry of rank ceil(k), of shape (..., 1).

    Given is how far the entries of each row are below that one, in [-1, 1] and in increasing
    order. The offset is NaN for rows that hold NaN.
    """
    n_classes, sums = below.shape[-1], F.pad(below.cumsum(-1), (1, 0))

    def add_up(offset):
        """Return the sum of the projection."""
        places = torch.searchsorted(below, torch.cat([offset - 1, offset], -1), right=True)
        n_ones, n_positive = places.chunk(2, -1)
        left_out, total = sums.gather(-1, places).chunk(2, -1)
        return n_ones + offset * (n_positive - n_ones) - (total - left_out)

    # The first of a pair of points is where an entry reaches 0, the second where it reaches 1.
    pair = torch.arange(2, dtype=below.dtype, device=below.device)
    low = torch.zeros_like(below[..., :1] + pair, dtype=torch.int64)
    high = low + n_classes
    for _ in range(int(n_classes).bit_length()):
        middle = ((low + high) // 2).clamp(max=n_classes - 1)
        enough = add_up(below.gather(-1, middle) + pair) <= k
        low, high = torch.where(enough, middle + 1, low), torch.where(enough, high, middle)
    points = below.gather(-1, (low - 1).clamp(min=0)) + pair
    start = torch.where(low > 0, points, -1).amax(-1, keepdim=True)
    points = below.gather(-1, low.clamp(max=n_classes - 1)) + pair
    end = torch.where(low < n_classes, points, 2).amin(-1, keepdim=True)
    first, last = add_up(torch.cat([start, end], -1)).chunk(2, -1)
    share = (k - first) / (last - first).clamp(min=torch.finfo(k.dtype).tiny)
    return start + share.clamp(0, 1) * (end - start)


def find_threshold(scores, k):
    """Return the threshold of rows in two terms: the entry of rank ceil(k), and the rest."""
    ordered = scores.contiguous().sort(-1, descending=True).values.to(k.dtype)
    sizes = k[..., None]
    rank = sizes.ceil().clamp(1, scores.shape[-1]).long()
    entry = ordered.gather(-1, rank.expand(*scores.shape[:-1], 1) - 1)
    # Beyond, an entry is 0 or 1 whatever the threshold.
    return entry, -find_offset((entry - ordered).clamp(-1, 1), sizes)


def subtract(scores, reference, offset):
    """Return scores minus the threshold.

    What an offset in single precision leaves out would add up over many small entries.
    """
    coarse = offset.to(scores.dtype)
    fine = (offset - coarse).to(scores.dtype)
    return (scores - reference.to(scores.dtype)).sub_(coarse).sub_(fine)


def shift_and_project(scores, k):
    """Return the scores minus the threshold, and the projection, with their derivatives."""
    d = subtract(scores, *find_threshold(scores.detach(), k))
    inside = (d > 0) & (d < 1)
    # The threshold moves with the mean of these, as q sums to k whatever the scores.
    mean = torch.where(inside, d, 0).sum(-1, keepdim=True) / inside.sum(-1, keepdim=True).clamp(1)
    d = d - (mean - mean.detach())
    return d, torch.where(inside, d, d.detach().clamp(0, 1))


def project(scores, k):
    """Return the projection of rows on the top-K simplex, `k` a number or one for each row."""
    return shift_and_project(scores, as_sizes(k, scores))[1]


def fenchel_young(scores, target, shared):
    r"""Do what :func:`..fenchel_young_loss` does, for a point p; the gradient is q - p.

    With d the scores minus the threshold, no term of
    :math:`\sum_j (q_j - p_j)(d_j - q_j) + (q_j - p_j)^2 / 2` is negative, and no large numbers
    cancel.
    """
    point, k = as_point(target, scores, shared)
    d, q = shift_and_project(scores, k)
    gap = q - point
    # The product of an infinite score and zero would be NaN.
    beyond = (d - q).masked_fill(gap == 0, 0)
    return (beyond.add(gap, alpha=0.5) * gap).sum(-1)


def as_sizes(k, scores):
    """Return k as a tensor, in the precision in which thresholds are found."""
    return torch.as_tensor(k, dtype=widest(scores), device=scores.device)


def as_point(target, scores, shared):
    """Return the points of the top-K simplex that the targets of a loss are, and their sizes."""
    if target.ndim == 1:
        point = torch.zeros_like(scores).scatter(1, target[:, None], 1)
        return point, as_sizes(scores.new_ones(scores.shape[0]), scores)
    point = target.to(scores.dtype)
    size = point.sum(1)
    if not shared:
        return point, as_sizes(size, scores)
    return point / size.clamp(min=1)[:, None], as_sizes(size.clamp(max=1), scores)

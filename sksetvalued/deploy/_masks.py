"""Masks of sets by operations that graphs of torch.export and ONNX know.

They equal those of the rules bit for bit, ties included: an entry goes in before another of the
same value if its column is higher. A stable sort would say so, but graphs promise none.
"""

import torch


def _last(tied, n_wanted):
    """Keep the last `n_wanted` of the marked entries of each row.

    Parameters
    ----------
    tied : BoolTensor of shape (n_samples, n_classes)
    n_wanted : LongTensor of shape (n_samples, 1)
    """
    seen = tied.long().cumsum(1)
    return tied & (seen[:, -1:] - seen < n_wanted)


def _largest(values, kth, sizes):
    """Mark the `sizes` largest of each row, `kth` being the last of them."""
    above = values > kth
    return above | _last(values == kth, sizes - above.long().sum(1, keepdim=True))


def top_k(values, k):
    """Mark the k largest values of each row.

    Parameters
    ----------
    values : Tensor of shape (n_samples, n_classes)
    k : int
    """
    if k <= 0 or k >= values.shape[1]:
        return (values == values) & (k > 0)
    return _largest(values, values.topk(k, dim=1).values[:, -1:], k)


def top_sizes(values, sizes):
    """Mark the ``sizes[i]`` largest values of row i; `sizes` is of shape (n_samples, 1)."""
    ordered = values.topk(values.shape[1], dim=1).values
    kth = ordered.gather(1, (sizes - 1).clamp(min=0))
    return _largest(values, kth, sizes) & (sizes > 0)


def at_least(values, threshold, min_size, max_size):
    """Mark the values that reach a threshold, each row held within two sizes."""
    mask = values >= threshold
    sizes = mask.long().sum(1, keepdim=True)
    if min_size > 0:
        mask = mask | ((sizes < min_size) & top_k(values, min_size))
    if max_size is not None and max_size < values.shape[1]:
        mask = mask & ((sizes <= max_size) | top_k(values, max_size))
    return mask


def until_sum(proba, wanted):
    """Mark the largest probabilities of each row until their sum reaches `wanted`."""
    ordered = proba.topk(proba.shape[1], dim=1).values
    n_short = (ordered.cumsum(1) < wanted).long().sum(1, keepdim=True)
    return top_sizes(proba, (n_short + 1).clamp(1, proba.shape[1]))


def project(scores, k):
    """Return the projections of scores of shape (n_samples, n_classes) on the top-K simplex."""
    return (scores - _crossing(*_kinks(scores), k)).clamp(0, 1)


def mean_projection(scores, share):
    """Return the mean of the projections with K = 0, 1, ..., weighted by the columns of `share`.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
    share : Tensor of shape (n_samples, n_sizes)
        Rows sum to one.
    """
    points, sums = _kinks(scores)
    mean = torch.zeros_like(scores)
    for k in range(1, share.shape[1]):
        q = (scores - _crossing(points, sums, k)).clamp(0, 1)
        mean = mean + share[:, k : k + 1] * q
    return mean.clamp(max=1)


def _kinks(scores):
    """Return where the sum of ``clip(scores - t, 0, 1)`` bends in t, in order, and the sums.

    It is piecewise linear with kinks at the scores and one below.
    """
    n_classes = scores.shape[1]
    kinks = torch.cat([scores, scores - 1], dim=1).topk(2 * n_classes, dim=1)
    points, slopes = kinks.values, 2.0 * (kinks.indices < n_classes).to(scores.dtype) - 1
    return points, (points * slopes).cumsum(1) - slopes.cumsum(1) * points


def _crossing(points, sums, k):
    """Return the threshold, of shape (n_samples, 1), where the sums cross k, in (0, n_classes]."""
    place = (sums < k).long().sum(1, keepdim=True).clamp(1, points.shape[1] - 1)
    upper, lower = points.gather(1, place - 1), points.gather(1, place)
    below, above = sums.gather(1, place - 1), sums.gather(1, place)
    rise = above - below
    share = (k - below) / torch.where(rise > 0, rise, torch.ones_like(rise))
    return upper - share.clamp(0, 1) * (upper - lower)

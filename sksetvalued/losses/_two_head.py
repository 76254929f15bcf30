"""The two-head loss of a batch, and the candidates that it takes for labels."""

import math

import numpy as np
import torch
from torch.nn import functional as F

from .._checks import check_number
from ..operators._backends import check_classes
from ..operators._dispatch import choose, is_eager, kernels, needs_reference
from ..operators._precision import at_least_float32
from ._base import check_scores_and_target, check_weight_tensor, softmax_losses


def check_average_size(k, input):
    """Raise unless sets of k classes on average can be had of the classes of `input`."""
    check_number("k", k, 1, inclusive=True)
    if k > input.shape[-1]:
        raise ValueError(
            f"k must lie in [1, {input.shape[-1]}], the number of classes of input, got {k!r}."
        )


def _lowest_of_largest(values, count):
    """Return the least of the `count` largest entries of a vector."""
    if values.is_cpu and is_eager(values):
        # NumPy selects in a seventh of the time that torch takes.
        place = len(values) - count
        return float(np.partition(values.numpy(), place)[place])
    # An accelerator has all of its blocks select here, but one alone for kthvalue.
    return values.topk(count, sorted=False).values.amin()


def _largest(values, count):
    """Mark exactly `count` entries of a vector, the largest; among ties, the last ones."""
    if count == 0:
        return torch.zeros_like(values, dtype=torch.bool)
    lowest = _lowest_of_largest(values, count)
    above, tied = values > lowest, values == lowest
    rank = tied.flip(0).cumsum(0).flip(0)
    return above | (tied & (rank <= count - above.sum()))


def _in_decreasing_order(values):
    """Return the places of entries from the largest on; among ties, from the last on."""
    return len(values) - 1 - values.flip(0).sort(descending=True, stable=True).indices


def _largest_within(values, weights, budget, count):
    """Mark the largest entries as long as their weights sum to at most `budget`.

    Where values can be looked at, the `count` largest are sorted, or more if they are too few.
    """
    selects = values.is_cpu and is_eager(values) and 2 * count < len(values)
    if selects:
        lowest = _lowest_of_largest(values, count)
        places = (~(values < lowest)).nonzero()[:, 0]
        order = places[_in_decreasing_order(values[places])]
    else:
        order = _in_decreasing_order(values)
    within = weights[order].cumsum(0) <= budget
    if selects and within[-1]:
        return _largest_within(values, weights, budget, 4 * count)
    return torch.zeros_like(values, dtype=torch.bool).scatter(0, order, within)


def pseudo_positives(proposal_scores, target, k, sample_weight=None):
    """Choose the candidate classes of a batch: the likeliest (k - 1) n_samples false ones.

    Exactly ``floor((k - 1) n_samples)`` entries of the whole matrix of probabilities without
    its true labels are chosen [1]_, eq. (5.11)-(5.12); among equal ones the last, reading
    the matrix row by row. With weights, entries are taken in the same order as long as the
    sum of their weights stays within ``(k - 1) sample_weight.sum()``.

    Parameters
    ----------
    proposal_scores : Tensor of shape (n_samples, n_classes)
    target : LongTensor of shape (n_samples,)
    k : float, in [1, n_classes]
    sample_weight : Tensor of shape (n_samples,), optional

    Returns
    -------
    candidates : BoolTensor of shape (n_samples, n_classes)

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import pseudo_positives
    >>> scores = torch.tensor([[3.0, 2.9, 2.8], [9.0, 0.0, 0.0]])
    >>> pseudo_positives(scores, torch.tensor([0, 0]), k=2)
    tensor([[False,  True,  True],
            [False, False, False]])
    """
    check_scores_and_target(proposal_scores, target)
    check_weight_tensor(sample_weight, proposal_scores)
    check_average_size(k, proposal_scores)
    return _candidates(proposal_scores, target, k, sample_weight)


@torch.no_grad()
def _candidates(proposal_scores, target, k, sample_weight):
    n_samples, n_classes = proposal_scores.shape
    # Log-probabilities keep the order where float32 probabilities are all zero. A false class
    # of probability zero still comes before the true one.
    values = at_least_float32(proposal_scores).log_softmax(1)
    values = values.clamp_(min=torch.finfo(values.dtype).min)
    values = values.scatter_(1, target.long()[:, None], -torch.inf).flatten()
    if sample_weight is None:
        chosen = _largest(values, _n_candidates(k, n_samples))
    else:
        weights = sample_weight if sample_weight.device.type == "mps" else sample_weight.double()
        # The slack undoes the rounding of sums, and of the weights, as of 0.1 in place of 1.
        floats = sample_weight.is_floating_point()
        slack = max(1e-9, 4 * torch.finfo(sample_weight.dtype).eps if floats else 0)
        budget = (float(k) - 1) * weights.sum() * (1 + slack)
        weights = weights.repeat_interleave(n_classes)
        chosen = _largest_within(values, weights, budget, math.ceil(2 * float(k) * n_samples))
        chosen = chosen & (values > -torch.inf)
    return chosen.view(n_samples, n_classes)


def _n_candidates(k, n_samples):
    # The slack undoes the rounding of products such as (2.3 - 1) * 10.
    return math.floor((float(k) - 1) * n_samples * (1 + 1e-12))


def _shares(scores, k):
    """Return what candidates, and the other false classes, are multiplied by.

    A mean over samples is then their mean. An empty mean is zero.
    """
    n_positive = _n_candidates(k, len(scores))
    n_negative = scores.numel() - len(scores) - n_positive
    return [len(scores) / max(count, 1) for count in (n_positive, n_negative)]


def _weighted_share(mask, sample_weight):
    """Return what entries of a mask are multiplied by, where samples have weights."""
    weight = (mask.sum(1) * sample_weight).sum()
    return torch.where(weight > 0, sample_weight.sum() / weight, 0)


def _definition(scores, proposal_scores, target, k, alpha, sample_weight=None):
    own = target[:, None]
    candidates = _candidates(proposal_scores, target, k, sample_weight)
    others = (~candidates).scatter(1, own, False)
    if sample_weight is None:  # filled there, as a copy to a device would be waited for
        shares = [scores.new_full((), alpha * share) for share in _shares(scores, k)]
    else:
        weight = sample_weight.to(scores.dtype)
        shares = [alpha * _weighted_share(mask, weight) for mask in (candidates, others)]
    share = torch.where(candidates, *shares).scatter(1, own, 1)
    sign = torch.where(others, 1.0, -1.0).to(scores.dtype)
    labels = torch.linalg.vecdot(F.softplus(sign * scores), share)
    return softmax_losses(proposal_scores, target) + labels


class _Compiled(torch.autograd.Function):
    """The loss of float32 on the processor, without weights, by a kernel that gives its slopes."""

    @staticmethod
    def forward(ctx, scores, proposal_scores, target, k, alpha):
        heads = [each.contiguous() for each in (scores, proposal_scores)]
        target, losses = target.contiguous(), scores.new_empty(len(scores))
        slopes = [torch.empty_like(each) if any(ctx.needs_input_grad) else None for each in heads]
        shares = [alpha * share for share in _shares(scores, k)]
        numbers = *scores.shape, _n_candidates(k, len(scores)), *shares
        n_wrong = kernels.two_head_rows(*heads, target, *numbers, losses, *slopes)
        check_classes(n_wrong, target, scores.shape[1])
        ctx.save_for_backward(scores, proposal_scores, target, *slopes)
        ctx.constants = k, alpha
        return losses

    @staticmethod
    def backward(ctx, grad):
        scores, proposal_scores, target, *slopes = ctx.saved_tensors
        if not needs_reference(grad):
            return *[grad[:, None] * each for each in slopes], None, None, None
        create_graph = torch.is_grad_enabled()
        with torch.enable_grad():
            # Views, as one head may be made of the other, by which no gradient is to go here.
            both = [each.view_as(each) for each in (scores, proposal_scores)]
            heads = [each for each in both if each.requires_grad]
            losses = _definition(*both, target, *ctx.constants)
            found = iter(torch.autograd.grad(losses, heads, grad, create_graph=create_graph))
        wanted = ctx.needs_input_grad
        return tuple(next(found) if each else None for each in wanted)


def two_head(scores, proposal_scores, target, k, alpha, sample_weight=None):
    """Return the terms of the samples, of which the two-head loss is the weighted mean."""
    heads = scores, proposal_scores
    check_average_size(k, proposal_scores)
    if sample_weight is None and all(choose("two_head", each, target) == "cpu" for each in heads):
        return _Compiled.apply(*heads, target, k, alpha)
    return _definition(*heads, target, k, alpha, sample_weight)

"""The noised top-k by its definition: draw, add, select; then differentiate what was selected."""

import torch

from .._backends import OwnGradient, how_many_at_once, split_rows
from .._dispatch import is_eager
from .._top_k import top_k_by_blocks


def select(scores, k, epsilon, n_draws, generator=None, noise=None, shared=False):
    """Do what :func:`..select_noised` does, for ranks 1 to k and in their order.

    A row with a NaN has the class of a NaN at every rank.
    """
    like = {"dtype": scores.dtype, "device": scores.device}
    if noise is None and shared:
        noise = torch.randn(n_draws, 1, scores.shape[1], generator=generator, **like)
    if noise is not None:
        noise = noise.to(scores.dtype).expand(n_draws, *scores.shape)
    chunks = []
    for rows in list(split_rows(scores)) or [slice(0)]:
        part, selected = scores[rows], []
        step = how_many_at_once(part)
        for done in range(0, n_draws, step):
            if noise is None:
                size = (min(step, n_draws - done), *part.shape)
                normals = torch.randn(size, generator=generator, **like)
            else:
                normals = noise[done : done + step, rows]
            noised = torch.add(part, normals, alpha=epsilon)
            indices = with_nan_first(*top_k_by_blocks(noised, k))
            selected.append((indices, normals.gather(-1, indices)))
        chunks.append([torch.cat(each).transpose(0, 1) for each in zip(*selected)])
    return tuple(torch.cat(chunk) for chunk in zip(*chunks))


def with_nan_first(values, indices):
    """Return classes in decreasing order of their values, or a NaN's alone where there is one."""
    return torch.where(values[..., :1].isnan(), indices[..., :1], indices)


def gather_repeated(scores, places):
    """Return ``scores.gather(1, places)``, whose gradient adds up repeated places in one order.

    On a GPU that of `gather` adds in any order: equal seeds would give networks that differ.
    """
    if scores.is_cpu or not is_eager(scores):
        return scores.gather(1, places)
    return Gathered.apply(scores, places)


class Gathered(OwnGradient):
    """The scores of some classes of each row, few enough to be compared with each other."""

    @staticmethod
    def compute(scores, places):
        return scores.gather(1, places), (places,), scores.shape[1]

    @staticmethod
    def gradient(grad, places, n_classes):
        total = torch.empty_like(grad)
        pairs = places.unsqueeze(2).expand(-1, -1, places.shape[1])
        for rows in split_rows(pairs):
            same = pairs[rows] == places[rows].unsqueeze(1)
            total[rows] = torch.where(same, grad[rows].unsqueeze(1), 0).sum(2)
        # Repeated places are written the same sum.
        return grad.new_zeros(len(grad), n_classes).scatter_(1, places, total)

    @staticmethod
    def definition(grad, places, n_classes):
        return grad.new_zeros(len(grad), n_classes).scatter_add(1, places, grad)


def hinge(scores, target, indices, normals, weights, margin, epsilon, scale):
    """Return the hinges of :func:`..noised_hinge`, which autograd differentiates.

    Given are the classes at the ranks in each draw and their normals, of shape
    (n_samples, n_draws, n_ranks), and the weights of the ranks.
    """
    places = torch.cat([indices.flatten(1), target.unsqueeze(1)], dim=1)
    chosen = gather_repeated(scores, places)
    noised = chosen[:, :-1].unflatten(1, normals.shape[1:]) + epsilon * normals
    lead = noised.mean(dim=1) - chosen[:, -1:]
    margin = margin.unsqueeze(1) if isinstance(margin, torch.Tensor) else margin
    return scale * (torch.relu(margin + lead) @ weights)


class SelectedHinge(OwnGradient):
    """The weighted sum of the noised hinges of some ranks, of which one selection gives all.

    What its backward pass needs has the size of the draws, not of the scores: a slope of each
    rank, and the classes at the ranks in each draw, then the true one.
    """

    @staticmethod
    def definition(grad, slopes, indices, n_classes):
        """Spread the slopes, of each rank, over the classes of the draws, and their own."""
        n_draws = (indices.shape[1] - 1) // slopes.shape[1]
        slopes = grad.unsqueeze(1) * slopes
        shares = (slopes / n_draws).repeat(1, n_draws)
        each = torch.cat([shares, -slopes.sum(1, keepdim=True)], dim=1)
        return each.new_zeros(len(indices), n_classes).scatter_add(1, indices, each)

"""The noised top-k by its definition: draw, add, select; then differentiate what was selected."""

import torch

from .._top_k import top_k_by_blocks

#: Noised scores held at once, where a row is not longer: few enough for a processor's cache,
#: enough to keep an accelerator busy.
_AT_ONCE, _AT_ONCE_ELSEWHERE = 1 << 16, 1 << 24


def select(scores, k, epsilon, n_draws, generator=None, noise=None, shared=False):
    """Do what :func:`..select_noised` does, for ranks 1 to k and in their order.

    A row with a NaN has the class of a NaN at every rank.
    """
    n_samples, n_classes = scores.shape
    like = {"dtype": scores.dtype, "device": scores.device}
    if noise is None and shared:
        noise = torch.randn(n_draws, 1, n_classes, generator=generator, **like)
    if noise is not None:
        noise = noise.to(scores.dtype).expand(n_draws, *scores.shape)
    at_once = _AT_ONCE if scores.device.type == "cpu" else _AT_ONCE_ELSEWHERE
    n_rows = max(1, min(n_samples, at_once // n_classes))
    step = max(1, at_once // (n_rows * n_classes))
    chunks = []
    for start in range(0, max(1, n_samples), n_rows):
        rows, parts = scores[start : start + n_rows], []
        for done in range(0, n_draws, step):
            if noise is None:
                size = (min(step, n_draws - done), *rows.shape)
                normals = torch.randn(size, generator=generator, **like)
            else:
                normals = noise[done : done + step, start : start + n_rows]
            noised = torch.add(rows, normals, alpha=epsilon)
            indices = with_nan_first(*top_k_by_blocks(noised, k))
            parts.append((indices, normals.gather(-1, indices)))
        chunks.append([torch.cat(part).transpose(0, 1) for part in zip(*parts)])
    return tuple(torch.cat(chunk) for chunk in zip(*chunks))


def with_nan_first(values, indices):
    """Return classes in decreasing order of their values, or a NaN's alone where there is one."""
    return torch.where(values[..., :1].isnan(), indices[..., :1], indices)


def hinge(scores, target, indices, normals, weights, margin, epsilon, scale):
    """Return the hinges of :func:`..noised_hinge`, which autograd differentiates.

    Given are the classes at the ranks in each draw and their normals, of shape
    (n_samples, n_draws, n_ranks), and the weights of the ranks.
    """
    places = torch.cat([indices.flatten(1), target.unsqueeze(1)], dim=1)
    chosen = scores.gather(1, places)
    noised = chosen[:, :-1].unflatten(1, normals.shape[1:]) + epsilon * normals
    lead = noised.mean(dim=1) - chosen[:, -1:]
    margin = margin.unsqueeze(1) if isinstance(margin, torch.Tensor) else margin
    return scale * (torch.relu(margin + lead) @ weights)

"""The k-th largest score, smoothed by noise, and the hinge on it."""

import torch

from ..._checks import check_number, check_positive_integer
from ..._randomness import as_generator
from .._backends import draw_key
from .._checks import check_k, check_scores
from .._dispatch import choose
from .._precision import at_least_float32
from .._top_k import top_k
from . import cpu, reference

__all__ = ["noised_top_k", "noised_top_k_sum"]

#: One draw, without noise.
_EXACT = 0.0, 1, None, None, False


def check_noise(noise, scores):
    """Raise unless `noise` is a tensor of draws of the shape of `scores`.

    It may have 1 in place of any number but that of the classes.
    """
    if not isinstance(noise, torch.Tensor):
        raise TypeError(f"noise must be a tensor or None, got {type(noise).__name__}.")
    *shape, n_classes = scores.shape
    fits = noise.ndim == scores.ndim + 1 and noise.shape[0] > 0 and noise.shape[-1] == n_classes
    if not fits or any(size not in (1, n) for size, n in zip(noise.shape[1:], shape)):
        described = ", ".join(["n_noise_samples", *map(str, scores.shape)])
        raise ValueError(
            f"noise must have shape ({described}), with at least one draw, or 1 in place of any "
            f"number but {n_classes} to share it, got {tuple(noise.shape)}."
        )


def select_noised(
    scores, k, epsilon, n_draws, generator=None, noise=None, shared=False, all_k=False
):
    """Return the classes that noise puts at rank k or, if `all_k`, at ranks 1 to k in any order.

    They and the standard normals added to their scores are of shape (n_samples, n_draws, k or 1).
    Draws are made from `generator`, or are `noise` of shape (n_draws, n_samples or 1, n_classes);
    those made are the same for all samples if `shared`. Without noise, `epsilon` 0, there is one.
    Graphs of torch.compile break where noise is drawn, as they cannot hold a generator.
    """
    scores, select = scores.detach(), reference.select
    if epsilon == 0:
        indices = reference.with_nan_first(*top_k(scores, k)).unsqueeze(1)
        normals = torch.zeros_like(indices, dtype=scores.dtype)
    else:
        who = choose("noised", scores, rank=k) if noise is None else "reference"
        if who == "triton":
            from . import triton

            return triton.select(scores, k, epsilon, n_draws, generator, shared, all_k)
        if who == "cpu" and not shared and cpu.takes(epsilon):
            return cpu.select(scores, k, epsilon, n_draws, generator, all_k)
        if noise is not None:
            n_draws = len(noise)
        elif torch.compiler.is_compiling():
            select = torch.compiler.disable(select)
        indices, normals = select(scores, k, epsilon, n_draws, generator, noise, shared)
    return (indices, normals) if all_k else (indices[..., -1:], normals[..., -1:])


def noised_hinge(scores, target, ranks, margin=1.0, scale=1.0, draws=_EXACT):
    r"""Return the weighted sum of the noised hinges of several ranks, for each sample.

    .. math:: \sum_r w_r \, \gamma \Big( m_y + \frac{1}{M} \sum_{i \le M}
        \mathrm{top}_{r+1}(s + \epsilon Z_i) - s_y \Big)_+

    With one rank and without noise it is the calibrated hinge. Scores are in single precision or
    better; a target on the processor that is no class is a ValueError. `ranks` are pairs of r, in
    [1, n_classes - 1] and increasing, and its weight. The margin is a number, or one of each
    sample. `draws` are the arguments `epsilon` to `shared` of :func:`select_noised`: all ranks
    share them.
    """
    epsilon, n_draws, generator, noise, shared = draws
    k, several = ranks[-1][0] + 1, len(ranks) > 1
    who = choose("noised", scores, target, rank=k) if noise is None else "reference"
    given = scores, target, ranks, margin, epsilon, n_draws if epsilon > 0 else 1, scale
    if who == "triton":
        from . import triton

        return triton.NoisedHinge.apply(*given, generator, shared)
    if who == "cpu" and not shared and cpu.takes(epsilon):
        return cpu.NoisedHinge.apply(*given, draw_key(generator) if epsilon > 0 else 0)
    indices, normals = select_noised(scores, k, *draws, all_k=several)
    if several:  # in no order
        chosen = scores.detach().gather(1, indices.flatten(1)).view_as(normals)
        order = torch.add(chosen, normals, alpha=epsilon).argsort(dim=-1, descending=True)
        order = torch.stack([order[..., rank] for rank, _ in ranks], dim=-1)
        indices, normals = indices.gather(-1, order), normals.gather(-1, order)
    # Neither places nor weights from a list, whose copy to a device would be waited for.
    weights = torch.stack([scores.new_full((), weight) for _, weight in ranks])
    return reference.hinge(scores, target, indices, normals, weights, margin, epsilon, scale)


def _noised_mean(scores, k, epsilon, n_draws, generator, noise, all_k):
    """Average over the draws the k-th largest noised score, or the sum of the k largest."""
    check_scores(scores)
    k = check_k(k, scores.shape[-1])
    check_number("epsilon", epsilon, 0, inclusive=True)
    check_positive_integer("n_noise_samples", n_draws)
    generator = as_generator(generator, scores.device)
    flat = at_least_float32(scores).reshape(-1, scores.shape[-1])
    if noise is not None:
        check_noise(noise, scores)
        noise = noise.expand(-1, *scores.shape).reshape(noise.shape[0], -1, scores.shape[-1])
    indices, normals = select_noised(flat, k, epsilon, n_draws, generator, noise, all_k=all_k)
    noised = flat.gather(1, indices.flatten(1)) + epsilon * normals.flatten(1)
    mean = noised.mean(dim=1)
    return (mean * k if all_k else mean).reshape(scores.shape[:-1]).to(scores.dtype)


def noised_top_k(scores, k, epsilon=1.0, n_noise_samples=5, generator=None, noise=None):
    r"""Estimate the smoothed k-th largest score.

    .. math:: \mathrm{top}_{k,\epsilon}(s) = E[\mathrm{top}_k(s + \epsilon Z)], \quad
        Z \sim N(0, I),

    by the mean over `n_noise_samples` draws of Z; its gradient is the mean of the indicators of
    the classes that are k-th in the draws [1]_, eq. (8)-(12).

    Parameters
    ----------
    scores : Tensor of shape (..., n_classes)
    k : int, in [1, n_classes]
    epsilon : float, default=1.0
        Standard deviation of the noise; 0 gives the k-th largest score itself.
    n_noise_samples : int, default=5
        Number of draws; not used when `noise` is given.
    generator : torch.Generator or int, optional
        Where the noise comes from, or a seed; torch's default generator when absent.
    noise : Tensor of shape (n_noise_samples, ..., n_classes), optional
        Standard normals to use; the middle dimensions may be 1, to share the noise.

    Returns
    -------
    Tensor of shape (...)

    References
    ----------
    .. [1] Garcin et al., "Stochastic smoothing of the top-K calibrated hinge loss for deep
       imbalanced classification", ICML 2022.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.operators import noised_top_k
    >>> scores = torch.tensor([2.4, 2.6, 2.3, 0.5], requires_grad=True)
    >>> noise = torch.tensor(
    ...     [[0.2, -0.1, 0.1, 0.3], [0.1, 0.1, -0.1, 0.1], [-0.1, -0.1, 0.1, -0.1]]
    ... )
    >>> value = noised_top_k(scores, k=2, epsilon=1.0, noise=noise)
    >>> round(value.item(), 2)
    2.47
    """
    return _noised_mean(scores, k, epsilon, n_noise_samples, generator, noise, all_k=False)


def noised_top_k_sum(scores, k, epsilon=1.0, n_noise_samples=5, generator=None, noise=None):
    r"""Estimate the smoothed sum of the k largest scores.

    .. math:: \mathrm{top}\Sigma_{k,\epsilon}(s) = E\Big[\sum_{i \le k}
        \mathrm{top}_i(s + \epsilon Z)\Big], \quad Z \sim N(0, I).

    It is convex in the scores; its gradient is the mean over the draws of the indicators of the
    k largest: eq. (6)-(7) of the article that :func:`noised_top_k` names.

    Parameters
    ----------
    scores : Tensor of shape (..., n_classes)
    k : int, in [1, n_classes]
    epsilon, n_noise_samples, generator, noise
        As for :func:`noised_top_k`.

    Returns
    -------
    Tensor of shape (...)

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.operators import noised_top_k_sum
    >>> noised_top_k_sum(torch.tensor([3.0, 1.0, 2.0]), k=2, epsilon=0.0)
    tensor(5.)
    """
    return _noised_mean(scores, k, epsilon, n_noise_samples, generator, noise, all_k=True)

"""The k-th largest score, smoothed by noise."""

import torch

from ._checks import check_k, check_number, check_positive_integer, check_scores
from ._compiled import fits_compiled, kernels
from ._precision import at_least_float32
from ._sieve import LEAST_NOISE, MOST_NOISE, plan_sieve, select_sieving
from ._top_k import k_largest, kth_largest
from ._triton import fits_kernels

__all__ = ["noised_top_k", "noised_top_k_sum"]

#: Noised scores held at once, where a row is not longer: few enough for a processor's cache,
#: enough to keep an accelerator busy.
_AT_ONCE, _AT_ONCE_ELSEWHERE = 1 << 16, 1 << 24
#: A kernel that keeps the k largest in one pass pays up to this k.
_MAX_K_IN_ONE_PASS = 64


def _fits_one_pass(scores, k):
    """Return whether the Triton kernel, which computes in single precision, is to be used."""
    return k <= _MAX_K_IN_ONE_PASS and fits_kernels(scores)


def fits_noised(scores, epsilon, target=None):
    """Return whether the compiled kernels can add such noise, drawn anew for each row."""
    return fits_compiled(scores, target) and (epsilon == 0 or LEAST_NOISE < epsilon < MOST_NOISE)


def draw_seed(generator):
    """Draw the seed that a kernel makes its noise from."""
    return int(torch.randint(2**63 - 1, (), generator=generator, device="cpu"))


def _select_by_kernel(scores, k, epsilon, n_draws, generator, all_k):
    scores = scores.contiguous()
    n_samples, n_classes = scores.shape
    n_selected = n_draws * k if all_k else n_draws
    indices = scores.new_empty(n_samples, n_selected, dtype=torch.int64)
    normals = scores.new_empty(n_samples, n_selected)
    kernels.select_rows(
        scores.data_ptr(),
        n_samples,
        n_classes,
        k,
        n_draws,
        epsilon,
        draw_seed(generator),
        all_k,
        indices.data_ptr(),
        normals.data_ptr(),
    )
    return indices, normals


def check_noise(noise, scores):
    """Raise unless `noise` holds draws of the shape of `scores`, or 1 for all but the classes."""
    *shape, n_classes = scores.shape
    fits = noise.ndim == scores.ndim + 1 and len(noise) > 0 and noise.shape[-1] == n_classes
    if not fits or any(size not in (1, n) for size, n in zip(noise.shape[1:], shape)):
        described = ", ".join(["n_noise_samples", *map(str, scores.shape)])
        raise ValueError(
            f"noise must have shape ({described}), with at least one draw, or 1 in place of any "
            f"number but {n_classes} to share it, got {tuple(noise.shape)}."
        )


def _select(scores, noise, k, epsilon, all_k):
    """Return the classes of rank k (or 1 to k) after noise, and their noise.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
    noise : Tensor of shape (n_draws, n_samples or 1, n_classes)
    k : int
    epsilon : float
    all_k : bool

    Returns
    -------
    indices, normals : Tensors of shape (n_samples, n_selected)
    """
    noised = torch.add(scores, noise, alpha=epsilon)
    indices = k_largest(noised, k) if all_k else kth_largest(noised, k)
    normals = noise.expand_as(noised).gather(2, indices)
    return indices.transpose(0, 1).flatten(1), normals.transpose(0, 1).flatten(1)


def _join(chunks, dim):
    """Concatenate the tensors that several chunks hold at each place."""
    if len(chunks) == 1:
        return chunks[0]
    return tuple(torch.cat(parts, dim=dim) for parts in zip(*chunks))


def _select_in_chunks(scores, k, epsilon, n_draws, generator, noise, all_k):
    """Select in a few rows and draws at a time, so that memory does not grow with the draws."""
    n_samples, n_classes = scores.shape
    at_once = _AT_ONCE if scores.device.type == "cpu" else _AT_ONCE_ELSEWHERE
    n_rows = max(1, min(n_samples, at_once // n_classes))
    step = max(1, at_once // (n_rows * n_classes))
    chunks = []
    for start in range(0, max(1, n_samples), n_rows):
        rows = scores[start : start + n_rows]
        selected = []
        for done in range(0, n_draws, step):
            if noise is None:
                shape = (min(step, n_draws - done), *rows.shape)
                some = torch.randn(
                    shape, generator=generator, dtype=scores.dtype, device=scores.device
                )
            else:
                some = noise[done : done + step].to(scores.dtype)
                some = some if len(some[0]) == 1 else some[:, start : start + n_rows]
            selected.append(_select(rows, some, k, epsilon, all_k))
        chunks.append(_join(selected, dim=1))
    return _join(chunks, dim=0)


def select_noised(
    scores, k, epsilon, n_noise_samples, generator=None, noise=None, shared=False, all_k=False
):
    """Find the classes that the noise puts at rank k, or at ranks 1 to k.

    Graphs of torch.compile break here, as they cannot hold a generator.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
    k : int
    epsilon : float
    n_noise_samples : int
    generator : torch.Generator, optional
    noise : Tensor of shape (n_noise_samples, n_samples or 1, n_classes), optional
        Drawn from `generator` when absent.
    shared : bool, default=False
        Whether drawn noise is the same for all samples.
    all_k : bool, default=False
        Whether to return the k first classes of each draw instead of the k-th alone.

    Returns
    -------
    indices, values : Tensors of shape (n_samples, n_selected)
        Classes, and the standard normals added to their scores.
    """
    arguments = scores.detach(), k, epsilon, n_noise_samples, generator, noise, shared, all_k
    if torch.compiler.is_compiling():
        from ._outside_graphs import select_outside_graphs

        return select_outside_graphs(*arguments)
    return select_eagerly(*arguments)


def select_eagerly(scores, k, epsilon, n_noise_samples, generator, noise, shared, all_k):
    """Do what :func:`select_noised` does, outside of graphs."""
    if epsilon == 0:
        indices = torch.topk(scores, k, dim=-1).indices
        indices = indices if all_k else indices[:, -1:]
        return indices, torch.zeros_like(indices, dtype=scores.dtype)
    if noise is None and _fits_one_pass(scores, k):
        from ._triton_noised import select_in_one_pass

        return select_in_one_pass(scores, k, epsilon, n_noise_samples, generator, shared, all_k)
    if noise is None and not shared and fits_noised(scores, epsilon):
        return _select_by_kernel(scores, k, epsilon, n_noise_samples, generator, all_k)
    if noise is None and not (shared or all_k):
        plan = plan_sieve(scores, k, epsilon, n_noise_samples)
        if plan is not None:
            return select_sieving(scores, k, epsilon, n_noise_samples, generator, plan)
    if noise is None and shared:
        shape = (n_noise_samples, 1, scores.shape[1])
        noise = torch.randn(shape, generator=generator, dtype=scores.dtype, device=scores.device)
    n_draws = n_noise_samples if noise is None else len(noise)
    return _select_in_chunks(scores, k, epsilon, n_draws, generator, noise, all_k)


def _noised_mean(scores, k, epsilon, n_noise_samples, generator, noise, all_k):
    """Average over the draws the k-th largest noised score, or the sum of the k largest."""
    check_scores(scores)
    check_k(k, scores.shape[-1])
    check_number("epsilon", epsilon, 0, inclusive=True)
    check_positive_integer("n_noise_samples", n_noise_samples)
    flat = at_least_float32(scores).reshape(-1, scores.shape[-1])
    if noise is not None:
        check_noise(noise, scores)
        is_shared = noise[0, ..., 0].numel() == 1
        noise = noise if is_shared else noise.expand(-1, *scores.shape)
        noise = noise.reshape(len(noise), -1, noise.shape[-1])
    indices, normals = select_noised(
        flat, k, epsilon, n_noise_samples, generator, noise, all_k=all_k
    )
    mean = (flat.gather(1, indices) + epsilon * normals).mean(dim=1)
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
    generator : torch.Generator, optional
        Where the noise comes from; torch's default generator when absent.
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
    k largest [1]_, eq. (6)-(7).

    Parameters
    ----------
    scores : Tensor of shape (..., n_classes)
    k : int, in [1, n_classes]
    epsilon : float, default=1.0
        Standard deviation of the noise.
    n_noise_samples : int, default=5
        Number of draws; not used when `noise` is given.
    generator : torch.Generator, optional
        Where the noise comes from; torch's default generator when absent.
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
    >>> from sksetvalued.operators import noised_top_k_sum
    >>> noised_top_k_sum(torch.tensor([3.0, 1.0, 2.0]), k=2, epsilon=0.0)
    tensor(5.)
    """
    return _noised_mean(scores, k, epsilon, n_noise_samples, generator, noise, all_k=True)

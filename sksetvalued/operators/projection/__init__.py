"""Projections on the top-K simplex, whose vertices are the indicators of sets of K classes.

What they are is written in :mod:`.reference`; :mod:`.cpu` and :mod:`.triton` call kernels, and
:mod:`.eager` does without.
"""

import torch

from ..._checks import check_number
from .._checks import check_scores
from .._dispatch import choose, is_eager
from .._precision import at_least_float32, without_autocast
from . import cpu, eager, reference
from .reference import as_point, as_sizes

__all__ = ["sparse_top", "sparsemax"]


def check_size(k, scores):
    """Return `k` as a number or a tensor of shape ``scores.shape[:-1]``, in [0, n_classes]."""
    n_classes = scores.shape[-1]
    if not isinstance(k, torch.Tensor):
        check_number("k", k, 0, inclusive=True)
        if k > n_classes:
            raise ValueError(f"k must lie in [0, {n_classes}], the number of classes, got {k!r}.")
        return k
    if k.is_complex():
        raise TypeError("k must hold real numbers, got complex ones.")
    if k.ndim and k.shape != scores.shape[:-1]:
        raise ValueError(
            "k must be a number or hold one number per row of scores, of shape "
            f"{tuple(scores.shape[:-1])}, got {tuple(k.shape)}."
        )
    if k.device.type == "cpu" and k.numel() and is_eager(k):
        low, high = torch.aminmax(k)
        if not (low >= 0 and high <= n_classes):
            raise ValueError(
                f"k must lie in [0, {n_classes}], the number of classes, got values in "
                f"[{low.item()}, {high.item()}]."
            )
    return k


def _in_graph():
    """Return whether a graph is traced that may hold the projection as one operation."""
    return torch.compiler.is_compiling() and not torch.compiler.is_exporting()


def _who_computes(scores):
    """Return the module that projects these scores now."""
    backend = choose("projection", scores)
    if backend == "cpu":
        return cpu
    if backend == "triton":
        from . import triton

        return triton
    return eager if is_eager(scores) else reference


def _project(rows, k):
    """Return the projection of scores of shape (n_samples, n_classes)."""
    if not _in_graph():
        return _who_computes(rows).project(rows, k)
    q = _project_in_graph(rows.detach(), as_sizes(k, rows).expand(rows.shape[0]))
    return q + _centred(_change_of(rows), (q > 0) & (q < 1))


def fenchel_young_loss(scores, target, shared):
    """Return the Fenchel-Young loss of each row, whose gradient is a projection less a point.

    The target is a class of each row, or an indicator of the shape of the scores. The labels of an
    indicator share one unit if `shared`, and scores are projected on the probability simplex; or
    else on the simplex of the number of labels. Scores are in single precision or better.
    """
    if not _in_graph():
        return _who_computes(scores).fenchel_young(scores, target, shared)
    losses, gap = _fenchel_young_in_graph(scores.detach(), target, shared)
    point, change = as_point(target, scores, shared)[0], _change_of(scores)
    # Equal to the loss up to third order in the change, which is zero.
    slope = gap + _centred(change, (gap > -point) & (gap < 1 - point)) / 2
    return losses + (slope * change).sum(1)


def _change_of(scores):
    """Return zeros whose derivatives are those of the scores; of infinite ones there are none."""
    return torch.where(scores.isfinite(), scores - scores.detach(), 0)


def _centred(change, inside):
    """Return how a projection follows scores: by those inside, less their mean."""
    kept = torch.where(inside, change, 0)
    mean = kept.sum(1, keepdim=True) / inside.sum(1, keepdim=True).clamp(1)
    return torch.where(inside, kept - mean, 0)


# Opaque to derivatives, which are put on the results above: those that an operation has of its own
# are zero in forward mode, in silence.
@torch.library.custom_op("sksetvalued::project", mutates_args=())
def _project_in_graph(scores: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return _project(scores, k)


@torch.library.custom_op("sksetvalued::fenchel_young", mutates_args=())
def _fenchel_young_in_graph(
    scores: torch.Tensor, target: torch.Tensor, shared: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the losses and their gradient."""
    with torch.enable_grad():
        leaf = scores.detach().requires_grad_()
        losses = fenchel_young_loss(leaf, target, shared)
    (gradient,) = torch.autograd.grad(losses, leaf, torch.ones_like(losses))
    return losses.detach(), gradient


_project_in_graph.register_fake(lambda scores, k: scores.new_empty(scores.shape))
_fenchel_young_in_graph.register_fake(
    lambda scores, target, shared: (scores.new_empty(len(scores)), scores.new_empty(scores.shape))
)


def sparse_top(scores, k):
    r"""Project scores on the top-K simplex, whose vertices are the sets of k classes.

    .. math:: \operatorname*{arg\,min}_{0 \le q \le 1,\; \sum_j q_j = k} \|s - q\|^2
              = \bigl(\max(0, \min(1, s_j - \lambda))\bigr)_j,

    where :math:`\lambda` makes the entries sum to `k` [1]_, eq. (6.13)-(6.15). Most entries
    are exactly 0, and the clear winners exactly 1. The Jacobian is that of (6.21),
    :math:`\mathrm{Diag}(m) - m m^\top / |m|_1` with m the indicator of the entries strictly
    between 0 and 1, and zero where there is none.

    Parameters
    ----------
    scores : Tensor of shape (..., n_classes)
        Half precision is computed, and returned, in float32. A class that scores -inf is out; a
        row with fewer finite scores than `k` gives NaN.
    k : float, or Tensor of shape (...)
        Sum of each row of the result, in [0, n_classes]; not differentiated.

    Returns
    -------
    Tensor of shape (..., n_classes)

    Raises
    ------
    ValueError
        If `k` is negative, above the number of classes or of another shape.

    Notes
    -----
    Where the kernels compute it, time and memory beyond one pass over the scores depend on the
    number of entries that may be positive. Second derivatives are zero almost everywhere.

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.operators import sparse_top
    >>> scores = torch.tensor([3.0, 1.0, 0.5, -1.0])
    >>> sparse_top(scores, k=2)
    tensor([1.0000, 0.7500, 0.2500, 0.0000])
    >>> sparse_top(torch.stack([scores, scores]), k=torch.tensor([1, 3.5]))
    tensor([[1.0000, 0.0000, 0.0000, 0.0000],
            [1.0000, 1.0000, 1.0000, 0.5000]])
    """
    check_scores(scores)
    k = check_size(k, scores)
    with without_autocast(scores.device):
        rows = at_least_float32(scores)
        if isinstance(k, torch.Tensor):
            k = k.detach().expand(scores.shape[:-1]).reshape(-1)
        if scores.ndim == 2:
            return _project(rows, k)
        return _project(rows.reshape(-1, scores.shape[-1]), k).reshape(scores.shape)


def sparsemax(scores):
    r"""Project scores on the probability simplex.

    .. math:: \operatorname*{arg\,min}_{p \ge 0,\; \sum_j p_j = 1} \|s - p\|^2,

    as :func:`sparse_top` does with ``k=1``: the sparse softmax of Martins and Astudillo (ICML
    2016), eq. (2).

    Parameters
    ----------
    scores : Tensor of shape (..., n_classes)

    Returns
    -------
    Tensor of shape (..., n_classes)

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.operators import sparsemax
    >>> sparsemax(torch.tensor([1.0, 0.8, -2.0]))
    tensor([0.6000, 0.4000, 0.0000])
    """
    return sparse_top(scores, 1)

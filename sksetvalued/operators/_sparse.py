"""Projections on the top-K simplex, whose vertices are the indicators of sets of K classes."""

import math

import numpy as np
import torch

from ._checks import check_number, check_scores
from ._compiled import fits_compiled
from ._compiled_sparse import SparseTop as CompiledSparseTop
from ._precision import at_least_float32, without_autocast
from ._top_k import block_maxima, block_members, classes_in_no_block, k_largest
from ._triton import fits_kernels

__all__ = ["sparse_top", "sparsemax"]

# Rows longer than this are searched by blocks of entries.
_LONG_ROW, _BLOCK = 2048, 32
_MAX_STEPS = 200
# Entries sorted, and differentiated, together.
_AT_ONCE, _CHUNK = 1 << 18, 1 << 15


def check_size(k, scores):
    """Return `k` as a number or a tensor of shape ``scores.shape[:-1]``, in [0, n_classes]."""
    n_classes = scores.shape[-1]
    if not isinstance(k, torch.Tensor):
        check_number("k", k, 0, inclusive=True)
        if k > n_classes:
            raise ValueError(f"k must lie in [0, {n_classes}], the number of classes, got {k!r}.")
        return k
    if k.ndim and k.shape != scores.shape[:-1]:
        raise ValueError(
            "k must be a number or hold one number per row of scores, of shape "
            f"{tuple(scores.shape[:-1])}, got {tuple(k.shape)}."
        )
    if k.device.type == "cpu" and k.numel() and not torch.compiler.is_compiling():
        low, high = torch.aminmax(k)
        if not (low >= 0 and high <= n_classes):
            raise ValueError(
                f"k must lie in [0, {n_classes}], the number of classes, got values in "
                f"[{low.item()}, {high.item()}]."
            )
    return k


def _threshold_steps(excess, inside, threshold, low, high, slow):
    """Return by how much to raise the thresholds: Newton's steps, or bisection's."""
    newton = excess / inside
    reached = threshold + newton
    trusted = (reached >= low) & (reached <= high) & ~slow
    return torch.where(trusted, newton, (low + high) / 2 - threshold)


def _sums(shifted, above, part):
    """Return the sum and number of the entries in (0, 1], and the number above, by row.

    The entries above one are counted, not summed, so that they round nothing. Float
    arithmetic is several times faster than masks; `above` and `part` are buffers.
    """
    large = 1e30
    torch.sub(shifted, 1, out=above).mul_(large).clamp_(0, 1)
    torch.clamp(shifted, 0, 1, out=part).sub_(above)
    total, n_above = part.sum(1), above.sum(1)
    return total, part.mul_(large).clamp_(0, 1).sum(1), n_above


def _solve_threshold(values, k):
    """Return ``values - threshold`` and the threshold, such that the clipped rows sum to k.

    `values` are relative to the entry of rank ceil(k), hence the threshold lies in [-1, 0].
    Rows are shifted in place, so that the last corrections are not lost in the digits of the
    threshold, and the sum is exact even over many small entries.
    """
    # Nothing is above the largest score, the threshold of k = 0.
    start = torch.where(k > 0, -1.0, 0.0).to(values.dtype)
    shifted = values - start[:, None]
    threshold = start.to(k.dtype)
    low, high = threshold.clone(), torch.zeros_like(threshold)
    previous = torch.full_like(start, torch.inf)
    eps = 4 * torch.finfo(values.dtype).eps
    buffers = torch.empty_like(values), torch.empty_like(values)
    for _ in range(_MAX_STEPS):
        total, inside, n_above = _sums(shifted, *buffers)
        rest = (k - n_above).to(values.dtype)
        excess = total - rest
        unsettled = excess.abs() > eps * (1 + rest.abs())
        if values.is_meta or not unsettled.any():
            break
        low = torch.where(excess > 0, threshold, low)
        high = torch.where(excess < 0, threshold, high)
        slow = excess.abs() > previous / 2
        step = _threshold_steps(excess, inside, threshold, low, high, slow)
        step = torch.where(unsettled, step, 0)
        shifted -= step[:, None].to(values.dtype)
        threshold = threshold + step
        previous = torch.where(slow, torch.inf, excess.abs())
    return shifted, threshold


def _reference(values, rank):
    """Return the entry of a given rank, a number or one per row."""
    if values.is_meta:
        return values[:, :1]
    if isinstance(rank, torch.Tensor):
        return values.topk(int(rank.max()), dim=1).values.gather(1, rank[:, None] - 1)
    return values.topk(rank, dim=1).values[:, -1:]


def _largest(scores, count):
    """Return the `count` largest entries of each row, in any order, and the one after them."""
    top = scores.topk(count + 1, dim=1).values
    return top[:, :-1], top[:, -1:]


def _project(scores, k, rank):
    """Return the projection of rows, with the two terms of its threshold.

    Leaving out entries can only lower the threshold. It is sought on the largest entries, four
    times as many until the next one is below it.
    """
    n_largest = int(rank.max()) if isinstance(rank, torch.Tensor) and not rank.is_meta else rank
    count = 2 * n_largest + 54 if not scores.is_meta else scores.shape[1]
    while 4 * count < scores.shape[1] and scores.shape[0]:
        values, following = _largest(scores, count)
        reference = _reference(values, rank)
        _, threshold = _solve_threshold(values - reference, k)
        if not (following - reference > threshold[:, None]).any():
            return _clipped(scores, reference, threshold), None, reference, threshold[:, None]
        count *= 4
    reference = _reference(scores, rank)
    shifted, threshold = _solve_threshold(scores - reference, k)
    return shifted.clamp_(0, 1), None, reference, threshold[:, None]


def _clipped(scores, reference, threshold):
    """Return the projection, given its threshold in two terms.

    What a threshold in single precision leaves out adds up over many small entries.
    """
    coarse = threshold.to(scores.dtype)
    fine = (threshold - coarse).to(scores.dtype)
    q = (scores - reference).sub_(coarse[:, None]).sub_(fine[:, None])
    return q.clamp_(0, 1)


def _columns_of_blocks(blocks, n_blocks, scores):
    """Return the columns in the chosen blocks, and those in no block."""
    members = block_members(blocks, n_blocks, _BLOCK)
    return torch.cat([members, classes_in_no_block(n_blocks, _BLOCK, scores)], 1)


def _project_long(scores, k, rank):
    """Project long rows through the blocks of entries that hold the positive ones.

    The blocks of the largest maxima are taken, twice as many until the next maximum is below
    the threshold.
    """
    n_blocks = scores.shape[1] // _BLOCK
    largest = int(rank.max()) if isinstance(rank, torch.Tensor) else rank
    n_taken = max(2 * largest, 32)
    if 4 * n_taken > n_blocks:
        return _project(scores, k, rank)
    maxima, n_blocks = block_maxima(scores, _BLOCK)
    while 4 * n_taken <= n_blocks:
        top = maxima.topk(n_taken + 1, dim=1)
        columns = _columns_of_blocks(top.indices[:, :-1], n_blocks, scores)
        q, _, reference, threshold = _project(scores.gather(1, columns), k, rank)
        if not (top.values[:, -1:] - reference > threshold).any():
            return q, columns, reference, threshold
        n_taken *= 2
    return _project(scores, k, rank)


def _threshold_of_sorted(ordered, k, rank):
    """Return the entry of a given rank and the threshold measured from it, of shape (n, 1).

    When the first a entries are set to 1, and none of the others is above, the threshold is the
    largest of (v_(a+1) + ... + v_b - (k - a)) / (b - a) over b, from the rank on. It falls while
    a grows, until no other entry is above 1.

    Parameters
    ----------
    ordered : ndarray of shape (n, n_entries)
        The entries in decreasing order, as far as they are positive after projection.
    k : float or ndarray of shape (n,)
    rank : int or ndarray of shape (n,)
        The least integer above k, at least 1.
    """
    rows = np.arange(len(ordered))
    reference = ordered[rows, rank - 1]
    # Sums over the first dimension are faster, but for running ones.
    v = np.subtract(ordered.T, reference, order="C", dtype=np.float64)
    # The threshold lies in [-1, 0]: above 1 entries become 1, and below -1 they become 0.
    np.minimum(v, 1, out=v)
    least, most = (rank, rank) if isinstance(rank, int) else (1, rank.max(initial=1))
    v = v[: max(most, np.count_nonzero((v > -1).any(1)))]
    sums = np.zeros((len(v) + 1, len(rows)))
    sums[1:] = torch.from_numpy(v.T.copy()).cumsum_(1).numpy().T
    top, places = v[:most], np.arange(least, len(v) + 1.0)[:, None]
    n_ones = np.count_nonzero(top == 1, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        while True:
            means = sums[least:] - (sums[n_ones, rows] + (k - n_ones))
            means /= np.maximum(places - n_ones.astype(np.float64), 0)
            threshold = means.max(0, initial=-1)
            above = np.count_nonzero(top > threshold + 1, axis=0)
            if not (above > n_ones).any():
                break
            n_ones = np.maximum(above, n_ones)
    if ordered.dtype == np.float64:
        threshold = _polished(threshold, v, k)
    return reference[:, None], threshold[:, None]


def _polished(threshold, v, k):
    """Return the threshold without what the sums over other entries rounded away."""
    # Below -1 entries become 0, and -inf times 0 would be NaN.
    q = np.maximum(v, -1) - threshold
    below = q < 1
    inside = below & (q > 0)
    total = np.einsum("jn,jn->n", q, inside)
    excess = total - (k - len(v) + below.sum(0))
    return threshold + excess / np.maximum(inside.sum(0), 1)


def _search_sorted(scores, k, rank, with_columns):
    """Find the threshold among the largest entries, four times as many until it is above the last.

    Returns
    -------
    columns : LongTensor of shape (n, n_candidates), or None
        Where the positive entries are; None stands for all columns.
    reference, threshold : ndarrays of shape (n, 1)
    """
    n, n_classes = scores.shape
    count = 3 * (rank if isinstance(rank, int) else int(rank.max(initial=1))) + 25
    while 4 * count < n_classes and n:
        if with_columns:
            columns = k_largest(scores, count)
            values = scores.gather(1, columns).numpy()
        else:
            columns = None
            values = np.partition(scores.numpy(), n_classes - count, axis=1)[:, -count:]
        ordered = np.sort(values, axis=1)[:, ::-1]
        reference, threshold = _threshold_of_sorted(ordered, k, rank)
        if (ordered[:, -1:] - reference <= threshold).all():
            return columns, reference, threshold
        count *= 4
    step = max(1, _AT_ONCE // n_classes)
    if n <= step:
        return None, *_threshold_of_sorted(np.sort(scores.numpy(), axis=1)[:, ::-1], k, rank)
    parts = []
    for start in range(0, n, step):
        rows = slice(start, start + step)
        ordered = np.sort(scores[rows].numpy(), axis=1)[:, ::-1]
        some = [x[rows] if isinstance(x, np.ndarray) else x for x in (k, rank)]
        parts.append(_threshold_of_sorted(ordered, *some))
    return None, *map(np.concatenate, zip(*parts))


def _search_long(scores, k, rank, with_columns):
    """Find the threshold of long rows, in the blocks of the largest maxima."""
    n_taken = max(2 * int(np.max(rank, initial=1)), 32)
    n_blocks = scores.shape[1] // _BLOCK
    if len(scores) and 4 * n_taken <= n_blocks:
        maxima, _ = block_maxima(scores, _BLOCK)
        while 4 * n_taken <= n_blocks:
            blocks = k_largest(maxima, n_taken)
            members = _columns_of_blocks(blocks, n_blocks, scores)
            some = scores.gather(1, members)
            columns, reference, threshold = _search_sorted(some, k, rank, with_columns=True)
            least = maxima.gather(1, blocks).amin(1, keepdim=True).numpy()
            if (least - reference <= threshold).all():
                return (
                    members if columns is None else members.gather(1, columns),
                    reference,
                    threshold,
                )
            n_taken *= 2
    return _search_sorted(scores, k, rank, with_columns)


def _project_on_processor(scores, k, rank, with_columns):
    """Do what :func:`_project` does, by sorting the entries that may be positive."""
    if isinstance(k, torch.Tensor):
        k, rank = k.numpy(), rank.numpy()
    search = _search_long if scores.shape[1] >= _LONG_ROW else _search_sorted
    columns, reference, threshold = search(scores, k, rank, with_columns)
    values = scores if columns is None else scores.gather(1, columns)
    reference, threshold = torch.from_numpy(reference), torch.from_numpy(threshold)
    return _clipped(values, reference, threshold[:, 0]), columns, reference, threshold


def project_on_top_k_simplex(scores, k, with_columns=True):
    """Project rows on the top-K simplex, in the form that the operator and the loss share.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
    k : number or Tensor of shape (n_samples,)
    with_columns : bool
        Whether to say which columns hold the positive entries, though to find them in short rows
        takes longer than to fill the others with zeros.

    Returns
    -------
    q : Tensor of shape (n_samples, n_candidates)
    columns : LongTensor of shape (n_samples, n_candidates), or None
        Columns of the entries of `q`, all others being zero; None stands for all columns.
    reference, threshold : Tensors of shape (n_samples, 1)
        ``q = clip(scores - reference - threshold, 0, 1)``; the threshold in double precision.
    """
    # A float32 would lose digits of a large real k, and of the threshold.
    exact = torch.float32 if scores.device.type == "mps" else torch.float64
    sorting = scores.device.type == "cpu" and not torch.compiler.is_compiling()
    if isinstance(k, torch.Tensor):
        k = k.to(exact).expand(scores.shape[0])
        rank = k.ceil().clamp(min=1).long()
    else:
        rank = max(math.ceil(k), 1)
        if not sorting:
            k = torch.full((scores.shape[0],), k, dtype=exact, device=scores.device)
    if sorting:
        return _project_on_processor(scores.detach(), k, rank, with_columns)
    long = scores.shape[1] >= _LONG_ROW and scores.shape[0] and not scores.is_meta
    return (_project_long if long else _project)(scores, k, rank)


class _SparseTop(torch.autograd.Function):
    """Projection whose backward touches the candidates only, and can be differentiated."""

    @staticmethod
    def forward(ctx, scores, k):
        q, columns, _, _ = project_on_top_k_simplex(scores.contiguous(), k, with_columns=False)
        ctx.n_classes = scores.shape[1]
        result = _spread(q, columns, ctx.n_classes)
        ctx.save_for_backward(q if columns is not None else result, columns)
        return result

    @staticmethod
    def backward(ctx, grad):
        q, columns = ctx.saved_tensors
        if columns is not None:
            return _spread(_centred(grad.gather(1, columns), q), columns, ctx.n_classes), None
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return _centred(grad, q.detach()), None
        result = torch.empty_like(q)
        step = max(1, _CHUNK // ctx.n_classes)
        for start in range(0, len(q), step):
            rows = slice(start, start + step)
            _centred(grad[rows], q[rows], out=result[rows])
        return result, None


def _centred(grad, q, out=None):
    """Return the gradient where q is strictly between 0 and 1, minus its mean there."""
    inside = q.frac().sign_()
    result = torch.mul(grad, inside, out=out)
    mean = result.sum(1, keepdim=True) / inside.sum(1, keepdim=True).clamp_(min=1)
    return result.addcmul_(mean, inside, value=-1)


def _spread(values, columns, n_classes):
    if columns is None:
        return values
    return values.new_zeros(len(values), n_classes).scatter_(1, columns, values)


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
        Half precision is computed, and returned, in float32.
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
    The threshold is sought among the largest entries, in long rows among the few blocks of
    entries that hold the positive ones, so that time and memory beyond one pass over the
    scores depend on their number. Second derivatives are zero almost everywhere.

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
        if scores.ndim != 2:
            rows = rows.reshape(-1, scores.shape[-1])
        if fits_kernels(rows):
            from ._triton_sparse import SparseTop

            q = SparseTop.apply(rows, k)
        elif fits_compiled(rows):
            q = CompiledSparseTop.apply(rows, k)
        else:
            q = _SparseTop.apply(rows, k)
        return q if scores.ndim == 2 else q.reshape(scores.shape)


def sparsemax(scores):
    r"""Project scores on the probability simplex.

    .. math:: \operatorname*{arg\,min}_{p \ge 0,\; \sum_j p_j = 1} \|s - p\|^2,

    a sparse softmax [1]_; :func:`sparse_top` with ``k=1``.

    Parameters
    ----------
    scores : Tensor of shape (..., n_classes)

    Returns
    -------
    Tensor of shape (..., n_classes)

    References
    ----------
    .. [1] Martins and Astudillo, "From softmax to sparsemax", ICML 2016, eq. (2).

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.operators import sparsemax
    >>> sparsemax(torch.tensor([1.0, 0.8, -2.0]))
    tensor([0.6000, 0.4000, 0.0000])
    """
    return sparse_top(scores, 1)

r"""Ratios of elementary symmetric polynomials, by exponential tilting.

Let x be the scores over the temperature, and draw independent Bernoulli variables of odds
:math:`o_j = e^{x_j + \nu}`. With :math:`f_i` the probability of i successes,

.. math:: \log \frac{\sigma_k(e^x)}{\sigma_{k-1}(e^x)} = \log \frac{f_k}{f_{k-1}} - \nu .

The tilt :math:`\nu` is set so that about k - 1/2 successes are expected: both probabilities are
then of order one, whatever the temperature. They are Fourier coefficients of

.. math:: F(w) = \prod_j \frac{1 + o_j w}{1 + o_j}

on a few nodes of the unit circle, since the number of successes is concentrated. The largest
scores enter this product one by one; of the others, whose odds are small, only the power sums
:math:`\sum_j o_j^m` are needed. The gradient of the log-ratio is, for each class, a function of
its odds alone:

.. math:: \frac{1}{N} \sum_w w^{1-k} \frac{o_i F(w)}{1 + o_i w}
    \left( \frac{1}{f_k} - \frac{w}{f_{k-1}} \right).
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from ._direct import FEW_CLASSES, FEW_RANKS, smoothed_hinge_directly, solve_directly
from ._symmetric import LOWEST, log_sums
from ._top_k import top_k

#: Steps of Newton's method for the tilt, which need not be exact.
_TILT_STEPS = 3
#: Ranks from which single precision would lose digits of the gradient; an accelerator uses it
#: below.
_DOUBLE_FROM = 10
#: Entries treated together: few enough for a processor's cache, enough for an accelerator.
_CHUNK, _CHUNK_ELSEWHERE = 1 << 16, 1 << 24
#: Lowest binary log-odds outside the head, per precision, and lowest power of odds.
_LOWEST = {torch.float32: -40.0, torch.float64: -86.0}
_LOWEST_POWER = 1e-24
_LOG2E = math.log2(math.e)


def _n_rows(scores, width):
    """Return how many rows with `width` entries each to treat together."""
    chunk = _CHUNK if scores.device.type == "cpu" else _CHUNK_ELSEWHERE
    # Of many scores more at once, as long as that is a small part of them.
    chunk = max(chunk, min(scores.numel() // 16, 4 * chunk))
    return max(1, chunk // width)


def _log_tail(mean, count, n_trials):
    """Bound the log-probability that successes are as far from their mean as `count`.

    Chernoff's bound, for a number of independent successes or of failures, the better of both.
    """
    bounds = []
    for m, c in ((mean, count), (n_trials - mean, n_trials - count)):
        if c < 0:
            return -math.inf
        bounds.append(-m if c == 0 else c - m + c * math.log(m / c))
    return min(bounds)


@lru_cache(maxsize=256)
def n_nodes(k, n_classes, log_tolerance):
    """Return an odd number N of nodes that tells k successes from k + N and k - N.

    A transform over N nodes adds up probabilities that are N apart. The expected number of
    successes may be up to half a success off k - 1/2.
    """
    n = 3
    while n <= n_classes:
        above = _log_tail(min(k, n_classes - 0.25), k - 1 + n, n_classes)
        below = _log_tail(max(k - 1, 0.25), k - n, n_classes)
        if max(above, below) < log_tolerance:
            break
        n += 2
    return n


class _Circle(NamedTuple):
    """Constants of the Fourier sums, on the nodes w of the upper half circle.

    Attributes
    ----------
    nodes : Tensor of shape (n_nodes, 1)
    selection : Tensor of shape (n_nodes, 1)
        w^(1 - k) times the weights of the sums.
    far, near : Tensors of shape (n_nodes, 1, 1)
        |1 + w|^2 / 4 and |1 - w|^2 / 4.
    logs : Tensor of shape (2, n_nodes, n_powers)
        Real and imaginary parts of (-1)^(m - 1) (w^m - 1) / m, for m = 1, 2, ...
    powers : Tensor of shape (2, n_powers, n_nodes)
        Real and negative imaginary parts of (-w)^m, for m = 0, 1, ...
    """

    nodes: torch.Tensor
    selection: torch.Tensor
    far: torch.Tensor
    near: torch.Tensor
    logs: torch.Tensor
    powers: torch.Tensor


@lru_cache(maxsize=64)
def _circle_arrays(k, n_classes, exact, n_powers):
    n = n_nodes(k, n_classes, math.log(1e-19 if exact else 1e-9))
    index = np.arange(n // 2 + 1)
    w = np.exp(2j * np.pi * index / n)[:, None]
    m = np.arange(1, n_powers + 1)
    logs = -((-1.0) ** m) * (w**m - 1) / m
    powers = ((-w) ** (m - 1)).T
    return _Circle(
        nodes=w,
        selection=w ** (1 - k) * np.where(index == 0, 1.0, 2.0)[:, None] / n,
        far=np.abs(1 + w[:, :, None]) ** 2 / 4,
        near=np.abs(1 - w[:, :, None]) ** 2 / 4,
        logs=np.stack([logs.real, logs.imag]),
        powers=np.stack([powers.real, -powers.imag]),
    )


def _circle(k, n_classes, exact, n_powers, like):
    """Return the constants in the precision and on the device of `like`."""
    arrays = _circle_arrays(k, n_classes, exact, n_powers)
    return _Circle(
        *(
            torch.from_numpy(array).to(
                like.device, like.dtype.to_complex() if np.iscomplexobj(array) else like.dtype
            )
            for array in arrays
        )
    )


def _tilt(x, k, power_sums):
    """Return the shift of the log-odds at which about k - 1/2 successes are expected.

    Newton's method on the logarithm of that number, from below.

    Parameters
    ----------
    x : Tensor of shape (n_head, n_samples)
        Log-odds of the head, measured from the k-th largest.
    k : int
    power_sums : Tensor of shape (n_powers, n_samples), or None
        Sums of the powers 1, 2, ... of the odds outside the head.

    Returns
    -------
    Tensor of shape (n_samples,)
    """
    below = (torch.exp(x.clamp(max=0)) * (x <= 0)).sum(0)
    shift = torch.log(2 * (below if power_sums is None else below + power_sums[0]))
    for _ in range(_TILT_STEPS):
        p = torch.sigmoid(x - shift)
        mean, squares = p.sum(0), (p * p).sum(0)
        if power_sums is not None:
            odds = torch.exp(-shift)
            tail_squares = power_sums[1] * odds * odds if len(power_sums) > 1 else 0.0
            mean = mean + power_sums[0] * odds - tail_squares
            squares = squares + tail_squares
        step = torch.log((k - 0.5) / mean) * mean / (mean - squares).clamp(min=1e-2)
        shift = shift - step.clamp(-3.0, 3.0)
    return shift


def _product(p, q, nodes):
    """Return the product over the classes (first dimension) of q + p w, for each node w."""
    p, q, nodes = p.unsqueeze(0), q.unsqueeze(0), nodes.unsqueeze(1)
    factors = torch.complex(q + p * nodes.real, p * nodes.imag)
    while factors.shape[1] > 1:
        half = factors.shape[1] // 2
        product = factors[:, :half] * factors[:, half : 2 * half]
        if factors.shape[1] % 2:
            product[:, 0] *= factors[:, -1]
        factors = product
    return factors[:, 0]


def _squared_factors(p, q, circle):
    """Return |q + p w|^2 for each node w; as 1 - p q |1 - w|^2 it would lose digits near -1."""
    return circle.far + (p - q) ** 2 * circle.near


def _solve(x, k, n_classes, power_sums, exact):
    """Compute the log-ratio, the tilt and the derivatives.

    Parameters
    ----------
    x : Tensor of shape (n_head, n_samples)
        Log-odds of the head, measured from the k-th largest; -inf takes a class out. Overwritten.
    k : int
    n_classes : int
        Number of classes, in the head or not.
    power_sums : Tensor of shape (n_powers, n_samples), or None
    exact : bool
        Whether errors of 1e-9 are too large.

    Returns
    -------
    log_ratio, shift : Tensors of shape (n_samples,)
    gradient : Tensor of shape (n_head, n_samples)
    coefficients : Tensor of shape (n_powers, n_samples), or None
        The derivative of a class outside the head, divided by its odds, as a polynomial of them.
    """
    n_powers = 0 if power_sums is None else len(power_sums)
    circle = _circle(k, n_classes, exact, n_powers, x)
    shift = _tilt(x, k, power_sums)
    p = torch.sigmoid(x.sub_(shift))
    q = x.neg_().sigmoid_()
    tail = None
    if n_powers:
        degrees = torch.arange(1, n_powers + 1, device=x.device).unsqueeze(1)
        sums = circle.logs @ (power_sums * torch.exp(-degrees * shift))
        tail = torch.exp(torch.complex(*sums))
    # Several arrays of complex numbers are held at once.
    step = _n_rows(x, 4 * len(x) * len(circle.nodes))
    parts = []
    for start in range(0, x.shape[1], step):
        rows = slice(start, start + step)
        parts.append(
            _differentiate(p[:, rows], q[:, rows], None if tail is None else tail[:, rows], circle)
        )
    log_ratio, gradient, u = (torch.cat(part, dim=-1) for part in zip(*parts))
    coefficients = circle.powers[0] @ u.real + circle.powers[1] @ u.imag if n_powers else None
    return log_ratio + shift, shift, gradient, coefficients


def _differentiate(p, q, tail, circle):
    """Return log(f_k / f_(k-1)), its derivatives, and the terms of the Fourier sums.

    `tail` is the part of F of the classes outside the head.
    """
    product = _product(p, q, circle.nodes) * circle.selection
    if tail is not None:
        product = product * tail
    f_k, f_before = (product / circle.nodes).real.sum(0), product.real.sum(0)
    u = product * (1 / f_k - circle.nodes / f_before)
    inverse = 1 / _squared_factors(p, q, circle)
    real = (inverse * u.real.unsqueeze(1)).sum(0)
    turned = (inverse * (u / circle.nodes).real.unsqueeze(1)).sum(0)
    return torch.log(f_k / f_before), p * (q * real + p * turned), u


def _n_powers(largest, total, k, exact):
    """Return how many power sums of the odds outside the head matter, and how many to take.

    On the processor the odds are looked at; elsewhere that would wait for the device. k are exact.
    """
    most = min(k, 48 if exact else 20)
    if total.device.type != "cpu" or most == 1:
        return most, most
    # Rows with NaN stay NaN, whatever is taken.
    known = ~torch.isnan(largest + total)
    largest, total = largest[known].numpy(), total[known].numpy()
    expected = min(k, (2 * k - 1) * float(total.max(initial=0)))
    if expected == 0:
        return 1, 1
    # The tilt multiplies odds by at most 2k - 1, and leaves at most k expected successes.
    ratio = float((largest / np.maximum(total, 1e-30)).max())
    odds = min(1.2 * k * ratio, (2 * k - 1) * float(largest.max()), 0.5)
    needed = math.log((1e-17 if exact else 3e-7) / expected) / math.log(max(odds, 1e-30))
    needed = max(1, min(k, math.ceil(needed)))
    return needed, min(needed, most)


def _odds(rows, reference, temperature, out, shift=None):
    """Write exp((scores - reference) / temperature - shift) to `out`.

    The smallest, which do not count, are raised: subnormal numbers would be slow. Powers of two
    are faster than those of e.
    """
    torch.sub(rows, reference, out=out)
    if shift is None:
        out.mul_(_LOG2E / temperature)
    else:
        torch.add(-_LOG2E * shift, out, alpha=_LOG2E / temperature, out=out)
    return out.clamp_(min=_LOWEST[rows.dtype]).exp2_()


def _power_sums(scores, reference, temperature, left_out, largest, k, is_last):
    """Sum the powers of the odds of the classes that are not `left_out`, row by row.

    Unless the head is the last to be tried, None is returned where it leaves out too large odds.
    """
    n_samples, n_classes = scores.shape
    exact = scores.dtype == torch.float64
    step = _n_rows(scores, n_classes)
    odds, power = torch.empty_like(scores[:step]), torch.empty_like(scores[:step])
    sums = scores.new_zeros(k, n_samples)
    most = 1
    for start in range(0, n_samples, step):
        rows = slice(start, start + step)
        size = min(step, n_samples - start)
        first = _odds(scores[rows], reference[rows], temperature, odds[:size])
        first.scatter_(1, left_out[rows], 0.0)
        total = torch.sum(first, 1, out=sums[0, rows])
        needed, n_powers = _n_powers(largest[rows], total, k, exact)
        if needed > n_powers and not is_last:
            return None
        last = first
        for m in range(1, n_powers):
            if m > 2:
                torch.nn.functional.threshold_(last, _LOWEST_POWER, 0.0)
            last = torch.mul(last, first, out=power[:size])
            torch.sum(last, 1, out=sums[m, rows])
        most = max(most, n_powers)
    return sums[:most]


class _Plan(NamedTuple):
    """How the ratio of one problem is computed.

    Attributes
    ----------
    k : int
        Rank, at most half the number of classes: otherwise scores change sign, since
        sigma_k(e^x) is proportional to sigma_(n-k)(e^-x).
    sign : int
    temperature : float
        Of the scores, with its sign.
    n_heads : tuple of int or None
        Sizes of the head to try in turn; None for all classes.
    dtype : torch.dtype
    direct : bool
        Whether polynomials are multiplied instead of tilted.
    """

    k: int
    sign: int
    temperature: float
    n_heads: tuple
    dtype: torch.dtype
    direct: bool


def _is_direct(scores, k):
    """Return whether polynomials are to be multiplied: on the processor, for small ranks."""
    return scores.device.type == "cpu" and k <= FEW_RANKS and 4 * k < scores.shape[1]


def _plan(scores, k, tau):
    """Return how to compute the ratio for scores of this shape and type.

    A head of twice k keeps the odds outside below 1/2, and k power sums are exact; of many powers
    fewer matter when the head is larger.
    """
    n_classes = scores.shape[1]
    if _is_direct(scores, k):
        return _Plan(k, 1, k * tau, (2 * k + 4,), torch.float64, True)
    sign = -1 if 2 * k > n_classes else 1
    rank = n_classes - k if sign < 0 else k
    kind = scores.device.type
    sizes = (2 * k + 4,) if k < _DOUBLE_FROM else (2 * k + 4, 4 * k)
    if kind != "cpu":
        sizes = sizes[-1:]
    n_heads = tuple(size for size in sizes if sign > 0 and 2 * size < n_classes)
    if len(n_heads) < len(sizes):
        n_heads = (*n_heads, None)
    double = kind == "cpu" or (rank >= _DOUBLE_FROM and kind != "mps")
    dtype = torch.float64 if double else scores.dtype
    return _Plan(rank, sign, sign * k * tau, n_heads, dtype, False)


def _largest_others(scores, target, k, n_head):
    """Return the k-th largest score of the other classes, and the largest of all."""
    values, indices = top_k(scores, max(k, n_head or 0) + 1)
    values = values.clamp(min=LOWEST)
    is_target = indices == target
    before = is_target[:, :k].any(1, keepdim=True)
    reference = torch.where(before, values[:, k : k + 1], values[:, k - 1 : k])
    return reference, values, indices, is_target


def _forward(scores, target, k, tau):
    """Return the log-ratio measured from the reference, and what its gradient needs."""
    plan = _plan(scores, k, tau)
    exact = scores.dtype == torch.float64
    n_others = scores.shape[1] - 1
    for n_head in plan.n_heads:
        reference, values, head, is_target = _largest_others(scores, target, k, n_head)
        if n_head is None:
            values, head, power_sums = scores, None, None
            break
        left_out = torch.cat([head, target], dim=1)
        largest = torch.exp((values[:, -1] - reference[:, 0]) / plan.temperature)
        is_last = n_head == plan.n_heads[-1]
        arguments = scores, reference, plan.temperature, left_out, largest, k, is_last
        power_sums = _power_sums(*arguments)
        if power_sums is not None:
            power_sums = power_sums.to(plan.dtype)
            break
    step = _n_rows(scores, values.shape[1] * (plan.k + 1 if plan.direct else 1))
    parts = []
    for start in range(0, len(scores), step):
        rows = slice(start, start + step)
        x = values[rows].clamp(min=LOWEST).to(plan.dtype)
        x = (x - reference[rows]) / plan.temperature
        if head is None:
            x.scatter_(1, target[rows], -torch.inf)
        else:
            x.masked_fill_(is_target[rows], -torch.inf)
        x = x.T.contiguous()
        sums = None if power_sums is None else power_sums[:, rows]
        if plan.direct:
            arrays = x.numpy(), plan.k, sums.double().numpy()
            ratio, *rest = map(torch.from_numpy, solve_directly(*arrays))
            parts.append([ratio, None, *rest])
        else:
            parts.append(_solve(x, plan.k, n_others, sums, exact))
    ratio, shift, gradient, coefficients = (
        None if part[0] is None else torch.cat(part, dim=-1) for part in zip(*parts)
    )
    rest = (None if x is None else x.to(scores.dtype) for x in (shift, gradient, coefficients))
    shift, gradient, coefficients = rest
    return plan.sign * ratio, reference, shift, head, gradient, coefficients


def _backward(grad, scores, target, temperature, reference, shift, head, gradient, coefficients):
    """Return the gradient in the scores, written once."""
    own = -grad.unsqueeze(1)
    gradient = (grad * gradient).T
    if head is None:
        return gradient.scatter(1, target, own)
    result = torch.empty_like(scores)
    step = _n_rows(scores, scores.shape[1])
    factor = torch.empty_like(scores[:step])
    shift = None if shift is None else shift.unsqueeze(1)
    *others, last = (grad * coefficients).unsqueeze(2)
    for start in range(0, len(scores), step):
        rows = slice(start, start + step)
        odds = _odds(
            scores[rows],
            reference[rows],
            temperature,
            result[rows],
            None if shift is None else shift[rows],
        )
        if others:
            polynomial = torch.mul(odds, last[rows], out=factor[: len(odds)])
            for coefficient in others[:0:-1]:
                torch.add(polynomial, coefficient[rows], out=polynomial).mul_(odds)
            odds.mul_(polynomial.add_(others[0][rows]))
        else:
            odds.mul_(last[rows])
    return result.scatter_(1, head, gradient).scatter_(1, target, own)


def _softplus(ratio):
    """Return log(1 + exp(ratio)); torch's default threshold would cost digits in float64."""
    return torch.nn.functional.softplus(ratio, threshold=40)


def smoothed_hinge_by_products(scores, target, k, tau, margin):
    """Compute what :class:`SmoothedHinge` does through the polynomials themselves.

    Slower, but differentiable any number of times.
    """
    others = torch.arange(scores.shape[1] - 1, device=scores.device).unsqueeze(0)
    others = others + (others >= target)
    own = scores.gather(1, target)
    x = (scores.gather(1, others) - own) / (k * tau)
    sums = log_sums(x.clamp(min=LOWEST), k)
    return tau * _softplus(margin / tau + sums[:, k] - sums[:, k - 1])


class SmoothedHinge(torch.autograd.Function):
    """tau log(1 + weight of the sets without the true class / weight of those with it).

    Its backward pass writes the gradient directly; when that is to be differentiated in turn, it
    goes through the polynomials.
    """

    @staticmethod
    def forward(ctx, scores, target, k, tau, margin):
        ctx.parameters = k, tau, margin
        if _is_direct(scores, k) and scores.shape[1] <= FEW_CLASSES:
            values, gradient = smoothed_hinge_directly(scores, target, k, tau, margin)
            ctx.save_for_backward(scores, target, gradient)
            return values
        ratio, reference, *rest = _forward(scores, target, k, tau)
        lead = (reference.to(ratio.dtype) - scores.gather(1, target))[:, 0]
        ratio = ratio + (margin + lead / k) / tau
        slope = torch.sigmoid(ratio).to(scores.dtype)
        ctx.save_for_backward(scores, target, slope, reference, *rest)
        return (tau * _softplus(ratio)).to(scores.dtype)

    @staticmethod
    def backward(ctx, grad):
        scores, target, *saved = ctx.saved_tensors
        k, tau, margin = ctx.parameters
        if torch.is_grad_enabled():
            values = smoothed_hinge_by_products(scores, target, k, tau, margin)
            result = torch.autograd.grad(values, scores, grad, create_graph=True)[0]
        elif len(saved) == 1:
            result = saved[0] * grad.unsqueeze(1)
        else:
            slope, *saved = saved
            result = _backward(grad * slope / k, scores, target, k * tau, *saved)
        return result, None, None, None, None

r"""Ratios of elementary symmetric polynomials of small degree, on the processor.

The polynomial :math:`\prod_j (1 + o_j X)` of the odds :math:`o_j = e^{x_j}` is multiplied out up
to degree k in double precision. The odds are measured from the k-th largest. The factors of the
largest classes, the head, are divided by :math:`1 + o_j`; since k of them are at least 1/2 there,
no coefficient underflows. The product of the others follows from the power sums of their odds, by
Newton's identities, whose errors stay small as none of these odds exceeds those of the head.
NumPy is called, as its calls cost less than torch's, and there are many on few numbers.
"""

import numpy as np
import torch
from scipy.special import expit

from ._symmetric import LOWEST

#: Largest rank and number of classes for which this pays.
FEW_RANKS, FEW_CLASSES = 20, 512


def _expand(power_sums, k):
    """Return the coefficients of degree 0 to k of a product, given the power sums of its odds."""
    signed = power_sums.copy()
    signed[1::2] *= -1
    coefficients = np.empty((k + 1, power_sums.shape[1]))
    coefficients[0] = 1
    for j in range(1, k + 1):
        m = min(j, len(signed))
        np.einsum("jn,jn->n", signed[:m], coefficients[j - m : j][::-1], out=coefficients[j])
        coefficients[j] /= j
    return coefficients


def solve_directly(x, k, power_sums):
    """Compute the log-ratio of degrees k and k - 1, and its derivatives.

    Parameters
    ----------
    x : ndarray of shape (n_head, n_samples)
        Log-odds of the head, measured from the k-th largest; -inf takes a class out.
    k : int
    power_sums : ndarray of shape (n_powers, n_samples)
        Sums of the powers 1, 2, ... of the odds outside the head.

    Returns
    -------
    log_ratio : ndarray of shape (n_samples,)
    gradient : ndarray of shape (n_head, n_samples)
    coefficients : ndarray of shape (n_powers, n_samples)
        The derivative of a class outside the head, divided by its odds, as a polynomial of them.
    """
    n_head, n_samples = x.shape
    p, q = expit(x), expit(-x)
    # Side 0 multiplies the factors from the first on, side 1 from the last on, and outside.
    products = np.zeros((n_head + 1, 2, k + 1, n_samples))
    products[0, 0, 0] = 1
    products[0, 1] = _expand(power_sums, k)
    p_sides = np.stack([p, p[::-1]], axis=1)[:, :, None]
    q_sides = np.stack([q, q[::-1]], axis=1)[:, :, None]
    for before, after, p_side, q_side in zip(products, products[1:], p_sides, q_sides):
        np.multiply(before, q_side, out=after)
        after[:, 1:] += p_side * before[:, :-1]
    every = products[-1, 1]
    f_k, f_before = every[k], every[k - 1]
    # Coefficients of the product over all others, for each class of the head.
    first, last = products[:-1, 0], products[-2::-1, 1]
    gradient = np.einsum("hjn,hjn->hn", first[:, :k], last[:, k - 1 :: -1]) / f_k
    coefficients = every[k - 1 :: -1] / f_k
    if k > 1:
        before = np.einsum("hjn,hjn->hn", first[:, : k - 1], last[:, k - 2 :: -1])
        gradient -= before / f_before
        coefficients[: k - 1] -= every[k - 2 :: -1] / f_before
    gradient *= p
    coefficients[1::2] *= -1
    return np.log(f_k / f_before), gradient, coefficients[: len(power_sums)]


@np.errstate(invalid="ignore", divide="ignore", over="ignore")
def smoothed_hinge_directly(scores, target, k, tau, margin):
    """Return the smoothed hinge of each sample and its gradient in the scores.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
    target : LongTensor of shape (n_samples, 1)
    k : int
    tau, margin : float

    Returns
    -------
    values : Tensor of shape (n_samples,)
    gradient : Tensor of shape (n_samples, n_classes)
    """
    top, head = torch.topk(scores.detach(), k + 1, dim=1)
    top, head = np.maximum(top.numpy(), LOWEST), head.numpy()
    s, target = scores.detach().numpy(), target.numpy()
    rows = np.arange(len(s))[:, None]
    is_target = head == target
    # The k-th largest score of the other classes.
    reference = np.where(is_target[:, :k].any(1, keepdims=True), top[:, k:], top[:, k - 1 : k])
    odds = np.subtract(s, reference, dtype=np.float64)
    odds /= k * tau
    x = np.subtract(top, reference, dtype=np.float64) / (k * tau)
    x[is_target] = -np.inf
    inside = np.concatenate([head, target], axis=1)
    odds[rows, inside] = 0
    np.exp(odds, out=odds)
    odds[rows, inside] = 0
    power_sums = np.empty((k, len(s)))
    odds.sum(1, out=power_sums[0])
    power = odds
    for m in range(1, k):
        np.einsum("ij,ij->i", power, odds, out=power_sums[m])
        power = power * odds if m < k - 1 else None
    log_ratio, gradient, coefficients = solve_directly(np.ascontiguousarray(x.T), k, power_sums)
    # In double precision, since they are divided by tau.
    lead = reference[:, 0].astype(np.float64) - s[rows, target][:, 0]
    z = log_ratio + (margin + lead / k) / tau
    slope = expit(z) / k
    coefficients *= slope
    result = odds * coefficients[-1][:, None]
    for coefficient in coefficients[-2::-1]:
        result += coefficient[:, None]
        result *= odds
    result[rows, head] = (gradient * slope).T
    result[rows, target] = -slope[:, None]
    values, result = tau * np.logaddexp(0, z), result.astype(s.dtype, copy=False)
    return torch.from_numpy(values.astype(s.dtype, copy=False)), torch.from_numpy(result)

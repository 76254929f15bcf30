r"""The smoothed top-k hinge loss and the polynomials behind it, by their definitions.

Everything is an operation of torch on any floating-point type and device, and differentiable any
number of times. Ratios of the elementary symmetric polynomials :math:`\sigma_i` are those of
probabilities: of independent Bernoulli variables with odds :math:`o_j = e^{x_j - \nu}`, i succeed
with a probability proportional to :math:`\sigma_i(e^x) e^{-i \nu}`. The tilt :math:`\nu` is set so
that about k - 1/2 successes are expected; then k - 1 and k successes are never unlikely, whatever
the scores. The largest classes, the head, enter the law one by one; of the others, the tail,
whose odds are below 1/2, the sums of their powers suffice:

.. math:: \sum_j \log(1 + o_j X) = \sum_{m \geq 1} \frac{(-1)^{m - 1}}{m} X^m \sum_j o_j^m .
"""

import itertools
import math

import torch
from torch.nn.functional import logsigmoid, pad, softplus

from .._backends import OwnLoss
from .._checks import own_scores
from .._precision import at_least_float32, log_sum_exp, widest

#: Halvings that bring the tilt within 0.01, which is near enough.
_HALVINGS = 12
#: Stands for the logarithm of zero where its gradient would be NaN.
_LOWEST = -1e30


def smoothed_hinge(scores, target, k, tau, margin):
    r"""Return tau log(1 + weight of the sets without the true class / weight of those with it).

    With x the scores over k tau, and :math:`\sigma` of the classes but the true one, y, it is
    :math:`\tau \log(1 + e^{m / \tau - x_y} \sigma_k(e^x) / \sigma_{k - 1}(e^x))`.

    Scores are of shape (n_samples, n_classes), and k in [1, n_classes - 1]. A loss is NaN where a
    score is NaN or infinity; -inf stands for a score far below all others.
    """
    n_classes = scores.shape[1]
    # sigma_k / sigma_(k-1) of e^x is sigma_(r-1) / sigma_r of e^-x, r = n_classes - k.
    sign, rank = (-1, n_classes - k) if 2 * k > n_classes else (1, k)
    own = at_least_float32(own_scores(scores, target))
    others = sign * _finite(scores).scatter(1, target.unsqueeze(1), -sign * torch.inf)
    before, at, tilt, _ = law(others, rank, k * tau, sign * own)
    z = margin / tau + sign * ((at / before).log() + tilt) + 0 * own.clamp(min=0)[:, 0]
    return (tau * softplus(z, threshold=40)).to(scores.dtype)


class SmoothedHinge(OwnLoss):
    """The smoothed hinge where no kernel fits."""

    reference = staticmethod(smoothed_hinge)


def marginals(scores, k):
    r"""Return the derivatives of :math:`\log \sigma_k(e^s)` by the scores, a matrix."""

    def log_sum(scores):
        _, at, tilt, log_total = law(scores, k)
        return (at.log() + k * tilt + log_total).sum()

    return torch.func.grad(log_sum)(_finite(scores))


def log_sums(scores, k):
    r"""Return :math:`\log \sigma_i(e^s)`, i = 0, ..., k, by products of polynomials in pairs."""
    # In sums of many, the lowest number would not stay finite.
    scores = _finite(scores).clamp(_LOWEST, -_LOWEST)
    # sigma_i is homogeneous: sigma_i(e^c e^s) = e^(ic) sigma_i(e^s).
    centre = scores.detach().amax(-1, keepdim=True)
    n_classes = scores.shape[-1]
    factors = pad(scores - centre, (0, _power_of_two(n_classes) - n_classes), value=_LOWEST)
    logs = torch.stack([torch.zeros_like(factors), factors], dim=-1)
    while logs.shape[-2] > 1:
        logs = _log_products(*logs.chunk(2, dim=-2), k)
    sums = logs[..., 0, :] + centre * torch.arange(k + 1, device=centre.device)
    # Where a class of weight zero is in all sets.
    return sums.masked_fill(sums < _LOWEST / 2, -torch.inf)


def _log_products(a, b, degree):
    """Multiply polynomials given by the logarithms of as many coefficients, up to `degree`."""
    n = a.shape[-1]
    # Copies of 2n entries in rows of 2n - 1: each row is shifted by one more.
    shifted = pad(b, (0, n), value=-torch.inf).tile(n)[..., :-n].unflatten(-1, (n, 2 * n - 1))
    terms = (a.unsqueeze(-1) + shifted)[..., : degree + 1]
    return log_sum_exp(terms, -2)


def _power_of_two(n):
    """Return the first power of two from n on."""
    return 1 << (int(n) - 1).bit_length()


def _finite(scores):
    """Return the scores with the lowest number for -inf, and NaN for infinity."""
    return at_least_float32(scores).nan_to_num(torch.nan, torch.nan)


def law(scores, k, temperature=1.0, origin=0.0):
    r"""Return the probabilities of k - 1 and of k successes, the tilt, and the normalisation.

    Each is a number for each row, in double precision where the device has it. A score of -inf
    takes a class out; k have to be left. With x the scores less the origin, a number or one for
    each row, over the temperature, i successes have probability
    :math:`\sigma_i(e^x) e^{-i \nu - \mathrm{log\_total}}`.
    """
    # A power of two that leaves the tail odds of at most `ratio`.
    n_head = _power_of_two(3 * k + 1)
    ratio = k / (n_head - k)
    head, places = scores.topk(min(n_head, scores.shape[1]), dim=1)
    reference = head[:, k - 1 : k].detach()
    odds = ((scores - reference) / temperature).scatter(1, places, -torch.inf).exp()
    n_powers = math.ceil(math.log(torch.finfo(odds.dtype).eps / 16) / math.log(ratio))
    n_powers = min(k, n_powers) if n_head < scores.shape[1] else 1
    powers = itertools.accumulate([odds] * n_powers, torch.mul)
    sums = torch.stack([power.sum(1) for power in powers], dim=1)
    exact = widest(scores)
    head, reference = head.to(exact), reference.to(exact)
    head, sums = (head - reference) / temperature, sums.to(exact)
    tilt = _tilt(head.detach(), sums[:, :1].detach(), k)
    head = head - tilt
    degrees = torch.arange(1, n_powers + 1, dtype=exact, device=sums.device)
    logs = -((-(-tilt).exp()) ** degrees) / degrees * sums
    first = second = head.new_ones(0, k + 1)
    if scores.shape[0]:  # Fourier transforms of no rows are errors of MKL.
        first, second = _head_law(head, k).flip(1), _tail_law(logs, k)
    before, at = (first[:, 1:] * second[:, :-1]).sum(1), (first * second).sum(1)
    tilt = tilt + (reference - origin) / temperature
    return before, at, tilt[:, 0], softplus(head, threshold=40).sum(1) + logs.sum(1)


def _tilt(head, tail, k):
    """Return where about k - 1/2 successes are expected, from log-odds and a sum of odds."""
    below = (head.clamp(max=0).exp() * (head <= 0)).sum(1, keepdim=True)
    low, high = torch.full_like(tail, -math.log(2 * k)), (2 * (below + tail)).log()
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        mean = (head - middle).sigmoid().sum(1, keepdim=True) + tail * (-middle).exp()
        low, high = low.where(mean < k - 0.5, middle), middle.where(mean < k - 0.5, high)
    return middle


def _head_law(head, k):
    """Return the probabilities of 0 to k successes, from log-odds, by products in pairs."""
    n = head.shape[1]
    head = pad(head, (0, _power_of_two(n) - n), value=-torch.inf)
    # The derivative of a sigmoid itself would be zero where it rounds to one.
    laws = logsigmoid(torch.stack([-head, head], dim=2)).exp()
    while laws.shape[1] > 1:
        size = 2 * laws.shape[2]
        first, second = torch.fft.rfft(laws, size).chunk(2, dim=1)
        laws = torch.fft.irfft(first * second, size)[:, :, : k + 1]
    return laws[:, 0]


def _tail_law(logs, k):
    """Return coefficients 0 to k of exp of a polynomial without constant, over their sum."""
    logs = torch.cat([-logs.sum(1, keepdim=True), logs], dim=1)
    # More nodes than successes, but for a probability below rounding.
    n = 4 * k + 64
    return torch.fft.irfft(torch.fft.rfft(logs, n).exp(), n)[:, : k + 1]

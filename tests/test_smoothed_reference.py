"""Laws of the definitions: the smoothed hinge, symmetric polynomials, inclusion probabilities."""

import mpmath
import numpy as np
import pytest
import reference as enumeration
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.forward_ad import dual_level, make_dual, unpack_dual

from sksetvalued.operators import log_elementary_symmetric_polynomials, top_k_marginals
from sksetvalued.operators.smoothed import smoothed_hinge as by_whoever_computes
from sksetvalued.operators.smoothed.reference import smoothed_hinge

OPERATORS = [log_elementary_symmetric_polynomials, top_k_marginals]


def draw(*shape, seed=0, scale=1.0, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    return torch.tensor(scale * rng.standard_normal(shape), dtype=dtype)


def exact_hinge(scores, target, k, tau, margin):
    """Multiply the polynomial out with 60 digits."""
    with mpmath.workdps(60):
        x = [mpmath.mpf(s) / (k * mpmath.mpf(tau)) for s in scores]
        own = x.pop(target)
        sums = [mpmath.mpf(1)] + [mpmath.mpf(0)] * k
        for odds in map(mpmath.exp, x):
            for i in range(k, 0, -1):
                sums[i] += odds * sums[i - 1]
        ratio = mpmath.log(sums[k] / sums[k - 1])
        return float(tau * mpmath.log1p(mpmath.exp(margin / mpmath.mpf(tau) - own + ratio)))


SHAPES = [(2, 1), (5, 4), (30, 3), (30, 12), (60, 1), (100, 5), (100, 50), (90, 84), (200, 20)]


@pytest.mark.parametrize(("n_classes", "k"), SHAPES)
@pytest.mark.parametrize("tau", [1e-3, 0.1, 1.0, 1e3])
def test_hinge_has_all_digits(n_classes, k, tau):
    """Relative to the larger of the loss and tau; some scores are tied, some are far off."""
    scores = torch.cat([draw(1, n_classes, scale=scale) for scale in (1e-5, 1.0, 1e4)])
    scores = torch.cat([scores, scores[1:2].round(decimals=1), 1e4 + scores[1:2]])
    target = scores.argsort(1)[:, n_classes // 3]
    values = smoothed_hinge(scores, target, k, tau, 1.0)
    for value, s, y in zip(values.tolist(), scores.tolist(), target.tolist()):
        exact = exact_hinge(s, y, k, tau, 1.0)
        assert abs(value - exact) <= 1e-12 * max(exact, tau)


@pytest.mark.parametrize(("n_classes", "k"), [(2000, 5), (2000, 300), (400, 390)])
def test_gradient_of_many_classes_is_that_of_the_marginals(n_classes, k):
    """Of the slope: the derivative of log sigma_k less that of log sigma_(k-1)."""
    scores = draw(3, n_classes, scale=4.0).requires_grad_()
    target, tau = torch.tensor([0, 1, 2]), 0.7
    value = smoothed_hinge(scores, target, k, tau, 0.5)
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    x = scores.detach() / (k * tau)
    others = x.scatter(1, target[:, None], -torch.inf)
    fewer = top_k_marginals(others, k - 1) if k > 1 else 0
    expected = top_k_marginals(others, k) - fewer
    expected[range(3), target] = -1
    slope = -torch.expm1(-value.detach() / tau)[:, None] / k
    torch.testing.assert_close(gradient, slope * expected, rtol=1e-9, atol=1e-13)


def test_single_precision_is_near_double():
    scores = torch.cat([draw(3, 3000, scale=scale) for scale in (1e-3, 1.0, 100.0)])
    target = scores.argsort(1)[:, 500]
    for k in (1, 5, 50):
        for tau in (1e-2, 1.0):
            results = []
            for x in (scores.float().double(), scores.float()):
                x.requires_grad_()
                value = smoothed_hinge(x, target, k, tau, 1.0)
                results.append((value.detach(), *torch.autograd.grad(value.sum(), x)))
            (value, gradient), (single, single_gradient) = results
            assert single.dtype == torch.float32
            assert ((single - value).abs() <= 2e-7 * value.clamp(min=tau)).all()
            error = (single_gradient - gradient).abs().amax(1)
            assert (error <= 2e-7 * gradient.abs().amax(1)).all()


@pytest.mark.parametrize("n_classes", range(1, 9))
def test_operators_equal_the_enumerated_subsets(n_classes):
    scores = draw(4, n_classes, seed=n_classes, scale=2.0)
    for k in range(1, n_classes + 1):
        for operator, formula in zip(
            OPERATORS, (enumeration.log_symmetric_polynomials, enumeration.top_k_marginals)
        ):
            expected = np.array([formula(s, k) for s in scores.numpy()])
            np.testing.assert_allclose(operator(scores, k).numpy(), expected, rtol=1e-12)


def test_polynomials_are_those_of_numpy_and_homogeneous():
    """prod_j (1 + x_j X); sigma_i(e^c e^s) = e^(ic) sigma_i(e^s), also far from zero."""
    scores = draw(3, 12)
    log_sums = log_elementary_symmetric_polynomials(scores, 5)
    expected = [np.abs(np.poly(-np.exp(s))[:6]) for s in scores.numpy()]
    np.testing.assert_allclose(log_sums.exp().numpy(), expected, rtol=1e-12)
    shifted = log_elementary_symmetric_polynomials(scores + 3000.0, 5)
    torch.testing.assert_close(shifted, log_sums + 3000.0 * torch.arange(6), rtol=1e-12, atol=0)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_rows_with_infinity_or_nan_are_nan(operator, value):
    scores = torch.tensor([[value, 0.0, -1.0], [2.0, 0.0, -1.0]])
    rows = operator(scores, 2).isfinite().all(1)
    assert rows.tolist() == [False, True]
    assert operator(scores, 2)[0].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 20, 500, 999, 1000])
@pytest.mark.parametrize("scale", [1e-4, 10.0, 1e4])
def test_marginals_are_probabilities_that_sum_to_k(k, dtype, scale):
    scores = draw(2, 1000, scale=scale, dtype=dtype)
    marginals = top_k_marginals(scores, k)
    assert marginals.dtype == dtype
    assert 0 <= marginals.min() <= marginals.max() <= 1
    total = marginals.double().sum(1)
    tolerance = 1e-7 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(total, torch.full_like(total, k), rtol=tolerance, atol=0)
    # Sets of k classes leave out sets of all but k, with the inverse weights.
    if k < 1000:
        inverse = 1 - top_k_marginals(-scores.double(), 1000 - k)
        torch.testing.assert_close(marginals.double(), inverse, rtol=0, atol=tolerance)


def test_small_marginals_keep_their_digits():
    """The odds of a class are its weight times the ratio of the others' polynomials."""
    scores = torch.tensor([[3.0, 2.0, 1.0, 0.0, -60.0, -300.0]], dtype=torch.float64)
    small = top_k_marginals(scores, 2)[0, 4:]
    log_sums = log_elementary_symmetric_polynomials(scores[:, :4], 2)[0]
    expected = (scores[0, 4:] + log_sums[1] - log_sums[2]).exp()
    torch.testing.assert_close(small, expected, rtol=1e-12, atol=0)


def test_marginals_of_one_class_are_the_softmax():
    scores = draw(5, 9)
    torch.testing.assert_close(top_k_marginals(scores, 1), scores.softmax(1))


# Derivatives, transforms, types, devices.


def functions():
    """Return functions of scores of shape (3, 9), by name."""
    target = torch.tensor([0, 4, 8])
    named = {
        f"hinge {k}": lambda s, k=k: smoothed_hinge(s, target.to(s.device)[: len(s)], k, 0.3, 1.0)
        for k in (1, 2, 5, 8)
    }
    named |= {f"marginals {k}": lambda s, k=k: top_k_marginals(s, k) for k in (1, 4, 8)}
    named["polynomials"] = lambda s: log_elementary_symmetric_polynomials(s, 4)
    return named


@pytest.fixture(params=functions())
def function(request):
    return functions()[request.param]


def test_derivatives_of_both_orders_are_those_of_finite_differences(function):
    """Those of the second order for one row; transforms of more rows have the Hessian."""
    scores = draw(2, 9).requires_grad_()
    assert gradcheck(function, (scores,))
    assert gradgradcheck(function, (scores[:1].detach().requires_grad_(),))


@pytest.mark.filterwarnings("error:There is a performance drop")
def test_transforms_agree_with_autograd(function):
    scores, tangent = draw(3, 9), draw(3, 9, seed=1)
    jacobian = torch.autograd.functional.jacobian(function, scores)
    torch.testing.assert_close(torch.func.jacrev(function)(scores), jacobian)
    along = (jacobian * tangent).sum((-2, -1))
    assert along.abs().amax() > 1e-3
    torch.testing.assert_close(torch.func.jvp(function, (scores,), (tangent,))[1], along)
    with dual_level():
        dual = unpack_dual(function(make_dual(scores, tangent))).tangent
        torch.testing.assert_close(dual, along)
    both = torch.stack([scores, tangent])
    expected = torch.stack([function(scores), function(tangent)])
    torch.testing.assert_close(torch.vmap(function)(both), expected)

    def square(s):
        return function(s).square().sum()

    hessian = torch.autograd.functional.hessian(square, scores)
    torch.testing.assert_close(torch.func.hessian(square)(scores), hessian)


def test_any_type_and_device(function):
    scores = draw(3, 9)
    half = scores.bfloat16()
    assert torch.equal(function(half), function(half.float()).bfloat16())
    assert function(scores.to("meta")).shape == function(scores).shape
    assert function(scores[:0]).shape == (0, *function(scores).shape[1:])


def test_modes_and_leading_dimensions():
    scores = draw(2, 3, 9)
    for operator in OPERATORS:
        expected = operator(scores.reshape(6, 9), 4)
        assert torch.equal(operator(scores, 4).reshape(expected.shape), expected)
        assert torch.equal(operator(scores[0, 0], 4), expected[0])
        with torch.inference_mode():
            inferred = scores * 1
            assert torch.equal(operator(inferred, 4), operator(scores, 4))
        with torch.no_grad():
            assert not operator(scores.clone().requires_grad_(), 4).requires_grad


@pytest.mark.parametrize("operator", OPERATORS)
def test_bad_arguments_are_named(operator):
    with pytest.raises(ValueError, match=r"k must lie in \[1, 5\]"):
        operator(draw(2, 5), 6)
    with pytest.raises(TypeError, match="k must be an integer"):
        operator(draw(2, 5), 2.0)
    with pytest.raises(ValueError, match="floating-point"):
        operator(torch.ones(2, 5, dtype=torch.long), 2)


# Masked classes, NaN and infinity.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_masked_class_is_one_far_below(dtype):
    masked = torch.tensor([[2, 0.5, 0, -torch.inf, -torch.inf]], dtype=dtype, requires_grad=True)
    rest = masked.detach()[:, :3].requires_grad_()
    for k in (1, 2, 3):
        expected = torch.nn.functional.pad(top_k_marginals(rest, k), (0, 2))
        value = top_k_marginals(masked, k)
        torch.testing.assert_close(value, expected)
        log_sums = log_elementary_symmetric_polynomials(masked, k)
        torch.testing.assert_close(log_sums, log_elementary_symmetric_polynomials(rest, k))
        (gradient,) = torch.autograd.grad(log_sums[0, k], masked)
        torch.testing.assert_close(gradient, value)
        second = [
            torch.autograd.grad(p.square().sum(), s)[0]
            for p, s in ((value, masked), (top_k_marginals(rest, k), rest))
        ]
        torch.testing.assert_close(second[0][:, :3], second[1])
        assert (second[0][:, 3:] == 0).all()
    # Where some masked class is in all sets, each is as likely as the other.
    expected = torch.tensor([[1, 1, 1, 0.5, 0.5]], dtype=dtype)
    torch.testing.assert_close(top_k_marginals(masked, 4), expected)
    log_sums = log_elementary_symmetric_polynomials(masked, 4)
    assert log_sums[0, 4] == -torch.inf
    assert torch.isfinite(log_sums[0, :4]).all()


def test_many_classes_may_be_masked():
    """Also where the sums of their stand-ins would not be finite."""
    scores = draw(1, 200, dtype=torch.float32)
    scores[0, 7:] = -torch.inf
    expected = log_elementary_symmetric_polynomials(scores[:, :7], 5)
    torch.testing.assert_close(log_elementary_symmetric_polynomials(scores, 5), expected)


def test_a_masked_true_class_costs_without_bound():
    scores = draw(2, 50).requires_grad_()
    with torch.no_grad():
        scores[0, 7] = -torch.inf
        scores[1] = -torch.inf
    for k in (3, 40):
        value = smoothed_hinge(scores, torch.tensor([7, 0]), k, 0.5, 1.0)
        assert (value == torch.inf).all()
        (gradient,) = torch.autograd.grad(value.sum(), scores)
        assert gradient.isfinite().all()
        torch.testing.assert_close(gradient[0, 7], torch.tensor(-1 / k, dtype=torch.float64))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nan_and_infinity_make_a_loss_nan_wherever_they_are(bad):
    target = torch.full((10,), 4)
    for k in (1, 4, 8):
        scores = draw(10, 9)
        scores.diagonal()[:] = bad
        value = smoothed_hinge(scores.requires_grad_(), target, k, 0.5, 1.0)
        assert value.isnan().tolist() == 9 * [True] + [False]
        (gradient,) = torch.autograd.grad(value.sum(), scores)
        assert gradient.isnan().all(1).tolist() == 9 * [True] + [False]


def test_rows_in_parts_are_as_one_by_one():
    """More entries than are treated together; in double precision, which no kernel computes."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(280, 1000, generator=generator, dtype=torch.float64).requires_grad_()
    target = torch.arange(280)
    weights = torch.rand(280, generator=generator, dtype=torch.float64)
    losses = by_whoever_computes(scores, target, 3, 0.5, 1.0)
    (gradient,) = torch.autograd.grad(losses, scores, weights)
    for rows in (slice(0, 2), slice(130, 133), slice(278, 280)):
        part = scores[rows].detach().requires_grad_()
        alone = smoothed_hinge(part, target[rows], 3, 0.5, 1.0)
        torch.testing.assert_close(losses[rows], alone)
        (expected,) = torch.autograd.grad(alone, part, weights[rows])
        torch.testing.assert_close(gradient[rows], expected)

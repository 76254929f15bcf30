"""Laws of the symmetric polynomials and of the inclusion probabilities."""

import numpy as np
import pytest
import reference
import torch
from torch.autograd import gradcheck, gradgradcheck

from sksetvalued.operators import log_elementary_symmetric_polynomials, top_k_marginals
from sksetvalued.operators._tilting import (
    SmoothedHinge,
    _circle,
    _squared_factors,
    n_nodes,
    smoothed_hinge_by_products,
)


def draw(*shape, seed=0, scale=1.0, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    return torch.tensor(scale * rng.standard_normal(shape), dtype=dtype)


@pytest.mark.parametrize("n_classes", range(1, 9))
def test_operators_equal_the_enumerated_subsets(n_classes):
    scores = draw(4, n_classes, seed=n_classes, scale=2.0)
    for k in range(1, n_classes + 1):
        for operator, formula in (
            (log_elementary_symmetric_polynomials, reference.log_symmetric_polynomials),
            (top_k_marginals, reference.top_k_marginals),
        ):
            expected = np.array([formula(s, k) for s in scores.numpy()])
            value = operator(scores, k)
            np.testing.assert_allclose(value.numpy(), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("operator", [log_elementary_symmetric_polynomials, top_k_marginals])
@pytest.mark.parametrize(("n_classes", "k"), [(3, 1), (4, 4), (6, 3), (7, 6)])
def test_operators_are_twice_differentiable(operator, n_classes, k):
    scores = (draw(2, n_classes).requires_grad_(),)
    assert gradcheck(lambda s: operator(s, k), scores)
    assert gradgradcheck(lambda s: operator(s, k), scores)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_marginals_are_probabilities_that_sum_to_k(scale, dtype):
    scores = draw(5, 40, scale=scale, dtype=dtype)
    for k in (1, 7, 39, 40):
        marginals = top_k_marginals(scores, k)
        assert marginals.dtype == dtype
        assert (marginals >= 0).all()
        assert (marginals <= 1).all()
        torch.testing.assert_close(
            marginals.sum(1), torch.full((5,), k, dtype=dtype), rtol=1e-5, atol=0
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 20, 500, 999, 1000])
def test_marginals_of_many_classes_are_probabilities_that_sum_to_k(k, dtype):
    scores = draw(2, 1000, scale=10.0, dtype=dtype)
    marginals = top_k_marginals(scores, k)
    assert 0 <= marginals.min() <= marginals.max() <= 1
    torch.testing.assert_close(
        marginals.double().sum(1), torch.full((2,), k, dtype=torch.float64), rtol=1e-7, atol=0
    )
    # Sets of k classes leave out sets of all but k, with the inverse weights.
    if k < 1000:
        inverse = 1 - top_k_marginals(-scores.double(), 1000 - k)
        torch.testing.assert_close(marginals.double(), inverse, rtol=0, atol=1e-7)


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


def test_marginals_of_one_class_are_the_softmax():
    scores = draw(5, 9)
    torch.testing.assert_close(top_k_marginals(scores, 1), scores.softmax(1))


def test_polynomials_are_those_of_numpy():
    """prod_j (1 + x_j X), multiplied out by numpy.poly."""
    x = np.array([0.5, 2.0, 3.0, 0.1, 7.0])
    value = log_elementary_symmetric_polynomials(torch.tensor(x).log(), 5).exp()
    np.testing.assert_allclose(value.numpy(), np.abs(np.poly(-x)), rtol=1e-12)


def test_no_class_and_shift_matter():
    """Homogeneity: sigma_i(e^c e^s) = e^(ic) sigma_i(e^s), also far from zero."""
    scores = draw(3, 12)
    log_sums = log_elementary_symmetric_polynomials(scores, 5)
    shifted = log_elementary_symmetric_polynomials(scores + 3000.0, 5)
    torch.testing.assert_close(shifted, log_sums + 3000.0 * torch.arange(6), rtol=1e-12, atol=0)
    order = torch.randperm(12)
    torch.testing.assert_close(log_elementary_symmetric_polynomials(scores[:, order], 5), log_sums)


@pytest.mark.parametrize("operator", [log_elementary_symmetric_polynomials, top_k_marginals])
def test_bad_arguments_are_named(operator):
    with pytest.raises(ValueError, match=r"k must lie in \[1, 5\]"):
        operator(draw(2, 5), 6)
    with pytest.raises(TypeError, match="k must be an integer"):
        operator(draw(2, 5), 2.0)
    with pytest.raises(ValueError, match="floating-point"):
        operator(torch.ones(2, 5, dtype=torch.long), 2)


# The fast form of the smoothed hinge, against the polynomials.

SHAPES = [(50, 1), (100, 5), (300, 5), (300, 12), (300, 20), (300, 150), (300, 290), (300, 299)]
SHAPES += [(700, 20), (1500, 9), (1500, 25)]


def awkward_scores(n_classes):
    """Rows that are normal, flat, tied, heavy-tailed, and with k + 1 confident classes."""
    rng = np.random.default_rng(n_classes)
    rows = rng.standard_normal((5, n_classes))
    rows[1] *= 1e-4
    rows[2] = rows[2].round()
    rows[3] = rng.standard_cauchy(n_classes)
    rows[4, : n_classes // 7] += 20
    return torch.tensor(rows)


@pytest.mark.parametrize("tau", [1e-2, 0.1, 1.0, 100.0])
@pytest.mark.parametrize(("n_classes", "k"), SHAPES)
def test_tilting_agrees_with_the_polynomials(n_classes, k, tau):
    exact = awkward_scores(n_classes).requires_grad_()
    target = exact.detach().argsort(1)[:, [n_classes // 2]]
    target[0] = exact[0].argmax()
    values = smoothed_hinge_by_products(exact, target, k, tau, 1.0)
    (gradient,) = torch.autograd.grad(values.sum(), exact)
    largest = gradient.abs().amax(1) + 1e-30
    for dtype, tolerance in ((torch.float64, 1e-8), (torch.float32, 1e-6)):
        scores = exact.detach().to(dtype).requires_grad_()
        if dtype == torch.float32:
            exact32 = scores.detach().double().requires_grad_()
            values = smoothed_hinge_by_products(exact32, target, k, tau, 1.0)
            (gradient,) = torch.autograd.grad(values.sum(), exact32)
        fast = SmoothedHinge.apply(scores, target, k, tau, 1.0)
        (fast_gradient,) = torch.autograd.grad(fast.sum(), scores)
        torch.testing.assert_close(fast.double(), values, rtol=tolerance, atol=tolerance)
        assert ((fast_gradient - gradient).abs().amax(1) <= tolerance * largest).all()


@pytest.mark.parametrize(("k", "n_classes"), [(1, 50), (5, 99), (20, 40), (50, 1000), (39, 39)])
def test_nodes_tell_numbers_of_successes_apart(k, n_classes):
    """Probabilities N away from k and k - 1 are below the tolerance, for the widest laws."""
    n = n_nodes(k, n_classes, np.log(1e-9))
    assert n % 2 == 1
    p = np.full(n_classes, (k - 0.5) / n_classes)
    law = reference.exceedances(p[None])[0]
    assert law[k - 1 + n :].sum() < 1e-9
    assert law[: max(0, k - n + 1)].sum() < 1e-9


@pytest.mark.parametrize("k", [1, 9, 60])
def test_factors_keep_their_digits_near_minus_one(k):
    """|q + p w|^2 in single precision, where 1 - p q |1 - w|^2 would cancel."""
    p = torch.linspace(0.4, 0.6, 201, dtype=torch.float64).float()[:, None]
    q = 1 - p
    circle = _circle(k, 200, False, 0, p)
    (w,) = _circle(k, 200, False, 0, p.double())[:1]
    exact = (q.double() + p.double() * w.unsqueeze(1)).abs().square()
    assert exact.min() < 0.05
    error = (_squared_factors(p, q, circle) - exact).abs() / exact
    assert error.max() <= 5e-7

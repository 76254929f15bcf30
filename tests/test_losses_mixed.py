"""Laws of the Laplace memberships, and of the losses by soft probabilities to be in a set."""

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch.autograd import gradcheck, gradgradcheck

from sksetvalued.losses import LapSumLoss, MixedTopKLoss, SmoothedTopKHingeLoss
from sksetvalued.operators import laplace, laplace_top_k, top_k_marginals
from sksetvalued.operators.smoothed import reference


def draw(n_samples, n_classes, seed=0, scale=1.0, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    scores = scale * rng.standard_normal((n_samples, n_classes))
    return torch.tensor(scores, dtype=dtype), torch.tensor(rng.integers(n_classes, size=n_samples))


def by_bisection(s, k, tau):
    """Return the memberships of one row, its scores measured from the k-th largest."""
    s = s - np.sort(s)[::-1][int(np.ceil(k)) - 1]

    def memberships(b):
        u = (s - b) / tau
        half = np.exp(-np.abs(u)) / 2
        return np.where(u > 0, 1 - half, half)

    low, high = s.min() - 50 * tau, s.max() + 50 * tau
    return memberships(brentq(lambda b: memberships(b).sum() - k, low, high, xtol=1e-16))


# Laplace memberships.


@pytest.mark.parametrize("tau", [1e-3, 0.1, 1.0, 1e3])
@pytest.mark.parametrize(
    ("n_classes", "k"), [(2, 1), (5, 0.3), (5, 4.9), (40, 2.5), (1000, 5), (1000, 990), (10**5, 5)]
)
def test_memberships_are_those_of_bisection(n_classes, k, tau):
    """For normal, tied, and far-off rows."""
    scores, _ = draw(4, n_classes)
    scores[1] = scores[1].round(decimals=1)
    scores[2] += 1e4
    scores[3] = 0.7
    p = laplace_top_k(scores, k, tau)
    assert (p.sum(1) - k).abs().max() <= 1e-13 * n_classes
    for value, s in zip(p.numpy(), scores.numpy()):
        np.testing.assert_allclose(value, by_bisection(s, k, tau), rtol=0, atol=1e-10)


def test_cold_memberships_are_the_top_k():
    scores, _ = draw(20, 9)
    top = torch.zeros_like(scores).scatter(1, scores.topk(3).indices, 1.0)
    for tau in (1e-6, 1e-30):
        torch.testing.assert_close(laplace_top_k(scores, 3, tau), top, rtol=0, atol=1e-8)
    # Of two equal scores at the end, each is half in.
    tied = torch.tensor([[5.0, 2.0, 2.0, -9.0]])
    expected = torch.tensor([[1.0, 0.5, 0.5, 0.0]])
    torch.testing.assert_close(laplace_top_k(tied, 2, 1e-3), expected)


def test_memberships_of_masked_classes_are_zero():
    scores, _ = draw(3, 6)
    masked = torch.nn.functional.pad(scores, (0, 3), value=-torch.inf).requires_grad_()
    p = laplace_top_k(masked, 2)
    torch.testing.assert_close(p, torch.nn.functional.pad(laplace_top_k(scores, 2), (0, 3)))
    (gradient,) = torch.autograd.grad(p.square().sum(), masked)
    assert gradient.isfinite().all()
    assert not gradient[:, 6:].any()
    for bad in (torch.nan, torch.inf):
        scores[1, 4] = bad
        assert laplace_top_k(scores, 2).isnan().any(1).tolist() == [False, True, False]


FUNCTIONS = {
    "memberships": lambda s: laplace_top_k(s, 2.5, 0.3),
    "lapsum": lambda s: LapSumLoss(2, 0.3, "none")(s, torch.tensor([0, 1, 2])),
    "mixed": lambda s: MixedTopKLoss({1: 1, 3: 2}, tau=0.7, reduction="none")(
        s, torch.tensor([0, 1, 2])
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_finite_differences_and_of_transforms(name, monkeypatch):
    """Graphs hold each halving on the way to the tilt, of which any gives the same loss."""
    monkeypatch.setattr(reference, "_HALVINGS", 4)
    function, (scores, _), (tangent, _) = FUNCTIONS[name], draw(3, 5), draw(3, 5, seed=1)
    assert gradcheck(function, (scores.requires_grad_(),))
    assert gradgradcheck(function, (scores,))
    scores = scores.detach()
    jacobian = torch.autograd.functional.jacobian(function, scores)
    torch.testing.assert_close(torch.func.jacrev(function)(scores), jacobian)
    along = (jacobian * tangent).sum((-2, -1))
    torch.testing.assert_close(torch.func.jvp(function, (scores,), (tangent,))[1], along)
    both = torch.stack([scores, tangent])
    expected = torch.stack([function(scores), function(tangent)])
    torch.testing.assert_close(torch.vmap(function)(both), expected)
    if name == "memberships":
        assert function(scores.bfloat16()).dtype == torch.bfloat16
        return  # The logarithm of one, in lapsum, is compiled in the same way.
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    results = []
    for each in (function, compiled):
        leaf = scores.clone().requires_grad_()
        value = each(leaf)
        results.append((value.detach(), torch.autograd.grad(value.square().sum(), leaf)[0]))
    torch.testing.assert_close(*results)


def test_third_derivatives_in_graphs_are_those_of_finite_differences(monkeypatch):
    """Two steps to the threshold are enough here; graphs of all of them are tried above."""
    monkeypatch.setattr(laplace, "_MOST_STEPS", 2)
    function, (scores, _), (tangent, _) = FUNCTIONS["lapsum"], draw(3, 5), draw(3, 5, seed=1)

    def along(function):
        return lambda scores: torch.func.jvp(function, (scores,), (tangent,))[1]

    second = along(along(lambda s: function(s).sum()))
    third = torch.compile(along(second), fullgraph=True, backend="eager")(scores)
    expected = second(scores + 1e-5 * tangent) - second(scores - 1e-5 * tangent)
    torch.testing.assert_close(third, expected / 2e-5, rtol=1e-5, atol=1e-7)


# The losses.


@pytest.mark.parametrize("k", [1, 2.5, 30])
def test_lapsum_is_minus_the_logarithm_of_the_membership(k):
    scores, target = draw(20, 40)
    loss = LapSumLoss(k, 0.2, "none")(scores.requires_grad_(), target)
    p = laplace_top_k(scores, k, 0.2).gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(loss, -p.log(), rtol=1e-12, atol=1e-14)
    (gradient,) = torch.autograd.grad(loss.sum(), scores)
    assert gradient.sum(1).abs().max() <= 1e-13 / 0.2
    assert gradient.abs().sum(1).max() <= 2 / 0.2
    # h (q - e_y) / tau, with q the shares of density and h = 1 below one half.
    p = laplace_top_k(scores.detach(), k, 0.2)
    density = torch.minimum(p, 1 - p)
    shares = density / density.sum(1, keepdim=True)
    own = p.gather(1, target[:, None])
    h = torch.where(own <= 0.5, 1.0, (1 - own) / own)
    one_hot = torch.nn.functional.one_hot(target, 40)
    torch.testing.assert_close(gradient, h * (shares - one_hot) / 0.2, rtol=1e-8, atol=1e-10)


def test_lapsum_keeps_the_digits_of_small_and_large_losses():
    scores = torch.tensor([[60.0, 0.0, 0.0, -2000.0]], dtype=torch.float64).repeat(2, 1)
    loss = LapSumLoss(1, reduction="none")(scores.requires_grad_(), torch.tensor([0, 3]))
    # b is 30 + log(2) / 2, where the density left of it and right of it balance.
    b = 30 + np.log(2) / 2
    expected = torch.tensor([np.exp(b - 60) / 2, 2000 + b + np.log(2)])
    torch.testing.assert_close(loss.detach(), expected, rtol=1e-9, atol=0)
    assert torch.autograd.grad(loss.sum(), scores)[0].isfinite().all()


def test_lapsum_keeps_the_digits_of_differences_far_from_zero():
    scores, _ = draw(20, 40)
    scores = (scores * 2**20).round() / 2**20  # so that moving it rounds nothing
    target = scores.argsort(1)[:, -4]
    near, far = (LapSumLoss(3, 0.01, "none")(s, target) for s in (scores, scores + 2**20))
    torch.testing.assert_close(far, near, rtol=1e-12, atol=1e-14)


def test_lapsum_is_stationary_where_memberships_are_proportional():
    """To the probabilities, so that the best classes are in; such scores invert F."""
    p = torch.tensor([0.45, 0.25, 0.15, 0.1, 0.05], dtype=torch.float64)
    scores = torch.where(2 * p > 0.5, -(2 * (1 - 2 * p)).log(), (4 * p).log()).requires_grad_()
    torch.testing.assert_close(laplace_top_k(scores, 2), 2 * p)
    losses = LapSumLoss(2, reduction="none")(scores.expand(5, 5), torch.arange(5))
    (gradient,) = torch.autograd.grad((p * losses).sum(), scores)
    torch.testing.assert_close(gradient, torch.zeros_like(p))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mixed_loss_is_minus_the_logarithm_of_mixed_marginals(dtype):
    scores, target = draw(20, 12, dtype=dtype)
    ranks = {1: 0.5, 4: 0.3, 50: 0.2}
    loss = MixedTopKLoss(ranks, tau=0.5, reduction="none")(scores, target)
    p = sum(w * top_k_marginals(scores.double() / 0.5, min(k, 11)) for k, w in ranks.items())
    expected = -p.gather(1, target[:, None])[:, 0].log()
    tolerance = 1e-6 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(loss.double(), expected, rtol=tolerance, atol=tolerance)


def test_mixed_loss_of_rank_one_has_the_gradient_of_the_cross_entropy_at_minus_infinity():
    scores = torch.tensor([[-torch.inf, 0.0, 1.0, 3.0]], requires_grad=True)
    losses = (MixedTopKLoss(ranks={1: 1.0}), torch.nn.CrossEntropyLoss())
    own, expected = (
        torch.autograd.grad(loss(scores, torch.tensor([0])), scores)[0] for loss in losses
    )
    torch.testing.assert_close(own, expected)


def test_mixed_loss_of_rank_one_is_the_cross_entropy_at_any_scale():
    for scale in (1e-3, 1.0, 1e4):
        scores, target = draw(20, 12, scale=scale)
        loss = MixedTopKLoss([(1, 3.0)], reduction="none")(scores, target)
        expected = torch.nn.functional.cross_entropy(scores, target, reduction="none")
        torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)


def test_ranks_of_the_smoothed_hinge_are_a_weighted_sum():
    scores, target = draw(20, 9, dtype=torch.float32)
    alone = {k: SmoothedTopKHingeLoss(k, 0.5, 0.7, "none")(scores, target) for k in (1, 3, 8)}
    for ranks in (((1, 1), ("k", 1)), {1: 0.2, 3: 0.3, 20: 0.5}):
        loss = SmoothedTopKHingeLoss(3, 0.5, 0.7, "none", ranks)(scores, target)
        weights = {min(3 if k == "k" else k, 8): w for k, w in dict(ranks).items()}
        total = sum(weights.values())
        expected = sum(w / total * alone[k] for k, w in weights.items())
        torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    only = SmoothedTopKHingeLoss(5, 0.5, 0.7, "none", [(3, 2.0)])(scores, target)
    assert torch.equal(only, alone[3])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: MixedTopKLoss(), ValueError, 'k must be given where ranks name "k"'),
        (lambda: MixedTopKLoss(None), ValueError, "ranks must be pairs"),
        (lambda: MixedTopKLoss({1: 1}, tau=0), ValueError, "tau must be finite and above 0"),
        (lambda: LapSumLoss(0), ValueError, "k must be finite and above 0"),
        (lambda: LapSumLoss("3"), TypeError, "k must be a number"),
        (lambda: LapSumLoss(4)(*draw(2, 4)), ValueError, r"k must lie in \(0, 4\)"),
        (lambda: MixedTopKLoss({1: 1})(*draw(2, 1)), ValueError, "at least two classes"),
        (lambda: SmoothedTopKHingeLoss(2, ranks=3), ValueError, "ranks must be pairs"),
        (lambda: MixedTopKLoss(np.array(2)), ValueError, "ranks must be pairs"),
    ],
)
def test_bad_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_gradients_of_large_mixed_losses_keep_their_size():
    # Where the first two tie, both ranks cost as much.
    for size in (1e3, 3e5, 1e8):
        scores = torch.tensor([[size, size, 1.0, 0.0]], requires_grad=True)
        MixedTopKLoss({1: 0.5, 2: 0.5})(scores, torch.tensor([2])).backward()
        assert scores.grad[0, 2].item() == pytest.approx(-1, abs=1e-5)
    masked = torch.tensor([[0.0, -torch.inf, 1.0]])
    assert MixedTopKLoss({1: 0.5, 2: 0.5})(masked, torch.tensor([1])) == torch.inf

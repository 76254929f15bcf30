"""Laws of the hinges that compiled kernels compute; those of the noise are with the operators."""

from functools import partial

import pytest
import torch

from sksetvalued.losses import CalibratedTopKHingeLoss, NoisedTopKHingeLoss
from sksetvalued.operators import noised_top_k
from sksetvalued.operators._dispatch import kernels
from sksetvalued.operators._top_k import top_k
from sksetvalued.operators.noised import cpu, noised_hinge, reference, select_noised

pytestmark = pytest.mark.skipif(kernels is None, reason="the kernels are not built")


def draw(n_samples, n_classes, kind="normal", seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n_samples, n_classes, generator=generator)
    if kind == "tied":
        scores = scores.round()
    elif kind == "constant":
        scores[:] = 2.5
    elif kind == "masked":
        scores[torch.rand(scores.shape, generator=generator) < 0.7] = -torch.inf
    elif kind == "infinite":
        scores[torch.rand(scores.shape, generator=generator) < 0.3] = torch.inf
    elif kind == "huge":
        scores *= 1e30
    elif kind == "ordered":
        scores = scores.sort(dim=1).values
    return scores, torch.randint(n_classes, (n_samples,), generator=generator)


def value_and_gradient(loss, scores, target):
    leaf = scores.clone().requires_grad_()
    value = loss(leaf, target)
    value.sum().backward()
    return value.detach(), leaf.grad


KINDS = ["normal", "tied", "constant", "masked", "infinite", "huge", "ordered"]


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("kind", KINDS)
def test_calibrated_hinge_equals_that_of_torch(kind):
    """The values, and but for ties the gradients, are equal to the last digit."""
    for n_classes in (2, 3, 15, 16, 17, 64, 65, 100, 1000, 4095, 4096, 5003):
        check_calibrated_hinge(n_classes, kind)


def check_calibrated_hinge(n_classes, kind):
    scores, target = draw(9, n_classes, kind, seed=n_classes)
    for k in sorted({1, 5, n_classes // 3, n_classes - 1} - {0}):
        if k >= n_classes:
            continue
        kth = scores.sort(dim=1, descending=True).values[:, k]
        own = scores.gather(1, target[:, None])[:, 0]
        expected = torch.relu(1.0 + kth.double() - own.double()).float()
        loss = CalibratedTopKHingeLoss(k, reduction="none")
        value, gradient = value_and_gradient(loss, scores, target)
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=0, equal_nan=True)
        assert gradient.sum().abs() == 0
        if kind == "normal":
            place = scores.argsort(dim=1, descending=True)[:, k]
            by_hand = torch.zeros_like(scores)
            rows = torch.arange(len(scores))
            by_hand[rows, place] += (expected > 0).float()
            by_hand[rows, target] -= (expected > 0).float()
            assert torch.equal(gradient, by_hand)


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("n_classes", [3, 100, 1000, 5000])
def test_noised_hinge_is_its_formula_on_the_classes_that_are_drawn(n_classes):
    """The operator, with the same seed, says which classes are drawn, and their noise."""
    for epsilon in (0.0, 0.01, 0.5, 30.0):
        for class_margins in (False, True):
            scores, target = draw(30, n_classes, seed=n_classes)
            k, scale, n_draws = 2, 3.0, 7
            margins = {"margin": 0.8}
            margin = torch.full((30,), 0.8)
            if class_margins:
                counts = torch.arange(1, n_classes + 1)
                margins = {"class_counts": counts, "max_margin": 0.4}
                margin = 0.4 * (1 / counts[target].float()) ** 0.25
            loss = NoisedTopKHingeLoss(
                k, epsilon, n_draws, scale=scale, generator=5, reduction="none", **margins
            )
            seeds = torch.Generator().manual_seed(loss.generator.seed)
            indices, normals = (
                x.flatten(1) for x in select_noised(scores, k + 1, epsilon, n_draws, seeds)
            )
            mean = (scores.gather(1, indices).double() + epsilon * normals.double()).mean(1)
            own = scores.gather(1, target[:, None])[:, 0].double()
            expected = torch.relu(scale * (margin.double() + mean - own))
            value, gradient = value_and_gradient(loss, scores, target)
            torch.testing.assert_close(value, expected.float(), rtol=2e-6, atol=2e-6)
            slope = scale * (expected > 0).float()[:, None]
            by_hand = torch.zeros_like(scores)
            by_hand.scatter_add_(1, indices, slope.expand(indices.shape) / indices.shape[1])
            by_hand.scatter_add_(1, target[:, None], -slope)
            torch.testing.assert_close(gradient, by_hand, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        CalibratedTopKHingeLoss(2),
        NoisedTopKHingeLoss(2, 0.5, generator=0).eval(),
        NoisedTopKHingeLoss(2, 0.5, generator=0, ranks={1: 1, "k": 2, 7: 0.5}).eval(),
    ],
    ids=["calibrated", "noised", "mixed"],
)
class TestCalls:
    """How the losses are called: memory layouts, graphs kept, second derivatives, bad targets."""

    def test_any_layout_is_read(self, loss):
        scores, target = draw(8, 40)
        expected = value_and_gradient(loss, scores, target)
        views = scores.T.contiguous().T, torch.cat([scores, scores], 1)[:, :40]
        for view in views:
            assert not view.is_contiguous()
            torch.testing.assert_close(value_and_gradient(loss, view, target), expected)
        spread = torch.stack([target, target], 1)[:, 0]
        torch.testing.assert_close(value_and_gradient(loss, scores, spread), expected)

    def test_a_gradient_of_any_layout_weighs_the_samples(self, loss):
        scores, target = draw(8, 40)
        weights = torch.rand(8, generator=torch.Generator().manual_seed(1))
        leaf = scores.clone().requires_grad_()
        losses = loss.sample_losses(leaf, target)
        (plain,) = torch.autograd.grad(losses.sum(), leaf, retain_graph=True)
        strided = torch.stack([weights, weights], 1)[:, 0]
        for each in (weights, strided):
            (weighed,) = torch.autograd.grad(losses, leaf, each, retain_graph=True)
            torch.testing.assert_close(weighed, weights[:, None] * plain)

    def test_derivatives_of_the_gradient_are_those_of_a_piecewise_linear_function(self, loss):
        scores, target = draw(8, 40)
        leaf, weights = scores.clone().requires_grad_(), torch.ones(8, requires_grad=True)
        losses = loss.sample_losses(leaf, target)
        (gradient,) = torch.autograd.grad((weights * losses).sum(), leaf, create_graph=True)
        torch.testing.assert_close(gradient, value_and_gradient(loss, scores, target)[1] * 8)
        (mixed,) = torch.autograd.grad(gradient.square().sum(), weights)
        torch.testing.assert_close(mixed, 2 * gradient.detach().square().sum(1))

    def test_several_gradients_are_computed_together(self, loss):
        scores, target = draw(8, 40)
        jacobians = [
            torch.autograd.functional.jacobian(
                lambda s: loss.sample_losses(s, target), scores, vectorize=together
            )
            for together in (False, True)
        ]
        torch.testing.assert_close(*jacobians)

    def test_a_target_elsewhere_is_an_error(self, loss):
        scores, target = draw(8, 40)
        with pytest.raises(RuntimeError, match="(?i)meta"):
            loss(scores.requires_grad_(), target.to("meta")).backward()

    @pytest.mark.parametrize("bad", [-1, 40])
    @pytest.mark.parametrize("validate", [True, False])
    def test_no_target_is_looked_up_outside_of_the_classes(self, loss, bad, validate):
        scores, target = draw(8, 40)
        target[3] = bad
        before = loss.validate
        loss.validate = validate
        try:
            with pytest.raises(ValueError, match=r"target must lie in \[0, 39\]"):
                loss(scores, target)
        finally:
            loss.validate = before


MIXTURES = [((1, 0.5), (5, 0.5)), ((2, 0.1), (3, 0.2), (11, 0.7)), ((1, 0.25), (39, 0.75))]


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("kind", ["normal", "tied", "masked", "constant"])
def test_mixed_hinge_is_that_of_the_reference_on_the_same_draws(kind):
    """A selection of all ranks with the same seed says what is drawn."""
    for epsilon in (0.0, 0.01, 0.7, 30.0):
        n_draws, scale = (3, 2.0) if epsilon > 0 else (1, 2.0)
        for n_classes in (40, 100, 700, 5003):
            scores, target = draw(20, n_classes, kind, seed=n_classes)
            margin = torch.linspace(0.1, 2, 20)
            large = [tuple((r, 0.2) for r in (1, 30, 400, 500, 650))] if n_classes == 700 else []
            for ranks in (*MIXTURES, tuple((r, 1 / 39) for r in range(1, 40)), *large):
                options = ranks, margin, epsilon, n_draws, scale
                found = value_and_gradient(
                    partial(apply_mixed, options=(*options, 7)), scores, target
                )
                expected = mixed_by_reference(scores, target, *options)
                values = found[0], expected[0]
                torch.testing.assert_close(*values, rtol=1e-5, atol=1e-5, equal_nan=True)
                if kind == "normal":
                    torch.testing.assert_close(found[1], expected[1], rtol=1e-5, atol=1e-5)
                assert found[1].sum(1).abs().max() < 1e-4


def apply_mixed(scores, target, options):
    return cpu.NoisedHinge.apply(scores, target, *options)


def mixed_by_reference(scores, target, ranks, margin, epsilon, n_draws, scale):
    n_ranked = ranks[-1][0] + 1
    if epsilon > 0:
        indices, normals = select_by_seed(scores, n_ranked, epsilon, n_draws, 7)
    else:
        indices = scores.topk(n_ranked).indices.unsqueeze(1)
        normals = torch.zeros(indices.shape)
    noised = scores.gather(1, indices.flatten(1)).view_as(normals) + epsilon * normals
    order = noised.argsort(dim=2, descending=True)[..., [rank for rank, _ in ranks]]
    chosen = indices.gather(2, order), normals.gather(2, order)
    weights = torch.tensor([weight for _, weight in ranks])
    return value_and_gradient(
        lambda s, y: reference.hinge(s, y, *chosen, weights, margin, epsilon, scale),
        scores,
        target,
    )


def select_by_seed(scores, k, epsilon, n_draws, seed):
    indices = torch.empty(len(scores), n_draws, k, dtype=torch.int64)
    normals = torch.empty(indices.shape)
    kernels.select_rows(scores, *scores.shape, k, n_draws, epsilon, seed, True, indices, normals)
    return indices, normals


@pytest.mark.usefixtures("instruction_set")
def test_mixed_hinge_keeps_nan_and_refuses_wrong_targets():
    scores, target = draw(4, 300)
    scores[1, 7] = torch.nan
    value, gradient = value_and_gradient(
        lambda s, y: noised_hinge(s, y, MIXTURES[0], draws=(0.5, 2, None, None, False)),
        scores,
        target,
    )
    assert value.isnan().tolist() == [False, True, False, False]
    assert (gradient[1] == 0).all()
    with pytest.raises(ValueError, match=r"target must lie in \[0, 299\]"):
        noised_hinge(scores, target + 300, MIXTURES[0])


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("n_classes", [5, 100, 5000])
@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_a_nan_anywhere_gives_its_row_a_nan_loss_and_no_gradient(n_classes, epsilon):
    scores, target = draw(4, n_classes)
    for place in (0, n_classes // 2, n_classes - 1):
        odd = scores.clone()
        odd[1, place] = torch.nan
        odd[2] = torch.nan
        loss = NoisedTopKHingeLoss(2, epsilon, generator=0, reduction="none")
        value, gradient = value_and_gradient(loss, odd, target)
        assert value.isnan().tolist() == [False, True, True, False]
        assert (gradient[1:3] == 0).all()
        mean = noised_top_k(odd, 2, epsilon)
        assert mean.isnan().tolist() == [False, True, True, False]


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("n_classes", [20, 100, 5000])
def test_noise_does_not_move_infinite_scores(n_classes):
    scores = torch.zeros(3, n_classes)
    scores[0, :7] = torch.inf
    scores[1, 7:] = -torch.inf
    scores[2] = -torch.inf
    for k, expected in ((3, [torch.inf, 0.0, -torch.inf]), (9, [0.0, -torch.inf, -torch.inf])):
        indices, normals = select_noised(scores, k, 1.0, 20, torch.Generator().manual_seed(0))
        kth = scores.gather(1, indices[..., 0])
        assert torch.equal(kth, torch.tensor(expected)[:, None].expand(3, 20))
        assert torch.isfinite(normals).all()


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("kind", [*KINDS, "nan"])
@pytest.mark.parametrize("n_classes", [200, 4096, 5003])
def test_the_k_largest_are_those_of_torch(n_classes, kind):
    """In decreasing order, NaN first; tied columns once each."""
    scores, _ = draw(9, n_classes, kind, seed=1)
    if kind == "nan":
        scores[1, 3] = scores[4, 7] = scores[4, -1] = torch.nan
        scores[5] = torch.nan
    for k in (1, 6, 49):
        values, indices = top_k(scores, k)
        expected = torch.topk(scores, k, dim=1).values
        torch.testing.assert_close(values, expected, rtol=0, atol=0, equal_nan=True)
        chosen = scores.gather(1, indices)
        torch.testing.assert_close(chosen, values, rtol=0, atol=0, equal_nan=True)
        assert all(len(row.unique()) == k for row in indices)


def test_unknown_instruction_sets_are_refused():
    with pytest.raises(ValueError, match="no instruction set 'abacus'"):
        kernels.use_instruction_set("abacus")

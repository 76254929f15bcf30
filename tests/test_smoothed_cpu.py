"""The compiled kernels of the smoothed hinge do what its definition says."""

import numpy as np
import pytest
import torch

from sksetvalued.losses import SmoothedTopKHingeLoss
from sksetvalued.operators._dispatch import kernels
from sksetvalued.operators.smoothed.reference import smoothed_hinge

if kernels is None:
    pytest.skip("the kernels are not built", allow_module_level=True)

from sksetvalued.operators.smoothed.cpu import SmoothedHinge

#: Of the gradient relative to its largest entry, and of the loss relative to the larger of it
#: and tau.
TOLERANCE = 5e-7
#: Where single precision ends.
LEAST = 1e-37


def differentiate(scores, target, k, tau, margin=1.0, function=SmoothedHinge.apply):
    """Return the losses and the gradient of their sum."""
    scores = scores.clone().requires_grad_()
    losses = function(scores, target, k, tau, margin)
    (gradient,) = torch.autograd.grad(losses.sum(), scores)
    return losses.detach(), gradient


def assert_agree(scores, target, k, tau, margin=1.0, tolerance=TOLERANCE):
    """Compare the kernels with the definition in double precision."""
    exact, exact_gradient = differentiate(scores.double(), target, k, tau, margin, smoothed_hinge)
    losses, gradient = differentiate(scores, target, k, tau, margin)
    assert losses.dtype == gradient.dtype == torch.float32
    assert ((losses - exact).abs() <= tolerance * exact.clamp(min=tau)).all()
    largest = exact_gradient.abs().amax(1)
    error = (gradient - exact_gradient).abs().amax(1)
    assert (error <= tolerance * largest + LEAST).all()


def awkward_scores(n_classes):
    """Rows normal, nearly flat, tied, heavy-tailed, confident, flat, wide, sorted, and low."""
    rng = np.random.default_rng(n_classes)
    rows = rng.standard_normal((10, n_classes))
    rows[1] *= 1e-4
    rows[2] = rows[2].round()
    rows[3] = rng.standard_cauchy(n_classes)
    rows[4, : n_classes // 7 + 1] += 20
    rows[5] = 0.3
    rows[6, :12] += 30
    rows[6] = rows[6].round()
    rows[7] *= 1e4
    rows[8].sort()
    rows[9, rng.integers(n_classes, size=n_classes // 3)] = -1000
    return torch.tensor(rows, dtype=torch.float32)


SHAPES = [(2, 1), (3, 2), (40, 39), (99, 50), (128, 64), (300, 1), (300, 2), (300, 290)]
SHAPES += [(1000, 7), (1000, 64), (5000, 50), (5000, 4990)]


@pytest.mark.parametrize("tau", [1e-2, 1.0, 100.0])
@pytest.mark.parametrize(("n_classes", "k"), SHAPES)
def test_kernels_agree_with_double_precision(n_classes, k, tau):
    scores = awkward_scores(n_classes)
    generator = torch.Generator().manual_seed(k)
    for target in (
        scores.argmax(1),
        scores.argmin(1),
        torch.randint(n_classes, (len(scores),), generator=generator),
    ):
        assert_agree(scores, target, k, tau)


@pytest.mark.parametrize("k", [1, 5, 50])
def test_kernels_agree_on_many_classes(k, instruction_set):
    """Normal, flat (where nothing tells a head from the rest), and sorted rows."""
    scores = torch.stack([r[:70_000] for r in awkward_scores(70_001)[[0, 5, 8]]])
    for tau in (0.02, 1.0):
        assert_agree(scores, torch.tensor([3, 69_999, 7]), k, tau)


@pytest.mark.parametrize(("n_classes", "k"), [(5, 3), (100, 5), (1000, 50), (1000, 990)])
def test_instruction_sets_agree(n_classes, k, instruction_set):
    scores = awkward_scores(n_classes)
    for tau in (0.05, 1.0):
        assert_agree(scores, scores.argmax(1), k, tau, margin=0.3)


def test_rows_end_anywhere(instruction_set):
    """Nothing is read or written behind the last class, whatever stands there."""
    for n_left_out in range(17):
        n_classes = 70 - n_left_out
        block = torch.full((3, n_classes), torch.nan)
        block[1] = awkward_scores(70)[0, :n_classes]
        assert_agree(block[1:2], torch.tensor([n_classes - 1]), 4, 0.5)
        losses, gradient = differentiate(block, torch.tensor([0, 1, 2]), 4, 0.5)
        assert losses.isnan().tolist() == [True, False, True]
        assert gradient.isnan().all(1).tolist() == [True, False, True]
        assert gradient[1].isfinite().all()


@pytest.mark.parametrize("n_tied", [2, 10, 13, 14, 20, 300])
def test_ties_where_the_head_ends(n_tied, instruction_set):
    scores = awkward_scores(600)[:1].clamp(max=2)
    scores[0, :9] = 3.0 + torch.arange(9)
    scores[0, 100 : 100 + n_tied] = 2.5
    for tau in (0.02, 1.0):
        assert_agree(scores, torch.tensor([50]), 5, tau)
        assert_agree(scores, torch.tensor([101]), 5, tau)
        _, gradient = differentiate(scores, torch.tensor([50]), 5, tau)
        tied = gradient[0, 100 : 100 + n_tied]
        assert (tied - tied[0]).abs().max() <= TOLERANCE * gradient.abs().max()


@pytest.mark.parametrize(("n_classes", "k"), [(6, 2), (6, 5), (300, 5), (5000, 5), (5000, 4997)])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nan_and_infinity_make_a_loss_nan_wherever_they_are(n_classes, k, bad, instruction_set):
    scores = torch.zeros(6, n_classes) + torch.arange(n_classes) % 7
    target = torch.full((6,), n_classes // 2)
    for row, place in enumerate((0, 1, n_classes // 2, n_classes - 2, n_classes - 1)):
        scores[row, place] = bad
    losses, gradient = differentiate(scores, target, k, 0.5)
    assert losses.isnan().tolist() == 5 * [True] + [False]
    assert gradient.isnan().all(1).tolist() == 5 * [True] + [False]


@pytest.mark.parametrize(("n_classes", "k"), [(8, 3), (50, 5), (300, 8), (5000, 20), (300, 290)])
def test_masked_classes_are_the_limit(n_classes, k, instruction_set):
    for n_finite in (2, 6, 21):
        results = []
        for mask in (-torch.inf, -1e6 * k):
            scores = awkward_scores(n_classes)[:3]
            scores[:2, n_finite:] = mask
            results.append(differentiate(scores, torch.tensor([0, 1, 2]), k, 0.5))
        for masked, low in zip(*results):
            torch.testing.assert_close(masked, low, rtol=1e-6, atol=1e-6)
        if n_finite <= k:
            assert (results[0][0][:2] == 0).all()
            assert (results[0][1][:2] == 0).all()


def test_a_masked_true_class_costs_without_bound():
    scores = awkward_scores(50)[:1]
    scores[0, 7] = -torch.inf
    losses, gradient = differentiate(scores, torch.tensor([7]), 3, 0.5)
    assert losses.item() == torch.inf
    torch.testing.assert_close(gradient[0, 7], torch.tensor(-1 / 3))
    torch.testing.assert_close(gradient.sum(), torch.tensor(0.0), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("n_classes", "k"), [(70, 54), (257, 203), (800, 790), (300, 5)])
def test_no_gradient_is_infinite_where_all_is_masked(n_classes, k, instruction_set):
    scores = torch.full((2, n_classes), -torch.inf)
    scores[1, : k // 2] = torch.linspace(0, 1, k // 2)
    losses, gradient = differentiate(scores, torch.tensor([0, n_classes - 1]), k, 0.5)
    assert (losses == torch.inf).all()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("tau", [1e-30, 1e-6, 1e30])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_extreme_numbers_stay_finite(tau, scale, instruction_set):
    for n_classes, k in ((9, 4), (400, 5), (400, 397)):
        scores = scale * awkward_scores(n_classes)[[0, 2, 5]]
        target = scores.argmin(1)
        losses, gradient = differentiate(scores, target, k, tau, 1.0)
        assert losses.isfinite().all()
        assert gradient.isfinite().all()
        assert (gradient.sum(1).abs() <= 1e-6).all()


# How autograd meets the kernels.


def test_second_derivatives_are_those_of_the_definition():
    scores, target = awkward_scores(20)[[0, 2]], torch.tensor([3, 4])
    results = []
    for function, dtype in ((SmoothedHinge.apply, torch.float32), (smoothed_hinge, torch.float64)):
        leaf = scores.to(dtype).requires_grad_()
        losses = function(leaf, target, 3, 0.5, 1.0)
        (gradient,) = torch.autograd.grad(losses.sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad(gradient.square().sum(), leaf)
        results.append((gradient.detach().double(), second.double()))
    for single, double in zip(*results):
        torch.testing.assert_close(single, double, rtol=1e-5, atol=1e-6)


def test_a_graph_may_be_kept():
    leaf = awkward_scores(300).requires_grad_()
    losses = SmoothedTopKHingeLoss(5, 0.5, reduction="none")(leaf, torch.arange(10))
    grad = torch.linspace(-1, 1, 10)
    first = torch.autograd.grad(losses, leaf, grad, retain_graph=True)[0]
    second = torch.autograd.grad(losses, leaf, 2 * grad, retain_graph=True)[0]
    # Doubled bit by bit, but for what lies below the smallest normal number.
    torch.testing.assert_close(second, 2 * first, rtol=0, atol=torch.finfo().tiny)
    once = torch.autograd.grad(losses.sum(), leaf)[0]
    torch.testing.assert_close(first, grad.unsqueeze(1) * once)


def test_tensors_may_have_any_strides():
    plain, target = awkward_scores(200), torch.arange(10) * 19
    spread = torch.full((200, 20), torch.nan)
    spread[:, ::2] = plain.T
    targets = target.repeat_interleave(2)[::2]
    grads = torch.linspace(1, 2, 30).reshape(10, 3)[:, 1]
    results = []
    for scores, y, grad in (
        (plain, target, grads.clone()),
        (spread.T[::2], targets, grads),
    ):
        leaf = scores.detach().requires_grad_()
        losses = SmoothedHinge.apply(leaf, y, 4, 0.3, 1.0)
        results.append((losses.detach(), torch.autograd.grad(losses, leaf, grad)[0]))
    for expected, found in zip(*results):
        assert torch.equal(expected, found)


def test_an_empty_batch():
    leaf = torch.zeros(0, 30, requires_grad=True)
    target = torch.zeros(0, dtype=torch.long)
    for losses in (
        SmoothedHinge.apply(leaf, target, 3, 1.0, 1.0),
        SmoothedTopKHingeLoss(3, reduction="none")(leaf, target),
    ):
        assert losses.shape == (0,)
        assert torch.autograd.grad(losses.sum(), leaf)[0].shape == (0, 30)


@pytest.mark.parametrize("n_classes", [100, 1000])
def test_the_loss_uses_the_kernels_up_to_their_largest_rank_from_either_end(n_classes):
    """Which leave a node of their own in the graph."""
    most = kernels.most_rank
    for k in (5, n_classes - 5, most, n_classes - most, most + 1):
        leaf = torch.zeros(2, n_classes, requires_grad=True)
        loss = SmoothedTopKHingeLoss(k, reduction="none")(leaf, torch.tensor([0, 1]))
        used = getattr(loss.grad_fn, "_forward_cls", None) is SmoothedHinge
        assert used == (min(k, n_classes - k) <= most)


def test_nothing_of_the_size_of_many_scores_is_kept():
    for k in (1, 5, 50, kernels.most_rank):
        assert kernels.smoothed_width(1000, k) <= 500
        assert kernels.smoothed_width(100_000, k) <= 500

"""Laws of the top-k losses."""

import copy
import pickle
from functools import partial

import numpy as np
import pytest
import reference
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.overrides import TorchFunctionMode

from sksetvalued.losses import (
    LOSSES,
    CalibratedTopKHingeLoss,
    ConvexTopKHingeLoss,
    CrossEntropyLoss,
    NoisedTopKHingeLoss,
    SmoothedTopKHingeLoss,
    TopKHingeLoss,
    functional,
)
from sksetvalued.losses._ranks import check_ranks
from sksetvalued.operators import instruction_set, sparse_top

SIZES_AND_RANKS = [(n_classes, k) for n_classes in (3, 6) for k in range(1, n_classes)]
PLAIN = {
    "hinge": (TopKHingeLoss, reference.top_k_hinge),
    "convex_hinge": (ConvexTopKHingeLoss, reference.convex_top_k_hinge),
    "calibrated_hinge": (CalibratedTopKHingeLoss, reference.calibrated_top_k_hinge),
}
ALL = {
    "cross_entropy": lambda k, **kw: CrossEntropyLoss(**kw),
    "hinge": TopKHingeLoss,
    "convex_hinge": ConvexTopKHingeLoss,
    "calibrated_hinge": CalibratedTopKHingeLoss,
    "smoothed_hinge": partial(SmoothedTopKHingeLoss, tau=0.5),
    "noised_hinge": partial(NoisedTopKHingeLoss, epsilon=0.3, generator=0),
}


def draw(n_samples, n_classes, seed=0, scale=1.0, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    scores = scale * rng.standard_normal((n_samples, n_classes))
    return torch.tensor(scores, dtype=dtype), torch.tensor(rng.integers(n_classes, size=n_samples))


def expected_reductions(values):
    return {"none": values, "mean": values.mean(), "sum": values.sum()}


def assert_equals_reference(make, values, scores, target):
    for reduction, expected in expected_reductions(np.array(values)).items():
        loss = make(reduction=reduction)(scores, target)
        np.testing.assert_allclose(loss.detach().numpy(), expected, rtol=1e-10, atol=1e-10)


def assert_gradients(loss, scores, target):
    """Compare with finite differences."""
    scores = scores.clone().requires_grad_()
    assert gradcheck(lambda s: loss(s, target), (scores,), eps=1e-7, atol=1e-6, rtol=1e-6)


@pytest.mark.without_kernels
@pytest.mark.parametrize("name", PLAIN)
def test_hinges_equal_their_formulas(name):
    for n_classes, k in SIZES_AND_RANKS:
        loss, formula = PLAIN[name]
        scores, target = draw(6, n_classes, seed=k)
        values = [formula(s.copy(), y, k, 0.7) for s, y in zip(scores.numpy(), target.numpy())]
        assert_equals_reference(partial(loss, k, margin=0.7), values, scores, target)
        assert_gradients(loss(k, margin=0.7, reduction="none"), scores, target)


@pytest.mark.without_kernels
@pytest.mark.parametrize("tau", [0.1, 1.0, 20.0])
def test_smoothed_hinge_equals_the_enumerated_subsets(tau):
    for n_classes, k in SIZES_AND_RANKS:
        scores, target = draw(4, n_classes, seed=k)
        values = [
            reference.smoothed_top_k_hinge(s, y, k, tau, 0.7)
            for s, y in zip(scores.numpy(), target.numpy())
        ]
        make = partial(SmoothedTopKHingeLoss, k, tau=tau, margin=0.7)
        assert_equals_reference(make, values, scores, target)
        assert_gradients(make(reduction="none"), scores[:2], target[:2])


@pytest.mark.without_kernels
@pytest.mark.parametrize("epsilon", [0.0, 0.4])
def test_noised_hinge_equals_its_formula_for_given_noise(epsilon):
    for n_classes, k in SIZES_AND_RANKS:
        scores, target = draw(5, n_classes, seed=k)
        noise = torch.randn(
            4, 5, n_classes, dtype=scores.dtype, generator=torch.Generator().manual_seed(k)
        )
        loss = partial(
            functional.noised_top_k_hinge_loss, k=k, epsilon=epsilon, noise=noise, margin=0.7
        )
        values = [
            reference.noised_top_k_hinge(scores[i].numpy(), target[i], k, epsilon, z.numpy(), 0.7)
            for i, z in enumerate(noise.transpose(0, 1))
        ]
        for reduction, expected in expected_reductions(np.array(values)).items():
            value = loss(scores, target, reduction=reduction)
            np.testing.assert_allclose(value.numpy(), expected, rtol=1e-10, atol=1e-10)
        assert_gradients(partial(loss, reduction="none"), scores, target)


@pytest.mark.without_kernels
def test_imbalanced_noised_hinge_equals_its_formula():
    for n_classes, k in SIZES_AND_RANKS:
        scores, target = draw(5, n_classes, seed=k, scale=0.3)
        noise = torch.randn(
            3, 1, n_classes, dtype=scores.dtype, generator=torch.Generator().manual_seed(k)
        )
        counts = np.arange(1, n_classes + 1) ** 3
        margins = 0.2 * (counts.min() / counts) ** 0.25
        loss = partial(
            functional.noised_top_k_hinge_loss,
            k=k,
            epsilon=0.1,
            scale=30.0,
            class_counts=counts,
            max_margin=0.2,
            noise=noise,
            reduction="none",
        )
        values = [
            reference.noised_top_k_hinge(s, y, k, 0.1, noise[:, 0].numpy(), margins[y], 30.0)
            for s, y in zip(scores.numpy(), target.numpy())
        ]
        np.testing.assert_allclose(loss(scores, target).numpy(), values, rtol=1e-10, atol=1e-10)
        assert_gradients(loss, scores, target)


def test_cross_entropy_equals_its_formula():
    scores, target = draw(12, 6)
    values = [reference.cross_entropy(s, y) for s, y in zip(scores.numpy(), target.numpy())]
    assert_equals_reference(CrossEntropyLoss, values, scores, target)
    assert_gradients(CrossEntropyLoss(reduction="none"), scores, target)


def test_published_imbalanced_setting_in_units_of_multiplied_scores():
    """With scale 60, margin 0.2 and epsilon 0.01 count as 12 and 0.6 on multiplied cosines."""
    scores, target = draw(50, 7, scale=0.3)
    noise = torch.randn(3, 50, 7, dtype=scores.dtype, generator=torch.Generator().manual_seed(0))
    counts, scale = torch.full((7,), 10), 60.0
    unscaled = functional.noised_top_k_hinge_loss(
        scores, target, 2, 0.01, scale=scale, class_counts=counts, max_margin=0.2, noise=noise
    )
    multiplied = functional.noised_top_k_hinge_loss(
        scale * scores, target, 2, 0.6, margin=12.0, noise=noise
    )
    torch.testing.assert_close(unscaled, multiplied, rtol=1e-12, atol=0)
    loss = NoisedTopKHingeLoss(2, 0.01, scale=scale, class_counts=counts, max_margin=0.2)
    assert torch.equal(loss.scores(scores), scale * scores)


# Limits.


@pytest.mark.parametrize("k", [1, 3, 6])
def test_without_noise_the_noised_hinge_is_the_calibrated_one(k):
    scores, target = draw(30, 7)
    calibrated = CalibratedTopKHingeLoss(k)(scores, target)
    for epsilon in (0.0, 1e-9):
        noised = NoisedTopKHingeLoss(k, epsilon=epsilon, generator=0)(scores, target)
        torch.testing.assert_close(noised, calibrated, rtol=0, atol=1e-7)


@pytest.mark.parametrize("k", [1, 3, 6])
def test_cold_smoothed_hinge_is_the_hinge_of_margin_k_divided_by_k(k):
    scores, target = draw(30, 7)
    hard = TopKHingeLoss(k, margin=0.7 * k, reduction="none")(scores, target) / k
    for tau in (1e-2, 1e-4):
        smooth = SmoothedTopKHingeLoss(k, tau, margin=0.7, reduction="none")(scores, target)
        # Between the hard loss and itself plus tau times the log of the number of sets.
        bound = tau * np.log(35.0) + 1e-12
        assert (smooth - hard).abs().max() <= bound


@pytest.mark.parametrize("margin", [0.0, 0.8])
def test_smoothed_hinge_of_rank_1_is_the_cross_entropy_after_a_margin(margin):
    scores, target = draw(30, 7)
    lowered = scores - margin * torch.nn.functional.one_hot(target, 7).to(scores)
    torch.testing.assert_close(
        SmoothedTopKHingeLoss(1, tau=1.0, margin=margin)(scores, target),
        CrossEntropyLoss()(lowered, target),
        rtol=1e-12,
        atol=0,
    )


def test_hinges_of_rank_1_are_the_multiclass_hinge():
    """For the calibrated one, where the true class is not the best: it compares with rank 2."""
    scores, target = draw(40, 6)
    rivals = scores.scatter(1, target.unsqueeze(1), -torch.inf).amax(1)
    own = scores.gather(1, target.unsqueeze(1))[:, 0]
    multiclass = torch.relu(1.0 + rivals - own)
    for loss in (TopKHingeLoss, ConvexTopKHingeLoss):
        torch.testing.assert_close(loss(1, reduction="none")(scores, target), multiclass)
    calibrated = CalibratedTopKHingeLoss(1, reduction="none")(scores, target)
    first = scores.argmax(1) == target
    torch.testing.assert_close(calibrated[first], multiclass[first])
    assert first.any()
    assert (calibrated <= multiclass).all()


def test_convex_hinge_of_many_large_scores_keeps_its_digits():
    scores = torch.full((2, 1000), 100.0)
    scores[:, 0] = torch.tensor([99.0, -torch.inf])
    loss = ConvexTopKHingeLoss(999, reduction="none")(scores, torch.tensor([0, 0]))
    torch.testing.assert_close(loss, torch.tensor([2.0, torch.inf]))


def test_convex_hinge_bounds_the_hinge_and_is_convex():
    scores, target = draw(300, 6, scale=2.0)
    others, _ = draw(300, 6, seed=1, scale=2.0)
    for k in range(1, 6):
        convex = ConvexTopKHingeLoss(k, reduction="none")
        assert (convex(scores, target) >= TopKHingeLoss(k, reduction="none")(scores, target)).all()
        middle = convex((scores + others) / 2, target)
        assert (middle <= (convex(scores, target) + convex(others, target)) / 2 + 1e-12).all()


@pytest.mark.parametrize("name", ALL)
def test_losses_follow_a_permutation_and_ignore_a_shift(name):
    scores, target = draw(20, 6)
    loss = ALL[name](k=2)
    if name == "noised_hinge":
        noise = torch.randn(2, 20, 6, dtype=scores.dtype)
        order = torch.randperm(6)

        def value(s, y, z):
            return functional.noised_top_k_hinge_loss(s, y, 2, 0.3, noise=z)

        permuted = value(scores[:, order], torch.argsort(order)[target], noise[:, :, order])
        shifted, plain = value(scores + 5.0, target, noise), value(scores, target, noise)
    else:
        order = torch.randperm(6)
        permuted = loss(scores[:, order], torch.argsort(order)[target])
        shifted, plain = loss(scores + 5.0, target), loss(scores, target)
    torch.testing.assert_close(permuted, plain, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(shifted, plain, rtol=1e-12, atol=1e-12)


# Precision, devices, states.


@pytest.mark.parametrize("name", ALL)
def test_weight_2_is_a_duplicated_row(name):
    scores, target = draw(6, 5)
    loss = ALL[name](k=2).eval()
    weight = torch.tensor([1.0, 2, 1, 1, 1, 1])
    if name == "noised_hinge":
        loss = NoisedTopKHingeLoss(2, 0.3, noise="shared", generator=0).eval()
    index = torch.tensor([0, 1, 1, 2, 3, 4, 5])
    torch.testing.assert_close(
        loss(scores, target, sample_weight=weight), loss(scores[index], target[index])
    )


@pytest.mark.parametrize("name", ALL)
def test_float32_is_finite_and_agrees_with_float64(name):
    for n_samples, n_classes, k in ((1, 5, 4), (4, 30, 5), (4, 30, 29)):
        for scale in (1e-4, 1.0, 1e4):
            scores, target = draw(n_samples, n_classes, scale=scale)
            scores[:, 1] = scores[:, 0]  # ties
            noise = torch.randn(3, n_samples, n_classes, dtype=torch.float64)
            results = []
            for dtype in (torch.float64, torch.float32):
                s = scores.float().to(dtype).requires_grad_()
                if name == "noised_hinge":
                    loss = functional.noised_top_k_hinge_loss(s, target, k, 0.0, noise=noise)
                else:
                    loss = ALL[name](k=k)(s, target)
                loss.backward()
                results.append((loss.detach(), s.grad))
            (exact, exact_grad), (single, single_grad) = results
            assert torch.isfinite(single_grad).all()
            assert single.dtype == torch.float32
            torch.testing.assert_close(single.double(), exact, rtol=1e-5, atol=1e-6)
            largest = exact_grad.abs().max()
            assert (single_grad - exact_grad).abs().max() <= 1e-5 * largest


@pytest.mark.parametrize(
    ("n_classes", "k"), [(3, 1), (3, 2), (40, 1), (40, 5), (40, 20), (40, 39), (1000, 5)]
)
def test_smoothed_hinge_is_stable_in_float32(n_classes, k):
    for scale in (1e-4, 1.0, 1e4):
        for tau in (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0):
            scores, target = draw(6, n_classes, seed=3, scale=scale)
            scores[0] = scores[0, 0]  # a row of ties
            loss = SmoothedTopKHingeLoss(k, tau, reduction="sum")
            gradients, values = [], []
            for dtype in (torch.float32, torch.float64):
                s = scores.float().to(dtype).requires_grad_()
                values.append(loss(s, target))
                (gradient,) = torch.autograd.grad(values[-1], s)
                gradients.append(gradient)
            assert torch.isfinite(gradients[0]).all()
            torch.testing.assert_close(values[0].double(), values[1], rtol=1e-5, atol=1e-6)
            if tau >= 0.01:
                error = (gradients[0] - gradients[1]).abs().amax(1)
                assert (error <= 1e-5 * gradients[1].abs().max()).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ALL)
def test_half_precision_is_computed_in_float32(name, dtype):
    scores, target = draw(8, 20, scale=5.0, dtype=dtype)
    loss = ALL[name](k=3).eval()
    half = scores.clone().requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        value = loss(half, target)
        weighted = loss(half, target, torch.ones(8, dtype=torch.float64))
    value.backward()
    assert value.dtype == weighted.dtype == torch.float32
    assert half.grad.dtype == dtype
    assert torch.isfinite(half.grad).all()
    torch.testing.assert_close(value, loss(scores.float(), target))


@pytest.mark.without_kernels
@pytest.mark.parametrize("name", ALL)
def test_double_backward_and_retain_graph(name):
    scores, target = draw(3, 5)
    scores.requires_grad_()
    loss = ALL[name](k=2).eval()
    value = loss(scores, target)
    first = torch.autograd.grad(value, scores, retain_graph=True)[0].clone()
    second = torch.autograd.grad(value, scores)[0]
    assert torch.equal(first, second)
    assert gradgradcheck(lambda s: loss(s, target), (scores,), atol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_losses_move_copy_and_pickle(name):
    loss = ALL[name](k=2)
    scores, target = draw(6, 5)
    loss(scores, target)  # some noise has been drawn
    copies = [copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))]
    values = [each(scores, target) for each in (loss, *copies)]
    assert values[0] == values[1] == values[2]
    moved = copy.deepcopy(loss).to("meta")
    on_meta = torch.empty(6, 5, device="meta", requires_grad=True)
    value = moved(on_meta, torch.zeros(6, dtype=torch.long, device="meta"))
    value.backward()
    assert value.device.type == on_meta.grad.device.type == "meta"


def test_class_counts_move_with_the_imbalanced_loss():
    loss = NoisedTopKHingeLoss(2, class_counts=[1, 2, 3], max_margin=0.2, scale=50.0)
    assert loss.to("meta").class_counts.device.type == "meta"
    assert loss.head == "cosine"
    assert NoisedTopKHingeLoss(2).head == "linear"


@pytest.mark.parametrize("name", ALL)
def test_losses_leave_the_global_random_state_alone_and_print_nothing(name, capfd):
    scores, target = draw(6, 5)
    loss = ALL[name](k=2)
    before = torch.get_rng_state()
    loss(scores, target)
    loss.eval()(scores, target)
    assert torch.equal(before, torch.get_rng_state())
    assert capfd.readouterr() == ("", "")


def test_noise_is_new_in_training_fixed_in_evaluation_and_follows_the_seed():
    scores, target = draw(6, 20)
    loss = NoisedTopKHingeLoss(3, epsilon=1.0, generator=7)
    twin = NoisedTopKHingeLoss(3, epsilon=1.0, generator=7)
    first, second = loss(scores, target), loss(scores, target)
    assert first != second
    assert (first, second) == (twin(scores, target), twin(scores, target))
    loss.eval()
    assert loss(scores, target) == loss(scores, target)
    loss.train()
    assert loss(scores, target) == twin(scores, target)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        seeds = [NoisedTopKHingeLoss(3).generator.seed for _ in range(2)]
        torch.manual_seed(3)
        assert NoisedTopKHingeLoss(3).generator.seed == seeds[0]
    assert seeds[0] != seeds[1]


def test_shared_noise_gives_equal_rows_equal_losses():
    scores, target = draw(1, 20)
    scores, target = scores.expand(50, 20), target.expand(50)
    shared = NoisedTopKHingeLoss(3, noise="shared", generator=0, reduction="none")
    independent = NoisedTopKHingeLoss(3, generator=0, reduction="none")
    assert len(shared(scores, target).unique()) == 1
    assert len(independent(scores, target).unique()) == 50


# Cost and compilation.


def peak_memory(loss, n_samples, n_classes, seed):
    """Return the peak memory of forward and backward, in units of the scores."""
    from measuring import peak_bytes

    scores, target = draw(n_samples, n_classes, seed, dtype=torch.float32)
    scores.requires_grad_()

    def step():
        scores.grad = None
        loss(scores, target).backward()

    return peak_bytes(step) / (4 * n_samples * n_classes)


@pytest.mark.parametrize(
    ("loss", "n_samples", "n_classes"),
    [
        (TopKHingeLoss(5), 256, 1000),
        (ConvexTopKHingeLoss(5), 256, 1000),
        (CalibratedTopKHingeLoss(5), 256, 1000),
        (SmoothedTopKHingeLoss(5, tau=0.01), 256, 1000),
        (NoisedTopKHingeLoss(5, 0.2, 50, generator=0), 256, 1000),
        (NoisedTopKHingeLoss(50, 1.0, 50, generator=0, ranks={1: 1, "k": 1}), 16, 10000),
    ],
    ids=repr,
)
@pytest.mark.usefixtures("benchmark_path")
def test_memory_is_that_of_the_gradient_and_half_of_the_scores(loss, n_samples, n_classes):
    """At most 1.5 times the scores from 1000 classes on, whatever the number of draws."""
    if isinstance(loss, NoisedTopKHingeLoss | SmoothedTopKHingeLoss) and not instruction_set():
        pytest.skip("the bound is that of the compiled kernels")
    assert peak_memory(loss, n_samples, n_classes, seed=0) <= 1.5


@pytest.mark.without_kernels
@pytest.mark.parametrize(
    "loss", [NoisedTopKHingeLoss(5, 1.0, 20, generator=0), SmoothedTopKHingeLoss(5)], ids=repr
)
@pytest.mark.usefixtures("benchmark_path")
def test_memory_without_kernels_is_at_most_three_times_the_scores(loss):
    """From 10,000 classes on, whatever the number of draws; with fewer it is up to four times."""
    assert peak_memory(loss, 64, 10000, seed=0) <= 3


@pytest.mark.without_kernels
@pytest.mark.parametrize("name", [name for name in ALL if name != "noised_hinge"])
def test_plain_losses_compile_to_one_graph(name):
    loss = ALL[name](k=2)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    scores, target = draw(6, 7)
    results = []
    for each in (loss, compiled):
        leaf = scores.clone().requires_grad_()
        value = each(leaf, target)
        value.backward()
        results.append((value.detach(), leaf.grad))
    torch.testing.assert_close(*results)


def test_noised_loss_runs_inside_a_compiled_function():
    """The graph breaks where noise is drawn; same seed, same noise."""
    scores, target = draw(6, 7)
    eager, compiled = NoisedTopKHingeLoss(2, generator=1), NoisedTopKHingeLoss(2, generator=1)
    compiled = torch.compile(compiled, backend="aot_eager")
    for _ in range(3):
        torch.testing.assert_close(compiled(scores, target), eager(scores, target))


@pytest.mark.parametrize("n_classes", [600, 5000])
@pytest.mark.parametrize("name", ALL)
def test_losses_of_many_classes_on_awkward_rows(name, n_classes):
    """Flat, tied, confident and widely spread rows: finite, and gradients that sum to 0."""
    scores, target = draw(6, n_classes, dtype=torch.float32)
    scores[0] = 0.0
    scores[1] = scores[1].round()
    scores[2, :9] += 1000.0
    scores[3] *= 1e4
    scores.requires_grad_()
    value = ALL[name](k=5)(scores, target)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(scores.grad).all()
    assert scores.grad.sum(1).abs().max() <= 1e-5 * scores.grad.abs().max()
    assert scores.grad.abs().max() > 0


def test_an_empty_batch_has_no_losses():
    for make in ALL.values():
        loss = make(k=2, reduction="none")
        for n_classes in (7, 2000):
            assert loss(torch.zeros(0, n_classes), torch.zeros(0, dtype=torch.long)).shape == (0,)


# Calibration in the sense of Yang & Koyejo.


def minimisers_of_the_conditional_risk(loss, p, grid):
    """Return the score vectors of the grid with the least sum_y p_y loss(s, y)."""
    scores = torch.cartesian_prod(*[grid] * len(p))
    risk = sum(p_y * loss(scores, torch.full((len(scores),), y)) for y, p_y in enumerate(p))
    return scores[risk <= risk.min() + 1e-9]


def test_calibrated_hinge_recovers_the_likeliest_classes_and_the_hinge_does_not():
    """Separating the 2 likeliest by 1 costs 2 (1 - p_1 - p_2) under Lapin's hinge, ties cost 1."""
    k, p = 2, torch.tensor([0.22, 0.21, 0.2, 0.19, 0.18], dtype=torch.float64)
    grid = torch.linspace(0, 2, 5, dtype=torch.float64)
    best = minimisers_of_the_conditional_risk(
        CalibratedTopKHingeLoss(k, reduction="none"), p, grid
    )
    assert (best[:, :k].amin(1) > best[:, k:].amax(1)).all()
    best = minimisers_of_the_conditional_risk(TopKHingeLoss(k, reduction="none"), p, grid)
    assert not (best[:, :k].amin(1) > best[:, k:].amax(1)).any()


def test_cross_entropy_recovers_the_likeliest_classes():
    p = torch.tensor([0.22, 0.21, 0.2, 0.19, 0.18], dtype=torch.float64)
    scores = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([scores], max_iter=50)

    def closure():
        optimizer.zero_grad()
        risk = (p * CrossEntropyLoss("none")(scores.expand(5, -1), torch.arange(5))).sum()
        risk.backward()
        return risk

    optimizer.step(closure)
    torch.testing.assert_close(scores.softmax(0).detach(), p, rtol=0, atol=1e-4)


# Bad input.


@pytest.mark.parametrize("name", [n for n in ALL if n != "cross_entropy"])
def test_rank_must_be_below_the_number_of_classes(name):
    scores, target = draw(3, 5)
    for k in (5, 9):
        with pytest.raises(ValueError, match=r"k must lie in \[1, 4\] for 5 classes"):
            ALL[name](k=k)(scores, target)
    with pytest.raises(ValueError, match="k must be at least 1"):
        ALL[name](k=0)
    with pytest.raises(TypeError, match="k must be an integer"):
        ALL[name](k=2.5)


@pytest.mark.parametrize("name", ALL)
def test_scores_and_targets_are_checked(name):
    scores, target = draw(3, 5)
    loss = ALL[name](k=2)
    with pytest.raises(ValueError, match=r"target must lie in \[0, 4\].*\[5, 5\]"):
        loss(scores, torch.full((3,), 5))
    with pytest.raises(ValueError, match="target must lie in"):
        loss(scores, torch.full((3,), -1))
    with pytest.raises(ValueError, match=r"\(n_samples, n_classes\)"):
        loss(scores[0], target[0])
    with pytest.raises(ValueError, match="target must have shape"):
        loss(scores, target[:2])
    with pytest.raises(TypeError, match="integers"):
        loss(scores, target.double())
    with pytest.raises(ValueError, match="reduction must be one of"):
        ALL[name](k=2, reduction="average")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SmoothedTopKHingeLoss(2, tau=0.0), "tau must be finite and above 0"),
        (lambda: SmoothedTopKHingeLoss(2, tau=-1.0), "tau"),
        (lambda: NoisedTopKHingeLoss(2, epsilon=-0.1), "epsilon must be finite and at least 0"),
        (lambda: NoisedTopKHingeLoss(2, epsilon=float("nan")), "epsilon"),
        (lambda: NoisedTopKHingeLoss(2, n_noise_samples=0), "n_noise_samples must be at least 1"),
        (lambda: NoisedTopKHingeLoss(2, scale=0.0), "scale"),
        (lambda: NoisedTopKHingeLoss(2, noise="none"), "independent"),
        (lambda: NoisedTopKHingeLoss(2, max_margin=0.2), "class_counts and max_margin"),
        (lambda: NoisedTopKHingeLoss(2, class_counts=[1, 2]), "class_counts and max_margin"),
        (
            lambda: NoisedTopKHingeLoss(1, class_counts=[3, 0, 2, 0], max_margin=0.2),
            r"classes \[1, 3\] have counts \[0, 0\]",
        ),
        (lambda: TopKHingeLoss(2, margin=-1.0), "margin must be finite and at least 0"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_class_counts_must_fit_the_scores():
    scores, target = draw(3, 5)
    loss = NoisedTopKHingeLoss(2, class_counts=[1, 2, 3], max_margin=0.2)
    with pytest.raises(ValueError, match="class_counts must .* each of the 5 .* got 3"):
        loss(scores, target)


# What the estimators rely on.


def test_losses_are_found_by_name():
    for name in ("cross_entropy", "hinge", "convex_hinge", "calibrated_hinge"):
        assert LOSSES[name].head == "linear"
    assert LOSSES["smoothed_hinge"] is SmoothedTopKHingeLoss
    assert LOSSES["noised_hinge"] is NoisedTopKHingeLoss


def test_estimator_builds_the_balanced_or_the_imbalanced_loss():
    counts = np.array([3, 1])
    supplied = {
        "k": 2,
        "epsilon": 0.3,
        "n_noise_samples": 4,
        "class_counts": counts,
        "scale": None,
    }
    balanced = NoisedTopKHingeLoss.from_estimator({**supplied, "max_margin": None}, {})
    assert (balanced.head, balanced.scale, balanced.class_counts) == ("linear", 1.0, None)
    imbalanced = NoisedTopKHingeLoss.from_estimator({**supplied, "max_margin": 0.2}, {})
    assert (imbalanced.head, imbalanced.scale, imbalanced.epsilon) == ("cosine", 50.0, 0.3)
    assert imbalanced.class_counts.tolist() == [3, 1]
    left_out = {**supplied, "epsilon": None}
    for max_margin, epsilon in ((None, 1.0), (0.2, 0.1)):
        loss = NoisedTopKHingeLoss.from_estimator({**left_out, "max_margin": max_margin}, {})
        assert loss.epsilon == epsilon
    chosen = NoisedTopKHingeLoss.from_estimator(
        {**supplied, "max_margin": 0.2, "scale": 30.0}, {"noise": "shared"}
    )
    assert (chosen.scale, chosen.noise) == (30.0, "shared")


@pytest.mark.parametrize(
    ("name", "params"),
    [
        *((name, [0.7]) for name in PLAIN),
        ("smoothed_hinge", [0.3, 0.7]),
        ("noised_hinge", [0.3, 4, 0.7, 2.0, None, None, "shared", 0]),
        ("noised_hinge", [0.3, 4, 0.7, 2.0, [1, 2, 3, 4, 5, 6], 0.2, "independent", 0]),
    ],
)
def test_function_twins(name, params):
    """They take the arguments of the module, in its order, and weights."""
    scores, target = draw(9, 6)
    twin = getattr(functional, name.replace("hinge", "top_k_hinge_loss"))
    weight = torch.rand(9, dtype=torch.float64)
    for reduction in ("none", "mean", "sum"):
        loss = LOSSES[name](2, *params, reduction=reduction)
        assert torch.equal(
            twin(scores, target, 2, *params, reduction, weight), loss(scores, target, weight)
        )


# Weights, types, and scores that are no numbers.


@pytest.mark.without_kernels
@pytest.mark.parametrize("name", [name for name in LOSSES if "label" in LOSSES[name].targets])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_targets_of_any_integer_type_are_class_indices(name, dtype):
    loss, scores, target, extra = build_any(name)
    wide = loss.eval()(scores, target, **extra)
    assert torch.equal(loss(scores, target.to(dtype), **extra), wide)


def build_any(name):
    """Return a loss by its name, scores and targets for it, and further arguments."""
    scores, target = draw(4, 5)
    supplied = {"k": 2, "class_counts": [3, 1, 4, 1, 5], "n_samples": 4, "n_classes": 5}
    if name == "noised_hinge":
        supplied["generator"] = 0
    loss = LOSSES[name].from_estimator(supplied, {})
    if "label" not in loss.targets:
        target = torch.nn.functional.one_hot(target, 5)
    given = (scores, scores.flip(1)) if loss.head == "two_head" else scores
    return loss, given, target, {"index": torch.arange(4)} if loss.uses_index else {}


@pytest.mark.parametrize("name", LOSSES)
def test_weights_are_non_negative_numbers_one_per_sample(name):
    loss, scores, target, extra = build_any(name)
    for shape in ((4, 1), (1,), (), (5,)):
        with pytest.raises(ValueError, match=r"sample_weight must have shape \(n_samples,\)"):
            loss(scores, target, torch.ones(shape), **extra)
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="sample_weight must be finite and non-negative"):
            loss(scores, target, torch.tensor([1.0, 1.0, wrong, 2.0]), **extra)
    assert torch.isfinite(loss(scores, target, torch.tensor([0, 1, 2, 3]), **extra))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("wrong", [torch.nan, -torch.inf])
def test_a_weight_of_zero_leaves_a_sample_out_whatever_its_scores(name, wrong):
    loss, given, target, extra = build_any(name)
    values, gradients = [], []
    for first in (0.0, wrong):
        pair = given if isinstance(given, tuple) else (given,)
        scores = [torch.cat([torch.full((1, 5), first), s[1:]]).requires_grad_() for s in pair]
        scored = tuple(scores) if isinstance(given, tuple) else scores[0]
        value = copy.deepcopy(loss)(scored, target, torch.tensor([0, 1, 2, 3]), **extra)
        values.append(value)
        gradients.append(torch.cat(torch.autograd.grad(value, scores)))
    assert values[0].isfinite()
    assert torch.equal(*values)
    assert torch.equal(*gradients)


class NoCopies(TorchFunctionMode):
    """Refuse tensors, and indices, made of numbers: a GPU is waited for when they are copied."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor):
            assert torch.is_tensor(args[-1])
        if func is torch.Tensor.__getitem__:
            index = args[1] if isinstance(args[1], tuple) else args[1:]
            assert not any(isinstance(each, list) for each in index)
        return func(*args, **(kwargs or {}))


@pytest.mark.without_kernels
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_a_training_step_copies_nothing_to_the_device(name, weighted):
    loss, given, target, extra = build_any(name)
    if hasattr(loss, "ranks"):
        loss.ranks = check_ranks({1: 0.5, 2: 0.5})
    weight = torch.ones(4, device="meta") if weighted else None
    pair = given if isinstance(given, tuple) else (given,)
    scores = [s.to("meta").requires_grad_() for s in pair]
    extra = {key: value.to("meta") for key, value in extra.items()}
    loss, target = loss.to("meta"), target.to("meta")
    with NoCopies():
        loss(scores if len(scores) > 1 else scores[0], target, weight, **extra).backward()


@pytest.mark.parametrize("name", LOSSES)
def test_integer_scores_are_named(name):
    loss, scores, target, extra = build_any(name)
    whole = tuple(s.long() for s in scores) if isinstance(scores, tuple) else scores.long()
    with pytest.raises(TypeError, match=r"input must hold floating-point.*int64.*input.float\(\)"):
        loss(whole, target, **extra)


@pytest.mark.parametrize("name", ALL)
def test_a_nan_score_gives_its_row_a_nan_loss_wherever_it_is(name):
    for k in (1, 2, 4):
        for n_classes in (6, 300, 2000):
            scores, target = draw(8, n_classes, dtype=torch.float32)
            places = torch.arange(7) * n_classes // 7
            scores[torch.arange(7), places] = torch.nan
            target[0] = places[0]
            loss = ALL[name](k=k, reduction="none")(scores, target)
            assert loss.isnan().tolist() == 7 * [True] + [False]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("n_classes", [6, 300, 2000])
def test_scores_that_are_all_nan_give_nan(name, n_classes):
    """As those of a network that has diverged; to look for a single one would take a pass."""
    scores, target = draw(8, n_classes, dtype=torch.float32)
    scores[2:5] = torch.nan
    loss = ALL[name](k=3, reduction="none")(scores, target)
    assert loss.isnan().tolist() == [False] * 2 + [True] * 3 + [False] * 3


@pytest.mark.parametrize("name", ALL)
def test_one_class_is_too_few(name):
    if name != "cross_entropy":
        with pytest.raises(ValueError, match="at least two classes"):
            ALL[name](k=1)(torch.zeros(3, 1), torch.zeros(3, dtype=torch.long))


def test_seeds_may_be_numpy_integers():
    scores, target = draw(6, 20)
    values = {NoisedTopKHingeLoss(3, generator=seed)(scores, target) for seed in (3, np.int64(3))}
    assert len({value.item() for value in values}) == 1


SHAPES_WITH_MASKED = [(4, 3, 3), (4, 3, 2), (50, 3, 2), (50, 20, 20), (50, 20, 5), (50, 30, 25)]
SHAPES_WITH_MASKED += [(50, 49, 3), (300, 5, 5), (700, 5, 3), (700, 30, 400), (700, 400, 350)]


@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.without_kernels)]
)
@pytest.mark.parametrize("by_products", [False, True])
def test_smoothed_hinge_of_masked_classes_is_the_limit(dtype, by_products):
    """With fewer than k finite rivals it is 0: all sets without the true class are masked."""
    for n_classes, k, n_finite in SHAPES_WITH_MASKED:
        loss = SmoothedTopKHingeLoss(k, tau=0.5, reduction="none")
        results = []
        for mask in (-torch.inf, -1e5 * k):
            scores, _ = draw(3, n_classes, seed=k, dtype=dtype)
            scores[:2, n_finite:] = mask
            scores.requires_grad_()
            value = loss(scores, torch.tensor([0, 1, 2]))
            (gradient,) = torch.autograd.grad(value.sum(), scores, create_graph=by_products)
            if by_products:
                (gradient,) = torch.autograd.grad(gradient.square().sum(), scores)
            results.append((value.detach(), gradient))
        tolerance = {"rtol": 1e-5, "atol": 1e-5}
        for masked, low in zip(*results):
            torch.testing.assert_close(masked, low, **tolerance)
        if n_finite <= k:
            assert (results[0][0][:2] == 0).all()
            assert (results[0][1][:2] == 0).all()


@pytest.mark.parametrize(
    ("value", "dtype"), [(1e-300, "float64"), (1e300, "float64"), (1e31, "float32")]
)
def test_weights_beyond_single_precision_are_refused(value, dtype):
    weight = torch.full((2,), value, dtype=getattr(torch, dtype))
    with pytest.raises(ValueError, match="sample_weight.*divide it by its mean"):
        TopKHingeLoss(2)(torch.randn(2, 4), torch.tensor([0, 1]), weight)


def test_complex_numbers_are_refused():
    scores, complex_ones = torch.randn(2, 4), torch.tensor([1j, 1])
    with pytest.raises(TypeError, match="sample_weight must hold real"):
        TopKHingeLoss(2)(scores, torch.tensor([0, 1]), complex_ones)
    with pytest.raises(TypeError, match="k must hold real"):
        sparse_top(scores, complex_ones)


def test_normals_that_are_no_tensor_are_refused():
    with pytest.raises(ValueError, match="(?s)noise must be .* as a tensor"):
        functional.noised_top_k_hinge_loss(
            torch.randn(2, 4), torch.tensor([0, 1]), 2, noise=np.zeros((1, 2, 4))
        )

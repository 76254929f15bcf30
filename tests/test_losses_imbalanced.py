"""Focal, LDAM and logit-adjusted losses against their formulas."""

import copy
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from reference_multi import focal, ldam, logit_adjusted
from torch.nn.functional import cross_entropy

from sksetvalued.losses import (
    LOSSES,
    FocalLoss,
    LDAMLoss,
    LogitAdjustedLoss,
    NoisedTopKHingeLoss,
)
from sksetvalued.losses.functional import (
    focal_loss,
    ldam_loss,
    logit_adjusted_loss,
    noised_top_k_hinge_loss,
)

CASES = {
    "focal": (lambda L: {"gamma": 1.5}, focal, focal_loss),
    "ldam": (
        lambda L: {"class_counts": COUNTS[:L], "max_margin": 0.3, "scale": 7.0},
        ldam,
        ldam_loss,
    ),
    "logit_adjusted": (
        lambda L: {"class_counts": COUNTS[:L], "tau": 0.7},
        logit_adjusted,
        logit_adjusted_loss,
    ),
}
COUNTS = [40, 3, 11, 100, 7, 3, 1000, 20]
names = pytest.mark.parametrize("name", CASES)


def draw(n, n_classes, seed=0, dtype=torch.float64, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    return scores.to(dtype), torch.randint(n_classes, (n,), generator=generator)


def build(name, n_classes=5, **kwargs):
    return LOSSES[name](**CASES[name][0](n_classes), **kwargs)


@names
@pytest.mark.parametrize("n_classes", range(3, 9))
def test_values_equal_the_formula(name, n_classes):
    params, reference, _ = CASES[name]
    params = params(n_classes)
    values = {"class_counts": "counts"}
    scores, target = draw(6, n_classes, seed=n_classes)
    expected = [
        reference(s.tolist(), y.item(), **{values.get(k, k): v for k, v in params.items()})
        for s, y in zip(scores, target)
    ]
    got = build(name, n_classes, reduction="none")(scores, target)
    np.testing.assert_allclose(got, expected, atol=1e-10, rtol=0)


@pytest.mark.without_kernels
@names
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_gradients_and_second_gradients(name, reduction):
    scores, target = draw(3, 5)
    loss = build(name, reduction=reduction)
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: loss(s, target), scores)
    assert torch.autograd.gradgradcheck(lambda s: loss(s, target), scores)


@names
def test_transforms_give_the_gradient_of_each_sample(name):
    scores, target = draw(3, 5)
    loss = build(name, reduction="sum")
    each = torch.vmap(torch.func.grad(lambda s, t: loss(s[None], t[None])))(scores, target)
    torch.testing.assert_close(each, torch.func.grad(loss)(scores, target))


@names
def test_function_twin_is_the_module(name):
    scores, target = draw(4, 5)
    for reduction in ("none", "mean", "sum"):
        expected = build(name, reduction=reduction)(scores, target)
        got = CASES[name][2](scores, target, **CASES[name][0](5), reduction=reduction)
        assert torch.equal(got, expected)
        weight = torch.tensor([2.0, 0.0, 1.0, 0.5])
        expected = build(name, reduction=reduction)(scores, target, weight)
        params = {**CASES[name][0](5), "reduction": reduction, "sample_weight": weight}
        assert torch.equal(CASES[name][2](scores, target, **params), expected)


@pytest.mark.parametrize(
    "build_with",
    [
        LDAMLoss,
        LogitAdjustedLoss,
        lambda counts: NoisedTopKHingeLoss(1, class_counts=counts, max_margin=0.2),
    ],
    ids=["ldam", "logit_adjusted", "noised_hinge"],
)
def test_counts_of_the_caller_are_copied(build_with):
    for counts in (torch.tensor([3.0, 1.0]), np.array([3.0, 1.0])):
        loss = build_with(counts)
        counts[0] = 100.0
        assert loss.class_counts.tolist() == [3, 1]


@pytest.mark.parametrize("build_with", [LDAMLoss, LogitAdjustedLoss])
def test_counts_beyond_whole_numbers_stay_counts(build_with):
    scores, target = torch.tensor([[9.0, 0, 0]]), torch.tensor([1])
    whole, near = (build_with([1e20, 1.0, last])(scores, target) for last in (5.0, 5.0000001))
    torch.testing.assert_close(whole, near)


@names
def test_reductions_and_weights_agree(name):
    scores, target = draw(3, 5)
    each = build(name, reduction="none")(scores, target)
    weight = torch.tensor([2.0, 0.0, 1.0])
    rows = torch.tensor([0, 0, 2])
    assert torch.allclose(build(name)(scores, target), each.mean())
    assert torch.allclose(
        build(name)(scores, target, sample_weight=weight), build(name)(scores[rows], target[rows])
    )


@names
def test_permuting_classes_permutes_the_gradient(name):
    scores, target = draw(4, 5)
    order = torch.tensor([3, 0, 4, 1, 2])
    loss, moved = build(name), build(name)
    if hasattr(loss, "class_counts"):
        moved.class_counts = loss.class_counts[order]
    a, b = scores.clone().requires_grad_(), scores[:, order].clone().requires_grad_()
    loss(a, target).backward()
    moved(b, order.argsort()[target]).backward()
    assert torch.allclose(a.grad[:, order], b.grad)


def test_limits_are_the_cross_entropy():
    scores, target = draw(5, 6)
    expected = cross_entropy(scores, target)
    assert torch.allclose(FocalLoss(gamma=0)(scores, target), expected)
    assert torch.allclose(LogitAdjustedLoss(COUNTS[:6], tau=0)(scores, target), expected)
    assert torch.allclose(LogitAdjustedLoss([9] * 6)(scores, target), expected)
    ldam0 = LDAMLoss(COUNTS[:6], max_margin=0.0, scale=1.0)
    assert torch.allclose(ldam0(scores, target), expected)


def test_ldam_margin_is_taken_before_the_scale():
    scores, target = draw(5, 4, scale=0.3)
    inside = LDAMLoss([5] * 4, max_margin=0.2, scale=60.0)(scores, target)
    outside = LDAMLoss([5] * 4, max_margin=12.0, scale=1.0)(60 * scores, target)
    assert torch.allclose(inside, outside)


def test_reprs_hold_the_parameters_but_no_arrays():
    assert repr(FocalLoss(3.0)) == "FocalLoss(gamma=3.0, reduction='mean')"
    loss = LDAMLoss([1, 16], 0.2)
    assert repr(loss) == "LDAMLoss(max_margin=0.2, scale=30.0, reduction='mean')"


def test_ldam_declares_a_cosine_head_and_scales_its_scores():
    loss = LDAMLoss([1, 2, 3], scale=30.0)
    cosines = torch.tensor([[0.1, -0.2, 1.0]])
    assert loss.head == "cosine"
    assert torch.equal(loss.scores(cosines), 30.0 * cosines)


@pytest.mark.parametrize("tau", [0.0, 0.4, 1.0, 1.5])
def test_logit_adjusted_scores_keep_the_declared_power_of_the_prior(tau):
    # The minimiser of the risk at p_y(x) is, up to a constant, log p - tau log prior.
    counts = torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64)
    prior, p = counts / counts.sum(), torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    loss = LogitAdjustedLoss(counts, tau=tau)
    assert loss.prior_exponent == 1 - tau
    likelihood = p / prior
    scores = (likelihood.log() + loss.prior_exponent * prior.log()).expand(3, 3)
    scores = scores.clone().requires_grad_()
    loss(scores, torch.arange(3), sample_weight=p).backward()
    assert scores.grad.sum(0).abs().max() < 1e-12


@names
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_float32_is_stable(name, size):
    scores, target = draw(8, 5, scale=size, dtype=torch.float32)
    scores[0] = 0.0
    scores[1] = size
    wide = scores.double().requires_grad_()
    scores.requires_grad_()
    loss = build(name)
    loss(scores, target).backward()
    loss(wide, target).backward()
    assert torch.isfinite(scores.grad).all()
    assert (scores.grad - wide.grad).abs().max() <= 1e-5 * wide.grad.abs().max()


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_gradient_is_finite_at_probability_one(gamma):
    scores = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    loss = FocalLoss(gamma)(scores, torch.tensor([0]))
    (grad,) = torch.autograd.grad(loss, scores, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), scores)
    assert torch.equal(grad, torch.zeros_like(grad))
    assert torch.isfinite(second).all()


@names
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(name, dtype):
    scores, target = draw(4, 5, dtype=dtype)
    loss = build(name)(scores, target)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, build(name)(scores.float(), target))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert build(name)(scores, target).dtype == torch.float32


@names
def test_moves_pickles_and_copies(name):
    scores, target = draw(4, 5)
    loss = build(name)
    expected = loss(scores, target)
    assert torch.equal(pickle.loads(pickle.dumps(loss))(scores, target), expected)
    assert torch.equal(copy.deepcopy(loss)(scores, target), expected)
    assert copy.deepcopy(loss).to("meta")(scores.to("meta"), target.to("meta")).is_meta


@pytest.mark.parametrize(
    "loss",
    [ldam_loss, logit_adjusted_loss, partial(noised_top_k_hinge_loss, k=1, max_margin=0.5)],
)
def test_functions_move_the_counts_to_the_scores(loss):
    scores, target = (x.to("meta") for x in draw(4, 5))
    assert loss(scores, target, class_counts=COUNTS[:5]).is_meta
    with pytest.raises(TypeError, match="input must be a tensor, got list"):
        loss([[1.0, 2.0]], target, class_counts=COUNTS[:2])


@names
def test_estimator_supplies_what_the_loss_takes(name):
    supplied = {"k": 3, "class_counts": [1, 2, 3], "max_margin": None, "n_classes": 3}
    loss = LOSSES[name].from_estimator(supplied, {"reduction": "sum"})
    assert type(loss) is LOSSES[name]
    assert loss.reduction == "sum"


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: FocalLoss(gamma=-1.0), ValueError, "gamma must be finite and at least 0"),
        (lambda: FocalLoss(gamma="2"), TypeError, "gamma must be a number"),
        (lambda: FocalLoss(gamma=float("nan")), ValueError, "gamma"),
        (lambda: FocalLoss(reduction="avg"), ValueError, "reduction must be one of"),
        (lambda: LDAMLoss([1, 2], max_margin=-0.1), ValueError, "max_margin"),
        (lambda: LDAMLoss([1, 2], scale=0.0), ValueError, "scale must be finite and above 0"),
        (lambda: LDAMLoss([4, 0, 2]), ValueError, r"classes \[1\] have counts \[0\]"),
        (lambda: LogitAdjustedLoss([4, 2, -1]), ValueError, r"classes \[2\]"),
        (lambda: LogitAdjustedLoss([[1, 2]]), ValueError, "one count per class"),
        (lambda: LogitAdjustedLoss([1, 2], tau=-1), ValueError, "tau"),
        (
            lambda: LogitAdjustedLoss([1, 2])(torch.zeros(1, 3), torch.tensor([0])),
            ValueError,
            "one entry for each of the 3",
        ),
        (
            lambda: LDAMLoss([1, 2])(torch.zeros(1, 3), torch.tensor([0])),
            ValueError,
            "class_counts",
        ),
        (
            lambda: FocalLoss()(torch.zeros(3), torch.tensor([0])),
            ValueError,
            "n_samples, n_classes",
        ),
        (lambda: FocalLoss()(torch.zeros(1, 3), torch.tensor([3])), ValueError, r"\[0, 2\]"),
    ],
)
def test_bad_input_is_named(build, error, message):
    with pytest.raises(error, match=message):
        build()


with_counts = pytest.mark.parametrize(
    "make",
    [
        LDAMLoss,
        LogitAdjustedLoss,
        lambda counts: NoisedTopKHingeLoss(2, 0.0, class_counts=counts, max_margin=0.5),
    ],
)


@with_counts
def test_counts_with_fractions_are_loaded_as_they_are(make):
    scores, target = torch.randn(8, 3), torch.arange(8) % 3
    saved, loss = make([1.5, 2.5, 7.0]), make([1, 2, 7])
    loss.load_state_dict(saved.state_dict())
    assert torch.equal(loss(scores, target), saved(scores, target))


def test_what_is_left_of_the_prior_follows_tau():
    loss = LogitAdjustedLoss([1, 2], tau=0.25)
    assert loss.prior_exponent == 0.75
    loss.tau = 2.0
    assert loss.prior_exponent == -1.0


@with_counts
def test_counts_are_not_rounded_with_the_weights_of_a_module(make):
    scores, target = torch.randn(8, 5).half(), torch.arange(8) % 5
    counts = torch.tensor([1e5, 10, 3, 7, 50], requires_grad=True)
    loss = copy.deepcopy(make(counts)).half()
    assert torch.equal(loss(scores, target), make(counts.detach().int())(scores, target))


@with_counts
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_counts_with_fractions_keep_their_type(make, dtype):
    scores, target = torch.randn(8, 3), torch.arange(8) % 3
    loss = make([100000.5, 3.0, 7.0])
    expected = loss(scores, target)
    assert torch.equal(loss.to(dtype)(scores, target), expected)


@with_counts
@pytest.mark.parametrize("counts", [np.array([1e300, 1e300, 7.0]), [1e-30, 1e30, 7.0]])
def test_counts_beyond_single_precision_are_refused(make, counts):
    with pytest.raises(ValueError, match="class_counts must have a sum.*single precision"):
        make(counts)


def test_a_true_class_out_of_question_has_a_finite_focal_gradient():
    scores = torch.tensor([[-torch.inf, 2.0, 1.0]], requires_grad=True)
    FocalLoss()(scores, torch.tensor([0])).backward()
    assert scores.grad.isfinite().all()


@pytest.mark.filterwarnings("error")
def test_numbers_in_half_precision_are_numbers():
    assert FocalLoss(np.float16(2)).gamma == 2
    with pytest.raises(ValueError, match="^gamma must be finite"):
        FocalLoss(np.float16(np.inf))

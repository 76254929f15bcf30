"""Sparse-top, sparsemax and multi-label cross-entropy losses."""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from entmax import sparsemax_loss as entmax_loss
from reference_multi import log_sigmoid, project_by_bisection, sparse_top_loss

from sksetvalued.losses import LOSSES, BinaryCrossEntropyLoss, SparsemaxLoss, SparseTopLoss
from sksetvalued.losses import functional as F
from sksetvalued.operators import sparse_top, sparsemax

NAMES = ("sparse_top", "sparsemax", "bce")
names = pytest.mark.parametrize("name", NAMES)


def draw(n, n_classes, scale=1.0, seed=0, dtype=torch.float64, density=0.4):
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    target = (torch.rand(n, n_classes, generator=generator) < density).long()
    return scores.to(dtype), target


def labels_of(row):
    return row.nonzero()[:, 0].tolist()


@pytest.mark.without_kernels
@pytest.mark.parametrize("n_classes", range(3, 9))
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_sparse_top_equals_the_formula_for_every_label_set(n_classes, scale):
    scores, _ = draw(1, n_classes, scale, seed=n_classes)
    target = torch.tensor([t for t in itertools.product([0, 1], repeat=n_classes) if any(t)])
    got = SparseTopLoss(reduction="none")(scores.expand(len(target), -1), target)
    for value, row in zip(got.tolist(), target, strict=True):
        labels = labels_of(row)
        expected = sparse_top_loss(scores[0].numpy(), labels, len(labels))
        assert abs(value - expected) < 1e-10


@pytest.mark.parametrize("n_classes", [3, 8, 3000])
def test_sparsemax_equals_entmax_and_its_definition(n_classes):
    scores, target = draw(6, n_classes)
    classes = torch.arange(6) % n_classes
    got = SparsemaxLoss(reduction="none")(scores, classes)
    torch.testing.assert_close(got, entmax_loss(scores, classes))
    # Omega*(s) + Omega(p) - <s, p> with Omega = |.|^2 / 2 on the simplex.
    target[:, 0] = 1
    p = target / target.sum(1, keepdim=True)
    q = torch.as_tensor(project_by_bisection(scores, 1))
    expected = ((scores * (q - p)).sum(1) - (q**2).sum(1) / 2 + (p**2).sum(1) / 2).double()
    got = SparsemaxLoss(reduction="none")(scores, target)
    torch.testing.assert_close(got, expected)


def test_bce_equals_the_formula():
    scores, target = draw(4, 6)
    expected = [
        -sum(log_sigmoid(z if y else -z) for z, y in zip(s.tolist(), t.tolist()))
        for s, t in zip(scores, target)
    ]
    loss = BinaryCrossEntropyLoss(reduction="none")
    torch.testing.assert_close(loss(scores, target), torch.tensor(expected, dtype=torch.float64))
    # A label of probability zero, rightly so, costs nothing and has no gradient.
    padded = torch.nn.functional.pad(scores, (0, 1), value=-torch.inf).requires_grad_()
    got = loss(padded, torch.nn.functional.pad(target, (0, 1)))
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64))
    got.sum().backward()
    assert torch.equal(padded.grad[:, -1], torch.zeros(4, dtype=torch.float64))


@pytest.mark.without_kernels
@names
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_gradients_and_second_gradients(name, reduction):
    scores, target = draw(4, 6, scale=0.6)
    loss = LOSSES[name](reduction=reduction)
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: loss(s, target), scores)
    assert torch.autograd.gradgradcheck(lambda s: loss(s, target), scores)


@pytest.mark.parametrize("n_classes", [6, 4000])
def test_gradients_are_projections_minus_targets(n_classes):
    scores, target = draw(4, n_classes, density=6 / n_classes)
    scores.requires_grad_()
    (grad,) = torch.autograd.grad(SparseTopLoss(reduction="sum")(scores, target), scores)
    q = sparse_top(scores.detach(), target.sum(1))
    torch.testing.assert_close(grad, q - target)
    (grad,) = torch.autograd.grad(SparsemaxLoss(reduction="sum")(scores, torch.arange(4)), scores)
    one_hot = torch.nn.functional.one_hot(torch.arange(4), n_classes)
    torch.testing.assert_close(grad, sparsemax(scores.detach()) - one_hot)


@pytest.mark.parametrize("margin", [0.5, 1.0, 8.0])
@pytest.mark.parametrize("loss", [SparseTopLoss, SparsemaxLoss])
def test_the_margin_is_the_weight_of_the_squared_norm(loss, margin):
    scores, target = draw(20, 7, scale=2 * margin)
    target[:, 0] = 1
    size = target.sum(1) if loss is SparseTopLoss else torch.ones(20)
    p = target * (size / target.sum(1))[:, None]
    rows = scores.numpy() / margin
    q = torch.as_tensor(
        np.concatenate([project_by_bisection(r, k) for r, k in zip(rows[:, None], size.tolist())])
    )
    # m Omega, and its conjugate, whose maximum is at the projection of s / m.
    expected = (scores * (q - p)).sum(1) + margin * ((p**2).sum(1) - (q**2).sum(1)) / 2
    scores.requires_grad_()
    got = loss("none", margin)(scores, target)
    torch.testing.assert_close(got, expected.double())
    (grad,) = torch.autograd.grad(got.sum(), scores)
    torch.testing.assert_close(grad, (q - p).double())


@pytest.mark.parametrize("margin", [0, -1.0, float("nan"), float("inf")])
def test_a_margin_that_is_none_is_named(margin):
    with pytest.raises(ValueError, match=r"margin must be finite and above 0"):
        SparseTopLoss(margin=margin)


def test_with_one_label_sparse_top_is_sparsemax():
    scores, _ = draw(5, 7)
    one_hot = torch.nn.functional.one_hot(torch.arange(5), 7)
    expected = SparsemaxLoss(reduction="none")(scores, torch.arange(5))
    for loss in (SparseTopLoss, SparsemaxLoss):
        torch.testing.assert_close(loss(reduction="none")(scores, one_hot), expected)


@pytest.mark.parametrize("name", ["sparse_top", "sparsemax", "bce"])
def test_convex_and_non_negative_along_random_segments(name):
    loss = LOSSES[name](reduction="none")
    a, target = draw(500, 6, scale=2.0, seed=1)
    b, _ = draw(500, 6, scale=2.0, seed=2)
    ends = (loss(a, target) + loss(b, target)) / 2
    assert (loss((a + b) / 2, target) <= ends + 1e-12).all()
    assert (loss(a, target) >= 0).all()


@pytest.mark.parametrize("margin", [1, 2.5])
def test_sparse_top_is_zero_exactly_when_labels_lead_by_the_margin(margin):
    scores, target = draw(2000, 4, scale=1.5)
    keep = (target.sum(1) > 0) & (target.sum(1) < 4)
    scores, target = scores[keep], target[keep].bool()
    worst = scores.masked_fill(~target, torch.inf).amin(1)
    rival = scores.masked_fill(target, -torch.inf).amax(1)
    loss = SparseTopLoss("none", margin)(scores, target)
    assert torch.equal(loss == 0, worst >= rival + margin)
    assert 20 < (loss == 0).sum() < len(loss) - 20
    # On the edge itself.
    edge = SparseTopLoss()(torch.tensor([[2.0, 2.5, 1.0]]), torch.tensor([[1, 1, 0]]))
    assert edge == 0


def test_samples_without_labels_or_with_all_count_nothing():
    scores, _ = draw(2, 5)
    scores.requires_grad_()
    target = torch.tensor([[0] * 5, [1] * 5])
    loss = SparseTopLoss(reduction="sum")(scores, target)
    loss.backward()
    assert loss == 0
    assert torch.equal(scores.grad, torch.zeros_like(scores))
    empty = SparsemaxLoss(reduction="none")(scores, target)[0]
    assert empty == 0


@names
def test_reductions_weights_and_function_twins_agree(name):
    scores, target = draw(3, 5)
    each = LOSSES[name](reduction="none")(scores, target)
    weight = torch.tensor([2.0, 0.0, 1.0])
    rows = torch.tensor([0, 0, 2])
    loss = LOSSES[name]()
    assert torch.allclose(loss(scores, target), each.mean())
    weighted = loss(scores, target, sample_weight=weight)
    assert torch.allclose(weighted, loss(scores[rows], target[rows]))
    twin = {"bce": F.binary_cross_entropy_loss, "sparse_top": F.sparse_top_loss}.get(
        name, F.sparsemax_loss
    )
    for reduction in ("none", "mean", "sum"):
        expected = LOSSES[name](reduction=reduction)(scores, target)
        assert torch.equal(twin(scores, target, reduction=reduction), expected)
        expected = LOSSES[name](reduction=reduction)(scores, target, weight)
        assert torch.equal(twin(scores, target, reduction, sample_weight=weight), expected)
    if name != "bce":
        expected = LOSSES[name](margin=3.0)(scores, target)
        assert torch.equal(twin(scores, target, margin=3.0), expected)


@names
def test_permuting_classes_and_the_type_of_targets_change_nothing(name):
    scores, target = draw(3, 5)
    loss = LOSSES[name](reduction="none")
    order = torch.tensor([3, 0, 4, 1, 2])
    expected = loss(scores, target)
    torch.testing.assert_close(loss(scores[:, order], target[:, order]), expected)
    for dtype in (torch.bool, torch.uint8, torch.float32):
        assert torch.equal(loss(scores, target.to(dtype)), expected)


@names
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("n_classes", [6, 4000])
def test_float32_is_stable(name, scale, n_classes):
    scores, target = draw(6, n_classes, scale, dtype=torch.float32, density=2 / n_classes)
    scores[0] = 0.0
    scores[1] = scale
    values, grads = [], []
    for dtype in (torch.float32, torch.float64):
        s = scores.to(dtype, copy=True).requires_grad_()
        value = LOSSES[name](reduction="none")(s, target)
        value.sum().backward()
        values.append(value.detach().double())
        grads.append(s.grad.double())
    assert torch.isfinite(grads[0]).all()
    torch.testing.assert_close(values[0], values[1], rtol=1e-5, atol=1e-6)
    assert (grads[0] - grads[1]).abs().max() <= 1e-5 * grads[1].abs().max()


@names
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(name, dtype):
    scores, target = draw(3, 5, dtype=dtype)
    loss = LOSSES[name]()
    assert torch.equal(loss(scores, target), loss(scores.float(), target))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert loss(scores, target).dtype == torch.float32


@names
def test_moves_pickles_copies_and_repeats_backward(name):
    scores, target = draw(3, 5)
    loss = LOSSES[name]()
    expected = loss(scores.requires_grad_(), target)
    for other in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):
        assert torch.equal(other(scores, target), expected)
    first, second = (torch.autograd.grad(expected, scores, retain_graph=True)[0] for _ in "ab")
    assert torch.equal(first, second)
    assert loss.to("meta")(scores.detach().to("meta"), target.to("meta")).is_meta


def test_constant_scores_have_the_value_of_the_formula():
    # At equal scores the projection is uniform, k / L.
    target = torch.tensor([[1, 1, 0, 0, 0]])
    expected = 2 / 2 - 2**2 / (2 * 5)
    got = SparseTopLoss()(torch.zeros(1, 5, dtype=torch.float64), target)
    assert math.isclose(got.item(), expected, rel_tol=1e-12)


@pytest.mark.parametrize(
    ("name", "form"), [("sparsemax", "classes"), *((name, "indicators") for name in NAMES)]
)
@pytest.mark.parametrize("n_classes", [6, 300])
def test_transforms_give_the_derivatives_of_plain_calls(name, form, n_classes):
    scores, target = draw(4, n_classes, dtype=torch.float32, density=3 / n_classes)
    target = torch.arange(4) if form == "classes" else target
    weight, loss = torch.tensor([1.0, 0.5, 0.0, 2.0]), LOSSES[name](reduction="sum")
    leaf = scores.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(leaf, target, weight), leaf)
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(torch.func.grad(loss)(scores, target, weight), expected, **close)

    def of_one(score, target, weight):
        return loss(score[None], target[None], weight[None])

    each = torch.vmap(torch.func.grad(of_one))(scores, target, weight)
    torch.testing.assert_close(each, expected, **close)
    along = draw(4, n_classes, seed=1, dtype=torch.float32)[0]
    _, tangent = torch.func.jvp(lambda s: loss(s, target, weight), (scores,), (along,))
    torch.testing.assert_close(tangent, (expected * along).sum(), **close)
    assert tangent != 0
    if n_classes == 6:
        hessian = torch.func.hessian(lambda s: loss(s, target, weight))(scores)
        by_rows = torch.autograd.functional.hessian(lambda s: loss(s, target, weight), scores)
        torch.testing.assert_close(hessian, by_rows, **close)


S, Y = torch.zeros(2, 3), torch.tensor([[1, 0, 0], [0, 1, 1]])


@names
@pytest.mark.parametrize(
    ("scores", "target", "message"),
    [
        (S, 2 * Y, "only zeros and ones"),
        (S, -Y, "only zeros and ones"),
        (S, Y * float("nan"), "only zeros and ones"),
        (S, Y[:, :2], "of the shape of input"),
        (S[0], Y, "n_samples, n_classes"),
    ],
)
def test_bad_input_is_named(name, scores, target, message):
    with pytest.raises(ValueError, match=message):
        LOSSES[name]()(scores, target)


def test_class_indices_are_for_sparsemax_alone():
    with pytest.raises(ValueError, match="indicator"):
        SparseTopLoss()(S, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"\[0, 2\]"):
        SparsemaxLoss()(S, torch.tensor([0, 3]))


@pytest.mark.parametrize("name", ["sparse_top", "sparsemax"])
@pytest.mark.parametrize("n_classes", [4, 100, 600, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masked_classes_count_as_classes_far_below(name, n_classes, dtype):
    results = []
    for mask in (-math.inf, -1e4):
        scores = torch.full((3, n_classes), mask, dtype=dtype)
        scores[:, :3] = torch.tensor([2.0, 0.5, 0.0], dtype=dtype)
        scores[1, 3], scores[2] = -1.0, torch.linspace(0, 1, n_classes)
        target = torch.zeros(3, n_classes)
        target[:, 0] = target[:, 1] = 1
        scores.requires_grad_()
        value = LOSSES[name](reduction="none")(scores, target)
        results.append((value, *torch.autograd.grad(value.sum(), scores)))
    for masked, low in zip(*results):
        torch.testing.assert_close(masked, low)
    if name == "sparse_top":
        assert results[0][0][:2].tolist() == [0.0625, 0.0625]
    # A label that cannot be chosen costs without limit; NaN stays NaN.
    target[:, 3] = 1
    scores = torch.full((2, n_classes), -math.inf, dtype=dtype)
    scores[:, :3], scores[1, 0] = 1.0, math.nan
    loss = LOSSES[name](reduction="none")(scores, target[:2])
    assert loss[0] == math.inf
    assert loss[1].isnan()


@names
def test_indicators_may_have_half_precision(name):
    scores, target = draw(3, 5)
    loss = LOSSES[name]()
    for dtype in (torch.bfloat16, torch.float16):
        assert torch.equal(loss(scores, target.to(dtype)), loss(scores, target))
        with pytest.raises(ValueError, match="only zeros and ones"):
            loss(scores, 2 * target.to(dtype))

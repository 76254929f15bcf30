"""The compiled kernels of the projection and its loss against their definition."""

import math
from functools import partial

import pytest
import torch

from sksetvalued.losses import SparsemaxLoss
from sksetvalued.operators import sparse_top
from sksetvalued.operators._dispatch import kernels
from sksetvalued.operators.projection import fenchel_young_loss, reference

pytestmark = [
    pytest.mark.skipif(kernels is None, reason="the kernels are not built"),
    pytest.mark.usefixtures("instruction_set"),
]

KINDS = ["random", "ties", "constant", "leader", "masked", "wide", "shifted"]
SIZES = [1, 5, 60, 1000, 20_011]


def draw(n, n_classes, kind="random", seed=0):
    """Draw scores in single precision, so that double precision holds the same ones."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, n_classes, generator=generator)
    if kind == "ties":
        scores = scores.round()
    elif kind == "constant":
        scores = torch.full_like(scores, 0.3)
    elif kind == "leader":
        scores = 1e-5 * scores
        scores[:, n_classes // 3] = 0.5
    elif kind == "masked":
        scores[:, 1 + n_classes // 2 :] = -math.inf
    elif kind == "wide":
        scores = scores.sign() * 10 ** (20 * scores.abs() - 20).clamp(max=30)
    elif kind == "shifted":
        scores = scores + 1e6
    return scores


def sizes_for(n_classes, kind):
    most = 1 + n_classes // 2 if kind == "masked" else n_classes
    sizes = (0, 0.3, 1, 2.5, 5, most / 2, most - 0.5, most)
    # Long rows take long to sort: the sizes between are those of the shorter ones.
    return [k for k in sizes[:: 3 if n_classes > 10_000 else 1] if k <= most]


def draw_labels(n, n_classes, n_labels, seed=1):
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(n, n_classes, generator=generator).argsort(1)
    return (order < n_labels).float()


def test_kernels_are_what_the_operator_and_the_losses_use():
    scores = draw(2, 9).requires_grad_()
    for value in (sparse_top(scores, 2), fenchel_young_loss(scores, torch.arange(2), True)):
        assert value.grad_fn._forward_cls.__module__ == "sksetvalued.operators.projection.cpu"


@pytest.mark.parametrize("n_classes", SIZES)
def test_projection_and_gradient_are_those_of_the_definition(n_classes):
    for kind in KINDS:
        scores = draw(3, n_classes, kind)
        grad = draw(3, n_classes, seed=1)
        for k in sizes_for(n_classes, kind):
            got = scores.clone().requires_grad_()
            q = sparse_top(got, k)
            q.backward(grad)
            exact = reference.project(scores.double(), torch.tensor(k, dtype=torch.float64))
            torch.testing.assert_close(q.double(), exact, rtol=2e-6, atol=1e-9)
            # Entries within rounding of 0 and 1 may count as inside in one precision only.
            inside = ((q > 0) & (q < 1)).double()
            mean = (grad * inside).sum(1, keepdim=True) / inside.sum(1, keepdim=True).clamp(min=1)
            expected = inside * (grad.double() - mean)
            torch.testing.assert_close(got.grad.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n_classes", [1, 60, 3000])
def test_one_size_per_row_is_each_row_alone(n_classes):
    for kind in KINDS:
        sizes = torch.tensor(sizes_for(n_classes, kind), dtype=torch.float64)
        scores = draw(len(sizes), n_classes, kind)
        rows = [sparse_top(s[None], k.item()) for s, k in zip(scores, sizes)]
        assert torch.equal(sparse_top(scores, sizes), torch.cat(rows))


@pytest.mark.parametrize("n_classes", [4, 300, 9000])
def test_rows_that_have_no_projection_are_nan_alone(n_classes):
    scores = draw(5, n_classes)
    expected = sparse_top(scores, 2)
    scores[1, n_classes // 2] = math.nan
    scores[3] = -math.inf
    q = sparse_top(scores.requires_grad_(), 2)
    assert q[[1, 3]].isnan().all()
    assert torch.equal(q[[0, 2, 4]], expected[[0, 2, 4]])
    labels = draw_labels(5, n_classes, 2)
    losses = fenchel_young_loss(scores, labels, False)
    assert losses.isnan().tolist() == [False, True, False, True, False]
    (grad,) = torch.autograd.grad(losses.sum(), scores)
    torch.testing.assert_close(grad[[0, 2, 4]], (expected - labels)[[0, 2, 4]])


@pytest.mark.parametrize("n_classes", SIZES)
@pytest.mark.parametrize("shared", [False, True])
def test_losses_and_gradients_are_those_of_the_definition(n_classes, shared):
    for kind in KINDS:
        scores, weight = draw(3, n_classes, kind), torch.tensor([1.0, -2.0, 0.5])
        for n_labels in {0, 1, min(5, n_classes // 2), n_classes // 2}:
            labels = draw_labels(3, n_classes, n_labels)
            if kind == "masked":
                labels[scores == -math.inf] = 0
            results = []
            for compute, dtype in (
                (fenchel_young_loss, torch.float32),
                (reference.fenchel_young, torch.float64),
            ):
                s = scores.to(dtype).requires_grad_()
                losses = compute(s, labels, shared)
                (grad,) = torch.autograd.grad(losses, s, weight.to(dtype))
                results.append((losses.detach().double(), grad.double()))
            torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-6, atol=1e-9)
            torch.testing.assert_close(results[0][1], results[1][1], rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("n_classes", [3, 100, 4000])
def test_classes_are_indicators_of_one_label(n_classes):
    target = torch.arange(6) % n_classes
    one_hot = torch.nn.functional.one_hot(target, n_classes)
    results = []
    for labels in (target, target.int(), one_hot, one_hot.bool(), one_hot.half()):
        scores = draw(6, n_classes).requires_grad_()
        losses = SparsemaxLoss(reduction="none")(scores, labels)
        losses.sum().backward()
        results.append(torch.cat([losses.detach()[:, None], scores.grad], 1))
    for other in results[1:]:
        assert torch.equal(other, results[0])


def test_targets_that_do_not_fit_are_named():
    scores = draw(2, 4)
    for target in (torch.tensor([0, 4]), torch.tensor([-1, 0])):
        with pytest.raises(ValueError, match=r"target must lie in \[0, 3\]"):
            fenchel_young_loss(scores, target, True)
    for shape in ((3,), (2, 5), (1, 4)):
        with pytest.raises(ValueError, match="target must have the shape"):
            fenchel_young_loss(scores, torch.zeros(shape, dtype=torch.int64), True)


def run_twice(function, scores):
    """Return the gradient of a weighted sum, and the derivatives of its square's sum."""
    scores = scores.detach().requires_grad_()
    (grad,) = torch.autograd.grad(function(scores).sum(), scores, create_graph=True)
    scale = torch.ones((), dtype=scores.dtype, requires_grad=True)
    value = (function(scores) * scale).sum()
    (scaled,) = torch.autograd.grad(value, scores, create_graph=True)
    second = torch.autograd.grad(scaled.square().sum(), [scale, scores], allow_unused=True)
    return grad.detach(), *(torch.zeros(()) if x is None else x for x in second)


@pytest.mark.parametrize("n_classes", [8, 700])
def test_second_derivatives_are_those_of_the_definition(n_classes):
    labels, weight = draw_labels(3, n_classes, 3), draw(3, n_classes, seed=2)
    three = torch.tensor(3.0, dtype=torch.float64)
    pairs = [(lambda s: sparse_top(s, 3) * weight, lambda s: reference.project(s, three) * weight)]
    for shared in (False, True):
        pairs.append(
            [
                partial(f, target=labels, shared=shared)
                for f in (fenchel_young_loss, reference.fenchel_young)
            ]
        )
    for compute, defined in pairs:
        scores = draw(3, n_classes)
        both = run_twice(compute, scores), run_twice(defined, scores.double())
        for got, expected in zip(*both):
            torch.testing.assert_close(got.double(), expected.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n_classes", [8, 700, 70_000])
def test_strides_and_repeated_backward_change_nothing(n_classes):
    scores, weight = draw(4, n_classes), draw(4, n_classes, seed=1)
    labels = draw_labels(4, n_classes, 2)
    for function in (
        lambda s: sparse_top(s, 2),
        lambda s: fenchel_young_loss(s, labels, False)[:, None],
        lambda s: fenchel_young_loss(s, labels.t().contiguous().t(), False)[:, None],
    ):
        plain = scores.clone().requires_grad_()
        strided = scores.t().contiguous().t().requires_grad_()
        gap = torch.stack([scores, scores], 2)[..., 1].requires_grad_()
        some = weight if function(plain).shape[1] > 1 else weight[:, :1].contiguous()
        expected = torch.autograd.grad(function(plain), plain, some)[0]
        for other in (strided, gap):
            value = function(other)
            assert torch.equal(value, function(plain))
            for grad in (some, some.t().contiguous().t(), some):
                got = torch.autograd.grad(value, other, grad, retain_graph=True)[0]
                assert torch.equal(got, expected)
        ones = torch.ones(()).expand_as(some)
        by_sum = torch.autograd.grad(function(plain).sum(), plain)[0]
        assert torch.equal(by_sum, torch.autograd.grad(function(plain), plain, ones.clone())[0])


def test_no_rows_and_no_classes():
    for shape in ((0, 7), (0, 5000), (3, 0)):
        scores = torch.zeros(shape, requires_grad=True)
        k = min(shape[1], 2)
        (grad,) = torch.autograd.grad(sparse_top(scores, k).sum(), scores)
        assert grad.shape == shape
        losses = fenchel_young_loss(scores, torch.zeros(shape), False)
        assert torch.equal(losses, torch.zeros(shape[0]))
        (grad,) = torch.autograd.grad(losses.sum(), scores)
        assert grad.shape == shape


def test_instruction_sets_agree(instruction_set):
    scores, labels = draw(5, 3000), draw_labels(5, 3000, 4)
    results = []
    for name in (instruction_set, "baseline"):
        kernels.use_instruction_set(name)
        s = scores.clone().requires_grad_()
        losses = fenchel_young_loss(s, labels, False)
        (losses.sum() + (sparse_top(s, 4) * labels).sum()).backward()
        results.append((sparse_top(scores, 4), losses.detach(), s.grad))
    for got, expected in zip(*results):
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-7)

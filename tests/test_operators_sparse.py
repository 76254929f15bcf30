"""The projections on the top-K simplex against other solvers and their optimality conditions."""

import numpy as np
import pytest
import torch
from entmax import sparsemax as entmax_sparsemax
from reference_multi import project_by_bisection
from scipy.optimize import minimize

from sksetvalued.operators import sparse_top, sparsemax

KINDS = ["random", "ties", "grid", "constant", "spread"]


def draw(n, n_classes, kind="random", scale=1.0, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    if kind == "ties":
        scores = scores.round()
    elif kind == "grid":
        scores = (4 * scores).round() / 4
    elif kind == "constant":
        scores = torch.full_like(scores, 0.3)
    elif kind == "spread":
        scores = scores**3 * 4
    return (scale * scores).to(dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1e-4, 0.1, 1.0, 1e4])
@pytest.mark.parametrize("n_classes", [1, 2, 7, 40, 700, 5000])
def test_equals_bisection(kind, scale, n_classes):
    scores = draw(4, n_classes, kind, scale)
    sizes = {0, 1, n_classes // 2, n_classes - 1, n_classes, 0.3, 0.77 * n_classes}
    for k in sizes:
        q = sparse_top(scores, k)
        # The scores of scale 1e4 have digits of 2e-12 themselves.
        expected = project_by_bisection(scores.numpy(), k)
        np.testing.assert_allclose(q, expected, atol=1e-12 * max(1.0, scale), rtol=0)


@pytest.mark.parametrize("k", [1, 2, 3.4])
def test_equals_a_quadratic_program(k):
    for seed in range(5):
        scores = draw(1, 6, seed=seed)[0].numpy()
        result = minimize(
            lambda q, s=scores: 0.5 * ((q - s) ** 2).sum(),
            np.full(6, k / 6),
            jac=lambda q, s=scores: q - s,
            bounds=[(0, 1)] * 6,
            constraints={"type": "eq", "fun": lambda q: q.sum() - k, "jac": np.ones_like},
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 500},
        )
        assert result.success
        np.testing.assert_allclose(sparse_top(torch.as_tensor(scores), k), result.x, atol=1e-7)


@pytest.mark.parametrize("kind", ["random", "ties", "spread", "tail"])
@pytest.mark.parametrize("k", [1, 5, 50, 12.5, 99_999])
def test_optimality_conditions_in_float32_with_many_classes(kind, k):
    n_classes = 100_000
    if kind == "tail":  # one entry half a unit above 99,999 nearly equal ones
        scores = 1e-5 * draw(2, n_classes, dtype=torch.float32)
        scores[:, 7] = 0.5
    else:
        scores = draw(2, n_classes, kind, dtype=torch.float32)
    q = sparse_top(scores, k).double()
    assert ((q >= 0) & (q <= 1)).all()
    assert ((q.sum(1) - k).abs() <= 1e-6 * k).all()
    # Stationarity: s - q is the threshold inside, no larger at 0 and no smaller at 1.
    gap = scores.double() - q
    for row, r in zip(q, gap):
        low, high = r[row < 1].max(), r[row > 0].min()
        assert low <= high + 1e-6


@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e2])
def test_size_one_is_sparsemax(scale):
    scores = draw(20, 30, scale=scale)
    torch.testing.assert_close(sparse_top(scores, 1), entmax_sparsemax(scores, dim=-1))
    assert torch.equal(sparsemax(scores), sparse_top(scores, 1))


def test_one_size_per_row_is_each_row_alone():
    for n_classes in (9, 4000):
        scores = draw(5, n_classes)
        sizes = torch.tensor([0.0, 1.0, 2.5, 7.0, n_classes])
        rows = [sparse_top(s, k.item()) for s, k in zip(scores, sizes)]
        torch.testing.assert_close(sparse_top(scores, sizes), torch.stack(rows))
        assert torch.equal(sparse_top(scores, sizes.double()), sparse_top(scores, sizes))


def test_no_rows():
    for n_classes in (9, 4000):
        for k in (2, torch.zeros(0)):
            assert sparse_top(torch.zeros(0, n_classes), k).shape == (0, n_classes)


@pytest.mark.parametrize("n_classes", [40, 1000, 3000])
def test_compiled_and_twice_differentiated_equal_the_eager_gradient(n_classes):
    scores = draw(70, n_classes).requires_grad_()
    weight = draw(70, n_classes, seed=1)

    def value(scores):
        return (weight * sparse_top(scores, 5)).sum()

    (eager,) = torch.autograd.grad(value(scores), scores)
    (with_graph,) = torch.autograd.grad(value(scores), scores, create_graph=True)
    compiled = torch.compile(value, backend="aot_eager")
    (traced,) = torch.autograd.grad(compiled(scores), scores)
    torch.testing.assert_close(with_graph, eager, rtol=0, atol=1e-14)
    torch.testing.assert_close(traced, eager)


def test_leading_dimensions_are_rows():
    scores = draw(6, 5)
    expected = sparse_top(scores, 2)
    assert torch.equal(sparse_top(scores.view(2, 3, 5), 2), expected.view(2, 3, 5))
    sizes = torch.arange(6) % 4
    per_row = sparse_top(scores, sizes)
    assert torch.equal(sparse_top(scores.view(2, 3, 5), sizes.view(2, 3)), per_row.view(2, 3, 5))
    assert torch.equal(sparse_top(scores[0], 2), expected[0])


def test_whole_numbers_and_clear_winners_are_exact():
    scores = torch.tensor([[3.0, 2.0, 0.1, 0.0]])
    assert torch.equal(sparse_top(scores, 2), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    assert torch.equal(sparse_top(scores, 0), torch.zeros(1, 4))
    assert torch.equal(sparse_top(scores, 4), torch.ones(1, 4))
    assert torch.equal(sparse_top(torch.tensor([10.0, 10.0]), 1), torch.tensor([0.5, 0.5]))


def test_invariances():
    scores = draw(4, 8)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    q = sparse_top(scores, 3)
    torch.testing.assert_close(sparse_top(scores[:, order], 3), q[:, order])
    torch.testing.assert_close(sparse_top(scores + 5.0, 3), q)
    torch.testing.assert_close(sparse_top(-scores, 8 - 3), 1 - q)  # what is left out
    torch.testing.assert_close(sparse_top(q, 3), q)


@pytest.mark.parametrize("k", [1, 2, 3.4, 6])
def test_gradcheck(k):
    scores = draw(3, 7, scale=0.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: sparse_top(s, k), scores)
    assert torch.autograd.gradgradcheck(lambda s: sparse_top(s, k), scores)
    sizes = torch.tensor([1.0, 2.0, 6.5])
    assert torch.autograd.gradcheck(lambda s: sparse_top(s, sizes), scores)


@pytest.mark.parametrize("n_classes", [6, 3000])
def test_jacobian_is_the_formula(n_classes):
    scores = draw(1, n_classes, scale=0.5)[0]
    q = sparse_top(scores, 2)
    m = ((q > 0) & (q < 1)).double()
    assert m.sum() >= 2
    expected = torch.diag(m) - torch.outer(m, m) / m.sum()
    rows = m.nonzero()[:3, 0]
    scores.requires_grad_()
    for i in rows:
        (row,) = torch.autograd.grad(sparse_top(scores, 2)[i], scores)
        torch.testing.assert_close(row, expected[i])


def test_gradient_is_zero_where_nothing_is_strictly_inside():
    scores = torch.tensor([[5.0, 3.0, 0.0, -1.0]], requires_grad=True)
    for k in (0, 1, 2, 4):
        (grad,) = torch.autograd.grad(sparse_top(scores, k)[0, 0], scores)
        assert torch.equal(grad, torch.zeros_like(scores))


def test_candidates_of_long_rows_may_be_all_entries_or_one():
    flat = torch.zeros(2, 5000)
    torch.testing.assert_close(sparse_top(flat, 2), torch.full((2, 5000), 2 / 5000))
    peak = flat.clone()
    peak[0, 4999], peak[1, 17] = 9.0, 9.0  # in the rest after the blocks, and in one
    assert torch.equal(sparse_top(peak, 1).argmax(1), torch.tensor([4999, 17]))
    assert sparse_top(peak, 1).count_nonzero() == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    scores = draw(3, 50, dtype=dtype)
    q = sparse_top(scores, 3)
    assert q.dtype == torch.float32
    assert torch.equal(q, sparse_top(scores.float(), 3))


def test_meta_and_repeated_backward():
    scores = draw(3, 6).requires_grad_()
    q = sparse_top(scores, 2)
    first, second = (torch.autograd.grad(q[0, 0], scores, retain_graph=True)[0] for _ in "ab")
    assert torch.equal(first, second)
    assert sparse_top(torch.zeros(3, 6, device="meta"), 2).shape == (3, 6)
    sizes = torch.ones(3, device="meta")
    assert sparse_top(torch.zeros(3, 6, device="meta"), sizes).is_meta


@pytest.mark.parametrize(
    ("k", "error", "message"),
    [
        (-1, ValueError, "k must be finite and at least 0"),
        (6, ValueError, r"k must lie in \[0, 5\]"),
        ("2", TypeError, "k must be a number"),
        (float("nan"), ValueError, "k must be finite"),
        (torch.tensor([1.0, 2.0, 3.0]), ValueError, "one number per row"),
        (torch.tensor([1.0, 6.0]), ValueError, r"got values in \[1.0, 6.0\]"),
        (torch.tensor([1.0, torch.nan]), ValueError, r"k must lie in"),
    ],
)
def test_bad_sizes_are_named(k, error, message):
    with pytest.raises(error, match=message):
        sparse_top(torch.zeros(2, 5), k)


def test_scores_must_be_floating_point():
    with pytest.raises(ValueError, match="floating-point"):
        sparse_top(torch.zeros(2, 5, dtype=torch.long), 1)

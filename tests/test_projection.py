"""The projections on the top-K simplex: the definition against other solvers, then what stands in.

Without the compiled kernels, in float64 or as the definition itself, the laws are the same.
"""

import itertools

import numpy as np
import pytest
import torch
from entmax import sparsemax as entmax_sparsemax
from reference_multi import project_by_bisection
from scipy.optimize import minimize

from sksetvalued.operators import sparse_top, sparsemax
from sksetvalued.operators.projection import fenchel_young_loss, reference

KINDS = ["random", "ties", "grid", "constant", "spread"]


def define(scores, k):
    """Project by the definition."""
    return reference.project(scores, reference.as_sizes(k, scores))


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


@pytest.fixture(params=["kernels", pytest.param("no kernels", marks=pytest.mark.without_kernels)])
def way(request, monkeypatch):
    """Let the operators compute in float32 with or without kernels."""
    monkeypatch.setenv("SKSETVALUED_KERNELS", "0" if request.param == "no kernels" else "1")


@pytest.mark.without_kernels
@pytest.mark.parametrize("project", [define, sparse_top])
@pytest.mark.parametrize("scale", [1e-5, 0.1, 1.0, 1e4])
@pytest.mark.parametrize("n_classes", [1, 2, 7, 40, 700])
def test_equals_bisection(project, scale, n_classes):
    scores = torch.cat([draw(2, n_classes, kind, scale) for kind in KINDS])
    for k in {0, 1, n_classes // 2, n_classes - 1, n_classes, 0.3, 0.77 * n_classes}:
        expected = project_by_bisection(scores.numpy(), k)
        # The scores of scale 1e4 have digits of 2e-12 themselves.
        tolerance = 1e-12 * max(1.0, scale)
        np.testing.assert_allclose(project(scores, k), expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("k", [1, 2, 3.4])
def test_equals_a_quadratic_program(k):
    for row in draw(5, 6):
        scores = row.numpy()
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
        np.testing.assert_allclose(define(row, k), result.x, atol=1e-7)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", ["random", "ties", "spread", "tail", "flat"])
def test_optimality_conditions_in_float32_with_many_classes(kind):
    scores = draw(2, 100_000, kind, dtype=torch.float32)
    if kind in ("tail", "flat"):
        scores *= 1e-5
    if kind == "tail":  # one entry half a unit above 99,999 nearly equal ones
        scores[:, 7] = 0.5
    for k in (1, 12.5, 99_999):
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
    torch.testing.assert_close(define(scores, 1), entmax_sparsemax(scores, dim=-1))
    assert torch.equal(sparsemax(scores), sparse_top(scores, 1))


def test_invariances():
    scores = draw(4, 8)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    q = define(scores, 3)
    torch.testing.assert_close(define(scores[:, order], 3), q[:, order])
    torch.testing.assert_close(define(scores + 5.0, 3), q)
    torch.testing.assert_close(define(-scores, 8 - 3), 1 - q)  # what is left out
    torch.testing.assert_close(define(q, 3), q)


@pytest.mark.parametrize("project", [define, sparse_top])
def test_whole_numbers_and_clear_winners_are_exact(project):
    for dtype in (torch.float32, torch.float64):
        scores = torch.tensor([3.0, 2.0, 0.1, 0.0], dtype=dtype)
        for k in (0, 2, 4):
            assert project(scores, k).tolist() == [float(j < k) for j in range(4)]
        assert project(torch.tensor([10.0, 10.0], dtype=dtype), 1).tolist() == [0.5, 0.5]
        huge = torch.tensor([1e20, 1e20, 1e20, 0.2, 0.1], dtype=dtype)
        expected = torch.tensor([2.5 / 3] * 3 + [0, 0], dtype=dtype)
        torch.testing.assert_close(project(huge, 2.5), expected)


@pytest.mark.usefixtures("way")
def test_ties_of_scores_whose_next_numbers_are_far_away_share_the_size():
    scores = torch.full((2, 5000), 1e8)
    scores[:, 50:] -= 8  # the next number
    expected = torch.zeros_like(scores)
    expected[:, :50] = 3 / 50
    torch.testing.assert_close(sparse_top(scores, 3), expected, atol=0, rtol=1e-6)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_many_classes_all_less_than_one_below_the_entry_of_the_rank_count(dtype):
    scores = torch.full((2, 5000), -5.0, dtype=dtype)
    scores[:, :400], scores[:, 400:402] = -0.9, 0.0
    scores[1] = scores[1].flip(0)
    expected = torch.from_numpy(project_by_bisection(scores.double().numpy(), 2))
    assert (expected > 0).sum(1).tolist() == [402, 402]
    torch.testing.assert_close(sparse_top(scores, 2).double(), expected, atol=1e-7, rtol=0)


@pytest.mark.usefixtures("way")
def test_one_size_per_row_is_each_row_alone():
    for dtype in (torch.float32, torch.float64):
        for n_classes in (9, 4000):
            scores = draw(5, n_classes, dtype=dtype)
            sizes = torch.tensor([0.0, 1.0, 2.5, 7.0, n_classes])
            rows = [sparse_top(s, k.item()) for s, k in zip(scores, sizes)]
            torch.testing.assert_close(sparse_top(scores, sizes), torch.stack(rows))
            assert torch.equal(sparse_top(scores, sizes.double()), sparse_top(scores, sizes))


@pytest.mark.usefixtures("way")
def test_leading_dimensions_are_rows_and_there_may_be_none():
    scores = draw(6, 5, dtype=torch.float32)
    expected = sparse_top(scores, 2)
    assert torch.equal(sparse_top(scores.view(2, 3, 5), 2), expected.view(2, 3, 5))
    sizes = torch.arange(6) % 4
    per_row = sparse_top(scores, sizes)
    assert torch.equal(sparse_top(scores.view(2, 3, 5), sizes.view(2, 3)), per_row.view(2, 3, 5))
    assert torch.equal(sparse_top(scores[0], 2), expected[0])
    for n_classes in (9, 4000):
        for k in (2, torch.zeros(0)):
            assert sparse_top(torch.zeros(0, n_classes), k).shape == (0, n_classes)
    assert sparse_top(torch.zeros(3, 0), 0).shape == (3, 0)


@pytest.mark.usefixtures("way")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("project", [define, sparse_top])
def test_rows_may_lie_in_memory_in_any_way(project):
    columns = draw(5, 7).T
    torch.set_warn_always(True)
    try:
        found = project(columns, 2)
    finally:
        torch.set_warn_always(False)
    torch.testing.assert_close(found, project(columns.contiguous(), 2))


def test_infinite_scores_win_and_rows_without_a_projection_are_nan_alone():
    scores = torch.tensor([[torch.inf, 1.0, 0.5, -torch.inf]])
    expected = torch.tensor([[1.0, 0.75, 0.25, 0.0]])
    assert torch.equal(sparse_top(scores, 2), expected)
    assert torch.equal(define(scores, 2), expected)
    cases = itertools.product((300, 5000), ((150, torch.nan), (slice(None), -torch.inf)))
    for n_classes, (place, wrong) in cases:
        scores = draw(3, n_classes, dtype=torch.float32)
        expected = sparse_top(scores, 2)
        scores[1, place] = wrong
        for project in (define, sparse_top):
            q = project(scores, 2)
            assert q[1].isnan().all()
            torch.testing.assert_close(q[[0, 2]], expected[[0, 2]])


@pytest.mark.without_kernels
@pytest.mark.parametrize("project", [define, sparse_top])
@pytest.mark.parametrize("k", [1, 3.4, torch.tensor([1.0, 2.0, 6.5])])
def test_gradients_of_first_and_second_order(project, k):
    scores = draw(3, 7, scale=0.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: project(s, k), scores, check_forward_ad=True)
    rows = (scores if torch.is_tensor(k) else scores[:1]).detach().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda s: project(s, k), rows)


@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.without_kernels)]
)
@pytest.mark.parametrize("n_classes", [6, 3000])
def test_jacobian_is_the_formula(n_classes, dtype):
    scores = draw(1, n_classes, scale=0.5, dtype=dtype)[0]
    q = sparse_top(scores, 2)
    m = ((q > 0) & (q < 1)).to(dtype)
    assert m.sum() >= 2
    expected = torch.diag(m) - torch.outer(m, m) / m.sum()
    rows = m.nonzero()[:3, 0]
    for project in (define, sparse_top):
        for some in (False, True):
            jacobian = torch.autograd.functional.jacobian(
                lambda s, project=project: project(s, 2)[rows], scores, vectorize=some
            )
            torch.testing.assert_close(jacobian, expected[rows])


@pytest.mark.usefixtures("way")
def test_gradient_is_zero_where_nothing_is_strictly_inside():
    scores = torch.tensor([[5.0, 3.0, 0.0, -1.0]], requires_grad=True)
    for project in (define, sparse_top):
        for k in (0, 1, 2, 4):
            (grad,) = torch.autograd.grad(project(scores, k)[0, 0], scores)
            assert torch.equal(grad, torch.zeros_like(scores))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_classes", [7, 300])
def test_transforms_give_the_derivatives_of_plain_calls(n_classes, dtype):
    scores, weights = draw(3, n_classes, dtype=dtype), draw(3, n_classes, seed=1, dtype=dtype)
    sizes = torch.tensor([1.0, 2.5, 4.0])

    def value(scores, weights, sizes):
        return (weights * sparse_top(scores, sizes)).sum()

    leaf = scores.clone().requires_grad_()
    (expected,) = torch.autograd.grad(value(leaf, weights, sizes), leaf)
    assert expected.count_nonzero() > 3
    close = {"rtol": 1e-5, "atol": 1e-6}
    gradient = torch.func.grad(value)
    torch.testing.assert_close(gradient(scores, weights, sizes), expected, **close)
    torch.testing.assert_close(torch.vmap(gradient)(scores, weights, sizes), expected, **close)
    _, along = torch.func.jvp(lambda s: value(s, weights, sizes), (scores,), (weights,))
    torch.testing.assert_close(along, (expected * weights).sum(), rtol=1e-4, atol=1e-5)
    assert along != 0
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(scores, weights)
        tangent = torch.autograd.forward_ad.unpack_dual(value(dual, weights, sizes)).tangent
    torch.testing.assert_close(tangent, along)


def test_half_precision_is_computed_in_float32():
    for dtype in (torch.float16, torch.bfloat16):
        scores = draw(3, 50, dtype=dtype)
        q = sparse_top(scores, 3)
        assert q.dtype == torch.float32
        assert torch.equal(q, sparse_top(scores.float(), 3))


def test_no_values_are_looked_at_on_meta_tensors():
    scores = torch.zeros(3, 6, device="meta", requires_grad=True)
    for k in (2, torch.ones(3, device="meta")):
        q = sparse_top(scores, k)
        assert q.is_meta
        assert torch.autograd.grad(q.sum(), scores)[0].shape == (3, 6)


@pytest.mark.usefixtures("way", "benchmark_path")
@pytest.mark.parametrize(
    ("n", "n_classes"), [(64, 10_000), pytest.param(16, 30_000, marks=pytest.mark.slow)]
)
def test_memory_is_a_few_times_that_of_the_scores(n, n_classes):
    import measuring

    scores = draw(n, n_classes, dtype=torch.float32).requires_grad_()
    labels = (draw(n, n_classes, seed=1) > 3).float()

    def project():
        scores.grad = None
        sparse_top(scores, 5).sum().backward()

    def lose():
        scores.grad = None
        fenchel_young_loss(scores, labels, shared=False).sum().backward()

    assert measuring.peak_bytes(project) <= 3 * scores.nbytes
    assert measuring.peak_bytes(lose) <= 3 * scores.nbytes


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


@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.without_kernels)]
)
def test_a_traced_graph_is_whole_and_gives_the_same(dtype):
    """As one operation: the definition, which is exported, would sort whole rows."""
    scores, weights = draw(6, 40, dtype=dtype), draw(6, 40, seed=1, dtype=dtype)
    labels = (weights > 1).to(dtype)

    for f in (
        lambda s: (sparse_top(s, 2.5) * weights).sum(),
        lambda s: (weights[:, 0] * fenchel_young_loss(s, labels, shared=True)).sum(),
    ):
        results = []
        for each in (f, torch.compile(f, backend="aot_eager", fullgraph=True)):
            leaf = scores.clone().requires_grad_()
            value = each(leaf)
            results.append((value.detach(), torch.autograd.grad(value, leaf)[0]))
        torch.testing.assert_close(*results)


def test_an_exported_graph_does_without_this_package():
    class Project(torch.nn.Module):
        def forward(self, scores):
            return sparse_top(scores, 2)

    scores = draw(4, 9, dtype=torch.float32)
    graph = torch.export.export(Project(), (scores,))
    assert "sksetvalued" not in graph.graph_module.code
    torch.testing.assert_close(graph.module()(scores), sparse_top(scores, 2))


@pytest.mark.without_kernels
def test_masked_classes_cost_nothing_where_functions_are_transformed():
    scores, target = draw(3, 6), torch.tensor([0, 1, 3])
    scores[:, 2] = -torch.inf

    def total(scores):
        return fenchel_young_loss(scores, target, False).sum()

    gradient, value = torch.func.grad_and_value(total)(scores)
    expected = scores.clone().requires_grad_()
    torch.testing.assert_close(value, total(expected).detach())
    assert value.isfinite()
    torch.testing.assert_close(gradient, torch.autograd.grad(total(expected), expected)[0])

"""Laws of the kernels of the projection on the top-K simplex."""

import numpy as np
import pytest
import torch
from reference_multi import project_by_bisection
from triton_tools import (
    DEVICE,
    INTERPRETED,
    compile_kernel,
    compiles,
    on_capabilities,
    on_device,
    slow,
)

from sksetvalued.losses import SparsemaxLoss, SparseTopLoss
from sksetvalued.operators import sparse_top
from sksetvalued.operators._dispatch import choose

_triton_rows = pytest.importorskip("sksetvalued.operators._triton_rows")
kernels = pytest.importorskip("sksetvalued.operators.projection.triton")

KINDS = ["random", "ties", "constant", "spread", "one lane"]


@compiles
@on_capabilities
@pytest.mark.parametrize("n_classes", [1000, *(pytest.param(n, marks=slow) for n in (1, 100_000))])
def test_kernels_compile_to_machine_code(capability, n_classes, tmp_path, monkeypatch):
    """No GPU is needed for that; an empty cache makes them compile."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    lanes = _triton_rows.plan_lanes(n_classes)
    settings = {"num_warps": lanes["num_warps"]}
    # Triton takes arguments that are one, or None, for constants.
    ones = {"row_stride": 1, "grad_stride": 1, "n_classes": 1} if n_classes == 1 else {}
    sizes = {"sizes": "*fp64", "size_stride": "i32", "n_classes": "i32"}
    sizes |= dict.fromkeys(["row_stride", "grad_stride"], "i64")
    for kernel, constants in (
        (kernels._project_kernel, {}),
        (kernels._project_kernel, {"out": None}),
        (kernels._project_kernel, {"point": None, "losses": None, "size_stride": 1}),
        (kernels._centre_kernel, {}),
    ):
        constants |= {name: one for name, one in ones.items() if name in kernel.arg_names}
        constants["TILE"] = lanes["TILE"]
        types = [sizes.get(n, "*fp32") for n in kernel.arg_names if n not in constants]
        compiled = compile_kernel(kernel, types, constants, capability, settings)
        assert ".local" not in compiled.asm["ptx"]  # nothing is kept outside the registers
        assert compiled.metadata.shared <= 49152  # what every device has


@pytest.fixture
def few_lanes(monkeypatch):
    """Let rows of more than 128 classes be too long for the registers."""
    monkeypatch.setattr(_triton_rows, "_MAX_LANES", 32)


@pytest.fixture(autouse=True)
def dispatched(monkeypatch):
    """Let the operators and losses use the kernels, in the interpreter too."""
    if INTERPRETED:
        monkeypatch.setenv("SKSETVALUED_KERNELS", "triton")


def draw(n, n_classes, kind="random", scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    if kind == "ties":
        scores = scores.round()
    elif kind == "constant":
        scores = torch.full_like(scores, 0.3)
    elif kind == "spread":
        scores = scores**3 * 4
    elif kind == "one lane":
        scores[:, 3::32] += 3
    return (scale * scores).float().to(DEVICE)


@on_device
@pytest.mark.parametrize(
    ("n_classes", "scale"),
    [(150, 1.0), *((n, scale) for n in (1, 40, 200) for scale in (1e-4, 1e4))],
)
@slow
def test_equals_bisection(few_lanes, scale, n_classes):
    scores = torch.cat([draw(1, n_classes, kind, scale) for kind in KINDS])
    for k in {0.3, 1, 5, 0.77 * n_classes, n_classes - 1}:
        if k <= n_classes:
            q = sparse_top(scores, k)
            expected = project_by_bisection(scores.cpu().double().numpy(), k)
            np.testing.assert_allclose(q.cpu(), expected, atol=3e-7, rtol=0)


@on_device
@pytest.mark.parametrize(("n_classes", "scale"), [(1, 1.0), (40, 1e4), (150, 1.0)])
def test_equals_bisection_for_sizes_of_rows(few_lanes, scale, n_classes):
    """Every kind of scores meets one of the sizes, and in long rows two."""
    scores = torch.cat([draw(1, n_classes, kind, scale) for kind in KINDS])
    sizes = torch.tensor([0.3, 1, 5, 0.77 * n_classes, n_classes - 1]).clamp(max=n_classes)
    for shift in (0, 2) if n_classes > 128 else (0,):
        shifted = sizes.roll(shift)
        q = sparse_top(scores, shifted.to(DEVICE)).cpu()
        for row, s, k in zip(q, scores.cpu().double().numpy(), shifted.tolist(), strict=True):
            expected = project_by_bisection(s[None], k)[0]
            np.testing.assert_allclose(row, expected, atol=3e-7, rtol=0)


@on_device
@pytest.mark.parametrize(
    ("kind", "k"),
    [
        pytest.param(kind, k, marks=[] if i % 4 == j else slow)
        for i, kind in enumerate([*KINDS, "tail"])
        for j, k in enumerate([5, 12.5, 8500, 19_999])
    ],
)
def test_optimality_conditions_with_many_classes(kind, k):
    n_classes = 20_000
    if kind == "tail":  # one entry half a unit above 19,999 nearly equal ones
        scores = 1e-5 * draw(1, n_classes)
        scores[:, 7] = 0.5
    else:
        scores = draw(1, n_classes, kind)
    q = sparse_top(scores, k).double()
    assert ((q >= 0) & (q <= 1)).all()
    assert ((q.sum(1) - k).abs() <= 1e-6 * k).all()
    gap = scores.double() - q
    for row, r in zip(q, gap):
        low, high = r[row < 1].max(), r[row > 0].min()
        assert low <= high + 1e-6


@on_device
def test_rounding_does_not_add_up_over_a_row(few_lanes):
    """Every lane adds up 75 entries of 0.7, which all round the same way."""
    q = sparse_top(torch.full((1, 2400), 0.7, device=DEVICE), 0.7 * 2400)
    assert abs(q.double().sum() / (0.7 * 2400) - 1) < 2e-7


@on_device
def test_one_size_per_row_is_each_row_alone(few_lanes):
    for n_classes in (9, 150):
        scores = draw(5, n_classes)
        sizes = torch.tensor([0.0, 1.0, 2.5, 7.0, n_classes], device=DEVICE)
        rows = [sparse_top(s[None], k.item())[0] for s, k in zip(scores, sizes)]
        assert torch.equal(sparse_top(scores, sizes), torch.stack(rows))
        same = sparse_top(scores[1:3], sizes[2:3].expand(2))  # strides of zero
        assert torch.equal(same[1], rows[2])


@on_device
def test_whole_numbers_and_clear_winners_are_exact():
    scores = torch.tensor([[3.0, 2.0, 0.1, 0.0]], device=DEVICE)
    for k in (0, 2, 4):
        expected = (torch.arange(4, device=DEVICE) < k).float()[None]
        assert torch.equal(sparse_top(scores, k), expected)


@on_device
def test_infinities_and_nan(few_lanes):
    for n_classes in (50, 150):
        scores = draw(3, n_classes)
        scores[0, ::2] = -torch.inf
        scores[1, 17] = torch.inf
        q = sparse_top(scores, 3)
        finite = scores.nan_to_num(posinf=100.0, neginf=-100.0)
        torch.testing.assert_close(q, sparse_top(finite, 3))
        scores[2, 20] = torch.nan
        assert sparse_top(scores[2:], 3).isnan().any()
        labels = torch.zeros_like(scores[2:])
        labels[:, :3] = 1
        assert kernels.FenchelYoung.apply(scores[2:], labels, False).isnan()


@on_device
def test_rows_may_be_strided_or_absent():
    wide = draw(4, 40)
    for scores in (wide[::2, 3:33], wide.T[:2], wide[1:3, ::2]):
        expected = sparse_top(scores.clone(), 2)
        assert torch.equal(sparse_top(scores, 2), expected)
    assert sparse_top(draw(0, 5), 2).shape == (0, 5)
    assert sparse_top(draw(3, 0), 0).shape == (3, 0)


def _derivatives(function, scores, weights):
    """Return the values, the gradient, and the derivative of a product of gradients."""
    scores = scores.detach().requires_grad_()
    weights = weights.detach().requires_grad_()
    values = function(scores)
    (gradient,) = torch.autograd.grad((values * weights).sum(), scores, create_graph=True)
    second = torch.autograd.grad((gradient**2).sum(), (scores, weights), allow_unused=True)
    return values, gradient, *(torch.zeros(()) if s is None else s for s in second)


@on_device
@pytest.mark.parametrize("n_classes", [7, 150, pytest.param(300, marks=slow)])
def test_derivatives_of_the_operator_are_those_of_torch(few_lanes, n_classes):
    scores, weights = draw(3, n_classes, scale=0.5), draw(3, n_classes, seed=1)
    for k in (1, 2.5, torch.tensor([1.0, 0.0, 6.0], device=DEVICE)):
        found = _derivatives(lambda s, k=k: sparse_top(s, k), scores, weights)
        # In double precision no kernel is used.
        expected = _derivatives(lambda s, k=k: sparse_top(s, k), scores.double(), weights.double())
        assert found[1].count_nonzero() > 0
        for one, other in zip(found, expected):
            torch.testing.assert_close(one.double(), other.double(), rtol=1e-5, atol=1e-5)


@on_device
@pytest.mark.parametrize(
    ("n_classes", "strided"),
    [
        *[(7, False), (150, True)],
        *(pytest.param(n, s, marks=slow) for n, s in ((7, True), (150, False), (300, True))),
    ],
)
@pytest.mark.parametrize("loss", [SparseTopLoss(reduction="none"), SparsemaxLoss("none")])
def test_derivatives_of_the_losses_are_those_of_torch(few_lanes, n_classes, strided, loss):
    scores = draw(n_classes, 4, scale=0.5).T if strided else draw(4, n_classes, scale=0.5)
    target = (draw(4, n_classes, seed=1) > 0.8).long()
    target[0], target[1] = 0, 1
    weights = torch.tensor([1.0, 2.0, -1.0, 0.5], device=DEVICE)
    found = _derivatives(lambda s: loss(s, target), scores, weights)
    first = scores.detach().requires_grad_()
    (loss(first, target) * weights).sum().backward()
    torch.testing.assert_close(first.grad, found[1].detach())
    expected = _derivatives(lambda s: loss(s, target), scores.double(), weights.double())
    for one, other in zip(found, expected):
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-5, atol=1e-5)


@on_device
def test_gradients_that_come_in_may_be_strided():
    scores = draw(3, 20, scale=0.5).requires_grad_()
    wide = draw(6, 40, seed=1)
    q = sparse_top(scores, 3)
    for grad in (wide[::2, :20], wide[:3, ::2], wide.T[:3, :1].expand(3, 20)):
        found, expected = (
            torch.autograd.grad(q, scores, g, retain_graph=True)[0]
            for g in (grad, grad.clone(memory_format=torch.contiguous_format))
        )
        assert torch.equal(found, expected)


@on_device
def test_the_kernels_are_used():
    scores = draw(2, 5).requires_grad_()
    labels, classes = torch.eye(2, 5, device=DEVICE), torch.arange(2, device=DEVICE)
    assert choose("projection", scores) == "triton"
    for value in (
        sparse_top(scores, 2),
        SparseTopLoss(reduction="none")(scores, labels),
        SparsemaxLoss(reduction="none")(scores, classes),
    ):
        assert value.grad_fn._forward_cls.__module__ == kernels.__name__

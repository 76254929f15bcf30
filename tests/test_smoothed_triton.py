"""Laws of the kernels of the smoothed hinge loss."""

import numpy as np
import pytest
import torch
from triton_tools import (
    DEVICE,
    INTERPRETED,
    compile_kernel,
    compiles,
    on_capabilities,
    on_device,
    slow,
)

from sksetvalued.losses import SmoothedTopKHingeLoss
from sksetvalued.operators.smoothed.reference import smoothed_hinge

_triton_rows = pytest.importorskip("sksetvalued.operators._triton_rows")
kernels = pytest.importorskip("sksetvalued.operators.smoothed.triton")


@compiles
@on_capabilities
@pytest.mark.parametrize(
    ("n_classes", "k", "sign"),
    [
        (1000, 5, -1),
        pytest.param(1000, 1, 1, marks=slow),
        *(pytest.param(100_000, k, 1, marks=slow) for k in (5, 64)),
    ],
)
def test_kernels_compile_to_machine_code(n_classes, k, sign, capability, tmp_path, monkeypatch):
    """No GPU is needed for that; an empty cache makes them compile."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    lanes = _triton_rows.plan_lanes(n_classes)
    n_powers, _, n_head = kernels.plan_powers(k)
    circle, _ = kernels.make_constants(k, n_classes - 1, n_powers, torch.device("cpu"))
    constants = {"SIGN": sign, "N_POWERS": n_powers, "N_NODES": circle.shape[1]}
    rows = ["*fp32", "i64", "i32", "*i64"]
    # Triton takes arguments that are one for constants.
    ranks = {"rank": 1, "size": 1} if k == 1 else {}
    compiled = compile_kernel(
        kernels._value_kernel,
        [*rows, *["i32"] * (3 - len(ranks)), *["fp32"] * 3, *["*fp32"] * 4],
        {**constants, **ranks, "HEAD": n_head, "TILE": lanes["TILE"]},
        capability,
        {"num_warps": lanes["num_warps"]},
    )
    assert compiled.metadata.shared <= 49152  # what every device has
    compiled = compile_kernel(
        kernels._gradient_kernel,
        [*rows, "fp32", "*fp32", "i32", *["*fp32"] * 3],
        {**constants, "TILE": 1024},
        capability,
        {},
    )
    assert ".local" not in compiled.asm["ptx"]  # nothing is kept outside the registers


@pytest.fixture
def few_lanes(monkeypatch):
    """Let rows of more than 128 classes be too long for the registers."""
    monkeypatch.setattr(_triton_rows, "_MAX_LANES", 32)


@pytest.fixture
def dispatched(monkeypatch):
    """Let the loss use the kernels, in the interpreter too."""
    if INTERPRETED:
        monkeypatch.setenv("SKSETVALUED_KERNELS", "triton")


def awkward_scores(n_classes):
    """Normal, flat, tied, heavy-tailed and constant rows, and some with confident classes.

    The confident ones are in a lane of 32 in one row.
    """
    rng = np.random.default_rng(n_classes)
    rows = rng.standard_normal((7, n_classes))
    rows[1] *= 1e-4
    rows[2] = rows[2].round()
    rows[3] = rng.standard_cauchy(n_classes)
    rows[4, : n_classes // 7] += 20
    rows[5, 3::32] += 5
    rows[6] = 1e4
    return torch.tensor(rows, dtype=torch.float32, device=DEVICE)


def by_definition(scores, target, k, tau, margin=1.0):
    """Return losses and gradients in double precision."""
    exact = scores.detach().double().requires_grad_()
    values = smoothed_hinge(exact, target, k, tau, margin)
    return values.detach(), torch.autograd.grad(values.sum(), exact)[0]


def check(scores, target, k, tau, margin=1.0):
    """Compare with the definition in double precision: gradients within 1e-5 of the largest."""
    values, gradient = by_definition(scores, target, k, tau, margin)
    scores = scores.clone().requires_grad_()
    found = kernels.SmoothedHinge.apply(scores, target, k, tau, margin)
    torch.testing.assert_close(found.double(), values, rtol=1e-5, atol=1e-5)
    (found,) = torch.autograd.grad(found.sum(), scores)
    largest = gradient.abs().amax(1) + 1e-30
    assert ((found - gradient).abs().amax(1) <= 1e-5 * largest).all()


SHAPES = [(2, 1), (3, 2), (9, 5), (128, 12), (129, 5), (300, 1), (300, 5), (300, 64), (300, 290)]


@on_device
@pytest.mark.parametrize(
    ("n_classes", "k", "tau"),
    [
        *[(2, 1, 1.0), (9, 5, 1e-2), (129, 5, 1e-2)],
        *(pytest.param(*shape, tau, marks=slow) for shape in SHAPES for tau in (1e-2, 1.0)),
    ],
)
def test_agrees_with_the_definition(few_lanes, n_classes, k, tau):
    scores = awkward_scores(n_classes)
    if n_classes < 4:  # too few for confident ones
        scores = scores[[0, 1, 2, 3, 6]]
    target = scores.argsort(1)[:, n_classes // 2]
    target[0] = scores[0].argmax()
    check(scores, target, k, tau)


@on_device
@pytest.mark.parametrize(
    ("n_classes", "k", "tau"), [(8193, 5, 0.1), pytest.param(9000, 30, 1.0, marks=slow)]
)
def test_agrees_with_the_definition_in_long_rows(n_classes, k, tau):
    scores = awkward_scores(n_classes)[[0, 2, 5]]
    check(scores, scores.argsort(1)[:, -3], k, tau)


@on_device
@pytest.mark.parametrize("k", [64, pytest.param(290, marks=slow)])
def test_the_largest_rank_of_few_rows(few_lanes, k):
    scores = awkward_scores(300)[[3, 5] if k > 64 else [5]]
    check(scores, scores.argsort(1)[:, 150], k, 0.1)


@on_device
@pytest.mark.parametrize(("k", "tau"), [(3, 0.05), pytest.param(11, 0.5, marks=slow)])
def test_largest_classes_may_all_meet_in_one_lane(few_lanes, k, tau):
    """Then the row is read again to find them; ties and zeros of both signs may be the cut."""
    scores = -torch.rand(4, 400, generator=torch.Generator().manual_seed(0)) - 1
    scores[0, 7::32] = torch.arange(len(scores[0, 7::32])).float()
    scores[1, 7::32] = 3.0
    scores[2, 7::32], scores[2, 7::64] = 0.0, -0.0
    scores[3] = 0.0
    scores = scores.to(DEVICE)
    target = torch.tensor([7, 8, 71, 0], device=DEVICE)
    check(scores, target, k, tau)


@on_device
@pytest.mark.parametrize("scale", [1e-6, 1e8])
def test_large_and_small_scores(few_lanes, scale):
    scores = scale * awkward_scores(200)[:6:2]
    check(scores, scores.argsort(1)[:, 20], 4, 1.0)


@on_device
def test_small_losses_keep_their_digits():
    scores = torch.tensor([[30.0, 1.0, 0.0, -1.0]], device=DEVICE)
    target = torch.zeros(1, dtype=torch.long, device=DEVICE)
    values, _ = by_definition(scores, target, 1, 1.0)
    found = kernels.SmoothedHinge.apply(scores, target, 1, 1.0, 1.0)
    torch.testing.assert_close(found.double(), values, rtol=1e-5, atol=0)


@on_device
def test_classes_may_be_out(few_lanes):
    """Scores of -inf take classes out."""
    for n_classes in (60, 150):
        scores = awkward_scores(n_classes)[:1]
        wide = torch.cat([scores, torch.full_like(scores, -torch.inf)], dim=1)
        target = torch.tensor([3], device=DEVICE)
        expected = kernels.SmoothedHinge.apply(scores, target, 5, 0.5, 1.0)
        torch.testing.assert_close(
            kernels.SmoothedHinge.apply(wide, target, 5, 0.5, 1.0), expected
        )


@on_device
def test_nan_is_not_hidden(few_lanes):
    """Neither that of the true class nor that of another."""
    for n_classes in (20, 200):
        scores = awkward_scores(n_classes)[:3].requires_grad_()
        with torch.no_grad():
            scores[1, 3] = scores[2, 5] = torch.nan
        target = torch.tensor([3, 3, 3], device=DEVICE)
        values = kernels.SmoothedHinge.apply(scores, target, 2, 0.5, 1.0)
        assert values.isnan().tolist() == [False, True, True]
        values.sum().backward()
        assert scores.grad.isnan().any(1).tolist() == [False, True, True]


@on_device
@pytest.mark.parametrize(
    ("n_classes", "strided"),
    [
        *[(9, False), (300, True)],
        *(pytest.param(*case, marks=slow) for case in ((9, True), (300, False))),
    ],
)
def test_derivatives_of_the_loss_are_those_of_torch(few_lanes, dispatched, n_classes, strided):
    loss = SmoothedTopKHingeLoss(k=3, tau=0.7, margin=0.5, reduction="none")
    target = torch.tensor([0, 5, 8], device=DEVICE)
    results = []
    for dtype in (torch.float32, torch.float64):
        scores = awkward_scores(n_classes)[:3].to(dtype)
        scores = (scores.T.contiguous().T if strided else scores).requires_grad_()
        weights = torch.tensor([1.0, -2.0, 0.5], dtype=dtype, device=DEVICE, requires_grad=True)
        values = loss(scores, target)
        (first,) = torch.autograd.grad((values * weights).sum(), scores, retain_graph=True)
        (gradient,) = torch.autograd.grad((values * weights).sum(), scores, create_graph=True)
        second = torch.autograd.grad((gradient**2).sum(), (scores, weights))
        results.append([values, first, gradient, *second])
    for one, other in zip(*results):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


@on_device
def test_rows_may_be_strided_or_in_half_precision_or_absent(dispatched):
    loss = SmoothedTopKHingeLoss(k=1, reduction="none")
    wide = awkward_scores(30)
    target = torch.arange(7, device=DEVICE)
    two, part = target[:2], wide[:2, 5:25]
    assert torch.equal(loss(part, two), loss(part.clone(), two))
    first = wide[:4].T[:2]
    assert torch.equal(loss(first, two), loss(first.contiguous(), two))
    half = wide[:2].bfloat16()
    assert torch.equal(loss(half, two), loss(half.float(), two))
    assert loss(wide[:0], target[:0]).shape == (0,)


@on_device
def test_the_kernels_are_used(dispatched, monkeypatch):
    """Which leave a node of their own in the graph; nothing need be computed."""
    monkeypatch.setattr(_triton_rows, "launch", lambda *arguments, **options: None)
    scores, target = awkward_scores(200)[:1].requires_grad_(), torch.arange(1, device=DEVICE)
    for k, used in ((1, True), (64, True), (136, True), (199, True), (65, False), (135, False)):
        node = SmoothedTopKHingeLoss(k, reduction="none")(scores, target).grad_fn
        assert (getattr(node, "_forward_cls", None) is kernels.SmoothedHinge) == used

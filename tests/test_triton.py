"""Laws of the kernel of the noised losses, and of the choice of kernels."""

import numpy as np
import pytest
import reference
import torch
from scipy.stats import chi2_contingency, chisquare, kstest
from triton_tools import (
    DEVICE,
    INTERPRETED,
    compile_kernel,
    compiles,
    on_capabilities,
    on_device,
    slow,
)

from sksetvalued.losses import CalibratedTopKHingeLoss, NoisedTopKHingeLoss
from sksetvalued.operators import noised_top_k_sum
from sksetvalued.operators._dispatch import choose, has_triton
from sksetvalued.operators.noised import noised_hinge, select_noised
from sksetvalued.operators.noised import reference as definition

triton = pytest.importorskip("triton")
_triton_rows = pytest.importorskip("sksetvalued.operators._triton_rows")
tl = pytest.importorskip("triton.language")
_triton_noised = pytest.importorskip("sksetvalued.operators.noised.triton")
four_normals, select_in_one_pass = _triton_noised.four_normals, _triton_noised.select

TILE = 16
#: Largest rank that the kernel is used for.
MOST_RANK = 64


@compiles
@on_capabilities
@pytest.mark.parametrize(
    ("dtype", "k", "shared", "last_only", "noise"),
    [
        ("fp32", 6, False, True, True),
        ("fp32", 1, True, False, True),
        ("fp32", 6, False, False, False),
        ("bf16", 51, False, False, True),
    ],
)
def test_kernel_compiles_to_machine_code(
    capability, dtype, k, shared, last_only, noise, tmp_path, monkeypatch
):
    """No GPU is needed for that; an empty cache makes it compile."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    constants = {
        "K": k,
        "SLOTS": triton.next_power_of_2(k),
        "TILE": 1024,
        "SHARED": shared,
        "LAST_ONLY": last_only,
    }
    if not noise:
        constants |= {"seed": None, "normals_out": None}
    types = [f"*{dtype}", "i64", "i32", "i32", "i32", "fp32", "*i64", "*i32", "*i64", "*fp32"]
    types = types if noise else [*types[:6], *types[7:9]]
    settings = {"num_warps": 4}
    compiled = compile_kernel(
        _triton_noised._select_kernel, types, constants, capability, settings
    )
    assert ".local" not in compiled.asm["ptx"]  # no array is kept outside the registers


@compiles
@on_capabilities
@pytest.mark.parametrize("several", [False, pytest.param(True, marks=slow)])
def test_kernels_of_the_hinge_compile(capability, several, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    constants = {"K": 6, "DRAWS": 4, "KEPT": 256, "RANKS": 2, "EACH": True}
    if several:
        constants = {"K": 51, "DRAWS": 2, "KEPT": 2048, "RANKS": 4, "EACH": False}
    types = ["*fp32", "i64", "i32", "*i64", "*i32", "*i64", "i32", "i32", "*fp32", "i32"]
    types += ["*fp32", "fp32", "fp32", "*fp32", "*fp32", "*i64"]
    kernels = [(_triton_noised._hinge_kernel, types, constants)]
    types = ["*fp32", "i64", "i32", "*fp32", "i64", "*fp32", "*i64", "i32", "i32"]
    kernels += [(_triton_noised._hinge_gradient_kernel, types, {"TILE": 1024})]
    for kernel, types, constants in kernels:
        compiled = compile_kernel(kernel, types, constants, capability, {"num_warps": 4})
        assert ".local" not in compiled.asm["ptx"]


def test_products_are_fused_with_sums_whatever_the_default_of_triton():
    """Triton 3.9 warns wherever it is not told; 3.10 is to fuse none by default."""
    launched = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda *arguments, **options: launched.append(options)

    _triton_rows.launch(Kernel(), (1,), torch.zeros(1, 3), num_warps=4)
    assert launched == [{"enable_fp_fusion": True, "num_warps": 4}]


@triton.jit
def _export_kernel(out, seed, N_QUADS: tl.constexpr):
    stream = tl.program_id(0)
    quads = tl.arange(0, N_QUADS)
    one, two, three, four = four_normals(tl.load(seed), quads, stream)
    place = out + (stream * N_QUADS + quads) * 4
    tl.store(place, one)
    tl.store(place + 1, two)
    tl.store(place + 2, three)
    tl.store(place + 3, four)


def generator(seed=0):
    return torch.Generator(DEVICE).manual_seed(seed)


def export_normals(seed, n_streams, n_classes):
    """Return the normals that the kernel makes with `generator(seed)`, one row a stream."""
    seed = torch.randint(2**63 - 1, (1,), generator=generator(seed), device=DEVICE)
    n_quads = triton.next_power_of_2(triton.cdiv(n_classes, 4))
    out = torch.empty(n_streams, 4 * n_quads, device=DEVICE)
    _export_kernel[(n_streams,)](out, seed, N_QUADS=n_quads, **_triton_rows.FUSED)
    return out[:, :n_classes]


def random_scores(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed), device=DEVICE)


def select(scores, k, epsilon, n_draws, seed=0, segment=None, **options):
    """Select with small tiles, whole rows in one segment unless told otherwise."""
    whole = triton.cdiv(scores.shape[1], TILE) * TILE
    segment = segment or whole
    selected = select_in_one_pass(
        scores, k, epsilon, n_draws, generator(seed), segment=segment, tile=TILE, **options
    )
    return [each.flatten(1) for each in selected]


def check_against_dense(scores, k, epsilon, n_draws, all_k=False, shared=False, **options):
    """Compare with torch on the very normals of the kernel."""
    n_rows, n_classes = scores.shape
    indices, normals = select(
        scores, k, epsilon, n_draws, seed=3, all_k=all_k, shared=shared, **options
    )
    n_streams = n_draws if shared else n_rows * n_draws
    noise = export_normals(3, n_streams, n_classes).reshape(-1, n_draws, n_classes)
    noise = noise.transpose(0, 1)
    expected, _ = definition.select(scores.float(), k, epsilon, n_draws, noise=noise)
    expected = expected[..., 0 if all_k else -1 :].flatten(1)
    assert indices.shape == normals.shape == expected.shape
    assert indices.dtype == torch.int64
    assert normals.dtype == scores.dtype
    drawn = noise.expand(n_draws, n_rows, n_classes).transpose(0, 1)
    n_selected = indices.shape[1] // n_draws
    pairs = indices.reshape(n_rows, n_draws, n_selected)
    torch.testing.assert_close(
        normals.reshape(pairs.shape), drawn.gather(2, pairs).to(scores.dtype)
    )
    noised = scores.float().unsqueeze(1) + epsilon * drawn
    found, wanted = (
        noised.gather(2, i.reshape(pairs.shape)).sort(dim=2).values for i in (indices, expected)
    )
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)
    assert all(len(set(pair.tolist())) == n_selected for pair in pairs.flatten(0, 1))


@on_device
@pytest.mark.parametrize("n_classes", [1, TILE, TILE + 1, pytest.param(35, marks=slow)])
def test_selection_is_that_of_torch_given_the_normals(n_classes):
    for k in sorted({min(3, n_classes), n_classes}):
        scores = random_scores(1, n_classes)
        check_against_dense(scores, k, 0.5, 1)
        check_against_dense(scores, k, 0.5, 2, all_k=True)


@on_device
@pytest.mark.parametrize(
    ("segment", "all_k"),
    [
        *[(TILE, False), (2 * TILE, True)],
        *(pytest.param(*case, marks=slow) for case in ((TILE, True), (2 * TILE, False))),
    ],
)
def test_segments_are_merged(segment, all_k):
    """The last segment has fewer classes than k."""
    check_against_dense(random_scores(2, 50), 3, 0.5, 2, all_k=all_k, segment=segment)


@on_device
def test_k_up_to_the_limit():
    k = MOST_RANK
    scores = random_scores(1, k + 9)
    check_against_dense(scores, k, 1.0, 1)
    check_against_dense(scores, k, 1.0, 1, all_k=True, segment=2 * TILE)


@on_device
def test_increasing_and_decreasing_scores():
    """All tiles, or only the first, change what is kept."""
    ramp = torch.arange(50.0, device=DEVICE)
    check_against_dense(torch.stack([ramp, -ramp]), 4, 0.1, 1, all_k=True)


@on_device
@pytest.mark.parametrize("segment", [None, TILE])
def test_ties_and_infinities(segment):
    """With a noise below rounding, ties remain: distinct classes are taken all the same."""
    n_draws = 1 if INTERPRETED else 2
    scores = torch.zeros(3, 30, device=DEVICE)
    scores[1, ::2] = -torch.inf
    scores[2, 5:] = -torch.inf
    scores[2, 0] = torch.inf
    for k in (2, TILE + 1):
        indices, _ = select(scores, k, 1e-30, n_draws, all_k=True, segment=segment)
        found = scores.gather(1, indices).reshape(3, n_draws, k)
        found = found.sort(dim=2, descending=True).values
        expected = scores.topk(k).values.unsqueeze(1).expand_as(found)
        assert torch.equal(found, expected)
        for pair in indices.reshape(-1, k):
            assert len(pair.unique()) == k
    last, normals = select(scores, 7, 1.0, n_draws, segment=segment)
    assert scores[2].isneginf()[last[2]].all()
    assert normals.isfinite().all()


@on_device
def test_nan_is_above_all_as_for_torch():
    scores = random_scores(1, 30)
    scores[0, 17] = -torch.nan
    assert (select(scores, 1, 0.1, 3)[0] == 17).all()
    assert (torch.topk(scores, 1).indices == 17).all()


@on_device
def test_scores_may_be_strided_or_in_half_precision():
    wide = random_scores(3, 90)
    check_against_dense(wide[:2, 5:25], 3, 0.5, 1)
    check_against_dense(wide.T[:2], 2, 0.5, 1)
    for dtype in (torch.float16, torch.bfloat16):
        check_against_dense(wide[:2, :20].to(dtype), 3, 0.5, 1)


@on_device
def test_shared_noise():
    check_against_dense(random_scores(2, 20), 3, 0.5, 2, shared=True)
    _, normals = select(torch.zeros(2, 20, device=DEVICE), 2, 1.0, 2, shared=True)
    assert torch.equal(normals[0], normals[1])
    _, normals = select(torch.zeros(2, 20, device=DEVICE), 2, 1.0, 2)
    assert len(normals.unique()) == 4


@on_device
def test_a_generator_fixes_the_draws_and_advances():
    scores = random_scores(1, 20)
    results = [select(scores, 3, 1.0, 1, seed) for seed in (5, 5, 6)]
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert not torch.equal(results[0][1], results[2][1])
    one = generator()
    twice = [select_in_one_pass(scores, 3, 1.0, 1, one, segment=32, tile=TILE) for _ in range(2)]
    assert not torch.equal(twice[0][1], twice[1][1])


@on_device
def test_no_rows():
    for segment in (TILE, 2 * TILE):
        indices, normals = select(random_scores(0, 20), 3, 1.0, 2, segment=segment)
        assert indices.shape == normals.shape == (0, 2)


@on_device
def test_normals_are_standard_and_independent():
    """Kolmogorov-Smirnov tests of 65,536 normals and of sums of neighbours: false alarms 7e-6.

    Neighbours are classes of a quad, quads and streams: sums of dependent normals would not have
    a variance of two, nor would the signs of their products be balanced (5 standard errors).
    """
    normals = export_normals(0, 8, 8192).double().cpu()
    assert kstest(normals.flatten().numpy(), "norm").pvalue > 1e-6
    shifted = [normals.roll(lag, dims=1) for lag in (1, 2, 3, 4)] + [normals.roll(1, dims=0)]
    for other in shifted:
        total = (normals + other).flatten()[::9] / 2**0.5
        assert kstest(total.numpy(), "norm").pvalue > 1e-6
        signs = (normals * other).sign().mean()
        assert abs(signs) < 5 / normals.numel() ** 0.5
        # The radius is shared by the two normals of a pair if the transform is wrong.
        products = (normals.square() - 1) * (other.square() - 1)
        assert abs(products.mean()) < 5 * products.std() / normals.numel() ** 0.5
    other_seed = export_normals(1, 8, 8192).double().cpu()
    assert abs((normals * other_seed).mean()) < 5 / normals.numel() ** 0.5


@slow
@on_device
def test_law_of_the_selected_class():
    """Chi-squared against quadrature and against torch: false alarms 2e-6."""
    s, k, epsilon = np.array([1.5, 1.0, 1.0, 0.5, 0.2, 0.0, -1.0]), 3, 0.8
    n_rows, n_draws = (20, 10) if INTERPRETED else (2000, 50)
    scores = torch.tensor(s, dtype=torch.float32, device=DEVICE).expand(n_rows, -1)
    indices, normals = select(scores.contiguous(), k, epsilon, n_draws)
    observed = np.bincount(indices.cpu().flatten(), minlength=len(s))
    expected = reference.noised_rank_probabilities(s, k, epsilon)
    assert chisquare(observed, expected / expected.sum() * observed.sum()).pvalue > 1e-6
    noise = torch.randn(50, 2000, len(s), generator=generator(1), device=DEVICE)
    dense, _ = definition.select(scores[:1].expand(2000, -1), k, epsilon, 50, noise=noise)
    dense = np.bincount(dense[..., -1].cpu().flatten(), minlength=len(s))
    assert chi2_contingency(np.stack([observed, dense])).pvalue > 1e-6
    values = (scores.gather(1, indices) + epsilon * normals).flatten().cpu().numpy()
    law = kstest(values, lambda t: reference.noised_rank_cdf(s, k, epsilon, t))
    assert law.pvalue > 1e-6


@pytest.fixture
def dispatched(monkeypatch):
    """Let the losses use the kernel, in the interpreter too."""
    if INTERPRETED:
        monkeypatch.setenv("SKSETVALUED_KERNELS", "triton")


@on_device
@pytest.mark.parametrize(
    ("noise", "dtype"), [("independent", torch.float32), ("shared", torch.bfloat16)]
)
def test_loss_and_gradient_are_those_of_the_normals(dispatched, noise, dtype):
    """They follow from the normals that the kernel draws."""
    loss = NoisedTopKHingeLoss(k=2, epsilon=0.5, n_noise_samples=2, noise=noise, generator=9)
    scores = random_scores(3, 40).to(dtype).requires_grad_()
    target = torch.tensor([0, 5, 39], device=DEVICE)
    value = loss(scores, target)
    value.backward()
    normals = export_normals(9, 2 if noise == "shared" else 6, 40)
    leaf = scores.detach().float().requires_grad_()
    noised = leaf + 0.5 * normals.reshape(-1, 2, 40).transpose(0, 1)
    top = noised.topk(3).values[..., -1].mean(0)
    own = leaf.gather(1, target[:, None])[:, 0]
    expected = torch.relu(1 + top - own).mean()
    expected.backward()
    torch.testing.assert_close(value, expected.to(value.dtype))
    torch.testing.assert_close(scores.grad, leaf.grad.to(dtype))


@on_device
@pytest.mark.parametrize(
    ("epsilon", "n_draws", "ranks", "options"),
    [
        (0.5, 2, ((1, 0.25), (4, 0.75)), {"each": True}),
        (0.0, 1, ((1, 0.5), (2, 0.3), (5, 0.2)), {"segment": TILE}),
        (0.3, 2, ((5, 1.0),), {"shared": True, "segment": TILE, "at_once": 1, "each": True}),
        pytest.param(0.5, 3, ((2, 1.0),), {"segment": TILE, "each": True}, marks=slow),
        pytest.param(0.5, 3, ((2, 0.5), (3, 0.5)), {"at_once": 1}, marks=slow),
    ],
)
def test_hinge_and_its_gradients_are_those_of_the_definition(
    epsilon, n_draws, ranks, options, monkeypatch
):
    """Given the normals; also where segments are merged before, and for a NaN."""
    monkeypatch.setattr(_triton_noised, "_AT_ONCE", options.get("at_once", 4096))
    n_rows, n_classes, scale = 4, 25, 1.5
    scores = random_scores(n_rows, n_classes)
    scores[1, 7] = torch.inf
    scores[2, 3:6] = -torch.inf
    scores[3, 11] = torch.nan
    target = torch.tensor([0, 5, 24, 2], device=DEVICE)
    margin = torch.tensor([0.0, 1.0, 9.0, 0.5], device=DEVICE) if options.get("each") else 2.0
    grad = torch.tensor([1.0, -2.0, 0.5, 1.0], device=DEVICE)
    shared, segment = options.get("shared", False), options.get("segment", 2 * TILE)
    normals = export_normals(9, n_draws if shared else n_rows * n_draws, n_classes)
    normals = normals.reshape(-1, n_draws, n_classes).transpose(0, 1)
    leaf, given = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    draws = epsilon, n_draws, None, normals, shared  # given ones are for the definition alone
    expected = noised_hinge(leaf, target, ranks, margin, scale, draws)
    found = _triton_noised.NoisedHinge.apply(
        *(given, target, ranks, margin, epsilon, n_draws, scale, generator(9), shared),
        *(segment, TILE),
    )
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert found.isnan().tolist() == [False, False, False, True]
    (slope,) = torch.autograd.grad(expected, leaf, grad)
    (own,) = torch.autograd.grad(found, given, grad, retain_graph=True)
    torch.testing.assert_close(own[:3], slope[:3])
    assert (own[3] == 0).all()
    (again,) = torch.autograd.grad(found, given, grad, create_graph=True)
    torch.testing.assert_close(again, own)


@on_device
def test_a_target_that_is_no_class_gives_nan(dispatched):
    scores = random_scores(3, 20).requires_grad_()
    target = torch.tensor([0, -1, 20], device=DEVICE)
    loss = NoisedTopKHingeLoss(k=2, n_noise_samples=1, generator=0, reduction="none")
    losses = loss.sample_losses(scores, target)
    assert losses.isnan().tolist() == [False, True, True]
    for again in (False, True):
        (grad,) = torch.autograd.grad(losses.sum(), scores, retain_graph=True, create_graph=again)
        assert (grad[1:] == 0).all()


@on_device
def test_the_calibrated_hinge_is_computed_by_the_kernels(dispatched, monkeypatch):
    monkeypatch.setattr("sksetvalued.operators.noised.reference.hinge", None)
    scores, target = random_scores(3, 20), torch.tensor([0, 5, 19], device=DEVICE)
    expected = [
        reference.calibrated_top_k_hinge(s, y, 4, 1.0)
        for s, y in zip(scores.cpu().numpy(), target.tolist())
    ]
    found = CalibratedTopKHingeLoss(4)(scores, target).item()
    assert found == pytest.approx(np.mean(expected), rel=1e-6)


@on_device
def test_ranks_are_found_in_one_selection(dispatched):
    """The loss of several ranks is the sum of theirs, on the draws of the largest."""
    scores, target = random_scores(2, 40), torch.tensor([0, 39], device=DEVICE)
    options = {"epsilon": 0.5, "n_noise_samples": 2, "generator": 9, "reduction": "none"}
    mixed = NoisedTopKHingeLoss(k=5, ranks={1: 1, "k": 3}, **options)(scores, target)
    first, last = (
        NoisedTopKHingeLoss(k=5, ranks={r: 1, 5: 1e-30}, **options)(scores, target) for r in (1, 5)
    )
    torch.testing.assert_close(mixed, 0.25 * first + 0.75 * last)


@on_device
def test_sum_of_the_k_largest_uses_the_kernel(dispatched, monkeypatch):
    calls = []

    def record(*arguments):
        calls.append(arguments)
        return select_in_one_pass(*arguments)

    monkeypatch.setattr(_triton_noised, "select", record)
    scores = random_scores(3, 20).requires_grad_()
    value = noised_top_k_sum(scores, 4, 1e-6, 2, generator=generator())
    torch.testing.assert_close(value, scores.topk(4).values.sum(1), rtol=1e-4, atol=1e-4)
    value.sum().backward()
    torch.testing.assert_close(scores.grad.sum(1), torch.full((3,), 4.0, device=DEVICE))
    assert len(calls) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_kernel_is_for_single_precision_on_a_gpu():
    scores = torch.zeros(2, 100, device="cuda")
    assert choose("noised", scores, rank=MOST_RANK) == "triton"
    assert choose("noised", scores, rank=MOST_RANK + 1) == "reference"
    assert choose("noised", scores.double()) == "reference"


def test_without_a_c_compiler_triton_is_not_used(monkeypatch):
    monkeypatch.setattr("os.path.exists", lambda _: True)
    monkeypatch.setenv("CC", "cc")
    assert has_triton.__wrapped__()
    monkeypatch.delenv("CC")
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert not has_triton.__wrapped__()


@pytest.mark.skipif(INTERPRETED or not torch.cuda.is_available(), reason="needs a GPU")
def test_memory_on_a_gpu_does_not_grow_with_the_classes():
    scores = random_scores(64, 100_000)
    for n_draws in (3, 50):
        select_noised(scores, 6, 0.3, n_draws, generator())
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        select_noised(scores, 6, 0.3, n_draws, generator())
        assert torch.cuda.max_memory_allocated() - before < 0.1 * scores.nbytes

"""Laws of the noised top-k operators."""

import numpy as np
import pytest
import reference
import torch
from scipy.special import log_ndtr
from scipy.stats import chi2_contingency, chisquare, kstest
from torch.autograd import gradcheck, gradgradcheck

from sksetvalued.operators import _exceeding, _sieve, noised_top_k, noised_top_k_sum
from sksetvalued.operators._compiled import kernels
from sksetvalued.operators._noised import select_noised
from sksetvalued.operators._top_k import k_largest, kth_largest, top_k

WORKED_SCORES = [2.4, 2.6, 2.3, 0.5]
WORKED_NOISE = [[0.2, -0.1, 0.1, 0.3], [0.1, 0.1, -0.1, 0.1], [-0.1, -0.1, 0.1, -0.1]]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_worked_example_of_the_paper():
    """Garcin et al. 2022, Section 3.2: 7.4 / 3 = 2.47 and gradient [1/3, 1/3, 1/3, 0]."""
    scores = torch.tensor(WORKED_SCORES, dtype=torch.float64, requires_grad=True)
    noise = torch.tensor(WORKED_NOISE, dtype=torch.float64)
    value = noised_top_k(scores, 2, epsilon=1.0, noise=noise)
    value.backward()
    assert value.item() == pytest.approx(7.4 / 3, abs=1e-12)
    assert scores.grad.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0], abs=1e-12)
    scores.grad = None
    noised_top_k(scores, 2, epsilon=0.1, noise=noise).backward()
    assert scores.grad.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("n_classes", range(3, 9))
def test_operators_equal_their_formulas_for_given_noise(n_classes):
    scores = torch.randn(5, n_classes, dtype=torch.float64, generator=generator(n_classes))
    noise = torch.randn(3, 5, n_classes, dtype=torch.float64, generator=generator(1))
    for k in range(1, n_classes + 1):
        noised = (scores + 0.4 * noise).sort(dim=2, descending=True).values
        for operator, expected in (
            (noised_top_k, noised[..., k - 1].mean(0)),
            (noised_top_k_sum, noised[..., :k].sum(2).mean(0)),
        ):
            value = operator(scores, k, 0.4, noise=noise)
            torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
            leaf = (scores.clone().requires_grad_(),)
            assert gradcheck(lambda s: operator(s, k, 0.4, noise=noise), leaf, eps=1e-7)  # noqa: B023
            assert gradgradcheck(lambda s: operator(s, k, 0.4, noise=noise), leaf)  # noqa: B023


def test_without_noise_the_operators_are_exact():
    scores = torch.randn(4, 9, generator=generator())
    ordered = scores.sort(dim=1, descending=True).values
    for k in range(1, 10):
        assert torch.equal(noised_top_k(scores, k, epsilon=0.0), ordered[:, k - 1])
        torch.testing.assert_close(noised_top_k_sum(scores, k, epsilon=0.0), ordered[:, :k].sum(1))


def test_sum_is_convex_and_linear_along_constants():
    """Errata A9: topSigma_k(s + c) = topSigma_k(s) + k c."""
    a, b = torch.randn(2, 50, 6, dtype=torch.float64, generator=generator())
    noise = torch.randn(3, 1, 6, dtype=torch.float64, generator=generator(1))
    for k in range(1, 7):

        def value(s):
            return noised_top_k_sum(s, k, 0.5, noise=noise)  # noqa: B023

        assert (value((a + b) / 2) <= (value(a) + value(b)) / 2 + 1e-12).all()
        torch.testing.assert_close(value(a + 2.5), value(a) + 2.5 * k)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_shapes_and_types_are_kept(dtype):
    scores = torch.randn(2, 3, 7).to(dtype)
    for operator in (noised_top_k, noised_top_k_sum):
        value = operator(scores, 2, 0.3, 4, generator=generator())
        assert value.shape == (2, 3)
        assert value.dtype == dtype
        assert operator(scores[0, 0], 2, 0.3, generator=generator()).shape == ()


def test_a_generator_fixes_the_noise():
    scores = torch.randn(4, 9)
    values = [noised_top_k(scores, 2, generator=generator(seed)) for seed in (3, 3, 4)]
    assert torch.equal(values[0], values[1])
    assert not torch.equal(values[0], values[2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: noised_top_k(s, 6), r"k must lie in \[1, 5\]"),
        (lambda s: noised_top_k(s, 0), "k must be at least 1"),
        (lambda s: noised_top_k_sum(s, 2, epsilon=-1.0), "epsilon"),
        (lambda s: noised_top_k_sum(s, 2, n_noise_samples=0), "n_noise_samples"),
        (lambda s: noised_top_k(s.long(), 2), "floating-point"),
        (lambda s: noised_top_k(s, 2, noise=torch.zeros(3, 3, 4)), r"noise must have shape"),
        (lambda s: noised_top_k(s, 2, noise=torch.zeros(3, 2, 5)), r"noise must have shape"),
        (lambda s: noised_top_k(s, 2, noise=torch.zeros(0, 3, 5)), r"at least one draw"),
        (lambda s: noised_top_k(s, 2, noise=torch.zeros(5)), r"noise must have shape"),
        (lambda s: noised_top_k(s[None], 2, noise=torch.zeros(7, 3, 5)), r"noise must have shape"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.randn(3, 5))


@pytest.mark.parametrize("operator", [noised_top_k, noised_top_k_sum])
def test_noise_is_shared_along_dimensions_of_one_and_no_others(operator):
    scores = torch.randn(3, 4, 6, generator=generator())
    for shape in ((7, 3, 4, 6), (7, 3, 1, 6), (7, 1, 4, 6), (7, 1, 1, 6)):
        noise = torch.randn(shape, generator=generator(1))
        value = operator(scores, 2, 0.5, noise=noise)
        for i in range(3):
            for j in range(4):
                own = noise[:, i % shape[1], j % shape[2]]
                expected = operator(scores[i, j], 2, 0.5, noise=own)
                torch.testing.assert_close(value[i, j], expected)
    for shape in ((7, 4, 3, 6), (7, 2, 6, 6), (7, 12, 6), (7, 1, 6), (7, 3, 4, 1), (0, 3, 4, 6)):
        with pytest.raises(
            ValueError, match=r"noise must have shape \(n_noise_samples, 3, 4, 6\)"
        ):
            operator(scores, 2, noise=torch.zeros(shape))


# The law of the draws, against quadrature.


def tied_scores():
    return np.array([3.0, 2.5, 2.5, 2.0, 1.0] + [0.5] * 6 + [0.0] * 8 + [-1.0] * 5 + [-9.0] * 3)


def select_sieving(size, raised=0.0):
    """Return the selector that draws what exceeds a threshold, with blocks of a given size.

    Thresholds raised by so many standard deviations of the noise leave more draws with too few
    classes above.
    """

    def select(scores, k, epsilon, n_draws, generator):
        plan, _ = _sieve.make_plan(scores, k, epsilon, size)
        plan = plan._replace(thresholds=plan.thresholds + raised * epsilon)
        return _sieve.select_sieving(scores, k, epsilon, n_draws, generator, plan)

    return select


def select_by_kernel(instruction_set):
    """Return the selector of the kernels compiled for an instruction set."""

    def select(scores, k, epsilon, n_draws, generator):
        before = kernels.instruction_sets()[0]
        kernels.use_instruction_set(instruction_set)
        try:
            return select_noised(scores.float(), k, epsilon, n_draws, generator)
        finally:
            kernels.use_instruction_set(before)

    return select


KERNELS = {
    f"kernel, {name}": select_by_kernel(name)
    for name in (kernels.instruction_sets() if kernels else ())
}
SELECTORS = {
    **KERNELS,
    "dense with noise": lambda s, k, epsilon, n, g: select_noised(
        s, k, epsilon, n, noise=torch.randn(n, *s.shape, generator=g, dtype=s.dtype)
    ),
    "dense": lambda s, k, epsilon, n, g: select_noised(s, k, epsilon, n, g),
    "sieve": select_sieving(1),
    "sieve, blocks": select_sieving(2),
    "sieve, uneven blocks": select_sieving(4),
    "sieve, raised": select_sieving(1, raised=0.7),
    "sieve, blocks, raised more": select_sieving(2, raised=1.5),
}


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("name", SELECTORS)
def test_law_of_the_selected_class_and_of_its_value(name, epsilon):
    """Chi-squared and Kolmogorov-Smirnov tests; false-alarm rate 2e-6 each, seeds fixed."""
    s, k, n_rows, n_draws = tied_scores(), 3, 500, 20
    scores = torch.tensor(s).expand(n_rows, -1)
    indices, normals = SELECTORS[name](scores, k, epsilon, n_draws, generator(1))
    assert indices.shape == normals.shape == (n_rows, n_draws)
    expected = reference.noised_rank_probabilities(s, k, epsilon)
    assert expected.sum() == pytest.approx(1, abs=1e-9)
    frequent = expected * n_rows * n_draws > 5
    observed = np.bincount(indices.flatten(), minlength=len(s))
    pooled = [np.append(x[frequent], x[~frequent].sum()) for x in (observed, expected)]
    kept = pooled[1] * n_rows * n_draws > 1e-3
    assert pooled[0][~kept].sum() == 0
    frequencies = pooled[1][kept] / pooled[1][kept].sum()
    assert chisquare(pooled[0][kept], frequencies * n_rows * n_draws).pvalue > 2e-6
    values = (scores.gather(1, indices) + epsilon * normals).flatten().numpy()
    law = kstest(values, lambda t: reference.noised_rank_cdf(s, k, epsilon, t))
    assert law.pvalue > 2e-6


@pytest.mark.parametrize("name", SELECTORS)
def test_mean_and_gradient_are_unbiased(name):
    """Against quadrature, 5 standard errors: false-alarm rate below 28 x 6e-7."""
    s, k, epsilon, n = tied_scores(), 4, 0.7, 20000
    scores = torch.tensor(s).expand(n // 10, -1)
    indices, normals = SELECTORS[name](scores, k, epsilon, 10, generator(2))
    values = (scores.gather(1, indices) + epsilon * normals).flatten()
    expected = reference.noised_top_k_mean(s, k, epsilon)
    assert abs(values.mean() - expected) < 5 * values.std() / n**0.5
    p = reference.noised_rank_probabilities(s, k, epsilon)
    gradient = np.bincount(indices.flatten(), minlength=len(s)) / n
    assert (np.abs(gradient - p) <= 5 * np.sqrt(p * (1 - p) / n) + 1e-9).all()


def test_draws_of_a_row_are_independent():
    """Two draws fall on the same class as often as independent ones; 5 standard errors."""
    s, n = tied_scores(), 20000
    scores = torch.tensor(s).expand(n, -1)
    for select in SELECTORS.values():
        indices, _ = select(scores, 3, 1.0, 2, generator(5))
        same = (indices[:, 0] == indices[:, 1]).double().mean()
        expected = (reference.noised_rank_probabilities(s, 3, 1.0) ** 2).sum()
        assert abs(same - expected) < 5 * (expected * (1 - expected) / n) ** 0.5


def test_how_to_draw_is_decided_by_the_scores_alone():
    scores = torch.randn(20, 5000, generator=generator())
    state = torch.get_rng_state()
    plans = [_sieve.plan_sieve(scores, 6, 0.5, 3) for _ in range(2)]
    assert np.array_equal(plans[0].thresholds, plans[1].thresholds)
    assert torch.equal(state, torch.get_rng_state())
    for few in (scores[:, :100], scores[:0]):
        assert _sieve.plan_sieve(few, 6, 0.5, 3) is None


def rows_for_the_sieve(name, n_rows, n_classes, dtype=torch.float32):
    s = torch.randn(n_classes, dtype=torch.float64, generator=generator(n_classes))
    if name == "constant":
        s = torch.zeros_like(s)
    elif name == "tied":
        s = s.round()
    elif name == "confident":
        s[: n_classes // 50] += 6
    elif name == "masked":
        s[torch.rand(n_classes, generator=generator(1)) < 0.6] = -torch.inf
    elif name == "far from 0":
        s += 1000
    elif name == "shelf":
        # Of many classes just below the few best most exceed the worst of these.
        s[:] = -1.05
        s[:6] = 0
    return s.to(dtype).expand(n_rows, -1)


@pytest.fixture
def without_kernels(monkeypatch):
    monkeypatch.setattr("sksetvalued.operators._compiled.kernels", None)


ROWS_FOR_THE_SIEVE = [
    ("normal", 600, 6, 0.3, 3, 8),
    ("normal", 603, 6, 1.0, 10, 8),
    ("normal", 600, 1, 1.0, 1, 8),
    ("normal", 600, 6, 0.5, 1, 8),
    ("normal", 600, 40, 0.5, 3, 2),
    ("normal", 3001, 6, 0.4, 3, 16),
    ("normal", 600, 6, 50.0, 40, 8),
    ("normal", 600, 6, 1e-3, 3, 8),
    ("constant", 600, 6, 1.0, 3, 8),
    ("tied", 600, 6, 0.2, 3, 8),
    ("confident", 600, 6, 1.0, 3, 8),
    ("masked", 600, 6, 1.0, 3, 8),
    ("far from 0", 600, 6, 0.5, 3, 8),
]


def check_law(select, scores, k, epsilon, n_draws):
    """Kolmogorov-Smirnov against quadrature, false alarms 1e-6; chi-squared against dense."""
    drawn, dense = (
        each(scores, k, epsilon, n_draws, generator(7))
        for each in (select, SELECTORS["dense with noise"])
    )
    finite = scores[0][scores[0] > -torch.inf].double().numpy()
    indices, normals = drawn
    values = (scores.gather(1, indices).double() + epsilon * normals.double()).flatten().numpy()
    grid = np.linspace(values.min() - epsilon, values.max() + epsilon, 2001)
    law = reference.noised_rank_cdf(finite, k, epsilon, grid)
    assert kstest(values, lambda t: np.interp(t, grid, law)).pvalue > 1e-6
    counts = np.stack(
        [np.bincount(i.flatten(), minlength=scores.shape[1]) for i, _ in (drawn, dense)], axis=1
    )
    frequent = counts.sum(1) >= 20
    pooled = np.vstack([counts[frequent], counts[~frequent].sum(0)])
    pooled = pooled[pooled.sum(1) > 0]
    if len(pooled) > 1:
        assert chi2_contingency(pooled).pvalue > 1e-6


@pytest.mark.parametrize(
    ("name", "n_classes", "k", "epsilon", "n_draws", "size"), ROWS_FOR_THE_SIEVE
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_law_of_the_sieve_for_scores_of_any_kind(
    name, n_classes, k, epsilon, n_draws, size, dtype
):
    scores = rows_for_the_sieve(name, 12000 // n_draws, n_classes, dtype)
    check_law(select_sieving(size), scores, k, epsilon, n_draws)


@pytest.mark.parametrize(
    ("name", "n_classes", "k", "epsilon", "n_draws"),
    [
        *(row[:-1] for row in ROWS_FOR_THE_SIEVE),
        ("normal", 5000, 6, 0.3, 3),
        ("normal", 5000, 300, 1.0, 1),
        ("confident", 5003, 6, 2.0, 10),
        ("shelf", 3000, 6, 1.0, 3),
        ("shelf", 5000, 6, 1.0, 3),
        ("normal", 100, 99, 0.5, 3),
    ],
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_law_of_the_kernels_for_scores_of_any_kind(name, n_classes, k, epsilon, n_draws, kernel):
    scores = rows_for_the_sieve(name, 12000 // n_draws, n_classes)
    check_law(KERNELS[kernel], scores, k, epsilon, n_draws)


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_and_draws_of_the_kernels_are_independent(kernel):
    """Values of neighbours do not correlate; 5 standard errors, false alarms 1e-6."""
    scores = rows_for_the_sieve("normal", 20000, 600)
    indices, normals = KERNELS[kernel](scores, 6, 0.6, 2, generator(4))
    values = scores.gather(1, indices) + 0.6 * normals
    for pairs in (values, torch.stack([values[:-1, 0], values[1:, 0]], dim=1)):
        assert abs(torch.corrcoef(pairs.T)[0, 1]) < 5 / len(pairs) ** 0.5


@pytest.mark.skipif(kernels is None, reason="kernels were not built")
@pytest.mark.parametrize("n_classes", [7, 100, 1000, 5000])
def test_kernels_find_all_k_of_which_the_last_is_the_kth(n_classes):
    scores = torch.randn(40, n_classes, generator=generator())
    for k in (1, 3, 6):
        last, normals = select_noised(scores, k, 0.7, 4, generator(1))
        value = scores.gather(1, last) + 0.7 * normals
        indices, normals = select_noised(scores, k, 0.7, 4, generator(1), all_k=True)
        values = (scores.gather(1, indices) + 0.7 * normals).view(40, 4, k)
        torch.testing.assert_close(values.amin(2), value, rtol=0, atol=1e-6)
        assert all(len(row.unique()) == k for row in indices.view(-1, k))


def test_rows_of_very_different_spread_are_drawn_together():
    """The law of each row, as if alone; Kolmogorov-Smirnov, false alarms 5e-6."""
    s = torch.randn(600, dtype=torch.float64, generator=generator(3))
    spreads = torch.tensor([1e-3, 0.1, 1.0, 10.0, 1e3], dtype=torch.float64)
    scores = (spreads[:, None] * s).repeat(800, 1)
    indices, normals = select_sieving(8)(scores, 6, 1.0, 3, generator())
    values = (scores.gather(1, indices) + normals).view(800, 5, 3)
    for row, spread in enumerate(spreads):
        mine = values[:, row].flatten().numpy()
        grid = np.linspace(mine.min() - 1, mine.max() + 1, 2001)
        law = reference.noised_rank_cdf((spread * s).numpy(), 6, 1.0, grid)
        assert kstest(mine, lambda t: np.interp(t, grid, law)).pvalue > 1e-6  # noqa: B023


def test_rows_and_draws_of_the_sieve_are_independent():
    """Ranks of neighbours do not correlate; 5 standard errors, false alarms 1e-6."""
    scores = rows_for_the_sieve("normal", 6000, 600)
    indices, normals = select_sieving(8)(scores, 6, 0.6, 2, generator(4))
    values = scores.gather(1, indices) + 0.6 * normals
    for pairs in (values, torch.stack([values[:-1, 0], values[1:, 0]], dim=1)):
        assert abs(torch.corrcoef(pairs.T)[0, 1]) < 5 / len(pairs) ** 0.5


@pytest.mark.parametrize("kernels", [True, False])
def test_a_generator_fixes_the_draws_and_the_default_one_is_left_alone(kernels, request):
    if not kernels:
        request.getfixturevalue("without_kernels")
    scores = torch.randn(200, 1000, generator=generator())
    assert _sieve.plan_sieve(scores, 6, 1.0, 3) is not None
    state = torch.get_rng_state()
    drawn = [select_noised(scores, 6, 1.0, 3, generator(seed)) for seed in (3, 3, 4)]
    assert all(torch.equal(a, b) for a, b in zip(drawn[0], drawn[1]))
    assert not torch.equal(drawn[0][0], drawn[2][0])
    assert torch.equal(state, torch.get_rng_state())
    with torch.random.fork_rng():
        torch.manual_seed(3)
        assert torch.equal(select_noised(scores, 6, 1.0, 3)[0], drawn[0][0])


def test_normals_below_a_threshold_are_truncated():
    """Kolmogorov-Smirnov, false alarms 1e-6 for each class."""
    scores = np.broadcast_to([0.0, 1.0, -1.0, 4.0, -np.inf], (20000, 5)).copy()
    thresholds = np.full(len(scores), 0.5)
    normals = _sieve._draw_below(scores, thresholds, 2.0, generator())
    for s, drawn in zip(scores[0], normals.T):
        most = (0.5 - s) / 2
        assert (drawn <= most).all()
        assert kstest(drawn, lambda z: np.exp(log_ndtr(z) - log_ndtr(most))).pvalue > 1e-6  # noqa: B023


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("epsilon", [1e-12, 0.01, 1.0, 1e12])
def test_intensities_are_bounded(dtype, epsilon):
    """-log(1 - Q(u)) from below the least u that is asked for to far in the tail."""
    u = np.linspace(-0.5, 30, 100001)
    scores, thresholds = (-u * epsilon).astype(dtype), np.zeros(1, dtype=dtype)
    u = -scores.astype(np.float64) / epsilon
    bounds = _exceeding.bound_intensities(scores, thresholds, epsilon)
    intensities = -log_ndtr(u)
    assert (bounds >= intensities)[u >= -0.5].all()
    assert (bounds <= 1.2 * intensities)[u <= 3.5].all()


@pytest.mark.usefixtures("without_kernels")
def test_scores_without_thresholds_are_drawn_densely():
    scores = torch.randn(200, 1000, generator=generator())
    assert _sieve.plan_sieve(scores, 6, 1.0, 3) is not None
    for value in (torch.nan, torch.inf):
        odd = scores.clone()
        odd[3, 5] = value
        assert _sieve.plan_sieve(odd, 6, 1.0, 3) is None
    for epsilon in (1e-30, 1e30):
        assert _sieve.plan_sieve(scores, 6, epsilon, 3) is None
    odd = torch.full_like(scores, -torch.inf)
    odd[:, :8] = 0.0
    indices, _ = select_noised(odd, 6, 1.0, 3, generator())
    assert (indices < 8).all()


@pytest.mark.parametrize("n_draws", [3, 100])
def test_values_of_the_sieve_are_those_of_its_classes_and_normals(n_draws):
    """A transposed batch, in parts of rows and of draws, is drawn as its copy is."""
    scores = torch.randn(1000, 3, generator=generator()).T
    for batch in (scores, scores.contiguous()):
        indices, normals = select_sieving(8)(batch, 6, 1.0, n_draws, generator(1))
        assert indices.shape == normals.shape == (3, n_draws)
        assert indices.dtype == torch.int64
        assert normals.dtype == torch.float32
        value = (batch.gather(1, indices) + normals).mean()
    again, _ = select_sieving(8)(scores, 6, 1.0, n_draws, generator(1))
    assert torch.equal(again, indices)
    assert torch.isfinite(value)


@pytest.mark.parametrize("n_classes", [4096, 5003, 20000])
def test_two_stage_top_k_is_exact(n_classes):
    scores = torch.randn(4, n_classes, generator=generator())
    scores[0, ::7] = 9.0  # ties
    for k in (1, 6, 40):
        values, indices = top_k(scores, k)
        assert torch.equal(values, torch.topk(scores, k).values)
        assert torch.equal(scores.gather(1, indices), values)
        assert all(len(row.unique()) == k for row in indices)


@pytest.mark.parametrize("kind", ["normal", "tied", "infinite", "nan"])
@pytest.mark.parametrize("shape", [(5, 9), (2, 4, 30), (3, 700)])
def test_places_of_the_largest_are_those_of_a_sort(shape, kind):
    """A NaN is above all, as in NumPy and torch; tied entries are taken once each."""
    values = torch.randn(shape, generator=generator(shape[-1]))
    if kind == "tied":
        values = values.round()
    elif kind == "infinite":
        values[..., ::3] = -torch.inf
    elif kind == "nan":
        values = values.round()
        values[0, ..., :3] = torch.nan
    ordered = values.sort(dim=-1, descending=True).values
    for k in (1, 3, shape[-1]):
        last, all_k = kth_largest(values, k), k_largest(values, k)
        expected = ordered[..., k - 1 : k]
        torch.testing.assert_close(values.gather(-1, last), expected, equal_nan=True)
        found = values.gather(-1, all_k).sort(dim=-1, descending=True).values
        torch.testing.assert_close(found, ordered[..., :k], equal_nan=True)
        assert all(len(row.unique()) == k for row in all_k.flatten(0, -2))

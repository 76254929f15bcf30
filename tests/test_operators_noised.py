"""Laws of the noised top-k operators."""

from functools import cache, partial

import numpy as np
import pytest
import reference
import torch
from scipy.stats import chi2_contingency, chisquare, kstest
from torch.autograd import gradcheck, gradgradcheck

from sksetvalued.operators import _backends, noised_top_k, noised_top_k_sum
from sksetvalued.operators._dispatch import kernels
from sksetvalued.operators._top_k import top_k, top_k_by_blocks
from sksetvalued.operators.noised import cpu, select_noised
from sksetvalued.operators.noised import reference as definition

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


@pytest.mark.without_kernels
@pytest.mark.parametrize("n_classes", [3, 6])
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
            leaf = (scores[:2].clone().requires_grad_(),)
            call = partial(operator, k=k, epsilon=0.4, noise=noise[:, :2])
            assert gradcheck(call, leaf, eps=1e-7)
            assert gradgradcheck(call, leaf)


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


def test_a_generator_or_its_seed_fixes_the_noise():
    scores = torch.randn(4, 9)
    seeds = (generator(3), generator(3), generator(4), 3)
    values = [noised_top_k(scores, 2, generator=seed) for seed in seeds]
    assert torch.equal(values[0], values[1])
    assert not torch.equal(values[0], values[2])
    assert torch.equal(values[0], values[3])


@pytest.mark.parametrize("operator", [noised_top_k, noised_top_k_sum])
@pytest.mark.parametrize(
    "params", [{"generator": 3.0}, {"generator": True}, {"noise": np.zeros((3, 4, 9))}]
)
def test_sources_of_noise_of_another_type_are_named(operator, params):
    (name,) = params
    with pytest.raises(TypeError, match=f"{name} must be a .*got"):
        operator(torch.randn(4, 9), 2, **params)


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


def test_places_that_are_chosen_again_and_again_add_up(monkeypatch):
    """As on a GPU, where they do so in one order, however many rows are compared at once."""
    scores = torch.randn(40, 7, dtype=torch.float64, generator=generator()).requires_grad_()
    places = torch.randint(7, (40, 12), generator=generator(1))
    grad = torch.randn(40, 12, dtype=torch.float64, generator=generator(2))
    grad[3, places[3] == 2] = torch.inf
    monkeypatch.setattr(_backends, "_AT_ONCE", 1000)
    (found,) = torch.autograd.grad(definition.Gathered.apply(scores, places), scores, grad)
    (expected,) = torch.autograd.grad(scores.gather(1, places), scores, grad)
    torch.testing.assert_close(found, expected)
    few = (scores[:2].detach().requires_grad_(),)
    assert gradgradcheck(lambda s: definition.Gathered.apply(s, places[:2]).square(), few)


def test_derivatives_of_every_kind_agree():
    scores = torch.randn(3, 5000, dtype=torch.float64, generator=generator())
    noise = torch.randn(2, 1, 5000, dtype=torch.float64, generator=generator(1))

    def value(s):
        return noised_top_k(s, 6, 0.5, noise=noise).square().sum()

    leaf = scores.clone().requires_grad_()
    (expected,) = torch.autograd.grad(value(leaf), leaf)
    assert torch.equal(torch.func.grad(value)(scores), expected)
    rows = torch.vmap(torch.func.grad(value))(scores[:, None])
    torch.testing.assert_close(rows[:, 0], expected)
    tangent = torch.randn(scores.shape, dtype=scores.dtype, generator=generator(2))
    _, along = torch.func.jvp(value, (scores,), (tangent,))
    assert along != 0
    torch.testing.assert_close(along, (expected * tangent).sum())


def test_transformed_functions_draw_noise():
    """Each sample its own under vmap, from the generator that is given."""
    scores = torch.zeros(4, 600)

    def value(s):
        return noised_top_k(s, 3, 1.0, 2, generator=generator(5))

    values = torch.vmap(value, randomness="different")(scores)
    assert len(values.unique()) == 4
    slopes = torch.func.grad(lambda s: value(s).sum())(scores)
    torch.testing.assert_close(slopes.sum(1), torch.ones(4))


@pytest.mark.parametrize("all_k", [False, True])
def test_nothing_but_shapes_is_computed_on_the_meta_device(all_k):
    scores = torch.empty(7, 5000, device="meta")
    indices, normals = select_noised(scores, 6, 0.5, 3, all_k=all_k)
    assert indices.shape == normals.shape == (7, 3, 6 if all_k else 1)
    assert indices.is_meta


def test_masked_classes_come_last_and_a_nan_first():
    scores = torch.zeros(3, 50, dtype=torch.float64)
    scores[0, 4:] = -torch.inf
    scores[1, 7] = torch.nan
    indices, normals = select_noised(scores, 4, 1.0, 20, generator(1))
    assert (indices[0] < 4).all()
    assert (indices[1] == 7).all()
    assert normals.isfinite().all()
    masked = noised_top_k(scores, 5, 1.0, 20)
    assert masked[0] == -torch.inf
    assert masked.isnan().tolist() == [False, True, False]


@pytest.mark.without_kernels
@pytest.mark.parametrize("n_samples", [0, 1, 30])
def test_the_reference_is_a_sort_of_noised_rows_in_chunks_of_any_number(n_samples, monkeypatch):
    """Chunks of draws of one row, and of rows of one draw; the last is smaller."""
    monkeypatch.setattr(_backends, "_AT_ONCE", 20 * 1500)
    draw = {"dtype": torch.float64, "generator": generator()}
    scores = torch.randn(n_samples, 1500, **draw)
    for noise in (torch.randn(30, n_samples, 1500, **draw), torch.randn(30, 1, 1500, **draw)):
        indices, normals = definition.select(scores, 3, 0.7, 30, noise=noise)
        noised = scores + 0.7 * noise
        expected = noised.sort(dim=2, descending=True)
        assert torch.equal(indices, expected.indices[..., :3].transpose(0, 1))
        found = scores.unsqueeze(1).expand(-1, 30, -1).gather(2, indices) + 0.7 * normals
        torch.testing.assert_close(found, expected.values[..., :3].transpose(0, 1))


# The law of the draws, against quadrature.


def tied_scores():
    return np.array([3.0, 2.5, 2.5, 2.0, 1.0] + [0.5] * 6 + [0.0] * 8 + [-1.0] * 5 + [-9.0] * 3)


def select_by_kernel(instruction_set):
    """Return the selector of the kernels compiled for an instruction set."""

    def select(scores, k, epsilon, n_draws, generator):
        before = kernels.instruction_sets()[0]
        kernels.use_instruction_set(instruction_set)
        try:
            selected = cpu.select(scores.float(), k, epsilon, n_draws, generator)
        finally:
            kernels.use_instruction_set(before)
        return [each.flatten(1) for each in selected]

    return select


def select_by_definition(scores, k, epsilon, n_draws, generator):
    selected = definition.select(scores, k, epsilon, n_draws, generator)
    return [each[..., -1] for each in selected]


KERNELS = {
    f"kernel, {name}": select_by_kernel(name)
    for name in (kernels.instruction_sets() if kernels else ())
}
SELECTORS = {**KERNELS, "reference": select_by_definition}


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


def make_rows(name, n_rows, n_classes, dtype=torch.float32):
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


def values_of(scores, indices, normals, epsilon):
    return (scores.gather(1, indices).double() + epsilon * normals.double()).flatten().numpy()


@cache
def law_by_definition(name, n_rows, n_classes, k, epsilon, n_draws):
    """Return how often classes are drawn densely, and the law of the values on a grid."""
    scores = make_rows(name, n_rows, n_classes)
    indices, normals = select_by_definition(scores, k, epsilon, n_draws, generator(7))
    values = values_of(scores, indices, normals, epsilon)
    grid = np.linspace(values.min() - 2 * epsilon, values.max() + 2 * epsilon, 1001)
    finite = scores[0][scores[0] > -torch.inf].double().numpy()
    law = reference.noised_rank_cdf(finite, k, epsilon, grid)
    return np.bincount(indices.flatten(), minlength=n_classes), grid, law


def check_law(select, name, n_rows, n_classes, k, epsilon, n_draws):
    """Kolmogorov-Smirnov against quadrature, false alarms 1e-6; chi-squared against dense."""
    scores = make_rows(name, n_rows, n_classes)
    indices, normals = select(scores, k, epsilon, n_draws, generator(7))
    dense, grid, law = law_by_definition(name, n_rows, n_classes, k, epsilon, n_draws)
    values = values_of(scores, indices, normals, epsilon)
    assert kstest(values, lambda t: np.interp(t, grid, law)).pvalue > 1e-6
    counts = np.stack([np.bincount(indices.flatten(), minlength=n_classes), dense], axis=1)
    frequent = counts.sum(1) >= 20
    pooled = np.vstack([counts[frequent], counts[~frequent].sum(0)])
    pooled = pooled[pooled.sum(1) > 0]
    if len(pooled) > 1:
        assert chi2_contingency(pooled).pvalue > 1e-6


AWKWARD = [
    ("normal", 603, 6, 1.0, 10),
    ("normal", 600, 1, 1.0, 1),
    ("normal", 600, 40, 0.5, 3),
    ("normal", 3001, 6, 0.4, 3),
    ("normal", 600, 6, 50.0, 40),
    ("constant", 600, 6, 1.0, 3),
    ("tied", 600, 6, 0.2, 3),
    ("confident", 3003, 6, 2.0, 10),
    ("masked", 600, 6, 1.0, 3),
    ("far from 0", 600, 6, 0.5, 3),
    ("normal", 4100, 6, 0.3, 3),
    ("normal", 1200, 100, 1.0, 1),
    ("shelf", 3000, 6, 1.0, 3),
    # Of so many that noise wide beside the scores is not drawn for all of them.
    ("normal", 2500, 6, 20.0, 3),
    ("tied", 4100, 20, 20.0, 3),
    ("normal", 100, 99, 0.5, 3),
]
# What the other instruction sets, which come from the same source, take in the quick tests.
FEW = ("tied", "confident", "shelf")


@pytest.mark.parametrize(
    ("kernel", "name", "n_classes", "k", "epsilon", "n_draws"),
    [
        pytest.param(kernel, *case, marks=[] if i == 0 or case[0] in FEW else pytest.mark.slow)
        for i, kernel in enumerate(KERNELS)
        for case in AWKWARD
    ],
)
def test_law_of_the_kernels_for_scores_of_any_kind(name, n_classes, k, epsilon, n_draws, kernel):
    check_law(KERNELS[kernel], name, 12000 // n_draws, n_classes, k, epsilon, n_draws)


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_and_draws_of_the_kernels_are_independent(kernel):
    """Values of neighbours do not correlate; 5 standard errors, false alarms 1e-6."""
    scores = make_rows("normal", 20000, 600)
    indices, normals = KERNELS[kernel](scores, 6, 0.6, 2, generator(4))
    values = scores.gather(1, indices) + 0.6 * normals
    for pairs in (values, torch.stack([values[:-1, 0], values[1:, 0]], dim=1)):
        assert abs(torch.corrcoef(pairs.T)[0, 1]) < 5 / len(pairs) ** 0.5


@pytest.mark.skipif(kernels is None, reason="the kernels are not built")
@pytest.mark.parametrize("n_classes", [7, 100, 1000, 5000])
def test_kernels_find_all_k_of_which_the_last_is_the_kth(n_classes):
    scores = torch.randn(40, n_classes, generator=generator())
    for k in (1, 3, 6):
        last, normals = cpu.select(scores, k, 0.7, 4, generator(1))
        value = scores.gather(1, last.flatten(1)) + 0.7 * normals.flatten(1)
        indices, normals = cpu.select(scores, k, 0.7, 4, generator(1), all_k=True)
        values = scores.gather(1, indices.flatten(1)).view_as(normals) + 0.7 * normals
        torch.testing.assert_close(values.amin(2), value, rtol=0, atol=1e-6)
        assert all(len(row.unique()) == k for row in indices.view(-1, k))


@pytest.mark.parametrize("kernels", ["0", "1"])
def test_a_generator_fixes_the_draws_and_the_default_one_is_left_alone(kernels, monkeypatch):
    monkeypatch.setenv("SKSETVALUED_KERNELS", kernels)
    scores = torch.randn(200, 1000, generator=generator())
    state = torch.get_rng_state()
    drawn = [select_noised(scores, 6, 1.0, 3, generator(seed)) for seed in (3, 3, 4)]
    assert all(torch.equal(a, b) for a, b in zip(drawn[0], drawn[1]))
    assert not torch.equal(drawn[0][0], drawn[2][0])
    assert torch.equal(state, torch.get_rng_state())
    with torch.random.fork_rng():
        torch.manual_seed(3)
        assert torch.equal(select_noised(scores, 6, 1.0, 3)[0], drawn[0][0])


@pytest.mark.skipif(kernels is None, reason="the kernels are not built")
def test_noise_that_kernels_cannot_hold_is_left_to_the_reference():
    scores = torch.randn(3, 1000, generator=generator())
    for epsilon in (1e-30, 1e30):
        drawn = select_noised(scores, 6, epsilon, 2, generator(1))
        expected = definition.select(scores, 6, epsilon, 2, generator(1))
        assert torch.equal(drawn[0], expected[0][..., -1:])


@pytest.mark.parametrize("select", [top_k, top_k_by_blocks])
@pytest.mark.parametrize("kind", ["normal", "tied", "infinite", "nan"])
def test_two_stage_top_k_is_exact(select, kind):
    """A NaN is above all, as in torch; tied entries are taken once each."""
    for n_classes in (9, 700, 4096, 5003, 20000):
        scores = torch.randn(4, n_classes, generator=generator(n_classes))
        if kind == "tied":
            scores = scores.round()
        elif kind == "infinite":
            scores[:, ::3] = -torch.inf
        elif kind == "nan":
            scores[0, :3] = scores[1, -1] = torch.nan
        for k in (1, 6, min(40, n_classes)):
            values, indices = select(scores, k)
            expected = scores.sort(dim=1, descending=True).values[:, :k]
            torch.testing.assert_close(values, expected, rtol=0, atol=0, equal_nan=True)
            chosen = scores.gather(1, indices)
            torch.testing.assert_close(chosen, values, rtol=0, atol=0, equal_nan=True)
            assert all(len(row.unique()) == k for row in indices)

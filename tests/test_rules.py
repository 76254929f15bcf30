"""Rules against brute force, their certificates, streams and bad input."""

import copy
import pickle
import tracemalloc
import warnings
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError, UndefinedMetricWarning

from sksetvalued import _average_size, _masks
from sksetvalued.datasets import make_ambiguous_classification
from sksetvalued.estimators._describe import describe_rule
from sksetvalued.metrics import (
    average_k_accuracy_score,
    average_k_threshold,
    top_k_accuracy_score,
)
from sksetvalued.rules import AverageError, AverageK, PointwiseError, TopK


def random_scores(rng, n=30, n_classes=6, kind="continuous", dtype=np.float64):
    """Return probabilities: continuous, rounded (ties), one-hot or constant."""
    p = rng.dirichlet(np.full(n_classes, 0.5), size=n)
    if kind == "rounded":
        p = np.round(p, 1)
    elif kind == "one_hot":
        p = np.eye(n_classes)[p.argmax(1)]
    elif kind == "constant":
        p = np.full((n, n_classes), 1 / n_classes)
    return p.astype(dtype)


KINDS = ["continuous", "rounded", "one_hot", "constant"]


def top_k_by_sorting(p, k):
    """Return the k last columns of a stable sort, row by row."""
    sets = np.zeros(p.shape, dtype=bool)
    for row, scores in zip(sets, p):
        row[sorted(range(len(scores)), key=lambda j: (scores[j], j))[-k:]] = True
    return sets


def sets_above(p, threshold, min_size=0, max_size=None):
    """Return the sets above a threshold, grown or shrunk row by row to the bounds."""
    sets = p.astype(np.float64) >= threshold
    for i, row in enumerate(sets):
        size = min(max(row.sum(), min_size), p.shape[1] if max_size is None else max_size)
        if size != row.sum():
            sets[i] = top_k_by_sorting(p[i : i + 1], size)[0] if size else False
    return sets


def best_average_size(p, k, min_size=0, max_size=None, weight=None):
    """Return the largest average size <= k that any threshold reaches."""
    sizes = [
        np.average(sets_above(p, t, min_size, max_size).sum(1), weights=weight)
        for t in [-np.inf, *np.unique(p), np.inf]
    ]
    return max(size for size in sizes if size <= k)


# -- top-k -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_top_k_takes_the_last_k_of_a_stable_sort(kind, dtype, k):
    p = random_scores(np.random.default_rng(k), kind=kind, dtype=dtype)
    np.testing.assert_array_equal(TopK(k).fit(p).predict_set(p), top_k_by_sorting(p, k))


def test_top_k_is_the_best_set_of_size_k_by_enumeration():
    rng = np.random.default_rng(0)
    p, prior = rng.dirichlet(np.ones(5), size=20), np.array([0.5, 0.2, 0.15, 0.1, 0.05])
    for objective, gain in (("micro", p), ("macro", p / prior)):
        sets = TopK(2, objective=objective, prior=prior).fit(p).predict_set(p)
        for row, value in zip(sets, gain):
            best = max(combinations(range(5), 2), key=lambda pair: value[list(pair)].sum())
            assert sorted(best) == np.flatnonzero(row).tolist()


@pytest.mark.parametrize("k", [3, 4])
def test_k_of_all_classes_warns_and_returns_every_class(k):
    p = random_scores(np.random.default_rng(0), n_classes=3)
    for rule in (TopK(k), AverageK(k)):
        with pytest.warns(UserWarning, match="every class is returned"):
            rule.fit(p)
        assert rule.predict_set(p).all()


# -- average-k ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_average_k_is_the_largest_average_size_not_above_k(seed):
    rng = np.random.default_rng(seed)
    kind, dtype = KINDS[seed % 4], (np.float32, np.float64)[seed % 3 == 0]
    p = random_scores(rng, n=int(rng.integers(1, 25)), kind=kind, dtype=dtype)
    k = rng.uniform(0.05, 5.9) if seed % 2 else float(rng.integers(1, 6))
    low = int(rng.integers(0, int(k) + 1)) if seed % 5 < 3 else 0
    high = int(rng.integers(int(np.ceil(k)), 8)) if seed % 7 < 4 else None
    rule = AverageK(k, min_size=low, max_size=high).fit(p)
    sets = rule.predict_set(p)
    np.testing.assert_array_equal(sets, sets_above(p, rule.threshold_, low, high))
    assert sets.sum(1).mean() <= k
    assert sets.sum(1).mean() == best_average_size(p, k, low, high)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.float16, np.float32])
def test_a_small_number_of_numpy_is_the_same_k(kind):
    p = random_scores(np.random.default_rng(0), n=300)
    assert AverageK(kind(2)).fit(p).threshold_ == AverageK(2).fit(p).threshold_
    k = kind(2.3)
    assert AverageK(k).fit(p).predict_set(p).sum(1).mean() <= float(k)


def test_threshold_is_the_smallest_fitting_entry_halfway_to_the_next():
    rng = np.random.default_rng(0)
    for kind in KINDS:
        p = random_scores(rng, kind=kind)
        fitting = [v for v in np.unique(p) if (p >= v).sum(1).mean() <= 2]
        others = [v for v in np.unique(p) if (p >= v).sum(1).mean() > 2]
        threshold = AverageK(2).fit(p).threshold_
        assert threshold == average_k_threshold(p, 2)
        if fitting:
            assert threshold == pytest.approx((min(fitting) + max(others)) / 2, rel=1e-15)
        else:
            # Above what single precision makes of it.
            assert max(others) < np.float32(threshold) <= max(others) * (1 + 2e-6)


def test_constant_scores_give_empty_sets_rather_than_too_large_ones():
    p = np.full((7, 10), 0.1)
    assert AverageK(2).fit(p).predict_set(p).sum() == 0
    sets = AverageK(2, min_size=1).fit(p).predict_set(p)
    np.testing.assert_array_equal(sets.sum(1), 1)
    assert sets[:, -1].all()


@pytest.mark.filterwarnings("error")
def test_sets_that_ties_keep_small_are_told():
    shares = np.random.default_rng(0).multinomial(20, np.ones(8) / 8, 400) / 20
    with pytest.warns(UserWarning, match="less than k=3: many scores are equal"):
        AverageK(3).fit(shares)
    with pytest.warns(UndefinedMetricWarning, match="sets hold 1.89 .* less than k=3: many"):
        average_k_accuracy_score(np.arange(400) % 8, shares, k=3)
    fine = shares + np.random.default_rng(1).uniform(-0.02, 0.02, shares.shape)
    AverageK(3).fit(fine.clip(0))
    average_k_accuracy_score(np.arange(400) % 8, fine, k=3)
    # Of so small a size no whole number of classes is left.
    AverageK(0.03).fit(fine[:50].clip(0))


def test_saturated_float32_softmax_never_returns_every_class():
    logits = np.float32(200) * np.eye(10, dtype=np.float32)[np.arange(50) % 10]
    with np.errstate(under="ignore"):
        p = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_array_equal(AverageK(3).fit(p).predict_set(p).sum(1), 1)


def test_neighbouring_numbers_are_told_apart():
    for dtype in (np.float32, np.float64):
        low = dtype(0.3)
        high = np.nextafter(low, dtype(1))
        p = np.array([[high, low, low], [low, low, high]], dtype=dtype)
        rule = AverageK(1).fit(p)
        np.testing.assert_array_equal(rule.predict_set(p), p == high)


def test_real_k_and_budgets_that_floating_point_would_lose():
    p = random_scores(np.random.default_rng(0), n=10)
    for k in (0.1, 0.3, 0.7, 1.1, 2.3, 2.9):
        assert AverageK(k).fit(p).predict_set(p).sum() == round(10 * k)


def test_minus_infinity_is_a_zero_probability():
    with np.errstate(divide="ignore"):
        log_p = np.log(random_scores(np.random.default_rng(1), kind="one_hot"))
    rule = AverageK(2.5, log_scores=True).fit(log_p)
    assert np.isfinite(rule.threshold_)
    np.testing.assert_array_equal(rule.predict_set(log_p), log_p == 0)


def test_bounds_at_k_return_exactly_k():
    p = random_scores(np.random.default_rng(0))
    np.testing.assert_array_equal(
        AverageK(2, min_size=2, max_size=2).fit(p).predict_set(p), TopK(2).fit(p).predict_set(p)
    )
    sets = AverageK(3, max_size=3).fit(p).predict_set(p)
    np.testing.assert_array_equal(sets.sum(1), 3)


def test_average_k_covers_more_than_any_other_sets_of_the_same_total_size():
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(4), size=3)
    sets = AverageK(4 / 3).fit(p).predict_set(p)
    best = max(combinations(range(12), 4), key=lambda cells: p.ravel()[list(cells)].sum())
    np.testing.assert_array_equal(np.flatnonzero(sets), sorted(best))


def test_macro_thresholds_the_ratio_to_the_prior_on_either_scale():
    rng = np.random.default_rng(4)
    p, prior = rng.dirichlet(np.ones(5), size=50), np.array([0.5, 0.2, 0.15, 0.1, 0.05])
    rule = AverageK(2, objective="macro", prior=prior).fit(p)
    plain = AverageK(2).fit(p / prior)
    np.testing.assert_array_equal(rule.predict_set(p), plain.predict_set(p / prior))
    logs = AverageK(2, objective="macro", prior=prior, log_scores=True).fit(np.log(p))
    np.testing.assert_array_equal(rule.predict_set(p), logs.predict_set(np.log(p)))
    np.testing.assert_allclose(np.exp(logs.rank_scores(np.log(p))), rule.rank_scores(p))


def test_macro_prior_is_counted_in_y_with_weights():
    p = random_scores(np.random.default_rng(0), n=6, n_classes=3)
    y, weight = np.array([0, 0, 1, 1, 2, 2]), np.array([1, 1, 1, 1, 4, 0])
    np.testing.assert_allclose(TopK(1, objective="macro").fit(p, y).prior_, [1 / 3] * 3)
    np.testing.assert_allclose(
        TopK(1, objective="macro").fit(p, y, weight).prior_, [0.25, 0.25, 0.5]
    )


# -- errors ------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [0.05, 0.1, 0.3, 0.5])
@pytest.mark.parametrize("kind", ["continuous", "rounded"])
def test_average_error_is_the_corrected_quantile(error, kind):
    rng = np.random.default_rng(0)
    p = random_scores(rng, n=99, kind=kind)
    y = rng.integers(0, 6, 99)
    true = np.sort(p[np.arange(99), y])
    rank = round(100 * error)
    assert AverageError(error).fit(p, y).threshold_ == true[rank - 1]


def test_average_error_with_too_few_samples_warns_and_returns_every_class():
    p = random_scores(np.random.default_rng(0), n=8)
    with pytest.warns(UserWarning, match="every class is returned. Samples missing: 1 at"):
        rule = AverageError(0.1).fit(p, np.zeros(8, int))
    assert rule.predict_set(p).all()


@pytest.mark.parametrize("error", [0.1, 0.25, 0.6])
@pytest.mark.parametrize("kind", KINDS)
def test_pointwise_error_is_the_smallest_set_that_reaches_the_probability(error, kind):
    p = random_scores(np.random.default_rng(0), n=40, kind=kind)
    p /= p.sum(1, keepdims=True)
    sets = PointwiseError(error).fit(p).predict_set(p)
    for row, probability in zip(sets, p):
        sizes = [k for k in range(1, 7) if np.sort(probability)[-k:].sum() > 1 - error - 1e-12]
        assert row.sum() == sizes[0]
        np.testing.assert_array_equal(row, top_k_by_sorting(probability[None], sizes[0])[0])
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    logs = PointwiseError(error, log_scores=True).fit(log_p)
    if kind == "continuous":
        np.testing.assert_array_equal(logs.predict_set(log_p), sets)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_pointwise_error_takes_half_precision(dtype):
    log_p = (2 * torch.randn(200, 50, generator=torch.Generator().manual_seed(0))).log_softmax(1)
    exact = PointwiseError(0.1).fit(log_p.exp()).predict_set(log_p.exp())
    for scores, log_scores in ((log_p.exp().to(dtype), False), (log_p.to(dtype), True)):
        sets = PointwiseError(0.1, log_scores=log_scores).fit(scores).predict_set(scores)
        assert np.abs(sets.sum(1) - exact.sum(1)).max() <= 2


def test_pointwise_error_counts_a_sum_within_rounding():
    p = [[0.6, 0.3, 0.1]]
    assert 0.6 + 0.3 < 1 - 0.1
    np.testing.assert_array_equal(PointwiseError(0.1).fit(p).predict_set(p), [[True, True, False]])


# -- weights and streams -----------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounds", [{}, {"min_size": 1}, {"min_size": 1, "max_size": 3}])
def test_weights_are_copies(kind, bounds):
    rng = np.random.default_rng(5)
    p, y = random_scores(rng, kind=kind), rng.integers(0, 6, 30)
    weight = rng.integers(0, 4, 30)
    copies, y_copies = np.repeat(p, weight, axis=0), np.repeat(y, weight)
    one, two = AverageK(2.2, **bounds), AverageK(2.2, **bounds)
    assert one.fit(p, sample_weight=weight).threshold_ == two.fit(copies).threshold_
    sizes = one.predict_set(p).sum(1)
    assert np.average(sizes, weights=weight) <= 2.2
    assert np.average(sizes, weights=weight) == pytest.approx(
        best_average_size(p, 2.2, bounds.get("min_size", 0), bounds.get("max_size"), weight)
    )
    error = AverageError(0.2).fit(p, y, sample_weight=weight)
    assert error.threshold_ == AverageError(0.2).fit(copies, y_copies).threshold_


@pytest.mark.parametrize("bounds", [{}, {"min_size": 1}, {"min_size": 1, "max_size": 4}])
def test_constant_weights_are_no_weights(bounds):
    rng = np.random.default_rng(12)
    for _ in range(100):
        n = int(rng.integers(1, 300))
        p = rng.random((n, 6))
        k = float(rng.choice([1, 2, 2.3, rng.integers(n, 4 * n) / n]))
        plain = AverageK(k, **bounds).fit(p)
        for constant in (1 / n, 0.1, rng.random() * 10.0 ** rng.integers(-9, 9)):
            weight = np.full(n, constant)
            rule, stream = AverageK(k, **bounds), AverageK(k, **bounds)
            assert rule.fit(p, sample_weight=weight).threshold_ == plain.threshold_
            for a in range(0, n, 17):
                stream.partial_fit(p[a : a + 17], sample_weight=weight[a : a + 17])
            assert stream.threshold_ == plain.threshold_
            size = np.average(rule.predict_set(p).sum(1), weights=weight)
            assert size <= k * (1 + 1e-13)
        repeats = rng.integers(1, 5, n)
        copies = AverageK(k, **bounds).fit(np.repeat(p, repeats, axis=0))
        for unit in (1, 1 / 3, 0.1, 1 / repeats.sum()):
            rule = AverageK(k, **bounds).fit(p, sample_weight=unit * repeats)
            assert rule.threshold_ == copies.threshold_


def test_constant_weights_are_no_weights_for_many_samples():
    p = np.random.default_rng(0).random((100_000, 6))
    plain = AverageK(2).fit(p).threshold_
    weight = np.full(len(p), 1 / len(p))
    assert AverageK(2).fit(p, sample_weight=weight).threshold_ == plain
    stream = AverageK(2)
    for a in range(0, len(p), 10):
        stream.partial_fit(p[a : a + 10], sample_weight=weight[a : a + 10], n_samples=len(p))
    assert stream.threshold_ == plain


@pytest.mark.parametrize("announce", [True, False])
@pytest.mark.parametrize("order", ["shuffled", "rising", "falling"])
@pytest.mark.parametrize("bounds", [{}, {"min_size": 1}, {"min_size": 1, "max_size": 3}])
def test_chunks_give_the_threshold_of_the_whole(announce, order, bounds):
    rng = np.random.default_rng(6)
    p = random_scores(rng, n=500)
    if order != "shuffled":
        p = p[np.argsort(p.max(1) * (1 if order == "rising" else -1))]
    whole = AverageK(1.7, **bounds).fit(p)
    rule = AverageK(1.7, **bounds)
    for a, b in pairwise([0, 1, 7, 100, 350, 500]):
        rule.partial_fit(p[a:b], n_samples=500 if announce else None)
    assert rule.threshold_ == whole.threshold_
    assert rule.n_samples_seen_ == 500


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [True, False])
def test_pruned_streams_are_exact(monkeypatch, kind, weighted):
    monkeypatch.setattr(_average_size, "FREE_ENTRIES", 8)
    rng = np.random.default_rng(7)
    for order in ("shuffled", "rising", "falling"):
        p = random_scores(rng, n=400, n_classes=20, kind=kind)
        if order != "shuffled":
            p = p[np.argsort(p.max(1) * (1 if order == "rising" else -1), kind="stable")]
        weight = rng.integers(1, 4, 400) if weighted else None
        whole = AverageK(1.5).fit(p, sample_weight=weight)
        rule = AverageK(1.5)
        for i in range(0, 400, 10):
            w = weight[i : i + 10] if weighted else None
            rule.partial_fit(p[i : i + 10], sample_weight=w)
        assert rule._selector.level is not None
        assert rule.threshold_ == whole.threshold_


@pytest.mark.parametrize("weighted", [True, False])
def test_a_stream_that_dropped_what_it_needs_refuses(monkeypatch, weighted):
    monkeypatch.setattr(_average_size, "FREE_ENTRIES", 8)
    rng = np.random.default_rng(8)
    sure = np.where(np.eye(20, dtype=bool)[rng.integers(0, 20, 350)], 1, 1e-6)
    p = np.vstack([rng.dirichlet(np.full(20, 50), size=50), sure + 1e-9 * rng.random((350, 20))])
    rule, announced = AverageK(3), AverageK(3)
    for i in range(0, 400, 10):
        chunk, weight = p[i : i + 10], np.full(10, 2) if weighted else None
        rule.partial_fit(chunk, sample_weight=weight)
        announced.partial_fit(chunk, n_samples=400)
    with pytest.raises(RuntimeError, match="Pass n_samples") as refusal:
        rule.predict_set(p)
    assert ("weights rose" in str(refusal.value)) == weighted
    assert announced.threshold_ == AverageK(3).fit(p).threshold_


def test_an_announced_stream_is_exact_in_any_order_and_small_memory(monkeypatch):
    rng = np.random.default_rng(8)
    p = random_scores(rng, n=1000, n_classes=50)
    p = p[np.argsort(-p.max(1))]
    rule = AverageK(2)
    most = 0
    for i in range(0, 1000, 10):
        rule.partial_fit(p[i : i + 10], n_samples=1000)
        most = max(most, 0 if rule._selector is None else rule._selector.n_kept)
    assert rule._selector is None
    assert most <= 2 * (2 * 1000 + 2)
    assert rule.threshold_ == AverageK(2).fit(p).threshold_


@pytest.mark.parametrize("announce", [True, False])
@pytest.mark.parametrize("rule", [AverageK(1.7), AverageK(1.7, min_size=1), AverageError(0.2)])
def test_chunks_may_have_no_weight(rule, announce):
    rng = np.random.default_rng(15)
    p, y = random_scores(rng, n=60), rng.integers(0, 6, 60)
    weight = np.repeat([0.0, 0.5, 1.0, 0.0, 2.0, 0.0], 10)
    stream = clone(rule)
    for a in range(0, 60, 10):
        part = slice(a, a + 10)
        stream.partial_fit(p[part], y[part], weight[part], n_samples=60 if announce else None)
    assert stream.threshold_ == clone(rule).fit(p, y, weight).threshold_


@pytest.mark.parametrize("weight", [1e308, 1e305, 2e299])
def test_weights_whose_multiples_are_infinite_are_refused(weight):
    with pytest.raises(ValueError, match=r"sample_weight has a sum above 1e\+300"):
        AverageK(2).fit(np.full((9, 3), 0.3), sample_weight=np.full(9, weight))


@pytest.mark.parametrize("rule", [AverageK, TopK])
def test_a_tiny_prior_in_single_precision_ranks_as_in_double(rule):
    p, prior = np.array([[0.5, 0.5, 0.0]]), [1e-39, 1e-40, 1.0]
    for dtype in (np.float32, np.float64):
        fitted = rule(1, objective="macro", prior=prior).fit(p.astype(dtype))
        assert fitted.predict_set(p.astype(dtype)).tolist() == [[False, True, False]]


def test_a_stream_without_any_weight_is_refused():
    p = random_scores(np.random.default_rng(0))
    rule = AverageK(2).partial_fit(p, sample_weight=np.zeros(30))
    with pytest.raises(ValueError, match="sample_weight is zero for every sample"):
        rule.predict_set(p)
    assert rule.partial_fit(p).threshold_ == AverageK(2).fit(p).threshold_


def ambiguous_first(rng, n=2000, n_classes=100):
    """Return scores of which the first fifth is ambiguous, the others sure."""
    p = 1e-3 * rng.random((n, n_classes))
    p[: n // 5] = 0.4 + 0.1 * rng.random((n // 5, n_classes))
    p[np.arange(n // 5, n), rng.integers(0, n_classes, n - n // 5)] = 0.9
    return p


@pytest.mark.parametrize("scale", [1e-6, 1, 100])
def test_an_announced_weighted_stream_is_exact_in_small_memory(monkeypatch, scale):
    monkeypatch.setattr(_average_size, "FREE_ENTRIES", 8)
    rng = np.random.default_rng(13)
    p, weight = ambiguous_first(rng), scale * rng.uniform(0.5, 1.5, 2000)
    weight[rng.random(2000) < 0.1] = 0
    rule, most = AverageK(10), 0
    for i in range(0, 2000, 40):
        rule.partial_fit(p[i : i + 40], sample_weight=weight[i : i + 40], n_samples=2000)
        most = max(most, 0 if rule._selector is None else rule._selector.n_kept)
    assert rule._selector is None
    assert most <= 1.6 * 2 * 10 * 2000
    assert rule.threshold_ == AverageK(10).fit(p, sample_weight=weight).threshold_


def test_an_announced_stream_whose_weights_rise_is_exact_or_refuses(monkeypatch):
    """And does as well as the fit when the advice of the refusal is followed."""
    monkeypatch.setattr(_average_size, "FREE_ENTRIES", 8)
    p = ambiguous_first(np.random.default_rng(14))

    def threshold(weight, order):
        rule = AverageK(3)
        for rows in order.reshape(50, 40):
            rule.partial_fit(p[rows], sample_weight=weight[rows], n_samples=2000)
        return rule.threshold_

    in_turn, shuffled = np.arange(2000), np.random.default_rng(0).permutation(2000)
    for rise in (0.01, 1, 2, 5, 20, 1000):
        weight = np.where(in_turn < 400, 1.0, rise)
        exact = AverageK(3).fit(p, sample_weight=weight).threshold_
        if rise > 2:
            with pytest.raises(RuntimeError, match="weights rose.*: shuffle the samples"):
                threshold(weight, in_turn)
        else:
            assert threshold(weight, in_turn) == exact
        assert threshold(weight, shuffled) == exact


def test_average_error_streams():
    rng = np.random.default_rng(9)
    p, y = random_scores(rng, n=60), rng.integers(0, 6, 60)
    rule = AverageError(0.1)
    for a in range(0, 60, 20):
        rule.partial_fit(p[a : a + 20], y[a : a + 20])
    assert rule.threshold_ == AverageError(0.1).fit(p, y).threshold_


@pytest.mark.parametrize(
    "rule",
    [TopK(2), AverageK(1.5, min_size=1), AverageError(0.2), PointwiseError(0.2)],
    ids=lambda rule: type(rule).__name__,
)
def test_rules_are_scikit_learn_objects(rule):
    rng = np.random.default_rng(10)
    p, y = random_scores(rng), rng.integers(0, 6, 30)
    with pytest.raises(NotFittedError):
        clone(rule).predict_set(p)
    fitted = clone(rule).fit(p, y)
    sets = fitted.predict_set(p)
    assert sets.dtype == bool
    assert sets.shape == p.shape
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_set(p), sets)
    np.testing.assert_array_equal(fitted.fit(p, y).predict_set(p), sets)
    single = np.vstack([fitted.predict_set(row[None]) for row in p])
    np.testing.assert_array_equal(single, sets)
    columns = np.array([3, 1, 0, 5, 4, 2])
    permuted = clone(rule).fit(p[:, columns], np.argsort(columns)[y])
    np.testing.assert_array_equal(permuted.predict_set(p[:, columns]), sets[:, columns])


def test_a_fitted_rule_does_not_keep_its_scores():
    p = random_scores(np.random.default_rng(0), n=2000)
    y = np.zeros(2000, int)
    for rule in (TopK(2), AverageK(2), AverageError(0.2), PointwiseError(0.2)):
        assert len(pickle.dumps(rule.fit(p, y))) < 2000


def test_large_blocks_agree_with_small_ones(monkeypatch):
    p = random_scores(np.random.default_rng(11), n=200)
    rules = [TopK(2), AverageK(1.5, min_size=1, max_size=3), PointwiseError(0.2)]
    wide = [rule.fit(p).predict_set(p) for rule in rules]
    monkeypatch.setattr(_masks, "BLOCK_ENTRIES", 7)
    for rule, sets in zip(rules, wide):
        np.testing.assert_array_equal(clone(rule).fit(p).predict_set(p), sets)


# -- real scores -------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["densenet_bc_100", "wideresnet_16_4", "lenet_5"])
def test_rules_on_the_scores_of_real_networks(shared_data, model):
    with np.load(shared_data / "cifar100_test_probs_3models.npz") as data:
        p, y = data[f"p_{model}"], data["y"].astype(int)
    for k in (1, 2, 5):
        top = TopK(k).fit(p).predict_set(p)
        order = np.argsort(p, axis=1, kind="mergesort")[:, ::-1][:, :k]
        expected = np.zeros_like(top)
        np.put_along_axis(expected, order, True, axis=1)
        np.testing.assert_array_equal(top, expected)
        rule = AverageK(k).fit(p)
        flat = np.sort(p.astype(np.float64), axis=None)[::-1]
        m = len(p) * k
        assert flat[m] < rule.threshold_ <= flat[m - 1]
        assert flat[m] < flat[m - 1]
        assert rule.threshold_ == (flat[m] + flat[m - 1]) / 2
        average = rule.predict_set(p)
        assert average.sum() == m
        rows = np.arange(len(y))
        assert average[rows, y].mean() >= top[rows, y].mean()
    bounded = AverageK(3, min_size=1, max_size=10).fit(p).predict_set(p).sum(1)
    assert bounded.min() >= 1
    assert bounded.max() <= 10
    assert 3 - 1 / len(p) <= bounded.mean() <= 3


# -- bad input ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "error", "match"),
    [
        (TopK(0), ValueError, "k must be >= 1, got 0"),
        (TopK(2.5), TypeError, "k must be an integer"),
        (TopK("2"), TypeError, "k must be an integer"),
        (TopK(True), TypeError, "k must be an integer"),
        (TopK(2, objective="mean"), ValueError, "objective must be one of"),
        (TopK(2, objective="macro"), ValueError, "pass prior="),
        (TopK(2, objective="macro", prior=[1, 1]), ValueError, "prior must have shape"),
        (TopK(2, objective="macro", prior=[1, 1, 1, 1, 1, 0]), ValueError, "prior must be"),
        (AverageK(0), ValueError, "k must lie in"),
        (AverageK(-1.5), ValueError, "k must lie in"),
        (AverageK(np.nan), ValueError, "k must lie in"),
        (AverageK(np.inf), ValueError, "k must lie in"),
        (AverageK(None), TypeError, "k must be a real number"),
        (AverageK(2, min_size=3), ValueError, "min_size=3 is above k=2"),
        (AverageK(2, max_size=1), ValueError, "max_size=1 is below k=2"),
        (AverageK(2, min_size=-1), ValueError, "min_size must be >= 0"),
        (AverageK(2, min_size=0.5), TypeError, "min_size must be an integer"),
        (AverageK(2, max_size="all"), TypeError, "max_size must be an integer"),
        (AverageError(0.0), ValueError, r"error must lie in \(0, 1\)"),
        (AverageError(1), ValueError, r"error must lie in \(0, 1\)"),
        (AverageError(0.1), ValueError, "pass the column indices"),
        (AverageError("a"), TypeError, "error must be a number"),
        (AverageError(np.complex64(0.1)), TypeError, "error must be a number"),
        (AverageError(1e-13), ValueError, "error must be at least 1e-12"),
        (PointwiseError(1.5), ValueError, r"error must lie in \(0, 1\)"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(rule, error, match):
    with pytest.raises(error, match=match):
        rule.fit(random_scores(np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("scores", "match"),
    [
        (np.ones(6), "of shape"),
        (np.ones((2, 3, 4)), "of shape"),
        (np.ones((0, 4)), "of shape"),
        (np.array([[0.5, np.nan, 0.1]]), "NaN"),
        (np.array([[0.5, np.inf, 0.1]]), "inf"),
    ],
    ids=["1-D", "3-D", "empty", "nan", "inf"],
)
@pytest.mark.parametrize("rule", [TopK(1), AverageK(1), AverageError(0.5), PointwiseError(0.5)])
def test_bad_scores_are_refused_in_fit_and_predict(rule, scores, match):
    with pytest.raises(ValueError, match=match):
        clone(rule).fit(scores, np.zeros(len(scores), int))
    fitted = clone(rule).fit(np.tile([0.5, 0.3, 0.2], (4, 1)), [0, 0, 1, 2])
    with pytest.raises(ValueError, match=match):
        fitted.predict_set(scores)


def test_other_bad_input():
    p = random_scores(np.random.default_rng(0))
    y = np.zeros(30, int)
    with pytest.raises(ValueError, match="fitted on scores of 6 classes"):
        TopK(2).fit(p).predict_set(p[:, :4])
    with pytest.raises(ValueError, match="sum"):
        PointwiseError(0.1).fit(2 * p)
    with pytest.raises(ValueError, match="log_scores=True"):
        TopK(2, objective="macro", prior=np.ones(6)).fit(np.log(p))
    with pytest.raises(ValueError, match="with log_scores=True needs log-probabilities"):
        AverageK(2, objective="macro", prior=np.ones(6), log_scores=True).fit(p)
    with pytest.raises(ValueError, match="without a column"):
        AverageError(0.1).fit(p, y + 6)
    with pytest.raises(TypeError, match="searchsorted"):
        AverageError(0.1).fit(p, y.astype(str))
    with pytest.raises(ValueError, match="y must have shape"):
        AverageError(0.1).fit(p, y[:3])
    for weight in (np.zeros(30), -np.ones(30), np.ones(29), np.full(30, np.nan)):
        with pytest.raises(ValueError, match="sample_weight"):
            AverageK(2).fit(p, sample_weight=weight)
    with pytest.raises(ValueError, match="closed after 30 samples"):
        AverageK(2).fit(p).partial_fit(p)
    with pytest.raises(ValueError, match="n_samples=40 was announced"):
        AverageK(2).partial_fit(p, n_samples=40).partial_fit(p, n_samples=40)


@pytest.mark.parametrize("first", [None, 90])
@pytest.mark.parametrize("rule", [AverageK(2), AverageError(0.2)])
def test_a_total_that_is_announced_late_or_changes_is_refused(rule, first):
    p, y = random_scores(np.random.default_rng(0)), np.arange(30) % 6
    rule = clone(rule).partial_fit(p, y, n_samples=first)
    before = pickle.dumps(rule)
    with pytest.raises(ValueError, match=f"n_samples=60 is announced, but n_samples={first} was"):
        rule.partial_fit(p, y, n_samples=60)
    assert pickle.dumps(rule) == before


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        (AverageError(0.5), {"y": None}),
        (AverageK(1), {"sample_weight": -np.ones(30)}),
        (AverageK(1, finite_sample=True), {"sample_weight": np.arange(30)}),
        (AverageK(1), {"n_samples": 60.5}),
        (PointwiseError(0.1), {"y_score": np.full((30, 6), 0.5)}),
    ],
)
def test_a_calibration_that_fails_leaves_the_rule_as_it_was(rule, wrong):
    given = {"y_score": random_scores(np.random.default_rng(0)), "y": np.arange(30) % 6}
    p, error = given["y_score"], TypeError if "n_samples" in wrong else ValueError
    rule = clone(rule)
    with pytest.raises(error):
        rule.partial_fit(**given | wrong)
    with pytest.raises(NotFittedError):
        rule.predict_set(p)
    sets = rule.fit(**given).predict_set(p)
    if error is ValueError:
        with pytest.raises(error):
            rule.fit(**given | wrong)
    np.testing.assert_array_equal(rule.predict_set(p), sets)


def test_lists_integers_half_precision_and_tensors_are_scores():
    torch = pytest.importorskip("torch")
    p = np.array([[5, 3, 2], [1, 3, 6]])
    expected = [[True, False, False], [False, False, True]]
    for scores in (p, p.tolist(), p.astype(np.float16), torch.tensor(p), np.asfortranarray(p)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(TopK(1).fit(scores).predict_set(scores), expected)
            np.testing.assert_array_equal(AverageK(1).fit(scores).predict_set(scores), expected)


@pytest.mark.parametrize(
    "rule",
    [
        TopK(5),
        AverageK(5, min_size=1, max_size=9),
        AverageK(5, objective="macro", prior=np.full(100_000, 1e-5)),
        AverageError(0.5),
    ],
    ids=["top-k", "average-k", "macro", "error"],
)
def test_no_float64_copy_of_many_classes(rule):
    p = np.random.default_rng(0).random((50, 100_000), dtype=np.float32)
    tracemalloc.start()
    rule.fit(p, np.arange(50)).predict_set(p)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    float64_copy, mask = 8 * p.size, p.size
    assert peak < mask + float64_copy / 3


# -- the Bayes rules on data whose probabilities are known -------------------------------


def expected_coverage(p, sets, average):
    """Return the coverage that sets have on average over labels drawn from p."""
    if average == "micro":
        return (p * sets).sum() / len(p)
    return ((p * sets).sum(0) / p.sum(0)).mean()


@pytest.mark.parametrize("k", [1, 2, 3])
def test_rules_reach_the_bayes_coverage_and_macro_beats_micro(k):
    weights = np.geomspace(1, 0.01, 12)
    _, _, p, _ = make_ambiguous_classification(
        3000, n_classes=12, group_size=4, class_weights=weights, random_state=0
    )
    prior = p.mean(0)
    best = {"micro": p, "macro": p / prior}
    coverage = {}
    for objective in ("micro", "macro"):
        options = {"objective": objective, "prior": prior}
        # The largest sum of k entries of each row, and of k n entries of the whole.
        row_by_row = np.sort(best[objective], axis=1)[:, -k:].sum() / len(p)
        on_average = np.sort(best[objective], axis=None)[-k * len(p) :].sum() / len(p)
        for rule, optimum in (
            (TopK(k, **options), row_by_row),
            (AverageK(k, **options), on_average),
        ):
            sets = rule.fit(p).predict_set(p)
            assert sets.sum() == k * len(p)
            reached = expected_coverage(p, sets, objective)
            scale = 1 if objective == "micro" else 1 / 12
            assert reached == pytest.approx(scale * optimum, abs=1e-12)
            for average in ("micro", "macro"):
                coverage[type(rule), objective, average] = expected_coverage(p, sets, average)
    for rule in (TopK, AverageK):
        assert coverage[rule, "macro", "macro"] > coverage[rule, "micro", "macro"] + 0.01
        assert coverage[rule, "micro", "micro"] > coverage[rule, "macro", "micro"] + 0.01
    for objective in ("micro", "macro"):
        assert coverage[AverageK, objective, objective] > coverage[TopK, objective, objective]


@pytest.mark.parametrize("rule", [TopK(1), AverageK(1.5), AverageError(0.3)])
def test_a_prior_that_changes_later_changes_nothing(rule):
    prior = np.array([0.7, 0.2, 0.1])
    scores = np.random.default_rng(0).dirichlet(np.ones(3), 100)
    rule = clone(rule).set_params(objective="macro", prior=prior).fit(scores, np.arange(100) % 3)
    before = rule.predict_set(scores)
    prior[:] = prior[::-1].copy()
    np.testing.assert_array_equal(rule.predict_set(scores), before)


@pytest.mark.parametrize("rule", [TopK(1), AverageK(1.5), AverageError(0.3), PointwiseError(0.3)])
def test_log_scores_is_true_or_false(rule):
    with pytest.raises(TypeError, match="log_scores must be True or False, got 'False'"):
        clone(rule).set_params(log_scores="False").fit(np.full((2, 3), 0.3), [0, 1])


def test_a_threshold_of_single_precision_is_compared_in_it():
    rng = np.random.default_rng(0)
    pair = np.nextafter(np.float32(1), np.float32([0, 2]))
    for scores in (rng.choice(pair, (40, 3)), rng.normal(size=(40, 3)).astype(np.float32)):
        for k in (0.5, 1.2, 2.9):
            threshold = average_k_threshold(scores, k)
            assert (scores >= threshold).sum(1).mean() <= k
            np.testing.assert_array_equal(
                AverageK(k).fit(scores).predict_set(scores), scores >= threshold
            )


def test_masks_may_be_written_backwards():
    scores = np.random.default_rng(0).normal(size=(40, 200))
    out = np.zeros(scores.shape, bool)[::-1]
    rule = TopK(3).fit(scores)
    np.testing.assert_array_equal(rule.predict_set(scores, out=out), rule.predict_set(scores))


@pytest.mark.parametrize("coverage", ["class", "micro"])
def test_another_scale_of_scores_after_fit_changes_no_set(coverage):
    p, y = random_scores(np.random.default_rng(0)), np.arange(30) % 6
    rules = (
        TopK(2, objective="macro", prior=np.arange(1, 7) / 21),
        AverageK(2, objective="macro", prior=np.arange(1, 7) / 21),
        AverageError(0.4, coverage=coverage, interpolation=0.5 if coverage == "class" else None),
        PointwiseError(0.3),
    )
    for rule in rules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            before = rule.fit(p, y).predict_set(p)
        rule.set_params(log_scores=True)
        np.testing.assert_array_equal(rule.predict_set(p), before)


def test_sizes_may_be_numbers_of_few_bits():
    """Else 128 classes less 5, or 61 samples times 5, would be out of their range."""
    scores = np.random.default_rng(0).random((60, 300))
    y = np.arange(60) % 300
    for k in (np.int8(5), np.int8(127), np.uint8(255)):
        mine, other = (
            top_k_accuracy_score(y, scores, k=size, labels=np.arange(300)) for size in (k, int(k))
        )
        assert mine == other
    for params in ({"min_size": 2}, {"finite_sample": True, "max_size": 100}):
        small = {name: np.int8(v) if type(v) is int else v for name, v in params.items()}
        rules = AverageK(np.int8(5), **small), AverageK(5, **params)
        mine, other = (rule.fit(scores[:, :128]).predict_set(scores[:, :128]) for rule in rules)
        np.testing.assert_array_equal(mine, other)


def test_a_prior_that_no_probability_can_be_divided_by_is_refused():
    with pytest.raises(ValueError, match=r"prior must be .* double precision.*columns \[0\]"):
        AverageK(1, objective="macro", prior=[5e-324, 0.5, 0.5]).fit(np.ones((9, 3)) / 3)


def test_sizes_that_vary_anew_are_no_drift():
    rng = np.random.default_rng(0)
    scores = np.zeros((500, 30))
    scores[:, 0] = 1 + rng.random(500)
    rule, new = AverageK(1).fit(scores), scores[:50].copy()
    new[0] = 2  # the one set of all classes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rule.predict_set(new)


def test_sizes_far_from_those_expected_are_told_again_of_copies():
    rng = np.random.default_rng(0)
    rule, far = AverageK(2).fit(rng.dirichlet(np.ones(10), 500)), np.full((500, 10), 0.1)
    far += rng.random(far.shape) / 1e3
    with pytest.warns(UserWarning, match="where 2 with a standard error"):
        rule.predict_set(far)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rule.predict_set(far)
    written = describe_rule(rule, {})["fitted"]["_drift_said"]
    assert written is False
    for again in (copy.deepcopy(rule), pickle.loads(pickle.dumps(rule))):
        with pytest.warns(UserWarning, match="where 2 with a standard error"):
            again.predict_set(far)


def test_no_network_is_allowed_to_be_many_times_surer_than_those_of_folds(monkeypatch):
    scores, aims = np.random.default_rng(0).random((40, 9)), []
    rule = AverageK(1.5)._begin_for_another(9).partial_fit(scores)
    monkeypatch.setattr(rule, "_aim_at", aims.append)
    rule._allow_for(9.0, 1.5)
    assert aims == [pytest.approx(1.5 * 2 / 3)]


def test_single_precision_below_a_threshold_in_double_is_below_it():
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(4), size=100), rng.integers(0, 4, 100)
    single = p.astype(np.float32)
    for error in np.arange(0.1, 0.7, 0.05):
        rule = AverageError(error).fit(p, y)
        sets = rule.predict_set(single)
        np.testing.assert_array_equal(sets, rule.predict_set(single.astype(float)))


def test_a_truth_value_is_no_average_size():
    with pytest.raises(TypeError, match="k must be a real number > 0, got True"):
        AverageK(True).fit(np.full((4, 3), 1 / 3))

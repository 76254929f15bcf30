"""Scores by the cost of a set: the best set of every exchange rate, by enumeration."""

import warnings
from itertools import product

import numpy as np
import pytest

from sksetvalued.rules import AverageError, AverageK, cost_scores


def every_set(n_classes):
    """Return every set of so many classes, as rows of a mask."""
    return np.array(list(product([False, True], repeat=n_classes)))


def cost_of(rng, n_classes):
    if rng.random() < 0.3:
        return (np.arange(1, n_classes + 1) > rng.integers(1, 3)) + 0.1 * np.arange(
            1, n_classes + 1
        )
    return rng.integers(1, 5, n_classes).cumsum().astype(float)


def test_thresholds_give_the_sets_that_are_worth_most_for_every_exchange_rate():
    rng = np.random.default_rng(0)
    for _ in range(60):
        n_classes = int(rng.integers(1, 6))
        p = rng.dirichlet(np.full(n_classes, 0.7))
        if rng.random() < 0.3:
            p = np.round(4 * p) / 4
        cost = cost_of(rng, n_classes)
        scores, sets = cost_scores(p[None], cost)[0], every_set(n_classes)
        with_empty = np.append(0.0, cost)
        for rate in (*scores, *(scores * 0.999), *(scores * 1.001), *rng.random(3)):
            chosen = scores >= rate
            worth = p[chosen].sum() - rate * with_empty[chosen.sum()]
            assert worth >= (sets @ p - rate * with_empty[sets.sum(1)]).max() - 1e-12


def test_the_size_itself_as_cost_leaves_probabilities_and_any_cost_their_order():
    rng = np.random.default_rng(1)
    for dtype in (np.float32, np.float64):
        p = rng.dirichlet(np.full(40, 0.2), size=50).astype(dtype)
        np.testing.assert_array_equal(cost_scores(p, np.arange(1, 41)), p)
        np.testing.assert_allclose(cost_scores(p, 2.5 * np.arange(1, 41)), p / 2.5)
        scores = cost_scores(p, np.log1p(np.arange(1, 41)))
        order = np.argsort(-p, axis=1, kind="stable")
        assert (np.diff(np.take_along_axis(scores, order, axis=1)) <= 0).all()


def test_rules_on_these_scores_keep_their_promise_with_more_sets_of_one_class():
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.full(12, 0.3), size=4000)
    y = (p.cumsum(1) < rng.random((4000, 1))).sum(1).clip(max=11)
    size, share, covered = np.arange(1, 13), [], []
    for cost in (size, (size > 1) + 0.3 * size, (size > 1) + 0.03 * size):
        scores = cost_scores(p, cost)
        sets = AverageError(0.2).fit(scores[:2000], y[:2000]).predict_set(scores[2000:])
        share.append((sets.sum(1) == 1).mean())
        covered.append(sets[np.arange(2000), y[2000:]].mean())
        by_size = AverageK(2).fit(scores).predict_set(scores)
        assert by_size.sum(1).mean() <= 2
    assert share[0] < share[1] < share[2]
    # Three binomial standard errors, of the calibration and of the test.
    assert min(covered) > 0.8 - 3 * np.sqrt(2 * 0.16 / 2000)


@pytest.mark.parametrize(
    ("p", "cost", "match"),
    [
        ([[0.5, 0.5]], [1.0], r"shape \(2,\).*got \(1,\)"),
        ([[0.5, 0.5]], [2.0, 1.0], r"increasing, but is not at sizes \[2\].*np.arange"),
        ([[0.5, 0.5]], [0.0, 1.0], r"not at sizes \[1\]"),
        ([[0.5, 0.5]], [1.0, np.inf], r"cost must be finite.*not at sizes \[2\]"),
        ([[0.5, 0.5]], [np.inf, np.inf], r"cost must be finite.*not at sizes \[1, 2\]"),
        ([[-0.5, 1.5]], [1.0, 2.0], "negative entries"),
    ],
)
def test_bad_costs_are_named(p, cost, match):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=match):
            cost_scores(p, cost)


def test_rounding_keeps_the_order_of_the_probabilities():
    """Shares of votes have slopes that are equal but for their rounding."""
    rng = np.random.default_rng(0)
    p = rng.integers(1, 6, (3000, 5)).astype(float)
    p /= p.sum(axis=1, keepdims=True)
    for _ in range(20):
        scores = cost_scores(p, np.cumsum(rng.integers(1, 8, 5)) / 7)
        order = np.argsort(p, axis=1, kind="stable")[:, ::-1]
        assert (np.diff(np.take_along_axis(scores, order, axis=1), axis=1) <= 0).all()

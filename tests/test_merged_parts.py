"""Rules calibrated in parts, by several processes, are those of the whole."""

import pickle
import warnings
from itertools import pairwise

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from sksetvalued import _average_size
from sksetvalued.rules import AverageError, AverageK, PointwiseError, TopK

BOUNDS = [{}, {"min_size": 1}, {"min_size": 1, "max_size": 4}, {"finite_sample": True}]
ORDERS = {
    "shuffled": lambda top: np.arange(len(top)),
    "rising": lambda top: np.argsort(top, kind="stable"),
    "falling": lambda top: np.argsort(-top, kind="stable"),
}


def some_parts(rng, n):
    """Return the bounds of one to six parts, and the chunks of each."""
    cuts = np.unique([0, *rng.integers(1, n, rng.integers(0, 6)), n])
    return [np.array_split(np.arange(a, b), rng.integers(1, 8)) for a, b in pairwise(cuts)]


def merged(rule, parts, p, y=None, weight=None, n_samples=None):
    rules = []
    for chunks in parts:
        part = clone(rule)
        for rows in filter(len, chunks):
            w, labels = (None if a is None else a[rows] for a in (weight, y))
            part.partial_fit(p[rows], labels, w, n_samples=n_samples)
        rules.append(pickle.loads(pickle.dumps(part)))
    return rules[0].merge(*rules[1:])


def random_case(rng, order, weighted):
    n, n_classes = int(rng.integers(8, 200)), int(rng.integers(5, 30))
    p = rng.dirichlet(np.full(n_classes, 0.3), size=n)
    if rng.random() < 0.5:
        p = p.round(1)  # ties
    p = p[ORDERS[order](p.max(1))].astype(rng.choice([np.float32, np.float64]))
    weight = rng.choice([0, 0.1, 1, 1 / 3, 2], n) if weighted else None
    return p, weight if weight is None or weight.any() else None


@pytest.mark.filterwarnings("ignore:.*calibration samples are too few")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("weighted", [False, True])
def test_announced_parts_give_the_threshold_of_the_whole(monkeypatch, order, weighted):
    """Bit by bit, whatever was pruned, wherever the parts begin and whatever their order."""
    monkeypatch.setattr(_average_size, "FREE_ENTRIES", 8)
    rng = np.random.default_rng([len(order), weighted])
    n_pruned = 0
    for i in range(24):
        p, weight = random_case(rng, order, weighted)
        bounds = BOUNDS[i % (3 if weighted else 4)]
        rule = AverageK(float(rng.uniform(1, 4)), **bounds)
        parts = some_parts(rng, len(p))
        # With one part all is seen, and nothing is left to merge.
        whole = clone(rule).fit(p, sample_weight=weight)
        try:
            joint = merged(rule, parts, p, weight=weight, n_samples=len(p))
            threshold = joint.threshold_
        except RuntimeError:
            assert weighted  # the totals of weights were not announced, and rose
            continue
        selector = joint._selector
        n_pruned += selector is not None and selector.level is not None
        assert threshold == whole.threshold_
        assert joint.n_samples_seen_ == len(p)
        np.testing.assert_allclose(joint.expected_size_, whole.expected_size_, rtol=1e-12)
        np.testing.assert_array_equal(joint.predict_set(p), whole.predict_set(p))
    assert n_pruned > 3


@pytest.mark.parametrize("weighted", [False, True])
def test_parts_of_unknown_totals_are_exact_or_refuse(monkeypatch, weighted):
    monkeypatch.setattr(_average_size, "FREE_ENTRIES", 8)
    rng = np.random.default_rng(3)
    n_exact = 0
    for _ in range(20):
        p, weight = random_case(rng, rng.choice(list(ORDERS)), weighted)
        rule = AverageK(2.5)
        whole = clone(rule).fit(p, sample_weight=weight).threshold_
        try:
            assert merged(rule, some_parts(rng, len(p)), p, weight=weight).threshold_ == whole
        except RuntimeError as refusal:
            assert "shuffle the samples" in str(refusal)  # noqa: PT017
        else:
            n_exact += 1
    assert n_exact > 8


@pytest.mark.parametrize("coverage", ["micro", "macro", "class"])
def test_parts_of_an_average_error(coverage):
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(4), size=120), rng.integers(0, 4, 120)
    rule = AverageError(0.2, coverage=coverage)
    joint = merged(rule, some_parts(rng, 120), p, y)
    np.testing.assert_array_equal(joint._current(), clone(rule).fit(p, y)._current())


def test_a_merged_rule_goes_on():
    p = np.random.default_rng(0).dirichlet(np.ones(6), size=90)
    joint = merged(AverageK(2), [[range(30)], [range(30, 60)]], p, n_samples=90)
    assert joint.partial_fit(p[60:], n_samples=90).threshold_ == AverageK(2).fit(p).threshold_
    assert merged(TopK(2), [[range(30)], [range(30, 60)]], p).n_samples_seen_ == 60
    assert merged(PointwiseError(0.1), [[range(30)], [range(30, 60)]], p).n_samples_seen_ == 60


def test_what_cannot_be_merged_is_said():
    p = np.random.default_rng(0).dirichlet(np.ones(6), size=30)
    part = AverageK(2).partial_fit(p, n_samples=60)
    with pytest.raises(TypeError, match="rules of one class"):
        part.merge(TopK(2).fit(p))
    with pytest.raises(ValueError, match="they differ in k"):
        part.merge(AverageK(3).partial_fit(p))
    with pytest.raises(ValueError, match="they differ in the number of classes"):
        part.merge(AverageK(2).partial_fit(p[:, :5]))
    with pytest.raises(ValueError, match="closed"):
        part.merge(AverageK(2).fit(p))
    with pytest.raises(ValueError, match="it is one rule"):
        part.merge(part)
    for rule, labels in ((AverageK(2), None), (AverageError(0.1), np.arange(30) % 6)):
        part, again, other, unfit = (clone(rule) for _ in range(4))
        for one, n_samples in ((part, 60), (again, 60), (other, 90)):
            one.partial_fit(p, labels, n_samples=n_samples)
        with pytest.raises(ValueError, match="different totals"):
            part.merge(other)
        with pytest.raises(ValueError, match="was announced, but 90"):
            part.merge(again, clone(rule).partial_fit(p, labels, n_samples=60))
        with pytest.raises(ValueError, match="given twice"):
            part.merge(again, again)
        with pytest.raises(NotFittedError):
            part.merge(again, unfit)
        assert part.n_samples_seen_ == again.n_samples_seen_ == 30  # nothing was taken in
        part.merge(again)
        with pytest.raises(NotFittedError, match="was merged into another rule"):
            again.predict_set(p)
        with pytest.raises(NotFittedError, match="was merged into another rule"):
            part.merge(again)


@pytest.mark.parametrize(
    ("rule", "changed"),
    [
        (AverageK(2), {"k": 3}),
        (AverageK(2, objective="macro", prior=np.full(6, 1 / 6)), {"prior": np.arange(1.0, 7.0)}),
        (AverageError(0.2), {"coverage": "class"}),
        (PointwiseError(0.1), {"error": 0.2}),
    ],
)
def test_parameters_that_were_set_between_two_chunks_are_told(rule, changed):
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(6), size=30), np.arange(30) % 6
    part, old = clone(rule).partial_fit(p, y), rule.get_params()
    new = clone(rule).set_params(**changed).partial_fit(p, y)
    part.set_params(**changed)
    name = next(iter(changed))
    for going_on in (lambda: part.partial_fit(p, y), lambda: new.merge(part)):
        with pytest.raises(ValueError, match=f"(?s)30 samples with {name}=.*set it back"):
            going_on()
    part.set_params(**{name: old[name] for name in changed}).partial_fit(p, y)
    assert part.n_samples_seen_ == 60
    again = clone(rule).set_params(**changed)
    assert part.set_params(**changed).fit(p, y).__dict__.keys() == again.fit(p, y).__dict__.keys()


def test_a_part_without_weight_takes_over_what_the_other_saw():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(300, 0.3), size=4000).astype(np.float32)
    rule = AverageK(2)
    none = clone(rule).partial_fit(p[:5], sample_weight=np.zeros(5), n_samples=4005)
    seen = clone(rule)
    for rows in np.array_split(np.arange(4000), 8):
        seen.partial_fit(p[rows], n_samples=4005)
    assert seen._selector.level is not None
    assert none.merge(seen).threshold_ == rule.fit(p).threshold_


def test_the_lowest_score_is_that_of_all_parts():
    y, tied, sure = (
        np.zeros(30, int),
        np.full((30, 3), [0.3, 0.3, 0.4]),
        np.full((30, 3), [0.9, 0.1, 0.0]),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as that all classes are in every set
        whole = AverageError(0.1).fit(np.vstack([tied, sure]), np.zeros(60, int))
        first, second = (AverageError(0.1).partial_fit(p, y) for p in (tied, sure))
        assert first.merge(second).threshold_ == whole.threshold_ == 0.3

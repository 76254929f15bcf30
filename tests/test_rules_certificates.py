"""What AverageK promises about sizes on new data: exactly over bags, and when it is off."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from sksetvalued import AverageKClassifier, PlugInClassifier, TopKClassifier, _average_size
from sksetvalued.rules import AverageK


def sizes_of(rule, scores, new):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return rule.fit(scores).predict_set(new).sum(1)


def random_rule(rng, n_classes, **params):
    k = float(rng.choice([0.5, 1, 1.7, 2, 3]))
    low = int(rng.integers(0, int(k) + 1))
    high = int(rng.integers(np.ceil(k), n_classes + 1)) if rng.random() < 0.7 else None
    return AverageK(k, min_size=low, max_size=high, **params)


def test_the_average_over_every_bag_is_at_most_k():
    """Ties, floors and caps included; without the correction some bags are above."""
    rng = np.random.default_rng(0)
    beyond, used = False, 0
    for _ in range(300):
        n_classes = int(rng.integers(3, 7))
        n = int(rng.integers(2, 12))
        scores = rng.integers(0, rng.integers(2, 40), size=(n, n_classes)).astype(float)
        rule = random_rule(rng, n_classes)
        totals = []
        for finite_sample in (True, False):
            rule.set_params(finite_sample=finite_sample)
            others = (np.delete(scores, i, axis=0) for i in range(n))
            totals.append(sum(sizes_of(rule, s, scores[[i]])[0] for i, s in enumerate(others)))
        allowed = Fraction(repr(rule.k)) * n
        assert totals[0] <= allowed
        beyond |= totals[1] > allowed
        used += totals[0] > rule.min_size * n
    assert beyond
    assert used > 60


@pytest.mark.parametrize("stream", [False, True])
def test_certified_threshold_by_brute_force(stream, monkeypatch):
    """The smallest sets of scores whose sizes, and the largest one more, fit k (n + 1)."""
    monkeypatch.setattr(_average_size, "FREE_ENTRIES", 8)
    rng = np.random.default_rng(1)
    for _ in range(60):
        n_classes, n = 8, int(rng.integers(20, 60))
        scores = rng.integers(0, 50, size=(n, n_classes)).astype(float)
        rule = random_rule(rng, n_classes, finite_sample=True)
        bounds = (rule.min_size, n_classes if rule.max_size is None else rule.max_size)

        def total(threshold, scores=scores, bounds=bounds):
            return int(np.clip((scores >= threshold).sum(1), *bounds).sum())

        fits = [
            v
            for v in [-np.inf, *np.unique(scores), np.inf]
            if total(v) + bounds[1] <= Fraction(repr(rule.k)) * (n + 1)
        ]
        expected = total(min(fits)) if fits else rule.min_size * n
        if stream:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                for rows in np.array_split(np.arange(n), 7):
                    rule.partial_fit(scores[rows], n_samples=n)
                sizes = rule.predict_set(scores).sum(1)
        else:
            sizes = sizes_of(rule, scores, scores)
        assert sizes.sum() == expected


@pytest.mark.parametrize(("k", "n"), [(0.7, 90), (2.3, 50), (2.8, 45)])
def test_entries_are_counted_without_slips_of_floating_point(k, n):
    """As floor(2.3 * 50) does, which is one short."""
    whole = int(Fraction(repr(k)) * n)
    scores = np.random.default_rng(0).permutation(4 * n).reshape(n, 4).astype(float)
    assert AverageK(k).fit(scores).predict_set(scores).sum() == whole
    certified = AverageK(k, finite_sample=True).fit(scores[1:])
    assert certified.predict_set(scores[1:]).sum() == whole - 4


def test_too_few_samples_for_the_certificate_are_said():
    scores = np.random.default_rng(0).random((10, 40))
    with pytest.warns(UserWarning, match="10 calibration samples are too few.*max_size below 40"):
        rule = AverageK(3, min_size=1, finite_sample=True).fit(scores)
    assert rule.threshold_ == np.inf
    assert (rule.predict_set(scores).sum(1) == 1).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AverageK(3, min_size=1, max_size=8, finite_sample=True).fit(scores)


# -- the standard error of the size ------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bounds", [{}, {"min_size": 1, "max_size": 3}])
def test_standard_error_is_that_of_the_calibration_sizes(weighted, bounds, monkeypatch):
    monkeypatch.setattr(_average_size, "FREE_ENTRIES", 8)
    rng = np.random.default_rng(2)
    scores = rng.dirichlet(np.full(9, 0.4), size=200).astype(np.float32)
    weight = rng.integers(0, 3, 200).astype(float) if weighted else None
    rule, stream = AverageK(1.6, **bounds), AverageK(1.6, **bounds)
    sizes = rule.fit(scores, sample_weight=weight).predict_set(scores).sum(1)
    share = np.ones(200) if weight is None else weight
    share = share / share.sum()
    mean = share @ sizes
    assert rule.size_std_ == pytest.approx(np.sqrt(share @ (sizes - mean) ** 2))
    error = np.sqrt(share**2 @ (sizes - mean) ** 2 / (1 - share @ share))
    if not weighted:
        assert error == pytest.approx(sizes.std(ddof=1) / np.sqrt(200))
    assert rule.size_standard_error_ == pytest.approx(error)
    for rows in np.array_split(np.arange(200), 9):
        part = None if weight is None else weight[rows]
        stream.partial_fit(scores[rows], sample_weight=part, n_samples=200)
    assert stream.threshold_ == rule.threshold_
    assert stream.size_std_ == pytest.approx(rule.size_std_)
    assert stream.size_standard_error_ == pytest.approx(error)


def test_every_class_and_constant_sizes_have_no_error():
    scores = np.random.default_rng(0).random((20, 4))
    with pytest.warns(UserWarning, match="every class"):
        assert AverageK(4).fit(scores).size_standard_error_ == 0
    assert AverageK(2, min_size=2, max_size=2).fit(scores).size_std_ == 0


def test_one_sample_tells_no_error():
    assert AverageK(2).fit([[0.5, 0.3, 0.2]]).size_standard_error_ == np.inf


def test_a_promised_size_takes_a_prior_from_elsewhere():
    rng = np.random.default_rng(0)
    scores, y = rng.dirichlet(np.ones(4), size=40), np.arange(40) % 4
    rule = AverageK(2, objective="macro", finite_sample=True)
    with pytest.warns(UserWarning, match="prior was counted in the labels"):
        rule.fit(scores, y)
    rule.set_params(prior=[0.25] * 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rule.fit(scores, y)


# -- drift -------------------------------------------------------------------------------


def drifts(rule, scores):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rule.predict_set(scores)
    return ["calibrate(X)" in str(w.message) for w in caught]


def test_sizes_far_from_k_are_said_once_and_batches_like_the_calibration_are_not():
    rng = np.random.default_rng(3)
    # One sample in fifty is hard, and has ten times as many classes.
    hard = rng.random(4000) < 0.02
    width = np.where(hard, 2.0, 0.05)[:, None]
    scores = rng.gamma(width, size=(4000, 60)) + 1e-300
    scores /= scores.sum(1, keepdims=True)
    rule = AverageK(1.5).fit(scores[:500])
    for batch in np.split(scores[500:], 70):
        assert drifts(rule, batch) == []
    assert drifts(rule, scores[:1]) == []
    assert drifts(rule, scores[hard][:20]) == []
    assert drifts(rule, scores[hard]) == [True]
    assert drifts(rule, scores[hard]) == []
    rule.fit(scores[:500])
    flat = scores**0.5
    assert drifts(rule, flat / flat.sum(1, keepdims=True)) == [True]


def test_estimators_say_drift_over_chunks_and_calibration_settles_it():
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(600, 3)), rng.integers(0, 5, 600)
    X[:, 0] += y
    clf = AverageKClassifier(2, loss="cross_entropy", max_epochs=3, random_state=0)
    clf.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.calibrate(X).predict_set(X)
        assert clf.rule_.size_standard_error_ > 0
        clf.calibrate(X)
    far = 10 * X
    with pytest.warns(UserWarning, match="calibrate"):
        clf.predict_set(far)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.calibrate(far).predict_set(far)


# -- where the promise can be kept -------------------------------------------------------


def test_certificates_need_samples_held_out():
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(200, 3)), rng.integers(0, 4, 200)
    params = {"finite_sample": True, "max_size": 4}
    clf = AverageKClassifier(2, rule_params=params, max_epochs=1, random_state=0)
    assert clf.fit(X, y).rule_.finite_sample
    clf.set_params(calibration_fraction=None)
    with pytest.raises(ValueError, match="calibration_fraction"):
        clf.fit(X, y)
    clf.set_params(calibration_fraction=0.3)
    with pytest.raises(ValueError, match="leave sample_weight out"):
        clf.fit(X, y, sample_weight=np.linspace(1, 2, 200))
    with pytest.raises(ValueError, match="calibration_fraction"):
        AverageKClassifier(2, rule_params=params).partial_fit(X, y, classes=range(4))
    with pytest.raises(ValueError, match="cv='prefit'"):
        PlugInClassifier(GaussianNB(), AverageK(2, finite_sample=True), cv=3).fit(X, y)
    certified = PlugInClassifier(
        GaussianNB().fit(X, y), AverageK(2, finite_sample=True), cv="prefit"
    )
    assert certified.fit(X).predict_set(X).sum(1).mean() < 2
    with pytest.raises(ValueError, match="sample_weight cannot be used"):
        certified.calibrate(X, sample_weight=np.linspace(1, 2, 200))
    with pytest.raises(TypeError, match="finite_sample must be True or False"):
        AverageK(2, finite_sample="yes").fit(rng.random((9, 3)))
    # TopK has nothing to promise: its sets have k classes.
    assert not TopKClassifier(2, max_epochs=1).fit(X, y).rule_.requires_held_out


@pytest.mark.parametrize("k", [1.5, 3])
def test_scores_that_do_not_compare_between_samples_are_told_by_their_empty_sets(k):
    rng = np.random.default_rng(0)
    margins = rng.standard_normal((200, 10)) + 5 * rng.standard_normal((200, 1))
    proba = np.exp(margins) / np.exp(margins).sum(1, keepdims=True)
    with pytest.warns(UserWarning, match="% of the calibration sets are empty .*min_size=1"):
        empty = (AverageK(k).fit(margins).predict_set(margins).sum(1) == 0).mean()
    assert empty > 1 / 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AverageK(k).fit(proba)
        AverageK(k, min_size=1).fit(margins)


def test_a_largest_size_beyond_all_classes_costs_nothing():
    scores = np.random.default_rng(0).dirichlet(np.ones(4), 50)
    whole = AverageK(2, finite_sample=True).fit(scores).threshold_
    assert AverageK(2, max_size=99, finite_sample=True).fit(scores).threshold_ == whole

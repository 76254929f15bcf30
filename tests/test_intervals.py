"""Intervals of coverage: against SciPy, their level by simulation, and the report of sets."""

import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn.exceptions import UndefinedMetricWarning

from sksetvalued import AverageKClassifier
from sksetvalued.metrics import (
    SetReport,
    average_set_size,
    coverage_interval,
    set_coverage_score,
    shot_coverage_score,
)
from sksetvalued.metrics._intervals import binomial_interval, macro_interval


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize(("method", "scipy"), [("wilson", "wilson"), ("clopper-pearson", "exact")])
def test_binomial_intervals_are_those_of_scipy(method, scipy, level):
    for n in (1, 2, 7, 40):
        for x in range(n + 1):
            theirs = stats.binomtest(x, n).proportion_ci(level, method=scipy)
            ours = binomial_interval(x, n, level, method)
            np.testing.assert_allclose(ours, (theirs.low, theirs.high), atol=1e-12)


def sets_with(hits):
    """Return labels and sets of which given numbers (hits, misses) per class hold the class."""
    y = np.repeat(np.arange(len(hits)), [a + b for a, b in hits])
    hit = np.concatenate([np.r_[np.ones(a), np.zeros(b)] for a, b in hits]).astype(bool)
    sets = np.zeros((len(y), len(hits)), bool)
    sets[np.arange(len(y)), y] = hit
    return y, sets


def test_averages_and_classes():
    y, sets = sets_with([(9, 1), (3, 2), (1, 0)])
    labels = np.array([0, 1, 2, 7])
    sets = np.hstack([sets, np.ones((len(y), 1), bool)])
    params = {"labels": labels, "level": 0.9}
    for method in ("wilson", "clopper-pearson", "dkw"):
        micro = coverage_interval(y, sets, method=method, **params)
        np.testing.assert_allclose(micro, binomial_interval(13, 16, 0.9, method))
        low, high = coverage_interval(y, sets, average=None, method=method, **params)
        for c, (x, m) in enumerate([(9, 10), (3, 5), (1, 1)]):
            assert (low[c], high[c]) == tuple(binomial_interval(x, m, 0.9, method))
        assert np.isnan([low[3], high[3]]).all()
    with pytest.warns(UndefinedMetricWarning, match=r"1 of 4 classes have no samples.*\[7\]"):
        macro = coverage_interval(y, sets, average="macro", **params)
    variance = (10.5 / 12 * 1.5 / 12 / 10 + 4.5 / 7 * 2.5 / 7 / 5) / 4
    effective = 0.75 * 0.25 / variance
    two = np.array(binomial_interval(0.75 * effective, effective, 0.9, "wilson"))
    one = np.array(binomial_interval(1, 1, 0.9, "wilson"))
    off = np.hypot(2 * (two - 0.75), one - 1) / 3
    np.testing.assert_allclose(macro, (2.5 / 3 - off[0], 2.5 / 3 + off[1]))
    assert coverage_interval([5], [[True]], labels=[0])[0] == 0


def test_one_class_and_equal_classes_are_the_binomial_interval():
    y, sets = sets_with([(17, 4)])
    micro = coverage_interval(y, sets, labels=[0])
    macro = coverage_interval(y, sets, labels=[0], average="macro")
    np.testing.assert_allclose(macro, micro)
    single = macro_interval([1, 1, 0, 1], [1, 1, 1, 1], 0.95, "wilson")
    np.testing.assert_allclose(single, binomial_interval(3, 4, 0.95, "wilson"))
    full = macro_interval([5, 5, 5], [5, 5, 5], 0.95, "clopper-pearson")
    np.testing.assert_allclose(full, binomial_interval(15, 15, 0.95, "clopper-pearson"))


def test_a_class_of_one_sample_moves_the_interval_by_its_share():
    """Its coverage may be anything; that of nine others is known well."""
    hits, n_samples = [1, *[298] * 9], [1, *[300] * 9]
    low, high = macro_interval(hits, n_samples, 0.95, "wilson")
    assert 0.91 < low < 0.93
    assert 0.994 < high < 1


@pytest.mark.parametrize("method", ["wilson", "clopper-pearson"])
@pytest.mark.parametrize("fewest", [1, 2])
def test_macro_intervals_hold_their_level(method, fewest):
    """Over classes of few samples. Had seeds been drawn anew, 1e-5 of correct ones would fail."""
    rng = np.random.default_rng(0)
    counts = np.r_[np.full(10, fewest), np.full(10, 6), np.full(5, 30)]
    coverage = rng.beta(6, 1, len(counts))
    n_draws = 1000
    held = 0
    for hits in rng.binomial(counts, coverage, size=(n_draws, len(counts))):
        low, high = macro_interval(hits, counts, 0.9, method)
        held += low <= coverage.mean() <= high
    spread = 4.4 * np.sqrt(0.9 * 0.1 / n_draws)
    # Not exact: the level is reached to two points, by ten single samples at least.
    assert held / n_draws > 0.88 - spread
    assert held / n_draws < (0.99 if fewest == 1 and method != "wilson" else 0.98)


def test_the_band_holds_for_all_thresholds_at_once():
    """For any law without atoms the chance is the same. False-alarm rate 1e-5."""
    rng = np.random.default_rng(1)
    n, n_draws, held = 80, 800, 0
    for _ in range(n_draws):
        scores = np.sort(rng.random(n))
        half = binomial_interval(0, n, 0.9, "dkw")[1]
        upper, lower = np.arange(1, n + 1) / n - scores, scores - np.arange(n) / n
        held += max(upper.max(), lower.max()) <= half
    assert held / n_draws > 0.9 - 4.4 * np.sqrt(0.09 / n_draws)


def test_bad_input_is_named():
    y, sets = sets_with([(3, 1), (2, 2)])
    cases = [
        ({"level": 95}, ValueError, "level must lie in"),
        ({"level": "high"}, TypeError, "level must be a number"),
        ({"method": "wald"}, ValueError, "method must be one of"),
        ({"average": "weighted"}, ValueError, "average must be one of"),
        ({"average": "macro", "method": "dkw"}, ValueError, "not for average='macro'"),
    ]
    for params, error, match in cases:
        with pytest.raises(error, match=match):
            coverage_interval(y, sets, **params)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        coverage_interval(y, sets, average="macro")
        low, high = coverage_interval(y, sets, level=np.nextafter(1, 0))
        assert 0 < low < 3 / 5 < high < 1


def test_dates_are_shown_as_dates():
    labels = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], dtype="M8[ns]")
    sets = np.eye(3, dtype=bool)[[0, 1, 0]]
    report = SetReport.from_predictions(labels[[0, 1, 1]], sets, labels=labels)
    assert "class 2020-01-02" in str(report)
    assert "Without samples: [datetime.datetime(2020, 1, 3" in str(report)
    days = SetReport.from_predictions(labels[[0, 1, 1]].astype("M8[D]"), sets[:, :2])
    assert "class 2020-01-02  " in str(days)
    with pytest.warns(UserWarning, match=r"left out.*2020, 1, 3"):
        coverage_interval(labels[[0, 1, 1]], sets, labels=labels, average="macro")


# -- the report --------------------------------------------------------------------------


def test_the_report_counts_the_classes_that_it_leaves_out():
    y = np.arange(20) % 8
    report = SetReport.from_predictions(y, np.ones((20, 8), bool), labels=np.arange(8))
    assert "\n... and 3 more classes, covered at least as often.\n" in str(report)


def test_lines_of_a_report_are_as_wide_as_each_other():
    y = np.array(["short", "a name of many words " * 4])[np.arange(6) % 2]
    lines = str(SetReport.from_predictions(y, np.ones((6, 2), bool))).splitlines()
    table = [line for line in lines if not line.startswith("Empty sets")]
    assert len(table) == 5
    assert len({len(line) for line in table}) == 1


def test_the_report_says_what_the_metrics_say():
    rng = np.random.default_rng(0)
    y = rng.choice(6, p=np.geomspace(1, 0.05, 6) / np.geomspace(1, 0.05, 6).sum(), size=400)
    sets = rng.random((400, 8)) < 0.4
    sets[np.arange(400), y] |= rng.random(400) < 0.8
    labels, counts = np.array(list("abcdefgh")), [500, 300, 90, 50, 10, 5, 1, 1]
    params = {"labels": labels}
    report = SetReport.from_predictions(labels[y], sets, class_counts=counts, **params)
    frame = report.to_frame().set_index(["over", "name"])
    micro, macro = frame.loc["samples"].iloc[0], frame.loc["classes"].iloc[0]
    assert micro.coverage == set_coverage_score(labels[y], sets, **params)
    assert macro.coverage == pytest.approx(
        set_coverage_score(labels[y], sets, average="macro", **params)
    )
    assert (micro.low, micro.high) == coverage_interval(labels[y], sets, **params)
    with pytest.warns(UndefinedMetricWarning, match="2 of 8 classes"):
        expected = coverage_interval(labels[y], sets, average="macro", **params)
    assert (macro.low, macro.high) == expected
    assert micro["size"] == average_set_size(sets)
    shots = shot_coverage_score(labels[y], sets, class_counts=counts, **params)
    np.testing.assert_allclose(frame.loc["group"].coverage, list(shots.values()))
    low, high = coverage_interval(labels[y], sets, average=None, **params)
    np.testing.assert_allclose(frame.loc["class"][["low", "high"]], np.c_[low, high][:6])
    for c, row in enumerate(frame.loc["class"].itertuples()):
        assert row.size == sets[y == c].sum(1).mean()
        assert row.n_samples == (y == c).sum()
    text = str(report)
    assert "\n... and 1 more class, covered at least as often.\n" in text
    assert f"{100 * micro.coverage:.1f} %" in text
    assert "Without samples: ['g', 'h'] (2)." in text
    assert f"Empty sets: {100 * np.mean(~sets.any(1)):.1f} %." in text
    assert text.count("class ") == 5
    drawn = report.plot()
    assert [t.get_text().split("\n")[0] for t in drawn.ax_.get_yticklabels()][:2] == [
        "over samples",
        "over classes",
    ]


def test_the_report_of_an_estimator_tells_the_drift():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(500, 3)), rng.integers(0, 4, 500)
    X[:, 0] += y
    clf = AverageKClassifier(2, loss="cross_entropy", max_epochs=2, random_state=0).fit(X, y)
    clf.calibrate(X)
    report = SetReport.from_estimator(clf, X, y)
    size = average_set_size(clf.predict_set(X))
    assert report.expected_size == (size, clf.rule_.size_standard_error_)
    assert f"found {size:.3g}, 0.0 standard errors off" in str(report)
    assert [row["name"] for row in report.rows if row["over"] == "group"] == ["many (> 100)"]
    with pytest.raises(ValueError, match="method must be"):
        SetReport.from_estimator(clf, X, y, method="dkw")


@pytest.mark.parametrize("n_samples", [[1] * 20, [1] * 10 + [30] * 10, [30] * 9 + [1], [2] * 20])
def test_errors_of_sizes_over_classes_are_those_of_repeated_samples(n_samples):
    """Where classes have sets of one size on average; others make the errors larger."""
    rng, errors, sizes = np.random.default_rng(0), [], []
    y = np.repeat(np.arange(len(n_samples)), n_samples)
    for _ in range(200):
        y_set = rng.random((len(y), len(n_samples))) < 0.2
        row = SetReport.from_predictions(y, y_set).rows[1]
        assert row["over"] == "classes"
        errors.append(row["size_error"])
        sizes.append(row["size"])
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(sizes), rel=0.15)


def test_one_sample_tells_no_error_of_the_size_of_its_class():
    report = SetReport.from_predictions([0, 1, 1], np.eye(3, 2) > 0)
    errors = {row["name"]: row["size_error"] for row in report.rows if row["over"] == "class"}
    assert np.isnan(errors[0])
    assert errors[1] == 0.5


@pytest.mark.parametrize("expected_size", [1.5, (1.5,), ("a", 0.1), (1.5, -0.1)], ids=str)
def test_an_expected_size_is_two_numbers(expected_size):
    with pytest.raises((TypeError, ValueError), match="expected_size must"):
        SetReport.from_predictions([0, 1], np.eye(2, dtype=bool), expected_size=expected_size)


def test_the_drift_counts_both_errors():
    report = SetReport.from_predictions(range(4), np.tri(4, dtype=bool), expected_size=(1.5, 0.5))
    error = np.hypot(0.5, np.std([1, 2, 3, 4], ddof=1) / 2)
    assert f"found 2.5, {1 / error:.1f} standard errors off" in str(report)


def test_absent_classes_are_named_beside_unknown_labels():
    report = SetReport.from_predictions([0, 9], np.eye(2, 3, dtype=bool), labels=[0, 1, 2])
    assert report.absent == [1, 2]


def test_the_error_of_a_mean_over_classes_of_one_sample_is_that_of_a_sample():
    sets = np.arange(3) < np.array([[0], [2], [3]])
    row = SetReport.from_predictions(range(3), sets).rows[1]
    assert row["size_error"] == pytest.approx(np.std([0, 2, 3], ddof=1) / np.sqrt(3))


@pytest.mark.parametrize("method", ["wilson", "clopper-pearson"])
def test_rounding_keeps_what_was_observed(method):
    for n in range(1, 300):
        assert binomial_interval(0, n, 0.95, method)[0] == 0
        assert binomial_interval(n, n, 0.95, method)[1] == 1

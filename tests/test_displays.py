"""Displays: what they draw is what the metrics say."""

import builtins
import sys
from itertools import pairwise

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sksetvalued import PlugInClassifier
from sksetvalued.metrics import (
    CoverageSizeDisplay,
    SetReport,
    SetSizeDisplay,
    average_k_accuracy_score,
    coverage_interval,
    set_size_distribution,
    shot_coverage_score,
    top_k_accuracy_score,
)
from sksetvalued.metrics._set_size_display import bin_names, size_bins
from sksetvalued.rules import AverageK

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def fitted():
    X, y = load_digits(return_X_y=True)
    X = X + np.random.default_rng(0).normal(0, 8, X.shape)
    model = PlugInClassifier(GaussianNB(), AverageK(2), cv=2)
    return make_pipeline(StandardScaler(), model).fit(X[:900], y[:900]), X[900:], y[900:]


def scores(n=300, n_classes=10, seed=0, rounded=False):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(n_classes, 0.3), size=n)
    y = np.array([rng.choice(n_classes, p=row) for row in p])
    return y, np.round(p, 2) if rounded else p


def heights(ax):
    return [bar.get_height() for bar in ax.patches]


def test_set_size_bars_are_the_distribution():
    _, p = scores()
    sets = p > 0.1
    display = SetSizeDisplay.from_predictions(None, sets)
    shares = set_size_distribution(sets)
    np.testing.assert_allclose(heights(display.ax_), 100 * shares[: sets.sum(1).max() + 1])
    assert display.ax_.get_xlabel() == "Set size (classes, of 10)"
    assert display.ax_.get_ylabel() == "Share of samples (%)"


def test_set_size_by_shot_group_sums_to_the_whole_in_each_group():
    y, p = scores()
    weight = np.random.default_rng(1).random(300)
    counts = [5, 5, 50, 50, 50, 200, 200, 200, 200, 200]
    labels = np.arange(10)
    display = SetSizeDisplay.from_predictions(
        y, p > 0.1, class_counts=counts, labels=labels, sample_weight=weight
    )
    assert len(display.ax_.containers) == 3
    for bars in display.ax_.containers:
        assert sum(bar.get_height() for bar in bars) == pytest.approx(100)
    few = display.ax_.containers[0]
    chosen = y < 2
    shares = set_size_distribution((p > 0.1)[chosen], sample_weight=weight[chosen])
    np.testing.assert_allclose([b.get_height() for b in few], 100 * shares[: len(few)])


@pytest.mark.parametrize("largest", [0, 1, 12, 20, 21, 99, 100, 101, 1000, 12345])
def test_bins_hold_every_size_once(largest):
    edges = size_bins(largest)
    assert edges[0] == 0
    assert edges[-2] <= largest < edges[-1]
    assert (np.diff(edges) > 0).all()
    assert len(edges) <= 30
    assert len(set(bin_names(edges))) == len(edges) - 1
    # Bins are the first of those of larger sizes, so that histograms can share an axis.
    np.testing.assert_array_equal(size_bins(99999)[: len(edges)], edges)


def test_histograms_that_share_an_axis_have_one_scale():
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="extra 'plot' is not installed")
    few, many = np.arange(60) < 2, np.arange(60) < 40
    figure, panels = pyplot.subplots(2, 1, sharex=True)
    for ax, row in zip(panels, (many, few)):
        SetSizeDisplay.from_predictions(None, [row], ax=ax)
    names = [label.get_text() for label in panels[1].get_xticklabels()]
    for ax, name in zip(panels, ("30–49", "2")):
        (bar,) = (bar for bar in ax.containers[0] if bar.get_height())
        assert names[round(bar.get_x() + bar.get_width() / 2)] == name
    pyplot.close(figure)


@pytest.mark.parametrize("grouped", [False, True])
def test_histograms_on_one_axis_stand_side_by_side_and_are_named(grouped):
    y, p = scores()
    params = {"class_counts": [5] * 5 + [500] * 5, "labels": np.arange(10)} if grouped else {}
    all_sets, ax = {"one": p > 0.3, "two": p > 0.1, "three": p > 0.02}, None
    for name, sets in all_sets.items():
        display = SetSizeDisplay.from_predictions(y, sets, name=name, ax=ax, **params)
        ax = display.ax_
        assert bool(ax.get_title()) == (name == "one")
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    kinds = ["few (< 20 training samples)", "many (> 100)"]
    if grouped:
        assert names == [f"{name}, {kind}" for name in all_sets for kind in kinds]
    else:
        means = [f"{sets.sum(1).mean():.3g}" for sets in all_sets.values()]
        assert names == [f"{n}, average size {mean}" for n, mean in zip(all_sets, means)]
        for bars, sets in zip(ax.containers, all_sets.values()):
            shares = set_size_distribution(sets)[: len(bars)]
            np.testing.assert_allclose([bar.get_height() for bar in bars], 100 * shares)
    ends = sorted(
        (b.get_x(), b.get_x() + b.get_width(), s) for c in ax.containers for s, b in enumerate(c)
    )
    assert all(a[1] < b[0] + 1e-9 for a, b in pairwise(ends))
    assert all(abs(end - size) < 0.5 for *both, size in ends for end in both)
    assert len({bars[0].get_facecolor() for bars in ax.containers}) == len(names)


@pytest.mark.parametrize("sizes", [(5, 10), (10, 5)])
def test_every_size_of_all_models_on_an_axis_has_a_tick(sizes):
    y, p = scores(n_classes=50)
    ax = None
    for size in sizes:
        display = CoverageSizeDisplay.from_predictions(
            y, p, labels=np.arange(50), max_size=size, ax=ax
        )
        ax = display.ax_
    np.testing.assert_array_equal(ax.get_xticks(), np.arange(1, 11))


@pytest.mark.parametrize("average", ["micro", "macro"])
@pytest.mark.parametrize("rounded", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_curves_are_the_metrics(average, rounded, weighted):
    y, p = scores(rounded=rounded)
    weight = np.random.default_rng(1).integers(0, 3, 300) if weighted else None
    options = {"average": average, "labels": np.arange(10), "sample_weight": weight}
    display = CoverageSizeDisplay.from_predictions(y, p, **options)
    for k, coverage in zip(display.top_k_sizes[:9], display.top_k_coverage):
        expected = top_k_accuracy_score(y, p, k=int(k), **options)
        assert coverage == pytest.approx(expected, abs=1e-12)
    for k in (1, 2.5, 5):
        # The curve is drawn where the size can be had exactly: evaluate it there.
        at = np.searchsorted(display.average_sizes, k, side="right") - 1
        size = display.average_sizes[at]
        expected = average_k_accuracy_score(y, p, k=size + 1e-9, **options)
        assert display.average_coverage[at] == pytest.approx(expected, abs=1e-12)
    assert display.average_coverage[-1] == pytest.approx(1)
    average_line, top_line = display.lines_
    np.testing.assert_allclose(top_line.get_ydata(), 100 * display.top_k_coverage)
    np.testing.assert_allclose(average_line.get_xdata(), display.average_sizes)


def test_a_curve_that_ties_leave_empty_is_not_in_the_legend():
    y, p = scores()
    display = CoverageSizeDisplay.from_predictions(
        y, np.full_like(p, 0.1), labels=np.arange(10), max_size=9
    )
    assert not len(display.average_sizes)
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["top-k"]


def test_unknown_labels_are_misses_in_the_curves():
    y, p = scores()
    y[:30] = 77
    display = CoverageSizeDisplay.from_predictions(y, p, labels=np.arange(10))
    assert display.top_k_coverage[-1] == pytest.approx(0.9)
    assert display.average_coverage[-1] == pytest.approx(0.9)


def test_several_models_on_one_axis_and_from_estimators(fitted):
    model, X, y = fitted
    first = CoverageSizeDisplay.from_estimator(model, X, y)
    second = CoverageSizeDisplay.from_estimator(
        GaussianNB().fit(X, y), X, y, name="Naive Bayes", ax=first.ax_
    )
    assert second.ax_ is first.ax_
    labels = [text.get_text() for text in first.ax_.get_legend().get_texts()]
    assert labels == [
        "PlugInClassifier, average-k",
        "PlugInClassifier, top-k",
        "Naive Bayes, average-k",
        "Naive Bayes, top-k",
    ]
    colors = {line.get_color() for line in first.ax_.lines}
    assert len(colors) == 2
    assert "classes" in first.ax_.get_xlabel()
    assert "%" in first.ax_.get_ylabel()


def test_the_first_of_two_classes_that_tie_is_that_of_predict():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] + rng.normal(size=60) > 0).astype(int)
    model = KNeighborsClassifier(2).fit(X, y)
    fresh = rng.normal(size=(200, 2))
    target = (fresh[:, 0] > 0).astype(int)
    accuracy = model.score(fresh, target)
    assert np.mean(model.predict_proba(fresh)[:, 1] == 0.5) > 0.1
    drawn = CoverageSizeDisplay.from_estimator(model, fresh, target)
    assert drawn.top_k_coverage[0] == pytest.approx(accuracy)
    column = model.predict_proba(fresh)[:, 1]
    drawn = CoverageSizeDisplay.from_predictions(target, column, labels=[0, 1])
    assert drawn.top_k_coverage[0] == pytest.approx(accuracy)


def test_what_others_have_drawn_stays_where_it_is():
    y, p = scores()
    _, (left, right) = plt.subplots(1, 2)
    bars = left.bar([1, 2, 3], [20, 50, 30])
    before = [bar.get_bbox().bounds for bar in bars]
    right.plot([1, 1000], [90, 90])
    for _ in range(2):
        SetSizeDisplay.from_predictions(None, p > 0.2, ax=left)
        CoverageSizeDisplay.from_predictions(y, p, labels=np.arange(10), ax=right)
    assert [bar.get_bbox().bounds for bar in bars] == before
    np.testing.assert_array_equal(right.get_xticks(), np.arange(1, 11))


def test_a_title_set_by_hand_stays():
    _, p = scores()
    ax = SetSizeDisplay.from_predictions(None, p > 0.2).ax_
    assert ax.get_title()
    SetSizeDisplay.from_predictions(None, p > 0.3, ax=ax)
    assert not ax.get_title()  # it was of one of the two
    ax.set_title("Two rules")
    SetSizeDisplay.from_predictions(None, p > 0.4, ax=ax)
    assert ax.get_title() == "Two rules"
    _, ax = plt.subplots()
    ax.set_title("One rule")
    SetSizeDisplay.from_predictions(None, p > 0.2, ax=ax)
    assert ax.get_title() == "One rule"


@pytest.mark.parametrize("shared", [False, True])
def test_a_report_has_axes_of_its_own(shared):
    y, p = scores()
    report = SetReport.from_predictions(y, p > 0.2, labels=np.arange(10))
    _, (left, right) = plt.subplots(1, 2, sharey=shared)
    left.plot([90, 90], [-1, 1])
    report.plot(ax=left)
    with pytest.raises(ValueError, match="ax .*holds a SetReport.*axes of its own"):
        report.plot(ax=right if shared else left)
    assert len(left.containers) == 1
    left.clear()
    assert report.plot(ax=left).plot(ax=None).ax_ is not left


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        (lambda: plt.subplots(1, 2)[1], r"an array of 2: pass ax\[0\]"),
        (lambda: plt.subplots(2, 3)[1], r"an array of 2 x 3: pass ax\[0, 0\]"),
        (lambda: list(plt.subplots(3)[1]), r"a list of 3: pass ax\[0\]"),
        (plt.figure, "<Figure"),
    ],
)
def test_one_axes_is_asked_for(axes, said):
    y, p = scores()
    for draw in (
        SetReport.from_predictions(y, p > 0.2, labels=np.arange(10)).plot,
        lambda ax: SetSizeDisplay.from_predictions(None, p > 0.2, ax=ax),
        lambda ax: CoverageSizeDisplay.from_predictions(y, p, labels=np.arange(10), ax=ax),
    ):
        with pytest.raises(TypeError, match=f"^ax must be one Axes, got {said}"):
            draw(ax=axes())


def test_set_sizes_from_an_estimator(fitted):
    model, X, y = fitted
    display = SetSizeDisplay.from_estimator(model, X)
    np.testing.assert_array_equal(
        display.sizes, model[-1].predict_set(model[0].transform(X)).sum(1)
    )
    assert display.name == "PlugInClassifier"
    by_group = SetSizeDisplay.from_estimator(model, X, y, class_counts=[5] * 5 + [500] * 5)
    assert len(by_group.ax_.containers) == 2


@pytest.mark.parametrize("n_classes", [2, 10, 1000])
def test_ticks_stay_readable(n_classes):
    y, p = scores(n=200, n_classes=n_classes)
    labels = np.arange(n_classes)
    for display in (
        SetSizeDisplay.from_predictions(None, p > 0.2 / n_classes),
        CoverageSizeDisplay.from_predictions(y, p, labels=labels),
    ):
        display.figure_.canvas.draw()
        texts = [t for t in display.ax_.get_xticklabels() if t.get_text()]
        assert 2 <= len(texts) <= 25
        boxes = [t.get_window_extent() for t in texts if t.get_rotation() == 0]
        inside = display.ax_.get_window_extent()
        boxes = [b for b in boxes if inside.x0 - 5 <= (b.x0 + b.x1) / 2 <= inside.x1 + 5]
        assert all(a.x1 <= b.x0 or b.x1 <= a.x0 for a, b in pairwise(boxes))


def test_plot_can_be_called_again_and_takes_style():
    y, p = scores()
    display = CoverageSizeDisplay.from_predictions(y, p, labels=np.arange(10))
    _, ax = plt.subplots()
    assert display.plot(ax=ax, color="k").ax_ is ax
    assert all(line.get_color() == "k" for line in ax.lines)
    assert {line.get_linestyle() for line in display.plot(c="r", ls=":").lines_} == {":"}
    bars = SetSizeDisplay.from_predictions(None, p > 0.1, color="C3").ax_.patches
    assert bars[0].get_facecolor() == matplotlib.colors.to_rgba("C3")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    real_import = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(name)
        return real_import(name, *args, **kwargs)

    for name in [m for m in sys.modules if m.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        SetSizeDisplay.from_predictions(None, [[True, False]])


def test_bad_input_is_named():
    y, p = scores()
    for wrong in ("a", 2.7):
        with pytest.raises(TypeError, match="max_size must be an integer"):
            CoverageSizeDisplay.from_predictions(y, p, labels=np.arange(10), max_size=wrong)
    with pytest.raises(ValueError, match="max_size"):
        CoverageSizeDisplay.from_predictions(y, p, labels=np.arange(10), max_size=11)
    with pytest.raises(ValueError, match="average"):
        CoverageSizeDisplay.from_predictions(y, p, labels=np.arange(10), average=None)
    with pytest.raises(ValueError, match="true labels"):
        SetSizeDisplay.from_predictions(None, p > 0.1, class_counts=[1] * 10)


@pytest.mark.parametrize(
    "shows", [SetSizeDisplay.from_predictions, SetReport.from_predictions, shot_coverage_score]
)
def test_counts_of_classes_are_checked_wherever_they_are_given(shows):
    y, p = scores(n_classes=3)
    for counts in ([5, 50], [5, 50, 500, 1]):
        with pytest.raises(ValueError, match=r"class_counts must have shape \(3,\)"):
            shows(y, p > 0.1, class_counts=counts)
    for wrong in (np.nan, -50, np.inf):
        with pytest.raises(ValueError, match=r"class_counts must be finite.*columns \[1\]"):
            shows(y, p > 0.1, class_counts=[5, wrong, 500])


def test_a_shot_group_without_weight_has_no_bars():
    y, p = scores(n_classes=3)
    sets, params = p > 0.1, {"class_counts": [1, 50, 500], "labels": [0, 1, 2]}
    there = y != 0
    weighted = SetSizeDisplay.from_predictions(y, sets, sample_weight=there, **params)
    without = SetSizeDisplay.from_predictions(y[there], sets[there], **params)
    np.testing.assert_allclose(heights(weighted.ax_), heights(without.ax_))


def test_sizes_without_weight_have_no_bins():
    y_set = np.arange(30) < np.array([1, 2, 3, 30])[:, None]
    weighted = SetSizeDisplay.from_predictions(None, y_set, sample_weight=[1, 2, 1, 0]).ax_
    alone = SetSizeDisplay.from_predictions(None, y_set[:3], sample_weight=[1, 2, 1]).ax_
    assert heights(weighted) == heights(alone)
    np.testing.assert_array_equal(weighted.get_xticks(), alone.get_xticks())


def test_the_band_is_that_of_all_sizes_at_once():
    y, p = scores()
    display = CoverageSizeDisplay.from_predictions(y, p, labels=np.arange(10), level=0.9)
    sets = np.ones((300, 10), bool)
    low, _ = coverage_interval(y, sets, level=0.9, method="dkw", labels=np.arange(10))
    assert display.band == pytest.approx(1 - low)
    (band,) = display.ax_.collections
    heights_of = band.get_paths()[0].vertices[:, 1]
    assert heights_of.max() == pytest.approx(
        100 * min(1, display.average_coverage.max() + display.band)
    )
    for params in ({"average": "macro"}, {"sample_weight": np.ones(300)}, {"level": None}):
        plain = CoverageSizeDisplay.from_predictions(y, p, labels=np.arange(10), **params)
        assert plain.band is None
        assert not plain.ax_.collections
    with pytest.raises(ValueError, match="level must lie in"):
        CoverageSizeDisplay.from_predictions(y, p, labels=np.arange(10), level=95)


def test_labels_of_other_samples_are_refused_by_the_histogram():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        SetSizeDisplay.from_predictions([0], np.eye(3, dtype=bool))


def test_histograms_of_several_numbers_of_classes_share_a_plain_label():
    for sizes in ((3, 5), (5, 3)):
        ax = None
        for n in sizes:
            ax = SetSizeDisplay.from_predictions(None, np.eye(n, dtype=bool), ax=ax).ax_
        assert ax.get_xlabel() == "Set size (classes)"


def test_a_curve_of_one_size_is_seen():
    display = CoverageSizeDisplay.from_predictions([0, 1, 2], np.ones((3, 3)))
    assert len(display.average_sizes) == 1
    assert display.lines_[0].get_marker() == "o"


def test_the_error_of_a_mean_size_is_that_of_a_sample():
    sizes = np.array([3, 1, 2, 1, 2, 1])
    y_set = np.arange(3) < sizes[:, None]
    rows = SetReport.from_predictions([0, 0, 0, 1, 1, 2], y_set).rows
    assert rows[0]["size_error"] == pytest.approx(sizes.std(ddof=1) / np.sqrt(6))


def test_a_class_without_weight_is_not_in_the_macro_curve():
    y, p = np.array([0, 1, 2, 0]), np.eye(3)[[0, 1, 2, 1]]
    options = {"average": "macro", "sample_weight": [1, 1, 0, 1]}
    drawn = CoverageSizeDisplay.from_predictions(y, p, **options)
    assert drawn.top_k_coverage[0] == top_k_accuracy_score(y, p, k=1, **options) == 0.75


def test_sizes_go_up_to_a_tenth_of_many_classes():
    p = np.random.default_rng(0).dirichlet(np.ones(400), size=50)
    drawn = CoverageSizeDisplay.from_predictions(np.arange(50), p, labels=np.arange(400))
    assert drawn.top_k_sizes[-1] == 40


def test_a_width_of_ones_own_stays():
    first = SetSizeDisplay.from_predictions(None, np.eye(3, dtype=bool), width=0.4)
    SetSizeDisplay.from_predictions(None, np.eye(3, dtype=bool), ax=first.ax_)
    assert first.ax_.patches[0].get_width() == pytest.approx(0.2)

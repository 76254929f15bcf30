"""Metrics against brute force, scikit-learn and MAPIE."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import top_k_accuracy_score as sklearn_top_k

from sksetvalued.metrics import (
    CoverageSizeDisplay,
    SetReport,
    SetSizeDisplay,
    average_k_accuracy_score,
    average_k_threshold,
    average_set_size,
    set_coverage_score,
    set_size_distribution,
    shot_coverage_score,
    top_k_accuracy_score,
)
from sksetvalued.rules import AverageK, TopK

AVERAGES = ["micro", "macro", None]


def data(seed=0, n=80, n_classes=6, rounded=True, names=None):
    """Return true labels, scores (with ties when rounded) and the labels of the columns."""
    rng = np.random.default_rng(seed)
    y_score = rng.random((n, n_classes))
    if rounded:
        y_score = np.round(y_score, 1)
    labels = np.arange(n_classes) if names is None else np.array(names)
    return labels[rng.integers(0, n_classes, n)], y_score, labels


def coverage_by_hand(y_true, sets, labels, average, weight=None):
    """Return coverage with loops over samples and classes."""
    weight = np.ones(len(y_true)) if weight is None else weight
    labels = list(labels)
    hits = [c in labels and bool(row[labels.index(c)]) for c, row in zip(y_true, sets)]
    if average == "micro":
        return sum(w * h for w, h in zip(weight, hits)) / sum(weight)
    per_class = {}
    for c in {*labels, *y_true}:
        total = sum(w for w, t in zip(weight, y_true) if t == c)
        hit = sum(w * h for w, h, t in zip(weight, hits, y_true) if t == c)
        per_class[c] = hit / total if total else np.nan
    if average is None:
        return [per_class[c] for c in labels]
    return np.nanmean(list(per_class.values()))


# -- top-k ---------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("rounded", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_micro_top_k_is_scikit_learns(k, rounded, weighted):
    y, y_score, labels = data(k, rounded=rounded)
    weight = np.random.default_rng(0).random(len(y)) if weighted else None
    expected = sklearn_top_k(y, y_score, k=k, labels=labels, sample_weight=weight)
    ours = top_k_accuracy_score(y, y_score, k=k, labels=labels, sample_weight=weight)
    assert ours == expected
    assert top_k_accuracy_score(y, y_score, k=k, sample_weight=weight) == expected


@pytest.mark.parametrize("scale", ["probability", "margin"])
def test_binary_column_is_scikit_learns(scale):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    s = np.round(rng.random(200), 1) if scale == "probability" else rng.integers(-3, 4, 200) * 1.0
    for labels in (None, [0, 1]):
        assert top_k_accuracy_score(y, s, k=1, labels=labels) == sklearn_top_k(y, s, k=1)
    with pytest.warns(UndefinedMetricWarning):
        assert top_k_accuracy_score(y, s, k=2) == 1


@pytest.mark.parametrize("model", ["densenet_bc_100", "wideresnet_16_4", "lenet_5"])
def test_top_k_on_real_scores_is_scikit_learns(shared_data, model):
    with np.load(shared_data / "cifar100_test_probs_3models.npz") as pack:
        p, y = pack[f"p_{model}"], pack["y"].astype(int)
    labels = np.arange(100)
    for k in (1, 3, 5, 20):
        assert top_k_accuracy_score(y, p, k=k) == sklearn_top_k(y, p, k=k)
        rule = TopK(k).fit(p)
        sets = rule.predict_set(p)
        assert set_coverage_score(y, sets, labels=labels) == top_k_accuracy_score(
            y, p, k=k, labels=labels
        )
        # Classes are balanced in this test set, so that the two averages agree.
        macro = top_k_accuracy_score(y, p, k=k, average="macro")
        assert macro == pytest.approx(sklearn_top_k(y, p, k=k), abs=1e-12)
        per_class = top_k_accuracy_score(y, p, k=k, average=None)
        by_hand = [sets[y == c, c].mean() for c in range(100)]
        np.testing.assert_array_equal(per_class, by_hand)
    average = AverageK(3).fit(p).predict_set(p)
    assert average_k_accuracy_score(y, p, k=3) == average[np.arange(len(y)), y].mean()


def test_k_of_all_classes_warns_as_scikit_learn_does():
    y, y_score, labels = data()
    with pytest.warns(UndefinedMetricWarning, match="every class"):
        assert top_k_accuracy_score(y, y_score, k=6, labels=labels) == 1
    with pytest.warns(UndefinedMetricWarning, match="every class"):
        assert average_k_accuracy_score(y, y_score, k=6, labels=labels) == 1


# -- every metric against loops ----------------------------------------------------------


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("case", ["all", "absent", "unknown", "strings", "unsorted"])
def test_metrics_against_loops(average, weighted, case):
    names = ["b", "c", "d", "e", "f", "g"] if case == "strings" else None
    y, y_score, labels = data(3, names=names)
    if case == "absent":
        y[y == 2] = 1
    if case == "unknown":
        y[:9], y[5:7] = 17, 99
    if case == "unsorted":
        labels = labels[[3, 1, 5, 0, 2, 4]]
    weight = np.random.default_rng(1).integers(0, 3, len(y)) if weighted else None
    options = {"average": average, "labels": labels, "sample_weight": weight}
    top = TopK(2).fit(y_score).predict_set(y_score)
    expected = coverage_by_hand(y, top, labels, average, weight)
    np.testing.assert_allclose(set_coverage_score(y, top, **options), expected, rtol=1e-14)
    np.testing.assert_allclose(
        top_k_accuracy_score(y, y_score, k=2, **options), expected, rtol=1e-14
    )
    above = AverageK(2.5).fit(y_score, sample_weight=weight).predict_set(y_score)
    np.testing.assert_allclose(
        average_k_accuracy_score(y, y_score, k=2.5, **options),
        coverage_by_hand(y, above, labels, average, weight),
        rtol=1e-14,
    )
    np.testing.assert_allclose(
        average_k_accuracy_score(y, y_score, threshold=0.7, **options),
        coverage_by_hand(y, y_score >= 0.7, labels, average, weight),
        rtol=1e-14,
    )


@pytest.mark.parametrize("average", AVERAGES)
def test_weight_two_is_a_duplicated_row(average):
    y, y_score, labels = data(4)
    weight = np.random.default_rng(2).integers(0, 3, len(y))
    y2, y_score2 = np.repeat(y, weight), np.repeat(y_score, weight, axis=0)
    for metric, k in ((top_k_accuracy_score, 2), (average_k_accuracy_score, 1.7)):
        weighted = metric(y, y_score, k=k, average=average, labels=labels, sample_weight=weight)
        copies = metric(y2, y_score2, k=k, average=average, labels=labels)
        np.testing.assert_allclose(weighted, copies, rtol=1e-14)
    sets, sets2 = y_score > 0.6, y_score2 > 0.6
    assert average_set_size(sets, sample_weight=weight) == pytest.approx(average_set_size(sets2))
    np.testing.assert_allclose(
        set_size_distribution(sets, sample_weight=weight), set_size_distribution(sets2)
    )
    assert average_k_threshold(y_score, 1.7, sample_weight=weight) == average_k_threshold(
        y_score2, 1.7
    )
    counts = [1, 19, 20, 100, 101, 500]
    groups = shot_coverage_score(y, sets, class_counts=counts, labels=labels, sample_weight=weight)
    copies = shot_coverage_score(y2, sets2, class_counts=counts, labels=labels)
    assert groups == pytest.approx(copies)


def test_sizes_and_their_distribution():
    sets = data(5)[1] > 0.5
    sizes = [sum(row) for row in sets]
    assert average_set_size(sets) == sum(sizes) / len(sizes)
    shares = set_size_distribution(sets)
    np.testing.assert_allclose(shares, [sizes.count(s) / len(sizes) for s in range(7)])
    assert shares @ np.arange(7) == pytest.approx(average_set_size(sets))


def test_shot_groups_and_their_bounds():
    y, y_score, labels = data(6)
    sets = y_score > 0.6
    per_class = set_coverage_score(y, sets, labels=labels, average=None)
    groups = shot_coverage_score(y, sets, class_counts=[1, 19, 20, 100, 101, 500], labels=labels)
    assert list(groups) == ["few", "medium", "many"]
    assert groups == pytest.approx(
        {
            "few": per_class[:2].mean(),
            "medium": per_class[2:4].mean(),
            "many": per_class[4:].mean(),
        }
    )
    y = np.where(y == 0, 99, y)
    groups = shot_coverage_score(y, sets, class_counts=[500] * 6, labels=labels)
    assert groups["few"] == 0
    assert np.isnan(groups["medium"])


def test_permuting_classes_changes_nothing():
    y, y_score, labels = data(7, rounded=False)
    columns = np.array([4, 2, 0, 5, 1, 3])
    for average in ("micro", "macro"):
        for metric, k in ((top_k_accuracy_score, 2), (average_k_accuracy_score, 1.7)):
            a = metric(y, y_score, k=k, labels=labels, average=average)
            b = metric(y, y_score[:, columns], k=k, labels=labels[columns], average=average)
            assert a == b


def test_average_k_on_a_monotone_scale_and_in_float32():
    y, y_score, labels = data(8, rounded=False)
    expected = average_k_accuracy_score(y, y_score, k=1.7, labels=labels)
    assert average_k_accuracy_score(y, np.log(y_score), k=1.7, labels=labels) == expected
    p = y_score.astype(np.float32)
    assert average_k_accuracy_score(y, p, k=1.7, labels=labels) == expected
    threshold = average_k_threshold(p, 1.7)
    assert (p.astype(np.float64) >= threshold).sum() == 136


def test_binary_average_k_takes_both_columns():
    rng = np.random.default_rng(0)
    p, y = rng.random(50), rng.integers(0, 2, 50)
    both = average_k_accuracy_score(y, np.column_stack([1 - p, p]), k=1.2)
    assert average_k_accuracy_score(y, p, k=1.2) == both
    margin = np.log(p / (1 - p))
    assert average_k_accuracy_score(y, margin, k=1.2) == both


def test_mapie_takes_our_mask():
    mapie = pytest.importorskip("mapie.metrics.classification")
    y, y_score, labels = data(9)
    for sets in (TopK(2).fit(y_score).predict_set(y_score), y_score > 0.5):
        theirs = mapie.classification_coverage_score(y, sets[:, :, None])
        assert float(np.ravel(theirs)[0]) == pytest.approx(
            set_coverage_score(y, sets, labels=labels)
        )
        width = mapie.classification_mean_width_score(sets[:, :, None])
        assert float(np.ravel(width)[0]) == pytest.approx(average_set_size(sets))


# -- bad input ---------------------------------------------------------------------------


def test_bad_input_is_named():
    y, y_score, _ = data()
    sets = y_score > 0.5
    cases = [
        (lambda: top_k_accuracy_score(y, y_score, k=0), ValueError, "k must be >= 1"),
        (lambda: top_k_accuracy_score(y, y_score, k=1.5), TypeError, "k must be an integer"),
        (lambda: top_k_accuracy_score(y[:9], y_score), ValueError, "9 samples"),
        (lambda: top_k_accuracy_score(y * 0, y_score), ValueError, "pass labels="),
        (lambda: top_k_accuracy_score(y, y_score, labels=[1, 2]), ValueError, "2 entries"),
        (
            lambda: top_k_accuracy_score(y, y_score, labels=[1, 1, 2, 3, 4, 5]),
            ValueError,
            "distinct",
        ),
        (
            lambda: top_k_accuracy_score(y, y_score, labels=list("abcdef")),
            ValueError,
            "numbers and strings",
        ),
        (lambda: top_k_accuracy_score(y, y_score, average="weighted"), ValueError, "average"),
        (lambda: top_k_accuracy_score(y, y_score * np.nan), ValueError, "NaN"),
        (lambda: average_k_accuracy_score(y, y_score, k=0), ValueError, "k must lie"),
        (
            lambda: average_k_accuracy_score(y, y_score, threshold="a"),
            TypeError,
            "threshold must hold real numbers",
        ),
        (
            lambda: average_k_accuracy_score(y, y_score, threshold=np.nan),
            ValueError,
            "threshold must be a number",
        ),
        (lambda: set_coverage_score(y, y_score), ValueError, "booleans"),
        (lambda: set_coverage_score(y, sets[0]), ValueError, "mask of shape"),
        (
            lambda: set_coverage_score(y, sets, sample_weight=-np.ones(80)),
            ValueError,
            "sample_weight",
        ),
        (lambda: shot_coverage_score(y, sets, class_counts=[1]), ValueError, "class_counts"),
        (lambda: average_set_size([[]]), ValueError, "mask of shape"),
    ]
    for call, error, match in cases:
        with pytest.raises(error, match=match):
            call()


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("weight", [[1.0, 2.0], np.zeros(80), np.r_[-1.0, np.ones(79)]])
def test_weights_are_checked_by_every_average(average, weight):
    """The first sample, whose weight is negative, has a label that is no class."""
    y, y_score, labels = data()
    y[0] = 99
    options = {"average": average, "labels": labels, "sample_weight": weight}
    with pytest.raises(ValueError, match="sample_weight"):
        set_coverage_score(y, y_score > 0.5, **options)
    with pytest.raises(ValueError, match="sample_weight"):
        top_k_accuracy_score(y, y_score, k=2, **options)


def test_no_warning_where_all_is_well():
    y, y_score, labels = data()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y[y == 0] = 1
        for average in AVERAGES:
            top_k_accuracy_score(y, y_score, k=2, average=average, labels=labels)


NUMBERS = [np.array([0, 1, 2, 1]), np.array([0, 1, 2, 1], dtype=object)]
STRINGS = [np.array(list("abcb")), np.array(list("abcb"), dtype=object)]


@pytest.mark.parametrize("metric", [top_k_accuracy_score, average_k_accuracy_score])
@pytest.mark.parametrize("numbers", NUMBERS, ids=lambda a: a.dtype)
@pytest.mark.parametrize("strings", STRINGS, ids=lambda a: a.dtype)
def test_numbers_never_match_strings_whatever_the_dtype(metric, numbers, strings):
    y_score = np.random.default_rng(0).random((4, 3))
    for y_true, labels in ((numbers, strings), (strings, numbers)):
        with pytest.raises(ValueError, match="numbers and strings"):
            metric(y_true, y_score, k=2, labels=labels[:3])
    mixed = np.array([0, "a", 1, "b"], dtype=object)
    for options in ({"labels": strings[:3]}, {"labels": numbers[:3]}, {}):
        with pytest.raises(ValueError, match="numbers and strings"):
            metric(mixed, y_score, k=2, **options)


@pytest.mark.parametrize("values", [NUMBERS, STRINGS], ids=["numbers", "strings"])
def test_labels_may_be_objects(values):
    y_score = np.random.default_rng(0).random((4, 3))
    expected = top_k_accuracy_score([0, 1, 2, 1], y_score, k=2)
    for y_true in values:
        for labels in values:
            assert top_k_accuracy_score(y_true, y_score, k=2, labels=labels[:3]) == expected


@pytest.mark.parametrize("score", [top_k_accuracy_score, average_k_accuracy_score])
def test_labels_of_one_column_are_in_order(score):
    y_true, y_score = [0, 1, 1, 0, 1], [0.2, 0.8, 0.4, 0.5, 0.9]
    assert score(y_true, y_score, k=1, labels=[0, 1]) == score(y_true, y_score, k=1)
    with pytest.raises(
        ValueError, match="labels must be in order where the scores are one column"
    ):
        score(y_true, y_score, k=1, labels=[1, 0])


def test_counts_in_another_order_than_the_columns_are_refused():
    counts = pd.Series(["a"] * 5 + ["b"] * 300 + ["c"] * 50).value_counts()
    y_set = np.eye(3, dtype=bool)
    with pytest.raises(ValueError, match="sort_index"):
        shot_coverage_score(["a", "b", "c"], y_set, class_counts=counts)
    result = shot_coverage_score(["a", "b", "c"], y_set, class_counts=counts.sort_index())
    assert result == {"few": 1.0, "medium": 1.0, "many": 1.0}


def test_counts_are_in_the_order_of_the_labels_that_are_given():
    counts, labels = pd.Series([5, 300, 50], index=list("cab")), list("cab")
    y_true, y_set = ["c", "a", "b", "b"], np.eye(3, dtype=bool)[[0, 0, 2, 0]]
    params = {"labels": labels}
    result = shot_coverage_score(y_true, y_set, class_counts=counts, **params)
    assert result == {"few": 1.0, "medium": 0.5, "many": 0.0}
    for use in (shot_coverage_score, SetReport.from_predictions, SetSizeDisplay.from_predictions):
        use(y_true, y_set, class_counts=counts, **params)
        with pytest.raises(
            ValueError, match=r"at position 0 its.*'a', and labels 'c'.*\.loc\[labels\]"
        ):
            use(y_true, y_set, class_counts=counts.sort_index(), **params)
        with pytest.raises(ValueError, match=r"each of labels.*lacks \['b'\] and names \['bb'\]"):
            use(y_true, y_set, class_counts=counts.set_axis(["c", "a", "bb"]), **params)


def test_one_column_is_no_column_for_each_of_two_labels():
    with pytest.raises(ValueError, match="predictions one column.*1-D array"):
        top_k_accuracy_score([0, 1, 1], [[0.2], [0.5], [0.9]], k=1)


def test_columns_of_a_frame_in_another_order_than_the_labels_are_refused():
    y, y_score, labels = data(rounded=False, names=list("abcdef"))
    frame = pd.DataFrame(y_score, columns=labels)
    expected = top_k_accuracy_score(y, y_score, k=2)
    assert top_k_accuracy_score(y, frame, k=2) == expected
    turned = frame[labels[::-1]]
    assert top_k_accuracy_score(y, turned, k=2, labels=labels[::-1]) == expected
    for given in (None, labels):
        with pytest.raises(ValueError, match=r"columns .* are named f, e, d"):
            top_k_accuracy_score(y, turned, k=2, labels=given)
        with pytest.raises(ValueError, match=r"columns .* are named f, e, d"):
            set_coverage_score(y, turned > 0.5, labels=given)
    # Numbers that count the columns name nothing.
    numbers = np.arange(6)[::-1]
    plain = top_k_accuracy_score(y, y_score, k=2, labels=labels[::-1])
    columns = pd.DataFrame(y_score)
    of_numbers = np.searchsorted(labels, y)
    assert top_k_accuracy_score(of_numbers, columns, k=2, labels=numbers) == plain


@pytest.mark.parametrize(
    ("names", "turned", "wanted"),
    [
        ("abcde", "e, d, c, b, a", "a, b, c, d, e"),
        ("abcdef", "f, e, d, c, b...", "a, b, c, d, e..."),
    ],
)
def test_dots_tell_that_there_are_more_columns(names, turned, wanted):
    y, y_score, labels = data(n_classes=len(names), names=list(names))
    said = f"are named {turned}, the labels in another order than {wanted}: give"
    with pytest.raises(ValueError, match=re.escape(said)):
        top_k_accuracy_score(y, pd.DataFrame(y_score, columns=labels[::-1]), k=2)


@pytest.mark.parametrize(
    ("days", "dtype", "of_columns"),
    [
        *(("M8[D]", f"M8[{unit}]", None) for unit in ("ns", "us", "D")),
        *(("m8[D]", f"m8[{unit}]", None) for unit in ("ns", "us", "D")),
        *(("M8[D]", f"M8[{unit}]", str) for unit in ("ns", "us")),
        *[("i8", "f8", "i8"), ("i8", "i8", "f8")],
    ],
)
def test_columns_are_told_by_the_values_of_their_labels(days, dtype, of_columns):
    numbers, y_score, _ = data(rounded=False)
    labels = np.arange(18000, 18006).astype(days).astype(dtype)
    columns = pd.Index(labels).map(str) if of_columns is str else pd.Index(labels, of_columns)
    frame = pd.DataFrame(y_score, columns=columns)
    expected = top_k_accuracy_score(numbers, y_score, k=2)
    assert top_k_accuracy_score(labels[numbers], frame, k=2) == expected
    turned = frame[frame.columns[::-1]]
    assert top_k_accuracy_score(labels[numbers], turned, k=2, labels=labels[::-1]) == expected
    for given in (None, labels):
        with pytest.raises(ValueError, match=r"columns .* are named .* in another order than"):
            top_k_accuracy_score(labels[numbers], turned, k=2, labels=given)


def test_lists_of_labels_are_not_a_mask():
    for y_set in ([["a", "b"]], np.array([["a", "b"]], object), [[0, 2]]):
        with pytest.raises(ValueError, match="must hold booleans.*MultiLabelBinarizer"):
            set_coverage_score(["a"], y_set)
    with pytest.raises(ValueError, match="MultiLabelBinarizer"):
        average_set_size([["a"], ["a", "b"]])


def test_sets_are_not_scores():
    y_true, y_score, _ = data(rounded=False)
    sets = AverageK(2).fit(y_score).predict_set(y_score)
    for use in (
        lambda: top_k_accuracy_score(y_true, sets, k=2),
        lambda: average_k_accuracy_score(y_true, sets, k=2),
        lambda: CoverageSizeDisplay.from_predictions(y_true, sets),
        lambda: AverageK(2).fit(sets),
        lambda: AverageK(2).fit(y_score).predict_set(sets),
    ):
        with pytest.raises(TypeError, match="y_score must hold scores.*got booleans.*SetReport"):
            use()


def test_what_a_masked_array_lacks_is_not_another_form():
    masked = np.ma.masked_array([[True, False]], mask=[[False, True]])
    with pytest.raises(ValueError, match=r"y_set is a masked array.*leave their samples out\.$"):
        average_set_size(masked)


def test_margins_below_a_half_are_above_their_limit():
    rng = np.random.default_rng(0)
    y, s = rng.integers(0, 2, 200), rng.normal(size=200)
    assert top_k_accuracy_score(y, s, k=1) == sklearn_top_k(y, s, k=1)


def test_classes_without_weight_have_no_coverage():
    options = {"labels": [0, 1], "average": None, "sample_weight": [0, 1]}
    assert np.isnan(set_coverage_score([0, 5], np.eye(2, dtype=bool), **options)).all()

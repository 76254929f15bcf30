"""The multi-label classifier: forms of targets, sizes of predictions, sparsity, errors."""

import itertools
import pickle
import re
import warnings
from collections import deque

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import (
    f1_score,
    get_scorer,
    hamming_loss,
    label_ranking_average_precision_score,
    roc_auc_score,
)
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from skorch.callbacks import Callback

import sksetvalued
from sksetvalued import SparseTopClassifier, TopKClassifier, cross_val_predict_set
from sksetvalued.deploy import to_torch
from sksetvalued.estimators import _deep
from sksetvalued.estimators._marginals import label_proba, label_rank
from sksetvalued.estimators._sparse_top import top_labels
from sksetvalued.estimators._targets import encode_label_sets, find_labels
from sksetvalued.losses import AverageKLoss, BinaryCrossEntropyLoss, ROLELoss, SparseTopLoss
from sksetvalued.metrics import top_k_accuracy_score
from sksetvalued.operators import sparse_top
from sksetvalued.rules import AverageK

SLOW = pytest.mark.slow
DRAWN_BY_ROWS = (
    "batches and dropout are drawn for rows: another network, by up to 0.17 in a probability. "
    "Without them, weights and repetitions agree up to single precision "
    "(test_integer_weights_repeat_rows)"
)
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": DRAWN_BY_ROWS,
    "check_sample_weight_equivalence_on_sparse_data": DRAWN_BY_ROWS,
}


@parametrize_with_checks(
    [SparseTopClassifier(max_epochs=4, lr=3e-2, batch_size=100)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [SparseTopClassifier(loss="bce", size="threshold", max_epochs=15, lr=5e-3)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_scikit_learn_checks_of_other_settings(estimator, check):
    check(estimator)


def make_data(n=240, n_classes=6, seed=0):
    X, Y = make_multilabel_classification(
        n, n_features=12, n_classes=n_classes, n_labels=2, random_state=seed
    )
    return StandardScaler().fit_transform(X), Y


def network_scores(clf, X):
    """Return what the network gives for the labels, in units of the margin."""
    return np.concatenate([scores for scores, _ in clf._iter_parts(X)])


def quick(**params):
    params = {"max_epochs": 5, "batch_size": 80, "backbone": (32,), **params}
    return SparseTopClassifier(**{"random_state": 0, **params})


@pytest.fixture(scope="module")
def data():
    return make_data()


@pytest.fixture(scope="module")
def fitted(data):
    return quick(max_epochs=20, lr=2e-2).fit(*data)


# -- learning -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "loss"),
    [
        *(("predicted", loss) for loss in ("sparse_top", "bce", "sparsemax")),
        *(("threshold", loss) for loss in ("sparse_top", "sparsemax")),
        pytest.param("threshold", "bce", marks=pytest.mark.slow),
    ],
)
def test_learns_labels_that_are_half_spaces(loss, size):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 5))
    Y = (X @ rng.normal(size=(5, 6)) > 1).astype(int)
    clf = quick(loss=loss, size=size, max_epochs=10, lr=3e-2, batch_size=100)
    clf.fit(X[:600], Y[:600])
    score = f1_score(Y[600:], clf.predict(X[600:]), average="micro")
    # The share of a label, unlike its probability, also depends on which others there are.
    assert score > (0.75 if (size, loss) == ("threshold", "sparsemax") else 0.85)


def test_the_margin_is_4_and_1_gives_the_loss_of_the_thesis(data, fitted):
    scores = fitted.decision_function(data[0])
    same = quick(max_epochs=20, lr=2e-2, margin=4).fit(*data).decision_function(data[0])
    np.testing.assert_array_equal(same, scores)
    own = quick(loss=SparseTopLoss()).fit(*data).decision_function(data[0])
    np.testing.assert_array_equal(quick(margin=1).fit(*data).decision_function(data[0]), own)
    # The network's scores are told in units of the margin.
    with torch.no_grad():
        x = torch.as_tensor(data[0], dtype=torch.float32, device=fitted.net_.device)
        raw = fitted.net_.module_(x)[:, : len(fitted.classes_)].cpu().numpy()
    np.testing.assert_allclose(4 * network_scores(fitted, data[0]), raw, rtol=1e-4, atol=1e-5)


def test_a_margin_that_a_loss_has_not_is_warned_of(data):
    with pytest.warns(UserWarning, match=r"margin=2 has no effect on loss='bce'"):
        quick(loss="bce", margin=2, max_epochs=1).fit(*data)


def test_torch_criteria_are_losses(data):
    X, Y = data
    for loss in (torch.nn.BCEWithLogitsLoss, torch.nn.MultiLabelSoftMarginLoss()):
        clf = quick(loss=loss).fit(X, Y)
        assert clf.predict(X, size=Y.sum(1)).sum() == Y.sum()
        weighted = clone(clf).fit(X, Y, sample_weight=np.full(len(X), 2.0))
        np.testing.assert_allclose(
            weighted.decision_function(X), clf.decision_function(X), atol=1e-4
        )


def test_samples_without_labels_teach_the_size():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    Y = np.eye(4, dtype=int)[X.argmax(1)] * (X.max(1) > 1)[:, None]
    clf = quick(max_epochs=15, lr=2e-2).fit(X[:400], Y[:400])
    size = clf.predict(X[400:]).sum(1)
    assert set(size) == {0, 1}
    assert np.mean(size == Y[400:].sum(1)) > 0.85
    assert [len(labels) for labels in clf.predict_labels(X[400:])] == size.tolist()


def test_counts_of_labels(data, fitted):
    _, Y = data
    assert fitted.class_counts_.tolist() == Y.sum(0).tolist()
    assert fitted.average_size_ == Y.sum() / len(Y)
    assert fitted.largest_size_ == Y.sum(1).max()


# -- forms of targets -----------------------------------------------------------------------


class Column:
    """A column of lists that yields columns, as one of polars does."""

    def __init__(self, lists):
        self.lists = lists

    def __len__(self):
        return len(self.lists)

    def __iter__(self):
        return map(pd.Series, self.lists)

    def to_list(self):
        return self.lists


class Table:
    """A table whose columns are the data, as one of pyarrow is."""

    def __init__(self, values, names):
        self.columns, self.column_names = list(values.T), list(names)

    def __len__(self):
        return len(self.columns[0])

    def __array__(self, dtype=None, copy=None):
        return np.column_stack(self.columns)


def test_every_form_of_targets_gives_the_same_network(data):
    X, Y = data
    names = np.array(list("abcdef"))
    forms = {
        "dense": Y,
        "bool": Y.astype(bool),
        "float": Y.astype(float),
        "rows": Y.tolist(),
        "csr": sp.csr_matrix(Y),
        "csc": sp.csc_array(Y),
        "frame": pd.DataFrame(Y, columns=names),
        "nullable frame": pd.DataFrame(Y, columns=names).astype({"a": "Int64", "b": "boolean"}),
        "table": Table(Y, names),
        "sets": [set(names[row == 1]) for row in Y],
        "lists": [list(names[row == 1]) for row in Y],
        "series": pd.Series([tuple(names[row == 1]) for row in Y]),
        "column": Column([list(names[row == 1]) for row in Y]),
        "numbers": [set(np.flatnonzero(row).tolist()) for row in Y],
        "tensors": [torch.from_numpy(np.flatnonzero(row)) for row in Y],
        "rows of a series": pd.Series(Y.tolist()),
        "rows of a column": Column(Y.tolist()),
        "rows of tensors": list(torch.from_numpy(Y)),
    }
    expected = quick(max_epochs=2).fit(X, Y).decision_function(X)
    for form, y in forms.items():
        clf = quick(max_epochs=2).fit(X, y)
        assert np.array_equal(clf.decision_function(X), expected), form
        named = form in ("frame", "nullable frame", "table", "sets", "lists", "series", "column")
        assert clf.classes_.tolist() == (list(names) if named else list(range(6)))
        predicted = clf.predict(X)
        assert sp.issparse(predicted) == (form in ("csr", "csc"))
        assert predicted.shape == Y.shape
        dense = predicted.toarray() if sp.issparse(predicted) else predicted
        assert clf.score(X, y) == np.mean((dense == Y).all(1))


def test_labels_are_returned_by_name_the_best_first(data):
    X, Y = data
    names = np.array(["oak", "ash", "elm", "fir", "yew", "box"])
    clf = quick().fit(X, [set(names[row == 1]) for row in Y])
    assert clf.classes_.tolist() == sorted(names)
    scores, mask = clf.decision_function(X), clf.predict_set(X, size=3)
    for labels, score, members in zip(clf.predict_labels(X, size=3), scores, mask):
        columns = np.searchsorted(clf.classes_, labels)
        assert set(columns) == set(np.flatnonzero(members))
        assert (np.diff(score[columns]) <= 0).all()


def test_one_label_per_sample_is_an_ordinary_classifier():
    X, _ = make_data()
    y = np.array(["low", "mid", "top"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    clf = quick(max_epochs=30, lr=1e-2).fit(X, y)
    assert clf.score(X, y) > 0.8
    assert set(clf.predict(X)) == {"low", "mid", "top"}
    assert clf.predict_set(X, size=2).sum(1).tolist() == [2] * len(X)
    assert clf.predict_set(X).sum(1).tolist() == [1] * len(X)


def test_sparse_inputs_and_targets_are_made_dense_by_batches_only(monkeypatch):
    n, n_features, n_classes = 700, 5000, 900
    X = sp.random(n, n_features, 0.002, format="csr", random_state=0, dtype=np.float32)
    Y = sp.csr_matrix(sp.random(n, n_classes, 0.005, random_state=1) > 0)
    rows = []
    for cls in (sp.csr_matrix, sp.csr_array):
        own = cls.toarray

        def spy(self, *args, own=own, **kwargs):
            rows.append(self.shape[0])
            return own(self, *args, **kwargs)

        monkeypatch.setattr(cls, "toarray", spy)
    monkeypatch.setattr(_deep, "CHUNK_SIZE", 64 * n_classes)
    clf = quick(max_epochs=1, validation_fraction=0.2, size="threshold", batch_size=32)
    clf.fit(X, Y)
    predicted, q = clf.predict(X), clf.project(X)
    assert sp.issparse(predicted)
    assert sp.issparse(q)
    assert 0 < max(rows) <= 64
    clf.partial_fit(X, Y).calibrate(X)
    assert max(rows) <= 64


# -- names of columns -----------------------------------------------------------------------


def scores_by_name(clf, X):
    return dict(zip(clf.classes_.tolist(), clf.decision_function(X).T))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, pd.DataFrame])
def test_classes_name_the_columns_of_an_indicator_in_the_order_given(data, form):
    X, Y = data
    names = list("fbdace")
    y = form(Y, columns=names) if form is pd.DataFrame else form(Y)
    clf = quick().partial_fit(X, y, classes=names)
    assert clf.classes_.tolist() == names
    assert clf.class_counts_.tolist() == Y.sum(0).tolist()
    # Names change nothing but the names.
    expected = quick().partial_fit(X, Y).decision_function(X)
    assert np.array_equal(clf.decision_function(X), expected)


@pytest.mark.parametrize("names", [list("fbdace"), [7, -1, 3, 0, 2, 5]])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_frame_is_read_by_the_names_of_its_columns(data, method, names):
    X, Y = data
    frame = pd.DataFrame(Y, columns=names)
    permuted = frame[sorted(names)]
    plain, mixed = quick(warm_start=True), quick(warm_start=True)
    for clf, second in ((plain, frame), (mixed, permuted)):
        getattr(clf, method)(X, frame)
        getattr(clf, method)(X, second)
        assert clf.classes_.tolist() == names
        assert clf.class_counts_.tolist() == (Y.sum(0) * (1 + (method == "partial_fit"))).tolist()
    assert np.array_equal(plain.decision_function(X), mixed.decision_function(X))
    scores = {plain.score(X, y) for y in (frame, permuted, frame.to_numpy())}
    assert scores == {np.mean((plain.predict(X) == Y).all(1))}


def test_the_order_of_named_columns_is_that_of_the_classes(data):
    X, Y = data
    names = list("fbdace")
    frame = pd.DataFrame(Y, columns=names)
    clf = quick().partial_fit(X, frame, classes=sorted(names))
    assert clf.classes_.tolist() == sorted(names)
    expected = quick().partial_fit(X, frame[sorted(names)])
    assert np.array_equal(clf.decision_function(X), expected.decision_function(X))


def test_a_later_call_may_name_the_columns_in_another_order(data):
    X, Y = data
    names = np.array(list("fbdace"))
    order = np.random.default_rng(0).permutation(6)
    plain, permuted, as_sets = (quick().partial_fit(X, Y, classes=names) for _ in range(3))
    plain.partial_fit(X, Y)
    permuted.partial_fit(X, Y[:, order], classes=names[order])
    as_sets.partial_fit(X, [set(names[row == 1]) for row in Y], classes=sorted(names))
    # Label sets first, and then an indicator without names, whose columns are as announced.
    sets_first = quick().partial_fit(X, [set(names[row == 1]) for row in Y], classes=names)
    sets_first.partial_fit(X, Y)
    assert sets_first.score(X, Y) == sets_first.score(X, [names[row == 1] for row in Y])
    for clf in (permuted, as_sets, sets_first):
        assert clf.classes_.tolist() == list(names)
        assert np.array_equal(clf.decision_function(X), plain.decision_function(X))


def test_columns_that_are_not_the_classes_are_named(data):
    X, Y = data
    frame = pd.DataFrame(Y, columns=list("abcdef"))
    fitted = quick(max_epochs=1).fit(X, frame)
    differs = r"no classes are \['z'\] and no column is \['a'\].*y.to_numpy\(\)"
    for wrong in (
        frame.rename(columns={"a": "z"}),
        frame.rename(columns={"a": "z"})[list("fzbcde")],
    ):
        for method in (fitted.partial_fit, fitted.score, quick(warm_start=True).fit(X, frame).fit):
            with pytest.raises(ValueError, match=differs):
                method(X, wrong)
        with pytest.raises(ValueError, match=differs):
            quick().partial_fit(X, wrong, classes=list("abcdef"))
    with pytest.raises(ValueError, match=r"than the classes: no column is \['f'\]"):
        fitted.score(X, frame[list("abcde")])
    # A digit is no number.
    numbers = quick(max_epochs=1).fit(X, Y)
    with pytest.raises(ValueError, match=r"no classes are \['0', .* no column is \[0, "):
        numbers.score(X, pd.DataFrame(Y, columns=list("012345")))
    with pytest.raises(ValueError, match="not among the classes"):
        numbers.partial_fit(X, [{"0", "1"}] * len(X))
    with pytest.raises(ValueError, match=r"twice.*\['a'\]"):
        quick().fit(X, frame.rename(columns={"b": "a"}))
    with pytest.raises(ValueError, match=r"twice.*\['a'\]"):
        quick().partial_fit(X, Y, classes=list("abcdea"))
    for wrong in (6, "abcdef"):
        with pytest.raises(TypeError, match="classes must be a sequence of labels, got"):
            quick().partial_fit(X, Y, classes=wrong)
    for names in ([*"abcde", 1], pd.MultiIndex.from_product([[0, 1], [0, 1, 2]])):
        with pytest.raises(TypeError, match="the columns of y must be"):
            quick().fit(X, frame.set_axis(names, axis=1))


# -- labels unseen in training --------------------------------------------------------------


@pytest.mark.parametrize("unseen", ["a new one", "zzz"])
def test_a_label_unseen_in_training_is_a_miss(data, unseen):
    X, Y = data
    names = np.array(list("abcdef"))
    sets = [set(names[row == 1]) for row in Y]
    clf = quick(max_epochs=20).fit(X, sets)
    exact = (clf.predict(X) == Y).all(1)
    weight = np.random.default_rng(0).integers(0, 4, len(X))
    rng = np.random.default_rng(1)
    for marked in (exact, ~exact, rng.random(len(X)) < 0.3, np.ones(len(X), bool)):
        y = [labels | {unseen, "b"} if m else labels for labels, m in zip(sets, marked)]
        assert clf.score(X, y) == np.mean(exact & ~marked)
        expected = np.average(exact & ~marked, weights=weight)
        np.testing.assert_allclose(clf.score(X, y, sample_weight=weight), expected)
    for method in (clf.partial_fit, quick(warm_start=True).fit(X, sets).fit):
        with pytest.raises(ValueError, match=f"not among the classes: \\['{unseen}'\\]"):
            method(X, y)


@pytest.mark.parametrize("kind", [object, "str", "category"])
def test_label_sets_are_columns_of_frames(data, kind):
    X, Y = data
    names = np.array(list("abcdef"))
    rows, columns = np.nonzero(Y)
    long = pd.DataFrame({"row": rows, "label": pd.Series(names[columns]).astype(kind)})
    y = long.groupby("row")["label"].unique()
    kept = y.index.to_numpy()
    plain = [set(names[row == 1]) for row in Y[kept]]
    expected = quick().partial_fit(X[kept], plain, classes=names)
    for sets in (y, [pd.Series(labels) for labels in y], [pd.Index(labels) for labels in y]):
        found = quick().partial_fit(X[kept], sets, classes=names)
        assert np.array_equal(found.decision_function(X), expected.decision_function(X))


@pytest.mark.parametrize("units", [("ns", "D"), ("D", "ns"), ("s", "us")])
def test_dates_are_labels_in_any_unit(data, units):
    X, Y = data
    days = np.array("2020-01-01", "M8[D]") + np.arange(6)
    of_fit, later = (days.astype(f"M8[{unit}]") for unit in units)
    labels = Y.argmax(1)
    clf = quick().partial_fit(X, of_fit[labels], classes=pd.Series(of_fit).unique())
    expected = quick().partial_fit(X, labels, classes=range(6))
    assert np.array_equal(clf.decision_function(X), expected.decision_function(X))
    assert clf.score(X, later[labels]) == expected.score(X, labels) > 0
    assert clf.score(X, later[labels] + 7 * (later[1] - later[0])) == 0
    with pytest.raises(ValueError, match="not among the classes: .*2020, 1, 1.*known are .*2020"):
        find_labels(days.astype("M8[ns]"), days.astype("M8[us]") + 1)
    of_sets = quick().partial_fit(X, [{label} for label in of_fit[labels]], classes=of_fit)
    score = of_sets.score(X, [{label} for label in of_fit[labels]])
    assert of_sets.score(X, [{label} for label in later[labels]]) == score > 0


def test_sets_of_one_label_a_sample_are_as_large_as_size_says(data):
    X, Y = data
    clf = quick(size=2, max_epochs=1).fit(X, Y.argmax(1))
    assert (clf.predict_set(X).sum(1) == 2).all()


def test_the_score_of_samples_without_labels_is_the_share_of_empty_predictions(data):
    X, Y = data
    clf = quick(size="threshold").fit(X, [set(np.flatnonzero(row).tolist()) for row in Y])
    empty = (clf.predict(X) == 0).all(1)
    assert 0 < empty.mean() < 1
    for y in ([set()] * len(X), 0 * Y):
        assert clf.score(X, y) == empty.mean()


def test_a_rare_label_leaves_the_scores_of_cross_validation_numbers(data):
    X, Y = data
    sets = [set(np.flatnonzero(row).tolist()) for row in Y]
    sets[0] = {77}
    scores = cross_val_score(quick(max_epochs=2), X, sets, cv=3, error_score="raise")
    assert np.isfinite(scores).all()


# -- sizes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["predict", "predict_set"])
def test_a_known_size_is_met_by_every_row(data, fitted, method):
    X, Y = data
    predict = getattr(fitted, method)
    assert np.array_equal(predict(X, size=Y.sum(1)).sum(1), Y.sum(1))
    for k in (0, 2, 6):
        assert (predict(X, size=k).sum(1) == k).all()
    assert np.array_equal(clone_with(fitted, size=2).predict(X), fitted.predict(X, size=2))


def clone_with(model, **params):
    """Return a fitted copy with other parameters."""
    return pickle.loads(pickle.dumps(model)).set_params(**params)


def test_a_known_size_takes_the_largest_scores_and_ties_go_to_the_last():
    scores = np.array([[1.0, 3.0, 2.0], [5.0, 5.0, 5.0], [0.0, 0.0, 9.0]])
    expected = [[False, True, True], [False, False, True], [True, True, True]]
    assert top_labels(scores, [2, 1, 3]).tolist() == expected
    rng = np.random.default_rng(0)
    scores, sizes = rng.integers(0, 9, (200, 12)).astype(float), rng.integers(0, 6, 200)
    scores[:100] += rng.random((100, 12))
    order = [sorted(range(12), key=lambda c: (row[c], c), reverse=True) for row in scores]
    for first, size, row in zip(order, sizes, top_labels(scores, sizes)):
        assert set(np.flatnonzero(row)) == set(first[:size])


def test_the_predicted_size_is_the_median_of_the_learnt_distribution(data, fitted):
    X, _ = data
    with torch.inference_mode():
        x = torch.as_tensor(X, dtype=torch.float32, device=fitted.device_)
        outputs = fitted.net_.module_.eval()(x).cpu()
    p = outputs[:, 6:].softmax(1).double().numpy()
    size = fitted.predict(X).sum(1)
    below = np.array([row[:k].sum() for row, k in zip(p, size)])
    upto = np.array([row[: k + 1].sum() for row, k in zip(p, size)])
    assert (below < 0.5 + 1e-6).all()
    assert (upto >= 0.5 - 1e-6).all()


@pytest.mark.parametrize("loss", ["sparse_top", "bce", "sparsemax"])
def test_one_threshold_gives_the_average_size_and_no_more(data, loss):
    X, Y = data
    clf = quick(loss=loss, size="threshold").fit(X[:150], Y[:150]).calibrate(X[150:])
    average = clf.predict(X[150:]).sum() / 90
    assert clf.average_size_ - 1.5 / 90 < average <= clf.average_size_
    # A weight of zero leaves a sample out of the calibration.
    weight = np.r_[np.ones(40), np.zeros(50)]
    threshold = clf.calibrate(X[150:], sample_weight=weight).rule_.threshold_
    assert np.isclose(threshold, clf.calibrate(X[150:190]).rule_.threshold_)


class TestOneThreshold:
    """One threshold, on what compares between samples."""

    @pytest.mark.parametrize(
        "loss", ["sparse_top", *(pytest.param(x, marks=SLOW) for x in ("bce", "sparsemax"))]
    )
    @pytest.mark.parametrize(
        "average", [0.3, *(pytest.param(x, marks=SLOW) for x in (0.75, 1.2)), 2.5]
    )
    def test_is_as_good_as_predicted_sizes_whatever_their_average(self, average, loss):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(1000, 8))
        planted = X @ rng.normal(size=(8, 6))
        Y = (planted > np.quantile(planted, 1 - average / 6)).astype(int)
        clf = quick(loss=loss, max_epochs=20, lr=1e-2).fit(X[:600], Y[:600])
        predicted = f1_score(Y[600:], clf.predict(X[600:]), average="micro")
        clf.set_params(size="threshold").calibrate(X[600:])
        sets = clf.predict(X[600:])
        assert clf.average_size_ - 2 / 400 < sets.sum() / 400 <= clf.average_size_
        one = f1_score(Y[600:], sets, average="micro")
        assert one > predicted - 0.02

    def test_gives_the_average_size_where_every_label_is_certain(self, data):
        """Also where the samples have more, or fewer, labels than those of the training."""
        Y = (np.random.default_rng(0).random((400, 6)) < 0.4).astype(int)
        scores = 30.0 * Y + np.random.default_rng(1).normal(size=Y.shape)
        sizes = 60.0 * (np.arange(7) == Y.sum(1, keepdims=True))
        for average in (0.4, 1.5, 2.4, 3.5):
            for by in ("probabilities", "shares"):
                rank = label_rank(scores, sizes, by)
                sets = AverageK(average).fit(rank).predict_set(rank)
                assert average - 2 / 400 < sets.sum() / 400 <= average
                if by == "probabilities":
                    assert not (sets & (Y == 0)).any() or not (~sets & (Y == 1)).any()

    def test_compares_probabilities(self, data, fitted):
        X, _ = data
        np.testing.assert_allclose(fitted._set_scores(X), fitted.predict_proba(X), atol=1e-6)
        bce = quick(loss="bce").fit(*data)
        np.testing.assert_array_equal(bce._set_scores(X), bce.decision_function(X))

    def test_compares_shares_times_sizes_of_the_sparsemax_loss(self):
        """They are the expected labels where the number of labels is known."""
        sets = torch.tensor([s for s in itertools.product((0, 1), repeat=5) if sum(s) == 2])
        p = torch.from_numpy(np.random.default_rng(0).dirichlet(np.full(len(sets), 0.3)))
        share = (p @ sets.double())[None] / 2
        # The gradient of the expected loss, q - share, is zero at such scores.
        scores = torch.where(share > 0, share, -1).numpy()
        sizes = np.array([[-50.0, -50.0, 50.0]])
        np.testing.assert_allclose(
            label_rank(scores, sizes, "shares"), 2 * share, rtol=0, atol=1e-6
        )

    @pytest.mark.parametrize("by", ["probabilities", "shares"])
    def test_ignores_the_undetermined_constant(self, by):
        rng = np.random.default_rng(0)
        scores, sizes = rng.normal(size=(50, 6)), rng.normal(size=(50, 4))
        shift = rng.normal(size=(50, 1))
        np.testing.assert_allclose(
            label_rank(scores + shift, sizes, by), label_rank(scores, sizes, by), atol=1e-12
        )

    @pytest.mark.parametrize("by", ["scores", "probabilities", "shares"])
    def test_keeps_the_order_of_the_scores_of_a_sample(self, by):
        rng = np.random.default_rng(0)
        scores = np.float32(rng.normal(size=(200, 6)) * np.geomspace(0.1, 100, 200)[:, None])
        rank = label_rank(scores, 5 * rng.normal(size=(200, 7)), by)
        ordered = np.take_along_axis(rank, scores.argsort(1), 1)
        assert (np.diff(ordered, axis=1) > 0).all()

    def test_graphs_break_ties_alike(self):
        rng = np.random.default_rng(0)
        X, Y = rng.normal(size=(120, 4)), rng.integers(0, 2, (120, 6))
        clf = SparseTopClassifier(size="threshold", max_epochs=1, random_state=0).fit(X, Y)
        scores, sizes = 9 * rng.normal(size=(5, 6)), rng.normal(size=(5, clf.largest_size_ + 1))
        found = to_torch(clf).sets.rank(torch.from_numpy(scores), torch.from_numpy(sizes))
        expected = label_rank(scores, sizes, "probabilities")
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("loss", ["sparse_top", "sparsemax"])
    def test_is_kept_in_files_and_parts(self, data, loss, tmp_path):
        X, Y = data
        clf = quick(loss=loss, size="threshold").fit(X, Y)
        sksetvalued.save(clf, tmp_path / "model.sksv")
        other = sksetvalued.load(tmp_path / "model.sksv")
        np.testing.assert_array_equal(other.predict(X), clf.predict(X))
        parts = [sksetvalued.calibrate_part(other, X[i::2], n_samples=len(X)) for i in range(2)]
        sksetvalued.merge_parts(other, parts)
        np.testing.assert_array_equal(other.predict(X), clf.calibrate(X).predict(X))


def test_the_threshold_may_be_calibrated_after_fitting(data, fitted):
    X, _ = data
    clf = clone_with(fitted, size="threshold")
    with pytest.raises(ValueError, match=r"call calibrate\(X\)"):
        clf.predict(X)
    assert clf.calibrate(X).predict(X).sum() / len(X) <= clf.average_size_


def test_calibration_validates_the_parameters(data, fitted):
    clf = clone_with(fitted, size="all of them")
    for calibrate in (type(clf).calibrate, sksetvalued.calibrate, sksetvalued.calibrate_part):
        with pytest.raises(ValueError, match="'size' parameter"):
            calibrate(clf, data[0])


@pytest.mark.parametrize("loss", ["sparse_top", "sparsemax"])
def test_scores_compare_between_samples(loss):
    """As scorers take them: what the network gives has a constant of its own in each sample."""
    X, Y = make_multilabel_classification(
        600, n_classes=3, n_features=40, n_labels=2, random_state=1
    )
    clf = SparseTopClassifier(loss=loss, size="threshold", random_state=0).fit(X[:300], Y[:300])
    X, Y = X[300:], Y[300:]
    scores = clf.decision_function(X)
    np.testing.assert_array_equal(clf.predict_set(X), scores >= clf.rule_.threshold_)
    raw = network_scores(clf, X)
    np.testing.assert_array_equal(scores.argsort(1), raw.argsort(1))
    found = get_scorer("roc_auc")(clf, X, Y)
    assert found > roc_auc_score(Y, raw) + 0.05
    if loss == "sparse_top":
        assert found == pytest.approx(roc_auc_score(Y, clf.predict_proba(X)), abs=2e-3)


@pytest.mark.parametrize("go_on", ["fit", "warm_start", "partial_fit"])
def test_the_threshold_of_another_network_is_forgotten(data, go_on):
    X, Y = data
    clf = quick(size="threshold", max_epochs=1).fit(X, Y)
    clf.set_params(size="predicted", warm_start=go_on == "warm_start")
    (clf.partial_fit if go_on == "partial_fit" else clf.fit)(X, Y)
    with pytest.raises(ValueError, match=r"call calibrate\(X\)"):
        clf.set_params(size="threshold").predict(X)


def test_projections_lie_in_the_simplex_and_are_sparse(data, fitted):
    X, Y = data
    for size in (None, 2, 2.5, Y.sum(1)):
        q = fitted.project(X, size)
        total = fitted.predict(X).sum(1) if size is None else size
        assert ((q >= 0) & (q <= 1)).all()
        np.testing.assert_allclose(q.sum(1), np.broadcast_to(total, len(X)), atol=1e-5)
        expected = sparse_top(
            torch.as_tensor(network_scores(fitted, X)),
            torch.as_tensor(np.broadcast_to(total, len(X)).astype(float)),
        )
        assert np.array_equal(q, expected)
    assert (fitted.project(X, 1) == 0).any(1).mean() > 0.9


# -- with scikit-learn ----------------------------------------------------------------------


def test_works_with_metrics_searches_and_pipelines(data):
    X, Y = data
    grid = {
        "sparsetopclassifier__loss": ["sparse_top", "bce"],
        "sparsetopclassifier__size": [1, 2],
    }
    for y in (Y, sp.csr_matrix(Y)):
        model = make_pipeline(StandardScaler(), quick(max_epochs=3))
        search = GridSearchCV(model, grid, scoring="f1_micro", cv=2, error_score="raise")
        search.fit(X, y)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best = search.best_estimator_
    assert sksetvalued.predict_set(best, X).shape == Y.shape
    assert len(sksetvalued.predict_labels(best, X)) == len(X)
    assert hamming_loss(Y, best.predict(X)) < 0.5
    assert 0 < label_ranking_average_precision_score(Y, best.decision_function(X)) <= 1
    assert np.isfinite(cross_val_score(quick(), X, Y, scoring="average_precision", cv=2)).all()


class TestProbabilities:
    def test_scores_of_least_expected_loss_give_the_probabilities_of_the_labels(self):
        """Whatever the distribution of the label sets of a sample."""
        sets = torch.tensor(list(itertools.product((0, 1), repeat=5)))
        for seed in range(3):
            p = torch.from_numpy(np.random.default_rng(seed).dirichlet(np.full(32, 0.3)))
            scores = torch.zeros(1, 5, dtype=torch.float64, requires_grad=True)
            optimizer = torch.optim.LBFGS(
                [scores], max_iter=500, tolerance_change=1e-15, line_search_fn="strong_wolfe"
            )

            def expected(p=p, scores=scores, optimizer=optimizer):
                optimizer.zero_grad()
                value = SparseTopLoss(reduction="sum")(scores.expand(32, -1), sets, p)
                value.backward()
                return value

            optimizer.step(expected)
            sizes = np.log(np.bincount(sets.sum(1), p))[None]
            found = label_proba(scores.detach().numpy(), sizes, "projection")
            np.testing.assert_allclose(found[0], p @ sets.double(), atol=1e-6)

    @pytest.mark.parametrize("scale", [1e-6, 0.3, 1, 30, 1e4])
    def test_they_are_projections_for_each_number_of_labels(self, scale):
        rng = np.random.default_rng(0)
        for n_classes, n_sizes in itertools.product((2, 6, 30), (1, 2, 6, 30)):
            scores = scale * rng.normal(size=(90, n_classes))
            scores[:30], scores[30:60] = scores[:30].round(), np.round(2 * scores[30:60]) / 2
            sizes = 3 * rng.normal(size=(90, min(n_sizes, n_classes) + 1))
            p = softmax(sizes, axis=1)
            each = [sparse_top(torch.from_numpy(scores), k).numpy() for k in range(p.shape[1])]
            found = label_proba(scores, sizes, "projection")
            expected = np.einsum("kij,ik->ij", each, p)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14 * max(scale, 10))
            np.testing.assert_array_equal(found[60:] == 0, (np.array(each)[:, 60:] == 0).all(0))

    def test_of_a_row_with_nan_they_are_nan(self):
        scores = np.array([[1.0, np.nan, 0.0], [2.0, 0.0, 0.0]])
        proba = label_proba(scores, np.zeros((2, 3)), "projection")
        assert np.isnan(proba).tolist() == [[True] * 3, [False] * 3]

    def test_they_lie_between_zero_and_one_and_add_to_the_expected_number(self, data, fitted):
        X, Y = data
        proba = fitted.predict_proba(X)
        assert ((proba >= 0) & (proba <= 1)).all()
        assert abs(proba.sum(1).mean() - Y.sum(1).mean()) < 0.3
        assert ((proba - Y) ** 2).mean() < 0.8 * Y.var(0).mean()

    @pytest.mark.parametrize(
        "loss",
        ["bce", BinaryCrossEntropyLoss, torch.nn.BCEWithLogitsLoss()],
        ids=["name", "class", "torch"],
    )
    def test_of_the_cross_entropy_they_are_the_sigmoid(self, data, loss):
        clf = quick(loss=loss, max_epochs=2).fit(*data)
        expected = 1 / (1 + np.exp(-clf.decision_function(data[0])))
        np.testing.assert_allclose(clf.predict_proba(data[0]), expected, rtol=1e-6)

    @pytest.mark.parametrize(
        ("loss", "params", "remedy"),
        [
            (
                "sparsemax",
                None,
                r"loss='sparsemax'.* project\(X, size=1\).* use loss='sparse_top'",
            ),
            (torch.nn.MultiLabelMarginLoss, None, "as far as is known: use loss='sparse_top'"),
            (torch.nn.BCEWithLogitsLoss(pos_weight=torch.full((6,), 3.0)), None, "pos_weight"),
            (torch.nn.BCEWithLogitsLoss, {"pos_weight": np.full(6, 3.0)}, "pos_weight"),
        ],
    )
    def test_other_losses_have_none_and_say_why(self, data, loss, params, remedy):
        clf = quick(loss=loss, loss_params=params)
        assert not hasattr(clf, "predict_proba")
        with pytest.raises(AttributeError) as error:
            clf.predict_proba(data[0])
        assert re.search(remedy, str(error.value.__cause__))

    @pytest.mark.parametrize("n_classes", [2, 3])
    def test_one_label_per_sample(self, n_classes):
        X, y = make_blobs(120, centers=n_classes, cluster_std=4.0, random_state=0)
        for loss in ("sparse_top", "bce"):
            clf = quick(loss=loss).fit(X, y)
            proba = clf.predict_proba(X)
            np.testing.assert_allclose(proba.sum(1), 1)
            np.testing.assert_array_equal(clf.classes_[proba.argmax(1)], clf.predict(X))


def test_refits_are_identical_and_the_global_state_is_left_alone(data, fitted):
    X, Y = data
    state = torch.get_rng_state()
    again = clone(fitted).fit(X, Y)
    assert torch.equal(state, torch.get_rng_state())
    assert np.array_equal(again.decision_function(X), fitted.decision_function(X))


def test_survives_pickle_and_save(data, fitted, tmp_path):
    X, Y = data
    calibrated = clone_with(fitted, size="threshold").calibrate(X)
    named = quick().fit(X, [{f"l{j}" for j in np.flatnonzero(row)} for row in Y])
    for model in (fitted, calibrated, named):
        sksetvalued.save(model, tmp_path / "model.sksv")
        for other in (
            pickle.loads(pickle.dumps(model)),
            sksetvalued.load(tmp_path / "model.sksv"),
        ):
            assert np.array_equal(other.predict(X), model.predict(X))
            assert other.classes_.tolist() == model.classes_.tolist()
            assert np.array_equal(other.project(X), model.project(X))


def test_integer_weights_repeat_rows(data):
    X, Y = data
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 3, size=60)
    X, Y = X[:60], Y[:60]
    rows = np.repeat(np.arange(60), weight)
    for loss in ("sparse_top", "bce", "sparsemax"):
        # Dropout differs between a row of weight two and two rows.
        whole = {"backbone_params": {"dropout": 0.0}, "batch_size": 200}
        clf = quick(loss=loss, max_epochs=15, **whole)
        one = clone(clf).fit(X, Y, sample_weight=weight)
        two = clone(clf).fit(X[rows], Y[rows])
        # Sums in another order, in single precision, over fifteen steps.
        np.testing.assert_allclose(one.decision_function(X), two.decision_function(X), atol=1e-4)
        assert one.class_counts_.tolist() == two.class_counts_.tolist()
        assert one.average_size_ == two.average_size_


@pytest.mark.parametrize("size", ["predicted", "threshold"])
@pytest.mark.parametrize("form", ["sets", "single"])
def test_the_length_is_found_on_held_out_samples_and_all_are_trained_on(data, form, size):
    X, Y = data
    y = Y if form == "sets" else Y.argmax(1)
    clf = quick(max_epochs="auto", lr=1e-2, patience=4, size=size).fit(X, y)
    assert 1 < clf.n_iter_ < 100
    explicit = clone(clf).set_params(max_epochs=clf.n_iter_, patience=None).fit(X, y)
    np.testing.assert_array_equal(clf.decision_function(X), explicit.decision_function(X))
    np.testing.assert_array_equal(clf.predict(X), explicit.predict(X))
    # A fit that goes on takes as many epochs again.
    clf.set_params(warm_start=True, patience=None).fit(X, y)
    assert clf.n_iter_ == 2 * explicit.n_iter_


def test_a_search_that_is_interrupted_keeps_the_best_epoch(data):
    class Interrupt(Callback):
        def on_epoch_begin(self, net, **kwargs):
            if len(net.history) == 4:
                raise KeyboardInterrupt

    clf = quick(max_epochs="auto", size="threshold", callbacks=[Interrupt()])
    with pytest.warns(ConvergenceWarning, match="interrupted in epoch 4 of 80.*best"):
        clf.fit(*data)
    # It is the network of the search, which is monitored: no other was trained after it.
    assert "valid_micro_f1" in clf.history_[0]
    assert clf.predict(data[0]).shape == data[1].shape


def test_partial_fit_learns_piece_by_piece(data):
    X, Y = data
    clf = quick(lr=2e-2, backbone_params={"dropout": 0.0})
    for _ in range(20):
        for piece in np.array_split(np.arange(len(X)), 3):
            clf.partial_fit(X[piece], Y[piece])
    assert clf.score(X, Y) > 0.5
    assert clf.largest_size_ == min(2 * Y[:80].sum(1).max(), 6)
    assert clf.average_size_ == Y.sum() / len(Y)
    sets = quick().partial_fit(X[:9], [{"a"}, {"b"}, set()] * 3, classes=["c", "b", "a"])
    assert sets.classes_.tolist() == ["c", "b", "a"]
    with pytest.raises(ValueError, match="not among the classes"):
        sets.partial_fit(X[:3], [{"a"}, {"z"}, set()])


@pytest.mark.parametrize("n_samples", [1, 10, 60])
def test_a_small_first_piece_tells_how_many_labels_samples_have(n_samples):
    """One update changes little of logits that may tell of 16 labels."""
    X, Y = make_multilabel_classification(400, 20, n_classes=30, n_labels=2, random_state=0)
    Y[:n_samples, 5:], Y[0, :2] = 0, 1
    clf = SparseTopClassifier(random_state=0).partial_fit(X[:n_samples], Y[:n_samples])
    assert clf.largest_size_ == 16
    median = np.median(Y[:n_samples].sum(1))
    assert np.abs(clf.predict(X).sum(1) - median).max() <= 1


def test_weights_of_the_first_piece_count_there():
    X, Y = np.ones((8, 5)), np.eye(8, 20, dtype=int)
    Y[0, :4] = 1
    weight = np.where(np.arange(8) == 0, 20, 1)
    clf = SparseTopClassifier(random_state=0).partial_fit(X, Y, sample_weight=weight)
    assert (clf.predict(X).sum(1) == 4).all()


def test_warm_start_goes_on(data):
    X, Y = data
    clf = quick(warm_start=True, max_epochs=3).fit(X, Y)
    before = clf.decision_function(X)
    assert clf.fit(X, Y).n_iter_ == 6
    assert not np.array_equal(clf.decision_function(X), before)


@pytest.mark.filterwarnings("error:.*of the calibration sets are empty")
@pytest.mark.parametrize("size", ["predicted", "threshold", 2])
def test_the_monitor_is_the_micro_f1_of_the_validation_part(data, size):
    X, Y = data
    # With so large a margin many sets of one threshold are empty at first.
    clf = quick(validation_fraction=0.3, size=size, patience=3, margin=8, lr=1e-2)
    clf.fit(X, Y)
    values = [row["valid_micro_f1"] for row in clf.history_]
    assert all(0 <= value <= 1 for value in values)
    assert len(set(values)) > 1


@pytest.mark.parametrize("single", [False, True])
def test_a_monitor_of_ones_own_gets_the_labels_and_their_scores(data, single):
    X, Y = data
    y = Y.argmax(1) if single else Y
    indicator = np.eye(6)[y] if single else Y
    seen = []

    def ranking(y_true, y_score):
        seen.append((y_true, y_score))
        return label_ranking_average_precision_score(y_true, y_score)

    clf = quick(validation_fraction=0.2, monitor=ranking, max_epochs=1).fit(X, y)
    [(y_true, y_score)] = seen
    scores = clf.decision_function(X)
    rows = np.abs(scores[:, None] - y_score).max(2).argmin(0)
    assert len(set(rows)) == round(0.2 * len(X))
    np.testing.assert_allclose(y_score, scores[rows], atol=1e-5)
    assert np.array_equal(y_true, indicator[rows])
    expected = label_ranking_average_precision_score(indicator[rows], scores[rows])
    assert clf.history_[-1]["ranking"] == pytest.approx(expected)


def test_datasets_bring_their_targets(data):
    X, Y = data
    dataset = torch.utils.data.TensorDataset(
        torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(Y)
    )
    clf = quick(max_epochs=2).fit(dataset)
    assert clf.predict(dataset).shape == Y.shape


@pytest.mark.parametrize(
    "kind", [set, list, torch.tensor, lambda labels: [str(label) for label in labels]]
)
def test_datasets_bring_label_sets(kind):
    class Labelled(list, torch.utils.data.Dataset):
        pass

    sets = [kind(labels) for labels in ([0], [1, 2], [2], [0, 1, 2])]
    samples = torch.randn(4, 3)
    here = {"iterator_train__num_workers": 0}
    clf = quick(max_epochs=1, net_params=here).fit(Labelled(zip(samples, sets, strict=True)))
    given = quick(max_epochs=1).fit(samples, sets)
    assert clf.classes_.tolist() == given.classes_.tolist()
    assert clf.class_counts_.tolist() == [2, 2, 3]
    pairs = Labelled((x, kind([0, 1])) for x in samples)
    pairs = quick(max_epochs=1, net_params=here).fit(pairs)
    # As in scikit-learn, numbers of one length are the rows of an indicator.
    assert pairs.average_size_ == (1 if kind in (list, torch.tensor) else 2)


# -- errors ---------------------------------------------------------------------------------

X0 = np.random.default_rng(0).normal(size=(6, 3))
Y0 = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 0, 0]])


def test_probabilities_are_those_of_the_loss_of_the_training():
    X, Y = np.random.default_rng(0).normal(size=(30, 3)), np.tile(Y0, (5, 1))
    clf = quick(max_epochs=1).fit(X, Y)
    proba = clf.predict_proba(X)
    for params in ({"loss": "bce"}, {"loss": "sparsemax"}):
        np.testing.assert_array_equal(clf.set_params(**params).predict_proba(X), proba)
    other = quick(max_epochs=1, loss="sparsemax").fit(X, Y).set_params(loss="bce")
    with pytest.raises(AttributeError) as error:
        other.predict_proba(X)
    assert "not there with loss=SparsemaxLoss" in str(error.value.__cause__)


def test_thresholds_say_nothing_of_samples_without_labels():
    X = np.random.default_rng(0).normal(size=(200, 3))
    Y = np.repeat(X[:, :1] > 0, 4, axis=1).astype(int)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*calibration sets are empty")
        clf = quick(size="threshold", max_epochs=20).fit(X, Y).calibrate(X)
    assert (clf.predict(X).sum(1) == 0).mean() > 0.4
    assert clf.average_size_ > 1.5


def test_sizes_of_all_samples_are_compared_with_those_of_the_calibration(monkeypatch):
    monkeypatch.setattr(_deep, "CHUNK_SIZE", 64 * 6)
    X, Y = make_multilabel_classification(400, 10, n_classes=6, n_labels=3, random_state=0)
    clf = SparseTopClassifier(size="threshold", max_epochs=5, random_state=0).fit(X, Y)
    sizes = clf.calibrate(X).predict_set(X).sum(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.predict_set(X[np.argsort(sizes)])
    with pytest.warns(UserWarning, match="the sets of these 300 samples"):
        clf.predict_set(X[np.argsort(sizes)][100:])


def test_label_sets_may_be_any_collections():
    X = np.random.default_rng(0).normal(size=(6, 3))
    sets = [{"a"}, deque(["b"]), {"c": 1}.keys(), ("a", "c"), pd.Index(["b"]), frozenset()]
    assert quick(max_epochs=1).fit(X, sets).class_counts_.tolist() == [2, 2, 2]


def test_lists_of_two_labels_named_0_and_1_stay_sets():
    X = np.random.default_rng(0).normal(size=(40, 3))
    clf = quick(max_epochs=1).partial_fit(X[:3], [{0}, {1}, {0, 1}], classes=[0, 1])
    clf.partial_fit(X, [[0, 1]] * 40)
    assert clf.class_counts_.tolist() == [42, 42]
    sets = [[int(label) for label in np.flatnonzero(row)] for row in clf.predict(X)]
    both = [i for i in range(40) if sets[i] == [0, 1]]
    assert both
    assert clf.score(X[both], [[0, 1]] * len(both)) == 1
    # A label twice is none of a set, as a row of zeros is one of an indicator.
    clf.partial_fit(X[:2], [[0, 0], [0, 1]])
    assert clf.class_counts_.tolist() == [42, 43]


def test_lists_without_a_label_are_sets():
    X = np.random.default_rng(0).normal(size=(6, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="no label anywhere"):
            quick(max_epochs=1).partial_fit(X, [[]] * 6, classes=["a", "b"])


def test_labels_of_samples_without_weight_are_no_classes():
    X, sets = np.random.default_rng(0).normal(size=(30, 3)), [{"a", "b"}, {"b"}, {"c"}] * 10
    clf = quick(max_epochs=1).fit(X, sets, sample_weight=np.array([1.0, 2.0, 0.0] * 10))
    assert clf.classes_.tolist() == ["a", "b"]


def test_sets_out_of_fold_have_the_columns_of_y_or_its_labels_in_order():
    X, Y = np.random.default_rng(0).normal(size=(30, 3)), np.tile(Y0, (5, 1))
    clf, cv = quick(max_epochs=1, size=1), KFold(3)
    names = np.array(["c", "a", "b"])
    sets = [set(names[row > 0]) for row in Y]
    by_columns, by_labels = np.zeros((2, *Y.shape), dtype=bool)
    for train, test in cv.split(X):
        by_columns[test] = clf.fit(X[train], Y[train]).predict_set(X[test])
        by_labels[test] = clf.fit(X[train], [sets[i] for i in train]).predict_set(X[test])
    series = pd.Series(Y.tolist())
    for y in (Y, Y.tolist(), series, sp.csr_array(Y), pd.DataFrame(Y, columns=names)):
        np.testing.assert_array_equal(cross_val_predict_set(clf, X, y, cv=cv), by_columns)
    np.testing.assert_array_equal(cross_val_predict_set(clf, X, sets, cv=3), by_labels)


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (2 * Y0, ValueError, r"zeros and ones, got other values such as \[2"),
        (Y0 - 0.5, ValueError, "zeros and ones"),
        (Y0 * np.nan, ValueError, "zeros and ones"),
        (sp.csr_matrix(3 * Y0), ValueError, "zeros and ones"),
        (0 * Y0, ValueError, "no label anywhere"),
        (sp.csr_matrix(0 * Y0), ValueError, "no label anywhere"),
        ([set()] * 6, ValueError, "no label anywhere"),
        (pd.DataFrame(Y0, dtype="Int64").replace(0, pd.NA), ValueError, "indicator y .*NAType"),
        (["a", {"b"}, {"a", "b"}] * 2, TypeError, r"y\[0\] is 'a'.* such as \{'a'\}"),
        ([{"a"}, None, {"b"}] * 2, TypeError, r"y\[1\] is None.* where it has none, set\(\)"),
        ([{"a"}, {"b": 0.5}] * 3, TypeError, r"y\[1\] is \{'b': 0.5\}"),
        (pd.Series([2 * np.eye(2)[0]] * 6), ValueError, "zeros and ones"),
        ([{"a"}] * 6, ValueError, "at least 2 classes"),
        ([{"a"}, {1}] * 3, TypeError, "of one type"),
        (Y0[:5], ValueError, "inconsistent numbers of samples"),
        ([{"a"}, {"b"}], ValueError, "inconsistent numbers of samples"),
        (None, ValueError, "requires y"),
    ],
)
def test_bad_targets_are_named(y, error, message):
    with pytest.raises(error, match=message):
        quick().fit(X0, y)


class OfPairs(AverageKLoss):
    targets = ("indicator",)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"size": 4}, ValueError, "size must be at most the number of classes, 3, got 4"),
        ({"size": -1}, ValueError, "size"),
        ({"size": 1.5}, ValueError, "size"),
        ({"size": True}, TypeError, "size must be an integer >= 0, got True"),
        ({"size": "many"}, ValueError, "size"),
        ({"loss": "hinge"}, ValueError, "loss='hinge' is unknown"),
        (
            {"loss": OfPairs, "loss_params": {"k": 2}},
            ValueError,
            "second head",
        ),
        ({"calibration_fraction": 1.0}, ValueError, "calibration_fraction"),
    ],
)
def test_bad_parameters_are_named(params, error, message):
    with pytest.raises(error, match=message):
        quick(**params).fit(X0, Y0)


@pytest.mark.parametrize("size", [4, -1, 1.5, True, "many"])
def test_bad_sizes_set_after_fitting_are_named(size):
    clf = quick(max_epochs=1).fit(X0, Y0).set_params(size=size)
    for method in (clf.predict, clf.predict_set, clf.predict_labels, clf.project):
        with pytest.raises((TypeError, ValueError), match="size"):
            method(X0)


@pytest.mark.parametrize(
    ("size", "error", "message"),
    [
        (4, ValueError, r"size must lie in \[0, 3\]"),
        (-1, ValueError, r"size must lie in \[0, 3\]"),
        ([1, 2, 3, 1, 2, 9], ValueError, r"got values in \[1, 9\]"),
        ([1, 2], ValueError, r"shape \(6,\)"),
        (np.ones((6, 1), int), ValueError, r"shape \(6,\)"),
        (1.5, TypeError, "size must hold integers"),
        ("predicted", TypeError, "size must hold integers"),
    ],
)
def test_bad_sizes_are_named(size, error, message):
    clf = quick(max_epochs=1).fit(X0, Y0)
    for method in (clf.predict, clf.predict_set, clf.predict_labels):
        with pytest.raises(error, match=message):
            method(X0, size=size)
    if not isinstance(size, float):
        with pytest.raises(error, match=message.replace("integers", "numbers")):
            clf.project(X0, size=size)


def test_what_does_not_go_on_from_a_fit_is_named():
    clf = quick(max_epochs=1, warm_start=True).fit(X0, Y0)
    with pytest.raises(ValueError, match="2 columns, but there are 3 classes"):
        clf.partial_fit(X0, Y0[:, :2])
    with pytest.raises(ValueError, match="a set of labels per sample"):
        clf.partial_fit(X0, [0, 1, 2, 0, 1, 2])
    with pytest.raises(ValueError, match=r"not among the classes: \['z'\]"):
        quick(max_epochs=1, warm_start=True).fit(X0, [{"a", "b"}] * 6).fit(X0, [{"z"}] * 6)
    fresh = quick()
    with pytest.raises(ValueError, match="classes must be passed"):
        fresh.partial_fit(X0, [{"a"}, {"b"}] * 3)
    assert not hasattr(fresh, "classes_")


# -- real data ------------------------------------------------------------------------------


def test_bird_songs_are_told_apart(shared_data):
    pack = np.load(shared_data / "multilabel" / "birds.npz")
    parts = [
        sp.csr_matrix(
            (
                np.ones(len(pack["Y_indices"])) if part == "Y" else pack["X_data"],
                pack[f"{part}_indices"],
                pack[f"{part}_indptr"],
            ),
            shape=tuple(pack[f"{part}_shape"]),
        )
        for part in "XY"
    ]
    test = pack["is_test"].astype(bool)
    scaler = MaxAbsScaler().fit(parts[0][~test])
    X, Y = scaler.transform(parts[0]), parts[1]
    clf = SparseTopClassifier(max_epochs=20, random_state=0).fit(X[~test], Y[~test])
    # The commonest label for everybody, the best answer that ignores the sounds.
    common = np.zeros(Y[test].shape, int)
    common[:, clf.class_counts_.argmax()] = 1
    floor = f1_score(Y[test], common, average="micro")
    assert f1_score(Y[test], clf.predict(X[test]), average="micro") > floor + 0.1


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float32])
def test_zeros_that_a_sparse_indicator_stores_stay_where_they_are(dtype):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(40, 3)), sp.csr_array(np.ones((40, 4), dtype))
    Y.data[:] = rng.random(160) < 0.5
    before = Y.toarray()
    clf = quick(max_epochs=1).fit(X, Y).partial_fit(X, Y)
    clf.score(X, Y)
    np.testing.assert_array_equal(Y.toarray(), before)
    assert Y.nnz == 160


def test_sizes_may_be_the_sums_of_indicators_of_any_kind():
    X, Y = make_multilabel_classification(40, 5, random_state=0)
    model = SparseTopClassifier(max_epochs=1, random_state=0).fit(X, Y)
    expected = model.predict(X, size=Y.sum(1))
    for sizes in (Y.astype(float).sum(1), sp.csr_matrix(Y).sum(1)):
        assert np.array_equal(model.predict(X, size=sizes), expected)
    with pytest.raises(TypeError, match="size must hold integers"):
        model.predict(X, size=Y.sum(1) + 0.5)


LARGE = [5, 2**63 + 1, 2**63 + 3]


@pytest.mark.parametrize("labels", [LARGE, [0.5, 2**53, 2**53 + 1], [-1, 2**63 + 1, 2**63 + 3]])
def test_whole_numbers_that_no_float_tells_apart_stay_labels(labels):
    x = np.random.default_rng(0).random((60, 4))
    sets = [{labels[i % 3], labels[(i // 3) % 3]} for i in range(60)]
    clf = SparseTopClassifier(max_epochs=1, random_state=0).fit(x, sets)
    assert clf.classes_.tolist() == sorted(labels)
    indicator = np.array([[label in some for label in sorted(labels)] for some in sets])
    clf = SparseTopClassifier(max_epochs=1).partial_fit(x, indicator, classes=sorted(labels))
    assert clf.classes_.tolist() == sorted(labels)


def test_single_labels_beyond_signed_integers_stay_labels():
    x = np.random.default_rng(0).random((60, 4))
    clf = TopKClassifier(1, max_epochs=1).fit(x, LARGE * 20)
    assert clf.classes_.tolist() == LARGE


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (pd.Series([["a", "b"], None] * 30), r"y\[1\] is None: give each sample a set"),
        ([["a", "b"], float("nan")] * 30, r"y\[1\] is nan: give each sample a set"),
        ([[["a"], "b"]] * 30 + [["b"]] * 30, "y holds label sets, .* no label: unhashable"),
    ],
)
def test_rows_that_hold_no_labels_are_named(y, said):
    with pytest.raises(TypeError, match=said):
        SparseTopClassifier(max_epochs=1).fit(np.zeros((60, 4)), y)


@pytest.mark.parametrize(
    "y",
    [[["a", "b"]] * 30 + [["b"]] * 30, [{"a", "b"}] * 60, sp.csr_array(np.ones((60, 3), int))],
)
def test_label_sets_for_a_classifier_of_single_labels_are_told_where_to_go(y):
    with pytest.raises(
        ValueError, match=r"^y must hold one label per sample.*SparseTopClassifier"
    ):
        TopKClassifier(1).fit(np.zeros((60, 4)), y)


@pytest.mark.filterwarnings("error")
def test_labels_that_all_samples_have_need_no_smaller_k():
    x, y = np.random.default_rng(0).random((60, 4)), np.ones((60, 3), int)
    clf = SparseTopClassifier(size="threshold", max_epochs=1, random_state=0).fit(x, y)
    assert clf.predict(x).all()


def test_small_integers_of_numpy_are_integers():
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 4)), (rng.random((60, 300)) < 0.01).astype(int)
    y[:, 0] = 1
    clf = SparseTopClassifier(size=np.uint8(2), max_epochs=1, random_state=0).fit(x, y)
    assert (clf.predict(x).sum(1) == 2).all()
    p, labels = rng.dirichlet(np.ones(5000), 100), rng.integers(0, 5000, 100)
    for own, plain in ((np.uint8(200), 200), (np.int16(10), 10)):
        given = {"labels": np.arange(5000)}
        expected = top_k_accuracy_score(labels, p, k=plain, **given)
        assert top_k_accuracy_score(labels, p, k=own, **given) == expected
        sets = [AverageK(5, max_size=k).fit(p).predict_set(p) for k in (own, plain)]
        np.testing.assert_array_equal(*sets)
    assert ROLELoss(2, n_samples=np.uint8(200), n_classes=np.int8(5)).estimates.shape == (200, 5)


def test_a_search_goes_by_the_scores_where_the_sets_tell_nothing(data):
    """As of rare labels, whose sets are empty: then no F1 tells one epoch from another."""
    X, Y = data
    clf = quick(loss="bce").fit(X, Y)
    metric, noise = clf._search_metric()[1], np.random.default_rng(0).standard_normal(Y.shape)
    sizes = np.eye(clf.largest_size_ + 1)

    def value(signal, labels):
        return metric(Y, np.hstack([signal * Y + noise, 9 * sizes[labels]]), None)

    few, none = value(0.5, 0 * Y.sum(1)), value(0, 0 * Y.sum(1))
    assert 0 < none < few < value(9, 0 * Y.sum(1)) == pytest.approx(clf._chance)
    assert value(9, Y.sum(1)) == 1


def test_a_search_goes_by_the_sets_where_most_samples_have_all_labels():
    """However few epochs it takes until scores rank labels as well as they can."""
    X = np.random.RandomState(0).normal(size=(250, 6))
    clf = SparseTopClassifier(random_state=0).fit(X, np.ones((250, 10), int))
    assert clf.predict(X).all()


@pytest.mark.parametrize("weights", [None, [1, 2, 3, 4]])
def test_chance_is_the_f1_of_the_best_set_for_all(weights):
    Y = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 0], [1, 0, 1]])
    clf = SparseTopClassifier(max_epochs=1).fit(np.eye(4), Y, sample_weight=weights)
    best = max(
        f1_score(Y, np.tile(row, (4, 1)), average="micro", sample_weight=weights, zero_division=0)
        for row in itertools.product([0, 1], repeat=3)
    )
    assert clf._chance == pytest.approx(best)


def test_pieces_of_more_labels_than_are_predicted_are_told(data):
    X = data[0]
    Y = np.zeros((len(X), 40), int)
    Y[np.arange(len(X)), np.arange(len(X)) % 40] = 1
    clf = quick().partial_fit(X, Y)
    assert clf.largest_size_ == 16
    with pytest.warns(UserWarning, match="has 20 labels, but at most 16 are predicted"):
        clf.partial_fit(X[:2], np.repeat([[1, 0]], 20, axis=1) * np.ones((2, 1), int))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.set_params(size=3).partial_fit(X[:2], np.repeat([[1, 0], [0, 1]], 20, axis=1))


def test_a_score_of_other_labels_is_warned_of(data):
    X, Y = data
    clf = quick().fit(X, Y)
    with pytest.warns(UserWarning, match="no label that was trained on"):
        clf.score(X[:2], [{"a"}, set()])
    assert clf.score(X[:2], [{clf.classes_[0], 99}, {99}]) == 0


class TestLists:
    """Lists of numbers are rows of an indicator or label sets, whichever they are as a whole."""

    X = np.random.default_rng(0).normal(size=(120, 3)).astype(np.float32)

    def test_folds_read_them_as_the_whole(self):
        lists = [[2], [0]] * 30 + [[0, 1], [1, 0]] * 30
        as_lists, as_sets = (
            cross_val_predict_set(quick(), self.X, y, cv=2) for y in (lists, list(map(set, lists)))
        )
        np.testing.assert_array_equal(as_lists, as_sets)

    def test_a_model_of_label_sets_reads_them_as_such(self):
        clf = quick().fit(self.X, [[0], [1], [0, 1, 2]] * 40)
        lists = [[0, 1], [1, 0]] * 60
        assert clf.score(self.X, lists) == clf.score(self.X, list(map(set, lists)))
        assert clf.score(self.X, [[1]] * 120) == clf.score(self.X, [1] * 120)
        clf.partial_fit(self.X, [[0, 1], [1, 2]] * 60)
        np.testing.assert_array_equal(clf.class_counts_, [140, 200, 100])
        rows = [[0, 1, 0]] * 120
        assert clf.score(self.X, rows) == clf.score(self.X, np.array(rows))


def test_scores_of_targets_in_another_form_are_refused(data):
    X, Y = data
    clf = quick(max_epochs=1).fit(X, Y)
    with pytest.raises(ValueError, match="fitted on a set of labels per sample; give"):
        clf.score(X, Y[:, 0])
    clf.fit(X, Y[:, 0])
    for y in (Y, [{0}] * len(Y)):
        with pytest.raises(ValueError, match="fitted on one label per sample; give"):
            clf.score(X, y)
    with pytest.raises(ValueError, match="requires y to be passed"):
        clf.score(X, None)


def test_larger_sets_than_those_of_the_first_fit_are_warned_of(data):
    X = data[0][:60]
    clf = quick(max_epochs=1, warm_start=True).fit(X, [{0}, {1}] * 30)
    with pytest.warns(UserWarning, match="has 2 labels, but at most 1 are predicted.*fit anew"):
        clf.fit(X, [{0, 1}] * 60)


def test_two_classes_of_bce_share_the_log_odds():
    X, y = make_blobs(120, centers=2, n_features=4, cluster_std=4, random_state=0)
    clf = SparseTopClassifier(loss="bce", max_epochs=20, random_state=0).fit(X, y)
    odds = np.exp(clf.decision_function(X) / 2)
    np.testing.assert_allclose(clf.predict_proba(X)[:, 1], odds / (1 + odds), rtol=1e-5)


@pytest.mark.parametrize("loss", ["sparse_top", "bce"])
def test_a_training_that_taught_nothing_is_told(data, loss):
    X, Y = data
    with pytest.warns(ConvergenceWarning, match="learnt next to nothing: of training samples, "):
        quick(loss=loss, lr=1e-30).fit(X, Y)
    every = np.tile([1, 1, 0, 0], (len(X), 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        quick(loss=loss, max_epochs="auto").fit(X, Y)
        quick(loss=loss, max_epochs=40, lr=1e-2).fit(X, every)  # nothing is left to learn


def test_the_first_piece_bounds_the_sizes_by_twice_its_largest():
    X, Y = np.random.default_rng(0).normal(size=(20, 3)), np.eye(20, 40, dtype=int)
    Y[0, :12] = 1
    assert quick().partial_fit(X, Y).largest_size_ == 24


def test_weights_count_in_the_threshold_of_held_out_samples(data):
    X, Y = data
    weight = np.where(Y.sum(1) > 2, 9.0, 1.0)
    clf = quick(size="threshold", calibration_fraction=0.5).fit(X, Y, sample_weight=weight)
    _, held, _ = clf._split(sp.csr_array(Y), None)
    threshold = clf.rule_.threshold_
    assert threshold == clf.calibrate(X[held], sample_weight=weight[held]).rule_.threshold_
    assert threshold != clf.calibrate(X[held]).rule_.threshold_


def test_a_sample_is_left_to_train_on(data):
    X, Y = data
    clf = quick(size="threshold", calibration_fraction=0.9).fit(X[:4], Y[:4])
    assert clf.predict(X).shape == Y.shape


def test_classes_that_come_with_single_labels_are_sorted():
    given = np.array(["elm", "ash", "oak"])
    indicator, classes, form = encode_label_sets(np.array(["oak", "ash"]), given=given)
    assert (classes.tolist(), form) == (["ash", "elm", "oak"], "single")
    assert indicator.toarray().tolist() == [[0, 0, 1], [1, 0, 0]]

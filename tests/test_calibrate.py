"""calibrate and cross_val_predict_set: through pipelines, searches, PlugIn and batches."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from joblib import parallel_config
from sklearn.base import clone
from sklearn.datasets import load_digits, make_multilabel_classification
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, ShuffleSplit, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, Dataset, TensorDataset

from sksetvalued import (
    AverageKClassifier,
    PlugInClassifier,
    SparseTopClassifier,
    TopKClassifier,
    calibrate,
    calibrate_part,
    cross_val_predict_set,
    merge_parts,
    predict_labels,
    predict_set,
)
from sksetvalued.rules import AverageError, AverageK, TopK


@pytest.fixture(scope="module")
def data():
    X, y = load_digits(return_X_y=True)
    X = X + np.random.default_rng(0).normal(0, 6, X.shape)
    return X[:700], np.array(list("abcdefghij"))[y[:700]], X[700:], y[700:]


def models():
    deep = AverageKClassifier(2, max_epochs=2, loss="cross_entropy", random_state=0)
    plug_in = PlugInClassifier(GaussianNB(), AverageK(2), cv=2)
    grid = {"plugin__rule__k": [2]}
    named = make_pipeline(StandardScaler(), plug_in)
    named.steps[1] = ("plugin", plug_in)
    return {
        "deep": deep,
        "deep in a pipeline": make_pipeline(StandardScaler(), deep),
        "plug-in": plug_in,
        "search": GridSearchCV(named, grid, cv=2, scoring=lambda est, X, y: 0.0),
    }


class Calibrates(Dataset):
    """Samples that set another threshold while they are read, as another thread may."""

    model = None

    def __init__(self, X):
        self.X = torch.from_numpy(X).float()

    def __len__(self):
        return len(self.X)

    def __getitem__(self, position):
        if self.model is not None and position == len(self) // 2:
            self.model.rule_ = self.other
        return self.X[position]


@pytest.mark.filterwarnings("error:the sets of these")
@pytest.mark.parametrize("several", [False, True])
def test_the_sets_of_one_call_are_by_one_threshold(several):
    X, Y = make_multilabel_classification(120, 5, n_classes=4, random_state=0)
    params = {"max_epochs": 2, "batch_size": 16, "random_state": 0}
    params["net_params"] = {"iterator_valid__num_workers": 0}
    one = SparseTopClassifier(size="threshold", **params) if several else AverageKClassifier(2)
    samples = Calibrates(X)
    model = one.set_params(**params).fit(samples, Y if several else Y.argmax(1))
    expected = model.calibrate(samples).predict_set(samples)
    samples.other = clone(model.rule_).set_params(k=1).fit(model._set_scores(samples))
    samples.model = model
    np.testing.assert_array_equal(model.predict_set(samples), expected)
    assert model.rule_ is samples.other
    assert not np.array_equal(model.predict_set(samples), expected)


@pytest.mark.parametrize("name", models())
def test_calibration_reaches_the_classifier_inside_and_takes_batches(name, data):
    X, y, X_new, _ = data
    model = models()[name].fit(X, y)
    assert calibrate(model, X_new) is model
    whole = predict_set(model, X_new)
    assert whole.sum() == 2 * len(X_new)
    calibrate(model, X_new[:50])
    weight = whole.sum(1).astype(float)  # so that the average changes
    for n_samples in (None, len(X_new)):
        batches = iter(np.array_split(X_new, 7))
        assert calibrate(model, batches, n_samples=n_samples) is model
        np.testing.assert_array_equal(predict_set(model, X_new), whole)
    calibrate(model, X_new, sample_weight=weight)
    weighted = predict_set(model, X_new)
    assert (weighted != whole).any()
    calibrate(model, iter(np.array_split(X_new, 7)), sample_weight=weight)
    np.testing.assert_array_equal(predict_set(model, X_new), weighted)


def test_labels_reach_the_rule_whole_and_in_batches(data):
    X, y, X_new, y_new = data
    y_new = np.array(list("abcdefghij"))[y_new]
    model = make_pipeline(StandardScaler(), PlugInClassifier(GaussianNB(), AverageError(0.1)))
    model.fit(X, y)
    whole = predict_set(calibrate(model, X_new, y_new), X_new)
    calibrate(model, X_new[:99], y_new[:99])
    calibrate(model, iter(np.array_split(X_new, 5)), y_new, n_samples=len(X_new))
    np.testing.assert_array_equal(predict_set(model, X_new), whole)


def test_what_cannot_be_calibrated_is_said(data):
    X, y, X_new, _ = data
    top = TopKClassifier(2, max_epochs=1).fit(X, y)
    with pytest.raises(TypeError, match="TopKClassifier has nothing to calibrate"):
        calibrate(top, X_new)
    with pytest.raises(TypeError, match="GaussianNB has nothing"):
        calibrate(GaussianNB().fit(X, y), X_new)
    with pytest.raises(NotFittedError):
        calibrate(PlugInClassifier(GaussianNB(), AverageK(2)), X_new)
    model = PlugInClassifier(GaussianNB(), AverageK(2)).fit(X, y)
    rule = model.rule_
    cases = [
        ((iter([]),), {}, "no batches"),
        ((X_new,), {"n_samples": 9}, "for an iterator"),
        ((iter([X_new]),), {"n_samples": 2000}, "yielded 1097 samples, but n_samples is"),
        ((iter([X_new]), np.resize(y, 2000)), {}, "yielded 1097 samples, but y is for 2000"),
        ((iter([X_new]), y[:9]), {}, "yielded 1097 samples or more, but y is for 9"),
        (
            (iter(np.array_split(X_new, 3)),),
            {"sample_weight": np.ones(400)},
            "yielded 732 samples or more, but sample_weight is for 400",
        ),
    ]
    for args, params, match in cases:
        with pytest.raises(ValueError, match=match):
            calibrate(model, *args, **params)
        assert model.rule_ is rule
    for call in (calibrate, lambda *args: list(predict_set(*args))):
        for pair in (tuple, list):
            with pytest.raises(TypeError, match="X yielded pairs.* for X, _ in"):
                call(model, iter([pair([X_new, y[: len(X_new)]])]))
    for rows in ((X_new[0], X_new[1]), [X_new[0], X_new[1]]):
        assert len(next(predict_set(model, iter([rows])))) == 2
    with pytest.raises(TypeError, match="got one AverageK: put it into a list"):
        merge_parts(model, calibrate_part(model, X_new))


@pytest.mark.parametrize("shape", [(64,), (1, 8, 8)])
def test_batches_of_data_loaders_are_their_samples(data, shape):
    X, y, X_new, _ = data
    X, X_new = (torch.tensor(rows, dtype=torch.float32).view(-1, *shape) for rows in (X, X_new))
    model = AverageKClassifier(2, max_epochs=1, random_state=0).fit(X, y)
    expected = calibrate(model, X_new).predict_set(X_new)
    batches = DataLoader(TensorDataset(X_new), batch_size=500)
    calibrate(model, X_new[:50])
    sets = predict_set(calibrate(model, iter(batches)), iter(batches))
    np.testing.assert_array_equal(np.concatenate(list(sets)), expected)
    labels = [row for part in predict_labels(model, iter(batches)) for row in part]
    assert len(labels) == len(X_new)
    (one,) = predict_set(model, iter([[X_new[0]]]))  # a list of one sample
    np.testing.assert_array_equal(one, expected[:1])


@pytest.mark.parametrize("form", ["csr", "dok"])
def test_batches_may_be_sparse(data, form):
    X, y, X_new, _ = data
    model = AverageKClassifier(2, max_epochs=1, random_state=0).fit(sp.csr_matrix(X), y)
    expected = calibrate(model, sp.csr_matrix(X_new)).predict_set(X_new)
    batches = [sp.csr_matrix(part).asformat(form) for part in np.array_split(X_new, 5)]
    calibrate(model, X_new[:50])
    sets = calibrate(model, iter(batches), n_samples=len(X_new)).predict_set(X_new)
    np.testing.assert_array_equal(sets, expected)


def test_sets_out_of_fold_are_those_of_each_fold(data):
    X, y, _, _ = data
    model = make_pipeline(StandardScaler(), PlugInClassifier(GaussianNB(), TopK(2), cv=2))
    cv = StratifiedKFold(3, shuffle=True, random_state=0)
    sets = cross_val_predict_set(model, X, y, cv=cv)
    assert not hasattr(model[-1], "rule_")
    for train, test in cv.split(X, y):
        expected = predict_set(model.fit(X[train], y[train]), X[test])
        np.testing.assert_array_equal(sets[test], expected)
    with parallel_config("multiprocessing"):
        np.testing.assert_array_equal(cross_val_predict_set(model, X, y, cv=cv, n_jobs=2), sets)


def test_a_class_that_a_fold_lacks_is_in_none_of_its_sets(data):
    X, y, _, _ = data
    rare = y == "j"
    folds = [(np.flatnonzero(~rare), np.flatnonzero(rare))]
    folds.append((np.arange(len(y)), np.flatnonzero(~rare)))
    sets = cross_val_predict_set(PlugInClassifier(GaussianNB(), TopK(3), cv=2), X, y, cv=folds)
    assert not sets[rare, 9].any()
    assert sets[~rare, 9].any()
    assert (sets.sum(1) == 3).all()
    with pytest.raises(ValueError, match="each sample exactly once"):
        cross_val_predict_set(PlugInClassifier(GaussianNB(), TopK(3)), X, y, cv=ShuffleSplit(3))


@pytest.mark.parametrize("rule", [None, AverageK(2), AverageError(0.2)])
def test_samples_of_weight_zero_may_fill_a_batch(data, rule):
    X, y, X_new, y_new = data
    # A GPU rounds the scores of a sample by how many others are in its batch.
    model = AverageKClassifier(2, max_epochs=1, random_state=0, device="cpu")
    model = (model if rule is None else PlugInClassifier(GaussianNB(), rule, cv=0.5)).fit(X, y)
    rows = np.array_split(np.arange(300), 3)
    y_new = None if rule is None or not rule.requires_y else np.array(list("abcdefghij"))[y_new]
    labels = None if y_new is None else y_new[:300]
    weight = np.arange(300.0) % 3
    weight[:100] = 0
    expected = calibrate(model, X_new[:300], labels, sample_weight=weight).rule_.threshold_
    for n_samples in (300, None):
        batches = iter([X_new[part] for part in rows])
        calibrate(model, batches, labels, sample_weight=weight, n_samples=n_samples)
        assert model.rule_.threshold_ == expected
        parts = [
            calibrate_part(model, X_new[i], None if labels is None else labels[i], weight[i], n)
            for i, n in zip(rows, [n_samples] * 3)
        ]
        assert merge_parts(model, parts).rule_.threshold_ == expected
        whole = calibrate_part(model, X_new[:300], labels, weight, n_samples)
        assert merge_parts(model, [whole]).rule_.threshold_ == expected
    batches = iter([X_new[part] for part in rows])
    with pytest.raises(ValueError, match="sample_weight is zero for every sample"):
        calibrate(model, batches, labels, sample_weight=0 * weight)


@pytest.mark.parametrize("n_samples", ["300", True, -1, 2.5])
def test_a_number_of_samples_that_is_none_is_named(data, n_samples):
    X, y, X_new, _ = data
    model = PlugInClassifier(GaussianNB(), AverageK(2)).fit(X, y)
    with pytest.raises((TypeError, ValueError), match=f"^n_samples must be .*{n_samples}"):
        calibrate(model, iter([X_new]), n_samples=n_samples)


def test_a_part_that_is_missing_is_told(data):
    X, y, X_new, _ = data
    model = PlugInClassifier(GaussianNB(), AverageK(2), cv=2).fit(X, y)
    before = model.rule_
    parts = [calibrate_part(model, X_new[i : i + 50], n_samples=150) for i in (0, 50)]
    with pytest.raises(ValueError, match="parts hold 100 samples, where n_samples=150.*missing"):
        merge_parts(model, parts)
    assert model.rule_ is before
    last = calibrate_part(model, X_new[100:150], n_samples=150)
    foreign = AverageK(3).partial_fit(last.rank_scores(np.full((2, 10), 0.1)))
    with pytest.raises(ValueError, match="differ in k"):
        merge_parts(model, [parts[0], last, foreign])
    merged = merge_parts(model, [parts[0], last]).rule_.threshold_
    assert merged == calibrate(model, X_new[:150]).rule_.threshold_


def test_parts_of_an_iterator_are_used_up_one_at_a_time(data):
    X, y, X_new, _ = data
    model = PlugInClassifier(GaussianNB(), AverageK(2), cv=2).fit(X, y)
    is_used_up = []

    def parts():
        for i in range(3):
            part = calibrate_part(model, X_new[i::3], n_samples=len(X_new))
            yield part
            is_used_up.append(not hasattr(part, "n_classes_"))

    merged = merge_parts(model, parts()).rule_.threshold_
    assert is_used_up == [False, True, True]
    assert merged == calibrate(model, X_new).rule_.threshold_


def test_labels_of_several_kinds_are_refused_in_batches_too(data):
    X, y, more, _ = data
    model = PlugInClassifier(GaussianNB(), AverageError(0.1), cv=0.5).fit(X, y)
    mixed = [*range(9), "a"]
    calls = (
        lambda: calibrate(model, iter([more[:10]]), mixed),
        lambda: calibrate_part(model, more[:10], mixed),
    )
    for call in calls:
        with pytest.raises(ValueError, match="y holds numbers and strings"):
            call()


def test_parameters_of_fit_are_a_dict(data):
    with pytest.raises(TypeError, match="params must be a dict"):
        cross_val_predict_set(PlugInClassifier(GaussianNB(), TopK(1)), *data[:2], params=[1])


def test_labels_that_are_not_needed_may_be_of_any_form(data):
    X = data[0][:120]
    Y = np.arange(360).reshape(120, 3) % 5 < 2
    sparse_top = SparseTopClassifier(size="threshold", max_epochs=1, random_state=0).fit(X, Y)
    thresholds = [
        calibrate(sparse_top, given, labels).rule_.threshold_
        for given, labels in ((X, Y), (iter([X[:50], X[50:]]), Y))
    ]
    assert thresholds[0] == thresholds[1]
    assert (
        merge_parts(sparse_top, [calibrate_part(sparse_top, X, Y)]).rule_.threshold_
        == thresholds[0]
    )

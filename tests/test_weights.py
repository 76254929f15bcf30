"""Weights of samples and classes reach all that is computed from samples."""

import numpy as np
import pytest
import torch
from torch import nn

from sksetvalued import AverageKClassifier, TopKClassifier
from sksetvalued.deploy import to_torch
from sksetvalued.inputs._tables import ArrayInputs
from sksetvalued.metrics import set_coverage_score
from sksetvalued.rules import AverageError, AverageK
from sksetvalued.training import make_criterion, split_per_class

rng = np.random.default_rng(0)
y = np.arange(120) % 3
X = rng.normal(size=(120, 4)) + 1.5 * (y[:, None] == np.arange(4))
WEIGHT = np.where(np.arange(120) % 2, 3.0, 1.0)
QUICK = {"max_epochs": 3, "random_state": 0}


def test_class_weights_multiply_those_of_samples():
    of_classes = TopKClassifier(1, class_weight={0: 2.0, 1: 1.0, 2: 1.0}, **QUICK)
    of_classes.fit(X, y, sample_weight=WEIGHT)
    of_samples = TopKClassifier(1, **QUICK).fit(X, y, sample_weight=WEIGHT * np.where(y, 1, 2))
    np.testing.assert_allclose(
        of_classes.decision_function(X), of_samples.decision_function(X), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    "params", [{"calibration_folds": 3}, {"calibration_fraction": 0.3}], ids=["folds", "a share"]
)
def test_thresholds_know_the_weights_of_their_samples(params, monkeypatch):
    fed, feed = [], AverageKClassifier._feed

    def watch(self, rule, chunks, sample_weight, *args):
        chunks = list(chunks)
        fed.append((sum(map(len, chunks)), sample_weight))
        return feed(self, rule, chunks, sample_weight, *args)

    monkeypatch.setattr(AverageKClassifier, "_feed", watch)
    AverageKClassifier(1.5, **params, **QUICK).fit(X, y, sample_weight=WEIGHT)
    assert all(len(weight) == n for n, weight in fed)
    found = np.sort(np.concatenate([weight for _, weight in fed]))
    if "calibration_folds" in params:
        np.testing.assert_array_equal(found, np.sort(WEIGHT))
    assert set(found) == {1.0, 3.0}


def test_sizes_of_own_samples_are_weighted():
    clf = AverageKClassifier(1.5, calibration_folds=3, **QUICK).fit(X, y)
    sizes = clf.rule_._sizes_of(clf._predict_log_proba(X))
    weight = np.where(sizes > 1, 5.0, 1.0)
    found = clf._size_of_seen(clf.rule_, clf._check_inputs(X), weight, np.arange(len(X)))
    assert found == pytest.approx(np.average(sizes, weights=weight))
    assert found != sizes.mean()


def test_graphs_take_class_weights_back_after_smoothing():
    params = {
        "cross_entropy": 1.0,
        "label_smoothing": 0.2,
        "class_weight": {0: 4.0, 1: 1.0, 2: 1.0},
    }
    clf = TopKClassifier(1, **params, **QUICK).fit(X, y)
    scores = to_torch(clf)(torch.from_numpy(X))[1]
    np.testing.assert_allclose(scores, clf._predict_log_proba(X), atol=1e-4)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_weights_of_criteria_of_indicators_are_copies(reduction):
    loss = make_criterion(nn.BCEWithLogitsLoss(reduction=reduction), None, {}, "indicator")
    scores, target = torch.randn(5, 4), torch.eye(5, 4)
    weighted = loss(scores, target, torch.full((5,), 2.0))
    copies = loss(scores.repeat(2, 1), target.repeat(2, 1))
    torch.testing.assert_close(weighted, copies)


def test_the_scale_of_mostly_constant_columns_is_weighted():
    x, weight = np.zeros((40, 1)), np.ones(40)
    x[:4, 0], weight[3] = (1, 2, 3, 50), 4
    copies = x[np.repeat(np.arange(40), weight.astype(int))]
    weighted = ArrayInputs(torch.tensor(x)).statistics(torch.tensor(weight))
    repeated = ArrayInputs(torch.tensor(copies)).statistics()
    for name in ("centre", "scale", "mean", "std"):
        torch.testing.assert_close(getattr(weighted, name), getattr(repeated, name))


def test_weights_below_one_are_refused_where_sizes_are_promised():
    scores = rng.dirichlet(np.ones(3), 30)
    with pytest.raises(ValueError, match="sample_weight cannot"):
        AverageK(1, finite_sample=True).fit(scores, sample_weight=np.linspace(0.1, 1, 30))


def test_classes_in_every_set_are_told_whatever_samples_of_weight_zero_score():
    scores = np.concatenate([np.full((40, 2), 0.5), [[0.1, 0.9]]])
    weight = np.append(np.ones(40), 0)
    with pytest.warns(UserWarning, match="in every set"):
        AverageError(0.1).fit(scores, np.zeros(41, dtype=int), sample_weight=weight)


def test_small_weights_silence_no_warning():
    tied = np.full((300, 6), 1 / 6)
    for weight in (None, np.full(300, 1 / 300)):
        with pytest.warns(UserWarning, match="many scores are equal"):
            AverageK(2).fit(tied, sample_weight=weight)


def test_weights_count_in_what_is_monitored():
    clf = TopKClassifier(1, validation_fraction=0.5, **QUICK).fit(X, y, sample_weight=WEIGHT)
    _, held = split_per_class(y, 0.5, np.random.RandomState(clf._seed))
    sets = clf.predict_set(X[held])
    expected = set_coverage_score(y[held], sets, sample_weight=WEIGHT[held])
    assert max(clf.history_[:, "valid_top_k_accuracy"]) == pytest.approx(expected)
    assert expected != pytest.approx(set_coverage_score(y[held], sets))

"""Several views of a sample at prediction: how their scores are combined."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from sklearn.metrics import log_loss

from sksetvalued import AverageKClassifier, SparseTopClassifier, TopKClassifier
from sksetvalued.training import split_per_class

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (40, 6, 6, 3), dtype=np.uint8)
Y = np.arange(40) % 4

#: Networks on images run in single precision, whose rounding depends on the batch.
SINGLE = 1e-5


def upper(x):
    return x[:, :4]


def lower(x):
    return x[:, 2:]


def both(x):
    return [upper(x), lower(x)]


def fitted(cls=TopKClassifier, eval=both, rows=slice(None), **params):
    params = {"k": 2, "max_epochs": 3, "lr": 1e-2, "random_state": 0} | params
    # The same process: the functions above need not be sent anywhere.
    here = {f"iterator_{part}__num_workers": 0 for part in ("train", "valid")}
    transform = {"train": upper, "eval": eval}
    return cls(transform=transform, net_params=here, **params).fit(X[rows], Y[rows])


def scores_of(clf, view):
    clf.set_params(transform={"train": upper, "eval": view})
    return clf._scores(X).astype(np.float64)


def brute_force_marginals(scores, k):
    """Share of the weight of the sets of k classes that hold each class, by enumeration."""
    sets = list(combinations(range(len(scores)), k))
    weights = softmax([scores[list(members)].sum() for members in sets])
    return np.array([sum(w for w, s in zip(weights, sets) if c in s) for c in range(len(scores))])


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("loss", ["noised_hinge", "cross_entropy"])
def test_top_k_averages_the_marginals_of_sets(k, loss):
    clf = fitted(k=k, loss=loss)
    combined = clf._set_scores(X)
    views = [scores_of(clf, view) for view in (upper, lower)]
    for row in range(len(X)):
        mean = np.mean([brute_force_marginals(view[row], k) for view in views], axis=0)
        np.testing.assert_allclose(
            log_softmax(combined[row]), log_softmax(np.log(mean)), rtol=SINGLE, atol=SINGLE
        )


def test_the_marginals_decide_the_set_on_a_case_by_hand():
    """Odds (1, 2, 3) and (3, 1, 1), k = 2.

    The sets 01, 02, 12 weigh 2, 3, 6 of 11 and 3, 3, 1 of 7; so the classes have marginals
    (5, 8, 9) / 11 and (6, 4, 4) / 7, on average (101, 100, 107) / 154: the set is {0, 2}, while
    the mean probability (1/6 + 3/5, 1/3 + 1/5, 1/2 + 1/5) / 2 ranks class 0 first.
    """
    odds = torch.tensor([[[1.0, 2.0, 3.0], [3.0, 1.0, 1.0]]])
    combined = TopKClassifier(k=2)._log_marginals_of_views(odds.log().double())[0]
    expected = torch.tensor([101.0, 100.0, 107.0], dtype=torch.float64) / 154
    torch.testing.assert_close(combined.exp(), expected)
    assert combined.argsort(descending=True).tolist() == [2, 0, 1]
    mean = AverageKClassifier(k=2)._log_mean_of_views(odds.log().double())[0]
    probabilities = torch.tensor([1 / 6 + 3 / 5, 1 / 3 + 1 / 5, 1 / 2 + 1 / 5]) / 2
    torch.testing.assert_close(mean.exp(), probabilities.double())


@pytest.mark.parametrize("k", [3, 4, 5])
def test_sure_marginals_leave_the_order_to_the_probabilities(k):
    """Marginals that are one to rounding, or one by definition, say nothing of the order."""
    views = torch.tensor([[[60.0, 80.0, 100.0, 1.0, 0.0], [61.0, 79.0, 101.0, 1.0, 0.0]]])
    combined = TopKClassifier(k=k)._log_marginals_of_views(views.double())[0]
    assert combined.argsort(descending=True)[:3].tolist() == [2, 1, 0]


def test_views_are_combined_under_the_prior_of_the_training_data():
    """A balanced network, its views shifted to the prior, says what an unbalanced one says."""
    clf = TopKClassifier(k=2, max_epochs=1, random_state=0).fit(
        X, np.repeat(range(4), [4, 8, 12, 16])
    )
    shift = torch.from_numpy(np.log(clf._prior))
    scores = torch.randn(7, 3, len(clf.classes_), dtype=torch.float64)
    expected = clf._combine_views(scores)
    clf._prior_exponent = 0.0
    torch.testing.assert_close(clf._combine_views(scores - shift) + shift, expected)


def test_average_k_averages_probabilities():
    clf = fitted(AverageKClassifier, k=1.5, loss="cross_entropy")
    combined = scores_of(clf, both)
    views = [softmax(scores_of(clf, view), axis=1) for view in (upper, lower)]
    np.testing.assert_allclose(softmax(combined, axis=1), np.mean(views, axis=0), atol=SINGLE)


def test_thresholds_are_calibrated_on_the_views():
    clf = fitted(AverageKClassifier, k=1.5)
    assert clf.calibrate(X).predict_set(X).sum(axis=1).mean() == pytest.approx(1.5, abs=0.03)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"cls": AverageKClassifier},
        {"loss": "logit_adjusted"},
        {"loss": "cross_entropy", "class_weight": {2: 5.0}},
        {"loss": "cross_entropy", "label_smoothing": 0.3, "objective": "macro"},
        {"objective": "macro", "class_weight": "balanced"},
    ],
)
def test_one_view_repeated_changes_nothing(params):
    rows = np.r_[0:40, 0:40:4, 0:40:4]  # more of the first class
    clf = fitted(rows=rows, **params)
    for repeated in (lambda x: [upper(x)] * 3, lambda x: upper(x)[None]):
        clf.set_params(transform={"train": upper, "eval": upper})
        once, labels, sets = clf.predict_proba(X), clf.predict(X), clf.predict_set(X)
        clf.set_params(transform={"train": upper, "eval": repeated})
        np.testing.assert_allclose(clf.predict_proba(X), once, atol=SINGLE)
        np.testing.assert_array_equal(clf.predict(X), labels)
        np.testing.assert_array_equal(clf.predict_set(X), sets)


@pytest.mark.parametrize("monitor", ["auto", "valid_loss"])
def test_the_validation_metric_is_that_of_the_views(monitor):
    """What the history says of the best epoch is what the kept network does."""
    clf = fitted(validation_fraction=0.5, monitor=monitor)
    losses = clf.history_[:, "valid_loss"]
    assert np.isfinite(losses).all()
    if monitor == "auto":
        from sksetvalued.training import split_per_class

        best = max(clf.history_[:, "valid_top_k_accuracy"])
        _, held = split_per_class(Y, 0.5, np.random.RandomState(clf._seed))
        sets = clf.predict_set(X[held])
        assert sets[np.arange(len(held)), Y[held]].mean() == pytest.approx(best)


def test_a_transform_of_another_shape_in_training_is_named_where_the_network_cannot_take_it():
    with pytest.raises(ValueError, match=r"\(3, 6, 6\), as transform.*\(3, 4, 6\) in training"):
        fitted(eval=None, backbone="mlp")
    assert fitted(eval=None, backbone="convnet").input_shape_ == (3, 6, 6)


def test_the_order_of_the_views_does_not_matter():
    clf = fitted()
    reverse = scores_of(clf, lambda x: both(x)[::-1])
    np.testing.assert_allclose(scores_of(clf, both), reverse, atol=SINGLE)


def test_scores_of_several_labels_are_averaged():
    here = {f"iterator_{part}__num_workers": 0 for part in ("train", "valid")}
    params = {"net_params": here, "max_epochs": 1, "random_state": 0, "loss": "bce"}
    clf = SparseTopClassifier(transform={"train": upper, "eval": both}, **params)
    combined, views = clf.fit(X, Y[:, None] == np.arange(4)).decision_function(X), []
    for view in (upper, lower):
        clf.set_params(transform={"train": upper, "eval": view})
        views.append(clf.decision_function(X))
    np.testing.assert_allclose(combined, np.mean(views, axis=0), rtol=SINGLE, atol=SINGLE)


def test_the_validation_loss_of_views_is_the_mean_of_theirs(monkeypatch):
    monkeypatch.setitem(globals(), "X", (X // 4 + 48 * Y[:, None, None, None]).astype(np.uint8))
    params = {"validation_fraction": 0.5, "monitor": "valid_loss", "max_epochs": 10}
    clf = fitted(loss="cross_entropy", **params)
    _, held = split_per_class(Y, 0.5, np.random.RandomState(clf._seed))
    proba = [softmax(scores_of(clf, view)[held], axis=1) for view in (upper, lower)]
    expected = np.mean([log_loss(Y[held], each) for each in proba])
    assert min(clf.history_[:, "valid_loss"]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.filterwarnings("ignore:k=. is at least the number of classes")
def test_every_class_is_returned_by_the_mean_probability_of_the_views():
    clf = fitted(k=4, loss="cross_entropy")
    assert clf.set_params(k=5).predict_set(X).all()
    views = [softmax(scores_of(clf, view), axis=1) for view in (upper, lower)]
    order = np.argsort(-np.mean(views, axis=0), axis=1)
    clf.set_params(transform={"train": upper, "eval": both})
    np.testing.assert_array_equal(clf.predict_labels(X), clf.classes_[order])

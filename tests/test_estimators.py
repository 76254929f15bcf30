"""Behaviour that the deep classifiers promise beyond scikit-learn's checks."""

import io
import multiprocessing
import os
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torchvision.transforms import v2

import sksetvalued
from sksetvalued import (
    AverageKClassifier,
    SparseTopClassifier,
    TopKClassifier,
    export,
    load,
    predict_labels,
    predict_set,
    save,
)
from sksetvalued._randomness import seeded
from sksetvalued._warnings import warn_caller, without_warnings
from sksetvalued.losses import LOSSES, CrossEntropyLoss
from sksetvalued.metrics import (
    average_k_scorer,
    set_coverage_score,
    top_k_accuracy_score,
    top_k_scorer,
)
from sksetvalued.training._setup import default_workers

N_CLASSES = 6
BOTH = [TopKClassifier(k=2, random_state=0), AverageKClassifier(k=2, random_state=0)]


def fast(estimator, **params):
    return clone(estimator).set_params(**{"max_epochs": 3, **params})


@pytest.fixture(scope="module")
def data():
    X, y = make_blobs(240, centers=N_CLASSES, n_features=5, cluster_std=3.0, random_state=0)
    return X, np.array([f"class {i}" for i in "fbdace"])[y]


def same_state(a, b):
    a, b = a.net_.module_.state_dict(), b.net_.module_.state_dict()
    return all(torch.equal(a[key], b[key]) for key in a)


# -- sets and scores ------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", BOTH)
def test_sets_are_boolean_and_in_the_order_of_classes(estimator, data):
    X, y = data
    clf = fast(estimator).fit(X, y)
    sets, labels = clf.predict_set(X), clf.predict_labels(X)
    assert sets.shape == (len(X), N_CLASSES)
    assert sets.dtype == bool
    np.testing.assert_array_equal(clf.classes_, np.unique(y))
    proba = clf.predict_proba(X)
    for row, chosen, p in zip(sets, labels, proba, strict=True):
        assert set(chosen) == set(clf.classes_[row])
        order = [p[list(clf.classes_).index(label)] for label in chosen]
        assert order == sorted(order, reverse=True)


def test_top_k_coverage_is_the_top_k_accuracy_of_the_scores(data):
    X, y = data
    clf = fast(BOTH[0]).fit(X, y)
    coverage = set_coverage_score(y, clf.predict_set(X), labels=clf.classes_)
    expected = top_k_accuracy_score(y, clf.decision_function(X), k=2, labels=clf.classes_)
    assert coverage == expected


def test_top_k_follows_a_changed_k_without_a_new_fit(data):
    X, y = data
    clf = fast(BOTH[0]).fit(X, y)
    assert (clf.set_params(k=4).predict_set(X).sum(1) == 4).all()


@pytest.mark.parametrize("loss", ["cross_entropy", "logit_adjusted"])
def test_macro_sets_rank_the_scores_divided_by_the_prior(loss, data):
    X, y = data
    clf = fast(BOTH[0], objective="macro", loss=loss).fit(X, y)
    scores = clf.decision_function(X).astype(np.float64)
    if loss == "cross_entropy":
        scores = scores - np.log(clf.class_counts_ / clf.class_counts_.sum())
    np.testing.assert_array_equal(
        np.sort(np.argsort(scores, 1)[:, -2:], 1),
        [np.flatnonzero(row) for row in clf.predict_set(X)],
    )


def test_micro_sets_of_a_balanced_network_use_the_prior_again(data):
    X, y = data
    clf = fast(BOTH[0], loss="logit_adjusted", loss_params={"tau": 1.0}).fit(X, y)
    scores = clf.decision_function(X) + np.log(clf.class_counts_ / clf.class_counts_.sum())
    np.testing.assert_array_equal(
        np.sort(np.argsort(scores, 1)[:, -2:], 1),
        [np.flatnonzero(row) for row in clf.predict_set(X)],
    )


def test_imbalanced_loss_brings_a_cosine_head_and_its_scale(data):
    X, y = data
    clf = fast(BOTH[0], max_margin=0.3).fit(X, y)
    assert type(clf.net_.module_.head).__name__ == "CosineHead"
    with torch.no_grad():
        x = torch.as_tensor(X, dtype=torch.float32, device=clf.device_)
        cosines = clf.net_.module_.eval()(x).cpu()
    assert cosines.abs().max() <= 1 + 1e-6
    np.testing.assert_allclose(clf.decision_function(X), 50 * cosines, rtol=1e-4, atol=1e-4)


# -- the average size -------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 1.5, 2, 3.7, 5.9])
def test_calibrated_size_is_just_below_k(k, data):
    X, y = data
    clf = fast(BOTH[1], k=k).fit(X, y).calibrate(X)
    size = clf.predict_set(X).sum() / len(X)
    assert k - 1 / len(X) <= size + 1e-12
    assert size <= k


def test_size_never_exceeds_k_when_scores_tie(data):
    X, y = data
    clf = fast(BOTH[1], k=2, calibration_fraction=None).fit(X, y)
    constant = np.ones((50, X.shape[1]))
    assert clf.calibrate(constant).predict_set(constant).sum(1).mean() <= 2
    repeated = np.repeat(X[:5], 20, axis=0)
    assert clf.calibrate(repeated).predict_set(repeated).sum(1).mean() <= 2
    with torch.no_grad():
        for parameter in clf.net_.module_.head.parameters():
            parameter.mul_(1e6)
    assert clf.calibrate(X).predict_set(X).sum(1).mean() <= 2


def test_every_class_for_k_of_all_classes(data):
    X, y = data
    with pytest.warns(UserWarning, match="every class"):
        clf = fast(BOTH[1], k=N_CLASSES).fit(X, y)
    assert clf.predict_set(X).all()
    with pytest.warns(UserWarning, match="every class"):
        clf = fast(BOTH[0], k=N_CLASSES + 3).fit(X, y)
    assert clf.predict_set(X).all()


def test_calibrate_needs_no_fit_after_a_change_of_k(data):
    X, y = data
    clf = fast(BOTH[1]).fit(X, y)
    before = clf.predict_proba(X)
    sizes = [clf.set_params(k=k).calibrate(X).predict_set(X).sum(1).mean() for k in (1, 3)]
    np.testing.assert_allclose(sizes, [1, 3], atol=1 / len(X))
    np.testing.assert_array_equal(clf.predict_proba(X), before)


def test_floor_and_cap_are_kept(data):
    X, y = data
    clf = fast(BOTH[1], k=2, rule_params={"min_size": 1, "max_size": 3}).fit(X, y)
    sizes = clf.calibrate(X).predict_set(X).sum(1)
    assert sizes.min() >= 1
    assert sizes.max() <= 3
    assert 2 - 1 / len(X) <= sizes.mean() <= 2


# -- inputs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", BOTH)
def test_tables_in_every_form_give_the_same_scores(estimator, data):
    X, y = data
    X = np.where(X > 0, X, 0).astype(np.float32)
    dense = fast(estimator).fit(X, y)
    frame = pd.DataFrame(X, columns=list("vwxyz"))
    named = fast(estimator).fit(frame, y)
    np.testing.assert_array_equal(named.decision_function(frame), dense.decision_function(X))
    # The columns of sparse tables are not centred.
    one, other = (fast(estimator).fit(make(X), y) for make in (sp.csr_matrix, sp.coo_array))
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
    assert list(named.feature_names_in_) == list("vwxyz")


def test_a_sparse_matrix_is_never_made_dense_whole(monkeypatch, data):
    X, y = data
    rows = []
    original = sp.csr_matrix.toarray

    def watched(self, *args, **kwargs):
        rows.append(self.shape[0])
        return original(self, *args, **kwargs)

    monkeypatch.setattr(sp.csr_matrix, "toarray", watched)
    X = sp.csr_matrix(X * (np.random.RandomState(0).rand(*X.shape) < 0.25))
    clf = fast(BOTH[0], batch_size=32).fit(X, y)
    assert max(rows) <= 33
    assert clf.n_features_in_ == X.shape[1]


@pytest.mark.parametrize(
    "labels",
    [[-5, 7, 100], ["x", "yy", "z"], [True, False], [0.0, 3.0, 9.0], np.array(["a", "b"], object)],
)
def test_labels_of_any_kind(labels, data):
    X, _ = data
    y = np.asarray(labels)[np.arange(len(X)) % len(labels)]
    clf = fast(BOTH[0], k=1).fit(X, y)
    assert set(clf.predict(X)) <= set(labels)
    assert clf.predict_set(X).shape == (len(X), len(labels))


# -- randomness -------------------------------------------------------------------------------


def _fit_and_describe(estimator, X, y):
    clf = clone(estimator).fit(X, y)
    return [p.cpu().numpy() for p in clf.net_.module_.state_dict().values()]


def test_scores_that_are_nan_are_refused_by_the_sample():
    X = np.random.default_rng(0).random((20, 8, 8), np.float32)
    clf = TopKClassifier(1, max_epochs=1, random_state=0).fit(X, np.arange(20) % 2)
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(X)[:, None])
    dataset.tensors[0][17, 0, 3, 3] = torch.nan
    for method in (clf.predict, clf.predict_proba, clf.decision_function, clf.predict_set):
        with pytest.raises(ValueError, match="scores of sample 17 of X are NaN"):
            method(dataset)


def test_one_colour_image_is_told_its_form():
    X = np.random.default_rng(0).random((8, 40, 40, 3))
    clf = TopKClassifier(1, max_epochs=1).fit(X, np.arange(8) % 2)
    for one in (X[0], X[0].transpose(2, 0, 1)):
        with pytest.raises(ValueError, match=r"the shape of one sample: pass X\[None\]"):
            clf.predict(one)


def test_as_many_images_as_a_transform_gives_channels_are_no_single_one():
    X = np.random.default_rng(0).random((8, 20, 20), np.float32)
    clf = TopKClassifier(1, max_epochs=1, transform=lambda x: x.expand(3, -1, -1))
    assert clf.fit(X, np.arange(8) % 2).predict(X[:3]).shape == (3,)


def test_the_get_params_of_a_transform_is_its_own():
    class Crop:
        @staticmethod
        def get_params(image, size):
            raise AssertionError

    assert TopKClassifier(2, transform=Crop()).set_params(k=3).k == 3


def test_processes_of_joblib_start_no_workers_of_their_own():
    assert default_workers() >= 1
    assert joblib.Parallel(n_jobs=2)(joblib.delayed(default_workers)() for _ in range(2)) == [0, 0]


@pytest.mark.parametrize("estimator", BOTH)
def test_a_seed_makes_fits_identical_also_in_workers(estimator, data):
    X, y = data
    estimator = fast(estimator, validation_fraction=0.2)
    here = clone(estimator).fit(X, y)
    # Workers that need nothing of this module start sooner.
    others = joblib.Parallel(n_jobs=2)(joblib.delayed(estimator.fit)(X, y) for _ in range(2))
    for other in (clone(estimator).fit(X, y), *others):
        assert same_state(here, other)


def test_the_default_device_of_torch_changes_nothing(data, tmp_path):
    X, y = data
    images = (X[:40].repeat(20, axis=1).reshape(40, 1, 10, 10) * 10).astype(np.uint8)
    indicator = np.eye(N_CLASSES, dtype=int)[np.unique(y, return_inverse=True)[1]]
    labels = SparseTopClassifier(size="threshold", random_state=0)
    for estimator, samples, target in (
        (BOTH[0], X, y),
        (TopKClassifier(2, loss="logit_adjusted", random_state=0), X, y),  # of buffers
        (BOTH[1], images, y[:40]),
        (labels, X, indicator),
    ):
        clf = fast(estimator, device="cpu")
        expected = clf.fit(samples, target).predict_set(samples)
        with torch.device("meta"):
            found = clone(clf).fit(samples, target).predict_set(samples)
            np.testing.assert_array_equal(clf.predict_set(samples), expected)
            save(clf, tmp_path / "model")
            np.testing.assert_array_equal(load(tmp_path / "model").predict_set(samples), expected)
            export(clf, tmp_path / "model.pt2")
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("estimator", BOTH)
def test_global_random_states_are_left_alone(estimator, data):
    X, y = data
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    clf = fast(estimator, validation_fraction=0.2).fit(X, y).partial_fit(X, y)
    first, second = clf.predict_set(X), clf.predict_set(X)
    np.testing.assert_array_equal(first, second)
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)


def test_threads_get_the_same_fits(data):
    X, y = data
    estimator = fast(BOTH[0])
    fits = joblib.Parallel(n_jobs=2, backend="threading")(
        joblib.delayed(_fit_and_describe)(estimator, X, y) for _ in range(3)
    )
    for other in fits[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(fits[0], other, strict=True))


# -- weights ----------------------------------------------------------------------------------

DETERMINISTIC = {
    "loss": "cross_entropy",
    "batch_size": 1000,
    "max_epochs": 20,
    "backbone_params": {"dropout": 0.0},
}


def test_weights_of_one_change_nothing(data):
    X, y = data
    plain = fast(BOTH[0]).fit(X, y)
    weighted = fast(BOTH[0]).fit(X, y, sample_weight=np.ones(len(y)))
    np.testing.assert_allclose(
        weighted.decision_function(X), plain.decision_function(X), rtol=1e-5, atol=1e-5
    )


def test_a_weight_of_two_is_a_repeated_sample_and_zero_none(data):
    X, y = data
    X = StandardScaler().fit_transform(X)
    weight = np.arange(len(y)) % 3
    weighted = fast(BOTH[0], **DETERMINISTIC).fit(X, y, sample_weight=weight)
    repeated = fast(BOTH[0], **DETERMINISTIC).fit(
        np.repeat(X, weight, axis=0), np.repeat(y, weight)
    )
    np.testing.assert_allclose(
        weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-3, atol=1e-5
    )
    np.testing.assert_array_equal(weighted.class_counts_, repeated.class_counts_)


def test_weights_calibrate_as_repetitions_do(data):
    X, y = data
    clf = fast(BOTH[1]).fit(X, y)
    weight = np.arange(len(y)) % 3
    by_weight = clf.calibrate(X, sample_weight=weight).threshold_
    assert by_weight == clf.calibrate(np.repeat(X, weight, axis=0)).threshold_


# -- more training ----------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", BOTH)
def test_partial_fit_in_pieces_learns(estimator, data):
    X, y = data
    X = StandardScaler().fit_transform(X)
    clf = fast(estimator, lr=1e-2)
    clf.partial_fit(X[:80], y[:80], classes=np.unique(y))
    first = clf.score(X, y)
    for _ in range(10):
        for start in (0, 80, 160):
            clf.partial_fit(X[start : start + 80], y[start : start + 80])
    assert clf.score(X, y) > first
    assert clf.n_iter_ == 31
    assert clf.class_counts_.sum() == 80 + 10 * len(y)


def test_partial_fit_draws_new_batches_every_time(data):
    X, y = data
    clf = fast(BOTH[0]).partial_fit(X, y, classes=np.unique(y))
    # The first call also drew the weights; the second and the third draw nothing but batches.
    second = clf.partial_fit(X, y)._rng_state["own"]
    third = clf.partial_fit(X, y)._rng_state["own"]
    assert not torch.equal(second, third)


def test_partial_fit_refuses_unseen_labels(data):
    X, y = data
    clf = fast(BOTH[0]).partial_fit(X, y, classes=np.unique(y))
    with pytest.raises(ValueError, match="not among the classes"):
        clf.partial_fit(X[:1], ["a new label"])
    with pytest.raises(ValueError, match="classes must be passed"):
        fast(BOTH[0]).partial_fit(X, y)


def test_a_promise_that_pieces_cannot_keep_is_refused_at_every_call(data):
    X, y = data
    clf = fast(BOTH[1]).partial_fit(X, y, classes=np.unique(y))
    sets, said = clf.predict_set(X), []
    for model in (fast(BOTH[1]), clf):
        model.set_params(rule_params={"finite_sample": True, "max_size": 3})
        with pytest.raises(ValueError) as refusal:
            model.partial_fit(X, y, classes=np.unique(y))
        said.append(str(refusal.value))
    assert said[0] == said[1]
    assert (clf.n_iter_, clf.class_counts_.sum()) == (1, len(y))
    np.testing.assert_array_equal(clf.set_params(rule_params=None).predict_set(X), sets)


def test_warm_start_continues_and_a_plain_fit_starts_anew(data):
    X, y = data
    warm = fast(BOTH[0], warm_start=True, max_epochs=2).fit(X, y).fit(X, y)
    assert warm.n_iter_ == 4
    cold = fast(BOTH[0], max_epochs=2).fit(X, y)
    again = same_state(cold, clone(cold).fit(X, y).fit(X, y))
    assert again
    assert cold.n_iter_ == 2
    assert not same_state(warm, cold)


def test_partial_fit_after_a_decayed_rate_still_learns(data):
    X, y = data
    clf = fast(BOTH[0], lr_schedule="cosine", max_epochs=2).fit(X, y)
    before = clf.decision_function(X)
    clf.partial_fit(X, y)
    assert np.abs(clf.decision_function(X) - before).max() > 1e-3


# -- persistence ------------------------------------------------------------------------------


def _joblib_round_trip(clf):
    buffer = io.BytesIO()
    joblib.dump(clf, buffer)
    buffer.seek(0)
    return joblib.load(buffer)


@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize(
    "round_trip", [lambda clf: pickle.loads(pickle.dumps(clf)), _joblib_round_trip]
)
def test_a_round_trip_predicts_the_same_and_trains_on(estimator, round_trip, data):
    X, y = data
    clf = fast(estimator, validation_fraction=0.2, lr_schedule="cosine").fit(X, y)
    copy = round_trip(clf)
    np.testing.assert_array_equal(copy.predict_set(X), clf.predict_set(X))
    np.testing.assert_array_equal(copy.decision_function(X), clf.decision_function(X))
    assert copy.partial_fit(X, y).n_iter_ == clf.n_iter_ + 1


@pytest.mark.parametrize("estimator", BOTH)
def test_a_pickle_holds_the_parameters_once_and_no_training_data(estimator):
    rng = np.random.default_rng(0)
    y = np.arange(400) % 4
    sizes = {}
    for n in (400, 4000):
        X = rng.normal(size=(n, 50))
        clf = fast(estimator, max_epochs=1, validation_fraction=0.1, batch_size=100)
        sizes[n] = len(pickle.dumps(clf.fit(X, np.resize(y, n))))
    n_bytes = sum(p.numel() * 4 for p in clf.net_.module_.parameters())
    assert abs(sizes[4000] - sizes[400]) < 5000
    assert sizes[4000] < 1.5 * n_bytes + 60_000


# -- the loss ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(n for n, c in LOSSES.items() if "label" in c.targets))
@pytest.mark.parametrize("estimator", BOTH)
def test_every_loss_can_be_named(estimator, name, data):
    X, y = data
    clf = fast(estimator, loss=name, max_epochs=1).fit(X, y)
    assert np.isfinite(clf.decision_function(X)).all()
    assert clf.predict_set(X).any()


@pytest.mark.parametrize(
    ("loss", "params"),
    [
        (torch.nn.CrossEntropyLoss(label_smoothing=0.1), None),
        (torch.nn.CrossEntropyLoss, {"label_smoothing": 0.1}),
        (CrossEntropyLoss(), None),
        (torch.nn.MultiMarginLoss, None),
    ],
)
def test_any_criterion_can_be_the_loss(loss, params, data):
    X, y = data
    clf = fast(BOTH[0], loss=loss, loss_params=params)
    weight = np.linspace(0.5, 1, len(y))
    assert np.isfinite(clf.fit(X, y, sample_weight=weight).decision_function(X)).all()


def test_epsilon_and_k_reach_the_loss(data):
    X, y = data
    criterion = fast(BOTH[0], epsilon=0.25, n_noise_samples=7).fit(X, y).net_.criterion_
    assert (criterion.k, criterion.epsilon, criterion.n_noise_samples) == (2, 0.25, 7)


# -- monitoring -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "params", "column"),
    [
        (BOTH[0], {}, "valid_top_k_accuracy"),
        (BOTH[0], {"max_margin": 0.2}, "valid_macro_top_k_accuracy"),
        (BOTH[0], {"objective": "macro"}, "valid_macro_top_k_accuracy"),
        (BOTH[1], {}, "valid_average_k_accuracy"),
        (BOTH[1], {"objective": "macro"}, "valid_macro_average_k_accuracy"),
    ],
)
def test_the_last_epoch_with_the_best_metric_is_kept(estimator, params, column, data):
    X, y = data
    states = []

    def remember(net):
        states.append({k: v.clone() for k, v in net.module_.state_dict().items()})

    from skorch.callbacks import Callback

    class Remember(Callback):
        def on_epoch_end(self, net, **kwargs):
            remember(net)

    clf = fast(estimator, validation_fraction=0.25, max_epochs=6, lr=3e-2, **params)
    clf.set_params(callbacks=[Remember()]).fit(X, y)
    values = clf.history_[:, column]
    best = max(epoch for epoch, value in enumerate(values) if value == max(values))
    kept = clf.net_.module_.state_dict()
    assert all(torch.equal(kept[key], value) for key, value in states[best].items())


def test_patience_stops_and_needs_a_validation_set(data):
    X, y = data
    clf = fast(BOTH[0], validation_fraction=0.25, patience=2, max_epochs=200, lr=0.1).fit(X, y)
    assert clf.n_iter_ < 200
    with pytest.raises(ValueError, match="validation_fraction"):
        fast(BOTH[0], patience=2).fit(X, y)


def neg_mean_score(y_true, y_score):
    return -float(y_score.mean())


def test_a_monitor_of_ones_own(data):
    X, y = data
    clf = fast(BOTH[0], validation_fraction=0.25, monitor=neg_mean_score).fit(X, y)
    assert "neg_mean_score" in clf.history_[-1]
    pickle.dumps(clf)


def test_an_interrupt_keeps_the_best_epoch_and_says_so(data):
    from skorch.callbacks import Callback

    class Interrupt(Callback):
        def on_epoch_begin(self, net, **kwargs):
            if len(net.history) == 4:
                raise KeyboardInterrupt

    X, y = data
    clf = fast(BOTH[0], max_epochs=10, validation_fraction=0.25, callbacks=[Interrupt()])
    seen = 0.75 * len(X)
    said = rf"interrupted in epoch 4 of 10.*best epoch.* saw {seen:g} of the {len(X)} samples"
    with pytest.warns(Warning, match=said):
        clf.fit(X, y)
    assert clf.predict_set(X).shape == (len(X), N_CLASSES)


def test_skorch_callbacks_see_batches_and_are_not_changed(data):
    from skorch.callbacks import Callback, EarlyStopping

    class Count(Callback):
        def __init__(self):
            self.batches = 0

        def on_batch_end(self, net, training, **kwargs):
            self.batches += training

    X, y = data
    count = Count()
    clf = fast(BOTH[0], batch_size=40, callbacks=[count]).fit(X, y)
    assert count.batches == 0
    assert dict(clf.net_.callbacks_)["Count"].batches == 3 * 6
    stopping = EarlyStopping("train_loss", patience=1, threshold=100)
    stopped = fast(BOTH[0], max_epochs=50, callbacks=[stopping]).fit(X, y)
    assert stopped.n_iter_ < 50


SCHEDULES = [
    "cosine",
    "one_cycle",
    [1, 2],
    {"milestones": [1], "gamma": 0.5},
    lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
]


def recorder_of_rates():
    """Return a callback that records the learning rate of each epoch, and its records."""
    from skorch.callbacks import Callback

    rates = []

    class Rate(Callback):
        def __deepcopy__(self, memo):
            return self

        def on_epoch_begin(self, net, **kwargs):
            rates.append(net.optimizer_.param_groups[0]["lr"])

    return Rate(), rates


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_learning_rate_schedules_change_the_rate_and_start_with_each_fit(schedule, data):
    X, y = data
    callback, rates = recorder_of_rates()
    clf = fast(BOTH[0], lr_schedule=schedule, callbacks=[callback], warm_start=True)
    clf.fit(X, y)
    first = rates.copy()
    assert len(set(first)) > 1
    clf.fit(X, y)
    np.testing.assert_allclose(rates, first * 2, rtol=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pieces_are_trained_at_a_constant_rate(schedule, data):
    X, y = data
    callback, rates = recorder_of_rates()
    clf = fast(BOTH[0], lr=0.02, lr_schedule=schedule, callbacks=[callback])
    for _ in range(3):
        clf.partial_fit(X, y, classes=np.unique(y))
    assert rates == [0.02] * 3
    clf.set_params(warm_start=True).fit(X, y)
    assert len(set(rates[3:])) > 1


def decay(clf):
    """Return the weight decay of the trained net."""
    (group,) = clf.net_.optimizer_.param_groups
    return group["weight_decay"]


def test_weight_decay_follows_the_optimizer_unless_given(data):
    X, y = data

    def trained(**params):
        return fast(BOTH[0], max_epochs=1, warm_start=True, **params).fit(X, y)

    assert decay(trained()) == 0.1
    images = np.random.default_rng(0).integers(256, size=(len(y), 8, 8), dtype=np.uint8)
    clf = fast(BOTH[0], max_epochs=1, warm_start=True, backbone_params={"widths": (4,)})
    assert decay(clf.fit(images, y)) == 0.01
    assert decay(trained(weight_decay=0.3)) == 0.3
    assert decay(trained(optimizer="sgd")) == decay(trained(optimizer="adam")) == 0
    assert decay(trained(optimizer="sgd", weight_decay=1e-4)) == 1e-4
    assert decay(trained(optimizer=torch.optim.AdamW)) == 0.01
    # It has no argument of that name.
    clf = trained(optimizer=torch.optim.Rprop)
    assert "weight_decay" not in clf.net_.optimizer_.param_groups[0]


# -- pipelines and searches -------------------------------------------------------------------


def _texts():
    rng = np.random.default_rng(0)
    words = np.array([f"word{i}" for i in range(40)])
    y = np.repeat([f"intent {i}" for i in range(4)], 30)
    centre = {label: words[10 * i : 10 * i + 15] for i, label in enumerate(np.unique(y))}
    texts = [" ".join(rng.choice(centre[label], 6)) for label in y]
    return texts, y


@pytest.mark.parametrize(
    ("estimator", "grid", "scorer"),
    [
        (BOTH[0], {"epsilon": [0.1, 10.0], "max_margin": [None, 0.5]}, top_k_scorer(k=2)),
        (
            BOTH[1],
            {"alpha": [0.1, 30.0], "k": [1.2, 3]},
            average_k_scorer(k=2, average="macro"),
        ),
    ],
)
def test_searches_in_a_pipeline_do_not_depend_on_n_jobs(estimator, grid, scorer):
    texts, y = _texts()
    estimator = fast(estimator, max_epochs=1, lr=0.03, batch_size=8)
    name = type(estimator).__name__.lower()
    pipeline = make_pipeline(TfidfVectorizer(), estimator)
    grid = {f"{name}__{key}": value for key, value in grid.items()}
    # A fork of a process that has used CUDA cannot.
    backend = "loky" if torch.cuda.is_available() else "multiprocessing"
    with joblib.parallel_config(backend):
        searches = [
            GridSearchCV(pipeline, grid, scoring=scorer, cv=2, n_jobs=n_jobs).fit(texts, y)
            for n_jobs in (1, 2)
        ]
    scores = [search.cv_results_["mean_test_score"] for search in searches]
    assert np.isfinite(scores[0]).all()
    assert len(set(scores[0])) > 2  # swapped candidates would be seen
    np.testing.assert_array_equal(*scores)
    sets = predict_set(searches[0], texts[:5])
    assert sets.shape == (5, 4)
    assert len(predict_labels(searches[0], texts[:5])) == 5


def test_scores_are_finite_when_a_fold_lacks_a_class(data):
    X, y = data
    X, y = np.vstack([X, X[:1]]), np.append(y, "only once")
    scoring = {"top": top_k_scorer(k=2), "average": average_k_scorer(k=2, average="macro")}
    results = cross_validate(fast(BOTH[0]), X, y, cv=3, scoring=scoring, error_score="raise")
    assert np.isfinite(results["test_top"]).all()
    assert np.isfinite(results["test_average"]).all()


# -- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"k": 0}, "'k' parameter.*Got 0"),
        ({"transform": str}, "transform=.*is for images, but X is a table"),
        ({"k": -1}, "'k' parameter.*Got -1"),
        ({"k": "3"}, "'k' parameter.*Got '3'"),
        ({"loss": "no such loss"}, "loss='no such loss' is unknown; use one of .*'cross_entropy'"),
        ({"loss": 3}, "loss must be a name, a torch criterion"),
        ({"loss_params": {"no_such": 1}}, "loss_params has unknown keys.*no_such"),
        ({"rule_params": {"no_such": 1}}, "rule_params has keys.*no_such"),
        ({"backbone": "no such net"}, "mlp"),
        ({"objective": "mean"}, "'objective' parameter"),
        ({"net_params": {"no_such_key": 1}}, "net_params has an unknown key 'no_such_key'"),
        ({"net_params": {"optimizer__no_such": 1}}, "net_params=.*no_such"),
        ({"optimizer": "no such"}, "optimizer='no such' is unknown; use one of"),
        ({"lr": 0}, "'lr' parameter"),
        ({"lr_schedule": "no such"}, "lr_schedule must be"),
        ({"lr_schedule": np.array([[1], [2]])}, "lr_schedule must be"),
        ({"device": "no such"}, "device='no such' cannot be used"),
        ({"precision": "float8"}, "'precision' parameter"),
        ({"max_epochs": 0}, "'max_epochs' parameter"),
        ({"validation_fraction": 1.0}, "'validation_fraction' parameter"),
        ({"monitor": "no such", "validation_fraction": 0.2}, "monitor='no such' is unknown"),
    ],
)
def test_bad_parameters_are_named(estimator, params, message, data):
    X, y = data
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        fast(estimator, **params).fit(X, y)


@pytest.mark.parametrize(
    ("estimator", "params", "message"),
    [
        (BOTH[0], {"k": 2.5}, "'k' parameter.*Got 2.5"),
        (BOTH[0], {"epsilon": -0.1}, "'epsilon' parameter"),
        (BOTH[0], {"n_noise_samples": 0}, "'n_noise_samples' parameter"),
        (BOTH[1], {"alpha": -1}, "'alpha' parameter"),
        (BOTH[1], {"calibration_fraction": 0.0}, "'calibration_fraction' parameter"),
        (BOTH[1], {"rule_params": {"max_size": 1}}, "max_size=1 is below k=2"),
    ],
)
def test_bad_parameters_of_one_estimator(estimator, params, message, data):
    X, y = data
    with pytest.raises((ValueError, TypeError), match=message):
        fast(estimator, **params).fit(X, y)


@pytest.mark.parametrize("estimator", BOTH)
def test_bad_data_is_named(estimator, data):
    X, y = data
    for value in (np.nan, np.inf):
        bad = X.copy()
        bad[3, 1] = value
        with pytest.raises(ValueError, match="NaN|infinity"):
            fast(estimator).fit(bad, y)
    with pytest.raises(ValueError, match="1 class"):
        fast(estimator).fit(X, np.zeros(len(y)))
    with pytest.raises(ValueError, match="minimum of 1 is required|0 sample"):
        fast(estimator).fit(X[:0], y[:0])
    with pytest.raises(ValueError, match="inconsistent"):
        fast(estimator).fit(X, y[:-1])
    with pytest.raises(ValueError, match="sample_weight is zero for every sample"):
        fast(estimator).fit(X, y, sample_weight=np.zeros(len(y)))
    for weight in (1.0, np.ones((len(y), 1))):
        with pytest.raises(ValueError, match=r"sample_weight must have shape \(\d+,\)"):
            fast(estimator).fit(X, y, sample_weight=weight)
    for size in (1e-40, 1e-300, 1e35, 1e300):
        # Not that the loss is nan, as it would be in single precision.
        with pytest.raises(
            ValueError, match=f"sample_weight.* got .*{size:.0e}".replace("+", ".")
        ):
            fast(estimator).fit(X, y, sample_weight=np.full(len(y), size))
    clf = fast(estimator).fit(X, y)
    with pytest.raises(ValueError, match="5 features"):
        clf.predict_set(X[:, :3])


def test_use_before_fit_is_refused(data):
    X, _ = data
    for method in ("predict", "predict_set", "predict_labels", "predict_proba"):
        for estimator in BOTH:
            with pytest.raises(NotFittedError):
                getattr(clone(estimator), method)(X)
    with pytest.raises(NotFittedError):
        clone(BOTH[1]).calibrate(X)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("estimator", BOTH)
def test_autocast_of_the_caller_is_without_effect(estimator, precision, data):
    X, y = data
    clf = fast(estimator, precision=precision)
    scores = clf.fit(X, y).decision_function(X)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        np.testing.assert_array_equal(clf.decision_function(X), scores)
        clf.fit(X, y)
    np.testing.assert_array_equal(clf.decision_function(X), scores)


def test_images_in_memory_do_not_wait_for_a_training_in_another_thread():
    images = np.random.default_rng(0).random((40, 12, 12))
    clf = TopKClassifier(k=2, max_epochs=1, random_state=0).fit(images, np.arange(40) % 3)
    with ThreadPoolExecutor(1) as other, seeded(0):  # as while code of others is trained
        assert other.submit(clf.predict_set, images).result(timeout=60).shape == (40, 3)


def test_reading_scores_leaves_the_callers_context_alone(data):
    X, y = data
    clf = fast(BOTH[0]).fit(X, y)
    state = torch.get_rng_state()
    for _ in clf._iter_scores(X):
        assert not torch.is_inference_mode_enabled()
        assert torch.equal(torch.get_rng_state(), state)


def test_nothing_is_printed_and_nothing_warned(data, capfd):
    X, y = data
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for estimator in BOTH:
            fast(estimator, validation_fraction=0.2).fit(X, y).predict_set(X)
    assert capfd.readouterr() == ("", "")


def test_training_on_images_keeps_the_interface(data):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, size=(40, 12, 12), dtype=np.uint8)
    y = np.arange(40) % 3
    clf = TopKClassifier(k=2, max_epochs=1, random_state=0).fit(images, y)
    assert clf.predict_set(images).shape == (40, 3)
    with pytest.raises(ValueError, match="fitted on samples of shape"):
        clf.predict(images[:, :8])
    # Nothing tells dark images, or masks, that are not divided by 255 from what is.
    for whole in (images.astype(int), (images > 100).astype(int)):
        with pytest.raises(
            ValueError, match="those of `fit` were bytes, which are divided by 255"
        ):
            clf.predict(whole)
    black_or_white = np.where(images > 100, 255, 0).astype(np.uint8)
    np.testing.assert_array_equal(clf.predict(images > 100), clf.predict(black_or_white))


def test_floats_in_other_units_than_those_of_fit_are_refused():
    images = np.random.default_rng(0).random((40, 12, 12))
    clf = TopKClassifier(k=2, max_epochs=1, random_state=0).fit(images, np.arange(40) % 3)
    assert clf.predict_set(1.2 * images).shape == (40, 3)
    with pytest.raises(ValueError, match=r"numbers up to 25\d.* those of `fit` were numbers from"):
        clf.predict(255 * images)


def test_floats_divided_by_what_those_of_fit_were_not_are_warned_of():
    images = 255 * np.random.default_rng(0).random((40, 12, 12))
    clf = TopKClassifier(k=2, max_epochs=1, random_state=0).fit(images, np.arange(40) % 3)
    with pytest.warns(UserWarning, match="numbers from .* but those of `fit` were numbers"):
        clf.predict(images / 255)
    dark_first = np.concatenate([images[:20] / 255, images])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.predict(0 * images)
        clf.predict(0.1 * images)
        clf.predict(dark_first)


@pytest.mark.parametrize("shape", [(64, 7, 7), (9, 6, 6), (2, 5, 5)])
def test_square_maps_tell_their_channels(shape):
    maps = np.zeros((6, *shape), np.float32)
    last = np.ascontiguousarray(np.moveaxis(maps, 1, 3))
    clf = TopKClassifier(k=1, max_epochs=1)
    for X in (maps, last):
        clf.set_params(
            backbone=lambda form: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(4))
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert clf.fit(X, np.arange(6) % 2).input_shape_ == shape


@pytest.mark.parametrize("alike", [True, False])
def test_stages_in_other_units_are_warned_of(alike):
    y = np.arange(60) % 3
    images = np.random.default_rng(0).integers(0, 80, (60, 3, 8, 8)) + 80 * y[:, None, None, None]
    images = images.astype(np.uint8)
    scaled = v2.ToDtype(torch.float32, scale=True)
    train = v2.Compose([v2.RandomHorizontalFlip(), v2.ColorJitter(0.3, 0.3), scaled])
    stages = {"train": train, "eval": scaled if alike else v2.ToDtype(torch.float32)}
    clf = TopKClassifier(k=2, max_epochs=1, random_state=0, transform=stages)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.fit(images, y)
    told = [w for w in caught if "transform gives images of mean" in str(w.message)]
    assert len(told) == (not alike)


#: What fills a part of the pixels with one value.
FILLING = [
    v2.RandomCrop(32, padding=4),
    v2.RandomRotation(20),
    v2.RandomErasing(1.0),
    v2.RandomAffine(10, translate=(0.1, 0.1)),
]


@pytest.mark.filterwarnings("ignore:The network learnt")
@pytest.mark.parametrize("fill", FILLING, ids=lambda fill: type(fill).__name__)
@pytest.mark.parametrize("like", ["bright and even", "drawings", "strokes on paper"])
def test_what_a_transform_fills_in_is_no_other_unit(fill, like):
    rng = np.random.default_rng(0)
    images = rng.normal(210, 18, (20, 32, 32, 3)).clip(0, 255).astype(np.uint8)
    if like == "drawings":
        images = np.where(images > 235, images, 0)
    if like == "strokes on paper":
        images = np.full_like(images, 255)
        images[:, 12:20, 10:30:9] = 40
    y = np.arange(20) % 4
    here = {f"iterator_{part}__num_workers": 0 for part in ("train", "valid")}
    clf = TopKClassifier(k=2, max_epochs=1, backbone=(8,), random_state=0, net_params=here)
    scaled = v2.ToDtype(torch.float32, scale=True)
    with warnings.catch_warnings():
        # As an error, the warning ends a fit before its training.
        warnings.filterwarnings("error", "transform gives images")
        clf.set_params(transform={"train": fill}).fit(images, y)
        normalise = v2.Normalize([0.485] * 3, [0.225] * 3)
        for other in (v2.ToDtype(torch.float32), v2.Compose([scaled, normalise])):
            stages = {"train": v2.Compose([fill, other]), "eval": scaled}
            clf.set_params(transform=stages)
            with pytest.raises(UserWarning, match="transform gives images of mean"):
                clf.fit(images, y)


def test_warnings_are_left_out_of_one_thread_alone():
    """Filters of the process would be left in disorder by fits in several threads."""
    filters = list(warnings.filters)
    with ThreadPoolExecutor(1) as other, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with without_warnings("empty"), without_warnings("large"):
            for said in ("sets are empty", "sets are large", "sets are small"):
                warn_caller(said)
            other.submit(warn_caller, "sets are empty elsewhere").result()
            warn_caller("of another kind", FutureWarning)
    assert [str(w.message) for w in caught] == [
        "sets are small",
        "sets are empty elsewhere",
        "of another kind",
    ]
    assert warnings.filters == filters


def test_public_names_are_importable():
    for name in sksetvalued.__all__:
        assert hasattr(sksetvalued, name)


@pytest.mark.parametrize("estimator", BOTH)
def test_a_matrix_that_needs_no_conversion_is_checked_like_any_table(estimator, data):
    X, y = data
    clf = fast(estimator, max_epochs=1).fit(X, y)
    for bad in (
        np.where(np.eye(len(X), 5) > 0, np.nan, X),
        np.full_like(X, np.inf),
        X[:, :-1],
        X[:0],
    ):
        messages = []
        for form in (bad, pd.DataFrame(bad).to_numpy(dtype=object)):
            with pytest.raises(ValueError) as info:
                clf.predict_set(form)
            messages.append(str(info.value))
        assert messages[0] == messages[1]


def test_bytes_are_no_images_from_minus_one_to_one():
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), np.uint8)
    clf = TopKClassifier(1, max_epochs=1, random_state=0)
    clf.fit(images / 127.5 - 1, np.arange(40) % 2)
    with pytest.raises(ValueError, match="images of bytes, which are divided by 255"):
        clf.predict_set(images)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_one_cycle_ends_with_the_training(optimizer, data):
    clf = fast(BOTH[0], lr=0.02, lr_schedule="one_cycle", optimizer=optimizer).fit(*data)
    (group,) = clf.net_.optimizer_.param_groups
    assert group["lr"] == pytest.approx(0.02 / 25 / 1e4)
    momentum = group["momentum"] if optimizer == "sgd" else group["betas"][0]
    assert momentum == pytest.approx(0.95)


def test_scores_of_half_precision_have_the_digits_of_single_precision(data):
    clf = fast(BOTH[0], precision="bf16").fit(*data)
    scores = torch.from_numpy(clf.decision_function(data[0]))
    assert (scores != scores.bfloat16().float()).double().mean() > 0.5


def test_workers_are_forks_and_eight_at_most(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(64), raising=False)
    for method, n_workers in (("fork", 8), ("forkserver", 0), ("spawn", 0)):
        monkeypatch.setattr(multiprocessing, "get_start_method", lambda m=method, **_: m)
        assert default_workers() == n_workers


def test_a_k_that_is_no_integer_is_refused_after_the_fit_too(data):
    X, y = data
    clf = fast(BOTH[0]).fit(X, y)
    with pytest.raises(TypeError, match=r"k must be an integer >= 1, got 2\.0"):
        clf.set_params(k=2.0).predict_set(X)

"""The length of training that follows the data, and the averaged weights that allow it."""

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from skorch.callbacks import Callback, LRScheduler
from torch import nn

from sksetvalued import AverageKClassifier, SparseTopClassifier, TopKClassifier, _masks, training
from sksetvalued.estimators import _length
from sksetvalued.training import calibrated_log_likelihood
from sksetvalued.training._recipes import CONVNET, OF_WORDS, PERCEPTRON

rng = np.random.default_rng(0)
X = rng.standard_normal((300, 8))
CLEAR = X[:, :4].argmax(1)
NOISY = np.where(rng.uniform(size=300) < 0.7, rng.integers(4, size=300), CLEAR)
ONE_BATCH = {"batch_size": 300, "backbone": (64,), "lr": 5e-2}


def classifier(**params):
    return TopKClassifier(2, **{"random_state": 0, **params})


def test_noise_shortens_the_training():
    clear, noisy = (
        np.median(
            [classifier(random_state=seed, patience=4).fit(X, y).n_iter_ for seed in range(3)]
        )
        for y in (CLEAR, NOISY)
    )
    assert noisy < clear


def test_few_samples_are_never_left_over_for_the_last_of_few_batches():
    for recipe, n in itertools.product({PERCEPTRON, OF_WORDS, CONVNET}, range(1, 5000)):
        size = recipe.batch_size(n)
        assert 32 <= size < 1.5 * recipe.largest_batch
        n_batches = math.ceil(n / size)
        if 1 < n_batches <= size / 2:
            assert n - (n_batches - 1) * size >= size / 2 - 1


class Interrupts(Callback):
    """Raise what Ctrl-C does in the n-th training of a fit."""

    n_left = None

    def on_train_begin(self, net, **kwargs):
        Interrupts.n_left -= 1

    def on_batch_end(self, net, **kwargs):
        if not Interrupts.n_left:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("model", "n_trainings"),
    [
        (TopKClassifier(2, random_state=0), 2),
        (AverageKClassifier(2, random_state=0), 6),
        (SparseTopClassifier(random_state=0), 2),
    ],
    ids=["top-k", "average-k", "labels"],
)
def test_an_interrupt_after_the_search_keeps_its_network(model, n_trainings):
    y = np.eye(4, dtype=int)[CLEAR] if isinstance(model, SparseTopClassifier) else CLEAR
    for number in {1, 2, n_trainings}:
        Interrupts.n_left = number
        clf = clone(model).set_params(callbacks=[Interrupts()])
        said = "the number of epochs, is kept" if number > 1 else "the last state is kept"
        with pytest.warns(ConvergenceWarning, match=said):
            clf.fit(X, y)
        assert Interrupts.n_left == 0
        # All but the first batch was not needed to tell these classes apart.
        assert (clf.score(X, y) > 0.8) == (number > 1)
        assert any("valid_loss" in row for row in clf.history_) == (number > 1)


def test_a_found_length_is_that_of_a_fit_of_this_length():
    found = classifier().fit(X, NOISY)
    given = classifier(max_epochs=found.n_iter_).fit(X, NOISY)
    np.testing.assert_array_equal(found.decision_function(X), given.decision_function(X))


@pytest.mark.parametrize(
    ("values", "batch_size", "best", "n_tried"),
    [
        # Less than a thousandth of the first value is no gain, however near to zero the best is.
        ([-10, -0.1, *np.linspace(-0.095, -0.05, 98)], 30, 3, 11),
        # Nor is less than two thousandths of the best.
        ([-1.0, -1.0 + 2.1e-3, *[-1.0 + 4e-3] * 98], 30, 3, 11),
        # A value that is good by chance is no better than its mean with the one before.
        ([-5, -4, -3, -2, -1.0, -1.3, -1.2, -1.15, -1.12, *[-1.1] * 91], 30, 11, 19),
        # The longer a search improves, the longer it waits.
        ([*np.linspace(-10, -1, 36), *[-1.0] * 64], 30, 37, 49),
        ([-math.inf, -1.0, *[-0.9] * 98], 30, 4, 12),
        # And the fewer batches its epochs have: forty at least, of which none come before twenty.
        ([-10, -0.1, *[-0.1] * 98], 80, 7, 21),
        ([-10, -0.1, *[-0.1] * 98], 300, 20, 60),
        # However good an epoch was before them.
        ([-0.1, *np.linspace(-10, -1, 99)], 80, 80, 80),
        ([-0.1, *[-1.0] * 99], 80, 7, 21),
    ],
)
def test_a_search_ends_when_nothing_is_gained_for_a_third_of_its_length(
    values, batch_size, best, n_tried
):
    given = iter(values)
    clf = classifier(
        batch_size=batch_size, backbone=(2,), monitor=lambda y_true, y_score: next(given)
    )
    clf.fit(X, NOISY)
    assert (clf.n_iter_, 100 - len([*given])) == (best, n_tried)


@pytest.mark.parametrize(("n_at_chance", "best", "n_tried"), [(60, 62, 80), (80, 3, 66)])
def test_a_search_that_has_learnt_nothing_yet_waits_for_hundreds_of_batches(
    monkeypatch, n_at_chance, best, n_tried
):
    given = iter([-math.log(4) + 0.001] * n_at_chance + [-0.5] * (80 - n_at_chance))
    monkeypatch.setattr(_length.LabelLength, "_likelihood", lambda *args: next(given))
    clf = classifier(batch_size=30, backbone=(2,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        clf.fit(X, np.arange(300) % 4)
    assert (clf.n_iter_, 80 - len([*given])) == (best, n_tried)


def test_a_search_for_sets_of_labels_waits_for_half_of_its_length():
    """With a third, the F1 of few samples ended it too soon."""
    given = iter([*np.linspace(0.1, 1.0, 36), *[1.0] * 64])
    clf = SparseTopClassifier(
        backbone=(2,),
        batch_size=30,
        monitor=lambda y_true, y_score: next(given),
        random_state=0,
    )
    assert clf.fit(X, np.eye(4, dtype=int)[NOISY]).n_iter_ == 36
    assert 100 - len([*given]) == 54


@pytest.mark.parametrize("patience", [None, 4])
def test_a_fit_that_goes_on_takes_as_many_epochs_again(patience):
    clf = classifier(warm_start=True, patience=patience).fit(X, NOISY)
    n = clf.n_iter_
    assert clf.fit(X, NOISY).n_iter_ == 2 * n


@pytest.mark.parametrize(
    ("clf", "target"),
    [
        (classifier(**ONE_BATCH), NOISY),
        (SparseTopClassifier(random_state=0, **ONE_BATCH), np.eye(4, dtype=int)[NOISY]),
    ],
)
def test_what_a_search_found_is_forgotten_by_a_fit_that_searches_nothing(clf, target):
    assert clf.fit(X, target).n_iter_ < 50
    assert clf.set_params(lr_schedule="cosine").fit(X, target).n_iter_ == 50
    assert clf.set_params(warm_start=True).fit(X, target).n_iter_ == 100


@pytest.mark.parametrize(
    "params",
    [
        {"lr_schedule": "cosine"},
        {"callbacks": [LRScheduler]},
        {"backbone": lambda shape: nn.Linear(shape[0], 4)},
        {"max_epochs": 50},
    ],
)
def test_nothing_is_sought_where_the_end_is_part_of_the_plan(params):
    assert classifier(batch_size=300, **params).fit(X, CLEAR).n_iter_ == 50


def test_classes_of_one_sample_leave_nothing_to_hold_out():
    clf = classifier(batch_size=64).fit(X[:5], np.arange(5))
    assert clf.n_iter_ == 50


class Recorder(Callback):
    """Collect the last weights of every update, and the weights shown after each epoch."""

    iterates, shown = [], []

    def on_train_begin(self, net, **kwargs):
        self.iterates.clear()
        self.shown.clear()

    def on_batch_end(self, net, training, **kwargs):
        if training:
            self.iterates.append(net.module_.head.weight.detach().clone())

    def on_epoch_end(self, net, **kwargs):
        self.shown.append(net.module_.head.weight.detach().clone())


@pytest.mark.parametrize(("width", "step"), [(8, 1), (30_000, 4)])
def test_the_average_weighs_the_last_eighth_most(width, step):
    clf = classifier(backbone=(width,), max_epochs=4, batch_size=50, callbacks=[Recorder])
    clf.fit(X, CLEAR)
    average, averages = None, []
    for i, weight in enumerate(Recorder.iterates):
        if i == 0:
            average = weight
        elif i % step == 0:
            average = average + 9 / (i // step + 9) * (weight - average)
        averages.append(average)
    for epoch, shown in enumerate(Recorder.shown, start=1):
        torch.testing.assert_close(shown, averages[6 * epoch - 1])
    torch.testing.assert_close(clf.net_.module_.head.weight.detach(), averages[-1])


def test_what_is_shown_does_not_change_what_is_trained():
    short = classifier(max_epochs=2, callbacks=[Recorder]).fit(X, CLEAR)
    first = [w.clone() for w in Recorder.iterates]
    classifier(max_epochs=3, validation_fraction=None, callbacks=[Recorder]).fit(X, CLEAR)
    assert all(map(torch.equal, first, Recorder.iterates))
    assert not torch.equal(short.net_.module_.head.weight, first[-1])


@pytest.mark.parametrize("temperature", [0.2, 1.0, 7.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_calibrated_likelihood_is_the_best_over_temperatures(temperature, weighted):
    scores = log_softmax(rng.standard_normal((200, 5)) * temperature, axis=1)
    y = np.array([rng.choice(5, p=p) for p in np.exp(log_softmax(scores / temperature, axis=1))])
    weight = rng.integers(0, 3, 200) if weighted else np.ones(200)

    def minus(log_inverse):
        own = log_softmax(np.exp(log_inverse) * scores, axis=1)[np.arange(200), y]
        return -np.average(own, weights=weight)

    best = minimize_scalar(minus, bounds=(-4, 4), method="bounded", options={"xatol": 1e-8})
    value = calibrated_log_likelihood(y, scores, weight if weighted else None)
    np.testing.assert_allclose(value, -best.fun, atol=1e-5)


def test_patience_is_that_of_the_search():
    impatient, patient = (
        classifier(patience=patience, backbone=(8,)).fit(X, NOISY).n_iter_ for patience in (1, 10)
    )
    assert 0 < impatient < patient


def test_blocks_of_samples_give_the_calibrated_likelihood_of_all(monkeypatch):
    scores, y = log_softmax(rng.standard_normal((200, 5)), axis=1), rng.integers(5, size=200)
    whole = calibrated_log_likelihood(y, scores)
    monkeypatch.setattr(_masks, "BLOCK_ENTRIES", 35)
    assert calibrated_log_likelihood(y, scores) == whole


def test_of_many_classes_some_held_out_samples_are_monitored(monkeypatch):
    """And all of them calibrate."""
    seen, own = [], training.Monitor.update

    def update(self, scores, *rest):
        seen.append(len(scores))
        own(self, scores, *rest)

    monkeypatch.setattr(training.Monitor, "update", update)
    monkeypatch.setattr(_length, "MOST_SCORES", 4 * 20)
    monkeypatch.setattr(_length, "FEWEST_MONITORED", 10)
    clf = AverageKClassifier(1.5, random_state=0, backbone=(8,)).fit(X, NOISY)
    assert set(seen) == {20}
    assert clf.rule_.n_samples_seen_ > 50
    seen.clear()
    classifier(max_epochs=1, validation_fraction=0.3).fit(X, CLEAR)
    assert seen == [18]  # every fifth of 90


def test_average_k_searches_too():
    clf = AverageKClassifier(1.5, random_state=0).fit(X, NOISY)
    assert clf.n_iter_ < 20
    assert clf.history_[-1].get("valid_loss") is None


def test_labels_that_have_nothing_to_do_with_the_features_are_warned_of():
    with pytest.warns(ConvergenceWarning, match="learnt next to nothing: .* held-out"):
        classifier().fit(X, rng.integers(4, size=300))


class Forgets(Callback):
    """Ends a training with a network that knows nothing, whatever its epochs gave."""

    def on_train_end(self, net, **kwargs):
        with torch.no_grad():
            for parameter in net.module_.parameters():
                parameter.zero_()


@pytest.mark.parametrize("cls", [TopKClassifier, AverageKClassifier])
def test_a_last_training_that_fails_after_a_good_search_is_warned_of(cls):
    clf = cls(2, callbacks=[Forgets()], lr=1e-2, patience=2, random_state=0)
    with pytest.warns(ConvergenceWarning, match="learnt next to nothing: on training"):
        clf.fit(X, CLEAR)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        clf.set_params(callbacks=None).fit(X, CLEAR)


@pytest.mark.parametrize("loss", ["noised_mixture", "noised_hinge"])
def test_a_training_of_given_length_that_fails_is_warned_of(loss):
    """One untrained network in five knows something by chance."""
    warned = {"auto": 0, 1e-9: 0}
    for lr in warned:
        for seed in range(5):
            clf = classifier(loss=loss, max_epochs=3, lr=lr, random_state=seed)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", ConvergenceWarning)
                clf.fit(X, CLEAR)
            warned[lr] += any("next to nothing: on training" in str(w.message) for w in caught)
    assert warned["auto"] == 0
    assert warned[1e-9] >= 3


def test_few_samples_show_that_a_training_learnt_something(monkeypatch):
    seen, iter_scores = [], TopKClassifier._iter_scores

    def counted(self, inputs, *args):
        seen.append(len(inputs))
        return iter_scores(self, inputs, *args)

    monkeypatch.setattr(TopKClassifier, "_iter_scores", counted)
    classifier(max_epochs=6).fit(X, CLEAR)
    assert seen == [60]


def test_probabilities_that_say_something_are_no_failure_though_one_class_prevails():
    y = (rng.uniform(size=300) < 0.25 / (1 + np.exp(-2 * X[:, 0]))).astype(int)
    clf = TopKClassifier(1, max_epochs=5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        assert not clf.fit(X, y).predict(X).any()


def test_a_search_goes_by_classes_that_it_trains_on(monkeypatch):
    given, search = [], _length.SearchedLength._search

    def spied(self, train, valid):
        given.append((train.target, valid.target))
        return search(self, train, valid)

    monkeypatch.setattr(_length.SearchedLength, "_search", spied)
    y = np.append(np.repeat([0, 1], 40), np.arange(2, 12))
    X = np.random.default_rng(0).normal(size=(90, 3)) + y[:, None] / 6
    AverageKClassifier(2, loss="cross_entropy", random_state=0).fit(X, y)
    ((train, valid),) = given
    assert np.isin(np.asarray(valid), np.asarray(train)).all()


def test_a_search_tries_ten_epochs_at_least_and_eighty_at_most():
    assert [training.most_epochs(n) for n in (1, 500, 5000)] == [80, 20, 10]


class Rates(Callback):
    """Collect the rate of each update."""

    rates = []

    def on_train_begin(self, net, **kwargs):
        self.rates.clear()

    def on_batch_begin(self, net, training, **kwargs):
        if training:
            self.rates.append(net.optimizer_.param_groups[0]["lr"])


def test_the_rate_of_averaged_weights_rises_over_fifty_updates():
    classifier(max_epochs=12, lr=0.01, batch_size=50, callbacks=[Rates]).fit(X, CLEAR)
    expected = 0.01 * np.minimum(1, np.arange(1, 73) / 50)
    np.testing.assert_allclose(Rates.rates, expected)

"""The threshold of AverageKClassifier by folds: scores of networks trained without them."""

import copy
import math
import warnings

import numpy as np
import pytest
import scipy.sparse
from skorch.callbacks import Callback

from sksetvalued import AverageKClassifier
from sksetvalued.estimators import _labels
from sksetvalued.estimators._held_out import iter_as_new, surplus_of_own_class
from sksetvalued.rules import AverageK
from sksetvalued.training import folds_per_class, split_at_random

rng = np.random.default_rng(0)
X = rng.standard_normal((150, 5))
Y = (X[:, :3] + rng.gumbel(size=(150, 3))).argmax(1)
Y[:4] = 3, 3, 4, 4


def classifier(**params):
    return AverageKClassifier(1.5, **{"random_state": 0, **params})


@pytest.mark.parametrize("n_folds", [2, 5, 7, 10**30])
def test_folds_hold_out_each_sample_once_and_share_the_classes(n_folds):
    y = rng.permutation(np.repeat([0, 1, 2, 3], [30, 11, 2, 1]))
    folds = folds_per_class(y, n_folds, np.random.RandomState(0))
    assert len(folds) == min(n_folds, 44)
    held = np.concatenate([out for _, out in folds])
    np.testing.assert_array_equal(np.sort(held), np.arange(len(y)))
    for kept, out in folds:
        np.testing.assert_array_equal(np.sort(np.r_[kept, out]), np.arange(len(y)))
        assert set(y[kept]) >= {0, 1, 2}
    counts = np.array([np.bincount(y[out], minlength=4) for _, out in folds])
    assert np.ptp(counts, axis=0).max() <= 1
    assert np.ptp(counts.sum(1)) <= 2


@pytest.fixture(scope="module")
def fitted():
    return classifier(max_epochs=4, calibration_folds=3).fit(X, Y)


def fold_scores(fitted, n_folds, over_prior_of_training):
    """Return the scores of the networks of folds, of samples as new ones and of their own."""
    new, own = [], []
    for kept, out in folds_per_class(Y, n_folds, np.random.RandomState(fitted._seed)):
        part = classifier(calibration_folds=None, calibration_fraction=None)
        part.set_params(max_epochs=fitted.max_epochs, batch_size=fitted.batch_size_)
        part.set_params(device=fitted.device)
        part.fit(X[kept], Y[kept])
        part.class_counts_ = fitted.class_counts_
        # The class of each by its odds in all other samples, in place of those in the fold.
        proba, own_class = np.exp(part._predict_log_proba(X[out])), np.eye(5, dtype=bool)[Y[out]]
        counts, whole = np.bincount(Y[kept], minlength=5), np.bincount(Y)
        odds = (counts / (counts.sum() - counts))[Y[out]]
        odds_alone = ((whole - 1) / (len(Y) - whole))[Y[out]]
        proba[own_class] *= odds_alone / odds
        proba /= proba.sum(1, keepdims=True)
        if over_prior_of_training:  # which counts the sample, too
            proba[own_class] *= (whole / (whole - 1))[Y[out]]
        new.append(np.log(np.minimum(proba, 1)))
        own.append(part._predict_log_proba(X[kept]))
    return new, own


@pytest.mark.parametrize("weight_of_class", [None, np.array([1.0, 3, 0.5, 0.1])])
def test_held_out_samples_are_scored_as_if_each_was_left_out_alone(weight_of_class):
    """Exactly, by Bayes' rule with known likelihoods, where folds have even shares of classes."""
    rng = np.random.default_rng(1)
    y = rng.permutation(np.repeat(range(4), [40, 20, 10, 5]))
    weight = None if weight_of_class is None else weight_of_class[y]
    likelihoods = rng.exponential(size=(len(y), 4))

    def log_posterior(i, known):
        joint = likelihoods[i] * np.bincount(y[known], weight if weight is None else weight[known])
        return np.log(joint / joint.sum())

    def log_prior(without):
        masses = np.ones(len(y)) if weight is None else weight.copy()
        if without is not None:
            masses[without] = 0
        return np.log(np.bincount(y, masses) / masses.sum())

    for kept, out in folds_per_class(y, 5, rng):
        chunks = np.split([log_posterior(i, kept) for i in out], [3, 10])
        surplus, in_prior = surplus_of_own_class(y, weight, kept, out)
        found = np.concatenate([*iter_as_new(map(np.copy, chunks), y[out], surplus)])
        others = [np.delete(np.arange(len(y)), i) for i in out]
        alone = np.array([log_posterior(i, known) for i, known in zip(out, others)])
        np.testing.assert_allclose(found, alone, rtol=0, atol=1e-12)
        # Over the prior, which goes down as a whole by the one sample.
        found = np.concatenate([*iter_as_new(chunks, y[out], surplus, in_prior)]) - log_prior(None)
        alone -= np.array([log_prior(i) for i in out])
        total = len(y) if weight is None else weight.sum()
        mass = np.ones(len(out)) if weight is None else weight[out]
        alone += np.log(total / (total - mass))[:, None]
        alone = np.minimum(alone, -log_prior(None))
        np.testing.assert_allclose(found, alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("drawn", [True, False])
def test_no_more_is_taken_off_than_chance_put_into_the_counts(drawn):
    """So that the odds of the own class are those that the class of a new sample has."""
    rng, odds = np.random.default_rng(2), []
    for _ in range(30):
        y = rng.integers(20, size=360) if drawn else rng.permutation(np.arange(360) % 20)
        y *= 2  # other classes are not known
        for kept, out in folds_per_class(y, 5, rng):
            same = np.bincount(y[kept], minlength=40)[y[out]]
            surplus, _ = surplus_of_own_class(y, None, kept, out)
            weighted, _ = surplus_of_own_class(y, np.full(360, 7.0), kept, out)
            np.testing.assert_allclose(weighted, surplus, rtol=0, atol=1e-12)
            odds.append(same / (len(kept) - same) * np.exp(-surplus))
    # 18 of 360, within the error of so many draws; 1 more of 18 without the surplus.
    assert np.mean(np.concatenate(odds)) == pytest.approx(1 / 19, rel=0.015 if drawn else 1e-9)


def test_samples_whose_class_has_no_others_are_scored_as_they_are():
    y, masses = np.array([0, 0, 0, 1, 1, 2, 2, 3]), np.array([1.0, 1, 1, 1, 1, 0, 1, 1])
    for out, weight, found in (
        ([0, 7], None, [True, False]),  # the only one
        ([3, 4, 0], None, [False, False, True]),  # all of a class, which the network never saw
        ([0, 6], masses, [True, False]),  # the other has no weight
        (range(3, 8), None, [False] * 5),  # one class is left
    ):
        out = np.array(out)
        kept = np.setdiff1d(np.arange(8), out)
        surplus, in_prior = surplus_of_own_class(y, weight, kept, out)
        np.testing.assert_array_equal(in_prior > 0, found)
        assert not surplus[in_prior == 0].any()


def test_certain_classes_stay_certain():
    log_proba = np.array([[0, -np.inf, -np.inf], [-np.inf, 0, -np.inf], [-1e-20, -50, -50.0]])
    (found,) = iter_as_new(iter([log_proba.copy()]), np.zeros(3, int), np.array([40.0, 1, -1]))
    np.testing.assert_array_equal(found[:2, :2], log_proba[:2, :2])
    assert (found <= 0).all()
    np.testing.assert_allclose(found[2, 1:], -51, rtol=1e-12)


@pytest.mark.parametrize(
    ("objective", "bounds"),
    [
        ("micro", {}),
        ("macro", {"min_size": 1, "max_size": 2}),
        ("macro", {"prior": [0.2, 0.2, 0.2, 0.2, 0.2]}),
    ],
)
def test_the_threshold_is_that_of_networks_trained_without_the_fold(objective, bounds):
    """Of sets smaller by as much as those of the last network's own samples are larger."""
    params = {"max_epochs": 12, "objective": objective, "rule_params": bounds}
    # Where what is drawn makes the mean size of the folds less than that asked for.
    fitted = classifier(calibration_folds=3, device="cpu", **params).fit(X, Y)
    of_training = objective == "macro" and "prior" not in bounds
    new, own = fold_scores(fitted, 3, of_training)
    options = {"prior": fitted._prior, "objective": objective, "log_scores": True, **bounds}

    def rule(k, *scores):
        return AverageK(k, **options).fit(np.concatenate(scores))

    seen = np.mean([rule(1.5, n).predict_set(o).sum(1).mean() for n, o in zip(new, own)])
    before = rule(1.5, *new)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # samples trained on get other sizes
        size = before.predict_set(fitted._predict_log_proba(X)).sum(1).mean()
    assert size != seen < 1.5
    expected = rule(1.5 * (seen / size) ** (min(1, seen / 1.5) ** 8), *new)
    assert fitted.threshold_ == pytest.approx(expected.threshold_, rel=1e-12)
    assert fitted.threshold_ != pytest.approx(before.threshold_, rel=1e-6)
    assert fitted.rule_.n_samples_seen_ == 150


@pytest.mark.parametrize(("seen", "aim"), [(0.0, 1.5), (1e-9, 1.5), (0.9, 1.5), (50.0, 2.25)])
def test_the_size_is_changed_within_bounds(fitted, seen, aim, monkeypatch):
    """And not at all by networks that know their samples by heart."""
    clf = copy.deepcopy(fitted)
    clf.rule_ = AverageK(1.5, log_scores=True).partial_fit(fitted._predict_log_proba(X))
    aims = []
    monkeypatch.setattr(clf.rule_, "_aim_at", aims.append)
    clf._allow_for_the_last(seen, clf._check_inputs(X), None, np.arange(len(X)))
    assert aims == [pytest.approx(aim, rel=0.02)]


@pytest.mark.parametrize("aim", [0.2, 1.2, 1.7, 9])
def test_a_rule_that_aims_at_another_size_has_its_threshold(aim):
    """Within the bounds of the sizes; what it expects of new samples stays the size it is for."""
    scores = rng.standard_normal((40, 4))
    rule = AverageK(1.5, min_size=1, max_size=2)._begin_for_another(4)
    rule.partial_fit(scores, n_samples=40)
    moments = rule.expected_size_
    rule._aim_at(aim)
    other = AverageK(min(max(aim, 1), 2), min_size=1, max_size=2).fit(scores)
    assert rule.threshold_ == other.threshold_
    assert rule.expected_size_ == moments
    with pytest.raises(ValueError, match="closed"):
        rule.merge(AverageK(1.5, min_size=1, max_size=2).partial_fit(scores))


@pytest.mark.parametrize("n_samples", [300, None])
def test_enough_scores_are_remembered_for_the_largest_size(n_samples, monkeypatch):
    """Where sets hold `min_size` classes already, none would be needed for the size itself."""
    monkeypatch.setattr("sksetvalued._average_size.FREE_ENTRIES", 1)
    scores = rng.standard_normal((300, 20))
    rule = AverageK(1, min_size=1)._begin_for_another(20)
    for part in np.split(scores, 10):
        rule.partial_fit(part, n_samples=n_samples)
    assert rule._selector.n_kept < 600 < scores.size
    rule._allow_for(1, 5)
    expected = AverageK(1.5, min_size=1).fit(scores)
    assert rule.threshold_ == expected.threshold_
    assert rule._selector is None


def test_the_network_is_that_of_a_fit_on_all_samples_without_folds(fitted):
    plain = classifier(max_epochs=4, calibration_folds=None, calibration_fraction=None).fit(X, Y)
    np.testing.assert_array_equal(fitted.decision_function(X), plain.decision_function(X))
    assert fitted.n_iter_ == 4


@pytest.mark.parametrize("wide", [False, True])
def test_where_the_length_is_searched_the_last_network_is_trained_nearly_as_long(wide):
    """Between as many updates and as many epochs, and the nearer to these the more they are."""
    data = np.pad(X, ((0, 0), (0, 500))) if wide else X
    clf = classifier(calibration_folds=2)
    lengths = []

    def train(*args, **kwargs):
        result = type(clf)._train(clf, *args, **kwargs)
        lengths.append((len(args[0]), clf.n_iter_, dict(clf.net_.callbacks_).get("best_epoch")))
        return result

    clf._train = train
    clf.fit(data, Y)
    (first, _, best), (second, of_fold, _), (whole, of_all, _) = lengths
    assert (first, second, whole) == (75, 75, 150)
    assert of_fold == best.best_epoch_
    epochs = best.best_epoch_ * (75 / 150) ** (1 - best.best_epoch_ / 150)
    assert of_all == clf.n_iter_ == math.ceil(epochs)
    # The last epoch goes through a part of its five batches.
    n_batches = sum(clf.net_.history[:, "train_batch_count"])
    assert abs(n_batches - epochs * 5) < 1
    assert clf.rule_.n_samples_seen_ == 150


def test_the_networks_of_the_folds_are_trained_like_that_of_all_samples():
    """In batches as large, with dropout as much: else scores would be sharper or flatter."""
    seen = []

    class Recorder(Callback):
        def on_train_begin(self, net, **kwargs):
            seen.append((net.batch_size, net.module_.backbone[-1].p))

    X = np.random.default_rng(0).normal(size=(1000, 2))
    clf = AverageKClassifier(1.5, calibration_folds=3, max_epochs=1, callbacks=[Recorder])
    clf.fit(X, X[:, 0] > 0)
    assert seen == [(63, pytest.approx(0.08))] * 4


def test_which_samples_set_the_threshold_by_default():
    seen = {}
    for name, params in {
        "search": {},
        "given length": {"max_epochs": 3},
        "a share": {"calibration_fraction": 0.3, "max_epochs": 3},
        "certificate": {"rule_params": {"finite_sample": True, "max_size": 3}, "max_epochs": 3},
        "none": {"calibration_folds": None},
    }.items():
        seen[name] = classifier(**params).fit(X, Y).rule_.n_samples_seen_ / len(X)
    assert seen["search"] == 1
    assert seen["given length"] == pytest.approx(0.1, abs=0.02)
    assert seen["a share"] == pytest.approx(0.3, abs=0.02)
    assert seen["certificate"] == pytest.approx(0.1, abs=0.02)
    assert seen["none"] == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize(
    ("folds", "n_columns", "n", "n_seen"),
    [
        ("auto", 1, 1500, 1500),
        ("auto", 1, 3000, 1800),
        ("auto", 1, 4500, 1800),
        ("auto", 1, 10500, 2100),
        ("auto", 1000, 4500, 3600),
        (3, 1, 4500, 4500),
    ],
)
def test_of_many_samples_as_many_folds_are_used_as_hold_out_enough(folds, n_columns, n, n_seen):
    column = np.arange(n) % 7
    data = scipy.sparse.csr_matrix((column, (range(n), np.zeros(n, int))), (n, n_columns))
    data = data.toarray() if n_columns == 1 else data
    noisy = (column > 2) ^ (np.arange(n) % 3 == 0)  # such as a few steps learn
    clf = classifier(patience=1, batch_size=1000, lr=0.1, calibration_folds=folds).fit(data, noisy)
    assert clf.rule_.n_samples_seen_ == n_seen


def test_what_folds_cannot_be_used_with_is_named(fitted):
    for params, match in (
        ({"calibration_fraction": 0.2}, "calibration_folds=3 and calibration_fraction=0.2"),
        ({"calibration_fraction": None}, "calibration_folds=3 and calibration_fraction=None"),
        ({"rule_params": {"finite_sample": True}}, "must be held out"),
        ({"calibration_folds": 1}, "'calibration_folds' parameter"),
    ):
        with pytest.raises(ValueError, match=match):
            classifier(**{"calibration_folds": 3, "max_epochs": 1, **params}).fit(X, Y)
    clf = classifier(max_epochs=1, calibration_folds=3, warm_start=True).fit(X, Y)
    with pytest.raises(ValueError, match="warm_start=True goes on"):
        clf.fit(X, Y)


def draw_of_rare_classes(rng, centres):
    shares = 1 / np.arange(1, len(centres) + 1)
    y = rng.choice(len(centres), 2600, p=shares / shares.sum())
    features = centres[y] + rng.normal(size=(len(y), 10))
    return features[:600], y[:600], features[600:]


def test_sets_have_their_size_where_many_classes_have_one_sample():
    """Their flat scores were missing: sets were a quarter to a half too large."""
    rng = np.random.default_rng(0)
    X, y, X_new = draw_of_rare_classes(rng, 3 * rng.normal(size=(300, 10)))
    model = AverageKClassifier(2, max_epochs=10, calibration_folds=5, random_state=0).fit(X, y)
    assert 1.7 < model.predict_set(X_new).sum(1).mean() < 2.35


def test_classes_of_one_sample_are_told():
    rows = np.random.default_rng(0).normal(size=(12, 3))
    with pytest.warns(UserWarning, match="67 % of the samples are the only ones"):
        classifier(max_epochs=1).fit(rows, [0, 0, 1, 1, *range(2, 10)])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*the only ones")
        classifier(max_epochs=1).fit(rows, [0, 0, 0, 1, 1, 1, *range(2, 8)])


def test_what_is_held_out_for_a_promise_is_drawn_without_a_look_at_the_labels(monkeypatch):
    rng, pairs = np.random.default_rng(0), np.repeat(np.arange(500), 2)
    kept, held = split_at_random(1000, 0.4, np.random.RandomState(0))
    assert sorted([*kept, *held]) == list(range(1000))
    assert len(held) == 400
    whole = (np.bincount(pairs[held], minlength=500) == 2).sum()
    assert abs(whole - 500 * 0.4 * 399 / 999) < 4 * np.sqrt(500 * 0.16 * 0.84)
    assert [len(part) for part in split_at_random(2, 0.1, rng)] == [1, 1]
    for classes, all_kept in ((pairs, 500), (np.arange(20), 20)):
        parts = split_at_random(len(classes), 0.4, np.random.RandomState(0), classes)
        assert sorted(np.concatenate(parts)) == list(range(len(classes)))
        assert len(np.unique(classes[parts[0]])) == all_kept
    kept_too = np.setdiff1d(held, split_at_random(1000, 0.4, np.random.RandomState(0), pairs)[1])
    assert len(kept_too) == whole
    for few in ([0, 0, 2], [2, 0, 0]):  # one is held out, which the draw alone would not do
        kept, held = split_at_random(3, 0.2, np.random.RandomState(0), np.array(few))
        assert set(np.take(few, kept)) == {0, 2}
        assert len(held) == 1
    monkeypatch.setattr(_labels, "split_per_class", None)
    params = {"rule_params": {"finite_sample": True, "max_size": 3}, "calibration_fraction": 0.3}
    assert classifier(max_epochs=1, **params).fit(X, Y).rule_.n_samples_seen_ == 45


def test_losses_with_counts_know_the_classes_that_a_fold_holds_out():
    X, y = np.arange(41.0)[:, None], np.r_[np.repeat([0, 1], 20), 2]
    params = {"loss": "logit_adjusted", "max_epochs": 1, "calibration_folds": 3}
    assert classifier(**params).fit(X, y).classes_.tolist() == [0, 1, 2]


def test_a_share_for_the_length_is_told_to_be_without_effect_beside_folds():
    with pytest.warns(UserWarning, match=r"validation_fraction=0\.5 has no effect"):
        told = classifier(validation_fraction=0.5, patience=3).fit(X, Y)
    plain = classifier(patience=3).fit(X, Y)
    np.testing.assert_array_equal(told.decision_function(X), plain.decision_function(X))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="validation_fraction")
        classifier(validation_fraction=0.5, max_epochs=2).fit(X, Y)
        classifier(validation_fraction=0.5, calibration_folds=None, patience=3).fit(X, Y)

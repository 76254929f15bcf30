"""PlugInClassifier: scikit-learn's checks, cross-fitting, calibration, any classifier."""

import functools
import pickle
import threading
import warnings

import numpy as np
import pytest
import torch
from joblib import parallel_config
from scipy.special import log_softmax
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_iris
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.exceptions import (
    DataConversionWarning,
    NotFittedError,
    UnsetMetadataPassedError,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import RFECV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import top_k_accuracy_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    PredefinedSplit,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain
from sklearn.naive_bayes import ComplementNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks
from skorch import NeuralNetClassifier

from sksetvalued import (
    AverageKClassifier,
    PlugInClassifier,
    TopKClassifier,
    calibrate,
    calibrate_part,
    cross_val_predict_set,
    predict_set,
)
from sksetvalued._predict import labels_of_sets, set_scores
from sksetvalued.losses import CrossEntropyLoss
from sksetvalued.metrics import average_set_size, set_coverage_score
from sksetvalued.rules import AverageError, AverageK, PointwiseError, TopK
from sksetvalued.training import split_at_random, split_per_class

LOGISTIC = LogisticRegression(tol=1e-2)


@parametrize_with_checks(
    [
        PlugInClassifier(LOGISTIC, AverageK(1.5, min_size=1)),
        PlugInClassifier(RidgeClassifier(), AverageK(1), cv=2),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        PlugInClassifier(LOGISTIC, TopK(1), cv=2),
        PlugInClassifier(GaussianNB(), PointwiseError(0.2)),
        PlugInClassifier(GaussianNB(), AverageK(1.5, objective="macro")),
    ]
)
def test_scikit_learn_checks_of_other_settings(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X = X + np.random.default_rng(0).normal(0, 6, X.shape)
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "7", "8", "9"])
    return X[:900], names[y[:900]], X[900:], names[y[900:]]


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(15, random_state=0),
        LOGISTIC,
        HistGradientBoostingClassifier(max_iter=3, max_leaf_nodes=5),
        make_pipeline(StandardScaler(), LOGISTIC),
        RidgeClassifier(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_any_classifier_becomes_set_valued_in_three_lines(digits, model):
    X, y, X_new, y_new = digits
    clf = PlugInClassifier(model, AverageK(2), cv=3)
    clf.fit(X, y)
    sets, top_1 = clf.predict_set(X_new), clf.score(X_new, y_new)
    assert sets.shape == (len(X_new), 10)
    assert 1.3 < average_set_size(sets) < 2.2
    assert set_coverage_score(y_new, sets, labels=clf.classes_) > top_1
    assert average_set_size(clf.calibrate(X_new).predict_set(X_new)) <= 2
    top = PlugInClassifier(model, TopK(1), cv=2).fit(X, y)
    best_two = np.sort(set_scores(top, X_new)[0], axis=1)[:, -2:]
    untied = best_two[:, 0] < best_two[:, 1]
    best = np.array([row[0] for row in top.predict_labels(X_new)])
    np.testing.assert_array_equal(best[untied], top.predict(X_new)[untied])


@pytest.mark.slow
def test_text_pipeline_on_banking77(shared_data):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(shared_data / "banking77.csv.gz")
    train, test = frame[frame.split == "train"], frame[frame.split == "test"]
    model = make_pipeline(TfidfVectorizer(), MultinomialNB(alpha=0.05))
    clf = PlugInClassifier(model, AverageK(3, min_size=1, max_size=10), cv=3)
    clf.fit(train.text, train.label)
    sets = clf.predict_set(test.text)
    assert sets.sum(1).min() >= 1
    assert sets.sum(1).max() <= 10
    assert average_set_size(sets) == pytest.approx(3, abs=0.4)
    coverage = set_coverage_score(test.label, sets, labels=clf.classes_)
    proba = clf.predict_proba(test.text)
    assert coverage > top_k_accuracy_score(test.label, proba, k=3, labels=clf.classes_)


def thresholds_by_folds(rule, model, X, y, cv, weight=None, scores_of=GaussianNB.predict_proba):
    """Return the threshold of out-of-fold scores, and that for what sets of own samples show."""

    def scores(rows, of):
        weights = {} if weight is None else {"sample_weight": weight[rows]}
        return scores_of(clone(model).fit(X[rows], y[rows], **weights), X[of])

    def fitted(k):
        return clone(rule).set_params(k=k).fit(out, sample_weight=weight)

    def average_size(parts):
        weights = None if weight is None else np.concatenate([weight[rows] for rows in parts])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # samples trained on get other sizes
            sizes = [before.predict_set(scores(rows, rows)).sum(1) for rows in parts]
        return np.average(np.concatenate(sizes), weights=weights)

    splits = [*cv.split(X, y)]
    out = np.empty((len(y), len(np.unique(y))))
    for train, test in splits:
        out[test] = scores(train, test)
    before = fitted(rule.k)
    seen = average_size([train for train, _ in splits])
    change = (seen / average_size([np.arange(len(y))])) ** (min(1, seen / rule.k) ** 8)
    return before.threshold_, fitted(rule.k * change).threshold_


def test_cross_fitting_calibrates_on_out_of_fold_scores(digits):
    """The size is divided by how much larger sets of own samples are for the model of all."""
    X, y, _, _ = digits
    cv = StratifiedKFold(4)
    clf = PlugInClassifier(GaussianNB(), AverageK(2), cv=cv).fit(X, y)
    before, expected = thresholds_by_folds(AverageK(2), GaussianNB(), X, y, cv)
    assert clf.rule_.threshold_ == expected != before
    assert clf.rule_.expected_size_[0] == pytest.approx(2, abs=1 / len(y))
    np.testing.assert_array_equal(
        clf.estimator_.predict_proba(X), GaussianNB().fit(X, y).predict_proba(X)
    )


@pytest.mark.parametrize("rule", [AverageK(2), AverageError(0.1, objective="macro")], ids=str)
def test_a_share_that_is_held_out_calibrates_the_classifier_as_it_stays(digits, rule):
    X, y, _, _ = digits
    weight = np.where(np.arange(len(y)) % 7, 1.0, 0.0)
    clf = PlugInClassifier(GaussianNB(), rule, cv=0.25).fit(X, y, sample_weight=weight)
    # No fold and no rule knows more of the classifier than what it was trained on.
    kept = np.flatnonzero(weight)
    target, random_state = np.unique(y[kept], return_inverse=True)[1], np.random.RandomState(0)
    if rule.requires_held_out:
        train, held = split_at_random(len(target), 0.25, random_state, target)
    else:
        train, held = split_per_class(target, 0.25, random_state)
    train, held = kept[train], kept[held]
    assert abs(len(held) / len(kept) - 0.25) < 0.02
    model = GaussianNB().fit(X[train], y[train])
    np.testing.assert_array_equal(clf.predict_proba(X), model.predict_proba(X))
    by_hand = PlugInClassifier(model, clone(rule), cv="prefit")
    if rule.objective == "macro":
        prior = np.unique(y[train], return_counts=True)[1] / len(train)
        by_hand.rule.set_params(prior=prior)
    assert clf.rule_.threshold_ == by_hand.fit(X[held], y[held]).rule_.threshold_


def test_what_is_promised_is_calibrated_on_a_fifth_unless_said_otherwise(digits):
    X, y, _, _ = digits
    one, other = (
        PlugInClassifier(GaussianNB(), AverageError(0.1), cv=cv).fit(X, y).rule_.threshold_
        for cv in (None, 0.2)
    )
    assert one == other
    for labels in ([0, 1, 2], [0]):
        rows = np.eye(3)[: len(labels)]
        with pytest.raises(ValueError, match=f"holds none .*n_samples={len(labels)}"):
            PlugInClassifier(GaussianNB(), AverageError(0.1)).fit(rows, labels)
    with pytest.raises(ValueError, match="n_samples=1"):
        PlugInClassifier(GaussianNB(), AverageK(1)).fit(np.eye(1), [0])


def test_a_kernel_keeps_its_columns_where_weights_are_zero():
    X, y = load_iris(return_X_y=True)
    kernel, weight = X @ X.T, np.where(np.arange(150) % 3, 1.0, 0.0)
    svc = SVC(kernel="precomputed", random_state=0)
    plug_in = PlugInClassifier(svc, AverageK(1.5)).fit(kernel, y, sample_weight=weight)
    assert plug_in.n_features_in_ == 150
    expected = svc.fit(kernel, y, sample_weight=weight).decision_function(kernel)
    np.testing.assert_array_equal(plug_in.decision_function(kernel), expected)
    assert plug_in.rule_.expected_size_[0] == pytest.approx(1.5, abs=0.02)
    scores = cross_val_score(plug_in, kernel, y, cv=2, params={"sample_weight": weight})
    assert np.isfinite(scores).all()
    # One that takes no weights is not given what has none.
    neighbours = PlugInClassifier(KNeighborsClassifier(metric="precomputed"), AverageK(1.5))
    with pytest.warns(UserWarning, match="names no sample_weight"):
        neighbours.fit(kernel.max() - kernel, y, sample_weight=weight)
    assert neighbours.estimator_.n_samples_fit_ == 100


@pytest.mark.parametrize("cv", ["prefit", 0.2, 3])
def test_a_fit_that_fails_changes_nothing(digits, cv):
    X, y = digits[:2]
    first, other = GaussianNB().fit(X[:, :9], y), GaussianNB().fit(X, y == "two")
    clf = PlugInClassifier(first, rule=TopK(2), cv=cv).fit(X[:, :9], y)
    before = {name: value for name, value in vars(clf).items() if name.endswith("_")}
    clf.set_params(estimator=other, rule=TopK(2.5))
    with pytest.raises(TypeError, match="k must be an integer"):
        clf.fit(X, y == "two")
    assert {name: value for name, value in vars(clf).items() if name.endswith("_")} == before
    assert clf.predict_set(X[:3, :9]).sum(1).tolist() == [2, 2, 2]


def test_prefit_leaves_the_classifier_alone(digits):
    X, y, X_new, y_new = digits
    model = GaussianNB().fit(X, y)
    for estimator in (model, FrozenEstimator(model)):
        clf = PlugInClassifier(estimator, AverageK(2), cv="prefit").fit(X_new)
        assert clf.estimator_ is estimator
        sets = clf.predict_set(X_new)
        assert sets.sum(1).mean() <= 2
        assert sets.sum() == 2 * len(X_new)
        np.testing.assert_array_equal(clf.predict(X_new), model.predict(X_new))
        np.testing.assert_array_equal(clf.classes_, model.classes_)
    conformal = PlugInClassifier(model, AverageError(0.1), cv="prefit").fit(X_new, y_new)
    assert set_coverage_score(
        y_new, conformal.predict_set(X_new), labels=clf.classes_
    ) == pytest.approx(0.9, abs=2 / len(y_new))


def test_a_classifier_that_is_fitted_anew_to_other_classes_is_refused(digits):
    X, y, X_new, _ = digits
    few, others = y < "six", y > "five"
    model = GaussianNB().fit(X[few], y[few])
    clf = PlugInClassifier(model, TopK(1), cv="prefit").fit(X_new)
    model.fit(X[others], y[others])
    calls = [clf.predict_set, clf.predict_labels, clf.predict, clf.predict_proba, clf.calibrate]
    for call in [*calls, lambda X: calibrate(clf, iter([X]))]:
        with pytest.raises(ValueError, match="GaussianNB was fitted anew since, to .*: call fit"):
            call(X_new)
    assert clf.fit(X_new).predict_labels(X_new[:1])[0] == model.predict(X_new[:1])


def test_another_classifier_than_that_of_fit_is_warned_of(digits):
    X, y, X_new, _ = digits
    first, second = GaussianNB().fit(X[:90], y[:90]), GaussianNB().fit(X, y)
    clf = PlugInClassifier(first, TopK(1), cv="prefit").fit(X_new)
    expected = clf.predict_set(X_new)
    clf.set_params(estimator=second)
    for call in (clf.calibrate, clf.predict_set):
        with pytest.warns(UserWarning, match="not the classifier of fit, which is still in use"):
            call(X_new)
    with pytest.warns(UserWarning, match="still in use"):
        np.testing.assert_array_equal(clf.predict_set(X_new), expected)
    assert (clf.fit(X_new).predict_set(X_new) != expected).any()
    clf.predict_set(X_new)


@pytest.mark.parametrize("cv", [0.5, 3])
def test_a_frozen_classifier_may_know_more_classes(digits, cv):
    X, y, X_new, y_new = digits
    model = GaussianNB().fit(X, y)
    rows = y_new > "five"  # in the order of the alphabet: none of the first classes
    clf = PlugInClassifier(FrozenEstimator(model), TopK(1), cv=cv).fit(X_new[rows], y_new[rows])
    assert clf.classes_.tolist() == model.classes_.tolist()
    assert np.array_equal(clf.class_counts_ > 0, model.classes_ > "five")
    assert [labels[0] for labels in clf.predict_labels(X[:9])] == model.predict(X[:9]).tolist()
    if cv == 0.5:
        clf.set_params(rule=AverageError(0.1)).fit(X_new[rows], y_new[rows])
        sets = clf.predict_set(X_new[rows])
        covered = set_coverage_score(y_new[rows], sets, labels=clf.classes_)
        assert covered == pytest.approx(0.9, abs=0.04)


@pytest.mark.parametrize("cv", [3, 0.3, "prefit"])
def test_classes_may_be_in_any_order(digits, cv):
    X, y, X_new, y_new = digits

    class Reversed(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            self.inner_ = GaussianNB().fit(X, y)
            self.classes_ = self.inner_.classes_[::-1]
            return self

        def predict_proba(self, X):
            return self.inner_.predict_proba(X)[:, ::-1]

        def predict(self, X):
            return self.inner_.predict(X)

    models = [cls().fit(X, y) if cv == "prefit" else cls() for cls in (GaussianNB, Reversed)]
    data = (X_new, y_new) if cv == "prefit" else (X, y)
    for rule in (AverageK(1.5), AverageError(0.1)):
        if rule.requires_held_out and cv == 3:
            continue
        plain, other = (PlugInClassifier(m, clone(rule), cv=cv).fit(*data) for m in models)
        assert other.classes_.tolist() == plain.classes_[::-1].tolist()
        np.testing.assert_array_equal(other.predict_set(X_new)[:, ::-1], plain.predict_set(X_new))


def test_folds_of_matrices_of_kernels_lose_columns_too():
    X, y = load_iris(return_X_y=True)
    weight = np.where(np.arange(150) % 7 == 0, 0.5, 1.0)
    plain = PlugInClassifier(SVC(kernel="linear"), AverageK(1.5), cv=3)
    kernel = PlugInClassifier(SVC(kernel="precomputed"), AverageK(1.5), cv=3)
    K = X @ X.T
    plain.fit(X, y, sample_weight=weight)
    kernel.fit(K, y, sample_weight=weight)
    assert kernel.rule_.threshold_ == pytest.approx(plain.rule_.threshold_, abs=1e-3)
    of_kernel, of_plain = (
        cross_val_predict_set(model, given, y, cv=3) for model, given in ((kernel, K), (plain, X))
    )
    assert (of_kernel != of_plain).mean() < 0.01


@pytest.mark.parametrize(("rule", "cv"), [(AverageK(1.5), 0.3), (AverageError(0.1), None)])
def test_matrices_of_kernels_are_not_split_out_of_sight(rule, cv):
    """No matrix to new samples would have the columns of the part that was trained on."""
    X, y = load_iris(return_X_y=True)
    svc = SVC(kernel="precomputed")
    with pytest.raises(ValueError, match=f"cv={cv} with rule=.* trains SVC on .*cv='prefit'"):
        PlugInClassifier(svc, rule, cv=cv).fit(X @ X.T, y)
    kept = np.arange(150) % 3 > 0
    svc.fit(X[kept] @ X[kept].T, y[kept])
    model = PlugInClassifier(svc, rule, cv="prefit").fit(X[~kept] @ X[kept].T, y[~kept])
    assert model.predict_set(X @ X[kept].T).any()


class PipelineOfOthers(Pipeline):
    def fit(self, X, y=None, **params):
        return super().fit(X, y, **params)


class SplitsByGroups:
    """A splitter that says nothing of the metadata that it takes."""

    def get_n_splits(self, X=None, y=None, groups=None):
        return 3

    def split(self, X, y, groups):
        return GroupKFold(3).split(X, y, groups)


def test_groups_reach_the_splitter_and_weights_the_folds():
    X, y = load_iris(return_X_y=True)
    groups, weight = np.arange(150) % 10, 1.0 + np.arange(150) % 3
    splits = list(GroupKFold(3).split(X, y, groups))
    given = PlugInClassifier(GaussianNB(), AverageK(1.5), cv=GroupKFold(3)).fit(
        X, y, groups=groups
    )
    listed = PlugInClassifier(GaussianNB(), AverageK(1.5), cv=splits).fit(X, y)
    search = GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9]}, cv=GroupKFold(2))
    for model, cv in (
        (search, StratifiedKFold(2)),
        (search, GroupKFold(2)),
        (make_pipeline(GaussianNB()), GroupKFold(2)),
        (PipelineOfOthers([("nb", GaussianNB())]), GroupKFold(2)),
        (VotingClassifier([("nb", GaussianNB())], voting="soft"), GroupKFold(2)),
        (CalibratedClassifierCV(GaussianNB(), cv=2), GroupKFold(2)),
        (RFECV(LogisticRegression(max_iter=500), cv=GroupKFold(2)), GroupKFold(2)),
        (Delegates(GaussianNB()), GroupKFold(2)),
    ):
        PlugInClassifier(model, AverageK(1.5), cv=cv).fit(X, y, groups=groups)
    assert given.rule_.threshold_ == listed.rule_.threshold_
    with pytest.raises(ValueError, match=r"cv=GroupKFold.*cannot split.*pass groups= to fit"):
        given.fit(X, y)
    own = PlugInClassifier(GaussianNB(), AverageK(1.5), cv=SplitsByGroups())
    assert own.fit(X, y, groups=groups).rule_.threshold_ == listed.rule_.threshold_
    for cv in (None, 5, 0.2, StratifiedKFold(2), splits):
        with pytest.raises(ValueError, match=r"groups are given, but cv=.*GaussianNB.fit takes"):
            PlugInClassifier(GaussianNB(), AverageK(1.5), cv=cv).fit(X, y, groups=groups)
    # A share would hold out samples of groups that are trained on.
    for cv in (None, 0.2, GroupKFold(2), GroupShuffleSplit(2)):
        with pytest.raises(ValueError, match=r"whole groups .* cv='prefit'") as caught:
            PlugInClassifier(GaussianNB(), AverageError(0.1), cv=cv).fit(X, y, groups=groups)
        assert "cv=0.2, which" not in str(caught.value)
    model, params = PlugInClassifier(GaussianNB(), AverageK(1.5)), {"sample_weight": weight}
    sets = cross_val_predict_set(model, X, y, groups=groups, cv=GroupKFold(3), params=params)
    for train, test in splits:
        model.fit(X[train], y[train], sample_weight=weight[train])
        np.testing.assert_array_equal(sets[test], model.predict_set(X[test]))


def test_sets_out_of_fold_of_a_frozen_model_leave_out_classes_without_samples():
    X, y = load_iris(return_X_y=True)
    frozen = FrozenEstimator(GaussianNB().fit(X[::2], y[::2]))
    model, rows = PlugInClassifier(frozen, TopK(1), cv="prefit"), y != 1
    sets = cross_val_predict_set(model, X[rows], y[rows])
    np.testing.assert_array_equal(sets, model.fit(X).predict_set(X[rows])[:, [0, 2]])


class Duck(BaseEstimator):
    """What has `predict_proba` and `classes_`, and says nothing of what it is."""

    def fit(self, X, y):
        self.inner_ = GaussianNB().fit(X, y)
        self.classes_ = self.inner_.classes_
        return self

    def predict(self, X):
        return self.inner_.predict(X)

    def predict_proba(self, X):
        return self.inner_.predict_proba(X)


def test_whatever_scores_like_a_classifier_is_one(digits):
    X, y = digits[:2]
    of_duck, plain = (PlugInClassifier(m, AverageK(2)).fit(X, y) for m in (Duck(), GaussianNB()))
    np.testing.assert_array_equal(of_duck.predict_set(X), plain.predict_set(X))
    assert is_classifier(of_duck)
    with pytest.raises(TypeError, match="GaussianMixture has no classes_"):
        PlugInClassifier(GaussianMixture(3), TopK(1)).fit(X, y)
    with pytest.raises(TypeError, match="must be a classifier, but GaussianMixture has no"):
        PlugInClassifier(GaussianMixture(3).fit(X), TopK(1), cv="prefit").fit(X, y)


class Undecodable(KFold):
    def split(self, X, y=None, groups=None):
        yield b"\xff".decode()


@pytest.mark.parametrize("place", [[150], [-151], [0.5], [1.0], ["a"]])
def test_positions_that_are_none_are_named(place):
    X, y = load_iris(return_X_y=True)
    for fold in ((np.arange(150), np.array(place)), (np.array(place), np.arange(150))):
        with pytest.raises(ValueError, match="fold 1 of cv holds what is no position among"):
            PlugInClassifier(GaussianNB(), TopK(1), cv=[(y > 0, y < 1), fold]).fit(X, y)


def test_an_error_of_a_splitter_is_named():
    with pytest.raises(ValueError, match=r"cv=Undecodable.*cannot split.*'utf-8' codec"):
        PlugInClassifier(GaussianNB(), TopK(1), cv=Undecodable()).fit(*load_iris(return_X_y=True))


@pytest.mark.parametrize(
    ("cv", "message"), [(KFold, "KFold is a class"), ([1, 2], r"cv=\[1, 2\]")]
)
def test_folds_that_are_none_are_named(cv, message, digits):
    with pytest.raises(TypeError, match=message):
        PlugInClassifier(GaussianNB(), TopK(1), cv=cv).fit(*digits[:2])


def test_a_clone_of_what_was_fitted_before_is_told_to_be_frozen(digits):
    model = PlugInClassifier(GaussianNB().fit(*digits[:2]), TopK(1), cv="prefit")
    with pytest.raises(NotFittedError, match=r"cv='prefit'.*GaussianNB.*FrozenEstimator"):
        cross_val_predict_set(model, *digits[:2])


def test_labels_that_the_classifier_leaves_out_are_refused():
    X, y = load_iris(return_X_y=True)
    y[::3] = -1
    for cv in (0.5, 3):
        learns = PlugInClassifier(SelfTrainingClassifier(GaussianNB()), TopK(1), cv=cv)
        with pytest.raises(ValueError, match=r"not trained on: \[-1\].*cv='prefit'"):
            learns.fit(X, y)


def test_calibrate_on_unlabelled_data_and_after_changing_the_rule(digits):
    X, y, X_new, _ = digits
    clf = PlugInClassifier(GaussianNB(), AverageK(2)).fit(X, y)
    inner = clf.estimator_
    assert clf.calibrate(X_new) is clf
    assert clf.predict_set(X_new).sum() == 2 * len(X_new)
    clf.set_params(rule__k=3.5, rule__max_size=5)
    said = r"k=3.5.*was set after the calibration of .*k=2.*call calibrate\(X\),"
    with pytest.warns(UserWarning, match=said):
        assert clf.predict_set(X_new).sum() == 2 * len(X_new)
    clf.calibrate(X_new)
    sizes = clf.predict_set(X_new).sum(1)
    assert sizes.max() == 5
    assert 3.5 - 1 / len(X_new) <= sizes.mean() <= 3.5
    assert clf.estimator_ is inner
    with pytest.raises(NotFittedError):
        PlugInClassifier(GaussianNB(), AverageK(2)).calibrate(X_new)


def test_predict_labels_are_the_sets_likeliest_first(digits):
    X, y, X_new, _ = digits
    clf = PlugInClassifier(GaussianNB(), AverageK(2)).fit(X, y)
    proba = clf.predict_proba(X_new)
    for labels, in_set, p in zip(clf.predict_labels(X_new), clf.predict_set(X_new), proba):
        assert set(labels) == set(clf.classes_[in_set])
        likelihood = p[np.searchsorted(clf.classes_, labels)]
        assert (np.diff(likelihood) <= 0).all()


def test_labels_of_many_rows_are_those_of_each():
    """Ties go to the last column; rows are more than are ordered at once."""
    rng, n_classes = np.random.default_rng(0), 300
    scores, mask = rng.integers(0, 3, (2000, n_classes)), rng.random((2000, n_classes)) < 0.01
    classes = np.char.add("c", np.arange(n_classes).astype(str))
    labels = labels_of_sets(mask, scores, classes)
    assert len(labels) == len(mask) > (1 << 19) / n_classes
    for found, score, in_set in zip(labels, scores, mask):
        expected = sorted(np.flatnonzero(in_set), key=lambda c: (score[c], c), reverse=True)
        assert found.tolist() == classes[expected].tolist()


def test_macro_prior_comes_from_the_training_labels(digits):
    X, y, _, _ = digits
    keep = np.random.default_rng(0).random(len(y)) < np.where(y == "one", 0.3, 1)
    clf = PlugInClassifier(GaussianNB(), TopK(2, objective="macro")).fit(X[keep], y[keep])
    _, counts = np.unique(y[keep], return_counts=True)
    np.testing.assert_array_equal(clf.class_counts_, counts)
    np.testing.assert_allclose(clf.rule_.prior_, counts / counts.sum())


def tail_of_three():
    """Return samples of three classes that overlap, of which two are rare, and their labels."""
    rng, y = np.random.default_rng(0), np.repeat(list("abc"), [300, 60, 20])
    return rng.normal(size=(len(y), 2)) + 2 * np.eye(3, 2)[np.searchsorted(list("abc"), y)], y


COUNTS, BALANCED = np.array([300, 60, 20]), np.array([1, 1, 1])


@pytest.mark.parametrize(
    ("model", "masses"),
    [
        (LogisticRegression(), COUNTS),
        (LogisticRegression(class_weight="balanced"), BALANCED),
        (LogisticRegression(class_weight={"b": 2, "c": 9}), [300, 120, 180]),
        (make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced")), BALANCED),
        (RandomForestClassifier(5, class_weight="balanced_subsample"), BALANCED),
        (GaussianNB(), COUNTS),
        (GaussianNB(priors=[0.2, 0.5, 0.3]), [2, 5, 3]),
        (MultinomialNB(fit_prior=False), BALANCED),
        (ComplementNB(), BALANCED),
        (TopKClassifier(1, backbone=(), max_epochs=1, class_weight="balanced"), COUNTS),
    ],
    ids=str,
)
def test_macro_sets_divide_by_the_prior_of_the_scores(model, masses):
    X, y = tail_of_three()
    X = np.abs(X)
    rule = TopK(1, objective="macro")
    fitted = PlugInClassifier(model, rule, cv=0.5).fit(X, y)
    again = PlugInClassifier(fitted.estimator_, rule, cv="prefit")
    for clf in (fitted, PlugInClassifier(model, rule).fit(X, y)):
        np.testing.assert_allclose(clf.rule_.prior_, np.array(masses) / np.sum(masses))
    if isinstance(getattr(model, "class_weight", None), dict):
        with pytest.raises(
            ValueError, match="class_weight of LogisticRegression changes.*pass prior="
        ):
            again.fit(X, y)
    else:
        np.testing.assert_allclose(again.fit(X, y).rule_.prior_, fitted.rule_.prior_)


def test_probabilities_that_weights_do_not_change_keep_the_prior_of_the_labels():
    X, y = tail_of_three()
    calibrated = CalibratedClassifierCV(LogisticRegression(class_weight="balanced"))
    for model in (calibrated, SVC(class_weight="balanced", probability=True)):
        clf = PlugInClassifier(model, TopK(1, objective="macro")).fit(X, y)
        np.testing.assert_allclose(clf.rule_.prior_, COUNTS / 380)
        # Nearly the mean of the probabilities, which weights would have made a third each.
        np.testing.assert_allclose(clf.predict_proba(X).mean(0), COUNTS / 380, atol=0.02)


class Repeats(BaseEstimator):
    """Resample as steps of imbalanced-learn do: a pipeline of theirs gives fit other samples."""

    def fit_resample(self, X, y):
        rows = np.r_[np.arange(len(y)), np.flatnonzero(y == "c").repeat(5)]
        return X[rows], y[rows]


class ResamplingPipeline(Pipeline):
    def fit(self, X, y):
        X, y = self.steps[0][1].fit_resample(X, y)
        self.steps[-1][1].fit(X, y)
        return self

    def predict_proba(self, X):
        return self.steps[-1][1].predict_proba(X)

    @property
    def classes_(self):
        return self.steps[-1][1].classes_


def test_a_prior_that_cannot_be_told_is_asked_for():
    X, y = tail_of_three()
    rule = TopK(1, objective="macro")
    balanced = RandomForestClassifier(5, class_weight="balanced")
    with pytest.raises(ValueError, match="class_weight of Random.* beside weights.*pass prior="):
        PlugInClassifier(balanced, rule).fit(X, y, sample_weight=np.ones(len(y)))
    steps = [("repeat", Repeats()), ("last", LogisticRegression())]
    with pytest.raises(ValueError, match="a step that resamples.*pass prior="):
        PlugInClassifier(ResamplingPipeline(steps), rule).fit(X, y)
    frozen = FrozenEstimator(ResamplingPipeline(steps).fit(X, y))
    with pytest.raises(ValueError, match="a step that resamples.*pass prior="):
        PlugInClassifier(frozen, rule, cv="prefit").fit(X, y)
    # Ours count what they were given.
    steps[-1] = ("last", TopKClassifier(1, backbone=(), max_epochs=1))
    clf = PlugInClassifier(ResamplingPipeline(steps), rule, cv=0.5).fit(X, y)
    np.testing.assert_allclose(clf.rule_.prior_, np.array([150, 30, 60]) / 240)
    fitted = LogisticRegression().fit(X, y)
    clf = PlugInClassifier(fitted, AverageK(2, objective="macro"), cv="prefit").fit(X, y)
    for take in (
        lambda: calibrate(clf, iter([X[:100], X[100:]]), y),
        lambda: calibrate_part(clf, X, y),
    ):
        with pytest.raises(ValueError, match="batches and parts do not tell: pass prior="):
            take()


def test_the_prior_is_counted_with_the_weights_that_the_classifier_got():
    X, y = tail_of_three()
    weight = 1 / COUNTS[np.searchsorted(list("abc"), y)]
    model = make_pipeline(StandardScaler(), LogisticRegression())
    clf = PlugInClassifier(model, TopK(1, objective="macro"))

    def counts(**params):
        return clf.fit(X, y, **params).class_counts_

    with pytest.warns(UserWarning, match="the rule only"):
        np.testing.assert_array_equal(counts(sample_weight=weight), COUNTS)
    np.testing.assert_allclose(counts(logisticregression__sample_weight=weight), BALANCED)
    clf.estimator = GridSearchCV(model, {"logisticregression__C": [1]}, cv=2)
    np.testing.assert_allclose(counts(logisticregression__sample_weight=weight), BALANCED)
    clf.estimator = LogisticRegression()
    np.testing.assert_allclose(counts(sample_weight=weight), BALANCED)
    with config_context(enable_metadata_routing=True):
        model[0].set_fit_request(sample_weight=True)
        for wanted, params, expected in (
            (False, {"sample_weight": weight}, COUNTS),
            (True, {"sample_weight": weight}, BALANCED),
            ("w", {"w": weight}, BALANCED),
        ):
            model[-1].set_fit_request(sample_weight=wanted)
            clf.estimator = model
            np.testing.assert_allclose(counts(**params), expected)
        model[-1].set_fit_request(sample_weight=True)
        clf.estimator = make_pipeline(BaggingClassifier(model[-1], 2))
        np.testing.assert_allclose(counts(sample_weight=weight), BALANCED)


class CountsFits(GaussianNB):
    n_fits = 0

    def fit(self, X, y, sample_weight=None):
        CountsFits.n_fits += 1
        return super().fit(X, y, sample_weight)


@pytest.mark.parametrize("cv", [None, 4, KFold(3)])
@pytest.mark.parametrize(
    "rule", [TopK(2), TopK(2, objective="macro"), PointwiseError(0.2)], ids=str
)
def test_a_rule_that_learns_nothing_of_scores_costs_one_fit(rule, cv):
    X, y = load_iris(return_X_y=True)
    X, y = X[::16], y[::16]  # of four samples a class at most, no five folds could be made
    CountsFits.n_fits = 0
    clf = PlugInClassifier(CountsFits(), rule, cv=cv).fit(X, y)
    assert CountsFits.n_fits == 1
    proba = GaussianNB().fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(clf.predict_set(X), rule.fit(proba, y).predict_set(proba))


def test_logarithms_are_those_that_the_classifier_gives():
    X, y = load_digits(return_X_y=True)
    X, X_test, y = X[:900], X[900:], y[:900]
    rule = TopK(3, log_scores=True)
    clf = PlugInClassifier(GaussianNB(), rule).fit(X, y)
    log_proba = clf.predict_log_proba(X_test)
    with np.errstate(divide="ignore"):
        underflowed = np.isinf(np.log(np.exp(log_proba)))
    assert underflowed.any()
    assert np.isfinite(log_proba).all()
    expected = rule.fit(log_proba).predict_set(log_proba)
    np.testing.assert_array_equal(clf.predict_set(X_test), expected)


class InThread(GaussianNB):
    """Notes in which threads it is fitted to how many samples."""

    seen = []

    def fit(self, X, y):
        self.seen.append((threading.current_thread(), len(X)))
        return super().fit(X, y)


def test_folds_are_fitted_beside_each_other(digits):
    X, y, X_new, _ = digits
    cv = StratifiedKFold(3)
    with parallel_config("threading"):
        clf = PlugInClassifier(InThread(), AverageK(2), cv=cv, n_jobs=2).fit(X, y)
    here = threading.current_thread()
    assert len(InThread.seen) == 4
    assert [n for thread, n in InThread.seen if thread is here] == [len(X)]
    alone = PlugInClassifier(GaussianNB(), AverageK(2), cv=cv).fit(X, y)
    assert clf.rule_.threshold_ == alone.rule_.threshold_
    np.testing.assert_array_equal(clf.predict_set(X_new), alone.predict_set(X_new))


def test_deep_classifiers_are_asked_for_log_probabilities_in_the_folds_too(digits):
    X, y, _, _ = digits
    cut = (y != "one") | (np.arange(len(y)) % 5 == 0)
    deep = TopKClassifier(2, loss="logit_adjusted", random_state=0)
    deep.set_params(max_epochs=3, batch_size=150, lr=1e-2)
    rule = AverageK(2, objective="macro", log_scores=True)
    cv = StratifiedKFold(3)
    clf = PlugInClassifier(deep, rule, cv=cv).fit(X[cut], y[cut])
    prior = clf.class_counts_ / clf.class_counts_.sum()

    def log_proba(model, X):
        log_prior = np.log(model.class_counts_ / model.class_counts_.sum())
        return log_softmax(model._scores(X) + log_prior, axis=1)

    rule.set_params(prior=prior)
    before, expected = thresholds_by_folds(rule, deep, X[cut], y[cut], cv, scores_of=log_proba)
    assert clf.rule_.threshold_ == pytest.approx(expected, abs=1e-6)
    assert abs(before - expected) > 1e-4


def test_log_scores_give_the_same_sets(digits):
    X, y, X_new, _ = digits
    for rule in (TopK(2, objective="macro"), PointwiseError(0.1)):
        plain = PlugInClassifier(LOGISTIC, rule, cv=2).fit(X, y)
        logs = PlugInClassifier(LOGISTIC, clone(rule).set_params(log_scores=True), cv=2).fit(X, y)
        np.testing.assert_array_equal(plain.predict_set(X_new), logs.predict_set(X_new))


def test_a_class_missing_from_a_fold_scores_zero_there(digits):
    X, y, _, _ = digits
    first = y == "9"
    with_9, without_9 = np.flatnonzero(first), np.flatnonzero(~first)
    folds = [(without_9, with_9), (np.arange(len(y)), without_9)]
    for model in (GaussianNB(), RidgeClassifier()):
        clf = PlugInClassifier(model, AverageK(2), cv=folds).fit(X, y)
        assert clf.rule_.n_samples_seen_ == len(y)
        assert clf.predict_set(X).shape == (len(y), 10)


def test_few_own_scores_of_many_models_are_looked_at(digits):
    """As many of all together as of the last one, at most; whatever the number of classes."""
    looked_at = []

    class Counting(GaussianNB):
        def predict_proba(self, X):
            looked_at.append(len(X))
            return super().predict_proba(X)

    X, y, _, _ = digits
    PlugInClassifier(Counting(), AverageK(2), cv=KFold(90)).fit(X[:, :3], y)
    own, held_out = looked_at[1:180:2], looked_at[:180:2]
    assert held_out == [10] * 90
    assert own == [99] * 90  # every ninth: 111 would be as many as 10,000 of all
    assert looked_at[180:] == [900]


def test_splitters_that_leave_samples_out_or_repeat_them(digits):
    X, y, _, _ = digits
    cv = ShuffleSplit(3, test_size=0.4, random_state=0)
    clf = PlugInClassifier(GaussianNB(), AverageK(2), cv=cv).fit(X, y)
    assert clf.rule_.n_samples_seen_ == 3 * 360


def test_a_bootstrap_as_large_as_the_data_trains_on_what_it_drew(digits):
    trained_on = []

    class Noting(GaussianNB):
        def fit(self, X, y):
            trained_on.append(X)
            return super().fit(X, y)

    X, y, _, _ = digits
    drawn = np.random.default_rng(0).integers(len(y), size=len(y))
    left = np.setdiff1d(np.arange(len(y)), drawn)
    PlugInClassifier(Noting(), AverageK(2), cv=[(drawn, left)]).fit(X, y)
    np.testing.assert_array_equal(trained_on, [X, X[drawn]])


def test_weights_reach_the_classifier_and_the_rule(digits):
    X, y, _, _ = digits
    weight = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
    cv = StratifiedKFold(3)
    clf = PlugInClassifier(GaussianNB(), AverageK(2), cv=cv).fit(X, y, sample_weight=weight)
    expected = GaussianNB().fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(clf.predict_proba(X), expected.predict_proba(X))
    before, expected = thresholds_by_folds(AverageK(2), GaussianNB(), X, y, cv, weight)
    assert clf.rule_.threshold_ == expected != before
    for model in (make_pipeline(GaussianNB()), OneVsRestClassifier(GaussianNB())):
        with pytest.warns(UserWarning, match="the rule only.*others, enable metadata routing"):
            PlugInClassifier(model, AverageK(2)).fit(X, y, sample_weight=weight)


@pytest.mark.parametrize("rule", [AverageK(1.5, objective="macro"), PointwiseError(0.2)], ids=str)
@pytest.mark.parametrize("splits", ["iterable", "a fold without weight"])
def test_a_weight_of_zero_leaves_the_sample_out(digits, rule, splits):
    X, y, X_test, _ = digits
    weight = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    weight[y == "7"] = 0
    folds = list(StratifiedKFold(3).split(X, y))
    if splits == "a fold without weight":
        folds.append((np.arange(len(y)), np.flatnonzero(weight == 0)))
    kept = np.flatnonzero(weight)
    place = np.cumsum(weight > 0) - 1
    kept_folds = [tuple(place[part[weight[part] > 0]] for part in fold) for fold in folds[:3]]
    clf = PlugInClassifier(GaussianNB(), rule, cv=folds).fit(X, y, sample_weight=weight)
    without = PlugInClassifier(GaussianNB(), rule, cv=kept_folds)
    without.fit(X[kept], y[kept], sample_weight=weight[kept])
    np.testing.assert_array_equal(clf.classes_, without.classes_)
    np.testing.assert_array_equal(clf.classes_, clf.estimator_.classes_)
    assert "7" not in clf.classes_
    np.testing.assert_array_equal(clf.class_counts_, without.class_counts_)
    np.testing.assert_array_equal(
        clf.class_counts_, [weight[y == name].sum() for name in clf.classes_]
    )
    np.testing.assert_array_equal(clf.predict_set(X_test), without.predict_set(X_test))
    clf.calibrate(X, y, sample_weight=weight)
    without.calibrate(X[kept], y[kept], sample_weight=weight[kept])
    if isinstance(rule, AverageK):
        assert clf.rule_.threshold_ == without.rule_.threshold_


@pytest.mark.parametrize("cv", [None, 0.2, GroupKFold(3), PredefinedSplit], ids=str)
def test_a_splitter_does_not_see_samples_of_weight_zero(digits, cv):
    """Only the last fifth counts, which the folds of all samples would not divide evenly."""
    X, y, _, _ = digits
    weight = np.where(np.arange(len(y)) < 720, 0.0, 2.0)
    groups = np.arange(len(y)) % 7
    some, fold = slice(720, None), np.arange(len(y)) % 4 - 1
    splitters = (cv(fold), cv(fold[some])) if cv is PredefinedSplit else (cv, cv)
    with config_context(enable_metadata_routing=True):
        one, other = (
            PlugInClassifier(GaussianNB().set_fit_request(sample_weight=True), AverageK(2), cv=cv)
            for cv in splitters
        )
        grouped = isinstance(cv, GroupKFold)
        one.fit(X, y, weight, **({"groups": groups} if grouped else {}))
        other.fit(X[some], y[some], weight[some], **({"groups": groups[some]} if grouped else {}))
    assert one.rule_.threshold_ == other.rule_.threshold_
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_splits_that_leave_nothing_to_train_on_or_to_hold_out_are_named(digits):
    X, y, _, _ = digits
    weight = np.where(np.arange(len(y)) < 600, 0.0, 1.0)
    first, last = np.arange(600), np.arange(600, 900)
    for fold, match in ([first, last], "fold 0 of cv trains on no"), ([last, first], "holds out"):
        clf = PlugInClassifier(GaussianNB(), AverageK(2), cv=[fold])
        with pytest.raises(ValueError, match=f"{match}.* sample_weight"):
            clf.fit(X, y, sample_weight=weight)


def test_splits_that_an_earlier_fit_used_up_are_named(digits):
    X, y, _, _ = digits
    clf = PlugInClassifier(GaussianNB(), AverageK(2), cv=KFold(3).split(X)).fit(X, y)
    with pytest.raises(ValueError, match="cv holds no splits.* pass a list"):
        clf.fit(X, y)


def test_nothing_of_an_earlier_fit_is_left(digits):
    pandas = pytest.importorskip("pandas")
    X, y, X_new, y_new = digits
    rule = AverageK(2, objective="macro")
    clf = PlugInClassifier(GaussianNB(), rule).fit(pandas.DataFrame(X).add_prefix("f"), y)
    few = GaussianNB().fit(X[y < "six", :9], y[y < "six"])
    clf.set_params(estimator=few, cv="prefit").fit(X_new[y_new < "six", :9], y_new[y_new < "six"])
    fresh = PlugInClassifier(few, rule, cv="prefit")
    fresh.fit(X_new[y_new < "six", :9], y_new[y_new < "six"])
    assert vars(clf).keys() == vars(fresh).keys()
    assert clf.rule_.threshold_ == fresh.rule_.threshold_


def test_classes_and_their_counts_are_those_of_the_deep_classifiers():
    X, y = np.random.default_rng(0).normal(size=(150, 4)), np.repeat([0, 1, 2], 50)
    for weight in (None, np.linspace(0.5, 2, 150), np.r_[np.ones(100), np.zeros(50)]):
        plug_in = PlugInClassifier(GaussianNB(), AverageK(1.5, objective="macro"))
        deep = AverageKClassifier(k=1.5, max_epochs=1, objective="macro")
        for model in (plug_in, deep):
            model.fit(X, y, sample_weight=weight)
        np.testing.assert_array_equal(plug_in.classes_, deep.classes_)
        np.testing.assert_array_equal(plug_in.class_counts_, deep.class_counts_)
        assert plug_in.class_counts_.dtype == deep.class_counts_.dtype


def test_metadata_routing_reaches_pipelines_and_splitters(digits):
    X, y, _, _ = digits
    weight = np.random.default_rng(0).integers(1, 3, len(y)).astype(float)
    groups = np.arange(len(y)) % 6
    with config_context(enable_metadata_routing=True):
        inner = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), GaussianNB())
        inner[-1].set_fit_request(sample_weight=True)
        cv = GroupKFold(3)
        clf = PlugInClassifier(inner, AverageK(2), cv=cv)
        clf.fit(X, y, sample_weight=weight, groups=groups)
        scaled = StandardScaler().fit_transform(X)
        expected = GaussianNB().fit(scaled, y, sample_weight=weight)
        np.testing.assert_allclose(clf.predict_proba(X), expected.predict_proba(scaled))
        with pytest.raises(ValueError, match="groups"):
            clf.fit(X, y, sample_weight=weight)


def test_sets_out_of_fold_take_metadata_as_predictions_of_scikit_learn_do(digits):
    X, y, _, _ = digits
    groups, weight = np.arange(len(y)) % 6, np.ones(len(y))
    model = PlugInClassifier(GaussianNB(), AverageK(2), cv=GroupKFold(3))
    with config_context(enable_metadata_routing=True):
        cv = GroupKFold(2)
        sets = cross_val_predict_set(model, X, y, cv=cv, params={"groups": groups})
        for train, test in cv.split(X, y, groups):
            model.fit(X[train], y[train], groups=groups[train])
            np.testing.assert_array_equal(sets[test], model.predict_set(X[test]))
        inner = DummyClassifier().set_fit_request(sample_weight=True)
        weighted = PlugInClassifier(inner, TopK(1)).set_fit_request(sample_weight=True)
        params = {"cv": 2, "params": {"sample_weight": 1.0 + 9 * (y == "7")}}
        with parallel_config("threading"):  # whose threads have a configuration of their own
            for n_jobs in (None, 2):
                model = make_pipeline(weighted)
                assert cross_val_predict_set(model, X, y, n_jobs=n_jobs, **params)[:, 0].all()
        with pytest.raises(ValueError, match="params={'groups': groups}"):
            cross_val_predict_set(model, X, y, cv=cv, groups=groups)
        refused = TopKClassifier(2, max_epochs=1)
        params = {"sample_weight": weight}
        with pytest.raises(UnsetMetadataPassedError):
            cross_val_predict_set(refused, X, y, cv=2, params=params)
        refused.set_fit_request(sample_weight=False)
        with pytest.raises(TypeError, match="sample_weight"):
            cross_val_predict_set(refused, X, y, cv=2, params=params)


def test_logarithms_of_probabilities_are_those_of_the_classifier(digits):
    X, y, X_new, _ = digits
    for model in (LogisticRegression(max_iter=20), TopKClassifier(2, max_epochs=2)):
        clf = make_pipeline(PlugInClassifier(model, TopK(2))).fit(X, y)
        log_proba = clf.predict_log_proba(X_new)
        np.testing.assert_allclose(np.exp(log_proba), clf.predict_proba(X_new), rtol=1e-6)
    scores = model.fit(X, y).decision_function(X_new)
    layer = model.net_.module_.head
    with torch.no_grad():  # margins whose exponentials are zero
        layer.weight.mul_(1e4)
        layer.bias.mul_(1e4)
    expected = log_softmax(1e4 * scores.astype(float), axis=1)
    assert (np.exp(expected) == 0).any()
    np.testing.assert_allclose(model.predict_log_proba(X_new), expected, rtol=1e-3, atol=0.5)
    assert not hasattr(PlugInClassifier(LinearSVC(), TopK(2)), "predict_log_proba")


def test_without_samples_or_classifier_something_is_said(digits):
    X, y, _, _ = digits
    with pytest.raises(ValueError, match="X holds no samples"):
        PlugInClassifier(GaussianNB(), AverageK(2)).fit(X[:0], y[:0])
    assert "PlugInClassifier" in PlugInClassifier(None, None)._repr_html_()


class Delegates(BaseEstimator):
    """A classifier that has no method `fit` of its own, but answers for one."""

    def __init__(self, inner=None):
        self.inner = inner

    def __getattr__(self, name):
        if name in ("inner", "__setstate__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __sklearn_tags__(self):
        return self.inner.__sklearn_tags__()


def test_pickle_clone_and_refit(digits):
    X, y, X_new, _ = digits
    clf = PlugInClassifier(GaussianNB(), AverageK(2), cv=2).fit(X, y)
    sets = clf.predict_set(X_new)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(clf)).predict_set(X_new), sets)
    np.testing.assert_array_equal(clone(clf).fit(X, y).predict_set(X_new), sets)
    np.testing.assert_array_equal(clf.fit(X, y).predict_set(X_new), sets)


def test_methods_follow_the_classifier():
    assert not hasattr(PlugInClassifier(LinearSVC(), TopK(1)), "predict_proba")
    assert hasattr(PlugInClassifier(LinearSVC(), TopK(1)), "decision_function")
    assert not hasattr(PlugInClassifier(GaussianNB(), TopK(1)), "decision_function")
    tags = PlugInClassifier(HistGradientBoostingClassifier(), TopK(1)).__sklearn_tags__()
    assert tags.input_tags.allow_nan


class NoScores(ClassifierMixin, BaseEstimator):
    """A classifier that only predicts labels."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.repeat(self.classes_[:1], len(X))


@pytest.mark.parametrize(
    ("model", "rule", "cv", "error", "match"),
    [
        (NoScores(), TopK(1), None, TypeError, "neither predict_proba nor decision_function"),
        (LinearSVC(), PointwiseError(0.1), None, TypeError, "CalibratedClassifierCV"),
        (LinearSVC(), TopK(1, objective="macro"), None, TypeError, "CalibratedClassifierCV"),
        (GaussianNB(), "top_k", None, TypeError, "rule must be one of"),
        (GaussianNB(), TopK(0), None, ValueError, "k must be >= 1"),
        (GaussianNB(), TopK(1), "pre-fit", ValueError, "cv must be 'prefit'"),
        (GaussianNB(), TopK(1), 1, ValueError, "must be at least 2"),
        (GaussianNB(), TopK(1), "prefit", NotFittedError, "not fitted"),
        (GaussianNB(), TopK(1), 1.0, ValueError, "cv=1.0 must lie"),
        (GaussianNB(), AverageError(0.1), 5, ValueError, "promises .* cv=0.2, .* cv='prefit'"),
        (GaussianNB(), AverageK(2, finite_sample=True), 5, ValueError, "promises"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_bad_parts_are_named(digits, model, rule, cv, error, match):
    X, y, _, _ = digits
    with pytest.raises(error, match=match):
        PlugInClassifier(model, rule, cv=cv).fit(X, y)


def test_bad_data_is_named(digits):
    X, y, X_new, _ = digits
    clf = PlugInClassifier(GaussianNB(), AverageError(0.1), cv=0.5).fit(X, y)
    with pytest.raises(ValueError, match="not trained on: \\['ten'\\]"):
        clf.calibrate(X_new[:2], ["one", "ten"])
    with pytest.raises(ValueError, match="y is None, but rule=AverageError.*: pass their labels"):
        clf.calibrate(X_new)
    with pytest.raises(ValueError, match="target y is None"):
        PlugInClassifier(GaussianNB(), TopK(1)).fit(X)
    constant = PlugInClassifier(DummyClassifier(), AverageK(2), cv=2).fit(X, y)
    assert constant.predict_set(X).sum(1).max() <= 2
    calibrated = CalibratedClassifierCV(LinearSVC(), cv=2)
    PlugInClassifier(calibrated, PointwiseError(0.1), cv=2).fit(X, y)


def test_warnings_say_where_the_package_was_called():
    X, y = load_digits(return_X_y=True)
    base = GaussianNB().fit(X[:900], y[:900])
    wide = AverageKClassifier(2, max_epochs=9, random_state=0).fit(X[:300], y[:300])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for rule in (AverageError(0.01), AverageError(0.1, coverage="class")):
            clf = PlugInClassifier(base, rule, cv="prefit").fit(X[:20], y[:20])
            clf.calibrate(X[:20], y[:20])
            clf.rule_.fit(clf.predict_proba(X[:20]), y[:20])
        predict_set(wide.set_params(k=12), X[:3])
    assert {warning.filename for warning in seen} == {__file__}
    assert len({warning.lineno for warning in seen}) == 4


@pytest.mark.parametrize("n_of_a_class", [[1, 150], [2] * 75])
@pytest.mark.parametrize(
    ("rule", "of_samples"),
    [
        (AverageK(1, finite_sample=True, max_size=2), True),
        (AverageError(0.4), True),
        (AverageError(0.4, coverage="class", interpolation=0.5), True),
        # Given how many samples each class has, whatever their proportions.
        (AverageError(0.4, coverage="class"), False),
        (AverageError(0.4, coverage="macro"), False),
    ],
    ids=str,
)
def test_a_promise_over_samples_warns_of_classes_with_few(n_of_a_class, rule, of_samples):
    X, _ = load_iris(return_X_y=True)
    y = np.repeat(np.arange(len(n_of_a_class)), n_of_a_class)
    model = PlugInClassifier(GaussianNB(), rule, cv=0.4)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model.fit(X[: len(y)], y[:150])
    said = [str(warning.message) for warning in seen]
    few = [text for text in said if "would be of classes of which none is left" in text]
    assert len(few) == of_samples
    assert all("'prefit'" in text for text in few)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, np.arange(150) % 3)


def test_a_classifier_that_shows_after_its_fit_how_it_scores_is_taken():
    X, y = load_iris(return_X_y=True)
    stack = StackingClassifier([("nb", GaussianNB())])
    assert PlugInClassifier(stack, TopK(2)).fit(X, y).predict_set(X[:3]).sum() == 6


@pytest.mark.parametrize("cv", [1, 0, True])
def test_too_few_folds_are_named(cv):
    with pytest.raises(ValueError, match=f"cv={cv} must be at least 2"):
        PlugInClassifier(GaussianNB(), TopK(2), cv=cv).fit(*load_iris(return_X_y=True))


def test_more_folds_than_samples_of_a_class_are_named_with_a_remedy():
    X, _ = load_iris(return_X_y=True)
    y = np.arange(150) // 3
    with pytest.raises(ValueError, match="largest has 3 samples: use cv=KFold"):
        PlugInClassifier(GaussianNB(), AverageK(2)).fit(X, y)
    folds = KFold(5, shuffle=True, random_state=0)
    PlugInClassifier(GaussianNB(), AverageK(2), cv=folds).fit(X, y)


def test_fit_parameters_of_a_classifier_that_is_fitted_are_refused(digits):
    X, y = digits[:2]
    model = PlugInClassifier(GaussianNB().fit(X, y), AverageK(2), cv="prefit")
    with pytest.raises(TypeError, match="fit takes no sample_weights: leave that out"):
        model.fit(X, y, sample_weights=np.ones(len(y)))


class ListsItsClasses(Duck):
    def fit(self, X, y):
        super().fit(X, y)
        self.classes_ = self.classes_.tolist()
        return self


def test_classes_may_be_a_list(digits):
    X, y = digits[:2]
    model, plain = (
        PlugInClassifier(inner, AverageK(2)).fit(X, y)
        for inner in (ListsItsClasses(), GaussianNB())
    )
    assert model.rule_.threshold_ == plain.rule_.threshold_


def test_the_number_of_folds_that_is_advised_can_be_made():
    X, y = load_iris(return_X_y=True)
    X, y = X[::40], np.arange(4)
    with pytest.raises(ValueError, match=r"use cv=KFold\(4, shuffle=True\)"):
        PlugInClassifier(GaussianNB(), AverageK(2)).fit(X, y)
    PlugInClassifier(GaussianNB(), AverageK(2), cv=KFold(4, shuffle=True)).fit(X, y)


@pytest.mark.parametrize("log_scores", [False, True])
def test_a_calibrated_rule_keeps_the_scale_of_its_scores(log_scores):
    X, y = load_iris(return_X_y=True)
    rule = AverageError(0.1, log_scores=log_scores)
    clf = PlugInClassifier(GaussianNB(), rule, cv=0.5).fit(X, y)
    before = clf.predict_set(X), clf.predict_labels(X)
    clf.set_params(rule__log_scores=not log_scores)
    with pytest.warns(UserWarning, match="still in use"):
        after = clf.predict_set(X), clf.predict_labels(X)
    np.testing.assert_array_equal(before[0], after[0])
    assert all(map(np.array_equal, before[1], after[1]))


@pytest.mark.parametrize("coverage", ["micro", "macro"])
def test_one_split_holds_out_what_a_promise_is_calibrated_on(coverage):
    X, y = load_digits(return_X_y=True)
    groups, weight = np.arange(len(y)) // 8, 1.0 + np.arange(len(y)) % 2
    rule, cv = AverageError(0.1, coverage=coverage), GroupShuffleSplit(1, random_state=0)
    clf = PlugInClassifier(GaussianNB(), rule, cv=cv).fit(X, y, weight, groups=groups)
    ((train, held),) = cv.split(X, y, groups)
    assert not set(groups[train]) & set(groups[held])
    model = GaussianNB().fit(X[train], y[train], weight[train])
    same = PlugInClassifier(model, rule, cv="prefit").fit(X[held], y[held], weight[held])
    np.testing.assert_array_equal(clf.predict_set(X), same.predict_set(X))
    np.testing.assert_array_equal(clf.class_counts_, np.bincount(y[train], weight[train]))
    listed = PlugInClassifier(GaussianNB(), rule, cv=[(train, held)]).fit(X, y, weight)
    assert listed.rule_.threshold_ == clf.rule_.threshold_
    for splits, match in (
        ([(train, held), (held, train)], "out-of-fold"),
        ([(train, np.append(held, train[0]))], r"trains on samples that it holds out"),
    ):
        with pytest.raises(ValueError, match=match):
            PlugInClassifier(GaussianNB(), rule, cv=splits).fit(X, y)


def test_a_column_of_labels_is_warned_of_where_it_is_passed():
    X, y = load_iris(return_X_y=True)
    with pytest.warns(DataConversionWarning, match="column-vector y") as caught:
        PlugInClassifier(GaussianNB(), TopK(1), cv=2).fit(X, y[:, None])
    assert {warning.filename for warning in caught} == {__file__}


def test_classes_of_several_outputs_are_refused():
    Y = np.random.default_rng(0).integers(0, 2, (40, 3))
    X = np.random.default_rng(1).normal(size=(40, 2))
    chain = ClassifierChain(LogisticRegression()).fit(X, Y)
    for use in (
        lambda: PlugInClassifier(chain, AverageK(2), cv="prefit").fit(X),
        lambda: set_scores(chain, X),
    ):
        with pytest.raises(ValueError, match="ClassifierChain has several outputs"):
            use()
    for model in (OneVsRestClassifier(LogisticRegression()), MLPClassifier((3,), max_iter=2)):
        several = make_pipeline(StandardScaler(), model).fit(X, Y)
        with pytest.raises(ValueError, match=r"(OneVs|MLP)\w+ was fitted to several labels"):
            PlugInClassifier(several, AverageK(1.5), cv="prefit").fit(X)
        with pytest.raises(ValueError, match=r"(OneVs|MLP)\w+ was fitted to several labels"):
            set_scores(several, X)
        for y in (Y[:, 0], Y.sum(1)):
            single = make_pipeline(StandardScaler(), model).fit(X, y)
            PlugInClassifier(single, AverageK(1.5), cv="prefit").fit(X)


@pytest.mark.parametrize("log_scores", [False, True])
def test_scores_that_are_called_probabilities_are_refused_where_samples_are_compared(log_scores):
    X, y = load_iris(return_X_y=True)
    params = {"criterion": CrossEntropyLoss, "train_split": None, "max_epochs": 1, "verbose": 0}
    net = NeuralNetClassifier(torch.nn.Linear(4, 3), **params).fit(X.astype(np.float32), y)
    rows = X.astype(np.float32)
    plug_in = PlugInClassifier(net, AverageK(1.5, log_scores=log_scores), cv="prefit")
    with pytest.raises(ValueError, match="numbers from .* predict_nonlinearity=functools"):
        plug_in.fit(rows, y)
    ranked = PlugInClassifier(net, TopK(1), cv="prefit").fit(rows, y)
    assert ranked.predict_set(rows)[range(150), net.predict(rows)].all()
    net.set_params(predict_nonlinearity=functools.partial(torch.softmax, dim=-1))
    assert plug_in.fit(rows, y).predict_set(rows).sum(1).mean() == pytest.approx(1.5, abs=0.02)


def test_a_class_that_a_fold_lacks_is_below_all_its_margins():
    X, y = load_iris(return_X_y=True)
    clf = PlugInClassifier(RidgeClassifier(), AverageK(1)).fit(X, y)
    lacks = RidgeClassifier().fit(X[y < 2], y[y < 2])
    assert (clf._scores_of_all_classes(lacks, X)[:, 2] == -np.inf).all()


class Grouped(GaussianNB):
    def fit(self, X, y, groups=None):
        self.groups_ = groups
        return super().fit(X, y)


@pytest.mark.parametrize("cv", [GroupKFold(3), KFold(3, shuffle=True)])
def test_groups_reach_a_classifier_that_names_them(cv):
    X, y = load_iris(return_X_y=True)
    groups = np.arange(150) % 10
    clf = PlugInClassifier(Grouped(), AverageK(1.5), cv=cv).fit(X, y, groups=groups)
    np.testing.assert_array_equal(clf.estimator_.groups_, groups)

"""Scorers through pipelines, searches, routing, folds that lack a class, and pickling."""

import copy
import pickle

import numpy as np
import pytest
from joblib import parallel_config
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import RFE
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import check_scoring, get_scorer, make_scorer
from sklearn.metrics import top_k_accuracy_score as sklearn_top_k
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    PredefinedSplit,
    cross_val_score,
    cross_validate,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from sksetvalued import PlugInClassifier
from sksetvalued._predict import predict_labels, predict_set, set_scores
from sksetvalued.metrics import (
    CoverageSizeDisplay,
    average_k_accuracy_score,
    average_k_scorer,
    set_coverage_score,
    set_coverage_scorer,
    set_size_scorer,
    top_k_scorer,
)
from sksetvalued.rules import AverageK, TopK

SCORERS = {
    "top": top_k_scorer(k=2),
    "average": average_k_scorer(k=1.5, average="macro"),
    "coverage": set_coverage_scorer(),
    "size": set_size_scorer(),
}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    noise = np.random.default_rng(0).normal(0, 6, X.shape)
    return (X + noise)[:400], y[:400]


@pytest.mark.parametrize(
    "model",
    [
        GaussianNB(),
        LinearSVC(),
        RidgeClassifier(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1e-2]}, cv=2),
        make_pipeline(StandardScaler(), GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9]})),
    ],
    ids=["proba", "decision", "ridge", "pipeline", "search", "nested"],
)
def test_top_k_scorer_is_scikit_learns_on_any_classifier(digits, model):
    X, y = digits
    model.fit(X[:300], y[:300])
    method = "predict_proba" if hasattr(model, "predict_proba") else "decision_function"
    theirs = make_scorer(sklearn_top_k, k=3, response_method=method, labels=np.arange(10))
    assert top_k_scorer(k=3)(model, X[300:], y[300:]) == theirs(model, X[300:], y[300:])
    ours = average_k_scorer(k=2)(model, X[300:], y[300:])
    scores = getattr(model, method)(X[300:])
    assert ours == average_k_accuracy_score(y[300:], scores, k=2, labels=np.arange(10))


@pytest.mark.parametrize("model", [GaussianNB(), LinearSVC()])
def test_binary_classifiers(model):
    X, y = make_classification(random_state=0, flip_y=0.2)
    model.fit(X[:60], y[:60])
    accuracy = get_scorer("accuracy")(model, X[60:], y[60:])
    assert top_k_scorer(k=1)(model, X[60:], y[60:]) == accuracy
    assert average_k_scorer(k=1.3)(model, X[60:], y[60:]) >= accuracy


def test_top_k_scorer_where_two_classes_tie():
    X, y = make_classification(random_state=0, flip_y=0.2)
    model = KNeighborsClassifier(2).fit(X[:60], y[:60])
    assert (model.predict_proba(X[60:]) == 0.5).any()
    assert top_k_scorer(k=1)(model, X[60:], y[60:]) == model.score(X[60:], y[60:])
    assert top_k_scorer(k=2)(model, X[60:], y[60:]) == 1


def test_sets_of_a_set_valued_model_through_pipelines_and_searches(digits):
    X, y = digits
    names = np.array([f"digit {i}" for i in range(10)])[y]
    plug = PlugInClassifier(GaussianNB(), AverageK(2), cv=2)
    pipe = make_pipeline(StandardScaler(), plug)
    search = GridSearchCV(
        pipe, {"pluginclassifier__rule__k": [1.5, 2.5]}, scoring=set_coverage_scorer(), cv=2
    )
    nested = make_pipeline(StandardScaler(), search)
    frozen = FrozenEstimator(clone(pipe).fit(X, names))
    for model in (pipe, search, nested, frozen):
        model.fit(X, names)
        sets = predict_set(model, X)
        assert sets.shape == (400, 10)
        labels = predict_labels(model, X)
        assert [len(row) for row in labels] == sets.sum(1).tolist()
        covered = np.mean([name in row for name, row in zip(names, labels)])
        assert set_coverage_scorer()(model, X, names) == covered
        assert set_size_scorer()(model, X) == sets.sum(1).mean()
    assert search.best_params_ == {"pluginclassifier__rule__k": 2.5}


def test_cross_validate_search_and_parallel_jobs(digits):
    X, y = digits
    model = PlugInClassifier(GaussianNB(), AverageK(2), cv=2)
    options = {"scoring": SCORERS, "cv": 3, "error_score": "raise"}
    serial = cross_validate(model, X, y, **options)
    with parallel_config("multiprocessing"):
        parallel = cross_validate(model, X, y, n_jobs=2, **options)
    for name in SCORERS:
        np.testing.assert_array_equal(serial[f"test_{name}"], parallel[f"test_{name}"])
    assert np.abs(serial["test_size"] - 2).max() < 0.5
    search = GridSearchCV(
        model, {"rule__k": [1, 3]}, scoring=SCORERS, refit="coverage", cv=2, error_score="raise"
    ).fit(X, y)
    assert search.best_params_ == {"rule__k": 3}
    assert search.score(X, y) == set_coverage_score(y, predict_set(search, X))


def test_a_fold_that_lacks_a_class_counts_misses(digits):
    X, y = digits
    split = PredefinedSplit(np.where(y == 3, 0, -1))
    model = PlugInClassifier(GaussianNB(), TopK(2), cv=2)
    scores = cross_validate(model, X, y, scoring=SCORERS, cv=split, error_score="raise")
    assert scores["test_top"] == scores["test_average"] == scores["test_coverage"] == 0
    only = cross_val_score(
        model, X[y < 4], y[y < 4], scoring=SCORERS["top"], cv=KFold(4), error_score="raise"
    )
    assert np.isfinite(only).all()


@pytest.mark.parametrize("name", SCORERS)
def test_scorers_pickle_copy_and_read_well(digits, name):
    X, y = digits
    scorer = SCORERS[name]
    model = PlugInClassifier(GaussianNB(), TopK(2), cv=2).fit(X, y)
    for other in (pickle.loads(pickle.dumps(scorer)), copy.deepcopy(scorer)):
        assert other == scorer
        assert hash(other) == hash(scorer)
        assert other(model, X, y) == scorer(model, X, y)
        assert repr(other) == repr(scorer)
    assert repr(SCORERS["top"]) == "top_k_scorer(k=2, average='micro')"
    assert eval(repr(scorer)) == scorer


@pytest.mark.parametrize("name", SCORERS)
def test_weight_two_is_a_duplicated_row(digits, name):
    X, y = digits
    model = PlugInClassifier(GaussianNB(), AverageK(2), cv=2).fit(X, y)
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    weighted = SCORERS[name](model, X, y, sample_weight=weight)
    copies = SCORERS[name](model, np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted == pytest.approx(copies, rel=1e-12)


def test_metadata_routing(digits):
    X, y = digits
    weight = np.where(y < 5, 1.0, 0.0)
    model = LogisticRegression(max_iter=20, tol=0.1)
    with config_context(enable_metadata_routing=True):
        scorer = average_k_scorer(k=1.2).set_score_request(sample_weight=True)
        model.set_fit_request(sample_weight=False)
        plain = top_k_scorer(k=1).set_score_request(sample_weight=False)
        weighted = cross_validate(
            model,
            X,
            y,
            scoring={"weighted": scorer, "plain": plain},
            params={"sample_weight": weight},
            cv=KFold(2),
            error_score="raise",
        )
        search = GridSearchCV(model, {"C": [1.0]}, scoring=scorer, cv=2)
        search.fit(X, y, sample_weight=weight)
        with pytest.raises(ValueError, match="sample_weight"):
            cross_validate(
                model, X, y, scoring=top_k_scorer(k=1), params={"sample_weight": weight}
            )
    for train, test, value, plain_value in zip(
        *zip(*KFold(2).split(X)), weighted["test_weighted"], weighted["test_plain"]
    ):
        fitted = LogisticRegression(max_iter=20, tol=0.1).fit(X[train], y[train])
        scorer = average_k_scorer(k=1.2)
        assert value == scorer(fitted, X[test], y[test], sample_weight=weight[test])
        assert plain_value == fitted.score(X[test], y[test])
    with pytest.raises(RuntimeError, match="enable_metadata_routing"):
        top_k_scorer().set_score_request(sample_weight=True)


def test_sample_weight_without_routing(digits):
    X, y = digits
    weight = np.where(y < 5, 1.0, 0.0)
    model = PlugInClassifier(GaussianNB(), TopK(2), cv=2).fit(X, y)
    scores = check_scoring(model, SCORERS)(model, X, y, sample_weight=weight)
    for name, scorer in SCORERS.items():
        assert scores[name] == scorer(model, X, y, sample_weight=weight)


def test_objective_has_its_effect_on_the_scores(digits):
    X, y = digits
    prior = np.linspace(1, 20, 10)
    micro = PlugInClassifier(GaussianNB(), TopK(2), cv=2).fit(X, y)
    macro = PlugInClassifier(GaussianNB(), TopK(2, objective="macro", prior=prior), cv=2).fit(X, y)
    scores, classes = set_scores(macro, X)
    np.testing.assert_array_equal(classes, np.arange(10))
    np.testing.assert_allclose(scores, set_scores(micro, X)[0] / prior)


def test_bad_input_is_named(digits):
    X, y = digits
    model = GaussianNB().fit(X, y)
    with pytest.raises(TypeError, match="PlugInClassifier"):
        predict_set(model, X)
    with pytest.raises(TypeError, match="PlugInClassifier"):
        set_coverage_scorer()(make_pipeline(StandardScaler(), GaussianNB()).fit(X, y), X, y)
    with pytest.raises(ValueError, match="refit=False"):
        predict_set(GridSearchCV(GaussianNB(), {}, refit=False, cv=2).fit(X, y), X)
    for n_classes in (3, 4):  # three classes have as many pairs
        some = y < n_classes
        ovo = SVC(decision_function_shape="ovo").fit(X[some], y[some])
        with pytest.raises(ValueError, match="decision_function_shape='ovr'"):
            top_k_scorer()(ovo, X[some], y[some])
        through = RFE(SVC(kernel="linear", decision_function_shape="ovo"), step=0.9)
        with pytest.raises(ValueError, match="SVC has decision_function_shape='ovo'"):
            top_k_scorer()(make_pipeline(through).fit(X[some], y[some]), X[some], y[some])
        rest = OneVsRestClassifier(SVC(decision_function_shape="ovo")).fit(X[some], y[some])
        assert top_k_scorer(1)(rest, X[some], y[some]) > 0.9
    with pytest.raises(TypeError, match="neither predict_proba nor decision_function"):
        top_k_scorer()(StandardScaler().fit(X), X, y)
    several = RandomForestClassifier(5).fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="several outputs"):
        top_k_scorer()(several, X, y)
    for make, argument, error in (
        (top_k_scorer, {"k": 0}, ValueError),
        (top_k_scorer, {"average": None}, ValueError),
        (average_k_scorer, {"k": -1}, ValueError),
        (average_k_scorer, {"k": "5"}, TypeError),
        (set_coverage_scorer, {"average": "weighted"}, ValueError),
    ):
        with pytest.raises(error, match=next(iter(argument))):
            make(**argument)


@pytest.mark.parametrize(
    "model",
    [LogisticRegression(), SVC(), RFE(SVC()), PlugInClassifier(GaussianNB(), TopK(2))],
    ids=["proba", "decision", "inside", "plug-in"],
)
@pytest.mark.parametrize(
    "use",
    [top_k_scorer(k=2), average_k_scorer(k=2), CoverageSizeDisplay.from_estimator],
    ids=["top", "average", "curves"],
)
def test_an_unfitted_classifier_is_told_as_by_scikit_learn(digits, use, model):
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        use(model, *digits)


class AlwaysTheFirst:
    """A model that never was fitted, with what is needed."""

    classes_ = np.arange(10)

    def predict_proba(self, X):
        return np.eye(10)[np.zeros(len(X), int)]


def test_a_model_needs_no_more_than_classes_and_probabilities(digits):
    assert top_k_scorer(k=1)(AlwaysTheFirst(), *digits) == np.mean(digits[1] == 0)


def test_ties_of_a_set_valued_model_are_broken_as_in_its_sets():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 2)), rng.integers(0, 2, 100)
    model = PlugInClassifier(KNeighborsClassifier(2), TopK(1)).fit(X, y)
    assert (model.predict_proba(X) == 0.5).any()
    assert top_k_scorer(k=1)(model, X, y) == set_coverage_scorer()(model, X, y)

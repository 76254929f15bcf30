"""What a loss does to the prior is taken back: population optima of all losses give equal sets."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.class_weight import compute_class_weight

from sksetvalued import AverageKClassifier, PlugInClassifier, TopKClassifier, load, save
from sksetvalued.estimators._unsmooth import unsmoothed
from sksetvalued.losses import CrossEntropyLoss, LogitAdjustedLoss
from sksetvalued.rules import AverageError, AverageK, PointwiseError, TopK
from sksetvalued.training._criterion import CriterionAdapter

L = 6
COUNTS = np.array([60, 30, 15, 8, 4, 3])
PRIOR = COUNTS / COUNTS.sum()
WEIGHT = torch.tensor([0.5, 1, 2, 1, 4, 0.25], dtype=torch.float64)


class PriorSmoothed(CrossEntropyLoss):
    """Cross-entropy of labels smoothed towards the prior."""

    smoothed_towards = "prior"

    def __init__(self, class_counts, label_smoothing=0.1):
        super().__init__()
        self.label_smoothing = label_smoothing
        counts = torch.as_tensor(class_counts, dtype=torch.float64)
        self.register_buffer("prior", counts / counts.sum())

    def forward(self, input, target, sample_weight=None):
        return super(CrossEntropyLoss, self).forward(input, target, sample_weight)

    def sample_losses(self, input, target):
        log_p = input.log_softmax(1)
        own = log_p.gather(1, target[:, None])[:, 0]
        share = self.label_smoothing
        return -(1 - share) * own - share * (log_p * self.prior.to(log_p)).sum(1)


def cross_entropy(**params):
    return torch.nn.CrossEntropyLoss(**params)


LOSSES = {
    "cross_entropy": {"loss": "cross_entropy"},
    "logit_adjusted": {"loss": "logit_adjusted"},
    "half_adjusted": {"loss": "logit_adjusted", "loss_params": {"tau": 0.5}},
    "weighted": {"loss": cross_entropy(weight=WEIGHT)},
    "smoothed": {"loss": cross_entropy(label_smoothing=0.1)},
    "weighted_smoothed": {"loss": cross_entropy(weight=WEIGHT, label_smoothing=0.2)},
    "prior_smoothed": {"loss": PriorSmoothed},
    "balanced": {"loss": "cross_entropy", "class_weight": "balanced"},
    "all_of_it": {
        "loss": cross_entropy(weight=WEIGHT, label_smoothing=0.2),
        "class_weight": {1: 3.0, 4: 0.5},
    },
}


@pytest.fixture(scope="module")
def population():
    """Return true conditional probabilities whose mean is about the prior."""
    return 0.9 * np.random.default_rng(0).dirichlet(8 * PRIOR, size=40) + 0.1 * PRIOR


def minimiser(criterion, eta, label_weight=None):
    """Return the scores that minimise the expected loss at every sample, by Newton's method."""
    if label_weight is not None:
        eta = eta * label_weight
    eta = torch.from_numpy(eta)
    every = torch.arange(eta.shape[1])

    def risk(scores, p):
        return criterion(scores.expand(len(p), -1), every) @ p

    slope, curvature = torch.func.grad(risk), torch.func.hessian(risk)
    scores = torch.zeros_like(eta)
    for _ in range(100):
        g, h = (torch.func.vmap(f)(scores, eta) for f in (slope, curvature))
        if g.abs().max() < 1e-13:
            break
        # A shift of all scores changes nothing: the smallest step is taken.
        step = (torch.linalg.pinv(h, hermitian=True, rtol=1e-10) @ g[..., None])[..., 0]
        scores = scores - step.clamp(-1, 1)
    assert g.abs().max() < 1e-12
    return scores.numpy()


def at_optimum(cls, name, eta, k, **params):
    """Return a classifier of this loss whose inputs are true probabilities, and scores optimal."""

    class Optimal(cls):
        def _iter_scores(self, X, *args, **params):
            if not hasattr(self, "scores_of_"):
                return super()._iter_scores(X, *args, **params)
            return iter([self.scores_of_])

    y = np.repeat(np.arange(L), COUNTS)
    clf = Optimal(k, max_epochs=1, random_state=0, **LOSSES[name], **params)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(np.random.default_rng(0).random((len(y), L)), y)
    criterion = clf._criterion(len(y)).double()
    inner = criterion.criterion if isinstance(criterion, CriterionAdapter) else criterion
    inner.reduction = "none"
    log_weight = clf._log_label_weight
    clf.scores_of_ = minimiser(inner, eta, None if log_weight is None else np.exp(log_weight))
    return clf


@pytest.fixture(scope="module", params=LOSSES)
def fitted(request, population):
    return at_optimum(TopKClassifier, request.param, population, 3, objective="macro")


def test_log_probabilities_are_those_of_the_population(fitted, population):
    np.testing.assert_allclose(
        np.exp(fitted._predict_log_proba(population)), population, atol=1e-10
    )


def rules():
    return [
        TopK(2),
        TopK(2, objective="macro"),
        AverageK(1.7),
        AverageK(1.7, objective="macro"),
        AverageError(0.2, objective="macro"),
        AverageError(0.3, coverage="class", interpolation=0.5, log_scores=True),
        PointwiseError(0.2),
    ]


@pytest.mark.parametrize("inside", ["prefit", "pipeline", "frozen"])
def test_rules_on_top_see_the_population_whatever_the_loss(fitted, population, inside):
    """Today's probabilities would be adjusted twice."""
    y = (population.cumsum(1) < np.random.default_rng(1).random((len(population), 1))).sum(1)
    model = fitted
    if inside == "pipeline":
        model = make_pipeline(FunctionTransformer(), fitted)
    elif inside == "frozen":
        model = FrozenEstimator(fitted)
    for rule in rules():
        if getattr(rule, "objective", "micro") == "macro":
            truth = type(rule)(**{**rule.get_params(), "prior": PRIOR})
        else:
            truth = rule
        log = getattr(rule, "log_scores", False)
        scores = np.log(population) if log else population
        expected = truth.fit(scores, y).predict_set(scores)
        clf = PlugInClassifier(model, rule, cv="prefit").fit(population, y)
        assert 0.1 < expected.mean() < 0.9
        np.testing.assert_array_equal(clf.predict_set(population), expected)


def test_the_sets_of_estimators_are_those_of_the_population(fitted, population):
    expected = TopK(3, objective="macro", prior=PRIOR).fit(population).predict_set(population)
    np.testing.assert_array_equal(fitted.predict_set(population), expected)
    fitted.set_params(objective="micro")
    micro = TopK(3).fit(population).predict_set(population)
    np.testing.assert_array_equal(fitted.predict_set(population), micro)
    fitted.set_params(objective="macro")
    assert (micro != expected).any()


@pytest.mark.parametrize("towards", ["uniform", "prior"])
def test_smoothing_is_taken_out_exactly_and_keeps_the_order_of_what_has_nothing_left(towards):
    rng = np.random.default_rng(1)
    target = PRIOR if towards == "prior" else np.full(L, 1 / L)
    eta = rng.dirichlet(np.full(L, 0.05), size=200)
    eta /= eta.sum(1, keepdims=True)
    for epsilon in (1e-3, 0.1, 0.5):
        smooth = (1 - epsilon) * eta + epsilon * target
        back = (
            unsmoothed(
                torch.from_numpy(np.log(smooth)), torch.from_numpy(np.log(epsilon * target))
            )
            .exp()
            .numpy()
        )
        np.testing.assert_allclose(back, eta, atol=1e-12)
    rough = rng.dirichlet(np.full(L, 0.3), size=200)
    back = unsmoothed(
        torch.from_numpy(np.log(rough)), torch.full((L,), 0.3 / L).double().log()
    ).numpy()
    np.testing.assert_allclose(np.exp(back).sum(1), 1)
    np.testing.assert_array_equal(np.argsort(back, 1), np.argsort(rough, 1))
    gone = rough < 0.3 / L
    assert gone.any()
    assert np.exp(back[gone]).max() < 1e-40


def test_weights_of_all_classes_serve_where_some_are_missing():
    """As they are in a fold of a cross-validation, of a class of few samples."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 3
    params = {"max_epochs": 2, "random_state": 0}
    weight = {0: 2.0, 1: 0.5, 2: 1.5, 9: 7.0}
    fold = TopKClassifier(1, class_weight=weight, **params).fit(X, y)
    known = TopKClassifier(1, class_weight={0: 2.0, 1: 0.5, 2: 1.5}, **params).fit(X, y)
    np.testing.assert_array_equal(fold.decision_function(X), known.decision_function(X))


def test_class_weights_are_weights_of_samples_and_never_counts(tmp_path):
    rng = np.random.default_rng(2)
    y = np.repeat(np.array(list("abcdef")), COUNTS)
    X = rng.normal(size=(len(y), 4)) + (y[:, None] == np.array(list("abcd")))
    params = {"loss": "cross_entropy", "max_epochs": 3, "random_state": 0}
    weight = {"a": 0.5, "f": 4.0}
    weighted = TopKClassifier(2, class_weight=weight, **params).fit(X, y)
    by_sample = TopKClassifier(2, **params)
    by_sample.fit(X, y, sample_weight=np.array([weight.get(label, 1.0) for label in y]))
    np.testing.assert_allclose(
        weighted.decision_function(X), by_sample.decision_function(X), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(weighted.class_counts_, COUNTS)
    balanced = TopKClassifier(2, class_weight="balanced", **params).fit(X, y)
    expected = compute_class_weight("balanced", classes=np.unique(y), y=y)
    np.testing.assert_allclose(np.exp(balanced._log_label_weight), expected)
    plain = AverageKClassifier(2, **params).fit(X, y)
    one = AverageKClassifier(2, class_weight={"a": 1.0}, **params).fit(X, y)
    assert one.threshold_ == pytest.approx(plain.threshold_, rel=1e-4)
    cases = (
        ({"a": 0, "b": 1}, r"numbers > 0, .* {'a': 0.0};"),
        ({"x": 1}, r"class_weight .* \['x'\]"),
    )
    for bad, match in cases:
        with pytest.raises(ValueError, match=match):
            TopKClassifier(2, class_weight=bad).fit(X, y)
    with pytest.raises(ValueError, match="balanced' needs all samples"):
        TopKClassifier(2, class_weight="balanced").partial_fit(X, y, classes=np.unique(y))
    back = pickle.loads(pickle.dumps(balanced))
    np.testing.assert_array_equal(back.predict_set(X), balanced.predict_set(X))
    for model in (balanced, weighted):
        save(model, tmp_path / "model")
        sets = load(tmp_path / "model").predict_set(X)
        np.testing.assert_array_equal(sets, model.predict_set(X))


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"loss": "logit_adjusted", "loss_params": {"class_counts": [1, 1, 8]}}, "class_counts"),
        ({"loss": LogitAdjustedLoss([1, 1, 8])}, "class_counts"),
        (
            {"cross_entropy": 1, "label_smoothing": 0.2, "loss_params": {"prior": [1, 2, 7]}},
            "prior",
        ),
        # What is not taken back may be anything.
        (
            {"cross_entropy": 0.5, "label_smoothing": 0.2, "loss_params": {"prior": [1, 2, 7]}},
            None,
        ),
        ({"loss": "ldam", "loss_params": {"class_counts": [1, 1, 8]}}, None),
        ({"loss": "logit_adjusted"}, None),
        ({"loss": LogitAdjustedLoss([8, 6, 5])}, None),
    ],
)
def test_shares_of_a_loss_that_are_not_those_of_training_are_warned_of(params, named):
    rng = np.random.default_rng(0)
    y = np.repeat(list("abc"), [32, 24, 20])
    X = rng.normal(size=(len(y), 4)) + 3 * (y[:, None] == np.array(list("abcd")))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        TopKClassifier(1, max_epochs=2, random_state=0, **params).fit(X, y)
    told = [str(one.message) for one in caught if "in training. What the loss" in str(one.message)]
    assert len(told) == (named is not None)
    assert all(f"was given a {named} by which class" in text for text in told)

"""What is watched while an estimator trains, and what is said where nothing can be."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, make_scorer
from skorch.callbacks import Checkpoint, EarlyStopping, EpochScoring, InputShapeSetter

from sksetvalued import AverageKClassifier, TopKClassifier
from sksetvalued.metrics import set_coverage_score
from sksetvalued.training import Monitor, split_per_class


@pytest.fixture(scope="module")
def imbalanced():
    """Six classes that overlap, of 12 to 120 samples."""
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(6), [120, 80, 50, 30, 20, 12])
    return generator.normal(size=(6, 4))[y] + 1.2 * generator.normal(size=(len(y), 4)), y


def classifier(cls=TopKClassifier, **params):
    return cls(
        **{"k": 2, "backbone": (16,), "max_epochs": 4, "lr": 0.02, "random_state": 0, **params}
    )


@pytest.mark.parametrize(
    "params",
    [
        {"class_weight": "balanced"},
        {"class_weight": "balanced", "label_smoothing": 0.1},
        {"loss": "logit_adjusted"},
        {"class_weight": "balanced", "objective": "macro"},
        {},
    ],
    ids=str,
)
def test_the_monitor_is_the_coverage_of_the_sets(imbalanced, params):
    """Also where sets rank by other scores than those of the network."""
    X, y = imbalanced
    clf = classifier(validation_fraction=0.3, patience=9, **params).fit(X, y)
    split = split_per_class(y, 0.3, np.random.RandomState(clf._seed))
    held_out = split[1]
    average = "macro" if clf.objective == "macro" else "micro"
    coverage = set_coverage_score(y[held_out], clf.predict_set(X[held_out]), average=average)
    name = next(name for name in clf.history_[-1] if name.endswith("top_k_accuracy"))
    assert max(clf.history_[:, name]) == pytest.approx(coverage)
    if "class_weight" in params:  # and it is another number than that of the network's scores
        best = np.argsort(-clf.decision_function(X[held_out]), axis=1)[:, :2]
        assert (best == y[held_out, None]).any(1).mean() != pytest.approx(coverage)


@pytest.mark.parametrize(
    "monitor", ["valid_loss", lambda y_true, y_score: 1.0], ids=["loss", "own"]
)
def test_a_monitor_without_samples_to_watch_is_warned_of(imbalanced, monitor):
    clf = classifier(monitor=monitor)
    for fit in (clf.fit, clf.partial_fit):
        with pytest.warns(UserWarning, match="monitor=.* has no effect.*holds no samples out"):
            fit(*imbalanced)
    folds = classifier(AverageKClassifier, monitor=monitor, calibration_folds=3)
    with pytest.warns(UserWarning, match="has no effect") as caught:
        folds.fit(*imbalanced)
    assert len([one for one in caught if "has no effect" in str(one.message)]) == 1
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "monitor")
        classifier(monitor=monitor, validation_fraction=0.2).fit(*imbalanced)
        classifier(monitor=monitor, max_epochs="auto").fit(*imbalanced)


class Accuracy(EpochScoring):
    """A score whose class is given, in place of an object."""

    def __init__(self):
        super().__init__("accuracy", name="acc", lower_is_better=False)


@pytest.mark.parametrize(
    ("scoring", "watching"),
    [
        (Accuracy, EarlyStopping(monitor="acc")),
        (("scored", Accuracy), Checkpoint(monitor="acc_best")),
        (EpochScoring(None), EarlyStopping(monitor="score")),
        (EpochScoring(lambda *args: 1.0), EarlyStopping(monitor="<lambda>")),
        (EpochScoring(make_scorer(accuracy_score)), EarlyStopping(monitor="accuracy_score")),
    ],
    ids=["class", "named", "score", "function", "scorer"],
)
def test_what_watches_a_score_of_held_out_samples_is_refused_before_the_search(
    imbalanced, scoring, watching, monkeypatch
):
    monkeypatch.setattr(TopKClassifier, "_train", None)
    clf = classifier(max_epochs="auto", callbacks=[scoring, watching])
    with pytest.raises(ValueError, match="monitor=.*ends with a training on all samples"):
        clf.fit(*imbalanced)


def test_a_callback_that_reads_the_shape_of_x_is_refused(imbalanced):
    with pytest.raises(ValueError, match=r"InputShapeSetter.*backbone_params"):
        classifier(callbacks=[InputShapeSetter()]).fit(*imbalanced)


# -- parameters of losses -------------------------------------------------------------------


def test_a_generator_in_loss_params_starts_each_fit_as_it_is(imbalanced):
    """Else fits would differ, and change a parameter."""
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    clf = classifier(loss="noised_hinge", loss_params={"generator": generator})
    first, second = (clf.fit(*imbalanced).decision_function(imbalanced[0]) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert torch.equal(generator.get_state(), before)
    other = clf.set_params(loss_params={"generator": torch.Generator().manual_seed(1)})
    assert (other.fit(*imbalanced).decision_function(imbalanced[0]) != first).any()


@pytest.mark.parametrize("cls", [TopKClassifier, AverageKClassifier])
def test_a_parameter_that_is_set_twice_is_refused(imbalanced, cls):
    clf = classifier(cls, label_smoothing=0.1, loss_params={"label_smoothing": 0.2})
    with pytest.raises(ValueError, match=r"label_smoothing=0.1.*loss_params.*leave one of them"):
        clf.fit(*imbalanced)
    for name, value in (("lr", 0.1), ("weight_decay", 0.0)):
        key = f"optimizer__{name}"
        clf = classifier(cls, **{name: value}, net_params={key: 0.01})
        with pytest.raises(ValueError, match=rf"{name}={value}.*{key}.*leave one of them"):
            clf.fit(*imbalanced)
        clf.set_params(net_params=None).partial_fit(*imbalanced, classes=np.arange(6))
        with pytest.raises(ValueError, match="leave one of them"):
            clf.set_params(net_params={key: 0.01}).partial_fit(*imbalanced)


def test_ranks_that_can_be_read_only_once_are_refused(imbalanced):
    """A search trains more than once."""
    for ranks in (zip([1, "k"], [0.5, 0.5]), iter([(1, 1.0)])):
        with pytest.raises(TypeError, match="ranks must be a mapping or a sequence"):
            classifier(ranks=ranks).fit(*imbalanced)
    for ranks in ([(1, 0.5), ("k", 0.5)], {1: 0.5, "k": 0.5}.items()):
        classifier(ranks=ranks).fit(*imbalanced)


def test_parts_of_another_width_are_named(imbalanced):
    class Body(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 8)

        def forward(self, num):
            return self.layer(num)

    X, y = imbalanced
    clf = classifier(backbone=Body()).fit({"num": X.astype(np.float32)}, y)
    wide = np.concatenate([X, X], axis=1).astype(np.float32)
    with pytest.raises(ValueError, match=r"parts .*'num': \(8,\)"):
        clf.predict({"num": wide})


def test_scores_that_are_no_numbers_are_the_worst():
    monitor = Monitor("valid_metric", lambda y_true, y_score, sample_weight: 1.0)
    for value, expected in ((np.nan, -np.inf), (np.inf, -np.inf), (0.5, 1.0)):
        monitor.update(torch.full((2, 3), value), torch.tensor([0, 1]))
        assert monitor.compute() == expected

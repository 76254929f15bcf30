"""What happens after a fit: more fits, parameters that change, data of another form, failures."""

import copy
import gc
import pickle
import re
import warnings
import weakref
from unittest.mock import Mock

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from PIL import Image
from scipy.special import log_softmax
from sklearn.datasets import load_wine, make_blobs, make_multilabel_classification
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from skorch.callbacks import Callback
from torch.utils.data import Subset, TensorDataset

from sksetvalued import (
    AverageKClassifier,
    SparseTopClassifier,
    Stream,
    TopKClassifier,
    load,
    save,
    to_torch,
)
from sksetvalued._masks import top_k_mask
from sksetvalued.deploy._module import example_batch
from sksetvalued.estimators import _labels
from sksetvalued.losses import NoisedTopKHingeLoss, ROLELoss, SetLoss
from sksetvalued.metrics import set_coverage_score, top_k_scorer

N_CLASSES = 4
X, y = make_blobs(300, centers=N_CLASSES, n_features=5, cluster_std=4.0, random_state=0)
X = X / 10
TAIL = np.concatenate([np.flatnonzero(y == c)[: 70 // (1 + 5 * c)] for c in range(N_CLASSES)])
QUICK = {"max_epochs": 3, "random_state": 0}
BOTH = [TopKClassifier, AverageKClassifier]


def logits(clf, X=X):
    return clf._scores(X)


# -- the prior ------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", BOTH)
def test_the_macro_rule_follows_the_counts_of_all_pieces(cls):
    clf = cls(k=2, objective="macro", loss="cross_entropy", random_state=0)
    clf.partial_fit(X[TAIL], y[TAIL], classes=range(N_CLASSES)).partial_fit(X, y)
    clf.predict_set(X)
    counts = np.bincount(y[TAIL]) + np.bincount(y)
    np.testing.assert_allclose(clf.rule_.prior_, counts / counts.sum())


@pytest.mark.parametrize("loss", ["logit_adjusted", "ldam"])
@pytest.mark.parametrize("go_on", ["partial_fit", "fit"])
def test_the_loss_follows_the_counts(loss, go_on):
    clf = TopKClassifier(k=2, loss=loss, warm_start=True, **QUICK)
    if go_on == "partial_fit":
        clf.partial_fit(X[TAIL], y[TAIL], classes=range(N_CLASSES)).partial_fit(X, y)
    else:
        clf.fit(X[TAIL], y[TAIL]).fit(X, y)
    np.testing.assert_array_equal(clf.net_.criterion_.class_counts.cpu(), clf.class_counts_)


@pytest.mark.parametrize("factor", [1e-4, 100.0])
@pytest.mark.parametrize("loss", ["cross_entropy", "logit_adjusted"])
def test_a_factor_of_the_weights_changes_nothing(loss, factor):
    weight = np.random.default_rng(0).uniform(0.5, 2, len(TAIL))
    fits = [
        TopKClassifier(k=1, objective="macro", loss=loss, **QUICK).fit(
            X[TAIL], y[TAIL], sample_weight=c * weight
        )
        for c in (1.0, factor)
    ]
    one, other = (clf._set_scores(X) for clf in fits)
    np.testing.assert_allclose(one, other, atol=1e-4)
    assert fits[0]._prior.max() > 3 * fits[0]._prior.min()


@pytest.mark.parametrize("params", [{"loss": "ldam"}, {"max_margin": 0.3}])
def test_classes_may_come_later_whatever_the_loss(params):
    first = y < 2
    clf = TopKClassifier(k=2, random_state=0, **params)
    clf.partial_fit(X[first], y[first], classes=range(N_CLASSES)).partial_fit(X, y)
    assert clf.predict_set(X).sum(1).tolist() == [2] * len(X)


@pytest.mark.parametrize("cls", BOTH)
def test_class_weights_are_taken_back(cls):
    """With weights 1 / counts the scores are those of p / prior, up to a constant."""
    counts = torch.from_numpy(np.bincount(y[TAIL])).float()
    clf = cls(k=2, loss=torch.nn.CrossEntropyLoss(weight=1 / counts), **QUICK)
    clf.fit(X[TAIL], y[TAIL])
    scores = logits(clf).astype(float)
    shift = np.log(counts.numpy())
    np.testing.assert_allclose(clf._set_scores(X), log_softmax(scores + shift, axis=1), atol=1e-5)
    clf.set_params(objective="macro")
    clf = clf.calibrate(X) if cls is AverageKClassifier else clf
    expected = log_softmax(scores + shift, axis=1) - shift
    expected += np.log(counts.sum().item())
    np.testing.assert_allclose(clf._set_scores(X), expected, atol=1e-5)
    if cls is TopKClassifier:
        np.testing.assert_array_equal(clf.predict_set(X), top_k_mask(logits(clf), 2))


# -- rules that change ----------------------------------------------------------------------


def test_scorers_and_sets_have_the_prior_of_the_rule():
    prior = [0.85, 0.05, 0.05, 0.05]
    clf = TopKClassifier(k=2, objective="macro", rule_params={"prior": prior}, **QUICK).fit(X, y)
    before = clf.predict_set(X)
    assert set_coverage_score(y, before) == top_k_scorer(k=2)(clf, X, y)
    score = top_k_scorer(k=2)(clf.set_params(rule_params=None), X, y)
    after = clf.predict_set(X)
    assert (before != after).any()
    assert set_coverage_score(y, after) == score


def test_the_threshold_is_one_of_the_set_scores_whatever_the_prior():
    prior = [0.85, 0.05, 0.05, 0.05]
    clf = AverageKClassifier(k=2, objective="macro", rule_params={"prior": prior}, **QUICK)
    clf.fit(X, y)
    np.testing.assert_array_equal(clf._set_scores(X) >= clf.threshold_, clf.predict_set(X))


@pytest.mark.parametrize(
    "changed", [{"k": 3}, {"objective": "macro"}, {"rule_params": {"min_size": 1}}]
)
def test_a_threshold_for_other_parameters_is_told(changed):
    clf = AverageKClassifier(k=1.5, **QUICK).fit(X, y)
    clf.set_params(**changed)
    with pytest.warns(UserWarning, match="calibrate"):
        clf.predict_set(X)
    clf.calibrate(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.predict_set(X)


@pytest.mark.parametrize("k", [2.0, True, "2"])
def test_a_rank_that_is_none_is_refused_after_fitting_too(k):
    clf = TopKClassifier(k=1 if k is True else 2, **QUICK).fit(X, y)
    with pytest.raises((TypeError, ValueError), match="k must"):
        clf.set_params(k=k).predict_set(X)


# -- warm starts ----------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [*BOTH, SparseTopClassifier])
def test_a_warm_start_holds_the_same_samples_out(cls):
    target = make_multilabel_classification(len(X), random_state=0)[1] if cls not in BOTH else y
    params = {"warm_start": True, "max_epochs": 1, "validation_fraction": 0.2}
    clf = cls(k=2, **params) if cls in BOTH else cls(**params)
    seeds = [clf.fit(X, target)._seed for _ in range(3)]
    assert len(set(seeds)) == 1
    assert clf.set_params(warm_start=False).fit(X, target)._seed != seeds[0]


def test_a_warm_start_takes_the_parameters_of_now():
    clf = TopKClassifier(k=2, loss="cross_entropy", warm_start=True, lr_schedule=None, **QUICK)
    before = logits(clf.fit(X, y))
    clf.set_params(lr=1e-9, batch_size=50, weight_decay=0.0, loss="smoothed_hinge").fit(X, y)
    np.testing.assert_allclose(logits(clf), before, atol=1e-4)
    group = clf.net_.optimizer_.param_groups[0]
    assert (group["lr"], group["weight_decay"], clf.net_.batch_size) == (1e-9, 0.0, 50)
    assert type(clf.net_.criterion_).__name__ == "SmoothedTopKHingeLoss"
    assert clf.n_iter_ == 6


@pytest.mark.parametrize("go_on", ["fit", "partial_fit"])
def test_rates_of_layers_outlive_the_first_fit(go_on):
    groups = {"optimizer__param_groups": [("backbone*", {"lr": 1e-9})]}
    clf = TopKClassifier(k=2, warm_start=True, lr_schedule=None, net_params=groups, **QUICK)
    clf.fit(X, y)
    body = clf.net_.module_.backbone.state_dict()
    body = {name: value.clone() for name, value in body.items()}
    getattr(clf, go_on)(X, y)
    for name, value in clf.net_.module_.backbone.state_dict().items():
        torch.testing.assert_close(value, body[name], atol=1e-6, rtol=0)


def test_a_warm_start_cannot_change_the_head():
    clf = AverageKClassifier(k=2, warm_start=True, **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="head.*warm_start=False"):
        clf.set_params(loss="cross_entropy").fit(X, y)


def test_the_optimizer_goes_on_where_it_was():
    clf = TopKClassifier(k=2, warm_start=True, lr_schedule=None, **QUICK).fit(X, y)
    parameter = next(clf.net_.module_.parameters())
    steps = clf.net_.optimizer_.state[parameter]["step"].item()
    clf.fit(X, y)
    assert clf.net_.optimizer_.state[parameter]["step"].item() == 2 * steps


class Counting(torch.optim.SGD):
    """An optimizer that counts its updates in the groups, as some that tune their rate do."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, lr)
        for group in self.param_groups:
            group.update(n_updates=0, total=torch.zeros(()))

    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            group["n_updates"] += 1
            group["total"] += group["lr"]


def test_what_an_optimizer_counts_in_its_groups_goes_on():
    params = {"optimizer": Counting, "lr_schedule": None, "batch_size": len(X), "lr": 0.5}
    clf = TopKClassifier(k=2, **{**QUICK, **params})
    first = clf.partial_fit(X, y, classes=range(N_CLASSES)).net_.optimizer_
    group = clf.set_params(lr=0.25).partial_fit(X, y).net_.optimizer_.param_groups[0]
    assert (group["n_updates"], group["total"], group["lr"]) == (2, 0.75, 0.25)
    assert first.param_groups[0]["total"] == 0.5  # the net of before stays as it was
    other = clf.set_params(net_params={"optimizer__param_groups": [("head*", {"lr": 0.1})]})
    groups = other.partial_fit(X, y).net_.optimizer_.param_groups
    assert [group["n_updates"] for group in groups] == [1, 1]


def test_estimates_of_samples_start_anew_with_other_samples(tmp_path):
    """Whether there are as many of them or not."""
    clf = AverageKClassifier(k=2, loss="role", warm_start=True, **QUICK)
    clf.fit(X[:200], y[:200]).fit(X, y)
    save(clf, tmp_path / "clf")
    again = load(tmp_path / "clf").fit(X, y)
    assert again.n_iter_ == 9
    clf.set_params(lr=1e-9).fit(X[::-1], y[::-1])
    largest = ROLELoss(2, n_samples=1000, n_classes=N_CLASSES).estimates.abs().max()
    assert again.net_.criterion_.estimates.abs().max() > 1.01 * largest
    assert clf.net_.criterion_.estimates.abs().max() < 1.01 * largest


@pytest.mark.parametrize("changed", [{"loss": "two_head"}, {"alpha": -1, "loss": "two_head"}])
def test_a_file_that_could_not_be_loaded_is_not_written(changed, tmp_path):
    clf = AverageKClassifier(k=2, loss="cross_entropy", **QUICK).fit(X, y).set_params(**changed)
    with pytest.raises(ValueError, match="head|alpha"):
        save(clf, tmp_path / "clf")
    assert list(tmp_path.iterdir()) == []


def test_saving_and_loading_leave_the_random_state_alone(tmp_path):
    clf = TopKClassifier(k=2, **QUICK).fit(X, y)
    state = torch.get_rng_state()
    save(clf, tmp_path / "clf")
    load(tmp_path / "clf").predict(X)
    assert torch.equal(torch.get_rng_state(), state)


# -- what fails -----------------------------------------------------------------------------


def test_a_failed_fit_leaves_an_unfitted_estimator():
    broken = X.copy()
    broken[0, 0] = np.nan
    clf = TopKClassifier(k=2, **QUICK)
    with pytest.raises(ValueError, match="NaN"):
        clf.partial_fit(broken, y, classes=range(N_CLASSES))
    assert not [name for name in vars(clf) if name.endswith("_")]
    with pytest.raises(NotFittedError):
        clf.predict(X)
    clf.partial_fit(X, y, classes=range(N_CLASSES))
    with pytest.raises(ValueError, match="lr_schedule"):
        clf.set_params(lr_schedule="sawtooth").fit(X, y)
    with pytest.raises(NotFittedError):
        clf.predict(X)


@pytest.mark.parametrize("cls", [*BOTH, SparseTopClassifier])
def test_samples_and_labels_that_are_refused_leave_the_model_of_before(cls):
    rank = {} if cls is SparseTopClassifier else {"k": 2}
    clf, target = cls(**rank, **QUICK), np.eye(N_CLASSES, dtype=int)[y] if not rank else y
    before, net = clf.fit(X, target).predict_set(X), weakref.ref(clf.net_)
    for wrong in (
        {"X": X * np.nan},
        {"X": ["no such file"] * len(X)},
        {"y": target[1:]},
        {"sample_weight": -np.ones(len(X))},
    ):
        with pytest.raises((ValueError, FileNotFoundError)):
            clf.fit(**{"X": X, "y": target, **wrong})
        np.testing.assert_array_equal(clf.predict_set(X), before)
    with pytest.raises(ValueError, match="lr_schedule"):
        clf.set_params(lr_schedule="sawtooth").fit(X, target)
    gc.collect()
    assert net() is None
    assert not hasattr(clf, "net_")


@pytest.mark.parametrize("go_on", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    "broken",
    [
        {"patience": 3, "loss": "logit_adjusted"},
        {"lr": 1e30, "optimizer": "sgd", "loss": "logit_adjusted"},
        {"lr": 1e30},
        {"loss": "two_head"},
    ],
)
def test_going_on_in_vain_changes_nothing(go_on, broken):
    """Neither parameters that are refused nor a training that diverges."""
    clf = TopKClassifier(k=2, loss="cross_entropy", warm_start=True, **QUICK).fit(X[TAIL], y[TAIL])
    before, counts, rows = clf._set_scores(X), clf.class_counts_, len(clf.history_)
    undisturbed = copy.deepcopy(clf)
    params = {name: clf.get_params()[name] for name in broken}
    with pytest.raises(ValueError):
        getattr(clf.set_params(**broken), go_on)(X, y)
    clf.set_params(**params)
    np.testing.assert_array_equal(clf._set_scores(X), before)
    np.testing.assert_array_equal(clf.class_counts_, counts)
    assert len(clf.history_) == rows
    scores = [logits(getattr(model, go_on)(X, y)) for model in (clf, undisturbed)]
    np.testing.assert_array_equal(*scores)
    assert np.isfinite(scores[0]).all()


@pytest.mark.parametrize("go_on", ["fit", "partial_fit"])
def test_what_fails_after_the_training_undoes_it(go_on, monkeypatch):
    clf = AverageKClassifier(k=2, warm_start=True, **QUICK).fit(X, y)
    before, rows, undisturbed = logits(clf), len(clf.history_), copy.deepcopy(clf)
    with monkeypatch.context() as broken:
        broken.setattr(AverageKClassifier, "_calibrate_inputs", Mock(side_effect=OSError))
        with pytest.raises(OSError):
            getattr(clf, go_on)(X, y)
    np.testing.assert_array_equal(logits(clf), before)
    assert len(clf.history_) == rows
    scores = [logits(getattr(model, go_on)(X, y)) for model in (clf, undisturbed)]
    np.testing.assert_array_equal(*scores)
    assert (scores[0] != before).any()


@pytest.mark.parametrize("backbone", ["convnet", "mnasnet0_5"])
def test_a_training_of_another_layout_is_undone(backbone):
    """LBFGS takes weights of another one; mnasnet reads from its state which version it has."""
    images = np.stack([IMAGES] * 3, 1)
    clf = TopKClassifier(k=2, backbone=backbone, **QUICK)
    undisturbed = copy.deepcopy(clf.partial_fit(images, LABELS, classes=range(N_CLASSES)))
    before, params = logits(clf, images), clf.get_params(deep=False)
    broken = {"optimizer": torch.optim.LBFGS, "net_params": {"optimizer__max_iter": 1}}
    clf.set_params(callbacks=[Fails("on_train_end", OSError)], **broken)
    with pytest.raises(OSError):
        clf.partial_fit(images, LABELS)
    np.testing.assert_array_equal(logits(clf, images), before)
    models = [m.partial_fit(images, LABELS) for m in (clf.set_params(**params), undisturbed)]
    np.testing.assert_array_equal(*(logits(model, images) for model in models))


def test_a_refusal_leaves_the_optimizer_where_it_was():
    clf = TopKClassifier(k=2, warm_start=True, lr_schedule=None, **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="features"):
        clf.partial_fit(X[:, :2], y)
    assert clf.net_.optimizer_.state


class Tempered(torch.nn.Module):
    """A criterion with something to learn."""

    def __init__(self):
        super().__init__()
        self.temperature = torch.nn.Parameter(torch.ones(()))

    def forward(self, scores, target):
        return torch.nn.functional.cross_entropy(scores / self.temperature, target)


class Remembers(torch.nn.Module):
    """A backbone with a state of each kind."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(5, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.3)
        )
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("scale", torch.ones(()), persistent=False)
        self.n_batches = 0

    def get_extra_state(self):
        return {"n_batches": self.n_batches}

    def set_extra_state(self, state):
        self.n_batches = state["n_batches"]

    def forward(self, x):
        if self.training:
            self.n_batches += 1
            self.scale.mul_(1.01)
            self.seen = torch.cat([self.seen, x.detach().mean()[None]])
        return self.layers(x) * self.scale + self.seen.sum() / (1 + self.n_batches)


class Fails(Callback):
    """Raises in the midst of the second epoch, or at the end, with layers frozen."""

    def __init__(self, hook, error):
        self.hook, self.error = hook, error

    def _fail(self, net, hook):
        if hook == self.hook:
            net.module_.backbone.requires_grad_(False)
            raise self.error

    def on_batch_end(self, net, training, **kwargs):
        if training and len(net.history[-1, "batches"]) == 2:
            self._fail(net, "on_batch_end")

    def on_train_end(self, net, **kwargs):
        self._fail(net, "on_train_end")


FAILURES = [
    {"callbacks": [Fails("on_batch_end", OSError)]},
    {"callbacks": [Fails("on_train_end", KeyboardInterrupt)]},
    {"optimizer": torch.optim.LBFGS, "callbacks": [Fails("on_batch_end", OSError)]},
    {"lr": 1e30, "optimizer": "sgd"},
]


@pytest.mark.parametrize("go_on", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    ("cls", "params"),
    [
        (TopKClassifier, {"loss": NoisedTopKHingeLoss(2, generator=0)}),
        (TopKClassifier, {"loss": Tempered}),
        (TopKClassifier, {"backbone": Remembers()}),
        (AverageKClassifier, {}),
        (SparseTopClassifier, {}),
    ],
)
def test_a_training_goes_on_as_if_none_had_failed(cls, params, go_on, tmp_path):
    params = {"warm_start": True, "batch_size": 50, "max_epochs": 2, "random_state": 0, **params}
    if "backbone" not in params:
        params["backbone_params"] = {"dropout": 0.3}
    data, target = X[:150], y[:150]
    target = np.eye(N_CLASSES, dtype=int)[target] if cls is SparseTopClassifier else target
    clf = cls(**params) if cls is SparseTopClassifier else cls(k=2, **params)
    clf.fit(data, target)
    undisturbed, *copies = (copy.deepcopy(clf) for _ in FAILURES)
    expected = getattr(undisturbed, go_on)(data, target).decision_function(data)
    for failure, failing in zip(FAILURES, [clf, *copies], strict=True):
        before = {name: failing.get_params(deep=False)[name] for name in failure}
        with pytest.raises((OSError, KeyboardInterrupt, ValueError)):
            getattr(failing.set_params(**failure), go_on)(data, target)
        failing.set_params(**before)
        models = [failing]
        if "backbone" not in params and "loss" not in params:
            save(failing, tmp_path / "clf")
            models.append(load(tmp_path / "clf"))
        for model in models:
            found = getattr(model, go_on)(data, target).decision_function(data)
            np.testing.assert_array_equal(found, expected, str(failure))


@pytest.mark.parametrize("loss", [Tempered, Tempered()])
def test_what_a_criterion_has_learned_is_kept(loss):
    clf = TopKClassifier(k=2, loss=loss, warm_start=True, lr_schedule=None, **QUICK).fit(X, y)
    learned = clf.net_.criterion_.criterion.temperature.item()
    clf.set_params(lr=1e-9).fit(X, y)
    assert learned != 1
    assert clf.net_.criterion_.criterion.temperature.item() == pytest.approx(learned, abs=1e-6)


class Centred(torch.nn.Module):
    """A criterion that remembers the mean of the scores."""

    def __init__(self, start=0.0):
        super().__init__()
        self.register_buffer("mean", torch.full((N_CLASSES,), start))

    def forward(self, scores, target):
        if self.training:
            self.mean.lerp_(scores.detach().mean(0), 0.1)
        return torch.nn.functional.cross_entropy(scores - self.mean, target)


class CentredCounts(SetLoss):
    """The same as a loss, which is given the counts of the classes, too."""

    def __init__(self, start=0.0, class_counts=None):
        super().__init__()
        self.register_buffer("mean", torch.full((N_CLASSES,), start))
        self.register_buffer("counts", torch.as_tensor(class_counts))

    def sample_losses(self, input, target):
        if self.training:
            self.mean.lerp_(input.detach().mean(0), 0.1)
        return torch.nn.functional.cross_entropy(input - self.mean, target, reduction="none")


@pytest.mark.parametrize("cls", [Centred, CentredCounts])
@pytest.mark.parametrize("pickled", [False, True])
def test_what_a_criterion_remembers_is_kept_unless_it_is_set_anew(cls, pickled):
    found = []

    class See(Callback):
        def on_train_begin(self, net, **kwargs):
            loss = getattr(net.criterion_, "criterion", net.criterion_)
            found.append(loss.mean.cpu().clone())
            if cls is CentredCounts:
                assert torch.equal(
                    loss.counts.cpu(), torch.from_numpy(net.estimator.class_counts_)
                )

    clf = TopKClassifier(k=2, loss=cls, **QUICK).fit(X, y)
    learned = clf.net_.criterion_.state_dict().popitem(last=False)[1].cpu().clone()
    clf = pickle.loads(pickle.dumps(clf)) if pickled else clf
    clf.set_params(callbacks=[See()]).partial_fit(X, y)
    clf.set_params(loss_params={"start": 5.0}).partial_fit(X, y).set_params(warm_start=True)
    last = clf.net_.criterion_.state_dict().popitem(last=False)[1].cpu().clone()
    clf.fit(X, y)
    torch.testing.assert_close(found, [learned, torch.full((N_CLASSES,), 5.0), last])
    assert learned.any()


class LateCentred(torch.nn.Module):
    """A criterion whose tensors are none before the first batch, or no buffers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("late", None)
        self.unset, self.plain = None, torch.zeros(N_CLASSES)

    def forward(self, scores, target):
        if self.training:
            mean = scores.detach().mean(0)
            for name in ("late", "unset", "plain"):
                old = getattr(self, name)
                setattr(self, name, mean if old is None else 0.5 * old + mean)
        return torch.nn.functional.cross_entropy(scores - self.plain, target)


def test_tensors_that_a_criterion_sets_in_training_are_kept():
    params = {**QUICK, "lr": 1e-2, "lr_schedule": None, "optimizer": "sgd", "random_state": 0}
    params |= {"backbone": (8,), "backbone_params": {"dropout": 0.0}}
    params |= {"batch_size": len(X), "loss": LateCentred}
    whole = TopKClassifier(k=2, **{**params, "max_epochs": 4}).fit(X, y)
    halves = TopKClassifier(k=2, warm_start=True, **{**params, "max_epochs": 2}).fit(X, y)
    halves = pickle.loads(pickle.dumps(halves)).fit(X, y)
    one, other = (clf.net_.criterion_.criterion for clf in (whole, halves))
    for name in ("late", "unset", "plain"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name))
    assert one.state_dict().keys() == other.state_dict().keys() == {"late"}


class Counted(torch.nn.Module):
    """A criterion of label sets that counts its batches."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, scores, target):
        self.seen += self.training
        return torch.nn.functional.mse_loss(scores, target)


class CountedLoss(SetLoss):
    targets = ("indicator",)

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def sample_losses(self, input, target):
        self.seen += self.training
        return (input - target).square().mean(1)


@pytest.mark.parametrize("size", ["predicted", "threshold"])
@pytest.mark.parametrize("cls", [Counted, CountedLoss])
def test_what_a_loss_of_label_sets_remembers_is_kept(size, cls):
    clf = SparseTopClassifier(loss=cls, size=size, batch_size=100, **QUICK)
    Y = np.eye(N_CLASSES, dtype=int)[y]
    clf.partial_fit(X, Y, classes=range(N_CLASSES)).partial_fit(X, Y).partial_fit(X, Y)
    assert list(clf.net_.criterion_.buffers()) == [3 * 3]


def test_the_noise_of_a_loss_goes_on_unless_it_is_given_another_seed():
    seen = []

    class See(Callback):
        def on_train_begin(self, net, **kwargs):
            seen.append(net.criterion_.generator.__getstate__())

    def noised(seed):
        return NoisedTopKHingeLoss(2, generator=seed)

    clf = TopKClassifier(k=2, loss=noised(0), callbacks=[See()], **QUICK).fit(X, y)
    ((device, drawn),) = clf.net_.criterion_.generator.__getstate__()["states"].items()
    clf.partial_fit(X, y).set_params(loss=noised(1)).partial_fit(X, y)
    assert [state["seed"] for state in seen] == [0, 0, 1]
    assert torch.equal(seen[1]["states"][device], drawn)
    assert not seen[0]["states"]
    assert not seen[2]["states"]


def test_a_criterion_given_as_an_instance_is_that_of_now():
    clf = TopKClassifier(k=2, loss="cross_entropy", warm_start=True, **QUICK).fit(X, y)
    weight = torch.tensor([100.0, 1, 1, 1])
    clf.set_params(loss=torch.nn.CrossEntropyLoss(weight=weight)).fit(X, y)
    torch.testing.assert_close(clf.net_.criterion_.criterion.weight.cpu(), weight)
    np.testing.assert_allclose(clf._log_class_weight, weight.log().numpy())


def test_a_refused_piece_is_not_counted():
    """What matters is the loss of now."""
    clf = AverageKClassifier(k=2, loss="role", **QUICK).fit(X, y)
    counts = clf.class_counts_.copy()
    with pytest.raises(ValueError, match="loss='role'.*piece by piece"):
        clf.partial_fit(X, y)
    np.testing.assert_array_equal(clf.class_counts_, counts)
    clf.set_params(loss="cross_entropy").partial_fit(X, y)
    np.testing.assert_array_equal(clf.class_counts_, counts + np.bincount(y))


@pytest.mark.parametrize("cls", BOTH)
def test_one_class_is_refused_by_its_name(cls):
    with pytest.raises(ValueError, match="classes holds 1 class: 0"):
        cls(k=1).partial_fit(X, np.zeros(len(X), int), classes=[0])
    with pytest.raises(ValueError, match="classes holds none"):
        cls(k=1).partial_fit(X, np.zeros(len(X), int), classes=[])
    with pytest.raises(ValueError, match="y holds 1 class: 0"):
        cls(k=1).fit(X, np.zeros(len(X), int))


@pytest.mark.parametrize("cls", BOTH)
def test_a_validation_part_without_samples_is_refused(cls):
    rows = np.unique(y, return_index=True)[1]
    with pytest.raises(ValueError, match="validation_fraction=0.2 holds no sample out"):
        cls(k=2, validation_fraction=0.2, **QUICK).fit(X[rows], y[rows])


def test_an_unknown_monitor_is_refused_without_a_validation_part():
    with pytest.raises(ValueError, match="monitor='nonsense'"):
        TopKClassifier(k=2, monitor="nonsense").fit(X, y)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_matrix])
def test_values_beyond_single_precision_are_refused(convert):
    large = X.copy()
    large[3, 2] = -1e300
    with pytest.raises(ValueError, match="1e\\+300, too large"):
        TopKClassifier(k=2, **QUICK).fit(convert(large), y)


# -- features of any scale ------------------------------------------------------------------


def among_empty_columns(table):
    """Return a matrix so sparse that products skip its zeros."""
    return sp.csr_matrix(np.hstack([table, np.zeros((len(table), 20 * table.shape[1]))]))


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_matrix, among_empty_columns])
def test_the_scale_of_large_columns_changes_nothing(convert):
    """Powers of two are exact: the network sees the same numbers, bit by bit."""
    large = 64 * X + 100
    factors = 2.0 ** np.arange(X.shape[1])
    one = TopKClassifier(k=2, **QUICK).fit(convert(large), y)
    other = TopKClassifier(k=2, **QUICK).fit(convert(large * factors), y)
    np.testing.assert_array_equal(
        logits(one, convert(large)), logits(other, convert(large * factors))
    )


def test_a_scale_that_rounds_to_one_is_none(tmp_path):
    """What the file holds and what is rebuilt from it are the same network."""
    ones = X / np.sqrt((X**2).mean(0)) * (1 + 1e-9)
    clf = TopKClassifier(k=2, **QUICK).fit(ones, y)
    save(clf, tmp_path / "clf")
    np.testing.assert_array_equal(load(tmp_path / "clf").predict_set(ones), clf.predict_set(ones))


def test_weights_enter_the_scale_as_repeats_do():
    repeats = np.arange(len(X)) % 3 + 1
    scales = []
    for table, labels, weight in [
        (100 * X, y, repeats),
        (np.repeat(100 * X, repeats, axis=0), np.repeat(y, repeats), None),
        (sp.csr_matrix(100 * X), y, repeats),
        (sp.csr_matrix(np.repeat(100 * X, repeats, axis=0)), np.repeat(y, repeats), None),
    ]:
        clf = TopKClassifier(k=2, **QUICK).fit(table, labels, sample_weight=weight)
        scales.append(dict(clf.net_.module_.normalize.named_buffers()))
    torch.testing.assert_close(scales[0], scales[1])
    torch.testing.assert_close(scales[2], scales[3])


def test_a_network_of_ones_own_gets_the_columns_as_they_are():
    seen = []

    class Body(torch.nn.Module):
        def forward(self, x):
            seen.append(x)
            return x

    TopKClassifier(k=2, backbone=Body(), **QUICK).fit(100 * X, y)
    assert max(batch.abs().max() for batch in seen) > 50


def test_the_default_learns_from_a_table_as_it_comes():
    wines, cultivars = load_wine(return_X_y=True)
    clf = TopKClassifier(k=1, random_state=0).fit(wines, cultivars)
    assert accuracy_score(cultivars, clf.predict(wines)) > 0.9


# -- images of another type -----------------------------------------------------------------

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
LABELS = np.arange(40) % N_CLASSES


@pytest.mark.parametrize("dtype", [float, np.int64])
def test_bytes_and_other_numbers_of_the_same_range_are_not_the_same_images(dtype):
    other = IMAGES.astype(dtype)
    clf = TopKClassifier(k=2, **QUICK).fit(IMAGES, LABELS)
    with pytest.raises(ValueError, match="uint8"):
        clf.predict(other)
    np.testing.assert_allclose(logits(clf, IMAGES / 255), logits(clf, IMAGES), atol=1e-4)
    clf.fit(other, LABELS)
    with pytest.raises(ValueError, match="bytes"):
        clf.predict(IMAGES)
    clf.fit(IMAGES / 255, LABELS)
    np.testing.assert_allclose(logits(clf, IMAGES / 255), logits(clf, IMAGES), atol=1e-4)


def test_bytes_are_bytes_wherever_they_come_from(tmp_path):
    colours = np.stack([IMAGES] * 3, 1)
    paths = [str(tmp_path / f"{i}.png") for i in range(len(IMAGES))]
    for path, image in zip(paths, IMAGES, strict=True):
        Image.fromarray(image).save(path)
    dataset = TensorDataset(torch.from_numpy(colours), torch.from_numpy(LABELS))
    stream = Stream.counted(list(zip(colours, LABELS.tolist(), strict=True)))
    in_process = {"iterator_train__num_workers": 0, "iterator_valid__num_workers": 0}
    clf = TopKClassifier(k=2, max_epochs=1, net_params=in_process)
    for given in (paths, dataset, Subset(dataset, range(40)), stream):
        clf.fit(given, None if given is stream else LABELS)
        with pytest.raises(ValueError, match="numbers up to 255, but those of `fit` were bytes"):
            clf.predict(colours.astype(float))
        assert example_batch(clf, to_torch(clf)).dtype == torch.uint8
    floats = TensorDataset(torch.from_numpy(colours).float())
    with pytest.raises(ValueError, match="numbers up to 2.., but those of `fit` were bytes"):
        clf.predict(Subset(floats, range(40)))
    clf.fit(colours / 255, LABELS)
    with pytest.raises(
        ValueError, match="numbers up to 2.., but those of `fit` were numbers from 0"
    ):
        clf.predict(colours.astype(int))
    clf.fit(colours / 127.5 - 1, LABELS)
    with pytest.raises(ValueError, match="numbers from -1 to 1: convert X"):
        clf.predict(paths)
    clf.set_params(transform=lambda image: image / 255 - 0.5).fit(colours, LABELS)
    clf.set_params(transform=None)
    assert example_batch(clf, to_torch(clf)).dtype == torch.float32


def test_samples_of_another_kind_are_told_from_those_of_another_shape():
    clf = TopKClassifier(k=2, **QUICK).fit(X, y)
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(X).float())
    with pytest.raises(ValueError, match="kind 'dataset'.*kind 'table'"):
        clf.predict(dataset)


@pytest.mark.parametrize(
    ("name", "cls", "params"),
    [
        ("sgd", torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "fused": True}),
        ("adamw", torch.optim.AdamW, {"fused": True}),
    ],
)
def test_an_optimizer_goes_on_by_its_name_and_by_its_class(name, cls, params):
    clf = TopKClassifier(k=2, optimizer=name, weight_decay=0.0, warm_start=True, **QUICK)
    clf.fit(X, y)
    other = copy.deepcopy(clf)
    net_params = {f"optimizer__{key}": value for key, value in params.items()}
    other.set_params(optimizer=cls, net_params=net_params)
    scores = [model.fit(X, y).decision_function(X) for model in (clf, other)]
    np.testing.assert_array_equal(*scores)


def test_a_second_warm_fit_holds_the_rows_of_the_first_out(monkeypatch):
    held, split = [], _labels.split_per_class

    def recorded(*args):
        parts = split(*args)
        held.append(parts[1].tolist())
        return parts

    monkeypatch.setattr(_labels, "split_per_class", recorded)
    clf = AverageKClassifier(k=2, warm_start=True, max_epochs=1)
    clf.fit(X, y).fit(X, y)
    assert held[0] == held[1]


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        (None, "mlp", "'mlp'"),
        (torch.nn.ReLU(), "mlp", "'mlp'"),
        ("mlp", torch.nn.ReLU(), "ReLU"),
        (torch.nn.ReLU(), torch.nn.Tanh(), "Tanh"),
    ],
)
def test_another_backbone_in_a_warm_start_is_told_to_have_no_effect(first, second, named):
    clf = TopKClassifier(k=2, warm_start=True, **{**QUICK, "backbone": first})
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "backbone")
        copy.deepcopy(clf.fit(X, y)).fit(X, y)
    clf.set_params(backbone=second)
    with pytest.warns(UserWarning, match=f"backbone={named} has no effect.*warm_start=False"):
        clf.fit(X, y)


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("backbone_params", {}, {"dropout": 0.5}),
        ("backbone_params", {"dropout": 0.5}, None),
        ("normalization", (0, 1), (1, 1)),
    ],
)
def test_what_a_network_in_training_does_not_follow_is_told(name, first, second, tmp_path):
    rows = X.reshape(-1, 1, 1, 5) if name == "normalization" else X
    clf = TopKClassifier(k=2, warm_start=True, max_epochs=1, **{name: first}).fit(rows, y)
    save(clf, tmp_path / "clf")
    clf = load(tmp_path / "clf")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*has no effect")
        clf.set_params(**{name: copy.deepcopy(first)}).fit(rows, y)
    clf.set_params(**{name: second})
    told = re.escape(f"{name}={second!r} has no effect")
    for go_on in (clf.fit, clf.partial_fit):
        with pytest.warns(UserWarning, match=f"{told}.*warm_start=False"):
            go_on(rows, y)


def test_a_threshold_that_few_samples_set_is_told(recwarn):
    clf = AverageKClassifier(k=2, **QUICK).fit(X, y)
    clf.partial_fit(X, y)
    assert not [w for w in recwarn if "samples of this piece" in str(w.message)]
    with pytest.warns(UserWarning, match=r"set by the 3 samples of this piece.*calibrate\(X\)"):
        clf.partial_fit(X[:3], y[:3])


class Tallies(torch.nn.Linear):
    """A backbone whose state is neither in tensors nor in numbers of its own."""

    def __init__(self):
        super().__init__(5, 8)
        self.tally = {"rows": 0}

    def get_extra_state(self):
        return self.tally

    def set_extra_state(self, state):
        self.tally = dict(state)

    def forward(self, x):
        if self.training:
            self.tally["rows"] += len(x)
        return super().forward(x)


def test_a_training_that_fails_puts_extra_states_back():
    clf = TopKClassifier(2, backbone=Tallies(), warm_start=True, **QUICK).fit(X, y)
    before = dict(clf.net_.module_.backbone.tally)
    with pytest.raises(OSError):
        clf.set_params(callbacks=[Fails("on_batch_end", OSError)]).fit(X, y)
    assert clf.net_.module_.backbone.tally == before

"""Networks and callbacks of one's own: what is kept of them, and what is said of them."""

import pickle
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone
from skorch.callbacks import Callback, Freezer
from torch import nn

from sksetvalued import AverageKClassifier, TopKClassifier, training
from sksetvalued.networks import Network, build_network
from sksetvalued.training import KeepState, _state

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 5)).astype("f4")
y = (X[:, 0] * 2 + rng.normal(size=60) * 0.3).round().clip(-1, 2).astype(int)
QUICK = {"k": 2, "max_epochs": 3, "batch_size": 20, "lr": 0.1, "random_state": 0}


# -- modules of a script --------------------------------------------------------------------


def test_a_module_that_other_processes_do_not_know_is_told_with_the_remedy(monkeypatch):
    OfScript = type("OfScript", (nn.Linear,), {"__module__": "__main__"})
    net = TopKClassifier(**{**QUICK, "max_epochs": 1}, backbone=OfScript(5, 8)).fit(X, y).net_
    remedy = "OfScript.*Define classes and functions of your own in a file that you import"
    with pytest.raises(pickle.PicklingError, match=remedy):
        pickle.dumps(net)
    with monkeypatch.context() as within:
        within.setattr(sys.modules["__main__"], "OfScript", OfScript, raising=False)
        content = pickle.dumps(net)
        assert isinstance(pickle.loads(content).module_.backbone, OfScript)
    with pytest.raises(AttributeError, match=remedy):
        pickle.loads(content)


# -- modules that a function returns --------------------------------------------------------


def around(body):
    return lambda shape: nn.Sequential(body, nn.ReLU())


@pytest.mark.parametrize("wrap", [around, lambda body: lambda shape: body])
def test_a_module_is_given_to_one_network(wrap):
    """A second fit would change the first, and folds would have seen what they score."""
    body = nn.Linear(5, 8)
    params = {**QUICK, "backbone": wrap(body)}
    first = TopKClassifier(**params).fit(X, y)
    before = first.predict_proba(X)
    with pytest.raises(ValueError, match="around a Linear that another network has.*deepcopy"):
        TopKClassifier(**params).fit(X, y)
    np.testing.assert_array_equal(first.predict_proba(X), before)
    with pytest.raises(ValueError, match="another network has"):
        AverageKClassifier(backbone=wrap(nn.Linear(5, 8)), calibration_folds=2, **QUICK).fit(X, y)


def test_parts_that_train_nothing_may_be_shared():
    frozen, bend = nn.Linear(5, 8).requires_grad_(False), nn.ReLU()
    params = {**QUICK, "backbone": lambda shape: nn.Sequential(frozen, bend, nn.LazyLinear(4))}
    fits = [TopKClassifier(**params).fit(X, y) for _ in range(2)]
    assert fits[0].net_.module_.backbone[0] is fits[1].net_.module_.backbone[0]


# -- numbers that a module holds ------------------------------------------------------------


class Temperature(nn.Module):
    """Features divided by a number, which callbacks set; counts its batches where it trains."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 8)
        self.tau, self.mode = 1.0, None
        # Tensors that are no buffers.
        self.shift, self.last = torch.zeros(8), None
        self.mask = torch.ones(1).expand(8)

    def forward(self, x):
        features = self.layer(x) / self.tau
        if self.training:
            self.count = getattr(self, "count", 0) + 1
            self.shift += features.detach().mean(0) / 10
            self.last = features.mean(0)
        shift = self.shift if self.last is None else self.shift + self.last.detach()
        return (features - shift) * self.mask


class Cools(Callback):
    """Sets the numbers of a module to those of the epoch, and raises at the end of one."""

    def __init__(self, fails=None, error=OSError):
        self.fails, self.error = fails, error

    def on_epoch_begin(self, net, **kwargs):
        body, epoch = net.module_.backbone, len(net.history)
        body.tau, body.mode = 2.0**-epoch, f"epoch {epoch}"

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == self.fails:
            raise self.error


def test_the_best_epoch_has_its_numbers():
    watch = {"validation_fraction": 0.4, "monitor": lambda y, scores: -((watched.pop(0) - 1) ** 2)}
    watched = [0, 1, 2, 3]
    clf = TopKClassifier(
        backbone=Temperature(), callbacks=[Cools()], **{**QUICK, "max_epochs": 4}, **watch
    ).fit(X, y)
    body = clf.net_.module_.backbone
    assert (body.tau, body.mode, body.count) == (2.0**-2, "epoch 2", 4)


@pytest.mark.parametrize("go_on", ["fit", "partial_fit"])
def test_a_training_that_fails_leaves_the_numbers_of_the_network(go_on):
    clf = TopKClassifier(backbone=Temperature(), warm_start=True, **QUICK).fit(X, y)
    body, before = clf.net_.module_.backbone, clf.decision_function(X)
    count = body.count
    clf.set_params(callbacks=[Cools(fails=4)])
    with pytest.raises(OSError):
        getattr(clf, go_on)(X, y)
    assert (body.tau, body.mode, body.count) == (1.0, None, count)
    np.testing.assert_array_equal(clf.decision_function(X), before)


class Warming(nn.CrossEntropyLoss):
    """Is scaled by the number of batches that it has seen."""

    n_seen = 0

    def forward(self, scores, target):
        if self.training:
            self.n_seen += 1
        return super().forward(scores, target) * min(1, self.n_seen / 10)


class Stepped(Temperature):
    """Features divided by the number of batches."""

    def forward(self, x):
        return super().forward(x) / getattr(self, "count", 1)


class Dies(KeepState):
    """Ends the process after two epochs were kept."""

    def on_epoch_end(self, net, **kwargs):
        super().on_epoch_end(net, **kwargs)
        if self.n_epochs_ == 2:
            raise SystemExit


@pytest.mark.parametrize("fraction", [None, 0.2])
def test_a_fit_goes_on_with_the_numbers_of_network_and_loss(fraction, tmp_path, monkeypatch):
    params = {"backbone": Stepped(), "loss": Warming(), "validation_fraction": fraction}
    clf = TopKClassifier(**{**QUICK, "max_epochs": 4}, **params)
    whole = clone(clf).fit(X, y)
    with monkeypatch.context() as patch:
        patch.setattr(training, "KeepState", Dies)
        with pytest.raises(SystemExit):
            clone(clf).fit(X, y, checkpoint=tmp_path / "fit")
    resumed = clone(clf).fit(X, y, checkpoint=tmp_path / "fit")
    np.testing.assert_array_equal(resumed.decision_function(X), whole.decision_function(X))
    assert resumed.net_.module_.backbone.count == whole.net_.module_.backbone.count
    assert resumed.net_.criterion_.criterion.n_seen == whole.net_.criterion_.criterion.n_seen


@pytest.mark.parametrize("go_on", ["fit", "partial_fit"])
def test_a_training_that_goes_on_has_the_numbers_of_the_loss(go_on):
    clf = TopKClassifier(backbone=Temperature(), loss=Warming(), warm_start=True, **QUICK)
    seen = []
    for _ in range(3):
        params = {"classes": np.unique(y)} if go_on == "partial_fit" else {}
        seen.append(getattr(clf, go_on)(X, y, **params).net_.criterion_.criterion.n_seen)
    assert seen == [seen[0], 2 * seen[0], 3 * seen[0]]
    # One that the caller gives anew begins with what it holds.
    given = Warming()
    given.n_seen = 7
    clf.set_params(loss=given)
    assert getattr(clf, go_on)(X, y).net_.criterion_.criterion.n_seen == 7 + seen[0]


class Remembers(nn.Linear):
    """Rows of ones for as many samples as it has counted last."""

    n, rows = None, None
    mode = property

    def forward(self, x):
        if self.n != len(x):
            self.n, self.rows, self.mode = len(x), torch.ones(len(x), 1), "late"
        return super().forward(x * self.rows)


def test_numbers_and_tensors_that_they_tell_of_stay_together(tmp_path, monkeypatch):
    params = {**QUICK, "backbone": Remembers(5, 8)}
    expected = TopKClassifier(**params).fit(X, y).decision_function(X)
    monkeypatch.setattr("sksetvalued.training.KeepState", Dies)
    with pytest.raises(SystemExit):
        TopKClassifier(**params).fit(X, y, checkpoint=tmp_path / "c")
    monkeypatch.setattr("sksetvalued.training.KeepState", KeepState)
    clf = TopKClassifier(**params).fit(X, y, checkpoint=tmp_path / "c")
    np.testing.assert_array_equal(clf.decision_function(X), expected)


class Drops(Callback):
    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == 2:
            del net.module_.backbone[2]


def test_the_best_epoch_may_have_had_other_parts():
    body = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.1))
    watched = [1, 0, 0]
    clf = TopKClassifier(
        backbone=body,
        callbacks=[Drops()],
        validation_fraction=0.4,
        monitor=lambda y, scores: watched.pop(0),
        **QUICK,
    ).fit(X, y)
    assert len(clf.net_.module_.backbone) == 2


@pytest.mark.parametrize("name", ["backbone.forward", "backbone._modules", ".training", "x.tau"])
def test_a_file_sets_no_other_attributes_of_a_network(name):
    network = build_network(Temperature(), None, None, (5,), 3)
    with pytest.raises(_state.STATE_ERRORS):
        _state._check_plain(network, {name: 1})
    with pytest.raises(ValueError, match="no number or string"):
        _state._check_plain(network, {"backbone.tau": torch.zeros(())})


# -- features in training -------------------------------------------------------------------


class Auto(nn.Module):
    """Computes in half precision by itself."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 8)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self.layer(x)


@pytest.mark.parametrize("loss", ["cross_entropy", "ldam"])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_backbone_may_return_features_in_half_precision(loss, precision):
    clf = TopKClassifier(backbone=Auto(), loss=loss, precision=precision, device="cpu", **QUICK)
    assert np.isfinite(clf.fit(X, y).history_[:, "train_loss"]).all()


class Changes(nn.Module):
    """Returns other features in training."""

    def __init__(self, change):
        super().__init__()
        self.layer, self.change = nn.Linear(5, 8), change

    def forward(self, x):
        features = self.layer(x)
        return self.change(features) if self.training else features


@pytest.mark.parametrize("loss", ["cross_entropy", "ldam", nn.CrossEntropyLoss()])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda f: torch.cat([f, f], 1),
            r"shape \(n_samples, 8\) .* shape \(20, 16\) in training",
        ),
        (lambda f: f[:, None], r"shape \(n_samples, 8\) .* shape \(20, 1, 8\) in training"),
        (lambda f: torch.cat([f, f]), r"shape \(40, n_features\) for 20 samples in training"),
        (lambda f: f.mean(0, keepdim=True), r"shape \(1, n_features\) for 20 samples in training"),
    ],
)
def test_features_of_another_shape_in_training_are_named(loss, change, message):
    clf = TopKClassifier(backbone=Changes(change), loss=loss, **QUICK)
    with pytest.raises(ValueError, match=f"backbone=Changes returns features of {message}"):
        clf.fit(X, y)


class Pairs(nn.Module):
    """Compares two versions of each sample."""

    def forward(self, scores, target):
        return nn.functional.cross_entropy(scores, target.repeat(2))


def test_a_loss_of_the_user_may_take_two_rows_for_each_sample():
    body = Changes(lambda f: torch.cat([f, 2 * f]))
    clf = TopKClassifier(backbone=body, loss=Pairs(), **QUICK).fit(X, y)
    assert clf.score(X, y) > 0.5


# -- callbacks ------------------------------------------------------------------------------


def test_a_training_of_no_parameters_is_named():
    clf = TopKClassifier(backbone=nn.Linear(5, 8), callbacks=[Freezer("*")], **QUICK)
    with pytest.raises(ValueError, match=r"callbacks leave no parameter .* Freezer\('backbone\*'"):
        clf.fit(X, y)


class Reads(Callback):
    def __init__(self, read):
        self.read = read

    def on_epoch_end(self, net, **kwargs):
        self.read(net.history)


def refuse(history):
    raise ValueError("Cannot read config.valid_sizes")


@pytest.mark.parametrize(
    ("read", "error"),
    [
        (refuse, "^Cannot read config.valid_sizes"),
        (lambda history: {}["valid_users"], "^'valid_users'$"),
        (lambda history: {}[3], "^3$"),
    ],
)
def test_errors_of_a_callback_are_its_own(read, error):
    with pytest.raises((KeyError, ValueError), match=error):
        TopKClassifier(callbacks=[Reads(read)], **QUICK).fit(X, y)


@pytest.mark.parametrize(
    "read",
    [
        lambda history: history[-1, "valid_loss"],
        lambda history: history[-1, "valid_users"],
        lambda history: history[-1, ("train_loss", "valid_loss")],
        lambda history: history[-1, ("valid_loss", "train_loss")],
        lambda history: history[-1]["valid_loss"],
        lambda history: history[-1]["valid_top_k_accuracy"],
    ],
)
def test_columns_of_a_validation_set_are_told_from_others(read):
    with pytest.raises(ValueError, match="A callback needs a validation set"):
        TopKClassifier(callbacks=[Reads(read)], **QUICK).fit(X, y)


def test_a_network_of_other_heads_trains():
    network = Network(nn.Identity(), nn.Linear(5, 8), nn.Linear(8, 3)).train()
    assert network(torch.zeros(2, 5)).shape == (2, 3)

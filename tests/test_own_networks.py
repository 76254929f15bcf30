"""Networks and callbacks of one's own: what is kept of them, and what is said of them."""

import copy

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


# -- modules that a function returns --------------------------------------------------------


def around(body):
    return lambda shape: nn.Sequential(body, nn.ReLU())


@pytest.mark.parametrize("wrap", [around, lambda body: lambda shape: body])
def test_a_module_that_a_callable_holds_is_left_alone(wrap):
    body = nn.Linear(5, 8)
    body.weight.requires_grad_(False)
    start = copy.deepcopy(body.state_dict())
    params = {**QUICK, "backbone": wrap(body)}
    first = TopKClassifier(**params).fit(X, y)
    before = first.predict_proba(X)
    second = TopKClassifier(**params).fit(X, y)
    np.testing.assert_array_equal(first.predict_proba(X), before)
    np.testing.assert_array_equal(second.predict_proba(X), before)
    for name, value in body.state_dict().items():
        assert torch.equal(value, start[name])
    trained = [p.requires_grad for p in second.net_.module_.backbone.parameters()]
    assert trained == [False, True]


def test_tensors_that_a_callable_holds_are_left_alone():
    table = torch.randn(5, 8)

    def make(shape):
        layer = nn.Linear(5, 8)
        layer.weight.data = table.t()
        return layer

    before = table.clone()
    TopKClassifier(backbone=make, **QUICK).fit(X, y)
    assert torch.equal(table, before)


def test_the_threshold_of_a_callable_is_that_of_networks_of_their_own():
    """Folds that shared a module would have seen the samples that they score."""
    body = nn.Linear(5, 8)
    params = {**QUICK, "calibration_folds": 2}
    shared = AverageKClassifier(backbone=around(body), **params).fit(X, y)
    copied = AverageKClassifier(backbone=nn.Sequential(body, nn.ReLU()), **params).fit(X, y)
    assert shared.threshold_ == copied.threshold_


class Locked(nn.Linear):
    def __deepcopy__(self, memo):
        raise NotImplementedError("no copies")


def enclosing():
    """A module whose hook writes to the module that it was made for."""
    body = nn.Linear(5, 8)
    body.register_forward_hook(lambda module, args, output: output + body.bias)
    return body


def replaced():
    body = nn.Sequential(nn.Linear(5, 8), nn.ReLU())
    body.forward = lambda x: body[1](body[0](x))
    return body


@pytest.mark.parametrize("make", [lambda: Locked(5, 8), enclosing, replaced])
def test_a_module_that_has_no_copies_of_its_own_is_trained_itself(make):
    made = []

    def builder(shape):
        made.append(make())
        return made[-1]

    clf = TopKClassifier(backbone=builder, **QUICK).fit(X, y)
    assert clf.net_.module_.backbone is made[-1]


def test_a_copy_has_the_weights_that_were_drawn_and_completes_lazy_layers():
    def make(shape):
        return nn.Sequential(nn.Linear(*shape, 8), nn.LazyLinear(4))

    torch.manual_seed(0)
    body = make((5,))
    torch.manual_seed(0)
    network = build_network(make, None, None, (5,), 3)
    assert torch.equal(network.backbone[0].weight, body[0].weight)
    assert network.backbone[1].weight.shape == (4, 8)


# -- numbers that a module holds ------------------------------------------------------------


class Temperature(nn.Module):
    """Features divided by a number, which callbacks set; counts its batches where it trains."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 8)
        self.tau, self.mode = 1.0, None

    def forward(self, x):
        if self.training:
            self.count = getattr(self, "count", 0) + 1
        return self.layer(x) / self.tau


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

"""What users pass through to skorch and torch, and what is said where that cannot work."""

import pickle
import threading
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from skorch.callbacks import (
    BatchScoring,
    Callback,
    Checkpoint,
    EarlyStopping,
    EpochScoring,
    EpochTimer,
    Freezer,
    GradientNormClipping,
    LoadInitState,
    LRScheduler,
    PassthroughScoring,
    PrintLog,
    ProgressBar,
    TrainEndCheckpoint,
    Unfreezer,
)
from torch.utils.data import DataLoader

from sksetvalued import AverageKClassifier, SparseTopClassifier, TopKClassifier, training
from sksetvalued.inputs import SparseInputs, SparseRows
from sksetvalued.inputs._tables import ArrayInputs
from sksetvalued.metrics import (
    average_k_scorer,
    set_coverage_scorer,
    set_size_scorer,
    top_k_scorer,
)
from sksetvalued.training import (
    TrainingSet,
    make_batches,
    make_criterion,
    resolve_device,
    split_per_class,
)
from sksetvalued.training._data import moved

N_CLASSES = 6


def classifier(cls=TopKClassifier, **params):
    """Return a small classifier with a linear network."""
    params = {"k": 2, "max_epochs": 4, "random_state": 0, "backbone": (16,), **params}
    return cls(**{"loss": "cross_entropy", **params})


@pytest.fixture(scope="module")
def data():
    X, y = make_blobs(240, centers=N_CLASSES, n_features=5, cluster_std=3.0, random_state=0)
    return X.astype(np.float32), y


@pytest.fixture
def paths(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(12):
        image = rng.integers(0, 255, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(image).save(tmp_path / f"{i:02d}.png")
    return np.array(sorted(str(path) for path in tmp_path.glob("*.png")))


def weights_of(clf):
    return {key: value.clone() for key, value in clf.net_.bare_module.state_dict().items()}


def same_weights(first, second):
    return all(torch.equal(first[key], second[key]) for key in first)


# -- skorch callbacks -----------------------------------------------------------------------


class States(Callback):
    """Keep the weights of each epoch in a list of the class, as callbacks are copied."""

    kept = []

    def on_train_begin(self, net, **kwargs):
        self.kept.clear()

    def on_epoch_end(self, net, **kwargs):
        self.kept.append({k: v.clone() for k, v in net.module_.state_dict().items()})


@pytest.mark.parametrize("monitor", ["valid_loss_best", "valid_top_k_accuracy_best", None])
def test_a_checkpoint_of_skorch_saves_the_epoch_it_is_asked_for(monitor, data, tmp_path):
    checkpoint = Checkpoint(dirname=str(tmp_path), monitor=monitor)
    clf = classifier(validation_fraction=0.2, callbacks=[checkpoint, States()]).fit(*data)
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"params.pt", "optimizer.pt", "criterion.pt", "history.json"}
    events = clf.history_[:, "event_cp"]
    assert events == (clf.history_[:, monitor] if monitor else [True] * 4)
    last = max(i for i, event in enumerate(events) if event)
    saved = torch.load(tmp_path / "params.pt", weights_only=True)
    assert same_weights(saved, States.kept[last])


def test_a_checkpoint_names_its_files_by_epoch_and_batch(data, tmp_path):
    names = {
        "f_params": "{last_epoch[epoch]}_{last_batch[valid_batch_size]}.pt",
        "f_pickle": "net_{last_epoch[epoch]}.pkl",
    }
    checkpoint = Checkpoint(
        dirname=str(tmp_path), monitor=None, f_history=None, f_criterion=None, **names
    )
    clf = classifier(
        validation_fraction=0.2, max_epochs=2, batch_size=32, callbacks=[checkpoint]
    ).fit(*data)
    n_valid = sum(clf.history_[-1, "batches", :, "valid_batch_size"])
    expected = {f"{i}_{n_valid % 32}.pt" for i in (1, 2)} | {"net_1.pkl", "net_2.pkl"}
    assert {path.name for path in tmp_path.iterdir()} == expected | {"optimizer.pt"}
    net = pickle.loads((tmp_path / "net_2.pkl").read_bytes())
    assert len(net.history) == 2


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1"])
def test_batches_on_the_processor_are_waited_for(device):
    batch = SimpleNamespace(to=lambda device, non_blocking: non_blocking)
    assert moved(batch, device) == (device != "cpu")


def test_batches_are_recorded_where_callbacks_may_read_them(data):
    class OnBatch(Callback):
        def on_batch_end(self, net, **kwargs):
            pass

    clf = classifier(batch_size=50, validation_fraction=0.4)
    at_the_end, one_by_one, none = (
        clone(clf).set_params(callbacks=callbacks).fit(*data).history_
        for callbacks in ([GradientNormClipping()], [OnBatch()], None)
    )
    assert at_the_end[:, "batches"] == one_by_one[:, "batches"]
    assert [len(rows) for rows in at_the_end[:, "batches"]] == [3 + 2] * 4
    assert none[:, "batches"] == [[]] * 4
    columns = ("train_loss", "valid_loss", "train_batch_count")
    assert at_the_end[:, columns] == none[:, columns]


@pytest.mark.parametrize("on_train", [True, False])
def test_averages_over_the_batches_are_those_of_the_net(on_train, data):
    name = "train_loss" if on_train else "valid_loss"
    own = ("mine", PassthroughScoring(name, on_train=on_train))
    clf = classifier(validation_fraction=0.4, batch_size=50)
    expected = clone(clf).fit(*data).history_[:, name]
    found = clf.set_params(callbacks=[own]).fit(*data).history_[:, name]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_weights_saved_at_the_end_are_those_that_are_kept(data, tmp_path):
    callbacks = [TrainEndCheckpoint(dirname=str(tmp_path)), States()]
    clf = classifier(
        validation_fraction=0.3, lr=0.1, max_epochs=20, lr_schedule=None, callbacks=callbacks
    ).fit(*data)
    assert not same_weights(weights_of(clf), States.kept[-1])
    saved = torch.load(tmp_path / "train_end_params.pt", weights_only=True)
    assert same_weights(saved, weights_of(clf))


def test_epochs_after_a_history_that_was_loaded_are_whole(data, tmp_path):
    checkpoint = Checkpoint(dirname=str(tmp_path), monitor=None)
    classifier(batch_size=20, callbacks=[checkpoint]).fit(*data)
    clf = classifier(batch_size=20, callbacks=[LoadInitState(checkpoint)]).fit(*data)
    assert clf.history_[:, "train_batch_count"] == [12] * (4 + 4)


@pytest.mark.parametrize("kind", ["checkpoint", "stopping"])
def test_weights_that_a_callback_loads_at_the_end_are_kept(kind, data, tmp_path):
    own = {
        "checkpoint": Checkpoint(
            dirname=str(tmp_path), monitor=lambda net: len(net.history) == 3, load_best=True
        ),
        "stopping": EarlyStopping(
            "epoch", threshold=100, threshold_mode="abs", load_best=True, patience=2
        ),
    }[kind]
    params = {"max_epochs": 12, "lr": 0.1, "lr_schedule": None, "validation_fraction": 0.3}
    clf = classifier(callbacks=[own, States()], **params).fit(*data)
    best = 3 if kind == "checkpoint" else 1
    assert same_weights(weights_of(clf), States.kept[best - 1])


def test_callbacks_see_the_epoch_that_patience_stops_at(data):
    clf = classifier(
        validation_fraction=0.3, patience=1, max_epochs=100, lr=0.1, callbacks=[States()]
    ).fit(*data)
    assert clf.n_iter_ < 100
    assert len(States.kept) == clf.n_iter_


def test_the_best_epoch_counts_though_another_callback_stops_at_it(data):
    class Stop(Callback):
        def on_epoch_end(self, net, **kwargs):
            if len(net.history) == 2:
                raise KeyboardInterrupt

    def later_is_better(y_true, y_score):
        return next(counter)

    counter = iter(range(100))
    params = {"validation_fraction": 0.3, "monitor": later_is_better}
    clf = classifier(callbacks=[States(), Stop()], **params).fit(*data)
    assert clf.n_iter_ == 2
    assert same_weights(weights_of(clf), States.kept[1])


def test_scores_of_batches_are_refused_with_a_remedy(data):
    with pytest.raises(ValueError, match="BatchScoring.*use EpochScoring"):
        classifier(validation_fraction=0.2, callbacks=[BatchScoring("accuracy")]).fit(*data)


def plain_accuracy(net, X, y):
    """A scoring as in skorch's guide: the net predicts."""
    assert len(net.history) > 0
    return (net.predict(X) == y).mean()


@pytest.mark.parametrize("cls", [TopKClassifier, AverageKClassifier])
def test_epoch_scoring_scores_the_estimator_of_the_epoch(cls, data):
    X, y = data
    y = np.array([f"class {label}" for label in y])
    scorings = {
        "accuracy": "accuracy",
        "own": plain_accuracy,
        "own metric": {TopKClassifier: top_k_scorer, AverageKClassifier: average_k_scorer}[cls](
            k=2
        ),
        "covered": set_coverage_scorer(),
        "size": set_size_scorer(),
        "log": "neg_log_loss",
    }
    callbacks = [
        (name, EpochScoring(scoring, lower_is_better=False, name=name))
        for name, scoring in scorings.items()
    ]
    callbacks.append(EpochScoring("accuracy", on_train=True, name="train", use_caching=False))
    params = {} if cls is TopKClassifier else {"calibration_fraction": None}
    params |= {"validation_fraction": 0.3, "lr_schedule": "averaged", "callbacks": callbacks}
    clf = classifier(cls, **params).fit(X, y)
    bare = clone(clf).set_params(callbacks=None).fit(X, y)
    assert same_weights(weights_of(clf), weights_of(bare))
    history = clf.history_
    assert history[:, "own"] == history[:, "accuracy"]
    np.testing.assert_allclose(history[:, "size"], clf.k, atol=0.02)
    assert history[:, "covered"] >= history[:, "accuracy"]
    assert history[0, "accuracy_best"]
    # The best epoch is kept: its scores are those of the fitted model on the same samples.
    _, held = split_per_class(np.unique(y, return_inverse=True)[1], 0.3, _split_seed(clf))
    monitored = history[:, clf._monitor_metric()[0]]
    np.testing.assert_allclose(history[:, "own metric"], monitored)
    best = int(np.argmax(monitored))
    assert history[best, "accuracy"] == pytest.approx(clf.score(X[held], y[held]))
    assert history[best, "log"] == pytest.approx(-log_loss(y[held], clf.predict_proba(X[held])))


@pytest.mark.parametrize("warm_start", [False, True])
def test_a_scorer_sees_the_epochs_so_far(warm_start, data):
    seen = []

    def count(clf, X, y):
        seen.append((clf.n_iter_, len(clf.history_), "train_loss" in clf.history_[-1]))
        return clf.n_iter_

    callbacks = [EpochScoring(count, on_train=True, name="count")]
    clf = classifier(max_epochs=2, warm_start=warm_start, callbacks=callbacks)
    clf.fit(*data).fit(*data)
    epochs = [1, 2, 3, 4] if warm_start else [1, 2, 1, 2]
    assert seen == [(n, n, True) for n in epochs]
    assert clf.history_[:, "count"] == epochs[-clf.n_iter_ :]


class OwnScoring(EpochScoring):
    """Score without held-out samples."""

    def on_epoch_end(self, net, **kwargs):
        net.history.record("own", 1.0)


@pytest.mark.parametrize("max_epochs", [2, "auto"])
def test_scores_of_held_out_samples_need_some(data, max_epochs):
    """A search holds samples out, but what it scores is not in the history of the fit."""
    scorings = [("held out", EpochScoring("accuracy")), EpochScoring("accuracy", on_train=True)]
    clf = classifier(max_epochs=max_epochs, lr=3e-2, callbacks=scorings)
    with pytest.warns(UserWarning, match=r"\['held out'\] score held-out samples.*set validation"):
        clf.fit(*data)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "The callbacks")
        clf.set_params(max_epochs=2, validation_fraction=0.2).fit(*data)
        clf.set_params(validation_fraction=None, callbacks=scorings[1:]).fit(*data)
        clf.set_params(callbacks=[OwnScoring("accuracy")]).fit(*data)
    clf.set_params(callbacks=scorings)
    with pytest.warns(UserWarning, match="record nothing: set on_train=True"):
        clf.partial_fit(*data)


def _split_seed(clf):
    return np.random.RandomState(clf._seed)


def test_epoch_scoring_of_label_sets(data):
    X, y = data
    Y = np.eye(4, dtype=int)[y % 4] | np.eye(4, dtype=int)[(y + 1) % 4]
    scoring = EpochScoring("f1_micro", lower_is_better=False)
    params = {"max_epochs": 3, "random_state": 0, "callbacks": [scoring]}
    for size in ("predicted", "threshold"):
        clf = SparseTopClassifier(size=size, validation_fraction=0.2, **params).fit(X, Y)
        assert len(clf.history_[:, "f1_micro"]) == 3


class Tracker(Callback):
    """Holds what cannot be copied, as the writer of TensorBoard does."""

    def __init__(self, run):
        self.run = run
        self.lock = threading.Lock()

    def on_train_begin(self, net, **kwargs):
        self.started_ = True

    def on_epoch_end(self, net, **kwargs):
        self.run.rows.append(net.history[-1, "train_loss"])


class Run:
    def __init__(self):
        self.lock, self.rows = threading.Lock(), []


def test_callbacks_that_cannot_be_copied_are_shared(data):
    tracker = Tracker(Run())
    clf = classifier(callbacks=[("tracker", tracker)], max_epochs=2).fit(*data)
    assert tracker.run.rows == clf.history_[:, "train_loss"]
    assert not hasattr(tracker, "started_")
    search = GridSearchCV(clf, {"lr": [0.1, 0.01]}, cv=2, error_score="raise").fit(*data)
    assert len(tracker.run.rows) == 2 * (1 + 4 + 1)
    assert search.best_estimator_.callbacks[0][1].run is tracker.run
    with pytest.raises(TypeError, match=r"callbacks holds Tracker.*set_params\(callbacks=None\)"):
        pickle.dumps(clf)
    again = pickle.loads(pickle.dumps(clf.set_params(callbacks=None)))
    assert same_weights(weights_of(clf), weights_of(again))
    assert [name for name, _ in again.net_.callbacks_ if name == "tracker"] == []


class Counter(Callback):
    count = 0

    def on_epoch_end(self, net, **kwargs):
        self.count += 1


class Watcher(Callback):
    def __init__(self, other):
        self.other = other

    def on_epoch_end(self, net, **kwargs):
        net.history.record("counted", self.other.count)


@pytest.mark.parametrize("run", [None, Run()], ids=["copied", "shared"])
def test_callbacks_that_hold_others_hold_those_of_the_fit(run, data, tmp_path):
    counter = Counter()
    counter.run = run
    clf = classifier(callbacks=[counter, Watcher(counter)], max_epochs=3)
    for each in (clf, clone(clf)):
        assert each.fit(*data).history_[:, "counted"] == [1, 2, 3]
    assert counter.count == 0
    last = TrainEndCheckpoint(dirname=str(tmp_path))
    callbacks = [last, LoadInitState(last)]
    first, second = (classifier(max_epochs=2, callbacks=callbacks).fit(*data) for _ in range(2))
    assert len(first.history_) == 2
    assert len(second.history_) == 4


class Remote(Callback):
    """Is its own copy, and cannot be read from a pickle, as a run of Weights & Biases is."""

    def __deepcopy__(self, memo):
        return self

    def __getstate__(self):
        return {"run": "there"}

    def __setstate__(self, state):
        raise RuntimeError("no run is there")


def test_callbacks_that_cannot_be_read_from_a_pickle_are_no_part_of_it(data):
    clf = classifier(callbacks=[Remote()], max_epochs=2).fit(*data)
    with pytest.raises(TypeError, match=r"callbacks holds Remote.*no run is there"):
        pickle.dumps(clf)
    again = pickle.loads(pickle.dumps(clf.set_params(callbacks=None)))
    assert same_weights(weights_of(clf), weights_of(again))


def test_callbacks_that_only_watch_work(data, capsys):
    watching = [PrintLog(), EpochTimer(), ProgressBar()]
    clf = classifier(validation_fraction=0.2, callbacks=watching).fit(*data)
    assert clf.n_iter_ == 4
    assert "train_loss" in capsys.readouterr().out
    bare = classifier(validation_fraction=0.2).fit(*data)
    assert same_weights(weights_of(clf), weights_of(bare))


@pytest.mark.parametrize("value", ["x", 3, ("name", "x"), ("a", "b", "c"), dict])
def test_what_is_no_callback_is_named(value, data):
    with pytest.raises(TypeError, match="callbacks must hold skorch callbacks"):
        classifier(callbacks=[value]).fit(*data)


@pytest.mark.parametrize("name", ["best_epoch", "lr_schedule"])
def test_a_name_that_is_taken_is_named(name, data):
    params = {"callbacks": [(name, PrintLog(sink=len))]}
    with pytest.raises(ValueError, match=f"callbacks holds the name '{name}'.*another name"):
        classifier(validation_fraction=0.2, **params).fit(*data)
    classifier(lr_schedule=None, **params).fit(*data)


def test_callbacks_may_be_named_switched_off_and_set_by_net_params(data):
    stopping = ("stop", EarlyStopping("train_loss", threshold=10))
    clf = classifier(max_epochs=9, callbacks=[stopping])
    assert clf.set_params(net_params={"callbacks__stop__patience": 2}).fit(*data).n_iter_ == 3
    assert clf.set_params(net_params={"callbacks__stop": None}).fit(*data).n_iter_ == 9
    assert classifier(max_epochs=3, callbacks=[("none", None)]).fit(*data).n_iter_ == 3


@pytest.mark.parametrize(
    "callback",
    [
        EarlyStopping(),
        Checkpoint(monitor="valid_loss_best"),
        LRScheduler("ReduceLROnPlateau", monitor="valid_loss"),
    ],
)
def test_callbacks_that_need_a_validation_set_say_so(callback, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="set validation_fraction"):
        classifier(callbacks=[callback]).fit(*data)


@pytest.mark.parametrize("fraction", [None, 0.2])
@pytest.mark.parametrize(
    "callback",
    [
        EarlyStopping(monitor="accuracy"),
        Checkpoint(monitor="accuracy_best"),
        LRScheduler("ReduceLROnPlateau", monitor="accuracy"),
    ],
)
def test_what_no_epoch_records_is_named_with_what_one_does(
    callback, fraction, data, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    clf = classifier(callbacks=[callback], validation_fraction=fraction)
    recorded = "'train_loss', 'train_loss_best'"
    recorded += r"\]" if fraction is None else ", 'valid_loss'"
    message = rf"A callback reads 'accuracy\w*', which .* name one of \[.*{recorded}"
    with pytest.raises(ValueError, match=message):
        clf.fit(*data)


@pytest.mark.parametrize("callback", [EarlyStopping, ("best", Checkpoint())])
def test_callbacks_that_the_last_training_cannot_have_are_told_before_any(callback, data):
    States.kept.clear()
    clf = classifier(max_epochs="auto", validation_fraction=0.2, callbacks=[callback, States()])
    with pytest.raises(ValueError, match="max_epochs='auto' ends with .* set max_epochs"):
        clf.fit(*data)
    assert not States.kept


def test_an_error_of_a_callback_of_ones_own_stays_as_it_is(data):
    class Broken(Callback):
        def on_epoch_end(self, net, **kwargs):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        classifier(callbacks=[Broken()]).fit(*data)


def test_layers_may_be_frozen_for_the_first_epochs(data):
    """Under averaged weights too, which remember all of them."""
    frozen = [Freezer("backbone.*"), Unfreezer("backbone.*", at=3), States()]
    for schedule in ("averaged", "cosine"):
        States.kept.clear()
        clf = classifier(callbacks=frozen, lr_schedule=schedule).fit(*data)
        first, second, third, _ = States.kept
        assert torch.equal(first["backbone.0.weight"], second["backbone.0.weight"])
        assert not torch.equal(second["backbone.0.weight"], third["backbone.0.weight"])
        assert not torch.equal(first["head.weight"], second["head.weight"])
        assert all(p.requires_grad for p in clf.net_.module_.parameters())


def moved_by(clf, data):
    """Return which parameters of the network a further fit moves."""
    before = weights_of(clf)
    after = weights_of(clf.fit(*data))
    return {name for name, weight in before.items() if not torch.equal(weight, after[name])}


def test_layers_are_frozen_and_freed_where_a_warm_start_begins(data):
    clf = classifier(warm_start=True, callbacks=[Freezer("backbone.*")], max_epochs=2).fit(*data)
    assert moved_by(clf, data) == {"head.weight", "head.bias"}
    clf.set_params(callbacks=[Unfreezer("backbone.*")])
    assert moved_by(clf, data) > {"head.weight", "backbone.0.weight"}
    clf.set_params(callbacks=[Freezer("head.*")])
    assert not moved_by(clf, data) & {"head.weight", "head.bias"}


def test_names_are_those_of_the_network_where_it_is_compiled(data):
    groups = [("head.*", {"lr": 0.5})]
    net = {"compile__backend": "eager", "optimizer__param_groups": groups}
    params = {"callbacks": [Freezer("backbone.*")], "lr_schedule": None, "net_params": net}
    clf = classifier(compile=True, warm_start=True, max_epochs=1, lr=0.1, **params).fit(*data)
    assert [group["lr"] for group in clf.net_.optimizer_.param_groups] == [0.5, 0.1]
    assert moved_by(clf, data) == {"head.weight", "head.bias"}


@pytest.mark.parametrize("mapper", [Freezer, Unfreezer])
def test_a_pattern_of_no_parameter_is_told(mapper, data):
    with pytest.raises(ValueError, match=rf"{mapper.__name__} of callbacks .*'backbon\.\*'.*head"):
        classifier(callbacks=[mapper(["head.*", "backbon.*"])]).fit(*data)


@pytest.mark.parametrize(
    ("groups", "error", "match"),
    [
        ({"head*": {"lr": 1e-4}}, ValueError, r"must hold pairs .*'lr': 1e-4"),
        ([("head*", 1e-4)], ValueError, "must hold pairs"),
        ([("head*", {"lr": "1e-4"})], ValueError, r"of 'head\*': lr must be a number"),
        ([("head*", {"weight_decay": -1.0})], ValueError, "weight_decay must be .* at least 0"),
        ([("head*", {"weightdecay": 0.0})], UserWarning, r"has \['weightdecay'\].*'weight_decay'"),
    ],
)
def test_odd_groups_of_parameters_are_told(groups, error, match, data):
    clf = classifier(max_epochs=1, net_params={"optimizer__param_groups": groups})
    expects = pytest.warns if issubclass(error, Warning) else pytest.raises
    with expects(error, match=match):
        clf.fit(*data)


def test_training_samples_are_scored_as_the_estimator_predicts_them():
    y = np.arange(64) % 4
    images = (60 * y[:, None, None] + np.zeros((64, 8, 8))).astype(np.uint8)
    clf = TopKClassifier(
        1,
        transform={"train": lambda image: 255 - image, "eval": None},
        callbacks=[EpochScoring("accuracy", on_train=True, name="accuracy")],
        max_epochs=4,
        random_state=0,
    ).fit(images, y)
    assert clf.history_[-1, "accuracy"] == clf.score(images, y)


@pytest.mark.parametrize(
    "params",
    [
        *({"loss": loss} for loss in ("noised_mixture", "ldam", "role")),
        *({"backbone": backbone} for backbone in (None, "shufflenet_v2_x0_5")),
    ],
)
def test_the_settings_of_torch_change_no_training(data, params):
    """Neither the type of new tensors, nor that no graphs are kept."""
    images = np.random.default_rng(0).random((16, 3, 8, 8)), np.arange(16) % 4
    given = images if "backbone" in params else data
    clf = classifier(max_epochs=1, **params)
    expected = weights_of(clf.fit(*given))
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        torch.set_default_dtype(dtype)
        try:
            with torch.no_grad():
                found = weights_of(clf.fit(*given))
            assert torch.get_default_dtype() == dtype
        finally:
            torch.set_default_dtype(torch.float32)
        assert same_weights(found, expected)


# -- gradients ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_samples", "schedule", "weighted", "of_classes"),
    [
        (240, "averaged", False, None),
        (235, "averaged", False, None),
        (235, "one_cycle", False, None),
        (240, "one_cycle", True, None),
        (235, "averaged", True, None),
        (235, "averaged", False, "mean"),
        (240, "averaged", True, "mean"),
        (235, "averaged", True, "sum"),
    ],
)
def test_gradients_of_several_batches_make_the_update_of_one(
    data, n_samples, schedule, weighted, of_classes
):
    X, y = (part[:n_samples] for part in data)
    weight = np.random.default_rng(0).exponential(size=n_samples) ** 2 if weighted else None
    norms = []

    class Norms(Callback):
        def on_grad_computed(self, net, named_parameters, **kwargs):
            norms.append(sum(float(p.grad.square().sum()) for _, p in named_parameters))

    params = {"optimizer": "sgd", "lr": 0.05, "callbacks": [Norms()]}
    params |= {"backbone_params": {"dropout": 0.0}, "lr_schedule": schedule}
    if of_classes is not None:
        of_each = torch.linspace(0.2, 5, N_CLASSES)
        params["loss"] = torch.nn.CrossEntropyLoss(weight=of_each, reduction=of_classes)
        params["lr"] /= 60 if of_classes == "sum" else 1
    whole = classifier(batch_size=60, **params).fit(X, y, sample_weight=weight)
    of_one, norms[:] = list(norms), []
    params["net_params"] = {"gradient_accumulation_steps": 4}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*lr_scheduler.step")
        parts = classifier(batch_size=15, **params).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(norms, of_one, rtol=1e-3)
    for name, value in weights_of(whole).items():
        torch.testing.assert_close(weights_of(parts)[name], value, rtol=1e-4, atol=1e-5)


def test_callbacks_record_gradients_by_batch(data):
    class Norms(Callback):
        def on_grad_computed(self, net, named_parameters, **kwargs):
            net.history.record_batch(
                "norm", sum(float(p.grad.norm()) for _, p in named_parameters)
            )

    clf = classifier(max_epochs=2, batch_size=60, callbacks=[Norms()]).fit(*data)
    rows = clf.history_[-1]["batches"]
    assert [row["norm"] > 0 for row in rows] == [True] * clf.history_[-1]["train_batch_count"]
    assert all(row["train_loss"] > 0 for row in rows)


class Gated(torch.nn.Module):
    """Use a second branch for rows whose first feature is positive."""

    def __init__(self):
        super().__init__()
        self.branches = torch.nn.ModuleList(torch.nn.Linear(5, 3) for _ in range(2))

    def forward(self, x):
        features, gate = self.branches[0](x), (x[:, :1] > 0).float()
        return features + gate * self.branches[1](x) if gate.any() else features


def test_a_part_that_a_batch_does_not_use_has_no_gradient_from_it():
    X, y = np.full((32, 5), -1.0), np.arange(32) % 4
    X[np.arange(32), np.arange(32) % 5] -= 1
    X[8:10] *= -1
    params = {"optimizer": "sgd", "lr_schedule": None, "lr": 0.1, "backbone": Gated()}
    params["net_params"] = {"gradient_accumulation_steps": 4, "iterator_train__shuffle": False}
    parts = classifier(batch_size=8, max_epochs=1, **params).fit(X, y)
    params["net_params"] = {"iterator_train__shuffle": False}
    whole = classifier(batch_size=32, max_epochs=1, **params).fit(X, y)
    for name, value in weights_of(whole).items():
        torch.testing.assert_close(weights_of(parts)[name], value, rtol=1e-4, atol=1e-6)


def test_a_batch_that_weighs_nothing_changes_nothing():
    X, y = np.random.default_rng(0).normal(size=(64, 5)), np.repeat([0, 1], 32)
    loss = torch.nn.CrossEntropyLoss(weight=torch.tensor([0.0, 1.0]))
    for accumulated in (1, 2):
        here = {"gradient_accumulation_steps": accumulated, "iterator_train__shuffle": False}
        params = {"loss": loss, "batch_size": 16, "net_params": here, "k": 1}
        clf = classifier(lr_schedule=None, optimizer="sgd", weight_decay=None, **params).fit(X, y)
        assert np.isfinite(clf.history_[-1, "train_loss"])
        assert clf.history_[-1, "train_loss"] < clf.history_[0, "train_loss"]
    nothing = torch.nn.CrossEntropyLoss(weight=torch.zeros(2))
    assert classifier(loss=nothing, k=1).fit(X, y).history_[-1, "train_loss"] == 0


def test_an_interrupt_amid_accumulation_leaves_no_gradients(data):
    class Interrupt(Callback):
        def on_batch_end(self, net, **kwargs):
            assert net._held[0]
            raise KeyboardInterrupt

    params = {"batch_size": 60, "net_params": {"gradient_accumulation_steps": 4}}
    clf = classifier(callbacks=[Interrupt()], **params)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        clf.fit(*data)
    assert clf.net_._held == ({}, 0, 0)


class Tempered(torch.nn.CrossEntropyLoss):
    def __init__(self, name="rate"):
        super().__init__()
        self.name = name
        setattr(self, name, torch.nn.Parameter(torch.zeros(())))

    def forward(self, scores, target):
        return super().forward(scores * getattr(self, self.name).exp(), target)


@pytest.mark.parametrize("compiled", [False, True])
def test_warm_starts_go_on_with_what_the_optimizer_knew_of_the_loss(data, compiled):
    params = {"loss": Tempered(), "lr_schedule": None, "warm_start": True, "compile": compiled}
    if compiled:
        params["net_params"] = {"compile__backend": "eager"}
    twice = classifier(max_epochs=2, **params).fit(*data).fit(*data)
    once = classifier(max_epochs=4, **params).fit(*data)
    rates = [clf.net_.bare_criterion.criterion.rate for clf in (twice, once)]
    assert torch.equal(*rates)
    assert rates[0] != 0
    if not compiled:
        assert same_weights(weights_of(twice), weights_of(once))
        # One of the same class may have learnt something else.
        assert twice.set_params(loss=Tempered("other")).fit(*data).n_iter_ == 6


def test_a_rate_that_diverges_is_named(data):
    for params in ({"lr": 1e30}, {"net_params": {"optimizer__lr": 1e30}}):
        with pytest.raises(ValueError, match=r"smaller rate than lr=1e\+30"):
            classifier(lr_schedule=None, **params).fit(*data)


class Zero(Callback):
    """Put the weights of the head to zero after the second epoch, and look at them later."""

    def __init__(self, by):
        self.by = by

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == 2:
            self.by(net.module_.head.weight)

    def on_batch_begin(self, net, batch, training, **kwargs):
        if training and len(net.history) == 3 and not hasattr(self, "seen_"):
            self.seen_ = float(net.module_.head.weight.abs().max())


def new_data(weight):
    weight.data = torch.zeros_like(weight)


@pytest.mark.parametrize("schedule", ["averaged", None])
@pytest.mark.parametrize(
    "by", [torch.nn.init.zeros_, lambda weight: weight.data.zero_(), new_data]
)
def test_what_a_callback_changes_after_an_epoch_is_trained_on(data, schedule, by):
    clf = classifier(callbacks=[Zero(by)], lr_schedule=schedule, max_epochs=3).fit(*data)
    (callback,) = (c for _, c in clf.net_.callbacks_ if isinstance(c, Zero))
    assert callback.seen_ == 0


def test_averaged_weights_have_averaged_statistics(data):
    """On one batch an epoch, statistics that move at once are those of the last weights."""
    backbone = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8, momentum=1.0))
    seen = []

    class Look(Callback):
        def on_grad_computed(self, net, **kwargs):
            seen.append(net.module_.backbone[1].running_mean.clone())

    params = {"backbone": backbone, "batch_size": 240, "lr_schedule": "averaged"}
    clf = classifier(callbacks=[Look()], max_epochs=3, **params).fit(*data)
    expected = seen[0]
    for i, mean in enumerate(seen):
        expected = torch.lerp(expected, mean, 9 / (i + 9))
    torch.testing.assert_close(clf.net_.module_.backbone[1].running_mean, expected)
    assert not torch.allclose(expected, seen[-1])


def test_the_validation_loss_is_the_weighted_mean_of_all_samples(data):
    X, y = data
    weight = np.random.default_rng(0).exponential(size=len(y)) ** 2
    params = {"validation_fraction": 0.5, "batch_size": 16, "max_epochs": 1}
    clf = classifier(**params).fit(X, y, sample_weight=weight)
    _, held = split_per_class(y, 0.5, np.random.RandomState(clf._seed))
    expected = log_loss(y[held], clf.predict_proba(X[held]), sample_weight=weight[held])
    assert clf.history_[-1, "valid_loss"] == pytest.approx(expected, rel=1e-5)


def test_accumulation_says_what_it_cannot_do(data):
    for value in (0, 1.5, True):
        with pytest.raises(ValueError, match="gradient_accumulation_steps.*integer >= 1"):
            classifier(net_params={"gradient_accumulation_steps": value}).fit(*data)
    params = {"optimizer": torch.optim.LBFGS, "weight_decay": None}
    with pytest.raises(ValueError, match="LBFGS evaluates every batch"):
        classifier(net_params={"gradient_accumulation_steps": 2}, **params).fit(*data)


class Twice(torch.optim.SGD):
    """Evaluate a batch, step, and do both again."""

    def step(self, closure):
        closure()
        super().step()
        return super().step(closure)


def test_an_optimizer_may_evaluate_a_batch_itself(data):
    params = {"lr": 0.01, "lr_schedule": None, "backbone_params": {"dropout": 0.0}}
    params |= {"batch_size": 240, "max_epochs": 3}
    twice = classifier(optimizer=Twice, **params).fit(*data)
    plain = classifier(optimizer=torch.optim.SGD, **{**params, "max_epochs": 6}).fit(*data)
    for name, value in weights_of(plain).items():
        torch.testing.assert_close(weights_of(twice)[name], value, rtol=1e-3, atol=1e-5)


# -- the learning rate ----------------------------------------------------------------------


class Rates(Callback):
    """Keep the learning rates of each batch in a list of the class."""

    kept = []

    def on_batch_begin(self, net, training, **kwargs):
        if training:
            self.kept.append([group["lr"] for group in net.optimizer_.param_groups])


@pytest.fixture
def rates():
    Rates.kept.clear()
    return Rates.kept


def epochs_of(rates):
    """Return the distinct rates of the first group, in the order of their use."""
    return list(dict.fromkeys(rate for rate, *_ in rates))


@pytest.mark.parametrize("named", [True, False])
def test_a_scheduler_of_ones_own_takes_the_place_of_the_default(named, rates, data):
    own = LRScheduler("StepLR", step_size=2, gamma=0.1)
    own = ("lr_schedule", own) if named else own
    clf = classifier(callbacks=[own, Rates()], lr=0.01, warm_start=True).fit(*data)
    np.testing.assert_allclose(epochs_of(rates), [0.01, 0.001])
    first = list(rates)
    rates.clear()
    clf.fit(*data)  # and starts with each training
    np.testing.assert_allclose(rates, first)


def test_the_class_of_a_scheduler_takes_the_place_of_the_default(rates, data):
    class Halve(LRScheduler):
        def __init__(self):
            super().__init__("ExponentialLR", gamma=0.5)

    classifier(callbacks=[Halve, ("rates", Rates)], lr=0.01).fit(*data)
    np.testing.assert_allclose(epochs_of(rates), [0.01, 0.005, 0.0025, 0.00125])


@pytest.mark.parametrize("schedule", ["one_cycle", [2], {"milestones": [2]}])
def test_two_schedules_are_refused(schedule, data):
    own = LRScheduler("StepLR", step_size=2)
    with pytest.raises(ValueError, match=r"callbacks.*lr_schedule=.*set lr_schedule=None"):
        classifier(callbacks=[own], lr_schedule=schedule).fit(*data)


@pytest.mark.parametrize("schedule", ["averaged", "cosine", "one_cycle", [1], None])
@pytest.mark.parametrize(
    ("optimizer", "options"),
    # Without a search along the line, some steps of LBFGS lead far away.
    [(torch.optim.LBFGS, {"optimizer__line_search_fn": "strong_wolfe"}), (torch.optim.Rprop, {})],
)
def test_schedules_go_with_any_optimizer(schedule, optimizer, options, data):
    params = {"optimizer": optimizer, "net_params": options, "lr": 0.5, "batch_size": 240}
    params |= {"lr_schedule": schedule, "backbone_params": {"dropout": 0.0}}
    clf = classifier(max_epochs=9, **params).fit(*data)
    assert clf.history_[-1, "train_loss"] < clf.history_[0, "train_loss"]
    assert log_loss(data[1], clf.predict_proba(data[0])) < clf.history_[0, "train_loss"] - 0.1


def test_an_optimizer_that_flattens_gradients_takes_images():
    images = np.random.default_rng(0).random((60, 3, 8, 8), dtype=np.float32)
    params = {"optimizer": torch.optim.LBFGS, "batch_size": 60, "lr": 0.5, "lr_schedule": None}
    network = {"backbone": "convnet", "backbone_params": {"widths": (8, 16)}}
    clf = classifier(max_epochs=2, **network, **params).fit(images, np.arange(60) % 3)
    assert clf.history_[-1, "train_loss"] < clf.history_[0, "train_loss"]


class Viewing(torch.nn.Module):
    """Layers that view tensors, and hold one, as if the channels of images came first."""

    def __init__(self, of_volumes):
        super().__init__()
        self.of_volumes = of_volumes
        self.conv = torch.nn.Conv3d(1, 4, 3) if of_volumes else torch.nn.Conv2d(3, 4, 3)
        self.place = torch.nn.Parameter(torch.zeros(1, 3, 8, 8))

    def forward(self, x):
        x = x + self.place.view(-1).view(3, 8, 8)
        x = self.conv(x[:, None] if self.of_volumes else x)
        return x.view(len(x), -1)


class Spectral(torch.nn.Module):
    """Complex weights of the frequencies, or their real and imaginary parts."""

    def __init__(self, n_columns, is_complex):
        super().__init__()
        weight = torch.polar(torch.ones(n_columns // 2 + 1), torch.arange(n_columns // 2 + 1.0))
        self.weight = torch.nn.Parameter(weight if is_complex else torch.view_as_real(weight))

    def forward(self, x):
        weight = self.weight
        weight = weight if weight.is_complex() else torch.view_as_complex(weight)
        return torch.fft.irfft(torch.fft.rfft(x) * weight, n=x.shape[1])


@pytest.mark.parametrize("schedule", ["averaged", "cosine"])
def test_complex_weights_are_trained_like_their_parts(schedule, data):
    X, y = data
    params = {"lr": 0.01, "lr_schedule": schedule, "weight_decay": 0.1}
    bodies = [Spectral(X.shape[1], is_complex) for is_complex in (True, False)]
    fits = [classifier(backbone=body, **params).fit(X, y) for body in bodies]
    found, expected = (clf.decision_function(X) for clf in fits)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("of_volumes", [False, True])
def test_a_module_may_view_images_as_their_shape_says(of_volumes):
    images = np.random.default_rng(0).random((60, 8, 8, 3), dtype=np.float32)
    clf = classifier(backbone=Viewing(of_volumes), validation_fraction=0.2)
    scores = clf.fit(images, np.arange(60) % 3).decision_function(images)
    network = clf.net_.module_.cpu()
    x = network.normalize(torch.as_tensor(images).permute(0, 3, 1, 2).contiguous())
    with torch.no_grad():
        expected = network.head(network.backbone(x))
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


def test_layers_of_libraries_have_the_channels_last_unless_compiled(monkeypatch):
    images = np.random.default_rng(0).random((60, 3, 8, 8), dtype=np.float32)
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten())
    volumes = torch.nn.Unflatten(1, (1, 3)), torch.nn.Conv3d(1, 4, 3), torch.nn.Flatten()
    classifier(backbone=torch.nn.Sequential(*volumes)).fit(images, np.arange(60) % 3)
    for backbone in ("convnet", layers):
        clf = classifier(backbone=backbone).fit(images, np.arange(60) % 3)
        weight = next(p for p in clf.net_.module_.backbone.parameters() if p.ndim == 4)
        assert weight.is_contiguous(memory_format=torch.channels_last)
        assert not weight.is_contiguous()
    monkeypatch.setattr("torch.compile", lambda module, **params: module)
    clf = classifier(backbone="convnet", max_epochs=1, compile=True).fit(images, np.arange(60) % 3)
    assert all(p.is_contiguous() for p in clf.net_.module_.parameters())
    clf.set_params(compile=False).partial_fit(images, np.arange(60) % 3)
    assert not all(p.is_contiguous() for p in clf.net_.module_.parameters())
    clf.set_params(compile=True).partial_fit(images, np.arange(60) % 3)
    assert all(p.is_contiguous() for p in clf.net_.module_.parameters())


def test_losses_of_single_samples_train_nothing(data):
    with pytest.raises(ValueError, match="gives a value for each sample.*reduction"):
        classifier(loss="smoothed_hinge", loss_params={"reduction": "none"}).fit(*data)


class Counting(torch.nn.Module):
    """Change what it was given."""

    def __init__(self, counts):
        super().__init__()
        self.register_buffer("counts", counts)

    def forward(self, output, target):
        self.counts += 1
        return torch.nn.functional.cross_entropy(output, target)


@pytest.mark.parametrize("order", ["<f4", ">f8"])
def test_arrays_for_a_loss_stay_as_they_are(order, data):
    counts = np.zeros(6, order)[::-2]
    classifier(loss=Counting, loss_params={"counts": counts}).fit(*data)
    assert not counts.any()


class Looking:
    """Remember, when it is pickled, what the net holds that it is part of."""

    def __init__(self, net):
        self.net, self.seen = net, []

    def __reduce__(self):
        self.seen.append(self.net.optimizer_)
        return dict, ()


def test_pickling_leaves_the_net_whole_meanwhile(data):
    net = classifier().fit(*data).net_
    looking = net.module_.looking = Looking(net)
    pickle.dumps(net)
    assert looking.seen == [net.optimizer_]
    assert net.optimizer_ is not None


class Fails(Callback):
    def on_grad_computed(self, net, **kwargs):
        if net.history[-1]["epoch"] == 5:
            raise RuntimeError("failed")


def test_a_training_that_fails_leaves_the_network_in_evaluation(data):
    clf = classifier(callbacks=[Fails()]).fit(*data)
    with pytest.raises(RuntimeError, match="failed"):
        clf.partial_fit(*data)
    assert not clf.net_.module_.training


class Still(torch.nn.BatchNorm1d):
    """Normalisation that is never trained, as fine-tuning freezes it."""

    def train(self, mode=True):
        return super().train(False)


class Modes(Callback):
    """Which parts train in each epoch; the last one is put back at the start of each."""

    def __init__(self):
        self.seen = set()

    def on_epoch_begin(self, net, **kwargs):
        net.module_.backbone[-1].eval()

    def on_grad_computed(self, net, **kwargs):
        self.seen.add(tuple(part.training for part in net.module_.backbone))


@pytest.mark.parametrize("validation", [None, 0.25])
def test_a_module_in_evaluation_mode_is_trained_from_the_first_epoch_on(validation, data):
    X, y = data
    body = torch.nn.Sequential(
        torch.nn.Linear(X.shape[1], 8), torch.nn.Dropout(0.5), Still(8), torch.nn.Dropout(0.5)
    ).eval()
    watch = {"callbacks": [("modes", Modes())], "validation_fraction": validation}
    clf = classifier(backbone=body, warm_start=True, **watch).fit(X, y).fit(X, y)
    assert dict(clf.net_.callbacks_)["modes"].seen == {(True, True, False, False)}
    norm = clf.net_.module_.backbone[2]
    assert torch.equal(norm.running_mean.cpu(), torch.zeros(8))
    assert not body.training


def test_batch_normalisation_of_one_sample_is_named():
    images = np.random.default_rng(0).random((1, 3, 32, 32), dtype=np.float32)
    clf = classifier(backbone="resnet18")
    with pytest.raises(ValueError, match="Batch normalisation .* set batch_size to two"):
        clf.partial_fit(images, [0], classes=[0, 1, 2])


def test_a_backbone_in_half_precision_is_named_where_training_is_not(data):
    X, y = data
    images = np.ones((len(y), 3, 5, 5), np.float32)
    conv = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 5), torch.nn.Flatten()).bfloat16()
    for backbone, samples in ((torch.nn.Linear(X.shape[1], 8).bfloat16(), X), (conv, images)):
        with pytest.raises(ValueError, match=r"weights of torch.bfloat16.* backbone\.float\(\)"):
            classifier(backbone=backbone).fit(samples, y)
        classifier(backbone=backbone, precision="bf16").fit(samples, y)


def test_what_callbacks_raise_is_not_taken_for_a_missing_validation_set(data):
    class Raises(Callback):
        def on_epoch_end(self, net, **kwargs):
            raise ValueError("invalid_value given")

    with pytest.raises(ValueError, match="^invalid_value given"):
        classifier(callbacks=[Raises()]).fit(*data)


@pytest.mark.parametrize("schedule", ["cosine", "one_cycle", [1], None])
def test_rates_of_layers_keep_their_ratio(schedule, rates, data):
    groups = {"optimizer__param_groups": [("backbone*", {"lr": 1e-6})]}
    classifier(
        lr=1e-2, lr_schedule=schedule, callbacks=[Rates()], net_params=groups, max_epochs=3
    ).fit(*data)
    rates = np.array(rates)
    np.testing.assert_allclose(rates[:, 0] * 1e4, rates[:, 1], rtol=1e-12)
    if schedule == "one_cycle":
        assert 0.9e-2 < rates[:, 1].max() <= 1e-2


@pytest.mark.filterwarnings("error::DeprecationWarning")
def test_milestones_may_be_an_array(rates, data):
    arrays = np.array([2, 3]), torch.tensor([2, 3])
    for milestones in ([2, 3], (2, 3), *arrays, {"milestones": [2, 3]}):
        rates.clear()
        classifier(lr=1.0, lr_schedule=milestones, callbacks=[Rates()]).fit(*data)
        np.testing.assert_allclose(epochs_of(rates), [1, 0.1, 0.01])


def test_functions_are_asked_whether_they_take_what_they_are_given(data):
    for name in ("monitor", "lr_schedule"):
        with pytest.raises(TypeError, match=f"{name}=.* cannot be called with .* alone"):
            classifier(**{name: lambda: 0.0}, validation_fraction=0.2).fit(*data)


@pytest.mark.parametrize(
    "schedule",
    [
        [0.5, 0.75],
        np.array([0.5]),
        [0],
        [True],
        [[2, 3]],
        np.array(3),
        ["2"],
        {"milestones": [0.5]},
        {"gamma": 0.5},
        {"milestones": [2], "no_such": 1},
        {"milestones": 2},
        {"milestones": [2], "gamma": -1},
        {10: 0.1},
        "plateau",
        3,
    ],
)
def test_schedules_without_meaning_are_refused(schedule, data):
    with pytest.raises(ValueError, match="lr_schedule"):
        classifier(lr_schedule=schedule).fit(*data)


# -- net_params -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "paths"])
def test_loading_can_be_set_whatever_the_data(kind, data, paths):
    X, y = data if kind == "memory" else (paths, np.arange(12) % 2)
    params = {"k": 1, "backbone": None, "max_epochs": 2, "batch_size": 8}
    plain = classifier(**params).fit(X, y)
    for keys in (
        {"num_workers": 0},
        {"num_workers": 0, "prefetch_factor": 2, "persistent_workers": True, "timeout": 5},
        {"num_workers": 1, "prefetch_factor": 2, "pin_memory": False},
        {"persistent_workers": False},
    ):
        net_params = {f"iterator_train__{key}": value for key, value in keys.items()}
        net_params |= {f"iterator_valid__{key}": value for key, value in keys.items()}
        clf = classifier(net_params=net_params, **params).fit(X, y)
        np.testing.assert_array_equal(clf.predict_proba(X), plain.predict_proba(X))


@pytest.mark.parametrize("n_workers", [0, 1])
def test_predictions_are_loaded_as_is_asked_for_now(n_workers, paths, monkeypatch):
    begun, begin = [], DataLoader.__init__

    def recorded(self, *args, **params):
        begun.append(params["num_workers"])
        begin(self, *args, **params)

    workers = {"iterator_valid__num_workers": 1 - n_workers}
    params = {"k": 1, "backbone": None, "max_epochs": 1, "net_params": workers}
    clf = classifier(**params).fit(paths, np.arange(12) % 2)
    clf.set_params(net_params={"iterator_valid__num_workers": n_workers})
    monkeypatch.setattr(DataLoader, "__init__", recorded)
    clf.predict([*paths] * 3)
    assert begun == [n_workers]


def test_workers_can_be_switched_off_for_transformed_images(data):
    images = np.random.default_rng(0).integers(0, 255, (12, 8, 8), dtype=np.uint8)
    clf = classifier(backbone=None, k=1, max_epochs=1, transform=lambda image: image)
    clf.set_params(net_params={"iterator_train__num_workers": 0, "iterator_valid__num_workers": 0})
    assert clf.fit(images, np.arange(12) % 2).predict(images).shape == (12,)


@pytest.mark.parametrize("undefined", [{1}, {2}, {1, 2, 4}])
def test_a_monitor_that_is_nan_is_never_the_best(undefined, data):
    """As a precision may be, in an epoch that predicts no sample of some class."""
    calls = []

    def monitor(y_true, y_score):
        calls.append(len(calls) + 1)
        return np.nan if calls[-1] in undefined else calls[-1]

    clf = classifier(monitor=monitor, validation_fraction=0.2, max_epochs=5).fit(*data)
    best = dict(clf.net_.callbacks_)["best_epoch"]
    assert (best.best_epoch_, best.best_) == (5, 5)
    assert clf.history_[:, "monitor_best"] == [e not in undefined for e in range(1, 6)]


def test_the_order_of_the_samples_can_be_kept(data):
    class Seen(Callback):
        seen = []

        def on_batch_begin(self, net, batch, **kwargs):
            self.seen.extend(batch[1][2].tolist())

    params = {"callbacks": [Seen], "max_epochs": 1, "batch_size": 40}
    classifier(net_params={"iterator_train__shuffle": False}, **params).fit(*data)
    assert Seen.seen == list(range(240))


@pytest.mark.parametrize("kind", ["memory", "paths"])
@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("iterator_train__sampler", "sample_weight"),
        ("iterator_train__batch_sampler", "sample_weight"),
        ("iterator_train__batch_size", "batch_size"),
        ("iterator_valid__batch_size", "batch_size"),
        ("iterator_train__collate_fn", "transform"),
        ("iterator_train__drop_last", "known keys"),
        ("iterator_train__generator", "random_state"),
        ("iterator_train__nonsense", "known keys"),
        ("iterator_valid__shuffle", "known keys"),
        ("compile__options", "torch._inductor.config"),
        ("compile__backend", "must be one of"),
        ("compile__dynamic", "must be one of"),
        ("callbacks__lr_schedule__policy", "the parameter lr_schedule"),
        ("callbacks__best_epoch__patience", "the parameter patience"),
    ],
)
def test_keys_without_effect_or_that_reach_a_compiler_are_refused(kind, key, remedy, data, paths):
    X, y = data if kind == "memory" else (paths, np.arange(12) % 2)
    clf = classifier(k=1, backbone=None, net_params={key: 3}, lr_schedule="one_cycle")
    with pytest.raises(ValueError, match=f"(?s)net_params.*{key}.*{remedy}"):
        clf.fit(X, y)


# -- the net by itself ----------------------------------------------------------------------


def test_the_net_says_that_the_estimator_is_to_be_called(data):
    X, y = data
    clf = classifier().fit(X, y)
    before = weights_of(clf)
    for method in ("predict", "predict_proba", "forward"):
        with pytest.raises(TypeError, match="estimator"):
            getattr(clf.net_, method)(X)
    for method in ("fit", "partial_fit"):
        with pytest.raises(TypeError, match="estimator"):
            getattr(clf.net_, method)(X, y)
    assert same_weights(before, weights_of(clf))
    assert len(clf.net_.history) == 4
    with torch.no_grad():
        scores = clf.net_.module_.cpu()(torch.from_numpy(X))
    clf.net_.module_.to(clf.device_)
    np.testing.assert_allclose(scores, clf.decision_function(X), rtol=1e-5, atol=1e-5)


# -- training that diverges -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_samples", "n_columns", "given", "p", "batch_size"),
    [
        (400, 4, None, 0.3, 34),  # in 12 batches
        (1000, 5, None, 0.2, 63),
        (4000, 5, None, 0.05, 250),
        (1000, 5, 0.4, 0.4, 63),
    ],
)
def test_samples_that_are_many_for_the_columns_need_little_dropout(
    n_samples, n_columns, given, p, batch_size
):
    X = np.random.default_rng(0).normal(size=(n_samples, n_columns))
    params = None if given is None else {"dropout": given}
    model = TopKClassifier(2, max_epochs=1, backbone_params=params, random_state=0)
    model.fit(X, np.argmax(X[:, :4], axis=1))
    assert model.net_.module_.backbone[-1].p == pytest.approx(p)
    assert model.batch_size_ == batch_size


@pytest.mark.parametrize("loss", ["noised_hinge", "cross_entropy", torch.nn.CrossEntropyLoss])
def test_training_stops_where_the_loss_is_no_number(loss, data):
    clf = classifier(loss=loss, lr=1e30, max_epochs=50, validation_fraction=0.2)
    with pytest.raises(ValueError, match=r"loss is (nan|inf) in epoch [12]\D.*lr=1e\+30"):
        clf.fit(*data)


def test_no_epoch_follows_one_with_a_loss_that_is_no_number(data):
    class Log(torch.nn.Module):
        def forward(self, input, target):
            loss = torch.nn.functional.cross_entropy(input, target)
            return loss * (np.inf if len(States.kept) == 2 else 1)

    with pytest.raises(ValueError, match="loss is inf in epoch 3"):
        classifier(loss=Log, callbacks=[States()], batch_size=240).fit(*data)
    assert len(States.kept) == 2


# -- torch criteria -------------------------------------------------------------------------


def test_the_negative_log_likelihood_is_that_of_the_softmax(data):
    weight = torch.arange(1.0, N_CLASSES + 1)
    rows = np.linspace(0.5, 1, len(data[1]))
    for params, sample_weight in ((None, None), ({"weight": weight}, None), (None, rows)):
        nll, ce = (
            classifier(loss=loss, loss_params=params, lr=0.01, max_epochs=10).fit(
                *data, sample_weight=sample_weight
            )
            for loss in (torch.nn.NLLLoss, torch.nn.CrossEntropyLoss)
        )
        proba = [clf.predict_proba(data[0]) for clf in (nll, ce)]
        np.testing.assert_allclose(*proba, atol=1e-4)


@pytest.mark.parametrize("name", ["BCEWithLogitsLoss", "BCELoss", "MSELoss", "HuberLoss"])
@pytest.mark.parametrize("batch_size", ["auto", N_CLASSES])
def test_losses_of_indicators_are_refused_for_labels(name, batch_size, data):
    cls = getattr(torch.nn, name)
    for loss in (cls, cls()):
        with pytest.raises(ValueError, match=f"loss={name} .*CrossEntropyLoss"):
            classifier(loss=loss, batch_size=batch_size).fit(*data)


@pytest.mark.parametrize("name", ["BCEWithLogitsLoss", "MultiLabelSoftMarginLoss", "MSELoss"])
@pytest.mark.parametrize("weighted", [True, False])
def test_losses_of_indicators_train_on_label_sets(name, weighted, data):
    X, y = data
    weight = np.linspace(0.5, 1, len(y)) if weighted else None
    clf = SparseTopClassifier(loss=getattr(torch.nn, name), max_epochs=2, random_state=0)
    clf.fit(X, np.eye(N_CLASSES, dtype=int)[y], sample_weight=weight)
    assert np.isfinite(clf.decision_function(X)).all()


@pytest.mark.parametrize("name", ["NLLLoss", "MultiMarginLoss", "BCELoss"])
def test_a_criterion_that_cannot_be_computed_is_named(name, data):
    X, y = data
    # On a GPU torch does not say what is wrong, and ends all use of CUDA in the process.
    clf = SparseTopClassifier(loss=getattr(torch.nn, name), max_epochs=2, device="cpu")
    with pytest.raises(ValueError, match=f"loss={name} cannot be computed.*indicators"):
        clf.fit(X, np.eye(N_CLASSES, dtype=int)[y])


@pytest.mark.parametrize("weighted", [True, False])
def test_a_criterion_without_a_reduction_is_named(weighted, data):
    weight = np.ones(len(data[1])) if weighted else None
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    with pytest.raises(ValueError, match=r"loss=CrossEntropyLoss.*one number.*reduction"):
        classifier(loss=loss).fit(*data, sample_weight=weight)


class Plain(torch.nn.Module):
    def forward(self, input, target):
        return torch.nn.functional.cross_entropy(input, target)


class Deaf(Plain):
    reduction = "mean"


@pytest.mark.parametrize("cls", [Plain, Deaf])
def test_a_criterion_that_cannot_be_weighted_is_named(cls, data):
    classifier(loss=cls).fit(*data)
    with pytest.raises(ValueError, match=f"loss={cls.__name__}.*sample_weight.*reduction"):
        classifier(loss=cls()).fit(*data, sample_weight=np.ones(len(data[1])))


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_class_weights_come_in_any_form(precision, data):
    values = np.linspace(1, 2, N_CLASSES)
    forms = [
        values,
        values.astype(np.float32),
        torch.from_numpy(values),
        torch.from_numpy(values).float(),
    ]
    params = {"precision": precision}
    fitted = [
        classifier(loss=torch.nn.CrossEntropyLoss, loss_params={"weight": w}, **params).fit(*data)
        for w in forms
    ]
    loss = torch.nn.CrossEntropyLoss(weight=torch.from_numpy(values))
    fitted.append(classifier(loss=loss, **params).fit(*data))
    assert loss.weight.dtype == torch.float64
    for clf in fitted[1:]:
        assert same_weights(weights_of(clf), weights_of(fitted[0]))


class OfBothHeads(torch.nn.Module):
    head = "two_head"

    def scores(self, output):
        return output[1]

    def forward(self, input, target):
        assert {scores.dtype for scores in input} == {torch.float32}
        return sum(torch.nn.functional.cross_entropy(scores, target) for scores in input)


def test_criteria_of_two_heads_compute_in_single_precision(data):
    clf = classifier(loss=OfBothHeads(), precision="bf16", validation_fraction=0.2).fit(*data)
    assert clf.history_[-1]["train_loss"] < clf.history_[0]["train_loss"]


def test_log_probabilities_are_taken_in_single_precision():
    scores, target = 4 * torch.randn(64, 100).bfloat16(), torch.arange(64)
    found = []
    for loss in (torch.nn.NLLLoss(), torch.nn.CrossEntropyLoss()):
        leaf = scores.clone().requires_grad_()
        value = make_criterion(loss, {}, {})(leaf, target)
        found.append((value.detach(), *torch.autograd.grad(value, leaf)))
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("cls", [torch.nn.CrossEntropyLoss, torch.nn.NLLLoss])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("ignored", [-100, 2])
def test_weights_count_like_repeats_beside_those_of_the_classes(cls, reduction, ignored):
    """And weights of one are as good as none."""
    weight = torch.linspace(0.2, 5, N_CLASSES)
    criterion = cls(weight=weight, ignore_index=ignored, reduction=reduction)
    criterion = make_criterion(criterion, None, {})
    scores = torch.randn(9, N_CLASSES, generator=torch.Generator().manual_seed(0))
    target, repeats = torch.arange(9) % N_CLASSES, torch.arange(9) % 4
    plain = criterion(scores, target)
    torch.testing.assert_close(criterion(scores, target, torch.ones(9)), plain)
    repeated = criterion(*(part.repeat_interleave(repeats, 0) for part in (scores, target)))
    torch.testing.assert_close(criterion(scores, target, repeats.float()), repeated)


def test_bad_arguments_of_a_criterion_are_named(data):
    for params in ({"no_such": 1}, {"weight": [1.0] * N_CLASSES}):
        with pytest.raises(ValueError, match=r"loss_params=.*CrossEntropyLoss"):
            classifier(loss=torch.nn.CrossEntropyLoss, loss_params=params).fit(*data)
    params = {"weight": np.ones(N_CLASSES - 1)}
    with pytest.raises(ValueError, match=r"loss=CrossEntropyLoss cannot be computed.*weight"):
        classifier(loss=torch.nn.CrossEntropyLoss, loss_params=params).fit(*data)


def optimal_scores(criterion, posterior):
    """Return the scores that minimise the expected loss of a criterion at one sample."""
    scores = torch.zeros(1, len(posterior), requires_grad=True)
    optimizer = torch.optim.LBFGS([scores], max_iter=500, line_search_fn="strong_wolfe")
    every = torch.arange(len(posterior))

    def closure():
        optimizer.zero_grad()
        loss = criterion(scores.expand(len(posterior), -1), every, sample_weight=posterior)
        loss.backward()
        return loss

    optimizer.step(closure)
    return scores.detach().double()[0]


@pytest.mark.parametrize("cls", [torch.nn.CrossEntropyLoss, torch.nn.NLLLoss])
@pytest.mark.parametrize("given", ["none", "uneven"])
def test_the_weights_left_in_the_scores_are_told(cls, given):
    posterior = torch.tensor([0.5, 0.3, 0.15, 0.05])
    params = {"weight": np.array([1.0, 4.0, 0.5, 2.0])} if given == "uneven" else None
    criterion = make_criterion(cls, params, {})
    scores = optimal_scores(criterion, posterior)
    if given == "none":
        assert criterion.log_class_weight is None
    else:
        scores = scores - criterion.log_class_weight
    np.testing.assert_allclose(scores.softmax(0), posterior, atol=1e-3)


def test_a_class_of_weight_zero_is_left_as_it_is():
    weight = np.array([0.0, 2.0, 1.0])
    criterion = make_criterion(torch.nn.CrossEntropyLoss, {"weight": weight}, {})
    assert torch.equal(criterion.log_class_weight, torch.tensor([1.0, 2, 1]).double().log())
    assert make_criterion(torch.nn.MultiMarginLoss, None, {}).log_class_weight is None


# -- optimizers and devices -----------------------------------------------------------------


def test_an_optimizer_that_does_not_fit_is_named(data):
    lbfgs = torch.optim.LBFGS
    with pytest.raises(ValueError, match=r"optimizer=LBFGS.*weight_decay=None"):
        classifier(optimizer=lbfgs, weight_decay=0.1).fit(*data)
    with pytest.raises(ValueError, match=r"optimizer=Muon cannot be used"):
        classifier(optimizer=torch.optim.Muon).fit(*data)
    net_params = {"iterator_train__num_workers": 0}
    with pytest.raises(ValueError, match=r"optimizer=Muon cannot be used"):
        classifier(optimizer=torch.optim.Muon, net_params=net_params).fit(*data)
    search = {"optimizer__line_search_fn": "strong_wolfe"}
    clf = classifier(optimizer=lbfgs, batch_size=240, lr=1, lr_schedule=None, net_params=search)
    losses = clf.fit(*data).history_[:, "train_loss"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("device", ["meta", "mps", "xpu", "cuda:99", "no such", 3.5])
def test_a_device_that_cannot_compute_is_named(device):
    with pytest.raises(ValueError, match="device=.*cannot be used.*Use 'auto'"):
        resolve_device(device)


def test_a_device_without_doubles_is_named(monkeypatch):
    def zeros(*size, dtype=None, zeros=torch.zeros, **params):
        if dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return zeros(*size, dtype=dtype, **params)

    monkeypatch.setattr(torch, "zeros", zeros)
    with pytest.raises(ValueError, match="device='cpu' cannot be used: .*float64"):
        resolve_device("cpu")


def test_a_device_that_can_is_taken():
    for device in ("cpu", torch.device("cpu"), "cpu:0"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert resolve_device(device) == str(device)


@pytest.mark.parametrize(
    ("n_features", "kept"), [(3, None), (1 << 17, None), (200, True), (3, False)]
)
@pytest.mark.parametrize("weighted", [True, False])
def test_batches_of_a_table_are_its_rows_in_the_drawn_order(n_features, kept, weighted):
    # Narrow rows are gathered for several batches at once, wide ones for one.
    X = torch.arange(20.0).repeat_interleave(n_features).view(20, n_features)
    inputs = ArrayInputs(X)
    if kept is not None:
        # Of the first sample and some others nothing is stored.
        X[:, 2:] = 0
        X[::3] = 0
        inputs = SparseInputs(sparse.csr_array(X.numpy()), keep_sparse=kept)
    weight = torch.linspace(1, 2, 20) if weighted else None
    data = TrainingSet(inputs, torch.arange(20) % 7, weight)
    batches = make_batches(data, 3, torch.Generator().manual_seed(0), shuffle=True)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    seen = list(batches)
    assert [len(x) for x, _ in seen] == [3, 3, 3, 3, 3, 3, 2]
    assert len(batches) == 7
    for (x, (target, weights, index)), expected in zip(seen, order.split(3), strict=True):
        assert torch.equal(index, expected)
        assert isinstance(x, SparseRows) == (kept is True)
        assert torch.equal(x.to_dense() if kept else x, X[expected])
        assert torch.equal(target, expected % 7)
        assert (weights is None) if not weighted else torch.equal(weights, weight[expected])


class Logs(torch.nn.Module):
    """Code whose outputs are NaN where a number is negative."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(5, 8)

    def forward(self, x):
        return self.layer(x.log())


@pytest.mark.parametrize("cls", [TopKClassifier, SparseTopClassifier])
def test_scores_of_code_that_are_nan_are_refused_on_tables_too(cls, data):
    X, y = np.exp(data[0]), data[1]
    target = y if cls is TopKClassifier else np.eye(N_CLASSES, dtype=int)[y]
    clf = cls(backbone=Logs(), max_epochs=1, random_state=0).fit(X, target)
    X[17, 2] = -1
    for method in ("predict", "predict_set", "decision_function"):
        with pytest.raises(ValueError, match="scores of sample 17 of X are NaN"):
            getattr(clf, method)(X)


class SetsTheRate(Callback):
    """Set the rate once, while the default schedule still warms up."""

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == 2:
            net.optimizer_.param_groups[0]["lr"] = 1e-6


def test_a_rate_that_a_callback_sets_stays(data):
    clf = classifier(max_epochs=12, callbacks=[SetsTheRate()]).fit(*data)
    assert clf.net_.optimizer_.param_groups[0]["lr"] == 1e-6
    unset = classifier(max_epochs=12, lr=0.02).fit(*data)
    assert unset.net_.optimizer_.param_groups[0]["lr"] == 0.02


def test_callbacks_leave_no_copies_of_the_weights(data):
    alone, watched = (
        len(pickle.dumps(classifier(backbone=(500,), callbacks=own).fit(*data)))
        for own in (None, [SetsTheRate()])
    )
    assert watched < 1.2 * alone


def test_a_monitor_that_is_never_a_number_keeps_the_last_epoch(data):
    params = {"validation_fraction": 0.2, "max_epochs": 3}
    clf = classifier(monitor=lambda y, scores: float("nan"), **params)
    with pytest.warns(UserWarning, match="no finite number after any epoch") as said:
        clf.fit(*data)
    assert said[0].filename == __file__
    rising = iter(range(9))
    rest = classifier(monitor=lambda y, scores: next(rising), **params).fit(*data)
    for name, weight in weights_of(rest).items():
        assert torch.equal(weight, weights_of(clf)[name])


class Remembers(torch.nn.Module):
    """Centre samples by a running mean, a buffer that a state dict may lack."""

    def __init__(self, persistent):
        super().__init__()
        self.layer = torch.nn.Linear(5, 6)
        self.register_buffer("mean", torch.zeros(5), persistent=persistent)

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0) + 1
        return self.layer(x - self.mean)


class Rotated(torch.nn.Module):
    """A criterion of scores that it turns by what it learns, and that counts its batches."""

    def __init__(self):
        super().__init__()
        self.turn, self.n_batches = torch.nn.Parameter(torch.eye(N_CLASSES)), 0

    def scores(self, output):
        return output @ self.turn

    def forward(self, output, target):
        self.n_batches += self.training
        return torch.nn.functional.cross_entropy(self.scores(output), target)


def test_the_best_epoch_has_its_loss_too(data):
    seen = []

    class See(Callback):
        def on_epoch_end(self, net, **kwargs):
            loss = net.bare_criterion.criterion
            seen.append((loss.turn.detach().clone(), loss.n_batches))

    params = {"loss": Rotated(), "validation_fraction": 0.3, "max_epochs": 6, "lr": 0.05}
    values = iter([1.0, 2.0, 3.0, 0.0, 0.0, 0.0])
    clf = classifier(**params, monitor=lambda y, scores: next(values), callbacks=[See()])
    clf.fit(*data)
    kept = clf.net_.bare_criterion.criterion
    assert not torch.equal(seen[2][0], seen[-1][0])
    assert torch.equal(kept.turn, seen[2][0])
    assert kept.n_batches == seen[2][1] < seen[-1][1]


class NonNegative(Callback):
    """Keep the weights of the head where they may be, after each batch."""

    @torch.no_grad()
    def on_batch_end(self, net, training=None, **kwargs):
        if training:
            net.module_.head.weight.clamp_(min=0)


@pytest.mark.parametrize("accumulated", [1, 3])
def test_averaged_weights_are_those_that_callbacks_leave(data, accumulated):
    params = {"net_params": {"gradient_accumulation_steps": accumulated}, "max_epochs": 2}
    clf = classifier(**params, batch_size=40, callbacks=[NonNegative()]).fit(*data)
    weight = clf.net_.module_.head.weight
    assert (weight >= 0).all()
    assert (weight > 0).any()


def test_the_best_epoch_has_its_buffers_outside_the_state_dict_too(data):
    kept = []
    for persistent in (True, False):
        torch.manual_seed(0)
        clf = classifier(
            backbone=Remembers(persistent),
            monitor=lambda y, scores: -1.0 - np.abs(scores).max(),
            validation_fraction=0.3,
            max_epochs=5,
        ).fit(*data)
        kept.append(
            (dict(clf.net_.callbacks_)["best_epoch"].best_epoch_, clf.predict_proba(data[0]))
        )
    assert kept[0][0] == kept[1][0] < 5
    np.testing.assert_array_equal(kept[0][1], kept[1][1])


@pytest.mark.parametrize(
    ("optimizer", "given"),
    [
        ("sgd", {"momentum": 0.0}),
        ("sgd", {"dampening": 0.1}),
        ("sgd", {"foreach": True}),
        ("adamw", {"foreach": True}),
        ("adamw", {"param_groups": [("head.*", {"lr": 1e-4})]}),
    ],
)
def test_arguments_of_optimizers_displace_defaults_that_they_exclude(optimizer, given, data):
    net_params = {f"optimizer__{name}": value for name, value in given.items()}
    clf = classifier(optimizer=optimizer, net_params=net_params, lr_schedule=None).fit(*data)
    group = clf.net_.optimizer_.param_groups[0]
    assert all(group[name] == value for name, value in given.items() if name in group)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"foreach": True, "fused": True}, "cannot be `True` together"),
        ({"nesterov": True, "momentum": 0.0}, "Nesterov"),
        (
            {"param_groups": [("0.*", {"lr": 0.0})]},
            r"'0\.\*', .* no parameter.*backbone\.0\.weight",
        ),
    ],
)
def test_arguments_of_optimizers_that_clash_are_named(given, said, data):
    net_params = {f"optimizer__{name}": value for name, value in given.items()}
    with pytest.raises(ValueError, match=f"^net_params=.*{said}"):
        classifier(optimizer="sgd", net_params=net_params).fit(*data)


def test_an_epoch_as_good_as_one_before_is_not_the_best(data):
    clf = classifier(validation_fraction=0.2, lr=1e-12).fit(*data)
    assert clf.history_[:, "valid_top_k_accuracy_best"] == [True, False, False, False]


def test_a_training_that_diverges_names_the_rate_and_a_decay_that_turns_weights_round(data):
    with pytest.raises(
        ValueError, match=r"smaller rate than lr=1.0 or weight_decay=1000.0, scale"
    ):
        classifier(lr=1.0, weight_decay=1000.0, max_epochs=50).fit(*data)
    with pytest.raises(ValueError, match=r"smaller rate than lr=1e\+30, scale"):
        classifier(lr=1e30, optimizer="sgd", weight_decay=0.0).fit(*data)


def test_few_images_are_gone_through_more_often():
    few = training.recipe(None, (1, 28, 28))
    assert few.epochs(10) == 125
    assert few.epochs(1000) == 16


def test_each_class_holds_its_share_out_in_the_mean_and_keeps_a_sample():
    sizes = np.array([1, 2, 3, 10, 101])
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(5), sizes))
    for fraction, expected in ((0.3, [0, 0.6, 0.9, 3, 30.3]), (0.9, [0, 1, 2, 9, 90.9])):
        counts = []
        for seed in range(500):
            kept, held = split_per_class(y, fraction, np.random.RandomState(seed))
            np.testing.assert_array_equal(np.sort(np.r_[kept, held]), np.arange(len(y)))
            assert set(y[kept]) == set(range(5))
            counts.append(np.bincount(y[held], minlength=5))
        np.testing.assert_allclose(np.mean(counts, axis=0), expected, atol=0.1)
        assert np.ptp(counts, axis=0).max() <= 1


def test_transformers_that_were_trained_before_learn_slowly():
    fine, anew = (training.recipe("hf/bert", {}, weights) for weights in ("pretrained", None))
    assert (fine.lr, fine.max_epochs) == (5e-5, 5)
    assert fine.lr < anew.lr


@pytest.mark.parametrize("cls", [torch.nn.CrossEntropyLoss, torch.nn.NLLLoss])
@pytest.mark.parametrize("ignored", [0, 2])
def test_samples_of_an_ignored_class_have_no_part_in_a_weighted_mean(cls, ignored):
    criterion = make_criterion(cls(ignore_index=ignored), None, {})
    scores = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    target = torch.arange(9) % 3
    torch.testing.assert_close(criterion(scores, target, torch.ones(9)), criterion(scores, target))


@pytest.mark.parametrize("weight", [None, torch.ones(2)])
def test_a_batch_of_ignored_samples_only_has_loss_zero(weight):
    criterion = make_criterion(torch.nn.CrossEntropyLoss(ignore_index=1), None, {})
    scores = torch.zeros(2, 3, requires_grad=True)
    loss = criterion(scores, torch.ones(2, dtype=torch.int64), weight)
    loss.backward()
    assert loss == 0
    assert not scores.grad.any()

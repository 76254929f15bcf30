"""A fit that was killed goes on as if it had not been."""

import itertools
import json
import os
import pickle
import random
import re
import signal
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from fresh import run_code
from safetensors import safe_open
from sklearn.base import clone
from sklearn.datasets import load_digits, make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import fbeta_score, make_scorer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from skorch.callbacks import (
    Callback,
    Checkpoint,
    EarlyStopping,
    EpochScoring,
    Freezer,
    GradientNormClipping,
    LRScheduler,
    PrintLog,
    ProgressBar,
    TensorBoard,
)
from skorch.helper import SliceDataset
from torch import nn
from torch.utils.data import TensorDataset
from torchvision.transforms import v2

from sksetvalued import AverageKClassifier, SparseTopClassifier, TopKClassifier, save
from sksetvalued.estimators._checkpoint import tell_apart
from sksetvalued.estimators._container import pack, unpack
from sksetvalued.estimators._identity import digest, identity
from sksetvalued.losses import FocalLoss
from sksetvalued.training import SetNet, resolve_device

X, y = load_digits(return_X_y=True)
X, y = X[:200], y[:200]
IMAGES = (X.reshape(-1, 8, 8) * 15).astype(np.uint8)
Y = make_multilabel_classification(200, n_classes=10, random_state=0)[1]
COMMON = {"random_state": 0, "max_epochs": 5, "backbone_params": {"dropout": 0.2}}
SMALL = {**COMMON, "backbone_params": {"widths": (8, 16), "dropout": 0.2}}
N_BATCHES = 7


def backbone_of_the_user(input_shape):
    return nn.Sequential(nn.Linear(*input_shape, 16), nn.BatchNorm1d(16), nn.Dropout(0.5))


class Centred(nn.Module):
    """Columns without their mean so far, which is no part of the state of the module.

    It stands in a buffer, one that is made in training, one of another type and one that has two
    names; another one, which no file holds, stays as it is. Two tensors are no buffers: one that
    is written to, and one that is set anew, as is a number beside them.
    """

    def __init__(self, n_columns):
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_columns), persistent=False)
        self.register_buffer("late", None, persistent=False)
        self.register_buffer("typed", torch.tensor(0), persistent=False)
        self.register_buffer("shared", torch.zeros(n_columns), persistent=False)
        self.register_buffer("constant", torch.eye(n_columns).to_sparse(), persistent=False)
        self.other_name = [self.shared]
        self.written, self.anew, self.n_batches = torch.zeros(n_columns), None, 0

    def forward(self, x):
        if self.training:
            mean = x.detach().mean(0)
            self.mean = self.mean.lerp(mean, 0.1)
            self.late = mean if self.late is None else self.late.lerp(mean, 0.1)
            self.typed = 0.9 * self.typed.to(mean) + 0.1 * mean[0]
            self.shared.lerp_(mean, 0.1)
            self.written += mean / 100
            self.anew = mean
            self.n_batches += 1
        x = x + self.written + self.n_batches / 100
        if self.anew is not None:
            x = x + self.anew / 10
        late = 0 if self.late is None else self.late
        return x - self.mean + late * self.typed + self.other_name[0]


def forgetful_backbone(input_shape):
    return nn.Sequential(
        Centred(*input_shape), nn.Linear(*input_shape, 16), nn.Dropout(0.5)
    ).eval()


class Pruning(Callback):
    """Shorten the weights of the head after each epoch."""

    def on_epoch_end(self, net, **kwargs):
        net.module_.head.weight.data[0] *= 0.5


FITS = {
    "noise, best epoch, one-cycle": (
        TopKClassifier(2, validation_fraction=0.2, patience=4, lr_schedule="one_cycle", **COMMON),
        X,
        y,
    ),
    "early stopping": (
        TopKClassifier(
            2,
            loss="noised_hinge",
            lr=0.1,
            lr_schedule="cosine",
            validation_fraction=0.2,
            patience=2,
            **COMMON,
        ),
        X,
        y,
    ),
    "averages that are changed": (TopKClassifier(2, callbacks=[Pruning()], **COMMON), X, y),
    "images": (TopKClassifier(2, validation_fraction=0.2, **SMALL), IMAGES[:70], y[:70]),
    "averaged images": (
        TopKClassifier(2, lr_schedule="averaged", **SMALL),
        IMAGES[:70],
        y[:70],
    ),
    "sparse rows": (
        TopKClassifier(2, **COMMON),
        sp.random(200, 500, density=0.02, format="csr", random_state=0),
        y,
    ),
    "two heads": (AverageKClassifier(2, validation_fraction=0.2, **COMMON), X, y),
    "estimates of samples": (AverageKClassifier(2, loss="role", **COMMON), X, y),
    "label sets": (SparseTopClassifier(size="threshold", **COMMON), sp.csr_matrix(X), Y),
    "code of the user": (
        TopKClassifier(
            2,
            **{**COMMON, "backbone_params": None, "backbone": backbone_of_the_user},
            optimizer="sgd",
            lr_schedule=[2, 4],
            validation_fraction=0.2,
            callbacks=[EarlyStopping(patience=3, load_best=True)],
        ),
        X,
        y,
    ),
    "what no state holds": (
        TopKClassifier(
            2,
            **{**COMMON, "backbone_params": None, "backbone": forgetful_backbone},
            validation_fraction=0.2,
            device="cpu",  # the second name is no name on another device
        ),
        X,
        y,
    ),
    "plateau": (
        TopKClassifier(
            2,
            validation_fraction=0.2,
            lr_schedule=None,
            callbacks=[LRScheduler("ReduceLROnPlateau", monitor="valid_loss", patience=0)],
            **COMMON,
        ),
        X,
        y,
    ),
}


class Killed(BaseException):
    """What ends a process at once."""


@pytest.fixture
def kill(monkeypatch):
    """Let the next fits end at a batch, None for none."""
    step = SetNet.train_step

    def at(batch):
        left = itertools.repeat(None) if batch is None else iter(range(batch))

        def dying(net, *args, **kwargs):
            for _ in left:
                return step(net, *args, **kwargs)
            raise Killed

        monkeypatch.setattr(SetNet, "train_step", dying)

    return at


def result(clf):
    """Return what a fit leaves, but for the time that it took."""
    history = [{k: v for k, v in row.items() if not k.endswith("dur")} for row in clf.history_]
    state = [value.clone() for value in clf.net_.module_.state_dict().values()]
    state += [value.clone() for value in clf.net_.criterion_.state_dict().values()]
    return history, [*state, clf._rng_state["own"]], getattr(clf, "rule_", None)


def assert_same(clf, other):
    (history, state, rule), (others, other_state, other_rule) = result(clf), result(other)
    assert history == others
    assert all(torch.equal(a, b) for a, b in zip(state, other_state, strict=True))
    assert pickle.dumps(rule) == pickle.dumps(other_rule)


@pytest.mark.parametrize("fit", FITS)
def test_a_killed_fit_goes_on_as_if_it_had_not_been(fit, kill, tmp_path):
    estimator, data, target = FITS[fit]
    path = tmp_path / "state"
    whole = clone(estimator).fit(data, target)
    n_batches = int(sum(whole.history_[:, "train_batch_count"]))
    done = []
    for batch in (n_batches // 3, n_batches // 2):
        kill(batch)
        with pytest.raises(Killed):
            clone(estimator).fit(data, target, checkpoint=path)
        done.append(path.read_bytes())
    assert done[0] != done[1]
    kill(None)
    torch.rand(3)
    again = clone(estimator).fit(data, target, checkpoint=path)
    assert_same(whole, again)
    assert list(tmp_path.iterdir()) == []
    if (estimator.callbacks, estimator.patience) == (None, None) and estimator.loss != "role":
        assert_same(whole.partial_fit(data, target), again.partial_fit(data, target))


PLAIN = TopKClassifier(2, max_epochs=4, random_state=0)


@pytest.fixture
def half_done(kill, tmp_path):
    """A file that a killed fit has left."""
    path = tmp_path / "state"
    kill(2 * 7 + 3)
    with pytest.raises(Killed):
        clone(PLAIN).fit(X, y, checkpoint=path)
    kill(None)
    return path


def test_a_device_is_no_checkpoint():
    with pytest.raises(ValueError, match="checkpoint='/dev/zero' is neither a file nor a folder"):
        TopKClassifier(2, **COMMON).fit(X, y, checkpoint="/dev/zero")


def test_columns_may_have_no_stride(tmp_path):
    column = X[:, 20].astype(np.float32)[:, None]
    kept = TopKClassifier(2, **COMMON).fit(column, y, checkpoint=tmp_path)
    plain = TopKClassifier(2, **COMMON).fit(column.copy(), y)
    np.testing.assert_array_equal(kept.predict_set(column), plain.predict_set(column))


@pytest.mark.parametrize(
    ("params", "data", "name"),
    [
        ({"lr": 0.01}, (X, y), "lr"),
        ({"random_state": 1}, (X, y), "random_state"),
        ({"backbone": nn.Linear(64, 3)}, (X, y), "backbone"),
        ({}, (X[::-1], y), "X"),
        ({}, (X, y[::-1]), "y"),
        ({}, (X, y, np.arange(1, 201)), "sample_weight"),
        ({}, (X, y + 1), "classes"),
    ],
)
def test_the_state_of_another_fit_is_refused_and_kept(params, data, name, half_done):
    before = half_done.read_bytes()
    with pytest.raises(ValueError, match=f"checkpoint=.*another fit, which differs in .*{name}"):
        clone(PLAIN).set_params(**params).fit(*data, checkpoint=half_done)
    assert half_done.read_bytes() == before
    clone(PLAIN).set_params(verbose=0).fit(X, y, checkpoint=half_done)


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("loss", FocalLoss(gamma=0.0), FocalLoss(gamma=5.0)),
        ("backbone", *(nn.Sequential(nn.Flatten(), act) for act in (nn.ReLU(), nn.Tanh()))),
    ],
)
def test_modules_that_differ_in_no_tensor_are_of_other_fits(name, one, other, kill, tmp_path):
    kill(10)
    with pytest.raises(Killed):
        clone(PLAIN).set_params(**{name: one}).fit(X, y, checkpoint=tmp_path / "state")
    kill(None)
    with pytest.raises(ValueError, match=f"another fit, which differs in {name}"):
        clone(PLAIN).set_params(**{name: other}).fit(X, y, checkpoint=tmp_path / "state")
    clone(PLAIN).set_params(**{name: one}).fit(X, y, checkpoint=tmp_path / "state")


class Own(Checkpoint):
    """Write where a class of its own was told to."""

    def __init__(self, **params):
        super().__init__(**params)


class Shaken:
    """A transform that holds data of many kinds, what it has learned, and itself."""

    def __init__(self, strength):
        self.strength = strength
        self.options = {nn.ReLU: {"b", "a", "c"}, "data": [np.array([1, None]), b"x", 1j]}
        self.pattern, self.when = re.compile("a"), np.array(["2026-01-01"], "datetime64[D]")
        self.draw = np.random.default_rng()
        self.seen_ = time.perf_counter()
        self.own = [self, self.apply]

    def __call__(self, image):
        return image

    apply = __call__


class Locked(Shaken):
    """One that also holds what no other process has."""

    def __init__(self, strength):
        super().__init__(strength)
        self.lock, self.numbers = threading.Lock(), iter(())
        self.writer = SimpleNamespace(lock=self.lock, started=time.perf_counter())
        self.rest = (n for n in ())


def enclosing(strength, unused=None):
    def schedule(epoch, unused=unused):
        return unset if epoch < 0 else schedule and strength**epoch

    if unused:
        unset = 1
    return schedule


def with_default(strength):
    def schedule(epoch, *, strength=strength):
        return strength**epoch

    return schedule


def sloped(input_shape, slope):
    return nn.Sequential(nn.Linear(*input_shape, 16), nn.LeakyReLU(slope))


#: Parameters that hold code, by the value that it depends on.
CODE = {
    "callback": lambda n: {"callbacks": [GradientNormClipping(n)]},
    "named callback": lambda n: {"callbacks": [("stop", EarlyStopping(patience=n)), Pruning]},
    "arguments of a schedule": lambda n: {"callbacks": [LRScheduler("StepLR", step_size=n)]},
    "scorer": lambda n: {"callbacks": [EpochScoring(make_scorer(fbeta_score, beta=n))]},
    "callback that writes": lambda n: {"callbacks": [Own(monitor=f"valid_{n}")]},
    "partial": lambda n: {"backbone": partial(partial(sloped, slope=n))},
    "arguments": lambda n: {"backbone": partial(sloped, n, 11 // n, print)},
    "closure": lambda n: {"lr_schedule": enclosing(n)},
    "closure in a dict": lambda n: {"net_params": {"iterator_train__collate_fn": enclosing(n)}},
    "default": lambda n: {"lr_schedule": with_default(n)},
    "object": lambda n: {"transform": Shaken(n)},
    "object that leads out": lambda n: {"transform": Locked(n)},
    "method": lambda n: {"transform": {"train": Shaken(n).apply}},
    "estimator": lambda n: {"transform": FunctionTransformer(kw_args={"n": n})},
    "transform of torchvision": lambda n: {"transform": v2.Compose([v2.Lambda(enclosing(n))])},
}


def told(params):
    inputs = SimpleNamespace(kind="", parts=list)
    return tell_apart(clone(PLAIN).set_params(**params), inputs, {}, None)


def all_told():
    return {name: told(make(1)) for name, make in CODE.items()}


def test_where_parts_end_is_told():
    parts = [[1, 11], [11, 1], [111], [[1], 11], [[1, 11]], ["1", "1", "1"], [[], 1, 11]]
    assert len({digest(each) for each in parts}) == len(parts)


def test_code_is_told_by_what_it_holds():
    first = all_told()
    assert all_told() == first
    assert [name for name, make in CODE.items() if told(make(2)) == first[name]] == []


def test_code_is_told_alike_in_every_process_and_kills_of_one_lose_nothing():
    """One process for both, which imports this package once."""
    code = (
        "import json, test_checkpoint; print(json.dumps(test_checkpoint.all_told()), flush=True)"
    )
    forks = not torch.cuda.is_available()
    if forks:
        code += "\nimport killing; killing.main('top_k', 4, 0)"
    done = run_code(code, Path(__file__).parent)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0]) == all_told()
    if not forks:
        pytest.skip("torch cannot fork after a fit on a GPU, so that none was killed")


@pytest.mark.parametrize(
    "make",
    [
        lambda n: {"callbacks": [Own(dirname=f"run{n}", fn_prefix=f"{n}")]},
        lambda n: {"callbacks": [("log", PrintLog(sink=[print, repr][n]))]},
        lambda n: {"callbacks": [TensorBoard(SimpleNamespace(log_dir=f"run{n}"))]},
    ],
)
def test_what_only_writes_tells_no_fits_apart(make):
    assert told(make(0)) == told(make(1))


@pytest.mark.parametrize("name", ["callback", "named callback", "partial", "scorer"])
def test_a_fit_leaves_what_is_told(name):
    params = CODE[name](1)
    clone(PLAIN).set_params(k=1, max_epochs=1, validation_fraction=0.2, **params).fit(X, y > 4)
    assert told(params) == told(CODE[name](1))


def test_candidates_that_differ_in_code_have_files_of_their_own(kill, tmp_path):
    def search():
        grid = {
            "callbacks": [[GradientNormClipping(n)] for n in (1e-6, 1.0)],
            "backbone": [partial(sloped, slope=slope) for slope in (0.01, 3.0)],
        }
        clf = clone(PLAIN).set_params(lr=0.1)
        return GridSearchCV(clf, grid, cv=2, refit=False, error_score="raise")

    whole = search().fit(X, y)
    for batch in (10, 40, 70):
        kill(batch)
        with pytest.raises(Killed):
            search().fit(X, y, checkpoint=tmp_path)
    kill(None)
    again = search().fit(X, y, checkpoint=tmp_path)
    for split in ("split0_test_score", "split1_test_score"):
        np.testing.assert_array_equal(again.cv_results_[split], whole.cv_results_[split])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "model", "shapes"])
def test_a_state_that_is_damaged_is_refused(damage, half_done):
    data = half_done.read_bytes()
    if damage == "model":
        save(clone(PLAIN).fit(X, y), half_done)
    elif damage == "shapes":
        document, tensors = unpack(data)
        name = next(name for name in tensors if name.endswith("head.weight"))
        half_done.write_bytes(pack(document, {**tensors, name: tensors[name][:, :-1]}))
    else:
        changed = data[:-1] + bytes([data[-1] ^ 1])
        half_done.write_bytes({"cut": data[:-9], "changed": changed, "empty": b""}[damage])
    clf = clone(PLAIN)
    with pytest.raises(ValueError, match="(?s)checkpoint=.*state'.*remove it to begin anew"):
        clf.fit(X, y, checkpoint=half_done)
    assert not hasattr(clf, "net_")


def nested(depth):
    return {"list": [nested(depth - 1)]} if depth else 1


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(fit=[1]),
        lambda d: d.update(seed="x"),
        lambda d: d.update(versions=[1]),
        lambda d: d.update(state={"dict": {}}),
        lambda d: d["state"]["dict"].update(history=nested(430)),
        lambda d: d["state"]["dict"].update(n_epochs="x"),
        lambda d: d["state"]["dict"].update(n_epochs=10**9),
    ],
)
def test_a_state_that_was_made_up_is_refused(change, half_done):
    document, tensors = unpack(half_done.read_bytes())
    change(document)
    half_done.write_bytes(pack(document, tensors))
    with pytest.raises(ValueError, match="(?s)checkpoint=.*state'.*remove it to begin anew"):
        clone(PLAIN).fit(X, y, checkpoint=half_done)


@pytest.mark.parametrize("key", ["dirname", "f_params", "on_epoch_end", "monitor"])
def test_a_state_does_not_say_what_callbacks_do(key, kill, tmp_path):
    files = dict.fromkeys(("f_optimizer", "f_criterion", "f_history"))
    callback = Own(dirname=str(tmp_path / "own"), monitor=None, **files)
    clf, path = clone(PLAIN).set_params(callbacks=[callback]), tmp_path / "state"
    kill(10)
    with pytest.raises(Killed):
        clone(clf).fit(X, y, checkpoint=path)
    kill(None)
    document, tensors = unpack(path.read_bytes())
    (tmp_path / "elsewhere").mkdir()
    value = {"dict": {"value": str(tmp_path / "elsewhere")}}
    document["state"]["dict"]["callbacks"]["dict"]["Own"]["dict"][key] = value
    path.write_bytes(pack(document, tensors))
    with pytest.raises(ValueError, match=f"{key}' is nothing that a Own learns"):
        clone(clf).fit(X, y, checkpoint=path)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_no_link_at_a_name_that_can_be_told_is_followed(kill, tmp_path):
    (tmp_path / "kept").write_text("kept")
    for name in ("state.part", "state.safetensors.part"):
        (tmp_path / name).symlink_to(tmp_path / "kept")
    clone(PLAIN).fit(X, y, checkpoint=tmp_path / "state")
    assert (tmp_path / "kept").read_text() == "kept"


def test_a_state_holds_no_code(half_done):
    with safe_open(half_done, framework="np") as file:
        assert json.loads(file.metadata()["sksetvalued"])["kind"] == "checkpoint"


def test_a_state_from_elsewhere_warns(half_done, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    with pytest.warns(UserWarning, match="goes on elsewhere \\(threads 1 -> 64\\)"):
        clone(PLAIN).fit(X, y, checkpoint=half_done)


def test_seeds_of_numpy_tell_fits_apart(kill, tmp_path):
    path = tmp_path / "state"
    kill(2 * 7 + 3)
    with pytest.raises(Killed):
        clone(PLAIN).set_params(random_state=np.int64(3)).fit(X, y, checkpoint=path)
    kill(None)
    with pytest.raises(ValueError, match="another fit, which differs in .*random_state"):
        clone(PLAIN).set_params(random_state=np.int64(0)).fit(X, y, checkpoint=path)


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(0)])
def test_a_seed_that_was_drawn_is_that_of_then(random_state, kill, tmp_path):
    clf = clone(PLAIN).set_params(random_state=random_state)
    kill(10)
    with pytest.raises(Killed):
        clf.fit(X, y, checkpoint=tmp_path / "state")
    kill(None)
    clf.fit(X, y, checkpoint=tmp_path / "state")
    again = clone(PLAIN).set_params(random_state=None)
    again._draw_seed = lambda: setattr(again, "_seed", clf._seed)
    assert_same(clf, again.fit(X, y))


def test_a_warm_start_goes_on_from_the_network_of_then(kill, tmp_path):
    params = {"warm_start": True, "lr_schedule": None, "backbone_params": {"dropout": 0.2}}
    first = clone(PLAIN).set_params(**params).fit(X, y)
    whole, killed, other = (pickle.loads(pickle.dumps(first)) for _ in range(3))
    whole.fit(X, y)
    kill(10)
    with pytest.raises(Killed):
        killed.fit(X, y, checkpoint=tmp_path / "state")
    kill(None)
    with pytest.raises(ValueError, match="differs in the fitted network"):
        other.partial_fit(X, y).fit(X, y, checkpoint=tmp_path / "state")
    assert_same(whole, first.fit(X, y, checkpoint=tmp_path / "state"))


def test_each_fit_has_a_file_of_its_own_in_a_folder(kill, tmp_path):
    """Through a search and a pipeline, some fits of which are complete."""
    pipeline = make_pipeline(StandardScaler(), clone(PLAIN))
    search = GridSearchCV(pipeline, {"topkclassifier__lr": [1e-3, 1e-2]}, cv=2)
    search.set_params(error_score="raise")
    given = {"topkclassifier__checkpoint": tmp_path}
    kill(40)
    with pytest.raises(Killed):
        clone(search).fit(X, y, **given)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith("fit-")
    kill(None)
    again = clone(search).fit(X, y, **given)
    assert list(tmp_path.iterdir()) == []
    assert_same(clone(search).fit(X, y).best_estimator_[-1], again.best_estimator_[-1])


def test_folds_of_a_dataset_have_files_of_their_own(kill, tmp_path):
    """Also where the labels of all folds are the same."""
    dataset, target = SliceDataset(TensorDataset(torch.from_numpy(X))), np.repeat(range(10), 20)
    kwargs = {"cv": 2, "error_score": "raise"}
    whole = cross_val_score(PLAIN, dataset, target, **kwargs)
    kwargs["params"] = {"checkpoint": tmp_path}
    kill(18)
    with pytest.raises(Killed):
        cross_val_score(PLAIN, dataset, target, **kwargs)
    kill(None)
    assert len(list(tmp_path.iterdir())) == 1
    np.testing.assert_array_equal(cross_val_score(PLAIN, dataset, target, **kwargs), whole)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_fit_can_go_on(monkeypatch, tmp_path):
    whole = clone(PLAIN).fit(X, y)
    step, left = SetNet.train_step, iter([1] * 10)

    def interrupted(net, *args, **kwargs):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return step(net, *args, **kwargs)

    monkeypatch.setattr(SetNet, "train_step", interrupted)
    clf = clone(PLAIN)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        clf.fit(X, y, checkpoint=tmp_path / "state")
    monkeypatch.setattr(SetNet, "train_step", step)
    # The same object would go on with the network that was interrupted, not with the fit.
    clf.set_params(warm_start=True)
    with pytest.raises(ValueError, match="differs in.*the fitted network: .*as a clone is"):
        clf.fit(X, y, checkpoint=tmp_path / "state")
    assert_same(whole, clone(PLAIN).fit(X, y, checkpoint=tmp_path / "state"))
    assert list(tmp_path.iterdir()) == []


class Stops:
    def __call__(self, number, frame):
        raise KeyboardInterrupt


def stop(number, frame, how="by a function"):
    raise KeyboardInterrupt(how)


@pytest.mark.parametrize(
    "handler", [signal.default_int_handler, stop, partial(stop, how="at once"), Stops()]
)
def test_an_interrupt_while_a_callback_scores_is_no_early_stop(handler, tmp_path):
    def interrupted(net, X, y=None):
        if len(net.history) == 2:
            signal.raise_signal(signal.SIGINT)
        return 0.0

    callbacks = [EpochScoring(interrupted, name="interrupted", on_train=True)]
    clf = clone(PLAIN).set_params(callbacks=callbacks)
    # A shell lets what it runs in the background ignore the signal.
    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.warns(ConvergenceWarning, match="interrupted in epoch 2 of 4"):
            clf.fit(X, y, checkpoint=tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(list(tmp_path.iterdir())) == 1


class Leaving(Callback):
    """Change the working directory."""

    def on_epoch_begin(self, net, **kwargs):
        os.chdir(Path.cwd().parent)


def test_a_relative_path_stays_where_it_is(monkeypatch, tmp_path):
    folder = tmp_path / "a" / "b" / "c" / "d" / "e"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    clone(PLAIN).set_params(callbacks=[Leaving()]).fit(X, y, checkpoint="state")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_layers_without_a_shape_yet(tmp_path):
    lazy = nn.Sequential(nn.LazyLinear(8), nn.ReLU())
    clf = clone(PLAIN).set_params(backbone=lazy)
    assert_same(clone(clf).fit(X, y), clone(clf).fit(X, y, checkpoint=tmp_path))


class Counter(Callback):
    """Hold what is no data."""

    def on_epoch_end(self, net, **kwargs):
        self.seen = object()


class Draws(Callback):
    """Hold an object whose content changes in training."""

    KINDS = {
        "of numpy": lambda: np.random.default_rng(0),
        "of torch": lambda: torch.Generator().manual_seed(0),
        "queue": lambda: deque(maxlen=3),
        "set": set,
        "of Python": lambda: random.Random(0),
        "old of numpy": lambda: np.random.RandomState(0),
        "bytes": bytearray,
        "as it is": lambda: deque([1.5]),
        "the net": None,
    }

    def __init__(self, kind):
        self.kind = kind

    def on_train_begin(self, net, **kwargs):
        # The net holds its callbacks, this one included.
        self.held_ = net if self.kind == "the net" else self.KINDS[self.kind]()

    def on_epoch_end(self, net, **kwargs):
        if self.kind == "as it is":
            return
        if isinstance(self.held_, np.random.Generator | np.random.RandomState):
            self.held_.normal()
        elif isinstance(self.held_, random.Random):
            self.held_.random()
        elif isinstance(self.held_, torch.Generator):
            torch.rand((), generator=self.held_)
        elif isinstance(self.held_, deque | bytearray):
            self.held_.append(1)
        elif isinstance(self.held_, set):
            self.held_.add(1)


@pytest.mark.parametrize("kind", Draws.KINDS)
def test_an_object_whose_content_changes_is_named(kind, tmp_path):
    clf = clone(PLAIN).set_params(callbacks=[Draws(kind)])
    if kind in ("as it is", "the net"):
        clf.fit(X, y, checkpoint=tmp_path)
        return
    with pytest.raises(ValueError, match="cannot keep held_=.*of the callback 'Draws'"):
        clf.fit(X, y, checkpoint=tmp_path)


class Graph(nn.Linear):
    """A layer behind a sparse matrix that it changes, which no file holds."""

    def __init__(self, n_columns):
        super().__init__(n_columns, 4)
        self.register_buffer("edges", torch.eye(n_columns).to_sparse(), persistent=False)

    def forward(self, x):
        if self.training:
            self.edges = self.edges * 0.9
        return super().forward(torch.sparse.mm(self.edges, x.T).T)


def test_a_changed_buffer_that_no_file_holds_is_named(tmp_path):
    clf = TopKClassifier(2, backbone=Graph(X.shape[1]), max_epochs=2)
    with pytest.raises(ValueError, match="tensor 'backbone.edges', of .*sparse.* without a check"):
        clf.fit(X, y, checkpoint=tmp_path / "state")


def test_what_cannot_be_kept_is_named(tmp_path):
    with pytest.raises(ValueError, match="cannot keep seen=.*of the callback 'Counter'"):
        clone(PLAIN).set_params(callbacks=[Counter()]).fit(X, y, checkpoint=tmp_path)
    with pytest.raises(FileNotFoundError, match="checkpoint=.*there is no folder"):
        clone(PLAIN).fit(X, y, checkpoint=tmp_path / "no" / "state")
    with pytest.raises(TypeError, match="checkpoint must be a path .*got 3"):
        clone(PLAIN).fit(X, y, checkpoint=3)


def test_watching_callbacks_begin_anew(kill, tmp_path, capsys):
    clf = clone(PLAIN).set_params(callbacks=[PrintLog(), ProgressBar()], verbose=1)
    kill(10)
    with pytest.raises(Killed):
        clone(clf).fit(X, y, checkpoint=tmp_path)
    kill(None)
    assert_same(clone(clf).fit(X, y), clone(clf).fit(X, y, checkpoint=tmp_path))


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"verbose": 1}, {"verbose": 0}),
        ({"verbose": 0}, {"verbose": 1}),
        ({}, {"device": resolve_device("auto")}),
    ],
    ids=str,
)
def test_what_trains_nothing_else_tells_no_fits_apart(first, then, kill, tmp_path):
    kill(2 * 7 + 3)
    with pytest.raises(Killed):
        clone(PLAIN).set_params(**first).fit(X, y, checkpoint=tmp_path / "state")
    kill(None)
    again = clone(PLAIN).set_params(**then).fit(X, y, checkpoint=tmp_path / "state")
    assert_same(clone(PLAIN).fit(X, y), again)


def test_layers_that_a_callback_froze_stay_frozen(kill, tmp_path):
    clf = clone(PLAIN).set_params(callbacks=[Freezer("backbone*")])
    kill(2 * 7 + 3)
    with pytest.raises(Killed):
        clone(clf).fit(X, y, checkpoint=tmp_path / "state")
    kill(None)
    again = clone(clf).fit(X, y, checkpoint=tmp_path / "state")
    assert_same(clone(clf).fit(X, y), again)


@pytest.mark.parametrize("make", [np.zeros, torch.zeros])
def test_large_data_are_told_to_the_last_entry(make):
    n_rows = 5000 if make is np.zeros else 2**22 + 1
    data = make(n_rows, dtype={np.zeros: np.uint8, torch.zeros: torch.uint8}[make])
    before = digest(data)
    data[-1] = 1
    assert digest(data) != before


class Slotted:
    __slots__ = ("strength",)

    def __init__(self, strength):
        self.strength = strength


@pytest.mark.parametrize("make", [Slotted, lambda n: deque([print, n])], ids=["slots", "deque"])
def test_objects_without_a_dict_are_told_by_what_they_hold(make):
    assert digest(identity(make(1))) == digest(identity(make(1)))
    assert digest(identity(make(1))) != digest(identity(make(2)))

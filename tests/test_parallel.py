"""Processes of a torch.distributed group share a fit, and all give what one process gives."""

import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from unittest import mock

import numpy as np
import pytest
import torch
from joblib import Parallel, delayed, parallel_config
from processes import Group
from scipy import sparse
from sklearn.datasets import load_digits, make_multilabel_classification
from sklearn.model_selection import GridSearchCV
from skorch.callbacks import Callback, EarlyStopping, GradientNormClipping
from skorch.helper import SliceDataset
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from sksetvalued import (
    AverageKClassifier,
    PlugInClassifier,
    SparseTopClassifier,
    Stream,
    TopKClassifier,
)
from sksetvalued.losses import NoisedTopKHingeLoss
from sksetvalued.rules import AverageK
from sksetvalued.training import current_processes
from sksetvalued.training._parallel import Part, Processes, _communicating
from sksetvalued.training._state import generators_of

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="the groups are forks, which CUDA does not survive"
)

X, y = load_digits(return_X_y=True)
X, y = X[:203], y[:203]
IMAGES = (X.reshape(-1, 8, 8) * 15).astype(np.uint8)
Y = make_multilabel_classification(203, n_classes=10, random_state=0)[1]
WEIGHT = np.arange(203) % 4 / 2
COMMON = {"random_state": 0, "max_epochs": 2}
#: Adam steps as far where a gradient is nothing but rounding, and either way, unless its eps is
#: larger than that.
GENTLE = {"net_params": {"optimizer__eps": 1e-3}}


class Plain(nn.Sequential):
    """A backbone of the user without batch normalisation or dropout, a layer of it unused."""

    def __init__(self, input_shape=(64,)):
        super().__init__(nn.Linear(*input_shape, 16), nn.Tanh())
        self.unused = nn.Linear(3, 3)

    def forward(self, x):
        return self[1](self[0](x))


class Learned(nn.Module):
    """A criterion with a parameter to learn, and random numbers from torch."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(10))

    def forward(self, input, target):
        noise = torch.rand_like(input)
        return nn.functional.cross_entropy(input * self.scale + noise, target)


class Freeze(Callback):
    """Train a layer from the second epoch on only."""

    def on_epoch_begin(self, net, **kwargs):
        net.module_.backbone[0].requires_grad_(len(net.history) > 1)


OF_USERS = "user's backbone, unused and frozen parameters"
#: Fits that are the same but for rounding, by what they bring together.
FITS = {
    "searched length, averaged weights, dropout, two heads, threshold": (
        AverageKClassifier(
            2, random_state=0, batch_size=64, patience=1, calibration_folds=2, **GENTLE
        ),
        X[:120],
        y[:120],
    ),
    "noise, class weights, sample weights, best epoch, one-cycle": (
        TopKClassifier(
            2,
            loss="noised_hinge",
            class_weight="balanced",
            validation_fraction=0.2,
            patience=1,
            lr_schedule="one_cycle",
            **COMMON | GENTLE | {"max_epochs": 3},
        ),
        X,
        y,
        WEIGHT,
    ),
    "estimates of samples, sparse X, batches smaller than two a process": (
        AverageKClassifier(
            2,
            loss="expected_positive",
            batch_size=50,
            calibration_fraction=0.2,
            backbone_params={"dropout": 0},
            **COMMON,
            **GENTLE,
        ),
        sparse.csr_array(X),
        y,
    ),
    "label sets": (
        SparseTopClassifier(size="threshold", validation_fraction=0.2, **COMMON, **GENTLE),
        X,
        Y,
        WEIGHT,
    ),
    "LBFGS": (
        TopKClassifier(
            2,
            loss="cross_entropy",
            optimizer=torch.optim.LBFGS,
            net_params={"optimizer__max_iter": 6, "optimizer__line_search_fn": "strong_wolfe"},
            lr=0.1,
            batch_size=300,
            **COMMON,
        ),
        X,
        y,
    ),
    OF_USERS: (
        TopKClassifier(2, backbone=Plain, callbacks=[Freeze], **COMMON, **GENTLE),
        X,
        y,
    ),
    "images, views, no batch normalisation": (
        AverageKClassifier(
            2,
            backbone=nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten()),
            **COMMON,
            **GENTLE,
        ),
        IMAGES,
        y,
    ),
}


def readable(clf, X):
    """Return what a user can read of a fitted estimator."""
    net = clf.net_
    told = {
        "network": net.module_.state_dict(),
        "loss": net.criterion_.state_dict(),
        "scores": clf.decision_function(X),
        "sets": clf.predict_set(X),
        "classes": clf.classes_,
        "n_iter": clf.n_iter_,
        "threshold": getattr(getattr(clf, "rule_", None), "threshold_", None),
        "order": clf._rng_state["own"],
        "dropout": [own.__getstate__() for _, own in generators_of(net)],
        "inner": [clf._rng_state, list(net.optimizer_.state.values())],
    }
    told["history"] = [dict(row) for row in net.history]
    return plain(told)


def plain(value):
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.numpy() if isinstance(value, torch.Tensor) else value


def assert_close(found, expected, at=""):
    """Check that two readings are equal but for rounding, and for times."""
    assert type(found) is type(expected), at
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), at
        for key in expected:
            if not str(key).endswith(("_dur", "inner")):
                assert_close(found[key], expected[key], f"{at} {key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), at
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_close(one, other, f"{at} {i}")
    elif isinstance(expected, float | np.ndarray) and np.asarray(expected).dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=at)
    else:
        np.testing.assert_array_equal(found, expected, at)


def fit(name):
    clf, X, *targets = FITS[name]
    return readable(clf.fit(X, *targets), X)


@pytest.fixture(scope="module")
def pair():
    fit("LBFGS")  # what is imported late is there before the processes
    with Group(2) as group:
        yield group


def same(found):
    """Return the reading of all processes, which has to be one bit by bit."""
    for other in found[1:]:
        np.testing.assert_equal(other, found[0])
    return found[0]


@pytest.mark.parametrize("name", FITS)
def test_two_processes_give_what_one_gives(pair, name):
    assert_close(same(pair(fit, name)), fit(name))


BUFFERS = {
    "int16": torch.ones(3, dtype=torch.int16),
    "uint16": torch.ones(3, dtype=torch.uint16),
    "float8": torch.ones(3).to(torch.float8_e4m3fn),
    "expanded": torch.arange(5).expand(3, -1),
    "sparse": torch.eye(3).to_sparse(),
}


class Embedded(nn.Module):
    """A backbone with sparse gradients, and a buffer of any kind."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.EmbeddingBag(17, 8, sparse=True)
        self.register_buffer("kept", BUFFERS[kind])

    def forward(self, x):
        return self.table(x.long())


class KindsOfGradients(Callback):
    def on_grad_computed(self, net, named_parameters, **kwargs):
        net.history.record("sparse", [p.grad.is_sparse for _, p in named_parameters])


def fit_embedded(kind):
    params = {"optimizer": torch.optim.SGD, "lr": 0.1, **COMMON}
    clf = TopKClassifier(2, backbone=Embedded(kind), callbacks=[KindsOfGradients()], **params)
    # Of few columns: each value adds its gradient to the weights, and rounds them.
    pixels = X[:, 26:30]
    return [clf.fit(pixels, y).decision_function(pixels), clf.history_[-1, "sparse"]]


@pytest.mark.parametrize("kind", BUFFERS)
def test_tensors_of_any_kind_are_shared(pair, kind):
    assert_close(same(pair(fit_embedded, kind)), fit_embedded(kind))


# -- code of others -----------------------------------------------------------------------------


class Noisy(nn.Module):
    """A backbone that draws from torch, and keeps what it drew last."""

    def __init__(self, input_shape=(64,)):
        super().__init__()
        self.layer = nn.Linear(*input_shape, 16)
        self.norm = nn.BatchNorm1d(16)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        if self.training:
            self.last = torch.rand(3)
        return self.drop(self.norm(self.layer(x)))


class Shifted(torch.utils.data.Dataset):
    """Samples that draw from torch whenever they are read."""

    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        return torch.from_numpy(X[i]).float() + torch.rand(64), int(y[i])


def fit_with_code_of_others(**params):
    clf = TopKClassifier(2, backbone=Noisy, **COMMON, **params).fit(Shifted())
    last = clf.net_.module_.backbone.last
    return readable(clf, Shifted()), last


@pytest.mark.parametrize("n_workers", [0, 1])
def test_code_that_draws_from_torch_draws_apart_and_all_agree(pair, n_workers):
    params = {"net_params": {"iterator_train__num_workers": n_workers}, "loss": Learned}
    found = pair(fit_with_code_of_others, **params)
    same([reading for reading, _ in found])
    assert not torch.equal(found[0][1], found[1][1])


class StopInOne(EarlyStopping):
    """Stop early in one process."""

    def on_train_begin(self, net, **kwargs):
        self.threshold = 1e9 if dist.get_rank() else 0
        super().on_train_begin(net, **kwargs)


def stopped_by_one():
    stop = StopInOne("train_loss", patience=1)
    clf = TopKClassifier(2, random_state=0, max_epochs=30, callbacks=[stop], backbone=Plain)
    return clf.fit(X, y).n_iter_


def test_one_process_stops_all(pair):
    first, second = pair(stopped_by_one)
    assert first == second < 30


class Told(Callback):
    """Raise unless the training is shared, or is not, as expected."""

    def __init__(self, shared):
        self.shared = shared

    def on_train_begin(self, net, **kwargs):
        assert (net._processes is not None) == self.shared


def fit_by_itself():
    TopKClassifier(2, callbacks=[Told(False)], **COMMON).fit(X, y)


def test_a_group_of_one_shares_nothing():
    with Group(1) as group:
        group(fit_by_itself)


def fit_as_on_a_gpu(name):
    send = Processes._send_tensors

    def send_as_on_a_gpu(self, *args, device, **params):
        return send(self, *args, device=torch.device("cuda"), **params)

    with mock.patch.object(Processes, "_send_tensors", send_as_on_a_gpu):
        return fit(name)


def test_tensors_of_a_gpu_go_through_the_default_group(pair):
    found, expected = pair(fit_as_on_a_gpu, "label sets"), pair(fit, "label sets")
    for reading in (*found, *expected):
        for row in reading["history"]:
            del row["train_dur"], row["valid_dur"]
    np.testing.assert_equal(same(found), same(expected))


def fit_without_a_seed():
    np.random.seed(dist.get_rank())
    torch.manual_seed(dist.get_rank())
    clf = TopKClassifier(2, loss=NoisedTopKHingeLoss(2), max_epochs=2, validation_fraction=0.2)
    return readable(clf.fit(X, y), X)


def test_without_a_seed_all_have_that_of_the_first(pair):
    same(pair(fit_without_a_seed))


class PredictInFirst(Callback):
    """Predict, and fit, in one process only, in the midst of the training."""

    def on_epoch_end(self, net, **kwargs):
        if dist.get_rank() == 0:
            assert current_processes() is None
            TopKClassifier(2, max_epochs=1).fit(X, y).predict_set(X)


def fit_with_prediction():
    clf = TopKClassifier(2, callbacks=[PredictInFirst()], **COMMON)
    return readable(clf.fit(X, y), X)


def test_nothing_else_communicates(pair):
    same(pair(fit_with_prediction))


# -- going on -----------------------------------------------------------------------------------


def fit_in_pieces():
    clf = AverageKClassifier(2, random_state=0, **GENTLE)
    for rows in np.array_split(np.arange(len(X)), 3):
        clf.partial_fit(X[rows], y[rows], classes=np.unique(y))
    clf.calibrate(X).set_params(max_epochs=2, warm_start=True).fit(X, y)
    return readable(clf, X)


def test_pieces_and_a_warm_start(pair):
    assert_close(same(pair(fit_in_pieces)), fit_in_pieces())


class Fail(Callback):
    """Raise in one process, in the third epoch, where that is asked for."""

    asked = False

    def on_epoch_end(self, net, **kwargs):
        if Fail.asked and dist.get_rank() == 1 and len(net.history) == 3:
            raise OSError("the disk is full")


def fit_with_checkpoint(path, fails):
    Fail.asked = fails
    clf = TopKClassifier(
        2,
        backbone=Noisy,
        loss=Learned,
        callbacks=[Fail()],
        net_params={"iterator_train__num_workers": 0},
        **COMMON | {"max_epochs": 5},
    )
    return readable(clf.fit(Shifted(), checkpoint=path), Shifted())


def test_a_fit_that_failed_in_one_process_goes_on_bit_by_bit(pair, tmp_path):
    path = tmp_path / "state"
    whole = same(pair(fit_with_checkpoint, path, False))
    first, second = pair.each(fit_with_checkpoint, path, True)
    assert isinstance(second, OSError)
    with pytest.raises(RuntimeError, match="process 1 raised OSError: the disk is full"):
        raise first
    assert path.exists()
    going_on = same(pair(fit_with_checkpoint, path, False))
    assert not path.exists()
    for reading in (whole, going_on):
        for row in reading["history"]:
            row.pop("train_dur")
    np.testing.assert_equal(going_on, whole)


class FailAtEnd(Callback):
    """Raise in one process, after its last message, where that is asked for."""

    asked = False

    def on_train_end(self, net, **kwargs):
        if FailAtEnd.asked and dist.get_rank() == 1:
            raise OSError("the disk is full")


def fail_at_the_end(go_on):
    FailAtEnd.asked = False
    clf = AverageKClassifier(2, warm_start=True, callbacks=[FailAtEnd()], **COMMON).fit(X, y)
    before = clf.decision_function(X), clf.class_counts_, clf.rule_.threshold_, clf.n_iter_
    FailAtEnd.asked = True
    with pytest.raises((OSError, RuntimeError), match="the disk is full"):
        getattr(clf, go_on)(X, y)
    FailAtEnd.asked = False
    after = clf.decision_function(X), clf.class_counts_, clf.rule_.threshold_, clf.n_iter_
    np.testing.assert_equal(after, before)
    return readable(getattr(clf, go_on)(X, y), X)


@pytest.mark.parametrize("go_on", ["fit", "partial_fit"])
def test_what_fails_in_one_process_at_the_end_is_undone_in_all(pair, go_on):
    same(pair(fail_at_the_end, go_on))


def fail_anew():
    FailAtEnd.asked = True
    clf = AverageKClassifier(2, callbacks=[FailAtEnd()], **COMMON)
    with pytest.raises((OSError, RuntimeError), match="the disk is full"):
        clf.fit(X, y)
    FailAtEnd.asked = False
    return [name for name in vars(clf) if name.endswith("_")]


def test_a_fit_that_fails_in_one_process_at_the_end_leaves_none_fitted(pair):
    assert same(pair(fail_anew)) == []


# -- searches -----------------------------------------------------------------------------------


def search(backend):
    clf = TopKClassifier(2, **COMMON, callbacks=[Told(backend == "sequential")])
    search = GridSearchCV(clf, {"lr": [1e-3, 1e-2]}, cv=2, n_jobs=2, refit=False)
    with parallel_config(backend):
        search.fit(X, y)
    return search.cv_results_["mean_test_score"]


@pytest.mark.parametrize("backend", ["sequential", "threading"])
def test_searches(pair, backend):
    """Candidates one after the other are shared; those of jobs are not, but the same."""
    np.testing.assert_allclose(same(pair(search, backend)), search_alone())


def search_alone():
    Told.on_train_begin, before = Callback.on_train_begin, Told.on_train_begin
    try:
        return search("sequential")
    finally:
        Told.on_train_begin = before


def fit_plug_in():
    base = TopKClassifier(2, **COMMON, callbacks=[Told(True)])
    clf = PlugInClassifier(base, AverageK(2), cv=2).fit(X, y)
    return clf.rule_.threshold_, clf.predict_set(X)


def test_meta_estimators_share_what_they_fit(pair):
    same(pair(fit_plug_in))


def fit_stream(backend):
    classes, counts = np.unique(y, return_counts=True)
    stream = Stream(list(zip(X, y, strict=True)), classes=classes, class_counts=counts)
    clf = TopKClassifier(2, **COMMON)
    with parallel_config(backend):
        return Parallel(2)(delayed(clf.fit)(stream) for _ in range(1))[0].n_iter_


def test_a_stream_is_refused_only_where_it_would_be_shared(pair):
    assert pair(fit_stream, "threading") == [2, 2]
    for error in pair.each(fit_stream, "sequential"):
        with pytest.raises(ValueError, match="a Stream cannot be split"):
            raise error


def fit_in_a_forked_process():
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        pool.submit(fit_by_itself).result(30)


def test_a_forked_process_is_not_one_of_the_group(pair):
    pair(fit_in_a_forked_process)


# -- refusals -----------------------------------------------------------------------------------


class Attributes(torch.utils.data.Dataset):
    """Samples of one label in turn, with attributes as the data sets of torchvision have."""

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def __len__(self):
        return 100

    def __getitem__(self, i):
        return torch.from_numpy(X[i]).float(), i % 10


def fit_other_dataset(kind):
    rank = dist.get_rank()
    if kind == "positions":
        rows = np.arange(100) + 100 * rank
        labels = torch.arange(200) % 10
        dataset = Subset(TensorDataset(torch.from_numpy(X[:200]), labels), rows.tolist())
        dataset = ConcatDataset([dataset])
    elif kind == "slices":
        dataset = SliceDataset(TensorDataset(torch.from_numpy(X[:200])))[rank::2]
        return TopKClassifier(2, **COMMON).fit(dataset, np.arange(100) % 10).n_iter_
    elif kind == "data":
        dataset = Attributes(data=X[rank : rank + 100])
    else:
        first = 100 * rank if kind == "files" else 0
        pairs = [(f"machine{rank}/{first + i}.png", i % 10) for i in range(100)]
        dataset = Attributes(samples=pairs)
    return TopKClassifier(2, **COMMON).fit(dataset).n_iter_


@pytest.mark.parametrize("kind", ["positions", "slices", "data", "files"])
def test_shards_of_a_dataset_with_the_same_labels_are_refused(pair, kind):
    for error in pair.each(fit_other_dataset, kind):
        with pytest.raises(ValueError, match="differ in X:"):
            raise error


def test_the_folder_of_a_dataset_may_differ(pair):
    assert pair(fit_other_dataset, "folder") == [2, 2]


def fit_other(what):
    other = dist.get_rank() == 1
    params = {"backbone": Plain, **COMMON}
    data = [X, y]
    if what == "X":
        data[0] = X + 1e-3 * other
    elif what == "y":
        data[1] = np.where(np.arange(len(y)) == 7 * other, 0, y)
    elif what == "shards":
        data = [X[other::2], y[other::2]]
    elif what == "lr":
        params["lr"] = 1e-2 if other else 1e-3
    elif what == "callbacks":
        params["callbacks"] = [GradientNormClipping(2.0 if other else 1.0)]
    elif what == "backbone":
        torch.manual_seed(other)
        params["backbone"] = Plain()
    elif what == "method" and other:
        return TopKClassifier(2, **params).partial_fit(X, y, classes=np.unique(y))
    elif what == "k":
        params["max_epochs"] = "none" if other else 3
    return TopKClassifier(2, **params).fit(*data)


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("X", "differ in X:"),
        ("y", "differ in y:"),
        ("shards", "differ in X, y: .* not with a shard"),
        ("lr", "differ in lr:"),
        ("backbone", "differ in backbone:"),
        ("callbacks", "differ in callbacks:"),
        ("method", "differ in method:"),
        ("k", "The 'max_epochs' parameter"),
    ],
)
def test_what_differs_is_named_in_every_process(pair, what, named):
    for error in pair.each(fit_other, what):
        with pytest.raises((ValueError, RuntimeError), match=named):
            raise error
    same(pair(fit, OF_USERS))  # the group works on


class DeepSpeedEngine(nn.Linear):
    __module__ = "deepspeed.runtime.engine"


def fit_divided(kind):
    if kind == "DeepSpeedEngine":
        backbone = DeepSpeedEngine(64, 8)
    elif kind == "FSDPModule":
        backbone = fully_shard(nn.Sequential(nn.Linear(64, 8)))
    else:
        backbone = nn.parallel.DistributedDataParallel(nn.Linear(64, 8))
    return TopKClassifier(2, backbone=backbone).fit(X, y)


@pytest.mark.parametrize("kind", ["DeepSpeedEngine", "DistributedDataParallel", "FSDPModule"])
def test_divided_networks_are_refused(pair, kind):
    for error in pair.each(fit_divided, kind):
        with pytest.raises(ValueError, match="backbone holds .* its scores go to a rule"):
            raise error


def fit_while_another_thread_does():
    with _communicating:
        TopKClassifier(2, **COMMON).fit(X, y)


def test_two_fits_at_a_time_are_refused(pair):
    for error in pair.each(fit_while_another_thread_does):
        with pytest.raises(RuntimeError, match="fit one after the other, or by joblib"):
            raise error


def send_what_gloo_cannot():
    processes = Processes()
    with processes.together():
        processes.send(dist.broadcast, torch.ones(3, dtype=torch.int16), src=0)


def test_a_process_is_not_said_to_have_ended_where_it_has_not(pair):
    for error in pair.each(send_what_gloo_cannot):
        with pytest.raises(RuntimeError, match="a message failed|raised RuntimeError") as caught:
            raise error
        assert "a process ended" not in str(caught.value)


# -- processes that end -------------------------------------------------------------------------


class Die(Callback):
    def __init__(self, rank):
        self.rank = rank

    def on_epoch_begin(self, net, **kwargs):
        if dist.get_rank() == self.rank and len(net.history) == 2:
            os.kill(os.getpid(), signal.SIGKILL)


def fit_and_die(rank):
    TopKClassifier(2, callbacks=[Die(rank)], **COMMON).fit(X, y)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_killed_process_ends_the_others(rank):
    start = time.monotonic()
    with Group(3) as group:
        for error in group.each(fit_and_die, rank, ranks={0, 1, 2} - {rank}):
            with pytest.raises(RuntimeError, match="shared by 3 .*: a process ended"):
                raise error
        assert time.monotonic() - start < 10


def mirrored(image):
    return torch.stack([image, image.flip(-1)])


VIEWED = AverageKClassifier(
    2,
    backbone=nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten()),
    transform={"eval": mirrored},
    validation_fraction=0.2,
    **COMMON,
    **GENTLE,
)


def fit_views():
    return readable(VIEWED.fit(IMAGES, y), IMAGES)


def test_views_of_validation_samples_stay_together(pair):
    assert_close(same(pair(fit_views)), fit_views())


def fit_statistics():
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.BatchNorm1d(64), nn.Linear(64, 16))
    clf = TopKClassifier(2, backbone=backbone, batch_size=100, **COMMON).fit(X[:200], y[:200])
    norm = clf.net_.module_.backbone[0]
    return [norm.running_mean.numpy(), norm.running_var.numpy()]


def test_statistics_of_batches_are_the_means_of_those_of_equal_parts(pair):
    mean, variance = same(pair(fit_statistics))
    mean_of_all, variance_of_all = fit_statistics()
    np.testing.assert_allclose(mean, mean_of_all, rtol=1e-5)
    # Variances of parts are about their own means, of 50 samples.
    np.testing.assert_allclose(variance, variance_of_all, rtol=0.2)


@pytest.mark.parametrize("n_samples", [1, 2, 3])
def test_a_batch_of_less_than_two_samples_a_process_goes_whole_to_all(n_samples):
    for rank in range(2):  # batch normalisation cannot be trained on one sample
        assert Part(rank, 2).rows(n_samples) == slice(0, n_samples)
        assert Part(rank, 2).sizes(n_samples) == [n_samples, 0]

"""What is given by mistake is refused by the name of the argument, and loses nothing."""

import datetime
import os
import re
import time
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.utils.data import Dataset

from sksetvalued import (
    AverageKClassifier,
    PlugInClassifier,
    SparseTopClassifier,
    Stream,
    TopKClassifier,
    calibrate,
    cross_val_predict_set,
    predict_labels,
    predict_set,
    to_torch,
)
from sksetvalued._arrays import as_labels, positions
from sksetvalued.datasets import long_tail_indices, make_ambiguous_classification
from sksetvalued.losses import LogitAdjustedLoss, MixedTopKLoss
from sksetvalued.metrics import (
    SetReport,
    average_k_accuracy_score,
    average_set_size,
    set_coverage_score,
    shot_coverage_score,
    top_k_accuracy_score,
    top_k_scorer,
)
from sksetvalued.operators import class_margins
from sksetvalued.rules import AverageError, AverageK, TopK

X = np.random.default_rng(0).standard_normal((24, 4))
Y = np.arange(24) % 3
SCORES, SETS = X[:, :3], X[:, :3] > 0
ONE = torch.tensor(1.0)


class ConstantLoss(nn.Module):
    def forward(self, scores, target):
        return 1.0


class DetachedLoss(nn.Module):
    def forward(self, scores, target):
        return scores.detach().mean()


class OfColumns(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = function


def top_k(**params):
    return TopKClassifier(**{"k": 2, "max_epochs": 1, "random_state": 0, **params})


@pytest.fixture(scope="module")
def fitted():
    return top_k().fit(X, Y)


class TestTensors:
    def test_graphs_are_left_behind(self, fitted):
        tracked = torch.tensor(X, requires_grad=True)
        weight = torch.ones(24, requires_grad=True)
        np.testing.assert_array_equal(fitted.predict_set(tracked), fitted.predict_set(X))
        model = top_k().fit(tracked, torch.tensor(Y), sample_weight=weight)
        np.testing.assert_array_equal(model.predict_set(X), fitted.predict_set(X))
        scores = tracked[:, :3]
        assert top_k_accuracy_score(torch.tensor(Y), scores, k=2) == top_k_accuracy_score(
            Y, SCORES, k=2
        )
        assert (TopK(2).fit(scores).predict_set(scores).sum(1) == 2).all()
        targets = torch.eye(3, requires_grad=True)[Y]
        assert SparseTopClassifier(max_epochs=1).fit(X, targets).classes_.tolist() == [0, 1, 2]

    def test_half_precision_is_widened(self, fitted):
        half = torch.tensor(X).bfloat16()
        np.testing.assert_array_equal(fitted.predict_set(half), fitted.predict_set(half.float()))
        assert AverageK(2).fit(half[:, :3]).threshold_ < np.inf

    def test_other_layouts_are_named(self, fitted):
        sparse = torch.tensor(X).to_sparse()
        with pytest.raises(TypeError, match=r"X is a tensor of torch.sparse_coo"):
            fitted.predict_set(sparse)
        with pytest.raises(TypeError, match=r"y_score is a tensor of torch.sparse_coo"):
            TopK(2).fit(sparse)


#: Labels, and what is said of them.
MIXED = {
    "strings and numbers": (["a", 1, 2] * 8, "numbers and strings"),
    "objects": (np.array(["a", 1, 2] * 8, dtype=object), "numbers and strings"),
    "None": (np.array(["a", None, "b"] * 8, dtype=object), "holds None, which is no label"),
    "missing strings": (
        np.array(["a", np.nan, "b"] * 8, dtype=object),
        "holds nan, which is no label",
    ),
    "NaN": ([0.0, np.nan, 2.0] * 8, "NaN"),
    "complex": (Y + 1j, "[Cc]omplex"),
    "dicts": (np.array([{}, {}, {}] * 8, dtype=object), "dict objects"),
    "records": (
        np.array([("a", 1), ("a", 2), ("b", 3)] * 8, dtype=[("genus", "U1"), ("species", int)]),
        r"records of \('genus', 'species'\): pass one of these, \w+\['species'\]",
    ),
    "NaT": ([pd.NaT, pd.Timestamp("2020"), pd.Timestamp("2021")] * 8, "NaN"),
    "time zones": (
        [pd.Timestamp("2020"), pd.Timestamp("2020", tz="UTC"), pd.Timestamp("2021")] * 8,
        "holds dates and dates of a time zone",
    ),
}


class TestLabels:
    @pytest.mark.parametrize(("labels", "match"), MIXED.values(), ids=MIXED)
    def test_of_several_kinds(self, fitted, labels, match):
        error = pytest.raises((TypeError, ValueError), match=match)
        plug_in = PlugInClassifier(LogisticRegression(), TopK(2))
        for call, name in {
            lambda: top_k().fit(X, labels): "y",
            lambda: SparseTopClassifier(max_epochs=1).fit(X, labels): "y",
            lambda: plug_in.fit(X, labels): "y",
            lambda: cross_val_predict_set(plug_in, X, labels): "y",
            lambda: top_k_accuracy_score(labels, SCORES, k=2): "y_true",
            lambda: set_coverage_score(Y, SETS, labels=labels[:3]): "labels",
        }.items():
            with error as caught:
                call()
            assert str(caught.value).startswith(name)

    @pytest.mark.parametrize(
        ("labels", "match"),
        [
            ((X[:, 0] > 0).astype(object), r"^y holds objects, of type bool: pass .*y\.tolist"),
            (X[:, 0] + 0.5, r"^y holds .*: if that is the name of a class, pass y\.astype\(str\)"),
            (1e19 * (1 + Y), "^y holds 1e.19: if that is the name of a class"),
        ],
        ids=["objects", "fractions", "large"],
    )
    def test_that_are_none_to_scikit_learn(self, labels, match):
        plug_in = PlugInClassifier(LogisticRegression(), TopK(2))
        for model in (top_k(), SparseTopClassifier(max_epochs=1), plug_in):
            with pytest.raises(ValueError, match=match):
                model.fit(X, labels)

    @pytest.mark.parametrize(
        "known",
        [
            np.array([2**63 + 1, 2**63, 2**53 + 1], dtype=np.uint64),
            np.array([2.5, -np.inf, 7]),
            np.array(["oak", "ash", "elm"]),
            np.array(["oak", "ash", "elm"], dtype=object),
            np.array(["2024-05-01", "2023-01-01", "2024-02-01"], dtype="datetime64[ns]"),
        ],
        ids=lambda known: str(known.dtype),
    )
    def test_positions_among_those_known(self, known):
        labels = known[[2, 0, 1, 2]]
        assert positions(labels, known).tolist() == [2, 0, 1, 2]
        assert positions(labels, known[:2]).tolist() == [-1, 0, 1, -1]

    def test_positions_tell_signed_from_unsigned_numbers(self):
        signed, unsigned = 2**53 + np.arange(2), np.array([2**53 + 1], dtype=np.uint64)
        assert positions(signed, unsigned).tolist() == [-1, 0]

    def test_large_whole_numbers_are_told_apart_whatever_their_types(self):
        numbers = (2**53 + np.arange(3))[Y]
        nullable = pd.Series(numbers, dtype="Int64")
        plug_in = PlugInClassifier(LogisticRegression(), TopK(2))
        for model in (top_k(), SparseTopClassifier(max_epochs=1), plug_in):
            assert model.fit(X, nullable).classes_.tolist() == [*range(2**53, 2**53 + 3)]
        with pytest.warns(DataConversionWarning):
            assert top_k().fit(X, nullable.to_frame()).classes_.dtype == np.int64
        for one, other in (("u8", "i8"), ("i8", "u8")):
            sets, known = np.eye(3, dtype=bool)[Y], np.unique(numbers).astype(other)
            assert set_coverage_score(numbers.astype(one), sets, labels=known) == 1
            plug_in.fit(X, numbers.astype(other)).calibrate(X, numbers.astype(one))
            model = top_k().fit(X, numbers.astype(other))
            assert (model._encode(numbers.astype(one)) == Y).all()
        weight = dict(zip(range(2**53, 2**53 + 3), (1.0, 2.0, 3.0), strict=True))
        model = top_k(class_weight=weight).fit(X, numbers.astype("u8"))
        np.testing.assert_allclose(np.exp(model._log_label_weight), [1, 2, 3])

    @pytest.mark.parametrize("dtype", ["M8[ns]", "M8[us]", "M8[D]", "m8[ns]", "m8[s]"])
    @pytest.mark.parametrize("of", ["pandas", "Python"])
    def test_dates_as_objects_are_those_of_numpy(self, dtype, of):
        times = np.arange(18000, 18003).astype(f"{dtype[0]}8[D]").astype(dtype)
        plain = times.astype(f"{dtype[0]}8[us]").tolist()
        objects = list(pd.Series(times)) if of == "pandas" else plain
        y, labels, sets = times[Y], [objects[i] for i in Y], np.eye(3, dtype=bool)[Y]
        assert as_labels(labels, "y").tolist() == labels
        assert set_coverage_score(labels, sets, labels=times) == 1
        assert set_coverage_score(y, sets, labels=objects) == 1
        model = top_k().fit(X, labels)
        assert (model.classes_ == times).all()
        plug_in = PlugInClassifier(top_k().fit(X, y), AverageError(0.2), cv="prefit")
        plug_in.fit(X, labels).calibrate(X, labels)
        single = SparseTopClassifier(max_epochs=3, random_state=0).fit(X, labels)
        for one in (model, plug_in, single):
            assert one.score(X, labels) == np.mean(one.predict(X) == y) > 0
        weighted = top_k(class_weight=dict(zip(objects, (1, 2, 3), strict=True))).fit(X, y)
        np.testing.assert_allclose(np.exp(weighted._log_label_weight), [1, 2, 3])
        pieces = top_k().partial_fit(X, y, classes=objects).partial_fit(X, labels, classes=times)
        assert (pieces.classes_ == times).all()

    def test_dates_are_compared_in_full(self):
        days = np.array(["2020-01-01", "3000-01-01"], dtype="M8[D]")
        moment = pd.Timestamp("2020-01-01T00:00:00.000000001")
        # Two dates that Python cannot order.
        mixed = as_labels([datetime.date(2020, 1, 1), datetime.datetime(3000, 1, 1)], "y")
        assert positions(mixed, days).tolist() == [0, 1]
        assert positions(days, mixed).tolist() == [0, 1]
        assert positions(as_labels([moment, days.tolist()[0]], "y"), days).tolist() == [-1, 0]
        # Nanoseconds do not reach the year 3000, and NumPy starts again at 1677, or raises.
        again = (days.astype("M8[s]").astype(np.int64) * 10**9).view("M8[ns]")
        assert positions(days, again).tolist() == [0, -1]
        for late in (datetime.datetime(3000, 1, 1), np.datetime64("3000-01-01")):
            for early in (moment, moment.asm8):
                with pytest.raises(ValueError, match=r"^y holds .* 2020.* to 3000.*: round them"):
                    as_labels([early, late], "y")
        # Of nanoseconds, but exact in microseconds.
        assert (as_labels([days[1], days[0].astype("M8[ns]")], "y") == days[::-1]).all()
        model = top_k().fit(X, days[Y % 2])
        with pytest.raises(ValueError, match=r"000000001'\]; it knows \[datetime\.date\(2020"):
            model.partial_fit(X, [moment] * 24)

    def test_dates_of_a_time_zone(self):
        dates = pd.Series(pd.date_range("2020", periods=3))
        zoned, sets = dates.dt.tz_localize("UTC"), np.eye(3, dtype=bool)[Y]
        assert set_coverage_score(zoned[Y], sets, labels=zoned) == 1
        with pytest.raises(ValueError, match="hold dates and dates of a time zone, which never"):
            set_coverage_score(zoned[Y], sets, labels=dates)
        with pytest.raises(ValueError, match=r"^y holds objects, of type Timestamp"):
            top_k().fit(X, zoned[Y])

    def test_a_missing_date_in_sets_of_labels(self):
        sets = [[pd.Timestamp("2020")], [pd.NaT, pd.Timestamp("2021")]] * 12
        with pytest.raises(ValueError, match="the labels in y contains NaN, which is no label"):
            SparseTopClassifier(max_epochs=1).fit(X, sets)

    @pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="NumPy 1 has none")
    def test_strings_of_any_length(self):
        names = np.array(["ash", "elm", "oak"])
        strings, sets = names.astype(np.dtypes.StringDType()), np.eye(3, dtype=bool)[Y]
        assert set_coverage_score(strings[Y], sets, labels=names) == 1
        assert set_coverage_score(names[Y], sets, labels=strings) == 1
        pieces = top_k().partial_fit(X, names[Y], classes=strings)
        for model in (top_k().fit(X, strings[Y]), pieces.partial_fit(X, strings[Y])):
            assert model.classes_.tolist() == names.tolist()
        for missing in (None, np.nan, pd.NA):
            dtype = np.dtypes.StringDType(na_object=missing)
            with pytest.raises(ValueError, match=r"^y holds (None|nan|<NA>), which is no label"):
                top_k().fit(X, np.array(["ash", missing, "oak"], dtype=dtype)[Y])

    def test_of_another_kind_than_the_classes(self, fitted):
        strings = np.array(["a", "b", "c"])[Y]
        dates = np.array(["2020-01-01", "2021-01-01", "2022-01-01"], dtype="M8[D]")[Y]
        plug_in = PlugInClassifier(LogisticRegression(), TopK(2)).fit(X, Y)
        for labels in (strings, dates):
            for call in (
                lambda y=labels: top_k_accuracy_score(y, SCORES, k=2, labels=[0, 1, 2]),
                lambda y=labels: top_k().partial_fit(X, y, classes=[0, 1, 2]),
                lambda y=labels: plug_in.calibrate(X, y),
                lambda y=labels: top_k(class_weight=dict.fromkeys(y.tolist(), 1.0)).fit(X, Y),
            ):
                with pytest.raises(ValueError, match=r"(y|y_true|class_weight)\b.* numbers"):
                    call()

    def test_none(self, fitted):
        for call in (
            lambda: top_k_accuracy_score(None, SCORES, k=2),
            lambda: SetReport.from_estimator(fitted, X, None),
            lambda: cross_val_predict_set(top_k(), X, None),
        ):
            with pytest.raises(ValueError, match=r"y(_true)? is None"):
                call()


#: Values that are no arrays of numbers.
NO_NUMBERS = {
    "strings": [["0.1", "0.2", "0.7"]] * 24,
    "objects": np.array([["0.1", 0.2, 0.7]] * 24, dtype=object),
    "complex": SCORES + 1j,
    "dates": SCORES.astype("M8[s]"),
    "ragged": [[0.1, 0.2, 0.7]] * 23 + [[0.3]],
    "masked": np.ma.masked_array(SCORES, mask=SCORES > 0),
    "huge": [[10**400, 0, 0]] * 24,
}


@pytest.mark.filterwarnings("error::numpy.exceptions.ComplexWarning")
class TestNumbers:
    @pytest.mark.parametrize("values", NO_NUMBERS.values(), ids=NO_NUMBERS)
    def test_scores_sets_and_weights(self, values):
        column = values[0] * 8 if isinstance(values, list) else values.ravel()[:24]
        for call, name in {
            lambda: TopK(2).fit(values): "y_score",
            lambda: AverageK(2).fit(SCORES).predict_set(values): "y_score",
            lambda: average_k_accuracy_score(Y, values, k=2): "y_score",
            lambda: average_set_size(values): "y_set",
        }.items():
            with pytest.raises((TypeError, ValueError), match=f"^{name} "):
                call()
        if not (isinstance(values, list) and len(values[-1]) == 1):
            for call, name in {
                lambda: TopK(2).fit(SCORES, sample_weight=column): "sample_weight",
                lambda: top_k().fit(X, Y, sample_weight=column): "sample_weight",
                lambda: shot_coverage_score(Y, SETS, class_counts=column[:3]): "class_counts",
                lambda: TopK(2, objective="macro", prior=column[:3]).fit(SCORES): "prior",
            }.items():
                with pytest.raises((TypeError, ValueError), match=f"^{name} "):
                    call()

    @pytest.mark.parametrize("values", ["ragged", "masked", "masked rows", "complex"])
    def test_tables(self, fitted, values):
        table = NO_NUMBERS[values.split()[0]]
        table = [[*row, 1.0] for row in table] if isinstance(table, list) else np.c_[table, Y]
        if values.startswith("masked"):
            table = np.ma.masked_array(X, mask=X > 0)
            table = list(table) if values == "masked rows" else table
        with pytest.raises((TypeError, ValueError)) as caught:
            fitted.predict_set(table)
        assert "X " in "".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


class LazyFrame:
    """What polars and others build until it is collected."""

    columns = ("a", "b")

    def collect(self):
        raise NotImplementedError

    def head(self, n):
        return self


class TestStrides:
    def test_a_row_read_backwards(self, fitted):
        row, many = X[:1][::-1], np.arange(200.0)[None][::-1]
        assert row.strides[0] < 0
        np.testing.assert_array_equal(fitted.predict_set(row), fitted.predict_set(X[:1]))
        assert TopK(3).fit(many).predict_set(many)[0, -3:].all()


class TestInputs:
    @pytest.mark.parametrize("values", [None, (row for row in X), {1, 2}, object(), len, ONE])
    def test_what_holds_no_samples(self, fitted, values):
        for call in (lambda: fitted.predict_set(values), lambda: top_k().fit(values, Y)):
            with pytest.raises(TypeError, match=r"^X must be an array.* got"):
                call()

    def test_a_lazy_frame_is_to_be_collected(self, fitted):
        with pytest.raises(TypeError, match=r"X is a LazyFrame.* X.collect\(\)"):
            fitted.predict_set(LazyFrame())

    def test_strings_in_a_table(self, fitted):
        with pytest.raises(ValueError) as caught:
            fitted.predict_set([["a", "b", "c", "d"]])
        assert "X was taken for a table of numbers" in caught.value.__notes__[0]
        with pytest.raises(ValueError, match="NaN") as caught:
            top_k().fit(np.where(X > 0, X, np.nan), Y)
        assert not getattr(caught.value, "__notes__", [])  # of strings there is no word


class WithSize(nn.Linear):
    def __init__(self, size):
        super().__init__(size, 3)


@pytest.mark.parametrize("backbone", [nn.Linear, nn.Sequential, WithSize, int])
def test_a_class_as_backbone(backbone):
    with pytest.raises(TypeError, match=r"backbone=.*(Give a module|Pass an object)"):
        top_k(backbone=backbone).fit(X, Y)


@pytest.mark.parametrize("cls", [TopKClassifier, SparseTopClassifier])
def test_parameters_are_validated_before_they_are_used(cls):
    with pytest.raises(ValueError, match="'warm_start' parameter"):
        cls(warm_start=torch.tensor([2.0, 1.0])).fit(X, Y)
    assert cls(max_epochs=1, batch_size=True).fit(X, Y).batch_size_ == 1


@pytest.mark.parametrize("cv", [None, "prefit"])
def test_a_class_in_a_plug_in(cv):
    with pytest.raises(TypeError, match=r"estimator=LogisticRegression is a class"):
        PlugInClassifier(LogisticRegression, TopK(2), cv=cv).fit(X, Y)
    with pytest.raises(TypeError, match=r"rule=TopK is a class"):
        PlugInClassifier(LogisticRegression(), TopK, cv=cv).fit(X, Y)


@pytest.mark.parametrize("cls", [TopKClassifier, PlugInClassifier, LogisticRegression])
@pytest.mark.parametrize(
    "use",
    [
        lambda model: predict_set(model, X),
        lambda model: predict_set(model, iter([X])),
        lambda model: predict_labels(model, X),
        lambda model: calibrate(model, X),
        lambda model: top_k_scorer(k=1)(model, X, Y),
        lambda model: SetReport.from_estimator(model, X, Y),
        to_torch,
    ],
)
def test_a_class_in_place_of_a_fitted_model(use, cls):
    with pytest.raises(TypeError, match=f"^model={cls.__name__} is a class: pass an object of it"):
        use(cls)


class Dying(Dataset):
    """Samples, one of which ends the worker process that reads it."""

    def __init__(self, position, length=24, after=0):
        self.position = position
        self.length = length
        self.after = after

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if i == self.position and torch.utils.data.get_worker_info() is not None:
            time.sleep(self.after)
            os._exit(3)
        return torch.from_numpy(X[i % 24])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_worker():
    params = {"iterator_train__num_workers": 1, "iterator_valid__num_workers": 1}
    model = top_k(net_params=params).fit(Dying(position=None), Y)
    for call in (lambda: model.predict_set(Dying(40, 80)), lambda: model.fit(Dying(9), Y)):
        with pytest.raises(RuntimeError, match=r"net_params=.*num_workers"):
            call()


def without_room(tensor):
    """Fail as torch does where /dev/shm is full, but for the empty file that it leaves there."""
    raise RuntimeError("unable to allocate shared memory(shm): No space left on device (28)")


class Confined(Dying):
    """Samples, one of which leaves its worker no room for shared memory."""

    def __getitem__(self, i):
        if i == self.position and torch.utils.data.get_worker_info() is not None:
            torch.Tensor.share_memory_ = without_room
        return torch.from_numpy(X[i % 24])


@pytest.mark.parametrize("positions", [(3, None), (None, 3)], ids=["fit", "predict"])
def test_no_room_for_the_batches_of_workers(positions):
    params = {"iterator_train__num_workers": 1, "iterator_valid__num_workers": 1}
    model = top_k(net_params=params)
    with pytest.raises(RuntimeError, match=r"shared memory \(.*No space.*--shm-size.*num_workers"):
        model.fit(Confined(positions[0]), Y).predict_set(Confined(positions[1], 80))


class Waiting(nn.Linear):
    """A network that takes its time to predict, in which workers end."""

    seconds = 0

    def forward(self, x):
        time.sleep(self.seconds)
        return super().forward(x)


def test_a_worker_that_dies_while_scores_are_computed(monkeypatch):
    params = {"iterator_valid__num_workers": 1}
    model = top_k(backbone=Waiting(X.shape[1], 4), net_params=params).fit(Dying(position=None), Y)
    monkeypatch.setattr(Waiting, "seconds", 5)  # or less, as the end of a worker interrupts it
    with pytest.raises(RuntimeError, match=r"net_params=.*num_workers"):
        model.predict_set(Dying(40, 80, after=0.5))  # the first batch has arrived by then


def test_a_k_of_every_class_is_told_once_where_it_is_given():
    pieces = AverageKClassifier(k=3, backbone=(4,), random_state=0)
    changed = AverageKClassifier(k=2, max_epochs=1).fit(X, Y)
    calls = (
        lambda: [pieces.partial_fit(X, Y, classes=range(3)) for _ in range(2)],
        lambda: pieces.set_params(k=4).partial_fit(X, Y),
        lambda: changed.set_params(k=3).calibrate(X),
        lambda: AverageKClassifier(k=3, max_epochs=1).fit(Stream.counted([*zip(X, Y)])),
        lambda: top_k().fit(X, Y).set_params(k=3).predict_set(X),
        lambda: top_k_accuracy_score(Y, SCORES, k=3),
        lambda: AverageK(3).fit(SCORES),
    )
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        told = [w.filename for w in caught if "every class is returned" in str(w.message)]
        assert told == [__file__]


def test_a_changed_k_is_told_in_a_line():
    y = np.arange(240) % 60
    model = AverageKClassifier(k=2, max_epochs=1, objective="macro", random_state=0)
    model.fit(np.repeat(X, 10, 0), y).set_params(k=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.predict_set(X)
    (warning,) = caught
    assert "k=3 was set after the threshold was calibrated for k=2" in str(warning.message)
    assert len(str(warning.message)) < 160
    calibrate(model, X)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", 10**400),
        ("weight_decay", 10**400),
        ("device", 10**30),
        ("device", -(10**30)),
        ("lr_schedule", lambda: None),
        ("lr_schedule", torch.optim.lr_scheduler.StepLR),
        ("lr_schedule", lambda optimizer: None),
        ("loss", int),
        ("loss", ConstantLoss),
        ("loss", DetachedLoss),
        ("backbone", OfColumns(lambda x: x[:, :0])),
        ("backbone", OfColumns(lambda x: x.long())),
        ("monitor", lambda y_true, y_score: None),
        ("net_params", {1: 2}),
        ("net_params", {"callbacks__typo": 1}),
        ("net_params", {"callbacks__typo__sink": 1}),
        ("net_params", {"iterator_train__num_workers": -1}),
        ("callbacks", [("a",)]),
        ("callbacks", [()]),
    ],
)
def test_parameters_that_no_training_can_take_are_named(name, value):
    with pytest.raises((ValueError, TypeError)) as caught:
        top_k(validation_fraction=0.2, **{name: value}).fit(X, Y)
    assert re.search(rf"\b{name}\b", str(caught.value))


@pytest.mark.parametrize("dates", ["M8[s]", "m8[s]"])
def test_tables_of_dates_are_no_numbers(dates, fitted):
    X_dates = np.arange(96).reshape(24, 4).astype(dates)
    frame = pd.DataFrame(X).assign(when=X_dates[:, 0])
    for call in (
        lambda: top_k().fit(X_dates, Y),
        lambda: top_k().fit(frame, Y),
        lambda: fitted.predict(X_dates),
    ):
        with pytest.raises(TypeError, match="X holds dates or durations"):
            call()
    with pytest.raises(ValueError, match="Expected 2D array|Expected a 2-dimensional"):
        fitted.predict(frame[0])


def test_an_array_of_widths_is_told_the_tuple():
    with pytest.raises(TypeError, match=r"give the widths of layers as a tuple, \(8, 4\)"):
        top_k(backbone=np.array([8, 4])).fit(X, Y)


def test_patience_is_not_for_pieces():
    with pytest.raises(ValueError, match="patience=2.*partial_fit does not do: set patience=None"):
        top_k(patience=2).partial_fit(X, Y, classes=range(3))


def test_the_class_of_a_schedule_is_told_to_become_a_function():
    remedy = r"lr_schedule=.*StepLR.*lambda optimizer: StepLR\(optimizer, 5\)"
    with pytest.raises(TypeError, match=remedy):
        top_k(lr_schedule=torch.optim.lr_scheduler.StepLR).fit(X, Y)
    halved = torch.optim.lr_scheduler.LinearLR
    assert top_k(lr_schedule=halved).fit(X, Y).n_iter_ == 1


def test_parameters_of_a_rule_that_are_no_dict_are_named_after_the_fit(fitted):
    model = clone(fitted).fit(X, Y).set_params(rule_params=3)
    with pytest.raises(TypeError, match="rule_params must be a dict .*, got 3"):
        model.predict_set(X)


def test_unsigned_sizes_are_integers_like_others():
    unsigned, signed = (AverageK(1.5, min_size=t(1), max_size=t(2)) for t in (np.uint64, int))
    assert (
        unsigned.fit(SCORES).predict_set(SCORES) == signed.fit(SCORES).predict_set(SCORES)
    ).all()
    losses = [
        MixedTopKLoss(((t(1), 0.5), ("k", 0.5)), k=t(2))(
            torch.from_numpy(SCORES), torch.from_numpy(Y)
        )
        for t in (np.uint64, int)
    ]
    assert losses[0] == losses[1]


def test_counts_and_shares_in_another_order_than_the_classes_are_refused():
    y = np.repeat(["a", "b", "c"], [10, 60, 30])
    counts = pd.Series(y).value_counts()  # of b, c, a
    tight = AverageKClassifier(2, rule_params={"prior": counts / 100}, objective="macro")
    for name, use in {
        "prior": lambda counts: TopK(1, objective="macro", prior=counts / 100).fit(
            SETS.astype(float)
        ),
        "prior ": lambda counts: tight.fit(np.zeros((100, 2)), y),
        "counts": lambda counts: long_tail_indices(y, counts=counts // 10),
        "class_counts": lambda counts: class_margins(counts, 0.5),
        "class_counts ": LogitAdjustedLoss,
        "class_weights": lambda counts: make_ambiguous_classification(
            n_classes=3, class_weights=counts
        ),
    }.items():
        with pytest.raises(ValueError, match=rf"^{name.strip()} must be in the order.*sort_index"):
            use(counts)
        if name == "prior ":
            continue
        # Categories have an order of their own: here the classes are in it, and not sorted.
        kinds = counts.set_axis(pd.Categorical(counts.index, categories=counts.index))
        with pytest.raises(ValueError, match=r"must be in the order.*: use .*\.loc\[sorted\("):
            use(kinds.sort_index())
        use(counts.sort_index())
        use(kinds.loc[list("abc")])


def test_calibrate_takes_labels_where_some_rules_need_them(fitted):
    for model in (
        AverageKClassifier(2, max_epochs=1, random_state=0).fit(X, Y),
        SparseTopClassifier(size="threshold", max_epochs=1, random_state=0).fit(X, np.eye(3)[Y]),
    ):
        threshold = model.calibrate(X).rule_.threshold_
        assert model.calibrate(X, Y).rule_.threshold_ == threshold


ONE_EACH = np.eye(3)[Y]


@pytest.mark.parametrize(
    ("indicators", "remedy"),
    [
        (ONE_EACH, "one label each: pass {}.argmax(axis=1)."),
        (ONE_EACH > 0, "one label each: pass {}.argmax(axis=1)."),
        (torch.from_numpy(ONE_EACH), "one label each: pass {}.argmax(axis=1)."),
        (sp.csr_array(ONE_EACH), "one label each: pass {}.argmax(axis=1)."),
        (ONE_EACH.tolist(), "one label each: pass np.argmax({}, axis=1)."),
        (pd.get_dummies(Y), "one label each: pass {}.idxmax(axis=1)."),
        (pd.get_dummies(Y, dtype="boolean"), "one label each: pass {}.idxmax(axis=1)."),
        (np.maximum(ONE_EACH, ONE_EACH[::-1]), "SparseTopClassifier"),
        (sp.csr_array(ONE_EACH + ONE_EACH[::-1]), "SparseTopClassifier"),
        (2 * ONE_EACH, "SparseTopClassifier"),
        (ONE_EACH * (Y > 0)[:, None], "SparseTopClassifier"),
        (np.array(["no", "yes"])[ONE_EACH.astype(int)], "SparseTopClassifier"),
    ],
)
def test_indicators_are_told_what_to_do_with_them(indicators, remedy):
    plug_in = PlugInClassifier(LogisticRegression(), TopK(1))
    for name, call in (
        ("y", lambda: top_k().fit(X, indicators)),
        ("y", lambda: plug_in.fit(X, indicators)),
        ("y_true", lambda: top_k_accuracy_score(indicators, SCORES, k=1)),
    ):
        with pytest.raises(ValueError, match=f"^{name} .*{re.escape(remedy.format(name))}"):
            call()


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("optimizer__momentum", r"net_params=\{'optimizer__momentum': ...\}"),
        ("loss_params__tau", r"loss_params=\{'tau': ...\}"),
        ("backbone__widths", r"backbone_params=\{'widths': ...\}"),
        ("k__x", "set k itself"),
    ],
)
def test_parameters_of_no_estimator_are_told_their_place(name, remedy):
    with pytest.raises(ValueError, match=f"{name} is no parameter of TopKClassifier.*{remedy}"):
        TopKClassifier().set_params(**{name: 1})


def test_options_are_strings_not_arrays_of_them():
    scores, value = np.eye(3), np.array(["micro", "macro"])
    for name, use in {
        "average": lambda: top_k_accuracy_score([0, 1, 2], scores, k=1, average=value),
        "objective": lambda: TopK(1, objective=value).fit(scores),
        "coverage": lambda: AverageError(0.1, coverage=value).fit(scores, [0, 1, 2]),
        "reduction": lambda: LogitAdjustedLoss([1, 2, 3], reduction=value),
    }.items():
        with pytest.raises(ValueError, match=rf"{name} must be one of \('m.*got .*micro"):
            use()

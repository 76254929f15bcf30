"""Training on samples that come one after the other."""

import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from skorch.callbacks import EpochScoring
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    get_worker_info,
)
from torchvision.transforms import v2

from sksetvalued import (
    AverageKClassifier,
    SparseTopClassifier,
    Stream,
    TopKClassifier,
    calibrate,
    load,
    predict_set,
    save,
)
from sksetvalued.training import _recipes

X, y = load_digits(return_X_y=True)
X, y = X[:512].astype(np.float32), np.array(list("abcdefghij"))[y[:512]]
CLASSES, COUNTS = np.unique(y, return_counts=True)
FAST = {"loss": "cross_entropy", "backbone": (16,), "batch_size": 64, "random_state": 0}


class Rows(IterableDataset):
    """Pairs, in order, and how often and how far they were read."""

    def __init__(self, X=X, y=y, workers=True):
        self.X, self.y, self.workers = X, y, workers
        self.epochs, self.n_read = [], 0

    def set_epoch(self, epoch):
        self.epochs.append(epoch)

    def __iter__(self):
        worker = get_worker_info() if self.workers else None
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for i in range(first, len(self.X), step):
            self.n_read += 1
            yield self.X[i], self.y[i]


def stream(source=None, **params):
    return Stream(
        Rows() if source is None else source,
        **{"classes": CLASSES, "class_counts": COUNTS} | params,
    )


def fitted(X, y=None, cls=TopKClassifier, k=2, **params):
    return cls(k, **{**FAST, "max_epochs": 3, **params}).fit(X, y)


class Picked(Dataset):
    """The rows by position."""

    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        return X[i], y[i]


@pytest.mark.parametrize("params", [{}, {"class_weight": "balanced"}, {"objective": "macro"}])
def test_a_stream_trains_like_a_dataset_in_the_same_order(params):
    in_order = {"iterator_train__shuffle": False, "iterator_train__num_workers": 0}
    by_position = fitted(Picked(), net_params=in_order, **params)
    clf = fitted(stream(), **params)
    # The Dataset gives vectors of its own kind, which the array that is predicted has not.
    np.testing.assert_array_equal(clf.predict_set(X), by_position.predict_set(Picked()))
    assert clf.history_[:, "train_loss"] == by_position.history_[:, "train_loss"]
    np.testing.assert_array_equal(clf.class_counts_, by_position.class_counts_)
    assert (clf.n_iter_, clf.n_features_in_) == (3, 64)


def test_an_epoch_is_as_many_samples_as_were_said_and_passes_follow_each_other():
    source = Rows()
    clf = fitted(stream(source, n_samples=320), max_epochs=4)
    assert clf.history_[:, "train_batch_count"] == [5, 5, 5, 5]
    # 4 epochs of 320 are two and a half passes over 512; the first samples are read before.
    assert source.epochs == [0, 1, 2]
    assert source.n_read == 512 + 4 * 320


def test_a_stream_is_gone_through_for_as_many_updates_as_an_array(monkeypatch):
    recipe = _recipes.CONVNET._replace(max_epochs=1, updates=6)
    monkeypatch.setattr(_recipes, "CONVNET", recipe)
    images, labels = X[:100].reshape(-1, 8, 8), y[:100]
    params = {"backbone": None, "max_epochs": "auto"}
    for given in ((images, labels), (Stream.counted(Rows(images, labels)),)):
        clf = fitted(*given, **params)
        assert sum(clf.history_[:, "train_batch_count"]) == 6


def test_images_paths_of_augmentation_and_named_parts():
    images = (16 * X).astype(np.uint8).reshape(-1, 8, 8, 1)
    flip = {"train": lambda image: image[:, ::-1]}
    clf = fitted(stream(Rows(images)), backbone=None, transform=flip, max_epochs=1)
    assert clf.input_shape_ == (1, 8, 8)
    assert clf.predict_set(images).shape == (512, 10)
    named = [{"pixels": x, "extra": x[:3]} for x in X]
    clf = fitted(stream(Rows(named)), backbone=Body(), max_epochs=1)
    assert clf.predict_set({"pixels": X, "extra": X[:, :3]}).sum() == 2 * 512


class Body(torch.nn.Module):
    def forward(self, pixels, extra):
        return torch.cat([pixels, extra], 1)


class Records:
    """Samples as dicts, and no Dataset of torch."""

    def __iter__(self):
        return ({"row": x, "head": x[:3], "label": label} for x, label in zip(X, y))


def test_keys_pick_the_parts_of_dicts():
    one = fitted(stream(Records(), keys=("row", "label")))
    np.testing.assert_array_equal(one.decision_function(X), fitted(stream()).decision_function(X))
    parts = stream(Records(), keys=(("row", "head"), "label"))
    assert set(next(iter(parts))[0]) == {"row", "head"}
    with pytest.raises(ValueError, match=r"keys=\('image', 'label'\) does not fit.*'head'"):
        fitted(stream(Records(), keys=("image", "label")))


def test_labels_are_counted_in_one_pass():
    counted = Stream.counted(Rows())
    np.testing.assert_array_equal(counted.classes, CLASSES)
    np.testing.assert_array_equal(counted.class_counts, COUNTS)
    assert counted.n_samples == 512
    swapped = stream(classes=CLASSES[::-1], class_counts=COUNTS[::-1])
    np.testing.assert_array_equal(swapped.class_counts, COUNTS)


def test_worker_processes_read_parts_of_their_own():
    workers = {"iterator_train__num_workers": 2}
    clf = fitted(stream(), net_params=workers, max_epochs=6)
    assert clf.score(X, y) > 0.5
    again = fitted(stream(), net_params=workers, max_epochs=6)
    np.testing.assert_array_equal(clf.decision_function(X), again.decision_function(X))


def test_pieces_and_calibration_by_batches():
    data = stream()
    clf = AverageKClassifier(2, **FAST)
    for rows, labels in data.batches(100):
        clf.partial_fit(rows, labels, classes=data.classes)
    calibrate(clf, (rows for rows, _ in data.batches(100)), n_samples=512)
    sets = predict_set(clf, (rows for rows, _ in data.batches(100)))
    assert sum(part.sum() for part in sets) == 2 * 512


def test_thresholds_come_from_the_first_samples_and_warm_starts_go_on():
    clf = fitted(stream(), cls=AverageKClassifier, warm_start=True)
    assert clf.predict_set(X).sum() == 2 * 512
    assert clf.fit(stream()).n_iter_ == 6


@pytest.mark.parametrize("unit", ["D", "ns"])
def test_labels_may_be_dates(unit):
    days = pd.Timestamp("2020") + pd.to_timedelta(np.arange(10), unit)
    times = days.to_numpy()[np.searchsorted(CLASSES, y)]
    expected = fitted(stream(), max_epochs=1).predict_set(X)
    for labels in (times, list(pd.Series(times))):
        source = stream(Rows(y=labels), classes=list(days))
        np.testing.assert_array_equal(fitted(source, max_epochs=1).predict_set(X), expected)
    with pytest.raises(ValueError, match=r"label Timestamp\('1999.* not among its 10 classes"):
        fitted(stream(Rows(y=[pd.Timestamp("1999")] * 512), classes=list(days)))


def test_batches_are_told_from_samples():
    codes = torch.from_numpy(np.searchsorted(CLASSES, y))
    loader = DataLoader(TensorDataset(torch.from_numpy(X), codes), 32)
    with pytest.raises(ValueError, match="32 labels at once.*dataset of a DataLoader"):
        fitted(stream(loader, classes=range(10)))
    for call in (TopKClassifier(2).fit, partial(predict_set, fitted(stream()))):
        with pytest.raises(TypeError, match="got DataLoader: pass its dataset"):
            call(loader)


def test_labels_may_be_arrays_of_one_entry():
    for kind in (np.array, torch.tensor):
        source = [(x, kind([i % 3])) for i, x in enumerate(X[:30])]
        assert Stream.counted(source).classes.tolist() == [0, 1, 2]


def test_counts_may_be_columns_that_belong_to_the_classes():
    frame = pd.DataFrame({"name": list("axbc"), "n": [20, 0, 30, 40]})
    frame = frame[frame.n > 0]
    stream = Stream([], classes=frame.name, class_counts=frame.n)
    assert stream.class_counts.tolist() == [20, 30, 40]


def test_counts_tell_the_prior_and_may_be_its_shares():
    counts = np.arange(1, 11)
    for given in (counts, counts / counts.sum()):
        clf = fitted(stream(class_counts=given, n_samples=512), objective="macro")
        np.testing.assert_allclose(clf.rule_.prior_, counts / counts.sum())
    assert Stream([], classes=range(3), class_counts=[0, 1, 0]).n_samples == 1


def test_crops_of_training_may_have_another_size_and_type_than_those_of_evaluation():
    images = np.random.default_rng(0).integers(0, 256, (40, 12, 12, 3), np.uint8)
    pairs = [(Image.fromarray(x), i % 2) for i, x in enumerate(images)]
    scaled = v2.Compose([v2.RandomCrop(10), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    transform = {"train": scaled, "eval": v2.CenterCrop(12)}
    clf = TopKClassifier(1, max_epochs=1, transform=transform).fit(Stream.counted(pairs))
    assert clf.input_shape_ == (3, 12, 12)


@pytest.mark.parametrize("mode", ["P", "RGBA", "YCbCr"])
def test_batches_of_pictures_are_read_as_those_of_the_training(mode):
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 9, 3), np.uint8)
    pairs = [(Image.fromarray(x).convert(mode), i % 2) for i, x in enumerate(images)]
    given = Stream.counted(pairs)
    clf = TopKClassifier(1, max_epochs=1, random_state=0).fit(given)
    batch, _ = next(given.batches(20))
    expected = clf.decision_function([x for x, _ in pairs])
    np.testing.assert_array_equal(clf.decision_function(batch), expected)
    pairs[0] = (pairs[0][0].resize((10, 8)), 0)
    batch, _ = next(Stream.counted(pairs).batches(20))
    assert clf.set_params(transform=v2.CenterCrop(8)).fit(batch, [y for _, y in pairs])


@pytest.mark.parametrize("kind", [float, np.float32, np.array, torch.tensor])
def test_batches_of_numbers_are_one_column_as_in_training(kind):
    given = Stream.counted([(kind(i / 20), i // 10) for i in range(20)])
    clf = TopKClassifier(1, max_epochs=1).fit(given)
    (rows, labels), *_ = given.batches(20)
    assert rows.shape == (20, 1)
    assert clf.partial_fit(rows, labels).input_shape_ == (1,)


def test_batches_of_parts_and_paths_stay_as_they_are():
    (rows, _), *_ = Stream.counted([({"age": i, "file": Path("x")}, 0) for i in range(4)]).batches(
        4
    )
    assert rows["age"].shape == rows["file"].shape == (4,)
    for path in ("x.png", Path("x.png")):
        (rows, _), *_ = Stream.counted([(path, 0)] * 4).batches(4)
        assert rows.tolist() == [path] * 4


def test_labels_of_batches_are_those_of_the_source():
    given = stream([(x, label) for x, label in zip(X[:4], ["a", "b", "abcdefgh", "c"])])
    (_, labels), *_ = given.batches(4)
    assert labels.tolist() == ["a", "b", "abcdefgh", "c"]


def test_floats_may_follow_bytes_in_a_warm_start():
    images = np.random.default_rng(0).integers(0, 256, (20, 3, 8, 8), np.uint8)
    clf = TopKClassifier(1, max_epochs=1, warm_start=True)
    for source in (images, images / 255):
        clf.fit(Stream.counted([(torch.from_numpy(x), i % 2) for i, x in enumerate(source)]))
    with pytest.raises(ValueError, match="numbers up to 25., but those of `fit` were bytes"):
        clf.fit(Stream.counted([(torch.from_numpy(x).float(), 0) for x in images]))


ERRORS = {
    "batches": (ValueError, "batch_size must be >= 1", lambda: stream().batches(0)),
    "real batches": (TypeError, "batch_size must be an integer", lambda: stream().batches(2.5)),
    "iterator": (TypeError, "starts anew", lambda: stream(iter(Rows()))),
    "counts": (ValueError, "one count per label", lambda: stream(class_counts=[1])),
    "shares": (
        ValueError,
        "class_counts sums to 1, fewer .* pass n_samples=",
        lambda: stream(class_counts=COUNTS / COUNTS.sum()),
    ),
    "negative": (ValueError, "numbers >= 0", lambda: stream(class_counts=COUNTS - 60)),
    "twice": (ValueError, "twice", lambda: stream(classes=["a"] * 10)),
    "length": (ValueError, "n_samples must be >= 1", lambda: stream(n_samples=0)),
    "real length": (TypeError, "n_samples", lambda: stream(n_samples=1.5)),
    "bare": (TypeError, r"pass Stream\(X, classes=", lambda: fitted(Rows())),
    "labels apart": (TypeError, r"pass Stream\(X, classes=", lambda: fitted(Rows(), y)),
    "auto": (ValueError, "max_epochs='auto'", lambda: fitted(stream(), max_epochs="auto")),
    "y": (ValueError, "y must be None", lambda: fitted(stream(), y)),
    "held out": (
        ValueError,
        "validation_fraction must be None",
        lambda: fitted(stream(), validation_fraction=0.1),
    ),
    "calibration": (
        ValueError,
        "calibration_fraction must be None",
        lambda: fitted(stream(), cls=AverageKClassifier, calibration_fraction=0.1),
    ),
    "folds": (
        ValueError,
        "calibration_folds must be None",
        lambda: fitted(stream(), cls=AverageKClassifier, calibration_folds=3),
    ),
    "promise": (
        ValueError,
        "held out",
        lambda: fitted(
            stream(), cls=AverageKClassifier, rule_params={"finite_sample": True, "max_size": 4}
        ),
    ),
    "patience": (
        ValueError,
        "patience=2 must be None where X is a Stream",
        lambda: fitted(stream(), patience=2),
    ),
    "estimates": (
        ValueError,
        "every training sample",
        lambda: fitted(stream(), cls=AverageKClassifier, loss="role"),
    ),
    "scores": (
        TypeError,
        "EpochScoring with on_train=True, but a Stream",
        lambda: fitted(stream(), callbacks=[EpochScoring("accuracy", on_train=True)]),
    ),
    "three keys": (
        ValueError,
        r"keys must be a pair \(x, y\).* got \('row', 'head', 'label'\)",
        lambda: stream(Records(), keys=("row", "head", "label")),
    ),
    "one key": (ValueError, r"keys must be a pair .*'ab'", lambda: stream(Records(), keys="ab")),
    "triples": (TypeError, "pairs", lambda: fitted(stream([(x, 1, 2) for x in X]))),
    "unknown label": (
        ValueError,
        r"label 'a' of type str.*not among its 10 classes, \['b', .*'f'\]\.\.\.: name",
        lambda: fitted(stream(classes=list("bcdefghijk"))),
    ),
    "unknown label of few": (
        ValueError,
        r"label 'c' of type str.*not among its 2 classes, \['a', 'b'\]: name",
        lambda: fitted(stream(Rows(y=list("abc" * 200)), classes=["a", "b"], class_counts=[9, 9])),
    ),
    "counts of other classes": (
        ValueError,
        r"position 0 its index holds 'b', and classes 'a'.* class_counts\.sort_index",
        lambda: Stream([], classes=["a", "b"], class_counts=pd.Series({"b": 9, "a": 1})),
    ),
    "labels of two kinds": (
        ValueError,
        "classes holds numbers and strings",
        lambda: Stream.counted([(X[0], 1), (X[0], "a")]),
    ),
    "several labels": (
        TypeError,
        "one label with each sample, got a list",
        lambda: Stream.counted([(X[0], [1, 2])]),
    ),
    "empty": (ValueError, "yielded no samples", lambda: fitted(stream([]))),
    "no labels": (ValueError, "yielded no samples", lambda: Stream.counted([])),
    "predict": (TypeError, "a Stream is for fit", lambda: fitted(X, y).predict_set(stream())),
    "partial_fit": (
        TypeError,
        "a Stream is for fit",
        lambda: TopKClassifier(2, **FAST).partial_fit(stream(), classes=CLASSES),
    ),
    "multi-label": (
        TypeError,
        "SparseTopClassifier cannot.*partial_fit",
        lambda: SparseTopClassifier().fit(stream()),
    ),
    "uneven": (
        ValueError,
        "sample 70 of the stream.* give all of them one shape",
        lambda: fitted(stream([*zip(X[:70], y), (X[0, :5], "a")])),
    ),
    "uneven after the first": (
        ValueError,
        "sample 512 of the stream is of shape",
        lambda: fitted(stream([*zip(X, y), (X[0, :5], "a")]), batch_size=60, max_epochs=9),
    ),
    "uneven for a worker": (
        ValueError,
        "sample 256, by the count of worker 1 of 2, of the stream is of shape",
        lambda: fitted(
            stream(Rows([*X, X[0, :5], X[0, :5]], [*y, "a", "b"])),
            batch_size=60,
            max_epochs=9,
            net_params={"iterator_train__num_workers": 2},
        ),
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_name_the_remedy(case):
    error, match, call = ERRORS[case]
    with pytest.raises(error, match=match):
        call()


def test_a_source_that_can_be_read_once_only_is_told():
    class Once:
        rows = iter(list(zip(X, y)))

        def __iter__(self):
            return self.rows

    with pytest.raises(ValueError, match="must start anew"):
        fitted(stream(Once()))


def test_a_model_of_a_stream_is_saved_like_any_other(tmp_path):
    clf = fitted(stream(class_counts=COUNTS / 3), cls=AverageKClassifier, warm_start=True)
    save(clf, tmp_path / "model.zip")
    for copy in (load(tmp_path / "model.zip"), pickle.loads(pickle.dumps(clf))):
        np.testing.assert_array_equal(copy.predict_set(X), clf.predict_set(X))
        np.testing.assert_array_equal(copy.class_counts_, clf.class_counts_)
    assert len(pickle.dumps(clf)) < 200_000


def test_the_transform_of_training_sees_each_sample():
    images, seen = (16 * X).astype(np.uint8).reshape(-1, 8, 8, 1), []

    def flip(image):
        seen.append(image)
        return image[:, ::-1]

    fitted(stream(Rows(images)), backbone=None, transform={"train": flip}, max_epochs=1)
    assert len(seen) >= 512


def test_lengths_are_those_of_sums_of_any_type():
    assert Stream([], classes=range(2), class_counts=[1.5, 1]).n_samples == 3
    half = np.full(2, 40_000, np.float16)  # whose sum it does not hold
    assert Stream([], classes=range(2), class_counts=half).n_samples == 80_000


def test_a_warm_start_may_stream_some_of_the_classes():
    some, places = np.isin(y, list("bdh")), [1, 3, 7]
    rest = Stream(Rows(X[some], y[some]), classes=list("bdh"), class_counts=COUNTS[places])
    clf = fitted(stream(), warm_start=True).fit(rest)
    assert clf.classes_.tolist() == CLASSES.tolist()
    assert clf.class_counts_[places].tolist() == COUNTS[places].tolist()
    assert clf.class_counts_.sum() == some.sum()


def test_arrays_of_several_sizes_are_a_list_in_a_batch():
    images = [np.full((4, width), width, np.uint8) for width in (5, 6, 5, 7)]
    source = [(image, "odd" if image.shape[1] % 2 else "even") for image in images]
    first, labels = next(Stream.counted(source).batches(3))
    assert [image.shape for image in first] == [(4, 5), (4, 6), (4, 5)]
    assert labels.tolist() == ["odd", "even", "odd"]


def test_masks_are_not_lost():
    rows = np.ma.masked_less(X[:64], 1)
    data = Stream.counted(list(zip(rows, y)))
    with pytest.raises(ValueError, match="whose mask would be lost"):
        fitted(data)
    with pytest.raises(ValueError, match="the stream holds a masked array, whose mask"):
        next(data.batches(8))


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_bytes_stay_bytes_in_a_batch_with_other_images(kind):
    images = [kind(np.ones((4, 4), dtype)) for dtype in (np.uint8, np.float32)]
    (batch, _), *_ = Stream.counted(list(zip(images, "ab"))).batches(2)
    assert [image.dtype for image in batch] == [image.dtype for image in images]

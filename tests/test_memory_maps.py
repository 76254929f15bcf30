"""Memory-mapped tables are read batch by batch, and never copied whole."""

import tracemalloc

import numpy as np
import pytest
from torch import nn

from sksetvalued import AverageKClassifier, TopKClassifier, calibrate, predict_set
from sksetvalued.inputs import table_inputs
from sksetvalued.inputs._tables import ArrayInputs

rng = np.random.default_rng(0)


def mapped(path, array, mode="r"):
    np.save(path, array)
    return np.load(path, mmap_mode=mode)


DTYPES = ["f4", "f8", "f2", "u1", "u2", "i8", "u8", "?", ">f4", ">f8", ">i4"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("own", [None, nn.Linear(6, 4)])
def test_a_map_gives_the_model_of_the_array(tmp_path, dtype, own):
    X = rng.normal(100, 3, size=(300, 6)).astype(dtype)
    y, weight = rng.integers(0, 4, 300), rng.integers(1, 4, 300)
    X_mapped = mapped(tmp_path / "X.npy", X)
    clf = AverageKClassifier(
        2, backbone=own, max_epochs=2, random_state=0, calibration_fraction=0.2
    )
    scores = clf.fit(X, y, weight).decision_function(X)
    threshold = clf.threshold_
    clf.fit(X_mapped, y, weight)
    assert clf.threshold_ == threshold
    np.testing.assert_array_equal(clf.decision_function(X_mapped), scores)
    np.testing.assert_array_equal(clf.decision_function(X), scores)


@pytest.mark.parametrize("dtype", ["images", "f4", "f8", "f2", "u1", ">f8"])
def test_nothing_copies_the_data(tmp_path, dtype):
    images = dtype == "images"
    shape = (8_000, 16, 32) if images else (8_000, 512)
    X = mapped(tmp_path / "X.npy", rng.integers(0, 99, shape).astype("f4" if images else dtype))
    y = np.arange(8_000) % 3
    clf = AverageKClassifier(1.5, backbone=Mean() if images else (4,), max_epochs=1)
    clf.set_params(calibration_fraction=0.1, batch_size=200)
    calibrate(clf.fit(X[:30], y[:30]), X[:30])  # what is imported late is no copy
    tracemalloc.start()
    clf.fit(X, y)
    calibrate(clf, X)
    predict_set(clf, X, out="csr")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.5 * X.nbytes


class Mean(nn.Module):
    def forward(self, x):
        return x.flatten(2).mean(2).repeat(1, 4)


def test_views_of_maps_are_told(tmp_path):
    X = mapped(tmp_path / "X.npy", rng.random((50, 3)))
    for view in (X, X[::2], np.asarray(X)[5:], X[:, :2]):
        inputs = table_inputs(view)
        assert inputs.data is view
        np.testing.assert_array_equal(inputs.subset([1, 3]).take([0, 1]), view[[1, 3]])
    assert type(table_inputs(np.array(X))) is ArrayInputs
    writable = mapped(tmp_path / "Y.npy", np.asarray(X), "r+")
    assert type(table_inputs(writable)) is not ArrayInputs
    assert isinstance(TopKClassifier(1, max_epochs=1).fit(X, np.arange(50) % 2), TopKClassifier)


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f8"])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_values_of_maps_are_checked_to_the_end(tmp_path, dtype, value):
    X = rng.random((6_000, 64)).astype(dtype)
    clf = TopKClassifier(1, max_epochs=1).fit(mapped(tmp_path / "X.npy", X), np.arange(6_000) % 2)
    X[-1, -1] = value
    X = mapped(tmp_path / "X.npy", X)
    for method in (clf.predict, lambda X: clf.fit(X, np.arange(6_000) % 2)):
        with pytest.raises(ValueError, match="Input X contains (NaN|infinity)"):
            method(X)


def test_large_numbers_of_maps_are_refused_in_any_order_of_bytes(tmp_path):
    for dtype in ("f8", ">f8"):
        X = mapped(tmp_path / "X.npy", np.full((6, 2), -1e39, dtype))
        with pytest.raises(ValueError, match=r"up to 1e\+39, too large"):
            TopKClassifier(1).fit(X, np.arange(6) % 2)

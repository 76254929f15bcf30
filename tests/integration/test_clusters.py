"""Searches, calibration and prediction on clusters of Dask and Ray, here of local processes."""

import os
from functools import lru_cache
from pathlib import Path

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

from sksetvalued import (
    AverageKClassifier,
    calibrate,
    calibrate_part,
    load,
    merge_parts,
    predict_set,
    save,
)
from sksetvalued.metrics import top_k_scorer

pytestmark = pytest.mark.integration

X, y = load_digits(return_X_y=True)
X = X.astype(np.float32)


@lru_cache(1)
def load_written(path, when):
    return load(path)


def load_once(path):
    return load_written(path, os.stat(path).st_mtime_ns)


def sets_of_block(block, path):
    """Return the sets of a block of rows, by the model of a file that each process reads once."""
    return predict_set(load_once(path), block)


def part_of_block(block, path, n_samples):
    return calibrate_part(load_once(path), block, n_samples=n_samples)


class SetsOfBatch:
    """What Ray Data makes one of in each process."""

    def __init__(self, path):
        self.model = load(path)

    def __call__(self, batch):
        sets = predict_set(self.model, batch["x"], out="csr")
        return {"row": batch["row"], "set": np.split(sets.indices, sets.indptr[1:-1])}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    clf = AverageKClassifier(2, loss="cross_entropy", max_epochs=5, random_state=0)
    path = str(tmp_path_factory.mktemp("model") / "digits.zip")
    save(clf.fit(X[:900], y[:900]), path)
    return path, load(path)


@pytest.fixture(scope="module")
def dask_client():
    distributed = pytest.importorskip("distributed", reason="extra 'integration' is missing")
    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def ray_data():
    ray = pytest.importorskip("ray", reason="extra 'integration' is missing")
    data = pytest.importorskip("ray.data")
    here = os.pathsep.join([str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split()])
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": here}},
    )
    yield data
    ray.shutdown()


def search():
    clf = AverageKClassifier(2, loss="cross_entropy", max_epochs=2, random_state=0)
    return GridSearchCV(clf, {"lr": [1e-3, 1e-2]}, cv=2, n_jobs=2, scoring=top_k_scorer(k=2))


def test_a_search_on_workers_of_dask_is_that_of_this_process(dask_client):
    with joblib.parallel_backend("dask"):
        there = search().fit(X[:200], y[:200])
    here = search().set_params(n_jobs=1).fit(X[:200], y[:200])
    name = "mean_test_score"
    np.testing.assert_array_equal(there.cv_results_[name], here.cv_results_[name])
    assert there.best_params_ == {"lr": 1e-2}


def test_sets_of_an_array_of_dask_are_those_of_the_array(dask_client, saved):
    array = pytest.importorskip("dask.array")
    path, model = saved
    blocks = array.from_array(X, chunks=(500, 64))
    sets = blocks.map_blocks(sets_of_block, path, dtype=bool, chunks=(blocks.chunks[0], (10,)))
    np.testing.assert_array_equal(sets.compute(), predict_set(model, X))


def test_workers_calibrate_parts_of_the_whole(dask_client, saved):
    path, model = saved
    threshold = calibrate(load(path), X[900:]).threshold_
    blocks = dask_client.map(
        part_of_block, np.array_split(X[900:], 5), path=path, n_samples=len(X) - 900
    )
    merged = merge_parts(load(path), dask_client.gather(blocks))
    assert merged.threshold_ == threshold != model.threshold_


def test_sets_of_batches_of_ray_are_those_of_the_array(ray_data, saved):
    path, model = saved
    rows = ray_data.from_items([{"row": i, "x": x} for i, x in enumerate(X[:600])])
    found = rows.map_batches(
        SetsOfBatch, fn_constructor_args=(path,), batch_size=200, concurrency=1
    ).take_all()
    sets = sp.lil_array((600, 10), dtype=bool)
    for item in found:
        sets[item["row"], item["set"]] = True
    np.testing.assert_array_equal(sets.toarray(), predict_set(model, X[:600]))

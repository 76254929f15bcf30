"""Training on archives of webdataset, row groups of Parquet and streaming sets of Hugging Face."""

import io
import tarfile

import numpy as np
import pytest
from sklearn.datasets import load_digits
from torch.utils.data import IterableDataset

from sksetvalued import AverageKClassifier, Stream, TopKClassifier, calibrate, predict_set

pytestmark = pytest.mark.integration

X, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(X))
X, y = X[order].astype(np.float32), y[order]
COUNTS = {"classes": range(10), "class_counts": np.bincount(y)}


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    pa = pytest.importorskip("pyarrow", reason="extra 'integration' is missing")
    pq = pytest.importorskip("pyarrow.parquet", reason="extra 'integration' is missing")
    path = tmp_path_factory.mktemp("parquet") / "digits.parquet"
    pq.write_table(pa.table({"x": list(X), "label": y}), path, row_group_size=250)
    return str(path)


class RowGroups(IterableDataset):
    """Rows of a Parquet file, of which one group is in memory at a time."""

    def __init__(self, path):
        self.path = path

    def __iter__(self):
        from pyarrow.parquet import ParquetFile

        with ParquetFile(self.path) as file:
            for group in range(file.num_row_groups):
                columns = file.read_row_group(group).to_pydict()
                yield from zip(map(np.float32, columns["x"]), columns["label"])


def classifier():
    return TopKClassifier(1, loss="cross_entropy", max_epochs=5, random_state=0)


def test_row_groups_of_parquet_train_and_calibrate(parquet):
    stream = Stream(RowGroups(parquet), **COUNTS)
    clf = AverageKClassifier(2, loss="cross_entropy", max_epochs=5, random_state=0).fit(stream)
    assert clf.score(X, y) > 0.9
    calibrate(clf, (rows for rows, _ in stream.batches(500)), n_samples=len(X))
    sets = predict_set(clf, (rows for rows, _ in stream.batches(500)), out="csr")
    assert 1.99 * len(X) < sum(part.nnz for part in sets) <= 2 * len(X)


def test_a_streaming_set_of_hugging_face_is_shuffled_anew_each_epoch(parquet):
    datasets = pytest.importorskip("datasets", reason="extra 'integration' is missing")
    rows = datasets.load_dataset("parquet", data_files=parquet, split="train", streaming=True)
    rows = rows.with_format("numpy")
    assert classifier().fit(Stream(rows, keys=("x", "label"), **COUNTS)).score(X, y) > 0.9
    shuffled = Stream(rows.shuffle(seed=0, buffer_size=300), keys=("x", "label"), **COUNTS)
    assert classifier().fit(shuffled).score(X, y) > 0.9
    with pytest.raises(TypeError, match="pass Stream"):
        classifier().fit(rows)


def test_archives_of_webdataset_are_read_by_workers(tmp_path):
    webdataset = pytest.importorskip("webdataset", reason="extra 'integration' is missing")
    for shard, rows in enumerate(np.array_split(np.arange(len(X)), 4)):
        with tarfile.open(tmp_path / f"digits-{shard}.tar", "w") as archive:
            for i in rows:
                image = io.BytesIO()
                np.save(image, X[i].reshape(8, 8, 1) / 16)
                files = {f"{i}.npy": image.getvalue(), f"{i}.cls": str(y[i]).encode()}
                for name, content in files.items():
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
    urls = str(tmp_path / "digits-{0..3}.tar")
    source = webdataset.WebDataset(urls, shardshuffle=4, seed=0).shuffle(100).decode()
    stream = Stream(source.to_tuple("npy", "cls"), **COUNTS)
    clf = classifier().set_params(net_params={"iterator_train__num_workers": 2}).fit(stream)
    assert clf.input_shape_ == (1, 8, 8)
    images = X.reshape(-1, 8, 8, 1) / 16
    assert clf.score(images, y) > 0.9

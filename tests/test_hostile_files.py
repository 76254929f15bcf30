"""What hostile files do: nothing, and in little memory."""

import json
import os
import signal
import subprocess
import sys

import hostile_files
import numpy as np
import pytest
from hostile_files import COMPILER, with_document
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_blobs
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torchvision.transforms import v2

from sksetvalued import AverageKClassifier, PlugInClassifier, TopKClassifier, load, rules, save
from sksetvalued.metrics import top_k_scorer

X, Y = make_blobs(120, n_features=5, centers=6, random_state=0)
IMAGES = np.random.default_rng(0).integers(0, 256, (30, 12, 12, 3), dtype=np.uint8)


def fitted(cls=AverageKClassifier, X=X, y=Y, **params):
    return cls(**{"k": 2, "max_epochs": 2, "random_state": 0, **params}).fit(X, y)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A file of save, the catalogue of changes to which is used."""
    path = tmp_path_factory.mktemp("good") / "m"
    save(fitted(validation_fraction=0.2, warm_start=True), path)
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A file of a Pipeline of many parts."""
    columns = make_column_transformer(
        (make_union(StandardScaler(), PCA(2)), [0, 1, 2]),
        (OneHotEncoder(handle_unknown="ignore"), [3]),
        remainder="passthrough",
    )
    plug_in = PlugInClassifier(TopKClassifier(2, max_epochs=1), rules.AverageError(0.2), cv=0.5)
    path = tmp_path_factory.mktemp("whole") / "m"
    save(make_pipeline(columns, plug_in).fit(np.round(X), Y), path)
    return path


@pytest.fixture(scope="module")
def plugged(tmp_path_factory):
    """A file of a PlugInClassifier around a classifier of scikit-learn."""
    path = tmp_path_factory.mktemp("plugged") / "m"
    save(PlugInClassifier(LogisticRegression(), rules.AverageError(0.2), cv=0.5).fit(X, Y), path)
    return path


@pytest.fixture(scope="module")
def of_skops(tmp_path_factory):
    """Files of skops, which describe their objects by a schema, by what they hold."""
    skops = pytest.importorskip("skops.io", reason="skops is not installed")
    clf = TopKClassifier(2, max_epochs=2, random_state=0)
    models = {
        "a pipeline": make_pipeline(StandardScaler(), clf),
        "a search": GridSearchCV(clf, {"lr": [1e-3, 1e-2]}, cv=2, scoring=top_k_scorer(2)),
        "a plug-in": PlugInClassifier(LogisticRegression(), rules.AverageK(2)),
    }
    folder = tmp_path_factory.mktemp("skops")
    for name, model in models.items():
        skops.dump(model.fit(X, Y), folder / name)
    return {name: folder / name for name in models}


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """A file of a model of images with its transform."""
    path = tmp_path_factory.mktemp("seen") / "m"
    transform = v2.Compose([v2.Resize(9), v2.CenterCrop(8), v2.Normalize([9.0] * 3, [5.0] * 3)])
    images = IMAGES.transpose(0, 3, 1, 2).astype(np.float32)
    save(fitted(X=images, y=np.arange(30) % 3, transform=transform, max_epochs=1), path)
    return path


@pytest.fixture(scope="module")
def ask():
    """A function that asks `hostile_files` a question, and returns the answer."""
    command = [sys.executable, hostile_files.__file__]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, start_new_session=True) as process:

        def ask(*question):
            print(json.dumps(question, default=str), file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())

        yield ask
        os.killpg(process.pid, signal.SIGKILL)


class TestCatalogue:
    @pytest.mark.parametrize(
        "key", ["compile__options", "callbacks__lr_schedule__policy", "iterator_train__timeout"]
    )
    def test_a_file_does_not_say_how_the_machine_runs(self, good, tmp_path, key):
        def forge(document):
            document["params"].update(net_params={"dict": {key: COMPILER}})

        def compiled(document):
            document["params"].update(compile=True)

        for change in (forge, compiled):
            (tmp_path / "m").write_bytes(with_document(good.read_bytes(), change))
            with pytest.raises(ValueError, match="no file may set"):
                load(tmp_path / "m")

    def test_a_file_without_what_a_prediction_needs_is_refused(self, good, tmp_path):
        def lose(document):
            del document["fitted"]["_log_label_weight"]

        (tmp_path / "m").write_bytes(with_document(good.read_bytes(), lose))
        with pytest.raises(ValueError, match="it has the attributes"):
            load(tmp_path / "m")

    def check(self, report):
        assert report["tripped"] == report["raised"] == {}
        assert report["slowest"] < 5
        assert report["megabytes"] < 100
        assert report["outcomes"]["used"] > 0

    def test_a_sample_of_the_catalogue(self, ask, good, whole, seen, of_skops):
        tasks = [
            *((good, "file", 401, 0), (good, "skops", 797, 7), (whole, "whole", 1999, 3)),
            *((seen, "images", 797, 5), (of_skops["a plug-in"], "schema", 797, 3)),
        ]
        reports = ask("changes", tasks)
        for report in reports:
            self.check(report)
            assert report["outcomes"]["refused"] > report["outcomes"]["used"]
        assert sum(reports[0]["outcomes"].values()) > 45

    @pytest.mark.slow
    @pytest.mark.timeout(7200)
    def test_the_catalogue(self, ask, good, whole, plugged, seen, of_skops):
        schemas = {f"skops: {name}": (path, "schema") for name, path in of_skops.items()}
        files = {
            "an estimator": (good, "file"),
            "a pipeline of many steps": (whole, "whole"),
            "a plug-in": (plugged, "whole"),
            "a transform": (seen, "images"),
            "skops: state": (good, "skops"),
            **schemas,
        }
        reports = ask("changes", [(*file, 1, 0) for file in files.values()])
        for name, report in zip(files, reports, strict=True):
            print(name, report)
        for report in reports:
            self.check(report)
            assert sum(report["outcomes"].values()) > 8000

    def test_the_tripwire_sees(self, tmp_path):
        actions = {
            "subprocess.run(['true'])": "subprocess.Popen",
            "os.system('true')": "os.system",
            "os.fork() or os._exit(0)": "os.fork",
            "open('tripped', 'w')": "open tripped w",
            "os.open('tripped', os.O_CREAT | os.O_WRONLY)": "open tripped",
            "open('/etc/hostname')": "open /etc/hostname",
            "importlib.import_module('wave')": "import wave",
            "socket.create_connection(('127.0.0.1', 9), 0.01)": "socket.",
            "pickle.loads(pickle.dumps(json.dumps))": "pickle.find_class",
        }
        program = f"""
import contextlib, importlib, json, os, pickle, socket, subprocess
from hostile_files import Tripwire
wire, seen = Tripwire("the file"), []
for action in {list(actions)!r}:
    with contextlib.suppress(OSError), wire:
        exec(action)
    seen.append(wire.tripped)
print(json.dumps(seen))
"""
        folder = os.path.dirname(hostile_files.__file__)
        run = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": folder},
        )
        for tripped, (action, name) in zip(json.loads(run.stdout), actions.items(), strict=True):
            assert any(name in event for event in tripped), action


class TestMemory:
    """A file costs at most four times its size and 50 MB, whatever it says."""

    @pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="not on Linux")
    def test_large_files_and_those_that_describe_more_than_they_hold(
        self, ask, good, whole, tmp_path
    ):
        table = good.read_bytes()
        save(fitted(X=IMAGES, y=np.arange(30) % 3, max_epochs=1), tmp_path / "image")
        image = (tmp_path / "image").read_bytes()
        (tmp_path / "image").unlink()
        layers = {"tuple": [1] * 300_000}
        long = {"object": False, "shape": [2000], "data": ["x" * 50_000] + [""] * 1999}
        # The same bytes, again and again.
        bytes_of = {"dtype": "|u1", "shape": [5056], "bytes": "fitted._rng_state.own"}
        arrays = {"list": [{"array": bytes_of}] * 30_000}
        changes = {
            "vit_h_14": lambda d: d["network"].update(backbone="vit_h_14"),
            "regnet": lambda d: d["network"].update(backbone="regnet_y_128gf"),
            "layers": lambda d: d["network"].update(backbone=layers),
            "depth": lambda d: d["network"].update(
                backbone="densenet40_40", backbone_params={"dict": {"depth": 3 * 10**6 + 4}}
            ),
            "features": lambda d: d["fitted"].update(input_shape_={"tuple": [10**9]}),
            "pixels": lambda d: d["fitted"].update(input_shape_={"tuple": [3, 16_000, 16_000]}),
            "strings": lambda d: d["fitted"].update(classes_={"strings": long}),
            "arrays": lambda d: d["history"].update(rows={"list": [{"dict": {"a": arrays}}]}),
            "ranks": lambda d: d["params"].update(ranks={"list": [{"array": bytes_of}] * 3000}),
            "sizes": lambda d: d["fitted"].update(largest_size_=10**9),
            "estimates": lambda d: d["params"].update(
                loss="role", loss_params={"dict": {"n_samples": 10**5, "n_classes": 10**5}}
            ),
        }
        files = {f"{k} table": with_document(table, change) for k, change in changes.items()}
        files |= {f"{k} image": with_document(image, change) for k, change in changes.items()}
        labels = {"object": False, "shape": [6], "data": ["x" * 150_000, *"abcde"]}
        for own in (True, False):
            files[f"parts {own}"] = hostile_files.with_parts(
                whole.read_bytes(), lambda d: d["fitted"].update(classes_={"strings": labels}), own
            )
        files["values"] = hostile_files.signed("[" + "[]," * 5_000_000 + "1]", table)
        files["tensors"] = hostile_files.with_tensors(table, 200_000)
        save(fitted(backbone=(2000, 2000, 2000), max_epochs=1), tmp_path / "large")
        files["large"] = (tmp_path / "large").read_bytes()
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
        for name, (outcome, megabytes, seconds) in ask("memory", tmp_path).items():
            assert outcome == ("loaded" if name in ("large", "pixels image") else "refused"), name
            assert megabytes <= 4 * len(files[name]) / 2**20 + 50, name
            assert seconds < 10, name

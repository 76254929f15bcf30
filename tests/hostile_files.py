"""Hostile files: a catalogue of values, where they can stand, and a tripwire."""

import collections
import importlib
import itertools
import json
import operator
import os
import resource
import struct
import sys
import tempfile
import time
import warnings
from pathlib import Path
from unittest import mock

import numpy as np


def header_of(content):
    size = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def with_header(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def document_of(content):
    return json.loads(header_of(content)[0]["__metadata__"]["sksetvalued"])


def signed(text, content):
    """Return a file with another text of the document and the checksum that belongs to it."""
    from safetensors.torch import load

    from sksetvalued.estimators._container import _checksum

    header, data = header_of(content)
    header["__metadata__"] = {"sksetvalued": text, "sha256": _checksum(text, load(content))}
    return with_header(header, data)


def with_tensors(content, n_tensors):
    """Return a file with many more tensors, all of them empty."""
    header, data = header_of(content)
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [len(data), len(data)]}
    header |= {f"network.{i}": empty for i in range(n_tensors)}
    return with_header(header, data)


def with_parts(content, change, own):
    """Return a file of a Pipeline with 60 copies of its estimator, whose documents are changed.

    `own` is whether each has tensors of its own.
    """
    from sksetvalued.estimators._container import pack, unpack

    document, tensors = unpack(content)
    step = document["model"]["step"]
    steps = step["params"]["dict"]["steps"]["list"]
    part = steps[-1]["tuple"][1]["plug-in"]["fitted"]["dict"]["estimator_"]["estimator"]
    number = part["number"]
    change(part["document"])
    names = [name for name in tensors if name.startswith(f"{number}.")] if own else []
    for i in range(60):
        tensors |= {f"of {i}{name.removeprefix(number)}": tensors[name] for name in names}
    parts = [{"estimator": {**part, "number": f"of {i}" if own else number}} for i in range(60)]
    step["fitted"]["dict"]["parts_"] = {"list": parts}
    return pack(document, tensors)


def with_document(content, change):
    """Return a file whose document was changed in place, and its checksum with it."""
    document = document_of(content)
    change(document)
    return signed(json.dumps(document), content)


#: Compile with a compiler that the file names.
COMPILER = {"dict": {"compile__options": {"dict": {"cpp.cxx": {"tuple": ["touch", "tripped"]}}}}}


#: What is written in place of each value of a document.
HOSTILE = [
    COMPILER,
    *(None, True, -1, 0, 1, 2, 16_000, 2**31, 2**63, 10**400, 1e308, -0.5),
    *("", "x", "x" * 100_000, "\ud800", "__class__", "os.system", "../../../etc/passwd"),
    *("/etc/passwd", "__import__('os').system('true')", "resnet18", "vit_h_14", "mnasnet0_5"),
    *("IMAGENET1K_V1", "cuda:7", "meta", "lr_scheduler", "role", "sets"),
    *([], [1], {}, {"float": "nan"}, {"float": "-inf"}, {"code": "1"}),
    *({"list": []}, {"tuple": []}, {"dict": {}}, {"tuple": [16_000]}, {"tuple": [8] * 3000}),
    {"tuple": [3, 16_000, 16_000]},
    *({"optimizer": "LBFGS"}, {"optimizer": "sys"}, {"tensor": "network.head.weight"}),
    *({"tensor": "absent"}, {"tensor": "fitted._rng_state.own"}),
    {"array": {"dtype": "<U500000000", "shape": [1], "bytes": "fitted.class_counts_"}},
    {"array": {"dtype": "|u1", "shape": [2**40], "bytes": "fitted.class_counts_"}},
    {"strings": {"object": False, "shape": [2000], "data": ["x" * 50_000] + [""] * 1999}},
    {"dict": {"callbacks__lr_schedule__policy": "exec"}},
    {"dict": {"iterator_train__worker_init_fn": "os.system"}},
    {"dict": {"optimizer__param_groups": {"list": []}, "optimizer__params": {"list": []}}},
    {"dict": {"pretrained": True}},
    {"dict": {"hidden": {"tuple": [1] * 3000}}},
    {"dict": {"n_samples": 10**5, "n_classes": 10**5}},
    {"dict": {"depth": 3 * 10**6 + 4}},
    {"transform": {"class": "v2.Lambda", "params": {"dict": {"lambd": "print"}}}},
    {"transform": {"class": "v1.Pad", "params": {"dict": {"padding": 60}}}},
    {"step": {"class": "Pipeline", "params": {"dict": {}}, "fitted": {"dict": {}}}},
    {"step": {"class": "StandardScaler", "params": {"dict": {}}, "fitted": {"dict": {}}}},
    *({"type": "|O"}, {"dtype": "|O"}, {"slice": {"list": [0, 2**62, 1]}}, {"pairs": [[1, 2]]}),
    *({"pairs": [[{"list": []}, 2]]}, {"pairs": [1]}, {"pairs": {}}, {"pairs": [["a", "b"]]}),
]

#: Names that are added to each object of a document, with some of the values.
NAMES = [
    *("__class__", "__init__", "_iter_scores", "callbacks", "compile", "device", "device_"),
    *("forward", "net_", "net_params", "predict_set", "rule_", "state", "transform", "weights"),
    *("memory", "n_jobs", "input", "_tfidf", "steps"),
]


def places(value, path=()):
    """Yield the path of every value of a document; of long lists, of the first ones."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else ()
    items = list(enumerate(value[:3])) if isinstance(value, list) else items
    for key, item in items:
        yield from places(item, (*path, key))


def at(document, path):
    for key in path:
        document = document[key]
    return document


def changes(document):
    """Yield a name and a function that makes a changed text, for each change of the catalogue."""
    text = json.dumps(document)

    def changed(path, change):
        copied = json.loads(text)
        change(at(copied, path))
        return json.dumps(copied)

    for path in places(document):
        parent, key = path[:-1], path[-1]
        for i, value in enumerate(HOSTILE):
            yield (
                f"{path} = value {i}",
                lambda p=parent, k=key, v=value: changed(p, lambda d: operator.setitem(d, k, v)),
            )
        yield f"without {path}", lambda p=parent, k=key: changed(p, lambda d: d.pop(k))
        if isinstance(at(document, path), dict):
            for name, value in itertools.product(NAMES, (True, "x", COMPILER)):
                yield (
                    f"{path} with {name}",
                    lambda p=path, k=name, v=value: changed(
                        p, lambda d: operator.setitem(d, k, v)
                    ),
                )
    for begin, end in ("[]", ('{"a":', "}"), ('{"list":[', "]}")):
        deep = f'"history": {begin * 50_000}1{end * 50_000}, "old": {{'
        yield f"nested {begin}", lambda deep=deep: text.replace('"history": {', deep, 1)
    yield "many small values", lambda: "[" + "[]," * 5_000_000 + "1]"


# -- the tripwire ---------------------------------------------------------------------------

#: Events of the interpreter that no file may cause.
FORBIDDEN = (
    *("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn"),
    *("os.system", "os.startfile", "pty.spawn", "socket.", "urllib.Request", "ftplib.", "http."),
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate"),
    *("os.chmod", "os.chown", "os.kill", "os.putenv", "shutil.", "tempfile.", "ctypes.dlopen"),
    *("pickle.find_class", "sqlite3.connect"),
)
#: Packages of which parts may be imported at need.
IMPORTED = ("encodings", "sksetvalued")


class Tripwire:
    """Record what the interpreter does in the context that a file may not cause."""

    def __init__(self, readable):
        self.armed = False
        self.tripped = []
        self.readable = readable
        sys.addaudithook(self.see)

    def __enter__(self):
        self.tripped, self.modules, self.armed = [], set(sys.modules), True

    def __exit__(self, *exception):
        self.armed = False
        for name in set(sys.modules) - self.modules:
            if name.split(".")[0] not in IMPORTED:
                self.tripped.append(f"import {name}")

    def see(self, event, args):
        if not self.armed:
            return
        if event == "open":
            path, mode, flags = args
            writes = isinstance(mode, str) and set(mode) & set("wax+")
            writes = writes or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR))
            source = str(path).startswith(LIBRARIES) and str(path).endswith((".py", ".pyc"))
            if writes or not (source or path == self.readable):
                self.tripped.append(f"open {path} {mode}")
        elif event.startswith(FORBIDDEN):
            self.tripped.append(f"{event} {args!r:.100}")


LIBRARIES = (sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[1]))


def write(path, content, form):
    """Write the bytes of a file of `save`, in a file of skops where that is the form."""
    if form == "skops":
        import skops.io

        from sksetvalued import AverageKClassifier
        from sksetvalued.estimators._plain_state import FILE

        with mock.patch.object(AverageKClassifier, "__getstate__") as state:
            state.return_value = {FILE: np.frombuffer(content, np.uint8)}
            content = skops.io.dumps(AverageKClassifier())
    Path(path).write_bytes(content)


def read(path, form):
    from sksetvalued import load, trusted_types

    if form == "images":
        # Workers are for the reader to choose.
        return load(path, net_params={"iterator_valid__num_workers": 0})
    if form == "schema":
        import hostile_skops

        return hostile_skops.read(path)
    if form != "skops":
        return load(path)
    import skops.io

    return skops.io.load(path, trusted=trusted_types())


def changed_files(content, form):
    """Yield a name and a function that makes the bytes, for each change of the catalogue."""
    if form == "schema":
        import hostile_skops

        for name, text in hostile_skops.changes(hostile_skops.schema_of(content)):
            yield name, lambda text=text: hostile_skops.with_schema(text(), content)
    else:
        for name, text in changes(document_of(content)):
            yield name, lambda text=text: signed(text(), content)


def use(path, X, form):
    """Load a file and predict; return what happened."""
    try:
        model = read(path, form)
    except ValueError:
        return "refused"
    from sksetvalued import predict_set

    # Steps of others raise what they like when they are used.
    errors = Exception if form in ("whole", "schema") else (TypeError, ValueError)
    if form == "images":
        errors += (RuntimeError,)  # of torchvision, for images that a transform does not fit
    try:
        predict_set(model, X)
        repr(model)
    except errors:
        return "refused by predict_set"
    return "used"


def main(tasks):
    """Use the changed files of good ones; print a report of each as JSON.

    Parameters
    ----------
    tasks : list of (path, form, stride, offset)
        Good files, and which of their changes are used.
    """
    target = os.path.join(tempfile.mkdtemp(), "m")
    wire = Tripwire(target)
    print(json.dumps([report(wire, target, *task) for task in tasks]))


def report(wire, target, path, form, stride, offset):
    """Return what happened with the changed files of a good one."""
    content = Path(path).read_bytes()
    X = np.random.default_rng(0).standard_normal((7, 5))
    if form == "images":
        X = np.random.default_rng(0).uniform(0, 255, (7, 3, 12, 12)).astype(np.float32)
    for _ in range(2):
        write(target, content, form)
        assert use(target, X, form) == "used"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {"outcomes": collections.Counter(), "tripped": {}, "raised": {}, "slowest": 0.0}
    for name, changed in itertools.islice(changed_files(content, form), offset, None, stride):
        write(target, changed(), form)
        start = time.perf_counter()
        try:
            with wire:
                outcome = use(target, X, form)
            found["outcomes"][outcome] += 1
        except BaseException as error:
            found["raised"][name] = repr(error)
        found["slowest"] = max(found["slowest"], time.perf_counter() - start)
        if wire.tripped:
            found["tripped"][name] = wire.tripped[:3]
    found["megabytes"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return found


def import_known():
    """Import what the closed lists of files name."""
    from sksetvalued.estimators._steps import STEPS

    importlib.import_module("torchvision.transforms.v2")
    importlib.import_module("torch._subclasses.schema_check_mode")  # torch does, at need
    for step in STEPS.values():
        step.cls  # noqa: B018


def measure(folder):
    """Load every file of a folder; print the outcomes, and the memory and time it takes."""
    from sksetvalued import load

    paths = sorted(Path(folder).iterdir())
    report = {}
    for path in [paths[0], *paths]:
        Path("/proc/self/clear_refs").write_text("5")
        before, start = resident("VmRSS"), time.perf_counter()
        try:
            load(path)
            outcome = "loaded"
        except ValueError:
            outcome = "refused"
        report[path.name] = outcome, resident("VmHWM") - before, time.perf_counter() - start
    print(json.dumps(report))


def resident(what):
    """Return the resident memory of this process in megabytes, now or at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1]) / 1024


def answer():
    """Answer questions, one a line, each by a process of its own that has nothing to import."""
    warnings.simplefilter("ignore")
    import_known()
    for line in sys.stdin:
        question, argument = json.loads(line)
        asked = os.fork()
        if not asked:
            {"changes": main, "memory": measure}[question](argument)
            sys.exit()
        if os.waitpid(asked, 0)[1]:
            sys.exit(1)


if __name__ == "__main__":
    answer()

"""Memory and time of many samples and many classes, each case in a process of its own.

    python benchmarks/scale.py run [--large]
    python benchmarks/scale.py case rule 1000000 10000
    python benchmarks/scale.py page

`run` adds what is missing to results/scale.json, `--large` the cases of minutes; `page` writes
scale.md from it. Scores are made chunk by chunk; nothing of size n_samples x n_classes exists.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from measuring import machine, read_json, short, slope, table, write_json

from sksetvalued import AverageKClassifier, TopKClassifier, calibrate, predict_set
from sksetvalued.metrics import average_set_size, set_coverage_score
from sksetvalued.rules import AverageK

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "scale.json"
PAGE = HERE / "scale.md"
CASES = [
    *(("rule", n, 10_000) for n in (10_000, 30_000, 100_000)),
    *(("rule", 10_000, classes) for classes in (30_000, 100_000)),
    *((kind, 256, classes) for kind in ("top", "average") for classes in (10_000, 100_000)),
    *(("map", n, 1_000) for n in (100_000, 400_000)),
]
LARGE = [
    ("rule", 1_000_000, 10_000),
    ("rule", 10_000, 1_000_000),
    ("top", 256, 1_000_000),
    ("average", 256, 1_000_000),
]
K, BATCH, WIDTH = 5, 32, 64
CHUNK_ENTRIES = 1 << 22

INTRO = """\
# Many samples, many classes

Written by `python benchmarks/scale.py page` from `results/scale.json`. Each case ran in a process
of its own, on one thread; seconds are CPU seconds. Memory is what the process allocated beyond
its imports (anonymous pages, at their peak), and the peak of all that was resident.
"""


class Peak:
    """The largest anonymous memory of this process since the beginning, sampled in a thread."""

    def __init__(self):
        self.before = self.most = anonymous()
        self.running = True
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self):
        while self.running:
            self.most = max(self.most, anonymous())
            time.sleep(0.005)

    def stop(self):
        """Return the bytes at the peak beyond those of the beginning."""
        self.running = False
        self.thread.join()
        return max(self.most, anonymous()) - self.before


def _status(key):
    """Return a number of bytes that Linux tells of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(key + ":"))
    return 1024 * int(line.split()[1])


def anonymous():
    """Return the bytes that this process has allocated."""
    return _status("RssAnon")


def chunks(n_samples, n_classes):
    """Yield scores of shape (n_chunk, n_classes), the same at each call."""
    step = max(1, CHUNK_ENTRIES // n_classes)
    rng = np.random.default_rng(0)
    base = rng.standard_normal((min(step, 256), n_classes), dtype=np.float32)
    for start in range(0, n_samples, step):
        n_rows = min(step, n_samples - start)
        # A new spread for each row of few random ones: no two rows are equal.
        spread = rng.uniform(0.5, 1.5, (n_rows, 1)).astype(np.float32)
        yield base[rng.integers(len(base), size=n_rows)] * spread


def timed(function, *args):
    """Return the result of a call and its CPU seconds."""
    start = time.process_time()
    return function(*args), time.process_time() - start


def rule(n_samples, n_classes):
    """Calibrate on a stream of scores, predict it sparsely, and score the sets."""
    next(chunks(n_samples, n_classes))  # what the first call loads
    _, making = timed(lambda: sum(len(chunk) for chunk in chunks(n_samples, n_classes)))
    peak, average_k = Peak(), AverageK(K)

    def calibrated():
        for chunk in chunks(n_samples, n_classes):
            average_k.partial_fit(chunk, n_samples=n_samples)
        return average_k.threshold_

    def predicted():
        parts = (average_k.predict_set(c, out="csr") for c in chunks(n_samples, n_classes))
        return sp.vstack(list(parts), format="csr")

    _, calibrating = timed(calibrated)
    sets, predicting = timed(predicted)
    y = np.random.default_rng(1).integers(n_classes, size=n_samples)
    coverage, scoring = timed(
        lambda: set_coverage_score(y, sets, labels=np.arange(n_classes), average="macro")
    )
    return {
        "calibrate": calibrating - making,
        "predict": predicting - making,
        "metrics": scoring,
        "scores made": making,
        "average size": average_set_size(sets),
        "coverage": coverage,
        "memory": peak.stop(),
    }


def steps(cls, n_samples, n_classes):
    """Train some steps on all classes, and predict some sets."""
    rng = np.random.default_rng(0)
    X, y = (
        rng.standard_normal((n_samples, WIDTH), dtype=np.float32),
        rng.integers(n_classes, size=n_samples),
    )
    clf = cls(K, backbone=(WIDTH,), batch_size=BATCH, random_state=0)
    clf.partial_fit(X[:64], y[:64] % 5, classes=range(5))  # what the first fit imports
    peak = Peak()
    clf = cls(K, backbone=(WIDTH,), batch_size=BATCH, random_state=0)
    clf.partial_fit(X[:BATCH], y[:BATCH], classes=np.arange(n_classes))
    _, some = timed(clf.partial_fit, X[:BATCH], y[:BATCH])
    _, more = timed(clf.partial_fit, X, y)
    memory = peak.stop()
    peak = Peak()
    sets, predicting = timed(lambda: clf.predict_set(X, out="csr"))
    parameters = sum(p.nbytes for p in clf.net_.module_.parameters())
    return {
        "step": (more - some) / (n_samples / BATCH - 1),
        "predict": predicting,
        "average size": average_set_size(sets),
        "parameters": parameters,
        "scores": 4 * BATCH * n_classes,
        "memory": memory,
        "predict memory": peak.stop(),
        "factor": memory / parameters,
    }


def mapped(n_samples, n_features):
    """Fit, calibrate and predict a table that stays in its file."""
    with tempfile.TemporaryDirectory() as folder:
        X = np.lib.format.open_memmap(f"{folder}/X.npy", "w+", np.float32, (n_samples, n_features))
        rng = np.random.default_rng(0)
        for start in range(0, n_samples, 10_000):
            X[start : start + 10_000] = rng.random((len(X[start : start + 10_000]), n_features))
        X.flush()
        X = np.load(f"{folder}/X.npy", mmap_mode="r")
        y = np.arange(n_samples) % 10
        small = AverageKClassifier(K, backbone=(8,), max_epochs=1, batch_size=500)
        small.fit(np.array(X[:2000]), y[:2000])
        peak = Peak()
        _, fitting = timed(small.fit, X, y)
        calibrate(small, X)
        predict_set(small, X, out="csr")
        return {"fit": fitting, "data": X.nbytes, "memory": peak.stop()}


KINDS = {
    "rule": rule,
    "top": lambda *sizes: steps(TopKClassifier, *sizes),
    "average": lambda *sizes: steps(AverageKClassifier, *sizes),
    "map": mapped,
}


def case(kind, n_samples, n_classes):
    """Measure one case in this process."""
    torch.set_num_threads(1)
    found = KINDS[kind](n_samples, n_classes)
    return {"kind": kind, "n": n_samples, "L": n_classes, "resident": _status("VmHWM"), **found}


def run(cases):
    """Measure the cases that have not been measured."""
    results = read_json(RESULTS) if RESULTS.exists() else {"machine": machine(), "cases": []}
    done = {(r["kind"], r["n"], r["L"]) for r in results["cases"]}
    for wanted in (c for c in cases if c not in done):
        command = [sys.executable, __file__, "case", *map(str, wanted)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        results["cases"].append(json.loads(output))
        write_json(RESULTS, results)
        print(wanted, output.strip(), flush=True)


def page():
    """Write the page from the results."""
    results = read_json(RESULTS)
    parts = [INTRO, *rule_part(results["cases"]), *step_part(results["cases"])]
    parts += map_part(results["cases"])
    PAGE.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")


def _of(cases, *kinds):
    return sorted((r for r in cases if r["kind"] in kinds), key=lambda r: (r["L"], r["n"]))


def _mib(n_bytes):
    return f"{n_bytes / 2**20:.0f} MiB"


def rule_part(cases):
    rows = [
        [
            *(f"{r['n']:,}", f"{r['L']:,}"),
            *(short(r[key]) for key in ("calibrate", "predict", "metrics")),
            *(_mib(r["memory"]), _mib(r["resident"]), f"{r['average size']:.4f}"),
        ]
        for r in _of(cases, "rule")
    ]
    header = ["n", "classes", "calibrate, s", "predict, s", "metric, s", "allocated"]
    header += ["resident", "average size"]
    lines = ["## AverageK(5) over a stream of scores\n", *table(header, rows), ""]
    for name, fixed, over in (("n", "L", "n"), ("the number of classes", "n", "L")):
        same = [r for r in _of(cases, "rule") if r[fixed] == 10_000]
        if len(same) > 2:
            exponents = [
                slope([r[over] for r in same], [r[k] for r in same])
                for k in ("calibrate", "predict")
            ]
            text = "Seconds grow like {} to the power {:.2f} (calibrate) and {:.2f} (predict)."
            lines.append(text.format(name, *exponents) + "\n")
    return lines


def step_part(cases):
    rows = [
        [
            *(r["kind"], f"{r['L']:,}", short(r["step"]), _mib(r["parameters"])),
            *(_mib(r["scores"]), _mib(r["memory"]), f"{r['factor']:.1f}"),
            *(short(r["predict"]), _mib(r["predict memory"])),
        ]
        for r in _of(cases, "top", "average")
    ]
    header = ["sets", "classes", "s per step of 32", "parameters", "scores of a batch"]
    header += ["allocated", "times the parameters", "256 sets, s", "allocated by that"]
    return ["## Training steps on all classes\n", *table(header, rows), ""]


def map_part(cases):
    rows = [
        [f"{r['n']:,}", _mib(r["data"]), short(r["fit"]), _mib(r["memory"])]
        for r in _of(cases, "map")
    ]
    header = ["rows", "file", "fit of one epoch, s", "allocated by fit, calibrate, predict"]
    return ["## A memory-mapped table of 1,000 columns\n", *table(header, rows), ""]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run").add_argument("--large", action="store_true")
    commands.add_parser("page")
    one = commands.add_parser("case")
    one.add_argument("kind", choices=KINDS)
    one.add_argument("n", type=int)
    one.add_argument("classes", type=int)
    args = parser.parse_args()
    if args.command == "run":
        run(CASES + LARGE * args.large)
    elif args.command == "page":
        page()
    else:
        print(json.dumps(case(args.kind, args.n, args.classes)))

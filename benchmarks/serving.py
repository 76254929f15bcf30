"""What sets cost in service: predict_set, an exported graph and a logistic regression.

CPU time of one call in milliseconds, the median of turns in one process, one thread; printed and
written to ``benchmarks/serving.md``. ONNX Runtime needs the extra 'onnx'.

    python benchmarks/serving.py [--rounds 30] [--page PAGE]
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from measuring import interleaved, machine, settle
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from sksetvalued import AverageKClassifier, TopKClassifier, export, to_torch

PAGE = Path(__file__).with_suffix(".md")
N_FEATURES, N_CLASSES, IMAGE = 64, 100, (3, 32, 32)


def onnx_session(model, folder):
    """Return a session of ONNX Runtime of one thread."""
    import onnxruntime

    path = str(Path(folder, "model.onnx"))
    export(model, path, dtype="float32")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options)


def ways(model, samples, folder, logistic=None):
    """Return the ways to get sets, and the bare network, as functions of a number of rows."""
    module, session = to_torch(model, dtype="float32"), onnx_session(model, folder)
    network = model.net_.module_.eval()

    def bare(n):
        with torch.inference_mode():
            network(torch.from_numpy(samples[:n]))

    def exported(n):
        with torch.inference_mode():
            module(torch.from_numpy(samples[:n]))

    functions = {
        "predict_set": lambda n: model.predict_set(samples[:n]),
        "to_torch": exported,
        "ONNX Runtime": lambda n: session.run(["sets"], {"X": samples[:n]}),
        "the bare network": bare,
    }
    if logistic is not None:
        functions["LogisticRegression.predict_proba"] = lambda n: logistic.predict_proba(
            samples[:n]
        )
    return functions


def measure(functions, rounds, sizes=(1, 1000)):
    """Return the CPU milliseconds of each way and number of rows."""
    calls = {(name, n): lambda f=f, n=n: f(n) for name, f in functions.items() for n in sizes}
    timings = interleaved(calls, rounds=rounds, budget=rounds)
    return {key: timing["cpu_ms"] for key, timing in timings.items()}


def main():
    """Measure a perceptron on tables and a convolutional network on images."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="turns, and seconds for all")
    parser.add_argument("--page", type=Path, default=PAGE)
    arguments = parser.parse_args()
    settle()
    X, y = make_classification(
        3000, N_FEATURES, n_informative=32, n_classes=N_CLASSES, random_state=0
    )
    X = X.astype(np.float32)
    images = np.random.default_rng(0).integers(0, 256, (1000, *IMAGE), dtype=np.uint8)
    logistic = LogisticRegression(max_iter=50).fit(X, y)
    table = AverageKClassifier(3, max_epochs=2, random_state=0).fit(X, y)
    convnet = TopKClassifier(3, max_epochs=1, random_state=0).fit(images, y[:1000])
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for what, functions in (
            (f"perceptron, {N_FEATURES} columns", ways(table, X, folder, logistic)),
            (f"convnet, images {IMAGE}", ways(convnet, images, folder)),
        ):
            times = measure(functions, arguments.rounds)
            for name in functions:
                lines.append(
                    f"| {what} | {name} | {times[name, 1]:.3f} | {times[name, 1000]:.2f} |"
                )
    here = machine()
    page = [
        "# What sets cost in service",
        "",
        f"CPU milliseconds of a call, {N_CLASSES} classes, float32, one thread; {here['device']}, "
        f"torch {here['versions']['torch']}. Made by `python benchmarks/serving.py`.",
        "",
        "| model | way | 1 row | 1,000 rows |",
        "|---|---|---|---|",
        *lines,
        "",
    ]
    arguments.page.write_text("\n".join(page), encoding="utf-8")
    print("\n".join(page))


if __name__ == "__main__":
    main()

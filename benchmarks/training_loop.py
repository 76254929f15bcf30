"""Time of an epoch of an estimator against a bare torch loop over the same batches.

Run ``python benchmarks/training_loop.py``. Both train the same network on the same data with the
same optimiser and loss, one thread, runs interleaved; CPU seconds, medians of the ratios. The
targets are 1.05 for a convolutional network on images and 1.3 for a perceptron on a table.
"""

import json
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import nn

from sksetvalued import TopKClassifier
from sksetvalued.inputs import media_inputs, table_inputs
from sksetvalued.networks import build_network

RESULTS = Path(__file__).resolve().parent / "results" / "training_loop.json"
CASES = {
    "mlp, 20000 x 100, 100 classes, batch 256": ((20_000, 100), 100, 256, 5, 1.3),
    "convnet, 1500 x 32 x 32 x 3, 100 classes, batch 64": ((1_500, 32, 32, 3), 100, 64, 2, 1.05),
}
N_ROUNDS = 7


def make_data(shape, n_classes):
    """Return random samples, bytes for images, and labels."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, shape[0])
    if len(shape) == 2:
        return rng.standard_normal(shape).astype(np.float32), y
    return rng.integers(0, 256, shape, dtype=np.uint8), y


def bare_loop(X, y, n_classes, batch_size, n_epochs):
    """Train as one would by hand."""
    torch.manual_seed(0)
    inputs = table_inputs(X, torch.float32) if X.ndim == 2 else media_inputs(X, "image")
    network = build_network(
        None, None, None, inputs.sample_shape, n_classes, normalization=inputs.statistics()
    )
    if X.ndim == 4:
        network = network.to(memory_format=torch.channels_last)
    fused = {"weight_decay": 1e-2, "fused": True}
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, **fused)
    target = torch.from_numpy(y)
    for _ in range(n_epochs):
        for index in torch.randperm(len(y)).split(batch_size):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(inputs.take(index)), target[index])
            loss.backward()
            optimizer.step()


def estimator(X, y, n_classes, batch_size, n_epochs):
    """Train by fit."""
    TopKClassifier(
        k=5, loss="cross_entropy", batch_size=batch_size, max_epochs=n_epochs, random_state=0
    ).fit(X, y)


def cpu_seconds(function, *args):
    """Return the CPU time of one call."""
    start = time.process_time()
    function(*args)
    return time.process_time() - start


def main():
    """Measure all cases, print them, and keep them as JSON."""
    torch.set_num_threads(1)
    results = {}
    for name, (shape, n_classes, batch_size, n_epochs, target) in CASES.items():
        args = (*make_data(shape, n_classes), n_classes, batch_size, n_epochs)
        estimator(*args)
        bare_loop(*args)
        pairs = [
            (cpu_seconds(estimator, *args), cpu_seconds(bare_loop, *args)) for _ in range(N_ROUNDS)
        ]
        ratio = median(ours / bare for ours, bare in pairs)
        results[name] = {
            "ratio": round(ratio, 3),
            "target": target,
            "seconds_per_epoch_bare": round(median(b for _, b in pairs) / n_epochs, 4),
        }
        print(f"{name}: {ratio:.3f} x a bare loop (target {target})")
    versions = {"torch": torch.__version__, "threads": 1, "rounds": N_ROUNDS}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"settings": versions, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""Compare the speed of this checkout with that of another one, call by call.

    python -m benchmarks.pairs ../older_checkout

Two processes of one thread each, one per checkout, run the same block of calls in turn, briefly
and on the same core, so that what else the machine does slows both; after some pairs of blocks new
processes take their place, as a process may be fast or slow for all of its life, by where its
memory happens to lie. The table gives the ratio of CPU times (this one over the other), of each
pair of processes the median over blocks, and its 95 % interval over the pairs of processes. Both
checkouts need compiled kernels, and nothing else should run.
"""

import argparse
import math
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

SHAPES = ((64, 100), (256, 1000), (64, 10_000), (64, 100_000))
LOSSES = ("noised", "noised_small", "calibrated", "smoothed", "sparse_top")
FITS = ("fit_table", "fit_text", "fit_average_k")
RULES = ("predict_top_k", "predict_top_k_100000", "predict_average_k")
CASES = (*(f"{loss} {n} {L}" for loss in LOSSES for n, L in SHAPES), *FITS, *RULES)
# Settings that both sides know, so that the same work is compared.
SETTINGS = {
    "max_epochs": 5,
    "lr": 3e-3,
    "batch_size": 128,
    "lr_schedule": "cosine",
    "backbone_params": {"hidden": (128,), "dropout": 0.0},
    "random_state": 0,
}


def loss_case(name, n, L):
    """Return a call of a loss and its gradient."""
    import torch

    from sksetvalued import losses

    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(n, L, generator=generator, requires_grad=True)
    y = torch.randint(L, (n,), generator=generator)
    make = {
        "noised": partial(losses.NoisedTopKHingeLoss, 5, epsilon=1.0),
        "noised_small": partial(losses.NoisedTopKHingeLoss, 5, epsilon=0.1),
        "calibrated": partial(losses.CalibratedTopKHingeLoss, 5),
        "smoothed": partial(losses.SmoothedTopKHingeLoss, 5),
        "sparse_top": losses.SparseTopLoss,
    }
    criterion = make[name]()
    if name == "sparse_top":
        y = torch.zeros(n, L).scatter_(1, y[:, None], 1)

    def call():
        scores.grad = None
        criterion(scores, y).backward()

    return call


def fit_case(name):
    """Return a call of `fit` on fixed data."""
    from scipy import sparse

    from sksetvalued import AverageKClassifier, TopKClassifier

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4000, 50)).astype(np.float32), rng.integers(0, 20, 4000)
    if name == "fit_text":
        X = sparse.random(3000, 5000, 0.01, "csr", np.float32, random_state=0)
        y = y[:3000]
    if name == "fit_average_k":
        return partial(AverageKClassifier(3, alpha=1.0, loss="two_head", **SETTINGS).fit, X, y)
    loss = {"loss": "noised_hinge", "epsilon": 1.0, "n_noise_samples": 5}
    return partial(TopKClassifier(5, **loss, **SETTINGS).fit, X, y)


def predict_case(name):
    """Return a call of `predict_set` of a fitted estimator.

    Columns are sparse, as to those of a dense table the network adds more than it did once.
    """
    from scipy import sparse

    from sksetvalued import AverageKClassifier, TopKClassifier

    L, n = (100_000, 256) if name.endswith("100000") else (1000, 2000)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, 2)).astype(np.float32), rng.integers(0, L, n)
    X = sparse.csr_matrix(X)
    settings = SETTINGS | {"backbone_params": {"hidden": (2,), "dropout": 0.0}}
    if name == "predict_average_k":
        model = AverageKClassifier(5, loss="two_head", alpha=1.0, **settings)
    else:
        model = TopKClassifier(5, loss="noised_hinge", epsilon=1.0, **settings)
    model.partial_fit(X, y, classes=np.arange(L))
    return partial(model.predict_set, X)


def case(name):
    """Return the call that a name of CASES stands for."""
    if name in FITS:
        return fit_case(name)
    if name in RULES:
        return predict_case(name)
    loss, n, L = name.split()
    return loss_case(loss, int(n), int(L))


def work():
    """Serve: for each line "name calls" run the block and print its CPU seconds."""
    import warnings

    # Beside this file, whichever checkout the package is of.
    from measuring import settle

    warnings.simplefilter("ignore")
    settle()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    name = call = kept = None
    for line in sys.stdin:
        asked, _, calls = line.strip().rpartition(" ")
        if asked != name:
            # Whatever comes after this lies elsewhere in each process.
            kept = [bytearray(int(size)) for size in np.random.default_rng().uniform(0, 1e5, 50)]
            name, call = asked, case(asked)
            del kept[::2]
            call()
        start = time.process_time()
        for _ in range(int(calls)):
            call()
        print(time.process_time() - start, flush=True)


class Worker:
    """A process that works on the package of one checkout, by the blocks of this one."""

    def __init__(self, checkout):
        env = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=env, cwd=checkout
        )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.stdin.close()
        self.process.wait()

    def seconds(self, name, calls):
        """Return the CPU seconds of a block of calls."""
        print(name, calls, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{name!r} ended the process of {self.process.args}.")
        return float(answer)


def logs_of(new, old, name, pairs, block=0.03):
    """Return the median logarithm of the ratio of new over old, by blocks in turn."""
    calls = max(1, math.ceil(block / max(new.seconds(name, 1), 1e-6)))
    calls = max(1, math.ceil(block * calls / max(new.seconds(name, calls), 1e-6)))
    old.seconds(name, calls)
    # Always in this order, so that either finds in the caches what the other left there.
    return np.median(
        [math.log(new.seconds(name, calls) / old.seconds(name, calls)) for _ in range(pairs)]
    )


def interval(logs):
    """Return the ratio and its 95 % bounds, of logarithms by pairs of processes."""
    from scipy import stats

    mean, error = np.mean(logs), stats.sem(logs) * stats.t.ppf(0.975, len(logs) - 1)
    return np.exp([mean, mean - error, mean + error])


def main():
    """Print a table of all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument(
        "--pairs", type=int, default=9, help="of blocks, for each pair of processes"
    )
    parser.add_argument("--processes", type=int, default=30, help="pairs of processes")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    args = parser.parse_args()
    here, other = Path(__file__).resolve().parents[1], args.other.resolve()
    names = [name for name in CASES if args.only in name]
    logs = {name: [] for name in names}
    for _ in range(args.processes):
        with Worker(here) as new, Worker(other) as old:
            for name in names:
                logs[name].append(logs_of(new, old, name, args.pairs))
    print("| case | ratio | 95 % interval |\n|---|---|---|")
    for name in names:
        ratio, low, high = interval(logs[name])
        print(f"| {name} | {ratio:.3f} | {low:.3f} to {high:.3f} |")


if __name__ == "__main__":
    work() if sys.argv[1:] == ["--serve"] else main()

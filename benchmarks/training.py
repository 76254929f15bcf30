"""Measure training and prediction against bare torch loops and against skorch.

    python benchmarks/training.py run [--only fit ...] [--smooth-topk CHECKOUT]
    python benchmarks/training.py report

`run` writes results/training.json.xz, `report` makes training.md and its plots from it. What is
compared takes turns in one process on one thread; the figures are medians, of the CPU time of the
process and of the time on the clock. With --only, the other parts of the results are kept.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import contenders
import measuring
import numpy as np
import scipy.sparse as sp
import torch
import training_report
from skorch import NeuralNetClassifier
from torch import nn
from torch.nn import functional as F

from sksetvalued import AverageKClassifier, TopKClassifier
from sksetvalued.inputs import media_inputs
from sksetvalued.losses import NoisedTopKHingeLoss, SmoothedTopKHingeLoss
from sksetvalued.networks import build_network

RESULTS = measuring.RESULTS / "training.json.xz"
PAGE = measuring.RESULTS.parent / "training.md"
ADAMW = {"lr": 1e-3, "weight_decay": 1e-2, "fused": True}


def make_table(n_samples, n_features, n_classes):
    """Return a random table in single precision, and labels in which every class occurs."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_samples, n_features), dtype=np.float32)
    return X, rng.permutation(np.arange(n_samples) % n_classes)


def make_images(n_samples, n_classes):
    """Return random colour images of 32 x 32 bytes, and labels."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (n_samples, 32, 32, 3), dtype=np.uint8)
    return X, rng.permutation(np.arange(n_samples) % n_classes)


def make_body(n_features, hidden=256):
    """Return the hidden layer of a perceptron."""
    return nn.Sequential(nn.Linear(n_features, hidden), nn.ReLU())


def make_mlp(n_features, n_classes, hidden=256):
    """Return a perceptron with a hidden layer."""
    return make_body(n_features, hidden).append(nn.Linear(hidden, n_classes))


class Perceptron(nn.Module):
    """The same as a user of skorch would write it."""

    def __init__(self, n_features, n_classes):
        super().__init__()
        self.layers = make_mlp(n_features, n_classes)

    def forward(self, x):
        return self.layers(x)


def train(module, batches, n_epochs):
    """Train with cross-entropy, as one writes it by hand."""
    optimizer = torch.optim.AdamW(module.parameters(), **ADAMW)
    for _ in range(n_epochs):
        for x, y in batches():
            optimizer.zero_grad()
            loss = F.cross_entropy(module(x), y)
            loss.backward()
            optimizer.step()


def shuffled(X, y, batch_size):
    """Yield batches gathered from memory in random order, where the data are."""
    for index in torch.randperm(len(X), device=X.device).split(batch_size):
        yield X[index], y[index]


#: Features, classes and batch size of the tables; 128 is skorch's default.
TABLES = ((100, 100, 256), (20, 10, 128))


def measure_fit(args):
    """Compare the fit of tables with a bare loop and with skorch, all doing the same work."""
    rows = {}
    for d, n_classes, batch in TABLES:
        name = f"{d} features, {n_classes} classes, batches of {batch}"
        functions = table_fits(args.samples, d, n_classes, batch)
        rows[name] = _interleaved(functions, args, "bare loop")
    return rows


def table_fits(n_samples, d, n_classes, batch, device="cpu"):
    """Return the fits of a table that do the same work, the data in host memory at first."""
    X, y = make_table(n_samples, d, n_classes)
    common = {"batch_size": batch, "max_epochs": 3, "lr": 1e-3, "device": device}

    def bare():
        tensors = [torch.from_numpy(values).to(device) for values in (X, y)]
        module = make_mlp(d, n_classes).to(device)
        train(module, lambda: shuffled(*tensors, batch), common["max_epochs"])

    def estimator(loss="cross_entropy", **params):
        # The network of the others, whose weights are not averaged either.
        params |= {"backbone": make_body(d), "lr_schedule": None}
        TopKClassifier(k=5, loss=loss, **common, **params).fit(X, y)

    def skorch(**params):
        NeuralNetClassifier(
            Perceptron,
            module__n_features=d,
            module__n_classes=n_classes,
            criterion=nn.CrossEntropyLoss,
            optimizer=torch.optim.AdamW,
            iterator_train__shuffle=True,
            verbose=0,
            **common,
            **params,
        ).fit(X, y)

    return {
        "bare loop": bare,
        "estimator": estimator,
        "skorch": lambda: skorch(train_split=None),
        "estimator, 20 % held out": lambda: estimator(validation_fraction=0.2),
        "skorch, 20 % held out (its default)": skorch,
        "estimator, noised hinge, 3 draws": lambda: estimator("noised_hinge", n_noise_samples=3),
    }


#: Columns of the sparse tables, and values stored in a row.
SPARSE_TABLES = ((2000, 12), (20_000, 12))


def measure_sparse(args):
    """Compare fit and prediction of sparse tables with loops that make each batch dense."""
    rows = {}
    n_samples, n_classes, batch = args.samples // 4, 100, 256
    for d, n_values in SPARSE_TABLES:
        rng = np.random.default_rng(0)
        columns = rng.integers(0, d, (n_samples, n_values))
        ends = np.arange(0, columns.size + 1, n_values)
        values = rng.random(columns.size, dtype=np.float32)
        X = sp.csr_matrix((values, columns.ravel(), ends), (n_samples, d))
        y = np.arange(n_samples) % n_classes
        same = {"backbone": (256,), "lr_schedule": None, "max_epochs": 1, "batch_size": batch}
        model = TopKClassifier(k=5, loss="cross_entropy", **same).fit(X, y)
        functions = _sparse_functions(X, torch.from_numpy(y), model, d, n_classes, batch)
        for what, pair in functions.items():
            rows[f"{what}, {d} columns, {n_values} values in a row"] = _interleaved(
                pair, args, "dense batches"
            )
    return rows


def _sparse_functions(X, target, model, d, n_classes, batch):
    def dense(index):
        return torch.from_numpy(X[index.numpy()].toarray())

    def fit():
        def batches():
            for index in torch.randperm(len(target)).split(batch):
                yield dense(index), target[index]

        train(make_mlp(d, n_classes), batches, 1)

    module = make_mlp(d, n_classes).eval()

    @torch.inference_mode()
    def predict():
        every = torch.arange(len(target)).split(1024)
        return torch.cat([torch.topk(module(dense(index)), 5).indices for index in every])

    return {
        "fit": {"dense batches": fit, "estimator": lambda: model.fit(X, target.numpy())},
        "predict_set": {"dense batches": predict, "estimator": lambda: model.predict_set(X)},
    }


def measure_convnet(args):
    """Compare an epoch of a convolutional network on images with a bare loop."""
    return _interleaved(convnet_fits(args.images, 64), args, "bare loop")


def convnet_fits(n_images, batch, device="cpu", backbone=None):
    """Return epochs of a network on images, which begin in host memory."""
    n_classes = 100
    X, y = make_images(n_images, n_classes)

    def bare():
        inputs = media_inputs(X, "image", None)
        statistics = inputs.statistics()
        module = build_network(
            backbone,
            None,
            None,
            inputs.sample_shape,
            n_classes,
            "linear",
            normalization=statistics,
        ).to(device, memory_format=torch.channels_last)
        inputs, target = inputs.to(device), torch.from_numpy(y).to(device)

        def batches():
            for index in torch.randperm(len(y), device=device).split(batch):
                yield inputs.take(index), target[index]

        train(module, batches, 1)

    def estimator(loss="cross_entropy", **params):
        common = {"backbone": backbone, "batch_size": batch, "max_epochs": 1, "device": device}
        common["lr_schedule"] = None
        TopKClassifier(k=5, loss=loss, **common, **params).fit(X, y)

    return {"bare loop": bare, "estimator": estimator}


def _step(module, loss, x, y):
    optimizer = torch.optim.AdamW(module.parameters(), **ADAMW)

    def step():
        optimizer.zero_grad()
        loss(module(x), y).backward()
        optimizer.step()

    return step


def measure_steps(args):
    """Compare a training step with the noised loss and with cross-entropy."""
    rows = {}
    x, y = map(torch.from_numpy, make_table(256, 256, 1000))
    images, labels = map(torch.from_numpy, make_images(64, 100))
    images = (
        images.permute(0, 3, 1, 2).float().div(255).contiguous(memory_format=torch.channels_last)
    )
    cases = {
        "perceptron of 256-256-1000, 256 samples": (make_mlp(256, 1000), x, y),
        "convnet, 64 images": (
            build_network("convnet", None, None, (3, 32, 32), 100),
            images,
            labels,
        ),
    }
    for name, (module, x, y) in cases.items():
        losses = {"cross-entropy": nn.CrossEntropyLoss()}
        with torch.no_grad():
            spread = module(x).std().item()
        for size, share in contenders.EPSILON.items():
            losses[f"noised hinge, 3 draws, {size} noise"] = NoisedTopKHingeLoss(
                5, share * spread, n_noise_samples=3
            )
        functions = {key: _step(module, loss, x, y) for key, loss in losses.items()}
        rows[name] = _interleaved(functions, args, "cross-entropy")
    return rows


def measure_predict(args):
    """Compare predict_set with a bare forward pass and torch.topk, in single precision."""
    n_classes = 1000
    X, y = make_table(args.samples, 256, n_classes)
    model = TopKClassifier(k=5, loss="cross_entropy", max_epochs=1, batch_size=256).fit(X, y)
    average = AverageKClassifier(k=5, loss="cross_entropy", max_epochs=1, batch_size=256)
    average.fit(X, y)
    module, x = model.net_.module_.eval(), torch.from_numpy(X)

    @torch.inference_mode()
    def bare():
        return torch.cat([torch.topk(module(part), 5).indices for part in x.split(1024)])

    functions = {
        "forward and torch.topk": bare,
        "TopKClassifier.predict_set": lambda: model.predict_set(X),
        "AverageKClassifier.predict_set": lambda: average.predict_set(X),
    }
    return _interleaved(functions, args, "forward and torch.topk")


def measure_growth(args):
    """Time fit, calibrate and predict_set against the number of samples."""
    rows = []
    for n in args.sizes:
        X, y = make_table(n, 20, 20)
        model = AverageKClassifier(
            k=3,
            loss="cross_entropy",
            backbone_params={"hidden": (32,)},
            batch_size=256,
            max_epochs=1,
        )
        functions = {
            "fit, one epoch": lambda m=model, X=X, y=y: m.fit(X, y),
            "calibrate": lambda m=model, X=X: m.calibrate(X),
            "predict_set": lambda m=model, X=X: m.predict_set(X),
        }
        timings = measuring.interleaved(functions, 2, 0)
        rows.append({"n_samples": n, "timings": timings})
    return rows


def measure_densenet(args):
    """Time a step of DenseNet 40-40 against k, the comparison of the ICML paper."""
    images, labels = map(torch.from_numpy, make_images(args.densenet_batch, 100))
    x = images.permute(0, 3, 1, 2).float().div(255)
    x = x.contiguous(memory_format=torch.channels_last)
    module = build_network("densenet40_40", None, None, (3, 32, 32), 100)
    module = module.to(memory_format=torch.channels_last)
    smooth = contenders.smooth_topk_loss(args.smooth_topk) if args.smooth_topk else None
    rows = []
    for k in args.densenet_k:
        losses = {
            "cross-entropy": nn.CrossEntropyLoss(),
            "noised hinge, 3 draws": NoisedTopKHingeLoss(k, 0.2, n_noise_samples=3),
            "smoothed hinge": SmoothedTopKHingeLoss(k),
        }
        if smooth:
            losses["smooth-topk"] = smooth(100, k)
        functions = {name: _step(module, loss, x, labels) for name, loss in losses.items()}
        timings = measuring.interleaved(functions, args.densenet_rounds, args.seconds)
        rows.append({"k": k, "batch_size": len(x), "timings": timings})
    return rows


IMPORT = """
import time, torch, sklearn
wall, cpu = time.perf_counter(), time.process_time()
import sksetvalued
print(time.process_time() - cpu, time.perf_counter() - wall)
"""


def measure_import(args):
    """Return the seconds that importing the package takes after torch and scikit-learn."""
    runs = []
    for _ in range(args.imports):
        done = subprocess.run(
            [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True
        )
        runs.append([float(part) for part in done.stdout.split()])
    cpu, wall = np.median(runs, axis=0)
    return {"cpu_s": float(cpu), "wall_s": float(wall), "runs": args.imports}


def _interleaved(functions, args, reference):
    timings = measuring.interleaved(functions, args.rounds, args.seconds)
    return measuring.ratios(timings, reference)


PARTS = {
    "import": measure_import,
    "steps": measure_steps,
    "fit": measure_fit,
    "sparse": measure_sparse,
    "convnet": measure_convnet,
    "predict": measure_predict,
    "growth": measure_growth,
    "densenet": measure_densenet,
}


def run(args):
    """Measure the parts asked for and write the results."""
    measuring.settle()
    torch.manual_seed(0)
    results = measuring.read_json(args.results) if args.results.exists() else {}
    results |= measuring.machine()
    for name in args.only:
        results[name] = measuring.rounded(PARTS[name](args))
        measuring.write_json(args.results, results)
        print(name, "done", flush=True)


def main(argv=None):
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("run", "report"))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--smooth-topk", type=Path, help="checkout of smooth-topk")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=30.0, help="for a comparison, about")
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--images", type=int, default=640)
    sizes = (1000, 10_000, 100_000, 1_000_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=sizes)
    parser.add_argument("--imports", type=int, default=5)
    parser.add_argument("--densenet-batch", type=int, default=8)
    parser.add_argument("--densenet-k", type=int, nargs="+", default=(1, 5, 20, 50))
    parser.add_argument("--densenet-rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args(argv)
    if args.action == "run":
        run(args)
    else:
        training_report.write(args.results, args.page)


if __name__ == "__main__":
    main()

"""How long the updates of a default fit take by themselves, in a bare loop of torch."""

import itertools

import numpy as np
import torch
from scipy.sparse import issparse
from torch import nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook

from .contenders import TIMED
from .measure import cpu_seconds, draw, fitted
from .tasks import TASKS

#: Small tasks, on which a default fit takes many times as long as others.
BARE = ("hwu_few", "vowel", "landsat", "network_small")

#: Whose fit is timed beside, by kind of task.
BESIDE = {"text": "one logistic", "table": "perceptron"}


def bare_jobs(tasks):
    """Return what is to be run, of three splits."""
    return [
        {"task": task, "contender": name, "seed": seed}
        for seed in range(3)
        for task in tasks
        for name in ("top_k", "average_k")
    ]


def compare_with_bare_loop(job, folder):
    """Return the record of a fit and of a bare loop of as many updates, each the least of three.

    The loop has the layers of the estimator's network, the cross-entropy of torch, its fused
    AdamW, and batches that were prepared before: no search, no folds, no other loss, no averaged
    weights, nothing shuffled or checked. "beside" is the time of a fit of scikit-learn. Nothing
    else may run.
    """
    torch.set_num_threads(1)
    split = draw(job["task"], folder, job["seed"])
    model, n_updates = _fitted_and_counted(job, split)
    batches, columns = prepared(split, model)
    times = {"seconds": [], "bare": [], "beside": []}
    for _ in range(3):
        times["seconds"].append(_fitted(job, split)[1])
        start = cpu_seconds()
        train(batches, columns, widths(model), len(model.classes_), n_updates)
        times["bare"].append(cpu_seconds() - start)
        beside = {**job, "contender": BESIDE[TASKS[job["task"]].kind]}
        times["beside"].append(_fitted(beside, split)[1])
    least = {name: round(min(seconds), 3) for name, seconds in times.items()}
    return {"task": job, "updates": n_updates, **least}


def _fitted(job, split):
    """Return the fitted contender, and the seconds of processor time that it took."""
    build = TIMED[job["contender"]]
    return fitted(build(TASKS[job["task"]], split.X_train, job["seed"]), split)


def _fitted_and_counted(job, split):
    """Return a fitted estimator and the number of updates of all its networks."""
    updates = itertools.count()
    handle = register_optimizer_step_post_hook(lambda *_: next(updates))
    try:
        model, _ = _fitted(job, split)
    finally:
        handle.remove()
    return model, next(updates)


def widths(model):
    """Return the numbers of units of the hidden layers of an estimator's perceptron."""
    layers = model.net_.module_.backbone.modules()
    return [layer.out_features for layer in layers if isinstance(layer, nn.Linear)]


def prepared(split, model):
    """Return the batches of one epoch, (rows, labels), and the number of columns.

    Sparse rows are what `embedding_bag` takes: columns, starts and values.
    """
    y = torch.from_numpy(np.searchsorted(model.classes_, split.y_train))
    X = split.X_train.astype(np.float32)
    if not issparse(X):
        X = (X - X.mean(0)) / np.maximum(X.std(0), 1e-6)
    n_batches = model.history_[0]["train_batch_count"]
    order = np.random.RandomState(0).permutation(len(y))
    return [
        (_sparse_rows(X[rows]) if issparse(X) else torch.from_numpy(X[rows]), y[rows])
        for rows in np.array_split(order, n_batches)
    ], X.shape[1]


def _sparse_rows(X):
    columns, starts = (torch.from_numpy(a).long() for a in (X.indices, X.indptr[:-1]))
    return columns, starts, torch.from_numpy(X.data)


def train(batches, n_columns, hidden, n_classes, n_updates):
    """Train a perceptron for so many updates, again and again on the same batches."""
    torch.manual_seed(0)
    layers = [
        part
        for width_in, width in itertools.pairwise((n_columns, *hidden))
        for part in (nn.Linear(width_in, width), nn.ReLU(), nn.Dropout(0.3))
    ]
    network = nn.Sequential(*layers, nn.Linear(hidden[-1], n_classes))
    is_sparse = isinstance(batches[0][0], tuple)
    if is_sparse:
        # One row of the table for each column of the input, which is what is looked up.
        first = network[0]
        table = nn.Parameter(first.weight.detach().t().contiguous())
        network = network[1:]
        parameters = [table, first.bias, *network.parameters()]
    else:
        parameters = list(network.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=4e-3, weight_decay=0.1, fused=True)
    for x, y in itertools.islice(itertools.cycle(batches), n_updates):
        if is_sparse:
            columns, starts, values = x
            sums = F.embedding_bag(columns, table, starts, per_sample_weights=values, mode="sum")
            x = sums + first.bias
        optimizer.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimizer.step()

"""How long the updates of a default fit take by themselves, in a bare loop of torch."""

import copy
import itertools

import torch
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from .. import measuring
from .contenders import TIMED
from .measure import cpu_seconds, draw, fitted
from .tasks import TASKS

#: Tasks of few samples, on which a default fit takes many times as long as others.
BARE = ("hwu_few", "vowel")

#: The contender whose fit is timed beside it, by kind of task.
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
    """Return the record of a fit and of a bare loop of as many updates, the less of two runs each.

    The loop trains a copy of the estimator's network by the cross-entropy of torch and its fused
    AdamW, on batches as that network got them, again and again: no search, no folds, no other
    loss, no averaged weights, no batch to be made. "beside" is the time of a fit of scikit-learn.
    Nothing else may run.
    """
    measuring.settle()
    split = draw(job["task"], folder, job["seed"])
    model, batches, n_updates = _fitted_and_recorded(job, split)
    beside = {**job, "contender": BESIDE[TASKS[job["task"]].kind]}
    times = {"seconds": [], "bare": [], "beside": []}
    for _ in range(2):
        times["seconds"].append(_fitted(job, split)[1])
        times["bare"].append(_trained(copy.deepcopy(model.net_.module_), batches, n_updates))
        times["beside"].append(_fitted(beside, split)[1])
    least = {name: round(min(seconds), 3) for name, seconds in times.items()}
    return {"task": job, "updates": n_updates, **least}


def _fitted(job, split):
    """Return the fitted contender, and the seconds of processor time that it took."""
    build = TIMED[job["contender"]]
    return fitted(build(TASKS[job["task"]], split.X_train, job["seed"]), split)


def _fitted_and_recorded(job, split):
    """Return a fitted estimator, the last epoch of its network, and how many updates all made."""
    updates, seen = itertools.count(), []

    def keep(module, arguments):
        if module.training:
            seen.append((module, arguments))

    handles = [
        register_module_forward_pre_hook(keep),
        register_optimizer_step_post_hook(lambda *_: next(updates)),
    ]
    try:
        model, _ = _fitted(job, split)
    finally:
        for handle in handles:
            handle.remove()
    batches = [x for module, (x, *_) in seen if module is model.net_.module_]
    return model, batches[-model.history_[-1]["train_batch_count"] :], next(updates)


def _trained(network, batches, n_updates):
    """Train a network for so many updates; return the seconds of processor time."""
    network.train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=4e-3, weight_decay=0.1, fused=True)
    # Whatever the labels are, an update takes as long.
    labels = [torch.arange(len(x)) % 2 for x in batches]
    start = cpu_seconds()
    for x, y in itertools.islice(itertools.cycle(zip(batches, labels)), n_updates):
        optimizer.zero_grad()
        scores = network(x)
        if isinstance(scores, tuple):  # of two heads
            scores = torch.cat(scores, 1)
        F.cross_entropy(scores, y).backward()
        optimizer.step()
    return cpu_seconds() - start

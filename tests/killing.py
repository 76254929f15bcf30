"""Kill a fit again and again, and let it go on, for the tests of checkpoints."""

import os
import random
import signal
import tempfile
import time

import numpy as np
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, make_multilabel_classification

from sksetvalued import AverageKClassifier, SparseTopClassifier, TopKClassifier

COMMON = {
    "random_state": 0,
    "max_epochs": 12,
    "validation_fraction": 0.2,
    "lr_schedule": "one_cycle",
    "backbone_params": {"dropout": 0.2},
}
ESTIMATORS = {
    "top_k": TopKClassifier(2, patience=8, **COMMON),
    "average_k": AverageKClassifier(2, **COMMON),
    "sparse_top": SparseTopClassifier(size="threshold", **COMMON),
}


def data_of(name):
    X, y = load_digits(return_X_y=True)
    if name == "sparse_top":
        return X[:600], make_multilabel_classification(600, n_classes=10, random_state=0)[1]
    return X[:600], y[:600]


def fit(name, result, checkpoint):
    """Fit, and write what the fit has given."""
    clf = ESTIMATORS[name].fit(*data_of(name), checkpoint=checkpoint)
    values = {key: value.cpu().numpy() for key, value in clf.net_.module_.state_dict().items()}
    values |= {key: clf.history_[:, key] for key in ("train_loss", "valid_loss")}
    values["threshold"] = getattr(getattr(clf, "rule_", None), "threshold_", 0.0)
    np.savez(result, generator=clf._rng_state["own"], **values)


def killed(function, seconds):
    """Run a function in a process that is killed after a while; return whether it was."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            function()
            status = 0
        finally:
            os._exit(status)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert status == 0, status
            return False
        time.sleep(1e-3)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


def main(name, n_kills, seed):
    """Check that a fit that was killed gives what one that was not gives."""
    torch.set_num_threads(1)
    draw = random.Random(seed).random
    # What is imported late is there before the forks: what is killed is the fit.
    clone(ESTIMATORS[name]).set_params(max_epochs=1).fit(*data_of(name))
    with tempfile.TemporaryDirectory() as folder:
        whole, other, state = (os.path.join(folder, n) for n in ("whole.npz", "other.npz", "s"))
        start = time.monotonic()
        killed(lambda: fit(name, whole, None), 1000)
        duration = time.monotonic() - start
        n_killed = 0
        while n_killed < n_kills:
            was_killed = killed(lambda: fit(name, other, state), duration * draw() / 2)
            if not was_killed:
                check(whole, other)
            n_killed += was_killed
        killed(lambda: fit(name, other, state), 1000)
        check(whole, other)
        left = sorted(os.listdir(folder))
        assert left == ["other.npz", "whole.npz"], left
    print(f"{name}: {n_killed} kills in fits of {duration:.2f} s")


def check(whole, other):
    with np.load(whole) as whole, np.load(other) as other:
        assert whole.files == other.files
        for key in whole.files:
            np.testing.assert_array_equal(whole[key], other[key], err_msg=key)

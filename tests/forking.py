"""Start processes while a thread fits, and let them work: for tests/test_forks.py."""

import multiprocessing
import os
import signal
import tempfile
import threading
from functools import partial

import numpy as np
import torch
from skorch.callbacks import Callback
from torch import nn

from sksetvalued import TopKClassifier, load, save

X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
y = np.arange(60) % 3
SECONDS = 60


def backbone(input_shape):
    """Return a network of the user, which draws from torch's generators."""
    return nn.Sequential(nn.Linear(*input_shape, 8), nn.Dropout(0.5))


class Hold(Callback):
    """Say that a fit is under way, and keep it there."""

    def __init__(self, held, go):
        self.held, self.go = held, go

    def __deepcopy__(self, memo):
        return self

    def on_epoch_end(self, net, **kwargs):
        self.held.set()
        self.go.wait()


def classifier(**params):
    return TopKClassifier(2, max_epochs=1, random_state=0, **params)


def work():
    """Fit, save, load and predict as a process that was just started, or die of waiting."""
    signal.alarm(SECONDS)
    torch.set_num_threads(1)
    for params in ({}, {"backbone": backbone}):
        classifier(**params).fit(X, y).predict_set(X)
    with tempfile.TemporaryDirectory() as folder:
        save(classifier().fit(X, y), os.path.join(folder, "clf"))
        load(os.path.join(folder, "clf")).predict_set(X)


def serve(model):
    """Answer as a worker of a server does, with a model that was loaded before the fork."""
    assert model.predict_set(X).sum() == 2 * len(X)
    model.partial_fit(X, y)
    work()


def fork(function):
    """Run a function in a forked process, as gunicorn makes its workers; return its status."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        function()
    except BaseException:
        os._exit(1)
    os._exit(0)


def start(method):
    """Run the work in a process started by a method; return its exit status."""
    if method == "preload":
        return fork(partial(serve, classifier().fit(X, y)))
    process = multiprocessing.get_context(method).Process(target=work)
    process.start()
    process.join()
    return process.exitcode


def main(method):
    """Return the exit status of a process started while a thread of this one fits."""
    torch.set_num_threads(1)
    held, go = threading.Event(), threading.Event()
    held_fit = classifier(backbone=backbone, callbacks=[Hold(held, go)])
    thread = threading.Thread(target=held_fit.fit, args=(X, y))
    thread.start()
    held.wait()
    try:
        return start(method)
    finally:
        go.set()
        thread.join()

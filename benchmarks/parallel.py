"""An epoch of the convnet by two processes, against one process of one and of two threads.

``python benchmarks/parallel.py`` prints a table, in less than two minutes, on a machine with two
idle cores. The processes wait while others are measured; the settings take turns.
"""

import os
import socket
import warnings
from statistics import median

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import distributed as dist
from torch import multiprocessing as mp

from sksetvalued import TopKClassifier

#: Processes, and threads of each, by setting.
SETTINGS = {
    "one process, one thread": (1, 1),
    "one process, two threads": (1, 2),
    "two processes, one thread each": (2, 1),
}
N_SAMPLES, N_EPOCHS, N_ROUNDS = 1024, 3, 5


def images():
    """Return digits, enlarged to 32 x 32 bytes, and their labels."""
    X, y = load_digits(return_X_y=True)
    X = (X[:N_SAMPLES].reshape(-1, 8, 8) * 15).astype(np.uint8)
    return X.repeat(4, 1).repeat(4, 2), y[:N_SAMPLES]


def epoch_seconds():
    """Return the median duration of the epochs of a fit but the first, which warms up."""
    X, y = images()
    clf = TopKClassifier(2, random_state=0, max_epochs=N_EPOCHS, batch_size=64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(X, y)
    return median(clf.history_[1:, "train_dur"])


def _serve(rank, count, n_threads, port, pipe):
    torch.set_num_threads(n_threads)
    if count > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        dist.init_process_group("gloo", rank=rank, world_size=count)
    while pipe.recv():
        pipe.send(epoch_seconds())
    if count > 1:
        dist.destroy_process_group()


class Setting:
    """Processes that measure when they are asked to."""

    def __init__(self, count, n_threads):
        context, self.pipes, self.processes = mp.get_context("spawn"), [], []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for rank in range(count):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(rank, count, n_threads, port, there))
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def measure(self):
        """Return the seconds of an epoch."""
        for pipe in self.pipes:
            pipe.send(True)
        return max(pipe.recv() for pipe in self.pipes)

    def close(self):
        """End the processes."""
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(False)
            process.join()


def main():
    """Measure, and print a table."""
    settings = {name: Setting(*sizes) for name, sizes in SETTINGS.items()}
    seconds = {name: [] for name in settings}
    for _ in range(N_ROUNDS):
        for name, setting in settings.items():
            seconds[name].append(setting.measure())
    for setting in settings.values():
        setting.close()
    alone = np.array(seconds["one process, one thread"])
    print(f"An epoch of {N_SAMPLES} images of 32 x 32, median and range of {N_ROUNDS} rounds.\n")
    print("| | seconds | times as fast as one process of one thread |")
    print("|---|---|---|")
    for name, values in seconds.items():
        ratio = alone / values
        print(
            f"| {name} | {median(values):.3f} ({min(values):.3f} to {max(values):.3f}) "
            f"| {median(ratio):.2f} ({min(ratio):.2f} to {max(ratio):.2f}) |"
        )


if __name__ == "__main__":
    main()

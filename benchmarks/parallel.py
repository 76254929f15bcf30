"""An epoch of the convnet by two processes, against one process of one and of two threads.

    python benchmarks/parallel.py [--samples 512] [--rounds 7]

prints a table for images of 32 x 32 and of 64 x 64, in less than five minutes, on a machine with
two idle cores. The processes wait while others are measured; the settings take turns.
"""

import argparse
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


def images(n_samples, side):
    """Return digits, enlarged to so many bytes a side, and their labels."""
    X, y = load_digits(return_X_y=True)
    X = (X[:n_samples].reshape(-1, 8, 8) * 15).astype(np.uint8)
    return X.repeat(side // 8, 1).repeat(side // 8, 2), y[:n_samples]


def epoch_seconds(n_samples, side, n_epochs=3):
    """Return the median duration of the epochs of a fit but the first, which warms up."""
    X, y = images(n_samples, side)
    clf = TopKClassifier(2, random_state=0, max_epochs=n_epochs, batch_size=64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(X, y)
    return median(clf.history_[1:, "train_dur"])


def _serve(rank, count, n_threads, port, pipe):
    torch.set_num_threads(n_threads)
    if count > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        dist.init_process_group("gloo", rank=rank, world_size=count)
    while sizes := pipe.recv():
        pipe.send(epoch_seconds(*sizes))
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

    def measure(self, n_samples, side):
        """Return the seconds of an epoch."""
        for pipe in self.pipes:
            pipe.send((n_samples, side))
        return max(pipe.recv() for pipe in self.pipes)

    def close(self):
        """End the processes."""
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(None)
            process.join()


def main(argv=None):
    """Run the command line: measure, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=512, help="images of an epoch")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each setting")
    args = parser.parse_args(argv)
    settings = {name: Setting(*sizes) for name, sizes in SETTINGS.items()}
    for side in (32, 64):
        seconds = {name: [] for name in settings}
        for _ in range(args.rounds):
            for name, setting in settings.items():
                seconds[name].append(setting.measure(args.samples, side))
        report(seconds, f"{args.samples} images of {side} x {side}", args.rounds)
    for setting in settings.values():
        setting.close()


def report(seconds, what, n_rounds):
    """Print the table of the seconds by setting."""
    alone = np.array(seconds["one process, one thread"])
    print(f"An epoch of {what}, median and range of {n_rounds} rounds.\n")
    print("| | seconds | times as fast as one process of one thread |")
    print("|---|---|---|")
    for name, values in seconds.items():
        ratio = alone / values
        print(
            f"| {name} | {median(values):.3f} ({min(values):.3f} to {max(values):.3f}) "
            f"| {median(ratio):.2f} ({min(ratio):.2f} to {max(ratio):.2f}) |"
        )
    print(flush=True)


if __name__ == "__main__":
    main()

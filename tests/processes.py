"""A group of processes that wait for work, as torchrun would have started them."""

import os
import socket
import traceback
from datetime import timedelta

import torch
from torch import distributed as dist
from torch import multiprocessing as mp


def _work(rank, count, port, timeout, orders, answers):
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(count)}
    limit = timedelta(seconds=timeout)
    dist.init_process_group("gloo", rank=rank, world_size=count, timeout=limit)
    while True:
        order = orders.get()
        if order is None:
            break
        function, args, params = order
        try:
            answers.put((rank, function(*args, **params)))
        except BaseException as error:
            error.add_note(traceback.format_exc())
            answers.put((rank, error))
    dist.destroy_process_group()


class Group:
    """Processes of one torch.distributed group, on gloo.

    Parameters
    ----------
    count : int
    timeout : float
        Of the group, in seconds.
    """

    def __init__(self, count, timeout=60):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context = mp.get_context("fork")
        self.orders = [context.SimpleQueue() for _ in range(count)]
        self.answers = context.Queue()
        self.processes = []
        for rank, orders in enumerate(self.orders):
            args = rank, count, port, timeout, orders, self.answers
            self.processes.append(context.Process(target=_work, args=args))
            self.processes[-1].start()

    def each(self, function, *args, ranks=None, limit=60, **params):
        """Return what a function of a module returns, or raises, in each process."""
        ranks = range(len(self.processes)) if ranks is None else ranks
        for rank in range(len(self.processes)):
            self.orders[rank].put((function, args, params))
        found = dict(self.answers.get(timeout=limit) for _ in ranks)
        return [found[rank] for rank in ranks]

    def __call__(self, function, *args, **params):
        """Return what a function returns in each process, none of which may raise."""
        found = self.each(function, *args, **params)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return found

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for orders in self.orders:
            orders.put(None)
        for process in self.processes:
            process.join(10)
            process.kill()

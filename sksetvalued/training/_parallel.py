"""Training by the processes of a torch.distributed group.

Each process runs the network on its rows of every batch. The outputs of all are put together, so
that the loss, and whatever is decided by it, is that of the whole batch in each process; the
gradients of the parts are summed.
"""

import contextlib
import os
import threading
from contextvars import ContextVar
from typing import NamedTuple

import joblib
import torch
from torch import distributed as dist
from torch import nn

from .._randomness import part_of_batch, rng_state, seeded
from ._group import Group
from ._state import generators_of

#: The processes of the fit under way; ALONE where each process is by itself for a while.
_current = ContextVar("processes", default=None)
ALONE = "alone"

#: Held by the one fit of this process that communicates.
_communicating = threading.Lock()

#: Entries of tensors that are sent at once.
BUCKET = 2**23

#: Where classes come from that divide a network among processes by themselves.
DIVIDERS = ("deepspeed", "fairscale", "torch.distributed", "torch.nn.parallel")


#: The default group that this process has from the one that it was forked from, and is not in.
_inherited = None


def _remember_inherited():
    global _inherited
    _inherited = dist.group.WORLD


if dist.is_available() and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_remember_inherited)


def current_processes():
    """Return the processes that share the fit under way, or None."""
    processes = _current.get()
    return None if processes is ALONE else processes


@contextlib.contextmanager
def over_processes():
    """Share a fit among the processes of the default group, where there is one.

    It is complete in all processes or in none: an error in one is raised in the others.
    """
    if _current.get() is not None or not _in_group():
        yield
        return
    if not _communicating.acquire(blocking=False):
        raise RuntimeError(
            "Two threads fit at the same time in a process of a torch.distributed group, whose "
            "processes could not tell the fits apart: fit one after the other, or by joblib, "
            "whose jobs are not shared among the processes."
        )
    try:
        processes = Processes()
        with _set(processes), processes.together():
            yield
    finally:
        _communicating.release()


def alone():
    """Return a context in which code of the user finds no processes to share a fit with."""
    return _set(ALONE)


@contextlib.contextmanager
def _set(processes):
    token = _current.set(processes)
    try:
        yield
    finally:
        _current.reset(token)


def _in_group():
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return False
    if dist.group.WORLD is _inherited:
        return False  # in a process that was forked from one of the group
    # Jobs of joblib are fits of their own, in whichever process or thread they run.
    backend, _ = joblib.parallel.get_active_backend()
    return not backend.nesting_level


class Part(NamedTuple):
    """The part of one process in every batch.

    A batch of fewer than two samples for each process goes whole to all of them, and the outputs
    of the first one count. (Batch normalisation cannot be trained on one sample.)

    Parameters
    ----------
    rank, count : int
    """

    rank: int
    count: int

    def sizes(self, n_samples):
        """Return the number of rows that each process contributes to a batch."""
        if n_samples < 2 * self.count:
            return [n_samples] + [0] * (self.count - 1)
        each, more = divmod(n_samples, self.count)
        return [each + (rank < more) for rank in range(self.count)]

    def rows(self, n_samples):
        """Return the slice of the rows of a batch that this process runs the network on."""
        if n_samples < 2 * self.count:
            return slice(0, n_samples)
        sizes = self.sizes(n_samples)
        start = sum(sizes[: self.rank])
        return slice(start, start + sizes[self.rank])


class Processes(Group):
    """The processes that share a fit.

    What is on the processor is sent in their own group; tensors of a GPU are sent by the default
    group, when all processes are known to be there.

    Attributes
    ----------
    part : Part
        What this process does of every batch.
    lent : str or None
        The device whose generators of torch the training draws from; None for none.
    """

    def __init__(self):
        super().__init__()
        self.part = Part(self.rank, self.count)
        self.lent = None

    def _send_tensors(self, collective, *args, device, **params):
        if device.type == "cpu":
            return self.send(collective, *args, **params)
        # A GPU would wait for a process that is no longer there.
        self.send(dist.barrier)
        return self.send(collective, *args, group=dist.group.WORLD, **params)

    def prepare(self, net, lent):
        """Begin a training of one network, from one state, in all processes.

        `lent` is the device whose generators of torch it draws from, or None.
        """
        self.lent = lent
        refuse_divided(net.module_, "backbone")
        self.agree(net.module_, net.criterion_)
        own = [generator for _, generator in generators_of(net)]
        for generator, seed in zip(own, self.first([g.seed for g in own]), strict=True):
            generator.seed = seed

    # -- tensors ----------------------------------------------------------------------------

    def whole(self, output, n_samples):
        """Return the output for a batch, from what each process has for its rows.

        The gradient that reaches `output` is that of the rows of this process.
        """
        if isinstance(output, tuple | list):
            return tuple(self.whole(one, n_samples) for one in output)
        rows = self.part.rows(n_samples)
        n_views = len(output) // (rows.stop - rows.start)
        sizes = [n_views * size for size in self.part.sizes(n_samples)]
        return _Gather.apply(output, sizes, self)

    def sum_gradients(self, parameters):
        """Sum the gradients over the processes; None in all of them stays None."""
        parameters = [p for p in parameters if p.requires_grad]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in parameters]
        known = torch.tensor([float(p.grad is not None) for p in parameters]).to(grads[0].device)
        self._update([*grads, known], dist.all_reduce)
        for parameter, grad, n_known in zip(parameters, grads, known, strict=True):
            # Only for a gradient that is not here does the processor wait for a GPU.
            if parameter.grad is None:
                if n_known > 0:
                    parameter.grad = grad
            elif parameter.grad.is_sparse:
                # Some optimizers take no dense ones where these are sparse, or update other rows.
                parameter.grad = grad.to_sparse(parameter.grad.sparse_dim())

    @torch.no_grad()
    def average_statistics(self, module):
        """Take the means of what batch normalisation knows, in each process, of its own rows."""
        kind = nn.modules.batchnorm._NormBase
        norms = [m for m in module.modules() if isinstance(m, kind) and m.track_running_stats]
        statistics = [t for norm in norms for t in (norm.running_mean, norm.running_var)]
        self._update(statistics, dist.all_reduce)
        for statistic in statistics:
            statistic /= self.count

    @torch.no_grad()
    def agree(self, *modules):
        """Take over the parameters and buffers of the first process."""
        tensors = [t.data for m in modules for t in (*m.parameters(), *m.buffers())]
        dense = [_entries(t) for t in tensors if t.layout is torch.strided]
        self._update(dense, dist.broadcast, as_bytes=True, src=0)
        for tensor in tensors:
            if tensor.layout is not torch.strided:
                tensor.copy_(self.first(tensor.cpu()))

    def _update(self, tensors, collective, as_bytes=False, **params):
        """Apply a collective to tensors in place, many at once."""
        for bucket in _buckets(tensors):
            flat = torch.cat([t.reshape(-1) for t in bucket])
            # Not every backend sends every type.
            sent = flat.view(torch.uint8) if as_bytes else flat
            self._send_tensors(collective, sent, device=flat.device, **params)
            for tensor, value in zip(bucket, flat.split([t.numel() for t in bucket]), strict=True):
                tensor.copy_(value.view_as(tensor))

    # -- random numbers ---------------------------------------------------------------------

    def batches(self, iterator, training):
        """Yield the batches of an epoch.

        Code of others that sees the rows of this process only, and draws from torch, gets other
        numbers than in the other processes; what sees whole batches, the same.
        """
        if training and self.lent is not None:
            seeds = torch.randint(2**62, (self.count,))
            with seeded(int(seeds[self.rank]), self.lent):
                self._state = rng_state(self.lent)
        with self._apart():
            iterator = iter(iterator)
        while True:
            with self._apart():
                batch = next(iterator, None)
            if batch is None:
                return
            yield batch

    @contextlib.contextmanager
    def _apart(self):
        if self.lent is None:
            yield
            return
        with seeded(0, self.lent, self._state):
            yield
            self._state = rng_state(self.lent)

    @contextlib.contextmanager
    def rows_of(self, n_samples):
        """Run the network on the rows of this process: random parts of ours draw for all."""
        rows = self.part.rows(n_samples)
        token = part_of_batch.set((rows, n_samples))
        try:
            with self._apart():
                yield
        finally:
            part_of_batch.reset(token)


class _Gather(torch.autograd.Function):
    """Put the rows of all processes together; only those of this process get a gradient here."""

    @staticmethod
    def forward(ctx, own, sizes, processes):
        ctx.sizes, ctx.rank, ctx.shape = sizes, processes.rank, own.shape
        # As bytes, as in `_update`.
        rows = own.reshape(len(own), -1).contiguous().view(torch.uint8)
        padded = rows.new_zeros(max(sizes), rows.shape[1])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in sizes]
        processes._send_tensors(dist.all_gather, parts, padded, device=own.device)
        whole = torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
        return whole.view(own.dtype).reshape(-1, *own.shape[1:])

    @staticmethod
    def backward(ctx, grad):
        rows = grad.split(ctx.sizes)[ctx.rank]
        own = grad.new_zeros(ctx.shape)
        own[: len(rows)] = rows
        return own, None, None


def refuse_divided(module, name):
    """Raise if a network is divided among processes already."""
    for part in module.modules():
        for cls in type(part).__mro__:
            if cls.__module__.startswith(DIVIDERS):
                raise ValueError(
                    f"{name} holds {cls.__name__}, which divides the network among processes by "
                    "itself, as fit does: give the network without it. One that does not fit into "
                    "one device is trained by its own engine (FSDP, DeepSpeed) with a loss of "
                    "sksetvalued.losses, and its scores go to a rule of sksetvalued.rules."
                )


def _entries(tensor):
    """Return the view of an expanded tensor that has each of its entries once."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0:
            tensor = tensor.narrow(dim, 0, min(tensor.shape[dim], 1))
    return tensor


def _buckets(tensors):
    """Yield lists of tensors of one type, of about `BUCKET` entries or one tensor."""
    by_type = {}
    for tensor in tensors:
        bucket = by_type.setdefault((tensor.device, tensor.dtype), [])
        if bucket and sum(t.numel() for t in bucket) + tensor.numel() > BUCKET:
            yield bucket[:]
            bucket.clear()
        bucket.append(tensor)
    yield from (bucket for bucket in by_type.values() if bucket)

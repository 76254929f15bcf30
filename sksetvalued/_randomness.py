"""Reproducible random numbers: generators of one's own, and torch's own ones, borrowed.

What is written here draws from generators that nobody else draws from. Code of others (modules of
the user, torchvision) knows no generators but those of the process: they are lent to it, seeded,
and put back as they were. One thread at a time: exact unless others draw from torch meanwhile.
"""

import contextlib
import numbers
import os
import threading
from contextvars import ContextVar

import torch

#: The rows of a batch, a slice, that this process runs the network on, and the number of all of
#: them; None where it runs on all. Random parts draw for all rows, and use what is for theirs.
part_of_batch = ContextVar("part_of_batch", default=None)

_lock = threading.RLock()
#: Of the default type. Not the one above, which a thread may hold for as long as it trains.
_type_lock = threading.RLock()


def _renew_locks():
    global _lock, _type_lock
    _lock, _type_lock = threading.RLock(), threading.RLock()


if hasattr(os, "register_at_fork"):
    # In a forked process the thread that held a lock is gone, and nobody would release it.
    os.register_at_fork(after_in_child=_renew_locks)


@contextlib.contextmanager
def seeded(seed, device="cpu", state=None):
    """Draw from torch's generators as if seeded, then put them back as they were.

    Threads that train at the same time share the generators of the process: they take turns.

    Parameters
    ----------
    seed : int
        Seed of the generators that `state` does not hold.
    device : str or torch.device
    state : dict, optional
        What :func:`rng_state` returned; continues from there.
    """
    device = torch.device(device)
    devices = [device] if device.type == "cuda" else []
    with _lock, torch.random.fork_rng(devices=devices, device_type="cuda"):
        # torch.manual_seed would also seed the other devices, and for each call keep a stack
        # trace until CUDA is first used.
        torch.default_generator.manual_seed(seed)
        if devices:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        if state is not None:  # that of the processor alone, if the training was there
            set_rng_state(state, device)
        yield


def rng_state(device="cpu"):
    """Return the state of torch's generators that training on `device` draws from."""
    state = {"cpu": torch.get_rng_state()}
    if torch.device(device).type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_rng_state(state, device="cpu"):
    """Put torch's generators into a state that :func:`rng_state` returned."""
    torch.set_rng_state(state["cpu"])
    if torch.device(device).type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


@contextlib.contextmanager
def put_back():
    """Put torch's generator on the processor back as it was."""
    with _lock, torch.random.fork_rng(devices=[]):
        yield


@contextlib.contextmanager
def in_single_precision():
    """Draw, and make new tensors, in single precision, whatever torch's default type is.

    For code of others that builds modules in the default type, which the process shares: threads
    take turns.
    """
    with _type_lock:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def as_generator(generator, device="cpu"):
    """Return `generator`, a new one for tensors on `device` if it is a seed, or None."""
    if isinstance(generator, numbers.Integral) and not isinstance(generator, bool):
        return torch.Generator(device).manual_seed(int(generator))
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, an int or None, got {generator!r}.")
    return generator


def _draw_seed(generator):
    """Return `generator` if it is a seed, else a seed drawn from it."""
    if isinstance(generator, numbers.Integral) and not isinstance(generator, bool):
        return int(generator)
    generator = as_generator(generator)
    if generator is not None:
        _refuse_recomputation()
    device = "cpu" if generator is None else generator.device
    return int(torch.randint(2**62, (), generator=generator, device=device))


def _refuse_recomputation():
    """Raise within a backward pass, where torch.utils.checkpoint computes forward passes again.

    It puts torch's own generators back to what they were then, and knows no others.
    """
    # No public way tells whether a backward pass is under way.
    if not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1:
        raise RuntimeError(
            "Random numbers of sksetvalued would not be those of the forward pass that "
            "torch.utils.checkpoint computes again: leave the loss or the Dropout out of the "
            "checkpoint, or use torch.nn.Dropout, or the function of the loss without a generator."
        )


class OwnGenerator:
    """Random numbers of one module, apart from torch's default generators.

    Generators are made per device at first use, from one seed; their states are pickled.

    Parameters
    ----------
    generator : torch.Generator or int, optional
        Source of the seed, or the seed; torch's default generator when absent.
    """

    def __init__(self, generator=None):
        self.seed = _draw_seed(generator)
        self._generators = {}
        self._states = {}

    def on(self, device, fixed=False):
        """Return the generator for tensors on `device`, or None on the meta device.

        With `fixed` it is a fresh one, which starts at the seed.

        Raises
        ------
        RuntimeError
            Within a backward pass, unless `fixed`.
        """
        if device.type == "meta":
            return None
        if fixed:
            return torch.Generator(device).manual_seed(self.seed)
        _refuse_recomputation()
        generator = self._generators.get(device)
        if generator is None:
            generator = torch.Generator(device).manual_seed(self.seed)
            if str(device) in self._states:
                generator.set_state(self._states.pop(str(device)))
            self._generators[device] = generator
        return generator

    def __getstate__(self):
        states = {str(key): made.get_state() for key, made in self._generators.items()}
        return {"seed": self.seed, "states": {**self._states, **states}}

    def __setstate__(self, state):
        # Generators of any device take states on the processor, from which torch.load moves them.
        self._states = {device: value.cpu() for device, value in state["states"].items()}
        self.seed, self._generators = state["seed"], {}


def own_generators(module):
    """Return the generators that parts of a module own, by the names of the parts."""
    parts = {name: getattr(part, "generator", None) for name, part in module.named_modules()}
    return {name: own for name, own in parts.items() if isinstance(own, OwnGenerator)}


def generator_states(module):
    """Return the states of the generators that parts of a module own."""
    return {name: own.__getstate__() for name, own in own_generators(module).items()}

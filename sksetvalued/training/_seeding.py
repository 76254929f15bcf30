"""Reproducible randomness that leaves the global generators alone."""

import contextlib
import threading

import torch

_lock = threading.RLock()


@contextlib.contextmanager
def seeded(seed, device="cpu", state=None):
    """Draw from torch's generators as if seeded, then put them back as they were.

    Threads that train at the same time share the generators of the process: they take turns.

    Parameters
    ----------
    seed : int
        Used when `state` is None.
    device : str or torch.device
    state : dict, optional
        What :func:`rng_state` returned; continues from there.
    """
    device = torch.device(device)
    devices = [device] if device.type == "cuda" else []
    with _lock, torch.random.fork_rng(devices=devices, device_type="cuda"):
        if state is None:
            # torch.manual_seed would also seed the other devices, and for each call keep a stack
            # trace until CUDA is first used.
            torch.default_generator.manual_seed(seed)
            if devices:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
        else:
            torch.set_rng_state(state["cpu"])
            if devices and "cuda" in state:
                torch.cuda.set_rng_state(state["cuda"], device)
        yield


def rng_state(device="cpu"):
    """Return the state of torch's generators that training on `device` draws from."""
    state = {"cpu": torch.get_rng_state()}
    if torch.device(device).type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state

"""Single precision at least, whatever the network computes in."""

from contextlib import nullcontext

import torch

_NOTHING = nullcontext()


def at_least_float32(scores):
    """Return half-precision scores as float32, others unchanged."""
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def widest(scores):
    """Return the floating-point type with the most digits on the device of `scores`."""
    return torch.float32 if scores.device.type == "mps" else torch.float64


def log_sum_exp(x, dim):
    """Do what torch.logsumexp does, with weights in the gradient that sum to one for large x."""
    largest = x.detach().amax(dim, keepdim=True).nan_to_num(neginf=0)
    return (x - largest).exp().sum(dim).log() + largest.squeeze(dim)


def without_autocast(device):
    """Return a context in which autocast is off, for devices that know it."""
    kind = device.type
    # Not asked while a graph is traced, where torch 2.11 cannot answer.
    known = kind == "cpu" or torch.compiler.is_compiling() or torch.amp.is_autocast_available(kind)
    if kind != "meta" and known and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return _NOTHING

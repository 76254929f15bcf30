"""The optimizers that can be named."""

import functools
import inspect

import torch
from torch import nn


class AdamW(torch.optim.AdamW):
    """AdamW that updates weights in the order in which they lie in memory.

    The fused update copies a matrix that is stored by columns, as the first layer's is for sparse
    rows, with its gradient and its moments, there and back, which takes longer than the update.
    """

    def _init_group(self, group, params, grads, *states):
        has_complex = super()._init_group(group, params, grads, *states)
        *moments, _ = states
        for i, parameter in enumerate(params):
            if parameter.ndim == 2 and not parameter.is_contiguous():
                for matrices in (params, grads, *filter(None, moments)):
                    matrices[i] = matrices[i].t()
        return has_complex


class SGD(torch.optim.SGD):
    """SGD whose weights may get their first gradient one after the other.

    The fused update takes weights that all have momentum, or none of them. Where some have it, as
    when layers were unfrozen, the others get what makes their momentum that of a first update.
    """

    def _init_group(self, group, params, grads, momenta):
        has_sparse = super()._init_group(group, params, grads, momenta)
        if group["fused"] and len({momentum is None for momentum in momenta}) > 1:
            for i, momentum in enumerate(momenta):
                if momentum is None:
                    momenta[i] = _before_the_first(group, params[i].detach(), grads[i])
        return has_sparse


def _before_the_first(group, parameter, gradient):
    """Return the momentum of which an update makes the gradient itself, weight decay included."""
    if not group["dampening"]:
        return torch.zeros_like(gradient)
    gradient = -gradient if group["maximize"] else gradient
    whole = gradient.add(parameter, alpha=group["weight_decay"])
    return whole.mul(group["dampening"] / group["momentum"])


OPTIMIZERS = {
    "adamw": (AdamW, {"fused": True}),
    "adam": (torch.optim.Adam, {"fused": True}),
    "sgd": (SGD, {"momentum": 0.9, "nesterov": True, "fused": True}),
}


def resolve_optimizer(optimizer):
    """Return the optimizer's class and its default arguments."""
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            raise ValueError(
                f"optimizer={optimizer!r} is unknown; use one of {sorted(OPTIMIZERS)} or a "
                "class of torch.optim."
            )
        return OPTIMIZERS[optimizer]
    if not (isinstance(optimizer, type) and issubclass(optimizer, torch.optim.Optimizer)):
        raise TypeError(
            "optimizer must be a name or a subclass of torch.optim.Optimizer, "
            f"got {optimizer!r} of type {type(optimizer).__name__}."
        )
    return optimizer, {}


def torch_class(cls):
    """Return the class of torch whose states the optimizers of a class have."""
    return cls.__base__ if cls in (AdamW, SGD) else cls


def can_fuse(module):
    """Return whether fused updates can be made of the parameters of a module.

    They take neither complex ones nor the sparse gradients of embeddings.
    """
    sparse = any(
        isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.sparse
        for part in module.modules()
    )
    return not sparse and not any(p.is_complex() for p in module.parameters())


@functools.lru_cache(maxsize=64)
def needs_closure(optimizer):
    """Return whether the step of an optimizer's class evaluates the batch itself, as LBFGS's."""
    closure = _closure_of(optimizer)
    return closure is not None and closure.default is closure.empty


def may_need_closure(optimizer):
    """Return whether a class of others has a closure with a default, which its step may not."""
    of_torch = optimizer.step.__module__.startswith("torch.")
    return not of_torch and _closure_of(optimizer) is not None


def _closure_of(optimizer):
    return inspect.signature(optimizer.step).parameters.get("closure")


def without_excluded(defaults, given):
    """Return default arguments less those that arguments which were given exclude."""
    excluded = set()
    if given.get("foreach"):
        excluded.add("fused")
    if given.get("momentum") == 0 or given.get("dampening"):
        excluded.add("nesterov")
    return {name: value for name, value in defaults.items() if name not in excluded}


def optimizer_params(optimizer, defaults, weight_decay):
    """Return the arguments of an optimizer's class, or raise if it has no weight decay."""
    if weight_decay is None:
        return defaults
    known = inspect.signature(optimizer).parameters
    if "weight_decay" not in known and "kwargs" not in known:
        raise ValueError(
            f"optimizer={optimizer.__name__} has no weight decay, got "
            f"weight_decay={weight_decay}: set weight_decay=None."
        )
    return {**defaults, "weight_decay": weight_decay}

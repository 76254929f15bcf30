"""From the training parameters of an estimator to a skorch net."""

import copy
import multiprocessing
import os

import torch

from ._callbacks import BestEpoch, EpochProgress, lr_scheduler
from ._net import SetNet

OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, {"fused": True}),
    "adam": (torch.optim.Adam, {"fused": True}),
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "fused": True}),
}

NET_PREFIXES = ("optimizer__", "iterator_train__", "iterator_valid__", "compile__")


def resolve_device(device):
    """Return the device that `device` names; "auto" is CUDA where there is one.

    Raises
    ------
    ValueError
        When the device does not exist here.
    """
    if isinstance(device, str) and device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(device)
        if resolved.type == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("torch sees no CUDA device here")
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device={device!r} cannot be used: {error}. Use 'auto', 'cpu' or 'cuda'."
        ) from error
    return str(resolved)


def resolve_batch_size(batch_size, n_samples):
    """Return the number of samples of a training batch.

    "auto" makes about 32 batches an epoch, of 32 to 256 samples.
    """
    if batch_size == "auto":
        return min(max(32, n_samples // 32), 256)
    return batch_size


def resolve_weight_decay(weight_decay, optimizer, input_shape):
    """Return the weight decay, or None for that of the optimizer's class.

    None makes 0.1 for tables and 0.2 for images with "adamw", whose decay does not act through
    the gradient; with others, these values would be far too large.
    """
    if weight_decay is None and isinstance(optimizer, str) and optimizer == "adamw":
        return 0.1 if len(input_shape) == 1 else 0.2
    return weight_decay


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


def check_net_params(net_params):
    """Return `net_params` as a dict, or raise naming the bad key."""
    net_params = dict(net_params or {})
    known = {"callbacks__*", *(f"{prefix}*" for prefix in NET_PREFIXES)}
    for key in net_params:
        if not key.startswith((*NET_PREFIXES, "callbacks__")):
            raise ValueError(
                f"net_params has an unknown key {key!r}; keys are those of the skorch net, "
                f"of the form {sorted(known)}."
            )
    return net_params


def default_workers():
    """Return the number of DataLoader workers for data read from disk.

    None inside a worker process, such as those of joblib: the cores are already taken.
    """
    if multiprocessing.parent_process() is not None:
        return 0
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1, 8)


def loader_params(inputs, device):
    """Return the DataLoader arguments for inputs that are not in memory."""
    if inputs.in_memory:
        return {}
    workers = default_workers()
    return {
        "num_workers": workers,
        "persistent_workers": workers > 0,
        "pin_memory": torch.device(device).type == "cuda",
    }


def make_net(module, criterion, inputs, monitor, n_batches, options):
    """Return an initialised :class:`SetNet`.

    Parameters
    ----------
    module, criterion : nn.Module
    inputs : Inputs
        What will be trained on; decides how batches are loaded.
    monitor : Monitor or None
        None without validation samples.
    n_batches : int
        Batches in an epoch.
    options : dict
        Training parameters by their names in the estimators; `device` and `batch_size` resolved.
    """
    optimizer, optimizer_params = resolve_optimizer(options["optimizer"])
    net_params = check_net_params(options["net_params"])
    loader = loader_params(inputs, options["device"])
    if options["weight_decay"] is not None:
        optimizer_params = optimizer_params | {"weight_decay": options["weight_decay"]}
    params = {f"optimizer__{k}": v for k, v in optimizer_params.items()}
    params |= {f"iterator_train__{k}": v for k, v in loader.items()}
    params |= {f"iterator_valid__{k}": v for k, v in loader.items()}
    net = SetNet(
        module,
        criterion,
        optimizer=optimizer,
        lr=options["lr"],
        max_epochs=options["max_epochs"],
        batch_size=options["batch_size"],
        callbacks=make_callbacks(monitor, n_batches, options),
        device=options["device"],
        compile=options["compile"],
        precision=options["precision"],
        monitor=monitor,
        verbose=0,
        **{**params, **net_params},
    )
    try:
        return net.initialize()
    except (TypeError, ValueError) as error:
        if not net_params:
            raise
        raise ValueError(f"net_params={net_params!r} cannot be used: {error}") from error


def make_callbacks(monitor, n_batches, options):
    """Return the user's callbacks and those that the training parameters ask for."""
    callbacks = [_copied(callback) for callback in options["callbacks"] or ()]
    if options["lr_schedule"] is not None:
        schedule = lr_scheduler(
            options["lr_schedule"], options["max_epochs"], n_batches, options["lr"]
        )
        callbacks.append(("lr_schedule", schedule))
    if options["verbose"]:
        name = monitor.name if monitor else None
        callbacks.append(("progress", EpochProgress(options["max_epochs"], name)))
    if monitor is not None:
        callbacks.append(("best_epoch", BestEpoch(monitor.name, options["patience"])))
    return callbacks


def _copied(callback):
    """Copy a user's callback, so that fitting leaves the estimator's parameters alone."""
    if isinstance(callback, type):
        return callback()
    return copy.deepcopy(callback)

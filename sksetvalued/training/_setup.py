"""From the training parameters of an estimator to a skorch net."""

import math
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import NamedTuple

import torch
from skorch.callbacks import LRScheduler, PrintLog

from ..inputs import StreamInputs
from ._callbacks import (
    AveragedWeights,
    BestEpoch,
    EpochProgress,
    bare_callback,
    lr_scheduler,
    own_callbacks,
)
from ._data import WORKER_ARGUMENTS, forks
from ._net import SetNet
from ._optimizers import (
    can_fuse,
    needs_closure,
    optimizer_params,
    resolve_optimizer,
    without_excluded,
)
from ._parallel import current_processes

#: Beginnings of the keys of `net_params`.
NET_PREFIXES = ("callbacks__", "compile__", "iterator_train__", "iterator_valid__", "optimizer__")

#: Key of `net_params` that is none of these.
ACCUMULATION = "gradient_accumulation_steps"

#: What can be set of the iterators.
ITERATOR_KEYS = {
    "iterator_train": {*WORKER_ARGUMENTS, "num_workers", "pin_memory", "shuffle"},
    "iterator_valid": {*WORKER_ARGUMENTS, "num_workers", "pin_memory"},
}

#: What can be set of torch.compile. Its other arguments reach a compiler, whose options hold
#: command lines, which an estimator that came in a file of another library must not set.
COMPILE_VALUES = {
    "backend": ("inductor", "eager", "aot_eager", "cudagraphs"),
    "dynamic": (None, False, True),
    "fullgraph": (False, True),
    "mode": (
        None,
        "default",
        "reduce-overhead",
        "max-autotune",
        "max-autotune-no-cudagraphs",
    ),
}

#: Callbacks of the estimators, and the parameters that they follow.
OWN_CALLBACKS = {"best_epoch": "patience", "lr_schedule": "lr_schedule", "progress": "verbose"}

#: What to use in place of other arguments of a DataLoader.
INSTEAD = {
    "batch_sampler": "weigh the samples by sample_weight",
    "batch_size": "set the parameter batch_size",
    "collate_fn": "use transform, or a torch Dataset",
    "generator": "set random_state",
    "sampler": "weigh the samples by sample_weight",
}


def resolve_device(device):
    """Return the device that `device` names; "auto" is CUDA where there is one.

    A fit that several processes share runs on the GPU of each.

    Raises
    ------
    ValueError
        When the device does not exist here, or cannot compute.
    """
    if isinstance(device, str) and device == "auto":
        return _own_gpu() if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(device)
        if resolved.type == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("torch sees no CUDA device here")
        torch.zeros((), dtype=torch.float64, device=resolved).item()  # MPS has none
    except (AssertionError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0].split(". ")[0]  # torch goes on at length
        raise ValueError(
            f"device={device!r} cannot be used: {reason}. Use 'auto', or a device that is here, "
            "such as 'cpu'."
        ) from error
    return _own_gpu() if str(resolved) == "cuda" else str(resolved)


def _own_gpu():
    """Return "cuda", or the GPU of this process where a fit is shared."""
    if current_processes() is None:
        return "cuda"
    own = os.environ.get("LOCAL_RANK", torch.cuda.current_device())
    return f"cuda:{int(own) % torch.cuda.device_count()}"


def resolve_batch_size(batch_size, n_samples, recipe):
    """Return the number of samples of a training batch; "auto" is what the recipe says."""
    return recipe.batch_size(n_samples) if batch_size == "auto" else int(batch_size)


def check_net_params(net_params):
    """Return `net_params` as a dict, or raise naming the bad key."""
    if not isinstance(net_params, Mapping | None):
        raise TypeError(f"net_params must be a dict or None, got {net_params!r}.")
    net_params = dict(net_params or {})
    for key in net_params:
        if key == ACCUMULATION:
            _check_integer(key, net_params[key], 1)
            continue
        if not (isinstance(key, str) and key.startswith(NET_PREFIXES)):
            raise ValueError(
                f"net_params has an unknown key {key!r}; keys are those of the skorch net, "
                f"of the form {[f'{prefix}*' for prefix in NET_PREFIXES]}, and {ACCUMULATION!r}."
            )
        part, name = key.split("__", 1)
        known = ITERATOR_KEYS.get(part)
        if known is not None and name not in known:
            instead = INSTEAD.get(name, f"the known keys of {part} are {sorted(known)}")
            raise ValueError(f"net_params cannot set {key!r}: {instead}.")
        if name == "num_workers":
            _check_integer(key, net_params[key], 0)
        if part == "compile":
            _check_compile(name, net_params[key])
        if part == "callbacks" and name.split("__")[0] in OWN_CALLBACKS:
            instead = OWN_CALLBACKS[name.split("__")[0]]
            raise ValueError(f"net_params cannot set {key!r}: set the parameter {instead}.")
    return net_params


def _check_integer(key, value, low):
    if not isinstance(value, Integral) or isinstance(value, bool) or value < low:
        raise ValueError(f"net_params[{key!r}] must be an integer >= {low}, got {value!r}.")


def _check_compile(name, value):
    if name not in COMPILE_VALUES:
        raise ValueError(
            f"net_params cannot set 'compile__{name}': of torch.compile only "
            f"{sorted(COMPILE_VALUES)} can be set here; others, such as options of the compiler, "
            "in your program, by torch._inductor.config."
        )
    known = COMPILE_VALUES[name]
    if not any(type(value) is type(k) and value == k for k in known):
        raise ValueError(f"net_params['compile__{name}'] must be one of {known}, got {value!r}.")


def default_workers():
    """Return the number of DataLoader workers for data read from disk.

    Zero inside a worker process, such as one of joblib, where the cores are taken already, and
    where workers are no forks: these begin within seconds, and run the user's script again. The
    processes of a machine that share a fit share its cores.
    """
    if not forks():
        return 0
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if current_processes() is not None:
        n_cores //= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    elif multiprocessing.parent_process() is not None:
        return 0
    return min(n_cores, 8)


def loader_params(inputs, device):
    """Return the DataLoader arguments for inputs that are not in memory."""
    if inputs.in_memory:
        return {}
    # Each worker process reads a whole stream, unless its source knows of workers.
    n_workers = 0 if isinstance(inputs, StreamInputs) else default_workers()
    return {
        "num_workers": n_workers,
        "persistent_workers": True,
        "pin_memory": torch.device(device).type == "cuda",
    }


def params_for_predictions(inputs, device, net_params):
    """Return the DataLoader arguments for samples to predict; those in `net_params` come first."""
    if inputs.in_memory:
        return {}
    asked = {
        key.removeprefix("iterator_valid__"): value
        for key, value in check_net_params(net_params).items()
        if key.startswith("iterator_valid__")
    }
    return loader_params(inputs, device) | asked | {"persistent_workers": False}


class TrainingOptions(NamedTuple):
    """What training takes of the parameters of an estimator, by their names there."""

    optimizer: str | type
    weight_decay: float | None
    lr: float
    lr_schedule: object
    default_schedule: bool
    max_epochs: int
    batch_size: int
    callbacks: Sequence | None
    patience: int | float | None
    n_last: int
    device: str
    precision: str
    compile: bool
    verbose: int
    net_params: dict | None


def make_net(module, criterion, inputs, monitor, n_batches, options, generator=None, trains=True):
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
    options : TrainingOptions
    generator : torch.Generator, optional
        Source of the order of the batches; needed to train.
    trains : bool, default=True
        Whether it gets an optimizer; making the first one of a process takes torch seconds.
    """
    optimizer, defaults = resolve_optimizer(options.optimizer)
    net_params = check_net_params(options.net_params)
    if needs_closure(optimizer) and net_params.get(ACCUMULATION, 1) > 1:
        raise ValueError(
            f"net_params sets {ACCUMULATION!r}, but {optimizer.__name__} evaluates every batch "
            "itself, as often as it likes: leave it out, or use another optimizer."
        )
    if needs_closure(optimizer):
        # LBFGS flattens gradients as if channels were not last.
        module = module.to(memory_format=torch.contiguous_format)
    given = {k.removeprefix("optimizer__"): value for k, value in net_params.items()}
    defaults = without_excluded(defaults, given)
    params = _params_of_parts(module, inputs, optimizer, defaults, options) | net_params
    if not trains:
        params = {k: v for k, v in params.items() if not k.startswith("optimizer__")}
    n_updates = math.ceil(n_batches / net_params.get(ACCUMULATION, 1))
    callbacks = make_callbacks(monitor, n_updates, options)
    net = SetNet(
        module,
        criterion,
        optimizer=optimizer if trains else None,
        lr=options.lr,
        max_epochs=options.max_epochs,
        batch_size=options.batch_size,
        callbacks=callbacks,
        device=options.device,
        compile=options.compile,
        precision=options.precision,
        monitor=monitor,
        generator=generator,
        # A PrintLog prints where its net is not quiet.
        verbose=int(any(isinstance(bare_callback(c), PrintLog) for c in callbacks)),
        **params,
    )
    try:
        return net.initialize()
    except (TypeError, ValueError) as error:
        blamed = {k: v for k, v in net_params.items() if not k.startswith("iterator")}
        if not blamed:
            raise
        raise ValueError(f"net_params={blamed!r} cannot be used: {error}") from error


def _params_of_parts(module, inputs, optimizer, defaults, options):
    """Return the arguments of the optimizer and of the iterators, by their keys in the net."""
    if not can_fuse(module):
        defaults = {key: value for key, value in defaults.items() if key != "fused"}
    defaults = optimizer_params(optimizer, defaults, options.weight_decay)
    loader = loader_params(inputs, options.device)
    params = {f"optimizer__{k}": v for k, v in defaults.items()}
    params |= {f"iterator_train__{k}": v for k, v in loader.items()}
    return params | {f"iterator_valid__{k}": v for k, v in loader.items()}


def make_callbacks(monitor, n_updates, options):
    """Return the user's callbacks with those that the training parameters ask for.

    The one that keeps the best epoch comes first: at the end of training, the others see the
    weights that are kept, or put their own in place.
    """
    own = own_callbacks(options.callbacks or ())
    first, last = [], []
    if monitor is not None:
        best = BestEpoch(monitor.name, options.patience, options.n_last, monitor.chance)
        first.append(("best_epoch", best))
    lr_schedule = _lr_schedule(options.lr_schedule, own, options.default_schedule)
    if lr_schedule is not None:
        schedule = lr_scheduler(lr_schedule, options.max_epochs, n_updates)
        # Averaged weights have to be in place before the best ones are put there.
        place = first.insert if isinstance(schedule, AveragedWeights) else last.insert
        place(0, ("lr_schedule", schedule))
    if options.verbose:
        name = monitor.name if monitor else None
        last.append(("progress", EpochProgress(options.max_epochs, name)))
    taken = dict(first + last)
    for callback in own:
        if isinstance(callback, tuple) and callback[0] in taken:
            raise ValueError(
                f"callbacks holds the name {callback[0]!r}, which is that of a callback of the "
                "estimator itself: use another name."
            )
    return first + own + last


def scheduler_of(callbacks):
    """Return the first callback that schedules the learning rate, or None."""
    for callback in map(bare_callback, callbacks or ()):
        if issubclass(callback if isinstance(callback, type) else type(callback), LRScheduler):
            return callback
    return None


def _lr_schedule(lr_schedule, own, default):
    """Return the schedule, or None if the user's callbacks hold one and it is the default."""
    scheduler = scheduler_of(own)
    if scheduler is None or lr_schedule is None:
        return lr_schedule
    if default:
        return None
    raise ValueError(
        f"callbacks holds {scheduler!r} beside lr_schedule={lr_schedule!r}: two schedules "
        "would multiply; set lr_schedule=None to use your own."
    )

"""Training with skorch; the only place that imports it."""

from .._randomness import rng_state, seeded
from ._criterion import accepts, make_criterion, take_learned
from ._data import TrainingSet, make_batches
from ._monitor import Monitor
from ._net import SetNet
from ._predict import iter_outputs
from ._setup import (
    OPTIMIZERS,
    TrainingOptions,
    check_net_params,
    make_callbacks,
    make_net,
    resolve_batch_size,
    resolve_device,
    resolve_optimizer,
    resolve_weight_decay,
)
from ._sized import SizedLoss
from ._splits import split_per_class
from ._state import KeepState

__all__ = [
    "OPTIMIZERS",
    "KeepState",
    "Monitor",
    "SetNet",
    "SizedLoss",
    "TrainingOptions",
    "TrainingSet",
    "accepts",
    "check_net_params",
    "iter_outputs",
    "make_batches",
    "make_callbacks",
    "make_criterion",
    "make_net",
    "resolve_batch_size",
    "resolve_device",
    "resolve_optimizer",
    "resolve_weight_decay",
    "rng_state",
    "seeded",
    "split_per_class",
    "take_learned",
]

"""Training with skorch; the only place that imports it."""

from ._callbacks import (
    bare_callback,
    check_movable,
    check_no_validation,
    copied_callbacks,
    scorers_of_held_out,
    silent_parameters,
)
from ._criterion import accepts, make_criterion, sums, take_learned, trained_by
from ._data import (
    StreamSet,
    TrainingSet,
    count_batches,
    dead_workers_named,
    make_batches,
)
from ._monitor import Monitor, calibrated_log_likelihood
from ._net import SetNet
from ._optimizers import OPTIMIZERS, resolve_optimizer, torch_class
from ._parallel import alone, current_processes, over_processes, refuse_divided
from ._predict import iter_outputs
from ._recipes import HELD_OUT, is_perceptron, most_epochs, recipe
from ._setup import (
    TrainingOptions,
    check_net_params,
    make_net,
    resolve_batch_size,
    resolve_device,
    scheduler_of,
)
from ._sized import SizedLoss
from ._splits import folds_per_class, split_at_random, split_per_class, with_rows
from ._state import (
    MODULE_ATTRIBUTES,
    History,
    KeepState,
    plain_tensors,
    plain_values,
    put_buffer,
    put_plain_values,
)

__all__ = [
    "HELD_OUT",
    "History",
    "KeepState",
    "MODULE_ATTRIBUTES",
    "Monitor",
    "OPTIMIZERS",
    "SetNet",
    "SizedLoss",
    "StreamSet",
    "TrainingOptions",
    "TrainingSet",
    "accepts",
    "alone",
    "bare_callback",
    "calibrated_log_likelihood",
    "check_movable",
    "check_net_params",
    "check_no_validation",
    "copied_callbacks",
    "count_batches",
    "current_processes",
    "dead_workers_named",
    "is_perceptron",
    "folds_per_class",
    "iter_outputs",
    "make_batches",
    "make_criterion",
    "make_net",
    "most_epochs",
    "over_processes",
    "plain_tensors",
    "plain_values",
    "put_buffer",
    "put_plain_values",
    "recipe",
    "refuse_divided",
    "resolve_batch_size",
    "resolve_device",
    "resolve_optimizer",
    "scheduler_of",
    "scorers_of_held_out",
    "silent_parameters",
    "split_at_random",
    "split_per_class",
    "sums",
    "take_learned",
    "torch_class",
    "trained_by",
    "with_rows",
]

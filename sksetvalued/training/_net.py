"""The skorch net inside every deep estimator."""

import contextlib
import copy
import fnmatch
import math
import opcode
import pickle
import re
import signal
import time
from itertools import islice

import numpy as np
import torch
from skorch import NeuralNet
from skorch.callbacks import Callback, EpochScoring, LRScheduler, ParamMapper
from skorch.exceptions import SkorchException
from torch.nn import Embedding

from .._checks import check_number
from .._signatures import parameters_of
from .._warnings import warn_caller
from ..inputs import NamedTensors, moved
from ..losses._base import check_loss
from ..networks import Network
from ..networks._network import PLAIN, made_of
from ..networks._probe import of_another_type
from ..operators._precision import without_autocast
from ._callbacks import BY_UPDATE, OWN, AveragedWeights, bare_callback, why_not_moved
from ._criterion import batch_mass, goes_on, sums, trained_by
from ._data import TrainingSet, make_batches
from ._optimizers import may_need_closure, needs_closure, torch_class
from ._state import load_optimizer_state

#: What skorch, and its callbacks, say of columns that an epoch of the history has not.
MISSING_COLUMN = re.compile(r"([\[(]?'[^\n]+'[\])]?) was not found in history\.")
#: Those of a validation set, ...
VALIDATION_COLUMN = re.compile(r"'valid_")
#: ... and those that a net records beside its metric.
OF_VALIDATION = ("valid_batch_count", "valid_dur", "valid_loss", "valid_loss_best")
#: What torch says of tensors that do not fit the weights of a layer.
OTHER_SHAPE = re.compile(r"shapes cannot be multiplied|must match the size|to have \d+ channels")
#: Columns that no callback would watch.
COUNTED = re.compile(r"epoch|batches|.*_(batch_count|dur)")
#: What is said of a pickle that cannot be made or read, with the reason in between.
NOT_KNOWN_ELSEWHERE = (
    "a fitted network cannot be taken from one process to another: {}. Define classes and "
    "functions of your own in a file that you import: those of a notebook, of a script or inside "
    "of a function are not known elsewhere."
)


class StopTraining(Exception):
    """Raised at the end of an epoch to end the training early."""


def _defines(callback, hook):
    if isinstance(callback, LRScheduler) and callback.step_every != "batch":
        return False
    if isinstance(callback, EpochScoring) and hook == "on_batch_end":
        return False  # it would keep outputs, which are not what is scored
    return getattr(type(callback), hook, None) is not getattr(Callback, hook)


class SetNet(NeuralNet):
    """skorch net that trains on :class:`TrainingSet` batches.

    It differs from its parent in what costs time: batches come whole, losses stay on the device
    until the epoch ends, hooks of single batches are called only for callbacks that define them,
    and batches are recorded in the history only where callbacks of the user may read them. The
    monitor is computed from the outputs of the validation pass. Data are prepared, and
    predictions made, by the estimator: `fit` and `predict` of the net refuse other data, and
    `EpochScoring` scores the estimator. Callbacks, history, optimizers and nested parameters are
    skorch's.

    Parameters
    ----------
    monitor : Monitor, optional
        Turns validation outputs into one number, larger is better.
    precision : {"float32", "bf16"}
        "bf16" runs the network under autocast.
    resumable : bool
        Whether a pickle keeps the state of the optimizer.
    gradient_accumulation_steps : int
        Batches whose gradients make one update.
    generator : torch.Generator, optional
        Source of the order of the batches; needed to train, and not pickled.
    """

    #: Epochs in the history that a warm start found there.
    n_earlier = 0

    def __init__(
        self,
        *args,
        monitor=None,
        precision="float32",
        resumable=False,
        generator=None,
        gradient_accumulation_steps=1,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        self.use_caching = False
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self._held = {}, 0, 0
        self.estimator = None
        self.generator = generator
        self.resumable = resumable
        self.monitor = monitor
        self.precision = precision

    #: Those that share the training under way.
    _processes = None
    #: Number of epochs in the history after which the training under way ends.
    _end = math.inf

    @property
    def bare_module(self):
        """The trained module as it was before it was compiled."""
        return getattr(self.module_, "_orig_mod", self.module_)

    @property
    def bare_criterion(self):
        """The criterion as it was before it was compiled."""
        return getattr(self.criterion_, "_orig_mod", self.criterion_)

    @property
    def _default_callbacks(self):
        return []

    def initialize_callbacks(self):
        known = [name for name, _ in self._uniquely_named_callbacks()]
        for key in self.get_params_for("callbacks"):
            if key.split("__")[0] not in known:
                raise ValueError(f"'callbacks__{key}' is of none of the callbacks {known}.")
        super().initialize_callbacks()
        defined = {
            hook: any(_defines(callback, hook) for _, callback in self.callbacks_)
            for hook in ("on_batch_begin", "on_batch_end", "on_grad_computed")
        }
        own_batches = any(
            _defines(callback, "on_grad_computed") and not isinstance(callback, OWN)
            for _, callback in self.callbacks_
        )  # in which they may record something
        on_batch = defined["on_batch_begin"] or defined["on_batch_end"] or own_batches
        self._averages = [c for _, c in self.callbacks_ if isinstance(c, AveragedWeights)]
        self._by_update = [c for _, c in self.callbacks_ if isinstance(c, BY_UPDATE)]
        self._hooks = {**defined, "on_batch_begin": on_batch, "on_batch_end": on_batch}
        self._keeps_batches = not all(isinstance(callback, OWN) for _, callback in self.callbacks_)
        return self

    def initialize_optimizer(self, triggered_directly=None):
        if self.optimizer is None:  # the net predicts only
            self.optimizer_ = None
            return self
        self._check_patterns()
        try:
            return super().initialize_optimizer(triggered_directly)
        except (RuntimeError, TypeError, ValueError) as error:
            raise ValueError(
                f"optimizer={self.optimizer.__name__} cannot be used: {error}"
            ) from error

    def get_all_learnable_params(self):
        """Yield the parameters by the names that they have where nothing is compiled."""
        for name, parameter in super().get_all_learnable_params():
            yield name.removeprefix("_orig_mod."), parameter

    def _check_patterns(self):
        """Raise where a pattern of names is that of no parameter."""
        patterns = [("optimizer__param_groups", pattern) for pattern in self._check_groups()]
        for _, callback in self.callbacks_:
            if isinstance(callback, ParamMapper):
                name = f"{type(callback).__name__} of callbacks"
                patterns += [(name, p) for p in callback.patterns if isinstance(p, str)]
        names = [name for name, _ in self.get_all_learnable_params()]
        for holder, pattern in patterns:
            if not fnmatch.filter(names, pattern):
                raise ValueError(
                    f"{holder} holds the pattern {pattern!r}, which is that of no parameter: "
                    f"their names are {names[:10]}{'...' if len(names) > 10 else ''}."
                )

    def _check_groups(self):
        """Return the patterns of the groups of parameters, once their options are in order."""
        groups = self.get_params_for("optimizer").get("param_groups", ())
        pairs = [group for group in groups if isinstance(group, tuple | list) and len(group) == 2]
        if len(pairs) < len(groups) or not all(isinstance(group, dict) for _, group in pairs):
            raise TypeError(
                "optimizer__param_groups must hold pairs of a pattern and a dict, such as "
                f"[('backbone*', {{'lr': 1e-4}})], got {groups!r:.80}."
            )
        known = parameters_of(self.optimizer)
        for pattern, group in pairs:
            given = f"optimizer__param_groups of {pattern!r}"
            for name in group.keys() & {"lr", "weight_decay"}:
                if not isinstance(group[name], torch.Tensor):
                    check_number(f"{given}: {name}", group[name], 0, inclusive=True)
            unknown = sorted(group.keys() - known)
            if unknown:
                warn_caller(
                    f"{given} has {unknown}, which {self.optimizer.__name__} does not know: they "
                    f"act in code of yours alone. It has {sorted(known - {'params'})}.",
                )
        return [pattern for pattern, _ in pairs]

    def notify(self, method_name, **kwargs):
        if method_name == "on_epoch_begin":
            # All parts, as a module may come in evaluation mode; callbacks may put some back.
            self.module_.train()
            self.criterion_.train()
        if method_name == "on_epoch_end":
            self._end_epoch(**kwargs)
        elif self._hooks.get(method_name, True):
            super().notify(method_name, **kwargs)

    def _what_is_missing(self, error, dataset_valid):
        """Return what a callback did not find, or None for any other error of one."""
        missing = MISSING_COLUMN.search(str(error))
        if dataset_valid is None and self._is_of_validation(error, missing):
            return (
                f"A callback needs a validation set ({error}): set validation_fraction, for "
                "example to 0.1, and max_epochs. partial_fit, and the last training of a fit that "
                "finds max_epochs, have none: let the callback watch train_loss, or leave it out."
            )
        if missing is not None:
            columns = [name for name in sorted(self.history_[-1]) if not COUNTED.fullmatch(name)]
            return (
                f"A callback reads {missing[1]}, which this epoch has not recorded: name one of "
                f"{columns}, or put a scoring callback that records it before that callback."
            )
        return None

    def _is_of_validation(self, error, missing):
        """Return whether an error is for want of a column that a validation set gives."""
        if missing is not None:
            return VALIDATION_COLUMN.search(missing[1]) is not None
        if not isinstance(error, KeyError):
            return False
        # Of an epoch, a dict, which callbacks may read without the indices of skorch.
        metric, _ = self.estimator._monitor_metric()
        name = error.args[0] if error.args else None
        return isinstance(name, str) and name in (*OF_VALIDATION, metric, f"{metric}_best")

    def _end_epoch(self, dataset_valid=None, **kwargs):
        stops = False
        try:
            super().notify("on_epoch_end", dataset_valid=dataset_valid, **kwargs)
        except KeyboardInterrupt as error:
            if not _was_raised(error):
                raise
            stops = True
        except (KeyError, ValueError, SkorchException) as error:
            reason = self._what_is_missing(error, dataset_valid)
            if reason is None:
                raise
            raise ValueError(reason) from error
        stops = stops or self.exhausted_
        if self._processes is not None:
            stops = any(self._processes.all(stops))
        if stops:
            raise StopTraining

    def check_data(self, X, y=None):
        """Accept what the estimator has validated, and nothing else."""
        if not (isinstance(X, tuple) and isinstance(X[0], TrainingSet)):
            raise TypeError(
                f"{type(self).__name__} trains on what an estimator has prepared: call `fit` or "
                "`partial_fit` of the estimator."
            )

    def get_dataset(self, X, y=None):
        """Accept what the estimator has prepared, and nothing else."""
        if not isinstance(X, TrainingSet):
            raise TypeError(
                f"{type(self).__name__} reads what an estimator has prepared: call `predict`, "
                "`decision_function` or `predict_set` of the estimator, or `module_` on a tensor."
            )
        return X

    def get_split_datasets(self, X, y=None, **fit_params):
        """Return the training set and the validation set, prepared by the estimator."""
        train, valid = X
        self._batch_ndim = len(train.inputs.sample_shape) + 1
        part = None if self._processes is None else self._processes.part
        sets = [None if data is None else data.to(self.device, part) for data in (train, valid)]
        # Callbacks of the user read samples as they came. A compiled network has fused its layers.
        if not self._keeps_batches and isinstance(self.module_, Network):
            for data in sets[: 1 if valid is None else 2]:
                data.inputs = self.module_.normalized(data.inputs)
        return sets

    def get_iterator(self, dataset, training=False):
        """Return the batches of `dataset`."""
        prefix = "iterator_train" if training else "iterator_valid"
        params = {"shuffle": training, **self.get_params_for(prefix)}
        return make_batches(dataset, self.batch_size, self.generator, **params)

    def as_estimator(self, inputs):
        """Return the estimator in training as if this epoch were the last one.

        What it calibrates, it calibrates on `inputs`.
        """
        return self.estimator._as_of(self, inputs)

    def autocast(self):
        """Return the context in which the network runs, whatever that of the caller is."""
        device = torch.device(self.device)
        if self.precision == "float32":
            return without_autocast(device)
        # Inside of a context of the caller, copies of weights would outlive their update.
        return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)

    def infer(self, x, n_samples=None, **fit_params):
        """Return the outputs of a batch of `n_samples`, of which `x` may be a part."""
        x = moved(x, self.device)
        if self._processes is None or n_samples is None:
            return self._forward(x)
        with self._processes.rows_of(n_samples):
            output = self._forward(x)
        return self._processes.whole(output, n_samples)

    def _forward(self, x):
        return self.run(self.module_, x)

    def run(self, module, x):
        """Return what a network makes of a batch; name what it cannot take."""
        try:
            with self.autocast(), _known_tokens(module, x):
                return module(x)
        except (IndexError, RuntimeError, ValueError) as error:
            reason = _reason(error, module, x)
            if reason is None:
                raise
            raise ValueError(f"{reason} ({error})") from error

    def _set_training(self, training=True):
        for part in (self.module_, self.criterion_):
            if part.training != training:
                part.train(training)

    def train_step(self, batch, **fit_params):
        if needs_closure(type(self.optimizer_)):
            step = super().train_step(batch, **fit_params)
            self._notify_update()
            return step
        if self.gradient_accumulation_steps > 1:
            return self._accumulate(batch, **fit_params)
        self._forget_gradients()
        step = self.train_step_single(batch, **fit_params)
        self._update(batch)
        return step

    def _forget_gradients(self):
        # What Optimizer.zero_grad does, without its bookkeeping.
        for group in self.optimizer_.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def _update(self, batch):
        if self._hooks["on_grad_computed"]:
            self.notify(
                "on_grad_computed",
                named_parameters=list(self.get_all_learnable_params()),
                batch=batch,
                training=True,
            )
        try:
            self.optimizer_.step()
        except RuntimeError as error:
            if "sparse" not in str(error).lower():
                raise
            raise ValueError(
                f"optimizer={type(self.optimizer_).__name__} cannot make an update. Embeddings "
                "with sparse=True have sparse gradients, other layers dense ones: set "
                "sparse=False in the backbone, or use an optimizer that takes both, for example "
                f"torch.optim.SGD. ({error})"
            ) from error
        except (AssertionError, TypeError) as error:
            optimizer = type(self.optimizer_)
            if not may_need_closure(optimizer):
                raise
            kind = TypeError if isinstance(error, TypeError) else AssertionError
            raise kind(
                f"optimizer={optimizer.__name__} failed in step(), which got no closure, as that "
                "has a default. Where it needs one, define `step(self, closure)`, without a "
                "default: it is then left to call the closure, first for the gradients of the "
                f"batch. ({type(error).__name__}: {error})"
            ) from error
        self._notify_update()

    def _notify_update(self):
        for callback in self._by_update:
            callback.on_update(self)

    def _accumulate(self, batch, **fit_params):
        """Take the gradients of a batch into their mean or sum, and update after enough batches.

        Samples count by their weights, so that the update is that of one batch of all samples.
        """
        self._forget_gradients()
        step = self.train_step_single(batch, **fit_params)
        held, n_batches, total = self._held
        mass = float(batch_mass(self.criterion_, *batch[1][:2]))
        total += mass
        share = 1.0 if sums(self.criterion_) or not total else mass / total
        if share < 1:
            for whole in held.values():
                whole.mul_(1 - share)
        for parameter in self._updated():
            if parameter.grad is not None and parameter in held:
                held[parameter].add_(parameter.grad, alpha=share)
            elif parameter.grad is not None:
                held[parameter] = parameter.grad * share
        self._held = held, n_batches + 1, total
        if n_batches + 1 == self.gradient_accumulation_steps:
            self._update_by_held(batch)
        return step

    def _update_by_held(self, batch):
        held, n_batches, _ = self._held
        if n_batches:
            for parameter in self._updated():
                parameter.grad = held.get(parameter)
            self._held = {}, 0, 0
            self._update(batch)

    def _updated(self):
        return [p for group in self.optimizer_.param_groups for p in group["params"]]

    def train_step_single(self, batch, **fit_params):
        if self._processes is not None:
            fit_params["n_samples"] = len(batch[1][0])
        try:
            step = super().train_step_single(batch, **fit_params)
        except RuntimeError as error:
            if "does not require grad" not in str(error) or self._trains_any():
                raise
            raise ValueError(
                "callbacks leave no parameter to train, as requires_grad is False for all: let "
                f"them spare the head, as Freezer('backbone*') does. ({error})"
            ) from error
        if self._processes is not None:
            self._processes.sum_gradients(self.module_.parameters())
        return step

    def _trains_any(self):
        return any(parameter.requires_grad for parameter in self._updated())

    def get_loss(self, y_pred, y_true, X=None, training=False):
        target, weight, index = y_true
        self._check_rows(y_pred, target)
        extra = {}
        if training and self.criterion_.uses_index:
            extra["index"] = moved(index, self.device)
        if weight is not None:
            extra["sample_weight"] = moved(weight, self.device)
        loss = self.criterion_(y_pred, moved(target, self.device), **extra)
        check_loss(self.criterion_, loss, y_pred)
        return loss

    def _check_rows(self, output, target):
        """Raise unless there are scores for each sample of a batch."""
        scores = output if torch.is_tensor(output) else output[0]
        # A loss of the user may compare several versions of a sample.
        if len(scores) != len(target) and made_of(trained_by(self.bare_criterion), PLAIN):
            raise ValueError(
                f"backbone={type(self.bare_module.backbone).__name__} returns features of shape "
                f"({len(scores)}, n_features) for {len(target)} samples in training: let it "
                "return one row for each sample, as in evaluation."
            )

    def validation_step(self, batch, **fit_params):
        x, (target, weight, _) = batch
        n_views = x.shape[1] if x.ndim == self._batch_ndim + 1 else None
        if n_views is not None:
            every = [t if t is None else t.repeat_interleave(n_views, 0) for t in batch[1]]
            batch = x.flatten(0, 1), tuple(every)
        step = super().validation_step(batch, n_samples=len(target), **fit_params)
        if self._monitors_metric():
            scores = self.criterion_.scores(step["y_pred"])
            if n_views is not None:
                scores = scores.unflatten(0, (-1, n_views))
            self.monitor.update(scores, target, weight)
        return step

    def _monitors_metric(self):
        return self.monitor is not None and self.monitor.metric is not None

    def run_single_epoch(self, iterator, training, prefix, step_fn, **fit_params):
        if iterator is None:
            return
        if not training and self._monitors_metric():
            self.monitor.reset()
        start, losses, sizes, masses = time.perf_counter(), [], [], []
        for batch in self._batches(iterator, training):
            self.notify("on_batch_begin", batch=batch, training=training)
            step = step_fn(batch, **fit_params)
            # A copy: a CUDA graph of torch.compile overwrites what it has returned.
            losses.append(step["loss"].detach().clone())
            sizes.append(len(batch[1][0]))
            masses.append(batch_mass(self.criterion_, *batch[1][:2]))
            if self._hooks["on_batch_end"]:
                self._record_batch(prefix, losses[-1].item(), sizes[-1])
                self.notify("on_batch_end", batch=batch, training=training, **step)
            if training:
                self._average()
        if training:
            self._update_by_held(batch)  # of batches that are fewer than a group
            self._average()
        if training and self._processes is not None:
            self._processes.average_statistics(self.module_)
            self._processes.agree(self.module_, self.criterion_)
        if training and self._averages:
            self._show_averages()
        self._record_epoch(prefix, losses, sizes, masses, time.perf_counter() - start)

    def _average(self):
        for average in self._averages:
            average.average()

    def _show_averages(self):
        for average in self._averages:
            average.show()
        if self._processes is not None:
            self._processes.average_statistics(self.module_)
        for average in self._averages if self._keeps_batches else ():
            average.remember()

    def take_changes(self):
        """Let what callbacks changed of weights that are shown be what is trained on."""
        for average in self._averages:
            average.take_changes()

    def _batches(self, iterator, training):
        batches = iterator
        if self._processes is not None:
            batches = self._processes.batches(iterator, training)
        share = self._end - len(self.history) + 1
        if training and share < 1:
            batches = islice(batches, max(1, round(share * len(iterator))))
        return batches

    def _record_batch(self, prefix, loss, size):
        self.history.record_batch(f"{prefix}_loss", loss)
        self.history.record_batch(f"{prefix}_batch_size", size)

    def _record_epoch(self, prefix, losses, sizes, masses, seconds):
        losses = torch.stack(losses).cpu()
        if self._keeps_batches and not self._hooks["on_batch_end"]:
            for loss, size in zip(losses.tolist(), sizes, strict=True):
                self.history.new_batch()
                self._record_batch(prefix, loss, size)
        masses = [float(mass) for mass in masses]
        loss = float(np.average(losses, weights=masses if any(masses) else None))
        monitored = prefix == "valid" and self._monitors_metric()
        metric = self.monitor.compute() if monitored else None
        if self._processes is not None:
            loss, metric, seconds = self._processes.first((loss, metric, seconds))
        if prefix == "train" and not math.isfinite(loss):
            given = self.get_params_for("optimizer")
            rate, decay = given.get("lr", self.lr), given.get("weight_decay", 0)
            # By which an update shrinks weights: more than that turns them round.
            also = f" or weight_decay={decay}" if rate * decay >= 1 else ""
            raise ValueError(
                f"Training diverged: the loss is {loss} in epoch {len(self.history)}. Use a "
                f"smaller rate than lr={rate}{also}, scale the features, for example by a "
                "StandardScaler, or check the loss, and X for NaN."
            )
        self._record_best(f"{prefix}_loss", loss, -1)
        self.history.record(f"{prefix}_batch_count", len(losses))
        self.history.record(f"{prefix}_dur", seconds)
        if monitored:
            self._record_best(self.monitor.name, metric, 1)

    def _record_best(self, name, value, sign):
        earlier = [sign * row[name] for row in self.history[:-1] if name in row]
        self.history.record(name, value)
        is_best = not math.isnan(value) and not any(sign * value <= v for v in earlier)
        self.history.record(f"{name}_best", is_best)

    def fit(self, X, y=None, **fit_params):
        """Train anew on ``X``, a pair of training and validation sets."""
        self.check_data(X, y)
        return super().fit(X, y, **fit_params)

    def partial_fit(
        self, X, y=None, classes=None, epochs=None, keep=None, processes=None, **fit_params
    ):
        """Train on ``X``, a pair of training and validation sets, for `epochs` epochs.

        Where `epochs` is no whole number, the last one goes through a part of the batches. An
        interrupt (Ctrl-C) ends the training and is remembered in `interrupted_`. With a
        :class:`KeepState` in `keep`, epochs that it has kept are not trained again. Every batch
        is divided among the :class:`Processes` in `processes`, where an interrupt is an error.
        """
        if not self.initialized_:
            self.initialize()
        self.interrupted_ = self.exhausted_ = False
        self._processes = processes
        epochs = self.max_epochs if epochs is None else epochs
        n_before = 0
        if keep is not None:
            self.callbacks_.append(("keep_state", keep))
            n_before = keep.n_epochs
        try:
            return self._train_epochs(X, y, epochs - n_before, **fit_params)
        finally:
            self._set_training(False)
            self._processes, self._end = None, math.inf
            self._held = {}, 0, 0  # of an interrupt amid a group of batches
            # They are as large as the weights, and nothing reads them any more.
            self._forget_gradients()
            if keep is not None:
                self.callbacks_.remove(("keep_state", keep))

    def _train_epochs(self, X, y, epochs, **fit_params):
        self.notify("on_train_begin", X=X, y=y)
        # Not before: a callback may have put a history of other epochs in place.
        self._end = len(self.history) + epochs
        try:
            with torch.enable_grad(), without_autocast(torch.device(self.device)):
                self.fit_loop(X, y, epochs=math.ceil(epochs), **fit_params)
        except StopTraining:
            pass
        except KeyboardInterrupt:
            if self._processes is not None:
                raise
            self.interrupted_ = True
        self.notify("on_train_end", X=X, y=y)
        return self

    def continue_from(self, net):
        """Take over the history of a net around the same module, and what its optimizer knows.

        The optimizer goes on where it is of the same class, with what it counts for a group of
        parameters, too; rates and the like, which it was made with, are those of now. It gets
        copies: the net of before stays as it is, in case that this training fails.
        """
        self.history = copy.copy(net.history)
        if torch_class(type(self.optimizer_)) is torch_class(type(net.optimizer_)):
            known = dict(net.optimizer_.state)
            criterion, old = self.bare_criterion, net.bare_criterion
            if goes_on(criterion, old):
                before = dict(old.named_parameters())
                for name, parameter in criterion.named_parameters():
                    same = before.get(name)
                    if same in known and same.shape == parameter.shape:
                        known[parameter] = known[same]
            for parameter in self._updated():
                if parameter in known:
                    self.optimizer_.state[parameter] = _copied(known[parameter])
            self._go_on_counting(net.optimizer_.param_groups)

    def _go_on_counting(self, olds):
        """Take over what an optimizer itself keeps in groups of as many parameters."""
        groups, given = self.optimizer_.param_groups, parameters_of(type(self.optimizer_))
        if [len(group["params"]) for group in groups] != [len(old["params"]) for old in olds]:
            return
        for group, old in zip(groups, olds, strict=True):
            kept = group.keys() & old.keys() - {"params", *given}
            group.update(_copied({name: old[name] for name in kept}))

    def take_optimizer_state(self, known):
        """Take over what an optimizer of the same class knew.

        Parameters
        ----------
        known : dict of Parameter to dict
        """
        state = self.optimizer_.state_dict()
        state["state"] = {i: known[p] for i, p in enumerate(self._updated()) if p in known}
        load_optimizer_state(self.optimizer_, state)

    def __getstate__(self):
        # Of a copy, as other threads may pickle, or train, at the same time.
        bare = object.__new__(type(self))
        vars(bare).update(vars(self))
        if not self.resumable:
            vars(bare)["optimizer_"] = None
        try:
            state = NeuralNet.__getstate__(bare)
        except (AttributeError, pickle.PicklingError) as error:
            raise type(error)(NOT_KNOWN_ELSEWHERE.format(error)) from error
        state["monitor"] = state["generator"] = state["estimator"] = None
        state["_processes"] = None
        state["callbacks"] = _without_shared(state["callbacks"] or ())
        state["callbacks_"] = _without_shared(state["callbacks_"])
        # module_ and criterion_ hold the trained copies; the others would double the file.
        state["module"], state["criterion"] = type(self.module), type(self.criterion)
        return state

    def __setstate__(self, state):
        try:
            super().__setstate__(state)
        except (AttributeError, ModuleNotFoundError) as error:
            raise type(error)(NOT_KNOWN_ELSEWHERE.format(error)) from error


def _copied(state):
    """Return a copy of what an optimizer knows of a parameter."""
    # A deep copy, but of tensors in a fraction of the time.
    return {
        name: value.clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)
        for name, value in state.items()
    }


def _was_raised(error):
    """Return whether code raised an error by itself, as EarlyStopping does a KeyboardInterrupt.

    That of Ctrl-C comes in the midst of anything else, or from a handler of a signal.
    """
    places = list(_places(error.__traceback__))
    handlers = map(signal.getsignal, signal.valid_signals())
    handling = {_code(handler) for handler in handlers if callable(handler)}
    code, last = places[-1]
    raised = code.co_code[last] == opcode.opmap["RAISE_VARARGS"]
    return raised and not any(code in handling for code, _ in places)


def _places(traceback):
    """Yield the code of each frame of a traceback, and where it is in there."""
    while traceback is not None:
        yield traceback.tb_frame.f_code, traceback.tb_lasti
        traceback = traceback.tb_next


def _code(function):
    """Return the code of a callable, None of what has none in Python."""
    function = getattr(function, "func", function)  # of a partial
    own = getattr(function, "__code__", None)
    return own or getattr(type(function).__call__, "__code__", None)


@contextlib.contextmanager
def _known_tokens(module, x):
    """Raise an IndexError, as a processor does, for tokens without an embedding on an accelerator.

    Nothing could be computed there any more by this process. A compiled network is not watched.
    """
    hooks = []
    if isinstance(x, NamedTensors) and not any(part.is_cpu for part in x.values()):
        for part in module.modules() if not hasattr(module, "_orig_mod") else ():
            if isinstance(part, Embedding):
                hooks.append(part.register_forward_pre_hook(_check_tokens, with_kwargs=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _check_tokens(table, args, kwargs):
    """Raise unless all tokens have a row of an embedding."""
    tokens = args[0] if args else kwargs["input"]
    if tokens.numel():
        lowest, highest = torch.stack(torch.aminmax(tokens)).tolist()
        if lowest < 0 or highest >= table.num_embeddings:
            raise IndexError("index out of range")


def _reason(error, module, x):
    """Return why a network does not take a batch, or None where that is not known."""
    if isinstance(error, IndexError) and isinstance(x, NamedTensors):
        tables = [part.num_embeddings for part in module.modules() if isinstance(part, Embedding)]
        largest = {
            name: int(part.max()) for name, part in x.items() if not part.is_floating_point()
        }
        if tables:
            return (
                f"X holds integers up to {largest}, but the embedding tables of the backbone have "
                f"{tables} rows: give it tokens below these."
            )
    if isinstance(x, NamedTensors) and OTHER_SHAPE.search(str(error)):
        shapes = {name: tuple(part.shape[1:]) for name, part in x.items()}
        return f"the network does not take samples whose parts have the shapes {shapes}"
    if isinstance(error, ValueError) and "more than 1 value per channel" in str(error):
        return (
            "Batch normalisation cannot train on one sample: set batch_size to two or more, and "
            "give partial_fit as many."
        )
    reason = of_another_type(module, error)
    return None if reason is None else f"{reason}, or set precision='bf16'."


def _without_shared(callbacks):
    """Return the callbacks that can be read again: the others hold what a pickle cannot."""
    kept = []
    for callback in callbacks:
        bare = bare_callback(callback)
        if isinstance(bare, OWN) or why_not_moved(bare) is None:
            kept.append(callback)
    return kept

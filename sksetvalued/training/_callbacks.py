"""Callbacks of the training loop: the best epoch, the progress bar, the learning rate."""

import copy
import inspect
import math
import pickle
from functools import partial
from numbers import Integral
from types import SimpleNamespace

import numpy as np
import torch
from sklearn.metrics import check_scoring
from skorch.callbacks import (
    BatchScoring,
    Callback,
    Checkpoint,
    EarlyStopping,
    EpochScoring,
    Freezer,
    InputShapeSetter,
    LRScheduler,
    MlflowLogger,
    NeptuneLogger,
    PrintLog,
    ProgressBar,
    SacredLogger,
    TensorBoard,
    TrainEndCheckpoint,
    Unfreezer,
    WandbLogger,
)
from torch.nn.modules.batchnorm import _NormBase
from torch.optim.lr_scheduler import MultiStepLR, OneCycleLR, ReduceLROnPlateau

from .._checks import check_number, check_takes
from .._signatures import parameters_of
from .._warnings import warn_caller
from ._state import Shows, modules_of, put_state, state_of

#: Callbacks that show or write what happens.
WATCHING = (
    Checkpoint,
    MlflowLogger,
    NeptuneLogger,
    PrintLog,
    ProgressBar,
    SacredLogger,
    TensorBoard,
    TrainEndCheckpoint,
    WandbLogger,
)
#: Those of their parameters that have a say in what is trained.
TRAINING_PARAMETERS = {"load_best", "monitor"}


def own_callbacks(callbacks):
    """Return copies of a user's callbacks, so that fitting leaves parameters alone.

    Parameters
    ----------
    callbacks : sequence of Callback instances or classes, or pairs of a name and one (or None)
        Those that hold others, as LoadInitState does a Checkpoint, then hold the copies.

    Raises
    ------
    TypeError, ValueError
        When it is no skorch callback, or one that cannot work here.
    """
    memo = {}
    return [_own(callback, memo) for callback in callbacks]


def _own(callback, memo):
    if _is_named(callback):
        name, own = callback
        return name, None if own is None else _own(own, memo)
    own = callback() if isinstance(callback, type) else _copied(callback, memo)
    if not isinstance(own, Callback):
        raise TypeError(
            "callbacks must hold skorch callbacks, or pairs of a name and a callback, "
            f"got {callback!r}."
        )
    if isinstance(own, BatchScoring):
        raise ValueError(
            f"callbacks holds {type(own).__name__}, which scores single batches, for which there "
            "are no sets: use EpochScoring."
        )
    if isinstance(own, InputShapeSetter):
        raise ValueError(
            f"callbacks holds {type(own).__name__}, which reads the shape of an array X: leave it "
            "out, and give the number of features to the backbone in backbone_params."
        )
    if isinstance(own, EpochScoring):
        own._scoring = partial(_score_epoch, own)
    if isinstance(own, Freezer | Unfreezer) and isinstance(own.at, int) and own.at > 0:
        own.at = partial(_begins, epoch=own.at)
    if isinstance(own, LRScheduler) and own.policy not in ("ReduceLROnPlateau", ReduceLROnPlateau):
        # As each training has a new optimizer, schedules start with it.
        vars(own).setdefault("last_epoch", -1)
    return own


def _begins(net, epoch):
    """Return whether an epoch begins; a warm start counts its own, beside those of its history."""
    return len(net.history) - net.n_earlier == epoch


def _copied(callback, memo):
    """Return a deep copy of a callback, which shares what cannot be copied.

    That is what leads out of the program: writers, runs of a tracker, locks. What has a copy in
    `memo` is not copied again.
    """
    if id(callback) in memo or why_not_copied(callback) is None:
        return copy.deepcopy(callback, memo)
    memo[id(callback)] = own = copy.copy(callback)
    for name, value in vars(own).items():
        if id(value) in memo or why_not_copied(value) is None:
            vars(own)[name] = copy.deepcopy(value, memo)
    return own


def copied_callbacks(callbacks):
    """Return copies of the callbacks of an estimator, in the same form."""
    if not isinstance(callbacks, list | tuple):
        return callbacks
    memo = {}
    return type(callbacks)(
        type(c)((c[0], _copied(c[1], memo))) if _is_named(c) else _copied(c, memo)
        for c in callbacks
    )


def bare_callback(callback):
    """Return a callback without the name that it may be paired with."""
    return callback[1] if _is_named(callback) else callback


def _is_named(callback):
    return isinstance(callback, tuple | list) and len(callback) == 2


def check_movable(callbacks):
    """Raise if callbacks of an estimator hold what no file or other process can."""
    for callback in callbacks if isinstance(callbacks, list | tuple) else ():
        bare = bare_callback(callback)
        error = why_not_moved(bare)
        if error is not None:
            raise TypeError(
                f"callbacks holds {type(bare).__name__}, which no file and no other process can "
                f"hold ({error}): search with n_jobs=None, and before pickling a fitted model "
                "call set_params(callbacks=None)."
            ) from error


def why_not_copied(value):
    """Return the error that copying a value raises, None if it can be copied."""
    try:
        copy.deepcopy(value)
    except Exception as error:  # whatever the value raises
        return error
    return None


def why_not_moved(value):
    """Return the error that copying a value, or reading its pickle, raises; None if neither does.

    A class that cannot be pickled at all, such as one of a function, is left to the pickle.
    """
    error = why_not_copied(value)
    if error is not None:
        return error
    try:
        content = pickle.dumps(value)
    except Exception:
        return None
    try:
        pickle.loads(content)
    except Exception as error:  # runs of trackers are attached to, which may not be there
        return error
    return None


def silent_parameters(value):
    """Return the names of parameters that say only where a callback writes, and what.

    Parameters
    ----------
    value : object
        A callback, or anything else, which has none.
    """
    classes = [cls for cls in WATCHING if isinstance(value, cls)]
    return {name for cls in classes for name in parameters_of(cls)} - TRAINING_PARAMETERS


def check_no_validation(callbacks):
    """Raise for a callback that watches a validation set, which the last training has not."""
    every = [_as_instance(callback) for callback in map(bare_callback, callbacks or ())]
    scores = {copy.copy(own).initialize().name_ for own in every if _scores_held_out(own)}
    for own in every:
        watched = own.monitor if isinstance(own, EarlyStopping | Checkpoint) else None
        if not isinstance(watched, str):
            continue
        if watched.startswith("valid_") or watched.removesuffix("_best") in scores:
            raise ValueError(
                f"callbacks holds {type(own).__name__} with monitor={own.monitor!r}, but "
                "max_epochs='auto' ends with a training on all samples, without a validation set: "
                "set max_epochs (and validation_fraction); to end the search for it early, set "
                "patience."
            )


def scorers_of_held_out(callbacks):
    """Return the names of callbacks that record nothing where no samples are held out.

    Parameters
    ----------
    callbacks : sequence or None
        Of the estimator.
    """
    return [
        callback[0] if _is_named(callback) else type(_as_instance(callback)).__name__
        for callback in callbacks or ()
        if _scores_held_out(_as_instance(bare_callback(callback)))
    ]


def _as_instance(callback):
    """Return a callback, which may be given as a class."""
    return callback() if isinstance(callback, type) else callback


def _scores_held_out(callback):
    return (
        isinstance(callback, EpochScoring)
        and not callback.on_train
        and type(callback).on_epoch_end is EpochScoring.on_epoch_end
    )


def _score_epoch(callback, net, dataset, y=None):
    """Score the estimator as it is after an epoch, in place of the net, which has no labels."""
    if dataset.target is None:
        raise TypeError(
            f"callbacks holds {type(callback).__name__} with on_train=True, but a Stream has no "
            "training samples by position to score: leave it out, and score others after fit."
        )
    inputs = dataset.inputs
    if getattr(inputs, "training", False):  # as the estimator predicts, without augmentation
        inputs = inputs.subset(np.arange(len(inputs)))
    model = net.as_estimator(inputs)
    scorer = check_scoring(model, callback.scoring_)
    return scorer(model, inputs, model._labels_of(dataset.target))


#: Of a search: epochs without improvement, and batches in them, that are borne at least; and what
#: is an improvement, as shares of the best value and of the first, both of which it exceeds.
LEAST_PATIENCE, LEAST_BATCHES = 8, 40
#: ... batches while nothing was learnt yet: what few columns tell jointly may take hundreds.
LEAST_BATCHES_AT_CHANCE = 500
LEAST_GAIN, LEAST_GAIN_OF_FIRST = 2e-3, 1e-3
#: Batches of a search before which no epoch is the best: the likelihood of a few held-out samples,
#: at the temperature that suits them, may be highest when next to nothing was learnt.
FIRST_BATCHES = 20


class BestEpoch(Callback):
    """Keep the weights of the last epoch with the best score, and stop when none improves it.

    Parameters
    ----------
    monitor : str
        Name of a column of the history; the larger the better, except for "valid_loss".
    patience : int or float, optional
        Number of epochs without improvement after which the net is exhausted. A float, in a
        search, is a share of those that the best took; at least `LEAST_PATIENCE` are borne then,
        and as many as have `LEAST_BATCHES`: an epoch of few samples changes little. No epoch of a
        search is the best before `FIRST_BATCHES`.
    n_last : int, default=1
        Epochs whose mean value is that of the last of them: one that is good by chance, beside
        bad ones, is then not the best.
    chance : float, optional
        Value up to which nothing was learnt: until it is passed, a search bears
        `LEAST_BATCHES_AT_CHANCE` batches.
    """

    def __init__(self, monitor, patience=None, n_last=1, chance=None):
        self.monitor = monitor
        self.patience = patience
        self.n_last = n_last
        self.chance = chance

    def on_train_begin(self, net, **kwargs):
        self.values_ = []
        self.best_ = None
        self.best_epoch_ = self.improved_at_ = None
        self.states_ = None

    def on_epoch_end(self, net, **kwargs):
        value = net.history[-1, self.monitor]
        value = -value if self.monitor == "valid_loss" else value
        value = -math.inf if math.isnan(value) else value
        self.values_ = [*self.values_, value][-self.n_last :]
        value = float(np.mean(self.values_))
        epoch = net.history[-1, "epoch"]
        nothing_yet = self.best_ is None or self._is_early(net, epoch)
        improved = nothing_yet or value > self.best_ + self._least_gain(net)
        if improved:
            self.improved_at_ = epoch
        elif self.patience is not None and epoch - self.improved_at_ >= self._patience(net):
            net.exhausted_ = True
        # Of few held-out samples many epochs are as good, of which later ones have learnt more.
        if improved or (value == self.best_ and not isinstance(self.patience, float)):
            self.best_, self.best_epoch_ = value, epoch
            self.states_ = {name: state_of(module) for name, module in self._parts(net)}

    @staticmethod
    def _parts(net):
        """Return the network, and the loss, whose scores may go by what it has learned."""
        # Estimates of the training samples are many, and nothing is predicted by them.
        return modules_of(net)[: 1 if net.bare_criterion.uses_index else 2]

    def _is_early(self, net, epoch):
        """Return whether no epoch of a search before this one may be the best."""
        n_batches = (epoch - 1) * net.history[-1, "train_batch_count"]
        return isinstance(self.patience, float) and n_batches < FIRST_BATCHES

    def _least_gain(self, net):
        if not isinstance(self.patience, float) or not math.isfinite(self.best_):
            return 0.0
        # Of a likelihood near zero, a share of itself is next to nothing.
        first = net.history[0, self.monitor]
        of_first = LEAST_GAIN_OF_FIRST * abs(first) if math.isfinite(first) else 0.0
        return max(LEAST_GAIN * abs(self.best_), of_first)

    def _patience(self, net):
        if not isinstance(self.patience, float):
            return self.patience
        at_chance = self.chance is not None and self.best_ <= self.chance
        n_batches = LEAST_BATCHES_AT_CHANCE if at_chance else LEAST_BATCHES
        n_epochs = math.ceil(n_batches / net.history[-1, "train_batch_count"])
        return max(int(self.patience * self.best_epoch_), LEAST_PATIENCE, n_epochs)

    def on_train_end(self, net, **kwargs):
        if self.best_ == -math.inf:
            self.best_epoch_ = net.history[-1, "epoch"]
            warn_caller(
                f"{self.monitor} was no finite number after any epoch, so that none is the best: "
                "the last one is kept. Check monitor on the held-out samples, which may lack "
                "classes.",
            )
        elif self.states_ is not None:
            for name, module in self._parts(net):
                put_state(module, **self.states_[name])
        self.states_ = None


class AveragedWeights(Callback):
    """Train at a constant rate, and show the average of the weights in place of the last ones.

    The average weighs the last eighth of the updates most, whatever their number
    (polynomial-decay averaging, [1]_), so that it is as good after any epoch as a falling rate
    makes the weights after the last: the number of epochs need not be known beforehand. From the
    end of an epoch to the next, the module holds the average; what a callback changes then is
    trained on as it is. Of many weights, as those of each word of a text, those of every fourth
    update are averaged, since a pass over them costs as much as a good part of an update.

    References
    ----------
    .. [1] Shamir & Zhang, "Stochastic gradient descent for non-smooth optimization", ICML 2013.
    """

    decay = 8
    warm_up = 50
    many, seldom = 100_000, 4

    def on_train_begin(self, net, **kwargs):
        # Those that are frozen now, too: a callback may unfreeze them later. A tuple, which a
        # checkpoint does not keep.
        self.trained_ = tuple(_averaged(net.module_))
        self.others_ = [p.detach().clone() for p in self.trained_]
        self.shown_, self.n_updates_, self.due_ = False, 0, False
        # An object of its own, which a checkpoint does not keep.
        self.as_shown_ = SimpleNamespace(weights=None)
        self.step_ = self.seldom if sum(p.numel() for p in self.trained_) > self.many else 1
        self.rates_ = [group["lr"] for group in net.optimizer_.param_groups]
        self.warmed_ = list(self.rates_)
        self._set_rates(net)

    def _set_rates(self, net):
        factor = min(1.0, (self.n_updates_ + 1) / self.warm_up)
        for i, (group, rate) in enumerate(zip(net.optimizer_.param_groups, self.rates_)):
            if group["lr"] == self.warmed_[i]:  # else it is what a callback has set since
                group["lr"] = self.warmed_[i] = factor * rate

    def on_update(self, net):
        self.n_updates_ += 1
        self.due_ = True
        if self.n_updates_ <= self.warm_up:
            self._set_rates(net)

    @torch.no_grad()
    def average(self):
        """Take the weights into the average, if there was an update, with what callbacks set."""
        n_averaged, rest = divmod(self.n_updates_ - 1, self.step_)
        if self.due_ and rest == 0:
            share = (self.decay + 1) / (n_averaged + 1 + self.decay)
            torch._foreach_lerp_(self.others_, self.trained_, share)
        self.due_ = False

    def on_epoch_begin(self, net, **kwargs):
        self.take_changes()
        self._show(False)

    def show(self):
        """Put the average into the module."""
        self._show(True)

    def remember(self):
        """Keep what is shown, which callbacks may change."""
        self.as_shown_.weights = [p.detach().clone() for p in self.trained_]

    @torch.no_grad()
    def take_changes(self):
        """Let weights that were changed since they are shown be the last ones too."""
        for shown, other, before in zip(self.trained_, self.others_, self.as_shown_.weights or ()):
            if not torch.equal(shown, before):
                other.copy_(shown)
        self.as_shown_.weights = None

    def on_train_end(self, net, **kwargs):
        self._show(True)
        self.trained_ = self.others_ = self.as_shown_.weights = None

    @torch.no_grad()
    def _show(self, average):
        """Put the average into the module, or the last weights."""
        if average != self.shown_:
            for parameter, other in zip(self.trained_, self.others_):
                parameter.data, other.data = other.data, parameter.data
            self.shown_ = average


def _averaged(module):
    """Yield the weights of a module, and the statistics of normalisation, which follow them."""
    yield from (p for p in module.parameters() if p.is_floating_point() or p.is_complex())
    for part in module.modules():
        if isinstance(part, _NormBase) and part.running_mean is not None:
            yield from (part.running_mean, part.running_var)


class EpochProgress(Shows):
    """Show a progress bar over the epochs, with the losses and the monitored metric."""

    def __init__(self, total, monitor=None):
        self.total = total
        self.monitor = monitor

    def on_train_begin(self, net, **kwargs):
        from tqdm.auto import tqdm

        self.bar_ = tqdm(total=self.total, unit="epoch")

    def on_epoch_end(self, net, **kwargs):
        row = net.history[-1]
        shown = [k for k in ("train_loss", "valid_loss", self.monitor) if k in row]
        self.bar_.set_postfix({k: f"{row[k]:.4g}" for k in shown}, refresh=False)
        self.bar_.update()

    def on_train_end(self, net, **kwargs):
        self.bar_.close()
        del self.bar_


class _Schedule(LRScheduler):
    """Forget torch's scheduler after training, as it holds the optimizer and its state."""

    def on_train_end(self, net, **kwargs):
        self.lr_scheduler_ = None


class _ByUpdate(_Schedule):
    """Step after each update of the weights, for which several batches may be needed."""

    def on_update(self, net):
        self.lr_scheduler_.step()


#: Callbacks of the estimators, which read no batches in the history.
OWN = (AveragedWeights, BestEpoch, EpochProgress, _Schedule)
#: Those that are told of each update of the weights.
BY_UPDATE = (AveragedWeights, _ByUpdate)


class _FromOptimizer:
    """Let a function of the optimizer stand where skorch expects a scheduler class."""

    def __init__(self, function):
        self.function = function

    def __call__(self, optimizer, **kwargs):
        try:
            schedule = self.function(optimizer)
        except Exception as error:
            error.add_note(f"raised by lr_schedule={self.function!r}, called with the optimizer")
            raise
        if not hasattr(schedule, "step"):
            raise TypeError(
                f"lr_schedule={self.function!r} must return a schedule of torch.optim, but "
                f"returned {schedule!r}."
            )
        return schedule


def _one_cycle(optimizer, n_steps):
    rates = [group["lr"] for group in optimizer.param_groups]
    has_momentum = not optimizer.defaults.keys().isdisjoint(("betas", "momentum"))
    return OneCycleLR(optimizer, rates, n_steps, cycle_momentum=has_momentum)


def lr_scheduler(lr_schedule, max_epochs, n_updates):
    """Return the skorch callback of a learning-rate schedule, which starts with each training.

    Parameters
    ----------
    lr_schedule : "averaged", "cosine", "one_cycle", sequence of int, dict or callable
        The last three are epochs at which the rate is divided by ten, the arguments of torch's
        ``MultiStepLR``, and a function from the optimizer to a torch scheduler.
    max_epochs : int
    n_updates : int
        Updates of the weights in an epoch.
    """
    if callable(lr_schedule):
        example = "lambda optimizer: StepLR(optimizer, 5)"
        check_takes("lr_schedule", lr_schedule, "the optimizer", example=example)
        return _Schedule(_FromOptimizer(lr_schedule))
    if isinstance(lr_schedule, dict):
        return _multi_step(lr_schedule)
    if np.ndim(lr_schedule) == 1:
        return _multi_step({"milestones": lr_schedule})
    name = lr_schedule if isinstance(lr_schedule, str) else None
    if name == "cosine":
        return _Schedule("CosineAnnealingLR", T_max=max_epochs, last_epoch=-1)
    if name == "averaged":
        return AveragedWeights()
    if name == "one_cycle":
        cycle = _FromOptimizer(partial(_one_cycle, n_steps=max_epochs * n_updates + 1))
        return _ByUpdate(cycle, step_every="update")
    raise ValueError(
        "lr_schedule must be None, 'auto', 'averaged', 'cosine', 'one_cycle', a sequence of "
        "epochs, a dict of MultiStepLR's arguments or a function of the optimizer, got "
        f"{lr_schedule!r}."
    )


def _multi_step(params):
    """Return the callback of torch's MultiStepLR, or raise if its arguments have no meaning."""
    try:
        inspect.signature(MultiStepLR).bind("optimizer", **params)
    except TypeError as error:
        raise ValueError(
            f"lr_schedule={params!r} is no dict of arguments of MultiStepLR, such as "
            f"{{'milestones': [10, 20], 'gamma': 0.1}}: {error}."
        ) from error
    check_number("gamma in lr_schedule", params.get("gamma", 0.1), 0, inclusive=True)
    milestones = np.asarray(params["milestones"], dtype=object)
    whole = (
        isinstance(m, Integral) and not isinstance(m, bool) and m > 0 for m in milestones.flat
    )
    if milestones.ndim != 1 or not all(whole):
        raise ValueError(
            "lr_schedule must hold epochs, as a sequence of integers from 1, got "
            f"{params['milestones']!r}."
        )
    milestones = milestones.tolist()
    return _Schedule("MultiStepLR", **{"last_epoch": -1, **params, "milestones": milestones})

"""What the deep estimators share: parameters, training, scores."""

import copy
import inspect
import math
import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from .. import training
from .._arrays import on_the_processor
from .._checks import check_takes
from .._randomness import generator_states, own_generators, put_back, rng_state, seeded
from .._validation import undone_if_raised
from .._warnings import warn_caller
from ..inputs import Inputs, is_image
from ..networks import HEADS, build_network
from ..networks._build import asked_normalization
from ..networks._sources import is_built_in
from ..operators import instruction_set
from ..training import is_perceptron
from ._checkpoint import Checkpoint, tell_apart
from ._identity import digest, identity
from ._samples import TakesSamples

#: Scores held at once while predicting.
CHUNK_SIZE = 2**22

#: Between the seed of what is ours and that of code of others.
FOREIGN_SEED_OFFSET = 2**31

#: Packages whose code is known not to draw from torch's generators in a training.
LIBRARIES = ("builtins", "numpy", "skorch", "sklearn", "sksetvalued", "torch")


@contextmanager
def _network_kept_on_error(net):
    """Put the module of a net back as it was, in place, if something is raised.

    The criterion and the optimizer are left alone by a net that goes on, which has its own.
    """
    module = net.bare_module
    # With the memory of each, which tells its device and layout.
    tensors = [
        (name, tensor, tensor.data, tensor.data.clone(), tensor.requires_grad)
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    ]
    plain = training.plain_values(module)
    # Those of the last batch may have a graph.
    loose = [
        (name, tensor, tensor.detach().clone()) for name, tensor in training.plain_tensors(module)
    ]
    generators = generator_states(module)
    extra = [
        (part, copy.deepcopy(part.get_extra_state()))
        for part in module.modules()
        if type(part).get_extra_state is not torch.nn.Module.get_extra_state
    ]
    try:
        yield
    except BaseException:
        for name, tensor, memory, values, trained in tensors:
            tensor.data = memory.copy_(values)
            tensor.requires_grad_(trained)
            part, _, name = name.rpartition(".")
            setattr(module.get_submodule(part), name, tensor)
        training.put_plain_values(module, plain)
        for name, tensor, values in loose:
            training.put_plain_values(module, {name: tensor})
            training.put_buffer(module, name, values)
        for name, own in own_generators(module).items():
            own.__setstate__(generators[name])
        for part, state in extra:
            part.set_extra_state(state)
        raise


@contextmanager
def _network_kept_while_held(model, attributes):
    """Leave the network of a model out of its attributes of before a fit, which would keep it.

    If something is raised while the model still has it, it is one of them again.
    """
    held = weakref.ref(attributes.pop("net_"))
    try:
        yield
    except BaseException:
        if held() is not None and vars(model).get("net_") is held():
            attributes["net_"] = model.net_
        raise


def _from_library(value):
    """Return whether a parameter is data, or code of a library."""
    code = value if isinstance(value, type) or inspect.isroutine(value) else type(value)
    return str(code.__module__).partition(".")[0] in LIBRARIES


def _is_first_process():
    processes = training.current_processes()
    return processes is None or processes.is_first


def _plain(value):
    """Return a path as a string, and a list as a tuple."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    return tuple(value) if isinstance(value, list) else value


def is_named(value, name):
    """Return whether a parameter, which may be an array, is a name."""
    return isinstance(value, str) and value == name


class _HiddenParameter:
    """A parameter that is no attribute.

    Whatever has an attribute called `transform` is a transformer to scikit-learn and its
    pipelines. The parameter of that name is read by `get_params` only.
    """

    def __set_name__(self, owner, name):
        self.name = name

    def __set__(self, instance, value):
        vars(instance)[self.name] = value

    def __get__(self, instance, owner=None):
        raise AttributeError(
            f"{owner.__name__} has no attribute {self.name!r}; "
            f"read the parameter with get_params()[{self.name!r}]."
        )


class DeepEstimator(TakesSamples, BaseEstimator):
    """Base of the estimators that train a network with skorch.

    Subclasses say how targets are encoded, which loss is trained and what is done with the
    scores. The parameters here are the training block of every deep estimator.
    """

    _parameter_constraints = {
        "backbone": "no_validation",
        "backbone_params": [dict, None],
        "weights": "no_validation",
        "normalization": "no_validation",
        "transform": [callable, dict, None],
        "loss": "no_validation",
        "loss_params": [dict, None],
        "max_epochs": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "lr": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "batch_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "optimizer": "no_validation",
        "weight_decay": [Interval(Real, 0, None, closed="left"), None],
        "lr_schedule": "no_validation",
        "validation_fraction": [Interval(Real, 0, 1, closed="neither"), None],
        "monitor": [str, callable],
        "patience": [Interval(Integral, 1, None, closed="left"), None],
        "callbacks": [list, tuple, None],
        "device": "no_validation",
        "precision": [StrOptions({"float32", "bf16"})],
        "compile": ["boolean"],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "net_params": [dict, None],
    }

    transform = _HiddenParameter()

    def __init__(
        self,
        *,
        backbone=None,
        backbone_params=None,
        weights=None,
        normalization=None,
        transform=None,
        max_epochs="auto",
        lr="auto",
        batch_size="auto",
        optimizer="adamw",
        weight_decay=None,
        lr_schedule="auto",
        validation_fraction=None,
        monitor="auto",
        patience=None,
        callbacks=None,
        device="auto",
        precision="float32",
        compile=False,
        warm_start=False,
        random_state=None,
        verbose=0,
        net_params=None,
    ):
        self.backbone = backbone
        self.backbone_params = backbone_params
        self.weights = weights
        self.normalization = normalization
        self.transform = transform
        self.max_epochs = max_epochs
        self.lr = lr
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.lr_schedule = lr_schedule
        self.validation_fraction = validation_fraction
        self.monitor = monitor
        self.patience = patience
        self.callbacks = callbacks
        self.device = device
        self.precision = precision
        self.compile = compile
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.net_params = net_params

    def get_params(self, deep=True):
        """Return the parameters of the estimator.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include the parameters of parameters that are estimators.

        Returns
        -------
        params : dict
        """
        names = self._get_param_names()
        if not vars(self).keys() >= set(names):
            raise ValueError(f"{type(self).__name__} is incomplete, as from a malformed file.")
        params = {name: vars(self)[name] for name in names}
        if deep:
            for name, value in list(params.items()):
                # Transforms of torchvision have a method of that name of their own.
                if isinstance(value, BaseEstimator):
                    nested = value.get_params(deep=True)
                    params |= {f"{name}__{key}": nested[key] for key in nested}
        return params

    def set_params(self, **params):
        """Set parameters of the estimator, or of parameters that are estimators.

        Parameters
        ----------
        **params : dict

        Returns
        -------
        self : object
        """
        known = self.get_params()
        for name in params:
            outer, _, inner = name.partition("__")
            if inner and name not in known and outer in known:
                inside = outer if outer.endswith("_params") else f"{outer}_params"
                where = f"set {outer} itself"
                if inside in known:
                    where = f"give {inside}={{{inner!r}: ...}}, whole, also in a grid"
                elif outer in ("optimizer", "callbacks", "compile"):
                    where = f"give net_params={{{name!r}: ...}}, whole, also in a grid"
                raise ValueError(
                    f"{name} is no parameter of {type(self).__name__}: {outer} is not an "
                    f"estimator; {where}."
                )
        return super().set_params(**params)

    def __sklearn_clone__(self):
        bare = copy.copy(self)
        vars(bare)["transform"] = vars(bare)["callbacks"] = None
        new = super(DeepEstimator, bare).__sklearn_clone__()
        vars(new)["transform"] = copy.deepcopy(vars(self)["transform"])
        vars(new)["callbacks"] = training.copied_callbacks(self.callbacks)
        return new

    def __copy__(self):
        new = object.__new__(type(self))
        vars(new).update(vars(self))
        return new

    def __getstate__(self):
        training.check_movable(self.callbacks)
        return super().__getstate__()

    # -- what subclasses define -------------------------------------------------------------

    _targets = "label"

    #: Parameters of the estimator that are arguments of losses.
    _loss_parameters = ()

    def _loss_supplies(self, n_samples):
        """Return what the loss may ask for, by argument name."""
        set_here = {name: getattr(self, name) for name in self._loss_parameters}
        return {name: value for name, value in set_here.items() if value is not None} | {
            "class_counts": self.class_counts_,
            "n_samples": n_samples,
            "n_classes": len(self.classes_),
        }

    def _check_settings(self):
        """Warn of parameters that were set and that the loss does not have, or gives no weight."""
        for name in self._loss_parameters:
            value = getattr(self, name)
            if isinstance(value, Iterator):
                raise TypeError(
                    f"{name} must be a mapping or a sequence of pairs, which can be read again, "
                    f"got {value!r}."
                )
            why = None if value is None else self._why_unused(name)
            if why is not None:
                warn_caller(
                    f"{name}={value!r} has no effect on loss={self.loss!r}, {why}",
                )

    def _check_set_once(self, where, names, prefix=""):
        given = getattr(self, where)
        for name in names if isinstance(given, Mapping) else ():
            value = getattr(self, name)
            if value is not None and not is_named(value, "auto") and f"{prefix}{name}" in given:
                raise ValueError(
                    f"{name}={value!r} is set twice, as {where} has {prefix + name!r}: "
                    f"{given[prefix + name]!r}; leave one of them out."
                )

    def _why_unused(self, name):
        """Return why a parameter of losses has no effect, or None if it has one."""
        if not training.accepts(self.loss, name, self._targets):
            return "which has no such argument: leave it None, or choose another loss."
        return None

    def _criterion(self, n_samples, generator=None):
        """Return the criterion that trains the network on so many samples."""
        supplied = self._loss_supplies(n_samples) | {"generator": generator}
        return training.make_criterion(self.loss, self.loss_params, supplied, self._targets)

    def _monitor_metric(self):
        """Return the name and the function of the metric that matches the estimator."""
        raise NotImplementedError

    def _labels_of(self, target):
        """Return targets of a TrainingSet as they were given to `fit`."""
        raise NotImplementedError

    def _class_scores(self, output):
        """Return the scores of the classes from an output of the network."""
        return output

    def _combine_views(self, scores):
        """Return one score per class from scores of shape (n, n_views, n_classes)."""
        raise NotImplementedError

    def _combine_monitored_views(self, scores):
        """Return the same for the metric of the estimator's own, which is that of its sets."""
        return self._combine_views(scores)

    def _rank_monitored(self, scores):
        """Return what that metric ranks, from the scores of samples that have no views."""
        return scores

    def __sklearn_is_fitted__(self):
        return hasattr(self, "net_")

    # -- training ---------------------------------------------------------------------------

    def _start_anew(self):
        """Begin a fit of a new network, once samples and labels are found to be in order."""
        self._forget_network()
        self._draw_seed()

    def _forget_network(self):
        """Leave the network of before, and what was found of it, which are not needed any more."""
        vars(self).pop("net_", None)

    def _draw_seed(self):
        """Draw the seed that splits, weights, batches and noise of this fit come from."""
        random_state = check_random_state(self.random_state)
        self._seed = int(random_state.randint(np.iinfo(np.int32).max))

    @property
    def _recipe(self):
        return training.recipe(self.backbone, self.input_shape_, self.weights, self._of_words)

    def _schedule(self):
        return self._recipe.lr_schedule if is_named(self.lr_schedule, "auto") else self.lr_schedule

    def _as_float(self, name):
        try:
            return float(getattr(self, name))
        except OverflowError:
            raise ValueError(
                f"{name} must be a number such as 0.001, got an integer above 1e308."
            ) from None

    def _options(self, resume=None, epochs=1):
        """Return the training parameters, "auto" and None resolved."""
        recipe, in_pieces = self._recipe, resume == "partial_fit"
        decay = None if self.weight_decay is None else self._as_float("weight_decay")
        if decay is None and is_named(self.optimizer, "adamw"):
            decay = recipe.weight_decay
        searched = resume == "search" and self.patience is None
        return training.TrainingOptions(
            optimizer=self.optimizer,
            weight_decay=decay,
            lr=recipe.lr if self.lr == "auto" else self._as_float("lr"),
            lr_schedule=None if in_pieces else self._schedule(),
            default_schedule=is_named(self.lr_schedule, "auto"),
            max_epochs=epochs,
            batch_size=self.batch_size_,
            callbacks=self.callbacks,
            patience=self._search_patience if searched else self.patience,
            n_last=self._search_n_last if searched else 1,
            device=self.device_,
            precision=self.precision,
            compile=self.compile,
            verbose=0 if in_pieces or not _is_first_process() else self.verbose,
            net_params=self.net_params,
        )

    def _begin_fit(self, inputs, targets, resume, path=None):
        """Return the checkpoint of a fit, or None; a fit that goes on has the seed of then.

        Processes that share the fit make sure that it is the same one, with one seed.
        """
        self._warn_of_no_monitor(resume)
        if resume is None and self.warm_start:
            self._warn_of_empty_columns(inputs)
        processes = training.current_processes()
        if path is None and processes is None:
            return None
        if processes is not None and isinstance(self.backbone, torch.nn.Module):
            training.refuse_divided(self.backbone, "backbone")
        targets = {"classes": self.classes_.tolist(), **targets}
        start = self.net_.bare_module if hasattr(self, "net_") else None
        told = tell_apart(self, inputs, targets, start)
        if processes is not None:
            processes.check_same(told | {"checkpoint": path is None, "method": resume})
            self._seed = processes.first(self._seed)
        if path is None:
            return None
        checkpoint = Checkpoint(path, told, processes)
        if checkpoint.seed is not None:
            self._seed = checkpoint.seed
        return checkpoint

    def _close_checkpoint(self, checkpoint):
        """Remove the checkpoint of a fit that is complete."""
        if checkpoint is not None and not self.net_.interrupted_:
            if training.current_processes() is not None:
                training.current_processes().all(None)
            checkpoint.remove()

    def _train(self, train, valid, epochs, resume, checkpoint=None, instead=None):
        """Train the network on a TrainingSet, or train it further.

        Parameters
        ----------
        train : TrainingSet
        valid : TrainingSet or None
        epochs : float or None
            The last epoch may be a part of one. None is what the recipe of the network says.
        resume : {None, "search", "warm_start", "partial_fit"}
            None starts anew, and so does a search for the number of epochs.
        checkpoint : Checkpoint or None
        instead : SetNet or None
            The net that is held where the training is interrupted.
        """
        self.device_ = training.resolve_device(self.device)
        self.batch_size_ = training.resolve_batch_size(
            self.batch_size, train.n_whole, self._recipe
        )
        if epochs is None:
            n_batches = train.n_batches(self.batch_size_)
            length = training.most_epochs if resume == "search" else self._recipe.epochs
            epochs = length(n_batches)
        continued = resume in ("warm_start", "partial_fit") and hasattr(self, "net_")
        lent = None
        if train.inputs.runs_user_code or self._runs_code_of_others(continued):
            lent = self.device_
        keep = None if checkpoint is None else training.KeepState(checkpoint, self._seed, lent)
        with self._randomness(continued, lent) as generator:
            make = self._continued_net if continued else self._new_net
            net = make(train, valid, epochs, resume, generator)
            net.resumable = self.warm_start or resume in ("warm_start", "partial_fit")
            n_before = len(net.history)
            self._run(net, train, valid, epochs, keep, lent)
        net.estimator = None
        n_epochs, n_seen = len(net.history) - n_before, len(train)
        if net.interrupted_ and instead is not None:
            net, n_seen = instead, None
            net.interrupted_ = True
        self._hold(net)
        if net.interrupted_:
            self._report_interrupt(net, train.n_whole, n_seen, n_epochs, math.ceil(epochs))

    def _hold(self, net):
        """Set the attributes that a trained net gives."""
        self.net_ = net
        self.instruction_set_ = instruction_set()
        self.history_ = net.history
        self.n_iter_ = len(net.history)

    @contextmanager
    def _randomness(self, continued, lent):
        """Yield the generator of a training, and keep its state for the next one.

        Code of others, which may draw from torch's generators, finds them seeded: those of the
        device in `lent`, if that is not None.
        """
        state = self._rng_state if continued else {}
        generator = torch.Generator()
        if continued:
            generator.set_state(state["own"])
        else:
            generator.manual_seed(self._seed)
        if lent is None:
            yield generator
        else:
            with seeded(self._seed + FOREIGN_SEED_OFFSET, lent, state if "cpu" in state else None):
                yield generator
                state = rng_state(lent)
        self._rng_state = {**state, "own": generator.get_state()}

    def _runs_code_of_others(self, continued):
        """Return whether code of the user or of torchvision trains, which may draw from torch."""
        backbone = self._network_params["backbone"] if continued else self.backbone
        given = [self.loss, self.optimizer, self.lr_schedule, self.monitor]
        given += map(training.bare_callback, self.callbacks or ())
        return not (is_built_in(backbone) and all(map(_from_library, given)))

    def _run(self, net, train, valid, epochs, keep, lent):
        processes = training.current_processes()
        if processes is not None:
            processes.prepare(net, lent)
        try:
            with training.alone(), training.dead_workers_named():
                net.partial_fit((train, valid), epochs=epochs, keep=keep, processes=processes)
        except torch.OutOfMemoryError as error:
            raise RuntimeError(
                f"The device ran out of memory with batch_size={self.batch_size_}; use a "
                "smaller batch_size, or precision='bf16'."
            ) from error
        except RuntimeError as error:
            self._check_transforms_agree(train, error)
            raise

    def _check_transforms_agree(self, train, error):
        """Raise if a training failed and its samples are of another shape than those to predict.

        Some networks take both.
        """
        if vars(self)["transform"] is None or isinstance(train, training.StreamSet):
            return
        with put_back():
            shape = tuple(train.inputs.take([0]).shape[1:])
        if shape != self.input_shape_:
            raise ValueError(
                f"the network takes samples of shape {self.input_shape_}, as transform gives them "
                f"in evaluation, but not those of shape {shape} in training: let it give both "
                "stages one shape."
            ) from error

    @contextmanager
    def _fitting(self, in_pieces=False):
        """Share a fit among the processes of a group; if something is raised in one, undo it.

        The attributes are then as they were, and so is a network that was trained further, with
        all that its next training starts from. Of a fit that starts anew, the network of before
        is gone once samples and labels are found to be in order, for its memory.
        Yields "warm_start" where the network of before is trained further, else None.
        """
        with (
            on_the_processor(),
            torch.inference_mode(False),
            ExitStack() as undone,
            training.over_processes(),
        ):
            self._validate_params()
            if isinstance(self.backbone, np.ndarray):
                raise TypeError(
                    f"backbone={self.backbone!r} is an array: give the widths of layers as a "
                    f"tuple, {tuple(np.atleast_1d(self.backbone).tolist())}."
                )
            self._check_set_once("loss_params", self._loss_parameters)
            self._check_set_once("net_params", ("lr", "weight_decay"), "optimizer__")
            resume = "warm_start" if self.warm_start and hasattr(self, "net_") else None
            # Until the other processes have ended well too.
            before = undone.enter_context(undone_if_raised(self))
            if hasattr(self, "net_"):
                if in_pieces or resume is not None:
                    undone.enter_context(_network_kept_on_error(self.net_))
                else:
                    undone.enter_context(_network_kept_while_held(self, before))
            yield resume

    def _new_net(self, train, valid, epochs, resume, generator):
        criterion = self._checked_criterion(train, resume, generator)
        statistics = None
        images = is_image(self.input_shape_)
        perceptron = is_perceptron(self.backbone, self.input_shape_)
        if perceptron or images:
            statistics = train.inputs.statistics(train.sample_weight)
        if perceptron and not (resume == "partial_fit" or self.warm_start):
            statistics = self._without_empty_columns(statistics, train.inputs)
            if not isinstance(train, training.StreamSet):  # of which the first rows were seen
                statistics = statistics.without_constants()
        if images:
            self._image_range = statistics[2:]
            self._compare_stages(train.inputs)
        statistics = asked_normalization(self.normalization, self.input_shape_, statistics)
        # They may be changed later, which the network does not follow.
        self._network_params = {
            name: getattr(self, name) for name in ("backbone", "backbone_params", "weights")
        }
        self._network_params["backbone_params"] = self._recipe.backbone_params(
            self.backbone, self.backbone_params or {}, self.input_shape_, train.n_whole
        )
        self._asked = self._what_is_asked()
        module = build_network(
            **self._network_params,
            input_shape=self.input_shape_,
            n_classes=self._n_outputs,
            head=criterion.head,
            normalization=statistics,
            generator=generator,
        )
        if images:
            module.expect_images(compiled=self.compile)
        if getattr(train.inputs, "keep_sparse", False):
            module.expect_sparse_rows()
        return self._make_net(module, criterion, train, valid, epochs, resume, generator)

    def _continued_net(self, train, valid, epochs, resume, generator):
        """Return a net that goes on with the trained module, by the parameters of now."""
        for name in ("backbone", "weights"):
            new, old = _plain(getattr(self, name)), _plain(self._network_params[name])
            if new != old:
                new, old = (
                    repr(value) if isinstance(value, str | tuple | None) else type(value).__name__
                    for value in (new, old)
                )
                warn_caller(
                    f"{name}={new} has no effect: the network that was trained, of {name}={old}, "
                    "is trained further. For another one fit anew, with warm_start=False.",
                )
        for name, told in self._what_is_asked().items():
            if told != self._asked[name]:
                warn_caller(
                    f"{name}={getattr(self, name)!r} has no effect: the network that was trained "
                    "with another value is trained further. For another one fit anew, with "
                    "warm_start=False.",
                )
        self._warn_of_columns_left_out(train.inputs)
        old = self.net_
        module = old.bare_module
        if is_image(self.input_shape_):
            module.expect_images(compiled=self.compile)  # which may have changed
        criterion = self._checked_criterion(train, resume, generator)
        self._check_head(module, criterion)
        training.take_learned(criterion, old.bare_criterion)
        net = self._make_net(module, criterion, train, valid, epochs, resume, generator)
        net.continue_from(old)
        if resume != "partial_fit":
            net.n_earlier = len(old.history)
        return net

    def _what_is_asked(self):
        """Return what tells the parameters of which a network keeps no record."""
        params, normalization = self.backbone_params or None, self.normalization
        asked = {"backbone_params": params, "normalization": normalization}
        return {name: digest(identity(value)) for name, value in asked.items()}

    def _check_head(self, module, criterion):
        if type(module.head) is not HEADS[criterion.head]:
            raise ValueError(
                f"loss={self.loss!r} needs a {criterion.head!r} head, but the network was trained "
                "with a loss of another head: fit anew, with warm_start=False."
            )

    def _checked_criterion(self, train, resume, generator):
        criterion = self._criterion(len(train), generator)
        in_pieces = resume == "partial_fit" or isinstance(train, training.StreamSet)
        if in_pieces and criterion.uses_index:
            raise ValueError(
                f"loss={self.loss!r} keeps an estimate for every training sample, so it "
                "cannot be trained piece by piece or on a stream: use fit with X by position, or "
                "another loss."
            )
        return criterion

    def _make_net(self, module, criterion, train, valid, epochs, resume, generator):
        self._prior_exponent = criterion.prior_exponent
        weight = getattr(criterion, "log_class_weight", None)
        self._log_class_weight = None if weight is None else weight.numpy()
        self._label_smoothing = float(criterion.label_smoothing)
        self._smoothed_towards = criterion.smoothed_towards
        n_batches = train.n_batches(self.batch_size_)
        monitor, options = self._monitor(valid, resume), self._options(resume, math.ceil(epochs))
        net = training.make_net(
            module, criterion, train.inputs, monitor, n_batches, options, generator
        )
        net.estimator = self
        return net

    def _as_of(self, net, inputs):
        """Return the estimator around a net in training, calibrated on `inputs`, to score it."""
        model = copy.copy(self)
        model._hold(net)
        model.history = net.history  # of a scoring that was written for nets of skorch
        return model

    def _warn_of_no_scores(self, resume):
        names = training.scorers_of_held_out(self.callbacks)
        remedy = "set on_train=True"
        if resume != "partial_fit":
            remedy = (
                "set validation_fraction, for example to 0.1, and max_epochs (a fit that finds it "
                "ends with a training on all samples), or on_train=True"
            )
        if names:
            warn_caller(
                f"The callbacks {names} score held-out samples, but this training has none, and "
                f"they record nothing: {remedy}.",
            )

    def _warn_of_no_monitor(self, resume):
        without = {"partial_fit": "partial_fit", "stream": "training on a Stream"}
        watches = self.validation_fraction is not None and resume not in without
        if is_named(self.monitor, "auto") or watches or self._searches_epochs(resume):
            return
        remedy = "set validation_fraction, for example to 0.1, or "
        warn_caller(
            f"monitor={self.monitor!r} has no effect, as {without.get(resume, 'this fit')} holds "
            f"no samples out to watch: {'' if resume in without else remedy}leave monitor='auto'.",
        )

    def _monitor(self, valid, resume=None):
        """Return the monitor of the validation set, if there is one."""
        name, metric = self._monitor_metric()
        if resume == "search" and is_named(self.monitor, "auto"):
            return training.Monitor(*self._search_metric(), self._combine_views, self._chance)
        if not callable(self.monitor) and self.monitor not in ("auto", "valid_loss", name):
            raise ValueError(
                f"monitor={self.monitor!r} is unknown; use 'auto' (here {name!r}), "
                "'valid_loss' or a function (y_true, y_score) -> float."
            )
        if callable(self.monitor):
            example = "lambda y_true, y_score: (y_score.argmax(1) == y_true).mean()"
            check_takes("monitor", self.monitor, "y_true", "y_score", example=example)
        if valid is None:
            self._check_patience(resume)
            self._warn_of_no_scores(resume)
            return None
        if callable(self.monitor):
            return training.Monitor(*self._own_metric(), self._combine_views)
        if self.monitor == "valid_loss":
            return training.Monitor("valid_loss", None)
        return training.Monitor(
            name, metric, self._combine_monitored_views, rank=self._rank_monitored
        )

    def _check_patience(self, resume):
        """Raise if `patience` is set for a training without samples that are held out."""
        if self.patience is None:
            return
        if resume == "partial_fit":
            raise ValueError(
                f"patience={self.patience} needs samples that are held out, which partial_fit "
                "does not do: set patience=None, or use fit."
            )
        # A fit that goes on from one that searched takes as many epochs as that found.
        if not self._searches_epochs(None):
            raise ValueError(
                f"patience={self.patience} needs a validation set: set validation_fraction, for "
                "example to 0.1."
            )

    def _own_metric(self):
        """Return the name of the function in `monitor`, and the metric that it gives."""
        own, name = self.monitor, getattr(self.monitor, "__name__", "monitor")

        def metric(y_true, output, sample_weight):
            value = own(y_true, self._class_scores(output))
            try:
                return float(value)
            except (TypeError, ValueError) as error:
                raise TypeError(
                    f"monitor={name} must return a number, larger for better scores, got "
                    f"{value!r}."
                ) from error

        return name, metric

    def _report_interrupt(self, net, n_samples, n_seen, n_epochs, epochs):
        best = dict(net.callbacks_).get("best_epoch")
        epoch = getattr(best, "best_epoch_", None)
        kept = f"the best epoch so far, {epoch}, is kept" if epoch else "the last state is kept"
        if n_seen is None:
            kept = (
                f"the network that was trained before, to find the number of epochs, is kept, "
                f"after its best epoch, {epoch}; it saw a part of the {n_samples} samples"
            )
        elif n_seen < n_samples:
            kept += f"; that network saw {n_seen} of the {n_samples} samples"
        warn_caller(
            f"Training was interrupted in epoch {n_epochs} of {epochs}; {kept}.",
            ConvergenceWarning,
        )

    # -- scores -----------------------------------------------------------------------------

    def _iter_scores(self, X, largest_chunk=None, apart=False):
        """Yield the scores of X (or of its inputs) in arrays of shape (n_chunk, n_outputs).

        Those of several views of a sample are combined, or left `apart` in a second dimension.
        """
        chunks = self._iter_outputs(X, largest_chunk, apart)
        while True:
            with on_the_processor():  # not where they go to
                scores = next(chunks, None)
            if scores is None:
                return
            yield scores

    def _iter_outputs(self, X, largest_chunk, apart):
        check_is_fitted(self)
        inputs = X if isinstance(X, Inputs) else self._check_inputs(X)
        if largest_chunk is None:
            largest_chunk = 1024 if inputs.kind == "table" else max(self.batch_size_, 32)
        batch_size = int(np.clip(CHUNK_SIZE // self._n_outputs, 16, largest_chunk))
        double = self._predicts_in_double(getattr(inputs, "dtype", None))
        start, options = 0, (training.current_processes(), self.net_params)
        for scores in training.iter_outputs(self.net_, inputs, batch_size, double, *options):
            if scores.ndim == 3 and not apart:
                scores = self._combine_views(scores)
            scores = scores.cpu().numpy()
            self._check_scores(scores, start)
            start += len(scores)
            yield scores

    def _check_scores(self, scores, start):
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(scores.sum()):  # faster than to look at each
                return
        bad = np.isnan(scores).reshape(len(scores), -1).any(1)
        if bad.any():
            raise ValueError(
                f"the scores of sample {start + bad.argmax()} of X are NaN: the sample holds NaN, "
                "or numbers that are infinite or too large for single precision."
            )

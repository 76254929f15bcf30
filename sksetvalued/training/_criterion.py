"""Any torch criterion in the role of a loss."""

import copy
import inspect
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from .._arrays import to_tensor
from .._randomness import own_generators
from .._signatures import parameters_of
from ..losses import LOSSES, SetLoss
from ..losses._base import check_loss, reduce_loss
from ._sized import SizedLoss
from ._state import plain_tensors, plain_values, put_buffer, put_plain_values

#: Criteria that compare scores with indicators one by one.
INDICATOR_CRITERIA = (
    nn.BCELoss,
    nn.BCEWithLogitsLoss,
    nn.HuberLoss,
    nn.KLDivLoss,
    nn.L1Loss,
    nn.MSELoss,
    nn.MultiLabelMarginLoss,
    nn.MultiLabelSoftMarginLoss,
    nn.PoissonNLLLoss,
    nn.SmoothL1Loss,
    nn.SoftMarginLoss,
)


#: Those of classes, which may have weights of their own.
CLASS_CRITERIA = (nn.CrossEntropyLoss, nn.NLLLoss)


def batch_mass(criterion, target, sample_weight=None):
    """Return what the mean of a criterion over a batch divides by.

    That is the number of the samples or the sum of their weights, times those of their classes,
    of zero where they are ignored, in torch's losses of classes.
    """
    if getattr(criterion, "_may_ignore", False) and target.ndim == 1:
        own = criterion.criterion
        mass = target != own.ignore_index
        if own.weight is not None:
            mass = mass * own.weight.to(target.device)[target * mass]
        sample_weight = mass if sample_weight is None else mass * sample_weight
    return len(target) if sample_weight is None else sample_weight.sum()


def sums(criterion):
    """Return whether a criterion adds up what the samples of a batch give."""
    own = trained_by(getattr(criterion, "_orig_mod", criterion))
    return getattr(own, "reduction", "mean") == "sum"


def _unwrapped(criterion):
    """Return the criterion inside of an adapter, or a loss itself."""
    return criterion.criterion if isinstance(criterion, CriterionAdapter) else criterion


def _of_scores(criterion):
    """Return the loss of the scores where that of the numbers of labels comes with it."""
    return criterion.loss if isinstance(criterion, SizedLoss) else criterion


def trained_by(criterion):
    """Return the loss of the scores as the user gave it, inside of a criterion."""
    return _unwrapped(_of_scores(criterion))


class _Values(NamedTuple):
    """What the parts of a loss hold beside parameters."""

    tensors: dict
    plain: dict


def _values_of(module):
    tensors = {name: value.clone().cpu() for name, value in _tensors(module).items()}
    return _Values(tensors, plain_values(module))


def _tensors(module):
    """Return the buffers of a module, and the tensors among the attributes of its parts."""
    tensors = dict(module.named_buffers()) | dict(plain_tensors(module))
    return {name: value.detach() for name, value in tensors.items()}


class CriterionAdapter(nn.Module):
    """Give a torch criterion what estimators ask of a loss.

    Parameters
    ----------
    criterion : nn.Module
        Called as ``criterion(output, target)``. It may declare `head`, `uses_index`,
        `prior_exponent`, `label_smoothing`, `smoothed_towards` and `scores` as a
        :class:`sksetvalued.losses.SetLoss` does; to be weighted by samples, it needs a
        `reduction` that "none" turns off.

    Attributes
    ----------
    log_class_weight : DoubleTensor of shape (n_classes,) or None
        Logarithm of the class weights w of a cross-entropy, whose scores estimate
        log p_y(x) + log w_y; zero for a class of weight zero.
    """

    def __init__(self, criterion):
        super().__init__()
        self.criterion = criterion
        # Layers may have these names, too.
        head = getattr(criterion, "head", None)
        self.head = head if isinstance(head, str) else "linear"
        self.uses_index = getattr(criterion, "uses_index", False)
        self.prior_exponent = getattr(criterion, "prior_exponent", 1.0)
        self.label_smoothing = getattr(criterion, "label_smoothing", 0.0)
        self.smoothed_towards = getattr(criterion, "smoothed_towards", "uniform")
        self._of_log_proba = isinstance(criterion, nn.NLLLoss)
        own = isinstance(criterion, CLASS_CRITERIA)
        self._may_ignore = own and (criterion.weight is not None or criterion.ignore_index >= 0)
        self._start = _values_of(self)

    @property
    def log_class_weight(self):
        weight = self.criterion.weight if isinstance(self.criterion, CLASS_CRITERIA) else None
        if weight is None:
            return None
        weight = weight.detach().cpu().double()
        return torch.where(weight > 0, weight, 1).log()

    def scores(self, output):
        """Return the scores to rank classes by: of a pair, by default, the first."""
        own = getattr(self.criterion, "scores", None)
        if callable(own):
            return own(output)
        return output[0] if isinstance(output, tuple) else output

    def forward(self, input, target, sample_weight=None, **extra):
        """Return the criterion's value, weighted where weights are given."""
        several = not torch.is_tensor(input)
        input = tuple(scores.float() for scores in input) if several else input.float()
        if self._of_log_proba:
            input = input.log_softmax(1)
        if sample_weight is None:
            loss = self._compute(input, target, extra)
        else:
            loss = self._weighted(input, target, sample_weight, extra)
        scores = input[0] if several else input
        check_loss(self.criterion, loss, scores)
        if self._may_ignore and target.ndim == 1 and not batch_mass(self, target, sample_weight):
            return scores.sum() * 0.0  # where torch divides by zero
        return loss

    @property
    def _name(self):
        return type(self.criterion).__name__

    def _compute(self, input, target, extra):
        try:
            return self.criterion(input, target, **extra)
        except torch.OutOfMemoryError:
            raise
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            kind = "class indices" if target.ndim == 1 else "indicators"
            raise ValueError(
                f"loss={self._name} cannot be computed from the scores of the network and {kind} "
                f"of shape {tuple(target.shape)}: {error}"
            ) from error

    def _weighted(self, input, target, sample_weight, extra):
        reduction = getattr(self.criterion, "reduction", None)
        self.criterion.reduction = "none"
        try:
            losses = self._compute(input, target, extra)
        finally:
            self.criterion.reduction = reduction
        if reduction is None or losses.shape[:1] != sample_weight.shape:
            raise ValueError(
                f"loss={self._name} cannot be weighted: for sample_weight, a criterion needs an "
                "attribute `reduction` that, set to 'none', makes it give one value per sample."
            )
        if losses.ndim > 1:  # torch's losses of indicators have one term per label
            losses = losses.flatten(1)
            losses = losses.sum(1) if reduction == "sum" else losses.mean(1)
        if reduction != "mean":
            return reduce_loss(losses, reduction, sample_weight)
        total = reduce_loss(losses, "sum", sample_weight)
        return total / batch_mass(self, target, sample_weight)


def make_criterion(loss, loss_params, supplied, targets="label"):
    """Build the loss of an estimator.

    Parameters
    ----------
    loss : str, nn.Module instance or class
    loss_params : dict or None
    supplied : dict
        What the estimator can give; a loss takes what its constructor names.
    targets : {"label", "indicator"}
        What the loss is given; decides which names are known.

    Raises
    ------
    ValueError
        When the name is unknown, arguments do not fit or are given for an instance, or the
        criterion is not for such targets.
    """
    loss_params = {name: _copied(value) for name, value in (loss_params or {}).items()}
    if isinstance(loss, str):
        loss = _by_name(loss, targets)
    if isinstance(loss, nn.Module):
        if loss_params:
            raise ValueError(
                f"loss_params={loss_params!r} cannot be used with an instance of "
                f"{type(loss).__name__}: set them on the instance, or pass the class."
            )
        loss = copy.deepcopy(loss)
        if isinstance(loss, SetLoss):
            _check_targets(type(loss).__name__, loss, targets)
    elif inspect.isclass(loss) and issubclass(loss, SetLoss):
        _check_targets(loss.__name__, loss, targets)
        loss = loss.from_estimator(supplied, loss_params)
    elif inspect.isclass(loss) and issubclass(loss, nn.Module):
        loss = _build(loss, loss_params)
    else:
        raise TypeError(
            f"loss must be a name, a torch criterion or its class, got {loss!r} "
            f"of type {type(loss).__name__}."
        )
    if isinstance(loss, SetLoss):
        if loss.reduction == "none":
            raise ValueError(
                f"loss={type(loss).__name__} gives a value for each sample, where training needs "
                "one number: set its reduction to 'mean' or 'sum'."
            )
        loss.validate = False
        if not loss.uses_index:  # Estimates of samples take much memory, and do not go on.
            loss._start = _values_of(loss)
        return loss
    if targets == "label" and isinstance(loss, INDICATOR_CRITERIA):
        raise ValueError(
            f"loss={type(loss).__name__} compares scores with indicators, but the targets are "
            "one label per sample: use torch.nn.CrossEntropyLoss or a loss by name."
        )
    return CriterionAdapter(loss.float())


def goes_on(criterion, old):
    """Return whether a criterion takes over what another one has learned.

    Estimates of samples are not carried over: the samples may be others.
    """
    classes = [type(trained_by(part)) for part in (criterion, old)]
    return classes[0] is classes[1] and not criterion.uses_index


def take_learned(criterion, old):
    """Go on with what a criterion of the same class has learned or counted.

    Buffers, numbers and generators that start with other values than they did then were set anew.
    """
    if goes_on(criterion, old):
        criterion, old = _of_scores(criterion), _of_scores(old)
        learned = dict(old.named_parameters())
        for name, parameter in criterion.named_parameters():
            if name in learned and learned[name].shape == parameter.shape:
                parameter.data.copy_(learned[name].data)
        _take_values(criterion, old)
        drawn_from = own_generators(old)
        for name, generator in own_generators(criterion).items():
            if name in drawn_from and drawn_from[name].seed == generator.seed:
                generator.__setstate__(drawn_from[name].__getstate__())


def _take_values(criterion, old):
    """Take over the tensors and numbers of a criterion that started with those of this one."""
    now, then = (getattr(part, "_start", None) for part in (criterion, old))
    if now is None or then is None:
        return
    # A tensor, as a number, may be set for the first time in training.
    for name, learned in _tensors(old).items():
        if _equal(now.tensors.get(name), then.tensors.get(name)):
            put_buffer(criterion, name, learned.clone())
    counted = {
        name: value
        for name, value in plain_values(old).items()
        if now.plain.get(name, now) == then.plain.get(name, now)
    }
    put_plain_values(criterion, counted)


def _equal(start, other):
    """Return whether two tensors, or None, are the same."""
    if start is None or other is None:
        return start is other
    # Those of a network that was copied on a GPU are there, too.
    return start.shape == other.shape and torch.equal(other.to(start.device), start)


def _check_targets(name, loss, targets):
    """Raise unless a loss, or its class, is for such targets."""
    if targets not in loss.targets:
        raise ValueError(
            f"loss={name} is for targets={loss.targets!r}, but here they are of the kind "
            f"{targets!r}: use one of {_names(targets)}, or name the kind in `targets` of a loss "
            "of your own."
        )


def _copied(value):
    """Return a copy of an argument of a loss that training would change, else the argument."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, torch.Generator):
        return torch.Generator(value.device).set_state(value.get_state())
    return value


def _build(cls, params):
    """Return a torch criterion; arrays, such as class weights, become tensors."""
    tensors = {k: to_tensor(v) for k, v in params.items() if isinstance(v, np.ndarray)}
    try:
        return cls(**{**params, **tensors})
    except TypeError as error:
        raise ValueError(
            f"loss_params={params!r} cannot be used with {cls.__name__}: {error}"
        ) from error


def _by_name(name, targets):
    known = _names(targets)
    if name not in known:
        raise ValueError(f"loss={name!r} is unknown; use one of {known} or a torch criterion.")
    return LOSSES[name]


def _names(targets):
    """Return the names of the losses for such targets."""
    return sorted(name for name, cls in LOSSES.items() if targets in cls.targets)


def accepts(loss, argument, targets="label"):
    """Return whether a loss, given by name or class, takes a constructor argument."""
    if isinstance(loss, str):
        loss = _by_name(loss, targets)
    is_class = inspect.isclass(loss) and issubclass(loss, nn.Module)
    return is_class and argument in parameters_of(loss)

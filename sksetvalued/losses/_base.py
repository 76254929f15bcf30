"""What every loss shares: validation, reduction, weights, and what it asks of an estimator."""

import inspect
from functools import partial
from numbers import Number

import torch
from torch import nn
from torch.nn import functional as F

from .._checks import LARGEST, SMALLEST, check_class_counts, check_option
from .._signatures import parameters_of
from ..operators._dispatch import is_eager
from ..operators._precision import at_least_float32, without_autocast

__all__ = ["LOSSES", "SetLoss"]

REDUCTIONS = ("mean", "sum", "none")
#: Losses that weights may multiply in single precision.
LARGEST_LOSS = 1e8
#: Whole numbers that doubles tell from their neighbours are smaller.
LARGEST_WHOLE = 2**53

#: The cross-entropy of each sample. The target that torch would give a loss of zero, -100, is no
#: class here.
softmax_losses = partial(F.cross_entropy, reduction="none", ignore_index=-(2**63))

#: Losses that estimators accept by name, filled by the subclasses of :class:`SetLoss`.
LOSSES = {}


def check_reduction(reduction):
    """Raise ValueError unless `reduction` is one that torch knows."""
    check_option("reduction", reduction, REDUCTIONS)


def check_scores(input):
    """Raise unless `input` holds floating-point scores of shape (n_samples, n_classes)."""
    check_tensor(input, "input")
    if input.ndim != 2:
        raise ValueError(
            "input must hold scores of shape (n_samples, n_classes), "
            f"got a tensor of shape {tuple(input.shape)}."
        )
    if not input.is_floating_point():
        raise TypeError(
            f"input must hold floating-point scores, got {input.dtype}; "
            "convert them, as by input.float()."
        )


def check_tensor(value, name):
    """Raise unless `value` is a tensor."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{name} must be a tensor, got {type(value).__name__}; torch.as_tensor makes one."
        )


def check_shapes(input, target):
    """Raise unless `input` is (n_samples, n_classes) and `target` holds an integer per row."""
    check_scores(input)
    check_tensor(target, "target")
    if target.shape != input.shape[:1]:
        raise ValueError(
            f"target must have shape ({input.shape[0]},), one class index per row of input, "
            f"got {tuple(target.shape)}."
        )
    if target.dtype != torch.int64 and not holds_integers(target):
        raise TypeError(f"target must hold class indices as integers, got {target.dtype}.")


def counts_of_loss(class_counts):
    """Return a copy of the counts, checked: whole ones as integers, which `half` leaves alone."""
    counts = check_class_counts(class_counts).detach().clone()
    if not counts.is_floating_point() or counts.is_meta:
        return counts
    single = counts.float()
    if not single.min() / single.sum() >= SMALLEST or single.sum() == torch.inf:
        raise ValueError(
            "class_counts must have a sum, and a smallest share of it, of single precision, got "
            f"counts in [{counts.min():g}, {counts.max():g}]: drop the rarest classes, or give "
            "samples weights that differ less and are near one."
        )
    whole = (counts % 1 == 0) & (counts < LARGEST_WHOLE)
    return counts.long() if bool(whole.all()) else counts


def holds_integers(x):
    """Return whether a tensor is of an integer type."""
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def check_range(input, target):
    """Raise unless `target` holds indices of the classes of `input`."""
    # On an accelerator the range is left to the kernels: looking would wait for the device, as
    # it would break the graph of torch.compile, and cannot be done under torch.vmap.
    if target.is_cpu and target.numel() and is_eager(target):
        low, high = torch.aminmax(target.long())
        low, high = low.item(), high.item()
        if low < 0 or high >= input.shape[1]:
            raise ValueError(
                f"target must lie in [0, {input.shape[1] - 1}] for scores of "
                f"{input.shape[1]} classes, got values in [{low}, {high}]."
            )


def check_scores_and_target(input, target):
    """Raise unless `input` is (n_samples, n_classes) and `target` holds its class indices."""
    check_shapes(input, target)
    check_range(input, target)


def check_several(input):
    """Raise unless there are scores of at least two classes."""
    if input.shape[1] < 2:
        raise ValueError(
            f"input must hold scores of at least two classes, got {input.shape[1]}: of two "
            "classes, too, each has a score."
        )


def check_one_each(name, values, input):
    """Raise unless there is a value for each of the classes of `input`."""
    if len(values) != input.shape[1]:
        raise ValueError(
            f"{name} must have one entry for each of the {input.shape[1]} classes of input, got "
            f"{len(values)}."
        )


def check_weight_tensor(sample_weight, input):
    """Raise unless `sample_weight` is None or a non-negative number for each row of `input`."""
    if sample_weight is None:
        return
    check_tensor(sample_weight, "sample_weight")
    if sample_weight.shape != input.shape[:1]:
        raise ValueError(
            f"sample_weight must have shape (n_samples,), ({input.shape[0]},) here, "
            f"got {tuple(sample_weight.shape)}."
        )
    if sample_weight.is_complex():
        raise TypeError("sample_weight must hold real numbers, got complex ones.")
    # As for the range of the targets, no device is waited for.
    if sample_weight.is_cpu and sample_weight.numel() and is_eager(sample_weight):
        low, high = torch.aminmax(sample_weight)
        low, high = low.item(), high.item()
        if not (low >= 0 and high < float("inf")):
            raise ValueError(
                f"sample_weight must be finite and non-negative, got values in [{low}, {high}]."
            )
        # Losses that the weights multiply may themselves be large.
        if high and not SMALLEST <= high <= LARGEST / LARGEST_LOSS / sample_weight.numel():
            raise ValueError(
                f"sample_weight must have a sum, and a largest entry, of single precision, times "
                f"losses of up to {LARGEST_LOSS:g}, got values in [{low}, {high}]: divide it by "
                "its mean."
            )


def without_left_out(input, sample_weight):
    """Return the scores with zeros for samples of weight zero, whatever they were.

    Their losses are then finite, so that they add nothing, and have no gradient.
    """
    if sample_weight is None:
        return input
    kept = sample_weight > 0
    # The copy takes as long as some losses. Elsewhere a device would be waited for.
    if kept.is_cpu and is_eager(kept) and kept.all():
        return input
    return torch.where(kept[:, None], input, 0)


def reduce_loss(loss, reduction="mean", sample_weight=None):
    """Weigh and reduce the losses of the samples.

    Parameters
    ----------
    loss : Tensor of shape (n_samples,)
    reduction : {"mean", "sum", "none"}
        "mean" divides by the sum of the weights.
    sample_weight : Tensor of shape (n_samples,), optional
    """
    check_reduction(reduction)
    if sample_weight is not None:
        sample_weight = sample_weight.to(loss.dtype)
        loss = loss * sample_weight
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    if sample_weight is None:
        return loss.mean()
    return loss.sum() / sample_weight.sum()


def check_loss(criterion, loss, output):
    """Raise unless a loss is a number, with a gradient where that of the scores is tracked.

    Parameters
    ----------
    criterion : nn.Module
        What gave the loss.
    loss : object
    output : Tensor or tuple of Tensors
        What the loss was computed from.
    """
    scores = output if torch.is_tensor(output) else output[0]
    if not torch.is_tensor(loss):
        raise TypeError(
            f"loss={_name_of(criterion)} must give a tensor, but gave {loss!r:.80} of type "
            f"{type(loss).__name__}."
        )
    if scores.requires_grad and torch.is_grad_enabled() and not loss.requires_grad:
        raise ValueError(
            f"loss={_name_of(criterion)} has no gradient: compute it from the scores by "
            "operations of torch, not on detached or converted copies of them."
        )
    if loss.ndim:
        raise ValueError(
            f"loss={_name_of(criterion)} must give one number per batch, but gave a tensor of "
            f"shape {tuple(loss.shape)}: set its reduction to 'mean' or 'sum'."
        )


def _name_of(criterion):
    return type(getattr(criterion, "_orig_mod", criterion)).__name__


class SetLoss(nn.Module):
    """Base class of the losses.

    A subclass implements :meth:`sample_losses`; validation, half precision, weights and
    reduction are handled here. Class attributes declare what the loss asks of an estimator,
    which reads them and nothing else, so that a new loss touches one file. Constructor
    arguments called ``k``, ``class_counts``, ``n_samples``, ``generator``, or like a parameter of
    the estimator, are supplied by the estimator unless the user sets them in ``loss_params``;
    so are those that a constructor hands on by ``**kwargs``.

    Parameters
    ----------
    reduction : {"mean", "sum", "none"}, default="mean"
        How the losses of the samples are combined.

    Attributes
    ----------
    head : {"linear", "cosine", "two_head"}
        The head that the network needs. The two-head network returns a pair of scores, for
        which a loss defines `forward`; the first ranks classes unless `scores` says otherwise.
    uses_index : bool
        Whether `forward` needs ``index``, the positions of the samples in the training set.
    prior_exponent : float
        Power of the class prior left in the scores of a network trained with this loss:
        1 when ``softmax(scores)`` estimates p_y(x), 0 when it estimates p_y(x)/prior_y
        up to normalisation.
    label_smoothing : float
        Share of each label that the loss spreads over all classes: estimators take it back out
        of the probabilities that their rules use.
    smoothed_towards : {"uniform", "prior"}
        How it is spread: evenly, or by the class frequencies of the training set, which leaves
        the ratios to the prior in their order.
    targets : tuple of {"label", "indicator"}
        Whether targets are class indices, or indicators of shape (n_samples, n_classes).
    validate : bool
        Whether `forward` checks its arguments. An estimator checks them once, before training.
    real_k : bool
        Whether `k` may be any real number; otherwise an estimator's k is rounded for the loss.
    ranked_by : {"scores", "probabilities", "shares"}
        Of a loss for label sets, what compares between samples, for one threshold: the scores;
        or, where these leave a constant of each sample undetermined, the probabilities of the
        labels by their projections, or the shares of the labels in one unit.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import SetLoss
    >>> class SquaredHingeLoss(SetLoss):
    ...     def sample_losses(self, input, target):
    ...         own = input.gather(1, target[:, None]).squeeze(1)
    ...         return torch.relu(1 - own).square()
    >>> SquaredHingeLoss(reduction="sum")(torch.zeros(3, 5), torch.tensor([0, 1, 2]))
    tensor(3.)
    """

    head = "linear"
    uses_index = False
    prior_exponent = 1.0
    label_smoothing = 0.0
    smoothed_towards = "uniform"
    targets = ("label",)
    validate = True
    real_k = False
    ranked_by = "scores"

    def __init_subclass__(cls, name=None, **kwargs):
        super().__init_subclass__(**kwargs)
        if name is not None:
            LOSSES[name] = cls

    def __init__(self, reduction="mean"):
        super().__init__()
        check_reduction(reduction)
        self.reduction = reduction

    def _apply(self, fn, recurse=True):
        # Counts that are no whole numbers move between devices, but keep their precision.
        counts = self._buffers.get("class_counts")
        super()._apply(fn, recurse)
        if counts is not None and self.class_counts.dtype != counts.dtype:
            self.class_counts = counts.to(self.class_counts.device)
        return self

    @classmethod
    def from_estimator(cls, supplied, loss_params):
        """Build the loss from what an estimator supplies and what its user sets.

        Parameters
        ----------
        supplied : dict
            Values by argument name; those that the constructor neither takes nor hands on by
            ``**kwargs``, and None, are left out.
        loss_params : dict
            Arguments set by the user; they win.
        """
        known = parameters_of(cls)
        unknown = sorted(set(loss_params) - set(known))
        if unknown:
            raise ValueError(
                f"loss_params has unknown keys {unknown} for {cls.__name__}; "
                f"it accepts {sorted(known)}."
            )
        taken = {k: v for k, v in supplied.items() if k in known and v is not None}
        if "k" in taken and not cls.real_k:
            taken["k"] = max(1, round(taken["k"]))
        try:
            return cls(**{**taken, **loss_params})
        except TypeError as error:
            if "multiple values" not in str(error):
                raise
            raise ValueError(
                f"{cls.__name__} sets what the estimator supplies, too ({error}): name it among "
                "the arguments of the constructor, or give an instance as loss."
            ) from error

    def _load_from_state_dict(self, state_dict, prefix, *others):
        # Whole counts are integers, which would cut off the fractions of others.
        for name, buffer in self._buffers.items():
            given = state_dict.get(prefix + name)
            if buffer is not None and isinstance(given, torch.Tensor) and holds_integers(buffer):
                self._buffers[name] = buffer.to(torch.promote_types(buffer.dtype, given.dtype))
        super()._load_from_state_dict(state_dict, prefix, *others)

    def extra_repr(self):
        """Return the arguments of the constructor that are numbers, strings or pairs."""
        stored = vars(self)
        shown = {name: stored.get(name) for name in inspect.signature(type(self)).parameters}
        kinds = Number | str | tuple
        return ", ".join(f"{k}={v!r}" for k, v in shown.items() if isinstance(v, kinds))

    def scores(self, output):
        """Return the scores to rank classes by.

        Parameters
        ----------
        output : Tensor or tuple of Tensors
            What the network returns: scores of shape (n_samples, n_classes), or a pair of them
            when `head` is "two_head".

        Returns
        -------
        scores : Tensor of shape (n_samples, n_classes)
            Of a pair, the first.
        """
        return output[0] if isinstance(output, tuple) else output

    def check(self, input, target):
        """Raise unless the arguments of `forward` fit together.

        Parameters
        ----------
        input : Tensor of shape (n_samples, n_classes)
        target : LongTensor of shape (n_samples,)
        """
        check_scores_and_target(input, target)

    def sample_losses(self, input, target):
        """Return the loss of each sample; subclasses define it.

        Parameters
        ----------
        input : Tensor of shape (n_samples, n_classes)
            Scores, in single precision or better.
        target : LongTensor of shape (n_samples,)

        Returns
        -------
        losses : Tensor of shape (n_samples,)

        Raises
        ------
        NotImplementedError
            If the class defines none, as where the samples of a batch are coupled.
        """
        raise NotImplementedError(
            f"{type(self).__name__} defines no sample_losses: call the loss itself, with "
            'reduction="none" for terms whose mean is the loss; a loss of your own defines '
            "sample_losses or forward."
        )

    def forward(self, input, target, sample_weight=None):
        """Return the reduced loss.

        Parameters
        ----------
        input : Tensor of shape (n_samples, n_classes)
            Scores (logits).
        target : LongTensor of shape (n_samples,)
            Class indices, of any integer type; or, where `targets` names them, indicators of
            shape (n_samples, n_classes).
        sample_weight : Tensor of shape (n_samples,), optional
            Non-negative weights. A weight of 0 leaves the sample out, whatever its scores are.

        Returns
        -------
        loss : Tensor
            Of shape (n_samples,) with ``reduction="none"``, else a scalar.
        """
        if isinstance(input, tuple):
            raise TypeError(
                f"input of {type(self).__name__} is a pair of scores: sample_losses takes one "
                "tensor of scores, so a loss on the pairs of a two-head network defines forward."
            )
        if self.validate:
            self.check(input, target)
        if sample_weight is not None:
            if self.validate:
                check_weight_tensor(sample_weight, input)
            input = without_left_out(input, sample_weight)
        if target.ndim == 1:
            target = target.long()
        with without_autocast(input.device):
            losses = self.sample_losses(at_least_float32(input), target)
        if getattr(losses, "shape", None) != input.shape[:1]:
            got = tuple(losses.shape) if torch.is_tensor(losses) else type(losses).__name__
            raise ValueError(
                f"{type(self).__name__}.sample_losses must return a tensor of shape (n_samples,), "
                f"({input.shape[0]},) here, one loss for each row of input, got {got}."
            )
        return reduce_loss(losses, self.reduction, sample_weight)

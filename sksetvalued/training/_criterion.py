"""Any torch criterion in the role of a loss."""

import copy
import inspect

from torch import nn

from ..losses import LOSSES, SetLoss
from ..losses._base import reduce_loss


class CriterionAdapter(nn.Module):
    """Give a torch criterion what estimators ask of a loss.

    Parameters
    ----------
    criterion : nn.Module
        Called as ``criterion(output, target)``. It may declare `head`, `uses_index`,
        `prior_exponent` and `scores` as a :class:`sksetvalued.losses.SetLoss` does.
    """

    def __init__(self, criterion):
        super().__init__()
        self.criterion = criterion
        self.head = getattr(criterion, "head", "linear")
        self.uses_index = getattr(criterion, "uses_index", False)
        self.prior_exponent = getattr(criterion, "prior_exponent", 1.0)

    def scores(self, output):
        """Return the scores to rank classes by."""
        own = getattr(self.criterion, "scores", None)
        return output if own is None else own(output)

    def forward(self, input, target, sample_weight=None, **extra):
        """Return the criterion's value, weighted where weights are given."""
        if sample_weight is None:
            return self.criterion(input, target, **extra)
        reduction = self.criterion.reduction
        self.criterion.reduction = "none"
        try:
            losses = self.criterion(input, target, **extra)
        finally:
            self.criterion.reduction = reduction
        if losses.ndim > 1:  # torch's losses of indicators have one term per label
            losses = losses.flatten(1)
            losses = losses.sum(1) if reduction == "sum" else losses.mean(1)
        return reduce_loss(losses, reduction, sample_weight)


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
        When the name is unknown, or arguments are given for an instance.
    """
    loss_params = dict(loss_params or {})
    if isinstance(loss, str):
        loss = _by_name(loss, targets)
    if isinstance(loss, nn.Module):
        if loss_params:
            raise ValueError(
                f"loss_params={loss_params!r} cannot be used with an instance of "
                f"{type(loss).__name__}: set them on the instance, or pass the class."
            )
        loss = copy.deepcopy(loss)
    elif inspect.isclass(loss) and issubclass(loss, SetLoss):
        loss = loss.from_estimator(supplied, loss_params)
    elif inspect.isclass(loss) and issubclass(loss, nn.Module):
        loss = loss(**loss_params)
    else:
        raise TypeError(
            f"loss must be a name, a torch criterion or its class, got {loss!r} "
            f"of type {type(loss).__name__}."
        )
    if not isinstance(loss, SetLoss):
        return CriterionAdapter(loss)
    loss.validate = False
    return loss


def _by_name(name, targets):
    known = {key: cls for key, cls in LOSSES.items() if targets in cls.targets}
    if name not in known:
        raise ValueError(
            f"loss={name!r} is unknown; use one of {sorted(known)} or a torch criterion."
        )
    return known[name]


def accepts(loss, argument, targets="label"):
    """Return whether a loss, given by name or class, takes a constructor argument."""
    if isinstance(loss, str):
        loss = _by_name(loss, targets)
    return inspect.isclass(loss) and argument in inspect.signature(loss).parameters

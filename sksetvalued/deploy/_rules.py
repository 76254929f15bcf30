"""The rules as modules: from the scores that a rule is given to the mask of the sets."""

import numpy as np
import torch
from torch import nn

from ..rules import AverageError, AverageK, PointwiseError, TopK
from . import _masks


class _RuleModule(nn.Module):
    """Base of the modules of the rules.

    Numbers that are compared with scores are buffers in double precision: an ONNX file would
    round a plain number to single precision.
    """

    def __init__(self, rule):
        super().__init__()
        self.log_scores = rule.log_scores
        logs = rule.log_scores and rule.prior_ is not None
        self._keep("prior", np.log(rule.prior_) if logs else rule.prior_)

    def _keep(self, name, value):
        value = None if value is None else np.array(value, dtype=np.float64)
        self.register_buffer(name, None if value is None else torch.from_numpy(value))

    def rank(self, scores):
        """Return what the rule ranks and thresholds."""
        if self.prior is None:
            return scores
        return scores - self.prior if self.log_scores else scores / self.prior


class _TopK(_RuleModule):
    def __init__(self, rule):
        super().__init__(rule)
        self.k = rule._k

    def forward(self, scores):
        return _masks.top_k(self.rank(scores), self.k)


class _Threshold(_RuleModule):
    sizes = (0, None)

    def __init__(self, rule, threshold):
        super().__init__(rule)
        self._keep("threshold", threshold)

    def forward(self, scores):
        return _masks.at_least(self.rank(scores), self.threshold, *self.sizes)


class _AverageK(_Threshold):
    def __init__(self, rule):
        super().__init__(rule, rule.threshold_)
        self.sizes = rule._bounds


class _AverageError(_Threshold):
    def __init__(self, rule):
        by_class = rule._promise[1] == "class"
        super().__init__(rule, rule.thresholds_ if by_class else rule.threshold_)


class _Pointwise(_RuleModule):
    def __init__(self, rule):
        super().__init__(rule)
        # As in the rule, a sum that falls short by rounding reaches.
        self._keep("wanted", 1 - rule._error - 8 * np.finfo(np.float64).eps)

    def forward(self, scores):
        return _masks.until_sum(scores.exp() if self.log_scores else scores, self.wanted)


#: The module of each rule. Subclasses, whose sets may be others, have none.
MODULES = {
    TopK: _TopK,
    AverageK: _AverageK,
    AverageError: _AverageError,
    PointwiseError: _Pointwise,
}


def rule_module(rule):
    """Return the module of a fitted rule, for scores in double precision.

    Raises
    ------
    TypeError
        If the rule is none of the package's.
    """
    if type(rule) not in MODULES:
        raise TypeError(
            f"{type(rule).__name__} cannot be exported: it has no graph, as "
            f"{', '.join(cls.__name__ for cls in MODULES)} have."
        )
    return MODULES[type(rule)](rule)

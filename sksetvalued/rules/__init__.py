"""Rules that turn scores into sets of classes."""

from ._average_error import AverageError
from ._cost import cost_scores
from ._pointwise_error import PointwiseError
from ._size import AverageK, TopK

#: The rules by the names under which files hold them.
RULES = {rule.__name__: rule for rule in (AverageError, AverageK, PointwiseError, TopK)}

# Files of other libraries name classes by their modules: by those that stay.
for _rule in RULES.values():
    _rule.__module__ = __name__

__all__ = ["AverageError", "AverageK", "PointwiseError", "TopK", "cost_scores"]

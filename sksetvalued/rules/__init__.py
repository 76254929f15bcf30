"""Rules that turn scores into sets of classes."""

from ._average_error import AverageError
from ._cost import cost_scores
from ._pointwise_error import PointwiseError
from ._size import AverageK, TopK

# Files of other libraries name classes by their modules: by those that stay.
for _rule in (AverageError, AverageK, PointwiseError, TopK):
    _rule.__module__ = __name__

__all__ = ["AverageError", "AverageK", "PointwiseError", "TopK", "cost_scores"]

"""Rules that turn scores into sets of classes."""

from ._average_error import AverageError
from ._pointwise_error import PointwiseError
from ._size import AverageK, TopK

__all__ = ["AverageError", "AverageK", "PointwiseError", "TopK"]

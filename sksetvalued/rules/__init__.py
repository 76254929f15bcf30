"""Rules that turn scores into sets of classes."""

from ._error import AverageError, PointwiseError
from ._size import AverageK, TopK

__all__ = ["AverageError", "AverageK", "PointwiseError", "TopK"]

"""Fitted classifiers as one graph, from a raw batch to sets, for programs without this package."""

from ._files import export
from ._module import to_torch

__all__ = ["export", "to_torch"]

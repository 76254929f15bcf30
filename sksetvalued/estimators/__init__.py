"""The estimators: scikit-learn's contract over losses, networks and rules."""

from ._average_k import AverageKClassifier
from ._persistence import load, save, trusted_types
from ._plug_in import PlugInClassifier
from ._sparse_top import SparseTopClassifier
from ._top_k import TopKClassifier

__all__ = [
    "AverageKClassifier",
    "PlugInClassifier",
    "SparseTopClassifier",
    "TopKClassifier",
    "load",
    "save",
    "trusted_types",
]

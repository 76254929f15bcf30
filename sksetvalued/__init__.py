"""Set-valued classification with deep networks, the scikit-learn way."""

from ._predict import predict_labels, predict_set
from ._version import __version__
from .deploy import export, to_torch
from .estimators import (
    AverageKClassifier,
    PlugInClassifier,
    SparseTopClassifier,
    TopKClassifier,
    load,
    save,
)

__all__ = [
    "AverageKClassifier",
    "PlugInClassifier",
    "SparseTopClassifier",
    "TopKClassifier",
    "__version__",
    "export",
    "load",
    "predict_labels",
    "predict_set",
    "save",
    "to_torch",
]

"""Set-valued classification with deep networks, the scikit-learn way."""

from ._average_k import AverageKClassifier
from ._persistence import load, save
from ._plug_in import PlugInClassifier
from ._sets import predict_labels, predict_set
from ._sparse_top import SparseTopClassifier
from ._top_k import TopKClassifier

__version__ = "0.1.0"

__all__ = [
    "AverageKClassifier",
    "PlugInClassifier",
    "SparseTopClassifier",
    "TopKClassifier",
    "__version__",
    "load",
    "predict_labels",
    "predict_set",
    "save",
]

"""Set-valued classification with deep networks, the scikit-learn way."""

from ._calibrate import calibrate, calibrate_part, cross_val_predict_set, merge_parts
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
    trusted_types,
)
from .inputs import Stream

# Files of other libraries name classes by their modules: by those that stay.
for _estimator in (AverageKClassifier, PlugInClassifier, SparseTopClassifier, TopKClassifier):
    _estimator.__module__ = __name__

__all__ = [
    "AverageKClassifier",
    "PlugInClassifier",
    "SparseTopClassifier",
    "Stream",
    "TopKClassifier",
    "__version__",
    "calibrate",
    "calibrate_part",
    "cross_val_predict_set",
    "export",
    "load",
    "merge_parts",
    "predict_labels",
    "predict_set",
    "save",
    "to_torch",
    "trusted_types",
]

"""Metrics, scorers and displays of set-valued classification."""

from ._coverage_size_display import CoverageSizeDisplay
from ._intervals import coverage_interval
from ._metrics import (
    average_k_accuracy_score,
    average_k_threshold,
    average_set_size,
    set_coverage_score,
    set_size_distribution,
    shot_coverage_score,
    top_k_accuracy_score,
)
from ._report import SetReport
from ._scorers import (
    SCORERS,
    average_k_scorer,
    set_coverage_scorer,
    set_size_scorer,
    top_k_scorer,
)
from ._set_size_display import SetSizeDisplay

# Files of other libraries name classes by their modules: by those that stay.
for _scorer in SCORERS:
    _scorer.__module__ = __name__
    globals()[_scorer.__name__] = _scorer

__all__ = [
    "CoverageSizeDisplay",
    "SetReport",
    "SetSizeDisplay",
    "average_k_accuracy_score",
    "average_k_scorer",
    "average_k_threshold",
    "average_set_size",
    "coverage_interval",
    "set_coverage_score",
    "set_coverage_scorer",
    "set_size_distribution",
    "set_size_scorer",
    "shot_coverage_score",
    "top_k_accuracy_score",
    "top_k_scorer",
]

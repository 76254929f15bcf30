"""Data whose best sets are known, protocols of the papers, and published layouts."""

from ._ambiguous import make_ambiguous_classification
from ._noise import corrupt_labels
from ._plantnet import load_plantnet300k
from ._splits import long_tail_indices, train_val_test_indices

__all__ = [
    "corrupt_labels",
    "load_plantnet300k",
    "long_tail_indices",
    "make_ambiguous_classification",
    "train_val_test_indices",
]

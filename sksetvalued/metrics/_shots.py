"""Groups of classes by their number of training samples ("shots")."""

import numpy as np

from .._arrays import as_numbers
from .._checks import check_in_order

#: Classes of fewer training samples are "few", of more "many".
FEWEST_MEDIUM, MOST_MEDIUM = 20, 100
GROUPS = ("few", "medium", "many")
#: How displays call them.
GROUP_NAMES = (
    f"few (< {FEWEST_MEDIUM} training samples)",
    f"medium ({FEWEST_MEDIUM} to {MOST_MEDIUM})",
    f"many (> {MOST_MEDIUM})",
)


def shot_groups(columns, class_counts):
    """Return the position in `GROUPS` of classes with these columns.

    Parameters
    ----------
    columns : ndarray of int
        -1 for a class without a column, which has no training samples.
    class_counts : ndarray of shape (n_classes,)
        Training samples of the class of each column.
    """
    counts = np.where(columns >= 0, class_counts[columns], 0)
    return (counts >= FEWEST_MEDIUM).astype(int) + (counts > MOST_MEDIUM)


def check_training_counts(class_counts, labels):
    """Return the training samples of the classes with these labels, as an array."""
    check_in_order(class_counts, "class_counts", labels, "labels")
    class_counts = as_numbers(class_counts, "class_counts")
    if class_counts.shape != labels.shape:
        raise ValueError(
            f"class_counts must have shape {labels.shape}, one count per column of y_set, "
            f"got {class_counts.shape}."
        )
    wrong = ~(np.isfinite(class_counts) & (class_counts >= 0))
    if wrong.any():
        raise ValueError(
            "class_counts must be finite and >= 0, but at columns "
            f"{np.flatnonzero(wrong)[:5].tolist()} it holds {class_counts[wrong][:5].tolist()}. "
            "Give the number of training samples of each class."
        )
    return class_counts

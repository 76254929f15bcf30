"""From whatever a user passes as X to batches of tensors."""

import os

import numpy as np
import scipy.sparse as sp
import torch
from torch.utils.data import Dataset

from ._base import Inputs
from ._tables import ArrayInputs, SparseInputs

__all__ = ["ArrayInputs", "Inputs", "SparseInputs", "input_kind", "media_inputs", "table_inputs"]


def input_kind(X):
    """Return what X is: "table", "image", "path" or "dataset".

    Whatever is none of the last three is taken for a table, and validated as one.
    """
    if isinstance(X, Dataset):
        return "dataset"
    if sp.issparse(X) or hasattr(X, "columns"):
        return "table"
    first = next(iter(X), None) if isinstance(X, (list, tuple)) else None
    if isinstance(first, (str, os.PathLike)):
        return "path"
    shape = np.shape(X) if not hasattr(X, "shape") else X.shape
    if len(shape) == 1 and shape[0] and _holds_paths(X):
        return "path"
    return "image" if len(shape) > 2 else "table"


def _holds_paths(X):
    values = np.asarray(X) if not isinstance(X, torch.Tensor) else np.empty(0)
    if values.dtype.kind in "UT":
        return True
    return values.dtype == object and isinstance(values[0], (str, os.PathLike))


def media_inputs(X, kind, transform=None):
    """Return the inputs of images, image paths or a torch Dataset.

    Parameters
    ----------
    X : array, tensor, sequence of paths or Dataset
    kind : {"image", "path", "dataset"}
    transform : callable or dict, optional
        See the parameter `transform` of the estimators.
    """
    from ._images import ImageInputs
    from ._paths import PathInputs
    from ._torch_datasets import DatasetInputs

    kinds = {"image": ImageInputs, "path": PathInputs, "dataset": DatasetInputs}
    return kinds[kind](X, transform)


def table_inputs(X, dtype=None):
    """Return the inputs of a validated feature table.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
    dtype : torch.dtype, optional
        Type of the batches.
    """
    if sp.issparse(X):
        return SparseInputs(X, dtype)
    return ArrayInputs(np.asarray(X), dtype)

"""From whatever a user passes as X to batches of tensors."""

import os

import numpy as np
import scipy.sparse as sp
import torch
from torch.utils.data import Dataset

from ._base import Inputs
from ._tables import ArrayInputs, SparseInputs, SparseRows
from ._torch_datasets import dataset_targets

__all__ = [
    "ArrayInputs",
    "Inputs",
    "SparseInputs",
    "SparseRows",
    "dataset_targets",
    "input_kind",
    "media_inputs",
    "table_inputs",
]


def input_kind(X):
    """Return what X is: "table", "image", "path" or "dataset".

    Whatever is none of the last three is taken for a table, and validated as one.
    """
    if isinstance(X, Dataset):
        return "dataset"
    if sp.issparse(X) or hasattr(X, "columns"):
        return "table"
    if isinstance(X, (list, tuple)):
        first = next(iter(X), None)
        if isinstance(first, (str, os.PathLike)):
            return "path"
        return "image" if np.asarray(first).ndim > 1 else "table"
    shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
    if len(shape) == 1 and shape[0] and _holds_paths(X):
        return "path"
    return "image" if len(shape) > 2 else "table"


def _holds_paths(X):
    if isinstance(X, torch.Tensor):
        return False
    values = np.asarray(X)
    if values.dtype == object:
        return isinstance(values[0], (str, os.PathLike))
    return values.dtype.kind in "UT"


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


def table_inputs(X, dtype=None, keep_sparse=False):
    """Return the inputs of a validated feature table.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
    dtype : torch.dtype, optional
        Type of the batches.
    keep_sparse : bool, default=False
        Whether the network can take batches that are sparse.
    """
    if sp.issparse(X):
        return SparseInputs(X, dtype, keep_sparse)
    return ArrayInputs(np.asarray(X), dtype)

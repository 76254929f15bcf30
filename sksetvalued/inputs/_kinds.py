"""What X is, and the inputs of it."""

import os
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse as sp
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from .._arrays import as_array
from .._sets import without_zeros
from ._base import NO_SAMPLES, TEXTS_REMEDY
from ._images import ImageInputs, ListedImages, need_a_list
from ._mapped import MappedInputs, is_mapped
from ._named import NamedInputs
from ._paths import PathInputs
from ._streams import Stream, stream_remedy
from ._tables import DENSE_FROM, ArrayInputs, SparseInputs
from ._torch_datasets import DatasetInputs
from ._transforms import upright

#: Formats of a Dataset of Hugging Face that give no arrays by name.
TABULAR = (None, "arrow", "pandas", "polars")


def input_kind(X):
    """Return what X is: "table", "image", "path", "dataset" or "named".

    The last is a mapping of the parts of samples. Whatever is none of the last four is taken for
    a table, and validated as one.

    Raises
    ------
    TypeError
        The samples of a torch Dataset in a list of pairs (x, y), or a stream.
    ValueError
        Strings in a column, or no samples in one dimension.
    """
    if isinstance(X, Stream):
        raise TypeError(
            "a Stream is for fit: for other methods give batches, as stream.batches(1024) yields "
            "them, to partial_fit(X, y), or to predict_set and calibrate of sksetvalued as the "
            "iterator (X for X, _ in stream.batches(1024))."
        )
    if isinstance(X, IterableDataset) or (_is_columnar(X) and not hasattr(X, "__getitem__")):
        raise TypeError(stream_remedy(type(X).__name__))
    if isinstance(X, Dataset) or _is_slice_dataset(X):
        return "dataset"
    if isinstance(X, Mapping) and _is_columnar(next(iter(X.values()), None)):
        raise TypeError(
            f"X is a {type(X).__name__} that holds whole Datasets, {list(X)[:5]}: pass one of "
            f"them, as X[{next(iter(X))!r}]."
        )
    if isinstance(X, (str, bytes, os.PathLike)) or hasattr(X, "getbands"):
        what = "image" if hasattr(X, "getbands") else "string or path"
        raise TypeError(f"X is one {what}, rather than samples: pass a list of it, [X].")
    if sp.issparse(X):
        return "table"
    if isinstance(X, Mapping) or _is_columnar(X):
        return "named"
    if hasattr(X, "columns"):
        _check_column(X)
        return "table"
    if _is_listed(X):
        if not len(X):
            raise ValueError(NO_SAMPLES)
        return _kind_of_sample(X[0])
    values = X if hasattr(X, "shape") else as_array(X, "X")
    shape = values.shape
    if tuple(shape) == (0,):
        raise ValueError(NO_SAMPLES)
    if not shape and getattr(values.dtype, "kind", "O") in "OSUV":
        _raise_of_type(X)
    if len(shape) == 1 and _holds_paths(X):
        return "path"
    if len(shape) == 1 and values.dtype == object and _n_dims(next(iter(values))) > 1:
        raise TypeError("X is an array of images as objects: pass a list of them, X.tolist().")
    if len(shape) == 2:
        _check_column(values)
    return "image" if len(shape) > 2 else "table"


def _raise_of_type(X):
    remedy = ""
    if isinstance(X, DataLoader):
        remedy = (
            ": pass its dataset. Batches go one by one to partial_fit, or as a generator to the "
            "functions predict_set and calibrate"
        )
    raise TypeError(
        "X must be an array, a table, a sequence of paths, a Dataset or a mapping of parts, got "
        f"{type(X).__name__}{remedy}."
    )


def hint_of_one(X, shape):
    """Return what to say of an X that may be one sample of this shape, rather than samples."""
    own = tuple(getattr(X, "shape", ()))
    if isinstance(shape, dict) or len(shape) != 3:
        return ""
    forms = {shape, (*shape[1:], shape[0])} | ({shape[1:]} if shape[0] == 1 else set())
    return " It has the shape of one sample: pass X[None]." if own in forms else ""


def _is_columnar(X):
    """Return whether X is a Dataset of Hugging Face, whose columns are the parts of samples."""
    return hasattr(X, "column_names") and hasattr(X, "with_format")


def _is_listed(X):
    """Return whether X is a list, or another sequence, as a column of Hugging Face is."""
    return isinstance(X, Sequence) and not hasattr(X, "shape")


def _is_slice_dataset(X):
    """Return whether X is a Dataset that scikit-learn can slice: the SliceDataset of skorch."""
    return isinstance(X, Sequence) and isinstance(getattr(X, "dataset", None), Dataset)


def _kind_of_sample(sample):
    """Return what a list is that starts with this sample."""
    if isinstance(sample, (str, os.PathLike)):
        return "path"
    if isinstance(sample, (list, tuple)):
        # The rows of an image, and the values of a row, are alike.
        if len({_n_dims(part) for part in sample}) > 1 or _is_pair(sample):
            raise TypeError(
                "X is a list of samples with their labels, as scikit-learn makes it by slicing "
                "a torch Dataset. For searches and cross-validation pass skorch's "
                "SliceDataset(dataset), an array of images or an array of paths, and y."
            )
        if len(sample) == 1:
            _check_string(sample[0])
    return "image" if np.ndim(sample) > 1 else "table"


def _n_dims(value):
    if hasattr(value, "getbands"):
        return 3
    return getattr(value, "ndim", int(isinstance(value, list | tuple | Mapping)))


def _is_pair(sample):
    """Return whether a sample is an item (x, y) of a Dataset, rather than a row of two values."""
    parts = torch.Tensor | np.ndarray | Mapping | list | tuple | os.PathLike
    return isinstance(sample, tuple) and len(sample) == 2 and isinstance(sample[0], parts)


def _holds_paths(X):
    if isinstance(X, torch.Tensor):
        return False
    values = np.asarray(X)
    if values.dtype == object:
        return not len(values) or isinstance(values[0], (str, os.PathLike))
    return values.dtype.kind in "UT"


def _check_column(X):
    """Raise where a frame has no columns, or a table of one column strings that are no numbers."""
    if isinstance(X, torch.Tensor):
        return
    if hasattr(X, "collect") and not hasattr(X, "__len__"):
        raise TypeError(f"X is a {type(X).__name__}, which holds no values yet: pass X.collect().")
    shape = X.shape if hasattr(X, "shape") else np.shape(X)
    if len(shape) != 2:
        _raise_of_type(X)
    if hasattr(X, "columns") and not shape[1]:
        no_columns = f"X is a table without columns, of shape {tuple(shape)}."
        raise ValueError(no_columns if shape[0] else NO_SAMPLES)
    if shape[1] == 1:
        for (value,) in np.asarray(X.head(1) if hasattr(X, "head") else X[:1]):
            _check_string(value)


def _check_string(value):
    if isinstance(value, os.PathLike) or (isinstance(value, str) and not _is_number(value)):
        raise ValueError(
            f"X is a table whose one column holds strings, such as {str(value)!r}. Pass paths of "
            f"images as a one-dimensional array. {TEXTS_REMEDY}"
        )


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def media_inputs(X, kind, transform=None):
    """Return the inputs of images, image paths, a torch Dataset or named parts.

    Parameters
    ----------
    X : array, tensor, sequence of paths, Dataset or mapping
    kind : {"image", "path", "dataset", "named"}
    transform : callable or dict, optional
        See the parameter `transform` of the estimators.
    """
    if kind == "named":
        return _named_inputs(X, transform)
    if kind == "image" and _is_listed(X):
        X = [upright(image) for image in X]
        if need_a_list(X, transform):
            return ListedImages(X, transform)
    kinds = {"image": ImageInputs, "path": PathInputs, "dataset": DatasetInputs}
    return kinds[kind](X, transform)


def _named_inputs(X, transform):
    if transform is not None:
        raise ValueError(
            f"transform={transform!r} is for images, but X holds parts by name: leave it None, or "
            "pass a Dataset that transforms its items."
        )
    return NamedInputs(X if isinstance(X, Mapping) else _columns(X))


def _columns(X):
    """Return the columns of a Dataset of Hugging Face in its own format, or as arrays.

    The latter for lists and tables; tensors and what a transform returns are parts already.
    """
    form = X.format
    if form["type"] in TABULAR:
        kept = {name: form[name] for name in ("columns", "output_all_columns")}
        X = X.with_format("numpy", **kept)
    return X[:]


def table_inputs(X, dtype=None, keep_sparse=False):
    """Return the inputs of a validated feature table.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        A matrix of which a share of `DENSE_FROM` is not zero is taken for a dense table, whose
        columns can be centred.
    dtype : torch.dtype, optional
        Type of the batches.
    keep_sparse : bool, default=False
        Whether the network can take batches that are sparse.
    """
    if sp.issparse(X):
        X = without_zeros(X)  # SciPy would put the entries of X itself in order to count them
        if X.nnz < DENSE_FROM * np.prod(X.shape, dtype=float):
            return SparseInputs(X, dtype, keep_sparse)
        X = X.toarray()
    return MappedInputs(X, dtype) if is_mapped(X) else ArrayInputs(np.asarray(X), dtype)

"""Masks of sets, dense or sparse: how they are collected, counted and looked up."""

from inspect import signature

import numpy as np
import scipy.sparse as sp

from ._masks import row_counts


def check_out(out, shape):
    """Raise unless `out` is None, "csr" or a bool array of `shape` that can be written to."""
    if out is None or (isinstance(out, str) and out == "csr"):
        return
    if not isinstance(out, np.ndarray):
        raise ValueError(f"out must be None, 'csr' or an array of bool, got {out!r}.")
    if out.shape != shape or out.dtype != bool or not out.flags.writeable:
        raise ValueError(
            f"out must be an array of bool of shape {shape} that can be written to, such as "
            f"np.lib.format.open_memmap(path, 'w+', bool, {shape}); got {out.dtype} of shape "
            f"{out.shape}{'' if out.flags.writeable else ', read-only'}."
        )


class SetMask:
    """The mask of the sets of samples that come in chunks, dense or sparse.

    Parameters
    ----------
    shape : tuple of two ints
        (n_samples, n_classes)
    out : None, "csr" or bool ndarray of `shape`
    """

    def __init__(self, shape, out=None):
        check_out(out, shape)
        self._shape, self._out, self._start = shape, out, 0
        self._parts = self._whole = None
        if isinstance(out, str):
            self._parts = []
        else:
            # Memory that nothing is written to is not taken: of many classes, few are in a set.
            self._whole = np.zeros(shape, dtype=bool) if out is None else out

    def blank(self, n_samples):
        """Return the rows of the next samples, without any class, to be marked."""
        if self._parts is not None:
            self._to_csr()
            self._whole = np.zeros((n_samples, self._shape[1]), dtype=bool)
            return self._whole
        rows = self._whole[self._start : self._start + n_samples]
        self._start += n_samples
        if self._out is not None:
            rows[...] = False
        return rows

    def _to_csr(self):
        if self._whole is not None:
            self._parts.append(_as_csr(self._whole))

    def done(self):
        """Return the mask of all samples, a bool ndarray or csr_array."""
        if self._parts is None:
            return self._whole
        self._to_csr()
        return sp.vstack(self._parts, format="csr")


def collect_sets(masks, shape, out=None):
    """Return the masks of chunks of samples as one, as `out` says."""
    sets = SetMask(shape, out)
    for mask in masks:
        sets.blank(len(mask))[...] = mask
    return sets.done()


def sets_of(model, X, out):
    """Return ``model.predict_set(X)`` as `out` says, of a model or rule that may not take it."""
    if out is None:
        return model.predict_set(X)
    if "out" in signature(model.predict_set).parameters:
        return model.predict_set(X, out=out)
    mask = np.asarray(model.predict_set(X))
    return collect_sets([mask], mask.shape, out)


def _as_csr(mask):
    """Return a dense mask as CSR, in a quarter of the time of scipy."""
    places = np.flatnonzero(mask)
    sizes = row_counts(mask)
    columns = (places % mask.shape[1]).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return sp.csr_array((np.ones(len(places), dtype=bool), columns, starts), shape=mask.shape)


def set_sizes(y_set):
    """Return the number of classes in each set of a mask, dense or CSR."""
    return np.diff(y_set.indptr) if sp.issparse(y_set) else row_counts(y_set)


def in_set(y_set, columns):
    """Return whether each set of a mask, dense or CSR, holds its column; -1 is a miss."""
    if not sp.issparse(y_set):
        return y_set[np.arange(len(columns)), columns] & (columns >= 0)
    rows = np.repeat(np.arange(len(columns)), set_sizes(y_set))
    return np.isin(np.arange(len(columns)), rows[y_set.indices == columns[rows]])


def without_zeros(matrix):
    """Return a sparse matrix or array as CSR that stores what is not zero, each entry once."""
    rows = matrix.tocsr()
    if not (rows.has_canonical_format and rows.data.all()):
        rows = rows.copy()
        rows.sum_duplicates()
        rows.eliminate_zeros()
    return rows

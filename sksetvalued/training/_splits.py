"""Held-out parts: with the proportions of the classes, or drawn like new samples."""

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp
from skorch.helper import SliceDict

from ..inputs import named_arrays


def with_rows(X):
    """Return samples of which rows can be taken: a mapping of arrays has a length of its own."""
    # A sparse matrix of the format "dok" is a dict.
    if not isinstance(X, Mapping) or isinstance(X, SliceDict) or sp.issparse(X):
        return X
    return SliceDict(**named_arrays(X))


def split_at_random(n_samples, fraction, random_state, y=None):
    """Split indices into a kept and a held-out part without a look at the labels.

    What is held out is to the network what new samples are. Of rare classes it holds more than
    the proportions out: some have no sample that is kept.

    Parameters
    ----------
    n_samples : int
    fraction : float in (0, 1)
        Share that is held out, of two samples or more at least one.
    random_state : RandomState
    y : ndarray of shape (n_samples,), optional
        Class indices. Of a class that would be held out as a whole, one sample is kept; where
        none would be left that way, one of a class with others is held out.

    Returns
    -------
    kept, held_out : ndarray of int, each sorted
    """
    order = random_state.permutation(n_samples)
    n_held = min(max(round(fraction * n_samples), 1), n_samples - 1)
    held = np.arange(n_samples) < n_held
    if y is not None:
        # The last one of each class, in the order drawn, stays.
        _, from_end = np.unique(y[order[::-1]], return_index=True)
        may_go = np.ones(n_samples, dtype=bool)
        may_go[n_samples - 1 - from_end] = False
        held &= may_go
        if not held.any():
            held[np.flatnonzero(may_go)[:1]] = True
    return np.sort(order[~held]), np.sort(order[held])


def split_per_class(y, fraction, random_state):
    """Split indices into a kept and a held-out part, class by class.

    Each class gives `fraction` of its samples, rounded up or down at random so that the
    expected share is exact, and keeps at least one. When all classes round down, the largest one
    gives one sample, so that nothing held out is ever empty unless every class has a single
    sample.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
        Class indices.
    fraction : float in (0, 1)
    random_state : RandomState

    Returns
    -------
    kept, held_out : ndarray of int, each sorted
    """
    order = random_state.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    counts = np.bincount(y)
    share = counts * fraction
    given = np.floor(share).astype(int)
    given += random_state.uniform(size=len(counts)) < share - given
    given = np.clip(given, 0, np.maximum(counts - 1, 0))
    if given.sum() == 0 and counts.max() > 1:
        given[counts.argmax()] = 1
    rank = np.arange(len(y)) - np.repeat(np.cumsum(counts) - counts, counts)
    held = rank < np.repeat(given, counts)
    return np.sort(order[~held]), np.sort(order[held])


def folds_per_class(y, n_folds, random_state):
    """Split indices into folds, each with its share of every class.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
        Class indices.
    n_folds : int
    random_state : RandomState

    Returns
    -------
    folds : list of (kept, held_out)
        Sorted indices, without folds that would hold nothing out. Each sample is held out once:
        if the only one of a class was not, held-out samples would be unlike new ones.
    """
    n_folds = min(n_folds, len(y))  # more would be empty
    order = random_state.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    fold = np.empty(len(y), dtype=int)
    # Round the classes, so that folds differ by one sample though classes be small.
    fold[order] = np.arange(len(y)) % n_folds
    indices = np.arange(len(y))
    parts = ((indices[fold != i], indices[fold == i]) for i in range(n_folds))
    return [(kept, out) for kept, out in parts if len(out)]

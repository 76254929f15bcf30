"""Mixtures of ranks: what losses accept as `ranks`, and what it means for a number of classes."""

from collections.abc import Iterable, Mapping

import numpy as np

from .._checks import check_number, check_positive_integer


def _is_row(pair):
    return isinstance(pair, tuple | list) or np.ndim(pair) == 1  # np.ndim breaks graphs of torch


def _is_iterable(pairs):
    return isinstance(pairs, Iterable) and not isinstance(pairs, str) and getattr(pairs, "ndim", 1)


def _pairs(ranks):
    """Return the pairs of a rank and a weight, or raise."""
    pairs = ranks.items() if isinstance(ranks, Mapping) else ranks
    if _is_iterable(pairs):
        pairs = [tuple(pair) if _is_row(pair) else (pair,) for pair in pairs]
        if pairs and all(len(pair) == 2 for pair in pairs):
            return pairs
    raise ValueError(
        "ranks must be pairs of a rank and a weight, as ((1, 0.5), (5, 0.5)) or {1: 0.5, 5: 0.5}, "
        f"got {ranks!r}."
    )


def check_ranks(ranks):
    """Return `ranks`, pairs (rank, weight) or a mapping, as a tuple of pairs; None as it is.

    A rank is an integer of at least 1, or "k" for the k of the loss; weights are finite and at
    least 0, and one is positive.
    """
    if ranks is None:
        return None
    pairs = tuple(_pairs(ranks))
    for rank, weight in pairs:
        if rank != "k":
            check_positive_integer('a rank in ranks, where it is not "k",', rank)
        check_number(f"the weight of rank {rank!r} in ranks", weight, 0, inclusive=True)
    if not any(weight > 0 for _, weight in pairs):
        raise ValueError(f"ranks must give some rank a positive weight, got {ranks!r}.")
    return pairs


def resolve_ranks(k, ranks, n_classes):
    """Return what the `ranks` that :func:`check_ranks` returned mean for a number of classes.

    Parameters
    ----------
    k : int or None
        Stands for itself where `ranks` is None, and for "k" in `ranks`.
    ranks : tuple of (rank, weight), or None
    n_classes : int
        Ranks of `ranks` above ``n_classes - 1`` become it; `k` alone stays as it is.

    Returns
    -------
    tuple of (int, float)
        Ranks in increasing order, each once, and their weights, which are positive and sum to 1.
    """
    if ranks is None:
        return ((int(k), 1.0),)
    merged = {}
    for rank, weight in ranks:
        rank = min(int(k if rank == "k" else rank), n_classes - 1)
        merged[rank] = merged.get(rank, 0.0) + float(weight)
    # Weights are numbers of single precision, whose sum is one of double precision.
    total = sum(merged.values())
    return tuple((rank, weight / total) for rank, weight in sorted(merged.items()) if weight > 0)

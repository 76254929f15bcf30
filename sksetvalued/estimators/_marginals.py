"""Probabilities of labels, and what ranks them, from what a multi-label loss makes of scores."""

import inspect

import numpy as np
import torch
from scipy.special import expit, softmax
from torch import nn
from torch.nn import functional as F

from .._masks import row_blocks
from ..losses import LOSSES, BinaryCrossEntropyLoss, SparsemaxLoss, SparseTopLoss
from ..operators import sparse_top
from ..training import trained_by

#: What turns the scores of a loss into probabilities.
LINKS = {
    BinaryCrossEntropyLoss: "sigmoid",
    nn.BCEWithLogitsLoss: "sigmoid",
    nn.MultiLabelSoftMarginLoss: "sigmoid",
    SparseTopLoss: "projection",
}

#: So much of the scores is added to probabilities, for these tie at 0 and at 1: more than
#: rounding in double precision takes away, and too little to change an order otherwise.
TIE_BREAK = 2.0**-30


def link_of(estimator):
    """Return "sigmoid" or "projection" by the loss of an estimator.

    Raises
    ------
    AttributeError
        If scores of networks trained by the loss estimate no probabilities.
    """
    weighted = (estimator.loss_params or {}).get("pos_weight") is not None
    loss = LOSSES.get(estimator.loss) if isinstance(estimator.loss, str) else estimator.loss
    if hasattr(estimator, "net_"):
        # The parameters may have been set anew.
        loss, weighted = trained_by(estimator.net_.bare_criterion), False
    cls = loss if inspect.isclass(loss) else type(loss)
    weighted |= getattr(loss, "pos_weight", None) is not None
    if cls in LINKS and not weighted:
        return LINKS[cls]
    reason = "estimates no probabilities as far as is known"
    if weighted:
        reason = "with pos_weight estimates the odds of the labels times these weights"
    if cls is SparsemaxLoss:
        reason = "gives the labels of a sample parts of one unit, as project(X, size=1) does"
    raise AttributeError(
        f"predict_proba is not there with loss={_name_of(estimator, cls)}, which {reason}: use "
        "loss='sparse_top' or 'bce', or decision_function."
    )


def _name_of(estimator, cls):
    same = LOSSES.get(estimator.loss) is cls if isinstance(estimator.loss, str) else True
    return repr(estimator.loss) if same else cls.__name__


def label_proba(scores, sizes, link):
    r"""Return the probability of each label.

    The gradient of the sparse-top loss is its projection minus the indicator of the labels. Where
    the expected loss is least, the projections with K = 1, 2, ..., weighted by the probabilities
    of these numbers of labels, are therefore the probabilities of the labels:

    .. math:: P(j \in Y) = \sum_K P(|Y| = K) \, \operatorname{sparse\text{-}top}(K, s)_j.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_classes)
    sizes : ndarray of shape (n_samples, n_sizes)
        Logits of 0, 1, ... labels; without columns, there is one label.
    link : {"sigmoid", "projection"}

    Returns
    -------
    proba : ndarray of shape (n_samples, n_classes)
    """
    scores = np.ascontiguousarray(scores, dtype=np.float64)
    if link == "sigmoid":
        return _one_of(scores) if not sizes.shape[1] else expit(scores)
    if not sizes.shape[1]:
        return sparse_top(torch.from_numpy(scores), 1).numpy()
    proba, share = np.empty_like(scores), softmax(sizes.astype(np.float64), axis=1)
    for rows in row_blocks(scores.shape):
        proba[rows] = mean_projection(scores[rows], share[rows, 1:])
    return proba


def mean_projection(scores, share):
    """Return the weighted sum of the projections with K = 1, 2, ...; one sort serves them all.

    Parameters
    ----------
    scores, share : ndarrays of shape (n_samples, n_classes) and (n_samples, n_sizes)
    """
    below = scores.max(1, keepdims=True) - scores
    reach = _reaches(torch.from_numpy(np.sort(below, axis=1)), share.shape[1])
    share, below = torch.from_numpy(share), torch.from_numpy(below)
    # Of an entry, the first projections are 0; the next ones are inside; the last ones are 1.
    first, last = torch.searchsorted(reach, below), torch.searchsorted(reach, below + 1)
    to_reach, to_share = (F.pad(x.cumsum(1), (1, 0)) for x in (share * reach, share))
    inside = to_reach.gather(1, last) - to_reach.gather(1, first)
    up_to_last = to_share.gather(1, last)
    inside -= below * (up_to_last - to_share.gather(1, first))
    mean = inside + (to_share[:, -1:] - up_to_last)
    return (mean + 0 * below.sum(1, keepdim=True)).clamp_(0, 1).numpy()  # NaN stays


def _reaches(below, n_sizes):
    """Return how far below the best score a threshold is, of the projections with K = 1, 2, ...

    The sum of a projection rises with the reach, linearly between the points where an entry
    leaves 0 or gets to 1.

    Parameters
    ----------
    below : Tensor of shape (n_samples, n_classes)
        How far the scores are below the best, in increasing order.
    n_sizes : int

    Returns
    -------
    reach : Tensor of shape (n_samples, n_sizes)
        In increasing order.
    """
    # No reach goes further than one beyond the last of so many entries.
    width = int((below < below[:, n_sizes - 1, None] + 1).sum(1).max())
    below = below[:, : max(width, n_sizes)].contiguous()
    sums = F.pad(below.cumsum(1), (1, 0))

    def total(reach):
        ones, last = torch.searchsorted(below, reach - 1), torch.searchsorted(below, reach)
        return ones + (last - ones) * reach - (sums.gather(1, last) - sums.gather(1, ones))

    k = torch.arange(1.0, n_sizes + 1, dtype=below.dtype, device=below.device).repeat(
        len(below), 1
    )
    reach, reached, slope = torch.zeros_like(k), torch.zeros_like(k), 0
    for points, sign in ((below, 1), (below + 1, -1)):
        totals = total(points)
        n_passed = torch.searchsorted(totals, k)
        place = (n_passed - 1).clamp(min=0)
        passed = n_passed > 0
        reach = torch.where(passed, points.gather(1, place).maximum(reach), reach)
        reached = torch.where(passed, totals.gather(1, place).maximum(reached), reached)
        slope = slope + sign * n_passed
    return (reach + (k - reached) / slope.clamp(min=1)).cummax(1).values


def label_rank(scores, sizes, by):
    r"""Return what one threshold on the labels of all samples compares.

    Among all sets of one average size, those of the labels of the largest probabilities hold the
    most labels. A loss that ignores a constant added to the scores of a sample leaves it
    undetermined: the scores alone do not compare between samples.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_classes)
    sizes : ndarray of shape (n_samples, n_sizes)
        Logits of 0, 1, ... labels; without columns, there is one label.
    by : {"scores", "probabilities", "shares"}
        - "scores": these, of which probabilities are a function that rises.
        - "probabilities": those of :func:`label_proba`, by projections.
        - "shares": the projections with K = 1 times the expected number of labels. Where the
          expected sparsemax loss is least, a projection is the expected share of the label in
          its sample.

    Returns
    -------
    rank : ndarray of shape (n_samples, n_classes)
    """
    if by == "scores":
        return scores
    scores = np.ascontiguousarray(scores, dtype=np.float64)
    if by == "probabilities":
        rank = label_proba(scores, sizes, "projection")
    else:
        rank = expected_size(sizes) * sparse_top(torch.from_numpy(scores), 1).numpy()
    return rank + TIE_BREAK * (scores - scores.mean(1, keepdims=True))


def expected_size(sizes):
    """Return the expected number of labels, of shape (n_samples, 1), from its logits."""
    if not sizes.shape[1]:
        return np.ones((len(sizes), 1))
    share = softmax(sizes.astype(np.float64), axis=1)
    return share @ np.arange(sizes.shape[1])[:, None]


def _one_of(scores):
    """Return probabilities that sum to one, from log-odds of each class against the rest."""
    if scores.shape[1] == 2:
        # Both columns estimate the log-odds, with either sign.
        positive = expit((scores[:, 1] - scores[:, 0]) / 2)
        return np.column_stack([1 - positive, positive])
    proba = expit(scores)
    return proba / proba.sum(1, keepdims=True)

"""Probabilities of labels, from what a multi-label loss makes of scores."""

import inspect

import numpy as np
import torch
from scipy.special import expit, softmax
from torch import nn

from ..losses import LOSSES, BinaryCrossEntropyLoss, SparsemaxLoss, SparseTopLoss
from ..operators import sparse_top

#: What turns the scores of a loss into probabilities.
LINKS = {
    BinaryCrossEntropyLoss: "sigmoid",
    nn.BCEWithLogitsLoss: "sigmoid",
    nn.MultiLabelSoftMarginLoss: "sigmoid",
    SparseTopLoss: "projection",
}


def link_of(estimator):
    """Return "sigmoid" or "projection" by the loss of an estimator.

    Raises
    ------
    AttributeError
        If scores of networks trained by the loss estimate no probabilities.
    """
    loss = LOSSES.get(estimator.loss) if isinstance(estimator.loss, str) else estimator.loss
    cls = loss if inspect.isclass(loss) else type(loss)
    weighted = [getattr(loss, "pos_weight", None), (estimator.loss_params or {}).get("pos_weight")]
    weighted = any(weight is not None for weight in weighted)
    if cls in LINKS and not weighted:
        return LINKS[cls]
    reason = "estimates no probabilities as far as is known"
    if weighted:
        reason = "with pos_weight estimates the odds of the labels times these weights"
    if cls is SparsemaxLoss:
        reason = "gives the labels of a sample parts of one unit, as project(X, size=1) does"
    raise AttributeError(
        f"predict_proba is not there with loss={estimator.loss!r}, which {reason}: use "
        "loss='sparse_top' or 'bce', or decision_function."
    )


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
    share = softmax(sizes.astype(np.float64), axis=1) if sizes.shape[1] else None
    if share is None:
        return sparse_top(torch.from_numpy(scores), 1).numpy()
    proba = np.zeros_like(scores)
    for size in range(1, share.shape[1]):
        proba += share[:, [size]] * sparse_top(torch.from_numpy(scores), size).numpy()
    return proba.clip(max=1)


def _one_of(scores):
    """Return probabilities that sum to one, from log-odds of each class against the rest."""
    if scores.shape[1] == 2:
        # Both columns estimate the log-odds, with either sign.
        positive = expit((scores[:, 1] - scores[:, 0]) / 2)
        return np.column_stack([1 - positive, positive])
    proba = expit(scores)
    return proba / proba.sum(1, keepdims=True)

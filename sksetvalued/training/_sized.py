"""A multi-label loss with a second task: the number of labels."""

import torch
from torch import nn
from torch.nn import functional as F

from ..losses._base import check_loss, reduce_loss


class SizedLoss(nn.Module):
    """Train the scores by a loss, and the other outputs to tell the number of labels.

    Outputs from `n_classes` on are the logits of 0, 1, ... labels, learnt by cross-entropy; a
    sample with more labels than the last counts for the last.

    Parameters
    ----------
    loss : nn.Module
        Loss of the scores, with the attributes of a :class:`sksetvalued.losses.SetLoss`.
    n_classes : int
    reduction : {"mean", "sum"}, default="mean"
        What `loss` does with the samples of a batch.
    """

    def __init__(self, loss, n_classes, reduction="mean"):
        super().__init__()
        self.loss = loss
        self.n_classes = n_classes
        self.reduction = reduction
        self.head = loss.head
        self.uses_index = loss.uses_index
        self.prior_exponent = loss.prior_exponent
        self.label_smoothing = loss.label_smoothing
        self.smoothed_towards = loss.smoothed_towards
        self.ranked_by = getattr(loss, "ranked_by", "scores")

    def scores(self, output):
        """Return the scores of the classes, followed by the logits of the sizes."""
        scores, sizes = self._split(output)
        return torch.cat([self.loss.scores(scores), sizes], 1)

    def forward(self, input, target, sample_weight=None, **extra):
        """Return the sum of both losses."""
        scores, sizes = self._split(input)
        size = target.sum(1).long().clamp(max=sizes.shape[1] - 1)
        loss = self.loss(scores, target, sample_weight=sample_weight, **extra)
        check_loss(self.loss, loss, scores)
        losses = F.cross_entropy(sizes.float(), size, reduction="none")
        return loss + reduce_loss(losses, self.reduction, sample_weight)

    def _split(self, output):
        return output[:, : self.n_classes], output[:, self.n_classes :]

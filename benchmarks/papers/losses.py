"""Losses that the experiments add to those of the package."""

import torch
from torch.nn import functional as F

from sksetvalued.losses import AverageKLoss
from sksetvalued.losses._base import SetLoss


class MultiLabelHeadLoss(AverageKLoss, name="multi_label_head"):
    """The two-head loss, whose sets come from the multi-label head, as in the thesis."""

    def scores(self, output):
        """Return the scores of the multi-label head."""
        return output[0]


class ProposalHeadLoss(AverageKLoss, name="two_head_proposal"):
    """The two-head loss, whose sets come from the proposal head.

    That head is trained by cross-entropy; the multi-label head is an auxiliary task here.
    """

    def scores(self, output):
        """Return the scores of the proposal head."""
        return output[1]


class DFTopKLoss(SetLoss, name="dftopk"):
    """Minus the logarithm of a sigmoid around the middle between ranks k and k + 1.

    Zhu et al., "Differentiable fast top-K selection for large-scale recommendation", 2025, for
    one label per sample. It does not rank classes by probability in the mean, as the middle moves
    with the scores.
    """

    def __init__(self, k, tau=1.0, reduction="mean"):
        super().__init__(reduction)
        self.k, self.tau = k, tau

    def sample_losses(self, input, target):
        best = torch.topk(input, self.k + 1, dim=1).values
        middle = best[:, -2:].mean(1)
        return F.softplus((middle - input.gather(1, target[:, None])[:, 0]) / self.tau)

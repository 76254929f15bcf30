"""Losses that the experiments add to those of the package."""

from sksetvalued.losses import AverageKLoss


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

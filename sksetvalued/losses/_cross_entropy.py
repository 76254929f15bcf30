"""The cross-entropy, as a loss of this family."""

from ..operators._precision import at_least_float32, without_autocast
from ._base import SetLoss, check_scores_and_target, softmax_losses

__all__ = ["CrossEntropyLoss"]


class CrossEntropyLoss(SetLoss, name="cross_entropy"):
    r"""Cross-entropy of the softmax of the scores.

    .. math:: \ell(s, y) = -s_y + \log \sum_j e^{s_j}

    It is top-k calibrated for every k [1]_: the k largest scores of its minimiser are the k
    likeliest classes.

    Parameters
    ----------
    reduction : {"mean", "sum", "none"}, default="mean"

    References
    ----------
    .. [1] Yang & Koyejo, "On the consistency of top-k surrogate losses", ICML 2020.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import CrossEntropyLoss
    >>> CrossEntropyLoss()(torch.zeros(1, 4), torch.tensor([0]))
    tensor(1.3863)
    """

    def forward(self, input, target, sample_weight=None):
        if sample_weight is not None:
            return super().forward(input, target, sample_weight)
        if self.validate:
            check_scores_and_target(input, target)
        with without_autocast(input.device):
            scores = at_least_float32(input)
            return softmax_losses(scores, target.long(), reduction=self.reduction)

    def sample_losses(self, input, target):
        return softmax_losses(input, target)

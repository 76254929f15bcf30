"""A metric of the validation outputs, computed from the pass that gives the validation loss."""

import numpy as np
import torch


class Monitor:
    """Collect scores over a validation pass and turn them into one number.

    Parameters
    ----------
    name : str
        Column of the history.
    metric : callable ``(y_true, y_score, sample_weight) -> float``, or None
        The larger the better; `y_true` holds class indices or indicators. None when `name` is
        the validation loss.
    combine_views : callable, optional
        Turns scores of shape (n_samples, n_views, n_classes) into scores of the samples.
    """

    def __init__(self, name, metric, combine_views=None):
        self.name = name
        self.metric = metric
        self.combine_views = combine_views
        self.reset()

    def reset(self):
        """Forget what was collected."""
        self._scores, self._targets, self._weights = [], [], []

    def update(self, scores, target, sample_weight=None):
        """Add the scores and targets of a batch."""
        self._scores.append(scores.detach().float())
        self._targets.append(target)
        if sample_weight is not None:
            self._weights.append(sample_weight)

    def compute(self):
        """Return the metric of the pass and forget its outputs."""
        target, scores = (
            torch.cat(parts).cpu().numpy() for parts in (self._targets, self._scores)
        )
        weight = torch.cat(self._weights).cpu().numpy() if self._weights else None
        self.reset()
        if not np.isfinite(scores).all():
            return -np.inf
        return float(self.metric(target, scores, weight))

"""A metric of the validation outputs, computed from the pass that gives the validation loss."""

import numpy as np
import torch

from .._masks import row_blocks

#: Steps of Newton's method towards the temperature, at most.
N_STEPS = 6
#: A relative step that moves the likelihood by less than its rounding.
SMALL_STEP = 1e-8
#: Bounds of the inverse temperature.
FLATTEST, STEEPEST = 0.05, 20.0


def calibrated_log_likelihood(y_true, log_proba, sample_weight=None):
    """Return the mean log-likelihood of the labels at the temperature that makes it largest.

    Unlike the likelihood itself it does not punish confidence, which no rule minds that ranks the
    classes of a sample, and unlike accuracies it counts every sample by degrees.

    Parameters
    ----------
    y_true : ndarray of shape (n_samples,)
        Class indices.
    log_proba : ndarray of shape (n_samples, n_classes)
    sample_weight : ndarray of shape (n_samples,), optional

    Returns
    -------
    likelihood : float
    """
    weight = np.ones(len(log_proba)) if sample_weight is None else sample_weight
    weight = torch.as_tensor(weight / weight.sum(), dtype=torch.float64)
    inverse = 1.0
    # The likelihood is concave in the inverse temperature.
    for _ in range(N_STEPS):
        slopes, curvatures, likelihoods = _likelihoods(y_true, log_proba, inverse)
        step = float(weight @ slopes / (weight @ curvatures).clamp(min=1e-12))
        if abs(step) < SMALL_STEP * inverse:
            return float(weight @ likelihoods)
        inverse = min(max(inverse + step, inverse / 3, FLATTEST), inverse * 3, STEEPEST)
    return float(weight @ _likelihoods(y_true, log_proba, inverse)[2])


def _likelihoods(y_true, log_proba, inverse):
    """Return the slope and curvature of the log-likelihood of each sample, and itself."""
    parts = []
    for rows in row_blocks(log_proba.shape):
        scores = torch.from_numpy(log_proba[rows]).double()
        scores = scores - scores.amax(1, keepdim=True)
        own = scores[torch.arange(len(scores)), torch.from_numpy(y_true[rows])]
        p = (inverse * scores).exp_()
        total = p.sum(1)
        weighted = p.mul_(scores)
        mean = weighted.sum(1) / total
        curvature = weighted.mul_(scores).sum(1) / total - mean.square()
        likelihood = inverse * own - total.log()
        parts.append((own - mean, curvature, likelihood))
    return tuple(map(torch.cat, zip(*parts)))


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
    chance : float, optional
        Value up to which a network has learnt nothing.
    rank : callable, optional
        Turns scores of samples that have no views into what the metric ranks.
    """

    def __init__(self, name, metric, combine_views=None, chance=None, rank=None):
        self.name = name
        self.metric = metric
        self.combine_views = combine_views
        self.chance = chance
        self.rank = rank
        self.reset()

    def reset(self):
        """Forget what was collected."""
        self._scores, self._targets, self._weights = [], [], []
        self._has_views = False

    def update(self, scores, target, sample_weight=None):
        """Add the scores of a batch, which may be those of several views, and its targets."""
        if scores.ndim == 3:
            self._has_views = True
            scores = self.combine_views(scores)
        # On the host, where there is room for the scores of all samples.
        self._scores.append(scores.detach().float().cpu())
        self._targets.append(target.cpu())
        if sample_weight is not None:
            self._weights.append(sample_weight.cpu())

    def compute(self):
        """Return the metric of the pass and forget its outputs."""
        target, scores = (torch.cat(parts).numpy() for parts in (self._targets, self._scores))
        weight = torch.cat(self._weights).numpy() if self._weights else None
        rank = None if self._has_views else self.rank
        self.reset()
        if not np.isfinite(scores).all():
            return -np.inf
        scores = scores if rank is None else rank(scores)
        return float(self.metric(target, scores, weight))

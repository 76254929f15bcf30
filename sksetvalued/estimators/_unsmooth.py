"""Take label smoothing back out of probabilities."""

import numpy as np
import torch

#: How far below every probability are those that smoothing alone would explain.
BELOW = 100.0


def unsmoothed(log_proba, label_smoothing, target):
    r"""Return the log-probabilities that a network was smoothed from.

    A network trained with smoothed labels estimates :math:`(1-\epsilon) p_y + \epsilon u_y`;
    this returns the logarithm of :math:`(\hat p_y - \epsilon u_y)_+`, normalised. Classes that
    have nothing left keep their order, far below the others.

    Parameters
    ----------
    log_proba : DoubleTensor of shape (n_samples, n_classes)
        Log-probabilities as trained.
    label_smoothing : float in [0, 1)
    target : ndarray of shape (n_classes,)
        What labels were smoothed towards, of sum 1.

    Returns
    -------
    log_proba : DoubleTensor of shape (n_samples, n_classes)
    """
    log_added = torch.from_numpy(np.log(label_smoothing * np.asarray(target, dtype=float)))
    share_left = -torch.expm1(log_added - log_proba)
    left = log_proba + share_left.clamp(min=0).log()
    left = torch.where(left > -BELOW / 2, left, log_proba - BELOW)
    return torch.log_softmax(left, dim=1)

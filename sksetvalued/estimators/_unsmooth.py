"""Take label smoothing back out of probabilities."""

import torch

#: How far below every probability are those that smoothing alone would explain.
BELOW = 100.0


def unsmoothed(log_proba, log_added):
    r"""Return the log-probabilities that a network was smoothed from.

    A network trained with smoothed labels estimates :math:`(1-\epsilon) p_y + \epsilon u_y`;
    this returns the logarithm of :math:`(\hat p_y - \epsilon u_y)_+`, normalised. Classes that
    have nothing left keep their order, far below the others.

    Parameters
    ----------
    log_proba : DoubleTensor of shape (n_samples, n_classes)
        Log-probabilities as trained.
    log_added : DoubleTensor of shape (n_classes,)
        Logarithms of epsilon times u, what labels were smoothed towards, of sum 1.

    Returns
    -------
    log_proba : DoubleTensor of shape (n_samples, n_classes)
    """
    share_left = -torch.expm1(log_added - log_proba)
    left = log_proba + share_left.clamp(min=0).log()
    left = torch.where(left > -BELOW / 2, left, log_proba - BELOW)
    return torch.log_softmax(left, dim=1)

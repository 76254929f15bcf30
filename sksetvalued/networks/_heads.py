"""Heads: what turns the features of a backbone into scores of classes."""

import torch
from torch import nn
from torch.nn import functional as F

from ._random import EMPTY, drawn
from ._rows import RowLinear


class LinearHead(RowLinear):
    """Score classes by an affine map of the features.

    Parameters
    ----------
    n_features : int
        Width of the features.
    n_classes : int
        Number of scores.
    generator : torch.Generator, optional
        Source of the initial weights; torch's default when absent.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.networks import LinearHead
    >>> LinearHead(8, 3)(torch.zeros(2, 8)).shape
    torch.Size([2, 3])
    """

    def __init__(self, n_features, n_classes, generator=None):
        super().__init__(n_features, n_classes, **EMPTY)
        drawn(self, generator)

    @property
    def n_features(self):
        """Width of the features."""
        return self.in_features


class CosineHead(nn.Module):
    """Score classes by the cosine between the features and a direction per class.

    Scores lie in [-1, 1]: the scale that multiplies them belongs to the loss, whose margins
    are set in cosine units ([1]_, eq. (13)). Features or directions equal to zero score 0.

    Parameters
    ----------
    n_features : int
        Width of the features.
    n_classes : int
        Number of scores.
    generator : torch.Generator, optional
        Source of the initial weights; torch's default when absent.

    References
    ----------
    .. [1] Garcin, Servajean, Joly, Salmon (2022). Stochastic smoothing of the top-K calibrated
       hinge loss for deep imbalanced classification. ICML.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.networks import CosineHead
    >>> head = CosineHead(8, 3)
    >>> features = torch.ones(1, 8)
    >>> torch.allclose(head(features), head(100 * features))
    True
    """

    def __init__(self, n_features, n_classes, generator=None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_classes, n_features, dtype=torch.float32))
        self.reset_parameters(generator)

    @property
    def n_features(self):
        """Width of the features."""
        return self.weight.shape[1]

    def reset_parameters(self, generator=None):
        """Draw directions uniformly on the sphere."""
        nn.init.normal_(self.weight, generator=generator)
        with torch.no_grad():
            self.weight.copy_(F.normalize(self.weight, dim=1))

    def forward(self, features):
        """Return the cosines, of shape (n_samples, n_classes)."""
        return F.linear(_directions(features), _directions(self.weight)).clamp(-1, 1)


def _directions(x):
    """Return the rows of x divided by their norms; those that are zero stay so."""
    norm = x.norm(dim=1, keepdim=True)
    return x / norm.where(norm > 0, 1)


class TwoHead(nn.Module):
    """Score classes twice: as labels of their own, and against each other.

    The second head gives the multi-class scores that propose other plausible labels of a training
    sample, the first one learns these labels ([1]_, section 5.5).

    Parameters
    ----------
    n_features : int
        Width of the features.
    n_classes : int
        Number of scores of each head.
    generator : torch.Generator, optional
        Source of the initial weights; torch's default when absent.

    References
    ----------
    .. [1] Garcin (2023). Loss functions for set-valued classification. PhD thesis, Université
       de Montpellier.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.networks import TwoHead
    >>> scores, proposal_scores = TwoHead(8, 3)(torch.zeros(2, 8))
    >>> scores.shape == proposal_scores.shape == (2, 3)
    True
    """

    def __init__(self, n_features, n_classes, generator=None):
        super().__init__()
        self.scores = LinearHead(n_features, n_classes, generator)
        self.proposal_scores = LinearHead(n_features, n_classes, generator)

    @property
    def n_features(self):
        """Width of the features."""
        return self.scores.n_features

    def forward(self, features):
        """Return ``(scores, proposal_scores)``, each of shape (n_samples, n_classes)."""
        return self.scores(features), self.proposal_scores(features)


HEADS = {"linear": LinearHead, "cosine": CosineHead, "two_head": TwoHead}

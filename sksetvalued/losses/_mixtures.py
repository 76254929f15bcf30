"""Mixtures of the papers' losses with the cross-entropy; one is the default for sets of k."""

import numpy as np
import torch

from .._arrays import as_numbers
from .._checks import check_number
from ._average_k import AverageKLoss
from ._base import check_one_each, softmax_losses
from ._noised import NoisedTopKHingeLoss

__all__ = ["AverageKMixtureLoss", "NoisedMixtureLoss"]

#: The first class, for the order in the set, and the last.
RANKS = ((1, 0.5), ("k", 0.5))


class _Smoothing:
    """Label smoothing towards the classes' shares, which leaves the macro rule as it is."""

    def _set_smoothing(self, cross_entropy, label_smoothing, prior):
        for name, value in (
            ("cross_entropy", cross_entropy),
            ("label_smoothing", label_smoothing),
        ):
            check_number(name, value, 0, inclusive=True)
        if cross_entropy > 1:
            raise ValueError(f"cross_entropy must be at most 1, got {cross_entropy!r}.")
        if label_smoothing >= 1:
            raise ValueError(f"label_smoothing must be below 1, got {label_smoothing!r}.")
        if label_smoothing and prior is None:
            raise ValueError(
                f"label_smoothing={label_smoothing} is towards the shares of the classes: give "
                "them as prior."
            )
        self.cross_entropy = cross_entropy
        self.smoothed_by = label_smoothing
        self.register_buffer("prior", None if prior is None else _shares(prior))

    smoothed_towards = "prior"

    @property
    def label_smoothing(self):
        """Smoothing that the scores show: the hinge does not smooth."""
        return self.smoothed_by if self.cross_entropy == 1 else 0.0

    def extra_repr(self):
        return f"{super().extra_repr()}, label_smoothing={self.smoothed_by!r}"

    def _towards_prior(self, scores):
        """Return the cross-entropy between the prior and the scores, of each sample."""
        check_one_each("prior", self.prior, scores)
        prior = self.prior.to(scores)
        # Of classes without a share the score may be -inf.
        return -(torch.where(prior > 0, scores.log_softmax(1), 0) @ prior)

    @classmethod
    def from_estimator(cls, supplied, loss_params):
        """Build the loss; the estimator gives the shares of the classes."""
        supplied = {**supplied, "prior": supplied.get("class_counts")}
        return super().from_estimator(supplied, loss_params)


def _shares(prior):
    """Return the shares of the classes, given or as counts, as a tensor."""
    prior = as_numbers(prior, "prior")
    known = prior.ndim == 1 and np.isfinite(prior).all() and (prior >= 0).all()
    if not (known and prior.any()):
        raise ValueError(
            "prior must hold one number for each class, finite, >= 0 and not all zero, got "
            f"{prior.tolist()!r:.50}; give the class frequencies of the training set."
        )
    return torch.from_numpy(prior / prior.sum())


class NoisedMixtureLoss(_Smoothing, NoisedTopKHingeLoss, name="noised_mixture"):
    r"""Noised top-k hinge at several ranks, and the cross-entropy.

    .. math:: \ell(s, y) = (1 - w) \sum_r v_r \, \ell_{\mathrm{hinge}, r}(s, y)
        + w \big((1 - \delta) \, \mathrm{CE}(s, y) + \delta \, \mathrm{CE}(s, \pi)\big)

    with the weight w of `cross_entropy`, ranks r of weights v_r, and the share :math:`\delta` of
    `label_smoothing`, by which labels are smoothed towards the shares :math:`\pi` of the
    classes. A hinge at rank k alone says nothing about the order inside the set of k classes; a
    part at rank 1 does (the idea of [2]_, for another loss), and the cross-entropy makes scores
    of different samples comparable. With ``cross_entropy=0`` and ``ranks=None`` this is the loss
    of [1]_, :class:`NoisedTopKHingeLoss`.

    Parameters
    ----------
    k : int, in [1, n_classes - 1]
    cross_entropy : float in [0, 1], default=0.5
    ranks : mapping or iterable of (rank, weight), default=((1, 0.5), ("k", 0.5))
        None is k alone.
    label_smoothing : float in [0, 1), default=0.0
        With ``cross_entropy=1`` an estimator takes it back in its probabilities.
    prior : array-like of shape (n_classes,), optional
        Shares or counts of the classes, needed to smooth labels; an estimator gives those of its
        training data.
    epsilon, n_noise_samples, margin, scale, class_counts, max_margin, noise, generator, reduction
        As in :class:`NoisedTopKHingeLoss`.

    References
    ----------
    .. [1] Garcin et al., "Stochastic smoothing of the top-K calibrated hinge loss for deep
       imbalanced classification", ICML 2022, eq. (10) and (13).
    .. [2] Petersen et al., "Differentiable top-k classification learning", ICML 2022.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import NoisedMixtureLoss
    >>> loss = NoisedMixtureLoss(k=2, cross_entropy=1.0)
    >>> loss(torch.zeros(1, 4), torch.tensor([0]))
    tensor(1.3863)
    """

    def __init__(
        self,
        k,
        cross_entropy=0.5,
        ranks=RANKS,
        label_smoothing=0.0,
        prior=None,
        epsilon=1.0,
        n_noise_samples=5,
        margin=1.0,
        scale=1.0,
        class_counts=None,
        max_margin=None,
        noise="independent",
        generator=None,
        reduction="mean",
    ):
        super().__init__(
            k,
            epsilon=epsilon,
            n_noise_samples=n_noise_samples,
            margin=margin,
            scale=scale,
            class_counts=class_counts,
            max_margin=max_margin,
            noise=noise,
            generator=generator,
            reduction=reduction,
            ranks=ranks,
        )
        self._set_smoothing(cross_entropy, label_smoothing, prior)

    def sample_losses(self, input, target):
        if self.cross_entropy == 0:
            return super().sample_losses(input, target)
        losses = self._smoothed_losses(input, target)
        if self.cross_entropy < 1:
            hinge = super().sample_losses(input, target)
            losses = torch.lerp(hinge, losses, self.cross_entropy)
        return losses

    def _smoothed_losses(self, input, target):
        """Return the cross-entropy with the smoothed labels, of each sample."""
        scores = self.scores(input)
        losses = softmax_losses(scores, target)
        if not self.smoothed_by:
            return losses
        return torch.lerp(losses, self._towards_prior(scores), self.smoothed_by)


class AverageKMixtureLoss(_Smoothing, AverageKLoss, name="two_head_mixture"):
    r"""Two-head loss, and the noised hinge of the scores that propose candidates.

    .. math:: \ell = w \, \ell_{\text{two heads}} + (1 - w) \sum_r v_r \, \ell_{\mathrm{hinge}, r}

    The proposal head, whose scores rank the classes, learns by the mixture of
    :class:`NoisedMixtureLoss`, the multi-label head as in [1]_. With ``cross_entropy=1`` this is
    the loss of [1]_, :class:`AverageKLoss`.

    Parameters
    ----------
    k : float
        Average size of the sets; rounded, it is the "k" of `ranks`.
    alpha : float, default=0.1
        Weight of the pseudo-labels against the observed ones.
    cross_entropy : float in [0, 1], default=0.5
        Weight of the two-head loss, to which the cross-entropy belongs.
    ranks, label_smoothing, prior
        As in :class:`NoisedMixtureLoss`.
    epsilon : float, default=1.0
    n_noise_samples : int, default=5
    generator : torch.Generator or int, optional
        As in :class:`NoisedTopKHingeLoss`.
    reduction, ranking_head
        As in :class:`AverageKLoss`.

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023, eq. (5.9)-(5.15).

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import AverageKLoss, AverageKMixtureLoss
    >>> pair, target = (torch.zeros(2, 3), torch.eye(2, 3)), torch.tensor([0, 1])
    >>> mixture = AverageKMixtureLoss(k=1.5, alpha=1.0, cross_entropy=1.0)
    >>> bool(mixture(pair, target) == AverageKLoss(k=1.5)(pair, target))
    True
    """

    def __init__(
        self,
        k,
        alpha=0.1,
        cross_entropy=0.5,
        ranks=RANKS,
        label_smoothing=0.0,
        prior=None,
        epsilon=1.0,
        n_noise_samples=5,
        generator=None,
        reduction="mean",
        ranking_head="proposal",
    ):
        super().__init__(k, alpha, reduction=reduction, ranking_head=ranking_head)
        self._set_smoothing(cross_entropy, label_smoothing, prior)
        self.hinge = NoisedMixtureLoss(
            self._rank(),
            cross_entropy=0.0,
            # k, which may be the number of classes, then ends at the largest rank.
            ranks={"k": 1.0} if ranks is None else ranks,
            epsilon=epsilon,
            n_noise_samples=n_noise_samples,
            generator=generator,
        )

    def _rank(self):
        """Return the rank of the hinge."""
        return max(1, round(self.k))

    def _losses(self, scores, proposals, target, sample_weight):
        losses = super()._losses(scores, proposals, target, sample_weight)
        if self.cross_entropy < 1:
            self.hinge.k = self._rank()  # k may have been set since
            hinge = self.hinge.sample_losses(proposals, target)
            losses = torch.lerp(hinge, losses, self.cross_entropy)
        if self.smoothed_by:
            change = self._towards_prior(proposals) - softmax_losses(proposals, target)
            losses = losses + self.cross_entropy * self.smoothed_by * change
        return losses

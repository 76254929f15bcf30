"""The noised top-k hinge loss of Garcin et al."""

import torch

from .._checks import check_number, check_option, check_positive_integer
from .._randomness import OwnGenerator
from ..operators._margins import margins_of
from ..operators.noised import check_noise, noised_hinge
from ._base import check_one_each, counts_of_loss
from ._ranks import check_ranks, resolve_ranks
from ._top_k import _TopKLoss

__all__ = ["NoisedTopKHingeLoss"]

#: Scale of the cosine scores, and noise in their units, when an estimator's user asks for margins
#: and sets neither.
COSINE_SCALE, COSINE_EPSILON = 50.0, 0.1


class NoisedTopKHingeLoss(_TopKLoss, name="noised_hinge"):
    r"""Calibrated top-k hinge loss whose k-th score is smoothed by noise.

    .. math:: \ell(s, y) = \gamma \Big( m_y + \frac{1}{M} \sum_{i \le M}
        \mathrm{top}_{k+1}(s + \epsilon Z_i) - s_y \Big)_+, \qquad Z_i \sim N(0, I).

    *Balanced* ([1]_, eq. (10)): all margins m_y are `margin`. *Imbalanced* ([1]_, eq. (13)), when
    `max_margin` is given: :math:`m_y = m_{\max} (\min_j n_j / n_y)^{1/4}`, the scores are cosines,
    as a cosine-normalised head yields them, and :math:`\gamma` is `scale`. The loss is then
    :math:`(\gamma m_y + \mathrm{top}_{k+1, \gamma \epsilon}(\gamma s) - \gamma s_y)_+`: margin
    and noise count in units of cosines, *before* scaling.

    The noise comes from a generator of the loss's own. In training mode each call draws new
    noise; in evaluation mode every call uses the same, so that validation losses compare. The
    state of the generator is pickled and copied with the loss.

    Parameters
    ----------
    k : int, in [1, n_classes - 1]
    epsilon : float, default=1.0
        Standard deviation of the noise; 0 gives the calibrated hinge.
    n_noise_samples : int, default=5
        Number of draws M.
    margin : float, default=1.0
        Margin of the balanced loss; not used when `max_margin` is given.
    scale : float, default=1.0
        Factor gamma of the loss, and of the scores in :meth:`scores`.
    class_counts : array-like of shape (n_classes,), optional
        Numbers of training samples per class; needed with `max_margin`.
    max_margin : float, optional
        Margin of the rarest class.
    noise : {"independent", "shared"}, default="independent"
        Whether each sample of the batch has noise of its own.
    generator : torch.Generator or int, optional
        Where the seed of the loss's generator is drawn from, once, by the constructor, or the
        seed itself. When absent the seed is drawn from torch's default generator.
    reduction : {"mean", "sum", "none"}, default="mean"
    ranks : mapping or iterable of (rank, weight), optional
        Ranks that take the place of k, and their weights: the loss is the weighted sum of the
        losses at those ranks, from the same draws. Ranks above n_classes - 1 become it, equal ones
        are merged, the weights divided by their sum; "k" stands for `k`. With a mixture of ranks,
        as ``{1: 0.5, "k": 0.5}``, the best class is learned beside the set of k.

    References
    ----------
    .. [1] Garcin et al., "Stochastic smoothing of the top-K calibrated hinge loss for deep
       imbalanced classification", ICML 2022.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import NoisedTopKHingeLoss
    >>> scores = torch.tensor([[3.0, 2.0, 1.0, 0.0]], requires_grad=True)
    >>> loss = NoisedTopKHingeLoss(k=2, epsilon=0.2, generator=0)
    >>> loss(scores, torch.tensor([3])).backward()
    >>> scores.grad
    tensor([[ 0.,  0.,  1., -1.]])
    >>> loss = NoisedTopKHingeLoss(k=2, epsilon=0.0, ranks={1: 0.5, "k": 0.5})
    >>> loss(scores, torch.tensor([3]))
    tensor(2.5000, grad_fn=<MeanBackward0>)
    """

    def __init__(
        self,
        k,
        epsilon=1.0,
        n_noise_samples=5,
        margin=1.0,
        scale=1.0,
        class_counts=None,
        max_margin=None,
        noise="independent",
        generator=None,
        reduction="mean",
        ranks=None,
    ):
        super().__init__(k, margin, reduction)
        check_number("epsilon", epsilon, 0, inclusive=True)
        check_positive_integer("n_noise_samples", n_noise_samples)
        check_number("scale", scale, 0, inclusive=False)
        also = " (the function also takes normals, as a tensor)"
        check_option("noise", noise, ("independent", "shared"), also)
        if (class_counts is None) != (max_margin is None):
            raise ValueError(
                "class_counts and max_margin go together: give both for class margins, or neither "
                f"for a balanced loss; got class_counts={class_counts!r}, "
                f"max_margin={max_margin!r}."
            )
        if max_margin is not None:
            check_number("max_margin", max_margin, 0, inclusive=True)
            class_counts = counts_of_loss(class_counts)
        self.register_buffer("class_counts", class_counts)
        self.ranks = check_ranks(ranks)
        self.epsilon = epsilon
        self.n_noise_samples = n_noise_samples
        self.scale = scale
        self.max_margin = max_margin
        self.noise = noise
        self.generator = OwnGenerator(generator)

    @classmethod
    def from_estimator(cls, supplied, loss_params):
        """Build the loss; what concerns cosines goes with `max_margin` only."""
        supplied = dict(supplied)
        if {**supplied, **loss_params}.get("max_margin") is None:
            supplied.pop("class_counts", None)
        else:
            for name, value in (("scale", COSINE_SCALE), ("epsilon", COSINE_EPSILON)):
                if supplied.get(name) is None:
                    supplied[name] = value
        return super().from_estimator(supplied, loss_params)

    @property
    def head(self):
        """Return "cosine" when the loss has class margins, else "linear"."""
        return "linear" if self.max_margin is None else "cosine"

    def scores(self, output):
        """Return the scores multiplied by `scale`."""
        return output if self.scale == 1 else self.scale * output

    def _margins(self, target, input):
        """Return the margin of each sample, or the common one."""
        if self.max_margin is None:
            return self.margin
        check_one_each("class_counts", self.class_counts, input)
        counts = self.class_counts.to(input)
        return margins_of(counts[target], counts.min(), self.max_margin)

    def sample_losses(self, input, target):
        return self._noised_losses(input, target)

    def _noised_losses(self, input, target, noise=None):
        """Return the loss of each sample, with normals that are given or drawn."""
        self.check_rank(input)
        generator = None
        if noise is None and self.epsilon > 0:
            generator = self.generator.on(input.device, fixed=not self.training)
        ranks = resolve_ranks(self.k, self.ranks, input.shape[1])
        margins = self._margins(target, input)
        shared = self.noise == "shared"
        draws = self.epsilon, self.n_noise_samples, generator, noise, shared
        return noised_hinge(input, target, ranks, margins, self.scale, draws)


class _GivenNoise(NoisedTopKHingeLoss):
    """The loss with normals given by the caller."""

    def sample_losses(self, input, target):
        check_noise(self.given, input)
        return self._noised_losses(input, target, self.given.to(input))


def noised_top_k_hinge_loss(
    input,
    target,
    k,
    epsilon=1.0,
    n_noise_samples=5,
    margin=1.0,
    scale=1.0,
    class_counts=None,
    max_margin=None,
    noise="independent",
    generator=None,
    reduction="mean",
    sample_weight=None,
    ranks=None,
):
    """Compute the noised top-k hinge loss; see :class:`sksetvalued.losses.NoisedTopKHingeLoss`.

    Parameters
    ----------
    input : Tensor of shape (n_samples, n_classes)
    target : LongTensor of shape (n_samples,)
    k : int, in [1, n_classes - 1]
    epsilon : float, default=1.0
    n_noise_samples : int, default=5
        Number of draws; not used when `noise` is a tensor.
    margin : float, default=1.0
    scale : float, default=1.0
    class_counts : array-like of shape (n_classes,), optional
    max_margin : float, optional
    noise : {"independent", "shared"} or Tensor, default="independent"
        Standard normals of shape (n_noise_samples, n_samples or 1, n_classes), or how to draw
        them.
    generator : torch.Generator or int, optional
        Where the seed of the noise is drawn from, or the seed itself; torch's default generator
        when absent.
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional
    ranks : mapping or iterable of (rank, weight), optional

    Returns
    -------
    Tensor, a scalar, or of shape (n_samples,) when `reduction` is "none"

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import noised_top_k_hinge_loss
    >>> scores, noise = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[[0.0, 2.0, 0.0]]])
    >>> noised_top_k_hinge_loss(scores, torch.tensor([2]), k=1, epsilon=1.0, noise=noise)
    tensor(3.)
    """
    given = isinstance(noise, torch.Tensor)
    loss = (_GivenNoise if given else NoisedTopKHingeLoss)(
        k,
        epsilon=epsilon,
        n_noise_samples=n_noise_samples,
        margin=margin,
        scale=scale,
        class_counts=class_counts,
        max_margin=max_margin,
        noise="independent" if given else noise,
        generator=generator,
        reduction=reduction,
        ranks=ranks,
    )
    if given:
        loss.given = noise
    # In evaluation each call begins at the seed, as the first call of a training does.
    return loss.eval()(input, target, sample_weight)

"""Losses for sets of average size k: several labels may be true, and only one is seen."""

import math
import os

import torch
from torch import nn
from torch.nn import functional as F

from .._checks import check_number, check_option, check_positive_integer
from .._randomness import as_generator
from ..operators._checks import own_scores
from ..operators._dispatch import is_eager
from ..operators._precision import at_least_float32, without_autocast
from ._base import (
    SetLoss,
    check_scores,
    check_scores_and_target,
    check_several,
    check_tensor,
    check_weight_tensor,
    holds_integers,
    reduce_loss,
    without_left_out,
)
from ._two_head import check_average_size, two_head

__all__ = ["AssumeNegativeLoss", "AverageKLoss", "ExpectedPositiveLoss", "ROLELoss"]

# The first estimates of ROLE, logits of 0.995 and of 0.6, as in the code of its authors, who
# also learn them at a larger rate than the network: Adam does that for a scaled parameter.
_ROLE_OBSERVED, _ROLE_WIDTH = math.log(0.995 / 0.005), math.log(0.6 / 0.4)
_ROLE_RATE = 10


def average_k_loss(input, target, k, alpha=1.0, reduction="mean", sample_weight=None):
    """Compute the two-head average-K loss; see :class:`AverageKLoss`.

    Parameters
    ----------
    input : pair of Tensors of shape (n_samples, n_classes)
        Scores of the multi-label head and of the proposal head.
    target : LongTensor of shape (n_samples,)
    k : float
    alpha : float, default=1.0
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional

    Returns
    -------
    loss : Tensor
        Of shape (n_samples,) with ``reduction="none"``, else a scalar.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import average_k_loss
    >>> pair = torch.zeros(4, 3), torch.zeros(4, 3)
    >>> average_k_loss(pair, torch.tensor([0, 1, 2, 0]), k=2, alpha=0.0)
    tensor(1.7918)
    """
    return AverageKLoss(k, alpha, reduction=reduction)(input, target, sample_weight)


def assume_negative_loss(input, target, reduction="mean", sample_weight=None):
    """Compute the (weak) assume-negative loss; see :class:`AssumeNegativeLoss`.

    Parameters
    ----------
    input : Tensor of shape (n_samples, n_classes)
    target : LongTensor of shape (n_samples,)
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional

    Returns
    -------
    loss : Tensor
        Of shape (n_samples,) with ``reduction="none"``, else a scalar.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import assume_negative_loss
    >>> assume_negative_loss(torch.zeros(1, 5), torch.tensor([0]))
    tensor(1.3863)
    """
    return AssumeNegativeLoss(reduction=reduction)(input, target, sample_weight)


def expected_positive_loss(input, target, k, beta=None, reduction="mean", sample_weight=None):
    """Compute the expected-positive loss; see :class:`ExpectedPositiveLoss`.

    Parameters
    ----------
    input : Tensor of shape (n_samples, n_classes)
    target : LongTensor of shape (n_samples,)
    k : float
    beta : float, optional
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional

    Returns
    -------
    loss : Tensor
        Of shape (n_samples,) with ``reduction="none"``, else a scalar.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import expected_positive_loss
    >>> expected_positive_loss(torch.zeros(1, 4), torch.tensor([0]), k=1, beta=1.0)
    tensor(1.6931)
    """
    return ExpectedPositiveLoss(k, beta, reduction=reduction)(input, target, sample_weight)


def role_loss(input, target, estimates, k, beta=None, reduction="mean", sample_weight=None):
    """Compute the loss of regularised online label estimation; see :class:`ROLELoss`.

    Parameters
    ----------
    input : Tensor of shape (n_samples, n_classes)
    target : LongTensor of shape (n_samples,)
    estimates : Tensor of shape (n_samples, n_classes)
        Logits of the estimated labels of these samples.
    k : float
    beta : float, optional
    reduction : {"mean", "sum", "none"}, default="mean"
    sample_weight : Tensor of shape (n_samples,), optional

    Returns
    -------
    loss : Tensor
        Of shape (n_samples,) with ``reduction="none"``, else a scalar.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import role_loss
    >>> scores = torch.zeros(1, 4)
    >>> role_loss(scores, torch.tensor([0]), scores, k=2)
    tensor(3.4657)
    """
    check_scores_and_target(input, target)
    check_weight_tensor(sample_weight, input)
    check_average_size(k, input)
    _check_beta(beta)
    check_tensor(estimates, "estimates")
    if estimates.shape != input.shape:
        raise ValueError(
            f"estimates must have the shape of input, {tuple(input.shape)}, "
            f"got {tuple(estimates.shape)}."
        )
    input = without_left_out(input, sample_weight)
    with without_autocast(input.device):
        input, estimates = at_least_float32(input), at_least_float32(estimates)
        losses = _role(input, target.long(), estimates, k, beta, sample_weight)
    return reduce_loss(losses, reduction, sample_weight)


def _check_beta(beta):
    if beta is not None:
        check_number("beta", beta, 0, inclusive=True)


def _weights_like(scores, sample_weight):
    if sample_weight is None:
        return scores.new_ones(scores.shape[0])
    return sample_weight.to(scores.dtype)


def _size_penalty(scores, k, beta, sample_weight):
    """Return beta (K_hat - k)^2, K_hat being the mean number of expected positives."""
    weights = _weights_like(scores, sample_weight)
    beta = 1 / scores.shape[1] if beta is None else beta
    total = weights.sum()
    expected = (scores.sigmoid().sum(1) * weights).sum() / torch.where(total > 0, total, 1)
    return beta * (expected - k) ** 2


def _expected_positive(scores, target, k, beta, sample_weight):
    observed = F.softplus(-own_scores(scores, target)[:, 0])
    return observed + _size_penalty(scores, k, beta, sample_weight)


def _role(scores, target, estimates, k, beta, sample_weight):
    """Return the losses of each side given the other, held fixed, averaged."""
    total = 0
    for learner, teacher in ((scores, estimates), (estimates, scores)):
        match = F.binary_cross_entropy_with_logits(
            learner, teacher.detach().sigmoid(), reduction="none"
        ).sum(1)
        total = total + match + _expected_positive(learner, target, k, beta, sample_weight)
    return total / 2


class AverageKLoss(SetLoss, name="two_head"):
    r"""Two heads: one proposes candidate classes, the other learns them as labels.

    The proposal head learns by cross-entropy. On each batch B, the
    :math:`\lfloor (k-1)|B| \rfloor` false classes that it finds likeliest, over the whole
    batch, are pseudo-positives of the multi-label head, all others its negatives:

    .. math::
        \ell = \mathrm{CE}(Z', Y)
          - \frac{1}{|B|} \sum_i \log \sigma(z_{i y_i})
          - \alpha \operatorname*{mean}_{(i, j): j \in S_c(x_i)} \log \sigma(z_{ij})
          - \alpha \operatorname*{mean}_{(i, j): j \notin S(x_i)} \log (1 - \sigma(z_{ij})),

    with :math:`S(x_i) = S_c(x_i) \cup \{y_i\}` and empty means equal to zero. No gradient
    passes through the choice of the candidates.

    Parameters
    ----------
    k : float
        Average size of the sets, from 1 to the number of classes.
    alpha : float, default=1.0
        Weight of the pseudo-labels against the observed ones.
    reduction : {"mean", "sum", "none"}, default="mean"
        The samples of a batch are coupled: "none" returns terms whose mean is the loss, and
        "sum" their sum. With weights, all means are weighted ones, and the terms are
        multiplied by their weights.
    ranking_head : {"proposal", "multi_label"}, default="proposal"
        Head by whose scores an estimator ranks the classes; the loss does not depend on it.

    Raises
    ------
    ValueError
        If `k` is below 1 or above the number of classes, `alpha` is negative, or
        `ranking_head` is unknown.

    Notes
    -----
    A weight of 2 stands for a row given twice, up to the last of the candidates, and a
    weight of 0 for a row left out; see :func:`~sksetvalued.losses.functional.pseudo_positives`.

    In [1]_ the sets come from the multi-label head. In our measurements the proposal head of the
    same network covers as much or more in nearly every case, and much more with few samples per
    class or small k: classes that are candidates for good drive the scores of the multi-label
    head up without limit. Hence the default.

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023, eq. (5.9)-(5.15).
       The third sum of (5.14) runs over the classes outside of S, as in (5.9).

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import AverageKLoss
    >>> scores = torch.tensor([[2.0, 0.0, -1.0], [0.0, 3.0, 0.0]], requires_grad=True)
    >>> loss = AverageKLoss(k=1.5)((scores, scores.detach()), torch.tensor([0, 1]))
    >>> loss.backward()
    >>> scores.grad.sign()  # one candidate in the batch: class 1 of the first sample
    tensor([[-1., -1.,  1.],
            [ 1., -1.,  1.]])
    """

    head = "two_head"

    real_k = True

    def __init__(self, k, alpha=1.0, reduction="mean", ranking_head="proposal"):
        super().__init__(reduction)
        check_number("k", k, 1, inclusive=True)
        self.k = k
        check_number("alpha", alpha, 0, inclusive=True)
        self.alpha = alpha
        check_option("ranking_head", ranking_head, ("proposal", "multi_label"))
        self.ranking_head = ranking_head

    def scores(self, output):
        """Return the scores of the head that `ranking_head` names."""
        multi_label, proposal = output
        return proposal if self.ranking_head == "proposal" else multi_label

    def forward(self, input, target, sample_weight=None):
        """Return the reduced loss.

        Parameters
        ----------
        input : pair of Tensors of shape (n_samples, n_classes)
            Scores of the multi-label head and of the proposal head.
        target : LongTensor of shape (n_samples,)
            Class indices.
        sample_weight : Tensor of shape (n_samples,), optional
        """
        if not isinstance(input, (tuple, list)) or len(input) != 2:
            raise TypeError(
                "input must be a pair (scores, proposal_scores) of a two-head network, "
                f"got {type(input).__name__}."
            )
        scores, proposals = input
        if self.validate:
            check_scores_and_target(scores, target)
            check_scores(proposals)
            check_weight_tensor(sample_weight, scores)
            if proposals.shape != scores.shape:
                raise ValueError(
                    "the two heads of input must have one shape, "
                    f"got {tuple(scores.shape)} and {tuple(proposals.shape)}."
                )
        target = target.long()
        scores, proposals = (without_left_out(each, sample_weight) for each in input)
        with without_autocast(scores.device):
            scores, proposals = at_least_float32(scores), at_least_float32(proposals)
            losses = self._losses(scores, proposals, target, sample_weight)
        return reduce_loss(losses, self.reduction, sample_weight)

    def _losses(self, scores, proposals, target, sample_weight):
        """Return the terms of the samples, of which the loss is the weighted mean."""
        return two_head(scores, proposals, target, self.k, self.alpha, sample_weight)


class AssumeNegativeLoss(SetLoss, name="assume_negative"):
    r"""Binary cross-entropy with the observed label positive and all others negative.

    .. math:: \ell(z, y) = -\log \sigma(z_y)
              - \frac{1}{L - 1} \sum_{j \neq y} \log (1 - \sigma(z_j)).

    The negatives weigh together as much as the positive: this is the *weak* assume-negative
    loss of [2]_, times the number of classes L.

    Parameters
    ----------
    reduction : {"mean", "sum", "none"}, default="mean"

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023, eq. (5.5).
    .. [2] Cole et al., "Multi-label learning from single positive labels", CVPR 2021.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import AssumeNegativeLoss
    >>> AssumeNegativeLoss()(torch.tensor([[9.0, -9.0, -9.0]]), torch.tensor([0]))
    tensor(0.0002)
    """

    def sample_losses(self, input, target):
        check_several(input)
        positive = F.softplus(-own_scores(input, target)[:, 0])
        negative = F.softplus(input).scatter(1, target[:, None], 0).sum(1)
        return positive + negative / (input.shape[1] - 1)


class ExpectedPositiveLoss(SetLoss, name="expected_positive"):
    r"""Observed labels as positives, and k positives expected per sample on average.

    .. math:: \ell = -\frac{1}{|B|} \sum_i \log \sigma(z_{i y_i})
              + \beta \Bigl(\frac{1}{|B|} \sum_{i, j} \sigma(z_{ij}) - k\Bigr)^2.

    Parameters
    ----------
    k : float
        Expected number of positive classes, from 1 to the number of classes.
    beta : float, optional
        Weight of the constraint on the size. None: one over the number of classes, as in
        the code of [2]_.
    reduction : {"mean", "sum", "none"}, default="mean"
        The samples of a batch are coupled: "none" returns terms whose mean is the loss (the
        penalty stands in each), "sum" their sum. With weights, both means are weighted
        ones, and the terms are multiplied by their weights.

    Raises
    ------
    ValueError
        If `k` is below 1 or above the number of classes, or `beta` is negative.

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023, eq. (5.7)-(5.8).
    .. [2] Cole et al., "Multi-label learning from single positive labels", CVPR 2021.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import ExpectedPositiveLoss
    >>> scores = torch.tensor([[9.0, 9.0, -9.0, -9.0]])
    >>> ExpectedPositiveLoss(k=2)(scores, torch.tensor([0]))
    tensor(0.0001)
    """

    real_k = True

    def __init__(self, k, beta=None, reduction="mean"):
        super().__init__(reduction)
        check_number("k", k, 1, inclusive=True)
        self.k = k
        _check_beta(beta)
        self.beta = beta

    def forward(self, input, target, sample_weight=None):
        """Return the reduced loss.

        Parameters
        ----------
        input : Tensor of shape (n_samples, n_classes)
            Scores (logits).
        target : LongTensor of shape (n_samples,)
            Class indices.
        sample_weight : Tensor of shape (n_samples,), optional
        """
        if self.validate:
            check_scores_and_target(input, target)
            check_weight_tensor(sample_weight, input)
        check_average_size(self.k, input)
        target = target.long()
        with without_autocast(input.device):
            scores = at_least_float32(without_left_out(input, sample_weight))
            losses = _expected_positive(scores, target, self.k, self.beta, sample_weight)
        return reduce_loss(losses, self.reduction, sample_weight)


def _total_memory():
    """Return the physical memory in bytes, infinite where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return math.inf


def _check_estimates_fit(n_samples, n_classes):
    """Raise unless the estimates, their gradient and two moments fit into memory."""
    needed, available = 4 * 4 * int(n_samples) * int(n_classes), _total_memory()
    if needed > available:
        raise ValueError(
            f"ROLELoss keeps a matrix of n_samples x n_classes = {n_samples} x {n_classes} "
            f"estimated labels: {needed / 4e9:.1f} GB, and {needed / 1e9:.1f} GB with its "
            f"gradient and the optimizer's state, of {available / 1e9:.1f} GB of memory. Use "
            "ExpectedPositiveLoss or AverageKLoss, which keep no such matrix."
        )


class ROLELoss(ExpectedPositiveLoss, name="role"):
    r"""Regularised online label estimation: scores and estimated labels teach each other.

    With F the scores and :math:`\Theta` the logits of the estimated labels,

    .. math:: \ell = \tfrac12 \bigl[ \ell'(F \mid \Theta) + \ell'(\Theta \mid F) \bigr],
        \qquad \ell'(A \mid B) = \frac{1}{|B|} \sum_{i, j} \mathrm{BCE}(a_{ij},
        \sigma(b_{ij})) + \ell_{\mathrm{EPR}}(A),

    where what is given is held fixed and :math:`\ell_{\mathrm{EPR}}` is
    :class:`ExpectedPositiveLoss`. The estimates are a parameter of the loss, one row for
    each training sample: give the optimizer the parameters of the loss too (the estimators
    do), and pass ``index``, the positions of the samples in the training set. They start
    uniform in [0.4, 0.6], near 0.995 at the observed label.

    In ``eval()`` mode, when there are no estimates for the samples, it is
    :class:`ExpectedPositiveLoss` and ``index`` is not looked at.

    Parameters
    ----------
    k : float
        Expected number of positive classes, from 1 to the number of classes.
    beta : float, optional
        Weight of the constraint on the size; None: one over the number of classes.
    n_samples, n_classes : int
        Size of the training set, and its number of classes.
    generator : torch.Generator or int, optional
        Source of the first estimates, that of the fit in an estimator, or its seed; None: 0.
    reduction : {"mean", "sum", "none"}, default="mean"
        As in :class:`ExpectedPositiveLoss`.

    Attributes
    ----------
    estimates : Parameter of shape (n_samples, n_classes)
        Logits of the estimated labels, without the constant added at the observed one, and
        divided by ten: optimizers of Adam's kind then learn them ten times as fast.

    Raises
    ------
    ValueError
        If the matrix of estimates cannot fit into the machine's memory (the message states
        its size), or `k` or `beta` is out of range.

    References
    ----------
    .. [1] Cole et al., "Multi-label learning from single positive labels", CVPR 2021,
       Section 4.4.
    .. [2] Garcin, "Loss functions for set-valued classification", thesis, 2023, Section 5.4.6.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses import ROLELoss
    >>> loss = ROLELoss(k=2, n_samples=100, n_classes=5)
    >>> scores, index = torch.zeros(2, 5, requires_grad=True), torch.tensor([40, 7])
    >>> loss(scores, torch.tensor([0, 3]), index=index).backward()
    >>> loss.estimates.grad.any(1).nonzero()[:, 0]
    tensor([ 7, 40])
    """

    uses_index = True

    def __init__(
        self, k, beta=None, n_samples=None, n_classes=None, generator=None, reduction="mean"
    ):
        super().__init__(k, beta, reduction=reduction)
        check_positive_integer("n_samples", n_samples)
        check_positive_integer("n_classes", n_classes)
        _check_estimates_fit(n_samples, n_classes)
        generator = as_generator(0 if generator is None else generator)
        shape = n_samples, n_classes
        uniform = torch.rand(shape, dtype=torch.float32, generator=generator)
        self.estimates = nn.Parameter(_ROLE_WIDTH / _ROLE_RATE * (2 * uniform - 1))

    def forward(self, input, target, sample_weight=None, index=None):
        """Return the reduced loss.

        Parameters
        ----------
        input : Tensor of shape (n_samples, n_classes)
        target : LongTensor of shape (n_samples,)
        sample_weight : Tensor of shape (n_samples,), optional
        index : LongTensor of shape (n_samples,)
            Positions of the samples in the training set; needed in training mode.
        """
        if not self.training:
            return super().forward(input, target, sample_weight)
        check_scores_and_target(input, target)
        self._check_index(index, input)
        target = target.long()
        estimates = self.label_logits(index, target).to(at_least_float32(input).dtype)
        return role_loss(
            input, target, estimates, self.k, self.beta, self.reduction, sample_weight
        )

    def label_logits(self, index, target):
        """Return the logits of the estimated labels of training samples.

        Parameters
        ----------
        index, target : LongTensor of shape (n_samples,)
            Positions of the samples in the training set, and their observed labels.

        Returns
        -------
        Tensor of shape (n_samples, n_classes)
        """
        observed = F.one_hot(target, self.estimates.shape[1]).to(self.estimates.dtype)
        return _ROLE_RATE * self.estimates[index.long()] + _ROLE_OBSERVED * observed

    def _check_index(self, index, input):
        n_samples, n_classes = self.estimates.shape
        if input.shape[1] != n_classes:
            raise ValueError(
                f"input must hold scores of {n_classes} classes, got {input.shape[1]}."
            )
        if index is None:
            raise ValueError(
                "index is needed in training mode: the positions of the samples in the "
                "training set, of shape (n_samples,)."
            )
        check_tensor(index, "index")
        if not holds_integers(index):
            raise TypeError(f"index must hold positions as integers, got {index.dtype}.")
        if index.shape != input.shape[:1]:
            raise ValueError(
                f"index must have shape ({input.shape[0]},), one position per row of input, "
                f"got {tuple(index.shape)}."
            )
        if index.is_cpu and index.numel() and is_eager(index):
            low, high = torch.aminmax(index)
            if low < 0 or high >= n_samples:
                raise ValueError(
                    f"index must lie in [0, {n_samples - 1}], got values in "
                    f"[{low.item()}, {high.item()}]."
                )

"""Losses for sets of average size k: several labels may be true, and only one is seen."""

import math
import os

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from .._checks import check_number, check_positive_integer
from .._randomness import as_generator
from ..operators._checks import own_scores
from ..operators._dispatch import is_eager
from ..operators._precision import at_least_float32, without_autocast
from ._base import (
    SetLoss,
    check_scores,
    check_scores_and_target,
    check_tensor,
    check_weights,
    cross_entropy,
    holds_integers,
    reduce_loss,
    without_left_out,
)

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
    check_weights(sample_weight, input)
    _check_k(k, input)
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


def _check_k(k, input):
    check_number("k", k, 1, inclusive=True)
    if k > input.shape[-1]:
        raise ValueError(
            f"k must lie in [1, {input.shape[-1]}], the number of classes of input, got {k!r}."
        )


def _check_beta(beta):
    if beta is not None:
        check_number("beta", beta, 0, inclusive=True)


def _weights_like(scores, sample_weight):
    if sample_weight is None:
        return scores.new_ones(scores.shape[0])
    return sample_weight.to(scores.dtype)


def _lowest_of_largest(values, count):
    """Return the least of the `count` largest entries of a vector."""
    place = len(values) - count
    if values.is_cpu and is_eager(values):
        # A seventh of the time of torch's selection.
        return float(np.partition(values.numpy(), place)[place])
    return values.kthvalue(place + 1).values


def _largest(values, count):
    """Mark exactly `count` entries of a vector, the largest; among ties, the last ones."""
    if count == 0:
        return torch.zeros_like(values, dtype=torch.bool)
    lowest = _lowest_of_largest(values, count)
    marked = values >= lowest
    if values.is_cpu and is_eager(values) and np.count_nonzero(marked.numpy()) == count:
        return marked
    above, tied = values > lowest, values == lowest
    rank = tied.flip(0).cumsum(0).flip(0)
    return above | (tied & (rank <= count - above.sum()))


def _in_decreasing_order(values):
    """Return the places of entries from the largest on; among ties, from the last on."""
    return len(values) - 1 - values.flip(0).sort(descending=True, stable=True).indices


def _largest_within(values, weights, budget, count):
    """Mark the largest entries as long as their weights sum to at most `budget`.

    Where values can be looked at, the `count` largest are sorted, or more if they are too few.
    """
    selects = values.is_cpu and is_eager(values) and 2 * count < len(values)
    if selects:
        lowest = _lowest_of_largest(values, count)
        places = (~(values < lowest)).nonzero()[:, 0]
        order = places[_in_decreasing_order(values[places])]
    else:
        order = _in_decreasing_order(values)
    within = weights[order].cumsum(0) <= budget * (1 + 1e-9)
    if selects and within[-1]:
        return _largest_within(values, weights, budget, 4 * count)
    return torch.zeros_like(values, dtype=torch.bool).scatter(0, order, within)


def pseudo_positives(proposal_scores, target, k, sample_weight=None):
    """Choose the candidate classes of a batch: the likeliest (k - 1) n_samples false ones.

    Exactly ``floor((k - 1) n_samples)`` entries of the whole matrix of probabilities without
    its true labels are chosen [1]_, eq. (5.11)-(5.12); among equal ones the last, reading
    the matrix row by row. With weights, entries are taken in the same order as long as the
    sum of their weights stays within ``(k - 1) sample_weight.sum()``.

    Parameters
    ----------
    proposal_scores : Tensor of shape (n_samples, n_classes)
    target : LongTensor of shape (n_samples,)
    k : float, in [1, n_classes]
    sample_weight : Tensor of shape (n_samples,), optional

    Returns
    -------
    candidates : BoolTensor of shape (n_samples, n_classes)

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023.

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.losses.functional import pseudo_positives
    >>> scores = torch.tensor([[3.0, 2.9, 2.8], [9.0, 0.0, 0.0]])
    >>> pseudo_positives(scores, torch.tensor([0, 0]), k=2)
    tensor([[False,  True,  True],
            [False, False, False]])
    """
    check_scores_and_target(proposal_scores, target)
    check_weights(sample_weight, proposal_scores)
    _check_k(k, proposal_scores)
    return _candidates(proposal_scores, target, k, sample_weight)


@torch.no_grad()
def _candidates(proposal_scores, target, k, sample_weight):
    n_samples, n_classes = proposal_scores.shape
    # Log-probabilities keep the order where float32 probabilities are all zero. A false class
    # of probability zero still comes before the true one.
    values = at_least_float32(proposal_scores).log_softmax(1)
    values = values.clamp_(min=torch.finfo(values.dtype).min)
    values = values.scatter_(1, target.long()[:, None], -torch.inf).flatten()
    if sample_weight is None:
        chosen = _largest(values, _n_candidates(k, n_samples))
    else:
        weights = sample_weight if sample_weight.device.type == "mps" else sample_weight.double()
        budget = (k - 1) * weights.sum()
        weights = weights.repeat_interleave(n_classes)
        chosen = _largest_within(values, weights, budget, math.ceil(2 * k * n_samples))
        chosen = chosen & (values > -torch.inf)
    return chosen.view(n_samples, n_classes)


def _n_candidates(k, n_samples):
    # The slack undoes the rounding of products such as (2.3 - 1) * 10.
    return math.floor((k - 1) * n_samples * (1 + 1e-12))


def _share(mask, count, sample_weight):
    """Return what entries of a mask are multiplied by for a mean over samples to be their mean.

    `count` is the number of entries of the mask, which weights replace. An empty mean is zero.
    """
    if sample_weight is None:
        return len(mask) / max(count, 1)
    weight = (mask.sum(1) * sample_weight).sum()
    return torch.where(weight > 0, sample_weight.sum() / weight, 0)


def _average_k(scores, proposal_scores, target, k, alpha, sample_weight):
    own = target[:, None]
    _check_k(k, proposal_scores)
    candidates = _candidates(proposal_scores, target, k, sample_weight)
    n_positive = _n_candidates(k, len(scores))
    n_negative = scores.numel() - len(scores) - n_positive
    others = (~candidates).scatter(1, own, False)
    weight = None if sample_weight is None else sample_weight.to(scores.dtype)
    positive = alpha * _share(candidates, n_positive, weight)
    negative = alpha * _share(others, n_negative, weight)
    positive = torch.as_tensor(positive, dtype=scores.dtype, device=scores.device)
    share = torch.where(candidates, positive, negative).scatter(1, own, 1)
    sign = torch.where(others, 1.0, -1.0).to(scores.dtype)
    labels = torch.linalg.vecdot(F.softplus(sign * scores), share)
    return cross_entropy(proposal_scores, target) + labels


def _size_penalty(scores, k, beta, sample_weight):
    """Return beta (K_hat - k)^2, K_hat being the mean number of expected positives."""
    weights = _weights_like(scores, sample_weight)
    beta = 1 / scores.shape[1] if beta is None else beta
    expected = (scores.sigmoid().sum(1) * weights).sum() / weights.sum()
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
        if ranking_head not in ("proposal", "multi_label"):
            raise ValueError(
                f'ranking_head must be "proposal" or "multi_label", got {ranking_head!r}.'
            )
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
            check_weights(sample_weight, scores)
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
        return _average_k(scores, proposals, target, self.k, self.alpha, sample_weight)


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
        if input.shape[1] < 2:
            raise ValueError("input must hold scores of at least 2 classes, got 1.")
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
            check_weights(sample_weight, input)
        _check_k(self.k, input)
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
    needed, available = 4 * 4 * n_samples * n_classes, _total_memory()
    if needed > available:
        raise ValueError(
            f"ROLELoss keeps a matrix of n_samples x n_classes = {n_samples} x {n_classes} "
            f"estimated labels: {needed / 4e9:.1f} GB, and {needed / 1e9:.1f} GB with its "
            f"gradient and the optimizer's state, of {available / 1e9:.1f} GB of memory. Use "
            "ExpectedPositiveLoss or AverageKLoss, which keep no such matrix."
        )


class ROLELoss(SetLoss, name="role"):
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

    real_k = True

    def __init__(
        self, k, beta=None, n_samples=None, n_classes=None, generator=None, reduction="mean"
    ):
        super().__init__(reduction)
        check_number("k", k, 1, inclusive=True)
        self.k = k
        _check_beta(beta)
        self.beta = beta
        check_positive_integer("n_samples", n_samples)
        check_positive_integer("n_classes", n_classes)
        _check_estimates_fit(n_samples, n_classes)
        generator = as_generator(0 if generator is None else generator)
        uniform = torch.rand(n_samples, n_classes, generator=generator)
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
            return expected_positive_loss(
                input, target, self.k, self.beta, self.reduction, sample_weight
            )
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

"""Rules that control the size of the sets, sample by sample or on average."""

from math import inf

import numpy as np

from .._average_size import AverageSizeSelector
from .._checks import check_integer
from .._masks import row_blocks, threshold_mask, top_k_mask
from .._validation import check_average_k, check_top_k
from .._warnings import FEWEST_COMPARED, TIES, hold_too_few, warn_caller
from ._base import SetRule

#: They are called far off when they are so by this many standard errors, and this share of k.
FAR_ERRORS, FAR_SHARE = 5, 0.1
#: From such a k on, scores do not seem to compare between samples where so many sets are empty.
#: Probabilities of a network that is right for one sample in eight leave 29 % empty.
EMPTY_FROM, MOST_EMPTY = 1.5, 1 / 3
#: Exponent that discounts sizes of training samples below k; largest factor by which they change
#: the size.
WORTH, MOST_ALLOWED = 8, 1.5
#: Training samples, at most, whose sets tell how sure a model is of itself.
MOST_SEEN = 10_000


class TopK(SetRule):
    r"""Return the k likeliest classes of every sample.

    The sets of size k of greatest coverage hold the k largest p_y(x) [1]_, eq. (2.12). With
    ``objective="macro"`` they are to maximise the coverage averaged over classes,

    .. math::
        \frac1L \sum_y P(y \in \Gamma(X) \mid Y = y)
        = \frac1L E\Big[\sum_{y \in \Gamma(X)} \frac{p_y(X)}{\pi_y}\Big],

    which the k largest p_y(x)/pi_y maximise, pi being the class prior. Dividing by the prior is
    also known as prevalence-adjusted softmax [2]_.

    Parameters
    ----------
    k : int
        Size of the sets. With k >= n_classes every class is returned, with a warning.
    objective : {"micro", "macro"}, default="micro"
        Coverage to maximise: over samples, or averaged over classes.
    prior : array-like of shape (n_classes,), optional
        Class prior for ``objective="macro"``. None: the class frequencies of the `y` given to
        `fit`.
    log_scores : bool, default=False
        Whether scores are log-probabilities. It matters to ``objective="macro"`` only.

    Attributes
    ----------
    n_classes_ : int
    prior_ : ndarray of shape (n_classes,) or None

    Notes
    -----
    Ties go to the highest column, as in :func:`sklearn.metrics.top_k_accuracy_score`.

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023, section
       2.2.3.
    .. [2] Ding, Fermanian & Salmon, "Conformal prediction for long-tailed classification", 2025.

    Examples
    --------
    >>> from sksetvalued.rules import TopK
    >>> scores = [[0.5, 0.3, 0.2], [0.1, 0.3, 0.6]]
    >>> TopK(2).fit(scores).predict_set(scores)
    array([[ True,  True, False],
           [False,  True,  True]])
    """

    requires_scores = False
    _mark_checks_values = True
    _compares_samples = False

    def __init__(self, k, *, objective="micro", prior=None, log_scores=False):
        self.k = k
        self.objective = objective
        self.prior = prior
        self.log_scores = log_scores

    def _check_params(self, n_classes):
        check_top_k(self.k, n_classes)

    def _start(self, n_classes):
        self._k = int(self.k)

    def _mark(self, rank_scores, mask):
        top_k_mask(rank_scores, self._k, mask)


class AverageK(SetRule):
    r"""Return the classes above one threshold, k of them on average.

    Among all sets of average size k, ``{y : p_y(x) >= t}`` has the greatest coverage [1]_, eq.
    (2.28). The threshold t is read off unlabelled scores: it is the smallest for which the
    average size on the calibration data is not above `k`, ties or not, put halfway to the next
    lower score. A floor and a cap on the size of each set are taken into account in the
    threshold, so that the average is still k.

    Parameters
    ----------
    k : float
        Average size of the sets, in (0, n_classes]. With k >= n_classes every class is
        returned, with a warning.
    min_size : int, default=0
        Fewest classes in a set; at most k. With 1 no set is empty.
    max_size : int, optional
        Most classes in a set; at least k.
    objective : {"micro", "macro"}, default="micro"
        Coverage to maximise: over samples, by thresholding p_y(x), or averaged over classes, by
        thresholding p_y(x)/prior_y (see :class:`TopK`).
    prior : array-like of shape (n_classes,), optional
        Class prior for ``objective="macro"``. None: the class frequencies of the `y` given to
        `fit`.
    log_scores : bool, default=False
        Whether scores are log-probabilities. It matters to ``objective="macro"`` only, but
        log-probabilities are to be preferred in float32: a saturated softmax ties at 0 and 1.
    finite_sample : bool, default=False
        Whether to promise that the size of a fresh set is at most k in expectation, over
        calibration sets too [2]_. Sets are smaller for it, by up to ``max_size``/(n + 1) from n
        samples, and more where scores tie: set `max_size`, or the number of classes takes its
        place. Calibration samples must be ones that the model was not trained on, without
        weights; ``objective="macro"`` needs a `prior` from elsewhere.

    Attributes
    ----------
    threshold_ : float
        A class is in the set when its rank score is at least this. -inf: every class.
    expected_size_ : tuple of two floats
        Average size of the calibration sets, and `size_standard_error_`.
    size_std_ : float
        Standard deviation s of the sizes of the calibration sets.
    size_standard_error_ : float
        Standard error of the average size that the threshold gives on all samples of the kind,
        without weights about ``s / sqrt(n_samples_seen_)``. It takes some twenty samples to tell
        it; it is rough where few weights prevail, infinite for one sample, and zero where all
        calibration sets of more have one size, as with ``min_size=k``.
    n_classes_ : int
    n_samples_seen_ : int
    prior_ : ndarray of shape (n_classes,) or None

    Notes
    -----
    On n fresh samples like those of the calibration, the average size S of the sets differs
    from k by sampling error. With n' calibration samples and s the standard deviation of the set
    sizes, S - k has a standard error of about ``s * sqrt(1/n + 1/n')``, and k is approached from
    below by less than 1/n' unless scores tie. `predict_set` warns, once after a calibration,
    when the sets of at least 50 samples are 5 such errors, and a tenth of k, from what they were
    with at least 50 calibration samples.

    The calibration takes no labels, so that the samples which sets are wanted for may take part
    in it, or be all of it. The average size is then at most k on those very samples, for sure.

    With ``finite_sample=True`` the threshold is the smallest for which
    ``(sum of calibration sizes + max_size) / (n' + 1)`` is not above k. It exists when
    ``k (n' + 1) >= max_size + min_size n'``; otherwise sets have `min_size` classes, and a
    warning says so.

    `partial_fit` keeps the ``k * n_samples`` largest scores when `n_samples` is announced, with
    weights twice as many, which is exact unless later samples weigh more than twice as much as
    earlier ones. Otherwise it keeps four million, and afterwards twice what the samples so far
    need: enough for shuffled samples. An error says so where it is not enough.

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023, section
       2.2.4 and Algorithm 1, with the corrections needed for ties.
    .. [2] Angelopoulos et al., "Conformal risk control", ICLR 2024, Theorem 1, the loss being
       the size.

    Examples
    --------
    >>> from sksetvalued.rules import AverageK
    >>> scores = [[0.5, 0.3, 0.2], [0.6, 0.3, 0.1]]
    >>> rule = AverageK(1).fit(scores)
    >>> rule.threshold_
    0.4
    >>> AverageK(1.5, min_size=1).fit(scores).predict_set(scores).sum(axis=1)
    array([1, 1])
    """

    _expects_sizes = True

    def __init__(
        self,
        k,
        *,
        min_size=0,
        max_size=None,
        objective="micro",
        prior=None,
        log_scores=False,
        finite_sample=False,
    ):
        self.k = k
        self.min_size = min_size
        self.max_size = max_size
        self.objective = objective
        self.prior = prior
        self.log_scores = log_scores
        self.finite_sample = finite_sample

    @property
    def requires_held_out(self):
        """Whether the promise needs scores of samples that the model was not trained on."""
        return bool(self.finite_sample)

    def _check_params(self, n_classes):
        if not isinstance(self.finite_sample, bool | np.bool_):
            raise TypeError(f"finite_sample must be True or False, got {self.finite_sample!r}.")
        check_average_k(self.k, n_classes)
        check_integer("min_size", self.min_size, 0)
        if self.min_size > self.k:
            raise ValueError(
                f"min_size={self.min_size} is above k={self.k}: sets of at least min_size "
                "classes cannot hold k on average. Lower min_size or raise k."
            )
        if self.max_size is not None:
            check_integer("max_size", self.max_size, 0, also=" or None")
            if self.max_size < self.k:
                raise ValueError(
                    f"max_size={self.max_size} is below k={self.k}: sets of at most max_size "
                    "classes cannot hold k on average. Raise max_size or lower k."
                )

    def _set_prior(self, n_classes, y, sample_weight):
        super()._set_prior(n_classes, y, sample_weight)
        if self.finite_sample and self.prior_ is not None and self.prior is None:
            warn_caller(
                "the prior was counted in the labels of the calibration samples, so that sets of "
                "fresh samples may be larger than finite_sample=True promises: pass prior=, the "
                "class frequencies of the training set.",
            )

    def _start(self, n_classes):
        self._bounds = (
            int(self.min_size),  # those of NumPy may be of few bits
            None if self.max_size is None else int(self.max_size),
        )
        self._every_class = self.k >= n_classes
        self._selector, self._threshold, self._reach = None, None, 1
        # The mean of the sizes of calibration sets, their spread, the standard error of the mean.
        self._moments = (float(n_classes), 0.0, 0.0)
        self._drift_said = False
        self._reserve = None
        if self.finite_sample:
            self._reserve = min(self._bounds[1] or n_classes, n_classes)

    def _update(self, y_score, y, weight, total):
        if self._reserve is not None and weight is not None and (weight != 1).any():
            raise ValueError(
                "sample_weight cannot be used with finite_sample=True, whose promise is about "
                "samples that count alike. Leave it out."
            )
        if self._every_class:
            return
        if self._selector is None:
            # How much weight later chunks will bring is not known.
            total_weight = weight.sum() if weight is not None and len(y_score) == total else None
            self._selector = AverageSizeSelector(
                self.k,
                *self._bounds,
                n_samples=total,
                total_weight=total_weight,
                reserve=self._reserve,
                keep_rows=True,
                reach=self._reach,
            )
        weight = None if self._reserve is not None else weight
        for rows in row_blocks(y_score.shape):
            chunk_weight = None if weight is None else weight[rows]
            self._selector.update(self._rank(y_score[rows]), chunk_weight)
        self._threshold = None

    def _merge(self, other):
        if self._selector is None:
            self._selector = other._selector
        elif other._selector is not None:
            self._selector.merge(other._selector)
        self._threshold = other._selector = None

    def _close(self):
        self._solve()
        if self._reach == 1:
            self._selector = None

    def _solve(self):
        """Find the threshold of the samples seen so far, and what sizes it gives them."""
        if self._every_class or self._threshold is not None:
            return
        self._threshold = self._selector.threshold()
        *moments, empty = self._selector.size_moments(self._threshold)
        self._moments = tuple(moments)
        n = self._selector.rows_seen
        if self._threshold == inf:
            warn_caller(
                f"{n} calibration samples are too few for k={self.k} "
                f"with finite_sample=True: sets hold min_size={self._bounds[0]} classes. Give "
                f"more samples, or a max_size below {self._reserve}.",
            )
        elif n >= FEWEST_COMPARED:
            if self.objective == "micro" and self.k >= EMPTY_FROM:
                self._check_empty(empty)
            size = self._moments[0]
            if self._reserve is None and hold_too_few(size, self._selector.k, n):
                warn_caller(
                    f"the sets of the calibration hold {size:.3g} classes on average, less than "
                    f"k={self.k}: {TIES}",
                )

    def _begin_for_another(self, n_classes):
        """Return the rule, with nothing seen, ready for scores and then for :meth:`_allow_for`."""
        self._begin(n_classes)
        self._reach = MOST_ALLOWED
        return self

    def _allow_for(self, size, seen):
        """Set the threshold for another model than those that gave the scores.

        Sets of its training samples hold `size` classes at the threshold of before; those of the
        models that gave the scores held `seen`. If they are larger, so will be sets of new
        samples, as long as its training samples are much like new ones to it.
        """
        change = 1
        if seen and size:
            change = (seen / size) ** (min(1, seen / self.k) ** WORTH)
        self._aim_at(self.k * min(max(change, 1 / MOST_ALLOWED), MOST_ALLOWED))

    def _sizes_of(self, y_score):
        """Return the sizes of some sets, which are not compared with those of the calibration."""
        mask = np.zeros(y_score.shape, dtype=bool)
        self._mark_sets(y_score, mask)
        return mask.sum(1)

    def _aim_at(self, size):
        """Set the threshold at which calibration sets hold `size` classes, those of others k."""
        self._solve()
        if not self._every_class:
            low, high = self._bounds
            high = self.n_classes_ if high is None else high
            self._selector.k = min(max(size, low), high)
            self._threshold = self._selector.threshold()
        self._reach = 1
        self._finish()
        self._selector = None

    def _check_empty(self, empty):
        """Warn if so large a share of the calibration sets is empty that scores look unfit."""
        if empty > MOST_EMPTY:
            warn_caller(
                f"{empty:.0%} of the calibration sets are empty for k={self.k}. One threshold is "
                "for scores that compare between samples, as probabilities do; margins do not: "
                "wrap the classifier in sklearn.calibration.CalibratedClassifierCV, or train it "
                "with a cross-entropy. Or set min_size=1.",
            )

    @property
    def threshold_(self):
        """Threshold of the samples seen so far."""
        self._check_is_fitted()
        self._solve()
        return -inf if self._every_class else self._threshold

    @property
    def size_std_(self):
        """Standard deviation of the sizes of the sets of the samples seen so far."""
        self._check_is_fitted()
        self._solve()
        return self._moments[1]

    @property
    def expected_size_(self):
        """Average size that the calibration lets expect, and its standard error."""
        error = self.size_standard_error_
        return self._moments[0], error

    @property
    def size_standard_error_(self):
        """Standard error of the average size that the threshold gives."""
        self._check_is_fitted()
        self._solve()
        return self._moments[2]

    def __getstate__(self):
        # A copy, as in a file, has told nobody.
        told = {"_drift_said": False} if "_drift_said" in vars(self) else {}
        return super().__getstate__() | told

    def _check_sizes(self, sizes):
        """Warn of sizes far from those of the calibration, once after this or a copy."""
        n = len(sizes)
        if self._drift_said or n < FEWEST_COMPARED or self.n_samples_seen_ < FEWEST_COMPARED:
            return
        expected, spread, error = self._moments
        # The larger spread, as few samples may all miss the large sets of a skewed law.
        error = np.hypot(max(spread, sizes.std()) / np.sqrt(n), error)
        off = sizes.mean() - expected
        if abs(off) > max(FAR_ERRORS * error, FAR_SHARE * self.k):
            self._drift_said = warn_caller(
                f"the sets of these {n} samples hold {sizes.mean():.3g} classes on average, where "
                f"{expected:.3g} with a standard error of {error:.2g} was expected: their scores "
                "are not like those of the calibration, or classes had too few samples to tell. "
                "For new data, calibrate(X) on samples like them sets the threshold anew, without "
                "labels; samples that the model was trained on get other sizes than new ones.",
            )

    def _mark(self, rank_scores, mask):
        threshold_mask(rank_scores, self.threshold_, *self._bounds, mask)

"""The rule that controls how often the true class is missed: by samples, or by classes."""

import numpy as np

from .._checks import check_option, check_real
from .._masks import threshold_mask
from .._warnings import warn_caller
from ._base import SetRule, check_error
from ._conformal import (
    class_thresholds,
    conformal_threshold,
    counted,
    macro_threshold,
    samples_missing,
    samples_needed,
)

#: What rounding takes from a score in double precision, at most, as a part of it.
ROUNDING = 8 * np.finfo(np.float64).eps
#: What is said of weights where samples are too few, after their sum and number.
WEIGHTED = (
    " Weights count copies, and are {:.3g} in all, of {} samples: shares of a whole are to be "
    "multiplied until their mean is 1."
)
COVERAGES = ("micro", "macro", "class")


class AverageError(SetRule):
    r"""Return the classes above a threshold, so that the true class is missed rarely enough.

    Split conformal prediction with the score of the true class. What is ranked, `objective`, and
    what is promised, `coverage`, are two choices. Thresholds come from n labelled calibration
    samples, n_y of them in class y, and promise for fresh samples like them, whatever the model:

    - ``coverage="micro"``: P(Y in set) >= 1 - error [1]_, [2]_, eq. (2.5). One threshold, the
      r-th smallest score of a true class, r = floor((n + 1) error).
    - ``coverage="macro"``: the mean over classes of P(Y in set | Y = y) is at least 1 - error.
      One threshold, the largest t for which

      .. math:: \frac1L \sum_y \frac{N_y(t) + 1}{n_y + 1} \le error,

      where N_y(t) counts the calibration samples of class y whose score is below t.
    - ``coverage="class"``: P(Y in set | Y = y) >= 1 - error for every class [3]_. One threshold
      per class, that of "micro" among its own samples.

    The last two hold given the number of samples of each class, and go on to hold when the
    proportions of the classes change.

    Parameters
    ----------
    error : float
        Share of samples whose set may miss the true class, in (0, 1). Where the classifier errs
        less often than that, some sets are empty, and they cover less than its labels alone.
    objective : {"micro", "macro"}, default="micro"
        What is ranked: p_y(x), for the smallest sets of a given coverage over samples, or
        p_y(x)/prior_y [4]_, for the smallest sets of a given coverage averaged over classes.
        Without effect where each class has its own threshold.
    prior : array-like of shape (n_classes,), optional
        Class prior for ``objective="macro"``: the class frequencies of the training set. None:
        those of the `y` given to `fit`, on which the promise of ``coverage="micro"`` then
        depends a little (a warning says so).
    coverage : {"micro", "macro", "class"}, default="micro"
        What is promised.
    interpolation : float in [0, 1], optional
        With ``coverage="class"``, the weight of the threshold of the class beside the common one
        of ``coverage="micro"`` ("Interp-Q" [4]_); a class with too few samples to have one
        counts as zero. The promise becomes P(Y in set) >= 1 - 2 error, for much smaller sets.
    log_scores : bool, default=False
        Whether scores are log-probabilities. The sets do not depend on it, but for rounding: of
        a threshold that is interpolated, and of ratios to a prior in single precision, where
        scores that tie on one scale may differ on the other.

    Attributes
    ----------
    threshold_ : float
        A class is in the set when its rank score is at least this. -inf, every class, when there
        are too few calibration samples (a warning says how many are missing). Of ratios to a
        prior it is lower by what rounding may take from one in double precision. Not with
        ``coverage="class"``.
    thresholds_ : ndarray of shape (n_classes,)
        Threshold of each class, with ``coverage="class"``; -inf, in every set, for those of too
        few samples. Of ratios to a prior, and where interpolated, lower as above.
    prior_ : ndarray of shape (n_classes,) or None
    n_classes_ : int
    n_samples_seen_ : int

    Notes
    -----
    A promise is an average over calibration sets. For one calibration set of n samples, the
    coverage of "micro" follows a Beta(n + 1 - r, r) law when scores do not tie [3]_; so does
    that of each class of "class", with n_y for n. Its mean is then at most
    1 - error + 1/(n + 1).

    "micro" needs 1/error - 1 samples: 9 for error=0.1. "class" needs as many in every class;
    "macro" needs 1/error in the harmonic mean of n_y + 1, so that a few classes may have fewer.

    A sample weight counts copies of a sample, so that the scale of weights matters. Copies, and
    samples of unequal weights, tell less than as many samples do: nothing is promised with
    weights.

    The promise of "macro" follows from one test sample per class put in with the calibration
    samples: at the threshold t' where each counts itself in place of the + 1, the mean of the
    misses is at most `error`, by exchangeability within classes; and t <= t'.

    References
    ----------
    .. [1] Sadinle, Lei & Wasserman, "Least ambiguous set-valued classifiers with bounded error
       levels", JASA 2019.
    .. [2] Garcin, "Loss functions for set-valued classification", thesis, 2023, section
       2.2.2.
    .. [3] Vovk, "Conditional validity of inductive conformal predictors", 2012.
    .. [4] Ding, Fermanian & Salmon, "Conformal prediction for long-tailed classification", ICLR
       2026.

    Examples
    --------
    >>> import numpy as np
    >>> from sksetvalued.rules import AverageError
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.dirichlet([3, 1, 0.5], size=4000)
    >>> y = np.array([rng.choice(3, p=p) for p in scores])
    >>> for coverage in ("micro", "macro", "class"):
    ...     rule = AverageError(0.1, coverage=coverage).fit(scores[:2000], y[:2000])
    ...     covered = rule.predict_set(scores[2000:])[np.arange(2000), y[2000:]]
    ...     print(coverage, [round(float(covered[y[2000:] == c].mean()), 1) for c in range(3)])
    micro [1.0, 0.7, 0.6]
    macro [1.0, 0.9, 0.8]
    class [0.9, 0.9, 0.9]
    """

    requires_y = True
    requires_held_out = True

    def __init__(
        self,
        error,
        *,
        objective="micro",
        prior=None,
        coverage="micro",
        interpolation=None,
        log_scores=False,
    ):
        self.error = error
        self.objective = objective
        self.prior = prior
        self.coverage = coverage
        self.interpolation = interpolation
        self.log_scores = log_scores

    @property
    def requires_proba(self):
        """Whether scores must be (log-)probabilities, not just any numbers that rank."""
        return self.objective == "macro" or self.interpolation is not None

    @property
    def _promises_of_samples(self):
        return self.coverage == "micro" or self.interpolation not in (None, 1)

    def _check_params(self, n_classes):
        check_error(self.error)
        check_option("coverage", self.coverage, COVERAGES)
        if self.interpolation is not None:
            self._check_interpolation()

    def _check_interpolation(self):
        tau = self.interpolation
        check_real("interpolation", tau, "[0, 1]", also=" or None")
        if self.coverage != "class":
            raise ValueError(
                f"interpolation={tau} is between thresholds of classes and a common one: it "
                f"needs coverage='class', got coverage={self.coverage!r}."
            )

    def _set_prior(self, n_classes, y, sample_weight):
        super()._set_prior(n_classes, y, sample_weight)
        if self.prior_ is not None and self.prior is None and self.coverage == "micro":
            warn_caller(
                "the prior was counted in the labels of the calibration samples, on which the "
                "promise of coverage='micro' then depends a little: pass prior=, the class "
                "frequencies of the training set.",
            )

    def _start(self, n_classes):
        self._seen, self._threshold = [], None
        self._lowest = np.full(n_classes, np.inf)
        self._promise = (float(self.error), self.coverage, self.interpolation)

    def _update(self, y_score, y, weight, total):
        weight = np.ones(len(y)) if weight is None else weight
        kept = np.flatnonzero(weight)
        y, weight = y[kept], weight[kept]
        true_scores = y_score[kept, y]
        prior = self._scaled_prior(y_score.dtype)
        if prior is not None:
            true_scores = self._over_prior(true_scores, prior[y])
        self._seen.append((true_scores, y, weight))
        some = y_score if len(kept) == len(y_score) else y_score[kept]
        lowest = self._over_prior(some.min(axis=0, initial=np.inf), prior)
        self._lowest = np.minimum(self._lowest, lowest)
        self._threshold = None

    def _merge(self, other):
        self._seen = self._seen + other._seen
        self._lowest = np.minimum(self._lowest, other._lowest)
        self._threshold = None

    def _close(self):
        self._threshold = self._solve()
        self._seen = []
        del self._lowest  # scores that only a threshold which is set anew would be compared with

    def _solve(self):
        """Return the threshold, or those of the classes, of the samples seen so far."""
        seen = tuple(np.concatenate(parts) for parts in zip(*self._seen))
        threshold = self._quantile(seen)
        too_few = self._warn_if_too_few(seen[1], seen[2])
        self._warn_if_all_reach(threshold, too_few, *seen[:2])
        one_of_them = self.prior_ is None and self._promise[2] in (None, 0, 1)
        return threshold if one_of_them else self._reached(threshold)

    def _quantile(self, seen):
        error, coverage, interpolation = self._promise
        if coverage == "macro":
            return macro_threshold(*seen, error, self.n_classes_)
        common = conformal_threshold(seen[0], seen[2], error)
        if coverage == "micro":
            return common
        thresholds = class_thresholds(*seen, error, self.n_classes_)
        if interpolation is None:
            return thresholds
        return self._interpolated(thresholds, common, interpolation)

    def _interpolated(self, thresholds, common, share):
        if self._log_scores:
            with np.errstate(divide="ignore"):
                return np.logaddexp(np.log(share) + thresholds, np.log(1 - share) + common)
        return share * np.maximum(thresholds, 0) + (1 - share) * max(common, 0)

    def _reached(self, threshold):
        """Return what scores reach that would fall short of a threshold by rounding alone.

        Such as shares of votes, over priors or halfway between two others.
        """
        scale = np.maximum(np.abs(threshold), 1) if self._log_scores else np.abs(threshold)
        return threshold - np.where(np.isinf(threshold), 0, ROUNDING * scale)

    def _warn_if_too_few(self, y, weight):
        error, coverage, interpolation = self._promise
        counts = counted(y, weight, self.n_classes_)
        weighted = "" if (weight == 1).all() else WEIGHTED.format(weight.sum(), len(weight))
        if coverage == "class" and interpolation in (None, 1):
            return self._warn_of_rare_classes(counts, weighted)
        groups = counts if coverage == "macro" else counted(0 * y, weight, 1)
        missing = samples_missing(groups, error)
        if missing:
            where = " of the rarest classes" if coverage == "macro" else ""
            warn_caller(
                f"{groups.sum():g} calibration samples are too few for error={self.error} and "
                f"coverage={coverage!r}: every class is returned. Samples missing: {missing} at "
                f"least{where}.{weighted}",
            )
        return missing > 0

    def _warn_of_rare_classes(self, counts, weighted):
        needed = samples_needed(self._promise[0])
        rare = np.flatnonzero(counts < needed)
        if rare.size:
            missing = int(np.ceil((needed - counts[rare]).sum()))
            warn_caller(
                f"{rare.size} of {self.n_classes_} classes are in every set: error={self.error} "
                f"in every class takes {needed} calibration samples of each. Samples missing: "
                f"{missing}, of the classes at columns {rare[:5].tolist()}"
                f"{'...' if rare.size > 5 else ''}. coverage='macro', or an interpolation, does "
                f"with fewer.{weighted}",
            )
        return counts < needed

    def _warn_if_all_reach(self, threshold, known, true_scores, y):
        """Warn of thresholds that no score is below, where that is not known already.

        The lowest of scores that do not tie is below the one of a new sample.
        """
        of_classes = np.ndim(threshold) > 0
        lowest = self._lowest if of_classes else self._lowest.min()
        tied = y[true_scores <= (lowest[y] if of_classes else lowest)]
        n_tied = np.bincount(tied, minlength=self.n_classes_) if of_classes else len(tied)
        n_reached = np.count_nonzero((threshold <= lowest) & (n_tied > 1) & ~np.asarray(known))
        if n_reached and self.n_classes_ > 1:
            some = f"{n_reached} of " if of_classes else ""
            warn_caller(
                f"{some}{self.n_classes_} classes are in every set: so many samples give their "
                "class the lowest score that there is that no threshold keeps "
                f"error={self.error}. Use scores that tell more, as those of more trees or "
                "neighbours, or of CalibratedClassifierCV, or allow a larger error.",
            )

    @property
    def threshold_(self):
        """Threshold of the samples seen so far."""
        self._check_is_fitted()
        if self._promise[1] == "class":
            raise AttributeError("coverage='class' has one threshold per class: thresholds_.")
        return self._current()

    @property
    def thresholds_(self):
        """Threshold of each class, of the samples seen so far."""
        self._check_is_fitted()
        if self._promise[1] != "class":
            raise AttributeError(
                f"coverage={self._promise[1]!r} has one threshold for all classes: threshold_."
            )
        return self._current()

    def _current(self):
        if self._threshold is None:
            self._threshold = self._solve()
        return self._threshold

    def _mark(self, rank_scores, mask):
        threshold_mask(rank_scores, self._current(), mask=mask)

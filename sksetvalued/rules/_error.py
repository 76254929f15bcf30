"""Rules that control the error of the sets, on average or sample by sample."""

import warnings

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._masks import row_blocks, threshold_mask
from ._base import SetRule, check_error

#: Row sums of probabilities may be this far from one.
SUM_TOLERANCE = 1e-3


class AverageError(SetRule):
    r"""Return the classes above one threshold, so that the true class is missed rarely enough.

    Split conformal prediction with the score of the true class [1]_, [2]_, eq. (2.5): with n
    labelled calibration samples, the threshold is the r-th smallest score of a true class,
    r = floor((n + 1) error). On fresh samples, exchangeable with the calibration samples, the
    coverage is at least 1 - error, whatever the model, and at most 1 - error + 1/(n + 1) when
    scores do not tie.

    Parameters
    ----------
    error : float
        Share of samples whose set may miss the true class, in (0, 1).
    log_scores : bool, default=False
        Whether scores are log-probabilities. The sets do not depend on it.

    Attributes
    ----------
    threshold_ : float
        A class is in the set when its score is at least this. -inf, every class, when there are
        fewer than 1/error - 1 calibration samples (a warning says so).
    n_classes_ : int
    n_samples_seen_ : int

    Notes
    -----
    The guarantee is an average over calibration sets. For one calibration set of n samples, the
    coverage follows a Beta(n + 1 - r, r) law when scores do not tie [3]_. A sample weight counts
    copies of a sample.

    References
    ----------
    .. [1] Sadinle, Lei & Wasserman, "Least ambiguous set-valued classifiers with bounded error
       levels", JASA 2019.
    .. [2] Garcin, "Loss functions for set-valued classification", thesis, 2023, section
       2.2.2.
    .. [3] Vovk, "Conditional validity of inductive conformal predictors", 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from sksetvalued.rules import AverageError
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.dirichlet(np.ones(4), size=2000)
    >>> y = np.array([rng.choice(4, p=p) for p in scores])
    >>> rule = AverageError(0.1).fit(scores[:1000], y[:1000])
    >>> covered = rule.predict_set(scores[1000:])[np.arange(1000), y[1000:]]
    >>> bool(covered.mean() > 0.87)
    True
    """

    requires_y = True

    def __init__(self, error, *, log_scores=False):
        self.error = error
        self.log_scores = log_scores

    def _check_params(self, n_classes):
        check_error(self.error)

    def _start(self, n_classes):
        self._true_scores, self._weights, self._threshold = [], [], None

    def _update(self, y_score, y, weight, total):
        self._true_scores.append(y_score[np.arange(len(y)), y])
        self._weights.append(np.ones(len(y)) if weight is None else weight)
        self._threshold = None

    def _close(self):
        self._threshold = self.threshold_
        self._true_scores, self._weights = [], []

    @property
    def threshold_(self):
        """Threshold of the samples seen so far."""
        check_is_fitted(self)
        if self._threshold is None:
            scores, weights = np.concatenate(self._true_scores), np.concatenate(self._weights)
            self._threshold = conformal_threshold(scores, weights, self.error)
            if self._threshold == -np.inf and scores.min() > -np.inf:
                self._warn_too_few(weights.sum())
        return self._threshold

    def _warn_too_few(self, n_samples):
        warnings.warn(
            f"{n_samples:g} calibration samples are too few for error={self.error}: every class "
            f"is returned. Give at least {int(np.ceil(1 / self.error)) - 1} samples.",
            UserWarning,
            stacklevel=3,
        )

    def _mask(self, rank_scores):
        return threshold_mask(rank_scores, self.threshold_)


class PointwiseError(SetRule):
    r"""Return, for every sample, the fewest classes whose probability reaches 1 - error.

    The Bayes rule of the point-wise error formulation [1]_, Table 2.1: classes are taken from
    the likeliest on until their probabilities sum to 1 - error. It relies on the probabilities
    being right; nothing is calibrated.

    Parameters
    ----------
    error : float
        Probability that the set of a sample may miss its true class, in (0, 1).
    log_scores : bool, default=False
        Whether scores are log-probabilities.

    Attributes
    ----------
    n_classes_ : int

    Notes
    -----
    Ties go to the highest column. A sum that falls short of 1 - error by no more than the
    rounding of the scores (8 units in the last place of 1) counts as reaching it, so that
    0.6 + 0.3 reaches 0.9.

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023, section
       2.2.1.

    Examples
    --------
    >>> from sksetvalued.rules import PointwiseError
    >>> scores = [[0.6, 0.3, 0.1], [0.05, 0.0, 0.95]]
    >>> PointwiseError(0.1).fit(scores).predict_set(scores)
    array([[ True,  True, False],
           [False, False,  True]])
    """

    requires_proba = True

    def __init__(self, error, *, log_scores=False):
        self.error = error
        self.log_scores = log_scores

    def _check_params(self, n_classes):
        check_error(self.error)

    def _start(self, n_classes):
        self._error = float(self.error)

    def _update(self, y_score, y, weight, total):
        for rows in row_blocks(y_score.shape):
            self._mask(y_score[rows])

    def _mask(self, rank_scores):
        p = np.exp(rank_scores) if self.log_scores else rank_scores
        order = np.argsort(p, axis=1, kind="stable")[:, ::-1]
        reached = np.cumsum(np.take_along_axis(p, order, axis=1), axis=1, dtype=np.float64)
        if np.abs(reached[:, -1] - 1).max() > SUM_TOLERANCE:
            raise ValueError(
                "PointwiseError needs probabilities that sum to 1 in each row, got a row whose "
                f"sum is off by {np.abs(reached[:, -1] - 1).max():.3g}. Pass predict_proba's "
                "output, or log_scores=True with log-probabilities."
            )
        wanted = 1 - self._error - 8 * np.finfo(p.dtype).eps
        n_short = np.count_nonzero(reached < wanted, axis=1)[:, None]
        mask = np.empty(p.shape, dtype=bool)
        np.put_along_axis(mask, order, np.arange(p.shape[1]) <= n_short, axis=1)
        return mask


def conformal_threshold(true_scores, weights, error):
    """Return the largest threshold that keeps the coverage of a fresh sample at 1 - error.

    That is the largest score t with (weight of the scores below t) + 1 <= error (n + 1), n being
    the sum of the weights; without weights, the floor((n + 1) error)-th smallest score.

    Parameters
    ----------
    true_scores, weights : ndarray of shape (n_samples,)
    error : float
    """
    order = np.argsort(true_scores)
    scores, upto = true_scores[order], np.cumsum(weights[order])
    first = np.searchsorted(scores, scores, side="left")
    below = np.where(first > 0, upto[first - 1], 0.0)
    valid = (below + 1) / (upto[-1] + 1) <= error
    valid &= weights[order] > 0
    return float(scores[valid].max()) if valid.any() else -np.inf

"""The rule that controls the error of the sets sample by sample."""

import numpy as np

from .._masks import row_blocks, row_counts
from ._base import SetRule, check_error

#: Row sums of probabilities may be this far from one; bfloat16 rounds by nearly as much.
SUM_TOLERANCE = 1e-2


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
    requires_scores = False

    def __init__(self, error, *, log_scores=False):
        self.error = error
        self.log_scores = log_scores

    def _check_params(self, n_classes):
        check_error(self.error)

    def _start(self, n_classes):
        self._error = float(self.error)

    def _update(self, y_score, y, weight, total):
        for rows in row_blocks(y_score.shape):
            self._reached(y_score[rows])

    def _reached(self, rank_scores):
        """Return probabilities, their order by sample, and their sums in that order."""
        p = np.exp(rank_scores) if self._log_scores else rank_scores
        order = np.argsort(p, axis=1, kind="stable")[:, ::-1]
        reached = np.cumsum(np.take_along_axis(p, order, axis=1), axis=1, dtype=np.float64)
        if np.abs(reached[:, -1] - 1).max() > SUM_TOLERANCE:
            raise ValueError(
                "PointwiseError needs probabilities that sum to 1 in each row, got a row whose "
                f"sum is off by {np.abs(reached[:, -1] - 1).max():.3g}. Pass predict_proba's "
                "output, or log_scores=True with log-probabilities."
            )
        return p, order, reached

    def _mark(self, rank_scores, mask):
        p, order, reached = self._reached(rank_scores)
        wanted = 1 - self._error - 8 * np.finfo(p.dtype).eps
        n_short = row_counts(reached < wanted)[:, None]
        np.put_along_axis(mask, order, np.arange(p.shape[1]) <= n_short, axis=1)

"""What every rule shares: validation of scores, class indices and prior."""

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._arrays import as_array, as_numbers
from .._checks import check_in_order, check_integer, check_option, check_real
from .._masks import row_blocks
from .._sets import SetMask, set_sizes
from .._validation import (
    NO_WEIGHT,
    as_score_array,
    check_score_array,
    check_score_values,
    check_weights,
    undone_if_raised,
)
from .._warnings import warn_caller

#: One that is smaller would take more samples than can be counted.
SMALLEST_ERROR = 1e-12
#: Errors above this are taken for coverages by mistake.
MOST_ASKED = 0.75

#: Rounding may leave log-probabilities this far above 0.
LARGEST_LOG = 1e-3

OBJECTIVES = ("micro", "macro")


class SetRule(BaseEstimator):
    """Base class of the rules.

    A subclass implements ``_check_params``, ``_start`` (forget what was seen), ``_update``
    (take in a chunk), ``_close`` (free what only further chunks would need) and ``_mark`` (the
    sets of a block of rank scores, written in a mask that is all False).
    """

    #: Whether the rule is calibrated with labels.
    requires_y = False
    #: The coverage to maximise, and whether scores are logarithms; parameters of most rules.
    objective, log_scores = "micro", False
    #: Whether it learns anything of the scores that it is calibrated on.
    requires_scores = True
    #: Whether it promises what only holds for scores of samples that the model was not trained on.
    requires_held_out = False
    #: Whether that needs these samples to hold the classes in the proportions of new ones.
    _promises_of_samples = True
    #: Whether sizes of new sets are compared with those of the calibration (`_check_sizes`).
    _expects_sizes = False
    #: Whether `_mark` raises where a score is NaN or +inf.
    _mark_checks_values = False
    #: Whether scores of different samples are compared, so that a constant of each matters.
    _compares_samples = True
    #: While there are more samples to come: how many all chunks hold together, where announced,
    #: how many of weight zero were kept from the rule, and the parameters of the first chunk.
    _announced, _n_left_out, _begun_with = None, 0, None

    @property
    def requires_proba(self):
        """Whether scores must be (log-)probabilities, not just any numbers that rank."""
        return self.objective == "macro"

    def fit(self, y_score, y=None, sample_weight=None):
        """Calibrate the rule on scores, forgetting what was seen before.

        Parameters
        ----------
        y_score : array-like of shape (n_samples, n_classes)
            Scores of samples that the model was not trained on, float32 or float64.
        y : array-like of shape (n_samples,), optional
            Column indices of the true classes. Size rules do not look at them, except for the
            class prior of ``objective="macro"`` when ``prior=None``; `AverageError` needs them.
        sample_weight : array-like of shape (n_samples,), optional
            A weight of 2 counts as two copies of the sample.

        Returns
        -------
        self : object
        """
        y_score = check_score_array(y_score)
        with undone_if_raised(self):
            self._begin(y_score.shape[1], y, sample_weight)
            self._take(y_score, y, sample_weight, total=len(y_score))
        return self

    def partial_fit(self, y_score, y=None, sample_weight=None, *, n_samples=None):
        """Calibrate the rule on one more chunk of scores.

        Parameters
        ----------
        y_score, y, sample_weight
            As in :meth:`fit`.
        n_samples : int, optional
            Number of samples of all chunks together. With it `AverageK` is exact in memory
            proportional to ``k * n_samples`` whatever the order of the samples, unless the
            weights rise a lot, and frees the memory after the last chunk.

        Returns
        -------
        self : object
        """
        y_score = check_score_array(y_score)
        if not self.__sklearn_is_fitted__():
            with undone_if_raised(self):
                self._begin(y_score.shape[1])
                self._take(y_score, y, sample_weight, total=n_samples)
            return self
        self._check_columns(y_score)
        if self._closed:
            raise ValueError(
                f"the calibration was closed after {self.n_samples_seen_} samples. Call fit, or "
                "partial_fit on sklearn.base.clone(rule), to start anew."
            )
        self._take(y_score, y, sample_weight, total=n_samples)
        return self

    def merge(self, *others):
        """Take in what other rules were calibrated on, as if it were further chunks.

        The parts of a calibration may so be seen by several processes: each calibrates a clone
        of the rule on its part, by `partial_fit`. The threshold is that of all parts together.

        Parameters
        ----------
        *others : rule
            Rules of this class with the same parameters, calibrated by `partial_fit`. They are
            used up: what they have seen becomes part of this rule, and they are no longer fitted.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            If parameters differ, parts were announced another total, or a rule is closed. No
            rule is changed then.

        Notes
        -----
        Announce the `n_samples` of all parts together to each `partial_fit` where samples are
        not shuffled among the parts. Each part then keeps as many scores as the whole would.

        Examples
        --------
        >>> from sksetvalued.rules import AverageK
        >>> one = AverageK(1).partial_fit([[0.5, 0.3, 0.2]], n_samples=2)
        >>> two = AverageK(1).partial_fit([[0.6, 0.3, 0.1]], n_samples=2)
        >>> one.merge(two).threshold_
        0.4
        """
        for other in others:
            self._check_part(other)
        self._check_together(self, *others)
        for other in others:
            self._merge(other)
            self.n_samples_seen_ += other.n_samples_seen_
            self._n_left_out += other._n_left_out
            if other._announced is not None:
                self._announced = other._announced
            del other.n_classes_
        return self

    def _check_part(self, other):
        """Raise unless the other rule can be taken in."""
        self._check_alike(other)
        if self._closed or other._closed:
            raise ValueError(
                f"cannot merge {other!r} into {self!r}: the calibration of one of them is closed, "
                "and what it saw is forgotten. Calibrate parts by partial_fit, announcing as "
                "n_samples the number of samples of all parts together, or nothing."
            )

    def _check_alike(self, other):
        """Raise unless the other rule is one of the same parameters, classes and prior."""
        self._check_is_fitted()
        if type(other) is not type(self):
            raise TypeError(f"cannot merge {other!r} into {self!r}: give rules of one class.")
        other._check_is_fitted()
        self._check_unchanged()
        other._check_unchanged()
        differing = _differing(self.get_params(), other.get_params())
        if self.n_classes_ != other.n_classes_:
            differing.append("the number of classes")
        elif not np.array_equal(self.prior_, other.prior_):
            differing.append("the prior")
        if differing:
            raise ValueError(
                f"cannot merge {other!r} into {self!r}: they differ in {', '.join(differing)}."
            )

    def _check_unchanged(self):
        """Raise if parameters were set since the first chunk, which was read by the old ones."""
        changed = _differing(self._begun_with or {}, self.get_params())
        if changed:
            old = ", ".join(f"{name}={self._begun_with[name]!r}" for name in changed)
            raise ValueError(
                f"{self!r} was calibrated on {self.n_samples_seen_} samples with {old}: set it "
                "back to go on, or call fit, or partial_fit on sklearn.base.clone(rule), to start "
                "anew."
            )

    @staticmethod
    def _check_together(*parts):
        """Raise unless parts that fit two by two fit together."""
        if len(set(map(id, parts))) < len(parts):
            raise ValueError(f"cannot merge {parts}: it is one rule that is given twice.")
        seen = [part for part in parts if part.n_samples_seen_]
        announced = {part._announced for part in seen}
        if len(announced) > 1:
            raise ValueError(
                f"the parts were announced different totals, n_samples={announced}: announce "
                "to each the number of samples of all parts together, or nothing."
            )
        if announced:
            SetRule._check_total(sum(part.n_samples_seen_ for part in seen), *announced)

    def _merge(self, other):
        """Take in what the other rule, which fits, has seen."""

    def _finish(self):
        """Say that there are no more chunks."""
        if not self._closed:
            if not self.n_samples_seen_:
                raise ValueError(NO_WEIGHT)
            self._close()
            self._closed = True
            self._expect_no_more()

    def _expect_no_more(self):
        for name in ("_announced", "_n_left_out", "_begun_with"):
            vars(self).pop(name, None)

    def _begin(self, n_classes, y=None, sample_weight=None):
        """Check the parameters, and forget what was seen before."""
        if not isinstance(self.log_scores, bool | np.bool_):
            raise TypeError(f"log_scores must be True or False, got {self.log_scores!r}.")
        self._log_scores = bool(self.log_scores)
        self._check_params(n_classes)
        self._set_prior(n_classes, y, sample_weight)
        self._start(n_classes)
        self._closed = False
        self._expect_no_more()
        self.n_classes_ = n_classes
        self.n_samples_seen_ = 0
        return self

    def _take(self, y_score, y, sample_weight, total):
        self._check_unchanged()
        total = self._announced if total is None else total
        self._check_total(self.n_samples_seen_ + len(y_score), total)
        if self.n_samples_seen_ and total is not None and total != self._announced:
            raise ValueError(
                f"n_samples={total} is announced, but n_samples={self._announced} was with the "
                f"first {self.n_samples_seen_} samples: announce the number of all chunks "
                "together from the first chunk on."
            )
        weight = check_weights(sample_weight, len(y_score), complete=len(y_score) == total)
        y = None if y is None else check_class_indices(y, *y_score.shape)
        if y is None and self.requires_y:
            raise ValueError(
                f"{type(self).__name__} is calibrated on labelled samples, but y is None: pass "
                "the column indices of the true classes. AverageK needs no labels."
            )
        self._check_range(y_score)
        self._check_logs(y_score)
        self._update(y_score, y, weight, total)
        self.n_samples_seen_ += len(y_score)
        self._begun_with = self._begun_with or self.get_params()
        if total is not None:
            self._announced = total
        if self.n_samples_seen_ == total:
            self._finish()

    @staticmethod
    def _check_total(n_given, total):
        if total is None:
            return
        check_integer("n_samples", total, 0, also=" or None")
        if n_given > total:
            raise ValueError(
                f"n_samples={total} was announced, but {n_given} samples were given. Announce the "
                "number of all chunks together; fit starts anew."
            )

    def _start(self, n_classes):
        """Forget what was seen."""

    def _update(self, y_score, y, weight, total):
        """Take in a chunk."""

    def _close(self):
        """Free what only further chunks would need."""

    def predict_set(self, y_score, out=None):
        """Return the set of classes of each sample.

        Parameters
        ----------
        y_score : array-like of shape (n_samples, n_classes)
            Scores on the same scale as those given to `fit`.
        out : "csr" or bool ndarray of shape (n_samples, n_classes), default=None
            Where the sets go: a sparse matrix, or an array of yours, such as a memory map.

        Returns
        -------
        y_set : bool ndarray or csr_array of shape (n_samples, n_classes)
            True where the class is in the set.
        """
        self._check_is_fitted()
        y_score = as_score_array(y_score)
        sets = SetMask(y_score.shape, out)
        for rows in self._row_blocks(y_score.shape):
            block = y_score[rows]
            self._mark_sets(block, sets.blank(len(block)))
        y_set = sets.done()
        if self._expects_sizes:
            self._check_sizes(set_sizes(y_set))
        return y_set

    def _row_blocks(self, shape):
        """Yield the slices of rows to mark together."""
        return row_blocks(shape, once=self._mark_checks_values)

    def _mark_sets(self, y_score, mask):
        """Mark the sets of some samples of many, whose sizes are checked all together."""
        self._check_is_fitted()
        y_score = as_score_array(y_score)
        self._check_columns(y_score)
        prior = self._scaled_prior(y_score.dtype)
        for rows in self._row_blocks(y_score.shape):
            # Checked where it is used, while it is in the cache.
            block = y_score[rows]
            if not self._mark_checks_values:
                check_score_values(block)
            self._check_range(block)
            self._mark(self._over_prior(block, prior), mask[rows])

    def rank_scores(self, y_score):
        """Return the scores that the rule ranks and thresholds.

        Parameters
        ----------
        y_score : array-like of shape (n_samples, n_classes)

        Returns
        -------
        y_score : ndarray of shape (n_samples, n_classes)
            Divided by the class prior when the objective is "macro", unchanged otherwise.
        """
        self._check_is_fitted()
        y_score = check_score_array(y_score)
        self._check_columns(y_score)
        self._check_range(y_score)
        return self._rank(y_score)

    def _rank(self, y_score):
        return self._over_prior(y_score, self._scaled_prior(y_score.dtype))

    def _scaled_prior(self, dtype):
        """Return the prior on the scale of the scores, or None."""
        if self.prior_ is None:
            return None
        if self._log_scores:
            return np.log(self.prior_).astype(dtype)
        # Probabilities over smaller ones would be infinite.
        return self.prior_.astype(dtype if self.prior_.min() >= np.finfo(dtype).tiny else float)

    def _over_prior(self, y_score, prior):
        if prior is None:
            return y_score
        return y_score - prior if self._log_scores else y_score / prior

    def _set_prior(self, n_classes, y, sample_weight):
        check_option("objective", self.objective, OBJECTIVES)
        self.prior_ = None
        if self.objective == "macro":
            self.prior_ = class_prior(self.prior, n_classes, y, sample_weight)

    def _check_range(self, y_score):
        if self.requires_proba and not self._log_scores and y_score.min() < 0:
            raise ValueError(
                f"{type(self).__name__} needs probabilities here, but y_score holds negative "
                "entries. Pass probabilities, or log_scores=True with log-probabilities."
            )

    def _check_logs(self, y_score):
        """Raise if the rule is calibrated on what cannot be log-probabilities, but should be."""
        needed = self.requires_proba and self._compares_samples and self._log_scores
        if needed and y_score.max() > LARGEST_LOG:
            raise ValueError(
                f"{type(self).__name__} with log_scores=True needs log-probabilities, which are "
                f"at most 0, but y_score holds {y_score.max():.3g}. Pass them, or "
                "log_scores=False with probabilities."
            )

    def _check_columns(self, y_score):
        if y_score.shape[1] != self.n_classes_:
            raise ValueError(
                f"y_score has {y_score.shape[1]} columns, but the rule was fitted on scores of "
                f"{self.n_classes_} classes. Give the columns of all classes, or fit again."
            )

    def _check_is_fitted(self):
        check_is_fitted(
            self,
            msg="This %(name)s instance is not fitted yet, or was merged into another rule, which "
            "has what it saw. Call fit or partial_fit first.",
        )

    def __sklearn_is_fitted__(self):
        return hasattr(self, "n_classes_")


def _differing(params, others):
    return [name for name in params if not np.array_equal(params[name], others[name])]


def check_class_indices(y, n_samples, n_classes):
    """Return y as an int array of column indices of shape (n_samples,)."""
    y = as_array(y, "y")
    if y.shape != (n_samples,):
        raise ValueError(
            f"y must have shape ({n_samples},), one column index per sample, got {y.shape}."
        )
    if y.dtype.kind not in "iu":
        raise TypeError(
            f"y must hold column indices of y_score as integers, got dtype {y.dtype}. Encode "
            "labels by their position in classes_, e.g. np.searchsorted(classes_, y)."
        )
    if y.min() < 0 or y.max() >= n_classes:
        raise ValueError(
            f"y must hold column indices in [0, {n_classes - 1}], got values in "
            f"[{y.min()}, {y.max()}]: a label without a column in y_score."
        )
    return y.astype(np.intp, copy=False)


def class_prior(prior, n_classes, y=None, sample_weight=None):
    """Return the class prior of the macro objective, given or counted in `y`.

    Raises
    ------
    ValueError
        If there is none to be had, or an entry is not a positive number.
    """
    if prior is None:
        if y is None:
            raise ValueError(
                "objective='macro' needs the class prior: pass prior=, of shape (n_classes,), "
                "e.g. the class frequencies of the training set, or y to fit."
            )
        y = as_array(y, "y")
        weight = check_weights(sample_weight, len(y))
        y = check_class_indices(y, len(y), n_classes)
        prior = np.bincount(y, weights=weight, minlength=n_classes)
        prior = prior / prior.sum()
    check_in_order(prior, "prior")
    prior = as_numbers(prior, "prior").copy()
    if prior.shape != (n_classes,):
        raise ValueError(f"prior must have shape ({n_classes},), got {prior.shape}.")
    wrong = ~(prior >= np.finfo(float).tiny) | ~np.isfinite(prior)
    if wrong.any():
        raise ValueError(
            "prior must be finite and > 0 for every class, in the range of double precision, but "
            f"classes at columns {np.flatnonzero(wrong)[:5].tolist()} are not. Pass "
            "prior= with the class frequencies of the training set, where every class occurs."
        )
    return prior


def check_error(error):
    """Raise unless `error` is a number in (0, 1); warn where it looks like a coverage."""
    check_real("error", error, "(0, 1)", "error=0.1 asks for a coverage of 90 %")
    if error < SMALLEST_ERROR:
        raise ValueError(f"error must be at least {SMALLEST_ERROR}, got {error}; raise it.")
    if error > MOST_ASKED:
        coverage = 1 - float(error)
        warn_caller(
            f"error={error} asks for a coverage of {100 * coverage:.3g} % only: for one of "
            f"{100 * float(error):.3g} % give error={coverage:.3g}.",
        )

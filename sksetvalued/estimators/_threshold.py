"""A threshold that is set by scores as they come, one chunk after another."""

from contextlib import nullcontext

from sklearn.utils.validation import check_is_fitted

from .._warnings import without_warnings


class SetsThreshold:
    """Calibrate the rule of an estimator on the scores that its `_iter_thresholded` yields."""

    #: Pattern of the warnings of the rule that tell nothing here; None: all are given.
    _expected_warnings = None

    def _calibrate(self, X, sample_weight):
        check_is_fitted(self)
        self._validate_params()
        inputs = self._check_inputs(X)
        self._calibrate_inputs(inputs, self._check_weights(sample_weight, len(inputs)))
        return self

    def _calibrate_inputs(self, inputs, sample_weight=None):
        rule = self._rule()
        self._feed(rule, self._iter_thresholded(inputs), sample_weight, len(inputs))
        self.rule_ = rule

    def _calibrated_part(self, batches, n_samples=None):
        """Return a rule, not closed, that has seen batches (X, y, sample_weight)."""
        check_is_fitted(self)
        self._validate_params()
        rule = self._rule()
        for X, _, sample_weight in batches:
            inputs = self._check_inputs(X)
            weight = self._check_weights(sample_weight, len(inputs), complete=False)
            self._feed(rule, self._iter_thresholded(inputs), weight, n_samples)
        return rule

    def _feed(self, rule, chunks, sample_weight, n_samples=None):
        start, expected = 0, self._expected_warnings
        for scores in chunks:
            stop = start + len(scores)
            weight = None if sample_weight is None else sample_weight[start:stop]
            with nullcontext() if expected is None else without_warnings(expected):
                rule.partial_fit(scores, sample_weight=weight, n_samples=n_samples)
            start = stop

"""Sets of k classes on average."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from .._warnings import warn_caller, without_warnings
from ..metrics import average_k_accuracy_score
from ..rules import AverageK
from ..rules._size import MOST_SEEN
from ._docs import with_training_parameters
from ._held_out import iter_as_new, surplus_of_own_class
from ._labels import MIXTURE_CONSTRAINTS, DeepSetClassifier
from ._plain_state import PlainState
from ._threshold import SetsThreshold

#: Weight of the candidates in the two-head loss.
ALPHA = 0.1

#: Share of the data that is held out for the threshold where a search holds none out.
CALIBRATION_SHARE = 0.1

#: Folds that "auto" makes, of which it takes the first that hold out enough samples together.
FOLDS = 5

#: Share of samples, at most, that may be the only ones of their class without a word.
MOST_ALONE = 0.5

#: Epochs after which networks of more and of fewer samples would be alike after equally many.
EPOCHS_ALIKE = 150


@with_training_parameters
class AverageKClassifier(PlainState, SetsThreshold, DeepSetClassifier, rule=AverageK):
    """Deep classifier that returns sets of k classes on average.

    A sample that is easy gets a small set, an ambiguous one a large set: classes are in the set
    when their probability reaches one threshold, calibrated on unlabelled data so that the
    average size is k. The default loss is that of [1]_: one head proposes, for the whole batch,
    the candidate classes that the other learns as further labels. The sets come from the first,
    which covers more in our measurements; ``loss_params={"ranking_head": "multi_label"}`` takes
    the other, as [1]_ does.

    Parameters
    ----------
    k : float, default=5
        Average size of the sets, a real number >= 1. With k >= n_classes every class is
        returned, with a warning.
    objective : {"micro", "macro"}, default="micro"
        What the sets are to maximise: coverage over samples, or averaged over classes (for long
        tails). "macro" thresholds p_y(x) / prior_y.
    loss : str, criterion class or instance, default="two_head"
        "two_head", "two_head_mixture" (the same and the noised top-k hinge), "cross_entropy",
        "assume_negative", "expected_positive", "role", "noised_hinge", any other name in
        ``sksetvalued.losses.LOSSES`` for single labels, or a torch criterion. "lapsum" ranks the
        classes of each sample on a scale of its own, which one threshold for all does not suit.
    alpha : float, default=None
        Weight of the candidate and the other classes in the two-head loss, beside the observed
        ones. None: 0.1; 1 is the value of [1]_. Large values can cost coverage.
    cross_entropy : float in [0, 1], default=None
        Share of the two-head loss, to which the cross-entropy belongs, in "two_head_mixture".
        None: 0.5.
    ranks : mapping or iterable of (rank, weight), default=None
        Ranks of the hinge, and their weights in it, such as ``{1: 0.5, "k": 0.5}``, which None
        means in a mixture.
    label_smoothing : float in [0, 1), default=None
        Share of the labels of a mixture that goes to the classes in proportion to their training
        counts. None: 0.
    loss_params : dict, default=None
        Further arguments of the loss, such as ``{"ranking_head": "multi_label"}``.
    rule_params : dict, default=None
        Further arguments of :class:`sksetvalued.rules.AverageK`, such as
        ``{"min_size": 1, "max_size": 10}``.
    class_weight : dict, "balanced" or None, default=None
        Weights of the samples of each class in the loss, ``{label: weight}``, one for those not
        named; "balanced": inversely proportional to the class counts. Sets are not biased by it:
        the rules take it back, and `objective` says what they maximise.
    calibration_fraction : float in (0, 1), "auto" or None, default="auto"
        Share of each class held out by `fit` to calibrate the threshold; where `rule_params`
        promises a size, of all samples, as new ones are drawn. "auto" takes the samples that were
        held out to find `max_epochs`, as the network scores them that was trained without them,
        so that nothing is lost to training; where nothing is searched, or a size is promised, it
        is 0.1. None holds nothing out for it: where `max_epochs` is searched, it is as "auto",
        and otherwise the samples of the training set the threshold, by which sets of new ones are
        too small; follow it by `calibrate`.
    calibration_folds : int, "auto" or None, default="auto"
        Folds whose scores, by networks trained without them, set the threshold together: all
        samples count for it, and none is lost to the network that is kept. That one is trained
        for at most as many epochs as the networks of the folds, so that its scores are about as
        sharp as theirs, and the threshold allows for what its sets of training samples show to
        differ; each takes the time of a fit. What a fold holds out is scored as new samples
        are, which are no part of the class counts that a network learns, and sparse rows without
        the columns that no row of the training has. "auto", with
        ``calibration_fraction="auto"`` and where `max_epochs` is searched, is five, of which as
        many are used as hold out 1,500 samples (all of 1,000 samples, two of 5,000, one of 7,500
        and more), and 3,000 where columns are many or words (see `backbone`), whose few epochs
        cost little. None: no folds.
    {training}

    Attributes
    ----------
    {fitted}
    threshold_ : float
        A class is in the set when its log-probability (with ``objective="macro"``, minus its
        log-prior) is at least this.
    rule_ : AverageK
        The fitted rule.

    See Also
    --------
    TopKClassifier : Sets of exactly k classes.
    PlugInClassifier : Sets from any scikit-learn classifier.

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023, eq. (5.9)
       to (5.15) and Algorithm 1.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sksetvalued import AverageKClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = AverageKClassifier(k=1.5, max_epochs=10, random_state=0).fit(X[:1000], y[:1000])
    >>> sets = clf.calibrate(X[1000:]).predict_set(X[1000:])
    >>> bool(1.4 < sets.sum() / len(sets) <= 1.5)
    True
    """

    _parameter_constraints = {
        **DeepSetClassifier._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="left"), None],
        **MIXTURE_CONSTRAINTS,
        "calibration_fraction": [
            Interval(Real, 0, 1, closed="neither"),
            StrOptions({"auto"}),
            None,
        ],
        "calibration_folds": [
            Interval(Integral, 2, None, closed="left"),
            StrOptions({"auto"}),
            None,
        ],
    }

    def __init__(
        self,
        k=5,
        *,
        objective="micro",
        loss="two_head",
        alpha=None,
        cross_entropy=None,
        ranks=None,
        label_smoothing=None,
        loss_params=None,
        rule_params=None,
        class_weight=None,
        calibration_fraction="auto",
        calibration_folds="auto",
        **training,
    ):
        super().__init__(**training)
        self.k = k
        self.objective = objective
        self.loss = loss
        self.alpha = alpha
        self.cross_entropy = cross_entropy
        self.ranks = ranks
        self.label_smoothing = label_smoothing
        self.loss_params = loss_params
        self.rule_params = rule_params
        self.class_weight = class_weight
        self.calibration_fraction = calibration_fraction
        self.calibration_folds = calibration_folds

    @property
    def threshold_(self):
        """Smallest rank score of a class in a set."""
        return self.rule_.threshold_

    def calibrate(self, X, y=None, *, sample_weight=None):
        """Set the threshold so that the sets of X hold `k` classes on average.

        No labels are needed. On X itself the average is never above k; on fresh data it differs
        by the sampling error stated in :class:`sksetvalued.rules.AverageK`. Call it at any time,
        also after changing `k`, `objective` or `rule_params`, without fitting anew.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset
            Unlabelled samples like those that sets are wanted for.
        y : Ignored
            For the signature of `PlugInClassifier`, some rules of which need labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples in the average.

        Returns
        -------
        self : object
        """
        return self._calibrate(X, sample_weight)

    def _iter_thresholded(self, inputs):
        for scores in self._iter_scores(inputs):
            yield self._log_proba(scores)

    _loss_parameters = ("alpha", "cross_entropy", "ranks", "label_smoothing")

    def _fit_parts(self, inputs, target, *arguments):
        alone = np.mean(np.bincount(target)[target] == 1)
        if alone > MOST_ALONE:
            warn_caller(
                f"{100 * alone:.0f} % of the samples are the only ones of their class, which says "
                "little of how sure the network will be of new ones: sets may hold many times as "
                "many classes as k, or fewer. Call calibrate(X) on new samples, which needs no "
                "labels.",
            )
        super()._fit_parts(inputs, target, *arguments)

    def _search_gives_scores(self, resume):
        """Return whether the threshold can be set by samples that a search holds out."""
        return self._searches_epochs(resume) and not self.rule_.requires_held_out

    def _calibration_share(self, resume):
        if self.calibration_fraction != "auto":
            return self.calibration_fraction
        return None if self._search_gives_scores(resume) else CALIBRATION_SHARE

    def _calibration_folds(self, resume):
        folds, auto = self.calibration_folds, self.calibration_fraction == "auto"
        if folds == "auto":
            return FOLDS if auto and self._search_gives_scores(resume) else None
        if folds is not None and not auto:
            raise ValueError(
                f"calibration_folds={folds} and calibration_fraction="
                f"{self.calibration_fraction} both say where the threshold comes from: leave one "
                "of them at 'auto'."
            )
        if folds is not None and resume is not None:
            raise ValueError(
                f"calibration_folds={folds} needs networks that are trained from the start, but "
                "warm_start=True goes on with one: set calibration_folds=None."
            )
        return folds

    def _calibrate_out_of_fold(
        self, inputs, target, weight, folds, epochs, valid=None, trained=False
    ):
        rule, seen, searched = self._open_rule(), [], self.net_ if trained else None
        of_prior = self.objective == "macro" and "prior" not in (self.rule_params or {})
        if self.calibration_folds == "auto":
            held_out = np.cumsum([len(out) for _, out in folds])
            folds = folds[: np.searchsorted(held_out, self._recipe.enough_held_out) + 1]
        for kept, out in folds:
            if not trained:
                data = self._training_set(inputs, target, weight, kept, True)
                self._train(data, valid, epochs, None, instead=searched)
            if self.net_.interrupted_:
                return None
            trained = False
            own = self._open_rule()
            chunks = self._iter_thresholded(inputs.as_new(out, kept))
            surplus, in_prior = surplus_of_own_class(target, weight, kept, out)
            chunks = iter_as_new(chunks, target[out], surplus, in_prior if of_prior else None)
            self._feed(own, chunks, weight if weight is None else weight[out])
            # What is to be said of the scores is said once, of those of all folds.
            with without_warnings():
                seen.append(self._size_of_seen(own, inputs, weight, kept))
            rule.merge(own)
        self.rule_ = rule
        return float(np.mean(seen))

    def _open_rule(self):
        """Return a rule that has seen nothing; a k that needs a warning has had it before."""
        with without_warnings("every class is returned"):
            return self._rule()._begin_for_another(len(self.classes_))

    def _size_of_seen(self, rule, inputs, weight, rows):
        """Return the average size of the sets of samples that the network was trained on."""
        rows = rows[:: -(-len(rows) // MOST_SEEN)]
        scores = self._iter_scores(inputs.subset(rows))
        sizes = [rule._sizes_of(self._log_proba(part)) for part in scores]
        return np.average(np.concatenate(sizes), weights=None if weight is None else weight[rows])

    def _allow_for_the_last(self, seen, inputs, weight, train):
        if seen is not None:
            self.rule_._allow_for(self._size_of_seen(self.rule_, inputs, weight, train), seen)

    def _epochs_on_all(self, epochs, share):
        # Scores are as sharp as those of the networks that set the threshold after as many updates
        # where these are few, and nearer to as many epochs where these are many.
        return epochs * share ** (1 - epochs / EPOCHS_ALIKE)

    def _loss_supplies(self, n_samples):
        # The loss alone has another default, that of the thesis.
        return {"alpha": ALPHA} | super()._loss_supplies(n_samples)

    def _refresh_rule(self):
        check_is_fitted(self)
        changed = self._rule_changes()
        if changed:
            new, old = zip(*changed)
            warn_caller(
                f"{', '.join(new)} was set after the threshold was calibrated for "
                f"{', '.join(old)}, which is still in use: call calibrate(X), which needs no "
                "labels.",
            )

    def _rule(self):
        return self._build_rule(AverageK, k=self.k, objective=self.objective)

    def _monitor_metric(self):
        average, k = self.objective, min(self.k, len(self.classes_))
        labels = range(len(self.classes_))

        def metric(y_true, y_score, sample_weight):
            with without_warnings("many scores are equal"):  # as those of the first epochs may be
                return average_k_accuracy_score(
                    y_true,
                    self._rank_scores(y_score),
                    k=k,
                    average=average,
                    labels=labels,
                    sample_weight=sample_weight,
                )

        return f"valid_{'macro_' if average == 'macro' else ''}average_k_accuracy", metric

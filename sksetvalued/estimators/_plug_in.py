"""Sets from any scikit-learn classifier and any rule."""

import copy
from collections.abc import Iterable
from inspect import Parameter, signature
from numbers import Integral

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import PredefinedSplit, check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.model_selection._split import GroupsConsumerMixin
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import _safe_split, available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import (
    _num_samples,
    check_is_fitted,
    has_fit_parameter,
)

from .._arrays import as_labels, check_comparable, check_discrete, plain_labels, positions
from .._checks import check_object
from .._predict import (
    SCORE_METHODS,
    class_scores,
    labels_of_sets,
    one_label_each,
    score_method,
    unwrap,
)
from .._sets import sets_of
from .._validation import changed_parameters, check_weights, undone_if_raised
from .._warnings import warn_caller
from ..inputs import NO_SAMPLES
from ..rules import AverageK
from ..rules._size import MOST_SEEN
from ..training import HELD_OUT, split_at_random, split_per_class, with_rows
from ._accuracy import AccuracyMixin
from ._priors import prior_of_scores, weights_in_training

#: Scores of training samples, at most, that tell how sure models are of what they know.
MOST_SCORES_SEEN = 1 << 25

#: Share of samples, at most, of classes that a draw of those held out would leave none of.
MOST_UNKNOWN = 0.01

#: How far from [0, 1] rounding may take probabilities.
ROUNDED = 1e-3

#: How a rule that promises something of new samples is to be calibrated, without groups and with.
OTHER_SAMPLES = (
    "Use cv=0.2, which holds a fifth out, or fit the classifier first and use cv='prefit' with "
    "samples that it was not trained on."
)
OTHER_GROUPS = (
    "A promise for new groups takes whole groups that are held out: set cv to a splitter that "
    "does so once, such as GroupShuffleSplit(1), or fit the classifier first on some of them and "
    "use cv='prefit' with the samples of the others."
)
#: Splitters that hold positions of samples, whichever samples they are given.
BY_POSITION = PredefinedSplit, Iterable


def _estimator_has(method):
    def has(self):
        return hasattr(getattr(self, "estimator_", self.estimator), method)

    return has


class PlugInClassifier(MetaEstimatorMixin, AccuracyMixin, BaseEstimator):
    """Make any classifier set-valued by putting a rule on its scores.

    The rule is calibrated on scores of samples that the classifier which gave them was not
    trained on: out-of-fold scores, or new data when the classifier is already fitted.

    Parameters
    ----------
    estimator : classifier
        Any classifier or pipeline with `predict_proba` or `decision_function`.
    rule : rule
        How scores become sets: an object of :mod:`sksetvalued.rules`.
    cv : int, float, splitter, iterable, None or "prefit", default=None
        Where the scores that calibrate the rule come from. An int: from stratified
        cross-validation, after which the estimator is refitted on all samples; with a rule that
        learns nothing of scores, `TopK` or `PointwiseError`, it is fitted just once. A float in
        (0, 1): from that share of the samples, which the estimator is not trained on; of each
        class, unless the rule promises something of new samples as a whole. "prefit":
        `estimator` is fitted already and stays as it is; `fit` calibrates the rule on its
        samples, which it must not have been trained on. A splitter, or an iterable of splits:
        from these as from cross-validation; with a rule that promises something of new samples
        there must be one, such as ``GroupShuffleSplit(1)``, which holds out whole groups, and the
        classifier is trained on its other part alone. An iterable, or a `PredefinedSplit`, holds
        positions of the samples of this very fit: it is not for searches.
        None: 5, or 0.2 for a rule that promises something of new samples, which cross-validation
        cannot. A matrix of kernels or distances takes no share.
    n_jobs : int, default=None
        Folds whose classifiers are fitted at a time, by joblib; None is 1 unless a
        ``joblib.parallel_config`` says otherwise.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted labels; the order of the columns of the sets.
    class_counts_ : ndarray of shape (n_classes,)
        Training samples per class, their weights where the classifier is given weights. With
        ``cv="prefit"``, there if `estimator` has it.
    estimator_ : classifier
        The fitted classifier.
    rule_ : rule
        The calibrated rule.
    n_features_in_ : int
        Where `estimator_` has it, as with ``feature_names_in_``.

    See Also
    --------
    sksetvalued.rules : The rules.

    Notes
    -----
    With cross-validation nothing is promised of the model that is refitted on all samples, which
    saw more data than those of the folds. How sure it is of its own samples, beside how sure they
    were of theirs, says how the size of `AverageK` has to change; at most 10,000 samples, and
    fewer of thousands of classes, are looked at for it. On 28 pairs of data and classifier (300 to
    1,000 samples, ten seeds) sets were 1.9 % off k in the mean without it, and are 0.8 % off with
    it; single fits miss k by 2.4 % in place of 3.0. It says nothing of classifiers that know their
    samples by heart: they are surer of themselves, and sets are smaller, the more so the fewer the
    folds. On noisy digits (900 samples, four seeds), a logistic regression with ``AverageK(2)``
    gives sets of 1.67 classes with ``cv=3``, 1.85 with 5, 1.94 with 10 and 1.97 with 20. With 5,
    naive Bayes and a regression on scaled columns are within 1 % of 2, a forest and a perceptron
    are 5 % below. `predict_set` warns of sizes that are far off. Rules that promise something,
    `AverageError` and ``AverageK(finite_sample=True)``, are refused with cross-validation: use
    ``cv=0.2`` or ``cv="prefit"``, or `calibrate` on fresh data, which for `AverageK` need no
    labels.

    With a share held out each class keeps a sample in training, and the one of a class that has
    no other is not calibrated on. For the promises of ``coverage="macro"`` and "class" the share
    is drawn class by class. For those over samples it is drawn without a look at the labels, so
    that it is to the classifier what new samples are, but for the samples that classes keep; a
    warning says where these are more than one in a hundred.

    A forest of few trees has probabilities that tie, and `AverageK` then stays below its size.

    A class that a training fold lacks scores zero probability there.

    Rules are given the probabilities of a classifier; of the deep ones of this package, those
    under the prior of their training data, whatever their loss did to it. The prior of a macro
    objective, where the rule has none, is the one under which the classifier gives them: what it
    says itself, as naive Bayes does, else `class_counts_` times its `class_weight`. A classifier
    that is fitted already is taken to be trained on classes as frequent as those it is calibrated
    on; else give the rule a `prior`. Such weights inside of an ensemble are not seen.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sksetvalued import PlugInClassifier
    >>> from sksetvalued.rules import AverageK
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = PlugInClassifier(GaussianNB(), AverageK(2)).fit(X[:1000], y[:1000])
    >>> clf.predict_set(X[1000:]).shape
    (797, 10)
    """

    def __init__(self, estimator, rule, *, cv=None, n_jobs=None):
        self.estimator = estimator
        self.rule = rule
        self.cv = cv
        self.n_jobs = n_jobs

    def fit(self, X, y=None, sample_weight=None, **fit_params):
        """Fit the classifier and calibrate the rule.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            What `estimator` accepts.
        y : array-like of shape (n_samples,)
            Labels. With ``cv="prefit"`` they may be left out if the rule does not need them.
        sample_weight : array-like of shape (n_samples,), optional
            Used by the rule, and by the classifier if it takes weights. A weight of zero
            removes a sample, and a class that has no other samples. A splitter is not given
            such samples; an iterable of splits, and a `PredefinedSplit`, count them.
        **fit_params : dict
            Passed to ``estimator.fit``, and `groups` to the splitter `cv`; by metadata routing
            where it is enabled. None with ``cv="prefit"``.

        Returns
        -------
        self : PlugInClassifier

        Raises
        ------
        TypeError
            If `estimator` has neither `predict_proba` nor `decision_function`, or `rule` is not
            a rule.
        ValueError
            If a parameter has a wrong value.
        """
        self._check_parts()
        if self._is_prefit() and fit_params:
            raise TypeError(
                f"estimator={self.estimator!r} is fitted already, and nothing else is, so that "
                f"fit takes no {', '.join(sorted(fit_params))}: leave that out."
            )
        with undone_if_raised(self):
            if self._is_prefit():
                return self._fit_prefit(X, y, sample_weight)
            return self._fit_anew(X, y, sample_weight, fit_params)

    def _fit_anew(self, X, y, sample_weight, fit_params):
        share = self._held_out_share()
        holds_out = share is not None or self._promises()
        if holds_out and get_tags(self.estimator).input_tags.pairwise:
            raise ValueError(
                f"cv={self.cv!r} with rule={self.rule!r} trains {type(self.estimator).__name__} "
                "on a part of the samples, but a matrix of kernels or distances to new ones has a "
                "column for each of them all: fit it on a part that you choose, and calibrate on "
                "the others with cv='prefit'; AverageK can take a number of folds."
            )
        X, y, weight, fit_params, place = self._check_data(X, y, sample_weight, fit_params)
        target = np.unique(y, return_inverse=True)[1]
        fit_params, split_params = self._route(weight, fit_params)
        needs_scores = getattr(self.rule, "requires_scores", True)
        train = np.arange(len(y))
        if share is not None:
            train, rows = self._split(target, share)
        elif needs_scores or not isinstance(self.cv, Integral | None):
            folds = self._folds(X, y, place, split_params)
            if holds_out:
                train, rows = self._only_split(folds)
        target = self._fit_last(X, y, train, fit_params)
        if holds_out:
            y_score, seen = self._scores(self.estimator_, self._rows(X, rows, train)), []
        elif needs_scores:
            y_score, rows, seen = self._out_of_fold_scores(X, y, folds, fit_params)
        else:
            self.rule_ = self._rule()._begin(len(self.classes_))
            return self
        given = y_score, target[rows], None if weight is None else weight[rows]
        self.rule_ = self._calibrated_rule(given, seen, X, train, weight)
        return self

    def _fit_last(self, X, y, train, fit_params):
        """Fit the classifier that predicts; return the column of each label."""
        self.estimator_ = self._fit_estimator(X, y, train, fit_params)
        # A frozen classifier may know more, and one that learns from unlabelled samples fewer.
        self.classes_ = _classes_of(self.estimator_)
        target = self._columns(y)
        own = weights_in_training(self.estimator, fit_params)
        self.class_counts_ = np.bincount(
            target[train],
            weights=None if own is None else np.asarray(own)[train],
            minlength=len(self.classes_),
        )
        self._copy_attributes()
        return target

    def _check_data(self, X, y, sample_weight, fit_params):
        """Return samples, labels, weights and parameters of `fit`, without samples of weight zero.

        And the place of each position that may stand in `cv`, negative where it was left out.
        """
        if y is None:
            raise ValueError(
                "PlugInClassifier requires y to be passed, but the target y is None. Only with "
                "cv='prefit' can some rules do without."
            )
        X, y = indexable(with_rows(X), as_labels(y, "y", warn=True))
        check_discrete(y)
        if not len(y):
            raise ValueError(NO_SAMPLES)
        weight = check_weights(sample_weight, len(y))
        place = np.arange(len(y))
        # A matrix of kernels or distances would lose columns as well: a classifier that takes
        # weights leaves out by itself what has none.
        pairwise = get_tags(self.estimator).input_tags.pairwise
        leaves_out = pairwise and has_fit_parameter(self.estimator, "sample_weight")
        if weight is not None and not weight.all() and not leaves_out:
            place = np.where(weight > 0, np.cumsum(weight > 0) - 1, -1)
            kept = np.flatnonzero(weight)
            fit_params = {k: _subset(v, kept, len(y)) for k, v in fit_params.items()}
            X, y, weight = self._rows(X, kept, kept), y[kept], weight[kept]
        return X, y, weight, fit_params, place

    def _calibrated_rule(self, given, seen, X, train, weight):
        """Return the rule fitted to scores, columns of classes and weights.

        Where `seen` holds the scores that the models of folds give samples that they were trained
        on, the rule allows for those of the last model.
        """
        rule = self._rule()
        if not seen:
            rule.fit(*given)
            return rule
        rule._begin_for_another(len(self.classes_)).partial_fit(*given, n_samples=len(given[0]))
        last = [self._scores_of_seen(self.estimator_, X, train, 1)]
        rule._allow_for(_average_size(rule, last, weight), _average_size(rule, seen, weight))
        return rule

    def _promises(self):
        """Return whether the rule promises something of new samples."""
        return getattr(self.rule, "requires_held_out", False)

    def _held_out_share(self):
        """Return the share of the samples to hold out; None to use the splits of `cv`."""
        if isinstance(self.cv, bool) or (isinstance(self.cv, Integral) and self.cv < 2):
            raise ValueError(f"cv={self.cv!r} must be at least 2 to be a number of folds.")
        if self.cv is None:
            return HELD_OUT if self._promises() else None
        if isinstance(self.cv, float | np.floating):
            if not 0 < self.cv < 1:
                raise ValueError(f"cv={self.cv} must lie in (0, 1) to be a share of the samples.")
            return float(self.cv)
        if self._promises() and isinstance(self.cv, Integral):
            self._refuse_folds()
        return None

    def _refuse_folds(self):
        raise ValueError(
            f"rule={self.rule!r} promises something of new samples, which out-of-fold scores "
            "cannot: the classifier is refitted on all samples afterwards. "
            + (OTHER_GROUPS if isinstance(self.cv, GroupsConsumerMixin) else OTHER_SAMPLES)
        )

    def _only_split(self, folds):
        """Return which samples to train on, and which to calibrate on, by a `cv` of one split."""
        if len(folds) > 1:
            self._refuse_folds()
        train, held = folds[0]
        if len(np.intersect1d(train, held)):
            raise ValueError(
                f"cv={self.cv!r:.60} trains on samples that it holds out, of which "
                f"rule={self.rule!r} then promises nothing: let it hold out others."
            )
        return train, held

    def _split(self, target, share):
        """Return which samples to train on, and which to calibrate on."""
        promises = self._promises() and getattr(self.rule, "_promises_of_samples", True)
        random_state = np.random.RandomState(0)
        if promises:
            train, held = split_at_random(len(target), share, random_state, target)
        else:
            train, held = split_per_class(target, share, random_state)
        if not len(held):
            raise ValueError(
                f"a share of {share} holds none of the samples out, as each class keeps one "
                f"(n_samples={len(target)}): give more samples, or use cv='prefit'."
            )
        counts = np.bincount(target)
        # Samples of classes that such a draw would hold out as a whole.
        unknown = counts @ share ** (counts - 1.0) / len(target)
        if promises and (unknown > MOST_UNKNOWN or counts.min() == 1):
            warn_caller(
                f"of samples held out without a look at their labels, about {100 * unknown:.2g} % "
                "would be of classes of which none is left to train on; here each class keeps "
                "one. So those held out are not like new ones, and the promise of "
                f"{self.rule!r} may be missed. Fit the classifier first, and use cv='prefit' with "
                "samples that were drawn without looking at their labels.",
            )
        return train, held

    def _fit_prefit(self, X, y, sample_weight):
        check_is_fitted(
            self.estimator,
            msg="cv='prefit' takes a fitted estimator, but this %(name)s is not fitted: fit it "
            "first. Searches and cross-validation clone it, unless it is wrapped in "
            "sklearn.frozen.FrozenEstimator.",
        )
        self.estimator_ = self.estimator
        self.classes_ = _classes_of(self.estimator)
        self._copy_attributes()
        vars(self).pop("class_counts_", None)
        inner, _ = unwrap(self.estimator)
        if hasattr(inner, "class_counts_"):
            self.class_counts_ = np.asarray(inner.class_counts_)
        return self._calibrate(X, y, sample_weight)

    def calibrate(self, X, y=None, sample_weight=None):
        """Calibrate the rule anew, leaving the classifier as it is.

        Call it on data that the classifier was not trained on, at any time, and after changing a
        parameter of `rule`, which takes effect here; until then, predictions warn of it.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
        y : array-like of shape (n_samples,), optional
            Labels, for the rules that need them: `AverageError`, and ``objective="macro"``
            without a `prior`.
        sample_weight : array-like of shape (n_samples,), optional
            A weight of zero removes a sample.

        Returns
        -------
        self : PlugInClassifier
        """
        self._check_fitted()
        return self._calibrate(X, y, sample_weight)

    def _calibrate(self, X, y, sample_weight):
        y_score, columns, weight = self._calibration_scores(X, y, sample_weight)
        self.rule_ = self._rule().fit(y_score, columns, sample_weight=weight)
        return self

    def _calibrated_part(self, batches, n_samples=None):
        """Return a rule that has seen batches (X, y, sample_weight)."""
        self._check_fitted()
        rule = self._rule()
        if getattr(rule, "objective", None) == "macro" and rule.prior is None:
            raise ValueError(
                f"rule={rule!r} divides by the class prior of the scores, which batches and parts "
                "do not tell: pass prior= to the rule, the frequencies of the classes in training."
            )
        rule._begin(len(self.classes_))
        for X, y, sample_weight in batches:
            n_left_out = _num_samples(with_rows(X))
            weight = check_weights(sample_weight, n_left_out, complete=False)
            if weight is None or weight.any():
                given = self._calibration_scores(X, y, weight)
                n_left_out -= len(given[0])
                rule.partial_fit(*given, n_samples=n_samples)
            rule._n_left_out += n_left_out
        return rule

    def _calibration_scores(self, X, y, sample_weight):
        """Return scores, columns of the true classes and weights, without those of zero."""
        X, y = indexable(with_rows(X), None if y is None else as_labels(y, "y", warn=True))
        weight = check_weights(sample_weight, _num_samples(X))
        if weight is not None and not weight.all():
            kept = np.flatnonzero(weight)
            X, weight = _safe_indexing(X, kept), weight[kept]
            y = y if y is None else y[kept]
        if y is None and getattr(self.rule, "requires_y", False):
            raise ValueError(
                f"y is None, but rule={self.rule!r} is calibrated on labelled samples: pass their "
                "labels as y. AverageK needs none."
            )
        columns = None if y is None else self._columns(y)
        return self._scores(self.estimator_, X), columns, weight

    def _rule(self):
        """Return the rule, not fitted, with the prior of the scores where it needs one."""
        rule = clone(self.rule)
        if getattr(rule, "objective", None) == "macro" and rule.prior is None:
            counts = getattr(self, "class_counts_", None)
            rule.set_params(prior=prior_of_scores(self.estimator_, self.classes_, counts))
        return rule

    def _fitted_rule(self):
        """Return the calibrated rule; warn if `rule` is not as it was then."""
        self._check_fitted()
        old = self.rule_
        if type(self.rule) is type(old) and not changed_parameters(self.rule, old):
            return old
        new = self._rule()  # which may get the prior of the scores
        if type(new) is not type(old) or changed_parameters(new, old):
            given = "X, y" if getattr(new, "requires_y", True) else "X"
            warn_caller(
                f"rule={new!r} was set after the calibration of {old!r}, which is still in use: "
                f"call calibrate({given}), which leaves the classifier as it is.",
            )
        return old

    def predict_set(self, X, out=None):
        """Return the set of classes of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
        out : "csr" or bool ndarray of shape (n_samples, n_classes), default=None
            Where the sets go: a sparse matrix, or an array of yours, such as a memory map.

        Returns
        -------
        y_set : bool ndarray or csr_array of shape (n_samples, n_classes)
            Columns in the order of `classes_`.
        """
        rule = self._fitted_rule()
        return sets_of(rule, self._scores(self.estimator_, X, rule=rule), out)

    def predict_labels(self, X):
        """Return the labels in the set of each sample, the likeliest first.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)

        Returns
        -------
        labels : list of n_samples ndarrays
        """
        rule = self._fitted_rule()
        y_score = self._scores(self.estimator_, X, rule=rule)
        return labels_of_sets(rule.predict_set(y_score), y_score, self.classes_)

    def predict(self, X):
        """Return the label that the classifier predicts for each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)

        Returns
        -------
        y_pred : ndarray of shape (n_samples,)
        """
        self._check_fitted()
        return self.estimator_.predict(X)

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X):
        """Return the class probabilities of the classifier.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
        """
        self._check_fitted()
        return self.estimator_.predict_proba(X)

    @available_if(_estimator_has("predict_log_proba"))
    def predict_log_proba(self, X):
        """Return the logarithms of the class probabilities of the classifier.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)
        """
        self._check_fitted()
        return self.estimator_.predict_log_proba(X)

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X):
        """Return the decision function of the classifier.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes), or (n_samples,) when binary
        """
        self._check_fitted()
        return self.estimator_.decision_function(X)

    def get_metadata_routing(self):
        """Return how metadata given to `fit` are passed on.

        Returns
        -------
        routing : MetadataRouter
        """
        fit_to = MethodMapping().add
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(estimator=self.estimator, method_mapping=fit_to(caller="fit", callee="fit"))
        if hasattr(self.cv, "split"):
            mapping = MethodMapping().add(caller="fit", callee="split")
            router.add(splitter=self.cv, method_mapping=mapping)
        return router

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if not hasattr(self.estimator, "__sklearn_tags__"):  # `fit` says what is wrong with it
            return tags
        inner = get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        if inner.classifier_tags is not None:
            tags.classifier_tags.multi_class = inner.classifier_tags.multi_class
        return tags

    def _is_prefit(self):
        if isinstance(self.cv, str) and self.cv != "prefit":
            raise ValueError(
                "cv must be 'prefit', an int >= 2, a share in (0, 1), a splitter, an iterable of "
                f"splits or None, got {self.cv!r}."
            )
        return isinstance(self.cv, str)

    def _check_fitted(self):
        """Raise unless fitted, to the classes that the classifier has now; warn of another one."""
        check_is_fitted(self)
        self._check_parts()
        known = _classes_of(self.estimator_)
        if not np.array_equal(known, self.classes_):
            raise ValueError(
                f"{type(self.estimator_).__name__} was fitted anew since, to {len(known)} classes "
                f"such as {plain_labels(known[:5])}, and the columns here are those of "
                f"{len(self.classes_)} such as {plain_labels(self.classes_[:5])}: call fit, which "
                "with cv='prefit' calibrates only."
            )
        if self._is_prefit() and self.estimator is not self.estimator_:
            warn_caller(
                f"estimator={self.estimator!r:.80} is not the classifier of fit, which is still "
                "in use: call fit once that one is fitted; with cv='prefit' it calibrates only.",
            )

    def _check_parts(self):
        for name in ("estimator", "rule", "cv"):
            check_object(name, getattr(self, name))
        if not (hasattr(self.rule, "fit") and hasattr(self.rule, "predict_set")):
            raise TypeError(
                f"rule must be one of sksetvalued.rules, e.g. AverageK(3), got {self.rule!r}."
            )
        if _may_score(self.estimator):
            self._score_method(self.estimator)

    def _score_method(self, estimator):
        method = score_method(estimator)
        if method != "predict_proba" and getattr(self.rule, "requires_proba", False):
            raise TypeError(
                f"rule={self.rule!r} needs probabilities, but {type(estimator).__name__} has no "
                "predict_proba. Wrap it in sklearn.calibration.CalibratedClassifierCV."
            )
        return method

    def _scores(self, estimator, X, columns=None, rule=None):
        """Return the scores that a rule takes, by default `rule` of now, one column per class."""
        rule = self.rule if rule is None else rule
        logs = getattr(rule, "log_scores", False)
        y_score, scale = self._scores_and_scale(estimator, X, logs)
        if scale == "proba" and getattr(rule, "_compares_samples", True):
            _check_proba(y_score, estimator)
        n_classes = len(self.classes_)
        if columns is not None and not np.array_equal(columns, np.arange(n_classes)):
            missing = 0.0 if scale == "proba" else -np.inf
            known, y_score = y_score, np.full((len(y_score), n_classes), missing)
            y_score[:, columns] = known
        wanted = "log_proba" if logs else "proba"
        if scale in ("decision", wanted):
            return y_score
        with np.errstate(divide="ignore"):
            return np.log(y_score) if wanted == "log_proba" else np.exp(y_score)

    def _scores_and_scale(self, estimator, X, logs=False):
        """Return scores of shape (n_samples, n_known_classes), and what they are.

        With `logs`, they are log-probabilities where there are any.

        The estimators of this package give log-probabilities under the prior of their training
        data, which their `predict_proba` are not after every loss.
        """
        if hasattr(unwrap(estimator)[0], "_predict_log_proba"):
            model, X = unwrap(estimator, X)
            return model._predict_log_proba(X), "log_proba"
        method = self._score_method(estimator)
        scale = "proba" if method == "predict_proba" else "decision"
        if logs and scale == "proba" and hasattr(estimator, "predict_log_proba"):
            with np.errstate(divide="ignore"):
                return class_scores(estimator, X, "predict_log_proba")[0], "log_proba"
        return class_scores(estimator, X, method)[0], scale

    def _set_scores(self, X):
        """Return the scores that the rule ranks and thresholds."""
        rule = self._fitted_rule()
        return rule.rank_scores(self._scores(self.estimator_, X, rule=rule))

    def _folds(self, X, y, place, split_params):
        """Return the samples that each fold trains on, and those that it scores.

        `place` has a place for each position that may stand in `cv`, negative where the sample
        was left out.
        """
        self._check_n_folds(y)
        cv, folds = check_cv(self.cv, y, classifier=True), []
        if not isinstance(self.cv, BY_POSITION):
            place = np.arange(len(y))
        try:
            splits = list(cv.split(X, y, **split_params))
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            without = isinstance(self.cv, GroupsConsumerMixin) and "groups" not in split_params
            remedy = " It splits groups: pass groups= to fit." if without else ""
            raise kind(f"cv={self.cv!r} cannot split these samples: {error}{remedy}") from error
        if not splits:
            raise ValueError("cv holds no splits; a generator is used up by one fit: pass a list.")
        for number, fold in enumerate(splits):
            train, test = (_kept(place, part, number) for part in fold)
            if len(test) and not len(train):
                raise ValueError(
                    f"fold {number} of cv trains on no sample, those whose sample_weight is "
                    "zero left out: let it train on others, or set cv to a number of folds."
                )
            if len(test):
                folds.append((train, test))
        if not folds:
            raise ValueError(
                "cv holds out no sample, those whose sample_weight is zero left out: let it hold "
                "out others, or set cv to a number of folds."
            )
        return folds

    def _check_n_folds(self, y):
        """Raise unless a number of folds, where cv is one, can be made."""
        if not isinstance(self.cv, Integral | None):
            return
        if len(y) == 1:
            raise ValueError("X holds 1 sample, where folds need more: n_samples=1.")
        n_folds = 5 if self.cv is None else self.cv
        most = np.unique(y, return_counts=True)[1].max()
        if n_folds > most:
            fewer = min(n_folds, len(y))
            raise ValueError(
                f"cv={self.cv} makes {n_folds} folds of each class, but the largest has {most} "
                f"samples: use cv=KFold({fewer}, shuffle=True), which does not look at classes."
            )

    def _out_of_fold_scores(self, X, y, folds, fit_params):
        """Return the scores of each sample by a model not trained on it, and its row.

        And, where they are of use to the rule, what :meth:`_scores_of_seen` gives for each model.
        """
        bare = copy.copy(self)  # what workers are sent needs no fitted classifier
        del bare.estimator_
        parts = Parallel(n_jobs=self.n_jobs)(
            delayed(bare._scores_of_fold)(X, y, train, test, fit_params, len(folds))
            for train, test in folds
        )
        y_score, seen = zip(*parts, strict=True)
        rows = np.concatenate([test for _, test in folds])
        return np.concatenate(y_score), rows, seen if isinstance(self.rule, AverageK) else []

    def _scores_of_fold(self, X, y, train, test, fit_params, n_folds):
        model, seen = self._fit_estimator(X, y, train, fit_params), None
        y_score = self._scores_of_all_classes(model, self._rows(X, test, train))
        if isinstance(self.rule, AverageK):
            seen = self._scores_of_seen(model, X, train, n_folds)
        return y_score, seen

    def _rows(self, X, rows, train):
        """Return rows of X; of a matrix of kernels or distances, beside those trained on."""
        return _safe_split(self.estimator, X, None, rows, train)[0]

    def _scores_of_all_classes(self, model, X):
        return self._scores(model, X, self._columns(np.asarray(model.classes_)))

    def _scores_of_seen(self, model, X, rows, n_models):
        """Return scores of samples that one of some models was trained on, and their rows."""
        most = min(MOST_SEEN, MOST_SCORES_SEEN // len(self.classes_)) // n_models
        some = rows[:: -(-len(rows) // max(most, 1))]
        return self._scores_of_all_classes(model, self._rows(X, some, rows)), some

    def _fit_estimator(self, X, y, rows, fit_params):
        """Return the classifier fitted to some rows."""
        if not np.array_equal(rows, np.arange(len(y))):
            fit_params = {k: _subset(v, rows, len(y)) for k, v in fit_params.items()}
            X, y = self._rows(X, rows, rows), y[rows]
        return clone(self.estimator).fit(X, y, **fit_params)

    def _route(self, sample_weight, fit_params):
        """Return the parameters of the classifier's `fit` and of the splitter's `split`."""
        params = dict(fit_params)
        if get_config()["enable_metadata_routing"]:
            if sample_weight is not None:
                params["sample_weight"] = sample_weight
            routed = process_routing(self, "fit", **params)
            return routed["estimator"]["fit"], routed.get("splitter", {}).get("split", {})
        split_params = {}
        if "groups" in params:
            if hasattr(self.cv, "split"):
                split_params["groups"] = params["groups"]
            if not _takes_groups(self.estimator):
                if not _splits_groups(self.cv):
                    folds = "Set cv to a splitter of groups, such as StratifiedGroupKFold(5), "
                    folds += "or leave them out."
                    raise ValueError(
                        f"groups are given, but cv={self.cv!r:.60} splits none, and "
                        f"{type(self.estimator).__name__}.fit takes none. "
                        + (OTHER_GROUPS if self._promises() else folds)
                    )
                del params["groups"]
        if sample_weight is not None:
            if has_fit_parameter(self.estimator, "sample_weight"):
                params["sample_weight"] = sample_weight
            else:
                warn_caller(
                    f"{type(self.estimator).__name__}.fit names no sample_weight: the weights "
                    "are used to calibrate the rule only. For a Pipeline, or another classifier "
                    "that is made of others, enable metadata routing.",
                )
        return params, split_params

    def _columns(self, y):
        """Return the column of each label."""
        check_comparable(y, "y", self.classes_, "classes_")
        columns = positions(y, self.classes_)
        unseen = np.unique(y[columns < 0])
        if unseen.size:
            raise ValueError(
                "y holds labels that the classifier was not trained on: "
                f"{plain_labels(unseen[:5])}. Fit the classifier with them, or leave "
                "those samples out: what the rule promises then holds for samples of the others. "
                "If they stand for no label, as in self-training, fit the classifier first, and "
                "give labelled samples and cv='prefit'."
            )
        return columns

    def _copy_attributes(self):
        """Take over the columns of the classifier, and forget those of an earlier one."""
        for name in ("n_features_in_", "feature_names_in_"):
            vars(self).pop(name, None)
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))


def _may_score(estimator):
    """Return whether it shows before the fit how an estimator scores; some show it after it."""
    shown = [hasattr(estimator, name) for name in SCORE_METHODS]
    return any(shown) or not any(hasattr(type(estimator), name) for name in SCORE_METHODS)


def _splits_groups(cv):
    """Return whether a splitter looks at groups; of one that is not scikit-learn's, suppose so."""
    own = hasattr(cv, "split") and not type(cv).__module__.startswith("sklearn.")
    return own or isinstance(cv, GroupsConsumerMixin)


def _takes_groups(estimator):
    """Return whether `fit` of a classifier has an argument `groups`, or hands any on to splits."""
    fits = next((cls for cls in type(estimator).__mro__ if "fit" in vars(cls)), object)
    if fits.__module__.startswith("sklearn."):
        # By its name, as importing RFECV takes long.
        hands_on = issubclass(fits, BaseSearchCV) or fits.__name__ == "RFECV"
    else:
        kinds = [p.kind for p in signature(estimator.fit).parameters.values()]
        hands_on = Parameter.VAR_KEYWORD in kinds and not isinstance(estimator, Pipeline)
    return hands_on or has_fit_parameter(estimator, "groups")


def _kept(place, part, number):
    """Return the places of the samples of a part of a fold, without those left out."""
    try:
        rows = place[part]
    except IndexError as error:
        raise ValueError(
            f"fold {number} of cv holds what is no position among these {len(place)} samples "
            f"({error}). Positions are those of the samples of this very fit: in a search or a "
            "cross-validation set cv to a splitter or a number of folds."
        ) from error
    return rows[rows >= 0]


def _classes_of(estimator):
    """Return the labels of a fitted classifier."""
    if not hasattr(estimator, "classes_"):
        raise TypeError(
            f"estimator must be a classifier, but {type(estimator).__name__} has no classes_ "
            "after fit."
        )
    return one_label_each(estimator)


def _check_proba(y_score, estimator):
    """Raise for what is called probabilities and is none, which a threshold would compare."""
    # NaN is told by the rule.
    if np.any((y_score < -ROUNDED) | (y_score > 1 + ROUNDED)):
        raise ValueError(
            f"predict_proba of {type(estimator).__name__} gives numbers from {y_score.min():.3g} "
            f"to {y_score.max():.3g}, which are no probabilities. A net of skorch gives the "
            "scores of its module as they are where its criterion is not one that it knows: set "
            "its predict_nonlinearity=functools.partial(torch.softmax, dim=-1)."
        )


def _average_size(rule, parts, weight):
    """Return the average size of the sets of samples, given by their scores and rows."""
    sizes = np.concatenate([rule._sizes_of(y_score) for y_score, _ in parts])
    rows = np.concatenate([rows for _, rows in parts])
    return np.average(sizes, weights=None if weight is None else weight[rows])


def _subset(value, rows, n_samples):
    """Return the rows of a per-sample fit parameter, other parameters unchanged."""
    if isinstance(value, str) or not hasattr(value, "__len__") or len(value) != n_samples:
        return value
    return _safe_indexing(value, rows)

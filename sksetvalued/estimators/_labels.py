"""The single-label deep classifiers: labels, sets and probabilities from one score per class."""

import math
from contextlib import nullcontext
from itertools import islice
from numbers import Real

import numpy as np
import torch
from scipy.special import log_softmax, softmax
from sklearn.utils import check_consistent_length
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import _check_partial_fit_first_call
from sklearn.utils.validation import check_is_fitted
from torch.utils.data import Dataset

from .. import training
from .._arrays import (
    as_labels,
    as_numbers,
    check_comparable,
    check_discrete,
    plain_labels,
    positions,
)
from .._masks import row_counts
from .._predict import labels_of_sets
from .._sets import SetMask
from .._signatures import parameters_of
from .._validation import changed_parameters
from .._warnings import warn_caller, without_warnings
from ..inputs import Inputs, Stream, check_pairs
from ..training import TrainingSet, split_at_random, split_per_class
from ._accuracy import AccuracyMixin
from ._deep import DeepEstimator
from ._length import LabelLength
from ._streams import LearnsFromStreams
from ._unsmooth import unsmoothed

#: Pieces of fewer samples set a threshold that is warned of.
FEWEST_IN_PIECE = 50
#: Shares of a class by a loss and in training that differ by a larger factor are warned of.
MOST_APART = 1.5
#: Of the parameters of the losses that mix others.
MIXTURE_CONSTRAINTS = {
    "cross_entropy": [Interval(Real, 0, 1, closed="both"), None],
    "ranks": "no_validation",
    "label_smoothing": [Interval(Real, 0, 1, closed="left"), None],
}

#: Parameters of a mixture that have no effect at a weight of its cross-entropy.
IDLE_PARAMETERS = {0: ("alpha", "label_smoothing"), 1: ("epsilon", "n_noise_samples", "ranks")}


class DeepSetClassifier(LabelLength, LearnsFromStreams, AccuracyMixin, DeepEstimator):
    """Base of the classifiers that learn from one label per sample."""

    _parameter_constraints = {
        **DeepEstimator._parameter_constraints,
        "k": [Interval(Real, 1, None, closed="left")],
        "objective": [StrOptions({"micro", "macro"})],
        "rule_params": [dict, None],
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # -- fitting ----------------------------------------------------------------------------

    def fit(self, X, y=None, sample_weight=None, checkpoint=None):
        """Train the network, and calibrate the rule where it has a threshold.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset
            Training samples. A torch Dataset brings its own labels, unless `y` is given. Samples
            that come one after the other are given as a :class:`sksetvalued.Stream`, without `y`.
        y : array-like of shape (n_samples,)
            Class labels, of any type that scikit-learn accepts.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples; a weight of zero removes a sample. Where the number of epochs
            is searched, a row that is repeated can fall both into the part that is trained on and
            into the one held out, which a row of weight 2 cannot: the models differ.
        checkpoint : path-like, default=None
            File that keeps the state of the training after each epoch, or a folder of such files,
            one for each fit. A fit that was killed, when it is called again with the same
            parameters and data, goes on after the last whole epoch, bit by bit as if it had not
            been killed. The file is removed when the fit is complete. Of the trainings of which
            one is kept, as where the number of epochs is searched, the others are done again.

        Returns
        -------
        self : object
        """
        with self._fitting() as resume:
            self._check_settings()
            if isinstance(X, Stream):
                return self._fit_stream(X, y, sample_weight, checkpoint, resume)
            inputs, y, weight = self._check_data(X, y, sample_weight, reset=resume is None)
            if resume is None:
                self.classes_ = np.unique(y)
            self._check_classes("y")
            target = self._encode(y)
            self.class_counts_ = self._count(target, weight)
            self._weigh_classes()
            self._new_rule()
            if resume is None:
                self._start_anew()
            targets = {"y": target, "sample_weight": weight}
            kept = self._begin_fit(inputs, targets, resume, checkpoint)
            self._fit_parts(inputs, target, weight, resume, kept)
            self._close_checkpoint(kept)
        return self

    def partial_fit(self, X, y=None, classes=None, sample_weight=None):
        """Train on one pass over a piece of the data.

        The learning rate stays at `lr` (the schedule of a callback begins anew with each piece),
        and nothing is held out: a threshold is calibrated on the piece itself, so call
        `calibrate` when all pieces are seen.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset
            Training samples.
        y : array-like of shape (n_samples,)
            Class labels.
        classes : array-like of shape (n_classes,), default=None
            All labels that later calls may bring; required by the first call.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.

        Returns
        -------
        self : object
        """
        first = not hasattr(self, "net_")
        with self._fitting(in_pieces=True):
            if first:
                self._check_settings()
                self.__dict__.pop("classes_", None)
            classes = classes if classes is None else as_labels(classes, "classes")
            _check_partial_fit_first_call(self, classes)
            self._check_classes("classes")
            inputs, y, weight = self._check_data(X, y, sample_weight, reset=first)
            target = self._encode(y)
            counts = self._count(target, weight)
            self.class_counts_ = counts if first else self.class_counts_ + counts
            if self.class_weight == "balanced":
                raise ValueError(
                    "class_weight='balanced' needs all samples, which partial_fit does not see: "
                    "give a dict, as sklearn.utils.class_weight.compute_class_weight makes."
                )
            self._weigh_classes()
            if first:
                self._start_anew()
            # Whatever changed is refused before the training; a k that needs a warning had it.
            said = not first and self.k == self.rule_.k
            with without_warnings("every class is returned") if said else nullcontext():
                self._new_rule()
            targets = {"y": target, "sample_weight": weight}
            self._begin_fit(inputs, targets, "partial_fit")
            self._check_held_out(None, weight)
            data = self._training_set(inputs, target, weight, np.arange(len(target)), True)
            self._train(data, None, 1, resume="partial_fit")
            self._calibrate_on(inputs, weight)
            if len(inputs) < FEWEST_IN_PIECE and hasattr(self, "threshold_"):
                warn_caller(
                    f"the threshold is set by the {len(inputs)} samples of this piece, so that "
                    "sets of new samples may be of other sizes than k: call calibrate(X) on more "
                    "samples, which needs no labels, before sets are predicted.",
                )
        return self

    def _check_classes(self, source):
        if len(self.classes_) < 2:
            known = plain_labels(self.classes_)
            one = f"1 class: {known[0]!r}" if known else "none"
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes, but {source} holds "
                f"{one}."
            )

    def _check_data(self, X, y, sample_weight, reset):
        """Return the inputs, the labels and the weights, without samples of weight zero."""
        inputs = self._check_inputs(X, reset, training=True)
        if y is None and inputs.kind == "dataset":
            y = inputs.targets()
        elif isinstance(X, Dataset):
            check_pairs(X)
        self._check_passed(y)
        y = as_labels(y, "y", warn=True)
        check_consistent_length(np.empty(len(inputs)), y)
        check_discrete(y)
        return self._without_weightless(inputs, y, sample_weight, reset)

    def _encode(self, y):
        """Return class indices; every label must be among `classes_`."""
        check_comparable(y, "y", self.classes_, "classes_")
        indices = positions(y, self.classes_)
        unseen = np.unique(y[indices < 0])
        if len(unseen):
            raise ValueError(
                f"y holds labels that are not among the classes of this "
                f"{type(self).__name__}: {plain_labels(unseen[:10])}; it knows "
                f"{plain_labels(self.classes_[:10])}{'...' if len(self.classes_) > 10 else ''}. "
                "Name all of them in `classes` at the first call, or fit anew."
            )
        return indices

    def _count(self, target, weight):
        counts = np.bincount(target, weights=weight, minlength=len(self.classes_))
        return counts if weight is not None else counts.astype(np.int64)

    def _fit_parts(self, inputs, target, weight, resume, checkpoint):
        """Split the data, train on one part, monitor and calibrate on the others."""
        # A fit that goes on holds the same samples out, if the data are the same.
        random_state = np.random.RandomState(self._seed)
        train, held = np.arange(len(target)), None
        n_folds = self._calibration_folds(resume)
        fraction = None if n_folds else self._calibration_share(resume)
        if fraction is not None:
            if self.rule_.requires_held_out:
                train, held = split_at_random(len(target), fraction, random_state)
            else:
                train, held = split_per_class(target, fraction, random_state)
        self._check_held_out(held, weight)
        fit = self._fit_searched if self._searches_epochs(resume) else self._fit_held_out
        calibrated = fit(inputs, target, weight, train, random_state, checkpoint, resume, n_folds)
        if held is None and calibrated:
            return
        rows = train if held is None or not len(held) else held
        # Promises are kept where calibration and new samples are treated alike.
        promises = self.rule_.requires_held_out
        inputs = inputs.subset(rows) if promises else inputs.as_new(rows, train)
        self._calibrate_on(inputs, weight if weight is None else weight[rows])

    def _calibrate_on(self, inputs, weight):
        # A k that needs a warning has had it before the training.
        with without_warnings("every class is returned"):
            self._calibrate_inputs(inputs, weight)

    def _calibration_share(self, resume):
        """Return the share of the data that is held out for the threshold alone, or None."""
        return None

    def _calibration_folds(self, resume):
        """Return the number of folds whose scores set the threshold, or None."""
        return None

    def _check_held_out(self, held, weight):
        """Raise if the rule promises what the samples held out cannot give."""
        if not self.rule_.requires_held_out:
            return
        if held is None or not len(held):
            raise ValueError(
                f"rule_params={self.rule_params} promises a size on new data, for which samples "
                "must be held out of the training: set calibration_fraction and use fit, or "
                "train without it and set it for calibrate(X) on other samples."
            )
        if weight is not None and (weight != 1).any():
            raise ValueError(
                f"rule_params={self.rule_params} promises a size for samples that count alike: "
                "leave sample_weight out, or train without it and set it for calibrate(X)."
            )

    def _weigh_classes(self):
        """Set the logarithms of the class weights, None where all are one."""
        self._log_label_weight = None
        if self.class_weight is None:
            return
        weight = np.ones(len(self.classes_))
        if isinstance(self.class_weight, dict):
            labels = as_labels(list(self.class_weight), "class_weight")
            check_comparable(labels, "class_weight", self.classes_, "classes_")
            given = as_numbers(list(self.class_weight.values()), "class_weight")
            wrong = ~(np.isfinite(given) & (given > 0))
            if wrong.any():
                of_wrong = zip(plain_labels(labels[wrong]), given[wrong].tolist(), strict=True)
                raise ValueError(
                    "class_weight must hold finite numbers > 0, but holds "
                    f"{dict(islice(of_wrong, 10))}; leave the samples of a class out to ignore it."
                )
            indices = positions(labels, self.classes_)
            named = indices >= 0
            unknown = np.unique(labels[~named])
            unnamed = np.delete(self.classes_, indices[named])
            # A dict of all classes is good for a fold, where some are missing.
            if len(unknown) and len(unnamed):
                raise ValueError(
                    f"class_weight names labels that do not occur, {plain_labels(unknown[:10])}, "
                    f"and not all that do, such as {plain_labels(unnamed[:10])}: leave the "
                    "former out, or name the latter too."
                )
            weight[indices[named]] = given[named]
        else:
            weight = self._positive_counts.sum() / (len(weight) * self._positive_counts)
        self._log_label_weight = np.log(weight)

    def _training_set(self, inputs, target, weight, indices, in_training):
        if in_training and self._log_label_weight is not None:
            weight = np.exp(self._log_label_weight)[target] * (1.0 if weight is None else weight)
        weight = self._training_weights(weight, indices)
        inputs, n_whole = inputs.subset(indices, training=in_training), len(target)
        return TrainingSet(inputs, torch.from_numpy(target[indices]), weight, n_whole=n_whole)

    def _as_of(self, net, inputs):
        model = super()._as_of(net, inputs)
        model._calibrate_on(inputs, None)
        return model

    def _labels_of(self, target):
        return self.classes_[target.numpy(force=True)]

    # -- the loss and the rule --------------------------------------------------------------

    def _why_unused(self, name):
        mixed = training.accepts(self.loss, "cross_entropy")
        if mixed and name in IDLE_PARAMETERS.get(self.cross_entropy, ()):
            return f"with cross_entropy={self.cross_entropy}: leave it None, or change that."
        return super()._why_unused(name)

    def _loss_supplies(self, n_samples):
        return super()._loss_supplies(n_samples) | {
            "k": min(self.k, len(self.classes_) - 1),
            "class_counts": self._positive_counts,
        }

    def _checked_criterion(self, train, resume, generator):
        criterion = super()._checked_criterion(train, resume, generator)
        smoothed = criterion.label_smoothing and criterion.smoothed_towards == "prior"
        for name, used in (("class_counts", criterion.prior_exponent != 1), ("prior", smoothed)):
            if used:
                counts = getattr(training.trained_by(criterion), name, None)
                self._warn_of_other_shares(name, counts)
        return criterion

    def _warn_of_other_shares(self, name, counts):
        """Warn where a loss was given other shares of the classes than those of the data."""
        if not torch.is_tensor(counts) or len(counts) != len(self._prior):
            return
        share = counts.cpu().double().numpy() / float(counts.sum())
        with np.errstate(divide="ignore"):
            ratio = np.abs(np.log(share / self._prior))
        if ratio.max() > np.log(MOST_APART):
            worst = ratio.argmax()
            warn_caller(
                f"loss={self.loss!r} was given a {name} by which class "
                f"{plain_labels(self.classes_[worst : worst + 1])[0]!r} has a share of "
                f"{share[worst]:.2g}, where it has {self._prior[worst]:.2g} in training. What the "
                "loss does with these shares is taken back by those of training, so that "
                "probabilities, and sets that compare samples or divide by the prior, are off: "
                f"leave {name} out, which the estimator gives.",
            )

    def _rule(self):
        """Return the rule that the parameters describe, not fitted."""
        raise NotImplementedError

    def _build_rule(self, cls, **params):
        """Return a rule for log-probabilities, with `rule_params` on top of `params`."""
        given = self.rule_params or {}
        if not isinstance(given, dict):
            raise TypeError(
                f"rule_params must be a dict of arguments of {cls.__name__} or None, got "
                f"{given!r}."
            )
        known = parameters_of(cls) - {*params, "log_scores"}
        unknown = sorted(set(given) - known)
        if unknown:
            raise ValueError(
                f"rule_params has keys that cannot be set there: {unknown}; {cls.__name__} "
                f"accepts {sorted(known)}."
            )
        return cls(**{"prior": self._prior, **params, **given}, log_scores=True)

    def _new_rule(self):
        """Validate the rule's parameters, before time is spent on training."""
        self.rule_ = self._rule()._begin(len(self.classes_))

    def _rule_changes(self):
        """Return the parameters of the rule that were changed since, as (new, old) in words."""
        return changed_parameters(self._rule(), self.rule_)

    def _refresh_rule(self):
        """Bring the rule up to parameters that were changed after `fit`."""
        raise NotImplementedError

    @property
    def _n_outputs(self):
        return len(self.classes_)

    @property
    def _positive_counts(self):
        """Counts of the classes; one that was never seen counts like the rarest."""
        counts = self.class_counts_
        return np.maximum(counts, counts[counts > 0].min())

    @property
    def _prior(self):
        """Share of each class in the training data."""
        counts = self._positive_counts
        return counts / counts.sum()

    @property
    def _log_shift(self):
        """What brings scores to the logarithms of p_y(x), up to a constant for each sample.

        Of what was trained: labels that were smoothed are still so.
        """
        shift = np.zeros(len(self.classes_))
        if self._prior_exponent != 1:
            shift = (1 - self._prior_exponent) * np.log(self._prior)
        if self._log_class_weight is not None:
            shift = shift - self._log_class_weight
        if self._log_label_weight is not None and not self._label_smoothing:
            shift = shift - self._log_label_weight
        return shift

    @property
    def _log_smoothing(self):
        """Logarithms of what smoothed labels added to the probability of each class."""
        towards_prior = self._smoothed_towards == "prior"
        target = self._prior if towards_prior else np.full(self._n_outputs, 1 / self._n_outputs)
        with np.errstate(divide="ignore"):
            return np.log(self._label_smoothing * target)

    def _log_proba(self, scores):
        """Return log p_y(x) under the prior of the training data, in double precision.

        What the loss did to it is taken back: a shift of the prior, class weights, smoothing.
        """
        scores = scores.astype(np.float64, copy=False)
        shifted = torch.from_numpy(scores + self._log_shift)
        log_proba = torch.log_softmax(shifted, dim=1)
        if self._label_smoothing:
            log_proba = unsmoothed(log_proba, torch.from_numpy(self._log_smoothing))
            if self._log_label_weight is not None:
                # Samples were weighted, not the terms of a smoothed label: the weights come last.
                weight = torch.from_numpy(self._log_label_weight)
                log_proba = torch.log_softmax(log_proba - weight, dim=1)
        return log_proba.numpy()

    def _predict_log_proba(self, X):
        """Return log p_y(x) under the prior of the training data, for rules put on top.

        A method of this name is asked for instead of `predict_proba`, which is the softmax of
        the scores, whatever the loss did to the prior.
        """
        return np.concatenate([self._log_proba(scores) for scores in self._iter_scores(X)])

    def _log_mean_of_views(self, log_odds):
        """Return the logarithms of the mean probabilities over the views."""
        return torch.logsumexp(torch.log_softmax(log_odds, -1), 1) - math.log(log_odds.shape[1])

    def _combine_views(self, scores):
        """Combine views under the prior of the training data, whatever the loss did to it."""
        shift = torch.from_numpy(self._log_shift).to(scores.device)
        return self._log_mean_of_views(scores.double() + shift) - shift

    def _rank_scores(self, scores):
        """Return what the rule ranks and thresholds, from the scores of the network."""
        return self.rule_.rank_scores(self._log_proba(scores))

    def _set_scores(self, X):
        """Return what the rule ranks and thresholds, of shape (n_samples, n_classes)."""
        self._refresh_rule()
        rule, given = self.rule_, self._iter_rule_scores(X, self._log_proba)
        return np.concatenate([rule.rank_scores(scores) for scores in given])

    def _calibrate_inputs(self, inputs, sample_weight=None):
        """Set the threshold of the rule, where it has one."""

    # -- prediction -------------------------------------------------------------------------

    def _scores(self, X):
        return np.concatenate(list(self._iter_scores(X)))

    def decision_function(self, X):
        """Return the scores of the network.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes), or (n_samples,) if binary
            Columns in the order of `classes_`. When binary, the score of ``classes_[1]``
            minus that of ``classes_[0]``.
        """
        scores = self._scores(X)
        return scores if scores.shape[1] > 2 else scores[:, 1] - scores[:, 0]

    def predict_proba(self, X):
        """Return the softmax of the scores.

        These are estimates of probabilities when the network was trained with the
        cross-entropy; other losses order the classes without that promise.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
        """
        return softmax(self._scores(X).astype(np.float64, copy=False), axis=1)

    def predict_log_proba(self, X):
        """Return the logarithms of the softmax of the scores.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)
        """
        return log_softmax(self._scores(X).astype(np.float64, copy=False), axis=1)

    def predict(self, X):
        """Return the label with the largest score.

        A network trained with "logit_adjusted" or with class weights gives balanced scores, and so
        balanced labels: the likeliest label is the first of `predict_labels`.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        best = np.concatenate([scores.argmax(1) for scores in self._iter_scores(X)])
        return self.classes_[best]

    def _rule_scores(self, scores):
        """Return what the rule is given for scores of the network."""
        return self._log_proba(scores)

    def _iter_rule_scores(self, X, of_scores):
        """Yield what the rule is given, as `of_scores` makes it of scores of the network."""
        for scores in self._iter_scores(X):
            yield of_scores(scores)

    def _iter_sets(self, X, sets=None):
        """Yield what the rule is given, and the mask, of each chunk of X; mark it in `sets`."""
        self._refresh_rule()
        rule, sizes = self.rule_, []  # of one calibration, whatever another thread sets
        for scores in self._iter_rule_scores(X, self._rule_scores):
            n = len(scores)
            mask = np.zeros(scores.shape, dtype=bool) if sets is None else sets.blank(n)
            rule._mark_sets(scores, mask)
            if rule._expects_sizes:
                sizes.append(row_counts(mask))
            yield scores, mask
        if sizes:
            rule._check_sizes(np.concatenate(sizes))

    def predict_set(self, X, out=None):
        """Return the set of classes of each sample.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset
        out : "csr" or bool ndarray of shape (n_samples, n_classes), default=None
            Where the sets go: a sparse matrix, or an array of yours, such as a memory map.

        Returns
        -------
        sets : bool ndarray or csr_array of shape (n_samples, n_classes)
            Columns in the order of `classes_`.
        """
        check_is_fitted(self)
        inputs = X if isinstance(X, Inputs) else self._check_inputs(X)
        sets = SetMask((len(inputs), len(self.classes_)), out)
        for _ in self._iter_sets(inputs, sets):
            pass
        return sets.done()

    def predict_labels(self, X):
        """Return the labels in the set of each sample, the likeliest first.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset

        Returns
        -------
        labels : list of n_samples ndarrays
        """
        labels = []
        for log_proba, mask in self._iter_sets(X):
            labels += labels_of_sets(mask, log_proba, self.classes_)
        return labels

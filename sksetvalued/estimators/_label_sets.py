"""What multi-label learning adds to the deep estimators: targets, splits and fitting."""

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.metrics import accuracy_score
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from .._warnings import warn_caller
from ..inputs import SparseInputs, Stream
from ..training import HELD_OUT, TrainingSet
from ._accuracy import AccuracyMixin
from ._deep import DeepEstimator
from ._length import SearchedLength
from ._targets import as_label_names, encode_label_sets, has_several_labels

#: Labels of a sample that a training in pieces provides for, at least.
MOST_IN_PIECE = 16


class DeepLabelSetClassifier(SearchedLength, AccuracyMixin, DeepEstimator):
    """Base of the classifiers that learn from a set of labels per sample.

    Subclasses say whether part of the data is held out for a threshold, and calibrate it.
    """

    _targets = "indicator"

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X, y=None, sample_weight=None, checkpoint=None):
        """Train the network, and calibrate the threshold if sizes come from one.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset
            Training samples. A torch Dataset brings its own targets, unless `y` is given.
        y : array-like or sparse matrix of shape (n_samples, n_classes), or list of label sets
            Indicator of the labels, or the labels themselves. A 1-D array holds one label per
            sample. The columns of a DataFrame are told by their names, not by their order.
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
            inputs, y, weight = self._check_data(X, y, sample_weight, first=resume is None)
            if resume is None:
                self.largest_size_ = int(np.diff(y.indptr).max())
                self._start_anew()
            else:
                self._warn_of_larger(y, "the first fit had few: fit anew")
            self._count(y, weight, anew=True)
            target = {"y": [y.data, y.indices, y.indptr], "sample_weight": weight}
            kept = self._begin_fit(inputs, target, resume, checkpoint)
            held = self._fit_parts(inputs, y, weight, resume, kept)
            self._check_training(inputs, y)
            if held is not None:
                self._calibrate_inputs(
                    inputs.subset(held), None if weight is None else weight[held]
                )
            else:
                self._forget_threshold()
            self._close_checkpoint(kept)
        return self

    def partial_fit(self, X, y=None, classes=None, sample_weight=None):
        """Train on one pass over a piece of the data.

        Nothing is held out: a threshold is calibrated on the piece itself. Sizes are predicted
        up to twice the largest of the first piece, or to 16 if that is more; larger ones
        count for that.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset
            Training samples.
        y : array-like or sparse matrix of shape (n_samples, n_classes), or list of label sets
            Targets, as in `fit`.
        classes : array-like of shape (n_classes,), default=None
            All labels that later calls may bring; required by the first call unless `y` is an
            indicator. They name the columns of an indicator without names. `classes_` keeps their
            order, except for one label per sample, where it is sorted.
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
            given = None if classes is None else as_label_names(classes, "classes")
            if (
                not first
                and given is not None
                and set(given.tolist()) != set(self.classes_.tolist())
            ):
                raise ValueError(
                    f"classes={given[:10].tolist()} is not the same as in the first call of "
                    f"partial_fit, {self.classes_[:10].tolist()}."
                )
            inputs, y, weight = self._check_data(X, y, sample_weight, first, given, partial=True)
            if first:
                largest = max(2 * np.diff(y.indptr).max(), MOST_IN_PIECE)
                self.largest_size_ = int(min(largest, y.shape[1]))
                self._start_anew()
            else:
                remedy = "use size='threshold', or begin with a piece of samples of as many labels"
                self._warn_of_larger(y, f"the first piece had few: {remedy}")
            self._count(y, weight, anew=first)
            target = {"y": [y.data, y.indices, y.indptr], "sample_weight": weight}
            self._begin_fit(inputs, target, "partial_fit")
            data = self._training_set(inputs, y, weight, np.arange(y.shape[0]), True)
            self._train(data, None, 1, resume="partial_fit")
            if self._uses_threshold():
                self._calibrate_inputs(inputs, weight)
            else:
                self._forget_threshold()
        return self

    def score(self, X, y, sample_weight=None):
        """Return the share of samples whose labels are predicted exactly.

        A sample with a label that was unseen in training is not.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset
        y : array-like or sparse matrix of shape (n_samples, n_classes), or list of label sets
            Targets, as in `fit`.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.

        Returns
        -------
        score : float
        """
        check_is_fitted(self)
        self._check_passed(y)
        if self._form == "single":
            self._check_form("sets" if has_several_labels(y) else "single")
            return super().score(X, y, sample_weight)
        y, _, form = encode_label_sets(y, self.classes_, extend=True, sets=self._form == "sets")
        if self._form != "sets":  # where one label is a set of one
            self._check_form(form)
        if y.nnz and y.indices.min() >= len(self.classes_):
            warn_caller(
                "y holds no label that was trained on, as classes_ has them: "
                f"{self.classes_[:5].tolist()}. Give labels as in fit.",
            )
        predicted = sp.csr_array(self.predict(X))
        predicted.resize(predicted.shape[0], y.shape[1])
        return accuracy_score(y, predicted, sample_weight=sample_weight)

    def _warn_of_larger(self, y, reason):
        largest = np.diff(y.indptr).max()
        if self.size == "predicted" and largest > self.largest_size_:
            warn_caller(
                f"a sample has {largest} labels, but at most {self.largest_size_} are predicted, "
                f"as {reason}.",
            )

    def _check_data(self, X, y, sample_weight, first, classes=None, partial=False):
        """Return the inputs, the indicator and the weights, without samples of weight zero.

        The first time, the classes and the form of the targets are set.
        """
        if isinstance(X, Stream):
            raise TypeError(
                f"{type(self).__name__} cannot be fitted to a Stream, whose samples have a label "
                "each: train it by partial_fit(X, y) on one batch after the other."
            )
        inputs = self._check_inputs(X, first, training=True)
        if y is None and inputs.kind == "dataset":
            y = inputs.targets()
        self._check_passed(y)
        sets = not first and self._form == "sets"
        y, known, form = encode_label_sets(y, None if first else self.classes_, classes, sets=sets)
        check_consistent_length(np.empty(len(inputs)), y)
        inputs, y, weight = self._without_weightless(inputs, y, sample_weight, first)
        if not first:
            self._check_form(form)
        elif partial and classes is None and form in ("sets", "single"):
            raise ValueError("classes must be passed on the first call to partial_fit.")
        else:
            if form in ("sets", "single") and not partial:
                present = np.flatnonzero(y.sum(0))
                y, known = sp.csr_array(y[:, present]), known[present]
            self._check_targets(y, known)
            self.classes_, self._form = known, form
        return inputs, y, weight

    def _check_targets(self, y, classes):
        """Raise unless there is something to learn."""
        if len(classes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least 2 classes, but y holds {len(classes)} "
                f"class{'' if len(classes) == 1 else 'es'}: {classes.tolist()}."
            )
        if not y.nnz:
            raise ValueError("y has no label anywhere: no sample has one.")
        self._check_size(len(classes))

    def _check_form(self, form):
        if (form == "single") != (self._form == "single"):
            raise ValueError(
                f"{type(self).__name__} was first fitted on "
                f"{'one label' if self._form == 'single' else 'a set of labels'} per sample; "
                "give targets of that form, or fit anew."
            )

    def _count(self, y, weight, anew):
        """Count the samples, and those of each class; start from zero if `anew`."""
        repeated = None if weight is None else np.repeat(weight, np.diff(y.indptr))
        counts = np.bincount(y.indices, weights=repeated, minlength=y.shape[1])
        seen = float(y.shape[0] if weight is None else weight.sum())
        self.class_counts_ = counts if anew else self.class_counts_ + counts
        self._seen = seen if anew else self._seen + seen
        self.average_size_ = float(self.class_counts_.sum() / self._seen)

    def _forget_threshold(self):
        """Drop a threshold that was calibrated for the network as it was before."""
        vars(self).pop("rule_", None)

    def _uses_threshold(self):
        return self.size == "threshold" and self._form != "single"

    def _fit_parts(self, inputs, y, weight, resume, checkpoint):
        """Split the data and train; return the rows to calibrate on, or None."""
        searches = self._searches_epochs(resume)
        monitored = self.validation_fraction or (HELD_OUT if searches else None)
        train, held, valid = self._split(y, monitored)
        data, monitoring = self._training_set(inputs, y, weight, train, True), None
        if valid is not None:
            monitoring = self._training_set(inputs, y, weight, self._few_enough(valid), False)
        if searches and valid is not None:
            best = self._search(data, monitoring)
            train = np.sort(np.concatenate([train, valid]))
            if best is not None:
                self._found_epochs = best.best_epoch_
                data = self._training_set(inputs, y, weight, train, True)
                self._train(data, None, best.best_epoch_, None, checkpoint, self.net_)
        else:
            epochs = self._epochs_asked_for(resume)
            self._train(data, monitoring, epochs, resume, checkpoint)
        return train if held is None and self._uses_threshold() else held

    def _split(self, y, monitored):
        """Return the rows to train on, to calibrate and to monitor on (or None)."""
        order = np.random.RandomState(self._seed).permutation(y.shape[0])
        parts, calibrated = [], self.calibration_fraction if self._uses_threshold() else None
        for fraction in (calibrated, monitored):
            n_out = 0 if fraction is None else max(round(fraction * y.shape[0]), 1)
            n_out = min(n_out, len(order) - 1)
            parts.append(np.sort(order[:n_out]) if n_out else None)
            order = order[n_out:]
        return np.sort(order), *parts

    def _training_set(self, inputs, y, weight, indices, training):
        weight = self._training_weights(weight, indices)
        inputs = inputs.subset(indices, training=training)
        return TrainingSet(inputs, SparseInputs(y[indices], torch.float32), weight)

    def _as_of(self, net, inputs):
        model = super()._as_of(net, inputs)
        if self._uses_threshold():
            model._calibrate_inputs(inputs, None)
        return model

    def _labels_of(self, target):
        indicator = target.data.toarray().astype(int)
        return self.classes_[indicator.argmax(1)] if self._form == "single" else indicator

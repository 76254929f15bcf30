"""Multi-label classification by projections on the top-K simplex."""

from numbers import Integral, Real

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.metrics import accuracy_score, f1_score
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._average_size import average_size_threshold
from .._checks import check_integer
from .._masks import row_counts
from .._predict import labels_of_sets
from .._sets import collect_sets
from ..inputs import Inputs
from ..operators import sparse_top
from ..rules import AverageK
from ..training import SizedLoss, sums
from ._docs import with_training_parameters
from ._label_sets import DeepLabelSetClassifier
from ._marginals import label_proba, label_rank, link_of
from ._plain_state import PlainState
from ._threshold import SetsThreshold

#: Margin of the projections where none is set, chosen in ``benchmarks/multilabel.md``.
MARGIN = 4.0

#: Share of the samples that are expected, at first, to have numbers of labels that none has in the
#: first piece of :meth:`SparseTopClassifier.partial_fit`.
UNSEEN_SIZES = 0.02
#: Samples by which it is seen whether anything was learnt.
MOST_CHECKED = 1000


def top_labels(scores, sizes):
    """Mark the `sizes` labels with the largest scores of each row, ties to the last column.

    Parameters
    ----------
    scores : ndarray of shape (n_samples, n_classes)
    sizes : ndarray of int of shape (n_samples,)

    Returns
    -------
    mask : ndarray of bool of shape (n_samples, n_classes)
    """
    n_labels, sizes = scores.shape[1], np.asarray(sizes)
    n_others = n_labels - sizes.max(initial=0)
    if not 0 < n_others < n_labels:
        return _first_in_order(scores, sizes)
    largest = np.sort(np.partition(scores, n_others, axis=1)[:, n_others:], axis=1)
    ranks = largest.shape[1] - sizes.clip(1)
    last = np.take_along_axis(largest, ranks[:, None], axis=1)
    mask = scores >= np.where(sizes[:, None] > 0, last, np.inf)
    tied = np.flatnonzero(row_counts(mask) != sizes)
    mask[tied] = _first_in_order(scores[tied], sizes[tied])
    return mask


def _first_in_order(scores, sizes):
    """Do what :func:`top_labels` does, by sorting all."""
    order = np.argsort(scores, axis=1, kind="stable")
    marked = np.arange(scores.shape[1]) >= scores.shape[1] - sizes[:, None]
    mask = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(mask, order, marked, axis=1)
    return mask


@with_training_parameters
class SparseTopClassifier(PlainState, SetsThreshold, DeepLabelSetClassifier, rule=AverageK):
    """Deep multi-label classifier whose outputs are sparse.

    The network scores every label. It is trained so that the projection of the scores on the
    top-K simplex, :func:`sksetvalued.operators.sparse_top` with K the number of labels of the
    sample, is the indicator of its labels [1]_, Section 6.2. How many labels to return is told by
    further outputs of the network, by one threshold, or by you.

    Parameters
    ----------
    loss : str, criterion class or instance, default="sparse_top"
        "sparse_top", "bce" (cross-entropy of each label), "sparsemax" (the labels share one
        unit), or a torch criterion of scores and indicators.
    size : "predicted", "threshold" or int, default="predicted"
        How many labels are returned, unless `predict` is told. It may be changed after fitting.

        - "predicted": a number learnt for each sample, the median of the distribution that a
          second task of the network gives. On five of the six real sets of
          ``benchmarks/multilabel.md`` it finds more exactly right label sets than one threshold
          does, and as many on the sixth; the micro-F1 of the threshold is 0.2 to 2.2 points
          better. Where labels hardly depend on each other but through X, the
          threshold, or ``predict_proba(X) >= 0.5``, can be better in both.
        - "threshold": labels whose probability reaches one threshold, calibrated on unlabelled
          data so that the average number of labels is that of the training set. "bce" and other
          criteria have their scores compared; "sparsemax", which has no probabilities, the
          shares of the labels in one unit, times the expected number of labels.
        - an int: so many labels for every sample.
    margin : float, default=None
        How far the labels of a sample are to score above the others with "sparse_top" and
        "sparsemax"; scores are told, and projected, in units of it. None: 4. With 1 the losses
        are those of [1]_.
    loss_params : dict, default=None
        Further arguments of the loss.
    calibration_fraction : float in (0, 1) or None, default=0.1
        With ``size="threshold"``, share of the samples held out by `fit` to calibrate it. None
        trains on everything and calibrates on the same data; follow it by `calibrate`.
    {training}

    Attributes
    ----------
    {fitted}
    average_size_ : float
        Average number of labels of a training sample.
    largest_size_ : int
        Largest number of labels that is predicted.
    rule_ : AverageK
        The fitted threshold, after `calibrate` or with ``size="threshold"``.

    See Also
    --------
    TopKClassifier : Sets of k candidates for the one label of a sample.
    AverageKClassifier : Sets of k candidates on average.

    Notes
    -----
    Targets are an indicator matrix, dense or sparse (then `predict` returns a sparse one, and
    neither is made dense whole), or a list of label sets. Lists of numbers that have one
    length are read as the rows of an indicator: pass sets of numbers as ``set``.

    The columns of a DataFrame name the labels, and are told by these names ever after, whatever
    their order. `classes_` has the order of the columns of the first indicator, or of the
    `classes` of the first `partial_fit`; the labels of sets are sorted where no `classes` are
    given, and those of a 1-D target always.

    A sample without labels adds nothing to the losses "sparse_top" and "sparsemax"; it teaches
    the number of labels, which may be 0. In "bce" all its labels are negatives. At least one
    sample must have a label.

    On the same sets, with the same network, micro-F1 by "bce" is between 0.5 points above and 1.3
    below that by "sparse_top", most above on scene; where labels are many it takes three
    to five times as many epochs. Projections are 23 % to 91 % exact zeros.

    A 1-D target, one label per sample, gives an ordinary classifier, without predicted sizes.

    References
    ----------
    .. [1] Garcin, "Loss functions for set-valued classification", thesis, 2023.

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from sksetvalued import SparseTopClassifier
    >>> X, Y = make_multilabel_classification(200, random_state=0)
    >>> clf = SparseTopClassifier(max_epochs=30, random_state=0).fit(X, Y)
    >>> clf.predict(X).shape
    (200, 5)
    >>> bool(clf.predict(X, size=Y.sum(1)).sum() == Y.sum())
    True
    >>> float(clf.project(X[:1], size=2).sum().round(6))
    2.0
    """

    _parameter_constraints = {
        **DeepLabelSetClassifier._parameter_constraints,
        "size": [
            StrOptions({"predicted", "threshold"}),
            Interval(Integral, 0, None, closed="left"),
        ],
        "margin": [Interval(Real, 0, None, closed="neither"), None],
        "calibration_fraction": [Interval(Real, 0, 1, closed="neither"), None],
    }

    def __init__(
        self,
        *,
        loss="sparse_top",
        size="predicted",
        margin=None,
        loss_params=None,
        calibration_fraction=0.1,
        **training,
    ):
        super().__init__(**training)
        self.loss = loss
        self.size = size
        self.margin = margin
        self.loss_params = loss_params
        self.calibration_fraction = calibration_fraction

    _loss_parameters = ("margin",)

    # -- training ---------------------------------------------------------------------------

    def _loss_supplies(self, n_samples):
        # The losses alone have another default, that of the thesis.
        return {"margin": MARGIN} | super()._loss_supplies(n_samples)

    def _criterion(self, n_samples, generator=None):
        criterion = super()._criterion(n_samples, generator)
        if criterion.head == "two_head" or criterion.uses_index:
            raise ValueError(
                f"loss={self.loss!r} cannot be used by {type(self).__name__}: it needs a second "
                "head or the indices of the samples."
            )
        if self._form == "single":
            return criterion
        reduction = "sum" if sums(criterion) else "mean"
        return SizedLoss(criterion, len(self.classes_), reduction)

    def _make_net(self, module, criterion, train, valid, epochs, resume, generator):
        self._ranked_by = getattr(criterion, "ranked_by", "scores")
        begins = resume == "partial_fit" and not hasattr(self, "net_")
        if begins and self._form != "single" and getattr(module.head, "bias", None) is not None:
            # A piece may be too small to unlearn sizes that no sample has.
            self._expect_sizes(module.head.bias, train)
        return super()._make_net(module, criterion, train, valid, epochs, resume, generator)

    def _expect_sizes(self, bias, train):
        """Let the logits of the sizes begin at the logarithms of their shares."""
        logits, weight = bias.detach()[len(self.classes_) :], train.sample_weight
        sizes = np.minimum(np.diff(train.target.data.indptr), len(logits) - 1)
        counts = np.bincount(sizes, weight, minlength=len(logits))
        shares = np.maximum(counts / counts.sum(), UNSEEN_SIZES / len(logits))
        logits.copy_(torch.from_numpy(np.log(shares)))

    @property
    def _n_outputs(self):
        n_sizes = 0 if self._form == "single" else self.largest_size_ + 1
        return len(self.classes_) + n_sizes

    def _monitor_metric(self):
        if self._form == "single":
            return "valid_accuracy", lambda y, score, weight: accuracy_score(
                y.argmax(1), score.argmax(1), sample_weight=weight
            )

        def metric(y_true, outputs, sample_weight):
            scores, sizes = self._separate(outputs)
            if self._uses_threshold():
                mask = self._by_threshold(scores, sizes)
            else:
                mask = top_labels(scores, self._sizes(sizes))
            return _micro_f1(y_true, mask, sample_weight)

        return "valid_micro_f1", metric

    def _search_metric(self):
        name, f1 = self._monitor_metric()
        if self._form == "single" or self._uses_threshold():
            return name, f1

        def metric(y_true, outputs, sample_weight):
            value = f1(y_true, outputs, sample_weight)
            scores, sizes = self._separate(outputs)
            if value > self._chance or 2 * self._sizes(sizes).mean() > self.average_size_:
                return value
            # Sets that hold next to nothing, as of rare labels: go by the scores.
            mask = self._by_threshold(scores, sizes)
            return self._chance * _micro_f1(y_true, mask, sample_weight)

        return "valid_informed_f1", metric

    @property
    def _chance(self):
        """Micro-F1 of the best set that is predicted for all samples."""
        if self._form == "single":
            return None
        n_hits = np.sort(self.class_counts_)[::-1].cumsum()
        n_predicted = self._seen * np.arange(1, len(n_hits) + 1)
        return float((2 * n_hits / (n_predicted + n_hits[-1])).max())

    def _check_training(self, inputs, y):
        """Warn where scores find the labels of samples no better than their counts would."""
        if self._form == "single" or not inputs.in_memory:
            return
        some = np.arange(y.shape[0])[:: -(-y.shape[0] // MOST_CHECKED)]
        y = y[some]
        sizes, rank = np.diff(y.indptr), np.empty(y.shape[1], dtype=int)
        rank[np.argsort(-self.class_counts_)] = np.arange(y.shape[1])
        chance = (rank[y.indices] < np.repeat(sizes, sizes)).sum()
        found, start = 0, 0
        for scores, _ in self._iter_parts(inputs.subset(some)):
            rows = slice(start, start + len(scores))
            found += y[rows].multiply(top_labels(scores, sizes[rows])).sum()
            start = rows.stop
        if found <= chance and found < y.nnz:
            self._say_that_nothing_was_learnt(
                f"of training samples, {found / y.nnz:.1%} of the labels are among as many of the "
                f"largest scores, and {chance / y.nnz:.1%} among as many of the most frequent"
            )

    def _by_threshold(self, scores, logits):
        """Return the mask of as many labels on average as the training samples have."""
        rank = self._rank_scores(scores, logits)
        return rank >= average_size_threshold(rank, self.average_size_)

    def _class_scores(self, output):
        scores, sizes = self._separate(output)
        return scores if self._form == "single" else self._rank_scores(scores, sizes)

    # -- the number of labels ---------------------------------------------------------------

    def _check_size(self, n_classes):
        """Raise if the parameter `size` is neither a name nor a number of classes."""
        if isinstance(self.size, str):
            return
        check_integer("size", self.size, 0)
        if self.size > n_classes:
            raise ValueError(
                f"size must be at most the number of classes, {n_classes}, got {self.size!r}."
            )

    def calibrate(self, X, y=None, *, sample_weight=None):
        """Set the threshold so that X gets as many labels on average as the training samples.

        No targets are needed. The threshold is used with ``size="threshold"``, which may be set
        after fitting. Training by another `size` forgets it.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset
            Unlabelled samples like those to predict.
        y : Ignored
            For the signature of `PlugInClassifier`.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples in the average.

        Returns
        -------
        self : object
        """
        return self._calibrate(X, sample_weight)

    # Samples may well have no label, or all.
    _expected_warnings = "calibration sets are empty|every class is returned"

    def _iter_thresholded(self, inputs):
        for scores, logits in self._iter_parts(inputs):
            yield self._rank_scores(scores, logits)

    def _rule(self):
        return AverageK(self.average_size_)

    def _combine_views(self, scores):
        return scores.mean(1)

    def _separate(self, outputs):
        """Return the scores of the labels and the logits of the sizes."""
        n_classes = len(self.classes_)
        return outputs[:, :n_classes], outputs[:, n_classes:]

    def _iter_parts(self, X):
        """Yield the scores and the logits of the sizes of each chunk of X."""
        for outputs in self._iter_scores(X):
            yield self._separate(outputs)

    def _rank_scores(self, scores, logits):
        """Return what compares between samples, from the outputs of the network."""
        return label_rank(scores, logits, self._ranked_by)

    def _sizes(self, logits):
        """Return the number of labels by the parameter `size`; None if a threshold decides."""
        if self._form == "single":
            size = self.size if isinstance(self.size, Integral) else 1
            return np.full(len(logits), size, dtype=int)
        if self._uses_threshold():
            return None
        if self.size != "predicted":
            return np.full(len(logits), self.size, dtype=int)
        logits = logits.astype(np.float64)
        share = np.exp(logits - logits.max(1, keepdims=True))
        return (share.cumsum(1) < share.sum(1, keepdims=True) / 2).sum(1)

    def _iter_sets(self, X, size=None):
        """Yield the scores and the mask of the labels of each chunk of X."""
        inputs = X if isinstance(X, Inputs) else self._check_inputs(X)
        size = self._given_size(size, len(inputs))
        if size is None and self._uses_threshold() and not hasattr(self, "rule_"):
            raise ValueError(
                "size='threshold' was set after fitting and no threshold is calibrated: call "
                "calibrate(X) on unlabelled samples first."
            )
        if size is None and self._uses_threshold():
            yield from self._iter_sets_by_threshold(inputs)
            return
        start = 0
        for scores, logits in self._iter_parts(inputs):
            stop = start + len(scores)
            sizes = self._sizes(logits) if size is None else size[start:stop]
            yield scores, top_labels(scores, sizes)
            start = stop

    def _iter_sets_by_threshold(self, inputs):
        rule, sizes = self.rule_, []  # of one calibration, whatever another thread sets
        for scores, logits in self._iter_parts(inputs):
            mask = np.zeros(scores.shape, dtype=bool)
            rule._mark_sets(self._rank_scores(scores, logits), mask)
            if rule._expects_sizes:
                sizes.append(row_counts(mask))
            yield scores, mask
        if sizes:
            rule._check_sizes(np.concatenate(sizes))

    def _given_size(self, size, n_samples, real=False):
        """Return the sizes given to a method as an array, or None."""
        if size is None:
            self._validate_params()
            self._check_size(len(self.classes_))
            return None
        # Sums of the rows of a sparse matrix are a matrix.
        size = np.ravel(size) if isinstance(size, np.matrix) else np.asarray(size)
        whole = size.dtype.kind in "ui" or (size.dtype.kind == "f" and (size % 1 == 0).all())
        if not (whole or (real and size.dtype.kind == "f")):
            what = "numbers" if real else "integers"
            raise TypeError(f"size must hold {what}, got {size.dtype} in {size!r:.50}.")
        if size.ndim > 1 or (size.ndim and len(size) != n_samples):
            raise ValueError(
                f"size must be one number or have shape ({n_samples},), one number per sample "
                f"of X, got {size.shape}."
            )
        if not ((size >= 0) & (size <= len(self.classes_))).all():
            raise ValueError(
                f"size must lie in [0, {len(self.classes_)}], the number of classes, got values "
                f"in [{size.min()}, {size.max()}]."
            )
        return np.broadcast_to(size if real else size.astype(np.int64), (n_samples,))

    # -- prediction -------------------------------------------------------------------------

    def decision_function(self, X):
        """Return the scores of the labels, which compare within and between samples.

        What the network gives compares within a sample only, as the losses "sparse_top" and
        "sparsemax" ignore a constant added to all its scores. With these the scores are therefore
        what `size="threshold"` compares: the probabilities of `predict_proba`, or the expected
        share of a label times the expected number of labels, and so little of what the network
        gives that it only breaks ties. With other losses, and with one label per sample, they are
        what the network gives.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`. With a 1-D target of two classes, of shape
            (n_samples,).
        """
        check_is_fitted(self)
        if self._form != "single":
            return self._set_scores(X)
        scores = np.concatenate([scores for scores, _ in self._iter_parts(X)])
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    @available_if(link_of)
    def predict_proba(self, X):
        """Return the probability of each label.

        With ``loss="sparse_top"`` these are the projections on the top-K simplex, averaged over
        the probabilities that the network gives to the numbers of labels K; to rank labels, take
        `decision_function`, where fewer tie. With ``loss="bce"`` they are the sigmoid of the
        scores. There are none with "sparsemax", nor with criteria other than torch's
        ``BCEWithLogitsLoss`` and ``MultiLabelSoftMarginLoss``.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            With a 1-D target, rows sum to one.
        """
        check_is_fitted(self)
        link = link_of(self)
        return np.concatenate(
            [label_proba(scores, sizes, link) for scores, sizes in self._iter_parts(X)]
        )

    def _set_scores(self, X):
        return np.concatenate([self._rank_scores(*part) for part in self._iter_parts(X)])

    def predict(self, X, size=None):
        """Return the indicator of the labels.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset
        size : int or array-like of int of shape (n_samples,), default=None
            Numbers of labels, where they are known; None follows the parameter `size`.

        Returns
        -------
        y : ndarray or csr_array of int of shape (n_samples, n_classes)
            Sparse if the targets were. With a 1-D target and no `size`, the labels with the
            largest scores, of shape (n_samples,).
        """
        check_is_fitted(self)
        if self._form == "single" and size is None:
            best = np.concatenate([scores.argmax(1) for scores, _ in self._iter_parts(X)])
            return self.classes_[best]
        return self._stack(mask.astype(np.int64) for _, mask in self._iter_sets(X, size))

    def _stack(self, parts):
        """Return what an iterator yields as one array, sparse if the targets were."""
        if self._form == "sparse":
            return sp.vstack([sp.csr_array(part) for part in parts], format="csr")
        return np.concatenate(list(parts))

    def predict_set(self, X, size=None, out=None):
        """Return the labels as a mask.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset
        size : int or array-like of int of shape (n_samples,), default=None
            Numbers of labels, where they are known; None follows the parameter `size`.
        out : "csr" or bool ndarray of shape (n_samples, n_classes), default=None
            Where the sets go: a sparse matrix, or an array of yours, such as a memory map.

        Returns
        -------
        sets : bool ndarray or csr_array of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        inputs = X if isinstance(X, Inputs) else self._check_inputs(X)
        masks = (mask for _, mask in self._iter_sets(inputs, size))
        return collect_sets(masks, (len(inputs), len(self.classes_)), out)

    def predict_labels(self, X, size=None):
        """Return the labels of each sample, that of the largest score first.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset
        size : int or array-like of int of shape (n_samples,), default=None
            Numbers of labels, where they are known; None follows the parameter `size`.

        Returns
        -------
        labels : list of n_samples ndarrays
        """
        check_is_fitted(self)
        labels = []
        for scores, mask in self._iter_sets(X, size):
            labels += labels_of_sets(mask, scores, self.classes_)
        return labels

    def project(self, X, size=None):
        """Return the projections of the scores on the top-K simplex.

        Entries lie between 0 and 1, many of them exactly 0, and sum to the number of labels.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features), images, paths or Dataset
        size : float or array-like of shape (n_samples,), default=None
            Sums of the projections; None takes the number of labels that `predict` returns.

        Returns
        -------
        q : ndarray or csr_array of shape (n_samples, n_classes)
            Sparse if the targets were.
        """
        check_is_fitted(self)
        inputs = self._check_inputs(X)
        if size is None:
            sizes = np.concatenate([mask.sum(1) for _, mask in self._iter_sets(inputs)])
        else:
            sizes = self._given_size(size, len(inputs), real=True)
        return self._stack(self._iter_projections(inputs, np.array(sizes, np.float64)))

    def _iter_projections(self, inputs, sizes):
        start = 0
        for scores, _ in self._iter_parts(inputs):
            k = torch.from_numpy(sizes[start : start + len(scores)])
            yield sparse_top(torch.from_numpy(np.ascontiguousarray(scores)), k).numpy()
            start += len(scores)


def _micro_f1(y_true, mask, sample_weight):
    return f1_score(y_true, mask, average="micro", sample_weight=sample_weight, zero_division=0)

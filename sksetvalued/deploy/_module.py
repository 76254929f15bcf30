"""A fitted estimator as one torch module, its rule inside."""

import copy

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import fx, nn

from .._arrays import always_on_the_processor
from .._predict import unwrap
from .._warnings import warn_caller
from ..estimators import PlugInClassifier, SparseTopClassifier
from ..estimators._deep import DeepEstimator
from ..estimators._marginals import TIE_BREAK
from ..estimators._unsmooth import unsmoothed
from ..inputs import NamedTensors, is_image, plain_sample
from . import _masks
from ._rules import rule_module

DTYPES = {None: None, "float32": torch.float32, "float64": torch.float64}


class _Probabilities(nn.Module):
    """From the scores of a single-label network to the log-probabilities of the classes."""

    def __init__(self, model):
        super().__init__()
        self.register_buffer("shift", torch.tensor(model._log_shift, dtype=torch.float64))
        smoothed = torch.tensor(model._log_smoothing) if model._label_smoothing else None
        self.register_buffer("log_added", smoothed)
        weight = np.zeros(1) if model._log_label_weight is None else model._log_label_weight
        self.register_buffer("log_weight", torch.tensor(weight))

    def forward(self, scores):
        log_proba = torch.log_softmax(scores.double() + self.shift, 1)
        if self.log_added is None:
            return log_proba
        log_proba = unsmoothed(log_proba, self.log_added)
        return torch.log_softmax(log_proba - self.log_weight, 1)


class _SetsOfScores(nn.Module):
    """The sets of a single-label classifier."""

    def __init__(self, model, rule):
        super().__init__()
        self.probabilities = _Probabilities(model)
        self.rule = rule_module(rule)

    def forward(self, output):
        log_proba = self.probabilities(output)
        scores = log_proba if self.rule.log_scores else log_proba.exp()
        return self.rule(scores), log_proba


class _RankedLabels(nn.Module):
    """What the label sets of a multi-label classifier, and the scores beside them, are made of."""

    def __init__(self, model):
        super().__init__()
        self.n_classes = len(model.classes_)
        self.ranked_by = "scores" if model._form == "single" else model._ranked_by

    def forward(self, output):
        scores, logits = output[:, : self.n_classes].double(), output[:, self.n_classes :].double()
        rank = self.rank(scores, logits)
        return self.sets(scores, logits, rank), rank

    def rank(self, scores, logits):
        """Do what :func:`..estimators._marginals.label_rank` does."""
        if self.ranked_by == "scores":
            return scores
        share = torch.softmax(logits, 1)
        scores = scores - scores.amax(1, keepdim=True)
        if self.ranked_by == "probabilities":
            rank = _masks.mean_projection(scores, share)
        else:
            sizes = torch.arange(share.shape[1], dtype=share.dtype, device=share.device)
            rank = (share * sizes).sum(1, keepdim=True) * _masks.project(scores, 1)
        return rank + TIE_BREAK * (scores - scores.mean(1, keepdim=True))


class _LabelSets(_RankedLabels):
    """The label sets of a multi-label classifier, by a number of labels for each sample."""

    def __init__(self, model):
        super().__init__(model)
        self.size = model.size
        if model._form == "single" and isinstance(self.size, str):
            self.size = 1

    def sets(self, scores, logits, rank):
        if self.size != "predicted":
            return _masks.top_k(scores, self.size)
        share = torch.exp(logits - logits.amax(1, keepdim=True))
        short = share.cumsum(1) < share.sum(1, keepdim=True) / 2
        return _masks.top_sizes(scores, short.long().sum(1, keepdim=True))


class _LabelsAboveThreshold(_RankedLabels):
    """The label sets of a multi-label classifier, by one threshold."""

    def __init__(self, model):
        super().__init__(model)
        self.rule = rule_module(model.rule_)

    def sets(self, scores, logits, rank):
        return self.rule(rank)


class SetModule(nn.Module):
    """A trained network and the rule behind it: from a batch to sets.

    Made by :func:`to_torch`. Parameters do not require gradients, and the module stays in
    evaluation mode, also inside a module that is trained; it moves between devices like any other.

    Parameters
    ----------
    network, criterion : nn.Module
        The trained network, and the loss, which may choose among its outputs or scale them.
    sets : nn.Module
        From scores to the mask of the sets, and the scores that order the classes.
    dtype : torch.dtype
        What the network takes.
    of_bytes : bool
        Whether images are of bytes.
    """

    def __init__(self, network, criterion, sets, dtype, of_bytes=False):
        super().__init__()
        self.of_bytes = of_bytes
        # Files hold weights in the order of their shape.
        self.network = network.to(memory_format=torch.contiguous_format)
        self.criterion = criterion
        self.sets = sets
        self.dtype = dtype
        self.requires_grad_(False).eval()

    def train(self, mode=True):
        """Stay in evaluation mode, whatever `mode` is."""
        return super().train(False)

    def forward(self, X):
        """Return the sets and the scores of a batch.

        Parameters
        ----------
        X : Tensor of shape (n_samples, ...) or dict of Tensors
            Rows of a table, or images of shape (n_samples, n_channels, height, width); of samples
            of several parts, tensors by name.

        Returns
        -------
        sets : BoolTensor of shape (n_samples, n_classes)
        scores : DoubleTensor of shape (n_samples, n_classes)
            Log-probabilities; for several labels their scores by `decision_function`. The
            likeliest class of a set is that of the largest score.
        """
        if self.of_bytes and X.dtype != torch.uint8:
            raise TypeError(
                f"the images of fit were of bytes, torch.uint8, these are of {X.dtype}: give the "
                "bytes."
            )
        if isinstance(X, dict):
            X = NamedTensors((name, self._cast(part)) for name, part in X.items())
        else:
            X = self._cast(X)
        return self.sets(self.criterion.scores(self.network(X)))

    def _cast(self, X):
        return X.to(self.dtype) if X.is_floating_point() else X


def _sets_module(model, rule):
    if not isinstance(model, SparseTopClassifier):
        if rule is None:
            model._refresh_rule()
            rule = model.rule_
        return _SetsOfScores(model, rule)
    if not model._uses_threshold():
        return _LabelSets(model)
    if not hasattr(model, "rule_"):
        raise ValueError(
            "size='threshold' was set after fitting and no threshold is calibrated: call "
            "calibrate(X) on unlabelled samples before the export."
        )
    return _LabelsAboveThreshold(model)


def _inside(model):
    """Return the classifier inside searches and pipelines that have no other step."""
    if isinstance(model, Pipeline) and len(model.steps) > 1:
        raise TypeError(
            f"the step {type(model.steps[0][1]).__name__} of the Pipeline runs outside of torch: "
            "give export some samples as X, and a path that ends in .onnx, to export the whole; "
            "or export the last step by itself, as model[-1]."
        )
    return unwrap(model)[0]


def exportable(model):
    """Return the deep estimator to export and the rule put on top of it, or None.

    Raises
    ------
    TypeError, ValueError
        With what stands against it.
    """
    model, rule = _inside(model), None
    if isinstance(model, PlugInClassifier):
        check_is_fitted(model)
        model, rule = _inside(model.estimator_), model.rule_
    _check_exportable(model)
    return model, rule


def refuse(model):
    """Raise TypeError, as sets of a model cannot be computed outside of Python."""
    raise TypeError(
        "only fitted estimators of sksetvalued with a network can be exported, got "
        f"{type(model).__name__}. PlugInClassifier makes classifiers of scikit-learn "
        "set-valued; give export some samples as X then, and a path that ends in .onnx."
    )


def _check_exportable(model):
    if not isinstance(model, DeepEstimator):
        refuse(model)
    check_is_fitted(model)
    transform = vars(model)["transform"]
    if transform is not None:
        raise ValueError(
            f"transform={transform!r} runs outside of the graph: export "
            "copy.copy(model).set_params(transform=None), and apply it to the images yourself."
        )
    precision = model.net_.precision
    if precision != "float32":
        warn_caller(
            f"precision={precision!r} is for the estimator: the exported network computes in "
            "single precision, and scores near a threshold may fall on its other side.",
        )


@always_on_the_processor
def to_torch(model, *, dtype=None):
    """Return a fitted estimator as a torch module, from a raw batch to sets and scores.

    Normalisation, network, head, what the loss did to the class prior, and the rule are inside.
    The module returns the sets that `predict_set` returns, but where a score is nearer to its
    threshold than rounding: single precision moves log-probabilities by about 1e-6 to 4e-5. A row
    with NaN gets an empty set.

    Parameters
    ----------
    model : TopKClassifier, AverageKClassifier, SparseTopClassifier or PlugInClassifier
        Fitted, the last around one of the others; or a search around one. Later
        changes to it leave the module as it is.
    dtype : {"float32", "float64"}, default=None
        What the network computes in. None is as in `predict_set`: double precision for the
        perceptron on tables, single precision otherwise, and for parts of a backbone that are in
        another one what they are in.

    Returns
    -------
    module : torch.nn.Module
        On the CPU, in evaluation mode. It takes tensors: rows of a table (dense), or images with
        the channels first, bytes if those of `fit` were; of samples of several parts, as tokens
        and their mask, a dict of tensors by name, of the types of ``input_shape_``.

    Raises
    ------
    TypeError
        A model without a network of its own, or a Pipeline with other steps.
    ValueError
        A `transform`, which runs outside of the graph; an unknown `dtype`.

    See Also
    --------
    export : Write it to a file.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_iris
    >>> from sksetvalued import TopKClassifier, to_torch
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = TopKClassifier(k=2, max_epochs=1, random_state=0).fit(X, y)
    >>> sets, log_proba = to_torch(clf)(torch.from_numpy(X[:5]))
    >>> bool((sets.numpy() == clf.predict_set(X[:5])).all())
    True
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be 'float32', 'float64' or None, got {dtype!r}.")
    model, rule = exportable(model)
    asked, built_in = DTYPES[dtype], model._built_in_network()
    in_double = model.input_kind_ == "table" and built_in
    dtype = asked or (torch.float64 if in_double else torch.float32)
    network, criterion = model.net_.bare_module, model.net_.criterion_
    network, criterion = (copy.deepcopy(part).cpu() for part in (network, criterion))
    if asked or built_in or model.net_.precision != "float32":
        network = _in_precision(network, dtype)
    sets, of_bytes = _sets_module(model, rule), takes_bytes(model)
    return SetModule(network, criterion, sets, dtype, of_bytes)


def _in_precision(network, dtype):
    """Convert what a network holds; complex numbers stay complex."""

    def converted(tensor):
        if tensor.is_complex():
            return tensor.to(dtype.to_complex())
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return network._apply(converted)


def takes_bytes(model):
    """Return whether a fitted estimator takes images of bytes."""
    return is_image(model.input_shape_) and model._fitted_on_bytes


def dynamic_shapes(batch, n_samples, lengths=torch.export.Dim.AUTO):
    """Return which dimensions of a batch may vary: the samples and, of parts, the lengths.

    Parameters
    ----------
    batch : Tensor or dict of Tensors
    n_samples : str or torch.export.Dim
    lengths : torch.export.Dim
        ``Dim.STATIC`` are those of the batch.
    """
    if not isinstance(batch, dict):
        return {0: n_samples}
    return {
        name: {0: n_samples, **dict.fromkeys(range(1, part.ndim), lengths)}
        for name, part in batch.items()
    }


def traced(module, batch, shapes=None):
    """Return the program of a module, of a batch some of whose dimensions may vary."""
    try:
        return torch.export.export(module, (batch,), dynamic_shapes=shapes)
    except torch._dynamo.exc.UserError:
        # len(x) in a network is a constant but for the tracer that reads its code.
        return torch.export.export(module, (batch,), dynamic_shapes=shapes, strict=True)


def pools_to_places(module, batch):
    """Return whether the parts of a batch are pooled to several places, whatever their lengths."""
    graphs = traced(module, batch).graph_module.modules()
    nodes = (node for graph in graphs for node in getattr(graph, "graph", fx.Graph()).nodes)
    pools = (node for node in nodes if "adaptive" in str(node.target))
    return any(size != 1 for pool in pools for size in pool.args[1])


def example_batch(model, module):
    """Return two samples of zeros, for an exporter to trace: it would specialise a single one."""
    if isinstance(model.input_shape_, dict):
        sample = plain_sample(model.input_shape_, 0)
        return {name: torch.cat([part, part]) for name, part in sample.items()}
    dtype = torch.uint8 if takes_bytes(model) else module.dtype
    return torch.zeros(2, *model.input_shape_, dtype=dtype)

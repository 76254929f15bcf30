"""Converters by which skl2onnx takes our classifiers at the end of a Pipeline."""

import copy
import io
import re
import sys
import warnings
from collections.abc import Mapping

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline
from torch import nn

from .._predict import predict_set, unwrap
from .._warnings import warn_caller, without_warnings
from ..estimators import (
    AverageKClassifier,
    PlugInClassifier,
    SparseTopClassifier,
    TopKClassifier,
)
from ..estimators._deep import DeepEstimator
from ..rules import AverageError, PointwiseError
from ._module import dynamic_shapes, pools_to_places, to_torch
from ._rules import rule_module

#: The version of the operators in which torch writes graphs; those of skl2onnx have to agree.
OPSET = 18
#: What rounding takes from a score in single precision, at most, as a part of it.
SINGLE_PRECISION = 2.0**-20
#: Share of sets that rounding may change, as of scores that lie at a threshold.
MOST_OTHERS = 0.01
#: How far single precision may take scores from those in Python, as a part of the largest.
MOST_OFF = 1e-3
#: The least log-probability that is told from smaller ones: rounding moves those of classes that
#: have next to nothing left without label smoothing as far as it likes.
LEAST_LOG_PROBA = -20.0
#: The patterns of all words of some length or more, as scikit-learn's own.
WORDS = re.compile(r"(?:\\b)?((?:\\w)+(?:\+|\{[1-9]\d*,\}))(?:\\b)?")
#: What ``\w`` is in Python; to ONNX Runtime it is a letter of ASCII.
ONNX_LETTER = r"[\p{L}\p{N}_]"


class _FloatRows(nn.Module):
    """A network for the rows of a Pipeline, which ONNX computes in single precision."""

    def __init__(self, model):
        super().__init__()
        self.module = to_torch(model)

    def forward(self, X):
        sets, scores = self.module(X.to(self.module.dtype))
        return sets, scores.float()


class _RuleOfScores(nn.Module):
    """A rule on the probabilities of any classifier, or on its decision values."""

    def __init__(self, model):
        super().__init__()
        self.rule = rule_module(model.rule_)
        self.logs = self.rule.log_scores and has_proba(model)
        if isinstance(model.rule_, AverageError):
            # It is a score itself, which single precision may round to below it.
            threshold = self.rule.threshold
            scale = threshold.abs().clamp(min=1) if self.rule.log_scores else threshold.abs()
            lower = threshold - SINGLE_PRECISION * scale
            self.rule.threshold = torch.where(threshold.isfinite(), lower, threshold)
        if isinstance(model.rule_, PointwiseError):
            # Sums of shares reach it exactly, and may fall short of it in single precision.
            self.rule.wanted -= SINGLE_PRECISION

    def forward(self, scores):
        scores = scores.double()
        return self.rule(scores.log() if self.logs else scores), scores.float()


def has_proba(model):
    """Return whether the classifier inside a PlugInClassifier gives probabilities."""
    return model._score_method(model.estimator_) == "predict_proba"


def onnx_graph(module, batch, **names):
    """Return the ONNX program of a module for any number of samples."""
    shapes = dynamic_shapes(batch, "n_samples")
    if isinstance(batch, dict) and pools_to_places(module, batch):
        # The exporter would pool other lengths by the windows of this one.
        shapes = dynamic_shapes(batch, "n_samples", torch.export.Dim.STATIC)
    with warnings.catch_warnings():
        # Of torch about itself.
        warnings.simplefilter("ignore", FutureWarning)
        return torch.onnx.export(
            module.eval(),
            (batch, {}),  # A dict at the end would be taken for named arguments.
            dynamo=True,
            dynamic_shapes=(shapes,),
            opset_version=OPSET,
            verbose=False,
            **names,
        )


def register_onnx_converters():
    """Teach skl2onnx the classifiers of this package.

    Afterwards ``skl2onnx.to_onnx`` makes one ONNX file of a whole Pipeline that ends in one of
    them. Its outputs are the sets, a mask, and the scores that order the classes:
    log-probabilities; with :class:`~sksetvalued.PlugInClassifier` the probabilities of the
    classifier inside, which skl2onnx has to know. :func:`sksetvalued.export` does it all.

    Raises
    ------
    ImportError
        If skl2onnx is not installed.

    Examples
    --------
    >>> from sksetvalued.deploy import register_onnx_converters
    >>> register_onnx_converters()
    """
    from skl2onnx import update_registered_converter  # an extra

    parsers = {PlugInClassifier: _parse_plug_in}
    for cls in (TopKClassifier, AverageKClassifier, SparseTopClassifier, PlugInClassifier):
        update_registered_converter(
            cls,
            f"Sksetvalued{cls.__name__}",
            _shapes,
            _convert,
            parser=parsers.get(cls, _parse),
            options={"zipmap": [False, True, "columns"]},
        )


def _declare(scope, model, inputs):
    from skl2onnx.common.data_types import BooleanTensorType, FloatTensorType

    operator = scope.declare_local_operator(f"Sksetvalued{type(model).__name__}", model)
    operator.inputs.extend(_beside_each_other(scope, inputs))
    n_classes = len(model.classes_)
    for name, kind in (("sets", BooleanTensorType), ("scores", FloatTensorType)):
        output = scope.declare_local_variable(name, kind([None, n_classes]))
        operator.outputs.append(output)
    return operator.outputs


def _parse(scope, model, inputs, custom_parsers=None):
    return _declare(scope, model, inputs)


def _parse_plug_in(scope, model, inputs, custom_parsers=None):
    from skl2onnx._parse import parse_sklearn

    inner = _active(model.estimator_)
    *before, last = (step for _, step in inner.steps) if isinstance(inner, Pipeline) else [inner]
    if has_network(model):
        for step in before:
            inputs = parse_sklearn(scope, step, inputs, custom_parsers=custom_parsers)
        # The network and the rule are one module.
        alone = copy.copy(model)
        alone.estimator_ = last
        return _declare(scope, alone, inputs)
    if not before:
        inputs = _beside_each_other(scope, inputs)
    scope.add_options(id(last), _options(scope, last, model))
    outputs = parse_sklearn(scope, inner, inputs, custom_parsers=custom_parsers)
    return _declare(scope, model, outputs[1:2])


def _options(scope, classifier, model):
    """Return the options, of those that a classifier has, by which its scores are written bare."""
    registered = scope.registered_models
    alias = registered["aliases"].get(type(classifier))
    known = registered["conv"][alias].get_allowed_options() if alias is not None else None
    wanted = {"zipmap": False}
    # What is written of several classifiers with raw scores does not run.
    if not has_proba(model) and not isinstance(classifier, OneVsRestClassifier):
        wanted["raw_scores"] = True
    return {name: value for name, value in wanted.items() if name in (known or ())}


def has_network(model):
    """Return whether a PlugInClassifier stands around a network."""
    return isinstance(unwrap(model.estimator_)[0], DeepEstimator)


def _beside_each_other(scope, inputs):
    """Return one input, of several that are the columns of a DataFrame."""
    if len(inputs) == 1:
        return inputs
    operator = scope.declare_local_operator("SklearnConcat")
    operator.inputs = list(inputs)
    whole = scope.declare_local_variable("columns", type(inputs[0].type)([None, None]))
    operator.outputs.append(whole)
    return [whole]


def _active(model):
    """Return the model that is frozen or was searched; a Pipeline without idle steps."""
    while isinstance(model, FrozenEstimator) or hasattr(model, "best_estimator_"):
        model = model.estimator if isinstance(model, FrozenEstimator) else model.best_estimator_
    if not isinstance(model, Pipeline):
        return model
    *before, (name, last) = model.steps
    steps = [(other, step) for other, step in before if step is not None and step != "passthrough"]
    return Pipeline([*steps, (name, _active(last))])


def _shapes(operator):
    """Leave the shapes, which the parser has set."""


def _convert(scope, operator, container):
    import onnx
    from skl2onnx.helpers import add_onnx_graph

    model = operator.raw_operator
    if isinstance(model, PlugInClassifier) and not has_network(model):
        module, width = _RuleOfScores(model), len(model.classes_)
    else:
        network, _ = unwrap(getattr(model, "estimator_", model))
        module, width = _FloatRows(model), network.n_features_in_
    buffer = io.BytesIO()
    onnx_graph(module, torch.ones(2, width) / width).save(buffer)
    graph = onnx.shape_inference.infer_shapes(onnx.load_from_string(buffer.getvalue()))
    add_onnx_graph(scope, operator, container, graph)


def pipeline_graph(model, X):
    """Return the ONNX model of a Pipeline that ends in one of our classifiers.

    Parameters
    ----------
    model : Pipeline, classifier of this package, or search around one
        Fitted.
    X : array-like or DataFrame
        Some samples as `model` takes them: they tell the types of the inputs.
    """
    from skl2onnx import to_onnx

    register_onnx_converters()
    active = _active(model)
    last = active.steps[-1][1] if isinstance(active, Pipeline) else active
    options = {id(last): {"zipmap": False}} if is_classifier(last) else {}
    for step in _steps_inside(active):
        if callable(getattr(step, "analyzer", None)):
            raise ValueError(
                f"analyzer={step.analyzer!r} of {type(step).__name__} runs in Python only: fit "
                "with analyzer='word' and a token_pattern, or predict in Python."
            )
    for step in filter(_splits_words, _steps_inside(active)):
        options[id(step)] = {"tokenexp": _onnx_pattern(step.token_pattern)}
    opsets = {"": OPSET, "ai.onnx.ml": 3}
    try:
        graph = to_onnx(active, _one_sample(X), target_opset=opsets, options=options)
    except (AssertionError, AttributeError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"skl2onnx cannot write some part of {type(model).__name__}: {_reasons(error)} "
            f"Replace it, or predict in Python.{_types_of_columns(X)}"
        ) from error
    # Of a plug-in, the label and the probabilities of the classifier inside come out as well.
    named = [output for output in graph.graph.output if output.name in ("sets", "scores")]
    del graph.graph.output[:]
    graph.graph.output.extend(named)
    _check_they_agree(graph, model, X)
    return graph


def _reasons(error):
    """Return what an error says, and what the first of its causes does; each may be long."""
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    return f"{error!s:.500}" if first is error else f"{error!s:.250}... ({first!s:.250})"


def _steps_inside(model):
    """Yield the fitted steps of Pipelines, of ColumnTransformers and of FeatureUnions."""
    # Slow to import; where it was not, nothing is of its classes.
    compose, parts = sys.modules.get("sklearn.compose"), ()
    if isinstance(model, Pipeline):
        parts = [step for _, step in model.steps]
    elif compose is not None and isinstance(model, compose.ColumnTransformer):
        parts = [step for _, step, _ in model.transformers_]
    elif isinstance(model, FeatureUnion):
        parts = [step for _, step in model.transformer_list]
    elif isinstance(model, PlugInClassifier):
        parts = [_active(model.estimator_)]
    for part in parts:
        yield part
        yield from _steps_inside(part)


def _splits_words(step):
    """Return whether a step takes words by a pattern."""
    return isinstance(step, CountVectorizer) and step.analyzer == "word" and step.tokenizer is None


def _onnx_pattern(pattern):
    """Return a pattern of words of Python as one of ONNX Runtime."""
    pattern = pattern.removeprefix("(?u)")  # as strings are, in Python
    words = WORDS.fullmatch(pattern)
    return pattern if words is None else words[1].replace(r"\w", ONNX_LETTER)


def check_samples(X):
    """Return samples as arrays and DataFrames of types that NumPy has; raise for what has no rows.

    Of its own types pandas may miss values: numbers, which skl2onnx does not know, become NumPy's.
    """
    if isinstance(X, Mapping):
        remedy = "leave it None for a network whose samples have several parts"
    elif hasattr(X, "toarray"):
        remedy = "give some rows as X[:100].toarray(), as the file takes dense ones"
    elif isinstance(X, str | bytes) or not hasattr(X, "__len__") or getattr(X, "ndim", 1) == 0:
        remedy = "give a list for texts"
    else:
        remedy = None
    if remedy is not None:
        got = f"{X!r:.60}" if isinstance(X, str | bytes) else f"a {type(X).__name__}"
        raise TypeError(f"X must be an array, list or DataFrame of samples, got {got}: {remedy}.")
    if not len(X):
        raise ValueError("X holds no sample: give some, which tell the types of the inputs.")
    if not hasattr(X, "iloc"):
        return X
    if not hasattr(X, "columns"):
        return X.to_numpy()
    nameless = [name for name in X.columns if not (isinstance(name, str) and name)]
    if nameless:
        raise ValueError(
            f"X has columns named {nameless[:5]}, where inputs of a graph are named "
            "by strings that are not empty: fit on columns with such names, or give X.to_numpy()."
        )
    kinds = {name: getattr(dtype, "numpy_dtype", None) for name, dtype in X.dtypes.items()}
    plain = {
        name: np.dtype(float) if kind.kind in "iu" and X[name].hasnans else kind
        for name, kind in kinds.items()
        if isinstance(kind, np.dtype) and kind.kind in "biuf"
    }
    return X.astype(plain)


def _one_sample(X):
    """Return a sample, of texts and other lists as the column that skl2onnx wants.

    Of the columns of a DataFrame it has the first values that are not missing, which tell more.
    """
    if not hasattr(X, "iloc"):
        return _as_columns(X[:1])
    return type(X)({name: _one_value(column) for name, column in X.items()})


def _one_value(column):
    known = column.dropna()
    value = (known if len(known) else column).iloc[:1].reset_index(drop=True)
    # pandas has arrays of strings of its own, which skl2onnx does not know.
    strings = value.dtype.kind == "O" and not hasattr(value.dtype, "categories")
    return value.astype(object) if strings else value


def _types_of_columns(X):
    """Return a sentence on the types of the columns of a DataFrame: one may be at fault."""
    if not hasattr(X, "iloc"):
        return ""
    named = [f"{name!r} {dtype}" for name, dtype in X.dtypes.items()]
    return f" The columns of X: {', '.join(named[:20])}{', ...' if len(named) > 20 else ''}."


def _as_columns(X):
    X = np.asarray(X)
    return X[:, None] if X.ndim == 1 else X


def _check_they_agree(graph, model, X):
    """Raise if an ONNX model gives other sets or scores than `model`; warn if it does not run."""
    try:
        import onnxruntime
    except ImportError:
        return  # not needed to write a file
    columns = [X[[name]].to_numpy() for name in X] if hasattr(X, "iloc") else [_as_columns(X)]
    # In order: skl2onnx makes identifiers of their names.
    names = [each.name for each in graph.graph.input]
    given = dict(zip(names, columns, strict=True))
    try:
        runtime = onnxruntime.InferenceSession(graph.SerializeToString())
    except Exception as error:
        if "tokenexp" in str(error):
            raise ValueError(_of_patterns(model, error)) from error
        warn_caller(
            f"ONNX Runtime cannot run the file here, and nothing was compared: {error}. A machine "
            "that has what is missing may, such as a locale: en_US is for lowercase=True. Single "
            "precision, X.astype('float32'), has more operators than double."
        )
        return
    try:
        sets, scores = runtime.run(["sets", "scores"], given)
    except Exception as error:
        raise ValueError(
            f"the ONNX graph of {type(model).__name__} does not run on X: {str(error).strip()}. "
            "skl2onnx writes some step in another way, as SimpleImputer(add_indicator=True); "
            f"{_remedy(model)}."
        ) from error
    # What is given are samples to compare, often of the training.
    with without_warnings("was expected"):
        expected = predict_set(model, X)
    for name, wrong in (
        ("sets than predict_set", (sets != expected).any(axis=1)),
        ("scores than its classifier", _are_others(scores, *unwrap(model, X))),
    ):
        if wrong.mean() > MOST_OTHERS:
            raise ValueError(
                f"the ONNX graph of {type(model).__name__} gives other {name} for {wrong.sum()} "
                f"of the {len(wrong)} samples in X: skl2onnx writes some step in another way, as "
                "a TfidfVectorizer with sublinear_tf=True or with letters beyond ASCII in a "
                "token_pattern of its own, or rounds scores at a threshold. Give more samples, "
                f"of which one in {round(1 / MOST_OTHERS)} may differ; {_remedy(model)}."
            )


def _of_patterns(model, error):
    """Return the message for patterns of words that ONNX Runtime cannot read."""
    patterns = " or ".join(
        f"token_pattern={step.token_pattern!r} of {type(step).__name__}"
        for step in filter(_splits_words, _steps_inside(_active(model)))
    )
    return (
        f"ONNX Runtime cannot read {patterns}: {str(error).strip()}. Fit with a pattern in the "
        r"syntax of RE2, which has no lookaround, such as r'[a-z0-9]+' or r'\b\w+\b'."
    )


def _are_others(scores, model, X):
    """Return which scores of samples are not those of the classifier."""
    expected, scale = _scores_and_scale(model, X)
    if scale == "log_proba":
        scores, expected = (np.maximum(part, LEAST_LOG_PROBA) for part in (scores, expected))
    near = np.abs(scores - expected) <= MOST_OFF * np.abs(expected).max()
    return ~near.all(axis=1)


def _scores_and_scale(model, X):
    """Return what the graph of a classifier gives beside the sets, and what it is."""
    if isinstance(model, PlugInClassifier):
        return model._scores_and_scale(model.estimator_, X)
    if isinstance(model, SparseTopClassifier):
        return model.decision_function(X), "decision"
    return model._predict_log_proba(X), "log_proba"


def _remedy(model):
    if isinstance(model, Pipeline):
        return (
            "export the last step by itself, as model[-1], and run the others in Python; or "
            "replace the step"
        )
    return (
        "wrap the classifier in sklearn.calibration.CalibratedClassifierCV, whose probabilities "
        "skl2onnx knows, or predict in Python"
    )

"""Pipelines and PlugInClassifier, and what is inside, as the document of a file and back."""

import numpy as np
import sklearn
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.pipeline import Pipeline

from .._warnings import warn_caller
from ..rules import RULES
from . import _steps
from ._allowed import NotAllowed, is_int
from ._container import pack
from ._deep import is_named
from ._describe import (
    ESTIMATORS,
    describe_estimator,
    describe_rule,
    describe_unfitted,
    plain,
    versions,
)
from ._json import DECODERS, DTYPES, Decoder, NotEncodable, encode
from ._plug_in import PlugInClassifier
from ._restore import DESCRIPTION_ERRORS, rebuild_estimator, rebuild_rule, rebuild_unfitted

ROOTS = (Pipeline, PlugInClassifier)
PARTS = {"left_out", "model", "versions"}
PLUG_IN_FITTED = {"classes_", "estimator_", "rule_"}
PLUG_IN_OPTIONAL = {"class_counts_", "feature_names_in_", "n_features_in_"}
#: What may be left out of a file, beside what estimators leave out.
LEFT_OUT = {*_steps.MACHINE_PARAMETERS, "cv", "metadata requests"}
MOST_STEPS = 1000
#: Types of arrays by their names.
TYPES = {*DTYPES, "|O"}
READ_WITH_SKOPS = (
    "and read it with trusted=[*sksetvalued.trusted_types(), ...], where ... are those of the "
    "types named by skops.io.get_untrusted_types(file=path) that you trust as well"
)
REMEDY = (
    f"write the model with skops.io.dump, {READ_WITH_SKOPS}; or use joblib.dump, whose files run "
    "code when loaded and must be trusted"
)


# -- writing --------------------------------------------------------------------------------


def dump_whole(model):
    """Return the bytes of a file of a fitted Pipeline or PlugInClassifier.

    Raises
    ------
    TypeError
        A step of a class that is not in the closed list.
    ValueError
        A step with a value that no file may set.
    """
    writer = _Writer()
    try:
        content = writer.encode(model, "model")
    except NotEncodable as error:
        raise ValueError(f"the file cannot hold {error}, without code; {REMEDY}.") from error
    document = {"left_out": sorted(writer.left_out), "model": content, "versions": versions()}
    data = pack(document, writer.tensors)
    here = {"compile": False, "device": "cpu", "net_params": {}}
    try:
        rebuild_whole(document, writer.tensors, here)
    except DESCRIPTION_ERRORS as error:
        raise ValueError(f"a file cannot hold this model: {error}; {REMEDY}.") from error
    return data


class _Writer:
    """Models as JSON; tensors of each part are kept under its number."""

    def __init__(self):
        self.tensors = {}
        self.left_out = set()
        self.n_parts = 0

    def encode(self, value, name):
        return encode(value, self.tensors, name, self.other)

    def other(self, value, name):
        """Return the JSON of what only models hold."""
        cls = type(value)
        if cls is slice:
            return {"slice": self.encode([value.start, value.stop, value.step], name)}
        if isinstance(value, np.dtype) and value.str in TYPES:
            return {"dtype": value.str}
        if isinstance(value, type) and issubclass(value, np.number | np.bool_):
            return {"type": np.dtype(value).str}
        if cls is RULES.get(cls.__name__):
            return {"rule": self._part(describe_rule, value)}
        if cls is ESTIMATORS.get(cls.__name__, (None,))[0]:
            if hasattr(value, "net_"):
                return {"estimator": self._part(describe_estimator, value)}
            return {"unfitted": self._part(describe_unfitted, value)}
        if cls is PlugInClassifier:
            return {"plug-in": self._plug_in(value, name)}
        return self._step(value, name)

    def _part(self, describe, value):
        own, number = {}, str(self.n_parts)
        self.n_parts += 1
        document = describe(value, own)
        self.tensors |= {f"{number}.{key}": tensor for key, tensor in own.items()}
        return {"number": number, "document": document}

    def _step(self, value, name):
        cls = type(value).__name__
        if not hasattr(value, "get_params"):
            raise NotEncodable(f"{value!r:.200} of type {cls}, {name}")
        if cls not in _steps.STEPS or _steps.STEPS[cls].cls is not type(value):
            raise TypeError(
                f"{name} is a {cls}, but a file of save holds only {sorted(_steps.STEPS)}, rules "
                f"and estimators of sksetvalued: {REMEDY}."
            )
        params, fitted, left_out = _steps.state_of(value)
        self.left_out |= left_out
        return {"step": {"class": cls, **self._state(params, fitted, name)}}

    def _plug_in(self, value, name):
        params = value.get_params(deep=False)
        fitted = {k: v for k, v in vars(value).items() if k not in params}
        if fitted.pop("_metadata_request", None) is not None:
            self.left_out.add("metadata requests")
        if fitted.get("estimator_") is value.estimator:
            del params["estimator"]
        if params.pop("n_jobs") is not None:
            self.left_out.add("n_jobs")
        params["cv"] = plain(value.cv)
        if not _is_cv(params["cv"]):
            self.left_out.add("cv")
            params["cv"] = None
        return self._state(params, fitted, name)

    def _state(self, params, fitted, name):
        return {"params": self.encode(params, name), "fitted": self.encode(fitted, name)}


def _is_cv(value):
    share = isinstance(value, float) and 0 < value < 1
    return value is None or share or is_int(value) or is_named(value, "prefit")


# -- reading --------------------------------------------------------------------------------


def rebuild_whole(document, tensors, here):
    """Return the model of a file of one estimator, a Pipeline or a PlugInClassifier.

    Arguments and what is returned are those of :func:`rebuild_estimator`.
    """
    if document.keys() != PARTS:
        return rebuild_estimator(document, tensors, here)
    reader = _Reader(tensors, here)
    model = reader(document["model"])
    if type(model) not in ROOTS:
        raise ValueError(f"it holds a {type(model).__name__} by itself")
    left_out = set(document["left_out"])
    if not left_out <= LEFT_OUT:
        raise ValueError(f"it leaves out {sorted(left_out)[:5]}")
    _warn_of_versions(document["versions"])
    return model, left_out | reader.left_out


def _warn_of_versions(written):
    version = written.get("sklearn")
    if version != sklearn.__version__:
        warning = InconsistentVersionWarning(
            estimator_name="Pipeline",
            current_sklearn_version=sklearn.__version__,
            original_sklearn_version=f"{version:.20}",
        )
        warn_caller(warning)


class _Reader(Decoder):
    """The models that :class:`_Writer` wrote."""

    def __init__(self, tensors, here):
        super().__init__(tensors)
        self.data = Decoder(tensors, self.budget)
        self.data.kinds = _DATA_DECODERS
        self.kinds = _MODEL_DECODERS
        self.here = here
        self.left_out = set()
        self.n_steps = 0
        self.of_parts = {}
        for name, tensor in tensors.items():
            number, _, rest = name.partition(".")
            self.of_parts.setdefault(number, {})[rest] = tensor

    def _slice(self, content):
        bounds = self(content)
        if len(bounds) != 3 or any(isinstance(bound, list) for bound in bounds):
            raise ValueError("a malformed slice")
        return slice(*bounds)

    def _dtype(self, content):
        if content not in TYPES:
            raise ValueError(f"an unknown dtype {str(content)[:20]!r}")
        return np.dtype(content)

    def _type(self, content):
        if content not in DTYPES:
            raise ValueError(f"an unknown type {str(content)[:20]!r}")
        return np.dtype(content).type

    def _rule(self, content):
        document, tensors = self._part(content)
        name = document["rule"] if isinstance(document, dict) else None
        if name not in RULES:
            raise ValueError(f"an unknown rule {str(name)[:50]!r}")
        return rebuild_rule(RULES[name], document, Decoder(tensors, self.budget))

    def _estimator(self, content):
        model, left_out = rebuild_estimator(*self._part(content), self.here, self.budget)
        self.left_out |= left_out
        return model

    def _unfitted(self, content):
        model, left_out = rebuild_unfitted(*self._part(content), self.here, self.budget)
        self.left_out |= left_out
        return model

    def _part(self, content):
        if content.keys() != {"document", "number"}:
            raise ValueError("a malformed part")
        self._count()
        # Its tensors are those of one model, each of which has memory of its own.
        return content["document"], self.of_parts.pop(content["number"], {})

    def _count(self):
        self.n_steps += 1
        if self.n_steps > MOST_STEPS:
            raise ValueError(f"more than {MOST_STEPS} steps")

    def _step(self, content):
        name = content["class"]
        if content.keys() != {"class", "fitted", "params"} or name not in _steps.STEPS:
            raise ValueError(f"an unknown step {str(name)[:50]!r}")
        self._count()
        decode = self if _steps.STEPS[name].holds_steps else self.data
        params, fitted = decode(content["params"]), decode(content["fitted"])
        return _steps.built(name, params, fitted)

    def _plug_in(self, content):
        if content.keys() != {"fitted", "params"}:
            raise ValueError("a malformed PlugInClassifier")
        params, fitted = self(content["params"]), self(content["fitted"])
        if fitted and not PLUG_IN_FITTED <= fitted.keys() <= PLUG_IN_FITTED | PLUG_IN_OPTIONAL:
            raise NotAllowed(f"no file may set {sorted(fitted)} of PlugInClassifier")
        if "n_jobs" in params:
            raise NotAllowed("no file may set n_jobs")
        if not _is_cv(params["cv"]):
            raise NotAllowed(f"no file may set cv to {params['cv']!r:.50}")
        model = PlugInClassifier(**{"estimator": fitted.get("estimator_"), **params})
        vars(model).update(fitted)
        if fitted and model.rule_.n_classes_ != len(model.classes_):
            raise NotAllowed(
                f"its rule is of {model.rule_.n_classes_} classes, not of {len(model.classes_)}"
            )
        return model


def _matrix(decode, content):
    array = decode._array(content)
    if array.ndim > 2:
        raise ValueError(f"a step with an array of {array.ndim} dimensions")
    return array


_DATA_DECODERS = {
    **{k: v for k, v in DECODERS.items() if k not in ("optimizer", "tensor", "transform")},
    "array": _matrix,
    "dtype": _Reader._dtype,
    "slice": _Reader._slice,
    "type": _Reader._type,
}
_MODEL_DECODERS = {
    **_DATA_DECODERS,
    "estimator": _Reader._estimator,
    "plug-in": _Reader._plug_in,
    "rule": _Reader._rule,
    "step": _Reader._step,
    "unfitted": _Reader._unfitted,
}

"""Saving and loading fitted estimators without running code."""

import copy
import os
import warnings
from types import SimpleNamespace

import numpy as np
import sklearn
import torch
from sklearn.utils.validation import check_is_fitted
from skorch.history import History

from .. import training
from .._version import __version__
from ..networks._rebuild import rebuild_network
from ..networks._torchvision import named_weights
from ..rules import AverageK, TopK
from . import _allowed
from ._average_k import AverageKClassifier
from ._container import pack, unpack
from ._deep import bare_module
from ._json import Decoder, NotEncodable, encode
from ._sparse_top import SparseTopClassifier
from ._top_k import TopKClassifier

NETWORK = "network."
#: What is made anew when a file is loaded.
REBUILT = {"net_", "rule_", "history_", "device_", "_network_params"}
#: The estimators that can be saved, and the rules that they may hold.
ESTIMATORS = {
    cls.__name__: (cls, rule)
    for cls, rule in {
        TopKClassifier: TopK,
        AverageKClassifier: AverageK,
        SparseTopClassifier: AverageK,
    }.items()
}
#: Fitted attributes that an estimator may lack.
OPTIONAL = {"feature_names_in_", "n_features_in_", "_image_range"}
OF_LABEL_SETS = {"average_size_", "largest_size_", "_form", "_seen", "_shift_invariant"}
#: What a document holds.
PARTS = {
    *("estimator", "fitted", "format", "history", "left_out", "network", "params", "rule"),
    "versions",
}
#: What can be wrong with a description that is well formed.
OF_DESCRIPTIONS = (
    *(ValueError, TypeError, KeyError, AttributeError, IndexError, RuntimeError),
    *(RecursionError, MemoryError, ArithmeticError, NotImplementedError),
)

ALTERNATIVE = "or use joblib.dump, whose files run code when loaded and must be trusted"
REMEDIES = {
    "backbone": (
        "keep the weights, safetensors.torch.save_file(model.net_.module_.state_dict(), path), "
        f"and build the model from your own code; {ALTERNATIVE}"
    ),
    "transform": (
        "save copy.copy(model).set_params(transform=None), and after loading call "
        f"set_params(transform=...) again; {ALTERNATIVE}"
    ),
    "loss": f"give the loss by its name and its arguments in loss_params; {ALTERNATIVE}",
}


def save(model, path):
    """Write a fitted estimator to a file that cannot run code when it is loaded.

    The tensors are stored as safetensors, all else as JSON in the header of the same file, with
    a checksum of both. The checksum finds damage, not forgery: a file says nothing about who
    wrote it. How your machine runs (`device`, `compile`, `callbacks`, most of `net_params`, the
    path in `weights`) is not stored. Nor is the state of the optimizer; training may go on, from
    its beginning. Where parameters were changed since the fit, the network and the threshold
    stored are those that were fitted.

    Parameters
    ----------
    model : TopKClassifier, AverageKClassifier or SparseTopClassifier
        Fitted. For a search, save its ``best_estimator_``.
    path : path-like
        Written whole or not at all.

    Raises
    ------
    TypeError
        An estimator of another class.
    FileNotFoundError
        The folder of `path` does not exist.
    ValueError
        A parameter that is code, such as a module of your own, or one of the loss that was
        changed since the fit and would change the scores; the message says what to do.

    See Also
    --------
    load : Read the file.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from sksetvalued import TopKClassifier, load, save
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = TopKClassifier(k=2, max_epochs=1).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(clf, os.path.join(folder, "clf.safetensors"))
    ...     loaded = load(os.path.join(folder, "clf.safetensors"))
    >>> np.array_equal(clf.predict_set(X), loaded.predict_set(X))
    True
    """
    if type(model) is not ESTIMATORS.get(type(model).__name__, (None,))[0]:
        raise TypeError(
            f"save writes fitted estimators of {sorted(ESTIMATORS)}, got {type(model).__name__}. "
            "Save the `best_estimator_` of a search and the last step of a Pipeline by "
            "themselves; use joblib or skops for estimators of scikit-learn, and for those that "
            "hold one."
        )
    check_is_fitted(model)
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"there is no folder {folder!r}, where {os.fspath(path)!r} was to be written; make it "
            "first."
        )
    data = dump(model)
    partial = f"{os.fspath(path)}.part{os.getpid()}"
    try:
        with open(partial, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def load(path, *, device=None, compile=False, net_params=None):
    """Read a fitted estimator written by :func:`save`. No code in the file is run.

    A file says what a model is and how it was trained. How it runs here is for you to say; a
    warning names what was set in training and is not restored.

    Parameters
    ----------
    path : path-like
    device : str, torch.device or None, default=None
        The parameter `device` of the estimator; None is its default.
    compile : bool, default=False
        The parameter `compile` of the estimator.
    net_params : dict, optional
        Added to the parameter `net_params`, of which a file sets only numbers for the optimizer.

    Returns
    -------
    model : TopKClassifier, AverageKClassifier or SparseTopClassifier

    Raises
    ------
    FileNotFoundError
    ValueError
        A file of another kind, of another version, truncated, changed, or that says more than
        a file may; or a `device` that is not here.

    Warns
    -----
    UserWarning
        If the estimator was trained with callbacks, `compile`, weights from a file or other
        `net_params`, which are not restored.

    See Also
    --------
    save : Write the file; has an example.

    Examples
    --------
    >>> from sksetvalued import load
    >>> load("elsewhere.safetensors")
    Traceback (most recent call last):
        ...
    FileNotFoundError: there is no file 'elsewhere.safetensors'.
    """
    name = repr(os.fspath(path))
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no file {name}.")
    here = {"compile": compile, "net_params": training.check_net_params(net_params)}
    here["device"] = "auto" if device is None else device
    training.resolve_device(here["device"])
    with open(path, "rb") as file:
        data = file.read()
    return restore(data, name, here)


# -- writing --------------------------------------------------------------------------------


def dump(model):
    """Return the bytes of a file of a fitted estimator."""
    _check_loss(copy.copy(model))
    tensors = {}
    return pack(_describe(model, tensors), tensors)


def _check_loss(model):
    """Raise if the loss was changed since `fit` to one that the network is not for.

    A loss is made anew when a file is loaded, and may choose or multiply what the network gives.
    """
    criterion = model._criterion(1, torch.Generator())
    model._check_head(bare_module(model.net_), criterion)
    output = torch.arange(1.0, 1 + model._n_outputs, device=model.net_.device)[None]
    output = (output, -output) if criterion.head == "two_head" else output
    if not torch.equal(criterion.scores(output), model.net_.criterion_.scores(output)):
        raise ValueError(
            f"loss={model.loss!r} with loss_params={model.loss_params!r} and the other parameters "
            "of the loss would give other scores than the loss that the network was trained "
            "with: set them back to what they were in `fit`, or fit again, before saving."
        )


def _describe(model, tensors):
    """Return the document of a file, and put the tensors into `tensors`."""
    module = bare_module(model.net_)
    tensors.update({NETWORK + name: t for name, t in module.state_dict().items()})
    params, left_out = _of_the_model(model.get_params(deep=False))
    network = _of_the_network(model._network_params)
    fitted = {
        k: v for k, v in vars(model).items() if k not in model.get_params() and k not in REBUILT
    }
    return {
        "versions": _versions(),
        "estimator": type(model).__name__,
        "params": _encode_params("params", params, tensors),
        "left_out": left_out,
        "network": _encode_params("network", network, tensors),
        "fitted": _encode_fitted("fitted", fitted, _allowed.FITTED, tensors),
        "rule": _describe_rule(model, tensors),
        "history": _encode_fitted(
            "history", {"rows": list(model.history_)}, {"rows": _allowed.is_history}, tensors
        ),
    }


def _of_the_model(params):
    """Return the parameters that a file may hold, and the names of those left out."""
    kept = {k: v for k, v in params.items() if k not in _allowed.OF_THE_MACHINE}
    left_out = [name for name in ("callbacks", "compile") if params[name]]
    if isinstance(kept["optimizer"], str | type):
        net_params = _allowed.of_the_optimizer(kept["optimizer"], kept["net_params"])
        if net_params.keys() != (kept["net_params"] or {}).keys():
            left_out.append("net_params")
        kept["net_params"] = net_params or None
    if not _allowed.PARAMS["weights"](kept["weights"]):
        left_out.append("weights")
        kept["weights"] = None
    return kept, left_out


def _of_the_network(params):
    """Return the description of the network, with what torchvision set for its weights."""
    backbone, weights = params["backbone"], params["weights"]
    own = dict(params["backbone_params"] or {})
    if backbone in ("googlenet", "inception_v3") and named_weights(backbone, weights):
        own.setdefault("transform_input", True)
    return {"backbone": backbone, "backbone_params": own or None}


def _describe_rule(model, tensors):
    rule = getattr(model, "rule_", None)
    if rule is None:
        return None
    params = rule.get_params(deep=False)
    fitted = {k: v for k, v in vars(rule).items() if k not in params}
    return {
        "rule": type(rule).__name__,
        "params": _encode_fitted(
            "rule", params, dict.fromkeys(params, _allowed.is_plain), tensors
        ),
        "fitted": _encode_fitted("rule", fitted, _allowed.RULE, tensors),
    }


def _versions():
    versions = {"sksetvalued": __version__, "torch": torch.__version__}
    return versions | {"numpy": np.__version__, "sklearn": sklearn.__version__}


def _encode_params(group, params, tensors):
    return {k: _encode_param(group, k, v, tensors) for k, v in params.items()}


def _encode_param(group, name, value, tensors):
    remedy = REMEDIES.get(
        name,
        f"prediction does not need it: save copy.copy(model).set_params({name}=...) with "
        f"another value, such as the default; {ALTERNATIVE}",
    )
    try:
        return _encode("the parameter", f"{group}.", {name: value}, _allowed.PARAMS, tensors)[name]
    except NotEncodable as error:
        raise ValueError(
            f"{name} cannot be written without code, it holds {error}: {remedy}."
        ) from error
    except _allowed.NotAllowed as error:
        raise ValueError(f"{name} cannot be written, as {error}: {remedy}.") from error


def _encode_fitted(group, values, known, tensors):
    try:
        return _encode("the attribute", f"{group}.", values, known, tensors)
    except (NotEncodable, _allowed.NotAllowed) as error:
        raise ValueError(
            f"a fitted attribute ({group}) cannot be written without code, it holds {error}: "
            f"labels must be strings or numbers; {ALTERNATIVE}."
        ) from error


def _encode(what, prefix, values, known, tensors):
    """Return values as JSON, once they are known to be such that a file may set them."""
    encoded = {k: encode(v, tensors, f"{prefix}{k}") for k, v in values.items()}
    decode = Decoder(tensors)
    _allowed.check(what, {k: decode(v) for k, v in encoded.items()}, known)
    return encoded


# -- reading --------------------------------------------------------------------------------


def restore(data, name, here):
    """Return the estimator that the bytes of a file describe.

    Parameters
    ----------
    data : bytes
    name : str
        What is read, for messages.
    here : dict
        The parameters `device`, `compile` and `net_params`.
    """
    try:
        document, tensors = unpack(data)
    except ValueError as error:
        raise ValueError(f"{name} {error}.") from error
    try:
        model = _rebuild(document, tensors, here)
        left_out = _left_out(document, here)
    except OF_DESCRIPTIONS as error:
        raise ValueError(
            f"{name} does not describe an estimator that this version can build: "
            f"{type(error).__name__ if not str(error) else error}."
        ) from error
    if left_out:
        warnings.warn(
            f"{', '.join(left_out)} of the training are not restored from {name}: they concern "
            "the machine or hold code. Give them to load, or use set_params, to train further.",
            UserWarning,
            stacklevel=3,
        )
    return model


def _left_out(document, here):
    """Return the names of the parameters that are set neither by the file nor by the reader."""
    names = set(document["left_out"])
    if not names <= {"callbacks", "compile", "net_params", "weights"}:
        raise ValueError(f"it leaves out {sorted(names)[:5]}")
    return sorted(name for name in names if not here.get(name))


def _rebuild(document, tensors, here):
    """Return the estimator that a document describes."""
    if document.keys() != PARTS:
        raise ValueError(f"its parts are {sorted(document)}")
    if document["estimator"] not in ESTIMATORS:
        raise ValueError(f"its estimator {document['estimator']!r:.50} is unknown")
    cls, rule = ESTIMATORS[document["estimator"]]
    decode = Decoder(tensors)
    model = cls(**_params(document["params"], set(cls._get_param_names()), decode, here))
    vars(model).update(_decoded("the attribute", document["fitted"], decode, _allowed.FITTED))
    network = _decoded("the parameter", document["network"], decode, _allowed.NETWORK)
    if network.keys() != _allowed.NETWORK.keys():
        raise ValueError(f"its network has the parts {sorted(network)}")
    model._network_params = {**network, "weights": None}
    if document["rule"] is not None:
        model.rule_ = _rebuild_rule(rule, document["rule"], decode)
    _check_agreement(model)
    model.device_ = training.resolve_device(model.device)
    model.net_ = _rebuild_net(model, tensors)
    known = {"rows": _allowed.is_history}
    history = _decoded("the history", document["history"], decode, known)
    model.history_ = model.net_.history = History(history["rows"])
    return model


def _decoded(what, values, decode, known):
    values = {k: decode(v) for k, v in values.items()}
    _allowed.check(what, values, known)
    return values


def _params(params, names, decode, here):
    """Return the parameters of the file, with those of the reader."""
    params = _decoded("the parameter", params, decode, _allowed.PARAMS)
    if params.keys() | set(_allowed.OF_THE_MACHINE) != names:
        raise ValueError(f"it has the parameters {sorted(params)}")
    own = params["net_params"] or {}
    if own.keys() != _allowed.of_the_optimizer(params["optimizer"], own).keys():
        raise ValueError(f"no file may set net_params to {own!r:.100}")
    params["net_params"] = {**own, **here["net_params"]} or None
    return {**params, "compile": here["compile"], "device": here["device"]}


def _rebuild_rule(cls, document, decode):
    """Return the rule as it was fitted; the parameters of the model may have changed since."""
    if document.keys() != {"fitted", "params", "rule"}:
        raise ValueError(f"its rule has the parts {sorted(document)}")
    if document["rule"] != cls.__name__:
        raise ValueError(f"its rule is {document['rule']!r:.50} instead of {cls.__name__}")
    known = dict.fromkeys(cls._get_param_names(), _allowed.is_plain)
    rule = cls(**_decoded("the parameter", document["params"], decode, known))
    fitted = _decoded("the attribute", document["fitted"], decode, _allowed.RULE)
    expected = vars(cls(1).fit(np.zeros((1, 2)))).keys() - known.keys()
    if fitted.keys() != expected:
        raise ValueError(f"its rule has the attributes {sorted(fitted)}")
    vars(rule).update(fitted)
    if hasattr(rule, "_threshold") and rule._threshold is None and not rule._every_class:
        raise ValueError("its rule has no threshold")
    return rule


def _check_agreement(model):
    """Raise unless the attributes of an estimator are all there and of the same classes."""
    wanted = _allowed.FITTED.keys() - OPTIONAL
    wanted -= set() if isinstance(model, SparseTopClassifier) else OF_LABEL_SETS
    names = vars(model).keys() & _allowed.FITTED.keys()
    if not wanted <= names <= wanted | OPTIONAL:
        raise ValueError(f"it has the attributes {sorted(names)}")
    rule = getattr(model, "rule_", None)
    if rule is None and not isinstance(model, SparseTopClassifier):
        raise ValueError("it has no rule")
    n_classes = len(model.classes_)
    lengths = [n_classes, len(model.class_counts_)]
    lengths += [len(v) for v in [model._log_class_weight] if v is not None]
    lengths += [] if rule is None else [rule.n_classes_]
    lengths += [] if rule is None or rule.prior_ is None else [len(rule.prior_)]
    if len(set(lengths)) > 1 or n_classes < 2:
        raise ValueError(f"its parts are of {lengths} classes")
    _check_inputs_agree(model)


def _check_inputs_agree(model):
    shape = model.input_shape_
    if model.input_kind_ == "table":
        names = getattr(model, "feature_names_in_", None)
        if shape != (model.n_features_in_,) or (names is not None and names.shape != shape):
            raise ValueError(f"its samples have the shape {shape}, unlike their names")
    if model.input_kind_ == "image" and (len(shape) != 3 or not hasattr(model, "_image_range")):
        raise ValueError(f"its images have the shape {shape}")


def _rebuild_net(model, tensors):
    """Return the trained net, with a new optimizer."""
    # The positions of the training samples, which some losses keep, are of no use any more.
    generator = torch.Generator().manual_seed(0)
    criterion = model._criterion(1, generator)
    state = {k.removeprefix(NETWORK): t for k, t in tensors.items() if k.startswith(NETWORK)}
    module = rebuild_network(
        model._network_params["backbone"],
        model._network_params["backbone_params"],
        model.input_shape_,
        model._n_outputs,
        criterion.head,
        state,
        generator,
    )
    if len(model.input_shape_) == 3:
        module = module.to(memory_format=torch.channels_last)
    in_memory = SimpleNamespace(in_memory=model.input_kind_ in ("table", "image"))
    options = model._options("partial_fit")
    return training.make_net(module, criterion, in_memory, None, 1, options)

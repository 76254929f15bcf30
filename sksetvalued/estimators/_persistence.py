"""Saving and loading fitted estimators without running code."""

import copy
import hashlib
import json
import os
import re
from types import SimpleNamespace

import numpy as np
import sklearn
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from sklearn.utils.validation import check_is_fitted
from skorch.history import History

from .. import training
from .._version import __version__
from ..networks import ChannelStatistics, ColumnStatistics, build_network
from ..networks._torchvision import named_weights
from ..rules import AverageK, TopK
from ._average_k import AverageKClassifier
from ._deep import bare_module
from ._json import NotEncodable, decode, encode
from ._sparse_top import SparseTopClassifier
from ._top_k import TopKClassifier

#: Raised by one whenever a file can no longer be read by earlier versions.
FORMAT = 1
NETWORK = "network."
#: What is made anew when a file is loaded.
REBUILT = {"net_", "rule_", "history_", "device_", "_network_params"}
ATTRIBUTE = re.compile(r"_?[a-z][a-z0-9_]*")

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


def _estimators():
    """Return the classes that can be saved, by name."""
    return {cls.__name__: cls for cls in (TopKClassifier, AverageKClassifier, SparseTopClassifier)}


def save(model, path):
    """Write a fitted estimator to a file that cannot run code when it is loaded.

    The tensors are stored as safetensors, all else as JSON in the header of the same file, with
    a checksum of both. The checksum finds damage, not forgery: a file says nothing about who
    wrote it. The state of the optimizer is not stored; training may go on, from its beginning.
    Where parameters were changed since the fit, the network and the threshold stored are those
    that were fitted.

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
    known = _estimators()
    if type(model) is not known.get(type(model).__name__):
        raise TypeError(
            f"save writes fitted estimators of {sorted(known)}, got {type(model).__name__}. Save "
            "the `best_estimator_` of a search and the last step of a Pipeline by themselves; use "
            "joblib or skops for estimators of scikit-learn, and for those that hold one."
        )
    check_is_fitted(model)
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"there is no folder {folder!r}, where {os.fspath(path)!r} was to be written; make it "
            "first."
        )
    _check_parameters(copy.copy(model))
    tensors = {}
    content = json.dumps(_describe(model, tensors), allow_nan=False, sort_keys=True)
    tensors = {k: t.detach().cpu().contiguous().clone() for k, t in tensors.items()}
    header = {"sksetvalued": content, "sha256": _checksum(content, tensors)}
    partial = f"{os.fspath(path)}.part{os.getpid()}"
    try:
        save_file(tensors, partial, metadata=header)
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def _check_parameters(model):
    """Raise if the loss was changed since `fit` to one that the network is not for.

    A loss is made anew when a file is loaded, and may choose or multiply what the network gives.
    """
    with training.seeded(0):
        criterion = model._criterion(1)
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
    """Return the document of the header, and put the tensors into `tensors`."""
    module = bare_module(model.net_)
    tensors.update({NETWORK + name: t for name, t in module.state_dict().items()})
    params = model.get_params(deep=False)
    fitted = {k: v for k, v in vars(model).items() if k not in params and k not in REBUILT}
    rule = vars(model.rule_) if hasattr(model, "rule_") else None
    return {
        "format": FORMAT,
        "versions": _versions(),
        "estimator": type(model).__name__,
        "params": _encode_params("params", params, tensors),
        "network": _encode_params("network", model._network_params, tensors),
        "fitted": _encode_fitted("fitted", fitted, tensors),
        "rule": None if rule is None else _encode_fitted("rule", rule, tensors),
        "history": _encode_fitted("history", {"rows": list(model.history_)}, tensors),
    }


def _versions():
    versions = {"sksetvalued": __version__, "torch": torch.__version__}
    return versions | {"numpy": np.__version__, "sklearn": sklearn.__version__}


def _encode_params(group, params, tensors):
    return {k: _encode_param(group, k, v, tensors) for k, v in params.items()}


def _encode_param(group, name, value, tensors):
    try:
        return encode(value, tensors, f"{group}.{name}")
    except NotEncodable as error:
        remedy = REMEDIES.get(
            name,
            f"prediction does not need it: save copy.copy(model).set_params({name}=...) with "
            f"another value, such as the default; {ALTERNATIVE}",
        )
        raise ValueError(
            f"{name} cannot be written without code, it holds {error}: {remedy}."
        ) from error


def _encode_fitted(group, values, tensors):
    try:
        return {k: encode(v, tensors, f"{group}.{k}") for k, v in values.items()}
    except NotEncodable as error:
        raise ValueError(
            f"a fitted attribute ({group}) cannot be written without code, it holds {error}: "
            f"labels must be strings or numbers; {ALTERNATIVE}."
        ) from error


def _checksum(content, tensors):
    digest = hashlib.sha256(content.encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def load(path):
    """Read a fitted estimator written by :func:`save`. No code in the file is run.

    The network goes to the device of the parameter `device` where that exists, else to the CPU.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    model : TopKClassifier, AverageKClassifier or SparseTopClassifier

    Raises
    ------
    FileNotFoundError
    ValueError
        A file of another kind, of a newer version, truncated or changed.

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
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no file {os.fspath(path)!r}.")
    header, tensors = _read(path)
    document = _checked_document(path, header, tensors)
    try:
        # Initial weights are drawn, to be replaced.
        with training.seeded(0):
            return _rebuild(document, tensors)
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise ValueError(
            f"{os.fspath(path)!r} does not describe an estimator that this version can build: "
            f"{error}."
        ) from error


def _read(path):
    try:
        with safe_open(path, framework="pt") as file:
            names = file.keys()
            return file.metadata() or {}, {name: file.get_tensor(name) for name in names}
    except (SafetensorError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{os.fspath(path)!r} is not a complete file of sksetvalued.save: {error}."
        ) from error


def _checked_document(path, header, tensors):
    """Return the JSON document, once the format is known and the checksum agrees."""
    name = os.fspath(path)
    try:
        document = json.loads(header["sksetvalued"])
        version = document["format"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name!r} was not written by sksetvalued.save.") from error
    if not isinstance(version, int) or version > FORMAT:
        writer = document.get("versions", {}).get("sksetvalued")
        raise ValueError(
            f"{name!r} has format {version!r}, written by sksetvalued {writer}; this version "
            f"reads formats up to {FORMAT}: update sksetvalued."
        )
    if header.get("sha256") != _checksum(header["sksetvalued"], tensors):
        raise ValueError(
            f"{name!r} is damaged or was changed since it was written: its checksum does not "
            "agree. Save the model again."
        )
    return document


def _rebuild(document, tensors):
    """Return the estimator that a document describes."""
    known = _estimators()
    if document["estimator"] not in known:
        raise ValueError(f"its estimator {document['estimator']!r} is unknown")
    cls = known[document["estimator"]]
    model = cls(**{k: decode(v, tensors) for k, v in document["params"].items()})
    for name, value in document["fitted"].items():
        if not ATTRIBUTE.fullmatch(name) or hasattr(cls, name):
            raise ValueError(f"it has a fitted attribute {name!r}")
        setattr(model, name, decode(value, tensors))
    model.device_ = _device(model.device)
    model._network_params = {k: decode(v, tensors) for k, v in document["network"].items()}
    if document["rule"] is not None:
        model.rule_ = _rebuild_rule(document["rule"], tensors)
    model.net_ = _rebuild_net(model, tensors)
    history = History(decode(document["history"]["rows"], tensors))
    model.history_ = model.net_.history = history
    return model


def _device(device):
    try:
        return training.resolve_device(device)
    except ValueError:
        return "cpu"


def _rebuild_rule(state, tensors):
    """Return the rule as it was fitted; the parameters of the model may have changed since."""
    for rule in (TopK(1), AverageK(1)):
        if vars(rule.fit(np.zeros((1, 2)))).keys() == state.keys():
            vars(rule).update({k: decode(v, tensors) for k, v in state.items()})
            return rule
    raise ValueError(f"its rule has the attributes {sorted(state)}")


def _rebuild_net(model, tensors):
    """Return the trained net, with a new optimizer."""
    # The positions of the training samples, which some losses keep, are of no use any more.
    criterion = model._criterion(1)
    state = {k.removeprefix(NETWORK): t for k, t in tensors.items() if k.startswith(NETWORK)}
    module = build_network(
        model._network_params["backbone"],
        _backbone_params(**model._network_params),
        None,
        model.input_shape_,
        model._n_outputs,
        criterion.head,
        normalization=_statistics(state),
    )
    module.load_state_dict(state)
    if len(model.input_shape_) == 3:
        module = module.to(memory_format=torch.channels_last)
    in_memory = SimpleNamespace(in_memory=model.input_kind_ in ("table", "image"))
    return training.make_net(module, criterion, in_memory, None, 1, model._options())


def _backbone_params(backbone, backbone_params, weights):
    params = dict(backbone_params or {})
    # torchvision sets it together with the weights, which are in the file already.
    may_be_named = backbone in ("googlenet", "inception_v3") and isinstance(weights, str)
    if may_be_named and not os.path.isfile(weights) and named_weights(backbone, weights):
        params.setdefault("transform_input", True)
    return params


def _statistics(state):
    if "normalize.scale" in state:
        return ColumnStatistics(state["normalize.mean"], state["normalize.scale"])
    if "normalize.mean" not in state:
        return None
    mean, std = (state[f"normalize.{name}"].flatten().tolist() for name in ("mean", "std"))
    return ChannelStatistics(tuple(mean), tuple(std))

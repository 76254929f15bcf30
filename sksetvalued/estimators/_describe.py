"""What a file says of a fitted estimator."""

import copy

import numpy as np
import sklearn
import torch

from .. import training
from .._arrays import on_the_processor
from .._randomness import generator_states
from .._version import __version__
from .._warnings import warn_caller
from ..networks._sources import source_of
from . import _allowed
from ._container import pack
from ._json import Decoder, NotEncodable, encode

NETWORK = "network."
#: What is made anew when a file is loaded.
REBUILT = {
    "net_",
    "rule_",
    "history_",
    "device_",
    "_metadata_request",
    "_network_params",
    "_asked",
}
#: The estimators that can be saved, and the rules that they may hold, by name.
ESTIMATORS = {}

JOBLIB = "use joblib.dump, whose files run code when loaded and must be trusted"
ALTERNATIVE = f"or {JOBLIB}"
REMEDIES = {
    "backbone": (
        "write network and rule without code, to predict only, by "
        f"sksetvalued.export(model, 'model.pt2'); {ALTERNATIVE}"
    ),
    "transform": (
        "save copy.copy(model).set_params(transform=None), and after loading call "
        f"set_params(transform=...) again; {ALTERNATIVE}"
    ),
    "loss": f"give the loss by its name and its arguments in loss_params; {ALTERNATIVE}",
}


def dump(model):
    """Return the bytes of a file of a fitted estimator."""
    tensors = {}
    return pack(describe_estimator(model, tensors), tensors)


def _check_loss(model):
    """Raise if a loss that is made anew is not for the network, or would give other scores.

    So a file is loaded. A loss may choose or multiply what the network gives, by what it has
    learned, too, and its parameters may have been set anew since `fit`.

    Returns
    -------
    learned : list of str
        Parameters and buffers that a training would go on with, and that no file holds.
    """
    trained, device = model.net_.bare_criterion, model.net_.device
    with on_the_processor():
        criterion = model._criterion(1, torch.Generator()).to(device)
    model._check_head(model.net_.bare_module, criterion)
    output = torch.arange(1.0, 1 + model._n_outputs, device=device)[None]
    output = (output, -output) if criterion.head == "two_head" else output
    scores = [loss.scores(output) for loss in (criterion, trained)]
    before = {name: value.clone() for name, value in _contents(criterion)}
    training.take_learned(criterion, trained)
    after = _contents(criterion)
    learned = sorted(name for name, value in after if not torch.equal(value, before[name]))
    # What scores of label sets mean is told by the loss.
    alike = not hasattr(model, "_ranked_by") or _class(criterion) is _class(trained)
    if alike and torch.equal(*scores):
        return learned
    if learned and torch.equal(criterion.scores(output), scores[1]):
        raise ValueError(
            f"loss={model.loss!r} has learned {learned}, which its scores need and which no file "
            f"of save holds: {JOBLIB}."
        )
    raise ValueError(
        f"loss={model.loss!r} with loss_params={model.loss_params!r} and the other parameters "
        "of the loss would give other scores or probabilities than the loss that the network "
        "was trained with: set them back to what they were in `fit`, or fit again, before saving."
    )


def _class(criterion):
    return type(training.trained_by(criterion))


def _contents(criterion):
    """Return the parameters and buffers of a loss of the user, with their names."""
    loss = training.trained_by(criterion)
    return [*loss.named_parameters(), *loss.named_buffers()]


def _check_precision(model):
    """Raise if another precision was set since the network was trained, which it predicts in."""
    if model.precision != model.net_.precision:
        raise ValueError(
            f"precision={model.precision!r} was set after the network was trained, which predicts "
            f"in {model.net_.precision!r}: set it back, or fit again, before saving."
        )


def describe_estimator(model, tensors):
    """Return the document of a fitted estimator, and put the tensors into `tensors`."""
    learned = _check_loss(copy.copy(model))
    _check_precision(model)
    module = model.net_.bare_module
    tensors.update({NETWORK + name: t for name, t in module.state_dict().items()})
    network = _of_the_network(model._network_params, module.backbone)
    params, left_out = _of_the_model(model)
    before = model._network_params["backbone"]
    if isinstance(before, str) and params["backbone"] == before != network["backbone"]:
        # A name that leads to a repository: what was found there, which has no weights by name.
        params |= {**network, "weights": None}
        left_out += [] if "weights" in left_out else ["weights"]
    state = training_state(model.net_) if model.net_.resumable else None
    if state is not None and not _goes_on_with_its_optimizer(model):
        state["optimizer"] = {}
    known = _allowed.is_training_state(state) and not misshapen(module, state["optimizer"])
    if model.net_.resumable and not known:
        left_out.append("optimizer state")
        state = None
    if model.net_.resumable and learned:
        left_out.append("loss state")
    fitted = {
        k: v for k, v in vars(model).items() if k not in model.get_params() and k not in REBUILT
    }
    document = {
        "versions": versions(),
        "estimator": type(model).__name__,
        "params": _encode_params("params", params, tensors),
        "left_out": left_out,
        "network": _encode_params("network", network, tensors),
        "fitted": _encode_fitted("fitted", fitted, _allowed.FITTED, tensors),
        "rule": describe_rule(getattr(model, "rule_", None), tensors),
        "training": encode(state, tensors, "training"),
        "frozen": [name for name, p in module.named_parameters() if not p.requires_grad],
        "history": _encode_fitted(
            "history", {"rows": list(model.history_)}, {"rows": _allowed.is_history}, tensors
        ),
    }
    if "loss state" in left_out:
        warn_caller(
            f"loss={model.loss!r} has learned {learned}, which no file of save holds: a training "
            f"that goes on from the file starts with a new loss. To keep it, {JOBLIB}.",
        )
    return document


def describe_unfitted(model, tensors):
    """Return the document of an estimator that is not fitted."""
    params, left_out = _of_the_model(model)
    params = _encode_params("params", params, tensors)
    return {"estimator": type(model).__name__, "params": params, "left_out": left_out}


def _of_the_model(model):
    """Return the parameters that a file may hold, and the names of what is left out."""
    params = model.get_params(deep=False)
    kept = {k: v for k, v in params.items() if k not in _allowed.MACHINE_PARAMETERS}
    kept["backbone_params"] = plain(kept["backbone_params"])
    left_out = [name for name in ("callbacks", "compile") if params[name]]
    left_out += ["metadata requests"] if hasattr(model, "_metadata_request") else []
    if isinstance(kept["optimizer"], str | type):
        net_params = _allowed.of_the_optimizer(kept["optimizer"], plain(kept["net_params"]))
        if net_params.keys() != (kept["net_params"] or {}).keys():
            left_out.append("net_params")
        kept["net_params"] = net_params or None
    if not _allowed.PARAMS["weights"](kept["weights"]):
        left_out.append("weights")
        kept["weights"] = None
    return kept, left_out


def plain(value):
    """Return arrays and numbers of NumPy, in a dict too, as those of Python."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value))
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _of_the_network(params, body):
    """Return the description of the network, as it can be made without its weights."""
    backbone, weights = params["backbone"], params["weights"]
    own = plain(dict(params["backbone_params"] or {}))
    try:
        backbone, own = source_of(backbone).describe(backbone, own, weights, body)
    except ValueError as error:
        raise ValueError(f"{error}: {REMEDIES['backbone']}.") from error
    return {"backbone": backbone, "backbone_params": own or None}


def training_state(net):
    """Return what a training needs to go on, by the names of parameters and modules.

    Parameters
    ----------
    net : SetNet

    Returns
    -------
    state : dict
    """
    module = net.bare_module
    known = {} if net.optimizer_ is None else net.optimizer_.state
    of_parameters = {n: dict(known[p]) for n, p in module.named_parameters() if p in known}
    return {"optimizer": of_parameters, "generators": generator_states(module)}


def _goes_on_with_its_optimizer(model):
    """Return whether the next training of a model goes on with what its optimizer knows."""
    wanted, _ = training.resolve_optimizer(model.optimizer)
    return training.torch_class(wanted) is training.torch_class(type(model.net_.optimizer_))


def misshapen(module, states):
    """Return the parameters of which an optimizer keeps tensors of other shapes, by name."""
    shapes = {name: p.shape for name, p in module.named_parameters()}
    return [
        name
        for name, state in states.items()
        for value in state.values()
        if torch.is_tensor(value) and value.shape not in ((), shapes[name])
    ]


def describe_rule(rule, tensors):
    """Return the document of a rule, or None."""
    if rule is None:
        return None
    params = rule.get_params(deep=False)
    state = rule.__getstate__()
    fitted = {name: state[name] for name in vars(rule) if name not in params}
    return {
        "rule": type(rule).__name__,
        "params": _encode_fitted(
            "rule", params, dict.fromkeys(params, _allowed.is_plain), tensors
        ),
        "fitted": _encode_fitted("rule", fitted, _allowed.RULE, tensors),
    }


def versions():
    """Return the versions of what writes a file."""
    own = {"sksetvalued": __version__, "torch": torch.__version__}
    return own | {"numpy": np.__version__, "sklearn": sklearn.__version__}


def _encode_params(group, params, tensors):
    encoded = {k: _encode_param(group, k, v, tensors) for k, v in params.items()}
    try:
        _allowed.check_backbone(params, together=group == "network")
    except _allowed.NotAllowed as error:
        raise ValueError(f"{group}: {error}: {REMEDIES['backbone']}.") from error
    return encoded


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

"""A fitted estimator from what a file says of it."""

from types import SimpleNamespace

import numpy as np
import torch

from .. import training
from .._arrays import always_on_the_processor
from .._randomness import own_generators
from .._warnings import warn_caller, without_warnings
from ..inputs import is_image
from ..networks._rebuild import rebuild_network
from . import _allowed
from ._container import unpack
from ._describe import ESTIMATORS, NETWORK, misshapen
from ._json import Decoder
from ._label_sets import DeepLabelSetClassifier

#: Fitted attributes that an estimator may lack.
OPTIONAL = {"feature_names_in_", "n_features_in_", "_found_epochs", "_image_range"}
SINGLE_LABEL_ATTRIBUTES = {"_log_label_weight"}
LABEL_SET_ATTRIBUTES = {"average_size_", "largest_size_", "_form", "_ranked_by", "_seen"}
#: What a document holds.
PARTS = {
    *("estimator", "fitted", "frozen", "history", "left_out", "network", "params", "rule"),
    *("training", "versions"),
}
#: What may be left out of it.
LEFT_OUT = {
    *("callbacks", "compile", "loss state", "metadata requests", "net_params"),
    *("optimizer state", "weights"),
}
#: What can be wrong with a description that is well formed.
DESCRIPTION_ERRORS = (
    *(ValueError, TypeError, KeyError, AttributeError, IndexError),
    *(RuntimeError, MemoryError, ArithmeticError),
)


@torch.inference_mode(False)
@always_on_the_processor
def restore(data, name, here, rebuild=None):
    """Return the estimator that the bytes of a file describe.

    Parameters
    ----------
    data : bytes
    name : str
        What is read, for messages.
    here : dict
        The parameters `device`, `compile` and `net_params`.
    rebuild : callable, default=:func:`rebuild_estimator`
        Returns the model of a document.
    """
    try:
        document, tensors = unpack(data)
    except ValueError as error:
        raise ValueError(f"{name} {error}.") from error
    try:
        model, left_out = (rebuild or rebuild_estimator)(document, tensors, here)
    except DESCRIPTION_ERRORS as error:
        raise ValueError(
            f"{name} does not describe an estimator that this version can build: "
            f"{type(error).__name__ if not str(error) else error}."
        ) from error
    if left_out:
        warn_caller(
            f"{', '.join(sorted(left_out))} of the training are not restored from {name}: they "
            "concern the machine, or hold code or its state. To train further with them, give "
            "parameters by set_params; their state is kept by joblib.dump alone.",
        )
    return model


def _left_out(document, here):
    """Return the names of the parameters that are set neither by the file nor by the reader."""
    names = set(document["left_out"])
    if not names <= LEFT_OUT:
        raise ValueError(f"it leaves out {sorted(names)[:5]}")
    return {name for name in names if not here.get(name)}


def rebuild_unfitted(document, tensors, here, budget):
    """Return an estimator that is not fitted, and the names of what is not restored."""
    if document.keys() != {"estimator", "left_out", "params"}:
        raise ValueError(f"its parts are {sorted(document)}")
    cls, _ = _classes(document)
    decode = Decoder(tensors, budget)
    params = _params(document["params"], set(cls._get_param_names()), decode, here)
    return cls(**params), _left_out(document, here)


def _classes(document):
    """Return the class of an estimator and that of its rule."""
    if document["estimator"] not in ESTIMATORS:
        raise ValueError(f"its estimator {document['estimator']!r:.50} is unknown")
    return ESTIMATORS[document["estimator"]]


def rebuild_estimator(document, tensors, here, budget=None):
    """Return the estimator that a document describes, and the names of what is not restored.

    Parameters
    ----------
    document, tensors : dict
        As :func:`unpack` returns them.
    here : dict
        The parameters `device`, `compile` and `net_params`.
    budget : Budget, optional
        Of the file that the estimator is a part of.
    """
    if document.keys() != PARTS:
        raise ValueError(f"its parts are {sorted(document)}")
    cls, rule = _classes(document)
    decode = Decoder(tensors, budget)
    model = cls(**_params(document["params"], set(cls._get_param_names()), decode, here))
    vars(model).update(_decoded("the attribute", document["fitted"], decode, _allowed.FITTED))
    network = _decoded("the parameter", document["network"], decode, _allowed.NETWORK)
    if network.keys() != _allowed.NETWORK.keys():
        raise ValueError(f"its network has the parts {sorted(network)}")
    _allowed.check_backbone(network)
    model._network_params = {**network, "weights": None}
    model._asked = model._what_is_asked()
    if document["rule"] is not None:
        model.rule_ = rebuild_rule(rule, document["rule"], decode)
    _check_agreement(model)
    model.device_ = training.resolve_device(model.device)
    training_state = decode(document["training"])
    model.net_ = _rebuild_net(model, tensors, trains=training_state is not None)
    _restore_training(model, training_state)
    _freeze(model.net_.bare_module, document["frozen"])
    known = {"rows": _allowed.is_history}
    history = _decoded("the history", document["history"], decode, known)
    model.history_ = model.net_.history = training.History(history["rows"])
    return model, _left_out(document, here)


def _freeze(module, names):
    """Freeze the parameters of these names."""
    known = dict(module.named_parameters())
    if not (isinstance(names, list) and all(isinstance(n, str) and n in known for n in names)):
        raise ValueError("it freezes parameters that its network does not have")
    for name in names:
        known[name].requires_grad_(False)


def _restore_training(model, state):
    """Let the next training of a net go on where the one of the file ended."""
    model.net_.resumable = model.warm_start or state is not None
    if state is None:
        return
    if not _allowed.is_training_state(state):
        raise ValueError("it has a malformed state of the training")
    module = model.net_.bare_module
    own = own_generators(module)
    if own.keys() != state["generators"].keys():
        raise ValueError(f"it has the generators {sorted(state['generators'])[:5]}")
    for name, generator in own.items():
        _restore_generator(generator, state["generators"][name])
    model.net_.take_optimizer_state(_of_parameters(module, state["optimizer"]))


def _restore_generator(generator, state):
    for device, value in state["states"].items():
        if torch.device(device).type == "cpu":
            torch.Generator().set_state(value)  # Raises for what is no state.
    generator.__setstate__(state)


def _of_parameters(module, states):
    """Return what an optimizer knows by parameters instead of their names."""
    parameters = dict(module.named_parameters())
    if wrong := misshapen(module, states):
        raise ValueError(f"its optimizer has a tensor of another shape for {wrong[0]}")
    return {parameters[name]: state for name, state in states.items()}


def _decoded(what, values, decode, known):
    values = {k: decode(v) for k, v in values.items()}
    _allowed.check(what, values, known)
    return values


def _params(params, names, decode, here):
    """Return the parameters of the file, with those of the reader."""
    params = _decoded("the parameter", params, decode, _allowed.PARAMS)
    if params.keys() | set(_allowed.MACHINE_PARAMETERS) != names:
        raise ValueError(f"it has the parameters {sorted(params)}")
    _allowed.check_backbone(params, together=False)
    own = params["net_params"] or {}
    if own.keys() != _allowed.of_the_optimizer(params["optimizer"], own).keys():
        raise ValueError(f"no file may set net_params to {own!r:.100}")
    params["net_params"] = {**own, **here["net_params"]} or None
    return {**params, "compile": here["compile"], "device": here["device"]}


def rebuild_rule(cls, document, decode):
    """Return the rule as it was fitted; the parameters of the model may have changed since.

    One without any attribute was not fitted.
    """
    if document.keys() != {"fitted", "params", "rule"}:
        raise ValueError(f"its rule has the parts {sorted(document)}")
    if document["rule"] != cls.__name__:
        raise ValueError(f"its rule is {document['rule']!r:.50} instead of {cls.__name__}")
    known = dict.fromkeys(cls._get_param_names(), _allowed.is_plain)
    rule = cls(**_decoded("the parameter", document["params"], decode, known))
    fitted = _decoded("the attribute", document["fitted"], decode, _allowed.RULE)
    if not fitted:
        return rule
    expected = _attributes(cls) - known.keys()
    if fitted.keys() != expected:
        raise ValueError(f"its rule has the attributes {sorted(fitted)}")
    vars(rule).update(fitted)
    if getattr(rule, "_threshold", 0) is None and not getattr(rule, "_every_class", False):
        raise ValueError("its rule has no threshold")
    return rule


def _attributes(cls):
    """Return the names of the attributes of a fitted rule."""
    share = 0.5 if "error" in cls._get_param_names() else 1
    with without_warnings():  # of how few samples these are
        return vars(cls(share).fit(np.full((1, 2), 0.5), np.zeros(1, dtype=int))).keys()


def _check_agreement(model):
    """Raise unless the attributes of an estimator are all there and of the same classes."""
    wanted = _allowed.FITTED.keys() - OPTIONAL
    several = isinstance(model, DeepLabelSetClassifier)
    wanted -= SINGLE_LABEL_ATTRIBUTES if several else LABEL_SET_ATTRIBUTES
    names = vars(model).keys() & _allowed.FITTED.keys()
    if not wanted <= names <= wanted | OPTIONAL:
        raise ValueError(f"it has the attributes {sorted(names)}")
    rule = getattr(model, "rule_", None)
    if rule is not None and not hasattr(rule, "n_classes_"):
        raise ValueError("its rule is not fitted")
    if rule is None and not several:
        raise ValueError("it has no rule")
    n_classes = len(model.classes_)
    lengths = [n_classes, len(model.class_counts_)]
    weights = [model._log_class_weight, getattr(model, "_log_label_weight", None)]
    lengths += [len(v) for v in weights if v is not None]
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
    of_parts = isinstance(shape, dict)
    if of_parts != (model.input_kind_ == "named") and model.input_kind_ != "dataset":
        raise ValueError(f"its samples of kind {model.input_kind_} have the form {shape}")
    if model.input_kind_ == "image" and (len(shape) != 3 or not hasattr(model, "_image_range")):
        raise ValueError(f"its images have the shape {shape}")


def _rebuild_net(model, tensors, trains):
    """Return the trained net, with a new optimizer if it `trains` on."""
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
    if is_image(model.input_shape_):
        module.expect_images(compiled=model.compile)
    in_memory = SimpleNamespace(in_memory=model.input_kind_ in ("table", "image", "named"))
    options = model._options("partial_fit")
    return training.make_net(module, criterion, in_memory, None, 1, options, trains=trains)

"""The state of a training between two epochs: taken from a net, and put back into another."""

import copy
import inspect
import random
from collections import deque
from numbers import Number
from typing import NamedTuple

import numpy as np
import torch
from skorch.callbacks import Callback, PrintLog, ProgressBar
from skorch.history import History

from .._randomness import own_generators, rng_state, set_rng_state

#: What a callback may remember of the epochs.
DATA = (type(None), Number, str, list, tuple, dict, np.ndarray, torch.Tensor)
#: What a state that is not of such a net raises.
STATE_ERRORS = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)
UNCHANGING = (type(None), Number, str, tuple)
#: Attributes of modules that are kept with those of a training.
PLAIN = (bool, int, float, str, type(None))
#: Those that torch has for its own.
MODULE_ATTRIBUTES = frozenset(vars(torch.nn.Module()))


class Shows(Callback):
    """A callback that shows what happens, and has no state that a training needs."""


class KeepState(Callback):
    """Hand over the state of a training after each epoch, and begin with one that was kept.

    Parameters
    ----------
    checkpoint : object
        Has the `state` that was kept, or None to begin anew; ``write(state, seed)``, given a dict
        of plain values and tensors; and ``refusal(error)``, what to raise if `state` does not fit.
    seed : int
        Handed over with the state.
    lent : str or None
        The device whose generators of torch the training draws from; None for none.
    """

    def __init__(self, checkpoint, seed, lent):
        self.checkpoint = checkpoint
        self.seed = seed
        self.lent = lent

    @property
    def n_epochs(self):
        """Number of epochs that were trained before."""
        state = self.checkpoint.state
        return 0 if state is None else state["n_epochs"]

    def on_train_begin(self, net, **kwargs):
        self.n_epochs_ = self.n_epochs
        self._starts = {name: _start(callback) for name, callback in self._others(net)}
        self._passing = {name: _versions(module) for name, module in modules_of(net)}
        self._plain = {name: plain_values(module) for name, module in modules_of(net)}
        if self.checkpoint.state is not None:
            try:
                self._put(net, self.checkpoint.state)
            except STATE_ERRORS as error:
                raise self.checkpoint.refusal(error) from error

    def on_epoch_end(self, net, **kwargs):
        self.n_epochs_ += 1
        # A training that ends with this epoch is complete, or does the epoch once more.
        if not net.exhausted_:
            net.take_changes()
            self.checkpoint.write(self._take(net), self.seed)

    def _others(self, net):
        without = (KeepState, Shows, PrintLog, ProgressBar)
        return [(name, other) for name, other in net.callbacks_ if not isinstance(other, without)]

    def _take(self, net):
        return {
            "n_epochs": self.n_epochs_,
            "history": list(net.history),
            "modules": {name: module.state_dict() for name, module in modules_of(net)},
            "passing": {
                name: _changed(module, self._passing[name]) for name, module in modules_of(net)
            },
            "plain": {
                name: _others(plain_values(module), self._plain[name])
                for name, module in modules_of(net)
            },
            "frozen": [n for n, p in _parameters(net) if not p.requires_grad],
            "optimizer": _of_optimizer(net.optimizer_),
            "callbacks": {
                name: _of_callback(name, callback, self._starts[name])
                for name, callback in self._others(net)
            },
            "generator": net.generator.get_state(),
            "generators": {name: own.__getstate__() for name, own in generators_of(net)},
            "lent": None if self.lent is None else rng_state(self.lent),
        }

    def _put(self, net, state):
        for name, module in modules_of(net):
            passing = {key: value.to(net.device) for key, value in state["passing"][name].items()}
            _check_plain(module, state["plain"][name])
            put_state(module, state["modules"][name], passing, state["plain"][name])
        frozen = set(state["frozen"])
        for name, parameter in _parameters(net):
            parameter.requires_grad_(name not in frozen)
        _to_optimizer(net.optimizer_, state["optimizer"])
        for name, callback in self._others(net):
            _to_callback(callback, state["callbacks"][name])
        net.generator.set_state(state["generator"])
        for name, own in generators_of(net):
            own.__setstate__(state["generators"][name])
        if self.lent is not None:
            set_rng_state(state["lent"], self.lent)
        net.history = History(state["history"])


def state_of(module):
    """Return copies of what a module holds, for `put_state`."""
    # Of other buffers outside the state dict a checkpoint, too, keeps none.
    passing = passing_buffers(module).items()
    return {
        "state": copy.deepcopy(module.state_dict()),
        "passing": {name: value.detach().clone() for name, value in passing if is_plain(value)},
        "plain": plain_values(module),
    }


def put_state(module, state, passing, plain):
    """Put back what a module held: its state dict, the tensors outside of it, plain values."""
    # The one of the module knows versions of its parts, which plain values do not.
    own = module.state_dict()
    own.update(state)
    module.load_state_dict(own)
    for name, value in passing.items():
        put_buffer(module, name, value)
    put_plain_values(module, plain)


def modules_of(net):
    """Return the network and the loss, as they were before they were compiled."""
    return [("module", net.bare_module), ("criterion", net.bare_criterion)]


def passing_buffers(module):
    """Return the tensors outside the state dict, by name: buffers, and plain attributes."""
    kept = module.state_dict()
    passing = {key: buffer for key, buffer in module.named_buffers() if key not in kept}
    return passing | dict(plain_tensors(module))


def plain_tensors(module):
    """Yield the tensors among the attributes of the parts of a module, by name."""
    for name, part in module.named_modules():
        for key, value in vars(part).items():
            if torch.is_tensor(value):
                yield f"{name}.{key}" if name else key, value


def is_plain(buffer):
    """Return whether a file can hold a buffer."""
    return buffer.layout == torch.strided and not buffer.dtype.is_complex


def _versions(module):
    """Return the tensors outside the state dict, each with its version counter."""
    return {key: (buffer, _version(buffer)) for key, buffer in passing_buffers(module).items()}


def _version(tensor):
    """Return the version counter of a tensor; those of inference mode have none."""
    return None if tensor.is_inference() else tensor._version


def _changed(module, start):
    """Return the tensors outside the state dict that have changed since the start."""
    changed = {}
    for key, buffer in passing_buffers(module).items():
        before, version = start.get(key, (None, None))
        if buffer is before and version is not None and buffer._version == version:
            continue
        if not is_plain(buffer):
            raise ValueError(
                f"a checkpoint cannot keep the tensor {key!r}, of {buffer.dtype} and layout "
                f"{buffer.layout}, which the training changes: fit without a checkpoint."
            )
        changed[key] = buffer.detach()
    return changed


def put_buffer(module, key, value):
    """Write to a buffer where it has room for a value, which other names of it show then."""
    part, _, name = key.rpartition(".")
    part = module.get_submodule(part)
    buffer = getattr(part, name, None)
    if _has_room(buffer) and (buffer.shape, buffer.dtype) == (value.shape, value.dtype):
        buffer.copy_(value)
    elif _may_be_tensor(part, name):
        vars(part)[name] = value
    else:
        persistent = name in part._buffers and name not in part._non_persistent_buffers_set
        part.register_buffer(name, value, persistent=persistent)


def _has_room(tensor):
    """Return whether a tensor can be written to: each element has a place of its own."""
    if not torch.is_tensor(tensor) or tensor.requires_grad or tensor.is_inference():
        return False
    sizes = zip(tensor.shape, tensor.stride()) if tensor.layout == torch.strided else ()
    return all(stride > 0 or size < 2 for size, stride in sizes)


def _may_be_tensor(part, name):
    """Return whether a plain attribute of a part may hold a tensor."""
    own = name in vars(part) or hasattr(type(part), name)
    value = getattr(part, name) if own and name not in MODULE_ATTRIBUTES else part
    return value is None or torch.is_tensor(value)


def plain_values(module):
    """Return the numbers, strings and None among the attributes of the parts of a module."""
    return {
        f"{name}.{key}": value
        for name, part in module.named_modules()
        for key, value in vars(part).items()
        if _is_own(part, key, value)
    }


def _is_own(part, key, value):
    """Return whether a value can be a plain attribute of a part, and hides no method."""
    hidden = getattr(type(part), key, None)
    return isinstance(value, PLAIN) and isinstance(hidden, PLAIN) and key not in MODULE_ATTRIBUTES


def put_plain_values(module, values):
    """Put attributes of the parts of a module back, of those that it still has."""
    parts = dict(module.named_modules())
    for name, value in values.items():
        part, _, key = name.rpartition(".")
        if part in parts:
            vars(parts[part])[key] = value


def _others(values, start):
    """Return the values that are others than at the start."""
    return {k: v for k, v in values.items() if k not in start or start[k] is not v}


def _check_plain(module, values):
    """Raise unless values of a file can be attributes of the parts of a module."""
    for name, value in values.items():
        part, _, key = name.rpartition(".")
        if key.startswith("__") or not _is_own(module.get_submodule(part), key, value):
            raise ValueError(f"{name!r} is no number or string of a module")


def _parameters(net):
    for name, module in modules_of(net):
        for key, parameter in module.named_parameters():
            yield f"{name}.{key}", parameter


def generators_of(net):
    """Yield the generators that parts of the network and of the loss own."""
    for name, module in modules_of(net):
        for key, own in own_generators(module).items():
            yield f"{name}.{key}", own


def _of_optimizer(optimizer):
    state = optimizer.state_dict()
    return {**state, "state": {str(i): values for i, values in state["state"].items()}}


def _to_optimizer(optimizer, state):
    values = {int(i): known for i, known in state["state"].items()}
    load_optimizer_state(optimizer, {**state, "state": values})


def load_optimizer_state(optimizer, state):
    """Load what ``optimizer.state_dict()`` gave, of tensors in any order in memory."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    values = {
        i: {name: _laid_out(value, parameters[i]) for name, value in known.items()}
        for i, known in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": values})


def _laid_out(value, parameter):
    """Return a value with the strides of its parameter, which fused optimizers rely on."""
    if not isinstance(value, torch.Tensor) or value.shape != parameter.shape:
        return value
    return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)


def _like(value, before):
    """Return a tensor, or a list of them, laid out as what a callback held in its place."""
    if isinstance(before, torch.Tensor):
        return _laid_out(value, before)
    if isinstance(before, list) and isinstance(value, list) and len(before) == len(value):
        return [_like(part, old) for part, old in zip(value, before, strict=True)]
    return value


def _has_state(value):
    return hasattr(value, "state_dict") and not isinstance(value, type)


def _content(value):
    """Return what tells whether an object has changed in place; nothing of most kinds."""
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        name, key, *others = value.get_state()
        return name, key.tobytes(), others
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, bytearray):
        return bytes(value)
    return [*map(_Same, value)] if isinstance(value, deque | set) else None


class _Same:
    """Equal to another one of the very same object."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value is other.value


class _Object(NamedTuple):
    """What a callback holds that is no data, and its state, or content, at the start."""

    value: object
    state: object


def _start(callback):
    """Return what a callback holds before the first epoch."""
    start, params = dict(vars(callback)), _params(callback)
    for name, value in start.items():
        if _has_state(value):
            start[name] = _Object(value, value.state_dict())
        elif not isinstance(value, DATA) and name not in params:
            start[name] = _Object(value, _content(value))
    return start


def _of_callback(name, callback, start):
    """Return what a callback has learned in the epochs, by attribute.

    Of a scheduler these are the entries of its state that are others than at the start.
    """
    learned, params = {}, _params(callback)
    for key, value in vars(callback).items():
        if key in params:
            continue
        before = start.get(key)
        if isinstance(before, _Object) and _has_state(value):
            state = value.state_dict()
            changed = {k: v for k, v in state.items() if v is not before.state.get(k)}
            learned[key] = {"state_dict": changed}
        elif isinstance(value, DATA):
            if not (isinstance(value, UNCHANGING) and value is start.get(key, callback)):
                learned[key] = {"value": value}
        elif before is None or value is not before.value or _content(value) != before.state:
            raise ValueError(
                f"a checkpoint cannot keep {key}={value!r} of the callback {name!r}, a "
                f"{type(callback).__name__}: fit without the callback, or without a checkpoint."
            )
    return learned


def _params(callback):
    """Return the names of what a callback was made with, such as where it writes."""
    own = [vars(cls).get("__init__") for cls in type(callback).__mro__[:-1]]
    return {name for init in own if init for name in inspect.signature(init).parameters}


def _to_callback(callback, learned):
    params = _params(callback)
    for key, content in learned.items():
        of_class = getattr(type(callback), key, None)
        if key in params or key.startswith("__") or not isinstance(of_class, DATA):
            raise ValueError(f"{key!r} is nothing that a {type(callback).__name__} learns")
        if "value" in content:
            setattr(callback, key, _like(content["value"], getattr(callback, key, None)))
        else:
            target = getattr(callback, key)
            target.load_state_dict({**target.state_dict(), **content["state_dict"]})

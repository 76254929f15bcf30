"""What tells the parameters of a fit from those of others, alike in every process."""

import contextlib
import copyreg
import functools
import hashlib
import inspect
import json
import random
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from .. import training
from ._json import NotEncodable, encode
from ._transforms import is_transform

#: Rows that are read at once to tell data apart.
ROWS_AT_ONCE, ENTRIES_AT_ONCE = 4096, 1 << 22
CONTAINERS = (dict, list, tuple)
FUNCTIONS = (BuiltinFunctionType, FunctionType, MethodType)
#: What is told by name alone; generators are drawn from, and may have begun anywhere.
BY_NAME = (
    type,
    ModuleType,
    np.random.BitGenerator,
    np.random.Generator,
    np.random.RandomState,
    random.Random,
    torch.Generator,
)


class NoIdentity(Exception):
    """Raised on what leads out of the process, such as an open file or a lock."""


def identity(value):
    """Return what tells a parameter from others: strings, arrays and tensors, nested in lists.

    That is data; what modules hold; of functions the names, the defaults and what they enclose;
    of other objects the classes and the parameters. A part that leads out of the process, itself
    or by what it holds, is told by the name of its class.
    """
    plain = _plain(value)
    if plain is not None:
        return plain
    if isinstance(value, CONTAINERS):
        return flat({name: identity(part) for name, part in _parts(value).items()})
    try:
        return _told(value, _whole_or_name)
    except NoIdentity:
        return [_name(value)]


def _whole_or_name(value):
    with contextlib.suppress(NoIdentity, RecursionError):
        return _whole(value, {})
    return _told(value, _whole_or_name) if isinstance(value, CONTAINERS) else [_name(value)]


def _whole(value, seen):
    """Return the identity of a value if all that it holds has one.

    Parameters
    ----------
    value : object
    seen : dict
        The values around and before it by ``id``, with their numbers: they may hold each other.

    Raises
    ------
    NoIdentity
    """
    plain = _plain(value)
    if plain is not None:
        return plain
    if id(value) in seen:
        return [_name(value), str(seen[id(value)][0])]
    seen[id(value)] = len(seen), value
    return _told(value, functools.partial(_whole, seen=seen))


def _told(value, tell):
    told = [_name(value)]
    for name, part in _parts(value).items():
        told += [name, digest(tell(part))]
    return told


def _plain(value):
    """Return the identity of a module, of data or of what is told by name, None for others."""
    if isinstance(value, torch.nn.Module):
        return _of_module(value)
    with contextlib.suppress(NotEncodable, RecursionError):
        return _of_data(value)
    if isinstance(value, BY_NAME):
        return [_name(value)]
    if isinstance(value, bytes | bytearray):
        return [_name(value), value.hex()]
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return [str(value.shape), value.reshape(-1)]
    return None


def _of_data(value):
    tensors = {}
    content = json.dumps(encode(value, tensors, "value"))
    return [content, *tensors.values()]


def _name(value):
    is_code = isinstance(value, type) or inspect.isroutine(value)
    code = value if is_code and hasattr(value, "__qualname__") else type(value)
    return f"{code.__module__}.{code.__qualname__}"


def _parts(value):
    """Return what a value is made of, by name."""
    if isinstance(value, dict):
        return {_key(key): part for key, part in value.items()}
    if isinstance(value, list | tuple):
        return {str(i): part for i, part in enumerate(value)}
    if isinstance(value, set | frozenset):
        return {"items": sorted(digest(_whole_or_name(part)) for part in value)}
    if isinstance(value, np.ndarray):
        return {"items": value.tolist()}
    if isinstance(value, functools.partial):
        return {"func": value.func, "args": value.args, "keywords": value.keywords}
    if isinstance(value, FUNCTIONS):
        return _parts_of_function(value)
    try:
        return _parts_of_object(value)
    except Exception as error:  # whatever the value raises
        raise NoIdentity from error


def _key(key):
    """Return the name of an entry of a dict."""
    try:
        encode(key, {}, "key")
    except NotEncodable:
        return digest(_whole_or_name(key))
    return str(key)


def _parts_of_function(function):
    """Return the defaults of a function, the variables that it encloses, and its object."""
    names = ("__defaults__", "__kwdefaults__", "__self__")
    parts = {name: getattr(function, name, None) for name in names}
    cells = getattr(function, "__closure__", None)
    for name, cell in zip(function.__code__.co_freevars, cells) if cells else ():
        with contextlib.suppress(ValueError):  # not set yet
            parts[name] = cell.cell_contents
    return {n: p for n, p in parts.items() if not (p is None or isinstance(p, ModuleType))}


def _parts_of_object(value):
    """Return the parameters of an object, or else what a pickle of it would hold.

    Attributes whose names end in "_" are left out: they are learned.
    """
    parts = {}
    if hasattr(value, "get_params"):
        silent = training.silent_parameters(value)
        state = {n: p for n, p in value.get_params(deep=False).items() if n not in silent}
    else:
        reduce = copyreg.dispatch_table.get(type(value))
        reduced = value.__reduce_ex__(4) if reduce is None else reduce(value)
        if isinstance(reduced, str):
            return {"name": reduced}
        _, args, state, items, pairs, *_ = (*reduced, None, None, None)
        args = [arg for arg in args if arg is not type(value)]
        held = {"args": args, "items": list(items or ()), "pairs": list(pairs or ())}
        parts = {name: part for name, part in held.items() if part}
    if isinstance(state, tuple):  # of a class with __slots__
        state = {name: part for some in state if some for name, part in some.items()}
    elif state is not None and not isinstance(state, dict):
        state = {"state": state}
    return parts | {name: state[name] for name in sorted(state or ()) if name[-1:] != "_"}


def _of_module(module):
    """Return the values of a module, and the classes and attributes of its parts."""
    told = flat(module.state_dict())
    for name, part in module.named_modules():
        told += [name, type(part).__qualname__]
        for key, value in vars(part).items():
            if key in training.MODULE_ATTRIBUTES:  # told otherwise, if at all
                continue
            try:
                told += [key, *_of_data(value)]
            except NotEncodable:
                # Transforms of torchvision hold others in lists.
                of_code = _whole_or_name(value) if is_transform(part) else [_name(value)]
                told += [key, *of_code]
    return told


def flat(parts):
    """Return names and what they stand for as one list."""
    told = []
    for name, part in parts.items():
        told += [str(name), *(part if isinstance(part, list) else [part])]
    return told


def digest(*parts):
    """Return a digest of strings, arrays and tensors, nested in lists at will."""
    whole = hashlib.sha256()
    for part in parts:
        _update(whole, part)
    return whole.hexdigest()


def _update(whole, part):
    if isinstance(part, list):
        whole.update(b"[%d:" % len(part))
        for item in part:
            _update(whole, item)
    elif is_lazy(part):
        whole.update(type(part).__name__.encode())
    elif isinstance(part, torch.Tensor) and part.layout is not torch.strided:
        entries = part.to_sparse().coalesce()
        _update(whole, [tuple(part.shape), entries.indices(), entries.values()])
    elif isinstance(part, torch.Tensor):
        whole.update(f"{part.dtype}{tuple(part.shape)}".encode())
        for entries in part.reshape(-1).split(ENTRIES_AT_ONCE):
            whole.update(entries.cpu().contiguous().view(torch.uint8).numpy())
    elif isinstance(part, np.ndarray):
        whole.update(f"{part.dtype}{part.shape}".encode())
        for start in range(0, len(part), ROWS_AT_ONCE):
            whole.update(np.ascontiguousarray(part[start : start + ROWS_AT_ONCE]).tobytes())
    else:
        text = str(part).encode()
        whole.update(b"%d:" % len(text) + text)

"""Python values as JSON that holds data only, arrays and tensors being kept aside."""

import math
import os
from numbers import Integral, Real

import numpy as np
import torch

from ._transforms import NotKnown, described, is_transform, rebuilt

#: Types of the arrays of numbers, little-endian.
DTYPES = frozenset(np.dtype(code).newbyteorder("<").str for code in "?bhilqBHILQefd")
OPTIMIZERS = {
    name: cls
    for name, cls in vars(torch.optim).items()
    if isinstance(cls, type)
    and issubclass(cls, torch.optim.Optimizer)
    and cls is not torch.optim.Optimizer
}
#: Memory that arrays may take beyond that of a file's tensors.
FREE_BYTES = 20_000_000
BYTES_PER_STRING = 64


class NotEncodable(Exception):
    """Raised on a value that JSON cannot hold without code."""


def _refuse(value, name=None):
    raise NotEncodable(f"{value!r} of type {type(value).__name__}")


def encode(value, tensors, name, other=_refuse):
    """Return `value` as JSON.

    Parameters
    ----------
    value : object
        None, a boolean, number, string, path, list, tuple, dict of strings or numbers, array,
        tensor, device, torch optimizer class or known transform, nested at will.
    tensors : dict
        Receives tensors by name, and arrays of numbers as tensors of bytes.
    name : str
        What names of tensors start with.
    other : callable
        Returns the JSON of a value of another type, or raises.

    Raises
    ------
    NotEncodable
    """
    if value is None or isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, np.bool_ | Integral):
        return bool(value) if isinstance(value, np.bool_) else int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        items = [encode(item, tensors, f"{name}.{i}", other) for i, item in enumerate(value)]
        return {type(value).__name__: items} if type(value) in (list, tuple) else _refuse(value)
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {k: encode(v, tensors, f"{name}.{k}", other) for k, v in value.items()}}
    if isinstance(value, dict) and all(isinstance(k, str | np.bool_ | Real) for k in value):
        pairs = enumerate(value.items())
        return {"pairs": [[encode(part, tensors, f"{name}.{i}") for part in p] for i, p in pairs]}
    if isinstance(value, np.ndarray):
        return _encode_array(value, tensors, name)
    if isinstance(value, torch.Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, type) and OPTIMIZERS.get(value.__name__) is value:
        return {"optimizer": value.__name__}
    if is_transform(value):
        return _encode_transform(value, tensors, name)
    return other(value, name)


def _encode_transform(transform, tensors, name):
    try:
        kind, params = described(transform)
    except NotKnown as error:
        raise NotEncodable(str(error)) from error
    return {"transform": {"class": kind, "params": encode(params, tensors, name)}}


def _encode_array(array, tensors, name):
    shape = list(array.shape)
    if array.dtype.kind in "OU" and all(isinstance(item, str) for item in array.flat):
        content = {"object": array.dtype.kind == "O", "shape": shape, "data": array.ravel()}
        return {"strings": {**content, "data": [str(item) for item in content["data"]]}}
    dtype = array.dtype.newbyteorder("<")
    if dtype.str not in DTYPES:
        raise NotEncodable(f"an array of dtype {array.dtype}, {name}")
    # By which libraries of linear algebra round.
    by_columns = array.flags.f_contiguous and not array.flags.c_contiguous
    order = {"order": "F"} if by_columns else {}
    data = np.frombuffer(array.astype(dtype).tobytes(**order), np.uint8).copy()
    tensors[name] = torch.from_numpy(data)
    return {"array": {"dtype": dtype.str, "shape": shape, "bytes": name, **order}}


class Budget:
    """Memory that the arrays of a file may take, in all of its parts together.

    Parameters
    ----------
    tensors : dict
        Those of the file.
    """

    def __init__(self, tensors):
        self.free_bytes = FREE_BYTES + sum(t.nbytes for t in tensors.values())

    def spend(self, n_bytes, what):
        """Raise if there is no memory left for `what`."""
        self.free_bytes -= n_bytes
        if self.free_bytes < 0:
            raise ValueError(f"{what}, more than the file has bytes for")


class Decoder:
    """What :func:`encode` was given, from its JSON and tensors.

    Parameters
    ----------
    tensors : dict
    budget : Budget, optional
        Of the file that the tensors are a part of; by default they are all of it.
    """

    def __init__(self, tensors, budget=None):
        self.tensors = tensors
        self.kinds = DECODERS
        self.budget = Budget(tensors) if budget is None else budget

    def __call__(self, value):
        """Return a value.

        Raises
        ------
        ValueError
            Whatever `encode` does not write, and arrays far larger than the file.
        """
        if not isinstance(value, dict):
            if isinstance(value, list):
                raise ValueError("an untagged list")
            return value
        if len(value) != 1:
            raise ValueError(f"an object with the keys {sorted(value)[:5]}")
        tag, content = next(iter(value.items()))
        if tag not in self.kinds:
            raise ValueError(f"an object of unknown kind {tag!r:.50}")
        try:
            return self.kinds[tag](self, content)
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"a malformed {tag}: {error}") from error

    def _list(self, content):
        if not isinstance(content, list):
            raise ValueError("a malformed list")
        return [self(item) for item in content]

    def _tuple(self, content):
        return tuple(self._list(content))

    def _dict(self, content):
        return {k: self(v) for k, v in content.items()}

    def _pairs(self, content):
        pairs = [(self(key), self(value)) for key, value in content]
        if not all(isinstance(key, str | bool | int | float) for key, _ in pairs):
            raise ValueError("a dict of keys that are neither strings nor numbers")
        return dict(pairs)

    def _array(self, content):
        if content["dtype"] not in DTYPES:
            raise ValueError(f"an array of dtype {str(content['dtype'])[:20]!r}")
        data = self._tensor(content["bytes"])
        if data.dtype != torch.uint8:
            raise ValueError(f"an array whose bytes are {data.dtype}")
        self.budget.spend(data.nbytes, f"an array of {data.nbytes} bytes")
        array = data.numpy().reshape(-1).copy().view(content["dtype"])
        order = content.get("order", "C")
        if order not in ("C", "F"):
            raise ValueError(f"an array of the order {str(order)[:20]!r}")
        return array.reshape(_checked_shape(content["shape"]), order=order)

    def _strings(self, content):
        data, shape = content["data"], _checked_shape(content["shape"])
        if not (isinstance(data, list) and all(isinstance(item, str) for item in data)):
            raise ValueError("an array of strings that holds something else")
        # The width is that of the data: a declared one could be anything.
        width = max([1, *map(len, data)])
        n_bytes = len(data) * (BYTES_PER_STRING if content["object"] else 4 * width)
        self.budget.spend(n_bytes, f"an array of {len(data)} strings of up to {width} characters")
        return np.array(data, dtype=object if content["object"] else f"<U{width}").reshape(shape)

    def _tensor(self, content):
        return self.tensors[content]

    def _float(self, content):
        if content not in ("inf", "-inf", "nan"):
            raise ValueError("a malformed float")
        return float(content)

    def _optimizer(self, content):
        if content not in OPTIMIZERS:
            raise ValueError(f"an unknown optimizer {content!r}")
        return OPTIMIZERS[content]

    def _transform(self, content):
        if content.keys() != {"class", "params"}:
            raise ValueError("a malformed transform")
        return rebuilt(content["class"], self(content["params"]))


DECODERS = {
    "array": Decoder._array,
    "dict": Decoder._dict,
    "float": Decoder._float,
    "list": Decoder._list,
    "optimizer": Decoder._optimizer,
    "pairs": Decoder._pairs,
    "strings": Decoder._strings,
    "tensor": Decoder._tensor,
    "transform": Decoder._transform,
    "tuple": Decoder._tuple,
}


def _checked_shape(shape):
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("an array of a malformed shape")
    return tuple(shape)

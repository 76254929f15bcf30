"""Python values as JSON that holds data only, tensors being kept aside."""

import math
import os
from numbers import Integral, Real

import numpy as np
import torch

ARRAY_KINDS = "biufU"


class NotEncodable(Exception):
    """Raised on a value that JSON cannot hold without code."""


def encode(value, tensors, name):
    """Return `value` as JSON.

    Parameters
    ----------
    value : object
        None, a boolean, number, string, path, list, tuple, dict with string keys, array,
        tensor, device or torch optimizer class, nested at will.
    tensors : dict
        Receives the tensors by name.
    name : str
        What names of tensors start with.

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
        items = [encode(item, tensors, f"{name}.{i}") for i, item in enumerate(value)]
        return {type(value).__name__: items} if type(value) in (list, tuple) else _refuse(value)
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {k: encode(v, tensors, f"{name}.{k}") for k, v in value.items()}}
    if isinstance(value, np.ndarray):
        return _encode_array(value)
    if isinstance(value, torch.Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, torch.device):
        return str(value)
    if _is_torch_optimizer(value):
        return {"optimizer": value.__name__}
    return _refuse(value)


def _refuse(value):
    raise NotEncodable(f"{value!r} of type {type(value).__name__}")


def _is_torch_optimizer(value):
    return (
        isinstance(value, type)
        and issubclass(value, torch.optim.Optimizer)
        and getattr(torch.optim, value.__name__, None) is value
    )


def _encode_array(array):
    kind = array.dtype.kind
    if kind == "O" and all(isinstance(item, str) for item in array.flat):
        dtype = "object"
    elif kind in ARRAY_KINDS:
        dtype = array.dtype.newbyteorder("=").str
    else:
        raise NotEncodable(f"an array of dtype {array.dtype}")
    data = [_encode_item(item) for item in array.ravel().tolist()]
    return {"array": {"dtype": dtype, "shape": list(array.shape), "data": data}}


def _encode_item(item):
    if isinstance(item, float) and not math.isfinite(item):
        return {"float": repr(item)}
    return item


def decode(value, tensors):
    """Return what :func:`encode` was given.

    Raises
    ------
    ValueError
        Whatever `encode` does not write.
    """
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise ValueError("an untagged list")
        return value
    if len(value) != 1:
        raise ValueError(f"an object with the keys {sorted(value)}")
    tag, content = next(iter(value.items()))
    if tag not in DECODERS:
        raise ValueError(f"an object of unknown kind {tag!r}")
    try:
        return DECODERS[tag](content, tensors)
    except (TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(f"a malformed {tag}: {error}") from error


def _decode_array(content, tensors):
    dtype = np.dtype(content["dtype"])
    if dtype.kind not in ARRAY_KINDS + "O":
        raise ValueError(f"an array of dtype {dtype}")
    data = [decode(item, tensors) for item in content["data"]]
    if dtype.kind == "O" and not all(isinstance(item, str) for item in data):
        raise ValueError("an array of objects other than strings")
    return np.array(data, dtype=dtype).reshape(content["shape"])


def _decode_optimizer(content, tensors):
    optimizer = getattr(torch.optim, content, None)
    if not (isinstance(optimizer, type) and _is_torch_optimizer(optimizer)):
        raise ValueError(f"an unknown optimizer {content!r}")
    return optimizer


DECODERS = {
    "float": lambda content, tensors: float(content),
    "list": lambda content, tensors: [decode(item, tensors) for item in content],
    "tuple": lambda content, tensors: tuple(decode(item, tensors) for item in content),
    "dict": lambda content, tensors: {k: decode(v, tensors) for k, v in content.items()},
    "array": _decode_array,
    "tensor": lambda content, tensors: tensors[content],
    "optimizer": _decode_optimizer,
}

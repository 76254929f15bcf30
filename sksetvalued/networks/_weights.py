"""Weights from a file of the user, read without running code."""

import pickle
import struct
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

#: Where published checkpoints keep the state dict beside epochs and optimiser states.
NESTED_KEYS = ("state_dict", "model")
#: Raised by torch.load on files of other kinds, such as text.
LOAD_ERRORS = (
    *(pickle.UnpicklingError, EOFError, RuntimeError, ValueError),
    *(AttributeError, IndexError, KeyError, TypeError, struct.error),
)
N_KEYS_SHOWN = 8


def read_state_dict(path):
    """Read tensors by name from a ``.safetensors`` file or one written by ``torch.save``.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    state_dict : dict of str to Tensor
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"weights={str(path)!r} is not a file.")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except LOAD_ERRORS as error:
        raise ValueError(
            f"weights={str(path)!r} cannot be read as a state dict without running code: write "
            "it again with torch.save(module.state_dict(), path), or as safetensors, to a name "
            "that ends in .safetensors."
        ) from error
    return _tensors_of(content, path)


def _read_safetensors(path):
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(
            f"weights={str(path)!r} is not a complete safetensors file: {error}"
        ) from error


def _tensors_of(content, path):
    for key in NESTED_KEYS:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(torch.is_tensor(v) for v in content.values()):
        raise ValueError(
            f"weights={str(path)!r} must hold a state dict (tensors by name), alone or under "
            f"one of the keys {NESTED_KEYS}."
        )
    return content


def _without_prefix(state, expected):
    """Return `state` with the prefix of a wrapper or of a whole network taken away."""
    for prefix in ("module.", "backbone.", "module.backbone."):
        stripped = {k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)}
        if len(expected & stripped.keys()) > len(expected & state.keys()):
            return stripped
    return state


def load_weights(module, path, ignored=()):
    """Load the file at `path` into `module`, every key of which must be there.

    Parameters
    ----------
    module : nn.Module
    path : path-like
    ignored : tuple of str
        Prefixes of keys that the file may have in excess, as a classifier that was taken away.
    """
    expected = module.state_dict()
    state = _without_prefix(read_state_dict(path), expected.keys())
    state = {k: v for k, v in state.items() if k in expected or not k.startswith(ignored)}
    problems = {
        "missing": sorted(expected.keys() - state.keys()),
        "unexpected": sorted(state.keys() - expected.keys()),
        "of another shape": [
            f"{k} {tuple(state[k].shape)} instead of {tuple(expected[k].shape)}"
            for k in expected
            if k in state and state[k].shape != expected[k].shape
        ],
    }
    if any(problems.values()):
        details = "; ".join(f"{what}: {_shown(keys)}" for what, keys in problems.items() if keys)
        raise ValueError(f"weights={str(path)!r} does not fit the backbone. {details}.")
    module.load_state_dict(state)


def _shown(keys):
    more = len(keys) - N_KEYS_SHOWN
    return ", ".join(keys[:N_KEYS_SHOWN]) + (f" and {more} more" if more > 0 else "")

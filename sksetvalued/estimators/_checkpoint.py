"""Where a fit keeps its state, so that it goes on when it was killed."""

import hashlib
import json
import os
from numbers import Integral

import torch

from .._version import __version__
from .._warnings import warn_caller
from ..operators import instruction_set
from ..training import resolve_device
from ._allowed import is_int
from ._container import pack, unpack
from ._identity import digest, flat, identity
from ._json import Decoder, NotEncodable, encode
from ._writing import remove_whole, write_whole

KIND = "checkpoint"
#: Parameters that do not change what is trained.
IGNORED = {"verbose"}
#: By what a fit is told that goes on with a network.
NETWORK = "the fitted network"


class Checkpoint:
    """The state of a fit in a file.

    Parameters
    ----------
    path : path-like
        A file, or a folder in which each fit has a file of its own.
    fit : dict of str to str
        What tells this fit from others: a digest of each parameter and of the data.
    processes : Processes, optional
        Those that share the fit: the first one reads and writes the file.

    Attributes
    ----------
    state : dict or None
        What the file holds, as :class:`sksetvalued.training.KeepState` took it.
    seed : int or None
        The seed of the fit that the file holds.
    """

    def __init__(self, path, fit, processes=None):
        self.fit = fit
        self._has_file = processes is None or processes.is_first
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"checkpoint must be a path of a file or folder, got {path!r}.")
        self.given = os.fspath(path)
        # Whatever the working directory will be.
        self.path = os.path.abspath(self.given)
        if os.path.isdir(path):
            own = hashlib.sha256(json.dumps(fit, sort_keys=True).encode()).hexdigest()
            self.path = os.path.join(self.path, f"fit-{own[:16]}.safetensors")
        self.state = self.seed = None
        if self._has_file:
            self._open()
        if processes is not None:
            self.state, self.seed = processes.first((self.state, self.seed))

    def _open(self):
        folder = os.path.dirname(self.path)
        if not os.path.isdir(folder):
            raise FileNotFoundError(
                f"checkpoint={self.given!r} cannot be written: there is no folder {folder!r}; "
                "make it first."
            )
        if os.path.isfile(self.path):
            self._read()
        elif os.path.exists(self.path):
            raise ValueError(
                f"checkpoint={self.given!r} is neither a file nor a folder, but a device or the "
                "like: give a path of a file."
            )

    def write(self, state, seed):
        """Write the state of a fit, whole or not at all."""
        if not self._has_file:
            return
        tensors = {}
        document = {"kind": KIND, "versions": _versions(), "fit": self.fit, "seed": seed}
        try:
            document["state"] = encode(state, tensors, "state")
        except NotEncodable as error:
            raise ValueError(
                f"checkpoint={self.given!r} cannot keep the state of this fit without code, it "
                f"holds {error}: fit without a checkpoint."
            ) from error
        write_whole(self.path, pack(document, tensors))

    def remove(self):
        """Remove the file of a fit that is complete."""
        if self._has_file:
            remove_whole(self.path)

    def _read(self):
        with open(self.path, "rb") as file:
            data = file.read()
        try:
            document, tensors = unpack(data)
            if document.get("kind") != KIND:
                raise ValueError("holds a model, and no fit under way")
            fit, versions = document["fit"], document["versions"]
            seed, state = document["seed"], Decoder(tensors)(document["state"])
            _check_form(fit, versions, seed, state)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise self.refusal(error) from error
        others = [name for name in self.fit | fit if self.fit.get(name) != fit.get(name)]
        if others:
            again = "fit as then to go on with it"
            if NETWORK in self.fit.keys() - fit.keys():
                again = "an estimator that was not fitted, as a clone is, goes on with it"
            raise ValueError(
                f"checkpoint={self.path!r} holds the state of another fit, which differs in "
                f"{', '.join(others)}: {again}; or give another path, or remove the file to begin "
                "anew."
            )
        self._warn(versions)
        self.seed, self.state = seed, state

    def refusal(self, error):
        """Return the error for a file that cannot be used."""
        return ValueError(
            f"checkpoint={self.path!r} cannot be resumed, it is not the whole and unchanged state "
            f"of such a fit ({error}): remove it to begin anew."
        )

    def _warn(self, versions):
        here = _versions()
        others = [name for name in here if versions.get(name) != here[name]]
        if others:
            told = ", ".join(f"{name} {versions.get(name)} -> {here[name]}" for name in others)
            warn_caller(
                f"The fit of checkpoint={self.path!r} goes on elsewhere ({told}): not bit by bit "
                "as if it had not ended.",
            )


def _check_form(fit, versions, seed, state):
    """Check the form of a stored state before a net loads it."""
    dicts = all(isinstance(part, dict) for part in (fit, versions, state))
    if not (dicts and is_int(seed) and is_int(state["n_epochs"])):
        raise ValueError("it is malformed")
    if not 0 < state["n_epochs"] <= len(state["history"]):
        raise ValueError(f"it tells of {state['n_epochs']} epochs, of which it has no history")


def _versions():
    """Return what must be equal for a fit to go on bit by bit."""
    return {
        "sksetvalued": __version__,
        "torch": torch.__version__,
        "instructions": str(instruction_set()),
        "threads": torch.get_num_threads(),
    }


def tell_apart(estimator, inputs, targets, start):
    """Return what tells a fit from others, by name.

    Parameters
    ----------
    estimator : DeepEstimator
    inputs : Inputs
    targets : dict
        Arrays, or lists of them, by name.
    start : Module or None
        The network that a warm start begins with.
    """
    params = {k: v for k, v in estimator.get_params(deep=False).items() if k not in IGNORED}
    params["device"] = torch.device(resolve_device(params["device"])).type
    if isinstance(params["random_state"], Integral):
        params["random_state"] = int(params["random_state"])
    else:
        # The seed that was drawn then is kept.
        del params["random_state"]
    told = {"estimator": type(estimator).__name__}
    told |= {name: digest(identity(value)) for name, value in params.items()}
    told["X"] = digest(inputs.kind, *inputs.parts())
    told |= {name: digest(value) for name, value in targets.items()}
    if start is not None:
        told[NETWORK] = digest(type(start).__qualname__, *flat(start.state_dict()))
    return told

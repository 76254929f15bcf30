"""What every source of backbones can do."""

import importlib
import re
from abc import ABC, abstractmethod
from types import ModuleType

import numpy as np

N_COLOURS = 3
#: Name of the weights that belong to a name of timm or of Hugging Face.
PRETRAINED = "pretrained"
#: Names of files and folders are none of these.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


class Source(ABC):
    """Where backbones come from: this package, a library, or the user.

    A new source is one file with a subclass, and its place in the list of this package.

    Attributes
    ----------
    prefix : str
        What the names of its backbones start with.
    takes_parts : bool
        Whether its backbones take samples of several parts, by name.
    n_channels : int or None
        Number of channels to which a single one is repeated.
    holds_constants : bool
        Whether its modules compute values that are in no state dict, so that a module around
        given weights must be built in full.
    params : set of str
        Arguments of its backbones that are numbers, which files may give.
    """

    prefix = ""
    takes_parts = False
    n_channels = None
    holds_constants = False
    params = frozenset()

    @abstractmethod
    def owns(self, backbone):
        """Return whether `backbone`, a parameter of an estimator, is of this source."""

    @abstractmethod
    def build(self, backbone, params, weights, form, generator):
        """Return the module that turns samples into features, with its weights.

        Parameters
        ----------
        backbone : object
        params : dict
            Arguments of the backbone.
        weights : str, path-like or None
        form : tuple of int or dict
            Shape of a sample; of several parts, shape and type by name.
        generator : torch.Generator or None
            Source of the initial weights of what is ours.
        """

    def names(self):
        """Return the names to show, without what only a prefix tells."""
        return []

    def statistics(self, backbone, weights, body):
        """Return mean and spread of the channels in the pretraining, None without one."""
        return None

    def describe(self, backbone, params, weights, body):
        """Return backbone and params from which :meth:`rebuild` makes the module anew."""
        return backbone, params

    def may_be_named(self, backbone):
        """Return whether a file may ask for this backbone, one that the source owns."""
        return False

    def may_be_given(self, params):
        """Return whether a file may give these arguments to a backbone of the source."""
        values_fit = all(map(is_number_or_numbers, params.values()))
        return params.keys() <= self.params and values_fit

    def n_layers(self, backbone, params):
        """Return the number of layers that the arguments ask for."""
        return 0

    def rebuild(self, backbone, params, form, generator):
        """Return the module that a file describes, without asking for anything elsewhere."""
        raise ValueError(f"backbone={backbone!r} cannot be made from a file")


def library(name: str, backbone: str) -> ModuleType:
    """Return an optional library, or raise ImportError that names the backbone."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"backbone={backbone!r} needs {name}, which cannot be imported ({error}): "
            f"pip install {name}."
        ) from error


def is_number_or_numbers(value):
    """Return whether a value is None, a number, or a flat list of numbers."""
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype.kind in "biuf"
    if isinstance(value, list | tuple):
        return all(isinstance(item, int | float) for item in value)
    return value is None or isinstance(value, int | float)

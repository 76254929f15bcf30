"""Sources of backbones: this package, libraries, and the user."""

import difflib

from ._base import N_COLOURS, Source
from ._built_in import BuiltIn
from ._own import Own
from ._timm import Timm
from ._torchvision import Torchvision
from ._transformers import Transformers

__all__ = ["N_COLOURS", "Source", "backbone_names", "is_built_in", "may_be_recorded", "source_of"]

BUILT_IN = BuiltIn()
#: The first one that owns a backbone makes it.
SOURCES = [BUILT_IN, Own(), Timm(), Transformers(), Torchvision()]


def source_of(backbone):
    """Return the source of a backbone, a parameter of an estimator.

    Raises
    ------
    ValueError
        A name that no source knows.
    """
    for source in SOURCES:
        if source.owns(backbone):
            return source
    names = backbone_names()
    close = difflib.get_close_matches(backbone, names, n=3)
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    prefixes = " and ".join(f"{source.prefix}NAME" for source in SOURCES if source.prefix)
    raise ValueError(
        f"backbone={backbone!r} is unknown.{hint} Known names: {', '.join(names)}, {prefixes}."
    )


def may_be_recorded(backbone, params, together=True):
    """Return whether a file may ask for a backbone with these arguments.

    Parameters
    ----------
    backbone : object
    params : dict
    together : bool, default=True
        Whether they must be for each other, as those of a network are. The parameters of an
        estimator may have been changed apart from each other.
    """
    try:
        source = source_of(backbone)
    except ValueError:
        return False
    given = source.may_be_given(params)
    if not together:
        given = given or any(other.may_be_given(params) for other in SOURCES if other.params)
    return given and source.may_be_named(backbone)


def backbone_names():
    """Return every name that `backbone` accepts, but those that start with "timm/" or "hf/".

    Returns
    -------
    names : list of str

    Examples
    --------
    >>> from sksetvalued.networks import backbone_names
    >>> {"convnet", "densenet40_40", "resnet50"} <= set(backbone_names())
    True
    """
    return [name for source in SOURCES for name in source.names()]


def is_built_in(backbone):
    """Return whether `backbone` is one of this package, by its name, its widths or None."""
    return BUILT_IN.owns(backbone)

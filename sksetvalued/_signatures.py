"""What constructors take."""

import functools
import inspect

BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@functools.lru_cache(maxsize=64)
def parameters_of(cls):
    """Return the names of the parameters of a class, found once.

    A constructor with ``**kwargs`` hands them on: those of the next class are among its own.
    """
    names = set()
    for base in cls.__mro__:
        if "__init__" not in vars(base):
            continue
        _, *parameters = inspect.signature(base.__init__).parameters.values()
        names |= {parameter.name for parameter in parameters if parameter.kind in BY_NAME}
        if all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in parameters):
            break
    return frozenset(names)

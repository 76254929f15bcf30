"""The law of every case: a right result, or a documented error that names an argument."""

import re
import warnings

import numpy as np

#: What the public functions raise.
DOCUMENTED = (ValueError, TypeError, FileNotFoundError)


class Violation(AssertionError):
    """A case that breaks the law."""


def judge(call, names, check, expect="either"):
    """Make a call; return "right", or the name of the documented error that it raised.

    Parameters
    ----------
    call : callable () -> result
    names : tuple of str
        Arguments, one of which the message of an error must hold.
    check : callable (result) -> None
        Raises AssertionError where the result is wrong.
    expect : {"right", "error", "either"}
        What has to happen; "either" where validity is a matter of taste.
    """
    try:
        result = call()
    except DOCUMENTED as error:
        said = " ".join([str(error), *getattr(error, "__notes__", ())])
        if not re.search(rf"\b({'|'.join(names)})\b", said):
            raise Violation(f"no argument of {names} is named: {error!r}") from error
        if expect == "right":
            raise Violation(f"valid arguments are refused: {error!r}") from error
        return type(error).__name__
    except Violation:
        raise
    except Exception as error:
        raise Violation(f"a raw error: {error!r}") from error
    if expect == "error":
        raise Violation(f"wrong arguments give {result!r:.200}")
    try:
        check(result)
    except AssertionError as error:
        raise Violation(f"a wrong result: {error} {result!r:.300}") from error
    return "right"


def strict_warnings():
    """Make errors of what NumPy and others warn of; the package's own warnings are said often."""
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", UserWarning)
    np.seterr(all="warn", under="ignore")


def same(found, expected, message):
    assert found == expected, f"{message}: {found!r}, not {expected!r}"


def is_mask(y_set, shape):
    """Raise unless this is a mask of booleans of a shape."""
    assert isinstance(y_set, np.ndarray), type(y_set)
    same(y_set.dtype, np.dtype(bool), "dtype")
    same(y_set.shape, shape, "shape")

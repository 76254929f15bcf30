"""Warnings that name the caller of this package, and what leaves some of them out."""

import contextlib
import inspect
import re
import warnings
from contextvars import ContextVar

#: Code of this package, and of the loops and the modules that call it back.
OWN = (f"{__package__}.", "joblib.", "skorch.", "sklearn.utils.parallel", "torch.nn.modules.")

#: Patterns of the warnings that are left out.
_muted = ContextVar("muted", default=())


@contextlib.contextmanager
def without_warnings(pattern=""):
    """Let :func:`warn_caller` leave out what holds a pattern, in this thread alone.

    Filters of :mod:`warnings` are those of the whole process.
    """
    token = _muted.set((*_muted.get(), re.compile(pattern)))
    try:
        yield
    finally:
        _muted.reset(token)


def warn_caller(message, category=UserWarning):
    """Warn where this package was called, however deep inside of it the reason was found.

    Return whether it was said.
    """
    if any(pattern.search(str(message)) for pattern in _muted.get()):
        return False
    frame, level = inspect.currentframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(OWN):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
    return True


#: Average sizes are judged from so many samples on.
FEWEST_COMPARED = 50
#: Sets that hold less than so large a share of k are warned of.
LEAST_SHARE = 0.9


#: Why they do.
TIES = (
    "many scores are equal, as shares of few votes are, or those of samples that are alike, and "
    "those at the threshold are in all sets or in none. Give other samples, or finer scores, as "
    "of more trees or of sklearn.calibration.CalibratedClassifierCV."
)


def hold_too_few(size, k, n_samples):
    """Return whether sets hold far less than `k` classes on average, as scores that tie leave."""
    return n_samples >= FEWEST_COMPARED and size < LEAST_SHARE * k - 1 / n_samples


def warn_every_class(k, n_classes, category=UserWarning):
    """Warn that sets of `k` classes are sets of every class."""
    if k >= n_classes:
        warn_caller(
            f"k={k} is at least the number of classes ({n_classes}): every class is returned. "
            "Choose a smaller k.",
            category,
        )

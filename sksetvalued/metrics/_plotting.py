"""Drawing with matplotlib, imported only when something is drawn."""

import numpy as np


def pyplot():
    """Return matplotlib.pyplot, or say how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "displays are drawn with matplotlib, which is not installed: pip install matplotlib."
        ) from error
    return plt


def axes_or_new(ax):
    """Return the axes given, or those of a new figure."""
    if ax is None:
        _, ax = pyplot().subplots(layout="constrained")
    if not hasattr(ax, "plot"):
        shape = np.shape(ax)
        got = f"{ax!r:.80}"
        if shape:
            kind = "an array" if isinstance(ax, np.ndarray) else f"a {type(ax).__name__}"
            first = ", ".join("0" * len(shape))
            got = f"{kind} of {' x '.join(map(str, shape))}: pass ax[{first}]"
        raise TypeError(f"ax must be one Axes, got {got}.")
    return ax


def of_lines(kwargs):
    """Return arguments of ``ax.plot`` by their whole names: "linestyle", not "ls"."""
    plt = pyplot()
    return plt.cbook.normalize_kwargs(kwargs, plt.Line2D)

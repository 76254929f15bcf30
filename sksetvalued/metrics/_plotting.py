"""Drawing with matplotlib, imported only when something is drawn."""


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
    return ax


def of_lines(kwargs):
    """Return arguments of ``ax.plot`` by their whole names: "linestyle", not "ls"."""
    plt = pyplot()
    return plt.cbook.normalize_kwargs(kwargs, plt.Line2D)

"""Histogram of set sizes."""

from itertools import pairwise

import numpy as np
from sklearn.utils import check_consistent_length

from .._predict import predict_set, unwrap
from .._sets import set_sizes
from .._validation import check_weights
from ._inputs import check_sets, labels_and_sets
from ._plotting import axes_or_new
from ._shots import GROUP_NAMES, check_training_counts, shot_groups

#: Up to this size every size has its own bar.
SINGLE_SIZES = 14
#: Width of all bars of a size together.
ALL_BARS = 0.85


class SetSizeDisplay:
    """Histogram of the sizes of sets, whole or by number of training samples of the true class.

    Draw several models side by side on one axis by passing ``ax=display.ax_``. Make it with
    :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    sizes : ndarray of shape (n_samples,)
        Number of classes in each set.
    n_classes : int
    groups : ndarray of shape (n_samples,), optional
        0, 1 or 2 for samples of classes with few, medium or many training samples.
    sample_weight : ndarray of shape (n_samples,), optional
    name : str, optional
        Name of the model.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> from sksetvalued.metrics import SetSizeDisplay
    >>> y_set = [[True, True, False], [False, True, False], [False, True, True]]
    >>> display = SetSizeDisplay.from_predictions(None, y_set)
    >>> display.sizes
    array([2, 1, 2])
    """

    def __init__(self, sizes, n_classes, *, groups=None, sample_weight=None, name=None):
        self.sizes = sizes
        self.n_classes = n_classes
        self.groups = groups
        self.sample_weight = sample_weight
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        y=None,
        *,
        class_counts=None,
        sample_weight=None,
        name=None,
        ax=None,
        **kwargs,
    ):
        """Draw the sizes of the sets that a fitted set-valued classifier predicts.

        Parameters
        ----------
        estimator : fitted set-valued classifier
            Or a pipeline or search around one.
        X : array-like of shape (n_samples, ...)
        y : array-like of shape (n_samples,), optional
            True labels, to split the histogram by shot group.
        class_counts : array-like of shape (n_classes,), optional
            Training samples per class. None: ``class_counts_`` of the classifier, if it has it,
            which are sums of weights where it was fitted with weights.
        sample_weight : array-like of shape (n_samples,), optional
        name : str, optional
            The default is the class of the classifier.
        ax : matplotlib Axes, optional
        **kwargs : dict
            Passed to ``ax.bar``.

        Returns
        -------
        display : SetSizeDisplay
        """
        model, X = unwrap(estimator, X)
        if class_counts is None and y is not None:
            class_counts = getattr(model, "class_counts_", None)
        return cls.from_predictions(
            y,
            predict_set(model, X, out="csr"),
            class_counts=class_counts,
            labels=model.classes_,
            sample_weight=sample_weight,
            name=type(model).__name__ if name is None else name,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true,
        y_set,
        *,
        class_counts=None,
        labels=None,
        sample_weight=None,
        name=None,
        ax=None,
        **kwargs,
    ):
        """Draw the sizes of given sets.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,) or None
            True labels. With `class_counts` they split the histogram by shot group.
        y_set : array-like or sparse matrix of shape (n_samples, n_classes)
            Boolean sets.
        class_counts : array-like of shape (n_classes,), optional
            Training samples per class, in the order of `labels`.
        labels : array-like of shape (n_classes,), optional
            Labels of the columns of `y_set`.
        sample_weight : array-like of shape (n_samples,), optional
        name : str, optional
        ax : matplotlib Axes, optional
        **kwargs : dict
            Passed to ``ax.bar``.

        Returns
        -------
        display : SetSizeDisplay
        """
        if class_counts is None:
            y_set, groups = check_sets(y_set), None
            check_consistent_length(y_true, y_set)
        else:
            y_set, groups = _sets_and_groups(y_true, y_set, class_counts, labels)
        weight = check_weights(sample_weight, y_set.shape[0])
        sizes = set_sizes(y_set)
        display = cls(sizes, y_set.shape[1], groups=groups, sample_weight=weight, name=name)
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax=None, **kwargs):
        """Draw the histogram.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            None: a new figure.
        **kwargs : dict
            Passed to ``ax.bar``.

        Returns
        -------
        self : SetSizeDisplay
        """
        ax = axes_or_new(ax)
        groups = np.zeros(len(self.sizes), int) if self.groups is None else self.groups
        weight = np.ones(len(self.sizes)) if self.sample_weight is None else self.sample_weight
        edges = size_bins(self.sizes[weight > 0].max())
        present = [g for g in range(len(GROUP_NAMES)) if weight[groups == g].any()]
        mean = np.average(self.sizes, weights=weight)
        prefix = "" if self.name is None else f"{self.name}, "
        n_before = len(_histograms(ax))
        n_histograms = n_before + len(present)
        _make_room(ax, n_histograms)
        for i, g in enumerate(present, n_before):
            share = self._shares(edges, groups == g, weight)
            kind = f"average size {mean:.3g}" if self.groups is None else GROUP_NAMES[g]
            at = _places(len(share), i, n_histograms)
            style = {"width": ALL_BARS / n_histograms, "label": prefix + kind, **kwargs}
            ax.bar(at, share, **style).of_set_sizes = True
        self._decorate(ax)
        if n_before:
            if ax.get_title() == getattr(ax.title, "of_set_sizes", None):
                ax.set_title("")  # that of the first model
            ax.legend()
        else:
            self._describe(ax, mean, [GROUP_NAMES[g] for g in present])
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _shares(self, edges, chosen, weight):
        counts, _ = np.histogram(self.sizes[chosen], bins=edges, weights=weight[chosen])
        return 100 * counts / weight[chosen].sum()

    def _decorate(self, ax):
        sharing = ax.get_shared_x_axes().get_siblings(ax)
        drawn = (len(bars) for other in sharing for bars in _histograms(other))
        names = bin_names(size_bins(0, max(drawn)))
        ax.set_xticks(np.arange(len(names)), names, rotation=45 if len(names[-1]) > 2 else 0)
        label = f"Set size (classes, of {self.n_classes})"
        # Histograms of several numbers of classes may share the axes.
        ax.set_xlabel(label if ax.get_xlabel() in ("", label) else "Set size (classes)")
        of = "samples" if self.groups is None else "samples of the group"
        ax.set_ylabel(f"Share of {of} (%)")

    def _describe(self, ax, mean, group_names):
        """Say in the title and the legend of the only model what its bars are."""
        title = f"Average size {mean:.3g} classes"
        if self.name is not None:
            title = f"{self.name}: {title[0].lower()}{title[1:]}"
        if not ax.get_title():
            ax.set_title(title).of_set_sizes = title
        if self.groups is not None:
            ax.legend(_histograms(ax), group_names, title="True class has")


def _sets_and_groups(y_true, y_set, class_counts, labels):
    if y_true is None:
        raise ValueError(
            "class_counts splits the histogram by the true class of each sample: pass the true "
            "labels too, or leave class_counts out."
        )
    _, columns, labels, y_set = labels_and_sets(y_true, y_set, labels)
    class_counts = check_training_counts(class_counts, labels)
    return y_set, shot_groups(columns, class_counts)


def _histograms(ax):
    """Return the bars that displays have drawn, and not those of others."""
    return [bars for bars in ax.containers if hasattr(bars, "of_set_sizes")]


def _places(n_bins, i, n_histograms):
    """Return the centres of the bars of one of several histograms side by side."""
    return np.arange(n_bins) + (i - (n_histograms - 1) / 2) * ALL_BARS / n_histograms


def _make_room(ax, n_histograms):
    """Move the histograms that are drawn to the first of so many places."""
    drawn = _histograms(ax)
    for i, bars in enumerate(drawn):
        for bar, at in zip(bars, _places(len(bars), i, n_histograms)):
            bar.set_width(bar.get_width() * len(drawn) / n_histograms)
            bar.set_x(at - bar.get_width() / 2)


def size_bins(largest, n_bins=0):
    """Return the edges of bins of set sizes: one per size as long as they are few, then wider.

    They are the first of the same bins whatever the sizes, so that histograms can share an axis.

    Parameters
    ----------
    largest : int
        The last bin holds it, or is behind.
    n_bins : int
        How many bins there are at least.

    Returns
    -------
    edges : ndarray
    """
    edges = [*range(SINGLE_SIZES + 2), 20, 30, 50]
    scale = 100
    while edges[-1] <= largest or len(edges) <= n_bins:
        edges.extend([scale, 2 * scale, 5 * scale])
        scale *= 10
    n_bins = max(n_bins, np.searchsorted(edges, largest, side="right"))
    return np.array(edges[: n_bins + 1])


def bin_names(edges):
    """Return the names of integer bins [edges[i], edges[i + 1])."""
    return [f"{low}" if high == low + 1 else f"{low}–{high - 1}" for low, high in pairwise(edges)]

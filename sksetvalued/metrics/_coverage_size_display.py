"""Coverage against average set size."""

import numpy as np

from .._average_size import AverageSizeSelector
from .._checks import check_integer, check_option
from .._masks import row_blocks, row_counts
from .._predict import set_scores, unwrap
from .._validation import check_weights
from ._inputs import labels_and_scores, scores_of_predict
from ._intervals import band_half_width, check_level
from ._plotting import axes_or_new, of_lines

#: From this many classes on, the axis of sizes is logarithmic.
LOG_SIZES = 20
#: Thresholds of a curve, at most, each at the end of a group of tied scores.
N_POINTS = 300
#: Marks the lines whose sizes the ticks of the axis show.
TOP_K_MARK = "top-k coverage"


class CoverageSizeDisplay:
    """Coverage against average set size, with k classes for each sample and on average.

    Draw several models on one axis by passing ``ax=display.ax_``. Make it with
    :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    top_k_sizes, top_k_coverage : ndarray of shape (n_sizes,)
        Coverage of the sets of the k highest scores, k = 1, 2, ...
    average_sizes, average_coverage : ndarray of shape (n_points,)
        Average size and coverage of the sets above one threshold, for many thresholds. Empty,
        and without a line in the legend, where ties leave none whose sets are small enough.
    average : {"micro", "macro"}, default="micro"
        How coverage is averaged.
    name : str, optional
        Name of the model.
    band : float, optional
        By how much the coverage at all thresholds at once may be off, drawn as a band.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D
        Average-k first, then top-k.

    Examples
    --------
    >>> from sksetvalued.metrics import CoverageSizeDisplay
    >>> y_score = [[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.7, 0.1]]
    >>> display = CoverageSizeDisplay.from_predictions([0, 0, 2], y_score, labels=[0, 1, 2])
    >>> display.top_k_coverage.round(2)
    array([0.33, 0.33, 1.  ])
    """

    def __init__(
        self,
        top_k_sizes,
        top_k_coverage,
        average_sizes,
        average_coverage,
        *,
        average="micro",
        name=None,
        band=None,
    ):
        self.top_k_sizes = top_k_sizes
        self.top_k_coverage = top_k_coverage
        self.average_sizes = average_sizes
        self.average_coverage = average_coverage
        self.average = average
        self.name = name
        self.band = band

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        y,
        *,
        max_size=None,
        average="micro",
        sample_weight=None,
        level=0.95,
        name=None,
        ax=None,
        **kwargs,
    ):
        """Draw the curves of a fitted classifier, set-valued or not.

        Parameters
        ----------
        estimator : fitted classifier
            Or a pipeline or search around one.
        X : array-like of shape (n_samples, ...)
        y : array-like of shape (n_samples,)
            True labels.
        max_size, average, sample_weight, level, name, ax, **kwargs
            As in :meth:`from_predictions`. The default name is that of the class.

        Returns
        -------
        display : CoverageSizeDisplay
        """
        model, X = unwrap(estimator, X)
        y_score, classes = set_scores(model, X)
        encoded = labels_and_scores(y, y_score, classes)
        name = type(model).__name__ if name is None else name
        top_scores = scores_of_predict(model, encoded[-1])
        drawn = cls._of_scores(
            encoded,
            top_scores,
            max_size=max_size,
            average=average,
            sample_weight=sample_weight,
            level=level,
            name=name,
        )
        return drawn.plot(ax=ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true,
        y_score,
        *,
        labels=None,
        max_size=None,
        average="micro",
        sample_weight=None,
        level=0.95,
        name=None,
        ax=None,
        **kwargs,
    ):
        """Draw the curves of given scores.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            True labels.
        y_score : array-like of shape (n_samples, n_classes)
        labels : array-like of shape (n_classes,), optional
            Labels of the columns of `y_score`.
        max_size : int, optional
            Largest size on the axis. None: all sizes up to 20 classes, or a tenth of the
            classes where that is more.
        average : {"micro", "macro"}, default="micro"
            Average of coverage over samples, or over classes.
        sample_weight : array-like of shape (n_samples,), optional
        level : float or None, default=0.95
            Level of the band, which holds for the coverage at all thresholds at once
            (`coverage_interval` with ``method="dkw"``); sizes are those of these samples. It is
            drawn for ``average="micro"`` without weights; None: never.
        name : str, optional
        ax : matplotlib Axes, optional
        **kwargs : dict
            Passed to ``ax.plot``.

        Returns
        -------
        display : CoverageSizeDisplay
        """
        encoded = labels_and_scores(y_true, y_score, labels)
        # Of one column, as `predict` of scikit-learn takes the greater label.
        top_scores = labels_and_scores(y_true, y_score, labels, strict=True)[-1]
        drawn = cls._of_scores(
            encoded,
            top_scores,
            max_size=max_size,
            average=average,
            sample_weight=sample_weight,
            level=level,
            name=name,
        )
        return drawn.plot(ax=ax, **kwargs)

    @classmethod
    def _of_scores(cls, encoded, top_scores, *, max_size, average, sample_weight, level, name):
        """Return the curves, not drawn; those of top-k are of scores of their own."""
        y_true, columns, _, y_score = encoded
        limit = _check_max_size(max_size, y_score.shape[1])
        weight = check_weights(sample_weight, len(y_true))
        shares = coverage_shares(y_true, average, weight)
        curves = (
            *top_k_curve(top_scores, columns, shares, limit),
            *average_k_curve(y_score, columns, shares, limit, weight),
        )
        band = None
        if level is not None:
            check_level(level)
            if average == "micro" and weight is None:
                band = band_half_width(len(y_true), level)
        return cls(*curves, average=average, name=name, band=band)

    def plot(self, ax=None, **kwargs):
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            None: a new figure.
        **kwargs : dict
            Passed to ``ax.plot``, for both curves.

        Returns
        -------
        self : CoverageSizeDisplay
        """
        ax = axes_or_new(ax)
        kwargs = of_lines(kwargs)
        prefix = "" if self.name is None else f"{self.name}, "
        own = {"label": f"{prefix}average-k" if len(self.average_sizes) else None, **kwargs}
        if len(self.average_sizes) == 1:
            own.setdefault("marker", "o")
        (line,) = ax.plot(self.average_sizes, 100 * self.average_coverage, **own)
        top = {"linestyle": "--", "color": line.get_color(), "label": f"{prefix}top-k", **kwargs}
        if len(self.top_k_sizes) <= LOG_SIZES:
            top.setdefault("marker", ".")
        (dashed,) = ax.plot(self.top_k_sizes, 100 * self.top_k_coverage, gid=TOP_K_MARK, **top)
        if self.band is not None:
            bounds = (np.clip(self.average_coverage + sign * self.band, 0, 1) for sign in (-1, 1))
            bounds = [100 * bound for bound in bounds]
            ax.fill_between(self.average_sizes, *bounds, color=line.get_color(), alpha=0.12, lw=0)
        self._decorate(ax)
        self.lines_, self.ax_, self.figure_ = [line, dashed], ax, ax.figure
        return self

    def _decorate(self, ax):
        if self.top_k_sizes[-1] > LOG_SIZES:
            ax.set_xscale("log")
            ax.xaxis.set_major_formatter("{x:g}")
        elif ax.get_xscale() == "linear":
            drawn = [line.get_xdata() for line in ax.lines if line.get_gid() == TOP_K_MARK]
            ax.set_xticks(np.arange(1, max(sizes[-1] for sizes in drawn) + 1))
        ax.set_xlabel("Average set size (classes)")
        over = "classes, macro" if self.average == "macro" else "samples, micro"
        label = f"Coverage (%, over {over})"
        # Curves of both averages may share the axes.
        ax.set_ylabel(label if ax.get_ylabel() in ("", label) else "Coverage (%)")
        ax.grid(alpha=0.3)
        ax.legend(loc="lower right")


def _check_max_size(max_size, n_classes):
    if max_size is None:
        return min(n_classes, max(LOG_SIZES, n_classes // 10))
    check_integer("max_size", max_size, 1, n_classes, also=" or None")
    return int(max_size)


def coverage_shares(y_true, average, weight=None):
    """Return what each sample contributes to the coverage when its set holds its class.

    Parameters
    ----------
    y_true : ndarray of shape (n_samples,)
    average : {"micro", "macro"}
    weight : ndarray of shape (n_samples,), optional

    Returns
    -------
    shares : ndarray of shape (n_samples,)
        Of sum 1.
    """
    check_option("average", average, ("micro", "macro"))
    weight = np.ones(len(y_true)) if weight is None else weight
    if average == "micro":
        return weight / weight.sum()
    _, inverse = np.unique(y_true, return_inverse=True)
    per_class = np.bincount(inverse, weights=weight)
    share = weight / np.where(per_class > 0, per_class, 1)[inverse]
    return share / np.count_nonzero(per_class)


def top_k_curve(y_score, columns, shares, limit):
    """Return k = 1, ..., limit and the top-k coverage, ties to the highest column.

    Parameters
    ----------
    y_score : ndarray of shape (n_samples, n_classes)
    columns : ndarray of shape (n_samples,)
        Column of the true class; -1 for a class without one.
    shares : ndarray of shape (n_samples,)
    limit : int
    """
    n_classes = y_score.shape[1]
    ranks = np.empty(len(columns), dtype=int)
    for rows in row_blocks(y_score.shape):
        block, column = y_score[rows], columns[rows][:, None]
        true = np.take_along_axis(block, column, axis=1)
        ahead = (block > true) | ((block == true) & (np.arange(n_classes) > column))
        ranks[rows] = row_counts(ahead)
    ranks[columns < 0] = n_classes
    coverage = np.cumsum(np.bincount(ranks, weights=shares, minlength=n_classes))
    return np.arange(1, limit + 1), coverage[:limit]


def average_k_curve(y_score, columns, shares, limit, weight):
    """Return average sizes up to limit and the coverage of the sets above one threshold.

    Parameters
    ----------
    y_score, columns, shares, limit
        As in `top_k_curve`.
    weight : ndarray of shape (n_samples,), optional
    """
    thresholds, sizes = _sizes_by_threshold(y_score, limit, weight)
    if limit <= LOG_SIZES:
        wanted = np.linspace(0, limit, N_POINTS)
    else:
        wanted = np.geomspace(sizes[:1].max(initial=0.5), limit, N_POINTS)
    at = np.unique(np.searchsorted(sizes, wanted, side="right") - 1)
    at = at[at >= 0]
    true = y_score[np.arange(len(columns)), columns]
    order = np.argsort(true)
    true, below = true[order], np.append(0, np.cumsum((shares * (columns >= 0))[order]))
    coverage = below[-1] - below[np.searchsorted(true, thresholds[at], side="left")]
    return sizes[at], coverage


def _sizes_by_threshold(y_score, limit, weight):
    """Return the distinct scores in falling order, and average sizes, to `limit`, of the sets."""
    total = len(y_score) if weight is None else weight.sum()
    selector = AverageSizeSelector(limit, n_samples=len(y_score), total_weight=total)
    values, weights = selector.update(y_score, weight).remembered()
    order = np.argsort(values)[::-1]
    spent = np.arange(1, len(order) + 1) if weights is None else np.cumsum(weights[order])
    values = values[order]
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], len(values) > 0))
    return values[ends], np.minimum(spent[ends] / total, y_score.shape[1])

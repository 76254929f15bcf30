"""What sets cover, how large they are, and for whom, in one report."""

import numpy as np

from .._arrays import plain_labels
from .._checks import check_option, check_real
from .._predict import predict_set, unwrap
from .._sets import in_set, set_sizes
from ._inputs import labels_and_sets
from ._intervals import binomial_interval, check_level, macro_interval
from ._plotting import axes_or_new
from ._shots import GROUP_NAMES, check_training_counts, shot_groups

#: So many classes of least coverage are named in the text.
N_WORST = 5
#: Characters that names take.
LEAST_WIDTH, MOST_WIDTH = 28, 60


class SetReport:
    """Coverage with its interval, sizes, shot groups, classes and drift, of given sets.

    Print it, take it as a table by :meth:`to_frame`, or draw it by :meth:`plot`. Make it with
    :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    rows : list of dict
        One for each line: "over" ("samples", "classes", "group" or "class"), "name", and what
        :meth:`to_frame` lists.
    absent : list
        Labels that do not occur.
    empty_share : float
        Share of the sets that are empty.
    expected_size : tuple of two floats, optional
        The average size that the calibration lets expect, and its standard error.
    level : float, default=0.95
        Level of the intervals.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from sksetvalued.metrics import SetReport
    >>> y_true = np.repeat(["ash", "oak"], [80, 20])
    >>> y_set = np.zeros((100, 2), bool)
    >>> y_set[:76, 0] = y_set[80:95, 1] = y_set[:30, 1] = True
    >>> print(SetReport.from_predictions(y_true, y_set))
                                  classes samples coverage   95 % interval  size
    over samples                        2     100   91.0 %   83.8 - 95.2 %  1.21
    over classes                        2     100   85.0 %   73.0 - 92.3 %  1.04
    class oak                                  20   75.0 %   53.1 - 88.8 %  0.75
    class ash                                  80   95.0 %   87.8 - 98.0 %  1.32
    Empty sets: 9.0 %.
    """

    def __init__(self, rows, absent, empty_share, *, expected_size=None, level=0.95):
        self.rows = rows
        self.absent = absent
        self.empty_share = empty_share
        self.expected_size = expected_size
        self.level = level

    @classmethod
    def from_estimator(cls, estimator, X, y, *, class_counts=None, level=0.95, method="wilson"):
        """Report on the sets that a fitted set-valued classifier predicts.

        Parameters
        ----------
        estimator : fitted set-valued classifier
            Or a pipeline or search around one.
        X : array-like of shape (n_samples, ...)
        y : array-like of shape (n_samples,)
            True labels.
        class_counts : array-like of shape (n_classes,), optional
            Training samples per class. None: ``class_counts_`` of the classifier, if it has it,
            which are sums of weights where it was fitted with weights.
        level, method
            As in :func:`coverage_interval`.

        Returns
        -------
        report : SetReport
        """
        model, X = unwrap(estimator, X)
        if class_counts is None:
            class_counts = getattr(model, "class_counts_", None)
        expected = getattr(getattr(model, "rule_", None), "expected_size_", None)
        return cls.from_predictions(
            y,
            predict_set(model, X, out="csr"),
            labels=model.classes_,
            class_counts=class_counts,
            expected_size=expected,
            level=level,
            method=method,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true,
        y_set,
        *,
        labels=None,
        class_counts=None,
        expected_size=None,
        level=0.95,
        method="wilson",
    ):
        """Report on given sets.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            True labels.
        y_set : array-like or sparse matrix of shape (n_samples, n_classes)
            Boolean (or 0/1) sets.
        labels : array-like of shape (n_classes,), optional
            Labels of the columns. A true label that is not among them is a miss.
        class_counts : array-like of shape (n_classes,), optional
            Training samples per class, for the lines of the shot groups.
        expected_size : tuple of two floats, optional
            Average size that the calibration lets expect, and its standard error, for the line
            of the drift.
        level : float, default=0.95
        method : {"wilson", "clopper-pearson"}, default="wilson"

        Returns
        -------
        report : SetReport
        """
        check_level(level)
        check_option("method", method, ("wilson", "clopper-pearson"))
        if expected_size is not None:
            _check_expected(expected_size)
        y_true, columns, labels, y_set = labels_and_sets(y_true, y_set, labels)
        table = _Table(y_true, columns, y_set, level, method)
        rows = [table.micro(), table.macro("classes", "", np.ones(len(table.classes), bool))]
        if class_counts is not None:
            class_counts = check_training_counts(class_counts, labels)
            group = shot_groups(table.columns, class_counts)
            shown = [(g, name) for g, name in enumerate(GROUP_NAMES) if (group == g).any()]
            rows += [table.macro("group", name, group == g) for g, name in shown]
        rows += table.each_class()
        seen = np.bincount(columns[columns >= 0], minlength=len(labels))
        empty = float(np.mean(table.sizes == 0))
        absent = plain_labels(labels[seen == 0])
        return cls(rows, absent, empty, expected_size=expected_size, level=level)

    def to_frame(self):
        """Return the lines as a table.

        Returns
        -------
        frame : pandas.DataFrame
            Columns over, name, n_classes, n_samples, coverage, low, high, size (average over
            what the line is over) and size_error (the standard error of that, NaN for one
            sample; classes of one sample are taken together, as samples drawn at large, a single
            one as if it varied like the others).
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                "the table is a DataFrame of pandas, which is not installed: pip install pandas, "
                "or read SetReport.rows."
            ) from error
        return pandas.DataFrame(self.rows)

    def __str__(self):
        classes = sorted((r for r in self.rows if r["over"] == "class"), key=_coverage_of)
        shown = [row for row in self.rows if row["over"] != "class"] + classes[:N_WORST]
        width = min(max(LEAST_WIDTH, *(len(_name(row)) for row in shown)), MOST_WIDTH)
        head = f"{'':{width}}{'classes':>9}{'samples':>8}{'coverage':>9}"
        lines = [f"{head}{f'{100 * self.level:g} % interval':>16}{'size':>6}"]
        lines += [_line(row, width) for row in shown]
        if len(classes) > N_WORST:
            n_more = len(classes) - N_WORST
            of = "class" if n_more == 1 else "classes"
            lines.append(f"... and {n_more} more {of}, covered at least as often.")
        lines.append(f"Empty sets: {100 * self.empty_share:.1f} %.")
        if self.expected_size is not None:
            lines.append(self._drift())
        if self.absent:
            more = "..." if len(self.absent) > N_WORST else ""
            lines.append(f"Without samples: {self.absent[:N_WORST]}{more} ({len(self.absent)}).")
        return "\n".join(lines)

    __repr__ = __str__

    def _drift(self):
        expected, error = self.expected_size
        size = self.rows[0]["size"]
        error = np.hypot(error, self.rows[0]["size_error"])
        off = (
            f", {abs(size - expected) / error:.1f} standard errors off"
            if 0 < error < np.inf
            else ""
        )
        return f"Expected size: {expected:.3g}; found {size:.3g}{off}."

    def plot(self, ax=None, **kwargs):
        """Draw the coverage of each line but those of single classes, with its interval.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            None: a new figure. Each report needs axes, and a y axis, of its own.
        **kwargs : dict
            Passed to ``ax.errorbar``.

        Returns
        -------
        self : SetReport
        """
        ax = axes_or_new(ax)
        _check_free(ax)
        rows = [row for row in self.rows if row["over"] != "class"]
        centre, low, high = (100 * np.array([r[k] for r in rows]) for k in _COVERAGE)
        at = np.arange(len(rows))
        style = {"fmt": "o", "capsize": 3, **kwargs}
        # Rounding may put a limit beyond the coverage.
        spread = np.maximum([centre - low, high - centre], 0)
        ax.errorbar(centre, at, xerr=spread, **style).of_set_report = True
        names = [f"{_name(row)}\n{row['size']:.2f} classes per set" for row in rows]
        ax.set_yticks(at, names)
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.set_xlabel(f"Coverage (%), with {100 * self.level:g} % intervals")
        ax.grid(axis="x", alpha=0.3)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _check_free(ax):
    """Raise where a report has named the lines of the y axis."""
    sharing = ax.get_shared_y_axes().get_siblings(ax)
    if any(hasattr(drawn, "of_set_report") for other in sharing for drawn in other.containers):
        raise ValueError(
            "ax holds a SetReport, or shares the y axis of one, which names its lines: draw "
            "each report on axes of its own, as of plt.subplots(2, sharex=True)."
        )


_COVERAGE = ("coverage", "low", "high")


class _Table:
    """Hits and sizes of the classes that occur, and the lines made of them."""

    def __init__(self, y_true, columns, y_set, level, method):
        self.level, self.method = level, method
        self.sizes, self.hits = set_sizes(y_set), in_set(y_set, columns)
        self.classes, first, at = np.unique(y_true, return_index=True, return_inverse=True)
        self.columns, self.n_samples = columns[first], np.bincount(at)
        self.n_hits = np.bincount(at, weights=self.hits)
        self.size = np.bincount(at, weights=self.sizes) / self.n_samples
        squares = np.bincount(at, weights=(self.sizes - self.size[at]) ** 2)
        # One sample does not tell how much sizes vary.
        self.spread = squares / np.where(self.n_samples > 1, self.n_samples - 1, np.nan)

    def micro(self):
        x, m = self.hits.sum(), len(self.hits)
        low, high = binomial_interval(x, m, self.level, self.method)
        error = self.sizes.std(ddof=1) / np.sqrt(m) if m > 1 else np.nan
        sizes = (self.sizes.mean(), error)
        return _row("samples", "", len(self.classes), m, x / m, low, high, *sizes)

    def macro(self, over, name, chosen):
        x, m = self.n_hits[chosen], self.n_samples[chosen]
        low, high = macro_interval(x, m, self.level, self.method)
        spread = _with_lone(self.spread[chosen], self.size[chosen], m == 1)
        sizes = (self.size[chosen].mean(), np.sqrt(np.sum(spread / m)) / len(m))
        return _row(over, name, len(m), m.sum(), np.mean(x / m), low, high, *sizes)

    def each_class(self):
        low, high = binomial_interval(self.n_hits, self.n_samples, self.level, self.method)
        error = np.sqrt(self.spread / self.n_samples)
        columns = (self.n_samples, self.n_hits / self.n_samples, low, high, self.size, error)
        values = zip(plain_labels(self.classes), *columns)
        return [_row("class", name, 1, *rest) for name, *rest in values]


def _check_expected(expected_size):
    if np.shape(expected_size) != (2,):
        raise ValueError(
            "expected_size must hold two numbers, an average size and its standard error, as the "
            f"expected_size_ of AverageK, got {expected_size!r}."
        )
    for value in expected_size:
        check_real("expected_size", value, "[0, inf]")


def _with_lone(spread, size, lone):
    """Return the variances of sizes within classes, with those of classes of one sample."""
    if np.count_nonzero(lone) > 1:
        other = size[lone].var(ddof=1)
    else:
        other = spread[~lone].mean() if not lone.all() else np.nan
    return np.where(lone, other, spread)


def _row(over, name, n_classes, n_samples, coverage, low, high, size, size_error):
    values = (coverage, low, high, size, size_error)
    row = {"over": over, "name": name, "n_classes": int(n_classes), "n_samples": int(n_samples)}
    return row | dict(zip((*_COVERAGE, "size", "size_error"), map(float, values)))


def _coverage_of(row):
    return row["coverage"]


def _name(row):
    if row["over"] in ("samples", "classes"):
        return f"over {row['over']}"
    return f"{'' if row['over'] == 'group' else 'class '}{row['name']}"


def _shortened(name, width):
    """Return a name without its middle where it is too long."""
    return name if len(name) <= width else f"{name[: width // 2]}…{name[-((width - 1) // 2) :]}"


def _line(row, width):
    n_classes = "" if row["over"] == "class" else row["n_classes"]
    interval = f"{100 * row['low']:.1f} - {100 * row['high']:.1f} %"
    return (
        f"{_shortened(_name(row), width):{width}}{n_classes:>9}{row['n_samples']:>8}"
        f"{100 * row['coverage']:>7.1f} %{interval:>16}{row['size']:>6.2f}"
    )

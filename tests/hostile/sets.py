"""Cases of the rules and of the metrics."""

import numpy as np

from sksetvalued import metrics, rules

from .law import is_mask, judge, same
from .values import (
    NO_NUMBERS,
    as_given,
    floats,
    labels,
    no_array,
    no_labels,
    number,
    together,
)


def scores_of(rng, n_samples, n_classes, kind):
    """Return probabilities, log-probabilities or scores of any kind."""
    values = floats(rng, (n_samples, n_classes), extreme=kind == "any")
    if kind == "any":
        return values
    values = np.exp(np.clip(values, -50, 50))
    values = values / values.sum(1, keepdims=True)
    with np.errstate(divide="ignore"):
        return values if kind == "proba" else np.log(values)


def _weights(rng, n_samples):
    if rng.random() < 0.8:
        return None, "right"
    weight = np.array([rng.choice((0.5, 1.0, 2.0, 1e-300, 1e30)) for _ in range(n_samples)])
    if rng.random() < 0.7:
        return weight, "right"
    wrong = (-weight, weight * 0, weight * np.nan, weight[:-1], "w", weight + 1j, {}, [None])
    return rng.choice(wrong), "error"


def _rule(rng, n_classes):
    """Return a function that builds a rule, its arguments, what to expect, and its scores."""
    kind = rng.choice(("TopK", "AverageK", "AverageError", "PointwiseError"))
    params, expected = {}, []
    log = rng.random() < 0.3
    scores = "log" if log else "proba"
    params["log_scores"] = log
    if kind in ("TopK", "AverageK"):
        valid = rng.randrange(1, n_classes + 1)
        params["k"], outcome = number(rng, valid if kind == "TopK" else valid - 0.5, 0.1)
    else:
        params["error"], outcome = number(rng, rng.choice((0.05, 0.1, 0.5, 0.9)), 0.1)
    expected.append(outcome)
    if kind != "PointwiseError" and rng.random() < 0.3:
        params["objective"] = "macro"
        params["prior"] = np.full(n_classes, 1 / n_classes)
        if rng.random() < 0.2:
            wrong = ([0.0] * n_classes, [np.nan] * n_classes, "p", [0.5] * (n_classes + 9), 1j)
            params["prior"] = rng.choice(wrong)
            expected.append("error")
    elif kind in ("TopK", "AverageK") and rng.random() < 0.5:
        scores = "any"
    if kind == "AverageK" and rng.random() < 0.3:
        for name, valid in (("min_size", 0), ("max_size", n_classes)):
            params[name], outcome = number(rng, valid, 0.1)
            if params[name] is None:
                outcome = "either"
            expected.append(outcome)
        params["finite_sample"] = rng.random() < 0.3
    if kind == "AverageError":
        params["coverage"] = rng.choice(("micro", "macro", "class"))
        if params["coverage"] == "class" and rng.random() < 0.5:
            params["interpolation"] = rng.random()
    if rng.random() < 0.03:
        params["objective"] = rng.choice(("mega", None, 3, b"micro"))
        expected.append("either" if kind == "PointwiseError" else "error")
        if kind == "PointwiseError":
            del params["objective"]
    return getattr(rules, kind), params, together(*expected), scores


def rule_case(rng):
    """Fit a rule on scores of any kind, and predict sets."""
    n_samples, n_classes = rng.randrange(1, 9), rng.randrange(1, 7)
    cls, params, expect, kind = _rule(rng, n_classes)
    table = scores_of(rng, n_samples, n_classes, kind)
    y_score, of_scores = as_given(rng, table), "right"
    if rng.random() < 0.08:
        y_score, of_scores = no_array(rng, n_samples, n_classes), "either"
    y, of_y = np.array([rng.randrange(n_classes) for _ in range(n_samples)]), "right"
    if rng.random() < 0.05:
        y = rng.choice((y - 99, y + 99, y + 0.5, y.astype(str), y[:-1], "y", 3, {}, y + 1j))
        of_y = "error"
    weight, of_weight = _weights(rng, n_samples)

    in_pieces = rng.random() < 0.2
    with_promise = weight is not None and params.get("finite_sample")
    if with_promise or (of_weight == "error" and in_pieces):
        of_weight = "either"

    def call():
        rule = cls(**params)
        fit = rule.partial_fit if in_pieces else rule.fit
        fit(y_score, y, sample_weight=weight)
        return rule, rule.predict_set(y_score)

    def check(result):
        rule, y_set = result
        is_mask(y_set, table.shape if of_scores == "right" else y_set.shape)
        sizes = y_set.sum(1)
        if cls is rules.TopK:
            assert (sizes == min(int(params["k"]), y_set.shape[1])).all(), "a size that is not k"
        if cls is rules.AverageK:
            check_average(rule, params, sizes, weight)
        if cls is rules.PointwiseError:
            assert (sizes >= 1).all(), "an empty set"
        threshold = getattr(rule, "threshold_", None)
        assert threshold is None or not np.isnan(threshold), "the threshold is NaN"

    names = ("y_score", "y", "sample_weight", *params, "k", "PointwiseError", "AverageK")
    return judge(call, names, check, together(expect, of_scores, of_y, of_weight))


def check_average(rule, params, sizes, weight):
    """Raise where the sets are larger than k on average, or than their bounds."""
    least = params.get("min_size", 0) or 0
    most = params.get("max_size")
    assert (sizes >= min(int(least), rule.n_classes_)).all(), "a set below min_size"
    assert most is None or (sizes <= int(most)).all(), "a set above max_size"
    if params["k"] < rule.n_classes_:
        mean = np.average(sizes, weights=weight)
        assert mean <= max(params["k"], least) * (1 + 1e-6), f"{mean} classes on average"


# -- metrics --------------------------------------------------------------------------------


def metric_case(rng):
    """Call a metric with labels, scores, sets and weights of any kind."""
    (name,) = rng.choices(list(METRICS), METRIC_WEIGHTS)
    n_samples, n_classes = rng.randrange(1, 9), 3
    y_true, of_y = labels(rng, n_samples), "right"
    columns = np.unique(np.asarray(y_true))
    if rng.random() < 0.1:
        y_true, of_y = no_labels(rng, n_samples), "either"
    options, expected = {}, [of_y]
    if len(columns) < n_classes or rng.random() < 0.3 or of_y != "right":
        spare = np.array(["x", "y", "z"]) if columns.dtype.kind in "UO" else np.array([7, 8, 9])
        columns = np.concatenate([columns, spare.astype(columns.dtype, copy=False)])[:n_classes]
        options["labels"] = columns[::-1]
        if rng.random() < 0.1:
            options["labels"] = no_labels(rng, n_classes)
            expected.append("either")
    weight, of_weight = _weights(rng, n_samples)
    return METRICS[name](rng, (n_samples, n_classes), y_true, options, weight, expected, of_weight)


def _average(rng, options, expected):
    if rng.random() < 0.5:
        options["average"] = rng.choice(("micro", "macro", None))
        if rng.random() < 0.05:
            options["average"] = rng.choice(("weighted", 3, [], b"micro"))
            expected.append("error")


def _is_share(result, options):
    if options.get("average", "micro") is None:
        result = np.asarray(result)
        same(result.shape, (3,), "shape")
        result = result[~np.isnan(result)]
    else:
        assert isinstance(result, float), type(result)
    assert np.all((result >= 0) & (result <= 1 + 1e-12)), "no share"


def _accuracy(rng, shape, y_true, options, weight, expected, of_weight):
    metric = rng.choice((metrics.top_k_accuracy_score, metrics.average_k_accuracy_score))
    y_score = as_given(rng, scores_of(rng, *shape, rng.choice(("any", "log"))))
    if rng.random() < 0.1:
        y_score = no_array(rng, *shape)
        expected.append("either")
    _average(rng, options, expected)
    options["k"], outcome = number(rng, rng.randrange(1, 4), 0.1)
    expected.append(outcome)
    return judge(
        lambda: metric(y_true, y_score, sample_weight=weight, **options),
        ("y_true", "y_score", "sample_weight", "labels", "k", "average"),
        lambda result: _is_share(result, options),
        together(*expected, of_weight),
    )


def _sets(rng, shape, expected):
    y_set = np.random.default_rng(rng.getrandbits(32)).random(shape) < 0.5
    kind = rng.randrange(6)
    if kind == 0:
        y_set = y_set.astype(rng.choice((int, float, np.uint8, object)))
    elif kind == 1:
        y_set = y_set.tolist()
    if rng.random() < 0.1:
        y_set = no_array(rng, *shape)
        expected.append("either")
    return y_set


def _coverage(rng, shape, y_true, options, weight, expected, of_weight):
    y_set = _sets(rng, shape, expected)
    _average(rng, options, expected)
    return judge(
        lambda: metrics.set_coverage_score(y_true, y_set, sample_weight=weight, **options),
        ("y_true", "y_set", "sample_weight", "labels", "average"),
        lambda result: _is_share(result, options),
        together(*expected, of_weight),
    )


def _shot(rng, shape, y_true, options, weight, expected, of_weight):
    y_set = _sets(rng, shape, expected)
    counts = rng.choice(([5, 50, 500], np.array([0, 20, 100]), (1.5, 2, 3)))
    if rng.random() < 0.1:
        counts = rng.choice((*NO_NUMBERS, [1, 2], [1, 2, 1j], ["a", "b", "c"], [np.nan] * 3))
        expected.append("either")

    def check(result):
        same(set(result), {"few", "medium", "many"}, "keys")
        shares = np.array(list(result.values()))
        assert not (shares < 0).any(), "no share"
        assert not (shares > 1 + 1e-12).any(), "no share"

    return judge(
        lambda: metrics.shot_coverage_score(
            y_true, y_set, class_counts=counts, sample_weight=weight, **options
        ),
        ("y_true", "y_set", "sample_weight", "labels", "class_counts"),
        check,
        together(*expected, of_weight),
    )


def _interval(rng, shape, y_true, options, weight, expected, of_weight):
    y_set = _sets(rng, shape, expected)
    _average(rng, options, expected)
    options["method"] = rng.choice(("wilson", "clopper-pearson", "dkw", "wald"))
    if options["method"] == "wald" or options["method"] == "dkw":
        expected.append("error" if options["method"] == "wald" else "either")
    options["level"], outcome = number(rng, rng.choice((0.5, 0.95)), 0.1)
    expected.append(outcome)

    def check(result):
        low, high = (np.atleast_1d(bound) for bound in result)
        held = np.isnan(low) | ((low >= 0) & (low <= high) & (high <= 1))
        assert held.all(), "no interval"

    return judge(
        lambda: metrics.coverage_interval(y_true, y_set, **options),
        ("y_true", "y_set", "labels", "average", "method", "level"),
        check,
        together(*expected),
    )


def _sizes(rng, shape, y_true, options, weight, expected, of_weight):
    expected = [of_weight]
    y_set = _sets(rng, shape, expected)
    metric = rng.choice((metrics.average_set_size, metrics.set_size_distribution))

    def check(result):
        if metric is metrics.average_set_size:
            assert 0 <= result <= np.asarray(y_set).shape[1] + 1e-9, "no size"
        else:
            assert abs(result.sum() - 1) < 1e-9, "no distribution"

    return judge(
        lambda: metric(y_set, sample_weight=weight),
        ("y_set", "sample_weight"),
        check,
        together(*expected),
    )


def _threshold(rng, shape, y_true, options, weight, expected, of_weight):
    expected = [of_weight]
    table = scores_of(rng, *shape, rng.choice(("any", "log", "proba")))
    y_score = as_given(rng, table)
    if rng.random() < 0.1:
        y_score = no_array(rng, *shape)
        expected.append("either")
    k, outcome = number(rng, rng.choice((0.5, 1, 2.5)), 0.1)

    def check(threshold):
        assert isinstance(threshold, float), type(threshold)
        assert not np.isnan(threshold), "NaN"

    return judge(
        lambda: metrics.average_k_threshold(y_score, k, sample_weight=weight),
        ("y_score", "k", "sample_weight"),
        check,
        together(*expected, outcome),
    )


def _report(rng, shape, y_true, options, weight, expected, of_weight):
    y_set = _sets(rng, shape, expected)
    counts = rng.choice((None, [5, 50, 500]))
    return judge(
        lambda: str(
            metrics.SetReport.from_predictions(y_true, y_set, class_counts=counts, **options)
        ),
        ("y_true", "y_set", "labels", "class_counts"),
        lambda text: same(text.startswith(" " * 28), True, "head"),
        "either",
    )


METRICS = {
    "accuracy": _accuracy,
    "coverage": _coverage,
    "shot": _shot,
    "interval": _interval,
    "sizes": _sizes,
    "threshold": _threshold,
    "report": _report,
}
METRIC_WEIGHTS = (6, 4, 3, 2, 2, 3, 1)

CASES = {"rules": rule_case, "metrics": metric_case}

"""Markdown tables of one experiment."""

import json
import math

import numpy as np

from .statistics import BETTER, WORSE, interval, verdict

RULE_TITLES = {
    "average_k": "Sets of K classes on average, by one threshold on softmax scores",
    "average_k_macro": "Sets of K classes on average, by one threshold on p / prior",
    "average_k_sigmoid": "Sets of K classes on average, by one threshold on sigmoid scores",
    "top_k": 'Sets of the K classes of largest p (`objective="micro"`)',
    "top_k_macro": 'Sets of the K classes of largest p / prior (`objective="macro"`)',
    "top_k_of_average_k": "Sets of exactly K classes, tuned and trained for these",
}


def table(header, rows, n_texts=1):
    """Return the lines of a markdown table, whose first columns hold text."""
    lines = [header, ["---"] * n_texts + ["---:"] * (len(header) - n_texts), *rows]
    return ["| " + " | ".join(map(str, line)) + " |" for line in lines] + [""]


def with_interval(mean, half_width, sign=False):
    """Return "mean ± half-width"; one decimal, or two where the interval is narrow."""
    digits = 2 if half_width < 0.1 else 1
    text = f"{mean:{'+' if sign else ''}.{digits}f}"
    return text if math.isnan(half_width) else f"{text} ± {half_width:.{digits}f}"


def coverage_table(m, rule):
    """Return coverage by contender and K, with the average size where it may differ from K."""
    ks = [k for k in m.experiment.ks if any(m.has(n, rule, k) for n in m.experiment.contenders)]
    means = {
        (name, k): interval(m.values(name, rule, k))
        for name in m.experiment.contenders
        for k in ks
        if m.has(name, rule, k)
    }
    best = {k: max(mean for (_, own), (mean, _) in means.items() if own == k) for k in ks}
    rows = []
    for name in dict.fromkeys(name for name, _ in means):
        cells = []
        for k in ks:
            text = with_interval(*means[name, k])
            text = f"**{text}**" if means[name, k][0] == best[k] else text
            if rule.startswith("average_k"):
                text += f" (size {m.values(name, rule, k, 'size').mean():.2f})"
            cells.append(text)
        rows.append([name, *cells])
    return table(["", *(f"K = {k}" for k in ks)], rows)


def difference_table(m, rule):
    """Return the paired differences to the reference, of sets made by the same rule."""
    reference, *others = m.experiment.contenders
    ks = [k for k in m.experiment.ks if m.has(reference, rule, k)]
    rows = [
        [name, *(_signed(m.difference((name, rule), (reference, rule), k)) for k in ks)]
        for name in others
        if ks and m.has(name, rule, ks[0])
    ]
    return table([f"minus {reference}", *(f"K = {k}" for k in ks)], rows) if rows else []


def rule_table(m, left, right):
    """Return the paired differences between two rules, each contender tuned for each."""
    names = [n for n in m.experiment.contenders if _shared(m, n, left, right)]
    ks = _shared(m, names[0], left, right) if names else []
    rows = [[n, *(_signed(m.difference((n, left), (n, right), k)) for k in ks)] for n in names]
    return table([f"`{left}` minus `{right}`", *(f"K = {k}" for k in ks)], rows) if rows else []


def _shared(m, name, left, right):
    return [k for k in m.experiment.ks if m.has(name, left, k) and m.has(name, right, k)]


def _signed(difference):
    text = with_interval(*difference, sign=True)
    return text if verdict(*difference) not in (BETTER, WORSE) else f"**{text}**"


def shot_table(m, rule, k):
    """Return the coverage of the classes with few, medium and many training samples."""
    groups = m.shot_groups()
    rows = [
        [name, *(with_interval(*interval(m.values(name, rule, k, g))) for g in groups)]
        for name in m.experiment.contenders
        if m.has(name, rule, k)
    ]
    return table([f"`{rule}`, K = {k}", *groups], rows)


def top_1_table(m):
    """Return the accuracy of the likeliest class, and its differences to the reference."""
    reference, rule = next(iter(m.experiment.contenders)), m.experiment.rules[0]
    rows = []
    for name in m.experiment.contenders:
        for k in m.experiment.ks:
            gap = m.difference((name, rule), (reference, rule), k, "top_1")
            gap = "" if name == reference else _signed(gap)
            rows.append([name, k, with_interval(*interval(m.values(name, rule, k, "top_1"))), gap])
    return table(["", "trained for K", "top-1", f"minus {reference}"], rows, n_texts=2)


def size_table(m, rule, k):
    """Return the average size of the sets by number of training samples of the true class."""
    groups = m.shot_groups()
    rows = []
    for name in m.experiment.contenders:
        sizes = m.shot_sizes(name, rule, k) if m.has(name, rule, k) else None
        if sizes is not None:
            rows.append([name, *(f"{sizes[group]:.2f}" for group in groups)])
    return table([f"Average size, `{rule}`, K = {k}", *groups], rows) if rows else []


def choice_table(experiment, chosen):
    """Return the configurations chosen on validation data."""
    rows = []
    for name, contender in experiment.contenders.items():
        cells = experiment.cells(name) if len(experiment.configurations(name)) > 1 else []
        grid = experiment.grid | (contender.grid or {})
        for rule, k in cells:
            _, params = chosen[name, rule, k]
            text = ", ".join(
                f"{key}={json.dumps(value)}"
                for key, value in sorted(params.items())
                if len(grid.get(key, ())) > 1
            )
            rows.append([name, f"`{rule}`", k, text])
    return table(["", "rule", "K", "chosen"], rows, n_texts=4) if rows else []


def default_table(m):
    """Return how far contenders that were not tuned are from the best of the tuned ones."""
    defaults = [n for n, c in m.experiment.contenders.items() if c.grid is None]
    rules = [r for r in m.experiment.rules if not r.startswith("top_k_of")]
    rows = []
    for name in defaults:
        for k in m.experiment.ks:
            cells = [
                (n, r)
                for n in m.experiment.contenders
                for r in rules
                if n not in defaults and m.has(n, r, k)
            ]
            best = max(cells, key=lambda cell: m.values(*cell, k).mean())
            for rule in rules:
                gap = m.difference((name, rule), best, k)
                rows.append([name, f"`{rule}`", k, f"{best[0]}, `{best[1]}`", _signed(gap)])
    header = ["untuned", "rule", "K", "best of the tuned in the tests", "difference to it"]
    return table(header, rows, n_texts=4) if rows else []


def training_table(coverages, names):
    """Return the validation coverage of each training, and how far it is from the best.

    Parameters
    ----------
    coverages : dict of str -> dict of tuple -> float
        In percent, by title of the data and the training values.
    names : sequence of str
        What the training values are called.
    """
    keys = sorted({key for by_key in coverages.values() for key in by_key})
    best = {title: max(by_key.values()) for title, by_key in coverages.items()}
    whole = [title for title, by_key in coverages.items() if len(by_key) == len(keys)]
    rows = []
    for key in keys:
        cells = [
            "" if key not in by_key else _bold_if(by_key[key] == best[title], by_key[key])
            for title, by_key in coverages.items()
        ]
        behind = [best[title] - coverages[title][key] for title in whole]
        rows.append([*key, *cells, f"{np.mean(behind):.1f}", f"{max(behind):.1f}"])
    header = [*names, *coverages, "behind the best, mean", "at worst"]
    return table(header, rows, n_texts=1)


def _bold_if(condition, value):
    return f"**{value:.1f}**" if condition else f"{value:.1f}"

"""Which epsilon, max_margin and alpha a grid over default estimators finds on planted tasks.

    python -m benchmarks.defaults.grids [run | page] [--choose 5] [--report 10]

`run` measures what has no record in results/defaults/grids.jsonl.xz yet, `page` writes
benchmarks/grids.md from it; without a command, both.
"""

import argparse
import sys
import warnings
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import t as student

from sksetvalued import AverageKClassifier, TopKClassifier
from sksetvalued.datasets import make_ambiguous_classification
from sksetvalued.rules import AverageK, TopK

from ..papers.store import ResultFile, unfinished
from .measure import cpu_seconds
from .report import table

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "defaults" / "grids.jsonl"
PAGE = HERE.parent / "grids.md"
N_TRAIN, N_TEST, N_CLASSES, K = 800, 5000, 20, 3


class Grid(NamedTuple):
    """Values of a parameter of an estimator that is left as it comes otherwise.

    Parameters
    ----------
    estimator : class
    params : dict
        What the question is about besides the values.
    values : tuple of float
    tail : bool
        Whether the frequencies of the classes fall from 30 to 1.
    """

    estimator: type
    params: dict
    values: tuple
    tail: bool = False


# Thresholds are set on the test samples, so that those of `fit` are not needed.
GRIDS = {
    "epsilon": Grid(TopKClassifier, {}, (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)),
    "max_margin": Grid(
        TopKClassifier, {"objective": "macro"}, (0.02, 0.05, 0.1, 0.2, 0.4, 0.8), tail=True
    ),
    "alpha": Grid(
        AverageKClassifier, {"calibration_folds": None}, (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
    ),
}

INTRO = f"""\
# Grids over the parameters of the losses

Written by `python -m benchmarks.defaults.grids`. Estimators as they come, but for the parameter
in question, on `make_ambiguous_classification`: {N_CLASSES} classes in groups of five that look
alike, {N_TRAIN} samples to train on; for `max_margin` with frequencies that fall from 30 to 1 and
`objective="macro"`. Sets of {K} classes, for `alpha` on average. Coverage in percent is that by
the true probabilities of {N_TEST:,} new samples, of classes (macro) for `max_margin`.

The best value is that of the first seeds. The others, of which nothing was chosen, say by how much
it is better than the ends of the grid and than the default: mean of the paired differences and
their 95 % Student interval.

## What it says

- The best `epsilon` and `max_margin` are inside the grid; they are better than far too much of it,
  for `max_margin` by about the interval, and level with almost none. The default, without margins,
  is ahead of all margins here. Of `alpha` the best value is at the upper end of the grid: better
  than the lower end by a little more than the interval, than the default by less.
- A mixture is half cross-entropy: what its hinge is made of moves coverage by tenths of points.
  Far too much noise costs more than any other value can win.

"""


def draw(grid, seed):
    """Return training samples, labels, new samples and their probabilities of the classes."""
    weights = 30.0 ** -np.linspace(0, 1, N_CLASSES) if grid.tail else None
    X, y, p, _ = make_ambiguous_classification(
        N_TRAIN + N_TEST, n_classes=N_CLASSES, class_weights=weights, random_state=seed
    )
    return X[:N_TRAIN], y[:N_TRAIN], X[N_TRAIN:], p[N_TRAIN:]


def coverage(proba, p, prior, grid):
    """Return the coverage in percent of sets of equal size, by the true probabilities."""
    rule = {TopKClassifier: TopK, AverageKClassifier: AverageK}[grid.estimator]
    objective = "macro" if grid.tail else "micro"
    rule = rule(K, objective=objective, prior=prior)
    sets = rule.fit(proba).predict_set(proba)
    if grid.tail:
        return 100 * float(np.mean((p * sets).sum(0) / p.sum(0)))
    return 100 * float((p * sets).sum(1).mean())


def measure(job):
    """Return the record of a fit."""
    torch.set_num_threads(1)
    grid = GRIDS[job["grid"]]
    X, y, X_test, p = draw(grid, job["seed"])
    params = grid.params if job["value"] is None else grid.params | {job["grid"]: job["value"]}
    model = grid.estimator(K, random_state=job["seed"], **params)
    start = cpu_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    seconds = cpu_seconds() - start
    proba = np.maximum(model.predict_proba(X_test).astype(np.float64), np.finfo(float).tiny)
    prior = np.bincount(np.searchsorted(model.classes_, y)) / len(y)
    found = coverage(proba, p[:, model.classes_], prior, grid)
    return {"task": job, "coverage": found, "seconds": round(seconds, 2)}


def difference(ours, other):
    """Return the mean of paired differences and its 95 % interval, as text."""
    off = np.asarray(ours) - np.asarray(other)
    half = student.ppf(0.975, len(off) - 1) * off.std(ddof=1) / np.sqrt(len(off))
    return f"{off.mean():+.2f} ± {half:.2f}"


def part(name, found, n_choose):
    """Return the section of a grid, of coverages by value and seed."""
    grid = GRIDS[name]
    values = (*grid.values, None)
    table_of = np.array(
        [[found[value][seed] for seed in sorted(found[value])] for value in values]
    )
    chosen, fresh = table_of[:, :n_choose], table_of[:, n_choose:]
    best = int(chosen[:-1].mean(1).argmax())
    heads = [name, *(f"{value:g}" for value in grid.values), "default"]
    rows = [
        [f"{len(c[0])} seeds, {what}", *(f"{m:.2f}" for m in c.mean(1))]
        for c, what in ((chosen, "to choose"), (fresh, "new"))
    ]
    against = [
        [f"{end:g}" if end is not None else "the default", difference(fresh[best], fresh[i])]
        for i, end in ((0, grid.values[0]), (-2, grid.values[-1]), (-1, None))
    ]
    inside = "" if 0 < best < len(grid.values) - 1 else ", **an end of the grid**"
    return (
        f"## `{name}`\n\n{table(heads, rows)}\nBest: {grid.values[best]:g}{inside}.\n\n"
        + table([f"{grid.values[best]:g} minus", "coverage"], against)
        + "\n"
    )


def write(page, records, n_choose):
    found = defaultdict(lambda: defaultdict(dict))
    for record in records.values():
        job = record["task"]
        found[job["grid"]][job["value"]][job["seed"]] = record["coverage"]
    parts = [part(name, found[name], n_choose) for name in GRIDS if name in found]
    page.write_text((INTRO + "\n".join(parts)).rstrip() + "\n")


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults.grids")
    parser.add_argument("command", nargs="?", choices=["run", "page"])
    parser.add_argument("--choose", type=int, default=5, help="seeds that choose the value")
    parser.add_argument("--report", type=int, default=10, help="seeds that report")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args(argv)
    results = ResultFile(args.results)
    if args.command in ("run", None):
        jobs = [
            {"grid": name, "value": value, "seed": seed}
            for seed in range(args.choose + args.report)
            for name, grid in GRIDS.items()
            for value in (*grid.values, None)
        ]
        for job in unfinished(jobs, results.records()):
            record = measure(job)
            results.append(record)
            print(job, f"{record['coverage']:.2f}", file=sys.stderr, flush=True)
    if args.command in ("page", None):
        write(PAGE, results.records(), args.choose)
        results.compress()
    return 0


if __name__ == "__main__":
    sys.exit(main())

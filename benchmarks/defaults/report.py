"""The page that says how the defaults stand."""

from collections import defaultdict

import numpy as np

from ..papers.store import NoRecords, ResultFile
from .contenders import CONTENDERS, TIMED
from .tasks import CHOOSE, LATER, REPORT, TASKS

OTHERS = ("logistic", "perceptron", "boosting", "forest", "realmlp")
OWN = {"top_k": "top_k", "average_k": "average_k"}
SAME_TRAINING = "cross-entropy alone"

INTRO = """\
# What untouched estimators give

Written by `python -m benchmarks.defaults page` from `results/defaults/`; `python -m
benchmarks.defaults` measures what is missing first. The data are not part of the package:
`benchmarks/defaults/sources.py` says where they come from, with checksums, and a task whose data
are absent is left out.

`TopKClassifier(k)` and `AverageKClassifier(k)` as they come, on raw columns, beside
`LogisticRegression` (C of three values by three folds), `MLPClassifier((256,))`,
`HistGradientBoostingClassifier` (up to 12 classes) and `RandomForestClassifier` as they come, the
first two on standardised columns, and, on tables, RealMLP with its tuned defaults (of pytabkit,
which is no dependency: install it to run this contender). Coverage in percent: the share of test
samples whose set holds their class, sets being of equal (average) size for all, thresholds set on
the test inputs. ±: half-width of the 95 % interval of the mean paired difference over test rows,
all splits together; it does not count that networks differ from seed to seed. The best contender
is the best on these very rows, which favours it a little. "same" is `loss="cross_entropy"` of our
estimator, trained in the same way.

The defaults were chosen on the tasks of the second part, by these and by shorter experiments.
Those of the first part chose no value; how often they were run, and after what, is said below
the tables. The split was committed before anything was run. Those of the third part were brought
in when all of this was done, and chose nothing either.
"""

TIMES = """\
One thread, nothing else running; the mean of three splits: each split counts by one fit, or by
the median of three where a fit takes less than 5 s. "one logistic" is a single
`LogisticRegression` (C=10 on texts, 1 on tables), without a search. In brackets the least and the
most of the splits: a search finds another length on each.
"""


BARE = """\
Tasks of few samples again, on another day: each figure is the less of two runs, averaged over
three splits. "bare" is a loop in plain torch that trains the network of the fit, on its batches,
for as many updates as all networks of the fit together: cross-entropy, backward pass, the fused
AdamW of torch. It has no search for the length, no folds and no averaged weights, and its batches
are made before. "beside" is one `LogisticRegression` on texts and the perceptron on tables.
"""


def load(path):
    """Return the records of a stage by task, contender and seed, each with its `place` in time."""
    records = defaultdict(lambda: defaultdict(dict))
    for place, record in enumerate(ResultFile(path).records().values()):
        task = record["task"]
        records[task["task"]][task["contender"]][task["seed"]] = {**record, "place": place}
    return records


def seeds_of(runs, names):
    return sorted(set.intersection(*(set(runs[name]) for name in names)))


def mean(runs, name, column, seeds, field="coverage"):
    """Return the mean of a figure over seeds."""
    return float(np.mean([runs[name][seed][field][column] for seed in seeds]))


def difference(runs, left, right, column, seeds):
    """Return mean and half-width of the paired difference of two contenders, in percent.

    Of macro coverages, nan for the half-width: records hold no classes of test rows. So too where
    one of them was measured anew, without the rows of the other.
    """
    by_row = not column.endswith("macro")
    counts = [alone(runs, left, right, column, seed) for seed in seeds] if by_row else [None]
    if None in counts:
        return mean(runs, left, column, seeds) - mean(runs, right, column, seeds), np.nan
    means, errors = [], []
    for seed, (more, fewer) in zip(seeds, counts, strict=True):
        n = runs[left][seed]["n"]
        means.append(100 * (more - fewer) / n)
        errors.append((1e4 * (more + fewer) / n - means[-1] ** 2) / (n - 1))
    return float(np.mean(means)), 1.96 * float(np.sqrt(np.sum(errors))) / len(seeds)


def alone(runs, left, right, column, seed):
    """Return how many test rows the one contender covered and the other did not, both ways.

    None where that is not known: of two records only the later saw the rows of both, and what it
    saw of a contender that is not the one of the other record does not fit its coverage.
    """
    one, other = runs[left][seed], runs[right][seed]
    if one["place"] > other["place"]:
        counts = one["apart"].get(right, {}).get(column)
    else:
        counts = other["apart"].get(left, {}).get(column, [])[::-1]
    apart = round((one["coverage"][column] - other["coverage"][column]) / 100 * one["n"])
    return counts if counts and counts[0] - counts[1] == apart else None


def shown(delta, half):
    """Return a difference as text."""
    return f"{delta:+.1f}" if np.isnan(half) else f"{delta:+.1f} ± {half:.1f}"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def compared(records, tasks, own, column):
    """Return a table of one column: every contender, and ours against the best of the others."""
    same = f"{own}: {SAME_TRAINING}"
    rows, columns = [], defaultdict(list)
    for task in tasks:
        runs = records[task]
        # Boosting may have few splits of a task, of those with few enough classes.
        others = [n for n in OTHERS if 2 * len(runs.get(n, ())) > len(runs.get(own, ()))]
        if own not in runs or (not others and same not in runs):
            continue
        seeds = seeds_of(runs, [own, *others, *([same] if same in runs else [])])
        if not seeds:
            continue
        figures = {name: mean(runs, name, column, seeds) for name in [own, *others]}
        if same in runs:
            figures[same] = mean(runs, same, column, seeds)
        best = max(others, key=figures.get) if others else same
        delta, half = difference(runs, own, best, column, seeds)
        if np.isnan(half) and not column.endswith("macro"):
            raise ValueError(
                f"{own} and {best} were not compared row by row on {task}: remove the records of "
                "one of them, and measure it where `rows` has those of the other."
            )
        columns["delta"].append(delta)
        cells = [f"{figures[n]:.1f}" if n in figures else "–" for n in (own, *OTHERS, same)]
        apart = shown(delta, half)
        for name in OTHERS:
            if name in figures:
                columns[name].append(figures[own] - figures[name])
        if same in runs:
            to_same = shown(*difference(runs, own, same, column, seeds))
            columns["same"].append(figures[own] - figures[same])
        else:
            to_same = "–"
        worse = " **behind**" if delta + half < -0.5 else ""
        rows.append([f"{task} ({len(seeds)})", *cells, apart + worse, to_same])
    names = (*OTHERS, "same", "delta", "same")
    means = [f"{np.mean(columns[n]):+.2f}" if columns[n] else "–" for n in names]
    rows.append(["ours - it, mean over tasks", "", *means])
    return table(["task (splits)", "ours", *OTHERS, "same", "ours - best", "ours - same"], rows)


def times(timed, tasks):
    """Return a table of the processor time of a fit, taken alone."""
    rows = []
    for task in tasks:
        # A kill leaves a split with some of the contenders.
        seeds = seeds_of(timed[task], TIMED)
        if seeds:
            all_of = {n: [timed[task][n][seed]["seconds"] for seed in seeds] for n in TIMED}
            means = {name: np.mean(seconds) for name, seconds in all_of.items()}
            cells = [
                f"{means[n]:.2f}" + (f" ({min(s):.1f}, {max(s):.1f})" if n in OWN else "")
                for n, s in all_of.items()
            ]
            ratios = [f"{means[own] / means['perceptron']:.2f}" for own in OWN]
            rows.append([task, TASKS[task].what, *cells, *ratios])
    ratios = [f"{own} / perceptron" for own in OWN]
    return table(["task", "what", *TIMED, *ratios], rows)


def bare(records):
    """Return a table of the time of fits beside that of a bare loop of as many updates."""
    columns, rows = ("updates", "seconds", "bare", "beside"), []
    for task, runs in records.items():
        for own in OWN:
            found = [[runs[own][seed][c] for c in columns] for seed in seeds_of(runs, OWN)]
            if found:
                updates, *times = np.mean(found, 0)
                fit, loop, beside = times
                ratios = [f"{fit / loop:.2f}", f"{loop / beside:.1f}", f"{fit / beside:.1f}"]
                seconds = [f"{t:.2f}" for t in times]
                rows.append([task, own, f"{updates:,.0f}", *seconds, *ratios])
    ratios = ["fit / bare", "bare / beside", "fit / beside"]
    return table(["task", "", "updates", "fit", "bare", "beside", *ratios], rows)


def sizes(records, tasks):
    """Return a table of the sizes of sets after `fit` alone."""
    rows = []
    for task in tasks:
        found = [r["size"] for r in records[task].get("average_k", {}).values() if "size" in r]
        if found:
            rows.append([task, f"{TASKS[task].average_k:g}", f"{np.mean(found):.2f}"])
    return table(["task", "k", "size"], rows)


def ablations(records, tasks):
    """Return a table of the default against itself without a part, or searched, over tasks."""
    rows = []
    for name in CONTENDERS:
        own, _, part = name.partition(": ")
        if not part:
            continue
        for column in dict.fromkeys(("top_1", own, f"{own}_macro")):
            found = [
                difference(records[t], own, name, column, seeds)
                for t in tasks
                if name in records[t] and own in records[t]
                for seeds in [seeds_of(records[t], [own, name])]
                if seeds
            ]
            if found:
                deltas, halves = np.array(found).T
                half = np.sqrt(np.square(halves).sum()) / len(halves)
                overall = f"{deltas.mean():+.2f}" + ("" if np.isnan(half) else f" ± {half:.2f}")
                span = f"{deltas.min():+.1f} .. {deltas.max():+.1f}"
                rows.append([own, part, column, overall, span, str(len(found))])
    heads = ["estimator", "against", "column", "default minus it", "least .. most", "tasks"]
    return table(heads, rows)


def stage(title, records, tasks):
    """Yield the parts of a stage."""
    tasks = [task for task in tasks if task in records]
    yield f"## {title}\n"
    for own, column in (
        ("top_k", "top_k"),
        ("average_k", "average_k"),
        ("top_k", "top_1"),
        ("top_k", "top_k_macro"),
        ("average_k", "average_k_macro"),
    ):
        label = {"top_1": "`predict` of TopKClassifier"}.get(column, column.replace("_", "-"))
        yield f"### {label}\n"
        yield compared(records, tasks, own, column)
    yield "### The default without its parts, and beside a search\n"
    yield ablations(records, tasks)
    yield "### Mean sizes of `AverageKClassifier` on test samples after `fit`\n"
    yield sizes(records, tasks)


def write(page, results):
    """Write the page from the results there are.

    Raises
    ------
    NoRecords
        If no task has any.
    """
    parts = []
    for name, title, tasks in (
        ("report", "Reporting: data that nothing was chosen on", REPORT),
        ("choose", "Choosing: data that the defaults were chosen on", CHOOSE),
        ("later", "Later: data that were brought in when everything had been chosen", LATER),
    ):
        records = load(results / f"{name}.jsonl")
        if records:
            parts += stage(title, records, tasks)
    timed = load(results / "times.jsonl")
    if timed:
        parts += ["## Seconds of processor time of a fit\n", TIMES, times(timed, REPORT)]
    beside_bare = load(results / "bare.jsonl")
    if beside_bare:
        parts += ["## Beside a bare loop of torch\n", BARE, bare(beside_bare)]
    if not parts:
        raise NoRecords(results)
    verdict, history = (
        [file.read_text()] if file.exists() else []
        for file in (results / "verdict.md", results / "history.md")
    )
    page.write_text("\n".join([INTRO, *verdict, *parts, *history]))

"""The page about the experiments, from their records alone."""

import json
import lzma

from . import tables
from .claims import CLAIMS
from .configs import (
    CHANGES,
    EXPERIMENTS,
    IMAGE_TRAINING,
    NOT_COVERED,
    TRAINING_VALUES,
    TRIALS,
)
from .figures import draw_differences, draw_level_sets, draw_sizes
from .findings import ADVICE, FINDINGS
from .measure import UNLESS_SEARCHED
from .runner import RESULTS, finished, result_file, shapes_file
from .statistics import Measurements, interval, verdict
from .store import NoRecords, ResultFile, task_key

HEADER = """# The papers' claims, measured with this package

Written by `python -m benchmarks.papers report` from the records in `results/papers/`; each line
there is one fit. `python -m benchmarks.papers run EXPERIMENT` makes them, and continues where it
was stopped.

Every loss gets the same number of configurations, drawn from its own parameters and from common
ones (learning rate, epochs, weight decay), and the one with the largest validation coverage is
chosen for each rule and each K apart. Values that neither a search nor an experiment names are a
constant learning rate and a weight decay of 0.01, not the defaults of the estimators, which are
contenders of their own: "default" is an estimator as it is, which was measured where the time
allowed, "former default" what it was before: the loss of the papers, 50 epochs, and a rate of
0.003 that falls by a cosine. The chosen ones are then trained and tested with seeds that
the search has not used; the seed draws training and validation samples as well as initial weights,
the same for all losses (of Grocery Store, initial weights alone). Of the recorded runs only these
see test data, but for what stands under "Beside the protocol". Thresholds are
calibrated on the validation samples, without their labels, also those of the estimators that are
not tuned; sizes are those on the test data. Where configurations were changed after some fits, the
records of the former ones stay in the files, unused.

All coverages are in percent. ± is the half-width of the 95 % Student interval of the mean over
seeds, and of the paired differences: it says nothing about other test samples, and of twenty
intervals without a difference behind them one leaves zero out; where a section says so, the
intervals of its differences hold at once instead. Bold in tables of differences are those that
leave zero out.
"""

SHAPES = """Non-zero entries of the gradient of the noised hinge in the scores of a sample (of
100), K = 5, mean over the samples of the first epoch (ICML, Figure 2, which has 3 draws and
prints 4 for large epsilon): few draws, rather than the loss, make them few. CIFAR-100, 20 images
per class, 5 seeds, a small convolutional network. The picture has the losses for three classes,
true class at the top, K = 2, on scores that sum to 2, each rescaled to 0 ... 1 (ICML, Figure 1).
`python -m benchmarks.papers shapes` measures both; times of an epoch against K (ICML, Figure 3)
stand in `benchmarks/training.md`."""


TRAINING = """The estimators with the default losses of then, 50 epochs, trained with other
learning rates, schedules and weight decays (AdamW): coverage of validation samples in percent,
one fit each, with a seed that no test uses; no test data were looked at. Networks as above. The
last columns have the mean and the worst distance to the best of each data set, over the data sets
that all lines have. Chosen as the defaults of then: cosine, 0.003, a decay of 0.2 for images and
of 0.1 for tables (0.5 for images before the second table). Before, they were a constant rate of
0.001 and a decay of 0.01."""


DECAY = """Images again, as above at 0.003 and cosine, means over two other seeds, by both
rules. A large decay costs the plain estimator many points by the macro rule; at worst, 0.2 is the
least behind."""


def write(page, folder=None):
    """Write the page, and the folder ``figures`` beside it.

    Parameters
    ----------
    page : Path
    folder : Path, optional
        Of the records.

    Raises
    ------
    NoRecords
        If no experiment has those of a whole seed.
    """
    sections, measured = [], {}
    figures = page.parent / "figures"
    for name, experiment in (EXPERIMENTS | TRIALS).items():
        records = ResultFile(result_file(name, folder)).records()
        if name in TRIALS and not records:
            continue
        tuning, chosen, tests = finished(experiment, records)
        n_tasks = len(experiment.test_tasks(chosen)) // len(experiment.seeds) if chosen else 0
        m = Measurements(experiment, tests, n_tasks)
        measured[name] = m
        if m.seeds:
            sections += _section(name, m, len(tuning), chosen, records)
            sections += _pictures(m, figures / f"{name}.png")
    values = _training_values(folder)
    shapes = _shapes(shapes_file(folder), figures / "loss_shapes.png")
    if not (sections or values or shapes):
        raise NoRecords(folder or RESULTS)
    lines = [HEADER, *_findings(measured), *_claims(measured), *sections]
    lines += [*values, *shapes]
    lines += [*_not_run(measured), *_advice(measured)]
    page.write_text("\n".join(lines).rstrip() + "\n")


def _findings(measured):
    texts = [text for name, text in FINDINGS if measured[name].seeds]
    return ["## What it says", "", *(f"- {text}" for text in texts), ""] if texts else []


def _advice(measured):
    texts = [text for names, text in ADVICE if all(measured[name].seeds for name in names)]
    return ["", "## Which loss, rule and parameters", "", *(f"- {text}" for text in texts)]


def _claims(measured):
    lines = ["## Claim by claim", ""]
    for claim in CLAIMS:
        seen = [_seen(claim, name, measured[name]) for name in claim.experiments]
        seen = [line for line in seen if line]
        if not seen:
            continue
        names = " minus ".join(f"{name} by `{rule}`" for name, rule in (claim.left, claim.right))
        what = {"coverage": "", "top_1": ", top-1"}.get(claim.figure, f", {claim.figure} samples")
        lines += [f"**{claim.text}.** Papers: {claim.printed}.", f"Here, {names}{what}:", ""]
        lines += [*seen, ""]
    return lines if len(lines) > 2 else []


def _seen(claim, name, m):
    """Return the line of a claim about one experiment, or None if it was not measured."""
    ks = [k for k in m.experiment.ks if m.has(*claim.left, k) and m.has(*claim.right, k)]
    if not ks:
        return None
    gaps = {k: m.difference(claim.left, claim.right, k, claim.figure) for k in ks}
    figures = "; ".join(
        f"K = {k}: {tables.with_interval(*gap, sign=True)}" for k, gap in gaps.items()
    )
    judged = claim.judge({k: verdict(*gap) for k, gap in gaps.items()})
    return f"- `{name}`: {figures}. Verdict: {judged}."


def _section(name, m, n_tuning, chosen, records):
    experiment = m.experiment
    lines = [f"## {experiment.title}", "", *_protocol(name, m, n_tuning, records), ""]
    cells = [cell for contender in experiment.contenders for cell in experiment.cells(contender)]
    rules = list(dict.fromkeys(rule for rule, _ in cells))
    for rule in rules:
        lines += [
            f"### {tables.RULE_TITLES[rule]}",
            "",
            f"`{rule}`, {experiment.average} coverage",
            "",
        ]
        lines += tables.coverage_table(m, rule)
        lines += tables.difference_table(m, rule)
    first, *others = rules
    for rule in others:
        lines += tables.rule_table(m, rule, first)
    if experiment.estimator == "top_k" and 1 not in experiment.ks:
        lines += ["### The likeliest class", "", *tables.top_1_table(m)]
    lines += _titled("### Nothing tuned, against the best of the tuned", tables.default_table(m))
    if len(m.shot_groups()) > 1:
        lines += ["### By number of training samples", ""]
        lines += ["few: fewer than 20, medium: 20 to 100, many: more than 100.", ""]
        for k in experiment.ks:
            for rule in experiment.rules:
                lines += tables.shot_table(m, rule, k)
                lines += tables.size_table(m, rule, k)
    return lines + _titled("### Chosen configurations", tables.choice_table(experiment, chosen))


def _titled(title, lines):
    return [title, "", *lines] if lines else []


def _pictures(m, path):
    rules = [rule for rule in m.experiment.rules if not rule.startswith("top_k_of")]
    path.parent.mkdir(parents=True, exist_ok=True)
    draw_differences(m, rules, path)
    lines = [_image("Differences to the reference", path), ""]
    sizes = path.with_name(f"{path.stem}_sizes.png")
    if draw_sizes(m, *m.experiment.pictured, sizes):
        lines += [_image("Sizes of the sets", sizes), ""]
    return lines


def _image(text, path):
    return f"![{text}]({path.parent.name}/{path.name})"


def _shapes(path, picture):
    """Return the section on gradients and level sets, and draw its pictures."""
    if not path.exists():
        return []
    record = json.loads(lzma.decompress(path.read_bytes()))
    picture.parent.mkdir(parents=True, exist_ok=True)
    draw_level_sets(record, picture)
    draws = sorted({row["n_draws"] for row in record["gradients"]})
    rows = []
    for epsilon in sorted({row["epsilon"] for row in record["gradients"]}):
        cells = [
            [
                row["n_nonzero"]
                for row in record["gradients"]
                if (row["epsilon"], row["n_draws"]) == (epsilon, n)
            ]
            for n in draws
        ]
        rows.append([f"{epsilon:g}", *(tables.with_interval(*interval(c)) for c in cells)])
    header = ["epsilon", *(f"{n} draws" for n in draws)]
    return [
        "## The losses themselves", "", SHAPES, "", *tables.table(header, rows),
        _image("Level sets of the losses", picture), "",
    ]  # fmt: skip


def _training_values(folder):
    """Return the section on training values, from the searches that are whole."""
    names = "schedule", "lr", "decay"
    parts = [
        (TRAINING, names, _searched(TRAINING_VALUES, names, folder)),
        (DECAY, names[-1:], _searched(IMAGE_TRAINING, names[-1:], folder)),
    ]
    lines = []
    for text, names, coverages in parts:
        if coverages:
            lines += [text, "", *tables.training_table(coverages, names)]
    return ["## Training values", "", *lines] if lines else []


def _searched(experiments, names, folder):
    """Return the mean coverages over the seeds, by title (and rule), and training values."""
    parameters = {"schedule": "lr_schedule", "lr": "lr", "decay": "weight_decay"}
    coverages = {}
    for name, experiment in experiments.items():
        records = ResultFile(result_file(name, folder)).records()
        tasks = experiment.tuning_tasks()
        if any(task_key(task) not in records for task in tasks):
            continue
        for task in tasks:
            params = UNLESS_SEARCHED | task["params"]
            key = tuple(params[parameters[n]] or "none" for n in names)
            cells = records[task_key(task)]["cells"]
            for (rule, _), cell in zip(task["cells"], cells):
                title = experiment.title
                if len(cells) > 1:
                    title += ", macro rule" if rule.endswith("_macro") else ", plain rule"
                by_key = coverages.setdefault(title, {})
                share = 100 * cell["coverage"] / len(experiment.tuning_seeds)
                by_key[key] = by_key.get(key, 0.0) + share
    return coverages


def _protocol(name, m, n_tuning, records):
    experiment = m.experiment
    arguments = ", ".join(f"{k}={v}" for k, v in experiment.data.items() if k != "name")
    seconds = sum(record["seconds"] for record in records.values()) / 60
    missing = sorted(set(experiment.seeds) - set(m.seeds))
    unused = len(records) - n_tuning - len(m.seeds) * m.n_tasks
    lines = [
        f"`{name}`: data `{experiment.data['name']}` ({arguments}); "
        f"{experiment.average} coverage; fixed: {experiment.fixed or 'nothing'}. "
        + _search(experiment, n_tuning),
        f"Tests on {len(m.seeds)} of {len(experiment.seeds)} planned seeds"
        + (f"; not run, or not whole: {missing}" if missing else "")
        + f". {len(records)} fits in the file, {seconds:.0f} minutes of training in all"
        + (f"; {unused} of them not used here" if unused else "")
        + ".",
    ]
    if experiment.simultaneous:
        lines.append(
            f"The intervals of its {experiment.n_differences} differences to the reference hold "
            "at once with 95 % (Bonferroni)."
        )
    own = [f"{n}: {c.params | (c.grid or {})}" for n, c in experiment.contenders.items()]
    return [*lines, "", f"Own values of each loss: {'; '.join(own)}."]


def _search(experiment, n_tuning):
    if not experiment.tuning_tasks():
        return "Nothing searched: each line is a setting of its own."
    grid = "; ".join(f"{key}: {values}" for key, values in experiment.grid.items())
    return (
        f"{experiment.budget} configurations per loss and K, "
        f"common values {grid}; search on seed "
        f"{', '.join(map(str, experiment.tuning_seeds))} ({n_tuning} fits)."
    )


def _not_run(measured):
    lines = ["## What was not run", ""]
    for name, m in measured.items():
        if not m.seeds:
            flag = ", with `--full`" if m.experiment.full else ""
            lines.append(f"- `{name}` (configured{flag}): {m.experiment.title}.")
        elif len(m.seeds) < len(m.experiment.seeds):
            lines.append(
                f"- `{name}`: seeds {sorted(set(m.experiment.seeds) - set(m.seeds))} of "
                f"{len(m.experiment.seeds)}."
            )
    lines += [*(f"- {text}" for text in NOT_COVERED), ""]
    return [*lines, "## Beside the protocol", "", *(f"- {text}" for text in CHANGES)]

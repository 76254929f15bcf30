"""The page about the experiments, from their records alone."""

import os
from pathlib import Path

from . import tables
from .claims import CLAIMS
from .configs import CHANGES, EXPERIMENTS, NOT_COVERED, TRIALS
from .figures import draw_differences
from .findings import FINDINGS
from .runner import finished, result_file
from .statistics import Measurements, verdict
from .store import ResultFile

HEADER = """# The papers' claims, measured with this package

Written by `python -m benchmarks.papers report` from the records in `results/papers/`; each line
there is one fit. `python -m benchmarks.papers run EXPERIMENT` makes them, and continues where it
was stopped.

Every loss gets the same number of configurations, drawn from its own parameters and from common
ones (learning rate, epochs, weight decay), and the one with the largest validation coverage is
chosen for each rule and each K apart. The chosen ones are then trained and tested with seeds that
the search has not used; the seed draws training and validation samples as well as initial weights,
the same for all losses. Of the recorded runs only these see test data. Thresholds are
calibrated on the validation samples, without their labels, also those of the estimators that are
not tuned; sizes are those on the test data. Where configurations were changed after some fits, the
records of the former ones stay in the files, unused.

All coverages are in percent. ± is the half-width of the 95 % Student interval of the mean over
seeds, and of the paired differences: it says nothing about other test samples, and of twenty
intervals without a difference behind them one leaves zero out. Bold in tables of differences are
those that leave zero out.
"""


def write(page, folder=None):
    """Write the page, and the figures beside the records.

    Parameters
    ----------
    page : Path
    folder : Path, optional
        Of the records.
    """
    sections, measured = [], {}
    tried = {n: e for n, e in TRIALS.items() if result_file(n, folder).exists()}
    for name, experiment in (EXPERIMENTS | tried).items():
        records = ResultFile(result_file(name, folder)).records()
        tuning, chosen, tests = finished(experiment, records)
        n_tasks = len(experiment.test_tasks(chosen)) // len(experiment.seeds) if chosen else 0
        m = Measurements(experiment, tests, n_tasks)
        measured[name] = m
        if m.seeds:
            sections += _section(name, m, len(tuning), chosen, records)
            sections += _picture(page, m, result_file(name, folder).with_suffix(".png"))
    lines = [HEADER, *_findings(measured), *_claims(measured), *sections, *_not_run(measured)]
    page.write_text("\n".join(lines).rstrip() + "\n")


def _findings(measured):
    texts = [text for name, text in FINDINGS if measured[name].seeds]
    return ["## What it says", "", *(f"- {text}" for text in texts), ""] if texts else []


def _claims(measured):
    lines = ["## Claim by claim", ""]
    for claim in CLAIMS:
        m = measured[claim.experiment]
        ks = [k for k in m.experiment.ks if m.has(*claim.left, k) and m.has(*claim.right, k)]
        if not ks:
            continue
        gaps = {k: m.difference(claim.left, claim.right, k) for k in ks}
        figures = "; ".join(
            f"K = {k}: {tables.with_interval(*gap, sign=True)}" for k, gap in gaps.items()
        )
        names = " minus ".join(f"{name} by `{rule}`" for name, rule in (claim.left, claim.right))
        lines += [
            f"**{claim.text}.** Papers: {claim.printed}.",
            f"Here (`{claim.experiment}`), {names}: {figures}.",
            f"Verdict: {claim.judge({k: verdict(*gap) for k, gap in gaps.items()})}.",
            "",
        ]
    return lines if len(lines) > 2 else []


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
    lines += ["### Nothing tuned, against the best of all", "", *tables.default_table(m)]
    if m.shot_groups():
        lines += ["### By number of training samples", ""]
        lines += ["few: fewer than 20, medium: 20 to 100, many: more than 100.", ""]
        for k in experiment.ks:
            for rule in experiment.rules:
                lines += tables.shot_table(m, rule, k)
    return [*lines, "### Chosen configurations", "", *tables.choice_table(experiment, chosen)]


def _picture(page, m, path):
    rules = [rule for rule in m.experiment.rules if not rule.startswith("top_k_of")]
    draw_differences(m, rules, path)
    address = Path(os.path.relpath(path.resolve(), page.resolve().parent)).as_posix()
    return [f"![Differences to the reference]({address})", ""]


def _protocol(name, m, n_tuning, records):
    experiment = m.experiment
    arguments = ", ".join(f"{k}={v}" for k, v in experiment.data.items() if k != "name")
    grid = "; ".join(f"{key}: {values}" for key, values in experiment.grid.items())
    seconds = sum(record["seconds"] for record in records.values()) / 60
    missing = sorted(set(experiment.seeds) - set(m.seeds))
    unused = len(records) - n_tuning - len(m.seeds) * m.n_tasks
    lines = [
        f"`{name}`: data `{experiment.data['name']}` ({arguments}); "
        f"{experiment.average} coverage; fixed: {experiment.fixed or 'nothing'}. "
        f"{experiment.budget} configurations per loss and K, common values {grid}; "
        f"search on seed {', '.join(map(str, experiment.tuning_seeds))} ({n_tuning} fits).",
        f"Tests on {len(m.seeds)} of {len(experiment.seeds)} planned seeds"
        + (f"; not run, or not whole: {missing}" if missing else "")
        + f". {len(records)} fits in the file, {seconds:.0f} minutes of training in all"
        + (f"; {unused} of them not used here" if unused else "")
        + ".",
    ]
    own = [f"{n}: {c.params | (c.grid or {})}" for n, c in experiment.contenders.items()]
    return [*lines, "", f"Own values of each loss: {'; '.join(own)}."]


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

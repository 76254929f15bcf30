"""Measure what untouched estimators give: python -m benchmarks.defaults [COMMAND].

Runs what has no record yet, and writes the page. Commands are choose, report, later, times,
bare and page; without one it does all six. While times are taken (times, bare), nothing else may
run. A contender whose package is not installed is left out, with a word: RealMLP needs pytabkit,
best in an environment of its own. Which test rows a contender covered stays in
results/defaults/rows, which is no part of the source; records have the counts of each pair. A new
contender is therefore compared with those that were measured in the same folder.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from ..papers.data import data_folder
from ..papers.store import NoRecords, ResultFile
from .bare import BARE, bare_jobs, compare_with_bare_loop
from .contenders import CONTENDERS, TIMED
from .measure import measure, run, time_alone
from .tasks import CHOOSE, LATER, REPORT, TASKS

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "defaults"
PAGE = HERE.parent / "defaults.md"
STAGES = {"choose": CHOOSE, "report": REPORT, "later": LATER}


def jobs(tasks, contenders, seeds=None):
    """Return what is to be run, seed by seed, so that an end before time leaves whole seeds."""
    most = max(TASKS[name].seeds for name in tasks)
    return [
        {"task": task, "contender": name, "seed": seed}
        for seed in range(most if seeds is None else seeds)
        for task in tasks
        for name in contenders
        if seed < TASKS[task].seeds and TASKS[task].kind in CONTENDERS[name].kinds
    ]


def _installed(names):
    """Return the contenders whose packages are there; the others are left out, with a word."""
    names = names or list(CONTENDERS)
    missing = [name for name in names if not CONTENDERS[name].is_installed]
    for name in missing:
        print(f"{name} left out: it needs {CONTENDERS[name].package}", file=sys.stderr)
    return [name for name in names if name not in missing]


def timed_jobs(tasks):
    """Return whose times are to be taken alone: of three splits of tables and texts."""
    return [
        {"task": task, "contender": name, "seed": seed}
        for seed in range(3)
        for task in tasks
        for name in TIMED
        if TASKS[task].kind != "image"
    ]


def told(record):
    """Return what is said of a record."""
    job = record["task"]
    return f"{job['task']} {job['contender']} {job['seed']}: {record['seconds']:.1f} s"


def main(argv=None):
    """Run the stages that the arguments name, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults", description=__doc__)
    parser.add_argument("command", nargs="?", choices=[*STAGES, "times", "bare", "page"])
    parser.add_argument("--data", help="folder of the data sets")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, metavar="task")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, metavar="contender")
    parser.add_argument("--seeds", type=int, help="at most so many splits of a task")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args(argv)
    for stage, tasks in STAGES.items():
        if args.command in (stage, None):
            chosen = [name for name in tasks if args.tasks is None or name in args.tasks]
            wanted = jobs(chosen, _installed(args.contenders), args.seeds) if chosen else []
            by_row = partial(measure, rows=args.results / "rows")
            results = ResultFile(args.results / f"{stage}.jsonl")
            run(results, wanted, data_folder(args.data), by_row, told)
    if args.command in ("times", None):
        timed = timed_jobs([name for name in REPORT if args.tasks is None or name in args.tasks])
        results = ResultFile(args.results / "times.jsonl")
        run(results, timed, data_folder(args.data), time_alone, told)
    if args.command in ("bare", None):
        compared = bare_jobs([n for n in BARE if args.tasks is None or n in args.tasks])
        results = ResultFile(args.results / "bare.jsonl")
        run(results, compared, data_folder(args.data), compare_with_bare_loop, told)
    if args.command in ("page", None):
        from .report import write

        try:
            write(args.page, args.results)
        except NoRecords as reason:
            parser.error(str(reason))
        # Nothing must be running: a record appended meanwhile would be lost.
        for stage in (*STAGES, "times", "bare"):
            ResultFile(args.results / f"{stage}.jsonl").compress()
    return 0


if __name__ == "__main__":
    sys.exit(main())

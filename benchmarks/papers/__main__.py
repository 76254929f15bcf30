"""Command line: list, run and report the experiments."""

import argparse
import dataclasses
import sys
from pathlib import Path

from .configs import EXPERIMENTS, IMAGE_TRAINING, TRAINING_VALUES, TRIALS
from .data import DataMissing, data_folder
from .runner import compress_finished, result_file, run_experiment, shapes_file
from .store import NoRecords

RUNNABLE = EXPERIMENTS | TRAINING_VALUES | IMAGE_TRAINING | TRIALS
PAGE = Path(__file__).resolve().parents[1] / "papers.md"


def main(argv=None):
    """Run the command that the arguments name; return the exit status."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command == "run" and args.contenders:
        known = RUNNABLE[args.experiment].contenders
        unknown = [name for name in args.contenders if name not in known]
        if unknown:
            parser.error(
                f"argument --contenders: {args.experiment} has no {', '.join(unknown)}; "
                f"choose from {', '.join(known)}"
            )
    if args.command == "list":
        for name, experiment in RUNNABLE.items():
            print(f"{name}{' (--full)' if experiment.full else ''}: {experiment.title}")
        return 0
    if args.command == "report":
        from .report import write

        try:
            write(args.page, args.results)
        except NoRecords as reason:
            parser.error(str(reason))
        compress_finished(RUNNABLE, args.results)
        return 0
    try:
        return _measure(args)
    except DataMissing as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 0


def _measure(args):
    """Run an experiment, or measure the shapes of the losses."""
    if args.command == "shapes":
        from .shapes import measure

        measure(shapes_file(args.results), data_folder(args.data))
        return 0
    experiment = RUNNABLE[args.experiment]
    if experiment.full and not args.full:
        print(f"{args.experiment} takes days without a GPU; add --full to run it", file=sys.stderr)
        return 2
    if args.contenders:
        chosen = {name: experiment.contenders[name] for name in args.contenders}
        experiment = dataclasses.replace(experiment, contenders=chosen)
    path = result_file(args.experiment, args.results)
    run_experiment(experiment, path, data_folder(args.data), args.n_jobs)
    return 0


def _n_jobs(text):
    """Parse a number of processes, as joblib counts them."""
    n_jobs = int(text)
    if n_jobs == 0:
        raise argparse.ArgumentTypeError("must be 1 or more, or -1 for all processors, got 0")
    return n_jobs


def _parser():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="show the experiments")
    run = commands.add_parser("run", help="run an experiment, or what is left of it")
    run.add_argument("experiment", choices=RUNNABLE, metavar="experiment")
    run.add_argument("--contenders", nargs="+", help="run these only; the others may follow")
    run.add_argument("--n-jobs", type=_n_jobs, default=1)
    run.add_argument("--data", help="folder of the data sets")
    run.add_argument("--full", action="store_true", help="run a recipe of many GPU hours")
    shapes = commands.add_parser("shapes", help="measure gradients and level sets of the losses")
    shapes.add_argument("--data", help="folder of the data sets")
    report = commands.add_parser("report", help="write the page, and compress what is whole")
    report.add_argument("--page", type=Path, default=PAGE)
    for command in (run, shapes, report):
        command.add_argument("--results", type=Path, help="folder of the result files")
    return parser


if __name__ == "__main__":
    sys.exit(main())

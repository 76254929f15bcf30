"""Run the tasks of an experiment that have no record yet."""

import sys
from pathlib import Path

from joblib import Parallel, delayed

from .measure import run_task
from .store import ResultFile, task_key, unfinished

RESULTS = Path(__file__).resolve().parents[1] / "results" / "papers"


def result_file(name, folder=None):
    """Return the path of the results of an experiment."""
    return Path(folder or RESULTS) / f"{name}.jsonl"


def shapes_file(folder=None):
    """Return the path of what `shapes` measures."""
    return Path(folder or RESULTS) / "loss_shapes.json.xz"


def run_experiment(experiment, path, folder, n_jobs=1, run=run_task):
    """Tune, then test; whatever has a record in the file is not run again.

    Parameters
    ----------
    experiment : Experiment
    path : Path
        JSON lines; one is added as each fit ends.
    folder : Path
        Where the data are.
    n_jobs : int
        Processes, as in joblib.
    run : callable
        ``run(experiment, task, folder)`` returns the record of a task.
    """
    results = ResultFile(path)
    _run_tasks(experiment.tuning_tasks(), results, experiment, folder, n_jobs, run)
    chosen = experiment.select(results.records())
    _run_tasks(experiment.test_tasks(chosen), results, experiment, folder, n_jobs, run)


def compress_finished(experiments, folder=None):
    """Compress the records of those experiments that have all of theirs."""
    for name, experiment in experiments.items():
        results = ResultFile(result_file(name, folder))
        _, chosen, tests = finished(experiment, results.records())
        if chosen is not None and len(tests) == len(experiment.test_tasks(chosen)):
            results.compress()


def _run_tasks(tasks, results, experiment, folder, n_jobs, run):
    left = unfinished(tasks, results.records())
    done = len(tasks) - len(left)
    parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    for record in parallel(delayed(run)(experiment, task, folder) for task in left):
        results.append(record)
        done += 1
        task = record["task"]
        print(
            f"{task['stage']} {done}/{len(tasks)} {task['contender']} k={task['k']} "
            f"seed={task['seed']} {record['seconds']:.1f} s",
            file=sys.stderr,
            flush=True,
        )


def finished(experiment, records):
    """Return the records of the tuning tasks, the choice (None before), and those of the tests."""
    tasks = experiment.tuning_tasks()
    tuning = [records[task_key(task)] for task in tasks if task_key(task) in records]
    if len(tuning) < len(tasks):
        return tuning, None, []
    chosen = experiment.select(records)
    tasks = experiment.test_tasks(chosen)
    return tuning, chosen, [records[task_key(t)] for t in tasks if task_key(t) in records]

"""One fit of one contender on one split of a task."""

import resource
import sys
import warnings

import numpy as np
import torch

from sksetvalued.rules import AverageK, TopK

from ..papers.data import DataMissing
from ..papers.store import unfinished
from .contenders import CONTENDERS, TIMED
from .tasks import TASKS

COLUMNS = ("top_1", "top_k", "average_k", "top_k_macro", "average_k_macro")


def cpu_seconds():
    """Return the processor time of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def run(results, jobs, folder, measure, told, of="task"):
    """Measure what has no record yet; what lacks its data is left out, with a word.

    Parameters
    ----------
    results : ResultFile
    jobs : list of dict
    folder : Path
        Of the data.
    measure : callable
        Returns the record of a job, given the folder, or None.
    told : callable
        Returns what is said of a record.
    of : str
        Key of a job that names its data.
    """
    missing = set()
    for job in unfinished(jobs, results.records()):
        if job[of] in missing:
            continue
        try:
            record = measure(job, folder)
        except DataMissing as reason:
            missing.add(job[of])
            print(f"{job[of]} left out: {reason}", file=sys.stderr)
            continue
        if record is not None:
            results.append(record)
            print(told(record), file=sys.stderr, flush=True)


def draw(task, folder, seed):
    """Return the split of a task that a seed draws."""
    return TASKS[task].load(folder, np.random.RandomState(seed))


def measure(job, folder, rows):
    """Return the record of a job, a dict with "task", "contender" and "seed", or None.

    Coverages are of sets of equal size: thresholds are set on the test samples, whose labels
    take no part. Which test rows were covered, but for the macro rules, is kept in the folder
    `rows`, and a record says how many of them were by this contender alone, and by another alone,
    for all others that were measured in the same folder before.
    """
    torch.set_num_threads(1)
    task, contender = TASKS[job["task"]], CONTENDERS[job["contender"]]
    split = draw(job["task"], folder, job["seed"])
    if len(np.unique(split.y_train)) > contender.most_classes:
        return None
    model, seconds = fitted(contender.build(task, split.X_train, job["seed"]), split)
    proba = np.asarray(model.predict_proba(split.X_test), dtype=np.float64)
    columns = np.searchsorted(model.classes_, split.y_test)
    prior = np.bincount(np.searchsorted(model.classes_, split.y_train)) / len(split.y_train)
    covered = coverages(proba, columns, prior, task, contender.columns)
    record = {"task": job, "seconds": round(seconds, 3), "n": len(columns)}
    by_row = {name: hits for name, hits in covered.items() if not name.endswith("macro")}
    record["apart"] = compare(by_row, job, rows)
    record["coverage"] = {
        name: mean(hits, columns, name.endswith("macro")) for name, hits in covered.items()
    }
    if hasattr(model, "threshold_"):
        record["size"] = float(model.predict_set(split.X_test).sum(1).mean())
    return record


def fitted(model, split):
    """Return the fitted model, and the seconds of processor time that it took."""
    start = cpu_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(split.X_train, split.y_train)
    return model, cpu_seconds() - start


def time_alone(job, folder):
    """Return the record of the time of a fit: the median of three where it is below 5 s.

    Nothing else may run. A fit that came before has loaded what is loaded late.
    """
    torch.set_num_threads(1)
    task = TASKS[job["task"]]
    split = draw(job["task"], folder, job["seed"])
    few = split._replace(X_train=split.X_train[:100], y_train=split.y_train[:100])
    build = TIMED[job["contender"]]
    fitted(build(task, few.X_train, job["seed"]), few)
    seconds = [fitted(build(task, split.X_train, job["seed"]), split)[1]]
    if seconds[0] < 5:
        seconds += [fitted(build(task, split.X_train, job["seed"]), split)[1] for _ in range(2)]
    return {"task": job, "seconds": round(float(np.median(seconds)), 3)}


def coverages(proba, y, prior, task, which):
    """Return by column which samples are covered."""
    rows = np.arange(len(y))
    proba = np.maximum(proba, np.finfo(float).tiny)
    covered = {"top_1": proba.argmax(1) == y}
    rules = {}
    if which != "average_k":
        rules["top_k"] = (TopK, task.k)
    if which != "top_k":
        rules["average_k"] = (AverageK, task.average_k)
    for name, (rule, k) in rules.items():
        for objective, suffix in (("micro", ""), ("macro", "_macro")):
            sets = rule(k, objective=objective, prior=prior).fit(proba).predict_set(proba)
            covered[name + suffix] = sets[rows, y]
    return covered


def mean(hits, y, macro):
    """Return the mean in percent, over samples or over classes."""
    if not macro:
        return 100 * float(hits.mean())
    counts = np.bincount(y)
    shares = np.bincount(y, weights=hits)[counts > 0] / counts[counts > 0]
    return 100 * float(shares.mean())


def compare(by_row, job, rows):
    """Keep which rows a contender covered; return the rows that it or another covered alone.

    Returns
    -------
    apart : dict of dict of [int, int]
        By name of the other and column.
    """
    path = rows / f"{job['task']}-{job['seed']}.npz"
    known = dict(np.load(path)) if path.exists() else {}
    own, apart = job["contender"], {}
    for key, others in known.items():
        name, column = key.split(" | ")
        if name != own and column in by_row:
            hits = by_row[column]
            alone = [int((hits & ~others).sum()), int((others & ~hits).sum())]
            apart.setdefault(name, {})[column] = alone
    known |= {f"{own} | {column}": hits for column, hits in by_row.items()}
    rows.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **known)
    return apart

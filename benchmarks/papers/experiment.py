"""What an experiment is made of, and the tasks that follow from it."""

import hashlib
import json
from dataclasses import dataclass, field

from sklearn.model_selection import ParameterGrid, ParameterSampler

from sksetvalued import AverageKClassifier, TopKClassifier

ESTIMATORS = {"top_k": TopKClassifier, "average_k": AverageKClassifier}


@dataclass(frozen=True)
class Contender:
    """A loss, what is fixed about it, and its search grid.

    Parameters
    ----------
    params : dict
        Parameters of the estimator.
    grid : dict of lists or None
        Values to search, besides those of the experiment. None: nothing is searched, not even
        the values of the experiment.
    uses_k : bool
        Whether the training depends on k; if not, one fit serves all set sizes.
    rules : tuple of str
        Rules measured besides those of the experiment.
    as_it_is : bool
        Whether the training is that of the estimator now, and not that of former defaults.
    """

    params: dict
    grid: dict | None = field(default_factory=dict)
    uses_k: bool = True
    rules: tuple = ()
    as_it_is: bool = False


@dataclass(frozen=True)
class Experiment:
    """Data, protocol, contenders, set sizes and seeds.

    Parameters
    ----------
    title : str
    data : dict
        Name of a reader of `data` and its arguments.
    estimator : {"top_k", "average_k"}
    contenders : dict of Contender
        The first one is the reference of the paired differences.
    ks : tuple
        Set sizes.
    rules : tuple of str
        Names in `measure.RULES`, of which the first is the one that the page opens with.
    average : {"micro", "macro"}
        How coverage is averaged, in validation and test.
    grid : dict of lists
        Values that are searched for every contender.
    fixed : dict
        Parameters of the estimator common to all.
    budget : int or None
        Configurations tried for each contender; None for all.
    tuning_seeds, seeds : tuple of int
        Seeds of splits and fits, for the search and for the test.
    full : bool
        Whether it is too long to run without being asked to.
    simultaneous : bool
        Whether the intervals of differences to the reference are to hold at once, for all
        contenders, set sizes and rules and for top-1, rather than each for itself.
    """

    title: str
    data: dict
    estimator: str
    contenders: dict
    ks: tuple
    rules: tuple
    average: str = "micro"
    grid: dict = field(default_factory=dict)
    fixed: dict = field(default_factory=dict)
    budget: int | None = 12
    tuning_seeds: tuple = (100,)
    seeds: tuple = tuple(range(10))
    full: bool = False
    simultaneous: bool = False

    @property
    def protocol(self):
        """Digest of what all tasks have in common; a change makes them other tasks."""
        common = {key: getattr(self, key) for key in ("data", "estimator", "average", "fixed")}
        return hashlib.sha256(json.dumps(common, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def n_differences(self):
        """Differences to the reference whose intervals are to hold at once."""
        if not self.simultaneous:
            return 1
        # Of the coverage by each rule, and of top-1.
        return (len(self.contenders) - 1) * len(self.ks) * (len(self.rules) + 1)

    @property
    def pictured(self):
        """The rule and the k of which the sizes of all sets are recorded, and drawn."""
        return self.rules[0], self.ks[-1]

    def cells(self, contender, k=None):
        """Return (rule, k) of all that is measured for a contender (trained for this k)."""
        rules = self.rules + self.contenders[contender].rules
        ks = self.ks if k is None else (k,)
        return [
            (rule, size)
            for rule in rules
            for size in ks
            if not rule.startswith("top_k") or float(size).is_integer()
        ]

    def configurations(self, contender):
        """Return the parameter settings tried for a contender."""
        if self.contenders[contender].grid is None:
            return [{}]
        grid = self.grid | self.contenders[contender].grid
        if self.budget is None:
            return list(ParameterGrid(grid))
        return list(ParameterSampler(grid, self.budget, random_state=0))

    def tuning_tasks(self):
        """Return one task for each contender with a choice, k, configuration and tuning seed."""
        choices = {name: self.configurations(name) for name in self.contenders}
        return [
            self._task("tune", name, k, params, seed)
            for seed in self.tuning_seeds
            for name, configurations in choices.items()
            for k in self._training_ks(name)
            for params in configurations
            if len(configurations) > 1
        ]

    def _training_ks(self, contender):
        return self.ks if self.contenders[contender].uses_k else (None,)

    def _task(self, stage, contender, k, params, seed, cells=None):
        """Return a task: a JSON object that says all about a fit, and identifies it."""
        own = self.contenders[contender].params
        task = {"protocol": self.protocol, "stage": stage, "contender": contender, "k": k}
        task |= {"params": own | params, "seed": seed}
        return task | {"cells": [list(c) for c in cells or self.cells(contender, k)]}

    def select(self, records):
        """Return the best configuration of each (contender, rule, k) by validation coverage.

        Parameters
        ----------
        records : dict
            Of all tuning tasks.

        Returns
        -------
        chosen : dict of (contender, rule, k) -> (train k, parameters)
        """
        from .store import task_key

        sums, first = {}, {}
        for task in self.tuning_tasks():
            for cell, result in zip(task["cells"], records[task_key(task)]["cells"]):
                slot = (task["contender"], cell[0], cell[1])
                config = json.dumps([task["k"], task["params"]], sort_keys=True)
                first.setdefault((slot, config), (task["k"], task["params"]))
                totals = sums.setdefault(slot, {})
                totals[config] = totals.get(config, 0.0) + result["coverage"]
        chosen = {slot: first[slot, max(totals, key=totals.get)] for slot, totals in sums.items()}
        return chosen | self._no_choice()

    def _no_choice(self):
        """Return the slots of the contenders that have only one configuration."""
        return {
            (name, *cell): (k, contender.params | self.configurations(name)[0])
            for name, contender in self.contenders.items()
            if len(self.configurations(name)) == 1
            for k in self._training_ks(name)
            for cell in self.cells(name, k)
        }

    def test_tasks(self, chosen):
        """Return one task for each chosen fit and seed, with the cells that chose it."""
        fits = {}
        for (name, rule, k), (train_k, params) in chosen.items():
            config = json.dumps([name, train_k, params], sort_keys=True)
            fits.setdefault(config, (name, train_k, params, []))[3].append((rule, k))
        return [
            self._test_task(name, k, params, seed, cells)
            for seed in self.seeds
            for name, k, params, cells in fits.values()
        ]

    def _test_task(self, name, k, params, seed, cells):
        own = self.contenders[name].params
        searched = {key: params[key] for key in params if key not in own}
        return self._task("test", name, k, searched, seed, sorted(cells))

"""Means with Student intervals, over seeds that all contenders share."""

import math
from collections import defaultdict

import numpy as np
from scipy import stats

BETTER, WORSE, LEVEL = "better", "worse", "no difference seen"
SHOTS = ("few", "medium", "many")


def interval(values, n_at_once=1):
    """Return the mean and the half-width of its 95 % Student interval (nan for one value).

    Parameters
    ----------
    values : array-like
    n_at_once : int
        Intervals that are to hold at once with 95 %, by Bonferroni's inequality.
    """
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        return float(values.mean()), math.nan
    spread = values.std(ddof=1) / math.sqrt(len(values))
    quantile = stats.t.ppf(1 - 0.025 / n_at_once, len(values) - 1)
    return float(values.mean()), float(quantile * spread)


class Measurements:
    """Test figures of one experiment, by cell and seed.

    Only seeds of which every test task has been run count, so that all means and differences
    are over the same seeds.

    Parameters
    ----------
    experiment : Experiment
    tests : list of dict
        Records of test tasks.
    n_tasks : int
        Test tasks of one seed.
    """

    def __init__(self, experiment, tests, n_tasks):
        by_seed = defaultdict(list)
        for record in tests:
            by_seed[record["task"]["seed"]].append(record)
        self.experiment, self.n_tasks = experiment, n_tasks
        self.seeds = sorted(s for s, records in by_seed.items() if len(records) == n_tasks)
        self._figures = {}
        for seed in self.seeds:
            for record in by_seed[seed]:
                name = record["task"]["contender"]
                for (rule, k), figures in zip(record["task"]["cells"], record["cells"]):
                    self._figures[name, rule, k, seed] = figures | {"top_1": record["top_1"]}

    def has(self, name, rule, k):
        """Return whether the cell was measured."""
        return bool(self.seeds) and (name, rule, k, self.seeds[0]) in self._figures

    def values(self, name, rule, k, figure="coverage"):
        """Return a figure of a cell at each seed; all but the average size are in percent.

        Parameters
        ----------
        name, rule : str
        k : float
        figure : {"coverage", "top_1", "size", "few", "medium", "many"}
            The last three are the coverages of these classes.
        """
        cells = [self._figures[name, rule, k, seed] for seed in self.seeds]
        if figure in SHOTS:
            return np.array([100 * cell["shots"][figure] for cell in cells])
        factor = 1 if figure == "size" else 100
        return np.array([factor * cell[figure] for cell in cells])

    def shot_sizes(self, name, rule, k):
        """Return the average size of the sets by shot group, None where it was not recorded."""
        cells = [self._figures[name, rule, k, seed] for seed in self.seeds]
        if "shot_sizes" not in cells[0]:
            return None
        groups = cells[0]["shot_sizes"]
        return {g: float(np.mean([cell["shot_sizes"][g] for cell in cells])) for g in groups}

    def set_sizes(self, name, rule, k):
        """Return how many sets of 0, 1, ... classes there are in all seeds, by shot group.

        None where they were not recorded, which are only those of the cell that is drawn.
        """
        cells = [self._figures[name, rule, k, seed] for seed in self.seeds]
        if "set_sizes" not in cells[0]:
            return None
        length = max(len(counts) for cell in cells for counts in cell["set_sizes"])
        padded = [
            [counts + [0] * (length - len(counts)) for counts in cell["set_sizes"]]
            for cell in cells
        ]
        return np.sum(padded, axis=0)

    def shot_groups(self):
        """Return the shot groups there are."""
        groups = next(iter(self._figures.values())).get("shots", {}) if self._figures else {}
        return [group for group in SHOTS if group in groups]

    def difference(self, left, right, k, figure="coverage"):
        """Return mean and half-width of the paired difference of two (contender, rule)."""
        gaps = self.values(*left, k, figure) - self.values(*right, k, figure)
        return interval(gaps, self.experiment.n_differences)


def verdict(mean, half_width):
    """Return what the interval of a difference says about its sign."""
    if math.isnan(half_width):
        return "one seed only"
    if mean - half_width > 0:
        return BETTER
    if mean + half_width < 0:
        return WORSE
    return LEVEL

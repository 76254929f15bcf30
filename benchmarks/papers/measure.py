"""Fit one estimator as a task says, and measure its sets."""

import time
import warnings

import numpy as np
import torch

from sksetvalued import PlugInClassifier
from sksetvalued.metrics import (
    average_k_threshold,
    average_set_size,
    set_coverage_score,
    shot_coverage_score,
)
from sksetvalued.rules import TopK

from . import losses  # noqa: F401  (registers the losses by their names)
from .data import image_transform, load_split
from .experiment import ESTIMATORS
from .statistics import SHOTS


def _own_sets(objective):
    """Sets of the estimator's own rule, calibrated on unlabelled validation data."""

    def sets(clf, k, X_val, X):
        clf.set_params(k=k, objective=objective)
        if hasattr(clf, "calibrate"):
            clf.calibrate(X_val)
        return clf.predict_set(X)

    return sets


def _top_k_sets(clf, k, X_val, X):
    return PlugInClassifier(clf, TopK(int(k)), cv="prefit").fit(X_val).predict_set(X)


def _sigmoid_sets(clf, k, X_val, X):
    # One threshold on sigmoids is one threshold on the scores themselves.
    threshold = average_k_threshold(clf.decision_function(X_val), k)
    return clf.decision_function(X) >= threshold


#: Training values of searched contenders where neither the experiment nor the search says other.
UNLESS_SEARCHED = {"lr_schedule": None, "weight_decay": 0.01}

#: Of all fits where nothing else is said, but of estimators as they are now: the defaults when
#: they were recorded.
UNLESS_SAID = {"max_epochs": 50, "lr": 3e-3, "lr_schedule": "cosine"}
LOSSES = {"top_k": "noised_hinge", "average_k": "two_head"}
WEIGHT_DECAY = {"banking77": 0.1, "synthetic": 0.1}

#: How the scores of a network become sets.
RULES = {
    "average_k": _own_sets("micro"),
    "average_k_macro": _own_sets("macro"),
    "average_k_sigmoid": _sigmoid_sets,
    "top_k": _own_sets("micro"),
    "top_k_macro": _own_sets("macro"),
    "top_k_of_average_k": _top_k_sets,
}


def run_task(experiment, task, folder):
    """Return the record of a task: the task, seconds, and the figures of each cell.

    A tuning task is measured on the validation data, a test task on the test data.
    """
    torch.set_num_threads(1)
    split = load_split(experiment.data, folder, task["seed"])
    clf = build(experiment, task)
    start = time.perf_counter()
    clf.fit(split.X_train, split.y_train)
    seconds = time.perf_counter() - start
    test = task["stage"] == "test"
    X, y = (split.X_test, split.y_test) if test else (split.X_val, split.y_val)
    with warnings.catch_warnings():
        # A class of the test data that no training sample has is a miss, as it should be.
        warnings.simplefilter("ignore", UserWarning)
        cells = []
        for rule, k in task["cells"]:
            sets = RULES[rule](clf, k, split.X_val, X)
            cells.append(figures(clf, sets, y, experiment.average))
            if test:
                cells[-1] |= by_shots(clf, sets, y, (rule, k) == experiment.pictured)
    top_1 = round(float(clf.score(X, y)), 5)
    return {"task": task, "seconds": round(seconds, 2), "top_1": top_1, "cells": cells}


def build(experiment, task):
    """Return the estimator of a task, unfitted."""
    cls, name = ESTIMATORS[experiment.estimator], experiment.data["name"]
    contender = experiment.contenders[task["contender"]]
    params = {"transform": image_transform(name)}
    if experiment.estimator == "average_k":
        params["calibration_fraction"] = None
    if not contender.as_it_is:
        params |= {
            **UNLESS_SAID,
            "loss": LOSSES[experiment.estimator],
            "weight_decay": WEIGHT_DECAY.get(name, 0.2),
        }
    if contender.grid is not None:
        params |= UNLESS_SEARCHED
    params |= experiment.fixed | task["params"]
    if not contender.as_it_is and params.get("backbone", "convnet") in ("convnet", None):
        params["backbone_params"] = {"dropout": 0.0, **params.get("backbone_params", {})}
    return cls(task["k"] or experiment.ks[0], **params, random_state=task["seed"])


def figures(clf, sets, y, average):
    """Return coverage and average size."""
    coverage = set_coverage_score(y, sets, average=average, labels=clf.classes_)
    return {"coverage": round(float(coverage), 5), "size": round(average_set_size(sets), 4)}


def by_shots(clf, sets, y, every_size):
    """Return coverage and average size for true classes with few, medium and many samples.

    With `every_size` also how many sets there are of 0, 1, ... classes. Nothing where classes have
    equally many training samples.
    """
    if not np.ptp(clf.class_counts_):
        return {}
    shots = shot_coverage_score(y, sets, class_counts=clf.class_counts_, labels=clf.classes_)
    result = {"shots": {n: round(v, 5) for n, v in shots.items() if not np.isnan(v)}}
    sizes = sets.sum(1)
    if np.ptp(sizes):
        groups = np.digitize(clf.class_counts_[np.searchsorted(clf.classes_, y)], (20, 101))
        by_group = [sizes[groups == g] for g in range(3)]
        means = {n: round(float(s.mean()), 4) for n, s in zip(SHOTS, by_group) if len(s)}
        result["shot_sizes"] = means
        if every_size:
            result["set_sizes"] = [np.bincount(s).tolist() for s in by_group]
    return result

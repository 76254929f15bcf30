"""Cases of the estimators: fits and predictions from samples and targets of any kind."""

import functools

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from sklearn.naive_bayes import GaussianNB
from torch import nn
from torch.utils.data import TensorDataset

from sksetvalued import (
    AverageKClassifier,
    PlugInClassifier,
    SparseTopClassifier,
    TopKClassifier,
)
from sksetvalued.losses import LOSSES
from sksetvalued.rules import AverageError, AverageK, TopK

from .law import is_mask, judge, same
from .values import NO_NUMBERS, as_given, floats, labels, no_array, no_labels, together

N_FEATURES = 4
#: Arguments and other words, one of which an error of an estimator holds.
NAMES = ("X", "y", "sample_weight", "k", "classes", "TopKClassifier", "AverageKClassifier")
NAMES += ("SparseTopClassifier", "PlugInClassifier", "n_samples", "features", "array", "rule")


def _table(rng, n_samples, n_features=N_FEATURES):
    return floats(rng, (n_samples, n_features), extreme=False)


@functools.cache
def models():
    """Return fitted models by name."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, N_FEATURES)), np.arange(60) % 3
    images = rng.integers(0, 256, (12, 6, 6, 1), dtype=np.uint8)
    params = {"max_epochs": 1, "random_state": 0, "backbone": (4,)}
    flat = nn.Sequential(nn.Flatten(), nn.Linear(36, 4))
    return {
        "top_k": TopKClassifier(2, **params).fit(X, y),
        "average_k": AverageKClassifier(1.5, **params).fit(X, y),
        "macro": AverageKClassifier(1.5, objective="macro", **params).fit(X, y),
        "sparse_top": SparseTopClassifier(**params).fit(X, np.eye(3, dtype=int)[y]),
        "plug_in": PlugInClassifier(GaussianNB(), AverageK(1.5)).fit(X, y),
        "images": TopKClassifier(2, **{**params, "backbone": flat}).fit(images, y[:12]),
    }


def _samples(rng, model, n_samples):
    """Return samples in a form that the model takes, or not, and what to expect."""
    if rng.random() < 0.25 and model != "plug_in":  # what is inside of that has own checks
        return no_array(rng, n_samples, N_FEATURES), "either"
    if model == "images":
        bulk = np.random.default_rng(rng.getrandbits(32))
        images = bulk.integers(0, 256, (n_samples, 6, 6, 1), dtype=np.uint8)
        wrong = (images[..., 0, 0], images[:, :3], images.astype(str), images + 1j, images / 3)
        forms = (images, images.tolist(), torch.tensor(images).permute(0, 3, 1, 2), images[..., 0])
        if rng.random() < 0.2:
            return rng.choice(wrong), "either"
        return rng.choice((forms[0], forms[2], forms[3])), "right"
    table = _table(rng, n_samples)
    if model == "plug_in":
        return table, "right"
    kind = rng.randrange(8)
    if kind == 0:
        return table[:, :-1], "error"
    if kind == 1:
        frame = pd.DataFrame(table)
        form = rng.choice((frame, frame.astype("Float64"), frame.astype("float32")))
        return form, "right"
    if kind == 2:
        make = rng.choice((sp.csr_array, sp.csc_matrix, sp.coo_array, sp.lil_array, sp.dok_array))
        return make(table), "right"
    if kind == 3:
        return TensorDataset(torch.tensor(table).float()), "either"
    return as_given(rng, table), "right"


METHODS = ("predict_set", "predict_set", "predict_labels", "predict", "predict_proba", "score")
METHODS += ("decision_function", "calibrate")


def predict_case(rng):
    """Call a method of a fitted model on samples of any kind."""
    name, method = rng.choice(list(models())), rng.choice(METHODS)
    model, n_samples = models()[name], rng.randrange(1, 6)
    X, expect = _samples(rng, name, n_samples)
    if not hasattr(model, method):
        return "none"
    args = ()
    if method == "score":
        y = np.arange(n_samples) % 3
        args, of_y = (np.eye(3)[y] if name == "sparse_top" else y,), "right"
        expect = together(expect, of_y)
    if method == "calibrate" and name in ("sparse_top", "plug_in"):
        expect = together(expect, "either")

    def check(result):
        n = n_samples if expect == "right" else len(result) if hasattr(result, "__len__") else 0
        if method == "predict_set":
            is_mask(result, (n, 3))
            if name in ("top_k", "images"):
                assert (result.sum(1) == 2).all(), "a size that is not k"
        elif method == "predict_labels":
            assert all(set(labels) <= set(model.classes_) for labels in result), "no labels"
        elif method == "predict_proba":
            same(np.shape(result), (n, 3), "shape")
            assert not np.isnan(result).any(), "NaN"
            assert name == "sparse_top" or np.allclose(np.sum(result, 1), 1), "no probabilities"
        elif method == "decision_function":
            assert np.isfinite(result).all(), "not finite"
        elif method == "score":
            assert 0 <= result <= 1, "no share"

    return judge(lambda: getattr(model, method)(X, *args), NAMES + SCIKIT, check, expect)


#: What scikit-learn's own checks of arguments name instead.
SCIKIT = ("Input", "Found", "Expected", "inputs?", "np.matrix", "y_true", "Mix", "Complex data")
SCIKIT += ("Unknown label type", "multiclass", "container")

#: Valid values of parameters of the deep estimators.
PARAMS = {
    "max_epochs": (1, 1, 2),
    "batch_size": ("auto", 1, 3, 100),
    "lr": ("auto", 1e-3, 1.0),
    "weight_decay": (None, 0.0, 0.1),
    "lr_schedule": ("auto", None, "cosine", "one_cycle", "averaged"),
    "optimizer": ("adamw", "adam", "sgd"),
    "validation_fraction": (None, None, 0.3),
    "precision": ("float32",),
    "compile": (False,),
    "warm_start": (False, True),
    "verbose": (0,),
    "device": ("cpu", "auto"),
    "backbone": ((2,), [3], "mlp", nn.Linear(N_FEATURES, 2), nn.Identity()),
    "backbone_params": (None,),
    "monitor": ("auto", "valid_loss"),
    "patience": (None,),
    "net_params": (None, {}),
    "callbacks": (None, [], ()),
    "loss_params": (None, {}),
    "rule_params": (None, {}),
    "class_weight": (None, "balanced"),
    "objective": ("micro", "macro"),
}
HUGE = 10**400
ODD = (*NO_NUMBERS, "", "x", -1, 0, 1.5, HUGE, float("inf"), "os.system", {"a": 1}, [1, "a"])


def _params(rng, cls):
    """Return parameters of an estimator, and what to expect of them."""
    params = {"max_epochs": 1, "random_state": rng.randrange(99), "backbone": (2,)}
    known = cls._get_param_names()
    for name, values in PARAMS.items():
        if name in known and rng.random() < 0.25:
            params[name] = rng.choice(values)
    outcomes = []
    if rng.random() < 0.2:
        odd = rng.choice([name for name in known if name not in ("compile", "weights")])
        params[odd] = rng.choice(ODD)
        outcomes.append("either")
        if odd in ("max_epochs", "n_noise_samples") and isinstance(params[odd], int):
            params[odd] = min(params[odd], 3)
        if odd == "backbone" and params[odd] is HUGE:
            params[odd] = None
    if cls is not SparseTopClassifier:
        params.setdefault("k", rng.choice((1, 2, 3) if cls is TopKClassifier else (1, 1.5, 2)))
    if rng.random() < 0.3:
        targets = "indicator" if cls is SparseTopClassifier else "label"
        params["loss"] = rng.choice([n for n, c in LOSSES.items() if targets in c.targets])
        outcomes.append("either")
    return params, together(*outcomes)


def fit_case(rng):
    """Fit an estimator with parameters, samples, targets and weights of any kind."""
    cls = rng.choice((TopKClassifier, AverageKClassifier, SparseTopClassifier))
    params, expect = _params(rng, cls)
    n_samples = rng.randrange(6, 20)
    table = _table(rng, n_samples)
    X, of_X = as_given(rng, table), "right"
    if rng.random() < 0.1:
        X, of_X = no_array(rng, n_samples, N_FEATURES), "either"
    y, of_y = labels(rng, n_samples), "right"
    if len(np.unique(np.asarray(y))) < 2 or cls is SparseTopClassifier:
        of_y = "either"
    if cls is SparseTopClassifier and rng.random() < 0.7:
        y = np.random.default_rng(rng.getrandbits(32)).random((n_samples, 3)) < 0.5
        y = rng.choice((y, y.astype(int), sp.csr_array(y.astype(int)), y.astype(float)))
    if rng.random() < 0.1:
        y, of_y = no_labels(rng, n_samples), "either"
    weight, of_weight = None, "right"
    if rng.random() < 0.15:
        weight = np.array([rng.choice((0.0, 1.0, 2.0)) for _ in range(n_samples)])
        wrong = (-weight, weight * np.nan, "w", weight[:-1], weight + 1j)
        weight = rng.choice((weight, weight, *wrong))
        of_weight = "either"
    if cls is AverageKClassifier:  # few samples are held out for the threshold
        of_y = together(of_y, "either")
    clf = cls(**params)

    def call():
        return clf.fit(X, y, sample_weight=weight).predict_set(X)

    def check(y_set):
        is_mask(y_set, (len(y_set), len(clf.classes_)))
        if cls is TopKClassifier:
            assert (y_set.sum(1) == min(clf.k, len(clf.classes_))).all(), "a size that is not k"
        losses = clf.history_[:, "train_loss"]
        assert np.isfinite(losses).all(), f"losses {losses}"
        rule = getattr(clf, "rule_", None)
        threshold = getattr(rule, "threshold_", 0.0)
        assert not np.isnan(threshold), "the threshold is NaN"
        for value in clf.net_.module_.state_dict().values():
            assert torch.isfinite(value.double()).all(), "weights that are not finite"

    names = NAMES + SCIKIT + tuple(params) + ("calibration_fraction", "loss", "lr", "parameter")
    outcome = judge(call, names, check, together(expect, of_X, of_y, of_weight))
    return "fit" if outcome == "right" else outcome


def plug_in_case(rng):
    """Fit a rule on a classifier of scikit-learn with parts and data of any kind."""
    n_samples = rng.randrange(12, 24)
    X = np.random.default_rng(rng.getrandbits(32)).standard_normal((n_samples, N_FEATURES))
    y = np.arange(n_samples) % 3
    rule, outcomes = rng.choice((TopK(2), AverageK(1.5), AverageError(0.3))), []
    estimator, cv = GaussianNB(), 2
    odd = rng.randrange(6)
    if odd == 1:
        y = no_labels(rng, n_samples)
    elif odd == 2:
        estimator = rng.choice((GaussianNB, None, "x", TopK(2), TopKClassifier, nn.Linear(2, 2)))
    elif odd == 3:
        rule = rng.choice((TopK, None, "x", GaussianNB(), TopK(0), AverageK("2"), TopK(True)))
    elif odd == 4:
        cv = rng.choice((0, 1, -1, 2.5, "x", "prefit", [], {}, object()))
    elif not isinstance(rule, AverageError):
        outcomes.append("right")
    model = PlugInClassifier(estimator, rule, cv=cv)
    names = NAMES + SCIKIT + ("estimator", "rule", "cv", "error", "GaussianNB", "n_splits")
    names += ("splits?", "folds?", "members", "cross-validation", "scikit-learn")

    def check(y_set):
        is_mask(y_set, (n_samples, 3) if outcomes else y_set.shape)

    return judge(
        lambda: model.fit(X, y).predict_set(X), names, check, "right" if outcomes else "either"
    )


CASES = {"predictions": predict_case, "fits": fit_case, "plug_ins": plug_in_case}

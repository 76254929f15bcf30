"""Exported graphs against `predict_set` on real data: equal sets, except next to a threshold."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.datasets import load_digits

from sksetvalued import (
    AverageKClassifier,
    PlugInClassifier,
    SparseTopClassifier,
    TopKClassifier,
    export,
    to_torch,
)
from sksetvalued.rules import AverageError, AverageK, PointwiseError, TopK

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

#: What scores may differ by, of a network in single and in double precision.
BOUNDS = {torch.float32: 1e-4, torch.float64: 1e-9}
QUICK = {"max_epochs": 2, "random_state": 0}
RULES = {
    "top-k": TopK(3),
    "top-k, macro": TopK(3, objective="macro", log_scores=True),
    "average-k": AverageK(2.5),
    "average-k, macro, bounds": AverageK(2.5, objective="macro", min_size=1, max_size=6),
    "error": AverageError(0.1),
    "error by class": AverageError(0.2, coverage="class", log_scores=True),
    "pointwise error": PointwiseError(0.1),
}
ESTIMATORS = {
    "TopKClassifier": TopKClassifier(3, **QUICK),
    "TopKClassifier, macro": TopKClassifier(3, objective="macro", **QUICK),
    "AverageKClassifier": AverageKClassifier(2.5, **QUICK),
    "AverageKClassifier, macro": AverageKClassifier(2.5, objective="macro", **QUICK),
}
LABEL_SETS = {
    "predicted sizes": SparseTopClassifier(**QUICK),
    "one size": SparseTopClassifier(size=2, **QUICK),
    "threshold": SparseTopClassifier(size="threshold", **QUICK),
    "threshold, sparsemax": SparseTopClassifier(size="threshold", loss="sparsemax", **QUICK),
    "threshold, bce": SparseTopClassifier(size="threshold", loss="bce", **QUICK),
}


@pytest.fixture(scope="module")
def tables():
    """Digits as rows: 1,000 to fit, all to predict."""
    X, y = load_digits(return_X_y=True)
    return X[:1000], y[:1000], X


@pytest.fixture(scope="module")
def characters(shared_data):
    """Handwritten characters as images of bytes: every fourth to predict."""
    data = np.load(shared_data / "omniglot_small.npz")
    images, y = data["images"][:, None], data["y"]
    seen = np.arange(len(y)) % 4 > 0
    return images[seen], y[seen], images[~seen]


@pytest.fixture(scope="module")
def scenes(shared_data):
    """Features of photographs with several labels each."""
    data = np.load(shared_data / "multilabel" / "scene.npz")

    def part(name, values):
        places = data[f"{name}_indices"], data[f"{name}_indptr"]
        return sp.csr_matrix((values, *places), shape=tuple(data[f"{name}_shape"])).toarray()

    X, Y = (
        part("X", data["X_data"].astype(float)),
        part("Y", np.ones(len(data["Y_indices"]), dtype=int)),
    )
    return X[~data["is_test"]], Y[~data["is_test"]], X


def at_size(values, size):
    """Return how far the last of the `size` largest of each row is from the next one."""
    ordered = -np.sort(-values, axis=1)
    size = np.broadcast_to(np.clip(size, 1, values.shape[1] - 1), len(values))
    rows = np.arange(len(values))
    return ordered[rows, size - 1] - ordered[rows, size]


def room(rule, ranked, probabilities):
    """Return how far the scores of each row are from where its set changes.

    Of probabilities, by their logarithms, which is what the networks compute.
    """
    threshold = getattr(rule, "threshold_", None)
    if getattr(rule, "coverage", "") == "class":
        threshold = rule.thresholds_
    if probabilities:
        with np.errstate(divide="ignore"):
            ranked, threshold = np.log(ranked), None if threshold is None else np.log(threshold)
    if isinstance(rule, TopK):
        return at_size(ranked, rule.k)
    if isinstance(rule, PointwiseError):
        sums = np.sort(np.exp(ranked), axis=1)[:, ::-1].cumsum(1)
        size = (sums < 1 - rule.error).sum(1) + 1
        return np.minimum(np.abs(sums - (1 - rule.error)).min(1), at_size(ranked, size))
    space = np.abs(ranked - threshold).min(1)
    for size in (getattr(rule, "min_size", 0), getattr(rule, "max_size", None)):
        space = np.minimum(space, at_size(ranked, size)) if size else space
    return space


def room_of_label_sets(model, X):
    scores = np.concatenate(list(model._iter_scores(X))).astype(float)
    n_classes = len(model.classes_)
    scores, logits = scores[:, :n_classes], scores[:, n_classes:]
    if model.size == "threshold":
        return room(model.rule_, to_torch(model)(torch.from_numpy(X))[1].numpy(), False)
    if model.size != "predicted":
        return at_size(scores, model.size)
    share = np.exp(logits - logits.max(1, keepdims=True))
    sums = share.cumsum(1) / share.sum(1, keepdims=True)
    size = (sums < 0.5).sum(1)
    return np.minimum(np.abs(sums - 0.5).min(1), at_size(scores, size))


def compare(name, model, X, space, folder, in_onnx=True):
    """Compare the sets of the graph, in torch and in ONNX Runtime; print what was counted."""
    expected, module = model.predict_set(X), to_torch(model)
    outcomes = {"torch": module(torch.from_numpy(X))[0].numpy()}
    if in_onnx:
        runtime = pytest.importorskip("onnxruntime", reason="extra 'onnx' is not installed")
        export(model, folder / "model.onnx")
        session = runtime.InferenceSession(folder / "model.onnx")
        outcomes["onnx"] = session.run(["sets"], {"X": X})[0]
    far = space > BOUNDS[module.dtype]
    others = {way: (sets != expected).any(1) for way, sets in outcomes.items()}
    counts = ", ".join(f"{way}: {other.sum()}" for way, other in others.items())
    print(
        f"{name}: {len(X)} rows, {(~far).sum()} within {BOUNDS[module.dtype]:g}; {counts} differ"
    )
    assert far.mean() > 0.5  # Else little would be compared.
    for way, other in others.items():
        assert not (other & far).any(), (name, way)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("kind", ["tables", "characters"])
def test_estimators(request, tmp_path, kind, name):
    X, y, X_new = request.getfixturevalue(kind)
    model = ESTIMATORS[name].fit(X, y)
    space = room(model.rule_, model._set_scores(X_new), not model.rule_.log_scores)
    compare(f"{kind}, {name}", model, X_new, space, tmp_path)


@pytest.mark.parametrize("kind", ["tables", "characters"])
def test_rules(request, tmp_path, kind):
    X, y, X_new = request.getfixturevalue(kind)
    inner = TopKClassifier(3, loss="cross_entropy", **QUICK).fit(X[::2], y[::2])
    for i, (name, rule) in enumerate(RULES.items()):
        model = PlugInClassifier(inner, rule, cv="prefit").fit(X[1::2], y[1::2])
        space = room(model.rule_, model._set_scores(X_new), not model.rule_.log_scores)
        compare(f"{kind}, {name}", model, X_new, space, tmp_path, in_onnx=i % 3 == 0)


@pytest.mark.parametrize("name", LABEL_SETS)
def test_label_sets(scenes, tmp_path, name):
    X, Y, X_new = scenes
    model = LABEL_SETS[name].fit(X, Y)
    compare(f"scenes, {name}", model, X_new, room_of_label_sets(model, X_new), tmp_path)

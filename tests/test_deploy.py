"""Exported graphs against the estimators and rules they come from.

What skl2onnx writes of other steps and classifiers is tested in `tests/integration/test_onnx.py`.
"""

import copy
import json
import subprocess
import sys
import warnings
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, make_multilabel_classification
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from sksetvalued import (
    AverageKClassifier,
    PlugInClassifier,
    SparseTopClassifier,
    TopKClassifier,
    export,
    predict_labels,
    predict_set,
    to_torch,
)
from sksetvalued.deploy import _masks, register_onnx_converters
from sksetvalued.deploy._pipelines import OPSET, _RuleOfScores, onnx_graph
from sksetvalued.deploy._rules import rule_module
from sksetvalued.estimators._marginals import label_proba
from sksetvalued.operators import sparse_top
from sksetvalued.rules import AverageError, AverageK, PointwiseError, TopK

pytestmark = pytest.mark.usefixtures("exports_share_operations")

X, digit = load_digits(return_X_y=True)
y = np.array(list("abcdefghij"))[digit]
X, y, X_new = X[:400], y[:400], X[400:800]
images = (16 * X).astype(np.uint8).reshape(-1, 1, 8, 8)
X_labels, Y = make_multilabel_classification(300, n_classes=5, random_state=0)
X_labels, Y = X_labels[Y.sum(1) < 4], Y[Y.sum(1) < 4]  # a graph has a projection for each size
PRIOR = np.array([0.4, 0.3, 0.1, 0.1, 0.05, 0.05])

ESTIMATORS = {
    "top-k": (TopKClassifier(3), X, y),
    "top-k, macro, adjusted": (TopKClassifier(3, objective="macro", loss="logit_adjusted"), X, y),
    "top-k, cosines": (TopKClassifier(2, max_margin=0.2), X, y),
    "top-k, smoothed labels": (
        TopKClassifier(2, objective="macro", loss=nn.CrossEntropyLoss(label_smoothing=0.2)),
        X,
        y,
    ),
    "a rule of one's own": (
        PlugInClassifier(TopKClassifier(max_epochs=2, random_state=0), AverageError(0.3), cv=0.5),
        X,
        y,
    ),
    "average-k, two heads": (AverageKClassifier(1.7), X, y),
    "average-k, bounds, images": (
        AverageKClassifier(2, objective="macro", rule_params={"min_size": 1, "max_size": 3}),
        images,
        y,
    ),
    "label sets, learnt sizes": (SparseTopClassifier(), X_labels, Y),
    "label sets, threshold": (SparseTopClassifier(size="threshold"), X_labels, Y),
    "label sets, threshold, shares": (
        SparseTopClassifier(size="threshold", loss="sparsemax"),
        X_labels,
        Y,
    ),
    "label sets, one size": (SparseTopClassifier(size=2, loss="bce"), X_labels, Y),
}
slow = pytest.mark.slow
IN_FILES = [
    "top-k, macro, adjusted",
    "average-k, bounds, images",
    "label sets, threshold",
    "a rule of one's own",
]


def quickly(*names):
    """Return the names of models in files, marked as slow but for some."""
    return [name if name in names else pytest.param(name, marks=slow) for name in IN_FILES]


@cache
def fitted(name):
    model, samples, target = ESTIMATORS[name]
    if isinstance(model, PlugInClassifier):
        # The threshold of its rule is the score of one of its samples, which runtimes round.
        return model.fit(samples, target), X_new
    model.set_params(max_epochs=2, random_state=0)
    return model.fit(samples, target), samples


def rules(log_scores):
    """Yield fitted rules and scores at, just below and just above what they decide by."""
    rng = np.random.default_rng(0)
    tied = rng.integers(1, 4, size=(400, 6)) / 4.0
    scores = np.log(tied) if log_scores else tied
    macro = {"objective": "macro", "prior": PRIOR, "log_scores": log_scores}
    for rule in (
        TopK(2, log_scores=log_scores),
        TopK(3, **macro),
        TopK(9, log_scores=log_scores),
        AverageK(1.7, log_scores=log_scores),
        AverageK(2.5, min_size=1, max_size=4, **macro),
        AverageError(0.1, log_scores=log_scores),
        AverageError(0.2, coverage="class", **macro),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            rule.fit(scores, rng.integers(6, size=400))
        by_class = getattr(rule, "coverage", None) == "class"
        threshold = getattr(rule, "thresholds_" if by_class else "threshold_", scores.max())
        prior = np.ones(6) if rule.rank_scores(scores) is scores else PRIOR
        at = threshold + np.log(prior) if log_scores else threshold * prior
        near = at + rng.choice([-1e-9, 0.0, 1e-9], size=scores.shape)
        yield rule, np.where(rng.random(scores.shape) < 0.5, near, scores)
    if not log_scores:
        proba = tied / tied.sum(1, keepdims=True)
        yield PointwiseError(0.4).fit(proba), proba
        tenths = np.full((400, 10), 0.1)  # eight of them sum to 0.8 but for rounding
        yield PointwiseError(0.2).fit(tenths), tenths


@pytest.mark.parametrize("log_scores", [False, True])
def test_masks_of_rules_are_equal_bit_for_bit(log_scores):
    for rule, scores in rules(log_scores):
        expected = rule.predict_set(scores)
        np.testing.assert_array_equal(rule_module(rule)(torch.from_numpy(scores)), expected, rule)


@pytest.mark.parametrize(
    "rule",
    [
        PointwiseError(0.1),
        PointwiseError(0.3),
        AverageK(1.2, min_size=1),
        AverageError(0.2),
        AverageError(0.2, objective="macro", prior=[0.05, 0.1, 0.2, 0.25, 0.4], log_scores=True),
        AverageError(0.3, coverage="class", interpolation=0.5),
    ],
    ids=repr,
)
def test_shares_of_votes_may_be_rounded_to_single_precision(rule):
    """As in the graph of a Pipeline, where sums and thresholds lie on the shares themselves."""
    rng, differ = np.random.default_rng(0), 0
    for n_votes in (3, 5, 7, 10):
        p = rng.multinomial(n_votes, rng.dirichlet(np.ones(5), 300)) / n_votes
        with np.errstate(divide="ignore"):
            scores = np.log(p) if rule.log_scores else p
        rule = clone(rule).fit(scores, p.argmax(1))
        forest = SimpleNamespace(
            rule_=rule, estimator_=None, _score_method=lambda _: "predict_proba"
        )
        with torch.no_grad():
            sets, _ = _RuleOfScores(forest)(torch.from_numpy(p).float())
        differ += (sets.numpy() != rule.predict_set(scores)).sum()
    assert differ == 0


@pytest.mark.parametrize(
    "chosen", [(1, 4, 6, 8), pytest.param(range(9), marks=slow)], ids=["one a class", "all"]
)
def test_masks_of_rules_are_equal_bit_for_bit_in_onnx_runtime(tmp_path, chosen):
    runtime = pytest.importorskip("onnxruntime", reason="extra 'onnx' is not installed")
    pytest.importorskip("onnxscript", reason="extra 'onnx' is not installed")
    cases = [*rules(log_scores=True), *list(rules(log_scores=False))[-2:]]
    cases = [cases[i] for i in chosen]
    together = AllRules([rule for rule, _ in cases]).eval()
    shape = {f"x{i}": {0: "n"} for i in range(len(cases))}
    batches = tuple(torch.from_numpy(scores) for _, scores in cases)
    program = torch.onnx.export(
        together,
        batches,
        dynamo=True,
        dynamic_shapes=(tuple(shape.values()),),
        opset_version=OPSET,
        verbose=False,
    )
    program.save(tmp_path / "rules.onnx")
    session = runtime.InferenceSession(tmp_path / "rules.onnx")
    names = [x.name for x in session.get_inputs()]
    masks = session.run(None, dict(zip(names, (scores for _, scores in cases))))
    for (rule, scores), mask in zip(cases, masks):
        np.testing.assert_array_equal(mask, rule.predict_set(scores), repr(rule))


class AllRules(nn.Module):
    """Many rules as one graph, for the exporter takes seconds."""

    def __init__(self, rules):
        super().__init__()
        self.rules = nn.ModuleList(map(rule_module, rules))

    def forward(self, *scores):
        return tuple(rule(x) for rule, x in zip(self.rules, scores))


@pytest.mark.parametrize("k", [0.3, 1.0, 2.5, 6.0])
def test_projections_in_graphs_are_those_of_the_operator(k):
    scores = torch.randn(50, 6, generator=torch.Generator().manual_seed(0)).double() * 3
    scores[:10] = scores[:10].round()
    torch.testing.assert_close(
        _masks.project(scores, k), sparse_top(scores, k), rtol=0, atol=1e-12
    )


def test_mean_projections_in_graphs_are_the_probabilities():
    rng = np.random.default_rng(0)
    scores, sizes = 3 * rng.normal(size=(50, 6)), 3 * rng.normal(size=(50, 7))
    scores[:10] = scores[:10].round()
    share = torch.from_numpy(sizes).softmax(1)
    found = _masks.mean_projection(torch.from_numpy(scores), share)
    expected = label_proba(scores, sizes, "projection")
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_module_returns_the_sets_and_the_order_of_the_estimator(name):
    model, samples = fitted(name)
    sets, scores = to_torch(model)(torch.from_numpy(samples))
    np.testing.assert_array_equal(sets, model.predict_set(samples))
    order = [
        model.classes_[np.flatnonzero(row)[np.argsort(-score[row], kind="stable")]].tolist()
        for row, score in zip(sets.numpy(), scores.numpy())
    ]
    assert order == [labels.tolist() for labels in predict_labels(model, samples)]
    inner = getattr(model, "estimator_", model)
    expected = getattr(inner, "_predict_log_proba", inner.decision_function)(samples)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # of torch 2.11
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", quickly("a rule of one's own"))
def test_files_hold_the_sets_for_any_number_of_samples(tmp_path, name):
    model, samples = fitted(name)
    expected = model.predict_set(samples)
    export(model, tmp_path / "model.pt2")
    extra = {"sksetvalued.json": ""}
    module = torch.export.load(tmp_path / "model.pt2", extra_files=extra).module()
    for n in (1, 7, len(samples)):
        np.testing.assert_array_equal(module(torch.from_numpy(samples[:n]))[0], expected[:n])
    described = json.loads(extra["sksetvalued.json"])
    assert described["estimator"] == type(model).__name__
    assert json.loads(described["classes"]) == model.classes_.tolist()


class MeanToken(nn.Module):
    """The mean over the tokens that a mask keeps, after they saw each other."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(32, 8)
        self.mix = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, input_ids, attention_mask):
        x, keep = self.table(input_ids), attention_mask.unsqueeze(2).float()
        x = x + self.mix(x, x, x, key_padding_mask=attention_mask == 0, need_weights=False)[0]
        return (x * keep).sum(1) / keep.sum(1)


@pytest.mark.parametrize("suffix", [".pt2", pytest.param(".onnx", marks=slow)])
def test_parts_of_samples_are_inputs_by_their_names(tmp_path, suffix):
    rng = np.random.default_rng(0)
    mask = (np.arange(8) < rng.integers(2, 9, 90)[:, None]).astype(np.int64)
    tokens = {"input_ids": rng.integers(1, 32, (90, 8)), "attention_mask": mask}
    clf = AverageKClassifier(1.5, backbone=MeanToken(), max_epochs=1, random_state=0)
    clf.fit(tokens, tokens["input_ids"][:, 0] % 4)
    path = tmp_path / f"model{suffix}"

    def tensors(part):
        return {name: torch.from_numpy(value) for name, value in part.items()}

    if suffix == ".onnx":
        runtime = pytest.importorskip("onnxruntime", reason="extra 'onnx' is not installed")
        pytest.importorskip("onnxscript", reason="extra 'onnx' is not installed")
        export(clf, path)
        session = runtime.InferenceSession(path)
        assert {value.name for value in session.get_inputs()} == tokens.keys()
        run = session.run
    else:
        export(clf, path)
        module = torch.export.load(path).module()
        run = lambda names, part: [module(tensors(part))[0]]  # noqa: E731
    for n, length in ((1, 8), (5, 5), (90, 8)):
        part = {name: value[:n, :length].copy() for name, value in tokens.items()}
        expected = clf.predict_set(part)
        np.testing.assert_array_equal(run(["sets"], part)[0], expected)
        np.testing.assert_array_equal(to_torch(clf)(tensors(part))[0], expected)


class Pooled(nn.Module):
    """Features of signals of any length, or of images, pooled by a function or a module."""

    def __init__(self, pool, n_dims=1):
        super().__init__()
        self.conv = (nn.Conv1d if n_dims == 1 else nn.Conv2d)(1, 4, 3, padding=1)
        self.pool = pool

    def forward(self, signal):
        return self.pool(self.conv(signal).relu()).flatten(1)


@pytest.mark.filterwarnings("ignore:The network learnt next to nothing")
@pytest.mark.parametrize(
    ("pool", "n_dims", "any_length"),
    [
        (nn.AdaptiveAvgPool1d(1), 1, True),
        pytest.param(lambda x: x.amax(2), 1, True, marks=slow),
        (nn.AdaptiveAvgPool1d(4), 1, False),
        (lambda x: nn.functional.adaptive_max_pool1d(x, 4), 1, False),
        pytest.param(torch.no_grad()(nn.AdaptiveAvgPool2d((None, 1))), 2, False, marks=slow),
    ],
)
def test_onnx_files_take_no_length_that_they_would_pool_otherwise(
    tmp_path, pool, n_dims, any_length
):
    runtime = pytest.importorskip("onnxruntime", reason="extra 'onnx' is not installed")
    pytest.importorskip("onnxscript", reason="extra 'onnx' is not installed")
    rng = np.random.default_rng(0)

    def signals(length):
        return {"signal": rng.normal(size=(30, 1, *[length] * n_dims)).astype(np.float32)}

    clf = TopKClassifier(1, backbone=Pooled(pool, n_dims), max_epochs=1, random_state=0)
    clf.fit(signals(8), np.arange(30) % 3)
    export(clf, tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    for length in (8, 10, 12):
        part = signals(length)
        if length == 8 or any_length:
            scores = to_torch(clf)({"signal": torch.from_numpy(part["signal"])})[1]
            np.testing.assert_allclose(session.run(["scores"], part)[0], scores, atol=1e-4)
        else:
            with pytest.raises(Exception, match=f"Got: {length} Expected: 8"):
                session.run(["sets"], part)


@pytest.mark.parametrize("name", quickly("average-k, bounds, images", "label sets, threshold"))
def test_onnx_files_hold_the_sets_without_torch_and_without_the_package(tmp_path, name):
    pytest.importorskip("onnxruntime", reason="extra 'onnx' is not installed")
    pytest.importorskip("onnxscript", reason="extra 'onnx' is not installed")
    model, samples = fitted(name)
    export(model, tmp_path / "model.onnx")
    np.save(tmp_path / "X.npy", samples)
    code = """
import sys
sys.modules["torch"] = sys.modules["sksetvalued"] = None
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession("model.onnx")
X = np.load("X.npy")
whole, scores = session.run(["sets", "scores"], {"X": X})
single = np.concatenate([session.run(["sets"], {"X": x[None]})[0] for x in X[:9]])
assert (single == whole[:9]).all() and scores.shape == whole.shape
np.save("sets.npy", whole)
np.save("scores.npy", scores)
print(session.get_modelmeta().custom_metadata_map["classes"])
"""
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == model.classes_.tolist()
    np.testing.assert_array_equal(np.load(tmp_path / "sets.npy"), model.predict_set(samples))
    scores = to_torch(model)(torch.from_numpy(samples))[1]
    precision = 1e-12 if samples.ndim == 2 else 1e-4  # tables are in double
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), scores, precision, precision)


@pytest.mark.parametrize(
    "last",
    [
        TopKClassifier(2, max_epochs=2, random_state=0),
        pytest.param(
            PlugInClassifier(LogisticRegression(max_iter=300), AverageK(1.5, min_size=1)),
            marks=slow,
        ),
        PlugInClassifier(LogisticRegression(max_iter=300), AverageError(0.1, log_scores=True)),
    ],
    ids=lambda model: type(getattr(model, "rule", model)).__name__,
)
def test_a_whole_pipeline_is_one_file(tmp_path, last):
    runtime = pytest.importorskip("onnxruntime", reason="extra 'onnx' is not installed")
    pytest.importorskip("skl2onnx", reason="extra 'onnx' is not installed")
    rows = X.astype(np.float32)
    pipeline = make_pipeline(StandardScaler(), last).fit(rows, y)
    export(pipeline, tmp_path / "pipeline.onnx", X=rows)
    session = runtime.InferenceSession(tmp_path / "pipeline.onnx")
    # Other rows: the threshold of AverageError is the score of one of these.
    fresh = rows + np.random.default_rng(0).normal(size=rows.shape).astype(np.float32)
    (sets,) = session.run(["sets"], {"X": fresh})
    np.testing.assert_array_equal(sets, predict_set(pipeline, fresh))
    classes = session.get_modelmeta().custom_metadata_map["classes"]
    assert json.loads(classes) == pipeline.classes_.tolist()


def test_texts_and_network_are_one_file():
    runtime = pytest.importorskip("onnxruntime", reason="extra 'onnx' is not installed")
    skl2onnx = pytest.importorskip("skl2onnx", reason="extra 'onnx' is not installed")
    rng = np.random.default_rng(0)
    texts = np.array([" ".join(words) for words in rng.choice(list("abcdefgh"), (200, 5))])
    target = [text[0] for text in texts]
    tfidf = TfidfVectorizer(token_pattern="[a-z]+")
    pipeline = make_pipeline(tfidf, TopKClassifier(2, max_epochs=5)).fit(texts, target)
    register_onnx_converters()
    options = {TfidfVectorizer: {"locale": "C"}, TopKClassifier: {"zipmap": False}}
    column = texts[:, None]
    graph = skl2onnx.to_onnx(
        pipeline, column, target_opset={"": 18, "ai.onnx.ml": 3}, options=options
    )
    session = runtime.InferenceSession(graph.SerializeToString())
    (sets,) = session.run(["sets"], {session.get_inputs()[0].name: column})
    np.testing.assert_array_equal(sets, predict_set(pipeline, texts))


def test_what_onnx_files_need_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="needs 'onnx', which.*: pip install onnx onnxscript"):
        export(TopKClassifier(), tmp_path / "model.onnx")


def test_a_pipeline_without_sets_is_refused(tmp_path):
    pytest.importorskip("skl2onnx", reason="extra 'onnx' is not installed")
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)).fit(X, y)
    with pytest.raises(TypeError, match="PlugInClassifier makes classifiers .* set-valued"):
        export(pipeline, tmp_path / "model.onnx", X=X[:5])


def test_a_file_with_one_wrong_set_of_five_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="extra 'onnx' is not installed")
    pytest.importorskip("skl2onnx", reason="extra 'onnx' is not installed")
    plug_in = PlugInClassifier(LogisticRegression(max_iter=300), TopK(2)).fit(X, y)
    sets = plug_in.predict_set(X[:5])
    sets[3] = ~sets[3]
    monkeypatch.setattr("sksetvalued.deploy._pipelines.predict_set", lambda *args: sets)
    with pytest.raises(ValueError, match=r"for 1 of the 5 samples.*CalibratedClassifierCV"):
        export(plug_in, tmp_path / "model.onnx", X=X[:5])
    assert not (tmp_path / "model.onnx").exists()


def test_a_file_with_other_scores_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="extra 'onnx' is not installed")
    skl2onnx = pytest.importorskip("skl2onnx", reason="extra 'onnx' is not installed")
    plug_in = PlugInClassifier(LogisticRegression(max_iter=300), TopK(2)).fit(X, y)
    written = skl2onnx.to_onnx

    def flatter(model, *args, **params):
        """Write the probabilities of another model, of the same sets."""
        model = copy.copy(model)
        model.estimator_ = copy.copy(model.estimator_)
        model.estimator_.coef_ = 0.9 * model.estimator_.coef_
        model.estimator_.intercept_ = 0.9 * model.estimator_.intercept_
        return written(model, *args, **params)

    monkeypatch.setattr("skl2onnx.to_onnx", flatter)
    with pytest.raises(ValueError, match="gives other scores than its classifier"):
        export(plug_in, tmp_path / "model.onnx", X=X)

    def cannot(*args, **params):
        raise AttributeError("no attribute 'encode'")

    monkeypatch.setattr("skl2onnx.to_onnx", cannot)
    with pytest.raises(ValueError, match=r"skl2onnx cannot write .* of PlugInC.*'encode'"):
        export(plug_in, tmp_path / "model.onnx", X=X)
    assert not (tmp_path / "model.onnx").exists()


def test_the_module_takes_bytes_where_fit_did():
    model, samples = fitted("average-k, bounds, images")
    module = to_torch(model)
    assert module(torch.from_numpy(samples))[0].any()
    with pytest.raises(TypeError, match=r"of bytes, torch\.uint8, these are of torch\.float32"):
        module(torch.from_numpy(samples).float())


def test_the_estimator_is_left_as_it_is():
    model, samples = fitted("top-k")
    before = model.predict_proba(samples)
    to_torch(model).to(torch.float16)
    np.testing.assert_array_equal(model.predict_proba(samples), before)
    assert all(p.requires_grad for p in model.net_.module_.parameters())


def test_a_module_shares_nothing_with_the_estimator_and_stays_in_evaluation():
    params = {"class_weight": "balanced", "max_epochs": 1, "random_state": 0}
    rule = {"objective": "macro", "rule_params": {"prior": np.linspace(0.5, 1.5, 10)}}
    balanced = AverageKClassifier(2, **params, **rule).fit(X[: len(images)], y[: len(images)])
    by_class = PlugInClassifier(balanced, AverageError(0.3, coverage="class"), cv="prefit")
    for model in (balanced, by_class.fit(X, y), fitted("average-k, bounds, images")[0]):
        samples = images if model not in (balanced, by_class) else X
        before = model.predict_set(samples)
        module = to_torch(model)
        for tensor in module.state_dict().values():
            assert tensor.is_contiguous()  # or files would not hold it as it is
            tensor.zero_()
        np.testing.assert_array_equal(model.predict_set(samples), before)
        assert not any(part.training for part in nn.Sequential(module).train()[0].modules())


class Spectral(nn.Module):
    """Weights of the frequencies, which are complex."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.polar(torch.ones(33), torch.arange(33.0)))

    def forward(self, x):
        return torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=64)


class Halved(nn.Linear):
    """A layer that computes in the precision of its weights, whatever is around it."""

    def __init__(self):
        super().__init__(64, 32, dtype=torch.bfloat16)

    def forward(self, x):
        return super().forward(x.to(self.weight.dtype)).float()


@pytest.mark.parametrize("cls", [Spectral, Halved])
def test_parts_in_another_precision_stay_in_it(cls):
    torch.manual_seed(0)
    body = cls().requires_grad_(cls is Spectral)
    model = TopKClassifier(2, backbone=body, max_epochs=5, random_state=0).fit(X, y)
    sets, log_proba = to_torch(model)(torch.from_numpy(X))
    np.testing.assert_array_equal(sets, model.predict_set(X))
    np.testing.assert_allclose(log_proba.exp(), model.predict_proba(X), rtol=1e-5)
    if cls is Spectral:
        module = to_torch(model, dtype="float64")
        np.testing.assert_allclose(log_proba, module(torch.from_numpy(X))[1], rtol=1e-4)
        assert module.network.backbone.weight.dtype == torch.complex128


def test_halved_parts_are_of_single_precision_in_onnx(tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    body = Halved().requires_grad_(False)
    model = TopKClassifier(2, backbone=body, max_epochs=5, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="holds weights of bfloat16.*single precision"):
        export(model, tmp_path / "sets.onnx")
    session = runtime.InferenceSession(tmp_path / "sets.onnx")
    (sets, _) = session.run(None, {"X": X.astype(np.float32)})
    assert np.mean((sets == model.predict_set(X)).all(1)) > 0.9


def test_the_rule_of_a_subclass_is_refused():
    """Its sets may be others."""

    class Larger(TopK):
        def _mark(self, rank_scores, mask):
            mask[:] = True

    with pytest.raises(TypeError, match="Larger cannot be exported.*TopK, AverageK"):
        rule_module(Larger(1).fit(np.eye(3)))


def test_a_module_has_the_rule_that_was_calibrated():
    scores = np.random.default_rng(0).dirichlet(np.ones(6), 200)
    for rule, change in (
        (TopK(2), {"k": 4}),
        (AverageK(2), {"max_size": 1}),
        (PointwiseError(0.4), {"error": 0.9}),
        (AverageError(0.3), {"coverage": "class"}),
    ):
        rule.fit(scores, np.arange(200) % 6).set_params(**change)
        found = rule_module(rule)(torch.from_numpy(scores))
        np.testing.assert_array_equal(found, rule.predict_set(scores))


def test_rows_with_nan_get_an_empty_set():
    model, _ = fitted("average-k, two heads")
    assert not to_torch(model)(torch.full((1, 64), torch.nan))[0].any()


def test_what_cannot_be_exported_is_refused_by_name(tmp_path):
    path = tmp_path / "model.pt2"
    model = TopKClassifier(2, max_epochs=1, random_state=0)
    with pytest.raises(TypeError, match="LogisticRegression"):
        export(LogisticRegression(), path)
    with pytest.raises(ValueError, match=r"path must end in \.onnx or \.pt2"):
        export(model, tmp_path / "model.bin")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        export(model, tmp_path / "no" / "model.pt2")
    with pytest.raises(NotFittedError):
        export(model, path)
    with pytest.raises(TypeError, match="StandardScaler of the Pipeline runs outside of torch"):
        export(make_pipeline(StandardScaler(), model).fit(X[:90], y[:90]), path)
    with pytest.raises(ValueError, match="dtype must be"):
        to_torch(model.fit(X[:90], y[:90]), dtype="float16")
    seen = TopKClassifier(2, max_epochs=1, transform=nn.Identity()).fit(images[:90], y[:90])
    with pytest.raises(ValueError, match="runs outside of the graph"):
        export(seen, path)
    assert not path.exists()


class CountsRows(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 8)

    def forward(self, x):
        return self.linear(x.reshape(len(x), -1)).relu()


def test_a_network_that_asks_for_the_length_of_a_batch_takes_any(tmp_path):
    model = TopKClassifier(2, backbone=CountsRows(), max_epochs=1, random_state=0)
    export(model.fit(X[:90], y[:90]), tmp_path / "model.pt2")
    module = torch.export.load(tmp_path / "model.pt2").module()
    for n in (1, 7):
        sets, _ = module(torch.from_numpy(X[:n]).float())
        assert np.array_equal(sets.numpy(), model.predict_set(X[:n]))


@pytest.mark.parametrize("labels", ["M8[D]", "M8[ns]", "m8[D]"])
def test_labels_that_are_no_numbers_or_strings_are_refused_before_any_work(
    tmp_path, monkeypatch, labels
):
    target = digit[:90].astype(labels)
    model = TopKClassifier(2, max_epochs=1, random_state=0).fit(X[:90], target)
    of_several = SparseTopClassifier(max_epochs=1).fit(X[:90], [[label] for label in target])
    plug_in = PlugInClassifier(LogisticRegression(), AverageK(1.5)).fit(X[:90], target)
    monkeypatch.setattr("sksetvalued.deploy._files.to_torch", None)
    monkeypatch.setattr("sksetvalued.deploy._files.pipeline_graph", None)
    for export_it in (
        lambda: export(model, tmp_path / "model.pt2"),
        lambda: export(model, tmp_path / "model.onnx"),
        lambda: export(of_several, tmp_path / "model.pt2"),
        lambda: export(plug_in, tmp_path / "model.onnx", X=X[:3]),
    ):
        with pytest.raises(ValueError, match=r"classes_ holds \w+, such as .*astype\(str\)"):
            export_it()


@cache
def graph():
    """Return a graph that is larger than the files of the next test may be."""
    return onnx_graph(nn.Linear(64, 64), torch.zeros(2, 64))


@pytest.mark.parametrize(("suffix", "in_parts"), [(".pt2", 0), (".onnx", 0), (".onnx", 1)])
def test_a_file_that_cannot_be_written_whole_stays_as_it_was(
    suffix, in_parts, tmp_path, monkeypatch
):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr("sksetvalued.deploy._files.onnx_graph", lambda *args, **names: graph())
    if in_parts:
        monkeypatch.setattr("sksetvalued.deploy._files.LARGEST_ONNX", 0)
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"before")
    clf = TopKClassifier(k=2, max_epochs=1, random_state=0).fit(X[:90], y[:90])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        with pytest.raises(OSError, match=f"model{suffix}"):
            export(clf, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        (sp.csr_array(X[:3]), r"a csr_array: give some rows as X\[:100\].toarray"),
        ({"pixels": X[:3]}, "a dict: leave it None"),
        ("one text", "'one text': give a list"),
        (iter(X[:3]), "iterator: give a list"),
    ],
)
def test_samples_that_tell_no_types_are_refused(tmp_path, samples, said):
    pytest.importorskip("skl2onnx", reason="extra 'onnx' is not installed")
    model = make_pipeline(StandardScaler(), TopKClassifier(max_epochs=1)).fit(X, y)
    with pytest.raises(TypeError, match=f"^X must be an array, .*({said})"):
        export(model, tmp_path / "m.onnx", X=samples)
    with pytest.raises(ValueError, match="^X holds no sample"):
        export(model, tmp_path / "m.onnx", X=X[:0])
    with pytest.raises(ValueError, match="^dtype='float32' was given beside X"):
        export(model, tmp_path / "m.onnx", X=X[:3], dtype="float32")
    with pytest.raises(TypeError, match="^path must be a string or a path, got None"):
        export(model, None)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("size", ["predicted", 2])
def test_the_graph_of_one_label_a_sample(size):
    X, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
    clf = SparseTopClassifier(size=size, max_epochs=1, random_state=0).fit(X, y)
    sets = to_torch(clf)(torch.from_numpy(X))[0].numpy()
    np.testing.assert_array_equal(sets, clf.predict_set(X))


def test_a_file_names_the_rule_of_its_sets(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
    inner = AverageKClassifier(1.5, max_epochs=1, random_state=0).fit(X, y)
    model = PlugInClassifier(inner, TopK(2), cv="prefit").fit(X)
    export(model, tmp_path / "model.pt2")
    extra = {"sksetvalued.json": ""}
    torch.export.load(tmp_path / "model.pt2", extra_files=extra)
    assert json.loads(extra["sksetvalued.json"])["rule"].startswith("TopK(k=2,")

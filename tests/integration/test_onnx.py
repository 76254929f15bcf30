"""Files that skl2onnx writes give in ONNX Runtime what Python gives, or are refused.

Each takes seconds to write. More, and those of networks alone, are in `tests/test_deploy.py`.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits, make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC

from sksetvalued import (
    AverageKClassifier,
    PlugInClassifier,
    SparseTopClassifier,
    TopKClassifier,
    export,
    predict_set,
)
from sksetvalued.rules import AverageError, AverageK, PointwiseError, TopK

pytestmark = pytest.mark.integration

X, digit = load_digits(return_X_y=True)
y = np.array(list("abcdefghij"))[digit]
X, y = X[:400], y[:400]
X_labels, Y = make_multilabel_classification(300, n_classes=8, random_state=0)


@pytest.fixture(autouse=True, scope="module")
def runtime():
    """ONNX Runtime, where skl2onnx is beside it."""
    pytest.importorskip("skl2onnx", reason="extra 'onnx' is not installed")
    return pytest.importorskip("onnxruntime", reason="extra 'onnx' is not installed")


@pytest.mark.parametrize("rule", [PointwiseError(0.3), AverageK(1.5)])
def test_a_plug_in_and_a_search_are_one_file(runtime, tmp_path, rule):
    plug_in = PlugInClassifier(LogisticRegression(max_iter=300), rule).fit(X / 16, y)
    pipeline = make_pipeline(StandardScaler(), plug_in)
    search = GridSearchCV(pipeline, {"pluginclassifier__cv": [None]}, cv=2).fit(X / 16, y)
    for model in (plug_in, search):
        export(model, tmp_path / "model.onnx", X=(X[:3] / 16).tolist())
        session = runtime.InferenceSession(tmp_path / "model.onnx")
        assert [output.name for output in session.get_outputs()] == ["sets", "scores"]
        (sets,) = session.run(["sets"], {"X": X / 16})
        assert (sets != predict_set(model, X / 16)).any(1).sum() <= 1


@pytest.mark.parametrize(
    "model",
    [
        TopKClassifier(2, max_epochs=2, random_state=0),
        PlugInClassifier(LogisticRegression(max_iter=300), AverageK(1.5)),
        PlugInClassifier(
            make_pipeline("passthrough", StandardScaler(), TopKClassifier(max_epochs=2)),
            AverageK(1.5),
        ),
    ],
    ids=["network", "plug-in", "plug-in, pipeline"],
)
def test_each_column_of_a_frame_is_read(runtime, tmp_path, model):
    frame = pd.DataFrame(X[:, 10:30].astype(np.float32)).add_prefix("pixel")
    export(model.fit(frame, y), tmp_path / "model.onnx", X=frame[:4])
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    assert [part.name for part in session.get_inputs()] == frame.columns.tolist()
    (sets,) = session.run(["sets"], {name: frame[[name]].to_numpy() for name in frame})
    np.testing.assert_array_equal(sets, model.predict_set(frame))


@pytest.mark.parametrize(
    ("classifier", "rule", "n_classes", "scores"),
    [
        (SVC(), AverageK(1.5, log_scores=True), 10, "decision values"),
        (make_pipeline(StandardScaler(), LinearSVC()), AverageK(1.5), 10, "decision values"),
        (RidgeClassifier(), AverageK(1.2), 2, "decision values"),
        (
            RandomForestClassifier(5, max_depth=1, random_state=0),
            AverageError(0.2),  # its threshold is a score of many samples
            10,
            "probabilities",
        ),
    ],
    ids=["logarithms", "pipeline", "two classes", "ties"],
)
def test_scores_of_any_kind_are_exported_as_they_are(
    runtime, tmp_path, classifier, rule, n_classes, scores
):
    rows, target = X.astype(np.float32), digit[:400] % n_classes
    plug_in = PlugInClassifier(classifier, rule, cv=0.5).fit(rows, target)
    export(plug_in, tmp_path / "model.onnx", X=rows)
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    fresh = rows + np.random.default_rng(0).integers(0, 2, size=rows.shape, dtype=np.int8)
    (sets,) = session.run(["sets"], {"X": fresh})
    np.testing.assert_array_equal(sets, plug_in.predict_set(fresh))
    assert session.get_modelmeta().custom_metadata_map["scores"] == scores


def test_words_beyond_ascii_are_words_in_onnx_too(runtime, tmp_path):
    words = np.array(["niño", "año", "курс", "don't a_b", "naïve 7x"])
    target = np.arange(100) % 5
    texts = np.array([f"el {words[i]} x" for i in target], dtype=object)
    params = {"lowercase": False, "ngram_range": (1, 2)}
    network = TopKClassifier(1, max_epochs=15, random_state=0)
    exact = make_pipeline(FeatureUnion([("words", TfidfVectorizer(**params))]), network)
    export(exact.fit(texts, target), tmp_path / "texts.onnx", X=texts[:5])
    session = runtime.InferenceSession(tmp_path / "texts.onnx")
    (sets,) = session.run(["sets"], {session.get_inputs()[0].name: texts[:, None]})
    np.testing.assert_array_equal(sets, predict_set(exact, texts))
    inside = PlugInClassifier(
        make_pipeline(TfidfVectorizer(**params), LogisticRegression()), TopK(2)
    )
    export(inside.fit(texts, target), tmp_path / "inside.onnx", X=pd.Series(texts[:5]))
    # ONNX knows letters of ASCII by this pattern.
    other = make_pipeline(TfidfVectorizer(token_pattern=r"[\w']+", **params), network)
    with pytest.raises(ValueError, match="gives other sets than predict_set for . of the 5"):
        export(other.fit(texts, target), tmp_path / "other.onnx", X=texts[:5])
    assert not (tmp_path / "other.onnx").exists()


def test_words_of_other_patterns_are_the_same_in_onnx(runtime, tmp_path):
    texts = np.array(
        ["ñ niño a_b _", "x² ½ ٣٤ Ⅷ", "курс, x-y 7", "中 中文: हिन्दी", "día x\ty_\nz"]
    )
    patterns = [r"(?u)\b\w+\b", r"\b\w\w\w+\b", r"\w{2,}", "(?u)[a-zñ]+", r"\S+"]
    words = [CountVectorizer(token_pattern=pattern, lowercase=False) for pattern in patterns]
    together = FeatureUnion([(f"{i}", step) for i, step in enumerate(words)])
    network = TopKClassifier(2, max_epochs=9, random_state=0)
    pipeline = make_pipeline(together, network).fit(texts.repeat(5), np.arange(25) // 5)
    export(pipeline, tmp_path / "texts.onnx", X=texts)
    session = runtime.InferenceSession(tmp_path / "texts.onnx")
    # Each word by itself, and every text.
    known = [step.get_feature_names_out() for _, step in together.transformer_list]
    texts = np.concatenate([*known, texts])
    _, scores = session.run(None, {session.get_inputs()[0].name: texts[:, None]})
    np.testing.assert_allclose(np.exp(scores), pipeline.predict_proba(texts), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"token_pattern": "(?<=r)ed"}, r"token_pattern='\(\?<=r\)ed' of TfidfVectorizer.*\[a-z"),
        ({"analyzer": "char_wb"}, "cannot write some part of Pipeline: CountVectorizer"),
        ({"analyzer": str.split}, "analyzer=<method 'split'.* of TfidfVectorizer runs in Python"),
        ({"strip_accents": "unicode"}, "cannot write some part of Pipeline: CountVectorizer"),
        ({"tokenizer": str.split, "token_pattern": None}, "cannot write .*: Custom tokenizer"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_texts_that_onnx_cannot_split_are_refused(tmp_path, params, message):
    texts = np.array(["red apple", "redred pear"] * 10)
    vectorizer = TfidfVectorizer(lowercase=False, **params)
    pipeline = make_pipeline(vectorizer, TopKClassifier(1, max_epochs=1))
    with pytest.raises(ValueError, match=message):
        export(pipeline.fit(texts, np.arange(20) % 2), tmp_path / "model.onnx", X=texts)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("plugged", [False, True])
def test_scores_of_networks_are_compared(tmp_path, plugged):
    """Few sets are others where skl2onnx weighs repeated words in another way."""
    rng = np.random.default_rng(0)
    words = np.array([f"w{i:02d}" for i in range(80)])
    texts = np.array([" ".join(rng.choice(words, 5)) for _ in range(600)])
    target = [int(text[1:3]) % 4 for text in texts]
    for sublinear in (False, True):
        tfidf = TfidfVectorizer(lowercase=False, sublinear_tf=sublinear)
        model = make_pipeline(tfidf, AverageKClassifier(2, max_epochs=8, random_state=0))
        if plugged:
            model = PlugInClassifier(model, AverageK(2), cv=0.5)
        model.fit(texts, target)
        if not sublinear:
            export(model, tmp_path / "model.onnx", X=texts)
            (tmp_path / "model.onnx").unlink()
            continue
        with pytest.raises(ValueError, match=r"other scores than its classifier.*sublinear_tf"):
            export(model, tmp_path / "model.onnx", X=texts)
    assert not list(tmp_path.iterdir())


def test_scores_of_label_sets_are_compared(tmp_path, monkeypatch):
    rows = X_labels.astype(np.float32)
    model = make_pipeline(StandardScaler(), SparseTopClassifier(max_epochs=2)).fit(rows, Y)
    export(model, tmp_path / "model.onnx", X=rows)
    decided = model[-1].decision_function
    monkeypatch.setattr(model[-1], "decision_function", lambda X: 1.01 * decided(X))
    with pytest.raises(ValueError, match="gives other scores than its classifier"):
        export(model, tmp_path / "model.onnx", X=rows)


def test_a_file_that_does_not_run_here_is_told(tmp_path):
    network = TopKClassifier(2, max_epochs=1, random_state=0)
    pipeline = make_pipeline(SimpleImputer(), network).fit(X, y)
    with pytest.warns(UserWarning, match=r"cannot run the file here.*astype\('float32'\)"):
        export(pipeline, tmp_path / "model.onnx", X=X[:5])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "ONNX Runtime cannot run")
        export(pipeline, tmp_path / "model.onnx", X=X[:5].astype(np.float32))


def test_columns_of_any_name_are_inputs_in_their_order(runtime, tmp_path):
    names = ["a_b", "a b", "rate (1/min)", "scores", "2nd", "unused"]
    frame = pd.DataFrame(X[:, 20:26].astype(np.float32), columns=names)
    columns = make_column_transformer((StandardScaler(), ["2nd", "a b", "scores"]))
    model = make_pipeline(columns, TopKClassifier(2, max_epochs=2, random_state=0)).fit(frame, y)
    export(model, tmp_path / "model.onnx", X=frame[:50])
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    inputs = [part.name for part in session.get_inputs()]
    given = {name: frame[[column]].to_numpy() for name, column in zip(inputs, names, strict=True)}
    np.testing.assert_array_equal(session.run(["sets"], given)[0], predict_set(model, frame))
    for others in (["", *names[1:]], range(6)):
        nameless = frame.set_axis(others, axis=1)
        with pytest.raises(ValueError, match=r"columns named \[(''|0, 1.*)\], .*give X.to_numpy"):
            export(model[-1].fit(nameless, y), tmp_path / "other.onnx", X=nameless)


def test_a_graph_that_does_not_run_on_the_samples_is_refused(tmp_path):
    gaps = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X).astype(np.float32)
    network = TopKClassifier(2, max_epochs=1, random_state=0)
    model = make_pipeline(SimpleImputer(add_indicator=True), network).fit(gaps, y)
    with pytest.raises(ValueError, match=r"does not run on X: .*export the last step by itself"):
        export(model, tmp_path / "model.onnx", X=gaps[:5])
    assert not any(tmp_path.iterdir())


def test_samples_that_are_compared_are_not_judged(tmp_path):
    model = PlugInClassifier(RandomForestClassifier(20, random_state=0), AverageK(3)).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export(model, tmp_path / "model.onnx", X=X.astype(np.float32))
    with pytest.warns(UserWarning, match="was expected: their scores are not like"):
        model.predict_set(X)


def test_frames_of_the_types_of_pandas_are_read_and_others_named(runtime, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "width": pd.array(X[:, 20], "Float64"),
            "count": pd.array(X[:, 30].astype(int), "Int64"),
            "kind": pd.Series(rng.choice(["a", "b"], len(X)), dtype="string"),
            "unused": pd.Series([None, *["text"] * (len(X) - 1)], dtype="string"),
        }
    )
    numbers, words = ["width", "count"], ["kind"]
    columns = make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(), words))
    model = make_pipeline(columns, TopKClassifier(2, max_epochs=2, random_state=0)).fit(frame, y)
    export(model, tmp_path / "model.onnx", X=frame[:50])
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    given = {
        "width": X[:, [20]],
        "count": X[:, [30]].astype(int),
        "kind": frame[["kind"]].to_numpy(),
        "unused": frame[["unused"]].fillna("").to_numpy(),
    }
    (sets,) = session.run(["sets"], given)
    np.testing.assert_array_equal(sets, predict_set(model, frame))
    frame["seen"] = rng.random(len(X)) > 0.5
    columns.transformers[1] = ("encoder", OneHotEncoder(), ["kind", "seen"])
    with pytest.raises(ValueError, match="cannot write .*'kind' string, .*'seen' bool"):
        export(model.fit(frame, y), tmp_path / "other.onnx", X=frame[:5])

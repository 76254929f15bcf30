"""Callbacks, pipelines, searches and tables of other libraries, as their users have them."""

import os
import pickle
import subprocess
import sys
from datetime import datetime, time, timedelta

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch.callbacks import Checkpoint, EpochScoring, PrintLog
from skorch.hf import HuggingfacePretrainedTokenizer, HuggingfaceTokenizer

from sksetvalued import (
    AverageKClassifier,
    SparseTopClassifier,
    TopKClassifier,
    calibrate,
    predict_set,
)
from sksetvalued.metrics import (
    average_k_scorer,
    set_size_scorer,
    top_k_accuracy_score,
    top_k_scorer,
)

pytestmark = pytest.mark.integration

X, Y = make_blobs(160, centers=4, n_features=5, cluster_std=3.0, random_state=0)
WORDS = [f"w{i}" for i in range(30)]
rng = np.random.default_rng(0)
first = rng.integers(30, size=160)
TEXTS = np.array([" ".join([WORDS[i], *rng.choice(WORDS, rng.integers(2, 7))]) for i in first])
KINDS = np.array(["a", "b", "c", "d"])[first % 4]
BERT = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
    "pooling": "cls",
}


def logged(writer):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer.flush()
    events = EventAccumulator(writer.log_dir)
    events.Reload()
    return {tag: [e.value for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_the_callbacks_of_skorch_as_they_are(tmp_path, capsys):
    pytest.importorskip("tensorboard", reason="extra 'integration' is missing")
    from skorch.callbacks import TensorBoard
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path / "runs"))
    callbacks = [
        EpochScoring(top_k_scorer(k=2), lower_is_better=False, name="top 2"),
        ("size", EpochScoring(set_size_scorer(), lower_is_better=None, name="size")),
        PrintLog(),
        Checkpoint(monitor="top 2_best", dirname=str(tmp_path / "best")),
        TensorBoard(writer, close_after_train=False),
    ]
    clf = AverageKClassifier(
        2, max_epochs=3, validation_fraction=0.25, callbacks=callbacks, random_state=0
    ).fit(X, Y)
    scalars = logged(writer)
    np.testing.assert_allclose(scalars["Loss/train_loss"], clf.history_[:, "train_loss"], 1e-5)
    np.testing.assert_allclose(scalars["top 2"], clf.history_[:, "top 2"], 1e-5)
    np.testing.assert_allclose(clf.history_[:, "size"], 2, atol=0.03)
    assert "top 2" in capsys.readouterr().out
    assert (tmp_path / "best" / "params.pt").exists()
    with pytest.raises(TypeError, match="TensorBoard, which no file.*_thread"):
        pickle.dumps(clf)
    pickle.loads(pickle.dumps(clf.set_params(callbacks=None)))
    search = GridSearchCV(clf.set_params(callbacks=callbacks), {"lr": [0.01, 0.1]}, cv=2)
    search.set_params(scoring=average_k_scorer(k=2), error_score="raise").fit(X, Y)
    assert len(logged(writer)["Loss/train_loss"]) == 3 * 6


def test_a_run_of_weights_and_biases(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="extra 'integration' is missing")
    from skorch.callbacks import WandbLogger

    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(project="sets", mode="offline", dir=tmp_path) as run:
        params = {"max_epochs": 3, "validation_fraction": 0.2, "random_state": 0}
        clf = AverageKClassifier(1.5, callbacks=[WandbLogger(run)], **params).fit(X, Y)
        assert run.summary["train_loss"] == pytest.approx(clf.history_[-1]["train_loss"])
        assert run.step == 3
    with pytest.raises(TypeError, match="WandbLogger, which no file.*attach"):
        pickle.dumps(clf)
    again = pickle.loads(pickle.dumps(clf.set_params(callbacks=None)))
    np.testing.assert_array_equal(again.predict_set(X), clf.predict_set(X))


def test_callbacks_where_the_epochs_are_searched(tmp_path):
    """The defaults train twice: to find the number of epochs, and on all samples."""
    pytest.importorskip("tensorboard", reason="extra 'integration' is missing")
    from skorch.callbacks import TensorBoard
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path))
    callbacks = [TensorBoard(writer), EpochScoring("accuracy", lower_is_better=False)]
    clf = TopKClassifier(2, callbacks=callbacks, random_state=0).fit(X, Y)
    assert len(logged(writer)["Loss/train_loss"]) > clf.n_iter_


@pytest.mark.parametrize("pretrained", [False, True])
def test_a_tokenizer_of_skorch_in_a_pipeline_that_is_searched(pretrained):
    transformers = pytest.importorskip("transformers", reason="extra 'integration' is missing")
    tokenizers = pytest.importorskip("tokenizers", reason="extra 'integration' is missing")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if pretrained:
        words.train_from_iterator(
            TEXTS, tokenizers.trainers.WordLevelTrainer(special_tokens=["[UNK]", "[PAD]"])
        )
        fast = transformers.PreTrainedTokenizerFast(
            tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]"
        )
        tokenizer = HuggingfacePretrainedTokenizer(fast, max_length=8)
    else:
        tokenizer = HuggingfaceTokenizer(
            model__unk_token="[UNK]",
            tokenizer=tokenizers.Tokenizer,
            model=tokenizers.models.WordLevel,
            trainer=tokenizers.trainers.WordLevelTrainer,
            trainer__special_tokens=["[UNK]", "[PAD]"],
            pre_tokenizer=tokenizers.pre_tokenizers.Whitespace,
            pad_token="[PAD]",
            max_length=8,
        )
    clf = TopKClassifier(
        2, backbone="hf/bert", backbone_params=BERT, lr=3e-3, max_epochs=8, random_state=0
    )
    pipeline = Pipeline([("tokens", tokenizer), ("sets", clf)])
    grid = {"sets__lr": [1e-9, 3e-3]}
    # Of the one that is trained, skorch does not take the trainer to another process.
    n_jobs = 2 if pretrained else None
    search = GridSearchCV(pipeline, grid, cv=2, n_jobs=n_jobs, scoring=top_k_scorer(k=2))
    search.fit(TEXTS, KINDS)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_["sets__lr"] == 3e-3
    assert (predict_set(search, TEXTS).sum(1) == 2).all()


def test_a_study_of_optuna():
    optuna = pytest.importorskip("optuna", reason="extra 'integration' is missing")
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial):
        lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
        clf = TopKClassifier(2, lr=lr, max_epochs=3, random_state=0)
        return cross_val_score(clf, X, Y, cv=2, scoring=top_k_scorer(k=2)).mean()

    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0)
    )
    study.optimize(objective, n_trials=3)
    assert study.best_value > 0.6


def test_frames_of_polars():
    polars = pytest.importorskip("polars", reason="extra 'integration' is missing")
    frame = polars.DataFrame({f"x{i}": X[:, i] for i in range(5)})
    clf = AverageKClassifier(1.5, max_epochs=3, random_state=0).fit(frame, polars.Series(Y))
    assert clf.feature_names_in_.tolist() == [f"x{i}" for i in range(5)]
    calibrate(clf, frame)
    np.testing.assert_array_equal(clf.predict_set(frame), clf.predict_set(frame.to_pandas()))
    with pytest.raises(ValueError, match="feature names"):
        clf.predict_set(frame.select(sorted(frame.columns, reverse=True)))


@pytest.mark.parametrize("also", [{}, {"x": X[:, 0]}])
def test_dates_of_polars_and_pyarrow_are_no_numbers(also):
    polars = pytest.importorskip("polars", reason="extra 'integration' is missing")
    pa = pytest.importorskip("pyarrow", reason="extra 'integration' is missing")
    days = datetime(2020, 1, 1) + np.arange(len(X)) * timedelta(1)
    for when in (days, days - days[0], [day.date() for day in days]):
        columns = {"when": list(when), **also}
        for cls in (polars.DataFrame, pa.table, pa.RecordBatch.from_pydict):
            with pytest.raises(TypeError, match="X holds dates or durations"):
                TopKClassifier(1).fit(cls(columns), Y)
    with pytest.raises(TypeError, match="X holds dates or durations"):
        TopKClassifier(1).fit(polars.DataFrame({"when": [time(9)] * len(X), **also}), Y)


def test_tables_of_pyarrow_are_arrays():
    pa = pytest.importorskip("pyarrow", reason="extra 'integration' is missing")
    columns = {f"x{i}": X[:, i] for i in range(5)}
    clf = TopKClassifier(1, max_epochs=1, random_state=0).fit(X, Y)
    for table in (pa.table(columns), pa.RecordBatch.from_pydict(columns)):
        np.testing.assert_array_equal(clf.decision_function(table), clf.decision_function(X))
    with pytest.raises(ValueError, match=r"one column holds strings.*'a\.png'"):
        clf.fit(pa.table({"path": ["a.png", "b.png"]}), [0, 1])


def test_labels_and_scores_of_pyarrow_and_polars_are_those_of_arrays():
    polars = pytest.importorskip("polars", reason="extra 'integration' is missing")
    pa = pytest.importorskip("pyarrow", reason="extra 'integration' is missing")
    rows, names = np.stack([X[:, 0] > 0, X[:, 1] > 0, Y > 1], 1).astype(int), ["a", "b", "c"]
    columns = dict(zip(names, rows.T))
    sets = [[name for name, one in zip(names, row) if one] for row in rows]
    clf = SparseTopClassifier(max_epochs=1, random_state=0)
    expected = clf.fit(X, rows).decision_function(X)
    tables = [cls(columns) for cls in (pa.table, pa.RecordBatch.from_pydict, polars.DataFrame)]
    lists = [cls(sets) for cls in (pa.array, lambda y: pa.chunked_array([y]), polars.Series)]
    for y in tables + lists:
        np.testing.assert_array_equal(clf.fit(X, y).decision_function(X), expected)
        assert clf.classes_.tolist() == names
    indicators = rows.tolist()
    for y in (pa.array(indicators), polars.Series(indicators), polars.Series(rows)):
        np.testing.assert_array_equal(clf.fit(X, y).decision_function(X), expected)
    turned = tables[0].select(["c", "a", "b"])
    with pytest.raises(ValueError, match=r"columns .* are named c, a, b"):
        top_k_accuracy_score(["a", "b"] * 80, turned, k=2, labels=names)


def test_cross_validate_with_scorers_of_ours():
    scoring = {"top": top_k_scorer(k=2), "size": set_size_scorer()}
    clf = AverageKClassifier(1.5, max_epochs=3, random_state=0)
    scores = cross_validate(clf, X, Y, cv=3, scoring=scoring, error_score="raise")
    np.testing.assert_allclose(scores["test_size"], 1.5, atol=0.5)
    assert (scores["test_top"] > 0.5).all()


def test_reports_of_skore_hold_scorers_of_ours():
    skore = pytest.importorskip("skore", reason="extra 'integration' is missing")
    clf = AverageKClassifier(1.5, max_epochs=3, random_state=0)
    new = {"X_test": X[100:], "y_test": Y[100:]}
    report = skore.EstimatorReport(clf, X_train=X[:100], y_train=Y[:100], **new)
    report.metrics.add(top_k_scorer(k=2))
    report.metrics.add(set_size_scorer(), name="size", greater_is_better=False)
    found = report.metrics.summarize().frame()
    model = report.estimator_
    assert found["top_k_scorer"] == top_k_scorer(k=2)(model, X[100:], Y[100:])
    assert found["size"] == model.predict_set(X[100:]).sum(1).mean()
    folds = skore.CrossValidationReport(make_pipeline(StandardScaler(), clf), X, Y, splitter=3)
    folds.metrics.add(top_k_scorer(k=2))
    means = folds.metrics.summarize(metric="top_k_scorer").frame()
    assert means.iloc[0, 0] == pytest.approx(
        cross_val_score(folds.estimator, X, Y, cv=3, scoring=top_k_scorer(k=2)).mean()
    )


ON_TENSORS = """
import numpy as np, torch
from sklearn import config_context
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sksetvalued import AverageKClassifier, PlugInClassifier
from sksetvalued.metrics import set_coverage_score, top_k_scorer
from sksetvalued.rules import AverageK

X, y = load_iris(return_X_y=True)
tensors = torch.from_numpy(X), torch.from_numpy(y)
models = [
    AverageKClassifier(1.5, max_epochs=3, random_state=0),
    PlugInClassifier(LogisticRegression(max_iter=500), AverageK(1.5)),
]
for model in models:
    expected = model.fit(X, y).predict_set(X)
    score = top_k_scorer(k=2)(model, X, y)
    with config_context(array_api_dispatch=True):
        got = model.fit(*tensors).predict_set(tensors[0])
        assert isinstance(got, np.ndarray) and (got != expected).mean() < 0.01
        assert model.calibrate(tensors[0]).score(*tensors) > 0.5
        assert abs(top_k_scorer(k=2)(model, *tensors) - score) < 0.01
        sets = torch.from_numpy(got)
        assert set_coverage_score(tensors[1], sets) == set_coverage_score(y, got)
"""


def test_tensors_where_dispatch_to_array_libraries_is_on():
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    run = [sys.executable, "-W", "ignore", "-c", ON_TENSORS]
    done = subprocess.run(run, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

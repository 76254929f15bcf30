"""Models logged by MLflow and loaded again: as a model of scikit-learn, and as its sets."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import sksetvalued
from sksetvalued import AverageKClassifier, predict_set, trusted_types

pytestmark = pytest.mark.integration

mlflow = pytest.importorskip("mlflow", reason="extra 'integration' is missing")
X, y = load_digits(return_X_y=True)

#: As in the guide.
SETS_MODEL = """
import mlflow
import sksetvalued


class Sets(mlflow.pyfunc.PythonModel):
    def load_context(self, context):
        self.model = sksetvalued.load(context.artifacts["model"])

    def predict(self, context, model_input, params=None):
        return sksetvalued.predict_set(self.model, model_input)


mlflow.models.set_model(Sets())
"""


@pytest.fixture(scope="module")
def pipeline():
    clf = AverageKClassifier(k=2, max_epochs=1, random_state=0)
    return make_pipeline(MinMaxScaler(), clf).fit(X, y)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run whose models lie in a folder of files."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as run:
        yield run


def test_a_pipeline_in_the_format_of_skops(run, pipeline):
    from mlflow import sklearn

    info = sklearn.log_model(
        pipeline,
        name="pipeline",
        serialization_format="skops",
        skops_trusted_types=trusted_types(),
        pip_requirements=["sksetvalued"],
    )
    loaded = sklearn.load_model(info.model_uri)
    np.testing.assert_array_equal(predict_set(loaded, X), predict_set(pipeline, X))


def test_a_model_whose_predictions_are_sets(run, pipeline, tmp_path):
    (tmp_path / "sets_model.py").write_text(SETS_MODEL)
    sksetvalued.save(pipeline, "pipeline.safetensors")
    info = mlflow.pyfunc.log_model(
        name="sets",
        python_model="sets_model.py",
        artifacts={"model": "pipeline.safetensors"},
        pip_requirements=["sksetvalued"],
    )
    loaded = mlflow.pyfunc.load_model(info.model_uri)
    np.testing.assert_array_equal(loaded.predict(X), predict_set(pipeline, X))


def test_the_logger_of_skorch_writes_each_epoch(run):
    from skorch.callbacks import MlflowLogger

    callbacks = [MlflowLogger(create_artifact=False, terminate_after_train=False)]
    clf = AverageKClassifier(k=2, max_epochs=3, callbacks=callbacks, random_state=0).fit(X, y)
    name = run.info.run_id
    logged = mlflow.MlflowClient().get_metric_history(name, "train_loss")
    np.testing.assert_allclose([m.value for m in logged], clf.history_[:, "train_loss"])
    assert mlflow.get_run(name).info.status == "RUNNING"

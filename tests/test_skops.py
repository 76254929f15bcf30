"""Estimators in files of skops: what comes back, and what has to be trusted."""

import copy
import io
import json
import pickle
import zipfile

import joblib
import numpy as np
import pytest
import torch
from hostile_files import document_of, signed
from sklearn import config_context
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sksetvalued
from sksetvalued import (
    AverageKClassifier,
    PlugInClassifier,
    SparseTopClassifier,
    TopKClassifier,
    rules,
    trusted_types,
)
from sksetvalued.estimators._plain_state import FILE
from sksetvalued.metrics import (
    average_k_scorer,
    set_coverage_scorer,
    set_size_scorer,
    top_k_scorer,
)

skops = pytest.importorskip("skops.io", reason="skops is not installed")

X, Y = make_blobs(120, n_features=5, centers=6, random_state=0)
LABELS = np.eye(6, dtype=int)[Y] + np.eye(6, dtype=int)[(Y + 1) % 6]
QUICK = {"max_epochs": 2, "random_state": 0}

MODELS = {
    "top-k": TopKClassifier(k=2, objective="macro", **QUICK),
    "average-k": AverageKClassifier(k=2, loss="role", backbone=(7,), **QUICK),
    "sparse-top": SparseTopClassifier(**QUICK),
    "pipeline": make_pipeline(StandardScaler(), AverageKClassifier(k=2, **QUICK)),
    "search": GridSearchCV(TopKClassifier(k=2, **QUICK), {"lr": [1e-3, 1e-2]}, cv=2),
    "scored search": GridSearchCV(
        TopKClassifier(k=2, **QUICK), {"lr": [1e-3, 1e-2]}, cv=2, scoring=average_k_scorer(k=1.5)
    ),
    "average-k plugged in": PlugInClassifier(LogisticRegression(), rules.AverageK(2)),
    "error plugged in": PlugInClassifier(LogisticRegression(), rules.AverageError(0.2)),
    "plugged in twice": PlugInClassifier(
        make_pipeline(StandardScaler(), TopKClassifier(k=2, **QUICK)), rules.PointwiseError(0.2)
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    model = copy.deepcopy(MODELS[request.param])
    return model.fit(X, LABELS if request.param == "sparse-top" else Y)


def test_no_file_names_a_path_to_open_in_a_fit():
    with pytest.raises(ValueError, match=r"weights=.* is a path"):
        skops.dumps(TopKClassifier(backbone="resnet18", weights="//host/share/weights.pt"))
    model = TopKClassifier(backbone="resnet18", weights="IMAGENET1K_V1")
    content = skops.dumps(make_pipeline(model))
    (again,) = skops.loads(content, trusted=trusted_types())
    assert again.weights == model.weights
    forged = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(forged, "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name).replace(b"IMAGENET1K_V1", b"//host/shares"))
    with pytest.raises(ValueError, match=r"weights=.* is a path"):
        skops.loads(forged.getvalue(), trusted=trusted_types())
    assert pickle.loads(pickle.dumps(model.set_params(weights="w.pt"))).weights == "w.pt"


def sets(model):
    if isinstance(model, SparseTopClassifier):
        return model.predict_set(X)
    return sksetvalued.predict_set(model, X)


def test_fitted_models_come_back_with_our_types_trusted(fitted):
    content = skops.dumps(fitted)
    assert set(skops.get_untrusted_types(data=content)) <= set(trusted_types())
    loaded = skops.loads(content, trusted=trusted_types())
    np.testing.assert_array_equal(sets(loaded), sets(fitted))
    again = skops.loads(skops.dumps(loaded), trusted=trusted_types())
    np.testing.assert_array_equal(sets(again), sets(fitted))


def test_pickles_and_copies_keep_the_attributes(fitted, tmp_path):
    joblib.dump(fitted, tmp_path / "m")
    for again in (
        pickle.loads(pickle.dumps(fitted)),
        copy.copy(fitted),
        copy.deepcopy(fitted),
        joblib.load(tmp_path / "m"),
    ):
        assert vars(again).keys() == vars(fitted).keys()
        np.testing.assert_array_equal(sets(again), sets(fitted))


def test_estimators_that_are_not_fitted():
    for model in (
        *MODELS.values(),
        TopKClassifier(optimizer="sgd", net_params={"optimizer__a": 1}),
    ):
        loaded = skops.loads(skops.dumps(model), trusted=trusted_types())
        assert repr(loaded) == repr(model)


def test_an_estimator_without_its_state_says_so():
    """As where a schema holds one in place of a version, which scikit-learn then prints."""
    with pytest.raises(ValueError, match="TopKClassifier is incomplete"):
        repr(TopKClassifier.__new__(TopKClassifier))


def test_code_of_the_user_is_refused_by_name_when_it_is_written():
    model = TopKClassifier(k=2, backbone=torch.nn.Linear(5, 4), **QUICK).fit(X, Y)
    with pytest.raises(ValueError, match="backbone cannot be written without code"):
        skops.dumps(model)


class Mine(TopKClassifier):
    pass


def test_so_is_a_fitted_class_of_the_user():
    model = Mine(k=2, **QUICK)
    assert skops.loads(skops.dumps(model), trusted=[*trusted_types(), f"{__name__}.Mine"]).k == 2
    with pytest.raises(TypeError, match="fitted .*Mine cannot be written without code.*pickle it"):
        skops.dumps(model.fit(X, Y))
    np.testing.assert_array_equal(sets(pickle.loads(pickle.dumps(model))), sets(model))


def test_the_names_in_files_are_those_of_the_public_modules():
    for name in trusted_types():
        module, _, cls = name.rpartition(".")
        ours = ("sksetvalued", "sksetvalued.metrics", "sksetvalued.rules")
        assert module in ours or module.startswith("sklearn.")
        assert hasattr(pytest.importorskip(module), cls)
    assert not any("skorch" in name or "torch" in name for name in trusted_types())


class TestForgedStates:
    @pytest.fixture(scope="class")
    def content(self):
        return AverageKClassifier(k=2, **QUICK).fit(X, Y).__getstate__()[FILE].tobytes()

    def restored(self, content, cls=AverageKClassifier):
        return cls.__new__(cls).__setstate__({FILE: np.frombuffer(content, np.uint8)})

    def test_what_a_file_of_save_may_not_say(self, content):
        document = document_of(content)
        document["params"]["compile"] = True
        text = json.dumps(document)
        with pytest.raises(ValueError, match="no file may set"):
            self.restored(signed(text, content))

    def test_another_class(self, content):
        with pytest.raises(ValueError, match="describes a AverageKClassifier"):
            self.restored(content, TopKClassifier)

    @pytest.mark.parametrize(
        "state",
        [
            {},
            {"net_": 1},
            {FILE: b"bytes"},
            {FILE: np.zeros(3)},
            {FILE: np.zeros(3, np.uint8)},
            {**TopKClassifier().get_params(deep=False), "net_": 1},
            {**TopKClassifier().get_params(deep=False), "predict_set": print},
            3,
        ],
    )
    def test_attributes_that_are_not_parameters(self, state):
        with pytest.raises(ValueError, match="the state of a TopKClassifier"):
            TopKClassifier.__new__(TopKClassifier).__setstate__(state)
        model = TopKClassifier()
        with pytest.raises(ValueError, match="the state of a TopKClassifier"):
            model.__setstate__(state)
        assert vars(model) == vars(TopKClassifier())


SCORERS = [
    top_k_scorer(2, "macro"),
    average_k_scorer(1.5),
    set_coverage_scorer(),
    set_size_scorer(),
]


@pytest.mark.parametrize("scorer", SCORERS, ids=str)
def test_scorers_come_back_with_what_they_request(scorer):
    with config_context(enable_metadata_routing=True):
        asked = copy.deepcopy(scorer).set_score_request(sample_weight="mass")
        for one in (scorer, asked):
            for again in (
                skops.loads(skops.dumps(one), trusted=trusted_types()),
                pickle.loads(pickle.dumps(one)),
            ):
                assert again == one
                assert repr(again.get_metadata_routing()) == repr(one.get_metadata_routing())


@pytest.mark.parametrize(
    "state",
    [
        {},
        3,
        {"_params": 3},
        {"_params": {}},
        {"_params": {"k": 0, "average": "micro"}},
        {"_params": {"k": 2, "average": print}},
        {"_params": {"k": object.__new__(PlugInClassifier), "average": "micro"}},
        {"_params": {"k": 2, "average": "micro", "labels": [1]}},
        {"_params": {"k": 2, "average": "micro"}, "_score": print},
        {"_params": {"k": 2, "average": "micro"}, "_sample_weight_request": print},
    ],
)
def test_forged_scorers_are_refused(state):
    with pytest.raises(ValueError, match=r"^the state of a top_k_scorer|^k=0|^k must|^average"):
        type(SCORERS[0]).__new__(type(SCORERS[0])).__setstate__(state)

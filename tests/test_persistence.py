"""Files of save: what is kept, what is refused, and what damage does."""

import copy
import errno
import itertools
import json
import os
import pickle
import signal
import time
from pathlib import Path

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from fresh import run_code
from hostile_files import header_of, with_document, with_header
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV
from skorch.callbacks import Freezer
from torch import nn
from torch.nn.functional import cross_entropy

from sksetvalued import (
    AverageKClassifier,
    SparseTopClassifier,
    TopKClassifier,
    load,
    save,
)
from sksetvalued._randomness import own_generators
from sksetvalued.estimators import _allowed, _writing
from sksetvalued.estimators._container import pack, unpack
from sksetvalued.estimators._json import Decoder, NotEncodable, encode
from sksetvalued.losses import LOSSES, SetLoss

X, Y = make_blobs(120, n_features=5, centers=6, random_state=0)
IMAGES = np.random.default_rng(0).integers(0, 256, (30, 12, 12, 3), dtype=np.uint8)
NAMES = np.array(["ash", "birch", "cedar", "elm", "fir", "oak"])


def fitted(cls=TopKClassifier, X=X, y=Y, **params):
    return cls(**{"k": 2, "max_epochs": 2, "random_state": 0, **params}).fit(X, y)


@pytest.fixture
def learning(monkeypatch):
    """The name of a loss with something to learn."""
    monkeypatch.setitem(LOSSES, "learning", Learning)
    return "learning"


class Learning(SetLoss):
    """A loss with a parameter and a buffer, which its scores need or do not need."""

    def __init__(self, scaled=False, class_counts=None):
        super().__init__()
        self.scaled = scaled
        self.slope = nn.Parameter(torch.ones(()))
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("counts", torch.as_tensor(class_counts))

    def scores(self, output):
        return output * self.slope if self.scaled else output

    def sample_losses(self, input, target):
        self.seen += self.training
        return cross_entropy(input * self.slope, target, reduction="none")


def saved_and_loaded(model, folder):
    save(model, folder / "model.safetensors")
    return load(folder / "model.safetensors")


class TestRoundTrip:
    @pytest.mark.filterwarnings("ignore:k=50 is at least the number of classes")
    @pytest.mark.parametrize(
        "params",
        [
            {},
            {"objective": "macro"},
            {"loss": "cross_entropy", "backbone": (8, 4)},
            {"loss": "logit_adjusted", "loss_params": {"tau": np.float64(0.5)}},
            {"max_margin": 0.2, "scale": 20.0},
            {"loss": "ldam", "optimizer": torch.optim.SGD},
            {"backbone": "mlp", "backbone_params": {"hidden": (7,), "dropout": 0.1}},
            {"validation_fraction": 0.2, "patience": 1, "lr_schedule": "cosine"},
            {"k": 50},
            {"class_weight": "balanced"},
            {"ranks": {1: 0.5, "k": 0.5}, "lr_schedule": [1, 2]},
            {"loss": "noised_hinge", "loss_params": {"ranks": {1: 1, 2: 0.5}}},
        ],
    )
    def test_top_k_classifiers(self, tmp_path, params):
        model = fitted(**params)
        loaded = saved_and_loaded(model, tmp_path)
        np.testing.assert_array_equal(loaded.predict_set(X), model.predict_set(X))
        np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
        assert loaded.get_params() == model.get_params()
        assert list(loaded.history_) == list(model.history_)

    @pytest.mark.filterwarnings("ignore:k=6 is at least the number of classes")
    @pytest.mark.parametrize(
        "params",
        [
            {},
            {"objective": "macro", "k": 1.5},
            {"loss": "cross_entropy", "rule_params": {"min_size": 1, "max_size": 4}},
            {"loss": "role", "loss_params": {"beta": 0.1}},
            {"calibration_fraction": None, "k": 6},
        ],
    )
    def test_average_k_classifiers_keep_their_threshold(self, tmp_path, params):
        model = fitted(AverageKClassifier, **params)
        loaded = saved_and_loaded(model, tmp_path)
        assert loaded.threshold_ == model.threshold_
        np.testing.assert_array_equal(loaded.predict_set(X), model.predict_set(X))
        recalibrated = [m.set_params(k=3).calibrate(X).predict_set(X) for m in (model, loaded)]
        np.testing.assert_array_equal(*recalibrated)

    @pytest.mark.parametrize(
        "labels",
        [
            NAMES,
            NAMES.astype(object),
            np.arange(6) * 10 - 20,
            np.arange(6) * 1.0,
            np.arange(6) % 2 == 0,
        ],
    )
    def test_labels_of_any_kind(self, tmp_path, labels):
        model = fitted(y=labels[Y], k=1)
        loaded = saved_and_loaded(model, tmp_path)
        assert loaded.classes_.dtype == model.classes_.dtype
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
        np.testing.assert_array_equal(loaded.class_counts_, model.class_counts_)

    def test_values_of_numpy_and_dicts_of_numbers(self, tmp_path):
        weights = {0: 1, 1: 9.0, 2: 1, np.int64(3): 1, 4: 2, 5: 1}
        params = {"hidden": np.array([8, 4]), "dropout": np.float32(0.125)}
        model = fitted(
            y=Y, class_weight=weights, backbone_params=params, lr_schedule=np.array([1, 2])
        )
        loaded = saved_and_loaded(model, tmp_path)
        np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
        assert loaded.class_weight == weights
        assert loaded.backbone_params == {"hidden": [8, 4], "dropout": 0.125}
        wide = fitted(y=Y, backbone_params={"hidden": (np.int32(8), 4)})
        assert saved_and_loaded(wide, tmp_path).backbone_params == {"hidden": (8, 4)}

    def test_what_is_frozen(self, tmp_path):
        model = fitted(warm_start=True, callbacks=[Freezer("backbone*")])
        loaded = saved_and_loaded(model.set_params(callbacks=None), tmp_path)
        before = loaded.decision_function(X)
        again = [m.fit(X, Y).decision_function(X) for m in (loaded, model)]
        np.testing.assert_array_equal(*again)
        assert (again[0] != before).any()

    def test_in_the_mode_of_inference(self, tmp_path):
        with torch.inference_mode():
            loaded = saved_and_loaded(fitted(warm_start=True), tmp_path)
            inside = loaded.fit(X, Y).decision_function(X)
        outside = fitted(warm_start=True).fit(X, Y)
        np.testing.assert_array_equal(outside.decision_function(X), inside)
        np.testing.assert_array_equal(loaded.partial_fit(X, Y).predict_set(X).sum(1), 2)

    def test_names_of_features(self, tmp_path):
        import pandas as pd

        frame = pd.DataFrame(X, columns=list("abcde"))
        loaded = saved_and_loaded(fitted(X=frame), tmp_path)
        assert loaded.feature_names_in_.tolist() == list("abcde")
        with pytest.raises(ValueError, match="feature names"):
            loaded.predict(frame[list("edcba")])

    @pytest.mark.parametrize("backbone", [None, "resnet18", "densenet40_40"])
    def test_networks_of_images(self, tmp_path, backbone):
        params = {"backbone_params": {"depth": 10}} if backbone == "densenet40_40" else {}
        model = fitted(X=IMAGES, y=np.arange(30) % 3, backbone=backbone, max_epochs=1, **params)
        loaded = saved_and_loaded(model, tmp_path)
        np.testing.assert_array_equal(
            loaded.decision_function(IMAGES), model.decision_function(IMAGES)
        )

    def test_half_precision(self, tmp_path):
        model = fitted(precision="bf16")
        loaded = saved_and_loaded(model, tmp_path)
        np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))

    @pytest.mark.parametrize(("before", "after"), [("float32", "bf16"), ("bf16", "float32")])
    def test_a_precision_that_was_set_later_changes_nothing_and_is_refused(
        self, tmp_path, before, after
    ):
        model = fitted(precision=before)
        expected = [model.decision_function(inputs) for inputs in (X, X.astype(np.float32))]
        model.set_params(precision=after)
        for inputs, scores in zip((X, X.astype(np.float32)), expected):
            np.testing.assert_array_equal(model.decision_function(inputs), scores)
        with pytest.raises(ValueError, match=f"precision='{after}' was set .* '{before}'"):
            save(model, tmp_path / "m")

    def test_how_the_machine_runs_is_given_by_the_reader(self, tmp_path):
        from skorch.callbacks import EarlyStopping

        stop = [("stop", EarlyStopping("train_loss"))]
        net_params = {
            "compile__backend": "eager",
            "callbacks__stop__patience": 3,
            "iterator_train__num_workers": 0,
            "optimizer__betas": (0.8, 0.9),
            "optimizer__eps": np.float64(1e-7),
        }
        # One layer, one batch: little to compile.
        small = {"backbone": (8,), "batch_size": 120, "loss": "cross_entropy"}
        model = fitted(compile=True, callbacks=stop, net_params=net_params, device="cpu", **small)
        save(model, tmp_path / "m")
        with pytest.warns(UserWarning, match="^callbacks, compile, net_params .*not restored"):
            bare = load(tmp_path / "m")
        expected = {"callbacks": None, "compile": False, "device": "auto"}
        expected["net_params"] = {"optimizer__betas": (0.8, 0.9), "optimizer__eps": 1e-7}
        assert bare.get_params() == {**model.get_params(), **expected}
        eager = {"compile__backend": "eager"}
        with pytest.warns(UserWarning, match="^callbacks of the training"):
            given = load(tmp_path / "m", device="cpu", compile=True, net_params=eager)
        assert given.get_params()["net_params"] == {**expected["net_params"], **eager}
        assert hasattr(given.net_.module_, "_orig_mod")
        np.testing.assert_array_equal(given.decision_function(X), model.decision_function(X))
        np.testing.assert_allclose(
            bare.decision_function(X), given.decision_function(X), atol=1e-5
        )
        with pytest.raises(ValueError, match="compile__options"):
            load(tmp_path / "m", net_params={"compile__options": {}})
        with pytest.raises(ValueError, match="device='elsewhere' cannot be used"):
            load(tmp_path / "m", device="elsewhere")

    def test_what_named_weights_did_to_the_network_is_kept(self, tmp_path, monkeypatch):
        from torchvision.models import GoogLeNet_Weights, googlenet

        with pytest.warns(FutureWarning, match="weight initialization"):
            state = googlenet(transform_input=True).state_dict()
        monkeypatch.setattr(GoogLeNet_Weights, "get_state_dict", lambda *args, **kwargs: state)
        images = np.repeat(np.repeat(IMAGES, 2, axis=1), 2, axis=2)
        params = {"backbone": "googlenet", "weights": "IMAGENET1K_V1", "max_epochs": 1}
        model = fitted(X=images, y=np.arange(30) % 3, **params)
        assert model.net_.module_.backbone.transform_input
        monkeypatch.undo()
        loaded = saved_and_loaded(model, tmp_path)
        np.testing.assert_array_equal(
            loaded.decision_function(images), model.decision_function(images)
        )

    def test_sparse_top_classifiers(self, tmp_path):
        targets = np.eye(6, dtype=int)[Y] + np.eye(6, dtype=int)[(Y + 1) % 6]
        model = SparseTopClassifier(max_epochs=2, random_state=0).fit(X, targets)
        loaded = saved_and_loaded(model, tmp_path)
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
        np.testing.assert_array_equal(loaded.project(X, 2), model.project(X, 2))

    @pytest.mark.parametrize(
        ("cls", "change"),
        [
            (AverageKClassifier, {"rule_params": {"min_size": 5}}),
            (AverageKClassifier, {"rule_params": {"no_such": 1}}),
            (AverageKClassifier, {"k": 5.5}),
            (AverageKClassifier, {"objective": "macro"}),
            (TopKClassifier, {"rule_params": {"prior": [1, 2]}, "objective": "macro"}),
        ],
    )
    def test_parameters_changed_since_the_fit_leave_the_rule_as_it_was(
        self, tmp_path, cls, change
    ):
        model = fitted(cls)
        rule = vars(model.rule_)
        loaded = saved_and_loaded(model.set_params(**change), tmp_path)
        assert type(loaded.rule_) is type(model.rule_)
        assert vars(loaded.rule_).keys() == rule.keys()
        for name, value in rule.items():
            np.testing.assert_array_equal(getattr(loaded.rule_, name), value)
        assert loaded.get_params() == model.get_params()

    @pytest.mark.parametrize(
        "change",
        [
            {"backbone": (7,), "backbone_params": None},
            {"backbone_params": {"hidden": (7,)}},
            {"backbone": "resnet18"},
        ],
    )
    def test_parameters_changed_since_the_fit_leave_the_network_as_it_was(self, tmp_path, change):
        model = fitted(backbone="mlp", backbone_params={"hidden": (9,)})
        expected = model.decision_function(X)
        model.set_params(**change)
        for _ in range(2):
            model = saved_and_loaded(model, tmp_path)
            np.testing.assert_array_equal(model.decision_function(X), expected)
            assert {name: model.get_params()[name] for name in change} == change
        fresh = model.set_params(backbone=(7,), backbone_params=None).fit(X, Y)
        assert fresh.net_.module_.backbone[0].weight.shape == (7, 2 * 5)

    def test_training_goes_on(self, tmp_path):
        model = TopKClassifier(k=1, loss="cross_entropy", lr=1e-2, random_state=0)
        for _ in range(3):
            model.partial_fit(X, Y, classes=np.arange(6))
        loaded = saved_and_loaded(model, tmp_path)
        before = loaded.decision_function(X)
        for _ in range(20):
            loaded.partial_fit(X, Y)
        assert not np.array_equal(loaded.decision_function(X), before)
        assert loaded.score(X, Y) > 0.9

    @pytest.mark.parametrize("how", ["fit", "partial_fit"])
    @pytest.mark.parametrize(
        "params",
        [
            {"optimizer": "sgd"},
            {"validation_fraction": 0.2, "loss": "noised_hinge"},
            {"backbone_params": {"dropout": 0.3}, "optimizer": torch.optim.Adagrad},
        ],
    )
    def test_training_goes_on_as_if_it_had_not_been_saved(self, tmp_path, how, params):
        model = TopKClassifier(k=2, max_epochs=2, warm_start=True, random_state=0, **params)
        first = {"classes": np.arange(6)} if how == "partial_fit" else {}
        getattr(model, how)(X, Y, **first)
        loaded = saved_and_loaded(model, tmp_path)
        again = saved_and_loaded(loaded, tmp_path)
        before = model.decision_function(X)
        for m in (model, loaded, again):
            getattr(m, how)(X, Y)
        assert not np.array_equal(model.decision_function(X), before)
        for m in (loaded, again):
            np.testing.assert_array_equal(m.decision_function(X), model.decision_function(X))
            assert [r["train_loss"] for r in m.history_] == [
                r["train_loss"] for r in model.history_
            ]

    @pytest.mark.parametrize("first", ["sgd", "adamw", torch.optim.RMSprop])
    @pytest.mark.parametrize("then", ["adamw", "adam", torch.optim.Adamax])
    def test_training_goes_on_with_another_optimizer(self, tmp_path, first, then):
        model = TopKClassifier(k=2, backbone_params={"dropout": 0.3}, random_state=0)
        model.set_params(optimizer=first).partial_fit(X, Y, classes=np.arange(6))
        loaded = saved_and_loaded(model.set_params(optimizer=then), tmp_path)
        for m in (model, loaded):
            m.partial_fit(X, Y)
        np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))

    def test_a_generator_on_a_gpu_comes_back(self, tmp_path):
        model = fitted(warm_start=True, backbone_params={"dropout": 0.3})
        state = {"cuda:0": torch.arange(16, dtype=torch.uint8)}  # not of the size on the CPU
        for own in own_generators(model.net_.module_).values():
            own.__setstate__({"seed": 3, "states": state})
        loaded = saved_and_loaded(model, tmp_path)
        for own in own_generators(loaded.net_.module_).values():
            assert own.__getstate__()["seed"] == 3
            assert torch.equal(own.__getstate__()["states"]["cuda:0"], state["cuda:0"])

    @pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
    @pytest.mark.parametrize("data", ["images", "sparse rows"])
    def test_training_goes_on_whatever_the_order_of_weights_in_memory(
        self, tmp_path, optimizer, data
    ):
        if data == "images":
            inputs = IMAGES
        else:
            inputs = sp.random(30, 500, density=0.02, format="csr", random_state=0)
        params = {"max_epochs": 2, "lr": 1e-2, "lr_schedule": None, "optimizer": optimizer}
        model = fitted(X=inputs, y=np.arange(30) % 3, warm_start=True, **params)
        assert any(not p.is_contiguous() for p in model.net_.module_.parameters())
        loaded = saved_and_loaded(model, tmp_path)
        for m in (model, loaded):
            m.fit(inputs, np.arange(30) % 3)
        np.testing.assert_array_equal(
            loaded.decision_function(inputs), model.decision_function(inputs)
        )

    @pytest.mark.parametrize("optimizer", [torch.optim.LBFGS, torch.optim.Adafactor])
    def test_an_optimizer_that_keeps_other_shapes_begins_anew_with_a_warning(
        self, tmp_path, optimizer
    ):
        params = {"optimizer": optimizer, "batch_size": 120, "lr_schedule": None}
        save(fitted(warm_start=True, weight_decay=None, **params), tmp_path / "m")
        with pytest.warns(UserWarning, match="^optimizer state of the training"):
            load(tmp_path / "m")

    @pytest.mark.filterwarnings("error:.*loss state", "error:.*has learned")
    def test_what_a_loss_has_learned_is_told_where_the_training_may_go_on(
        self, tmp_path, learning
    ):
        model = fitted(loss=learning)
        loaded = saved_and_loaded(model, tmp_path)
        np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
        model.partial_fit(X, Y)
        told = r"loss='learning' has learned \['seen', 'slope'\].*joblib"
        with pytest.warns(UserWarning, match=told):
            save(model, tmp_path / "m")
        with pytest.warns(UserWarning, match="^loss state of the training"):
            loaded = load(tmp_path / "m")
        np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
        # It is that of now, and not that of another loss, nor what another would not take over.
        saved_and_loaded(loaded, tmp_path)
        saved_and_loaded(model.set_params(loss="cross_entropy"), tmp_path)

    @pytest.mark.filterwarnings("error:.*loss state", "error:.*has learned")
    @pytest.mark.parametrize("loss", ["noised_mixture", "logit_adjusted", "ldam"])
    def test_the_losses_of_the_package_learn_nothing(self, tmp_path, loss):
        model = fitted(loss=loss, warm_start=True).partial_fit(X[:60], Y[:60])
        saved_and_loaded(model, tmp_path)

    def test_networks_whose_user_made_them_half_as_large(self, tmp_path):
        model = fitted(X=IMAGES, y=np.arange(30) % 3, max_epochs=1)
        model.net_.module_.bfloat16()
        loaded = saved_and_loaded(model, tmp_path)
        assert loaded.net_.module_.head.weight.dtype == torch.bfloat16
        with torch.no_grad():
            images = torch.from_numpy(IMAGES).permute(0, 3, 1, 2)
            np.testing.assert_array_equal(
                *(m.net_.module_.cpu().eval()(images).float() for m in (model, loaded))
            )

    def test_a_file_can_be_written_over(self, tmp_path):
        first, second = fitted(), fitted(random_state=1)
        saved_and_loaded(first, tmp_path)
        loaded = saved_and_loaded(second, tmp_path)
        np.testing.assert_array_equal(loaded.decision_function(X), second.decision_function(X))
        assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]

    @pytest.mark.parametrize(("name", "text"), [("notes.txt", "hello"), ("notes", "junk")])
    def test_a_file_names_no_file_of_weights(self, tmp_path, monkeypatch, name, text):
        monkeypatch.chdir(tmp_path)
        Path(name).write_text(text)
        save(fitted(), "m")
        good = Path("m").read_bytes()
        Path("m").write_bytes(with_document(good, lambda d: d["params"].update(weights=name)))
        with pytest.raises(ValueError, match="no file may set the parameter weights"):
            load("m")
        with pytest.raises(ValueError, match=f"weights='{name}' cannot be read as a state dict"):
            fitted(backbone=(8,), weights=name)

    def test_weights_given_by_a_file_are_not_read_again(self, tmp_path):
        source = fitted(backbone=(8,)).net_.module_.backbone
        torch.save(source.state_dict(), tmp_path / "w.pt")
        model = fitted(backbone=(8,), weights=tmp_path / "w.pt")
        (tmp_path / "w.pt").unlink()
        save(model, tmp_path / "m")
        with pytest.warns(UserWarning, match="^weights of the training are not restored"):
            loaded = load(tmp_path / "m")
        assert loaded.weights is None
        np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))

    @pytest.mark.parametrize("module", [pickle, joblib])
    def test_pickle_and_joblib(self, tmp_path, module):
        for cls in (TopKClassifier, AverageKClassifier):
            model = fitted(cls)
            with open(tmp_path / "model", "wb") as file:
                module.dump(model, file)
            with open(tmp_path / "model", "rb") as file:
                loaded = module.load(file)
            np.testing.assert_array_equal(loaded.predict_set(X), model.predict_set(X))

    def test_a_model_of_a_device_that_is_not_here(self, tmp_path):
        model = fitted()
        model.device = "cuda:9"
        loaded = saved_and_loaded(model, tmp_path)
        assert loaded.device == "auto"
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


class TestWriting:
    """Where and how the file is written."""

    @pytest.fixture
    def model(self):
        return fitted(max_epochs=1)

    def test_a_path_of_another_type_is_named(self, model):
        with pytest.raises(TypeError, match="^path must be a string or a path, got None"):
            save(model, None)

    def test_names_in_bytes(self, model, tmp_path):
        save(model, os.fsencode(tmp_path / "m"))
        assert load(os.fsencode(tmp_path / "m")).k == 2
        with pytest.raises(FileNotFoundError, match="no file '.*absent'"):
            load(os.fsencode(tmp_path / "absent"))

    @pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
    @pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0, 0o666)])
    def test_the_mode_is_that_of_the_umask(self, model, tmp_path, mask, mode):
        before = os.umask(mask)
        try:
            save(model, tmp_path / "new")
            (tmp_path / "old").touch(0o600)
            save(model, tmp_path / "old")
        finally:
            os.umask(before)
        assert (tmp_path / "new").stat().st_mode & 0o777 == mode
        assert (tmp_path / "old").stat().st_mode & 0o777 == 0o600 & ~mask

    def test_links_are_written_through(self, model, tmp_path):
        (tmp_path / "folder").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "folder" / "m")
        for _ in range(2):
            save(model, tmp_path / "link")
            assert (tmp_path / "link").is_symlink()
            assert load(tmp_path / "folder" / "m").k == 2
        assert [p.name for p in (tmp_path / "folder").iterdir()] == ["m"]
        (tmp_path / "round").symlink_to(tmp_path / "round")
        with pytest.raises(OSError, match="round"):
            save(model, tmp_path / "round")

    @pytest.mark.parametrize("name", ["a\0b", "a" * 300, "\ud800", "", "."])
    def test_names_that_no_file_can_have(self, model, tmp_path, name, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(OSError) as info:
            save(model, name)
        assert info.value.filename == name
        assert list(tmp_path.iterdir()) == []

    def test_a_long_name(self, model, tmp_path):
        save(model, tmp_path / ("a" * 255))
        assert load(tmp_path / ("a" * 255)).k == 2

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="not on Linux")
    def test_what_is_no_file_is_left_alone(self, model):
        with pytest.raises(OSError, match=r"is no file: '/dev/full'"):
            save(model, "/dev/full")

    def test_a_full_disk(self, model, tmp_path):
        """A limit on the size of files stands in for it."""
        resource = pytest.importorskip("resource")
        save(model, tmp_path / "m")
        before = (tmp_path / "m").read_bytes()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            with pytest.raises(OSError) as info:
                save(model, tmp_path / "m")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)
        assert info.value.filename == str(tmp_path / "m")
        assert (tmp_path / "m").read_bytes() == before
        assert [p.name for p in tmp_path.iterdir()] == ["m"]

    def test_a_full_disk_where_no_open_file_can_be_removed(self, tmp_path, monkeypatch):
        """As on Windows, which has no locks of files either."""
        files = []

        def opened(*args):
            files.append(open(*args))  # noqa: SIM115
            return files[-1]

        def removed(path, remove=os.remove):
            if not all(file.closed for file in files):
                raise PermissionError(errno.EACCES, "it is open", path)
            remove(path)

        def full(*args):
            raise OSError(errno.ENOSPC, "no space left")

        monkeypatch.setattr(_writing, "fcntl", None)
        monkeypatch.setattr(_writing, "open", opened, raising=False)
        monkeypatch.setattr(os, "remove", removed)
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space left") as info:
            _writing.write_whole(tmp_path / "m", b"data")
        assert info.value.filename == str(tmp_path / "m")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("change", ["replace", "remove"])
    def test_a_reader_is_waited_for_where_it_is_in_the_way(self, change, tmp_path, monkeypatch):
        """As on Windows; a file that is refused for good is told, and nothing else is left."""
        refusals, done = iter([True, True, False]), getattr(os, change)

        def refused(*paths):
            if paths[-1] == str(tmp_path / "m") and next(refusals, True):
                raise PermissionError(errno.EACCES, "somebody reads it", paths[-1])
            done(*paths)

        (tmp_path / "m").write_bytes(b"before")
        monkeypatch.setattr(_writing, "fcntl", None)
        monkeypatch.setattr(_writing, "PAUSE", 0)
        monkeypatch.setattr(os, change, refused)
        args = {"replace": [b"data"], "remove": []}[change]
        write = {"replace": _writing.write_whole, "remove": _writing.remove_whole}[change]
        write(tmp_path / "m", *args)
        left = [b"data"] if change == "replace" else []
        assert [file.read_bytes() for file in tmp_path.iterdir()] == left
        (tmp_path / "m").write_bytes(b"after")
        with pytest.raises(PermissionError, match="somebody reads it"):
            write(tmp_path / "m", *args)
        assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"after"]

    def test_file_systems_may_have_no_locks(self, tmp_path, monkeypatch):
        def none(*args):
            raise OSError(error, "Function not implemented")

        flock = getattr(_writing.fcntl, "flock", None)
        if flock is None:
            pytest.skip("there are no locks here")
        monkeypatch.setattr(_writing.fcntl, "flock", none)
        error = errno.ENOSYS
        _writing.write_whole(tmp_path / "m", b"data")
        assert (tmp_path / "m").read_bytes() == b"data"
        error = errno.EINTR
        with pytest.raises(OSError, match="not implemented"):
            _writing.write_whole(tmp_path / "m", b"more")
        assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"data"]

    @pytest.mark.slow
    @pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
    def test_killed_at_any_moment(self, tmp_path):
        """Of 100 processes killed in `save`, none leaves a broken file or litter that stays."""
        models = [fitted(backbone=(1000, 1000), max_epochs=1, random_state=i) for i in range(2)]
        expected, rng = [m.decision_function(X) for m in models], np.random.default_rng(0)
        save(models[0], tmp_path / "m")
        seen = set()
        for _ in range(100):
            child = os.fork()
            if child == 0:
                try:
                    for model in itertools.cycle(models):
                        save(model, tmp_path / "m")
                finally:
                    os._exit(1)
            time.sleep(rng.uniform(0, 0.3))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            scores = load(tmp_path / "m").decision_function(X)
            seen.add([np.array_equal(scores, e) for e in expected].index(True))
        assert seen == {0, 1}
        save(models[0], tmp_path / "m")
        assert [p.name for p in tmp_path.iterdir()] == ["m"]


class TestRefusals:
    @pytest.mark.parametrize("as_path", [str, lambda path: path])
    def test_a_folder_that_is_not_there(self, tmp_path, as_path):
        folder = tmp_path / "none"
        with pytest.raises(FileNotFoundError, match="there is no folder") as info:
            save(fitted(), as_path(folder / "model.safetensors"))
        assert str(folder / "model.safetensors") in str(info.value)
        assert not folder.exists()

    def test_a_file_in_the_place_of_the_folder(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(FileNotFoundError, match="there is no folder"):
            save(fitted(), tmp_path / "file" / "model.safetensors")

    def test_a_file_that_cannot_be_replaced(self, tmp_path, monkeypatch):
        def replace(*paths):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

        monkeypatch.setattr(os, "replace", replace)
        with pytest.raises(OSError, match="mount its folder") as info:
            save(fitted(), tmp_path / "m")
        assert info.value.filename == str(tmp_path / "m")
        assert not list(tmp_path.iterdir())

    def test_the_working_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        save(fitted(), "model.safetensors")
        assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]

    def test_an_own_module(self, tmp_path):
        for backbone in (nn.Linear(5, 4), lambda shape: nn.Linear(shape[0], 4)):
            model = fitted(backbone=backbone)
            for now in (backbone, None):
                with pytest.raises(ValueError, match=r"backbone cannot be written.*export\(model"):
                    save(model.set_params(backbone=now), tmp_path / "m")
        assert not list(tmp_path.iterdir())

    def test_an_own_loss(self, tmp_path):
        with pytest.raises(ValueError, match=r"loss cannot.*name"):
            save(fitted(loss=nn.CrossEntropyLoss()), tmp_path / "m")

    def test_a_loss_whose_scores_need_what_it_has_learned(self, tmp_path, learning):
        model = fitted(loss=learning, loss_params={"scaled": True})
        with pytest.raises(ValueError, match=r"has learned \['seen', 'slope'\].*scores.*joblib"):
            save(model, tmp_path / "m")
        with pytest.raises(ValueError, match="other scores.*set them back"):
            save(model.set_params(loss_params=None), tmp_path / "m")
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        ("cls", "params", "change"),
        [
            (TopKClassifier, {"max_margin": 0.2}, {"scale": 20.0}),
            (TopKClassifier, {"loss": "ldam"}, {"loss": "noised_hinge", "max_margin": 0.2}),
            (AverageKClassifier, {}, {"loss_params": {"ranking_head": "multi_label"}}),
            (SparseTopClassifier, {"loss": "sparsemax"}, {"loss": "sparse_top"}),
            (SparseTopClassifier, {"loss": "bce"}, {"loss": "sparse_top"}),
        ],
    )
    def test_a_loss_changed_since_the_fit_to_one_of_other_scores(
        self, tmp_path, cls, params, change
    ):
        model = cls(max_epochs=1, random_state=0, **params)
        model.fit(X, np.eye(6, dtype=int)[Y] if cls is SparseTopClassifier else Y)
        before = {name: model.get_params()[name] for name in change}
        with pytest.raises(ValueError, match="other scores.*set them back.*or fit again"):
            save(model.set_params(**change), tmp_path / "m")
        assert not list(tmp_path.iterdir())
        loaded = saved_and_loaded(model.set_params(**before), tmp_path)
        np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))

    def test_transforms_and_the_way_out_that_the_message_gives(self, tmp_path):
        def invert(x):
            return 255 - x

        model = fitted(X=IMAGES, y=np.arange(30) % 3, transform={"eval": invert}, max_epochs=1)
        with pytest.raises(ValueError, match=r"copy\.copy\(model\)\.set_params\(transform=None\)"):
            save(model, tmp_path / "m")
        save(copy.copy(model).set_params(transform=None), tmp_path / "m")
        loaded = load(tmp_path / "m").set_params(transform={"eval": invert})
        np.testing.assert_array_equal(loaded.predict_proba(IMAGES), model.predict_proba(IMAGES))

    def test_a_generator(self, tmp_path):
        with pytest.raises(ValueError, match="random_state cannot"):
            save(fitted(random_state=np.random.RandomState(0)), tmp_path / "m")

    def test_other_estimators(self, tmp_path):
        search = GridSearchCV(TopKClassifier(k=2, max_epochs=1), {"lr": [1e-2]}, cv=2).fit(X, Y)
        with pytest.raises(TypeError, match="best_estimator_"):
            save(search, tmp_path / "m")
        save(search.best_estimator_, tmp_path / "m")

        class Own(TopKClassifier):
            pass

        with pytest.raises(TypeError, match="got Own"):
            save(Own(), tmp_path / "m")

    def test_an_estimator_that_is_not_fitted(self, tmp_path):
        from sklearn.exceptions import NotFittedError

        with pytest.raises(NotFittedError):
            save(TopKClassifier(), tmp_path / "m")


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """The bytes of a file of save."""
    path = tmp_path_factory.mktemp("files") / "m"
    save(fitted(AverageKClassifier), path)
    return path.read_bytes()


class TestDamage:
    def loading(self, content, folder):
        (folder / "m").write_bytes(content)
        return load(folder / "m")

    def test_the_helpers_rewrite_a_file_that_loads(self, content, tmp_path):
        model = self.loading(with_document(content, lambda d: None), tmp_path)
        assert isinstance(model, AverageKClassifier)

    @pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.9999])
    def test_a_truncated_file(self, content, tmp_path, share):
        with pytest.raises(ValueError, match="complete file"):
            self.loading(content[: int(share * len(content))], tmp_path)

    def test_a_longer_file(self, content, tmp_path):
        with pytest.raises(ValueError, match="complete file"):
            self.loading(content + b"more", tmp_path)

    def test_any_changed_byte_is_noticed(self, content, tmp_path):
        """No change of one byte loads into a model (100 places spread over the file)."""
        for place in np.linspace(0, len(content) - 1, 100).astype(int):
            changed = bytearray(content)
            changed[place] ^= 1
            with pytest.raises(ValueError, match="/m'"):
                self.loading(bytes(changed), tmp_path)

    def test_a_newer_format_says_to_update(self, content, tmp_path):
        newer = with_document(content, lambda d: d.update(format=3, versions={"sksetvalued": "9"}))
        with pytest.raises(ValueError, match=r"format 3, written by sksetvalued 9.*update"):
            self.loading(newer, tmp_path)

    def test_files_of_others(self, content, tmp_path):
        with pytest.raises(ValueError, match="complete file"):
            self.loading(pickle.dumps({"a": 1}), tmp_path)
        header, data = header_of(content)
        del header["__metadata__"]
        with pytest.raises(ValueError, match=r"not written by sksetvalued\.save"):
            self.loading(with_header(header, data), tmp_path)

    @pytest.mark.parametrize(
        "change",
        [
            lambda d: d.update(estimator="GridSearchCV"),
            lambda d: d["params"].update(unknown=3),
            lambda d: d["network"].update(backbone="os.system"),
            lambda d: d["network"].update(other=1),
            lambda d: d["network"].pop("backbone"),
            lambda d: d["params"].update(optimizer={"optimizer": "Optimizer.__init__"}),
            lambda d: d["params"].update(optimizer={"optimizer": "sys"}),
            lambda d: d["params"].update(callbacks={"eval": "1"}),
            lambda d: d["params"].update(loss_params=[1]),
            lambda d: d["network"].update(backbone={"tuple": [3]}),
            lambda d: d["fitted"].update(predict="x"),
            lambda d: d["fitted"].update({"__class__": "x"}),
            lambda d: d["fitted"].pop("classes_"),
            lambda d: d["fitted"].update(
                classes_={"strings": {"object": True, "shape": [1], "data": [1]}}
            ),
            lambda d: d["fitted"].update(input_shape_={"tuple": [9]}),
            lambda d: d["rule"].update(other=1),
            lambda d: d.pop("history"),
        ],
    )
    def test_a_document_that_was_forged_with_its_checksum(self, content, tmp_path, change):
        with pytest.raises(ValueError, match=r"/m' does not describe"):
            self.loading(with_document(content, change), tmp_path)

    def test_no_file(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="absent"):
            load(tmp_path / "absent")

    def test_arguments_of_other_types_are_named(self, content, tmp_path):
        (tmp_path / "m").write_bytes(content)
        for value in (None, 3.5):
            with pytest.raises(TypeError, match=f"^path must be .*, got {value}"):
                load(value)
        with pytest.raises(TypeError, match="^compile must be True or False, got 'yes'"):
            load(tmp_path / "m", compile="yes")
        for value in ([1], "x"):
            with pytest.raises(TypeError, match="^net_params must be a dict or None, got "):
                load(tmp_path / "m", net_params=value)


def there_and_back(value):
    tensors = {}
    text = json.dumps(encode(value, tensors, "x"), allow_nan=False)
    return Decoder(tensors)(json.loads(text))


class TestEncoding:
    @pytest.mark.parametrize(
        "value",
        [
            None,
            True,
            3,
            -2.5,
            "text",
            (1, (2, [3.0, None])),
            {"a": {"b": (1,)}, "float": 1.0, "tuple": []},
            torch.optim.Adam,
        ],
    )
    def test_values_come_back_with_their_types(self, value):
        assert there_and_back(value) == value
        assert type(there_and_back(value)) is type(value)

    @pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
    def test_numbers_that_json_lacks(self, value):
        number, array = there_and_back([value, np.array([value, 1])])
        np.testing.assert_equal(number, value)
        np.testing.assert_array_equal(array, [value, 1])

    @pytest.mark.parametrize("dtype", ["?", "i1", "u8", ">i4", "f2", ">f8", "U3", "O"])
    @pytest.mark.parametrize("shape", [(0,), (6,), (2, 3)])
    def test_arrays_keep_every_bit(self, dtype, shape):
        values = np.random.default_rng(0).standard_normal(shape) * 1e-3
        values = values.astype("U3").astype(dtype) if dtype in "U3O" else values.astype(dtype)
        again = there_and_back(values)
        np.testing.assert_array_equal(again, values)
        assert again.dtype.newbyteorder("=") == values.dtype.newbyteorder("=") or not values.size

    def test_arrays_keep_the_order_by_which_products_round(self):
        values = np.arange(6.0).reshape(2, 3)
        for kept in (values, np.asfortranarray(values), values[:, ::2], values.T):
            again = there_and_back(kept)
            np.testing.assert_array_equal(again, kept)
            assert again.flags.f_contiguous == (kept.flags.f_contiguous)

    @pytest.mark.parametrize(
        "value",
        [
            *(object(), len, {(1,): 2}, {1}, nn.Module, np.array([None]), 1j, range(3)),
            *(torch.optim.Optimizer, np.array([1j]), np.array(["2020"], "M8[Y]")),
        ],
    )
    def test_code_and_objects_are_refused(self, value):
        with pytest.raises(NotEncodable):
            encode({"a": [value]}, {}, "x")

    @pytest.mark.parametrize(
        "value",
        [
            [1],
            {"a": 1, "b": 2},
            {"code": "1"},
            {"optimizer": "lr_scheduler"},
            {"optimizer": "Optimizer"},
            {"strings": {"object": True, "shape": [1], "data": [{"float": "1"}]}},
            {"strings": {"object": False, "shape": [-1], "data": ["a"]}},
            {"array": {"dtype": "V8", "shape": [1], "bytes": "eight"}},
            {"array": {"dtype": "<U500000000", "shape": [1], "bytes": "eight"}},
            {"array": {"dtype": "<i8", "shape": [3], "bytes": "eight"}},
            {"array": {"dtype": "<i8", "shape": [True], "bytes": "eight"}},
            {"array": {"dtype": "<f4", "shape": [2], "bytes": "floats"}},
            {"array": {"dtype": "<f4", "shape": [2], "bytes": "eight", "order": "K"}},
            {"array": {"dtype": "<f4", "shape": [2], "bytes": "eight", "order": ["F"]}},
            {"tensor": "absent"},
            {"tensor": ["absent"]},
            {"tuple": 3},
            {"list": "abc"},
            {"dict": [1]},
            {"float": "1"},
        ],
    )
    def test_what_encode_does_not_write_is_refused(self, value):
        tensors = {"eight": torch.zeros(8, dtype=torch.uint8), "floats": torch.zeros(2)}
        with pytest.raises(ValueError, match=r"an? |untagged|reshape|unknown"):
            Decoder(tensors)(value)

    def test_strings_of_which_one_is_long_take_no_more_than_the_file(self):
        data = ["x" * 100_000, *[""] * 1000]
        with pytest.raises(ValueError, match="1001 strings of up to 100000"):
            Decoder({})({"strings": {"object": False, "shape": [1001], "data": data}})


@pytest.mark.parametrize("cls", [TopKClassifier, AverageKClassifier, SparseTopClassifier])
def test_the_parameters_of_the_estimators_are_known_to_files(cls):
    """A new one is added to `PARAMS` with the values that a file may set."""
    assert set(cls._get_param_names()) <= {*_allowed.PARAMS, *_allowed.MACHINE_PARAMETERS}


def test_a_process_that_only_predicts_does_not_import_the_compiler_of_torch(tmp_path):
    """Which an optimizer does, in seconds; it is made when training goes on."""
    X, y = make_blobs(60, 5, centers=3, random_state=0)
    save(TopKClassifier(k=2, max_epochs=1, random_state=0).fit(X, y), tmp_path / "model")
    ran = run_code(
        """
import sys
import numpy as np, skorch, torchvision  # which may import it where extras of theirs are there
known = set(sys.modules)
from sksetvalued import load
clf = load("model")
clf.predict_set(np.zeros((1, 5)))
assert "torch._dynamo" not in set(sys.modules) - known
""",
        tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    clf = load(tmp_path / "model")
    clf.predict_set(np.zeros((1, 5)))
    assert clf.partial_fit(np.zeros((3, 5)), [0, 1, 2]).net_.optimizer_ is not None


def test_pieces_go_on_from_the_file_of_a_model_from_a_file(tmp_path):
    model = TopKClassifier(k=2, loss="cross_entropy", random_state=0)
    model.partial_fit(X, Y, classes=np.arange(6))
    again = saved_and_loaded(saved_and_loaded(model, tmp_path), tmp_path)
    for m in (model, again):
        m.partial_fit(X, Y)
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))


@pytest.mark.parametrize(("old", "new"), [(b"[2,3]", b"[3,2]"), (b'"F32"', b'"I32"')])
def test_shapes_and_types_of_tensors_are_under_the_checksum(old, new):
    data = pack({"kind": "x"}, {"t": torch.ones(2, 3)})
    assert data.count(old) == 1
    with pytest.raises(ValueError, match="its checksum does not agree"):
        unpack(data.replace(old, new))

"""Backbones of libraries and of users: what they are told, and what is made of their outputs."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torchvision
from torch import nn

from sksetvalued import TopKClassifier
from sksetvalued.networks import ChannelStatistics, build_network
from sksetvalued.networks._sources import may_be_recorded
from sksetvalued.networks._sources._transformers import Pooled

rng = np.random.default_rng(0)
IMAGES = rng.integers(0, 256, (12, 3, 8, 8), dtype=np.uint8)
SIGNALS = rng.normal(size=(12, 4, 9)).astype(np.float32)
Y = np.arange(12) % 3


def fit(X, **params):
    return TopKClassifier(2, max_epochs=1, random_state=0, **params).fit(X, Y)


@pytest.mark.parametrize(("name", "needed"), [("timm/resnet10t", "timm"), ("hf/bert", "tr.*ers")])
def test_a_library_that_is_not_there_is_named(name, needed, monkeypatch):
    def nothing(module):
        raise ImportError(f"no {module}")

    monkeypatch.setattr(importlib, "import_module", nothing)
    with pytest.raises(ImportError, match=f"{name}.* needs {needed}.*pip install {needed}"):
        fit(IMAGES, backbone=name)


def test_files_ask_for_names_and_numbers_of_closed_lists_only():
    assert may_be_recorded("hf/bert", {"hidden_size": 8, "hidden_act": "gelu", "pooling": "cls"})
    for name, params in [
        ("hf/someone/model", {}),
        ("hf/bert", {"act": "some/where"}),
        ("hf/bert", {"act": {"a": 1}}),
        ("resnet18", {"progress": 1}),
        ("resnet18", {"hidden": (3,)}),
        ("convnet", {"widths": "a"}),
        ("no_such", {}),
    ]:
        assert not may_be_recorded(name, params)
    assert may_be_recorded("resnet18", {"hidden": (3,)}, together=False)
    assert not may_be_recorded("resnet18", {"checkpoint_path": "file.pt"}, together=False)


class Hidden(nn.Module):
    """Stands for a model of transformers: its states are the ids themselves."""

    def forward(self, input_ids=None, pixel_values=None, attention_mask=None):
        if pixel_values is not None:
            return SimpleNamespace(last_hidden_state=pixel_values)
        return SimpleNamespace(last_hidden_state=input_ids, pooler_output=input_ids[:, :1] + 7)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last", "max", "pooler"])
def test_pooling_reads_what_the_mask_leaves(pooling):
    ids = torch.randn(40, 6, 3)
    mask = (torch.rand(40, 6) < 0.5).long()
    mask[torch.arange(40), torch.randint(6, (40,))] = 1
    got = Pooled(Hidden(), pooling)(input_ids=ids, attention_mask=mask)
    choose = {
        "mean": lambda rows: rows.mean(0),
        "cls": lambda rows: rows[0],
        "last": lambda rows: rows[-1],
        "max": lambda rows: rows.amax(0),
    }
    for row, kept, features in zip(ids, mask.bool(), got):
        expected = row[0] + 7 if pooling == "pooler" else choose[pooling](row[kept])
        torch.testing.assert_close(features, expected)


def test_maps_are_pooled_over_their_positions():
    maps = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(Pooled(Hidden(), "mean")(maps), maps.mean((2, 3)))


def test_a_mask_of_another_length_is_refused():
    with pytest.raises(ValueError, match="attention_mask of shape .* does not fit"):
        Pooled(Hidden(), "mean")(input_ids=torch.zeros(2, 3, 1), attention_mask=torch.ones(2, 5))


class Returns(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, signal):
        return self.make(signal)


class Features(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, **parts):
        return self.body(**parts)["last_hidden_state"].mean(1)


def test_a_module_that_returns_several_things_is_shown_its_wrapper():
    states = Returns(lambda x: {"last_hidden_state": x.mT, "other": x})
    with pytest.raises(ValueError, match=r"a dict with .*'other'") as caught:
        fit({"signal": SIGNALS}, backbone=states)
    # What is shown, as it is: it defines the class of above.
    shown = {"torch": torch}
    text = str(caught.value)
    exec(text[text.index("    class") :].replace("\n    ", "\n").strip(), shown)
    wrapped = shown["Features"](states)
    x = torch.from_numpy(SIGNALS)
    torch.testing.assert_close(wrapped(signal=x), Features(states)(signal=x))
    fit({"signal": SIGNALS}, backbone=wrapped)
    with pytest.raises(ValueError, match=r"(?s)a tuple of 2 parts.*\*\*parts\)\[0\]"):
        fit({"signal": SIGNALS}, backbone=Returns(lambda x: (x, x)))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_scripts_are_backbones_and_what_cannot_be_copied_is_told_the_way_out():
    X, y = np.random.default_rng(0).normal(size=(40, 5)), np.arange(40) % 2
    body = nn.Sequential(nn.Linear(5, 8), nn.ReLU())
    plain, script = (
        TopKClassifier(1, backbone=each, max_epochs=2, random_state=0).fit(X, y)
        for each in (body, torch.jit.script(body))
    )
    np.testing.assert_array_equal(script.predict_proba(X), plain.predict_proba(X))
    body.last = body(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"backbone=Sequential cannot be copied.*a callable"):
        TopKClassifier(1, backbone=body, max_epochs=1).fit(X, y)


def test_a_module_that_ends_in_a_classifier_is_noticed(recwarn):
    body = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
    named = nn.Sequential()
    named.add_module("flat", nn.Flatten())
    named.add_module("fc", nn.Linear(192, 3))
    fit(IMAGES, backbone=body)
    fit(IMAGES, backbone=nn.Sequential(nn.Flatten(), nn.Linear(192, 3), nn.ReLU()))
    assert not [w for w in recwarn if "linear layer" in str(w.message)]
    with pytest.warns(UserWarning, match=r"linear layer of 3 outputs.*backbone\.fc away") as told:
        fit(IMAGES, backbone=named)
    assert {warning.filename for warning in told} == {__file__}
    with pytest.warns(UserWarning, match=r"Softmax, which makes probabilities.*last layer away"):
        fit(IMAGES, backbone=nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.Softmax(1)))
    mnasnet = torchvision.models.mnasnet0_5()
    with pytest.warns(UserWarning, match="classifier of ImageNet, a linear layer of 1000"):
        fit(np.repeat(IMAGES, 4, axis=2), backbone=mnasnet)


class TestNormalization:
    def means(self, normalization, X=IMAGES):
        model = fit(X, backbone=nn.Flatten(), normalization=normalization)
        layer = model.net_.module_.normalize
        return layer.mean.flatten().tolist(), layer.std.flatten().tolist()

    def test_a_pair_is_taken_as_it_is(self):
        assert self.means((0.25, 2)) == ([0.25], [2])
        mean, std = self.means(((0.1, 0.2, 0.3), [1, 2, 3]))
        np.testing.assert_allclose([mean, std], [[0.1, 0.2, 0.3], [1, 2, 3]], rtol=1e-6)
        mean, std = self.means("imagenet")
        np.testing.assert_allclose([mean[0], std[2]], [0.485, 0.225], rtol=1e-6)
        mean, _ = self.means(None)
        np.testing.assert_allclose(mean, IMAGES.mean((0, 2, 3)) / 255, rtol=1e-5)

    def test_it_comes_before_that_of_named_weights(self, monkeypatch):
        from torchvision.models import ResNet18_Weights, resnet18

        state = resnet18().state_dict()
        monkeypatch.setattr(ResNet18_Weights, "get_state_dict", lambda *a, **k: state)
        statistics = ChannelStatistics((0.9,) * 3, (0.7,) * 3)
        for asked, mean in ((statistics, 0.485), (((0.2,), (0.3,)), 0.2)):
            network = build_network("resnet18", None, "DEFAULT", (3, 32, 32), 5, "linear", asked)
            assert network.normalize.mean.flatten()[0].item() == pytest.approx(mean)

    @pytest.mark.parametrize(
        "value",
        [
            (0, -1),
            (0, 0),
            (0,),
            3,
            ((0, 1), 1),
            "none",
            ("a", "b"),
            (np.nan, 1),
            (0, np.inf),
            (0, 1e-46),
        ],
    )
    def test_other_values_are_refused(self, value):
        with pytest.raises(ValueError, match="normalization must be None, 'imagenet' or a pair"):
            fit(IMAGES, normalization=value)

    def test_means_are_for_the_channels_of_the_images(self):
        for channels, backbone in ((IMAGES[:, :1], "convnet"), (IMAGES[:, [0, 1, 2, 0]], None)):
            n_channels = channels.shape[1]
            with pytest.raises(ValueError, match=f"3 channels, but the images have {n_channels}"):
                fit(channels, backbone=backbone, normalization="imagenet")
        assert len(self.means("imagenet", IMAGES[:, :1])[0]) == 3

    def test_images_of_another_range_and_tables_are_refused(self):
        with pytest.raises(ValueError, match=r"up to|from 0 to 25\d: divide them by 255"):
            fit(IMAGES.astype(np.float32), normalization="imagenet")
        for X, backbone in ((SIGNALS[:, 0], None), ({"input": SIGNALS}, nn.Flatten())):
            with pytest.raises(ValueError, match="normalization='imagenet' is for images"):
                fit(X, backbone=backbone, normalization="imagenet")


class TestSignals:
    def test_long_ones_are_not_taken_for_images(self):
        with pytest.raises(ValueError, match=r"shape \(2, 40\) may be signals.*\(1, 2, 40\)"):
            fit(np.zeros((12, 2, 40)))
        dataset = torch.utils.data.TensorDataset(torch.zeros(12, 40, 2), torch.arange(12) % 3)
        with pytest.raises(ValueError, match="may be signals"):
            fit(torch.utils.data.Subset(dataset, range(12)))
        fit(np.random.default_rng(0).normal(size=(12, 1, 2, 40)))

    def test_volumes_are_told_their_form(self):
        with pytest.raises(ValueError, match=r"Volumes .* X=\{'volume': X\}"):
            fit(np.zeros((12, 1, 4, 4, 4)))

    def test_a_module_for_signals_is_told_the_name(self):
        body = nn.Sequential(nn.Conv1d(4, 5, 3), nn.AdaptiveAvgPool1d(1), nn.Flatten())
        with pytest.raises(ValueError, match=r"\(n, 4, 9\) are read as grey images.*\"signal\""):
            fit(SIGNALS, backbone=body)
        fit({"input": SIGNALS}, backbone=body)


def test_images_that_were_standardised_are_refused_by_the_statistics_of_imagenet():
    X = rng.uniform(-1, 1, IMAGES.shape).astype(np.float32)
    with pytest.raises(ValueError, match=r"from -0\.\d+ to .*normalization=\(0, 1\)"):
        fit(X, normalization="imagenet")

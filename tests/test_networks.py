"""Backbones, heads and weights: shapes, parameter counts, refusals."""

import time

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from sksetvalued._randomness import part_of_batch
from sksetvalued.networks import (
    MLP,
    ChannelStatistics,
    ColumnStatistics,
    ConvNet,
    CosineHead,
    DenseNet,
    backbone_names,
    build_network,
)
from sksetvalued.networks._random import draw_mask
from sksetvalued.networks._rebuild import rebuild_network


def build(backbone=None, shape=(3, 32, 32), n_classes=5, params=None, weights=None, **kwargs):
    return build_network(backbone, params, weights, shape, n_classes, **kwargs)


def n_parameters(module):
    return sum(p.numel() for p in module.parameters())


def images(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(0, 256, shape, dtype=np.uint8))


def test_densenet40_40_has_the_parameters_of_its_architecture():
    count, width = 3 * 16 * 9, 16
    for block in range(3):
        for _ in range(12):
            count += 2 * width + width * 40 * 9
            width += 40
        if block < 2:
            count += 2 * width + width * width
    count += 2 * width
    assert width == 16 + 3 * 12 * 40
    network = build("densenet40_40", n_classes=100)
    assert n_parameters(network.backbone) == count
    assert n_parameters(network) == count + 100 * width + 100


def test_densenet40_40_has_forty_layers_on_the_longest_path():
    layers = [m for m in build("densenet40_40").modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == 40


def test_a_tuple_gives_the_widths_of_an_mlp():
    network = build((64, 32), shape=(20,))
    assert n_parameters(network) == (20 * 64 + 64) + (64 * 32 + 32) + (32 * 5 + 5)


def test_an_empty_tuple_gives_a_linear_model():
    assert n_parameters(build((), shape=(20,))) == 20 * 5 + 5


@pytest.mark.parametrize("shape", [(20,), (1, 28, 28), (3, 48, 48), (1, 5, 3)])
def test_the_default_backbone_takes_vectors_and_images(shape):
    network = build(shape=shape)
    assert network(torch.zeros(4, *shape)).shape == (4, 5)
    assert n_parameters(network.backbone) > 0


@pytest.mark.parametrize("backbone", [None, "mlp", (16,)])
def test_small_backbones_train_on_a_batch_of_one_sample(backbone):
    network = build(backbone, shape=(1, 8, 8)).train()
    network(images(1, 1, 8, 8)).sum().backward()
    assert all(p.grad is not None for p in network.parameters())


@pytest.mark.slow
def test_convnet_passes_nearest_neighbours_on_real_drawings(shared_data):
    """20 characters drawn by 15 people each, tested on 5 others, in 16 epochs."""
    pack = np.load(shared_data / "omniglot_small.npz")
    keep = pack["y"] < 20
    x, y = torch.from_numpy(pack["images"][keep]), torch.from_numpy(pack["y"][keep].astype(int))
    test = torch.from_numpy(pack["drawer"][keep] > 15)
    flat, labels, held = x.flatten(1).numpy() / 255, y.numpy(), test.numpy()
    peer = KNeighborsClassifier(1).fit(flat[~held], labels[~held])
    network = trained(x[~test, None], y[~test], n_epochs=16)
    with torch.no_grad():
        accuracy = (network.eval()(x[test, None]).argmax(1) == y[test]).float().mean()
    assert accuracy > peer.score(flat[held], labels[held]) + 0.1


def trained(x, y, n_epochs):
    torch.manual_seed(0)
    network = build(shape=tuple(x.shape[1:]), n_classes=len(y.unique()))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(n_epochs):
        for batch in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
            optimizer.step()
    return network


FAMILIES = {
    "resnet18": 512,
    "densenet121": 1024,
    "mobilenet_v3_small": 1024,
    "efficientnet_b0": 1280,
    "vit_b_32": 768,
    "swin_t": 768,
    "squeezenet1_1": 512,
    "shufflenet_v2_x0_5": 1024,
    "regnet_x_400mf": 400,
    "mnasnet0_5": 1280,
    "convnext_tiny": 768,
    "googlenet": 1024,
}
#: Large, and of kinds of which others are in the list.
SLOW = ("vit_b_32", "convnext_tiny", "densenet121")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in FAMILIES],
)
def test_the_classifier_of_torchvision_models_is_replaced(name):
    network = build(name, shape=(3, 64, 64))
    assert network.head.in_features == FAMILIES[name]
    output = network.train()(images(2, 3, 64, 64))
    assert output.shape == (2, 5)
    output.sum().backward()
    assert all(p.grad is not None for p in network.parameters())


def test_auxiliary_classifiers_of_inception_are_dropped():
    network = build("inception_v3", shape=(3, 96, 96)).train()
    assert network(images(2, 3, 96, 96)).shape == (2, 5)


def test_grey_images_are_repeated_for_torchvision():
    torch.manual_seed(0)
    network = build("resnet18", shape=(1, 40, 40)).eval()
    x = images(2, 1, 40, 40)
    torch.testing.assert_close(network(x), network(x.expand(-1, 3, -1, -1)))


def test_a_module_is_copied_and_never_changed():
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 7), nn.BatchNorm1d(7))
    before = {k: v.clone() for k, v in module.state_dict().items()}
    network = build(module, shape=(3, 2, 2))
    network.train()(images(4, 3, 2, 2))
    with torch.no_grad():
        network.backbone[1].weight.zero_()
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())


def test_building_leaves_the_mode_and_the_buffers_of_a_module():
    module = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12), nn.Dropout()).train()
    module[2].eval()
    body = build(module, shape=(3, 2, 2)).backbone
    assert body[1].training
    assert not body[2].training
    assert body[1].num_batches_tracked == 0


def test_a_callable_receives_the_shape_of_a_sample_and_its_arguments():
    def builder(input_shape, width):
        return nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(input_shape).numel(), width))

    network = build(builder, shape=(3, 4, 5), params={"width": 9})
    assert network.head.in_features == 9


def test_cosine_head_gives_cosines():
    torch.manual_seed(0)
    head = CosineHead(6, 4).double()
    features = torch.randn(10, 6, dtype=torch.float64)
    expected = torch.cosine_similarity(features[:, None], head.weight[None], dim=2)
    torch.testing.assert_close(head(features), expected)
    assert head(1e6 * head.weight).abs().max() <= 1


def test_cosine_head_has_finite_gradients_at_zero_features():
    head = CosineHead(6, 4)
    features = torch.zeros(1, 6, requires_grad=True)
    head(features).sum().backward()
    assert torch.isfinite(features.grad).all()
    assert torch.equal(head(features), torch.zeros(1, 4))


def test_two_head_returns_scores_of_separate_layers():
    network = build((8,), shape=(3,), head="two_head")
    scores, proposal_scores = network(torch.randn(6, 3))
    scores.sum().backward()
    assert network.head.proposal_scores.weight.grad is None
    assert scores.shape == proposal_scores.shape == (6, 5)


def test_bytes_are_normalised_inside_the_network():
    statistics = ChannelStatistics((0.5, 0.4, 0.3), (0.2, 0.1, 0.3))
    network = build(nn.Flatten(), shape=(3, 2, 2), normalization=statistics)
    x = images(4, 3, 2, 2)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in statistics[:2])
    torch.testing.assert_close(network.normalize(x), (x.double().div(255).float() - mean) / std)


class TestWeights:
    def test_a_file_gives_the_backbone_its_values(self, tmp_path):
        torch.manual_seed(0)
        source = build("resnet18").eval()
        torch.save(source.backbone.state_dict(), tmp_path / "w.pt")
        save_file(source.state_dict(), tmp_path / "w.safetensors")
        for file in ("w.pt", "w.safetensors"):
            loaded = build("resnet18", weights=tmp_path / file).eval()
            x = images(2, 3, 32, 32)
            assert torch.equal(loaded.backbone(x.float()), source.backbone(x.float()))

    @pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"epoch": 3, "model": s}])
    @pytest.mark.parametrize("prefix", ["", "module."])
    def test_a_published_file_loads_without_its_classifier(self, tmp_path, wrap, prefix):
        from torchvision.models import resnet18

        source = resnet18(num_classes=11).state_dict()
        torch.save(wrap({prefix + k: v for k, v in source.items()}), tmp_path / "w.pt")
        body = build("resnet18", weights=str(tmp_path / "w.pt")).backbone
        assert all(torch.equal(v, source[k]) for k, v in body.state_dict().items())

    def test_a_mismatch_lists_the_keys(self, tmp_path):
        torch.save({"0.weight": torch.zeros(64, 20), "extra": torch.zeros(1)}, tmp_path / "w.pt")
        with pytest.raises(ValueError, match=r"missing: 0.bias; unexpected: extra"):
            build((64,), shape=(20,), weights=tmp_path / "w.pt")

    def test_a_mismatch_of_shapes_says_which(self, tmp_path):
        torch.save(build((64,), shape=(21,)).backbone.state_dict(), tmp_path / "w.pt")
        with pytest.raises(ValueError, match=r"0.weight \(64, 21\) instead of \(64, 20\)"):
            build((64,), shape=(20,), weights=tmp_path / "w.pt")

    def test_a_file_that_would_run_code_is_refused(self, tmp_path):
        torch.save(nn.Linear(2, 2), tmp_path / "w.pt")
        with pytest.raises(ValueError, match="without running code"):
            build((64,), shape=(20,), weights=tmp_path / "w.pt")

    @pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
    def test_a_truncated_file_is_refused(self, tmp_path, name):
        state = build((64,), shape=(20,)).backbone.state_dict()
        (save_file if name.endswith("safetensors") else torch.save)(state, tmp_path / name)
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(ValueError, match="weights="):
            build((64,), shape=(20,), weights=tmp_path / name)

    def test_names_that_do_not_exist_are_listed(self):
        with pytest.raises(ValueError, match="IMAGENET1K_V1"):
            build("resnet18", weights="IMAGENET22K")
        with pytest.raises(ValueError, match="path of a state dict"):
            build("convnet", weights="DEFAULT")
        with pytest.raises(TypeError, match="weights"):
            build("convnet", weights=5)

    @pytest.fixture
    def cached(self, tmp_path, monkeypatch):
        """A folder where torchvision finds the file of resnet18 without a network."""
        from torchvision.models import ResNet18_Weights, resnet18

        monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
        monkeypatch.setattr(ResNet18_Weights, "get_state_dict", lambda *a, **k: state)
        state = resnet18().state_dict()
        return state

    def test_named_weights_bring_their_statistics(self, cached):
        statistics = ChannelStatistics((0.9,) * 3, (0.7,) * 3)
        for name in ("DEFAULT", "IMAGENET1K_V1", "ResNet18_Weights.IMAGENET1K_V1"):
            network = build("resnet18", weights=name, normalization=statistics)
            assert torch.equal(network.backbone.conv1.weight, cached["conv1.weight"])
            expected = torch.tensor([0.485, 0.456, 0.406])
            torch.testing.assert_close(network.normalize.mean.flatten(), expected)

    def test_images_that_were_standardised_before_stay_as_they_are(self, cached):
        statistics = ChannelStatistics((0.0,) * 3, (1.0,) * 3, low=-2.1, high=2.6)
        network = build("resnet18", weights="DEFAULT", normalization=statistics)
        x = torch.randn(2, 3, 32, 32)
        assert torch.equal(network.normalize(x), x)

    def test_floats_up_to_255_are_refused_with_named_weights(self, cached):
        statistics = ChannelStatistics((100.0,) * 3, (50.0,) * 3, low=0, high=255)
        with pytest.raises(ValueError, match="divide them by 255"):
            build("resnet18", weights="DEFAULT", normalization=statistics)

    def test_a_download_without_a_network_says_what_to_do(self, monkeypatch):
        from urllib.error import URLError

        from torchvision.models import ResNet18_Weights

        def no_network(*args, **kwargs):
            raise URLError("no route")

        monkeypatch.setattr(ResNet18_Weights, "get_state_dict", no_network)
        with pytest.raises(OSError, match=r"fetch https://.*resnet18.*pass the path"):
            build("resnet18", weights="DEFAULT")


class TestRefusals:
    def test_unknown_backbones_are_told_the_close_ones(self):
        with pytest.raises(ValueError, match=r"Did you mean .*'resnet50'.*Known names: mlp"):
            build("resnet5O")

    @pytest.mark.parametrize("backbone", [3, 2.5, {"a": 1}])
    def test_backbones_of_a_wrong_type(self, backbone):
        with pytest.raises(TypeError, match="backbone must be"):
            build(backbone)

    def test_a_callable_must_return_a_module(self):
        with pytest.raises(TypeError, match=r"must return an nn\.Module"):
            build(lambda shape: 3)

    @pytest.mark.parametrize(
        ("backbone", "params"), [("mlp", {"widht": 3}), ("convnet", {"hidden": (3,)})]
    )
    def test_unknown_arguments_are_named(self, backbone, params):
        with pytest.raises(ValueError, match=r"unknown keys \['(widht|hidden)'\]"):
            build(backbone, shape=(3, 8, 8), params=params)

    def test_inputs_stand_beside_the_last_hidden_layer(self):
        x = torch.rand(4, 3, 2)
        plain = build("mlp", shape=(3, 2), params={"hidden": (5,)})
        skipping = build("mlp", shape=(3, 2), params={"hidden": (5,), "skip": True})
        skipping.backbone.load_state_dict(plain.backbone.state_dict())
        expected = torch.cat([plain.backbone(x), x.flatten(1)], dim=1)
        assert torch.equal(skipping.backbone(x), expected)

    def test_widths_are_given_once(self):
        with pytest.raises(ValueError, match=r"backbone=\(8,\) and .*'hidden': \(3,\).* both"):
            build((8,), params={"hidden": (3,)})

    def test_a_module_takes_no_arguments(self):
        with pytest.raises(ValueError, match="callable"):
            build(nn.Flatten(), params={"a": 1})

    @pytest.mark.parametrize("backbone", ["convnet", "densenet40_40", "resnet18"])
    def test_image_backbones_refuse_tables(self, backbone):
        with pytest.raises(ValueError, match="images of shape"):
            build(backbone, shape=(20,))

    @pytest.mark.parametrize(
        "backbone",
        [
            "squeezenet1_1",
            *(pytest.param(b, marks=pytest.mark.slow) for b in ("densenet121", "alexnet")),
        ],
    )
    def test_too_small_images_are_told_a_size_that_works(self, backbone):
        with pytest.raises(ValueError, match="at least") as caught:
            build(backbone, shape=(3, 10, 10))
        size = int(str(caught.value).split("at least ")[1].split()[0])
        assert build(backbone, shape=(3, size, size)).head.out_features == 5
        with pytest.raises(ValueError, match="at least"):
            build(backbone, shape=(3, size - 1, size - 1))

    def test_transformers_name_the_size_of_their_patches(self):
        with pytest.raises(ValueError, match="multiple of 16"):
            build("vit_b_16", shape=(3, 28, 28))

    def test_transformers_say_which_sizes_they_take(self):
        with pytest.raises(ValueError, match=r"maxvit_t.*30 x 30.*partition"):
            build("maxvit_t", shape=(3, 30, 30))
        with pytest.raises(ValueError, match=r"224.*Resize the images"):
            build("vit_b_32", shape=(3, 64, 64), params={"image_size": 224})

    def test_unknown_arguments_of_torchvision_models(self):
        with pytest.raises(ValueError, match=r"backbone_params=\{'widht': 3\}"):
            build("resnet18", params={"widht": 3})

    def test_torchvision_refuses_other_numbers_of_channels(self):
        with pytest.raises(ValueError, match="3 channels"):
            build("resnet18", shape=(4, 32, 32))

    def test_features_must_be_vectors(self):
        with pytest.raises(ValueError, match="Flatten"):
            build(nn.Conv2d(3, 4, 3))

    def test_features_of_each_sample(self):
        class OverSamples(nn.Linear):
            def forward(self, x):
                return super().forward(x).mean(0, keepdim=True)

        with pytest.raises(ValueError, match=r"got \(1, 8\) for n_samples=2"):
            build(OverSamples(6, 8), shape=(6,))

        class Squeezing(nn.Linear):
            def forward(self, x):
                return super().forward(x).squeeze()

        with pytest.raises(ValueError, match=r"got \(8,\) for n_samples=1"):
            build(Squeezing(6, 8), shape=(6,))

    def test_weights_in_half_precision_are_tried_under_autocast(self):
        halved = nn.Sequential(nn.Flatten(), nn.Linear(108, 8).bfloat16())
        build(halved, shape=(3, 6, 6))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.float8_e5m2])
    def test_weights_of_another_type_are_named(self, dtype):
        """Not the size of the images, nor the names of the parts."""
        norm = nn.Sequential(nn.Conv2d(3, 8, 6), nn.Flatten(), nn.LayerNorm(8).to(dtype))
        whole = nn.Sequential(nn.Conv2d(3, 8, 6), nn.BatchNorm2d(8), nn.Flatten()).to(dtype)

        class Named(nn.Linear):
            def forward(self, x):
                return nn.functional.layer_norm(super().forward(x), (8,), self.bias)

        named = {"x": ((6,), "float32")}
        for body, form in ((norm, (3, 6, 6)), (whole, (3, 6, 6)), (Named(6, 8).to(dtype), named)):
            with pytest.raises(ValueError, match=rf"{dtype}, .* as by backbone\.float\(\)\.$"):
                build(body, shape=form)

    def test_a_backbone_without_values(self):
        with pytest.raises(ValueError, match=r"backbone=Linear is on the meta device"):
            build(nn.Linear(6, 8, device="meta"), shape=(6,))

    def test_features_in_double_precision(self):
        with pytest.raises(ValueError, match=r"backbone=Linear computes in double.*float\(\)"):
            build(nn.Linear(6, 8).double(), shape=(6,))

    def test_a_module_that_returns_several_things_in_training(self):
        class Auxiliary(nn.Linear):
            def forward(self, x):
                return (x, x) if self.training else x

        network = build(Auxiliary(6, 6), shape=(6,))
        with pytest.raises(ValueError, match="Auxiliary returns .* a tuple in training"):
            network.train()(torch.zeros(2, 6))

    def test_a_module_for_other_images_says_why(self):
        with pytest.raises(ValueError, match=r"cannot take samples of shape \(3, 32, 32\)"):
            build(nn.Conv2d(1, 4, 3))

    def test_unknown_heads(self):
        with pytest.raises(ValueError, match="head"):
            build(head="quadratic")


def test_every_classification_model_of_torchvision_is_known():
    names = backbone_names()
    assert {*FAMILIES, "resnet50", "vit_b_16", "vgg16", "alexnet", "inception_v3"} <= set(names)
    assert not {"fcn_resnet50", "fasterrcnn_resnet50_fpn", "raft_large"} & set(names)


# -- networks rebuilt around their weights -----------------------------------------------------

SLOW_FAMILIES = [
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s"),
    *("googlenet", "inception_v3", "maxvit_t", "mobilenet_v2", "mobilenet_v3_small"),
    *("regnet_y_400mf", "resnet50", "resnext50_32x4d", "swin_t", "swin_v2_t", "vgg11_bn"),
    *("vit_b_16", "wide_resnet50_2"),
]
SMALL = ["mnasnet0_5", "shufflenet_v2_x0_5", "squeezenet1_1", "regnet_x_400mf"]


def rebuilt(backbone, network, shape, params=None, head="linear", n_classes=5):
    state, generator = network.state_dict(), torch.Generator()
    return rebuild_network(backbone, params, shape, n_classes, head, state, generator)


@pytest.mark.parametrize(
    "backbone", SMALL + [pytest.param(name, marks=pytest.mark.slow) for name in SLOW_FAMILIES]
)
def test_models_of_torchvision_are_rebuilt_around_their_weights(backbone):
    shape = (3, 299, 299) if backbone == "inception_v3" else (3, 224, 224)
    network = build(backbone, shape).eval()
    again = rebuilt(backbone, network, shape).eval()
    assert again.head.weight.data_ptr() == network.head.weight.data_ptr()
    x = images(1, *shape)
    with torch.no_grad():
        torch.testing.assert_close(again(x), network(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("backbone", "shape", "params"),
    [
        (None, (7,), None),
        ((5, 4), (7,), None),
        ((), (7,), None),
        ("mlp", (3, 8, 8), {"hidden": (6,), "dropout": 0.5}),
        (None, (1, 9, 9), {"widths": (4, 8)}),
        ("densenet40_40", (3, 8, 8), {"depth": 10, "growth": 4}),
    ],
)
@pytest.mark.parametrize("head", ["linear", "cosine", "two_head"])
def test_built_in_networks_are_rebuilt_around_their_weights(backbone, shape, params, head):
    before = torch.get_rng_state()
    network = build(backbone, shape, params=params, head=head, generator=torch.Generator())
    again = rebuilt(backbone, network, shape, params, head)
    assert str(again) == str(network)
    assert torch.equal(before, torch.get_rng_state())
    x = images(2, *shape) if len(shape) > 1 else torch.ones(2, *shape)
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(x), network.eval()(x), rtol=0, atol=0)


@pytest.mark.slow
def test_no_model_takes_long_to_describe():
    """Without its weights; drawing them without memory takes half a minute for some."""
    head = {"head.weight": torch.zeros(5, 1), "head.bias": torch.zeros(5)}
    for name in backbone_names():
        shape, start = (3, 224, 224), time.perf_counter()
        with pytest.raises(ValueError, match="its network (lacks|has)"):
            rebuild_network(name, None, shape, 5, "linear", head, torch.Generator())
        assert time.perf_counter() - start < 5, name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("head.bias"), r"network lacks the tensors \['head.bias'\]$"),
        (
            lambda s: s.update(more=torch.zeros(1)),
            r"network does not know the tensors \['more'\]$",
        ),
        (lambda s: s.update({"head.bias": torch.zeros(6)}), r"shape \(6,\)"),
        (lambda s: s.update({"head.bias": torch.zeros(5, dtype=torch.int64)}), "torch.int64"),
    ],
)
def test_weights_of_another_network_are_named(change, message):
    state = dict(build((8,), (7,)).state_dict())
    change(state)
    with pytest.raises(ValueError, match=message):
        rebuild_network((8,), None, (7,), 5, "linear", state, torch.Generator())


@pytest.mark.parametrize(
    "columns",
    [
        torch.tensor([1, 1, 3]),
        torch.tensor([3, 1, 2]),
        torch.tensor([-1, 1, 3]),
        torch.tensor([1, 3, 7]),
        torch.tensor([1.0, 3.0, 4.0]),
        torch.tensor([[1, 3, 4]]),
        torch.tensor([], dtype=torch.int64),
    ],
)
def test_columns_that_a_table_does_not_have_are_refused(columns):
    one = torch.ones(3, dtype=torch.float64)
    network = build((8,), (7,), normalization=ColumnStatistics(one, one, columns=torch.arange(3)))
    state = dict(network.state_dict())
    assert str(rebuilt((8,), network, (7,))) == str(network)
    state["normalize.columns"] = columns
    with pytest.raises(ValueError, match="reads other columns than its 7 features"):
        rebuild_network((8,), None, (7,), 5, "linear", state, torch.Generator())


def test_cosines_of_zero_features_have_moderate_gradients():
    features = torch.zeros(2, 6, requires_grad=True)
    cosines = CosineHead(6, 4, torch.Generator().manual_seed(0))(features)
    cosines.sum().backward()
    assert not cosines.any()
    assert features.grad.abs().max() < 4


@pytest.mark.parametrize("integer", [np.uint8, np.int16, int])
def test_widths_of_any_integer_type_add_up(integer):
    x = torch.zeros(2, 1, 8, 8)
    for network in (
        MLP((1, 8, 8), (integer(120), integer(200)), skip=True),
        ConvNet((1, 8, 8), (integer(128),)),
        DenseNet((1, 8, 8), integer(10), integer(100), integer(120)),
    ):
        assert network(x).shape == (2, network.n_features)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: MLP((6,), hidden=8), "^hidden must be a sequence"),
        (lambda: MLP((6,), hidden=(8.5,)), "^a width in hidden must be an integer"),
        (lambda: MLP((6,), hidden=(0,)), "^a width in hidden must be at least 1"),
        (lambda: MLP((6,), iter((8, 4))), "^hidden must be a sequence"),
        (lambda: ConvNet((1, 8, 8), 8), "^widths must be a sequence"),
        (lambda: ConvNet((1, 8, 8), (4.5,)), "^a width in widths must be an integer"),
        (lambda: ConvNet((1, 8, 8), ()), "^widths must hold"),
        (lambda: ConvNet((1, 8, 8), np.array([4, 0])), "^a width in widths must be at least 1"),
        (lambda: DenseNet((3, 8, 8), depth=7, growth=0), "^growth must be at least 1"),
        (lambda: DenseNet((1, 8, 8), 10.0), "^depth must be an integer"),
        (lambda: DenseNet((1, 8, 8), 9), "^depth must be 4 more"),
        (lambda: DenseNet((1, 8, 8), 10, 4, 0), "^stem_width must be at least 1"),
    ],
)
def test_sizes_of_layers_are_positive_integers(build, said):
    with pytest.raises((TypeError, ValueError), match=said):
        build()


@pytest.mark.parametrize(
    ("cls", "params"), [(ConvNet, {"widths": (4,)}), (DenseNet, {"depth": 7, "growth": 2})]
)
def test_dropout_of_the_backbones_of_images_acts_in_training_alone(cls, params):
    x = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for share in (0.0, 0.5):
        body = cls((1, 8, 8), **params, dropout=share, generator=torch.Generator().manual_seed(0))
        assert torch.equal(body(x), body(x)) == (share == 0)
        body.eval()
        assert torch.equal(body(x), body(x))


def test_the_convolutions_of_densenet_start_as_in_the_paper():
    body = DenseNet((3, 8, 8), depth=7, growth=40, generator=torch.Generator().manual_seed(0))
    for layer in body.modules():
        if isinstance(layer, nn.Conv2d):
            expected = (2 / layer.weight[0].numel()) ** 0.5
            assert layer.weight.std().item() == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_file_of_a_whole_network_gives_its_backbone(prefix, tmp_path):
    source = build((64,), shape=(20,))
    torch.save({prefix + k: v for k, v in source.state_dict().items()}, tmp_path / "w.pt")
    loaded = build((64,), shape=(20,), weights=tmp_path / "w.pt").backbone.state_dict()
    assert all(torch.equal(v, loaded[k]) for k, v in source.backbone.state_dict().items())


def test_features_that_are_no_floats_are_refused():
    class Rounds(nn.Module):
        def forward(self, x):
            return x.long()

    with pytest.raises(ValueError, match="at least one feature, of floats, got 7 of torch.int64"):
        build(Rounds(), (7,))


def test_a_part_of_a_batch_drops_what_the_whole_does_in_its_rows_and_views():
    whole = draw_mask(torch.ones(10, 7), 0.5, torch.Generator().manual_seed(0))
    for rows in (slice(0, 3), slice(3, 5)):  # of five samples with two rows each
        token = part_of_batch.set((rows, 5))
        try:
            n_rows = 2 * (rows.stop - rows.start)
            own = draw_mask(torch.ones(n_rows, 7), 0.5, torch.Generator().manual_seed(0))
        finally:
            part_of_batch.reset(token)
        assert torch.equal(own, whole[2 * rows.start : 2 * rows.stop])

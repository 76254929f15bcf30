"""Backbones by the names of timm and Hugging Face, and files of what they became."""

import numpy as np
import pytest
import torch

from sksetvalued import AverageKClassifier, TopKClassifier, load, save

pytestmark = pytest.mark.integration

rng = np.random.default_rng(0)
N = 60
LENGTHS = rng.integers(3, 9, (N, 1))
TOKENS = {
    "input_ids": rng.integers(1, 32, (N, 8)),
    "attention_mask": (np.arange(8) < LENGTHS).astype(int),
}
IMAGES = rng.integers(0, 256, (24, 3, 32, 32), dtype=np.uint8)
Y = rng.integers(3, size=N)
WIDTHS = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}
TEXT = {**WIDTHS, "vocab_size": 32, "max_position_embeddings": 24}
VISION = {**WIDTHS, "image_size": 32, "patch_size": 8}
MAPS = {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}
FAMILIES = {
    **dict.fromkeys(
        ("bert", "roberta", "xlm-roberta", "camembert", "electra", "mpnet", "deberta-v2"), TEXT
    ),
    "albert": {**TEXT, "embedding_size": 8},
    "distilbert": {"vocab_size": 32, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16},
    **dict.fromkeys(("beit", "deit", "vit"), VISION),
    "dinov2": {k: v for k, v in VISION.items() if k != "intermediate_size"},
    **dict.fromkeys(("convnext", "convnextv2"), MAPS),
    "resnet": {**MAPS, "embedding_size": 8},
    "swin": {
        **{"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4},
        **{"image_size": 32, "patch_size": 4},
    },
}


@pytest.fixture(autouse=True)
def libraries():
    for name in ("timm", "transformers"):
        pytest.importorskip(name, reason="extra 'integration' is missing")


def fit(X, backbone, params=None, cls=TopKClassifier, **more):
    more = {"max_epochs": 1, "lr": 1e-3, "random_state": 0} | more
    n = N if isinstance(X, dict) else len(X)
    return cls(2, backbone=backbone, backbone_params=params, **more).fit(X, Y[:n])


def check_file(model, X, path):
    before = model.decision_function(X)
    save(model, path)
    again = load(path)
    np.testing.assert_array_equal(again.decision_function(X), before)
    return again


@pytest.mark.parametrize("family", FAMILIES)
def test_families_of_hugging_face_fit_and_come_back(family, tmp_path, monkeypatch):
    X = TOKENS if "vocab_size" in FAMILIES[family] else IMAGES
    model = fit(X, f"hf/{family}", FAMILIES[family])
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    again = check_file(model, X, tmp_path / "m")
    assert again.get_params()["backbone"] == f"hf/{family}"


def test_weights_of_a_folder_are_those_that_were_saved(tmp_path):
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    body = BertModel(BertConfig(**TEXT))
    body.save_pretrained(tmp_path / "bert")
    params = {"pooling": "pooler"}
    model = fit(TOKENS, "hf/bert", params, weights=str(tmp_path / "bert"), lr=1e-12)
    assert model.batch_size_ == 32
    kept = model.net_.module_.backbone.body.state_dict()
    for name, value in body.state_dict().items():
        torch.testing.assert_close(kept[name], value, atol=1e-7, rtol=0)
    named = fit(TOKENS, f"hf/{tmp_path / 'bert'}", params, weights="pretrained", lr=1e-12)
    scores = model.decision_function(TOKENS)
    np.testing.assert_array_equal(named.decision_function(TOKENS), scores)
    with pytest.warns(UserWarning, match="weights of the training are not restored"):
        again = check_file(named, TOKENS, tmp_path / "m")
    assert str(tmp_path).encode() not in (tmp_path / "m").read_bytes()
    assert again.get_params()["backbone_params"]["hidden_size"] == 16


def test_padding_changes_no_score():
    model = fit(TOKENS, "hf/bert", {**TEXT, "pooling": "mean"})
    longer = {name: np.pad(part, ((0, 0), (0, 7))) for name, part in TOKENS.items()}
    np.testing.assert_allclose(
        model.decision_function(longer), model.decision_function(TOKENS), atol=1e-5
    )


def test_images_are_scaled_as_in_the_pretraining(tmp_path):
    from transformers import ViTConfig, ViTImageProcessor, ViTModel

    folder = tmp_path / "vit"
    ViTModel(ViTConfig(**VISION)).save_pretrained(folder)
    with pytest.raises(OSError, match=r"preprocessor_config.json.*set normalization"):
        fit(IMAGES, "hf/vit", weights=str(folder))
    ViTImageProcessor(image_mean=[0.1, 0.2, 0.3], image_std=[0.4, 0.5, 0.6]).save_pretrained(
        folder
    )
    model = fit(IMAGES, "hf/vit", weights=str(folder))
    mean = model.net_.module_.normalize.mean.flatten()
    torch.testing.assert_close(mean, torch.tensor([0.1, 0.2, 0.3]))


@pytest.mark.parametrize(
    ("X", "backbone", "params"),
    [
        (IMAGES, "timm/resnet10t", None),
        (IMAGES, "hf/vit", VISION),
        (TOKENS, "hf/bert", TEXT),
        (TOKENS, "a folder", TEXT),
    ],
)
def test_the_default_type_of_torch_changes_nothing(X, backbone, params, tmp_path):
    weights = None
    if backbone == "a folder":
        from transformers import BertConfig, BertModel

        BertModel(BertConfig(**params)).save_pretrained(tmp_path / "bert")
        backbone, weights, params = "hf/bert", str(tmp_path / "bert"), None
    scores = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        torch.set_default_dtype(dtype)
        try:
            model = fit(X, backbone, params, weights=weights)
            scores.append(model.decision_function(X))
            if weights is None:
                check_file(model, X, tmp_path / "m")
        finally:
            torch.set_default_dtype(torch.float32)
    np.testing.assert_array_equal(scores[1:], [scores[0]] * 2)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("resnet10t", {"drop_rate": 0.1}),
        ("test_vit", None),
        ("swin_tiny_patch4_window7_224", None),
    ],
)
def test_models_of_timm_fit_and_come_back(name, params, tmp_path):
    if name.startswith("swin"):
        params = {"img_size": 32}
    model = fit(IMAGES, f"timm/{name}", params, AverageKClassifier)
    check_file(model, IMAGES, tmp_path / "m")


def test_a_file_of_weights_of_timm_brings_its_statistics(tmp_path):
    import timm

    source = timm.create_model("resnet10t", num_classes=7)
    torch.save(source.state_dict(), tmp_path / "w.pt")
    model = fit(IMAGES, "timm/resnet10t.c3_in1k", weights=str(tmp_path / "w.pt"), lr=1e-12)
    kept = model.net_.module_.backbone.state_dict()
    for name, value in dict(source.named_parameters()).items():
        if not name.startswith("fc."):
            torch.testing.assert_close(kept[name], value, atol=1e-7, rtol=0)
    mean = model.net_.module_.normalize.mean.flatten().tolist()
    np.testing.assert_allclose(mean, source.pretrained_cfg["mean"], rtol=1e-6)


@pytest.mark.parametrize("backbone", ["timm/resnet10t", "hf/distilbert-base-uncased"])
def test_without_a_connection_it_says_what_to_do(backbone, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    X = IMAGES if "timm" in backbone else TOKENS
    with pytest.raises(OSError, match=r"on a connected machine.* pass the path"):
        fit(X, backbone, weights="pretrained")


@pytest.mark.parametrize(
    ("backbone", "params", "message"),
    [
        ("hf/bert", {"foo": 1}, r"unknown keys \['foo'\]"),
        ("hf/bert", {"attn_implementation": "a/b"}, "unknown keys"),
        ("hf/bert", {"pooling": "sum"}, "pooling must be one of"),
        ("hf/brt", None, "'hf/bert'.*weights='pretrained'"),
        ("hf/t5", None, "cannot take samples of the parts"),
        ("timm/resnet5O", None, "Did you mean 'timm/resnet50'"),
        ("timm/resnet50.a1_in1k", None, "names weights: set weights='pretrained'"),
        ("timm/resnet50.no_such", None, "weights that timm does not know"),
        ("timm/resnet10t", {"widht": 3}, r"backbone_params=\{'widht': 3\}"),
    ],
)
def test_what_cannot_be_is_named(backbone, params, message):
    with pytest.raises(ValueError, match=message):
        fit(TOKENS if "hf" in backbone else IMAGES, backbone, params)


def test_types_that_no_file_knows_are_refused_with_a_remedy(tmp_path):
    layers = ["full_attention", "sliding_attention"]
    params = {**TEXT, "pad_token_id": 0, "layer_types": layers}
    model = fit(TOKENS, "hf/modernbert", params)
    with pytest.raises(ValueError, match=r"modernbert.*export.*joblib"):
        save(model, tmp_path / "m")


@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": 10**9},
        {"max_position_embeddings": 10**13},
        {"vocab_size": 10**13},
        {"attn_implementation": "someone/kernel"},
    ],
)
def test_a_file_that_asks_for_more_takes_no_memory(change, tmp_path):
    from sksetvalued.networks._rebuild import rebuild_network

    model = fit(TOKENS, "hf/bert", TEXT)
    form, state = model.input_shape_, model.net_.module_.state_dict()
    params = {**TEXT, **change}
    with pytest.raises((ValueError, RuntimeError)):
        rebuild_network("hf/bert", params, form, 3, "linear", state, torch.Generator())


def test_weights_that_are_missing_in_a_folder_are_named(tmp_path):
    from safetensors.torch import load_file, save_file
    from transformers import BertConfig, BertModel

    BertModel(BertConfig(**TEXT)).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    state = load_file(file)
    del state["encoder.layer.1.output.dense.weight"]
    save_file(state, file, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lack \['encoder.layer.1.output.dense.weight'\]"):
        fit(TOKENS, "hf/bert", weights=str(tmp_path))


def test_weights_of_another_model_are_refused(tmp_path):
    from transformers import BertConfig, BertModel

    BertModel(BertConfig(**TEXT)).save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match=r"type 'bert', not .*'hf/roberta': set backbone='hf/bert'"
    ):
        fit(TOKENS, "hf/roberta", weights=str(tmp_path))
    with pytest.raises(ValueError, match=r"other shapes .*'hidden_size': 64"):
        fit(TOKENS, "hf/bert", {"hidden_size": 64}, weights=str(tmp_path))


def test_without_weights_models_of_timm_are_scaled_by_the_data():
    model = fit(IMAGES, "timm/resnet10t")
    mean = model.net_.module_.normalize.mean.flatten()
    expected = (torch.as_tensor(IMAGES).double() / 255).mean((0, 2, 3))
    torch.testing.assert_close(mean.double(), expected, atol=1e-5, rtol=0)


def test_channels_that_images_do_not_have_are_refused():
    for images, asked in ((IMAGES[:, :1], 1), (IMAGES, 4)):
        with pytest.raises(ValueError, match=f"in_chans={asked}, .* 3 channels.* leave in_chans"):
            fit(images, "timm/resnet10t", {"in_chans": asked})
    assert fit(IMAGES[:, :1], "timm/resnet10t", {"in_chans": 3}).n_iter_

"""Models, tokens, tables and samplers of other libraries, as their users have them."""

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.model_selection import GridSearchCV
from skorch.helper import SliceDict
from torch import nn
from torchvision.transforms import v2

from sksetvalued import AverageKClassifier, TopKClassifier, calibrate, predict_set
from sksetvalued.metrics import top_k_scorer

pytestmark = pytest.mark.integration

WORDS = [f"w{i}" for i in range(30)]
rng = np.random.default_rng(0)
N = 160
first = rng.integers(30, size=N)
texts = [" ".join([WORDS[i], *rng.choice(WORDS, rng.integers(2, 7))]) for i in first]
y = np.array(["a", "b", "c", "d"])[first % 4]


def tokenizer():
    tokenizers = pytest.importorskip("tokenizers", reason="extra 'integration' is missing")
    transformers = pytest.importorskip("transformers", reason="extra 'integration' is missing")
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]"
    )


class FirstToken(nn.Module):
    """The state of the first token of a small model that is made from a configuration."""

    def __init__(self):
        super().__init__()
        from transformers import BertConfig, BertModel

        torch.manual_seed(0)
        self.body = BertModel(
            BertConfig(
                vocab_size=32,
                hidden_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=32,
                max_position_embeddings=16,
            ),
            add_pooling_layer=False,
        )

    def forward(self, **parts):
        return self.body(**parts).last_hidden_state[:, 0]


def classifier(cls=TopKClassifier):
    return cls(2, backbone=FirstToken(), max_epochs=8, lr=3e-3, batch_size=32, random_state=0)


def test_what_a_tokenizer_returns_trains_a_model_of_transformers():
    encoded = tokenizer()(texts, padding="max_length", max_length=8, return_tensors="pt")
    clf = classifier(AverageKClassifier).fit(encoded, y)
    assert clf.score(encoded, y) > 0.5
    assert abs(clf.calibrate(encoded).predict_set(encoded).sum() / N - 2) < 0.05
    arrays = {name: part.numpy() for name, part in encoded.items()}
    np.testing.assert_array_equal(clf.decision_function(arrays), clf.decision_function(encoded))


def test_a_search_over_tokens_runs_in_workers():
    encoded = tokenizer()(texts, padding="max_length", max_length=8, return_tensors="np")
    grid = {"epsilon": [0.1, 1.0]}
    search = GridSearchCV(classifier(), grid, cv=2, n_jobs=2, scoring=top_k_scorer(k=2))
    search.fit(SliceDict(**encoded), y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert (predict_set(search, SliceDict(**encoded)).sum(1) == 2).all()


def test_a_dataset_of_hugging_face_gives_the_scores_of_its_columns():
    datasets = pytest.importorskip("datasets", reason="extra 'integration' is missing")
    encoded = tokenizer()(texts, padding="max_length", max_length=8, return_tensors="np")
    table = datasets.Dataset.from_dict({**encoded, "label": list(first % 4)})
    with pytest.raises(ValueError, match="leave 'label' out of X"):
        classifier().fit(table, y)
    columns = table.remove_columns("label")
    clf = classifier().fit(columns, y)
    np.testing.assert_array_equal(
        clf.decision_function(columns), clf.decision_function(dict(encoded))
    )


class Halves(nn.Module):
    """Each value and its half."""

    def forward(self, x):
        return torch.cat([x, x / 2], 1)


def test_a_dataset_of_hugging_face_keeps_its_format():
    datasets = pytest.importorskip("datasets", reason="extra 'integration' is missing")
    x = rng.normal(size=(N, 3)).astype("f4")
    table = datasets.Dataset.from_dict({"x": x, "label": list(y)})

    def scores(X):
        clf = TopKClassifier(1, backbone=Halves(), max_epochs=1, random_state=0).fit(X, y)
        return clf.decision_function(X)

    def negated(batch):
        return {"x": [-torch.tensor(row) for row in batch["x"]]}

    for form in (None, "numpy", "torch", "pandas", "arrow"):
        columns = table.with_format(form, columns=["x"])
        np.testing.assert_array_equal(scores(columns), scores({"x": x}))
    np.testing.assert_array_equal(scores(table.with_transform(negated)), scores({"x": -x}))
    for form in (table, table.with_format("torch", ["x"], output_all_columns=True)):
        with pytest.raises(ValueError, match="leave 'label' out of X"):
            scores(form)
    with pytest.raises(TypeError, match=r"DatasetDict that holds whole Datasets.* X\['train'\]"):
        scores(datasets.DatasetDict(train=table))


def test_a_column_of_images_of_hugging_face_is_the_list_of_them():
    datasets = pytest.importorskip("datasets", reason="extra 'integration' is missing")
    images = [Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)) for _ in y[:8]]
    for mode in ("P", "RGBA"):
        converted = [image.convert(mode) for image in images]
        features = datasets.Features({"image": datasets.Image()})
        column = datasets.Dataset.from_dict({"image": converted}, features=features)["image"]
        for transform in (None, v2.PILToTensor()):
            clf = TopKClassifier(1, transform=transform, max_epochs=1, random_state=0)
            scores = [clf.fit(X, y[:8]).decision_function(X) for X in (converted, column)]
            np.testing.assert_array_equal(*scores)


def test_a_backbone_of_timm():
    timm = pytest.importorskip("timm", reason="extra 'integration' is missing")
    images = rng.integers(0, 256, (48, 3, 32, 32), dtype=np.uint8)
    backbone = timm.create_model("resnet10t", pretrained=False, num_classes=0)
    clf = TopKClassifier(2, backbone=backbone, max_epochs=1, random_state=0).fit(images, y[:48])
    assert (clf.predict_set(images).sum(1) == 2).all()


def test_a_sampler_of_imbalanced_learn_before_the_classifier():
    samplers = pytest.importorskip("imblearn.over_sampling", reason="extra is missing")
    pipelines = pytest.importorskip("imblearn.pipeline", reason="extra is missing")
    X = rng.normal(size=(N, 5)) + first[:, None] % 4
    rare = np.concatenate([np.flatnonzero(first % 4 != 0), np.flatnonzero(first % 4 == 0)[:8]])
    clf = AverageKClassifier(1.5, max_epochs=5, random_state=0)
    pipeline = pipelines.make_pipeline(samplers.RandomOverSampler(random_state=0), clf)
    pipeline.fit(X[rare], y[rare])
    calibrate(pipeline, X)
    assert abs(predict_set(pipeline, X).sum() / N - 1.5) < 0.05

"""Samples of several named parts: mappings of arrays, and Datasets of dicts."""

from collections import UserDict
from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.model_selection import GridSearchCV, cross_val_score
from skorch.helper import SliceDict
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from sksetvalued import (
    AverageKClassifier,
    PlugInClassifier,
    TopKClassifier,
    calibrate,
    cross_val_predict_set,
    export,
    predict_set,
)
from sksetvalued.inputs import NamedTensors
from sksetvalued.inputs._named import NamedInputs
from sksetvalued.metrics import top_k_scorer
from sksetvalued.rules import AverageError, AverageK
from sksetvalued.training._net import _known_tokens

N, LENGTH, WORDS = 240, 6, 40
rng = np.random.default_rng(0)
ids = rng.integers(1, WORDS, size=(N, LENGTH))
mask = (np.arange(LENGTH) < rng.integers(2, LENGTH + 1, size=(N, 1))).astype(np.int32)
y = np.array(["low", "middle", "high", "top"])[(ids * mask).sum(1) * 4 // (mask.sum(1) * WORDS)]
X = {"input_ids": ids, "attention_mask": mask}


class Encoder(nn.Module):
    """Mean of embeddings where the mask is one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(WORDS, 16)

    def forward(self, input_ids, attention_mask):
        weight = attention_mask.unsqueeze(-1).float()
        return (self.embed(input_ids) * weight).sum(1) / weight.sum(1).clamp(min=1)


class Rows(Dataset):
    """Items ({...}, label)."""

    def __len__(self):
        return N

    def __getitem__(self, i):
        return {"input_ids": ids[i], "attention_mask": torch.from_numpy(mask[i])}, y[i]


def classifier(cls=TopKClassifier, **params):
    params = {"max_epochs": 6, "lr": 0.03, "random_state": 0, "batch_size": 32, **params}
    return cls(2, backbone=Encoder(), **params)


@pytest.mark.parametrize("cls", [TopKClassifier, AverageKClassifier])
def test_a_mapping_and_a_dataset_of_dicts_give_identical_scores(cls):
    of_mapping = classifier(cls).fit(X, y)
    of_dataset = classifier(cls).fit(Rows())
    expected = of_mapping.decision_function(X)
    np.testing.assert_array_equal(of_dataset.decision_function(Rows()), expected)
    np.testing.assert_array_equal(of_dataset.decision_function(X), expected)
    np.testing.assert_array_equal(of_mapping.decision_function(UserDict(X)), expected)
    assert of_mapping.score(X, y) > 0.5
    sets = of_mapping.predict_set(X)
    np.testing.assert_array_equal(of_mapping.partial_fit(X, y).predict_set(X).shape, sets.shape)


def test_searches_and_cross_validation_slice_them():
    sliced = SliceDict(**X)
    search = GridSearchCV(classifier(), {"epsilon": [0.1, 1.0]}, cv=2, scoring=top_k_scorer(k=2))
    search.fit(sliced, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert predict_set(search, sliced).shape == (N, 4)
    assert np.isfinite(cross_val_score(classifier(AverageKClassifier), sliced, y, cv=2)).all()


def test_rows_may_be_longer_or_shorter_when_predicted_and_calibrated():
    clf = classifier(AverageKClassifier).fit(X, y)
    longer = {name: np.pad(part, ((0, 0), (0, 3))) for name, part in X.items()}
    np.testing.assert_allclose(clf.decision_function(longer), clf.decision_function(X), atol=1e-5)
    assert abs(clf.calibrate(longer).predict_set(longer).sum() / N - 2) < 0.1


@pytest.mark.parametrize("cv", [2, 0.5, "prefit"])
def test_rules_are_calibrated_on_mappings_as_on_what_slices(cv):
    first = classifier()
    first = first.fit(X, y) if cv == "prefit" else first
    rule = AverageK(2) if cv == 2 else AverageError(0.2)
    found, expected = (
        PlugInClassifier(first, rule, cv=cv).fit(data, y).rule_.threshold_
        for data in (UserDict(X), SliceDict(**X))
    )
    assert found == expected
    model = PlugInClassifier(first, rule, cv=cv).fit(X, y).calibrate(X, y)
    whole = model.rule_.threshold_
    batches = ({name: part[rows] for name, part in X.items()} for rows in (slice(9), slice(9, N)))
    # Products of few rows may be rounded in another way.
    found = calibrate(model, batches, y).rule_.threshold_
    assert found == pytest.approx(whole, rel=1e-6)
    removed = np.arange(N) % 3 > 0
    model.calibrate(X, y, sample_weight=removed)
    kept = {name: part[removed] for name, part in X.items()}
    assert model.rule_.threshold_ == model.calibrate(kept, y[removed]).rule_.threshold_


def test_parts_of_mappings_are_what_the_classifier_takes_and_names():
    frames = {"input_ids": pd.DataFrame(ids), "attention_mask": pd.DataFrame(mask)}
    found, expected = (
        PlugInClassifier(classifier(), AverageK(2), cv=2).fit(data, y).rule_.threshold_
        for data in (frames, X)
    )
    assert found == expected
    plug_in = PlugInClassifier(classifier(), AverageK(2), cv=2)
    folds = [cross_val_predict_set(classifier(), data, y, cv=2) for data in (X, SliceDict(**X))]
    np.testing.assert_array_equal(*folds)
    named = {**X, "attention_mask": frames["attention_mask"].add_prefix("place")}
    for bad, message in (
        ({"input_ids": 1.0}, "is one number"),
        ({0: ids}, "keys of X must be"),
        (named, r"names of whose columns.*X\['attention_mask'\]\.to_numpy"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            plug_in.fit(bad, y)


class Placed(Encoder):
    """Embeddings times weights of the places, which are made for the longest row so far."""

    places = torch.zeros(0)

    def forward(self, input_ids, attention_mask):
        here = self.places.device == input_ids.device
        if not here or len(self.places) < input_ids.shape[1]:
            self.places = torch.arange(1.0, input_ids.shape[1] + 1, device=input_ids.device)
        return (self.embed(input_ids) * self.places[: input_ids.shape[1], None]).mean(1)


def test_what_a_module_keeps_of_a_prediction_may_be_trained_with():
    clf = classifier(max_epochs=1).set_params(backbone=Placed()).fit(X, y)
    clf.predict({name: np.tile(part, 2) for name, part in X.items()})
    clf.partial_fit(X, y)
    assert len(clf.net_.module_.backbone.places) == 2 * LENGTH


def test_gradients_of_embeddings_may_be_sparse():
    def fit(sparse, **params):
        body = Encoder()
        body.embed.sparse = sparse
        return classifier(**params).set_params(backbone=body).fit(X, y)

    fits = (fit(sparse, optimizer="sgd", lr=0.3) for sparse in (False, True))
    # Each of many gradients that are added to a weight rounds it; a rate that is larger by one in
    # a thousand moves the scores by fifty times as much as is allowed.
    np.testing.assert_allclose(*(clf.decision_function(X) for clf in fits), atol=1e-4)
    for optimizer in ("adamw", torch.optim.SparseAdam):  # the second takes no dense ones
        with pytest.raises(ValueError, match=r"optimizer=\w+ cannot make an up.*sparse=False"):
            fit(True, optimizer=optimizer)


class Exact(nn.Module):
    """Tell an integer that single precision cannot hold from its neighbour."""

    def forward(self, number):
        return torch.stack([number % 2, number // 2**24], 1).float()


def test_batches_are_calibrated_on_like_the_whole():
    clf = classifier(AverageKClassifier, max_epochs=1).fit(X, y)
    weight, bounds = np.arange(1.0, N + 1), (0, 50, 51, N)
    for params in ({}, {"n_samples": N}, {"sample_weight": weight, "n_samples": N}):
        whole = clf.calibrate(X, sample_weight=params.get("sample_weight")).threshold_
        batches = ({k: v[i:j] for k, v in X.items()} for i, j in pairwise(bounds))
        clf.calibrate({name: part[:9] for name, part in X.items()})
        assert calibrate(clf, batches, **params).threshold_ == whole


class Recurrent(nn.Module):
    """The last state of an LSTM over as many words as there are, of those that a mask keeps."""

    def __init__(self, hidden):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(WORDS, 8), nn.LSTM(8, 8, batch_first=True)
        self.hidden = hidden

    def forward(self, input_ids, lengths, mask):
        if (mask == self.hidden).all(1).any():
            raise ValueError("a sample is hidden")
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embed(input_ids), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        return self.lstm(packed)[1][0][-1]


def test_lengths_may_have_to_be_positive_and_masks_to_leave_something(tmp_path):
    parts = {"input_ids": ids, "lengths": mask.sum(1), "mask": mask}
    clf = TopKClassifier(2, backbone=Recurrent(hidden=0), max_epochs=1).fit(parts, y)
    assert clf.predict_set(parts).shape == (N, 4)
    with pytest.raises(Exception, match=".") as caught:  # of torch, which may be any
        export(clf, tmp_path / "clf.pt2")
    assert "backbone=Recurrent. It cannot trace packed" in caught.value.__notes__[0]
    with pytest.raises(ValueError, match="a sample is hidden.*zeros and, if that fails, .*ones"):
        TopKClassifier(2, backbone=Recurrent(hidden=1), max_epochs=1).fit(parts, y)


def test_integers_stay_integers():
    number = 2**24 + np.arange(200)
    clf = TopKClassifier(1, backbone=Exact(), lr=0.1, max_epochs=20, random_state=0)
    assert clf.fit({"number": number}, number % 2).score({"number": number}, number % 2) == 1


def test_integers_of_any_type_and_floats_that_single_precision_has_are_what_they_are():
    largest = np.finfo(np.float32).max
    parts = {"hash": np.array([2**63 - 1], np.uint64), "float": np.array([-largest], np.float64)}
    batch = NamedInputs(parts).take(torch.tensor([0]))
    assert [part.item() for part in batch.values()] == [2**63 - 1, -largest]


def test_bytes_may_come_in_any_order():
    swapped = {name: part.astype(part.dtype.newbyteorder("S")) for name, part in X.items()}
    clf = classifier(max_epochs=1).fit(swapped, y)
    np.testing.assert_array_equal(clf.predict_set(swapped), clf.predict_set(X))


def test_a_table_of_tokens_is_told_to_take_a_name():
    words = nn.Sequential(nn.Embedding(WORDS, 4), nn.Flatten())
    table = np.arange(N * 3).reshape(N, 3) % WORDS
    with pytest.raises(ValueError, match=r"tokens get a name.* X=\{\"input\": X\}"):
        TopKClassifier(2, backbone=words, max_epochs=1).fit(table, y)
    TopKClassifier(2, backbone=words, max_epochs=1).fit({"input": table}, y)


def test_what_the_backbone_does_not_take_is_an_error_and_never_dropped():
    with pytest.raises(ValueError, match="unexpected keyword argument 'segment'"):
        classifier().fit({**X, "segment": mask}, y)
    with pytest.raises(ValueError, match="missing 1 required positional argument"):
        classifier().fit({"input_ids": ids}, y)
    with pytest.raises(ValueError, match="takes one array, but X holds"):
        TopKClassifier(2).fit(X, y)
    clf = classifier().fit(X, y)
    with pytest.raises(ValueError, match="was fitted on samples of shape"):
        clf.predict({"input_ids": ids})
    with pytest.raises(ValueError, match="was fitted on samples of shape"):
        clf.predict({"input_ids": ids.astype(float), "attention_mask": mask})


def test_tokens_that_have_no_embedding_are_named():
    known, unknown = classifier(max_epochs=1), {**X, "input_ids": ids + WORDS}
    known.fit(X, y)
    for call in (lambda: classifier().fit(unknown, y), lambda: known.predict(unknown)):
        with pytest.raises(ValueError, match=rf"'input_ids': \d+,.* have \[{WORDS}\] rows"):
            call()


class Elsewhere(torch.Tensor):
    """Stands for a tensor on an accelerator."""

    is_cpu = False


class Lenient(nn.Embedding):
    """Does not look at its tokens, as none does on an accelerator."""

    def forward(self, input):
        return input


@pytest.mark.parametrize(("token", "known"), [(3, True), (4, False), (-1, False)])
def test_tokens_are_looked_at_before_an_accelerator_meets_them(token, known):
    """There, a token without an embedding ends every use of the device."""
    module = nn.Sequential(Lenient(4, 2))
    tokens = torch.tensor([[0, token]]).as_subclass(Elsewhere)
    with (
        nullcontext() if known else pytest.raises(IndexError),
        _known_tokens(module, NamedTensors(ids=tokens)),
    ):
        module(tokens)
    assert module(torch.tensor([5])) == 5


@pytest.mark.parametrize(
    ("parts", "error", "match"),
    [
        ({**X, "labels": mask[:, 0]}, ValueError, "leave 'labels' out of X, and pass it as y"),
        ({**X, "input_ids": [[1], [2, 3]] * (N // 2)}, TypeError, "pad sequences to one length"),
        ({**X, "input_ids": [["a"]] * N}, TypeError, "array of numbers"),
        ({**X, "input_ids": sp.csr_array(ids)}, TypeError, r"pass X\['input_ids'\].toarray\(\)"),
        ({**X, "input_ids": ids[1:]}, ValueError, "must have one length"),
        ({**X, "input_ids": np.full(ids.shape, np.nan)}, ValueError, "NaN or infinite"),
        (
            {**X, "input_ids": ids.astype(np.uint64) + np.uint64(2**63)},
            ValueError,
            r"X\['input_ids'\] holds integers up to 9223372036854775\d{3}.* modulo",
        ),
        (
            {**X, "input_ids": torch.full(ids.shape, -1e39, dtype=torch.float64)},
            ValueError,
            r"X\['input_ids'\] holds values up to 1e\+39, too large for the single precision",
        ),
        (
            {**X, "input_ids": torch.from_numpy(ids).to_sparse()},
            TypeError,
            r"tensor of torch.sparse_coo .*pass X\['input_ids'\]\.to_dense\(\)",
        ),
        (
            {**X, "input_ids": torch.zeros(ids.shape).to(torch.float8_e4m3fn)},
            TypeError,
            r"float8_e4m3fn.*pass X\['input_ids'\]\.float\(\)",
        ),
        (
            {**X, "input_ids": torch.quantize_per_tensor(torch.ones(N), 1, 0, torch.quint8)},
            TypeError,
            r"quint8.*pass X\['input_ids'\]\.dequantize\(\)",
        ),
        ({1: ids}, TypeError, "names of arguments"),
        ({}, TypeError, "names of arguments"),
    ],
)
def test_odd_parts_are_refused_by_name(parts, error, match):
    with pytest.raises(error, match=match):
        classifier().fit(parts, y)


class Pairs(Dataset):
    """Items (ids, mask), which are not (x, y)."""

    def __init__(self, *parts):
        self.items = list(zip(*parts, strict=True))

    def __len__(self):
        return N

    def __getitem__(self, i):
        return self.items[i]


def test_further_parts_of_the_items_of_a_dataset_are_not_dropped_in_silence():
    tensors = [torch.from_numpy(part) for part in (ids, mask)]
    for dataset in (Pairs(*tensors), Pairs(*tensors, y), TensorDataset(*tensors, tensors[0])):
        with pytest.raises(TypeError, match="Return x as a dict of the arguments"):
            classifier().fit(dataset, y)
    # The label of a pair may be given apart.
    vectors = Pairs(torch.from_numpy(ids).float(), y)
    assert TopKClassifier(2, max_epochs=1).fit(vectors, y).n_iter_ == 1


class Uneven(Rows):
    def __getitem__(self, i):
        return {"input_ids": ids[i, : 2 + i % 3], "attention_mask": mask[i, : 2 + i % 3]}, y[i]


def test_items_of_several_lengths_name_the_remedy():
    with pytest.raises(ValueError, match="pad sequences to one length"):
        classifier().fit(Uneven())

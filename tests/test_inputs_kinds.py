"""What X is taken for, and what is said where it, or the backbone for it, is none of ours."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from skorch.helper import SliceDataset, SliceDict
from torch import nn
from torch.utils.data import Dataset, Subset, TensorDataset

from sksetvalued import SparseTopClassifier, Stream, TopKClassifier
from sksetvalued.inputs import input_kind
from sksetvalued.networks import build_network

IMAGES = np.random.default_rng(0).integers(0, 256, (24, 6, 6, 3), dtype=np.uint8)
Y = np.tile(np.arange(3), 8)
TEXTS = ["hello world", "some text", "and more"] * 8


class Samples(Dataset):
    """Items (x, y)."""

    def __init__(self, X, y=Y):
        self.X, self.targets = X, y

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return self.X[i], self.targets[i]


def classifier(**params):
    return TopKClassifier(**{"k": 1, "max_epochs": 1, "random_state": 0, **params})


class TestTexts:
    @pytest.mark.parametrize("form", [list, np.array, pd.Series])
    def test_texts_are_told_of_vectorizers(self, form):
        with pytest.raises(FileNotFoundError, match=r"'hello world'.*TfidfVectorizer"):
            classifier().fit(form(TEXTS), Y)

    def test_a_missing_file_among_others_is_no_text(self, tmp_path):
        (tmp_path / "a.png").touch()
        with pytest.raises(FileNotFoundError) as error:
            classifier().fit([str(tmp_path / name) for name in ("a.png", "b.png")], [0, 1])
        assert "Vectorizer" not in str(error.value)


class TestColumnsOfPaths:
    @pytest.mark.parametrize(
        "form",
        [
            lambda values: np.array(values)[:, None],
            lambda values: np.array(values, dtype=object)[:, None],
            lambda values: [[value] for value in values],
            lambda values: pd.DataFrame({"file": values}),
            lambda values: pd.DataFrame({"file": pd.Categorical(values)}, index=[5.5, 7.0]),
            lambda values: np.array([Path(value) for value in values])[:, None],
        ],
    )
    def test_paths_and_texts_must_be_one_dimensional(self, form):
        with pytest.raises(ValueError, match=r"one column.*bad\.png.*one-dimensional"):
            classifier().fit(form(["bad.png", "bad2.png"]), [0, 1])

    def test_numbers_written_as_strings_are_a_table(self):
        assert input_kind(np.array([["1.5"], ["2"]])) == "table"
        assert input_kind(np.zeros((0, 1))) == "table"


class TestEmpty:
    @pytest.mark.parametrize("dtype", [str, object])
    def test_no_paths_are_no_samples(self, tmp_path, dtype):
        from PIL import Image

        paths = np.array([str(tmp_path / f"{i}.png") for i in range(6)], dtype=dtype)
        for path, image in zip(paths, IMAGES):
            Image.fromarray(image).save(path)
        clf = classifier().fit(paths, Y[:6])
        for empty in (paths[:0], pd.Series(paths)[:0]):
            with pytest.raises(ValueError, match="holds no samples"):
                clf.predict(empty)

    @pytest.mark.parametrize("empty", [[], (), np.array([])], ids=repr)
    @pytest.mark.parametrize("transform", [None, lambda image: image], ids=["plain", "transform"])
    def test_nothing_is_no_sample_of_any_kind(self, empty, transform):
        clf = classifier(transform=transform).fit(IMAGES, Y)
        for method in (clf.predict, lambda X: clone(clf).fit(X, X)):
            with pytest.raises(ValueError, match="X holds no samples"):
                method(empty)

    def test_no_rows_of_named_parts_and_of_frames(self):
        of_parts = classifier(backbone=nn.Identity()).fit({"input": IMAGES[:, 0, 0] / 255}, Y)
        of_table = classifier().fit(IMAGES[:, 0, 0], Y)
        for clf, empty in ((of_parts, {"input": np.zeros((0, 3))}), (of_table, pd.DataFrame())):
            for method in (clf.predict_set, lambda X, clf=clf: clone(clf).fit(X, [])):
                with pytest.raises(ValueError, match="X holds no samples"):
                    method(empty)
        with pytest.raises(ValueError, match=r"X is a table without columns, of shape \(24, 0\)"):
            of_table.predict(pd.DataFrame(index=Y))


class TestDatasets:
    @pytest.mark.parametrize(
        "dataset",
        [
            Samples(IMAGES),
            Samples(torch.from_numpy(IMAGES), [str(label) for label in Y]),
            Samples(IMAGES.reshape(24, -1).astype(np.float32)),
            Samples(IMAGES, np.eye(3, dtype=int)[Y]),
            TensorDataset(torch.from_numpy(IMAGES), torch.from_numpy(Y)),
            Subset(Samples(IMAGES), range(24)),
        ],
    )
    def test_slices_by_scikit_learn_are_told_the_ways_out(self, dataset):
        with pytest.raises(TypeError, match="slic.*SliceDataset.*paths"):
            cross_val_score(classifier(), dataset, Y, cv=2, error_score="raise")

    def test_pictures_with_labels_are_told_too(self):
        from PIL import Image

        pairs = [(Image.fromarray(image), label) for image, label in zip(IMAGES, Y)]
        with pytest.raises(TypeError, match="SliceDataset"):
            classifier().fit(pairs, Y)

    def test_rows_of_two_values_are_a_table(self):
        assert input_kind([(1.0, 2.0), (3.0, 4.0)]) == "table"
        assert input_kind([[np.arange(3), np.arange(3)]] * 4) == "image"

    @pytest.mark.parametrize(
        "data",
        [
            pytest.param(IMAGES, marks=pytest.mark.slow),
            IMAGES.reshape(24, -1).astype(np.float32),
        ],
        ids=["images", "tables"],
    )
    def test_slice_datasets_of_skorch_go_through_searches(self, data):
        dataset = SliceDataset(Samples(data))
        grid = {"lr": [1e-2, 1e-6]}
        kwargs = {"cv": 2, "error_score": "raise"}
        search = GridSearchCV(classifier(), grid, **kwargs).fit(dataset, Y)
        expected = GridSearchCV(classifier(), grid, **kwargs).fit(data, Y)
        np.testing.assert_array_equal(
            search.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"]
        )
        np.testing.assert_array_equal(search.predict(dataset[:5]), search.predict(dataset)[:5])

    def test_slice_datasets_hold_no_labels(self):
        with pytest.raises(ValueError, match="has no label: pass y"):
            classifier().fit(SliceDataset(Samples(IMAGES)))


@pytest.mark.parametrize("cls", [dict, SliceDict])
@pytest.mark.parametrize("estimator", [classifier(), SparseTopClassifier()])
def test_dicts_need_a_network_that_takes_their_parts(cls, estimator):
    target = Y if isinstance(estimator, TopKClassifier) else np.eye(3, dtype=int)[Y]
    with pytest.raises(ValueError, match=r"takes one array, but X holds \['X'\]"):
        estimator.fit(cls(X=np.zeros((24, 2), np.float32)), target)


class TestBackbones:
    @pytest.mark.parametrize("widths", [("a",), (64.0,), (None,), [32, "b"]])
    def test_widths_must_be_integers(self, widths):
        with pytest.raises(TypeError, match=r"backbone=[(\[].* widths must be integers"):
            build_network(widths, None, None, (4,), 3)

    def test_integers_of_numpy_are_widths(self):
        assert build_network((np.int64(5),), None, None, (4,), 3).head.in_features == 5

    @pytest.mark.parametrize("backbone", [nn.Linear, lambda: None])
    def test_callables_must_take_the_shape_alone(self, backbone):
        with pytest.raises(TypeError, match=r"backbone=.* cannot be called.*input_shape"):
            build_network(backbone, None, None, (4,), 3)

    def test_an_error_inside_a_callable_names_the_backbone(self):
        def build(shape, out_features):
            return nn.Linear(shape, out_features)

        with pytest.raises(TypeError) as error:
            build_network(build, {"out_features": 3}, None, (4,), 3)
        assert any("backbone" in note for note in error.value.__notes__)
        with pytest.raises(TypeError, match="backbone=Linear is a class"):
            build_network(nn.Linear, {"out_features": 3}, None, (4,), 3)


class TestOneSample:
    """A sample is not guessed to be a batch of one; what to pass is said."""

    def test_one_path_and_one_image(self, tmp_path):
        path = tmp_path / "leaf.png"
        image = Image.fromarray(IMAGES[0])
        image.save(path)
        clf = classifier().fit(IMAGES, Y)
        for one in (str(path), path, image):
            with pytest.raises(TypeError, match=r"X is one (image|string or path).*\[X\]"):
                clf.predict_set(one)
        np.testing.assert_array_equal(clf.predict_set([image]), clf.predict_set([str(path)]))

    @pytest.mark.parametrize("images", [IMAGES, IMAGES[..., 0]])
    def test_one_array(self, images):
        clf = classifier().fit(images, Y)
        ones = [images[0], torch.from_numpy(images[0])]
        ones += [np.moveaxis(images[0], 2, 0)] if images.ndim == 4 else []
        for one in ones:
            with pytest.raises(ValueError, match=r"shape of one sample: pass X\[None\]"):
                clf.predict(one)
        assert clf.predict(images[0][None]).shape == (1,)


def test_the_columns_of_an_earlier_table_are_forgotten():
    table = IMAGES[:, 0, 0] / 255
    rows = [*zip(table, Y.tolist())]
    stream = Stream(rows, classes=range(3), class_counts=np.bincount(Y))
    for X, y, n_features in ((IMAGES, Y, None), (stream, None, 3)):
        clf = classifier().fit(pd.DataFrame(table, columns=["r", "g", "b"]), Y).fit(X, y)
        assert not hasattr(clf, "feature_names_in_")
        assert getattr(clf, "n_features_in_", None) == n_features


@pytest.mark.parametrize(
    "item",
    [
        (torch.zeros(5), torch.zeros(5)),  # would be an image of two rows
        (torch.tensor(0.5), torch.tensor(1)),  # would be a table of two columns
        (np.array([0.5]), np.array([1])),
        ([0.5, 0.1], 1),
        [[0.5, 0.1], 1],
        ({"a": 0.5}, 1),
        (Path("a.png"), 1),
    ],
    ids=repr,
)
def test_lists_of_samples_with_their_labels_are_refused(item):
    """As slices of a Dataset are: the labels would be among the features."""
    with pytest.raises(TypeError, match="samples with their labels.*SliceDataset"):
        input_kind([item] * 3)


@pytest.mark.parametrize(
    "row", [(0.5, 1), ("0.5", "1"), (None, np.float32(1)), ("red", 1), [0.5, 1.0]]
)
def test_rows_of_two_values_are_a_table(row):
    assert input_kind([row] * 3) == "table"

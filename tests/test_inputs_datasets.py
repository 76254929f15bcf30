"""Torch Datasets: their samples, their labels, and the errors of both."""

import array
import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch._subclasses import FakeTensorMode
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset

from sksetvalued import SparseTopClassifier, Stream, TopKClassifier
from sksetvalued.inputs import media_inputs
from sksetvalued.inputs._tables import ArrayInputs
from sksetvalued.inputs._torch_datasets import DatasetInputs
from sksetvalued.training._data import Loader

X = np.random.default_rng(0).integers(0, 256, (24, 9, 9, 3), dtype=np.uint8)
Y = np.tile(np.arange(3) * 10, 8)


def dataset_targets(dataset):
    return media_inputs(dataset, "dataset").targets()


class Pictures(Dataset):
    """Items (picture, label); reads of each are counted."""

    def __init__(self):
        self.n_reads = 0

    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        self.n_reads += 1
        torch.rand(())
        return Image.fromarray(X[i]), Y[i]


class Labelled(Pictures):
    def __init__(self, attribute, values):
        super().__init__()
        setattr(self, attribute, values)


class Items(list, Dataset):
    """Pairs in a list."""


def classifier(**params):
    return TopKClassifier(
        **{"k": 1, "max_epochs": 1, "batch_size": 12, "random_state": 0, **params}
    )


def test_samples_come_without_their_graph():
    images = torch.rand(4, 3, 8, 8, requires_grad=True)
    dataset, same = TensorDataset(images * 2), lambda image: image
    samples = [(images * 2, "image", None), (images * 2, "image", same)]
    samples += [(dataset, "dataset", None), (Subset(dataset, range(4)), "dataset", None)]
    for given, kind, transform in samples:
        batch = media_inputs(given, kind, transform).take(torch.arange(4))
        assert not batch.requires_grad
        assert torch.equal(batch, images * 2)


@pytest.mark.parametrize("shape", [(5,), (3, 8, 8)])
def test_samples_of_a_dataset_come_to_the_processor(shape):
    """Where a loader pins them, and their columns are sorted."""
    with FakeTensorMode():
        samples = torch.empty(4, *shape, device="cuda")
        inputs = DatasetInputs(Subset(TensorDataset(samples), range(4)))
        assert inputs.take(np.arange(2)).device.type == "cpu"


@pytest.mark.parametrize(
    ("attribute", "values"),
    [
        ("targets", Y.tolist()),
        ("targets", torch.from_numpy(Y)),
        ("labels", Y),
        ("_labels", Y.tolist()),
        ("y", Y.tolist()),
        ("samples", [("file", label) for label in Y]),
        ("_samples", [("file", label) for label in Y]),
        ("targets", array.array("l", Y.tolist())),
    ],
)
def test_stored_labels_are_found_without_reading_the_samples(attribute, values):
    dataset = Labelled(attribute, values)
    before = torch.get_rng_state()
    np.testing.assert_array_equal(dataset_targets(dataset), Y)
    assert dataset.n_reads == 3  # to see whether they agree
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("of_class", [lambda y: torch.eye(3)[y // 10], lambda y: {"label": y}])
def test_what_is_no_label_does_not_take_the_place_of_stored_ones(of_class):
    class Soft(Labelled):
        def __getitem__(self, i):
            return X[i], of_class(Y[i])

    np.testing.assert_array_equal(dataset_targets(Soft("targets", Y)), Y)


@pytest.mark.parametrize("form", [lambda y: np.array([y]), np.array, lambda y: np.array([[y]])])
@pytest.mark.parametrize("values", [Y, Y.astype(str)])
def test_labels_of_items_may_be_arrays_of_one(form, values):
    class Arrays(Labelled):
        def __getitem__(self, i):
            self.n_reads += 1
            return X[i], form(values[i])

    dataset = Arrays("targets", values)
    np.testing.assert_array_equal(dataset_targets(dataset), values)
    assert dataset.n_reads == 3


class Subclass(TensorDataset):
    def __getitem__(self, i):
        x, y, _ = super().__getitem__(i)
        return x, y + 5


@pytest.mark.parametrize(
    "dataset",
    [
        Labelled("targets", Y // 10 % 2),
        Labelled("samples", [(label, f"file{i}") for i, label in enumerate(Y)]),
        Subclass(torch.zeros(24, 2), torch.from_numpy(Y) - 5, torch.arange(24)),
    ],
)
def test_labels_are_those_of_the_items_where_others_are_stored(dataset):
    np.testing.assert_array_equal(dataset_targets(dataset), Y)


@pytest.mark.parametrize("cls", [TopKClassifier, SparseTopClassifier])
def test_an_item_whose_label_is_not_the_stored_one_is_named(cls):
    class Merged(Labelled):
        def __getitem__(self, i):
            return Image.fromarray(X[i]), 0 if i == 5 else Y[i]

    clf = cls(max_epochs=1, batch_size=8, device="cpu", random_state=0)
    clf.set_params(net_params={"iterator_train__num_workers": 0})
    with pytest.raises(
        ValueError, match=r"^item 5 of Merged has the label 0, .* has .*20.*pass y"
    ):
        clf.fit(Merged("targets", Y))
    assert clf.fit(Merged("targets", Y), Y).classes_.tolist() == [0, 10, 20]


@pytest.mark.parametrize("attribute", ["samples", "y", "labels"])
@pytest.mark.parametrize(
    "value",
    [
        [Path(f"{i}.jpg") for i in range(24)],
        [f"{'ab'[i % 2]}b{i}.jpg" for i in range(24)],
        [{"x": 0, "label": 1}] * 24,
        np.zeros((24, 5)),
        True,
        24,
        len,
    ],
    ids=lambda value: f"{value!s:.20}",
)
def test_what_an_attribute_holds_beside_labels_does_not_take_their_place(attribute, value):
    np.testing.assert_array_equal(dataset_targets(Labelled(attribute, value)), Y)


@pytest.mark.parametrize("attribute", ["samples", "y"])
def test_label_sets_of_items_come_before_strings_that_are_stored(attribute):
    sets = torch.from_numpy(np.random.default_rng(0).random((24, 4)) < 0.7).long()
    sets[0] = 1

    class Several(Labelled):
        def __getitem__(self, i):
            return X[i], sets[i]

    found = dataset_targets(Several(attribute, [f"ab{i}.jpg" for i in range(24)]))
    np.testing.assert_array_equal(np.stack(found), sets)


def test_labels_that_are_not_stored_are_read_with_the_samples():
    dataset = Pictures()
    np.testing.assert_array_equal(dataset_targets(dataset), Y)
    assert dataset.n_reads == len(Y)


def test_labels_are_seen_through_subsets_and_unions():
    dataset = Labelled("targets", Y)
    both = ConcatDataset([Subset(dataset, [5, 1]), Subset(Subset(dataset, [9, 3, 7]), [2, 0])])
    np.testing.assert_array_equal(dataset_targets(both), Y[[5, 1, 7, 9]])
    mixed = ConcatDataset([Pictures(), dataset])
    np.testing.assert_array_equal(dataset_targets(mixed), np.tile(Y, 2))


def test_label_sets_of_one_length_and_of_several_make_one_whole():
    class Bare(Labelled):
        def __getitem__(self, i):
            return X[i]

    parts = [Bare("targets", [[1, 2]] * 24), Bare("targets", [[0]] * 23 + [[0, 1]])]
    assert list(dataset_targets(ConcatDataset(parts)))[22:25] == [[1, 2], [1, 2], [0]]


def test_a_target_transform_is_applied():
    dataset = Labelled("targets", Y)
    transform = dataset.target_transform = lambda label: f"class {label}"

    class Named(Labelled):
        def __getitem__(self, i):
            return X[i], transform(Y[i])

    dataset.__class__ = Named
    assert dataset_targets(dataset)[1] == "class 10"
    assert dataset.n_reads == 0


@pytest.mark.parametrize(
    ("other", "message"), [(np.nan, "holds nan, which"), (1, "numbers and s")]
)
def test_labels_do_not_become_strings(other, message):
    class Named(Pictures):
        def __getitem__(self, i):
            return X[i], other if i == 5 else "name"

    with pytest.raises(ValueError, match=f"y .*{message}"):
        dataset_targets(Named())


def test_labels_of_the_wrong_length_are_not_trusted():
    np.testing.assert_array_equal(dataset_targets(Labelled("targets", [1, 2])), Y)


def test_the_labels_of_tensor_datasets():
    tensors = TensorDataset(torch.zeros(3, 2), torch.tensor([4, 1, 4]))
    assert dataset_targets(tensors).tolist() == [4, 1, 4]


@pytest.mark.parametrize("labels", [Y, np.eye(24)], ids=["labels", "shares"])
def test_labels_may_be_of_bfloat16(labels):
    tensors = TensorDataset(torch.zeros(24, 2), torch.from_numpy(labels).bfloat16())
    attribute = Items(tensors)
    attribute.targets = tensors.tensors[1]
    for dataset in (tensors, Items(tensors), attribute):
        np.testing.assert_array_equal(dataset_targets(dataset), labels)


@pytest.fixture
def image_folder(tmp_path):
    for i, image in enumerate(X):
        folder = tmp_path / f"class{Y[i]}"
        folder.mkdir(exist_ok=True)
        Image.fromarray(image).save(folder / f"{i:02d}.png")
    return tmp_path


def test_image_folders_of_torchvision_work_as_they_are(image_folder):
    from torchvision.datasets import ImageFolder

    dataset = ImageFolder(image_folder)
    clf = classifier().fit(dataset)
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.class_counts_.tolist() == [8, 8, 8]
    paths = np.array([path for path, _ in dataset.samples])
    np.testing.assert_array_equal(clf.predict_set(dataset), clf.predict_set(paths))
    assert 0 <= clf.score(dataset, dataset.targets) <= 1


def test_the_transform_of_the_dataset_comes_first(image_folder):
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    own = v2.Compose([v2.PILToTensor(), v2.CenterCrop(5)])
    dataset = ImageFolder(image_folder, transform=own)
    inputs = media_inputs(dataset, "dataset", lambda x: 255 - x)
    assert torch.equal(inputs.take(torch.tensor([2]))[0], 255 - dataset[2][0])


def test_cifar_objects_of_torchvision_work_as_they_are():
    from torchvision.datasets import CIFAR100

    dataset = CIFAR100.__new__(CIFAR100)  # Its files are not here; all else is its own.
    vars(dataset).update(data=X, targets=Y.tolist(), transform=None, target_transform=None)
    clf = classifier().fit(dataset)
    assert clf.classes_.tolist() == [0, 10, 20]
    np.testing.assert_array_equal(clf.predict_set(dataset), clf.predict_set(X))


def test_flowers_objects_of_torchvision_work_as_they_are(image_folder):
    from torchvision.datasets import Flowers102
    from torchvision.datasets.folder import default_loader

    files = sorted(image_folder.glob("*/*.png"), key=lambda path: path.name)
    dataset = Flowers102.__new__(Flowers102)
    vars(dataset).update(_image_files=files, _labels=Y.tolist())
    vars(dataset).update(transform=None, target_transform=None, loader=default_loader)
    clf = classifier().fit(dataset)
    np.testing.assert_array_equal(clf.predict_set(dataset), clf.predict_set(X))


def test_inaturalist_layout(tmp_path):
    from torchvision.datasets import INaturalist

    names = ["00000_Animalia_A_B_C_D_E_one", "00001_Plantae_A_B_C_D_E_two"]
    for name in names:
        folder = tmp_path / "2021_train_mini" / name
        folder.mkdir(parents=True)
        for i in range(2):
            Image.fromarray(X[i]).save(folder / f"{i}.jpg")
    dataset = INaturalist(tmp_path, "2021_train_mini")
    assert dataset_targets(dataset).tolist() == [0, 0, 1, 1]
    kingdoms = INaturalist(tmp_path, "2021_train_mini", target_type="kingdom")
    expected = [kingdoms[i][1] for i in range(4)]
    assert dataset_targets(kingdoms).tolist() == expected


def test_arrays_pictures_and_tensors_give_the_same_scores():
    tensors = TensorDataset(torch.from_numpy(X).permute(0, 3, 1, 2), torch.from_numpy(Y))
    fits = [classifier().fit(X, Y), classifier().fit(Pictures()), classifier().fit(tensors)]
    scores = [clf.decision_function(d) for clf, d in zip(fits, (X, Pictures(), tensors))]
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2])


def test_datasets_of_vectors_are_trained_on():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((24, 4)).astype(np.float32)
    dataset = TensorDataset(torch.from_numpy(vectors), torch.from_numpy(Y))
    assert classifier().fit(dataset).decision_function(dataset).shape == (24, 3)


@pytest.mark.parametrize("form", [list, tuple, np.ndarray.tolist])
def test_lists_of_numbers_are_vectors(form):
    rows = np.random.default_rng(0).standard_normal((24, 3)).astype(np.float32)
    arrays, lists = (Items(zip(x, Y.tolist())) for x in (rows, [form(row) for row in rows]))
    here = {f"iterator_{part}__num_workers": 0 for part in ("train", "valid")}
    clf = classifier(net_params=here)
    scores = [clf.fit(x).decision_function(x) for x in (arrays, lists)]
    np.testing.assert_array_equal(*scores)
    streams = Stream.counted(arrays), Stream.counted(lists)
    scores = [classifier().fit(stream).decision_function(rows) for stream in streams]
    np.testing.assert_array_equal(*scores)


def test_objects_that_are_numbers_are_what_they_are():
    row = np.array([True, 1.5, 2], object)  # as of a frame with columns of several types
    (first,) = media_inputs(Items([(row, 0)]), "dataset").take([0])
    assert first.tolist() == [1, 1.5, 2]


def test_a_transform_does_not_change_lists_of_the_user():
    given = [[1, 2.0], [3, 4.0]]
    inputs = media_inputs(Items(zip(given, Y)), "dataset", lambda row: row.pop() and row)
    assert inputs.take([0, 1]).tolist() == [[1], [3]]
    assert given == [[1, 2], [3, 4]]


def test_numbers_of_a_tensor_dataset_are_one_column():
    numbers, labels = torch.arange(24.0), torch.from_numpy(Y)
    one_by_one = Subset(TensorDataset(numbers, labels), range(24))
    datasets = TensorDataset(numbers, labels), TensorDataset(numbers[:, None], labels), one_by_one
    scores = [classifier().fit(dataset).decision_function(dataset) for dataset in datasets]
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2])


def test_vectors_of_a_dataset_are_scaled_like_those_of_a_table():
    vectors = np.random.default_rng(0).normal(3, [1e-2, 1, 1e4], (24, 3)).astype(np.float32)
    vectors[::2] *= 1e3
    dataset = TensorDataset(torch.from_numpy(vectors), torch.from_numpy(Y))
    for weight in (None, np.tile([1e-6, 1.0], 12)):
        share = None if weight is None else torch.from_numpy(weight)
        expected = ArrayInputs(vectors).statistics(share)
        for transform in (None, lambda x: x, lambda x: [x, x]):
            inputs = media_inputs(dataset, "dataset", {"eval": transform})
            torch.testing.assert_close(inputs.statistics(share), expected)
        of_dataset = classifier().fit(dataset, sample_weight=weight)
        of_table = classifier().fit(vectors, Y, sample_weight=weight)
        scores, table = of_dataset.decision_function(dataset), of_table.decision_function(vectors)
        np.testing.assert_allclose(scores, table, rtol=1e-5, atol=1e-5)


def test_samples_of_another_form_are_refused_whatever_their_batch():
    vectors = torch.randn(24, 5)
    mixed = ConcatDataset([TensorDataset(vectors[:12]), TensorDataset(vectors[:12, :1])])
    inputs = media_inputs(mixed, "dataset")
    assert inputs.sample_shape == (5,)
    assert inputs.take(np.arange(12)).shape == (12, 5)
    for part in (np.arange(12, 24), np.arange(11, 14)):
        with pytest.raises(
            ValueError,
            match=r"item 12 of ConcatDataset is of shape \(1,\).* all of them one shape",
        ):
            inputs.take(part)


class Lookup(Pictures):
    """Items that are looked up by next, which finds none from a position on."""

    def __init__(self, end):
        super().__init__()
        self.end = end

    def __getitem__(self, i):
        return next(super(Lookup, self).__getitem__(j) for j in range(self.end) if j == i)


@pytest.mark.parametrize("n_workers", [0, 2])
def test_an_item_that_raises_what_ends_a_loop_does_not_end_the_samples(n_workers):
    workers = {f"iterator_{stage}__num_workers": n_workers for stage in ("train", "valid")}
    clf, before = classifier(batch_size=4, net_params=workers), multiprocessing.active_children()
    with pytest.raises(RuntimeError, match="item 17 of Lookup raised StopIteration.*give next"):
        clf.fit(Lookup(17), Y)
    clf.fit(Lookup(24), Y)
    for use in (clf.predict_set, clf.predict, clf.predict_labels):
        with pytest.raises(RuntimeError, match="item 17 of Lookup raised StopIteration"):
            use(Lookup(17))
    cut = classifier(transform=lambda image: next(iter([image] if image.sum() % 7 else [])))
    with pytest.raises(RuntimeError, match=r"image \d+ raised StopIteration"):
        cut.fit(X, Y)
    assert set(multiprocessing.active_children()) <= set(before)


def test_labels_that_are_given_come_before_those_of_the_dataset():
    clf = classifier().fit(Labelled("targets", Y), np.repeat(["a", "b"], 12))
    assert clf.classes_.tolist() == ["a", "b"]


class TestErrors:
    def test_labels_and_samples_of_different_length(self):
        with pytest.raises(ValueError, match=r"\[24, 20\]|inconsistent numbers of samples"):
            classifier().fit(Pictures(), Y[:20])

    def test_samples_without_labels(self):
        with pytest.raises(ValueError, match="has no label"):
            classifier().fit(Subset(TensorDataset(torch.zeros(4, 3)), [0, 1]))

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_vectors_that_are_not_finite(self, value):
        dataset = TensorDataset(torch.full((24, 2), value), torch.from_numpy(Y))
        with pytest.raises(ValueError, match="NaN or infinite"):
            classifier().fit(dataset)

    @pytest.mark.parametrize("shape", [(2,), (3, 8, 8)])
    @pytest.mark.parametrize(
        "given",
        [
            lambda x: TensorDataset(x, torch.from_numpy(Y)),
            lambda x: Items((part, label) for part, label in zip(x, Y)),
            lambda x: Items((part.numpy(), label) for part, label in zip(x, Y)),
            lambda x: Stream.counted([(part, label) for part, label in zip(x, Y)]),
        ],
        ids=["TensorDataset", "tensors", "arrays", "stream"],
    )
    def test_complex_numbers(self, given, shape):
        x = torch.zeros(24, *shape, dtype=torch.complex64)
        with pytest.raises(TypeError, match=r"real numbers, got complex64.*torch\.view_as_real"):
            classifier().fit(given(x))
        if len(shape) == 3:
            assert classifier(transform=abs).fit(given(x)).input_shape_ == shape

    def test_complex_numbers_that_a_transform_returns(self):
        with pytest.raises(TypeError, match="real numbers, got complex64"):
            classifier(transform=torch.fft.fft2).fit(np.zeros((24, 8, 8)), Y)

    @pytest.mark.parametrize(
        "values",
        [
            np.array(["2020-01-01", "2021-01-01"], "M8[ns]"),
            np.array([5, 6], "m8[D]"),
            np.array(["7", "8"]),
            np.array(["7", "8"], object),
            np.array([np.complex128(1), 2], object),
            np.array([None, 2], object),
        ],
        ids=lambda values: str(values.dtype),
    )
    def test_what_is_no_number(self, values):
        with pytest.raises(TypeError, match="samples must hold real numbers"):
            classifier().fit(Items([(values, label) for label in Y]))

    def test_labels_that_are_masked(self):
        labels = np.ma.masked_equal(Y, 20)
        for dataset in (Labelled("targets", labels), Items(zip(X, labels))):
            with pytest.raises(ValueError, match=r"^y \w+ a masked array, whose mask"):
                dataset_targets(dataset)

    @pytest.mark.parametrize("shapes", [[(8,), (8,)], [(3, 8, 8), (2,)]])
    def test_samples_of_several_parts_without_names(self, shapes):
        class Pairs(Labelled):
            def __getitem__(self, i):
                return tuple(torch.rand(shape) for shape in shapes), Y[i]

        with pytest.raises(TypeError, match="item 0 of Pairs has several parts.* as a dict"):
            classifier().fit(Pairs("targets", Y))

    @pytest.mark.parametrize("labels", [None, Y])
    def test_a_dataset_without_a_length(self, labels):
        class Endless(Dataset):
            def __getitem__(self, i):
                return X[i % 24], 0

        with pytest.raises(TypeError, match=r"a length and items by position, got Endless"):
            classifier().fit(Endless(), labels)

    def test_streams_are_refused(self):
        class Stream(IterableDataset):
            def __iter__(self):
                return iter([])

        with pytest.raises(TypeError, match="items by position"):
            media_inputs(Stream(), "dataset")

    def test_images_of_several_forms_name_the_items(self):
        class Mixed(Pictures):
            def __getitem__(self, i):
                return X[i, ..., : 1 + 2 * (i != 3)], Y[i]

        with pytest.raises(ValueError, match="item 3 of Mixed is of shape"):
            media_inputs(Mixed(), "dataset").take(torch.arange(5))

    def test_a_worker_that_dies_stops_the_fit(self):
        class Deadly(Labelled):
            def __getitem__(self, i):
                if torch.utils.data.get_worker_info() is not None and i == 20:
                    os._exit(1)
                return super().__getitem__(i)

        params = {"iterator_train__num_workers": 1}
        with pytest.raises(RuntimeError, match="DataLoader worker"):
            classifier(net_params=params).fit(Deadly("targets", Y))

    def test_a_worker_that_is_slow_has_not_died(self):
        class Slow(Pictures):
            def __getitem__(self, i):
                if torch.utils.data.get_worker_info() is not None and i == 0:
                    time.sleep(0.6)
                return super().__getitem__(i)

        params = {"iterator_train__num_workers": 1, "iterator_train__timeout": 0.1}
        with pytest.raises(RuntimeError, match=r"timed out.*longer.*Raise it") as caught:
            classifier(net_params=params).fit(Slow(), Y)
        assert "crash" not in str(caught.value)

    def test_a_worker_that_a_pool_of_threads_forks_ends_well(self):
        clf = classifier().fit(Labelled("targets", Y))
        clf.set_params(net_params={"iterator_valid__num_workers": 1})

        def exit_code():
            before = set(multiprocessing.active_children())
            scores = clf._iter_scores(Pictures(), 16)
            next(scores)
            (worker,) = set(multiprocessing.active_children()) - before
            list(scores)
            worker.join()
            return worker.exitcode

        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(exit_code).result() == 0

    @pytest.mark.parametrize("n_workers", [0, 1])
    @pytest.mark.parametrize("lost", [ConnectionResetError, FileNotFoundError])
    def test_a_lost_connection_is_that_of_a_worker_where_there_is_one(self, n_workers, lost):
        class Batches:
            lost = True

            def __iter__(self):
                yield from ([0],) * 3
                if self.lost:
                    raise lost("reset by peer")

        batches, params = Batches(), {"persistent_workers": True} if n_workers else {}
        dataset = TensorDataset(torch.zeros(4))
        loader = Loader(dataset, batch_sampler=batches, num_workers=n_workers, **params)
        with pytest.raises((RuntimeError, lost)) as caught:
            list(loader)
        named = str(caught.value).startswith("DataLoader worker: reset by peer. It reads samples")
        assert named == bool(n_workers)
        batches.lost = False
        assert len([*loader]) == 3

    def test_an_error_in_a_worker_names_its_item(self):
        class Broken(Labelled):
            def __getitem__(self, i):
                if torch.utils.data.get_worker_info() is not None and i == 20:
                    return "no image", Y[i]
                return super().__getitem__(i)

        params = {"iterator_train__num_workers": 1}
        before = multiprocessing.active_children()
        with pytest.raises(TypeError, match=r"(?s)must be PIL images.*item 20 of Broken") as error:
            classifier(net_params=params).fit(Broken("targets", Y))
        # Whoever keeps the error, as a notebook does, keeps no process alive.
        assert set(multiprocessing.active_children()) <= set(before), error


def test_items_of_a_class_derived_from_tensor_datasets_are_read():
    class Halved(TensorDataset):
        def __getitem__(self, i):
            x, label = super().__getitem__(i)
            return x / 2, label

    x = torch.arange(12.0).reshape(4, 3)
    inputs = media_inputs(Halved(x, torch.arange(4)), "dataset")
    assert torch.equal(inputs.take(torch.tensor([1, 3])), x[[1, 3]] / 2)

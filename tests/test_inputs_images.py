"""Images in arrays, memory maps and tensors: layouts, types, transforms, statistics."""

import tracemalloc
from collections import UserList

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch._subclasses import FakeTensorMode
from torch.utils.data import StackDataset, Subset, TensorDataset
from torchvision import transforms as v1
from torchvision.transforms import v2

from sksetvalued.inputs import input_kind, media_inputs
from sksetvalued.inputs._transforms import channel_statistics, to_tensor

ALL = torch.arange(6)
CROP = v2.CenterCrop(4)


def pixels(*shape, dtype=np.uint8, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, shape).astype(dtype)


def image_inputs(X, transform=None):
    return media_inputs(X, "image", transform)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_channels_may_come_first_or_last(channels, kind):
    first = pixels(6, channels, 9, 8)
    last = np.ascontiguousarray(first.transpose(0, 2, 3, 1))
    for X in (first, last):
        inputs = image_inputs(kind(X))
        assert inputs.sample_shape == (channels, 9, 8)
        assert torch.equal(inputs.take(ALL), torch.from_numpy(first))


def test_grey_images_get_a_channel():
    X = pixels(6, 9, 8)
    inputs = image_inputs(X)
    assert inputs.sample_shape == (1, 9, 8)
    assert torch.equal(inputs.take(ALL)[:, 0], torch.from_numpy(X))


def test_the_shorter_dimension_is_that_of_the_channels():
    assert image_inputs(pixels(2, 13, 32, 32)).sample_shape == (13, 32, 32)
    assert image_inputs(pixels(2, 32, 32, 13)).sample_shape == (13, 32, 32)


def test_tiny_images_follow_the_convention_of_their_library():
    X = pixels(2, 3, 5, 3)
    assert image_inputs(X).sample_shape == (3, 3, 5)
    assert image_inputs(torch.from_numpy(X)).sample_shape == (3, 5, 3)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("uint8", torch.uint8),
        ("float32", torch.float32),
        ("float64", torch.float32),
        (">f4", torch.float32),
        ("int64", torch.float32),
        ("uint16", torch.float32),
        ("bool", torch.float32),
    ],
)
def test_bytes_stay_bytes_and_numbers_become_float32(dtype, expected):
    X = pixels(6, 8, 8, dtype=dtype)
    batch = image_inputs(X).take(ALL)
    assert batch.dtype == expected
    np.testing.assert_array_equal(batch[:, 0].numpy(), X)


def test_subsets_share_the_data():
    X = pixels(6, 8, 8)
    inputs = image_inputs(X)
    part = inputs.subset(np.array([1, 3, 5])).subset(np.array([0, 2]))
    assert part.data is inputs.data is X
    assert len(part) == 2
    assert torch.equal(part.take(torch.tensor([1, 0]))[:, 0], torch.from_numpy(X[[5, 1]]))


@pytest.mark.filterwarnings("error")
def test_read_only_memory_maps_are_read_by_batch(tmp_path):
    X = pixels(6, 8, 8, 3)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    inputs = image_inputs(mapped)
    assert isinstance(inputs.data, np.memmap)
    batch = inputs.take(ALL)
    batch[0] = 0
    np.testing.assert_array_equal(mapped, X)
    assert torch.equal(batch[1:].permute(0, 2, 3, 1), torch.from_numpy(X[1:]))


def test_an_immutable_array_is_not_copied_whole():
    X = pixels(6, 8, 8)
    X.flags.writeable = False
    inputs = image_inputs(X)
    assert np.shares_memory(inputs.data, X)
    inputs.take(ALL).zero_()
    assert X.any()


DTYPES = ["u1", "<u2", ">u2", ">f4", "f2", "f8", "g", "?"]
as_tensors = pytest.param(torch.from_numpy, "u1", id="tensor")
kinds = pytest.mark.parametrize(
    ("kind", "dtype"), [*((np.asarray, dtype) for dtype in DTYPES), as_tensors]
)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@kinds
def test_a_part_that_fits_moves_to_the_device(kind, dtype):
    X = pixels(20, 8, 8, 3, dtype=dtype)
    part = image_inputs(kind(X)).subset(np.array([3, 5, 7]))
    moved = part.to("cuda")
    assert len(moved.data) == len(moved) == 3
    for indices in (torch.tensor([2, 0]), torch.tensor([2, 0], device="cuda")):
        batch = moved.take(indices)
        assert batch.device.type == "cuda"
        assert torch.equal(batch.cpu(), part.take(torch.tensor([2, 0])))


@kinds
def test_what_moves_to_a_device_has_the_type_of_batches(kind, dtype, monkeypatch):
    """Others may be unknown to torch, or to the device; what is free is asked for that type."""
    part = image_inputs(kind(pixels(20, 8, 8, 3, dtype=dtype))).subset(np.array([3, 5, 7]))
    batch = part.take(torch.tensor([2, 0]))
    needed = 3 * batch[0].nbytes / 0.3
    with FakeTensorMode(allow_non_fake_inputs=True):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (needed * 1.01, None))
        moved = part.to("cuda")
        assert (moved.data.device.type, moved.data.dtype) == ("cuda", batch.dtype)
        assert moved.take(torch.tensor([2, 0])).stride() == batch.stride()
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (needed * 0.99, None))
        assert part.to("cuda") is part


def test_images_move_to_a_device_part_by_part(monkeypatch):
    """Those of a memory map may be more than the memory of the host."""
    X = pixels(3000, 32, 32, dtype="f4")
    part = image_inputs(X).subset(np.arange(2900))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 40, None))
    with FakeTensorMode(allow_non_fake_inputs=True):
        tracemalloc.start()
        moved = part.to("cuda")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert moved.data.shape == (2900, 32, 32)
    assert peak < 0.5 * X.nbytes


class TestTransforms:
    def test_each_stage_has_its_own(self):
        X = pixels(6, 8, 8)
        inputs = image_inputs(X, {"train": lambda x: x // 2, "eval": lambda x: x // 4})
        rows = np.arange(6)
        x = torch.from_numpy(X)[:, None]
        assert torch.equal(inputs.take(ALL), x // 4)
        assert torch.equal(inputs.subset(rows, training=True).take(ALL), x // 2)
        assert torch.equal(inputs.subset(rows).take(ALL), x // 4)

    def test_a_callable_serves_both_stages(self):
        inputs = image_inputs(pixels(6, 8, 8), lambda x: x[:, :4])
        assert inputs.sample_shape == (1, 4, 8)
        assert inputs.subset(np.arange(3), training=True).take(ALL[:3]).shape == (3, 1, 4, 8)

    def test_a_stage_without_a_transform_is_gathered_whole(self):
        inputs = image_inputs(pixels(6, 8, 8), {"train": lambda x: x})
        assert inputs.in_memory
        assert not inputs.subset(np.arange(6), training=True).in_memory

    def test_transforms_of_torchvision(self):
        from torchvision.transforms import v2

        X = pixels(6, 3, 9, 9)
        flip = v2.RandomHorizontalFlip(p=1.0)
        batch = image_inputs(X, v2.Compose([flip, v2.CenterCrop(5)])).take(ALL)
        assert torch.equal(batch, torch.from_numpy(X).flip(3)[:, :, 2:7, 2:7])

    def test_ten_crops_are_a_dimension_of_views(self):
        from torchvision.transforms import v2

        X = pixels(6, 3, 9, 9)
        inputs = image_inputs(X, {"eval": v2.TenCrop(5)})
        assert inputs.sample_shape == (3, 5, 5)
        batch = inputs.take(ALL)
        assert batch.shape == (6, 10, 3, 5, 5)
        center = torch.from_numpy(X)[:, :, 2:7, 2:7]
        assert torch.equal(batch[:, 4], center)
        assert torch.equal(batch[:, 9], center.flip(3))

    def test_a_stack_of_views_is_as_good_as_a_list(self):
        X = pixels(6, 3, 9, 9)
        as_list = image_inputs(X, {"eval": lambda x: [x, x.flip(2)]})
        as_stack = image_inputs(X, {"eval": lambda x: torch.stack([x, x.flip(2)])})
        assert torch.equal(as_list.take(ALL), as_stack.take(ALL))
        assert as_stack.sample_shape == (3, 9, 9)

    def test_views_are_refused_in_training(self):
        inputs = image_inputs(pixels(6, 3, 9, 9), lambda x: [x, x])
        with pytest.raises(ValueError, match=r"\{'train': \.\.\., 'eval': \.\.\.\}"):
            inputs.subset(np.arange(6), training=True).take(ALL)

    def test_looking_at_the_shape_leaves_the_generator_alone(self):
        inputs = image_inputs(pixels(6, 8, 8), lambda x: x + torch.randint(2, x.shape))
        state = torch.get_rng_state()
        assert inputs.sample_shape == (1, 8, 8)
        assert torch.equal(state, torch.get_rng_state())

    def test_an_error_inside_names_the_sample(self):
        def fail(x):
            raise KeyError("mine")

        with pytest.raises(KeyError) as caught:
            image_inputs(pixels(6, 8, 8), fail).take(torch.tensor([4]))
        assert "image 4" in caught.value.__notes__[0]

    def test_sizes_that_differ_are_refused(self):
        inputs = image_inputs(pixels(6, 8, 8), lambda x: x[:, : 4 + int(x[0, 0, 0]) % 4])
        with pytest.raises(ValueError, match="`transform` must give all of them one form"):
            inputs.take(ALL)

    @pytest.mark.parametrize(
        ("transform", "error"),
        [
            ("crop", TypeError),
            (3, TypeError),
            ({"test": None}, ValueError),
            ({"train": "crop"}, TypeError),
        ],
    )
    def test_transforms_of_the_wrong_type(self, transform, error):
        with pytest.raises(error, match="transform"):
            image_inputs(pixels(6, 8, 8), transform)

    def test_what_a_transform_returns_must_be_an_image(self):
        with pytest.raises(TypeError, match="got str"):
            image_inputs(pixels(6, 8, 8), lambda x: "image").take(ALL)

    def test_what_is_drawn_goes_by_the_sample_and_not_by_its_place(self):
        inputs = image_inputs(pixels(6, 8, 8), lambda x: torch.rand(1, 8, 8))
        x = inputs.take(ALL, seed=3)
        assert len(x.unique()) == x.numel()
        assert torch.equal(inputs.take(ALL.flip(0)[:4], seed=3), x.flip(0)[:4])


class TestRefusals:
    @pytest.mark.parametrize("shape", [(2, 3, 4, 5, 6), (0, 8, 8), (3, 0, 8)])
    def test_shapes(self, shape):
        with pytest.raises(ValueError, match="shape"):
            image_inputs(np.zeros(shape, np.uint8))

    def test_channels_that_cannot_be_told(self):
        with pytest.raises(ValueError, match="first or last"):
            image_inputs(pixels(2, 8, 8, 8))

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    @pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
    def test_values_that_are_not_finite(self, value, kind):
        X = pixels(600, 8, 8, dtype=np.float32)
        X[500, 3, 3] = value
        with pytest.raises(ValueError, match="NaN or infinite"):
            image_inputs(kind(X))

    @pytest.mark.parametrize(
        ("change", "remedy"),
        [
            (torch.Tensor.to_sparse, "to_dense"),
            (lambda x: x.to(torch.float8_e4m3fn), "float"),
            (lambda x: torch.quantize_per_tensor(x, 1, 0, torch.quint8), "dequantize"),
        ],
    )
    def test_tensors_that_are_not_plain(self, change, remedy):
        images = change(torch.ones(2, 8, 8))
        for X in (images, [images[0], images[1]]):
            with pytest.raises(TypeError, match=rf"X is a tensor of .*: pass X\.{remedy}\(\)"):
                image_inputs(X)

    @pytest.mark.parametrize("dtype", ["complex64", "U3", "datetime64[s]"])
    def test_types(self, dtype):
        with pytest.raises(TypeError, match="real numbers"):
            image_inputs(np.zeros((2, 8, 8), dtype))


class TestStatistics:
    def test_bytes_are_measured_between_zero_and_one(self):
        X = pixels(50, 3, 8, 8)
        mean, std, low, high = image_inputs(X).statistics()
        scaled = X / 255
        np.testing.assert_allclose(mean, scaled.mean((0, 2, 3)), rtol=1e-12)
        np.testing.assert_allclose(std, scaled.std((0, 2, 3)), rtol=1e-9)
        assert (low, high) == (scaled.min(), scaled.max())

    def test_floats_are_measured_as_they_are(self):
        X = 7 + 3 * np.random.default_rng(0).standard_normal((50, 2, 8, 8))
        mean, std, *_ = image_inputs(X).statistics()
        np.testing.assert_allclose(mean, X.mean((0, 2, 3)), rtol=1e-6)
        np.testing.assert_allclose(std, X.std((0, 2, 3)), rtol=1e-6)

    def test_what_rounding_leaves_of_a_constant_channel_is_no_spread(self):
        X = np.random.default_rng(0).random((31, 3, 7, 9))
        for value in np.arange(0.1, 1, 0.1):
            X[:, 1] = value
            assert image_inputs(X).statistics().std[1] == 1

    def test_a_constant_channel_keeps_its_scale(self):
        X = pixels(20, 3, 8, 8)
        X[:, 1] = 255
        assert image_inputs(X).statistics().std[1] == 1

    def test_only_the_training_samples_are_measured(self):
        X = pixels(20, 3, 8, 8)
        X[10:] = 0
        part = image_inputs(X).subset(np.arange(10), training=True)
        np.testing.assert_allclose(part.statistics().mean, (X[:10] / 255).mean((0, 2, 3)))

    def test_a_bounded_number_of_samples_is_read(self):
        class Counting:
            n_read = 0

            def __len__(self):
                return 100_000

            def take(self, indices):
                type(self).n_read += len(indices)
                return torch.zeros(len(indices), 3, 4, 4)

        channel_statistics(Counting(), n_samples=100)
        assert Counting.n_read == 100

    def test_channels_are_measured_each_by_its_own_size(self):
        X = pixels(20, 3, 8, 8) / 255
        X[:, 0] *= 1e7
        np.testing.assert_allclose(image_inputs(X).statistics().std, X.std((0, 2, 3)), rtol=1e-3)

    def test_views_count_as_samples(self):
        inputs = image_inputs(pixels(20, 3, 8, 8), {"eval": lambda x: [x, 255 - x]})
        np.testing.assert_allclose(inputs.statistics().mean, 0.5)


def test_pictures_and_arrays_become_the_same_tensor():
    grey, colour = pixels(7, 5), pixels(7, 5, 3)
    assert torch.equal(to_tensor(Image.fromarray(grey)), torch.from_numpy(grey)[None])
    expected = torch.from_numpy(colour).permute(2, 0, 1)
    assert torch.equal(to_tensor(Image.fromarray(colour)), expected)
    assert torch.equal(to_tensor(colour), expected)
    assert torch.equal(to_tensor(Image.fromarray(colour).convert("RGBA")), expected)
    assert torch.equal(to_tensor(expected), expected)


@pytest.mark.parametrize("mode", ["P", "1", "LA", "CMYK", "RGBA", "YCbCr"])
def test_lists_of_pil_images_of_any_mode_are_those_of_a_dataset(mode):
    rng = np.random.default_rng(0)
    images = [
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).convert(mode) for _ in range(2)
    ]
    listed = media_inputs(images, "image")
    plain = [np.asarray(image.convert("L" if mode == "1" else "RGB")) for image in images]
    assert torch.equal(listed.take([0, 1]), media_inputs(np.stack(plain), "image").take([0, 1]))


def test_lists_of_images_of_several_sizes_are_for_a_transform():
    images = [pixels(8, 9, 3), pixels(10, 9, 3), Image.fromarray(pixels(8, 11))]
    with pytest.raises(ValueError, match=r"image 1 is of shape \(3, 10, 9\).*resize or crop"):
        image_inputs(images).take([0, 1])
    inputs = image_inputs(images, v2.Compose([v2.CenterCrop(8), v2.Grayscale()]))
    assert inputs.sample_shape == (1, 8, 8)
    expected = v2.functional.center_crop(torch.from_numpy(pixels(8, 11)), 8)
    assert torch.equal(inputs.take([2])[0, 0], expected)
    with pytest.raises(AttributeError) as caught:
        image_inputs(images, lambda image: image.convert("L")).take([0])
    assert "image 0, by `transform`" in caught.value.__notes__[0]
    assert "given: Tensor" in caught.value.__notes__[0]
    for form, other, remedy in (
        ((8, 9, 4), np.uint8, r"as many channels, as by image\.convert\('RGB'\)"),
        ((8, 9, 3), np.float32, "one type"),
    ):
        with pytest.raises(ValueError, match=remedy):
            image_inputs([images[0], pixels(*form, dtype=other), images[1]]).take([0, 1])


def test_the_image_that_others_differ_from_is_named_in_subsets_too():
    inputs = image_inputs([pixels(8, 9, 3)] * 5 + [pixels(10, 9, 3)] * 2)
    assert inputs.sample_shape == (3, 8, 9)
    with pytest.raises(ValueError, match=r"image 0 is of shape \(3, 8, 9\).*image 5 is of"):
        inputs.subset([5, 6]).take([0])


@pytest.mark.parametrize("transform", [None, v2.PILToTensor()])
def test_any_sequence_of_images_is_a_list_of_them(transform):
    images = [Image.fromarray(pixels(8, 8, 3, seed=i)).convert("P") for i in range(6)]
    for X in (UserList(images), tuple(images)):
        assert input_kind(X) == "image"
        listed = image_inputs(X, transform)
        assert torch.equal(listed.take(ALL), image_inputs(images, transform).take(ALL))


def test_lists_that_an_array_can_hold_are_in_memory():
    colours = Image.fromarray(pixels(8, 8, 3))
    assert image_inputs([colours, colours.convert("P")]).in_memory
    assert not image_inputs([colours, colours.convert("L")]).in_memory
    rows = [pixels(8, 8, 3).tolist(), pixels(9, 9, 3).tolist()]
    listed = image_inputs(rows, lambda image: image[:, :8, :8])
    assert torch.equal(listed.take([0]), image_inputs(pixels(1, 8, 8, 3)).take([0]).float())


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize("dtype", [np.float64, np.int64, bool])
def test_bytes_and_other_numbers_in_one_list_are_refused(kind, dtype):
    images = [kind(pixels(3, 9, 8)), kind(pixels(3, 9, 8).astype(dtype))]
    with pytest.raises(ValueError, match=r"image 1 is of .*float32; give all of them one type"):
        image_inputs(images).take(ALL[:2])
    made_one = image_inputs(images, lambda image: image.float())
    assert made_one.take(ALL[:2]).dtype == torch.float32


def test_images_as_objects_and_among_paths_are_named(tmp_path):
    image = Image.fromarray(pixels(8, 8, 3))
    objects = np.empty(2, dtype=object)
    objects[:] = [image, image]
    arrays = np.empty(2, dtype=object)
    arrays[:] = [pixels(8, 9, 3), pixels(9, 9, 3)]
    for X in (objects, arrays, pd.Series([image, image])):
        with pytest.raises(TypeError, match=r"pass a list of them, X\.tolist\(\)"):
            input_kind(X)
    with pytest.raises(TypeError, match=r"X must hold paths of images, but X\[1\] is <PIL"):
        media_inputs(["a.png", image], "path")


@pytest.mark.parametrize("place", ["list", "dataset"])
def test_images_of_pil_stay_as_they_are_whatever_a_transform_draws_on_them(place):
    def erase(image):
        image.paste(0, (0, 0, 4, 4))
        return image

    images = [Image.fromarray(image) for image in pixels(4, 8, 8, 3)]
    before = [np.array(image) for image in images]
    X = {"list": images, "dataset": [(image, 0) for image in images]}[place]
    inputs = media_inputs(X, {"list": "image", "dataset": "dataset"}[place], erase)
    assert not inputs.take([0, 1])[:, :, :4, :4].any()
    np.testing.assert_array_equal(images, before)


@pytest.mark.parametrize("kind", ["list", "arrays", "dataset", "parts", "tensor"])
def test_what_is_given_stays_as_it_is_whatever_a_transform_writes(kind):
    def erase(sample):
        (sample["image"] if kind == "parts" else sample)[:] = 0
        return sample

    given = torch.rand(4, 3, 8, 8)
    before = given.clone()
    X = {
        "list": [image[:, :, : 8 - i % 2] for i, image in enumerate(given)],
        "arrays": [image[:, : 8 - i % 2].numpy() for i, image in enumerate(given)],
        "dataset": TensorDataset(given),
        "parts": StackDataset(image=given),
        "tensor": given,
    }[kind]
    inputs = media_inputs(X, "image" if kind in ("list", "arrays", "tensor") else "dataset", erase)
    assert inputs.take([0]) is not None
    assert torch.equal(given, before)


def test_a_transform_gets_parts_in_their_own_type():
    class Record(dict):
        __getattr__ = dict.__getitem__

    records = [Record(ids=np.arange(3)) for _ in range(4)]

    class Records(torch.utils.data.Dataset):
        def __len__(self):
            return len(records)

        def __getitem__(self, i):
            return records[i]

    inputs = media_inputs(Records(), "dataset", lambda record: {"ids": record.ids * 2})
    assert inputs.take([1])["ids"].tolist() == [[0, 2, 4]]


def test_tensors_in_a_list_have_the_channels_first():
    tensors = [torch.rand(3, 20, 4), torch.rand(3, 20, 4)]
    assert image_inputs(tensors).sample_shape == image_inputs(torch.stack(tensors)).sample_shape


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "CMYK"])
def test_transforms_get_pil_images_from_lists_of_them_as_from_paths(mode, tmp_path):
    image = Image.fromarray(pixels(8, 8, 3)).convert(mode)
    image.save(tmp_path / "x.tiff")
    crop = v1.Compose([v1.Resize(6), v1.Grayscale(3), v1.ToTensor()])
    listed = image_inputs([image, image], crop)
    read = media_inputs([tmp_path / "x.tiff"], "path", crop)
    assert torch.equal(listed.take([1]), read.take([0]))


@pytest.mark.parametrize("shape", [(12, 12, 5), (12, 12, 2), (5, 12, 12), (4, 4, 4), (3, 12, 9)])
def test_a_dataset_of_arrays_has_the_channels_of_an_array(shape):
    class Arrays(list, torch.utils.data.Dataset):
        pass

    X = pixels(3, *shape)
    whole, single = image_inputs(X), media_inputs(Arrays(X), "dataset")
    assert torch.equal(single.take([0, 2]), whole.take([0, 2]))


def test_tensors_of_a_dataset_have_their_channels_first():
    X = torch.from_numpy(pixels(3, 12, 12, 3))
    with pytest.raises(ValueError, match=r"\(12, 12, 3\) seem to have.*permute\(2, 0, 1\)"):
        media_inputs(TensorDataset(X), "dataset").sample_shape  # noqa: B018
    maps = torch.zeros(3, 16, 4, 4)
    assert media_inputs(TensorDataset(maps), "dataset").sample_shape == (16, 4, 4)


def test_volumes_without_a_transform_are_told_their_name():
    for shape in ((5, 3, 8, 8), (2, 5, 3, 8, 8)):
        X = TensorDataset(torch.zeros(3, *shape, dtype=torch.uint8))
        for dataset in (X, Subset(X, [0])):
            inputs = media_inputs(dataset, "dataset").subset([0], training=True)
            with pytest.raises(ValueError, match="volumes and videos get a name"):
                inputs.take([0])
    views = media_inputs(Subset(TensorDataset(torch.zeros(3, 5, 3, 8, 8)), [0]), "dataset")
    assert views.sample_shape == (3, 8, 8)


def test_masks_are_not_lost():
    X = np.ma.masked_array(pixels(4, 8, 8, 3), mask=False)
    assert image_inputs(X).sample_shape == (3, 8, 8)
    assert image_inputs(list(X)).sample_shape == (3, 8, 8)
    X[0, 0, 0, 0] = np.ma.masked
    sizes = [X[1], X[0, :5]]
    for given, kind in (
        (X, "image"),
        (list(X), "image"),
        ([list(x) for x in X], "image"),
        (sizes, "image"),
        (StackDataset(X), "dataset"),
        ({"image": X}, "named"),
        ({"image": list(X)}, "named"),
        (StackDataset(image=X), "dataset"),
    ):
        with pytest.raises(ValueError, match="whose mask would be lost"):
            media_inputs(given, kind, CROP if given is sizes else None).take(ALL[:2])

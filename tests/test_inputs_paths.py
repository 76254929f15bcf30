"""Paths of images: lazy reading, slices, and errors that name the file."""

from pathlib import Path

import numpy as np
import pytest
import torch
from joblib import parallel_config
from PIL import Image
from sklearn.model_selection import GridSearchCV
from torchvision.transforms import v2

from sksetvalued import TopKClassifier
from sksetvalued.inputs import input_kind, media_inputs

SIZE = 12


@pytest.fixture
def folder(tmp_path):
    """30 images of 3 classes told apart by their colour, and one in another size."""
    rng = np.random.default_rng(0)
    for i in range(30):
        image = rng.integers(0, 100, (SIZE, SIZE, 3), dtype=np.uint8)
        image[..., i % 3] += 150
        Image.fromarray(image).save(tmp_path / f"{i:02d}.png")
    return tmp_path


@pytest.fixture
def paths(folder):
    return np.array(sorted(str(path) for path in folder.glob("*.png")))


y = np.array(["red", "green", "blue"] * 10)


def path_inputs(X, transform=None):
    return media_inputs(X, "path", transform)


def classifier(**params):
    """Return a small classifier that reads images in this process."""
    params = {"k": 1, "max_epochs": 2, "lr": 1e-2, "batch_size": 10, "random_state": 0} | params
    params.setdefault(
        "net_params", {f"iterator_{part}__num_workers": 0 for part in ("train", "valid")}
    )
    return TopKClassifier(loss="cross_entropy", **params)


class Column:
    """Values that are scalars of their own where one iterates, as in pyarrow and xarray."""

    def __init__(self, values):
        self.values = values

    def __iter__(self):
        return map(np.array, self.values)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)


@pytest.mark.parametrize(
    "form",
    [
        np.asarray,
        list,
        lambda p: [Path(q) for q in p],
        lambda p: np.asarray(p, dtype=object),
        Column,
    ],
)
def test_paths_may_come_in_several_forms(paths, form):
    X = form(paths)
    assert input_kind(X) == "path"
    batch = path_inputs(X).take(torch.tensor([3]))
    expected = torch.from_numpy(np.array(Image.open(paths[3]))).permute(2, 0, 1)
    assert torch.equal(batch[0], expected)


def test_nothing_is_read_before_a_batch_is_taken(paths, folder):
    inputs = path_inputs(paths)
    for path in paths[1:]:
        Path(path).write_bytes(b"")
    assert inputs.subset(np.arange(5)).sample_shape == (3, SIZE, SIZE)


def test_images_are_read_in_colour_and_transformed(folder):
    grey = np.arange(SIZE * SIZE, dtype=np.uint8).reshape(SIZE, SIZE)
    Image.fromarray(grey).save(folder / "grey.png")
    path = str(folder / "grey.png")
    assert path_inputs([path]).sample_shape == (3, SIZE, SIZE)

    from torchvision.transforms import v2

    batch = path_inputs([path], v2.Grayscale()).take(torch.tensor([0]))
    assert torch.equal(batch[0, 0], torch.from_numpy(grey))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr"])
def test_images_of_any_eight_bit_mode_become_colours(folder, mode):
    image = Image.fromarray(np.full((SIZE, SIZE, 3), 255, np.uint8)).convert(mode)
    suffix = "jpg" if mode in ("CMYK", "YCbCr") else "png"
    image.save(folder / f"x.{suffix}")
    batch = path_inputs([folder / f"x.{suffix}"]).take(torch.tensor([0]))
    assert batch.shape == (1, 3, SIZE, SIZE)
    assert batch.min() > 250


def test_photographs_are_turned_upright(folder):
    upright = np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)
    turned = Image.fromarray(upright).transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 270 degrees to be upright
    turned.save(folder / "turned.png", exif=exif)
    turned.save(folder / "damaged.png", exif=b"Exif\x00\x00no metadata")
    batches = [path_inputs([folder / f"{n}.png"]).take([0]) for n in ("turned", "damaged")]
    assert torch.equal(batches[0][0], torch.from_numpy(upright).permute(2, 0, 1))
    assert batches[1].shape == (1, 3, 9, 6)
    # What was made of an image that was opened may have been turned already.
    opened, made = (Image.open(folder / "turned.png") for _ in range(2))
    pairs = [(opened, 0), (made.convert("RGB"), 0)]
    for transform in (None, lambda image: image):
        # Any sequence with a length can stand for a Dataset.
        for kind, X in (("image", [opened]), ("dataset", pairs[:1])):
            batch = media_inputs(X, kind, transform).take([0])
            assert torch.equal(batch[0].to(torch.uint8), batches[0][0])
        assert media_inputs([pairs[1][0]], "image", transform).take([0]).shape[-2:] == (9, 6)
    assert opened.size == (6, 9)


def test_the_first_frame_of_an_animation_is_the_image(folder):
    first, second = (Image.new("RGB", (8, 8), colour) for colour in ("red", "blue"))
    first.save(folder / "frames.png", save_all=True, append_images=[second])
    (image,) = path_inputs([folder / "frames.png"]).take(torch.tensor([0]))
    assert image[:, 0, 0].tolist() == [255, 0, 0]


def test_smaller_copies_in_a_file_are_no_pages_of_their_own(folder):
    image, copy = Image.new("RGB", (8, 8), "red"), Image.new("RGB", (4, 4), "red")
    copy.encoderinfo = {"tiffinfo": {254: 1}}  # an overview, as files of maps have
    image.putpixel((0, 0), (0, 0, 255))
    image.save(folder / "map.tif", save_all=True, append_images=[copy], tiffinfo={274: 3})
    assert Image.open(folder / "map.tif").n_frames == 2
    (read,) = path_inputs([folder / "map.tif"]).take(torch.tensor([0]))
    assert read.shape == (3, 8, 8)
    assert read[:, -1, -1].tolist() == [0, 0, 255]  # upright, by the tags of the first page


def test_scores_do_not_depend_on_the_workers(paths):
    few = classifier().fit(paths, y)
    many = classifier(transform=None).set_params(net_params=None).fit(paths, y)
    np.testing.assert_array_equal(few.decision_function(paths), many.decision_function(paths))


@pytest.mark.parametrize("shuffle", [True, False])
def test_what_transforms_draw_does_not_depend_on_the_workers(paths, shuffle):
    crop = v2.RandomCrop(SIZE - 3)

    def scores(n_workers, max_epochs=2):
        workers = {f"iterator_{part}__num_workers": n_workers for part in ("train", "valid")}
        workers["iterator_train__shuffle"] = shuffle
        clf = classifier(transform=crop, max_epochs=max_epochs).set_params(net_params=workers)
        before = torch.get_rng_state()
        found = clf.fit(paths, y).decision_function(paths)
        assert torch.equal(torch.get_rng_state(), before)
        # Nor, of a trained network, on the samples beside.
        np.testing.assert_allclose(clf.decision_function(paths[:1]), found[:1], atol=1e-5)
        return found

    np.testing.assert_array_equal(scores(0), scores(2))
    drawn = []
    look = classifier(transform={"train": lambda x: drawn.append(torch.rand(())) or x})
    look.net_params["iterator_train__shuffle"] = shuffle
    look.fit(paths, y)
    assert len(set(torch.stack(drawn[-60:]).tolist())) == 60  # of two epochs


class Anywhere(torch.utils.data.Dataset):
    """Samples that know whether a worker process reads them."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        here = torch.utils.data.get_worker_info() is None
        return torch.full((3, SIZE, SIZE), float(here)), y[i % 30]


def test_workers_predict_several_batches_where_there_may_be_some(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    clf = classifier(net_params={"iterator_train__num_workers": 0}).fit(Anywhere(30))
    here, there = clf.decision_function([np.full((SIZE, SIZE, 3), v, "f") for v in (1, 0)])

    def score(n):
        return clf.decision_function(Anywhere(n))[0]

    np.testing.assert_allclose(score(32), here, atol=1e-5)
    np.testing.assert_allclose(score(64), there, atol=1e-5)
    # In a process of a pool, which may start no others.
    monkeypatch.setattr("multiprocessing.parent_process", lambda: "a pool")
    np.testing.assert_allclose(score(64), here, atol=1e-5)


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch cannot fork after a fit on a GPU")
def test_a_grid_search_slices_paths(paths):
    def search(n_jobs):
        clf = classifier(max_epochs=1).set_params(net_params=None)
        grid = {"lr": [1e-2, 1e-6]}
        return GridSearchCV(clf, grid, cv=2, n_jobs=n_jobs, error_score="raise").fit(paths, y)

    with parallel_config("multiprocessing"):
        one, two = search(1), search(2)
    np.testing.assert_array_equal(
        one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"]
    )
    assert two.predict(list(paths[:4])).shape == (4,)


class TestErrors:
    def test_missing_files_are_named_before_training(self, paths):
        X = [*paths[:29], "nowhere/absent.png"]
        with pytest.raises(FileNotFoundError, match=r"1 paths \(of 30\).*nowhere/absent\.png"):
            classifier().fit(X, y)

    @pytest.mark.parametrize("num_workers", [0, 1])
    def test_a_corrupt_file_is_named(self, paths, num_workers):
        content = Path(paths[7]).read_bytes()
        Path(paths[7]).write_bytes(content[: len(content) // 2])
        clf = classifier()
        clf.net_params["iterator_train__num_workers"] = num_workers
        with pytest.raises(ValueError, match=r"07\.png"):
            clf.fit(paths, y)
        assert not hasattr(clf, "net_")

    def test_what_cannot_reach_a_worker_is_told(self, paths):
        clf = classifier(transform=lambda image: image)
        clf.net_params |= {
            "iterator_train__num_workers": 1,
            "iterator_train__multiprocessing_context": "spawn",
        }
        with pytest.raises(RuntimeError, match=r"no worker can be started: .*lambda.*num_workers"):
            clf.fit(paths, y)

    def test_a_file_that_its_reader_gives_up_on_is_named(self, paths, monkeypatch):
        def give_up(path):
            raise RuntimeError("Failed to decode image")  # as that of AVIF does

        monkeypatch.setattr(Image, "open", give_up)
        with pytest.raises(ValueError, match=r"The image '.*' cannot be read: Failed to decode"):
            TopKClassifier(1, max_epochs=1).fit(paths, np.arange(len(paths)) % 2)

    def test_a_file_that_is_no_image_is_named(self, folder):
        (folder / "x.png").write_text("not an image")
        with pytest.raises(ValueError, match=r"x\.png' is not an image"):
            path_inputs([folder / "x.png"]).take(torch.tensor([0]))

    def test_deep_images_are_refused_rather_than_clipped(self, folder):
        Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(folder / "deep.png")
        with pytest.raises(ValueError, match=r"deep\.png.*more than 8 bits"):
            path_inputs([folder / "deep.png"]).take(torch.tensor([0]))

    def test_pages_are_refused_rather_than_dropped(self, folder):
        first, second = (Image.new("RGB", (8, 8), colour) for colour in ("red", "blue"))
        first.save(folder / "stack.tif", save_all=True, append_images=[second, second])
        with pytest.raises(ValueError, match=r"stack\.tif'.*3 pages.*; split them.*channels"):
            path_inputs([folder / "stack.tif"]).take(torch.tensor([0]))

    def test_mixed_sizes_without_a_transform(self, paths, folder):
        Image.new("RGB", (SIZE, 2 * SIZE)).save(paths[4])
        with pytest.raises(ValueError, match=r"04\.png.*v2\.Resize"):
            path_inputs(paths).take(torch.arange(10))

        from torchvision.transforms import v2

        inputs = path_inputs(paths, v2.Resize((8, 8)))
        assert inputs.take(torch.arange(10)).shape == (10, 3, 8, 8)

    @pytest.mark.parametrize("bad", [3, None, b"x.png", float("nan"), ""])
    def test_paths_of_the_wrong_type(self, paths, bad):
        with pytest.raises(TypeError, match=r"X\[2\] is"):
            path_inputs([*paths[:2], bad])

    def test_paths_in_two_dimensions(self, paths):
        with pytest.raises(ValueError, match="one dimension"):
            path_inputs(paths.reshape(2, -1))

    def test_other_images_than_those_of_the_fit(self, paths):
        clf = classifier().fit(paths, y)
        with pytest.raises(ValueError, match=r"\(1, 5, 5\).*\(3, 12, 12\)"):
            clf.predict(np.zeros((2, 5, 5), np.uint8))

    def test_labels_of_another_length(self, paths):
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            classifier().fit(paths, y[:-1])

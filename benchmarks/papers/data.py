"""Data sets of the experiments, split into training, validation and test parts."""

import csv
import gzip
import importlib.util
import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sksetvalued.datasets import (
    corrupt_labels,
    load_plantnet300k,
    long_tail_indices,
    make_ambiguous_classification,
)

DATA_VARIABLE = "SKSETVALUED_DATA"
PACKS = Path(__file__).resolve().parents[3] / "shared" / "data"


class Split(NamedTuple):
    """Samples and labels of the three parts."""

    X_train: object
    y_train: np.ndarray
    X_val: object
    y_val: np.ndarray
    X_test: object
    y_test: np.ndarray


class DataMissing(Exception):
    """A data set that is not in the data folder."""


def data_folder(given=None):
    """Return the folder of the data: given, from the environment, or beside the repository."""
    return Path(given or os.environ.get(DATA_VARIABLE) or PACKS)


def load_split(data, folder, seed):
    """Return the split of a configuration's `data`, a dict with the key "name".

    Raises
    ------
    DataMissing
        If the folder does not hold the data set.
    """
    items = tuple(sorted((key, value) for key, value in data.items() if key != "name"))
    return _load(data["name"], items, Path(folder), seed)


@lru_cache(maxsize=2)
def _load(name, items, folder, seed):
    return READERS[name](folder, seed, **dict(items))


def _existing(path):
    if not path.exists():
        raise DataMissing(f"{path} does not exist; give its folder by --data or {DATA_VARIABLE}")
    return path


def synthetic(folder, seed, *, n_samples=600, n_classes=12):
    """Ambiguous classes drawn at random: for trying the runner."""
    X, y, _, _ = make_ambiguous_classification(
        n_samples=n_samples, n_classes=n_classes, random_state=seed
    )
    parts = np.split(np.arange(n_samples), [n_samples // 2, 3 * n_samples // 4])
    return Split(*(array[part] for part in parts for array in (X, y)))


def banking77(folder, seed, *, n_val, per_class=None, imbalance=None, largest=None):
    """BANKING77 as TF-IDF vectors: a part of the training texts, and the official test set.

    The seed draws `n_val` validation texts of each class, and the training texts among the
    others: `per_class` of each class, or from `largest` texts for the most frequent class down to
    ``largest / imbalance`` in geometric progression.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts, y, test = _banking_texts(_existing(folder / "banking77.csv.gz"))
    pool = np.flatnonzero(~test)
    classes, available = np.unique(y[pool], return_counts=True)
    rng = np.random.RandomState(seed)
    val = pool[_choose(y[pool], dict.fromkeys(classes.tolist(), n_val), rng)]
    rest = np.setdiff1d(pool, val)
    order = np.argsort(-available, kind="stable")
    wanted = _wanted(classes[order], per_class, imbalance, largest)
    train = rest[_choose(y[rest], wanted, rng)]
    vectorizer = TfidfVectorizer(sublinear_tf=True).fit(texts[train])
    parts = (train, val, np.flatnonzero(test))
    return Split(*(a for i in parts for a in (vectorizer.transform(texts[i]), y[i])))


def _banking_texts(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = ([row[name] for row in rows] for name in ("text", "label", "split"))
    texts, labels, split = (np.array(column) for column in columns)
    return texts, labels, split == "test"


def _choose(y, counts, rng):
    return long_tail_indices(y, counts=counts, random_state=rng)


def _wanted(ranked, per_class, imbalance, largest):
    """Return how many samples each class is to have, by label, the largest class first."""
    if per_class is not None:
        return dict.fromkeys(ranked.tolist(), per_class)
    exponent = np.arange(len(ranked)) / (len(ranked) - 1)
    counts = np.round(largest * float(imbalance) ** -exponent).astype(int)
    return dict(zip(ranked.tolist(), counts.tolist()))


def _real_counts(folder, tail, n_classes):
    """Return training samples of `n_classes` classes of a real long tail, the largest first."""
    counts = np.load(_existing(folder / "longtail_counts.npz"))[f"{tail}_train_sorted_approx"]
    return counts[np.linspace(0, len(counts) - 1, n_classes).round().astype(int)]


def omniglot(folder, seed, *, noise, n_alphabets=None):
    """Omniglot characters in groups of five of an alphabet, labels redrawn within the groups.

    Of the 20 drawers of each character 12 train, 3 validate and 5 test, drawn by the seed. The
    labels of training and validation are noisy, those of the test set are not.
    """
    pack = np.load(_existing(folder / "omniglot_small.npz"))
    groups = _groups_of_five(pack["class_to_alphabet"], n_alphabets)
    kept = np.flatnonzero(np.isin(pack["y"], list(groups)))
    X, y = pack["images"][kept], pack["y"][kept].astype(int)
    rng = np.random.RandomState(seed)
    role = np.repeat([0, 1, 2], [12, 3, 5])[rng.permutation(20)[pack["drawer"][kept] - 1]]
    noisy = corrupt_labels(y, groups, noise, random_state=rng)
    labels = (noisy, noisy, y)
    X = np.ascontiguousarray(X[..., None])
    return Split(
        *(a for i, target in enumerate(labels) for a in (X[role == i], target[role == i]))
    )


def _groups_of_five(alphabet_of_class, n_alphabets):
    """Return the group of each class, leaving out the last few classes of an alphabet."""
    groups = {}
    for alphabet in np.unique(alphabet_of_class)[:n_alphabets]:
        members = np.flatnonzero(alphabet_of_class == alphabet)
        for start in range(0, len(members) - 4, 5):
            groups |= {int(c): f"{alphabet}-{start}" for c in members[start : start + 5]}
    return groups


def cifar100_pack(
    folder, seed, *, n_val, n_classes=100, per_class=None, imbalance=None, largest=None,
    tail=None, noise=0.0,
):  # fmt: skip
    """Half of CIFAR-100 at 16 x 16 pixels, with a test set of its own draw.

    The seed draws validation and training images as in `banking77`, which classes are there, and
    which of them are the large ones. With `tail`, the classes have the training counts of a real
    data set at evenly spaced ranks, at most `largest`. With `noise`, the labels of both parts are
    redrawn within the superclasses.
    """
    pack, images = image_pack(folder, "cifar100_a.npz")
    y, test = pack["y_fine"].astype(int), pack["is_test"]
    rng = np.random.RandomState(seed)
    ranked = rng.permutation(100)[:n_classes]
    kept = np.isin(y, ranked)
    pool = np.flatnonzero(kept & ~test)
    val = pool[_choose(y[pool], dict.fromkeys(ranked.tolist(), n_val), rng)]
    rest = np.setdiff1d(pool, val)
    if tail is None:
        wanted = _wanted(ranked, per_class, imbalance, largest)
    else:
        counts = _real_counts(folder, tail, n_classes).clip(max=largest)
        wanted = dict(zip(ranked.tolist(), counts.tolist()))
    train = rest[_choose(y[rest], wanted, rng)]
    noisy = corrupt_labels(y, pack["fine_to_coarse"], noise, random_state=rng)
    parts = ((train, noisy), (val, noisy), (np.flatnonzero(kept & test), y))
    return Split(*(a for i, target in parts for a in (images[i], target[i])))


def grocery_store(folder, seed):
    """Grocery Store with its official split, at 16 x 16 pixels; the seed draws nothing."""
    pack, images = image_pack(folder, "grocery_store_48.npz")
    y = pack["y_fine"].astype(int)
    parts = (pack["split"] == pack["split_names"].tolist().index(n) for n in _PACK_SPLITS)
    return Split(*(a for part in parts for a in (images[part], y[part])))


_PACK_SPLITS = ("train", "val", "test")


@lru_cache(maxsize=1)
def image_pack(folder, name):
    """Return a pack and its images, reduced to 16 x 16 pixels by the means of squares."""
    pack = np.load(_existing(folder / name))
    spec = importlib.util.spec_from_file_location("load_packs", folder / "load_packs.py")
    readers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(readers)
    images = readers.decode_images(pack)
    n, height, width, n_channels = images.shape
    blocks = images.reshape(n, 16, height // 16, 16, width // 16, n_channels)
    return pack, blocks.mean((2, 4), dtype=np.float32).round().astype(np.uint8)


def cifar100(folder, seed, *, noise):
    """The official CIFAR-100 (from torchvision's folder), 5000 training images for validation."""
    from torchvision.datasets import CIFAR100

    _existing(folder / "cifar-100-python")
    train, test = (CIFAR100(folder, train=part) for part in (True, False))
    y, coarse = np.array(train.targets), _cifar_superclasses(folder)
    groups = dict(zip(y.tolist(), coarse.tolist()))
    rng = np.random.RandomState(seed)
    noisy = corrupt_labels(y, groups, noise, random_state=rng)
    val = np.isin(np.arange(len(y)), rng.permutation(len(y))[:5000])
    return Split(
        train.data[~val], noisy[~val], train.data[val], noisy[val],
        test.data, np.array(test.targets),
    )  # fmt: skip


def _cifar_superclasses(folder):
    import pickle

    with open(folder / "cifar-100-python" / "train", "rb") as file:
        return np.array(pickle.load(file, encoding="latin1")["coarse_labels"])


def plantnet(folder, seed):
    """Pl@ntNet-300K with its official split, as paths of images."""
    _existing(folder / "plantnet_300K")
    parts = [load_plantnet300k(folder, split)[:2] for split in ("train", "val", "test")]
    return Split(*(array for part in parts for array in part))


READERS = {
    reader.__name__: reader
    for reader in (
        synthetic, banking77, omniglot, cifar100_pack, grocery_store, cifar100, plantnet
    )
}  # fmt: skip


def image_transform(name):
    """Return the transforms of the papers' image recipes, or None for other data sets."""
    if name not in ("cifar100", "plantnet"):
        return None
    from torchvision.transforms import v2

    if name == "cifar100":
        crop = v2.RandomCrop(32, padding=4)
        return {"train": v2.Compose([crop, v2.RandomHorizontalFlip()])}
    resize = v2.Resize((256, 256))
    return {
        "train": v2.Compose([resize, v2.RandomCrop(224)]),
        "eval": v2.Compose([resize, v2.CenterCrop(224)]),
    }

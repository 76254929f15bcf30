"""The tasks, and which of them were for choosing the defaults and which for reporting."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import softmax
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfVectorizer

from sksetvalued.datasets import corrupt_labels, long_tail_indices, make_ambiguous_classification

from ..papers.data import image_pack
from . import sources


class Split(NamedTuple):
    """Training and test parts; of the latter the true probabilities where they are known."""

    X_train: object
    y_train: np.ndarray
    X_test: object
    y_test: np.ndarray
    p_test: np.ndarray | None = None


@dataclass(frozen=True)
class Task:
    """A data set, its split, and the sizes of the sets.

    Parameters
    ----------
    kind : {"text", "table", "image"}
    k : int
        Size of the sets of `TopKClassifier`.
    average_k : float
        Average size of those of `AverageKClassifier`.
    load : callable
        ``load(folder, rng)`` returns a `Split`; `rng` draws it.
    seeds : int
        How many splits are drawn; more where the test part is small.
    what : str
    """

    kind: str
    k: int
    average_k: float
    load: Callable
    what: str
    seeds: int = 3


def _split(X, y, rng, n_train, n_test=None):
    """Draw training rows, and test rows of classes that these know."""
    order = rng.permutation(len(y))
    train, test = order[:n_train], order[n_train:]
    test = test[np.isin(y[test], y[train])][:n_test]
    return Split(X[train], y[train], X[test], y[test])


def _few_per_class(y, pool, n, rng):
    """Draw `n` rows of each class, or all there are."""
    order = rng.permutation(pool)
    order = order[np.argsort(y[order], kind="stable")]
    _, start, counts = np.unique(y[order], return_index=True, return_counts=True)
    return order[(np.arange(len(order)) - np.repeat(start, counts)) < n]


def _vectorized(texts, y, train, test):
    vectorizer = TfidfVectorizer(sublinear_tf=True).fit(texts[train])
    return Split(
        vectorizer.transform(texts[train]), y[train], vectorizer.transform(texts[test]), y[test]
    )


# -- texts --------------------------------------------------------------------------------------


def banking_few(folder, rng):
    texts, y, test = sources.banking77(folder)
    train = _few_per_class(y, np.flatnonzero(~test), 10, rng)
    return _vectorized(texts, y, train, np.flatnonzero(test))


def banking_tail(folder, rng):
    texts, y, test = sources.banking77(folder)
    pool = np.flatnonzero(~test)
    classes, available = np.unique(y[pool], return_counts=True)
    wanted = np.round(120 * 30.0 ** -(np.arange(77) / 76)).astype(int)
    counts = dict(zip(classes[np.argsort(-available, kind="stable")].tolist(), wanted.tolist()))
    train = pool[long_tail_indices(y[pool], counts=counts, random_state=rng)]
    return _vectorized(texts, y, train, np.flatnonzero(test))


def hwu_few(folder, rng):
    texts, y = sources.hwu64(folder)
    train = _few_per_class(y, np.arange(len(y)), 10, rng)
    rest = rng.permutation(np.setdiff1d(np.arange(len(y)), train))[:4000]
    return _vectorized(texts, y, train, rest)


def hwu(folder, rng):
    texts, y = sources.hwu64(folder)
    order = rng.permutation(len(y))
    return _vectorized(texts, y, order[:6000], order[6000:])


def trec(folder, rng):
    texts, y = sources.trec(folder)
    order = rng.permutation(len(y))
    train, test = order[:3900], order[3900:]
    return _vectorized(texts, y, train, test[np.isin(y[test], y[train])])


def clinc_few(folder, rng):
    texts, y = sources.clinc150(folder)
    train = _few_per_class(y, np.arange(len(y)), 10, rng)
    rest = rng.permutation(np.setdiff1d(np.arange(len(y)), train))[:6000]
    return _vectorized(texts, y, train, rest)


def clinc(folder, rng):
    texts, y = sources.clinc150(folder)
    order = rng.permutation(len(y))
    return _vectorized(texts, y, order[:10000], order[10000:18000])


def rarest_label(folder, rng, name, n_labels, n_train, n_test):
    """A multi-label set with one label per row: the rarest of its frequent ones."""
    X, Y = sources.mulan(folder, name)
    counts = np.asarray(Y.sum(0)).ravel()
    frequent = np.sort(np.argsort(-counts, kind="stable")[:n_labels])
    Y = np.asarray(Y[:, frequent].todense()) > 0
    kept = np.flatnonzero(Y.any(1))
    y = np.where(Y[kept], counts[frequent], np.inf).argmin(1)
    return _split(X[kept].astype(np.float64), y, rng, n_train, n_test)


# -- tables -------------------------------------------------------------------------------------


def ambiguous(folder, rng, n_train, n_test=5000, tail=None, **params):
    weights = None
    if tail is not None:
        weights = float(tail) ** -np.linspace(0, 1, params["n_classes"])
    X, y, p, _ = make_ambiguous_classification(
        n_train + n_test, class_weights=weights, random_state=rng, **params
    )
    return _known(X, y, p, n_train)


def _known(X, y, p, n_train):
    """Split drawn rows; the classes are those of the training rows."""
    seen = np.unique(y[:n_train])
    test = n_train + np.flatnonzero(np.isin(y[n_train:], seen))
    return Split(X[:n_train], y[:n_train], X[test], y[test], p[test][:, seen])


def digits_pixels(folder, rng):
    X, y = load_digits(return_X_y=True)
    return _split(X[:, rng.permutation(64)[:24]], y, rng, 900)


def uci(folder, rng, name, label, columns, n_train, n_test=None, **options):
    X, y = sources.table(folder, name, label, columns, **options)
    return _split(X, y, rng, n_train, n_test)


def of_categories(folder, rng, name, n_train):
    return _split(*sources.categories(folder, name), rng, n_train)


def of_mixed_columns(folder, rng, name, n_train):
    return _split(*sources.mixed(folder, name), rng, n_train)


def occupation(folder, rng):
    return _split(*sources.occupations(folder), rng, 2000, 5000)


def landsat(folder, rng):
    parts = [
        sources.table(folder, name, 36, slice(0, 36), delimiter=None, skip=1)
        for name in ("sat.trn", "sat.tst")
    ]
    return _split(*(np.concatenate(arrays) for arrays in zip(*parts)), rng, 4000)


def letter_noisy(folder, rng):
    """Letters whose training and test labels are redrawn among similar shapes."""
    X, y = sources.table(folder, "letter-recognition.data", 0, slice(1, 17), skip=1)
    groups = {c: g for g, cs in enumerate(LIKE_SHAPES.split()) for c in cs}
    return _split(X, corrupt_labels(y, groups, 0.4, random_state=rng), rng, 4000, 5000)


LIKE_SHAPES = "BEPRF OQDCG MNHUW VYTIJ KXZ SAL"


def random_network(folder, rng, n_train, n_features, n_classes, sharpness, wild=False):
    """Labels drawn from the softmax of a random network with sines; some columns are noise.

    With `wild`, columns are log-normal, and have scales and means of many orders of magnitude.
    """
    n = n_train + 5000
    Z = rng.standard_normal((n, n_features))
    used = Z[:, : max(2, n_features // 2)]
    first = rng.standard_normal((used.shape[1], 30)) / np.sqrt(used.shape[1])
    hidden = np.sin(1.5 * used @ first + rng.uniform(0, 6, 30))
    logits = sharpness * hidden @ rng.standard_normal((30, n_classes)) / np.sqrt(15)
    p = softmax(logits + rng.standard_normal(n_classes) / 2, axis=1)
    y = (p.cumsum(1) < rng.uniform(size=(n, 1))).sum(1).clip(max=n_classes - 1)
    if wild:
        scale = 10.0 ** rng.uniform(-5, 5, n_features)
        Z = scale * (np.exp(Z / 2) + rng.choice([0, 0, 100], n_features))
    return _known(Z, y, p, n_train)


# -- images -------------------------------------------------------------------------------------


def cifar(folder, rng, per_class=50):
    pack, images = image_pack(folder, "cifar100_a.npz")
    y, test = pack["y_fine"].astype(int), pack["is_test"]
    train = _few_per_class(y, np.flatnonzero(~test), per_class, rng)
    return Split(images[train], y[train], images[test], y[test])


def omniglot_noisy(folder, rng):
    """120 characters at 14 x 14 pixels, 12 drawers for training, labels redrawn in the alphabet.

    The labels of the test set are not redrawn.
    """
    pack = np.load(sources.existing(folder, "omniglot_small.npz"))
    kept = pack["y"] < 120
    X = pack["images"][kept].reshape(-1, 14, 2, 14, 2).mean((2, 4)).astype(np.uint8)[..., None]
    y = pack["y"][kept].astype(int)
    groups = np.arange(pack["y"].max() + 1) // 5
    noisy = corrupt_labels(y, groups, 0.3, random_state=rng)
    train = rng.permutation(20)[pack["drawer"][kept] - 1] < 12
    return Split(X[train], noisy[train], X[~train], y[~train])


def grocery(folder, rng):
    """Grocery Store, official test set; of the training photographs nine in ten are drawn."""
    pack, images = image_pack(folder, "grocery_store_48.npz")
    y = pack["y_fine"].astype(int)
    test = pack["split"] == pack["split_names"].tolist().index("test")
    pool = rng.permutation(np.flatnonzero(~test))
    train = pool[: len(pool) * 9 // 10]
    return Split(images[train], y[train], images[test], y[test])


#: For choosing: whatever was looked at before, and some fresh tables.
CHOOSE = {
    "banking_few": Task("text", 5, 3, banking_few, "BANKING77, 10 texts a class"),
    "banking_tail": Task("text", 3, 2, banking_tail, "BANKING77, 120 to 4 texts a class"),
    "digits": Task("table", 2, 1.5, digits_pixels, "digits, 24 pixels, 900 rows", 6),
    "ambiguous": Task(
        "table", 3, 3, partial(ambiguous, n_train=1500, n_classes=10, n_features=20),
        "make_ambiguous_classification, 10 classes, 1,500 rows",
    ),
    "ambiguous_large": Task(
        "table", 5, 5, partial(ambiguous, n_train=20000, n_classes=50, n_features=20),
        "make_ambiguous_classification, 50 classes, 20,000 rows", 2,
    ),
    "ambiguous_tail": Task(
        "table", 3, 2,
        partial(ambiguous, n_train=3000, n_classes=30, n_features=30, ambiguity=0.5, tail=50),
        "make_ambiguous_classification, 30 classes with a tail, 3,000 rows",
    ),
    "yeast": Task(
        "table", 3, 2, partial(uci, name="yeast.txt", label=8, columns=slice(0, 8), n_train=900),
        "yeast (UCI), 10 classes, 900 rows", 6,
    ),
    "pendigits": Task(
        "table", 2, 1.5,
        partial(uci, name="pendigits.tra", label=16, columns=slice(0, 16), n_train=300),
        "pendigits (UCI), 300 rows",
    ),
    "segment": Task(
        "table", 2, 1.5,
        partial(uci, name="segment.dat", label=19, columns=slice(0, 19), n_train=500,
                delimiter=None),
        "segment (UCI), 7 classes, 500 rows",
    ),
    "scene": Task(
        "table", 2, 1.5,
        partial(rarest_label, name="scene", n_labels=6, n_train=1200, n_test=None),
        "scene (Mulan), the rarest of the labels, 1,200 rows", 4,
    ),
    "occupation": Task("table", 3, 3, occupation, "census of 1994, 14 occupations, 2,000 rows"),
    "cifar": Task("image", 5, 5, cifar, "half of CIFAR-100 at 16 x 16, 50 images a class"),
    "omniglot": Task("image", 5, 3, omniglot_noisy, "120 characters of Omniglot, labels redrawn"),
}  # fmt: skip

#: For reporting: nothing was chosen on them, and they are run once, when all is chosen.
REPORT = {
    "hwu_few": Task("text", 5, 3, hwu_few, "HWU64 intents, 10 texts a class"),
    "hwu": Task("text", 3, 2, hwu, "HWU64 intents, 6,000 texts with a tail"),
    "trec": Task("text", 3, 2, trec, "TREC questions, 47 to 50 fine labels, 3,900 texts"),
    "bibtex": Task(
        "text", 5, 5,
        partial(rarest_label, name="bibtex", n_labels=159, n_train=4000, n_test=3000),
        "bibtex (Mulan), the rarest of 159 labels, 4,000 rows",
    ),
    "delicious": Task(
        "text", 10, 10,
        partial(rarest_label, name="delicious", n_labels=100, n_train=5000, n_test=4000),
        "delicious (Mulan), the rarest of 100 labels, 5,000 rows", 2,
    ),
    "letter": Task(
        "table", 3, 1.5,
        partial(uci, name="letter-recognition.data", label=0, columns=slice(1, 17),
                n_train=10000, n_test=5000, skip=1),
        "letter (UCI), 26 classes, 10,000 rows", 2,
    ),
    "letter_noisy": Task(
        "table", 5, 3, letter_noisy, "letter, labels redrawn among like shapes, 4,000 rows"
    ),
    "landsat": Task("table", 2, 1.5, landsat, "satimage (UCI), 6 classes, 4,000 rows"),
    "abalone": Task(
        "table", 5, 5,
        partial(uci, name="abalone.data", label=8, columns=slice(0, 8), n_train=2000),
        "abalone (UCI), rings as classes, 2,000 rows",
    ),
    "vowel": Task(
        "table", 2, 1.5,
        partial(uci, name="vowel-context.data", label=13, columns=slice(3, 13), n_train=500,
                delimiter=None),
        "vowel (UCI), 11 classes, 500 rows", 5,
    ),
    "network_small": Task(
        "table", 3, 2,
        partial(random_network, n_train=300, n_features=10, n_classes=8, sharpness=2.0),
        "labels drawn from a random network, 300 rows",
    ),
    "network_large": Task(
        "table", 5, 3,
        partial(random_network, n_train=30000, n_features=12, n_classes=30, sharpness=3.0),
        "labels drawn from a random network, 30,000 rows", 2,
    ),
    "network_wild": Task(
        "table", 3, 3,
        partial(random_network, n_train=3000, n_features=16, n_classes=12, sharpness=3.0,
                wild=True),
        "the same, 3,000 rows, log-normal columns of scales 1e-5 to 1e5",
    ),
    "grocery": Task("image", 5, 3, grocery, "Grocery Store at 16 x 16 pixels, 81 classes", 2),
}  # fmt: skip

#: Brought in after everything had been chosen and reported.
LATER = {
    "clinc_few": Task("text", 5, 3, clinc_few, "CLINC150 intents, 10 queries a class"),
    "clinc": Task("text", 3, 2, clinc, "CLINC150 intents, 10,000 queries", 2),
    "wine_white": Task(
        "table", 2, 1.5,
        partial(uci, name="winequality-white.csv", label=11, columns=slice(0, 11), n_train=2500),
        "white wines (UCI), grades as classes, 2,500 rows",
    ),
    "wine_red": Task(
        "table", 2, 1.5,
        partial(uci, name="winequality-red.csv", label=11, columns=slice(0, 11), n_train=800),
        "red wines (UCI), grades as classes, 800 rows", 6,
    ),
    "waveform": Task(
        "table", 2, 1.3,
        partial(uci, name="waveform.data", label=21, columns=slice(0, 21), n_train=1000),
        "waveform (UCI), 3 classes, 1,000 rows",
    ),
    "contraception": Task(
        "table", 2, 1.5,
        partial(uci, name="cmc.data", label=9, columns=slice(0, 9), n_train=900),
        "choice of contraception (UCI), 3 classes, 900 rows", 6,
    ),
    "nursery": Task(
        "table", 2, 1.2, partial(of_categories, name="nursery.txt", n_train=1500),
        "nursery (UCI), 27 indicators, 5 classes, 1,500 rows",
    ),
    "soybean": Task(
        "table", 3, 1.5, partial(of_categories, name="soybean.arff", n_train=400),
        "soybean (UCI), indicators, 19 diseases, 400 rows", 10,
    ),
    "glass": Task(
        "table", 2, 1.5,
        partial(uci, name="glass.csv", label=9, columns=slice(0, 9), n_train=140),
        "glass (UCI), 6 classes, 140 rows", 20,
    ),
    "ecoli": Task(
        "table", 2, 1.5,
        partial(uci, name="ecoli.csv", label=7, columns=slice(0, 7), n_train=200),
        "ecoli (UCI), 8 classes, 200 rows", 20,
    ),
    "audiology": Task(
        "table", 3, 1.5, partial(of_mixed_columns, name="audiology.arff", n_train=140),
        "audiology (UCI), indicators, 24 diagnoses, 140 rows", 10,
    ),
    "primary_tumor": Task(
        "table", 5, 3, partial(of_mixed_columns, name="primary.tumor.arff", n_train=200),
        "primary tumor (UCI), indicators, 21 organs, 200 rows", 10,
    ),
    "autos": Task(
        "table", 2, 1.5, partial(of_mixed_columns, name="autos.arff", n_train=120),
        "autos (UCI), numbers and indicators, 6 risks, 120 rows", 10,
    ),
    "arrhythmia": Task(
        "table", 3, 2, partial(of_mixed_columns, name="arrhythmia.arff", n_train=280),
        "arrhythmia (UCI), numbers and indicators, 13 diagnoses, 280 rows", 6,
    ),
}  # fmt: skip

TASKS = CHOOSE | REPORT | LATER

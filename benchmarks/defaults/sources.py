"""Where the data of the tasks come from, and how they are read.

Files lie in one folder, given by ``--data`` or the environment variable SKSETVALUED_DATA. None of
them is part of the package. The packs of images, BANKING77 and the Mulan sets are those of the
other benchmarks; the files below were taken from public repositories.
"""

import csv
import gzip
import hashlib
import json

import numpy as np
import scipy.sparse as sp
from scipy.io import arff
from sklearn.preprocessing import OneHotEncoder

from ..papers.data import DataMissing

LETTER = "davidgasquez/letter-recognition@fe3c4830"
LANDSAT = "YannisSch/Statlog_Landstat_Satellite_Project@6f315383"
TREC = "FreedomIntelligence/qnn@77f54937"
UCI = "loremo/AdaBoost@0732aafd"
HWU = "xliuhw/NLU-Evaluation-Data@f6071b49"
CLINC = "clinc/oos-eval@828f8093"
COPIES = "jbrownlee/Datasets@d20fcb64"
ARFF = "renatopp/arff-datasets@c59f1728"

#: name: (GitHub repository and commit, path in it, SHA-256). Of hwu64.csv the path is that of the
#: folder whose files */testset/csv/*.csv were joined in the order of their paths; soybean.arff
#: lies in an archive.
FILES = {
    "letter-recognition.data": (
        LETTER,
        "letter-recognition.data",
        "9b63b12c9425f919cf32a4de0ffbbef25960ddeced6a0c15fc8cf2dbb530b403",
    ),
    "sat.trn": (
        LANDSAT,
        "data/sat.trn",
        "8257a4b2da49b394c3de1ec5d76079c0f0b3014916b3bdda23a4dc0cbcec3292",
    ),
    "sat.tst": (
        LANDSAT,
        "data/sat.tst",
        "b2d541f5c3b50ed47c270e8b7de20ac413e2549e6c1c5d6098fadbb111aae342",
    ),
    "trec_train_5500.label": (
        TREC,
        "data/TREC/train_5500.label",
        "8bd6e79493f43bbd22c364587366a1dced54e1e31259eaa92721a0f526031116",
    ),
    "trec_10.label": (
        TREC,
        "data/TREC/TREC_10.label",
        "86ad53c8fc9d397ab2f4be7c967d8efb470b260140557d3e57afad69d1b88b76",
    ),
    "hwu64.csv": (
        HWU,
        "CrossValidation/autoGeneFromRealAnno/autoGene_2018_03_22-13_01_25_169/CrossValidation",
        "5fcbcabb47248a273ff1bccd85fd3b34e80fd8915fc54b1d556405ba72f53e5c",
    ),
    "pendigits.tra": (
        UCI,
        "data/pendigits.tra",
        "964e13f369674414bbe0118aa2288a745aac37fd7f0c00a18c2973de25727f6c",
    ),
    "yeast.txt": (
        UCI,
        "data/yeast.txt",
        "5dfa039fb0e013c435581110171cb753f6b458d0bdaf730d58a1f3d1a1d59557",
    ),
    "segment.dat": (
        UCI,
        "data/segment.dat",
        "43b511817f08ba099fe1c96e51697c372ea1096ba46daf2a4fa718142a3e71d2",
    ),
    "abalone.data": (
        UCI,
        "data/abalone.data",
        "1cf84a254e4fa939ac94f11e692e6a5858726b202e9034423b3766c6b8b8203b",
    ),
    "vowel-context.data": (
        UCI,
        "data/vowel-context.data",
        "d919d6e57d0f41e58639404bceb9de9a615a4fe9019cb38a399db3eebefd5b9e",
    ),
    "clinc150.json": (
        CLINC,
        "data/data_full.json",
        "36923c3705a59e08fe9c3883d8bc2dd966ef93e22cb78ac41171782a698d56e0",
    ),
    "winequality-white.csv": (
        COPIES,
        "winequality-white.csv",
        "659d419fff887f225bf977d20520bb64a64cae203e460087f809721d4430ba27",
    ),
    "winequality-red.csv": (
        COPIES,
        "winequality-red.csv",
        "c9614512e980f1cbd221c796daa97f00c4898c3cd1716863abac60f6cd1a522e",
    ),
    "glass.csv": (
        COPIES,
        "glass.csv",
        "1b7039aa2d617c1827e790b55d45ac138dce06b5f2a3fb6c25f2f135b59ad2d0",
    ),
    "ecoli.csv": (
        COPIES,
        "ecoli.csv",
        "26836c66779f5ce2b0c4d21c0667dcfb89f2a408e3cdac7e38dbc63e0abd5691",
    ),
    "soybean.arff": (
        COPIES,
        "weka-datasets.zip: data/soybean.arff",
        "5645bcd667e9f9efa65a2a45aabb8ed7eb339d9b6e3fa6f7c92a58c4862f0227",
    ),
    "cmc.data": (
        UCI,
        "data/cmc.data",
        "58503d557e5dd29169d90d1eee457b542827aa3f508baab099e6180e94f4af17",
    ),
    "waveform.data": (
        UCI,
        "data/waveform.data",
        "2afef89f05c0bbb781857d591d1898973a6996b122ebfef062a62f01441ce9a6",
    ),
    "nursery.txt": (
        UCI,
        "data/nursery.txt",
        "5e0a9bd3b527c7eb2d34cbb5042c22d7b5981d161f600f5d8f1a413bac07f9aa",
    ),
    "audiology.arff": (
        ARFF,
        "classification/audiology.arff",
        "dbf1ce6d199ced56f7124cb5737155b1caf9b7190c571dc5ceb68cf194abcd3a",
    ),
    "primary.tumor.arff": (
        ARFF,
        "classification/primary.tumor.arff",
        "1ee9f50c0ae0348b99005c6af71a3ed389af3d0187f98cca7b6e3911b95f28c3",
    ),
    "autos.arff": (
        ARFF,
        "classification/autos.arff",
        "03778de49e150d3305affb5ac351ec031e85c86ccefcc37dc36f755f856c9216",
    ),
    "arrhythmia.arff": (
        ARFF,
        "classification/arrhythmia.arff",
        "cf145317a39d4110dff2060f307de96bec7eb4f42a5c0efe25438682e8a5fcfc",
    ),
    "adult-train.csv": (
        COPIES,
        "adult-train.csv",
        "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    ),
}


def existing(folder, name):
    """Return the path of a file; raise where it is absent, or not the one that was measured."""
    path = folder / name
    if not path.exists():
        where = ", ".join(FILES[name][:2]) if name in FILES else "see benchmarks/papers"
        raise DataMissing(f"{path} does not exist ({where})")
    if name in FILES and hashlib.sha256(path.read_bytes()).hexdigest() != FILES[name][2]:
        raise DataMissing(f"{path} is not the file of {FILES[name][0]}: its SHA-256 differs")
    return path


def banking77(folder):
    """Return texts, labels and whether a row is of the official test set."""
    with gzip.open(existing(folder, "banking77.csv.gz"), "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    texts, labels, split = (
        np.array([row[name] for row in rows]) for name in ("text", "label", "split")
    )
    return texts, labels, split == "test"


def trec(folder):
    """Return the questions and their fine labels, both official parts together."""
    rows = []
    for name in ("trec_train_5500.label", "trec_10.label"):
        rows += existing(folder, name).read_text(encoding="latin-1").splitlines()
    labels, texts = zip(*(row.split(" ", 1) for row in rows))
    return np.array(texts), np.array(labels)


def hwu64(folder):
    """Return the texts as their users typed them, each once, and their intents."""
    with open(existing(folder, "hwu64.csv"), encoding="utf-8") as file:
        rows = list(csv.reader(file, delimiter=";"))
    intents = {row[5]: f"{row[1]}_{row[2]}" for row in rows if row[0] != "answerid"}
    return np.array(list(intents)), np.array(list(intents.values()))


def clinc150(folder):
    """Return the queries, each once, and their intents, without those out of scope."""
    parts = json.loads(existing(folder, "clinc150.json").read_text(encoding="utf-8"))
    intents = {text: intent for part in ("train", "val", "test") for text, intent in parts[part]}
    return np.array(list(intents)), np.array(list(intents.values()))


def categories(folder, name):
    """Return the columns of a text file, one for each value of each, and the last as labels."""
    lines = existing(folder, name).read_text(encoding="utf-8").splitlines()
    rows = np.array([line.split(",") for line in lines if line and line[0] not in "@%"])
    X = OneHotEncoder(sparse_output=False).fit_transform(rows[:, :-1])
    return X, rows[:, -1]


def mixed(folder, name):
    """Return the columns of an ARFF file, those of categories as indicators, and the labels."""
    rows, meta = arff.loadarff(existing(folder, name))
    *names, label = meta.names()
    is_number = np.array([meta[column][0] == "numeric" for column in names])
    columns = np.array([rows[column] for column in names], dtype=object).T
    return _joined(columns, is_number), rows[label].astype(str)


def occupations(folder):
    """Return the other columns of the census of 1994, and the occupations that are known."""
    with open(existing(folder, "adult-train.csv"), encoding="utf-8") as file:
        rows = [row for row in csv.reader(file, skipinitialspace=True) if row]
    rows = np.array(rows, dtype=object)
    label = 6
    rows = rows[rows[:, label] != "?"]
    is_number = np.isin(np.arange(rows.shape[1]), (0, 2, 4, 10, 11, 12))
    X = _joined(np.delete(rows, label, axis=1), np.delete(is_number, label))
    return X, rows[:, label].astype(str)


def _joined(columns, is_number):
    """Return numbers, the median where they are missing, and indicators of categories."""
    numbers = columns[:, is_number].astype(np.float64)
    numbers = np.where(np.isnan(numbers), np.nanmedian(numbers, axis=0), numbers)
    encoder = OneHotEncoder(sparse_output=False)
    return np.hstack([numbers, encoder.fit_transform(columns[:, ~is_number].astype(str))])


def table(folder, name, label, columns, delimiter=",", skip=0):
    """Return the columns of a text file as numbers, and the column of labels as it is."""
    rows = np.genfromtxt(
        existing(folder, name), delimiter=delimiter, dtype=str, skip_header=skip, autostrip=True
    )
    return rows[:, columns].astype(np.float64), rows[:, label]


def mulan(folder, name):
    """Return the features and the labels of a multi-label set, as CSR matrices."""
    pack = np.load(existing(folder / "multilabel", f"{name}.npz"))
    X = sp.csr_matrix(
        (pack["X_data"], pack["X_indices"], pack["X_indptr"]), shape=tuple(pack["X_shape"])
    )
    ones = np.ones(len(pack["Y_indices"]), np.int64)
    Y = sp.csr_matrix((ones, pack["Y_indices"], pack["Y_indptr"]), shape=tuple(pack["Y_shape"]))
    return X, Y

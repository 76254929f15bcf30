"""Cases of files: documents with hostile values at any place, and damaged bytes."""

import copy
import functools
import importlib
import json
import os
import tempfile

import hostile_files
import numpy as np
from hostile_files import HOSTILE, NAMES, at, document_of, places, signed

from sksetvalued import AverageKClassifier, SparseTopClassifier, TopKClassifier, save

from .law import Violation

X = np.random.default_rng(0).standard_normal((30, 4))
IMAGES = np.random.default_rng(0).integers(0, 256, (12, 6, 6), dtype=np.uint8)


@functools.cache
def good():
    """Return good files: bytes, document, places in it, and samples."""
    params = {"max_epochs": 1, "random_state": 0, "backbone": (3,)}
    Y = np.arange(30) % 3
    models = (
        (TopKClassifier(2, loss="ldam", objective="macro", **params).fit(X, Y), X),
        (AverageKClassifier(2, warm_start=True, **params).fit(X, Y.astype(str)), X),
        (SparseTopClassifier(**params).fit(X, np.eye(3)[Y]), X),
        (TopKClassifier(2, **{**params, "backbone": "convnet"}).fit(IMAGES, Y[:12]), IMAGES),
    )
    found = []
    for model, samples in models:
        path = _path()
        save(model, path)
        with open(path, "rb") as file:
            content = file.read()
        document = document_of(content)
        found.append((content, document, list(places(document)), samples))
    return found


@functools.cache
def _path():
    return os.path.join(tempfile.mkdtemp(), "m")


@functools.cache
def tripwire():
    """Return a tripwire that is not tripped by what is imported once."""
    importlib.import_module("torchvision.transforms.v2")
    for content, *_, samples in good():
        hostile_files.write(_path(), content, "file")
        hostile_files.use(_path(), samples, "file")
    return hostile_files.Tripwire(_path())


def _mutated(rng, document, paths):
    """Return the text of a document with one to three hostile changes."""
    document = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        path = rng.choice(paths)
        try:
            parent, kind = at(document, path[:-1]), rng.randrange(8)
            if kind == 0:
                del parent[path[-1]]
            elif kind == 1 and isinstance(parent, dict):
                parent[rng.choice(NAMES)] = rng.choice(HOSTILE)
            elif kind == 2:
                parent[path[-1]] = copy.deepcopy(at(document, rng.choice(paths)))
            else:
                parent[path[-1]] = rng.choice(HOSTILE)
        except (KeyError, IndexError, TypeError):  # a place that an earlier change removed
            continue
    return json.dumps(document)


def _damaged(rng, content):
    """Return bytes that were cut, flipped, repeated or put in."""
    content = bytearray(content)
    kind, where = rng.randrange(4), rng.randrange(len(content))
    if kind == 0:
        return bytes(content[:where])
    if kind == 1:
        for _ in range(rng.randrange(1, 9)):
            content[rng.randrange(len(content))] = rng.randrange(256)
    elif kind == 2:
        content[where:where] = content[: rng.randrange(100)]
    else:
        content[: rng.choice((8, 16))] = rng.randbytes(8)
    return bytes(content)


def file_case(rng):
    """Load a hostile file, and predict with what was loaded."""
    wire = tripwire()
    content, document, paths, samples = rng.choice(good())
    if rng.random() < 0.85:
        hostile = signed(_mutated(rng, document, paths), content)
    else:
        hostile = _damaged(rng, content)
    hostile_files.write(_path(), hostile, "file")
    try:
        with wire:
            outcome = hostile_files.use(_path(), samples, "file")
    except Exception as error:
        raise Violation(f"a raw error: {error!r}") from error
    if wire.tripped:
        raise Violation(f"tripped: {wire.tripped[:3]}")
    return outcome


CASES = {"files": file_case}

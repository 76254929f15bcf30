"""A thousand fits and a million predictions leave the memory of the process as it is."""

import gc
import itertools
import mmap
import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from sksetvalued import AverageKClassifier, PlugInClassifier, SparseTopClassifier, TopKClassifier
from sksetvalued.rules import AverageK

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="not on Linux"),
]

X = np.random.default_rng(0).standard_normal((100, 8))
Y = np.arange(100) % 5
PARTS = 10
#: Megabytes: 500 fits that kept their network of (64, 64) would take 12, a million sets 5.
ALLOWED = 3.0


def resident():
    """Return the megabytes that the process holds."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def growth(actions, n_actions):
    """Return the megabytes that the second half of so many actions adds."""
    sizes = []
    for _ in range(PARTS):
        for action in itertools.islice(actions, n_actions // PARTS):
            action()
        sizes.append(resident())
    return sizes[-1] - sizes[PARTS // 2 - 1]


def models():
    params = {"max_epochs": 2, "backbone": (64, 64)}
    return [
        (TopKClassifier(2, validation_fraction=0.2, **params), Y),
        (AverageKClassifier(2, **params), Y),
        (AverageKClassifier(2, objective="macro", warm_start=True, **params), Y),
        (SparseTopClassifier(**params), np.eye(5)[Y]),
        (PlugInClassifier(GaussianNB(), AverageK(2), cv=2), Y),
    ]


def test_a_thousand_fits():
    fits = itertools.cycle([lambda m=model, y=y: m.fit(X, y) for model, y in models()])
    assert growth(fits, 1000) < ALLOWED


def test_a_million_predictions():
    fitted = [model.fit(X, y) for model, y in models()]
    rows = [np.random.default_rng(1).standard_normal((n, 8)) for n in (1, 7, 300, 1692)]
    calls = [lambda m=m, x=x: m.predict_set(x) for m, x in itertools.product(fitted, rows)]
    calls += [lambda m=m: m.predict(rows[2]) for m in fitted]
    n_rounds = 10 * -(-1_000_000 // (10 * len(fitted) * (sum(map(len, rows)) + 300)))
    assert growth(itertools.cycle(calls), n_rounds * len(calls)) < ALLOWED


def test_growth_is_seen():
    kept = []

    def leak():
        # Not from the heap, where tests before may have left as much unused.
        kept.append(mmap.mmap(-1, 1 << 15))
        kept[-1].write(bytes(1 << 15))

    leaks = itertools.repeat(leak)
    assert growth(leaks, 1000) > ALLOWED

"""Contenders of the benchmark of the defaults, compared row by row."""

import itertools
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(
    not (ROOT / "benchmarks" / "defaults").is_dir(),
    reason="the benchmarks are not part of an installed package",
)


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Return what keeps outcomes and returns a record, and the outcomes."""
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.defaults.measure import compare

    rng, outcomes, places = np.random.default_rng(0), {}, itertools.count()

    def record(name, seed, hits=None):
        if hits is None:
            hits = rng.random(200 + 100 * seed) < rng.random()
        outcomes[name, seed] = hits
        job = {"task": "digits", "contender": name, "seed": seed}
        apart = compare({"top_k": hits}, job, tmp_path)
        coverage = {"top_k": 100 * hits.mean()}
        return {"n": len(hits), "coverage": coverage, "apart": apart, "place": next(places)}

    return record, outcomes


@pytest.mark.parametrize("order", [("ours", "theirs"), ("theirs", "ours")])
def test_the_difference_is_that_of_the_rows(measured, order):
    from benchmarks.defaults.report import difference

    record, outcomes = measured
    runs = {name: {seed: record(name, seed) for seed in range(3)} for name in order}
    gaps = [
        100 * (outcomes["ours", seed].astype(float) - outcomes["theirs", seed])
        for seed in range(3)
    ]
    half = 1.96 * np.sqrt(sum(gap.var(ddof=1) / len(gap) for gap in gaps)) / 3
    found = difference(runs, "ours", "theirs", "top_k", range(3))
    assert found == pytest.approx((np.mean([gap.mean() for gap in gaps]), half))


def test_one_that_was_measured_anew_is_not_mistaken_for_the_old_one(measured):
    from benchmarks.defaults.report import difference

    record, outcomes = measured
    runs = {name: {0: record(name, 0)} for name in ("ours", "theirs")}
    anew = record("ours", 0)
    left = {**runs, "ours": {0: anew}}
    gap = 100 * (outcomes["ours", 0].mean() - outcomes["theirs", 0].mean())
    assert difference(left, "ours", "theirs", "top_k", [0])[0] == pytest.approx(gap)
    left["ours"] = {0: {**anew, "apart": {}}}
    found, half = difference(left, "ours", "theirs", "top_k", [0])
    expected = anew["coverage"]["top_k"] - runs["theirs"][0]["coverage"]["top_k"]
    assert found == pytest.approx(expected)
    assert np.isnan(half)


def test_rows_of_one_that_was_measured_anew_count_even_where_it_covers_as_many(measured):
    from benchmarks.defaults.report import difference

    record, outcomes = measured
    record("theirs", 0)
    ours = record("ours", 0)
    theirs = record("theirs", 0, outcomes["ours", 0])
    runs = {"ours": {0: ours}, "theirs": {0: theirs}}
    assert difference(runs, "ours", "theirs", "top_k", [0]) == (0, 0)


def test_a_table_of_coverages_has_intervals(measured):
    from benchmarks.defaults.report import compared

    record, _ = measured
    runs = {"top_k": {0: {**record("ours", 0), "apart": {}}}}
    runs["logistic"] = {0: {**record("theirs", 0), "apart": {}}}
    with pytest.raises(ValueError, match="top_k and logistic were not compared row by row on"):
        compared({"digits": runs}, ["digits"], "top_k", "top_k")

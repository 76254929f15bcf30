"""The laws of the hostile cases, searched and shrunk by hypothesis."""

import random
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .families import FAMILIES
from .law import Violation, judge, strict_warnings

pytestmark = pytest.mark.hostile

#: Examples of the families whose cases take milliseconds.
FEW = {"operators": 100, "fits": 30, "predictions": 60, "plug_ins": 40, "files": 60}


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family):
    @settings(
        max_examples=FEW.get(family, 150),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def holds(rng):
        FAMILIES[family](rng)

    with warnings.catch_warnings():
        strict_warnings()
        holds()


def raising(error):
    def call():
        raise error

    return call


@pytest.mark.parametrize(
    "call",
    [
        raising(IndexError("k")),
        raising(ValueError("something is wrong")),
        raising(RuntimeWarning("k")),
        lambda: "wrong",
    ],
)
def test_the_law_is_broken_by(call):
    def check(result):
        assert result == "right"

    with pytest.raises(Violation):
        judge(call, ("k",), check)


@pytest.mark.parametrize(
    ("call", "expect"), [(lambda: 1, "error"), (raising(ValueError("k")), "right")]
)
def test_what_is_expected_has_to_happen(call, expect):
    with pytest.raises(Violation):
        judge(call, ("k",), lambda result: None, expect)


def test_a_case_is_the_same_again():
    for family in ("operators", "rules", "metrics"):
        outcomes = [[FAMILIES[family](random.Random(s)) for s in range(20)] for _ in range(2)]
        assert outcomes[0] == outcomes[1]

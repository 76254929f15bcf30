"""Memory of many samples and many classes, each case in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "scale.py"


def measured(*case):
    command = [sys.executable, "-W", "ignore", str(SCRIPT), "case", *map(str, case)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output)


def test_a_stream_of_scores_takes_memory_for_what_may_be_let_in():
    """Fifteen times 5 n entries of 8 bytes, and blocks; the scores themselves are 800 MB."""
    few, many = measured("rule", 5_000, 10_000), measured("rule", 20_000, 10_000)
    assert many["average size"] == pytest.approx(5, abs=1e-3)
    assert many["memory"] < 200 * 2**20
    assert many["memory"] - few["memory"] < 15 * 8 * 5 * 15_000


@pytest.mark.parametrize(("kind", "n_batches"), [("top", 10), ("average", 18)])
def test_steps_on_many_classes_take_memory_in_proportion_to_the_parameters(kind, n_batches):
    """Parameters, gradients, two moments and what is put back on an error; scores of a batch."""
    found = measured(kind, 256, 100_000)
    assert found["memory"] < 6 * found["parameters"] + n_batches * found["scores"]
    assert found["predict memory"] < found["memory"]


def test_a_mapped_table_is_not_copied():
    found = measured("map", 100_000, 1_000)
    assert found["memory"] < 0.2 * found["data"]

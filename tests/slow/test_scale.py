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
    """The scores themselves are 3.2 GB; of the 5 n largest, 8 bytes are kept a few times.

    What blocks take comes and goes, and differs by 20 MB from process to process.
    """
    few, many = measured("rule", 5_000, 10_000), measured("rule", 80_000, 10_000)
    assert many["average size"] == pytest.approx(5, abs=1e-3)
    assert many["memory"] < 200 * 2**20
    assert many["memory"] - few["memory"] < 15 * 8 * 5 * 75_000


@pytest.mark.parametrize("kind", ["top", "average"])
def test_steps_on_many_classes_take_memory_in_proportion_to_the_parameters(kind):
    """Parameters, gradients, two moments, three copies to put back on an error; scores.

    And a constant: the blocks of 4 million scores, in double precision, of the calibration.
    """
    found = measured(kind, 256, 100_000)
    assert found["memory"] < 8 * found["parameters"] + 8 * found["scores"] + 150 * 2**20
    assert found["predict memory"] < found["memory"]


def test_a_mapped_table_is_not_copied():
    found = measured("map", 100_000, 1_000)
    assert found["memory"] < 0.25 * found["data"]

"""Fits that are killed at random, again and again, end as those that are not."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "killing.py"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["top_k", "average_k", "sparse_top"])
def test_thirty_kills_lose_nothing(name):
    done = subprocess.run(
        [sys.executable, SCRIPT, name, "30", "0"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

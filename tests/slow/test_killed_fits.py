"""Fits that are killed at random, again and again, end as those that are not."""

from pathlib import Path

import pytest
from fresh import run_code


@pytest.mark.slow
@pytest.mark.parametrize("name", ["top_k", "average_k", "sparse_top"])
def test_thirty_kills_lose_nothing(name):
    code = f"import killing; killing.main({name!r}, 30, 0)"
    done = run_code(code, Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr

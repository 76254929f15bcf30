"""Processes that are started while a thread fits can fit, save, load and predict."""

from pathlib import Path

import pytest
from fresh import run_code


@pytest.mark.parametrize(
    "method",
    [
        "fork",
        *(pytest.param(m, marks=pytest.mark.slow) for m in ("preload", "forkserver", "spawn")),
    ],
)
def test_processes_started_during_a_fit_can_work(method):
    code = f"import sys, forking; sys.exit(forking.main({method!r}))"
    done = run_code(code, Path(__file__).parent)
    assert done.returncode == 0, done.stderr

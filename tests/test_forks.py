"""Processes that are started while a thread fits can fit, save, load and predict."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("forking.py")


@pytest.mark.parametrize(
    "method",
    [
        "fork",
        *(pytest.param(m, marks=pytest.mark.slow) for m in ("preload", "forkserver", "spawn")),
    ],
)
def test_processes_started_during_a_fit_can_work(method):
    done = subprocess.run([sys.executable, SCRIPT, method], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

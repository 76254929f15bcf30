"""The laws of the kernels for devices hold in Triton's interpreter."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

TESTS = Path(__file__).parent
FILES = ["test_triton.py", "test_smoothed_triton.py", "test_projection_triton.py"]


@pytest.mark.parametrize(
    ("cases", "files", "at_least", "seconds"),
    [
        ("not slow", FILES, 55, 280),
        *(
            pytest.param("slow", [file], n, 1500, marks=pytest.mark.slow)
            for file, n in zip(FILES, (4, 12, 26), strict=True)
        ),
    ],
)
def test_laws_hold(cases, files, at_least, seconds):
    """They are run in a process of their own; so many must pass, and none may fail."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *files, "-q", "-n", "0", "-m", cases],
        # On a processor, too, the kernels compiled for it would be preferred.
        env={**os.environ, "TRITON_INTERPRET": "1", "SKSETVALUED_KERNELS": "0"},
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(re.search(r"(\d+) passed", run.stdout)[1]) >= at_least, run.stdout

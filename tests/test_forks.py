"""Processes that are started while a thread fits can fit, save, load and predict."""

from pathlib import Path

import pytest
import torch
from fresh import run_code

#: A fork of a process that has used CUDA cannot.
without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA survives no fork")


@pytest.mark.parametrize(
    "method",
    [
        pytest.param("fork", marks=without_cuda),
        pytest.param("preload", marks=[without_cuda, pytest.mark.slow]),
        *(pytest.param(m, marks=pytest.mark.slow) for m in ("forkserver", "spawn")),
    ],
)
def test_processes_started_during_a_fit_can_work(method):
    code = f"import sys, forking; sys.exit(forking.main({method!r}))"
    done = run_code(code, Path(__file__).parent)
    assert done.returncode == 0, done.stderr

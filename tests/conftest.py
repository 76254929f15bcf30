"""Shared settings of the test suite."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared_data():
    """Folder of the real data packs; tests that need it are skipped when it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real data packs are not on this machine")
    return folder


@pytest.fixture
def benchmark_path(monkeypatch):
    """Make the modules of the benchmarks importable."""
    folder = Path(__file__).resolve().parents[1] / "benchmarks"
    if not folder.is_dir():
        pytest.skip("the benchmarks are not part of an installed package")
    monkeypatch.syspath_prepend(folder)

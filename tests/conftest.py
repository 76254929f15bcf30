"""Shared settings of the test suite."""

import contextlib
import functools
import gc
import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for no garbage while tests are imported and collected, nor in what that makes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Compute in one thread; the process that only hands out tests does not import torch."""
    import torch

    torch.set_num_threads(1)
    if torch.cuda.is_available():  # by default convolutions round to ten bits, and differ
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.deterministic = True
    # At its first use autograd starts a thread for each device, and such a process cannot fork:
    # not for those that some tests only pretend to have.
    torch.ones((), requires_grad=True).backward()


@pytest.fixture(autouse=True)
def same_seed():
    """Let no test depend on the numbers that those before it in its process have drawn."""
    import numpy as np
    import torch

    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def kernels_as_marked(request):
    """Do without kernels in tests that are marked `without_kernels`."""
    if request.node.get_closest_marker("without_kernels"):
        request.getfixturevalue("monkeypatch").setenv("SKSETVALUED_KERNELS", "0")


@pytest.fixture(scope="session")
def shared_data():
    """Folder of the real data packs; tests that need it are skipped when it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real data packs are not on this machine")
    return folder


@pytest.fixture(params=["avx512", "avx2", "baseline"])
def instruction_set(request):
    """Use the kernels of one instruction set, and those of before again afterwards."""
    from sksetvalued.operators._dispatch import kernels

    names = kernels.instruction_sets()
    if request.param not in names:
        pytest.skip(f"this processor, or its compiler, has no {request.param}")
    kernels.use_instruction_set(request.param)
    yield request.param
    kernels.use_instruction_set(names[0])


@pytest.fixture(scope="session")
def exports_share_operations():
    """Let torch find the operations of ONNX once, which takes a second, and not for each export.

    That is inside torch; where it moves, exports take their time.
    """
    with pytest.MonkeyPatch.context() as patch:
        with contextlib.suppress(ImportError):
            from torch.onnx._internal.exporter._registration import ONNXRegistry

            found = functools.cache(ONNXRegistry.from_torchlib)
            patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(found))
        yield


@pytest.fixture
def benchmark_path(monkeypatch):
    """Make the modules of the benchmarks importable."""
    folder = Path(__file__).resolve().parents[1] / "benchmarks"
    if not folder.is_dir():
        pytest.skip("the benchmarks are not part of an installed package")
    monkeypatch.syspath_prepend(folder)

"""Whether the Triton kernels are to be used."""

import functools
import importlib.util
import os
import shutil
import sysconfig

import torch


@functools.cache
def has_triton():
    """Return whether Triton is there, and the C compiler and headers that it needs."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    headers = os.path.join(sysconfig.get_path("include"), "Python.h")
    found = importlib.util.find_spec("triton") is not None
    return found and compiler is not None and os.path.exists(headers)


def fits_kernels(scores):
    """Return whether kernels, which compute in single precision, can treat `scores` now."""
    single = scores.is_cuda and scores.dtype == torch.float32
    return single and not torch.compiler.is_compiling() and has_triton()

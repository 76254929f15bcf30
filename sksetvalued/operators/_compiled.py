"""The kernels compiled for the processor, and whether they are to be used."""

import importlib
import os
import zlib
from pathlib import Path

import torch

__all__ = ["instruction_set"]


def _import_kernels():
    """Return the compiled kernels, or None where there are none or none are wanted.

    Kernels that are there and cannot be loaded are an error.
    """
    if os.environ.get("SKSETVALUED_KERNELS") == "0":
        return None
    try:
        _kernels = importlib.import_module("._kernels", __package__)
    except ModuleNotFoundError:
        return None
    # The sources are there when the package is installed to work on it.
    sources = sorted(Path(__file__).with_name("kernels").glob("*.?pp"))
    expected = f"{zlib.crc32(b''.join(path.read_bytes() for path in sources)):08x}"
    if sources and getattr(_kernels, "checksum", None) != expected:
        raise ImportError(
            "The compiled kernels of sksetvalued are not those of its sources, which have "
            "changed; install it again (pip install -e .), or delete "
            f"{_kernels.__file__} to do without."
        )
    return _kernels


kernels = _import_kernels()


def instruction_set():
    """Return the instruction set of the compiled kernels, or None where there are none.

    The losses and operators compute scores of float32 on the processor by kernels that are
    compiled when the package is installed where a C++ compiler is found. Elsewhere, and with the
    environment variable ``SKSETVALUED_KERNELS`` set to 0, torch and NumPy give the same results,
    up to rounding and, where noise is drawn, in law.

    Returns
    -------
    {"avx512", "avx2", "baseline"} or None

    Examples
    --------
    >>> from sksetvalued.operators import instruction_set
    >>> instruction_set() in ("avx512", "avx2", "baseline", None)
    True
    """
    return None if kernels is None else kernels.instruction_sets()[0]


def fits_compiled(scores, target=None):
    """Return whether the compiled kernels can treat `scores` now: plain tensors of float32.

    `target`, where there is one, has to hold an integer of each row in the same way. The rest is
    left to operations of torch, which also tell what is wrong: transformed and traced functions,
    gradients in batches, derivatives in forward mode, tensors whose memory is not their values.
    """
    return (
        kernels is not None
        and type(scores) in (torch.Tensor, torch.nn.Parameter)
        and scores.is_cpu
        and scores.dtype == torch.float32
        and not (scores.is_neg() or scores._is_zerotensor())
        and not torch.compiler.is_compiling()
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and not torch._C._functorch.is_legacy_batchedtensor(scores)
        and torch.autograd.forward_ad._current_level < 0
        and (target is None or _holds_classes(target, scores))
    )


def _holds_classes(target, scores):
    """Return whether the kernels can read `target`; whether the classes exist they see."""
    return (
        type(target) is torch.Tensor
        and target.is_cpu
        and target.dtype == torch.int64
        and target.shape == scores.shape[:1]
    )

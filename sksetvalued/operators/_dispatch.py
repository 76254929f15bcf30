"""The door: the one place that decides who computes, the compiled kernels, Triton's or torch.

Every operator has a reference, its definition in operations of torch, which computes anything:
any floating-point type and device, derivatives of any order, ``torch.func``, ``torch.compile``.
Where its operations are done one by one, ``eager`` of some operators runs it by parts. The kernels
are faster where they can stand in for it. :func:`choose` says where:

* ``cpu``: float32 on the processor, where kernels are compiled. A plain ``autograd.Function`` adds
  34 us; through ``setup_context`` or a ``custom_op`` it would be 56.
* ``triton``: float32 on a GPU, where Triton and a C compiler are there. One launch to three.
* ``reference``: all else, which is

  - another floating-point type or device, as kernels are in single precision;
  - the transforms of ``torch.func``, gradients in batches, a level of dual numbers: a ``Function``
    would raise there, a ``custom_op`` raise or, in jvp, return tangents of zero in silence;
  - ``torch.compile`` and ``torch.export``, which trace and fuse it; kernels by address would break
    the graph. Projections are one ``custom_op`` that asks again (their definition sorts rows),
    unless exported, to where this package may not be; their derivatives are operations on its
    result. The smoothed hinge would take a tenth of the time, but cannot ask inside a graph
    whether ``jvp`` is around;
  - subclasses, modes that watch each operation, views that negate, zero tensors, ``jit.trace``:
    the memory is not the values, or somebody has to see the operations;
  - a target that is not an integer of each row: the reference tells what is wrong;
  - a rank above the operator's largest: memory of the kernel has a fixed size, or the work would
    not pay;
  - gradients of gradients, see :func:`needs_reference`.

The environment variable ``SKSETVALUED_KERNELS`` overrules this: ``0`` always takes the reference,
``triton`` takes Triton's kernels for the processor too, as its interpreter needs.
"""

import functools
import importlib.util
import math
import os
import shutil
import sysconfig
import zlib
from pathlib import Path

import torch
from torch._C import _functorch, _get_tracing_state, _len_torch_dispatch_stack
from torch.autograd import forward_ad

from .._warnings import warn_caller

__all__ = ["instruction_set"]

#: Entries of scores from which on a computation without kernels is worth a warning.
_LARGE = 1_000_000
_PLAIN = torch.Tensor, torch.nn.Parameter
_SWITCH = os.environ.encodekey("SKSETVALUED_KERNELS")


def _switch():
    """Return what the environment says; `os.environ.get` would cost as much as all of `choose`."""
    value = os.environ._data.get(_SWITCH)
    return value if value is None else os.environ.decodevalue(value)


def _import_kernels():
    """Return the compiled kernels, or None where there are none or none are wanted.

    Kernels that are there and cannot be loaded are an error.
    """
    if _switch() == "0":
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

#: Largest rank by operator and backend. The smoothed kernel for the processor has memory for no
#: more; Triton's work grows with the rank and pays up to here. Others take any rank.
_MOST_RANK = {
    ("smoothed", "cpu"): 0 if kernels is None else kernels.most_rank,
    ("smoothed", "triton"): 64,
    ("noised", "triton"): 64,
}


def instruction_set():
    """Return the instruction set of the compiled kernels, or None where there are none.

    The losses and operators compute scores of float32 on the processor by kernels that are
    compiled when the package is installed where a C++ compiler is found. Elsewhere, and with the
    environment variable ``SKSETVALUED_KERNELS`` set to 0, torch gives the same results, up to
    rounding and, where noise or the dropout of this package is drawn, in law.

    Returns
    -------
    {"avx512", "avx2", "baseline"} or None

    Examples
    --------
    >>> from sksetvalued.operators import instruction_set
    >>> instruction_set() in ("avx512", "avx2", "baseline", None)
    True
    """
    if kernels is None or _switch() == "0":
        return None
    return kernels.instruction_sets()[0]


@functools.cache
def has_triton():
    """Return whether Triton is there, and the C compiler and headers that it needs."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    headers = os.path.join(sysconfig.get_path("include"), "Python.h")
    found = importlib.util.find_spec("triton") is not None
    return found and compiler is not None and os.path.exists(headers)


def choose(operator, scores, target=None, *, rank=1):
    """Return who computes an operator now: "cpu", "triton" or "reference".

    The operators are "noised", "smoothed", "projection", "top_k", and, of which Triton has none,
    "two_head" and "dropout". `scores`, of shape (n_samples, n_classes), are what a kernel is to
    read, as the gradient in a backward pass, and so is `target`; whether its classes exist the
    kernel sees. `rank` counts from either end, whichever is nearer, where the kernel can count
    from both.
    """
    # The kernels read the memory. Asked first of all, so that graphs do not break at what follows.
    if not holds_its_values(scores):
        return "reference"
    wanted = _switch()
    if wanted == "0" or scores.dtype != torch.float32:
        return "reference"
    backend = "cpu" if scores.is_cpu and wanted != "triton" else "triton"
    if backend == "cpu" and kernels is None:
        if scores.numel() >= _LARGE and operator != "dropout":
            _warn_of_no_kernels()
        return "reference"
    if backend == "triton" and not ((scores.is_cuda or wanted == "triton") and has_triton()):
        return "reference"
    if rank > _MOST_RANK.get((operator, backend), math.inf):
        return "reference"
    if target is not None and not (
        type(target) is torch.Tensor
        and target.dtype == torch.int64
        and ((target.is_cpu and scores.is_cpu) or target.device == scores.device)
        and target.shape == scores.shape[:1]
    ):
        return "reference"
    return backend


def needs_reference(grad):
    """Return whether a backward pass has to be done by operations of torch.

    That is where it is differentiated itself, and where the values of `grad` cannot be read.
    """
    return torch.is_grad_enabled() or not holds_its_values(grad)


def holds_its_values(tensor):
    """Return whether the memory of a tensor can be read here and now."""
    return is_eager(tensor) and not (tensor.is_neg() or tensor._is_zerotensor())


def is_eager(tensor):
    """Return whether operations are done here and now, so that values can be looked at.

    For want of public ones, it asks private parts of torch: for the levels of ``torch.func``,
    batches of gradients and dual numbers, and for modes that watch.
    """
    return (
        not torch.compiler.is_compiling()
        and type(tensor) in _PLAIN
        and not tensor.is_meta
        and _len_torch_dispatch_stack() == 0
        and _functorch.peek_interpreter_stack() is None
        and not _functorch.is_legacy_batchedtensor(tensor)
        and forward_ad._current_level < 0
        and _get_tracing_state() is None
    )


@functools.cache
def _warn_of_no_kernels():
    """Say once how to get kernels, where there are none and they would help."""
    remedy = (
        "There are none for Windows: set"
        if os.name == "nt"
        else "Install a C++ compiler, then sksetvalued again (pip install --force-reinstall "
        "--no-deps --no-cache-dir sksetvalued); or set"
    )
    warn_caller(
        "sksetvalued runs without compiled kernels, several times slower on scores as many as "
        f"these. {remedy} the environment variable SKSETVALUED_KERNELS=0 to do without and "
        "silence this.",
        RuntimeWarning,
    )

"""Whether the kernels compiled for the processor are to be used.

They are built when the package is installed where a C++ compiler is found; elsewhere torch and
NumPy do the work.
"""

import torch

try:
    from . import _kernels as kernels
except ImportError:
    kernels = None


def fits_compiled(scores):
    """Return whether the compiled kernels can treat `scores` now: plain tensors of float32.

    Transformations of functions, and derivatives in forward mode, need operations of torch.
    """
    return (
        kernels is not None
        and type(scores) in (torch.Tensor, torch.nn.Parameter)
        and scores.is_cpu
        and scores.dtype == torch.float32
        and not torch.compiler.is_compiling()
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch.autograd.forward_ad._current_level < 0
    )

"""Whether the Triton kernels are to be used, until every operator asks :mod:`._dispatch`."""

import torch

from ._dispatch import has_triton


def fits_kernels(scores):
    """Return whether kernels, which compute in single precision, can treat `scores` now."""
    single = scores.is_cuda and scores.dtype == torch.float32
    return single and not torch.compiler.is_compiling() and has_triton()

"""Whether the compiled kernels are to be used, until every operator asks :mod:`._dispatch`."""

import torch

from ._dispatch import kernels


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

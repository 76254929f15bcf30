"""The smoothed hinge where no kernel fits: the definition, sparing memory.

Its graph is of many operations. That of a few rows at a time, differentiated at once, leaves no
more than the gradient.
"""

import torch

from .._backends import OwnGradient
from . import reference

#: Entries of scores treated together, on the processor and elsewhere.
_CHUNK, _CHUNK_ELSEWHERE = 1 << 17, 1 << 24


class SmoothedHinge(OwnGradient):
    """Do what :func:`.reference.smoothed_hinge` does, keeping the gradient of the losses."""

    @staticmethod
    def compute(scores, target, k, tau, margin):
        chunk = _CHUNK if scores.is_cpu else _CHUNK_ELSEWHERE
        step = max(1, chunk // scores.shape[1])
        losses, wanted = scores.new_empty(len(scores)), scores.requires_grad
        slopes = torch.empty_like(scores) if wanted else None
        for start in range(0, len(scores), step):
            rows = slice(start, start + step)
            with torch.set_grad_enabled(wanted):
                part = scores[rows].detach().requires_grad_(wanted)
                values = reference.smoothed_hinge(part, target[rows], k, tau, margin)
                losses[rows] = values.detach()
                if wanted:
                    (slopes[rows],) = torch.autograd.grad(values.sum(), part)
        return losses, (scores, target, slopes), (k, tau, margin)

    @staticmethod
    def gradient(grad, scores, target, slopes, *_):
        return grad[:, None] * slopes

    @staticmethod
    def definition(grad, scores, target, slopes, *parameters):
        return reference.gradient(grad, scores, target, *parameters)

"""The smoothed hinge loss by kernels compiled for the processor."""

import torch

from .._backends import check_classes
from .._dispatch import kernels
from . import reference


class SmoothedHinge(reference.SmoothedHinge):
    """The smoothed hinge of float32, in one pass each way."""

    @staticmethod
    def compute(scores, target, k, tau, margin):
        rows, target = scores.contiguous(), target.contiguous()
        losses = rows.new_empty(len(rows))
        saved = rows.new_empty(len(rows), kernels.smoothed_width(rows.shape[1], k))
        numbers = *rows.shape, k, tau, margin
        n_wrong = kernels.smoothed_rows(rows, target, *numbers, losses, saved)
        check_classes(n_wrong, target, rows.shape[1])
        return losses, (scores, target, saved), (k, tau, margin)

    @staticmethod
    def gradient(grad, scores, target, saved, parameters):
        rows, (k, tau, _) = scores.contiguous(), parameters
        result = torch.empty_like(rows)
        given = grad, grad.stride(0), rows, target, saved, *rows.shape, k, tau
        kernels.smoothed_gradient_rows(*given, result)
        return result

"""What the ways to compute an operator beside its reference have in common."""

import torch

from ._dispatch import needs_reference


class OwnGradient(torch.autograd.Function):
    """An operator on scores that is computed, and differentiated once, in a way of its own.

    ``apply(scores, *arguments)`` calls three static methods of a subclass. ``compute``, of the
    same arguments, returns the result, the tensors that its gradient needs, and the constants.
    ``gradient``, of the gradient in the result, these tensors and these constants, returns the
    gradient in the scores. ``definition`` does so by operations of torch that can be
    differentiated in turn, and where the values of a gradient cannot be read.
    """

    @classmethod
    def forward(cls, ctx, scores, *arguments):
        result, saved, ctx.constants = cls.compute(scores, *arguments)
        ctx.save_for_backward(*saved)
        ctx.n_others = len(arguments)
        return result

    @classmethod
    def backward(cls, ctx, grad):
        differentiate = cls.definition if needs_reference(grad) else cls.gradient
        return differentiate(grad, *ctx.saved_tensors, *ctx.constants), *[None] * ctx.n_others


def check_classes(n_wrong, target, n_classes):
    """Raise if a kernel met targets that are no classes."""
    if n_wrong:
        raise ValueError(
            f"target must lie in [0, {n_classes - 1}] for scores of {n_classes} classes, got "
            f"values in [{target.min()}, {target.max()}]."
        )


def draw_key(generator):
    """Draw the number that a kernel on the processor makes its random numbers from."""
    return int(torch.randint(2**63 - 1, (), generator=generator, device="cpu"))

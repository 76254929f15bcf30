"""What the ways to compute an operator beside its reference have in common."""

import math

import torch

from ._dispatch import is_eager, needs_reference

#: Entries of scores treated together, where a row is not longer: few enough for the cache of a
#: processor, enough to keep an accelerator busy.
_AT_ONCE, _AT_ONCE_ELSEWHERE = 1 << 17, 1 << 24


class OwnGradient(torch.autograd.Function):
    """An operator on scores that is computed, and differentiated once, in a way of its own.

    ``apply(scores, *arguments)`` calls three methods of a subclass. ``compute``, of the same
    arguments, returns the result, the tensors that its gradient needs, and a constant.
    ``gradient``, of the gradient in the result, these tensors and this constant, returns the
    gradient in the scores. ``definition`` does so by operations of torch that can be
    differentiated in turn, and where the values of a gradient cannot be read.
    """

    @classmethod
    def forward(cls, ctx, scores, *arguments):
        result, saved, ctx.constant = cls.compute(scores, *arguments)
        ctx.save_for_backward(*saved)
        return result

    @classmethod
    def backward(cls, ctx, grad):
        differentiate = cls.definition if needs_reference(grad) else cls.gradient
        result = differentiate(grad, *ctx.saved_tensors, ctx.constant)
        return result, *[None] * (len(ctx.needs_input_grad) - 1)


class OwnLoss(OwnGradient):
    """A loss of each row, of which `reference` is the definition, of the same arguments.

    They are the scores, the target and parameters. The tensors that ``compute`` returns start
    with the first two, and the constant is the tuple of the parameters.

    Where no kernel fits, it is the definition, sparing memory: its graph is of many operations;
    that of a few rows at a time, differentiated at once, leaves no more than the gradient.
    """

    #: What is told :func:`split_rows`.
    parts = ()

    @classmethod
    def by_parts(cls, scores, target, *parameters):
        """Return the losses; where operations are not done one by one, by the definition."""
        if not (is_eager(scores) and is_eager(target)):
            return cls.reference(scores, target, *parameters)
        scores = scores if torch.is_grad_enabled() else scores.detach()
        return cls.apply(scores, target, *parameters)

    @classmethod
    def compute(cls, scores, target, *parameters):
        losses, wanted = scores.new_zeros(len(scores)), scores.requires_grad
        slopes = torch.empty_like(scores) if wanted else None
        for rows in split_rows(scores, *cls.parts):
            part = scores[rows].detach().requires_grad_(wanted)
            losses[rows], slope = cls.differentiate(part, target[rows], *parameters)
            if wanted:
                slopes[rows] = slope
        return losses, (scores, target, slopes), parameters

    @classmethod
    def differentiate(cls, scores, *arguments):
        """Return the losses of a few rows and, if it is wanted, the gradient of each."""
        with torch.set_grad_enabled(scores.requires_grad):
            losses = cls.reference(scores, *arguments)
            slope = torch.autograd.grad(losses.sum(), scores)[0] if losses.requires_grad else None
        return losses.detach(), slope

    @staticmethod
    def gradient(grad, scores, target, slopes, parameters):
        return grad[:, None] * slopes

    @classmethod
    def definition(cls, grad, scores, target, *others):
        create_graph = torch.is_grad_enabled()
        with torch.enable_grad():
            losses = cls.reference(scores, target, *others[-1])
            return torch.autograd.grad(losses, scores, grad, create_graph=create_graph)[0]


def how_many_at_once(x):
    """Return how many tensors of the size of `x` are processed in one step."""
    return max(1, (_AT_ONCE if x.is_cpu else _AT_ONCE_ELSEWHERE) // max(1, x.numel()))


def split_rows(scores, most_parts=math.inf, undivided=0):
    """Yield slices of the rows that are treated together, about so many at most.

    At most `undivided` entries are one part.
    """
    if scores.numel() <= undivided:
        most_parts = 1
    step = max(how_many_at_once(scores[:1]), len(scores) // most_parts)
    for start in range(0, len(scores) if scores.numel() else 0, step):
        yield slice(start, start + step)


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

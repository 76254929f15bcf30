"""Random parts of the networks of this package: initial weights and dropout.

They draw from generators that they are given or own, and from torch's default one only where
none was given.
"""

import math

import torch
from torch import nn

from .._checks import check_real
from .._randomness import OwnGenerator, part_of_batch
from ..operators._backends import draw_key
from ..operators._dispatch import choose, kernels

#: How layers are made for :func:`drawn`; their precision is that of the training.
EMPTY = {"device": "meta", "dtype": torch.float32}


def drawn(layer, generator=None):
    """Return a linear or convolutional layer, made without weights, with its initial ones.

    Parameters
    ----------
    layer : nn.Linear or nn.Conv2d
        Made with `EMPTY`, so that nothing was drawn yet.
    generator : torch.Generator, optional
        torch's default generator when absent.
    """
    device = torch.empty(0).device
    if device.type == "meta":
        return layer
    layer.to_empty(device=device)
    # What torch's own layers draw, in the same order.
    nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
    if layer.bias is not None:
        bound = 1 / math.sqrt(layer.weight[0].numel())
        nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layer


def _drop_and_scale(p):
    """Return how many of 2**32 are dropped with probability `p`, and what others are scaled by."""
    n_dropped = min(round(p * 2**32), 2**32 - 1)
    return n_dropped, 2**32 / (2**32 - n_dropped)


def draw_mask(x, p, generator):
    """Return a tensor like `x` that is zero with probability `p`, and 1 / (1 - p) elsewhere.

    `p` is rounded to a multiple of 2**-32. A kernel makes the mask from one number that is drawn;
    elsewhere words of integers are drawn, in less time than what ``bernoulli_`` compares.
    """
    part = part_of_batch.get()
    if part is None:
        return _draw(x, p, generator)
    rows, n_samples = part
    n_each = len(x) // (rows.stop - rows.start)
    whole = _draw(x.new_empty(n_each * n_samples, *x.shape[1:]), p, generator)
    return whole[n_each * rows.start : n_each * rows.stop]


def _draw(x, p, generator):
    n_dropped, kept = _drop_and_scale(p)
    mask = torch.empty_like(x, requires_grad=False)
    if choose("dropout", mask) == "cpu":
        # The kernel goes through the entries in their order, whatever the layout of x in memory.
        drawn = mask.contiguous()
        kernels.draw_mask(draw_key(generator), mask.numel(), n_dropped, kept, None, drawn)
        return mask.copy_(drawn)
    words = torch.empty((x.numel() + 1) // 2, dtype=torch.int64, device=x.device)
    words.random_(-(2**63), None, generator=generator)
    numbers = words.view(torch.int32)[: x.numel()].view(x.shape)
    torch.ge(numbers, n_dropped - 2**31, out=mask)
    return mask.mul_(kept)


class Dropout(nn.Module):
    """Set a share of the entries to zero in training, and scale up the others.

    It is :class:`torch.nn.Dropout` with a generator of its own: other threads, and other parts of
    the program, neither change the entries that are dropped nor are changed by them. The state
    of the generator is pickled and copied with the module. Graphs of ``torch.compile`` break
    here, as they cannot hold a generator.

    Parameters
    ----------
    p : float in [0, 1)
        Probability that an entry is dropped.
    generator : torch.Generator or int, optional
        Where the seed of the module's generator is drawn from, once, by the constructor, or the
        seed itself. When absent the seed is drawn from torch's default generator.

    Raises
    ------
    TypeError, ValueError
        If `p` is not a number in [0, 1).

    Examples
    --------
    >>> import torch
    >>> from sksetvalued.networks import Dropout
    >>> dropout = Dropout(0.5, generator=0)
    >>> sorted(set(dropout(torch.ones(100)).tolist()))
    [0.0, 2.0]
    >>> dropout.eval()(torch.ones(3))
    tensor([1., 1., 1.])
    """

    def __init__(self, p, generator=None):
        super().__init__()
        check_real("dropout", p, "[0, 1)")
        self.p = float(p)
        # Without dropout nothing is drawn, so that the other draws stay what they are.
        self.generator = OwnGenerator(generator) if p else None

    def forward(self, x):
        """Return `x`, with entries dropped in training mode."""
        if not self.training or self.p == 0:
            return x
        generator = self.generator.on(x.device)
        if torch.compiler.is_compiling():
            # Graphs of torch.compile break here, as they cannot hold a generator.
            return x * torch.compiler.disable(draw_mask)(x, self.p, generator)
        return x * draw_mask(x, self.p, generator)

    def extra_repr(self):
        return f"p={self.p}"


class RectifiedDropout(Dropout):
    """Do to finite numbers what :class:`torch.nn.ReLU` and then :class:`Dropout` do.

    It takes one pass where a kernel can.

    Parameters
    ----------
    p, generator
        As of :class:`Dropout`.
    """

    def forward(self, x):
        """Return the positive part of `x`, with entries dropped in training mode."""
        drops = self.training and self.p
        if not drops or part_of_batch.get() is not None or choose("dropout", x) != "cpu":
            return super().forward(torch.relu(x))
        mask = torch.empty_like(x, memory_format=torch.contiguous_format, requires_grad=False)
        key = draw_key(self.generator.on(x.device))
        kernels.draw_mask(key, x.numel(), *_drop_and_scale(self.p), x.contiguous(), mask)
        return x * mask

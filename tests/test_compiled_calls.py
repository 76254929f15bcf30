"""What reaches the compiled kernels, by address, is what they read; the rest is left to torch."""

import pytest
import torch

from sksetvalued.losses import (
    CalibratedTopKHingeLoss,
    NoisedTopKHingeLoss,
    SmoothedTopKHingeLoss,
    SparsemaxLoss,
    SparseTopLoss,
)
from sksetvalued.operators import noised_top_k, sparse_top
from sksetvalued.operators._dispatch import kernels
from sksetvalued.operators._top_k import top_k

pytestmark = pytest.mark.skipif(kernels is None, reason="the kernels are not built")

N_CLASSES = 300
SCORES = torch.randn(8, N_CLASSES, generator=torch.Generator().manual_seed(0))
TARGET = torch.randint(N_CLASSES, (8,), generator=torch.Generator().manual_seed(1))
LOSSES = {
    "calibrated": CalibratedTopKHingeLoss(2),
    "noised": NoisedTopKHingeLoss(2, 0.5, generator=0).eval(),
    "margins": NoisedTopKHingeLoss(
        2, 0.5, class_counts=torch.arange(1, N_CLASSES + 1), max_margin=0.4, generator=0
    ).eval(),
    "smoothed": SmoothedTopKHingeLoss(2),
    "sparsemax": SparsemaxLoss(),
    "sparse_top": SparseTopLoss(),
}


@pytest.fixture(params=LOSSES)
def name(request):
    return request.param


def target_of(name):
    return torch.nn.functional.one_hot(TARGET, N_CLASSES) if name == "sparse_top" else TARGET


def value_and_gradient(name, scores=SCORES):
    leaf = scores.detach().requires_grad_()
    value = LOSSES[name](leaf, target_of(name))
    return value.detach(), torch.autograd.grad(value, leaf)[0]


def operators():
    return (
        *top_k(SCORES, 2),
        noised_top_k(SCORES, 2, 0.5, generator=torch.Generator().manual_seed(0)),
        sparse_top(SCORES, 2.5),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_the_default_precision_changes_nothing(name, dtype):
    expected = *value_and_gradient(name), *operators()
    torch.set_default_dtype(dtype)
    try:
        found = *value_and_gradient(name), *operators()
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_the_default_device_changes_nothing(name):
    expected = *value_and_gradient(name), *operators()
    with torch.device("meta"):
        found = *value_and_gradient(name), *operators()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "sparse_top"])
@pytest.mark.parametrize(
    "unfit",
    [
        lambda t: t.int(),
        lambda t: t[:3],
        lambda t: torch.cat([t, t]),
        lambda t: t[:, None],
        lambda t: t.float(),
        lambda t: t.to("meta"),
        lambda t: t - N_CLASSES,
        lambda t: t + N_CLASSES,
        lambda t: t - 2**40,
    ],
    ids=["int32", "short", "long", "column", "float", "elsewhere", "below", "above", "far"],
)
def test_a_target_is_an_error_or_read_as_it_is(name, unfit):
    """Even where nobody has checked it: `sample_losses` is called as with validate=False."""
    leaf, target = SCORES.clone().requires_grad_(), unfit(TARGET)
    expected = LOSSES[name].sample_losses(SCORES, TARGET)
    try:
        losses = LOSSES[name].sample_losses(leaf, target)
        losses.sum().backward()
    except (ValueError, RuntimeError, IndexError, TypeError):
        return
    assert torch.equal(target.long(), TARGET)
    torch.testing.assert_close(losses.detach(), expected)


def test_memory_that_is_not_the_values_is_not_read(name):
    leaf = SCORES.clone().requires_grad_()
    losses = LOSSES[name].sample_losses(leaf, target_of(name))
    expected = torch.autograd.grad(losses, leaf, torch.full((8,), 0.5), retain_graph=True)
    for grad in (torch._neg_view(torch.full((8,), -0.5)), torch.full((1,), 0.5).expand(8)):
        found = torch.autograd.grad(losses, leaf, grad, retain_graph=True)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    (zero,) = torch.autograd.grad(losses, leaf, torch._efficientzerotensor(8))
    assert not zero.any()


def test_several_gradients_are_computed_together(name):
    def losses(scores):
        return LOSSES[name].sample_losses(scores, target_of(name))

    alone, together = (
        torch.autograd.functional.jacobian(losses, SCORES, vectorize=v) for v in (False, True)
    )
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)

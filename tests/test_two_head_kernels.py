"""The compiled kernel of the two-head loss does what its definition says."""

import math

import pytest
import reference_multi as reference
import torch

from sksetvalued.losses import AverageKLoss
from sksetvalued.losses._two_head import two_head
from sksetvalued.losses.functional import pseudo_positives
from sksetvalued.operators._dispatch import choose, kernels

if kernels is None:
    pytest.skip("the kernels are not built", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("instruction_set")
ALPHA = 0.7


def draw(n_samples, n_classes, scale=2.0):
    generator = torch.Generator().manual_seed(n_samples * n_classes)
    heads = scale * torch.randn(2, n_samples, n_classes, generator=generator)
    return *heads.unbind(), torch.randint(n_classes, (n_samples,), generator=generator)


def differentiate(scores, proposals, target, k, dtype=torch.float32, alpha=ALPHA):
    """Return the losses, and the gradients of a weighted sum of them."""
    heads = [x.to(dtype).requires_grad_() for x in (scores.detach(), proposals.detach())]
    losses = two_head(*heads, target, k, alpha)
    weight = torch.linspace(0.5, 2, len(target), dtype=dtype)
    return losses.detach(), *torch.autograd.grad((weight * losses).sum(), heads)


def assert_agree(scores, proposals, target, k, tolerance=1e-6, alpha=ALPHA):
    assert choose("two_head", scores, target) == "cpu"
    exact = differentiate(scores, proposals, target, k, torch.float64, alpha)
    for got, expected in zip(differentiate(scores, proposals, target, k, alpha=alpha), exact):
        assert got.dtype == torch.float32
        size = expected.abs().amax(-1, keepdim=True).clamp(min=1e-3)
        assert ((got - expected).abs() <= tolerance * size).all()


@pytest.mark.parametrize("k", [1, 1.3, 2, "half", "all"])
@pytest.mark.parametrize(
    ("n_samples", "n_classes"), [(1, 2), (7, 3), (31, 16), (5, 17), (40, 100), (3, 5000)]
)
def test_it_agrees_with_the_definition_in_double_precision(n_samples, n_classes, k):
    k = {"half": n_classes / 2 + 0.5, "all": n_classes}.get(k, k)
    assert_agree(*draw(n_samples, n_classes), k)


@pytest.mark.parametrize("scale", [1e-3, 30.0, 300.0])
def test_it_agrees_at_small_and_at_large_scores(scale):
    assert_agree(*draw(20, 12, scale), 3, tolerance=1e-6 * max(1, scale / 30))


def test_without_alpha_it_is_the_cross_entropy_and_that_of_the_label():
    scores, proposals, target = draw(9, 20)
    assert_agree(scores, proposals, target, 4, alpha=0.0)
    (_, of_scores, _) = differentiate(scores, proposals, target, 4, alpha=0.0)
    assert torch.equal(of_scores.nonzero()[:, 1], target)


@pytest.mark.parametrize("k", [1, 1.3, 2, 2.3, 4, 5])
@pytest.mark.parametrize("kind", ["equal", "rounded"])
def test_of_candidates_that_tie_the_last_ones_are_taken(kind, k):
    scores, proposals, target = draw(10, 5)
    proposals = torch.eye(5)[torch.zeros(10, dtype=int)] if kind == "equal" else proposals.round()
    _, of_scores, _ = differentiate(scores, proposals, target, k)
    chosen = {(i, j) for i, j in (of_scores < 0).nonzero().tolist() if j != target[i]}
    assert torch.equal(
        (of_scores < 0).scatter(1, target[:, None], False), pseudo_positives(proposals, target, k)
    )
    if kind == "equal":
        assert chosen == reference.candidates(proposals, target, int(round((k - 1) * 10, 9)))


def test_rows_may_lie_in_any_order_in_memory():
    scores, proposals, target = draw(6, 30)
    expected = differentiate(scores, proposals, target, 2)
    by_columns = [x.t().contiguous().t() for x in (scores, proposals)]
    spread = torch.stack([target, target], dim=1)[:, 0]
    for got, each in zip(differentiate(*by_columns, spread, 2), expected):
        assert torch.equal(got, each)


@pytest.mark.parametrize("which", [0, 1])
def test_one_head_alone_may_be_trained(which):
    *heads, target = draw(6, 8)
    expected = differentiate(*heads, target, 2)[1 + which]
    heads[which].requires_grad_()
    losses = two_head(*heads, target, 2, ALPHA)
    (got,) = torch.autograd.grad(losses, heads[which], torch.linspace(0.5, 2, 6))
    assert torch.equal(got, expected)
    assert torch.equal(two_head(*[x.detach() for x in heads], target, 2, ALPHA), losses)


def test_second_derivatives_are_those_of_the_definition():
    *heads, target = draw(6, 8)
    found = []
    for dtype in (torch.float32, torch.float64):
        leaves = [x.to(dtype).requires_grad_() for x in heads]
        losses = two_head(*leaves, target, 2.5, ALPHA)
        slopes = torch.autograd.grad(losses.sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(x.square().sum() for x in slopes), leaves))
    for got, expected in zip(*found):
        torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-6)


def test_derivatives_of_derivatives_where_one_head_is_made_of_the_other():
    scores, _, target = draw(6, 8)
    scores.requires_grad_()
    losses = two_head(scores, scores - 1, target, 2.5, ALPHA).sum()
    (expected,) = torch.autograd.grad(losses, scores, retain_graph=True)
    (got,) = torch.autograd.grad(losses, scores, create_graph=True)
    torch.testing.assert_close(got, expected)
    torch.autograd.grad(got.sum(), scores)


def test_a_row_that_is_no_number_spoils_no_other():
    scores, proposals, target = draw(6, 8)
    expected, *_ = differentiate(scores, proposals, target, 1)
    for spoilt in (scores, proposals):
        kept = spoilt[2].clone()
        spoilt[2, 5] = math.nan
        losses, *_ = differentiate(scores, proposals, target, 1)
        spoilt[2] = kept
        assert losses.isnan().nonzero().tolist() == [[2]]
        others = torch.arange(6) != 2
        assert torch.equal(losses[others], expected[others])


def test_classes_of_probability_zero_come_before_true_ones():
    proposals = torch.tensor([[-torch.inf, 1.0, 0.0], [0.0, -torch.inf, -torch.inf]])
    target, scores = torch.tensor([2, 0]), torch.zeros(2, 3)
    _, of_scores, _ = differentiate(scores, proposals, target, 3)
    assert (of_scores < 0).all()
    _, of_scores, _ = differentiate(scores, proposals, target, 2)
    assert (of_scores < 0).tolist() == [[False, True, True], [True, False, True]]


def test_classes_that_do_not_exist_are_named():
    scores, proposals, target = draw(3, 4)
    for wrong in (-1, 4):
        target[1] = wrong
        with pytest.raises(ValueError, match=rf"^target must lie in \[0, 3\].*{wrong}"):
            two_head(scores, proposals, target, 2, ALPHA)


def test_no_rows():
    losses, *slopes = differentiate(
        torch.zeros(0, 4), torch.zeros(0, 4), torch.zeros(0, dtype=int), 2
    )
    assert losses.shape == (0,)
    assert all(each.shape == (0, 4) for each in slopes)


def test_weights_of_one_give_what_none_give():
    scores, proposals, target = draw(12, 9)
    loss = AverageKLoss(2.5, ALPHA)
    ones = loss((scores, proposals), target, torch.ones(12))
    torch.testing.assert_close(loss((scores, proposals), target), ones, rtol=1e-6, atol=0)

"""What `ranks` of the losses accepts and means."""

import pickle

import numpy as np
import pytest
import reference
import torch
from torch.autograd import gradcheck, gradgradcheck

from sksetvalued.losses import NoisedTopKHingeLoss
from sksetvalued.losses._ranks import check_ranks, resolve_ranks
from sksetvalued.losses.functional import noised_top_k_hinge_loss


@pytest.mark.parametrize(
    ("ranks", "n_classes", "expected"),
    [
        (None, 10, ((5, 1.0),)),
        (None, 3, ((5, 1.0),)),
        ([(5, 3), (1, 1)], 10, ((1, 0.25), (5, 0.75))),
        ({1: 1, "k": 1}, 10, ((1, 0.5), (5, 0.5))),
        (((1, 1), (1, 2), (2, 0), ("k", 1)), 10, ((1, 0.75), (5, 0.25))),
        (((1, 1), (5, 1), (9, 2)), 5, ((1, 0.25), (4, 0.75))),
        (np.array([[1, 2], [3, 2]]), 5, ((1, 0.5), (3, 0.5))),
        ([(1, 3e38), (2, 3e38)], 5, ((1, 0.5), (2, 0.5))),
    ],
)
def test_ranks_are_clipped_merged_and_normalised(ranks, n_classes, expected):
    assert resolve_ranks(5, check_ranks(ranks), n_classes) == expected


@pytest.mark.parametrize(
    ("ranks", "error", "message"),
    [
        (5, ValueError, "pairs of a rank and a weight"),
        ("k", ValueError, "pairs of a rank and a weight"),
        ([], ValueError, "pairs of a rank and a weight"),
        ([1, 5], ValueError, "pairs of a rank and a weight"),
        ([(1, 0.5, 2)], ValueError, "pairs of a rank and a weight"),
        ([(0, 1)], ValueError, "a rank in ranks.* at least 1, got 0"),
        ([(1.0, 1)], TypeError, "a rank in ranks.* integer, got 1.0"),
        ([("K", 1)], TypeError, "a rank in ranks.* integer, got 'K'"),
        ([(1, -0.5)], ValueError, "weight of rank 1 .* at least 0, got -0.5"),
        ({"k": float("inf")}, ValueError, "weight of rank 'k' .* finite"),
        ({1: "half"}, TypeError, "weight of rank 1 .* number, got 'half'"),
        ({1: 0.0, 2: 0}, ValueError, "some rank a positive weight"),
    ],
)
def test_bad_ranks_are_named(ranks, error, message):
    with pytest.raises(error, match=message):
        check_ranks(ranks)
    assert check_ranks(None) is None


def test_ranks_given_once_are_kept():
    assert check_ranks(iter([(1, 2), ("k", 3)])) == ((1, 2), ("k", 3))
    assert check_ranks({1: 2, "k": 3}) == ((1, 2), ("k", 3))


# What the noised hinge makes of them.

SCORES = torch.randn(6, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
TARGET = torch.tensor([0, 3, 11, 5, 5, 7])
NOISE = torch.randn(4, 6, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
MIXTURES = [{1: 1.0, "k": 3.0}, [(2, 1), (3, 1), (11, 2)], {r: r for r in range(1, 12)}]


def noised(scores=SCORES, target=TARGET, noise=NOISE, **options):
    options = {"k": 5, "epsilon": 0.4, "margin": 0.7, "reduction": "none", **options}
    return noised_top_k_hinge_loss(scores, target, noise=noise, **options)


@pytest.mark.parametrize("ranks", MIXTURES)
def test_noised_mixture_is_the_weighted_sum_of_its_ranks_for_given_noise(ranks):
    parts = [w * noised(k=rank, scale=2.0) for rank, w in resolve_ranks(5, check_ranks(ranks), 12)]
    torch.testing.assert_close(noised(ranks=ranks, scale=2.0), sum(parts))
    by_hand = [
        sum(
            w * reference.noised_top_k_hinge(s.numpy(), y, rank, 0.4, z.numpy(), 0.7)
            for rank, w in resolve_ranks(5, check_ranks(ranks), 12)
        )
        for s, y, z in zip(SCORES, TARGET, NOISE.transpose(0, 1))
    ]
    np.testing.assert_allclose(noised(ranks=ranks), by_hand)


def test_one_rank_is_the_loss_of_that_k_to_the_last_bit():
    scores = SCORES.float().repeat(1, 20)
    losses = [
        NoisedTopKHingeLoss(k, 0.5, reduction="none", generator=3, ranks=ranks)(scores, TARGET)
        for k, ranks in ((5, None), (5, {"k": 0.3}), (2, [(5, 7), (5, 2)]))
    ]
    assert torch.equal(losses[0], losses[1])
    assert torch.equal(losses[0], losses[2])


@pytest.mark.parametrize("kernels", ["0", "1"])
def test_means_of_a_mixture_are_those_of_its_ranks(kernels, monkeypatch):
    """Of losses and gradients, 5 standard errors: false alarms below 82 x 6e-7."""
    monkeypatch.setenv("SKSETVALUED_KERNELS", kernels)
    n, found = 4000, []
    for seed, ranks in enumerate(({1: 0.25, 5: 0.75}, {1: 1.0}, {5: 1.0})):
        scores = torch.linspace(-1, 1, 40).expand(n, -1).clone().requires_grad_()
        loss = NoisedTopKHingeLoss(5, 0.5, 2, reduction="none", generator=seed, ranks=ranks)
        value = loss(scores, torch.full((n,), 25))
        (gradient,) = torch.autograd.grad(value.sum(), scores)
        found.append((value.detach(), gradient))
    for mixed, first, last in zip(*found):
        expected = 0.25 * first.mean(0) + 0.75 * last.mean(0)
        variance = mixed.var(0) + first.var(0) / 16 + last.var(0) * 9 / 16
        assert ((mixed.mean(0) - expected).abs() <= 5 * (variance / n).sqrt() + 1e-6).all()


@pytest.mark.without_kernels
def test_gradients_of_a_mixture():
    leaf = (SCORES.clone().requires_grad_(),)
    ranks = {1: 1.0, 4: 2.0, "k": 1.0}
    assert gradcheck(lambda s: noised(s, ranks=ranks), leaf, eps=1e-7)
    assert gradgradcheck(lambda s: noised(s, ranks=ranks), leaf)
    along = torch.func.jvp(lambda s: noised(s, ranks=ranks), (SCORES,), (NOISE[0],))[1]
    jacobian = torch.func.jacrev(lambda s: noised(s, ranks=ranks))(SCORES)
    torch.testing.assert_close(along, (jacobian * NOISE[0]).sum((1, 2)))
    assert along.abs().sum() > 0


def test_ranks_need_no_k_below_the_number_of_classes():
    few = noised(SCORES[:, :3], TARGET % 3, NOISE[..., :3], ranks={1: 0.5, 9: 0.5})
    clipped = noised(SCORES[:, :3], TARGET % 3, NOISE[..., :3], ranks={1: 0.5, 2: 0.5}, k=2)
    assert torch.equal(few, clipped)
    with pytest.raises(ValueError, match="at least two classes"):
        noised(SCORES[:, :1], TARGET * 0, NOISE[..., :1], ranks={1: 1})


def test_ranks_reach_the_loss_of_an_estimator():
    loss = NoisedTopKHingeLoss.from_estimator({"k": 5.0}, {"ranks": {1: 0.5, "k": 0.5}})
    assert loss.ranks == ((1, 0.5), ("k", 0.5))
    assert "ranks" in repr(loss)
    copied = pickle.loads(pickle.dumps(loss))
    assert torch.equal(copied(SCORES.float(), TARGET), loss(SCORES.float(), TARGET))

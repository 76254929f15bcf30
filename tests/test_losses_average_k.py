"""Two-head average-K, assume-negative, expected-positive and ROLE losses."""

import copy
import pickle

import numpy as np
import pytest
import reference_multi as reference
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from sksetvalued import AverageKClassifier
from sksetvalued.losses import (
    LOSSES,
    AssumeNegativeLoss,
    AverageKLoss,
    ExpectedPositiveLoss,
    ROLELoss,
)
from sksetvalued.losses import functional as F

NAMES = ("two_head", "assume_negative", "expected_positive", "role")
names = pytest.mark.parametrize("name", NAMES)
N, L = 4, 5


def draw(n, n_classes, seed=0, dtype=torch.float64, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    matrices = scale * torch.randn(3, n, n_classes, generator=generator, dtype=torch.float64)
    target = torch.randint(n_classes, (n,), generator=generator)
    return *matrices.to(dtype).unbind(), target


def build(name, n=N, n_classes=L, k=2, **kwargs):
    supplied = {"k": k, "alpha": 0.7, "n_samples": n, "n_classes": n_classes}
    return LOSSES[name].from_estimator(supplied, kwargs).double()


def arguments(name, scores, proposals, n=N):
    """Return the input of the named loss, and what else its forward needs."""
    extra = {"index": torch.arange(n, device=scores.device)} if name == "role" else {}
    return ((scores, proposals) if name == "two_head" else scores), extra


def logits_of_estimates(loss, target):
    return loss.label_logits(torch.arange(len(target)), target).detach()


@pytest.mark.parametrize("n_classes", range(3, 9))
def test_average_k_equals_the_brute_force_at_every_k(n_classes):
    scores, proposals, _, target = draw(6, n_classes, seed=n_classes)
    for k in [*range(1, n_classes + 1), 1.1, 1.5, 2.75]:
        count = int(round((k - 1) * 6, 6))
        expected = reference.average_k(scores, proposals, target.tolist(), count, 0.7)
        got = AverageKLoss(k, alpha=0.7)((scores, proposals), target)
        assert abs(got.item() - expected) < 1e-10


@pytest.mark.without_kernels
@pytest.mark.parametrize("n_classes", range(3, 9))
def test_other_losses_equal_the_brute_force(n_classes):
    scores, _, _, target = draw(6, n_classes, seed=n_classes)
    expected = [reference.assume_negative(s.tolist(), y) for s, y in zip(scores, target)]
    got = AssumeNegativeLoss(reduction="none")(scores, target)
    np.testing.assert_allclose(got, expected, atol=1e-10, rtol=0)
    for k in [*range(1, n_classes + 1), 1.5]:
        for beta in (None, 0.3):
            b = 1 / n_classes if beta is None else beta
            expected = reference.expected_positive(scores, target, k, b)
            got = ExpectedPositiveLoss(k, beta)(scores, target)
            assert abs(got.item() - expected) < 1e-10
            loss = ROLELoss(k, beta, n_samples=6, n_classes=n_classes).double()
            estimates = logits_of_estimates(loss, target)
            expected = reference.role(scores, target, estimates, k, b)
            assert abs(loss(scores, target, index=torch.arange(6)).item() - expected) < 1e-10


@pytest.mark.without_kernels
@pytest.mark.parametrize("name", ["two_head", "assume_negative", "expected_positive"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_and_second_gradients(name, reduction, weighted):
    scores, proposals, _, target = draw(N, L, seed=3)
    weight = torch.tensor([2.0, 0.5, 0.0, 1.0], dtype=torch.float64) if weighted else None
    loss = build(name, reduction=reduction)

    def call(s, p):
        return loss(arguments(name, s, p)[0], target, sample_weight=weight)

    scores.requires_grad_()
    proposals.requires_grad_(name == "two_head")
    assert torch.autograd.gradcheck(call, (scores, proposals))
    assert torch.autograd.gradgradcheck(call, (scores, proposals))


def test_role_teaches_each_side_with_the_other_held_fixed():
    scores, estimates, _, target = draw(N, L, seed=4)

    def finite_differences(learner, teacher):
        grad = torch.zeros_like(learner)
        for i, j in np.ndindex(*learner.shape):
            step = torch.zeros_like(learner)
            step[i, j] = 1e-6
            # The cross term of the pair is counted in both halves of the value.
            up, down = (one_side(learner + s, teacher) for s in (step, -step))
            grad[i, j] = (up - down) / 2e-6
        return grad

    def one_side(learner, teacher):
        q = teacher.sigmoid()
        match = binary_cross_entropy_with_logits(learner, q, reduction="sum") / N
        return (match + reference.expected_positive(learner, target, 2, 1 / L)) / 2

    a, b = scores.clone().requires_grad_(), estimates.clone().requires_grad_()
    F.role_loss(a, target, b, k=2).backward()
    assert torch.allclose(a.grad, finite_differences(scores, estimates), atol=1e-8)
    assert torch.allclose(b.grad, finite_differences(estimates, scores), atol=1e-8)


@names
def test_none_terms_average_to_the_loss(name):
    scores, proposals, _, target = draw(N, L)
    given, extra = arguments(name, scores, proposals)
    each = build(name, reduction="none")(given, target, **extra)
    assert each.shape == (N,)
    assert torch.allclose(each.mean(), build(name)(given, target, **extra))
    assert torch.allclose(each.sum(), build(name, reduction="sum")(given, target, **extra))


@names
def test_integer_weights_repeat_rows_and_zero_leaves_out(name):
    scores, proposals, _, target = draw(N, L, seed=1)
    weight = torch.tensor([2, 0, 1, 3])
    rows = torch.repeat_interleave(torch.arange(N), weight)
    loss = build(name)
    if name == "two_head":
        # Candidates that the repeated batch does not split between copies of one row.
        chosen = F.pseudo_positives(proposals[rows], target[rows], loss.k)
        assert torch.equal(
            chosen, F.pseudo_positives(proposals, target, loss.k, weight.double())[rows]
        )
    given, extra = arguments(name, scores, proposals)
    got = loss(given, target, sample_weight=weight.double(), **extra)
    twice, extra = arguments(name, scores[rows], proposals[rows], len(rows))
    if name == "role":
        extra["index"] = rows
    assert torch.allclose(got, loss(twice, target[rows], **extra))


@names
def test_scaling_the_weights_changes_nothing(name):
    scores, proposals, _, target = draw(N, L, seed=2)
    given, extra = arguments(name, scores, proposals)
    weight = torch.tensor([0.3, 1.7, 0.9, 1.1], dtype=torch.float64)
    loss = build(name)
    a, b = (loss(given, target, sample_weight=c * weight, **extra) for c in (1.0, 1e3))
    assert torch.allclose(a, b)
    ones = torch.ones(N, dtype=torch.float64)
    plain = loss(given, target, **extra)
    assert torch.allclose(loss(given, target, sample_weight=ones, **extra), plain)


@names
def test_permuting_classes_permutes_the_gradient(name):
    scores, proposals, _, target = draw(N, L)
    order = torch.tensor([3, 0, 4, 1, 2])
    grads = []
    for columns in (torch.arange(L), order):
        s = scores[:, columns].clone().requires_grad_()
        loss = build(name)
        if name == "role":
            loss.estimates.data = loss.estimates.data[:, columns]
        given, extra = arguments(name, s, proposals[:, columns])
        loss(given, columns.argsort()[target], **extra).backward()
        grads.append(s.grad)
    assert torch.allclose(grads[0][:, order], grads[1])


@pytest.mark.parametrize("k", [1, 1.25, 1.3, 2, 2.3, 3.99, 7, 8])
@pytest.mark.parametrize("kind", ["random", "ties", "saturated", "half"])
def test_candidates_are_the_stated_number_of_the_likeliest_false_classes(k, kind):
    proposals, _, _, target = draw(10, 8, dtype=torch.float32)
    if kind == "ties":
        proposals = proposals.round()
        proposals[3:7] = proposals[3]
    if kind == "saturated":
        proposals = 1e4 * proposals
    if kind == "half":
        proposals = proposals.bfloat16()
    chosen = F.pseudo_positives(proposals, target, k)
    count = int(round((k - 1) * 10, 9))
    assert chosen.sum() == count
    assert not chosen[torch.arange(10), target].any()
    values = proposals.double().log_softmax(1).scatter(1, target[:, None], -torch.inf)
    assert torch.equal(values[chosen].sort().values, values.flatten().sort().values[80 - count :])


@pytest.mark.parametrize("weight", [None, torch.ones(2)])
def test_false_classes_of_probability_zero_come_before_true_ones(weight):
    proposals = torch.tensor([[-torch.inf, 1.0, 0.0], [0.0, -torch.inf, -torch.inf]])
    target = torch.tensor([2, 1])
    chosen = F.pseudo_positives(proposals, target, 3, weight)
    assert chosen.tolist() == [[True, True, False], [True, False, True]]
    chosen = F.pseudo_positives(proposals, target, 2, weight)
    assert chosen.tolist() == [[False, True, False], [True, False, False]]


@pytest.mark.parametrize(
    "loss",
    [AverageKLoss(2), ExpectedPositiveLoss(2), ROLELoss(2, n_samples=4, n_classes=3)],
    ids=lambda loss: type(loss).__name__,
)
def test_losses_that_couple_samples_say_that_no_single_one_has_a_loss(loss):
    with pytest.raises(NotImplementedError, match=rf"^{type(loss).__name__} .*sample_losses"):
        loss.sample_losses(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))


def test_function_twin_of_assume_negative_takes_weights():
    scores, _, _, target = draw(N, L)
    weight = torch.tensor([2.0, 0.0, 1.0, 0.5])
    expected = AssumeNegativeLoss()(scores, target, weight)
    assert torch.equal(F.assume_negative_loss(scores, target, sample_weight=weight), expected)


@names
def test_samples_without_weight_lose_nothing(name):
    scores, proposals, _, target = draw(N, L)
    given, extra = arguments(name, scores.requires_grad_(), proposals)
    for reduction in ("sum", "none"):
        loss = build(name, reduction=reduction)(given, target, sample_weight=0.0 * target, **extra)
        assert torch.equal(loss, torch.zeros_like(loss))
        (gradient,) = torch.autograd.grad(loss.sum(), scores)
        assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("k", [1.3, 2, 2.3, 4])
def test_candidates_of_ties_are_the_last_ones(k):
    proposals = torch.zeros(10, 5)
    proposals[:, 1] = 1.0
    _, _, _, target = draw(10, 5)
    expected = reference.candidates(proposals, target, int(round((k - 1) * 10, 9)))
    for weight in (None, torch.full((10,), 0.1)):
        chosen = F.pseudo_positives(proposals, target, k, weight)
        assert {(i, j) for i, j in chosen.nonzero().tolist()} == expected


def test_weighted_candidates_stay_within_the_budget():
    proposals, _, _, target = draw(20, 6)
    weight = torch.rand(20, generator=torch.Generator().manual_seed(0))
    weight[-1] = 0
    for k in (1.0, 1.5, 2.0, 5.5, 6.0):
        chosen = F.pseudo_positives(proposals, target, k, weight)
        size = (weight[:, None] * chosen).sum()
        assert size <= (k - 1) * weight.sum() * (1 + 1e-6)
        assert size > (k - 1) * weight.sum() - weight.max() - 1e-5
    assert chosen.sum() == 20 * 5


@pytest.mark.parametrize("light", [1.0, 0.1, 1e-3])
@pytest.mark.parametrize("kind", ["random", "ties"])
def test_weighted_candidates_are_taken_one_by_one(kind, light):
    """Where those of light rows come first, they are many."""
    proposals, _, _, target = draw(30, 40, dtype=torch.float32)
    proposals = proposals.round() if kind == "ties" else proposals
    proposals[:3] *= 10
    weight = torch.rand(30, generator=torch.Generator().manual_seed(0)).double()
    weight[3:] *= light
    values = proposals.log_softmax(1).scatter(1, target[:, None], -torch.inf).flatten().tolist()
    for k in (1.1, 3, 9):
        left, expected = (k - 1) * weight.sum().item() * (1 + 1e-9), set()
        for place in sorted(range(len(values)), key=lambda j: (values[j], j), reverse=True):
            left -= weight[place // 40].item()
            if left < 0:
                break
            expected.add(place)
        chosen = F.pseudo_positives(proposals, target, k, weight)
        assert set(chosen.flatten().nonzero()[:, 0].tolist()) == expected


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float64])
def test_candidates_do_not_depend_on_the_scale_of_the_weights(dtype):
    rng = torch.Generator().manual_seed(0)
    for k in (1.5, 2, 2.5):
        for _ in range(50):
            proposals, target = torch.randn(12, 5, generator=rng), torch.arange(12) % 5
            weight = torch.randint(1, 4, (12,), generator=rng).to(dtype)
            chosen = F.pseudo_positives(proposals, target, k, weight)
            for factor in (0.1, 0.7, 3):
                scaled = F.pseudo_positives(proposals, target, k, factor * weight)
                assert torch.equal(scaled, chosen)


def test_limits_of_the_average_k_loss():
    scores, proposals, _, target = draw(N, L)
    proposal = torch.nn.functional.cross_entropy(proposals, target)
    # k = 1: no candidate, and alpha = 1 gives the assume-negative loss.
    got = AverageKLoss(1, alpha=1.0)((scores, proposals), target)
    assert torch.allclose(got, proposal + AssumeNegativeLoss()(scores, target))
    # k = L: every other class is a candidate, and no negative is left.
    got = AverageKLoss(L, alpha=1.0)((scores, proposals), target)
    assert torch.allclose(got, proposal + AssumeNegativeLoss()(*negated(scores, target)))


def negated(scores, target):
    """Return scores with the sign of all but the true label changed."""
    sign = 2.0 * torch.nn.functional.one_hot(target, L) - 1
    return sign * scores, target


def test_no_gradient_passes_through_the_choice_of_candidates():
    scores, proposals, _, target = draw(N, L)
    proposals.requires_grad_()
    AverageKLoss(2, alpha=5.0)((scores, proposals), target).backward()
    alone = proposals.detach().clone().requires_grad_()
    torch.nn.functional.cross_entropy(alone, target).backward()
    assert torch.allclose(proposals.grad, alone.grad)


def test_expected_positive_is_cole_s_loss_times_the_number_of_classes():
    scores, _, _, target = draw(N, L)
    p = scores.sigmoid()
    theirs = -p[torch.arange(N), target].log().sum() / (L * N) + (p.sum(1).mean() - 2) ** 2 / L**2
    assert torch.allclose(ExpectedPositiveLoss(2)(scores, target) / L, theirs)


def test_expected_positive_pulls_a_label_with_a_very_low_score():
    scores = torch.full((1, 3), -40.0, requires_grad=True)
    ExpectedPositiveLoss(1, beta=0.0)(scores, torch.tensor([0])).backward()
    assert scores.grad[0, 0] == -1.0


def test_role_takes_a_seed_for_a_generator():
    params = {"n_samples": 4, "n_classes": 3}
    seeded = ROLELoss(2, **params, generator=7)
    same = ROLELoss(2, **params, generator=torch.Generator().manual_seed(7))
    assert torch.equal(seeded.estimates, same.estimates)
    assert torch.equal(
        ROLELoss(2, **params).estimates, ROLELoss(2, **params, generator=0).estimates
    )


def test_role_starts_from_the_published_estimates_and_learns_them():
    *_, target = draw(50, L)
    loss = ROLELoss(2, n_samples=50, n_classes=L)
    start = logits_of_estimates(loss, target).sigmoid()
    observed = start[torch.arange(50), target]
    assert ((observed > 0.99) & (observed < 0.998)).all()
    others = start[torch.nn.functional.one_hot(target, L) == 0]
    assert ((others > 0.4) & (others < 0.6)).all()
    assert others.std() > 0.04
    rows = torch.tensor([8, 9])
    loss(torch.full((2, L), 3.0), target[rows], index=rows).backward()
    assert loss.estimates.grad.any(1).nonzero().flatten().tolist() == [8, 9]


def test_role_estimates_follow_a_confident_teacher():
    loss = ROLELoss(2, beta=0.0, n_samples=1, n_classes=L)
    scores = torch.tensor([[9.0, 9.0, -9.0, -9.0, -9.0]])
    loss(scores, torch.tensor([0]), index=torch.tensor([0])).backward()
    assert loss.estimates.grad[0, 1:].sign().tolist() == [-1, 1, 1, 1]


def test_role_in_eval_mode_asks_for_no_index():
    scores, _, _, target = draw(N, L)
    loss = build("role").eval()
    expected = ExpectedPositiveLoss(2)(scores, target)
    assert torch.equal(loss(scores, target), expected)
    assert torch.equal(loss(scores, target, index=torch.tensor([999])), expected)


def test_role_refuses_a_matrix_that_cannot_fit_and_says_its_size():
    with pytest.raises(ValueError, match=r"10000000 x 1000000 estimated labels: 40000.0 GB"):
        ROLELoss(2, n_samples=10**7, n_classes=10**6)


@names
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_float32_is_stable(name, size):
    scores, proposals, _, target = draw(16, L, scale=size, dtype=torch.float32)
    scores[0] = proposals[0] = 0.0
    scores[1] = size
    grads = []
    for dtype in (torch.float32, torch.float64):
        s = scores.detach().to(dtype, copy=True).requires_grad_()
        loss = build(name, n=16).to(dtype)
        given, extra = arguments(name, s, proposals.to(dtype), 16)
        value = loss(given, target, **extra)
        value.backward(retain_graph=True)
        assert torch.isfinite(value)
        grads.append(s.grad)
    assert torch.isfinite(grads[0]).all()
    assert (grads[0] - grads[1]).abs().max() <= 1e-5 * grads[1].abs().max()


@names
def test_batch_of_one(name):
    scores, proposals, _, target = draw(1, L)
    given, extra = arguments(name, scores, proposals, 1)
    assert torch.isfinite(build(name, n=1)(given, target, **extra))


@names
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(name, dtype):
    scores, proposals, _, target = draw(N, L, dtype=dtype)
    loss = build(name).float()
    given, extra = arguments(name, scores, proposals)
    wide, _ = arguments(name, scores.float(), proposals.float())
    assert torch.equal(loss(given, target, **extra), loss(wide, target, **extra))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert loss(given, target, **extra).dtype == torch.float32


@names
def test_moves_pickles_and_copies(name):
    scores, proposals, _, target = draw(N, L)
    loss = build(name)
    given, extra = arguments(name, scores, proposals)
    expected = loss(given, target, **extra)
    for other in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):
        assert torch.equal(other(given, target, **extra), expected)
    given, extra = arguments(name, scores.to("meta"), proposals.to("meta"))
    assert loss.to("meta")(given, target.to("meta"), **extra).is_meta


@names
def test_leaves_the_global_random_state_alone(name):
    scores, proposals, _, target = draw(N, L)
    state = torch.get_rng_state()
    given, extra = arguments(name, scores, proposals)
    build(name)(given, target, **extra)
    assert torch.equal(state, torch.get_rng_state())


def test_function_twins_are_the_modules():
    scores, proposals, _, target = draw(N, L)
    weight = torch.tensor([2.0, 0.5, 0.0, 1.0], dtype=torch.float64)
    for reduction in ("none", "mean", "sum"):
        pairs = [
            (
                F.assume_negative_loss(scores, target, reduction),
                AssumeNegativeLoss(reduction),
                scores,
                {},
            ),
            (
                F.average_k_loss((scores, proposals), target, 2, 0.5, reduction, weight),
                AverageKLoss(2, 0.5, reduction),
                (scores, proposals),
                {"sample_weight": weight},
            ),
            (
                F.expected_positive_loss(scores, target, 2, 0.5, reduction, weight),
                ExpectedPositiveLoss(2, 0.5, reduction),
                scores,
                {"sample_weight": weight},
            ),
        ]
        for got, loss, given, extra in pairs:
            assert torch.equal(got, loss(given, target, **extra))


def test_two_head_declares_its_head_and_ranks_by_the_one_that_is_named():
    scores, proposals, _, _ = draw(N, L)
    assert AverageKLoss.head == "two_head"
    assert AverageKLoss(2).scores((scores, proposals)) is proposals
    assert AverageKLoss(2, ranking_head="multi_label").scores((scores, proposals)) is scores
    assert ROLELoss.uses_index


def test_ranking_head_decides_whose_scores_an_estimator_returns_and_nothing_else():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)), np.arange(60) % 3

    def fitted(**params):
        return AverageKClassifier(1.5, max_epochs=2, random_state=0, loss_params=params).fit(x, y)

    by_default, proposal, multi_label = (
        fitted(),
        fitted(ranking_head="proposal"),
        fitted(ranking_head="multi_label"),
    )
    with torch.no_grad():
        pair = by_default.net_.module_.cpu()(torch.from_numpy(x).float())
    by_default.net_.module_.to(by_default.device_)
    for clf, scores in ((by_default, pair[1]), (proposal, pair[1]), (multi_label, pair[0])):
        np.testing.assert_allclose(clf.decision_function(x), scores.numpy(), atol=1e-5)


def test_estimators_feed_role_and_refuse_pieces():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)), np.arange(60) % 3
    clf = AverageKClassifier(1.5, loss="role", max_epochs=2, random_state=0).fit(x, y)
    estimates = clf.net_.criterion_.estimates.cpu()
    start = ROLELoss(1.5, n_samples=len(estimates), n_classes=3).estimates
    assert ((estimates - start).abs().amax(1) > 1e-4).all()
    with pytest.raises(ValueError, match="piece by piece"):
        AverageKClassifier(1.5, loss="role").partial_fit(x, y, classes=[0, 1, 2])


Z, Y = torch.zeros(2, 3), torch.tensor([0, 1])


def role_at(index):
    return ROLELoss(2, n_samples=9, n_classes=3)(Z, Y, index=index)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: AverageKLoss(0.5), ValueError, "k must be finite and at least 1"),
        (lambda: AverageKLoss("2"), TypeError, "k must be a number"),
        (lambda: AverageKLoss(2, alpha=-1), ValueError, "alpha"),
        (lambda: AverageKLoss(2, ranking_head="scores"), ValueError, "ranking_head must be"),
        (lambda: AverageKLoss(4)((Z, Z), Y), ValueError, r"k must lie in \[1, 3\]"),
        (lambda: AverageKLoss(2)(Z, Y), TypeError, "pair"),
        (lambda: AverageKLoss(2)((Z, Z[:, :2]), Y), ValueError, "two heads"),
        (lambda: AverageKLoss(2)((Z, Z), Y + 2), ValueError, r"\[0, 2\]"),
        (lambda: AssumeNegativeLoss()(Z[:, :1], 0 * Y), ValueError, "at least two classes"),
        (lambda: ExpectedPositiveLoss(float("inf")), ValueError, "k must be finite"),
        (lambda: ExpectedPositiveLoss(2, beta=-0.1), ValueError, "beta"),
        (lambda: ExpectedPositiveLoss(3.5)(Z, Y), ValueError, r"k must lie in \[1, 3\]"),
        (lambda: ROLELoss(2), TypeError, "n_samples must be an integer"),
        (lambda: ROLELoss(2, n_samples=0, n_classes=3), ValueError, "n_samples"),
        (lambda: ROLELoss(2, n_samples=9, n_classes=3)(Z, Y), ValueError, "index is needed"),
        (
            lambda: ROLELoss(2, n_samples=9, n_classes=3)(Z, Y, index=torch.tensor([0, 9])),
            ValueError,
            r"index must lie in \[0, 8\]",
        ),
        (
            lambda: ROLELoss(2, n_samples=9, n_classes=3)(Z, Y, index=torch.tensor([0])),
            ValueError,
            "index must have shape",
        ),
        (
            lambda: ROLELoss(2, n_samples=9, n_classes=4)(Z, Y, index=Y),
            ValueError,
            "scores of 4 classes",
        ),
        (lambda: F.role_loss(Z, Y, Z[:, :2], k=1), ValueError, "estimates must have the shape"),
        (lambda: F.role_loss(Z, Y, Z.tolist(), k=1), TypeError, "estimates must be a tensor"),
        (lambda: F.role_loss(Z.tolist(), Y, Z, k=1), TypeError, "input must be a tensor"),
        (lambda: F.role_loss(Z, Y, Z, k=1, beta=-5.0), ValueError, "beta must be .* at least 0"),
        (lambda: ROLELoss(2, n_samples=9, n_classes=3, generator="a"), TypeError, "generator"),
        (lambda: role_at([0, 2]), TypeError, "index must be a tensor, got list"),
        (lambda: role_at(Y.float()), TypeError, "index must hold positions as integers"),
        (lambda: role_at(Y.bool()), TypeError, "index must hold positions as integers"),
        (lambda: F.pseudo_positives(Z, Y[:1], 2), ValueError, r"target must have shape \(2,\)"),
        (lambda: F.pseudo_positives(Z, Y + 7, 2), ValueError, r"target must lie in \[0, 2\]"),
        (lambda: F.pseudo_positives(Z, Y, 2, -Z[:, 0] - 1), ValueError, "sample_weight must be"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_heads_of_two_widths_are_told_as_such():
    scores = torch.randn(3, 5)
    with pytest.raises(ValueError, match="two heads of input must have one shape"):
        AverageKLoss(2)((scores, scores[:, :4]), torch.tensor([0, 1, 4]))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_role_reads_positions_of_any_integer_type(dtype):
    loss, index = ROLELoss(2, n_samples=2, n_classes=3), torch.tensor([1, 0])
    assert loss(Z, Y, index=index.to(dtype)) == loss(Z, Y, index=index)


@pytest.mark.parametrize("loss", [AssumeNegativeLoss(), ExpectedPositiveLoss(2)])
def test_targets_elsewhere_than_the_scores_are_refused(loss):
    with pytest.raises(ValueError, match="target must be on the device of the scores"):
        loss(Z, Y.to("meta"))


def test_k_may_be_a_number_of_few_bits():
    """Else (k - 1) times the samples would be out of its range."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 64, 9, generator=generator)
    target, weight = torch.arange(64) % 9, torch.rand(64, generator=generator)
    for k in (np.int8(5), np.uint8(5)):
        for sample_weight in (None, weight):
            losses = [AverageKLoss(k)((*scores,), target, sample_weight) for k in (k, 5)]
            assert losses[0] == losses[1]


def test_autocast_of_the_caller_changes_no_weighted_loss():
    scores, proposals, _, target = draw(64, 50, dtype=torch.float32)
    loss, weight = AverageKLoss(k=3), torch.linspace(0.5, 2, 64)
    expected = loss((scores, proposals), target, weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(loss((scores, proposals), target, weight), expected)


@pytest.mark.parametrize(("given", "alpha"), [(None, 0.1), (1.0, 1.0)])
def test_the_candidates_weigh_a_tenth_in_an_estimator_unless_told(given, alpha):
    X = np.random.default_rng(0).normal(size=(40, 3))
    clf = AverageKClassifier(2, alpha=given, max_epochs=1, random_state=0)
    assert clf.fit(X, np.arange(40) % 4).net_.criterion_.alpha == alpha

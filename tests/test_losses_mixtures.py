"""Laws of the mixtures that are the defaults of the estimators."""

import pickle

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from sksetvalued import AverageKClassifier, TopKClassifier
from sksetvalued.losses import (
    AverageKLoss,
    AverageKMixtureLoss,
    CrossEntropyLoss,
    FocalLoss,
    LDAMLoss,
    LogitAdjustedLoss,
    NoisedMixtureLoss,
    NoisedTopKHingeLoss,
)

TARGET = torch.tensor([0, 3, 5, 2])
SCORES = torch.from_numpy(np.random.default_rng(0).standard_normal((4, 6)))
PAIR = SCORES, SCORES.flip(0)
PRIOR = torch.tensor([0.4, 0.2, 0.1, 0.1, 0.1, 0.1], dtype=torch.float64)


@pytest.mark.parametrize("margins", [{}, {"class_counts": [9, 5, 4, 3, 2, 1], "max_margin": 0.2}])
@pytest.mark.parametrize("training", [True, False])
def test_without_cross_entropy_and_ranks_it_is_the_loss_of_the_paper(training, margins):
    paper = NoisedTopKHingeLoss(3, generator=0, **margins).train(training)
    mixture = NoisedMixtureLoss(3, 0.0, ranks=None, generator=0, **margins).train(training)
    for _ in range(3):
        assert torch.equal(mixture(SCORES, TARGET), paper(SCORES, TARGET))


def test_with_cross_entropy_alone_it_is_the_cross_entropy():
    assert torch.equal(
        NoisedMixtureLoss(3, 1.0)(SCORES, TARGET), CrossEntropyLoss()(SCORES, TARGET)
    )


@pytest.mark.parametrize(
    "loss",
    [
        CrossEntropyLoss(),
        FocalLoss(),
        LDAMLoss([9, 5, 4, 3, 2, 1]),
        LogitAdjustedLoss([9, 5, 4, 3, 2, 1]),
        NoisedMixtureLoss(3, 1.0),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_the_target_that_torch_ignores_is_an_error_where_none_is_looked_at(loss):
    """Under transforms, as on an accelerator; elsewhere the message is ours."""
    with pytest.raises(RuntimeError, match="out of bounds"):
        torch.vmap(lambda target: loss(SCORES, target))(torch.tensor([[-100, 1, 2, 3]]))


@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 2.0, 0.0, 3.0])])
def test_with_the_two_heads_alone_it_is_the_loss_of_the_thesis(weight):
    thesis, mixture = AverageKLoss(2.5, 0.3), AverageKMixtureLoss(2.5, 0.3, cross_entropy=1.0)
    assert torch.equal(mixture(PAIR, TARGET, weight), thesis(PAIR, TARGET, weight))


def test_parts_add_up_by_their_weights():
    hinges = [NoisedTopKHingeLoss(k, epsilon=0.0)(SCORES, TARGET) for k in (1, 3)]
    loss = NoisedMixtureLoss(3, 0.25, {1: 1, "k": 3}, epsilon=0.0)(SCORES, TARGET)
    entropy = F.cross_entropy(SCORES, TARGET)
    expected = 0.25 * entropy + 0.75 * (0.25 * hinges[0] + 0.75 * hinges[1])
    torch.testing.assert_close(loss, expected)
    one = AverageKMixtureLoss(2.9, 0.3, 0.25, {1: 1, "k": 3}, epsilon=0.0)(PAIR, TARGET)
    proposals = [NoisedTopKHingeLoss(k, epsilon=0.0)(PAIR[1], TARGET) for k in (1, 3)]
    expected = 0.25 * AverageKLoss(2.9, 0.3)(PAIR, TARGET)
    expected = expected + 0.75 * (0.25 * proposals[0] + 0.75 * proposals[1])
    torch.testing.assert_close(one, expected)


def test_the_hinge_follows_a_k_that_is_set_later():
    changed = AverageKMixtureLoss(1.0, generator=0)
    changed.k = 3.0
    assert torch.equal(changed(PAIR, TARGET), AverageKMixtureLoss(3.0, generator=0)(PAIR, TARGET))


@pytest.mark.parametrize("k", [5.6, 6.0])
def test_without_ranks_the_hinge_has_the_largest_rank_that_k_leaves(k):
    alone, named = (
        AverageKMixtureLoss(k, ranks=ranks, generator=0)(PAIR, TARGET) for ranks in (None, {5: 1})
    )
    assert torch.equal(alone, named)


def test_labels_are_smoothed_towards_the_prior():
    soft = 0.8 * F.one_hot(TARGET, 6) + 0.2 * PRIOR
    expected = F.cross_entropy(SCORES, soft)
    one = NoisedMixtureLoss(3, 1.0, label_smoothing=0.2, prior=PRIOR)(SCORES, TARGET)
    torch.testing.assert_close(one, expected)
    params = {"cross_entropy": 1.0, "label_smoothing": 0.2, "prior": PRIOR}
    mixture = AverageKMixtureLoss(2, **params)
    assert "label_smoothing=0.2" in repr(mixture)
    two = mixture(PAIR[::-1], TARGET)
    plain = AverageKLoss(2, 0.1)(PAIR[::-1], TARGET)
    torch.testing.assert_close(two - plain, expected - F.cross_entropy(SCORES, TARGET))


@pytest.mark.parametrize("cls", [NoisedMixtureLoss, AverageKMixtureLoss])
def test_priors_are_shares_or_counts_of_the_classes(cls):
    input = SCORES if cls is NoisedMixtureLoss else PAIR
    params = {"cross_entropy": 1.0, "label_smoothing": 0.2}
    counts = cls(2, prior=[40, 20, 10, 10, 10, 10], **params)(input, TARGET)
    assert torch.equal(counts, cls(2, prior=PRIOR, **params)(input, TARGET))
    for wrong in ([-1, np.nan, 2], [0, 0, 0], [1, np.inf], [[0.2, 0.3]], 0.5):
        with pytest.raises(ValueError, match=r"prior must hold .* got "):
            cls(2, prior=wrong)
    with pytest.raises(TypeError, match="prior must hold real numbers"):
        cls(2, prior="abc")
    with pytest.raises(ValueError, match="prior must have .* 6 classes of input, got 2"):
        cls(2, prior=[0.5, 0.5], **params)(input, TARGET)


def test_estimators_smooth_towards_their_training_data_and_take_it_back():
    rng = np.random.default_rng(0)
    y = rng.choice(3, 300, p=[0.7, 0.2, 0.1])
    X = np.zeros((300, 1))  # nothing to learn but the prior
    clf = TopKClassifier(
        2, cross_entropy=1.0, label_smoothing=0.5, max_epochs=60, batch_size=300, random_state=0
    ).fit(X, y)
    shares = np.bincount(y) / 300
    torch.testing.assert_close(clf.net_.criterion_.prior.cpu(), torch.from_numpy(shares))
    np.testing.assert_allclose(clf.predict_proba(X[:1])[0], shares, atol=0.05)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"cross_entropy": 1.5}, "cross_entropy must be at most 1, got 1.5"),
        ({"cross_entropy": -1}, "cross_entropy must be .* at least 0"),
        ({"label_smoothing": 1}, "label_smoothing must be below 1"),
        ({"label_smoothing": 0.1}, "towards the shares of the classes"),
        ({"ranks": {}}, "ranks must be pairs"),
    ],
)
@pytest.mark.parametrize("cls", [NoisedMixtureLoss, AverageKMixtureLoss])
def test_bad_parts_are_named(cls, params, message):
    with pytest.raises(ValueError, match=message):
        cls(2, **params)


@pytest.mark.parametrize("cls", [NoisedMixtureLoss, AverageKMixtureLoss])
def test_mixtures_pickle_and_reduce(cls):
    loss = cls(2, generator=0, reduction="none").eval()
    input = SCORES if cls is NoisedMixtureLoss else PAIR
    losses = loss(input, TARGET)
    assert losses.shape == (4,)
    assert torch.equal(pickle.loads(pickle.dumps(loss))(input, TARGET), losses)
    weight = torch.tensor([1.0, 0.0, 2.0, 1.0], dtype=torch.float64)
    if cls is NoisedMixtureLoss:
        mean = cls(2, generator=0).eval()(input, TARGET, weight)
        torch.testing.assert_close(mean, (losses * weight).sum() / 4)


@pytest.mark.parametrize(
    ("clf", "name"),
    [
        (TopKClassifier(2, loss="cross_entropy", epsilon=0.5), "epsilon"),
        (TopKClassifier(2, loss="noised_hinge", cross_entropy=0.5), "cross_entropy"),
        (TopKClassifier(2, loss=torch.nn.CrossEntropyLoss(), max_margin=0.2), "max_margin"),
        (AverageKClassifier(2, loss="cross_entropy", alpha=0.1), "alpha"),
        (AverageKClassifier(2, cross_entropy=0.5), "cross_entropy"),
        (AverageKClassifier(2, loss="two_head_mixture", cross_entropy=0.0, alpha=0.1), "alpha"),
        (TopKClassifier(2, cross_entropy=1.0, epsilon=0.5), "epsilon"),
    ],
)
def test_a_parameter_that_the_loss_ignores_is_warned_of(clf, name):
    X, y = np.eye(6), np.arange(6) % 3
    with pytest.warns(UserWarning, match=f"^{name}=.* has no effect on loss"):
        clf.set_params(max_epochs=1).fit(X, y)


MIXED = {"cross_entropy": 0.9, "ranks": {2: 1}, "label_smoothing": 0.3}


@pytest.mark.parametrize(
    ("clf", "acting"),
    [
        (TopKClassifier(2), {"epsilon": 0.2, **MIXED}),
        (AverageKClassifier(2), {"alpha": 5.0}),
        (AverageKClassifier(2, loss="two_head_mixture"), {"alpha": 5.0, **MIXED}),
    ],
)
def test_every_weight_of_a_loss_acts(clf, acting):
    X, y = np.random.default_rng(0).standard_normal((60, 4)), np.arange(60) % 4
    clf.set_params(max_epochs=2, random_state=0)
    default = clf.fit(X, y).decision_function(X)
    for name, value in acting.items():
        scores = clf.set_params(**{name: value}).fit(X, y).decision_function(X)
        assert np.abs(scores - default).max() > 1e-4, name
        clf.set_params(**{name: None})


def test_a_class_without_a_share_may_score_minus_infinity():
    scores, target = torch.tensor([[1.0, 0.0, 2.0, -torch.inf]]), torch.tensor([0])
    scores.requires_grad_()
    params = {"epsilon": 0.0, "label_smoothing": 0.1}
    loss = NoisedMixtureLoss(2, prior=[1, 1, 1, 0], **params)(scores, target)
    known = NoisedMixtureLoss(2, prior=[1, 1, 1], **params)(scores[:, :3], target)
    torch.testing.assert_close(loss, known)
    gradients = (torch.autograd.grad(one, scores)[0] for one in (loss, known))
    torch.testing.assert_close(*gradients)


def test_smoothing_counts_as_much_as_the_cross_entropy():
    torch.manual_seed(0)
    scores, target = (torch.randn(6, 4), torch.randn(6, 4)), torch.arange(6) % 4

    def added(weight):
        whole, plain = (
            AverageKMixtureLoss(
                2, cross_entropy=weight, label_smoothing=share, prior=[1, 2, 3, 4], generator=0
            )(scores, target)
            for share in (0.2, 0.0)
        )
        return whole - plain

    torch.testing.assert_close(added(0.5), 0.5 * added(1.0))


@pytest.mark.parametrize("cls", [NoisedMixtureLoss, AverageKMixtureLoss])
def test_autocast_of_the_caller_changes_no_smoothed_loss(cls):
    loss = cls(3, label_smoothing=0.2, prior=PRIOR, generator=0).eval()
    scores = PAIR if cls is AverageKMixtureLoss else (SCORES,)
    scores = tuple(part.float() for part in scores)
    given = scores if len(scores) > 1 else scores[0]
    expected = loss(given, TARGET)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(loss(given, TARGET), expected)


@pytest.mark.parametrize("cls", [NoisedMixtureLoss, AverageKMixtureLoss])
def test_the_generator_of_a_mixture_decides_its_noise(cls):
    given = PAIR if cls is AverageKMixtureLoss else SCORES
    first, again, other = (cls(3, generator=seed)(given, TARGET) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)

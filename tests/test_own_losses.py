"""Losses of one's own: subclasses of SetLoss, and what is said of those that cannot work."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from skorch.callbacks import Callback
from torch import nn
from torch.nn.functional import cross_entropy

from sksetvalued import AverageKClassifier, SparseTopClassifier, TopKClassifier
from sksetvalued.losses import (
    BinaryCrossEntropyLoss,
    FocalLoss,
    LDAMLoss,
    SetLoss,
    TopKHingeLoss,
)
from sksetvalued.training import make_criterion

X, y = make_blobs(60, n_features=5, centers=4, random_state=0)
BOTH = (TopKClassifier, AverageKClassifier)
QUICK = {"k": 2, "backbone": (8,), "max_epochs": 2, "random_state": 0}


def own(compute, **attributes):
    """Return the class of a loss whose samples lose what a function of scores and target says."""
    return type(
        "Own", (SetLoss,), {"sample_losses": lambda self, *args: compute(*args), **attributes}
    )


def each(scores, target):
    return cross_entropy(scores, target, reduction="none")


# -- what sample_losses returns -------------------------------------------------------------


@pytest.mark.parametrize(
    ("compute", "got"),
    [
        (lambda scores, target: each(scores, target)[:, None], r"got \(3, 1\)"),
        (cross_entropy, r"got \(\)"),
        (lambda scores, target: each(scores, target)[:2], r"got \(2,\)"),
        (lambda scores, target: 1.0, "got float"),
    ],
)
@pytest.mark.parametrize("weight", [None, torch.ones(3)])
def test_anything_but_one_loss_per_sample_is_refused(compute, got, weight):
    """Broadcast with the weights, a column or a number would be a loss of other weights."""
    with pytest.raises(ValueError, match=rf"Own\.sample_losses .*\(n_samples,\), \(3,\).*{got}"):
        own(compute)()(torch.randn(3, 4), torch.arange(3), weight)


def test_one_loss_per_sample_goes_through_transforms_and_compiles():
    loss = own(each)()
    loss.validate = False
    scores, target = torch.randn(3, 4), torch.arange(3)
    single = torch.func.vmap(lambda s, t: loss(s[None], t[None]))(scores, target)
    torch.testing.assert_close(single, each(scores, target))
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    assert compiled(scores, target, torch.ones(3)) == loss(scores, target)


class Detached(SetLoss):
    def forward(self, input, target, sample_weight=None):
        return self.sample_losses(input.detach(), target).mean()

    def sample_losses(self, input, target):
        return input.square().sum(1)


@pytest.mark.parametrize("loss", [own(lambda *args: each(*args).detach()), Detached])
@pytest.mark.parametrize("cls", BOTH)
def test_a_loss_without_a_gradient_is_refused(cls, loss):
    with pytest.raises(
        ValueError, match=rf"loss={loss.__name__} has no gradient.*not on detached"
    ):
        cls(loss=loss, **QUICK).fit(X, y)


@pytest.mark.parametrize("size", ["predicted", "threshold"])
def test_a_loss_of_indicators_without_a_gradient_is_refused(size):
    """That of the numbers of labels, which are learned beside it, has one."""
    loss = type("Cut", (Detached,), {"targets": ("indicator",)})
    with pytest.raises(ValueError, match="loss=Cut has no gradient"):
        SparseTopClassifier(loss=loss, size=size, max_epochs=1).fit(X, np.eye(4, dtype=int)[y])


def test_a_loss_that_is_no_number_is_refused():
    loss = own(None, forward=lambda self, input, target: each(input, target))
    with pytest.raises(ValueError, match=r"loss=Own must give one number per batch.*\(60,\)"):
        TopKClassifier(loss=loss, batch_size=60, **QUICK).fit(X, y)


# -- what an estimator gives, and to which loss -----------------------------------------------


class HandsOn(LDAMLoss):
    def __init__(self, *args, scale=20.0, **kwargs):
        super().__init__(*args, scale=scale, **kwargs)


class HandsAllOn(HandsOn):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)


@pytest.mark.parametrize("cls", [HandsOn, HandsAllOn])
def test_what_a_constructor_hands_on_is_supplied(cls):
    params = {"loss_params": {"max_margin": 0.2}, **QUICK}
    clf = TopKClassifier(loss=cls, scale=10.0, **params).fit(X, y)
    same = TopKClassifier(loss="ldam", scale=10.0, **params).fit(X, y)
    np.testing.assert_array_equal(clf.decision_function(X), same.decision_function(X))
    known = r"\['class_counts', 'max_margin', 'reduction', 'scale'\]"
    with pytest.raises(ValueError, match=rf"\['args'\] for {cls.__name__}; it accepts {known}"):
        TopKClassifier(loss=cls, loss_params={"args": 1}, **QUICK).fit(X, y)


def test_an_argument_that_is_set_twice_is_named():
    class OfTwo(TopKHingeLoss):
        def __init__(self, **kwargs):
            super().__init__(k=2, **kwargs)

    with pytest.raises(ValueError, match=r"OfTwo.*multiple values.*'k'.*instance"):
        TopKClassifier(loss=OfTwo, **QUICK).fit(X, y)
    TopKClassifier(loss=OfTwo(), **QUICK).fit(X, y)


@pytest.mark.parametrize("given", [lambda cls: cls, lambda cls: cls()])
def test_a_loss_of_other_targets_is_refused(given):
    with pytest.raises(ValueError, match=r"loss=FocalLoss is for .*'label'.*'indicator'.*'bce'"):
        SparseTopClassifier(loss=given(FocalLoss)).fit(X, np.eye(4, dtype=int)[y])
    with pytest.raises(ValueError, match=r"loss=TopKHingeLoss is for .*'label'"):
        SparseTopClassifier(loss=TopKHingeLoss).fit(X, np.eye(4, dtype=int)[y])
    for cls in BOTH:
        with pytest.raises(ValueError, match=r"loss=BinaryCrossEntropyLoss .*'focal'.*`targets`"):
            cls(loss=given(BinaryCrossEntropyLoss), **QUICK).fit(X, y)


# -- a criterion of torch inside ------------------------------------------------------------


class Around(SetLoss):
    """A loss whose criterion has a reduction of its own."""

    def __init__(self, reduction="mean", of_each="none"):
        super().__init__(reduction)
        self.criterion = nn.CrossEntropyLoss(reduction=of_each)

    def sample_losses(self, input, target):
        losses = self.criterion(input, target)
        return losses if losses.ndim else each(input, target)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("of_each", ["none", "sum"])
def test_accumulation_goes_by_the_reduction_of_the_loss(reduction, of_each):
    params = {"optimizer": "sgd", "lr": 1e-3, "lr_schedule": None, "batch_size": 16, **QUICK}
    params["net_params"] = {"gradient_accumulation_steps": 4}
    losses = Around(reduction, of_each), own(each)(reduction)
    found = [TopKClassifier(loss=loss, **params).fit(X, y) for loss in losses]
    np.testing.assert_allclose(*[clf.decision_function(X) for clf in found], rtol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("of_torch", [False, True])
def test_sizes_are_accumulated_by_the_reduction_of_the_loss(reduction, of_torch):
    """Those of the numbers of labels are learned beside the loss."""
    x, several = torch.randn(64, 5), torch.rand(64, 4) < torch.arange(1, 65)[:, None] / 64
    params = {"optimizer": "sgd", "lr": 1e-3, "lr_schedule": None, "max_epochs": 2}
    params |= {"backbone": (8,), "backbone_params": {"dropout": 0.0}, "random_state": 0}
    if of_torch:
        params["loss"] = nn.BCEWithLogitsLoss(reduction=reduction)
    else:
        params["loss_params"] = {"reduction": reduction}
    whole, halves = (
        SparseTopClassifier(
            batch_size=64 // n, net_params={"gradient_accumulation_steps": n}, **params
        ).fit(x, several.int())
        for n in (1, 2)
    )
    for one, other in zip(whole.net_.module_.parameters(), halves.net_.module_.parameters()):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_reduction_of_its_own_kind_is_left_to_the_loss():
    x, several = torch.randn(20, 5), torch.eye(4, dtype=int).repeat(5, 1)
    loss = nn.KLDivLoss(reduction="batchmean")
    assert SparseTopClassifier(loss=loss, max_epochs=1).fit(x, several).n_iter_ == 1


class Sloped(Around):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.ones(()))

    def sample_losses(self, input, target):
        return super().sample_losses(input * self.slope, target)


class OtherSloped(Sloped):
    pass


def test_losses_around_the_same_criterion_are_not_the_same():
    found = []

    class See(Callback):
        def on_train_begin(self, net, **kwargs):
            found.append(net.criterion_.slope.item())

    clf = TopKClassifier(loss=Sloped, callbacks=[See()], warm_start=True, **QUICK)
    clf.fit(X, y).fit(X, y).set_params(loss=OtherSloped).fit(X, y)
    assert found[1] != 1
    assert found[::2] == [1, 1]


# -- two heads ------------------------------------------------------------------------------


class OfPairs(SetLoss):
    head = "two_head"

    def forward(self, input, target, sample_weight=None):
        return sum(cross_entropy(scores, target) for scores in input)


class PairsInTorch(nn.Module):
    head = "two_head"
    forward = OfPairs.forward


@pytest.mark.parametrize("loss", [OfPairs, PairsInTorch])
@pytest.mark.parametrize("cls", BOTH)
def test_the_first_of_a_pair_of_scores_ranks_by_default(cls, loss):
    clf = cls(loss=loss, **QUICK).fit(X, y)
    first = type("First", (loss,), {"scores": lambda self, output: output[0]})
    same = cls(loss=first, **QUICK).fit(X, y)
    np.testing.assert_array_equal(clf.decision_function(X), same.decision_function(X))


@pytest.mark.parametrize("cls", BOTH)
def test_a_loss_of_samples_refuses_pairs(cls):
    with pytest.raises(TypeError, match="Own is a pair.*two-head network defines forward"):
        cls(loss=own(each, head="two_head"), **QUICK).fit(X, y)


class WithLayers(nn.Module):
    """A criterion with layers, and an array, that have the names of what a loss declares."""

    def __init__(self):
        super().__init__()
        self.head, self.scores = nn.Linear(4, 4), np.ones(4)

    def forward(self, scores, target):
        return cross_entropy(self.head(scores), target)


def test_layers_of_a_criterion_are_no_declarations():
    clf = TopKClassifier(**QUICK, loss=WithLayers()).fit(X, y)
    assert clf.predict_proba(X).shape == (60, 4)


def test_a_head_that_a_criterion_declares_is_asked_for():
    with pytest.raises(ValueError, match="head must be one of .*'other'"):
        TopKClassifier(**QUICK, loss=own(each, head="other")()).fit(X, y)
    pair = PairsInTorch()
    pair.head = "two_head"
    clf = TopKClassifier(**QUICK, loss=pair).fit(X, y)
    assert type(clf.net_.module_.head).__name__ == "TwoHead"


# -- what the estimator gives ---------------------------------------------------------------


def test_losses_of_whole_ranks_get_the_nearest_one():
    clf = AverageKClassifier(**{**QUICK, "k": 2.7}, loss="calibrated_hinge").fit(X, y)
    assert clf.net_.bare_criterion.k == 3


def test_a_generator_given_to_a_loss_is_not_drawn_from():
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    params = {"loss": "noised_hinge", "loss_params": {"generator": generator}}
    TopKClassifier(**QUICK, **params).fit(X, y)
    assert torch.equal(generator.get_state(), before)


def test_what_a_criterion_of_torch_declares_is_taken_over():
    class Declaring(torch.nn.CrossEntropyLoss):
        head, uses_index, prior_exponent, smoothed_towards = "cosine", True, 0.25, "prior"

    declared = Declaring(label_smoothing=0.1)
    criterion = make_criterion(declared, None, {})
    for name in ("head", "uses_index", "prior_exponent", "label_smoothing", "smoothed_towards"):
        assert getattr(criterion, name) == getattr(declared, name), name

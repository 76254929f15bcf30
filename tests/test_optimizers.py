"""The optimizers that can be named."""

import pytest
import torch
from sklearn.datasets import make_blobs
from torch.profiler import ProfilerActivity, profile

from sksetvalued import TopKClassifier
from sksetvalued.training import resolve_optimizer
from sksetvalued.training._optimizers import optimizer_params


def matrix(by_columns):
    weight = torch.arange(30.0).reshape(5, 6).sin()
    return torch.nn.Parameter(weight.t().contiguous().t() if by_columns else weight)


def trained(optimizer, by_columns, n_updates=4, **params):
    """Return a matrix after a few updates, and what its optimizer knows of it."""
    weight = matrix(by_columns)
    optimizer = optimizer([weight], lr=0.1, weight_decay=0.1, **params)
    for step in range(n_updates):
        weight.grad = (weight.detach() * (step + 1)).cos()
        optimizer.step()
    return weight.detach(), optimizer.state[weight]


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("by_columns", [False, True])
def test_adamw_is_that_of_torch(by_columns, amsgrad):
    own, params = resolve_optimizer("adamw")
    params = {**params, "amsgrad": amsgrad}
    weight, known = trained(own, by_columns, **params)
    expected, known_to_torch = trained(torch.optim.AdamW, by_columns, **params)
    assert torch.equal(weight, expected)
    assert known.keys() == known_to_torch.keys()
    for name, value in known.items():
        assert torch.equal(value, known_to_torch[name])
        assert value.stride() == known_to_torch[name].stride()


def test_adamw_copies_no_matrix():
    own, params = resolve_optimizer("adamw")
    copied = {}
    for optimizer in (own, torch.optim.AdamW):
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as record:
            trained(optimizer, by_columns=True, **params)
        shapes = [event.input_shapes for event in record.events() if event.name == "aten::copy_"]
        copied[optimizer] = sum(sorted(shape[0]) == [5, 6] for shape in shapes)
    assert copied[own] < copied[torch.optim.AdamW]
    assert copied[own] == 1  # that of `matrix`


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"nesterov": False, "dampening": 0.3, "weight_decay": 0.1},
        {"nesterov": False, "dampening": 0.3, "weight_decay": 0.1, "maximize": True},
        {"nesterov": False, "momentum": 0},
    ],
)
def test_sgd_takes_weights_whose_first_gradient_is_late(params):
    """Momentum starts at that gradient, as in the update of torch that is not fused."""
    own, defaults = resolve_optimizer("sgd")
    params, found = {**defaults, **params}, []
    for optimizer, fused in ((own, True), (torch.optim.SGD, False)):
        weights = [matrix(False), matrix(True)]
        optimizer = optimizer(weights, lr=0.1, **{**params, "fused": fused})
        for step in range(5):
            for weight in weights[: 1 + (step > 1)]:
                weight.grad = (weight.detach() * (step + 1)).cos()
            optimizer.step()
        found.append([w.detach() for w in weights])
        assert optimizer.param_groups[0]["fused"] == fused
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-6)


class Sharp(torch.optim.SGD):
    """Evaluates a batch twice, as the common code of SAM."""

    def step(self, closure=None):
        assert closure is not None
        closure()
        super().step()


class Called(torch.optim.SGD):
    def step(self, closure=None):
        closure()
        super().step()


class Fails(torch.optim.SGD):
    """Has an error of its own, and no closure."""

    def step(self):
        raise TypeError("of its own")


BLOBS = make_blobs(60, n_features=5, centers=4, random_state=0)


def fit(optimizer):
    TopKClassifier(2, optimizer=optimizer, backbone=(8,), max_epochs=1, lr=0.01).fit(*BLOBS)


@pytest.mark.parametrize(("optimizer", "error"), [(Sharp, AssertionError), (Called, TypeError)])
def test_a_closure_that_is_missed_is_named(optimizer, error):
    name = optimizer.__name__
    with pytest.raises(error, match=rf"optimizer={name} .*`step\(self, closure\)`") as raised:
        fit(optimizer)
    assert isinstance(raised.value.__cause__, error)


def test_an_optimizer_without_a_closure_keeps_its_errors():
    with pytest.raises(TypeError, match="^of its own$"):
        fit(Fails)


def test_a_closure_without_default_is_the_remedy():
    step = Sharp.step
    fit(type("Remedied", (Sharp,), {"step": lambda self, closure: step(self, closure)}))


def test_a_class_that_hands_its_arguments_on_takes_a_weight_decay():
    class HandsOn(torch.optim.SGD):
        def __init__(self, params, **kwargs):
            super().__init__(params, **kwargs)

    assert optimizer_params(HandsOn, {"lr": 1}, 0.1) == {"lr": 1, "weight_decay": 0.1}

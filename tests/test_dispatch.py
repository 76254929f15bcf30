"""Who computes: the choices that the table of the door promises."""

from pathlib import Path

import pytest
import torch
from fresh import run_code
from torch import nn
from torch.export import Dim
from torch.utils._python_dispatch import TorchDispatchMode

from sksetvalued.losses import (
    LapSumLoss,
    MixedTopKLoss,
    SmoothedTopKHingeLoss,
    SparsemaxLoss,
    SparseTopLoss,
)
from sksetvalued.operators import (
    _dispatch,
    log_elementary_symmetric_polynomials,
    sparse_top,
    top_k_marginals,
)
from sksetvalued.operators._dispatch import _import_kernels, choose, kernels, needs_reference
from sksetvalued.operators._top_k import top_k_by_blocks

needs_kernels = pytest.mark.skipif(kernels is None, reason="the kernels are not built")

SCORES = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
TARGET = torch.arange(4)


class Watch(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class Scores(torch.Tensor):
    pass


@needs_kernels
def test_plain_scores_are_for_the_kernels(monkeypatch):
    assert choose("noised", SCORES, TARGET) == "cpu"
    assert choose("noised", torch.nn.Parameter(SCORES)[::2, ::2]) == "cpu"
    monkeypatch.setenv("SKSETVALUED_KERNELS", "0")
    assert choose("noised", SCORES, TARGET) == "reference"


@pytest.mark.parametrize(
    "scores",
    [
        SCORES.double(),
        SCORES.half(),
        SCORES.to("meta"),
        SCORES.as_subclass(Scores),
        torch._neg_view(SCORES),
        torch._efficientzerotensor(4, 6),
    ],
    ids=["double", "half", "meta", "subclass", "negated", "zero"],
)
def test_other_tensors_are_for_the_reference(scores):
    assert choose("noised", scores) == "reference"


@pytest.mark.parametrize(
    "target", [TARGET.int(), TARGET[:3], TARGET[:, None], TARGET.float(), TARGET.to("meta")]
)
def test_targets_that_cannot_be_read_are_for_the_reference(target):
    assert choose("noised", SCORES, target) == "reference"


def transforms():
    """Return, by name, callables that apply a function of scores in a transformed way."""

    def in_forward_mode(f):
        with torch.autograd.forward_ad.dual_level():
            return f(torch.autograd.forward_ad.make_dual(SCORES, SCORES))

    def watched(f):
        with Watch():
            return f(SCORES)

    def compiled(f):
        return torch.compile(f, backend="eager", fullgraph=True)(SCORES)

    return {
        "grad": lambda f: torch.func.grad(f)(SCORES),
        "vmap": lambda f: torch.vmap(f)(SCORES[None]),
        "jvp": lambda f: torch.func.jvp(f, (SCORES,), (SCORES,)),
        "dual numbers": in_forward_mode,
        "watched": watched,
        "compiled": compiled,
        "traced": lambda f: torch.jit.trace(f, SCORES, check_trace=False),
    }


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
@pytest.mark.parametrize("name", transforms())
def test_transformed_functions_are_for_the_reference(name):
    chosen = []

    def f(scores):
        chosen.append(choose("projection", scores))
        return scores.sum()

    transforms()[name](f)
    assert set(chosen) == {"reference"}


@pytest.mark.filterwarnings("ignore")  # of the tracer
@pytest.mark.parametrize(
    "f",
    [
        lambda scores: SmoothedTopKHingeLoss(2)(scores, TARGET),
        lambda scores: SparsemaxLoss()(scores, TARGET),
        lambda scores: log_elementary_symmetric_polynomials(scores, 2),
    ],
    ids=["smoothed", "projected", "polynomials"],
)
def test_references_can_be_traced(f):
    torch.testing.assert_close(torch.jit.trace(f, SCORES)(SCORES + 1), f(SCORES + 1))


def test_the_default_device_is_not_that_of_the_scores():
    scores = torch.randn(3, 5000, dtype=torch.float64)
    expected = top_k_by_blocks(scores, 5)
    torch.set_default_device("meta")
    try:
        found = top_k_by_blocks(scores, 5)
    finally:
        torch.set_default_device(None)
    assert all(map(torch.equal, found, expected))


SETS = torch.zeros(4, 6).scatter_(1, torch.tensor([[0, 4], [1, 5], [2, 2], [3, 0]]), 1)


def test_want_of_kernels_is_told_once_where_the_package_was_called(monkeypatch):
    monkeypatch.delenv("SKSETVALUED_KERNELS", raising=False)
    monkeypatch.setattr(_dispatch, "kernels", None)
    monkeypatch.setattr(_dispatch, "_LARGE", 1)
    _dispatch._warn_of_no_kernels.cache_clear()
    with pytest.warns(RuntimeWarning, match="without compiled kernels") as told:
        losses = [SparsemaxLoss()(SCORES, SETS) for _ in range(2)]
    assert [warning.filename for warning in told] == [__file__]
    assert losses[0] == losses[1]


IN_GRAPHS = {
    "projected": lambda scores: sparse_top(scores, 2).pow(3).sum(),
    "sparsemax": lambda scores: SparsemaxLoss()(scores, SETS),
    "sparse_top": lambda scores: SparseTopLoss()(scores, SETS),
    "lapsum": lambda scores: LapSumLoss(2)(scores, TARGET),
}


@pytest.mark.parametrize(
    ("name", "order"),
    [
        # A Hessian takes both of the others, one within the other. Of lapsum `test_losses_mixed`
        # takes one derivative more.
        pytest.param(name, order, marks=[pytest.mark.slow] if order != alone else [])
        for name, alone in zip(IN_GRAPHS, ("forward", "grad", "hessian", None), strict=True)
        for order in ("forward", "grad", "hessian")
    ],
)
def test_derivatives_in_graphs_are_those_outside(name, order):
    f = IN_GRAPHS[name]
    change = torch.ones_like(SCORES).cumsum(1)

    def differentiate(scores):
        if order == "forward":
            return torch.func.jvp(f, (scores,), (change,))[1]
        return (torch.func.grad(f) if order == "grad" else torch.func.hessian(f))(scores)

    torch._dynamo.reset()
    found = torch.compile(differentiate, backend="aot_eager")(SCORES)
    torch.testing.assert_close(found, differentiate(SCORES), rtol=1e-4, atol=1e-5)
    assert found.abs().max() > 1e-3


@needs_kernels
def test_the_largest_rank_is_that_of_the_sources():
    assert choose("smoothed", SCORES, rank=kernels.most_rank) == "cpu"
    assert choose("smoothed", SCORES, rank=kernels.most_rank + 1) == "reference"
    assert choose("noised", SCORES, rank=10**6) == "cpu"


def test_gradients_of_gradients_need_the_reference():
    with torch.enable_grad():
        assert needs_reference(SCORES)
    with torch.no_grad():
        assert not needs_reference(SCORES)
        assert needs_reference(torch._neg_view(SCORES))


@needs_kernels
def test_kernels_of_other_sources_are_refused(monkeypatch):
    assert _import_kernels() is kernels
    monkeypatch.setattr(kernels, "checksum", "of other sources")
    if Path(choose.__code__.co_filename).with_name("kernels").exists():
        with pytest.raises(ImportError, match=r"install it again \(pip install -e \.\)"):
            _import_kernels()
    monkeypatch.setenv("SKSETVALUED_KERNELS", "0")
    assert _import_kernels() is None


def test_that_there_are_no_kernels_is_said_once_and_where_it_matters():
    code = """
import os, sys, warnings
sys.modules["sksetvalued.operators._kernels"] = None
import torch
from sksetvalued.operators._dispatch import choose, instruction_set
assert instruction_set() is None
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    choose("noised", torch.zeros(100, 100))
    choose("noised", torch.zeros(1000, 1000).double())
    os.environ["SKSETVALUED_KERNELS"] = "0"
    choose("noised", torch.zeros(1000, 1000))
    assert not caught
    del os.environ["SKSETVALUED_KERNELS"]
    for _ in range(2):
        choose("noised", torch.zeros(1000, 1000))
(warning,) = caught
assert "Install a C++ compiler" in str(warning.message), warning
"""
    run_code(code).check_returncode()


@pytest.mark.parametrize(
    "loss",
    [
        SmoothedTopKHingeLoss(2),
        MixedTopKLoss(k=2),
        pytest.param(LapSumLoss(2), marks=pytest.mark.slow),
        SparsemaxLoss(),
    ],
)
def test_exported_losses_take_any_number_of_rows(loss):
    def data(n):
        return torch.randn(n, 7), torch.arange(n) % 7

    rows = {0: Dim("n_samples", min=2)}
    shapes = {"input": rows, "target": rows}
    program = torch.export.export(loss, data(4), dynamic_shapes=shapes).module()
    more = data(9)
    torch.testing.assert_close(program(*more), loss(*more))


def test_marginals_say_that_they_are_not_exported():
    class Marginals(nn.Module):
        def forward(self, scores):
            return top_k_marginals(scores, 2)

    with pytest.raises(NotImplementedError, match="export the scores"):
        torch.export.export(Marginals(), (torch.randn(3, 5),))

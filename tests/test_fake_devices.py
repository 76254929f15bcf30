"""What goes to an accelerator, what waits for one, and what half precision leaves of scores.

Tensors without values stand for those on the device: they raise where devices are mixed, and
where a value would have to be read, for which the processor would wait.
"""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from sksetvalued import AverageKClassifier, TopKClassifier
from sksetvalued.inputs import SparseRows, media_inputs, table_inputs
from sksetvalued.losses import _two_head
from sksetvalued.networks import LinearHead, Network, Normalize
from sksetvalued.networks._probe import n_features_of
from sksetvalued.networks._rows import RowLinear


@pytest.fixture
def fake():
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


X = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
IMAGES = np.zeros((20, 3, 8, 8), dtype=np.uint8)
N_BYTES = {"rows": 480, "images": 3840, "by name": 3840 + 480, "dataset": 3840}


def tensors_of(batch):
    return [*batch.values()] if isinstance(batch, dict) else [batch]


def on_cuda(module):
    """Put parameters without values, on the device, in the place of those of a module."""
    for part in module.modules():
        for name, own in part.named_parameters(recurse=False):
            part.register_parameter(name, nn.Parameter(torch.empty(own.shape, device="cuda")))
    return module


def inputs_of(kind):
    if kind == "rows":
        return table_inputs(X)
    if kind == "images":
        return media_inputs(IMAGES, "image")
    if kind == "by name":
        return media_inputs({"pixels": IMAGES, "columns": X}, "named")
    return media_inputs(TensorDataset(torch.from_numpy(IMAGES)), "dataset")


@pytest.mark.parametrize("kind", N_BYTES)
def test_data_go_to_the_device_where_three_tenths_of_what_is_free_hold_them(kind, monkeypatch):
    """What torch holds back, and would give them, is free, too."""
    inputs, some = inputs_of(kind).subset(np.arange(0, 20, 2)), torch.tensor([3, 1])
    expected = tensors_of(inputs.take(some))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 700)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 200)
    for spare, moves in ((1, True), (-1, False)):
        free = N_BYTES[kind] / 2 / 0.3 - 500 + spare
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, None))
        with FakeTensorMode(allow_non_fake_inputs=True):
            there = inputs.to("cuda")
            assert (there is not inputs) == moves
            if moves:
                for part, other in zip(tensors_of(there.take(some)), expected, strict=True):
                    assert (part.shape, part.dtype) == (other.shape, other.dtype)
                    assert part.device.type == "cuda"
    assert tensors_of(inputs.to("cpu").take(some))[0].is_cpu


@pytest.mark.usefixtures("fake")
def test_a_module_that_is_on_the_device_is_tried_there():
    body = on_cuda(nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    normalize = Normalize([0.5] * 3, [0.5] * 3)
    assert n_features_of(body, normalize, body, (3, 8, 8), 5) == 4
    assert normalize.mean.device.type == "cpu"


@pytest.mark.usefixtures("fake")
def test_sparse_rows_wait_for_no_value():
    columns = torch.empty(4, dtype=torch.int32, device="cuda")
    starts = torch.empty(3, dtype=torch.int64, device="cuda")
    rows = SparseRows(columns, starts, torch.empty(4, device="cuda"), 5)
    assert rows.to_dense().shape == (3, 5)
    assert rows.lacks(torch.empty(2, dtype=torch.int64, device="cuda")).shape == (3, 2)
    assert on_cuda(RowLinear(5, 2))(rows).shape == (3, 2)


def test_rows_lack_what_they_do_not_store():
    dense = np.array([[0, 1, 0, 2, 0], [0, 0, 0, 0, 0], [3, 0, 0, 4, 5]], dtype=np.float32)
    stored = sp.csr_matrix(dense)
    parts = (torch.from_numpy(part) for part in (stored.indices, stored.indptr[:-1], stored.data))
    batch = SparseRows(*parts, 5)
    for chosen in ([3, 0, 2], [1], []):
        found = batch.lacks(torch.tensor(chosen, dtype=torch.int64))
        np.testing.assert_array_equal(found, dense[:, chosen] == 0)


@pytest.mark.parametrize("training", [True, False])
def test_scores_to_rank_by_are_of_single_precision(training):
    head, x = LinearHead(4, 50), torch.randn(3, 4)
    network = Network(nn.Identity(), Halved(), head).train(training)
    with torch.autocast("cpu", torch.bfloat16):
        scores = network(x)
    exact = head(x.bfloat16().float())
    assert torch.allclose(scores.float(), exact, rtol=1e-5, atol=1e-6) == (not training)
    assert training or scores.dtype == torch.float32


def test_a_head_may_have_no_parameters():
    network, x = Network(nn.Identity(), nn.Linear(4, 3), nn.Identity()).eval(), torch.randn(2, 4)
    assert torch.equal(network(x), network.backbone(x))


class Halved(nn.Module):
    def forward(self, x):
        return x.bfloat16()


def test_those_of_a_fit_in_half_precision_are_no_rounded_ones():
    rng = np.random.default_rng(0)
    clf = TopKClassifier(2, precision="bf16", max_epochs=2, random_state=0)
    scores = clf.fit(X.repeat(5, 0), rng.integers(0, 9, 100)).decision_function(X)
    rounded = torch.from_numpy(scores).bfloat16().float().numpy()
    assert (scores != rounded).mean() > 0.9


class Overwritten(torch.autograd.Function):
    """Return what is overwritten by the next call, as a CUDA graph does."""

    store = torch.zeros(())

    @staticmethod
    def forward(ctx, loss):
        Overwritten.store.copy_(loss)
        return Overwritten.store.detach()

    @staticmethod
    def backward(ctx, grad):
        return grad


class OverwrittenLoss(nn.Module):
    def forward(self, input, target):
        return Overwritten.apply(cross_entropy(input, target))


def test_losses_of_an_epoch_outlive_the_next_batch():
    params = {"backbone": (4,), "max_epochs": 2, "batch_size": 5, "random_state": 0}
    y = np.arange(20) % 3
    losses = [
        TopKClassifier(1, loss=loss, **params).fit(X, y).history_[:, "train_loss"]
        for loss in (OverwrittenLoss(), nn.CrossEntropyLoss())
    ]
    np.testing.assert_allclose(*losses, rtol=1e-6)


@pytest.mark.parametrize("params", [{}, {"net_params": {"gradient_accumulation_steps": 3}}])
def test_no_gradients_are_kept(params):
    clf = AverageKClassifier(1.5, max_epochs=1, batch_size=5, **params).fit(X, np.arange(20) % 3)
    assert all(parameter.grad is None for parameter in clf.net_.module_.parameters())


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_largest_entries_are_those_of_a_sort_on_any_device(elsewhere, monkeypatch):
    """That of the processor selects in another way."""
    if elsewhere:
        monkeypatch.setattr(_two_head, "is_eager", lambda values: False)
    values = torch.rand(40).round(decimals=1)
    for count in (1, 7, 39, 40):
        expected = values.sort(descending=True).values[:count]
        chosen = values[_two_head._largest(values, count)]
        assert torch.equal(chosen.sort(descending=True).values, expected)
    with FakeTensorMode():
        assert _two_head._largest(torch.empty(40, device="cuda"), 7).shape == (40,)

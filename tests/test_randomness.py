"""One random state, one result: dropout with a generator of its own, and fits among threads."""

import contextlib
import copy
import pickle
import threading
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.datasets import load_digits, make_multilabel_classification
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset
from torchvision import transforms
from torchvision.transforms import v2

from sksetvalued import (
    AverageKClassifier,
    SparseTopClassifier,
    Stream,
    TopKClassifier,
    load,
    save,
)
from sksetvalued._randomness import part_of_batch, put_back
from sksetvalued.inputs._transforms import may_draw
from sksetvalued.losses import NoisedTopKHingeLoss
from sksetvalued.losses.functional import noised_top_k_hinge_loss
from sksetvalued.networks import MLP, ConvNet, DenseNet, Dropout, build_network
from sksetvalued.networks._random import RectifiedDropout
from sksetvalued.operators import instruction_set
from sksetvalued.operators._dispatch import kernels

X, y = load_digits(return_X_y=True)
X, y = X[:300], y[:300]
IMAGES = (X.reshape(-1, 8, 8) * 15).astype(np.uint8)
Y = make_multilabel_classification(300, n_classes=10, random_state=0)[1]
DROPOUT = {"backbone_params": {"dropout": 0.3}, "max_epochs": 2, "random_state": 0}
NARROW = {**DROPOUT, "backbone_params": {"dropout": 0.3, "widths": (8, 16)}}


def weights(clf):
    return [value.clone() for value in clf.net_.module_.state_dict().values()]


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


# -- dropout --------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "exact"), [(torch.float64, 1e-9), (torch.float32, 1e-6)])
@pytest.mark.parametrize("p", [1e-3, 0.3, 0.5, 0.95])
def test_the_share_that_is_dropped_and_the_mean_that_is_kept(p, dtype, exact):
    n = 400_000
    dropped = Dropout(p, generator=0)(torch.ones(n, dtype=dtype)).double()
    n_dropped = (dropped == 0).sum().item()
    assert abs(n_dropped - n * p) < 5 * np.sqrt(n * p * (1 - p))
    kept = dropped[dropped != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - p)), rtol=exact, atol=0)
    variance = dropped.var().item()
    assert variance == pytest.approx(p / (1 - p), rel=5 * np.sqrt(abs(1 - 2 * p) / (n * p)) + 1e-4)


def test_entries_and_calls_are_dropped_independently():
    dropout = Dropout(0.5, generator=0)
    masks = torch.stack([dropout(torch.ones(100_000)) for _ in range(3)]) - 1
    for lag in (1, 2, 3, 16, 64, 256):
        assert abs((masks[:, lag:] * masks[:, :-lag]).mean()) < 5 / np.sqrt(300_000 - 3 * lag)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert abs((masks[i] * masks[j]).mean()) < 5 / np.sqrt(100_000)


@pytest.mark.skipif(kernels is None, reason="the kernels are not built")
def test_every_instruction_set_drops_the_same_entries():
    masks = []
    sets = kernels.instruction_sets()
    try:
        for name in sets:
            kernels.use_instruction_set(name)
            masks.append(Dropout(0.3, generator=0)(torch.ones(31, 33)))
    finally:
        kernels.use_instruction_set(sets[0])
    assert all(torch.equal(mask, masks[0]) for mask in masks)


def test_gradients_pass_where_entries_are_kept():
    x = torch.randn(50, 7, requires_grad=True)
    y = Dropout(0.3, generator=0)(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient * x, y)


def test_nothing_is_dropped_in_evaluation_or_without_dropout():
    x = torch.randn(5)
    assert Dropout(0.5).eval()(x) is x
    state = torch.get_rng_state()
    assert Dropout(0)(x) is x
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(0, 3), (3,), (2, 3, 5, 5)])
def test_type_shape_and_layout_are_kept(dtype, shape):
    x = torch.ones(shape, dtype=dtype)
    x = x.to(memory_format=torch.channels_last) if x.ndim == 4 else x
    dropped = Dropout(0.5, generator=0)(x)
    assert (dropped.dtype, dropped.shape, dropped.stride()) == (dtype, x.shape, x.stride())
    assert set(dropped.unique().tolist()) <= {0, 2}


def test_the_same_entries_are_dropped_in_any_layout_and_in_parts():
    x = torch.rand(8, 6, 5, 5) + 1
    whole = Dropout(0.5, generator=0)(x)
    last = Dropout(0.5, generator=0)(x.to(memory_format=torch.channels_last))
    assert torch.equal(whole, last)
    rows = slice(3, 6)
    token = part_of_batch.set((rows, 8))
    try:
        part = Dropout(0.5, generator=0)(x[rows].to(memory_format=torch.channels_last))
    finally:
        part_of_batch.reset(token)
    assert torch.equal(part, whole[rows])


@pytest.mark.parametrize("part", [None, (slice(1, 3), 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(4, 33), (4, 3, 5, 5)])
def test_rectified_dropout_is_relu_and_then_dropout(shape, dtype, part):
    """Entry by entry, with their gradients, also of zeros, of rows in parts and of any layout."""
    x = torch.randn(shape, dtype=dtype)
    x[0, :9] = 0
    x = x[part[0]] if part else x
    x = x.to(memory_format=torch.channels_last) if x.ndim == 4 else x.t().contiguous().t()
    weight, found = torch.randn(x.shape, dtype=dtype), []
    token = part_of_batch.set(part)
    try:
        for module in (
            RectifiedDropout(0.3, generator=0),
            nn.Sequential(nn.ReLU(), Dropout(0.3, generator=0)),
        ):
            for _ in range(2):
                leaf = x.clone().requires_grad_()
                y = module(leaf)
                found.append((y.detach(), *torch.autograd.grad((weight * y).sum(), leaf)))
            found.append((module.eval()(x),))
    finally:
        part_of_batch.reset(token)
    for got, expected in zip(found[:3], found[3:], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("way", [copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))])
def test_a_copy_goes_on_with_the_same_draws(way):
    dropout = Dropout(0.5, generator=0)
    first = dropout(torch.ones(1000))
    twin = way(dropout)
    second = dropout(torch.ones(1000))
    assert torch.equal(twin(torch.ones(1000)), second)
    assert not torch.equal(first, second)


def test_a_state_that_was_moved_goes_on():
    """torch.load moves it with the network, but generators of all devices keep theirs here."""
    dropout = Dropout(0.5, generator=0)
    dropout(torch.ones(1000))
    twin, state = copy.deepcopy(dropout), dropout.generator.__getstate__()
    moved = SimpleNamespace(cpu=lambda: state["states"]["cpu"])
    twin.generator.__setstate__({**state, "states": {"cpu": moved}})
    assert torch.equal(twin(torch.ones(1000)), dropout(torch.ones(1000)))


def test_dropout_works_in_compiled_networks():
    network = MLP((4,), hidden=(50,), dropout=0.5)
    twin = copy.deepcopy(network)
    compiled = torch.compile(network, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(6, 4)), twin(torch.ones(6, 4)))


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan"), "0.5", True, None])
def test_a_share_that_is_none_is_named(p):
    error = ValueError if type(p) is float else TypeError
    with pytest.raises(error, match=r"dropout must (be a number|lie) in \[0, 1\), got"):
        ConvNet((1, 8, 8), dropout=p)


@pytest.mark.parametrize(
    ("backbone", "shape"), [("mlp", (20,)), ("convnet", (1, 8, 8)), ("densenet40_40", (1, 8, 8))]
)
@pytest.mark.parametrize("head", ["linear", "cosine", "two_head"])
def test_a_generator_decides_the_network_as_torch_would(backbone, shape, head):
    """The initial weights are those that torch's layers draw from the default generator."""

    def build(generator=None):
        params = {"depth": 7, "growth": 2} if backbone == "densenet40_40" else None
        return build_network(backbone, params, None, shape, 3, head, generator=generator)

    state = torch.get_rng_state()
    own = build(torch.Generator().manual_seed(5)).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        default = build().state_dict()
    assert same(own.values(), default.values())


def test_the_initial_weights_are_those_of_torch():
    generator = torch.Generator().manual_seed(1)
    ours = [
        MLP((20,), generator=generator)[0],
        ConvNet((3, 8, 8), generator=generator).stages[0][0],
    ]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        peers = [nn.Linear(20, 256), nn.Conv2d(3, 32, 3, bias=False)]
    for layer, peer in zip(ours, peers, strict=True):
        assert same(layer.parameters(), peer.parameters())


@pytest.mark.parametrize("cls", [MLP, ConvNet, DenseNet])
def test_networks_can_be_built_without_memory(cls):
    with torch.device("meta"):
        assert {p.device.type for p in cls((1, 8, 8), dropout=0.5).parameters()} == {"meta"}


def test_the_generator_is_no_parameter_of_a_backbone():
    with pytest.raises(ValueError, match=r"unknown keys \['generator'\]"):
        build_network("mlp", {"generator": torch.Generator()}, None, (4,), 3)


# -- fits among threads ---------------------------------------------------------------------


def draws(n=None, stop=None):
    """Seed the global generators and draw from them `n` times, or until told to stop."""
    torch.manual_seed(3)
    np.random.seed(3)
    drawn = []
    while not stop.is_set() if n is None else len(drawn) < n:
        drawn.append((torch.rand(()).item(), torch.randn(3)[0].item(), np.random.rand()))
        time.sleep(0)
    return drawn


@contextlib.contextmanager
def disturbed():
    """Let a thread draw from the global generators, and check that it drew what it would alone."""
    stop, drawn = threading.Event(), []
    thread = threading.Thread(target=lambda: drawn.extend(draws(stop=stop)))
    with torch.random.fork_rng():
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert len(drawn) > 20
        assert drawn == draws(len(drawn))


def fits_in_threads(estimators, data, target):
    results = [None] * len(estimators)

    def fit(i):
        results[i] = weights(estimators[i].fit(data, target))

    threads = [threading.Thread(target=fit, args=(i,)) for i in range(len(estimators))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize(
    ("make", "data", "target"),
    [
        (lambda: TopKClassifier(2, **DROPOUT), X, y),
        (lambda: TopKClassifier(2, validation_fraction=0.2, **NARROW), IMAGES[:120], y[:120]),
        (lambda: AverageKClassifier(2, loss="noised_hinge", **DROPOUT), X, y),
        (lambda: SparseTopClassifier(**DROPOUT), X, Y),
    ],
    ids=["top_k", "images", "average_k", "sparse_top"],
)
def test_threads_neither_change_fits_nor_are_changed(make, data, target):
    alone = weights(make().fit(data, target))
    with disturbed():
        results = fits_in_threads([make() for _ in range(4)], data, target)
    assert all(same(alone, result) for result in results)


@pytest.mark.parametrize("go_on", ["warm_start", "partial_fit"])
def test_going_on_goes_on_with_the_draws(go_on):
    """Also through a pickle, and whatever others draw in between."""
    clf = TopKClassifier(2, warm_start=True, lr_schedule=None, **DROPOUT).fit(X, y)
    twin = pickle.loads(pickle.dumps(clf))
    go_on = {"warm_start": "fit", "partial_fit": "partial_fit"}[go_on]
    device = next(clf.net_.module_.parameters()).device
    before = clf.net_.module_.backbone[1].generator.on(device).get_state()
    getattr(clf, go_on)(X, y)
    with disturbed():
        getattr(twin, go_on)(X, y)
    assert same(weights(clf), weights(twin))
    after = clf.net_.module_.backbone[1].generator.on(device).get_state()
    assert not torch.equal(before, after)


def test_images_on_disk_are_the_same_with_workers_among_threads(tmp_path):
    for i, image in enumerate(IMAGES[:40]):
        Image.fromarray(image).save(tmp_path / f"{i:02d}.png")
    paths = np.array(sorted(str(path) for path in tmp_path.glob("*.png")))
    results = []
    for n_workers in (0, 1):
        workers = {f"iterator_{part}__num_workers": n_workers for part in ("train", "valid")}
        with disturbed():
            clf = TopKClassifier(2, net_params=workers, **DROPOUT).fit(paths, y[:40])
        results.append(weights(clf))
    assert same(*results)


def backbone_of_the_user(input_shape):
    return nn.Sequential(nn.Linear(*input_shape, 16), nn.ReLU(), nn.Dropout(0.5))


def test_code_of_the_user_finds_seeded_generators_and_leaves_them():
    clf = TopKClassifier(
        2,
        backbone=backbone_of_the_user,
        warm_start=True,
        lr_schedule=None,
        max_epochs=2,
        random_state=0,
    )
    state = torch.get_rng_state()
    first = weights(clf.fit(X, y))
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    assert same(first, weights(clone(clf).fit(X, y)))
    twin = pickle.loads(pickle.dumps(clf))
    assert same(weights(clf.partial_fit(X, y)), weights(twin.partial_fit(X, y)))


def test_the_instructions_of_the_noise_are_recorded(tmp_path):
    clf = TopKClassifier(2, max_epochs=1).fit(X, y)
    assert clf.instruction_set_ == instruction_set()
    for other in ("another", None):
        clf.instruction_set_ = other
        save(clf, tmp_path / "clf")
        assert load(tmp_path / "clf").instruction_set_ == other


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("make", [partial(Dropout, 0.5), partial(NoisedTopKHingeLoss, 1)])
def test_noise_is_not_drawn_anew_where_gradients_are_checkpointed(make, reentrant):
    part = make(generator=0)
    x = torch.randn(4, 3, requires_grad=True)
    given = (x,) if isinstance(part, Dropout) else (x, torch.zeros(4, dtype=torch.int64))
    out = checkpoint(part, *given, use_reentrant=reentrant)
    with pytest.raises(RuntimeError, match="leave the loss or the Dropout out"):
        out.sum().backward()
    # What draws nothing anew may be computed again.
    checkpoint(part.eval(), *given, use_reentrant=reentrant).sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("seed", [None, 7])
def test_the_function_of_the_loss_draws_the_same_noise_where_it_is_checkpointed(seed, reentrant):
    x, target = torch.randn(4, 3, requires_grad=True), torch.tensor([0, 1, 2, 0])

    def noised(x, generator=seed):
        return noised_top_k_hinge_loss(x, target, k=1, generator=generator)

    with put_back():
        torch.manual_seed(3)
        (expected,) = torch.autograd.grad(noised(x), x)
        torch.manual_seed(3)
        checkpoint(noised, x, use_reentrant=reentrant).backward()
    torch.testing.assert_close(x.grad, expected, rtol=0, atol=0)
    loss = checkpoint(noised, x, torch.Generator(), use_reentrant=reentrant)
    with pytest.raises(RuntimeError, match="function of the loss without a generator"):
        loss.backward()


class Draws(nn.Linear):
    """A backbone of the user that draws from torch's generator in training."""

    drawn = []

    def forward(self, x):
        if self.training:
            self.drawn.append(torch.rand(()).item())
        return super().forward(x)


def test_code_of_the_user_draws_other_numbers_in_each_piece():
    Draws.drawn.clear()
    clf = TopKClassifier(2, backbone=Draws(64, 8), random_state=0)
    for _ in range(2):
        clf.partial_fit(X, y, classes=np.unique(y))
    assert len(set(Draws.drawn)) == len(Draws.drawn) > 2


class Noised(Dataset):
    """Pairs of noise, drawn from torch, and labels."""

    def __len__(self):
        return 60

    def __getitem__(self, i):
        return torch.randn(3), i % 3

    def __iter__(self):
        return map(self.__getitem__, range(60))


@pytest.mark.parametrize("labels", [None, np.arange(60) % 3], ids=["of items", "given"])
def test_a_fit_leaves_the_generator_of_torch_whatever_items_draw(labels):
    state = torch.get_rng_state()
    TopKClassifier(1, max_epochs=1, random_state=0).fit(Noised(), labels)
    assert torch.equal(torch.get_rng_state(), state)


def test_streams_that_draw_are_repeated_and_leave_the_generator_of_torch():
    data = Stream(Noised(), classes=range(3), class_counts=[20] * 3)
    params = {"max_epochs": 1, "lr_schedule": None, "warm_start": True, "random_state": 0}
    first, second = (AverageKClassifier(2, **params) for _ in range(2))
    for _ in range(2):
        state = torch.get_rng_state()
        first.fit(data)
        assert torch.equal(torch.get_rng_state(), state)
        torch.rand(5)
        assert same(weights(first), weights(second.fit(data)))
        assert first.rule_.threshold_ == second.rule_.threshold_


def test_a_stream_that_cannot_be_read_leaves_the_model():
    clf = TopKClassifier(1, max_epochs=1, random_state=0).fit(X, y)
    network = clf.net_
    for source, message in (([], "yielded no samples"), ([(X[0] * 1j, 0)], "real numbers")):
        with pytest.raises((TypeError, ValueError), match=message):
            clf.fit(Stream(source, classes=[0, 1], class_counts=[1, 1]))
    assert clf.net_ is network


@pytest.mark.parametrize("as_paths", [True, False])
def test_predictions_with_steady_transforms_wait_for_no_training(as_paths, tmp_path):
    """Which another thread may take for hours."""
    samples = IMAGES[:40]
    if as_paths:
        samples = [tmp_path / f"{i}.png" for i in range(40)]
        for path, image in zip(samples, IMAGES, strict=False):
            Image.fromarray(image).save(path)
    steady = v2.Compose([v2.ToImage(), v2.Resize(8), v2.ToDtype(torch.float32, scale=True)])
    transform = {"train": v2.Compose([steady, v2.RandomHorizontalFlip()]), "eval": steady}
    reading = {f"iterator_{part}__num_workers": 0 for part in ("train", "valid")}
    params = {"max_epochs": 1, "random_state": 0, "net_params": reading}
    clf = TopKClassifier(2, transform=transform, **params).fit(samples, y[:40])
    expected, found = clf.predict_set(samples), []
    with put_back():  # as a training of another thread has it
        thread = threading.Thread(target=lambda: found.append(clf.predict_set(samples)))
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
    np.testing.assert_array_equal(found[0], expected)


def test_what_may_draw():
    steady = [v2.Resize(8), transforms.ToTensor(), v2.Normalize([0.5], [0.5]), v2.CenterCrop(4)]
    steady += [v2.Compose(steady[:3]), transforms.Compose(steady[:3]), None]
    drawing = [
        v2.RandomCrop(4),
        transforms.ColorJitter(),
        v2.Compose([*steady[:2], v2.RandAugment()]),
    ]
    drawing += [np.asarray, lambda image: image, nn.Sequential(nn.Dropout())]
    assert not any(map(may_draw, steady))
    assert all(map(may_draw, drawing))

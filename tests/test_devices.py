"""Losses and estimators on a GPU, or on the device that SKSETVALUED_TEST_DEVICE names.

They are skipped where there is no GPU. `make gpu` runs them on one; `make gpu-dry` on the
processor, where they have to hold as well. The kernels have files of their own (triton_tools.py).
"""

import copy
import os
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from sksetvalued import AverageKClassifier, SparseTopClassifier, TopKClassifier, load, save
from sksetvalued.losses import LOSSES, NoisedTopKHingeLoss
from sksetvalued.metrics import average_set_size

DEVICE = os.environ.get("SKSETVALUED_TEST_DEVICE", "cuda")
ON_GPU = DEVICE.startswith("cuda")
BACKEND = "inductor" if ON_GPU else "aot_eager"
N_CLASSES = 7

pytestmark = pytest.mark.skipif(
    ON_GPU and not torch.cuda.is_available(), reason="needs a GPU; see make gpu-dry"
)


def build(name):
    """Return a loss without noise and what it is called with, in double precision."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, N_CLASSES, generator=generator, dtype=torch.float64)
    target = torch.arange(5)
    supplied = {"k": 2, "class_counts": [9, 1, 4, 1, 5, 3, 2], "n_samples": 5}
    noiseless = {"epsilon": 0.0} if "noised" in name or "mixture" in name else {}
    loss = LOSSES[name].from_estimator(supplied | {"n_classes": N_CLASSES}, noiseless).eval()
    if "label" not in loss.targets:
        target = torch.nn.functional.one_hot(target, N_CLASSES)
    scores = (scores, scores.flip(1)) if loss.head == "two_head" else (scores,)
    extra = {"index": torch.arange(5)} if loss.uses_index else {}
    return loss, scores, target, extra


def differentiate(loss, scores, target, extra, device, dtype):
    """Return the value of a loss and its gradients, computed there and so."""
    loss, target = loss.to(device), target.to(device)
    leaves = [s.to(device, dtype).detach().requires_grad_() for s in scores]
    extra = {name: value.to(device) for name, value in extra.items()}
    value = loss(leaves[0] if len(leaves) == 1 else tuple(leaves), target, **extra)
    value.backward()
    return [t.detach().cpu().double() for t in (value, *(leaf.grad for leaf in leaves))]


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_those_of_the_processor_in_double_precision(name):
    found = differentiate(*build(name), DEVICE, torch.float32)
    expected = differentiate(*build(name), "cpu", torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_half_precision_are_those_of_the_rounded_scores(name):
    loss, scores, target, extra = build(name)
    half = [s.bfloat16() for s in scores]
    with torch.autocast(torch.device(DEVICE).type, torch.bfloat16):
        found = differentiate(loss, half, target, extra, DEVICE, torch.bfloat16)
    expected = differentiate(build(name)[0], half, target, extra, DEVICE, torch.float32)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(found[1:], expected[1:], rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("name", ["calibrated_hinge", "cross_entropy", "sparse_top"])
def test_compiled_losses_are_those_of_plain_calls(name):
    loss, *rest = build(name)
    compiled = torch.compile(loss, backend=BACKEND)
    found = differentiate(compiled, *rest, DEVICE, torch.float32)
    expected = differentiate(*build(name), DEVICE, torch.float32)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_noise_follows_its_seed_and_leaves_the_generators_of_torch_alone():
    scores, target = torch.zeros(40, 1000, device=DEVICE), torch.arange(40, device=DEVICE)
    before = torch.get_rng_state(), torch.cuda.get_rng_state() if ON_GPU else None
    values = [
        NoisedTopKHingeLoss(3, 1.0, 3, generator=seed)(scores, target).item() for seed in (0, 0, 1)
    ]
    assert values[0] == values[1] != values[2]
    assert torch.equal(torch.get_rng_state(), before[0])
    assert not ON_GPU or torch.equal(torch.cuda.get_rng_state(), before[1])


@pytest.mark.parametrize("loss", [None, "noised_hinge", "smoothed_hinge"])
@pytest.mark.parametrize("Classifier", [TopKClassifier, AverageKClassifier])
def test_a_seed_fixes_a_training_to_the_last_bit(Classifier, loss):
    """Sums of gradients too, which a GPU makes in any order unless it is kept from that."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, N_CLASSES, 300)
    X = rng.normal(size=(300, 10)).astype(np.float32)
    X[np.arange(300), y] += 2
    given = {} if loss is None else {"loss": loss}
    clf = Classifier(2, device=DEVICE, max_epochs=10, batch_size=32, random_state=0, **given)
    scores = [clf.fit(X, y).decision_function(X) for _ in range(3)]
    assert np.array_equal(scores[0], scores[1])
    assert np.array_equal(scores[0], scores[2])


@pytest.mark.parametrize("name", ["noised_hinge", "smoothed_hinge"])
def test_training_with_scaled_gradients(name):
    """Mixed precision by autocast and GradScaler, as in a loop of one's own."""
    torch.manual_seed(0)
    kind = torch.device(DEVICE).type
    dtype = torch.float16 if ON_GPU else torch.bfloat16
    y = torch.arange(64, device=DEVICE) % N_CLASSES
    X = torch.nn.functional.one_hot(y, N_CLASSES).float()
    network = torch.nn.Linear(N_CLASSES, N_CLASSES).to(DEVICE)
    loss = LOSSES[name].from_estimator({"k": 2}, {})
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler(kind)
    values = []
    for _ in range(60):
        optimizer.zero_grad()
        with torch.autocast(kind, dtype):
            value = loss(network(X), y)
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()
        values.append(value.item())
    assert np.isfinite(values).all()
    assert values[-1] < 0.5 * values[0]


@pytest.fixture(scope="module")
def images():
    """Small pictures of three colours."""
    rng = np.random.default_rng(0)
    y = np.arange(96) % 3
    X = rng.integers(0, 60, (96, 32, 32, 3), dtype=np.uint8)
    X[np.arange(96), :, :, y] += 120
    return X, y


@pytest.mark.parametrize(
    "params",
    [{}, {"precision": "bf16"}, {"compile": True, "net_params": {"compile__backend": BACKEND}}],
    ids=["float32", "bf16", "compiled"],
)
@pytest.mark.parametrize("Classifier", [TopKClassifier, AverageKClassifier, SparseTopClassifier])
def test_a_residual_network_from_fit_to_file(Classifier, params, images, tmp_path):
    X, y = images
    several = Classifier is SparseTopClassifier
    size = {"size": 1} if several else {"k": 1}
    clf = Classifier(
        **size,
        backbone="resnet18",
        device=DEVICE,
        max_epochs=6,
        batch_size=16,
        lr=1e-3,
        random_state=0,
        **params,
    ).fit(X, np.eye(3, dtype=int)[y] if several else y)
    assert {p.device.type for p in clf.net_.module_.parameters()} == {torch.device(DEVICE).type}
    scores = clf.decision_function(X)
    assert (scores.argmax(1) == y).mean() > 0.8
    if Classifier is AverageKClassifier:
        assert average_set_size(clf.calibrate(X).predict_set(X)) <= 1
    save(clf, tmp_path / "clf")
    again = load(tmp_path / "clf", device="cpu")
    tolerance = {"rtol": 0.1, "atol": 0.1} if params.get("precision") else {"atol": 1e-2}
    np.testing.assert_allclose(again.decision_function(X), scores, **tolerance)


def test_weights_of_classes_and_samples_are_on_the_device_of_the_network():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 5)).astype(np.float32), np.arange(60) % 3
    X[np.arange(60), y] += 3
    clf = TopKClassifier(
        2, device=DEVICE, loss="noised_hinge", max_margin=0.5, max_epochs=20, random_state=0
    )
    clf.set_params(class_weight="balanced").fit(X, y, sample_weight=1 + y)
    assert clf.score(X, y) > 0.8
    assert clf.predict_set(X).sum() == 120


@pytest.mark.parametrize("way", ["copy", "pickle", "file"])
def test_a_training_goes_on_from_copies_and_files(way, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 5)).astype(np.float32), np.arange(60) % 3
    clf = TopKClassifier(1, device=DEVICE, max_epochs=1, random_state=0)
    clf.set_params(backbone_params={"dropout": 0.3}).partial_fit(X, y, classes=[0, 1, 2])
    if way == "file":
        save(clf, tmp_path / "clf")
        again = load(tmp_path / "clf", device=DEVICE)
    else:
        again = copy.deepcopy(clf) if way == "copy" else pickle.loads(pickle.dumps(clf))
    again.partial_fit(X, y)
    expected = clf.partial_fit(X, y).decision_function(X)
    np.testing.assert_allclose(again.decision_function(X), expected, rtol=1e-4, atol=1e-4)


class OnDevice(Dataset):
    """Items (row, label), the row on the device."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.X[i], self.y[i]


@pytest.mark.parametrize("make", [OnDevice, TensorDataset])
@pytest.mark.parametrize("device", [DEVICE, "cpu"])
@pytest.mark.parametrize("of_images", [False, True])
def test_datasets_may_hold_tensors_on_the_device(make, device, of_images, images):
    X, y = (torch.from_numpy(each).to(DEVICE) for each in images)
    X = X.permute(0, 3, 1, 2) if of_images else X.float().mean((1, 2))
    loader = {"iterator_train__num_workers": 0, "iterator_valid__num_workers": 0}
    clf = TopKClassifier(1, device=device, net_params=loader, max_epochs=20, random_state=0)
    assert clf.fit(make(X, y)).score(make(X, y), images[1]) > 0.9

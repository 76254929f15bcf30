"""Real images, whole families of networks, and the memory of long lists of files."""

import io
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.model_selection import GridSearchCV
from torch.utils.data import Dataset
from torchvision.transforms import v2

from sksetvalued import TopKClassifier
from sksetvalued.datasets import train_val_test_indices
from sksetvalued.estimators._samples import N_COMPARED
from sksetvalued.metrics import set_coverage_score

pytestmark = pytest.mark.slow

IN_PROCESS = {f"iterator_{part}__num_workers": 0 for part in ("train", "valid")}


def read_pack(folder, name):
    """Return the images (n, h, w, c) and fine labels of a pack."""
    sys.path.insert(0, str(folder))
    try:
        from load_packs import decode_images
    finally:
        sys.path.remove(str(folder))
    pack = np.load(folder / f"{name}.npz")
    images = decode_images(pack)
    images = images if images.ndim == 4 else np.repeat(images[..., None], 3, axis=3)
    return images, pack["y_fine" if "y_fine" in pack.files else "y"].astype(int)


@pytest.fixture(params=["omniglot_small", "grocery_store_48", "cifar100_a"])
def pack(request, shared_data):
    """Some hundred images of a dozen classes of a pack."""
    images, y = read_pack(shared_data, request.param)
    kept = np.flatnonzero(y < 12)[::2][:300]
    return images[kept], y[kept]


def write_images(images, folder):
    paths = [folder / f"{i:05d}.png" for i in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    return np.array([str(path) for path in paths])


class Pictures(Dataset):
    def __init__(self, images, targets):
        self.images, self.targets = images, targets

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return Image.fromarray(self.images[i]), self.targets[i]


def test_arrays_paths_and_datasets_give_the_same_scores(pack, tmp_path):
    images, y = pack
    forms = images, write_images(images, tmp_path), Pictures(images, y)
    scores = []
    for X in forms:
        clf = TopKClassifier(k=2, max_epochs=2, validation_fraction=0.2, random_state=0)
        scores.append(clf.fit(X, y).decision_function(X))
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2])


def test_a_grid_search_over_paths_uses_two_processes(pack, tmp_path):
    images, y = pack
    paths = write_images(images, tmp_path)
    clf = TopKClassifier(k=2, max_epochs=3, random_state=0, net_params=IN_PROCESS)
    grid = {"lr": [1e-2, 1e-7]}
    search = GridSearchCV(clf, grid, cv=2, n_jobs=2, error_score="raise").fit(paths, y)
    assert search.best_params_ == {"lr": 1e-2}
    assert search.predict(paths).shape == y.shape


FAMILIES = {
    "resnet18": 48,
    "densenet121": 48,
    "mobilenet_v3_small": 48,
    "efficientnet_b0": 48,
    "vit_b_16": 48,
}


@pytest.mark.parametrize("backbone", FAMILIES)
def test_torchvision_families_train_an_epoch_on_real_images(backbone, shared_data):
    """The loss over the training images falls in one epoch."""
    images, y = read_pack(shared_data, "grocery_store_48")
    kept = np.flatnonzero(y < 6)[:192]
    X, y = images[kept], y[kept]
    clf = TopKClassifier(
        k=2,
        loss="cross_entropy",
        backbone=backbone,
        max_epochs=1,
        lr=3e-4,
        batch_size=16,
        random_state=0,
    )
    losses = []
    for _ in range(2):
        clf.partial_fit(X, y, classes=np.unique(y))
        losses.append(clf.history_[-1, "train_loss"])
    assert losses[1] < losses[0]
    assert clf.predict_set(X).sum(axis=1).tolist() == [2] * len(X)


def test_ten_views_do_not_lower_the_coverage(shared_data):
    """Ten crops against the centre, on 1,500 images the network has not seen.

    The coverages differ by the images on which just one of them is right. If the views were of
    no help these would split evenly: a fall by 3 standard deviations has probability 0.0013.
    """
    images, y = read_pack(shared_data, "cifar100_a")
    kept = np.flatnonzero(y < 20)
    train, _, test = train_val_test_indices(y[kept], percent=(75, 0, 25), random_state=0)
    X, y = images[kept], y[kept]
    views = {"train": v2.RandomCrop(28), "eval": v2.TenCrop(28)}
    clf = TopKClassifier(
        k=3, max_epochs=8, lr=3e-3, transform=views, net_params=IN_PROCESS, random_state=0
    )
    clf.fit(X[train], y[train])
    right = {}
    for name, transform in {"ten": v2.TenCrop(28), "one": v2.CenterCrop(28)}.items():
        clf.set_params(transform={"eval": transform})
        sets = clf.predict_set(X[test])
        right[name] = sets[np.arange(len(test)), np.searchsorted(clf.classes_, y[test])]
        coverage = set_coverage_score(y[test], sets, labels=clf.classes_)
        assert coverage == pytest.approx(right[name].mean())
    gained, lost = (right["ten"] & ~right["one"]).sum(), (right["one"] & ~right["ten"]).sum()
    assert right["one"].mean() > 0.3
    assert gained - lost > -3 * np.sqrt(gained + lost)


MEMORY = textwrap.dedent(
    """
    import sys, threading, time
    from pathlib import Path
    import numpy as np
    from torch import nn
    from torchvision.transforms import v2
    from sksetvalued import TopKClassifier

    def proportional_memory():
        "Return the memory of this process and its children, shared pages split between them."
        total, waiting = 0, ["self"]
        while waiting:
            process = waiting.pop()
            try:
                lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
                total += sum(int(l.split()[1]) for l in lines if l.startswith("Pss:"))
                tasks = Path(f"/proc/{process}/task").glob("*/children")
                waiting += " ".join(task.read_text() for task in tasks).split()
            except (FileNotFoundError, ProcessLookupError):
                continue
        return total / 1024**2

    peak, running = 0.0, True

    def watch():
        global peak
        while running:
            peak = max(peak, proportional_memory())
            time.sleep(0.2)

    def small_network(input_shape):
        return nn.Sequential(
            nn.Conv2d(3, 16, 8, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()
        )

    folder, n = Path(sys.argv[1]), int(sys.argv[2])
    paths = np.array([str(folder / f"{i % 20000}.jpg") for i in range(n)])
    y = np.arange(n) % 100
    watcher = threading.Thread(target=watch)
    watcher.start()
    transform = {"train": v2.RandomHorizontalFlip()}
    clf = TopKClassifier(backbone=small_network, transform=transform, max_epochs=1, batch_size=64)
    clf.fit(paths, y)
    sets = clf.predict_set(paths)
    running = False
    watcher.join()
    assert sets.shape == (n, 100)
    print(peak)
    """
)


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="needs Linux")
@pytest.mark.timeout(1800)
def test_memory_of_a_fit_from_20000_paths(tmp_path):
    """A fit and a prediction from 20,000 images of 224 x 224 peak under 2 GB, workers included."""
    rng = np.random.default_rng(0)
    encoded = []
    for _ in range(50):
        coarse = rng.integers(0, 256, (14, 14, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(coarse).resize((224, 224)).save(buffer, "JPEG")
        encoded.append(buffer.getvalue())
    for i in range(20_000):
        (tmp_path / f"{i}.jpg").write_bytes(encoded[i % 50])
    script = tmp_path / "fit.py"
    script.write_text(MEMORY)
    output = subprocess.run(
        [sys.executable, script, tmp_path, "20000"], capture_output=True, text=True, check=False
    )
    assert output.returncode == 0, output.stderr
    peak = float(output.stdout.split()[-1])
    print(f"peak memory: {peak:.2f} GB")
    assert peak < 2.0


def test_transforms_run_in_workers(tmp_path):
    """All reads of training but two bounded samples are made by workers.

    These are for the statistics, and for comparing the units of training and of evaluation.
    """
    images = np.random.default_rng(0).integers(0, 256, (1200, 8, 8, 3), dtype=np.uint8)
    log = tmp_path / "reads"

    def record(image):
        with open(log, "a") as file:
            file.write(f"{os.getpid()}\n")
        return image

    workers = {"iterator_train__num_workers": 2}
    clf = TopKClassifier(
        k=2, max_epochs=2, transform={"train": record}, net_params=workers, random_state=0
    )
    clf.fit(images, np.arange(1200) % 5)
    processes, reads = np.unique(log.read_text().split(), return_counts=True)
    here = processes == str(os.getpid())
    assert reads[here].sum() <= 512 + N_COMPARED
    assert reads[~here].sum() == 2 * 1200
    assert (~here).sum() == 2


def test_the_largest_bundled_network_trains_on_real_images(shared_data):
    images, y = read_pack(shared_data, "cifar100_a")
    kept = np.flatnonzero(y < 3)[:64]
    clf = TopKClassifier(k=1, loss="cross_entropy", backbone="densenet40_40", max_epochs=1)
    clf.set_params(batch_size=16, random_state=0, lr=1e-3)
    clf.fit(images[kept], y[kept])
    assert torch.isfinite(torch.from_numpy(clf.decision_function(images[kept]))).all()

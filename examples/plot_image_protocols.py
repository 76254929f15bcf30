"""
The training protocols of the papers
====================================

The experiments of Garcin et al. (ICML 2022) train a DenseNet 40-40 on CIFAR-100 and a ResNet-50 on
Pl@ntNet-300K. Each protocol is **one estimator**: architecture, loss, optimiser, learning rates,
image transforms, and the choice of the best epoch on held-out images. This example writes both
down, and runs them in seconds on small images made for the purpose.
"""

# %%
# CIFAR-100
# ---------
# 300 epochs of stochastic gradient descent with Nesterov's momentum (0.9, the default of
# ``optimizer="sgd"``), the learning rate divided by ten at epochs 150 and 225, random crops of the
# padded images and flips, and the epoch with the best top-5 accuracy on a tenth of the training
# images: 5,000 of 50,000 (section 4.4).
from torchvision.transforms import v2

from sksetvalued import TopKClassifier

cifar100 = TopKClassifier(
    k=5,
    loss="noised_hinge",
    epsilon=0.2,
    n_noise_samples=10,
    backbone="densenet40_40",
    max_epochs=300,
    batch_size=64,
    optimizer="sgd",
    lr=0.1,
    lr_schedule=(150, 225),
    weight_decay=1e-4,
    validation_fraction=0.1,
    transform={"train": v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip()])},
    random_state=0,
)

# %%
# It is fitted by ``cifar100.fit(torchvision.datasets.CIFAR100(root))``, or on any array of images;
# ``precision="bf16"`` is faster on a GPU. To draw labels anew within the superclasses, as in
# Table 4, see :func:`sksetvalued.datasets.corrupt_labels`.
#
# Pl@ntNet-300K
# -------------
# A ResNet-50 with the weights of ImageNet, margins that grow for rare species, a cosine head, and
# the epoch with the best *macro* top-5 accuracy (section 4.5). Images are resized and cropped by
# the worker processes that read them.
plantnet = TopKClassifier(
    k=5,
    loss="noised_hinge",
    epsilon=0.01,
    n_noise_samples=5,
    max_margin=0.2,
    scale=60.0,
    backbone="resnet50",
    weights="IMAGENET1K_V1",
    max_epochs=30,
    batch_size=32,
    optimizer="sgd",
    lr=2e-3,
    lr_schedule=(20, 25),
    weight_decay=1e-4,
    validation_fraction=0.1,
    transform={
        "train": v2.Compose([v2.Resize(256), v2.RandomCrop(224)]),
        "eval": v2.Compose([v2.Resize(256), v2.CenterCrop(224)]),
    },
    random_state=0,
)

# %%
# With the archive unpacked, two lines train it::
#
#     paths, y, species_names = load_plantnet300k("plantnet_300K", "train")
#     plantnet.fit(paths, y)
#
# Small images with a known optimum
# ---------------------------------
# :func:`~sksetvalued.datasets.make_ambiguous_classification` draws classes that come in groups of
# three, hard to tell apart, with the true probability of each class. Every feature becomes the
# contrast of a texture: fine or coarse, red, green or blue, wherever it starts.
import numpy as np

from sksetvalued.datasets import long_tail_indices, make_ambiguous_classification

X, y, p, groups = make_ambiguous_classification(
    1100, n_features=6, n_classes=12, group_size=3, group_separation=3.5, random_state=0
)
rng = np.random.default_rng(0)


def waves(period):
    """Return one wave of random phase for each image, of shape (1100, 40, 40, 3)."""
    phase = rng.uniform(0, 2 * np.pi, (2, 1100, 40, 3))
    angle = 2 * np.pi * np.arange(40)[:, np.newaxis] / period
    return (
        np.cos(angle + phase[0, :, :1])[:, :, np.newaxis]
        * np.cos(angle + phase[1, :, :1])[:, np.newaxis]
    )


contrast = 12 * np.exp(0.4 * X)[:, np.newaxis, np.newaxis]
pixels = 128 + contrast[..., :3] * waves(4) + contrast[..., 3:] * waves(10)
images = pixels.clip(0, 255).astype(np.uint8)

train, test = np.arange(700), np.arange(700, 1100)
best = np.sort(p[test], axis=1)[:, -3:].sum(axis=1).mean()
print(f"No classifier can cover more than {best:.1%} with 3 classes.")

# %%
# The first protocol, shortened
# -----------------------------
# Fewer epochs of smaller batches, and a DenseNet of the same kind with fewer layers. So short a
# training needs more noise, which spreads the gradient over more classes; all else stays.
from sklearn.base import clone

from sksetvalued.metrics import set_coverage_score

first = clone(cifar100).set_params(
    k=3,
    epsilon=1.0,
    max_epochs=4,
    batch_size=32,
    lr_schedule=(2, 3),
    backbone_params={"depth": 7, "growth": 8},
)
first.fit(images[train, 4:36, 4:36], y[train])
sets = first.predict_set(images[test, 4:36, 4:36])
print(f"coverage of 3 classes: {set_coverage_score(y[test], sets, labels=first.classes_):.1%}")

# %%
# The second, on files with a long tail
# -------------------------------------
# The images are written to disk, as they would be in practice; the classes follow a long tail. A
# small network without weights stands in for the ResNet-50; it starts from nothing and needs more
# noise, too. At prediction five crops of each image are combined by the marginals of top-k sets
# (Berrada et al., 2018, appendix C): a transform that returns several views is all it takes.
import tempfile
from pathlib import Path

from PIL import Image

folder = tempfile.TemporaryDirectory()
paths = np.array([str(Path(folder.name) / f"{i}.png") for i in range(len(images))])
for path, image in zip(paths, images, strict=True):
    Image.fromarray(image).save(path)

tail = train[long_tail_indices(y[train], imbalance=10, random_state=0)]
second = clone(plantnet).set_params(
    k=3,
    backbone="convnet",
    backbone_params={"widths": (16, 32, 64)},
    weights=None,
    epsilon=0.1,
    max_epochs=4,
    lr=1e-2,
    lr_schedule=(2, 3),
    transform={"train": v2.RandomCrop(32), "eval": v2.FiveCrop(32)},
)
second.fit(paths[tail], y[tail])
sets = second.predict_set(paths[test])
for average in ("micro", "macro"):
    coverage = set_coverage_score(y[test], sets, labels=second.classes_, average=average)
    print(f"{average} coverage of 3 classes: {coverage:.1%}")

# %%
# The monitored metric
# --------------------
# The network that is kept is that of the best epoch, by the metric that matches the estimator.
import matplotlib.pyplot as plt

monitors = {
    "first: valid_top_k_accuracy": first,
    "second: valid_macro_top_k_accuracy": second,
}
for label, model in monitors.items():
    accuracy = model.history_[:, label.split()[1]]
    plt.plot(model.history_[:, "epoch"], accuracy, marker="o", label=label)
plt.xticks(first.history_[:, "epoch"])
plt.xlabel("epoch")
plt.ylabel("on held-out images")
plt.legend()
plt.show()

folder.cleanup()

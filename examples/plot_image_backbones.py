"""
Images, and the backbone that looks at them
===========================================

X may be an array of images, a list of paths of image files, or a torch Dataset. What turns an
image into features is the *backbone*: a built-in one, any classification model of torchvision by
name, or your own module. The estimator puts the head on it that its loss needs.
"""

# %%
# Images in an array
# ------------------
# Digits in 8 x 8 pixels, one quarter of each covered. Bytes stay bytes until a batch is made.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from sksetvalued import AverageKClassifier
from sksetvalued.metrics import average_set_size, set_coverage_score

digits = load_digits()
images = (digits.images * 15.9).astype(np.uint8)
rng = np.random.default_rng(0)
quarter = rng.integers(0, 2, size=(len(images), 2))
for image, (row, column) in zip(images, quarter, strict=True):
    image[4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = 128
X_train, X_test, y_train, y_test = train_test_split(
    images, digits.target, train_size=600, test_size=500, stratify=digits.target, random_state=0
)
print(X_train.shape, X_train.dtype)

# %%
# Four backbones
# --------------
# None is a small convolutional network for images; a tuple gives the widths of a perceptron. A
# function gets the shape of an image, channels first, and returns a module, whose output is
# flattened where it needs to be. Names such as "resnet18" or "vit_b_16" are those of torchvision;
# with ``weights="DEFAULT"`` they come pretrained, here they start from scratch.


def small_network(shape):
    """Return two convolutions, from images of `shape` to 128 features."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=4),
        nn.ReLU(),
        nn.Flatten(),
    )


backbones = {
    "None (convolutional)": None,
    "(128,) (perceptron)": (128,),
    "a function": small_network,
    "'resnet18'": "resnet18",
}
fitted = {}
for name, backbone in backbones.items():
    clf = AverageKClassifier(
        k=1.5,
        backbone=backbone,
        max_epochs=6,
        random_state=0,
    )
    if backbone == "resnet18":
        clf.set_params(max_epochs=1, batch_size=64)
    fitted[name] = clf.fit(X_train, y_train)
    sets = clf.predict_set(X_test)
    coverage = set_coverage_score(y_test, sets, labels=clf.classes_)
    n_parameters = sum(p.numel() for p in clf.net_.module_.parameters())
    print(
        f"{name:22} {n_parameters:10,} parameters, top-1 {clf.score(X_test, y_test):.3f}, "
        f"coverage {coverage:.3f} with {average_set_size(sets):.2f} classes"
    )

# %%
# The largest sets
# ----------------
# What the convolutional network finds the most ambiguous, with the true label in brackets.
clf = fitted["None (convolutional)"]
largest = np.argsort(-clf.predict_set(X_test).sum(axis=1), kind="stable")[:10]
fig, axes = plt.subplots(2, 5, figsize=(10, 4.6), layout="constrained")
for ax, i, labels in zip(axes.flat, largest, clf.predict_labels(X_test[largest]), strict=True):
    ax.imshow(X_test[i], cmap="gray_r")
    ax.set_title(f"{' '.join(map(str, labels))}  ({y_test[i]})", fontsize=10)
    ax.axis("off")
plt.show()

# %%
# A folder of image files
# -----------------------
# Paths are read batch by batch, so that the images need not fit in memory, and cross-validation
# can slice them as it slices any array. `transform` is applied to each image; a dict tells
# training and prediction apart.
import tempfile
from pathlib import Path

from PIL import Image
from sklearn.model_selection import cross_val_score
from torchvision.transforms import v2

from sksetvalued.metrics import average_k_scorer

with tempfile.TemporaryDirectory() as folder:
    paths = np.array([str(Path(folder) / f"{i}.png") for i in range(200)])
    for path, image in zip(paths, X_train, strict=False):
        Image.fromarray(image).save(path)
    clf = AverageKClassifier(
        k=2,
        transform={"train": v2.RandomAffine(degrees=10, fill=0)},
        max_epochs=10,
        random_state=0,
    )
    scores = cross_val_score(clf, paths, y_train[:200], scoring=average_k_scorer(k=2), cv=2)
print("average-2 accuracy of two folds, 100 images each to learn from:", scores.round(3))

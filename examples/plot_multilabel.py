"""
Several labels at once, with sparse-top
=======================================

A photograph may show several things. :class:`~sksetvalued.SparseTopClassifier` predicts sets of
labels: it projects the scores of a sample on the vectors q of entries in [0, 1] that sum to K.
Many entries of the projection are exactly 0, and clear winners 1. How many labels there are is
predicted too, or given where it is known.
"""

# %%
# Between one and three digits in an image
# ----------------------------------------
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import f1_score

from sksetvalued import SparseTopClassifier

digits = load_digits()
rng = np.random.default_rng(0)


def collage(pool):
    """Put one to three different digits on a sheet of 12 x 12 pixels; return it and its labels."""
    sheet, labels = np.zeros((12, 12)), np.zeros(10, dtype=int)
    for i in rng.choice(pool, size=rng.integers(1, 4), replace=False):
        if not labels[digits.target[i]]:
            top, left = rng.integers(0, 5, size=2)
            window = sheet[top : top + 8, left : left + 8]
            np.maximum(window, digits.images[i], out=window)
            labels[digits.target[i]] = 1
    return sheet, labels


def collages(pool, n):
    """Return n sheets as bytes, and the indicator matrix of their labels."""
    sheets, labels = zip(*(collage(pool) for _ in range(n)), strict=True)
    return (np.stack(sheets) * 15.9).astype(np.uint8), np.stack(labels)


pool = rng.permutation(len(digits.target))
X_train, Y_train = collages(pool[:1300], 2000)
X_test, Y_test = collages(pool[1300:], 1000)

# %%
# Labels, and how many
# --------------------
# `size` says where the number of labels comes from: learnt for each sample, an integer for all, or
# an array given to `predict` where the number is known. Twelve epochs are enough here; without
# `max_epochs`, held-out images find their number, in two to three times the time.
clf = SparseTopClassifier(
    backbone="convnet", backbone_params={"widths": (24, 48)}, max_epochs=12, random_state=0
)
clf.fit(X_train, Y_train)
n_labels = Y_test.sum(axis=1)
predictions = {
    "predicted size": clf.predict(X_test),
    "known size": clf.predict(X_test, size=n_labels),
    "always two": clf.set_params(size=2).predict(X_test),
}
clf.set_params(size="predicted")
for name, Y_pred in predictions.items():
    f1 = f1_score(Y_test, Y_pred, average="micro")
    exact = (Y_pred == Y_test).all(axis=1).mean()
    print(f"{name:15} micro-F1 {f1:.3f}, all labels right {exact:.3f}")

# %%
# What the projection looks like
# ------------------------------
# The projections on the simplex of sum K, K being the true number of labels: many bars are 0,
# clear winners 1, and others in between where the network hesitates. Bars of labels that are
# right are blue, the others orange.
shown = [np.flatnonzero(n_labels == size)[5] for size in (1, 2, 3)]
q = clf.project(X_test[shown], size=n_labels[shown])
fig, axes = plt.subplots(2, 3, figsize=(9, 4.6), layout="constrained", height_ratios=[1.6, 1])
for (image, bars), i, row in zip(axes.T, shown, q, strict=True):
    image.imshow(X_test[i], cmap="gray_r")
    image.axis("off")
    image.set_title("labels " + ", ".join(map(str, np.flatnonzero(Y_test[i]))))
    bars.bar(range(10), row, color=np.where(Y_test[i], "#0072b2", "#e69f00"))
    bars.set(xticks=range(10), ylim=(0, 1.05))
axes[1, 0].set_ylabel("projection q")
plt.show()

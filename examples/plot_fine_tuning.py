"""
Fine-tuning a network that was trained before
=============================================

A backbone that has seen other images needs few of yours. What people do with it are parameters of
the estimator and callbacks of skorch: a frozen backbone in the first epochs, a smaller rate for it
than for the new head, a warm-up, clipped gradients, and the gradients of several batches in one
update.
"""

# %%
# Something to start from
# -----------------------
# A thousand digits teach a small network to see; the weights of its backbone go to a file. In
# practice the file, or a name such as ``backbone="resnet50", weights="IMAGENET1K_V2"``, or
# ``"timm/NAME"`` or ``"hf/NAME"`` with ``weights="pretrained"``, comes from elsewhere.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from skorch.callbacks import Freezer, GradientNormClipping, Unfreezer
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from sksetvalued import TopKClassifier
from sksetvalued.metrics import set_coverage_score

digits = load_digits()
images = (digits.images * 15.9).astype(np.uint8)
seen, new, y_seen, y_new = train_test_split(
    images, digits.target, train_size=1000, stratify=digits.target, random_state=0
)
architecture = {"backbone": "convnet", "backbone_params": {"widths": (16, 32)}}
known = TopKClassifier(k=2, max_epochs=3, random_state=0, **architecture).fit(seen, y_seen)
weights = Path(tempfile.mkdtemp()) / "seen_before.pt"
torch.save(known.net_.module_.backbone.state_dict(), weights)

# %%
# Other classes, and forty images
# -------------------------------
# The new question: is the digit odd, and is it below five?
parity, size = np.where(y_new % 2, "odd", "even"), np.where(y_new < 5, "small", "large")
y_new = np.char.add(np.char.add(parity, " "), size)
X_train, X_test, y_train, y_test = train_test_split(
    new, y_new, train_size=40, stratify=y_new, random_state=0
)
from_scratch = {"k": 2, "max_epochs": 15, "batch_size": 5, "lr": 3e-3, "random_state": 0}
from_scratch |= architecture

# %%
# All of it at once
# -----------------
# ``optimizer__param_groups`` is skorch's: patterns of the names of parameters, with arguments of
# the optimizer for them; the others have the rate `lr`. A schedule is a function of the optimizer;
# here it warms up over two epochs. `Freezer` and `Unfreezer` act when the epoch `at` begins.


def warm_up(optimizer):
    """Return a schedule by epochs: two that rise, then a cosine."""
    parts = [LinearLR(optimizer, 0.1, total_iters=2), CosineAnnealingLR(optimizer, 13)]
    return SequentialLR(optimizer, parts, milestones=[2])


fine_tuned = {
    **from_scratch,
    "weights": weights,
    "lr": 1e-2,  # of the head
    "lr_schedule": warm_up,
    "callbacks": [
        Freezer("backbone.*"),
        Unfreezer("backbone.*", at=5),
        GradientNormClipping(1.0),
    ],
    "net_params": {
        "optimizer__param_groups": [("backbone.*", {"lr": 3e-4})],
        "gradient_accumulation_steps": 2,
    },
}
fitted = {
    "from scratch": TopKClassifier(**from_scratch).fit(X_train, y_train),
    "fine-tuned": TopKClassifier(**fine_tuned).fit(X_train, y_train),
}
for name, clf in fitted.items():
    coverage = set_coverage_score(y_test, clf.predict_set(X_test), labels=clf.classes_)
    print(f"{name:12}  top-1 {clf.score(X_test, y_test):.3f}, coverage of pairs {coverage:.3f}")

# %%
# The losses of the epochs
# ------------------------
# `history_` is skorch's. Left of the dotted line, in epochs 1 to 4, the backbone is frozen.
fig, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
for name, clf in fitted.items():
    ax.plot(clf.history_[:, "epoch"], clf.history_[:, "train_loss"], label=name)
ax.axvline(4.5, color="0.7", linestyle=":")
ax.set(xlabel="epoch", ylabel="training loss", yscale="log")
ax.legend()
plt.show()

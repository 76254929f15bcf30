"""
Level sets of the losses
========================

With three classes, a vector of scores is a point of a triangle. The class in the upper corner is
the true one; dark is a small loss. The pictures are those of Garcin, Servajean, Joly and Salmon
(ICML 2022), Figures 1, 4, 5 and 6: scores in the simplex of sum 2, losses scaled to [0, 1].
"""

# %%
# The losses for sets of two classes
# ----------------------------------
# The top-2 loss itself is 1 where the true score is the smallest of the three, and flat
# elsewhere: nothing to descend. The hinges put slopes next to that line. Smoothing lets other
# coordinates of the scores take part, in two ways: the smoothed hinge everywhere, the noised hinge
# only near ties of the scores.
import matplotlib.pyplot as plt
import numpy as np
import torch

from sksetvalued.losses import (
    CalibratedTopKHingeLoss,
    ConvexTopKHingeLoss,
    CrossEntropyLoss,
    NoisedTopKHingeLoss,
    SmoothedTopKHingeLoss,
    TopKHingeLoss,
)

n = 50
steps = np.array([(i, j, n - i - j) for i in range(n + 1) for j in range(n + 1 - i)])
scores = torch.from_numpy(2 * steps / n).float()
right = scores[:, 0] + scores[:, 1] / 2
up = scores[:, 1] * np.sqrt(3) / 2
target = torch.ones(len(scores), dtype=torch.long)


def top_k_loss(k):
    """Return 1 where the true score is not among the k largest."""
    return (scores > scores[:, [1]]).sum(dim=1) >= k


def values(loss, n_repeats=1):
    """Return the loss of each point, averaged over repeated draws of noise."""
    loss.reduction = "none"
    return sum(loss(scores, target) for _ in range(n_repeats)) / n_repeats


def draw(ax, loss, title):
    """Draw a loss scaled to [0, 1] over the triangle."""
    loss = loss.double().numpy()
    loss = (loss - loss.min()) / max(np.ptp(loss), 1e-12)
    ax.tricontourf(right, up, loss, levels=np.linspace(-1e-6, 1 + 1e-6, 21))
    ax.plot([0, 2, 1, 0], [0, 0, np.sqrt(3), 0], color="#444444", lw=1)
    ax.plot(1, np.sqrt(3), "o", color="#c02020", clip_on=False)
    ax.set_title(title, fontsize=10)
    ax.set_aspect("equal")
    ax.axis("off")


def noised(k, epsilon, n_noise_samples, n_repeats=50):
    """Return the noised hinge, averaged as in the paper to see its expectation."""
    generator = torch.Generator().manual_seed(0)
    loss = NoisedTopKHingeLoss(k, epsilon, n_noise_samples, generator=generator)
    return values(loss, n_repeats)


def draw_losses(k):
    """Draw the losses of Table 1 of the paper."""
    losses = {
        f"top-{k} loss": top_k_loss(k),
        "cross-entropy": values(CrossEntropyLoss()),
        "hinge (Lapin et al.)": values(TopKHingeLoss(k)),
        "convex hinge": values(ConvexTopKHingeLoss(k)),
        "calibrated hinge": values(CalibratedTopKHingeLoss(k)),
        "smoothed, tau=0.1": values(SmoothedTopKHingeLoss(k, tau=0.1)),
        "smoothed, tau=1": values(SmoothedTopKHingeLoss(k, tau=1.0)),
        "noised, epsilon=0.3": noised(k, 0.3, 30),
        "noised, epsilon=1": noised(k, 1.0, 30),
    }
    fig, axes = plt.subplots(3, 3, figsize=(8, 7.2), layout="constrained")
    for ax, (title, loss) in zip(axes.flat, losses.items(), strict=True):
        draw(ax, loss, title)
    fig.suptitle(f"K = {k}")
    plt.show()


draw_losses(2)

# %%
# And for one class
# -----------------
# With K = 1 the hinge is the multi-class hinge.
draw_losses(1)

# %%
# The number of draws
# -------------------
# One evaluation of the noised hinge, epsilon = 1, with more and more draws of the noise. Training
# needs few of them: stochastic gradient descent averages over batches.
fig, axes = plt.subplots(2, 4, figsize=(10, 5), layout="constrained")
for row, k in zip(axes, (1, 2), strict=True):
    for ax, n_draws in zip(row, (1, 3, 10, 100), strict=True):
        draw(ax, noised(k, 1.0, n_draws, n_repeats=1), f"K={k}, n_noise_samples={n_draws}")
plt.show()

# %%
# The strength of the noise
# -------------------------
# A small epsilon is the calibrated hinge. A larger one is smoother, and also moves the margin, by
# epsilon times the mean of the (K+1)-th largest of as many normal variables as there are classes.
# Of three variables the second has mean zero and the third a negative one, so that for K = 2 the
# region without loss grows; with many classes and a small K the margin grows instead.
fig, axes = plt.subplots(2, 4, figsize=(10, 5), layout="constrained")
for row, k in zip(axes, (1, 2), strict=True):
    for ax, epsilon in zip(row, (0.01, 0.3, 1.0, 3.0), strict=True):
        draw(ax, noised(k, epsilon, 50), f"K={k}, epsilon={epsilon:g}")
plt.show()

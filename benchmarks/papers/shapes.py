"""What the losses show without tuning: sparse gradients, and level sets for three classes."""

import json

import numpy as np
import torch

from sksetvalued import TopKClassifier
from sksetvalued.losses import (
    CalibratedTopKHingeLoss,
    ConvexTopKHingeLoss,
    CrossEntropyLoss,
    NoisedTopKHingeLoss,
    SmoothedTopKHingeLoss,
    TopKHingeLoss,
)

from .data import load_split
from .store import write_packed

K, N_DRAWS, SEEDS = 5, (3, 30), (0, 1, 2, 3, 4)
EPSILONS = (0.0, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
SIDE = 30

#: Losses on the scores of three classes, for sets of two. That of Berrada et al. has margin and
#: scale in which it tends to the hinge with margin 1 and slope 1.
LEVEL_SETS = {
    "cross-entropy": CrossEntropyLoss(),
    "hinge": TopKHingeLoss(2),
    "convex hinge": ConvexTopKHingeLoss(2),
    "calibrated hinge": CalibratedTopKHingeLoss(2),
    "smoothed hinge, tau = 0.1": SmoothedTopKHingeLoss(2, tau=0.1, margin=0.5),
    "smoothed hinge, tau = 1": SmoothedTopKHingeLoss(2, tau=1.0, margin=0.5),
    "noised hinge, epsilon = 0.3": NoisedTopKHingeLoss(2, 0.3, 10_000, generator=0),
    "noised hinge, epsilon = 1": NoisedTopKHingeLoss(2, 1.0, 10_000, generator=0),
}


class _Counted(NoisedTopKHingeLoss):
    """The noised hinge, which counts the non-zero entries of its gradients."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.counts = []

    def forward(self, input, target, sample_weight=None):
        input.register_hook(lambda g: self.counts.extend((g != 0).sum(1).tolist()))
        return super().forward(input, target, sample_weight)


def measure(path, folder):
    """Write the number of non-zero entries of gradients, and values on a lattice of scores."""
    torch.set_num_threads(1)
    record = {"gradients": gradients(folder), "scores": lattice().round(6).tolist()}
    record["level_sets"] = {name: _level_set(loss) for name, loss in LEVEL_SETS.items()}
    write_packed(path, (json.dumps(record) + "\n").encode())


def gradients(folder):
    """Return mean numbers of non-zero entries over the samples of the first epoch."""
    data = {"name": "cifar100_pack", "n_val": 10, "per_class": 20}
    rows = []
    for seed in SEEDS:
        split = load_split(data, folder, seed)
        for n_draws in N_DRAWS:
            for epsilon in EPSILONS:
                loss = _Counted(K, epsilon, n_draws)
                clf = TopKClassifier(
                    K, loss=loss, backbone="convnet", backbone_params={"widths": [16, 32, 64]},
                    max_epochs=1, lr=3e-3, batch_size=64, weight_decay=0.01, random_state=seed,
                )  # fmt: skip
                counts = clf.fit(split.X_train, split.y_train).net_.criterion_.counts
                row = {"seed": seed, "n_draws": n_draws, "epsilon": epsilon}
                rows.append(row | {"n_nonzero": round(float(np.mean(counts)), 4)})
    return rows


def lattice():
    """Return scores of three classes that sum to 2, as in ICML, Figure 1."""
    i, j = np.meshgrid(np.arange(SIDE + 1), np.arange(SIDE + 1))
    kept = i + j <= SIDE
    return np.stack([i[kept], j[kept], SIDE - i[kept] - j[kept]], axis=1) * 2 / SIDE


def _level_set(loss):
    """Return the losses on the lattice for true class 1, rescaled to [0, 1]."""
    scores = torch.from_numpy(lattice())
    loss.reduction = "none"
    values = loss(scores, torch.ones(len(scores), dtype=torch.long))
    values = (values - values.min()) / (values.max() - values.min())
    return [round(value, 3) for value in values.tolist()]

"""
A species identifier
====================

In the manner of Pl@ntNet: for a photograph, the species worth considering, and for each of them
the training images that look most like it, so that a person can decide. Here the flowers are
drawn by a few lines of code: species of one genus share the form of the petals and differ a
little in colour, some flowers are closed or blurred, and some species are rare, in the training
images as in the test images.
"""

# %%
# A herbarium
# -----------
import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.model_selection import train_test_split

from sksetvalued import AverageKClassifier
from sksetvalued.metrics import average_set_size, set_coverage_score

GENERA = {"Bellis": 12, "Rosa": 5, "Papaver": 4, "Iris": 3, "Primula": 6}  # number of petals
EPITHETS = {
    "alba": 0.0,
    "rosea": 0.35,
    "rubra": 0.7,
    "purpurea": 1.0,
}  # place on a scale of colour
SIZE = 32
rng = np.random.default_rng(0)
rows, columns = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j]


def photograph(n_petals, tone):
    """Draw one flower, as bytes of shape (SIZE, SIZE, 3)."""
    x, y = columns + rng.normal(0, 0.08), rows + rng.normal(0, 0.08)
    radius, angle = np.hypot(x, y), np.arctan2(y, x) + rng.uniform(0, 2 * np.pi)
    opening = rng.uniform(0.15, 0.6)  # a closed flower shows little of its petals
    edge = rng.uniform(0.55, 0.8) * (1 - opening + opening * np.cos(n_petals * angle / 2) ** 2)
    petal = 1 / (1 + np.exp((radius - edge) / rng.uniform(0.02, 0.12)))
    tone = np.clip(tone + rng.normal(0, 0.1), 0, 1)
    colour = (1 - tone) * np.array([245, 240, 235]) + tone * np.array([150, 30, 140])
    meadow = np.array([70, 120, 60]) + rng.normal(0, 12, size=(SIZE, SIZE, 1))
    flower = np.where(radius[:, :, np.newaxis] < 0.12, [235, 190, 60], colour)
    image = petal[:, :, np.newaxis] * flower + (1 - petal[:, :, np.newaxis]) * meadow
    return (image + rng.normal(0, 10, size=image.shape)).clip(0, 255).astype(np.uint8)


species = [f"{genus} {epithet}" for genus in GENERA for epithet in EPITHETS]
y = np.repeat(rng.permutation(species), np.geomspace(36, 240, 20).astype(int))  # a long tail
X = np.stack([photograph(GENERA[g], EPITHETS[e]) for g, e in (name.split() for name in y)])
X_train, X_test, y_train, y_test = train_test_split(
    X, y, train_size=1 / 3, stratify=y, random_state=0
)

# %%
# Three species on average, never none
# ------------------------------------
# Every species matters as much as any other, so the sets are to maximise the coverage averaged
# over species (macro). The average size is that of images as they come, rare species rarely, so
# the threshold is calibrated on such images.
clf = AverageKClassifier(
    k=3,
    objective="macro",
    loss="cross_entropy",
    rule_params={"min_size": 1, "max_size": 5},
    backbone="convnet",
    backbone_params={"widths": (8, 16, 32, 64)},
    max_epochs=16,
    random_state=0,
)
clf.fit(X_train, y_train).calibrate(X_test)
sets = clf.predict_set(X_test)
for average in ("micro", "macro"):
    coverage = set_coverage_score(y_test, sets, labels=clf.classes_, average=average)
    print(
        f"{average} coverage {coverage:.3f} with {average_set_size(sets):.2f} species on average"
    )
print(f"top-1 accuracy {clf.score(X_test, y_test):.3f}")

# %%
# What looks most like it
# -----------------------
# The network is an ordinary torch module. Its features, before the head, say which training
# images it takes for similar. Each line shows an image, the species of its set, the likeliest
# first and the true one in green, and for each species the three most similar training images.
import torch


def features(images):
    """Return the features of images, of shape (n_images, n_features)."""
    network = clf.net_.module_.eval()
    batch = torch.from_numpy(images).permute(0, 3, 1, 2)
    with torch.no_grad():
        return network.backbone(network.normalize(batch)).numpy()


train_features = features(X_train)
sizes = sets.sum(axis=1)
by_size = np.argsort(sizes, kind="stable")
asked = by_size[[len(y_test) // 20, len(y_test) // 2, -len(y_test) // 20]]

fig, axes = plt.subplots(
    3, 16, figsize=(12, 3.6), layout="constrained", width_ratios=[1.4] + 15 * [1]
)
for ax in axes.flat:
    ax.axis("off")
for line, i, labels in zip(axes, asked, clf.predict_labels(X_test[asked]), strict=True):
    line[0].imshow(X_test[i])
    line[0].set_title(f"is {y_test[i]}", loc="left", fontsize=9, color="#2f6db3")
    similarity = cosine_similarity(features(X_test[[i]]), train_features)[0]
    for j, label in enumerate(labels):
        nearest = np.argsort(np.where(y_train == label, -similarity, np.inf))[:3]
        for n, image in enumerate(nearest):
            line[1 + 3 * j + n].imshow(X_train[image])
        colour = "#12813c" if label == y_test[i] else "#222222"
        line[2 + 3 * j].set_title(label, fontsize=9, color=colour, style="italic")
plt.show()

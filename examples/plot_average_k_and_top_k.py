"""
Average-k against top-k where the best sets are known
=====================================================

Nine classes in the plane, three groups of three. Between the classes of a group it is often
impossible to tell which one a point comes from. How well a set-valued classifier can do at best
is known exactly here, because the data are drawn from known densities.

Top-k returns k classes everywhere. Average-k returns fewer where a point is clear and more where
it is ambiguous, k on average, and so holds the true class more often with sets of the same
average size.
"""

# %%
# Points with known probabilities
# -------------------------------
# Every class is a normal density of equal weight: Bayes' rule gives p(y | x).
import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import softmax

from sksetvalued import AverageKClassifier
from sksetvalued.metrics import CoverageSizeDisplay, average_set_size, set_coverage_score
from sksetvalued.rules import AverageK, TopK

angle = 2 * np.pi * np.arange(3) / 3 + np.pi / 2
corners = np.column_stack([np.cos(angle), np.sin(angle)])
# The classes of the first group are far apart, those of the third lie nearly on each other.
centers = np.concatenate(
    [4 * corner + spread * corners for corner, spread in zip(corners, (2, 1, 0.4))]
)


def true_probabilities(points):
    """Return p(y | x) at each point."""
    return softmax(-cdist(points, centers, "sqeuclidean") / 2, axis=1)


rng = np.random.default_rng(0)
y = rng.integers(9, size=8000)
X = centers[y] + rng.standard_normal((8000, 2))
X_train, X_test, y_train, y_test = X[:4000], X[4000:], y[:4000], y[4000:]
p_test = true_probabilities(X_test)

# %%
# How many classes are worth considering?
# ---------------------------------------
# The rules of :mod:`sksetvalued.rules` turn the true probabilities into the Bayes-optimal sets;
# the network learns its own from one label for each point. The number of classes in the average-2
# sets follows the ambiguity: one where a class stands alone, three where three coincide.
k = 2
clf = AverageKClassifier(k, loss="cross_entropy", max_epochs=15, random_state=0)
clf.fit(X_train, y_train).calibrate(X_test)  # calibration needs no labels
bayes = AverageK(k).fit(p_test)

# Most of a grid lies where no sample does: other sizes than k are right there, and not warned of.
warnings.filterwarnings("ignore", "the sets of these 62500 samples")
axis = np.linspace(-9, 9, 250)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
sizes = {
    "best possible average-2 sets": bayes.predict_set(true_probabilities(grid)).sum(axis=1),
    "AverageKClassifier(k=2)": clf.predict_set(grid).sum(axis=1),
}
fig, axes = plt.subplots(1, 2, figsize=(10, 5), sharey=True, layout="constrained")
for ax, (title, size) in zip(axes, sizes.items(), strict=True):
    image = ax.pcolormesh(
        axis, axis, size.reshape(250, 250), cmap=plt.get_cmap("YlGnBu", 5), vmin=-0.5, vmax=4.5
    )
    ax.scatter(*X_test[:900].T, c=y_test[:900], cmap="tab10", s=10, edgecolors="k", lw=0.3)
    ax.set(title=title, xlabel="feature 1", aspect="equal")
axes[0].set_ylabel("feature 2")
fig.colorbar(image, ax=axes, ticks=range(5), label="classes in the set")
plt.show()

# %%
# Coverage at equal size
# ----------------------
# The same scores give both kinds of sets, so that only the rules differ.
labels = clf.classes_
scores = clf.predict_proba(X_test)
rows = {
    "top-2, network": TopK(k).fit(scores).predict_set(scores),
    "top-2, best possible": TopK(k).fit(p_test).predict_set(p_test),
    "average-2, network": clf.predict_set(X_test),
    "average-2, best possible": bayes.predict_set(p_test),
}
for name, sets in rows.items():
    coverage = set_coverage_score(y_test, sets, labels=labels)
    print(f"{name:25} coverage {coverage:.3f}  average size {average_set_size(sets):.3f}")

# %%
# For every size at once: average-k (lines) is nowhere below top-k (dashes), and above it where
# samples differ in ambiguity, for the network as for the true probabilities.
display = CoverageSizeDisplay.from_predictions(
    y_test, p_test, labels=labels, max_size=5, name="best possible"
)
CoverageSizeDisplay.from_estimator(clf, X_test, y_test, max_size=5, name="network", ax=display.ax_)
plt.show()

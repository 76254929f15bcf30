"""
Never empty, never more than a phone screen
===========================================

An app that suggests answers has room for some of them, and must suggest at least one. Sets of k
classes on average may hold very many for an ambiguous sample, and nothing forbids empty ones;
`min_size` and `max_size` bound them. The threshold is solved *with* the bounds, so that the
average is still k: what the cap takes from the large sets is given to all the others. It has a
price: the samples of large sets are those that need them, and coverage falls.
"""

# %%
# Sixty classes, from clear to hopeless
# -------------------------------------
# Six groups of ten classes; those of the first group are well apart, those of the last one are
# nearly the same.
import matplotlib.pyplot as plt
import numpy as np

from sksetvalued import AverageKClassifier
from sksetvalued.metrics import SetSizeDisplay, average_set_size, set_coverage_score

rng = np.random.default_rng(0)
spread = np.repeat([4, 2.5, 2, 1.5, 0.5, 0.1], 10)[:, np.newaxis]
centers = np.repeat(6 * np.eye(6, 10), 10, axis=0) + spread * rng.standard_normal((60, 10))
y = rng.integers(60, size=12000)
X = centers[y] + rng.standard_normal((12000, 10))
X_train, X_calibration, X_test = np.split(X, [6000, 9000])
y_train, y_test = y[:6000], y[9000:]

clf = AverageKClassifier(k=3, loss="cross_entropy", max_epochs=12, random_state=0)
clf.fit(X_train, y_train)

# %%
# Between one and five, three on average
# --------------------------------------
# `rule_params` are the other arguments of :class:`sksetvalued.rules.AverageK`. They take effect at
# the next calibration; the network stays as it is. Here no set is empty without bounds, but about
# a fifth hold more than five classes, and the cap costs six points of coverage.
fig, axes = plt.subplots(2, 1, figsize=(7.5, 6), sharex=True, sharey=True, layout="constrained")
for ax, bounds in zip(axes, ({}, {"min_size": 1, "max_size": 5}), strict=True):
    clf.set_params(rule_params=bounds).calibrate(X_calibration)
    sets = clf.predict_set(X_test)
    sizes = sets.sum(axis=1)
    coverage = set_coverage_score(y_test, sets, labels=clf.classes_)
    name = "1 to 5 classes" if bounds else "no bounds"
    print(
        f"{name:15} sizes {sizes.min()} to {sizes.max()}, {np.mean(sizes == 0):.1%} empty, "
        f"{np.mean(sizes > 5):.1%} above five, {average_set_size(sets):.2f} classes on average, "
        f"coverage {coverage:.3f}"
    )
    SetSizeDisplay.from_predictions(None, sets, ax=ax)
    ax.set_title(f"{name}: average {average_set_size(sets):.2f}, coverage {coverage:.1%}")
    ax.set_xticks(range(11), range(11))
    ax.label_outer()
plt.show()

# %%
# Cutting the sets afterwards is not the same
# -------------------------------------------
# Cut to five by hand, the sets are smaller than three on average and cover less.
clf.set_params(rule_params=None).calibrate(X_calibration)
labels = clf.predict_labels(X_test)
cut = [row[:5] for row in labels]
hit = [true in row for true, row in zip(y_test, cut, strict=True)]
size = np.mean([len(row) for row in cut])
print(f"cut by hand: {size:.2f} classes on average, coverage {np.mean(hit):.3f}")

# %%
# Any real k
# ----------
# `k` need not be an integer, and may change without a new fit: each size takes one calibration
# with unlabelled data. How large must the sets be for the coverage that is wanted?
for k in (1, 1.5, 2, 3, 4, 5):
    clf.set_params(k=k, rule_params={"min_size": 1, "max_size": 10}).calibrate(X_calibration)
    sets = clf.predict_set(X_test)
    coverage = set_coverage_score(y_test, sets, labels=clf.classes_)
    print(f"k={k:<4} average {average_set_size(sets):.2f}, coverage {coverage:.3f}")

"""
A long tail: the macro rule and shot groups
===========================================

In a long tail most classes are rare. Sets that maximise the coverage over *samples* (micro)
spend their classes where most samples are, and the rare classes are missed. Often every class
matters as much as any other, and what counts is the coverage averaged over *classes* (macro). The
best sets are then those of the largest p_y(x) / prior_y (:doc:`/guide/long_tails`), which is what
``objective="macro"`` does.
"""

# %%
# Forty classes, from seven hundred samples to a handful
# ------------------------------------------------------
import matplotlib.pyplot as plt
import numpy as np

from sksetvalued import AverageKClassifier, TopKClassifier
from sksetvalued.datasets import make_ambiguous_classification
from sksetvalued.metrics import (
    SetSizeDisplay,
    average_set_size,
    set_coverage_score,
    shot_coverage_score,
)
from sksetvalued.rules import AverageK, TopK

weights = np.random.default_rng(0).permutation(np.geomspace(1, 1 / 100, 40))
X, y, p, groups = make_ambiguous_classification(
    16000,
    n_features=30,
    n_classes=40,
    group_size=4,
    ambiguity=0.6,
    class_weights=weights,
    random_state=0,
)
X_train, X_test, y_train, y_test, p_test = X[:6000], X[6000:], y[:6000], y[6000:], p[6000:]
class_counts = np.bincount(y_train, minlength=40)
print("training samples:", np.sort(class_counts)[::-1])

# %%
# Three classes for each sample
# -----------------------------
# Cross-entropy is trained alike for the two objectives: here they only differ in the rule, and
# another one takes effect without a new fit. Two losses look after rare classes themselves: the
# logit-adjusted cross-entropy, and the default mixture of cross-entropy and noised hinge, with
# margins that grow for rare classes. With margins the scores are cosines, whose softmax is no
# probability, so that the macro rule does less for them. The last two lines are the best sets that
# exist, known because the data are drawn from known densities.
labels = np.arange(40)
results = {}


def report(name, sets):
    """Print one line of the table, and keep the coverage of the shot groups."""
    micro = set_coverage_score(y_test, sets, labels=labels)
    macro = set_coverage_score(y_test, sets, labels=labels, average="macro")
    results[name] = shot_coverage_score(y_test, sets, class_counts=class_counts, labels=labels)
    few, medium, many = results[name].values()
    print(
        f"{name:33} {micro:6.3f} {macro:6.3f} {few:7.3f} {medium:7.3f} {many:6.3f}"
        f" {average_set_size(sets):6.2f}"
    )


common = {"max_epochs": 8, "random_state": 0}
print(f"{'top-3':33} {'micro':>6} {'macro':>6} {'few':>7} {'medium':>7} {'many':>6} {'size':>6}")
clf = TopKClassifier(3, loss="cross_entropy", **common).fit(X_train, y_train)
for objective in ("micro", "macro"):
    clf.set_params(objective=objective)
    report(f"cross-entropy, {objective}", clf.predict_set(X_test))
macro = {
    "logit-adjusted, macro": TopKClassifier(3, loss="logit_adjusted", objective="macro", **common),
    "default mixture, margins, macro": TopKClassifier(
        3, max_margin=0.4, objective="macro", **common
    ),
}
for name, clf in macro.items():
    report(name, clf.fit(X_train, y_train).predict_set(X_test))
report("best for micro", TopK(3).fit(p_test).predict_set(p_test))
best = TopK(3, objective="macro", prior=weights / weights.sum())
report("best for macro", best.fit(p_test).predict_set(p_test))

# %%
# A class is *few-shot* with less than 20 training samples, *many-shot* with more than 100.
names = ["cross-entropy, micro", "cross-entropy, macro", "best for macro"]
fig, ax = plt.subplots(figsize=(9, 3.4), layout="constrained")
for i, name in enumerate(names):
    ax.bar(np.arange(3) + 0.27 * (i - 1), results[name].values(), width=0.25, label=name)
ax.set_xticks(range(3), ["few (< 20)", "medium (20 to 100)", "many (> 100 samples)"])
ax.set(ylim=(0, 1.02), ylabel="coverage, averaged over classes", title="top-3")
fig.legend(loc="outside right upper")
plt.show()

# %%
# Three classes on average
# ------------------------
# One threshold on p_y(x) / prior_y lets the rare classes in where they are plausible at all: the
# macro coverage of average-3 sets is above that of top-3 sets.
print(
    f"{'average-3':33} {'micro':>6} {'macro':>6} {'few':>7} {'medium':>7} {'many':>6} {'size':>6}"
)
average_3 = {}
clf = AverageKClassifier(3, loss="cross_entropy", **common).fit(X_train, y_train)
for objective in ("micro", "macro"):
    clf.set_params(objective=objective).calibrate(X_test)
    average_3[objective] = clf.predict_set(X_test)
    report(f"cross-entropy, {objective}", average_3[objective])
best = AverageK(3, objective="macro", prior=weights / weights.sum())
report("best for macro", best.fit(p_test).predict_set(p_test))

# %%
# The sizes of the sets, by the number of training samples of the true class:
fig, axes = plt.subplots(2, 1, figsize=(7.5, 6.4), sharex=True, sharey=True, layout="constrained")
for ax, (objective, sets) in zip(axes, average_3.items(), strict=True):
    SetSizeDisplay.from_predictions(y_test, sets, labels=labels, class_counts=class_counts, ax=ax)
    ax.set_title(f'average-3, objective="{objective}"')
    ax.label_outer()
plt.show()

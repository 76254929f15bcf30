"""
Sets from any scikit-learn classifier
=====================================

A rule turns the scores of a classifier into sets. :class:`~sksetvalued.PlugInClassifier` puts a
rule on any classifier or pipeline. By default the rule is calibrated on out-of-fold scores, and a
rule that promises something of new samples, such as `AverageError`, on a fifth that is held out.
"""

# %%
# Three classifiers, the same rule
# --------------------------------
# Handwritten digits, of which the lower half is hidden.
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sksetvalued import PlugInClassifier
from sksetvalued.metrics import (
    CoverageSizeDisplay,
    SetSizeDisplay,
    average_set_size,
    set_coverage_score,
)
from sksetvalued.rules import AverageError, AverageK, PointwiseError, TopK

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X[:, :32], y, test_size=0.4, stratify=y, random_state=0
)

models = {
    "random forest": RandomForestClassifier(50, random_state=0),
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
    "naive Bayes": GaussianNB(),
}
fitted = {
    name: PlugInClassifier(model, AverageK(1.5), cv=5).fit(X_train, y_train)
    for name, model in models.items()
}
for name, model in fitted.items():
    sets = model.predict_set(X_test)
    coverage = set_coverage_score(y_test, sets, labels=model.classes_)
    print(
        f"{name:20} accuracy {model.score(X_test, y_test):.3f}, "
        f"coverage {coverage:.3f} with {average_set_size(sets):.2f} classes on average"
    )

# %%
# Which classifier is the best at which size? The line of a model is its average-k coverage, the
# dashes are its top-k coverage.
fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
for name, model in fitted.items():
    CoverageSizeDisplay.from_estimator(model, X_test, y_test, max_size=4, name=name, ax=ax)
ax.set_ylim(60, 101)
plt.show()

# %%
# Four rules, the same classifier
# -------------------------------
# `TopK` fixes the size of each set, `AverageK` the average size, `AverageError` the share of sets
# that miss the true class, and `PointwiseError` the probability of a miss for each sample, which
# is as good as the probabilities are.
rules = {
    "TopK(2)": TopK(2),
    "AverageK(2)": AverageK(2, min_size=1),
    "AverageError(0.05)": AverageError(0.05),
    "PointwiseError(0.05)": PointwiseError(0.05),
}
fig, axes = plt.subplots(2, 2, figsize=(9, 6), sharex=True, sharey=True, layout="constrained")
for ax, (name, rule) in zip(axes.flat, rules.items(), strict=True):
    model = PlugInClassifier(models["logistic regression"], rule).fit(X_train, y_train)
    sets = model.predict_set(X_test)
    coverage = set_coverage_score(y_test, sets, labels=model.classes_)
    SetSizeDisplay.from_predictions(None, sets, ax=ax)
    ax.set_title(f"{name}: coverage {coverage:.1%}, size {average_set_size(sets):.2f}")
    ax.label_outer()
plt.show()

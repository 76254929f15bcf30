"""What sizes the sets of new data have after `fit` alone."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.naive_bayes import GaussianNB

from sksetvalued import AverageKClassifier, PlugInClassifier
from sksetvalued.datasets import make_ambiguous_classification
from sksetvalued.metrics import set_coverage_score
from sksetvalued.rules import AverageError, AverageK

pytestmark = pytest.mark.slow


def test_sets_hold_k_classes_after_fit_on_few_samples():
    """Where the last network trains for the epochs of those of the folds, 8 % are missing.

    Where what it differs by is not allowed for, sets are 4 to 5 % too large, and errors of 5 to
    6 %. They are 2.3 to 2.8 % in three groups of eight seeds: one in a hundred is above 4.2 %.
    """
    sizes = []
    for seed in range(8):
        X, y, _, _ = make_ambiguous_classification(
            2200, n_classes=10, n_features=20, random_state=seed
        )
        clf = AverageKClassifier(3, random_state=seed).fit(X[:200], y[:200])
        sizes.append(clf.predict_set(X[200:]).sum(1).mean())
    assert np.mean(sizes) == pytest.approx(3, rel=0.04)
    assert np.sqrt(np.mean((np.array(sizes) / 3 - 1) ** 2)) < 0.042


@pytest.mark.parametrize(
    "model",
    [GaussianNB(), LinearDiscriminantAnalysis(), LogisticRegression(max_iter=200)],
    ids=str,
)
def test_sets_of_a_refitted_classifier_hold_k_classes(model):
    """Where nothing is allowed for they are 3 to 5 % too large."""
    sizes, before = [], []
    for seed in range(100, 110):
        X, y, _, _ = make_ambiguous_classification(3000, random_state=seed)
        train, new = (X[:1000], y[:1000]), X[1000:]
        clf = PlugInClassifier(model, AverageK(3)).fit(*train)
        sizes.append(clf.predict_set(new).sum(1).mean())
        rule = AverageK(3).fit(cross_val_predict(model, *train, method="predict_proba"))
        before.append(rule.predict_set(clf.predict_proba(new)).sum(1).mean())
    assert np.mean(sizes) == pytest.approx(3, rel=0.02)
    assert np.mean(before) > 3 * 1.025


def test_a_promised_size_is_kept_where_classes_have_few_samples():
    """Held out class by class, sets of these draws hold 3.2 classes, the standard error is 0.03.

    The true mean is at most 3: one time in a thousand, the bound is passed by chance.
    """
    centres, sizes = 2 * np.random.default_rng(0).normal(size=(250, 10)), []
    params = {"finite_sample": True, "max_size": 8}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 250, 2500)
        X = centres[y] + rng.normal(size=(2500, 10))
        clf = AverageKClassifier(
            3, max_epochs=15, calibration_fraction=0.4, rule_params=params, random_state=seed
        )
        sizes.append(clf.fit(X[:500], y[:500]).predict_set(X[500:]).sum(1).mean())
    assert np.mean(sizes) < 3 + 3.1 * np.std(sizes, ddof=1) / np.sqrt(20)


def test_a_promised_error_is_kept_by_a_share_where_classes_have_few_samples():
    """Held out class by class, .893 are covered; the standard error is 0.0035."""
    shares = 1 / np.arange(1, 21)
    clf = PlugInClassifier(LogisticRegression(max_iter=200), AverageError(0.1))
    covered = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        centres = 1.5 * rng.normal(size=(20, 6))
        y = rng.choice(20, 2200, p=shares / shares.sum())
        X = centres[y] + rng.normal(size=(2200, 6))
        sets = clf.fit(X[:200], y[:200]).predict_set(X[200:])
        covered.append(set_coverage_score(y[200:], sets, labels=clf.classes_))
    assert np.mean(covered) > 0.9 - 0.001

"""Text intents of BANKING77: sets at least as good as those of logistic regression."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from sksetvalued import AverageKClassifier, PlugInClassifier, TopKClassifier, predict_set
from sksetvalued.metrics import average_set_size, set_coverage_score
from sksetvalued.rules import AverageK, TopK

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FEATURES = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)


@pytest.fixture(scope="module")
def intents(shared_data):
    table = pd.read_csv(shared_data / "banking77.csv.gz")
    train, test = (table[table.split == part] for part in ("train", "test"))
    return train.text, train.label.to_numpy(), test.text, test.label.to_numpy()


def coverage_and_size(model, texts, labels):
    sets = predict_set(model, texts)
    return set_coverage_score(labels, sets, labels=model.classes_), average_set_size(sets)


def test_top_3_is_not_below_logistic_regression(intents):
    X, y, X_test, y_test = intents
    ours = make_pipeline(clone(FEATURES), TopKClassifier(k=3, random_state=0)).fit(X, y)
    linear = make_pipeline(clone(FEATURES), LogisticRegression(max_iter=1000)).fit(X, y)
    peer = PlugInClassifier(linear, TopK(3), cv="prefit").fit(X, y)
    coverage, size = coverage_and_size(ours, X_test, y_test)
    assert size == 3
    assert coverage >= coverage_and_size(peer, X_test, y_test)[0]


def test_average_2_is_not_below_logistic_regression_and_has_the_size(intents):
    X, y, X_test, y_test = intents
    ours = make_pipeline(clone(FEATURES), AverageKClassifier(k=2, random_state=0)).fit(X, y)
    coverage, size = coverage_and_size(ours, X_test, y_test)
    kept, held_out = train_test_split(np.arange(len(y)), test_size=0.1, stratify=y, random_state=0)
    linear = make_pipeline(clone(FEATURES), LogisticRegression(max_iter=1000))
    linear.fit(X.iloc[kept], y[kept])
    peer = PlugInClassifier(linear, AverageK(2), cv="prefit").fit(X.iloc[held_out], y[held_out])
    assert coverage >= coverage_and_size(peer, X_test, y_test)[0]
    assert abs(size - 2) <= 0.2

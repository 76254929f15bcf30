"""scikit-learn's own checks, on every estimator in several configurations."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from sksetvalued import AverageKClassifier, TopKClassifier

SINGLE_PRECISION = (
    "training is in single precision and draws batches and noise at random: weights and "
    "repetitions agree to rounding or in law only (test_estimators.py checks the former)"
)
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": SINGLE_PRECISION,
    "check_sample_weight_equivalence_on_sparse_data": SINGLE_PRECISION,
}

ESTIMATORS = [
    TopKClassifier(),
    TopKClassifier(k=1, max_margin=0.5, max_epochs=30),
    TopKClassifier(k=1, loss="noised_hinge", lr_schedule="cosine", max_epochs=30),
    AverageKClassifier(),
    AverageKClassifier(k=1, loss="two_head", max_epochs=30),
    AverageKClassifier(k=1.5, loss="noised_hinge", calibration_fraction=None, max_epochs=30),
    AverageKClassifier(k=1.5, loss="cross_entropy", objective="macro", max_epochs=30),
]


@pytest.mark.filterwarnings("ignore:k=.* is not smaller than the number of classes")
@pytest.mark.filterwarnings("ignore:k=.*n_classes")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
def test_scikit_learn_checks(estimator, check):
    check(estimator)

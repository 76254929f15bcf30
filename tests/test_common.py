"""scikit-learn's own checks, on every estimator in several configurations."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from sksetvalued import AverageKClassifier, TopKClassifier

DRAWN_BY_ROWS = (
    "batches, dropout and noise are drawn for rows, and of repeated rows some are held out while "
    "their copies are trained on: another network, by up to 0.97 in a probability. Where none of "
    "these acts, weights and repetitions agree up to single precision (test_estimators.py)"
)
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": DRAWN_BY_ROWS,
    "check_sample_weight_equivalence_on_sparse_data": DRAWN_BY_ROWS,
}

DEFAULTS = [TopKClassifier(), AverageKClassifier()]
# The same but for the search of the length, which fits several times.
QUICK = [TopKClassifier(max_epochs=3), AverageKClassifier(max_epochs=3)]
LARGE_STEPS = {"max_epochs": 4, "batch_size": 150, "lr": 3e-2}
SHORT = [
    TopKClassifier(k=1, loss="noised_hinge", lr_schedule="cosine", **LARGE_STEPS),
    AverageKClassifier(1.5, loss="noised_hinge", calibration_fraction=None, **LARGE_STEPS),
]
OTHERS = [
    TopKClassifier(k=1, max_margin=0.5, max_epochs=30),
    AverageKClassifier(k=1, loss="two_head", max_epochs=30),
    AverageKClassifier(k=1.5, loss="cross_entropy", objective="macro", max_epochs=30),
]
# These fit until the model is accurate, or twice.
LONG = {
    "check_class_weight_classifiers",
    "check_classifier_data_not_an_array",
    "check_classifiers_classes",
    "check_classifiers_train",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_fit_idempotent",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
}

pytestmark = [
    pytest.mark.filterwarnings("ignore:k=.* is not smaller than the number of classes"),
    pytest.mark.filterwarnings("ignore:k=.*n_classes"),
]


def short_checks(estimators):
    """Return the checks of estimators that ask for no accuracy."""
    return [
        case
        for estimator in estimators
        for case in estimator_checks_generator(estimator)
        if case[1].func.__name__ not in LONG
    ]


def name(value):
    """Return what to call an estimator or a check."""
    return f"{value.func.__name__}{value.keywords or ''}" if hasattr(value, "func") else str(value)


@pytest.mark.parametrize(("estimator", "check"), short_checks(QUICK), ids=name)
def test_short_checks_of_the_defaults_with_few_epochs(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(DEFAULTS, expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
def test_checks_of_the_defaults(estimator, check):
    check(estimator)


@parametrize_with_checks(SHORT, expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(OTHERS, expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
def test_scikit_learn_checks_of_other_settings(estimator, check):
    check(estimator)

"""What the documentation of the rules promises on fresh data, and at scale.

Seeds are fixed. Had they been drawn anew, a correct package would fail one of the statistical
tests with the probability stated in each.
"""

import time
import tracemalloc

import numpy as np
import pytest
from scipy import stats

from sksetvalued.datasets import make_ambiguous_classification
from sksetvalued.rules import AverageError, AverageK, PointwiseError, TopK

pytestmark = pytest.mark.slow


def covered(sets, y):
    return sets[np.arange(len(y)), y]


def draw(rng, n, n_classes=20):
    """Return probabilities and labels drawn from them."""
    p = rng.dirichlet(np.full(n_classes, 0.2), size=n)
    return p, (p.cumsum(1) < rng.random((n, 1))).sum(1).clip(max=n_classes - 1)


def size_z_scores(rule, splits):
    """Return (size on fresh data - k) / its documented standard error, for pairs of scores."""
    z = []
    for calibration, fresh in splits:
        rule.fit(calibration)
        assert rule.predict_set(calibration).sum(1).mean() <= rule.k
        sizes = rule.predict_set(fresh).sum(1)
        error = sizes.std() * np.sqrt(1 / len(fresh) + 1 / len(calibration))
        z.append((sizes.mean() - rule.k) / error)
    return np.array(z)


def check_standard_normal(z, bias):
    """Check mean, variance and extremes of z; false-alarm rate below 1e-4 altogether."""
    assert abs(z.mean()) < 4.5 / np.sqrt(len(z)) + bias
    assert np.abs(z).max() < 5.5
    low, high = stats.chi2.ppf([1e-5, 1 - 1e-5], len(z) - 1) / (len(z) - 1)
    # The standard error is itself estimated, to about 5 %.
    assert 0.95 * low < z.var(ddof=1) < 1.05 * high


@pytest.mark.parametrize("k", [1, 2.5, 6])
@pytest.mark.parametrize("bounds", [{}, {"min_size": 1, "max_size": 8}])
def test_average_size_on_fresh_data_is_within_its_standard_error(k, bounds):
    if k == 1 and bounds:
        bounds = {"max_size": 2}
    rng = np.random.default_rng(0)
    splits = [(draw(rng, 600)[0], draw(rng, 400)[0]) for _ in range(400)]
    z = size_z_scores(AverageK(k, **bounds), splits)
    # The size falls short of k by less than 1/600, a twentieth of the error at most.
    check_standard_normal(z, bias=0.05)


@pytest.mark.parametrize("model", ["densenet_bc_100", "wideresnet_16_4", "lenet_5"])
@pytest.mark.parametrize("k", [1.5, 3])
def test_average_size_on_halves_of_the_scores_of_real_networks(shared_data, model, k):
    with np.load(shared_data / "cifar100_test_probs_3models.npz") as data:
        p = data[f"p_{model}"]
    rng = np.random.default_rng(0)
    halves = []
    for _ in range(100):
        rows = rng.permutation(len(p))
        halves.append((p[rows[:5000]], p[rows[5000:]]))
    check_standard_normal(size_z_scores(AverageK(k), halves), bias=0.05)


@pytest.mark.parametrize("n", [20, 200])
@pytest.mark.parametrize("max_size", [8, None])
def test_certified_size_on_fresh_data_is_at_most_k_in_expectation(n, max_size):
    rng = np.random.default_rng(0)
    fresh, _ = draw(rng, 20_000)
    mean = {}
    for finite_sample in (True, False):
        rule = AverageK(3, max_size=max_size, finite_sample=finite_sample)
        sizes = np.array(
            [rule.fit(draw(rng, n)[0]).predict_set(fresh).sum(1).mean() for _ in range(400)]
        )
        mean[finite_sample] = sizes.mean()
    # The error of the mean over calibration sets, and of that over the fresh samples, which all
    # share. False-alarm rate 1e-5.
    one = rule.predict_set(fresh).sum(1).std() / np.sqrt(len(fresh))
    error = 4.4 * np.hypot(sizes.std() / np.sqrt(400), one)
    assert mean[True] <= 3 + error
    # Without ties it is not far below: by 2 max_size / (n + 1) at most.
    assert mean[True] >= 3 - 2 * (max_size or 20) / (n + 1) - error
    assert mean[True] < mean[False]


@pytest.mark.parametrize("error", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("n", [19, 100, 400])
def test_average_error_reaches_its_coverage_over_many_splits(error, n):
    rng = np.random.default_rng(0)
    n_splits, n_fresh = 2000, 50
    hits = np.empty(n_splits)
    for i in range(n_splits):
        p, y = draw(rng, n + n_fresh)
        sets = AverageError(error).fit(p[:n], y[:n]).predict_set(p[n:])
        hits[i] = covered(sets, y[n:]).mean()
    # Beta-binomial hits: exact mean and variance without ties. False-alarm rate 1e-5 each.
    r = np.floor((n + 1) * error + 1e-9)
    law = stats.betabinom(n_fresh, n + 1 - r, r)
    standard_error = law.std() / n_fresh / np.sqrt(n_splits)
    assert law.mean() / n_fresh >= 1 - error
    assert abs(hits.mean() - law.mean() / n_fresh) < 4.4 * standard_error
    assert hits.mean() >= 1 - error - 4.4 * standard_error


def class_coverage(rule, n_splits=300):
    """Return the coverage of each class over a population, for many calibration sets of a tail.

    Also the calibration samples of each class, which are fixed.
    """
    rng = np.random.default_rng(0)
    weights = np.geomspace(1, 0.03, 12)
    p = rng.dirichlet(3 * weights, size=60_000)
    y = (p.cumsum(1) < rng.random((len(p), 1))).sum(1).clip(max=11)
    counts = np.maximum(9, 250 * weights).astype(int)
    members = [np.flatnonzero(y == c) for c in range(12)]
    rule.set_params(prior=counts / counts.sum(), objective="macro")
    coverage = np.empty((n_splits, 12))
    for i in range(n_splits):
        rows = np.concatenate([rng.choice(m, n) for m, n in zip(members, counts)])
        hits = covered(rule.fit(p[rows], y[rows]).predict_set(p), y)
        coverage[i] = [hits[m].mean() for m in members]
    return coverage, counts


@pytest.mark.parametrize("error", [0.1, 0.25])
def test_every_class_reaches_its_coverage_on_a_tail(error):
    coverage, counts = class_coverage(AverageError(error, coverage="class"))
    # The mean of the Beta law of each class, but for ties of samples drawn twice. False-alarm
    # rate 1e-5 for each of 12 classes.
    r = np.floor((counts + 1) * error + 1e-9)
    spread = coverage.std(0) / np.sqrt(len(coverage))
    assert (coverage.mean(0) > 1 - error - 4.4 * spread).all()
    assert (np.abs(coverage.mean(0) - (1 - r / (counts + 1))) < 4.4 * spread + 1e-3).all()


@pytest.mark.parametrize("error", [0.1, 0.25])
def test_the_mean_over_classes_reaches_its_coverage_on_a_tail(error):
    coverage, counts = class_coverage(AverageError(error, coverage="macro"))
    macro = coverage.mean(1)
    spread = macro.std() / np.sqrt(len(macro))
    # False-alarm rate 1e-5.
    assert macro.mean() > 1 - error - 4.4 * spread
    assert macro.mean() < 1 - error + np.mean(1 / (counts + 1)) + 4.4 * spread


@pytest.mark.parametrize("model", ["densenet_bc_100", "wideresnet_16_4", "lenet_5"])
def test_average_error_on_real_networks(shared_data, model):
    with np.load(shared_data / "cifar100_test_probs_3models.npz") as data:
        p, y = data[f"p_{model}"], data["y"].astype(int)
    rng = np.random.default_rng(0)
    coverage = []
    for _ in range(200):
        rows = rng.permutation(len(p))
        a, b = rows[:1000], rows[1000:]
        sets = AverageError(0.1).fit(p[a], y[a]).predict_set(p[b])
        coverage.append(covered(sets, y[b]).mean())
    # Each split has a binomial interval: Beta(901, 100) about, of standard deviation 0.0095.
    # Splits of one data set are not independent; their mean still has at most that of one.
    spread = stats.beta(901, 100).std()
    assert abs(np.mean(coverage) - 0.9) < 0.3 * spread + 1 / 1001
    assert np.abs(np.array(coverage) - 0.9).max() < 5 * spread


@pytest.mark.parametrize("k", [1, 2, 4])
def test_bayes_coverage_on_drawn_labels(k):
    weights = np.geomspace(1, 0.02, 20)
    _, y, p, _ = make_ambiguous_classification(
        100_000, n_classes=20, class_weights=weights, random_state=1
    )
    for rule, optimum in (
        (TopK(k), np.sort(p, axis=1)[:, -k:].sum(1)),
        (AverageK(k), np.where(p >= np.sort(p, axis=None)[-k * len(p)], p, 0).sum(1)),
    ):
        hits = covered(rule.fit(p).predict_set(p), y)
        # Labels are Bernoulli draws of known probability. False-alarm rate 1e-5 each.
        error = np.sqrt((optimum * (1 - optimum)).sum()) / len(p)
        assert abs(hits.mean() - optimum.mean()) < 4.4 * error


@pytest.mark.parametrize("error", [0.02, 0.1, 0.4])
def test_pointwise_error_holds_for_every_kind_of_sample(error):
    _, y, p, _ = make_ambiguous_classification(50_000, n_classes=20, random_state=2)
    sets = PointwiseError(error).fit(p).predict_set(p)
    probability = np.where(sets, p, 0).sum(1)
    assert probability.min() >= 1 - error - 1e-12
    hits = covered(sets, y)
    # By size of the set. False-alarm rate 1e-5 each.
    for size in np.unique(sets.sum(1)):
        at = sets.sum(1) == size
        spread = np.sqrt((probability[at] * (1 - probability[at])).sum()) / at.sum()
        assert abs(hits[at].mean() - probability[at].mean()) < 4.4 * spread + 3 / at.sum()


def test_a_million_samples_of_a_thousand_classes_in_500_mb_and_faster_than_a_sort():
    n, n_classes, chunk, k = 1_000_000, 1000, 4000, 5
    rng = np.random.default_rng(0)
    rule = AverageK(k, log_scores=True)
    spent = spent_by_sorting = 0.0
    tracemalloc.start()
    for i in range(n // chunk):
        scores = rng.standard_exponential((chunk, n_classes), dtype=np.float32)
        np.negative(scores, out=scores)
        start = time.perf_counter()
        rule.partial_fit(scores, n_samples=n)
        spent += time.perf_counter() - start
        if i % 50 == 0:
            start = time.perf_counter()
            np.sort(scores, axis=None)
            spent_by_sorting += 50 * (time.perf_counter() - start)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 500e6
    # Sorting the chunks one by one is less work than sorting them together.
    assert spent < spent_by_sorting
    # The k/n_classes quantile of the scores, within 5 standard errors.
    share = k / n_classes
    error = np.sqrt(share * (1 - share) / (n * n_classes)) / (1 - share)
    assert abs(rule.threshold_ - np.log1p(-share)) < 5 * error

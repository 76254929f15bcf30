"""What AverageError promises: exactly over bags, thresholds by brute force, and its peers."""

import warnings
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from sksetvalued.rules import AverageError, AverageK, PointwiseError, _conformal
from sksetvalued.rules._conformal import samples_missing

ALPHAS = (0.1, 0.2, 0.25, 0.3, 0.35, 0.5, 0.7)


def sets_of(rule, scores, y, new):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return rule.fit(scores, y).predict_set(new)


def bag(rng, n, n_classes):
    """Return a small bag of scores that tie, and labels."""
    scores = rng.integers(0, rng.integers(2, 7), size=(n, n_classes)).astype(float)
    return scores, rng.integers(0, n_classes, n)


# -- the bag law: hold out each sample in turn; the average obeys exactly ------------------


def miss_of_held_out(rule, scores, y, held):
    """Return whether each held-out sample is missed by the sets calibrated on the others."""
    kept = np.setdiff1d(np.arange(len(y)), held)
    if not len(kept):
        return np.zeros(len(held), bool)
    sets = sets_of(rule, scores[kept], y[kept], scores[held])
    return ~sets[np.arange(len(held)), y[held]]


@pytest.mark.parametrize(
    "params", [{}, {"objective": "macro"}, {"coverage": "class", "interpolation": 0.5}], ids=str
)
def test_samples_are_missed_at_most_as_promised_in_every_bag(params):
    """An interpolation promises half: some bags miss more than `error`, none twice that."""
    rng = np.random.default_rng(0)
    beyond = 0
    for _ in range(250 if "interpolation" in params else 120):
        n_classes = int(rng.integers(1, 4))
        scores, y = bag(rng, int(rng.integers(2, 16)), n_classes)
        error = float(rng.choice(ALPHAS))
        prior = 2.0 ** rng.integers(-3, 4, n_classes) if "objective" in params else None
        rule = AverageError(error, prior=prior, **params)
        missed = sum(miss_of_held_out(rule, scores, y, [i])[0] for i in range(len(y)))
        promise = Fraction(repr(error)) * (2 if "interpolation" in params else 1)
        assert Fraction(int(missed), len(y)) <= promise
        beyond += Fraction(int(missed), len(y)) > Fraction(repr(error))
    assert (beyond > 0) == ("interpolation" in params)


def test_every_class_is_missed_at_most_as_promised_in_every_bag():
    rng = np.random.default_rng(1)
    for _ in range(80):
        scores, y = bag(rng, int(rng.integers(2, 20)), 3)
        error = float(rng.choice(ALPHAS))
        rule = AverageError(error, coverage="class")
        missed = np.array([miss_of_held_out(rule, scores, y, [i])[0] for i in range(len(y))])
        for c in np.unique(y):
            hits = missed[y == c]
            assert Fraction(int(hits.sum()), len(hits)) <= Fraction(repr(error))


def test_the_mean_over_classes_is_missed_at_most_as_promised_in_every_bag():
    """One sample of each class is held out, in all ways."""
    rng = np.random.default_rng(2)
    tight = False
    for _ in range(60):
        n_classes = int(rng.integers(1, 4))
        sizes = rng.integers(1, (0, 25, 9, 5)[n_classes], n_classes)
        y = np.repeat(np.arange(n_classes), sizes)
        scores = rng.integers(0, 9, size=(len(y), n_classes)).astype(float)
        error = float(rng.choice(ALPHAS))
        prior = 2.0 ** rng.integers(-3, 4, n_classes)
        rule = AverageError(error, coverage="macro", objective="macro", prior=prior)
        ways = list(product(*(np.flatnonzero(y == c) for c in range(n_classes))))
        missed = sum(miss_of_held_out(rule, scores, y, list(held)).sum() for held in ways)
        share = Fraction(int(missed), n_classes * len(ways))
        assert share <= Fraction(repr(error))
        tight |= share > 0.8 * Fraction(repr(error))
    assert tight


# -- thresholds by brute force -----------------------------------------------------------


def best_threshold(true, strata, error):
    """Return the largest of scores and -inf whose mean miss, in fractions, is allowed."""
    groups = [[Fraction(s) for s in true[strata == c]] for c in np.unique(strata)]
    allowed = [-np.inf]
    for v in true:
        miss = [Fraction(sum(s < v for s in group) + 1, len(group) + 1) for group in groups]
        if sum(miss) / len(miss) <= Fraction(repr(error)):
            allowed.append(v)
    return max(allowed)


@pytest.mark.filterwarnings("ignore:.*(too few|every set)")
def test_thresholds_and_weights_by_brute_force():
    rng = np.random.default_rng(3)
    for _ in range(60):
        scores, y = bag(rng, 20, 3)
        y[:3] = range(3)
        weight = rng.integers(0, 4, 20)
        weight[:3] += 1
        true = np.repeat(scores[np.arange(20), y], weight)
        classes = np.repeat(y, weight)
        error = float(rng.choice(ALPHAS))
        fitted = {
            coverage: AverageError(error, coverage=coverage).fit(scores, y, weight)
            for coverage in ("micro", "macro", "class")
        }
        assert fitted["micro"].threshold_ == best_threshold(true, 0 * classes, error)
        assert fitted["macro"].threshold_ == best_threshold(true, classes, error)
        assert fitted["class"].thresholds_.tolist() == [
            best_threshold(true[classes == c], np.zeros((classes == c).sum()), error)
            for c in range(3)
        ]


@pytest.mark.filterwarnings("ignore:.*(too few|every set)")
def test_weights_that_are_no_whole_numbers_need_no_exact_sums(monkeypatch):
    """Fractions of many such weights have no common denominator to be added with."""
    rng = np.random.default_rng(0)
    scores, y = rng.random((400, 40)), np.arange(400) % 40
    weight, error = rng.uniform(0.5, 5.0, 400), 0.37
    true = scores[np.arange(400), y]
    counts = np.array([sum(map(Fraction, weight[y == c])) for c in range(40)])

    def mean(threshold):
        below = [sum(map(Fraction, weight[(y == c) & (true < threshold)])) for c in range(40)]
        return sum((b + 1) / (n + 1) for b, n in zip(below, counts, strict=True)) / 40

    expected = max(t for t in true if mean(t) <= Fraction(error))
    exact = []
    exactly = _conformal.exactly
    monkeypatch.setattr(_conformal, "exactly", lambda x: exact.append(x) or exactly(x))
    fitted = AverageError(error, coverage="macro").fit(scores, y, weight)
    assert fitted.threshold_ == expected
    assert len(exact) < 40  # a comparison of sums has two for each class


@pytest.mark.parametrize("n", [19, 99, 179])
@pytest.mark.parametrize("error", [0.05, 0.35, 0.7])
def test_counts_are_compared_without_slips_of_floating_point(n, error):
    """As floor((n + 1) * 0.35) does, which is one short at n = 179."""
    rank = int(Fraction(repr(error)) * (n + 1))
    scores, y = np.arange(2 * n, dtype=float).reshape(-1, 1), np.zeros(2 * n, int)
    scores = np.hstack([scores, scores])
    assert AverageError(error).fit(scores[:n], y[:n]).threshold_ == rank - 1
    # Two classes of n samples each, whose scores alternate.
    y[1::2] = 1
    macro = AverageError(error, coverage="macro").fit(scores, y)
    allowed = int(Fraction(repr(error)) * 2 * (n + 1))
    assert macro.threshold_ == allowed - 2


def test_missing_samples_are_the_fewest_that_help():
    rng = np.random.default_rng(4)
    for _ in range(40):
        error = float(rng.choice([0.2, 0.25, 0.3, 0.5]))
        counts = rng.integers(0, 6, 3)

        def feasible(extra, counts=counts, error=error):
            terms = [Fraction(1, int(n + m) + 1) for n, m in zip(counts, extra)]
            return sum(terms) <= 3 * Fraction(repr(error))

        fewest = min(sum(e) for e in product(range(7), repeat=3) if feasible(e))
        assert samples_missing(counts, error) == fewest


# -- what is ranked, and between the promises --------------------------------------------


def drawn(n=600, n_classes=5, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.geomspace(2, 0.2, n_classes), size=n)
    y = (p.cumsum(1) < rng.random((n, 1))).sum(1).clip(max=n_classes - 1)
    return p.astype(dtype), y


def test_macro_objective_ranks_the_ratio_to_the_prior():
    p, y = drawn()
    prior = np.bincount(y) / len(y)
    for coverage in ("micro", "macro"):
        rule = AverageError(0.2, objective="macro", prior=prior, coverage=coverage).fit(p, y)
        plain = AverageError(0.2, coverage=coverage).fit(p / prior, y)
        np.testing.assert_allclose(rule.threshold_, plain.threshold_, rtol=1e-14)
        np.testing.assert_array_equal(rule.predict_set(p), plain.predict_set(p / prior))
        uniform = AverageError(0.2, objective="macro", prior=np.ones(5), coverage=coverage)
        micro = AverageError(0.2, coverage=coverage).fit(p, y)
        np.testing.assert_array_equal(uniform.fit(p, y).predict_set(p), micro.predict_set(p))
        # At equal size, the sets are those of the size rule.
        sets = rule.predict_set(p)
        by_size = AverageK(sets.sum(1).mean(), objective="macro", prior=prior).fit(p)
        np.testing.assert_array_equal(by_size.predict_set(p), sets)


def test_one_class_for_all_makes_the_promises_one():
    p, _ = drawn()
    y = np.zeros(len(p), int)
    micro = AverageError(0.15).fit(p[:, :1], y)
    macro = AverageError(0.15, coverage="macro").fit(p[:, :1], y)
    each = AverageError(0.15, coverage="class").fit(p[:, :1], y)
    assert micro.threshold_ == macro.threshold_ == each.thresholds_[0]


def test_own_thresholds_do_not_see_the_scale_of_a_column():
    p, y = drawn()
    scale = 2.0 ** np.array([3, -2, 0, 5, -7])
    plain = AverageError(0.1, coverage="class").fit(p, y)
    scaled = AverageError(0.1, coverage="class").fit(p * scale, y)
    np.testing.assert_array_equal(plain.predict_set(p), scaled.predict_set(p * scale))
    ratio = AverageError(0.1, objective="macro", prior=scale, coverage="class").fit(p, y)
    np.testing.assert_array_equal(plain.predict_set(p), ratio.predict_set(p))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_interpolation_is_between_probabilities_on_either_scale(dtype):
    p, y = drawn(dtype=dtype)
    y[y == 4] = 3
    y[:3] = 4  # too few for a threshold of its own
    prior = [0.4, 0.3, 0.1, 0.1, 0.1]
    for objective in ("micro", "macro"):
        params = {"objective": objective, "prior": prior, "coverage": "class"}
        with pytest.warns(UserWarning, match="1 of 5 classes are in every set.*missing: 6,"):
            own = AverageError(0.1, **params).fit(p, y).thresholds_
        common = AverageError(0.1, objective=objective, prior=prior).fit(p, y).threshold_
        for tau in (0, 0.4, 0.9):
            rule = AverageError(0.1, interpolation=tau, **params).fit(p, y)
            expected = tau * np.r_[own[:4], 0] + (1 - tau) * common
            np.testing.assert_allclose(rule.thresholds_, expected, rtol=1e-14)
            logs = AverageError(0.1, interpolation=tau, log_scores=True, **params)
            logs.fit(np.log(p), y)
            np.testing.assert_allclose(np.exp(logs.thresholds_), expected, rtol=1e-5)
        with pytest.warns(UserWarning, match="in every set"):
            whole = AverageError(0.1, interpolation=1, **params).fit(p, y)
        np.testing.assert_array_equal(whole.thresholds_, np.r_[own[:4], 0])


def test_interpolation_of_equal_thresholds_is_that_threshold():
    for score in np.random.default_rng(0).random(200):
        p, y = np.full((30, 1), score), np.zeros(30, int)
        for log_scores in (False, True):
            scores = np.log(p) if log_scores else p
            params = {"coverage": "class", "interpolation": 0.3, "log_scores": log_scores}
            rule = AverageError(0.1, **params).fit(scores, y)
            np.testing.assert_allclose(rule.thresholds_, scores[0], rtol=1e-14, atol=1e-14)
            assert rule.predict_set(scores).all()


@pytest.mark.parametrize("log_scores", [False, True])
@pytest.mark.parametrize("interpolation", [None, 0.5])
def test_scores_that_are_equal_but_for_rounding_are_in_sets_together(interpolation, log_scores):
    """Shares of ten votes over tenths have equal ratios, which fractions tell exactly."""
    prior = [Fraction(n, 10) for n in (1, 2, 3, 4)]
    rng = np.random.default_rng(0)
    votes = rng.multinomial(10, rng.dirichlet(np.ones(4), 400))
    y = np.array([rng.choice(4, p=row / 10) for row in votes])
    p = votes / 10
    scores = np.log(p, out=np.full(p.shape, -np.inf), where=p > 0) if log_scores else p
    ratios = np.array([[Fraction(int(n), 10) / q for n, q in zip(row, prior)] for row in votes])
    params = {"objective": "macro", "prior": [float(q) for q in prior], "log_scores": log_scores}
    if interpolation is not None:
        params |= {"coverage": "class", "interpolation": interpolation}

    own = ratios[np.arange(len(y)), y]

    def quantile(ratios):
        return np.sort(ratios)[int(error * (len(ratios) + 1)) - 1]

    for error in np.linspace(0.05, 0.95, 19):
        thresholds = np.full(4, quantile(own))
        if interpolation is not None:
            thresholds = (thresholds + [quantile(own[y == label]) for label in range(4)]) / 2
        sets = AverageError(error, **params).fit(scores, y).predict_set(scores)
        np.testing.assert_array_equal(sets, ratios >= thresholds, repr(error))


@pytest.mark.filterwarnings("ignore:.*(too few|every set)")
def test_weights_of_tenths_are_added_as_if_exactly():
    rng = np.random.default_rng(4)
    for _ in range(200):
        true = rng.integers(1, 9, 12) / 16
        tenths = rng.integers(1, 9, 12)
        tenths[-1] += 90 - tenths.sum()  # so that weights and the new sample are 10
        scores, y, weight = np.c_[true, 1 - true], np.zeros(12, int), tenths / 10
        below = np.array([tenths[true < v].sum() for v in true])
        at = rng.integers(12)
        error = round((below[at] + 10) / 100, 2)
        if error < 0.5:
            for rows in (slice(None), rng.permutation(12)):
                args = scores[rows], y[rows], weight[rows]
                assert AverageError(error).fit(*args).threshold_ == true[at]
                rule = AverageError(error, coverage="class").fit(*args)
                assert rule.thresholds_.tolist() == [true[at], -np.inf]


@pytest.mark.parametrize("coverage", ["micro", "macro", "class"])
def test_weights_are_told_from_samples_where_they_are_too_few(coverage):
    scores, y = np.c_[np.arange(1, 91), np.zeros(90)] / 91, np.zeros(90, int)
    rule = AverageError(0.1, coverage=coverage)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nine copies of each are enough
        rule.fit(scores[:, :1], y, np.full(90, 0.1))
    with pytest.warns(UserWarning, match=r"issing: 9.* Weights .* are 0\.5 in all, of 90 samples"):
        rule.fit(scores[:, :1], y, np.full(90, 0.5 / 90))


# -- too few samples, streams, parameters ------------------------------------------------


@pytest.mark.parametrize("log_scores", [False, True])
def test_too_few_samples_return_every_class_and_say_how_many_are_missing(log_scores):
    p, y = drawn(n=20)
    y[:] = np.repeat(np.arange(4), 5)
    p[0] = [0, 1, 0, 0, 0]
    with np.errstate(divide="ignore"):
        scores = np.log(p) if log_scores else p
    cases = [
        (AverageError(0.04), "20 calibration samples are too few.*missing: 4 at least"),
        # Five classes of 5, 5, 5, 5, 0: four of the last make 4/6 + 1/5 <= 5 x .175.
        (AverageError(0.175, coverage="macro"), "missing: 4 at least of the rarest classes"),
        (AverageError(0.1, coverage="class"), "5 of 5 classes are in every set.*missing: 25,"),
        (AverageError(0.02, coverage="class", interpolation=0.5), "missing: 29 at least"),
    ]
    for rule, message in cases:
        rule.set_params(log_scores=log_scores)
        with pytest.warns(UserWarning, match=message):
            assert rule.fit(scores, y).predict_set(scores).all()


@pytest.mark.parametrize("coverage", ["micro", "macro", "class"])
def test_chunks_and_blocks_give_the_thresholds_of_the_whole(coverage):
    p, y = drawn()
    prior = np.bincount(y) / len(y)
    rule = AverageError(0.1, objective="macro", prior=prior, coverage=coverage)
    whole = AverageError(**rule.get_params()).fit(p, y)
    for rows in np.array_split(np.arange(600), 7):
        rule.partial_fit(p[rows], y[rows], n_samples=600)
    attribute = "thresholds_" if coverage == "class" else "threshold_"
    np.testing.assert_array_equal(getattr(rule, attribute), getattr(whole, attribute))
    other = "threshold_" if coverage == "class" else "thresholds_"
    assert not hasattr(rule, other)
    np.testing.assert_array_equal(rule.predict_set(p), whole.predict_set(p))


def test_a_prior_counted_in_the_calibration_labels_is_said():
    p, y = drawn()
    with pytest.warns(UserWarning, match="pass prior="):
        AverageError(0.1, objective="macro").fit(p, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AverageError(0.1, objective="macro", coverage="macro").fit(p, y)
        AverageError(0.1, objective="macro", prior=np.ones(5)).fit(p, y)


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"coverage": "all"}, ValueError, "coverage must be one of"),
        ({"objective": "all"}, ValueError, "objective must be one of"),
        ({"interpolation": 0.5}, ValueError, "needs coverage='class', got coverage='micro'"),
        ({"interpolation": 1.5, "coverage": "class"}, ValueError, r"lie in \[0, 1\], got 1.5"),
        ({"interpolation": "a", "coverage": "class"}, TypeError, "interpolation must be a number"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(params, error, match):
    with pytest.raises(error, match=match):
        AverageError(0.1, **params).fit(*drawn())


# -- peers -------------------------------------------------------------------------------


class Scores(ClassifierMixin, BaseEstimator):
    """A classifier whose probabilities are its inputs."""

    def fit(self, X, y):
        self.classes_, self.n_features_in_ = np.arange(X.shape[1]), X.shape[1]
        return self

    def predict_proba(self, X):
        return X

    def predict(self, X):
        return X.argmax(1)


@pytest.mark.parametrize("error", [0.05, 0.2, 0.35])
def test_mapie_gives_the_same_sets(error):
    mapie = pytest.importorskip("mapie.classification")
    p, y = drawn(n=379)
    new, _ = drawn(seed=1)
    peer = mapie.SplitConformalClassifier(
        Scores().fit(p, y), confidence_level=1 - error, conformity_score="lac", prefit=True
    )
    _, sets = peer.conformalize(p, y).predict_set(new)
    ours = AverageError(error).fit(p, y).predict_set(new)
    np.testing.assert_array_equal(ours, sets[:, :, 0])


# With error (n + 1) an integer, crepes keeps what has that p-value, one sample more than needed.
@pytest.mark.parametrize("error", [0.0537, 0.2113, 0.3571])
@pytest.mark.parametrize("coverage", ["micro", "class"])
def test_crepes_gives_the_same_sets(coverage, error):
    crepes = pytest.importorskip("crepes")
    p, y = drawn(n=379)
    new, _ = drawn(seed=1)
    peer = crepes.WrapClassifier(Scores().fit(p, y))
    peer.calibrate(p, y, class_cond=coverage == "class")
    sets = peer.predict_set(new, labels=False, confidence=1 - error, smoothing=False)
    ours = AverageError(error, coverage=coverage).fit(p, y).predict_set(new)
    np.testing.assert_array_equal(ours, sets.astype(bool))


@pytest.mark.parametrize("n", [2, 6])
@pytest.mark.parametrize("coverage", ["micro", "macro", "class"])
def test_shares_that_are_no_decimals_need_as_many_samples_as_they_say(coverage, n):
    y, scores = np.zeros(n, int), np.full((n, 1), 0.5)
    rule = AverageError(1 / (n + 1), coverage=coverage)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rule.fit(scores, y)
        threshold = rule.thresholds_[0] if coverage == "class" else rule.threshold_
    assert threshold == 0.5
    with pytest.warns(UserWarning, match="Samples missing: 1"):
        rule.fit(scores[1:], y[1:])


@pytest.mark.parametrize("rule", [AverageError(0.95), PointwiseError(0.9)])
def test_an_error_that_looks_like_a_coverage_is_warned_of(rule):
    p = np.random.default_rng(0).dirichlet(np.ones(3), 60)
    said = rf"error={rule.error} asks for a coverage of .* only: .* {rule.error:.0%}".replace(
        "%", " %"
    )
    with pytest.warns(UserWarning, match=said):
        rule.fit(p, p.argmax(1))


@pytest.mark.parametrize("log_scores", [False, True])
@pytest.mark.parametrize("objective", ["micro", "macro"])
@pytest.mark.parametrize("coverage", ["micro", "macro", "class"])
def test_classes_are_in_every_set_with_a_word_where_true_scores_are_the_lowest(
    coverage, objective, log_scores
):
    # Shares of few votes: one sample in five has none for its class.
    y, scores = np.arange(300) % 3, np.zeros((300, 3))
    scores[np.arange(300), np.where(np.arange(300) % 5, y, (y + 1) % 3)] = 1
    if log_scores:
        with np.errstate(divide="ignore"):
            scores = np.log(scores)
    params = {"objective": objective, "prior": [0.5, 0.3, 0.2]} if objective == "macro" else {}
    params |= {"coverage": coverage, "log_scores": log_scores}
    with pytest.warns(UserWarning, match="3 classes are in every set: so many samples"):
        rule = AverageError(0.1, **params).fit(scores, y)
    assert rule.predict_set(scores).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rule = AverageError(0.3, **params).fit(scores, y)
        parts = [clone(rule).partial_fit(scores[i::2], y[i::2]) for i in range(2)]
        parts[0].merge(parts[1])
        # Of few scores that do not tie the lowest is a threshold, which new ones fall short of.
        few = np.random.default_rng(0).dirichlet(np.ones(3), 30)
        few = np.log(few) if log_scores else few
        AverageError(0.1, **params).fit(few, few.argmin(1))
    assert not rule.predict_set(scores).all()
    np.testing.assert_array_equal(parts[0].predict_set(scores), rule.predict_set(scores))


def test_scores_of_weight_zero_are_not_the_lowest():
    p = np.vstack([np.full((30, 3), [0.3, 0.3, 0.4]), [[1.0, 0, 0]]])
    with pytest.warns(UserWarning, match="3 classes are in every set: so many samples"):
        AverageError(0.1).fit(p, np.zeros(31, int), np.append(np.ones(30), 0))


def test_a_mean_of_weights_written_as_decimals_is_not_above_its_error():
    # (1.5 / 3.5 + 3.4 / 3.5) / 2 is 0.7; floats of these weights add up to a little more.
    below, counts = np.array([0.5, 2.4]), np.array([2.5, 2.5])
    assert not _conformal.misses_more(below, counts, 0.7)

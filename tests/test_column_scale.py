"""Columns of tables are centred and scaled, in double precision, inside the network."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats
import torch
from skorch.callbacks import Callback

from sksetvalued import TopKClassifier, load, save
from sksetvalued.deploy import to_torch
from sksetvalued.inputs import arcsinh
from sksetvalued.inputs._tables import ArrayInputs
from sksetvalued.networks import ColumnStatistics, build_network

Z = np.random.default_rng(0).standard_normal((200, 6))
Y = (Z[:, :3].argmax(1) + 3 * (Z[:, 3] > 0)).astype(int)

#: Columns of which 80 % are zero, and the others about one.
ZERO_INFLATED = np.where(np.quantile(Z, 0.8, axis=0) < Z, np.exp(0.3 * Z[::-1]), 0)


def first_layer(X):
    """Return the layer that a perceptron of ours has for a table, without the cosines."""
    statistics = ArrayInputs(X).statistics()
    network = build_network(None, None, None, X.shape[1:], 2, normalization=statistics)
    *layers, cosines = network.normalize
    assert cosines(torch.ones(1, 1))[0].tolist() == pytest.approx([1, 0.3 * np.cos(1)])
    return torch.nn.Sequential(*layers)


def bent(X):
    """Return standardised columns, bent around the median beyond a few deviations of a normal."""
    low, centre, high = np.quantile(X, [0.25, 0.5, 0.75], axis=0, method="inverted_cdf")
    X = np.arcsinh((X - centre) * 1.349 / (3 * (high - low)))
    return (X - X.mean(0)) / X.std(0)


@pytest.mark.parametrize("m", [0.0, 1e4, -1e4])
@pytest.mark.parametrize("s", [1e-6, 1.0, 1e6])
def test_units_are_without_effect(s, m):
    X = Z * s + m
    np.testing.assert_allclose(first_layer(X)(torch.from_numpy(X)), bent(Z), atol=1e-4)


def test_single_precision_suffices_for_means_up_to_ten_thousand_deviations():
    shifted = torch.from_numpy((Z + 1e4).astype(np.float32))
    assert np.abs(first_layer(shifted)(shifted).numpy() - bent(Z)).max() < 2e-3


@pytest.mark.parametrize("n_columns", [12, 48, 60, 480, 600])
def test_rows_of_many_columns_are_as_long_as_those_of_fifty(n_columns):
    """By one factor for all columns, and for their cosines, where these are taken."""
    X = np.random.default_rng(1).standard_normal((200, n_columns))
    statistics = ArrayInputs(X).statistics()
    network = build_network(None, None, None, (n_columns,), 2, normalization=statistics)
    columns = bent(X)
    factor = min(1, 40 / np.abs(columns).sum(1).mean())
    assert (factor < 1) == (n_columns > 50)
    expected = [columns, 0.3 * np.cos(columns)] if n_columns <= 500 else [columns]
    given = network.normalize(torch.from_numpy(X))
    np.testing.assert_allclose(given, factor * np.hstack(expected), atol=1e-5)
    # Their length need not be said.
    without = ColumnStatistics(*statistics[:4])
    network = build_network(None, None, None, (n_columns,), 2, normalization=without)
    given = network.normalize(torch.from_numpy(X))
    np.testing.assert_allclose(given, np.hstack(expected), atol=1e-5)


@pytest.mark.parametrize("n_columns", [60, 300, 600])
def test_networks_of_many_columns_are_saved_whole(n_columns, tmp_path):
    X = np.random.default_rng(1).standard_normal((90, n_columns))
    clf = TopKClassifier(k=2, max_epochs=1, random_state=0).fit(X, np.arange(90) % 3)
    save(clf, tmp_path / "m")
    np.testing.assert_array_equal(
        load(tmp_path / "m").decision_function(X), clf.decision_function(X)
    )


@pytest.mark.parametrize("weight", [torch.arange(200) % 7 + 1, torch.arange(200) % 4])
def test_weights_of_samples_enter_the_statistics(weight):
    X = np.hstack([Z, np.exp(3 * Z), ZERO_INFLATED])
    repeated = ArrayInputs(np.repeat(X, weight.numpy(), axis=0)).statistics()
    for one, other in zip(ArrayInputs(X).statistics(weight), repeated, strict=True):
        torch.testing.assert_close(one, other)


def test_outliers_do_not_crush_the_rest_of_a_column():
    outliers = np.arange(200) % 20 == 0
    X = np.where(outliers[:, None], 1e4 * np.sign(Z), Z)
    assert (first_layer(X)(torch.from_numpy(X))[~outliers].std(0) > 0.1).all()
    assert (((X - X.mean(0)) / X.std(0))[~outliers].std(0) < 0.001).all()


@pytest.mark.parametrize("unit", [1e-5, 1.0, 1e7])
def test_amounts_are_taken_as_their_logarithms(unit):
    X = unit * np.exp(3 * Z)
    seen = first_layer(X)(torch.from_numpy(X)).numpy()
    ordinary = np.abs(Z) < 1
    for column, log, inside in zip(seen.T, Z.T, ordinary.T, strict=True):
        assert np.corrcoef(column[inside], log[inside])[0, 1] > 0.999


@pytest.mark.parametrize("floor", [1e-12, 1e-3])
def test_a_floor_under_ordinary_values_does_not_make_amounts_of_them(floor):
    X = np.where(np.quantile(Z, 0.3, axis=0) < Z, 5 + Z, floor)
    above = torch.from_numpy(X > 1)
    seen = first_layer(X)(torch.from_numpy(X))
    for column, chosen in zip(seen.T, above.T, strict=True):
        assert column[chosen].std() > 0.1


def test_columns_whose_lower_half_takes_most_orders_are_no_amounts():
    X = scipy.stats.gamma(0.3).ppf((Z.argsort(0).argsort(0) + 0.5) / len(Z))
    assert (np.quantile(X, 0.75, axis=0) > 8 * np.quantile(X, 0.25, axis=0)).all()
    np.testing.assert_allclose(first_layer(X)(torch.from_numpy(X)), bent(X), atol=1e-4)


@pytest.mark.parametrize("fill", [None, 1e20, 9.96921e36])
def test_amounts_of_sixty_orders_are_told_apart_in_forty_of_these(fill):
    X = np.exp(30 * Z - 40)
    if fill is not None:
        X[5] = fill
    seen = first_layer(X)(torch.from_numpy(X)).numpy()
    assert np.isfinite(seen).all()
    for column, amounts in zip(seen.T, X.T, strict=True):
        order = np.argsort(amounts)
        times = amounts[order] / np.quantile(amounts, 0.75)
        assert (np.diff(column[order[(times > 1e-14) & (times < 1e22)]]) > 0).all()


@pytest.mark.parametrize("outlier", [1e2, 1e4])
def test_outliers_do_not_hide_what_differs_from_the_value_of_most(outlier):
    X = ZERO_INFLATED.copy()
    X[np.abs(Z) > 2] = outlier
    seen = first_layer(X)(torch.from_numpy(X))
    usual = torch.from_numpy((X > 0) & (X < 5))
    for column, chosen, zero in zip(seen.T, usual.T, torch.from_numpy(X == 0).T, strict=True):
        assert column[chosen].median() - column[zero].mean() > 0.1


def test_a_network_of_dense_columns_sees_sparse_ones_alike():
    X = np.where(np.random.default_rng(0).uniform(size=Z.shape) < 0.04, 5 + Z, 0)
    clf = TopKClassifier(2, max_epochs=3, random_state=0).fit(X, Y)
    scores = clf.decision_function(X)
    np.testing.assert_allclose(clf.decision_function(sp.csr_matrix(X)), scores, atol=1e-5)


class KeepsBatches(Callback):
    def on_batch_begin(self, net, batch=None, training=None, **kwargs):
        self.first = batch[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_made_ready_once_are_those_of_each_batch(dtype):
    """Callbacks of the user see rows as they came, which each batch then makes ready."""
    X = (Z * np.logspace(-3, 3, 6) + 10).astype(dtype)
    params = {"max_epochs": 4, "random_state": 0, "validation_fraction": 0.2}
    ready = TopKClassifier(2, **params).fit(X, Y)
    watched = TopKClassifier(2, **params, callbacks=[KeepsBatches()]).fit(X, Y)
    (batch,) = (c.first for _, c in watched.net_.callbacks_ if isinstance(c, KeepsBatches))
    rows = {tuple(row) for row in X}
    assert all(tuple(row) in rows for row in batch.cpu().numpy())
    assert np.array_equal(ready.decision_function(X), watched.decision_function(X))


def test_tails_are_bent_by_arcsinh_however_far_out():
    x = torch.tensor([0.0, 1e-6, 0.3, 3.0, 1e4, 1e18, 1e37])
    x = torch.cat([-x, x])
    torch.testing.assert_close(arcsinh(x), x.asinh(), atol=2e-7, rtol=1e-6)
    assert torch.isfinite(arcsinh(torch.tensor([-3e38, 3e38]))).all()
    few = torch.tensor([0, 1e-2, -1, 300, 3e4], dtype=torch.float16)
    torch.testing.assert_close(arcsinh(few), few.float().asinh().half(), atol=1e-3, rtol=1e-3)
    assert torch.isfinite(arcsinh(torch.tensor(6e4, dtype=torch.float16)))


@pytest.mark.parametrize("n_ones", [100, 40, 3, 1])
@pytest.mark.parametrize(("zero", "one"), [(0.0, 1.0), (1e6, 1e6 - 1e-3)])
def test_the_two_values_of_an_indicator_are_two_apart_however_rare_one_is(n_ones, zero, one):
    X = np.where(Z.argsort(0).argsort(0) < n_ones, one, zero)
    seen = first_layer(X)(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(np.ptp(seen, axis=0), 2, rtol=1e-5)
    np.testing.assert_allclose(seen.mean(0), 0, atol=1e-5)


def test_values_beside_a_usual_one_are_two_away_from_it_in_the_mean_square():
    seen = first_layer(ZERO_INFLATED)(torch.from_numpy(ZERO_INFLATED)).numpy()
    for column, is_usual in zip(seen.T, (ZERO_INFLATED == 0).T, strict=True):
        away = column[~is_usual] - column[is_usual][0]
        assert np.mean(away**2) == pytest.approx(4, rel=1e-4)
        assert away.std() > 0.1


def test_a_constant_column_counts_for_nothing():
    X = np.column_stack([Z, np.full(200, 1980.0)])
    clf = TopKClassifier(2, max_epochs=3, random_state=0)
    normalize = clf.fit(X, Y).net_.module_.normalize.cpu()
    assert normalize(torch.tensor(X))[:, 6].abs().max() < 1e-9


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_estimator_learns_from_tiny_and_from_shifted_columns(dtype, tmp_path):
    X = (Z * [1e-3, 1e3, 1, 1, 1e-4, 1e4] + [0, 1e6, 1e3, 0, 0, 0]).astype(dtype)
    clf = TopKClassifier(2, loss="cross_entropy", max_epochs=30, random_state=0).fit(X, Y)
    assert clf.score(X, Y) > 0.9
    save(clf, tmp_path / "model")
    np.testing.assert_array_equal(
        load(tmp_path / "model").decision_function(X), clf.decision_function(X)
    )


# Fresh rows of a task that a network learns in part, so that an accuracy says something.
MANY = np.random.default_rng(1).standard_normal((2300, 6))
LABELS = (MANY[:, :3].argmax(1) + 3 * (MANY[:, 3] * MANY[:, 4] > 0)).astype(int)
# With some empty columns, as a matrix of more stored values is taken for a dense table.
POSITIVE = np.hstack([np.where(MANY > 0.3, MANY, 0), np.zeros((len(MANY), 4))])


def accuracy(X):
    """Return the mean over three fits, single ones differ by half a point from rounding alone."""
    params = {"max_epochs": 8, "batch_size": 60, "lr": 1e-2}
    fits = (TopKClassifier(2, random_state=seed, **params) for seed in range(3))
    return np.mean([clf.fit(X[:300], LABELS[:300]).score(X[300:], LABELS[300:]) for clf in fits])


@pytest.fixture(scope="module")
def accuracy_of_standardized_columns():
    dense = accuracy((MANY - MANY[:300].mean(0)) / MANY[:300].std(0))
    spread = np.where(POSITIVE.any(0), POSITIVE[:300].std(0), 1)
    sparse = accuracy(sp.csr_matrix(POSITIVE / spread))
    assert 0.6 < dense < 0.95
    assert 0.35 < sparse < 0.95
    return dense, sparse


@pytest.mark.parametrize(
    ("s", "m", "dtype"),
    [
        (1e-6, 1e4, np.float64),
        (1e-6, 0.0, np.float64),
        (1e6, -1e4, np.float64),
        (1e-6, -1e-2, np.float32),
        (1e6, 1e10, np.float32),
    ],
)
def test_accuracy_does_not_depend_on_units(s, m, dtype, accuracy_of_standardized_columns):
    moved = accuracy((MANY * s + m).astype(dtype))
    assert abs(moved - accuracy_of_standardized_columns[0]) < 0.01


@pytest.mark.parametrize("s", [1e-6, 1e6])
def test_accuracy_does_not_depend_on_the_scale_of_sparse_columns(
    s, accuracy_of_standardized_columns
):
    moved = accuracy(sp.csr_matrix(POSITIVE * s))
    assert abs(moved - accuracy_of_standardized_columns[1]) < 0.01


def test_a_spread_too_small_for_single_precision_makes_a_constant_column():
    X = MANY[:300].copy()
    X[:, 0] *= 1e-60
    clf = TopKClassifier(2, max_epochs=2, random_state=0).fit(X, LABELS[:300])
    scores = clf.decision_function(X)
    assert np.isfinite(scores).all()
    X[:, 0] = X[::-1, 0]
    np.testing.assert_allclose(clf.decision_function(X), scores)


@pytest.mark.parametrize("constant", [0.0, 20230101.0, 5e9])
def test_columns_that_do_not_vary_are_without_effect_whatever_they_hold_later(constant, tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    X = np.column_stack([rng.normal(size=(120, 3)) + y[:, None], np.full(120, constant)])
    later = X + np.array([0, 0, 0, 1e4])
    clf = TopKClassifier(1, max_epochs=3, random_state=0).fit(X, y)
    np.testing.assert_array_equal(clf.decision_function(later), clf.decision_function(X))
    save(clf, tmp_path / "clf")
    scores = load(tmp_path / "clf").decision_function(later)
    np.testing.assert_array_equal(scores, clf.decision_function(X))
    graph_scores = to_torch(clf)(torch.from_numpy(later))[1]
    np.testing.assert_allclose(graph_scores, clf._predict_log_proba(X), atol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(tmp_path / "clf").partial_fit(X.astype(np.float32), y)
    for piece in (later, sp.csr_matrix(later)):
        with pytest.warns(UserWarning, match=r"columns \[3\] had one value each.*no effect"):
            clf.partial_fit(piece, y)


def test_columns_that_may_vary_later_are_kept():
    y = np.arange(120) % 2
    first = np.column_stack([np.random.default_rng(0).normal(size=120), np.zeros(120)])
    X = np.column_stack([np.zeros(120), 2.0 * y - 1])
    pieces = TopKClassifier(1, random_state=0).partial_fit(first, y, classes=[0, 1])
    for _ in range(20):
        pieces.partial_fit(X, y)
    warm = TopKClassifier(1, warm_start=True, max_epochs=20, random_state=0).fit(first, y)
    assert pieces.score(X, y) == warm.fit(X, y).score(X, y) == 1

"""Sparse tables: batches that keep their zeros out of the computation."""

import copy
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from sksetvalued import (
    AverageKClassifier,
    SparseTopClassifier,
    TopKClassifier,
    load,
    save,
    to_torch,
)
from sksetvalued.inputs import MANY_COLUMNS, WIDE, SparseInputs, SparseRows, Stream
from sksetvalued.inputs._tables import MANY_SPARSE_COLUMNS
from sksetvalued.networks import HEADS, MLP, LinearHead, Network, TwoHead

N_COLUMNS, N_CLASSES = 400, 5


def table(n_samples=120, seed=0):
    """Return rows with 2 % of values, the columns of a class more often, and labels."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_samples) % N_CLASSES
    own = rng.integers(0, N_COLUMNS // N_CLASSES, (n_samples, 5)) + y[:, None] * 80
    columns = np.concatenate([own, rng.integers(0, N_COLUMNS, (n_samples, 3))], axis=1)
    rows = np.repeat(np.arange(n_samples), 8)
    values = rng.uniform(0.5, 1.5, rows.size)
    X = sp.csr_matrix((values, (rows, columns.ravel())), (n_samples, N_COLUMNS))
    X = sp.csr_matrix(sp.diags((np.arange(n_samples) % 40 != 0).astype(float)) @ X)
    X.eliminate_zeros()
    return X, y


def rows_of(matrix, dtype=torch.float64):
    inputs = SparseInputs(matrix, dtype, keep_sparse=True)
    batch = inputs.take(torch.arange(len(inputs)))
    assert isinstance(batch, SparseRows)
    return batch


@pytest.mark.parametrize("rows", [slice(0, 50), slice(0, 1), slice(1, 2)])
def test_sparse_rows_are_the_rows(rows):
    """Among them is the row without any value, also alone."""
    X = table()[0][rows]
    assert torch.equal(rows_of(X).to_dense(), torch.from_numpy(X.toarray()))
    assert len(rows_of(X)) == X.shape[0]


def test_a_sparse_frame_of_booleans_is_its_numbers():
    y = np.arange(120) % 3
    codes = pd.DataFrame({"a": y, "b": np.arange(120) // 40, "c": np.arange(120) % 2}).astype(str)
    X = pd.get_dummies(codes, sparse=True)
    found, expected = (
        TopKClassifier(2, max_epochs=2, random_state=0).fit(table, y).predict_proba(table)
        for table in (X, X.sparse.to_dense())
    )
    np.testing.assert_array_equal(found, expected)


def test_values_stored_twice_are_added():
    X = sp.csr_matrix((np.ones(3), np.array([7, 7, 2]), np.array([0, 2, 3])), (2, N_COLUMNS))
    dense = torch.from_numpy(X.toarray())
    assert dense[0, 7] == 2
    batch = rows_of(X)
    assert torch.equal(batch.to_dense(), dense)
    layer = MLP((N_COLUMNS,), hidden=(3,)).double()
    torch.testing.assert_close(layer(batch), layer(dense))


@pytest.mark.parametrize("cls", [TopKClassifier, SparseTopClassifier])
def test_a_fit_does_not_depend_on_how_values_are_stored(cls):
    """Halves in two places, in any order, and zeros that are stored, are values like others."""
    X, y = table()
    odd = X.tocoo()
    rows, columns = np.meshgrid(np.arange(0, X.shape[0], 3), [1, 200], indexing="ij")
    parts = [(odd.data / 2, odd.row, odd.col)] * 2 + [(0.0 * rows, rows, columns)]
    values, row, column = (np.concatenate([np.ravel(p) for p in part]) for part in zip(*parts))
    order = np.random.default_rng(0).permutation(len(row))
    order = order[np.argsort(row[order], kind="stable")]
    starts = np.searchsorted(row[order], np.arange(X.shape[0] + 1))
    odd = sp.csr_matrix((values[order], column[order], starts), X.shape)
    assert odd.nnz > 2 * X.nnz
    assert (odd != X).nnz == 0
    clf, other = (cls(max_epochs=2, random_state=0).fit(x, y) for x in (X, odd))
    np.testing.assert_array_equal(clf.decision_function(X), other.decision_function(X))
    np.testing.assert_array_equal(clf.decision_function(X), clf.decision_function(odd))


@pytest.mark.parametrize("by_columns", [True, False])
@pytest.mark.parametrize("rows", [slice(0, 50), slice(0, 1)])
def test_a_perceptron_maps_sparse_rows_as_it_maps_dense_ones(rows, by_columns):
    X = table()[0][rows]
    network = Network(nn.Identity(), MLP((N_COLUMNS,), (7, 4)), LinearHead(4, 3)).double()
    if by_columns:
        network.expect_sparse_rows()
    assert network.backbone[0].weight.t().is_contiguous() == by_columns
    results = []
    for batch in (rows_of(X), torch.from_numpy(X.toarray())):
        network.zero_grad()
        scores = network(batch)
        scores.square().sum().backward()
        results.append([scores.detach(), *(p.grad for p in network.parameters())])
    for sparse, dense in zip(*results, strict=True):
        torch.testing.assert_close(sparse, dense)


@pytest.mark.parametrize("head", HEADS.values())
@pytest.mark.parametrize("rows", [slice(0, 50), slice(0, 1)])
def test_sparse_rows_stand_beside_the_last_layer_as_dense_ones_do(rows, head):
    X = table()[0][rows]
    backbone = MLP((N_COLUMNS,), (7, 4), skip=True)
    network = Network(nn.Identity(), backbone, head(backbone.n_features, 3)).double()
    network.expect_sparse_rows()
    results = []
    for batch in (rows_of(X), torch.from_numpy(X.toarray())):
        network.zero_grad()
        scores = network(batch)
        scores = torch.stack(scores) if head is TwoHead else scores
        (scores**3).sum().backward()
        results.append([scores.detach(), *(p.grad for p in network.parameters())])
    for sparse, dense in zip(*results, strict=True):
        torch.testing.assert_close(sparse, dense)


def test_other_networks_are_given_dense_rows():
    X = table()[0]
    seen = []

    class Spy(nn.Linear):
        def forward(self, x):
            seen.append(x)
            return super().forward(x)

    for backbone in (MLP((N_COLUMNS,), hidden=()), Spy(N_COLUMNS, 4)):
        network = Network(nn.Identity(), backbone, nn.Identity()).double()
        network.expect_sparse_rows()
        dense = torch.from_numpy(X.toarray())
        assert torch.equal(network(rows_of(X)), network(dense))
    assert all(torch.is_tensor(x) for x in seen)
    assert len(seen) == 2


@pytest.mark.parametrize(("density", "n_zeros"), [(0.2, 0), (0.4, 0), (0.4, 450)])
def test_a_matrix_that_is_hardly_sparse_is_a_dense_table(density, n_zeros):
    """Its columns are centred; zeros that are stored count for nothing."""
    X = sp.random(300, 10, density=density, format="csr", random_state=0)
    X.data -= 7
    X.data[:n_zeros] = 0
    y = np.arange(300) % N_CLASSES
    clf = TopKClassifier(k=2, max_epochs=2, lr=0.01, random_state=0)
    dense = clf.fit(X.toarray(), y).decision_function(X)
    sparse = clf.fit(X, y).decision_function(X)
    assert np.array_equal(sparse, dense) == (X.count_nonzero() >= 900)
    np.testing.assert_array_equal(clf.decision_function(X.toarray()), sparse)


@pytest.mark.parametrize("writeable", [True, False])
def test_what_is_given_stays_as_it_is_though_out_of_order(writeable):
    # In another precision it would be copied before.
    X = sp.random(60, 400, density=0.03, format="csr", random_state=0, dtype=np.float32)
    twice = (np.repeat(part[::-1], 2) for part in (X.data, X.indices))
    X = sp.csr_array((*twice, 2 * X.indptr), shape=X.shape)
    right = X.copy()
    right.sum_duplicates()
    assert X.nnz > right.nnz
    parts = (X.data, X.indices, X.indptr)
    before = [part.copy() for part in parts]
    for part in parts:
        part.setflags(write=writeable)
    y = np.arange(60) % N_CLASSES
    clf = TopKClassifier(k=2, max_epochs=1, random_state=0)
    scores = clf.fit(X, y).decision_function(X)
    np.testing.assert_array_equal(scores, clf.fit(right, y).decision_function(right))
    for part, old in zip((X.data, X.indices, X.indptr), before, strict=True):
        np.testing.assert_array_equal(part, old)


def test_what_cannot_be_written_to_is_not_warned_of():
    # In another precision, or out of order, it would be copied before.
    X = sp.random(60, 400, density=0.03, format="csr", random_state=0, dtype=np.float32)
    X.data.setflags(write=False)
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", ".*not writable")
            TopKClassifier(k=2, max_epochs=1).fit(X, np.arange(60) % N_CLASSES)
    finally:
        torch.set_warn_always(False)


N_USED = 165


def few_of_many_columns():
    """Return rows of which few columns hold values, these columns alone, and labels.

    Each is in rows of all folds. Of both tables few enough values are stored to be kept sparse.
    """
    columns = np.arange(120 * 8) % N_USED
    values = np.random.default_rng(0).uniform(0.5, 1.5, columns.size)
    starts = np.arange(121) * 8
    used = sp.csr_matrix((values, columns, starts), (120, N_USED))
    X = sp.csr_matrix((values, columns * 20 + 3, starts), (120, MANY_SPARSE_COLUMNS))
    return X, used, np.arange(120) % N_CLASSES


def first_layer(clf):
    return clf.net_.module_.backbone[0]


@pytest.mark.parametrize(
    "clf",
    [
        TopKClassifier(k=2, max_epochs=3),
        AverageKClassifier(k=2, max_epochs=3),
        SparseTopClassifier(max_epochs=3, size="threshold"),
    ],
)
def test_a_fit_is_that_of_the_columns_that_hold_values(clf):
    X, used, y = few_of_many_columns()
    y = np.eye(N_CLASSES, dtype=int)[y] if isinstance(clf, SparseTopClassifier) else y
    clf.set_params(random_state=0)
    few = clone(clf).fit(used, y)
    many = clone(clf).fit(X, y)
    scores = few.decision_function(used)
    assert first_layer(many).in_features == N_USED
    np.testing.assert_array_equal(many.decision_function(X), scores)
    np.testing.assert_array_equal(many.predict_set(X), few.predict_set(used))
    np.testing.assert_allclose(many.decision_function(X.toarray()), scores, atol=1e-6)
    # Words that no sample of the training holds say nothing, and stand beside any others.
    X = X.tolil()
    X[::2, [0, 1, -1]] = 7
    np.testing.assert_array_equal(many.decision_function(X.tocsr()), scores)


def test_columns_are_left_out_of_large_tables_that_are_mostly_empty():
    X, _, y = few_of_many_columns()
    clf = TopKClassifier(k=2, max_epochs=1)
    for n_columns, left_out in [(X.shape[1], True), (X.shape[1] - 1, False)]:
        assert (first_layer(clf.fit(X[:, :n_columns], y)).in_features == N_USED) == left_out
    half = X.shape[1] // 2
    for n_used, left_out in [(half, True), (half + 1, False)]:
        rows = sp.csr_matrix((np.ones(n_used), np.arange(n_used), [0, n_used]), (1, X.shape[1]))
        table = sp.vstack([rows, sp.csr_matrix((119, X.shape[1]))], format="csr")
        clf.fit(table, y)
        assert first_layer(clf).in_features == (n_used if left_out else X.shape[1])
    with pytest.warns(ConvergenceWarning):
        clf.fit(0 * X, y)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_what_further_samples_hold_in_columns_left_out_is_warned_of(kind):
    X, _, y = few_of_many_columns()
    Z = X.tolil()
    Z[0, [0, 1]] = 1
    Z = kind(Z.toarray())
    clf = TopKClassifier(k=2, max_epochs=1).fit(X, y)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "The network reads")
        clf.partial_fit(kind(X.toarray()), y)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        clf.partial_fit(Z, y)
        clf.partial_fit(Z[:1], y[:1])
        clf.set_params(warm_start=True).fit(Z, y)
        rows = [*zip(X.toarray(), y)]
        counts = np.bincount(y)
        clf.fit(Stream(rows, classes=np.arange(N_CLASSES), class_counts=counts))  # seen in part
    texts = [str(one.message) for one in seen if "The network reads" in str(one.message)]
    said = f"reads {N_USED} of the {X.shape[1]:,} columns.* what X holds in these has no effect"
    assert re.search(said, texts[0])
    # Python shows the same words once.
    assert texts == [texts[0]] * 4


def test_those_who_say_that_more_comes_keep_all_columns():
    X, _, y = few_of_many_columns()
    with pytest.warns(UserWarning, match="hold values: with warm_start=True") as said:
        warm = TopKClassifier(k=2, max_epochs=1, warm_start=True).fit(X, y)
    assert len([one for one in said if f"of which {N_USED} hold" in str(one.message)]) == 1
    for clf in (warm, TopKClassifier(k=2).partial_fit(X, y, classes=np.arange(N_CLASSES))):
        assert first_layer(clf).in_features == X.shape[1]
        Z = X.tolil()
        Z[0, 0] = 1
        before = first_layer(clf).weight[:, 0].clone()
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "The network reads")
            clf.partial_fit(Z.tocsr(), y)
        assert not torch.equal(first_layer(clf).weight[:, 0], before)


def test_columns_left_out_are_saved(tmp_path):
    X, _, y = few_of_many_columns()
    clf = TopKClassifier(k=2, max_epochs=3, random_state=0).fit(X, y)
    save(clf, tmp_path / "clf")
    np.testing.assert_array_equal(
        load(tmp_path / "clf").decision_function(X), clf.decision_function(X)
    )
    sets, _ = to_torch(clf)(torch.from_numpy(X.toarray()))
    np.testing.assert_array_equal(sets, clf.predict_set(X))


@pytest.mark.parametrize("density", [0.04, 0.06])
def test_only_few_values_are_worth_it(density):
    X = sp.random(50, 200, density=density, format="csr", random_state=0)
    batch = SparseInputs(X, keep_sparse=True).take(torch.arange(5))
    assert isinstance(batch, SparseRows) == (density < 0.05)


def scores_by_dense_batches(clf, X, y, monkeypatch):
    """Return the scores of X by a classifier trained without SparseRows."""
    with monkeypatch.context() as patch:
        patch.setattr(SparseInputs, "largest_density", -1)
        return clf.fit(X, y).decision_function(X)


@pytest.mark.parametrize("s", [1e-6, 1e6])
def test_the_scale_of_sparse_columns_is_without_effect(s):
    X, y = table()
    scales = np.where(np.arange(X.shape[1]) % 2, s, 1 / s)
    clf = TopKClassifier(k=2, max_epochs=4, random_state=0)
    scores = clf.fit(X, y).decision_function(X)
    scaled = sp.csr_matrix(X.multiply(scales))
    np.testing.assert_allclose(clf.fit(scaled, y).decision_function(scaled), scores, atol=1e-4)


@pytest.mark.parametrize(
    "clf",
    [
        TopKClassifier(k=2, loss="cross_entropy"),
        TopKClassifier(k=2),
        AverageKClassifier(k=2),
        AverageKClassifier(k=2, backbone=()),
        AverageKClassifier(k=2, backbone=(16, 8), validation_fraction=0.2),
    ],
)
def test_training_on_sparse_batches_is_training_on_dense_ones(clf, monkeypatch):
    X, y = table()
    clf.set_params(max_epochs=6, random_state=0)
    dense = scores_by_dense_batches(clf, X, y, monkeypatch)
    assert np.ptp(dense) > 0.1
    monkeypatch.setattr(sp.csr_matrix, "toarray", None)
    monkeypatch.setattr(sp.csr_array, "toarray", None)
    for matrix in (X, sp.csr_array(X)):
        np.testing.assert_allclose(clf.fit(matrix, y).decision_function(matrix), dense, atol=1e-4)


def mixed_table(n_columns, moved=False, filled=1.0):
    """Return rows with indicators and two quantities, `filled` of which is not zero, and labels.

    The quantities tell the classes; if `moved`, in other units, far from zero.
    """
    rng = np.random.default_rng(0)
    quantities = rng.standard_normal((300, 2))
    y = (quantities > 0) @ [1, 2]
    if moved:
        quantities = quantities * [1e-3, 40] + [1e3, 7000]
    quantities[rng.uniform(size=300) > filled, 1] = 0
    indicators = sp.random(300, n_columns - 2, 0.02, random_state=0, data_rvs=np.ones)
    return sp.csr_matrix(sp.hstack([indicators, quantities])), y


@pytest.mark.parametrize("n_columns", [60, 600])
def test_units_of_quantities_beside_indicators_are_without_effect(n_columns):
    """They are centred as those of a dense table, of which these are networks of the same kind."""
    X, y = mixed_table(n_columns)
    moved, _ = mixed_table(n_columns, moved=True)
    clf = TopKClassifier(k=2, max_epochs=12, random_state=0)
    scores = clf.fit(X, y).decision_function(X)
    assert clf.score(X, y) > 0.8
    np.testing.assert_allclose(clf.fit(moved, y).decision_function(moved), scores, atol=2e-3)
    if n_columns <= WIDE:
        np.testing.assert_array_equal(clf.fit(X.toarray(), y).decision_function(X), scores)


@pytest.mark.parametrize("filled", [1.0, 0.95])
def test_centred_columns_of_sparse_rows_are_those_of_dense_ones(filled, monkeypatch):
    X, y = mixed_table(600, moved=True, filled=filled)
    clf = TopKClassifier(k=2, backbone=(16, 8), backbone_params={"skip": True}, random_state=0)
    clf.set_params(max_epochs=6)
    dense = scores_by_dense_batches(clf, X, y, monkeypatch)
    assert np.ptp(dense) > 0.1
    scores = clf.fit(X, y).decision_function(X)
    assert clf.net_.module_.normalize.mean.count_nonzero() == 2
    np.testing.assert_allclose(scores, dense, atol=1e-3)
    for batch in rows_of(X).split([100, 200]):
        seen, layer = batch.to("cpu").to_dense(), clf.net_.module_.normalize.cpu()
        torch.testing.assert_close(layer(batch).to_dense(), layer(seen))
        parts = [part.to_dense() for part in layer(batch).to("cpu").split([40, len(batch) - 40])]
        torch.testing.assert_close(torch.cat(parts), layer(seen))


@pytest.mark.parametrize(
    ("column", "n_rows"),
    [
        (np.resize([0.3, 0.1 + 0.2], 300), 300),  # a constant, but for rounding
        (np.where(np.arange(300) % 100, 1.0, 2.0), 300),  # an indicator, nearly
        (np.linspace(0.2, 0.3, 300), 20),  # a word that all of few texts hold
    ],
)
@pytest.mark.parametrize("n_columns", [60, 600])
def test_columns_that_hardly_differ_are_no_quantities(n_columns, column, n_rows):
    X = mixed_table(n_columns)[0].tolil()[:n_rows]
    X[:, -2] = 0
    X[:, -1] = column[:n_rows]
    statistics = SparseInputs(sp.csr_matrix(X)).statistics()
    assert statistics.mean is None
    assert not statistics.centre.any()


def test_weights_of_samples_tell_quantities():
    X, _ = mixed_table(600, filled=0.85)
    weight = torch.from_numpy(np.where(X[:, [599]].toarray()[:, 0] != 0, 2, 1))
    repeated = SparseInputs(X[np.repeat(np.arange(300), weight)]).statistics()
    assert repeated.centre.count_nonzero() == 2
    for one, other in zip(SparseInputs(X).statistics(weight)[:2], repeated[:2], strict=True):
        torch.testing.assert_close(one, other)


def test_scores_of_a_row_do_not_depend_on_the_others():
    """Up to the rounding of double precision, in which they are computed."""
    X, y = table()
    clf = TopKClassifier(k=2, max_epochs=2, random_state=0, device="cpu").fit(X, y)
    scores = clf.decision_function(X)
    for i in (0, 1, 40):
        np.testing.assert_allclose(clf.decision_function(X[i]), scores[i : i + 1], rtol=1e-12)


class LargestDouble(TorchDispatchMode):
    """Remember how many numbers the largest tensor in double precision has."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.dtype == torch.float64:
            self.size = max(self.size, result.numel())
        return result


@pytest.mark.parametrize("rows", [[1], [0], [0, 3, 7]], ids=["one", "an empty one", "three"])
def test_in_double_precision_are_the_weights_that_a_batch_needs(rows):
    """As a copy of the whole network in double precision would have them."""
    X, y = table()
    clf = TopKClassifier(k=2, max_epochs=2, random_state=0, device="cpu").fit(X, y)
    with LargestDouble() as largest:
        scores = clf.decision_function(X[rows])
    network = copy.deepcopy(clf.net_.module_).double().eval()
    with torch.no_grad():
        expected = network(rows_of(X[rows]))
    np.testing.assert_array_equal(scores, expected.numpy())
    first, last = network.backbone[0].weight, network.head.weight
    n_needed = len(np.unique(X[rows].indices)) * len(first)
    assert largest.size <= max(n_needed, last.numel()) < first.numel()


@pytest.mark.parametrize(
    "params", [{"precision": "bf16"}, pytest.param({"compile": True}, marks=pytest.mark.slow)]
)
def test_half_precision_and_compiled_networks_take_sparse_tables(params):
    X, y = table()
    clf = TopKClassifier(k=2, max_epochs=8, lr=1e-2, random_state=0, **params).fit(X, y)
    assert clf.score(X, y) > 0.8


def test_a_saved_model_gives_the_same_scores(tmp_path):
    X, y = table()
    clf = AverageKClassifier(k=2, max_epochs=2, random_state=0).fit(X, y)
    save(clf, tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.decision_function(X), clf.decision_function(X))
    np.testing.assert_array_equal(loaded.predict_set(X.toarray()), clf.predict_set(X))


def test_sparse_tables_of_several_labels(monkeypatch):
    X, y = table()
    Y = np.eye(N_CLASSES, dtype=int)[y] | np.eye(N_CLASSES, dtype=int)[(y + 1) % N_CLASSES]
    clf = SparseTopClassifier(size=2, max_epochs=4, random_state=0)
    dense = scores_by_dense_batches(clf, X, Y, monkeypatch)
    for targets in (Y, sp.csr_matrix(Y)):
        np.testing.assert_allclose(clf.fit(X, targets).decision_function(X), dense, atol=1e-4)


WORDS = np.array([f"w{i}" for i in range(60)])
TEXTS = [" ".join(words) for words in np.random.default_rng(0).choice(WORDS, (40, 4))]
KEPT, OUT = np.arange(25), np.arange(25, 40)


@pytest.mark.parametrize(
    "vectorizer",
    [
        CountVectorizer(),
        TfidfVectorizer(use_idf=False),
        TfidfVectorizer(use_idf=False, norm="l1", dtype=np.float32),
    ],
)
def test_held_out_texts_are_what_a_vectorizer_of_the_others_gives(vectorizer):
    X = vectorizer.fit_transform(TEXTS)
    names = vectorizer.get_feature_names_out()
    new = SparseInputs(X).as_new(OUT, KEPT).data.toarray()
    expected = vectorizer.fit([TEXTS[i] for i in KEPT]).transform([TEXTS[i] for i in OUT])
    known = np.isin(names, vectorizer.get_feature_names_out())
    assert not known.all()
    np.testing.assert_allclose(new[:, known], expected.toarray(), rtol=1e-6)
    assert not new[:, ~known].any()


def test_held_out_rows_stay_where_their_columns_come_from_elsewhere():
    X = HashingVectorizer(n_features=256).transform(TEXTS)
    new = SparseInputs(X).as_new(OUT, KEPT).data
    np.testing.assert_array_equal(new.toarray(), X[OUT].toarray())
    # Nothing is new to rows that were trained on.
    X = TfidfVectorizer().fit_transform(TEXTS)
    new = SparseInputs(X).as_new(KEPT, KEPT).data
    np.testing.assert_allclose(new.toarray(), X[KEPT].toarray(), rtol=1e-12)


@pytest.mark.parametrize(
    ("params", "as_new"),
    [
        ({"calibration_folds": 2}, True),
        ({"calibration_fraction": 0.3}, True),
        ({"calibration_fraction": 0.3, "rule_params": {"finite_sample": True}}, False),
    ],
)
def test_the_threshold_comes_from_texts_as_new_ones(params, as_new):
    X, y = TfidfVectorizer().fit_transform(TEXTS), np.arange(40) % 4
    seen = []

    class Recorder(AverageKClassifier):
        def _iter_thresholded(self, inputs):
            seen.append(inputs.data)
            return super()._iter_thresholded(inputs)

    Recorder(1.5, max_epochs=1, random_state=0, **params).fit(X, y)
    scored = sp.vstack(seen).toarray()
    lengths = np.linalg.norm(scored, axis=1)
    np.testing.assert_allclose(lengths[lengths > 0], 1, rtol=1e-6)
    unchanged = np.isclose(scored[:, None], X.toarray()).all(-1).any(-1)
    assert unchanged.all() != as_new


def test_words_are_learnt_by_one_hidden_layer_however_few_they_are(tmp_path):
    """Sparse columns are words unless one is a quantity, dense ones where they are many."""
    X, y = sp.random_array((90, 40), density=0.1, format="csr", rng=0), np.arange(90) % 3
    varying, constant = (np.linspace(1, 2, 90), np.ones(90))
    cases = {True: [X, sp.hstack([X, constant[:, None]]), np.zeros((90, MANY_COLUMNS))]}
    cases[False] = [
        sp.hstack([X, varying[:, None]]),
        X.toarray(),
        np.zeros((90, MANY_COLUMNS - 1)),
    ]
    for of_words, tables in cases.items():
        for table in tables:
            given = sp.csr_matrix(table) if sp.issparse(table) else table
            clf = TopKClassifier(k=2, max_epochs=1).fit(given, y)
            hidden = [part for part in clf.net_.module_.backbone if isinstance(part, nn.Linear)]
            assert len(hidden) == (1 if of_words else 2)
            save(clf, tmp_path / "m")
            assert load(tmp_path / "m")._recipe == clf._recipe
    # As the first piece was, whatever comes later.
    clf = TopKClassifier(k=2).partial_fit(X, y, classes=range(3))
    assert clf._recipe == clf.partial_fit(X.toarray(), y)._recipe


def test_rows_of_no_weight_do_not_say_what_words_are():
    """And weights count like repeats."""
    X = sp.random_array((100, 40), density=0.1, format="csr", rng=0)
    quantity = np.where(np.arange(100) < 50, np.linspace(1, 2, 100), 0)
    X, y = sp.csr_array(sp.hstack([X, quantity[:, None]])), np.arange(100) % 3
    clf = TopKClassifier(k=2, max_epochs=2, random_state=0)
    kept = clone(clf).fit(X[:50], y[:50]).decision_function(X)
    weighted = clone(clf).fit(X, y, sample_weight=np.arange(100) < 50)
    np.testing.assert_array_equal(weighted.decision_function(X), kept)
    assert not weighted._of_words
    assert clone(clf).fit(X, y)._of_words
    heavy = np.where(np.arange(100) < 50, 10, 1)
    assert not clone(clf).fit(X, y, sample_weight=heavy)._of_words
    assert not clone(clf).fit(X[np.arange(100).repeat(heavy)], y.repeat(heavy))._of_words


def test_wide_sparse_rows_have_a_norm_of_about_one():
    rng = np.random.default_rng(0)
    X = sp.random_array((200, 300), density=0.1, rng=0, format="csr")
    X.data[:] = rng.choice([-1.0, 1.0], X.nnz)
    scaled = X / np.asarray(SparseInputs(X).statistics().scale)
    assert np.sqrt(scaled.power(2).sum(1).mean()) == pytest.approx(1, abs=0.1)

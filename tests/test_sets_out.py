"""Sets as sparse or memory-mapped masks, and models that are given batches."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_multilabel_classification
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sksetvalued import (
    AverageKClassifier,
    PlugInClassifier,
    SparseTopClassifier,
    TopKClassifier,
    calibrate,
    calibrate_part,
    merge_parts,
    predict_labels,
    predict_set,
)
from sksetvalued._masks import row_counts
from sksetvalued.metrics import (
    SetReport,
    SetSizeDisplay,
    average_set_size,
    coverage_interval,
    set_coverage_score,
    set_coverage_scorer,
    set_size_distribution,
    set_size_scorer,
    shot_coverage_score,
)
from sksetvalued.rules import AverageError, AverageK, PointwiseError, TopK

rng = np.random.default_rng(0)
y = np.repeat(list("abcdef"), 30)
X = rng.normal(np.repeat(rng.normal(size=(6, 5)), 30, axis=0), 1)
X_multi, Y_multi = make_multilabel_classification(100, 5, random_state=0)
FAST = {"backbone": (8,), "max_epochs": 8, "loss": "cross_entropy", "random_state": 0}


@pytest.fixture(scope="module")
def models():
    inside = PlugInClassifier(GaussianNB(), AverageK(2), cv=2)
    # A GPU rounds the scores of a sample by how many others are in its batch.
    multi = SparseTopClassifier(max_epochs=2, random_state=0, device="cpu")
    return {
        "top-k": TopKClassifier(2, **FAST).fit(X, y),
        "average-k": AverageKClassifier(2, **FAST).fit(X, y),
        "sparse-top": multi.fit(X_multi, Y_multi),
        "pipeline": make_pipeline(StandardScaler(), inside).fit(X, y),
    }


MODELS = ["top-k", "average-k", "sparse-top", "pipeline"]


def samples_for(name):
    return X_multi if name == "sparse-top" else X


@pytest.mark.parametrize("name", MODELS)
def test_sparse_and_mapped_masks_are_the_dense_ones(models, name, tmp_path):
    model, samples = models[name], samples_for(name)
    dense = predict_set(model, samples)
    sparse = predict_set(model, samples, out="csr")
    assert isinstance(sparse, sp.csr_array)
    assert (sparse.dtype, sparse.has_canonical_format) == (bool, True)
    np.testing.assert_array_equal(sparse.toarray(), dense)
    mapped = np.lib.format.open_memmap(tmp_path / "sets.npy", "w+", bool, dense.shape)
    assert predict_set(model, samples, out=mapped) is mapped
    np.testing.assert_array_equal(np.load(tmp_path / "sets.npy"), dense)


@pytest.mark.parametrize("name", MODELS)
def test_batches_in_batches_out_one_at_a_time(models, name):
    model, samples = models[name], samples_for(name)
    read = []

    def batches():
        for start in range(0, len(samples), 50):
            read.append(start)
            yield samples[start : start + 50]

    sets = predict_set(model, batches(), out="csr")
    assert read == []
    first = next(sets)
    assert read == [0]
    whole = sp.vstack([first, *sets]).toarray()
    np.testing.assert_array_equal(whole, predict_set(model, samples))
    labels = [set_ for part in predict_labels(model, batches()) for set_ in part]
    for one, other in zip(labels, predict_labels(model, samples), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("rule", [TopK(2), AverageK(1.5), AverageError(0.1), PointwiseError(0.1)])
@pytest.mark.parametrize("n_classes", [6, 300])
def test_rules_give_sparse_masks_and_overwrite_those_of_the_user(rule, n_classes):
    p = rng.dirichlet(np.ones(n_classes), size=80)
    sets = rule.fit(p, rng.integers(0, n_classes, 80)).predict_set(p)
    np.testing.assert_array_equal(rule.predict_set(p, out="csr").toarray(), sets)
    np.testing.assert_array_equal(rule.predict_set(p, out=np.ones_like(sets)), sets)


@pytest.mark.parametrize("n_classes", [6, 300])
@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.parametrize("k", [2, 300])
def test_top_k_of_what_is_no_score_is_refused(odd, k, n_classes):
    p = rng.dirichlet(np.ones(n_classes), size=80)
    rule = TopK(min(k, n_classes)).fit(p)
    p[3, 4] = odd
    with pytest.raises(ValueError, match="y_score contains NaN"):
        rule.predict_set(p)


@pytest.mark.parametrize("out", ["dense", np.zeros((180, 6)), np.zeros((9, 6), bool), []])
def test_an_out_that_does_not_fit_is_named(models, out):
    with pytest.raises(ValueError, match="out must be"):
        predict_set(models["top-k"], X, out=out)


def test_an_array_for_all_batches_is_refused(models):
    with pytest.raises(ValueError, match="for all samples, but X is an iterator"):
        predict_set(models["top-k"], iter([X]), out=np.zeros((180, 6), bool))


class OldRule(TopK):
    """A rule of someone else, whose predict_set takes scores only."""

    def predict_set(self, y_score):
        return super().predict_set(y_score)


def test_rules_and_models_of_others_need_not_know_of_out():
    model = PlugInClassifier(GaussianNB(), OldRule(2)).fit(X, y)
    np.testing.assert_array_equal(predict_set(model, X, out="csr").toarray(), model.predict_set(X))


@pytest.mark.parametrize("name", ["average-k", "sparse-top", "pipeline"])
@pytest.mark.parametrize("weighted", [False, True])
def test_parts_calibrate_a_model_like_the_whole(models, name, weighted):
    model, samples = models[name], samples_for(name)
    weight = rng.integers(1, 4, len(samples)) if weighted else None
    whole = calibrate(model, samples, sample_weight=weight)
    whole = (whole[-1] if name == "pipeline" else whole).rule_.threshold_
    calibrate(model, samples[:20])
    parts = [
        calibrate_part(
            model,
            iter(np.array_split(samples[i::3], 2)) if i else samples[i::3],
            sample_weight=None if weight is None else weight[i::3],
            n_samples=len(samples),
        )
        for i in range(3)
    ]
    assert merge_parts(model, parts) is model
    merged = (model[-1] if name == "pipeline" else model).rule_.threshold_
    # The sums that sparse-top's scores are projected by are rounded by the length of a batch.
    assert merged == (pytest.approx(whole, rel=1e-14) if name == "sparse-top" else whole)


def test_parts_that_do_not_fit_the_model_are_refused(models):
    model = models["average-k"]
    with pytest.raises(ValueError, match="no part"):
        merge_parts(model, [])
    with pytest.raises(ValueError, match="differ in k"):
        merge_parts(model, [AverageK(3, log_scores=True).partial_fit(rng.random((5, 6)))])
    with pytest.raises(TypeError, match="nothing to calibrate"):
        calibrate_part(models["top-k"], X)


# -- metrics --------------------------------------------------------------------------------

Y_SET = rng.random((180, 6)) < 0.4
COUNTS = np.array([300, 200, 60, 50, 5, 1])
METRICS = {
    "coverage": lambda s: set_coverage_score(y, s),
    "macro": lambda s: set_coverage_score(y, s, average="macro"),
    "class": lambda s: set_coverage_score(y, s, average=None),
    "missing label": lambda s: set_coverage_score(y, s, labels=list("abcdex")),
    "size": lambda s: average_set_size(s, sample_weight=np.arange(180)),
    "distribution": lambda s: set_size_distribution(s),
    "shots": lambda s: list(shot_coverage_score(y, s, class_counts=COUNTS).values()),
    "interval": lambda s: coverage_interval(y, s, average="macro"),
    "report": lambda s: str(SetReport.from_predictions(y, s, class_counts=COUNTS)),
    "display": lambda s: SetSizeDisplay.from_predictions(y, s, class_counts=COUNTS).sizes,
}


def forms(y_set):
    """Return the sets as sparse matrices of several kinds."""
    coo = sp.coo_array(y_set.astype(int))
    explicit = sp.csr_array(np.ones(y_set.shape))
    explicit.data[:] = y_set.ravel()
    return [
        sp.csr_array(y_set),
        sp.csr_matrix(y_set),
        sp.csc_array(y_set),
        sp.lil_array(y_set.astype(np.int8)),
        sp.coo_array((np.tile(coo.data.astype(bool), 2), np.tile(coo.coords, 2)), y_set.shape),
        explicit,
    ]


@pytest.mark.parametrize("name", METRICS)
def test_metrics_of_sparse_sets_are_those_of_dense_ones(name):
    dense = METRICS[name](Y_SET)
    for sparse in forms(Y_SET):
        before = None if not hasattr(sparse, "nnz") else sparse.nnz
        np.testing.assert_array_equal(METRICS[name](sparse), dense)
        assert sparse.nnz == before
    assert len(np.unique(Y_SET.sum(1))) > 3


def test_sparse_sets_that_are_none_are_refused():
    with pytest.raises(ValueError, match="booleans"):
        set_coverage_score(y, sp.csr_array(Y_SET * 2))


def test_scorers_make_no_dense_mask(models, monkeypatch):
    model = models["top-k"]
    seen = []
    own = type(model).predict_set

    def spy(self, X, out=None):
        seen.append(out)
        return own(self, X, out)

    monkeypatch.setattr(type(model), "predict_set", spy)
    sets = model.predict_set(X, None)
    assert set_coverage_scorer()(model, X, y) == set_coverage_score(y, sets)
    assert set_size_scorer()(model, X, y) == 2
    assert seen == [None, "csr", "csr"]


@pytest.mark.parametrize("n_classes", [0, 1, 7, 256, (1 << 16) - 1, 1 << 16])
def test_entries_of_a_mask_are_counted_by_row(n_classes):
    mask = np.random.default_rng(0).uniform(size=(3, n_classes)) < 0.5
    mask[1] = True
    for each in (mask, mask[::-1, ::-2], np.asfortranarray(mask)):
        np.testing.assert_array_equal(row_counts(each), [sum(row) for row in each.tolist()])

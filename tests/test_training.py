"""What users pass through to skorch and torch, and what is said where that cannot work."""

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import make_blobs

from sksetvalued import SparseTopClassifier, TopKClassifier
from sksetvalued.training import make_criterion

N_CLASSES = 6


def classifier(**params):
    """Return a small classifier with a linear network."""
    params = {"k": 2, "max_epochs": 4, "random_state": 0, "backbone": (16,), **params}
    return TopKClassifier(**{"loss": "cross_entropy", **params})


@pytest.fixture(scope="module")
def data():
    X, y = make_blobs(240, centers=N_CLASSES, n_features=5, cluster_std=3.0, random_state=0)
    return X.astype(np.float32), y


@pytest.fixture
def paths(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(12):
        image = rng.integers(0, 255, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(image).save(tmp_path / f"{i:02d}.png")
    return np.array(sorted(str(path) for path in tmp_path.glob("*.png")))


def weights_of(clf):
    return {key: value.clone() for key, value in clf.net_.module_.state_dict().items()}


def same_weights(first, second):
    return all(torch.equal(first[key], second[key]) for key in first)


# -- torch criteria -------------------------------------------------------------------------


def test_the_negative_log_likelihood_is_that_of_the_softmax(data):
    weight = torch.arange(1.0, N_CLASSES + 1)
    rows = np.linspace(0.5, 1, len(data[1]))
    for params, sample_weight in ((None, None), ({"weight": weight}, None), (None, rows)):
        nll, ce = (
            classifier(loss=loss, loss_params=params, lr=0.01, max_epochs=10).fit(
                *data, sample_weight=sample_weight
            )
            for loss in (torch.nn.NLLLoss, torch.nn.CrossEntropyLoss)
        )
        proba = [clf.predict_proba(data[0]) for clf in (nll, ce)]
        np.testing.assert_allclose(*proba, atol=1e-4)


@pytest.mark.parametrize("name", ["BCEWithLogitsLoss", "BCELoss", "MSELoss", "HuberLoss"])
@pytest.mark.parametrize("batch_size", ["auto", N_CLASSES])
def test_losses_of_indicators_are_refused_for_labels(name, batch_size, data):
    cls = getattr(torch.nn, name)
    for loss in (cls, cls()):
        with pytest.raises(ValueError, match=f"loss={name} .*CrossEntropyLoss"):
            classifier(loss=loss, batch_size=batch_size).fit(*data)


@pytest.mark.parametrize("name", ["BCEWithLogitsLoss", "MultiLabelSoftMarginLoss", "MSELoss"])
@pytest.mark.parametrize("weighted", [True, False])
def test_losses_of_indicators_train_on_label_sets(name, weighted, data):
    X, y = data
    weight = np.linspace(0.5, 1, len(y)) if weighted else None
    clf = SparseTopClassifier(loss=getattr(torch.nn, name), max_epochs=2, random_state=0)
    clf.fit(X, np.eye(N_CLASSES, dtype=int)[y], sample_weight=weight)
    assert np.isfinite(clf.decision_function(X)).all()


@pytest.mark.parametrize("name", ["NLLLoss", "MultiMarginLoss", "BCELoss"])
def test_a_criterion_that_cannot_be_computed_is_named(name, data):
    X, y = data
    clf = SparseTopClassifier(loss=getattr(torch.nn, name), max_epochs=2)
    with pytest.raises(ValueError, match=f"loss={name} cannot be computed.*indicators"):
        clf.fit(X, np.eye(N_CLASSES, dtype=int)[y])


@pytest.mark.parametrize("weighted", [True, False])
def test_a_criterion_without_a_reduction_is_named(weighted, data):
    weight = np.ones(len(data[1])) if weighted else None
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    with pytest.raises(ValueError, match=r"loss=CrossEntropyLoss.*one number.*reduction"):
        classifier(loss=loss).fit(*data, sample_weight=weight)


class Plain(torch.nn.Module):
    def forward(self, input, target):
        return torch.nn.functional.cross_entropy(input, target)


class Deaf(Plain):
    reduction = "mean"


@pytest.mark.parametrize("cls", [Plain, Deaf])
def test_a_criterion_that_cannot_be_weighted_is_named(cls, data):
    classifier(loss=cls).fit(*data)
    with pytest.raises(ValueError, match=f"loss={cls.__name__}.*sample_weight.*reduction"):
        classifier(loss=cls()).fit(*data, sample_weight=np.ones(len(data[1])))


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_class_weights_come_in_any_form(precision, data):
    values = np.linspace(1, 2, N_CLASSES)
    forms = [
        values,
        values.astype(np.float32),
        torch.from_numpy(values),
        torch.from_numpy(values).float(),
    ]
    params = {"precision": precision}
    fitted = [
        classifier(loss=torch.nn.CrossEntropyLoss, loss_params={"weight": w}, **params).fit(*data)
        for w in forms
    ]
    loss = torch.nn.CrossEntropyLoss(weight=torch.from_numpy(values))
    fitted.append(classifier(loss=loss, **params).fit(*data))
    assert loss.weight.dtype == torch.float64
    for clf in fitted[1:]:
        assert same_weights(weights_of(clf), weights_of(fitted[0]))


def test_bad_arguments_of_a_criterion_are_named(data):
    for params in ({"no_such": 1}, {"weight": [1.0] * N_CLASSES}):
        with pytest.raises(ValueError, match=r"loss_params=.*CrossEntropyLoss"):
            classifier(loss=torch.nn.CrossEntropyLoss, loss_params=params).fit(*data)
    params = {"weight": np.ones(N_CLASSES - 1)}
    with pytest.raises(ValueError, match=r"loss=CrossEntropyLoss cannot be computed.*weight"):
        classifier(loss=torch.nn.CrossEntropyLoss, loss_params=params).fit(*data)


def optimal_scores(criterion, posterior):
    """Return the scores that minimise the expected loss of a criterion at one sample."""
    scores = torch.zeros(1, len(posterior), requires_grad=True)
    optimizer = torch.optim.LBFGS([scores], max_iter=500, line_search_fn="strong_wolfe")
    every = torch.arange(len(posterior))

    def closure():
        optimizer.zero_grad()
        loss = criterion(scores.expand(len(posterior), -1), every, sample_weight=posterior)
        loss.backward()
        return loss

    optimizer.step(closure)
    return scores.detach().double()[0]


@pytest.mark.parametrize("cls", [torch.nn.CrossEntropyLoss, torch.nn.NLLLoss])
@pytest.mark.parametrize("given", ["none", "uneven"])
def test_the_weights_left_in_the_scores_are_told(cls, given):
    posterior = torch.tensor([0.5, 0.3, 0.15, 0.05])
    params = {"weight": np.array([1.0, 4.0, 0.5, 2.0])} if given == "uneven" else None
    criterion = make_criterion(cls, params, {})
    scores = optimal_scores(criterion, posterior)
    if given == "none":
        assert criterion.log_class_weight is None
    else:
        scores = scores - criterion.log_class_weight
    np.testing.assert_allclose(scores.softmax(0), posterior, atol=1e-3)


def test_a_class_of_weight_zero_is_left_as_it_is():
    weight = np.array([0.0, 2.0, 1.0])
    criterion = make_criterion(torch.nn.CrossEntropyLoss, {"weight": weight}, {})
    assert torch.equal(criterion.log_class_weight, torch.tensor([1.0, 2, 1]).double().log())
    assert make_criterion(torch.nn.MultiMarginLoss, None, {}).log_class_weight is None

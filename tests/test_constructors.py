"""The training parameters, which every deep estimator takes without listing them."""

import inspect
import pickle

import pytest
from sklearn.base import clone

from sksetvalued import AverageKClassifier, SparseTopClassifier, TopKClassifier
from sksetvalued.estimators._deep import DeepEstimator

DEEP = [TopKClassifier, AverageKClassifier, SparseTopClassifier]
BLOCK = list(inspect.signature(DeepEstimator).parameters)


class Subclass(TopKClassifier):
    def __init__(self, k=2, *, lr=1e-4, max_epochs=3, own="a"):
        super().__init__(k, lr=lr, max_epochs=max_epochs)
        self.own = own


@pytest.mark.parametrize("cls", DEEP)
def test_the_signature_ends_in_the_training_block(cls):
    shown = inspect.signature(cls).parameters
    assert list(shown)[-len(BLOCK) :] == BLOCK
    assert set(cls().get_params()) == set(shown) == set(cls._parameter_constraints)
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in shown.values())


@pytest.mark.parametrize("cls", DEEP)
def test_the_defaults_shown_are_those_taken(cls):
    shown = inspect.signature(cls).parameters
    assert cls().get_params() == {name: shown[name].default for name in shown}


@pytest.mark.parametrize("cls", DEEP)
def test_every_parameter_is_taken_and_cloned(cls):
    values = {name: object() for name in inspect.signature(cls).parameters}
    assert cls(**values).get_params(deep=False) == values
    given = {name: f"{name}!" for name in values}
    assert clone(cls(**given)).get_params() == given
    assert pickle.loads(pickle.dumps(cls(**given))).get_params() == given


@pytest.mark.parametrize("cls", [*DEEP, Subclass])
def test_an_unknown_parameter_is_refused(cls):
    name = rf"^{cls.__name__}\b.* got an unexpected keyword argument 'epochs'"
    with pytest.raises(TypeError, match=name):
        cls(epochs=3)


def test_a_subclass_has_the_parameters_of_its_own_constructor():
    twin = clone(pickle.loads(pickle.dumps(Subclass(k=4, own="b"))))
    assert twin.get_params() == {"k": 4, "lr": 1e-4, "max_epochs": 3, "own": "b"}
    assert twin.batch_size == "auto"

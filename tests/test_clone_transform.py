"""Estimators are cloned whatever their transform is."""

import copy

import numpy as np
import pytest
from sklearn.base import clone
from torchvision import transforms as v1
from torchvision.transforms import v2

from sksetvalued import TopKClassifier
from sksetvalued.metrics import top_k_scorer


@pytest.mark.parametrize("module", [v1, v2])
@pytest.mark.parametrize("stages", [False, True])
def test_transforms_with_a_get_params_of_their_own(module, stages):
    crop = module.RandomCrop(6)
    clf = TopKClassifier(transform={"train": crop} if stages else crop)
    params, copied = clf.get_params(), clone(clf).get_params()["transform"]
    copied = copied["train"] if stages else copied
    assert params["transform"] is clf.get_params(deep=False)["transform"]
    assert type(copied) is type(crop)
    assert copied is not crop
    assert copied.size == crop.size


def test_a_clone_is_not_fitted_and_shares_nothing():
    clf = TopKClassifier(k=2, max_epochs=1, transform={"train": v2.RandomCrop(8)})
    twin = clone(clf)
    assert twin.k == 2
    assert twin.get_params()["transform"] is not clf.get_params()["transform"]
    assert not hasattr(clone(clf.fit(np.zeros((4, 8, 8)), [0, 1, 2, 2])), "net_")
    assert copy.deepcopy(clf).get_params()["transform"]["train"].size == (8, 8)


def test_searches_over_images_with_random_crops():
    from sklearn.model_selection import GridSearchCV

    X = np.random.default_rng(0).integers(0, 255, (24, 9, 9), dtype=np.uint8)
    y = np.arange(24) % 3
    transform = {"train": v2.RandomCrop(8), "eval": v2.CenterCrop(8)}
    clf = TopKClassifier(k=2, max_epochs=1, transform=transform, random_state=0)
    search = GridSearchCV(clf, {"lr": [0.01, 0.1]}, scoring=top_k_scorer(k=2), cv=2)
    assert np.isfinite(search.fit(X, y).cv_results_["mean_test_score"]).all()

"""The thresholds of TorchCP, where its promises are ours."""

import numpy as np
import pytest
import torch

from sksetvalued.rules import AverageError

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("error", [0.05, 0.2, 0.35])
@pytest.mark.parametrize("coverage", ["micro", "class"])
def test_torchcp_gives_the_same_sets(coverage, error):
    # It needs a compiler and torch_geometric, and is not part of the extra for that.
    reason = "install torchcp, torchsort and torch_geometric"
    predictors = pytest.importorskip("torchcp.classification.predictor", reason=reason)
    from torchcp.classification.score import LAC

    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.geomspace(2, 0.2, 5), size=979)
    y = (p.cumsum(1) < rng.random((979, 1))).sum(1).clip(max=4)
    p, y, new = p[:379], y[:379], p[379:]
    peer = {"micro": predictors.SplitPredictor, "class": predictors.ClassConditionalPredictor}
    peer = peer[coverage](LAC(), alpha=error, device="cpu")
    peer.calculate_threshold(torch.from_numpy(p).log(), torch.from_numpy(y), error)
    sets = peer.predict_with_logits(torch.from_numpy(new).log()).numpy()
    ours = AverageError(error, coverage=coverage).fit(p, y).predict_set(new)
    np.testing.assert_array_equal(ours, sets.astype(bool))

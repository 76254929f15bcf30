"""What `ranks` of the losses accepts and means."""

import numpy as np
import pytest

from sksetvalued.losses._ranks import check_ranks, resolve_ranks


@pytest.mark.parametrize(
    ("ranks", "n_classes", "expected"),
    [
        (None, 10, ((5, 1.0),)),
        (None, 3, ((5, 1.0),)),
        ([(5, 3), (1, 1)], 10, ((1, 0.25), (5, 0.75))),
        ({1: 1, "k": 1}, 10, ((1, 0.5), (5, 0.5))),
        (((1, 1), (1, 2), (2, 0), ("k", 1)), 10, ((1, 0.75), (5, 0.25))),
        (((1, 1), (5, 1), (9, 2)), 5, ((1, 0.25), (4, 0.75))),
        (np.array([[1, 2], [3, 2]]), 5, ((1, 0.5), (3, 0.5))),
        ([(1, 1e308), (2, 1e308)], 5, ((1, 0.5), (2, 0.5))),
    ],
)
def test_ranks_are_clipped_merged_and_normalised(ranks, n_classes, expected):
    assert resolve_ranks(5, ranks, n_classes) == expected


@pytest.mark.parametrize(
    ("ranks", "error", "message"),
    [
        (5, ValueError, "pairs of a rank and a weight"),
        ("k", ValueError, "pairs of a rank and a weight"),
        ([], ValueError, "pairs of a rank and a weight"),
        ([1, 5], ValueError, "pairs of a rank and a weight"),
        ([(1, 0.5, 2)], ValueError, "pairs of a rank and a weight"),
        ([(0, 1)], ValueError, "a rank in ranks.* at least 1, got 0"),
        ([(1.0, 1)], TypeError, "a rank in ranks.* integer, got 1.0"),
        ([("K", 1)], TypeError, "a rank in ranks.* integer, got 'K'"),
        ([(1, -0.5)], ValueError, "weight of rank 1 .* at least 0, got -0.5"),
        ({"k": float("inf")}, ValueError, "weight of rank 'k' .* finite"),
        ({1: "half"}, TypeError, "weight of rank 1 .* number, got 'half'"),
        ({1: 0.0, 2: 0}, ValueError, "some rank a positive weight"),
    ],
)
def test_bad_ranks_are_named(ranks, error, message):
    with pytest.raises(error, match=message):
        check_ranks(ranks)
    assert check_ranks(None) is None


def test_ranks_given_once_are_kept():
    assert check_ranks(iter([(1, 2), ("k", 3)])) == ((1, 2), ("k", 3))
    assert check_ranks({1: 2, "k": 3}) == ((1, 2), ("k", 3))

"""Laws of the class margins."""

import numpy as np
import pytest
import torch

from sksetvalued.operators import class_margins


def test_margins_follow_the_formula_and_the_rarest_class_has_the_largest():
    counts = np.array([500, 2, 81, 2, 16])
    expected = 0.3 * (2 / counts) ** 0.25
    margins = class_margins(torch.tensor(counts, dtype=torch.float64), 0.3)
    np.testing.assert_allclose(margins.numpy(), expected, rtol=1e-14)
    assert margins.max() == margins[1] == margins[3] == 0.3


def test_margins_ignore_the_unit_of_the_counts():
    counts = torch.tensor([3.0, 8.0, 40.0])
    torch.testing.assert_close(class_margins(counts, 0.2), class_margins(100 * counts, 0.2))


def test_types_and_containers():
    assert class_margins([1, 2], 0.5).dtype == torch.get_default_dtype()
    assert class_margins(np.array([1.0, 2.0]), 0.5).dtype == torch.float64
    counts = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda c: class_margins(c, 0.5)[1], (counts,))


@pytest.mark.parametrize(
    ("counts", "max_margin", "message"),
    [
        ([3, 0, 1, -2], 0.5, r"classes \[1, 3\] have counts \[0, -2\]"),
        ([1.0, float("nan")], 0.5, r"classes \[1\]"),
        ([[1, 2]], 0.5, "vector"),
        ([], 0.5, "vector"),
        ([1, 2], -0.5, "max_margin must be finite and at least 0"),
        ([1, 2], float("inf"), "max_margin"),
    ],
)
def test_bad_arguments_are_named(counts, max_margin, message):
    with pytest.raises(ValueError, match=message):
        class_margins(counts, max_margin)


def test_margin_must_be_a_number():
    with pytest.raises(TypeError, match="max_margin must be a number"):
        class_margins([1, 2], "large")


@pytest.mark.filterwarnings("error")
def test_counts_may_be_arrays_of_any_kind():
    counts = np.array([16, 1, 81])
    frozen, big = counts.copy(), counts.astype(">i8")
    frozen.flags.writeable = False
    backwards = counts[::-1].copy()[::-1]
    others = [counts.astype(dtype) for dtype in (np.uint8, np.uint16, np.uint64, object)]
    expected = class_margins([16, 1, 81], 0.6)
    for given in (frozen, big, backwards, *others):
        torch.testing.assert_close(class_margins(given, 0.6).float(), expected)
    assert class_margins(counts.astype(np.uint16), 0.6).dtype == torch.float32
    assert class_margins(counts.astype(">f8"), 0.6).dtype == torch.float64


def test_margins_of_integers_have_the_default_type_of_torch():
    torch.set_default_dtype(torch.float64)
    try:
        assert class_margins([1, 3], 0.5).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)

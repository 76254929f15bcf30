"""Odd values: numbers, labels, arrays, tensors and tables."""

import decimal
import fractions

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch

#: Entries of arrays: of any sign and size, the last four not finite.
ENTRIES = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-310, 1e-8, 3.4e38, -3.4e38, 1e30, 1e6, -1e6)
NOT_FINITE = (float("nan"), float("inf"), float("-inf"))

#: What stands for a number, and is none.
NO_NUMBERS = (None, "2", b"2", [2], (2, 3), {}, object(), 2 + 0j, True, float("nan"))
NO_NUMBERS += (np.array([2]), torch.tensor([2.0, 1.0]), int, lambda: 2, np.datetime64("2020"))
#: Numbers of other types.
OTHER_NUMBERS = (np.int8(2), np.uint64(2), np.float32(1.5), fractions.Fraction(3, 2), 1.5, 2.0)
OTHER_NUMBERS += (decimal.Decimal(2), np.array(2), torch.tensor(2), np.longdouble(2), 1e-300)
#: Numbers out of most ranges.
OUT = (0, -1, -0.5, 2**31, 2**63, 10**400, float("inf"), -float("inf"), 1e308)


def number(rng, valid, p_odd=0.15):
    """Return a number for an argument, and what is to be expected: "right", "error", "either"."""
    if rng.random() > p_odd:
        return valid, "right"
    kind = rng.randrange(3)
    if kind == 0:
        return rng.choice(NO_NUMBERS), "error"
    return rng.choice((OTHER_NUMBERS, OUT)[kind - 1]), "either"


def together(*expected):
    """Return what several arguments let expect."""
    for outcome in ("error", "either"):
        if outcome in expected:
            return outcome
    return "right"


def floats(rng, shape, not_finite=False, ties=False, extreme=True):
    """Return a float64 array of a shape: normal, tied, extreme, or with entries of any kind."""
    bulk = np.random.default_rng(rng.getrandbits(32))
    values = bulk.standard_normal(shape)
    kind = rng.randrange(8)
    if kind == 0 or ties:
        values = np.round(values)
    elif kind == 1:
        values = values * 10.0 ** rng.randrange(-300 if extreme else -30, 5)
    elif kind == 2 and extreme:
        values = values * 10.0 ** rng.randrange(5, 30)
    elif kind == 3:
        values = np.zeros(shape) + rng.choice(ENTRIES[:4])
    if values.size and extreme and rng.random() < 0.2:
        for _ in range(rng.randrange(1, 4)):
            values.flat[rng.randrange(values.size)] = rng.choice(ENTRIES)
    if values.size and not_finite:
        values.flat[rng.randrange(values.size)] = rng.choice(NOT_FINITE)
    return values


def layout(rng, values):
    """Return the same array in another place: strides, read-only, reversed, unaligned."""
    kind = rng.randrange(8)
    if kind == 0:
        return np.asfortranarray(values)
    if kind == 1:
        wide = np.repeat(values, 2, axis=-1) if values.ndim else values
        return wide[..., ::2] if values.ndim else values
    if kind == 2 and values.ndim:
        return values[::-1].copy()[::-1]
    if kind == 3:
        values = values.copy()
        values.flags.writeable = False
    elif kind == 4 and values.dtype.itemsize > 1:
        return values.astype(values.dtype.newbyteorder())
    elif kind == 5 and values.size and values.dtype != object:
        memory = np.empty(values.nbytes + 1, np.uint8)[1:].view(values.dtype).reshape(values.shape)
        memory[...] = values
        return memory
    return values


def no_array(rng, n_rows, n_columns):
    """Return something that is no array of finite numbers of two dimensions."""
    table = np.random.default_rng(rng.getrandbits(32)).standard_normal((n_rows, n_columns))
    with np.errstate(invalid="ignore"):
        makers = (
            lambda: None,
            lambda: "leaf.png",
            lambda: 5,
            object,
            lambda: (row for row in table),
            lambda: {1, 2},
            lambda: table[0, 0],
            lambda: np.array(3.0),
            lambda: table.ravel(),
            lambda: table[None, None, None],
            lambda: table[:0],
            lambda: table[:, :0],
            lambda: table + 1j,
            lambda: table.astype(str),
            lambda: np.where(table > 0, "a", "b"),
            lambda: table.astype(object) + "x" if False else np.full(table.shape, None),
            lambda: np.full(table.shape, {}),
            lambda: np.full(table.shape, "0.5", dtype=object),
            lambda: np.array([10**400] * table.size, dtype=object).reshape(table.shape),
            lambda: table.astype("M8[s]"),
            lambda: table.astype("m8[s]"),
            lambda: table.tobytes(),
            lambda: [*[[*row] for row in table][:-1], [1.0] * (n_columns + 1)],
            lambda: [[*row] for row in table] + [3],
            lambda: np.ma.masked_array(table, mask=np.ones_like(table)),
            lambda: np.where(table == table[0, 0], np.nan, table),
            lambda: np.where(table == table[0, 0], np.inf, table),
            lambda: torch.tensor(table).to_sparse(),
            lambda: torch.tensor(table).to_sparse_csr(),
            lambda: torch.tensor(table) + 1j,
            lambda: torch.quantize_per_tensor(torch.tensor(table).float(), 0.1, 0, torch.qint8),
            lambda: torch.tensor(table) * np.nan,
            lambda: sp.csr_array(table) * np.nan,
            lambda: sp.csr_array(table + 1j),
            lambda: pd.DataFrame(table).astype(str) + "x",
            lambda: pd.DataFrame(table).astype("Float64").mask(table == table[0, 0]),
            lambda: pd.DataFrame(table).mask(table == table[0, 0]),
            lambda: pd.Series(table[0]),
            lambda: pd.DataFrame(),
            lambda: np.rec.fromarrays([table[:, 0]], names="a"),
            lambda: range(n_columns),
            lambda: len,
            lambda: int,
            lambda: iter(table),
            lambda: {"a": table[:, 0], "b": table[:-1, 0]},
            lambda: {},
            lambda: {1: table},
            lambda: [],
            lambda: [[]],
            lambda: [None] * n_rows,
            lambda: [[["a"]]],
        )
        return rng.choice(makers)()


def as_given(rng, table):
    """Return a table of numbers in one of the forms that are taken, and its values."""
    narrow = table.astype(np.float32)
    makers = (
        lambda: table,
        lambda: layout(rng, table),
        lambda: layout(rng, narrow),
        lambda: table.tolist(),
        lambda: tuple(map(tuple, table.tolist())),
        lambda: table.astype(object),
        lambda: np.longdouble(table),
        lambda: torch.tensor(table),
        lambda: torch.tensor(table, requires_grad=True),
        lambda: torch.tensor(narrow).T.contiguous().T,
        lambda: np.ma.masked_array(table, mask=False),
        lambda: memoryview(np.ascontiguousarray(table)),
    )
    return rng.choice(makers)()


#: Labels of three classes, of kinds that are taken.
LABELS = (
    lambda: np.array([0, 1, 2]),
    lambda: np.array([5, -7, 2**62]),
    lambda: np.array(["a", "", "é" * 50]),
    lambda: np.array(["a", "b", "c"], dtype=object),
    lambda: np.array([0.0, 1.0, -3.0]),
    lambda: np.array([0, 1, 2], dtype=np.uint8),
    lambda: np.array([0, 1, 2], dtype=np.int8)[::-1],
)


def labels(rng, n_samples):
    """Return labels with their sorted classes, and what is to be expected of them."""
    names = rng.choice(LABELS)()
    at = np.array([rng.randrange(len(names)) for _ in range(n_samples)], dtype=int)
    values = names[at]
    if rng.random() < 0.2:
        return rng.choice((values.tolist(), tuple(values.tolist()), pd.Series(values)))
    return layout(rng, values)


def no_labels(rng, n_samples):
    """Return something that is no array of labels of so many samples."""
    makers = (
        lambda: None,
        lambda: "abc",
        lambda: 3,
        lambda: np.arange(n_samples + 1),
        lambda: np.zeros((n_samples, 2, 2)),
        lambda: np.arange(0),
        lambda: ["a", 1] * n_samples,
        lambda: [*(["a", 1] * n_samples)[:n_samples], None],
        lambda: np.array(["a", None] * n_samples, dtype=object)[:n_samples],
        lambda: np.array([1, "b"] * n_samples, dtype=object)[: n_samples + 2],
        lambda: np.full(n_samples, np.nan),
        lambda: np.arange(n_samples) + 1j,
        lambda: np.full(n_samples, {}),
        lambda: np.array([set()] * n_samples),
        lambda: np.full(n_samples, None),
        lambda: (i for i in range(n_samples)),
        lambda: {0: 1},
        lambda: object(),
        lambda: [[1], [1, 2]],
        lambda: torch.zeros(n_samples).to_sparse(),
        lambda: np.ma.masked_array(np.arange(n_samples), mask=True),
        lambda: sp.csr_array(np.ones((n_samples, 2)) * 2),
    )
    return rng.choice(makers)()

"""Arrays of what is given, of numbers or of labels; the errors name the parameter."""

import datetime
import functools
from contextlib import nullcontext, suppress
from numbers import Integral, Number

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import column_or_1d
from sklearn.utils._missing import is_scalar_nan
from sklearn.utils.multiclass import check_classification_targets

from ._warnings import warn_caller

#: What to say of targets of several columns.
SEVERAL_LABELS = (
    "Several labels per sample are for SparseTopClassifier, and what it predicts is for metrics "
    "such as f1_score of scikit-learn, as by scoring='f1_micro'."
)

#: What labels are, by the kind of a dtype.
KINDS = {
    **dict.fromkeys("biuf", "numbers"),
    **dict.fromkeys("UT", "strings"),
    "S": "bytes",
    "M": "dates",
    "m": "durations",
}
#: Units of time that Python's objects do not have.
FINER_THAN_PYTHON = ("ns", "ps", "fs", "as")
#: NumPy's types of a date and a duration.
_TIMES = np.datetime64, np.timedelta64
#: The same by the type of an object.
TYPES = {
    str: "strings",
    bytes: "bytes",
    datetime.timedelta: "durations",
    np.timedelta64: "durations",
    datetime.date: "dates",
    np.datetime64: "dates",
    Number: "numbers",
    np.bool_: "numbers",
}


def as_array(values, name):
    """Return values as an array; a tensor comes to the processor, without its graph.

    Strings of NumPy's `StringDType`, which scikit-learn does not know, become objects.

    Raises
    ------
    TypeError
        Sparse values.
    ValueError
        Masked entries, or rows of several lengths.
    """
    check_masks(values, name)
    if sp.issparse(values):
        raise TypeError(f"{name} is sparse, where an array is needed: pass {name}.toarray().")
    if isinstance(values, torch.Tensor):
        return _from_tensor(values, name)
    try:
        array = np.asarray(values)
        return array.astype(object) if array.dtype.kind == "T" else array
    except (OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{name} cannot be made an array: {error}") from error


def check_masks(values, name):
    """Raise for a masked array with masked entries, and for a list, or lists, that hold one."""
    if _is_masked(values):
        verb = "is" if isinstance(values, np.ma.MaskedArray) else "holds"
        raise ValueError(
            f"{name} {verb} a masked array, whose mask would be lost: fill the masked entries, as "
            "by np.ma.filled or sklearn.impute.SimpleImputer, or leave their samples out."
        )


def _is_masked(values):
    if isinstance(values, list | tuple):
        # Of rows of numbers one is looked at: arrays beside it would be ragged.
        plain = not values or type(values[0]) in (bool, int, float, str)
        return not plain and any(map(_is_masked, values))
    return isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values)


def check_plain(tensor, name):
    """Raise for a sparse or quantised tensor, and for floats of 8 bits."""
    eight_bits = tensor.is_floating_point() and tensor.itemsize == 1
    if tensor.layout == torch.strided and not (tensor.is_quantized or eight_bits):
        return
    remedy = "dequantize" if tensor.is_quantized else "float"
    raise TypeError(
        f"{name} is a tensor of {tensor.layout} and {tensor.dtype}, where a plain one is needed: "
        f"pass {name}.{remedy if tensor.layout == torch.strided else 'to_dense'}()."
    )


def _from_tensor(tensor, name):
    check_plain(tensor, name)
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.numpy(force=True)


def names_of_columns(table):
    """Return the names of the columns of a table; None of an array.

    The `columns` of a table of pyarrow are the data.
    """
    return getattr(table, "column_names", getattr(table, "columns", None))


def to_tensor(array):
    """Return a tensor of the values of an array, in its memory where torch can read and write it.

    An array of one row is contiguous to NumPy whatever its strides are, which torch may refuse.
    """
    array = np.require(array, array.dtype.newbyteorder("="), ["C", "W"])
    return torch.from_numpy(array.copy() if min(array.strides, default=0) < 0 else array)


def on_the_processor():
    """Return a context in which new tensors are on the processor, whatever torch's default is."""
    elsewhere = torch.get_default_device().type != "cpu"
    return torch.device("cpu") if elsewhere else nullcontext()


def always_on_the_processor(function):
    """Return a function that makes its tensors on the processor."""

    @functools.wraps(function)
    def called(*args, **kwargs):
        with on_the_processor():
            return function(*args, **kwargs)

    return called


def as_numbers(values, name, dtype=np.float64):
    """Return values as an array of real numbers of a floating type.

    Raises
    ------
    TypeError, ValueError
        What is no array, or holds anything else.
    """
    array = as_array(values, name)
    if array.dtype.kind not in "biufO" or _holds_strings(array):
        kind = "strings" if array.dtype.kind in "OUST" else f"dtype {array.dtype}"
        raise TypeError(f"{name} must hold real numbers, got {kind}.")
    try:
        return array.astype(dtype, copy=False)
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold real numbers: {error}") from error


def _holds_strings(array):
    return array.dtype == object and any(isinstance(v, str | bytes) for v in array.flat)


def as_labels(labels, name, warn=False):
    """Return labels as a one-dimensional array of values of one kind, which can be ordered.

    Dates and durations of Python or pandas become those of NumPy.

    Raises
    ------
    ValueError
        None, another shape, NaN, or labels of several kinds, such as numbers and strings.
    TypeError
        Labels without an order.
    """
    if labels is None:
        raise ValueError(f"{name} is None: pass one label per sample.")
    check_strings(labels, name)
    given = labels
    if hasattr(labels, "iloc"):
        labels = _without_nullable(labels)
    elif isinstance(labels, list | tuple) and any(isinstance(v, _TIMES) for v in labels):
        # Of several units NumPy takes the finest, whose range some may leave.
        labels = np.array([*labels, None], dtype=object)[:-1]
    else:
        _check_one_each(labels, name)
        labels = exactly(labels, as_array(labels, name))
    if warn and np.ndim(labels) == 2 and np.shape(labels)[1] == 1:
        warn_caller(
            f"A column-vector {name} was passed when a 1d array was expected. Please change the "
            f"shape of {name} to (n_samples,), for example using ravel().",
            DataConversionWarning,
        )
    try:
        array = column_or_1d(labels)
    except ValueError as error:
        several = len(np.shape(labels)) == 2 and np.shape(labels)[1] > 1
        remedy = f" {_remedy_of_columns(given, name)}" if several else ""
        if str(error).startswith(name):
            raise ValueError(f"{error}{remedy}") from error
        raise ValueError(f"{name} must hold one label per sample: {error}{remedy}") from error
    array = in_numpy(array, name)
    check_kind(array, name)
    return array


def in_numpy(array, name):
    """Return dates or durations that are objects as those of NumPy; other values as they are.

    Their unit is one of Python, into whose objects `tolist` turns them back, where that is exact.
    NumPy has no time zones: dates that have one stay objects.
    """
    kinds = label_kinds(array) if array.dtype == object else set()
    if kinds not in ({"dates"}, {"durations"}):
        return array
    code = "M8" if kinds == {"dates"} else "m8"
    # NumPy takes those of pandas for Python's, without their nanoseconds.
    values = [getattr(value, "asm8", value) for value in array]
    try:
        times = np.array(values, code)
    except OverflowError:  # as of NumPy 2.5
        times = None
    if times is not None and np.datetime_data(times.dtype)[0] not in FINER_THAN_PYTHON:
        return times
    coarse = _as_times(values, f"{code}[us]", name)
    # Before, values out of the range of a fine unit come back as others.
    if times is None or not np.array_equal(in_unit(times, coarse.dtype), coarse, equal_nan=True):
        if all(_equals(one, np.array([value], code)) for one, value in zip(coarse, values)):
            return coarse
        raise ValueError(
            f"{name} holds labels from {coarse.min()} to {coarse.max()}, more than the unit that "
            "some of them need can hold: round them to microseconds."
        )
    return coarse if np.array_equal(in_unit(coarse, times.dtype), times) else times


def _as_times(values, dtype, name):
    try:
        return np.array(values, dtype)
    except OverflowError as error:
        raise ValueError(
            f"{name} holds dates or durations that are too far apart for one unit of NumPy: "
            "give them as strings."
        ) from error


def _equals(coarse, time):
    """Return whether a date or duration is that of an array of one, whatever their units."""
    return np.array_equal(in_unit(coarse.reshape(1), time.dtype), time)


def in_unit(times, dtype):
    """Return dates or durations in another unit; NaT for what is outside, where NumPy raises.

    Other labels are converted as NumPy does.
    """
    try:
        return times.astype(dtype)
    except OverflowError:
        converted = np.full(times.shape, "NaT", dtype)
        for place, one in enumerate(times):
            with suppress(OverflowError):
                converted[place] = one.astype(dtype)
        return converted


def _without_nullable(labels):
    """Return a column of nullable whole numbers, or booleans, that misses none as an array.

    As floats, which scikit-learn makes of them, large ones would be the same.
    """
    types = labels.dtypes.unique() if hasattr(labels, "columns") else [labels.dtype]
    plain = getattr(types[0], "numpy_dtype", None) if len(types) == 1 else None
    if plain is None or plain.kind not in "biu" or np.any(labels.isna()):
        return labels
    return labels.to_numpy(dtype=plain)


def _check_one_each(labels, name):
    """Raise for a sparse indicator, and for a list with collections of several labels, or none."""
    if sp.issparse(labels) and labels.ndim == 2 and labels.shape[1] > 1:
        raise ValueError(
            f"{name} must hold one label per sample, got a sparse array of shape {labels.shape}. "
            f"{_remedy_of_columns(labels, name)}"
        )
    for i, label in enumerate(labels if isinstance(labels, list | tuple) else ()):
        several = isinstance(label, list | tuple) and len(label) != 1
        if several or isinstance(label, set | frozenset):
            raise ValueError(
                f"{name} must hold one label per sample, but {name}[{i}] is {label!r:.60}. "
                f"{_remedy_of_columns(labels, name)}"
            )


def _remedy_of_columns(labels, name):
    """Return what to do about labels of several columns, or lists of several labels."""
    if not _indicate_one_each(labels, name):
        return SEVERAL_LABELS
    if isinstance(labels, list | tuple):
        single = f"np.argmax({name}, axis=1)"
    else:
        single = f"{name}.{'idxmax' if hasattr(labels, 'iloc') else 'argmax'}(axis=1)"
    return f"These are indicators of one label each: pass {single}."


def _indicate_one_each(labels, name):
    """Return whether each row holds a single 1 and else zeros."""
    if hasattr(labels, "iloc"):
        labels = _without_nullable(labels)
    try:
        labels = labels if sp.issparse(labels) else as_array(labels, name)
    except ValueError:  # rows of several lengths
        return False
    if labels.ndim != 2 or labels.dtype.kind not in "biuf":
        return False
    return bool(np.all((labels != 0).sum(axis=1) == 1) and np.all((labels == 1).sum(axis=1) == 1))


def exactly(labels, array):
    """Return the array of a list of labels; where whole numbers became other floats, of them.

    NumPy makes floats of whole numbers some of which need an unsigned type.
    """
    if array.dtype.kind != "f" or array.ndim != 1 or not isinstance(labels, list | tuple):
        return array
    if all(value == label or label != label for value, label in zip(array.tolist(), labels)):
        return array
    whole = all(isinstance(label, Integral) for label in labels)
    if whole and min(labels) >= 0 and max(labels) < 2**64:
        return np.array(labels, np.uint64)
    return np.array([*labels, None], dtype=object)[:-1]


def check_strings(labels, name):
    """Raise if values that are no strings would become some in an array."""
    if not isinstance(labels, list | tuple):
        return
    strings = [isinstance(value, str | bytes) for value in labels]
    if any(strings) and not all(strings):
        _raise_of_kinds(labels, {label_kind(value) for value in labels}, name)


def check_kind(array, name):
    """Raise unless labels are of one kind, can be ordered, and none is NaN."""
    if array.dtype.names is not None:
        raise TypeError(
            f"{name} must hold one label per sample, got records of {array.dtype.names}: pass "
            f"one of these, {name}[{array.dtype.names[-1]!r}], or join them to strings."
        )
    kinds = label_kinds(array)
    if len(kinds) > 1:
        _raise_of_kinds(array.tolist(), kinds, name)
    if kinds and not kinds <= set(KINDS.values()):
        try:
            np.unique(array)
            set(array.tolist())
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{name} must hold numbers or strings, which can be ordered, got "
                f"{kinds.pop()}: {error}."
            ) from error
    if kinds <= {"numbers", "dates", "durations"}:
        missing = array != array
        if np.any(missing):
            raise ValueError(
                f"{name} contains NaN, which is no label: leave those samples out, or name "
                "the label that is missing."
            )


def check_discrete(labels):
    """Raise unless labels are those of classes to scikit-learn."""
    try:
        check_classification_targets(labels)
    except ValueError as error:
        if labels.dtype == object:
            whole = all(isinstance(label, Integral | np.bool_) for label in labels)
            whole = whole and np.asarray(labels.tolist()).dtype != object
            remedy = "np.asarray(y.tolist())" if whole else "y.astype(str)"
            held = f"objects, of type {type(labels[0]).__name__}: pass {remedy}"
        else:
            odd = np.isinf(labels) | (labels != np.round(labels)) | (np.abs(labels) >= 2**63)
            held = f"{labels[odd][0]}: if that is the name of a class, pass y.astype(str)"
        raise ValueError(f"y holds {held}. {error}") from error


def _raise_of_kinds(labels, kinds, name):
    missing = [value for value in labels if value is None or is_scalar_nan(value)]
    missing += [value for value in labels if type(value).__name__ in ("NAType", "NaTType")]
    if missing:
        raise ValueError(
            f"{name} holds {missing[0]!r}, which is no label: leave those samples out, or name "
            "the label that is missing."
        )
    examples = {label_kind(value): value for value in labels}
    raise ValueError(
        f"{name} holds {' and '.join(sorted(kinds))}, such as "
        f"{' and '.join(repr(examples[kind]) for kind in sorted(examples))}, which never match: "
        "convert the labels to one type."
    )


def label_kind(label):
    """Return what labels such as this one are, in the plural."""
    if _has_time_zone(label):
        return "dates of a time zone"
    for base, kind in TYPES.items():
        if isinstance(label, base):
            return kind
    return f"{type(label).__name__} objects"


def _has_time_zone(label):
    return getattr(label, "tzinfo", None) is not None


def label_kinds(array):
    """Return the kinds of the labels of an array."""
    if array.dtype != object:
        return {KINDS.get(array.dtype.kind, f"{array.dtype} values")} if array.size else set()
    examples = {(type(label), _has_time_zone(label)): label for label in array.tolist()}
    return set(map(label_kind, examples.values()))


def of_one_type(labels, known):
    """Return labels and those known such that NumPy compares them exactly.

    Signed and unsigned whole numbers of 64 bits, which it compares as floats, become objects.
    Labels that are dates or durations get the unit of those known; what that cannot tell becomes
    NaT, which equals none.
    """
    labels, known = in_numpy(labels, "labels"), in_numpy(known, "classes")
    kinds = {labels.dtype.kind, known.dtype.kind}
    if kinds == {"i", "u"} and np.result_type(labels, known).kind == "f":
        return labels.astype(object), known.astype(object)
    if kinds in ({"M"}, {"m"}):
        exact = in_unit(labels, known.dtype)
        exact[in_unit(exact, labels.dtype) != labels] = "NaT"
        return exact, known
    return labels, known


def positions(labels, known):
    """Return the position of each label among distinct known ones, -1 where it is none of them."""
    labels, known = of_one_type(labels, known)
    order = np.argsort(known)
    at = order[np.searchsorted(known, labels, sorter=order).clip(max=len(known) - 1)]
    return np.where(known[at] == labels, at, -1)


def plain_labels(labels):
    """Return labels as a list of what is printed well; ``tolist`` makes numbers of nanoseconds."""
    if labels.dtype.kind in "mM" and np.datetime_data(labels.dtype)[0] in FINER_THAN_PYTHON:
        coarse = in_unit(labels, f"{labels.dtype.kind}8[us]")
        exact = np.array_equal(in_unit(coarse, labels.dtype), labels)
        return coarse.tolist() if exact else list(map(str, labels))
    return labels.tolist()


def check_comparable(labels, name, known, of):
    """Raise if labels are of another kind than those known, which they could never equal."""
    kinds, others = label_kinds(labels), label_kinds(known)
    if kinds and others and kinds != others:
        one, other = sorted(kinds | others)
        raise ValueError(
            f"{name}, of dtype {labels.dtype}, and {of}, of dtype {known.dtype}, hold {one} and "
            f"{other}, which never match. Give both as the classifier was trained."
        )

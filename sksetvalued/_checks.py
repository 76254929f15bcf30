"""Checks of arguments that all parts of the package share."""

import inspect
import numbers
import os

import numpy as np
import torch

#: Numbers outside of these are 0 or infinite in single precision.
LARGEST_INTEGER = 2**31 - 1
SMALLEST, LARGEST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max


def check_positive_integer(name, value):
    """Raise unless `value` is an integer of at least 1."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value!r}.")
    if value > LARGEST_INTEGER:
        raise ValueError(f"{name} must be at most {LARGEST_INTEGER}, got {value!r:.50}.")


def check_integer(name, value, low, high=None, hint="", also=""):
    """Raise unless `value` is an integer of at least `low` and, if that is given, at most `high`.

    The `hint` says what else helps to correct a number out of range, and `also` what is taken
    beside integers.
    """
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer >= {low}{also}, got {value!r}.")
    if value < low or (high is not None and value > high):
        allowed = f"be >= {low}" if high is None else f"lie in [{low}, {high}]"
        raise ValueError(f"{name} must {allowed}, got {value}{hint and '; '}{hint}.")


def check_real(name, value, interval, hint="", also=""):
    """Raise unless `value` is a real number of an interval, such as "(0, 1]" or "[1, inf)".

    The `hint` says what else helps to correct a number outside of it, and `also` what is taken
    beside numbers.
    """
    # Fractions are real, too, but no number to NumPy and SciPy.
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number in {interval}{also}, got {value!r}.")
    low, high = map(float, interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    below = value <= high if interval[-1] == "]" else value < high
    if not (above and below):
        raise ValueError(f"{name} must lie in {interval}, got {value}{hint and '; '}{hint}.")


def check_option(name, value, options, also=""):
    """Raise unless `value` is one of some strings, or None where that is among them.

    `also` says what more is to be known of the options.
    """
    known = value in options if isinstance(value, str) else value is None and None in options
    if not known:
        raise ValueError(f"{name} must be one of {options}{also}, got {value!r:.80}.")


def check_object(name, value):
    """Raise if `value` is a class, where an object of it is meant."""
    if isinstance(value, type):
        raise TypeError(
            f"{name}={value.__name__} is a class: pass an object of it, as by "
            f"{name}={value.__name__}(...)."
        )


def check_number(name, value, low, inclusive):
    """Raise unless `value` is a number of single precision, at least (or above) `low`."""
    if not isinstance(value, int | float | np.number) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    if isinstance(value, complex | np.complexfloating):
        raise TypeError(f"{name} must be a real number, got {value!r}.")
    # Half precision of NumPy would take the bounds for its own, which are infinite.
    number = value.item() if isinstance(value, np.generic) else value
    inside = number >= low if inclusive else number > low and number >= SMALLEST
    if not (inside and number <= LARGEST):
        bound = "at least" if inclusive else "above"
        raise ValueError(
            f"{name} must be finite and {bound} {low}, got {value!r:.50} in single precision."
        )


def decoded_path(path):
    """Return a path as a string, or raise naming the parameter."""
    try:
        return os.fsdecode(path)
    except TypeError as error:
        raise TypeError(f"path must be a string or a path, got {path!r}.") from error


def check_in_order(values, name, classes=None, of="classes"):
    """Raise if values come with names in another order than that of the classes.

    These are sorted if they are not given; `of` is what their parameter is called.
    """
    index = getattr(values, "index", None)
    if not hasattr(index, "tolist"):
        return
    given = index.tolist()
    # That of categories sorts by their order, which is not that of the classes.
    by_name = f"loc[sorted({name}.index)]" if str(index.dtype) == "category" else "sort_index()"
    # Not the numbers that a Series has by itself.
    if classes is not None and type(index).__name__ != "RangeIndex":
        names = classes.tolist()
        same = len(names) == len(given) and set(names) == set(given)
        if same and names != given:
            remedy = by_name if names == sorted(names) else f"loc[{of}]"
            first = next(i for i, (mine, other) in enumerate(zip(given, names)) if mine != other)
            raise ValueError(
                f"{name} must be in the order of {of}, but at position {first} its index holds "
                f"{given[first]!r}, and {of} {names[first]!r}: pass {name}.{remedy}."
            )
        if same:
            return
        if {*map(type, names), *map(type, given)} == {str}:
            missing, others = sorted(set(names) - set(given)), sorted(set(given) - set(names))
            wrong = [f"lacks {missing[:5]}"] if missing else []
            wrong += [f"names {others[:5]}, which are none of them"] if others else []
            raise ValueError(
                f"{name} must have one entry for each of {of}, but its index "
                f"{' and '.join(wrong) or 'holds one twice'}."
            )
    if not _are_sorted(given):
        raise ValueError(
            f"{name} must be in the order of the classes, but its index {given[:5]} is not in "
            f"order: use {name}.{by_name}, or an array."
        )


def _are_sorted(names):
    """Return whether names are in order; those of several types have none."""
    try:
        return names == sorted(names)
    except TypeError:
        return False


def check_class_counts(class_counts):
    """Return the counts of the classes as a tensor; raise unless all are finite and positive."""
    check_in_order(class_counts, "class_counts")
    try:
        if hasattr(class_counts, "__array__") and not isinstance(class_counts, torch.Tensor):
            class_counts = _plain_array(class_counts)
        counts = torch.as_tensor(class_counts)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"class_counts must be a vector of numbers, got {class_counts!r:.50}: {error}."
        ) from error
    if counts.is_complex():
        raise TypeError("class_counts must be real numbers, got complex ones.")
    if counts.ndim != 1 or counts.numel() == 0:
        raise ValueError(
            "class_counts must be a vector with one count per class, "
            f"got shape {tuple(counts.shape)}."
        )
    if counts.device.type != "meta":
        wrong = torch.nonzero(~((counts > 0) & torch.isfinite(counts))).flatten().tolist()
        if wrong:
            raise ValueError(
                f"class_counts must be positive and finite, but classes {wrong} have counts "
                f"{counts[wrong].tolist()}; drop these classes or give them samples."
            )
    return counts


def _plain_array(counts):
    """Return a copy of an array of a type, and in an order, that torch takes."""
    counts = np.array(counts, order="C")
    others = {"u": np.int64, "O": np.float64}
    return counts.astype(others.get(counts.dtype.kind, counts.dtype.newbyteorder("=")))


def check_takes(name, function, *arguments, example):
    """Raise unless a function can be called with these arguments, whose names are given."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise TypeError(
            f"{name}={function!r} cannot be called with {' and '.join(arguments)} alone "
            f"({error}): give a function such as {example}."
        ) from error
    except ValueError:  # of what is not written in Python
        pass

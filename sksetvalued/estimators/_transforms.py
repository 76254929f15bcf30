"""Known transforms of torchvision by their parameters, for files that hold no code."""

import importlib
import math

import torch

from .._signatures import parameters_of

#: What a file may name, of ``torchvision.transforms`` and its ``v2``.
NAMES = {
    *("CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype", "FiveCrop", "GaussianBlur"),
    *("Grayscale", "Identity", "Normalize", "PILToTensor", "Pad", "RGB", "RandAugment"),
    *("RandomCrop", "RandomErasing", "RandomGrayscale", "RandomHorizontalFlip"),
    *("RandomResizedCrop", "RandomRotation", "RandomVerticalFlip", "Resize", "TenCrop"),
    *("ToDtype", "ToImage", "ToTensor", "TrivialAugmentWide"),
}
#: What the ``transforms()`` of named weights returns.
PRESETS = {"ImageClassification"}
MODULES = {
    "v1": ("torchvision.transforms", NAMES),
    "v2": ("torchvision.transforms.v2", NAMES),
    "preset": ("torchvision.transforms._presets", PRESETS),
}
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64)
}
#: Bounds of what a file may ask of the images of its reader: sizes and other numbers, pixels
#: added around, transforms after each other.
LARGEST = 1024
MOST_PADDING = 64
MOST_STEPS = 20


class NotKnown(ValueError):
    """Raised on a transform that no file may hold."""


def is_transform(value):
    """Return whether `value` is an object of the transforms of torchvision."""
    return type(value).__module__.startswith("torchvision.transforms.")


def described(transform):
    """Return the name of a transform and its parameters, as names and numbers.

    Raises
    ------
    NotKnown
        One that is not in the closed list, or has values that no file may set.
    """
    cls = type(transform)
    kind = next((k for k in _kinds(cls.__name__) if _class(k) is cls), None)
    if kind is None or _has_hooks(transform):
        raise NotKnown(f"{transform!r:.200}, which is none of the transforms that files know")
    params = {name: _plain(getattr(transform, name)) for name in sorted(parameters_of(cls))}
    if kind == "preset.ImageClassification":
        # It puts these into lists.
        params |= {name: params[name][0] for name in ("crop_size", "resize_size")}
    if kind == "v2.RandomCrop" and isinstance(params["padding"], list):
        left, right, top, bottom = params["padding"]
        params["padding"] = [left, top, right, bottom]
    # The classes of v1 take no None where they keep one.
    params = {name: value for name, value in params.items() if value is not None}
    _check(kind, params)
    if not _is_rebuilt(transform, kind, params):
        raise NotKnown(f"{transform!r:.200}, which keeps its parameters in another form")
    return kind, params


def _is_rebuilt(transform, kind, params):
    """Return whether the parameters make a transform that keeps the same ones."""
    try:
        other = rebuilt(kind, params)
    except (TypeError, ValueError):
        return False
    names = parameters_of(type(transform))
    return all(_plain(getattr(other, n)) == _plain(getattr(transform, n)) for n in names)


def rebuilt(kind, params):
    """Return the transform that :func:`described` described.

    Raises
    ------
    ValueError
        Anything else.
    """
    if not isinstance(kind, str) or kind not in _kinds(kind.partition(".")[2]):
        raise NotKnown(f"an unknown transform {kind!r:.50}")
    cls = _class(kind)
    if not isinstance(params, dict) or not params.keys() <= parameters_of(cls):
        raise NotKnown(f"a malformed transform {kind}")
    _check(kind, params)
    return cls(**{name: _made(name, value) for name, value in params.items()})


def _kinds(name):
    return [f"{version}.{name}" for version, (_, names) in MODULES.items() if name in names]


def _class(kind):
    """Return the class, or None if this torchvision lacks it."""
    version, _, name = kind.partition(".")
    return getattr(importlib.import_module(MODULES[version][0]), name, None)


def _has_hooks(transform):
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    return any(getattr(transform, name, None) for name in hooks) or "forward" in vars(transform)


def _plain(value):
    """Return a parameter as data; what is none is found by :func:`_check`."""
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if type(value).__name__ == "InterpolationMode":
        return value.value
    return value


def _made(name, value):
    """Return what a class takes for a parameter of a file."""
    from torchvision.transforms import InterpolationMode

    if name == "interpolation":
        return InterpolationMode(value)
    return DTYPES[value] if name == "dtype" else value


def _check(kind, params):
    """Raise unless the parameters of a transform are such that a file may set them."""
    for name, value in params.items():
        if name == "transforms":
            fits = isinstance(value, list | tuple) and all(map(is_transform, value))
            fits = fits and _n_steps(value) <= MOST_STEPS
        elif name in ("interpolation", "padding_mode", "dtype"):
            fits = type(value) is str and (name != "dtype" or value in DTYPES)
        else:
            fits = _are_numbers(value, MOST_PADDING if name == "padding" else LARGEST)
            fits = fits and not (name == "expand" and value)
        if not fits:
            raise NotKnown(f"{kind} with {name}={value!r:.100}, which no file may set")


def _n_steps(transforms):
    return sum(1 + _n_steps(getattr(t, "transforms", [])) for t in transforms)


def _are_numbers(value, largest):
    if isinstance(value, list | tuple):
        return len(value) <= LARGEST and all(_are_numbers(v, largest) for v in value)
    known = type(value) in (bool, int, float)
    return known and math.isfinite(value) and abs(value) <= largest

"""Samples of several named parts, as a network with several arguments takes them."""

import numpy as np
import scipy.sparse as sp
import torch

from .._arrays import as_array, check_masks, check_plain, names_of_columns, to_tensor
from ._base import NO_SAMPLES, Inputs, check_single_precision
from ._devices import fits_on, moved

#: A label among the parts would be shown to the network.
LABEL_NAMES = {"label", "labels", "target", "targets", "y"}


class NamedTensors(dict):
    """A batch of several parts: tensors by name, of one length, which is that of the batch."""

    #: Unlike that of any batch of images or rows, and of their views.
    ndim = 0

    def __len__(self):
        return len(next(iter(self.values())))

    def to(self, device, **options):
        """Return the batch on a device."""
        return NamedTensors({name: part.to(device, **options) for name, part in self.items()})

    def pin_memory(self):
        """Return the batch in pinned memory."""
        return NamedTensors({name: part.pin_memory() for name, part in self.items()})


def check_names(names):
    """Raise unless `names` can be arguments of a network, and none is that of a label."""
    names = list(names)
    wrong = [name for name in names if not isinstance(name, str) or not name.isidentifier()]
    if wrong or not names:
        raise TypeError(
            "the keys of X must be names of arguments of the network, got "
            f"{wrong[:5] or 'none'}: rename them."
        )
    labels = sorted(LABEL_NAMES.intersection(names))
    if labels:
        raise ValueError(
            f"X holds {labels}, which the network would be shown: leave {labels[0]!r} out of X, "
            "and pass it as y."
        )


def part_tensor(value, name):
    """Return a part as a tensor: integers in full width, floats in single precision."""
    if not isinstance(value, torch.Tensor):
        value = to_tensor(_part_array(value, name))
    check_plain(value, f"X[{name!r}]")
    if value.is_complex():
        raise TypeError(f"X[{name!r}] must hold real numbers, got {value.dtype}.")
    value = value.detach()
    if not value.is_floating_point():
        return value if value.dtype in (torch.bool, torch.uint8) else _as_long(value, name)
    if not torch.isfinite(value).all():
        raise ValueError(f"X[{name!r}] holds NaN or infinite values.")
    if value.dtype == torch.float64 and value.numel():
        check_single_precision(value.abs().max().item(), f"X[{name!r}]")
    return value.float()


def _as_long(value, name):
    long = value.long()
    if value.dtype == torch.uint64 and (long < 0).any():
        raise ValueError(
            f"X[{name!r}] holds integers up to {long[long < 0].max().item() + 2**64}, more than "
            "the 2**63 - 1 of torch: of hashes, take them modulo the number of buckets first."
        )
    return long


def _part_array(value, name):
    columns = names_of_columns(value)
    if columns is not None and any(isinstance(column, str) for column in columns):
        raise TypeError(
            f"X[{name!r}] is a data frame, the names of whose columns would be ignored: pass "
            f"X[{name!r}].to_numpy(), with the columns in the order of those of fit."
        )
    check_masks(value, f"X[{name!r}]")
    if sp.issparse(value):
        as_array(value, f"X[{name!r}]")
    try:
        array = np.asarray(value)
    except ValueError:  # rows of several lengths
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"X[{name!r}] must be an array of numbers, one row per sample, got {array.dtype} "
            "values: pad sequences to one length, as with padding='max_length' of a tokenizer."
        )
    return array


def form_of(parts):
    """Return shape and type of each part of a sample, from tensors of parts of one sample."""
    return {
        name: (tuple(part.shape), str(part.dtype).removeprefix("torch."))
        for name, part in parts.items()
    }


def is_image(form):
    """Return whether the form of a sample is that of an image: (channels, height, width)."""
    return not isinstance(form, dict) and len(form) == 3


def same_form(form, other):
    """Return whether samples have the same parts, of the same types; lengths may differ."""

    def loosely(form):
        return {name: (len(shape), dtype) for name, (shape, dtype) in form.items()}

    return isinstance(form, dict) and isinstance(other, dict) and loosely(form) == loosely(other)


def plain_sample(form, value, device=None, n_samples=1):
    """Return a batch of samples whose entries are all one value."""
    return NamedTensors(
        (name, torch.full((n_samples, *shape), value, dtype=getattr(torch, dtype), device=device))
        for name, (shape, dtype) in form.items()
    )


class NamedInputs(Inputs):
    """Arrays by name, of one length; the network gets their rows as keyword arguments.

    Parameters
    ----------
    parts : mapping of str to array-like or Tensor of shape (n_samples, ...)
    """

    kind = "named"

    def __init__(self, parts):
        check_names(parts.keys())
        self.tensors = {name: part_tensor(parts[name], name) for name in parts.keys()}  # noqa: SIM118
        for name, tensor in self.tensors.items():
            if not tensor.ndim:
                raise ValueError(f"X[{name!r}] is one number; it must have a row per sample.")
        lengths = {name: len(tensor) for name, tensor in self.tensors.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the parts of X must have one length, got {lengths}.")
        if not len(self):
            raise ValueError(NO_SAMPLES)

    @property
    def sample_shape(self):
        return form_of({name: part[0] for name, part in self.tensors.items()})

    def __len__(self):
        return len(next(iter(self.tensors.values())))

    def take(self, indices):
        return NamedTensors(
            (name, part.index_select(0, moved(indices, part.device)))
            for name, part in self.tensors.items()
        )

    def subset(self, indices, training=False):
        return self._with(self.take(torch.as_tensor(np.asarray(indices))))

    def to(self, device):
        n_bytes = sum(part.nbytes for part in self.tensors.values())
        if not fits_on(device, n_bytes):
            return self
        return self._with({name: part.to(device) for name, part in self.tensors.items()})

    def _with(self, tensors):
        other = object.__new__(NamedInputs)
        other.tensors = dict(tensors)
        return other

    def parts(self):
        return [part for pair in self.tensors.items() for part in pair]


def named_arrays(parts):
    """Return the parts of samples as arrays or tensors, as they are, once they are checked.

    Parameters
    ----------
    parts : mapping of str to array-like or Tensor of shape (n_samples, ...)
    """
    NamedInputs(parts)
    return {n: p if isinstance(p, torch.Tensor) else np.asarray(p) for n, p in parts.items()}

"""Samples of a torch Dataset."""

import copy
import math
import os
from collections.abc import Sequence
from functools import partial
from numbers import Number

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from .._arrays import as_array, check_masks, check_strings
from .._randomness import put_back
from ._devices import fits_on
from ._transforms import SampleInputs, as_samples, parts_remedy

#: Attributes that hold the labels of the data sets of torchvision.
TARGET_ATTRIBUTES = ("targets", "labels", "_labels", "y")
PAIR_ATTRIBUTES = ("samples", "_samples")


class DatasetInputs(SampleInputs):
    """Samples of a map-style Dataset: items ``(x, y)``, or ``x`` alone.

    Of several parts, ``x`` is a dict.

    Parameters
    ----------
    dataset : torch.utils.data.Dataset or skorch.helper.SliceDataset
        Its own transform is applied first, in training and in evaluation.
    transform : None, callable or dict
        Applied to ``x``.
    """

    kind = "dataset"
    #: Labels that items are compared with when they are read.
    _stored = None

    def __init__(self, dataset, transform=None):
        if not hasattr(dataset, "__len__"):
            raise TypeError(
                f"X must be a Dataset with a length and items by position, got "
                f"{type(dataset).__name__}: load its samples first, or write their paths."
            )
        super().__init__(len(dataset), transform)
        self.dataset = dataset
        if type(dataset) is TensorDataset and len(dataset.tensors) > 2:
            raise TypeError(parts_remedy(f"X has {len(dataset.tensors)} tensors"))

    @property
    def runs_user_code(self):
        return not self.in_memory

    @property
    def in_memory(self):
        return self.transform is None and type(self.dataset) is TensorDataset

    def take(self, indices, seed=None):
        if not self.in_memory:
            return super().take(indices, seed)
        positions = self.indices[np.asarray(indices)]
        batch = self.dataset.tensors[0].detach()[positions]
        self._check_dimensions(batch.shape[1:], batch.ndim == 5, positions[0])
        return as_samples(batch[:, None] if batch.ndim in (1, 3) else batch)

    def to(self, device):
        if not self.in_memory or torch.device(device).type != "cuda":
            return self
        data = self.dataset.tensors[0].detach()
        if not fits_on(device, len(self) * data[:1].nbytes):
            return self
        there = copy.copy(self)
        own = data if len(self) == len(data) else data[self.indices]
        there.dataset = TensorDataset(own.to(device))
        there.indices = np.arange(len(self))
        return there

    def parts(self):
        return [*_told(self.dataset), self.indices]

    def targets(self):
        """Return the labels, of shape (n_samples,).

        They are those of the attributes that the data sets of torchvision have, seen through
        Subset, ConcatDataset and a target transform, which are compared with what items say
        whenever these are read. Failing that, or where the first, the middle or the last item
        says otherwise, each item is read once.

        Raises
        ------
        ValueError
            Items without labels.
        """
        self._stored = _agreed_targets(self.dataset)
        return _targets_of(self.dataset, self._stored)

    def describe(self, position):
        return f"item {position} of {type(self.dataset).__name__}"

    def read(self, position):
        item = self.dataset[int(position)]
        if isinstance(item, tuple | list) and len(item) > 2:
            raise TypeError(parts_remedy(f"{self.describe(position)} has {len(item)} parts"))
        if self._stored is not None and not _may_say(item, self._stored[position]):
            raise ValueError(
                f"{self.describe(position)} has the label {item[1]!r}, where the attribute that "
                f"tells all labels has {self._stored[position]!r}: pass y, the labels to learn."
            )
        # A namedtuple or list of one is a sample without its label.
        return item[0] if isinstance(item, tuple | list) else item


def _told(dataset):
    """Return what tells a Dataset from others without reading its items.

    That is the class and the length, the positions in Subsets and SliceDatasets, and samples, or
    the names of their files, where they are kept in the attributes that the data sets of
    torchvision have.
    """
    told = [type(dataset).__qualname__, str(len(dataset))]
    if isinstance(dataset, Sequence) and hasattr(dataset, "indices_"):  # skorch's SliceDataset
        part = [f"part {dataset.idx}", np.asarray(dataset.indices_)]
        return [*told, *part, *_told(dataset.dataset)]
    if isinstance(dataset, Subset):
        return [*told, np.asarray(dataset.indices), *_told(dataset.dataset)]
    if isinstance(dataset, ConcatDataset):
        return [*told, *map(_told, dataset.datasets)]
    if type(dataset) is TensorDataset:
        return [*told, dataset.tensors[0]]
    data = getattr(dataset, "data", None)
    plain = isinstance(data, np.ndarray) and not data.dtype.hasobject
    if (plain or torch.is_tensor(data)) and data.ndim and len(data) == len(dataset):
        told.append(data)
    for name in PAIR_ATTRIBUTES:
        pairs = getattr(dataset, name, None)
        if isinstance(pairs, list) and len(pairs) == len(dataset) and all(map(_is_file, pairs)):
            # Where the folder is may differ between machines.
            told += [os.path.basename(path) for path, *_ in pairs]
    return told


def _is_file(pair):
    return isinstance(pair, tuple) and bool(pair) and isinstance(pair[0], str | os.PathLike)


def check_pairs(dataset):
    """Raise if what stands at the place of a label is no label, although labels are given apart.

    Parameters
    ----------
    dataset : torch.utils.data.Dataset
    """
    with put_back():
        item = dataset[0] if len(dataset) else None
    if isinstance(item, tuple | list) and len(item) == 2 and math.prod(np.shape(item[1])) > 1:
        raise TypeError(parts_remedy("the items of X have a second part that is no label"))


def _targets_of(dataset, stored):
    """Return the labels that are stored, or those of the items where there are none."""
    if stored is None:
        with put_back():
            targets = [_item_target(dataset, i) for i in range(len(dataset))]
        stored = _without_tensors(targets)
    return _as_array(stored)


def _agreed_targets(dataset):
    """Return the labels that are stored; None if there are none, or some items say otherwise."""
    targets = _stored_targets(dataset)
    if targets is None:
        return None
    some = sorted({0, len(targets) // 2, len(targets) - 1} if len(targets) else ())
    with put_back():
        agree = all(_may_say(dataset[int(i)], targets[i]) for i in some)
    return targets if agree else None


def _may_say(item, target):
    """Return whether an item has the label that is stored, as far as it has any.

    That of an item may be shares of all classes, but no indicators of several labels.
    """
    if not _is_pair(item):
        return True
    (label,), target = _without_tensors([item[1]]), np.squeeze(target)
    if isinstance(label, np.ndarray) and label.size == 1:
        label = label.reshape(-1)[0]
    if isinstance(label, str | Number | np.generic):
        return np.array_equal(label, target)
    if isinstance(label, np.ndarray) and not target.ndim:
        return label.dtype.kind in "biuf" and np.isclose(label.sum(), 1)
    return True


def _as_array(targets):
    """Return labels as an array, label sets as one of objects."""
    check_masks(targets, "y")
    check_strings(targets, "y")
    try:
        values = np.asarray(targets)
    except ValueError:  # lists of several lengths
        values = None
    if values is not None and (values.ndim == 1 or values.dtype.kind in "biuf"):
        return values
    values = np.empty(len(targets), dtype=object)
    for i, target in enumerate(targets):
        values[i] = target
    return values


def _stored_targets(dataset):
    """Return labels that need no reading of samples, or None."""
    if isinstance(dataset, Subset):
        targets = _stored_targets(dataset.dataset)
        return None if targets is None else np.asarray(targets)[np.asarray(dataset.indices)]
    if isinstance(dataset, ConcatDataset):
        parts = [_stored_targets(part) for part in dataset.datasets]
        if any(p is None for p in parts):
            return None
        if len({p.ndim for p in parts}) > 1:  # label sets of one length, and of several
            return _as_array([labels for part in parts for labels in part.tolist()])
        return np.concatenate(parts)
    if type(dataset) is TensorDataset:
        return as_array(dataset.tensors[-1], "y") if len(dataset.tensors) > 1 else None
    targets = _attribute_targets(dataset)
    transform = getattr(dataset, "target_transform", None)
    if targets is None or transform is None:
        return targets
    return _as_array([transform(target) for target in targets])


def _attribute_targets(dataset):
    for name in TARGET_ATTRIBUTES:
        targets = getattr(dataset, name, None)
        if _is_one_each(targets, dataset):
            return as_array(targets, "y") if torch.is_tensor(targets) else _as_array(targets)
    for name in PAIR_ATTRIBUTES:
        pairs = getattr(dataset, name, None)
        if _is_one_each(pairs, dataset) and all(map(_is_pair, pairs)):
            return _as_array([label for _, label in pairs])
    if hasattr(dataset, "categories_map") and getattr(dataset, "target_type", ()) == ["full"]:
        # torchvision's INaturalist: (category, file) by position.
        return np.asarray([category for category, _ in dataset.index])
    return None


def _is_one_each(values, dataset):
    """Return whether an attribute, which may be anything, is a sequence with one for each item."""
    is_sequence = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    return (is_sequence or getattr(values, "ndim", 0) > 0) and len(values) == len(dataset)


def _is_pair(value):
    return isinstance(value, tuple | list) and len(value) == 2


def _item_target(dataset, i):
    item = dataset[i]
    if not isinstance(item, tuple | list) or len(item) < 2:
        raise ValueError(
            f"item {i} of {type(dataset).__name__} has no label: pass y, or a Dataset whose items "
            "are pairs (x, y)."
        )
    return item[1]


def _without_tensors(targets):
    """Return targets with arrays for tensors, or with numbers if each tensor holds one.

    Label sets may hold one label, too, where others hold several.
    """
    tensors = [target for target in targets if torch.is_tensor(target)]
    of_one = all(t.numel() == 1 for t in tensors)
    plain = torch.Tensor.item if of_one else partial(as_array, name="y")
    return [plain(t) if torch.is_tensor(t) else t for t in targets]

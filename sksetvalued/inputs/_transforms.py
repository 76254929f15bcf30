"""Samples read one at a time, transformed, and stacked into batches of tensors."""

import contextlib
import copy
import struct
from abc import abstractmethod
from collections.abc import Mapping, MutableMapping
from decimal import Decimal
from numbers import Real
from typing import NamedTuple

import numpy as np
import torch

from .. import _arrays
from .._randomness import put_back
from ._base import NO_SAMPLES, ChannelStatistics, Inputs
from ._named import NamedTensors, check_names, form_of, part_tensor
from ._tables import ArrayInputs

STAGES = ("train", "eval")
#: Transforms of torchvision that draw nothing.
STEADY = {
    *("CenterCrop", "ConvertImageDtype", "FiveCrop", "Grayscale", "Identity", "Normalize"),
    *("ImageClassification", "PILToTensor", "Pad", "RGB", "Resize", "TenCrop", "ToDtype"),
    *("ToImage", "ToTensor"),
}
CHANNEL_COUNTS = (1, 3, 4)
#: Arrays that are longer than so many times their other side are taken for signals.
LONGEST = 8
#: Tensors of at least that many rows and columns, and 3 or 4 layers, have their channels last.
SMALLEST_IMAGE = 8
#: Number by which EXIF data hold how the camera was held.
ORIENTATION = 0x0112
#: Raised by malformed metadata of an image, whose pixels may be whole.
EXIF_ERRORS = (SyntaxError, ValueError, KeyError, TypeError, struct.error)
N_STATISTICS_SAMPLES = 512
STATISTICS_BATCH = 32


def check_transform(transform):
    """Return the transforms of training and evaluation as a dict.

    Parameters
    ----------
    transform : None, callable, or dict with keys among "train" and "eval"
        A callable serves for both; a stage that the dict lacks has none.

    Raises
    ------
    TypeError, ValueError
        Anything else.
    """
    if transform is None or callable(transform):
        return dict.fromkeys(STAGES, transform)
    if not isinstance(transform, dict):
        raise TypeError(
            "transform must be None, a callable or a dict {'train': ..., 'eval': ...}, got "
            f"{transform!r}."
        )
    unknown = sorted(set(transform) - set(STAGES), key=str)
    if unknown:
        raise ValueError(f"transform has unknown keys {unknown}; it accepts {STAGES}.")
    for stage, function in transform.items():
        if function is not None and not callable(function):
            raise TypeError(f"transform[{stage!r}] must be a callable or None, got {function!r}.")
    return {stage: transform.get(stage) for stage in STAGES}


def may_draw(transform):
    """Return whether a transform may draw from torch: any but None and some of torchvision."""
    cls = type(transform)
    if not cls.__module__.startswith("torchvision.transforms."):
        return transform is not None
    if cls.__name__ == "Compose":
        return any(map(may_draw, transform.transforms))
    return cls.__name__ not in STEADY


def to_tensor(value):
    """Return a sample as a tensor: (channels, height, width) for images, else a vector.

    Parameters
    ----------
    value : PIL image, ndarray, Tensor or number
        Arrays of three dimensions have the channels where :func:`channels_last` says. Tensors
        have the channels first, as in torchvision.

    Returns
    -------
    tensor : Tensor
        Bytes stay bytes, all else becomes float32.
    """
    _arrays.check_masks(value, "a sample")
    if isinstance(value, torch.Tensor):
        tensor = value.detach().as_subclass(torch.Tensor)
    elif isinstance(value, np.ndarray | Real):
        tensor = _from_array(np.asarray(value))
    elif hasattr(value, "getbands"):
        tensor = _from_array(np.array(_eight_bits(value)))
    else:
        raise TypeError(
            "samples must be PIL images, arrays, tensors, numbers or lists of numbers (after "
            f"`transform`), got {type(value).__name__}."
        )
    if tensor.ndim == 2:
        check_grey(*tensor.shape)
    if tensor.ndim == 3:
        _check_channels_first(*tensor.shape)
    if tensor.ndim in (0, 2):
        tensor = tensor[None]
    return as_samples(tensor)


def as_samples(tensor):
    """Return a tensor of samples, or of one, in single precision; images of bytes as they are.

    Raises
    ------
    TypeError
        Complex numbers.
    """
    if tensor.is_complex():
        _raise_of_type(str(tensor.dtype).removeprefix("torch."))
    return tensor if tensor.dtype == torch.uint8 and tensor.ndim > 2 else tensor.float()


def _raise_of_type(dtype):
    remedy = "make numbers of the values first"
    if dtype.startswith("complex"):
        remedy = "give their parts, as by torch.view_as_real, or their magnitudes"
    raise TypeError(f"samples must hold real numbers, got {dtype}: {remedy}.")


def _check_channels_first(first, second, last):
    if last in (3, 4) and first not in CHANNEL_COUNTS and min(first, second) >= SMALLEST_IMAGE:
        raise ValueError(
            f"samples of shape ({first}, {second}, {last}) seem to have their channels last, but "
            "tensors have them first: permute them, x.permute(2, 0, 1), or return arrays of "
            "NumPy. Maps of many channels get a name, as in X={'map': X}."
        )


def check_grey(height, width):
    """Raise for arrays of two dimensions that are hardly grey images."""
    if max(height, width) > LONGEST * min(height, width):
        raise ValueError(
            f"samples of shape ({height}, {width}) may be signals or sequences, rather than grey "
            "images: give them a name, as in X={'signal': X} for a backbone with forward(self, "
            f"signal); grey images of this form have the shape (1, {height}, {width})."
        )


def _from_array(array):
    if array.dtype.kind not in "biuf" and not _holds_real_objects(array):
        _raise_of_type(str(array.dtype))
    if array.dtype != np.uint8:
        array = array.astype(np.float32)
    if array.ndim == 3 and channels_last(array.shape, array):
        array = array.transpose(2, 0, 1)
    return _arrays.to_tensor(array)


def _holds_real_objects(array):
    """Return whether an array of objects holds real numbers alone; durations pass for integers."""
    return array.dtype == object and all(
        isinstance(value, Real | Decimal | np.bool_) and not isinstance(value, np.timedelta64)
        for value in array.flat
    )


def channels_last(shape, images):
    """Return whether the last dimension of images of a shape, not the first, is the channels'.

    Parameters
    ----------
    shape : tuple of 3 int
    images : ndarray or Tensor
        Tensors have the channels first where both dimensions may be theirs, as in torchvision.
    """
    first, middle, last = shape
    if (first in CHANNEL_COUNTS) != (last in CHANNEL_COUNTS):
        return last in CHANNEL_COUNTS
    if first in CHANNEL_COUNTS:
        return not isinstance(images, torch.Tensor)
    if first == last:
        raise ValueError(
            f"images of shape {tuple(shape)} may have their channels first or last: pass a torch "
            "Dataset that returns tensors of shape (channels, height, width)."
        )
    if middle in (first, last):  # of square images
        return middle == first
    return last < first


def with_plain_bands(image):
    """Return a PIL image of 8 bits a channel as grey or colour; anything else as it is."""
    deep = not hasattr(image, "getbands") or image.mode.startswith(("I", "F"))
    return image if deep else _eight_bits(image)


def _eight_bits(image):
    """Return a PIL image as grey ("L") or colour ("RGB")."""
    if image.mode in ("L", "RGB"):
        return image
    if image.mode.startswith(("I", "F")):
        raise ValueError(
            f"images of mode {image.mode!r} have more than 8 bits a channel, which cannot be "
            "made bytes without loss: pass arrays, or a Dataset that returns float tensors."
        )
    return image.convert("L" if image.mode == "1" else "RGB")


def _form(tensor):
    return f"of shape {tuple(tensor.shape)} and {tensor.dtype}"


def upright(image):
    """Turn a PIL image that was opened from a file as its metadata (EXIF) say the camera was held.

    Anything else stays as it is: what made an image of another may have turned it already.
    """
    from PIL import ImageFile, ImageOps

    if isinstance(image, ImageFile.ImageFile):
        with contextlib.suppress(*EXIF_ERRORS):  # then nothing is known of the camera
            if image.getexif().get(ORIENTATION, 1) != 1:
                return ImageOps.exif_transpose(image)
    return image


def _is_vector(sample):
    """Return whether a sample is a list of numbers, rather than of views."""
    listed = isinstance(sample, tuple | list) and len(sample) > 0
    return listed and all(isinstance(value, Real) for value in sample)


def _own(sample):
    """Return a sample whose values a transform may change in place."""
    if isinstance(sample, MutableMapping):
        own = copy.copy(sample)
        for name, part in sample.items():
            own[name] = _own(part)
        return own
    if isinstance(sample, torch.Tensor):
        return sample.clone()
    has_copy = isinstance(sample, np.ndarray | list) or hasattr(sample, "getbands")
    return sample.copy() if has_copy else sample


def parts_remedy(what):
    """Return what to say of samples of several parts without names."""
    return (
        f"{what}, of which a network would see the first alone: items must be pairs (x, y), or x "
        "alone. Return x as a dict of the arguments of the network, such as ({'input_ids': ids, "
        "'attention_mask': mask}, y), or pass X as such a dict of arrays."
    )


class SampleInputs(Inputs):
    """Base of the inputs that read and transform samples one at a time, in worker processes.

    Subclasses define :meth:`read` and :meth:`describe`. A transform of evaluation may return
    several views of a sample (a tuple, a list, or a tensor with one more dimension). A tuple or
    list of numbers is one vector.

    Parameters
    ----------
    n_samples : int
    transform : None, callable or dict
        See :func:`check_transform`.
    """

    in_memory = False
    #: Whether samples are made anew when they are read, so that a transform may change them.
    reads_anew = False

    def __init__(self, n_samples, transform):
        self.transforms = check_transform(transform)
        self.training = False
        self.indices = np.arange(n_samples)
        self._form = self._form_from = None

    @abstractmethod
    def read(self, position):
        """Return the sample at `position` of the whole data, before the transform."""

    @abstractmethod
    def describe(self, position):
        """Return the name of the sample at `position` for messages."""

    @property
    def transform(self):
        """What is applied to a sample at this stage, or None."""
        return self.transforms[STAGES[not self.training]]

    @property
    def runs_user_code(self):
        # A training sees samples as in evaluation, too.
        stages = STAGES if self.training else STAGES[1:]
        return any(may_draw(self.transforms[stage]) for stage in stages)

    @property
    def sample_shape(self):
        return self._first_form()[0]

    @property
    def of_bytes(self):
        return self._first_form()[1]

    def _first_form(self):
        """Return the shape of the first sample, and whether it is of bytes."""
        if self._form is None:
            if not len(self):
                raise ValueError(NO_SAMPLES)
            evaluation = copy.copy(self)
            evaluation.training = False
            # Looking at a sample must not change what a seeded transform draws later.
            with put_back() if self.runs_user_code else contextlib.nullcontext():
                sample, views = evaluation._load(self.indices[0])
            if isinstance(sample, Mapping):
                self._form = form_of(sample), False
            else:
                shape = tuple(sample.shape[1:] if views else sample.shape)
                self._form = shape, sample.dtype == torch.uint8
            self._form_from = self.indices[0]
        return self._form

    def __len__(self):
        return len(self.indices)

    def subset(self, indices, training=False):
        part = copy.copy(self)
        part.indices = self.indices[np.asarray(indices)]
        part.training = training
        return part

    def take(self, indices, seed=None):
        """Return samples as a batch.

        With `seed`, torch's generator is seeded for each sample, by its position too, and put
        back afterwards: what a transform draws then depends on nothing else.
        """
        positions = self.indices[np.asarray(indices)]
        if seed is None:
            samples = [self._load(position)[0] for position in positions]
        else:
            with put_back():
                samples = [self._load_seeded(position, seed) for position in positions]
        return self.stack(positions, samples)

    def _load_seeded(self, position, seed):
        torch.default_generator.manual_seed(seed + int(position))
        return self._load(position)[0]

    def stack(self, positions, samples):
        """Return prepared samples as one batch; positions are for messages.

        It is on the processor, wherever they are: loaders pin it for an accelerator.
        """
        if isinstance(samples[0], Mapping):
            return self._stacked_parts(positions, samples)
        for position, sample in zip(positions, samples, strict=True):
            if sample.shape != samples[0].shape or sample.dtype != samples[0].dtype:
                raise ValueError(self._unequal(positions[0], samples[0], position, sample))
        self._check_form(positions[0], samples[0])
        return torch.stack(samples).cpu()

    def _check_form(self, position, sample):
        """Raise if a sample is of another form than that of the first one, which is known."""
        alike = not self.training or self.transforms["train"] is self.transforms["eval"]
        if self._form is None or not alike:
            return
        shape, of_bytes = self._form
        own = tuple(sample.shape[-len(shape) :]), sample.dtype == torch.uint8
        if own != self._form:
            dtype = torch.uint8 if of_bytes else torch.float32
            first = torch.empty(shape, dtype=dtype, device="meta")
            raise ValueError(self._unequal(self._form_from, first, position, sample))

    def _stacked_parts(self, positions, samples):
        form = form_of(samples[0])
        for position, sample in zip(positions, samples, strict=True):
            if form_of(sample) != form:
                raise ValueError(
                    f"samples differ in form: {self.describe(positions[0])} is {form}, "
                    f"{self.describe(position)} is {form_of(sample)}; pad sequences to one length."
                )
        return NamedTensors((name, torch.stack([s[name] for s in samples]).cpu()) for name in form)

    def _load(self, position):
        try:
            return self.prepared(self.read(position), position)
        except StopIteration as error:
            # What goes through the batches would take it for their end.
            raise RuntimeError(
                f"{self.describe(position)} raised StopIteration when it was read or transformed, "
                "as next(...) does that finds nothing: give next a default, or raise another "
                "error."
            ) from error

    def prepared(self, sample, position):
        """Return the tensor of a sample, and whether its first dimension is that of views."""
        given = sample
        try:
            sample = upright(sample)
            if self.transform is not None:
                sample = self.transform(sample if self.reads_anew else _own(sample))
            if isinstance(sample, Mapping):
                check_names(sample.keys())
                return {name: part_tensor(sample[name], name) for name in sample}, False
            if _is_vector(sample):
                sample = np.asarray(sample)
            if isinstance(sample, tuple | list):
                views = [to_tensor(view) for view in sample]
                self._check_views(views, position)
                tensor, views = torch.stack(views), True
            else:
                tensor = to_tensor(sample)
                views = tensor.ndim == 4
        except Exception as error:
            error.add_note(
                f"raised on {self.describe(position)}, by `transform` if there is one, given: "
                f"{type(given).__name__}"
            )
            raise
        self._check_dimensions(tensor.shape, views, position)
        return tensor, views

    def _check_dimensions(self, shape, views, position):
        """Raise unless a sample of this shape is one vector or image, or views in evaluation."""
        if len(shape) > 4 or (views and self.training and self.transform is None):
            raise ValueError(
                f"{self.describe(position)} is of shape {tuple(shape)}: volumes and videos "
                "get a name, as in X={'volume': X} or a Dataset of dicts; several views of an "
                "image are for evaluation."
            )
        if views and self.training:
            raise ValueError(
                "transform must return a single view in training: give the views as "
                "transform={'train': ..., 'eval': ...}."
            )

    def _check_views(self, views, position):
        """Raise unless tensors are views of one sample."""
        if not views:
            raise ValueError(f"{self.describe(position)} is an empty list: give one view or more.")
        differ = len({view.shape for view in views}) > 1
        several_rows = self.training and len(views) > 1 and views[0].ndim < 2
        if self.transform is None and (differ or several_rows):
            raise TypeError(parts_remedy(f"{self.describe(position)} has several parts"))

    def _unequal(self, first, one, second, other):
        if self.transform is not None:
            remedy = "`transform` must give all of them one form"
        elif one.dtype != other.dtype:
            remedy = "give all of them one type"
        elif one.ndim != 3 or other.ndim != 3:
            remedy = "give all of them one shape"
        elif one.shape[1:] == other.shape[1:]:
            remedy = "give all of them as many channels, as by image.convert('RGB')"
        else:
            resize = "torchvision.transforms.v2.Resize((224, 224))"
            remedy = f"resize or crop them, as with transform={resize}"
        return (
            f"samples differ in form: {self.describe(first)} is {_form(one)}, "
            f"{self.describe(second)} is {_form(other)}; {remedy}."
        )

    def statistics(self, sample_weight=None):
        form = self.sample_shape
        if isinstance(form, Mapping):
            return None
        if len(form) == 1:
            return column_statistics(self, sample_weight)
        return channel_statistics(self) if len(form) == 3 else None


def column_statistics(inputs, sample_weight):
    """Return the statistics of each column of vectors, on samples spread evenly.

    Parameters
    ----------
    inputs : Inputs
    sample_weight : Tensor of shape (len(inputs),), optional

    Returns
    -------
    statistics : ColumnStatistics

    Raises
    ------
    ValueError
        Values that are not finite.
    """
    positions = _spread(inputs, N_STATISTICS_SAMPLES)
    batches = (batch.cpu().double() for batch in _batches(inputs, positions))
    rows = torch.cat([batch.flatten(0, -2) for batch in batches])
    if not torch.isfinite(rows).all():
        raise ValueError("X holds samples with NaN or infinite values.")
    if sample_weight is not None:  # each view of a sample has its weight
        n_views = len(rows) // len(positions)
        sample_weight = sample_weight[positions].repeat_interleave(n_views)
    return ArrayInputs(rows).statistics(sample_weight)


def _spread(inputs, n_samples):
    """Return positions of so many samples at most, spread evenly."""
    positions = np.linspace(0, len(inputs) - 1, min(n_samples, len(inputs)))
    return torch.from_numpy(np.unique(positions.astype(int)))


def _batches(inputs, positions):
    return (inputs.take(batch) for batch in positions.split(STATISTICS_BATCH))


def _spread_images(inputs, n_samples):
    """Yield batches of images spread evenly; bytes are divided by 255, and views are images."""
    for x in _batches(inputs, _spread(inputs, n_samples)):
        x = (x.double() / 255 if x.dtype == torch.uint8 else x.double()).flatten(0, -4)
        if not torch.isfinite(x).all():
            raise ValueError("X holds images with NaN or infinite values.")
        yield x


class ValueStatistics(NamedTuple):
    """Values of a few images, of all channels together.

    Parameters
    ----------
    mean, std : float
    median, distance : float
        The median of the values of an image, and that of their distances from it, of the median
        image each. What is the same in less than half of the pixels, such as the black around a
        rotated image, hardly moves them.
    low, high : float
        Of all images.
    """

    mean: float
    std: float
    median: float
    distance: float
    low: float
    high: float


def value_statistics(inputs):
    """Measure the values of a few images.

    Parameters
    ----------
    inputs : Inputs
        Images; bytes are divided by 255.

    Returns
    -------
    statistics : ValueStatistics

    Raises
    ------
    ValueError
        Values that are not finite.
    """
    x = torch.cat([images.flatten(1) for images in _spread_images(inputs, len(inputs))])
    medians = x.median(1).values
    distances = (x - medians[:, None]).abs().median(1).values
    std, mean = torch.std_mean(x, correction=0)
    typical = (medians.median(), distances.median(), x.min(), x.max())
    return ValueStatistics(mean.item(), std.item(), *(value.item() for value in typical))


def channel_statistics(inputs, n_samples=N_STATISTICS_SAMPLES):
    """Measure the channels of images on samples spread evenly over the inputs.

    Parameters
    ----------
    inputs : Inputs
        Images; bytes are divided by 255.
    n_samples : int
        How many samples are read at most, a batch at a time.

    Returns
    -------
    statistics : ChannelStatistics
        A channel that does not vary has ``std`` 1.

    Raises
    ------
    ValueError
        Values that are not finite.
    """
    count, total, squares = 0, 0.0, 0.0
    low, high, largest = float("inf"), -float("inf"), 0.0
    for x in _spread_images(inputs, n_samples):
        count += x.numel() // x.shape[1]
        total, squares = total + x.sum((0, 2, 3)), squares + x.square().sum((0, 2, 3))
        low, high = min(low, x.min().item()), max(high, x.max().item())
        largest = x.abs().amax((0, 2, 3)).clamp_min(largest)
    mean = total / count
    std = (squares / count - mean.square()).clamp_min(0).sqrt()
    std = torch.where(std > 1e-6 * largest, std, torch.ones_like(std))
    return ChannelStatistics(tuple(mean.tolist()), tuple(std.tolist()), low, high)

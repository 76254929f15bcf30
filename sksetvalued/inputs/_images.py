"""Images held in an array, a memory map or a tensor."""

import copy
import math

import numpy as np
import torch

from .._arrays import as_array, check_plain
from ._devices import fits_on, moved
from ._transforms import SampleInputs, channels_last, check_grey, to_tensor, with_plain_bands

FINITE_CHECK_ROWS = 256
#: Entries of images on their way to a device: a whole copy may not fit beside them.
MOVED_AT_ONCE = 1 << 20


class ListedImages(SampleInputs):
    """Images in a list, of several sizes or types, or of PIL and for a transform.

    Parameters
    ----------
    images : list of PIL images, ndarrays or Tensors
    transform : callable or dict
        Applied to PIL images as they are, and to others as tensors (channels, height, width).
    """

    kind = "image"

    def __init__(self, images, transform=None):
        super().__init__(len(images), transform)
        self.images = images

    def parts(self):
        images = (as_array(to_tensor(self.read(i)), "X") for i in self.indices)
        return [*images, self.indices]

    def describe(self, position):
        return f"image {position}"

    def read(self, position):
        image = self.images[position]
        if hasattr(image, "getbands"):
            return with_plain_bands(image)
        return to_tensor(as_array(image, "X") if isinstance(image, list | tuple) else image)


def need_a_list(images, transform):
    """Return whether no array can take the place of a list of images."""
    if transform is not None and any(hasattr(image, "getbands") for image in images):
        return True
    return len({_form(image) for image in images}) > 1


def _form(image):
    """Return what is alike for images that one array holds; bytes are not promoted."""
    if not hasattr(image, "getbands"):
        shape = np.shape(image)
        return shape, len(shape) > 1 and _of_bytes(image)
    modes = {"1": "L", "L": "L"}
    deep = image.mode.startswith(("I", "F"))
    return image.size, image.mode if deep else modes.get(image.mode, "RGB")


def _of_bytes(images):
    return getattr(images, "dtype", None) in (np.uint8, torch.uint8)


class ImageInputs(SampleInputs):
    """Images of one size, kept as they are stored until a batch needs them.

    Parameters
    ----------
    images : array-like or Tensor
        Of shape (n, height, width), (n, height, width, channels) or (n, channels, height,
        width). The channels are the dimension of 1, 3 or 4 entries, else the one beside a square,
        else the shorter one.
    transform : None, callable or dict
        Applied to tensors (channels, height, width), one image at a time.
    """

    kind = "image"

    def __init__(self, images, transform=None):
        if isinstance(images, list):
            images = [with_plain_bands(image) for image in images]
            if all(map(torch.is_tensor, images)):
                images = torch.stack(images)  # which have the channels first
        if torch.is_tensor(images):
            check_plain(images, "X")
            images = images.detach()  # its gradients are not for the training to write
        elif not isinstance(images, np.memmap):
            images = as_array(images, "X")
        _check_images(images)
        super().__init__(len(images), transform)
        self.data = images
        self.channels_last = images.ndim == 4 and channels_last(images.shape[1:], images)
        if images.ndim == 3:
            self._image_shape = (1, *images.shape[1:])
        else:
            sizes = images.shape[1:]
            self._image_shape = tuple((sizes[2], *sizes[:2]) if self.channels_last else sizes)

    @property
    def in_memory(self):
        return self.transform is None

    @property
    def sample_shape(self):
        if self.transforms["eval"] is None:
            return self._image_shape
        return super().sample_shape

    @property
    def of_bytes(self):
        if self.transforms["eval"] is None:
            return self._stores_bytes
        return super().of_bytes

    @property
    def _stores_bytes(self):
        return _of_bytes(self.data)

    @property
    def of_integers(self):
        """Whether pixels are whole numbers that are not divided by 255."""
        whole = isinstance(self.data, np.ndarray) and self.data.dtype.kind in "iu"
        return self.transform is None and whole and not self.of_bytes

    def parts(self):
        return [self.data, self.indices]

    def describe(self, position):
        return f"image {position}"

    def read(self, position):
        return self._gather(np.asarray([position]))[0]

    def take(self, indices, seed=None):
        if not self.in_memory:
            return super().take(indices, seed)
        if isinstance(self.indices, torch.Tensor):
            return self._gather(self.indices[moved(torch.as_tensor(indices), self.indices.device)])
        return self._gather(self.indices[np.asarray(indices)])

    def _gather(self, positions):
        """Return images as a batch (n, channels, height, width) of bytes or float32."""
        batch = self._stored(positions)
        if batch.ndim == 3:
            return batch[:, None]
        return batch.permute(0, 3, 1, 2) if self.channels_last else batch

    def _stored(self, positions):
        """Return images in the shape in which they are stored, of bytes or float32."""
        if isinstance(self.data, torch.Tensor):
            images = self.data[torch.as_tensor(positions, device=self.data.device)]
            return images if self._stores_bytes else images.float()
        images = np.asarray(self.data[positions])
        return torch.from_numpy(
            images if self._stores_bytes else images.astype(np.float32, copy=False)
        )

    def to(self, device):
        if torch.device(device).type != "cuda":
            return self
        n_entries = len(self) * math.prod(self._image_shape)
        if not fits_on(device, n_entries * (1 if self._stores_bytes else 4)):
            return self
        there = copy.copy(self)
        dtype = torch.uint8 if self._stores_bytes else torch.float32
        there.data = torch.empty(len(self), *self.data.shape[1:], dtype=dtype, device=device)
        n_rows = max(1, MOVED_AT_ONCE // math.prod(self._image_shape))
        for start in range(0, len(self), n_rows):
            some = slice(start, start + n_rows)
            there.data[some] = self._stored(self.indices[some])
        there.indices = torch.arange(len(self), device=device)
        return there


def _check_images(images):
    """Raise unless `images` holds finite numbers in 3 or 4 dimensions."""
    if images.ndim not in (3, 4):
        raise ValueError(
            "X must hold images of shape (n, height, width), (n, height, width, channels) or "
            f"(n, channels, height, width), got shape {tuple(images.shape)}. Volumes and videos "
            "get a name, as in X={'volume': X} for a backbone with forward(self, volume)."
        )
    if 0 in images.shape:
        raise ValueError(f"X holds no images or empty images: its shape is {tuple(images.shape)}.")
    if images.ndim == 3:
        check_grey(*images.shape[1:])
    dtype = images.dtype
    if isinstance(images, torch.Tensor):
        floating, number = dtype.is_floating_point, not dtype.is_complex
    else:
        floating, number = dtype.kind == "f", dtype.kind in "buif"
    if not number:
        raise TypeError(f"X must hold images of real numbers, got dtype {dtype}.")
    # A memory map is not read through for a check; bad values show in the statistics.
    if floating and not isinstance(images, np.memmap):
        _check_finite(images)


def _check_finite(images):
    for start in range(0, len(images), FINITE_CHECK_ROWS):
        rows = images[start : start + FINITE_CHECK_ROWS]
        isfinite = torch.isfinite if isinstance(rows, torch.Tensor) else np.isfinite
        if not isfinite(rows).all():
            raise ValueError("X holds images with NaN or infinite values.")

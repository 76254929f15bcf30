"""Images on disk, read when a batch needs them."""

import os

import numpy as np

from ._base import TEXTS_REMEDY
from ._transforms import SampleInputs, upright

N_PATHS_SHOWN = 3
#: What readers of images raise, by format.
UNREADABLE = OSError, RuntimeError, SyntaxError, ValueError


class PathInputs(SampleInputs):
    """Paths of images, decoded in colour (RGB) by the workers of a DataLoader.

    They are turned upright as their metadata (EXIF) say that the camera was held.

    Whether the files exist is checked at once; whether they are images, when they are read.

    Parameters
    ----------
    paths : sequence of str or path-like
    transform : None, callable or dict
        Applied to PIL images. ``torchvision.transforms.v2.Grayscale()`` gives one channel.
    """

    kind = "path"
    reads_anew = True

    def __init__(self, paths, transform=None):
        self.paths = _as_strings(paths)
        super().__init__(len(self.paths), transform)
        absent = [path for path in self.paths if not os.path.isfile(path)]
        if absent:
            shown = ", ".join(repr(str(path)) for path in absent[:N_PATHS_SHOWN])
            more = ", ..." if len(absent) > N_PATHS_SHOWN else ""
            remedy = f" {TEXTS_REMEDY}" if len(absent) == len(self.paths) else ""
            raise FileNotFoundError(
                f"X holds {len(absent)} paths (of {len(self.paths)}) that are not files: {shown}"
                f"{more}.{remedy}"
            )

    def parts(self):
        paths = self.paths[self.indices]
        return [paths, np.array([os.path.getsize(path) for path in paths])]

    def describe(self, position):
        return repr(str(self.paths[position]))

    def read(self, position):
        from PIL import Image

        path = str(self.paths[position])
        try:
            with Image.open(path) as image:
                _check_depth(image)
                return upright(image).convert("RGB")
        except FileNotFoundError:
            raise FileNotFoundError(f"The image {path!r} was removed.") from None
        except Image.UnidentifiedImageError as error:
            raise ValueError(f"The file {path!r} is not an image that PIL can read.") from error
        except (*UNREADABLE, Image.DecompressionBombError) as error:
            raise ValueError(f"The image {path!r} cannot be read: {error}.") from error


def _check_depth(image):
    if image.mode.startswith(("I", "F")):
        raise ValueError(
            f"it has more than 8 bits a channel (mode {image.mode!r}); pass a torch Dataset that "
            "returns float tensors"
        )


def _as_strings(paths):
    """Return the paths as an array of str, which workers share without copying it."""
    values = paths if isinstance(paths, list | tuple) else np.asarray(paths)
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise ValueError(f"X must hold paths in one dimension, got shape {values.shape}.")
    for i, value in enumerate(values):
        if not isinstance(value, str | os.PathLike) or not str(value):
            raise TypeError(
                f"X must hold paths of images, but X[{i}] is {value!r} of type "
                f"{type(value).__name__}."
            )
    return np.array([os.fspath(value) for value in values], dtype=str)

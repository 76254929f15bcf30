"""Images on disk, read when a batch needs them."""

import os

import numpy as np

from ._base import TEXTS_REMEDY
from ._transforms import SampleInputs, upright

N_PATHS_SHOWN = 3
#: What readers of images raise, by format.
UNREADABLE = OSError, RuntimeError, SyntaxError, ValueError
#: Tag of a page in a TIFF file, and its bits of a smaller copy and of a mask.
SUBFILE_TYPE, BESIDE_A_PAGE = 254, 1 | 4


class PathInputs(SampleInputs):
    """Paths of images, decoded in colour (RGB) by the workers of a DataLoader.

    They are turned upright as their metadata (EXIF) say that the camera was held. Of an animation
    the first frame is read; files of several pages (TIFF) are refused.

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
                _check_pages(image)
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


def _check_pages(image):
    """Raise if a file holds several pages, of which the first alone would be seen.

    Smaller copies of a page, and its masks, are none. The frames of an animation are not either:
    the first is the image.
    """
    if image.format != "TIFF" or image.n_frames == 1:
        return
    n_pages = 0
    for place in range(image.n_frames):
        image.seek(place)
        n_pages += not image.tag_v2.get(SUBFILE_TYPE, 0) & BESIDE_A_PAGE
    image.seek(0)
    if n_pages > 1:
        raise ValueError(
            f"it has {n_pages} pages, of which the first alone would be seen; split them into "
            "files, or pass a torch Dataset that returns them as channels"
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

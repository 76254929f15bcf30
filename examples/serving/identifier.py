"""An exported model: images in, species out. Needs ONNX Runtime, NumPy and Pillow only."""

import json

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


class Identifier:
    """Answer with the species that an image may show, the likeliest first.

    Parameters
    ----------
    path : str
        An ONNX file of ``sksetvalued.export``, of a model of colour images in bytes.
    """

    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path)
        self.classes = json.loads(self.session.get_modelmeta().custom_metadata_map["classes"])
        self.size = self.session.get_inputs()[0].shape[2:]

    def prepare(self, image):
        """Return the middle of a PIL image in the size of the model, as bytes."""
        height, width = self.size
        image = ImageOps.exif_transpose(image).convert("RGB")
        return np.asarray(ImageOps.fit(image, (width, height))).transpose(2, 0, 1)

    def sets(self, images):
        """Return for each PIL image a list of pairs: species and its probability."""
        batch = np.stack([self.prepare(image) for image in images])
        masks, log_proba = self.session.run(["sets", "scores"], {"X": batch})
        answers = []
        for mask, row in zip(masks, log_proba, strict=True):
            chosen = sorted(np.flatnonzero(mask), key=lambda i: -row[i])
            answers.append([(self.classes[i], float(np.exp(row[i]))) for i in chosen])
        return answers


def read(file):
    """Open an image; a ValueError says that it is none."""
    try:
        image = Image.open(file)
        image.load()
        if image.mode.startswith(("I", "F")):
            raise OSError("it has more than 8 bits a channel")
    except (OSError, RuntimeError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"this is not an image that can be read: {error}") from error
    return image

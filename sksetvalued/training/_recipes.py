"""What "auto" and None mean for the parameters of training."""

import math
from typing import NamedTuple

from ..inputs import is_image

#: Epochs that are tried at most where their number is found by held-out samples, and updates
#: after which no more are begun.
MOST_EPOCHS, MOST_UPDATES = 80, 10_000

#: Samples of a batch, at least.
SMALLEST_BATCH = 32

#: Share of the samples that are held out to find the number of epochs.
HELD_OUT = 0.2


class Recipe(NamedTuple):
    """Training of a kind of network.

    Parameters
    ----------
    max_epochs : int
    lr : float
    lr_schedule : str
    weight_decay : float
        Of "adamw".
    dropout : float or None
        None: the backbone has no such argument, or keeps its own default.
    dropout_slope : float
        Dropout is at most that many times the features that there are for each sample.
    hidden : tuple of int, optional
        Widths of a perceptron where none are given, with a skip connection; None: its own default.
    updates : int
        Small data sets are gone through more than `max_epochs` times, up to so many batches.
    searched : bool
        Whether held-out samples find the number of epochs.
    n_batches, largest_batch : int
        "auto" makes about so many batches of the samples, of about so many at most.
    enough_held_out : int
        Samples that the networks of folds hold out for a threshold, where the length is searched.
    """

    max_epochs: int
    lr: float
    lr_schedule: str
    weight_decay: float
    dropout: float | None = None
    dropout_slope: float = math.inf
    hidden: tuple | None = None
    updates: int = 0
    searched: bool = False
    n_batches: int = 32
    largest_batch: int = 256
    enough_held_out: int = 0

    def epochs(self, n_batches):
        """Return the number of epochs of so many batches."""
        return max(self.max_epochs, -(-self.updates // n_batches))

    def batch_size(self, n_samples):
        """Return the size of the batches of so many samples, such that few are not left over.

        Their gradient would be many times as noisy as that of the other batches, once an epoch.
        """
        size = min(max(SMALLEST_BATCH, n_samples // self.n_batches), self.largest_batch)
        return max(size, math.ceil(n_samples / max(1, round(n_samples / size))))

    def backbone_params(self, backbone, given, input_shape, n_samples):
        """Return the arguments of a backbone, those that are given and those that are not."""
        params = {}
        if self.dropout is not None:
            slope = self.dropout_slope * math.prod(input_shape)
            params["dropout"] = min(self.dropout, slope / n_samples)
        without_widths = backbone is None or isinstance(backbone, str)
        if self.hidden is not None and without_widths and "hidden" not in given:
            params |= {"hidden": self.hidden, "skip": True}
        return params | given


def most_epochs(n_batches):
    """Return the number of epochs of so many batches that a search tries at most."""
    return max(min(MOST_EPOCHS, MOST_UPDATES // n_batches), 10)


#: On words batches are smaller, one hidden layer is enough, dropout stays however many the
#: samples, and epochs are few, so that the networks of more folds cost little.
OF_WORDS = Recipe(50, 4e-3, "averaged", 0.1, dropout=0.3, searched=True, enough_held_out=3000)
PERCEPTRON = OF_WORDS._replace(
    hidden=(256, 256),
    dropout_slope=40,
    n_batches=16,
    largest_batch=512,
    enough_held_out=1500,
)
CONVNET = Recipe(16, 1e-2, "one_cycle", 0.01, dropout=0.3, updates=1250, largest_batch=64)
TABLE_MODULE = Recipe(50, 3e-3, "cosine", 0.1)
IMAGE_MODULE = Recipe(50, 3e-3, "cosine", 0.2)
#: A transformer that was trained before: the usual rate of fine-tuning, after a warm-up.
FINE_TUNED = Recipe(5, 5e-5, "one_cycle", 0.01)


def is_perceptron(backbone, input_shape):
    """Return whether a backbone is a perceptron of ours on a table."""
    named = backbone is None or isinstance(backbone, tuple | list) or backbone == "mlp"
    return named and isinstance(input_shape, tuple) and len(input_shape) == 1


def recipe(backbone, input_shape, weights=None, of_words=False):
    """Return the recipe for a backbone; networks that are not ours have a long and slow one.

    Parameters
    ----------
    backbone, weights
        Parameters of an estimator.
    input_shape : tuple of int or dict
    of_words : bool, default=False
        What `Inputs.of_words` tells.
    """
    if weights is not None and isinstance(backbone, str) and backbone.startswith("hf/"):
        return FINE_TUNED
    if is_perceptron(backbone, input_shape):
        return OF_WORDS if of_words else PERCEPTRON
    images = is_image(input_shape)
    if images and (backbone is None or backbone == "convnet"):
        return CONVNET
    return IMAGE_MODULE if images else TABLE_MODULE

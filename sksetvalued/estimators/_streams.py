"""Fitting to samples that come one after the other."""

import numpy as np
import torch

from .._arrays import as_labels, plain_labels, positions
from .._randomness import seeded
from ..inputs import StreamInputs
from ..training import StreamSet, current_processes
from ._deep import FOREIGN_SEED_OFFSET, is_named


class LabelIndex:
    """Turn labels into class indices, one at a time.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
    """

    def __init__(self, classes):
        self.classes = classes
        self.index = {label: i for i, label in enumerate(classes.tolist())}

    def __call__(self, label):
        try:
            return self.index[label]
        except (KeyError, TypeError):
            place = -1
        if self.classes.dtype.kind in "mM":  # Of nanoseconds `tolist` makes numbers.
            place = positions(as_labels([label], "the stream"), self.classes)[0]
        if np.ndim(label):
            raise ValueError(
                f"the stream yielded {len(label)} labels at once, where it must yield one sample "
                "after the other: give the dataset of a DataLoader, or batch_size=None."
            )
        if place < 0:
            known = f"{plain_labels(self.classes[:5])}{'...' if len(self.classes) > 5 else ''}"
            raise ValueError(
                f"the stream yielded the label {label!r} of type {type(label).__name__}, which is "
                f"not among its {len(self.classes)} classes, {known}: name all "
                "labels in Stream(classes=...)."
            )
        return place


class LearnsFromStreams:
    """Fit a single-label classifier to a stream."""

    def _fit_stream(self, stream, y, sample_weight, checkpoint, resume):
        self._check_stream_options(y, sample_weight, checkpoint)
        inputs = self._read_head(stream, resume)
        self._check_samples(inputs, stream, reset=resume is None)
        if resume is None:
            self._of_words = inputs.of_words()
        if self._searches_epochs(resume):
            raise ValueError(
                "max_epochs='auto' finds the number of epochs on held-out samples, which a Stream "
                "cannot give: set max_epochs. An epoch is n_samples of the Stream."
            )
        self._warn_of_no_monitor("stream")
        if resume is None:
            self.classes_ = stream.classes
            if inputs.kind == "table":
                self.n_features_in_ = self.input_shape_[0]
        self._check_classes("Stream(classes=...)")
        self.class_counts_ = np.zeros_like(stream.class_counts, shape=len(self.classes_))
        self.class_counts_[self._encode(stream.classes)] = stream.class_counts
        self._weigh_classes()
        self._new_rule()
        self._check_held_out(None, None)
        if resume is None:
            self._forget_network()
        weight = self._log_label_weight
        weight = None if weight is None else torch.from_numpy(np.exp(weight)).float()
        data = StreamSet(inputs, LabelIndex(self.classes_), weight)
        epochs = None if self.max_epochs == "auto" else self.max_epochs
        self._train(data, None, epochs, resume)
        self._calibrate_on(inputs.head, None)
        return self

    def _read_head(self, stream, resume):
        """Return the inputs of a stream, whose source finds torch seeded as in the training."""
        if resume is None:
            self._draw_seed()
        state = {} if resume is None else self._rng_state
        with seeded(self._seed + FOREIGN_SEED_OFFSET, state=state if "cpu" in state else None):
            return StreamInputs(stream, vars(self)["transform"])

    def _check_stream_options(self, y, sample_weight, checkpoint):
        """Raise where an option takes samples by position."""
        given = {"y": y, "sample_weight": sample_weight, "checkpoint": checkpoint}
        given["validation_fraction"] = self.validation_fraction
        for name in ("calibration_fraction", "calibration_folds"):
            value = getattr(self, name, None)
            given[name] = None if is_named(value, "auto") else value
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"{name} must be None where X is a Stream, whose samples have no positions "
                    "and bring their labels: calibrate on other samples after fit."
                )
        if self.patience is not None:
            raise ValueError(
                f"patience={self.patience} must be None where X is a Stream: it needs held-out "
                "samples, which a Stream cannot give."
            )
        if current_processes() is not None:
            raise ValueError(
                "a Stream cannot be split between the processes of a torch.distributed group: "
                "fit it in a job of joblib or outside of the group, or pass a Dataset with a "
                "length."
            )

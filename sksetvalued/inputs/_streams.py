"""Samples that come one after the other, and are too many to be counted or picked."""

import os
from collections.abc import Hashable, Iterator, Mapping
from itertools import count, islice

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from .._arrays import as_labels, check_masks
from .._checks import check_in_order, check_integer
from ._base import Inputs
from ._images import need_a_list
from ._transforms import N_STATISTICS_SAMPLES, SampleInputs


def stream_remedy(name):
    """Return what to say of a stream that is given without its counts."""
    return (
        f"X is a stream ({name}), whose classes and length cannot be seen before the training: "
        "pass Stream(X, classes=..., class_counts=...) of sksetvalued, or train by partial_fit "
        "on one batch after the other."
    )


class Stream:
    """Labelled samples that come one after the other, and what must be known of them before.

    For training data that do not fit into memory and cannot be picked by position: archives read
    in order (webdataset), row groups of Parquet files, the streaming sets of Hugging Face, any
    :class:`torch.utils.data.IterableDataset`.

    Parameters
    ----------
    source : iterable
        Yields pairs (x, y), or what `keys` picks them from. It is iterated over anew for each
        pass; a method `set_epoch` is called before those of a training, from 0 on. x is anything
        that a Dataset may return: a vector or a list of numbers, an image, a dict of named parts.
    classes : array-like of shape (n_classes,)
        All labels.
    class_counts : array-like of shape (n_classes,)
        Samples of each class, in the order of `classes`. Losses and rules for long tails use
        their proportions: estimates will do, or the proportions themselves if `n_samples` is
        given.
    n_samples : int, optional
        Samples of an epoch; None: the sum of `class_counts`. The source is read over and over,
        and an epoch is so many of its samples, in whole batches. Of an endless source it is what
        you like: for a number of updates, that times the batch size, with ``max_epochs=1``.
    keys : tuple (x, y), optional
        Where samples are dicts: the key of x, or a tuple of keys whose values become the parts of
        x by name, and the key of y.

    See Also
    --------
    Stream.counted : Count the labels by reading the source once.

    Notes
    -----
    Samples are taken in the order in which they come: shuffle the source, by its own buffer for
    example. With ``net_params={"iterator_train__num_workers": 4}`` each worker process reads the
    source, which must give each a part of its own, as webdataset and Hugging Face do.

    Nothing can be held out of a stream. `max_epochs` must be given where held-out samples would
    find it, and the threshold of an `AverageKClassifier` comes from the first samples, which were
    trained on: call `calibrate` on others.

    Examples
    --------
    >>> import numpy as np
    >>> from sksetvalued import Stream, TopKClassifier
    >>> class Squares:
    ...     def __iter__(self):
    ...         rng = np.random.default_rng(0)
    ...         for _ in range(300):
    ...             x = rng.normal(size=2)
    ...             yield x, "left" if x[0] < 0 else "right"
    >>> stream = Stream.counted(Squares())
    >>> stream.n_samples
    300
    >>> clf = TopKClassifier(1, max_epochs=5, random_state=0).fit(stream)
    >>> clf.predict([[-1.0, 0.0], [1.0, 0.0]])
    array(['left', 'right'], dtype='<U5')
    """

    def __init__(self, source, *, classes, class_counts, n_samples=None, keys=None):
        if isinstance(source, Iterator) or not hasattr(source, "__iter__"):
            raise TypeError(
                "source must be an iterable that starts anew for each pass, such as an "
                f"IterableDataset, got {type(source).__name__}: wrap what makes an iterator in a "
                "class with __iter__, or train by partial_fit on one batch after the other."
            )
        if keys is not None and not (isinstance(keys, tuple | list) and len(keys) == 2):
            raise ValueError(
                f"keys must be a pair (x, y), of which x may be a tuple of keys, got {keys!r}: of "
                "several parts, say keys=(('a', 'b'), 'label')."
            )
        self.source = source
        self.keys = keys
        self.classes, self.class_counts = _checked_counts(classes, class_counts)
        self.n_samples = _checked_length(n_samples, self.class_counts)

    @classmethod
    def counted(cls, source, *, n_samples=None, keys=None):
        """Return the stream of a source that is read once, to its end, for its labels.

        Parameters
        ----------
        source, n_samples, keys
            As for the class.

        Returns
        -------
        stream : Stream
        """
        bare = cls(source, classes=[0], class_counts=[1], keys=keys)
        counts = {}
        for _, y in bare:
            if not isinstance(y, Hashable) or np.ndim(y):
                raise TypeError(
                    f"the source must yield one label with each sample, got a {type(y).__name__}."
                )
            counts[y] = counts.get(y, 0) + 1
        if not counts:
            raise ValueError(f"the source, a {type(source).__name__}, yielded no samples.")
        return cls(
            source,
            classes=list(counts),
            class_counts=list(counts.values()),
            n_samples=n_samples,
            keys=keys,
        )

    def __iter__(self):
        """Yield the pairs (x, y) of one pass over the source."""
        for item in self.source:
            if self.keys is not None:
                item = self._picked(item)
            elif not (isinstance(item, tuple | list) and len(item) == 2):
                raise TypeError(
                    f"the source must yield pairs (x, y), got {type(item).__name__}"
                    f"{f' of {len(item)} parts' if isinstance(item, tuple | list) else ''}: of "
                    "dicts, say by keys=(x, y) which to take."
                )
            yield item[0], _plain(item[1])

    def _picked(self, item):
        x, y = self.keys
        try:
            parts = {name: item[name] for name in x} if isinstance(x, tuple | list) else item[x]
            return parts, item[y]
        except (KeyError, TypeError) as error:
            known = sorted(item) if isinstance(item, Mapping) else type(item).__name__
            raise ValueError(
                f"keys={self.keys!r} does not fit the samples of the source: {known}."
            ) from error

    def batches(self, batch_size):
        """Return one pass over the source in batches.

        Each is what `partial_fit` takes; `calibrate` and `predict_set` take an iterator of the
        samples alone, ``(X for X, _ in stream.batches(1024))``.

        Parameters
        ----------
        batch_size : int

        Returns
        -------
        batches : iterator of (X, y)
            X is an array, a tensor, a list of images or a dict of such, y an array of labels.
        """
        check_integer("batch_size", batch_size, 1)
        return self._batches(batch_size)

    def _batches(self, batch_size):
        pairs = iter(self)
        while batch := list(islice(pairs, batch_size)):
            samples, labels = zip(*batch)
            yield _batch(samples), as_labels(list(labels), "the labels of the stream")


def _checked_counts(classes, class_counts):
    """Return the sorted classes, and their counts in that order."""
    classes, counts = as_labels(classes, "classes"), np.asarray(class_counts)
    check_in_order(class_counts, "class_counts", classes)
    if counts.shape != classes.shape or not len(classes):
        raise ValueError(
            "classes and class_counts must be of one length, one count per label, got shapes "
            f"{classes.shape} and {counts.shape}."
        )
    if counts.dtype.kind not in "iuf" or not (np.isfinite(counts) & (counts >= 0)).all():
        raise ValueError("class_counts must hold numbers >= 0, the samples of each class.")
    counts = counts.astype(np.float64) if counts.dtype == np.float16 else counts
    if not counts.any():
        raise ValueError("class_counts is zero for every class.")
    labels, first = np.unique(classes, return_index=True)
    if len(labels) < len(classes):
        raise ValueError("classes must be distinct, but a label occurs twice.")
    return labels, counts[first]


def _checked_length(n_samples, class_counts):
    if n_samples is None:
        total = class_counts.sum()
        if total < np.count_nonzero(class_counts):
            raise ValueError(
                f"class_counts sums to {total:g}, fewer samples than classes that have some: of "
                "proportions, pass n_samples=, the samples of an epoch."
            )
        return int(np.ceil(total))
    check_integer("n_samples", n_samples, 1)
    return int(n_samples)


def _plain(label):
    """Return a label as an object of Python."""
    if not hasattr(label, "item"):
        return label
    return label.item() if np.prod(np.shape(label)) == 1 else label


def _batch(samples):
    """Return samples as one X: numbers as a column, paths and the numbers of parts as they are."""
    if isinstance(samples[0], Mapping):
        return {name: _stacked([sample[name] for sample in samples]) for name in samples[0]}
    batch = _stacked(samples)
    of_numbers = getattr(batch, "ndim", 0) == 1 and not isinstance(samples[0], str | os.PathLike)
    return batch[:, None] if of_numbers else batch


def _stacked(samples):
    check_masks(samples, "the stream")
    if any(hasattr(sample, "getbands") for sample in samples) or need_a_list(samples, None):
        return list(samples)  # PIL images, and images of several sizes, or types
    if isinstance(samples[0], torch.Tensor):
        return torch.stack(samples)
    return np.stack([np.asarray(sample) for sample in samples])


class Head(SampleInputs):
    """The first samples of a stream.

    Parameters
    ----------
    samples : list
    transform : None, callable or dict
    """

    kind = "dataset"

    def __init__(self, samples, transform):
        super().__init__(len(samples), transform)
        self.samples = samples

    def parts(self):
        return [str(len(self.samples))]

    def describe(self, position):
        worker = get_worker_info()
        where = "" if worker is None else f", by the count of {_name_of(worker)},"
        return f"sample {position}{where} of the stream"

    def read(self, position):
        return self.samples[position]


class StreamInputs(Inputs):
    """What is known of the samples of a stream, from the first of them.

    Parameters
    ----------
    stream : Stream
    transform : None, callable or dict

    Attributes
    ----------
    head : Head
        The first samples.
    labels : list
        Their labels.
    """

    in_memory = False
    runs_user_code = True

    def __init__(self, stream, transform=None):
        pairs = list(islice(stream, N_STATISTICS_SAMPLES))
        if not pairs:
            raise ValueError(f"the source, a {type(stream.source).__name__}, yielded no samples.")
        self.stream = stream
        self.head = Head([x for x, _ in pairs], transform)
        self.labels = [y for _, y in pairs]

    @property
    def kind(self):
        shape = self.sample_shape
        return "table" if isinstance(shape, tuple) and len(shape) == 1 else "dataset"

    @property
    def sample_shape(self):
        return self.head.sample_shape

    @property
    def of_bytes(self):
        return self.head.of_bytes

    def __len__(self):
        return self.stream.n_samples

    def statistics(self, sample_weight=None):
        """Return those of the first samples, with their weights."""
        return self.head.statistics(sample_weight)

    def take(self, indices):
        raise TypeError("a stream has no samples by position.")

    def subset(self, indices, training=False):
        raise TypeError("a stream has no samples by position.")

    def parts(self):
        raise TypeError("a stream cannot be told from another by its samples.")

    def repeated(self, encode):
        """Return the samples of training over and over, with targets, as an IterableDataset."""
        return _Repeated(self, encode)

    def collate(self, triples):
        """Return samples and targets as two batches."""
        positions, samples, targets = zip(*triples)
        first = self.head.subset([0], training=True)
        return first.stack(positions, samples), torch.tensor(targets)


def _name_of(worker):
    return f"worker {worker.id + 1} of {worker.num_workers}"


class _Repeated(IterableDataset):
    """Triples (position, sample, target) of a stream, pass after pass."""

    def __init__(self, inputs, encode):
        self.stream, self.encode = inputs.stream, encode
        # The head without its samples, to prepare those that come.
        self.prepare = Head([], inputs.head.transforms)
        self.prepare.training = True

    def __iter__(self):
        for epoch in count():
            if hasattr(self.stream.source, "set_epoch"):
                self.stream.source.set_epoch(epoch)
            n_read = 0
            for x, y in self.stream:
                yield n_read, self.prepare.prepared(x, n_read)[0], self.encode(y)
                n_read += 1
            if not n_read:
                self._raise_empty()

    def _raise_empty(self):
        worker = get_worker_info()
        where = "" if worker is None else f" to {_name_of(worker)}"
        raise ValueError(
            f"the source, a {type(self.stream.source).__name__}, yielded no samples{where}: an "
            "iterable must start anew for each pass, and have a part for each worker process."
        )

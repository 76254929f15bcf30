"""What the deep estimators take: samples of any kind, and their weights."""

from contextlib import nullcontext

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import validate_data

from .._arrays import as_array, on_the_processor
from .._randomness import put_back
from .._validation import check_weights
from .._warnings import warn_caller
from ..inputs import (
    Stream,
    StreamInputs,
    check_single_precision,
    hint_of_one,
    input_kind,
    is_image,
    is_mapped,
    media_inputs,
    same_form,
    table_inputs,
    value_statistics,
)
from ..networks._network import columns_left_out
from ..training import is_perceptron

#: Types of tables that are taken as they are.
FLOATS = (np.float64, np.float32)

#: What is to be done where columns that were left out have values now.
TO_KEEP_COLUMNS = (
    "Fit a clone on all samples, or one that begins with partial_fit or with warm_start=True, "
    "which keeps all columns."
)

#: Entries of a mapped table that are checked together.
CHECKED_AT_ONCE = 1 << 18

#: Weights whose sums and products with losses are numbers in single precision.
WEIGHTS = (1e-30, 1e30)

#: Images that are looked at in a prediction, and times the largest value of those of `fit` that no
#: images in the same units reach.
N_LOOKED_AT, TOO_LARGE = 4, 10
#: ... and, in memory, in units that are too small: of so many there are hardly dark ones alone.
N_NOT_DARK = 64

#: Images that are compared between training and evaluation.
N_COMPARED = 32
#: Units differ above this ratio of the spreads of their values.
OTHER_SPREAD = 2.5
#: ... or above this distance of their centres, in units of the larger spread.
OTHER_CENTRE = 3


def _types(X):
    """Return the types of the columns of a table, or that of an array."""
    if not hasattr(X, "columns"):
        return [getattr(X, "dtype", None)]
    # Types of pyarrow do not tell those of NumPy, and its columns are the data.
    return X.dtypes if hasattr(X, "dtypes") else [np.asarray(c[:0]).dtype for c in X.columns]


def _is_temporal(dtype):
    """Return whether a type of NumPy, pandas or polars is that of dates, times or durations."""
    if hasattr(dtype, "is_temporal"):
        return dtype.is_temporal()
    return getattr(dtype, "kind", None) in ("m", "M")


def _is_numeric(dtype):
    """Return whether a type of NumPy, pandas or polars is that of numbers or booleans."""
    if hasattr(dtype, "is_numeric"):
        return dtype.is_numeric()
    return getattr(dtype, "kind", None) in tuple("biuf")


class TakesSamples:
    """Checks of samples, at `fit` and after it, for an estimator of the parameters of all."""

    def _check_inputs(self, X, reset=False, training=False):
        """Validate X, and remember its form if `reset`; return its inputs.

        A perceptron of ours centres the columns of a table before it rounds them to the precision
        of its weights; other networks get single precision.
        """
        with on_the_processor():
            kind = input_kind(X)
            if kind == "table":
                self._check_no_transform()
                X = self._validate_table(X, reset)
                if training or not self._predicts_in_double(X.dtype.newbyteorder("=")):
                    self._check_single_precision(X)
                backbone = self.backbone if reset else self._network_params["backbone"]
                dtype = None if is_perceptron(backbone, X.shape[1:]) else torch.float32
                inputs = table_inputs(X, dtype, keep_sparse=not self.compile)
            else:
                if not reset and kind == "image":
                    self._check_several(X)
                inputs = media_inputs(X, kind, vars(self)["transform"])
            return self._check_samples(inputs, X, reset)

    def _check_samples(self, inputs, X, reset):
        """Remember the form of samples if `reset`, else check it; return the inputs."""
        shape = inputs.sample_shape
        shape = shape if isinstance(shape, dict) else tuple(shape)
        if reset:
            if inputs.kind != "table" or isinstance(X, Stream):
                for name in ("n_features_in_", "feature_names_in_"):
                    vars(self).pop(name, None)
            self.input_kind_ = inputs.kind
            self.input_shape_ = shape
            self._fitted_on_bytes = inputs.of_bytes
        elif (inputs.kind == "table") != (self.input_kind_ == "table"):
            raise ValueError(
                f"X is of the kind {inputs.kind!r}, but {type(self).__name__} was fitted on the "
                f"kind {self.input_kind_!r}: give samples in the form of those of `fit`."
                f"{hint_of_one(X, self.input_shape_)}"
            )
        elif shape != self.input_shape_ and not same_form(shape, self.input_shape_):
            raise ValueError(
                f"X holds samples of shape {shape}, but "
                f"{type(self).__name__} was fitted on samples of shape {self.input_shape_}."
                f"{hint_of_one(X, self.input_shape_)}"
            )
        elif is_image(shape) and not (inputs.of_bytes and self._fitted_on_bytes):
            self._check_image_range(inputs)
        return inputs

    def _without_weightless(self, inputs, y, sample_weight, reset):
        """Return inputs, targets and weights of the samples whose weight is not zero.

        Of these, remember whether they are words if `reset`.
        """
        weight = self._check_weights(sample_weight, len(inputs))
        if weight is not None and not weight.all():
            kept = np.flatnonzero(weight)
            inputs, y, weight = inputs.subset(kept), y[kept], weight[kept]
        if reset:
            self._of_words = inputs.of_words(weight)
        return inputs, y, weight

    def _without_empty_columns(self, statistics, inputs):
        """Return the statistics of the columns that hold values, where most hold none.

        The first layer has no weights for the others, which would cost time and memory.
        """
        columns = inputs.few_used_columns()
        if columns is None:
            return statistics
        centre, scale = statistics.centre[columns], statistics.scale[columns]
        return statistics._replace(centre=centre, scale=scale, columns=torch.from_numpy(columns))

    def _warn_of_empty_columns(self, inputs):
        """Warn where most columns hold nothing and are kept, for samples that may use them."""
        columns = inputs.few_used_columns()
        if columns is not None and is_perceptron(self.backbone, self.input_shape_):
            warn_caller(
                f"X has {inputs.sample_shape[0]:,} columns, of which {len(columns):,} hold "
                "values: with warm_start=True the first layer has weights for all, and each "
                "update changes them, which takes time and memory. Give HashingVectorizer "
                "n_features of a few times the number of words, such as 2**14, or leave "
                "warm_start=False.",
            )

    def _warn_of_columns_left_out(self, inputs):
        """Warn where a network is trained further on values of columns that it leaves out."""
        normalize = self.net_.bare_module.normalize
        constant, values = (part.cpu() for part in columns_left_out(normalize))
        if len(constant):
            constant = constant[inputs.other_values(constant, values)].numpy()
        if len(constant):
            names = getattr(self, "feature_names_in_", np.arange(self.input_shape_[0]))[constant]
            warn_caller(
                f"The columns {names[:10].tolist()}{'...' if len(names) > 10 else ''} had one "
                "value each when the network was fitted, which leaves them out: that they differ "
                f"now has no effect. {TO_KEEP_COLUMNS}",
            )
        columns = getattr(normalize, "columns", None)
        if columns is None:
            return
        used = inputs.used_columns()
        if used is None or len(np.setdiff1d(used, columns.cpu().numpy())):
            # The same words each time, which are shown once.
            warn_caller(
                f"The network reads {len(columns):,} of the {self.input_shape_[0]:,} columns, as "
                "the others held no values when it was fitted: what X holds in these has no "
                f"effect. {TO_KEEP_COLUMNS}",
            )

    def _check_several(self, X):
        """Raise if X is one colour image, rather than several of one channel."""
        transform = vars(self)["transform"]
        transformed = callable(transform) or (transform or {}).get("eval") is not None
        if transformed or not is_image(self.input_shape_) or self.input_shape_[0] == 1:
            return
        if hint := hint_of_one(X, self.input_shape_):
            raise ValueError(f"X has the shape {tuple(X.shape)}.{hint}")

    def _validate_table(self, X, reset):
        """Return a table as a float array or CSR matrix; a mapped one may hold any numbers.

        One that is so already costs no more than a look at its values, which is what a service
        sends, row by row.
        """
        plain = type(X) is np.ndarray and X.ndim == 2 and len(X) and X.dtype in FLOATS
        same_columns = plain and X.shape[1] == getattr(self, "n_features_in_", None)
        if same_columns and not (reset or hasattr(self, "feature_names_in_")):
            assert_all_finite(X, estimator_name=type(self).__name__, input_name="X")
            return X
        if not (hasattr(X, "iloc") or hasattr(X, "columns") or sp.issparse(X)):
            X = as_array(X, "X")
        if any(map(_is_temporal, _types(X))):
            raise TypeError(
                "X holds dates or durations, which are no measurements yet: make numbers of them, "
                "such as the days since one of them."
            )
        # Numbers in a file are converted batch by batch.
        stays = isinstance(X, np.ndarray) and is_mapped(X) and np.can_cast(X.dtype, np.float64)
        options = {"dtype": None, "ensure_all_finite": False} if stays else {"dtype": FLOATS}
        try:
            X = validate_data(self, X, accept_sparse="csr", reset=reset, **options)
        except OverflowError as error:
            raise ValueError(f"X holds numbers that no float can hold: {error}.") from error
        except (TypeError, ValueError) as error:
            if not all(map(_is_numeric, _types(X))):
                error.add_note(
                    "X was taken for a table of numbers: strings and categories must be encoded "
                    "first, as by sklearn.preprocessing.OneHotEncoder"
                )
            raise
        if stays:
            self._check_finite(X)
        elif X.dtype not in FLOATS:  # a sparse frame of booleans, which scikit-learn leaves so
            X = X.astype(np.float64)
        return X

    def _check_finite(self, X):
        """Raise for NaN or infinity, a few rows of a mapped table at a time."""
        n_rows = max(1, CHECKED_AT_ONCE // X.shape[1])
        for start in range(0, len(X), n_rows):
            rows = X[start : start + n_rows]
            assert_all_finite(rows, estimator_name=type(self).__name__, input_name="X")

    def _check_single_precision(self, X):
        """Raise if a table in double precision has values that single precision has not."""
        values = X.data if hasattr(X, "indptr") else X
        if X.dtype.newbyteorder("=") == np.float64 and values.size:
            check_single_precision(max(values.max(), -values.min()))

    def _check_image_range(self, inputs):
        """Raise if bytes and other numbers cannot mean the same images.

        Bytes are divided by 255, others are taken as they are. Of samples that are read one at a
        time, the first tells; where those of `fit` were floats too, the first few in memory, by
        values that are many times too large.
        """
        low, high = self._image_range
        fitted = f"numbers from {low:g} to {high:g}"
        if inputs.of_bytes:
            if low < 0 or high > 1:
                raise ValueError(
                    "X holds images of bytes, which are divided by 255, but those of `fit` were "
                    f"{fitted}: convert X to their type and range."
                )
        elif low >= 0 and high <= 1:
            whole = getattr(inputs, "of_integers", False)
            in_view, most = [0], 1
            if not whole and not self._fitted_on_bytes:
                if not inputs.in_memory:
                    return
                in_view, most = range(min(len(inputs), N_LOOKED_AT)), TOO_LARGE
            elif inputs.in_memory or isinstance(inputs, StreamInputs):
                in_view = None
            # Code of users waits for a training in another thread, which has torch's generators.
            with put_back() if inputs.runs_user_code else nullcontext():
                seen = inputs if in_view is None else inputs.subset(in_view)
                largest = seen.statistics().high
            # Dark images of whole numbers are not divided by 255 either.
            if largest > most or (whole and self._fitted_on_bytes):
                fitted = "bytes, which are divided by 255" if self._fitted_on_bytes else fitted
                raise ValueError(
                    f"X holds images of numbers up to {largest:g}, but those of `fit` were "
                    f"{fitted}: convert them to uint8, or divide by 255."
                )
        elif low >= 0 and high > TOO_LARGE and inputs.in_memory:
            values = inputs.take(torch.arange(min(len(inputs), N_NOT_DARK)))
            if values.max() <= 1 and values.min() >= 0 and (values % 1).any():
                warn_caller(
                    f"the first images of X hold numbers from {values.min():.3g} to "
                    f"{values.max():.3g}, but those of `fit` were {fitted}: if these are the "
                    "same units divided by the largest, multiply by it.",
                )

    def _compare_stages(self, inputs):
        """Warn where images are given in other units in evaluation than in training."""
        stages = getattr(inputs, "transforms", None)
        if stages is None or stages["train"] is stages["eval"]:
            return
        rows = np.unique(np.linspace(0, len(inputs) - 1, N_COMPARED).astype(int))
        with put_back():
            train, seen = (
                value_statistics(inputs.subset(rows, training)) for training in (True, False)
            )
        # Pixels that a transform fills in move the mean, but not what is typical of an image nor,
        # where most pixels have one value, by much the largest and the smallest.
        apart = _far_apart(train.mean, train.std, seen.mean, seen.std)
        if train.distance > 0 and seen.distance > 0:
            apart &= _far_apart(train.median, train.distance, seen.median, seen.distance)
        else:
            apart &= _far_apart(train.low, train.high - train.low, seen.low, seen.high - seen.low)
        if apart:
            warn_caller(
                f"transform gives images of mean {seen.mean:.3g} and standard deviation "
                f"{seen.std:.3g} in evaluation, but of {train.mean:.3g} and {train.std:.3g} in "
                "training: scale and normalise alike in both.",
            )

    def _check_no_transform(self):
        transform = vars(self)["transform"]
        if transform is not None:
            raise ValueError(
                f"transform={transform!r} is for images, but X is a table: leave it None, and "
                "transform tables by the steps of a Pipeline."
            )

    def _built_in_network(self):
        # The parameters may have been set anew.
        plain = self.net_.precision == "float32" and not hasattr(self.net_.module_, "_orig_mod")
        return plain and is_perceptron(self._network_params["backbone"], self.input_shape_)

    def _predicts_in_double(self, dtype):
        """Return whether scores are computed in double precision.

        They are where X is and the network is ours and on the CPU, so that they do not depend on
        the batch at all.
        """
        double = dtype in (np.float64, torch.float64)
        return double and self.net_.device == "cpu" and self._built_in_network()

    _check_weights = staticmethod(check_weights)

    def _check_passed(self, y):
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )

    def _training_weights(self, weight, indices):
        """Return the weights of some samples, which are not zero, for the loss; None if None."""
        if weight is None:
            return None
        weight = weight[indices]
        low, high = WEIGHTS
        if not (weight.min() >= low and weight.max() <= high):
            raise ValueError(
                f"sample_weight, times class_weight, must be zero or lie in [{low:g}, {high:g}], "
                "for the single precision of the training, got values in "
                f"[{weight.min():g}, {weight.max():g}]: divide them by the largest, and set what "
                "is too small to zero."
            )
        return torch.from_numpy(weight).float()


def _far_apart(centre, spread, other_centre, other_spread):
    """Return whether values of these centres and spreads are in other units."""
    least, most = sorted((spread, other_spread))
    return most > OTHER_SPREAD * least or abs(centre - other_centre) > OTHER_CENTRE * most

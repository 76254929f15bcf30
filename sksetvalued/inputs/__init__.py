"""From whatever a user passes as X to batches of tensors."""

from ._base import (
    MANY_COLUMNS,
    NO_SAMPLES,
    WIDE,
    ChannelStatistics,
    ColumnStatistics,
    Inputs,
    check_single_precision,
)
from ._devices import moved
from ._kinds import hint_of_one, input_kind, media_inputs, table_inputs
from ._mapped import is_mapped
from ._named import NamedTensors, is_image, named_arrays, plain_sample, same_form
from ._streams import Stream, StreamInputs
from ._tables import NormalizedRows, SparseInputs, SparseRows, arcsinh
from ._torch_datasets import check_pairs
from ._transforms import value_statistics

__all__ = [
    "MANY_COLUMNS",
    "NO_SAMPLES",
    "WIDE",
    "ChannelStatistics",
    "ColumnStatistics",
    "Inputs",
    "NamedTensors",
    "NormalizedRows",
    "SparseInputs",
    "SparseRows",
    "Stream",
    "StreamInputs",
    "arcsinh",
    "check_pairs",
    "check_single_precision",
    "hint_of_one",
    "input_kind",
    "is_image",
    "is_mapped",
    "media_inputs",
    "moved",
    "named_arrays",
    "plain_sample",
    "same_form",
    "table_inputs",
    "value_statistics",
]

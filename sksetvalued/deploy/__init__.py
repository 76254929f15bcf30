"""Fitted classifiers as one graph, from a raw batch to sets, for programs without this package."""

from ._files import export
from ._module import to_torch
from ._pipelines import register_onnx_converters

__all__ = ["export", "register_onnx_converters", "to_torch"]

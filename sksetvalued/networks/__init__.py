"""Backbones, heads, and the network that joins them."""

from ..inputs import ChannelStatistics, ColumnStatistics
from ._backbones import MLP, ConvNet, DenseNet
from ._build import build_network
from ._heads import HEADS, CosineHead, LinearHead, TwoHead
from ._network import ColumnScale, Network, Normalize
from ._random import Dropout
from ._sources import backbone_names

__all__ = [
    "HEADS",
    "MLP",
    "ChannelStatistics",
    "ColumnScale",
    "ColumnStatistics",
    "ConvNet",
    "CosineHead",
    "Dropout",
    "DenseNet",
    "LinearHead",
    "Network",
    "Normalize",
    "TwoHead",
    "backbone_names",
    "build_network",
]

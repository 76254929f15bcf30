"""Backbones, heads, and the network that joins them."""

from sksetvalued.inputs import ChannelStatistics, ColumnStatistics
from sksetvalued.networks._backbones import MLP, ConvNet, DenseNet
from sksetvalued.networks._build import build_network
from sksetvalued.networks._heads import HEADS, CosineHead, LinearHead, TwoHead
from sksetvalued.networks._network import ColumnScale, Network, Normalize
from sksetvalued.networks._random import Dropout
from sksetvalued.networks._sources import backbone_names

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

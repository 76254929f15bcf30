"""Losses that train the scores of set-valued classifiers."""

from ._base import LOSSES, SetLoss

__all__ = ["LOSSES", "SetLoss"]

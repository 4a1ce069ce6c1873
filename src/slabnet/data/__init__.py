"""Data sets by name, split into training and test rows."""

from slabnet.data.catalog import NAMES, Split, load

__all__ = ["NAMES", "Split", "load"]

"""Data sets by name, split into training and test rows."""

from slabnet.data.catalog import Split, available, load

__all__ = ["Split", "available", "load"]

"""Data sets by name, split into training and test rows."""

from slabnet.data.catalog import Split, load

__all__ = ["Split", "load"]

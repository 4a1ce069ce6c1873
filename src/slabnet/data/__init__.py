"""Data sets by name, split into training and test rows."""

from slabnet.data.catalog import Split, available, load
from slabnet.data.streams import ParquetStream

__all__ = ["ParquetStream", "Split", "available", "load"]

"""Data sets by name, split into training and test rows; streams of files; the table of a user."""

from slabnet.data.catalog import Split, available, load, register
from slabnet.data.streams import ParquetStream
from slabnet.data.tabular import Table

__all__ = ["ParquetStream", "Split", "Table", "available", "load", "register"]

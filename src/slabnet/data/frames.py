"""Data frames of pandas, polars and Arrow as plain columns: arrays of numbers, or lists in which None is a gap."""

from __future__ import annotations

from typing import Any

import numpy as np

from slabnet.core.errors import refuse
from slabnet.data.reading import Chunk

PLAIN_KINDS = "iuf"  # of numpy's types: columns of them are numbers without more ado


def columns_of(table: Any, where: str = "Table") -> Chunk:
    """The columns of a data frame, or of a dictionary of lists as it is.

    >>> columns_of({"a": [1, 2]})
    {'a': [1, 2]}
    """
    if isinstance(table, dict):
        return table
    if is_arrow(table):
        return {str(name): table.column(name).to_pylist() for name in table.column_names}
    if not is_frame(table):
        refuse(where, "table", "a data frame, or a dictionary of columns", type(table).__name__)
    return {str(name): _values(table[name]) for name in table.columns}


def is_arrow(table: Any) -> bool:
    """Whether it is a table of Arrow."""
    return hasattr(table, "column_names") and hasattr(table, "to_pydict")


def is_frame(table: Any) -> bool:
    """Whether it is a data frame of pandas or polars."""
    return hasattr(table, "columns") and hasattr(table, "dtypes")


def _values(column: Any) -> Any:
    values = np.asarray(column)
    if values.dtype.kind in PLAIN_KINDS:
        return values
    gaps = column.isna() if hasattr(column, "isna") else column.is_null()
    return [None if gap else value for value, gap in zip(column.to_list(), gaps.to_list(), strict=True)]

"""Data frames of pandas, polars and Arrow as plain columns: arrays of numbers, or lists in which None is a gap."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from slabnet.core.errors import refuse
from slabnet.data.reading import Chunk

PLAIN_KINDS = "iuf"  # of numpy's types: columns of them are numbers without more ado


@runtime_checkable
class ArrowTable(Protocol):
    """A table of Arrow, known by what it can do: the library need not be here."""

    column_names: list[str]

    def to_pydict(self) -> dict[str, list[Any]]: ...


@runtime_checkable
class DataFrame(Protocol):
    """A data frame of pandas or polars."""

    columns: Any
    dtypes: Any


@runtime_checkable
class LazyFrame(Protocol):
    """A data frame of polars whose rows were not made yet."""

    def collect_schema(self) -> Any: ...

    def collect(self) -> Any: ...


@runtime_checkable
class PandasColumn(Protocol):
    """A column of pandas; that of polars has `is_null`."""

    def isna(self) -> Any: ...


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
    return isinstance(table, ArrowTable)


def is_frame(table: Any) -> bool:
    """Whether it is a data frame of pandas or polars."""
    return isinstance(table, DataFrame)


def _values(column: Any) -> Any:
    values = np.asarray(column)
    if values.dtype.kind in PLAIN_KINDS:
        return values
    gaps = column.isna() if isinstance(column, PandasColumn) else column.is_null()
    return [None if gap else value for value, gap in zip(column.to_list(), gaps.to_list(), strict=True)]

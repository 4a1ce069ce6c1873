"""What is odd about a table, and worth a warning: the fit goes on."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from slabnet.core.errors import one_line
from slabnet.estimators.scaling import Array, constant_columns

FAR = 1e6  # as many times the usual distance from the middle: beside such a value all others are one number


def far_values(table: Array) -> list[tuple[int, int]]:
    """(column, row) of the largest value of each column in which it makes all others look alike.

    >>> far_values(np.array([[1.0, 5.0], [2.0, 7.0], [3.0, 1e38]]))
    [(1, 2)]
    """
    found = []
    for column, values in enumerate(np.asarray(table).T):
        size = np.abs(values).max()
        away = np.abs(values / size - np.median(values / size)) if size > 0 else values
        usual = away[(away > 0) & (away < away.max())]
        if len(usual) and away.max() > FAR * np.median(usual):
            found.append((column, int(away.argmax())))
    return found


def warn_of_table(table: Array, names: Any = None) -> None:
    """One warning each: columns with one value, values beyond all others, more columns than rows."""
    rows, columns = table.shape
    if rows < 2:
        return
    called = [one_line(str(i if names is None else names[i])) for i in range(columns)]
    constant, far = constant_columns(table), far_values(table)
    if constant:
        _warn(f"columns with one value only tell nothing: {_some([called[i] for i in constant])}")
    if far:
        shown = [f"{called[column]} has {table[row, column]:g} in row {row}" for column, row in far]
        _warn(f"beside one value all others of the column look alike: {_some(shown)}")
    if columns > rows:
        _warn(f"more columns ({columns}) than rows ({rows}): expect doubt about which of them matter")


def warn_of_target(target: Array) -> None:
    """The same for numbers that are to be predicted."""
    if len(target) > 1 and constant_columns(target):
        _warn("y has one value only: there is nothing to learn from the columns")
    for column, row in far_values(target):
        _warn(f"beside {target[row, column]:g} in row {row} all other values of y look alike")


def _warn(said: str) -> None:
    warnings.warn(f"fit: {said}", UserWarning, stacklevel=6)


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")

"""What is odd about a table, and worth a warning: the fit goes on."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from slabnet.core.errors import one_line
from slabnet.estimators.scaling import Array, constant_columns

ALIKE = 0.98  # correlation beyond which the data hardly say which column it is
MOST_COLUMNS, FEWEST_ROWS = 2000, 4
FAR = 1e6  # as many times the usual distance from the middle: beside such a value all others are one number


def far_values(table: Array) -> list[tuple[int, int]]:
    """(column, row) of the largest value of each column in which it makes all others look alike.

    >>> far_values(np.array([[1.0, 5.0], [2.0, 7.0], [3.0, 1e38]]))
    [(1, 2)]
    """
    places = []
    for column, values in enumerate(np.asarray(table).T):
        size = np.abs(values).max()
        away = np.abs(values / size - np.median(values / size)) if size > 0 else values
        usual = away[(away > 0) & (away < away.max())]
        if len(usual) and away.max() > FAR * np.median(usual):
            places.append((column, int(away.argmax())))
    return places


def near_duplicates(table: Array) -> list[tuple[int, int, float]]:
    """(column, column, r) of pairs with a correlation beyond ALIKE in size, the closest first.

    >>> near_duplicates(np.array([[1.0, 2.0, 0.0], [2.0, 4.1, 1.0], [3.0, 6.0, 0.0], [4.0, 8.0, 3.0]]))[0][:2]
    (0, 1)
    """
    values = np.asarray(table, dtype=np.float64)
    if values.shape[1] > MOST_COLUMNS or len(values) < FEWEST_ROWS:
        return []
    largest = np.abs(values).max(0)
    centred = values / np.where(largest > 0, largest, 1.0)
    centred = centred - centred.mean(0)
    size = np.sqrt((centred**2).sum(0))
    varies = np.flatnonzero(size > len(values) * np.finfo(np.float64).eps)
    scaled = centred[:, varies] / size[varies]
    r = scaled.T @ scaled
    pairs = np.argwhere(np.triu(np.abs(r) > ALIKE, 1))
    alike = [(int(varies[i]), int(varies[j]), float(np.clip(r[i, j], -1, 1))) for i, j in pairs]
    return sorted(alike, key=lambda pair: -abs(pair[2]))


def warn_of_table(table: Array, names: Any = None) -> None:
    """One warning each: columns with one value, far values, more columns than rows, columns nearly alike."""
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
    if alike := near_duplicates(table):
        shown = [f"{called[i]} and {called[j]} (r = {r:.3f})" for i, j, r in alike]
        _warn(f"columns nearly alike stand for each other, so do not trust which one is kept: {_some(shown)}")


def warn_of_target(target: Array) -> None:
    """The same for numbers that are to be predicted."""
    if len(target) > 1 and constant_columns(target):
        _warn("y has one value only: there is nothing to learn from the columns")
    for column, row in far_values(target):
        _warn(f"beside {target[row, column]:g} in row {row} all other values of y look alike")


def _warn(message: str) -> None:
    warnings.warn(f"fit: {message}", UserWarning, stacklevel=6)


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")

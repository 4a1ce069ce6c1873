"""A user's table and settings, looked at before a fit: what scikit-learn would refuse without naming it."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from slabnet.config.settings import Start, TrainConfig
from slabnet.core.errors import one_line, refuse
from slabnet.data.frames import LazyFrame, is_frame
from slabnet.estimators.scaling import Array

LARGE = 2**28  # bytes of a sparse table made dense that are worth a warning
TEXTS, DATES = "OUST", "mM"  # kinds of numpy's types


def look_at(where: str, table: Any) -> Any:
    """The table, collected if it is a lazy one. Refused: two columns of one name, dates, and text
    outside of data frames.

    >>> look_at("fit", np.array([["1.5", "2"], ["3", "many"]]))
    Traceback (most recent call last):
    slabnet.core.errors.ArgumentError: fit: X must be numbers (text comes in data frames), got 'many' in column 1, row 1
    """
    if isinstance(table, LazyFrame):
        table = table.collect()
    _check_names(where, table)
    for name, values in _not_numbers(table):
        if values.dtype.kind in DATES:
            refuse(where, "X", "numbers (a date as days since some day, say)", f"dates in column {one_line(name)}")
        for row, text in _texts(values) if isinstance(table, (list, np.ndarray)) else ():
            refuse(where, "X", "numbers (text comes in data frames)", f"{text} in column {one_line(name)}, row {row}")
    return table


def look_at_numbers(where: str, target: Any) -> None:
    """Refuse text among the numbers that are to be predicted."""
    values = np.asarray(target, dtype=object) if isinstance(target, list) else np.asarray(target)
    if values.ndim == 1 and values.dtype.kind in TEXTS:
        for row, text in _texts(values):
            refuse(where, "y", "numbers (labels are for SlabClassifier)", f"{text} in row {row}")


def _texts(values: Any) -> Iterator[tuple[int, str]]:
    """Row and text, as it is shown, of whatever is text and no number."""
    for row, value in enumerate(values):
        if isinstance(value, (str, bytes)) and not _is_number(value):
            yield row, one_line(repr(value.item() if isinstance(value, np.generic) else value))


def dense(table: Any) -> Array:
    """A sparse table as a dense one; what that takes is said where it is much."""
    if not sparse.issparse(table):
        return np.asarray(table)
    size = table.shape[0] * table.shape[1] * 8
    if size > LARGE:
        warnings.warn(f"X is sparse and is made dense: {size / 2**20:.0f} MB", UserWarning, stacklevel=4)
    return np.asarray(table.toarray())


def _check_names(where: str, table: Any) -> None:
    names = [str(name) for name in table.columns] if is_frame(table) else []
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        refuse(where, "X", "a table whose columns have different names", f"{one_line(twice[0])} twice")


def _not_numbers(table: Any) -> Iterator[tuple[str, Any]]:
    """Name and values of each column whose type is not one of numbers."""
    columns: Iterator[tuple[str, Any]] = iter(())
    if is_frame(table):
        columns = ((str(name), np.asarray(table[name])) for name in table.columns)  # one at a time: they may be copies
    elif isinstance(table, (list, np.ndarray)):
        values = np.asarray(table, dtype=object) if isinstance(table, list) else table
        columns = ((str(number), column) for number, column in enumerate(values.T if values.ndim == 2 else ()))
    yield from ((name, values) for name, values in columns if values.dtype.kind in TEXTS + DATES)


def _is_number(text: str | bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_settings(where: str, standardize: Any, verbose: Any, config: Any, start: Any) -> None:
    """Refuse settings of an estimator that are not of their type.

    >>> check_settings("SlabRegressor", True, 0, None, None)
    """
    if not isinstance(standardize, (bool, np.bool_)):
        refuse(where, "standardize", "True or False", standardize)
    if not isinstance(verbose, (int, np.integer, np.bool_)) or verbose < 0:
        refuse(where, "verbose", "0 (silent) or 1 (progress)", verbose)
    if config is not None and not isinstance(config, TrainConfig):
        refuse(where, "config", "a TrainConfig or None", type(config).__name__)
    if start is not None and not isinstance(start, Start):
        refuse(where, "start", "a Start or None", type(start).__name__)

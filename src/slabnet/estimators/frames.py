"""Data frames as they are: how an estimator reads text, categories and gaps, and speaks of columns afterwards."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.utils.validation import validate_data

from slabnet.core.errors import one_line, refuse
from slabnet.data.columns import as_numbers
from slabnet.data.frames import PLAIN_KINDS, columns_of, is_arrow, is_frame
from slabnet.data.tabular import Table
from slabnet.estimators.checks import dense, look_at
from slabnet.estimators.scaling import Array


class ReadsFrames:
    """The part of an estimator that turns a table of the user's into inputs of the network.

    table_: what was learned of the columns (`slabnet.data.Table`), where they were not all numbers without a gap; else
        None, and a column is an input.
    """

    table_: Table | None
    n_features_in_: int
    feature_names_in_: Any
    _groups_of_inputs: dict[str, tuple[int, ...]] | None = None  # where the columns of a file are inputs here already

    @property
    def column_groups_(self) -> dict[str, tuple[int, ...]]:
        """The positions of the network's inputs that belong to each column, in the order of the columns."""
        if self.table_ is None:
            return {name: (i,) for i, name in enumerate(self._column_names())}
        return {name: self.table_.column_groups.get(name, ()) for name in self._column_names()}

    def _gate_groups(self, gates: str | Sequence[str] | None) -> dict[str, tuple[int, ...]] | None:
        """One gate for each column of the table, however many inputs the network has for it; None for arrays."""
        if "inputs" not in ((gates,) if isinstance(gates, str) else tuple(gates or ())):
            return None
        named = self.table_ is not None or hasattr(self, "feature_names_in_")
        groups = self._groups_of_inputs or (self.column_groups_ if named else {})
        return {name: places for name, places in groups.items() if places} or None

    def _named_groups(self) -> dict[str, tuple[int, ...]]:
        """The inputs of each column, by name; columns of an array are called x0, x1 and so on."""
        named = self.table_ is not None or hasattr(self, "feature_names_in_")
        return {name if named else f"x{name}": at for name, at in self.column_groups_.items()}

    def _column_names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        return [str(name) for name in names]

    def _input_names(self) -> list[str]:
        """A name for each input of the network."""
        return self._column_names() if self.table_ is None else self.table_.inputs

    def _inputs(self, X: Any, reset: bool) -> Array:
        """The rows of `X` as inputs; what is learned of the columns is kept where `reset`."""
        where = type(self).__name__
        X = look_at(where, X)
        columns = frame_columns(X)
        if columns is None:
            gaps = reset or getattr(self, "table_", None) is not None
            options = {"accept_sparse": True, "dtype": np.float64, "ensure_all_finite": "allow-nan" if gaps else True}
            numbers = dense(validate_data(self, _readable(X), reset=reset, **options))
            if reset and not np.isnan(numbers).any():
                self.table_ = None
            if (self.table_ if not reset else np.isnan(numbers).any() or None) is None:
                return numbers
            columns = dict(zip(self._column_names(), numbers.T, strict=True))
        else:
            self._check_columns(X, list(columns), reset)
        called = range(len(next(iter(columns.values()), ())))
        if reset:
            self.table_ = Table.learn(columns, where=where, numbers=called)
        if self.table_ is None:  # numbers without gaps were fitted
            return _numbers_only(columns, where)
        return self.table_.apply(columns, where, numbers=called)[0]

    def _unseen(self, X: Any) -> dict[str, list[int]]:
        """For each column the rows of `X` that hold a level training never saw."""
        columns = frame_columns(look_at(type(self).__name__, X)) if self.table_ is not None else None
        return {} if columns is None or self.table_ is None else self.table_.apply(columns)[1].unseen

    def _check_columns(self, X: Any, names: list[str], reset: bool) -> None:
        """The columns are those that were fitted, in their order; scikit-learn says so but for Arrow."""
        if not is_arrow(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
        elif reset:
            self.n_features_in_, self.feature_names_in_ = len(names), np.asarray(names, dtype=object)
        elif names != self._column_names():
            refuse(type(self).__name__, "X", f"a table with the columns {_some(self._column_names())}", _some(names))

    def on_inputs(self) -> Self:
        """A copy that takes rows of the network's inputs, as `table_.apply` makes them."""
        bare = copy.copy(self)
        if self.table_ is not None:
            bare.table_, bare.n_features_in_ = None, len(self.table_.inputs)
            bare.__dict__.pop("feature_names_in_", None)
        return bare

    def _by_column(self, of_inputs: Array) -> Array:
        """For each column the largest value of its inputs; 0 where it has none."""
        if self.table_ is None:
            return of_inputs
        places = self.column_groups_.values()
        return np.array([of_inputs[list(group)].max() if group else 0 for group in places], dtype=of_inputs.dtype)


def frame_columns(table: Any) -> dict[str, Any] | None:
    """The columns of a data frame that holds more than numbers; None for any other table.

    >>> frame_columns(np.zeros((2, 2))) is None
    True
    """
    if sparse.issparse(table) or not (is_arrow(table) or is_frame(table)):
        return None
    columns = columns_of(table)
    plain = all(
        isinstance(values, np.ndarray) and values.dtype.kind in PLAIN_KINDS and not np.isnan(values).any()
        for values in columns.values()
    )
    return None if plain else columns


def _numbers_only(columns: dict[str, Any], where: str) -> Array:
    """The columns as numbers; text and gaps are refused by name."""
    called = range(len(next(iter(columns.values()), ())))
    parts = {name: as_numbers(values, name, where, called) for name, values in columns.items()}
    for name, values in parts.items():
        gaps = np.flatnonzero(np.isnan(values))
        if len(gaps):
            allowed = "numbers without a gap, as those that were fitted"
            refuse(where, f"column {one_line(name)}", allowed, f"none in row {gaps[0]}")
    return np.column_stack(list(parts.values()))


def _some(names: list[str], most: int = 8) -> str:
    shown = ", ".join(one_line(name, 40) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _readable(table: Any) -> Any:
    """A bare array of objects; cells that are neither number nor text are taken for gaps, which is said."""
    if not (isinstance(table, np.ndarray) and table.dtype == object and table.ndim == 2):
        return table
    strange = [(row, column) for (row, column), value in np.ndenumerate(table) if isinstance(value, (dict, list, set))]
    if not strange:
        return table
    row, column = strange[0]
    warning = f"cells that are neither numbers nor text are taken as missing: {one_line(repr(table[row, column]))}"
    warnings.warn(f"{warning} in column {column}, row {row}", UserWarning, stacklevel=5)
    known = table.copy()
    for place in strange:
        known[place] = np.nan
    return known

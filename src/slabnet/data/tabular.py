"""`Table`: how the columns of a user's table become the inputs of a network, and how inputs become columns again.

Learned once from the training rows, kept as JSON in the model file, applied again to new rows. The rules:

| column | inputs |
|---|---|
| numbers, text read as numbers (`cells.py`) | one, gaps at the median; one more for gaps where training had some |
| text, categories, booleans, `categorical` | one for each level; one more for gaps where training had some |
| the same with two levels | one, for the second level |
| the same with more than 20 levels | those of fewer than 5 rows or 1% share one, as do all beyond 50 |
| text that hardly comes again, dates | refused by name, all such columns at once |
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from slabnet.core.errors import Complaints, FileError, one_line, refuse
from slabnet.data.cells import PLAIN, Reading, as_label, is_missing
from slabnet.data.columns import (
    MISSING,
    RARE,
    Array,
    Column,
    as_numbers,
    column_from_dict,
    column_to_dict,
    learn_column,
)
from slabnet.data.frames import columns_of
from slabnet.data.reading import Chunk

LONGEST_NAMES = 2**24  # characters of all names of inputs: a file of them could not be written


@dataclass
class Report:
    """What was met on the way: missing values, unknown levels, columns that are not there."""

    missing: Counter[str] = field(default_factory=Counter)
    unknown: dict[str, Counter[str]] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    unseen: dict[str, list[int]] = field(default_factory=dict)  # column -> positions of rows of an unknown level

    def lines(self) -> list[str]:
        """The same for a person."""
        lines = []
        if self.absent:
            lines.append(f"Columns that are not there, taken as missing: {_some(self.absent)}.")
        if self.ignored:
            lines.append(f"Columns the model does not know, ignored: {_some(self.ignored)}.")
        for name, levels in self.unknown.items():
            rows = sum(levels.values())
            lines.append(f"{one_line(name)}: {rows} rows with levels not seen in training ({_some(tuple(levels))}).")
        filled = [f"{one_line(name)} {count}" for name, count in self.missing.items() if name not in self.absent]
        if filled:
            lines.append(f"Missing values filled in: {_some(tuple(filled))}.")
        return lines


@dataclass(frozen=True)
class Table:
    """How the columns of a table become the inputs of a network, and how inputs become columns again.

    columns: what was learned of each. target: how the numbers to be predicted are read, where they came as text.

    >>> rows = {"size": ["1", "", "3"], "colour": ["red", "blue", "red"], "price": ["$1,200", "$950", "$1,000"]}
    >>> table = Table.learn(rows)
    >>> table.inputs
    ['size', 'size (missing)', 'colour=red', 'price']
    >>> x, report = table.apply(rows)
    >>> x.tolist()
    [[1.0, 0.0, 1.0, 1200.0], [2.0, 1.0, 0.0, 950.0], [3.0, 0.0, 1.0, 1000.0]]
    >>> table.column_groups
    {'size': (0, 1), 'colour': (2,), 'price': (3,)}
    >>> table.undo(x)["size"], table.undo(x)["colour"]
    ([1.0, None, 3.0], ['red', 'blue', 'red'])
    """

    columns: tuple[Column, ...]
    target: Reading = PLAIN

    @classmethod
    def learn(
        cls, table: Any, categorical: tuple[str, ...] = (), where: str = "fit", numbers: Sequence[int] | None = None
    ) -> Self:
        """Look at the columns of a training table; `categorical` names columns of numbers that are labels.

        table: a data frame (pandas, polars, Arrow), or a dictionary of columns.

        numbers: of the rows in their file, for errors.
        """
        table = columns_of(table, where)
        for name in categorical:
            if name not in table:
                refuse(where, "--categorical", f"one of the columns {_some(tuple(table))}", name)
        columns, bad, complaints = [], [], Complaints(where)
        for name, values in table.items():
            before = len(complaints.lines)
            with complaints:
                columns.append(learn_column(name, values, name in categorical, where, numbers))
            bad += [name] if len(complaints.lines) > before else []
        complaints.settle(f" (to leave them all out: --drop {one_line(','.join(bad), 400)})")
        return cls(tuple(column for column in columns if column is not None))

    @property
    def column_groups(self) -> dict[str, tuple[int, ...]]:
        """The positions of the inputs that belong to each column."""
        groups, first = {}, 0
        for column in self.columns:
            groups[column.name] = tuple(range(first, first := first + len(column.inputs)))
        return groups

    @property
    def notes(self) -> list[str]:
        """What was done to columns that a person should know of."""
        lines = [
            f"{one_line(c.name)}: read as numbers ({c.reading.told()})." for c in self.columns if not c.reading.plain
        ]
        for column in self.columns:
            if RARE in column.levels:
                common = len(column.levels) - 1 - (MISSING in column.levels)
                lines.append(
                    f"{one_line(column.name)}: {common} levels have an input each, rarer ones share one, {RARE}."
                )
        return lines

    def undo(self, x: Array) -> dict[str, list[float | str | None]]:
        """The columns that rows of inputs came from: numbers, levels, None where a value was missing.

        A level that training never saw, and a gap where training had none, cannot be told any more.
        """
        rows = np.asarray(x, dtype=np.float64)
        groups = self.column_groups
        return {c.name: [c.value_of(row) for row in rows[:, list(groups[c.name])]] for c in self.columns}

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs of the network, in order."""
        return [name for column in self.columns for name in column.inputs]

    def apply(
        self, table: Any, where: str = "predict", first_row: int = 1, numbers: Sequence[int] | None = None
    ) -> tuple[Array, Report]:
        """(rows, inputs) as numbers, and what was met; `first_row` or `numbers` say which rows these are."""
        table = columns_of(table, where)
        absent = tuple(column.name for column in self.columns if column.name not in table)
        if len(absent) == len(self.columns):
            refuse(
                where,
                "DATA",
                f"a table with the columns {_some(tuple(c.name for c in self.columns))}",
                _some(tuple(table)),
            )
        known = {column.name for column in self.columns}
        report = Report(absent=absent, ignored=tuple(name for name in table if name not in known))
        rows = len(next(iter(table.values()), []))
        row_numbers = range(first_row, first_row + rows) if numbers is None else numbers
        parts, complaints = [], Complaints(where)
        for column in self.columns:
            with complaints:
                parts.append(self._part(column, table, rows, report, where, row_numbers))
        complaints.settle()
        return np.hstack(parts) if parts else np.zeros((rows, 0)), report

    def _part(
        self, column: Column, table: Chunk, rows: int, report: Report, where: str, row_numbers: Sequence[int]
    ) -> Array:
        values = table.get(column.name, [None] * rows)
        if column.kind == "number":
            numbers = as_numbers(values, column.name, where, row_numbers, column.reading)
            gone = np.isnan(numbers)
            if gone.any():
                report.missing[column.name] += int(gone.sum())
            filled = np.where(gone, column.fill, numbers)[:, None]
            return np.hstack([filled, gone[:, None].astype(np.float64)]) if column.missing else filled
        places = {level: i for i, level in enumerate(column.coded)}
        out = np.zeros((rows, len(places)))
        for row, value in enumerate(values):
            level = MISSING if is_missing(value) else as_label(value)
            if level == MISSING:
                report.missing[column.name] += 1
            if level in places or level == column.base:
                out[row, places.get(level, 0)] = float(level in places)
                continue
            if column.base is not None:
                out[row, 0] = column.fill  # neither of the two: as often as it was the second one
            if level == MISSING:
                continue
            report.unknown.setdefault(column.name, Counter())[level] += 1
            if RARE in places:
                out[row, places[RARE]] = 1.0
            else:
                report.unseen.setdefault(column.name, []).append(row)
        return out

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, for the header of a model file."""
        target = {} if self.target.plain else {"target": {"unit": self.target.unit, "mark": self.target.mark}}
        return {"columns": [column_to_dict(column) for column in self.columns]} | target

    @classmethod
    def from_dict(cls, described: Any) -> Self:
        """What `to_dict` gave; anything else is refused."""
        try:
            columns = tuple(column_from_dict(c) for c in described["columns"])
            of_target = described.get("target", {})
            target = Reading(str(of_target.get("unit", "")), str(of_target.get("mark", "")))
            if not all(math.isfinite(column.fill) for column in columns):
                raise ValueError("a fill that is no number")
            if sum(len(column.name) * len(column.levels) for column in columns) > LONGEST_NAMES:
                raise ValueError(f"names of inputs with more than {LONGEST_NAMES} characters")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FileError(f"load: preprocessing must be a list of columns, got: {one_line(repr(error))}") from None
        return cls(columns, target)


def _some(names: tuple[str, ...], most: int = 8) -> str:
    shown = ", ".join(one_line(str(name), 40) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"

"""Where to look at a column: values over its training range, or its levels, and the inputs they stand for."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from slabnet.core.errors import one_line, refuse
from slabnet.data.cells import as_label
from slabnet.data.columns import Column
from slabnet.data.tabular import Table
from slabnet.estimators.scaling import Array
from slabnet.prediction.curves import Grid
from slabnet.prediction.extrapolation import TrainingSupport

PAIR_POINTS = 15  # along each of two columns
BEYOND = 0.1  # of the training range, on either side
FAR = 3.717  # .999 of the distances of two normal numbers from their mean lie below it


@dataclass(frozen=True)
class Layout:
    """The columns of an estimator: their inputs, what was learned of them, and rows of them in the table's units."""

    groups: Mapping[str, Sequence[int]]
    table: Table | None
    support: TrainingSupport | None
    rows: Array

    def grid(self, wanted: Sequence[Any], at: Any, points: int) -> Grid:
        """The points of one column, or of all pairs of values of two."""
        if len(wanted) not in (1, 2):
            refuse("effects", "column", "one column or a pair of them", f"{len(wanted)} of them")
        names = tuple(self._name(one) for one in wanted)
        if len(set(names)) < len(names):
            refuse("effects", "column", "two different columns", one_line(names[0]))
        given = (at,) if len(names) == 1 else (None, None) if at is None else tuple(at)
        if len(given) != len(names):
            refuse("effects", "at", "values for each of the two columns", f"{len(given)} of them")
        values = [self._values(name, one, points) for name, one in zip(names, given, strict=True)]
        product = tuple(itertools.product(*values))
        inputs = np.zeros((len(product), self.rows.shape[1]))
        places = np.zeros(self.rows.shape[1], dtype=bool)
        for number, name in enumerate(names):
            group = list(self.groups[name])
            inputs[:, group] = self._inputs(name, [point[number] for point in product])
            places[group] = True
        columns = torch.tensor([name in names for name in self.groups])
        rug = tuple(self._rug(name) for name in names)
        outside = self._outside(inputs, places, names)
        return Grid(names, product, torch.as_tensor(inputs), columns, torch.as_tensor(places), outside, rug)

    def numbers(self, name: str) -> Array | None:
        """The column's numbers in the rows; None where it is a category or has gaps."""
        group = self.groups[name]
        learned = self._column(name)
        if len(group) != 1 or (learned is not None and learned.kind != "number"):
            return None
        return np.asarray(self.rows[:, group[0]])

    def _name(self, wanted: Any) -> str:
        names = list(self.groups)
        if isinstance(wanted, str) and wanted in self.groups:
            name = wanted
        elif isinstance(wanted, (int, np.integer)) and not isinstance(wanted, bool) and 0 <= wanted < len(names):
            name = names[int(wanted)]
        else:
            shown = ", ".join(one_line(known, 30) for known in names[:20])
            refuse("effects", "column", f"one of {shown}, or its position", one_line(repr(wanted)))
        if not self.groups[name]:
            refuse("effects", "column", "one that the network has an input for", one_line(name))
        return name

    def _column(self, name: str) -> Column | None:
        if self.table is None:
            return None
        return next(column for column in self.table.columns if column.name == name)

    def _values(self, name: str, at: Any, points: int) -> list[Any]:
        learned, place = self._column(name), self.groups[name][0]
        if learned is not None and learned.kind == "category":
            levels = [as_label(value) for value in (learned.levels if at is None else at)]
            strange = [level for level in levels if level not in learned.levels]
            if strange:
                known = ", ".join(one_line(level, 30) for level in learned.levels[:20])
                refuse("effects", "at", f"levels of {one_line(name)} ({known})", one_line(strange[0]))
            return levels
        if at is not None:
            numbers = np.unique(np.asarray(at, dtype=np.float64))
            if not len(numbers) or not np.isfinite(numbers).all():
                refuse("effects", "at", "finite numbers", one_line(at))
            return [float(value) for value in numbers]
        seen = np.unique(self.rows[:, place])
        if len(seen) <= 2:
            return [float(value) for value in seen]
        low, high = (seen[0], seen[-1]) if self.support is None else (self.support.low[place], self.support.high[place])
        room = BEYOND * (high - low)
        return [float(value) for value in np.linspace(low - room, high + room, points)]

    def _inputs(self, name: str, values: list[Any]) -> Array:
        learned, width = self._column(name), len(self.groups[name])
        if learned is None or learned.kind == "number":
            return np.column_stack([np.asarray(values), np.zeros((len(values), width - 1))])
        return np.array([[float(level == value) for level in learned.coded] for value in values])

    def _rug(self, name: str) -> tuple[Any, ...]:
        learned, group = self._column(name), list(self.groups[name])
        values = [float(row[0]) if learned is None else learned.value_of(row) for row in self.rows[:, group]]
        numbers = [value for value in values if isinstance(value, float)]
        return tuple(sorted(numbers)) if numbers else tuple(value for value in values if value is not None)

    def _outside(self, inputs: Array, places: NDArray[np.bool_], names: tuple[str, ...]) -> NDArray[np.bool_]:
        """Points outside the training range of a number; of two numbers, also far from where both lie together."""
        if self.support is None:
            return np.zeros(len(inputs), dtype=bool)
        kinds = [self._column(name) for name in names]
        first = [self.groups[n][0] for n, c in zip(names, kinds, strict=True) if c is None or c.kind == "number"]
        if not first:
            return np.zeros(len(inputs), dtype=bool)
        some = inputs[:, first]
        out = ((some < self.support.low[first]) | (some > self.support.high[first])).any(1)
        if len(first) == 2 and self.support.scatter is not None and self.support.rows > 2:
            away = some / self.support.scale[first] - self.support.mean[first]
            spread = self.support.scatter[np.ix_(first, first)] / (self.support.rows - 1)
            squares = np.einsum("gi,ij,gj->g", away, np.linalg.pinv(spread), away)
            out = out | (squares > FAR**2)
        return np.asarray(out)

"""What makes rows of a table depend on each other: a group, or a time, and the column that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slabnet.core.errors import one_line, refuse
from slabnet.data.cells import as_label, is_missing
from slabnet.data.columns import as_numbers

Rows = NDArray[Any]


@dataclass(frozen=True)
class Dependence:
    """What makes rows of a table depend on each other: a label of a group, or a time, for each of them."""

    groups: Rows | None = None
    times: Rows | None = None

    @classmethod
    def of(cls, groups: Any, times: Any) -> Dependence:
        return cls(*(None if values is None else np.asarray(values) for values in (groups, times)))

    def of_rows(self, places: Rows) -> Dependence:
        """The same for some of the rows."""
        return Dependence(*(None if values is None else values[places] for values in (self.groups, self.times)))


INDEPENDENT = Dependence()


def check_dependence(where: str, rows: int, groups: Rows | None, times: Rows | None) -> None:
    """Refuse labels or times that are not one for each row."""
    if groups is not None and times is not None:
        refuse(where, "groups, times", "given one of the two", "both")
    for name, values in (("groups", groups), ("times", times)):
        if values is not None and np.shape(values) != (rows,):
            refuse(where, name, f"one for each of the {rows} rows", f"shape {np.shape(values)}")
    if times is not None and (times.dtype.kind not in "iufb" or not np.isfinite(times).all()):
        refuse(where, "times", "finite numbers", f"values of type {times.dtype}")
    if groups is not None and len(np.unique(groups)) < 2:
        refuse(where, "groups", "at least two different groups", "one")


def dependence_of(
    table: Mapping[str, Sequence[Any]], group: str | None, time: str | None, numbers: Sequence[int], where: str
) -> Dependence:
    """The groups or times of the rows of a table; numbers: what each row is called.

    >>> dependence_of({"x": [1, 2], "who": ["a", "b"]}, "who", None, [1, 2], "fit").groups.tolist()
    ['a', 'b']
    """
    if group is not None and time is not None:
        refuse(where, "--group, --time", "given one of the two", "both")
    name = group if group is not None else time
    if name is None:
        return Dependence()
    option = "--group" if group is not None else "--time"
    if name not in table:
        known = ", ".join(one_line(n, 30) for n in list(table)[:20])
        refuse(where, option, f"one of the columns {known}", one_line(name))
    values = table[name]
    for value, number in zip(values, numbers, strict=True):
        if is_missing(value):
            refuse(where, option, "a column with a value in every row", f"none in row {number} of {one_line(name)}")
    if group is None:
        return Dependence(times=as_numbers(values, name, where, numbers=numbers))
    labels = np.array([str(as_label(value)) for value in values])
    if len(np.unique(labels)) < 2:
        refuse(where, option, "a column of at least two groups", f"{one_line(name)}, always {one_line(labels[0])}")
    return Dependence(groups=labels)

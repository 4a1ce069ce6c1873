"""What a person should know of columns before a table is fitted: ids, row numbers, two that say the same."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slabnet.core.errors import one_line
from slabnet.data.cells import as_label, is_missing, reading_of
from slabnet.data.reading import Chunk

FEWEST = 10  # rows below which every column looks like an id
NEAR = 0.999  # a correlation above this is the same column in another unit, or nearly
ROWS = 5000  # that are looked at, the first ones
MOST_PAIRED = 200  # columns that are compared with one another
MOSTLY = 0.5
_NAMED_ID = re.compile(r"(.*[^a-z])?(id|ids|key|uuid|guid|idx|index|nr|no|number|code)|unnamed: 0", re.IGNORECASE)
_CAMEL_ID = re.compile(r".*[a-z](Id|ID|Key|Nr|No)")


def noticed(table: Chunk, target: Sequence[Any] = (), name: str = "") -> list[str]:
    """One line for each kind of column that is likely a mistake; `target`, of that `name`, is looked for among them.

    >>> rows = [str(i) for i in range(1, 31)]
    >>> noticed({"id": rows, "a": ["x", "y", "z"] * 10, "b": ["u", "v", "w"] * 10})
    ['id counts the rows: leave it out with --drop id.', 'a and b say the same: leave one out with --drop b.']
    """
    table, target = {column: values[:ROWS] for column, values in table.items()}, target[:ROWS]
    columns = {column: _as_numbers(values) for column, values in table.items()}
    lines = []
    for column, values in table.items():
        told = _identity(column, values, columns[column])
        if told:
            shown = one_line(column)
            lines.append(f"{shown} {told}: leave it out with --drop {shown}.")
    lines += [f"{_both(a, b)}: leave one out with --drop {one_line(b)}." for a, b in _pairs(table, columns)]
    if len(target):
        answer = {name: _as_numbers(list(target))}
        for column in table:
            if _same(table[column], list(target), columns[column], answer[name]):
                shown = one_line(column)
                lines.append(
                    f"{shown} gives {one_line(name)} away, which is to be predicted: leave it out with --drop {shown}."
                )
    return lines


def _both(one: str, other: str) -> str:
    return f"{one_line(one)} and {one_line(other)} say the same"


def _as_numbers(values: Sequence[Any]) -> NDArray[np.float64] | None:
    """A column as numbers, NaN where it has none; None for text."""
    try:
        read = reading_of(values)
    except ValueError:
        return None
    numbers = [read.number(value) for value in values]
    present = sum(not is_missing(value) for value in values)
    known = sum(number is not None and math.isfinite(number) for number in numbers)
    if known <= MOSTLY * max(1, present):
        return None
    return np.array([math.nan if n is None or not math.isfinite(n) else n for n in numbers])


def _identity(name: str, values: Sequence[Any], numbers: NDArray[np.float64] | None) -> str:
    """Why a column looks like the name or the number of a row; "" where it does not."""
    if len(values) < FEWEST:
        return ""
    if numbers is not None:
        if not np.isfinite(numbers).all() or not (numbers == np.round(numbers)).all():
            return ""
        if (np.abs(np.diff(numbers)) == 1).all() and len(set(np.diff(numbers).tolist())) == 1:
            return "counts the rows"
        different = len(np.unique(numbers)) == len(numbers)
    else:
        different = len(set(map(as_label, values))) == len(values)
    named = _NAMED_ID.fullmatch(name.strip()) or _CAMEL_ID.fullmatch(name.strip())
    return "looks like an id (every row has another value)" if different and named else ""


def _pairs(table: Chunk, columns: dict[str, NDArray[np.float64] | None]) -> list[tuple[str, str]]:
    """Pairs of columns of which the second says nothing that the first does not say; each second one once."""
    names, seconds, pairs = list(table)[:MOST_PAIRED], set(), []
    for place, one in enumerate(names):
        for other in names[place + 1 :]:
            if one in seconds or other in seconds:
                continue
            if _same(table[one], table[other], columns[one], columns[other]):
                seconds.add(other)
                pairs.append((one, other))
    return pairs


def _same(
    one: Sequence[Any], other: Sequence[Any], a: NDArray[np.float64] | None, b: NDArray[np.float64] | None
) -> bool:
    """Whether two columns are one: a straight line between numbers, another name for every level of text."""
    if len(one) < FEWEST or (a is None) != (b is None):
        return False
    if a is not None and b is not None:
        both = np.isfinite(a) & np.isfinite(b)
        if (np.isfinite(a) != np.isfinite(b)).any() or both.sum() < FEWEST:
            return False
        x, y = (part[both] / max(1.0, float(np.abs(part[both]).max())) for part in (a, b))  # squares of 1e200 overflow
        x, y = x - x.mean(), y - y.mean()
        size = math.sqrt(float((x @ x) * (y @ y)))
        return size > 0 and math.isfinite(size) and abs(float(x @ y)) > NEAR * size
    left, right = [as_label(value) for value in one], [as_label(value) for value in other]
    levels = len(set(left))
    same = levels == len(set(right)) == len(set(zip(left, right, strict=True)))
    return same and 1 < levels <= MOSTLY * len(left)

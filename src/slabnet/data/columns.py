"""One column of a user's table: what is learned of it, and what turns its cells into inputs of a network."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from slabnet.core.errors import ArgumentError, one_line, refuse
from slabnet.data.cells import (
    PLAIN,
    Reading,
    amount_of,
    as_label,
    is_missing,
    number_of,
    plain_numbers,
    reading_of,
    says_none,
)

Array = NDArray[np.float64]
MISSING, RARE = "(missing)", "(rare)"
_TIMES = (datetime.date, datetime.time, datetime.timedelta)
MOST_LEVELS, MANY_LEVELS = 50, 20
FEWEST_OF_A_LEVEL, LEAST_SHARE = 5, 0.01  # rows of a level that has an input of its own, where there are many levels
FEW_LEVELS = 10  # so many may come once each and still be a category
LARGEST = 1e300  # sums of larger numbers are infinite
MOSTLY = 0.5  # a column with more numbers than this is one of numbers, and text in it a mistake
_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})( .*)?|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?"
)
_MONTH = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_SPOKEN = re.compile(  # 01-Jan-2024, January 5, 2024, Mon 01/02/2024 10:00 PM, 2024-01
    rf"\d{{1,2}}[-/. ]{_MONTH}[-/., ]+\d{{2,4}}\b.*|{_MONTH} \d{{1,2}},? \d{{4}}\b.*|(19|20)\d\d-(0[1-9]|1[0-2])|"
    r"(mon|tue|wed|thu|fri|sat|sun)[a-z]*,? \d.*",
    re.IGNORECASE,
)
_COMMA = re.compile(r"[+-]?\d+,\d+")
Kind = Literal["number", "category"]


@dataclass(frozen=True)
class Column:
    """One column: its kind, and what turns it into inputs.

    fill: what stands for a number that is missing; of two levels, for one that training never saw.
    levels: of a category, in order; `base`, one of them, has no input of its own.
    missing: whether training had gaps, which then have an input.
    reading: how text becomes numbers.
    """

    name: str
    kind: Kind
    fill: float = 0.0
    levels: tuple[str, ...] = ()
    missing: bool = False
    base: str | None = None
    reading: Reading = PLAIN

    @property
    def coded(self) -> tuple[str, ...]:
        """The levels that have an input."""
        return tuple(level for level in self.levels if level != self.base)

    @property
    def inputs(self) -> list[str]:
        """The names of what the network sees of it."""
        if self.kind == "number":
            return [self.name, f"{self.name} {MISSING}"] if self.missing else [self.name]
        return [f"{self.name}={level}" for level in self.coded]

    def value_of(self, inputs: Array) -> float | str | None:
        """What the inputs of one row say of the column; None where it was missing, or is not known."""
        if self.kind == "number":
            return None if self.missing and inputs[1] > 0.5 else float(inputs[0])
        for level, value in zip(self.coded, inputs, strict=True):
            if value > 0.5:
                return None if level == MISSING else level
        return self.base


def as_numbers(
    values: Sequence[Any], name: str, where: str, numbers: Sequence[int] | None = None, reading: Reading | None = None
) -> Array:
    """A column as numbers, NaN where missing; text in it is refused, with its row (`numbers`: what each is called)."""
    called = range(1, len(values) + 1) if numbers is None else numbers
    if isinstance(values, np.ndarray):
        column = values.astype(np.float64)
        large = np.flatnonzero(np.abs(column) > LARGEST)
        if len(large):
            allowed = f"finite numbers up to {LARGEST:g} in size"
            refuse(where, f"column {one_line(name)}", allowed, f"{column[large[0]]:g} in row {called[large[0]]}")
        return column
    numbers_of_all = plain_numbers(values) if reading is None or reading.plain else None
    if numbers_of_all is not None and not (np.abs(numbers_of_all) > LARGEST).any():
        return numbers_of_all
    read = number_of if reading is None or reading.plain else reading.number
    out = np.empty(len(values))
    for row, value in enumerate(values):
        number = read(value)
        if number is None:
            allowed = "numbers" if reading is None else reading.allowed
            more = sum(read(other) is None for other in values[row + 1 :])
            rest = f" and {more} rows more" if more else ""
            came = f"{one_line(repr(value), 40)} in row {called[row]}{rest}"
            refuse(where, f"column {one_line(name)}", allowed, came)
        if abs(number) > LARGEST:
            allowed = f"finite numbers up to {LARGEST:g} in size"
            refuse(where, f"column {one_line(name)}", allowed, f"{one_line(value)} in row {called[row]}")
        out[row] = number
    return out


def numeric(values: Sequence[Any], name: str, where: str) -> Reading | None:
    """How a column is to be read as numbers; None where it is one of text."""
    numbers = plain_numbers(values)
    if numbers is not None:
        return None if np.isnan(numbers).all() else PLAIN
    present = [value for value in values if not is_missing(value) and not says_none(value)]
    if not present or all(isinstance(value, bool) for value in present):
        return None
    with _naming(where, name):
        reading = reading_of(present)
    return reading if sum(reading.number(value) is not None for value in present) > MOSTLY * len(present) else None


def check_answers(values: list[Any], name: str, where: str) -> None:
    """Refuse a target that is dates, or numbers with a comma in them."""
    if plain_numbers(values) is not None:
        return
    present = [value for value in values if not is_missing(value)]
    if any(isinstance(value, _TIMES) for value in present):
        _refuse_date(name, present[0], where)
    _check_texts(name, present, where)


def _check_texts(name: str, present: list[Any], where: str) -> None:
    """Refuse text that stands for something else, if most of a column is such."""
    texts = [value.strip() for value in present if isinstance(value, str)]
    if sum(bool(_DATE.fullmatch(text) or _SPOKEN.fullmatch(text)) for text in texts) > MOSTLY * len(present):
        _refuse_date(name, texts[0], where)
    commas = [text for text in texts if _COMMA.fullmatch(text) is not None and amount_of(text) is None]
    if commas and sum(_COMMA.fullmatch(text) is not None for text in texts) > MOSTLY * len(present):
        came = f"decimal commas, as {one_line(commas[0])}"
        refuse(where, f"column {one_line(name)}", "numbers with a point, or a category (--categorical)", came)


def learn_column(
    name: str, values: Sequence[Any], as_levels: bool, where: str, rows: Sequence[int] | None = None
) -> Column | None:
    if not as_levels and (isinstance(values, np.ndarray) or plain_numbers(values) is not None):
        column = as_numbers(values, name, where, rows)
        gaps = np.isnan(column)
        fill = 0.0 if gaps.all() else float(np.nanmedian(column))
        return None if gaps.all() else Column(name, "number", fill, missing=bool(gaps.any()))
    present = [value for value in values if not is_missing(value)]
    if not present:
        return None  # nothing to learn from
    if any(isinstance(value, _TIMES) for value in present):
        _refuse_date(name, present[0], where)
    if not as_levels:
        _check_texts(name, present, where)
        reading = numeric(present, name, where)
        if reading is not None:
            with _or_levels(name):
                column = as_numbers(values, name, where, rows, reading)
            gone = bool(np.isnan(column).any())
            return Column(name, "number", fill=float(np.nanmedian(column)), missing=gone, reading=reading)
    return _category(name, present, len(present) < len(values), where)


def _category(name: str, present: list[Any], gone: bool, where: str) -> Column:
    """A column of levels: two of them are one input, and rare ones among many share one."""
    counts = Counter(as_label(value) for value in present)
    gone = counts.pop(MISSING, 0) > 0 or gone  # said in words
    if len(counts) > FEW_LEVELS and len(counts) > MOSTLY * len(present):
        _refuse_text(name, counts, where)
    levels = sorted(counts)
    if len(levels) > MANY_LEVELS:
        least = max(FEWEST_OF_A_LEVEL, LEAST_SHARE * len(present))
        often = [level for level, count in counts.most_common(MOST_LEVELS) if count >= least and level != RARE]
        if not often:
            _refuse_text(name, counts, where)
        levels = sorted(often) + ([RARE] if len(often) < len(levels) else [])
    two = len(levels) == 2 and RARE not in levels
    fill = counts[levels[1]] / sum(counts.values()) if two else 0.0
    base = levels[0] if two else None
    return Column(name, "category", fill, tuple([*levels, MISSING] if gone else levels), gone, base)


def _refuse_text(name: str, counts: Counter[str], where: str) -> None:
    allowed = f"numbers, or a category of levels that come again (the {MOST_LEVELS} most frequent are told apart); "
    came = f"text with {len(counts)} different values, as {min(counts)!r}"
    refuse(where, f"column {one_line(name)}", allowed + "leave it out with --drop", came)


def _refuse_date(name: str, value: Any, where: str) -> None:
    allowed = "numbers or a category; leave it out with --drop, or put the numbers you mean in its place"
    refuse(where, f"column {one_line(name)}", allowed, f"dates or times, as {one_line(str(value))}")


@contextmanager
def _naming(where: str, name: str) -> Iterator[None]:
    """Put the column in front of an error about its cells."""
    try:
        yield
    except ArgumentError as error:
        raise ArgumentError(f"{where}: column {one_line(name)} must be {error}") from None


@contextmanager
def _or_levels(name: str) -> Iterator[None]:
    """Say what can be done about a column of numbers with words in it."""
    try:
        yield
    except ArgumentError as error:
        called = one_line(name)
        ways = f"--categorical {called} takes its values for levels, --drop {called} leaves it out"
        raise ArgumentError(f"{error} ({ways})") from None


def column_to_dict(column: Column) -> dict[str, Any]:
    """As JSON; what a column does not have is left out."""
    described: dict[str, Any] = {"name": column.name, "kind": column.kind, "fill": column.fill}
    described |= {"levels": list(column.levels), "missing": column.missing}
    described |= {} if column.base is None else {"base": column.base}
    return described | ({} if column.reading.plain else {"unit": column.reading.unit, "mark": column.reading.mark})


def column_from_dict(described: Mapping[str, Any]) -> Column:
    levels, base = tuple(map(str, described["levels"])), described.get("base")
    if len(set(levels)) != len(levels):
        raise ValueError("a level that comes twice")
    if base is not None and base not in levels:
        raise ValueError(f"a base {base!r} that is no level")
    reading = Reading(str(described.get("unit", "")), str(described.get("mark", "")))
    fill, missing = float(described["fill"]), bool(described["missing"])
    return Column(str(described["name"]), _kind(described["kind"]), fill, levels, missing, base, reading)


def _kind(value: Any) -> Kind:
    if value not in ("number", "category"):
        raise ValueError(f"kind {value!r}")
    kind: Kind = value
    return kind

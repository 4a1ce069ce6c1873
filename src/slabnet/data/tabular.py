"""What is done to the columns of a table before a network sees it: learned once, kept as JSON, applied again.

Numbers stay numbers; a missing one is replaced by the median, and a column of its own says so where that happened in
training. Text is a category: one column of 0 and 1 for each level, with a level of its own for missing values. Dates
and free text are refused by name.
"""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from slabnet.core.errors import FileError, one_line, refuse
from slabnet.data.reading import Chunk

Array = NDArray[np.float64]
MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
MISSING = "(missing)"
_TIMES = (datetime.date, datetime.time, datetime.timedelta)
MOST_LEVELS = 50
FEW_CLASSES = 10  # whole numbers with at most so many values are taken for classes
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
_WHOLE = re.compile(r"[+-]?\d+\.0+")
_COMMA = re.compile(r"[+-]?\d+,\d+")
Kind = Literal["number", "category"]
Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class Column:
    """One column: its kind, what stands for a missing number, the levels of a category, whether any was missing."""

    name: str
    kind: Kind
    fill: float = 0.0
    levels: tuple[str, ...] = ()
    missing: bool = False

    @property
    def inputs(self) -> list[str]:
        """The names of what the network sees of it."""
        if self.kind == "number":
            return [self.name, f"{self.name} {MISSING}"] if self.missing else [self.name]
        return [f"{self.name}={level}" for level in self.levels]


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
        said = []
        if self.absent:
            said.append(f"Columns that are not there, taken as missing: {_some(self.absent)}.")
        if self.ignored:
            said.append(f"Columns the model does not know, ignored: {_some(self.ignored)}.")
        for name, levels in self.unknown.items():
            rows = sum(levels.values())
            said.append(f"{one_line(name)}: {rows} rows with levels not seen in training ({_some(tuple(levels))}).")
        filled = [f"{one_line(name)} {count}" for name, count in self.missing.items() if name not in self.absent]
        if filled:
            said.append(f"Missing values filled in: {_some(tuple(filled))}.")
        return said


@dataclass(frozen=True)
class Preprocessing:
    """How the columns of a table become the inputs of a network.

    >>> table = {"size": ["1", "", "3"], "colour": ["red", "blue", "red"]}
    >>> prepared = Preprocessing.learn(table)
    >>> prepared.inputs
    ['size', 'size (missing)', 'colour=blue', 'colour=red']
    >>> prepared.apply(table)[0].tolist()
    [[1.0, 0.0, 0.0, 1.0], [2.0, 1.0, 1.0, 0.0], [3.0, 0.0, 0.0, 1.0]]
    """

    columns: tuple[Column, ...]

    @classmethod
    def learn(
        cls, table: Chunk, categorical: tuple[str, ...] = (), where: str = "fit", numbers: Sequence[int] | None = None
    ) -> Self:
        """Look at the columns of a training table; `categorical` names columns of numbers that are labels.

        numbers: of the rows in their file, for errors.
        """
        for name in categorical:
            if name not in table:
                refuse(where, "--categorical", f"one of the columns {_some(tuple(table))}", name)
        columns = [_learn(name, values, name in categorical, where, numbers) for name, values in table.items()]
        return cls(tuple(column for column in columns if column is not None))

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs of the network, in order."""
        return [name for column in self.columns for name in column.inputs]

    def apply(
        self, table: Chunk, where: str = "predict", first_row: int = 1, numbers: Sequence[int] | None = None
    ) -> tuple[Array, Report]:
        """(rows, inputs) as numbers, and what was met; `first_row` or `numbers` say which rows these are."""
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
        said = range(first_row, first_row + rows) if numbers is None else numbers
        parts = [self._part(column, table, rows, report, where, said) for column in self.columns]
        return np.hstack(parts) if parts else np.zeros((rows, 0)), report

    def _part(self, column: Column, table: Chunk, rows: int, report: Report, where: str, said: Sequence[int]) -> Array:
        values = table.get(column.name, [None] * rows)
        if column.kind == "number":
            numbers = as_numbers(values, column.name, where, said)
            gone = np.isnan(numbers)
            if gone.any():
                report.missing[column.name] += int(gone.sum())
            filled = np.where(gone, column.fill, numbers)[:, None]
            return np.hstack([filled, gone[:, None].astype(np.float64)]) if column.missing else filled
        places = {level: i for i, level in enumerate(column.levels)}
        out = np.zeros((rows, len(places)))
        for row, value in enumerate(values):
            level = MISSING if is_missing(value) else as_label(value)
            if level in places:
                out[row, places[level]] = 1.0
            elif level != MISSING:
                report.unknown.setdefault(column.name, Counter())[level] += 1
                report.unseen.setdefault(column.name, []).append(row)
            if level == MISSING:
                report.missing[column.name] += 1
        return out

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, for the header of a model file."""
        names = ("name", "kind", "fill", "levels", "missing")
        return {"columns": [{name: getattr(column, name) for name in names} for column in self.columns]}

    @classmethod
    def from_dict(cls, found: Any) -> Self:
        """What `to_dict` gave; anything else is refused."""
        try:
            columns = tuple(
                Column(
                    str(c["name"]), _kind(c["kind"]), float(c["fill"]), tuple(map(str, c["levels"])), bool(c["missing"])
                )
                for c in found["columns"]
            )
            if not all(math.isfinite(column.fill) for column in columns):
                raise ValueError("a fill that is no number")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FileError(f"load: preprocessing must be a list of columns, got: {one_line(repr(error))}") from None
        return cls(columns)


def as_numbers(values: list[Any], name: str, where: str, numbers: Sequence[int] | None = None) -> Array:
    """A column as numbers, NaN where missing; text in it is refused, with its row (`numbers`: what each is called)."""
    called = range(1, len(values) + 1) if numbers is None else numbers
    out = np.empty(len(values))
    for row, value in enumerate(values):
        number = number_of(value)
        if number is None:
            refuse(where, f"column {one_line(name)}", "numbers", f"{one_line(repr(value), 40)} in row {called[row]}")
        if abs(number) > LARGEST:
            allowed = f"finite numbers up to {LARGEST:g} in size"
            refuse(where, f"column {one_line(name)}", allowed, f"{one_line(value)} in row {called[row]}")
        out[row] = number
    return out


def number_of(value: Any) -> float | None:
    """A cell as a number: NaN where missing, None where it is no number."""
    if is_missing(value):
        return math.nan
    if isinstance(value, (bool, int, float, Decimal)):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    if not isinstance(value, str) or "_" in value:  # Python reads 1_000 as a number, nobody else does
        return None
    try:
        return float(value)
    except ValueError:
        return None


def is_missing(value: Any) -> bool:
    """Whether a cell is empty, or says so."""
    if value is None:
        return True
    if isinstance(value, str):
        return value.strip().lower() in MISSING_WORDS
    return isinstance(value, float) and math.isnan(value)


def as_label(value: Any) -> str:
    """A cell as the name of a level or class."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value).strip()
    return text.partition(".")[0] if _WHOLE.fullmatch(text) else text  # 1.0 where a gap made floats of whole numbers


def guess_task(values: list[Any], name: str, where: str = "fit") -> Task:
    """Classes where the target is text, or a few whole numbers; else a number to be predicted."""
    present = [value for value in values if not is_missing(value)]
    if not present:
        refuse(where, "--target", "a column with values", f"{one_line(name)}, where all are missing")
    numbers = [number for number in map(number_of, present) if number is not None]
    if len(numbers) <= MOSTLY * len(present) or all(isinstance(value, bool) for value in present):
        return "classification"
    distinct = set(numbers)  # a text among many numbers is a mistake, and is named when they are read
    whole = all(math.isfinite(number) and number.is_integer() for number in distinct)
    return "classification" if whole and len(distinct) <= FEW_CLASSES else "regression"


def check_answers(values: list[Any], name: str, where: str) -> None:
    """Refuse a target that is dates, or numbers with a comma in them."""
    present = [value for value in values if not is_missing(value)]
    if any(isinstance(value, _TIMES) for value in present):
        _refuse_date(name, present[0], where)
    _check_texts(name, present, where)


def _check_texts(name: str, present: list[Any], where: str) -> None:
    """Refuse text that stands for something else, if most of a column is such."""
    texts = [value.strip() for value in present if isinstance(value, str)]
    if sum(bool(_DATE.fullmatch(text) or _SPOKEN.fullmatch(text)) for text in texts) > MOSTLY * len(present):
        _refuse_date(name, texts[0], where)
    if sum(_COMMA.fullmatch(text) is not None for text in texts) > MOSTLY * len(present):
        said = f"decimal commas, as {one_line(texts[0])}"
        refuse(where, f"column {one_line(name)}", "numbers with a point, or a category (--categorical)", said)


def _learn(
    name: str, values: list[Any], as_levels: bool, where: str, rows: Sequence[int] | None = None
) -> Column | None:
    present = [value for value in values if not is_missing(value)]
    gone = len(present) < len(values)
    if not present:
        return None  # nothing to learn from
    if any(isinstance(value, _TIMES) for value in present):
        _refuse_date(name, present[0], where)
    if not as_levels and not all(isinstance(value, bool) for value in present):
        numbers = [number_of(value) for value in present]
        good = [number for number in numbers if number is not None]
        if len(good) > MOSTLY * len(present):
            column = as_numbers(values, name, where, rows)
            return Column(name, "number", fill=float(np.nanmedian(column)), missing=gone)
        _check_texts(name, present, where)
    levels = sorted({as_label(value) for value in present} - {MISSING})
    gone = gone or any(value == MISSING for value in present)  # said in words
    if len(levels) > MOST_LEVELS or (len(levels) > FEW_CLASSES and len(levels) > MOSTLY * len(present)):
        allowed = f"numbers or a category of at most {MOST_LEVELS} levels that come again; leave it out with --drop"
        refuse(
            where, f"column {one_line(name)}", allowed, f"text with {len(levels)} different values, as {levels[0]!r}"
        )
    return Column(name, "category", levels=tuple([*levels, MISSING] if gone else levels), missing=gone)


def _refuse_date(name: str, value: Any, where: str) -> None:
    allowed = "numbers or a category; leave it out with --drop, or put the numbers you mean in its place"
    refuse(where, f"column {one_line(name)}", allowed, f"dates or times, as {one_line(str(value))}")


def _kind(value: Any) -> Kind:
    if value not in ("number", "category"):
        raise ValueError(f"kind {value!r}")
    kind: Kind = value
    return kind


def _some(names: tuple[str, ...], most: int = 8) -> str:
    shown = ", ".join(one_line(str(name), 40) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"

"""Errors and the one grammar they speak: where, which parameter, what is allowed, what came.

This module imports nothing heavy, so that a bad command line is refused before torch is loaded.

>>> check_number("mlp", "psi", 1.5, above=0, below=1)
Traceback (most recent call last):
    ...
slabnet.core.errors.ArgumentError: mlp: psi must be a number above 0 and below 1, got 1.5
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any, NoReturn, SupportsIndex

from pydantic import BaseModel, ConfigDict, ValidationError

_LONGEST = 80
_ROOM = 1000  # characters more than are shown, since white space is put together
MOST_COMPLAINTS = 20


class SlabnetError(Exception):
    """Work that failed, said in one line; the command line exits with 1."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(" ".join(str(message).splitlines())))


class ArgumentError(SlabnetError, ValueError):
    """A bad call or bad input; the command line exits with 2 and nothing has been written."""

    exit_code = 2


class FileError(SlabnetError):
    """A file that is damaged or is not what it claims to be."""


class NotFinite(SlabnetError):
    """A prediction that is no finite number, of the row `row` (counted from 0)."""

    def __init__(self, where: str, what: str, came: float, row: int) -> None:
        super().__init__(
            f"{where}: {what} must be finite, got {came:g} in row {row}: its numbers or weights are too large"
        )
        self.where, self.what, self.came, self.row = where, what, came, row

    def later(self, rows: int) -> NotFinite:
        """The same, where so many rows came before."""
        return NotFinite(self.where, self.what, self.came, self.row + rows)


class Stopped(SlabnetError):
    """Work that was asked to stop by a signal, and kept what it had; the command line exits with 128 + the signal."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


class TrainingDiverged(SlabnetError):
    """The loss became infinite or NaN; the network holds its last good state."""


def printable(text: str) -> str:
    """`text` with what a terminal would obey, or not show, written out.

    >>> printable("a\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def one_line(value: object, longest: int = _LONGEST) -> str:
    """`value` as text without line breaks or control characters, cut to a readable length."""
    if isinstance(value, (list, tuple)) and len(value) > longest:
        value = value[:longest]  # no text of all of it is made to show its beginning
    text = value if isinstance(value, str) else str(value) if isinstance(value, PurePath) else repr(value)
    start = text[: longest + _ROOM]  # what a file declares may be megabytes long
    text = printable(" ".join(start.split())) + ("..." if len(text) > len(start) else "")
    return text if len(text) <= longest else text[: longest - 3] + "..."


def refuse(where: str, parameter: str, allowed: str, came: object) -> NoReturn:
    """Raise the one kind of argument error there is; `came` is a value, or words that describe it."""
    raise ArgumentError(f"{where}: {parameter} must be {allowed}, got {one_line(came)}")


class Complaints:
    """Errors that are collected, to be said all at once.

    >>> complaints = Complaints("fit")
    >>> for name in ("a", "b"):
    ...     with complaints:
    ...         refuse("fit", f"column {name}", "numbers", "text")
    >>> complaints.settle()
    Traceback (most recent call last):
        ...
    slabnet.core.errors.ArgumentError: fit: column a must be numbers, got text; column b must be numbers, got text
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.lines: list[str] = []

    def __enter__(self) -> Complaints:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, ArgumentError):
            return False
        self.lines.append(str(error).removeprefix(f"{self.where}: "))
        return True

    def settle(self, remedy: str = "") -> None:
        """Raise what was collected, if anything; remedy: what helps against several at once."""
        if self.lines:
            shown = "; ".join(self.lines[:MOST_COMPLAINTS])
            more = len(self.lines) - MOST_COMPLAINTS
            shown += f"; and {more} more" if more > 0 else ""
            raise ArgumentError(f"{self.where}: {shown}{remedy if len(self.lines) > 1 else ''}")


def check_number(
    where: str,
    parameter: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> float:
    """Return `value` as a float, or refuse it."""
    bounds = [
        (f"above {above}", above is None or (_real(value) and value > above)),
        (f"at least {at_least}", at_least is None or (_real(value) and value >= at_least)),
        (f"below {below}", below is None or (_real(value) and value < below)),
        (f"at most {at_most}", at_most is None or (_real(value) and value <= at_most)),
    ]
    allowed = " and ".join(
        text for (text, _), bound in zip(bounds, (above, at_least, below, at_most), strict=True) if bound is not None
    )
    if not _real(value) or not all(ok for _, ok in bounds):
        refuse(where, parameter, f"a number {allowed}" if allowed else "a finite number", value)
    return float(value)


def check_whole(where: str, parameter: str, value: Any, *, at_least: int) -> int:
    """Return `value` as an int, or refuse it (bool and 3.0 are not whole numbers here)."""
    whole = type(value) is int or (not isinstance(value, bool) and isinstance(value, SupportsIndex))
    if not whole or value.__index__() < at_least:
        refuse(where, parameter, f"a whole number of at least {at_least}", value)
    return int(value)


def check_choice(where: str, parameter: str, value: Any, allowed: Iterable[str]) -> str:
    """Return `value` if it is one of `allowed`."""
    options = list(allowed)
    if value not in options:
        refuse(where, parameter, f"one of {', '.join(options)}", repr(value))
    return str(value)


def _real(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(value)


class Settings(BaseModel):
    """A frozen record of settings whose errors follow the one grammar; unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, /, *given: Any, **values: Any) -> None:  # a file may have a key `self`
        fields = list(type(self).model_fields)
        if len(given) > len(fields):
            refuse(type(self).__name__, "arguments", f"at most {', '.join(fields)}", f"{len(given)} of them")
        values = dict(zip(fields, given, strict=False)) | values
        for name, value in values.items():
            _plain_kind(type(self), name, value)
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ArgumentError(_settings_message(type(self), error)) from None


def _plain_kind(owner: type[BaseModel], name: str, value: Any) -> None:
    """Refuse true for a number, and text that only looks like one."""
    if name not in owner.model_fields or not isinstance(value, (bool, str)):
        return
    kind = owner.model_fields[name].annotation
    kinds = str(kind)
    if kind is bool:
        if not isinstance(value, bool):
            refuse(owner.__name__, name, "true or false", repr(value))
        return
    by_name = isinstance(kind, type) and issubclass(kind, Settings)  # settings of their own, which have names
    takes_text = by_name or "str" in kinds or "Literal" in kinds
    if isinstance(value, bool) or not (takes_text or "tuple" in kinds):
        refuse(owner.__name__, name, "a number" if not takes_text else "text or a number", repr(value))


def _settings_message(owner: type[BaseModel], error: ValidationError) -> str:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    where = owner.__name__
    if first["type"] == "extra_forbidden":
        return f"{where}: {one_line(name)} is not a setting; there are {', '.join(owner.model_fields)}"
    if first["type"] == "value_error":
        return f"{where}: {first['msg'].removeprefix('Value error, ')}"
    allowed = first["msg"].removeprefix("Input should be ")
    came = first.get("input")
    shown = one_line(repr(came)) if isinstance(came, str) else one_line(came)
    return f"{where}: {name} must be {allowed}, got {shown}"

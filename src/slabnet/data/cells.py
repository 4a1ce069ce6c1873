"""One cell of a user's table: whether it is missing, which number it is, which label.

A cell is missing where it is empty or says NA, N/A, NaN, null or "?". The word "none" is a label like any other among
text, and missing among numbers, where it can be nothing else.

Text is a number as Python reads it ("1.5", "-2e3"), or an amount: a currency before or behind it, a per cent sign,
thousands set apart by commas, spaces or apostrophes ("$1,234.50", "1 234 EUR", "12.5%", "(1,200)" for less than zero).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slabnet.core.errors import ArgumentError, one_line

MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "?"})
NOTHING = "none"  # missing among numbers only
PERCENT = "%"
LONGEST = 40  # characters of an amount
_CURRENCY = "US\\$|[$€£¥₹]|USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|NOK|SEK|DKK|kr"
_AMOUNT = re.compile(
    rf"(?P<sign>[-+\u2212]?)\s*(?P<before>{_CURRENCY})?\s*(?P<sign2>[-+\u2212]?)"
    rf"(?P<digits>[\d., '\u00a0\u202f\u2019]*\d)\s*(?P<after>{_CURRENCY}|%)?"
)
_GROUPED = re.compile(r"[1-9]\d{0,2}(?P<mark>[, '\u00a0\u202f\u2019])\d{3}((?P=mark)\d{3})*(\.\d+)?")
_PLAIN = re.compile(r"\d+(\.\d+)?|\.\d+")
_WHOLE = re.compile(r"[+-]?\d+\.0+")


@dataclass(frozen=True)
class Amount:
    """What a text says: a number, its unit ("" for none), and what sets its thousands apart ("" where nothing does)."""

    value: float
    unit: str
    mark: str


@dataclass(frozen=True)
class Reading:
    """How the text of a column becomes numbers: the unit it comes in, and what sets its thousands apart.

    >>> reading_of(["$1,200", "950"])
    Reading(unit='$', mark=',')
    """

    unit: str = ""
    mark: str = ""

    @property
    def plain(self) -> bool:
        """Whether text is read as Python reads it."""
        return self == Reading()

    @property
    def allowed(self) -> str:
        """What a cell must be, for errors."""
        if self.unit == PERCENT:
            return "numbers with a per cent sign, as 12%"
        return f"numbers, or amounts in {self.unit}" if self.unit else "numbers"

    def number(self, value: Any) -> float | None:
        """A cell as a number: NaN where missing, None where it is no number of this kind."""
        plain = number_of(value)
        if plain is not None and (self.unit != PERCENT or math.isnan(plain)):
            return plain
        amount = amount_of(value) if not self.plain and isinstance(value, str) else None
        if amount is None or amount.unit not in (self.unit, "" if self.unit != PERCENT else self.unit):
            return None
        return amount.value

    def told(self) -> str:
        """What was done to the text, in words."""
        parts = ["per cent signs left out: 12% is 12"] if self.unit == PERCENT else []
        parts += [f"amounts in {self.unit}"] if self.unit not in ("", PERCENT) else []
        parts += [f'thousands set apart by "{self.mark}"'] if self.mark else []
        return ", ".join(parts)


PLAIN = Reading()


def reading_of(values: Iterable[Any]) -> Reading:
    """How a column of text and numbers is to be read; two units in one column are refused."""
    units: dict[str, str] = {}
    bare = mark = ""
    for value in values:
        if number_of(value) is not None:
            bare = bare or ("" if math.isnan(number_of(value) or 0.0) else one_line(str(value), 40))
            continue
        amount = amount_of(value) if isinstance(value, str) else None
        if amount is None:
            continue
        mark = mark or amount.mark
        if amount.unit:
            units.setdefault(amount.unit, value.strip())
        else:
            bare = bare or value.strip()
    if len(units) > 1 or (PERCENT in units and bare):
        came = " and ".join(
            repr(text) for text in [*units.values(), *([bare] if PERCENT in units and bare else [])][:2]
        )
        raise ArgumentError(f"numbers of one unit, got {came}")
    return Reading(next(iter(units), ""), mark)


def amount_of(text: str) -> Amount | None:
    """A text that is a number with a unit, or with its thousands set apart; None where it is neither.

    >>> amount_of("$1,234.50"), amount_of("12%"), amount_of("1,5")
    (Amount(value=1234.5, unit='$', mark=','), Amount(value=12.0, unit='%', mark=''), None)
    """
    bare = text.strip()
    if len(bare) > LONGEST:
        return None
    bracketed = bare.startswith("(") and bare.endswith(")")
    matched = _AMOUNT.fullmatch(bare[1:-1].strip() if bracketed else bare)
    if matched is None or (matched["before"] and matched["after"]) or (matched["sign"] and matched["sign2"]):
        return None
    digits, unit = matched["digits"], matched["before"] or matched["after"] or ""
    grouped = _GROUPED.fullmatch(digits)
    if grouped is None and not _PLAIN.fullmatch(digits):
        return None
    if bracketed and not (unit or grouped):
        return None
    value = float(re.sub(r"[^\d.]", "", digits))
    below = bracketed or (matched["sign"] or matched["sign2"]) in ("-", "\u2212")
    return Amount(-value if below else value, unit, grouped["mark"] if grouped else "")


def number_of(value: Any) -> float | None:
    """A cell as a plain number: NaN where missing, None where it is no number."""
    if is_missing(value):
        return math.nan
    if isinstance(value, (bool, int, float, Decimal)):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    if not isinstance(value, str) or "_" in value:  # Python reads 1_000 as a number, nobody else does
        return None
    if value.strip().lower() == NOTHING:
        return math.nan
    try:
        return float(value)
    except ValueError:
        return None


def plain_numbers(values: Sequence[Any]) -> NDArray[np.float64] | None:
    """What `number_of` gives for each cell of a column, all at once; None where one is text, or infinite.

    >>> plain_numbers(["1", "", "-2e1"]), plain_numbers(["1", "many"])
    (array([  1.,  nan, -20.]), None)
    """
    kinds = set(map(type, values)) if isinstance(values, list) else set()
    if kinds != {str} and not (kinds and kinds <= {int, float, type(None)}):
        return None
    if kinds == {str} and "_" in "".join(values):  # Python reads 1_000 as a number, nobody else does
        return None
    try:
        filled = ["nan" if value is None or value == "" else value for value in values]
        numbers = np.fromiter(map(float, filled), np.float64, len(filled))
    except (ValueError, OverflowError):
        return None
    return None if np.isinf(numbers).any() else numbers


def is_missing(value: Any) -> bool:
    """Whether a cell is empty, or says so."""
    if value is None:
        return True
    if isinstance(value, str):
        return value.strip().lower() in MISSING_WORDS
    return isinstance(value, float) and math.isnan(value)


def says_none(value: Any) -> bool:
    """Whether a cell is the word "none": missing among numbers, a label among text."""
    return isinstance(value, str) and value.strip().lower() == NOTHING


def as_label(value: Any) -> str:
    """A cell as the name of a level or class."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value).strip()
    return text.partition(".")[0] if _WHOLE.fullmatch(text) else text  # 1.0 where a gap made floats of whole numbers

"""What kind of response a target is, guessed from its values, and why."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from slabnet.core.errors import one_line, refuse
from slabnet.data.cells import Reading, as_label, is_missing, plain_numbers, says_none
from slabnet.data.columns import numeric

Task = Literal["classification", "regression"]
FEW_CLASSES = 5  # whole numbers with at most so many values are taken for classes
FEW_VALUES = 10  # so few different numbers might be classes all the same
LARGEST_COUNT = 1000  # larger whole numbers are rarely counts of something that happens to a row
SHOWN = 5


@dataclass(frozen=True)
class Guess:
    """The task, what it was guessed from, and what else the target could be.

    >>> guess_task(["0", "1", "1"], "y")
    Guess(task='classification', why='2 different whole numbers, 0 and 1', otherwise='')
    """

    task: Task
    why: str
    otherwise: str = ""

    def line(self, name: str) -> str:
        """For a person."""
        other = f"; {self.otherwise}" if self.otherwise else " (--task says otherwise)"
        return f"Task: {self.task}, guessed from {one_line(name)}: {self.why}{other}."


def guess_task(values: list[Any], name: str, where: str = "fit") -> Guess:
    """Classes where the target is text, or a few whole numbers; else a number to be predicted.

    Whole numbers of three to ten different values may be codes of classes, grades or counts: that is said.
    """
    present = [value for value in values if not is_missing(value)]
    if not present:
        refuse(where, "--target", "a column with values", f"{one_line(name)}, where all are missing")
    if all(isinstance(value, bool) for value in present):
        return Guess("classification", "yes or no")
    reading = numeric(present, name, where)
    if reading is None:
        levels = Counter(map(as_label, present))
        return Guess(
            "classification", f"text, {len(levels)} different ({_shown([k for k, _ in levels.most_common()])})"
        )
    distinct = _distinct(present, reading)
    whole = all(math.isfinite(number) and number.is_integer() for number in distinct)
    shown = [f"{number:g}" for number in distinct]
    kind = "whole numbers" if whole else "numbers"
    if whole and len(distinct) <= 2:
        return Guess("classification", f"{len(distinct)} different {kind}, {' and '.join(shown)}")
    why = f"{len(distinct)} different {kind}" + (
        f" ({_shown(shown, FEW_VALUES)})" if len(distinct) <= FEW_VALUES else ""
    )
    if whole and len(distinct) <= FEW_CLASSES:
        other = "if they are counts or amounts, say --task regression; if grades, --response ordinal"
        return Guess("classification", why, other)
    others = ["if they are codes of classes, say --task classification"] if len(distinct) <= FEW_VALUES else []
    if whole and distinct[0] >= 0 and distinct[-1] <= LARGEST_COUNT:
        others.append("if they are counts, --response poisson or negative-binomial")
    return Guess("regression", why, "; ".join(others))


def _distinct(present: list[Any], reading: Reading) -> list[float]:
    """The different numbers, smallest first; a text among them is named later."""
    numbers = plain_numbers(present) if reading.plain else None
    if numbers is not None:
        return [float(number) for number in np.unique(numbers[~np.isnan(numbers)])]
    read = [reading.number(value) for value in present if not says_none(value)]
    return sorted({number for number in read if number is not None})


def _shown(names: list[str], most: int = SHOWN) -> str:
    parts = [one_line(name, 20) for name in names[:most]]
    return ", ".join(parts) + (", ..." if len(names) > most else "")

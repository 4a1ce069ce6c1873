"""What the command line says of the response: which distribution, and the columns that belong to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slabnet.core.errors import check_choice, one_line, refuse
from slabnet.data.cells import as_label, is_missing
from slabnet.data.columns import as_numbers
from slabnet.data.reading import Chunk
from slabnet.data.task import Task
from slabnet.estimators.responses import AUTO, regression_responses, taken_response
from slabnet.model.likelihoods import LIKELIHOODS

Numbers = NDArray[np.float64]
ORDINAL, GAUSSIAN, COUNTS = "ordinal", "gaussian", "negative-binomial"


@dataclass(frozen=True)
class ResponseColumns:
    """--response, --exposure, --event and --levels; None or () where they were left out."""

    response: str | None = None
    exposure: str | None = None
    event: str | None = None
    levels: tuple[str, ...] = ()

    def check(self, task: Task | None) -> Task | None:
        """The task that the response asks for, or `task`; refuses what does not go together."""
        if self.levels and self.response != ORDINAL:
            refuse("fit", "--levels", f"used with --response {ORDINAL}", "given")
        if self.response is not None:
            check_choice("fit", "--response", self.response, [AUTO, *regression_responses(), ORDINAL])
        for option, column in (("exposure", self.exposure), ("event", self.event)):
            known = [name for name, kind in LIKELIHOODS.items() if option in kind.sides]
            if column is not None and self.response not in known:
                refuse("fit", f"--{option}", f"used with --response {' or '.join(known)}", self.response)
        if self.response is None:
            return task
        wanted: Task = "classification" if self.response == ORDINAL else "regression"
        if task not in (None, wanted):
            refuse("fit", "--task", f"{wanted}, or left out, with --response {self.response}", task)
        return wanted

    def to_dict(self) -> dict[str, Any]:
        """As it is kept in the file of a model."""
        return asdict(self) | {"levels": list(self.levels) or None}

    def taken_from(self, table: Chunk, rows: list[int]) -> dict[str, Numbers]:
        """Exposure and event of every row, which are then no inputs; `rows`: what each is called."""
        columns = {}
        for option, column in (("exposure", self.exposure), ("event", self.event)):
            if column is None:
                continue
            if column not in table:
                names = ", ".join(one_line(name, 30) for name in list(table)[:20])
                refuse("fit", f"--{option}", f"one of the columns {names}", column)
            columns[option] = side_column(table.pop(column), column, "fit", rows)
        return columns

    def check_levels(self, labels: Any, name: str) -> None:
        """Refuse a class that is none of the levels."""
        for label in labels if self.levels else ():
            if label not in self.levels:
                refuse(
                    "fit", "--levels", f"all classes of {one_line(name)}", f"none called {one_line(repr(str(label)))}"
                )

    def classes_of(self, labels: Any) -> list[Any]:
        """The classes in the order in which a model has them."""
        return list(self.options().get("levels") or np.unique(labels))

    def options(self) -> dict[str, Any]:
        """For the estimator."""
        levels = {"levels": [as_label(level) for level in self.levels]} if self.levels else {}
        return {"response": self.response} | levels


NO_COLUMNS = ResponseColumns()


def other_response(y: Numbers, name: str) -> list[str]:
    """A note where a target that was fitted with normal noise looks like counts, or like skewed numbers above 0."""
    taken = taken_response(AUTO, np.asarray(y, dtype=np.float64)[:, None])
    if taken.name == GAUSSIAN:
        return []
    seen = "counts" if taken.name == COUNTS else "skewed numbers above 0"
    return [
        f"{one_line(name)} looks like {seen}: --response {taken.name} may predict it better, and its intervals stay "
        "where values can lie."
    ]


def side_column(values: list[Any], name: str, where: str, rows: Any) -> Numbers:
    """A column of numbers in which none may be missing."""
    for row, value in zip(rows, values, strict=True):
        if is_missing(value):
            refuse(where, f"column {one_line(name)}", "a number in every row", f"none in row {row}")
    return as_numbers(values, name, where, numbers=rows)

"""Scores of a table that is predicted in chunks: sums, so that memory does not grow with its rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slabnet.data.cells import Reading, as_label, is_missing, says_none
from slabnet.estimators import SlabClassifier
from slabnet.estimators.base import SlabEstimator

Marks = NDArray[np.bool_]


@dataclass
class _Numbers:
    """Sums over rows whose number is known. usual: the mean of the training rows, where the model's file has it."""

    usual: float | None = None
    known: int = 0
    squares: float = 0.0
    around: float = 0.0
    inside: int = 0
    mean: float = 0.0
    spread: float = 0.0

    def add(self, wanted: float, row: list[Any]) -> None:
        self.known += 1
        self.squares += (wanted - row[1]) ** 2
        self.around += 0.0 if self.usual is None else (wanted - self.usual) ** 2
        self.inside += row[3] <= wanted <= row[4]
        step = wanted - self.mean  # Welford: no difference of large sums
        self.mean += step / self.known
        self.spread += step * (wanted - self.mean)

    def result(self) -> dict[str, Any]:
        if not self.known:
            return {}
        r2 = 1 - self.squares / self.spread if self.spread > 0 else None
        baseline = math.sqrt((self.spread if self.usual is None else self.around) / self.known)
        scores = {"known": self.known, "rmse": math.sqrt(self.squares / self.known), "r2": r2, "baseline": baseline}
        return scores | {"coverage": self.inside / self.known}


@dataclass
class _Classes:
    """Sums over rows whose class is known; `happened` and `right` are counted for each class.

    usual: the class that was most frequent in training, where the model's file has it.
    """

    usual: str | None = None
    happened: dict[str, int] = field(default_factory=dict)
    right: dict[str, int] = field(default_factory=dict)
    log_loss: float = 0.0
    brier: float = 0.0

    def add(self, label: str, row: list[Any], shares: dict[str, float]) -> None:
        self.happened[label] = self.happened.get(label, 0) + 1
        self.right[label] = self.right.get(label, 0) + (label == str(row[1]))
        share_of_label = shares.get(label, 0.0)
        self.log_loss -= math.log(max(share_of_label, np.finfo(float).tiny))
        self.brier += sum(share**2 for share in shares.values()) - share_of_label**2 + (1 - share_of_label) ** 2

    def result(self) -> dict[str, Any]:
        known = sum(self.happened.values())
        if not known:
            return {}
        balanced = sum(self.right[label] / count for label, count in self.happened.items()) / len(self.happened)
        often = max(self.happened.values()) if self.usual is None else self.happened.get(self.usual, 0)
        scores = {"known": known, "accuracy": sum(self.right.values()) / known, "baseline": often / known}
        scores |= {"balanced_accuracy": balanced}
        return scores | {"log_loss": self.log_loss / known, "brier": self.brier / known}


class Tally:
    """What can be said over all rows, added up chunk by chunk; rows that were fitted are counted apart."""

    def __init__(self, model: SlabEstimator, reading: Reading, usual: Any = None) -> None:
        """usual: what the file says of training: the place of the most frequent class, or the mean."""
        self.model, self.reading = model, reading
        self.place = model.network_.likelihood.columns.index("extrapolates")
        self.labels = [str(label) for label in model.classes_] if isinstance(model, SlabClassifier) else []
        place = usual if isinstance(usual, int) and 0 <= usual < len(self.labels) else None
        label = None if place is None else self.labels[place]
        mean = float(usual) if isinstance(usual, (int, float)) and math.isfinite(usual) else None
        self.new, self.fitted = (_Classes(label) if self.labels else _Numbers(mean) for _ in range(2))
        self.decided = self.strange = self.outside = 0
        self.same_file = False

    def add(self, answers: list[list[Any]], known: list[Any] | None, trained: Marks | None) -> None:
        """Rows of predictions, what was observed, and which of them were fitted (None: not known of any)."""
        self.outside += sum(row[self.place] == 1 for row in answers)
        self.decided += sum(row[2] for row in answers) if self.labels else 0
        self.same_file = self.same_file or trained is not None
        if known is None:
            return
        for i, (row, value) in enumerate(zip(answers, known, strict=True)):
            if is_missing(value) or (says_none(value) and not self.labels):
                continue
            side = self.fitted if trained is not None and trained[i] else self.new
            if isinstance(side, _Classes):
                shares = dict(zip(self.labels, row[self.place + 1 : self.place + 1 + len(self.labels)], strict=True))
                side.add(as_label(value), row, shares)
                continue
            wanted = self.reading.number(value)
            if wanted is None or math.isinf(wanted):
                self.strange += 1
                continue
            side.add(wanted, row)

    def result(self) -> dict[str, Any]:
        """The figures of new rows; those of fitted rows beside them, or in front where there are no others."""
        new, fitted = self.new.result(), self.fitted.result()
        numbers: dict[str, Any] = {"decided": self.decided} if self.labels else {}
        if self.same_file:
            numbers |= {"fitted_file": True, "held_out": bool(new)}
        return numbers | (new or fitted) | ({"training": fitted} if new and fitted else {})

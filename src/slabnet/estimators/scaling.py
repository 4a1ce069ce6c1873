"""Columns at mean zero and standard deviation one, and the way back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
CONSTANT = 1e-12  # a spread below this share of the largest value is rounding


@dataclass(frozen=True)
class Scaling:
    """What is subtracted from each column, and what it is then divided by.

    >>> Scaling.of(np.array([[1.0], [3.0]])).apply(np.array([[3.0]]))
    array([[1.]])
    """

    centre: Array
    scale: Array

    @classmethod
    def of(cls, table: Array, weight: Array | None = None) -> Self:
        """Mean and standard deviation of each column, rows by `weight`; a constant column is only centred."""
        size = np.abs(table).max(0)
        size[size == 0] = 1.0
        small = table / size  # squares of 1e200 would overflow
        if weight is None:
            centre, spread = small.mean(0), small.std(0)
        else:
            centre = np.average(small, axis=0, weights=weight)
            spread = np.sqrt(np.average((small - centre) ** 2, axis=0, weights=weight))
        spread[spread <= CONSTANT] = 1.0 / size[spread <= CONSTANT]
        return cls(centre * size, spread * size)

    @classmethod
    def none(cls, columns: int) -> Self:
        """Columns as they are."""
        return cls(np.zeros(columns), np.ones(columns))

    def apply(self, table: Array) -> Array:
        size = np.maximum(np.abs(self.centre), self.scale)
        return np.asarray((table / size - self.centre / size) / (self.scale / size))

    def undo(self, table: Array) -> Array:
        return np.asarray(table * self.scale + self.centre)

    def to_dict(self) -> dict[str, Any]:
        return {"centre": self.centre.tolist(), "scale": self.scale.tolist()}

    @classmethod
    def from_dict(cls, written: dict[str, Any]) -> Self:
        centre, scale = (np.asarray(written[name], dtype=np.float64) for name in ("centre", "scale"))
        if centre.ndim != 1 or centre.shape != scale.shape or not np.isfinite(centre).all() or not (scale > 0).all():
            raise ValueError("centre and scale must be two lists of numbers")
        return cls(centre, scale)


def constant_columns(table: Array) -> list[int]:
    """Columns that hold one value only."""
    spread = table.max(0) / 2 - table.min(0) / 2
    return np.flatnonzero(spread <= CONSTANT * np.abs(table).max(0)).tolist()

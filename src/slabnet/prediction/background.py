"""Points that stand for the columns of a training table, without any of its rows.

Each column is summarised alone: numbers by quantiles in the middle of as many equal parts, rounded to a ten-thousandth
of their range; levels of a category, and gaps, as often as they came. The points of all columns are then put together
in an order of their own each, so that a row of them is no row of the training table, and columns that go together in it
do not go together here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MOST_POINTS, FEWEST_POINTS = 32, 4
MOST_NUMBERS = 20_000  # of all points together
LEVELS = 64  # different values of the inputs of one column, up to which they are levels
DIGITS = 4  # of the range, that a quantile is rounded to
MOST_ROUNDED = 300  # decimals beyond which nothing is rounded


@dataclass(frozen=True)
class ColumnPoints:
    """Points of each column, (points, inputs), in the units of the table; rows: how many rows they stand for.

    >>> made = ColumnPoints.of(np.arange(100.0)[:, None], [(0,)])
    >>> made.points.shape, made.points.min() > 0, made.points.max() < 99
    ((32, 1), np.True_, np.True_)
    """

    rows: int
    points: Array

    @classmethod
    def of(cls, table: Array, groups: Iterable[Sequence[int]]) -> Self:
        """Summarise the rows of a fit; groups: the inputs of each column."""
        count = int(np.clip(MOST_NUMBERS // max(1, table.shape[1]), FEWEST_POINTS, MOST_POINTS))
        return cls(len(table), _points(table, np.ones(len(table)), groups, count))

    def with_rows(self, table: Array, groups: Iterable[Sequence[int]]) -> ColumnPoints:
        """The summary of the rows so far and more of them."""
        both = np.vstack([self.points, table])
        weight = np.concatenate([np.full(len(self.points), self.rows / len(self.points)), np.ones(len(table))])
        return ColumnPoints(self.rows + len(table), _points(both, weight, groups, len(self.points)))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, for the header of a model file."""
        return {"rows": self.rows, "points": self.points.tolist()}

    @classmethod
    def from_dict(cls, described: dict[str, Any], inputs: int) -> Self:
        """What `to_dict` gave for a model of so many inputs; a ValueError where it is anything else."""
        points = np.asarray(described["points"], dtype=np.float64)
        good = points.ndim == 2 and points.shape[1] == inputs and 0 < len(points) <= MOST_POINTS
        if not good or not np.isfinite(points).all() or type(described["rows"]) is not int or described["rows"] < 1:
            raise ValueError(f"points of the training columns for {inputs} inputs")
        return cls(described["rows"], points)


def _points(table: Array, weight: Array, groups: Iterable[Sequence[int]], count: int) -> Array:
    points = np.zeros((count, table.shape[1]))
    for number, group in enumerate(groups):
        places = list(group)
        if not places:
            continue
        order = np.random.default_rng([0, number]).permutation(count)
        points[:, places] = _of_column(table[:, places], weight, count)[order]
    return points


def _of_column(values: Array, weight: Array, count: int) -> Array:
    """Points of the inputs of one column."""
    patterns, of_row = np.unique(values, axis=0, return_inverse=True)
    if len(patterns) <= (count if values.shape[1] == 1 else LEVELS):
        return np.asarray(patterns[_spread(np.bincount(of_row.reshape(-1), weight), count)])
    if values.shape[1] == 1:
        return quantiles(values[:, 0], weight, count)[:, None]
    gone = values[:, -1] > 0.5  # a number and whether it was missing
    gaps = round(count * float(weight[gone].sum() / weight.sum()))
    there = np.column_stack([quantiles(values[~gone, 0], weight[~gone], count - gaps), np.zeros(count - gaps)])
    return np.vstack([there, np.tile(values[gone][:1], (gaps, 1))]) if gaps else there


def _spread(weights: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Which pattern each point has: each as often as its weight says."""
    ends = np.cumsum(weights) / weights.sum()
    return np.searchsorted(ends, (np.arange(count) + 0.5) / count).clip(max=len(weights) - 1)


def quantiles(values: Array, weight: Array, count: int) -> Array:
    """The quantiles in the middle of `count` equal parts.

    >>> quantiles(np.array([0.0, 1.0, 2.0, 3.0]), np.ones(4), 2).tolist()
    [0.5, 2.5]
    """
    order = np.argsort(values, kind="stable")
    steps = weight[order] / weight.sum()
    at = np.cumsum(steps) - steps / 2
    points = np.interp((np.arange(count) + 0.5) / count, at, values[order])
    size = float(values.max() / 2 - values.min() / 2) * 2
    decimals = DIGITS - math.floor(math.log10(size)) if 0 < size < math.inf else MOST_ROUNDED
    return np.asarray(np.round(points, decimals) if abs(decimals) < MOST_ROUNDED else points)

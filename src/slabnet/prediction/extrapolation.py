"""Which rows lie outside the data a model was fitted to: a statement about the data, not about the posterior.

A network may be sure of an answer where no training row ever was. A row is marked where an input in use leaves the
training range by more than a tenth of it, where the inputs in use are jointly farther from the training mean than
.999 of the training rows (Mahalanobis distance), or where a category was never seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from slabnet.core.errors import refuse

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
BEYOND = 0.1  # of the range, on either side
QUANTILE = 0.999
MOST_JOINT = 64  # inputs whose covariance is stored
ROWS_PER_INPUT = 5  # with fewer rows a covariance says little about a new row
FLAT = 1e-10  # share of the largest eigenvalue below which the training rows do not vary in a direction
OFF = 1e-6  # distance from such a plane, in standard deviations, that is more than rounding


@dataclass(frozen=True)
class TrainingSupport:
    """A summary of the training columns, without any of their rows.

    rows: how many were summarised. low, high: the range of each input; used: whether the model uses it.
    mean, scatter: mean of each input and sum of squares and products around it, both after division by `scale`; scatter
        is None where there are too many inputs for the rows, and rows are then marked by their ranges alone.
    limit: the .999 quantile of the distances of the training rows, each from all the others.

    >>> support = TrainingSupport.of(np.linspace(0, 1, 50)[:, None])
    >>> support.extrapolates(np.array([[0.5], [1.05], [2.0]])).tolist()
    [False, False, True]
    """

    rows: int
    low: Array
    high: Array
    used: Mask
    mean: Array
    scale: Array
    scatter: Array | None
    limit: float

    @classmethod
    def of(cls, table: Array, used: Mask | None = None) -> Self:
        """Summarise the training rows; `used` says which inputs the model uses (all of them if None)."""
        table = np.asarray(table, dtype=np.float64)
        if table.ndim != 2 or not len(table):
            refuse("TrainingSupport", "table", "rows of numbers", f"shape {table.shape}")
        rows, inputs = table.shape
        used = np.ones(inputs, dtype=bool) if used is None else np.asarray(used, dtype=bool)
        low, high = table.min(0), table.max(0)
        scale = np.maximum(high / 2 - low / 2, np.finfo(float).tiny)
        scale = np.where(high > low, scale, np.maximum(np.abs(high), 1.0))
        small = table / scale
        mean = small.mean(0)
        fits = inputs <= MOST_JOINT and rows > ROWS_PER_INPUT * inputs
        scatter = (small - mean).T @ (small - mean) if fits else None
        support = cls(rows, low, high, used, mean, scale, scatter, math.inf)
        return replace(support, limit=support._quantile(table))

    def extrapolates(self, table: Array) -> Mask:
        """Whether each row lies outside the training data."""
        table = np.asarray(table, dtype=np.float64)
        if table.ndim != 2 or table.shape[1] != len(self.low):
            refuse("extrapolates", "table", f"rows of {len(self.low)} inputs", f"shape {table.shape}")
        room = BEYOND * (self.high / 2 - self.low / 2) * 2
        out = ((table < self.low - room) | (table > self.high + room)) & self.used
        return np.asarray(out.any(1) | (self.distances(table) > self.limit))

    def distances(self, table: Array) -> Array:
        """Mahalanobis distance of each row from the training mean, over the inputs in use; 0 where it is not known.

        One input alone is judged by its range.
        """
        if self.scatter is None or self.used.sum() < 2:
            return np.zeros(len(table))
        away = (np.asarray(table) / self.scale - self.mean)[:, self.used]
        values, vectors = np.linalg.eigh(self.scatter[np.ix_(self.used, self.used)] / max(1, self.rows - 1))
        along = away @ vectors
        flat = values <= FLAT * max(values[-1], np.finfo(float).tiny)
        with np.errstate(over="ignore"):
            squares = (along[:, ~flat] ** 2 / values[~flat]).sum(1)
        off = (np.abs(along[:, flat]) > OFF * (1 + np.abs(away).max(1, initial=0.0))[:, None]).any(1)
        return np.asarray(np.where(off, np.inf, np.sqrt(squares)))

    def with_rows(self, table: Array, used: Mask) -> TrainingSupport:
        """The summary of the rows so far and more of them; their distances count from the joint mean."""
        count, small = len(table), np.asarray(table, dtype=np.float64) / self.scale
        rows, mean = self.rows + count, small.mean(0)
        apart = mean - self.mean
        scatter = self.scatter
        if scatter is not None:  # two sums of squares around one mean (Chan et al. 1979)
            between = np.outer(apart, apart) * (self.rows * count / rows)
            scatter = scatter + (small - mean).T @ (small - mean) + between
        low, high = np.minimum(self.low, table.min(0)), np.maximum(self.high, table.max(0))
        both = replace(self, rows=rows, low=low, high=high, mean=self.mean + apart * count / rows, scatter=scatter)
        both = replace(both, used=np.asarray(used, dtype=bool))
        return replace(both, limit=max(self.limit, both._quantile(table)))

    def only(self, used: Mask) -> TrainingSupport:
        """The same for a model that uses fewer inputs. The limit stays: over fewer inputs no row is farther away."""
        return replace(self, used=self.used & np.asarray(used, dtype=bool))

    def _quantile(self, table: Array) -> float:
        """The .999 quantile of the distance of each row from the mean of the others, by their covariance.

        A new row is judged by rows it is not among, so each training row is too: with g = d^2 / (n - 1) the distance
        without the row itself is (n - 2) (n / (n - 1))^2 g / (1 - n g / (n - 1)).
        """
        n = self.rows
        if self.scatter is None or n < 3:
            return math.inf
        share = self.distances(table) ** 2 / (n - 1)
        left = 1 - share * n / (n - 1)
        alone = left <= FLAT  # the only row in its direction, as that of a category seen once
        squares = (n - 2) * (n / (n - 1)) ** 2 * share[~alone] / left[~alone]
        squares = squares[np.isfinite(squares)]
        return float(np.sqrt(np.quantile(squares, QUANTILE))) if len(squares) else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, for the header of a model file."""
        lower = None if self.scatter is None else self.scatter[np.tril_indices(len(self.mean))]
        described: dict[str, Any] = {"rows": self.rows, "limit": None if math.isinf(self.limit) else self.limit}
        names = ("low", "high", "mean", "scale")
        described |= {name: [float(value) for value in getattr(self, name)] for name in names}
        described["used"] = [int(value) for value in self.used]
        return described | {"scatter": None if lower is None else lower.tolist()}

    @classmethod
    def from_dict(cls, described: dict[str, Any], inputs: int) -> Self:
        """What `to_dict` gave for a model of so many inputs; a ValueError where it is anything else."""
        parts = {
            name: np.asarray(described[name], dtype=np.float64) for name in ("low", "high", "mean", "scale", "used")
        }
        good = all(part.shape == (inputs,) and np.isfinite(part).all() for part in parts.values())
        if not good or not (parts["scale"] > 0).all() or type(described["rows"]) is not int or described["rows"] < 1:
            raise ValueError(f"a summary of the training columns for {inputs} inputs")
        scatter, lower = None, described["scatter"]
        if lower is not None:
            values = np.asarray(lower, dtype=np.float64)
            if inputs > MOST_JOINT or values.shape != (inputs * (inputs + 1) // 2,) or not np.isfinite(values).all():
                raise ValueError(f"a covariance for {inputs} inputs")
            scatter = np.zeros((inputs, inputs))
            scatter[np.tril_indices(inputs)] = values
            scatter = scatter + np.tril(scatter, -1).T
        limit = math.inf if described["limit"] is None else float(described["limit"])
        if not limit >= 0:
            raise ValueError("a limit that is no distance")
        used = parts.pop("used") > 0
        return cls(rows=described["rows"], used=used, scatter=scatter, limit=limit, **parts)

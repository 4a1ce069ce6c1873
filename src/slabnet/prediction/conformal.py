"""Intervals and sets with a guarantee: how far answers were off on rows that were not fitted (Vovk et al. 2005).

Split-conformal: if the rows that calibrate and the new one are exchangeable, the new one is inside with probability at
least the level, whatever the model. Cross-conformal uses every row, each scored by the fit of the other folds, and only
guarantees about 1 - 2a at the level 1 - a (Barber et al. 2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """Scores of rows that were not fitted, each independent of the others: the larger, the further off.

    >>> Calibration(np.arange(1.0, 20.0)).quantile(0.95)
    19.0
    >>> Calibration(np.arange(1.0, 19.0)).quantile(0.95)    # too few rows for this level
    inf
    """

    scores: Array

    def quantile(self, level: float) -> float:
        """The ceil((k + 1) level)-th smallest of the k scores; infinite where that is none of them."""
        place = math.ceil((len(self.scores) + 1) * level - 1e-9)
        return float(np.sort(self.scores)[place - 1]) if place <= len(self.scores) else math.inf


def cumulative_shares(shares: Array) -> Array:
    """(rows, classes): the mass of a class and of all more probable ones (Romano et al. 2020, without randomisation).

    >>> cumulative_shares(np.array([[0.2, 0.5, 0.3]])).round(3).tolist()
    [[1.0, 0.5, 0.8]]
    """
    order = np.argsort(-shares, axis=1, kind="stable")
    sums = np.empty_like(shares)
    np.put_along_axis(sums, order, np.take_along_axis(shares, order, 1).cumsum(1), 1)
    return sums


def with_the_best(inside: NDArray[np.bool_], cumulative: Array) -> NDArray[np.bool_]:
    """Sets of classes, none of them empty: the most probable class is always in."""
    best = cumulative.argmin(1)
    sets = inside.copy()
    sets[np.arange(len(sets)), best] = True
    return sets


def cross_guarantee(level: float, folds: int, rows: int) -> float:
    """What cross-conformal guarantees at a level for so many folds and rows (Barber et al. 2021, theorem 4).

    >>> round(cross_guarantee(0.95, 5, 500), 3)
    0.884
    """
    a, size = 1 - level, rows / folds
    loss = min(2 * (1 - 1 / folds) / (size + 1), (1 - folds / rows) / (folds + 1))
    return max(0.0, 1 - 2 * a - loss)


def cross_ends(centres: Array, widths: Array, level: float) -> tuple[Array, Array]:
    """Ends of the interval from one centre and half-width for each row that was scored, (scored, new rows)."""
    rows = len(centres)
    place = math.ceil((rows + 1) * level - 1e-9)
    if place > rows:
        return np.full(centres.shape[1], -np.inf), np.full(centres.shape[1], np.inf)
    high = np.sort(centres + widths, axis=0)[place - 1]
    low = -np.sort(widths - centres, axis=0)[place - 1]
    return low, high

"""Which rows of a table are kept aside to test a fit: a function of the answers, the share and the seed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def split_rows(y: NDArray[Any], classes: bool, share: float, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Positions of the training and the test rows; every class keeps its share where it has enough rows.

    >>> train, test = split_rows(np.array(["a", "a", "a", "b", "b"]), True, 0.4, 0)
    >>> len(train), len(test)
    (3, 2)
    """
    order = np.random.default_rng(seed).permutation(len(y))
    if not classes:
        count = round(share * len(y))
        return np.sort(order[count:]), np.sort(order[:count])
    test: list[int] = []
    for label in np.unique(y):
        rows = order[y[order] == label]
        test += rows[: min(round(share * len(rows)), len(rows) - 1)].tolist()
    aside = np.array(sorted(test), dtype=int)
    return np.setdiff1d(np.arange(len(y)), aside), aside

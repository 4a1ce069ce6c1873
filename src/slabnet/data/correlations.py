"""How far the columns of a table say the same: the matrix that the dilution prior takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slabnet.core.errors import check_number, refuse
from slabnet.data.frames import is_arrow, is_frame
from slabnet.data.tabular import Table


def correlations(
    x: Any, column_groups: Mapping[str, Sequence[int]] | None = None, *, shrink: float = 0.01
) -> NDArray[np.float64]:
    """The correlation matrix of the columns, for `Prior(dilution=...)`.

    x: rows of numbers, or a data frame, whose columns are read as an estimator reads them. column_groups: inputs that
        are one column, by name; the first principal component stands for them. shrink: how far the matrix is moved
        towards independence, so that columns that are the same can be told from the others.

    >>> correlations(np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])).round(2).tolist()
    [[1.0, 0.99], [0.99, 1.0]]
    """
    check_number("correlations", "shrink", shrink, above=0, at_most=1)
    groups = dict(column_groups or {})
    if is_arrow(x) or is_frame(x) or isinstance(x, dict):
        table = Table.learn(x, where="correlations")
        rows, groups = table.apply(x, "correlations")[0], dict(table.column_groups)
    else:
        rows = np.asarray(x, dtype=np.float64)
    if rows.ndim != 2 or len(rows) < 2 or not np.isfinite(rows).all():
        refuse("correlations", "x", "rows of finite numbers, at least two", f"an array of the shape {rows.shape}")
    owner = {place: name for name, places in groups.items() for place in places}
    members: dict[Any, list[int]] = {}
    for place in range(rows.shape[1]):
        members.setdefault(owner.get(place, place), []).append(place)
    columns = np.stack([_component(rows[:, places]) for places in members.values()], 1)
    matrix = columns.T @ columns
    np.fill_diagonal(matrix, 1.0)
    shrunk = (1 - shrink) * matrix + shrink * np.eye(len(matrix))
    return np.asarray((shrunk + shrunk.T) / 2)


def _component(inputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """The first principal component of standardised inputs, of length one; zeros where nothing varies."""
    centred = inputs - inputs.mean(0)
    spread = np.linalg.norm(centred, axis=0)
    scaled = np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0)
    if scaled.shape[1] == 1:
        return np.asarray(scaled[:, 0])
    left, sizes, _ = np.linalg.svd(scaled, full_matrices=False)
    return np.asarray(left[:, 0]) if sizes[0] > 0 else np.zeros(len(inputs))

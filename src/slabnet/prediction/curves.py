"""How the prediction goes with one column, or two: partial dependence and accumulated local effects, draw by draw."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slabnet.core.errors import one_line
from slabnet.core.figures import written
from slabnet.prediction.drawn import Drawn
from slabnet.prediction.explain import Explainer
from slabnet.prediction.explanation import Estimate

Array = NDArray[np.float64]
FEWEST_NEAR = 5  # rows that the local effect of a step is averaged over
SHOWN = 12  # points that a text shows


@dataclass(frozen=True)
class EffectCurve:
    """How what is predicted goes with a column, or with two.

    columns: one name or two. grid: the values of these columns at each point. outputs: classes or responses.
    partial: (points, outputs), partial dependence: the prediction averaged over the background, with the columns at
        these values. Its interval is over drawn networks.
    accumulated: the same as accumulated local effects, which average only over background rows near each value, around
        0; None for categories and pairs. Without a background of your own columns are taken as independent, and it is
        partial dependence around 0.
    average: the mean prediction over the background. rug: where the training values (or those of the background) lie.
    extrapolates: points outside the training data. scale: "linear" or "response". level: of the intervals.
    """

    columns: tuple[str, ...]
    grid: tuple[tuple[Any, ...], ...]
    outputs: tuple[str, ...]
    partial: Estimate
    accumulated: Estimate | None
    average: Array
    rug: tuple[tuple[Any, ...], ...]
    extrapolates: NDArray[np.bool_]
    scale: str
    level: float
    draws: int

    @property
    def numeric(self) -> tuple[bool, ...]:
        """For each column whether its values are numbers, not levels."""
        return tuple(isinstance(value, float) for value in self.grid[0])

    def __len__(self) -> int:
        return len(self.grid)

    def records(self) -> Iterator[dict[str, Any]]:
        """One dict for each point and output."""
        for i, point in enumerate(self.grid):
            for k, output in enumerate(self.outputs):
                line = dict(zip(self.columns, point, strict=True)) | {"output": output}
                line |= _ends("partial", self.partial, (i, k))
                if self.accumulated is not None:
                    line |= _ends("accumulated", self.accumulated, (i, k))
                yield line | {"extrapolates": bool(self.extrapolates[i])}

    def to_frame(self) -> Any:
        """The same as a data frame of pandas."""
        import pandas

        return pandas.DataFrame(list(self.records()))

    def rows(self) -> list[tuple[str, ...]]:
        """Some of the points as text: values, output, effect and its interval, and whether it extrapolates."""
        places = sorted({round(i) for i in np.linspace(0, len(self) - 1, min(SHOWN, len(self)))})
        rows = []
        for i in places:
            for k, output in enumerate(self.outputs):
                ends = [written(float(part[i, k])) for part in (self.partial.mean, self.partial.low, self.partial.high)]
                values = [written(v) if isinstance(v, float) else one_line(str(v), 30) for v in self.grid[i]]
                outside = "outside the training data" if self.extrapolates[i] else ""
                rows.append((*values, one_line(output, 20), ends[0], f"{ends[1]} to {ends[2]}", outside))
        return rows

    def _head(self) -> tuple[str, ...]:
        names = tuple(one_line(name, 30) for name in self.columns)
        return (*names, "output", f"mean {self.scale}", f"{self.level:.0%} interval", "")

    def __str__(self) -> str:
        table = [self._head(), *self.rows()]
        widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self._head())
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(c)}</td>' for c in row)}</tr>" for row in self.rows())
        return f"<table><tr>{head}</tr>{body}</table>"


@dataclass(frozen=True)
class Grid:
    """Points to look at: their values, their inputs in the network's scale, which columns (and inputs: places) they
    set, what lies outside the training data, and where the data lie.
    """

    names: tuple[str, ...]
    points: tuple[tuple[Any, ...], ...]
    inputs: Tensor
    columns: Tensor
    places: Tensor
    outside: NDArray[np.bool_]
    rug: tuple[tuple[Any, ...], ...]


def effect_curve(explainer: Explainer, grid: Grid, background: Tensor, local: Array | None) -> EffectCurve:
    """The curve over `grid`; local: the column's values in the background rows, where these are rows as they came."""
    asked, framing = explainer.asked, explainer.framing
    numeric = len(grid.names) == 1 and isinstance(grid.points[0][0], float) and len(grid.points) > 1
    steps = _Steps.of(grid, background, local) if numeric and local is not None else None
    curves, averages, accumulated = [], [], []
    for drawn in explainer.each_draw():
        curve = drawn.values(grid.columns[None], grid.inputs, background, explainer.link)[0]
        curves.append(curve.numpy())
        output = drawn(background)
        averages.append((output if explainer.link is None else explainer.link(output)).mean(0).numpy())
        if steps is not None:
            accumulated.append(steps.accumulated(drawn, explainer))
        elif numeric:
            accumulated.append(curves[-1])
    partial, factor = np.stack(curves) * framing.factor + framing.shift, framing.factor
    around = None
    if accumulated:
        values = np.asarray([point[0] for point in grid.points])
        rug = np.asarray([value for value in (local if local is not None else grid.rug[0]) if value is not None])
        mean = _mean_at(values, rug.astype(float))
        whole = np.stack(accumulated) * factor
        around = Estimate.of(whole - np.einsum("g,rgo->ro", mean, whole)[:, None], asked.level)
    average = np.stack(averages).mean(0) * framing.factor + framing.shift
    told = Estimate.of(partial, asked.level)
    names = tuple(framing.outputs)
    parts = (average, grid.rug, grid.outside, asked.scale, asked.level, explainer.draws)
    return EffectCurve(grid.names, grid.points, names, told, around, *parts)


@dataclass(frozen=True)
class _Steps:
    """Background rows near each step of the grid, with the column at its lower and at its upper end."""

    low: Tensor
    high: Tensor
    step: Tensor
    count: int

    @classmethod
    def of(cls, grid: Grid, background: Tensor, local: Array) -> _Steps:
        values = np.asarray([point[0] for point in grid.points])
        rows, steps = [], []
        for k in range(len(values) - 1):
            inside = int(((local > values[k]) & (local <= values[k + 1])).sum())
            near = np.argsort(np.abs(local - (values[k] + values[k + 1]) / 2), kind="stable")
            near = near[: max(inside, min(FEWEST_NEAR, len(local)))]
            rows += near.tolist()
            steps += [k] * len(near)
        step = torch.tensor(steps)
        base = background[torch.tensor(rows)]
        low, high = (torch.where(grid.places, grid.inputs[step + end], base) for end in (0, 1))
        return cls(low, high, step, len(values))

    def accumulated(self, drawn: Drawn, explainer: Explainer) -> Array:
        ends = [
            drawn(part) if explainer.link is None else explainer.link(drawn(part)) for part in (self.low, self.high)
        ]
        change = ends[1] - ends[0]
        total = torch.zeros(self.count - 1, change.shape[1], dtype=change.dtype).index_add(0, self.step, change)
        mean = total / torch.bincount(self.step, minlength=self.count - 1)[:, None]
        return torch.cat([torch.zeros_like(mean[:1]), mean.cumsum(0)]).numpy()


def _mean_at(values: Array, rug: Array) -> Array:
    """What each point of the grid counts in the mean of a curve over the rows, between points linearly."""
    at = np.clip(np.searchsorted(values, rug) - 1, 0, len(values) - 2)
    share = np.clip((rug - values[at]) / (values[at + 1] - values[at]), 0, 1)
    weight = np.bincount(at, 1 - share, len(values)) + np.bincount(at + 1, share, len(values))
    return np.asarray(weight / len(rug))


def _ends(name: str, estimate: Estimate, place: tuple[int, ...]) -> dict[str, float]:
    centre, low, high = (float(part[place]) for part in (estimate.mean, estimate.low, estimate.high))
    return {name: centre, f"{name}_low": low, f"{name}_high": high}

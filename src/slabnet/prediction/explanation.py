"""What is said of single predictions: the prediction, the baseline, and what each column contributes."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from slabnet.core.errors import check_whole, one_line, refuse
from slabnet.core.figures import written

Array = NDArray[np.float64]
SHOWN, SHOWN_ROWS = 10, 3  # columns of a row, and rows, that a text shows
LEAST = 1e-3  # of the largest contribution, below which a column is not shown


@dataclass(frozen=True)
class Estimate:
    """A number for each place: its mean over drawn networks, and the ends of its interval."""

    mean: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, draws: Array, level: float) -> Self:
        """From numbers by draw, the draws along the first axis.

        >>> Estimate.of(np.array([1.0, 2.0, 3.0]), 0.5)
        Estimate(mean=np.float64(2.0), low=np.float64(1.5), high=np.float64(2.5))
        """
        low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return cls(draws.mean(0), low, high)

    def __getitem__(self, place: Any) -> Estimate:
        return Estimate(self.mean[place], self.low[place], self.high[place])

    @classmethod
    def joined(cls, parts: Sequence[Estimate]) -> Self:
        """One after the other along the first axis."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("mean", "low", "high")))


@dataclass(frozen=True)
class Regions:
    """Slope times value of each column where the row lies, and the rest of the linear predictor there, the intercept.

    exact: whether the network is linear around the row, so that slopes and intercept hold in its whole region; else
    they are its first order at the row. Either way contributions and intercept sum to the linear predictor.
    """

    contributions: Estimate
    intercept: Estimate
    exact: bool


@dataclass(frozen=True)
class ByDraw:
    """The same numbers draw by draw, along the first axis."""

    prediction: Array
    baseline: Array
    contributions: Array
    regions: Array | None
    intercept: Array | None


@dataclass(frozen=True)
class Explanation:
    """Why each row has its prediction.

    columns, outputs: the names of what contributes, and of what is predicted (classes, or responses); classes: whether
        outputs are classes, of which a text shows the one that is predicted.
    values: what each row holds in each column. scale: "linear" (the linear predictor) or "response". level: of the
        intervals over `draws` drawn networks.
    prediction: (rows, outputs). baseline: (outputs,), the mean prediction over the background.
    contributions: (rows, columns, outputs), Shapley values: in every draw they sum to prediction minus baseline.
    errors: the standard error of the mean contribution that comes of drawing permutations; 0 where it is exact.
    regions: slope times value, on the linear scale; None on the scale of the response.
    by_draw: all of it draw by draw, where it was asked for.
    """

    columns: tuple[str, ...]
    outputs: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    scale: str
    level: float
    draws: int
    prediction: Estimate
    baseline: Estimate
    contributions: Estimate
    errors: Array
    regions: Regions | None = None
    by_draw: ByDraw | None = None
    classes: bool = False

    def __len__(self) -> int:
        return len(self.values)

    def row(self, number: int) -> Explanation:
        """One row alone."""
        number = check_whole("row", "number", number, at_least=0)
        if number >= len(self):
            refuse("row", "number", f"below {len(self)}, the number of rows", number)
        place = slice(number, number + 1)
        regions = self.regions
        if regions is not None:
            regions = replace(regions, contributions=regions.contributions[place], intercept=regions.intercept[place])
        return replace(
            self,
            values=self.values[place],
            prediction=self.prediction[place],
            contributions=self.contributions[place],
            errors=self.errors[place],
            regions=regions,
            by_draw=None,
        )

    def output_of(self, row: int) -> int:
        """The output to show first: the class that is predicted, or the first response."""
        return int(self.prediction.mean[row].argmax()) if self.classes and len(self.outputs) > 1 else 0

    def order(self, row: int, output: int) -> list[int]:
        """Columns by the size of their contribution, largest first; those with a thousandth of it are left out."""
        size = np.abs(self.contributions.mean[row, :, output])
        reach = np.maximum(np.abs(self.contributions.low), np.abs(self.contributions.high))[row, :, output]
        least = LEAST * float(size.max(initial=0.0))
        return [int(j) for j in np.argsort(-size, kind="stable") if max(size[j], reach[j]) > least]

    def records(self, first: int = 0) -> Iterator[dict[str, Any]]:
        """One dict for each row, output and column; `first` is the number of the first row."""
        for i in range(len(self)):
            for k, output in enumerate(self.outputs):
                of_row = _ends("prediction", self.prediction, (i, k)) | {"baseline": float(self.baseline.mean[k])}
                for j, column in enumerate(self.columns):
                    line = {"row": first + i, "output": output} | of_row
                    line |= {"column": column, "value": self.values[i][j]}
                    line |= _ends("contribution", self.contributions, (i, j, k))
                    line["standard_error"] = float(self.errors[i, j, k])
                    if self.regions is not None:
                        line |= _ends("slope_times_value", self.regions.contributions, (i, j, k))
                    yield line

    def to_frame(self) -> Any:
        """The same as a data frame of pandas."""
        import pandas

        return pandas.DataFrame(list(self.records()))

    def __str__(self) -> str:
        rows = [self.row_text(i) for i in range(min(len(self), SHOWN_ROWS))]
        more = [f"and {len(self) - SHOWN_ROWS} rows more (row, records, to_frame)"] if len(self) > SHOWN_ROWS else []
        return "\n\n".join([*rows, *more])

    __repr__ = __str__

    def shown(self, row: int) -> list[int]:
        """The outputs that a text shows of a row: the class that is predicted, or every response."""
        return [self.output_of(row)] if self.classes else list(range(len(self.outputs)))

    def title(self, row: int, output: int) -> str:
        """What is predicted, from where, and how surely."""
        centre, low, high = (written(float(part[row, output])) for part in _parts(self.prediction))
        scale = "linear predictor" if self.scale == "linear" else "response"
        about = one_line(self.outputs[output], 40)
        start = written(float(self.baseline.mean[output]))
        return f"{about}: {scale} {centre} ({self.level:.0%} interval {low} to {high}), baseline {start}"

    def label(self, row: int, column: int) -> str:
        """The column and what the row holds in it."""
        value = self.values[row][column]
        shown = written(value) if isinstance(value, float) else "missing" if value is None else one_line(str(value), 20)
        return f"{one_line(self.columns[column], 30)} = {shown}"

    def row_text(self, row: int, called: str | None = None) -> str:
        """One row's largest contributions; `called`: its number, where that is another one."""
        lines = []
        for output in self.shown(row):
            lines.append(f"row {called or row}, {self.title(row, output)}")
            order = self.order(row, output)
            for j in order[:SHOWN]:
                centre, low, high = (written(float(part[row, j, output])) for part in _parts(self.contributions))
                error = float(self.errors[row, j, output])
                about = f", standard error {written(error, 2)}" if error > 0 else ""
                sign = "" if centre.startswith("-") or centre == "0" else "+"
                lines.append(f"  {self.label(row, j):<34} {sign + centre:>10}  ({low} to {high}{about})")
            lines += [f"  and {len(order) - SHOWN} columns more"] if len(order) > SHOWN else []
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [self.row_html(i) for i in range(min(len(self), SHOWN_ROWS))]
        more = f"<p>and {len(self) - SHOWN_ROWS} rows more</p>" if len(self) > SHOWN_ROWS else ""
        return "".join(parts) + more

    def row_html(self, row: int, called: str | None = None) -> str:
        """One row as a table with bars; `called`: its number, where that is another one."""
        tables = []
        for output in self.shown(row):
            order = self.order(row, output)
            largest = max((abs(float(self.contributions.mean[row, j, output])) for j in order), default=0.0)
            head = "".join(f"<th>{text}</th>" for text in ("column", "contribution", f"{self.level:.0%} interval", ""))
            body = "".join(self._line_html(row, j, output, largest) for j in order)
            title = html.escape(f"row {called or row}, {self.title(row, output)}")
            tables.append(f"<table><caption>{title}</caption><tr>{head}</tr>{body}</table>")
        return "".join(tables)

    def _line_html(self, row: int, column: int, output: int, largest: float) -> str:
        centre, low, high = (float(part[row, column, output]) for part in _parts(self.contributions))
        width = 0.0 if largest == 0 else 100 * abs(centre) / largest
        colour = "#c8553d" if centre > 0 else "#4c72b0"
        bar = f'<div style="background:{colour};height:0.8em;width:{width:.1f}px"></div>'
        cells = (html.escape(self.label(row, column)), written(centre), f"{written(low)} to {written(high)}")
        return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + f"<td>{bar}</td></tr>"


def _parts(estimate: Estimate) -> tuple[Array, Array, Array]:
    return estimate.mean, estimate.low, estimate.high


def _ends(name: str, estimate: Estimate, place: tuple[int, ...]) -> dict[str, float]:
    centre, low, high = (float(part[place]) for part in _parts(estimate))
    return {name: centre, f"{name}_low": low, f"{name}_high": high}

"""The summary of a fitted estimator, as statistics programs print one: what was fitted, each column, what is odd."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slabnet.core.errors import one_line
from slabnet.core.figures import written
from slabnet.prediction.coefficients import Coefficient
from slabnet.prediction.extrapolation import TrainingSupport

ALIKE = 0.9  # correlation from which two columns are named
MOST_PAIRS, MOST_ROWS = 5, 40  # that a text names
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    mark: f"\\{mark}" for mark in "&%$#_{}"
}


@dataclass(frozen=True)
class ColumnSummary:
    """One column: probabilities of being used and of being in it only linearly, and its average effect.

    included: of its gate to be open, None where it has none. used: that a path leads from it to an output, in drawn
        networks; linear: that it is used and nothing bends it on the way.
    effect, low, high: how far the response moves on average per standard deviation, with its 95% interval, for `input`
        (of a category the level with the largest effect) and `output` (of several the one that moves most).
    partners: columns that it may interact with, and how probably.
    """

    column: str
    included: float | None
    used: float | None
    linear: float | None
    input: str
    output: str
    effect: float | None
    low: float | None
    high: float | None
    partners: dict[str, float]


@dataclass(frozen=True)
class ModelSummary:
    """What a fitted estimator is, for people: printed, in a notebook, as LaTeX or as a data frame.

    about: what was fitted and how well, name and text. columns: one record each, the most probable first.
    coefficients: of a linear model its coefficient table, in place of the columns. warnings: what to know before
        believing any of it.
    """

    title: str
    about: dict[str, str]
    columns: tuple[ColumnSummary, ...]
    coefficients: tuple[Coefficient, ...]
    outputs: tuple[str, ...]
    warnings: tuple[str, ...]

    def table(self, most: int | None = None) -> list[tuple[str, ...]]:
        """The table as text, its head first."""
        rows = [self._coefficient(one) for one in self.coefficients] or [self._column(one) for one in self.columns]
        return [self._head(), *(rows if most is None else rows[:most])]

    def _head(self) -> tuple[str, ...]:
        several = ("output",) if len(self.outputs) > 1 else ()
        if self.coefficients:
            return (*several, "input", "inclusion", "mean", "sd", "mean if in", "sd if in")
        gate = ("included",) if self._gated else ()
        return ("column", *gate, "used", "only linearly", "effect per sd", "95% interval", "of", "interacts with")

    @property
    def _gated(self) -> bool:
        return any(one.included is not None for one in self.columns)

    def _coefficient(self, one: Coefficient) -> tuple[str, ...]:
        several = (self.outputs[one.output],) if len(self.outputs) > 1 else ()
        numbers = (f"{one.alpha:.3f}", *(written(v) for v in (one.mean, one.sd, one.mean_if_in, one.sd_if_in)))
        return (*several, one_line(one.input, 40), *numbers)

    def _column(self, one: ColumnSummary) -> tuple[str, ...]:
        gate = (_share(one.included),) if self._gated else ()
        known = one.effect is not None and one.low is not None and one.high is not None
        effect = written(float(one.effect or 0.0)) if known else "-"
        interval = f"{written(float(one.low or 0.0))} to {written(float(one.high or 0.0))}" if known else "-"
        parts = [one.input] if one.input != one.column else []
        parts += [one.output] if len(self.outputs) > 1 else []
        partners = ", ".join(f"{one_line(name, 20)} {share:.2f}" for name, share in list(one.partners.items())[:3])
        linear = None if one.used is None or not one.used or one.linear is None else one.linear / one.used
        shares = (*gate, _share(one.used), _share(linear))
        return (one_line(one.column, 40), *shares, effect, interval, one_line(", ".join(parts), 30), partners or "-")

    def __str__(self) -> str:
        wide = max(len(name) for name in self.about)
        rows = self.table(MOST_ROWS)
        keep = [i for i in range(len(rows[0])) if any(row[i] not in ("", "-") for row in rows[1:])]
        widths = [max(len(row[i]) for row in rows) for i in keep]
        text = ["  ".join(row[i].ljust(w) for i, w in zip(keep, widths, strict=True)).rstrip() for row in rows]
        rule = "-" * max(len(line) for line in text)
        rest = len(self.coefficients or self.columns) - (len(rows) - 1)
        more = [f"and {rest} more (to_frame)"] if rest > 0 else []
        notes = [f"! {line}" for line in self.warnings]
        about = [f"{name.ljust(wide)}  {value}" for name, value in self.about.items()]
        return "\n".join([self.title, *about, rule, text[0], rule, *text[1:], *more, rule, *notes]).rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        about = "".join(f"<tr><th>{html.escape(n)}</th><td>{html.escape(v)}</td></tr>" for n, v in self.about.items())
        head, *rows = self.table()
        top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        notes = "".join(f"<li>{html.escape(line)}</li>" for line in self.warnings)
        below = f"<ul>{notes}</ul>" if notes else ""
        title = html.escape(self.title)
        return f"<table><caption>{title}</caption>{about}</table><table><tr>{top}</tr>{body}</table>{below}"

    def to_latex(self) -> str:
        r"""Two tabulars and the warnings; needs the package booktabs."""
        head, *rows = self.table()
        lines = [r"\begin{tabular}{ll}", r"\toprule"]
        lines += [f"{_latex(name)} & {_latex(value)} \\\\" for name, value in self.about.items()]
        lines += [r"\bottomrule", r"\end{tabular}", "", rf"\begin{{tabular}}{{{'l' * len(head)}}}", r"\toprule"]
        lines += [" & ".join(map(_latex, head)) + r" \\", r"\midrule"]
        lines += [" & ".join(map(_latex, row)) + r" \\" for row in rows]
        lines += [r"\bottomrule", r"\end{tabular}", *(f"\n{_latex(line)}" for line in self.warnings)]
        return "\n".join(lines) + "\n"

    def to_frame(self) -> Any:
        """The table as a data frame of pandas, with numbers."""
        import pandas

        return pandas.DataFrame([vars(one) for one in self.coefficients or self.columns])


def correlated(support: TrainingSupport | None, groups: Sequence[Sequence[int]], names: Sequence[str]) -> list[str]:
    """A sentence for each pair of inputs of different columns that hardly differ, the closest first."""
    if support is None or support.scatter is None:
        return []
    size = np.sqrt(np.diag(support.scatter))
    varies = size > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        r = np.where(np.outer(varies, varies), support.scatter / np.outer(size, size), 0.0)
    column = {place: number for number, group in enumerate(groups) for place in group}
    pairs = [(i, j) for i, j in np.argwhere(np.triu(np.abs(r) >= ALIKE, 1)) if column.get(i) != column.get(j)]
    pairs.sort(key=lambda pair: -abs(r[pair]))
    called = [one_line(name, 30) for name in names]
    shown = [f"{called[i]} and {called[j]} (r = {r[i, j]:.3f})" for i, j in pairs[:MOST_PAIRS]]
    more = [f"{len(pairs) - MOST_PAIRS} pairs more"] if len(pairs) > MOST_PAIRS else []
    return [f"Hardly to be told apart: {', '.join([*shown, *more])}."] if pairs else []


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(mark, mark) for mark in text)

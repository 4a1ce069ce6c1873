"""What `slabnet explain` does: rows of a table, in chunks, to lines of a CSV or a page."""

from __future__ import annotations

import html
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slabnet.cli.table_predictions import as_csv, merged
from slabnet.core.errors import FileError, printable, refuse
from slabnet.core.files import write_atomically, writing
from slabnet.data.reading import read_chunks
from slabnet.data.tabular import Report, Table
from slabnet.estimators import load_estimator
from slabnet.estimators.base import SlabEstimator
from slabnet.prediction.explain import Question, Scale
from slabnet.prediction.explanation import Explanation
from slabnet.store import read_card

AT_ONCE = 500  # rows
LEVEL = 0.95
SHOWN = 3  # rows on the screen
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:1.5rem 0;width:100%}caption{text-align:left;font-weight:600;padding:.3rem 0}"
    "th,td{text-align:left;padding:.2rem .6rem;border-bottom:1px solid #ddd;font-variant-numeric:tabular-nums}"
)


@dataclass(frozen=True)
class Told:
    """What was explained: numbers for machines, and the first rows for people."""

    numbers: dict[str, Any]
    shown: Explanation
    notes: list[str]


@dataclass(frozen=True)
class _Model:
    """An estimator from a file, and how a table becomes its inputs."""

    estimator: SlabEstimator
    table: Table
    target: str
    asked: Question

    def explain(self, x: NDArray[np.float64], behind: NDArray[np.float64] | None) -> Explanation:
        known = self.table.undo(x)
        values = [list(row) for row in zip(*known.values(), strict=True)]
        return self.estimator.explain_inputs(x, behind, self.asked, self.table.column_groups, values)

    def rows(self, path: Path, most: int = AT_ONCE) -> Iterator[tuple[NDArray[np.float64], Report]]:
        first = 1
        for chunk in read_chunks(path, "explain", most):
            count = len(next(iter(chunk.values()), []))
            chunk.pop(self.target, None)
            if count:
                yield self.table.apply(chunk, "explain", first)
            first += count


def explain_table(
    model: Path, data: Path, out: Path | None, background: Path | None, scale: str, draws: int | None, rows: int
) -> Told:
    """Explain every row; `out` gets all of it once it is done, or stays as it was."""
    opened = _opened(model, "response" if scale == "response" else "linear", draws)
    behind = None
    if background is not None:
        parts = [x for x, _ in opened.rows(background)]
        if not parts:
            raise FileError(f"explain: {background} must hold rows, got column names only")
        behind = np.vstack(parts)
    met, total, first = Report(), 0, None
    pages: list[str] = []
    csv = out if out is not None and out.suffix.lower() == ".csv" else None
    with writing(csv) if csv is not None else nullcontext() as file:
        for x, report in opened.rows(data):
            why = opened.explain(x, behind)
            met = merged(met, report)
            records = list(why.records(first=total + 1))
            if file is not None:
                head = [list(records[0])] if total == 0 else []
                file.write(as_csv([*head, *([_plain(v) for v in line.values()] for line in records)]).encode())
            pages += [why.row_html(i, str(total + i + 1)) for i in range(min(len(x), rows - len(pages)))]
            first = why if first is None else first
            total += len(x)
            print(f"explained {total} rows", file=sys.stderr, flush=True)
        if first is None:
            raise FileError(f"explain: {data} must hold rows, got column names only")
    if out is not None and csv is None:
        title = f"Why? {total} rows of {data.name}, explained by {model.name}"
        write_atomically(out, _page(title, pages, total, first).encode())
    numbers = {"data": str(data), "rows": total, "draws": first.draws, "scale": first.scale, "level": LEVEL}
    numbers |= {"columns": list(first.columns), "outputs": list(first.outputs), "notes": met.lines()}
    numbers["largest_standard_error"] = float(first.errors.max())
    numbers["explained"] = [_of_row(first, i) for i in range(min(rows, len(first)))]
    return Told(numbers, first, met.lines())


def _opened(model: Path, scale: Scale, draws: int | None) -> _Model:
    card = read_card(model)
    if card.table is None:
        came = f"{model}, fitted to {card.data or 'something else'}"
        refuse("explain", "MODEL", "one that was fitted to a table", came)
    table, estimator = Table.from_dict(card.table), load_estimator(model).on_inputs()
    if len(table.inputs) != estimator.n_features_in_:
        raise FileError(f"explain: {model} must have as many inputs as its columns make, got other numbers")
    asked = Question(estimator.draws if draws is None else draws, estimator._draw(), scale, LEVEL, 1, estimator._seed)
    return _Model(estimator, table, str(card.target), asked)


def _plain(value: Any) -> Any:
    return "" if value is None else value


def _of_row(why: Explanation, row: int) -> dict[str, Any]:
    """One row as JSON: each output with its largest contributions first."""
    outputs = {}
    for k, output in enumerate(why.outputs):
        parts = why.contributions
        outputs[output] = {
            "prediction": float(why.prediction.mean[row, k]),
            "interval": [float(why.prediction.low[row, k]), float(why.prediction.high[row, k])],
            "baseline": float(why.baseline.mean[k]),
            "contributions": [
                {"column": why.columns[j], "value": why.values[row][j], "contribution": float(parts.mean[row, j, k])}
                | {"interval": [float(parts.low[row, j, k]), float(parts.high[row, j, k])]}
                for j in why.order(row, k)
            ],
        }
    return {"row": row + 1, "outputs": outputs}


def _page(title: str, tables: list[str], total: int, why: Explanation) -> str:
    """One self-contained page without script."""
    scale = "linear predictor" if why.scale == "linear" else "response"
    lead = (
        f"Each bar is a column's contribution to the {scale}: in every drawn network they sum to the prediction "
        f"minus the baseline. Intervals hold {LEVEL:.0%} of {why.draws} drawn networks."
    )
    more = f"<p>{total - len(tables)} rows more are in the CSV (--out e.csv).</p>" if total > len(tables) else ""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
        f"<body><main><h1>{html.escape(title)}</h1><p>{lead}</p>{''.join(tables)}{more}</main></body></html>\n"
    )


def lines_of(told: Told) -> list[str]:
    """What `slabnet explain` prints: the first rows, called by their number in the file."""
    numbers = told.numbers
    about = f"{numbers['rows']} rows explained, {numbers['draws']} drawn networks, {numbers['scale']} scale."
    lines = [about, *told.notes]
    for row in range(min(SHOWN, len(told.shown))):
        lines += ["", *told.shown.row_text(row, str(row + 1)).splitlines()]
    if numbers["rows"] > SHOWN:
        lines += ["", f"and {numbers['rows'] - SHOWN} rows more (--out e.csv or e.html, --json)"]
    return [printable(line) for line in lines]

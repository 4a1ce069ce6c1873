"""What `slabnet predict` does with a table of the user's: in chunks, so that memory does not grow with the file."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slabnet.cli.held_out import DOUBT, LEVEL
from slabnet.cli.responses import side_column
from slabnet.cli.tally import Tally
from slabnet.config.fit_card import FitCard
from slabnet.core.errors import FileError, NotFinite, one_line, printable, refuse
from slabnet.core.figures import written
from slabnet.core.files import csv_line, safe_text, writing
from slabnet.core.records import Prediction
from slabnet.data.cells import as_label, is_missing
from slabnet.data.holdout import held_out
from slabnet.data.reading import ROWS, Chunk, read_chunks
from slabnet.data.tabular import Report, Table
from slabnet.estimators import SlabClassifier, SlabRegressor, load_estimator
from slabnet.estimators.base import SlabEstimator
from slabnet.store import read_card

Marks = NDArray[np.bool_]
TINY = 1e-300


def predict_table(
    model: Path, data: Path, out: Path | None, draws: int | None = None, seed: int | None = None, rows: int = ROWS
) -> dict[str, Any]:
    """Predict every row of a table; `out` gets one CSV line a row once all is done, or stays as it was."""
    card = read_card(model)
    if card.table is None:
        refuse(
            "predict",
            "MODEL",
            "one that was fitted to a table",
            f"{model}, fitted to {card.data or 'something else'}",
        )
    prepared, estimator = Table.from_dict(card.table), load_estimator(model).on_inputs()
    if len(prepared.inputs) != estimator.n_features_in_:
        raise FileError(f"predict: {model} must have as many inputs as its columns make, got other numbers")
    estimator.draws = estimator.draws if draws is None else draws
    estimator._seed = estimator._seed if seed is None else seed
    target = str(card.target)
    trained = _trained(card, data, isinstance(estimator, SlabClassifier))
    total, met, tally = 0, Report(), Tally(estimator, prepared.target, (card.tested or {}).get("usual"))
    with writing(out) if out is not None else nullcontext() as file:
        for chunk in read_chunks(data, "predict", rows):
            count = len(next(iter(chunk.values()), []))
            known = chunk.pop(target, None)
            sides = sides_of(card.job, chunk, total)
            if count:
                x, report = prepared.apply(chunk, "predict", total + 1)
                met = merged(met, report)
                unseen = unseen_rows(estimator, prepared, report, len(x))
                try:
                    answers = list(
                        answer_rows(estimator, x, total + 1, unseen, sides, _readable(estimator, prepared, known))
                    )
                except NotFinite as error:
                    raise error.later(total + 1) from None
                tally.add(answers, known, None if trained is None else trained[total : total + count])
            if file is not None:
                titles = [head(estimator, known is not None)] if total == 0 else []
                file.write(as_csv(titles + (answers if count else [])).encode())
            total += count
        if not total:
            raise FileError(f"predict: {data} must hold rows, got column names only")
    numbers = {"data": str(data), "rows": total, "draws": estimator.draws, "task": card.task, "target": target}
    odd = f"{tally.strange} rows have no number as {one_line(target)}: what is said of the others leaves them out."
    numbers["extrapolates"] = tally.outside if estimator.support_ is not None else None
    return numbers | tally.result() | {"notes": met.lines() + ([odd] if tally.strange else [])}


def _trained(card: FitCard, data: Path, classes: bool) -> Marks | None:
    """Which rows of the table were fitted, where it is the very file of the fit; None for other tables."""
    target, job = str(card.target), card.job
    if not isinstance(job, dict) or job.get("sha256") != hashlib.sha256(data.read_bytes()).hexdigest():
        return None
    needed = {name for name in (target, job.get("group"), job.get("time")) if name is not None}
    columns: dict[str, list[Any]] = {name: [] for name in needed}
    for chunk in read_chunks(data, "predict"):
        for name in needed:
            columns[name] += chunk[name]
    answers = columns.pop(target)
    aside = held_out(job, data, answers, classes, columns)
    if aside is None:
        return None
    marks = np.ones(len(answers), dtype=bool)
    marks[aside] = False
    return marks


def _readable(model: SlabEstimator, prepared: Table, known: list[Any] | None) -> list[Any] | None:
    """The targets of some rows: labels as they are, numbers as the fit read them, NaN where there is none."""
    if known is None or isinstance(model, SlabClassifier):
        return known
    numbers = [prepared.target.number(value) for value in known]
    return [math.nan if value is None else value for value in numbers]


def sides_of(job: Any, chunk: Chunk, first: int) -> dict[str, Any]:
    """Exposure and event of the rows of a table, taken out of it, where the model was fitted with such columns."""
    sides = {}
    for option in ("exposure", "event"):
        name = job.get(option) if isinstance(job, Mapping) else None
        if isinstance(name, str) and name in chunk:
            values = chunk.pop(name)
            sides[option] = side_column(values, name, "predict", range(first + 1, first + len(values) + 1))
    return sides


def head(model: SlabEstimator, with_density: bool = False) -> list[str]:
    """The names of the columns; the log density of the target where a table holds it."""
    named = [f"P({label})" for label in model.classes_.tolist()] if isinstance(model, SlabClassifier) else []
    return [*model.network_.likelihood.columns, *named, *(["log_density"] if with_density else [])]


def unseen_rows(model: SlabEstimator, prepared: Table, report: Report, rows: int) -> Marks:
    """Which rows have a level that training never saw, in a column that the model uses."""
    marks, first = np.zeros(rows, dtype=bool), 0
    for column in prepared.columns:
        places = slice(first, first + len(column.inputs))
        first = places.stop
        if model.support_ is not None and model.support_.used[places].any():
            marks[report.unseen.get(column.name, [])] = True
    return marks


def answer_rows(
    model: SlabEstimator,
    x: Any,
    first: int,
    unseen: Marks | None = None,
    sides: Mapping[str, Any] | None = None,
    known: list[Any] | None = None,
) -> Iterator[list[Any]]:
    """One list a row: its number in the file (`first` is that of the first one), the prediction, how sure it is, and
    where the doubt comes from.

    low and high: the interval of a new observation, or of the probability of the predicted class. aleatoric and
    epistemic: standard deviations for a number, entropies for a class. extrapolates: 1 where a row lies outside the
    training data, or has a category that was `unseen` there; no class is decided for it. Empty for a file of 0.1.
    """
    sides = sides or {}
    exposure = {"exposure": sides["exposure"]} if "exposure" in sides else {}
    prediction = model._predict(x, intervals=LEVEL, keep_draws=known is not None, **exposure)
    none: list[list[float | str]] = [[]] * len(x)
    densities = none if known is None else [[value] for value in _densities(model, prediction, known, sides)]
    outside: list[Any] = [""] * len(x)
    if prediction.extrapolates is not None:
        marks = prediction.extrapolates.numpy() | (False if unseen is None else unseen)
        outside = [int(mark) for mark in marks]
    if isinstance(model, SlabRegressor):
        ends = prediction.predictive_interval(LEVEL)
        centre, low, high = (model.scaling_y_.undo(part.numpy())[:, 0] for part in (prediction.mean, *ends))
        parts = [model._spread(part)[:, 0] for part in (prediction.total, prediction.aleatoric, prediction.epistemic)]
        for i in range(len(centre)):
            numbers = (centre[i], parts[0][i], low[i], high[i], parts[1][i], parts[2][i])
            yield [first + i, *(float(v) for v in numbers), outside[i], *densities[i]]
        return
    assert isinstance(model, SlabClassifier)
    shares = model._both(prediction.mean.numpy())
    low, high = model._interval_of(prediction, LEVEL)
    best = shares.argmax(1)
    entropies = [part.numpy().reshape(-1) for part in (prediction.total, prediction.aleatoric, prediction.epistemic)]
    for i, k in enumerate(best):
        label = model.classes_[k].item()
        values = [float(v) for v in (low[i, k], high[i, k], *(part[i] for part in entropies))]
        decided = int(shares[i, k] > DOUBT and outside[i] != 1)
        yield [first + i, label, decided, *values, outside[i], *(float(v) for v in shares[i]), *densities[i]]


def _densities(
    model: SlabEstimator, prediction: Prediction, known: list[Any], sides: Mapping[str, Any]
) -> list[float | str]:
    """log p of the target of each row, in its own units; empty where a row has none, or one the model does not know."""
    if isinstance(model, SlabClassifier):
        places = {as_label(label): place for place, label in enumerate(model.classes_.tolist())}
        shares = model._both(prediction.mean.numpy())
        at = [None if is_missing(value) else places.get(as_label(value)) for value in known]
        return ["" if k is None else math.log(max(float(shares[i, k]), TINY)) for i, k in enumerate(at)]
    assert isinstance(model, SlabRegressor)
    numbers = np.array(known, dtype=np.float64)
    good = np.isfinite(numbers)
    logs = model.densities_of(prediction, np.where(good, numbers, 1.0), sides.get("event"))
    return [float(value) if ok else "" for value, ok in zip(logs, good, strict=True)]


def as_csv(rows: list[list[Any]]) -> str:
    """Rows as CSV; text that a spreadsheet would take for a formula gets an apostrophe in front."""
    return "".join(csv_line(_cell(value) for value in row) for row in rows)


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}"
    return safe_text(value) if isinstance(value, str) else value


def merged(one: Report, other: Report) -> Report:
    """Two reports of chunks of one table."""
    unknown = {name: levels.copy() for name, levels in one.unknown.items()}
    for name, levels in other.unknown.items():
        unknown[name] = unknown[name] + levels if name in unknown else levels
    return Report(one.missing + other.missing, unknown, other.absent, other.ignored)


def lines_of(numbers: dict[str, Any], out: Path | None) -> list[str]:
    """What `slabnet predict` prints."""
    target = one_line(numbers["target"])
    lines = [f"{numbers['rows']} rows, averaged over {numbers['draws']} drawn networks."]
    if numbers["extrapolates"]:
        lines.append(
            f"{_rows(numbers['extrapolates'])} outside the training data: what is said of them is extrapolated."
        )
    if "decided" in numbers:
        lines.append(f"Decided at {DOUBT}: {numbers['decided']} rows; the others are in doubt.")
    where = f"where {target} is known"
    if numbers.get("fitted_file"):
        where = (
            "that were held out" if numbers["held_out"] else "that were fitted (the same figure on new rows is worse)"
        )
    lines += _scores(numbers, where)
    if numbers.get("training"):
        lines += [f"Only for comparison: {line}" for line in _scores(numbers["training"], "that were fitted")]
    return [*lines, *numbers["notes"], *([f"Written: {printable(str(out))}"] if out is not None else [])]


def _rows(count: int) -> str:
    return "1 row lies" if count == 1 else f"{count} rows lie"


def _scores(scores: dict[str, Any], where: str) -> list[str]:
    """The figures of the rows whose answer is known."""
    lines = []
    if "accuracy" in scores:
        lines.append(
            f"Accuracy on {scores['known']} rows {where}: {scores['accuracy']:.4f} (always saying the most frequent "
            f"class: {scores['baseline']:.4f}); balanced {scores['balanced_accuracy']:.4f}, "
            f"log-loss {scores['log_loss']:.4f}, Brier score {scores['brier']:.4f}."
        )
    if "rmse" in scores:
        explained = "" if scores["r2"] is None else f", R2 {scores['r2']:.3f}"
        lines.append(
            f"RMSE on {scores['known']} rows {where}: {written(scores['rmse'])} (always saying the mean: "
            f"{written(scores['baseline'])}){explained}; "
            f"95% prediction intervals cover {scores['coverage']:.3f}."
        )
    return lines

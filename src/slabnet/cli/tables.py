"""What `slabnet fit` does with a table of the user's: read, prepare, fit, test, say what was found, write the model."""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slabnet.cli.held_out import odd_rows, tested
from slabnet.cli.responses import NO_COLUMNS, ResponseColumns, other_response
from slabnet.cli.summary import describe_model, next_steps, summary
from slabnet.cli.teachers import Teacher
from slabnet.config.settings import Recipe
from slabnet.core.errors import Complaints, FileError, check_number, one_line, refuse
from slabnet.core.files import checkpoints_of
from slabnet.data.cells import PLAIN, Reading, as_label, is_missing, number_of, plain_numbers, says_none
from slabnet.data.columns import as_numbers, check_answers, numeric
from slabnet.data.dependence import INDEPENDENT, Dependence, dependence_of
from slabnet.data.holdout import split_rows
from slabnet.data.noticed import noticed
from slabnet.data.reading import Chunk, read_all
from slabnet.data.tabular import Table
from slabnet.data.task import Task, guess_task
from slabnet.distributed.group import Followed, current_group
from slabnet.estimators import SlabClassifier, SlabRegressor, save_estimator
from slabnet.estimators.base import SlabEstimator
from slabnet.estimators.responses import Given
from slabnet.estimators.scaling import constant_columns
from slabnet.estimators.warnings import far_values
from slabnet.store import read_card
from slabnet.training.checkpoints import Checkpoints, forget, holds_any

SHOWN = 10  # inputs a line names
FEWEST_ROWS = 4
LARGE_FILE = 2**23  # bytes from which reading takes a while, and is said
LARGEST_TARGET = 1e60  # the squares of its squares are numbers still
Labels = NDArray[Any]


@dataclass(frozen=True)
class TableJob:
    """What to fit: columns, task, and the settings, of which those left out come from the rule for defaults."""

    data: Path
    target: str
    recipe: Recipe
    task: Task | None = None
    test_size: float = 0.2
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    group: str | None = None
    time: str | None = None
    response: ResponseColumns = NO_COLUMNS
    teacher: Teacher | None = None

    @property
    def seed(self) -> int:
        return self.recipe.train.seed

    def to_dict(self) -> dict[str, Any]:
        """What makes this fit what it is; the same fit gives the same model, wherever its file lies."""
        sides = (("group", self.group), ("time", self.time))
        depends: dict[str, Any] = {name: value for name, value in sides if value is not None}
        depends |= {} if self.teacher is None else {"teacher": self.teacher.to_dict()}
        return depends | {
            "file": self.data.name,
            "sha256": hashlib.sha256(self.data.read_bytes()).hexdigest(),
            "target": self.target,
            "task": self.task,
            "test_size": self.test_size,
            "drop": list(self.drop),
            "categorical": list(self.categorical),
            **self.response.to_dict(),
            "seed": self.seed,
            "recipe": self.recipe.model_dump(mode="json", exclude_unset=True),
        }


@dataclass(frozen=True)
class FittedTable:
    """What a fit of a table found: numbers for machines, lines for people."""

    numbers: dict[str, Any]
    lines: list[str]


def table_finished(out: Path, job: TableJob) -> bool:
    """Whether `out` is the model of this very fit, so that there is nothing to resume."""
    if not out.is_file() or holds_any(checkpoints_of(out)):
        return False
    job_before = read_card(out).job or {}
    for key, value in job.to_dict().items():
        if job_before.get(key) != value:
            refuse("fit", "--resume", f"used with the settings {out} was fitted with", f"another {key}")
    return True


@dataclass(frozen=True)
class _Rows:
    """A table ready to be fitted: inputs and answers, which rows train, what was learned of columns, what to say."""

    x: NDArray[np.float64]
    y: Labels
    train: NDArray[np.int64]
    test: NDArray[np.int64]
    depends: Dependence
    table: Table
    task: Task
    numbers: list[int]
    notes: list[str]
    soft: NDArray[np.float64] | None
    sides: dict[str, NDArray[np.float64]]


def _prepared(job: TableJob) -> _Rows:
    """Read and check everything that can be wrong with a table, and say it all at once."""
    table, target, numbers, notes = _read(job)
    asked = job.response.check(job.task)
    sides = job.response.taken_from(table, numbers)
    guess = guess_task(target, job.target)
    task = asked or guess.task
    notes += [guess.line(job.target)] if asked is None else []
    notes += noticed(table, target, job.target)
    complaints, y = Complaints("fit"), None
    reading = numeric(target, job.target, "fit") if task == "regression" else None
    with complaints:
        y = _response(target, task, job.target, numbers, reading or PLAIN)
        job.response.check_levels(y, job.target)
    train, depends = np.arange(len(target)), INDEPENDENT
    with complaints:
        depends = dependence_of(table, job.group, job.time, numbers, "fit")
    table = {name: values for name, values in table.items() if name not in (job.group, job.time)}
    if y is not None:
        rule = (job.test_size, job.seed, depends.groups, depends.times)
        train, test = split_rows(y, task == "classification", *rule)
        if len(train) < FEWEST_ROWS - 1:
            refuse("fit", "--test-size", "a share that leaves rows to fit", job.test_size)
    with complaints:
        rows = {name: [values[i] for i in train] for name, values in table.items()}
        learned = Table.learn(rows, job.categorical, numbers=[numbers[i] for i in train])
    complaints.settle()
    assert y is not None
    if not learned.columns:
        allowed = "a table with columns besides the target"
        refuse("fit", "DATA", allowed, f"{job.data}, where there is nothing else to use")
    learned = replace(learned, target=reading or PLAIN)
    if reading is not None and not reading.plain:
        notes.append(f"{one_line(job.target)}: read as numbers ({reading.told()}).")
    x, met = learned.apply(table, "fit", numbers=numbers)
    soft = None
    if job.teacher is not None:
        job.teacher.check(job.target, job.to_dict())
        classes = job.response.classes_of(y[train]) if task == "classification" else None
        soft = job.teacher.of_table(rows, [numbers[i] for i in train], classes)
        notes.append(job.teacher.line)
    notes += learned.notes + met.lines()
    return _Rows(x, y, train, test, depends, learned, task, numbers, notes, soft, sides)


def fit_table(job: TableJob, out: Path, resume: bool = False, every_minutes: float = 5.0) -> FittedTable:
    """Fit a table, write the model, and say how good it is on held-out rows."""
    check_number("fit", "--test-size", job.test_size, at_least=0, below=1)
    rows = _prepared(job)
    x, y, train, test, prepared = rows.x, rows.y, rows.train, rows.test, rows.table
    task, notes, sides = rows.task, rows.notes, rows.sides
    constant = [prepared.inputs[i] for i in constant_columns(x[train])]
    if constant:
        notes.append(f"One value only, so of no use: {', '.join(map(one_line, constant[:SHOWN]))}.")
    notes += _far(x, prepared.inputs, rows.numbers)
    if task == "regression":
        notes += _far(y[:, None], [job.target], rows.numbers)
    if x.shape[1] > len(train):
        notes.append(f"More inputs ({x.shape[1]}) than rows ({len(train)}): expect doubt about which of them matter.")
    model = _estimator(task, job)
    model._groups_of_inputs = prepared.column_groups  # a gate is for a column of the file
    checkpoints = checkpoints_of(out)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what is odd has been named above
        of_training: dict[str, Any] = {name: column[train] for name, column in sides.items()}
        if job.teacher is not None:
            of_training |= {"teacher": rows.soft, "teacher_share": job.teacher.share}
        given = Given(**of_training)
        model._fit(
            x[train],
            y[train],
            rows.depends.of_rows(train),
            checkpoint=Checkpoints(checkpoints, every_minutes),
            resume=resume,
            given=given,
        )
    if not current_group().leads:
        raise Followed
    numbers: dict[str, Any] = {"task": task, "rows": len(train), "test_rows": len(test), "inputs": x.shape[1]}
    numbers |= {"classes": [str(label) for label in model.classes_]} if isinstance(model, SlabClassifier) else {}
    if isinstance(model, SlabRegressor) and job.response.response is not None:
        notes.append(f"Response: {model.response_} ({model.response_why_}).")
        numbers |= {"response": model.response_, "response_why": model.response_why_}
    if task == "regression" and job.response.response is None:
        notes += other_response(y[train], job.target)
    beside = {name: column[test] for name, column in sides.items()}
    if len(test):
        numbers["test"] = tested(model, (x[train], y[train]), x[test], y[test], beside)
        numbers["odd_rows"] = odd_rows(model, (x[train], y[train]), x[test], y[test])
    numbers |= describe_model(model, prepared.inputs, prepared.column_groups)
    about = {"job": job.to_dict(), "table": prepared.to_dict(), "target": job.target, "task": task}
    save_estimator(model, out, input_names=prepared.inputs, tested=numbers.get("test"), **about)
    forget(checkpoints)  # the model holds all that matters now
    return FittedTable(numbers | {"notes": notes, "next": next_steps(numbers)}, notes + summary(numbers, job.target))


def _read(job: TableJob) -> tuple[Chunk, list[Any], list[int], list[str]]:
    """Columns and target, without the rows that have none; the number that each row has in the file; what to say."""
    if job.data.is_file() and job.data.stat().st_size > LARGE_FILE and current_group().leads:
        print(f"fit: reading {one_line(job.data, 200)}", file=sys.stderr, flush=True)
    table = read_all(job.data, "fit")
    for name in job.drop:
        if table.pop(name, None) is None:
            refuse("fit", "--drop", f"one of the columns of {job.data}", name)
    if job.target not in table:
        refuse(
            "fit", "--target", f"one of the columns {', '.join(one_line(n, 30) for n in list(table)[:20])}", job.target
        )
    target, notes = table.pop(job.target), []
    plain = plain_numbers(target)
    if plain is None:
        among_numbers = job.task != "classification" and numeric(target, job.target, "fit") is not None
        gone = [is_missing(value) or (among_numbers and says_none(value)) for value in target]
    else:
        gone = np.isnan(plain).tolist()
    keep = [i for i, missing in enumerate(gone) if not missing]
    if len(keep) < len(target):
        words = Counter(str(value).strip() for value, missing in zip(target, gone, strict=True) if missing and value)
        shown = ", ".join(f"{one_line(word)} {count}" for word, count in words.items() if word)
        came = f" ({shown} of them: call it otherwise if that is a class)" if shown else ""
        notes.append(f"{len(target) - len(keep)} rows have no {one_line(job.target)}{came} and were left out.")
        target = [target[i] for i in keep]
        table = {name: [values[i] for i in keep] for name, values in table.items()}
    if len(target) < FEWEST_ROWS:
        came = f"{len(target)} with a value of {one_line(job.target)}"
        raise FileError(f"fit: {job.data} must hold at least {FEWEST_ROWS} rows, got {came}")
    empty = [name for name, values in table.items() if all(map(is_missing, values))]
    if empty:
        notes.append(f"Columns without any value, left out: {', '.join(map(one_line, empty[:SHOWN]))}.")
        table = {name: values for name, values in table.items() if name not in empty}
    return table, target, [i + 1 for i in keep], notes


def _response(target: list[Any], task: Task, name: str, rows: list[int], reading: Reading) -> Labels:
    check_answers(target, name, "fit")
    if task == "regression":
        numbers = as_numbers(target, name, "fit", rows, reading)
        largest = float(np.abs(numbers).max())
        if largest > LARGEST_TARGET:
            refuse("fit", f"column {one_line(name)}", f"numbers up to {LARGEST_TARGET:g} in size", f"{largest:g}")
        if constant_columns(numbers[:, None]):
            refuse("fit", "--target", "a column with more than one value", f"{one_line(name)}, always {numbers[0]:g}")
        return numbers
    labels = np.array([as_label(value) for value in target])
    classes = np.unique(labels)
    if len(classes) < 2:
        refuse("fit", "--target", "a column of at least two classes", f"{one_line(name)}, always {classes[0]}")
    if len(classes) > len(labels) / 2 and any(number_of(value) is None for value in target):
        came = f"{one_line(name)} with {len(classes)} different texts, as {one_line(repr(str(labels[0])), 40)}"
        refuse("fit", "--target", "a column of numbers, or of classes that come again", came)
    if len(classes) > len(labels) / 2:
        refuse("fit", "--task", f"regression for {one_line(name)}", f"classification with {len(classes)} classes")
    return labels


def _far(table: NDArray[np.float64], names: list[str], rows: list[int]) -> list[str]:
    """Values beside which all others of their column look alike."""
    far = far_values(table)
    cells = [f"{one_line(names[i])} has {table[row, i]:g} in row {rows[row]}" for i, row in far[:SHOWN]]
    more = f" and {len(far) - SHOWN} columns more" if len(far) > SHOWN else ""
    return [f"One value beside which all others of its column look alike: {', '.join(cells)}{more}."] if far else []


def _estimator(task: Task, job: TableJob) -> SlabEstimator:
    network, recipe = job.recipe.network, job.recipe
    kind = SlabClassifier if task == "classification" else SlabRegressor
    prior = recipe.prior if recipe.prior.model_fields_set else None
    options: dict[str, Any] = {
        "hidden": network.hidden if "hidden" in network.model_fields_set else None,
        "method": network.method,
        "activation": network.activation,
        "prior": prior,
        "start": recipe.start if recipe.start.model_fields_set else None,
        "config": recipe.train,
    }
    options |= job.response.options()
    options |= {"skip": network.skip} if "skip" in network.model_fields_set else {}
    options |= {"gates": network.gates} if "gates" in network.model_fields_set else {}
    options |= {"members": network.members} if "members" in network.model_fields_set else {}
    return kind(**options, random_state=job.seed, verbose=1)

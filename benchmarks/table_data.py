"""The tables of SLABNET_DATA/tables and the UCI ones as the benchmarks take them: columns, responses, splits."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from benchmarks.resumable import data_folder
from benchmarks.uci import FOLDERS, load_split
from slabnet.data.tabular import Table

TEST_SHARE = 0.2
DROPPED = {"fuel": ("carline", "release_date")}  # free text, dates: a table of ours refuses them by name
LABELS = {"callback": ("minimum",)}  # levels, of which some look like numbers
Task = Literal["regression", "classification"]


@dataclass(frozen=True)
class Rows:
    """Some rows of a table: the columns as they come, and the responses."""

    x: Any
    y: Any

    def at(self, places: Any) -> Rows:
        return Rows(self.x.iloc[places].reset_index(drop=True), self.y[places])


@dataclass(frozen=True)
class Split:
    """Training and test rows of one table."""

    train: Rows
    test: Rows
    task: Task

    def inputs(self) -> tuple[Any, Any]:
        """Both as numbers, by what `slabnet.data.Table` learns of the training rows: what every method gets."""
        table = Table.learn(self.train.x)
        return table.apply(self.train.x)[0], table.apply(self.test.x)[0]


def names(*responses: str) -> list[str]:
    """The tables of SLABNET_DATA/tables with these responses."""
    return [row["file"] for row in _index() if row["response"] in responses]


def task_of(name: str) -> Task:
    if name in FOLDERS:
        return "regression"
    response = next(row["response"] for row in _index() if row["file"] == name)
    return "classification" if response == "classification" else "regression"


def outer(name: str, split: int) -> Split:
    """The rows of one split: the standard ones of a UCI table, else four fifths at random, classes in proportion."""
    if name in FOLDERS:
        x, y, x_test, y_test = load_split(name, split)
        train, test = (pd.DataFrame(part).add_prefix("x") for part in (x, x_test))
        return Split(Rows(train, y), Rows(test, y_test), task_of(name))
    return _halves(_whole(name), task_of(name), split)


def inner(name: str, split: int, most: int | None = None) -> Split:
    """The training rows of a split, split again: what a choice may look at. most: rows to train on."""
    rows = outer(name, split).train
    found = _halves(rows, task_of(name), 1000 + split)
    if most is None or len(found.train.y) <= most:
        return found
    return Split(found.train.at(np.arange(most)), found.test.at(np.arange(min(most, len(found.test.y)))), found.task)


def _halves(rows: Rows, task: Task, seed: int) -> Split:
    order = np.arange(len(rows.y))
    labels = rows.y if task == "classification" else None
    train, test = train_test_split(order, test_size=TEST_SHARE, random_state=seed, stratify=labels)
    return Split(rows.at(train), rows.at(test), task)


def _whole(name: str) -> Rows:
    row = next(row for row in _index() if row["file"] == name)
    frame = pd.read_csv(data_folder("tables") / f"{name}.csv", keep_default_na=True)
    frame = frame[frame[row["target"]].notna()].reset_index(drop=True)
    y = frame.pop(row["target"]).to_numpy()
    y = y.astype(str) if task_of(name) == "classification" else y.astype(np.float64)
    for column in LABELS.get(name, ()):
        frame[column] = "level " + frame[column].astype(str)
    frame = frame.drop(columns=list(DROPPED.get(name, ())))
    return Rows(frame.loc[:, frame.notna().any()], y)


def _index() -> list[dict[str, str]]:
    with (data_folder("tables") / "index.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))

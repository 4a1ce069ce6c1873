"""Columns behind gates in the estimators: what is found, in the words of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import slabnet as sn
from slabnet.cli.app import app
from slabnet.estimators.chosen import within_fdr
from slabnet.model.gates import Gates

CONFIG: dict[str, Any] = {"hidden": (8,), "skip": True, "gates": "inputs", "epochs": 360, "random_state": 0}


def frame(rows: int = 160) -> tuple[pd.DataFrame, Any]:
    source = np.random.default_rng(0)
    city = source.choice(["a", "b", "c"], rows)
    table = pd.DataFrame({"size": source.normal(size=rows), "city": city, "noise": source.normal(size=rows)})
    y = 1.5 * table["size"] + 2.0 * (city == "b") - 1.0 * (city == "c") + 0.3 * source.normal(size=rows)
    return table, y.to_numpy()


def test_the_levels_of_a_column_come_and_go_together(tmp_path: Path) -> None:
    table, y = frame()
    model = sn.SlabRegressor(**CONFIG).fit(table, y)
    found = model.column_inclusion_
    assert list(found) == ["size", "city", "noise"]
    assert found["size"] > 0.9
    assert found["city"] > 0.9
    assert found["noise"] < 0.5
    assert set(model.select(fdr=0.1)) == {"size", "city"}
    sn.save_estimator(model, tmp_path / "m.slab")
    back = sn.load_estimator(tmp_path / "m.slab")
    assert back.column_inclusion_ == found
    assert back.gates == "inputs"
    np.testing.assert_allclose(back.predict(table), model.predict(table), rtol=1e-9)
    assert set(model.sparsify().column_inclusion_.values()) <= {0.0, 1.0}


def test_columns_of_an_array_have_numbers() -> None:
    table, y = frame(80)
    model = sn.SlabRegressor(**CONFIG | {"epochs": 2}).fit(table[["size", "noise"]].to_numpy(), y)
    assert list(model.column_inclusion_) == ["x0", "x1"]


def test_what_is_not_known_is_refused() -> None:
    table, y = frame(80)
    plain = sn.SlabRegressor(hidden=(4,), gates=False, epochs=2, random_state=0).fit(table, y)
    with pytest.raises(AttributeError, match='gates="inputs"'):
        _ = plain.column_inclusion_
    with pytest.raises(sn.ArgumentError, match="fdr must be a number above 0 and below 1"):
        plain.select(fdr=0.0)


def test_the_largest_set_within_a_rate() -> None:
    chances = {f"c{i}": p for i, p in enumerate([0.999, 0.3, 0.95, 0.85, 0.7, 0.01])}
    best = within_fdr(chances, 0.1)
    assert best == ["c0", "c2", "c3"]  # with c4 the mean of 1 - alpha is .126
    assert sum(1 - chances[name] for name in best) / len(best) <= 0.1


def test_selected_features_are_columns_whose_gate_is_rather_open_than_shut() -> None:
    table, y = frame()
    model = sn.SlabRegressor(**CONFIG | {"epochs": 120}).fit(table, y)
    inclusion = model.column_inclusion_
    above = [i for i, probability in enumerate(inclusion.values()) if probability > 0.5]
    assert model.selected_features_.tolist() == above
    gates = next(part for part in model.network_.modules() if isinstance(part, Gates))
    with torch.no_grad():
        gates.omega[gates.names.index("noise")] = 9.0
        gates.omega[gates.names.index("city")] = -9.0
    assert model.selected_features_.tolist() == [0, 2]
    assert model.transform(table).shape == (160, 2)


def test_the_command_gives_one_gate_to_each_column_of_the_file(tmp_path: Path) -> None:
    table, y = frame(120)
    table.assign(y=y).to_csv(tmp_path / "t.csv", index=False)
    job = f"fit {tmp_path}/t.csv --target y --out {tmp_path}/m.slab --hidden 4 --epochs 2 --gates --skip"
    answer = CliRunner().invoke(app, job.split())
    assert answer.exit_code == 0, answer.output
    model = sn.load_estimator(tmp_path / "m.slab")
    assert list(model.column_inclusion_) == ["size", "city", "noise"]
    assert model.skip

"""Finite weights so large that their sums are not: an error that names the row, and JSON that every reader takes."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from subprocess import run

import numpy as np
import pytest
import torch

import slabnet as sn
from slabnet.cli.table_predictions import predict_table
from slabnet.cli.tables import TableJob, fit_table
from slabnet.config.settings import NetworkConfig, Recipe, TrainConfig
from slabnet.core.containers import read_container, write_container
from slabnet.core.errors import NotFinite
from slabnet.core.json_text import json_text
from slabnet.store import FORMAT

HUGE = 3e38


def enlarged(net: sn.Network) -> sn.Network:
    with torch.no_grad():
        for name, value in net.named_parameters():
            if name.endswith("mu"):
                value.fill_(HUGE)
    return net


def test_a_prediction_that_is_none_names_its_row() -> None:
    x = torch.zeros(1500, 3)
    x[1203] = torch.tensor([1.0, 2.0, 3.0])
    net = sn.mlp((3, 1), likelihood="gaussian", seed=0)
    with torch.no_grad():
        net.get_parameter("body.1.weight.mu").fill_(HUGE)
    for draw in (sn.mean, sn.median):
        with pytest.raises(NotFinite, match="inf in row 1203"):
            sn.predict(net, x, draw=draw)
    for draw in (sn.exact, sn.mean):
        with pytest.raises(NotFinite, match="nan in row 0"):
            sn.predict(enlarged(sn.mlp((3, 4, 2), seed=0)), x, draws=2, draw=draw)


def test_a_command_says_so_and_prints_no_nan(tmp_path: Path) -> None:
    path, out = tmp_path / "m.slab", tmp_path / "p.csv"
    sn.save(enlarged(sn.mlp((64, 5, 10), seed=0)), path)
    command = [sys.executable, "-m", "slabnet", "predict", str(path), "digits", "--json", "--out", str(out)]
    found = run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (1, "")
    assert "the mean must be finite, got nan in row 0" in found.stderr
    assert not out.exists()


def test_the_row_of_a_table_is_counted_from_its_start(tmp_path: Path) -> None:
    table, model = tmp_path / "t.csv", tmp_path / "m.slab"
    rows = np.random.default_rng(0).normal(size=(60, 2))
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([["a", "y"], *rows.tolist()])
    recipe = Recipe(network=NetworkConfig(hidden=()), train=TrainConfig(epochs=2))
    fit_table(TableJob(table, "y", recipe), model)
    header, tensors = read_container(model, "test", FORMAT)
    large = {name: torch.full_like(t, 1e308) if name.endswith("weight.mu") else t for name, t in tensors.items()}
    write_container(model, header, large)
    with table.open("w", newline="") as file:
        csv.writer(file).writerows(
            [["a"], *([float(header["about"]["table"]["columns"][0]["fill"])] for _ in range(20)), [1e9]]
        )
    with pytest.raises(NotFinite, match="in row 21"):
        predict_table(model, table, tmp_path / "p.csv", rows=7)
    assert not (tmp_path / "p.csv").exists()


def test_json_holds_no_number_that_is_none() -> None:
    text = json_text({"a": float("nan"), "b": [1.5, -float("inf"), {"c": float("inf")}], "d": ("x", None, True)})
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": None,
        "b": [1.5, None, {"c": None}],
        "d": ["x", None, True],
    }

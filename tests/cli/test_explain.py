"""`slabnet explain`: a file in, a CSV or a page out."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import slabnet as sn
from slabnet.cli.app import app
from slabnet.cli.tables import TableJob, fit_table
from slabnet.config.settings import Recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fitted table, and rows to explain."""
    place = tmp_path_factory.mktemp("explain")
    rng = np.random.default_rng(0)
    city = rng.choice(["<Oslo>", "Bergen", "=Bodo"], 60)
    age = np.where(np.arange(60) % 7, rng.normal(50, 10, 60).round(2), np.nan)
    frame = pd.DataFrame({"age": age, "city": city, "y": np.nan_to_num(age) + 10 * (city == "Bergen")})
    frame.to_csv(place / "t.csv", index=False)
    frame.drop(columns="y")[:8].to_csv(place / "new.csv", index=False)
    recipe = Recipe()
    recipe = recipe.model_copy(
        update={
            "network": recipe.network.model_copy(update={"hidden": (4,)}),
            "train": sn.TrainConfig(epochs=5, kl_weight=1.0),
        }
    )
    fit_table(TableJob(place / "t.csv", "y", recipe), place / "m.slab")
    return place


def run(*words: object) -> None:
    app([str(word) for word in words], standalone_mode=False)


def test_a_csv_has_a_line_for_each_column_and_adds_up(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("explain", folder / "m.slab", folder / "new.csv", "--out", folder / "e.csv", "--draws", 10)
    printed = capsys.readouterr()
    assert "8 rows explained, 10 drawn networks, linear scale." in printed.out
    assert "explained 8 rows" in printed.err
    with (folder / "e.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 8 * 2
    for row in range(1, 9):
        of_row = [line for line in lines if line["row"] == str(row)]
        total = sum(float(line["contribution"]) for line in of_row)
        assert float(of_row[0]["prediction"]) - float(of_row[0]["baseline"]) == pytest.approx(total, abs=1e-3)
    model = sn.load_estimator(folder / "m.slab").on_inputs()
    assert model.background_ is not None
    assert {line["value"] for line in lines if line["column"] == "city"} <= {"<Oslo>", "Bergen", "'=Bodo"}
    assert lines[0]["value"] == ""  # missing


def test_a_page_escapes_and_holds_some_rows(folder: Path) -> None:
    run("explain", folder / "m.slab", folder / "new.csv", "--out", folder / "e.html", "--rows", 2, "--draws", 5)
    page = (folder / "e.html").read_text("utf-8")
    assert page.count("<table>") == 2
    assert "<Oslo>" not in page
    assert "6 rows more" in page
    assert "http" not in page.replace("http-equiv", "")


def test_json_and_a_background(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["explain", folder / "m.slab", folder / "new.csv", "--background", folder / "t.csv", "--json"]
    run(*call, "--draws", 5, "--scale", "response")
    told = json.loads(capsys.readouterr().out)
    assert told["rows"] == 8
    assert told["columns"] == ["age", "city"]
    one = told["explained"][0]["outputs"]["response"]
    total = sum(part["contribution"] for part in one["contributions"])
    assert one["prediction"] - one["baseline"] == pytest.approx(total, abs=1e-2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "e.txt"], "--out must be a name that ends in .csv or .html"),
        (["--scale", "log"], "--scale must be one of"),
        (["--background", "none.csv"], "--background must be a file that exists"),
        (["--out", "nowhere/e.csv"], "the output must be in a folder that exists"),
    ],
)
def test_bad_calls(folder: Path, words: list[str], message: str) -> None:
    with pytest.raises(sn.ArgumentError, match=message):
        run("explain", folder / "m.slab", folder / "new.csv", *words)
    sn.save(sn.mlp((2, 2)), folder / "net.slab")
    with pytest.raises(sn.ArgumentError, match="MODEL must be one that was fitted to a table"):
        run("explain", folder / "net.slab", folder / "new.csv")

"""The demo, whole: what it prints, what it writes, and that it keeps its promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import slabnet as sn

KEYS = {
    "method", "gamma", "beta", "post_trained", "draws", "accuracy", "accuracy_at_95", "classified_at_95",
    "density_used", "density_median", "density_expected", "density_active", "weights", "authors",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "a b"


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, object]:
    run = subprocess.run(
        [sys.executable, "-m", "slabnet", "demo", "--out", str(folder), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.count("\n") == 1  # JSON and nothing else
    return json.loads(run.stdout)  # type: ignore[no-any-return]


def test_the_rows_are_those_of_table_1(found: dict[str, object]) -> None:
    rows = found["rows"]
    assert isinstance(rows, list)
    assert all(set(row) == KEYS for row in rows)
    ways = [
        ("SIM", "SIM", 1),
        ("SIM", "SIM", 10),
        ("ALL", "EXP", 1),
        ("MED", "SIM", 1),
        ("MED", "SIM", 10),
        ("MED", "EXP", 1),
    ]
    wanted = [("deterministic", "ALL", "EXP", False, 1)]
    wanted += [("lbbnn", gamma, beta, post, draws) for post in (False, True) for gamma, beta, draws in ways]
    assert [(r["method"], r["gamma"], r["beta"], r["post_trained"], r["draws"]) for r in rows] == wanted


def test_the_median_model_is_accurate_and_small(found: dict[str, object]) -> None:
    for row in found["rows"]:  # type: ignore[attr-defined]
        if row["gamma"] == "MED" and row["beta"] == "EXP":
            assert row["accuracy"] >= 0.95
            assert row["density_median"] <= 0.02
            assert row["weights"] == round(row["density_median"] * 17_400)
            assert row["density_active"] <= row["density_median"]
        if row["gamma"] == "ALL":
            assert row["weights"] == 17_400


def test_the_files_are_whole_and_agree(found: dict[str, object], folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["demo.png", "digits.slab", "metrics.json", "report.html"]
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["rows"] == found["rows"]
    assert metrics["seed"] == 0
    assert (folder / "demo.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    net = sn.load(folder / "digits.slab")
    x, y = sn.data.load("digits").test
    accuracy = sn.accuracy(sn.predict(net, x, draw=sn.median), y)
    assert accuracy == pytest.approx(metrics["rows"][-1]["accuracy"], abs=1 / 360)

"""A card says what the file says, in text that Markdown does not read as marks."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import slabnet as sn
from slabnet.cli.app import app
from slabnet.core.figures import written
from slabnet.store import read_card


def test_fit_writes_a_card_with_the_scores_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("a,y_<b>\n" + "\n".join(f"{i},{i * 2 + i % 3}.5" for i in range(60)))
    words = ["fit", "t.csv", "--target", "y_<b>", "--out", "m.slab", "--epochs", "2", "--card"]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 0, run.output
    card = Path("m.card.md").read_text()
    assert card == sn.model_card("m.slab")
    tested = read_card(Path("m.slab")).tested
    assert tested is not None
    assert f"| rmse | {written(tested['rmse'])} |" in card
    assert f"| RMSE of ridge | {written(tested['linear']['rmse'])} |" in card
    assert "y\\_\\<b\\>" in card


def test_a_card_of_a_plain_network_says_what_is_not_known(tmp_path: Path) -> None:
    sn.save(sn.mlp((2, 2)), tmp_path / "m.slab")
    assert "Not known: no rows were held out." in sn.model_card(tmp_path / "m.slab")

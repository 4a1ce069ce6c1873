"""What `slabnet doctor` finds in a table, and in a model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import slabnet as sn
from slabnet.cli.app import app
from slabnet.cli.doctor import examine, lines_of
from slabnet.cli.tables import TableJob, fit_table
from slabnet.config.settings import Recipe


def test_a_table_with_everything_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    header = "row,a,twice,same,gaps,when,who,k"
    rows = []
    for i in range(60):
        a = rng.normal()
        gap = "" if i % 4 else "1.5"
        rows.append(
            f"{i},{a:.4f},{2 * a:.4f},5,{gap},2024-01-{1 + i % 28:02d},person {i},{'rare' if i < 3 else 'usual'}"
        )
    (tmp_path / "t.csv").write_text("\n".join([header, *rows]) + "\n")
    said = "\n".join(lines_of(examine(tmp_path / "t.csv", "k")))
    for words in (
        "Task: classification, guessed from k: text, 2 different (usual, rare)",
        "Rare classes of k: rare (3 rows).",
        "row counts the rows: leave it out with --drop row.",
        "a and twice say the same: leave one out with --drop twice.",
        "gaps is missing in 75% of the rows.",
        "Columns that cannot be fitted: column when must be",
        "column who must be",
    ):
        assert words in said
    app(["doctor", str(tmp_path / "t.csv"), "--target", "k", "--json"], standalone_mode=False)
    assert all(set(one) == {"what", "remedy"} for one in json.loads(capsys.readouterr().out)["findings"])
    with pytest.raises(sn.ArgumentError, match=r"doctor: --target must be one of the columns row, a, .* got z"):
        examine(tmp_path / "t.csv", "z")


def test_a_good_table_and_a_model_of_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{2 * a + rng.normal():.3f},5" for a in rng.normal(size=120)]
    (tmp_path / "t.csv").write_text("\n".join(["a,y,c", *rows]) + "\n")
    recipe = Recipe(network={"hidden": (4,)}, train={"epochs": 2})
    fit_table(TableJob(tmp_path / "t.csv", "y", recipe), tmp_path / "m.slab")
    before = [one.what for one in examine(tmp_path / "t.csv", "y")]
    assert before == [
        "Task: regression, guessed from y: 119 different numbers (--task says otherwise).",
        "One value only: c.",
    ]
    after = [one.what for one in examine(tmp_path / "t.csv", "y", tmp_path / "m.slab")]
    assert after[:2] == before

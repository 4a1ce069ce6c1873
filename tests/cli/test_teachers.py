"""`slabnet fit --teacher`: what is learned, what is said of it, and which teachers are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slabnet.cli.app import app
from slabnet.cli.tables import TableJob, fit_table
from slabnet.cli.teachers import Teacher
from slabnet.config.settings import Recipe, TrainConfig
from slabnet.core.errors import ArgumentError
from slabnet.estimators import load_estimator
from slabnet.store import read_card


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of two classes and one of numbers, each with a fitted model."""
    folder = tmp_path_factory.mktemp("teachers")
    g = np.random.default_rng(0)
    x = g.normal(size=(80, 3))
    for name, target in (("c", np.where(x[:, 0] > 0, "yes", "no")), ("r", 5 + 3 * x[:, 1] + 0.1 * g.normal(size=80))):
        rows = [f"{a:.4f},{b:.4f},{c:.4f},{t}" for (a, b, c), t in zip(x, target, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(["a,b,c,y", *rows]) + "\n")
        call("fit", folder / f"{name}.csv", "--target", "y", "--out", folder / f"{name}.slab", "--epochs", "4")
    return folder


def call(*words: Any) -> None:
    app([*map(str, words)], standalone_mode=False)


@pytest.mark.parametrize("name", ["c", "r"])
def test_a_table_is_learned_from_a_model(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / f"{name}-taught.slab"
    words = ["fit", folder / f"{name}.csv", "--target", "y", "--out", out, "--epochs", "4"]
    call(*words, "--teacher", folder / f"{name}.slab", "--teacher-share", "0.8", "--json")
    numbers = json.loads(capsys.readouterr().out)
    assert any("no bound on the evidence" in line and "share 0.8" in line for line in numbers["notes"])
    job = read_card(out).job
    assert job is not None
    assert job["teacher"]["file"] == f"{name}.slab"


def test_a_regression_teacher_speaks_in_units_of_the_target(folder: Path) -> None:
    """Taught alone (share 1) by a teacher that says 10 more than another, a network says as much more."""
    said = []
    for more in (0.0, 10.0):

        class Other(Teacher):
            def of_table(self, *words: Any) -> Any:
                return super().of_table(*words) + more  # noqa: B023

        recipe = Recipe(train=TrainConfig(epochs=200, kl_weight=1.0))
        job = TableJob(folder / "r.csv", "y", recipe, teacher=Other(folder / "r.slab", 1.0))
        fit_table(job, folder / "other.slab")
        said.append(float(load_estimator(folder / "other.slab").on_inputs().predict(np.zeros((1, 3)))[0]))
    assert 5 < said[1] - said[0] < 12  # without the scale of the target it would be 30


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--teacher", "none.slab"], "--teacher must be a .slab file, got none.slab"),
        (["--teacher", "{folder}/r.slab"], "a model of the classes no, yes"),
        (["--teacher", "{folder}/c.slab", "--teacher-share", "0"], "--teacher-share must be"),
        (["--teacher", "{folder}/c.slab", "--seed", "7"], "the same --seed, so that it has not seen the held-out rows"),
        (["--teacher", "{folder}/c.slab", "--test-size", "0.4"], "the same --test-size"),
    ],
)
def test_teachers_that_do_not_fit_are_refused(folder: Path, words: list[str], said: str) -> None:
    out = folder / "refused.slab"
    with pytest.raises(ArgumentError, match=said):
        call(
            "fit",
            folder / "c.csv",
            *("--target", "y", "--out", out, "--epochs", "2"),
            *(word.format(folder=folder) for word in words),
        )
    assert not out.exists()


def test_a_data_set_by_name_is_learned_from_a_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fit", "digits", "--hidden", "8", "--epochs", "2"]
    call(*words, "--out", folder / "d.slab")
    capsys.readouterr()
    call(*words, "--out", folder / "d2.slab", "--teacher", folder / "d.slab")
    assert "no bound on the evidence" in capsys.readouterr().out
    with pytest.raises(ArgumentError, match="a model of 64 inputs and 10 classes"):
        call(*words, "--out", folder / "d3.slab", "--teacher", folder / "c.slab")

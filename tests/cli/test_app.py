"""The command line as a user meets it: real processes, exit codes, one line for an error."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import slabnet as sn
from slabnet.config.methods import METHODS
from slabnet.core.errors import ArgumentError
from slabnet.experiments.commands import parse_widths


def slabnet(*words: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | environment
    return subprocess.run(
        [sys.executable, "-m", "slabnet", *words], capture_output=True, text=True, cwd=cwd, env=env, check=False
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fit"], "slabnet fit: Missing argument"),
        (["fit", "iris", "--out", "m.slab"], "file or one of digits, mnist, fashion-mnist, got 'iris'"),
        (["fit", "digits"], "slabnet fit: Missing option '--out'"),
        (["fit", "digits", "--out", "no/m.slab"], "fit: the output must be in a folder that exists, got no/m.slab"),
        (["fit", "digits", "--out", "."], "fit: the output must be the name of a file"),
        (["fit", "digits", "--out", "m.slab", "--epochs", "0"], "TrainConfig: epochs must be greater than"),
        (["fit", "digits", "--out", "m.slab", "--epochs", "many"], "slabnet fit: Invalid value for '--epochs'"),
        (["fit", "digits", "--out", "m.slab", "--method", "x"], "method must be one of lbbnn, gaussian, mixture"),
        (["fit", "digits", "--out", "m.slab", "--hidden", "9,x"], "fit: --hidden must be whole numbers"),
        (
            ["fit", "digits", "--out", "m.slab", "--hidden", "0"],
            "hidden must be widths of at least 1 and at most 10000000, got (0,)",
        ),
        (["fit", "digits", "--out", "m.slab", "--recipe", "x"], "recipe: name must be one of default, paper"),
        (["fit", "digits", "--out", "m.slab", "--config", "no.toml"], "config: the file must be readable"),
        (["fit", "digits", "--out", "m.slab", "--config", "bad.toml"], "TrainConfig: epochz is not a setting"),
        (["fit", "digits", "--out", "m.slab", "--epoch", "3"], "slabnet fit: No such option: --epoch"),
        (["predict", "none.slab", "digits"], "predict: MODEL must be a file that exists, got none.slab"),
        (["predict", "bad.toml", "digits", "--draws", "0"], "predict: --draws must be a whole number"),
        (["demo", "--out", "bad.toml"], "demo: --out must be a folder, got bad.toml"),
        (["demmo"], "slabnet: No such command 'demmo'"),
        (["--nope"], "slabnet: No such option: --nope"),
    ],
)
def test_bad_calls_are_one_line_and_exit_2_without_torch(words: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[train]\nepochz = 1\n")
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")  # stands before the real one
    before = sorted(tmp_path.iterdir())
    run = slabnet(*words, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert run.returncode == 2, run.stderr
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    assert said in run.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "words", [[], ["--help"], ["fit", "--help"], ["predict", "-h"], ["demo", "--help"], ["methods"]]
)
def test_help_answers_without_torch(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    run = slabnet(*words, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert run.returncode == 0, run.stderr
    if words and words[0] in ("fit", "predict", "demo"):
        assert "Example: slabnet" in run.stdout
    elif words != ["methods"]:
        assert "demo" in run.stdout


def test_methods_and_version_for_machines() -> None:
    listed = json.loads(slabnet("methods", "--json").stdout)
    assert [method["name"] for method in listed] == list(METHODS)
    assert slabnet("--version").stdout.startswith("slabnet ")


def test_fit_then_predict(tmp_path: Path) -> None:
    model, table = tmp_path / "m.slab", tmp_path / "p.csv"
    words = ["fit", "digits", "--out", str(model), "--epochs", "4", "--hidden", "10", "--seed", "3"]
    run = slabnet(*words, "--json")
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert len(found["history"]["epochs"]) == 4
    assert "KL" in run.stderr
    first = model.read_bytes()
    other = tmp_path / "other name.slab"
    assert slabnet(*[str(other) if w == str(model) else w for w in words]).returncode == 0
    assert other.read_bytes() == first  # the same fit gives the same bytes

    run = slabnet("predict", str(model), "digits", "--draws", "5", "--out", str(table), "--json")
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == said["rows"] == 360
    assert sum(float(rows[0][str(c)]) for c in range(10)) == pytest.approx(1, abs=1e-4)
    assert sum(int(row["decided"]) for row in rows) == said["classified_at_95"]
    plain = slabnet("predict", str(model), "digits")
    assert "accuracy" in plain.stdout


@pytest.mark.parametrize("method", ["gaussian", "ensemble"])
def test_other_methods_fit_too(method: str, tmp_path: Path) -> None:
    words = ["fit", "digits", "--out", str(tmp_path / "m.slab"), "--epochs", "2", "--hidden", "8", "--method", method]
    run = slabnet(*words)
    assert run.returncode == 0, run.stderr
    assert method in run.stdout
    assert "Next:    slabnet predict" in run.stdout


def test_work_that_fails_exits_1_in_one_line(tmp_path: Path) -> None:
    damaged = tmp_path / "m.slab"
    damaged.write_bytes(b"nothing of the kind")
    for words, code in (
        (["predict", str(damaged), "digits"], 1),
        (["fit", "mnist", "--out", str(tmp_path / "x.slab")], 1),  # data that are neither here nor to be had
    ):
        run = slabnet(*words, SLABNET_DATA=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
        assert run.returncode == code
        assert run.stderr.count("\n") == 1
        assert "Traceback" not in run.stderr
    assert sorted(tmp_path.iterdir()) == [damaged]


def test_a_model_of_another_shape_is_named(tmp_path: Path) -> None:
    import slabnet as sn

    sn.save(sn.mlp((5, 2)), tmp_path / "m.slab")
    run = slabnet("predict", str(tmp_path / "m.slab"), "digits")
    assert run.returncode == 2
    assert "predict: DATA must be what" in run.stderr


def test_widths() -> None:
    assert parse_widths("fit", "400, 600") == (400, 600)
    assert parse_widths("fit", None) is None
    with pytest.raises(ArgumentError, match="--hidden must be"):
        parse_widths("fit", "-3")


def test_a_data_set_by_name_is_trained_as_fit_trains_it(tmp_path: Path) -> None:
    """One default: `slabnet fit digits` and `sn.fit(net, data)` end with the same weights."""
    shorter = ["--epochs", "2", "--hidden", "6"]
    command = [sys.executable, "-m", "slabnet", "fit", "digits", "--out", str(tmp_path / "m.slab"), *shorter]
    subprocess.run(command, check=True, capture_output=True)
    net = sn.mlp((64, 6, 10))
    sn.fit(net, sn.data.load("digits").train, sn.TrainConfig(epochs=2), progress="off")
    fitted = sn.load(tmp_path / "m.slab")
    for (name, ours), theirs in zip(net.state_dict().items(), fitted.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name

"""Small things that a user or an attacker may do: each is an ordinary line, and nothing is lost."""

from __future__ import annotations

import csv
import io
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import slabnet as sn
from slabnet.cli.table_predictions import as_csv, predict_table
from slabnet.cli.tables import TableJob, fit_table, table_finished
from slabnet.cli.workflow import is_finished
from slabnet.config.settings import NetworkConfig, Recipe, TrainConfig
from slabnet.core.containers import read_container, write_container
from slabnet.core.files import check_writable, safe_text, write_atomically
from slabnet.training.checkpoints import FORMAT, Keeper, checkpoints_in

SMALL = Recipe(network=NetworkConfig(hidden=()), train=TrainConfig(epochs=1))


@pytest.fixture
def selection(tmp_path: Path) -> Path:
    sn.save_selection(sn.median_model(sn.mlp((3, 4, 2)), infeasible="path"), tmp_path / "s.slab")
    return tmp_path / "s.slab"


def table(path: Path, rows: list[list[Any]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["a", "y"], *rows])
    return path


def test_a_selection_in_the_place_of_a_model(selection: Path, tmp_path: Path) -> None:
    data = table(tmp_path / "t.csv", [[i, i % 7] for i in range(30)])
    calls = (
        lambda: predict_table(selection, data, None),
        lambda: table_finished(selection, TableJob(data, "y", SMALL)),
        lambda: is_finished(selection, "digits", SMALL),
    )
    for call in calls:
        with pytest.raises(sn.FileError, match="must be a model, got a selection"):
            call()


def test_parquet_without_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({}), tmp_path / "e.parquet")  # type: ignore[no-untyped-call]
    with pytest.raises(sn.FileError, match="must have columns"):
        fit_table(TableJob(tmp_path / "e.parquet", "y", SMALL), tmp_path / "m.slab")


def test_a_target_whose_squares_are_no_numbers_is_refused_before_training(tmp_path: Path) -> None:
    data = table(tmp_path / "t.csv", [[i, [1e99, 2.0, 3.0][i % 3]] for i in range(60)])
    with pytest.raises(sn.ArgumentError, match=r"column y must be numbers up to 1e\+60"):
        fit_table(TableJob(data, "y", SMALL, "regression"), tmp_path / "m.slab")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv"]


def test_a_link_is_followed_and_the_mode_of_a_file_stays(tmp_path: Path) -> None:
    real = tmp_path / "real.slab"
    real.write_bytes(b"before")
    real.chmod(0o640)
    link = tmp_path / "link.slab"
    link.symlink_to(real)
    write_atomically(check_writable("test", link), b"after")
    assert link.is_symlink()
    assert real.read_bytes() == b"after"
    assert real.stat().st_mode & 0o777 == 0o640
    (tmp_path / "nowhere.slab").symlink_to(tmp_path / "no" / "m.slab")
    with pytest.raises(sn.ArgumentError, match="in a folder that exists"):
        check_writable("test", tmp_path / "nowhere.slab")


@pytest.mark.parametrize("text", ["a;=1+1", "a|b", 'say "x"', "a,b"])
def test_whatever_separates_cells_somewhere_is_quoted(text: str) -> None:
    line = as_csv([[1, text, 0.5]])
    assert next(csv.reader(io.StringIO(line))) == ["1", safe_text(text), "0.5"]
    assert line.startswith('1,"')
    for separator in ";\t|":
        assert len(next(csv.reader(io.StringIO(line.replace(",", separator)), delimiter=separator))) >= 1
        assert separator not in line.replace(f'"{safe_text(text)}"', "")


def test_half_a_character_is_a_space() -> None:
    assert as_csv([["x\ud800y"]]).encode() == b"x y\n"


def test_a_level_that_comes_twice_is_refused(tmp_path: Path) -> None:
    data = table(tmp_path / "t.csv", [["pqr"[i % 3], i % 7] for i in range(60)])
    fit_table(TableJob(data, "y", SMALL), tmp_path / "m.slab")
    header, tensors = read_container(tmp_path / "m.slab", "test", FORMAT)
    column = header["about"]["table"]["columns"][0]
    column["levels"] = [column["levels"][0]] * len(column["levels"])
    write_container(tmp_path / "m.slab", header, tensors)
    with pytest.raises(sn.FileError, match="comes twice"):
        predict_table(tmp_path / "m.slab", data, None)


@pytest.mark.parametrize("sign", ["\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_a_wide_sign_is_a_formula_too(sign: str) -> None:
    assert safe_text(f"{sign}1+1") == f"'{sign}1+1"


def test_going_on_with_other_passes_or_threads_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    data, config = (x, (x[:, 0] > 0).long()), sn.TrainConfig(epochs=2, batch_size=20)
    sn.fit(sn.mlp((3, 2)), data, config, checkpoint=tmp_path)
    path = checkpoints_in(tmp_path)[-1]
    header, tensors = read_container(path, "test", FORMAT)
    assert set(header["made_by"]) == {"threads", "passes"}
    with caplog.at_level(logging.WARNING, logger="slabnet"):
        sn.fit(sn.mlp((3, 2)), data, config, checkpoint=tmp_path, resume=True)
        assert caplog.text == ""
        write_container(path, header | {"made_by": {"threads": 64, "passes": "none"}}, tensors)
        sn.fit(sn.mlp((3, 2)), data, config, checkpoint=tmp_path, resume=True)
    assert "was written with 64 threads" in caplog.text
    assert "was written with none passes" in caplog.text


def test_a_checkpoint_of_an_earlier_version_says_nothing_of_it(tmp_path: Path) -> None:
    from slabnet.training.checkpoints import Checkpoints

    keeper = Keeper(Checkpoints(tmp_path), {}, {"threads": 1})
    keeper._compare_makers(None, tmp_path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_right_after_the_first(number: signal.Signals, code: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "slabnet", "fit", "digits", "--hidden", "30", "--epochs", "2000"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "m.slab")], stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    until = time.monotonic() + 120
    while not checkpoints_in(tmp_path / "m.slab.checkpoints") and time.monotonic() < until:
        time.sleep(0.02)
    for _ in range(20):
        if process.poll() is None:
            process.send_signal(number)
            time.sleep(0.02)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert "--resume" in said

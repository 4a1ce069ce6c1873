"""A fit of several runs: each is shown from its first second, kept while it goes on, and not made twice."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import slabnet as sn
from slabnet.cli.tables import TableJob, fit_table
from slabnet.config.settings import NetworkConfig, Recipe, TrainConfig
from slabnet.config.tables import MOST_STEPS, defaults_for
from slabnet.core.files import checkpoints_of
from slabnet.training import progress
from slabnet.training.checkpoints import Keeper, checkpoints_in, holds_any

EPOCHS = 6


class Stop(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def job(tmp_path: Path) -> TableJob:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(150, 2))
    with (tmp_path / "t.csv").open("w", newline="") as file:
        rows = np.column_stack([x, x[:, 0] ** 2 + 0.1 * draw.normal(size=150)])
        csv.writer(file).writerows([["a", "b", "y"], *rows.tolist()])
    train = TrainConfig(epochs=EPOCHS, batch_size=40, kl_weight=0.5)
    return TableJob(tmp_path / "t.csv", "y", Recipe(network=NetworkConfig(hidden=(5,)), train=train), "regression")


def stopped_at(write: int, job: TableJob, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that ends right after its checkpoint number `write`, counted over all its parts."""
    count, keep = [0], Keeper.write

    def stop(self: Keeper, *given: Any) -> Path:
        path = keep(self, *given)
        count[0] += 1
        if count[0] == write:
            raise Stop
        return path

    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "due", lambda self, steps, epoch_ended: epoch_ended)
        patch.setattr(Keeper, "write", stop)
        with pytest.raises(Stop):
            fit_table(job, out)


@pytest.mark.parametrize("write", [2, EPOCHS + 1, EPOCHS + 4, 2 * EPOCHS])
def test_a_fit_stopped_anywhere_goes_on_without_what_is_done(
    write: int, job: TableJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, out = tmp_path / "whole.slab", tmp_path / "m.slab"
    fit_table(job, whole)
    stopped_at(write, job, out, monkeypatch)
    assert holds_any(checkpoints_of(out))
    finished = [path.parent.name for path in checkpoints_of(out).glob("trial-*/*-end.slab")]
    capsys.readouterr()
    fit_table(job, out, resume=True)
    said = capsys.readouterr().err
    assert out.read_bytes() == whole.read_bytes()
    assert not checkpoints_of(out).exists()
    if finished:  # nothing of it is computed again
        assert "trial 1 of 1: epoch" not in said
    assert "fit: epoch" in said


def test_every_part_says_how_far_it_is(job: TableJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit_table(job, tmp_path / "m.slab")
    lines = capsys.readouterr().err.splitlines()
    for part in ("trial 1 of 1", "fit"):
        numbers = [int(m[1]) for line in lines if (m := re.match(rf"{part}: epoch (\d+)/{EPOCHS}\b", line))]
        assert numbers[-1] == EPOCHS
    assert "left in all" in next(line for line in lines if line.startswith("trial 1 of 1"))


def test_a_long_epoch_gives_an_estimate_before_it_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "FIRST", 0.0)
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    sn.fit(sn.mlp((3, 2)), (x, (x[:, 0] > 0).long()), sn.TrainConfig(epochs=2, batch_size=10), progress="lines")
    first, *rest = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"fit: epoch 0/2(  about .* left)?", first)
    assert [line.split("  ")[0] for line in rest] == ["fit: epoch 1/2", "fit: epoch 2/2"]


def test_a_stop_in_the_trial_is_kept(job: TableJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "m.slab"
    stopped_at(3, job, out, monkeypatch)
    assert checkpoints_in(checkpoints_of(out)) == []
    assert checkpoints_in(checkpoints_of(out) / "trial-1")


@pytest.mark.parametrize("n", [130_000, 1_000_000, 50_000_000])
def test_many_rows_mean_fewer_passes(n: int) -> None:
    rule = defaults_for(n, 5)
    steps = rule.epochs * -(-n // rule.batch_size)
    assert steps <= MOST_STEPS + n / rule.batch_size + 1
    assert rule.epochs < 100

"""The default network of `slabnet fit digits`, stopped after every epoch in turn: each time the same model file.

Units are removed from the computation several times on the way, which networks of a few weights never come to.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from slabnet.cli.workflow import fit_named
from slabnet.config.settings import Recipe
from slabnet.core.containers import read_container
from slabnet.core.files import checkpoints_of
from slabnet.training.checkpoints import FORMAT, Keeper

EPOCHS = 60


def recipe() -> Recipe:
    usual = Recipe.named("default")
    return usual.model_copy(
        update={"train": usual.train.model_copy(update={"epochs": EPOCHS, "seed": 3, "schedule": "cosine"})}
    )


def whole_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, dict[int, Path]]:
    """The model file of a run that was not stopped, and the checkpoint that each of its epochs ended with."""
    after: dict[int, Path] = {}
    write = Keeper.write

    def kept(self: Keeper, steps: int, state: dict[str, Any], tensors: dict[str, Any]) -> Path:
        path = write(self, steps, state, tensors)
        if not state["finished"]:
            after[len(state["epochs"])] = Path(shutil.copy(path, folder / path.name))
        return path

    out = folder / "whole.slab"
    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "due", lambda self, steps, epoch_ended: epoch_ended)
        patch.setattr(Keeper, "write", kept)
        fit_named("digits", recipe(), out)
    return out.read_bytes(), after


@pytest.mark.slow
def test_a_run_stopped_after_any_epoch_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, after = whole_run(tmp_path, monkeypatch)
    assert sorted(after) == list(range(1, EPOCHS + 1))
    cuts = read_container(after[EPOCHS], "test", FORMAT)[0]["state"]["cuts"]
    assert len(cuts) > 3, "the test is about runs that remove units"
    others = []
    for epoch, checkpoint in after.items():
        out = tmp_path / f"stopped-{epoch}.slab"
        checkpoints_of(out).mkdir()
        shutil.copy(checkpoint, checkpoints_of(out) / checkpoint.name)
        fit_named("digits", recipe(), out, resume=True)
        others += [epoch] if out.read_bytes() != whole else []
    assert others == []


@pytest.mark.slow
def test_the_recorded_step_sizes_are_those_of_the_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, after = whole_run(tmp_path, monkeypatch)
    train, epochs = recipe().train, read_container(after[EPOCHS], "test", FORMAT)[0]["state"]["epochs"]
    assert train.schedule != "constant"
    rates = [epoch["omega_lr"] for epoch in epochs]
    waits = rates.count(0.0)  # omega is held first
    assert 0 < waits <= EPOCHS // 5
    assert rates[:waits] == [0.0] * waits
    assert rates[waits:] == sorted(rates, reverse=True)[: EPOCHS - waits]
    assert len(set(rates[waits:])) == EPOCHS - waits

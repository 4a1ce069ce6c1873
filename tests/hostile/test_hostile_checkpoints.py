"""Checkpoints of unknown origin: consistent, and not what a run can have written. One line; never memory of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import slabnet as sn
from slabnet.core.containers import read_container, write_container
from slabnet.training.checkpoints import FORMAT, Checkpoints, checkpoints_in

Tensors = dict[str, Tensor]
CONFIG = sn.TrainConfig(epochs=3, batch_size=50, cut_every=0)


def data() -> tuple[Tensor, Tensor]:
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long()


class Stop(Exception):
    """Stands for the end of the process."""


def stop(epoch: Any) -> None:
    raise Stop


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    with pytest.raises(Stop):
        sn.fit(sn.mlp((4, 3, 2)), data(), CONFIG, checkpoint=Checkpoints(folder, every_steps=3), on_epoch=stop)
    return checkpoints_in(folder)[-1]


def resume(kept: Path, folder: Path, change: Callable[[dict[str, Any], Tensors], Any]) -> sn.Network:
    """Go on from a checkpoint that says something else, and has the checksum of that."""
    header, tensors = read_container(kept, "test", FORMAT)
    change(header, tensors)
    write_container(folder / kept.name, header, tensors)
    net = sn.mlp((4, 3, 2))
    sn.fit(net, data(), CONFIG, checkpoint=folder, resume=True)
    return net


def test_the_same_file_goes_on(kept: Path, tmp_path: Path) -> None:
    resume(kept, tmp_path, lambda header, tensors: None)


@pytest.mark.parametrize("name", ["net:0", "adam:0:exp_avg", "adam:1:exp_avg_sq", "adam:0:step", "total", "pending:0"])
@pytest.mark.parametrize("change", ["one", "long", "double", "bool"])
def test_tensors_of_other_shapes_and_types(name: str, change: str, kept: Path, tmp_path: Path) -> None:
    def other(header: dict[str, Any], tensors: Tensors) -> None:
        value = tensors[name]
        made = {
            "one": torch.zeros(1, dtype=value.dtype),
            "long": torch.zeros(3000, dtype=value.dtype),
            "double": value.float() if value.dtype == torch.float64 else value[..., None].double(),
            "bool": value > 0,
        }
        tensors[name] = made[change]

    with pytest.raises(sn.FileError, match="does not fit"):
        resume(kept, tmp_path, other)


@pytest.mark.parametrize("name", ["net:0", "adam:0:exp_avg", "adam:0:step", "alpha:0:0"])
def test_numbers_that_are_none(name: str, kept: Path, tmp_path: Path) -> None:
    with pytest.raises(sn.FileError, match="does not fit"):
        resume(kept, tmp_path, lambda _, tensors: tensors[name].fill_(float("nan")))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rows", "x"),
        ("rows", -1),
        ("steps", 2.5),
        ("finished", "yes"),
        ("finished", 1),
        ("epochs", {}),
        ("epochs", [{}]),
        ("epochs", [{"epoch": 1}] * 9),
        ("part", {"batches": 10**9, "rows": 10**9}),
        ("part", {"batches": 3, "rows": 0}),
        ("part", []),
        ("rates", {"weights": "x", "omega": 0.1}),
        ("rates", {"weights": -1.0, "omega": 0.1}),
        ("rates", {}),
        ("best_epoch", "one"),
        ("kl_outside", None),
        ("cuts", [1]),
    ],
)
def test_states_that_no_run_was_in(key: str, value: Any, kept: Path, tmp_path: Path) -> None:
    with pytest.raises(sn.FileError, match="does not fit"):
        resume(kept, tmp_path, lambda header, _: header["state"].update({key: value}))


@pytest.mark.parametrize("value", [[], None, "x", 5])
def test_a_run_that_is_none(value: Any, kept: Path, tmp_path: Path) -> None:
    with pytest.raises(sn.SlabnetError):
        resume(kept, tmp_path, lambda header, _: header.update(run=value))


def test_a_checkpoint_that_does_not_fit_changes_nothing(kept: Path, tmp_path: Path) -> None:
    header, tensors = read_container(kept, "test", FORMAT)
    write_container(tmp_path / kept.name, header, tensors | {"total": torch.zeros(1)})
    net = sn.mlp((4, 3, 2))
    before = [value.clone() for value in net.parameters()]
    with pytest.raises(sn.FileError):
        sn.fit(net, data(), CONFIG, checkpoint=tmp_path, resume=True)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))

"""Every epoch arrives at the tracker, with the numbers of the history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import slabnet as sn
from slabnet.training.trackers import FIELDS

X = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
DATA = (X, (X[:, 0] > 0).long())


def test_mlflow_gets_every_number_of_every_epoch() -> None:
    logged: list[tuple[int, dict[str, float]]] = []

    class Run:
        def log_metrics(self, metrics: dict[str, float], step: int) -> Any:
            logged.append((step, metrics))

    train = sn.TrainConfig(epochs=3, batch_size=10)
    history = sn.fit(sn.mlp((2, 2)), DATA, train, progress="off", on_epoch=sn.to_mlflow(Run()))
    assert [step for step, _ in logged] == [epoch.epoch for epoch in history]
    assert [metrics for _, metrics in logged] == [{name: getattr(e, name) for name in FIELDS} for e in history]


def test_tensorboard_can_read_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        train = sn.TrainConfig(epochs=3, batch_size=10)
        history = sn.fit(sn.mlp((2, 2)), DATA, train, progress="off", on_epoch=sn.to_tensorboard(writer))
    read = EventAccumulator(str(tmp_path)).Reload()
    assert [e.value for e in read.Scalars("slabnet/kl")] == pytest.approx(history.column("kl"))

"""torch's datasets and loaders go into `fit` and `predict` as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import slabnet as sn

X = torch.randn(90, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, :1] + 0.1 * torch.randn(90, 1, generator=torch.Generator().manual_seed(1))).squeeze(1)
CONFIG = sn.TrainConfig(epochs=6, batch_size=30, seed=2)


def weights(train: object, **options: object) -> tuple[torch.Tensor, sn.History]:
    net = sn.mlp((3, 4, 1), likelihood="gaussian", seed=0)
    history = sn.fit(net, train, CONFIG, progress="off", **options)  # type: ignore[arg-type]
    return net.body[1].weight.mu.detach(), history


def test_a_dataset_is_the_same_as_its_arrays(tmp_path: Path) -> None:
    one, history = weights((X, Y))
    two, other = weights(TensorDataset(X, Y), checkpoint=tmp_path / "run")
    assert other.n == history.n == 90
    torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-7)  # the same order of rows, the same noise
    again, _ = weights(TensorDataset(X, Y), checkpoint=tmp_path / "run", resume=True)
    assert torch.equal(two, again)


def test_a_loader_knows_its_rows() -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=40)
    assert weights(loader)[1].n == 90
    assert weights(DataLoader(TensorDataset(X, Y), batch_size=40, drop_last=True))[1].n == 80
    net = sn.mlp((3, 4, 1), likelihood="gaussian")
    wanted = sn.predict(net, X, 5)
    for x in (loader, TensorDataset(X, Y), DataLoader(X, batch_size=7)):  # type: ignore[arg-type]
        torch.testing.assert_close(sn.predict(net, x, 5).mean, wanted.mean)


def test_a_dataset_that_is_none() -> None:
    with pytest.raises(sn.ArgumentError, match="train must be a dataset of rows \\(x, y\\), got tuple"):
        weights(TensorDataset(X))
    with pytest.raises(sn.ArgumentError, match="batch_size must be at most the number of rows, 20, got 30"):
        weights(TensorDataset(X[:20], Y[:20]))

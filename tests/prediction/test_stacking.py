"""Weights of members: against a general optimiser, and through the functions a user calls."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize

import slabnet as sn
from slabnet.core.errors import ArgumentError


@pytest.mark.parametrize("seed", range(4))
def test_weights_against_a_general_optimiser(seed: int) -> None:
    logs = np.random.default_rng(seed).normal(0, [[0.5], [1.0], [2.0]], size=(3, 40))

    def loss(free: np.ndarray) -> float:
        weights = np.exp(free - np.logaddexp.reduce(free))
        return -float(np.log(weights @ np.exp(logs)).mean())

    best = optimize.minimize(loss, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12})
    weights = sn.stacking_weights(torch.tensor(logs))
    assert float(weights.sum()) == pytest.approx(1)
    assert -float(np.log(weights.numpy() @ np.exp(logs)).mean()) == pytest.approx(best.fun, abs=1e-6)


def test_a_member_that_knows_nothing_loses_its_weight() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(300, 2, generator=generator)
    y = (x[:, 0] > 0).long()
    good, bad = (sn.mlp((2, 2), seed=seed) for seed in (0, 1))
    sn.fit(good, (x[:200], y[:200]), sn.TrainConfig(epochs=60, batch_size=100, lr=0.05), progress="off")
    net = sn.Mixture([bad, good])
    weights = sn.stack(net, (x[200:], y[200:]))
    assert weights[1] > 0.95
    assert torch.allclose(net.weights.double(), weights, atol=1e-6)
    assert sn.predict(net, x[:3], 20).draws == 20


def test_what_is_no_table_of_densities_is_refused() -> None:
    for table in (torch.zeros(3), torch.zeros(0, 2), torch.full((2, 2), float("nan"))):
        with pytest.raises(ArgumentError, match="members, rows"):
            sn.stacking_weights(table)
    with pytest.raises(ArgumentError, match="a Mixture"):
        sn.stack(sn.mlp((2, 2)), (torch.zeros(1, 2), [0]))  # type: ignore[arg-type]

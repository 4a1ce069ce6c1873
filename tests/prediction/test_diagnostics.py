from __future__ import annotations

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats
from benchmarks.exactness import best_factorised, designs
from scipy import stats

import slabnet as sn
from slabnet.prediction.diagnostics import pareto_shape, tail_shape


@pytest.mark.parametrize("k", [0.1, 0.5, 0.9, 1.5])
def test_tail_shape_against_arviz_and_known_tails(k: float) -> None:
    rng = np.random.default_rng(0)
    ratios = rng.standard_exponential(4000) * k  # exp of it is Pareto with shape k
    _, theirs = array_stats.psislw(-ratios)
    assert tail_shape(torch.tensor(ratios)) == pytest.approx(float(theirs), abs=1e-9)
    excess = torch.tensor(stats.genpareto(k).rvs(20_000, random_state=1))
    assert pareto_shape(excess) == pytest.approx(k, abs=0.05)


def test_k_hat_is_small_where_q_is_exact_and_large_where_it_is_not() -> None:
    found = []
    for correlation in (0.0, 0.97):
        x, y = designs(4, n=40, correlation=correlation, seed=0)
        layer, _ = best_factorised(x, y, phi=0.5, psi=0.5, sigma_beta=1.5)
        sn.fit(
            layer,
            (x, y),
            sn.TrainConfig(epochs=1, batch_size=40, lr=1e-12, omega_lr=1e-12),
            likelihood=sn.Gaussian(phi=0.5),
        )
        found.append(sn.pareto_k(layer, (x, y), draws=2000).k_hat)
    assert found[0] < 0.3
    assert found[1] > found[0] + 0.2

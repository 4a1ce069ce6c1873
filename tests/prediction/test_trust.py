from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats
from benchmarks.exactness import best_factorised, designs
from scipy import stats
from sklearn.metrics import cohen_kappa_score

import slabnet as sn
from slabnet.prediction.trust import pareto_shape, tail_shape
from slabnet.selection.rules import threshold_model


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


def test_stability_counts_and_corrects_for_chance() -> None:
    nets = [sn.mlp((6, 5, 3), seed=s) for s in range(3)]
    for seed, net in enumerate(nets):
        with torch.no_grad():
            net.body[1].weight.omega.normal_(0, 1, generator=torch.Generator().manual_seed(seed))
            net.body[3].weight.omega.normal_(0, 1, generator=torch.Generator().manual_seed(seed + 10))
    found = sn.stability(nets)
    flat = [torch.cat([m[0].flatten() for m in threshold_model(n).masks.values()]).numpy() for n in nets]
    wanted = np.mean([cohen_kappa_score(flat[a], flat[b]) for a, b in ((0, 1), (0, 2), (1, 2))])
    assert found.kappa_weights == pytest.approx(wanted)
    assert set(found.weights["body.1"].flatten().tolist()) <= {0.0, 1 / 3, 2 / 3, 1.0}
    same = sn.stability([nets[0], nets[0]])
    assert same.kappa_weights == 1.0
    assert same.kappa_inputs == 1.0
    with pytest.raises(sn.ArgumentError, match="at least two fitted networks, got 1"):
        sn.stability(nets[:1])
    with pytest.raises(sn.ArgumentError, match="networks of one architecture"):
        sn.stability([nets[0], sn.mlp((6, 4, 3))])


def test_coefficients_of_a_linear_model() -> None:
    net = sn.mlp((2, 1), likelihood="gaussian")
    with torch.no_grad():
        net.body[1].weight.mu.copy_(torch.tensor([[2.0, -1.0]]))
        net.body[1].weight.rho.fill_(math.log(math.expm1(0.5)))
        net.body[1].weight.omega.copy_(torch.tensor([[0.0, 50.0]]))
    rows = sn.coefficients(net, ["age", "dose"])
    assert [row.input for row in rows] == ["(intercept)", "age", "dose"]
    age, dose = rows[1:]
    assert (age.alpha, age.mean, age.mean_if_in) == pytest.approx((0.5, 1.0, 2.0))
    assert age.sd == pytest.approx((0.5 * (0.25 + 0.5 * 4.0)) ** 0.5)
    assert (dose.mean, dose.sd) == pytest.approx((-1.0, 0.5))
    with pytest.raises(sn.ArgumentError, match="a model of one layer, got one of 2 layers"):
        sn.coefficients(sn.mlp((2, 3, 1), likelihood="gaussian"))
    with pytest.raises(sn.ArgumentError, match="one for each of the 2 inputs"):
        sn.coefficients(net, ["age"])

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats
from benchmarks.exactness import best_factorised, designs
from scipy import stats

import slabnet as sn
from slabnet.model.attach import attach_likelihood
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


def conjugate(phi_log: float, phi_sd: float) -> tuple[sn.Network, tuple[torch.Tensor, torch.Tensor]]:
    """A network whose only weights are out, and noise of variance 0.25 with a posterior as given."""
    y = 0.5 * torch.randn(200, 1, generator=torch.Generator().manual_seed(0))
    net = sn.mlp((1, 1), prior=sn.Prior(exclude=(0,)), likelihood="gaussian")
    with torch.no_grad():
        for posterior in (net.body[1].weight, net.body[1].bias):
            posterior.omega.fill_(-30.0)
        net.likelihood.log_phi.fill_(phi_log)
        net.likelihood.rho_phi.fill_(math.log(math.expm1(phi_sd)))
    return net, (torch.zeros(200, 1), y)


def test_a_wrong_dispersion_is_seen_and_a_right_one_is_good() -> None:
    """Of 200 residuals the log of the variance is known to a standard deviation of 0.1."""
    _, (_, y) = conjugate(0.0, 0.1)
    log = math.log(float(y.square().mean()))
    right, wrong, narrow = (
        sn.pareto_k(*conjugate(*given), draws=2000).k_hat for given in ((log, 0.1), (log + 0.4, 0.1), (log, 0.03))
    )
    assert right < 0.5
    assert wrong > 0.7
    assert narrow > 0.7


def test_the_ratio_with_the_dispersion_averages_to_the_evidence() -> None:
    """E_q p(y, phi) / q(phi) is the integral of p(y, phi), whatever q is."""
    net, (_, y) = conjugate(math.log(0.3), 0.2)
    likelihood = net.likelihood.double()
    output = torch.zeros(200, 1, dtype=torch.float64)
    ratios = []
    for seed in range(4000):
        certain, ratio = likelihood.at_draw(torch.Generator().manual_seed(seed))
        ratios.append(certain.total(output, y.double()).detach() + ratio)
    estimate = float(torch.logsumexp(torch.stack(ratios), 0)) - math.log(4000)
    grid = torch.linspace(-3, 1, 4001, dtype=torch.float64)
    logs = torch.distributions.Normal(0.0, 1.0).log_prob(y.double() * torch.exp(-grid / 2)).sum(0) - 100 * grid
    logs = logs + torch.distributions.Normal(0.0, 3.0).log_prob(grid)
    exact = float(torch.logsumexp(logs, 0)) + math.log(float(grid[1] - grid[0]))
    assert estimate == pytest.approx(exact, abs=0.05)


def test_rounding_is_no_tail_and_factors_that_are_not_in_the_ratio_are_refused() -> None:
    x, y = designs(1, n=40, correlation=0.0, seed=0)
    layer, _ = best_factorised(x, y, phi=0.5, psi=0.999999, sigma_beta=1.5)
    attach_likelihood(layer, sn.Gaussian(phi=0.5).double())
    with torch.no_grad():
        layer.weight.omega.fill_(1e4)  # type: ignore[union-attr]
    assert sn.pareto_k(layer, (x, y[:, None]), draws=200).k_hat == 0.0
    net = sn.mlp((2, 3, 1), method="horseshoe", likelihood="gaussian")
    with pytest.raises(sn.ArgumentError, match=r"pareto_k: net must be one that draws single weights only.*Horseshoe"):
        sn.pareto_k(net, (torch.zeros(4, 2), torch.zeros(4)))

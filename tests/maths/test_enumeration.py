"""Exact enumeration of linear models: the yardstick itself, and the bound against it."""

from __future__ import annotations

import math

import pytest
import torch
from benchmarks.exactness import best_factorised, bound, designs, linear_layer
from torch import Tensor

import slabnet as sn
from slabnet.maths.enumeration import enumerate_linear

PSI, SIGMA_BETA, PHI = 0.2, 1.5, 0.5


def test_enumeration_against_brute_force_integration() -> None:
    """p = 1: the evidence and the posterior by numerical integration over beta."""
    x = torch.tensor([[1.0], [-0.5], [2.0]]).double()
    y = torch.tensor([0.8, 0.1, 1.1]).double()
    found = enumerate_linear(x, y, phi=PHI, psi=PSI, sigma_beta=SIGMA_BETA)
    zero = torch.zeros(()).double()
    beta = torch.linspace(-15, 15, 200_001, dtype=torch.float64)
    log_likelihood = torch.distributions.Normal(x * beta, PHI**0.5).log_prob(y[:, None]).sum(0)
    slab = torch.exp(log_likelihood + torch.distributions.Normal(zero, SIGMA_BETA).log_prob(beta))
    inside = float(torch.trapezoid(slab, beta))
    outside = math.exp(float(torch.distributions.Normal(zero, PHI**0.5).log_prob(y).sum()))
    evidence = PSI * inside + (1 - PSI) * outside
    assert found.log_evidence == pytest.approx(math.log(evidence), abs=1e-9)
    assert float(found.alpha) == pytest.approx(PSI * inside / evidence, abs=1e-9)
    assert float(found.mu) == pytest.approx(float(torch.trapezoid(slab * beta, beta)) / inside, abs=1e-9)
    assert float(found.models.sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("p", [1, 4, 10])
def test_factorised_posterior_is_exact_on_an_orthogonal_design(p: int) -> None:
    x, y = designs(p, n=40, correlation=0.0, seed=p)
    exact = enumerate_linear(x, y, phi=PHI, psi=PSI, sigma_beta=SIGMA_BETA)
    layer, value = best_factorised(x, y, phi=PHI, psi=PSI, sigma_beta=SIGMA_BETA)
    torch.testing.assert_close(layer.weight.alpha.detach().flatten(), exact.alpha, atol=1e-5, rtol=0)
    torch.testing.assert_close(layer.weight.mu.detach().flatten(), exact.mu, atol=1e-5, rtol=0)
    torch.testing.assert_close(layer.weight.sigma.detach().flatten(), exact.sigma, atol=1e-5, rtol=0)
    assert value <= exact.log_evidence + 1e-9
    assert value == pytest.approx(exact.log_evidence, abs=1e-6)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, 0.99])
def test_the_bound_never_exceeds_the_evidence(correlation: float) -> None:
    x, y = designs(8, n=60, correlation=correlation, seed=3)
    exact = enumerate_linear(x, y, phi=PHI, psi=PSI, sigma_beta=SIGMA_BETA)
    _, best = best_factorised(x, y, phi=PHI, psi=PSI, sigma_beta=SIGMA_BETA)
    assert best <= exact.log_evidence + 1e-9
    for seed in range(20):  # and not only at its maximum
        layer = linear_layer(8, psi=PSI, sigma_beta=SIGMA_BETA)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            layer.weight.mu.normal_(0, 1, generator=generator)
            layer.weight.rho.uniform_(-4, 1, generator=generator)
            assert layer.weight.omega is not None
            layer.weight.omega.uniform_(-6, 6, generator=generator)
            assert float(bound(layer, x, y, PHI)) <= exact.log_evidence


@pytest.mark.parametrize("draw", [sn.local, sn.exact], ids=["local", "exact"])
def test_estimates_of_the_bound_average_to_its_closed_form(draw: sn.draws.Draw) -> None:  # type: ignore[name-defined]
    """`elbo` with Monte Carlo draws, against the bound in closed form."""
    x, y = designs(4, n=30, correlation=0.3, seed=1)
    layer = linear_layer(4, psi=PSI, sigma_beta=SIGMA_BETA)
    likelihood = sn.Gaussian(phi=PHI).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        values: Tensor = torch.stack(
            [sn.elbo(layer, likelihood, x, y[:, None], n=30, draw=draw, seed=generator).elbo for _ in range(3000)]
        )
        wanted = float(bound(layer, x, y, PHI))
    assert abs(float(values.mean()) - wanted) < 4 * float(values.std()) / 3000**0.5


def test_fit_finds_the_exact_posterior_of_an_orthogonal_design() -> None:
    """Algorithm 1 itself, stochastic as it is, lands near the exact answer."""
    x, y = designs(5, n=40, correlation=0.0, seed=5)
    exact = enumerate_linear(x, y, phi=PHI, psi=PSI, sigma_beta=SIGMA_BETA)
    layer = linear_layer(5, psi=PSI, sigma_beta=SIGMA_BETA)
    config = sn.TrainConfig(
        epochs=2000, batch_size=40, lr=0.02, omega_lr=0.02, ramp_epochs=0, samples=4, schedule="linear"
    )
    sn.fit(layer, (x, y), config, likelihood=sn.Gaussian(phi=PHI))
    torch.testing.assert_close(layer.weight.alpha.detach().flatten(), exact.alpha, atol=0.02, rtol=0)
    torch.testing.assert_close(layer.weight.mu.detach().flatten(), exact.mu, atol=0.03, rtol=0)


def test_too_wide_is_refused() -> None:
    with pytest.raises(sn.ArgumentError, match="at most 12 columns wide, got 13"):
        enumerate_linear(torch.zeros(3, 13), torch.zeros(3), phi=1.0, psi=0.5, sigma_beta=1.0)

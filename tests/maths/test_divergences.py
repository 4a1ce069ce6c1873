"""Every divergence against Monte Carlo, torch.distributions or numerical integration."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import integrate, stats
from torch import Tensor
from torch.distributions import Bernoulli, Beta, Normal, kl_divergence

from slabnet.maths.divergences import (
    kl_bernoulli,
    kl_beta,
    kl_lognormal,
    kl_lognormal_inverse_gamma,
    kl_normal,
    kl_spike_slab,
    log_softplus,
    softplus,
)


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_bernoulli_against_torch() -> None:
    omega, psi = torch.linspace(-8, 8, 41, dtype=torch.float64), 0.1353
    ours = kl_bernoulli(omega, math.log(psi), math.log1p(-psi))
    theirs = kl_divergence(Bernoulli(logits=omega), Bernoulli(probs=torch.full_like(omega, psi)))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_normal_against_torch() -> None:
    mu, sigma = f64(-2.0, 0.0, 0.5), f64(0.01, 1.0, 3.0)
    ours = kl_normal(mu, sigma.log(), f64(0.7).log())
    theirs = kl_divergence(Normal(mu, sigma), Normal(f64(0.0), f64(0.7)))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("alpha", "mu", "sigma"), [(0.3, 0.8, 0.2), (0.9, -1.5, 0.7), (0.02, 0.0, 1.0)])
def test_spike_slab_against_monte_carlo(alpha: float, mu: float, sigma: float, generator: torch.Generator) -> None:
    psi, s, draws = 0.1353, 1.3, 400_000
    gamma = (torch.rand(draws, generator=generator, dtype=torch.float64) < alpha).double()
    beta = mu + sigma * torch.randn(draws, generator=generator, dtype=torch.float64)
    log_q = gamma * (math.log(alpha) + Normal(mu, sigma).log_prob(beta)) + (1 - gamma) * math.log1p(-alpha)
    log_p = gamma * (math.log(psi) + Normal(0.0, s).log_prob(beta)) + (1 - gamma) * math.log1p(-psi)
    terms = log_q - log_p
    omega = torch.logit(f64(alpha))
    ours = kl_spike_slab(f64(mu), f64(sigma).log(), omega, math.log(psi), math.log1p(-psi), f64(s).log())
    assert abs(float(terms.mean() - ours)) < 4 * float(terms.std()) / draws**0.5


def test_spike_slab_is_zero_at_the_prior_and_positive_elsewhere() -> None:
    psi = 0.2
    args = (math.log(psi), math.log1p(-psi), f64(1.0).log())
    at_prior = kl_spike_slab(f64(0.0), f64(1.0).log(), torch.logit(f64(psi)), *args)
    assert abs(float(at_prior)) < 1e-12
    away = kl_spike_slab(f64(0.1), f64(0.9).log(), torch.logit(f64(0.3)), *args)
    assert float(away) > 0


def test_beta_against_torch() -> None:
    a, b, a0, b0 = f64(3.0, 200.0), f64(7.5, 40.0), f64(1.0, 2.0), f64(1.0, 5.0)
    torch.testing.assert_close(kl_beta(a, b, a0, b0), kl_divergence(Beta(a, b), Beta(a0, b0)))


def test_lognormals_against_integration() -> None:
    m, s = -0.7, 0.4
    q = stats.lognorm(s=s, scale=math.exp(m))
    priors = [
        (stats.lognorm(s=3.0, scale=math.exp(0.5)), kl_lognormal(f64(m), f64(s).log(), 0.5, 3.0)),
        (stats.invgamma(2.5, scale=0.8), kl_lognormal_inverse_gamma(f64(m), f64(s).log(), 2.5, 0.8)),
    ]
    for prior, ours in priors:
        wanted, _ = integrate.quad(lambda v, p=prior: q.pdf(v) * (q.logpdf(v) - p.logpdf(v)), 1e-6, 20, limit=400)
        assert float(ours) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("omega", [-1e4, -50.0, 0.0, 50.0, 1e4])
@pytest.mark.parametrize("rho", [-1e4, -200.0, math.log(math.expm1(1e-30)) if math.expm1(1e-30) else -69.08, 0.0, 80.0])
def test_extremes_are_finite_in_value_and_gradient(omega: float, rho: float, dtype: torch.dtype) -> None:
    leaves = [torch.tensor(v, dtype=dtype, requires_grad=True) for v in (0.3, rho, omega)]
    mu, r, w = leaves
    log_s = torch.zeros((), dtype=dtype)
    value = kl_spike_slab(mu, log_softplus(r), w, math.log(1e-9), math.log1p(-1e-9), log_s)
    value.backward()
    assert bool(torch.isfinite(value))
    assert all(bool(torch.isfinite(leaf.grad)) for leaf in leaves)  # type: ignore[arg-type]


def test_log_softplus_is_the_log_of_softplus() -> None:
    rho = torch.linspace(-60, 60, 2001, dtype=torch.float64)
    torch.testing.assert_close(log_softplus(rho), softplus(rho).log(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(softplus(rho), torch.logaddexp(rho, torch.zeros(1).double()), rtol=1e-12, atol=0)
    assert float(log_softplus(torch.tensor(-500.0))) == -500.0

"""Bounds of the evidence against enumeration of all models, through `fit` and `log_evidence`."""

from __future__ import annotations

import math

import pytest
import torch
from benchmarks.exactness import designs

import slabnet as sn
from slabnet.core.errors import ArgumentError
from slabnet.maths.enumeration import enumerate_linear
from slabnet.prediction.evidence import Evidence, jackknifed, weighted

PSI, SIGMA_BETA, PHI = 0.2, 1.5, 0.5
STEPS = sn.TrainConfig(epochs=600, batch_size=60, lr=0.05, omega_lr=0.2, schedule="cosine")


def fitted(x: torch.Tensor, y: torch.Tensor, members: int = 1) -> sn.Network:
    """A linear model whose intercept is known to be zero, so that enumeration has the same models."""
    prior = sn.Prior(psi=PSI, sigma_beta=SIGMA_BETA)
    net = sn.mlp((x.shape[1], 1), likelihood=sn.Gaussian(PHI), prior=prior, members=members).double()
    for layer in (part for part in net.modules() if isinstance(part, sn.Linear)):
        layer.bias = None
    sn.fit(net, (x, y), STEPS, progress="off")
    return net


def below(value: float | None, error: float | None, limit: float) -> bool:
    return value is not None and error is not None and value <= limit + 4 * error


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6, 0.9])
def test_bounds_stay_below_the_evidence_and_come_closer(correlation: float) -> None:
    x, y = designs(6, n=60, correlation=correlation, seed=5)
    exact = enumerate_linear(x, y, phi=PHI, psi=PSI, sigma_beta=SIGMA_BETA).log_evidence
    found = sn.log_evidence(fitted(x, y), (x, y[:, None]), draws=50, groups=20)
    assert below(found.elbo, found.elbo_error, exact)
    if correlation > 0.5 and found.weighted is None:  # a q of independent weights is too narrow there
        assert not found.k_hat <= 0.7
        return
    assert found.weighted is not None
    assert below(found.weighted, found.weighted_error, exact)
    assert found.weighted >= found.elbo
    assert found.corrected is not None
    assert found.corrected_error is not None
    assert abs(found.corrected - exact) <= abs(found.weighted - exact) + 4 * found.corrected_error


def test_a_mixture_is_counted_as_one_density() -> None:
    x, y = designs(6, n=60, correlation=0.9, seed=1)
    exact = enumerate_linear(x, y, phi=PHI, psi=PSI, sigma_beta=SIGMA_BETA).log_evidence
    net = fitted(x, y, members=3)
    assert isinstance(net, sn.Mixture)
    found = sn.log_evidence(net, (x, y[:, None]), draws=20, groups=20)
    each = [sn.log_evidence(member, (x, y[:, None]), draws=10, groups=20) for member in net.members]
    mean = sum(part.elbo for part in each) / 3
    error = 4 * math.hypot(found.elbo_error, *(part.elbo_error / 3 for part in each))
    assert mean - error <= found.elbo <= mean + math.log(3) + error
    assert below(found.elbo, found.elbo_error, exact)


def test_the_correction_takes_bias_away_and_leaves_less_with_more_draws() -> None:
    """Log-normal ratios, whose mean is known: log E r = 0."""
    sd = 0.8
    generator = torch.Generator().manual_seed(0)
    gaps = []
    for count in (2, 8, 32):
        logs = sd * torch.randn(40_000, count, generator=generator, dtype=torch.float64) - sd**2 / 2
        plain, corrected = weighted(logs), jackknifed(logs)
        error = float(corrected.std()) / 200
        assert float(plain.mean()) < 0
        assert abs(float(corrected.mean())) < abs(float(plain.mean())) / 2 + 4 * error
        gaps.append(abs(float(corrected.mean())))
    assert gaps[0] > gaps[1] > gaps[2] - 0.005


def test_ratios_without_a_mean_are_said_and_not_used() -> None:
    x, y = designs(6, n=60, correlation=0.0, seed=2)
    net = fitted(x, y)
    with torch.no_grad():  # a posterior far too narrow: its ratios have a heavy tail
        for layer in (part for part in net.modules() if isinstance(part, sn.Linear)):
            layer.weight.rho.sub_(3)
    found = sn.log_evidence(net, (x, y[:, None]), draws=2000, groups=5)
    assert found.k_hat > 0.7
    assert found.weighted is None
    assert "unusable" in str(found)
    assert "s.e." in str(Evidence(-1.0, 0.1, -0.9, 0.1, -0.8, 0.1, 0.2, 10, 10))


def test_what_has_other_draws_than_weights_is_refused() -> None:
    data = (torch.zeros(4, 3), [0, 1, 0, 1])
    with pytest.raises(ArgumentError, match="Horseshoe"):
        sn.log_evidence(sn.mlp((3, 2), method="horseshoe"), data)
    with pytest.raises(ArgumentError, match="share one prior"):
        sn.log_evidence(sn.mlp((3, 2), prior=sn.Prior(psi=sn.Beta()), members=2), data)
    with pytest.raises(ArgumentError, match="at least 100 draws"):
        sn.log_evidence(sn.mlp((3, 2)), data, draws=5, groups=5)

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Bernoulli, Categorical, LogNormal, Normal

import slabnet as sn
from slabnet.model.likelihoods import likelihood_from


def test_log_probabilities_against_torch(generator: torch.Generator) -> None:
    output = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    y = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    torch.testing.assert_close(sn.Categorical().log_prob(output, y), Categorical(logits=output).log_prob(y))
    yes = (torch.rand(7, 3, generator=generator) > 0.5).double()
    torch.testing.assert_close(sn.Bernoulli().log_prob(output, yes), Bernoulli(logits=output).log_prob(yes).sum(-1))
    target = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    fixed = sn.Gaussian(phi=0.4, outputs=3).double()
    torch.testing.assert_close(fixed.log_prob(output, target), Normal(output, 0.4**0.5).log_prob(target).sum(-1))


def test_learned_dispersion_against_monte_carlo(generator: torch.Generator) -> None:
    """E over q(phi) of log N(y; output, phi), and E phi, against draws of phi."""
    likelihood = sn.Gaussian().double()
    with torch.no_grad():
        likelihood.log_phi.fill_(-0.8)
        likelihood.rho_phi.fill_(math.log(math.expm1(0.5)))
    output, y = torch.tensor([[0.3]]).double(), torch.tensor([[1.1]]).double()
    torch.manual_seed(0)
    phi = LogNormal(-0.8, 0.5).sample((400_000,)).double()
    values = Normal(output, phi.sqrt()).log_prob(y).flatten()
    error = float(values.std()) / len(values) ** 0.5
    assert abs(float(values.mean()) - float(likelihood.log_prob(output, y).detach())) < 4 * error
    assert float(likelihood.expected_phi) == pytest.approx(float(phi.mean()), rel=0.01)
    draws = torch.stack([likelihood.draw_phi(generator) for _ in range(4000)]).log()
    assert float(draws.mean()) == pytest.approx(-0.8, abs=0.04)
    assert float(draws.std()) == pytest.approx(0.5, abs=0.03)


def test_only_a_learned_dispersion_has_a_divergence() -> None:
    assert float(sn.Gaussian().kl().detach()) > 0
    assert float(sn.Gaussian(prior=sn.InverseGamma()).kl().detach()) > 0
    assert float(sn.Gaussian(phi="point").kl().detach()) == 0
    assert float(sn.Gaussian(phi=2.0).kl().detach()) == 0
    assert [n for n, _ in sn.Gaussian(phi=2.0).named_parameters()] == []
    assert [n for n, _ in sn.Gaussian(phi="point").named_parameters()] == ["log_phi"]


def test_learned_dispersion_finds_the_conjugate_posterior() -> None:
    """With known means and an inverse-gamma prior the posterior of phi is inverse-gamma: moments must agree."""
    generator = torch.Generator().manual_seed(4)
    residual = 0.7 * torch.randn(200, 1, generator=generator, dtype=torch.float64)
    likelihood = sn.Gaussian(prior=sn.InverseGamma(shape=2.0, scale=1.0)).double()
    optimiser = torch.optim.Adam(likelihood.parameters(), lr=0.02)
    for _ in range(2000):
        optimiser.zero_grad()
        (likelihood.kl() - likelihood.log_prob(torch.zeros_like(residual), residual).sum()).backward()
        optimiser.step()
    shape, scale = 2.0 + 100, 1.0 + 0.5 * float(residual.square().sum())
    assert float(likelihood.expected_phi) == pytest.approx(scale / (shape - 1), rel=2e-3)
    q_sd = float(torch.nn.functional.softplus(likelihood.rho_phi).detach())
    assert q_sd == pytest.approx(math.sqrt(1 / shape), rel=1e-2)  # sd of log phi, to leading order


@pytest.mark.parametrize(
    ("likelihood", "y", "said"),
    [
        (sn.Categorical(), [0, 1, 3], "y must be class labels from 0 to 2, got 3 in row 2"),
        (sn.Categorical(), [0, -1, 1], "got -1 in row 1"),
        (sn.Categorical(), [0.0, 0.5, 1.0], 'whole numbers from 0 to 2 (for numbers: likelihood="gaussian"), got 0.5'),
        (sn.Categorical(), [0.0, float("nan"), 1.0], "y must be finite numbers, got NaN or infinity in row 1"),
        (sn.Categorical(), [[0, 1], [1, 0]], "one class label a row"),
        (sn.Bernoulli(), [[0, 1, 2]], "y must be 0 or 1, got 2"),
        (sn.Bernoulli(), [[0, 1]], "3 number"),
        (sn.Gaussian(outputs=3), [[0.0, float("inf"), 1.0]], "finite"),
        (sn.Gaussian(outputs=2), [[0.0, 1.0, 1.0]], "likelihood must be Gaussian"),
    ],
)
def test_bad_targets(likelihood: sn.Categorical, y: list[float], said: str) -> None:
    with pytest.raises(sn.ArgumentError, match="fit: ") as caught:
        likelihood.targets(torch.tensor(y), 3, torch.float32, "fit")
    assert said in str(caught.value)


def test_specifications_build_the_same_again() -> None:
    for made in (
        sn.Categorical(),
        sn.Bernoulli(),
        sn.Gaussian(0.3, outputs=2),
        sn.Gaussian(prior=sn.InverseGamma(shape=3)),
    ):
        again = likelihood_from(made.spec())
        assert again.spec() == made.spec()
        assert type(again) is type(made)
    with pytest.raises(sn.ArgumentError, match=r"one of categorical, bernoulli, gaussian, .*, got cauchy"):
        likelihood_from("cauchy")
    with pytest.raises(sn.ArgumentError, match="phi must be"):
        sn.Gaussian(phi="guess")  # type: ignore[arg-type]

"""Every slab: its density, its divergence by a second route, where weights rest under it, and what files keep of it."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats

import slabnet as sn
from slabnet.config.settings import Prior
from slabnet.config.slabs import SLABS, SlabSettings, slab_settings, slab_spec
from slabnet.kernels import next_seed
from slabnet.maths import quadrature
from slabnet.maths.quadrature import normal_average
from slabnet.model.posteriors import Gaussian, SpikeSlab, draw_exact
from slabnet.model.priors import LayerPrior
from slabnet.model.slabs import slab_of
from slabnet.model.slabs.base import Slab

SCALE = 0.7
Data = tuple[torch.Tensor, torch.Tensor]
every_slab = pytest.mark.parametrize("name", SLABS)


def log_density(name: str, beta: float) -> float:
    """The log density of each slab at its default settings and this scale, from scipy."""
    if name == "scale-mixture":
        parts = stats.norm.logpdf(beta, 0, 1), stats.norm.logpdf(beta, 0, math.exp(-3))
        return float(np.logaddexp(*parts)) + math.log(0.5)
    known = {"gaussian": stats.norm(0, SCALE), "laplace": stats.laplace(0, SCALE), "student": stats.t(4, 0, SCALE)}
    return float(known[name].logpdf(beta))


def made(name: str) -> tuple[Slab, torch.Tensor]:
    return slab_of(SLABS[name]()), torch.tensor(math.log(SCALE), dtype=torch.float64)


@every_slab
def test_the_density_is_that_of_scipy(name: str) -> None:
    slab, log_s = made(name)
    beta = torch.tensor([-30.0, -2.0, -0.1, 0.0, 0.02, 0.6, 5.0], dtype=torch.float64)
    wanted = [log_density(name, b) for b in beta.tolist()]
    torch.testing.assert_close(slab.log_density(beta, log_s), torch.tensor(wanted, dtype=torch.float64))


@every_slab
@pytest.mark.parametrize(("mu", "sigma"), [(0.0, 0.01), (0.3, 0.2), (-1.0, 0.7), (0.1, 3.0), (6.0, 0.5), (0.0, 1e-6)])
def test_the_divergence_is_what_integration_gives(name: str, mu: float, sigma: float) -> None:
    """As the slab gives it, and by the quadrature that a slab without a closed form goes by."""
    slab, log_s = made(name)
    q = stats.norm(mu, sigma)
    ends = sorted({mu - 10 * sigma, mu, mu + 10 * sigma, *(e for e in (-0.2, 0.0, 0.2) if abs(e - mu) < 10 * sigma)})
    wanted = sum(
        integrate.quad(lambda b: q.pdf(b) * (q.logpdf(b) - log_density(name, b)), low, high, limit=300)[0]
        for low, high in pairwise(ends)
    )
    given = torch.tensor([mu], dtype=torch.float64), torch.tensor([sigma], dtype=torch.float64)
    assert float(slab.divergence(*given, log_s)) == pytest.approx(wanted, abs=1e-4)
    if name != "scale-mixture" or sigma < 1:  # a peak of sigma / 60 is too narrow for points that do not know of it
        assert float(Slab.divergence(slab, *given, log_s)) == pytest.approx(wanted, abs=1e-4)
    single = [part.float() for part in (*given, log_s)]
    assert float(slab.divergence(single[0], single[1], single[2])) == pytest.approx(wanted, rel=1e-5, abs=1e-3)


@every_slab
def test_the_slope_of_the_divergence_is_that_of_its_values(name: str) -> None:
    slab, log_s = made(name)
    mu = torch.tensor([0.0, 0.3, -2.0], dtype=torch.float64, requires_grad=True)
    sigma = torch.tensor([0.5, 0.05, 1.5], dtype=torch.float64, requires_grad=True)
    log_s = log_s.requires_grad_()
    if name != "scale-mixture":
        whole = (mu, sigma, log_s)
        assert torch.autograd.gradcheck(lambda *given: Slab.divergence(slab, *given).sum(), whole, atol=1e-6)
        if slab.closed_form:
            assert torch.autograd.gradcheck(lambda *given: slab.divergence(*given).sum(), whole, atol=1e-6)
    integrated = torch.autograd.grad(Slab.divergence(slab, mu, sigma, log_s).sum(), (mu, sigma), retain_graph=True)
    given = torch.autograd.grad(slab.divergence(mu, sigma, log_s).sum(), (mu, sigma))
    for one, other in zip(given, integrated, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-3, atol=2e-3)


def test_an_average_over_many_weights_is_the_same_in_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for at_once in (quadrature.AT_ONCE, 1):
        monkeypatch.setattr(quadrature, "AT_ONCE", at_once)
        mu = torch.linspace(-2, 2, 7, dtype=torch.float64).requires_grad_()
        sigma = torch.full((7,), 0.4, dtype=torch.float64).requires_grad_()
        value = normal_average(lambda beta: torch.log1p(beta**2), mu, sigma).sum()
        results.append((value.detach(), *torch.autograd.grad(value, (mu, sigma))))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@every_slab
@pytest.mark.parametrize("posterior", [SpikeSlab, Gaussian])
@pytest.mark.parametrize("psi", [0.2, 0.95])
def test_a_weight_rests_where_its_divergence_is_least(name: str, posterior: Any, psi: float) -> None:
    """Found by the optimiser from the prior alone; there it is in no median model, whatever psi and the slab are."""
    start = sn.Start(mu=(-0.1, 0.1), rho=(0.0, 0.5), omega=(0.0, 0.5))
    layer = sn.Linear(
        3, 2, prior=Prior(psi=psi, slab=name, sigma_beta=SCALE), posterior=posterior, start=start
    ).double()
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.06)
    for _ in range(350):
        optimiser.zero_grad()
        layer.kl().backward()
        optimiser.step()
    resting = layer.prior.slab.resting
    assert (resting == 0.0) == (name == "gaussian")
    least = -math.log(psi * math.exp(-resting) + 1 - psi) if posterior is SpikeSlab else resting
    assert float(layer.kl().detach()) / 8 == pytest.approx(least, abs=2e-4)
    if posterior is SpikeSlab:
        alpha, rest = layer.alpha.detach(), layer.prior.resting_alpha(layer.blocks()).detach()
        torch.testing.assert_close(alpha, rest.expand_as(alpha), atol=2e-3, rtol=0)
        assert not any(bool(part.any()) for part in layer.informed(layer.blocks()))
        with torch.no_grad():
            layer.weight.mu[0, 0] = 10 * SCALE
        assert bool(layer.informed(layer.blocks())[0][0, 0])


@every_slab
def test_a_dense_posterior_learns_with_the_sampled_divergence(name: str, blobs: Data) -> None:
    net = sn.mlp((4, 8, 3), method="gaussian", prior=Prior(slab=name, sigma_beta=0.5))
    config = sn.TrainConfig(epochs=120, batch_size=50, lr=5e-3, draw="relaxed", kl="sampled")
    history = sn.fit(net, blobs, config)
    assert history[-1].elbo > history[0].elbo
    assert sn.accuracy(sn.predict(net, blobs[0], 10), blobs[1]) > 0.8
    layer = net.body[1]
    with torch.no_grad():
        exact, generator, blocks = float(layer.kl()), torch.Generator().manual_seed(0), layer.blocks()
        draws = [
            layer.prior.sampled_kl(blocks, [draw_exact(block, next_seed(generator)) for block in blocks])
            for _ in range(600)
        ]
    found = torch.stack(draws)
    assert abs(float(found.mean()) - exact) < 4 * float(found.std()) / 600**0.5


@pytest.mark.parametrize("name", ["laplace", "student"])
def test_the_bound_is_close_under_the_evidence(name: str) -> None:
    """One weight, known noise: the evidence is an integral over a line."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 1, generator=generator, dtype=torch.float64)
    y = 0.4 * x + 0.8 * torch.randn(12, 1, generator=generator, dtype=torch.float64)
    likelihood = sn.Gaussian(phi=0.64)
    net = sn.mlp((1, 1), method="gaussian", prior=Prior(slab=name, sigma_beta=SCALE), likelihood=likelihood).double()
    net.body[1].bias = None
    sn.fit(net, (x, y), sn.TrainConfig(epochs=300, batch_size=12, lr=0.05, schedule="linear", ramp_epochs=0))

    def joint(beta: float) -> float:
        fits = stats.norm.logpdf(y.numpy(), beta * x.numpy(), 0.8).sum()
        return math.exp(float(fits) + 20 + log_density(name, beta))

    evidence = math.log(integrate.quad(joint, -4, 0)[0] + integrate.quad(joint, 0, 4)[0]) - 20
    block = net.body[1].blocks()[0]
    mu, sigma = float(block.mu.detach()), float(torch.nn.functional.softplus(block.rho).detach())
    fits = stats.norm.logpdf(y.numpy(), mu * x.numpy(), 0.8).sum() - sigma**2 * float((x**2).sum()) / (2 * 0.64)
    bound = float(fits) - float(sn.kl(net).detach())
    assert evidence - 0.1 < bound < evidence  # a normal is not quite the posterior


@every_slab
@pytest.mark.parametrize("sigma_beta", [SCALE, "learned"])
def test_a_compact_file_keeps_the_slab(name: str, sigma_beta: Any, tmp_path: Path, blobs: Data) -> None:
    prior = Prior(slab=name, sigma_beta=sigma_beta)
    net = sn.mlp((4, 8, 3), prior=prior)
    sn.fit(net, blobs, sn.TrainConfig(epochs=4, batch_size=50))
    small = sn.compact(net, sn.budget_model(net, weights=30), "distribution")
    sn.save(small, tmp_path / "m.slab")
    again = sn.load(tmp_path / "m.slab")
    for one, other in zip(small.layers, again.layers, strict=True):
        assert type(one.prior.slab) is type(other.prior.slab) is type(slab_of(prior.slab))
        assert one.prior.spec() == other.prior.spec()
    torch.testing.assert_close(sn.kl(again), sn.kl(small))
    config = sn.TrainConfig(epochs=2, batch_size=50, draw="relaxed", kl="sampled")
    for fitted in (small, again):
        sn.fit(fitted, blobs, config)
    assert torch.equal(sn.predict(small, blobs[0], 3).mean, sn.predict(again, blobs[0], 3).mean)


@every_slab
def test_files_and_settings_name_a_slab(name: str, tmp_path: Path) -> None:
    settings = SLABS[name]()
    assert slab_settings(slab_spec(settings)) == settings
    assert Prior(**Prior(slab=settings).model_dump(mode="json")).slab == settings
    net = sn.mlp((3, 2), prior=Prior(slab=name))
    sn.save(net, tmp_path / "m.slab")
    assert sn.load(tmp_path / "m.slab").body[1].prior.spec() == net.body[1].prior.spec()


def test_files_of_before_know_the_mixture_by_its_settings() -> None:
    assert Prior(slab={"pi": 0.25, "variances": (1.0, 0.1)}).slab == sn.ScaleMixture(pi=0.25, variances=(1.0, 0.1))
    assert slab_spec(sn.ScaleMixture(pi=0.25, variances=(1.0, 0.1))) == {"pi": 0.25, "variances": [1.0, 0.1]}
    assert slab_spec(SLABS["gaussian"]()) == "gaussian"


def test_other_slabs_are_refused_by_name() -> None:
    class Cauchy(SlabSettings):
        name = "cauchy"

    for bad in ("horseshoe", {"name": "horseshoe"}, Cauchy(), 3, {"name": ["laplace"]}):
        with pytest.raises(sn.ArgumentError, match="Prior: slab must be one of gaussian, laplace, student"):
            Prior(slab=bad)
    with pytest.raises(sn.ArgumentError, match="Student: df must be greater than 0, got -1"):
        Prior(slab={"name": "student", "df": -1})
    with pytest.raises(sn.ArgumentError, match="register_slab: name must be a new one"):
        sn.register_slab(sn.Laplace, Slab)
    with pytest.raises(sn.ArgumentError, match="a prior of your own must be a Slab with register_slab"):
        type("Mine", (LayerPrior,), {})

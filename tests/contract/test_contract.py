"""What every method in the registry must do, through the same calls."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import slabnet as sn
from slabnet.maths.enumeration import enumerate_linear

Data = tuple[torch.Tensor, torch.Tensor]
QUICK = sn.TrainConfig(epochs=150, batch_size=50, lr=5e-3, omega_lr=0.05)
every_method = pytest.mark.parametrize("method", sn.METHODS)


@every_method
def test_the_objective_is_finite_and_improves(method: str, blobs: Data) -> None:
    net = sn.mlp((4, 8, 3), method=method)
    history = sn.fit(net, blobs, QUICK)
    assert all(math.isfinite(epoch.elbo) for epoch in history)
    assert history[-1].log_likelihood > history[0].log_likelihood
    assert sn.accuracy(sn.predict(net, blobs[0], 10), blobs[1]) > 0.8


@pytest.mark.parametrize("method", [name for name, method in sn.METHODS.items() if method.bound])
def test_the_objective_is_a_bound_where_it_claims_to_be_one(method: str) -> None:
    """A linear model with known noise: the expected bound under exact draws stays below the log evidence."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(25, 3, generator=generator, dtype=torch.float64)
    y = x[:, 0] + 0.7 * torch.randn(25, generator=generator, dtype=torch.float64)
    prior = sn.Prior(psi=0.3, sigma_beta=1.0)
    likelihood = sn.Gaussian(phi=0.49)
    net = sn.mlp((3, 1), method=method, prior=prior, likelihood=likelihood).double()
    layer = net.body[1].inner if method == "horseshoe" else net.body[1]
    layer.bias = None  # the enumerated model has no intercept
    sn.fit(net, (x, y), sn.TrainConfig(epochs=800, batch_size=25, lr=0.01, omega_lr=0.05))
    with torch.no_grad():
        values = torch.stack(
            [sn.elbo(net, net.likelihood, x, y[:, None], n=25, draw=sn.exact, seed=i).elbo for i in range(400)]
        )
    evidence = _log_evidence(method, x, y, 0.49, 0.3)
    mean, error = float(values.mean()), float(values.std()) / 20
    assert mean - 4 * error < evidence
    if method != "horseshoe":  # whose four independent factors for one scale cost it several nats
        assert mean > evidence - 3.0  # not a bound by being far away


def _log_evidence(method: str, x: torch.Tensor, y: torch.Tensor, phi: float, psi: float) -> float:
    if method == "lbbnn":
        return enumerate_linear(x, y, phi=phi, psi=psi, sigma_beta=1.0).log_evidence
    generator = torch.Generator().manual_seed(1)
    beta = torch.randn(400_000, 3, generator=generator, dtype=torch.float64)
    if method == "horseshoe":
        scales = torch.distributions.HalfCauchy(1.0)
        torch.manual_seed(0)
        beta = beta * scales.sample(beta.shape) * scales.sample((len(beta), 1))
    if method == "mixture":
        narrow = torch.rand(beta.shape, generator=generator) < 0.5
        beta = torch.where(narrow, beta * math.exp(-3), beta)
    fits = -0.5 * ((y - beta @ x.T).square() / phi + math.log(2 * math.pi * phi)).sum(1)
    return float(torch.logsumexp(fits, 0)) - math.log(len(beta))


@every_method
def test_the_same_seed_gives_the_same_result(method: str, blobs: Data) -> None:
    results = []
    for _ in range(2):
        net = sn.mlp((4, 5, 3), method=method, seed=3)
        sn.fit(net, blobs, sn.TrainConfig(epochs=3, batch_size=50, seed=3))
        results.append(sn.predict(net, blobs[0], 4, seed=3).mean)
    assert torch.equal(*results)


@every_method
def test_save_and_load(method: str, blobs: Data, tmp_path: Path) -> None:
    net = sn.mlp((4, 5, 3), method=method)
    sn.fit(net, blobs, sn.TrainConfig(epochs=2, batch_size=50))
    sn.save(net, tmp_path / "m.slab")
    again = sn.load(tmp_path / "m.slab")
    assert torch.equal(sn.predict(net, blobs[0], 4).mean, sn.predict(again, blobs[0], 4).mean)


@every_method
@pytest.mark.parametrize(("likelihood", "outputs"), [("categorical", 3), ("bernoulli", 1), ("gaussian", 2)])
def test_prediction_shapes(method: str, likelihood: str, outputs: int, blobs: Data) -> None:
    net = sn.mlp((4, 5, outputs), method=method, likelihood=likelihood)
    found = sn.predict(net, blobs[0], 3, intervals=(0.9,), keep_draws=True)
    draws = 1 if method == "deterministic" else 3
    assert found.mean.shape == (150, outputs)
    assert found.samples is not None
    assert found.samples.shape == (draws, 150, outputs)
    low, high = found.interval(0.9)
    assert low.shape == high.shape == (150, outputs)
    assert bool((low <= high).all())
    assert 0 <= found.density_used <= 1
    members = 5 if method == "ensemble" else 1
    assert found.used_weights == round(found.density_used * members * (20 + 5 * outputs))


@every_method
def test_convolutions_too(method: str) -> None:
    net = sn.convnet((1, 6, 6), 2, channels=(3,), hidden=(4,), method=method)
    x = torch.randn(40, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    sn.fit(net, (x, (x[:, 0, 0, 0] > 0).long()), sn.TrainConfig(epochs=2, batch_size=20))
    assert sn.predict(net, x, 2).mean.shape == (40, 2)


@every_method
def test_post_training_or_a_clear_refusal(method: str, blobs: Data) -> None:
    net = sn.mlp((4, 5, 3), method=method)
    quick = sn.TrainConfig(epochs=2, batch_size=50)
    able = sn.METHODS[method].post_training
    chosen = sn.prune(net) if sn.METHODS[method].prunes else sn.median_model(sn.mlp((4, 5, 3)))
    choices = {"alpha": "alpha", "a Selection": chosen}
    for kind, fixed in choices.items():
        if kind in able:
            structure = {n: p.clone() for n, p in net.named_parameters() if n.endswith(("omega", "logit_rate"))}
            before = [p.clone() for p in net.parameters()]
            sn.fit(net, blobs, quick, fixed=fixed)  # type: ignore[arg-type]
            assert all(torch.equal(net.get_parameter(n), p) for n, p in structure.items())
            assert not all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
        else:
            with pytest.raises(sn.ArgumentError, match=f"fit: fixed must be .* for the method {method}"):
                sn.fit(net, blobs, quick, fixed=fixed)  # type: ignore[arg-type]
    if not any(isinstance(part, sn.Linear) for part in net.modules()):
        with pytest.raises(sn.ArgumentError, match="a network with indicators"):
            sn.median_model(net)


@every_method
@pytest.mark.parametrize("draw", ["local", "relaxed", "straight_through", "score"])
def test_every_training_draw(method: str, draw: str, blobs: Data) -> None:
    net = sn.mlp((4, 5, 3), method=method)
    history = sn.fit(net, blobs, sn.TrainConfig(epochs=2, batch_size=50, draw=draw, samples=2))  # type: ignore[arg-type]
    assert math.isfinite(history[-1].elbo)

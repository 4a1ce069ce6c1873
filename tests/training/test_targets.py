"""What a row says besides its response, on its way through training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import slabnet as sn
from slabnet.model.drawing import drawing
from slabnet.model.draws import local

X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TIMES = torch.tensor([2.0, 1.0, 0.0, 3.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 0.0, 1.0], dtype=torch.float64)
REPEATED = torch.repeat_interleave(torch.arange(12), TIMES.long())
CASES: dict[str, tuple[Any, torch.Tensor]] = {
    "categorical": ("categorical", torch.arange(12) % 2),
    "bernoulli": ("bernoulli", (torch.arange(12) % 2).double()[:, None]),
    "gaussian": ("gaussian", X[:, :1] + 0.3),
    "ordinal": (sn.Ordinal(3), torch.arange(12) % 3),
    "poisson": ("poisson", (torch.arange(12) % 4).double()[:, None]),
    "weibull": ("weibull", X[:, :1].abs() + 0.1),
}


@pytest.mark.parametrize("name", CASES)
def test_a_weight_counts_as_often_as_the_row_repeated(name: str) -> None:
    """Objective and gradient: noise is drawn per row, so with the same noise for a row and for its copies."""
    likelihood, y = CASES[name]
    outputs = 2 if name == "categorical" else 1
    net = sn.mlp((3, 4, outputs), likelihood=likelihood, start=sn.Start(mu=(-1, 1))).double()
    own = net.likelihood
    with drawing(net, local, torch.Generator().manual_seed(3)):
        output = net(X)
    weighted = own.total(output, sn.Target(y, weight=TIMES))
    repeated = own.total(output[REPEATED], y[REPEATED])
    assert float(weighted.detach()) == pytest.approx(float(repeated.detach()), rel=1e-9)
    parameters = [p for p in net.parameters() if p.requires_grad]
    first = torch.autograd.grad(weighted, parameters, retain_graph=True, allow_unused=True)
    second = torch.autograd.grad(repeated, parameters, allow_unused=True)
    for a, b in zip(first, second, strict=True):
        if a is not None or b is not None:
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_the_bound_of_weighted_rows_is_that_of_repeated_rows() -> None:
    """Through `elbo`, without noise: the mean network."""
    net = sn.mlp((3, 1), likelihood="gaussian").double()
    y = X[:, :1] * 2
    one = sn.elbo(net, net.likelihood, X, sn.Target(y, weight=TIMES), n=12, draw=sn.mean, seed=0)
    two = sn.elbo(net, net.likelihood, X[REPEATED], y[REPEATED], n=len(REPEATED), draw=sn.mean, seed=0)
    assert float(one.log_likelihood.detach()) == pytest.approx(float(two.log_likelihood.detach()), rel=1e-9)


def test_expected_gradients_agree_within_monte_carlo_error() -> None:
    net = sn.mlp((3, 1), likelihood="gaussian").double()
    y, weight = X[:, :1] * 2, net.body[1].weight.mu

    def gradient(x: torch.Tensor, target: Any, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        draws = []
        for seed in range(600):
            bound = sn.elbo(net, net.likelihood, x, target, n=n, draw=sn.local, seed=seed).elbo
            draws.append(torch.autograd.grad(bound, weight)[0])
        found = torch.stack(draws)
        return found.mean(0), found.std(0) / 600**0.5

    one, error = gradient(X, sn.Target(y, weight=TIMES), 12)
    two, other = gradient(X[REPEATED], y[REPEATED], len(REPEATED))
    assert bool(((one - two).abs() < 4.5 * (error**2 + other**2).sqrt()).all())


def test_rows_with_weight_are_fitted_batch_by_batch_validated_and_resumed(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(600, 2, generator=generator)
    signs = torch.where(torch.arange(600) < 300, 1.0, -1.0)
    y = signs * x[:, 0] + 0.1 * torch.randn(600, generator=generator)
    target = sn.Target(y, weight=(signs > 0).float())  # the others do not count
    config = sn.TrainConfig(epochs=60, batch_size=64, lr=0.03, omega_lr=0.1, validation_fraction=0.2, seed=3)
    net = sn.mlp((2, 1), likelihood="gaussian")
    history = sn.fit(net, (x, target), config, progress="off", checkpoint=tmp_path / "run")
    slope = (net.body[1].weight.alpha * net.body[1].weight.mu)[0, 0]
    assert float(slope.detach()) == pytest.approx(1.0, abs=0.05)
    assert history[-1].validation_log_likelihood is not None
    other = sn.mlp((2, 1), likelihood="gaussian")
    with pytest.raises(sn.SlabnetError):  # other weights are other data
        sn.fit(
            other,
            (x, sn.Target(y, weight=torch.ones(600))),
            config,
            progress="off",
            checkpoint=tmp_path / "run",
            resume=True,
        )


def test_exposure_and_events_are_fitted() -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(800, 2, generator=generator)
    exposure = 0.2 + 3 * torch.rand(800, generator=generator)
    rate = torch.exp(0.4 + 0.7 * x[:, 0])
    counts = torch.poisson(exposure * rate, generator=generator)
    config = sn.TrainConfig(epochs=60, batch_size=200, lr=0.03, omega_lr=0.1)
    net = sn.mlp((2, 1), likelihood="poisson")
    sn.fit(net, (x, sn.Target(counts, exposure=exposure)), config, progress="off")
    layer = net.body[1]
    assert float((layer.weight.alpha * layer.weight.mu)[0, 0].detach()) == pytest.approx(0.7, abs=0.08)
    assert float(layer.bias.mu[0].detach()) == pytest.approx(0.4, abs=0.1)
    one, two = (sn.predict(net, x, 20, exposure=e) for e in (None, torch.full((800,), 2.0)))
    torch.testing.assert_close(two.mean, 2 * one.mean)
    times = torch.exp(0.5 - 0.9 * x[:, 1]) * torch.empty(800).exponential_(generator=generator) ** 0.5
    ends = 3 * torch.rand(800, generator=generator)
    event = (times <= ends).float()
    net = sn.mlp((2, 1), likelihood="weibull")
    sn.fit(net, (x, sn.Target(torch.minimum(times, ends), event=event)), config, progress="off")
    layer = net.body[1]
    assert float((layer.weight.alpha * layer.weight.mu)[0, 1].detach()) == pytest.approx(-0.9, abs=0.1)
    assert float(net.likelihood.shape.median) == pytest.approx(2.0, rel=0.12)
    found = sn.predict(net, x, 50, intervals=0.9)
    low, high = found.predictive_interval(0.9)
    assert bool((low > 0).all())
    assert float(((low[:, 0] <= times) & (times <= high[:, 0])).float().mean()) == pytest.approx(0.9, abs=0.035)
    assert float((times < found.mean[:, 0]).float().mean()) == pytest.approx(0.5, abs=0.06)  # the median


@pytest.mark.parametrize(
    ("likelihood", "sides", "said"),
    [
        ("gaussian", {"weight": [1.0, -1.0, 1.0]}, "weight must be numbers of at least 0, got -1.0 in row 1"),
        ("gaussian", {"weight": [0.0, 0.0, 0.0]}, "weight must be above 0 for some row, got 0 for all"),
        ("gaussian", {"weight": [1.0, 1.0]}, r"weight must be one number for each of the 3 rows, got shape \(2,\)"),
        ("gaussian", {"exposure": [1.0, 1.0, 1.0]}, "exposure must be left out for a gaussian response, got given"),
        ("poisson", {"exposure": [1.0, 0.0, 1.0]}, "exposure must be numbers above 0, got 0.0 in row 1"),
        ("poisson", {"exposure": [1.0, float("nan"), 1.0]}, "exposure must be finite numbers"),
        ("weibull", {"event": [1.0, 2.0, 0.0]}, "event must be 1 .* or 0 .*, got 2.0 in row 1"),
        ("weibull", {"event": [0.0, 0.0, 0.0]}, "event must be 1 for some row, got 0 for all"),
    ],
)
def test_bad_rows(likelihood: str, sides: dict[str, list[float]], said: str) -> None:
    net = sn.mlp((2, 1), likelihood=likelihood)
    before = [p.clone() for p in net.parameters()]
    target = sn.Target(torch.ones(3), **{name: torch.tensor(value) for name, value in sides.items()})
    with pytest.raises(sn.ArgumentError, match=f"fit: {said}"):
        sn.fit(net, (torch.zeros(3, 2), target), sn.TrainConfig(epochs=1, batch_size=3))
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    if "exposure" in sides and likelihood == "gaussian":
        with pytest.raises(sn.ArgumentError, match="exposure must be left out for a gaussian response"):
            sn.predict(net, torch.zeros(3, 2), exposure=torch.ones(3))

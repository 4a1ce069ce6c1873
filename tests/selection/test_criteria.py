"""WAIC, DIC and FIC on exact posterior draws of a linear model, against closed forms and simulation."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import slabnet as sn
from slabnet.selection.criteria import _information, criterion_model

PHI = 0.5


def exact_posterior(n: int = 50, p: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, p, generator=generator, dtype=torch.float64)
    y = x[:, 0] + math.sqrt(PHI) * torch.randn(n, generator=generator, dtype=torch.float64)
    covariance = torch.linalg.inv(x.T @ x / PHI + torch.eye(p).double())
    return x, y, covariance @ x.T @ y / PHI, covariance


def test_waic_and_dic_on_exact_draws() -> None:
    """lppd_i = log N(y_i; m_i, phi + v_i), its penalty is (2 v^2 + 4 v r^2) / (4 phi^2), p_D = sum v / phi."""
    x, y, mean, covariance = exact_posterior()
    draws = torch.distributions.MultivariateNormal(mean, covariance).sample((60_000,))
    logs = torch.distributions.Normal(draws @ x.T, PHI**0.5).log_prob(y)
    m, v = x @ mean, (x @ covariance * x).sum(1)
    residual = y - m
    lppd = torch.distributions.Normal(m, (PHI + v).sqrt()).log_prob(y).sum()
    penalty = ((2 * v**2 + 4 * v * residual**2) / (4 * PHI**2)).sum()
    assert float(sn.waic(logs)) == pytest.approx(float(-2 * (lppd - penalty)), rel=2e-3)
    at_mean = torch.distributions.Normal(m, PHI**0.5).log_prob(y)
    assert float(sn.dic(logs, at_mean)) == pytest.approx(float(-2 * at_mean.sum() + 2 * (v / PHI).sum()), rel=2e-3)


def test_fic_estimates_the_error_of_the_focus() -> None:
    """Over repeated data sets FIC minus its constant averages to the mean squared error of each submodel."""
    generator = torch.Generator().manual_seed(1)
    n, beta = 40, torch.tensor([0.5, 0.2, 0.0]).double()
    q, _ = torch.linalg.qr(torch.randn(n, 3, generator=generator, dtype=torch.float64))
    x = q * math.sqrt(n)  # orthogonal, so that submodels keep the estimates of the full model
    focus = torch.tensor([1.0, -2.0, 1.5]).double()
    sigma = torch.full((3,), math.sqrt(PHI / n)).double()
    models = [torch.tensor(m, dtype=torch.bool) for m in itertools.product((False, True), repeat=3)]
    repeats = 20_000
    noise = math.sqrt(PHI) * torch.randn(repeats, n, generator=generator, dtype=torch.float64)
    estimates = ((x @ beta) + noise) @ x / n
    constant = float((focus * sigma).square().sum())
    for inside in models:
        values = torch.stack([sn.fic(focus, b, sigma, inside) for b in estimates[:4000]]) - constant
        errors = ((estimates * inside) @ focus - focus @ beta).square()
        spread = float((values.var() / 4000 + errors.var() / repeats).sqrt())
        assert abs(float(values.mean() - errors.mean())) < 4.5 * spread


def fitted_linear() -> tuple[sn.Network, tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(200, 5, generator=generator)
    y = 1.5 * x[:, 0] - x[:, 1] + 0.3 * torch.randn(200, generator=generator)
    net = sn.mlp((5, 1), likelihood=sn.Gaussian(phi=0.09))
    sn.fit(net, (x, y), sn.TrainConfig(epochs=300, batch_size=50, lr=0.01, omega_lr=0.05))
    return net, (x, y)


@pytest.mark.parametrize("criterion", ["waic", "dic", "fic"])
def test_each_criterion_keeps_the_inputs_that_matter(criterion: str) -> None:
    net, data = fitted_linear()
    focus = (lambda out: out.mean() + out[0, 0]) if criterion == "fic" else None
    chosen = criterion_model(net, data, criterion, models=30, focus=focus)  # type: ignore[arg-type]
    assert chosen.rule == criterion
    assert chosen.masks["body.1"][0][0, :2].all()
    assert chosen.feasible


def test_refitting_and_repeating() -> None:
    net, data = fitted_linear()
    before = [p.clone() for p in net.parameters()]
    refit = sn.TrainConfig(epochs=2, batch_size=50)
    found = [criterion_model(net, data, "waic", models=4, draws=5, refit=refit, seed=2) for _ in range(2)]
    assert torch.equal(found[0].masks["body.1"][0], found[1].masks["body.1"][0])
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"criterion": "aic"}, "criterion must be one of waic, dic, fic"),
        ({"criterion": "fic"}, "focus must be given with fic"),
        ({"focus": torch.mean}, "focus must be given with fic, and only then"),
        ({"models": 0}, "models must be a whole number of at least 1"),
        ({"draws": 1}, "draws must be a whole number of at least 2"),
        ({"criterion": "fic", "focus": lambda out: out}, "focus must be a function that gives one number"),
    ],
)
def test_bad_calls(options: dict[str, object], said: str) -> None:
    net = sn.mlp((5, 1), likelihood="gaussian")
    with pytest.raises(sn.ArgumentError, match="criterion_model: ") as caught:
        criterion_model(net, (torch.zeros(4, 5), torch.zeros(4)), **options)  # type: ignore[arg-type]
    assert said in str(caught.value)


def test_the_search_around_the_best_finds_the_best_model_by_fic() -> None:
    net, data = fitted_linear()
    with torch.no_grad():  # nothing is certain, so that the draws miss much
        net.body[1].weight.omega.fill_(0.0)
        net.body[1].bias.omega.fill_(0.0)

    def focus(out: torch.Tensor) -> torch.Tensor:
        return out[:3].sum()

    found = criterion_model(net, data, "fic", models=4, focus=focus, seed=1)
    layer = net.body[1]
    gradient = torch.cat([data[0][:3].sum(0), torch.tensor([3.0])]) * 1.0
    mu = torch.cat([layer.weight.mu[0], layer.bias.mu]).detach()
    sigma = torch.cat([layer.weight.sigma[0], layer.bias.sigma]).detach()
    scores = {
        inside: float(sn.fic(gradient, mu, sigma, torch.tensor(inside)))
        for inside in itertools.product((False, True), repeat=6)
        if any(inside[:5])
    }
    chosen = tuple(torch.cat([part.flatten() for part in found.masks["body.1"]]).tolist())
    assert scores[chosen] == pytest.approx(min(scores.values()), rel=1e-5)
    assert found.looked_at is not None
    assert found.looked_at > 20


@pytest.mark.slow
def test_waic_and_dic_take_draws_of_the_dispersion() -> None:
    """With no weights p(y | phi) alone varies: the penalties are those of drawing phi from q."""
    y = torch.randn(60, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    net = sn.mlp((1, 1), likelihood="gaussian").double()
    with torch.no_grad():
        net.body[1].weight.mu.fill_(0.0)
        net.body[1].weight.rho.fill_(-30.0)
        net.likelihood.rho_phi.fill_(math.log(math.expm1(0.3)))
    masks = {"body.1": (torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, dtype=torch.bool))}
    x = torch.ones_like(y)
    values = {c: _information(net, net.likelihood, x, y, masks, c, 4000, 0, 0) for c in ("waic", "dic")}
    eps = 0.3 * torch.randn(40_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    logs = torch.distributions.Normal(torch.zeros(()).double(), torch.exp(eps / 2)[:, None]).log_prob(y[:, 0])
    assert values["waic"] == pytest.approx(float(sn.waic(logs)), rel=5e-3)
    at_mean = torch.distributions.Normal(torch.zeros(()).double(), 1.0).log_prob(y[:, 0])
    assert values["dic"] == pytest.approx(float(sn.dic(logs, at_mean)), rel=5e-3)

"""What each baseline claims beyond the contract."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import integrate, stats
from torch import nn

import slabnet as sn
from slabnet.maths.divergences import kl_lognormal_gamma, kl_normal_jeffreys
from slabnet.model.baselines import ConcreteDropout, Horseshoe, MCDropout, NormalJeffreys
from slabnet.model.drawing import Scope
from slabnet.selection.pruning import two_modes

STILL = Scope(sn.mean, None)


def plain(inputs: int = 4, outputs: int = 3) -> nn.Linear:
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    with torch.no_grad():
        layer.weight.normal_(generator=torch.Generator().manual_seed(0))
        layer.bias.normal_(generator=torch.Generator().manual_seed(1))
    return layer


@pytest.mark.parametrize(("m", "s", "k"), [(0.3, 0.5, 1.0), (-2.0, 0.2, 0.3), (1.0, 1.0, 2.0)])
def test_the_gamma_divergence_against_integration(m: float, s: float, k: float) -> None:
    q, p = stats.lognorm(s=s, scale=math.exp(m)), stats.gamma(0.5, scale=k**2)
    wanted = integrate.quad(lambda v: q.pdf(v) * (q.logpdf(v) - p.logpdf(v)), 1e-9, math.exp(m + 9 * s), limit=500)[0]
    found = kl_lognormal_gamma(torch.tensor(m).double(), torch.tensor(s).double().log(), 0.5, k**2)
    assert float(found) == pytest.approx(wanted, rel=1e-5)


NAMES = ("unit_gamma", "unit_inverse", "layer_gamma", "layer_inverse")


def test_a_half_cauchy_squared_is_a_gamma_times_an_inverse_gamma() -> None:
    """The decomposition the horseshoe stands on, by simulation."""
    g = stats.gamma(0.5, scale=4.0).rvs(200_000, random_state=0)
    i = stats.invgamma(0.5).rvs(200_000, random_state=1)
    distance = stats.kstest((g * i) ** 0.5, stats.halfcauchy(scale=2.0).cdf).statistic
    assert distance < 1.63 / 200_000**0.5  # the 1% point


def test_horseshoe_divergence_against_monte_carlo() -> None:
    layer = Horseshoe(sn.Linear(3, 2), 3, tau0=0.5).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in [p for n, p in layer.named_parameters() if not n.startswith("inner")]:
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    total, error = 0.0, 0.0
    priors = [stats.gamma(0.5), stats.invgamma(0.5), stats.gamma(0.5, scale=0.25), stats.invgamma(0.5)]
    for m, rho, prior in zip(layer._scales("m"), layer._scales("rho"), priors, strict=True):
        sd = torch.nn.functional.softplus(rho)
        for j in range(len(m)):
            q = stats.lognorm(s=float(sd[j].detach()), scale=math.exp(float(m[j].detach())))
            draws = q.rvs(100_000, random_state=j)
            terms = q.logpdf(draws) - prior.logpdf(draws)
            total, error = total + terms.mean(), error + terms.var() / len(terms)
    assert float(layer.divergence(STILL, sampled=False).detach()) == pytest.approx(total, abs=4.5 * error**0.5)


def test_scales_of_the_horseshoe_are_lognormal() -> None:
    layer = Horseshoe(sn.Linear(2, 1), 2)
    with torch.no_grad(), sn.drawing(layer, sn.exact, 0) as scope:
        draws = torch.cat([layer.draw_factors((2,), scope)[None] for _ in range(20_000)]).log()
        mean, sd = layer.log_scale
        torch.testing.assert_close(draws.mean(0), mean, atol=5e-3, rtol=0)
        torch.testing.assert_close(draws.std(0), sd, rtol=0.03, atol=0)
        assert torch.allclose(draws.exp().mean(0), layer.mean_factors(), rtol=0.01)


def test_units_of_the_horseshoe_share_the_draw_of_their_layer() -> None:
    """Under q log(s z_1) and log(s z_2) have the variance of log s in common."""
    layer = Horseshoe(sn.Linear(2, 1), 2)
    with torch.no_grad():
        for name, rho in (("unit_gamma", 0.2), ("unit_inverse", -0.3), ("layer_gamma", -1.0), ("layer_inverse", -0.8)):
            layer.get_parameter(f"{name}_rho").fill_(rho)
        sd = {name: float(torch.nn.functional.softplus(layer.get_parameter(f"{name}_rho")[0])) for name in NAMES}
        shared = sd["layer_gamma"] ** 2 + sd["layer_inverse"] ** 2
        expected = shared / (shared + sd["unit_gamma"] ** 2 + sd["unit_inverse"] ** 2)
        with sn.drawing(layer, sn.exact, 0) as scope:
            networks = torch.stack([layer.draw_factors((2,), scope) for _ in range(20_000)]).log()
            rows = layer.draw_factors((20_000, 2), scope).log()
    assert 0.1 < expected < 0.4
    for draws in (networks, rows):
        assert float(torch.corrcoef(draws.T)[0, 1]) == pytest.approx(expected, abs=0.03)
        torch.testing.assert_close(draws.std(0), layer.log_scale[1].detach(), rtol=0.03, atol=0)
    assert float(torch.corrcoef(torch.stack([rows[:-1, 0], rows[1:, 0]]))[0, 1]) == pytest.approx(0, abs=0.03)


@pytest.mark.parametrize("log_alpha", [-8.0, -3.0, -1.0, 0.0, 1.0, 3.0, 8.0])
def test_the_jeffreys_divergence_against_integration(log_alpha: float) -> None:
    """KL = E log q + E log|z| + C for z ~ N(1, alpha), C such that it vanishes for N(0, 1): nothing but noise."""

    def expected_log(mean: float, sd: float) -> float:
        q = stats.norm(mean, sd)
        low, high = mean - 12 * sd, mean + 12 * sd
        return integrate.quad(lambda z: q.pdf(z) * math.log(abs(z)), low, high, points=[0.0, mean], limit=1000)[0]

    sd = math.exp(log_alpha / 2)
    wanted = expected_log(1.0, sd) - math.log(sd) - expected_log(0.0, 1.0)
    assert float(kl_normal_jeffreys(torch.tensor(log_alpha).double())) == pytest.approx(wanted, abs=0.01)


def test_normal_jeffreys_draws_its_factors_and_counts_their_divergence() -> None:
    layer = NormalJeffreys(sn.Linear(3, 2), 3)
    with torch.no_grad():
        layer.z_mean.copy_(torch.tensor([1.0, -0.5, 0.2]))
        layer.z_log_variance.copy_(torch.tensor([-2.0, 0.0, -4.0]))
        with sn.drawing(layer, sn.exact, 0) as scope:
            draws = torch.stack([layer.draw_factors((3,), scope) for _ in range(20_000)])
    sd = (0.5 * layer.z_log_variance.detach()).exp()
    assert bool(((draws.mean(0) - layer.z_mean.detach()).abs() < 4.5 * sd / 20_000**0.5).all())
    torch.testing.assert_close(draws.std(0), sd, rtol=0.03, atol=0)
    alpha = sd.square() / layer.z_mean.detach().square()
    wanted = kl_normal_jeffreys(alpha.log()).sum()
    torch.testing.assert_close(layer.divergence(STILL, sampled=False).detach(), wanted, rtol=1e-4, atol=1e-4)


def test_normal_jeffreys_finds_the_real_inputs() -> None:
    """Of 20 inputs two matter: the factors of the others become noise, and pruning cuts just those."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 20, generator=generator)
    y = 2 * x[:, :1] - x[:, 1:2] + 0.1 * torch.randn(400, 1, generator=generator)
    net = sn.mlp((20, 1), method="normal-jeffreys", likelihood="gaussian")
    sn.fit(net, (x, y), sn.TrainConfig(epochs=200, batch_size=100, lr=0.02))
    chosen = sn.prune(net, 3.0)
    assert chosen.masks["body.1.inner"][0].nonzero()[:, 1].tolist() == [0, 1]
    with pytest.raises(sn.ArgumentError, match="one number, or one for each of the 1 layers, got 2 numbers"):
        sn.prune(net, (1.0, 2.0))


def test_concrete_masks_relax_bernoulli_ones() -> None:
    layer = ConcreteDropout(plain(), 4, rate=0.3, temperature=0.05)
    with torch.no_grad():
        with sn.drawing(layer, sn.local, 0) as scope:
            relaxed = layer.draw_factors((50_000, 4), scope) * 0.7
        with sn.drawing(layer, sn.exact, 0) as scope:
            hard = torch.stack([layer.draw_factors((4,), scope) for _ in range(5000)]) * 0.7
    assert float((relaxed > 0.5).double().mean()) == pytest.approx(0.7, abs=0.01)
    assert float(((relaxed > 0.05) & (relaxed < 0.95)).double().mean()) < 0.1
    assert set(hard.unique().round(decimals=5).tolist()) == {0.0, 1.0}
    assert float(hard.mean()) == pytest.approx(0.7, abs=0.02)


def test_dropout_regularisers_by_hand() -> None:
    inner = plain()
    weight, bias = float(inner.weight.square().sum().detach()), float(inner.bias.square().sum().detach())
    concrete = ConcreteDropout(inner, 4, rate=0.3, length_scale=2.0)
    entropy = -(0.3 * math.log(0.3) + 0.7 * math.log(0.7))
    wanted = 0.5 * 4.0 * (weight / 0.7 + bias) - 4 * entropy
    assert float(concrete.divergence(STILL, False).detach()) == pytest.approx(wanted, rel=1e-5)
    fixed = MCDropout(inner, 4, rate=0.3, length_scale=2.0)
    assert float(fixed.divergence(STILL, False).detach()) == pytest.approx(0.5 * 4.0 * (weight / 0.7 + bias), rel=1e-5)


def test_density_in_use_counts_inputs_kept_at_least_once() -> None:
    net = sn.mlp((50, 40, 3), method="mc-dropout", options={"rate": 0.5})
    x = torch.zeros(1, 50)
    one, ten = sn.predict(net, x, 1).density_used, sn.predict(net, x, 10).density_used
    assert 0.35 < one < 0.65
    assert ten > 0.99
    assert sn.predict(net, x, draw=sn.mean).density_used == 1.0


def test_an_ensemble_is_its_members() -> None:
    net = sn.mlp((4, 5, 3), method="ensemble", options={"members": 3})
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    members = []
    for m in range(3):
        first, last = net.body[1].layers[m], net.body[3].layers[m]
        with torch.no_grad():
            members.append(torch.softmax(last(torch.relu(first(x))), -1))
    found = sn.predict(net, x, 10)
    assert found.draws == 3
    torch.testing.assert_close(found.mean, torch.stack(members).mean(0))
    assert not torch.equal(members[0], members[1])


def test_ensemble_members_all_train(blobs: tuple[torch.Tensor, torch.Tensor]) -> None:
    net = sn.mlp((4, 5, 3), method="ensemble")
    before = [p.clone() for p in net.parameters()]
    sn.fit(net, blobs, sn.TrainConfig(epochs=2, batch_size=50))
    assert all(not torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


def test_the_horseshoe_finds_the_real_inputs() -> None:
    """Five of fifty inputs matter; pruning by the two modes of the log scales keeps just those."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 50, generator=generator)
    y = x[:, :5] @ torch.tensor([1.0, -1.5, 2.0, 1.0, -1.0]) + 0.5 * torch.randn(400, generator=generator)
    net = sn.mlp((50, 1), method="horseshoe", likelihood="gaussian")
    sn.fit(net, (x, y), sn.TrainConfig(epochs=400, batch_size=100, lr=0.01))
    chosen = sn.prune(net)
    assert chosen.inputs is not None
    assert chosen.inputs.nonzero().flatten().tolist() == [0, 1, 2, 3, 4]
    before = sn.rmse(sn.predict(net, x, 20), y)
    sn.fit(net, (x, y), sn.TrainConfig(epochs=40, batch_size=100), fixed=chosen)
    after = sn.rmse(sn.predict(net, x, 20, draw=sn.fixed(chosen.masks, sn.exact)), y)
    assert after < 1.1 * before


def test_pruning_rules() -> None:
    assert two_modes(torch.randn(500, generator=torch.Generator().manual_seed(0))) is None
    assert two_modes(torch.zeros(5)) is None
    net = sn.mlp((4, 3, 2), method="horseshoe")
    assert sn.prune(net).density == 1.0  # nothing has two modes before training
    assert sn.prune(net, threshold=9.0).weights == 0
    with pytest.raises(sn.ArgumentError, match="a network built with method horseshoe or normal-jeffreys"):
        sn.prune(sn.mlp((2, 2)))


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("mc-dropout", {"rate": 1.0}, "mc-dropout: rate must be a number at least 0 and below 1"),
        ("concrete-dropout", {"rate": 0.0}, "concrete-dropout: rate must be a number above 0 and below 1"),
        ("horseshoe", {"tau0": -1.0}, "horseshoe: tau0 must be a number above 0"),
        ("ensemble", {"members": 0}, "ensemble: members must be a whole number of at least 1"),
        ("mc-dropout", {"p": 0.1}, "mc-dropout: options must be one of rate, length_scale, got 'p'"),
        ("lbbnn", {"rate": 0.1}, "lbbnn: options must be one of"),
    ],
)
def test_bad_options(method: str, options: dict[str, float], said: str) -> None:
    with pytest.raises(sn.ArgumentError) as caught:
        sn.mlp((3, 2), method=method, options=options)
    assert said in str(caught.value)


def test_options_travel_with_the_model(tmp_path: object) -> None:
    net = sn.mlp((3, 4, 2), method="ensemble", options={"members": 2})
    sn.save(net, f"{tmp_path}/m.slab")
    again = sn.load(f"{tmp_path}/m.slab")
    assert again.spec["options"] == {"members": 2}  # type: ignore[union-attr,index]
    x = torch.ones(2, 3)
    assert torch.equal(sn.predict(net, x).mean, sn.predict(again, x).mean)


def test_the_mixture_can_be_adjusted() -> None:
    net = sn.mlp((3, 2), method="mixture", prior=sn.Prior(slab=sn.ScaleMixture(pi=0.2, variances=(2.0, 0.1))))
    assert net.body[1].prior.slab.settings == sn.ScaleMixture(pi=0.2, variances=(2.0, 0.1))
    assert sn.mlp((3, 2), method="mixture").body[1].prior.slab.settings == sn.ScaleMixture()

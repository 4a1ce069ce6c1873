"""Starts from the data: no strong weight is lost to a wrong sign, and correlated columns are searched."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from benchmarks.exactness import PHI, best_factorised, bound, designs, fitted
from torch import Tensor, nn

import slabnet as sn
from slabnet.config.settings import TrainConfig
from slabnet.maths.enumeration import enumerate_linear
from slabnet.model.drawing import drawable_layers
from slabnet.training.batches import TensorBatches
from slabnet.training.starts import DataStart, linear_bound

KNOWN = {"phi": PHI, "psi": 0.2, "sigma_beta": 1.5}


def strong_design(n: int, correlation: float, seed: int) -> tuple[Tensor, Tensor]:
    """Every second of 8 weights is about one, of random sign."""
    generator = torch.Generator().manual_seed(seed)
    x, _ = designs(8, n, correlation, seed)
    beta = torch.where(torch.arange(8) % 2 == 0, torch.randn(8, generator=generator).double(), 0.0)
    return x, x @ beta + math.sqrt(PHI) * torch.randn(n, generator=generator, dtype=torch.float64)


def gap_and_lost(n: int, correlation: float, seed: int) -> tuple[float, int]:
    x, y = strong_design(n, correlation, seed)
    ones = torch.cat([x, x.new_ones(n, 1)], 1)
    layer = fitted(x, y, seed=seed, **KNOWN)
    alpha = torch.cat([layer.weight.alpha.flatten(), layer.bias.alpha]).detach()  # type: ignore[union-attr]
    exact = enumerate_linear(ones, y, **KNOWN)
    _, best = best_factorised(ones, y, **KNOWN)
    return best - float(bound(layer, x, y, PHI).detach()), int(((exact.alpha > 0.95) & (alpha < 0.5)).sum())


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.99])
def test_a_fit_with_defaults_reaches_the_best_factorised_posterior(correlation: float) -> None:
    gap, lost = gap_and_lost(100, correlation, seed=0)
    assert lost == 0
    assert gap < 0.2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "correlation", "allowed"),
    [(100, 0.0, 0.2), (100, 0.5, 0.2), (100, 0.9, 0.5), (100, 0.99, 0.5), (1000, 0.9, 0.5)],
)
def test_no_strong_weight_is_lost(n: int, correlation: float, allowed: float) -> None:
    """Three designs here; `python -m benchmarks.exactness` takes fifty."""
    found = [gap_and_lost(n, correlation, seed) for seed in range(3)]
    assert sum(lost for _, lost in found) == 0
    assert sum(gap for gap, _ in found) / len(found) < allowed


@pytest.mark.slow
def test_a_wrong_sign_is_no_loss_where_the_start_is_random() -> None:
    """He's start and a short run: the means turn before the indicators close, because omega waits."""
    lost = {}
    for hold in (0, None):
        lost[hold] = 0
        for seed in range(6):
            x, y = strong_design(100, 0.0, seed)
            net = sn.mlp((8, 1), likelihood=sn.Gaussian(phi=PHI), start=sn.Start(mu="he"), seed=seed)
            config = TrainConfig(epochs=1000, lr=4e-3, omega_hold=hold)
            sn.fit(net, (x.float(), y.float()), config, progress="off")
            strong = enumerate_linear(x, y, phi=PHI, psi=math.exp(-2), sigma_beta=1.0).alpha > 0.95
            alpha = next(iter(drawable_layers(net).values())).alpha[0]  # type: ignore[attr-defined]
            lost[hold] += int((strong & (alpha < 0.5)).sum())
    assert lost[0] > 0
    assert lost[None] == 0


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "categorical"])
def test_the_start_is_near_the_end_of_the_fit(likelihood: str) -> None:
    """Of what a fit gains over a network that knows nothing, its start from the data has most."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 6, generator=generator)
    eta = 2 * x[:, 0] - 1.5 * x[:, 3] + 0.5
    drawn = torch.rand(400, generator=generator) < torch.sigmoid(eta)
    y = 10 * (eta + 0.3 * torch.randn(400, generator=generator)) if likelihood == "gaussian" else drawn.float()
    target, outputs = (drawn.long(), 2) if likelihood == "categorical" else (y[:, None], 1)

    def bound_after(config: TrainConfig, rows: Tensor) -> float:
        net = sn.mlp((6, outputs), likelihood=likelihood)
        sn.fit(net, (rows, target), config, progress="off")
        with torch.no_grad():
            terms = [sn.elbo(net, net.likelihood, rows, target, n=400, seed=s).elbo for s in range(40)]
        return float(torch.stack(terms).mean())

    still = TrainConfig(epochs=1, lr=1e-9, omega_lr=1e-9)
    nothing, start, end = bound_after(still, 0 * x), bound_after(still, x), bound_after(TrainConfig(epochs=200), x)
    assert nothing < start < end + 2
    assert (start - nothing) / (end - nothing) > 0.8


def test_what_was_fitted_or_given_is_not_started_again() -> None:
    x, y = strong_design(100, 0.0, 0)
    still = TrainConfig(epochs=1, lr=1e-12, omega_lr=1e-12)
    net = sn.mlp((8, 1), likelihood=sn.Gaussian(phi=PHI), start=sn.Start(mu="he"))
    before = [p.detach().clone() for p in net.parameters()]
    sn.fit(net, (x.float(), y.float()), still, progress="off")
    for old, new in zip(before, net.parameters(), strict=True):
        torch.testing.assert_close(old, new.detach())


def test_forced_inputs_stay_forced_and_streams_start_at_zero() -> None:
    x, y = strong_design(100, 0.0, 0)
    net = sn.mlp((8, 1), likelihood=sn.Gaussian(phi=PHI), prior=sn.Prior(include=(1,), exclude=(0,)))
    sn.fit(net, (x.float(), y.float()), TrainConfig(epochs=5), progress="off")
    layer = next(iter(drawable_layers(net).values()))
    assert layer.alpha[0, :2].tolist() == [0.0, 1.0]  # type: ignore[attr-defined]
    stream = sn.mlp((8, 1), likelihood=sn.Gaussian(phi=PHI))
    sn.fit(stream, [(x.float(), y.float())], TrainConfig(epochs=1, lr=1e-12, omega_lr=1e-12), n=100, progress="off")
    assert next(stream.parameters()).abs().max().item() < 1e-6


def test_a_network_of_another_kind_is_left_alone() -> None:
    x, y = strong_design(100, 0.0, 0)
    net = nn.Sequential(sn.Linear(8, 1), nn.Tanh())
    before = next(net.parameters()).detach().clone()
    sn.fit(net, (x.float(), y.float()), TrainConfig(epochs=1, lr=1e-12), likelihood="gaussian", progress="off")
    torch.testing.assert_close(next(net.parameters()).detach(), before)


def near_duplicates(seed: int) -> tuple[Tensor, Tensor]:
    """8 inputs of 60 rows, the second one the first with a little noise (r = .99)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(60, 8, generator=generator, dtype=torch.float64)
    x[:, 1] = 0.99 * x[:, 0] + math.sqrt(1 - 0.99**2) * x[:, 1]
    noise = math.sqrt(PHI) * torch.randn(60, generator=generator, dtype=torch.float64)
    return x, x @ torch.tensor([0.7, 0, 0.5, 0, -0.5, 0, 0, 0], dtype=torch.float64) + noise


def alpha_of(net: nn.Module) -> Tensor:
    """Inclusion probabilities of the inputs of a linear network."""
    layer = next(iter(drawable_layers(net).values()))
    assert isinstance(layer, sn.Linear)
    return layer.alpha[0].detach()


def test_the_bound_of_a_linear_network_is_that_of_its_moments() -> None:
    x, y = designs(8, 100, 0.9, 0)
    prior = sn.Prior(psi=KNOWN["psi"], sigma_beta=KNOWN["sigma_beta"])
    net = sn.mlp((8, 1), prior=prior, likelihood=sn.Gaussian(phi=PHI)).double()
    rows = TensorBatches(x, y[:, None], 100)
    DataStart().begin(net, net.likelihood, rows)
    layer = next(iter(drawable_layers(net).values()))
    found = linear_bound(net, net.likelihood, rows)
    assert found == pytest.approx(float(bound(layer, x, y, PHI).detach()), abs=1e-6)  # type: ignore[arg-type]
    assert linear_bound(sn.mlp((8, 3, 1), likelihood="gaussian"), net.likelihood, rows) is None


def test_the_bound_of_a_logistic_network_is_near_that_of_draws() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 4, generator=generator, dtype=torch.float64)
    y = (torch.rand(300, generator=generator) < torch.sigmoid(1.5 * x[:, 0] - x[:, 2])).double()[:, None]
    net = sn.mlp((4, 1), likelihood="bernoulli").double()
    rows = TensorBatches(x, y, 100)
    DataStart().begin(net, net.likelihood, rows)
    with torch.no_grad():
        drawn = [sn.elbo(net, net.likelihood, x, y, n=300, seed=s).elbo for s in range(200)]
    assert linear_bound(net, net.likelihood, rows) == pytest.approx(float(torch.stack(drawn).mean()), abs=1.0)


def test_members_say_that_near_duplicates_can_stand_for_each_other() -> None:
    """A fit of 5 members, against all 2^8 models; one posterior is sure of one of the two columns."""
    prior = sn.Prior(psi=KNOWN["psi"], sigma_beta=KNOWN["sigma_beta"], intercept_psi=1e-6)
    for seed in range(3):
        x, y = near_duplicates(seed)
        exact = enumerate_linear(x, y, **KNOWN).alpha
        error, surest = {}, {}
        for members in (1, 5):
            net = sn.mlp((8, 1), prior=prior, likelihood=sn.Gaussian(phi=PHI), members=members)
            sn.fit(
                net,
                (x.float(), y.float()),
                TrainConfig(epochs=5, batch_size=60, lr=1e-4, omega_lr=1e-4),
                progress="off",
            )
            networks = net.members if isinstance(net, sn.Mixture) else (net,)
            shares = net.weights if isinstance(net, sn.Mixture) else torch.ones(1)
            alpha = (shares[:, None] * torch.stack([alpha_of(one) for one in networks])).sum(0)
            error[members], surest[members] = float((alpha - exact).abs().mean()), float(alpha[:2].max())
        assert error[5] < 0.3 * error[1]
        assert surest[5] < 0.9 < surest[1]
        assert float(exact[:2].max()) < 0.9


def test_members_that_say_the_same_share_one_weight() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 2, generator=generator)
    net = sn.mlp((2, 1), likelihood="gaussian", members=4)
    sn.fit(
        net, (x, 3 * x[:, :1] + 0.1 * torch.randn(200, 1, generator=generator)), TrainConfig(epochs=1), progress="off"
    )
    assert isinstance(net, sn.Mixture)
    first = [alpha_of(one) for one in net.members]
    alike = [k for k in range(4) if float((first[k] - first[0]).abs().max()) < 0.5]
    assert len(alike) >= 2
    assert float(net.weights[alike].sum()) > 0.5
    assert float(net.weights[alike].std()) < 0.05


def test_weights_that_were_given_to_fitted_members_stay() -> None:
    x, y = near_duplicates(0)
    net = sn.mlp((8, 1), likelihood=sn.Gaussian(phi=PHI), members=2)
    quick = TrainConfig(epochs=1, batch_size=60)
    sn.fit(net, (x.float(), y.float()), quick, progress="off")
    assert isinstance(net, sn.Mixture)
    net.weigh([0.9, 0.1])
    sn.fit(net, (x.float(), y.float()), quick, progress="off")
    assert net.weights.tolist() == pytest.approx([0.9, 0.1])


@pytest.mark.parametrize("anew", [False, True])
def test_a_fit_from_the_data_that_goes_on_is_the_fit_without_a_stop(anew: bool, tmp_path: Path) -> None:
    """In the network that was stopped, which starts nowhere anew, as in a new one: the KL keeps its whole weight."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 4, generator=generator)
    y = (2 * x[:, 0] - x[:, 1] + torch.randn(120, generator=generator))[:, None]
    config = sn.TrainConfig(epochs=8, batch_size=30)

    def network() -> sn.Network:
        return sn.mlp((4, 1), likelihood="gaussian", seed=1)

    def stop(epoch: sn.Epoch) -> None:
        if epoch.epoch == 3:
            raise RuntimeError("stopped")

    whole, stopped = network(), network()
    sn.fit(whole, (x, y), config, progress="off")
    keep = sn.Checkpoints(str(tmp_path / "run"), every_steps=1)
    with pytest.raises(RuntimeError, match="stopped"):
        sn.fit(stopped, (x, y), config, progress="off", checkpoint=keep, on_epoch=stop)
    gone_on = network() if anew else stopped
    sn.fit(gone_on, (x, y), config, progress="off", checkpoint=keep, resume=True)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), gone_on.parameters(), strict=True))


@pytest.mark.slow
def test_a_fit_stays_at_the_maximum_it_starts_from() -> None:
    """Correlated columns: while the KL came in slowly, more of them were taken in, and one maximum left for another."""
    x, y = designs(8, 100, 0.9, 14)
    prior = sn.Prior(psi=KNOWN["psi"], sigma_beta=KNOWN["sigma_beta"])
    net = sn.mlp((8, 1), prior=prior, likelihood=sn.Gaussian(phi=PHI), seed=14)
    sn.fit(net, (x.float(), y.float()[:, None]), TrainConfig(), seed=14, progress="off")
    assert (alpha_of(net) > 0.5).nonzero()[:, 0].tolist() == [7]

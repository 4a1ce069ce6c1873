"""Leaving dead neurons out of the computation: what counts as dead, that nothing else changes, that all comes back."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

import slabnet as sn
from slabnet.model.drawing import drawable_layers
from slabnet.model.elbo import elbo, kl
from slabnet.model.layers import Linear
from slabnet.model.paths import chain_of
from slabnet.training import dead_units
from slabnet.training.dead_units import EPSILON, Cutter, can_cut, find_alive
from slabnet.training.optimiser import make_optimiser


@pytest.fixture(autouse=True)
def _small_networks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_units, "FEWEST", 0)


def layers(net: sn.Network) -> list[Linear]:
    return list(drawable_layers(net).values())  # type: ignore[arg-type]


def network(seed: int = 0, **options: object) -> sn.Network:
    """6-5-4-3: hidden unit 2 of the second layer sends nothing, unit 1 of the first sends to that one only.

    Nobody reads input 4, neither in the first layer nor, in an input-skip network, again.
    """
    net = sn.mlp((6, 5, 4, 3), seed=seed, **options)  # type: ignore[arg-type]
    first, second, third = layers(net)
    with torch.no_grad():
        third.weight.omega[:, 2] = -15.0  # type: ignore[index]
        second.weight.omega[:, 1] = -15.0  # type: ignore[index]
        second.weight.omega[2, 1] = 5.0  # type: ignore[index]
        first.weight.mu[:, 4] = 0.0
        first.weight.omega[:, 4] = -2.0  # type: ignore[index]
        for layer in (second, third):  # a plain layer has no column there
            again = slice(layer.weight.mu.shape[1] - 6 + 4, layer.weight.mu.shape[1] - 1 if net.spec.get("skip") else 0)
            layer.weight.omega[:, again] = -2.0  # type: ignore[index]
            layer.weight.mu[:, again] = 0.0
    return net


POWER = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 1.0])  # input 4 is zero in every row


def cutter(net: sn.Network) -> Cutter:
    optimiser = make_optimiser(net, net.likelihood, sn.TrainConfig(), omega=True)
    x, y = data()
    terms = elbo(net, net.likelihood, x, y, n=100, seed=0)
    (terms.kl - terms.log_likelihood).backward()  # type: ignore[no-untyped-call]
    kept = [p.detach().clone() for p in net.parameters()]
    optimiser.step()  # gives it a memory
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), kept, strict=True):
            parameter.copy_(value)
    return Cutter(net, net.likelihood, optimiser, sn.TrainConfig(), POWER)


def data() -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(40, 6, generator=g)
    x[:, 4] = 0.0
    return x, torch.randint(0, 3, (40,), generator=g)


@pytest.mark.parametrize("skip", [False, True])
def test_the_dead_are_found_from_the_outputs_backwards(skip: bool) -> None:
    alive = find_alive(chain_of(network(skip=skip)) or [], POWER)
    assert alive.inputs.tolist() == [True, True, True, True, False, True]
    assert alive.units[0].tolist() == [True, False, True, True, True]
    assert alive.units[1].tolist() == [True, True, False, True]
    assert alive.counts == (5, 4, 3, 3)


def test_noise_is_no_signal_but_a_weight_of_the_median_model_is_kept() -> None:
    net = network()
    with torch.no_grad():
        third = layers(net)[2]
        third.weight.mu[:, 2], third.weight.rho[:, 2] = 0.0, 1.0
        third.weight.omega[:, 2] = -3.0  # type: ignore[index]
        assert not find_alive(chain_of(net) or [], POWER).units[1][2]
        third.weight.omega[1, 2] = 0.1  # type: ignore[index]
        assert find_alive(chain_of(net) or [], POWER).units[1][2]


def test_an_input_is_read_if_the_data_spoke_for_it() -> None:
    net = network()
    with torch.no_grad():
        layers(net)[0].weight.omega[0, 4] = 1.0  # type: ignore[index]
    assert find_alive(chain_of(net) or [], POWER).inputs[4]
    assert find_alive(chain_of(network()) or [], None).inputs.all()  # without the rows nothing is known of the inputs


@pytest.mark.parametrize("skip", [False, True])
def test_the_small_network_is_the_large_one_without_the_dead(skip: bool) -> None:
    net = network(skip=skip)
    cut = cutter(net)
    x, y = data()
    before = sn.median_model(net)
    record = cut.cut(x, y, 100, sn.local, 3)
    assert record is not None
    assert record.left == (5, 4, 3, 3)
    assert record.elbo == pytest.approx(record.log_likelihood - record.kl)
    torch.testing.assert_close(cut.small(cut.columns(x)), net(x), rtol=1e-5, atol=1e-5)
    assert float(kl(cut.small).detach()) + cut.kl_outside == pytest.approx(float(kl(net).detach()), rel=1e-5)
    after = sn.median_model(net)
    for name, masks in after.masks.items():  # nothing was added; what went led nowhere
        assert not bool((masks[0] & ~before.masks[name][0]).any())
    assert after.active is not None
    assert before.active is not None
    for name in after.active:
        assert bool((after.active[name] == before.active[name]).all())


@pytest.mark.parametrize("skip", [False, True])
def test_the_dead_get_what_the_bound_wants(skip: bool) -> None:
    net = network(skip=skip)
    cut = cutter(net)
    cut.cut(*data(), 100, sn.local, 3)
    first, second, third = layers(net)
    psi = math.exp(-2)
    for block, where in ((first.weight, (1, slice(None))), (first.weight, (0, 4)), (second.weight, (2, slice(None)))):
        assert torch.allclose(block.alpha[where], torch.tensor(psi), rtol=1e-4)  # the prior itself
        assert torch.allclose(block.sigma[where], torch.tensor(1.0), rtol=1e-5)
        assert float(block.mu[where].detach().abs().max()) == 0.0
    assert float(third.weight.alpha.detach()[:, 2].max()) < 1e-12  # what the dead send is out
    assert float(second.weight.alpha.detach()[[0, 1, 3], 1].max()) < 1e-12
    assert float(cut.optimiser.state[first.weight.mu]["exp_avg"][1].abs().max()) == 0.0


@pytest.mark.parametrize("skip", [False, True])
def test_what_the_small_network_learns_comes_back_in_full_shape(skip: bool) -> None:
    net = network(skip=skip)
    cut = cutter(net)
    x, y = data()
    cut.cut(x, y, 100, sn.local, 3)
    for step in range(3):
        terms = elbo(cut.small, net.likelihood, cut.columns(x), y, n=100, seed=step)
        cut.small_optimiser.zero_grad()
        (terms.kl - terms.log_likelihood).backward()  # type: ignore[no-untyped-call]
        cut.small_optimiser.step()
    cut.put_back()
    torch.testing.assert_close(cut.small(cut.columns(x)), net(x), rtol=1e-5, atol=1e-5)
    for parameter in net.parameters():
        assert cut.optimiser.state[parameter]["exp_avg"].shape == parameter.shape
    small = next(part for part in cut.small if isinstance(part, Linear))  # type: ignore[attr-defined]
    state = cut.optimiser.state[layers(net)[0].weight.mu]
    own = cut.small_optimiser.state[small.weight.mu]
    assert float(state["step"]) == float(own["step"]) == 4
    assert bool((state["exp_avg_sq"][[0, 2, 3, 4]][:, [0, 1, 2, 3, 5]] == own["exp_avg_sq"]).all())


def test_a_fit_that_cuts_learns_as_one_that_does_not(blobs: tuple[Tensor, Tensor]) -> None:
    x, y = blobs
    found = {}
    for every in (2, 0):
        net = sn.mlp((4, 40, 30, 3), seed=1)
        config = sn.TrainConfig(epochs=60, batch_size=50, cut_every=every, lr=5e-3, omega_lr=0.05, schedule="constant")
        history = sn.fit(net, blobs, config)
        found[every] = (sn.accuracy(sn.predict(net, x, draws=20, seed=0), y), history)
        assert float(kl(net).detach()) == pytest.approx(history[-1].kl, rel=0.2)
    assert found[0][1].cuts == ()
    cuts = found[2][1].cuts
    assert cuts
    for first, second in itertools.pairwise(cuts):
        assert all(b <= a for a, b in zip(first.left, second.left, strict=True))
    assert found[2][0] > 0.75
    assert abs(found[2][0] - found[0][0]) < 0.05


def test_what_cannot_be_cut_is_left_whole() -> None:
    assert can_cut(sn.mlp((4, 3, 2)))
    assert not can_cut(sn.mlp((4, 3, 2), prior=sn.Prior(psi=sn.Beta())))
    assert not can_cut(sn.mlp((4, 3, 2), prior=sn.Prior(sigma_beta="learned")))
    assert not can_cut(sn.mlp((4, 3, 2), method="gaussian"))
    assert not can_cut(sn.mlp((4, 3, 2), method="deterministic"))
    assert not can_cut(sn.convnet((1, 8, 8), 3, prior=sn.Prior(psi=sn.Beta())))


def test_where_skips_carry_all_there_is_a_unit_stays() -> None:
    net = sn.mlp((6, 5, 4, 3), skip=True)
    _, second, third = layers(net)
    with torch.no_grad():
        second.weight.omega[:, :5] = third.weight.omega[:, :4] = -15.0  # type: ignore[index]
    cut = cutter(net)
    record = cut.cut(*data(), 100, sn.local, 3)
    assert record is not None
    assert record.left == (6, 1, 1, 3)
    x = data()[0]
    torch.testing.assert_close(cut.small(cut.columns(x)), net(x), rtol=1e-5, atol=1e-5)


def test_small_networks_are_not_cut_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert not can_cut(sn.mlp((20, 50, 3)))
    assert can_cut(sn.mlp((784, 100, 3)))


def test_forced_inputs_stay() -> None:
    net = network(prior=sn.Prior(include=(4,)))
    assert find_alive(chain_of(net) or [], POWER).inputs[4]
    assert EPSILON > 0

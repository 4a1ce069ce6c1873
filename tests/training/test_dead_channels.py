"""Leaving dead channels of convolutions out of the computation: the rest of the network does not notice."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import slabnet as sn
from slabnet.model.drawing import drawable_layers
from slabnet.model.elbo import kl
from slabnet.model.layers import SlabLayer
from slabnet.model.paths import chain_of
from slabnet.training import dead_units
from slabnet.training.dead_units import Cutter, can_cut, find_alive
from slabnet.training.optimiser import make_optimiser


@pytest.fixture(autouse=True)
def _small_networks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_units, "FEWEST", 0)


def layers(net: sn.Network) -> list[SlabLayer]:
    return list(drawable_layers(net).values())  # type: ignore[arg-type]


def network(**options: object) -> sn.Network:
    """2 channels of 10 x 10, maps of 3 and 4 channels, 5 units: channel 2 and unit 3 send nothing, nor does channel 1
    of the first map, which sends to that one only."""
    given: dict[str, object] = {"channels": (3, 4), "kernel_size": 3, "hidden": (5,)}
    net = sn.convnet((2, 10, 10), 3, **(given | options))  # type: ignore[arg-type]
    _, second, third, fourth = layers(net)
    with torch.no_grad():
        fourth.weight.omega[:, 3] = -15.0  # type: ignore[index]
        places = third.weight.mu.shape[1] // 4
        third.weight.omega[:, 2 * places : 3 * places] = -15.0  # type: ignore[index]
        second.weight.omega[:, 1] = -15.0  # type: ignore[index]
        second.weight.omega[2, 1, 0, 0] = 5.0  # type: ignore[index]
    return net


def data() -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    return torch.randn(40, 2, 10, 10, generator=g), torch.randint(0, 3, (40,), generator=g)


def cutter(net: sn.Network) -> Cutter:
    optimiser = make_optimiser(net, net.likelihood, sn.TrainConfig(), omega=True)
    for parameter in net.parameters():
        optimiser.state[parameter] = {
            "step": torch.tensor(1.0),
            "exp_avg": torch.rand_like(parameter),
            "exp_avg_sq": torch.rand_like(parameter),
        }
    return Cutter(net, net.likelihood, optimiser, sn.TrainConfig(), None)


def test_dead_channels_are_found_behind_pooling_and_flattening() -> None:
    alive = find_alive(chain_of(network()) or [], None)
    assert alive.inputs.tolist() == [True, True]
    assert [mask.tolist() for mask in alive.units] == [
        [True, False, True],
        [True, True, False, True],
        [True, True, True, False, True],
        [True, True, True],
    ]


@pytest.mark.parametrize("options", [{}, {"padding": "valid"}, {"pool": 1}])
def test_the_small_network_is_the_large_one_without_dead_channels(options: dict[str, object]) -> None:
    net = network(**options)
    cut = cutter(net)
    x, y = data()
    record = cut.cut(x, y, 100, sn.local, 3)
    assert record is not None
    assert record.left == (2, 2, 3, 4, 3)
    assert sum(p.numel() for p in cut.small.parameters()) < sum(p.numel() for p in net.parameters())
    torch.testing.assert_close(cut.small(cut.columns(x)), net(x), rtol=1e-5, atol=1e-5)
    assert float(kl(cut.small).detach()) + cut.kl_outside == pytest.approx(float(kl(net).detach()), rel=1e-5)


def test_what_the_small_network_learned_comes_back() -> None:
    net = network()
    cut = cutter(net)
    x, y = data()
    cut.cut(x, y, 100, sn.local, 3)
    with torch.no_grad():
        for parameter in cut.small.parameters():
            parameter.add_(0.25)
    cut.put_back()
    torch.testing.assert_close(cut.small(x), net(x), rtol=1e-5, atol=1e-5)


def test_a_fit_leaves_dead_channels_out_and_a_stopped_one_goes_on(tmp_path: object) -> None:
    x, y = data()
    config = sn.TrainConfig(epochs=8, batch_size=20, cut_every=2, ramp_epochs=0, omega_hold=0)
    whole = network()
    history = sn.fit(whole, (x, y), config, progress="off")
    assert history.cuts
    assert history.cuts[0].left[1] <= 2

    class Stop(Exception):
        pass

    def stop(epoch: sn.Epoch) -> None:
        if epoch.epoch == 5:
            raise Stop

    resumed = network()
    options = {"checkpoint": str(tmp_path), "progress": "off"}
    with pytest.raises(Stop):
        sn.fit(resumed, (x, y), config, on_epoch=stop, **options)  # type: ignore[arg-type]
    sn.fit(resumed, (x, y), config, resume=True, **options)  # type: ignore[arg-type]
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_networks_of_other_kinds_are_computed_whole() -> None:
    assert can_cut(network())
    assert not can_cut(sn.convnet((2, 10, 10), 3, channels=(3,), hidden=(5,), skip=True))
    assert not can_cut(sn.convnet((2, 10, 10), 3, channels=(3,), hidden=(5,), gates="channels"))

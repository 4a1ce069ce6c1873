"""What a fit says outside of its training rows: nothing new inside, a known variance outside, and what is left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import slabnet as sn
from slabnet.core.noise import keyed_generator
from slabnet.model.beyond import Beyond
from slabnet.model.drawing import Draw, drawing
from slabnet.prediction.beyond import extend

QUICK = sn.TrainConfig(epochs=15, batch_size=40, lr=0.02, omega_lr=0.1)
FAR = torch.tensor([[3.0, 0.0], [0.0, -6.0], [4.0, 5.0]])


def rows(n: int = 80) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.rand(n, 2, generator=generator) - 1
    return x, torch.sin(3 * x[:, :1]) + 0.1 * torch.randn(n, 1, generator=generator)


def fitted(members: int = 1, likelihood: str = "gaussian") -> sn.Network:
    net = sn.mlp((2, 8, 1), likelihood=likelihood, members=members)
    sn.fit(net, rows(), QUICK, progress="off")
    extend(net.double(), rows()[0])
    return net


def made(scale: float = 1.0) -> sn.Network:
    """A network whose terms outside of [-1, 1] have known scales."""
    net = sn.mlp((2, 8, 1), likelihood="gaussian").double()
    beyond = Beyond(2, 1).double()
    for name, value in (("low", -1.0), ("high", 1.0), ("slopes", scale)):
        getattr(beyond, name).fill_(value)
    beyond.slopes[0, 1] = 0.5 * scale
    net.take_beyond(beyond)
    return net


def draws(net: sn.Network, x: torch.Tensor, draw: Draw = sn.exact, count: int = 1) -> torch.Tensor:
    each = []
    for r in range(count):
        with torch.no_grad(), drawing(net, draw, keyed_generator(0, "draw", r), r):
            each.append(net(x.double()))
    return torch.stack(each)


def without(net: sn.Network) -> sn.Network:
    """The same network as it is without anything outside."""
    other = made(0.0)
    other.load_state_dict(
        {name: value for name, value in net.state_dict().items() if "beyond" not in name}, strict=False
    )
    return other


def test_inside_nothing_changes_and_outside_the_variance_is_the_sum_of_squares() -> None:
    net = made()
    inside = torch.tensor([[1.0, -1.0], [0.3, 0.9]])
    assert torch.equal(draws(net, inside, count=5), draws(without(net), inside, count=5))
    more = draws(net, FAR, count=1000) - draws(without(net), FAR, count=1000)
    wanted = torch.tensor([2.0**2, (0.5 * 5) ** 2, 3.0**2 + (0.5 * 4) ** 2], dtype=torch.float64)
    torch.testing.assert_close(more.var(0)[:, 0], wanted, rtol=5 * (2 / 1000) ** 0.5, atol=0)
    assert float((more.mean(0)[:, 0].abs() / wanted.sqrt()).max()) < 5 / 1000**0.5
    together = torch.corrcoef(more[:, :, 0].T)[0, 2]
    assert float(together) == pytest.approx(2 * 3 / (4 * 13) ** 0.5, abs=0.05)  # one draw of b for all rows


def test_chunks_of_rows_see_one_draw() -> None:
    x = torch.cat([rows()[0], FAR]).double()
    net = made()
    torch.testing.assert_close(sn.predict(net, x, 6, chunk=7).mean, sn.predict(net, x, 6).mean)


@pytest.mark.parametrize("draw", [sn.mean, sn.median, sn.median_drawn, sn.local, sn.relaxed(0.5)])
def test_training_and_single_networks_are_as_they_were(draw: Draw) -> None:
    net = made()
    assert torch.equal(draws(net, FAR, draw), draws(without(net), FAR, draw))


def test_a_chosen_model_has_no_part_of_it() -> None:
    net = made()
    chosen = sn.median_model(net, infeasible="path")
    fixed = sn.fixed(chosen.masks, sn.exact)
    assert torch.equal(draws(net, FAR, fixed), draws(without(net), FAR, fixed))


def test_bounds_are_those_of_the_weights() -> None:
    net = made()
    x, y = (part.double() for part in rows(40))
    x = x.clamp(-0.9, 0.9)
    assert torch.equal(sn.kl(net), sn.kl(without(net)))
    assert sn.log_evidence(net, (x, y), draws=10, groups=10) == sn.log_evidence(
        without(net), (x, y), draws=10, groups=10
    )
    assert sn.pareto_k(net, (x, y), draws=100) == sn.pareto_k(without(net), (x, y), draws=100)


@pytest.mark.parametrize("members", [1, 2])
def test_the_epistemic_part_grows_with_distance_and_a_file_keeps_it(members: int, tmp_path: Path) -> None:
    net = fitted(members)
    far = torch.tensor([[sign * times, 0.0] for times in (1.0, 2.0, 4.0, 8.0) for sign in (-1, 1)])
    spread = sn.predict(net, far, 200).epistemic
    assert spread is not None
    by_distance = spread.sqrt()[:, 0].reshape(4, 2).mean(1)
    assert bool((by_distance.diff() > 0).all())
    assert float(by_distance[2]) > 1
    sn.save(net, tmp_path / "m.slab")
    back = sn.load(tmp_path / "m.slab")
    assert torch.equal(sn.predict(back, far, 20).mean, sn.predict(net, far, 20).mean)


def test_a_linear_model_goes_on_as_it_is() -> None:
    net = sn.mlp((2, 1), likelihood="gaussian")
    extend(net, rows()[0])
    assert net.beyond is not None
    assert float(net.beyond.slopes.max()) == 0


def test_where_an_output_is_a_logarithm_it_is_left_out() -> None:
    net = sn.mlp((2, 8, 1), likelihood="poisson")
    extend(net, rows()[0])
    assert net.beyond is None
    both = sn.mlp((2, 8, 2), likelihood="heteroscedastic", prior=sn.Prior(psi=0.9))
    extend(both, rows()[0])
    assert both.beyond is not None
    assert (both.beyond.slopes > 0).any(1).tolist() == [True, False]
    dropped = sn.mlp((2, 8, 1), method="mc-dropout", likelihood="gaussian")
    extend(dropped, rows()[0])
    assert dropped.beyond is None


def test_more_rows_widen_the_range() -> None:
    net = fitted()
    extend(net, 2 * rows()[0] + 1)
    assert net.beyond is not None
    x = rows()[0].double()
    torch.testing.assert_close(net.beyond.low, x.min(0).values.minimum((2 * x + 1).min(0).values))
    torch.testing.assert_close(net.beyond.high, (2 * x + 1).max(0).values)


@pytest.mark.parametrize("seed", range(2))
def test_estimators_are_less_sure_the_farther_away(seed: int) -> None:
    """A sine with a gap, through what a user calls; `python -m benchmarks.calibration` has whole fits."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.uniform(-2, -0.6, 60), rng.uniform(0.6, 2, 60)])[:, None]
    y = np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=120)
    model = sn.SlabRegressor(hidden=(20,), epochs=100, random_state=seed).fit(x, y)
    far = np.array([[sign * times * np.abs(x).max()] for times in (2, 4, 8) for sign in (-1, 1)])
    low, high = model.predict_interval(far)
    assert (np.diff((high - low).reshape(3, 2).mean(1)) > 0).all()

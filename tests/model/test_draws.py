"""What a forward pass draws: moments against sampling, and the rules of a drawing block."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor, nn

import slabnet as sn
from slabnet.model.drawing import Draw, drawable_layers, scope_of
from slabnet.model.layers import SlabLayer
from slabnet.model.posteriors import Gaussian, SpikeSlab

TRAINING: list[Draw] = [sn.local, sn.relaxed(0.5), sn.straight_through(0.5), sn.score]
PREDICTION: list[Draw] = [sn.exact, sn.median, sn.median_drawn, sn.mean]
MAPS = {
    "linear": (lambda **o: sn.Linear(5, 3, **o), (6, 5)),
    "conv1d": (lambda **o: sn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2, **o), (6, 4, 9)),
    "conv2d": (lambda **o: sn.Conv2d(2, 3, (3, 1), padding="same", padding_mode="reflect", **o), (6, 2, 5, 4)),
    "conv3d": (lambda **o: sn.Conv3d(1, 2, 2, padding=1, **o), (6, 1, 3, 3, 2)),
}


def net_under(net: nn.Module, draw: Draw) -> None:
    with sn.drawing(net, draw):
        pass


def spread_out(layer: SlabLayer) -> SlabLayer:
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for block in layer.blocks():
            block.mu.normal_(0, 1, generator=generator)
            block.rho.uniform_(-2, 0, generator=generator)
            if block.omega is not None:
                block.omega.uniform_(-2, 2, generator=generator)
    return layer


@pytest.mark.parametrize("kind", MAPS)
@pytest.mark.parametrize("posterior", [SpikeSlab, Gaussian])
@pytest.mark.parametrize("draw", TRAINING + PREDICTION, ids=lambda d: repr(d))
def test_every_draw_with_every_layer(kind: str, posterior: type, draw: Draw) -> None:
    make, shape = MAPS[kind]
    layer = spread_out(make(posterior=posterior))
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    with sn.drawing(layer, draw, 1):
        first = layer(x)
    with sn.drawing(layer, draw, 1):
        again = layer(x)
    with sn.drawing(layer, draw, 2):
        other = layer(x)
    assert torch.equal(first, again)
    assert torch.equal(first, other) != draw.random
    loss = first.square().sum() + layer.kl()
    loss.backward()
    for parameter in layer.parameters():
        assert parameter.grad is None or bool(torch.isfinite(parameter.grad).all())


@pytest.mark.parametrize("kind", MAPS)
def test_local_has_the_moments_of_the_exact_draw(kind: str) -> None:
    """Mean and variance of each pre-activation over many draws, within five standard errors."""
    make, shape = MAPS[kind]
    layer = spread_out(make()).double()
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)[:2]
    samples: dict[str, Tensor] = {}
    draws = 3000
    with torch.no_grad():
        for name, draw in (("local", sn.local), ("exact", sn.exact)):
            outs = []
            generator = torch.Generator().manual_seed(5)
            for _ in range(draws):
                with sn.drawing(layer, draw, generator):
                    outs.append(layer(x).flatten())
            samples[name] = torch.stack(outs)
    a, b = samples["local"], samples["exact"]
    error = ((a.var(0) + b.var(0)) / draws).sqrt()
    assert float(((a.mean(0) - b.mean(0)).abs() / error).max()) < 5
    squares = [(s - s.mean(0)) ** 2 for s in (a, b)]
    error = (sum(s.var(0) for s in squares) / draws).sqrt()  # type: ignore[union-attr]
    assert float(((squares[0].mean(0) - squares[1].mean(0)).abs() / error).max()) < 5


def test_a_convolution_is_torch_s_own_at_its_means() -> None:
    for plain, ours in (
        (nn.Conv1d(4, 6, 3, 2, 2, 2, 2), sn.Conv1d(4, 6, 3, 2, 2, 2, 2)),
        (nn.Conv2d(2, 4, (3, 5), 1, "same", (2, 1)), sn.Conv2d(2, 4, (3, 5), 1, "same", (2, 1))),
        (
            nn.Conv2d(2, 4, 3, padding=2, padding_mode="circular"),
            sn.Conv2d(2, 4, 3, padding=2, padding_mode="circular"),
        ),
        (nn.Conv3d(2, 2, 2, padding=1, bias=False), sn.Conv3d(2, 2, 2, padding=1, bias=False)),
    ):
        ours.set_means(plain.weight, plain.bias)
        with torch.no_grad():
            for block in ours.blocks():
                assert block.omega is not None
                block.omega.fill_(1e4)
        x = torch.randn(3, plain.in_channels, *(7 for _ in plain.kernel_size))
        torch.testing.assert_close(ours(x), plain(x))


def test_outside_a_block_a_layer_gives_its_posterior_mean() -> None:
    layer = spread_out(sn.Linear(3, 2))
    x = torch.ones(1, 3)
    weight, bias = layer.weight, layer.bias
    assert bias is not None
    torch.testing.assert_close(layer(x), x @ (weight.alpha * weight.mu).T + bias.alpha * bias.mu)


def test_a_block_is_restored_after_an_error_and_nests() -> None:
    layer = spread_out(sn.Linear(3, 2))
    with pytest.raises(RuntimeError, match="inside"), sn.drawing(layer, sn.exact, 0):
        with sn.drawing(layer, sn.median):
            assert scope_of(layer).draw == sn.median
        assert scope_of(layer).draw == sn.exact
        raise RuntimeError("inside")
    assert scope_of(layer).draw == sn.mean


def test_one_block_is_one_draw() -> None:
    """A layer used twice, and rows in chunks, see the same weights."""
    layer = spread_out(sn.Linear(3, 3))
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    with sn.drawing(layer, sn.exact, 0):
        whole = layer(x)
        parts = torch.cat([layer(rows) for rows in x.split(3)])
    torch.testing.assert_close(whole, parts)


def test_parameters_must_not_change_inside_a_block() -> None:
    layer = spread_out(sn.Linear(3, 2))
    with sn.drawing(layer, sn.exact, 0):
        layer(torch.ones(1, 3))
        with torch.no_grad():
            layer.weight.mu.add_(1.0)
        with pytest.raises(sn.ArgumentError, match="open a new block for each training step"):
            layer(torch.ones(1, 3))


def test_random_draws_need_a_seed() -> None:
    with (
        pytest.raises(sn.ArgumentError, match="drawing: seed must be a generator or a whole number"),
        sn.drawing(sn.Linear(2, 2), sn.exact),
    ):
        pass


def test_threads_do_not_see_each_other_s_draw() -> None:
    layer = spread_out(sn.Linear(3, 2))
    inside, done = threading.Event(), threading.Event()
    seen: list[Draw] = []

    def other() -> None:
        inside.wait(10)
        seen.append(scope_of(layer).draw)
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with sn.drawing(layer, sn.exact, 0):
        inside.set()
        done.wait(10)
    thread.join()
    assert seen == [sn.mean]


def test_fixed_masks_decide_gamma_for_any_draw() -> None:
    net = sn.mlp((4, 3, 2))
    masks = {
        name: tuple(torch.rand(b.mu.shape, generator=torch.Generator().manual_seed(i)) > 0.5 for b in layer.blocks())
        for i, (name, layer) in enumerate(drawable_layers(net).items())
    }
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    with sn.drawing(net, sn.fixed(masks)):
        ours = net(x)
    first, last = net.body[1], net.body[3]
    with torch.no_grad():
        w1, b1 = masks["body.1"]
        w2, b2 = masks["body.3"]
        hidden = torch.relu(x @ (first.weight.mu * w1).T + first.bias.mu * b1)
        torch.testing.assert_close(ours, hidden @ (last.weight.mu * w2).T + last.bias.mu * b2)
    for base in (sn.exact, sn.local, sn.relaxed(0.3), sn.straight_through(0.3)):
        with sn.drawing(net, sn.fixed(masks, base), 0) as scope:
            net(x)
            if base.draws_weights:
                assert torch.equal(scope.used(first), w1)
    with pytest.raises(sn.ArgumentError, match=r"fixed: masks must be for the layers body.1, body.3, got body.1"):
        net_under(net, sn.fixed({"body.1": masks["body.1"]}))
    with pytest.raises(sn.ArgumentError, match=r"fixed: masks\[body.1\] must be of shapes"):
        net_under(net, sn.fixed({"body.1": masks["body.3"], "body.3": masks["body.1"]}))


@pytest.mark.parametrize("delta", [0.0, -1.0, float("nan")])
def test_bad_temperatures(delta: float) -> None:
    with pytest.raises(sn.ArgumentError, match="delta must be a number above 0"):
        sn.relaxed(delta)


def test_extreme_posteriors_are_finite_under_every_draw() -> None:
    layer = sn.Linear(4, 3)
    x = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, -1.0, 1e3, 1e-3]])
    for omega, rho in ((1e4, -69.08), (-1e4, -69.08), (1e4, -1e4), (-1e4, 30.0)):
        with torch.no_grad():
            for block in layer.blocks():
                assert block.omega is not None
                block.omega.fill_(omega)
                block.rho.fill_(rho)
        for draw in TRAINING + PREDICTION:
            layer.zero_grad()
            with sn.drawing(layer, draw, 3):
                out = layer(x)
            (out.sum() + layer.kl()).backward()
            assert bool(torch.isfinite(out).all())
            for parameter in layer.parameters():
                assert parameter.grad is None or bool(torch.isfinite(parameter.grad).all())


def test_training_the_means_by_mistake_is_said() -> None:
    net, x = sn.mlp((3, 2), seed=0), torch.ones(4, 3)
    with pytest.warns(UserWarning, match="called outside `drawing`: this trains the posterior means alone"):
        net(x).sum().backward()
    with sn.drawing(net, sn.relaxed(0.5), 0):
        net(x).sum().backward()
    net.eval()(x).sum().backward()

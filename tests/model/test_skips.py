"""Input-skip networks: every pass against the formula written out, every path against all of them walked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.chosen import random_model
from torch import Tensor
from torch.nn.functional import linear

import slabnet as sn
from slabnet.kernels import passes
from slabnet.model.drawing import drawable_layers
from slabnet.model.elbo import elbo, kl
from slabnet.model.layers import SlabLayer
from slabnet.model.paths import cheapest_path, find_paths

DRAWS = (sn.relaxed(0.5), sn.straight_through(0.5), sn.exact, sn.median, sn.mean)


def layers(net: sn.Network) -> list[SlabLayer]:
    return [layer for layer in drawable_layers(net).values() if isinstance(layer, SlabLayer)]


def by_hand(x: Tensor, weights: list[tuple[Tensor, Tensor]]) -> Tensor:
    """h_l = tanh(W_l [h_{l-1}; x] + b_l), the last layer without activation."""
    out = x
    for index, (weight, bias) in enumerate(weights):
        if index:
            out = torch.cat([torch.tanh(out), x], 1)
        out = linear(out, weight, bias)
    return out


@pytest.mark.parametrize("draw", DRAWS, ids=lambda draw: draw.name)
def test_the_outputs_are_those_of_the_formula(draw: sn.Draw) -> None:
    net = sn.mlp((4, 6, 5, 2), skip=True, activation="tanh").double()
    x = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), sn.drawing(net, draw, 3 if draw.random else None) as scope:
        got = net(x)
        drawn = [tuple(one.value for one in scope.weights(layer)) for layer in layers(net)]
    torch.testing.assert_close(got, by_hand(x, drawn))  # type: ignore[arg-type]
    assert [tuple(weight.shape) for weight, _ in drawn] == [(6, 4), (5, 10), (2, 9)]


def test_local_draws_have_the_moments_of_the_layer_that_reads_units_and_inputs() -> None:
    net = sn.mlp((3, 4, 2), skip=True, likelihood="gaussian").double()
    x = torch.randn(1, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).expand(40_000, 3)
    first, last = layers(net)
    with torch.no_grad(), sn.drawing(net, sn.local, 1):
        out = net(x)
    with torch.no_grad(), sn.drawing(net, sn.local, 1):
        units = torch.relu(first(x))  # the same noise: the first layer draws first
    read = torch.cat([units, x], 1)
    a, mu, sigma = last.alpha.detach(), last.weight.mu.detach(), last.weight.sigma.detach()
    bias = last.bias
    assert bias is not None
    mean = read @ (a * mu).T + (bias.alpha * bias.mu).detach()
    own = (bias.alpha * (bias.sigma**2 + (1 - bias.alpha) * bias.mu**2)).detach()
    variance = (read**2) @ (a * (sigma**2 + (1 - a) * mu**2)).T + own
    scaled = (out - mean) / variance.sqrt()
    assert float(scaled.mean(0).abs().max()) < 4 / math.sqrt(len(x))
    assert float((scaled.var(0) - 1).abs().max()) < 4 * math.sqrt(2 / len(x))


@pytest.mark.parametrize("draw", [sn.local, sn.relaxed(0.5), sn.straight_through(0.5)], ids=lambda draw: draw.name)
def test_the_compiled_passes_give_the_bound_and_the_gradients_of_the_torch_ones(draw: sn.Draw) -> None:
    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
    y = torch.arange(9) % 2
    found = []
    for kind in ("torch", "auto"):
        net = sn.mlp((4, 6, 5, 2), skip=True, prior=sn.Prior(psi=(0.25, 0.5, 0.5)))
        with passes(kind):  # type: ignore[arg-type]
            terms = elbo(net, net.likelihood, x, y, n=90, seed=3, draw=draw)
            (terms.kl - terms.log_likelihood).backward()  # type: ignore[no-untyped-call]
        found.append([terms.kl, terms.log_likelihood, *(p.grad for p in net.parameters())])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("prior", "first", "units", "again"),
    [
        (sn.Prior(psi=(0.25, 0.5, 0.5)), [0.25] * 3, 0.5, [0.25] * 3),
        (sn.Prior(psi=0.1), [0.1] * 3, 0.1, [0.1] * 3),
        (sn.Prior(psi=(0.25, 0.5, 0.5), skip_psi=0.05), [0.25] * 3, 0.5, [0.05] * 3),
        (sn.Prior(psi=0.5, skip_psi=(0.1, 0.2, 0.3)), [0.5] * 3, 0.5, [0.1, 0.2, 0.3]),
        (sn.Prior(psi=0.5, input_psi=(0.1, 0.2, 0.3)), [0.1, 0.2, 0.3], 0.5, [0.1, 0.2, 0.3]),
    ],
)
def test_each_kind_of_column_has_its_psi(prior: sn.Prior, first: list[float], units: float, again: list[float]) -> None:
    net = sn.mlp((3, 4, 4, 2), skip=True, prior=prior).double()
    want = [torch.tensor(first).expand(4, 3), torch.tensor([units] * 4 + again).expand(4, 7)]
    want += [torch.tensor([units] * 4 + again).expand(2, 7)]
    total = torch.zeros(())
    for layer, psi, own in zip(layers(net), want, prior_of_intercepts(prior), strict=True):
        got = layer.prior.psi_now(layer.blocks()).expand_as(layer.weight.mu)
        torch.testing.assert_close(got, psi.double(), rtol=1e-6, atol=0)
        for block, chance in ((layer.weight, psi.double()), (layer.bias, torch.tensor(own).double())):
            assert block is not None
            a, m, s = block.alpha, block.mu, block.sigma
            on = torch.log(a / chance) - torch.log(s) - 0.5 + (s**2 + m**2) / 2
            total = total + (a * on + (1 - a) * torch.log((1 - a) / (1 - chance))).sum()
    torch.testing.assert_close(kl(net), total, rtol=1e-6, atol=1e-6)


def prior_of_intercepts(prior: sn.Prior) -> list[float]:
    return [float(prior.inclusion(index, 3)) for index in range(3)]  # type: ignore[arg-type]


def test_a_learned_psi_is_that_of_the_columns_without_one_of_their_own() -> None:
    prior = sn.Prior(psi=sn.Beta(a=1.0, b=3.0), skip_psi=0.125)
    net = sn.mlp((3, 4, 2), skip=True, prior=prior).double()
    last = layers(net)[1]
    with torch.no_grad():
        last.weight.omega.normal_(generator=torch.Generator().manual_seed(0))  # type: ignore[union-attr]
    assert last.bias is not None
    alphas = torch.cat([last.alpha[:, :4].flatten(), last.bias.alpha])
    a, b = 1 + alphas.sum(), 3 + (1 - alphas).sum()
    on = torch.digamma(a) - torch.digamma(b)
    psi = last.prior.psi_now(last.blocks()).expand_as(last.weight.mu)
    torch.testing.assert_close(psi[:, :4], torch.sigmoid(on).expand(2, 4))
    torch.testing.assert_close(psi[:, 4:], torch.full((2, 3), 0.125, dtype=torch.float64))


def test_pinned_inputs_are_pinned_in_every_copy() -> None:
    net = sn.mlp((3, 4, 2), skip=True, prior=sn.Prior(include=(0,), exclude=(2,)))
    for layer, last in zip(layers(net), (slice(0, 3), slice(4, 7)), strict=True):
        assert bool((layer.alpha[:, last][:, 0] == 1).all())
        assert bool((layer.alpha[:, last][:, 2] == 0).all())
        assert bool(((layer.alpha[:, last][:, 1] > 0) & (layer.alpha[:, last][:, 1] < 1)).all())
    assert not bool(sn.median_model(net).inputs[2])  # type: ignore[index]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"skip": 1}, "skip must be True or False"),
        ({"skip": True, "prior": sn.Prior(skip_psi=(0.1, 0.2))}, "one number for each of the 3 inputs"),
    ],
)
def test_bad_calls(options: dict[str, object], said: str) -> None:
    with pytest.raises(sn.ArgumentError, match=said):
        sn.mlp((3, 4, 2), **options)  # type: ignore[arg-type]
    with pytest.raises(sn.ArgumentError, match="skip_psi must be a number above 0 and below 1"):
        sn.Prior(skip_psi=1.5)


Path_ = list[tuple[int, int, int]]  # (layer, unit, column) from the entry on


def every_path(masks: list[Tensor], inputs: int) -> Iterator[tuple[int, Path_]]:
    """(input, weights) of every path, walked back from the outputs, one weight after the other."""

    def back(layer: int, unit: int) -> Iterator[tuple[int, Path_]]:
        units = masks[layer].shape[1] - (inputs if layer else 0)
        for column in masks[layer][unit].nonzero().flatten().tolist():
            step = (layer, unit, column)
            if layer == 0 or column >= units:
                yield (column if layer == 0 else column - units), [step]
            else:
                for source, walked in back(layer - 1, column):
                    yield source, [*walked, step]

    for unit in range(len(masks[-1])):
        yield from back(len(masks) - 1, unit)


@given(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4), share=st.floats(0, 0.7), seed=st.integers(0, 9999))
@settings(max_examples=80, deadline=None)
def test_paths_are_those_one_can_walk(sizes: list[int], share: float, seed: int) -> None:
    net = sn.mlp(sizes, skip=True, likelihood="gaussian")
    chosen = random_model(net, share, seed)
    masks = [mask[0] for mask in chosen.masks.values()]
    paths = find_paths(net, chosen.masks)
    assert paths is not None
    walked = list(every_path(masks, sizes[0]))
    active = [torch.zeros_like(mask) for mask in masks]
    for _, steps in walked:
        for layer, unit, column in steps:
            active[layer][unit, column] = True
    for got, want in zip(paths.active.values(), active, strict=True):
        assert torch.equal(got, want)
    assert {tuple(pair) for pair in paths.reach.nonzero().tolist()} == {(s[-1][1], source) for source, s in walked}
    assert paths.depth == max((len(steps) for _, steps in walked), default=0)
    for source in range(sizes[0]):
        lengths = {len(steps) for at, steps in walked if at == source}
        assert bool(paths.inputs[source]) == bool(lengths)
        assert bool(paths.linear[source]) == (lengths == {1})
    assert (paths.broken is None) == bool(walked)


@given(sizes=st.lists(st.integers(1, 3), min_size=2, max_size=4), seed=st.integers(0, 9999))
@settings(max_examples=60, deadline=None)
def test_the_cheapest_path_is_the_cheapest_of_all(sizes: list[int], seed: int) -> None:
    net = sn.mlp(sizes, skip=True, likelihood="gaussian").double()
    chosen = random_model(net, 0.2, seed)
    generator = torch.Generator().manual_seed(seed)
    price = []
    with torch.no_grad():
        for layer, mask in zip(layers(net), chosen.masks.values(), strict=True):
            layer.weight.omega.normal_(-1, 1, generator=generator)  # type: ignore[union-attr]
            price.append((-layer.weight.omega).clamp_min(0).masked_fill(mask[0], 0.0))  # type: ignore[operator]

    def cost(steps: Path_) -> float:
        return sum(float(price[layer][unit, column]) for layer, unit, column in steps)

    everything = [torch.ones_like(mask[0]) for mask in chosen.masks.values()]
    for output in (None, *range(sizes[-1])):
        walks = [steps for _, steps in every_path(everything, sizes[0]) if output in (None, steps[-1][1])]
        added = cheapest_path(net, chosen.masks, output)
        assert added is not None
        steps = [(i, *place) for i, mask in enumerate(added.values()) for place in mask.nonzero().tolist()]
        assert sorted(steps) in [sorted(walk) for walk in walks]
        assert cost(steps) == pytest.approx(min(map(cost, walks)), abs=1e-12)  # type: ignore[arg-type]


def test_median_most_probable_and_budget_models() -> None:
    net = sn.mlp((3, 4, 2), skip=True)
    with torch.no_grad():
        for layer in layers(net):
            layer.weight.omega.fill_(-4.0)  # type: ignore[union-attr]
        last = layers(net)[1]
        last.weight.omega[1, 4 + 2] = 3.0  # type: ignore[index]
    chosen = sn.median_model(net)
    assert (chosen.weights, chosen.unreachable, chosen.inputs.tolist()) == (1, (0,), [False, False, True])  # type: ignore[union-attr]
    full = sn.most_probable_model(net, every_output=True)
    assert full.weights == 2  # a skip from any input is the shortest way
    assert full.unreachable == ()
    assert sn.budget_model(net, weights=1).weights == 1


@pytest.mark.parametrize("kind", ["mlp", "convnet", "small means", "small distribution"])
def test_files_give_what_was_saved(kind: str, tmp_path: Path) -> None:
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    net: sn.Network = sn.mlp((4, 6, 5, 2), skip=True, prior=sn.Prior(skip_psi=0.1))
    if kind == "convnet":
        net, x = sn.convnet((1, 4, 4), 2, channels=(2,), hidden=(3, 3), skip=True), x.repeat(1, 4).reshape(5, 1, 4, 4)
    chosen = random_model(net, 0.4, 1)
    saved = net if not kind.startswith("small") else sn.compact(net, chosen, kind.split()[1])  # type: ignore[arg-type]
    sn.save(saved, tmp_path / "m.slab")
    back = sn.load(tmp_path / "m.slab")
    draw = {"draw": sn.exact, "seed": 1}
    want, got = (sn.predict(one, x, 3, **draw).mean for one in (saved, back))  # type: ignore[arg-type]
    torch.testing.assert_close(got, want)
    if kind == "mlp":
        assert sn.read_header(tmp_path / "m.slab")["network"]["skip"] is True
        assert [layer.prior.spec() for layer in layers(back)] == [layer.prior.spec() for layer in layers(net)]  # type: ignore[arg-type]


def test_every_method_can_be_built_with_skips() -> None:
    from slabnet.config.methods import METHODS

    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    for method in METHODS:
        net = sn.mlp((3, 5, 5, 2), method=method, skip=True)
        sn.fit(net, (x, torch.arange(20) % 2), sn.TrainConfig(epochs=1, batch_size=10, draw="relaxed"), progress="off")
        assert sn.predict(net, x, 2, seed=0).mean.shape == (20, 2)


def test_a_linear_relation_takes_a_weight_for_each_input() -> None:
    """The reason to be: plain networks spend many weights on what a straight line says."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 6, generator=generator)
    y = x @ torch.tensor([[1.0], [-0.7], [0.5], [0.0], [0.0], [0.0]]) + 0.3 * torch.randn(400, 1, generator=generator)
    config = sn.TrainConfig(epochs=250, batch_size=100, lr=0.02, omega_lr=0.05, schedule="cosine")
    found = {}
    for skip in (False, True):
        net = sn.mlp((6, 20, 20, 1), skip=skip, likelihood="gaussian", prior=sn.Prior(psi=(1 / 6, 0.5, 0.5)))
        sn.fit(net, (x, y), config, progress="off")
        found[skip] = sn.median_model(net, infeasible="path")
    assert found[True].weights < 10 <= found[False].weights
    paths = find_paths(net, found[True].masks)
    assert paths is not None
    assert paths.inputs.tolist() == [True] * 3 + [False] * 3
    assert paths.linear.tolist() == [True] * 3 + [False] * 3
    assert paths.depth == 1

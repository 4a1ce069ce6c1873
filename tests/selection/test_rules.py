from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import slabnet as sn
from slabnet.config.slabs import ScaleMixture
from slabnet.model.drawing import drawable_layers
from slabnet.model.paths import find_paths
from slabnet.selection.rules import describe, threshold_model


def random_masks(net: sn.Network, share: float, seed: int) -> dict[str, tuple[Tensor, ...]]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: tuple(torch.rand(block.mu.shape, generator=generator) < share for block in layer.blocks())
        for name, layer in drawable_layers(net).items()
    }


def by_walking(edges: list[Tensor]) -> tuple[list[set[tuple[int, int]]], set[int]]:
    """All complete paths, walked one by one: the weights on them, and the outputs they end in."""
    on_path: list[set[tuple[int, int]]] = [set() for _ in edges]
    ends: set[int] = set()

    def walk(layer: int, unit: int, path: list[tuple[int, int]]) -> None:
        if layer == len(edges):
            ends.add(unit)
            for position, edge in enumerate(path):
                on_path[position].add(edge)
            return
        for target in range(edges[layer].shape[0]):
            if edges[layer][target, unit]:
                walk(layer + 1, target, [*path, (target, unit)])

    for source in range(edges[0].shape[1]):
        walk(0, source, [])
    return on_path, ends


@given(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4), share=st.floats(0, 1), seed=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_paths_of_random_networks_against_walking_them(sizes: list[int], share: float, seed: int) -> None:
    net = sn.mlp(sizes, likelihood="gaussian")
    masks = random_masks(net, share, seed)
    found = find_paths(net, masks)
    assert found is not None
    active, reached = found.active, found.reached
    on_path, ends = by_walking([mask[0] for mask in masks.values()])
    for mask, wanted in zip(active.values(), on_path, strict=True):
        assert {tuple(pair) for pair in mask.nonzero().tolist()} == wanted
    assert set(reached.nonzero().flatten().tolist()) == ends
    chosen = describe(net, masks, "test")
    assert chosen.feasible == bool(ends)
    assert set(chosen.unreachable) == set(range(sizes[-1])) - ends


def test_paths_through_convolutions_and_flattening() -> None:
    net = sn.convnet((1, 4, 4), 2, channels=(2, 3), hidden=())
    masks = random_masks(net, 1.0, 0)
    _first, second, last = (mask[0] for mask in masks.values())
    second[:, 1] = False  # the second map of the first layer is read by nobody
    last[:, 1:2] = False  # 3 channels of 1 x 1: the second one is not read either
    found = find_paths(net, masks)
    assert found is not None
    active, reached = found.active, found.reached
    maps = list(active.values())
    assert maps[0][0].all()
    assert not maps[0][1].any()
    assert not maps[1][1].any()
    assert maps[1][0, 0].all()
    assert reached.all()


def test_densities_count_weights_and_not_intercepts() -> None:
    net = sn.mlp((4, 3, 2))
    with torch.no_grad():
        net.body[1].weight.omega.fill_(-5.0)
        net.body[1].weight.omega[0, 0] = 5.0
        net.body[3].weight.omega.fill_(-5.0)
    with pytest.raises(
        sn.InfeasibleModel, match=r"median model: no input can reach an output, every path ends in body\.3"
    ):
        sn.median_model(net)
    with pytest.warns(UserWarning, match="predicts from intercepts only"):
        chosen = sn.median_model(net, infeasible="allow")
    total = chosen.total
    assert (total.weights, total.intercepts, total.median_weights, total.median_intercepts) == (18, 5, 1, 5)
    assert total.median == 1 / 18
    alpha = torch.cat([net.body[1].weight.alpha.flatten(), net.body[3].weight.alpha.flatten()])
    assert total.expected == pytest.approx(float(alpha.detach().mean()))
    assert total.active == 0.0
    assert chosen.feasible is False
    assert chosen.unreachable == (0, 1)
    assert chosen.layers["body.1"].median == 1 / 12
    assert threshold_model(net, 0.999).weights == 0
    assert sn.median_model(net, 0.0).weights == 18


def test_forced_inputs_count_as_decided() -> None:
    net = sn.mlp((4, 2), prior=sn.Prior(include=(0,), exclude=(1,)))
    with torch.no_grad():
        net.body[1].weight.omega.fill_(-5.0)
    assert sn.median_model(net).masks["body.1"][0].tolist() == [[True, False, False, False]] * 2


@pytest.mark.parametrize("threshold", [1.0, -0.1, float("nan"), "x"])
def test_bad_thresholds(threshold: float) -> None:
    with pytest.raises(sn.ArgumentError, match="threshold must be a number at least 0 and below 1"):
        sn.median_model(sn.mlp((2, 2)), threshold)


def test_a_network_without_indicators_has_nothing_to_select() -> None:
    with pytest.raises(sn.ArgumentError, match="a network with indicators"):
        sn.median_model(sn.mlp((2, 2), method="deterministic"))


def starved(sizes: tuple[int, ...] = (3, 4, 2)) -> sn.Network:
    """A network whose middle is so unlikely that the median model has no path."""
    net = sn.mlp(sizes)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        net.body[1].weight.omega.uniform_(1.0, 2.0, generator=generator)
        net.body[3].weight.omega.uniform_(-4.0, -1.0, generator=generator)
    return net


def test_lowering_takes_the_largest_feasible_threshold() -> None:
    net = starved()
    chosen = sn.median_model(net, infeasible="lower")
    assert chosen.feasible
    last = net.body[3].weight.alpha.detach()
    assert chosen.masks["body.3"][0].sum() == 1
    assert chosen.masks["body.3"][0][last == last.max()].all()
    assert chosen.threshold is not None
    alphas = torch.cat([layer.alpha.detach().flatten() for layer in (net.body[1], net.body[3])]).sort().values
    above = alphas[alphas > chosen.threshold][0]  # one step up and the model breaks
    assert not threshold_model(net, float(above)).feasible


def test_adding_the_most_probable_path() -> None:
    net = starved((3, 4, 3))
    with torch.no_grad():
        net.body[1].weight.omega.fill_(-3.0)
        net.body[1].weight.omega[2, 1] = -0.5
        net.body[3].weight.omega[0, 2] = -0.2
    for chosen in (sn.median_model(net, infeasible="path"), sn.most_probable_model(net)):
        assert chosen.feasible
        assert chosen.weights == 2
        assert chosen.masks["body.1"][0][2, 1]
        assert chosen.masks["body.3"][0][0, 2]
    every = sn.most_probable_model(net, every_output=True)
    assert every.unreachable == ()


@given(seed=st.integers(0, 10_000), sizes=st.lists(st.integers(1, 3), min_size=3, max_size=4))
@settings(max_examples=40, deadline=None)
def test_the_path_is_the_cheapest_of_all(seed: int, sizes: list[int]) -> None:
    """Against walking every path and adding up what its missing weights cost."""
    net = sn.mlp(sizes, likelihood="gaussian")
    generator = torch.Generator().manual_seed(seed)
    layers = [layer for layer in net.body if isinstance(layer, sn.Linear)]
    with torch.no_grad():
        for layer in layers:
            assert layer.weight.omega is not None
            layer.weight.omega.uniform_(-3.0, 0.5, generator=generator)
    before = threshold_model(net)
    chosen = sn.most_probable_model(net)
    costs = [(-layer.weight.omega.detach()).clamp_min(0) for layer in layers]  # type: ignore[operator]

    def cheapest(position: int, unit: int) -> float:
        if position == len(costs):
            return 0.0
        return min(float(costs[position][t, unit]) + cheapest(position + 1, t) for t in range(len(costs[position])))

    wanted = min(cheapest(0, source) for source in range(sizes[0]))
    paid = sum(
        float(cost[chosen.masks[name][0] & ~before.masks[name][0]].sum())
        for cost, name in zip(costs, chosen.masks, strict=True)
    )
    assert chosen.feasible
    assert paid == pytest.approx(0.0 if before.feasible else wanted, abs=1e-5)


def test_a_budget_takes_the_most_probable_weights() -> None:
    net = sn.mlp((5, 4, 3))
    alphas = torch.cat([net.body[1].alpha.flatten(), net.body[3].alpha.flatten()]).detach()
    for count in (2, 7, 32):
        chosen = sn.budget_model(net, weights=count, infeasible="path")
        assert chosen.total.median_weights == count >= chosen.weights
        assert chosen.feasible
    with pytest.warns(UserWarning, match="1 weights hold no path from an input to an output; it has the 2 of one"):
        assert sn.budget_model(net, weights=1, infeasible="path").weights == 2
    chosen = sn.budget_model(net, density=0.5)
    inside = torch.cat([mask[0].flatten() for mask in chosen.masks.values()])
    assert int(inside.sum()) == 16
    assert alphas[inside].min() >= alphas[~inside].max()


@torch.no_grad()
def test_a_path_comes_out_of_the_budget() -> None:
    """The largest alphas lead nowhere: the best path comes first, then as many of them as the budget has left."""
    net = sn.mlp((3, 2, 1), likelihood="gaussian")
    first, second = net.body[1].weight.omega, net.body[3].weight.omega
    first.fill_(-5.0)
    second.fill_(-5.0)
    first[0] = 4.0  # three weights into a unit from which the way on is closed
    second[0, 0], second[0, 1], first[1, 2] = -9.0, -1.0, -1.0
    chosen = sn.budget_model(net, weights=3, infeasible="path")
    assert (chosen.total.median_weights, chosen.feasible, chosen.rule) == (3, True, "budget + path")
    assert chosen.weights == 2  # the third leads nowhere
    inside = [mask[0].tolist() for mask in chosen.masks.values()]
    assert inside[1] == [[False, True]]
    assert inside[0][1] == [False, False, True]
    assert sum(inside[0][0]) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "weights, density must be given one of the two"),
        ({"weights": 3, "density": 0.1}, "given one of the two"),
        ({"weights": 0}, "weights must be a whole number of at least 1, got 0"),
        ({"weights": 99}, "weights must be at most the 6 there are, got 99"),
        ({"density": 1.5}, "density must be a number above 0 and at most 1, got 1.5"),
        ({"weights": 3, "infeasible": "hope"}, "infeasible must be one of raise, path, allow, got 'hope'"),
    ],
)
def test_bad_budgets(options: dict[str, object], said: str) -> None:
    with pytest.raises(sn.ArgumentError, match="budget_model: ") as caught:
        sn.budget_model(sn.mlp((3, 2)), **options)  # type: ignore[arg-type]
    assert said in str(caught.value)


def test_reach_says_which_input_reaches_which_output() -> None:
    net = sn.mlp((3, 2, 2))
    masks = random_masks(net, 0.0, 0)
    masks["body.1"][0][0, 2] = True
    masks["body.1"][0][1, 0] = True
    masks["body.3"][0][1, 0] = True
    chosen = describe(net, masks, "test")
    assert chosen.reach is not None
    assert chosen.reach.tolist() == [[False, False, False], [False, False, True]]
    assert chosen.inputs is not None
    assert chosen.inputs.tolist() == [False, False, True]
    assert chosen.total.active_neurons == 2
    assert (chosen.layers["body.1"].neurons, chosen.layers["body.1"].active_neurons) == (2, 1)


def test_chains_and_what_is_not_one() -> None:
    grouped = torch.nn.Sequential(
        sn.Conv1d(4, 4, 3, groups=2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Sequential(sn.Linear(8, 2))
    )
    masks = {
        name: tuple(torch.ones(b.mu.shape, dtype=torch.bool) for b in layer.blocks())
        for name, layer in drawable_layers(grouped).items()
    }
    masks["3.0"][0][:, 4:] = False  # the second group's channels are read by nobody
    chosen = describe(grouped, masks, "test")
    assert chosen.reach is not None
    assert chosen.reach.tolist() == [[True, True, False, False]] * 2
    assert not chosen.active["0"][2:].any()  # type: ignore[index]
    free = sn.convert(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 2)))
    assert sn.median_model(free).feasible is None
    assert sn.median_model(free).total.active is None


def test_a_selection_saved_and_loaded(tmp_path: Path) -> None:
    net = sn.mlp((4, 3, 2))
    with torch.no_grad():
        net.body[1].weight.omega.uniform_(-2, 2, generator=torch.Generator().manual_seed(1))
    chosen = sn.median_model(net)
    sn.save_selection(chosen, tmp_path / "chosen.slab")
    again = sn.load_selection(tmp_path / "chosen.slab", net)
    assert (again.rule, again.threshold, again.total) == (chosen.rule, chosen.threshold, chosen.total)
    for name, mask in chosen.masks.items():
        assert all(torch.equal(a, b) for a, b in zip(mask, again.masks[name], strict=True))
    with pytest.raises(sn.ArgumentError, match=r"net must be the network .* was chosen from"):
        sn.load_selection(tmp_path / "chosen.slab", sn.mlp((4, 5, 2)))
    sn.save(net, tmp_path / "m.slab")
    with pytest.raises(sn.FileError, match="must hold a selection"):
        sn.load_selection(tmp_path / "m.slab", net)


@torch.no_grad()
def at_rest(net: sn.Network, name: str) -> None:
    """Put every weight of a layer where the prior has it: alpha = psi = 0.5, mu = 0, sigma = sigma_beta = 1."""
    layer = net.get_submodule(name)
    assert isinstance(layer, sn.Linear)
    generator = torch.Generator().manual_seed(0)
    layer.weight.omega.copy_(1e-4 * torch.randn(layer.weight.mu.shape, generator=generator))  # type: ignore[union-attr]
    layer.weight.mu.copy_(1e-4 * torch.randn(layer.weight.mu.shape, generator=generator))
    layer.weight.rho.fill_(math.log(math.e - 1))


@torch.no_grad()
def test_weights_that_rest_at_the_prior_are_in_no_median_model() -> None:
    """psi equals the threshold: half of the alphas lie above it by chance, and none says anything."""
    net = sn.mlp((6, 10, 8, 1), prior=sn.Prior(psi=0.5), likelihood="gaussian")
    at_rest(net, "body.3")
    layer = net.body[3]
    above = int((layer.weight.alpha > 0.5).sum())
    assert 20 < above < 60
    chosen = threshold_model(net)
    assert int(chosen.masks["body.3"][0].sum()) == 0
    assert (chosen.feasible, chosen.broken, chosen.weights, chosen.density) == (False, "body.3", 0, 0.0)
    layer.weight.mu[2, 3], layer.weight.omega[2, 3] = 1.0, 3.0  # the data speak for one of them
    chosen = sn.median_model(net)
    assert chosen.masks["body.3"][0].nonzero().tolist() == [[2, 3]]
    assert chosen.weights == 6 + 1 + 1  # its unit's inputs, itself, and the way on
    assert chosen.total.median_weights == 60 + 1 + 8
    assert sn.predict(net, torch.zeros(3, 6), draw=sn.median_drawn).used_weights == 60 + 1 + 8
    assert torch.equal(chosen.masks["body.3"][0], sn.stability([net, net]).weights["body.3"] > 0)


@torch.no_grad()
def test_where_everything_rests_a_lower_threshold_takes_it_and_a_path_is_added() -> None:
    net = sn.mlp((4, 1), prior=sn.Prior(psi=0.5), likelihood="gaussian")
    at_rest(net, "body.1")
    assert threshold_model(net).weights == 0
    assert sn.median_model(net, infeasible="path").weights == 1
    assert sn.median_model(net, infeasible="lower").feasible


@pytest.mark.parametrize("slab", ["gaussian", ScaleMixture(pi=0.5, variances=(1.0, 0.25))])
def test_the_divergences_of_single_weights_add_up(slab: Any) -> None:
    prior = sn.Prior(psi=0.3, sigma_beta=0.7 if slab == "gaussian" else 1.0, slab=slab)
    for layer in drawable_layers(sn.mlp((5, 4), prior=prior).double()).values():
        assert isinstance(layer, sn.Linear)
        each = layer.prior.weight_kl(layer.blocks())
        torch.testing.assert_close(sum(part.sum() for part in each), layer.kl().detach(), rtol=1e-9, atol=0)


def test_counts_of_an_estimator_are_of_active_weights() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 5))
    model = sn.SlabRegressor(hidden=(10, 10), epochs=100, random_state=0).fit(x, 2 * x[:, 0] - x[:, 1])
    chosen = model.chosen_
    assert chosen.active is not None
    on_paths = sum(int(mask.sum()) for mask in chosen.active.values())
    assert 0 < model.n_weights_ == on_paths < chosen.total.median_weights
    assert model.density_ == on_paths / (50 + (10 + 5) * 10 + 10 + 5)
    found = sn.inspect_network(model.network_)
    assert found["total"]["active_weights"] == on_paths

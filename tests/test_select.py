from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import slabnet as sn
from slabnet.draws import drawable_layers
from slabnet.paths import find_paths
from slabnet.select import describe, threshold_model


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

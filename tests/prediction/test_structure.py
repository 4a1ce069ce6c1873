"""What drawn networks are made of, counted by hand from the same draws."""

from __future__ import annotations

import pytest
import torch

import slabnet as sn
from slabnet.model.drawing import drawable_layers


def network() -> sn.Network:
    """Input 0 only by a skip in the last layer, input 1 only through the hidden layer, input 2 nowhere."""
    net = sn.mlp((3, 4, 1), skip=True, likelihood="gaussian")
    first, last = drawable_layers(net).values()
    with torch.no_grad():
        first.weight.omega.fill_(-30.0)  # type: ignore[union-attr, operator]
        last.weight.omega.fill_(-30.0)  # type: ignore[union-attr, operator]
        last.weight.omega[0, 4] = 30.0  # type: ignore[union-attr, index]
        last.weight.omega[0, 1] = 30.0  # type: ignore[union-attr, index]
        first.weight.omega[1, 1] = 0.0  # type: ignore[union-attr, index]
    return net


def test_shares_of_drawn_networks() -> None:
    found = sn.structure(network(), draws=400, names=["a<b", "b", "c"])
    assert found.used[0] == found.linear[0] == 1.0
    assert abs(found.used[1] - 0.5) < 0.1  # a coin, 400 times
    assert (found.linear[1], found.used[2], found.linear[2]) == (0.0, 0.0, 0.0)
    assert found.depth[2] == pytest.approx(found.used[1])
    assert sum(found.depth.values()) == pytest.approx(1.0)
    assert "a&lt;b" in found._repr_html_()
    assert str(found).splitlines()[1].split() == ["a<b", "1.00", "1.00"]


def test_bad_calls() -> None:
    with pytest.raises(sn.ArgumentError, match="draws must be a whole number of at least 1"):
        sn.structure(network(), draws=0)
    with pytest.raises(sn.ArgumentError, match="names must be one for each of the 3 inputs, got 1 names"):
        sn.structure(network(), draws=2, names=["a"])

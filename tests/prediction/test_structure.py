"""What drawn networks are made of, counted by hand from the same draws."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import slabnet as sn
from slabnet.cli.app import app
from slabnet.core.noise import keyed_generator
from slabnet.model.drawing import drawable_layers
from slabnet.model.elementwise import Mixed
from slabnet.model.layers import Linear


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
    result = sn.structure(network(), draws=400, names=["a<b", "b", "c"])
    assert result.used[0] == result.linear[0] == 1.0
    assert abs(result.used[1] - 0.5) < 0.1  # a coin, 400 times
    assert (result.linear[1], result.used[2], result.linear[2]) == (0.0, 0.0, 0.0)
    assert result.depth[2] == pytest.approx(result.used[1])
    assert sum(result.depth.values()) == pytest.approx(1.0)
    assert result.width == ({0: pytest.approx(1 - result.used[1]), 1: pytest.approx(result.used[1])},)
    assert result.units == (4,)
    assert result.activations["relu"].share == pytest.approx(result.used[1])
    assert "a&lt;b" in result._repr_html_()
    assert str(result).splitlines()[1].split() == ["a<b", "1.00", "1.00", "-"]
    assert type(result).from_dict(json.loads(json.dumps(result.to_dict()))) == result


def walk(layers: list[Tensor], kinds: list[list[str]], features: int) -> tuple[set[int], set[int], set[frozenset[int]]]:
    """(inputs on a path, those that only meet straight units, pairs that meet in a bent one), path by path."""
    used, bent, met = set[int](), set[int](), dict[tuple[int, int], set[int]]()
    last = len(layers) - 1

    def follow(source: int, at: int, column: int, units: list[tuple[int, int]]) -> None:
        for unit in layers[at][:, column].nonzero()[:, 0].tolist():
            if at == last:
                used.add(source)
                for place in units:
                    if kinds[place[0]][place[1]] != "identity":
                        bent.add(source)
                        met.setdefault(place, set()).add(source)
            else:
                follow(source, at + 1, unit, [*units, (at, unit)])

    for source in range(features):
        follow(source, 0, source, [])
        for at in range(1, len(layers)):
            follow(source, at, layers[at].shape[1] - features + source, [])
    pairs = {frozenset(pair) for together in met.values() for pair in itertools.combinations(sorted(together), 2)}
    return used, used - bent, pairs


def test_all_of_it_against_walking_along_every_path() -> None:
    net = sn.mlp((5, 6, 4, 2), skip=True, activation=("relu", "identity"), gates="inputs", psi_gate=0.5)
    source = torch.Generator().manual_seed(4)
    layers = [layer for layer in drawable_layers(net).values() if isinstance(layer, Linear)]
    with torch.no_grad():
        for layer in layers:
            assert layer.weight.omega is not None
            layer.weight.omega.normal_(-1.5, 1.0, generator=source)
    draws = 40
    result = sn.structure(net, draws, seed=7)
    kinds = [part.of_units() for part in net.modules() if isinstance(part, Mixed)]
    used, linear, pairs = np.zeros(5), np.zeros(5), np.zeros((5, 5))
    for r in range(draws):
        with torch.no_grad(), sn.drawing(net, sn.exact, keyed_generator(7, "draw", r), r) as scope:
            masks = [scope.used(layer) for layer in layers]
        on_path, straight, together = walk(masks, kinds, 5)
        used[list(on_path)] += 1 / draws
        linear[list(straight)] += 1 / draws
        for i, j in (sorted(pair) for pair in together):
            pairs[i, j] += 1 / draws
            pairs[j, i] += 1 / draws
    np.testing.assert_allclose(result.used, used)
    np.testing.assert_allclose(result.linear, linear)
    assert 0 < linear.sum() < used.sum()
    for i, column in enumerate(result.columns):
        want = {f"x{j}": share for j, share in enumerate(pairs[i]) if share >= 0.01}
        assert column.partners == pytest.approx(want)
        assert column.included == pytest.approx(sn.column_inclusion(net)[f"x{i}"])
    assert pairs.sum() > 0
    assert [sum(width.values()) for width in result.width] == pytest.approx([1.0, 1.0])


def test_columns_of_an_estimator_and_the_model_it_chose(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    source = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {"size": source.normal(size=120), "city": source.choice(["a", "b", "c"], 120), "noise": source.normal(size=120)}
    )
    y = 2 * frame["size"].to_numpy() + (frame["city"] == "b").to_numpy() + 0.1 * source.normal(size=120)
    model = sn.SlabRegressor((5,), skip=True, gates="inputs", epochs=60, random_state=0).fit(frame, y)
    result = sn.structure(model, 50)
    assert result.names == ("size", "city", "noise")
    assert {c.name: c.included for c in result.columns} == pytest.approx(model.column_inclusion_)
    assert sn.structure(model, 10, names=list(model.table_.inputs)).names == tuple(model.table_.inputs)
    small = model.sparsify("budget", weights=6)
    chosen = sn.structure(small)
    assert set(chosen.used) <= {0.0, 1.0}
    assert chosen.draws == 1
    assert chosen.columns[0].included is None
    reached = dict(zip(chosen.names, chosen.used, strict=True))
    assert [i for i, used in enumerate(reached.values()) if used] == small.selected_features_.tolist()
    sn.save_estimator(model, tmp_path / "m.slab")
    run = CliRunner().invoke(app, ["inspect", str(tmp_path / "m.slab"), "--json"])
    written = json.loads(run.stdout)["structure"]
    assert [column["name"] for column in written["columns"]] == ["size", "city", "noise"]
    text = CliRunner().invoke(app, ["inspect", str(tmp_path / "m.slab")]).stdout
    assert "only linearly, if used" in text
    assert "Layers on the longest path, in 100 drawn networks" in text


def test_mixtures_and_convolutions() -> None:
    mixture = sn.Mixture([network(), sn.mlp((3, 2, 2, 1), likelihood="gaussian")], [0.75, 0.25])
    result = sn.structure(mixture, 40)
    assert result.units == (4, 2)
    assert result.depth[3] == pytest.approx(0.25)  # the deeper member's turns
    maps = sn.convnet((2, 4, 4), 2, channels=(3,), hidden=(4,), activation="identity")
    assert sum(sn.structure(maps, 5).linear) == 0.0  # pooling bends


def test_many_columns_are_cut_short_as_text() -> None:
    result = sn.structure(sn.mlp((60, 2)), 2)
    assert "20 more columns, which are used less often." in str(result)
    assert len(result.columns) == 60


def test_bad_calls() -> None:
    with pytest.raises(sn.ArgumentError, match="draws must be a whole number of at least 1"):
        sn.structure(network(), draws=0)
    with pytest.raises(sn.ArgumentError, match="names must be one for each of the 3 inputs, got 1 names"):
        sn.structure(network(), draws=2, names=["a"])
    with pytest.raises(sn.ArgumentError, match=r"columns\[a\] must be positions of inputs, 0 to 2"):
        sn.structure(network(), draws=2, columns={"a": (0, 3)})
    with pytest.raises(sn.ArgumentError, match="names must be left out where columns are given"):
        sn.structure(network(), draws=2, names=["a", "b", "c"], columns={"a": (0,)})
    with pytest.raises(sn.ArgumentError, match="net must be a network or a fitted estimator, got str"):
        sn.structure("net")  # type: ignore[arg-type]


def test_which_columns_drive_the_mean_and_which_the_noise() -> None:
    """Each half of the last layer has indicators of its own: closed by hand here, and told apart."""
    net = sn.mlp((3, 2), likelihood="heteroscedastic")
    layer = net.body[1]
    with torch.no_grad():
        layer.weight.omega.copy_(torch.tensor([[20.0, -20.0, 0.0], [-20.0, 20.0, -20.0]]))
    result = sn.structure(net, 200)
    by_name = {column.name: column.parts for column in result.columns}
    assert by_name["x0"] == {"mean": 1.0, "noise": 0.0}
    assert by_name["x1"] == {"mean": 0.0, "noise": 1.0}
    assert by_name["x2"]["mean"] == pytest.approx(0.5, abs=0.15)
    assert result.used[2] == by_name["x2"]["mean"]
    assert result.rows()[0][:4] == ("column", "used", "in the mean", "in the noise")
    assert sn.Structure.from_dict(result.to_dict()).columns == result.columns
    assert sn.structure(sn.mlp((3, 1), likelihood="gaussian"), 3).columns[0].parts == {}

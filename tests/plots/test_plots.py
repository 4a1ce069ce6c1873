"""Pictures from Python: each function draws on the axes it is given and hands them back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

import slabnet as sn
from slabnet import plots
from slabnet.prediction.ways import spike_slab_rows


@pytest.fixture(scope="module")
def fitted() -> tuple[sn.Network, Any, sn.Prediction, sn.History]:
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(1))
    y = (x[:, 0] > 0).long()
    net = sn.mlp((4, 5, 2))
    history = sn.fit(net, (x, y), sn.TrainConfig(epochs=5, batch_size=20), progress="off")
    return net, (x, y), sn.predict(net, x, 20), history


def test_the_structure_of_a_model_has_a_line_for_each_weight_on_a_path() -> None:
    net = sn.mlp((3, 4, 1), skip=True, activation=("relu", "tanh"), likelihood="gaussian", seed=1)
    chosen = sn.budget_model(net, weights=12, infeasible="path")
    axes = plots.plot_structure(Figure().subplots(), net, chosen, names=["a", "b", "c"], outputs=["y"])
    assert chosen.active is not None
    assert len(axes.lines) == sum(int(mask.sum()) for mask in chosen.active.values())
    assert "y" in [text.get_text() for text in axes.texts]
    with pytest.raises(sn.ArgumentError, match="names must be one for each of the 3 inputs"):
        plots.plot_structure(Figure().subplots(), net, chosen, names=["a"])
    with pytest.raises(sn.ArgumentError, match="net must be one network of linear layers, got Network"):
        plots.plot_structure(Figure().subplots(), sn.convnet((1, 4, 4), 2))


def test_each_chart_returns_its_axes(fitted: tuple[sn.Network, Any, sn.Prediction, sn.History]) -> None:
    net, (x, y), prediction, history = fitted
    chosen = sn.median_model(net, infeasible="lower")
    rows = spike_slab_rows("lbbnn", net, net, chosen, (x, y), post_trained=False, draws=3, seed=0)
    drawn = {
        "ways": lambda axes: plots.plot_ways(axes, rows),
        "reliability": lambda axes: plots.plot_reliability(axes, prediction, y),
        "risk": lambda axes: plots.plot_risk_coverage(axes, prediction, y, 0.6),
        "importances": lambda axes: plots.plot_importances(axes, net, draws=5),
        "map": lambda axes: plots.plot_input_map(axes, net, (2, 2), draws=5),
        "history": lambda axes: plots.plot_history(axes, history),
        "network": lambda axes: plots.plot_network(axes, net, chosen),
        "inputs": lambda axes: plots.plot_inputs(axes, chosen, (2, 2)),
    }
    for name, draw in drawn.items():
        axes = Figure().subplots()
        assert draw(axes) is axes, name
        assert axes.has_data(), name
    both = Figure().subplots(1, 2)
    assert plots.plot_alphas(both, net) is both
    assert [axes.get_title() for axes in both] == ["body.1", "body.3"]


def test_the_dots_are_the_numbers(fitted: tuple[sn.Network, Any, sn.Prediction, sn.History]) -> None:
    _, (_, y), prediction, _ = fitted
    found = sn.reliability(prediction, y, 10)
    assert sum(part.rows for part in found) == len(y)
    gap = sum(part.rows * abs(part.confidence - part.accuracy) for part in found) / len(y)
    assert gap == pytest.approx(sn.calibration_error(prediction, y, 10))
    dots = plots.plot_reliability(Figure().subplots(), prediction, y, 10).lines[1]
    assert dots.get_ydata().tolist() == [part.accuracy for part in found]
    curve = sn.risk_coverage(prediction, y)
    line = plots.plot_risk_coverage(Figure().subplots(), prediction, y, None).lines[0]
    assert line.get_ydata().tolist() == curve.risk.tolist()


def test_intervals_of_a_number(fitted: object) -> None:
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(1))
    net = sn.mlp((2, 1), likelihood="gaussian")
    prediction = sn.predict(net, x, 20, intervals=(0.5, 0.9))
    dots = plots.plot_reliability(Figure().subplots(), prediction, x[:, 0]).lines[1]
    assert dots.get_xdata().tolist() == [0.5, 0.9]
    with pytest.raises(sn.ArgumentError, match="made with intervals"):
        plots.plot_reliability(Figure().subplots(), sn.predict(net, x, 3), x[:, 0])


def test_bad_calls_are_named(fitted: tuple[sn.Network, Any, sn.Prediction, sn.History]) -> None:
    net = fitted[0]
    with pytest.raises(sn.ArgumentError, match="names must be one for each of the 4 inputs"):
        plots.plot_importances(Figure().subplots(), net, ["a"], draws=2)
    with pytest.raises(sn.ArgumentError, match="axes must be one for each of the 2 layers"):
        plots.plot_alphas([Figure().subplots()], net)
    with pytest.raises(sn.ArgumentError, match="shape must be of 4 pixels"):
        plots.plot_input_map(Figure().subplots(), net, (3, 3), draws=2)

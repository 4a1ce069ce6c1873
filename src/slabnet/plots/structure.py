"""A chosen model drawn as a graph: its columns on the left, hidden units, outputs on the right, skips around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import nn

from slabnet.core.errors import one_line, refuse
from slabnet.core.records import Selection
from slabnet.model.elementwise import Mixed
from slabnet.model.layers import Linear
from slabnet.model.mixture import Mixture
from slabnet.model.paths import chain_of, find_paths, flat_parts
from slabnet.model.wrapped import Wraps
from slabnet.plots.runs import OTHER, QUIET, WRONG
from slabnet.selection.rules import threshold_model

MOST_NODES = 60  # in one column of the picture
BEND = 0.18  # how far a skip bows around the units it passes

Place = tuple[float, float]


@torch.no_grad()
def plot_structure(
    axes: Axes,
    net: nn.Module | Wraps,
    selection: Selection | None = None,
    *,
    names: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> Axes:
    """The weights of a chosen model that lie on a path, as lines: blue raises, red lowers, width is the size.

    Inputs that nothing reads and units on no path are left out. What an input-skip network sends past its hidden units
    is drawn as a bow.

    net: a network of linear layers, or a fitted estimator. selection: the model; None takes the one an estimator chose,
        or the median model. names: of the inputs; outputs: of the outputs.

    >>> from matplotlib.figure import Figure
    >>> from slabnet.model.networks import mlp
    >>> from slabnet.selection.rules import budget_model
    >>> net = mlp((3, 4, 2), skip=True)
    >>> picture = plot_structure(Figure().subplots(), net, budget_model(net, weights=26), names=["a", "b", "c"])
    >>> [text.get_text() for text in picture.texts][:3]
    ['a', 'b', 'c']
    """
    masks = None if selection is None else selection.masks
    if isinstance(net, Wraps):
        whole = net.wrapped()
        net, masks = whole.net, whole.masks if masks is None else masks
        names = whole.inputs if names is None else names
    chain = None if isinstance(net, Mixture) else chain_of(net)
    if chain is None or not all(isinstance(link.layer, Linear) for link in chain):
        refuse("plot_structure", "net", "one network of linear layers", type(net).__name__)
    paths = find_paths(net, threshold_model(net).masks if masks is None else masks)
    assert paths is not None
    active = [paths.active[link.name].cpu() for link in chain]
    inputs = active[0].shape[1]
    called = [f"x{i}" for i in range(inputs)] if names is None else [str(name) for name in names]
    if len(called) != inputs:
        refuse("plot_structure", "names", f"one for each of the {inputs} inputs", f"{len(called)} names")
    units = [mask.any(1).nonzero()[:, 0].tolist() for mask in active[:-1]]
    ends = list(range(len(active[-1])))
    nodes = [paths.inputs.cpu().nonzero()[:, 0].tolist(), *units, ends]
    if max(map(len, nodes)) > MOST_NODES:
        refuse("plot_structure", "net", f"a model of at most {MOST_NODES} inputs or units", max(map(len, nodes)))
    places = [_places(x, layer) for x, layer in enumerate(nodes)]
    means = [(link.layer.weight.mu.cpu() * mask) for link, mask in zip(chain, active, strict=True)]
    largest = max((float(mean.abs().max()) for mean in means if mean.numel()), default=0.0) or 1.0
    for at, mean in enumerate(means):
        again = chain[at].again
        for unit, column in active[at].nonzero().tolist():
            skipped = column - (mean.shape[1] - again)
            start = places[0][skipped] if again and skipped >= 0 else places[at][column]
            _line(axes, start, places[at + 1][unit], float(mean[unit, column]) / largest)
    _nodes(axes, places, called, _kinds(net), [""] * len(ends) if outputs is None else list(outputs))
    return axes


def _places(x: int, nodes: Sequence[int]) -> dict[int, Place]:
    """Where each node of a layer stands, the middle of the layer at height zero."""
    return {node: (float(x), (len(nodes) - 1) / 2 - i) for i, node in enumerate(nodes)}


def _line(axes: Axes, start: Place, end: Place, weight: float) -> None:
    """A weight as a line between two nodes; over more than one layer a bow."""
    t = np.linspace(0, 1, 40)
    span = end[0] - start[0]
    bow = BEND * span * np.sin(np.pi * t) * (1 if start[1] >= 0 else -1) if span > 1 else 0.0
    height = start[1] + (end[1] - start[1]) * t + bow
    colour = OTHER if weight > 0 else WRONG
    style = "--" if span > 1 else "-"
    axes.plot(start[0] + span * t, height, style, color=colour, linewidth=0.6 + 2.4 * abs(weight), alpha=0.7, zorder=1)


def _nodes(
    axes: Axes, places: Sequence[dict[int, Place]], names: Sequence[str], kinds: list[list[str]], ends: list[str]
) -> None:
    for node, (x, y) in places[0].items():
        axes.text(x - 0.06, y, one_line(names[node], 24), ha="right", va="center", fontsize=8)
    for layer, names_of in zip(places[1:-1], kinds, strict=False):
        for unit, (x, y) in layer.items():
            axes.text(x, y + 0.18, names_of[unit], ha="center", va="bottom", fontsize=7)
    for (x, y), name in zip(places[-1].values(), ends, strict=False):
        axes.text(x + 0.06, y, one_line(name, 24), ha="left", va="center", fontsize=8)
    every = [place for layer in places for place in layer.values()]
    xs, ys = [x for x, _ in every], [y for _, y in every]
    axes.scatter(xs, ys, s=60, color="white", edgecolor=QUIET, zorder=2)
    axes.set_axis_off()
    axes.margins(x=0.25, y=0.15)


def _kinds(net: nn.Module) -> list[list[str]]:
    """For each hidden layer the activation of each unit, where there are several."""
    return [part.of_units() for part in flat_parts(net) or [] if isinstance(part, Mixed)]

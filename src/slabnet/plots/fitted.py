"""Charts of a prediction and of a fitted network: what the page shows, for notebooks. Each returns its axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor, nn

from slabnet.core.errors import check_number, refuse
from slabnet.core.records import Answer, Prediction
from slabnet.plots.runs import OTHER, QUIET, WRONG, plot_alpha
from slabnet.prediction.importance import input_reach, prior_reach
from slabnet.prediction.metrics import calibration_error, interval_coverage, reliability, risk_coverage
from slabnet.prediction.ways import Row
from slabnet.selection.rules import slab_layers, threshold_model

BINS = 20
COLOURS = {"SIM": "#4c72b0", "ALL": "#8a8a8a", "MED": "#c8553d", "PRN": "#c8553d"}


def plot_ways(axes: Axes, rows: Sequence[Row | Mapping[str, Any]]) -> Axes:
    """Accuracy against the share of the weights in use, one mark for each way to predict (rows as Table 1 has them).

    Squares average several networks, diamonds use means, circles are single draws; filled ones are post-trained.
    rows: `Row` records, or the dicts of a run's record.

    >>> from matplotlib.figure import Figure
    >>> row = {"gamma": "MED", "beta": "EXP", "post_trained": True, "draws": 1, "accuracy": 0.9, "density_used": 0.1}
    >>> plot_ways(Figure().subplots(), [row]).get_xlabel()
    'share of the weights in use'
    """
    named: dict[str, str] = {"SIM": "structure drawn", "ALL": "every weight", "MED": "median model", "PRN": "pruned"}
    seen: set[str] = set()
    for row in rows:
        part: Mapping[str, Any] = row if isinstance(row, Mapping) else row.to_dict()
        colour = COLOURS.get(part["gamma"], QUIET)
        mark = "s" if part["draws"] > 1 else "D" if part["beta"] == "EXP" else "o"
        label = None if part["gamma"] in seen else named.get(part["gamma"], part["gamma"])
        seen.add(part["gamma"])
        face = colour if part["post_trained"] else "none"
        place = part["density_used"], part["accuracy"]
        axes.plot(*place, mark, color=colour, markerfacecolor=face, markersize=6, label=label)
    axes.set(xscale="log", xlabel="share of the weights in use", ylabel="test accuracy")
    return _finish(axes, legend=True)


def plot_reliability(axes: Axes, prediction: Prediction, y: Tensor, bins: int = 15) -> Axes:
    """The reliability diagram: the share that is right against how sure it was; below the line is over-confident.

    For numbers predicted with `intervals=...`: the share of the observations inside each interval.
    """
    axes.plot([0, 1], [0, 1], color=QUIET, linestyle="--", linewidth=0.8)
    if prediction.answer is Answer.NUMBERS:
        levels = sorted(prediction.predictive)
        if not levels:
            refuse("plot_reliability", "prediction", "made with intervals=(0.5, 0.95)", "one without intervals")
        axes.plot(levels, [interval_coverage(prediction, y, level).coverage for level in levels], "o", color=OTHER)
        axes.set(xlabel="level of the interval", ylabel="share of observations inside")
    else:
        filled = reliability(prediction, y, bins)
        most = max(part.rows for part in filled)
        width = 0.95 / bins
        centres = [(part.low + part.high) / 2 for part in filled]
        axes.bar(centres, [0.25 * part.rows / most for part in filled], width, color=QUIET, alpha=0.5)
        axes.plot([part.confidence for part in filled], [part.accuracy for part in filled], "o", color=OTHER)
        error = calibration_error(prediction, y, bins)
        axes.set(xlabel="largest averaged probability", ylabel="share that is right", title=f"gap {error:.3f}")
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    return _finish(axes)


def plot_risk_coverage(axes: Axes, prediction: Prediction, y: Tensor, threshold: float | None = 0.95) -> Axes:
    """Errors among the decided against the share decided; the line marks what `threshold` decides."""
    curve = risk_coverage(prediction, y)
    axes.plot(curve.coverage.numpy(), curve.risk.numpy(), color=OTHER)
    if threshold is not None:
        check_number("plot_risk_coverage", "threshold", threshold, at_least=0, at_most=1)
        share = float(prediction.decided(threshold).double().mean())
        axes.axvline(share, color=WRONG, linewidth=1, label=f"decided at {threshold:g}: {share:.1%}")
    axes.set(xlabel="share of the rows decided", ylabel="share of those that is wrong", xlim=(0, 1.01))
    axes.set_ylim(bottom=0)
    return _finish(axes, legend=threshold is not None)


@torch.no_grad()
def plot_alphas(axes: Sequence[Axes], net: nn.Module) -> Sequence[Axes]:
    """A histogram of the inclusion probabilities of each layer, on as many axes."""
    layers = slab_layers(net)
    if len(axes) != len(layers):
        refuse("plot_alphas", "axes", f"one for each of the {len(layers)} layers", f"{len(axes)}")
    for part, (name, layer) in zip(axes, layers.items(), strict=True):
        counts = torch.histc(layer.alpha.detach().double().cpu(), BINS, 0.0, 1.0).long().tolist()
        plot_alpha(part, counts, name)
    return axes


def plot_importances(
    axes: Axes, net: nn.Module, names: Sequence[str] | None = None, *, most: int = 20, draws: int = 100, seed: int = 0
) -> Axes:
    """Posterior inclusion probability: the share of drawn models in which an input reaches an output.

    The dashed line is what the prior would give.

    >>> from matplotlib.figure import Figure
    >>> from slabnet.model.networks import mlp
    >>> bars = plot_importances(Figure().subplots(), mlp((3, 2)), ["a", "b", "c"], draws=10)
    >>> sorted(text.get_text() for text in bars.get_yticklabels())
    ['a', 'b', 'c']
    """
    share = input_reach(net, draws, seed=seed).cpu()
    labels = [f"input {i}" for i in range(len(share))] if names is None else [str(name) for name in names]
    if len(labels) != len(share):
        refuse("plot_importances", "names", f"one for each of the {len(share)} inputs", f"{len(labels)} names")
    inside = threshold_model(net).inputs
    order = share.argsort(descending=True, stable=True)[:most].flip(0).tolist()
    chosen = [inside is not None and bool(inside[i]) for i in order]
    colours = [OTHER if one else QUIET for one in chosen]
    axes.barh(range(len(order)), [float(share[i]) for i in order], color=colours)
    axes.set_yticks(range(len(order)), [labels[i] for i in order])
    axes.axvline(prior_reach(net, min(draws, 20), seed=seed), color=QUIET, linestyle="--", linewidth=0.8)
    axes.set(xlim=(0, 1), xlabel="posterior inclusion probability of the input")
    return _finish(axes)


def plot_input_map(axes: Axes, net: nn.Module, shape: tuple[int, int], *, draws: int = 100, seed: int = 0) -> Axes:
    """The same share over the pixels of an image."""
    share = input_reach(net, draws, seed=seed).cpu()
    if len(share) != shape[0] * shape[1]:
        refuse("plot_input_map", "shape", f"of {len(share)} pixels, the network's inputs", shape)
    image = axes.imshow(share.reshape(shape).numpy(), cmap="Blues", vmin=0, vmax=1)
    axes.figure.colorbar(image, ax=axes, label="posterior inclusion probability", shrink=0.8)
    axes.set(xticks=[], yticks=[])
    return axes


def _finish(axes: Axes, legend: bool = False) -> Axes:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    if legend:
        axes.legend(frameon=False, fontsize=8)
    return axes

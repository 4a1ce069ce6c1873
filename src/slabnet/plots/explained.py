"""Charts of explanations: a row's contributions as a waterfall, and the effect of a column. Each returns its axes."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from slabnet.core.errors import check_whole, refuse
from slabnet.core.figures import written
from slabnet.plots.runs import OTHER, QUIET, WRONG
from slabnet.prediction.curves import EffectCurve
from slabnet.prediction.explanation import Explanation


def plot_waterfall(
    axes: Axes, explanation: Explanation, row: int = 0, output: int | None = None, *, most: int = 10
) -> Axes:
    """One row's way from the baseline to its prediction, column by column, each step with its interval.

    output: its position; None takes the class that is predicted, or the first response. most: columns to show; the
    others are one step.

    >>> from matplotlib.figure import Figure
    >>> import torch
    >>> from slabnet.model.networks import mlp
    >>> from slabnet.prediction.explain import explain
    >>> net = mlp((3, 1), likelihood="gaussian")
    >>> why = explain(net, torch.ones(1, 3), background=torch.zeros(2, 3), draws=5)
    >>> plot_waterfall(Figure().subplots(), why).get_xlabel()
    'linear predictor of output'
    """
    row = check_whole("plot_waterfall", "row", row, at_least=0)
    if row >= len(explanation):
        refuse("plot_waterfall", "row", f"below {len(explanation)}, the number of rows", row)
    k = explanation.output_of(row) if output is None else check_whole("plot_waterfall", "output", output, at_least=0)
    if k >= len(explanation.outputs):
        refuse("plot_waterfall", "output", f"below {len(explanation.outputs)}, the number of outputs", k)
    check_whole("plot_waterfall", "most", most, at_least=1)
    order = explanation.order(row, k)
    shown, rest = order[:most], order[most:]
    parts = explanation.contributions
    labels = [explanation.label(row, j) for j in shown]
    steps = [tuple(float(part[row, j, k]) for part in (parts.mean, parts.low, parts.high)) for j in shown]
    if rest:
        total = float(parts.mean[row, rest, k].sum())
        labels.append(f"{len(rest)} others")
        steps.append((total, total, total))
    at = start = float(explanation.baseline.mean[k])
    for height, (change, low, high) in enumerate(steps):
        axes.barh(height, change, left=at, color=WRONG if change > 0 else OTHER, height=0.6)
        if high > low:
            axes.plot([at + low, at + high], [height, height], color="black", linewidth=0.8)
        at += change
    axes.set_yticks(range(len(steps)), labels)
    axes.invert_yaxis()
    for value in (start, at):
        axes.axvline(value, color=QUIET, linestyle="--", linewidth=0.8)
    axes.margins(x=0.05)
    axes.set_axisbelow(True)
    scale = "linear predictor" if explanation.scale == "linear" else "response"
    axes.set(xlabel=f"{scale} of {explanation.outputs[k]}", title=f"from {written(start)} to {written(at)}")
    return _finish(axes)


def plot_effect(axes: Axes, curve: EffectCurve, output: int = 0) -> Axes:
    """How the prediction goes with a column: partial dependence with its band, accumulated local effects dashed.

    Ticks below are the rug, grey ground lies outside the training data. Levels are points with bars; two columns are a
    map of the mean.

    >>> from matplotlib.figure import Figure
    >>> from slabnet import SlabRegressor
    >>> x = np.linspace(-1, 1, 50)[:, None]
    >>> model = SlabRegressor(hidden=(), epochs=20, random_state=0).fit(x, 3 * x[:, 0])
    >>> plot_effect(Figure().subplots(), model.effects(0)).get_xlabel()
    'x0'
    """
    if check_whole("plot_effect", "output", output, at_least=0) >= len(curve.outputs):
        refuse("plot_effect", "output", f"below {len(curve.outputs)}, the number of outputs", output)
    scale = f"mean {'linear predictor' if curve.scale == 'linear' else 'response'}: {curve.outputs[output]}"
    if len(curve.columns) == 2:
        return _map(axes, curve, output, scale)
    mean, low, high = (part[:, output] for part in (curve.partial.mean, curve.partial.low, curve.partial.high))
    if not curve.numeric[0]:
        places = np.arange(len(curve))
        axes.errorbar(places, mean, yerr=[np.maximum(mean - low, 0), np.maximum(high - mean, 0)], fmt="o", color=OTHER)
        axes.set_xticks(places, [str(point[0]) for point in curve.grid], rotation=30, ha="right")
        axes.set(xlabel=curve.columns[0], ylabel=scale)
        return _finish(axes)
    values = np.array([point[0] for point in curve.grid])
    axes.plot(values, mean, color=OTHER, label="partial dependence")
    axes.fill_between(values, low, high, color=OTHER, alpha=0.2, linewidth=0)
    if curve.accumulated is not None:
        local = curve.accumulated.mean[:, output] + curve.average[output]
        axes.plot(values, local, color=WRONG, linestyle="--", linewidth=1, label="accumulated local effects")
    axes.plot(curve.rug[0], np.full(len(curve.rug[0]), 0.02), "|", color="black", transform=axes.get_xaxis_transform())
    inside = values[~curve.extrapolates]
    if len(inside) and len(inside) < len(values):
        for ends in ((values[0], inside[0]), (inside[-1], values[-1])):
            axes.axvspan(*ends, color=QUIET, alpha=0.2, linewidth=0)
    axes.set(xlabel=curve.columns[0], ylabel=scale, xlim=(values[0], values[-1]))
    axes.legend(frameon=False, fontsize=8)
    return _finish(axes)


def _map(axes: Axes, curve: EffectCurve, output: int, label: str) -> Axes:
    """The mean over two columns as colours; hatched where it extrapolates."""
    ends = [list(dict.fromkeys(point[i] for point in curve.grid)) for i in (0, 1)]
    shape = len(ends[0]), len(ends[1])
    mean = curve.partial.mean[:, output].reshape(shape).T
    spots = [values if kind else list(range(len(values))) for values, kind in zip(ends, curve.numeric, strict=True)]
    image = axes.pcolormesh(spots[0], spots[1], mean, cmap="viridis", shading="nearest")
    axes.figure.colorbar(image, ax=axes, label=label)
    outside = np.where(curve.extrapolates.reshape(shape).T, 1.0, np.nan)
    if curve.extrapolates.any():
        axes.pcolor(spots[0], spots[1], outside, hatch="//", alpha=0, shading="nearest")
    for axis, values, kind in ((axes.xaxis, ends[0], curve.numeric[0]), (axes.yaxis, ends[1], curve.numeric[1])):
        if not kind:
            axis.set_ticks(range(len(values)), [str(value) for value in values])
    axes.set(xlabel=curve.columns[0], ylabel=curve.columns[1])
    return axes


def _finish(axes: Axes) -> Axes:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return axes


effect = plot_effect

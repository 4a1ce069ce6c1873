"""Charts of recorded runs: the paper's figures, each from plain numbers. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

POST = ", post-trained"
FEW_CURVES = 4  # more of them leave no room for a legend
TRUTH, WRONG, OTHER, QUIET, AVERAGE = "#2a9d55", "#c8322b", "#4c72b0", "#8a8a8a", "#d9a400"


def plot_averaging(axes: Axes, curves: Mapping[str, Sequence[Mapping[str, float]]]) -> Axes:
    """Accuracy against the number of draws averaged, one line a run (the paper's fig. predsamples)."""
    for (name, points), look in zip(curves.items(), _looks(curves), strict=True):
        values = [p["accuracy"] for p in points]
        axes.plot([p["draws"] for p in points], values, marker="o", markersize=3, label=name, **look)
    axes.set(xscale="log", xlabel="networks averaged (R)", ylabel="test accuracy")
    axes.set_xticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
    axes.minorticks_off()
    _finish(axes)
    return axes


def plot_entropies(axes: Axes, quantiles: Mapping[str, Sequence[float]], classes: int = 10) -> Axes:
    """Share of the rows whose predictive entropy is at most x (the paper's fig. entrop)."""
    for (name, values), look in zip(quantiles.items(), _looks(quantiles), strict=True):
        axes.plot(values, np.linspace(0, 1, len(values)), label=name, **look)
    axes.axvline(np.log(classes), color=QUIET, linestyle=":", linewidth=0.8)
    axes.set(xlabel=f"entropy of the averaged probabilities, nats (dotted: log {classes})", ylabel="share of images")
    _finish(axes)
    return axes


def plot_alpha(axes: Axes, histogram: Sequence[int], title: str = "") -> Axes:
    """How many weights of a layer have which inclusion probability, on a log scale (the paper's fig. hist)."""
    edges = np.linspace(0, 1, len(histogram) + 1)
    axes.bar(edges[:-1], np.maximum(histogram, 0.5), width=np.diff(edges), align="edge", color=OTHER, edgecolor="white")
    axes.set(yscale="log", xlim=(0, 1), ylim=(0.5, None), xlabel="alpha", ylabel="weights", title=title)
    axes.axvline(0.5, color=WRONG, linestyle="--", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def plot_inclusion_history(axes: Axes, columns: Mapping[str, Mapping[str, Sequence[float]]], psi: float) -> Axes:
    """Mean alpha over the epochs, for several runs; the dashed line is the prior's psi."""
    for (name, history), look in zip(columns.items(), _looks(columns), strict=True):
        values = history["density_expected"]
        axes.plot(range(1, len(values) + 1), values, label=name, **look)
    axes.axhline(psi, color=QUIET, linestyle="--", linewidth=0.8)
    axes.set(xlabel="epoch", ylabel="mean alpha (dashed: psi)")
    _finish(axes)
    return axes


def plot_drawn_layer(left: Axes, right: Axes, weights: np.ndarray[Any, Any], largest: float, title: str) -> None:
    """A drawn layer: which weights are in (left), and their values (right) (the paper's fig. strm)."""
    tall = weights.reshape(weights.shape[0], -1)
    left.imshow(tall != 0, cmap="Greys", aspect="auto", interpolation="nearest", rasterized=True)
    shown = right.imshow(
        tall * largest, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto", interpolation="nearest"
    )
    right.figure.colorbar(shown, ax=right, shrink=0.8)
    left.set(title=f"{title}: {np.mean(tall != 0):.1%} of the weights in", xlabel="inputs", ylabel="units")
    right.set(title="drawn values", xlabel="inputs")


def plot_case(image: Axes, bars: Axes, case: Mapping[str, Any], pixels: np.ndarray[Any, Any], draws: int) -> None:
    """An image, the votes of the draws for each class, and the averaged probabilities (the paper's fig. missclass).

    Green is the true class, red the one that was predicted wrongly; the yellow line is the average, the dashed one 95%.
    """
    image.imshow(pixels, cmap="gray_r")
    image.set(xticks=[], yticks=[])
    votes, mean = np.asarray(case["votes"]) / draws, np.asarray(case["mean"])
    predicted = int(mean.argmax())
    colours = [OTHER] * len(votes)
    if case["truth"] is not None:
        if predicted != case["truth"]:
            colours[predicted] = WRONG
        colours[case["truth"]] = TRUTH
    classes = np.arange(len(votes))
    bars.bar(classes, votes, color=colours, width=0.8)
    bars.step(np.append(classes, classes[-1] + 1) - 0.5, np.append(mean, mean[-1]), where="post", color=AVERAGE, lw=1)
    bars.axhline(0.95, color="black", linestyle="--", linewidth=0.6)
    bars.set(xlim=(-0.5, len(votes) - 0.5), ylim=(0, 1.02), yticks=[])
    bars.set_xticks(classes, [str(c) for c in classes], fontsize=5)
    bars.spines[["top", "right", "left"]].set_visible(False)


def _looks(names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """A colour for each setting; what was post-trained is dashed, in the colour of what it began as."""
    colours: dict[str, str] = {}
    for name in names:
        setting = name.removesuffix(POST)
        colour = colours.setdefault(setting, f"C{len(colours) % 10}")
        yield {"color": colour, "linestyle": "-" if setting == name else "--"}


def _finish(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    few = len(axes.get_lines()) <= FEW_CURVES
    beside: dict[str, Any] = {} if few else {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    axes.legend(frameon=False, fontsize=7, **beside)

"""Pictures of our records with matplotlib; each takes axes and draws one thing."""

from __future__ import annotations

import io

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from slabnet.core.records import History, Prediction, Selection
from slabnet.data import Split
from slabnet.model.drawing import drawable_layers
from slabnet.model.networks import Network

POSITIVE, NEGATIVE, QUIET = "#c8553d", "#28587b", "#9a9a9a"


def plot_history(axes: Axes, history: History) -> Axes:
    """Both terms of the bound, a row of data, and the share of weights with alpha above one half."""
    epochs = history.column("epoch")
    axes.plot(epochs, [-v / history.n for v in history.column("log_likelihood")], color=POSITIVE)
    axes.plot(epochs, [v / history.n for v in history.column("kl")], color=NEGATIVE)
    axes.set(xlabel="epoch", ylabel="nats a row", yscale="log")
    density = axes.twinx()
    density.plot(epochs, [100 * v for v in history.column("density_median")], color=QUIET, linestyle="--")
    density.set_ylabel("weights with alpha above one half, %")
    axes.plot([], [], color=QUIET, linestyle="--")
    axes.legend(["-log-likelihood", "KL", "alpha above one half (right)"], frameon=False, fontsize=8)
    return axes


def plot_network(axes: Axes, net: Network, chosen: Selection, threshold: int = 3000) -> Axes:
    """The units and the weights that lie on a path from an input to an output; colour is the sign of mu."""
    assert chosen.active is not None
    layers = drawable_layers(net)
    sizes = [next(iter(chosen.active.values())).shape[1]] + [mask.shape[0] for mask in chosen.active.values()]
    for column, (name, mask) in enumerate(chosen.active.items()):
        mu = layers[name].blocks()[0].mu.detach().cpu()
        edges = mask.cpu().nonzero()[:threshold]
        strength = mu.abs().max().clamp_min(1e-12)
        for target, source in edges.tolist():
            weight = float(mu[target, source])
            skipped = source - sizes[column]  # an input that is read again stands on the left
            first, unit = (0, skipped) if skipped >= 0 else (column, source)
            axes.plot(
                [first, column + 1],
                [_height(unit, sizes[first]), _height(target, sizes[column + 1])],
                color=POSITIVE if weight > 0 else NEGATIVE,
                alpha=0.25 + 0.75 * abs(weight) / float(strength),
                linewidth=0.8,
            )
    for column, size in enumerate(sizes):
        axes.scatter([column] * size, [_height(i, size) for i in range(size)], s=4, color="#333333", zorder=3)
    axes.set_xticks(range(len(sizes)), [f"{size} inputs" if i == 0 else str(size) for i, size in enumerate(sizes)])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    return axes


def plot_inputs(axes: Axes, chosen: Selection, shape: tuple[int, int]) -> Axes:
    """How many weights of the chosen model read each pixel."""
    assert chosen.active is not None
    count = next(iter(chosen.active.values())).sum(0).reshape(shape).cpu().numpy()
    image = axes.imshow(count, cmap="Greys")
    axes.figure.colorbar(image, ax=axes, label="weights in use", shrink=0.8)
    axes.set_xticks([])
    axes.set_yticks([])
    return axes


def plot_doubtful(axes: Axes, split: Split, prediction: Prediction, rows: int = 5) -> Axes:
    """The test images of highest entropy, and what share of the drawn networks votes for which class."""
    assert split.image_shape is not None
    assert prediction.votes is not None
    worst = prediction.entropy.argsort(descending=True)[:rows].tolist()
    axes.set(xlim=(-2.7, split.classes), ylim=(rows, 0), xticks=range(split.classes), xlabel="class")
    axes.set_yticks([])
    axes.spines[["left", "top", "right"]].set_visible(False)
    for line, row in enumerate(worst):
        image = split.test[0][row].reshape(split.image_shape).numpy()
        axes.imshow(1 - image, cmap="gray", extent=(-2.6, -1.0, line + 0.95, line + 0.05), aspect="auto")
        votes = (prediction.votes[row] / prediction.draws).numpy()
        right = int(split.test[1][row])
        colours = [POSITIVE if c == right else QUIET for c in range(split.classes)]
        axes.bar(np.arange(split.classes), -0.9 * votes, bottom=line + 0.95, width=0.7, color=colours)
        axes.axhline(line + 0.95, color=QUIET, linewidth=0.5)
    return axes


def demo_picture(net: Network, chosen: Selection, history: History, split: Split, prediction: Prediction) -> bytes:
    """The demo's picture as PNG bytes, the same for the same demo."""
    assert split.image_shape is not None
    figure = Figure(figsize=(11, 8), layout="constrained")
    ((top_left, top_right), (low_left, low_right)) = figure.subplots(2, 2)
    plot_network(top_left, net, chosen)
    top_left.set_title(f"{chosen.weights} of {chosen.total.weights} weights are left")
    plot_history(top_right, history)
    top_right.set_title("the data speak, then the prior prunes")
    plot_inputs(low_left, chosen, split.image_shape)
    low_left.set_title("pixels the chosen network reads")
    plot_doubtful(low_right, split, prediction)
    low_right.set_title(f"most doubtful test digits: votes of {prediction.draws} draws (truth in red)")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()


def _height(index: int, size: int) -> float:
    return 1 - (index + 0.5) / size

"""The paper's figures from records (E4-E9), as SVG and PNG; the same records give the same bytes. Imports no torch."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from slabnet.core.files import write_atomically
from slabnet.experiments.files import read_pictures, read_records
from slabnet.experiments.packing import unpack
from slabnet.experiments.tables import Group, groups_of
from slabnet.plots.runs import (
    POST,
    plot_alpha,
    plot_averaging,
    plot_case,
    plot_drawn_layer,
    plot_entropies,
    plot_inclusion_history,
)

COLUMNS = 5
CLASSES = {
    "fashion-mnist": ("t-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
}
BARS = (
    "Bars: votes of 100 drawn networks for each class (green: the truth, red: what was predicted instead, blue: the "
    "others); yellow: averaged probabilities; dashed: the 0.95 needed to decide."
)
CASES = {
    "wrong": "wrong",
    "in_distribution": "in-distribution",
    "out_of_distribution": "ood",
}  # key of a record: figure
CAPTIONS = {
    "averaging": "Accuracy against the number of networks averaged.",
    "entropy": "Share of images whose averaged prediction has at most this entropy: the further right, the more doubt. "
    "Doubt is wanted about the other data set (left), not about the own one (right).",
    "alpha": "Inclusion probabilities of each layer; weights right of the red line make the median model.",
    "training": "Mean inclusion probability while training: whether alpha settles, or climbs again.",
    "drawn": "One network drawn from the posterior: which weights are in it, and their values.",
    "wrong": f"Wrongly classified images. {BARS}",
    "in-distribution": f"The first test images of the data set the network knows. {BARS}",
    "ood": f"Images of the other data set: no class is right, and doubt is the right answer. {BARS}",
}


def write_figures(results: str | Path, out: str | Path, kinds: tuple[str, ...] = ("svg", "png")) -> list[Path]:
    """Write every figure the records in `results` have the numbers for into `out`; the paths, in order."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures_of(results):
        figure.supxlabel(textwrap.fill(CAPTIONS[kind_of(name)], 110), fontsize=8)
        for kind in kinds:
            path = out / f"{name}.{kind}"
            write_atomically(path, _bytes(figure, kind))
            paths.append(path)
    return paths


def kind_of(name: str) -> str:
    """The key of a figure's caption, with which its name begins."""
    return next(kind for kind in CAPTIONS if name.startswith(f"{kind}-"))


def figures_of(results: str | Path) -> Iterator[tuple[str, Figure]]:
    """(name, figure) of every figure; a name begins with the key of its caption."""
    groups, pictures = (
        groups_of(read_records(results)),
        read_pictures(results),
    )  # all is read before anything is written
    for dataset in dict.fromkeys(group.dataset for group in groups):
        of_dataset = [group for group in groups if group.dataset == dataset]
        curves = {group.label: group.runs[0]["averaging"] for group in of_dataset if group.runs[0]["averaging"]}
        if curves:
            figure, axes = _one(f"{dataset}: accuracy against R")
            plot_averaging(axes, curves)
            yield f"averaging-{dataset}", figure
        if any(group.runs[0].get("ood") for group in of_dataset):
            yield f"entropy-{dataset}", _entropy(dataset, of_dataset)
        chosen = [group for group in of_dataset if any("histogram" in part for part in group.runs[0]["layers"])]
        if chosen:
            yield f"alpha-{dataset}", _alpha(dataset, chosen)
            figure, axes = _one(f"{dataset}: mean alpha while training")
            psi = math.exp(-2)
            plot_inclusion_history(axes, {group.label: group.runs[0]["history"]["fit"] for group in chosen}, psi)
            yield f"training-{dataset}", figure
    for part in pictures:
        name = part["key"]
        yield f"drawn-{name}", _drawn(part)
        for key, kind in CASES.items():
            if part.get(key):
                yield f"{kind}-{name}", _cases(part, key)


def _one(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8.4, 4.2), layout="constrained")  # wide enough for a legend beside the curves
    axes = figure.subplots()
    axes.set_title(title)
    return figure, axes


def _entropy(dataset: str, groups: list[Group]) -> Figure:
    figure = Figure(figsize=(12.5, 4.4), layout="constrained")
    pair = figure.subplots(1, 2, sharey=True)
    for axes, key in zip(pair, ("out_of_distribution", "in_distribution"), strict=True):
        values = {
            f"{group.label}{'' if version == 'as fitted' else POST}": entropies[key]
            for group in groups
            for version, entropies in (group.runs[0].get("ood") or {}).items()
        }
        plot_entropies(axes, values)
        asked = groups[0].runs[0]["data"]["ood"] if key == "out_of_distribution" else dataset
        axes.set_title(f"trained on {dataset}, asked about {asked}")
    pair[0].get_legend().remove()  # one for both
    return figure


def _alpha(dataset: str, groups: list[Group]) -> Figure:
    layers = max(len(group.runs[0]["layers"]) for group in groups)
    figure = Figure(figsize=(3.4 * layers, 2.6 * len(groups)), layout="constrained")
    grid = figure.subplots(len(groups), layers, squeeze=False)
    for line, group in zip(grid, groups, strict=True):
        for index, part in enumerate(group.runs[0]["layers"]):
            plot_alpha(line[index], part["histogram"], f"{group.label}: layer {index + 1}")
            line[index].title.set_fontsize(8)
        for axes in line[len(group.runs[0]["layers"]) :]:
            axes.set_visible(False)
    figure.suptitle(f"{dataset}: inclusion probabilities")
    return figure


def _drawn(part: dict[str, Any]) -> Figure:
    layers = part["network"]
    figure = Figure(figsize=(9, 2.9 * len(layers)), layout="constrained")
    grid = figure.subplots(len(layers), 2, squeeze=False)
    for number, (line, layer) in enumerate(zip(grid, layers, strict=True)):
        weights = unpack(layer["weights"], np.int8, tuple(layer["shape"])) / 127.0
        plot_drawn_layer(line[0], line[1], weights, layer["largest"], f"layer {number + 1}")
    figure.suptitle(f"{part['key']}: one network drawn from the posterior")
    return figure


def _cases(part: dict[str, Any], key: str) -> Figure:
    cases, shape = part[key], tuple(part["image_shape"])
    lines = math.ceil(len(cases) / COLUMNS)
    figure = Figure(figsize=(2.4 * COLUMNS, 1.0 * lines + 0.4), layout="constrained")
    grid = figure.subplots(lines, 2 * COLUMNS, squeeze=False, width_ratios=[1, 1.6] * COLUMNS).flatten()
    for axes in grid[2 * len(cases) :]:
        axes.set_visible(False)
    for index, case in enumerate(cases):
        pixels = unpack(case["image"], np.uint8, shape)
        plot_case(grid[2 * index], grid[2 * index + 1], case, pixels, part["draws"])
    asked = part.get("ood") if key == "out_of_distribution" else part["dataset"]
    title = f"trained on {part['dataset']}, asked about {asked}, {part['draws']} draws"
    figure.suptitle(f"{part['key']}: {title}{_legend(part['dataset'])}", fontsize=9)
    return figure


def _legend(dataset: str) -> str:
    """What the numbers under the bars stand for, where they are not digits."""
    names = CLASSES.get(dataset)
    return "" if names is None else "\n" + ", ".join(f"{number} {name}" for number, name in enumerate(names))


def _bytes(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    with matplotlib.rc_context({"svg.hashsalt": "slabnet", "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind, dpi=110, metadata=metadata)
    return buffer.getvalue()

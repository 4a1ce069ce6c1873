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
from matplotlib.figure import Figure

from slabnet.experiments.files import read_pictures, read_records
from slabnet.experiments.packing import unpack
from slabnet.experiments.tables import Group, groups_of
from slabnet.files import write_atomically
from slabnet.plots.runs import (
    plot_alpha,
    plot_averaging,
    plot_case,
    plot_drawn_layer,
    plot_entropies,
    plot_inclusion_history,
)

COLUMNS = 5
CAPTIONS = {
    "averaging": "Accuracy against the number of networks averaged. It grows fast up to about ten.",
    "entropy": "Entropy of the averaged prediction on images of the other data set: the further right, the more doubt.",
    "alpha": "Inclusion probabilities of each layer; weights right of the red line make the median model.",
    "training": "Mean inclusion probability while training: whether alpha settles, or climbs back towards psi.",
    "drawn": "One network drawn from the posterior: which weights are in it, and their values.",
    "wrong": "Wrongly classified images. Bars: votes of 100 drawn networks (green the truth, red what was predicted); "
    "yellow: averaged probabilities; dashed: the 0.95 needed to decide.",
    "home": "The first test images of the data set the network knows, with the same bars.",
    "abroad": "Images of the other data set, with the same bars: there is no right answer, and doubt is the right one.",
}


def write_figures(results: str | Path, out: str | Path, kinds: tuple[str, ...] = ("svg", "png")) -> list[Path]:
    """Write every figure the records in `results` have the numbers for into `out`; the paths, in order."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures_of(results):
        figure.supxlabel(textwrap.fill(CAPTIONS[name.split("-")[0]], 110), fontsize=8)
        for kind in kinds:
            path = out / f"{name}.{kind}"
            write_atomically(path, _bytes(figure, kind))
            paths.append(path)
    return paths


def figures_of(results: str | Path) -> Iterator[tuple[str, Figure]]:
    """(name, figure) of every figure; a name begins with the key of its caption."""
    groups = groups_of(read_records(results))
    for dataset in dict.fromkeys(group.dataset for group in groups):
        own = [group for group in groups if group.dataset == dataset]
        curves = {group.label: group.runs[0]["averaging"] for group in own if group.runs[0]["averaging"]}
        if curves:
            figure, axes = _one(f"{dataset}: accuracy against R")
            plot_averaging(axes, curves)
            yield f"averaging-{dataset}", figure
        if any(group.runs[0].get("foreign") for group in own):
            yield f"entropy-{dataset}", _entropy(dataset, own)
        chosen = [group for group in own if any("histogram" in part for part in group.runs[0]["layers"])]
        if chosen:
            yield f"alpha-{dataset}", _alpha(dataset, chosen)
            figure, axes = _one(f"{dataset}: mean alpha while training")
            psi = math.exp(-2)
            plot_inclusion_history(axes, {group.label: group.runs[0]["history"]["fit"] for group in chosen}, psi)
            yield f"training-{dataset}", figure
    for part in read_pictures(results):
        name = part["key"]
        yield f"drawn-{name}", _drawn(part)
        for key in ("wrong", "home", "abroad"):
            if part.get(key):
                yield f"{key}-{name}", _cases(part, key)


def _one(title: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    return figure, axes


def _entropy(dataset: str, groups: list[Group]) -> Figure:
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    pair = figure.subplots(1, 2, sharey=True)
    for axes, key in zip(pair, ("abroad", "home"), strict=True):
        values = {
            f"{group.label}{'' if version == 'as fitted' else ', post-trained'}": found[key]
            for group in groups
            for version, found in (group.runs[0].get("foreign") or {}).items()
        }
        plot_entropies(axes, values)
        foreign = groups[0].runs[0]["data"]["foreign"]
        axes.set_title(f"trained on {dataset}, asked about {foreign if key == 'abroad' else dataset}")
    return figure


def _alpha(dataset: str, groups: list[Group]) -> Figure:
    layers = max(len(group.runs[0]["layers"]) for group in groups)
    figure = Figure(figsize=(3.4 * layers, 2.6 * len(groups)), layout="constrained")
    grid = figure.subplots(len(groups), layers, squeeze=False)
    for line, group in zip(grid, groups, strict=True):
        for index, part in enumerate(group.runs[0]["layers"]):
            plot_alpha(line[index], part["histogram"], f"{group.label}: layer {index + 1}")
            line[index].title.set_fontsize(8)
    figure.suptitle(f"{dataset}: inclusion probabilities")
    return figure


def _drawn(part: dict[str, Any]) -> Figure:
    layers = part["network"]
    figure = Figure(figsize=(9, 2.9 * len(layers)), layout="constrained")
    grid = figure.subplots(len(layers), 2, squeeze=False)
    for number, (line, layer) in enumerate(zip(grid, layers, strict=True)):
        weights = unpack(layer["weights"], np.int8, tuple(layer["shape"])) / 127.0
        plot_drawn_layer(line[0], line[1], weights, layer["largest"], f"layer {number + 1}")
    figure.suptitle(f"{part['dataset']}: one network drawn from the posterior")
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
    asked = part.get("foreign") if key == "abroad" else part["dataset"]
    figure.suptitle(f"trained on {part['dataset']}, asked about {asked}: {part['draws']} draws", fontsize=10)
    return figure


def _bytes(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    about = {"Date": None} if kind == "svg" else {"Software": None}
    with matplotlib.rc_context({"svg.hashsalt": "slabnet", "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind, dpi=110, metadata=about)
    return buffer.getvalue()

"""Pictures made of pixels and edges: images as PNG, the map of inputs, the network that is left. Imports no torch."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from slabnet.report.charts import Figure
from slabnet.report.svg import number, percent, short, svg

MOST_EDGES = 600
LETTERS = 16  # of a label beside a unit
MOST_SIDE = 300  # points of a matrix in each direction; larger ones show the strongest weight of each block
POSITIVE, NEGATIVE = (200, 85, 61), (40, 110, 180)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG file of (height, width) greys or (height, width, 4) colours, the same bytes for the same pixels."""
    height, width = pixels.shape[:2]
    kind = 0 if pixels.ndim == 2 else 6
    rows = pixels.reshape(height, -1)
    raw = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1).tobytes()
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))]
    parts += [(b"IDAT", zlib.compress(raw, 9)), (b"IEND", b"")]
    chunks = (struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d)) for t, d in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def image_tag(pixels: NDArray[np.uint8], label: str, kind: str = "pixels") -> Markup:
    """An <img> that carries its own contents."""
    data = base64.b64encode(png(pixels)).decode()
    height, width = pixels.shape[:2]
    return Markup('<img class="{}" width="{}" height="{}" alt="{}" src="data:image/png;base64,{}">').format(
        kind, width, height, label, data
    )


def grey(values: NDArray[Any], low: float = 0.0, high: float = 1.0) -> NDArray[np.uint8]:
    """Values as ink on paper: high is black."""
    share = np.clip((values - low) / ((high - low) or 1.0), 0, 1)
    return np.asarray(np.round(255 * (1 - share)), dtype=np.uint8)


def input_map(
    title: str, how: str, name: str, values: NDArray[Any], shape: tuple[int, int], more: Mapping[str, NDArray[Any]]
) -> Figure:
    """A map over pixels, values from 0 to 1 as strength of colour; more: other numbers of each pixel, for the table."""
    pixels = values.reshape(shape)
    height, width = shape
    cell = 360 / max(height, width)
    parts = []
    for row in range(height):
        for column in range(width):
            value = float(pixels[row, column])
            if value > 0.0005:
                parts.append(
                    f'<rect class="cell" x="{column * cell:.2f}" y="{row * cell:.2f}" width="{cell:.2f}" '
                    f'height="{cell:.2f}" fill-opacity="{value:.3f}"><title>row {row}, column {column}: '
                    f"{value:.0%}</title></rect>"
                )
    frame = f'<rect class="frame" x="0.5" y="0.5" width="{width * cell - 1:.1f}" height="{height * cell - 1:.1f}"/>'
    order = np.argsort(-values, kind="stable").tolist()
    lines = [
        [str(i // width), str(i % width), percent(float(values[i])), *(number(float(m[i]), 3) for m in more.values())]
        for i in order
    ]
    inside = svg(width * cell, height * cell, title, "".join(parts) + frame, "chart map")
    return Figure(title, how, inside, ["row", "column", name, *more], lines)


Unit = tuple[int, int]  # the column of the picture it stands in, inputs in the first; and its number there


def network_picture(
    edges: Sequence[tuple[Unit, Unit, float, float]], sizes: Sequence[int], names: Mapping[Unit, str]
) -> Figure:
    """The units and weights on a path. edges: (source, target, mu, alpha)."""
    columns: list[list[int]] = [[] for _ in sizes]
    for source, target, _, _ in edges:
        columns[source[0]].append(source[1])
        columns[target[0]].append(target[1])
    units = [sorted(set(column)) for column in columns]
    height = float(min(900, max(240, 14 * max(len(u) for u in units) + 20)))
    longest = max((len(_cut(text, LETTERS)) for text in names.values()), default=0)
    side = 18.0 + 6.8 * longest  # the labels stand beside the units
    width = 260.0 + 2 * side
    strongest = max(abs(mu) for _, _, mu, _ in edges) or 1.0

    def place(column: int, unit: int) -> tuple[float, float]:
        here = units[column]
        x = side + column * (width - 2 * side) / max(len(sizes) - 1, 1)
        return x, 10 + (here.index(unit) + 0.5) * (height - 20) / len(here)

    parts = []
    for source, target, mu, alpha in sorted(edges, key=lambda edge: abs(edge[2])):
        (a, b), (c, d) = place(*source), place(*target)
        kind = "plus" if mu > 0 else "minus"
        tip = f"{_name(names, *source)} → {_name(names, *target)}: mean {mu:.3g}, alpha {alpha:.2f}"
        parts.append(
            f'<line class="edge {kind}" x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}" stroke-width='
            f'"{0.5 + 2 * abs(mu) / strongest:.2f}" stroke-opacity="{0.35 + 0.65 * abs(mu) / strongest:.2f}">'
            f"<title>{escape(tip)}</title></line>"
        )
    for column, here in enumerate(units):
        for unit in here:
            x, y = place(column, unit)
            parts.append(f'<circle class="unit" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
            outer = column in (0, len(sizes) - 1)
            if outer and len(here) <= 60 and (height - 20) / len(here) >= 9:
                anchor, shift = ("end", -6) if column == 0 else ("start", 6)
                text = _name(names, column, unit)
                text = _cut(text, LETTERS)
                at = f'x="{x + shift:.1f}" y="{y + 3.5:.1f}" text-anchor="{anchor}"'
                parts.append(f'<text class="tick" {at}>{escape(text)}</text>')
    counts = ", ".join(f"{len(u)} of {size}" for u, size in zip(units, sizes, strict=True))
    return Figure(
        "The network that is left",
        f"Every line is a weight on a path from an input (left) to an output (right); thickness is its size. Units in "
        f"use, layer by layer: {counts}.",
        svg(width, height, "The network with its remaining weights", "".join(parts), "chart network"),
        ["from", "to", "mean", "alpha"],
        [
            [_name(names, *source), _name(names, *target), number(mu, 3), number(alpha, 3)]
            for source, target, mu, alpha in sorted(edges)
        ],
        [("plus", "positive"), ("minus", "negative")],
    )


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def matrix_picture(layers: Sequence[tuple[str, NDArray[Any], NDArray[Any]]]) -> Figure:
    """Too many weights for lines: a matrix for each layer. layers: (name, mu, which are in)."""
    tags = []
    for name, whole, all_inside in layers:
        mu, inside = _shrunk(whole, all_inside)
        strongest = float(np.abs(mu[inside]).max()) if inside.any() else 1.0
        colours = np.zeros((*mu.shape, 4), np.uint8)
        colours[mu > 0, :3], colours[mu <= 0, :3] = POSITIVE, NEGATIVE
        size = np.minimum(np.abs(mu) / (strongest or 1.0), 1)
        colours[..., 3] = np.where(inside, 75 + 12 * np.round(15 * size), 0)  # few levels: the file stays small
        label = (
            f"{name}: {int(all_inside.sum())} of {all_inside.size} weights; a row is a unit, a column one of its inputs"
        )
        tags.append(
            Markup("<div class='matrix'><p>{}</p>{}</div>").format(label, image_tag(colours, label, "pixels wide"))
        )
    lines = [
        [name, f"{mu.shape[0]} × {mu.shape[1]}", short(int(inside.sum())), percent(float(inside.mean()), 2)]
        for name, mu, inside in layers
    ]
    return Figure(
        "The network that is left",
        f"More than {MOST_EDGES} weights are left, too many for lines: a coloured point is a weight in the model (red "
        "positive, blue negative), an empty one is none.",
        Markup("").join(tags),
        ["layer", "shape", "weights in the model", "share"],
        lines,
    )


def votes_picture(
    votes: Sequence[float], mean: Sequence[float], truth: int | None, label: str, names: Sequence[str]
) -> Markup:
    """Bars of the draws' votes for each class, a tick for the averaged probability; the truth is marked."""
    count = len(votes)
    room = max(1, int(200 / count / 5.5))  # letters under a bar
    width, height = 200.0, 70.0
    step = width / count
    best = max(range(count), key=lambda k: mean[k])
    parts = [f'<line class="grid" x1="0" y1="{height - 14}" x2="{width}" y2="{height - 14}"/>']
    for k in range(count):
        tall = votes[k] * (height - 18)
        kind = "truth" if k == truth else "wrong" if k == best else "other"
        if tall > 0:
            parts.append(
                f'<rect class="vote {kind}" x="{k * step + 2:.1f}" y="{height - 14 - tall:.1f}" width="{step - 4:.1f}" '
                f'height="{tall:.1f}"/>'
            )
        at = height - 14 - mean[k] * (height - 18)
        parts.append(
            f'<line class="mean" x1="{k * step + 1:.1f}" y1="{at:.1f}" x2="{(k + 1) * step - 1:.1f}" y2="{at:.1f}"/>'
        )
        if count <= 12:
            parts.append(
                f'<text class="tick" x="{(k + 0.5) * step:.1f}" y="{height - 2}" text-anchor="middle">'
                f"{escape(_cut(names[k], room))}<title>{escape(names[k])}</title></text>"
            )
    return svg(width, height, label, "".join(parts), "votes")


def _shrunk(mu: NDArray[Any], inside: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """A matrix with at most MOST_SIDE rows and columns: the strongest weight of each block of a larger one."""
    steps = [-(-side // MOST_SIDE) for side in mu.shape]
    if max(steps) == 1:
        return mu, inside
    pads = [(0, -side % step) for side, step in zip(mu.shape, steps, strict=True)]
    padded = np.pad(np.where(inside, mu, 0.0), pads)
    rows, columns = padded.shape[0] // steps[0], padded.shape[1] // steps[1]
    blocks = padded.reshape(rows, steps[0], columns, steps[1]).transpose(0, 2, 1, 3).reshape(rows, columns, -1)
    best = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1)[..., 0]
    return best, best != 0


def _name(names: Mapping[tuple[int, int], str], column: int, unit: int) -> str:
    return names.get((column, unit), f"{column}.{unit}")

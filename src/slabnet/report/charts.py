"""Each chart of the page: plain numbers in; SVG, one sentence on how to read it, and the numbers as a table out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from slabnet.report.svg import Axis, Chart, number, percent, short

MOST_POINTS = 300  # of a line: a chart is 400 pixels wide
MOST_LINES = 500  # of a table of epochs
SHOWN_INPUTS = 30


@dataclass(frozen=True)
class Figure:
    """A picture with its title, how to read it, its legend (colour, text) and its numbers."""

    title: str
    how: str
    picture: Markup
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    legend: Sequence[tuple[str, str]] = ()


def ways_chart(rows: Sequence[Mapping[str, Any]], measure: str = "accuracy") -> Figure:
    """How good every way to predict is, against the share of the weights it uses.

    rows: dicts with `label`, `family`, `value`, `density`, `weights`, `draws`, `means`, `post_trained`.
    """
    values = [row["value"] for row in rows]
    room = max((max(values) - min(values)) * 0.15, 1e-3 * max(abs(v) for v in values), 1e-6)
    least = min(row["density"] for row in rows if row["density"] > 0) if any(r["density"] for r in rows) else 0.01
    top = max(values) + room
    high = min(top, 1.0) if measure == "accuracy" and max(values) < 1 else top
    chart = Chart(
        Axis(least / 1.6, 1.3, "share of the weights in use (log scale)", log=True, ticks=share_ticks(least)),
        Axis(min(values) - room, high, f"test {measure}"),
    )
    families = list(dict.fromkeys(row["family"] for row in rows))
    for row in rows:
        kind = "square" if row["draws"] > 1 else "diamond" if row["means"] else "dot"
        tip = f"{row['label']}: {measure} {number(row['value'])}, {percent(row['density'], 2)} of the weights"
        chart.point(
            max(row["density"], least / 1.5),
            row["value"],
            families.index(row["family"]),
            tip,
            kind + (" ring" if not row["post_trained"] else ""),
        )
    better = "higher" if measure == "accuracy" else "lower"
    lines = [
        [row["label"], number(row["value"]), percent(row["density"], 2), short(row["weights"]), str(row["draws"])]
        for row in rows
    ]
    return Figure(
        f"{measure[0].upper()}{measure[1:]} against density",
        f"Each mark is a way to predict: {better} is better, further left uses fewer weights. "
        "Circles are single draws, squares average several, diamonds use means; filled marks come after post-training.",
        chart.render(f"Test {measure} of every way to predict against the share of the weights it uses"),
        ["way to predict", measure, "weights in use", "number of weights", "networks averaged"],
        lines,
        [(f"s{i % 8}", family) for i, family in enumerate(families)],
    )


def importance_chart(rows: Sequence[Mapping[str, Any]], before: float | None, effects: bool) -> Figure:
    """Inputs by posterior inclusion probability, the share of drawn models that use one; `before`: before any data."""
    shown = rows[:SHOWN_INPUTS]
    chart = Chart(
        Axis(0, 1, "posterior inclusion probability of the input"),
        Axis(0, len(shown), "", ticks=[]),
        height=60 + 28 * len(shown),
    )
    for place, row in enumerate(shown):
        top = chart.py(len(shown) - place)
        place_of = (chart.px(0), top + 16, max(chart.px(row["share"]) - chart.px(0), 0.5))
        bar = Markup('<rect class="bar {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="8"/>')
        name = Markup('<text class="name" x="{:.1f}" y="{:.1f}">{}</text>')
        chart.parts.append(str(bar.format("s0" if row["selected"] else "s7", *place_of)))
        chart.parts.append(str(name.format(chart.px(0) + 1, top + 12, _cut(row["input"]))))
        if effects:
            size = Markup('<text class="name" x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>')
            chart.parts.append(str(size.format(chart.px(1) - 1, top + 12, f"moves it by {number(row['effect'])}")))
    if before is not None:
        chart.rule(x=before, kind="rule dashed")
    left_out = (
        f" The first {SHOWN_INPUTS} of {len(rows)} are drawn; the table has all." if len(rows) > len(shown) else ""
    )
    yardstick = "; the dashed line is what the prior alone would give" if before is not None else ""
    much = " On the right, how far the answer moves per standard deviation of the input." if effects else ""
    lines = []
    for row in rows:
        effect = [number(row["effect"])] if effects else []
        lines.append([row["input"], percent(row["share"]), *effect, "yes" if row["selected"] else "no"])
    return Figure(
        "Feature importance",
        f"A bar is how often a path leads from the input to an output, over drawn models{yardstick}.{much}{left_out}",
        chart.render("Posterior inclusion probability of each input"),
        ["input", "posterior inclusion probability", *(["mean effect"] if effects else []), "in the chosen model"],
        lines,
        [("s0", "in the chosen model"), ("s7", "not in it")],
    )


def alpha_chart(name: str, counts: Sequence[int]) -> Figure:
    """How many weights of a layer have which inclusion probability."""
    edges = [i / len(counts) for i in range(len(counts) + 1)]
    chart = Chart(
        Axis(0, 1, "inclusion probability alpha"), Axis(0.5, max(*counts, 1) * 1.5, "weights (log scale)", log=True)
    )
    for left, right, count in zip(edges, edges[1:], counts, strict=False):
        chart.bar(left, right, max(count, 0.5), 0 if left >= 0.5 else 7, f"{count} weights from {left:g} to {right:g}")
    chart.rule(x=0.5, kind="rule dashed")
    return Figure(
        f"Inclusion probabilities of {name}",
        "Weights right of the dashed line make the median model; a fit that has settled has little in the middle.",
        chart.render(f"Histogram of alpha in {name}"),
        ["alpha from", "to", "weights"],
        [[f"{a:g}", f"{b:g}", short(c)] for a, b, c in zip(edges, edges[1:], counts, strict=False)],
    )


def bound_chart(epochs: Mapping[str, Any]) -> Figure:
    """Both terms of the bound over the epochs, per row of data."""
    n = max(int(epochs.get("n") or 1), 1)
    fit = [-v / n for v in epochs["log_likelihood"]]
    kl = [v / n for v in epochs["kl"]]
    at = [i + 1.0 for i in range(len(fit))]
    log = min([*fit, *kl]) > 0
    chart = Chart(
        Axis(1, max(len(fit), 2), "epoch"),
        Axis(min([*fit, *kl]) * (0.8 if log else 1), max([*fit, *kl]) * 1.2, "nats a row", log=log),
    )
    for colour, values in enumerate((fit, kl)):
        chart.line(*thin(at, values), colour)
    weight = epochs.get("kl_weight") or [1.0] * len(fit)
    lines = [[str(i + 1), number(fit[i]), number(kl[i]), number(weight[i], 3)] for i in _some(len(fit))]
    return Figure(
        "The two terms of the bound",
        "Training lowers the sum: the first line is how badly the data are explained, the second what the model costs. "
        "Both should be level at the end.",
        chart.render("Negative log-likelihood and divergence over the epochs"),
        ["epoch", "-log-likelihood a row", "KL a row", "weight of the KL"],
        lines,
        [("s0", "-log-likelihood"), ("s1", "KL from the prior")],
    )


def density_chart(epochs: Mapping[str, Any]) -> Figure:
    """Densities and how far alpha has come, over the epochs."""
    names = [("density_median", "weights with alpha above one half"), ("density_expected", "mean alpha")]
    names += [("alpha_moving", "alpha still moving"), ("alpha_at_prior", "alpha at rest at the prior")]
    curves = [(text, [float(v) for v in epochs[key]]) for key, text in names if epochs.get(key)]
    count = len(curves[0][1])
    chart = Chart(Axis(1, max(count, 2), "epoch"), Axis(0, 1, "share of the weights"))
    for colour, (_, values) in enumerate(curves):
        chart.line(*thin([i + 1.0 for i in range(count)], values), colour)
    return Figure(
        "Density and convergence of alpha",
        "The share of weights in the model falls until alpha has decided; where many still move at the end, more "
        "epochs may change which weights are chosen.",
        chart.render("Density and convergence of the inclusion probabilities over the epochs"),
        ["epoch", *(text for text, _ in curves)],
        [[str(i + 1), *(percent(values[i]) for _, values in curves)] for i in _some(count)],
        [(f"s{i}", text) for i, (text, _) in enumerate(curves)],
    )


def reliability_chart(bins: Sequence[Mapping[str, float]], error: float) -> Figure:
    """bins: dicts with `low`, `high`, `rows`, `confidence`, `accuracy`; empty bins are left out."""
    chart = Chart(Axis(0, 1, "largest averaged probability"), Axis(0, 1, "share that is right"))
    most = max(b["rows"] for b in bins)
    chart.diagonal()
    for b in bins:
        tip = f"{b['rows']:.0f} rows: confidence {b['confidence']:.3f}, right {b['accuracy']:.3f}"
        chart.bar(b["low"], b["high"], 0.25 * b["rows"] / most, 7, tip)
    for b in bins:
        tip = f"{b['rows']:.0f} rows: confidence {b['confidence']:.3f}, right {b['accuracy']:.3f}"
        chart.point(b["confidence"], b["accuracy"], 0, tip)
    return Figure(
        "Calibration (reliability diagram)",
        f"Dots on the dashed line mean that of the rows it is 80% sure of, 80% are right; below it is over-confident. "
        f"Bars show where the rows are. The mean gap (calibration error) is {number(error, 3)}.",
        chart.render("Reliability diagram: accuracy against confidence"),
        ["confidence from", "to", "rows", "mean confidence", "share right"],
        [
            [
                f"{b['low']:.2f}",
                f"{b['high']:.2f}",
                f"{b['rows']:.0f}",
                f"{b['confidence']:.4f}",
                f"{b['accuracy']:.4f}",
            ]
            for b in bins
        ],
    )


def risk_chart(coverage: Sequence[float], risk: Sequence[float], table: Sequence[Sequence[str]], area: float) -> Figure:
    """Error among the decided against the share decided; the page's script moves a mark along it."""
    chart = Chart(
        Axis(0, 1, "share of the rows decided"), Axis(0, max(*risk, 0.01) * 1.1, "share of those that is wrong")
    )
    chart.line(*thin(coverage, risk), 0)
    chart.rule(x=1.0, kind="rule marker", name="risk-mark")
    return Figure(
        "Risk-coverage curve: doubt as an abstention",
        f"Rows are decided from the surest down: the further right, the more are decided and the more of those are "
        f"wrong (area under the line {number(area, 3)}). The slider sets how sure it has to be.",
        chart.render("Risk-coverage curve"),
        ["threshold", "rows decided", "share decided", "accuracy among them"],
        table,
    )


def coverage_chart(levels: Sequence[tuple[float, float, float]]) -> Figure:
    """(level, share of the observations inside, mean width) of the predictive intervals of a number."""
    chart = Chart(Axis(0, 1, "level of the interval"), Axis(0, 1, "share of observations inside"))
    chart.diagonal()
    for level, inside, _ in levels:
        chart.point(level, inside, 0, f"{level:.0%} prediction intervals cover {inside:.1%}")
    return Figure(
        "Coverage of prediction intervals",
        "Dots on the dashed line mean that 95% prediction intervals cover 95% of new observations; below it they are "
        "too narrow.",
        chart.render("Coverage of predictive intervals against their level"),
        ["level", "share inside", "mean width"],
        [[f"{level:.0%}", percent(inside), number(width)] for level, inside, width in levels],
    )


def entropy_chart(curves: Mapping[str, Sequence[float]], classes: int, addition: str = "") -> Figure:
    """Share of the rows whose entropy is at most x: quantiles at equal steps, one line a data set or run."""
    top = max(math.log(max(classes, 2)), *(max(values) for values in curves.values()))
    chart = Chart(Axis(0, top * 1.02, "entropy of the averaged probabilities, nats"), Axis(0, 1, "share of the rows"))
    for colour, values in enumerate(curves.values()):
        chart.line(list(values), [i / max(len(values) - 1, 1) for i in range(len(values))], colour)
    chart.rule(x=math.log(max(classes, 2)), kind="rule dashed")
    steps = [0.05, 0.25, 0.5, 0.75, 0.95]
    lines = [
        [name, *(number(values[round(s * (len(values) - 1))], 3) for s in steps)] for name, values in curves.items()
    ]
    return Figure(
        "Does it notice what it was not made for?",
        f"The further right a line, the more doubt; out-of-distribution rows should lie right of the in-distribution "
        f"ones, near the dashed line of knowing nothing.{addition}",
        chart.render("Entropy of predictions in and out of distribution"),
        ["rows", *(f"{s:.0%} below" for s in steps)],
        lines,
        [(f"s{i % 8}", name) for i, name in enumerate(curves)],
    )


def lines_chart(
    title: str, how: str, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], x: Axis, y: Axis
) -> Figure:
    """Any set of lines with names."""
    chart = Chart(x, y)
    for colour, (at, values) in enumerate(curves.values()):
        chart.line(*thin(list(at), list(values)), colour)
    lines = [
        [name, number(a), number(b)] for name, (at, values) in curves.items() for a, b in zip(at, values, strict=True)
    ]
    legend = [(f"s{i % 8}", name) for i, name in enumerate(curves)]
    return Figure(title, how, chart.render(title), ["line", x.label, y.label], lines, legend)


def named(figure: Figure, label: str) -> Figure:
    """The same figure, of one run among several."""
    return replace(figure, title=f"{figure.title}: {label}")


def thin(xs: Sequence[float], ys: Sequence[float], most: int = MOST_POINTS) -> tuple[list[float], list[float]]:
    """At most so many points of a line, the first and last among them.

    >>> thin([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], 3)
    ([1, 3, 5], [1, 3, 5])
    """
    places = _some(len(xs), most)
    return [xs[i] for i in places], [ys[i] for i in places]


def share_ticks(least: float) -> list[tuple[float, str]]:
    """Ticks of a density axis as per cent, from below `least` to all: closer ones where the axis is short.

    >>> [text for _, text in share_ticks(0.2)]
    ['10%', '20%', '50%', '100%']
    """
    low = math.floor(math.log10(least))
    leads = (1, 2, 5) if low >= -2 else (1,)
    ticks = [(lead * 10.0**e, f"{100 * lead * 10.0**e:g}%") for e in range(low, 1) for lead in leads]
    return [(value, text) for value, text in ticks if value <= 1]


def _some(count: int, most: int = MOST_LINES) -> list[int]:
    """Places from first to last, at most so many of them."""
    return list(range(count)) if count <= most else [round(i * (count - 1) / (most - 1)) for i in range(most)]


def _cut(text: str, most: int = 46) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"

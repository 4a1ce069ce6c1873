"""Charts of how right a model is: predicted against observed, and classes at every threshold. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from slabnet.report.charts import Figure, thin
from slabnet.report.svg import Axis, Chart, number, percent, short, svg

MOST_DOTS = 600  # rows of a scatter; more are drawn evenly
MOST_CLASSES = 8  # with a curve or a row of their own
AT = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
BINS = 10
Array = NDArray[np.float64]
Marks = NDArray[np.bool_]


def observed_chart(predicted: Array, observed: Array, target: str) -> Figure:
    """What was observed against what was predicted, a dot a row."""
    some = _evenly(len(predicted))
    low, high = (float(f(np.concatenate([predicted, observed]))) for f in (np.min, np.max))
    chart = Chart(Axis(low, high, f"predicted {target}"), Axis(low, high, f"observed {target}"))
    chart.diagonal()
    for i in some:
        tip = f"predicted {number(predicted[i])}, observed {number(observed[i])}"
        chart.point(float(predicted[i]), float(observed[i]), 0, tip, "dot small")
    return Figure(
        "Predicted against observed",
        f"Each dot is a test row; on the dashed line a prediction is exact.{_left_out(len(predicted), len(some))}",
        chart.render("Observed values against predictions"),
        ["predicted", "observed"],
        [[number(predicted[i]), number(observed[i])] for i in some],
    )


def residual_chart(predicted: Array, observed: Array, target: str) -> Figure:
    """What was observed minus what was predicted, against the prediction, and its mean in tenths of the rows."""
    some, off = _evenly(len(predicted)), observed - predicted
    chart = Chart(
        Axis(float(predicted.min()), float(predicted.max()), f"predicted {target}"),
        Axis(float(off.min()), float(off.max()), "observed minus predicted"),
    )
    chart.rule(y=0.0, kind="rule dashed")
    for i in some:
        chart.point(float(predicted[i]), float(off[i]), 0, f"{number(off[i])} at {number(predicted[i])}", "dot small")
    parts = np.array_split(np.argsort(predicted, kind="stable"), min(10, max(1, len(predicted) // 10)))
    middles = [(float(predicted[p].mean()), float(off[p].mean()), float(off[p].std()), len(p)) for p in parts]
    chart.line([m[0] for m in middles], [m[1] for m in middles], 1)
    return Figure(
        "Residuals",
        "Dots should lie evenly around the dashed line, with the same spread everywhere. The line is their mean in "
        "tenths of the rows: where it bends away, something is missing from the model.",
        chart.render("Residuals against predictions"),
        ["predicted, mean", "residual, mean", "residual, standard deviation", "rows"],
        [[number(a), number(b), number(c), str(n)] for a, b, c, n in middles],
        [("s0", "a test row"), ("s1", "mean of a tenth")],
    )


def roc_chart(curves: Mapping[str, tuple[Array, Marks]]) -> Figure:
    """For each class the share of its rows that is caught, against the share of others that is taken for it."""
    chart = Chart(Axis(0, 1, "false positive rate"), Axis(0, 1, "true positive rate"))
    chart.diagonal()
    lines = []
    for colour, (name, (share, yes)) in enumerate(curves.items()):
        false, caught, _ = rates(share, yes)
        chart.line(*thin(false.tolist(), caught.tolist()), colour)
        lines.append([name, str(int(yes.sum())), number(float(np.trapezoid(caught, false)), 3)])
    return Figure(
        "ROC curve",
        "The further the line is above the dashed one, the better rows of the class are told from the others, whatever "
        "the threshold. A coin would follow the dashed line.",
        chart.render("ROC curve of each class"),
        ["class", "rows", "area under the curve"],
        lines,
        [(f"s{i % 8}", name) for i, name in enumerate(curves)],
    )


def precision_chart(curves: Mapping[str, tuple[Array, Marks]]) -> Figure:
    """For each class the share of true ones among the rows that are taken for it, against the share that is caught."""
    chart = Chart(Axis(0, 1, "recall: share of the class that is caught"), Axis(0, 1, "precision"))
    lines = []
    for colour, (name, (share, yes)) in enumerate(curves.items()):
        _, caught, right = rates(share, yes)
        chart.line(*thin(caught[1:].tolist(), right[1:].tolist()), colour)
        chart.rule(y=float(yes.mean()), kind=f"rule dashed s{colour % 8}")
        average = float((np.diff(caught) * right[1:]).sum())
        lines.append([name, percent(float(yes.mean())), number(average, 3)])
    return Figure(
        "Precision and recall",
        "For a rare class this says more than the ROC curve: of the rows that are taken for it, how many are of it. "
        "The dashed line is the share of the class among all rows, which guessing would reach.",
        chart.render("Precision against recall of each class"),
        ["class", "share of the rows", "average precision"],
        lines,
        [(f"s{i % 8}", name) for i, name in enumerate(curves)],
    )


def rates(share: Array, yes: Marks) -> tuple[Array, Array, Array]:
    """False positive rate, true positive rate and precision at every threshold, from the strictest on.

    >>> false, caught, right = rates(np.array([0.9, 0.8, 0.1]), np.array([True, False, True]))
    >>> false.tolist(), caught.tolist(), [round(r, 2) for r in right.tolist()]
    ([0.0, 0.0, 1.0, 1.0], [0.0, 0.5, 0.5, 1.0], [1.0, 1.0, 0.5, 0.67])
    """
    order = np.argsort(-share, kind="stable")
    last = np.append(np.diff(share[order]) != 0, True)  # rows of one probability are taken together
    hits, taken = np.cumsum(yes[order])[last], (np.arange(len(order)) + 1)[last]
    false = (taken - hits) / max(1, int((~yes).sum()))
    caught, right = hits / max(1, int(yes.sum())), hits / taken
    return np.append(0.0, false), np.append(0.0, caught), np.append(1.0, right)


def thresholds_chart(share: Array, yes: Marks, name: str) -> Figure:
    """What a threshold on the probability of one class would do: the four counts of a confusion matrix."""
    rows = [_counts(share > at, yes) for at in AT]
    chart = Chart(Axis(0, 1, f"threshold on the probability of {name}"), Axis(0, 1, "share"))
    shown = {
        "caught (recall)": [tp / max(1, tp + fn) for tp, _, fn, _ in rows],
        "right among those taken (precision)": [tp / max(1, tp + fp) for tp, fp, _, _ in rows],
        "others left alone (specificity)": [tn / max(1, tn + fp) for _, fp, _, tn in rows],
    }
    for colour, values in enumerate(shown.values()):
        chart.line(list(AT), values, colour)
    return Figure(
        f"Confusion by threshold: {name}",
        "Where missing a row costs more than a false alarm, take a lower threshold. The table has the counts.",
        chart.render(f"Recall, precision and specificity against the threshold for {name}"),
        ["threshold", f"{name}, taken for it", "others, taken for it", f"{name}, missed", "others, left alone"],
        [[f"{at:g}", *(str(count) for count in row)] for at, row in zip(AT, rows, strict=True)],
        [(f"s{i}", text) for i, text in enumerate(shown)],
    )


def _counts(taken: Marks, yes: Marks) -> tuple[int, int, int, int]:
    """Rows of the class and others that are taken for it, and those of the class and others that are not."""
    return tuple(int((a & b).sum()) for a, b in ((taken, yes), (taken, ~yes), (~taken, yes), (~taken, ~yes)))  # type: ignore[return-value]


def confusion_chart(predicted: NDArray[np.int64], truth: NDArray[np.int64], names: Sequence[str]) -> Figure:
    """Rows of each class by what they were predicted as."""
    count = len(names)
    table = np.zeros((count, count), dtype=int)
    np.add.at(table, (truth, predicted), 1)
    cell, left = 300 / count, 80.0
    parts = []
    for i in range(count):
        parts.append(_label(left - 6, i * cell + cell / 2 + 4, names[i], "end"))
        parts.append(_label(left + i * cell + cell / 2, count * cell + 16, names[i], "middle", int(cell / 6)))
        for k in range(count):
            share = table[i, k] / max(1, table[i].sum())
            tip = f"{names[i]} predicted as {names[k]}: {table[i, k]} rows ({share:.1%})"
            parts.append(
                f'<rect class="cell" x="{left + k * cell:.1f}" y="{i * cell:.1f}" width="{cell - 1:.1f}" '
                f'height="{cell - 1:.1f}" fill-opacity="{0.03 + 0.6 * share:.3f}"><title>{escape(tip)}</title></rect>'
            )
            if count <= 12:
                parts.append(_label(left + k * cell + cell / 2, i * cell + cell / 2 + 4, str(table[i, k]), "middle", 9))
    picture = svg(left + 300, count * cell + 24, "Confusion matrix", "".join(parts), "chart confusion")
    return Figure(
        "Confusion matrix",
        "A row of the picture is what a test row is, a column what it was predicted as; the strength of the colour is "
        "the share of the row.",
        picture,
        ["is", *(f"predicted {name}" for name in names)],
        [[names[i], *(str(v) for v in table[i])] for i in range(count)],
    )


def _label(x: float, y: float, text: str, anchor: str, most: int = 12) -> str:
    shown = text if len(text) <= max(2, most) else f"{text[: max(1, most - 1)]}…"
    return f'<text class="name" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(shown)}</text>'


def calibration_chart(curves: Mapping[str, tuple[Array, Marks]]) -> Figure:
    """For each class how often it happened among rows that were given a probability of it."""
    chart = Chart(Axis(0, 1, "probability of the class"), Axis(0, 1, "share of rows that are of it"))
    chart.diagonal()
    lines = []
    for colour, (name, (share, yes)) in enumerate(curves.items()):
        place = np.minimum((share * BINS).astype(int), BINS - 1)
        bins = [place == b for b in range(BINS) if (place == b).any()]
        dots = [(float(share[b].mean()), float(yes[b].mean()), int(b.sum())) for b in bins]
        chart.line([d[0] for d in dots], [d[1] for d in dots], colour)
        for said, happened, rows in dots:
            chart.point(said, happened, colour, f"{name}: {rows} rows, said {said:.2f}, happened {happened:.2f}")
        lines += [[name, number(said, 3), number(happened, 3), short(rows)] for said, happened, rows in dots]
    return Figure(
        "Calibration by class",
        "On the dashed line, of the rows that are given a probability of 0.3 of a class, 30% are of it. Points of few "
        "rows move by chance; the table has their numbers.",
        chart.render("Calibration of the probability of each class"),
        ["class", "probability, mean", "share that happened", "rows"],
        lines,
        [(f"s{i % 8}", name) for i, name in enumerate(curves)],
    )


def effects_chart(rows: Sequence[Mapping[str, Any]], unit: str) -> Figure:
    """How far the answer moves per standard deviation of an input, with its 95% interval; largest first."""
    shown = rows[:30]
    ends = [value for row in shown for value in (row["low"], row["high"], 0.0)]
    chart = Chart(Axis(min(ends), max(ends), unit), Axis(0, len(shown), "", ticks=[]), height=60 + 28 * len(shown))
    chart.rule(x=0.0, kind="rule dashed")
    for place, row in enumerate(shown):
        top = chart.py(len(shown) - place)
        a, b, at = (chart.px(row[key]) for key in ("low", "high", "effect"))
        name = Markup('<text class="name" x="{:.1f}" y="{:.1f}">{}</text>')
        chart.parts.append(str(name.format(chart.px(min(ends)) + 1, top + 11, row["name"][:46])))
        y = top + 20
        chart.parts.append(f'<line class="interval" x1="{a:.1f}" y1="{y:.1f}" x2="{b:.1f}" y2="{y:.1f}"/>')
        tip = f"{row['name']}: {number(row['effect'], 3)} ({number(row['low'], 3)} to {number(row['high'], 3)})"
        colour = 0 if row["low"] > 0 or row["high"] < 0 else 7
        dot = '<circle class="dot s{}" cx="{:.1f}" cy="{:.1f}" r="4"><title>{}</title></circle>'
        chart.parts.append(dot.format(colour, at, y, escape(tip)))
    rest = f" The first {len(shown)} of {len(rows)} are drawn; the table has all." if len(rows) > len(shown) else ""
    return Figure(
        "Which way, and how surely",
        "How far the answer moves per standard deviation of the input, averaged over rows, with the 95% interval over "
        f"drawn networks; grey where the interval holds zero.{rest}",
        chart.render("Signed effects of the inputs with 95% intervals"),
        ["input", "effect", "from", "to"],
        [[row["name"], *(number(row[key], 3) for key in ("effect", "low", "high"))] for row in rows],
    )


def _evenly(count: int) -> list[int]:
    return [int(i) for i in np.unique(np.linspace(0, count - 1, min(count, MOST_DOTS)).astype(int))]


def _left_out(count: int, shown: int) -> str:
    return "" if count == shown else f" {shown} of {short(count)} rows are drawn."

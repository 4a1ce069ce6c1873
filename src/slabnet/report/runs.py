"""The page of a folder of runs: the comparison, from records alone. Imports no torch."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slabnet.core.files import check_writable
from slabnet.experiments.files import read_records
from slabnet.experiments.tables import TABLES, Group, groups_of
from slabnet.report import charts
from slabnet.report.page import render_page, write_page
from slabnet.report.parts import Section
from slabnet.report.svg import Axis, Chart, number, percent, short

HOW = {
    "1": "One line is a way to predict: gamma and beta drawn (SIM), median (MED), mean (EXP) or all (ALL); PT is "
    "post-trained, R the networks averaged. + is better than the paper, * inside its range.",
    "3": "The mean inclusion probability of a layer is the share of its weights that a drawn network uses.",
    "densities": "Weights is what the chosen model keeps; active are those on a path from an input to an output.",
    "ood": "AUROC: how well entropy tells images of another data set (0.5 is guessing, 1 always).",
}


def report_runs(folder: str | Path, out: str | Path) -> Path:
    """Write the page about the records in `folder`."""
    check_writable("report", out)
    return write_page(out, runs_page(folder))


def runs_page(folder: str | Path) -> bytes:
    """The page as bytes; the same for the same records."""
    records = read_records(folder)
    groups = groups_of(records)
    sections = [_summary(groups), *_pictures(groups), *_tables(records), _settings(records)]
    return render_page(" and ".join(dict.fromkeys(g.dataset for g in groups)), "a comparison of runs", sections, {})


def _summary(groups: Sequence[Group]) -> Section:
    runs = sum(len(group.runs) for group in groups)
    sets = ", ".join(dict.fromkeys(group.dataset for group in groups))
    best = max(groups, key=lambda group: _best(group)["accuracy"])
    row = _best(best)
    text = [
        f"{_runs(runs)} of {len(groups)} settings on {sets} are compared here, each by every way it can predict.",
        f"The most accurate is {best.label} on {best.dataset}: {percent(row['accuracy'], 2)} of the test rows "
        f"(median over {_runs(len(best.runs))}), with {percent(row['density'], 2)} of the weights.",
    ]
    return Section("summary", "What was compared, and what came out", text)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _best(group: Group) -> dict[str, float]:
    return max(_ways(group), key=lambda way: way["accuracy"])


def _ways(group: Group) -> list[dict[str, Any]]:
    """Medians over the runs of a group, one for each way to predict."""
    rows_of: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in group.runs:
        for row in run["rows"]:
            rows_of.setdefault((row["gamma"], row["beta"], row["post_trained"], row["draws"]), []).append(row)
    return [
        {
            "way": f"gamma {gamma}, beta {beta}{', post-trained' if post else ''}, {draws} averaged",
            "accuracy": statistics.median(row["accuracy"] for row in rows),
            "density": statistics.median(row["density_used"] for row in rows),
            "post_trained": post,
            "draws": draws,
        }
        for (gamma, beta, post, draws), rows in rows_of.items()
    ]


def _pictures(groups: Sequence[Group]) -> list[Section]:
    sections: list[Section] = []
    for dataset in dict.fromkeys(group.dataset for group in groups):
        here = [group for group in groups if group.dataset == dataset]
        figures = [_scatter(here)]
        curves = {g.label: g.runs[0]["averaging"] for g in here if g.runs[0].get("averaging")}
        if curves:
            figures.append(_averaging(curves))
        for group in here:
            if (group.runs[0].get("ood") or {}).get("as fitted"):
                part = group.runs[0]["ood"]["as fitted"]
                other = group.runs[0]["data"]["ood"]
                figures.append(
                    charts.entropy_chart(
                        {dataset: part["in_distribution"], str(other): part["out_of_distribution"]},
                        10,
                        f" ({group.label})",
                    )
                )
        for group in here:
            layers = [part for part in group.runs[0]["layers"] if "histogram" in part]
            figures += [
                charts.alpha_chart(f"layer {i + 1}, {group.label}", p["histogram"]) for i, p in enumerate(layers)
            ]
        for group in here:
            history = group.runs[0]["history"].get("fit")
            if history and any(value for value in history["kl"]):
                figures.append(charts.named(charts.bound_chart(history), group.label))
        sections.append(
            Section(
                f"set-{len(sections)}",
                f"On {dataset}",
                ["Lines and histograms are of the first run of a setting."],
                figures,
            )
        )
    return sections


def _scatter(groups: Sequence[Group]) -> charts.Figure:
    points = [(index, group.label, way) for index, group in enumerate(groups) for way in _ways(group)]
    values = [way["accuracy"] for *_, way in points]
    room = max((max(values) - min(values)) * 0.1, 1e-3)
    least = max(min(way["density"] for *_, way in points), 1e-5)
    chart = Chart(
        Axis(least / 1.6, 1.3, "share of the weights in use (log scale)", log=True, ticks=charts.share_ticks(least)),
        Axis(min(values) - room, min(1.0, max(values) + room), "test accuracy"),
    )
    for index, label, way in points:
        kind = ("square" if way["draws"] > 1 else "dot") + ("" if way["post_trained"] else " ring")
        chart.point(
            max(way["density"], least),
            way["accuracy"],
            index,
            f"{label}: {way['way']}, {number(way['accuracy'])}",
            kind,
        )
    return charts.Figure(
        "Accuracy against density",
        "Each mark is a way to predict, the median over the runs: higher is better, further left uses fewer weights. "
        "Squares average several drawn networks; filled marks come after post-training.",
        chart.render("Accuracy of every way to predict against the share of weights it uses"),
        ["setting", "way", "accuracy", "weights in use"],
        [[label, way["way"], number(way["accuracy"]), percent(way["density"], 2)] for _, label, way in points],
        [(f"s{i % 8}", group.label) for i, group in enumerate(groups)],
    )


def _averaging(curves: dict[str, list[dict[str, float]]]) -> charts.Figure:
    lines = {name: ([p["draws"] for p in points], [p["accuracy"] for p in points]) for name, points in curves.items()}
    values = [v for _, ys in lines.values() for v in ys]
    room = max((max(values) - min(values)) * 0.1, 1e-3)
    ticks = [(float(r), str(r)) for r in (1, 2, 5, 10, 20, 50, 100)]
    return charts.lines_chart(
        "How many networks to average",
        "Accuracy against the number of drawn networks whose probabilities are averaged: it grows fast at first.",
        lines,
        Axis(1, 100, "networks averaged (log scale)", log=True, ticks=ticks),
        Axis(min(values) - room, min(1.0, max(values) + room), "test accuracy"),
    )


def _tables(records: list[dict[str, Any]]) -> list[Section]:
    sections = []
    for name, make in TABLES.items():
        table = make(records)
        if table.lines:
            sections.append(Section(f"table-{name}", table.title, [HOW[name]], kind="table", more={"table": table}))
    return sections


def _settings(records: list[dict[str, Any]]) -> Section:
    commands = "\n".join(record["command"] for record in records)
    departures = sorted({line for record in records for line in record["plan"].get("departures", ())})
    versions = sorted({f"{name} {value}" for record in records for name, value in record["versions"].items()})
    seconds = sum(sum(record["seconds"].values()) for record in records)
    facts = [
        ("records", str(len(records))),
        ("versions", ", ".join(versions)),
        ("time of all runs", f"{short(seconds)} s"),
    ]
    code = [("To repeat them, as the records say", commands)]
    code += [("Where the settings are not those of the paper's text", "\n".join(departures))] if departures else []
    return Section("settings", "How to repeat it", facts=facts, code=code)

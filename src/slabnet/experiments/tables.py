"""The paper's tables beside ours, from records: Table 1, Table 3, densities, OOD rows. Imports no torch."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any, NamedTuple

from slabnet.experiments.formats import Table
from slabnet.experiments.profiles import PAPERS_TABLES, Profile

Record = dict[str, Any]
PUBLISHED = {"mnist": (60_000, 10_000), "fashion-mnist": (60_000, 10_000)}  # rows to train on and to test on
MISSING = ""  # a dash would read as "worse"
METHODS_IN_ORDER = ("lbbnn", "gaussian", "mixture", "concrete-dropout", "horseshoe", "normal-jeffreys")
PAPERS_NAME = {"normal-jeffreys": "horseshoe"}  # what the scripts behind the paper's horseshoe rows train
READINGS = ("ours", "authors")
UNKNOWN = "-"  # of records that were measured before both readings were kept


class Group(NamedTuple):
    """The runs of one setting, which differ in their seed only."""

    dataset: str
    profile: str
    method: str
    hidden: tuple[int, ...]
    folds: int  # of a cross-validation; 0: the data set's own test rows
    epochs: tuple[int | None, int | None]  # of training and post-training
    runs: list[Record]

    @property
    def label(self) -> str:
        widths = "" if self.hidden == PAPERS_TABLES else f" ({'-'.join(map(str, self.hidden))})"
        length = "" if self._whole else f", {self.epochs[0]} + {self.epochs[1]} epochs"
        return f"{self.method}, {self.profile}{widths}" + (f", {self.folds} folds" if self.folds else "") + length

    @property
    def _whole(self) -> bool:
        """Whether these runs have the length their profile gives them."""
        if self.profile not in Profile.names():
            return True
        plan = Profile.named(self.profile).plan(self.dataset, self.method, 0)
        return self.epochs == (plan.train.epochs, plan.post.epochs)

    @property
    def comparable(self) -> bool:
        """Whether the paper has numbers for this: it tests on the published rows, all of them."""
        data, published = self.runs[0].get("data", {}), PUBLISHED.get(self.dataset)
        return not self.folds and published is not None and (data.get("train"), data.get("test")) == published


def groups_of(records: list[Record]) -> list[Group]:
    """Records sorted into groups: data set, method in the paper's order, profile."""
    records_of: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        plan = record["plan"]
        network, fold = plan["network"], plan.get("fold")
        folds = 0 if fold is None else fold[1]
        epochs = (plan["train"]["epochs"], plan["post"]["epochs"])
        key = (plan["dataset"], plan["profile"], network["method"], tuple(network["hidden"]), folds, epochs)
        records_of.setdefault(key, []).append(record)
    ranks = {name: rank for rank, name in enumerate(METHODS_IN_ORDER)}
    order = sorted(
        records_of, key=lambda key: (key[0] != "mnist", key[0], ranks.get(key[2], 9), key[2], key[1], str(key[3:]))
    )
    return [Group._make((*key, records_of[key])) for key in order]


def table1(records: list[Record], reading: str = "ours") -> Table:
    """Every way to predict, median (min, max) over the runs, beside the paper's.

    reading: "ours" averages probabilities; "authors" reads the same draws as the authors' scripts do
        (`slabnet.prediction.readings`), with a dash where a record was measured before that was kept.

    The mark says whether our median is better (+) than the paper's, worse (-) or the same (=) in three decimals;
    an asterisk that it lies inside the paper's own range. Density marks are + where ours is smaller.
    """
    header = ["data", "method, profile", "runs", "gamma", "beta", "PT", "R"]
    header += ["accuracy", "paper: accuracy", "mark", "at 0.95", "paper: at 0.95", "decided", "paper: decided"]
    header += ["density used", "paper: density", "mark (density)"]
    lines = []
    for group in groups_of(records):
        for key, rows in _by_way(group).items():
            gamma, beta, post, draws = key
            paper, averaged = _paper_row(group, key), draws > 1
            rows = [as_authors(row) for row in rows] if averaged and reading == "authors" else rows
            line = [group.dataset, group.label, str(len(rows)), gamma, beta, "Y" if post else "N", str(draws)]
            line += [_spread(_known(rows, "accuracy")), _paper_spread(paper)]
            line += [_mark(_known(rows, "accuracy"), paper, "accuracy", larger=True)]
            line += [_median(rows, "accuracy_at_95", ".3f") if averaged else MISSING, _paper(paper, "accuracy_at_95")]
            line += [
                _median(rows, "classified_at_95", ".0f") if averaged else MISSING,
                _paper(paper, "classified_at_95"),
            ]
            line += [_median(rows, "density_used", ".3f"), _paper(paper, "density")]
            line += [_mark(_known(rows, "density_used"), paper, "density", larger=False)]
            lines.append(line)
    by_authors = ", averaged rows read as the authors' scripts do" if reading == "authors" else ""
    return Table(f"Table 1: every way to predict, ours beside the paper's{by_authors}", header, lines)


def as_authors(row: Record) -> Record:
    """A row with the numbers the authors' scripts would print for its draws; None where they were not kept."""
    read = row.get("authors") or {}
    decided, right = read.get("decided"), read.get("right")
    return row | {
        "accuracy": read.get("accuracy"),
        "classified_at_95": decided,
        "accuracy_at_95": right / decided if decided else None,
        "density_used": read.get("density") if row["gamma"] == "SIM" and read.get("density") else row["density_used"],
    }


def _known(rows: list[Record], key: str) -> list[float]:
    return [row[key] for row in rows if row[key] is not None]


def table3(records: list[Record]) -> Table:
    """Mean inclusion probability of each layer, median and standard deviation over the runs."""
    header = [
        "data",
        "method, profile",
        "runs",
        "layer",
        "weights",
        "mean alpha",
        "sd",
        "paper: alpha",
        "paper: sd",
        "ratio",
    ]
    lines = []
    for group in groups_of(records):
        layers = [[part for part in run["layers"] if "inclusion" in part] for run in group.runs]
        if not layers[0]:
            continue
        for index, part in enumerate(layers[0]):
            values = [run[index]["inclusion"] for run in layers]
            theirs = paper_table3() if group.comparable and group.hidden == PAPERS_TABLES else ()
            paper = next((r for r in theirs if (r["dataset"], r["layer"]) == (group.dataset, index + 1)), None)
            sd = f"{statistics.stdev(values):.4f}" if len(values) > 1 else MISSING
            median = statistics.median(values)
            line = [group.dataset, group.label, str(len(values)), str(index + 1), str(part["weights"])]
            line += [f"{median:.4f}", sd]
            if paper is None:
                line += [MISSING] * 3
            else:
                line += [f"{paper['median_inclusion']:.4f}", f"{paper['sd']:.4f}"]
                line += [f"{median / paper['median_inclusion']:.2f}"]
            lines.append(line)
    return Table("Table 3: mean inclusion probability of each layer", header, lines)


def densities(records: list[Record]) -> Table:
    """The chosen model: what it reaches with means after post-training, its densities, and what it consists of."""
    header = ["data", "method, profile", "runs", "accuracy", "paper: accuracy", "weights", "density median"]
    header += ["paper: density", "density active", "density expected", "density used in 10 draws"]
    header += ["kernels", "linear weights", "intercepts"]
    lines = []
    for group in groups_of(records):
        ways = _by_way(group)
        rows = ways.get(("MED", "EXP", True, 1)) or ways.get(("PRN", "EXP", True, 1))
        drawn = next(
            (part for (gamma, _, post, r), part in ways.items() if gamma == "SIM" and post and r > 1),
            None,
        )
        if not rows:
            continue
        paper = _paper_row(group, (rows[0]["gamma"], "EXP", True, 1))
        line = [group.dataset, group.label, str(len(rows)), _spread([row["accuracy"] for row in rows])]
        line += [_paper_spread(paper), _median(rows, "weights", ".0f"), _median(rows, "density_median", ".4f")]
        line += [_paper(paper, "density"), _median(rows, "density_active", ".4f")]
        line += [_median(rows, "density_expected", ".4f")]
        line += [_median(drawn, "density_used", ".4f") if drawn else MISSING]
        counts = [run["counts"] for run in group.runs if run.get("counts")]
        line += [_median(counts, name, ".0f") for name in ("kernels", "linear", "intercepts")]
        lines.append(line)
    return Table("The chosen model with its means, post-trained, and the densities", header, lines)


def _trust_keys(records: list[Record]) -> list[str]:
    """Metrics of the averaged probabilities: three that every record has, then those that a user registered."""
    keys = {key: None for record in records for part in record["trust"].values() for key in part}
    return list({"nll": None, "brier": None, "calibration_error": None} | keys)


def ood(records: list[Record]) -> Table:
    """How well the entropy of the averaged prediction tells images of another data set, and calibration on its own."""
    header = ["trained on", "method, profile", "runs", "version", "AUROC by entropy", "by mutual information"]
    keys = _trust_keys(records)
    header += [{"nll": "NLL", "brier": "Brier"}.get(key, key.replace("_", " ")) for key in keys]
    lines = []
    for group in groups_of(records):
        for version in group.runs[0]["trust"]:
            runs = [run for run in group.runs if version in run["trust"]]
            line = [group.dataset, group.label, str(len(runs)), version]
            for key in ("auroc", "auroc_mutual_information"):
                values = [run["ood"][version][key] for run in runs if run.get("ood")]
                line.append(f"{statistics.median(values):.3f}" if values else MISSING)
            for key in keys:
                measured = [run["trust"][version][key] for run in runs if key in run["trust"][version]]
                line.append(f"{statistics.median(measured):.4f}" if measured else MISSING)
            lines.append(line)
    return Table("Out-of-distribution detection and calibration (averaged over 10 draws)", header, lines)


TABLES: dict[str, Callable[[list[Record]], Table]] = {
    "1": table1,
    "3": table3,
    "densities": densities,
    "ood": ood,
}


def paper_table1() -> Iterator[dict[str, Any]]:
    """The rows of the paper's Table 1; None where it has a dash."""
    for row in _csv("table1.csv"):
        numbers = {key: _number(row[key]) for key in row if key not in ("dataset", "method", "gamma", "beta")}
        yield row | numbers | {"post_trained": row["post_trained"] == "Y", "draws": int(row["draws"])}


def paper_table3() -> Iterator[dict[str, Any]]:
    """The rows of the paper's Table 3."""
    for row in _csv("table3.csv"):
        yield {
            "dataset": row["dataset"],
            "layer": int(row["layer"]),
            "median_inclusion": float(row["median_inclusion"]),
            "sd": float(row["sd"]),
        }


def _csv(name: str) -> list[dict[str, str]]:
    text = resources.files("slabnet.experiments").joinpath("paper", name).read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _by_way(group: Group) -> dict[tuple[str, str, bool, int], list[Record]]:
    """The rows of all runs of a group, by the way they predict."""
    rows_of: dict[tuple[str, str, bool, int], list[Record]] = {}
    for run in group.runs:
        for row in run["rows"]:
            rows_of.setdefault((row["gamma"], row["beta"], row["post_trained"], row["draws"]), []).append(row)
    return rows_of


def _paper_row(group: Group, way: tuple[str, str, bool, int]) -> dict[str, Any] | None:
    """The same of the paper."""
    method = PAPERS_NAME.get(group.method, group.method)
    for row in paper_table1() if group.comparable else ():
        key = (row["gamma"], row["beta"], row["post_trained"], row["draws"])
        if (row["dataset"], row["method"]) == (group.dataset, method) and key == way:
            return row
    return None


def _spread(values: list[float]) -> str:
    if not values:
        return UNKNOWN
    middle = f"{statistics.median(values):.3f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.3f}, {max(values):.3f})"


def _paper_spread(paper: dict[str, Any] | None) -> str:
    if paper is None:
        return MISSING
    return f"{paper['accuracy']:.3f} ({paper['accuracy_min']:.3f}, {paper['accuracy_max']:.3f})"


def _paper(paper: dict[str, Any] | None, key: str) -> str:
    if paper is None or paper[key] is None:
        return MISSING
    return f"{paper[key]:.0f}" if key == "classified_at_95" else f"{paper[key]:.3f}"


def _median(rows: list[Record], key: str, form: str) -> str:
    values = _known(rows, key)
    return format(statistics.median(values), form) if values else UNKNOWN


def _mark(values: list[float], paper: dict[str, Any] | None, key: str, larger: bool) -> str:
    """Of the median: + better, - worse, = the same in three decimals; * inside the paper's range."""
    if paper is None or paper[key] is None or not values:
        return ""
    value = statistics.median(values)
    gap = round(value, 3) - paper[key]
    mark = "=" if abs(gap) < 5e-4 else "+" if (gap > 0) == larger else "-"
    inside = key == "accuracy" and paper["accuracy_min"] - 5e-4 <= value <= paper["accuracy_max"] + 5e-4
    return mark + ("*" if inside else "")

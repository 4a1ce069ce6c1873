"""docs/sparsity.md: accuracy against weights, ours from records, others' as published.

`python -m benchmarks.sparsity --curve RESULTS/KEY.slab` takes the most probable models of fewer and fewer weights
out of a run's model, post-trains each, and adds them to the record; it can be stopped and started again. Without an
option the page and its picture are made anew from the records in `benchmarks/records/sparsity/`.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

import slabnet as sn
from benchmarks import teacher
from benchmarks.record import RECORDS, provenance, write_bytes, write_page
from benchmarks.resumable import run_all
from slabnet.data import load
from slabnet.experiments.files import read_records
from slabnet.experiments.profiles import Profile
from slabnet.store import read_card

FOLDER = RECORDS / "sparsity"
BUDGETS = (300, 500, 700, 850, 1000, 1500, 2000, 2500, 10_000)
POST = {"epochs": 10, "lr": 1e-3}
ONE_ROW, REPEATS = 1, 200


class Published(NamedTuple):
    """A point of somebody else's, with its source."""

    dataset: str
    network: str
    name: str
    accuracy: float
    weights: int
    source: str


OTHERS = (
    Published("mnist", "MLP", "sparse variational dropout", 0.9808, 3900, "Molchanov et al. 2017, LeNet-300-100"),
    Published("mnist", "MLP", "DeepHoyer", 0.984, 4600, "Yang et al. 2020, LeNet-300-100, as published"),
    Published("mnist", "MLP", "DeepHoyer, reproduced", 0.980, 9900, "a later reproduction, LeNet-300-100"),
    Published("mnist", "MLP", "input-skip, flow", 0.967, 887, "ISLaB scripts (authors of the paper)"),
    Published("mnist", "MLP", "input-skip, local", 0.9684, 1157, "ISLaB scripts (authors of the paper)"),
    Published("mnist", "MLP", "LBBNN, the paper", 0.965, 31_300, "Hubin & Storvik, Table 1, median model"),
    Published("mnist", "CNN", "sparse variational dropout", 0.9925, 1540, "Molchanov et al. 2017, LeNet-5"),
    Published("mnist", "CNN", "Bayesian compression", 0.990, 2800, "Louizos et al. 2017, LeNet-5"),
    Published("fashion-mnist", "CNN", "LeNet-5, pruned", 0.9047, 4156, "as published, kernels counted"),
    Published("fashion-mnist", "MLP", "MLP, pruned", 0.891, 23_000, "as published"),
)
MUST = {  # what was set out for, beside what others have
    ("mnist", "sparse"): ("MNIST MLP, median model, post-trained", ".984 at 4 600; .981 at 3 900", ".981 at <= 2 300"),
    ("mnist", "smallest"): ("MNIST MLP, smallest", ".967 at 887", ".970 at <= 1 000"),
    ("mnist", "lenet"): ("MNIST CNN, everything counted", ".9925 at 1 540; .990 at 2 800", ".990 at <= 2 800"),
    ("fashion-mnist", "sparse"): ("Fashion-MNIST MLP", ".891 at 23 000", ".888 at <= 2 800"),
    ("fashion-mnist", "lenet"): ("Fashion-MNIST CNN", ".9047 at 4 156", ".895 at <= 4 000"),
}


def curve(path: Path, job: dict[str, Any]) -> dict[str, Any]:
    """The most probable model of so many weights, post-trained on all training rows and looked at on the test rows."""
    card, net = read_card(path), sn.load(path)
    assert isinstance(net, sn.Network)
    split, started = load(str(card.data)), time.perf_counter()
    shape = net.row_shape or split.train[0].shape[1:]
    train, test = ((rows[0].reshape(-1, *shape), rows[1]) for rows in (split.train, split.test))
    chosen = sn.budget_model(net, weights=job["budget"], infeasible="path")
    accuracy = sn.accuracy(sn.predict(net, test[0], draw=sn.fixed(chosen.masks)), test[1])
    small = sn.compact(net, chosen, keep="distribution")
    sn.fit(small, train, sn.TrainConfig(**POST, seed=1), progress="off")
    trained = copy.deepcopy(net)
    small.put_back(trained)
    after = sn.accuracy(sn.predict(trained, test[0], draw=sn.fixed(chosen.masks)), test[1])
    result = {"weights": chosen.weights, **chosen.counts._asdict(), "accuracy": accuracy, "post_trained": after}
    return (
        result
        | {"dataset": card.data, **exported(trained, chosen, test[0])}
        | {"seconds": round(time.perf_counter() - started, 1)}
    )


def exported(net: sn.Network, chosen: sn.Selection, x: torch.Tensor) -> dict[str, Any]:
    """The size of the model as a compact file, and the time of one row."""
    small = sn.compact(net, chosen)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.slab"
        sn.save(small, path)
        size = path.stat().st_size
    times = []
    with torch.no_grad():
        for _ in range(REPEATS):
            started = time.perf_counter()
            small(x[:ONE_ROW])
            times.append(time.perf_counter() - started)
    return {"bytes": size, "microseconds": round(1e6 * statistics.median(times), 1)}


def chosen_row(record: dict[str, Any]) -> dict[str, Any]:
    """The median model with its means, post-trained."""
    return next(r for r in record["rows"] if (r["gamma"], r["beta"], r["post_trained"]) == ("MED", "EXP", True))


def averaged_row(record: dict[str, Any]) -> dict[str, Any]:
    """Ten networks drawn from the posterior; post-trained where that was done."""
    rows = [r for r in record["rows"] if (r["gamma"], r["draws"]) == ("SIM", 10)]
    return rows[-1]


def points() -> list[tuple[str, str, float, int]]:
    """(data, name, accuracy, weights) of everything of ours."""
    made = []
    for record in read_records(FOLDER):
        row, plan = chosen_row(record), record["plan"]
        made.append((plan["dataset"], plan["profile"], row["accuracy"], row["weights"]))
    for path in sorted(RECORDS.glob("sparsity-curve-*.json")):
        for result in json.loads(path.read_text())["results"]:
            made.append((result["dataset"], "curve", result["post_trained"], result["weights"]))
    return made


def targets() -> str:
    """The table of what was set out for; a dash where there is no record yet."""
    lines = ["| what | others | wanted at least | ours, median of the runs | runs |", "|---|---|---|---|---|"]
    records = read_records(FOLDER)
    for (dataset, profile), (what, others, must) in MUST.items():
        of_data = [r for r in records if r["plan"]["dataset"] == dataset]
        runs = [r for r in of_data if r["plan"]["profile"] == profile]
        smaller = [] if runs else [r for r in of_data if r["plan"]["profile"] == f"{profile}-small"]
        runs, got = runs or smaller, "-"
        if runs:
            rows = [chosen_row(run) for run in runs]
            middle = {key: statistics.median(row[key] for row in rows) for key in ("accuracy", "weights")}
            got = f"{middle['accuracy']:.4f} at {middle['weights']:.0f}{f' ({profile}-small)' if smaller else ''}"
        if profile == "smallest":
            got = " ".join(filter(None, (got if runs else "", best_below(dataset, 1000)))) or "-"
        lines.append(f"| {what} | {others} | {must} | {got} | {len(runs) or '-'} |")
    return "\n".join(lines)


def best_below(dataset: str, weights: int) -> str:
    """The best point of the curve with at most so many weights."""
    some = [p for p in points() if p[0] == dataset and p[1] == "curve" and p[3] <= weights]
    best = max(some, key=lambda p: p[2], default=None)
    return "" if best is None else f"{best[2]:.4f} at {best[3]} (curve)"


def runs_table() -> str:
    """Every run: what it reaches and how well calibrated it is."""
    head = ["data", "profile", "seed", "median", "post-trained", "averaged", "weights", "kernels", "linear"]
    head += ["intercepts", "decided at .95", "of these right", "ECE", "OOD AUROC", "bound", "minutes", "commit"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for record in read_records(FOLDER):
        plan, row, averaged = record["plan"], chosen_row(record), averaged_row(record)
        before = next(r for r in record["rows"] if (r["gamma"], r["beta"], r["post_trained"]) == ("MED", "EXP", False))
        version = list(record["trust"])[-1]
        fit, counts = record["history"]["fit"], record.get("counts") or {}
        cells = [plan["dataset"], plan["profile"], plan["seed"]]
        cells += [f"{r['accuracy']:.4f}" for r in (before, row, averaged)]
        cells += [row["weights"], *(counts.get(name, "-") for name in ("kernels", "linear", "intercepts"))]
        cells += [averaged["classified_at_95"], f"{averaged['accuracy_at_95']:.4f}"]
        cells += [f"{record['trust'][version]['calibration_error']:.4f}"]
        cells += [f"{record['ood'][version]['auroc']:.3f}" if record.get("ood") else "-"]
        cells += [
            f"{fit['log_likelihood'][-1] - fit['kl'][-1]:.0f}",
            f"{sum(record['seconds'].values()) / 60:.0f}",
            record["commit"],
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def curve_tables() -> str:
    """The curves, with the size and the time of each model."""
    parts = []
    for path in sorted(RECORDS.glob("sparsity-curve-*.json")):
        record = json.loads(path.read_text())
        lines = ["| asked | weights | kernels | linear | intercepts | as fitted | post-trained | bytes | us a row |"]
        lines.append("|" + "---|" * 9)
        for r in sorted(record["results"], key=lambda result: result["budget"]):
            counts = [r[name] for name in ("weights", "kernels", "linear", "intercepts")]
            shares = [f"{r[name]:.4f}" for name in ("accuracy", "post_trained")]
            cells = [r["budget"], *counts, *shares, r["bytes"], f"{r['microseconds']:.0f}"]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
        parts.append("\n".join([*lines, "", provenance(record)]))
    return "\n\n".join(parts) or "No curve has been run."


def others_table() -> str:
    lines = ["| data | network | what | accuracy | weights | source |", "|---|---|---|---|---|---|"]
    for one in OTHERS:
        lines.append(
            f"| {one.dataset} | {one.network} | {one.name} | {one.accuracy:.4f} | {one.weights} | {one.source} |"
        )
    return "\n".join(lines)


def picture() -> bytes:
    """Accuracy against weights, logarithmically; the same records give the same bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    for axes, dataset in zip(figure.subplots(1, 2), ("mnist", "fashion-mnist"), strict=True):
        for network, marker in (("MLP", "s"), ("CNN", "^")):
            some = [p for p in OTHERS if (p.dataset, p.network) == (dataset, network)]
            at = [p.weights for p in some], [p.accuracy for p in some]
            axes.scatter(*at, c="grey", marker=marker, label=f"others, {network}")
            for p in some:
                beside: dict[str, Any] = {"xytext": (3, 3), "textcoords": "offset points"}
                axes.annotate(p.name, (p.weights, p.accuracy), fontsize=6, color="grey", **beside)
        ours = [p for p in points() if p[0] == dataset]
        line = sorted((p[3], p[2]) for p in ours if p[1] == "curve")
        if line:
            axes.plot(*zip(*line, strict=True), "o-", c="tab:blue", ms=3, label="ours, budget_model")
        for name in sorted({p[1] for p in ours} - {"curve"}):
            some_ours = [p for p in ours if p[1] == name]
            axes.scatter([p[3] for p in some_ours], [p[2] for p in some_ours], label=f"ours, {name}", zorder=3)
        axes.set(xscale="log", title=dataset, xlabel="weights in the model, kernels counted", ylabel="test accuracy")
        axes.set_ylim(*((0.95, 0.995) if dataset == "mnist" else (0.85, 0.91)))
        axes.legend(fontsize=7, loc="lower right")
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "slabnet", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


TEXT = """# Accuracy at few weights

How good a network is that has a few hundred or a few thousand weights. Every weight counts, those of kernels too;
intercepts are counted apart. Settings come from trials on held-out training images and were not changed
after a look at the test rows; each record looked at those once. A dash is a row that has not been run.
`python -m benchmarks.sparsity` makes this page from `benchmarks/records/`; nothing is typed.

{targets}

![accuracy against weights](sparsity.svg)

What was not reached is printed as it came. Three seeds each is the plan; the column "runs" says how many there are.

## Recipes

`slabnet reproduce --dataset mnist --methods lbbnn --runs 3 --profile NAME --out sparse` makes the runs; NAME is

{recipes}

## Runs

"Averaged" is over 10 drawn networks, with the whole posterior post-trained where the profile does that. "Bound" is the
log-likelihood of all training rows less the divergence at the end of training. Runs shared their machine with others:
minutes say little.

{runs}

## A curve from one run

`sn.budget_model` takes the most probable weights of a fitted model, and 10 epochs of post-training move their values.
Bytes are those of the compact model's file; times are medians of 200 calls with one row, in torch with one thread.

{curves}

Below two thousand weights this curve falls steeply and is worse than what others publish. The bound wanted about three
thousand: a model of a few hundred needs a fit of its own under a smaller psi, which is what `smallest` is for.

## A table: a small network taught by a forest

`sn.fit(net, rows, teacher=forest)`, or `slabnet fit --teacher m.slab` for a model of ours: the network learns from what
the teacher says of each row as well as from the labels. What is maximised is then no bound on the evidence of the
labels. Raisin, an input-skip network of 10 hidden units, its median model with means, on held-out rows:

{taught}

## Others

{others}

Numbers of others are as published; where a paper reports a compression we give the weights that are left. A ".983 with
450 weights" of a convolutional input-skip network is left out: its kernels (up to 41 760 weights) are not counted.
"""


def page() -> str:
    """The whole page, from records."""
    names = [name for name in Profile.names() if name in ("sparse", "smallest") or name.startswith("lenet")]
    recipes = "\n".join(f"- `{name}`: {Profile.named(name).summary}." for name in names)
    given = {"targets": targets(), "recipes": recipes, "runs": runs_table()}
    return TEXT.format(**given, curves=curve_tables(), taught=teacher.section(), others=others_table())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sparsity", description=__doc__)
    parser.add_argument("--curve", type=Path, help="the model of a run, of which smaller ones are made")
    parser.add_argument("--budgets", type=int, nargs="*", default=BUDGETS)
    given = parser.parse_args()
    if given.curve is not None:
        torch.set_num_threads(1)
        name = f"sparsity-curve-{given.curve.stem}"
        jobs = [{"budget": budget} for budget in given.budgets]
        command = f"python -m benchmarks.sparsity --curve {given.curve.name}"
        run_all(name, command, ("budget",), jobs, lambda job: curve(given.curve, job))
    write_page("sparsity.md", page())
    write_bytes("sparsity.svg", picture())


if __name__ == "__main__":
    main()

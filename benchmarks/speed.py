"""The page docs/speed.md, made from the records of the other benchmarks: `python -m benchmarks.speed`."""

from __future__ import annotations

import io
import json
import statistics
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from benchmarks.contention import section as contention
from benchmarks.record import RECORDS, provenance, write_bytes, write_page
from benchmarks.step_time import MUST, WANTED
from slabnet.kernels.fused import FEW_ROWS, SOME_UNITS
from slabnet.training.dead_units import EPSILON, FEWEST, SPOKEN_AGAINST, SPOKEN_FOR
from slabnet.training.optimiser import LARGE, PIECE

NAMES = {
    "local": "spike and slab, local reparametrisation (the default)",
    "relaxed": "spike and slab, weights drawn, relaxed indicators",
    "straight_through": "spike and slab, weights drawn, straight-through",
    "gaussian_local": "dense Gaussian, local",
    "gaussian_drawn": "dense Gaussian, weights drawn",
    "torch_reference": "the same as the first in plain torch, without the compiled passes",
    "bayesian-torch": "bayesian-torch, reparametrised (dense)",
    "torchbnn": "torchbnn (dense)",
    "blitz": "BLiTZ (dense)",
    "pyro": "Pyro, AutoDiagonalNormal (dense)",
}


def read(name: str) -> dict[str, Any] | None:
    path = RECORDS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def asked(name: str) -> str:
    return f"{MUST[name]:.1f} / {WANTED[name]:.1f}" if name in MUST else ""


def steps() -> str:
    record = read("step_time")
    if record is None:
        return "Not measured yet.\n"
    lines = ["| one training step | x plain | target / stretch target |", "|---|---|---|"]
    for key, name in NAMES.items():
        value = record["results"].get(key)
        shown = f"{value:.2f}" if isinstance(value, float) else str(value)
        lines.append(f"| {name} | {shown} | {asked(key)} |")
    for extra, name in (("training", "a whole default training on MNIST"), ("averaging", "averaging over 10 draws")):
        of_extra = read(f"step_time_{extra}")
        if of_extra is not None:
            lines.append(f"| {name} | {of_extra['results'][extra]:.2f} | {asked(extra)} |")
    lines += ["", provenance(record) + f" C passes for {record['results'].get('variant')}."]
    return "\n".join(lines) + "\n"


def cutting() -> str:
    record = read("cutting")
    if record is None:
        return "Not measured yet.\n"
    rows = record["results"]
    columns = ("accuracy_median", "accuracy_averaged", "density_median", "log_likelihood", "kl")
    lines = [
        "| | seed | median model | averaged, 10 draws | density | log-likelihood | KL |",
        "|---|---|---|---|---|---|---|",
    ]
    for every in sorted({row["cut_every"] for row in rows}, reverse=True):
        name = f"cut every {every} epochs" if every else "everything to the end"
        for row in sorted((r for r in rows if r["cut_every"] == every), key=lambda r: r["seed"]):
            a, b, c, d, e = (row[column] for column in columns)
            lines.append(f"| {name} | {row['seed']} | {a:.4f} | {b:.4f} | {c:.3%} | {d:.0f} | {e:.0f} |")
        middle = [statistics.median(r[column] for r in rows if r["cut_every"] == every) for column in columns]
        a, b, c, d, e = middle
        lines.append(f"| **{name}, median** | | {a:.4f} | {b:.4f} | {c:.3%} | {d:.0f} | {e:.0f} |")
    example = next(r for r in rows if r["cut_every"])
    lines += ["", f"What was left, and what each cut did to the two terms of the bound (seed {example['seed']}):", ""]
    lines += ["| after epoch | inputs, units of each layer | log-likelihood | KL |", "|---|---|---|---|"]
    for cut in example["cuts"]:
        left = "-".join(map(str, cut["left"]))
        lines.append(f"| {cut['epoch']} | {left} | {cut['log_likelihood']:+.1f} | {cut['kl']:+.1f} |")
    return "\n".join([*lines, "", provenance(record)]) + "\n"


def scaling() -> str:
    record = read("scaling")
    if record is None:
        return "Not measured yet.\n"
    lines = [
        "| width | weights | batch | local | relaxed | beyond what is fixed: local | relaxed | ns a weight: plain | local | relaxed |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in record["results"]["steps"]:
        each = " | ".join(f"{value:.2f}" for part in ("beyond_fixed", "nanoseconds") for value in row[part].values())
        shown = f"{row['local']:.2f} | {row['relaxed']:.2f} | {each}"
        lines.append(f"| x{row['width']:g} | {row['weights']:,} | {row['batch']} | {shown} |")
    lines += ["", *_growth(record["results"]["steps"])]
    lines += ["", "| width | plain | local | relaxed |", "|---|---|---|---|"]
    for row in record["results"]["bytes_per_weight"]:
        lines.append(f"| x{row['width']:g} | {row['deterministic']:.0f} | {row['local']:.0f} | {row['relaxed']:.0f} |")
    return "\n".join([*lines, "", provenance(record)]) + "\n"


def _growth(steps: list[dict[str, Any]]) -> list[str]:
    """What eight times the width does to the ratio, batch by batch."""
    widths, batches = sorted({row["width"] for row in steps}), sorted({row["batch"] for row in steps})
    small, large = ({row["batch"]: row for row in steps if row["width"] == width} for width in (widths[0], widths[-1]))

    def ends(batch: int) -> str:
        both = [row[batch] for row in (small, large)]
        return ", ".join(f"{kind} {both[0][kind]:.2f} to {both[1][kind]:.2f}" for kind in ("local", "relaxed"))

    def beyond(row: dict[str, Any], kind: str) -> float:
        """Nanoseconds a weight, without what a step costs whatever its size."""
        return float(row["nanoseconds"][kind]) - 1e6 * float(row["fixed_ms"][kind]) / int(row["weights"])

    few = batches[0]
    fixed = small[few]["fixed_ms"]
    costs = {
        batch: {kind: [beyond(row[batch], kind) for row in (small, large)] for kind in ("deterministic", "local")}
        for batch in batches
    }
    lines = [
        f"From x{widths[0]:g} to x{widths[-1]:g} the ratio goes, with batches of "
        + "; of ".join(f"{batch} rows: {ends(batch)}" for batch in batches)
        + ".",
        "Part of a step costs the same whatever the size of the network, in the interpreter and in the graph: at "
        f"{few} rows {fixed['deterministic']:.2f} ms of a plain step and {fixed['local']:.2f} ms of a local one (the smallest network of that depth).",
        f"Beyond that a weight costs, at x{widths[0]:g} and at x{widths[-1]:g}: "
        + "; ".join(
            f"with {batch} rows {plain[0]:.2f} and {plain[1]:.2f} ns in the plain network, {local[0]:.2f} and {local[1]:.2f} ns in ours"
            for batch, (plain, local) in ((batch, tuple(cost.values())) for batch, cost in costs.items())
        )
        + ".",
    ]
    grown = [batch for batch in batches if large[batch]["local"] > 1.05 * small[batch]["local"]]
    if grown and all(costs[batch]["local"][1] <= 1.05 * costs[batch]["local"][0] for batch in grown):
        lines.append(
            f"Where the ratio grows ({' and '.join(map(str, grown))} rows), it is not that ours costs more per weight: the plain network gets cheaper, "
            "and what ours does to three parameters and six moments of every weight, besides its products, does not."
        )
    return lines


def picture() -> bytes | None:
    record = read("scaling")
    if record is None:
        return None
    with rc_context({"svg.hashsalt": "slabnet", "font.size": 9}):
        figure = Figure(figsize=(7, 3), layout="constrained")
        for axes, kind in zip(figure.subplots(1, 2, sharey=True), ("local", "relaxed"), strict=True):
            for batch in sorted({row["batch"] for row in record["results"]["steps"]}):
                rows = [row for row in record["results"]["steps"] if row["batch"] == batch]
                axes.plot([r["weights"] for r in rows], [r[kind] for r in rows], marker="o", label=f"batch {batch}")
            axes.set(xscale="log", xlabel="weights", title=kind, ylim=(0, None))
            axes.axhline(1, color="grey", lw=0.8)
            axes.legend()
        figure.axes[0].set_ylabel("step time, x plain network")
        held = io.BytesIO()
        figure.savefig(held, format="svg", metadata={"Date": None})
        return held.getvalue()


def to_accuracy() -> str:
    record = read("time_to_accuracy")
    if record is None:
        return "Not measured yet.\n"
    results, lines = record["results"], ["| | seconds | epochs | density |", "|---|---|---|---|"]
    for key, name in (("plain", "plain network"), ("slabnet", "default recipe, median model")):
        there = results[key]
        if there is None:
            lines.append(f"| {name} | not reached in {len(results['curve'])} epochs | | |")
        else:
            density = f"{there['density']:.2%}" if "density" in there else "100%"
            lines.append(f"| {name} | {there['seconds']:.1f} | {there['epochs']} | {density} |")
    return "\n".join([*lines, "", provenance(record)]) + "\n"


def page() -> str:
    return f"""# Speed

<!-- made by `python -m benchmarks.speed` from benchmarks/records; do not edit -->

784-400-600-10, batches of 100, forward + backward + Adam. Every number is a multiple of a plain network with torch's fused
Adam, all candidates taking turns in one process, the first quartile of the rounds.

{steps()}
A local step has two matrix products where a plain layer has one, so about 2 is its floor. Where a row is above what was
asked, it is not reached.

## How

Each pass over the weights (moments or a draw, with the divergence and its gradient) is one C loop per direction, compiled
for the baseline, AVX2 and AVX-512 and chosen when it is loaded; random numbers are Philox4x32-7, keyed by seed, row and
element, inside the loop that uses them. Gradient and Adam's step are one loop; in layers of at least {SOME_UNITS} units, with
batches of up to {FEW_ROWS} rows, a few units' gradient is multiplied out at a time, where that loop uses it.

A pass takes {PIECE} weights at a time through short loops (exponentials, then softplus, logarithms, and what is made of them): all of
it in one loop is a chain of arithmetic longer than a processor looks ahead, and took half as long again. A step follows
nine arrays, which no processor's own prefetching does: the next piece is asked for while this one is computed, and arrays
of {LARGE >> 20} MB and more are put into large pages where the system has them.

Without a C compiler the package installs all the same and makes the same passes in torch, with the same random numbers; so do float64 and accelerators. `SLABNET_KERNELS=torch` (or `avx2`, `baseline`)
forces one. On CUDA and MPS the torch version is used, with `TrainConfig(compile=True)` through `torch.compile`: that was
not measured, no such device was at hand.

## Cheaper as it empties

Most neurons of a wide network die early. Every `TrainConfig.cut_every` epochs (0: never), in chains of linear layers with
at least {FEWEST:,} weights, `fit` looks from the outputs backwards for neurons whose expected weights to living neurons,
squared and added up, stay under {EPSILON:g}, none of them in the median model, their alphas on average under
{SPOKEN_AGAINST:g} psi; and for inputs whose mean square times their weights' expected squares to living neurons stays
under {EPSILON:g} even at the prior, no alpha more than {SPOKEN_FOR:g} above psi. These are left out of the computation.
In the full network, which is what is saved, weights into the dead and from unread inputs return to the prior (their
divergence is then zero), and what the dead would send is out (-log(1 - psi) each).

Noise is not counted as signal: the expected *squared* weight of a useless neuron stays well above zero, because the bound
tolerates as much variance as the data allow. Priors that tie weights together (a learned psi or sigma_beta) are not cut.

{cutting()}
## Growth

Ratios to a plain step, and below them the peak memory of a step in bytes per weight:

{scaling()}
![ratio of the step time against the number of weights](scaling.svg)

## Beside other work

Small work runs on one thread, and a thread that waits for another sleeps early (`slabnet.core.threads`), so that a small fit is slowed by what
else runs on the cores, and by no more. A table of 400 rows and 8 columns:

{contention()}
## Time to quality

Seconds of training until {100 * 0.975:.1f}% of the test images are right; for the default recipe, those of the median
model at a density of at most 1%.

{to_accuracy()}"""


def main() -> None:
    write_page("speed.md", page())
    drawn = picture()
    if drawn is not None:
        write_bytes("scaling.svg", drawn)


if __name__ == "__main__":
    main()

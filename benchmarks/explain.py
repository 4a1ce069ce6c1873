"""How explanations compare: time beside shap's sampling explainer, and how often bands of effects hold what is true."""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import slabnet as sn
from benchmarks.record import RECORDS, provenance, write_page, write_record
from benchmarks.resumable import Result, run_all
from slabnet.core.threads import threads_for

SEED, RUNS, ROWS, LEVEL = 0, 100, 200, 0.9
COLUMNS, USED = 6, 4  # of the simulated table, and those with an effect
STRAIGHT = (lambda v: 1.5 * v, lambda v: -v)
EFFECTS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "bends: 1.5 v, -v, 2 max(v, 0), abs(v)": (*STRAIGHT, lambda v: 2 * np.maximum(v, 0), np.abs),
    "waves: 1.5 v, -v, sin(2 v), abs(v)": (*STRAIGHT, lambda v: np.sin(2 * v), np.abs),
}
NOISE = 0.5
MODEL: dict[str, Any] = {"hidden": (10,), "skip": True, "epochs": 150}
SPEED_ROWS, SPEED_COLUMNS, SPEED_DRAWS, SPEED_BACKGROUND, ROUNDS = 1000, 8, 20, 32, 2
COMMAND = "python -m benchmarks.explain"


def simulated(run: int, effects: Sequence[Callable[[Any], Any]]) -> tuple[Any, Any]:
    """Rows of an additive model: two straight effects, two that are not, two columns without any."""
    rng = np.random.default_rng([SEED, run])
    x = rng.normal(size=(ROWS, COLUMNS))
    y = sum(effect(x[:, j]) for j, effect in enumerate(effects)) + NOISE * rng.normal(size=ROWS)
    return x, y


def covered(job: Result) -> Result:
    """The share of the grid, between the 5% and the 95% quantile, at which each column's band holds the true effect."""
    effects = EFFECTS[job["effects"]]
    x, y = simulated(job["run"], effects)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = sn.SlabRegressor(random_state=job["run"], config=sn.TrainConfig(kl_weight=1.0), **MODEL).fit(x, y)
    seconds = time.perf_counter() - start
    shares, widths, errors = [], [], []
    for j in range(COLUMNS):
        grid = np.linspace(*np.quantile(x[:, j], [0.05, 0.95]), 20)
        own = effects[j](grid) if j < USED else np.zeros(20)
        rest = sum(float(effects[i](x[:, i]).mean()) for i in range(USED) if i != j)
        curve = model.effects(j, background=x, at=grid, level=LEVEL)
        low, high = (part[:, 0] for part in (curve.partial.low, curve.partial.high))
        truth = own + rest
        shares.append(float(((low <= truth) & (truth <= high)).mean()))
        widths.append(float((high - low).mean()))
        errors.append(float(np.sqrt(((curve.partial.mean[:, 0] - truth) ** 2).mean())))
    return {"covered": shares, "width": widths, "error": errors, "seconds": round(seconds, 1)}


def speed() -> Result:
    """Seconds for all rows, ours and shap's in turn, of one function: the mean over the same drawn networks."""
    import shap

    rng = np.random.default_rng(SEED)
    x = rng.normal(size=(SPEED_ROWS, SPEED_COLUMNS))
    y = x[:, 0] + np.sin(x[:, 1] * 2) + x[:, 2] * x[:, 3] + np.abs(x[:, 4:]).sum(1) + 0.3 * rng.normal(size=SPEED_ROWS)
    config = sn.TrainConfig(kl_weight=1.0)
    model = sn.SlabRegressor(
        hidden=(50,), skip=True, epochs=40, random_state=SEED, draws=SPEED_DRAWS, config=config
    ).fit(x, y)
    behind = x[:SPEED_BACKGROUND]
    ours: list[float] = []
    theirs: list[float] = []
    share = max(1, SPEED_ROWS // 100)  # of the rows, that shap is given: it takes as long for every row
    for _ in range(ROUNDS):
        start = time.perf_counter()
        why = model.explain(x, background=behind)
        ours.append(time.perf_counter() - start)
        explainer = shap.SamplingExplainer(model.predict, behind)
        start = time.perf_counter()
        values = explainer.shap_values(x[:share], silent=True)
        theirs.append((time.perf_counter() - start) * SPEED_ROWS / share)
    apart = np.abs(values - why.contributions.mean[:share, :, 0])
    return {
        "rows": SPEED_ROWS,
        "columns": SPEED_COLUMNS,
        "draws": SPEED_DRAWS,
        "background": SPEED_BACKGROUND,
        "shap_rows": share,
        "seconds": ours,
        "shap_seconds": theirs,
        "largest_difference": float(apart.max()),
        "largest_contribution": float(np.abs(why.contributions.mean).max()),
        "largest_error": float(why.errors.max()),
        "shap": shap.__version__,
        "active_weights": model.n_weights_,
    }


def page(coverage: dict[str, Any] | None, timing: dict[str, Any] | None) -> str:
    """The page from both records."""
    lines = ["# Explanations, measured", ""]
    lines += [
        "How often bands of effects hold what is true, and how long explanations take. Written by",
        f"`{COMMAND}`.",
    ]
    if coverage is not None:
        lines += _coverage_lines(coverage)
    if timing is not None:
        lines += _speed_lines(timing)
    return "\n".join(lines) + "\n"


def _coverage_lines(record: dict[str, Any]) -> list[str]:
    lines = ["", "## Do the bands hold the true effects?", ""]
    lines += [
        f"Additive models of {USED} columns beside {COLUMNS - USED} without effect, noise {NOISE}, {ROWS} rows, fitted by",
        "`SlabRegressor(hidden=(10,), skip=True, epochs=150, config=TrainConfig(kl_weight=1))`;",
        f"`model.effects(column, background=x, level={LEVEL})`. Told is the share of 20 points between the 5% and the 95% quantile",
        "at which the band holds the true partial dependence, as a mean over the runs (with its standard error). The aim was",
        f"0.85 to 0.95 for all columns, over {RUNS} runs.",
        "",
        "| effects | runs | all columns | each of the four | no effect | mean width | RMSE of the curve |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in EFFECTS:
        rows = [row for row in record["results"] if row["effects"] == name]
        if not rows:
            continue
        shares = np.array([row["covered"] for row in rows])
        each = shares.mean(1)
        error = each.std(ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else float("nan")
        told = ", ".join(f"{value:.2f}" for value in shares[:, :USED].mean(0))
        width, miss = (np.mean([row[key] for row in rows]) for key in ("width", "error"))
        none = shares[:, USED:].mean()
        lines.append(
            f"| {name} | {len(rows)} | {each.mean():.3f} ({error:.3f}) | {told} | {none:.2f} | {width:.2f} | {miss:.2f} |"
        )
    lines += [
        "",
        "Bands of effects that are straight, or that are not there, hold the truth more often than they say: they carry the",
    ]
    lines += [
        "doubt about the other columns' effects too. A wave that few units and epochs have not learned is outside of them: the"
    ]
    lines += ["bands are about the weights of the network that was fitted, not about what it could not learn."]
    return [*lines, "", provenance(record)]


def _speed_lines(record: dict[str, Any]) -> list[str]:
    told = record["results"]
    ours, theirs = np.median(told["seconds"]), np.median(told["shap_seconds"])
    return [
        "",
        "## How long do they take?",
        "",
        f"{told['rows']} rows of {told['columns']} columns, {told['background']} rows of background, {told['draws']} drawn networks of a",
        f"50-unit input-skip network ({told['active_weights']} active weights); both explain the mean of the same networks, in turn,",
        f"{len(told['seconds'])} times, on one thread. shap's `SamplingExplainer` with its default number of samples was given",
        f"`model.predict` and {told['shap_rows']} rows, and its time is for {told['rows']} at the same pace.",
        "",
        "| | seconds (median; all) | also gives |",
        "|---|---|---|",
        f"| `model.explain` | {ours:.1f} ({', '.join(f'{s:.1f}' for s in told['seconds'])}) | exact values with an interval over draws, slopes |",
        f"| shap {told['shap']} | {theirs:.0f} ({', '.join(f'{s:.0f}' for s in told['shap_seconds'])}) | the mean |",
        "",
        f"{theirs / ours:.0f} times faster. The largest difference between the two is {told['largest_difference']:.2g} (contributions go "
        f"up to {told['largest_contribution']:.2g};",
        f"the largest standard error of ours is {told['largest_error']:.2g}): shap's estimate varies, that of `explain` is exact.",
        "",
        provenance(record),
    ]


def records() -> list[dict[str, Any] | None]:
    """What was measured: coverage, and time."""
    paths = [RECORDS / f"{name}.json" for name in ("explain", "explain_speed")]
    return [json.loads(path.read_text("utf-8")) if path.exists() else None for path in paths]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=("coverage", "speed", "page"))
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args()
    with threads_for(0):
        torch.set_num_threads(1)
        if given.only in (None, "speed"):
            write_record("explain_speed", COMMAND, SEED, speed())
        if given.only in (None, "coverage"):
            jobs = [{"effects": name, "run": run} for run in range(given.runs) for name in EFFECTS]
            run_all("explain", COMMAND, ("effects", "run"), jobs, covered)
    write_page("explain.md", page(*records()))


if __name__ == "__main__":
    main()

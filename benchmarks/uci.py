"""Regression on the 20 standard splits of five UCI tables, beside other methods in the same run.

`python -m benchmarks.uci` can be stopped and started again: finished fits are kept. SLABNET_DATA must hold uci/.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

from benchmarks.record import provenance, write_page
from benchmarks.resumable import Result, data_folder, mean_and_error, run_all, with_error
from slabnet.estimators import SlabRegressor

FOLDERS = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "kin8nm": "kin8nm",
    "wine": "wine-quality-red",
}
PUBLISHED = {  # MC-dropout: RMSE and test log-likelihood
    "boston": (2.90, -2.40),
    "concrete": (4.82, -2.93),
    "energy": (0.54, -1.21),
    "kin8nm": (0.08, 1.14),
    "wine": (0.62, -0.93),
}
OURS = ("lbbnn", "gaussian", "mc-dropout", "ensemble")
FORESTS: dict[str, Any] = {
    "random forest": RandomForestRegressor,
    "hist gradient boosting": HistGradientBoostingRegressor,
}
SPLITS = 20
NAMES = {"lbbnn": "spike and slab", "gaussian": "dense Gaussian"}
KEYS = ("data", "split", "method")


def load_split(name: str, split: int) -> tuple[Any, Any, Any, Any]:
    """Training X and y, test X and y."""
    folder = data_folder("uci") / FOLDERS[name]
    table = np.loadtxt(folder / "data.txt")
    columns = np.loadtxt(folder / "index_features.txt").astype(int)
    target = int(np.loadtxt(folder / "index_target.txt"))
    train, test = (np.loadtxt(folder / f"index_{part}_{split}.txt").astype(int) for part in ("train", "test"))
    return table[train][:, columns], table[train, target], table[test][:, columns], table[test, target]


def work(job: Result) -> Result:
    """One fit, and how good it is on the test rows."""
    x, y, x_test, y_test = load_split(job["data"], job["split"])
    started = time.perf_counter()
    if job["method"] in FORESTS:
        forest = FORESTS[job["method"]](random_state=job["split"]).fit(x, y)
        return {
            "rmse": float(np.sqrt(np.mean((forest.predict(x_test) - y_test) ** 2))),
            "seconds": round(time.perf_counter() - started, 2),
        }
    model = SlabRegressor(method=job["method"], random_state=job["split"]).fit(x, y)
    seconds = time.perf_counter() - started
    low, high = model.predict_interval(x_test, 0.95)
    measured = {
        "rmse": float(np.sqrt(np.mean((model.predict(x_test) - y_test) ** 2))),
        "log_likelihood": model.log_density(x_test, y_test),
        "coverage": float(np.mean((low <= y_test) & (y_test <= high))),
        "width": float(np.mean(high - low)),
        "density": model.density_,
        "weights": model.n_weights_,
        "seconds": round(seconds, 2),
    }
    if model.network_.method.selects:
        small = model.sparsify()
        measured["rmse_median"] = float(np.sqrt(np.mean((small.predict(x_test) - y_test) ** 2)))
        measured["log_likelihood_median"] = small.log_density(x_test, y_test)
    return measured


def page(record: dict[str, Any]) -> str:
    """docs/uci.md."""
    lines = [
        "# Regression on five UCI tables",
        "",
        "The 20 standard splits, `SlabRegressor()` with nothing tuned on them: the rule for defaults was set on parts of the",
        "training rows of some.",
        "Means over the splits with standard errors; higher log-likelihood is better. Published: MC-dropout.",
        "",
    ]
    for data, (rmse, likelihood) in PUBLISHED.items():
        digits = 3 if data in ("kin8nm", "wine") else 2
        lines += [
            f"## {data}",
            "",
            "| method | splits | RMSE | log-likelihood | coverage of 95% intervals | weights kept |",
            "|---|---|---|---|---|---|",
        ]
        lines.append(f"| MC-dropout, published | 20 | {rmse} | {likelihood} | | |")
        for method in (*OURS, *FORESTS):
            rows = [r for r in record["results"] if r["data"] == data and r["method"] == method]
            if not rows:
                continue
            columns = {
                key: mean_and_error([r.get(key) for r in rows])
                for key in ("rmse", "log_likelihood", "coverage", "density")
            }
            held = "-" if columns["coverage"] is None else f"{columns['coverage'][0]:.3f}"
            density = "-" if columns["density"] is None else f"{columns['density'][0]:.1%}"
            name = NAMES.get(method, method)
            both = f"{with_error(columns['rmse'], digits)} | {with_error(columns['log_likelihood'])}"
            lines.append(f"| {name} | {len(rows)} | {both} | {held} | {density} |")
        lines.append("")
    return "\n".join([*lines, provenance(record), ""])


def verdict(record: dict[str, Any]) -> list[str]:
    """For each table, whether both columns are as good as published within two standard errors, and the coverage."""
    lines = []
    for data, (rmse, likelihood) in PUBLISHED.items():
        rows = [r for r in record["results"] if r["data"] == data and r["method"] == "lbbnn"]
        if len(rows) < 2:
            continue
        means = {key: mean_and_error([r[key] for r in rows]) for key in ("rmse", "log_likelihood", "coverage")}
        error, level, held = (means[key] or (math.nan, math.nan) for key in ("rmse", "log_likelihood", "coverage"))
        good = error[0] - 2 * error[1] <= rmse, level[0] + 2 * level[1] >= likelihood
        lines.append(
            f"{data}: RMSE {with_error(error, 3)} {good[0]}, log-likelihood {with_error(level, 3)} {good[1]}, covers {held[0]:.3f}"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.uci", description=__doc__)
    parser.add_argument("--data", nargs="+", default=list(FOLDERS), choices=list(FOLDERS))
    parser.add_argument("--methods", nargs="+", default=[*OURS, *FORESTS], choices=[*OURS, *FORESTS])
    parser.add_argument("--splits", type=int, default=SPLITS, help="fewer than 20, to try it out (kept apart)")
    given = parser.parse_args()
    name = "uci" if given.splits == SPLITS else f"uci-{given.splits}"
    jobs = [
        {"data": d, "split": s, "method": m} for s in range(given.splits) for d in given.data for m in given.methods
    ]
    record = run_all(name, "python -m benchmarks.uci", KEYS, jobs, work)
    print("\n".join(verdict(record)))
    if name == "uci":
        write_page("uci.md", page(record))


if __name__ == "__main__":
    main()

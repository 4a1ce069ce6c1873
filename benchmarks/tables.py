"""Our defaults beside other methods on the tables of SLABNET_DATA and UCI: five splits, interleaved.

`python -m benchmarks.tables` can be stopped and started again: finished fits are kept. Every method gets the inputs
that `slabnet.data.Table` makes of the training rows. NGBoost takes part where it is installed (`make bench-peers`).
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from benchmarks import table_data
from benchmarks.record import provenance, write_page
from benchmarks.resumable import Result, run_all
from benchmarks.table_choice import linear
from benchmarks.table_scores import class_scores, normal_scores, regression_scores, scores_of_ours
from slabnet.estimators import SlabClassifier, SlabRegressor

KEYS = ("data", "split", "method")
SPLITS, MOST_ROWS = 5, 20_000
OURS: dict[str, dict[str, Any]] = {"slabnet": {}, "ensemble": {"method": "ensemble"}}
PEERS = ("linear", "forest", "boosting", "ngboost")


def peer(name: str, task: str) -> Any:
    """A peer with its defaults."""
    regression = task == "regression"
    if name == "linear":
        return linear(task)
    if name == "forest":
        return (RandomForestRegressor if regression else RandomForestClassifier)(random_state=0)
    if name == "boosting":
        return (HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier)(random_state=0)
    import ngboost

    return ngboost.NGBRegressor(verbose=False, random_state=0)


def work(job: Result) -> Result:
    """One method on one split."""
    split = table_data.outer(job["data"], job["split"])
    train = split.train if len(split.train.y) <= MOST_ROWS else split.train.at(np.arange(MOST_ROWS))
    regression = split.task == "regression"
    started = time.process_time()
    if job["method"] in OURS:
        kind = SlabRegressor if regression else SlabClassifier
        model = kind(random_state=job["split"], **OURS[job["method"]]).fit(train.x, train.y)
        seconds = time.process_time() - started
        return scores_of_ours(model, split.task, split.test.x, split.test.y) | {"cpu_seconds": round(seconds, 2)}
    x, x_test = table_data.Split(train, split.test, split.task).inputs()
    fitted = peer(job["method"], split.task).fit(x, train.y)
    seconds = time.process_time() - started
    if not regression:
        scores: Result = class_scores(fitted.predict_proba(x_test), split.test.y, fitted.classes_)
    else:
        scores = regression_scores(fitted.predict(x_test), split.test.y)
        if job["method"] == "ngboost":
            normal = fitted.pred_dist(x_test)
            scores |= normal_scores(normal.params["loc"], normal.params["scale"], split.test.y)
    return scores | {"cpu_seconds": round(seconds, 2)}


def jobs_of(data: list[str], splits: int, methods: list[str]) -> list[Result]:
    """Split by split, all methods of a table one after the other; NGBoost for regressions only."""
    return [
        {"data": name, "split": split, "method": method}
        for split in range(splits)
        for name in data
        for method in methods
        if method != "ngboost" or table_data.task_of(name) == "regression"
    ]


def ratios(results: list[Result]) -> dict[str, dict[str, float]]:
    """For each table the mean RMSE or log-loss of each method over that of the best, on the splits all have."""
    outcome = {}
    for name in sorted({row["data"] for row in results}):
        rows = [row for row in results if row["data"] == name]
        key = "rmse" if "rmse" in rows[0] else "log_loss"
        methods = {row["method"] for row in rows}
        splits = set.intersection(*({row["split"] for row in rows if row["method"] == m} for m in methods))
        means = {
            m: float(np.mean([r[key] for r in rows if r["method"] == m and r["split"] in splits])) for m in methods
        }
        outcome[name] = {m: value / min(means.values()) for m, value in means.items()} if splits else {}
    return outcome


def page(record: dict[str, Any]) -> str:
    """docs/tables_peers.md."""
    each = ratios(record["results"])
    methods = [m for m in (*OURS, *PEERS) if any(m in row for row in each.values())]
    lines = [
        "# Tables beside other methods",
        "",
        "RMSE or log-loss of a method over that of the best, mean of splits.",
        "",
    ]
    lines += ["| table | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
    for name, row in each.items():
        lines.append(f"| {name} | " + " | ".join(f"{row[m]:.3f}" if m in row else "-" for m in methods) + " |")
    return "\n".join([*lines, "", provenance(record), ""])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__)
    everything = [*table_data.names("regression", "classification"), *table_data.FOLDERS]
    methods = [*OURS, *(p for p in PEERS if p != "ngboost" or importlib.util.find_spec("ngboost"))]
    parser.add_argument("--data", nargs="+", default=everything, choices=everything)
    parser.add_argument("--methods", nargs="+", default=methods, choices=methods)
    parser.add_argument("--splits", type=int, default=SPLITS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    jobs = jobs_of(given.data, given.splits, given.methods)
    record = run_all("tables", "python -m benchmarks.tables", KEYS, jobs, work)
    write_page("tables_peers.md", page(record))


if __name__ == "__main__":
    main()

"""Two kinds of raisins from seven measurements: how few weights are enough?

`python -m benchmarks.raisin` makes five times 10 random 80/20 splits, since ten alone leave a standard error of nearly a
hundredth; finished ones are kept. SLABNET_DATA must hold raisin/.
"""

from __future__ import annotations

import argparse
import csv
import time
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.record import provenance, write_page
from benchmarks.tables import Result, data_folder, mean_and_error, run_all, said
from slabnet.estimators import SlabClassifier

TEN, SPLITS = 10, 50
SETTINGS: dict[str, Any] = {"hidden": (50,), "psi": "bic"}  # a price of 2 log n for a weight: few are asked for


def load_raisin() -> tuple[Any, Any]:
    """Seven measurements and the kind, 900 rows."""
    with (data_folder("raisin") / "raisin.csv").open(encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))[1:]
    return np.array([[float(v) for v in row[:-1]] for row in rows]), np.array([row[-1] for row in rows])


def work(job: Result) -> Result:
    """One split: the averaged network, the median model after a little more training, and a logistic regression."""
    x, y = load_raisin()
    order = np.random.default_rng(job["split"]).permutation(len(y))
    test, train = order[: len(y) // 5], order[len(y) // 5 :]
    started = time.perf_counter()
    model = SlabClassifier(**SETTINGS, random_state=job["split"]).fit(x[train], y[train])
    small = model.sparsify(data=(x[train], y[train]))
    total = small.chosen_.total
    return {
        "accuracy": model.score(x[test], y[test]),
        "accuracy_median": small.score(x[test], y[test]),
        "accuracy_logistic": make_pipeline(StandardScaler(), LogisticRegression())
        .fit(x[train], y[train])
        .score(x[test], y[test]),
        "weights": small.n_weights_,
        "active_weights": total.active_weights,
        "of": total.weights,
        "inputs": len(small.selected_features_),
        "seconds": round(time.perf_counter() - started, 2),
    }


def page(record: dict[str, Any]) -> str:
    """docs/raisin.md."""
    groups = {f"splits {a + 1} to {a + TEN}": _between(record, a, a + TEN) for a in range(0, SPLITS, TEN)}
    groups = {name: rows for name, rows in groups.items() if len(rows) == TEN}
    if len(groups) > 1:
        groups[f"**all {sum(map(len, groups.values()))}**"] = [row for rows in groups.values() for row in rows]
    lines = [
        "# Raisins",
        "",
        "Random 80/20 splits of the 900 raisins, ten at a time. A published spike-and-slab package has .861 with 7 of 107",
        "weights on one split. Accuracies with their standard errors; which rows are kept aside moves the mean of ten splits by",
        "as much as anything else, for a plain logistic regression of all seven measurements too. Ten splits were planned and .86",
        "asked of them; the first ten missed it, and the other forty were added after that was seen, to tell luck from the method.",
        "",
        "| | averaged over drawn networks | median model | its weights: median (range) | logistic regression |",
        "|---|---|---|---|---|",
    ]
    for name, rows in groups.items():
        keys = ("accuracy", "accuracy_median", "accuracy_logistic")
        averaged, median, logistic = (said(mean_and_error([r[key] for r in rows]), 3) for key in keys)
        weights = [r["weights"] for r in rows]
        kept = f"{np.median(weights):g} ({min(weights)} to {max(weights)}) of {rows[0]['of']}"
        lines.append(f"| {name} | {averaged} | {median} | {kept} | {logistic} |")
    return "\n".join([*lines, "", provenance(record), ""])


def _between(record: dict[str, Any], first: int, end: int) -> list[Result]:
    return [row for row in record["results"] if first <= row["split"] < end]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.raisin", description=__doc__)
    parser.add_argument("--splits", type=int, default=SPLITS, help="fewer than 50, to try it out (kept apart)")
    given = parser.parse_args()
    name = "raisin" if given.splits == SPLITS else f"raisin-{given.splits}"
    record = run_all(name, "python -m benchmarks.raisin", ("split",), [{"split": s} for s in range(given.splits)], work)
    print(page(record))
    if name == "raisin":
        write_page("raisin.md", page(record))


if __name__ == "__main__":
    main()

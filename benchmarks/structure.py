"""What input-skip networks and gates do to real tables: plain, skip, and skip with gates, one after the other.

`python -m benchmarks.structure` fits each to five splits of the UCI tables and of the tables in SLABNET_DATA; finished
fits are kept. A split has at most 2 000 rows to fit and as many to test.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.record import provenance, write_page
from benchmarks.resumable import Result, data_folder, run_all
from benchmarks.table_data import DROPPED, LABELS
from benchmarks.uci import FOLDERS, load_split
from slabnet.estimators import SlabClassifier, SlabRegressor

SPLITS, MOST_ROWS = 5, 2000
KEYS = ("data", "split", "method")
METHODS: dict[str, dict[str, Any]] = {
    "plain": {"skip": False, "gates": False},
    "skip": {"skip": True, "gates": False},
    "skip + gates": {"skip": True, "gates": "inputs"},
}
TASKS = ("regression", "classification")


def tables() -> dict[str, str]:
    """Each table and its task."""
    index = pd.read_csv(data_folder("tables") / "index.csv")
    ours = index[index.response.isin(TASKS)]
    return dict.fromkeys(FOLDERS, "regression") | dict(zip(ours.file, ours.response, strict=True))


def rows_of(name: str, split: int) -> tuple[Any, Any, Any, Any]:
    """Rows to fit and rows to test, X and y each."""
    if name in FOLDERS:
        x, y, x_test, y_test = load_split(name, split)
        some = np.random.default_rng(split).permutation(len(x))[:MOST_ROWS]
        return x[some], y[some], x_test, y_test
    folder = data_folder("tables")
    index = pd.read_csv(folder / "index.csv").set_index("file")
    table = pd.read_csv(folder / f"{name}.csv")
    y = table.pop(index.target[name]).to_numpy()
    table = table.drop(columns=list(DROPPED.get(name, ())))
    for column in LABELS.get(name, ()):
        table[column] = "level " + table[column].astype(str)
    order = np.random.default_rng(split).permutation(len(table))
    test, train = np.split(order, [len(table) // 5])
    train, test = train[:MOST_ROWS], test[:MOST_ROWS]
    return table.iloc[train], y[train], table.iloc[test], y[test]


def work(job: Result) -> Result:
    """One fit: its loss on the test rows, and what the median model is made of."""
    x, y, x_test, y_test = rows_of(job["data"], job["split"])
    regression = tables()[job["data"]] == "regression"
    kind = SlabRegressor if regression else SlabClassifier
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = kind(**METHODS[job["method"]], random_state=job["split"]).fit(x, y)
        seconds = time.perf_counter() - started
        if regression:
            loss = float(np.sqrt(np.mean((model.predict(x_test) - y_test) ** 2)))
            density = model.log_density(x_test, y_test)
        else:
            chance = model.predict_proba(x_test)
            places = np.searchsorted(model.classes_, y_test)
            loss = float(-np.log(np.clip(chance[np.arange(len(places)), places], 1e-15, 1)).mean())
            density = -loss
    return {
        "loss": loss,
        "log_likelihood": density,
        "weights": model.n_weights_,
        "columns": len(model.selected_features_),
        "of_columns": model.n_features_in_,
        "rows": len(y),
        "seconds": round(seconds, 2),
    }


def by_table(results: list[Result]) -> dict[str, dict[str, list[Result]]]:
    """The results of the splits that every method has, by table and method."""
    outcomes: dict[str, dict[str, list[Result]]] = {}
    for name in sorted({row["data"] for row in results}):
        rows = [row for row in results if row["data"] == name]
        splits = [{row["split"] for row in rows if row["method"] == method} for method in METHODS]
        common = set.intersection(*splits)
        if common:
            outcomes[name] = {m: [r for r in rows if r["method"] == m and r["split"] in common] for m in METHODS}
    return outcomes


def ratios(outcomes: dict[str, dict[str, list[Result]]], method: str) -> dict[str, float]:
    """For each table the mean loss of a method over that of the plain network."""
    mean = {
        name: {m: np.mean([row["loss"] for row in rows]) for m, rows in by.items()} for name, by in outcomes.items()
    }
    return {name: float(losses[method] / losses["plain"]) for name, losses in mean.items()}


def medians(outcomes: dict[str, dict[str, list[Result]]], method: str, key: str) -> dict[str, float]:
    """For each table the mean of a count over splits."""
    return {name: float(np.mean([row[key] for row in by[method]])) for name, by in outcomes.items()}


def summary(outcomes: dict[str, dict[str, list[Result]]]) -> list[str]:
    """One row for each method: mean ratio of losses, tables that got worse, and what the median model is made of."""
    lines = [
        "| method | mean ratio of the loss to plain | median ratio | worse by over 2% | active weights, median "
        "| columns in use | seconds, median |",
        "|---|---|---|---|---|---|---|",
    ]
    for method in METHODS:
        each = ratios(outcomes, method)
        weights, columns = medians(outcomes, method, "weights"), medians(outcomes, method, "columns")
        share = np.mean([columns[name] / outcomes[name][method][0]["of_columns"] for name in outcomes])
        worse = sum(ratio > 1.02 for ratio in each.values())
        lines.append(
            f"| {method} | {np.mean(list(each.values())):.3f} | {np.median(list(each.values())):.3f} "
            f"| {worse} of {len(each)} "
            f"| {np.median(list(weights.values())):.0f} | {share:.2f} "
            f"| {np.median(list(medians(outcomes, method, 'seconds').values())):.0f} |"
        )
    return lines


def each_table(outcomes: dict[str, dict[str, list[Result]]]) -> list[str]:
    """One row for each table: losses, weights and columns of all methods."""
    lines = [
        f"| table | splits | columns | loss: {', '.join(METHODS)} | active weights | columns in use |",
        "|---|---|---|---|---|---|",
    ]
    for name, by in outcomes.items():
        counts = [[np.mean([row[key] for row in rows]) for rows in by.values()] for key in ("weights", "columns")]
        losses = ", ".join(f"{np.mean([row['loss'] for row in rows]):.4g}" for rows in by.values())
        cells = [", ".join(f"{value:.0f}" for value in values) for values in counts]
        first = by["plain"][0]
        lines.append(f"| {name} | {len(by['plain'])} | {first['of_columns']} | {losses} | {cells[0]} | {cells[1]} |")
    return lines


def page(record: dict[str, Any]) -> str:
    """docs/structure_tables.md."""
    outcomes = by_table(record["results"])
    splits = sorted({len(by["plain"]) for by in outcomes.values()})
    ratio = float(np.mean(list(ratios(outcomes, "skip + gates").values())))
    weights = {m: medians(outcomes, m, "weights") for m in METHODS}
    median = float(np.median(list(weights["skip + gates"].values())))
    fewer = sum(weights["skip + gates"][name] <= weights["plain"][name] for name in outcomes)
    lines = [
        "# Input-skip networks and gates on real tables",
        "",
        f"{len(outcomes)} tables, {' to '.join(str(s) for s in dict.fromkeys((splits[0], splits[-1])))} split(s) each,",
        f"at most {MOST_ROWS} rows to fit. The loss is the RMSE, or the log-loss for classes, on the test rows.",
        "Active weights lie on a path from an input to an output of the median model. Everything",
        "else is what the estimators do where nothing is said.",
        "",
        *summary(outcomes),
        "",
        f"Wanted of skip + gates: a ratio of at most 1.00 ({'reached' if ratio <= 1.0 else 'missed'}: {ratio:.3f}), no",
        f"more active weights than plain ({fewer} of {len(outcomes)} tables), a median of at most 40 active weights",
        f"({'reached' if median <= 40 else 'missed'}: {median:.0f}).",
        "",
        *each_table(outcomes),
        "",
        provenance(record),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.structure", description=__doc__)
    parser.add_argument("--splits", type=int, default=SPLITS, help="fewer than 5 leave the rest for another time")
    parser.add_argument("--data", nargs="+", help="some of the tables only")
    parser.add_argument("--page", action="store_true", help="write the page from the record, without fits")
    given = parser.parse_args()
    names = [name for name in tables() if given.data is None or name in given.data]
    splits = 0 if given.page else given.splits
    jobs = [{"data": d, "split": s, "method": m} for s in range(splits) for d in names for m in METHODS]
    record = run_all("structure", "python -m benchmarks.structure", KEYS, jobs, work)
    write_page("structure_tables.md", page(record))
    print("\n".join(summary(by_table(record["results"]))))


if __name__ == "__main__":
    main()

"""Counts, ordered levels, censored times and noise that depends on the inputs, beside what a statistician would fit.

`python -m benchmarks.responses` fits every method to five splits of the tables of SLABNET_DATA/tables with such
responses, and to simulated noise that grows with x; finished fits are kept. Every method gets the same inputs.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import qr
from sklearn.model_selection import train_test_split

from benchmarks.record import provenance, write_page
from benchmarks.response_peers import PARAMETRIC, PEERS, Answers
from benchmarks.resumable import Result, data_folder, mean_and_error, run_all, with_error
from slabnet.data.tabular import Table
from slabnet.estimators import SlabClassifier, SlabRegressor

SPLITS, TEST_SHARE = 5, 0.2
KEYS = ("data", "split", "method")
LEVELS = {"poverty": ["Too Little", "About Right", "Too Much"]}
TARGETS = {
    "visits": ("visits", "count"),
    "papers": ("art", "count"),
    "stay": ("los", "count"),
    "poverty": ("poverty", "ordinal"),
    "gbsg": ("rfstime", "survival"),
    "motorcycle": ("accel", "noise"),
    "simulated noise": ("y", "noise"),
}
METHODS = {
    "count": {
        "slabnet negative-binomial": "negative-binomial",
        "slabnet poisson": "poisson",
    },
    "ordinal": {"slabnet ordinal": "ordinal", "slabnet categorical": None},
    "survival": {"slabnet weibull": "weibull"},
    "noise": {"slabnet heteroscedastic": "heteroscedastic", "slabnet gaussian": "gaussian"},
}
SIMULATED_ROWS, SIMULATED_TEST = 1000, 2500
Array = np.ndarray[Any, Any]


def rows_of(name: str, split: int) -> tuple[Array, Array, Array, Array]:
    """Inputs and responses to fit, inputs and responses to test; a censored time comes with its event."""
    target, kind = TARGETS[name]
    if name == "simulated noise":
        rng = np.random.default_rng(split)
        x = rng.uniform(0, 1, (SIMULATED_ROWS + SIMULATED_TEST, 2))
        y = 3 * np.sin(4 * x[:, 0]) + (0.1 + 1.5 * x[:, 0]) * rng.normal(size=len(x))
        return x[:SIMULATED_ROWS], y[:SIMULATED_ROWS], x[SIMULATED_ROWS:], y[SIMULATED_ROWS:]
    frame = pd.read_csv(data_folder("tables") / f"{name}.csv")
    y = frame.pop(target).to_numpy()
    if kind == "ordinal":
        y = np.array([LEVELS[name].index(label) for label in y])
    elif kind == "survival":
        y = np.stack([y, frame.pop("status").to_numpy()], 1).astype(float)
    labels = y if kind == "ordinal" else y[:, 1] if kind == "survival" else None
    train, test = train_test_split(np.arange(len(y)), test_size=TEST_SHARE, random_state=split, stratify=labels)
    parts = [frame.iloc[places].reset_index(drop=True) for places in (train, test)]
    table = Table.learn(parts[0])
    return table.apply(parts[0])[0], y[train], table.apply(parts[1])[0], y[test]


def independent(x: Array, x_test: Array) -> tuple[Array, Array]:
    """Standardised columns without those that others add up to, as regressions without a prior need them."""
    centre, scale = x.mean(0), x.std(0)
    moving = scale > 1e-9
    z, z_test = ((part[:, moving] - centre[moving]) / scale[moving] for part in (x, x_test))
    _, r, order = qr(z, mode="economic", pivoting=True)
    size = np.abs(np.diag(r))
    inside = np.sort(order[: int((size > 1e-6 * size[0]).sum())])
    return z[:, inside], z_test[:, inside]


def ours(kind: str, response: str | None, seed: int, x: Array, y: Array, x_test: Array, y_test: Array) -> Answers:
    """What the estimator says with nothing but the response chosen."""
    options: dict[str, Any] = {"random_state": seed}
    if kind == "ordinal":
        named = {"response": "ordinal", "levels": [0, 1, 2]} if response == "ordinal" else {}
        model = SlabClassifier(**named, **options).fit(x, y)
        return Answers(model.log_densities(x_test, y_test), shares=model.predict_proba(x_test))
    if kind == "survival":
        model = SlabRegressor(response=response, **options).fit(x, y[:, 0], event=y[:, 1])
        densities = model.log_densities(x_test, y_test[:, 0], event=y_test[:, 1])
        return Answers(densities, centre=model.predict(x_test))
    model = SlabRegressor(response=response, **options).fit(x, y)
    densities = model.log_densities(x_test, y_test)
    return Answers(densities, centre=model.predict(x_test), interval=model.predict_interval(x_test))


def work(job: Result) -> Result:
    """One fit, and what its predictive distribution makes of the test rows."""
    name, method = job["data"], job["method"]
    kind = TARGETS[name][1]
    rows = rows_of(name, job["split"])
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method in METHODS[kind]:
            answers = ours(kind, METHODS[kind][method], job["split"], *rows)
        else:
            x, x_test = independent(rows[0], rows[2])
            answers = PEERS[kind][method](x, rows[1], x_test, rows[3], job["split"])
    measured: Result = {"nll": float(-answers.log_densities.mean()), "seconds": round(time.perf_counter() - started, 2)}
    y = rows[3]
    if kind == "survival" and answers.centre is not None:
        from lifelines.utils import concordance_index

        measured["concordance"] = float(concordance_index(y[:, 0], answers.centre, y[:, 1]))
    if answers.shares is not None:
        happened = y[:, None] <= np.arange(answers.shares.shape[1] - 1)
        below = answers.shares.cumsum(1)[:, :-1]
        measured["rps"] = float(((below - happened) ** 2).sum(1).mean())
    if kind in ("count", "noise") and answers.centre is not None:
        measured["rmse"] = float(np.sqrt(np.mean((answers.centre - y) ** 2)))
    if answers.interval is not None and answers.centre is not None:
        low, high = answers.interval
        measured["coverage"] = float(np.mean((low <= y) & (y <= high)))
        parts = np.array_split(np.argsort(answers.centre, kind="stable"), 5)
        measured["fifths"] = [float(np.mean((low <= y)[part] & (y <= high)[part])) for part in parts]
    return measured


def scored(record: dict[str, Any], name: str) -> dict[str, list[Result]]:
    """The results of a table by method, of the splits that all of its methods have."""
    kind = TARGETS[name][1]
    rows = [row for row in record["results"] if row["data"] == name]
    methods = [*METHODS[kind], *PEERS[kind]]
    common = set.intersection(*({row["split"] for row in rows if row["method"] == method} for method in methods))
    return {m: [r for r in rows if r["method"] == m and r["split"] in common] for m in methods} if common else {}


def verdict(name: str, by: dict[str, list[Result]]) -> str:
    """What was wanted of a table: no worse than the parametric peer plus one standard error, and near the best."""
    kind = TARGETS[name][1]
    mean = {method: float(np.mean([row["nll"] for row in rows])) for method, rows in by.items()}
    first = next(iter(METHODS[kind]))
    peer = mean_and_error([row["nll"] for row in by[PARAMETRIC[kind]]]) or (np.nan, np.nan)
    limit = peer[0] + (0.0 if np.isnan(peer[1]) else peer[1])
    best = min(mean, key=lambda method: mean[method])
    gap = mean[first] - mean[best]
    lines = f"{first}: {mean[first]:.3f}, at most {limit:.3f} wanted ({PARAMETRIC[kind]} plus one standard error): "
    lines += f"{'reached' if mean[first] <= limit else 'missed'}. {gap:.3f} nats from the best ({best}): "
    lines += f"{'within' if gap <= 0.02 else 'not within'} 0.02."
    if kind == "noise":
        covers = float(np.mean([row["coverage"] for row in by[first]]))
        fifths = np.mean([row["fifths"] for row in by[first]], 0)
        lines += f" Its 95% intervals cover {covers:.3f}, by fifths of the prediction "
        lines += ", ".join(f"{share:.3f}" for share in fifths) + "."
    return lines


def table(by: dict[str, list[Result]]) -> list[str]:
    """One row for each method."""
    columns = {"nll": "NLL", "rmse": "RMSE", "rps": "RPS", "concordance": "concordance", "coverage": "95% covers"}
    present = [key for key in columns if any(key in row for rows in by.values() for row in rows)]
    lines = [
        "| method | splits | " + " | ".join(columns[key] for key in present) + " | seconds |",
        "|---" * (len(present) + 3) + "|",
    ]
    for method, rows in by.items():
        pairs = [mean_and_error([row.get(key) for row in rows]) for key in present]
        cells = [f"{p[0]:.3f}" if p is not None and np.isnan(p[1]) else with_error(p, 3) for p in pairs]
        seconds = float(np.median([row["seconds"] for row in rows]))
        lines.append(f"| {method} | {len(rows)} | " + " | ".join(cells) + f" | {seconds:.1f} |")
    return lines


def page(record: dict[str, Any]) -> str:
    """docs/responses_tables.md."""
    lines = [
        "# Responses beside their peers",
        "",
        "Negative log-likelihood of test rows in nats a row (lower is better), with standard errors over splits. A",
        "fifth of the rows is for the test. Estimators of slabnet have nothing chosen but the response; the others",
        "get standardised columns without those that others add up to. Boosting has no dispersion: its counts are",
        f"judged as Poisson ones. Simulated noise: standard deviation 0.1 + 1.5 x, {SIMULATED_ROWS} rows to fit and",
        f"{SIMULATED_TEST} to test.",
        "",
    ]
    for name, (target, kind) in TARGETS.items():
        by = scored(record, name)
        if by:
            lines += [f"## {name}: {target} ({kind})", "", *table(by), "", verdict(name, by), ""]
    return "\n".join([*lines, provenance(record), ""])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.responses", description=__doc__)
    parser.add_argument("--splits", type=int, default=SPLITS, help="fewer than 5 leave the rest for another time")
    parser.add_argument("--data", nargs="+", choices=list(TARGETS), help="some of the tables only")
    parser.add_argument("--page", action="store_true", help="write the page from the record, without fits")
    given = parser.parse_args()
    names = given.data or list(TARGETS)
    jobs = [
        {"data": name, "split": split, "method": method}
        for split in range(0 if given.page else given.splits)
        for name in names
        for method in (*PEERS[TARGETS[name][1]], *METHODS[TARGETS[name][1]])
    ]
    record = run_all("responses", "python -m benchmarks.responses", KEYS, jobs, work)
    write_page("responses_tables.md", page(record))
    for name in TARGETS:
        by = scored(record, name)
        print("\n".join([name, *table(by), verdict(name, by), ""]) if by else f"{name}: not yet")


if __name__ == "__main__":
    main()

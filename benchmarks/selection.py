"""Which inputs are real? Simulated tables with known truth, 100 inputs, n = 500, beside LassoCV and a random forest.

`python -m benchmarks.selection` makes 20 draws of each design; finished ones are kept.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LassoCV

from benchmarks.record import provenance, write_page
from benchmarks.resumable import Result, mean_and_error, run_all, with_error
from slabnet.estimators import SlabRegressor

INPUTS, ROWS, DRAWS = 100, 500, 20
METHODS = ("spike and slab", "spike and slab, bic", "spike and slab, linear", "LassoCV", "random forest")
DESIGNS = {
    "linear": "8 of 100 inputs, neighbours correlated at 0.5, signal-to-noise ratio 3",
    "nonlinear": "5 of 100 inputs: 10 sin(pi x1 x2) + 20 (x3 - 0.5)^2 + 10 x4 + 5 x5 (Friedman), noise 1",
    "mixed": "10 of 100 inputs, neighbours correlated at 0.5: four lines, two tanh, two absolute values, and a product with "
    "both its factors; signal-to-noise ratio 3",
}


def simulate(design: str, draw: int) -> tuple[Any, Any, set[int]]:
    """X, y and the positions of the real inputs, which are spread at random."""
    rng = np.random.default_rng([draw, list(DESIGNS).index(design)])
    if design != "nonlinear":
        x = rng.normal(size=(ROWS, INPUTS))
        for column in range(1, INPUTS):  # an autoregression over the columns
            x[:, column] = 0.5 * x[:, column - 1] + np.sqrt(0.75) * x[:, column]
        count = 8 if design == "linear" else 10
        real = rng.choice(INPUTS, count, replace=False)
        slopes, parts = rng.choice([-1, 1], count) * rng.uniform(0.5, 1.5, count), x[:, real]
        if design == "mixed":
            bent = [np.tanh(2 * parts[:, 4:6]), 1.5 * np.abs(parts[:, 6:8]), parts[:, 8:]]
            parts = np.hstack([parts[:, :4], *bent])
        signal = parts @ slopes + (x[:, real[8]] * x[:, real[9]] if design == "mixed" else 0)
        return x, signal + signal.std() / np.sqrt(3) * rng.normal(size=ROWS), set(real.tolist())
    x = rng.uniform(size=(ROWS, INPUTS))
    a, b, c, d, e = real = rng.choice(INPUTS, 5, replace=False)
    signal = 10 * np.sin(np.pi * x[:, a] * x[:, b]) + 20 * (x[:, c] - 0.5) ** 2 + 10 * x[:, d] + 5 * x[:, e]
    return x, signal + rng.normal(size=ROWS), set(real.tolist())


def chosen_by(method: str, x: Any, y: Any, draw: int) -> set[int]:
    """The positions of the inputs that a method takes for real."""
    if method == "LassoCV":
        return set(np.flatnonzero(LassoCV(cv=5, random_state=draw).fit(x, y).coef_).tolist())
    if method == "random forest":  # above the mean, scikit-learn's own rule
        shares = RandomForestRegressor(200, random_state=draw).fit(x, y).feature_importances_
        return set(np.flatnonzero(shares > shares.mean()).tolist())
    options: dict[str, Any] = {"linear": {"hidden": ()}, "bic": {"psi": "bic"}}.get(method.split(", ")[-1], {})
    return set(SlabRegressor(**options, random_state=draw).fit(x, y).selected_features_.tolist())


def work(job: Result) -> Result:
    """Power (share of the real inputs found) and false discovery (share of the found that are not real)."""
    x, y, real = simulate(job["design"], job["draw"])
    started = time.perf_counter()
    inputs = chosen_by(job["method"], x, y, job["draw"])
    return {
        "power": len(inputs & real) / len(real),
        "false_discovery": len(inputs - real) / max(1, len(inputs)),
        "found": len(inputs),
        "seconds": round(time.perf_counter() - started, 2),
    }


def page(record: dict[str, Any]) -> str:
    """docs/selection.md."""
    lines = [
        "# Which inputs are real",
        "",
        f"Simulated tables of {ROWS} rows and {INPUTS} inputs; `selected_features_` of `SlabRegressor()` (the inputs on a",
        "path of the median model) beside the inputs LassoCV keeps and those above the mean importance of a random forest.",
        "Power: share of the real inputs found; false discovery: share of the found ones that are not real. Means with",
        "standard errors.",
        "",
    ]
    for design, what in DESIGNS.items():
        lines += [
            f"## {design}",
            "",
            f"{what}.",
            "",
            "| method | draws | power | false discovery | found |",
            "|---|---|---|---|---|",
        ]
        for method in METHODS:
            rows = [r for r in record["results"] if r["design"] == design and r["method"] == method]
            if rows:
                both = [with_error(mean_and_error([r[key] for r in rows])) for key in ("power", "false_discovery")]
                lines.append(
                    f"| {method} | {len(rows)} | {both[0]} | {both[1]} | {np.mean([r['found'] for r in rows]):.1f} |"
                )
        lines.append("")
    return "\n".join([*lines, provenance(record), ""])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.selection", description=__doc__)
    parser.add_argument("--draws", type=int, default=DRAWS, help="fewer than 20, to try it out (kept apart)")
    given = parser.parse_args()
    name = "selection" if given.draws == DRAWS else f"selection-{given.draws}"
    jobs = [{"design": d, "draw": r, "method": m} for r in range(given.draws) for d in DESIGNS for m in METHODS]
    record = run_all(name, "python -m benchmarks.selection", ("design", "draw", "method"), jobs, work)
    print(page(record))
    if name == "selection":
        write_page("selection.md", page(record))


if __name__ == "__main__":
    main()

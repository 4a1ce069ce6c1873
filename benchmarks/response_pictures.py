"""One picture for each response, for docs/responses.md: simulated rows, the fitted median and 95% of new observations.

`python -m benchmarks.response_pictures`
"""

from __future__ import annotations

import io
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks.record import DOCS
from slabnet.core.files import write_atomically
from slabnet.estimators import SlabClassifier, SlabRegressor

ROWS, SEED = 250, 0
LEVELS = ("low", "middle", "high")
BLUE, LIGHT, GREY, RED = "#1f6fb2", "#a9cbe8", "#777777", "#c0392b"
Array = np.ndarray[Any, Any]


def simulated(name: str) -> tuple[Array, Any, dict[str, Any]]:
    """x, y and what goes with y."""
    rng = np.random.default_rng(SEED)
    x = np.sort(rng.uniform(-2, 2, ROWS))
    curve = np.sin(1.5 * x) + 0.3 * x
    if name == "gaussian":
        return x, curve + 0.3 * rng.normal(size=ROWS), {}
    if name == "heteroscedastic":
        return x, curve + 0.12 * np.exp(0.8 * (x + 1)) * rng.normal(size=ROWS), {}
    if name == "student-t":
        return x, curve + 0.2 * rng.standard_t(2, ROWS), {}
    if name == "lognormal":
        return x, np.exp(1 + curve + 0.4 * rng.normal(size=ROWS)), {}
    if name == "gamma":
        return x, np.exp(1 + curve) * rng.gamma(3, 1 / 3, ROWS), {}
    if name == "poisson":
        return x, rng.poisson(np.exp(1 + curve)), {}
    if name == "negative-binomial":
        return x, rng.poisson(np.exp(1 + curve) * rng.gamma(1.5, 1 / 1.5, ROWS)), {}
    if name == "weibull":
        times, ends = np.exp(1 + curve) * rng.weibull(2, ROWS), rng.uniform(1, 14, ROWS)
        return x, np.minimum(times, ends), {"event": (times <= ends).astype(float)}
    return x, np.array(LEVELS)[np.digitize(3 * curve + rng.logistic(size=ROWS), [-1, 1.5])], {}


def picture(name: str) -> bytes:
    """An SVG, the same for the same seed."""
    from matplotlib.figure import Figure

    x, y, sides = simulated(name)
    grid = np.linspace(-2, 2, 120)
    options: dict[str, Any] = {"hidden": (20,), "epochs": 400, "response": name, "random_state": SEED}
    figure = Figure(figsize=(4.2, 2.6), layout="constrained")
    axes = figure.add_subplot()
    if name == "ordinal":
        shares = SlabClassifier(levels=list(LEVELS), **options).fit(x[:, None], y).predict_proba(grid[:, None])
        axes.stackplot(grid, shares.T, labels=LEVELS, colors=(LIGHT, BLUE, GREY))
        axes.set_ylim(0, 1)
        axes.legend(loc="upper left", fontsize=7)
        axes.set_ylabel("probability")
    else:
        model = SlabRegressor(**options).fit(x[:, None], y, **sides)
        found = model.predict_distribution(grid[:, None])
        low, high = found.interval(0.95)
        axes.fill_between(grid, low, high, color=LIGHT, lw=0, label="95% of new observations")
        axes.plot(grid, found.quantile(0.5), color=BLUE, label="median")
        seen = sides.get("event", np.ones(ROWS)) > 0
        axes.plot(x[seen], y[seen], ".", color=GREY, ms=3)
        if not seen.all():
            axes.plot(x[~seen], y[~seen], "+", color=RED, ms=4, label="cut off here")
        axes.set_ylim(*np.quantile(y, (0.0, 1.0)) + np.array([-0.1, 0.1]) * np.ptp(y))
        axes.legend(loc="upper left", fontsize=7)
        axes.set_ylabel("y")
    axes.set_xlabel("x")
    held = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "slabnet", "svg.fonttype": "path"}):
        figure.savefig(held, format="svg", metadata={"Date": None})
    return held.getvalue()


def main() -> None:
    names = ("gaussian", "heteroscedastic", "student-t", "lognormal", "gamma")
    for name in (*names, "poisson", "negative-binomial", "ordinal", "weibull"):
        write_atomically(DOCS / "responses" / f"{name}.svg", picture(name))
        print(f"docs/responses/{name}.svg", flush=True)


if __name__ == "__main__":
    main()

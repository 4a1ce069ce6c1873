"""Coefficients of linear estimators in the units of the response, for every response."""

from __future__ import annotations

import numpy as np
import pytest

import slabnet as sn

RNG = np.random.default_rng(1)
X = RNG.normal(2.0, 3.0, size=(800, 2))
ETA = 0.2 * (X[:, 0] - 2)
EXPOSURE = RNG.uniform(1, 5, 800)
CASES = {
    "gaussian": (500 + 60 * ETA + 5 * RNG.normal(size=800), 60 * 0.2, 500 - 60 * 0.4),
    "student-t": (500 + 60 * ETA + 5 * RNG.standard_t(5, 800), 60 * 0.2, 500 - 60 * 0.4),
    "lognormal": (1e4 * np.exp(ETA + 0.3 * RNG.normal(size=800)), 0.2, np.log(1e4) - 0.4),
    "gamma": (1e4 * np.exp(ETA) * RNG.gamma(9, 1 / 9, 800), 0.2, np.log(1e4) - 0.4),
    "weibull": (1e4 * np.exp(ETA) * RNG.weibull(3, 800), 0.2, np.log(1e4) - 0.4),
    "poisson": (RNG.poisson(EXPOSURE * 30 * np.exp(ETA)), 0.2, np.log(30) - 0.4),
}


@pytest.mark.parametrize("name", CASES)
def test_slopes_and_intercepts_are_those_the_data_were_made_with(name: str) -> None:
    y, slope, intercept = CASES[name]
    sides = {"exposure": EXPOSURE} if name == "poisson" else {}
    model = sn.SlabRegressor(hidden=(), epochs=100, response=name, random_state=0).fit(X, y, **sides)
    table = {row.input: row for row in sn.coefficients(model, ["x0", "x1"])}
    assert table["x0"].mean == pytest.approx(slope, rel=0.06)
    assert table["(intercept)"].mean == pytest.approx(intercept, rel=0.02)


def test_both_heads_of_a_noise_that_depends_on_the_inputs() -> None:
    y = 500 + 60 * ETA + 20 * np.exp(0.3 * X[:, 1] / 2) * RNG.normal(size=800)
    model = sn.SlabRegressor(hidden=(), epochs=300, response="heteroscedastic", random_state=0).fit(X, y)
    rows = {(row.output, row.input): row for row in sn.coefficients(model, ["x0", "x1"])}
    assert rows[0, "x0"].mean == pytest.approx(12, rel=0.1)
    assert rows[1, "x1"].mean == pytest.approx(0.3, rel=0.15)  # of the log variance, per unit of the column
    assert rows[1, "(intercept)"].mean == pytest.approx(2 * np.log(20), abs=0.35)
    assert rows[0, "x1"].alpha < 0.5
    assert rows[1, "x0"].alpha < 0.5

"""Intervals and quantiles through a Pipeline and a TransformedTargetRegressor."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import slabnet as sn

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 2))
Y = np.exp(1 + 0.5 * X[:, 0] + 0.2 * RNG.normal(size=120))
QUICK = {"hidden": (), "epochs": 40, "random_state": 0}


def test_a_log_of_the_target_is_the_lognormal_response() -> None:
    """The same model said in two ways, up to how the two are scaled and fitted; and exact against its own inside."""
    inside = make_pipeline(StandardScaler(), sn.SlabRegressor(**QUICK))
    around = TransformedTargetRegressor(inside, func=np.log, inverse_func=np.exp).fit(X, Y)
    found = sn.predict_distribution(around, X)
    plain = around.regressor_[-1].predict_distribution(around.regressor_[0].transform(X))
    np.testing.assert_allclose(found.quantile(0.3), np.exp(plain.quantile(0.3)))
    np.testing.assert_allclose(found.cdf(found.quantile(0.3)), 0.3, atol=1e-6)
    np.testing.assert_allclose(found.cdf(2.0) + found.exceeds(2.0), 1)
    low, high = found.interval(0.9)
    assert (low > 0).all()
    assert ((low <= Y) & (high >= Y)).mean() == pytest.approx(0.9, abs=0.07)
    other = sn.SlabRegressor(response="lognormal", **QUICK).fit(X, Y).predict_interval(X, 0.9)
    np.testing.assert_allclose(high, other[1], rtol=0.15)


def test_a_function_that_falls_turns_the_quantiles() -> None:
    around = TransformedTargetRegressor(sn.SlabRegressor(**QUICK), func=np.negative, inverse_func=np.negative).fit(X, Y)
    straight = sn.SlabRegressor(**QUICK).fit(X, Y)
    found, plain = sn.predict_distribution(around, X), sn.predict_distribution(straight, X)
    np.testing.assert_allclose(found.quantile(0.1), plain.quantile(0.1), atol=0.1)
    np.testing.assert_allclose(found.cdf(3.0), plain.cdf(3.0), atol=0.03)


def test_what_is_refused() -> None:
    with pytest.raises(sn.ArgumentError, match="model must be a SlabRegressor, or a Pipeline"):
        sn.predict_distribution(LinearRegression(), X)
    bent = FunctionTransformer(np.asarray, inverse_func=np.square, check_inverse=False)
    around = TransformedTargetRegressor(sn.SlabRegressor(**QUICK), transformer=bent, check_inverse=False)
    around.fit(X, X[:, 0])
    with pytest.raises(sn.ArgumentError, match="func must be monotone, got one that rises and falls"):
        sn.predict_distribution(around, X).interval()

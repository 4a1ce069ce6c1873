"""Responses through the estimators: chosen, scaled, predicted in the units of the table, weighted, kept in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from scipy import stats
from sklearn.model_selection import cross_val_score

import slabnet as sn
from slabnet.estimators import load_estimator, save_estimator
from slabnet.estimators.responses import taken_response

QUICK: dict[str, Any] = {"hidden": (), "epochs": 150, "random_state": 0, "draws": 50}
RNG = np.random.default_rng(4)
X = RNG.normal(size=(600, 3))
EXPOSURE = RNG.uniform(0.5, 20, 600)
RATE = np.exp(4 + 0.6 * X[:, 0])


def simulated(name: str) -> tuple[Any, dict[str, Any]]:
    """y in units far from one, and what goes with it."""
    rng = np.random.default_rng(5)
    if name == "poisson":
        return rng.poisson(EXPOSURE * RATE), {"exposure": EXPOSURE}
    if name == "negative-binomial":
        return rng.poisson(EXPOSURE * RATE * rng.gamma(2.0, 0.5, 600)), {"exposure": EXPOSURE}
    if name == "gamma":
        return 1e5 * np.exp(0.6 * X[:, 0]) * rng.gamma(4.0, 0.25, 600), {}
    if name == "lognormal":
        return 1e5 * np.exp(0.6 * X[:, 0] + 0.5 * rng.normal(size=600)), {}
    if name == "weibull":
        times, ends = 1e3 * np.exp(0.6 * X[:, 0]) * rng.weibull(2.0, 600), rng.uniform(0, 4e3, 600)
        return np.minimum(times, ends), {"event": (times <= ends).astype(float)}
    noise = rng.standard_t(4, 600) if name == "student-t" else rng.normal(size=600)
    spread = np.exp(0.8 * X[:, 1]) if name == "heteroscedastic" else 1.0
    return 500 + 60 * X[:, 0] + 20 * spread * noise, {}


NAMES = ["poisson", "negative-binomial", "gamma", "lognormal", "weibull", "student-t", "heteroscedastic"]


@pytest.mark.parametrize("name", NAMES)
def test_a_response_in_the_units_of_the_table(name: str, tmp_path: Path) -> None:
    y, sides = simulated(name)
    model = sn.SlabRegressor(response=name, **QUICK).fit(X, y, **sides)
    assert (model.response_, model.response_why_) == (name, "as asked for")
    exposure = {"exposure": sides["exposure"]} if "exposure" in sides else {}
    low, high = model.predict_interval(X, 0.9, **exposure)
    assert name in ("student-t", "heteroscedastic") or (low >= 0).all()
    seen = np.ones(600, bool) if "event" not in sides else sides["event"] > 0
    if seen.all():
        assert ((low <= y) & (y <= high)).mean() == pytest.approx(0.92, abs=0.05)
    effect = np.log(model.predict([[1, 0, 0]]) / model.predict([[0, 0, 0]]))[0]
    if name in ("student-t", "heteroscedastic"):
        assert model.predict([[1, 0, 0]])[0] - model.predict([[0, 0, 0]])[0] == pytest.approx(60, rel=0.1)
    else:
        assert effect == pytest.approx(0.6, abs=0.12)
    found = model.predict_distribution(X, **exposure)
    np.testing.assert_allclose(found.interval(0.9)[0], low, rtol=1e-5)
    assert found.cdf(found.quantile(0.3)).mean() >= 0.3 - 1e-6
    np.testing.assert_allclose(found.cdf(y) + found.exceeds(y), 1)
    if seen.all():
        np.testing.assert_allclose(np.log(found.density(y)), model.log_densities(X, y, **exposure), rtol=1e-5)
    if name == "heteroscedastic":
        spread = model.predict(X, return_std=True)[1]
        assert np.corrcoef(np.log(spread), X[:, 1])[0, 1] > 0.95
        with pytest.raises(AttributeError, match="noise_std_ is one number for all rows"):
            _ = model.noise_std_
    save_estimator(model, tmp_path / "m.slab")
    again = load_estimator(tmp_path / "m.slab")
    assert isinstance(again, sn.SlabRegressor)
    assert again.response_ == name
    np.testing.assert_array_equal(again.predict(X, **exposure), model.predict(X, **exposure))
    if model.network_.method.selects:
        small = model.sparsify()
        assert small.predict(X, **exposure).shape == (600,)


def test_a_log_density_is_that_of_the_units_of_y() -> None:
    """The density integrates to one over y, and a cut-off row counts with what is beyond it."""
    y, _ = simulated("gamma")
    model = sn.SlabRegressor(response="gamma", **QUICK).fit(X, y)
    grid = np.linspace(1, 3e6, 1500)
    density = np.exp(model.log_densities(np.repeat(X[:1], 1500, 0), grid))
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=0.01)
    y, sides = simulated("weibull")
    model = sn.SlabRegressor(response="weibull", **QUICK).fit(X, y, **sides)
    logs = model.log_densities(X, y, event=sides["event"])
    found = model.predict_distribution(X)
    cut = sides["event"] == 0
    np.testing.assert_allclose(logs[cut], np.log(found.exceeds(y))[cut], rtol=1e-6)
    np.testing.assert_allclose(logs[~cut], np.log(found.density(y))[~cut], rtol=1e-6)


def test_counts_twice_the_exposure_are_twice_the_mean() -> None:
    y, sides = simulated("poisson")
    model = sn.SlabRegressor(response="poisson", **QUICK).fit(X, y, **sides)
    one, two = model.predict(X), model.predict(X, exposure=np.full(600, 2.0))
    np.testing.assert_allclose(two, 2 * one, rtol=1e-6)
    assert one.mean() == pytest.approx(RATE.mean(), rel=0.05)
    found = model.predict_distribution(X[:1], exposure=[1.0])
    total = sum(found.density(float(k))[0] for k in range(400))
    assert total == pytest.approx(1, abs=1e-4)


def test_ordered_levels() -> None:
    latent = 2 * X[:, 0] + RNG.logistic(size=600)
    y = np.array(["low", "middle", "high"])[np.digitize(latent, [-1, 1.5])]
    options = {**QUICK, "response": "ordinal", "levels": ["low", "middle", "high"]}
    model = sn.SlabClassifier(**options).fit(X, y)
    assert model.classes_.tolist() == ["low", "middle", "high"]
    shares = model.predict_proba(X)
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-6)
    order = np.argsort(X[:, 0])
    assert stats.spearmanr(shares[order, 2], X[order, 0]).statistic > 0.95
    wanted = [stats.logistic.cdf(-1 - 2 * 0.5), stats.logistic.cdf(1.5 - 1) - stats.logistic.cdf(-1 - 1)]
    np.testing.assert_allclose(model.predict_proba([[0.5, 0, 0]])[0, :2], wanted, atol=0.06)
    assert model.score(X, y) > 0.6
    with pytest.raises(sn.ArgumentError, match='levels must be left out, or used with response="ordinal"'):
        sn.SlabClassifier(hidden=(), levels=["low", "middle", "high"]).fit(X, y)
    with pytest.raises(sn.ArgumentError, match="levels must be at least 2 different ones"):
        sn.SlabClassifier(hidden=(), response="ordinal", levels=["low"]).fit(X, y)
    with pytest.raises(sn.ArgumentError, match="y must be one of the classes low, middle, got 'high'"):
        sn.SlabClassifier(hidden=(), response="ordinal", levels=["low", "middle"]).fit(X, y)
    with pytest.raises(sn.ArgumentError, match='response must be None, "classes" or "ordinal"'):
        sn.SlabClassifier(hidden=(), response="poisson").fit(X, y)


def test_ordered_levels_are_kept_in_files(tmp_path: Path) -> None:
    y = np.array(["b", "a", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    model = sn.SlabClassifier(**{**QUICK, "epochs": 20}, response="ordinal", levels=["b", "a", "c"]).fit(X, y)
    save_estimator(model, tmp_path / "m.slab")
    again = load_estimator(tmp_path / "m.slab")
    assert isinstance(again, sn.SlabClassifier)
    assert again.classes_.tolist() == ["b", "a", "c"]
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    ("y", "name", "why"),
    [
        ([0, 1, 5, 2], "negative-binomial", "whole numbers from 0"),
        ([0.0, 1.0, 5.0, 2.0], "negative-binomial", "poisson as its limit"),
        ([-1, 1, 5, 2], "gaussian", "below 0"),
        ([0, 0.5, 5, 2], "gaussian", "some values are 0"),
        ([10.5, 11.25, 14], "gaussian", "within a factor of 10"),
        (np.exp(RNG.normal(3, 1.5, 500)), "lognormal", "fits them better than gamma"),
        (RNG.gamma(1.0, 10, 500) + 1e-6, "gamma", "fits them better than lognormal"),
        ([100_000, 950_000, 120_000, 8_000_000], "lognormal", "numbers above 0"),
    ],
)
def test_auto_reads_values_and_says_what_it_took(y: Any, name: str, why: str) -> None:
    taken = taken_response("auto", np.asarray(y, dtype=float)[:, None])
    assert taken.name == name
    assert why in taken.why


def test_auto_does_not_depend_on_the_type() -> None:
    y = np.arange(60) % 7
    options = {**QUICK, "epochs": 2, "response": "auto"}
    names = {sn.SlabRegressor(**options).fit(X[:60], y.astype(kind)).response_ for kind in ("int8", "float32", "float")}
    assert names == {"negative-binomial"}


def test_weights_count_rows_and_classes() -> None:
    """Rows of weight 0 do not count; twice the weight is twice the row, in scaling too."""
    y = np.where(np.arange(600) < 300, 5 * X[:, 0], -5 * X[:, 0])
    model = sn.SlabRegressor(**QUICK).fit(X, y, sample_weight=(np.arange(600) < 300).astype(float))
    assert model.predict([[1, 0, 0]])[0] - model.predict([[0, 0, 0]])[0] == pytest.approx(5, abs=0.15)
    weight = np.where(np.arange(600) < 300, 3.0, 1.0)
    one = sn.SlabRegressor(**QUICK).fit(X, y, sample_weight=weight)
    rows = np.repeat(np.arange(600), weight.astype(int))
    two = sn.SlabRegressor(**QUICK).fit(X[rows], y[rows])
    np.testing.assert_allclose(one.scaling_x_.scale, two.scaling_x_.scale)
    assert one.predict([[1, 0, 0]])[0] == pytest.approx(two.predict([[1, 0, 0]])[0], abs=0.35)
    labels = np.where(X[:, 0] + RNG.logistic(size=600) > 2.5, "rare", "often")
    plain, balanced = (sn.SlabClassifier(class_weight=w, **QUICK).fit(X, labels) for w in (None, "balanced"))
    assert (balanced.predict(X) == "rare").mean() > (plain.predict(X) == "rare").mean() + 0.1
    with pytest.raises(sn.ArgumentError, match="class_weight must be None"):
        sn.SlabClassifier(class_weight="even", **QUICK).fit(X, labels)


def test_metadata_reaches_the_fit() -> None:
    y, sides = simulated("poisson")
    with sklearn.config_context(enable_metadata_routing=True):
        model = sn.SlabRegressor(response="poisson", **{**QUICK, "epochs": 30})
        model.set_fit_request(exposure=True).set_score_request(sample_weight=False)
        scores = cross_val_score(model, X, y, cv=2, params={"exposure": sides["exposure"]}, scoring="r2")
    assert len(scores) == 2


@pytest.mark.parametrize(
    ("response", "y", "sides", "said"),
    [
        ("poisson", [1.0, -1.0, 2.0], {}, "fit: y must be counts, whole numbers from 0, got -1 in row 1"),
        ("lognormal", [1.0, 0.0, 2.0], {}, "fit: y must be numbers above 0, got 0 in row 1"),
        ("gamma", [1.0, -3.0, 2.0], {}, "fit: y must be numbers above 0, got -3 in row 1"),
        ("weibull", [1.0, 2.0, 3.0], {"event": [0, 0, 0]}, "fit: event must be 1 for some row, got 0 for all"),
        ("poisson", [1.0, 2.0, 3.0], {"exposure": [1, 0, 1]}, "fit: exposure must be numbers above 0, got 0.0 in row"),
        (
            "gaussian",
            [1.0, 2.0, 3.0],
            {"exposure": [1, 1, 1]},
            "fit: exposure must be left out for a gaussian response",
        ),
        ("poisson", [1.0, 2.0, 3.0], {"event": [1, 1, 1]}, "fit: event must be left out for a poisson response"),
        ("cauchy", [1.0, 2.0, 3.0], {}, "response must be one of auto, gaussian"),
    ],
)
def test_bad_input(response: str, y: list[float], sides: dict[str, Any], said: str) -> None:
    model = sn.SlabRegressor(response=response, hidden=(), epochs=2)
    with pytest.raises(sn.ArgumentError) as caught:
        model.fit(np.zeros((3, 2)) + np.arange(3)[:, None], y, **sides)
    assert said in str(caught.value)
    assert not hasattr(model, "network_")

"""Explanations in the units and columns of a user's table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import slabnet as sn
from slabnet.prediction.background import ColumnPoints

RESPONSES = ("heteroscedastic", "student-t", "lognormal", "gamma", "poisson", "negative-binomial", "weibull")


def table(rows: int = 80) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    city = rng.choice(["Oslo", "Bergen", "Bodo"], rows)
    frame = pd.DataFrame({"age": rng.normal(50, 10, rows), "city": city, "dose": rng.uniform(0, 5, rows)})
    frame.loc[::7, "dose"] = np.nan
    y = 0.3 * frame["age"] + np.where(city == "Oslo", 5.0, 0.0) + rng.normal(size=rows)
    return frame, y.to_numpy()


def adds_up(why: sn.Explanation, atol: float = 1e-5) -> None:
    one = why.by_draw
    assert one is not None
    np.testing.assert_allclose(one.contributions.sum(2), one.prediction - one.baseline[:, None], atol=atol)
    if one.regions is not None:
        np.testing.assert_allclose(one.regions.sum(2) + one.intercept, one.prediction, atol=atol)


@pytest.fixture(scope="module")
def model() -> sn.SlabRegressor:
    return sn.SlabRegressor(hidden=(6,), skip=True, epochs=20, random_state=0, draws=20).fit(*table())


def test_columns_of_the_table_not_dummies(model: sn.SlabRegressor) -> None:
    x, _ = table()
    why = model.explain(x[:8], keep_draws=True)
    assert why.columns == ("age", "city", "dose")
    assert why.values[0][1] == x["city"][0]
    assert why.values[7][2] is None
    adds_up(why)
    np.testing.assert_allclose(why.prediction.mean[:, 0], model.predict(x[:8]), atol=1e-9)
    adds_up(model.explain(x[:3], background=x[10:30], scale="response", keep_draws=True))
    assert "city = " in str(why)


def test_a_linear_model_in_the_units_of_its_columns() -> None:
    x, y = table()
    model = sn.SlabRegressor(hidden=(), epochs=20, random_state=0).fit(x[["age"]], y)
    why = model.explain(x[["age"]][:3], background=x[["age"]], draws=400)
    intercept, slope = sn.coefficients(model)
    expected = slope.mean * (x["age"][:3] - x["age"].mean())
    np.testing.assert_allclose(why.contributions.mean[:, 0, 0], expected, rtol=0.05, atol=0.05)
    assert why.regions is not None
    np.testing.assert_allclose(why.regions.contributions.mean[:, 0, 0], slope.mean * x["age"][:3], rtol=0.05)
    np.testing.assert_allclose(why.regions.intercept.mean[:, 0], intercept.mean, rtol=0.2)


@pytest.mark.parametrize("response", RESPONSES)
def test_every_response_in_its_units(response: str) -> None:
    x, y = table()
    y = np.exp(y / 10)
    y = np.round(y) if response in ("poisson", "negative-binomial") else y
    model = sn.SlabRegressor(hidden=(4,), epochs=5, response=response, random_state=0, draws=10).fit(x, y)
    linear = model.explain(x[:4], keep_draws=True)
    answer = model.explain(x[:4], scale="response", keep_draws=True)
    adds_up(linear)
    adds_up(answer)
    assert linear.by_draw is not None
    assert answer.by_draw is not None
    assert linear.outputs[0] == "response"
    told = linear.by_draw.prediction[..., :1]
    if response in ("lognormal", "gamma", "poisson", "negative-binomial"):  # logarithms of the response
        np.testing.assert_allclose(np.exp(told), answer.by_draw.prediction, rtol=1e-9)
    if response in ("heteroscedastic", "student-t"):
        np.testing.assert_allclose(told, answer.by_draw.prediction, rtol=1e-9)
    if response not in ("lognormal", "weibull"):  # whose prediction is the median of the average
        np.testing.assert_allclose(answer.prediction.mean[:, 0], model.predict(x[:4]), rtol=1e-9)


@pytest.mark.parametrize(
    ("labels", "options"), [(2, {}), (3, {}), (3, {"response": "ordinal"}), (3, {"members": 2})], ids=str
)
def test_classes_have_one_set_each(labels: int, options: dict[str, Any]) -> None:
    x, y = table()
    classes = np.array(["low", "mid", "top"])[np.digitize(y, [16] if labels == 2 else [14, 18])]
    model = sn.SlabClassifier(hidden=(4,), epochs=5, random_state=0, draws=10, **options).fit(x, classes)
    linear, answer = model.explain(x[:4], keep_draws=True), model.explain(x[:4], scale="response", keep_draws=True)
    adds_up(linear)
    adds_up(answer)
    shares = model.predict_proba(x[:4])
    np.testing.assert_allclose(answer.prediction.mean, shares[:, -answer.prediction.mean.shape[1] :], atol=1e-9)
    assert answer.outputs == (("mid",) if labels == 2 else ("low", "mid", "top"))
    best = answer.outputs[answer.output_of(0)]
    assert str(answer).startswith(f"row 0, {best}: ")


def test_chosen_models_and_files(model: sn.SlabRegressor, tmp_path: Path) -> None:
    x, _ = table()
    small = model.sparsify("budget", weights=6)
    why = small.explain(x[:4], keep_draws=True)
    adds_up(why)
    np.testing.assert_allclose(why.prediction.mean[:, 0], small.predict(x[:4]), atol=1e-9)
    for one in (model, small):
        sn.save_estimator(one, tmp_path / "m.slab")
        again = sn.load_estimator(tmp_path / "m.slab").explain(x[:4])
        np.testing.assert_array_equal(again.contributions.mean, one.explain(x[:4]).contributions.mean)


def test_the_stored_summary_holds_no_training_row(model: sn.SlabRegressor) -> None:
    x, _ = table()
    assert model.background_ is not None
    points = model.background_.points
    inputs = model._inputs(x, reset=False)
    assert points.shape == (32, inputs.shape[1])
    apart = np.abs(points[:, None] - inputs[None]).max(2)
    assert apart.min() > 1e-6
    np.testing.assert_allclose(points.mean(0), inputs.mean(0), atol=0.1 * inputs.std(0).max())
    groups = model.column_groups_
    assert set(points[:, list(groups["city"])].sum(1)) == {1.0}  # each point is in one city
    rng = np.random.default_rng(0)
    more = model.background_.with_rows(rng.permutation(inputs)[:40] + 0.0, groups.values())
    assert more.rows == len(inputs) + 40
    np.testing.assert_allclose(more.points.mean(0), points.mean(0), atol=0.2 * inputs.std(0).max())


@pytest.mark.parametrize("broken", [{"rows": 0}, {"points": [[1.0]]}, {"points": [[float("nan")] * 2]}, {"points": []}])
def test_a_broken_summary_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="points"):
        ColumnPoints.from_dict({"rows": 3, "points": [[0.0, 1.0]]} | broken, 2)


def test_bad_calls(model: sn.SlabRegressor) -> None:
    x, _ = table()
    with pytest.raises(sn.ArgumentError, match="scale must be one of linear, response"):
        model.explain(x[:2], scale="log")  # type: ignore[arg-type]
    with pytest.raises(sn.ArgumentError, match="background must be given for a model from a file of an earlier"):
        old = sn.SlabRegressor(hidden=(), epochs=2).fit(*table())
        old.background_ = None
        old.explain(x[:2])

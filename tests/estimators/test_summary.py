"""The summary of an estimator: its numbers by other routes, and each of its forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import slabnet as sn
from slabnet.estimators.summary import correlated
from slabnet.prediction.extrapolation import TrainingSupport


def table(rows: int = 80) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    city = rng.choice(["Oslo", "Bergen_1", "Bo & do"], rows)
    frame = pd.DataFrame({"age": rng.normal(50, 10, rows), "city": city, "<b>": rng.normal(size=rows)})
    frame["again"] = frame["age"] + 3 * rng.normal(size=rows)
    y = 0.3 * frame["age"] + np.where(city == "Oslo", 5.0, 0.0) + rng.normal(size=rows)
    return frame, 1000 * y.to_numpy()


@pytest.fixture(scope="module")
def model() -> sn.SlabRegressor:
    return sn.SlabRegressor(hidden=(6,), skip=True, gates="inputs", epochs=20, random_state=0).fit(*table())


def test_a_row_for_each_column(model: sn.SlabRegressor) -> None:
    told = model.summary()
    assert {one.column for one in told.columns} == {"age", "city", "<b>", "again"}
    by_name = {one.column: one for one in told.columns}
    for name, probability in model.column_inclusion_.items():
        assert by_name[name].included == pytest.approx(probability)
    known = {one.name: one for one in sn.structure(model).columns}
    for name, one in by_name.items():
        assert (one.used, one.linear) == (known[name].used, known[name].linear)
    effects = {row[0]: row[2:] for row in model.feature_effects_.rows()}
    assert by_name["age"].effect == pytest.approx(effects["age"][0])
    level = max((name for name in effects if name.startswith("city=")), key=lambda name: abs(effects[name][0]))
    assert by_name["city"].input == level
    assert told.about["Rows"] == "80"
    assert any("age and again (r = 0.9" in line for line in told.warnings)


def test_its_bound_and_likelihood_are_in_the_units_of_the_response() -> None:
    """Against drawn networks and dispersions, in the units of y."""
    x, y = table()
    model = sn.SlabRegressor(hidden=(), epochs=300, random_state=0).fit(x[["age"]], y)
    told = float(model.summary().about["Log-likelihood"].split()[0])
    means = model.explain(x[["age"]], draws=300, keep_draws=True).by_draw
    assert means is not None
    sd = model.noise_std_
    each = -0.5 * np.log(2 * np.pi * sd**2) - (y[None, :, None] - means.prediction) ** 2 / (2 * sd**2)
    assert told == pytest.approx(each.sum((1, 2)).mean(), rel=0.01)
    bound = model.summary().about["Evidence bound"]
    kl = float(bound.split("KL ")[1].rstrip(")"))
    assert float(bound.split()[0]) == pytest.approx(told - kl, abs=0.1)


def test_a_linear_model_is_told_by_its_coefficients() -> None:
    x, y = table()
    model = sn.SlabRegressor(hidden=(), epochs=20, random_state=0).fit(x[["age", "<b>"]], y)
    told = model.summary((x[["age", "<b>"]], y))
    assert list(told.coefficients) == sn.coefficients(model)
    assert told.table()[0][:2] == ("input", "inclusion")
    rows = model.scaling_x_.apply(x[["age", "<b>"]].to_numpy()), model.scaling_y_.apply(y[:, None])
    k_hat = sn.pareto_k(model.network_, rows, seed=model._seed).k_hat
    assert float(told.about["Pareto k-hat"]) == pytest.approx(k_hat, abs=0.01)
    assert len(told.to_frame()) == 3


def test_every_form_escapes(model: sn.SlabRegressor) -> None:
    told = model.summary()
    assert "<b>" not in told._repr_html_()
    assert "&lt;b&gt;" in told._repr_html_()
    latex = told.to_latex()
    assert "city=Bergen_1" not in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 2
    assert len(told.to_frame()) == 4
    lines = str(told).splitlines()
    assert lines[0] == "SlabRegressor"
    assert any(line.startswith("Response") and "gaussian" in line for line in lines)


@pytest.mark.parametrize("options", [{}, {"members": 2}, {"method": "mc-dropout"}, {"hidden": ()}], ids=str)
def test_classes_members_chosen_models_and_other_methods(options: dict[str, Any]) -> None:
    x, y = table()
    classes = np.digitize(y, [14_000, 18_000])
    model = sn.SlabClassifier(**{"hidden": (4,), "epochs": 5, "random_state": 0} | options).fit(x, classes)
    assert "3 classes (0, 1, 2)" in str(model.summary())
    if model.network_.method.selects:
        assert "median model" in model.sparsify().summary().title


def test_pairs_of_one_column_are_no_warning() -> None:
    level = np.arange(40) % 2.0
    support = TrainingSupport.of(np.column_stack([level, 1 - level, np.arange(40.0)]))
    assert correlated(support, [(0, 1), (2,)], ["a", "b", "c"]) == []
    assert correlated(support, [(0,), (1,), (2,)], ["a", "b", "c"]) == [
        "Hardly to be told apart: a and b (r = -1.000)."
    ]


def test_bad_calls(model: sn.SlabRegressor) -> None:
    with pytest.raises(sn.ArgumentError, match="data must be a pair"):
        model.summary(table()[0])  # type: ignore[arg-type]

"""Effects of columns: as scikit-learn's partial dependence, and by hand where it has none."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from sklearn.inspection import PartialDependenceDisplay, partial_dependence, permutation_importance

import slabnet as sn
from slabnet.core.noise import keyed_generator


@pytest.fixture(scope="module")
def numbers() -> tuple[sn.SlabRegressor, Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    x[:, 1] += x[:, 0]
    y = np.abs(x[:, 0]) + x[:, 1] * x[:, 2]
    return sn.SlabRegressor(hidden=(8,), epochs=30, random_state=0, draws=20).fit(x, y), x, y


@pytest.fixture(scope="module")
def words() -> tuple[sn.SlabClassifier, Any]:
    rng = np.random.default_rng(0)
    city = rng.choice(["Oslo", "Bergen", "Bodo"], 60)
    frame = pd.DataFrame({"age": rng.normal(50, 10, 60), "city": city, "sick": rng.integers(0, 2, 60)})
    frame.loc[::7, "age"] = np.nan
    y = np.where((city == "Oslo") & (frame["sick"] > 0), "yes", "no")
    return sn.SlabClassifier(hidden=(6,), epochs=10, random_state=0, draws=10).fit(frame, y), frame


def test_partial_dependence_is_that_of_scikit_learn(numbers: tuple[sn.SlabRegressor, Any, Any]) -> None:
    model, x, y = numbers
    theirs = partial_dependence(model, x, [1], grid_resolution=8, kind="average")
    ours = model.effects(1, background=x, at=theirs["grid_values"][0])
    np.testing.assert_allclose(ours.partial.mean[:, 0], theirs["average"][0], atol=1e-9)
    both = partial_dependence(model, x, [0, 2], grid_resolution=5, kind="average")
    pair = model.effects((0, 2), background=x, at=both["grid_values"])
    np.testing.assert_allclose(pair.partial.mean[:, 0], both["average"][0].reshape(-1), atol=1e-9)
    assert (ours.partial.low <= ours.partial.mean).all()
    assert len(PartialDependenceDisplay.from_estimator(model, x, [0, 1], grid_resolution=5).axes_[0]) == 2
    assert permutation_importance(model, x, y, n_repeats=1).importances_mean.shape == (3,)


def test_accumulated_effects_by_hand(numbers: tuple[sn.SlabRegressor, Any, Any]) -> None:
    """Draw by draw, over the rows between two points; columns 0 and 1 go together, so it is no partial dependence."""
    model, x, _ = numbers
    edges = np.quantile(x[:, 1], np.linspace(0, 1, 4))  # 20 rows in each part
    curve = model.effects(1, background=x, at=edges)
    total = np.zeros(4)
    for r in range(model.draws):
        steps = [0.0]
        with sn.drawing(model.network_, sn.exact, keyed_generator(model._seed, "draw", r), r):
            for low, high in itertools.pairwise(edges):
                middle = np.abs(x[:, 1] - (low + high) / 2).argsort(kind="stable")
                inside = x[middle[: int(((x[:, 1] > low) & (x[:, 1] <= high)).sum())]]
                ends = []
                for value in (low, high):
                    rows = inside.copy()
                    rows[:, 1] = value
                    out = model.network_(torch.as_tensor(model.scaling_x_.apply(rows)))
                    ends.append(model.scaling_y_.undo(out.detach().numpy()).mean())
                steps.append(ends[1] - ends[0])
        total += np.cumsum(steps) / model.draws
    assert curve.accumulated is not None
    centred = total - np.interp(x[:, 1], edges, total).mean()
    np.testing.assert_allclose(curve.accumulated.mean[:, 0], centred, atol=1e-9)
    plain = model.effects(1, at=edges)
    assert plain.accumulated is not None
    np.testing.assert_allclose(
        np.diff(plain.accumulated.mean[:, 0]), np.diff(plain.partial.mean[:, 0]), atol=1e-9
    )  # of independent columns the two are one


def test_levels_gaps_and_where_it_extrapolates(words: tuple[sn.SlabClassifier, Any]) -> None:
    model, frame = words
    city = model.effects("city", background=frame)
    assert [point[0] for point in city.grid] == ["Bergen", "Bodo", "Oslo"]
    assert city.accumulated is None
    for level, mean in zip(("Bergen", "Bodo", "Oslo"), city.partial.mean[:, 0], strict=True):
        assert mean == pytest.approx(model.predict_proba(frame.assign(city=level))[:, 1].mean(), abs=1e-9)
    age = model.effects("age")
    known = frame["age"].dropna()
    outside = [bool(point[0] < known.min() or point[0] > known.max()) for point in age.grid]
    assert age.extrapolates.tolist() == outside
    assert any(outside)
    assert all(isinstance(value, float) for value in age.rug[0])
    assert [point[0] for point in model.effects("sick").grid] == [0.0, 1.0]
    pair = model.effects(("age", "city"), at=([40, 60], ["Oslo"]))
    assert pair.grid == ((40.0, "Oslo"), (60.0, "Oslo"))


def test_records_and_pictures(words: tuple[sn.SlabClassifier, Any]) -> None:
    model, frame = words
    for column in ("age", "city", ("age", "city"), ("age", "sick")):
        curve = model.effects(column, points=10)
        assert curve.to_frame().shape[0] == len(curve.grid)
        assert "mean response" in str(curve)
        assert curve._repr_html_().startswith("<table>")
        axes = Figure().subplots()
        assert sn.plots.effect(axes, curve) is axes
    why = model.explain(frame[:2])
    axes = sn.plots.plot_waterfall(Figure().subplots(), why, 1, most=1)
    assert axes.get_yticklabels()[-1].get_text().endswith("others")
    with pytest.raises(sn.ArgumentError, match="row must be below 2"):
        sn.plots.plot_waterfall(Figure().subplots(), why, 2)
    with pytest.raises(sn.ArgumentError, match="output must be below 1"):
        sn.plots.plot_effect(Figure().subplots(), model.effects("age"), 1)


@pytest.mark.parametrize(
    ("column", "given", "message"),
    [
        ("dose", {}, "column must be one of age, city, sick, or its position, got 'dose'"),
        (7, {}, "column must be one of age"),
        (("age", "age"), {}, "column must be two different columns"),
        (("age", "city", "sick"), {}, "column must be one column or a pair"),
        ("city", {"at": ["Rome"]}, "at must be levels of city"),
        ("age", {"at": [np.nan]}, "at must be finite numbers"),
        ("age", {"points": 1}, "points must be"),
        ("age", {"scale": "log"}, "scale must be"),
    ],
)
def test_bad_calls(words: tuple[sn.SlabClassifier, Any], column: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(sn.ArgumentError, match=message):
        words[0].effects(column, **given)

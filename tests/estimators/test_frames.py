"""Data frames as they are: text, categories, booleans, gaps and amounts, in pandas, polars and Arrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.utils import get_tags

import slabnet as sn
from slabnet.cli.table_predictions import predict_table


@pytest.fixture(scope="module")
def houses() -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame(
        {
            "size": rng.normal(50, 10, n),
            "colour": pd.Categorical(rng.choice(["red", "blue", "green"], n)),
            "flag": rng.random(n) > 0.5,
            "cost": [f"${1000 * value:,.0f}" for value in rng.uniform(1, 9, n)],
            "note": rng.choice(["a", "none"], n),
        }
    )
    y = 2 * frame["size"] + 10 * (frame["colour"] == "red") + rng.normal(size=n)
    frame.loc[3, "size"] = np.nan
    y[3] = 100.0
    return frame, y


@pytest.fixture(scope="module")
def fitted(houses: tuple[pd.DataFrame, Any]) -> sn.SlabRegressor:
    return sn.SlabRegressor(hidden=(8,), epochs=300, random_state=0).fit(*houses)


def test_columns_stay_columns(houses: tuple[pd.DataFrame, Any], fitted: sn.SlabRegressor) -> None:
    frame, y = houses
    assert fitted.n_features_in_ == 5
    assert fitted.feature_names_in_.tolist() == list(frame.columns)
    groups = {"size": (0, 1), "colour": (2, 3, 4), "flag": (5,), "cost": (6,), "note": (7,)}
    assert fitted.column_groups_ == groups
    assert fitted.network_.spec["sizes"][0] == 8
    for values in (fitted.feature_importances_, fitted.feature_reach_, fitted.get_support()):
        assert len(values) == 5
    assert {0, 1} <= set(fitted.selected_features_.tolist())
    assert fitted.feature_importances_[:2].min() > 3 * fitted.feature_importances_[2:].max()
    assert fitted.score(frame, y) > 0.99
    assert fitted.transform(frame).shape == (200, len(fitted.selected_features_))
    model = sn.SlabRegressor(hidden=(), epochs=60, random_state=0)
    assert cross_val_score(model, frame, y, cv=3).min() > 0.9


def test_every_library_gives_the_same(houses: tuple[pd.DataFrame, Any], fitted: sn.SlabRegressor) -> None:
    frame, y = houses
    plain = frame.assign(colour=frame["colour"].astype(str))
    tables = [plain, pl.from_pandas(plain), pl.from_pandas(plain).lazy(), pa.Table.from_pandas(plain)]
    expected = fitted.predict(frame)
    for table in tables:
        np.testing.assert_array_equal(fitted.predict(table), expected)
    arrow = sn.SlabRegressor(hidden=(8,), epochs=300, random_state=0).fit(tables[3], y)
    np.testing.assert_allclose(arrow.predict(frame), expected)
    with pytest.raises(sn.ArgumentError, match="a table with the columns size, colour, flag, cost, note, got size"):
        fitted.predict(tables[3].select(["size"]))
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[["colour", "size", "flag", "cost", "note"]])


def test_the_table_travels_in_the_file(
    houses: tuple[pd.DataFrame, Any], fitted: sn.SlabRegressor, tmp_path: Path
) -> None:
    frame, _ = houses
    for model in (fitted, fitted.sparsify()):
        sn.save_estimator(model, tmp_path / "m.slab")
        again = sn.load_estimator(tmp_path / "m.slab")
        np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
        assert again.table_ == model.table_
        assert again.get_support().tolist() == model.get_support().tolist()
    sn.save_estimator(fitted, tmp_path / "m.slab")
    frame.to_csv(tmp_path / "t.csv", index=False)
    found = predict_table(tmp_path / "m.slab", tmp_path / "t.csv", tmp_path / "p.csv")
    assert found["rows"] == 200
    np.testing.assert_allclose(pd.read_csv(tmp_path / "p.csv")["prediction"], fitted.predict(frame), rtol=1e-4)


def test_gaps_in_arrays_and_what_the_tags_say() -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    y = x[:, 0] + 1.0
    x[::7, 1] = np.nan
    model = sn.SlabRegressor(hidden=(), epochs=40, random_state=0).fit(x, y)
    assert model.column_groups_ == {"0": (0,), "1": (1, 2), "2": (3,)}
    assert np.isfinite(model.predict(x)).all()
    tags = get_tags(model).input_tags
    assert (tags.allow_nan, tags.string, tags.categorical) == (True, True, True)
    more = sn.SlabRegressor(hidden=(), epochs=5, random_state=0).fit(x[1:7], y[1:7])
    assert more.table_ is None
    assert more.partial_fit(x[8:14], y[8:14]).n_samples_seen_ == 12


def test_a_level_that_training_never_saw_is_marked(houses: tuple[pd.DataFrame, Any], fitted: sn.SlabRegressor) -> None:
    frame = houses[0].iloc[:4].assign(colour=["red", "purple", "blue", "red"])
    assert fitted.extrapolates(frame).tolist()[1]
    assert not fitted.extrapolates(frame)[[0, 2]].any()


def test_text_classes_from_a_frame(houses: tuple[pd.DataFrame, Any]) -> None:
    frame, y = houses
    names = np.where(y > np.median(y), "dear", "cheap")
    model = sn.SlabClassifier(hidden=(8,), epochs=60, random_state=0).fit(frame, names)
    assert model.score(frame, names) > 0.9
    assert set(model.predict(frame)) == {"dear", "cheap"}

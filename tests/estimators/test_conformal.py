"""Intervals and sets with a guarantee: coverage by simulation where the model is wrong, and what decides the splits."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import slabnet as sn
from slabnet.cli.app import run as run_cli
from slabnet.core.errors import ArgumentError
from slabnet.data.dependence import Dependence
from slabnet.data.holdout import fold_numbers, one_of_each, split_rows
from slabnet.estimators.tempering import _held_out
from slabnet.prediction.conformal import Calibration, cross_ends, cumulative_shares


def wild(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Heavy-tailed noise whose size grows with the input: neither normal nor constant."""
    x = rng.uniform(-1, 1, size=(n, 2))
    return x, 2 * x[:, 0] + (0.2 + np.abs(x[:, 1])) * rng.standard_t(3, size=n)


def test_coverage_under_misspecified_noise() -> None:
    """1 000 tables to calibrate on, one new row each: at least .95 but for the error of a simulation."""
    rng = np.random.default_rng(0)
    model = sn.SlabRegressor(hidden=(), epochs=60, random_state=0).fit(*wild(100, rng))
    tables, rows = 1000, 50
    x, y = wild(tables * (rows + 1), rng)
    scores = model._scores(x, y).reshape(tables, rows + 1)
    inside = [own[-1] <= Calibration(own[:-1]).quantile(0.95) for own in scores]
    assert np.mean(inside) >= 0.945
    model.calibrate(x[:rows], y[:rows])  # the very same, through what a user calls
    low, high = model.predict_interval(x, 0.95, method="conformal")
    direct = (low <= y) & (y <= high)
    np.testing.assert_array_equal(direct, model._scores(x, y) <= Calibration(scores.ravel()[:rows]).quantile(0.95))


def test_sets_of_classes_cover_and_are_never_empty() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3000, 2))
    y = np.array(["a", "b", "c"])[np.argmax(x @ rng.normal(size=(2, 3)) + rng.gumbel(size=(3000, 3)), axis=1)]
    model = sn.SlabClassifier(hidden=(), epochs=60, random_state=0).fit(x[:100], y[:100])
    model.calibrate(x[100:600], y[100:600])
    sets = model.predict_set(x[600:], 0.9)
    held = sets[np.arange(2400), np.searchsorted(model.classes_, y[600:])]
    assert held.mean() >= 0.9 - 4 * math.sqrt(0.09 / 500)
    assert sets.any(1).all()
    assert sets.sum(1).mean() < 3
    assert sets[np.arange(2400), model.predict_proba(x[600:]).argmax(1)].all()


def test_cross_conformal_covers_what_it_says() -> None:
    rng = np.random.default_rng(2)
    found = sn.cross_conformal(sn.SlabRegressor(hidden=(), epochs=30, random_state=0), *wild(120, rng), folds=3)
    x, y = wild(2000, rng)
    low, high = found.predict_interval(x, 0.9)
    assert np.mean((low <= y) & (y <= high)) >= found.guarantee(0.9)
    assert found.guarantee(0.9) < 0.8 < found.guarantee(0.95) + 0.1
    centres, widths = rng.normal(size=(40, 3)), rng.uniform(size=(40, 3))
    low, high = cross_ends(centres, widths, 0.9)
    place = math.ceil(41 * 0.9)
    for column in range(3):  # by the definition
        assert high[column] == sorted(centres[:, column] + widths[:, column])[place - 1]
        assert low[column] == sorted(centres[:, column] - widths[:, column])[41 - place - 1]


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_cross_conformal_takes_frames_with_text(kind: Callable[[dict[str, list[object]]], object]) -> None:
    frame = kind({"size": [float(i % 7) for i in range(40)], "colour": ["red", "blue", "green", "red"] * 10})
    made = sn.cross_conformal(sn.SlabRegressor(hidden=(), epochs=2), frame, [float(i % 5) for i in range(40)], folds=2)
    low, high = made.predict_interval(frame)
    assert (low < high).all()
    assert made.models[0].feature_names_in_.tolist() == ["size", "colour"]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_cross_conformal_covers_its_level_under_misspecified_noise() -> None:
    """20 tables: it guarantees less, and covers .95 all the same."""
    rng = np.random.default_rng(5)
    inside = []
    for seed in range(20):
        model = sn.SlabRegressor(hidden=(), epochs=20, random_state=seed)
        found = sn.cross_conformal(model, *wild(90, rng), folds=3, seed=seed)
        x, y = wild(2000, rng)
        low, high = found.predict_interval(x)
        inside.append(np.mean((low <= y) & (y <= high)))
    assert np.mean(inside) >= 0.945


def test_cross_conformal_sets() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(150, 2))
    y = (x[:, 0] + 0.5 * rng.normal(size=150) > 0).astype(int)
    found = sn.cross_conformal(sn.SlabClassifier(hidden=(), epochs=30, random_state=0), x[:100], y[:100], folds=2)
    sets = found.predict_set(x[100:], 0.9)
    assert sets[np.arange(50), y[100:]].mean() >= found.guarantee(0.9)
    assert sets.any(1).all()


def test_too_few_rows_give_no_bound() -> None:
    model = sn.SlabRegressor(hidden=(), epochs=5, random_state=0)
    x, y = wild(60, np.random.default_rng(0))
    model.fit(x[:40], y[:40]).calibrate(x[40:58], y[40:58])
    low, high = model.predict_interval(x[:2], 0.95, method="conformal")
    assert np.isinf(low).all()
    assert np.isinf(high).all()
    model.calibrate(x[40:59], y[40:59])
    assert np.isfinite(model.predict_interval(x[:2], 0.95, method="conformal")).all()


def test_a_file_keeps_the_calibration_and_a_new_fit_forgets_it(tmp_path: Path) -> None:
    x, y = wild(80, np.random.default_rng(0))
    model = sn.SlabRegressor(hidden=(), epochs=5, random_state=0).fit(x[:40], y[:40]).calibrate(x[40:], y[40:])
    sn.save_estimator(model, tmp_path / "m.slab")
    back = sn.load_estimator(tmp_path / "m.slab")
    wanted = model.predict_interval(x, method="conformal")
    np.testing.assert_array_equal(back.predict_interval(x, method="conformal"), wanted)
    for other in (model.sparsify(), model.partial_fit(x[:40], y[:40])):
        with pytest.raises(ArgumentError, match="calibrate"):
            other.predict_interval(x, method="conformal")


def test_what_is_misread_is_refused() -> None:
    x, y = wild(40, np.random.default_rng(0))
    model = sn.SlabRegressor(hidden=(), epochs=5, random_state=0).fit(x, y)
    with pytest.raises(ArgumentError, match='"posterior" before `calibrate`'):
        model.predict_interval(x, method="conformal")
    with pytest.raises(ArgumentError, match="method"):
        model.predict_interval(x, method="magic")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="groups must be one for each"):
        model.calibrate(x, y, groups=[1, 2])
    with pytest.raises(ArgumentError, match="groups, times"):
        model.fit(x, y, groups=np.arange(40), times=np.arange(40))
    with pytest.raises(ArgumentError, match="SlabRegressor or SlabClassifier"):
        sn.cross_conformal("a model", x, y)


def test_groups_decide_every_split() -> None:
    groups = np.repeat(np.arange(30), 10)
    train, test = split_rows(np.zeros(300), False, 0.2, 0, groups=groups)
    assert not set(groups[train]) & set(groups[test])
    assert 50 <= len(test) <= 70
    aside, rest = _held_out(300, 1, Dependence(groups=groups))
    assert not set(groups[aside]) & set(groups[rest])
    folds = fold_numbers(300, 5, 0, groups)
    assert all(len(set(folds[groups == group])) == 1 for group in range(30))
    assert sorted(groups[one_of_each(groups, 300, 0)].tolist()) == list(range(30))
    times = np.random.default_rng(0).permutation(300).astype(float)
    train, test = split_rows(np.zeros(300), False, 0.2, 0, times=times)
    assert times[train].max() < times[test].min()
    assert len(test) == 60
    aside, rest = _held_out(300, 1, Dependence(times=times))
    assert times[rest].max() < times[aside].min()


def test_rows_of_a_group_are_counted_once() -> None:
    """Rows that are copies of each other say no more than one: a group's rows get one score."""
    rng = np.random.default_rng(4)
    x, y = wild(60, rng)
    model = sn.SlabRegressor(hidden=(), epochs=5, random_state=0).fit(x[:30], y[:30])
    model.calibrate(np.repeat(x[30:], 5, 0), np.repeat(y[30:], 5), groups=np.repeat(np.arange(30), 5))
    assert model.conformal_ is not None
    np.testing.assert_allclose(np.sort(model.conformal_.scores), np.sort(model._scores(x[30:], y[30:])))


def test_cumulative_shares_by_hand() -> None:
    shares = np.random.default_rng(5).dirichlet(np.ones(4), size=6)
    for row, found in zip(shares, cumulative_shares(shares), strict=True):
        np.testing.assert_allclose(found, [row[row >= p].sum() for p in row])


@pytest.mark.parametrize("option", ["--group", "--time"])
def test_a_column_decides_the_split_of_the_command_line(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    x, y = wild(90, np.random.default_rng(0))
    column = np.repeat(np.arange(18), 5) if option == "--group" else np.arange(90)[::-1]
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "k", "y"], *np.column_stack([x, column, y]).tolist()])
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["slabnet", *words])
        with pytest.raises(SystemExit) as left:
            run_cli()
        found = capsys.readouterr()
        return found.err if left.value.code else found.out

    short = ("--target", "y", "--epochs", "3", "--hidden", "4")
    numbers = json.loads(call("fit", "t.csv", *short, "--out", "m.slab", option, "k", "--json"))
    assert numbers["inputs"] == 2  # the column is no input
    assert numbers["test_rows"] == (20 if option == "--group" else 18)
    assert f"{numbers['test_rows']} that were held out" in _text(call, tmp_path)
    assert "columns" in call("fit", "t.csv", *short, "--out", "n.slab", option, "none")
    assert "one of the two" in call("fit", "t.csv", *short, "--out", "n.slab", "--group", "k", "--time", "a")


def _text(call: Callable[..., str], folder: Path) -> str:
    call("report", "m.slab", "--data", "t.csv", "--out", "r.html")
    return (folder / "r.html").read_text()

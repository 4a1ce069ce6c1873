"""Responses from the command line: counts with an exposure, times that were cut off, ordered levels."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.test_tables import slabnet

import slabnet as sn
from slabnet.estimators import load_estimator

RNG = np.random.default_rng(8)
N = 160
X = RNG.normal(size=N)
DAYS = RNG.uniform(1, 9, N)
VISITS = RNG.poisson(DAYS * np.exp(0.5 + 0.7 * X))
TIMES, ENDS = np.exp(3 - 0.8 * X) * RNG.weibull(2, N), RNG.uniform(1, 60, N)
GRADES = np.array(["low", "middle", "high"])[np.digitize(2 * X + RNG.logistic(size=N), [-1, 1])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("responses")
    with (where / "t.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "days", "visits", "time", "seen", "grade"])
        for i in range(N):
            time = min(TIMES[i], ENDS[i])
            row = [f"{X[i]:.4f}", f"{DAYS[i]:.3f}", VISITS[i], f"{time:.4f}", int(TIMES[i] <= ENDS[i]), GRADES[i]]
            writer.writerow(row)
    return where


def fitted(folder: Path, *words: str, out: str) -> dict[str, Any]:
    run = slabnet("fit", "t.csv", "--out", out, "--epochs", "60", "--hidden", "4", "--json", *words, cwd=folder)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def predicted(folder: Path, model: str) -> list[dict[str, str]]:
    run = slabnet("predict", model, "t.csv", "--out", f"{model}.csv", "--draws", "20", cwd=folder)
    assert run.returncode == 0, run.stderr
    with (folder / f"{model}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_counts_with_an_exposure(folder: Path) -> None:
    words = ["--target", "visits", "--response", "poisson", "--exposure", "days", "--drop", "time,seen,grade"]
    found = fitted(folder, *words, out="counts.slab")
    assert found["inputs"] == 1  # the exposure is no input
    assert (found["task"], found["response"]) == ("regression", "poisson")
    rows = predicted(folder, "counts.slab")
    names = ["row", "prediction", "std", "low", "high", "aleatoric", "epistemic", "extrapolates", "log_density"]
    assert list(rows[0]) == names
    assert all(float(row["low"]) >= 0 and float(row["low"]).is_integer() for row in rows)
    model = load_estimator(folder / "counts.slab")
    assert isinstance(model, sn.SlabRegressor)
    model.draws = 20
    table = np.array([[float(f"{v:.4f}")] for v in X])
    days = np.array([float(f"{v:.3f}") for v in DAYS])
    np.testing.assert_allclose([float(row["prediction"]) for row in rows], model.predict(table, exposure=days), 1e-4)
    density = model.log_densities(table, VISITS, exposure=days)
    np.testing.assert_allclose([float(row["log_density"]) for row in rows], density, rtol=1e-4, atol=1e-5)
    assert np.corrcoef([float(row["prediction"]) for row in rows], VISITS)[0, 1] > 0.7


def test_times_that_were_cut_off(folder: Path) -> None:
    words = ["--target", "time", "--response", "weibull", "--event", "seen", "--drop", "visits,days,grade"]
    found = fitted(folder, *words, out="times.slab")
    assert set(found["test"]) == {"log_density", "events"}
    rows = predicted(folder, "times.slab")
    assert all(0 < float(row["low"]) < float(row["prediction"]) < float(row["high"]) for row in rows)
    model = load_estimator(folder / "times.slab")
    assert isinstance(model, sn.SlabRegressor)
    assert model.predict([[1.0]])[0] < model.predict([[-1.0]])[0]


def test_ordered_levels_and_auto(folder: Path) -> None:
    words = [
        "--target",
        "grade",
        "--response",
        "ordinal",
        "--levels",
        "low,middle,high",
        "--drop",
        "visits,days,time,seen",
    ]
    found = fitted(folder, *words, out="grades.slab")
    assert found["task"] == "classification"
    rows = predicted(folder, "grades.slab")
    assert list(rows[0])[-4:] == ["P(low)", "P(middle)", "P(high)", "log_density"]
    chosen = {"low": "P(low)", "middle": "P(middle)", "high": "P(high)"}
    for row, grade in zip(rows[:20], GRADES, strict=False):
        assert float(row["log_density"]) == pytest.approx(np.log(float(row[chosen[grade]])), abs=1e-3)
    words = ["--target", "visits", "--response", "auto", "--drop", "time,seen,grade"]
    found = fitted(folder, *words, out="auto.slab")
    assert found["response"] == "negative-binomial"
    assert any("Response: negative-binomial (whole numbers from 0" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--target", "visits", "--exposure", "days"], "--exposure must be used with --response poisson or negative-b"),
        (
            ["--target", "visits", "--response", "poisson", "--exposure", "hours"],
            "--exposure must be one of the columns",
        ),
        (["--target", "visits", "--response", "count"], "--response must be one of auto, gaussian"),
        (["--target", "visits", "--response", "poisson", "--task", "classification"], "--task must be regression"),
        (["--target", "grade", "--levels", "low,high"], "--levels must be used with --response ordinal"),
        (["--target", "grade", "--response", "ordinal", "--levels", "low,high"], "none called 'middle'"),
        (["--target", "x", "--response", "poisson"], "y must be counts, whole numbers from 0"),
        (["--target", "x", "--response", "lognormal"], "y must be numbers above 0"),
        (["--target", "time", "--response", "weibull", "--event", "visits"], "event must be 1"),
    ],
)
def test_bad_words(folder: Path, words: list[str], said: str) -> None:
    run = slabnet("fit", "t.csv", "--out", "bad.slab", "--epochs", "2", *words, cwd=folder)
    assert run.returncode == 2
    assert said in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
    assert not (folder / "bad.slab").exists()


def test_a_page_judges_counts_by_their_exposure_and_leaves_out_cut_off_times(folder: Path) -> None:
    words = ["--target", "visits", "--response", "poisson", "--exposure", "days", "--drop", "time,seen,grade"]
    found = fitted(folder, *words, "--report", "counts.html", out="page.slab")
    text = (folder / "counts.html").read_text("utf-8")
    assert f"{found['test']['rmse']:.3g}" in text
    assert "is not run in the page" not in text
    assert '"exposure": true' in text or '"exposure":true' in text
    words = ["--target", "time", "--response", "weibull", "--event", "seen", "--drop", "visits,days,grade"]
    fitted(folder, *words, "--report", "times.html", out="cut.slab")
    text = (folder / "times.html").read_text("utf-8")
    assert "A page does not judge times of which some were cut off" in text
    assert "is not run in the page" not in text
    run = slabnet("export", "page.slab", "--to", "numpy", "--out", "page.py", "--json", cwd=folder)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["response"] == "poisson"


def test_a_target_that_looks_like_counts_is_said_aloud(folder: Path) -> None:
    found = fitted(folder, "--target", "visits", "--task", "regression", "--drop", "time,seen,grade", out="plain.slab")
    assert any(
        "visits looks like counts: --response negative-binomial may predict it better" in n for n in found["notes"]
    )
    found = fitted(folder, "--target", "x", "--drop", "time,seen,grade", out="x.slab")
    assert not any("looks like" in note and "--response" in note for note in found["notes"])

"""A data set and a metric from outside the package, in everything the package does with its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import slabnet as sn
from slabnet.cli.app import app
from slabnet.config.settings import DATA_SETS
from slabnet.data import catalog
from slabnet.experiments.engines import Here
from slabnet.experiments.grid import run_grid
from slabnet.experiments.profiles import Profile
from slabnet.experiments.tables import ood
from slabnet.model.likelihoods import LIKELIHOODS
from slabnet.prediction.evaluation import METRICS

WORDS = "probability of the true class"


def three_blobs() -> sn.data.Split:
    generator = torch.Generator().manual_seed(5)
    y = torch.arange(400) % 3
    x = torch.randn(400, 4, generator=generator)
    x[:, 0] += 4.0 * (y == 1)
    x[:, 1] += 4.0 * (y == 2)
    return sn.data.Split("blobs", (x[:300], y[:300]), (x[300:], y[300:]), 3)


def of_the_truth(prediction: sn.Prediction, y: Tensor) -> float:
    return float(prediction.mean.gather(1, y.reshape(-1, 1)).double().mean())


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with mock.patch.dict(METRICS), mock.patch.dict(catalog._REGISTERED):
        sn.data.register("blobs", three_blobs)
        sn.register_metric("of_the_truth", of_the_truth, answer="classes", words=WORDS)
        yield
        DATA_SETS.remove("blobs")


def slabnet(*words: str) -> str:
    run = CliRunner().invoke(app, words, catch_exceptions=False)
    assert run.exit_code == 0, run.output
    return run.stdout


def test_fit_predict_export_and_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    slabnet("fit", "blobs", "--out", "m.slab", "--hidden", "8", "--epochs", "150")
    answers = json.loads(slabnet("predict", "m.slab", "blobs", "--json", "--draws", "20"))
    assert answers["data"] == "blobs"
    assert answers["rows"] == 100
    assert answers["accuracy"] > 0.9
    split = three_blobs()
    net = sn.load("m.slab")
    prediction = sn.predict(net, split.test[0], 20)
    assert answers["of_the_truth"] == pytest.approx(of_the_truth(prediction, split.test[1]))
    assert sn.evaluate(prediction, split.test[1])["of_the_truth"] == answers["of_the_truth"]
    slabnet("export", "m.slab", "--to", "numpy", "--out", "m.py")
    assert Path("m.py").stat().st_size > 0
    slabnet("report", "m.slab", "--out", "r.html")
    page = Path("r.html").read_text("utf-8")
    assert "rows of blobs" in page
    assert f"Further metrics on these rows: {WORDS} 0." in page
    assert {"name": "blobs", "where": "registered", "damaged": False, "source": None} in sn.data.available()


def test_where_it_is_not_registered_it_is_refused_by_name(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "slabnet", "fit", "blobs", "--out", str(tmp_path / "m.slab")]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "one of digits, mnist, fashion-mnist, got 'blobs'" in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


def test_a_metric_is_a_column_of_the_tables(tmp_path: Path) -> None:
    plan = Profile.named("recommended").plan("blobs", "lbbnn", 0, hidden=(6,), epochs=2, post_epochs=1)
    grid = run_grid([plan], tmp_path, engine=Here("off"))
    assert not grid.failed
    table = ood(list(grid.records))
    assert table.header[-1] == "of the truth"
    for version, line in zip(("as fitted", "post-trained"), table.lines, strict=False):
        value = grid.records[0]["trust"][version]["of_the_truth"]
        assert 0 < value < 1
        assert line[-1] == f"{value:.4f}"


def test_what_is_no_metric_or_data_set_is_refused() -> None:
    with pytest.raises(sn.ArgumentError, match="register_metric: name must be a name of its own"):
        sn.register_metric("rmse", of_the_truth, answer="numbers")
    with pytest.raises(sn.ArgumentError, match="register_metric: measure must be a function"):
        sn.register_metric("other", 1.0, answer="numbers")  # type: ignore[arg-type]
    with pytest.raises(sn.ArgumentError, match="answer must be one of classes, yes or no, numbers, got 'shapes'"):
        sn.register_metric("other", of_the_truth, answer="shapes")
    with pytest.raises(sn.ArgumentError, match=r"data\.register: name must be a word of its own, not digits, mnist"):
        sn.data.register("digits", three_blobs)
    with pytest.raises(sn.ArgumentError, match=r"data\.register: make must be a function that gives a Split"):
        sn.data.register("other", three_blobs())  # type: ignore[arg-type]
    sn.data.register("blobs", lambda: "blobs")  # type: ignore[arg-type, return-value]
    with pytest.raises(sn.ArgumentError, match="make must be a function that gives a Split, for blobs, got str"):
        sn.data.load("blobs")


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_every_likelihood_names_metrics_that_its_predictions_have(name: str) -> None:
    cls = LIKELIHOODS[name]
    assert set(cls.metrics) <= set(METRICS)
    outputs = cls.outputs_for(3 if name == "categorical" else 1)
    net = sn.mlp((2, 3, outputs), likelihood=sn.Ordinal(levels=3) if name == "ordinal" else name)
    prediction = sn.predict(net, torch.randn(30, 2, generator=torch.Generator().manual_seed(0)), 5, **options(name))
    y = torch.arange(30) % 2 + (1 if cls.answer.value == "numbers" else 0)
    values = sn.evaluate(prediction, y)
    assert set(cls.metrics) - set(values) <= {"accuracy_with_doubt"}  # no row is decided by a network without a fit
    assert all(np.isfinite(value) for value in values.values())


def options(name: str) -> dict[str, object]:
    return {"keep_draws": True} | ({"intervals": 0.95} if LIKELIHOODS[name].answer.value == "numbers" else {})

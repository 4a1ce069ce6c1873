"""A page about an estimator gives the estimator's own figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss, r2_score

import slabnet as sn
from slabnet.report.fitted import subject_of
from slabnet.report.measure import Measured


def test_a_page_about_an_estimator(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(50, 10, 90), "colour": rng.choice(["red", "blue", "green"], 90)})
    y = 1000 + 3 * frame["size"] + 20 * (frame["colour"] == "red") + rng.normal(0, 3, 90)
    model = sn.SlabRegressor(hidden=(4,), epochs=40, random_state=0).fit(frame[:60], y[:60])
    sn.write_report(tmp_path / "r.html", model, (frame[60:], y[60:]), target="price")
    scores = Measured(subject_of(model, (frame[60:], y[60:]), "t", "price")).scores
    assert scores is not None
    assert scores["r2"] == pytest.approx(r2_score(y[60:], model.predict(frame[60:])))
    low, high = model.predict_interval(frame[60:])
    assert scores["coverage"] == pytest.approx(((low <= y[60:]) & (y[60:] <= high)).mean())
    page = (tmp_path / "r.html").read_text()
    assert "R2 " in page
    assert "colour=red" in page
    with pytest.raises(sn.ArgumentError, match="write_report: y must be as long as X, 30 rows, got 5 rows"):
        sn.write_report(tmp_path / "s.html", model, (frame[60:], y[:5]))


def test_classes_are_called_by_their_labels(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(90, 2))
    y = np.where(x[:, 0] > 0.3, "dear", "cheap")
    model = sn.SlabClassifier(hidden=(4,), epochs=40, random_state=0).fit(x[:60], y[:60])
    sn.write_report(tmp_path / "r.html", model, (x[60:], y[60:]))
    scores = Measured(subject_of(model, (x[60:], y[60:]), "t", None)).scores
    assert scores is not None
    assert scores["log_loss"] == pytest.approx(log_loss(y[60:], model.predict_proba(x[60:])))
    assert "dear" in (tmp_path / "r.html").read_text()

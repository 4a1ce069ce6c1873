"""Differences of expected log predictive density, against numbers by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import slabnet as sn
from slabnet.core.errors import ArgumentError


def test_estimators_are_compared_in_the_units_of_the_response() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y = 50 + 3 * x[:, 0] + rng.normal(size=200)
    new = rng.normal(size=(100, 2))
    seen = 50 + 3 * new[:, 0] + rng.normal(size=100)
    good = sn.SlabRegressor(hidden=(), epochs=250, random_state=0).fit(x, y)
    with pytest.warns(UserWarning, match=r"columns nearly alike .*: 0 and 1 \(r = 1.000\)"):
        blind = sn.SlabRegressor(hidden=(), epochs=60, random_state=0).fit(x[:, 1:].repeat(2, 1), y)
    found = sn.compare({"blind": blind, "good": good}, new, seen)
    assert [model.name for model in found.models] == ["good", "blind"]
    best, worst = found.models
    by_row = blind.log_densities(new, seen) - good.log_densities(new, seen)
    assert best.difference == 0
    assert worst.difference == pytest.approx(by_row.sum())
    assert worst.difference_error == pytest.approx(by_row.std(ddof=1) * 10)
    known = stats.norm(50 + 3 * new[:, 0], 1).logpdf(seen).sum()  # what the truth would say of the same rows
    assert best.elpd == pytest.approx(known, rel=0.1)
    assert "good" in str(found)
    assert good.log_density(new, seen) == pytest.approx(best.elpd / 100)


def test_classifiers_and_networks() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(120, 2))
    y = np.where(x[:, 0] > 0, "up", "down")
    model = sn.SlabClassifier(hidden=(), epochs=250, random_state=0).fit(x, y)
    found = sn.compare({"model": model}, x, y)
    wanted = np.log(np.where(y == "up", *model.predict_proba(x).T[::-1])).sum()
    assert found.models[0].elpd == pytest.approx(wanted)
    labels = torch.as_tensor(y == "up").long()
    nets = {name: sn.mlp((2, 2), method=name) for name in ("lbbnn", "gaussian")}
    assert sn.compare(nets, torch.as_tensor(x).float(), labels).rows == 120


def test_what_cannot_be_compared_is_refused() -> None:
    for models, said in (({}, "at least one"), ({"a": 3}, r"models\[a\]"), ({"a": sn.mlp((2, 2))}, "two rows")):
        with pytest.raises(ArgumentError, match=said):
            sn.compare(models, torch.zeros(1, 2), [0])

"""Estimators with input-skip networks: fitted, written, chosen from, exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slabnet as sn


def table() -> tuple[Any, Any]:
    source = np.random.default_rng(0)
    x = source.normal(size=(150, 4))
    return x, 2 * x[:, 0] - x[:, 1] + 0.3 * source.normal(size=150)


def test_a_fit_travels_in_a_file_and_predicts_the_same(tmp_path: Path) -> None:
    x, y = table()
    model = sn.SlabRegressor(hidden=(8, 8), skip=True, epochs=60, random_state=0).fit(x, y)
    assert model.network_.spec["skip"] is True
    sn.save_estimator(model, tmp_path / "m.slab")
    back = sn.load_estimator(tmp_path / "m.slab")
    assert back.skip is True
    np.testing.assert_allclose(back.predict(x), model.predict(x), rtol=1e-9)
    small = model.sparsify()
    assert small.n_weights_ == small.compact_.weights
    assert np.corrcoef(small.predict(x), y)[0, 1] > 0.95


def test_inputs_that_are_read_again_have_the_psi_of_inputs() -> None:
    x, y = table()
    model = sn.SlabClassifier(hidden=(8, 8), skip=True, gates=False, epochs=2, random_state=0).fit(x, y > 0)
    first, second, last = (
        layer.prior.psi_now(layer.blocks()) for layer in model.network_.body if hasattr(layer, "prior")
    )
    assert float(first) == pytest.approx(0.25)
    for psi in (second, last):
        assert psi[0, :8].tolist() == pytest.approx([0.5] * 8)
        assert psi[0, 8:].tolist() == pytest.approx([0.25] * 4)


def test_skip_is_true_or_false() -> None:
    x, y = table()
    with pytest.raises(sn.ArgumentError, match="skip must be True or False, or None for the rule, got yes"):
        sn.SlabRegressor(skip="yes").fit(x, y)  # type: ignore[arg-type]


def test_the_rule_has_skips_and_gates_and_both_can_be_turned_off(tmp_path: Path) -> None:
    x, y = table()
    short: dict[str, Any] = {"hidden": (5,), "epochs": 2, "random_state": 0}
    model = sn.SlabRegressor(**short).fit(x, y)
    assert model.network_.skip
    assert model.network_.gates == ("inputs",)
    off = sn.SlabRegressor(**short, skip=False, gates=False, members=1).fit(x, y)
    assert not off.network_.skip
    assert not off.network_.gates
    for each in (model, off):
        sn.save_estimator(each, tmp_path / "m.slab")
        back = sn.load_estimator(tmp_path / "m.slab")
        assert (back.skip, back.gates, back.members) == (each.skip, each.gates, each.members)


def test_the_rule_has_no_gates_above_a_prior_of_the_users_own() -> None:
    x, y = table()
    for given in ({"psi": 0.2}, {"prior": sn.Prior()}, {"method": "gaussian"}, {"hidden": ()}):
        options: dict[str, Any] = {"hidden": (5,), "epochs": 2, "random_state": 0} | given
        assert not sn.SlabRegressor(**options).fit(x, y).network_.gates

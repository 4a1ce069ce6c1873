"""Several members behind an estimator and the command line."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import slabnet as sn
from slabnet.cli.app import run as run_cli
from slabnet.core.errors import ArgumentError

HALF = sn.TrainConfig(kl_weight=0.5)


def rows(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3))
    return x, 2 * x[:, 0] + 0.3 * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted() -> sn.SlabRegressor:
    return sn.SlabRegressor(hidden=(6,), members=3, config=HALF, epochs=40, random_state=0).fit(*rows())


def test_a_mixture_is_fitted_with_the_noise_and_weight_of_one_trial(fitted: sn.SlabRegressor) -> None:
    assert isinstance(fitted.network_, sn.Mixture)
    assert len(fitted.history_.members) == 3
    assert fitted.trial_ is not None
    assert {history.kl_weight for history in fitted.history_.members} == {fitted.trial_.kl_weight}
    assert fitted.noise_std_ == pytest.approx(np.sqrt(fitted.trial_.phi[0]) * fitted.scaling_y_.scale[0], rel=0.05)


def test_counts_and_inputs_are_of_all_members(fitted: sn.SlabRegressor) -> None:
    assert isinstance(fitted.network_, sn.Mixture)
    each = [sn.median_model(member, infeasible="allow").weights for member in fitted.network_.members]
    assert fitted.n_weights_ == sum(each)
    by_member = sn.member_reach(fitted.network_, seed=fitted._seed).numpy()
    np.testing.assert_allclose(fitted.feature_reach_spread_, by_member.std(0), atol=1e-7)
    assert fitted.feature_reach_[0] > 0.9
    alone = sn.SlabRegressor(hidden=(), epochs=2, random_state=0).fit(*rows())
    assert not alone.feature_reach_spread_.any()


def test_a_file_gives_the_same_answers_also_of_the_chosen_model(fitted: sn.SlabRegressor, tmp_path: Path) -> None:
    x, _ = rows()
    for model, name in ((fitted, "whole"), (fitted.sparsify(), "chosen")):
        sn.save_estimator(model, tmp_path / f"{name}.slab")
        back = sn.load_estimator(tmp_path / f"{name}.slab")
        assert back.members == 3
        np.testing.assert_array_equal(back.predict(x), model.predict(x))
        assert back.n_weights_ == model.n_weights_


def test_more_rows_are_seen_by_every_member(fitted: sn.SlabRegressor, tmp_path: Path) -> None:
    sn.save_estimator(fitted, tmp_path / "m.slab")
    model = sn.load_estimator(tmp_path / "m.slab")
    model.partial_fit(*rows(40))
    assert len(model.history_.members) == 3
    for old, new in zip(fitted.network_.members, model.network_.members, strict=True):  # type: ignore[attr-defined]
        before, after = (next(p for p in each.parameters() if p.ndim == 2) for each in (old, new))
        assert not np.array_equal(before.detach(), after.detach())


@pytest.mark.parametrize("members", [0, 1.5, "three", 101])
def test_a_strange_number_of_members_is_refused(members: object) -> None:
    with pytest.raises(ArgumentError, match="members"):
        sn.SlabRegressor(members=members, epochs=1).fit(*rows())


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    x, y = rows()
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "c", "y"], *np.column_stack([x, y > 0]).tolist()])
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["slabnet", *words])
        with pytest.raises(SystemExit) as left:
            run_cli()
        assert not left.value.code
        return capsys.readouterr().out

    said = call("fit", "t.csv", "--target", "y", "--out", "m.slab", "--members", "2", "--epochs", "20", "--hidden", "5")
    assert "2 members of lbbnn" in said
    assert "100 drawn networks" in call("predict", "m.slab", "t.csv", "--out", "p.csv")
    shown = json.loads(call("inspect", "m.slab", "--json"))
    assert len(shown["layers"]) == 4
    assert all(layer["density_used"] > 0 for layer in shown["layers"])
    call("report", "m.slab", "--data", "t.csv", "--out", "r.html")
    assert "2 members of a mixture are not run in the page" in (tmp_path / "r.html").read_text()
    call("export", "m.slab", "--to", "numpy", "--out", "m.py", "--draws", "10")
    whole = json.loads(call("fit", "t.csv", "--target", "y", "--out", "m.slab", "--members", "2", "--epochs", "20",
                            "--hidden", "5", "--resume", "--json"))  # fmt: skip
    assert whole == {"finished": True, "model": "m.slab"}

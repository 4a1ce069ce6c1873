"""The sweep over temperatures at a tiny scale: resumed without a gap, tabled and drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from benchmarks import resumable, temperature

import slabnet as sn
from slabnet.experiments.building import network_of


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (temperature, resumable):
        monkeypatch.setattr(module, "RECORDS", tmp_path)
    monkeypatch.setattr("benchmarks.record.RECORDS", tmp_path)


def test_a_sweep_keeps_the_alpha_of_each_layer_and_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stop(Exception):
        pass

    def stops(net: sn.Network) -> list[float]:
        if len(calls) == 1:
            raise Stop
        calls.append(usual(net))
        return calls[-1]

    calls: list[list[float]] = []
    usual = temperature.means_of
    monkeypatch.setattr(temperature, "means_of", stops)
    with pytest.raises(Stop):
        temperature.run("digits", {"delta": 0.01, "epochs": 2})
    monkeypatch.setattr(temperature, "means_of", usual)
    result = temperature.run("digits", {"delta": 0.01, "epochs": 2})
    assert [len(epoch) for epoch in result["alpha"]] == [3, 3]
    assert result["alpha"][0] == calls[0]
    plan = temperature.plan_of("digits", 0.01, 2)
    assert plan.train.delta == 0.01
    split = sn.data.load("digits")
    whole = network_of(plan, split)
    sn.fit(whole, split.train, plan.train, progress="off")
    with torch.no_grad():
        assert result["alpha"][1] == usual(whole)


def test_the_page_says_what_the_sweep_gave() -> None:
    assert "has not been run" in temperature.sentence("mnist")
    result = {"delta": 0.005, "epochs": 2, "alpha": [[0.5, 0.5, 0.5], [0.052, 0.06, 0.1]]}
    made = result | {"accuracy": {"averaged": 0.96, "median": 0.95}, "weights": 7}
    resumable.write_record("temperature-mnist", "python -m benchmarks.temperature", 0, [made])
    said = temperature.sentence("mnist")
    assert "| 0.005 | 2 | 0.052/0.060/0.100 | 0.052/0.060/0.222 | 2 of 3 | 0.960 | 0.950 |" in said
    assert temperature.picture("mnist").startswith(b"<?xml")

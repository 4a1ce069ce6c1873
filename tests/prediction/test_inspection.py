from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import slabnet as sn
from slabnet.config.fit_card import FitCard
from slabnet.prediction.inspection import as_text, histogram, inspect_network


def network() -> sn.Network:
    net = sn.mlp((6, 5, 3))
    with torch.no_grad():
        net.body[1].weight.omega.uniform_(-4, 4, generator=torch.Generator().manual_seed(0))
        net.body[3].weight.omega[1] = -9.0
    return net


def test_numbers_are_those_of_the_selection_and_of_the_draws() -> None:
    net = network()
    names = ["age", "b", "c", "dose\n", "e", "f"]
    card = FitCard(history={"alpha_moving": 0.01, "alpha_at_prior": 0.5}, input_names=names)
    found = inspect_network(net, card)
    chosen = sn.median_model(net)
    assert found["total"]["median_weights"] == chosen.weights
    assert found["total"]["density_active"] == chosen.total.active
    assert found["unreachable_outputs"] == [1]
    assert found["total"]["density_used"] == sn.predict(net, torch.zeros(1, 6), 10).density_used
    assert sum(found["layers"][0]["alpha_histogram"]) == 30
    text = as_text(found)
    assert "Outputs that no input reaches: 1." in text
    assert "1.0% of the inclusion probabilities were still moving" in text
    assert "body.1" in text
    assert ", dose, e, f)" in text


def test_histogram() -> None:
    assert histogram([0, 0, 10]) == "|  █|"
    assert histogram([0] * 3) == "|   |"


def test_infeasible_and_unknown_paths_are_said() -> None:
    net = network()
    with torch.no_grad():
        net.body[3].weight.omega.fill_(-9.0)
    assert "The median model is infeasible: every path from an input ends in body.3." in as_text(inspect_network(net))
    free = sn.convert(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 2)))
    assert "Paths are not known" in as_text(inspect_network(free))


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_from_the_command_line(words: list[str], tmp_path: Path) -> None:
    sn.save(network(), tmp_path / "m.slab")
    run = subprocess.run(
        [sys.executable, "-m", "slabnet", "inspect", str(tmp_path / "m.slab"), *words],
        capture_output=True,
        text=True,
        check=True,
    )
    if words:
        assert json.loads(run.stdout)["method"] == "lbbnn"
    else:
        assert "Inputs in use" in run.stdout


def test_plain_weights_have_nothing_to_inspect(tmp_path: Path) -> None:
    sn.save(sn.mlp((3, 2), method="mc-dropout"), tmp_path / "m.slab")
    words = [sys.executable, "-m", "slabnet", "inspect", str(tmp_path / "m.slab")]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "a method whose weights have a posterior, got mc-dropout" in run.stderr

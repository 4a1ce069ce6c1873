"""Files of every released format load for ever, and give what they gave."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import slabnet as sn
from slabnet.store import FORMAT

FOLDERS = sorted((Path(__file__).parents[1] / "fixtures").glob("format-*"))


def test_the_present_format_has_a_fixture() -> None:
    assert [folder.name for folder in FOLDERS] == [f"format-{number}" for number in range(1, FORMAT + 1)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_old_files_give_what_they_gave(folder: Path, tmp_path: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    x = torch.linspace(-1, 1, 24).reshape(8, 3)
    shapes = {"model": x, "convnet": torch.linspace(-1, 1, 32).reshape(2, 1, 4, 4), "regression": x}
    with torch.no_grad():
        for name, rows in shapes.items():
            net = sn.load(folder / f"{name}.slab")
            torch.testing.assert_close(net(rows), torch.tensor(expected[name]))
    net = sn.load(folder / "model.slab")
    assert sn.read_header(folder / "model.slab")["about"] == {"note": "a fixture"}
    for file in ("model.slab", "selection.slab"):
        assert sn.load_selection(folder / file, net).weights == expected["weights"]
    shutil.copytree(folder / "run", tmp_path / "run")
    resumed = sn.mlp((3, 4, 2), seed=9)
    config = sn.TrainConfig(epochs=2, batch_size=4, seed=1)
    history = sn.fit(resumed, (x, torch.arange(8) % 2), config, checkpoint=tmp_path / "run", resume=True)
    assert len(history) == 2
    with torch.no_grad():
        torch.testing.assert_close(resumed(x), torch.tensor(expected["resumed"]))


def test_an_input_skip_network_gives_what_it_gave() -> None:
    folder = FOLDERS[0]  # older releases refuse it by name, so the format has not changed
    expected = json.loads((folder / "skip.json").read_text())
    x = torch.linspace(-1, 1, 24).reshape(8, 3)
    net = sn.load(folder / "skip.slab")
    with torch.no_grad():
        torch.testing.assert_close(net(x), torch.tensor(expected["model"]))
    chosen = sn.load_selection(folder / "skip.slab", net)
    assert chosen.weights == expected["weights"]
    with torch.no_grad():
        torch.testing.assert_close(sn.load(folder / "skip-small.slab")(x), torch.tensor(expected["small"]))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_inspect_works_on_old_files(folder: Path) -> None:
    command = [sys.executable, "-m", "slabnet", "inspect", str(folder / "model.slab"), "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout)["total"]["weights"] == 20

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
from slabnet.config.settings_0_1 import TRAIN_0_1, open_settings_of
from slabnet.core.containers import read_container, write_container
from slabnet.model.elbo import kl
from slabnet.store import FORMAT
from slabnet.training.checkpoints import Checkpoints, Keeper

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


def test_a_mixture_gives_what_it_gave() -> None:
    folder = FOLDERS[0]  # older releases refuse it by name, so the format has not changed
    expected = json.loads((folder / "mixture.json").read_text())
    net = sn.load(folder / "mixture.slab")
    assert isinstance(net, sn.Mixture)
    assert net.weights.tolist() == [0.75, 0.25]
    x = torch.linspace(-1, 1, 24).reshape(8, 3)
    torch.testing.assert_close(sn.predict(net, x, 4, draw=sn.mean).mean, torch.tensor(expected["mean"]))
    assert sn.load_selection(folder / "mixture.slab", net).weights == expected["weights"]


def test_gates_kinds_of_units_and_structured_priors_give_what_they_gave() -> None:
    folder = FOLDERS[0]  # older releases refuse them by name, so the format has not changed
    expected = json.loads((folder / "structured.json").read_text())
    x = torch.linspace(-1, 1, 24).reshape(8, 3)
    net, small = (sn.load(folder / f"{name}.slab") for name in ("structured", "structured-small"))
    with torch.no_grad():
        torch.testing.assert_close(net(x), torch.tensor(expected["model"]))
        torch.testing.assert_close(small(x), torch.tensor(expected["small"]))
        torch.testing.assert_close(float(kl(net)), expected["kl"], rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(float(kl(small)), expected["small_kl"], rtol=1e-5, atol=1e-4)
    assert sn.load_selection(folder / "structured.slab", net).weights == expected["weights"]


def test_every_setting_has_its_value_of_0_1() -> None:
    assert set(TRAIN_0_1) == set(sn.TrainConfig.model_fields)
    sn.TrainConfig(**TRAIN_0_1)


@pytest.mark.parametrize("name", TRAIN_0_1)
def test_a_checkpoint_without_a_setting_has_it_at_its_value_of_0_1(name: str, tmp_path: Path) -> None:
    """The checkpoint of the fixture, with one setting taken out of it, whatever the default is now."""
    path = tmp_path / "checkpoint-0000000002.slab"
    header, tensors = read_container(FOLDERS[0] / "run" / path.name, "test", FORMAT)
    config = {**TRAIN_0_1, **header["run"]["config"], name: TRAIN_0_1[name]}
    now = header["run"] | {"config": config | {"device": "cpu"}}
    header["run"]["config"].pop(name, None)
    write_container(path, header, tensors)
    assert Keeper(Checkpoints(tmp_path), now).latest() is not None
    assert open_settings_of(sn.TrainConfig(), header["run"]["config"]).model_dump()[name] == TRAIN_0_1[name]
    if name == "device":  # where it is not written, the machine's
        return
    other = now["config"] | {name: "another"}
    with pytest.raises(sn.ArgumentError, match=rf"config\.{name} must be the same"):
        Keeper(Checkpoints(tmp_path), now | {"config": other}).latest()


@pytest.mark.parametrize(("name", "value"), [("shared_draws", True), ("cut_every", 7), ("schedule", "linear")])
def test_a_new_default_stops_nobody_from_going_on(
    name: str, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint of 0.1 has no `shared_draws`, and has the others at their value of 0.1."""
    folder = FOLDERS[0]
    for copy in ("run", "same"):
        shutil.copytree(folder / "run", tmp_path / copy)
        (tmp_path / copy / "checkpoint-0000000004-end.slab").unlink()
    x, y = torch.linspace(-1, 1, 24).reshape(8, 3), torch.arange(8) % 2
    given = {"epochs": 2, "batch_size": 4, "seed": 1}
    with monkeypatch.context() as patch:
        patch.setattr(sn.TrainConfig.model_fields[name], "default", value)
        sn.TrainConfig.model_rebuild(force=True)
        assert sn.TrainConfig().model_dump()[name] == value
        net = sn.mlp((3, 4, 2), seed=9)
        history = sn.fit(net, (x, y), sn.TrainConfig(**given), checkpoint=tmp_path / "run", resume=True)
        with pytest.raises(sn.ArgumentError, match=rf"config\.{name} must be the same"):
            other = sn.TrainConfig(**given, **{name: value})
            sn.fit(net, (x, y), other, checkpoint=tmp_path / "run", resume=True)
    sn.TrainConfig.model_rebuild(force=True)
    assert len(history) == 2
    assert history.config[name] == TRAIN_0_1[name]
    same = sn.mlp((3, 4, 2), seed=9)
    sn.fit(same, (x, y), sn.TrainConfig(**given, schedule="constant"), checkpoint=tmp_path / "same", resume=True)
    assert torch.equal(net(x), same(x))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_inspect_works_on_old_files(folder: Path) -> None:
    command = [sys.executable, "-m", "slabnet", "inspect", str(folder / "model.slab"), "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout)["total"]["weights"] == 20

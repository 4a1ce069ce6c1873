"""Runs of networks with convolutions: built, recorded, counted, exported."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import slabnet as sn
from slabnet.config.settings import DATA_SETS
from slabnet.core.errors import ArgumentError
from slabnet.data import catalog
from slabnet.experiments.building import in_shape, network_of
from slabnet.experiments.engines import Here
from slabnet.experiments.files import is_done
from slabnet.experiments.grid import run_grid
from slabnet.experiments.profiles import Maps, Plan, Profile
from slabnet.experiments.tables import densities
from slabnet.model.layers import SlabLayer
from slabnet.selection.rules import describe

SHORT: dict[str, Any] = {"hidden": (12,), "epochs": 6, "post_epochs": 1}


def tiny() -> sn.data.Split:
    """Digits blown up to 28 x 28, a few of each half."""
    split = catalog.load("digits")

    def larger(rows: tuple[torch.Tensor, torch.Tensor], count: int) -> tuple[torch.Tensor, torch.Tensor]:
        images = torch.nn.functional.interpolate(rows[0][:count].reshape(-1, 1, 8, 8), size=(28, 28))
        return images.flatten(1), rows[1][:count]

    return replace(
        split, name="tiny", train=larger(split.train, 300), test=larger(split.test, 100), image_shape=(28, 28)
    )


@pytest.fixture
def _tiny() -> Iterator[None]:
    sn.data.register("tiny", tiny)
    yield
    DATA_SETS.remove("tiny")
    catalog._REGISTERED.pop("tiny")


def plan(**changes: Any) -> Plan:
    made = Profile.named("lenet").plan("tiny", "lbbnn", 0, **SHORT)
    maps = Maps(channels=(3, 4))
    train = made.train.model_copy(update={"ramp_epochs": 2, "pretrain_epochs": 1})
    return made.model_copy(update={"maps": maps, "train": train} | changes)


@pytest.mark.usefixtures("_tiny")
def test_a_run_with_convolutions_counts_kernels_apart(tmp_path: Path) -> None:
    grid = run_grid([plan()], tmp_path, engine=Here("off"))
    assert not grid.failed
    record = grid.records[0]
    assert is_done(plan(), tmp_path)
    kernels = [part for part in record["layers"] if len(part["shape"]) == 4]
    assert [part["shape"] for part in record["layers"]] == [[3, 1, 5, 5], [4, 3, 5, 5], [12, 64], [10, 12]]
    counts = record["counts"]
    assert counts["kernels"] == sum(part["active_weights"] for part in kernels) > 0
    chosen = next(row for row in record["rows"] if (row["gamma"], row["post_trained"]) == ("MED", True))
    assert counts["kernels"] + counts["linear"] == chosen["weights"]
    table = densities([record])
    cells = dict(zip(table.header, table.lines[0], strict=True))
    assert cells["kernels"] == str(counts["kernels"])
    assert cells["intercepts"] == str(counts["intercepts"])
    made = sn.load(tmp_path / f"{plan().key}.slab")
    assert isinstance(made, sn.Network)
    assert made.spec["padding"] == "valid"


def test_selection_counts_by_hand() -> None:
    net = sn.convnet((1, 6, 6), 2, channels=(2,), kernel_size=3, hidden=())
    chosen = sn.median_model(net)
    assert chosen.counts == (18, 36, 4)
    masks = {name: tuple(part.clone() for part in mask) for name, mask in chosen.masks.items()}
    first, last = masks
    masks[last][0][:, 9:] = False  # nobody reads the second channel
    masks[first][0][0, 0, 0, 0] = False
    assert describe(net, masks, "by hand").counts == (8, 18, 3)  # the other kernel leads nowhere


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_a_sparse_convolution_is_exported_as_it_predicts(padding: str, tmp_path: Path) -> None:
    net = sn.convnet((1, 14, 14), 3, channels=(3, 4), kernel_size=3, padding=padding, hidden=(6,))
    with torch.no_grad():
        for layer in net.body:
            if isinstance(layer, SlabLayer):
                keep = torch.rand(layer.weight.mu.shape, generator=torch.Generator().manual_seed(1)) < 0.4
                assert layer.weight.omega is not None
                layer.weight.omega.copy_(torch.where(keep, 5.0, -5.0))
    x = torch.rand(7, 1, 14, 14, generator=torch.Generator().manual_seed(2))
    chosen = sn.median_model(net)
    usual = sn.predict(net, x, draw=sn.fixed(chosen.masks)).mean
    small = sn.compact(net, chosen)
    torch.testing.assert_close(sn.predict(small, x).mean, usual, rtol=1e-5, atol=1e-6)
    sn.save(small, tmp_path / "small.slab")
    torch.testing.assert_close(sn.predict(sn.load(tmp_path / "small.slab"), x).mean, usual, rtol=1e-5, atol=1e-6)
    assert sn.export(tmp_path / "small.slab", "numpy", tmp_path / "model.py")["weights"] == chosen.weights
    spec = importlib.util.spec_from_file_location("model", tmp_path / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    np.testing.assert_allclose(module.predict(x.numpy())["probabilities"], usual.numpy(), rtol=1e-4, atol=1e-5)
    onnx, graph = pytest.importorskip("onnxruntime"), tmp_path / "model.onnx"
    sn.export(tmp_path / "small.slab", "onnx", graph)
    session = onnx.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    answers = dict(zip(names, session.run(None, {"x": x.numpy()}), strict=True))
    np.testing.assert_allclose(answers["probabilities"], usual.numpy(), rtol=1e-4, atol=1e-5)


def test_kernels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ArgumentError, match="odd"):
        sn.convnet((1, 8, 8), 2, kernel_size=4)
    with pytest.raises(ArgumentError, match="pool must be small enough"):
        sn.convnet((1, 8, 8), 2, kernel_size=5, padding="valid")
    with pytest.raises(ArgumentError, match="padding must be one of"):
        sn.convnet((1, 8, 8), 2, padding="full")
    assert sn.convnet((1, 8, 8), 2, channels=(2,), kernel_size=4, padding="valid")(torch.zeros(1, 1, 8, 8)).shape == (
        1,
        2,
    )


def test_a_plan_without_convolutions_is_written_as_before() -> None:
    written = Profile.named("recommended").plan("mnist", "lbbnn", 0).model_dump(mode="json")
    assert "maps" not in written
    assert "post_alpha" not in written
    other = Plan(**plan().model_dump(mode="json"))
    assert other == plan()
    with pytest.raises(ArgumentError, match="one of images"):
        in_shape(plan(), replace(tiny(), image_shape=None))
    assert network_of(plan(), tiny()).spec["channels"] == [3, 4]

"""Unknown compact files: positions and lengths that do not fit are one line, not foreign memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import slabnet as sn
from slabnet.core.containers import read_container, write_container
from slabnet.store import FORMAT

KEEPS = ("means", "distribution")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("compact")
    found = {}
    nets = {"mlp": sn.mlp((40, 30, 2), seed=0), "convnet": sn.convnet((2, 6, 6), 3, channels=(4, 5), hidden=(6,))}
    generator = torch.Generator().manual_seed(0)
    for kind, net in nets.items():
        with torch.no_grad():
            for name, value in net.named_parameters():
                if name.endswith("omega"):
                    value.uniform_(-3, 2, generator=generator)
        for keep in KEEPS:
            found[f"{kind} {keep}"] = folder / f"{kind}-{keep}.slab"
            sn.save(sn.compact(net, sn.median_model(net), keep=keep), found[f"{kind} {keep}"])
    return found


def outcome(path: Path, header: dict[str, Any], tensors: dict[str, Tensor], shape: tuple[int, ...]) -> str:
    """Load, compute, draw and train: nothing but an error of ours, or an answer."""
    write_container(path, header, tensors)
    x = torch.randn(5, *shape, generator=torch.Generator().manual_seed(1))
    try:
        net = sn.load(path)
        with torch.no_grad():
            assert bool(torch.isfinite(net(x)).all())
        assert bool(torch.isfinite(sn.predict(net, x, draws=2, seed=0).mean).all())
        if header["network"]["keep"] == "distribution":
            sn.fit(net, (x, torch.arange(5) % 2), sn.TrainConfig(epochs=1, batch_size=5), progress="off")
    except sn.SlabnetError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("kind", ["mlp", "convnet"])
def test_every_tensor_too_long_too_short_too_high(kind: str, keep: str, kept: dict[str, Path], tmp_path: Path) -> None:
    header, tensors = read_container(kept[f"{kind} {keep}"], "test", FORMAT)
    shape = tuple(header["network"]["row_shape"])
    path = tmp_path / "m.slab"
    assert outcome(path, header, tensors, shape) == ""
    for name, value in tensors.items():
        if not value.numel():
            continue
        longer = torch.cat([value.reshape(-1), value.reshape(-1)[-1:]])
        changes = {"short": value.reshape(-1)[:-1].clone(), "long": longer}
        if not value.is_floating_point():
            high = value.to(torch.int32).clone()
            high[-1] = 30_000_000
            changes["high"] = high
        if name.endswith(("units", "inputs", "own")) and len(value) > 1:
            changes["twice"] = torch.cat([value[:1], value[:-1]])
        for change, made in changes.items():
            said = outcome(path, header, tensors | {name: made}, shape)
            assert said.startswith("load: "), (name, change, said)


def test_layers_that_do_not_take_what_comes(kept: dict[str, Path], tmp_path: Path) -> None:
    header, tensors = read_container(kept["mlp means"], "test", FORMAT)
    for change in ({"row_shape": [4]}, {"row_shape": "x"}, {"outputs": 7}, {"row_shape": [-1]}):
        wrong = header | {"network": header["network"] | change}
        assert outcome(tmp_path / "m.slab", wrong, tensors, (40,)).startswith("load: "), change
    parts = header["network"]["parts"]
    for index, part in enumerate(parts):
        for change in ({"inputs": 10**5}, {"of": [10**15, 10**15]}, {"of": []}, {"part": "Flatten"}, {"groups": 0}):
            if part["part"] == "layer":
                changed = [*parts[:index], part | change, *parts[index + 1 :]]
                wrong = header | {"network": header["network"] | {"parts": changed}}
                assert outcome(tmp_path / "m.slab", wrong, tensors, (40,)).startswith("load: "), (index, change)


def test_rows_that_are_too_narrow_for_a_network_of_unknown_width(kept: dict[str, Path], tmp_path: Path) -> None:
    header, tensors = read_container(kept["mlp distribution"], "test", FORMAT)
    wrong = header | {"network": header["network"] | {"row_shape": None}}
    assert "compact: x must be rows of" in outcome(tmp_path / "m.slab", wrong, tensors, (3,))

"""Model files: round trips, and what happens to damaged or foreign ones."""

from __future__ import annotations

import json
import os
import pickle
import struct
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

import slabnet as sn

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("method", sn.METHODS)
def test_round_trip(method: str, tmp_path: Path) -> None:
    net = sn.mlp((4, 3, 2), method=method, prior=sn.Prior(psi=sn.Beta(), sigma_beta="learned"), seed=4)
    sn.save(net, tmp_path / "m.slab", note="x", numbers=[1, 2.5])
    again = sn.load(tmp_path / "m.slab")
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), again.state_dict().values(), strict=True))
    assert torch.equal(sn.predict(net, X, 5).mean, sn.predict(again, X, 5).mean)
    header = sn.read_header(tmp_path / "m.slab")
    assert header["about"] == {"note": "x", "numbers": [1, 2.5]}
    assert header["network"]["method"] == method
    assert os.listdir(tmp_path) == ["m.slab"]


def test_dispersion_and_float64_travel(tmp_path: Path) -> None:
    net = sn.mlp((4, 1), likelihood=sn.Gaussian(prior=sn.InverseGamma(shape=3.0))).double()
    with torch.no_grad():
        net.likelihood.log_phi.fill_(0.7)
    sn.save(net, tmp_path / "m.slab")
    again = sn.load(tmp_path / "m.slab")
    assert sn.likelihood_of(again).spec() == net.likelihood.spec()
    assert float(again.get_parameter("likelihood.log_phi").detach()) == pytest.approx(0.7)
    assert next(again.parameters()).dtype == torch.float64


def test_the_same_network_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.slab", "another name.slab"):
        sn.save(sn.mlp((4, 3, 2)), tmp_path / name, b=1, a=2)
    first, second = ((tmp_path / name).read_bytes() for name in ("a.slab", "another name.slab"))
    assert first == second


def test_modules_of_the_user_s_own_class(tmp_path: Path) -> None:
    def make() -> nn.Module:
        shared = nn.Linear(4, 4)
        return sn.convert(nn.Sequential(shared, nn.LayerNorm(4), shared, nn.Linear(4, 1)))

    net = make()
    sn.fit(net, (X, X[:, 0]), sn.TrainConfig(epochs=2, batch_size=3), likelihood=sn.Gaussian())
    sn.save(net, tmp_path / "m.slab")
    with pytest.raises(sn.ArgumentError, match=r"into must be given: .* holds a module of the class Sequential"):
        sn.load(tmp_path / "m.slab")
    again = sn.load(tmp_path / "m.slab", into=make())
    a, b = sn.predict(net, X, 4), sn.predict(again, X, 4)
    assert torch.equal(a.mean, b.mean)
    assert torch.equal(a.total, b.total)  # phi came along
    with pytest.raises(sn.FileError, match="must hold the tensors of this network, got one without"):
        sn.load(tmp_path / "m.slab", into=sn.convert(nn.Linear(4, 1)))
    wide = sn.convert(nn.Sequential(nn.Linear(9, 4), nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, 1)))
    with pytest.raises(sn.FileError, match="must h"):
        sn.load(tmp_path / "m.slab", into=wide)


def test_state_dict_round_trip() -> None:
    net, other = sn.mlp((4, 3, 2), seed=1), sn.mlp((4, 3, 2), seed=2)
    assert set(net.state_dict()) == {
        f"body.{layer}.{block}.{name}"
        for layer in (1, 3)
        for block in ("weight", "bias")
        for name in ("mu", "rho", "omega")
    }
    other.load_state_dict(net.state_dict())
    assert torch.equal(net(X), other(X))


def test_nothing_with_nan_is_written(tmp_path: Path) -> None:
    net = sn.mlp((4, 2))
    with torch.no_grad():
        net.body[1].weight.mu[0, 0] = float("nan")
    with pytest.raises(sn.ArgumentError, match=r"save: body.1.weight.mu must be finite"):
        sn.save(net, tmp_path / "m.slab")
    with pytest.raises(sn.ArgumentError, match="about must be numbers, text and lists"):
        sn.save(sn.mlp((4, 2)), tmp_path / "m.slab", what=object())
    assert os.listdir(tmp_path) == []


def test_damaged_files_are_refused_in_one_line(tmp_path: Path) -> None:
    good = tmp_path / "good.slab"
    sn.save(sn.mlp((4, 3, 2)), good)
    content, bad = good.read_bytes(), tmp_path / "bad.slab"
    generator = torch.Generator().manual_seed(0)
    cases = [content[: len(content) * percent // 100] for percent in range(0, 100, 4)]
    for _ in range(200):
        flipped = bytearray(content)
        position = int(torch.randint(len(content), (), generator=generator))
        flipped[position] ^= 1 << int(torch.randint(8, (), generator=generator))
        cases.append(bytes(flipped))
    cases += [b"", pickle.dumps({"a": 1}), struct.pack("<Q", 1 << 62) + content[8:], b"PK\x03\x04" + content]
    for case in cases:
        bad.write_bytes(case)
        with pytest.raises(sn.SlabnetError) as caught:
            sn.load(bad)
        assert "\n" not in str(caught.value)


def test_other_formats_are_named(tmp_path: Path) -> None:
    path = tmp_path / "m.slab"
    safetensors.torch.save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(sn.FileError, match="without its header"):
        sn.load(path)
    header = {"format": 99, "network": None}
    safetensors.torch.save_file({"a": torch.zeros(2)}, path, {"slabnet": json.dumps(header)})
    with pytest.raises(sn.FileError, match="got format 99; this is slabnet"):
        sn.load(path)
    with pytest.raises(sn.ArgumentError, match="load: path must be a file that exists"):
        sn.load(tmp_path / "none.slab")
    with pytest.raises(sn.ArgumentError, match="in a folder that exists"):
        sn.save(sn.mlp((2, 2)), tmp_path / "no" / "m.slab")
    with pytest.raises(sn.ArgumentError, match="the name of a file"):
        sn.save(sn.mlp((2, 2)), tmp_path)


def test_a_chosen_model_travels_with_its_network(tmp_path: Path) -> None:
    net = sn.mlp((4, 3, 2))
    with torch.no_grad():
        net.body[1].weight.omega.uniform_(-2, 2, generator=torch.Generator().manual_seed(1))
    chosen = sn.median_model(net)
    sn.save(net, tmp_path / "m.slab", selection=chosen)
    again = sn.load(tmp_path / "m.slab")
    found = sn.load_selection(tmp_path / "m.slab", again)
    assert torch.equal(found.masks["body.1"][0], chosen.masks["body.1"][0])
    assert found.rule == "median"


def test_a_converted_module_must_have_the_same_priors(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(3, 2))
    sn.save(sn.convert(module, prior=sn.Prior(exclude=(0,))), tmp_path / "m.slab")
    sn.load(tmp_path / "m.slab", into=sn.convert(module, prior=sn.Prior(exclude=(0,))))
    for prior in (sn.Prior(), sn.Prior(exclude=(1,)), sn.Prior(psi=0.3, exclude=(0,))):
        with pytest.raises(sn.FileError, match="converted with the same priors"):
            sn.load(tmp_path / "m.slab", into=sn.convert(module, prior=prior))

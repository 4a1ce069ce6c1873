"""Hidden layers with units of several kinds: what they compute, what is left of them, and wherever a network goes."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import slabnet as sn
from slabnet.cli.app import app
from slabnet.compact.codec import pack, unpack
from slabnet.config.activations import ACTIVATIONS
from slabnet.config.settings import NetworkConfig, TrainConfig
from slabnet.core.errors import SlabnetError
from slabnet.model.activations import make_activation
from slabnet.model.elementwise import Mixed
from slabnet.model.gates import Gates
from slabnet.model.layers import Linear
from slabnet.report.page import page_script
from slabnet.training.dead_units import Alive, Cutter
from slabnet.training.optimiser import make_optimiser

KINDS = ("relu", "sigmoid", "identity", "tanh")
X = torch.randn(7, 6, generator=torch.Generator().manual_seed(2))


def network(**options: Any) -> sn.Network:
    given: dict[str, Any] = {"activation": KINDS, "skip": True, "seed": 3} | options
    net = sn.mlp((6, 11, 9, 2), **given)
    assert isinstance(net, sn.Network)
    with torch.no_grad():
        for part in net.modules():
            if isinstance(part, Linear) and part.weight.omega is not None:
                part.weight.omega.normal_(0.0, 2.0, generator=torch.Generator().manual_seed(1))
    return net


def by_hand(net: sn.Network, x: Tensor) -> Tensor:
    """The outputs at the posterior mean, unit by unit."""
    layers = [part for part in net.modules() if isinstance(part, Linear)]
    now = x
    for index, layer in enumerate(layers):
        assert layer.bias is not None
        read = now if index == 0 else torch.cat([now, x], 1)
        value = read @ (layer.alpha * layer.weight.mu).T + layer.bias.alpha * layer.bias.mu
        if index < len(layers) - 1:
            width = value.shape[1]
            kinds = [kind for i, kind in enumerate(KINDS) for _ in range(width * (i + 1) // 4 - width * i // 4)]
            value = torch.stack([make_activation(kind)(value[:, u]) for u, kind in enumerate(kinds)], 1)
        now = value
    return now


def test_each_unit_has_its_activation_and_a_gate() -> None:
    net = network()
    torch.testing.assert_close(net(X), by_hand(net, X))
    assert [part.kind for part in net.modules() if isinstance(part, Gates)] == ["units", "units"]
    assert net.activation == KINDS
    plain = network(method="gaussian")
    assert not [part for part in plain.modules() if isinstance(part, Gates)]
    assert network(activation=["relu"]).activation == "relu"
    assert sn.mlp((3, 2), activation=("relu", "tanh")).gates == ()


@pytest.mark.parametrize("keep", ["means", "distribution"])
def test_a_small_network_has_the_units_that_are_left(keep: Any, tmp_path: Path) -> None:
    net = network(gates="inputs")
    chosen = sn.budget_model(net, weights=50)
    small = sn.compact(net, chosen, keep)
    mixed = [part for part in small.body if isinstance(part, Mixed)]
    assert mixed
    assert [sum(part.counts) for part in mixed] == [len(units) for units in small.neurons.values()][:-1]
    assert sum(sum(part.counts) for part in mixed) < 20
    draw = sn.fixed(chosen.masks) if keep == "means" else sn.fixed(chosen.masks, sn.exact)
    wanted = sn.predict(net, X, 5, draw=draw, seed=1).mean
    torch.testing.assert_close(sn.predict(small, X, 5, seed=1).mean, wanted)
    for name, one in (("small", small), ("whole", net)):
        sn.save(one, tmp_path / f"{name}.slab")
        torch.testing.assert_close(
            sn.predict(sn.load(tmp_path / f"{name}.slab"), X, 3, seed=1).mean, sn.predict(one, X, 3, seed=1).mean
        )


def test_a_file_whose_kinds_do_not_fit_is_refused() -> None:
    net = network()
    small = sn.compact(net, sn.budget_model(net, weights=60))
    at, part = next((i, p) for i, p in enumerate(small.spec["parts"]) if p["part"] == "Mixed")
    for name, value in (
        ("counts", [50] * len(part["kinds"])),
        ("counts", [-1]),
        ("counts", "many"),
        ("kinds", ["relu", "rel"]),
        ("kinds", 5),
        ("kinds", None),
    ):
        parts = [dict(p) for p in small.spec["parts"]]
        parts[at][name] = value
        with pytest.raises(SlabnetError):
            unpack(small.spec | {"parts": parts}, pack(small))
        with pytest.raises(SlabnetError):
            unpack(small.spec | {"parts": parts, "row_shape": None}, pack(small))


@pytest.mark.parametrize("draws", [0, 3])
def test_the_three_exports(draws: int, tmp_path: Path) -> None:
    import onnxruntime

    net = network()
    sn.save(net, tmp_path / "m.slab", selection=sn.budget_model(net, weights=60))
    for to, name in (("onnx", "m.onnx"), ("numpy", "m.py"), ("torch", "m.pt2")):
        sn.export(tmp_path / "m.slab", to, tmp_path / name, draws=draws, seed=4)  # type: ignore[arg-type]
    chosen = sn.load_selection(tmp_path / "m.slab", net)
    draw = sn.fixed(chosen.masks, sn.exact) if draws else sn.fixed(chosen.masks)
    wanted = sn.predict(net, X, draws or 1, draw=draw, seed=4).mean.numpy()
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    spec = importlib.util.spec_from_file_location("exported", tmp_path / "m.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    program = torch.export.load(tmp_path / "m.pt2").module()
    given = [
        session.run(["probabilities"], {"x": X.numpy()})[0],
        module.predict(X.numpy())["probabilities"],
        program(X)["probabilities"].detach().numpy(),
    ]
    for probabilities in given:
        np.testing.assert_allclose(probabilities, wanted, atol=2e-6)


def test_the_network_of_the_page(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node here: tests/browser runs pages in a browser")
    net = network()
    chosen = sn.budget_model(net, weights=60)
    sn.save(net, tmp_path / "m.slab", selection=chosen)
    page = sn.write_report(tmp_path / "r.html", net, (X, torch.arange(7) % 2), selection=chosen).read_text()
    data = re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', page, re.S)
    assert data is not None
    script = page_script().partition("window.slabnet = slabnet;")[0].replace('"use strict";', "")
    document = f"const document = {{ getElementById: () => ({{ textContent: {json.dumps(data[1])} }}) }};"
    rows = f"{json.dumps(X.tolist())}.map((x) => slabnet.network.at(x))"
    code = f"{document} {script} console.log(JSON.stringify({rows}));"
    run = subprocess.run([node, "-"], input=code, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    np.testing.assert_allclose(json.loads(run.stdout), sn.predict(net, X, draw=sn.fixed(chosen.masks)).mean, atol=1e-5)


def test_training_without_dead_units_is_training_of_those_that_are_left() -> None:
    """The small network that `fit` trains in place of a large one gives what the large one gives without the dead."""
    net = network(skip=False, prior=sn.Prior(slab=sn.ScaleMixture()))
    assert net.gates == ()  # such a slab has no closed form
    config = TrainConfig(epochs=1)
    cutter = Cutter(net, net.likelihood, make_optimiser(net, net.likelihood, config, omega=True), config, None)
    units = [torch.ones(11, dtype=torch.bool), torch.ones(9, dtype=torch.bool), torch.ones(2, dtype=torch.bool)]
    units[0][[0, 4, 5]] = units[1][[1, 2]] = False
    layers = [part for part in net.modules() if isinstance(part, Linear)]
    with torch.no_grad():
        for before, layer in zip(units, layers[1:], strict=False):
            layer.weight.mu[:, ~before] = 0.0
    cutter.alive = Alive(torch.ones(6, dtype=torch.bool), tuple(units))
    with torch.no_grad():
        cutter._build()
    torch.testing.assert_close(cutter.small(X), net(X))


def test_data_choose_among_the_kinds() -> None:
    """y is a saturating function of one column: units of tanh carry it, and those of relu go."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 2, generator=generator)
    y = 2 * torch.tanh(3 * x[:, :1]) + 0.1 * torch.randn(400, 1, generator=generator)
    net = sn.mlp((2, 8, 1), activation=("relu", "tanh"), likelihood="gaussian", prior=sn.Prior(psi=0.3))
    sn.fit(net, (x, y), sn.TrainConfig(epochs=150, batch_size=100, ramp_epochs=75), progress="off")
    *_, last = (part for part in net.modules() if isinstance(part, Linear))
    sent = (last.alpha * last.weight.mu).detach()[0].abs()
    assert float(sent[4:].max()) > 0.8
    assert float(sent[:4].max()) < 0.1


def test_estimators_commands_and_settings(tmp_path: Path) -> None:
    x = X.numpy().repeat(6, 0) + np.arange(42)[:, None] * 0.01
    model = sn.SlabRegressor((6,), activation=("relu", "tanh"), epochs=3, random_state=0).fit(x, x[:, 0])
    sn.save_estimator(model, tmp_path / "e.slab")
    back = sn.load_estimator(tmp_path / "e.slab")
    assert back.network_.activation == ("relu", "tanh")
    np.testing.assert_allclose(back.predict(x), model.predict(x), rtol=1e-6)
    small = model.sparsify("budget", weights=8)
    assert np.isfinite(small.predict(x)).all()
    assert NetworkConfig(activation=("relu", "tanh")).model_dump(mode="json")["activation"] == ["relu", "tanh"]
    assert NetworkConfig(activation=["tanh"]).activation == "tanh"
    with pytest.raises(sn.ArgumentError, match=r"^NetworkConfig: activation must be one of"):
        NetworkConfig(activation="squash")
    (tmp_path / "t.csv").write_text("a,y\n" + "\n".join(f"{i},{2.5 * i + 0.25 * (i % 3)}" for i in range(40)) + "\n")
    command = ["fit", "t.csv", "--target", "y", "--out", "m.slab", "--epochs", "2", "--hidden", "4", "--activation"]
    runner = CliRunner()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert runner.invoke(app, [*command, "relu,identity"]).exit_code == 0
        assert isinstance(runner.invoke(app, [*command, "relu,squash"]).exception, sn.ArgumentError)
    net = sn.load(tmp_path / "m.slab")
    assert isinstance(net, sn.Network)
    assert net.activation == ("relu", "identity")


@pytest.fixture
def registered() -> Iterator[None]:
    class Cosine(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cos(x)

    sn.register_activation(sn.Activation("cosine", "Cosine", 1.0, False), Cosine)
    yield
    del ACTIVATIONS["cosine"]


@pytest.mark.usefixtures("registered")
def test_what_is_not_known_is_refused_in_one_line(tmp_path: Path) -> None:
    bad: list[tuple[Any, str]] = [
        (("relu", "rel"), r"activation must be one of relu, .* or different ones, as in \(relu, tanh\), got"),
        (("relu", "relu"), "or different ones"),
        ((), "or different ones"),
        (5, "or different ones"),
        ([["relu"]], "or different ones"),
        (("relu", "tanh", "elu", "gelu"), "at most 3 kinds for a layer of 3 units"),
    ]
    for activation, said in bad:
        with pytest.raises(sn.ArgumentError, match=said):
            sn.mlp((3, 3, 1), activation=activation)
    net = sn.mlp((6, 6, 2), activation=("relu", "cosine"))
    chosen = sn.budget_model(net, weights=44)
    sn.save(net, tmp_path / "m.slab", selection=chosen)
    with pytest.raises(sn.ArgumentError, match="an ONNX operator in their row, got cosine"):
        sn.export(tmp_path / "m.slab", "onnx", tmp_path / "m.onnx")
    with pytest.raises(sn.ArgumentError, match="a numpy expression in their row, got cosine"):
        sn.export(tmp_path / "m.slab", "numpy", tmp_path / "m.py")
    page = sn.write_report(tmp_path / "r.html", net, (X, torch.arange(7) % 2)).read_text()
    assert "The activation cosine is not written in JavaScript." in page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.slab", "r.html"]
    small = sn.compact(net, chosen)
    wanted = sn.predict(net, X, draw=sn.fixed(chosen.masks)).mean
    torch.testing.assert_close(sn.predict(small, X).mean, wanted)

"""The table of activations: every column of every row against the torch module of the row."""

from __future__ import annotations

import base64
import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import slabnet as sn
from slabnet import kernels
from slabnet.config.activations import ACTIVATIONS, Activation
from slabnet.export import numpy_runtime
from slabnet.export.as_onnx import to_onnx
from slabnet.export.plan import Plan
from slabnet.kernels import native
from slabnet.kernels.sparse import SparseChain, SparseLayer
from slabnet.model.activations import activation_of, in_c, make_activation, numbers_of
from slabnet.report.page import page_script

HEADER = Path(kernels.__file__).parent / "c" / "sparse.h"
X = torch.cat((torch.linspace(-6, 6, 241), torch.tensor([-80.0, -1e-6, 1e-6, 19.5, 20.5, 80.0])))
every_row = pytest.mark.parametrize("row", ACTIVATIONS.values(), ids=list(ACTIVATIONS))


def told(row: Activation) -> list[nn.Module]:
    """The module of a row with its own options, and with others."""
    usual = make_activation(row.name)
    others = {name: 0.5 * value for name, value in row.options}
    return [usual, type(usual)(**others, **dict(row.words))] if others else [usual]


@every_row
def test_no_column_is_left_out(row: Activation) -> None:
    assert [field.name for field in fields(row) if getattr(row, field.name) is None] == []


@every_row
def test_torch(row: Activation) -> None:
    for made in told(row):
        assert activation_of(made) is row
        assert list(numbers_of(row, made)) == [name for name, _ in row.options]
    made = make_activation(row.name)
    assert float(made(torch.zeros((), dtype=torch.float64))) == pytest.approx(row.at_zero, abs=1e-12)
    y = made(torch.linspace(-3, 3, 601, dtype=torch.float64))
    bends = int(((y[2:] - 2 * y[1:-1] + y[:-2]).abs() > 1e-9).sum())  # second differences that are not zero
    assert row.piecewise_linear == (bends <= 1)


@every_row
def test_c(row: Activation) -> None:
    (names,) = re.findall(r"enum \{ (IDENTITY,[^}]*) \}", HEADER.read_text())
    assert row.c == names.split(", ").index(row.name.upper())
    if native.library() is None:
        pytest.skip("there is no compiler here")
    one = torch.tensor([0, 1]).int(), torch.tensor([0]).int(), torch.tensor([1.0])
    for made in told(row):
        step = in_c(made)
        assert step is not None
        chain = SparseChain(torch.tensor([0]).int(), [SparseLayer(1, *one, None, step)])
        torch.testing.assert_close(chain(X[:, None])[:, 0], made(X.double()).float(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(chain(X[:1, None])[0, 0], made(X[0].double()).float(), rtol=1e-5, atol=1e-6)


@every_row
def test_numpy(row: Activation) -> None:
    for made in told(row):
        function = eval(f"lambda {row.arguments('x')}: {row.numpy}", vars(numpy_runtime))
        found = function(X.numpy(), **numbers_of(row, made))
        np.testing.assert_allclose(found, made(X.double()).float().numpy(), rtol=1e-5, atol=1e-6)


@every_row
def test_onnx(row: Activation) -> None:
    import onnxruntime

    for made in told(row):
        step: dict[str, Any] = {"kind": row.name} | numbers_of(row, made)
        plan = Plan(((step,),), "gaussian", "normal", (1,), 1, 0, noise=(0.0,))
        session = onnxruntime.InferenceSession(to_onnx(plan), providers=["CPUExecutionProvider"])
        found, _ = session.run(["mean", "variance"], {"x": X[:, None].numpy()})
        np.testing.assert_allclose(found[:, 0], made(X.double()).float().numpy(), rtol=1e-5, atol=1e-6)


def test_javascript() -> None:
    """All rows in the page's own script: a network of one unit whose weights are one."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node here: tests/browser runs the same in a browser")
    one, zero = (base64.b64encode(part.tobytes()).decode() for part in (np.ones(1, "<f4"), np.zeros(1, "<u4")))
    block = {"at": zero, "mu": one, "sigma": one, "alpha": one}
    layer = {"inputs": 1, "outputs": 1, "blocks": [block]}
    packed = [{"layers": [layer, layer], "activation": name, "head": "normal"} for name in ACTIVATIONS]
    script = page_script().partition("window.slabnet = slabnet;")[0].replace('"use strict";', "")
    runs = []
    for network in packed:
        data = json.dumps(json.dumps({"network": network}))
        page = f"const document = {{ getElementById: () => ({{ textContent: {data} }}) }}; {script}"
        runs.append(f"(() => {{ {page} return {json.dumps(X.tolist())}.map((x) => slabnet.network.at([x])[0]); }})()")
    code = f"console.log(JSON.stringify([{','.join(runs)}]))"
    run = subprocess.run([node, "-"], input=code, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    for name, found in zip(ACTIVATIONS, json.loads(run.stdout), strict=True):
        np.testing.assert_allclose(found, make_activation(name)(X.double()).numpy(), rtol=1e-5, atol=1e-7)


class Bump(nn.Module):
    """x exp(-x^2)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.exp(-x * x)


class Cosine(Bump):
    """Not zero at zero."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cos(x)


@pytest.fixture
def registered() -> Iterator[None]:
    yield
    for name in ("bump", "cosine"):
        ACTIVATIONS.pop(name, None)


@pytest.mark.usefixtures("registered")
def test_a_row_is_checked_when_it_comes_from_outside() -> None:
    row = Activation(name="bump", module="Bump", at_zero=0.0, piecewise_linear=False)
    changes: list[tuple[dict[str, Any], type[nn.Module], str]] = [
        ({"name": "relu"}, Bump, "name must be a new one, got 'relu'"),
        ({"module": "Hump"}, Bump, "row.module must be the name of the module, Bump, got 'Hump'"),
        ({"c": 1}, Bump, "c must be None: the chain in C has no case for it, got 1"),
        ({"at_zero": 0.5}, Bump, "at_zero must be its value at 0, 0, got 0.5"),
        ({"module": "ReLU"}, nn.ReLU, "module must be one that is in no other row, got ReLU"),
        ({"module": "PReLU"}, nn.PReLU, "module must be one without parameters, got PReLU"),
        ({"module": "LogSigmoid", "at_zero": 0.0}, nn.LogSigmoid, "at_zero must be its value at 0, -0.693147, got 0.0"),
        ({"module": "Hardshrink", "options": (("lambd", 0.5),)}, nn.Softmax, "name of the module, Softmax"),
    ]
    for change, module, said in changes:
        with pytest.raises(sn.ArgumentError, match=re.escape(said)):
            sn.register_activation(Activation(**{**vars(row), **change}), module)
    with pytest.raises(sn.ArgumentError, match="acts on each number for itself, got Softmax"):
        softmax = Activation("softmax", "Softmax", 0.0, False, options=(("dim", -1),))
        sn.register_activation(softmax, nn.Softmax)
    assert "bump" not in ACTIVATIONS


@pytest.mark.usefixtures("registered")
def test_what_a_row_leaves_out_is_refused_by_name(tmp_path: Path) -> None:
    sn.register_activation(Activation("cosine", "Cosine", 1.0, False), Cosine)
    net = sn.mlp((3, 5, 2), activation="cosine")
    chosen = sn.budget_model(net, weights=12)
    small = sn.compact(net, chosen)  # in torch: the chain in C has no case for it
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    wanted = sn.predict(net, x, draw=sn.fixed(chosen.masks)).mean
    torch.testing.assert_close(sn.predict(small, x).mean, wanted)
    sn.save(small, tmp_path / "m.slab")
    torch.testing.assert_close(sn.predict(sn.load(tmp_path / "m.slab"), x).mean, wanted)
    with pytest.raises(sn.ArgumentError, match="an ONNX operator in their row, got cosine"):
        sn.export(tmp_path / "m.slab", "onnx", tmp_path / "m.onnx")
    with pytest.raises(sn.ArgumentError, match="a numpy expression in their row, got cosine"):
        sn.export(tmp_path / "m.slab", "numpy", tmp_path / "m.py")
    assert [path.name for path in tmp_path.iterdir()] == ["m.slab"]
    page = sn.write_report(tmp_path / "r.html", net, (x, torch.arange(6) % 2)).read_text()
    assert "The activation cosine is not written in JavaScript." in page
    del ACTIVATIONS["cosine"]
    with pytest.raises(sn.FileError, match="compact: part must be one of Dropout, "):
        sn.load(tmp_path / "m.slab")
    assert math.isfinite(float(wanted.sum()))

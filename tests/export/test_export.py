"""Exports are run back where slabnet is not: onnxruntime, torch alone, numpy alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.chosen import masked, random_model
from torch import Tensor, nn

import slabnet as sn
from slabnet.config.activations import ACTIVATIONS
from slabnet.config.fit_card import FitCard
from slabnet.export.as_numpy import to_numpy
from slabnet.export.as_onnx import to_onnx
from slabnet.export.as_torch import to_torch
from slabnet.export.plan import Plan, make_plan
from slabnet.model.drawing import drawable_layers

Arrays = dict[str, np.ndarray[Any, Any]]
BLOCK = """
import sys
class Nobody:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {blocked}: raise ImportError(f'{{name}} is not installed here')
sys.meta_path.insert(0, Nobody())
"""
WITH_NUMPY = """
import importlib.util, numpy as np
def load(path):
    spec = importlib.util.spec_from_file_location('small', path); small = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(small)
    return small.predict
"""
WITH_TORCH = """
import numpy as np, torch
def load(path):
    program = torch.export.load(path).module()
    return lambda x: {name: value.detach().numpy() for name, value in program(torch.from_numpy(x)).items()}
"""
RUN = """
for path in sys.argv[1:]:
    run = load(path)
    for i, x in enumerate(np.load(path + '.npz').values()): np.savez(f'{path}.{i}.npz', **run(x))
assert not set(BLOCKED) & set(sys.modules)
"""


def batches(shape: tuple[int, ...]) -> list[Tensor]:
    """Any number of rows; large, tiny and constant numbers."""
    made = torch.randn(7, *shape, generator=torch.Generator().manual_seed(1))
    return [made[:1], made, made.repeat(30, *(1 for _ in shape)), made * 1e4, made * 1e-20, torch.zeros(2, *shape)]


@dataclass
class Case:
    """A plan, rows to run it on, and what is wrong with what comes out (an assertion)."""

    plan: Plan
    xs: list[Tensor]
    check: Callable[[Tensor, Arrays], None]


def run_onnx(case: Case) -> list[Arrays]:
    import onnxruntime

    session = onnxruntime.InferenceSession(to_onnx(case.plan), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(None, {"x": x.numpy()}), strict=True)) for x in case.xs]


def elsewhere(
    code: str, blocked: list[str], write: Callable[[Plan], bytes], ends: str, cases: dict[str, Case], folder: Path
) -> dict[str, list[Arrays]]:
    """Run in a process of its own, in which some packages cannot be imported."""
    paths = {name: f"{name}{ends}" for name in cases}
    for name, case in cases.items():
        (folder / paths[name]).write_bytes(write(case.plan))
        np.savez(folder / f"{paths[name]}.npz", *[x.numpy() for x in case.xs])
    whole = BLOCK.format(blocked=blocked) + f"BLOCKED = {blocked}\n" + code + RUN
    run = subprocess.run(
        [sys.executable, "-I", "-c", whole, *paths.values()], cwd=folder, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return {
        name: [dict(np.load(folder / f"{paths[name]}.{i}.npz")) for i in range(len(case.xs))]
        for name, case in cases.items()
    }


def close(got: np.ndarray[Any, Any], want: Tensor, tolerance: float = 1e-5) -> None:
    """Within `tolerance`, relative to the largest number of the row."""
    assert got.shape == tuple(want.shape)
    size = want.abs().amax(-1, keepdim=True).clamp_min(1e-30) if want.ndim > 1 else torch.ones(())
    assert float(((torch.from_numpy(got) - want).abs() / size).max()) < tolerance


def of_means(net: nn.Module, shape: tuple[int, ...], seed: int = 2) -> Case:
    chosen = random_model(net, 0.35, seed, rho=(-3, -1))
    assert chosen.feasible
    small = sn.compact(net, chosen)
    small.spec["row_shape"] = list(shape)  # not known for modules of our own making

    def check(x: Tensor, found: Arrays) -> None:
        logits, ordinary = masked(net, chosen, x), float(x.abs().max()) < 1e3
        close(found["logits"], logits)
        p = torch.softmax(logits.double(), -1)
        assert np.isfinite(found["entropy"]).all()
        if ordinary:
            close(found["probabilities"], p.float())
            close(found["entropy"], torch.special.entr(p).sum(-1).float())

    return Case(make_plan(small, None), batches(shape), check)


def of_draws(likelihood: str, skip: bool = False) -> Case:
    net = sn.mlp((9, 12, 8, 2), likelihood=likelihood, skip=skip)
    chosen = random_model(net, 0.3, 4, rho=(-3, -1))
    about = {"estimator": {"scaling_x": {"centre": [0.5] * 9, "scale": [2.0] * 9}}}

    def check(x: Tensor, found: Arrays) -> None:
        want = sn.predict(net, (x - 0.5) / 2.0, 5, draw=sn.fixed(chosen.masks, sn.exact), seed=3)
        close(found["mean" if likelihood == "gaussian" else "probabilities"], want.mean)
        spread = found["variance" if likelihood == "gaussian" else "entropy"]
        torch.testing.assert_close(torch.from_numpy(spread), want.total, rtol=1e-4, atol=1e-5)
        assert "logits" not in found

    return Case(make_plan(net, chosen, 5, seed=3, card=FitCard(**about)), batches((9,))[:3], check)


def of_yes_or_no() -> Case:
    net = sn.mlp((3, 2), likelihood="bernoulli")
    chosen = random_model(net, 1.0, 1, rho=(-3, -1))
    x = torch.tensor([[1e5, 1e5, 1e5], [0.0, 0.0, 0.0], [-1e5, 3.0, 2.0]])

    def check(x: Tensor, found: Arrays) -> None:
        assert np.isfinite(found["entropy"]).all()
        assert found["entropy"].shape == (3, 2)
        close(found["logits"], masked(net, chosen, x))

    return Case(make_plan(net, chosen), [x], check)


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    made = {name: of_means(sn.mlp((9, 12, 8, 3), activation=name), (9,)) for name in ACTIVATIONS}
    made["convnet"] = of_means(sn.convnet((2, 8, 8), 3, channels=(4, 5), hidden=(6,)), (2, 8, 8))
    made["skip"] = of_means(sn.mlp((9, 12, 8, 3), skip=True), (9,))
    made["convnet skip"] = of_means(sn.convnet((2, 8, 8), 3, channels=(4,), hidden=(6, 5), skip=True), (2, 8, 8))
    made["draws skip"] = of_draws("gaussian", skip=True)
    made["convnet1d"] = of_means(sn.convnet((2, 9), 3, channels=(4,), hidden=()), (2, 9))
    every_kind = nn.Sequential(
        sn.Conv2d(2, 6, 3, padding=1, padding_mode="replicate", groups=2),
        nn.LeakyReLU(0.1),
        nn.MaxPool2d(2, stride=1, padding=1),
        sn.Conv2d(6, 5, 2, stride=2, dilation=2),
        nn.Softplus(2.0, 3.0),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.ELU(0.5),
        sn.Linear(5, 3),
    )
    made["every kind"] = of_means(every_kind, (2, 7, 7))
    made |= {f"draws {name}": of_draws(name) for name in ("categorical", "bernoulli", "gaussian")}
    return made | {"yes or no": of_yes_or_no()}


def test_onnx_in_onnxruntime(cases: dict[str, Case]) -> None:
    for case in cases.values():
        for x, found in zip(case.xs, run_onnx(case), strict=True):
            case.check(x, found)


def test_numpy_alone(cases: dict[str, Case], tmp_path: Path) -> None:
    found = elsewhere(WITH_NUMPY, ["slabnet", "torch", "scipy", "onnx"], to_numpy, ".py", cases, tmp_path)
    for name, case in cases.items():
        for x, one in zip(case.xs, found[name], strict=True):
            case.check(x, one)


def test_torch_without_slabnet(cases: dict[str, Case], tmp_path: Path) -> None:
    names = ("relu", "skip", "convnet skip", "every kind", "draws categorical", "draws skip", "yes or no")
    some = {name: cases[name] for name in names}
    found = elsewhere(WITH_TORCH, ["slabnet"], to_torch, ".pt2", some, tmp_path)
    for name, case in some.items():
        for x, one in zip(case.xs, found[name], strict=True):
            case.check(x, one)


def command(*words: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "slabnet", "export", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | environment,
        check=False,
    )


def test_the_command_and_what_goes_beside_it(tmp_path: Path) -> None:
    net = sn.mlp((4, 6, 3))
    chosen = sn.budget_model(net, weights=12)
    scaling: dict[str, list[float]] = {"centre": [0.0, 1.0, 2.0, 3.0], "scale": [1.0, 1.0, 2.0, 1.0]}
    columns = [{"name": "b", "categories": ["x", "y"]}]
    about: dict[str, Any] = {"input_names": ["a", "b=x", "b=y", "c"], "table": {"columns": columns}}
    about["estimator"] = {"scaling_x": scaling}
    sn.save(net, tmp_path / "m.slab", selection=chosen, **about)
    run = command("m.slab", "--to", "onnx", "--out", "m.onnx", "--json", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert told["written"] == ["m.onnx", "m.onnx.json"]
    assert told["input_names"] == about["input_names"]
    beside = json.loads((tmp_path / "m.onnx.json").read_text())
    assert beside["preprocessing"] == {"table": {"columns": columns}}
    import onnx

    (props,) = onnx.load(tmp_path / "m.onnx").metadata_props
    assert json.loads(props.value)["input_names"] == about["input_names"]
    x = batches((4,))[1]
    import onnxruntime

    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    logits, *_ = session.run(None, {"x": x.numpy()})
    inside = (x - torch.tensor(scaling["centre"])) / torch.tensor(scaling["scale"])
    close(logits, masked(net, chosen, inside))


def test_a_fitted_table_is_exported_in_its_own_units(tmp_path: Path) -> None:
    source = np.random.default_rng(0)
    x = source.normal(100.0, 20.0, size=(80, 3))
    y = 1000.0 + 5.0 * x[:, 0] + source.normal(size=80)
    model = sn.SlabRegressor(hidden=(4,), epochs=150, random_state=0).fit(x, y)
    sn.save_estimator(model, tmp_path / "m.slab")
    told = sn.export(tmp_path / "m.slab", "numpy", tmp_path / "m.py")
    space: dict[str, Any] = {}
    exec((tmp_path / "m.py").read_text(), space)  # as an importer would run it
    found = space["predict"](x.astype(np.float32))
    scaled = torch.as_tensor(model.scaling_x_.apply(x))
    masks = model.chosen_.masks
    want = model.scaling_y_.undo(sn.predict(model.network_, scaled, draw=sn.fixed(masks)).mean.numpy())
    np.testing.assert_allclose(found["mean"].reshape(-1), want.reshape(-1), rtol=1e-4)
    assert told["weights"] == model.chosen_.weights
    likelihood = model.network_.likelihood
    assert isinstance(likelihood, sn.Gaussian)
    noise = (
        float(likelihood.expected_phi) * float(model.scaling_y_.scale[0]) ** 2
    )  # in squared units of y, not of the fit
    assert told["noise"][0] == pytest.approx(noise, rel=1e-5)


def test_compact_files_and_the_median_model_are_exported(tmp_path: Path) -> None:
    net = sn.mlp((4, 6, 3))
    sn.save(net, tmp_path / "full.slab")
    small = sn.compact(net, sn.budget_model(net, weights=20), "distribution")
    sn.save(small, tmp_path / "small.slab")
    assert sn.export(tmp_path / "full.slab", "numpy", tmp_path / "full.py")["weights"] == 42
    assert sn.export(tmp_path / "small.slab", "numpy", tmp_path / "s.py", draws=2)["weights"] == small.weights
    sn.save(sn.compact(net, sn.budget_model(net, weights=20)), tmp_path / "means.slab")
    sn.export(tmp_path / "means.slab", "torch", tmp_path / "m.pt2")
    with pytest.raises(sn.ArgumentError, match="draws must be 0 for a network of means"):
        sn.export(tmp_path / "means.slab", "numpy", tmp_path / "n.py", draws=2)


def test_bad_calls_are_one_line_and_write_nothing(tmp_path: Path) -> None:
    sn.save(sn.mlp((2, 3, 2)), tmp_path / "m.slab")
    empty = sn.mlp((2, 3, 2))
    with torch.no_grad():
        for layer in drawable_layers(empty).values():
            layer.blocks()[0].omega.fill_(-9.0)  # type: ignore[union-attr]
    sn.save(empty, tmp_path / "empty.slab")
    (tmp_path / "there.py").write_text("mine")
    sn.save(sn.mlp((2, 2), method="deterministic"), tmp_path / "plain.slab")
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "onnx.py").write_text("raise ImportError('no onnx here')")
    before = sorted(tmp_path.rglob("*"))
    for model, to, out, said in [
        ("no.slab", "onnx", "m.onnx", "path must be a file that exists, got"),
        ("m.slab", "tflite", "m.x", "to must be one of onnx, torch, numpy, got 'tflite'"),
        ("m.slab", "numpy", "there.py", "must be a new file \\(remove it, or give another name\\)"),
        ("m.slab", "numpy", "no/m.py", "must be in a folder that exists"),
        ("empty.slab", "numpy", "m.py", "no input can reach an output"),
        ("plain.slab", "numpy", "m.py", "net must be a network with indicators"),
        ("there.py", "numpy", "m.py", "must be a whole slabnet file"),
    ]:
        with pytest.raises(sn.SlabnetError, match=said) as error:
            sn.export(tmp_path / model, to, tmp_path / out)  # type: ignore[arg-type]
        assert "\n" not in str(error.value)
    with pytest.raises(sn.ArgumentError, match="draws must be a whole number"):
        sn.export(tmp_path / "m.slab", "numpy", tmp_path / "m.py", draws=-1)
    run = command("no.slab", "--to", "onnx", "--out", "m.onnx", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "export: MODEL must be a file that exists, got no.slab\n"
    with_gone = {"PYTHONPATH": os.pathsep.join([str(tmp_path / "gone"), os.environ.get("PYTHONPATH", "")])}
    run = command("m.slab", "--to", "onnx", "--out", "m.onnx", cwd=tmp_path, **with_gone)
    assert run.returncode == 1
    assert run.stderr == "export: onnx must be installed to write ONNX: pip install 'slabnet[export]'\n"
    assert [p for p in sorted(tmp_path.rglob("*")) if "__pycache__" not in str(p)] == before


def test_what_a_format_cannot_hold_is_refused_by_name() -> None:
    net = nn.Sequential(sn.Conv1d(1, 2, 3), nn.AvgPool1d(2, ceil_mode=True), nn.Flatten(), sn.Linear(8, 2))
    chosen = random_model(net, 1.0, 1, rho=(-3, -1))
    with pytest.raises(sn.ArgumentError, match="rows have a known shape"):
        make_plan(net, chosen)
    small = sn.compact(net, chosen)
    small.spec["row_shape"] = [1, 9]
    with pytest.raises(sn.ArgumentError, match="AvgPool1d"):
        make_plan(small, None)
    with pytest.raises(sn.ArgumentError, match="selection must be given"):
        make_plan(net, None)
    assert isinstance(make_plan(sn.mlp((2, 2)), sn.median_model(sn.mlp((2, 2)))), Plan)


def test_every_format_has_every_head() -> None:
    from slabnet.export import as_onnx, as_torch, heads, numpy_runtime
    from slabnet.report import live

    for table in (as_onnx._HEADS, as_torch._HEADS, numpy_runtime._HEADS):
        assert set(table) == set(heads.HEADS)
    folder = Path(live.__file__).parent / "templates"
    classes = (folder / "network.js").read_text().partition("const heads = {")[2].partition("\n  };")[0]
    numbers = (folder / "responses.js").read_text().partition("const families = {")[2].partition("\n  };")[0]
    names = re.findall(r"^    \"?([a-z-]+)\"?: [({]", classes + numbers, re.MULTILINE)
    assert sorted(names) == sorted(heads.HEADS)

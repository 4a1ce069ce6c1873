"""Consistent model files of unknown origin: what they declare is weighed before anything is built."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import slabnet as sn
from slabnet.cli.table_predictions import predict_table
from slabnet.cli.workflow import inspect_file
from slabnet.core.containers import read_container, write_container
from slabnet.core.errors import SlabnetError
from slabnet.estimators.files import load_estimator, save_estimator
from slabnet.export import export
from slabnet.prediction.inspection import as_text
from slabnet.report.subject import subject_from_file
from slabnet.store import FORMAT

Parts = tuple[dict[str, Any], dict[str, Tensor]]
FIXTURES = Path(__file__).parents[1] / "fixtures" / "format-1"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    path = tmp_path_factory.mktemp("model") / "m.slab"
    sn.save(sn.mlp((3, 4, 2), seed=0), path)
    return read_container(path, "test", FORMAT)


def refused(path: Path, header: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    write_container(path, header, tensors)
    with pytest.raises(sn.FileError) as caught:
        sn.load(path)
    said = str(caught.value)
    assert said.isprintable()
    assert len(said) < 500
    return said


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_none(value: float, whole: Parts, tmp_path: Path) -> None:
    header, tensors = whole
    for name in tensors:
        other = tensors[name].clone()
        other.view(-1)[-1] = value
        assert "finite" in refused(tmp_path / "m.slab", header, tensors | {name: other})


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_other_types(kind: torch.dtype, whole: Parts, tmp_path: Path) -> None:
    header, tensors = whole
    first = min(tensors)
    refused(tmp_path / "m.slab", header, tensors | {first: tensors[first].to(kind)})
    refused(tmp_path / "m.slab", header, {name: value.to(kind) for name, value in tensors.items()})
    assert "type" in refused(tmp_path / "m.slab", header, tensors | {first: tensors[first].double()})


def test_double_precision_loads(whole: Parts, tmp_path: Path) -> None:
    sn.save(sn.mlp((3, 4, 2)).double(), tmp_path / "m.slab")
    assert next(sn.load(tmp_path / "m.slab").parameters()).dtype == torch.float64


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": [9000, 9000]},
        {"sizes": [2**40, 2**40]},
        {"sizes": [1] * 20_000},
        {"sizes": [3, "x"]},
        {"sizes": []},
        {"sizes": None},
        {"method": "ensemble", "options": {"members": 20_000}},
        {"method": "ensemble", "options": {"members": 2.5}},
        {"options": 5},
        {"start": 5},
        {"seed": 3},
        {"prior": 5},
        {"prior": {"include": [10**9]}},
        {"likelihood": 5},
        {"likelihood": {"name": "gaussian", "outputs": 10**9}},
        {"likelihood": {"name": ["gaussian"]}},
        {"kind": "convnet", "input_shape": [1, 8, 8], "classes": 3, "channels": [4], "kernel_size": 20001, "pool": 1},
        {"kind": "convnet"},
        {"kind": "compact"},
        {"kind": ["mlp"]},
    ],
)
def test_what_a_file_declares_is_weighed_first(change: dict[str, Any], whole: Parts, tmp_path: Path) -> None:
    header, tensors = whole
    refused(tmp_path / "m.slab", header | {"network": header["network"] | change}, tensors)


@pytest.mark.parametrize("number", [0, -3, 2, 10**30])
def test_formats_that_never_were(number: int, whole: Parts, tmp_path: Path) -> None:
    assert "format" in refused(tmp_path / "m.slab", whole[0] | {"format": number}, whole[1])


@pytest.mark.parametrize(
    "change", [{"about": []}, {"about": "x"}, {"network": 5}, {"likelihood": None}, {"version": None}]
)
def test_headers_of_another_kind(change: dict[str, Any], whole: Parts, tmp_path: Path) -> None:
    assert "whole slabnet header" in refused(tmp_path / "m.slab", whole[0] | change, whole[1])


def test_names_that_a_terminal_would_obey(whole: Parts, tmp_path: Path) -> None:
    header, tensors = whole
    said = refused(tmp_path / "m.slab", header, tensors | {"\x1b[31mX\x07": torch.zeros(1)})
    assert r"\x1b[31mX" in said
    refused(tmp_path / "\x1b[31m.slab", header | {"format": 0}, tensors)
    write_container(tmp_path / "m.slab", header | {"network": None, "class": "\x1b[31m"}, tensors)
    with pytest.raises(sn.ArgumentError) as caught:
        sn.load(tmp_path / "m.slab")
    assert str(caught.value).isprintable()


def test_a_module_of_the_user_s_own_class(tmp_path: Path) -> None:
    net = sn.convert(nn.Sequential(nn.Linear(3, 2)))
    sn.fit(net, (torch.randn(10, 3), torch.arange(10) % 2), sn.TrainConfig(epochs=1, batch_size=5),
           likelihood="categorical")  # fmt: skip
    sn.save(net, tmp_path / "m.slab")
    header, tensors = read_container(tmp_path / "m.slab", "test", FORMAT)
    for change in ({"likelihood": {"name": "x"}}, {"likelihood": {"name": "gaussian", "prior": 5}}, {"priors": 5}):
        write_container(tmp_path / "m.slab", header | change, tensors)
        with pytest.raises(sn.FileError):
            sn.load(tmp_path / "m.slab", into=sn.convert(nn.Sequential(nn.Linear(3, 2))))


@pytest.mark.parametrize(
    "about",
    [{"history": {"alpha_moving": "x"}}, {"input_names": ["a"]}, {"note": 5}],
)
def test_inspect_takes_what_is_kept_beside_a_model_only_if_it_fits(
    about: dict[str, Any], whole: Parts, tmp_path: Path
) -> None:
    write_container(tmp_path / "m.slab", whole[0] | {"about": about}, whole[1])
    assert "Every output" in as_text(inspect_file(tmp_path / "m.slab", 2))


@pytest.mark.parametrize(
    "about",
    [{"history": "x"}, {"input_names": 5}, {"epochs": 1}, {"task": "x"}, {"estimator": {"draws": "x"}}, {"job": []}],
)
def test_a_card_that_no_fit_wrote_is_refused_in_one_line(about: dict[str, Any], whole: Parts, tmp_path: Path) -> None:
    path = tmp_path / "m.slab"
    write_container(path, whole[0] | {"about": about}, whole[1])
    readers: list[Callable[[], object]] = [
        lambda: inspect_file(path, 2),
        lambda: subject_from_file(path),
        lambda: export(path, "numpy", tmp_path / "m.py"),
        lambda: predict_table(path, tmp_path / "t.csv", None),
        lambda: load_estimator(path),
    ]
    for read in readers:
        with pytest.raises(sn.FileError, match=f"{path} must say what its fit was") as caught:
            read()
        assert "\n" not in str(caught.value)
    with pytest.raises(sn.ArgumentError):
        sn.save(sn.mlp((3, 2)), tmp_path / "other.slab", **about)
    assert not (tmp_path / "other.slab").exists()


def test_a_selection_is_told_from_a_model() -> None:
    with pytest.raises(sn.FileError, match="got a selection"):
        sn.load(FIXTURES / "selection.slab")
    found = inspect_file(FIXTURES / "selection.slab", 2)
    expected = json.loads((FIXTURES / "expected.json").read_text())
    assert sum(layer["kept"] for layer in found["selection"]["layers"].values()) == expected["weights"]
    assert as_text(found).startswith("A selection, not a model: median")
    with pytest.raises(sn.FileError, match="checkpoint"):
        inspect_file(next((FIXTURES / "run").glob("*.slab")), 2)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    path = tmp_path_factory.mktemp("estimator") / "e.slab"
    x = np.random.default_rng(0).normal(size=(30, 3))
    save_estimator(sn.SlabClassifier(hidden=(4,), epochs=1).fit(x, np.array(["a", "b"] * 15)), path)
    return read_container(path, "test", FORMAT)


@pytest.mark.parametrize(
    "change",
    [
        {"classes_type": 5},
        {"classes_type": "V8"},
        {"classes_type": "x"},
        {"classes": [["a"], ["b"]]},
        {"classes": ["a", "a"]},
        {"classes": 5},
        {"scaling_x": {"center": [[0.0]] * 3, "scale": [[1.0]] * 3}},
        {"scaling_x": 5},
        {"feature_effects": ["x"]},
        {"feature_effects": []},
        {"draws": "x"},
        {"draws": 10**12},
        {"seed": "x"},
        {"samples_seen": None},
        {"kind": []},
    ],
)
def test_estimators_that_were_made_up(change: dict[str, Any], fitted: Parts, tmp_path: Path) -> None:
    header, tensors = fitted
    about = header["about"] | {"estimator": header["about"]["estimator"] | change}
    write_container(tmp_path / "e.slab", header | {"about": about}, tensors)
    with pytest.raises(sn.FileError):
        load_estimator(tmp_path / "e.slab")


def test_labels_that_claim_to_be_wide_take_no_memory(fitted: Parts, tmp_path: Path) -> None:
    header, tensors = fitted
    about = header["about"] | {"estimator": header["about"]["estimator"] | {"classes_type": "<U100000000"}}
    write_container(tmp_path / "e.slab", header | {"about": about}, tensors)
    model = load_estimator(tmp_path / "e.slab")
    assert isinstance(model, sn.SlabClassifier)
    assert model.classes_.tolist() == ["a", "b"]
    assert model.classes_.nbytes < 100


@pytest.mark.parametrize("change", [{"history": "x"}, {"history": {"epoch": "x"}}, {"input_names": ["a"]}])
def test_what_an_estimator_keeps_beside_it(change: dict[str, Any], fitted: Parts, tmp_path: Path) -> None:
    header, tensors = fitted
    write_container(tmp_path / "e.slab", header | {"about": header["about"] | change}, tensors)
    with pytest.raises(SlabnetError):
        load_estimator(tmp_path / "e.slab")

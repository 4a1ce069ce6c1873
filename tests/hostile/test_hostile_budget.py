"""Small files that declare much: each is loaded or refused in seconds and within 500 MB, by a process that has no more.

Every file here has a right checksum. A process of its own reads it under limits of the system, after slabnet is loaded.
"""

from __future__ import annotations

import copy
import functools
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import run
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

import slabnet as sn
from slabnet.core.containers import (
    _HEADER,
    MOST_LISTS,
    MOST_TENSORS,
    _checksum,
    as_text,
    read_container,
    write_container,
)
from slabnet.estimators.files import save_estimator
from slabnet.store import FORMAT
from slabnet.training.checkpoints import checkpoints_in

Parts = tuple[dict[str, Any], dict[str, Tensor]]
SECONDS, MEGABYTES = 5, 500  # of the processor: some more than it should take, as machines differ
LARGEST = 1 << 24  # bytes of a file here

READER = """
import json, os, resource, sys, time
import torch
torch.set_num_threads(1)
from pathlib import Path
from torch import nn
import slabnet as sn
from slabnet.cli.workflow import inspect_file
from slabnet.estimators.files import load_estimator

def resumed(path):
    net, x = sn.mlp((3, 4, 2), seed=0), torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    folder = Path(path).parent / (Path(path).name + ".run")
    folder.mkdir()
    os.link(path, folder / "checkpoint-0000000002-end.slab")
    config = sn.TrainConfig(epochs=1, batch_size=20)
    sn.fit(net, (x, (x[:, 0] > 0).long()), config, checkpoint=folder, resume=True, progress="off")

WAYS = {
    "load": sn.load,
    "into": lambda path: sn.load(path, into=sn.convert(nn.Sequential(nn.Linear(3, 2)))),
    "selection": lambda path: sn.load_selection(path, sn.mlp((3, 4, 2))),
    "inspect": lambda path: inspect_file(Path(path), 2),
    "estimator": load_estimator,
    "resume": resumed,
}
usual = sys.argv[1]  # what a first call makes once for all is not of the file
sn.predict(sn.load(usual), torch.zeros(2, 3), draws=2)
for way, path in json.loads(sys.stdin.read()):
    child = os.fork()
    if not child:
        said, started = "", time.monotonic()
        virtual = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (virtual + MEGABYTES * 2**20,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS,) * 2)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            WAYS[way](path)
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
        found = {"said": said, "seconds": round(time.monotonic() - started, 2), "MB": grown}
        print(json.dumps(found), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(json.dumps({"said": "killed: too long, or out of memory in C", "seconds": SECONDS, "MB": 0}), flush=True)
""".replace("MEGABYTES", str(MEGABYTES)).replace("SECONDS", str(SECONDS))


def forge(path: Path, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """A file as an attacker may write it, whatever our own writer refuses."""
    text = as_text(header | {"checksum": _checksum(as_text(header), tensors)})
    path.write_bytes(to_bytes(tensors, {_HEADER: text}))
    assert path.stat().st_size <= LARGEST


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Parts]:
    """One whole file of each kind."""
    folder = tmp_path_factory.mktemp("kept")
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    net = sn.mlp((3, 4, 2), seed=0)
    sn.fit(net, (x, (x[:, 0] > 0).long()), sn.TrainConfig(epochs=1, batch_size=20), checkpoint=folder / "run")
    sn.save(net, folder / "mlp")
    sn.save_selection(sn.median_model(net, infeasible="path"), folder / "selection")
    conv = sn.convnet((2, 6, 6), 3, channels=(4, 5), hidden=(6,))
    sn.save(conv, folder / "convnet")
    for keep in ("means", "distribution"):
        for name, full in (("mlp", net), ("convnet", conv)):
            chosen = sn.median_model(full, infeasible="path")
            sn.save(sn.compact(full, chosen, keep=keep), folder / f"compact {name} {keep}")  # type: ignore[arg-type]
    own = sn.convert(nn.Sequential(nn.Linear(3, 2)))
    sn.fit(own, (x, x[:, :2]), sn.TrainConfig(epochs=1, batch_size=20), likelihood=sn.Gaussian(outputs=2))
    sn.save(own, folder / "own")
    labels = np.where(x[:, 0] > 0, "yes", "no")
    save_estimator(sn.SlabClassifier((4,), epochs=1).fit(x.numpy(), labels), folder / "estimator")
    frame = {"size": x[:, 0].numpy(), "colour": ["red", "green", "blue", "grey"] * 10}
    save_estimator(sn.SlabRegressor((4,), epochs=1).fit(pd.DataFrame(frame), x[:, 1].numpy()), folder / "table")
    paths = {path.name: path for path in folder.iterdir() if path.is_file()} | {
        "checkpoint": checkpoints_in(folder / "run")[-1]
    }
    return {name: read_container(path, "test", FORMAT) for name, path in paths.items()}


def network(change: dict[str, Any]) -> Callable[[Parts], Parts]:
    def changed(parts: Parts) -> Parts:
        header, tensors = parts
        return header | {"network": header["network"] | change}, tensors

    return changed


def part(kind: str, change: dict[str, Any], more: dict[str, Tensor] | None = None) -> Callable[[Parts], Parts]:
    """The first part of that kind of a compact network, changed."""

    def changed(parts: Parts) -> Parts:
        header, tensors = copy.deepcopy(parts[0]), parts[1]
        index = next(i for i, said in enumerate(header["network"]["parts"]) if said["part"] == kind)
        header["network"]["parts"][index] |= change
        return header, tensors | {f"{index}.{name}": value for name, value in (more or {}).items()}

    return changed


def beside(change: dict[str, Any]) -> Callable[[Parts], Parts]:
    def changed(parts: Parts) -> Parts:
        header, tensors = copy.deepcopy(parts[0]), parts[1]
        header["about"]["estimator"] |= change
        return header, tensors

    return changed


def about(value: Any) -> Callable[[Parts], Parts]:
    return lambda parts: (parts[0] | {"about": value}, parts[1])


def many_layers(parts: Parts) -> Parts:
    """As many compact layers as go into a file, each of which declares as many entries as one may have."""
    header = copy.deepcopy(parts[0])
    said = next(part for part in header["network"]["parts"] if part["part"] == "layer")
    wide = said | {"of": [4096, 8192], "inputs": 8192}
    made = {"inputs": torch.arange(8192, dtype=torch.int16)}
    for i in range(200):
        made |= {f"{i}.units": torch.arange(4096, dtype=torch.int16), f"{i}.counts": torch.zeros(4096).byte()}
        made |= {f"{i}.columns": torch.zeros(0).byte(), f"{i}.mu": torch.zeros(0), f"{i}.bias_mu": torch.zeros(4096)}
    parts_of = [wide | {"name": str(i)} for i in range(200)]
    return header | {"network": header["network"] | {"parts": parts_of, "row_shape": None}}, made


def deepest(parts: Parts) -> Parts:
    """A network of as many layers as are built from a file."""
    net = sn.mlp([1] * 1000 + [2], seed=0)
    return parts[0] | {"network": net.spec}, net.state_dict()


def fullest(parts: Parts) -> Parts:
    """Lists, names and tensors nearly as many as a file may hold."""
    header, _ = parts
    more = {"lists": [[]] * 260_000, "names": {f"{i:x}": 1 for i in range(520_000)}}
    return header | {"about": more}, {f"{i:x}": torch.zeros(20) for i in range(16_000)}


def gates(inputs: int, groups: dict[str, list[int]]) -> Callable[[Parts], Parts]:
    """A network of one layer with gates for so many inputs, and about as many numbers as it has."""

    def changed(parts: Parts) -> Parts:
        wide = {"sizes": [inputs, 1], "likelihood": {"name": "bernoulli"}, "gates": ["inputs"], "psi_gate": 0.5}
        header = parts[0] | {"network": parts[0]["network"] | wide | {"column_groups": groups}}
        return header, {"x": torch.zeros(2 * inputs)}

    return changed


def columns(change: Callable[[list[dict[str, Any]]], None]) -> Callable[[Parts], Parts]:
    """The columns of an estimator's table, changed in place."""

    def changed(parts: Parts) -> Parts:
        header = copy.deepcopy(parts[0])
        change(header["about"]["table"]["columns"])
        return header, parts[1]

    return changed


def mixture(members: int, sizes: list[int]) -> Callable[[Parts], Parts]:
    def changed(parts: Parts) -> Parts:
        each = parts[0]["network"] | {"sizes": sizes, "likelihood": {"name": "bernoulli"}}
        spec = {"kind": "mixture", "members": [each] * members, "likelihood": {"name": "bernoulli"}}
        return parts[0] | {"network": spec}, {f"{i}": torch.zeros(200) for i in range(10_000)}

    return changed


def psi_of_each_weight(parts: Parts) -> Parts:
    """A number for every weight, in as many layers as are built from a file."""
    sizes = [50] * 999 + [1]
    shapes = [[b, a] for a, b in itertools.pairwise(sizes)]
    count = sum(a * b for a, b in shapes)
    psi = {"shapes": shapes, "values": [0.5] * 500_000, "runs": [1] * 499_999 + [count - 499_999]}
    prior = parts[0]["network"]["prior"] | {"psi": psi}
    spec = parts[0]["network"] | {"sizes": sizes, "prior": prior, "likelihood": {"name": "bernoulli"}}
    return parts[0] | {"network": spec}, {f"{i}": torch.zeros(1300) for i in range(2000)}


BIG = 10**3999
LONG = [1] * 1_000_000
NUMBERS = [3] * 2_000_000
ATTACKS: dict[str, tuple[str, str, Callable[[Parts], Parts]]] = {
    "a kernel of 4 000 digits": (
        "load",
        "convnet",
        network({"kernel_size": BIG, "input_shape": [1] * 40_000}),
    ),
    "many dimensions": ("load", "convnet", network({"input_shape": LONG})),
    "a pool of 4 000 digits": ("load", "convnet", network({"pool": BIG, "channels": [1] * 30})),
    "a long pool": ("load", "convnet", network({"pool": LONG})),
    "sides of 4 000 digits": ("load", "convnet", network({"input_shape": [1, BIG, BIG], "pool": 1})),
    "many channels": ("load", "convnet", network({"channels": LONG})),
    "many pools": ("load", "convnet", network({"channels": [1] * 100_000, "pool": 2})),
    "sizes of 4 000 digits": ("load", "mlp", network({"sizes": [BIG] * 3000})),
    "many layers": ("load", "mlp", network({"sizes": LONG})),
    "many members": ("load", "mlp", network({"method": "ensemble", "options": {"members": BIG}})),
    "inputs without weights": ("load", "mlp", network({"sizes": [0, 2**30, 0, 2]})),
    "input_psi": ("load", "mlp", network({"prior": {"psi": 0.1, "input_psi": [0.1] * 1_000_000}})),
    "included inputs": ("load", "mlp", network({"prior": {"psi": 0.1, "include": list(range(1_000_000))}})),
    "outputs of a likelihood": ("load", "mlp", network({"likelihood": {"name": "gaussian", "outputs": 300_000_000}})),
    "outputs of a compact likelihood": (
        "load",
        "compact mlp means",
        network({"likelihood": {"name": "gaussian", "outputs": 300_000_000}}),
    ),
    "outputs of an attached likelihood": (
        "into",
        "own",
        lambda parts: (parts[0] | {"likelihood": {"name": "gaussian", "outputs": 600_000_000}}, parts[1]),
    ),
    "a long row_shape": ("load", "compact mlp means", network({"row_shape": LONG})),
    "a long of": ("load", "compact mlp means", part("layer", {"of": LONG})),
    "an of of 4 000 digits": ("load", "compact mlp means", part("layer", {"of": [BIG, BIG], "groups": BIG})),
    "long counts": ("load", "compact mlp means", part("layer", {}, {"counts": torch.full((4,), 400_000_000)})),
    "counts that come round": (
        "load",
        "compact mlp means",
        part("layer", {}, {"counts": torch.tensor([400_000_000, -400_000_000, 1, 1])}),
    ),
    "a wide layer": ("load", "compact mlp means", part("layer", {"of": [4, 2**22], "inputs": 2**22})),
    "wide layers": ("load", "compact mlp means", many_layers),
    "edges": ("load", "compact convnet means", part("layer", {"edges": [9000] * 4})),
    "edges below the limit": ("load", "compact convnet means", part("layer", {"edges": [4095] * 4})),
    "dilation": ("load", "compact convnet distribution", part("layer", {"dilation": [4095] * 2})),
    "a pool of a compact network": ("load", "compact convnet means", part("MaxPool2d", {"kernel_size": LONG})),
    "many parts": (
        "load",
        "compact mlp means",
        lambda parts: network({"parts": [{"part": "ReLU"}] * 500_000 + parts[0]["network"]["parts"]})(parts),
    ),
    "labels of 500 MB": ("estimator", "estimator", beside({"classes_type": "<U65000000"})),
    "labels as bytes of 500 MB": ("estimator", "estimator", beside({"classes_type": "S250000000"})),
    "labels as nothing of 500 MB": ("estimator", "estimator", beside({"classes_type": "V250000000"})),
    "labels as tables": ("estimator", "estimator", beside({"classes_type": "(8000,8000)f8"})),
    "a million draws": ("estimator", "estimator", beside({"draws": 1_000_000})),
    "long scales": ("estimator", "estimator", beside({"scaling_x": {"centre": NUMBERS, "scale": NUMBERS}})),
    "a support of lists": ("estimator", "estimator", beside({"support": {"low": [[1]] * 1_000_000}})),
    "tiny tensors": (
        "load",
        "mlp",
        lambda parts: (parts[0], {f"{i:x}": torch.zeros(0) for i in range(220_000)}),
    ),
    "tiny tensors of a selection": (
        "inspect",
        "selection",
        lambda parts: (parts[0], {f"selection:{i:x}:0": torch.zeros(0).bool() for i in range(180_000)}),
    ),
    "tiny tensors of a checkpoint": (
        "resume",
        "checkpoint",
        lambda parts: (parts[0], parts[1] | {f"pending:{i}": torch.zeros(0) for i in range(200_000)}),
    ),
    "very many dimensions": ("load", "mlp", lambda parts: (parts[0], {"a": torch.zeros([1] * 2_000)})),
    "nothing, very wide": ("load", "mlp", lambda parts: (parts[0], {"a": torch.zeros(0, 2**60)})),
    "lists of lists": ("load", "mlp", about({"a": [[]] * 3_800_000})),
    "tables of tables": ("load", "mlp", about({"a": [{}] * 3_800_000})),
    "tables of one": ("load", "mlp", about({"a": [{"a": 1}] * 1_300_000})),
    "very many names": ("load", "mlp", about({f"{i:x}": 1 for i in range(1_100_000)})),
    "very many words": ("load", "mlp", about({"a": [f"{i:x}" for i in range(1_200_000)]})),
    "very many numbers": ("load", "mlp", about({"a": [0.1 + i / 8 for i in range(1_000_000)]})),
    "very many large numbers": ("load", "mlp", about({"a": [BIG + i for i in range(3_500)]})),
    "an escaped text": ("load", "mlp", about({"a": "\u20ac" * 1_000_000})),
    "as much as is allowed": ("inspect", "selection", fullest),
    "as many layers as are allowed": ("load", "mlp", deepest),
    "gates of 30 000 inputs": ("load", "mlp", gates(30_000, {f"{i:x}": [i] for i in range(30_000)})),
    "gates of 250 000 inputs": ("load", "mlp", gates(250_000, {f"{i:x}": [i] for i in range(250_000)})),
    "gates of 2 million inputs": ("load", "mlp", gates(2_000_000, {})),
    "a long group beside short ones": (
        "load",
        "mlp",
        gates(240_000, {"a": list(range(120_000))} | {f"{i:x}b": [i, i + 1] for i in range(120_000, 240_000, 2)}),
    ),
    "a long name of many levels": (
        "estimator",
        "table",
        columns(lambda c: c[1].update(name="b" * 1_000_000, levels=[str(i) for i in range(2000)])),
    ),
    "many levels": ("estimator", "table", columns(lambda c: c[1].update(levels=[str(i) for i in range(900_000)]))),
    "psi of each weight": ("load", "mlp", psi_of_each_weight),
    "a long matrix of correlations": (
        "load",
        "mlp",
        network({"prior": {"psi": 0.1, "dilution": [[0.5] * 1500] * 1500}, "gates": ["inputs"]}),
    ),
    "many members of a mixture": ("load", "mlp", mixture(100, [3, 4, 1])),
    "many deep members of a mixture": ("load", "mlp", mixture(100, [1] * 990)),
    "long scores of a calibration": ("estimator", "estimator", beside({"conformal": [[1]] * 200_000})),
    "a long trial": ("estimator", "estimator", beside({"trial": [1.0, NUMBERS, 5]})),
    "steps of 4 000 digits": (
        "resume",
        "checkpoint",
        lambda parts: (parts[0] | {"state": parts[0]["state"] | {"steps": BIG, "rows": BIG}}, parts[1]),
    ),
    "long cuts": (
        "resume",
        "checkpoint",
        lambda parts: (
            parts[0]
            | {
                "state": parts[0]["state"] | {"cuts": [{"epoch": 1, "left": NUMBERS, "log_likelihood": 0.0, "kl": 0.0}]}
            },
            parts[1],
        ),
    ),
}


LARGE = {name for name in ATTACKS if name.split(" ")[0] in ("many", "tiny", "lists", "tables", "very", "as", "long")}
LARGE |= {"input_psi", "included inputs", "a long row_shape", "a long of", "a long pool", "a pool of a compact network"}
LARGE |= {"a support of lists", "an escaped text", "sizes of 4 000 digits", "a long group beside short ones"}
LARGE |= {
    "gates of 250 000 inputs",
    "gates of 2 million inputs",
    "a long trial",
    "psi of each weight",
    "a long matrix of correlations",
}
HARMLESS = {  # what was asked for is not there, or only text: the rest of the file is read
    "labels of 500 MB", "very many words", "very many numbers", "an escaped text", "as much as is allowed",
    "as many layers as are allowed", "long cuts", "steps of 4 000 digits", "tiny tensors of a checkpoint",
}  # fmt: skip


@pytest.fixture(scope="module")
def read_all(kept: dict[str, Parts], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What comes of some attacks, in one process for all and a child of it for each."""

    @functools.cache
    def outcomes(large: bool) -> dict[str, dict[str, Any]]:
        folder = tmp_path_factory.mktemp("attacks")
        forge(folder / "usual", *kept["mlp"])
        names = [name for name in ATTACKS if (name in LARGE) == large]
        jobs = []
        for number, name in enumerate(names):
            way, kind, change = ATTACKS[name]
            forge(folder / f"{number}.slab", *change(kept[kind]))
            jobs.append([way, str(folder / f"{number}.slab")])
        command = [sys.executable, "-c", READER, str(folder / "usual")]
        done = run(command, input=json.dumps(jobs), capture_output=True, text=True, check=True)
        return dict(zip(names, map(json.loads, done.stdout.splitlines()), strict=True))

    return outcomes


def named(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name


@pytest.mark.parametrize("name", [named(name) for name in ATTACKS])
def test_a_file_takes_no_more_than_its_size_allows(name: str, read_all: Any) -> None:
    found = read_all(name in LARGE)[name]
    said = found["said"]
    assert said.split(":")[0] in ("FileError", "ArgumentError") or (said == "" and name in HARMLESS), found
    assert len(said) < 500
    assert said.isprintable()
    assert found["MB"] <= MEGABYTES, found


def test_we_write_no_file_that_we_do_not_read(tmp_path: Path) -> None:
    for header, tensors in (
        ({"about": [[]] * (MOST_LISTS + 1)}, {}),
        ({}, {f"{i}": torch.zeros(0) for i in range(MOST_TENSORS + 1)}),
        ({}, {"a": torch.zeros([1] * 9)}),
    ):
        with pytest.raises(sn.FileError, match="must hold at most"):
            write_container(tmp_path / "m.slab", header, tensors)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(sn.ArgumentError, match="at most 1001 long"):
        sn.save(sn.mlp([1] * 1001 + [2], method="deterministic"), tmp_path / "m.slab")

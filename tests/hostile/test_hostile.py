"""Unknown files: cut off, flipped, too large, of another kind. One line, or the right answer; no traceback."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save as to_bytes

import slabnet as sn
from slabnet.config.settings import Recipe
from slabnet.core.containers import read_container, write_container
from slabnet.core.errors import SlabnetError
from slabnet.data.idx import read_idx
from slabnet.experiments.files import read_record, write_record
from slabnet.selection.rules import threshold_model
from slabnet.store import read_header
from slabnet.training.checkpoints import FORMAT, checkpoints_in

FLIPS = 2000
Reader = Callable[[Path], Any]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One file of every kind we write or read, and what it holds."""
    folder = tmp_path_factory.mktemp("files")
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    net = sn.mlp((3, 4, 2), seed=0)
    sn.fit(net, (x, y), sn.TrainConfig(epochs=1, batch_size=20), checkpoint=folder / "run")
    sn.save(net, folder / "m.slab", note="ours")
    sn.save_selection(threshold_model(net), folder / "s.slab")
    (folder / "c.toml").write_text("[train]\nepochs = 3\nlr = 0.01\n[network]\nhidden = [4, 5]\n")
    images = np.arange(2 * 5 * 5, dtype=np.uint8).tobytes()
    (folder / "i.idx").write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, 2, 5, 5) + images)
    (folder / "i.idx.gz").write_bytes(gzip.compress((folder / "i.idx").read_bytes(), mtime=0))
    write_record(folder / "r.json", {"plan": {"seed": 3}, "rows": [{"accuracy": 0.25, "gamma": "SIM"}], "layers": []})
    names = {
        "model": "m.slab",
        "record": "r.json",
        "selection": "s.slab",
        "TOML": "c.toml",
        "IDX": "i.idx",
        "gzipped IDX": "i.idx.gz",
    }
    return {kind: folder / name for kind, name in names.items()} | {"checkpoint": checkpoints_in(folder / "run")[-1]}


def resumed(path: Path) -> Any:
    """What resuming from a folder with just this checkpoint gives."""
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    net = sn.mlp((3, 4, 2), seed=0)
    folder = path.parent / "one"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    (folder / "checkpoint-0000000002-end.slab").write_bytes(path.read_bytes())
    config = sn.TrainConfig(epochs=1, batch_size=20)
    sn.fit(net, (x, (x[:, 0] > 0).long()), config, checkpoint=folder, resume=True)
    return [value.clone() for value in net.state_dict().values()]


READERS: dict[str, Reader] = {
    "model": lambda path: [*sn.load(path).state_dict().values(), read_header(path)["about"]],
    "selection": lambda path: sn.load_selection(path, sn.mlp((3, 4, 2))).masks,
    "checkpoint": resumed,
    "record": read_record,
    "TOML": Recipe.from_toml,
    "IDX": read_idx,
    "gzipped IDX": read_idx,
}
OURS = ("model", "selection", "checkpoint", "record")  # these carry a checksum: damage must be found


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return bool((a == b).all())
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


def attempt(kind: str, path: Path, content: bytes, wanted: Any) -> None:
    """Read it: the right answer, or one line."""
    path.write_bytes(content)
    said, got = "", None
    try:
        got = READERS[kind](path)
    except SlabnetError as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 1000
    assert said or kind not in OURS or same(got, wanted), "a damaged file gave another answer"


@pytest.mark.parametrize("kind", READERS)
def test_cut_off_at_every_hundredth(kind: str, kept: dict[str, Path], tmp_path: Path, counts: dict[str, int]) -> None:
    whole, wanted = kept[kind].read_bytes(), READERS[kind](kept[kind])
    for percent in range(100):
        attempt(kind, tmp_path / kept[kind].name, whole[: len(whole) * percent // 100], wanted)
    counts[f"{kind}: files cut off"] = 100


@pytest.mark.parametrize("kind", READERS)
def test_flipped_bits(kind: str, kept: dict[str, Path], tmp_path: Path, counts: dict[str, int]) -> None:
    whole, wanted = kept[kind].read_bytes(), READERS[kind](kept[kind])
    chance = random.Random(11)
    flips = FLIPS if kind != "checkpoint" else FLIPS // 8  # each of these is a run of its own; see below
    for _ in range(flips):
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        attempt(kind, tmp_path / kept[kind].name, bytes(content), wanted)
    counts[f"{kind}: files with a flipped bit"] = flips


@pytest.mark.slow
def test_flipped_bits_of_a_checkpoint_are_all_found(
    kept: dict[str, Path], tmp_path: Path, counts: dict[str, int]
) -> None:
    whole = kept["checkpoint"].read_bytes()
    path, chance = tmp_path / "c.slab", random.Random(12)
    for _ in range(FLIPS):
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        with pytest.raises(sn.FileError):
            read_container(path, "resume", FORMAT)
    counts["checkpoint: files with a flipped bit, opened only"] = FLIPS


class Trap:
    """Unpickling this would leave a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize("kind", READERS)
def test_a_pickle_under_our_name_is_never_opened(kind: str, kept: dict[str, Path], tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for content in (pickle.dumps(Trap(mark)), gzip.compress(pickle.dumps(Trap(mark)))):
        with pytest.raises(SlabnetError) if kind != "checkpoint" else _nothing():
            path = tmp_path / kept[kind].name
            path.write_bytes(content)
            READERS[kind](path)
    assert not mark.exists()


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()  # a run whose checkpoint is no checkpoint starts from the beginning


def test_huge_declared_sizes_take_no_memory(kept: dict[str, Path], tmp_path: Path, counts: dict[str, int]) -> None:
    whole = kept["model"].read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])
    name = next(n for n in header if n != "__metadata__")
    bombs = []
    for shape in ([1 << 40], [1 << 20, 1 << 20], [-1], [1 << 62, 4]):
        changed = header | {name: header[name] | {"shape": shape}}
        text = json.dumps(changed).encode()
        bombs.append(struct.pack("<Q", len(text)) + text + whole[8 + length :])
        changed[name] = changed[name] | {"data_offsets": [0, 1 << 50]}
        text = json.dumps(changed).encode()
        bombs.append(struct.pack("<Q", len(text)) + text + whole[8 + length :])
    bombs += [struct.pack("<Q", 1 << 60) + whole[8:], struct.pack("<Q", len(whole)) + whole[8:]]
    for bomb in bombs:
        attempt("model", tmp_path / "m.slab", bomb, None)
    idx = struct.pack(">4B3I", 0, 0, 8, 3, 1 << 31, 1 << 31, 1 << 31)
    for content in (idx, idx + bytes(100), struct.pack(">4B", 0, 0, 8, 255) + bytes(1020)):
        attempt("IDX", tmp_path / "i.idx", content, None)
    zeros = gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 1, 1, 10) + bytes(300_000_000), compresslevel=1)
    attempt("gzipped IDX", tmp_path / "i.idx.gz", zeros, None)
    counts["files that declare or unpack to huge sizes"] = len(bombs) + 4


def test_deep_and_odd_headers(tmp_path: Path) -> None:
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    long = '{"a": [' + "[]," * 6_000_000 + "[]]}"
    for text in (deep, long, "[1]", "1", '"x"', "null", "{}", '{"format": true}', '{"format": 99}', '{"format": NaN}'):
        content = to_bytes({"a": torch.zeros(1)}, {"slabnet": text})
        with pytest.raises(SlabnetError):
            (tmp_path / "m.slab").write_bytes(content)
            sn.load(tmp_path / "m.slab")


def test_names_in_a_file_are_only_names(tmp_path: Path) -> None:
    """A header that names a path, a class or a module of the standard library opens none of them."""
    net = sn.mlp((3, 2))
    spec = dict(net.spec)
    for change in ({"method": "../../etc/passwd"}, {"activation": "os.system"}, {"kind": "__import__"}):
        header = {"format": 1, "version": "0", "network": spec | change, "likelihood": {"name": "categorical"}}
        header |= {"about": {}}
        write_container(tmp_path / "m.slab", header, {k: v.contiguous() for k, v in net.state_dict().items()})
        with pytest.raises(SlabnetError, match="describes no network slabnet knows"):
            sn.load(tmp_path / "m.slab")


def test_numbers_that_are_none_do_not_reach_a_model(tmp_path: Path) -> None:
    net = sn.mlp((3, 2))
    with torch.no_grad():
        net.body[1].weight.mu[0, 0] = float("nan")
    with pytest.raises(sn.ArgumentError, match="finite"):
        sn.save(net, tmp_path / "m.slab")
    assert not (tmp_path / "m.slab").exists()


@pytest.mark.parametrize(
    "text",
    [
        "self = 1", "[train]\nself = 1", "train = 5", "train = [1]", "x = 1" + "0" * 6000, "a" + ".a" * 20_000 + " = 1",
        "x = {a" + ".a" * 20_000 + " = 1}", "\"a,\"" + ".\"a,\"" * 20_000 + " = 1", "x = 1\n" * 300_000,
        "epochs = 99999999999999999999999", "seed = -1", "epochs = -1",
        "lr = nan", "lr = inf", "epochs = 1e400", "[train]\nepochs = 'x'", "a = " + "[" * 3000, "\x00",
    ],
)  # fmt: skip
def test_odd_settings(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(text)
    for read in (sn.TrainConfig.from_toml, Recipe.from_toml):
        with pytest.raises(sn.ArgumentError):
            read(tmp_path / "c.toml")


@pytest.mark.parametrize(
    "text", ["[network]\nhidden = [1000000000000]", "[prior.slab]\nself = 1", "[prior.psi]\nself = 1"]
)
def test_odd_recipes(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(sn.ArgumentError):
        Recipe.from_toml(tmp_path / "c.toml")


def test_long_lists_of_numbers_are_no_keys(tmp_path: Path) -> None:
    numbers = ", ".join(["0.25"] * 784)
    (tmp_path / "c.toml").write_text(f"[prior]\r\ninput_psi = [{numbers}]\r\n")
    assert len(Recipe.from_toml(tmp_path / "c.toml").prior.input_psi or ()) == 784

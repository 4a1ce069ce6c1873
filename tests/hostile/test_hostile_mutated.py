"""Thousands of consistent compact files with something changed: an answer or one line, and no foreign memory.

`make test-asan` runs this with more files, on a build of the compiled passes that looks at every address.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import slabnet as sn
from slabnet.core.containers import read_container, write_container
from slabnet.store import FORMAT

COUNT = int(os.environ.get("SLABNET_MUTATIONS", "200"))
NUMBERS = (0, 1, -1, 2, 3, 7, 40, 41, 255, 10**5, 2**31 - 1, -(2**31), 10**20, 0.5, None, True, "x", [1], [])


def networks() -> dict[str, sn.Network]:
    made = {"mlp": sn.mlp((40, 30, 20, 2), seed=0), "convnet": sn.convnet((2, 6, 6), 3, channels=(4, 5), hidden=(6,))}
    generator = torch.Generator().manual_seed(0)
    found = {}
    for kind, net in made.items():
        with torch.no_grad():
            for name, value in net.named_parameters():
                if name.endswith("omega"):
                    value.uniform_(-14 if kind == "mlp" else -3, 2, generator=generator)
        for keep in ("means", "distribution"):
            found[f"{kind} {keep}"] = sn.compact(net, sn.median_model(net), keep=keep)
    return found


def places(tree: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to every value in nested dictionaries and lists."""
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in inside:
        yield (*above, key)
        yield from places(value, (*above, key))


def change_header(header: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    changed = copy.deepcopy(header)
    *above, last = draw.choice(list(places(changed["network"])))
    inside = changed["network"]
    for key in above:
        inside = inside[key]
    action = draw.randrange(5)
    if action == 0 and isinstance(inside, list):
        inside.insert(draw.randrange(len(inside) + 1), copy.deepcopy(draw.choice(inside)))
    elif action == 1:
        del inside[last]
    elif action == 2 and isinstance(parts := changed["network"].get("parts"), list):
        parts.insert(draw.randrange(len(parts) + 1), {"part": "Take", "dim": draw.choice((0, 1, 2, -1, -2))})
    else:
        inside[last] = draw.choice(NUMBERS)
    return changed


def change_tensors(tensors: dict[str, Tensor], draw: random.Random) -> dict[str, Tensor]:
    changed = dict(tensors)
    name = draw.choice(sorted(changed))
    value = changed[name].clone().reshape(-1)
    action = draw.randrange(6)
    if action == 0:
        del changed[name]
        return changed
    if action == 1:
        value = torch.cat([value, value[: draw.randrange(len(value) + 1)]])
    elif action == 2:
        value = value[: draw.randrange(len(value) + 1)].clone()
    elif len(value) and not value.is_floating_point():
        value = value.to(torch.int32)
        value[draw.randrange(len(value))] = draw.choice((0, 1, -1, 5, 39, 40, 255, 30_000, 2**31 - 1, -(2**31)))
    elif len(value):
        value[draw.randrange(len(value))] = draw.choice((0.0, -1.0, 1e30, -1e30, 1e-40, float("nan"), float("inf")))
    changed[name if action < 5 else draw.choice((*sorted(changed), "0.index", "1.index"))] = value
    return changed


def test_mutated_files_are_answers_or_lines(tmp_path: Path, counts: dict[str, int]) -> None:
    draw, path = random.Random(1), tmp_path / "m.slab"
    lines = answers = torches = 0
    sources = {}
    for name, net in networks().items():
        sn.save(net, path)
        sources[name] = read_container(path, "test", FORMAT)
    for number in range(COUNT):
        header, tensors = sources[draw.choice(sorted(sources))]
        shape = tuple(header["network"]["row_shape"])
        changed, values = header, tensors
        for _ in range(draw.randrange(1, 4)):
            if draw.random() < 0.6:
                changed = change_header(changed, draw)
            else:
                values = change_tensors(values, draw)
        if draw.random() < 0.2:
            changed = copy.deepcopy(changed)
            changed["network"]["row_shape"] = None
        write_container(path, changed, values)
        x = torch.randn(draw.choice((1, 5, 70)), *shape, generator=torch.Generator().manual_seed(number))
        try:
            use(sn.load(path), x)
        except sn.SlabnetError as error:
            lines += "\n" not in str(error)
        except (
            RuntimeError,
            TypeError,
            ValueError,
            IndexError,
        ):  # torch's own word on rows of a shape that no file promised
            torches += changed["network"].get("row_shape") is None
        else:
            answers += 1
    assert lines > COUNT / 4
    assert lines + answers + torches == COUNT
    counts["compact: consistent files with something changed"] = COUNT


def use(net: sn.Network, x: Tensor) -> None:
    with torch.no_grad():
        net(x)
    sn.predict(net, x, draws=2, seed=0)
    if isinstance(net, sn.Compact) and net.keep == "distribution":
        y = torch.arange(len(x)) % 2
        sn.fit(net, (x, y), sn.TrainConfig(epochs=1, batch_size=len(x)), progress="off")


def test_a_take_along_rows_is_refused(tmp_path: Path) -> None:
    """The positions of such a part would reach the compiled pass as columns, unchecked."""
    path = tmp_path / "m.slab"
    sn.save(networks()["mlp means"], path)
    header, tensors = read_container(path, "test", FORMAT)
    first = next(part for part in header["network"]["parts"] if part["part"] == "Take")
    for dim in (0, 2, -2, "x", None):
        first["dim"] = dim
        write_container(path, header, tensors)
        with pytest.raises(sn.SlabnetError, match="dim must be -1"):
            sn.load(path)

"""Sums through shared memory: the same as through a socket, for any shapes, and nothing is left behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import json, os, sys, torch
from torch import distributed as dist
from slabnet.distributed.group import join, leave
import slabnet.distributed.group as d
torch.set_num_threads(1)
d.LARGE = 0
group = join()
shapes = [(7, 5), (), (3,), (64, 33), (1, 1), (0, 4)]
worst, same = 0.0, True
for dtype in (torch.float32, torch.float64):
    for repeat in range(3):  # later ones use the memory again; the last one needs more of it
        parts = []
        for i, shape in enumerate(shapes if repeat < 2 else [*shapes, (300, 100)]):
            g = torch.Generator().manual_seed(1000 * repeat + 10 * group.rank + i)
            parts.append(torch.randn(shape, generator=g, dtype=dtype))
        parts[3] = parts[3].t()  # not contiguous
        wanted = [part.clone() for part in parts]
        for part in wanted:
            other = part.contiguous()
            dist.all_reduce(other)
            part.copy_(other)
        group.add_up(parts)
        worst = max([worst, *(float((a - b).abs().max()) for a, b in zip(parts, wanted) if a.numel())])
        flat = torch.cat([part.reshape(-1) for part in parts])
        theirs = [torch.zeros_like(flat) for _ in range(group.world)]
        dist.all_gather(theirs, flat)
        same = same and all(torch.equal(flat, other) for other in theirs)
lost = ""
if len(sys.argv) > 1:
    if group.rank == 1:
        os.kill(os.getpid(), 9)
    try:
        group.add_up(parts)
    except d.PeerLost as error:
        lost = str(error)
shared = group.sums.possible and group.sums.memory is not None
print(json.dumps({"lost": lost, "worst": worst, "same": same, "shared": shared}))
sys.stdout.flush()
os._exit(0) if lost else leave()
"""


def start(world: int, folder: str, *words: str) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environment = {**os.environ, **place, "OMP_NUM_THREADS": "1", "SLABNET_SHARED_MEMORY": folder}
    return [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *words],
            env=environment | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]


def sums(world: int, folder: str) -> list[dict[str, Any]]:
    processes = start(world, folder)
    said = [process.communicate(timeout=200)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * world
    return [json.loads(text) for text in said]


@pytest.mark.parametrize("world", [2, 3])
def test_sums_are_those_of_a_socket_and_all_have_the_same_bits(world: int, tmp_path: Path) -> None:
    for found in sums(world, str(tmp_path)):
        assert found["shared"]
        assert found["same"]
        assert found["worst"] < 1e-5
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("folder", ["", "/nowhere"])
def test_without_shared_memory_sockets_are_used(folder: str) -> None:
    for found in sums(2, folder):
        assert not found["shared"]
        assert found["same"]
        assert found["worst"] == 0


@pytest.mark.parametrize("folder", ["/dev/shm", ""])
def test_a_process_that_dies_is_noticed_at_once(folder: str) -> None:
    first, second = start(2, folder, "die")
    said, _ = first.communicate(timeout=200)  # the processes themselves would wait for five minutes
    second.communicate()
    assert second.returncode == -9
    assert "another process of this fit is gone" in json.loads(said)["lost"]

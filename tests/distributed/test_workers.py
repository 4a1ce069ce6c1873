"""`--workers`: nobody else can reach what the workers say to each other, and none of them outlives the command."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.distributed import TCPStore

LISTENING = "0A"  # a state in /proc/net/tcp
LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


@pytest.fixture
def running(tmp_path: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "slabnet", "fit", "digits", "--hidden", "20", "--workers", "2", "--out", "m.slab"]
    found = subprocess.Popen(
        [*words, "--epochs", "2000"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while not list(tmp_path.glob("m.slab.checkpoints/*")):
        assert found.poll() is None
        assert time.monotonic() < until
        time.sleep(0.1)
    return found


def family(pid: int) -> list[int]:
    """A process and all that it started, however far down."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += family(int(child))
    return found


def listening(pids: list[int]) -> set[tuple[str, int]]:
    """Addresses (as the kernel writes them) and ports on which these processes wait for connections."""
    sockets = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                sockets.add(os.readlink(descriptor).removeprefix("socket:[").removesuffix("]"))
            except FileNotFoundError:  # closed meanwhile
                continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and fields[9] in sockets:
                address, port = fields[1].split(":")
                found.add((address, int(port, 16)))
    return found


def answers(port: int) -> bool:
    """Whether a TCPStore is there: it knows torch's greeting, and gives a ping's number back."""
    number = struct.pack("<I", 4711)
    with socket.create_connection(("127.0.0.1", port), 2) as wire:
        wire.settimeout(2)
        wire.sendall(struct.pack("<BIB", 0, 0x3C85F7CE, 13) + number)
        try:
            return wire.recv(64) == number
        except (TimeoutError, ConnectionError):
            return False


@pytest.mark.cluster
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's table of sockets")
def test_workers_listen_on_loopback_only_and_keep_no_store_there(running: subprocess.Popen[bytes]) -> None:
    try:
        pids = family(running.pid)
        assert len(pids) >= 3
        doors = listening(pids)
        assert doors, "gloo listens somewhere: this test looks in the wrong place"
        assert {address for address, _ in doors} <= LOOPBACK
        store = TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
        assert answers(store.port), "the handshake is not torch's any more"
        assert not [port for _, port in doors if answers(port)]
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(60)


@pytest.mark.cluster
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's table of processes")
def test_workers_stop_when_their_parent_is_killed(running: subprocess.Popen[bytes]) -> None:
    workers = family(running.pid)[1:]
    running.kill()
    running.wait()
    until = time.monotonic() + 30
    while alive := [pid for pid in workers if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < until, alive
        time.sleep(0.1)

"""The processes that `--workers` starts on this machine: their start, their meeting place, their end.

They meet in a file, in a folder that only their user can enter, and speak over the loopback interface. Nothing listens
to other machines, and no store of pickled values can be reached over a socket (SECURITY.md).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from slabnet.core.errors import Stopped, refuse
from slabnet.core.signals import Halt
from slabnet.distributed.rendezvous import STORE

PARENT = "SLABNET_WORKERS_PARENT"  # read end of a pipe that closes when the process that started them is gone
LOOPBACK = ("lo", "lo0")  # its name on Linux, and on BSD and macOS
PATIENCE = 60.0  # seconds that a worker has to keep what it knows before it is killed
NAP = 0.05


def run_workers(workers: int, words: Sequence[str]) -> list[int]:
    """Run that many processes of `slabnet WORDS` on this machine to their end; their exit codes, first failure first.

    A signal is handed on to all of them, and is raised here as `Stopped` when they have ended.
    """
    read, write = os.pipe()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with tempfile.TemporaryDirectory(prefix="slabnet-workers-") as folder:  # mode 0700
            for rank in range(workers):
                command = [sys.executable, "-m", "slabnet", *words]
                environment = _environment(rank, workers, Path(folder) / "store", read)
                started = subprocess.Popen(command, env=environment, pass_fds=[read], start_new_session=True)
                processes.append(started)
            return _wait(processes)
    except Halt as halt:
        _end(processes, halt.number)
        raise Stopped("", halt.number) from None
    finally:
        _end(processes, signal.SIGTERM)
        os.close(read)
        os.close(write)


def watch_parent() -> None:
    """End this worker as SIGTERM would when the process that started it is gone; nothing elsewhere."""
    if PARENT not in os.environ:
        return
    pipe = int(os.environ.pop(PARENT))

    def watch() -> None:
        os.read(pipe, 1)  # nothing is ever written: this returns when the other end closes
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True, name="slabnet-parent").start()


def _environment(rank: int, workers: int, store: Path, pipe: int) -> dict[str, str]:
    variables = dict(os.environ)
    variables.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))
    names = {name for _, name in socket.if_nameindex()}
    loopback = next((name for name in LOOPBACK if name in names), None)
    if loopback is None:
        refuse("fit", "--workers", "1 on a machine without a loopback interface (lo, lo0)", workers)
    variables["GLOO_SOCKET_IFNAME"] = loopback
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": workers, STORE: store, PARENT: pipe}
    return variables | {name: str(value) for name, value in place.items()}


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """Exit codes of all, those of failed ones first in the order they ended; one failure ends the others."""
    running, codes = list(processes), list[int]()
    while running:
        for process in list(running):
            if process.poll() is not None:
                running.remove(process)
                codes.append(int(process.returncode))
        if any(codes):
            time.sleep(4 * NAP)  # the others notice by themselves, and what they say has been said
            _end(running, signal.SIGTERM)
            codes += [int(process.returncode) for process in running]
            running = []
        if running:
            time.sleep(NAP)
    return sorted(codes, key=lambda code: code == 0)


def _end(processes: Sequence[subprocess.Popen[bytes]], number: int) -> None:
    """Hand a signal on, wait, and kill whoever does not end in time."""
    alive = [process for process in processes if process.poll() is None]
    for process in alive:
        process.send_signal(number)
    until = time.monotonic() + PATIENCE
    for process in alive:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

"""Sums over the processes of one machine, through memory that they share.

Gradients of processes on one machine need not go through a socket: each process publishes its numbers in a slot of its
own, adds up one part of everybody's, and reads the other parts where their owners left them.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch import distributed as dist

from slabnet.kernels import native

FOLDER = "SLABNET_SHARED_MEMORY"  # where the memory is kept; empty: sockets only
DEFAULT_FOLDER = "/dev/shm"
TOKEN = 16  # bytes that tell our file from another machine's of the same name
MESSAGE = 4096  # bytes; a path is not longer
LINE = 64  # bytes; each process has one for its ticket and its number, after one for the token
LOOKS = 20_000  # at the others' tickets before going to sleep in between: some milliseconds
NAP, CHECK = 0.0005, 0.2  # seconds


class SharedSums:
    """Adds tensors up over all processes; `ready` says whether they do share memory.

    Every process has one, and all call the same methods in the same order with tensors of the same sizes.
    """

    def __init__(self, rank: int, world: int, seconds: float) -> None:
        self.rank, self.world, self.seconds = rank, world, seconds
        self.memory: Tensor | None = None
        self.possible = True
        self.lines = torch.zeros(0, dtype=torch.int64)  # of each process: its ticket, and its number
        self.ticket = 0

    def ready(self, size: int) -> bool:
        """Whether `size` bytes a process can be added up here; the first call finds out."""
        if self.possible and (self.memory is None or self.memory.shape[1] < size):
            self.memory = self._open(size)
            self.possible = self.memory is not None
        return self.possible

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Sum each tensor over the processes, in place; all of one type, on the CPU. All get the same bits."""
        assert self.memory is not None
        flat = [part.reshape(-1) for part in tensors]
        count = sum(len(part) for part in flat)
        *slots, total = (row[: count * flat[0].itemsize].view(flat[0].dtype) for row in self.memory)
        others = [other for other in range(self.world) if other != self.rank]
        for owner in others:
            for numbers, place in self._part(flat, count, owner):
                slots[self.rank][place].copy_(numbers)
        self._meet()
        for numbers, place in self._part(flat, count, self.rank):
            for other in others:
                numbers.add_(slots[other][place])
            total[place].copy_(numbers)
        self._meet()
        for owner in others:
            for numbers, place in self._part(flat, count, owner):
                numbers.copy_(total[place])
        for part, numbers in zip(tensors, flat, strict=True):
            if not part.is_contiguous():
                part.copy_(numbers.view(part.shape))

    def _part(self, flat: Sequence[Tensor], count: int, owner: int) -> Iterator[tuple[Tensor, slice]]:
        """What process `owner` adds up: pieces of the tensors, and where they are in a slot."""
        first, last, start = owner * count // self.world, (owner + 1) * count // self.world, 0
        for numbers in flat:
            low, high = max(first, start), min(last, start + len(numbers))
            if low < high:
                yield numbers[low - start : high - start], slice(low, high)
            start += len(numbers)

    def _meet(self) -> None:
        """Wait until all are here; RuntimeError if one is gone, or does not come in time."""
        if native.library() is None:
            dist.barrier()
            return
        self.ticket += 1
        meet, looks, started = native.function("meet"), LOOKS, time.monotonic()
        checked = started
        while meet(self.lines.data_ptr(), self.rank, self.world, self.ticket, looks, 1):
            time.sleep(NAP)
            looks, now = 1, time.monotonic()
            if now - checked > CHECK:
                checked = now
                late = [line for line in self.lines.view(self.world, -1).tolist() if line[0] < self.ticket]
                if now - started > self.seconds or not all(_lives(line[1]) for line in late):
                    raise RuntimeError("a process is gone, or does not answer")

    def _open(self, size: int) -> Tensor | None:
        """A slot for each process and one for the sums, in a file without a name; None if one cannot have it."""
        each, head = -(-size // LINE) * LINE, LINE * (self.world + 1)
        whole = head + each * (self.world + 1)
        offer = _offer(whole) if self.rank == 0 else b""
        message = torch.zeros(MESSAGE, dtype=torch.uint8)
        message[: len(offer)] = torch.tensor(list(offer), dtype=torch.uint8)
        dist.broadcast(message, 0)
        memory = _map(message.numpy().tobytes().rstrip(b"\0"), whole)
        if memory is not None:
            self.ticket, self.lines = 0, memory[LINE:head].view(torch.int64)
            self.lines.view(self.world, -1)[self.rank, 1] = os.getpid()
        everybody = _all(memory is not None)
        if offer:  # all have it or never will: without a name it ends with the processes, however they end
            Path(os.fsdecode(offer[2 * TOKEN :])).unlink(missing_ok=True)
        if memory is None or not everybody:
            return None
        seen = all(_lives(int(line[1])) for line in self.lines.view(self.world, -1))
        return memory[head:].view(self.world + 1, each) if _all(seen) else None


def _all(mine: bool) -> bool:
    """Whether it is so for every process."""
    everybody = torch.tensor(int(mine))
    dist.all_reduce(everybody, dist.ReduceOp.MIN)
    return bool(everybody)


def _lives(number: int) -> bool:
    """Whether a process of that number runs; one that has ended and was not waited for does not."""
    try:
        about = Path(f"/proc/{number}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return False
    return about.rpartition(")")[2].split()[0] not in ("Z", "X")


def _offer(size: int) -> bytes:
    """Make the file and say its token, in hex, and its path; nothing where it cannot be made."""
    folder, token = os.environ.get(FOLDER, DEFAULT_FOLDER), secrets.token_bytes(TOKEN)
    if not folder or not hasattr(os, "posix_fallocate"):
        return b""
    try:
        handle, name = tempfile.mkstemp(prefix="slabnet-", dir=folder)
    except OSError:
        return b""
    try:
        os.posix_fallocate(handle, 0, size)  # memory that is not there would kill who touches it
        os.pwrite(handle, token, 0)
    except OSError:
        os.unlink(name)
        return b""
    finally:
        os.close(handle)
    return token.hex().encode() + os.fsencode(name)


def _map(text: bytes, size: int) -> Tensor | None:
    """The file that was offered, if it is on this machine."""
    if not text:
        return None
    token, name = bytes.fromhex(text[: 2 * TOKEN].decode()), os.fsdecode(text[2 * TOKEN :])
    try:
        if os.path.getsize(name) != size:
            return None
        memory = torch.from_file(name, shared=True, size=size, dtype=torch.uint8)
    except (OSError, RuntimeError):
        return None
    return memory if memory[:TOKEN].numpy().tobytes() == token else None

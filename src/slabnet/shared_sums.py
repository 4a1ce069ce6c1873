"""Sums over the processes of one machine, through memory that they share.

Gradients of processes on one machine need not go through a socket: each process publishes its numbers in a slot of its
own, adds up one part of everybody's, and reads the other parts where their owners left them. torch.distributed still
does the waiting, so a process that dies is noticed as ever.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch import distributed as dist

FOLDER = "SLABNET_SHARED_MEMORY"  # where the memory is kept; empty: sockets only
DEFAULT_FOLDER = "/dev/shm"
TOKEN = 16  # bytes that tell our file from another machine's of the same name
MESSAGE = 4096  # bytes; a path is not longer


class SharedSums:
    """Adds tensors up over all processes; `ready` says whether they do share memory.

    Every process has one, and all call the same methods in the same order with tensors of the same sizes.
    """

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.memory: Tensor | None = None
        self.possible = True

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
        dist.barrier()
        for numbers, place in self._part(flat, count, self.rank):
            for other in others:
                numbers.add_(slots[other][place])
            total[place].copy_(numbers)
        dist.barrier()
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

    def _open(self, size: int) -> Tensor | None:
        """A slot for each process and one for the sums, in a file without a name; None if one cannot have it."""
        each = -(-size // 64) * 64
        whole = TOKEN + each * (self.world + 1)
        offer = _offer(whole) if self.rank == 0 else b""
        message = torch.zeros(MESSAGE, dtype=torch.uint8)
        message[: len(offer)] = torch.tensor(list(offer), dtype=torch.uint8)
        dist.broadcast(message, 0)
        text = message.numpy().tobytes().rstrip(b"\0")
        found = _map(text, whole)
        everybody = torch.tensor(int(found is not None))
        dist.all_reduce(everybody, dist.ReduceOp.MIN)
        if offer:  # all have it or never will: without a name it ends with the processes, however they end
            Path(os.fsdecode(offer[2 * TOKEN :])).unlink(missing_ok=True)
        return None if found is None or not int(everybody) else found[TOKEN:].view(self.world + 1, each)


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
        found = torch.from_file(name, shared=True, size=size, dtype=torch.uint8)
    except (OSError, RuntimeError):
        return None
    return found if found[:TOKEN].numpy().tobytes() == token else None

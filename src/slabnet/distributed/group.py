"""One fit in several processes, over torch.distributed: who does which rows, and how gradients become one.

Every process holds the same parameters. A step's global batch is cut into shares; process r differentiates

    share_r * (KL - n / N_r * sum over its N_r rows of log p),   share_r = N_r / N,

and the gradients are added up: the divergence counts once, every row counts the same, whatever the shares are. A
process without rows adds zeros, so uneven ends do not hang.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from slabnet.core.errors import SlabnetError, check_number, refuse
from slabnet.distributed.rendezvous import meeting_place
from slabnet.distributed.shared_memory import SharedSums
from slabnet.distributed.workers import run_workers, watch_parent

TIMEOUT = "SLABNET_TIMEOUT"  # seconds to wait for the other processes
DEFAULT_TIMEOUT = 300.0
SMALL = 1 << 14  # numbers; gradients below this travel together
LARGE = 1 << 18  # bytes; from here on shared memory is faster than a socket


class PeerLost(SlabnetError):
    """Another process of the same fit is gone, or does not answer."""


class Followed(SlabnetError):
    """A process that has done its share of a fit: what comes after is the first one's."""

    exit_code = 0


class Failed(SlabnetError):
    """Processes that were started here failed, and have said why."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.exit_code = code


@dataclass(frozen=True)
class Group:
    """The processes of one fit. `Group()` is one alone, for which every method does nothing."""

    rank: int = 0
    world: int = 1
    sums: SharedSums | None = field(default=None, compare=False, repr=False)

    @property
    def leads(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def rows(self, count: int) -> tuple[int, int]:
        """First and last + 1 of this process's rows in a global batch of `count`."""
        return self.rank * count // self.world, (self.rank + 1) * count // self.world

    def total(self, count: int) -> tuple[int, int]:
        """Sum of everybody's `count`, and that of the processes before this one."""
        if self.world == 1:
            return count, 0
        counts = [torch.zeros((), dtype=torch.int64) for _ in range(self.world)]
        with _peers("counting rows"):
            dist.all_gather(counts, torch.tensor(count))
        numbers = [int(part) for part in counts]
        return sum(numbers), sum(numbers[: self.rank])

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Sum each tensor over the processes, in place; all get the same bits."""
        if self.world == 1 or not tensors:
            return
        if self._through_memory(tensors):
            return
        large = [part for part in tensors if part.numel() >= SMALL and part.is_contiguous()]
        small = [part for part in tensors if not (part.numel() >= SMALL and part.is_contiguous())]
        with _peers("adding up gradients"):
            waiting = [dist.all_reduce(part, async_op=True) for part in large]
            if small:
                flat = torch.cat([part.reshape(-1) for part in small])
                dist.all_reduce(flat)
                pieces = torch.split(flat, [part.numel() for part in small])
                torch._foreach_copy_(list(small), [p.reshape(s.shape) for p, s in zip(pieces, small, strict=True)])
            for work in waiting:
                work.wait()

    def _through_memory(self, tensors: Sequence[Tensor]) -> bool:
        """Add up through memory that all processes share, if there is much to add up and they do."""
        size = sum(part.nbytes for part in tensors)
        plain = all(part.device.type == "cpu" and part.dtype == tensors[0].dtype for part in tensors)
        if self.sums is None or size < LARGE or not plain:
            return False
        with _peers("adding up gradients"):
            if not self.sums.ready(size):
                return False
            self.sums.add_up(tensors)
        return True

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """Give every process the values that the first one has."""
        if self.world > 1:
            with _peers("sharing parameters"):
                for part in tensors:
                    dist.broadcast(part.detach(), 0)

    def share(self, checkpoint: tuple[dict[str, Any], dict[str, Tensor]] | None) -> Any:
        """What the first process found in a checkpoint, for all; nothing is unpickled on the way."""
        if self.world == 1:
            return checkpoint
        kinds = {} if checkpoint is None else {name: [str(t.dtype), list(t.shape)] for name, t in checkpoint[1].items()}
        described = None if checkpoint is None else {"state": checkpoint[0], "tensors": kinds}
        text = torch.frombuffer(bytearray(json.dumps(described).encode()), dtype=torch.uint8)
        size = torch.tensor(len(text))
        with _peers("sharing a checkpoint"):
            dist.broadcast(size, 0)
            text = text if self.leads else torch.zeros(int(size), dtype=torch.uint8)
            dist.broadcast(text, 0)
            read = json.loads(text.numpy().tobytes())
            if read is None:
                return None
            tensors = {}
            for name, (dtype, shape) in read["tensors"].items():
                mine = checkpoint[1][name] if checkpoint is not None and self.leads else None
                kind = getattr(torch, dtype.removeprefix("torch."))
                tensors[name] = torch.empty(shape, dtype=kind) if mine is None else mine.contiguous()
                dist.broadcast(tensors[name], 0)
        return read["state"], tensors

    def agree(self, digest: str, what: str) -> None:
        """Raise if the processes have not the same; `digest` stands for it."""
        if self.world == 1:
            return
        mine = torch.tensor(list(bytes.fromhex(digest)[:8]), dtype=torch.uint8)
        low, high = mine.clone(), mine.clone()
        with _peers("comparing parameters"):
            dist.all_reduce(low, dist.ReduceOp.MIN)
            dist.all_reduce(high, dist.ReduceOp.MAX)
        if not torch.equal(low, high):
            raise SlabnetError(f"distributed: {what} must be the same in every process, and is not any more")


class _peers:
    """Turns what torch says when a process is gone into one line."""

    def __init__(self, doing: str) -> None:
        self.doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RuntimeError):
            raise PeerLost(
                f"distributed: another process of this fit is gone or does not answer ({self.doing}); "
                "go on from the last checkpoint with --resume"
            ) from None


def current_group() -> Group:
    """The group this process belongs to: that of torch.distributed where it runs, else one alone."""
    if dist.is_available() and dist.is_initialized():
        rank, world = dist.get_rank(), dist.get_world_size()
        return Group(rank, world, SharedSums(rank, world, _timeout()) if world > 1 else None)
    return Group()


def join() -> Group:
    """Join the processes that `--workers` or `torchrun` started; one alone where nobody did."""
    if "WORLD_SIZE" not in os.environ or "RANK" not in os.environ or not dist.is_available():
        return Group()
    watch_parent()
    if not dist.is_initialized():
        seconds = _timeout()
        backend = "gloo"
        if torch.cuda.is_available():
            backend = "cpu:gloo,cuda:nccl"  # counts and texts are on the CPU even then
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        rank, world = _whole("RANK"), _whole("WORLD_SIZE")
        with _peers("meeting the other processes"):
            place = meeting_place(rank, world, seconds)
            known: dict[str, Any] = {} if place is None else {"store": place, "rank": rank, "world_size": world}
            dist.init_process_group(backend, timeout=datetime.timedelta(seconds=seconds), **known)
    return current_group()


def _timeout() -> float:
    text = os.environ.get(TIMEOUT, str(DEFAULT_TIMEOUT))
    try:
        seconds = float(text)
    except ValueError:
        refuse("distributed", TIMEOUT, "a number of seconds above 0", text)
    return check_number("distributed", TIMEOUT, seconds, above=0)


def _whole(name: str) -> int:
    text = os.environ[name]
    if not text.isdecimal():
        refuse("distributed", name, "a whole number of at least 0", text)
    return int(text)


def restarted() -> bool:
    """Whether `torchrun` has started these processes again after one of them died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def launch(workers: int, words: Sequence[str]) -> None:
    """Run that many processes of `slabnet WORDS` on this machine to their end.

    They say themselves what went wrong; what is left to say here is their exit code.
    """
    codes = run_workers(workers, words)
    failed = [code for code in codes if code > 0]  # the others are told to stop when one has failed
    if failed:
        raise Failed(failed[0])
    if codes[0]:
        raise PeerLost(f"distributed: a process of this fit ended by signal {-codes[0]}; go on with --resume")


def leave() -> None:
    """Leave the group; the others are not waited for."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()

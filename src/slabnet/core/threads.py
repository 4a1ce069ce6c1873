"""How many threads work gets: one where it is small, and never a long wait for a thread that does not run.

A step on a small network opens many short parallel regions. A second thread saves nothing there, and where other
processes keep the cores busy, every region waits for it to be given one.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

SMALL_WORK = 3 * 2**23  # of `work_of`, posteriors' mu, rho and omega each counted: two threads gain at most 4% below
IMAGE = 2**10  # positions of a row, where they are not known
SPINS = "10000"  # turns a thread waits for another one before it sleeps: under a millisecond
_CHOICE = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
_lock = threading.Lock()


def bound_waiting() -> None:
    """Let OpenMP's threads sleep early when they wait: what `import slabnet` does, if torch is not loaded yet.

    GNU's runtime reads this once, when torch loads it. Whoever has set one of its variables keeps that choice.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in _CHOICE):
        os.environ["GOMP_SPINCOUNT"] = SPINS


def work_of(net: nn.Module, rows: int, positions: int = IMAGE) -> int:
    """Multiplications of a forward pass, about: a kernel meets every position of a row, another weight each row once.

    >>> from torch import nn
    >>> work_of(nn.Linear(4, 3, bias=False), rows=10)
    120
    """
    return rows * sum(p.numel() * (positions if p.ndim > 2 else 1) for p in net.parameters())


@contextmanager
def threads_for(work: int) -> Iterator[None]:
    """One thread inside the block if the work is small, for this thread of the caller only.

    work: multiplications of a step or a pass, as `work_of` counts them.

    `torch.set_num_threads` sets two numbers: that of the thread that calls it, and the one new threads start with. The
    second is put back at once, so that what other threads do meanwhile is not changed; the first when the block ends.

    >>> import torch
    >>> with threads_for(100):
    ...     torch.get_num_threads()
    1
    """
    import torch

    before = torch.get_num_threads()
    if before == 1 or work >= SMALL_WORK:
        yield
        return
    _set_here(1)
    try:
        yield
    finally:
        _set_here(before)


def _set_here(count: int) -> None:
    """Set the number of this thread, and leave the number that new threads start with."""
    import torch

    with _lock:
        started_with = _in_a_new_thread(torch.get_num_threads)
        torch.set_num_threads(count)
        _in_a_new_thread(lambda: torch.set_num_threads(started_with or count))


def _in_a_new_thread(function: Callable[[], int | None]) -> int | None:
    results: list[int | None] = []
    thread = threading.Thread(target=lambda: results.append(function()), name="slabnet-threads")
    thread.start()
    thread.join()
    return results[0]

"""How far a grid is, and how long it takes still: counted in epochs of all its runs, wherever they are made.

A run writes how many epochs it has made into its folder, so that any engine's runs can be counted, and those that go on
from a checkpoint are not counted twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from slabnet.experiments.files import Files
from slabnet.experiments.members import members_folder, members_of
from slabnet.experiments.profiles import Plan
from slabnet.files import write_atomically
from slabnet.methods import METHODS
from slabnet.progress import about

FIRST, EVERY = 60.0, 300.0  # seconds until something is said, and between that and the next
NAME = "epochs"


def epochs_of(plan: Plan) -> int:
    """All epochs of a run: those of its fit, and of each post-training its method has."""
    members = members_of(plan)
    if members:
        return sum(map(epochs_of, members))
    return (plan.train.epochs or 0) + len(METHODS[plan.method].post_training) * (plan.post.epochs or 0)


def note_epochs(work: Path, epochs: int) -> None:
    """Keep how many epochs the run in this folder has made, over all its stages."""
    write_atomically(work / NAME, str(epochs).encode())


def epochs_made(plan: Plan, folder: Path) -> int:
    """How many of them are made; all of them where the record is there."""
    files = Files(folder, plan.key)
    if files.record.is_file():
        return epochs_of(plan)
    members = members_of(plan)
    if members:
        return sum(epochs_made(member, members_folder(plan, folder)) for member in members)
    try:
        return min(epochs_of(plan), int((files.work / NAME).read_bytes()))
    except (OSError, ValueError):  # not begun, or just finished
        return 0


class Overall:
    """Says from time to time, while the block runs, how much of all runs is done and how long the rest takes."""

    def __init__(
        self,
        plans: Sequence[Plan],
        folder: Path,
        say: Callable[[str], None],
        *,
        first: float = FIRST,
        every: float = EVERY,
    ) -> None:
        self.plans, self.folder, self.say = plans, folder, say
        self.first, self.every = first, every
        self.total = sum(map(epochs_of, plans))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._began, self._before = time.monotonic(), self.made()
        if self.total:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def made(self) -> int:
        """Epochs of all runs that are made."""
        return sum(epochs_made(plan, self.folder) for plan in self.plans)

    def line(self) -> str | None:
        """What there is to say; nothing before the first epoch, and when all is done."""
        made = self.made()
        if made <= self._before or made >= self.total:
            return None
        left = (time.monotonic() - self._began) / (made - self._before) * (self.total - made)
        return f"{made} of {self.total} epochs of {len(self.plans)} runs ({made / self.total:.0%}), {about(left)} left"

    def _watch(self) -> None:
        wait = self.first
        while not self._over.wait(wait):
            said = self.line()
            if said is not None:
                self.say(said)
                wait = self.every

"""How far a grid is, and how long it takes still: counted in epochs of all its runs, wherever they are made.

A run writes how many epochs it has made into its folder, so that any engine's runs can be counted, and those that go on
from a checkpoint are not counted twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from slabnet.config.methods import METHODS
from slabnet.core.errors import SlabnetError
from slabnet.core.files import write_atomically
from slabnet.experiments.files import Files
from slabnet.experiments.members import members_folder, members_of
from slabnet.experiments.profiles import Plan
from slabnet.training.progress import about

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
    with suppress(OSError, SlabnetError):  # a run does not fail for want of a note
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
        self.folder, self.say, self.first, self.every = folder, say, first, every
        self.plans = {plan.key: plan for plan in plans}
        self.total = sum(map(epochs_of, plans))
        self._before: dict[str, int] = {}
        self._over, self._thread = threading.Event(), threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._before = {key: epochs_made(plan, self.folder) for key, plan in self.plans.items()}
        if self.total:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def leave_out(self, key: str) -> None:
        """A run that will not be made here: it failed, or somebody else makes it."""
        gone = self.plans.get(key)
        if gone is not None:
            self.plans = {other: plan for other, plan in self.plans.items() if other != key}
            self.total -= epochs_of(gone)

    def made(self) -> tuple[int, int]:
        """Epochs of all runs that are made, and how many of them since the block began."""
        epochs = {key: epochs_made(plan, self.folder) for key, plan in self.plans.items()}
        for key, made in epochs.items():  # a run that was killed goes on from before what it had noted
            self._before[key] = min(self._before[key], made)
        return sum(epochs.values()), sum(made - self._before[key] for key, made in epochs.items())

    def time_left(self) -> str | None:
        """How long the rest takes, if that can be said: not before the first epoch, nor when all is done."""
        made, here = self.made()
        if not here or made >= self.total:
            return None
        return f"{about((time.monotonic() - self._began) / here * (self.total - made))} left"

    def line(self) -> str | None:
        """What there is to say, if there is anything."""
        left, (made, _) = self.time_left(), self.made()
        share = 100 * made // max(1, self.total)
        return left and f"{made} of {self.total} epochs of all runs ({share}%), {left}"

    def _watch(self) -> None:
        wait = self.first
        while not self._over.wait(wait):
            line = self.line()
            if line is not None and not self._over.is_set():
                self.say(line)
                wait = self.every

"""What a person sees while training runs: epoch, time left, both terms of the bound, active weights."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from slabnet.core.records import Epoch

Show = Literal["auto", "bar", "lines", "off"]
LINES = 10  # how many lines a whole run prints where there is no terminal
FIRST = 1.0  # seconds after which a run that has said nothing gives a first estimate
SILENCE = 10.0  # seconds after which every epoch is said
BETWEEN = 0.5  # seconds between two texts beside a bar


@dataclass(frozen=True)
class Part:
    """What a run is a part of, for the person who waits: its name, and how many of its epochs still come after it."""

    name: str
    later: float = 0.0


class Watch(AbstractContextManager["Watch"]):
    """Shows epochs on stderr: a live bar in a terminal, a few plain lines elsewhere, or nothing.

    "auto" is the bar in a terminal and nothing elsewhere.
    """

    def __init__(
        self, show: Show, epochs: int, n: int, part: Part, active: Callable[[], int | None] = lambda: None
    ) -> None:
        self.active = active  # asked for where an epoch is shown: counting paths takes a while
        self._text, self._text_at = "", -BETWEEN
        self.epochs, self.n, self.label, self.later = epochs, n, part.name, part.later
        terminal = sys.stderr.isatty()
        self.bar = show == "bar" or (show in ("auto", "lines") and terminal)
        self.lines = show == "lines" and not terminal
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._began = time.monotonic()
        self._first: float | None = None  # how much of the run was done before this process took it up, in epochs
        self._said: float | None = None  # when the last line was printed

    def __enter__(self) -> Self:
        if self.bar:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[said]}"),
                console=Console(stderr=True),
            )
            self._progress.start()
            self._task = self._progress.add_task(self.label, total=self.epochs, said="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def step(self, epochs_done: float) -> None:
        """Give a first estimate of the time, where no epoch has ended yet that would."""
        if self._first is None:
            self._first, self._began = epochs_done, time.monotonic()
        waited = time.monotonic() - self._began
        if self._said is None and waited >= FIRST:
            self._say(int(epochs_done), "", epochs_done)

    def epoch(self, done: Epoch) -> None:
        """Show that an epoch is done."""
        every, left = max(1, self.epochs // LINES), self.epochs - done.epoch
        silent = time.monotonic() - (self._said or self._began) >= SILENCE
        due = done.epoch % every == 0 or left == 0 or silent
        if self._progress is not None and self._task is not None:
            if left == 0 or time.monotonic() - self._text_at >= BETWEEN:
                self._text, self._text_at = self._line(done), time.monotonic()
            self._progress.update(self._task, completed=done.epoch, said=self._text)
        if due:
            self._say(done.epoch, self._line(done) if self.lines else "", done.epoch)

    def _line(self, done: Epoch) -> str:
        """Both terms of the bound for a row, and how many weights are active in the median model."""
        line = f"log-lik {done.log_likelihood / self.n:.4f}  KL {done.kl / self.n:.4f} a row"
        count = self.active()
        return line if count is None else f"{line}  {count} active weight{'' if count == 1 else 's'}"

    def _say(self, epoch: int, line: str, done: float) -> None:
        """A line, with the time that is left by the pace so far."""
        self._said = time.monotonic()
        here = done - (self._first or 0.0)  # epochs before a checkpoint were not made here
        left = self.epochs - done + self.later
        parts = [f"{self.label}: epoch {epoch}/{self.epochs}", *([line] if line else [])]
        if here > 0 and left > 0:
            parts.append(f"{about((self._said - self._began) / here * left)} left{' in all' if self.later else ''}")
        if self.lines:
            print("  ".join(parts), file=sys.stderr, flush=True)


def about(seconds: float) -> str:
    """A time for a person who waits.

    >>> about(40), about(400), about(9000)
    ('about 40 s', 'about 7 min', 'about 2 h 30 min')
    """
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    return f"about {minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"about {minutes} min"

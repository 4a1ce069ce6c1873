"""What a person sees while training runs: epoch, time left, both terms of the bound, density."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Literal, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from slabnet.core.records import Epoch

Show = Literal["auto", "bar", "lines", "off"]
LINES = 10  # how many lines a whole run prints where there is no terminal


class Watch(AbstractContextManager["Watch"]):
    """Shows epochs on stderr: a live bar in a terminal, a few plain lines elsewhere, or nothing.

    "auto" is the bar in a terminal and nothing elsewhere.
    """

    def __init__(self, show: Show, epochs: int, n: int, label: str = "fit") -> None:
        self.epochs, self.n, self.label = epochs, n, label
        terminal = sys.stderr.isatty()
        self.bar = show == "bar" or (show in ("auto", "lines") and terminal)
        self.lines = show == "lines" and not terminal
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._began, self._seen = time.monotonic(), 0

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

    def epoch(self, done: Epoch) -> None:
        """Show that an epoch is done."""
        said = f"log-lik {done.log_likelihood / self.n:.4f}  KL {done.kl / self.n:.4f} a row"
        said += f"  density {done.density_median:.2%}"
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done.epoch, said=said)
        self._seen += 1  # here: epochs before a checkpoint were not
        every, left = max(1, self.epochs // LINES), self.epochs - done.epoch
        if self.lines and (done.epoch % every == 0 or left == 0):
            ahead = f"  {about((time.monotonic() - self._began) / self._seen * left)} left" if left else ""
            print(f"{self.label}: epoch {done.epoch}/{self.epochs}  {said}{ahead}", file=sys.stderr, flush=True)


def about(seconds: float) -> str:
    """A time for a person who waits.

    >>> about(40), about(400), about(9000)
    ('about 40 s', 'about 7 min', 'about 2 h 30 min')
    """
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    return f"about {minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"about {minutes} min"

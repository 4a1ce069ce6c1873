"""What a person sees while training runs: epoch, time left, both terms of the bound, density."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Literal, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from slabnet.records import Epoch

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
        every = max(1, self.epochs // LINES)
        if self.lines and (done.epoch % every == 0 or done.epoch == self.epochs):
            print(f"{self.label}: epoch {done.epoch}/{self.epochs}  {said}", file=sys.stderr, flush=True)

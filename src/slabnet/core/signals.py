"""Signals as an error that knows its number, so that a command can say one line about what it keeps."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Halt(KeyboardInterrupt):
    """A signal that came while no step was being made; training itself keeps what it has first."""

    def __init__(self, number: int, outcome: str = "") -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}{outcome}")
        self.number = number


def number_of(stopped: KeyboardInterrupt) -> int:
    """The signal behind it; a bare `KeyboardInterrupt` is Python's own word for Ctrl-C.

    >>> number_of(KeyboardInterrupt()), number_of(Halt(15))
    (2, 15)
    """
    return stopped.number if isinstance(stopped, Halt) else int(signal.SIGINT)


@contextmanager
def halting() -> Iterator[None]:
    """Make a `Halt` of Ctrl-C and SIGTERM inside the block."""

    def halt(number: int, frame: FrameType | None) -> None:
        for other in before:
            signal.signal(other, signal.SIG_IGN)  # a second one would end the clearing up
        raise Halt(number)

    before = {number: signal.signal(number, halt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

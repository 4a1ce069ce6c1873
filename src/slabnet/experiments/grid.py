"""Many runs: finished ones are skipped, broken ones go on from checkpoints, a failed one does not stop the rest."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slabnet.checks import one_line
from slabnet.experiments.files import Files, is_done, read_record
from slabnet.experiments.profiles import Plan
from slabnet.experiments.run import run
from slabnet.progress import Show


@dataclass(frozen=True)
class Grid:
    """What became of a grid: the records that are there now, and what failed, with the reason."""

    records: list[dict[str, Any]]
    skipped: int
    failed: dict[str, str]
    elsewhere: list[str]


def run_grid(plans: Sequence[Plan], folder: Path, *, show: Show = "lines", pictures: bool = True) -> Grid:
    """Run all plans one after the other; two processes may share a folder, each run is made by one of them."""
    folder.mkdir(parents=True, exist_ok=True)
    waiting = [plan for plan in plans if not is_done(plan, folder)]
    failed: dict[str, str] = {}
    elsewhere: list[str] = []
    started, done = time.monotonic(), 0
    for number, plan in enumerate(waiting):
        with claimed(Files(folder, plan.key).work) as mine:
            if not mine or is_done(plan, folder):
                elsewhere += [plan.key] if not mine else []
                continue
            left = (time.monotonic() - started) / done * (len(waiting) - number) if done else None
            _say(f"run {number + 1} of {len(waiting)}: {plan.key}" + ("" if left is None else f", {_time(left)} left"))
            try:
                run(plan, folder, show=show, pictures=pictures and plan.seed == min(p.seed for p in plans))
            except Exception as error:
                if os.environ.get("SLABNET_DEBUG"):
                    raise
                failed[plan.key] = one_line(f"{type(error).__name__}: {error}", 300)
                _say(f"run {plan.key} failed: {failed[plan.key]}")
            done += 1
    there = [Files(folder, plan.key).record for plan in plans]
    records = [read_record(path) for path in there if path.is_file()]
    return Grid(records, len(plans) - len(waiting), failed, elsewhere)


@contextmanager
def claimed(work: Path) -> Iterator[bool]:
    """Whether this process has the run to itself; the claim ends with the process, however that ends."""
    import fcntl

    work.mkdir(parents=True, exist_ok=True)
    with open(work.with_suffix(".lock"), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            work.with_suffix(".lock").unlink(missing_ok=True)
            if work.is_dir() and not any(work.iterdir()):
                work.rmdir()


def _say(text: str) -> None:
    print(f"reproduce: {text}", file=sys.stderr, flush=True)


def _time(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"about {minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"about {max(1, minutes)} min"

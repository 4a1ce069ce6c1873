"""Many runs: finished ones are skipped, broken ones go on from checkpoints, a failed one does not stop the rest."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slabnet.experiments.engines import Engine, Here, Job
from slabnet.experiments.files import Files, is_done, read_record
from slabnet.experiments.profiles import Plan


@dataclass(frozen=True)
class Grid:
    """What became of a grid: the records that are there now, and what failed, with the reason.

    elsewhere: runs that another process is making.
    """

    records: list[dict[str, Any]]
    skipped: int
    failed: dict[str, str]
    elsewhere: list[str]


def run_grid(
    plans: Sequence[Plan],
    folder: Path,
    *,
    engine: Engine | None = None,
    threads: int | None = None,
    pictures: bool = True,
) -> Grid:
    """Make all runs on an engine; two grids may share a folder, each run is made by one of them."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    waiting = [plan for plan in plans if not is_done(plan, folder)]
    first = min((plan.seed for plan in plans), default=0)
    jobs = [Job(plan, folder, pictures and plan.seed == first, threads) for plan in waiting]
    failed: dict[str, str] = {}
    elsewhere: list[str] = []
    started = time.monotonic()
    if jobs:
        _say(f"{len(jobs)} runs to make, {len(plans) - len(jobs)} are there; first {jobs[0].plan.key}")
    for done, (job, problem) in enumerate((engine or Here()).outcomes(jobs, _say), 1):
        key = job.plan.key
        left = (time.monotonic() - started) / done * (len(jobs) - done)
        ahead = f", {_time(left)} left" if done < len(jobs) else ""
        if problem is None:
            _say(f"run {done} of {len(jobs)} done: {key}{ahead}")
        elif problem.startswith("Claimed"):
            elsewhere.append(key)
        else:
            failed[key] = problem
            _say(f"run {done} of {len(jobs)} failed: {key}: {problem}{ahead}")
    there = [Files(folder, plan.key).record for plan in plans]
    records = [read_record(path) for path in there if path.is_file()]
    return Grid(records, len(plans) - len(waiting), failed, elsewhere)


def _say(text: str) -> None:
    print(f"reproduce: {text}", file=sys.stderr, flush=True)


def _time(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"about {minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"about {max(1, minutes)} min"

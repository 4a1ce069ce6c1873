"""Many runs: finished ones are skipped, broken ones go on from checkpoints, a failed one does not stop the rest."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slabnet.core.errors import FileError
from slabnet.experiments.engines import Engine, Here, Job
from slabnet.experiments.files import Files, is_done, read_record
from slabnet.experiments.members import members_folder, members_of
from slabnet.experiments.profiles import Plan
from slabnet.experiments.progress import Overall


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
    waiting = missing(plans, folder)
    first = min((plan.seed for plan in plans), default=0)
    jobs = [Job(plan, folder, pictures and plan.seed == first, threads) for plan in waiting]
    parts = _members(jobs)
    where = engine or Here()
    ensembles = {ensemble.name for _, ensemble in parts}
    owners = {member.name: ensemble for member, ensemble in parts}
    first_ones = [*(member for member, _ in parts), *(job for job in jobs if job.name not in ensembles)]
    if jobs:
        members = f" ({len(parts)} of members first)" if parts else ""
        _say(f"{len(jobs)} runs to make{members}, {len(plans) - len(jobs)} are there; first {first_ones[0].plan.key}")
    with Overall(waiting, folder, _say) as overall:
        outcomes = _Outcomes(len(jobs) + len(parts), overall)
        for job, problem in where.outcomes(first_ones, _say):
            outcomes.take(job, problem, owners.get(job.name))
        for job, problem in where.outcomes([j for j in jobs if j.name in ensembles and outcomes.may_go_on(j)], _say):
            outcomes.take(job, problem, None)
    there = [Files(folder, plan.key).record for plan in plans]
    records = [read_record(path) for path in there if path.is_file()]
    return Grid(records, len(plans) - len(waiting), outcomes.failed, outcomes.elsewhere)


def missing(plans: Sequence[Plan], folder: Path) -> list[Plan]:
    """The runs whose record is not there yet; a damaged one is set aside, and its run made again."""
    waiting = []
    for plan in plans:
        try:
            done = is_done(plan, folder)
        except FileError as error:
            path = Files(folder, plan.key).record
            path.replace(path.with_name(f"{path.name}.bad"))
            _say(f"{error}; set aside, making the run again")
            done = False
        if done:
            _release(Files(folder, plan.key))
        else:
            waiting.append(plan)
    return waiting


def _release(files: Files) -> None:
    """Take away claim and checkpoints of a process that was killed just after it had written its record."""
    if files.lock.exists() or files.work.exists():
        from slabnet.experiments.run import Claimed, claimed

        with suppress(Claimed), claimed(files.work):
            shutil.rmtree(files.work, ignore_errors=True)


def _members(jobs: Sequence[Job]) -> list[tuple[Job, Job]]:
    """The members of ensembles that are still to be made, each with the ensemble it belongs to."""
    members = []
    for job in jobs:
        folder = members_folder(job.plan, job.folder)
        for plan in members_of(job.plan):
            if not is_done(plan, folder):
                members.append((Job(plan, folder, False, job.threads), job))
    return members


class _Outcomes:
    """What became of the runs so far, said as it comes."""

    def __init__(self, jobs: int, overall: Overall) -> None:
        self.jobs, self.done, self.overall = jobs, 0, overall
        self.failed: dict[str, str] = {}
        self.elsewhere: list[str] = []

    def take(self, job: Job, problem: str | None, ensemble: Job | None) -> None:
        """One more run has ended; a member's failure is its ensemble's."""
        self.done += 1
        key = job.plan.key if ensemble is None else ensemble.plan.key
        name = key if ensemble is None else f"{key}, a member"
        if problem is not None:
            self.overall.leave_out(key)
        left = self.overall.time_left()
        ahead = f", {left}" if left and self.done < self.jobs else ""
        if problem is None:
            _say(f"run {self.done} of {self.jobs} done: {name}{ahead}")
        elif problem.startswith("Claimed"):
            if key not in self.elsewhere:
                self.elsewhere.append(key)
        else:
            self.failed[key] = problem
            _say(f"run {self.done} of {self.jobs} failed: {name}: {problem}{ahead}")

    def may_go_on(self, job: Job) -> bool:
        """Whether all members of an ensemble are there."""
        return job.plan.key not in self.failed and job.plan.key not in self.elsewhere


def _say(text: str) -> None:
    print(f"reproduce: {text}", file=sys.stderr, flush=True)

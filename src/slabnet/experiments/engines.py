"""Where the runs of a grid are computed: one after the other here, in several processes, or on a Ray cluster.

A run is the same wherever it is made: it goes on from its checkpoints in the results folder, writes one record, and is
claimed by one process at a time. An engine only decides where, and starts a run again whose process died.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from slabnet.core.errors import SlabnetError, check_number, check_whole, one_line, refuse
from slabnet.experiments.profiles import Plan

ENGINES = ("local", "ray")
RETRIES = 3
POLL = 0.05  # seconds


@dataclass(frozen=True)
class Job:
    """One run to be made: its plan, where, and with how many threads."""

    plan: Plan
    folder: Path
    pictures: bool
    threads: int | None = None

    @property
    def name(self) -> Path:
        """Its files, without what they end in."""
        return self.folder / self.plan.key

    def to_json(self) -> str:
        plan = self.plan.model_dump(mode="json")
        return json.dumps(
            {"plan": plan, "folder": str(self.folder), "pictures": self.pictures, "threads": self.threads}
        )

    @classmethod
    def from_json(cls, text: str) -> Job:
        job = json.loads(text)
        return cls(Plan(**job["plan"]), Path(job["folder"]), job["pictures"], job["threads"])


Outcome = tuple[Job, str | None]  # None where the record is there, else what went wrong
Said = Callable[[str], None]


def perform(job: Job, show: str = "lines") -> None:
    """Make one run in this process."""
    import torch

    from slabnet.experiments.run import run

    if job.threads is not None:
        torch.set_num_threads(job.threads)
    run(job.plan, job.folder, show=show, pictures=job.pictures)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Here:
    """One run after the other, in this process."""

    show: str = "lines"

    def outcomes(self, jobs: list[Job], say: Said) -> Iterator[Outcome]:
        for job in jobs:
            try:
                perform(job, self.show)
            except Exception as error:
                if os.environ.get("SLABNET_DEBUG"):
                    raise
                yield job, one_line(f"{type(error).__name__}: {error}", 300)
            else:
                yield job, None


@dataclass
class _Running:
    """A job, the process that makes it, how often that was started, and what it says."""

    job: Job
    process: subprocess.Popen[bytes]
    tries: int
    errors: IO[bytes]

    def reason(self) -> str:
        """The last line it said."""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return one_line(lines[-1] if lines else f"exit {self.process.returncode}", 300)


@dataclass
class Processes:
    """Several processes on this machine; one that dies is started again and goes on from its checkpoint."""

    count: int
    retries: int = RETRIES
    running: dict[int, _Running] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_whole("engine", "jobs", self.count, at_least=1)

    def outcomes(self, jobs: list[Job], say: Said) -> Iterator[Outcome]:
        waiting = [(job, 0) for job in jobs]
        try:
            while waiting or self.running:
                while waiting and len(self.running) < self.count:
                    self._start(*waiting.pop(0))
                for ended in self._ended():
                    number, job = ended.process.returncode, ended.job
                    if number == 0:
                        yield job, None
                    elif number < 0 and ended.tries < self.retries:
                        say(f"{job.plan.key}: its process was killed by signal {-number}; starting it again")
                        waiting.insert(0, (job, ended.tries + 1))
                    else:
                        yield job, ended.reason()
                    ended.errors.close()
                time.sleep(POLL)
        finally:
            self._stop()

    def _start(self, job: Job, tries: int) -> None:
        command = [sys.executable, "-m", "slabnet.experiments.worker"]
        errors = tempfile.TemporaryFile()  # noqa: SIM115  # a pipe that nobody reads would fill up
        # a terminal's Ctrl-C reaches only this process, which asks them to stop once: a second signal is taken as haste
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors, start_new_session=True)
        assert process.stdin is not None
        process.stdin.write(job.to_json().encode())
        process.stdin.close()
        self.running[process.pid] = _Running(job, process, tries, errors)

    def _ended(self) -> list[_Running]:
        ended = [pid for pid, one in self.running.items() if one.process.poll() is not None]
        return [self.running.pop(pid) for pid in ended]

    def _stop(self) -> None:
        """Ask what still runs to keep its checkpoint and stop."""
        for one in self.running.values():
            one.process.terminate()
        for one in self.running.values():
            one.process.wait()
            one.errors.close()


@dataclass(frozen=True)
class Ray:
    """A Ray cluster: every run is a task, and one whose worker or node died is made elsewhere from its checkpoint.

    The results folder must be on storage that all nodes share.
    """

    address: str | None = None
    cpus: float = 1.0
    gpus: float = 0.0
    retries: int = RETRIES

    def __post_init__(self) -> None:
        check_number("engine", "cpus", self.cpus, at_least=0)
        check_number("engine", "gpus", self.gpus, at_least=0)

    def outcomes(self, jobs: list[Job], say: Said) -> Iterator[Outcome]:
        try:
            import ray
        except ImportError:
            raise SlabnetError("engine: ray must be installed: pip install 'slabnet[cluster]'") from None
        started = not ray.is_initialized()
        if started:
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError) as error:
                refuse("engine", "address", "that of a Ray cluster that answers", f"{self.address} ({one_line(error)})")
        try:
            yield from self._tasks(ray, jobs, say)
        finally:
            if started:
                ray.shutdown()

    def _tasks(self, ray: Any, jobs: list[Job], say: Said) -> Iterator[Outcome]:
        task = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=self.retries)(_remote)
        waiting = {task.remote(job.to_json()): job for job in jobs}
        say(f"{len(jobs)} runs were given to the cluster")
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1)
            for reference in ready:
                job = waiting.pop(reference)
                try:
                    yield job, ray.get(reference)
                except ray.exceptions.RayError as error:
                    yield job, one_line(f"{type(error).__name__}: {error}", 300)


def _remote(text: str) -> str | None:
    """What a worker of the cluster does: one run, quietly; what went wrong comes back as text."""
    try:
        perform(Job.from_json(text), "off")
    except Exception as error:
        return one_line(f"{type(error).__name__}: {error}", 300)
    return None


Engine = Here | Processes | Ray

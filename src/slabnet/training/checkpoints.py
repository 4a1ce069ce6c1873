"""Checkpoints: everything a run needs to go on as if it had never stopped, written while it runs.

A run that is killed at any moment and resumed ends with the same bytes as one that was not (same machine, same number
of threads). The folder holds the last two checkpoints and, with validation rows, the parameters of the best
epoch as `best.slab`; they are a part of each checkpoint too.
"""

from __future__ import annotations

import hashlib
import logging
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from slabnet.config.settings_0_1 import TRAIN_0_1
from slabnet.core.containers import read_container, write_container
from slabnet.core.errors import FileError, SlabnetError, check_number, check_whole, one_line, printable, refuse
from slabnet.core.locks import LOCK
from slabnet.core.signals import Halt
from slabnet.core.version import __version__

FORMAT = 1
LATEST = 2
BEST = "best.slab"
ASIDE = "earlier"  # a run that was not finished when another one started in its folder
SHARE = 0.02  # of the time since the last checkpoint that writing one may take; epochs that end sooner wait
STOPPING = (signal.SIGTERM, signal.SIGINT)
logger = logging.getLogger("slabnet")


class Interrupted(Halt):
    """Training was asked to stop (Ctrl-C or SIGTERM), and kept everything first."""

    def __init__(self, number: int, folder: Path) -> None:
        super().__init__(number, f"; everything is kept in {folder}")
        self.folder = folder


class Hurried(Halt):
    """A second signal: the step was not waited for, and the last checkpoint is what there is."""

    def __init__(self, number: int) -> None:
        super().__init__(number, ", at once")


@dataclass(frozen=True)
class Checkpoints:
    """Where a run is kept and how often: at the end of each epoch, and every so many steps or minutes.

    Epochs shorter than fifty times what writing takes share a checkpoint.
    """

    folder: str | Path
    every_minutes: float = 5.0
    every_steps: int | None = None

    def __post_init__(self) -> None:
        check_number("Checkpoints", "every_minutes", self.every_minutes, above=0)
        if self.every_steps is not None:
            check_whole("Checkpoints", "every_steps", self.every_steps, at_least=1)
        if Path(self.folder).exists() and not Path(self.folder).is_dir():
            refuse("Checkpoints", "folder", "a folder", f"{self.folder}, a file")


class Keeper:
    """Writes the checkpoints of one run, and finds the one to go on from."""

    def __init__(self, settings: Checkpoints, run: dict[str, Any], made_by: dict[str, Any] | None = None) -> None:
        self.settings, self.run = settings, run
        self.made_by = made_by or {}  # what decides over rounding: passes and threads
        self.folder = Path(settings.folder)
        self.caught: int | None = None
        self._steps = 0
        self._damaged: list[Path] = []  # passed over when the run was taken up
        self._best: int | None = None  # the epoch whose parameters are in best.slab
        self._written, self._cost = time.monotonic(), 0.0

    def due(self, steps: int, epoch_ended: bool) -> bool:
        """Whether a checkpoint should be written now."""
        if self.caught is not None:
            return True
        waited = time.monotonic() - self._written
        if epoch_ended:
            return waited * SHARE >= self._cost
        if self.settings.every_steps is not None and steps - self._steps >= self.settings.every_steps:
            return True
        return waited >= 60 * self.settings.every_minutes

    def write(self, steps: int, state: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
        """Keep this state, and the one before it."""
        started = time.monotonic()
        path = self.folder / f"checkpoint-{steps:010d}{'-end' if state.get('finished') else ''}.slab"
        header = {"kind": "checkpoint", "format": FORMAT, "version": __version__, "run": self.run, "state": state}
        header |= {"made_by": self.made_by}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
            write_container(path, header, plain)
            self._write_best(header, plain)
        except (OSError, SlabnetError) as error:
            cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
            reason = one_line((cause.strerror if isinstance(cause, OSError) else None) or str(error))
            rest = "the ones before it are whole"
            raise FileError(f"checkpoint: {path} could not be written: {reason}; {rest}") from None
        damaged = [other for other in self._damaged if other != path]  # this one may have taken its name
        whole = [other for other in checkpoints_in(self.folder) if other not in damaged]
        for old in [*damaged, *whole[:-LATEST]]:
            old.unlink(missing_ok=True)
        self._damaged = []
        self._steps, self._written = steps, time.monotonic()
        self._cost = self._written - started
        return path

    def _write_best(self, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """The parameters after the best epoch so far, where validation rows say which that is."""
        state = {key: header["state"].get(key) for key in ("best", "best_epoch")}
        if state["best_epoch"] is None or state["best_epoch"] == self._best:
            return
        best = {name.replace("best:", "net:"): value for name, value in tensors.items() if name.startswith("best:")}
        write_container(self.folder / BEST, header | {"state": state}, best)
        self._best = state["best_epoch"]

    def start_afresh(self) -> None:
        """Forget an earlier run in the same folder; one that is not finished is set aside, and said."""
        old = checkpoints_in(self.folder)
        if old and not old[-1].stem.endswith("-end"):
            aside = _free_name(self.folder / ASIDE)
            aside.mkdir()
            for path in old:
                path.replace(aside / path.name)
            remedy = "move its files back and resume (--resume)"
            logger.warning(
                "fit: %s held a run that is not finished; to go on with it, %s", printable(str(aside)), remedy
            )
        for path in [*checkpoints_in(self.folder), self.folder / BEST]:
            path.unlink(missing_ok=True)

    def clean(self) -> None:
        """Take away what processes that were killed while they wrote have left."""
        for pattern in (".checkpoint-*.slab.*.tmp", f".{BEST}.*.tmp"):
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)

    def latest(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """State and tensors to go on from, None where there is nothing; damaged files are passed over, and said."""
        for path in reversed(checkpoints_in(self.folder)):
            try:
                header, tensors = read_container(path, "resume", FORMAT)
            except FileError as error:
                logger.warning("%s; going back to the checkpoint before it", error)
                self._damaged.append(path)
                continue
            if header.get("kind") != "checkpoint" or not isinstance(header.get("state"), dict):
                logger.warning("resume: %s is no checkpoint; going back to the one before it", one_line(path, 300))
                self._damaged.append(path)
                continue
            self._check_same(header.get("run", {}), path)
            self._compare_makers(header.get("made_by"), path)
            return header["state"], tensors
        return None

    def _compare_makers(self, other: Any, path: Path) -> None:
        """Say where going on will round otherwise, so that the bytes at the end may be other ones."""
        if not isinstance(other, dict):  # of an earlier version
            return
        for name, value in self.made_by.items():
            if name in other and other[name] != value:
                message = "resume: %s was written with %s %s, not %s: the result may differ in its last digits"
                logger.warning(message, one_line(path, 300), one_line(other[name]), name, value)

    def _check_same(self, other: Any, path: Path) -> None:
        """Refuse to go on with another configuration or other data, and name what differs."""
        if not isinstance(other, dict):
            raise FileError(f"resume: {path} must say which run it is of, got {one_line(other)}")
        for key in sorted({*self.run, *other}):
            ours, theirs = self.run.get(key), other.get(key)
            if key == "config" and isinstance(theirs, dict) and isinstance(ours, dict):
                theirs = {**TRAIN_0_1, "device": ours["device"], **theirs}  # "auto" is the one there is
            if ours == theirs:
                continue
            if isinstance(ours, dict) and isinstance(theirs, dict):
                name = next(k for k in sorted({*ours, *theirs}) if ours.get(k) != theirs.get(k))
                key, ours, theirs = f"{key}.{name}", ours.get(name), theirs.get(name)
            came = f"{one_line(theirs)} in {path}, {one_line(ours)} now"
            refuse("resume", key, "the same as in the checkpoint", came)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM wait for the end of the step; a second one does not wait."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: FrameType | None) -> None:
            if self.caught is not None:
                raise Hurried(number)
            self.caught = number

        before = {number: signal.signal(number, note) for number in STOPPING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def latest_settings(folder: Path) -> dict[str, Any] | None:
    """The settings of the run that the newest whole checkpoint is of, as the file has them, if there is one."""
    for path in reversed(checkpoints_in(folder)):
        with suppress(FileError):  # `Keeper.latest` says so
            run = read_container(path, "resume", FORMAT)[0].get("run")
            if isinstance(run, dict) and isinstance(run.get("config"), dict):
                return dict(run["config"])
    return None


def forget(folder: Path) -> None:
    """Take away the checkpoints of a run whose model is written; unfinished ones that were set aside stay."""
    for part in _parts(folder):
        forget(part)
    for path in [*checkpoints_in(folder), folder / BEST, folder / LOCK]:
        path.unlink(missing_ok=True)
    with suppress(OSError):  # there is something else in it
        folder.rmdir()


def _parts(folder: Path) -> list[Path]:
    """The folders of the runs that a fit of several is made of: members of a mixture, trials before a fit."""
    return [part for pattern in ("member-*", "trial-*") for part in folder.glob(pattern)]


def holds_any(folder: Path) -> bool:
    """Whether there is a checkpoint of a fit, or of a part of it."""
    return bool(checkpoints_in(folder)) or any(checkpoints_in(part) for part in _parts(folder))


def _free_name(path: Path) -> Path:
    """`path`, or the first of path-2, path-3, ... that is not there yet."""
    others = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return path if not path.exists() else next(other for other in others if not other.exists())


def checkpoints_in(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    names = re.compile(r"checkpoint-(\d{10})(-end)?\.slab")
    matches = [(names.fullmatch(path.name), path) for path in folder.glob("checkpoint-*.slab")]
    ordered = sorted((match[1], match[2] is not None, path) for match, path in matches if match is not None)
    return [path for _, _, path in ordered]


def digest(*tensors: Tensor) -> str:
    """A short name for the contents of tensors."""
    sha = hashlib.sha256()
    for tensor in tensors:
        plain = tensor.detach().cpu().contiguous()
        sha.update(f"{plain.dtype} {tuple(plain.shape)}".encode())
        sha.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()[:16]

"""Find the files of a data set: in SLABNET_DATA, in the user's cache, where Debian puts them, or on a public mirror.

A file counts only if the SHA-256 of its uncompressed bytes is the known one. In the cache a wrong one is set aside and
fetched again; in folders that are not ours it is left alone, named, and the next place is tried.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pooch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from slabnet.core.errors import FileError, SlabnetError, one_line
from slabnet.data.idx import read_idx_checked
from slabnet.data.sources import Source

ENVIRONMENT = "SLABNET_DATA"
MIRROR = "SLABNET_MIRROR"  # the address of a mirror to try first
OFFLINE = "SLABNET_OFFLINE"  # set to anything: nothing is downloaded
TIMEOUT = 30.0  # seconds without a byte before the next mirror is tried
MOST_BYTES = 2**26  # of one file, compressed: the largest known one has 26 MB
logger = logging.getLogger("slabnet")


class NoData(SlabnetError):
    """A data set that is neither here nor to be had."""


def cache_folder(source: Source) -> Path:
    """Where downloads of this data set are kept."""
    return Path(pooch.os_cache("slabnet")) / source.name


def places(source: Source) -> list[Path]:
    """The folders to look in, in this order."""
    given = os.environ.get(ENVIRONMENT)
    return [*([Path(given) / source.name] if given else []), cache_folder(source), *source.folders]


def find(source: Source, file: str, *, timeout: float = TIMEOUT) -> NDArray[np.generic]:
    """The array of one file of `source`, from the first place that has it whole; downloaded where none has."""
    looked: list[str] = []
    for folder in places(source):
        there = _files(folder, file)
        for path in there:
            try:
                return _checked(source, file, path)
            except FileError as error:
                looked.append(one_line(str(error), 200))
                _refused(path, error, ours=folder == cache_folder(source))
        if not there:
            looked.append(f"not in {folder}")
    return _download(source, file, looked, timeout)


def located(source: Source) -> tuple[list[Path] | None, list[Path]]:
    """The folders `find` would take the files from (None: one must be downloaded), and the files it would refuse."""
    folders: dict[Path, None] = {}
    refused, missing = [], False
    for file in source.sha256:
        for path in (path for folder in places(source) for path in _files(folder, file)):
            try:
                _checked(source, file, path)
            except FileError:
                refused.append(path)
            else:
                folders[path.parent] = None
                break
        else:
            missing = True
    return None if missing else list(folders), refused


def _files(folder: Path, file: str) -> list[Path]:
    return [path for path in (folder / f"{file}.gz", folder / file) if path.is_file()]


def _checked(source: Source, file: str, path: Path) -> NDArray[np.generic]:
    """The array of a file, if its contents are the known ones, or are somebody's own of another size."""
    values, digest = read_idx_checked(path)
    somebodys = path.parent != cache_folder(source) and len(values) != source.rows[file]
    if digest != source.sha256[file] and not somebodys:
        raise FileError(f"data: {path} must have the SHA-256 {source.sha256[file][:12]}..., got {digest[:12]}...")
    if digest != source.sha256[file]:
        message = "data: %s has %d rows, %s's own file has %d: taken as somebody's own (SHA-256 %s...)"
        logger.warning(message, path, len(values), source.name, source.rows[file], digest[:12])
    return values


def _refused(path: Path, error: FileError, ours: bool) -> None:
    if ours:
        path.replace(path.with_name(f"{path.name}.bad"))
    logger.warning("%s; %s", error, "set aside, fetching it again" if ours else "looking elsewhere")


def _download(source: Source, file: str, looked: list[str], timeout: float) -> NDArray[np.generic]:
    folder = cache_folder(source)
    path = folder / f"{file}.gz"
    given = os.environ.get(MIRROR)
    mirrors = [*([f"{given.rstrip('/')}/{source.name}/"] if given else []), *source.mirrors]
    if os.environ.get(OFFLINE):
        mirrors = []
        looked.append(f"{OFFLINE} is set")
    for mirror in mirrors:
        try:
            with _progress(f"{source.name}: {file}") as bar:
                http = pooch.HTTPDownloader(progressbar=bar or False, timeout=timeout)

                def download(url: str, output_file: str, pooch: Any, http: Any = http) -> None:
                    with open(output_file, "wb") as file:
                        http(url, _Limited(file), pooch)

                pooch.get_logger().setLevel("ERROR")
                pooch.retrieve(f"{mirror}{file}.gz", None, path.name, folder, downloader=download)
            return _checked(source, file, path)
        except FileError as error:
            looked.append(one_line(str(error), 200))
            _refused(path, error, ours=True)
        except (OSError, ValueError) as error:  # what requests raises is an OSError
            looked.append(f"{mirror}: {type(error).__name__}")
    tries = "; ".join(looked)
    raise NoData(
        f"data: {source.name}/{file}.gz is not here and could not be downloaded ({tries}); "
        f"put the four .gz files into a folder {source.name} and name its parent with {ENVIRONMENT}"
    )


class TooLarge(ValueError):
    """A download of more bytes than any file of a data set has."""


class _Limited:
    """The file that a download goes to: it counts what is written, and ends what is too long."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._written = file, 0

    def write(self, chunk: bytes) -> None:
        self._written += len(chunk)
        if self._written > MOST_BYTES:
            raise TooLarge(f"more than {MOST_BYTES} bytes")
        self._file.write(chunk)

    def flush(self) -> None:
        self._file.flush()


@contextmanager
def _progress(label: str) -> Iterator[_Bar | None]:
    """A bar on stderr, where that is a terminal."""
    if not sys.stderr.isatty():
        logger.info("downloading %s", label)
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield _Bar(progress, label)


class _Bar:
    """A progress bar as pooch uses one, drawn by rich."""

    def __init__(self, progress: Progress, label: str) -> None:
        self._progress, self._task = progress, progress.add_task(label, total=None)
        self._total = 0

    @property
    def total(self) -> int:
        return self._total

    @total.setter
    def total(self, value: int) -> None:
        self._total = value
        self._progress.update(self._task, total=value)

    def update(self, step: int) -> None:
        self._progress.update(self._task, advance=step)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.stop_task(self._task)

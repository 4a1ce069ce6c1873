"""What the benchmarks on tables share: results that can be stopped and gone on with, and the UCI splits."""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import RECORDS, write_record
from slabnet.core.errors import refuse

Result = dict[str, Any]


def data_folder(name: str) -> Path:
    """Where SLABNET_DATA keeps `name`."""
    folder = Path(os.environ.get("SLABNET_DATA", "")) / name
    if not os.environ.get("SLABNET_DATA") or not folder.is_dir():
        refuse("benchmarks", "SLABNET_DATA", f"the folder that holds {name}", os.environ.get("SLABNET_DATA"))
    return folder


def run_all(
    name: str, command: str, keys: Sequence[str], jobs: Sequence[Result], work: Callable[[Result], Result]
) -> Any:
    """Do the jobs that the record NAME does not hold yet, adding each to it; the record in the end.

    Several processes can share the jobs: each looks before it starts one, and adds its own to what is there by then.
    """
    for job in jobs:
        if any(_same(job, done, keys) for done in _results(name)):
            continue
        result = {key: job[key] for key in keys} | work(job)
        with _alone(name):
            done = [other for other in _results(name) if not _same(job, other, keys)]
            done.append(result)
            write_record(name, command, 0, sorted(done, key=lambda r: [str(r[key]).zfill(3) for key in keys]))
        print(json.dumps(result), flush=True)
    return json.loads((RECORDS / f"{name}.json").read_text("utf-8"))


def _results(name: str) -> list[Result]:
    path = RECORDS / f"{name}.json"
    results: list[Result] = json.loads(path.read_text("utf-8"))["results"] if path.exists() else []
    return results


def _same(one: Result, other: Result, keys: Sequence[str]) -> bool:
    return all(one[key] == other[key] for key in keys)


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Hold a lock beside the record while it is read and written."""
    with (RECORDS / f".{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def mean_and_error(values: Sequence[float | None]) -> tuple[float, float] | None:
    """Mean and standard error; None where a value is not known."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    spread = float(np.std(known, ddof=1)) if len(known) > 1 else math.nan
    return float(np.mean(known)), spread / math.sqrt(len(known))


def with_error(pair: tuple[float, float] | None, digits: int = 2) -> str:
    """Mean and standard error as text."""
    return "-" if pair is None else f"{pair[0]:.{digits}f} ± {pair[1]:.{digits}f}"

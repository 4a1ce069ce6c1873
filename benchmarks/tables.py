"""What the benchmarks on tables share: results that can be stopped and gone on with, and the UCI splits."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import RECORDS, write_record
from slabnet.checks import refuse

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
    """Do the jobs that the record NAME does not hold yet, writing it after each; the record in the end."""
    path = RECORDS / f"{name}.json"
    done: list[Result] = json.loads(path.read_text("utf-8"))["results"] if path.exists() else []
    kept = {tuple(result[key] for key in keys) for result in done}
    record: Any = json.loads(path.read_text("utf-8")) if done else None
    for job in jobs:
        if tuple(job[key] for key in keys) in kept:
            continue
        result = {key: job[key] for key in keys} | work(job)
        done.append(result)
        record = write_record(name, command, 0, done)
        print(json.dumps(result), flush=True)
    return record


def mean_and_error(values: Sequence[float | None]) -> tuple[float, float] | None:
    """Mean and standard error; None where a value is not known."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    spread = float(np.std(known, ddof=1)) if len(known) > 1 else math.nan
    return float(np.mean(known)), spread / math.sqrt(len(known))


def said(pair: tuple[float, float] | None, digits: int = 2) -> str:
    """Mean and standard error as text."""
    return "-" if pair is None else f"{pair[0]:.{digits}f} ± {pair[1]:.{digits}f}"

"""The files of a run, and reading records back. Imports no torch: tables are made from records alone."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slabnet.config.settings_0_1 import TRAIN_0_1
from slabnet.core.errors import ArgumentError, FileError, one_line, refuse
from slabnet.core.files import write_atomically
from slabnet.experiments.legacy_names import with_present_names
from slabnet.experiments.profiles import Plan

FORMAT = 2
READABLE = (1, 2)  # 1 had other names for what concerns out-of-distribution rows
PICTURES = ".pictures.json"


@dataclass(frozen=True)
class Files:
    """The files of one run in a results folder."""

    folder: Path
    key: str

    @property
    def record(self) -> Path:
        return self.folder / f"{self.key}.json"

    @property
    def pictures(self) -> Path:
        return self.folder / f"{self.key}{PICTURES}"

    @property
    def model(self) -> Path:
        return self.folder / f"{self.key}.slab"

    @property
    def work(self) -> Path:
        """Checkpoints, while the run goes on."""
        return self.folder / f"{self.key}.run"

    @property
    def lock(self) -> Path:
        """The claim of the process that makes the run."""
        return self.work.with_suffix(".lock")


def is_done(plan: Plan, folder: Path) -> bool:
    """Whether the record of this very plan is there; a record of another plan under its name is refused."""
    path = Files(folder, plan.key).record
    if not path.is_file():
        return False
    came = read_record(path)["plan"]
    came |= {part: {**TRAIN_0_1, **came[part]} for part in ("train", "post")}  # settings that an earlier record lacks
    came = Plan(**came).model_dump(mode="json")  # with the settings that came later at their default
    wanted = plan.model_dump(mode="json")
    differs = [name for name in wanted if name != "departures" and wanted[name] != came.get(name)]
    if differs:
        difference = f"got another {differs[0]}; use another --out"
        raise ArgumentError(f"reproduce: {path} must be of the same settings, {difference}")
    return True


def read_record(path: Path) -> dict[str, Any]:
    """A record, or one line that says why the file is none."""
    record = _read_json(path)
    if not isinstance(record, dict) or record.get("format") not in READABLE or "plan" not in record:
        raise FileError(f"records: {path} must be a record of a run, got another kind of JSON")
    if record.get("checksum") != checksum(record):
        raise FileError(f"records: {path} must be a record of a run as it was written, got a damaged or edited one")
    named: dict[str, Any] = with_present_names(record)
    return named


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record with a checksum over all of it: a flipped bit in a number would not be seen otherwise."""
    whole = record | {"format": FORMAT}
    write_atomically(path, as_bytes(whole | {"checksum": checksum(whole)}))


def write_pictures(path: Path, pictures: dict[str, Any]) -> None:
    """Write what figures are made from, with a checksum over all of it."""
    write_atomically(path, as_bytes(pictures | {"checksum": checksum(pictures)}))


def checksum(record: dict[str, Any]) -> str:
    """SHA-256 over the contents, whatever the layout of the file."""
    rest = {key: value for key, value in record.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def as_bytes(value: dict[str, Any]) -> bytes:
    """JSON with one key of the top a line: small, and differences between versions can be read."""
    lines = [f"{json.dumps(key)}: {json.dumps(part, allow_nan=False)}" for key, part in value.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def read_records(folder: str | Path) -> list[dict[str, Any]]:
    """Every record in a results folder, in the order of their names."""
    folder = Path(folder)
    if not folder.is_dir():
        refuse("records", "RESULTS", "a folder of records, as `slabnet reproduce` writes them", str(folder))
    paths = [path for path in sorted(folder.glob("*.json")) if not path.name.endswith(PICTURES)]
    if not paths:
        refuse("records", "RESULTS", "a folder that holds records of runs", f"{folder} without any")
    return [read_record(path) for path in paths]


def read_pictures(folder: str | Path) -> list[dict[str, Any]]:
    """What the figures with images are made from, one for each run that kept it, with the name of the run."""
    sets = []
    for path in sorted(Path(folder).glob(f"*{PICTURES}")):
        part = _read_json(path)
        if not isinstance(part, dict) or not {"dataset", "draws", "image_shape", "network"} <= set(part):
            raise FileError(f"records: {path} must be the pictures of a run, got another kind of JSON")
        if part.pop("checksum", checksum(part)) != checksum(part):  # files of earlier versions have none
            raise FileError(f"records: {path} must be the pictures of a run as they were written, got damaged ones")
        sets.append(with_present_names(part) | {"key": path.name.removesuffix(PICTURES)})
    return sets


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"records: {path} must be a record of a run, got: {one_line(error)}") from None

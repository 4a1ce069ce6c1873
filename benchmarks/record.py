"""A record: what was measured, and the command, commit, machine and versions it was measured with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from slabnet.core.files import write_atomically
from slabnet.experiments.provenance import provenance as source

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "benchmarks" / "records"
DOCS = ROOT / "docs"


def write_record(name: str, command: str, seed: int, results: Any) -> dict[str, Any]:
    """Write `results` with where they come from to records/NAME.json."""
    record = {
        "command": command,
        "seed": seed,
        **source(),
        "results": results,
    }
    RECORDS.mkdir(exist_ok=True)
    write_atomically(RECORDS / f"{name}.json", (json.dumps(record, indent=1) + "\n").encode())
    return record


def write_page(name: str, text: str) -> None:
    """Write a generated docs page."""
    write_atomically(DOCS / name, text.encode())


def write_bytes(name: str, content: bytes) -> None:
    """Write a generated picture beside the pages."""
    write_atomically(DOCS / name, content)


def provenance(record: dict[str, Any]) -> str:
    """One line under a table: command, commit, machine."""
    machine, versions = record["machine"], record["versions"]
    return (
        f"Made by `{record['command']}`, seed {record['seed']}, commit {record['commit']}, "
        f"{machine['cores']} cores ({machine['processor']}), torch {versions['torch']}."
    )

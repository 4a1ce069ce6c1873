"""SECURITY.md, with the counts of the last run of the tests it speaks of: `make security`."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.record import RECORDS, ROOT
from slabnet.files import write_atomically


def page(counts: dict[str, Any]) -> str:
    rows = "\n".join(f"| {name} | {count} |" for name, count in counts.items())
    return f"""# Security and safety

<!-- made by `make security` from benchmarks/records/security.json; do not edit -->

## What a file from a stranger can and cannot do

Model files, selections and checkpoints (`.slab`) are safetensors with one JSON header. Loading one never unpickles,
imports or evaluates anything that is named in it: a network is built from numbers and names out of our own lists, and a
module of your own class is only ever *filled* (`load(path, into=module)`). Size, format, checksum, names, shapes and types
are looked at before a tensor is used. A damaged file is one line and exit code 1.

The checksum finds damage. It is no signature: somebody who can write the file can write a consistent one. Such a file can
hold other weights, so its predictions can be wrong; it cannot run code, and what it declares is bounded by its own size.

IDX files (plain or gzipped) and TOML files are read with bounds on what they may declare. What a bit flip changes inside
their numbers cannot be seen: they carry no checksum of ours. The same holds for tables (CSV, Parquet).

Text out of a table goes into CSV files we write (class labels): what a spreadsheet would take for a formula gets an
apostrophe in front. What a model file keeps of a table (column names, levels, medians) is plain JSON.

## What is promised, and how it is tested

| promise | test |
|---|---|
| a file under its final name is whole: written beside it, flushed, renamed | `tests/test_files.py`, `tests/test_crash.py` |
| a run killed at any moment and resumed ends with the same bytes (same machine, same number of threads) | `tests/test_crash.py`, `tests/test_checkpoints.py` |
| Ctrl-C and SIGTERM finish the step, keep everything, say how to go on, exit 130 and 143 | `tests/test_crash.py`, `tests/test_checkpoints.py` |
| another run's checkpoint is refused, naming what differs; a damaged one falls back to the one before | `tests/test_checkpoints.py` |
| a full disk is a clear error, and the checkpoint before it is whole | `tests/test_checkpoints.py` |
| damaged files: one line within a second, or the right answer; never a traceback, never a silently wrong model | `tests/test_hostile.py` |
| damaged tables: one line, or a table of finite numbers; a prediction that fails leaves what was there | `tests/test_hostile_tables.py`, `tests/test_cli_table.py` |
| no NaN reaches a saved model | `tests/test_hostile.py`, `tests/test_store.py` |
| a page made by `slabnet report` fetches nothing and runs its own script only; names and values in it stay text | `tests/report/test_report.py`, `tests/browser/test_pages.py` |
| a page made with `--no-rows` holds no raw row | `tests/report/test_report.py` |
| threads do not disturb each other; a child forked after a fit does not hang | `tests/test_threads.py` |

From the last run:

| what was tried | how often |
|---|---|
{rows}

## Reporting

Open an issue, or write to the maintainers first if it can be used against others. Say the version (`slabnet --version`) and
attach the smallest file that shows it.
"""


def main() -> None:
    counts = json.loads((RECORDS / "security.json").read_text("utf-8"))
    write_atomically(ROOT / "SECURITY.md", page(counts).encode())


if __name__ == "__main__":
    main()

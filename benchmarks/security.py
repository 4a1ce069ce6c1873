"""SECURITY.md, with the counts of the last run of the tests it speaks of: `make security`."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.record import RECORDS, ROOT
from slabnet.core.files import write_atomically


def page(counts: dict[str, Any]) -> str:
    rows = "\n".join(f"| {name} | {count} |" for name, count in counts.items())
    return f"""# Security and safety

<!-- made by `make security` from benchmarks/records/security.json; do not edit -->

## What an untrusted file can and cannot do

Model files, selections and checkpoints (`.slab`) are safetensors with one JSON header. Loading one never unpickles,
imports or evaluates anything that is named in it: a network is built from numbers and names out of our own lists, and a
module of your own class is only ever *filled* (`load(path, into=module)`). Size, format, checksum, names, shapes, types
and finiteness are looked at before a tensor is used. A damaged file is one line and exit code 1.

What a file may hold is bounded before anything is made of it, and whoever writes keeps to the same bounds: 2^24 characters
of header with 2^18 lists and tables, 2^19 names and whole numbers of 100 digits; 2^14 tensors of 8 dimensions; 1000
layers. Widths, outputs and members that it declares may not exceed the numbers it holds. So a file of 16 MB is loaded or refused
within 2 s and 500 MB (`tests/hostile/test_hostile_budget.py` reads it in a process that has no more).

**A pickled estimator is code.** `pickle`, `joblib` and `copy` take scikit-learn's estimators, ours too; but whoever unpickles
a file runs what its author wrote into it. `save_estimator` and `load_estimator` keep an estimator as a `.slab` file, which
holds numbers and text only.

A command on a report page is rebuilt from what the file says of itself, and the page says so: read it before you run it.

The checksum finds damage. It is no signature: somebody who can write the file can write a consistent one. Such a file can
hold other weights, so its predictions can be wrong; it cannot run code, and positions and widths in it are checked before a
compiled pass uses them. The layers and weights that a header declares are counted before anything is built, and a network larger than the file's tensors is
refused. A compact network lists what is left of each layer: all layers of it may span at most 2^25 entries (in larger files two for each byte), and the sizes and positions of every part of it are checked against the axis they are used on. A checkpoint must
fit the run that takes it up in every shape, type and count, or the run is left as it was.

IDX files (plain or gzipped) may declare 2^26 bytes. TOML files may be 1 MB long; one that is no TOML,
or has settings that are none, is a wrong call: one line and exit code 2. Of a Parquet file a text is held once, no cell may
be longer than 131 072 characters, and a table that is read into memory may have 5 million cells, or 16 for each byte of
its file; columns come some rows at a time. A line of a CSV file may have 2^24 characters, a header of a model file too. What a bit flip changes inside the numbers of these files cannot be seen: they carry no checksum of ours. The same
holds for CSV. The fingerprint by which a checkpoint knows its data covers all rows of arrays; of a stream of batches, and of
arrays that stay in their files, it has only the number of rows.

A prediction that is not finite (weights of a file may be finite and their sums not) is an error that names the row.

Text out of a table goes into CSV files we write (class labels): control characters become spaces, what a spreadsheet
would take for a formula (in wide characters too) gets an apostrophe in front, and quotes stand around semicolons too. Errors, and names and paths that commands print, have what a terminal
would obey written out. What a model file keeps of a table (column names, levels, medians) is plain JSON.

A fit of a module with torch's own Dropout borrows torch's global generator, of which there is one for all threads: such fits
wait for each other, and code of yours that draws from it in another thread meanwhile is not protected.

## Several processes, several machines

`slabnet fit --workers N` starts its workers itself. They meet in a file, in a folder of mode 0700, and speak over the
loopback interface only. No store of pickled values listens anywhere. When the command is killed, its workers stop.

The folder of a run belongs to one process at a time (`flock`; the claim ends with its process): a second fit to the same
file is refused with the name of the first. On file systems without locks there is no such protection.

**`torchrun` and Ray are for a trusted network only.** The store by which the processes of `torchrun` find each other listens on
every interface and asks nobody who he is; torch unpickles some of what lies in it; so whoever reaches its port can run
code as you. The traffic between the processes is neither encrypted nor signed. A Ray cluster takes code from whoever reaches
its ports: that is what it is for. Run both behind a firewall, in a network whose other users you trust.

## What is promised, and how it is tested

| promise | test |
|---|---|
| a file under its final name is whole: written beside it, flushed, renamed | `tests/core/test_files.py`, `tests/end_to_end/test_crash.py` |
| a run killed at any moment and resumed ends with the same bytes (same machine, same number of threads) | `tests/end_to_end/test_crash.py`, `tests/end_to_end/test_resume.py`, `tests/training/test_checkpoints.py` |
| Ctrl-C and SIGTERM finish the step, keep everything, say how to go on, exit 130 and 143 | `tests/end_to_end/test_crash.py`, `tests/end_to_end/test_resume.py`, `tests/training/test_checkpoints.py` |
| another run's checkpoint is refused, naming what differs; a damaged one falls back to the one before | `tests/training/test_checkpoints.py` |
| a full disk is a clear error, and what was there before it is whole | `tests/training/test_checkpoints.py`, `tests/core/test_files.py` |
| a signal before or after training, once the command itself has begun, is one line too; an unfinished run is set aside, not deleted, when another starts in its folder | `tests/hostile/test_hostile_cli.py`, `tests/training/test_checkpoints.py` |
| damaged files: one line within a second, or the right answer; never a traceback, never a silently wrong model | `tests/hostile/test_hostile.py` |
| consistent files that were made up: one line, before memory is taken or a compiled pass sees them | `tests/hostile/test_hostile_models.py`, `tests/hostile/test_hostile_compact.py`, `tests/hostile/test_hostile_mutated.py` (`make test-asan`: under AddressSanitizer), `tests/hostile/test_hostile_checkpoints.py`, `tests/hostile/test_hostile_cli.py` |
| damaged tables: one line, or a table of finite numbers; a prediction that fails leaves what was there | `tests/hostile/test_hostile_tables.py`, `tests/cli/test_tables.py` |
| no NaN reaches a saved model, or comes out of a file | `tests/hostile/test_hostile.py`, `tests/hostile/test_hostile_models.py`, `tests/test_store.py` |
| a page made by `slabnet report` fetches nothing and runs its own script only; names and values in it stay text | `tests/report/test_report.py`, `tests/browser/test_pages.py` |
| a page made with `--no-rows` holds no raw row | `tests/report/test_report.py` |
| workers of one machine listen on loopback only, without a store there, and end with the command that started them | `tests/distributed/test_workers.py` |
| fits in threads do not disturb each other; worker processes started after a fit work, and a child forked after a fit does not hang | `tests/end_to_end/test_threads.py` |

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

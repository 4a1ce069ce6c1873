"""Tables from CSV and Parquet files, in chunks of rows: memory does not grow with the file.

A chunk is a dictionary of columns: lists of text as a CSV file has it, or of Python values as a Parquet file does.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slabnet.checks import FileError, one_line, refuse
from slabnet.config import TABLE_FILES

Chunk = dict[str, list[Any]]
ROWS = 20_000
SEPARATORS = (",", ";", "\t", "|")
MOST_COLUMNS = 20_000


def read_chunks(path: str | Path, where: str = "table", rows: int = ROWS) -> Iterator[Chunk]:
    """The rows of a table, some at a time; at least one chunk, which may have columns without rows.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "t.csv").write_text("a,b\\n1,x\\n2,y\\n")
    ...     list(read_chunks(f"{folder}/t.csv", rows=1))
    [{'a': ['1'], 'b': ['x']}, {'a': ['2'], 'b': ['y']}]
    """
    path = Path(path)
    if not path.is_file():
        refuse(where, "DATA", "a file that exists", path)
    if path.suffix.lower() not in TABLE_FILES:
        refuse(where, "DATA", f"a file that ends in {', '.join(TABLE_FILES)}", path)
    return _parquet(path, where, rows) if path.suffix.lower() in (".parquet", ".pq") else _csv(path, where, rows)


def read_all(path: str | Path, where: str = "table") -> Chunk:
    """The whole table."""
    whole: Chunk = {}
    for chunk in read_chunks(path, where):
        for name, values in chunk.items():
            whole.setdefault(name, []).extend(values)
    if not next(iter(whole.values()), []):
        raise FileError(f"{where}: {path} must hold rows, got column names only")
    return whole


def _csv(path: Path, where: str, rows: int) -> Iterator[Chunk]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            separator = max(SEPARATORS, key=first.count) if any(s in first for s in SEPARATORS) else ","
            file.seek(0)
            reader = csv.reader(file, delimiter=separator, strict=True)
            header = next((row for row in reader if row), None)
            if header is None:
                raise FileError(f"{where}: {path} must hold a table, got an empty file")
            names = _names([name.strip() for name in header], path, where)
            kept: list[list[str]] = []
            sent = False
            for row in reader:
                if not row:
                    continue
                if len(row) != len(names):
                    said = f"{len(row)} in line {reader.line_num}"
                    raise FileError(f"{where}: {path} must have {len(names)} values in every row, got {said}")
                kept.append(row)
                if len(kept) == rows:
                    yield _by_column(names, kept)
                    kept, sent = [], True
            if kept or not sent:
                yield _by_column(names, kept)
    except UnicodeDecodeError as error:
        raise FileError(f"{where}: {path} must be text in UTF-8, got another encoding ({error.reason})") from None
    except csv.Error as error:
        raise FileError(f"{where}: {path} must be a CSV file, got: {one_line(str(error))}") from None
    except OSError as error:
        refuse(where, "DATA", "a readable file", f"{path} ({error.strerror})")


def _by_column(names: list[str], rows: list[list[str]]) -> Chunk:
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    return {name: list(values) for name, values in zip(names, columns, strict=True)}


def _parquet(path: Path, where: str, rows: int) -> Iterator[Chunk]:
    import pyarrow as pa  # slow to import, and needed here only
    import pyarrow.parquet as pq

    damage = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError, MemoryError, RuntimeError)
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        schema = file.schema_arrow
        names = _names([str(name) for name in schema.names], path, where)
        for field in schema:
            _check_kind(field.name, field.type, where, pa)
        sent = False
        for batch in file.iter_batches(batch_size=rows):
            yield {name: batch.column(i).to_pylist() for i, name in enumerate(names)}
            sent = True
        if not sent:
            yield {name: [] for name in names}
    except damage as error:
        if hasattr(error, "exit_code"):  # one of ours
            raise
        raise FileError(f"{where}: {path} must be a whole Parquet file, got: {one_line(str(error))}") from None


def _check_kind(name: str, kind: Any, where: str, pa: Any) -> None:
    """Refuse columns that are neither numbers nor categories. Dates are refused later, unless they are left out."""
    t = pa.types
    if t.is_dictionary(kind):
        kind = kind.value_type
    number = t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) or t.is_boolean(kind)
    text = t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind)
    if not (number or text or t.is_temporal(kind) or t.is_null(kind)):
        refuse(where, f"column {one_line(name)}", "of numbers, text or dates", str(kind))


def _names(names: list[str], path: Path, where: str) -> list[str]:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        refuse(where, "column names", "different from one another", f"{one_line(twice[0])!r} twice in {path}")
    if "" in names:
        refuse(where, "column names", "not empty", f"none for column {names.index('') + 1} of {path}")
    if len(names) > MOST_COLUMNS:
        refuse(where, "DATA", f"a table of at most {MOST_COLUMNS} columns", f"{len(names)} in {path}")
    return names

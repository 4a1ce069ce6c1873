"""Tables from CSV and Parquet files, in chunks of rows: memory does not grow with the file.

A chunk is a dictionary of columns: lists of text as a CSV file has it, or of Python values as a Parquet file does.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from slabnet.config.settings import TABLE_FILES
from slabnet.core.errors import FileError, SlabnetError, one_line, refuse
from slabnet.core.files import is_there

Chunk = dict[str, list[Any]]
ROWS = 20_000
SEPARATORS = (",", ";", "\t", "|")
MOST_COLUMNS = 20_000
LONGEST_CELL = 131_072  # characters, as Python's CSV reader has it
LONGEST_LINE = 1 << 24  # characters
CELLS_AT_ONCE = 2_000_000  # of a Parquet file
MANY_CELLS, CELLS_PER_BYTE = 5_000_000, 16  # a table in memory: so many, or so many for each byte of its file


def read_chunks(path: str | Path, where: str = "table", rows: int = ROWS) -> Iterator[Chunk]:
    """The rows of a table, some at a time; at least one chunk, which may have columns without rows.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "t.csv").write_text("a,b\\n1,x\\n2,y\\n")
    ...     list(read_chunks(f"{folder}/t.csv", rows=1))
    [{'a': ['1'], 'b': ['x']}, {'a': ['2'], 'b': ['y']}]
    """
    return _chunks(Path(path), where, rows, in_memory=False)


def _chunks(path: Path, where: str, rows: int, in_memory: bool) -> Iterator[Chunk]:
    if not is_there(path):
        refuse(where, "DATA", "a file that exists", path)
    if path.suffix.lower() not in TABLE_FILES:
        refuse(where, "DATA", f"a file that ends in {', '.join(TABLE_FILES)}", path)
    if path.suffix.lower() in (".parquet", ".pq"):
        return _parquet(path, where, rows, in_memory)
    return _csv(path, where, rows)


def read_all(path: str | Path, where: str = "table") -> Chunk:
    """The whole table."""
    whole: Chunk = {}
    for chunk in _chunks(Path(path), where, ROWS, in_memory=True):
        for name, values in chunk.items():
            whole.setdefault(name, []).extend(values)
        _check_cells(Path(path), len(whole) * len(next(iter(whole.values()), [])), where)
    if not next(iter(whole.values()), []):
        raise FileError(f"{where}: {path} must hold rows, got column names only")
    return whole


def _csv(path: Path, where: str, rows: int) -> Iterator[Chunk]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines, blank = _lines(file, f"{where}: {path}"), 0
            first = next(lines, "")
            while first and not first.strip():
                first, blank = next(lines, ""), blank + 1
            named = re.fullmatch(r"sep=(.)\s*", first)  # what some spreadsheets write first
            separator = named[1] if named else _separator(first)
            rest = lines if named else itertools.chain([first], lines)
            reader = csv.reader(rest, delimiter=separator, strict=True)
            header = next((row for row in reader if row), None)
            if header is None:
                raise FileError(f"{where}: {path} must hold a table, got an empty file")
            names = _names([name.strip() for name in header], path, where)
            chunk: list[list[str]] = []
            sent = False
            for row in reader:
                if not row:
                    continue
                if len(row) != len(names):
                    came = f"{len(row)} in line {reader.line_num + blank + (named is not None)}"
                    raise FileError(f"{where}: {path} must have {len(names)} values in every row, got {came}")
                chunk.append(row)
                if len(chunk) == rows:
                    yield _by_column(names, chunk)
                    chunk, sent = [], True
            if chunk or not sent:
                yield _by_column(names, chunk)
    except UnicodeDecodeError as error:
        raise FileError(f"{where}: {path} must be text in UTF-8, got another encoding ({error.reason})") from None
    except csv.Error as error:
        raise FileError(f"{where}: {path} must be a CSV file, got: {one_line(str(error))}") from None
    except OSError as error:
        refuse(where, "DATA", "a readable file", f"{path} ({error.strerror})")


def _separator(line: str) -> str:
    """The separator that a header uses most, outside of quotes."""
    bare = re.sub(r'"[^"]*"', "", line)
    return max(SEPARATORS, key=bare.count) if any(s in bare for s in SEPARATORS) else ","


def _lines(file: TextIO, where: str) -> Iterator[str]:
    """Line by line; one without an end would fill the memory."""
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise FileError(f"{where} must have lines of at most {LONGEST_LINE} characters, got a longer one")
        yield line


def _by_column(names: list[str], rows: list[list[str]]) -> Chunk:
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    return {name: list(values) for name, values in zip(names, columns, strict=True)}


def _check_cells(path: Path, cells: int, where: str) -> None:
    """Refuse a small file that unpacks to more than memory should take."""
    most = max(MANY_CELLS, CELLS_PER_BYTE * path.stat().st_size)
    if cells > most:
        raise FileError(f"{where}: {path} must hold at most {most} cells, for a file of its size, got {cells}")


def _parquet(path: Path, where: str, rows: int, in_memory: bool) -> Iterator[Chunk]:
    import pyarrow as pa  # slow to import, and needed here only
    import pyarrow.compute
    import pyarrow.parquet as pq

    damage = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError, MemoryError, RuntimeError)
    try:
        with pq.ParquetFile(path) as file:
            schema, count = file.schema_arrow, file.metadata.num_rows
        names = _names([str(name) for name in schema.names], path, where)
        texts = [field.name for field in schema if _check_kind(field.name, field.type, where, pa)]
        if not names:
            raise FileError(f"{where}: {path} must have columns, got a table without any")
        if in_memory:
            _check_cells(path, count * len(names), where)
        file = pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=texts)  # each text once
        sent = False
        for batch in file.iter_batches(batch_size=max(1, min(rows, CELLS_AT_ONCE // len(names)))):
            yield {name: _cells(batch.column(i), f"{where}: {path}", pa) for i, name in enumerate(names)}
            sent = True
        if not sent:
            yield {name: [] for name in names}
    except SlabnetError:
        raise
    except damage as error:
        reason = one_line(str(error)) or type(error).__name__
        raise FileError(f"{where}: {path} must be a whole Parquet file, got: {reason}") from None


def _cells(column: Any, where: str, pa: Any) -> list[Any]:
    """A column as Python values; a text that comes again is one and the same object."""
    if not pa.types.is_dictionary(column.type):
        return list(column.to_pylist())
    kinds = column.dictionary
    if pa.types.is_string(kinds.type) or pa.types.is_large_string(kinds.type):
        longest = pa.compute.max(pa.compute.binary_length(kinds)).as_py() or 0
        if longest > LONGEST_CELL:
            raise FileError(f"{where} must hold texts of at most {LONGEST_CELL} characters, got one of {longest}")
    values = kinds.to_pylist()
    return [None if place is None else values[place] for place in column.indices.to_pylist()]


def _check_kind(name: str, kind: Any, where: str, pa: Any) -> bool:
    """Whether it is text; columns of other kinds are refused. Dates are refused later, unless they are left out."""
    t = pa.types
    if t.is_dictionary(kind):
        kind = kind.value_type
    number = t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) or t.is_boolean(kind)
    text = t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind)
    if not (number or text or t.is_temporal(kind) or t.is_null(kind)):
        refuse(where, f"column {one_line(name)}", "of numbers, text or dates", str(kind))
    return bool(text)


def _names(names: list[str], path: Path, where: str) -> list[str]:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        refuse(where, "column names", "different from one another", f"{one_line(twice[0])!r} twice in {path}")
    if "" in names:
        refuse(where, "column names", "not empty", f"none for column {names.index('') + 1} of {path}")
    if len(names) > MOST_COLUMNS:
        refuse(where, "DATA", f"a table of at most {MOST_COLUMNS} columns", f"{len(names)} in {path}")
    return names

"""Tables of unknown origin: cut off, flipped, of another kind. One line, or a table; no traceback, no long wait."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slabnet.core.errors import SlabnetError
from slabnet.data.columns import as_numbers
from slabnet.data.reading import read_all, read_chunks
from slabnet.data.tabular import Table

FLIPS = 2000
KINDS = ("t.csv", "t.parquet", "plain.parquet")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    rows = [f"{i},{i / 7:.3f},{'red' if i % 3 else 'blue'},{'' if i % 5 == 0 else i}" for i in range(60)]
    (folder / "t.csv").write_text("\n".join(["a,b,c,d", *rows]) + "\n")
    columns = {
        "a": list(range(60)),
        "b": [i / 7 for i in range(60)],
        "c": ["red" if i % 3 else "blue" for i in range(60)],
    }
    pq.write_table(pa.table(columns), folder / "t.parquet", write_page_checksum=True)
    pq.write_table(pa.table(columns), folder / "plain.parquet", compression="none")
    return folder


def attempt(path: Path, content: bytes) -> bool:
    """Read and prepare it: whether it was a table, which is one of finite numbers; else it is refused in one line."""
    path.write_bytes(content)
    try:
        table = read_all(path)
        matrix, report = Table.learn(table).apply(table)
    except SlabnetError as error:
        lines, was_read = [str(error)], False
    else:
        assert len(matrix) == len(next(iter(table.values())))
        assert bool(np.isfinite(matrix).all())
        lines, was_read = report.lines(), True
    assert all("\n" not in line and len(line) < 1000 for line in lines)
    return was_read


@pytest.mark.parametrize("name", KINDS)
def test_cut_off_at_every_hundredth(name: str, kept: Path, tmp_path: Path, counts: dict[str, int]) -> None:
    whole = (kept / name).read_bytes()
    assert attempt(tmp_path / name, whole)
    was_read = [attempt(tmp_path / name, whole[: len(whole) * percent // 100]) for percent in range(100)]
    assert not was_read[0]
    assert any(was_read) == (
        name == "t.csv"
    )  # lines are whole where it was cut between two; Parquet's end is its index
    counts[f"{name}: tables cut off"] = 100


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_flipped_bits(name: str, kept: Path, tmp_path: Path, counts: dict[str, int]) -> None:
    whole = (kept / name).read_bytes()
    chance = random.Random(5)
    for _ in range(FLIPS):
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        attempt(tmp_path / name, bytes(content))
    counts[f"{name}: tables with a flipped bit"] = FLIPS


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps([1, 2, 3]),
        b"\x00" * 1000,
        b"a" * 200_000,
        b"a,b\n" + b'"' * 999,
        b"a\n" + b"9" * 5000 + b"\n1\n2\n",
        b",".join(b"c%d" % i for i in range(30_000)) + b"\n",
        "a,b\n1,\u202e2\n".encode(),
        b"a,b\n1e38,-1e38\n1e38,1e308\n",
        b"a,b\r1,2\r3,4\r",
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_odd_contents(content: bytes, name: str, tmp_path: Path) -> None:
    attempt(tmp_path / name, content)


def test_a_long_text_that_comes_again_takes_its_memory_once(tmp_path: Path) -> None:
    places, texts = pa.array([0] * 20_000, pa.int32()), pa.array(["x" * 1_000_000])
    table = pa.table({"a": pa.DictionaryArray.from_arrays(places, texts), "b": [1] * 20_000})
    pq.write_table(table, tmp_path / "t.parquet", compression="zstd")
    assert (tmp_path / "t.parquet").stat().st_size < 2000
    with pytest.raises(SlabnetError, match="at most 131072 characters"):
        read_all(tmp_path / "t.parquet")
    short = pa.DictionaryArray.from_arrays(places, pa.array(["x" * 100_000]))
    pq.write_table(pa.table({"a": short}), tmp_path / "t.parquet", compression="zstd")
    column = read_all(tmp_path / "t.parquet")["a"]
    assert len({id(value) for value in column}) == 1


def test_a_small_file_of_very_many_rows_is_refused_before_it_is_read(tmp_path: Path) -> None:
    batch = pa.table({"a": pa.array(np.zeros(5_000_000, np.int8))})
    with pq.ParquetWriter(tmp_path / "t.parquet", batch.schema, compression="zstd") as writer:
        for _ in range(6):
            writer.write_table(batch)
    with pytest.raises(SlabnetError, match="cells, for a file of its size, got 30000000"):
        read_all(tmp_path / "t.parquet")


def test_text_columns_of_every_kind_are_read_as_before(tmp_path: Path) -> None:
    texts = ["red", None, "blue", "red"]
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        pq.write_table(pa.table({"a": pa.array(texts).cast(kind), "b": [1, 2, 3, 4]}), tmp_path / "t.parquet")
        assert read_all(tmp_path / "t.parquet") == {"a": texts, "b": [1, 2, 3, 4]}


def test_a_line_without_an_end(tmp_path: Path) -> None:
    with (tmp_path / "t.csv").open("wb") as file:
        file.truncate(1 << 31)  # zeros that take no room on the disk
    with pytest.raises(SlabnetError, match="lines of at most 16777216 characters"):
        read_all(tmp_path / "t.csv")


def test_many_columns_come_few_rows_at_a_time(tmp_path: Path) -> None:
    pq.write_table(pa.table({f"c{i}": np.zeros(9000, np.int8) for i in range(500)}), tmp_path / "t.parquet")
    sizes = [len(chunk["c0"]) for chunk in read_chunks(tmp_path / "t.parquet")]
    assert sum(sizes) == 9000
    assert max(sizes) == 4000


def test_numbers_whose_sums_are_none(tmp_path: Path) -> None:
    with pytest.raises(SlabnetError, match=r"finite numbers up to 1e\+300 in size, got -1.7e308 in row 2"):
        as_numbers(["1", "-1.7e308"], "a", "fit")
    assert as_numbers(["1e300"], "a", "fit").tolist() == [1e300]
    for fill in ("nan", 10**400, "inf"):
        column = {"name": "a", "kind": "number", "fill": fill, "levels": [], "missing": False}
        with pytest.raises(SlabnetError, match="preprocessing must be a list of columns"):
            Table.from_dict({"columns": [column]})

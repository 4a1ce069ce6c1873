"""Tables: what is read, what is refused, what is kept of the columns."""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slabnet.core.errors import ArgumentError, FileError
from slabnet.data import cells, columns
from slabnet.data.cells import number_of, plain_numbers
from slabnet.data.columns import as_numbers
from slabnet.data.noticed import noticed
from slabnet.data.reading import read_all, read_chunks
from slabnet.data.tabular import Table
from slabnet.data.task import guess_task


def written(folder: Path, content: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,x\n2,y\n",
        b"\xef\xbb\xbfa,b\n1,x\n2,y\n",
        b"a,b\r\n1,x\r\n2,y\r\n",
        b"\xef\xbb\xbfa;b\r\n1;x\r\n2;y",
        b"a\tb\n1\tx\n\n2\ty\n\n",
        b'"a","b"\n"1","x"\n"2","y"\n',
        b" a ,b\n1,x\n2,y\n",
    ],
)
def test_one_table_in_many_spellings(content: bytes, tmp_path: Path) -> None:
    path = written(tmp_path, content)
    assert read_all(path) == {"a": ["1", "2"], "b": ["x", "y"]}
    assert [len(chunk["a"]) for chunk in read_chunks(path, rows=1)] == [1, 1]


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (b"", FileError, "must hold a table, got an empty file"),
        (b"\n\n", FileError, "must hold a table, got an empty file"),
        (b"a,b\n", FileError, "must hold rows, got column names only"),
        (b"a,b\n1,2\n3\n", FileError, "must have 2 values in every row, got 1 in line 3"),
        (b"a,b\n1,2,3\n", FileError, "must have 2 values in every row, got 3 in line 2"),
        (b'a,b\n"1,2\n', FileError, "must be a CSV file, got: unexpected end of data"),
        (b"a,b\n1,\xff\xfe\n", FileError, "must be text in UTF-8"),
        (b"a,a\n1,2\n", ArgumentError, "column names must be different from one another, got 'a' twice"),
        (b"a,\n1,2\n", ArgumentError, "column names must be not empty, got none for column 2"),
    ],
)
def test_damaged_tables_are_one_line(content: bytes, kind: type[Exception], said: str, tmp_path: Path) -> None:
    with pytest.raises(kind, match=said) as caught:
        read_all(written(tmp_path, content))
    assert "\n" not in str(caught.value)


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="DATA must be a file that exists"):
        read_all(tmp_path / "none.csv")
    with pytest.raises(ArgumentError, match=r"DATA must be a file that ends in .csv"):
        read_all(written(tmp_path, "a\n1\n", "t.xlsx"))


def test_parquet_says_the_same_as_csv(tmp_path: Path) -> None:
    columns = {
        "n": [1.5, None, 3.0],
        "i": [1, 2, 3],
        "c": ["x", None, "y"],
        "d": ["u", "v", "u"],
        "b": [True, False, True],
    }
    table = pa.table(columns | {"d": pa.array(columns["d"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "t.parquet")
    text = "n,i,c,d,b\n1.5,1,x,u,True\n,2,,v,False\n3.0,3,y,u,True\n"
    one, other = read_all(tmp_path / "t.parquet"), read_all(written(tmp_path, text))
    learned = Table.learn(one)
    assert learned == Table.learn(other)
    np.testing.assert_array_equal(learned.apply(one)[0], learned.apply(other)[0])
    assert sum(len(chunk["n"]) for chunk in read_chunks(tmp_path / "t.parquet", rows=2)) == 3


def test_parquet_of_another_kind(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [[1, 2], [3]]}), tmp_path / "t.parquet")
    with pytest.raises(ArgumentError, match="column a must be of numbers, text or dates, got list"):
        read_all(tmp_path / "t.parquet")
    with pytest.raises(FileError, match="must be a whole Parquet file"):
        read_all(written(tmp_path, b"PAR1 nothing PAR1", "u.parquet"))
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "v.parquet")
    with pytest.raises(ArgumentError, match="'a' twice"):
        read_all(tmp_path / "v.parquet")
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "w.parquet")
    with pytest.raises(FileError, match="column names only"):
        read_all(tmp_path / "w.parquet")


def test_columns_by_hand() -> None:
    table = {
        "size": ["1", "NA", "5"],
        "colour": ["red", "", "blue"],
        "flag": ["yes", "no", "yes"],
        "void": ["", "", ""],
    }
    prepared = Table.learn(table)
    assert prepared.inputs == [
        "size", "size (missing)", "colour=red", "colour=(missing)", "flag=yes",
    ]  # fmt: skip
    values, report = prepared.apply(table)
    assert values.tolist() == [[1, 0, 1, 0, 1], [3, 1, 0, 1, 0], [5, 0, 0, 0, 1]]
    assert prepared.column_groups == {"size": (0, 1), "colour": (2, 3), "flag": (4,)}
    undone = {"size": [1.0, None, 5.0], "colour": ["red", None, "blue"], "flag": ["yes", "no", "yes"]}
    assert prepared.undo(values) == undone
    assert dict(report.missing) == {"size": 1, "colour": 1}
    new = {"size": ["7"], "colour": ["green"], "extra": ["1"]}
    values, report = prepared.apply(new)
    assert values.tolist() == [[7, 0, 0.5, 0, 2 / 3]]  # neither of two levels: as often as in training
    assert report.absent == ("flag",)
    assert report.ignored == ("extra",)
    lines = report.lines()
    assert any("not there, taken as missing: flag" in line for line in lines)
    assert any("colour: 1 rows with levels not seen in training (green)" in line for line in lines)
    again = Table.from_dict(json.loads(json.dumps(prepared.to_dict())))
    assert again == prepared


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            ["2024-01-05", "2023-12-31", ""],
            "column c must be numbers or a category; .*got dates or times, as 2024-01-05",
        ),
        (["05/01/2024 10:00", "6/1/24 11:30"], "got dates or times"),
        ([datetime.date(2024, 1, 5)], "got dates or times, as 2024-01-05"),
        ([datetime.datetime(2024, 1, 5)], "got dates or times"),
        (["10:15", "11:20:30"], "got dates or times"),
        ([f"a comment on {i}" for i in range(60)], "got text with 60 different values"),
        ([f"id{i}" for i in range(20)], "leave it out with --drop, got text with 20 different values"),
        (["1", "2", "x", "4"], "column c must be numbers, got 'x' in row 3"),
        (["none", "2", "x", "4"], r"\(--categorical c takes its values for levels, --drop c leaves it out\)"),
        (["1", "2", "inf"], r"column c must be finite numbers up to 1e\+300 in size, got inf in row 3"),
        (["1", "2", "1e999"], "column c must be finite numbers"),
        ([10**400, 1, 2], "column c must be finite numbers"),
    ],
)
def test_columns_that_are_refused_by_name(values: list[Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said) as caught:
        Table.learn({"a": ["1"] * len(values), "c": values})
    assert "\n" not in str(caught.value)


def test_text_where_the_model_knows_numbers() -> None:
    prepared = Table.learn({"a": ["1", "2"], "b": ["1", "2"]})
    with pytest.raises(ArgumentError, match="predict: column a must be numbers, got 'many' in row 12"):
        prepared.apply({"a": ["1", "many"], "b": ["1", "1"]}, "predict", 11)
    with pytest.raises(ArgumentError, match="a table with the columns a, b, got c"):
        prepared.apply({"c": ["1"]})


def test_numbers_as_labels() -> None:
    prepared = Table.learn({"zip": ["0150", "0350", "0150"]}, categorical=("zip",))
    assert prepared.inputs == ["zip=0350"]
    assert Table.learn({"zip": [1.0, 2.0, 3.0]}, categorical=("zip",)).inputs == ["zip=1", "zip=2", "zip=3"]
    with pytest.raises(ArgumentError, match="--categorical must be one of the columns zip, got zap"):
        Table.learn({"zip": ["1"]}, categorical=("zap",))


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["a", "b"], "classification"),
        (["0", "1", "1"], "classification"),
        ([True, False], "classification"),
        ([str(i) for i in range(50)], "regression"),
        (["0.5", "1", "2"], "regression"),
        (["1", "2", "x"], "classification"),
    ],
)
def test_the_task_is_guessed(values: list[Any], task: str) -> None:
    assert guess_task(values, "y").task == task
    with pytest.raises(ArgumentError, match="a column with values, got y, where all are missing"):
        guess_task(["", "NA"], "y")


@pytest.mark.parametrize(
    "found",
    [
        None,
        {},
        {"columns": 3},
        {"columns": [{"name": "a"}]},
        {"columns": [{"name": "a", "kind": "x", "fill": 0, "levels": [], "missing": 0}]},
    ],
)
def test_odd_headers(found: Any) -> None:
    with pytest.raises(FileError, match="preprocessing must be a list of columns"):
        Table.from_dict(found)


@given(st.lists(st.one_of(st.none(), st.floats(), st.text(max_size=5), st.integers(), st.booleans()), min_size=1))
def test_any_column_is_numbers_levels_or_one_line(values: list[Any]) -> None:
    try:
        prepared = Table.learn({"c": values})
        matrix, _ = prepared.apply({"c": values})
    except (ArgumentError, FileError):  # one line by construction
        return
    assert np.isfinite(matrix).all()
    assert matrix.shape == (len(values), len(prepared.inputs))


@given(st.floats(allow_nan=False))
def test_numbers_survive_their_text(value: float) -> None:
    assert number_of(repr(value)) == value
    assert math.isnan(number_of("NaN") or 0.0)


def test_a_file_of_0_1_gives_both_of_two_levels_an_input() -> None:
    kept = {"name": "flag", "kind": "category", "fill": 0.0, "levels": ["no", "yes"], "missing": False}
    table = Table.from_dict({"columns": [kept]})
    assert table.inputs == ["flag=no", "flag=yes"]
    assert table.apply({"flag": ["yes", "no", "maybe"]})[0].tolist() == [[0, 1], [1, 0], [0, 0]]


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["$1,234.50", "-$5", "($1,200)", "7"], [1234.5, -5, -1200, 7]),
        (["12%", "0.5 %", ""], [12, 0.5, math.nan]),
        (["1,234", "12", "1,000,000.5"], [1234, 12, 1000000.5]),
        (["1 234 EUR", "56 EUR", "1\u00a0000 EUR"], [1234, 56, 1000]),
        (["1", "none", "2"], [1, math.nan, 2]),
    ],
)
def test_amounts_are_read_with_a_note(texts: list[str], numbers: list[float]) -> None:
    table = Table.learn({"c": texts, "a": [1.0] * len(texts)})
    values, _ = table.apply({"c": texts, "a": [1.0] * len(texts)})
    known = [i for i, number in enumerate(numbers) if not math.isnan(number)]
    np.testing.assert_allclose(values[known, 0], np.array(numbers)[known])
    assert ("c: read as numbers" in " ".join(table.notes)) == (texts[0] != "1")
    again = Table.from_dict(json.loads(json.dumps(table.to_dict())))
    assert again == table
    np.testing.assert_array_equal(again.apply({"c": texts})[0], table.apply({"c": texts})[0])


def test_units_that_do_not_fit_are_refused() -> None:
    for values, said in (
        (["$5", "\u20ac6", "$7"], "column c must be numbers of one unit, got '\\$5' and '\u20ac6'"),
        (["5%", "0.06", "7%"], "column c must be numbers of one unit, got '5%' and '0.06'"),
    ):
        with pytest.raises(ArgumentError, match=said):
            Table.learn({"c": values})
    table = Table.learn({"c": ["5%", "6%", "9%"]})
    with pytest.raises(
        ArgumentError, match=r"column c must be numbers with a per cent sign, as 12%, got 0.06 in row 1"
    ):
        table.apply({"c": [0.06]})


def test_none_is_a_level_of_text_and_no_number() -> None:
    table = Table.learn({"c": ["none", "mild", "severe"], "n": ["1", "None", "3"]})
    assert table.inputs == ["c=mild", "c=none", "c=severe", "n", "n (missing)"]
    assert guess_task(["none", "mild", "none"], "y").task == "classification"
    assert guess_task(["none", "1.5", "2.5"], "y").task == "regression"


def test_all_bad_columns_are_named_at_once() -> None:
    rows = 60
    table = {
        "when": [f"2024-01-{1 + i % 28:02d}" for i in range(rows)],
        "good": list(range(rows)),
        "name": [f"person {i}" for i in range(rows)],
        "amount": ["1"] * (rows - 1) + ["x"],
    }
    with pytest.raises(ArgumentError) as caught:
        Table.learn(table)
    said = str(caught.value)
    assert "column when must be numbers or a category" in said
    assert "column name must be numbers, or a category of levels that come again" in said
    assert "column amount must be numbers, got 'x' in row 60" in said
    assert said.endswith("(to leave them all out: --drop when,name,amount)")
    assert "\n" not in said


def test_rare_levels_share_an_input() -> None:
    cities = ["oslo"] * 100 + ["bergen"] * 60 + [f"village {i}" for i in range(40)]
    table = Table.learn({"city": cities})
    assert table.inputs == ["city=bergen", "city=oslo", "city=(rare)"]
    assert "city: 2 levels have an input each, rarer ones share one, (rare)." in table.notes
    values, report = table.apply({"city": ["oslo", "village 3", "nowhere"]})
    assert values.tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1]]
    assert report.unseen == {}
    assert table.undo(values)["city"] == ["oslo", "(rare)", "(rare)"]


def test_what_was_guessed_is_said_with_its_reason() -> None:
    counts = guess_task([str(i % 10) for i in range(60)], "visits")
    assert counts.task == "regression"
    assert counts.line("visits") == (
        "Task: regression, guessed from visits: 10 different whole numbers (0, 1, 2, 3, 4, 5, 6, 7, 8, 9); "
        "if they are codes of classes, say --task classification; if they are counts, "
        "--response poisson or negative-binomial."
    )
    assert guess_task(range(40), "articles").otherwise == "if they are counts, --response poisson or negative-binomial"
    assert guess_task([200_000 + i for i in range(40)], "price").otherwise == ""
    assert guess_task([i - 5 for i in range(40)], "change").otherwise == ""
    grades = guess_task([1, 2, 3], "grade")
    assert (grades.task, "say --task regression" in grades.otherwise) == ("classification", True)
    assert guess_task(["a", "b", "a"], "y").line("y") == (
        "Task: classification, guessed from y: text, 2 different (a, b) (--task says otherwise)."
    )


def test_columns_that_are_likely_mistakes_are_named() -> None:
    rng = np.random.default_rng(0)
    size = rng.normal(size=40)
    table = {
        "row": list(range(40)),
        "customer_id": rng.permutation(10_000)[:40].tolist(),
        "price": rng.permutation(10_000)[:40].tolist(),
        "celsius": size.tolist(),
        "fahrenheit": (32 + 1.8 * size).tolist(),
        "colour": ["red", "blue"] * 20,
        "code": ["r", "b"] * 20,
    }
    said = noticed(table, [2 * p for p in table["price"]], "answer")
    assert said == [
        "row counts the rows: leave it out with --drop row.",
        "customer_id looks like an id (every row has another value): leave it out with --drop customer_id.",
        "celsius and fahrenheit say the same: leave one out with --drop fahrenheit.",
        "colour and code say the same: leave one out with --drop code.",
        "price gives answer away, which is to be predicted: leave it out with --drop price.",
    ]


def test_short_floats_are_compared_without_a_warning() -> None:
    assert as_numbers(np.array([1.5, 2.5], dtype=np.float32), "a", "fit").dtype == np.float64


TOKENS = ("1", "-2.5", " 3 ", "1e5", "", " ", "NA", "nan", "inf", "1e999", "1_0", "none", "1,5", "x", "$4", "5%", "+.5")


@given(st.lists(st.sampled_from(TOKENS)) | st.lists(st.sampled_from([1, 0, 2.5, math.nan, None, True, "1", 10**400])))
def test_numbers_all_at_once_are_those_of_cell_by_cell(values: list[Any]) -> None:
    at_once, one_by_one = plain_numbers(values), [number_of(value) for value in values]
    if at_once is not None:
        assert None not in one_by_one
        np.testing.assert_array_equal(at_once, np.array(one_by_one, dtype=np.float64))


def test_a_column_of_numbers_is_not_read_cell_by_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million rows would take half a minute."""
    rows = {"a": [f"{i / 7:.3f}" for i in range(50)], "b": [f"{i % 3}" if i % 4 else "" for i in range(50)]}
    slowly = Table.learn({"a": [*rows["a"], "NA"], "b": [*rows["b"], "NA"]})
    for module in (cells, columns):
        monkeypatch.setattr(module, "number_of", lambda value: pytest.fail("cell by cell"))
    quickly = Table.learn(rows)
    assert [column.fill for column in quickly.columns] == [column.fill for column in slowly.columns]
    assert [column.missing for column in quickly.columns] == [False, True]
    assert quickly.apply(rows)[0].shape == (50, 3)
    assert guess_task(rows["a"], "a").task == "regression"

"""A table from the command line: fit, predict, what is said, what is refused."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import bootstrap
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import slabnet as sn
from slabnet.cli.app import run as run_cli
from slabnet.cli.held_out import rmse_interval
from slabnet.cli.summary import next_steps
from slabnet.cli.table_predictions import lines_of, predict_table
from slabnet.cli.tables import TableJob, fit_table, table_finished
from slabnet.config.settings import Recipe
from slabnet.data.holdout import split_rows
from slabnet.data.reading import read_all
from slabnet.data.tabular import Table
from slabnet.estimators import load_estimator
from slabnet.prediction.scores import wilson
from slabnet.report.measure import Measured
from slabnet.report.subject import subject_from_file
from slabnet.store import read_header


def slabnet(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line in this process: its exit code, and what it printed."""
    out, errors, before, where = io.StringIO(), io.StringIO(), sys.argv, Path.cwd()
    sys.argv = ["slabnet", *words]
    os.chdir(cwd)
    try:
        with redirect_stdout(out), redirect_stderr(errors), pytest.raises(SystemExit) as left:
            run_cli()
    finally:
        sys.argv = before
        os.chdir(where)
    return subprocess.CompletedProcess(words, int(left.value.code or 0), out.getvalue(), errors.getvalue())


def houses(path: Path, n: int = 240, seed: int = 0) -> Path:
    """price depends on size and on the quarter, not on the age; some sizes are missing."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file)
        writer.writerow(["size", "age", "quarter", "price"])
        for i in range(n):
            size, age, quarter = rng.uniform(50, 150), rng.uniform(0, 90), ["=north", "south", "east"][i % 3]
            price = 1000 * size + 40_000 * (quarter == "south") + 5_000 * rng.normal()
            writer.writerow(["" if i % 20 == 7 else f"{size:.2f}", f"{age:.1f}", quarter, f"{price:.0f}"])
    return path


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("houses")
    houses(folder / "houses.csv")
    words = ["fit", "houses.csv", "--target", "price", "--out", "m.slab", "--hidden", "8", "--epochs", "150"]
    run = slabnet(*words, cwd=folder)
    assert run.returncode == 0, run.stderr
    return folder, run.stdout


def test_a_person_is_told_what_matters(regression: tuple[Path, str]) -> None:
    said = regression[1]
    for words in (
        "Task: regression, guessed from price",
        "Fitted 192 rows and 6 inputs with lbbnn to predict price, a number with gaussian noise.",
        "  ridge: ",
        "RMSE on 48 held-out rows",
        "always saying the mean",
        "95% prediction intervals cover",
        "The median model keeps",
        "Missing values filled in: size 12.",
        "* size ",
        "* quarter=south",
        "Next:    slabnet predict m.slab",
    ):
        assert words in said
    assert "* age" not in said


def test_the_same_is_said_to_machines(tmp_path: Path) -> None:
    """Ridge and the intervals by another route, from the rows that the fit held out."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3))
    y = 2 * x[:, 0] - x[:, 1] + rng.normal(size=120)
    lines = [f"{a!r},{b!r},{c!r},{d!r}" for (a, b, c), d in zip(x.tolist(), y.tolist(), strict=True)]
    lines[100] = lines[3]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,y", *lines, *lines[:40]]) + "\n")
    words = ["fit", "t.csv", "--target", "y", "--out", "m.slab", "--hidden", "4", "--epochs", "60", "--json"]
    run = slabnet(*words, "--skip", "--gates", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    numbers = json.loads(run.stdout.splitlines()[-1])
    test = numbers["test"]
    columns = sorted(numbers["columns"], key=lambda row: -abs(row["effect"]))
    assert [row["column"] for row in columns] == ["a", "b", "c"]
    first = columns[0]
    assert first["effect"] == pytest.approx(2 * x[:, 0].std(), rel=0.2)
    assert first["effect_interval"][0] < first["effect"] < first["effect_interval"][1]
    assert first["inclusion"] > 0.9
    assert 0 <= first["linear"] <= 1
    assert numbers["odd_rows"]["copies"] > 0

    model = sn.load_estimator(tmp_path / "m.slab")
    table = np.vstack([np.array([float(v) for v in line.split(",")]) for line in [*lines, *lines[:40]]])
    train, held = split_rows(table[:, 3], False, 0.2, 0, None, None)
    line = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 15))).fit(table[train, :3], table[train, 3])
    theirs = (line.predict(table[held, :3]) - table[held, 3]) ** 2
    ours = (model.predict(table[held, :3]) - table[held, 3]) ** 2
    assert test["linear"]["rmse"] == pytest.approx(np.sqrt(theirs.mean()))
    assert test["linear"]["behind"] == pytest.approx(np.sqrt(theirs.mean()) - np.sqrt(ours.mean()))

    def difference(a: Any, b: Any, axis: int) -> Any:
        return np.sqrt(a.mean(axis)) - np.sqrt(b.mean(axis))

    ends = bootstrap((theirs, ours), difference, paired=True, method="percentile").confidence_interval
    assert test["linear"]["behind_interval"] == pytest.approx([ends.low, ends.high], abs=0.15 * (ends.high - ends.low))


def test_what_to_do_next_is_said() -> None:
    bad = {"name": "ridge", "behind": -1.0, "behind_interval": [-2.0, -0.5]}
    numbers: dict[str, Any] = {"selects": True, "weights": 0, "alpha_moving": 0.2, "epochs": 50, "test_rows": 100}
    steps = next_steps(numbers | {"test": {"linear": bad, "coverage": 0.7}})
    for words, step in zip(("No weight", "--epochs 100", "ridge is better", "Intervals miss"), steps, strict=True):
        assert words in step
    good = bad | {"behind": 1.0, "behind_interval": [-0.1, 2.0]}
    numbers |= {"weights": 3, "alpha_moving": 0.0, "test": {"linear": good, "coverage": 0.95}}
    assert next_steps(numbers) == []


def test_new_rows_are_prepared_as_the_old_ones(regression: tuple[Path, str]) -> None:
    folder, _ = regression
    (folder / "new.csv").write_text("quarter,size,extra\nsouth,100,1\nwest,100,1\n=north,,1\n")
    run = slabnet("predict", "m.slab", "new.csv", "--out", "p.csv", "--json", cwd=folder)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["rows"] == 3
    notes = " ".join(found["notes"])
    assert "not there, taken as missing: age" in notes
    assert "does not know, ignored: extra" in notes
    assert "quarter: 1 rows with levels not seen in training (west)" in notes
    with (folder / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["prediction"]) == pytest.approx(140_000, rel=0.1)
    for row in rows:
        assert float(row["low"]) < float(row["prediction"]) < float(row["high"])
        parts = float(row["aleatoric"]) ** 2 + float(row["epistemic"]) ** 2
        assert float(row["std"]) ** 2 == pytest.approx(parts, rel=1e-3)
    model = sn.load_estimator(folder / "m.slab")
    x = np.array([[100.0, 0.0, 45.0, 0.0, 0.0, 1.0]])
    assert isinstance(model, sn.SlabRegressor)
    assert model.predict(x)[0] == pytest.approx(float(rows[0]["prediction"]), rel=0.02)


def test_chunks_make_no_difference_and_parquet_neither(regression: tuple[Path, str]) -> None:
    folder, _ = regression
    found = []
    for rows, name in ((1000, "a.csv"), (7, "b.csv")):
        found.append(predict_table(folder / "m.slab", folder / "houses.csv", folder / name, 20, 0, rows=rows))
    assert (folder / "a.csv").read_text() == (folder / "b.csv").read_text()
    with (folder / "houses.csv").open(encoding="utf-8-sig") as file:
        table = list(csv.DictReader(file))
    columns = {name: [float(r[name]) if r[name] else None for r in table] for name in ("size", "age", "price")}
    pq.write_table(pa.table(columns | {"quarter": [r["quarter"] for r in table]}), folder / "h.parquet")
    found.append(predict_table(folder / "m.slab", folder / "h.parquet", folder / "c.csv", 20, 0))
    assert (folder / "a.csv").read_text() == (folder / "c.csv").read_text()
    assert found[0] == {**found[1], "data": found[0]["data"]}
    parts = [
        found[0],
        found[0]["training"],
    ]  # rows that were fitted are told apart in the file of the fit, and only there
    assert [part["known"] for part in parts] == [48, 192]
    assert found[2]["known"] == 240
    whole = sum(part["known"] * part["rmse"] ** 2 for part in parts) / 240
    assert found[2]["rmse"] == pytest.approx(whole**0.5)
    assert 0.9 < found[0]["coverage"] <= 1


def _same_importances(said: list[dict[str, Any]], folder: Path) -> None:
    """The page shows what the fit printed, and counts active weights in each row of its table of ways."""
    measured = Measured(subject_from_file(folder / "m.slab", str(folder / "t.csv")))
    assert measured.reach is not None
    assert measured.effects is not None
    assert measured.chosen is not None
    shown = dict(zip(measured.subject.inputs, zip(measured.reach, measured.effects, strict=True), strict=True))
    assert shown == {
        row["input"]: (pytest.approx(row["share"]), pytest.approx(row["effect"] / measured.unit)) for row in said
    }
    counts = {way["weights"] for way in measured.ways if way["family"] == "the median model"}
    assert counts == {measured.chosen.weights}


def test_one_number_everywhere(tmp_path: Path) -> None:
    """The fit, the prediction of its file, and the page say the same of the same rows."""
    rng = np.random.default_rng(0)
    rows = [
        f"{a:.3f},{b:.3f},{2 * a + rng.normal():.3f},{'rare' if a > 1.2 else 'usual'}"
        for a, b in rng.normal(size=(150, 2))
    ]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y,k", *rows]) + "\n")
    for target, drop in (("y", "k"), ("k", "y")):
        words = ["--target", target, "--drop", drop, "--epochs", "20", "--hidden", "4", "--out", "m.slab", "--json"]
        fitted = slabnet("fit", "t.csv", *words, cwd=tmp_path)
        test = json.loads(fitted.stdout.splitlines()[-1])["test"]
        said = slabnet("predict", "m.slab", "t.csv", "--json", cwd=tmp_path)
        predicted = json.loads(said.stdout)
        page = Measured(subject_from_file(tmp_path / "m.slab", str(tmp_path / "t.csv"))).scores
        assert page is not None
        assert (predicted["known"], predicted["training"]["known"]) == (30, 120)
        classes = ["accuracy", "balanced_accuracy", "log_loss", "brier", "baseline"]
        names = ["rmse", "r2", "coverage", "baseline"] if target == "y" else classes
        for name in names:
            assert predicted[name] == pytest.approx(test[name], rel=1e-5), name
            assert page[name] == pytest.approx(test[name], rel=1e-9), name
        assert page["baseline"] == pytest.approx(test["baseline"])
        _same_importances(json.loads(fitted.stdout.splitlines()[-1])["importances"], tmp_path)
        lines = slabnet("predict", "m.slab", "t.csv", cwd=tmp_path).stdout
        slabnet("predict", "m.slab", "t.csv", "--out", "p.csv", cwd=tmp_path)
        with (tmp_path / "p.csv").open() as file:
            assert [row["row"] for row in csv.DictReader(file)] == [str(i) for i in range(1, 151)]
        assert "on 30 rows that were held out" in lines
        assert "(always saying the m" in lines
        assert "Only for comparison" in lines
        assert "on 120 rows that were fitted" in lines


def test_a_prediction_that_fails_leaves_what_was_there(regression: tuple[Path, str]) -> None:
    folder, _ = regression
    (folder / "bad.csv").write_text("size,age,quarter\n" + "100,3,south\n" * 50 + "100,old,south\n")
    (folder / "kept.csv").write_text("what was there")
    before = sorted(p.name for p in folder.iterdir())
    run = slabnet("predict", "m.slab", "bad.csv", "--out", "kept.csv", cwd=folder)
    assert run.returncode == 2
    assert run.stderr == "predict: column age must be numbers, got 'old' in row 51\n"
    assert (folder / "kept.csv").read_text() == "what was there"
    assert sorted(p.name for p in folder.iterdir()) == before


def test_memory_does_not_grow_with_the_file(regression: tuple[Path, str]) -> None:
    folder, _ = regression
    peaks = []
    for rows in (2000, 20_000):
        (folder / "big.csv").write_text("size,age,quarter\n" + "100.25,3.125,south\n" * rows)
        tracemalloc.start()
        predict_table(folder / "m.slab", folder / "big.csv", folder / "big-out.csv", 2, 0, rows=1000)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0], peaks


def test_labels_that_a_spreadsheet_would_run(tmp_path: Path) -> None:
    rows = [f"{i % 7},{'=cmd()' if i % 7 > 3 else '-1'}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["x,label", *rows]) + "\n")
    job = TableJob(
        tmp_path / "t.csv", "label", Recipe(network={"hidden": ()}, train={"epochs": 40, "lr": 0.2}), test_size=0.0
    )
    said = fit_table(job, tmp_path / "m.slab").lines
    assert any("No rows were held out" in line for line in said)
    found = predict_table(tmp_path / "m.slab", tmp_path / "t.csv", tmp_path / "p.csv")
    assert found["accuracy"] == 1
    with (tmp_path / "p.csv").open() as file:
        answers = list(csv.DictReader(file))
    assert {row["prediction"] for row in answers} == {"'=cmd()", "-1"}
    for row in answers:
        assert float(row["P(=cmd())"]) + float(row["P(-1)"]) == pytest.approx(1, abs=1e-4)
        assert float(row["entropy"]) >= float(row["epistemic"]) >= 0


def test_a_fit_that_was_stopped_goes_on(tmp_path: Path) -> None:
    houses(tmp_path / "h.csv", 120)
    words = ["fit", "h.csv", "--target", "price", "--hidden", "8", "--epochs", "150", "--out"]
    assert slabnet(*words, "whole.slab", cwd=tmp_path).returncode == 0
    run = subprocess.Popen([sys.executable, "-m", "slabnet", *words, "m.slab"], cwd=tmp_path, stderr=subprocess.PIPE)
    folder = tmp_path / "m.slab.checkpoints"
    deadline = time.monotonic() + 60
    while not list(folder.rglob("checkpoint-*.slab")) and time.monotonic() < deadline:
        time.sleep(0.01)
    run.send_signal(signal.SIGTERM)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 143, errors
    assert b"go on with the same command and --resume" in errors
    again = slabnet(*words, "m.slab", "--resume", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "m.slab").read_bytes() == (tmp_path / "whole.slab").read_bytes()
    assert not folder.exists()
    assert "nothing to resume" in slabnet(*words, "m.slab", "--resume", cwd=tmp_path).stdout
    said = slabnet(*words, "m.slab", "--resume", "--json", cwd=tmp_path).stdout
    assert json.loads(said) == {"finished": True, "model": "m.slab"}
    other = TableJob(tmp_path / "h.csv", "age", Recipe())
    with pytest.raises(sn.ArgumentError, match="got another target"):
        table_finished(tmp_path / "m.slab", other)


@pytest.mark.parametrize(
    ("content", "words", "code", "said"),
    [
        ("a,y\n1,2\n", ["--target", "z"], 2, "--target must be one of the columns a, y, got z"),
        ("a,y\n1,2\n", [], 2, "--target must be given for a table"),
        ("a,y\n1,2\n", ["--target", "y", "--task", "guess"], 2, "--task must be one of classification, regression"),
        ("a,y\n1,2\n", ["--target", "y", "--test-size", "1"], 2, "--test-size must be a number at least 0 and below 1"),
        ("a,y\n1,2\n", ["--target", "y", "--drop", "q"], 2, "--drop must be one of the columns of t.csv, got q"),
        ("a,y\n1,2\n", ["--target", "y"], 1, "t.csv must hold at least 4 rows, got 1"),
        ("y\n" + "1\n2\n" * 9, ["--target", "y"], 2, "a table with columns besides the target"),
        ("a,y\n" + "1,k\n" * 9, ["--target", "y"], 2, "a column of at least two classes, got y, always k"),
        ("a,y\n" + "1,\n" * 9, ["--target", "y"], 1, "must hold at least 4 rows, got 0 with a value of y"),
        ("a,y\n" + "1,k\n2,x\n" * 9, ["--target", "y", "--task", "regression"], 2, "column y must be numbers, got 'k'"),
        ("a,y\n" + "2020-01-02,1\n2020-01-03,0\n" * 9, ["--target", "y"], 2, "column a must be numbers or a category"),
        ("a,y\n1,2\n3\n", ["--target", "y"], 1, "must have 2 values in every row, got 1 in line 3"),
        ("", ["--target", "y"], 1, "must hold a table, got an empty file"),
        ("a,y\n" + "1,2\n3,4\n" * 9 + "x,5\n", ["--target", "y"], 2, "column a must be numbers, got 'x' in row 19"),
        ("\n\na;b;y\n1;2\n", ["--target", "y"], 1, "must have 3 values in every row, got 2 in line 4"),
        ("sep=;\na;y\n1;2;3\n", ["--target", "y"], 1, "must have 2 values in every row, got 3 in line 3"),
        ('"a,b,c";y\n1;2;3\n', ["--target", "y"], 1, "must have 2 values in every row, got 3 in line 2"),
        (
            "a,y\n" + "".join(f"1,2024-01-{d:02}\n" for d in range(1, 29)),
            ["--target", "y"],
            2,
            "got dates or times, as",
        ),
        ("a;y\n" + "".join(f"1;{d},5\n" for d in range(20)), ["--target", "y"], 2, "got decimal commas, as 0,5"),
        (
            "a,y\n" + "".join(f"1,no {d}\n" for d in range(20)),
            ["--target", "y"],
            2,
            "y with 20 different texts, as 'no 0'",
        ),
        ("a,y\n" + "01-Jan-2024,1\n02-Feb-2024,0\n" * 9, ["--target", "y"], 2, "got dates or times, as 01-Jan-2024"),
        ("a;y\n" + "0,5;1\n1,5;0\n" * 9, ["--target", "y"], 2, "column a must be numbers with a point"),
        ("a,y\n" + "1,2.5\n3,1e200\n" * 9, ["--target", "y"], 2, "column y must be numbers up to 1e+60 in size"),
        (
            "a,y\n" + "".join(f"{d},{d / 3:.3f}\n" for d in range(30)) + "1,dear\n",
            ["--target", "y"],
            2,
            "column y must be numbers, got 'dear' in row 31",
        ),
        ("a,y\n" + "1,5.5\n2,5.5\n" * 9, ["--target", "y"], 2, "a column with more than one value, got y, always 5.5"),
        ("a,y\n" + "1,2\n3,4.5\n" * 9, ["--target", "y", "--test-size", "0.99"], 2, "a share that leaves rows to fit"),
    ],
)
def test_bad_tables_are_one_line(content: str, words: list[str], code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(content)
    run = slabnet("fit", "t.csv", "--out", "m.slab", *words, cwd=tmp_path)
    assert (run.returncode, run.stderr.count("\n"), run.stdout) == (code, 1, ""), run.stderr
    assert said in run.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


def test_other_bad_calls(tmp_path: Path, regression: tuple[Path, str]) -> None:
    sn.save(sn.mlp((2, 2)), tmp_path / "n.slab", data="digits")
    (tmp_path / "t.csv").write_text("a\n1\n")
    for words, said in (
        (["predict", "n.slab", "t.csv"], "MODEL must be one that was fitted to a table, got n.slab, fitted to digits"),
        (["predict", "n.slab", "none.csv"], "DATA must be a file that exists"),
        (["fit", "digits", "--out", "m.slab", "--target", "y"], "--target must be left out for the data set digits"),
        (["predict", str(regression[0] / "m.slab"), "t.csv"], "a table with the columns size, age, quarter, got a"),
    ):
        run = slabnet(*words, cwd=tmp_path)
        assert (run.returncode, run.stderr.count("\n")) == (2, 1), run.stderr
        assert said in run.stderr


def test_what_can_go_on_is_said(tmp_path: Path) -> None:
    lines = [f"{i},3,,{1e38 * (i % 5)},{'a' if i % 2 else 'b'}" for i in range(30)] + ["9,3,,0,"]
    (tmp_path / "t.csv").write_text("\n".join(["x,same,void,huge,y", *lines]) + "\n")
    recipe = Recipe(network={"hidden": (4,)}, train={"epochs": 3})
    found = fit_table(TableJob(tmp_path / "t.csv", "y", recipe), tmp_path / "m.slab")
    said = "\n".join(found.lines)
    assert "1 rows have no y and were left out." in said
    assert "Columns without any value, left out: void." in said
    assert "One value only, so of no use: same." in said
    wide = [",".join(str((i * k) % 11) for k in range(40)) + f",{i / 2}" for i in range(20)]
    (tmp_path / "w.csv").write_text("\n".join([",".join([*(f"v{k}" for k in range(40)), "y"]), *wide]) + "\n")
    found = fit_table(TableJob(tmp_path / "w.csv", "y", recipe), tmp_path / "w.slab")
    assert any("More inputs (40) than rows (16)" in line for line in found.lines)
    far = [f"{i},{1e38 if i == 7 else i % 5},{i / 3}" for i in range(30)]
    (tmp_path / "f.csv").write_text("\n".join(["a,b,y", *far]) + "\n")
    found = fit_table(TableJob(tmp_path / "f.csv", "y", recipe), tmp_path / "f.slab")
    assert "One value beside which all others of its column look alike: b has 1e+38 in row 8." in found.lines
    grades = [f"{i},{['none', 'mild', 'severe'][i % 3]}" for i in range(30)]
    (tmp_path / "g.csv").write_text("\n".join(["a,grade", *grades]) + "\n")
    found = fit_table(TableJob(tmp_path / "g.csv", "grade", recipe), tmp_path / "g.slab")
    assert found.numbers["classes"] == ["mild", "none", "severe"]  # "none" is a class like any other


def test_one_row_to_test_with(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,y\n1,2,3.5\n2,1,4.1\n3,5,6.2\n4,4,7.7\n5,1,5.9\n")
    run = slabnet("fit", "t.csv", "--target", "y", "--epochs", "5", "--out", "m.slab", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "RMSE on 1 held-out rows" in run.stdout
    assert "one row says little" in run.stdout


def test_missing_said_in_words_is_missing(tmp_path: Path) -> None:
    rows = [f"{i},{['(missing)', '', 'p', 'q'][i % 4]},{i / 3}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["a,c,y", *rows]))
    run = slabnet("fit", "t.csv", "--target", "y", "--epochs", "3", "--out", "m.slab", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "rows and 3 inputs" in run.stdout  # a, and c as q or missing; else it is p


def test_whole_numbers_that_became_floats_are_the_same_labels(tmp_path: Path) -> None:
    rows = [(i % 7, i % 2) for i in range(80)]
    (tmp_path / "t.csv").write_text("a,k\n" + "\n".join(f"{a},{k}" for a, k in rows))
    (tmp_path / "new.csv").write_text("a,k\n" + "\n".join(f"{a}.0,{k}.0" for a, k in rows))
    words = ["--target", "k", "--categorical", "a", "--epochs", "5", "--out", "m.slab"]
    assert slabnet("fit", "t.csv", *words, cwd=tmp_path).returncode == 0
    old, new = (
        json.loads(slabnet("predict", "m.slab", name, "--json", cwd=tmp_path).stdout) for name in ("t.csv", "new.csv")
    )
    right = sum(part["known"] * part["accuracy"] for part in (old, old["training"]))
    assert (80 * new["accuracy"], new["notes"]) == (pytest.approx(right), [])


def test_predictions_are_those_of_the_saved_estimator(regression: tuple[Path, str]) -> None:
    folder, _ = regression
    assert slabnet("predict", "m.slab", "houses.csv", "--out", "seeded.csv", cwd=folder).returncode == 0
    model = load_estimator(folder / "m.slab")
    table = read_all(folder / "houses.csv")
    x, _ = Table.from_dict(read_header(folder / "m.slab")["about"]["table"]).apply(table)
    found = [float(row["prediction"]) for row in csv.DictReader((folder / "seeded.csv").read_text().splitlines())]
    np.testing.assert_allclose(found, model.predict(x), rtol=1e-5)


def test_an_answer_that_is_no_number_does_not_stop_a_prediction(regression: tuple[Path, str]) -> None:
    folder, _ = regression
    (folder / "tbd.csv").write_text("size,age,quarter,price\n80,3,east,81000\n90,4,south,TBD\n")
    found = json.loads(slabnet("predict", "m.slab", "tbd.csv", "--json", cwd=folder).stdout)
    assert (found["rows"], found["known"]) == (2, 1)
    assert "1 rows have no number as price" in found["notes"][-1]


def test_intervals_of_scores() -> None:
    from scipy.stats import binomtest

    exact = binomtest(37, 50).proportion_ci(method="wilson")
    assert wilson(37, 50, 1.959963984540054) == pytest.approx([exact.low, exact.high], abs=1e-9)
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        ends = rmse_interval(rng.normal(size=100) ** 2)
        assert ends is not None
        held += ends[0] <= 1 <= ends[1]
    assert rmse_interval(np.ones(1)) is None
    assert 0.91 <= held / 400 <= 0.98


def test_rows_outside_the_training_data_are_marked_and_left_undecided(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = np.array(["a", "b"])[rng.integers(0, 2, 120)]
    ages = rng.normal(40, 10, 120)
    rows = [f"{age:.2f},{name},{'yes' if name == 'a' else 'no'}" for age, name in zip(ages, names, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["age,kind,answer", *rows]) + "\n")
    recipe = Recipe(network={"hidden": ()}, train={"epochs": 200, "lr": 0.1})
    fit_table(TableJob(tmp_path / "t.csv", "answer", recipe, test_size=0.0), tmp_path / "m.slab")
    (tmp_path / "new.csv").write_text("age,kind\n40,a\n40,b\n40,c\n")
    found = predict_table(tmp_path / "m.slab", tmp_path / "new.csv", tmp_path / "p.csv")
    with (tmp_path / "p.csv").open() as file:
        answers = list(csv.DictReader(file))
    assert [row["extrapolates"] for row in answers] == ["0", "0", "1"]
    assert [row["decided"] for row in answers] == ["1", "1", "0"]
    assert found["extrapolates"] == 1
    assert any("1 row lies outside the training data" in line for line in lines_of(found, None))


def test_a_rare_class_that_is_never_predicted_is_the_headline(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal():.3f},{'fraud' if i % 17 == 0 else 'fine'}" for i in range(170)]
    (tmp_path / "t.csv").write_text("\n".join(["a,k", *rows]) + "\n")
    words = ["--target", "k", "--epochs", "20", "--hidden", "4", "--out", "m.slab", "--report", "r.html"]
    run = slabnet("fit", "t.csv", *words, cwd=tmp_path)
    assert "It never predicts fraud, although it is among the held-out rows." in run.stdout
    assert "Balanced accuracy 0.500 (guessing: 0.500), log-loss" in run.stdout
    assert "Brier score" in run.stdout
    assert "area under the ROC curve" in run.stdout
    page = (tmp_path / "r.html").read_text()
    assert "It never predicts fraud. Averaged over" in page
    assert "always saying the most frequent class gives 94.12%" in page


def test_prices_with_signs_are_fitted_predicted_and_named(tmp_path: Path) -> None:
    rows = [f'{i},{i % 3},"${1000 + 10 * i + i % 7:,}"' for i in range(1, 101)]
    (tmp_path / "t.csv").write_text("\n".join(["id,a,price", *rows]) + "\n")
    words = ["fit", "t.csv", "--target", "price", "--epochs", "20", "--out", "m.slab"]
    run = slabnet(*words, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert 'price: read as numbers (amounts in $, thousands set apart by ",").' in run.stdout
    assert "id counts the rows: leave it out with --drop id." in run.stdout
    assert "Task: regression, guessed from price: 100 different whole numbers" in run.stdout
    found = json.loads(slabnet("predict", "m.slab", "t.csv", "--json", cwd=tmp_path).stdout)
    assert (found["known"], found["training"]["known"]) == (20, 80)


def test_everything_wrong_with_a_table_is_said_in_one_run(tmp_path: Path) -> None:
    rows = [f"2024-01-{1 + i % 28:02d},person {i},{i},{'x' if i == 3 else i / 3}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["day,who,a,y", *rows]) + "\n")
    run = slabnet("fit", "t.csv", "--target", "y", "--out", "m.slab", cwd=tmp_path)
    assert (run.returncode, run.stderr.count("\n")) == (2, 1)
    for said in ("column y must be numbers, got 'x' in row 4", "column day must be", "column who must be"):
        assert said in run.stderr

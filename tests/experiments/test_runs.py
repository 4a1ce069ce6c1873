"""Runs of the comparison: records, resuming, failures, tables and figures made from them."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import slabnet as sn
from slabnet.cli.app import app
from slabnet.config.methods import METHODS
from slabnet.experiments import building
from slabnet.experiments.engines import Here, Processes
from slabnet.experiments.figures import write_figures
from slabnet.experiments.files import Files, is_done, read_pictures, read_record, read_records
from slabnet.experiments.folds import fold_of
from slabnet.experiments.grid import run_grid
from slabnet.experiments.members import members_folder, members_of
from slabnet.experiments.profiles import Plan, Profile
from slabnet.experiments.run import claimed
from slabnet.experiments.tables import TABLES, densities, groups_of, paper_table1, paper_table3, table1, table3

SHORT: dict[str, Any] = {"hidden": (12, 8), "epochs": 2, "post_epochs": 1}


QUIET = Here("off")


def plan(method: str = "lbbnn", seed: int = 0, profile: str = "recommended") -> Plan:
    return Profile.named(profile).plan("digits", method, seed, **SHORT)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    found = run_grid([plan(method, seed) for seed in (0, 1) for method in METHODS], folder, engine=QUIET)
    assert not found.failed
    assert len(found.records) == 2 * len(METHODS)
    return folder


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in ("seconds", "commit", "checksum")}


def test_every_method_has_the_rows_of_the_paper(results: Path) -> None:
    for method in METHODS:
        record = read_record(Files(results, plan(method).key).record)
        ways = {(r["gamma"], r["beta"], r["post_trained"], r["draws"]) for r in record["rows"]}
        wanted = {
            (r["gamma"], r["beta"], r["post_trained"], r["draws"])
            for r in paper_table1()
            if (r["dataset"], r["method"]) == ("mnist", method)
        }
        assert ways >= wanted, method
        if wanted:
            assert ways == wanted
        assert record["plan"]["seed"] == 0
        assert set(record["versions"]) == {"slabnet", "torch", "python"}
        assert len(record["history"]["fit"]["kl"]) == 2


def test_an_ensemble_is_the_runs_of_its_members(results: Path, tmp_path: Path) -> None:
    """Made by processes, or member by member before: the same record, and a network that is its members."""
    whole = plan("ensemble")
    members = members_of(whole)
    assert len(members) == len({member.train.seed for member in members}) == 5
    kept = members_folder(whole, tmp_path)
    grid = run_grid(members[:2], kept, engine=QUIET)
    alone = [sn.load(Files(kept, member.key).model) for member in members[:2]]
    grid = run_grid([whole], tmp_path, engine=Processes(2), threads=1)
    assert not grid.failed
    first = read_record(Files(results, whole.key).record)
    assert without_times(grid.records[0]) == without_times(first)
    assert set(first["history"]) == {"fit", *(f"member-{number}" for number in range(2, 6))}
    assert not kept.exists()
    net = sn.load(Files(tmp_path, whole.key).model)
    x = sn.data.load("digits").test[0]
    for number, member in enumerate(alone):
        with sn.drawing(net, sn.exact, seed=0, index=number):
            torch.testing.assert_close(net(x), member(x))


def test_a_member_that_fails_is_its_ensemble_s_failure(tmp_path: Path) -> None:
    whole = plan("ensemble")
    broken = whole.model_copy(update={"train": whole.train.model_copy(update={"batch_size": 10**6})})
    grid = run_grid([broken, plan()], tmp_path, engine=QUIET)
    assert list(grid.failed) == [whole.key]
    assert len(grid.records) == 1


def test_cross_validation_predicts_every_training_row_once(tmp_path: Path) -> None:
    plans = plan("deterministic").folded(3)
    grid = run_grid(plans, tmp_path, engine=Processes(2), threads=1)
    assert not grid.failed
    assert [record["plan"]["fold"] for record in grid.records] == [[0, 3], [1, 3], [2, 3]]
    split = sn.data.load("digits")
    parts = [fold_of(split, number, 3) for number in range(3)]
    assert torch.cat([part.test[1] for part in parts]).bincount().equal(split.train[1].bincount())
    for part, record in zip(parts, grid.records, strict=True):
        assert record["data"]["train"] == len(part.train[1])
        assert record["data"]["test"] == len(part.test[1])
        rows = {tuple(row) for row in part.test[0].tolist()}
        assert not rows & {tuple(row) for row in part.train[0].tolist()}
    (group,) = groups_of(read_records(tmp_path))
    assert (group.folds, len(group.runs), group.label) == (
        3,
        3,
        "deterministic, recommended (12-8), 3 folds, 2 + 1 epochs",
    )


def test_what_a_kill_after_the_record_leaves_is_taken_away(results: Path, tmp_path: Path) -> None:
    for kept in (Files(results, plan().key).record, Files(results, plan().key).model):
        shutil.copy(kept, tmp_path)
    files = Files(tmp_path, plan().key)
    files.work.mkdir()
    (files.work / "checkpoint-0000000001.slab").touch()
    files.lock.touch()
    with claimed(files.work):  # somebody is still at it
        assert run_grid([plan()], tmp_path, engine=QUIET).skipped == 1
        assert files.work.exists()
    files.lock.touch()
    assert run_grid([plan()], tmp_path, engine=QUIET).skipped == 1
    assert sorted(tmp_path.iterdir()) == sorted([files.record, files.model])


def test_a_record_is_the_same_again_and_finished_runs_are_skipped(results: Path, tmp_path: Path) -> None:
    again = run_grid([plan()], tmp_path, engine=QUIET).records[0]
    first = read_record(Files(results, plan().key).record)
    assert without_times(again) == without_times(first)
    before = {path: path.stat().st_mtime_ns for path in results.iterdir()}
    grid = run_grid([plan(), plan("gaussian")], results, engine=QUIET)
    assert (grid.skipped, len(grid.records)) == (2, 2)
    assert {path: path.stat().st_mtime_ns for path in results.iterdir()} == before


def test_a_damaged_record_is_set_aside_and_its_run_made_again(results: Path, tmp_path: Path) -> None:
    record = Files(tmp_path, plan("gaussian").key).record
    whole = Files(results, plan("gaussian").key).record.read_bytes()
    record.write_bytes(whole[: len(whole) // 2])
    grid = run_grid([plan("gaussian")], tmp_path, engine=QUIET)
    assert (grid.skipped, len(grid.records), grid.failed) == (0, 1, {})
    assert record.with_name(f"{record.name}.bad").read_bytes() == whole[: len(whole) // 2]


def test_departures_say_what_a_plan_does() -> None:
    paper = Profile.named("paper")
    text, short = (
        paper.plan("mnist", "lbbnn", 0, hidden=h, epochs=e).departures for h, e in (((400, 600, 600), 250), ((20,), 3))
    )
    assert not any("hidden" in line or "epochs;" in line for line in text)
    assert any(line.startswith("hidden layers 20; the paper's text says 400, 600, 600") for line in short)
    assert "training for 3 epochs; the profile has 250" in short


def test_another_plan_under_the_same_name_is_refused(results: Path) -> None:
    other = Profile.named("recommended").plan("digits", "lbbnn", 0, hidden=(12, 8), epochs=3)
    with pytest.raises(sn.ArgumentError, match="must be of the same settings, got another train"):
        is_done(other, results)


def test_one_failed_run_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = building.mlp

    def breaks(*words: Any, **options: Any) -> Any:
        if options["method"] == "gaussian":
            raise sn.TrainingDiverged("fit: the loss was not finite")
        return real(*words, **options)

    monkeypatch.setattr(building, "mlp", breaks)
    monkeypatch.delenv("SLABNET_DEBUG", raising=False)
    grid = run_grid([plan("gaussian"), plan("deterministic")], tmp_path, engine=QUIET)
    assert list(grid.failed) == [plan("gaussian").key]
    assert "not finite" in grid.failed[plan("gaussian").key]
    assert [r["plan"]["network"]["method"] for r in grid.records] == ["deterministic"]
    said = capsys.readouterr().err
    assert "run 1 of 2 failed" in said
    assert "run 2 of 2 done" in said
    assert "failed" in said


def test_two_processes_do_not_make_the_same_run(tmp_path: Path) -> None:
    with claimed(Files(tmp_path, plan().key).work):
        grid = run_grid([plan()], tmp_path, engine=QUIET)
    assert grid.elsewhere == [plan().key]
    assert grid.records == []


@pytest.mark.slow
def test_several_processes_make_the_same_records(results: Path, tmp_path: Path) -> None:
    plans = [plan(), plan("gaussian"), plan("deterministic")]
    grid = run_grid(plans, tmp_path, engine=Processes(2), threads=1)
    assert not grid.failed
    for one in plans:
        pair = [read_record(Files(folder, one.key).record) for folder in (results, tmp_path)]
        assert without_times(pair[0]) == without_times(pair[1])


@pytest.mark.slow
def test_a_killed_process_is_started_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = Profile.named("recommended").plan("digits", "lbbnn", 0, hidden=(30,), epochs=150, post_epochs=5)
    engine = Processes(1)

    def kill() -> None:
        while not list(tmp_path.glob("*.run/fit/checkpoint-*")):
            time.sleep(0.01)
        os.kill(next(iter(engine.running)), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    grid = run_grid([long], tmp_path, engine=engine, threads=1)
    killer.join()
    assert not grid.failed
    assert len(grid.records) == 1
    assert "killed by signal 9; starting it again" in capsys.readouterr().err


@pytest.mark.crash
def test_a_killed_grid_goes_on_and_ends_with_the_same_records(tmp_path: Path) -> None:
    words = ["reproduce", "--dataset", "digits", "--methods", "lbbnn,gaussian", "--runs", "1", "--hidden", "30"]
    words += ["--epochs", "60", "--post-epochs", "20", "--profile", "recommended"]
    command = [sys.executable, "-m", "slabnet", *words]
    whole = subprocess.run([*command, "--out", str(tmp_path / "a")], capture_output=True, text=True, check=True)
    assert "2 of 2 records" in whole.stdout
    for stage, how in (("fit", signal.SIGKILL), ("post-alpha", signal.SIGINT)):
        process = subprocess.Popen([*command, "--out", str(tmp_path / "b")], stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not list((tmp_path / "b").glob(f"*.run/{stage}/checkpoint-*")):
            time.sleep(0.01)
        process.send_signal(how)
        said = process.communicate()[1]
        assert process.returncode == (-9 if how == signal.SIGKILL else 130), said
        if how == signal.SIGINT:
            assert "go on with the same command" in said.splitlines()[-1]
    last = subprocess.run([*command, "--out", str(tmp_path / "b")], capture_output=True, text=True, check=True)
    assert "2 of 2 records" in last.stdout
    for path in sorted((tmp_path / "a").iterdir()):
        other = tmp_path / "b" / path.name
        if path.suffix == ".json" and not path.name.endswith(".pictures.json"):
            assert without_times(read_record(path)) == without_times(read_record(other))
        else:
            assert path.read_bytes() == other.read_bytes(), path.name
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == sorted(p.name for p in (tmp_path / "b").iterdir())


@pytest.mark.crash
def test_ctrl_c_on_several_runs_at_a_time_loses_no_epoch(tmp_path: Path) -> None:
    """A terminal's Ctrl-C goes to the whole group of processes: each run must still keep all it has made."""
    words = ["reproduce", "--dataset", "digits", "--methods", "lbbnn,gaussian", "--runs", "1", "--hidden", "30"]
    words += ["--epochs", "3000", "--jobs", "2", "--threads", "1", "--out", str(tmp_path / "a")]
    command = [sys.executable, "-m", "slabnet", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    notes = [tmp_path / "a" / f"digits-paper-{method}-30-0.run" / "epochs" for method in ("lbbnn", "gaussian")]
    while process.poll() is None and not all(note.is_file() and int(note.read_text()) > 5 for note in notes):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode == 130, said
    assert "go on with the same command" in said.splitlines()[-1]
    for note in notes:
        steps = max(int(path.stem.split("-")[1]) for path in (note.parent / "fit").glob("checkpoint-*.slab"))
        assert steps >= 15 * int(note.read_text())  # 1437 rows, 100 a step


@pytest.mark.crash
def test_sigterm_before_the_first_checkpoint_is_one_line(tmp_path: Path) -> None:
    words = ["reproduce", "--dataset", "digits", "--methods", "lbbnn", "--runs", "1", "--out", str(tmp_path / "a")]
    process = subprocess.Popen([sys.executable, "-m", "slabnet", *words], stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list(tmp_path.glob("a/*.lock")):
        time.sleep(0.01)
    process.terminate()
    said = process.communicate()[1].splitlines()
    assert process.returncode == 143
    assert "go on with the same command" in said[-1]


def test_tables_hold_our_medians_beside_the_papers_numbers(results: Path) -> None:
    records = read_records(results)
    mnist = [json.loads(json.dumps(r).replace('"digits"', '"mnist"')) for r in records]  # as if they were of MNIST,
    assert {line[8] for line in table1(mnist).lines} == {""}  # which has other rows
    for record in mnist:
        record["data"] |= {"train": 60_000, "test": 10_000}
    table = table1(mnist)
    line = next(x for x in table.lines if x[1].startswith("lbbnn") and x[3:7] == ["MED", "EXP", "Y", "1"])
    mine = [
        row["accuracy"]
        for r in mnist
        if r["plan"]["network"]["method"] == "lbbnn"
        for row in r["rows"]
        if (row["gamma"], row["beta"], row["post_trained"]) == ("MED", "EXP", True)
    ]
    assert len(mine) == 2
    assert line[7] == f"{sum(mine) / 2:.3f} ({min(mine):.3f}, {max(mine):.3f})"
    assert line[8] == "0.978 (0.976, 0.979)"
    assert line[9] == "-"  # two epochs are not enough
    assert line[15] == "0.051"
    assert "2 + 1 epochs" in line[1]  # not those of the profile
    assert {x[7] for x in table3(mnist).lines} == {""}  # the paper's layers have other widths
    for record in mnist:
        record["plan"]["network"]["hidden"] = [400, 600]
    layers = table3(mnist)
    assert [x[7] for x in layers.lines] == ["0.0520", "0.0598", "0.2217"]
    found = [r["layers"][0]["inclusion"] for r in mnist if r["plan"]["network"]["method"] == "lbbnn"]
    assert layers.lines[0][5] == f"{sum(found) / 2:.4f}"
    assert {line[1].split(",")[0] for line in densities(mnist).lines} == {"lbbnn", "horseshoe", "normal-jeffreys"}
    assert [g.method for g in groups_of(records)][:6] == [
        "lbbnn",
        "gaussian",
        "mixture",
        "concrete-dropout",
        "horseshoe",
        "normal-jeffreys",
    ]


def test_the_authors_reading_of_the_same_draws(results: Path) -> None:
    records = read_records(results)
    ours, theirs = table1(records), table1(records, "authors")
    assert "as the authors' scripts do" in theirs.title
    averaged = [number for number, line in enumerate(ours.lines) if int(line[6]) > 1]
    assert averaged
    for number, (left, right) in enumerate(zip(ours.lines, theirs.lines, strict=True)):
        assert left[:7] == right[:7]
        if number not in averaged:
            assert left == right
    group = next(g for g in groups_of(records) if g.method == "lbbnn")
    read = [r["authors"] for run in group.runs for r in run["rows"] if (r["gamma"], r["draws"]) == ("SIM", 10)]
    line = next(x for x in theirs.lines if x[1].startswith("lbbnn") and x[3:7] == ["SIM", "SIM", "N", "10"])
    decided = [r["decided"] for r in read[:: len(read) // len(group.runs)]]
    assert line[12] == f"{statistics.median(decided):.0f}"
    old = [{**r, "rows": [{k: v for k, v in row.items() if k != "authors"} for row in r["rows"]]} for r in records]
    lines = table1(old, "authors").lines
    assert {lines[number][12] for number in averaged} == {"-"}  # measured before both were kept


def test_marks() -> None:
    base = {"dataset": "mnist", "profile": "x", "network": {"method": "lbbnn", "hidden": [400, 600]}}
    base |= {"train": {"epochs": 250}, "post": {"epochs": 50}}
    data = {"train": 60_000, "test": 10_000}
    row = {"gamma": "MED", "beta": "EXP", "post_trained": True, "draws": 1, "accuracy_at_95": None}
    row |= {"classified_at_95": 0, "density_used": 0.003}
    for accuracy, mark in ((0.984, "+"), (0.979, "+*"), (0.9781, "=*"), (0.976, "-*"), (0.97, "-")):
        line = table1([{"plan": base, "data": data, "rows": [row | {"accuracy": accuracy}]}]).lines[0]
        assert (line[9], line[16]) == (mark, "+"), accuracy


def test_the_papers_numbers() -> None:
    rows = list(paper_table1())
    assert len(rows) == 66
    assert sum(r["accuracy_at_95"] is not None for r in rows) == sum(r["draws"] == 10 for r in rows)
    assert [r["layer"] for r in paper_table3()] == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize("name", TABLES)
def test_formats(name: str, results: Path) -> None:
    table = TABLES[name](read_records(results))
    read = list(csv.reader(table.render("csv").splitlines()))
    words = {"+": "better", "-": "worse", "=": "same", "+*": "better, in range", "-*": "worse, in range"}
    assert read == [[words.get(cell, cell) for cell in line] for line in [table.header, *table.lines]]
    titles = {
        "text": table.title,
        "markdown": f"### {table.title}",
        "latex": f"% {table.title}",
        "csv": f"# {table.title}",
    }
    assert {form: table.titled(form).splitlines()[0] for form in titles} == titles
    markdown = table.render("markdown").splitlines()
    assert len(markdown) == len(table.lines) + 2
    assert len({line.count("|") for line in markdown}) == 1
    latex = table.render("latex")
    assert latex.count(r"\\") == len(table.lines) + 1
    assert table.render("text").splitlines()[0] == table.title
    with pytest.raises(sn.ArgumentError, match="format must be one of text, markdown, latex, csv"):
        table.render("html")


@pytest.mark.slow
def test_figures_are_whole_and_the_same_again(results: Path, tmp_path: Path) -> None:
    few = tmp_path / "few"
    few.mkdir()
    for path in results.glob(f"{plan().key}*.json"):
        shutil.copy(path, few)
    command = [sys.executable, "-m", "slabnet", "figures", str(few), "--out", str(tmp_path / "a")]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    paths = [Path(line) for line in said.stdout.splitlines()]
    names = {path.name for path in paths}
    for kind in ("averaging", "alpha", "training", "drawn", "wrong", "in-distribution"):
        assert any(name.startswith(kind) and name.endswith(".svg") for name in names), kind
        assert any(name.startswith(kind) and name.endswith(".png") for name in names), kind
    assert len(read_pictures(results)) == 1  # the first seed only
    for path in write_figures(few, tmp_path / "b", ("svg",)):
        assert path.read_bytes() == (tmp_path / "a" / path.name).read_bytes()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"format": 1}', '{"format": 1, "plan": {}, "rows": [{}]}', "9" * 5000]
)
def test_a_file_that_is_no_record_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(sn.FileError, match=r"records: .*x\.json must be a record of a run"):
        read_records(tmp_path)


def test_the_command_line(results: Path, tmp_path: Path) -> None:
    def slabnet(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "slabnet", *words], capture_output=True, text=True, check=False)

    shown = slabnet("table", str(results))
    assert shown.returncode == 0
    assert "Table 1" in shown.stdout
    assert "400, 600, 600" in shown.stdout
    found = json.loads(slabnet("table", str(results), "--json", "--only", "3").stdout)
    assert found["3"][0]["paper: alpha"] == ""
    assert any(
        "training for 2 epochs; the profile has" in line for lines in found["departures"].values() for line in lines
    )
    assert json.loads(slabnet("data", "--json").stdout)[0]["name"] == "digits"
    assert "1437 training" in slabnet("data", "digits").stdout
    for words, said in (
        (["reproduce", "--methods", "lbbnn,magic"], "reproduce: --methods must be one of lbbnn"),
        (["reproduce", "--runs", "0"], "reproduce: --runs must be a whole number of at least 1, got 0"),
        (["reproduce", "--threads", "0"], "reproduce: --threads must be a whole number of at least 1, got 0"),
        (["reproduce", "--out", "/dev/null/x"], "reproduce: --out must be a folder that is there or can be made"),
        (
            ["reproduce", "--profile", "mine"],
            "reproduce: --profile must be one of lenet, lenet-small, paper, paper-settled, recommended, smallest",
        ),
        (["reproduce", "--engine", "slurm"], "reproduce: --engine must be one of local, ray"),
        (
            ["reproduce", "--dataset", "digits", "--folds", "1"],
            "reproduce: --folds must be a whole number of at least 2",
        ),
        (["reproduce", "--dataset", "digits", "--folds", "999"], "reproduce: --folds must be at most "),
        (["reproduce", "--dataset", "cifar"], "reproduce: --dataset must be one of digits"),
        (["table", str(tmp_path / "none")], "records: RESULTS must be a folder of records"),
        (["table", str(tmp_path)], "without any"),
        (["table", str(results), "--only", "2"], "table: --only must be one of 1, 3"),
        (["data", "iris"], "data: NAME must be one of digits"),
    ):
        with pytest.raises(sn.ArgumentError) as error:  # as the command line runs it, without another process
            app(words, standalone_mode=False)
        assert said in str(error.value)
    assert os.listdir(tmp_path) == []

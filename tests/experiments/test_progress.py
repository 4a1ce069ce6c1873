"""How far a grid is: epochs counted over runs, stages, members and engines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slabnet.experiments.engines import Engine, Here, Processes
from slabnet.experiments.files import Files
from slabnet.experiments.grid import run_grid
from slabnet.experiments.members import members_folder, members_of
from slabnet.experiments.profiles import Plan, Profile
from slabnet.experiments.progress import Overall, epochs_made, epochs_of, note_epochs


def plan(method: str = "lbbnn", seed: int = 0) -> Plan:
    return Profile.named("recommended").plan("digits", method, seed, hidden=(12, 8), epochs=4, post_epochs=2)


def test_epochs_of_a_run_are_those_of_all_its_stages() -> None:
    assert epochs_of(plan("lbbnn")) == 4 + 2 * 2  # alpha fixed, then the median model
    assert epochs_of(plan("concrete-dropout")) == 4 + 2
    assert epochs_of(plan("gaussian")) == 4
    assert epochs_of(plan("ensemble")) == 4 * len(members_of(plan("ensemble")))


def test_what_a_folder_says_is_never_more_than_there_is(tmp_path: Path) -> None:
    one = plan()
    work = Files(tmp_path, one.key).work
    work.mkdir()
    assert epochs_made(one, tmp_path) == 0
    note_epochs(work, 3)
    assert epochs_made(one, tmp_path) == 3
    note_epochs(work, 300)
    assert epochs_made(one, tmp_path) == 8
    (work / "epochs").write_text("many")
    assert epochs_made(one, tmp_path) == 0
    many = plan("ensemble")
    member = members_of(many)[1]
    inside = Files(members_folder(many, tmp_path), member.key).work
    inside.mkdir(parents=True)
    note_epochs(inside, 2)
    assert epochs_made(many, tmp_path) == 2


@pytest.mark.parametrize("engine", [Here("off"), Processes(2)])
def test_a_grid_says_how_far_it_is_while_its_runs_go_on(tmp_path: Path, engine: Engine) -> None:
    plans, said = [plan(seed=seed) for seed in (0, 1)], list[str]()
    with Overall(plans, tmp_path, said.append, first=0.002, every=0.002) as overall:
        assert overall.line() is None
        assert not run_grid(plans, tmp_path, engine=engine, threads=1).failed
    assert overall.made() == (16, 16)
    assert overall.total == 16
    counts = [int(re.match(r"(\d+) of 16 epochs of all runs \(\d+%\), about .+ left", line)[1]) for line in said]  # type: ignore[index]
    assert counts == sorted(counts)
    assert len(set(counts)) > 3  # within a run, not only at its end


def test_epochs_made_before_are_not_counted_as_made_now(tmp_path: Path) -> None:
    one = plan()
    work = Files(tmp_path, one.key).work
    work.mkdir()
    note_epochs(work, 4)
    with Overall([one], tmp_path, print, first=60) as overall:
        assert overall.line() is None
        note_epochs(work, 6)
        overall._began -= 20.0  # two epochs in twenty seconds: two more take twenty
        assert overall.line() == "6 of 8 epochs of all runs (75%), about 20 s left"


def test_a_run_that_goes_on_from_before_its_note_counts_again(tmp_path: Path) -> None:
    """Killed after epoch 4 was noted and before it was kept: it is made again."""
    one = plan()
    work = Files(tmp_path, one.key).work
    work.mkdir()
    note_epochs(work, 4)
    with Overall([one], tmp_path, print, first=60) as overall:
        note_epochs(work, 3)
        assert overall.made() == (3, 0)
        note_epochs(work, 5)
        assert overall.made() == (5, 2)


def test_runs_that_failed_are_left_out(tmp_path: Path) -> None:
    plans = [plan(seed=seed) for seed in (0, 1)]
    for one in plans:
        Files(tmp_path, one.key).work.mkdir()
    with Overall(plans, tmp_path, print, first=60) as overall:
        note_epochs(Files(tmp_path, plans[0].key).work, 2)
        note_epochs(Files(tmp_path, plans[1].key).work, 4)
        overall.leave_out(plans[0].key)
        overall.leave_out("another")
        assert (overall.made(), overall.total) == ((4, 4), 8)


def test_a_note_that_cannot_be_written_fails_no_run(tmp_path: Path) -> None:
    note_epochs(tmp_path / "gone", 3)
    assert not list(tmp_path.iterdir())

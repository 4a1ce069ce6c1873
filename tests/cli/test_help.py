"""Help that fits on a screen, what the shell completes, the first steps, and the last lines of a fit."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from slabnet.cli.app import app
from slabnet.cli.fit_command import page_of
from slabnet.cli.options import table_or_name
from slabnet.core.short_help import MORE, ShortHelp

SCREEN = 40  # lines of 80 columns
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
NARROW = {"COLUMNS": "80", "TERMINAL_WIDTH": "80"}


def helped(*words: str) -> str:
    run = CliRunner().invoke(app, list(words), env=NARROW)
    assert run.exit_code == 0, run.output
    return run.output


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_is_one_screen_and_help_all_has_every_option(name: str) -> None:
    command = COMMANDS[name]
    assert isinstance(command, ShortHelp)
    short, whole = helped(name, "--help"), helped(name, "--help-all")
    assert short.count("\n") <= SCREEN
    rest = [p for p in command.params if p.rich_help_panel == MORE and not p.hidden]
    for parameter in command.params:
        if parameter.hidden or parameter.param_type_name == "argument":
            continue
        assert parameter.opts[0] in whole
        assert (f"{parameter.opts[0]} " in short) == (parameter not in rest)
    assert (f"--help-all shows {len(rest)} more options" in short) == bool(rest)


def test_the_long_commands_have_both_kinds() -> None:
    for name, common, rare in (("fit", "--target", "--workers"), ("reproduce", "--methods", "--gpus")):
        assert common in helped(name, "--help")
        assert rare not in helped(name, "-h")
        assert rare in helped(name, "--help-all")


def test_without_arguments_there_are_three_first_steps() -> None:
    steps = [line.split() for line in helped().splitlines() if line.startswith("  slabnet ")]
    assert [step[1] for step in steps] == ["demo", "fit", "predict"]


def test_lists_of_commands_are_whole_sentences() -> None:
    assert "..." not in helped("--help").partition("Commands:")[2]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("slabnet fi", "fit"), ("slabnet fit mni", "mnist"), ("slabnet fit x.csv --response poi", "poisson")],
)
def test_a_shell_completes_commands_names_and_values(typed: str, offered: str, tmp_path: Path) -> None:
    words = {"_SLABNET_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    code = "import sys; sys.argv = ['slabnet']; from slabnet.cli.app import run; run()"
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    environment = os.environ | words | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert offered in run.stdout.split(), run.stderr


def test_tables_and_folders_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("m.csv", "m.slab", "more/a.parquet"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    assert table_or_name("m") == ["mnist", "m.csv", "more/"]
    assert table_or_name("more/") == ["more/a.parquet"]


def test_on_a_terminal_a_fit_writes_its_page_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, asked = tmp_path / "m.slab", tmp_path / "r.html"
    assert page_of(out, None, False) is None  # a pipe or a script

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    assert page_of(out, None, False) == tmp_path / "m.report.html"
    assert page_of(out, asked, True) == asked
    assert page_of(out, None, True) is None


def test_a_fit_ends_with_its_page_and_the_next_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("two words.csv").write_text("a,y\n" + "".join(f"{i},{2 * i}.5\n" for i in range(30)))
    words = ["fit", "two words.csv", "--target", "y", "--out", "m.slab", "--epochs", "2"]
    last = helped(*words).splitlines()[-3:]
    assert last == [
        "Written: m.slab",
        "Report:  slabnet report m.slab --data 'two words.csv' --out m.html",
        "Next:    slabnet predict m.slab NEW.csv --out predictions.csv",
    ]
    assert helped(*words, "--report", "r.html").splitlines()[-2] == "Report:  r.html"
    assert Path("r.html").stat().st_size > 10_000

"""`slabnet report`: the page from the command line. Loads torch only where a model is to be read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from slabnet.config.settings import DATA_SETS, TABLE_FILES
from slabnet.core.errors import check_choice, printable, refuse
from slabnet.core.files import check_writable, is_there
from slabnet.core.json_text import json_text
from slabnet.core.short_help import ShortHelp
from slabnet.experiments.commands import Json

commands = typer.Typer()


ReportFile = Annotated[Path | None, typer.Option("--report", help="Also write a page about the result, as r.html.")]


def check_report(where: str, path: Path | None) -> None:
    """Refuse a page that could not be written, before there is any work."""
    if path is not None:
        check_writable(where, path)


def write_model_report(model: Path, path: Path | None, data: str | None = None) -> None:
    """Write the page of a model that was just fitted, if one was asked for; data: the table it was fitted to."""
    if path is not None:
        from slabnet.report.write import report_file

        report_file(model, path, data)


def write_model_card(model: Path, asked: bool) -> None:
    """Write the card of a model that was just fitted, if one was asked for."""
    if asked:
        from slabnet.report.model_card import write_card

        write_card(model)


def write_runs_report(folder: Path, path: Path | None) -> None:
    """Write the page of runs that are just done, if one was asked for."""
    if path is not None:
        from slabnet.report.runs import report_runs

        report_runs(folder, path)


@commands.command(
    cls=ShortHelp,
    short_help="Write an HTML page about a model or about runs.",
    help="Write one HTML page about a model, or about a folder of runs, that opens anywhere and works offline.",
    epilog="Example: slabnet report digits.slab --out report.html",
)
def report(
    what: Annotated[Path, typer.Argument(metavar="MODEL|RUNS", help="A .slab file, or a folder of records.")],
    out: Annotated[Path, typer.Option(help="Where to write the page.")],
    data: Annotated[str | None, typer.Option(help="Test rows: a data set by name, or a table (CSV, Parquet).")] = None,
    ood: Annotated[str | None, typer.Option(help="A data set whose rows are out of distribution for it.")] = None,
    foreign: Annotated[str | None, typer.Option(hidden=True)] = None,
    no_rows: Annotated[bool, typer.Option("--no-rows", help="Leave out every raw row of the data.")] = False,
    json: Json = False,
) -> None:
    if not what.exists():
        refuse("report", "MODEL|RUNS", "a file or folder that exists", str(what))
    check_writable("report", out)
    if foreign is not None:
        print("report: --foreign is called --ood now, and will go", file=sys.stderr)
        ood = foreign if ood is None else ood
    for option, name in (("--data", data), ("--ood", ood)):
        if name is not None and what.is_dir():
            refuse("report", option, "left out for a folder of runs", name)
        if name is not None and not (option == "--data" and Path(name).suffix in TABLE_FILES):
            check_choice("report", option, name, DATA_SETS)
    if data is not None and data not in DATA_SETS and not is_there(data):
        refuse("report", "--data", "a data set by name, or a table that exists", data)
    if what.is_dir():
        write_runs_report(what, out)
    else:
        from slabnet.report.write import report_file

        report_file(what, out, data, ood, no_rows)
    size = out.stat().st_size
    print(
        json_text({"report": str(out), "bytes": size}) if json else printable(f"Written: {out} ({size / 1e6:.1f} MB)")
    )

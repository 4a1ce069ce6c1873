"""The command `slabnet explain`. Answers `--help` and argument errors without loading torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slabnet.config.settings import TABLE_FILES
from slabnet.core.errors import check_choice, printable, refuse
from slabnet.core.files import check_writable, is_there
from slabnet.core.json_text import json_text
from slabnet.core.short_help import ShortHelp
from slabnet.experiments.commands import Json

commands = typer.Typer()
KINDS = (".csv", ".html")


@commands.command(
    cls=ShortHelp,
    short_help="Say why rows have their predictions.",
    help="Say why rows of a table have their predictions: what each column contributes, with 95% intervals.",
    epilog="Example: slabnet explain houses.slab new.csv --out why.html",
)
def explain(
    model: Annotated[Path, typer.Argument(help="A .slab file that was fitted to a table.")],
    data: Annotated[Path, typer.Argument(help=f"Rows to explain ({', '.join(TABLE_FILES)}).")],
    out: Annotated[Path | None, typer.Option(help="Where to write it: .csv, a line a column; .html, a page.")] = None,
    background: Annotated[
        Path | None, typer.Option(help="Rows that stand for not knowing a column; left out: the model's own summary.")
    ] = None,
    scale: Annotated[str, typer.Option(help="linear (the linear predictor) or response (probabilities).")] = "linear",
    draws: Annotated[int | None, typer.Option(min=1, help="Networks to draw; those of the model if left out.")] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows that a page and the screen show; a CSV has all.")] = 20,
    json: Json = False,
) -> None:
    for name, path in (("MODEL", model), ("DATA", data), ("--background", background)):
        if path is not None and not is_there(path):
            refuse("explain", name, "a file that exists", str(path))
    check_choice("explain", "--scale", scale, ("linear", "response"))
    if out is not None:
        if out.suffix.lower() not in KINDS:
            refuse("explain", "--out", f"a name that ends in {' or '.join(KINDS)}", str(out))
        check_writable("explain", out)
    from slabnet.cli.why import explain_table, lines_of

    told = explain_table(model, data, out, background, scale, draws, rows)
    if json:
        print(json_text(told.numbers))
        return
    print("\n".join(lines_of(told)))
    if out is not None:
        print(printable(f"Written: {out}"))

"""The command `slabnet doctor`. Answers `--help` and argument errors without loading torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slabnet.config.settings import TABLE_FILES
from slabnet.core.errors import refuse
from slabnet.core.files import is_there
from slabnet.core.json_text import json_text
from slabnet.core.short_help import ShortHelp
from slabnet.experiments.commands import Json

commands = typer.Typer()


@commands.command(
    cls=ShortHelp,
    short_help="Look for what is odd in a table, or in a model of it.",
    help="Look at a table before it is fitted, and at a model after it: what is odd, and what helps.",
    epilog="Example: slabnet doctor houses.csv --target price",
)
def doctor(
    data: Annotated[Path, typer.Argument(help=f"A table ({', '.join(TABLE_FILES)}).")],
    target: Annotated[str, typer.Option(help="Column to predict.")],
    model: Annotated[Path | None, typer.Option(help="A .slab file that was fitted to it.")] = None,
    json: Json = False,
) -> None:
    for name, path in (("DATA", data), ("--model", model)):
        if path is not None and not is_there(path):
            refuse("doctor", name, "a file that exists", str(path))
    from slabnet.cli.doctor import as_json, examine, lines_of

    findings = examine(data, target, model)
    print(json_text({"findings": as_json(findings)}) if json else "\n".join(lines_of(findings)))

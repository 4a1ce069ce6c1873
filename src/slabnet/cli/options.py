"""What several commands share: options, and checks of what was given. Loads no torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from slabnet.config.settings import DATA_SETS, TABLE_FILES
from slabnet.core.errors import refuse
from slabnet.core.files import is_there

Seed = Annotated[int, typer.Option(min=0, help="Seed: the same one gives the same result.")]
DATA_HELP = f"A table ({', '.join(TABLE_FILES)}), or a data set by name: {', '.join(DATA_SETS)}."


def one_of(names: tuple[str, ...]) -> Callable[[str], list[str]]:
    """What a shell offers for an option of a few names."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def table_or_name(incomplete: str) -> list[str]:
    """What a shell offers for DATA: data sets by name, tables and folders that begin with what was typed."""
    folder = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    paths = sorted(folder.glob("*"))
    shown = [f"{path}/" if path.is_dir() else str(path) for path in paths]
    tables = [name for name in shown if name.endswith(("/", *TABLE_FILES))]
    return [name for name in (*DATA_SETS, *tables) if name.startswith(incomplete)]


def speaks() -> bool:
    """Whether this is the process, of several that fit together, that talks to the user."""
    return os.environ.get("RANK", "0") == "0"


def check_data(where: str, data: str, option: str = "", value: str | None = "") -> bool:
    """Whether DATA is a table; refuse what is neither that nor a data set by name."""
    if data in DATA_SETS:
        return False
    if Path(data).suffix.lower() not in TABLE_FILES:
        refuse(where, "DATA", f"a {', '.join(TABLE_FILES)} file or one of {', '.join(DATA_SETS)}", repr(data))
    if not is_there(data):
        refuse(where, "DATA", "a file that exists", data)
    if value is None:
        refuse(where, option, f"given for a table: the column of {data} to predict", None)
    return True


def names_in(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(part.strip() for part in text.split(",") if part.strip())

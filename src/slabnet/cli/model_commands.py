"""The commands about a model that is there: `slabnet inspect`, `export`, `methods`. `--help` loads no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slabnet.cli.options import Seed
from slabnet.config.methods import METHODS
from slabnet.core.errors import printable, refuse
from slabnet.core.files import is_there
from slabnet.core.json_text import json_text
from slabnet.core.short_help import ShortHelp
from slabnet.experiments.commands import Json

commands = typer.Typer()


@commands.command(
    cls=ShortHelp,
    short_help="Show what is inside a model.",
    help="Show what is inside a model: densities and alpha per layer, paths, inputs in use, structure.",
    epilog="Example: slabnet inspect digits.slab",
)
def inspect(
    model: Annotated[Path, typer.Argument(help="A .slab file of a network that slabnet can build.")],
    draws: Annotated[int, typer.Option(help="Draws for density and structure (of a small network 100).")] = 10,
    json: Json = False,
) -> None:
    if not is_there(model):
        refuse("inspect", "MODEL", "a file that exists", str(model))
    if draws < 1:
        refuse("inspect", "--draws", "a whole number of at least 1", draws)
    from slabnet.cli.workflow import inspect_file
    from slabnet.prediction.inspection import as_text

    inspected = inspect_file(model, draws)
    print(json_text(inspected) if json else as_text(inspected))


@commands.command(
    cls=ShortHelp,
    short_help="Write a model as ONNX, torch or one Python file.",
    help="Write the chosen model of a .slab file, without what is not in it, to be run where slabnet is not installed.",
    epilog="Example: slabnet export digits.slab --to onnx --out digits.onnx",
)
def export(
    model: Annotated[Path, typer.Argument(help="A .slab file of a network that slabnet can build.")],
    to: Annotated[str, typer.Option(help="onnx, torch (a torch.export program) or numpy (one Python file).")],
    out: Annotated[Path, typer.Option(help="Where to write it: a new file.")],
    draws: Annotated[int, typer.Option(help="Draws to fix and average in it; 0 for the means.")] = 0,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    if not is_there(model):
        refuse("export", "MODEL", "a file that exists", str(model))
    from slabnet.export import export as write

    exported = write(model, to, out, draws=draws, seed=seed)  # type: ignore[arg-type]
    if json:
        print(json_text(exported))
        return
    gives = f"the average of {draws} draws" if draws else "the means"
    written = printable(", ".join(exported["written"]))
    print(f"{exported['weights']} weights, {gives}: {exported['bytes']} bytes. Written: {written}")


@commands.command(
    cls=ShortHelp,
    short_help="List the methods a network can be built with.",
    help="List the methods a network can be built with.",
    epilog="Example: slabnet methods --json",
)
def methods(json: Json = False) -> None:
    if json:
        keys = ("name", "summary", "source", "selects", "bound")
        print(json_text([{key: getattr(method, key) for key in keys} for method in METHODS.values()]))
        return
    for method in METHODS.values():
        print(f"{method.name:<15} {method.summary}\n{'':<15} {method.source}")

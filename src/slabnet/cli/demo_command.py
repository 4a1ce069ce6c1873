"""The command `slabnet demo`. Answers `--help` and argument errors without loading torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slabnet.cli.options import Seed
from slabnet.core.errors import printable, refuse
from slabnet.core.files import check_writable
from slabnet.core.json_text import json_text
from slabnet.core.short_help import ShortHelp
from slabnet.experiments.commands import Json

commands = typer.Typer()


@commands.command(
    cls=ShortHelp,
    short_help="Fit digits in a minute: a model, a picture and a page.",
    help="Fit, select and post-train on scikit-learn's digits; a table, a model, a picture and a page in a minute.",
    epilog="Example: slabnet demo --out demo-out",
)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model, the numbers, picture and page.")] = Path("demo-out"),
    seed: Seed = 0,
    json: Json = False,
) -> None:
    if out.exists() and not out.is_dir():
        refuse("demo", "--out", "a folder", str(out))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        refuse("demo", "--out", "a folder that can be made", f"{out} ({error.strerror})")
    check_writable("demo", out / "digits.slab")
    from slabnet.cli.demo import run_demo, write_demo

    result = run_demo(seed, show="lines")
    paths = write_demo(result, out)
    if json:
        print(json_text(result.to_dict()))
        return
    trained, tested = len(result.split.train[1]), len(result.split.test[1])
    from slabnet.prediction.ways import print_rows

    print_rows(f"digits: {trained} training and {tested} test images of 8 x 8 pixels", result.rows)
    total, chosen = result.chosen.total, result.chosen
    reached = "every output can be reached" if not chosen.unreachable else f"outputs cut off: {chosen.unreachable}"
    print(f"\nThe median model keeps {chosen.weights} of {total.weights} weights ({chosen.density:.2%}); {reached}.")
    print(printable(f"Done in {result.seconds:.0f} s. Written: {', '.join(str(path) for path in paths)}"))

"""The command `slabnet predict`. Answers `--help` and argument errors without loading torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slabnet.cli.options import DATA_HELP, check_data, table_or_name
from slabnet.core.errors import printable, refuse
from slabnet.core.files import check_writable, is_there
from slabnet.core.json_text import json_text
from slabnet.core.short_help import ShortHelp
from slabnet.experiments.commands import Json

commands = typer.Typer()


@commands.command(
    cls=ShortHelp,
    short_help="Predict new rows, with intervals or probabilities.",
    help="Predict the rows of a table, or the test rows of a data set by name, averaging over draws of the network.",
    epilog="Example: slabnet predict houses.slab new.csv --out predictions.csv",
)
def predict(
    model: Annotated[Path, typer.Argument(help="A .slab file.")],
    data: Annotated[str, typer.Argument(help=DATA_HELP, autocompletion=table_or_name)],
    out: Annotated[Path | None, typer.Option(help="Where to write the predictions as CSV.")] = None,
    draws: Annotated[int | None, typer.Option(help="Networks to draw and average; 10, or 100 for a table.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the draws; for a table, that of the fit.")] = None,
    json: Json = False,
) -> None:
    is_table = check_data("predict", data)
    if draws is not None and draws < 1:
        refuse("predict", "--draws", "a whole number of at least 1", draws)
    if not is_there(model):
        refuse("predict", "MODEL", "a file that exists", str(model))
    if out is not None:
        check_writable("predict", out)
    if is_table:
        from slabnet.cli.table_predictions import lines_of, predict_table

        answers = predict_table(model, Path(data), out, draws, seed)
        print(json_text(answers) if json else "\n".join(lines_of(answers, out)))
        return
    from slabnet.cli.workflow import predict_named

    scores = predict_named(model, data, draws or 10, seed or 0, out)
    if json:
        print(json_text(scores))
        return
    decided = scores["classified_at_95"]
    way = f"averaged over {scores['draws']} draws of {scores['model']}"
    print(f"{data}: accuracy {scores['accuracy']:.4f} on {scores['rows']} test rows, {way}")
    if decided:
        print(f"Decided at 0.95: {decided} rows, of which {scores['accuracy_at_95']:.4f} right; the rest is in doubt.")
    else:
        print("Decided at 0.95: none; every row is in doubt.")
    if out is not None:
        print(printable(f"Written: {out}"))

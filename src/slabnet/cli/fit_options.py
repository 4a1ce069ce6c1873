"""The options of `slabnet fit`, each with its help; those under MORE are shown by --help-all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slabnet.cli.options import one_of
from slabnet.config.methods import METHODS
from slabnet.config.settings import Recipe
from slabnet.core.short_help import MORE

RESPONSES = (
    *("auto", "gaussian", "heteroscedastic", "student-t", "lognormal", "gamma", "poisson"),
    *("negative-binomial", "weibull", "ordinal"),
)
RESPONSE_HELP = f"Distribution of the target: {', '.join(RESPONSES[:-1])} or {RESPONSES[-1]}."
TASKS = ("classification", "regression")

Out = Annotated[Path, typer.Option(help="Where to write the model.")]
Target = Annotated[str | None, typer.Option(help="Column to predict, for a table.")]
TaskName = Annotated[
    str | None,
    typer.Option(help="classification or regression; guessed from the target.", autocompletion=one_of(TASKS)),
]
TestSize = Annotated[float | None, typer.Option(help="Share of a table's rows to test on; 0.2.")]
Drop = Annotated[str | None, typer.Option(help="Columns to leave out, as in id,comment.")]
Categorical = Annotated[str | None, typer.Option(help="Columns of numbers that are labels, as in zip.")]
Group = Annotated[str | None, typer.Option(help="Column of groups: no group is fitted and tested on.")]
Time = Annotated[str | None, typer.Option(help="Column of times: the latest rows are tested on.")]
Response = Annotated[str | None, typer.Option(help=RESPONSE_HELP, autocompletion=one_of(RESPONSES))]
Seed = Annotated[int | None, typer.Option(help="Seed: the same one gives the same model.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a fit that was stopped.")]
Card = Annotated[bool, typer.Option("--card", help="Also write a model card beside the model.")]
NoReport = Annotated[bool, typer.Option("--no-report", help="Write no page, on a terminal either.")]

Exposure = Annotated[
    str | None, typer.Option(help="Column over which counts were taken (time, area).", rich_help_panel=MORE)
]
Event = Annotated[
    str | None, typer.Option(help="Column with 1 for a time that was seen, 0 if cut off.", rich_help_panel=MORE)
]
Levels = Annotated[str | None, typer.Option(help="Ordered classes, as in low,middle,high.", rich_help_panel=MORE)]
MethodName = Annotated[
    str | None,
    typer.Option(help=f"One of {', '.join(METHODS)}.", rich_help_panel=MORE, autocompletion=one_of(tuple(METHODS))),
]
TeacherFile = Annotated[
    Path | None, typer.Option("--teacher", help="A .slab file to learn from as well.", rich_help_panel=MORE)
]
TeacherShare = Annotated[float, typer.Option(help="How much of the objective is the teacher's.", rich_help_panel=MORE)]
Epochs = Annotated[
    int | None,
    typer.Option(help="Passes over the data; chosen from its size if left out.", rich_help_panel=MORE),
]
Hidden = Annotated[str | None, typer.Option(help="Widths of the hidden layers, as in 400,600.", rich_help_panel=MORE)]
Members = Annotated[
    int | None, typer.Option(min=1, max=100, help="Posteriors to fit and average; 1.", rich_help_panel=MORE)
]
Skip = Annotated[
    bool | None,
    typer.Option("--skip/--no-skip", help="Every layer reads the inputs again.", rich_help_panel=MORE),
]
Gates = Annotated[
    bool | None,
    typer.Option("--gates/--no-gates", help="One indicator for each column.", rich_help_panel=MORE),
]
ActivationNames = Annotated[
    str | None,
    typer.Option("--activation", help="Of hidden units: relu, or several, as in relu,tanh.", rich_help_panel=MORE),
]
RecipeName = Annotated[
    str,
    typer.Option(
        help=f"Settings by name: {', '.join(Recipe.names())}.",
        rich_help_panel=MORE,
        autocompletion=one_of(tuple(Recipe.names())),
    ),
]
Config = Annotated[Path | None, typer.Option(help="Settings from a TOML file instead.", rich_help_panel=MORE)]
CheckpointEvery = Annotated[
    float, typer.Option(help="Minutes between checkpoints, besides epochs.", rich_help_panel=MORE)
]
Workers = Annotated[int, typer.Option(help="Processes that train together on this machine.", rich_help_panel=MORE)]

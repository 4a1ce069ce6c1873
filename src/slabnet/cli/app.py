"""The command line. Answers `--help` and argument errors without loading torch; errors are one line."""

from __future__ import annotations

import os
import sys
import time
from typing import Annotated, Any, NoReturn

import typer

from slabnet.cli import check_up, demo_command, explain_command, fit_command, model_commands, predict_command
from slabnet.cli.options import speaks
from slabnet.core.errors import SlabnetError, one_line
from slabnet.core.version import __version__
from slabnet.experiments import commands as experiment_commands
from slabnet.report import commands as report_commands

app = typer.Typer(
    name="slabnet",
    help="Bayesian neural networks that are uncertain about their own structure as well as their weights.\n\n"
    "Start with: slabnet demo",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for part in (
    demo_command,
    fit_command,
    predict_command,
    explain_command,
    report_commands,
    check_up,
    model_commands,
    experiment_commands,
):
    app.add_typer(part.commands)

USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # typer carries its own copy of click
PATIENCE = 10.0  # seconds: a busy machine is slow to end the others
FIRST_STEPS = f"""slabnet {__version__}: Bayesian neural networks that learn which of their weights they need.

First steps:
  slabnet demo                                              fit digits: a model, a picture and a page, offline
  slabnet fit houses.csv --target price --out houses.slab   a model of your own table
  slabnet predict houses.slab new.csv --out answers.csv     predictions of new rows, with intervals

slabnet --help lists all commands, slabnet fit --help says more of one."""


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    context.obj = report_commands.write_runs_report  # what `reproduce` makes its page with
    if version:
        print(f"slabnet {__version__}")
    elif context.invoked_subcommand is None:
        print(FIRST_STEPS)


def run() -> NoReturn:
    """Run the command line: one line on stderr for an error; exit 0, 1 (failed), 2 (bad call), 130 or 143 (stopped)."""
    try:
        code = app(standalone_mode=False)
    except SlabnetError as error:
        _leave(str(error), error.exit_code)
    except USAGE_ERROR as error:
        where = "slabnet" if error.ctx is None else error.ctx.command_path
        _leave(f"{where}: {one_line(error.format_message(), 300)}", 2)
    except (typer.Abort, KeyboardInterrupt):
        _leave("slabnet: interrupted; nothing was written", 130)
    except BrokenPipeError:  # the reader of a pipe went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if os.environ.get("SLABNET_DEBUG"):
            raise
        _leave(f"slabnet: the system refused: {one_line(error.strerror or str(error))}", 1)
    except Exception as error:
        if os.environ.get("SLABNET_DEBUG"):
            raise
        _leave(f"slabnet: unexpected {type(error).__name__}: {one_line(str(error))} (SLABNET_DEBUG=1 shows where)", 1)
    if code == 130:  # what typer makes of Ctrl-C
        _leave("slabnet: interrupted; nothing was written", 130)
    sys.exit(code if isinstance(code, int) else 0)


def _leave(message: str, code: int) -> NoReturn:
    if message and not speaks() and not message.startswith("distributed:"):
        time.sleep(PATIENCE)  # the first one says the same, and ends this one
    if message:
        print(message, file=sys.stderr)
    sys.exit(code)
